"""Block minimisation of the dual against visits in NumPy, LIBLINEAR and the descent on all rows."""

from __future__ import annotations

import functools
import importlib

import jax
import numpy as np
import pytest
from cases import maker
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import features, kernels, samplers
from jaxsvm.engines.coordinate_descent import PRIMES
from jaxsvm.types import take

FITTING = importlib.import_module("jaxsvm.loops.fitting")
N, D, C = 60, 5, 2.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
TARGET = X @ [1.0, -0.7, 0.4, 0.0, 0.3] + 0.6 * RNG.normal(size=N) + 0.3
Y = np.where(TARGET > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
fit = functools.partial(jaxsvm.fit, key=KEY)


dataset = maker(X, Y, dtype="float32")
begin = jax.jit(lambda solver, data: solver.init(KEY, data))
visit = jax.jit(lambda solver, state, data, index: solver.update(state, take(data, index)))


def passes_of(size, count, rows=range(N)):
    """Blocks of rows in random orders; -1 fills the last of each pass."""
    random, padding = np.random.default_rng(1), [-1] * (-len(rows) % size)
    passes = [np.append(random.permutation(rows), padding) for _ in range(count)]
    return np.concatenate(passes).astype(int).reshape(-1, size)


def visits_of(blocks, weight, one):
    """One visit of each row of each block by the rule of the docstring, for the hinge; the terms
    of the gap and the losses at the weights that rows met."""
    ones = np.c_[X, np.full(N, one)]
    coef, w, gap, loss = np.zeros(N), np.zeros(D + 1), 0.0, 0.0
    for block in blocks:
        live = (block >= 0) & (weight[block] > 0)
        y, x = Y[block[live]], ones[block[live]]
        score, bound = x @ w, C * weight[block[live]]
        slack = bound * np.maximum(1 - y * score, 0)
        gap += np.sum(slack + coef[block[live]] * (score - y))
        loss += slack.sum()
        rows = block[live]
        place, stride = 0, PRIMES[0] % len(rows)
        for _ in rows:
            i, place = rows[place], (place + stride) % len(rows)
            alpha = Y[i] * coef[i] + (1 - Y[i] * (ones[i] @ w)) / (ones[i] @ ones[i])
            new = Y[i] * np.clip(alpha, 0, C * weight[i])
            w, coef[i] = w + (new - coef[i]) * ones[i], new
    return coef, w, gap, loss


@pytest.mark.parametrize("bias", ["none", "feature"])
def test_a_pass_is_that_of_numpy(bias, x64):
    data = dataset(weight=WEIGHT, dtype=np.float64)
    solver = jaxsvm.block_descent(C, bias=bias, rounds=1)
    blocks = passes_of(13, 1, np.flatnonzero(WEIGHT))
    state, one = begin(solver, data), float(bias == "feature")
    for block in blocks:
        state, info = visit(solver, state, data, block)
    coef, w, gap, loss = visits_of(blocks, WEIGHT, one)
    np.testing.assert_allclose(state.coef, coef, atol=1e-12)
    np.testing.assert_allclose([*state.w, state.b * one], w * [*[1] * D, one], atol=1e-12)
    assert info.residual == pytest.approx(gap / (w @ w / 2 + loss), rel=1e-10)


def residuals(blocks):
    """After each of the steps."""
    data, solver, found = dataset(), jaxsvm.block_descent(C), []
    state = begin(solver, data)
    for index in blocks:
        state, info = visit(solver, state, data, index)
        found.append(info.residual)
    return np.asarray(found)


@pytest.mark.long
def test_the_residual_is_that_of_the_last_complete_pass():
    residual = residuals(passes_of(25, 3)[:7])
    assert np.isinf(residual[:2]).all() and np.isfinite(residual[2:]).all()
    assert residual[2] == residual[3] == residual[4] != residual[5] == residual[6]


def test_a_pass_ends_when_every_row_was_visited():
    """A row that is visited again counts once."""
    data, solver = dataset(), jaxsvm.block_descent(C)
    state, half = begin(solver, data), np.arange(N // 2)
    for index, is_whole in ((half, False), (half, False), (half + N // 2, True), (half, True)):
        state, info = visit(solver, state, data, index)
        assert np.isfinite(info.residual) == is_whole
    passes = [info.residual]
    state, info = visit(solver, state, data, half + N // 2)
    assert info.residual != passes[0], "the second pass has ended"


@pytest.mark.long
@pytest.mark.parametrize("sampler", [samplers.epochs(100), samplers.shrinking(100)])
def test_breast_cancer_in_float32(sampler):
    x, y = load_breast_cancer(return_X_y=True)
    data = dataset((x - x.mean(0)) / x.std(0), 2.0 * y - 1)
    run = fit(jaxsvm.block_descent(0.1), data, sampler=sampler, steps=6000, tol=1e-4)
    assert run.converged
    proof = jaxsvm.certificate(run.model, data, jaxsvm.lam_from_C(0.1, len(y)), passes=20)
    assert proof.gap <= 1e-3 * proof.primal


@pytest.mark.long
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31 - 1), st.sampled_from([samplers.uniform(70), samplers.epochs(7)]))
def test_weights_are_the_sum_of_rows(seed, sampler):
    """Rows that a step draws twice, and those of weight 0, too."""
    data = dataset(weight=WEIGHT)
    run = jaxsvm.fit(jaxsvm.block_descent(C), data, jax.random.key(seed), sampler=sampler, steps=7)
    coef = np.asarray(run.state.solver.coef)
    assert np.all((coef * Y >= 0) & (coef * Y <= C * WEIGHT * (1 + 1e-6)))
    np.testing.assert_allclose(run.model.w, coef @ X, atol=2e-5)
    np.testing.assert_allclose(run.model.b, coef.sum(), atol=2e-5)


@pytest.mark.long
def test_no_step_makes_the_dual_smaller(x64):
    data = dataset(dtype=np.float64)
    solver = jaxsvm.block_descent(C, rounds=3)
    state, before = begin(solver, data), 0.0
    for index in np.random.default_rng(1).integers(0, N, (30, 9)):
        state, _ = visit(solver, state, data, index)
        w = np.append(state.w, state.b)
        after = np.sum(Y * state.coef) - w @ w / 2
        assert after >= before - 1e-12
        before = after


@pytest.mark.long
def test_features_a_block_at_a_time(monkeypatch):
    data = dataset()
    phi = features.fourier(KEY, kernels.rbf(2.0), dim=D, features=128)
    solver = jaxsvm.on_features(phi, jaxsvm.block_descent(C))
    options = {"sampler": samplers.epochs(16), "steps": 80, "every": 4}
    once = fit(solver, solver.prepare(data), **options).model.inner.w
    monkeypatch.setattr(FITTING, "MEMORY", 0)
    step = fit(solver, data, **options).model.inner.w
    np.testing.assert_allclose(step, once, atol=1e-5)
    exact = LinearSVC(loss="hinge", C=C, tol=1e-8, max_iter=10**6).fit(phi(X), Y).coef_[0]
    np.testing.assert_allclose(once, exact, atol=0.05 * np.abs(exact).max())


def test_rows_that_repeat_and_what_a_step_reports():
    """A row that occurs twice is moved once, and named once."""
    data, solver = dataset(weight=np.where(np.arange(N) == 4, 0.0, 1.0)), jaxsvm.block_descent(C)
    state = begin(solver, data)
    index = np.asarray([7, 4, 7, -1, 9])
    new, info = visit(solver, state, data, index)
    np.testing.assert_array_equal(info.index, [7, 4, -1, -1, 9])
    once, _ = visit(solver, state, data, np.asarray([7, 9, -1, -1, -1]))
    np.testing.assert_allclose(new.coef, once.coef, atol=1e-6)
    assert set(np.flatnonzero(new.coef)) == {7, 9}
    # q move^2 / 2, from 0 and from what was there
    squares = np.sum(X**2, 1) + 1
    gain = lambda old, new: squares * np.asarray(new.coef - old.coef) ** 2 / 2
    first = gain(state, new)
    np.testing.assert_allclose(info.progress, [first[7], 0, 0, 0, first[9]], rtol=1e-5)
    others, _ = visit(solver, new, data, np.arange(10, 40))
    last, info = visit(solver, others, data, np.asarray([9, 7, -1, -1, -1]))
    second = gain(others, last)
    assert second[[7, 9]].max() > 0
    np.testing.assert_allclose(info.progress[:2], second[[9, 7]], rtol=1e-3, atol=1e-7)


@pytest.mark.long
def test_the_start_of_another_number():
    """A run goes on from another C, whose bounds cut the coefficients."""
    data = dataset()
    state = begin(jaxsvm.block_descent(1.0), data)
    for C, index in zip([1.0] * 400 + [0.01] * 400, passes_of(16, 200), strict=True):
        solver = jaxsvm.block_descent(C)
        state, _ = visit(solver, state, data, index)
    exact = LinearSVC(loss="hinge", C=0.01, tol=1e-8, max_iter=10**6).fit(X, Y)
    np.testing.assert_allclose(state.w, exact.coef_[0], atol=1e-3)


def test_the_gap_is_known_once_all_rows_were_visited():
    residual = residuals(passes_of(1, 2)[: N + 1])
    assert np.isinf(residual[: N - 1]).all() and np.isfinite(residual[N - 1 :]).all()
