"""Augmented Lagrangians against steps in NumPy, LIBLINEAR, the interior point method and bounds in
float64."""

from __future__ import annotations

import functools
import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import weights_of, with_ones
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVR

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.estimators import LinearSVC as OurLinearSVC

N, D, C = 90, 4, 2.0
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D))
TARGET = X @ [1.0, -0.7, 0.4, 0.0] + 0.6 * RNG.normal(size=N) + 0.3
Y = np.where(TARGET > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
fit = functools.partial(jaxsvm.fit, key=KEY)
lagrangian = importlib.import_module("jaxsvm.solvers.dual.augmented_lagrangian")
BIASES = ("none", "feature")


dataset = maker(X, Y)


def primal(w, bias, x=X, y=Y, C=C, weight=1.0):
    """The objective of the hinge."""
    return w @ w / 2 + C * np.sum(weight * np.maximum(1 - y * (with_ones(x, bias) @ w), 0))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", BIASES)
def test_steps_are_those_of_the_formulas(bias, x64):
    """The direction and its line search by hand, from the state before each step; the multipliers
    and penalties, too."""
    weight = np.maximum(WEIGHT, 1)
    data, solver = (
        dataset(weight=weight),
        jaxsvm.augmented_lagrangian(C, bias=bias, rounds=1, tol=1e-12),
    )
    x = with_ones(X, bias)
    state, kinds = solver.init(KEY, data), []
    np.testing.assert_array_equal(state.multiplier, Y / 2)
    for _ in range(25):
        v, m, s = np.asarray(state.v), Y * np.asarray(state.multiplier), float(state.penalty)
        clipped = lambda v, m=m, s=s: np.clip(m + s * (1 - Y * (x @ v)), 0, 1)
        grad = lambda v, clipped=clipped: v - C * x.T @ (weight * Y * clipped(v))
        c = clipped(v)
        J = (m + s * (1 - Y * (x @ v)) > 0) & (m + s * (1 - Y * (x @ v)) < 1)
        dual = C * weight @ c - np.sum((x.T @ (C * weight * Y * c)) ** 2) / 2
        gap = primal(v, bias, weight=weight) - dual
        new, info = jaxsvm.step(solver, state, data)
        assert float(info.residual) <= gap / primal(v, bias, weight=weight) * (1 + 1e-9) + 1e-15
        if not state.is_new and grad(v) @ grad(v) / 2 <= 0.5 * gap:
            kinds.append("multiplier")
            np.testing.assert_allclose(new.multiplier, Y * c, atol=1e-10)
            most = 1e4 if float(new.previous) > 0.9 * float(state.previous) else 30
            np.testing.assert_allclose(new.penalty, max(s, min(3 * s, most)))
            np.testing.assert_allclose(
                new.previous, gap / primal(v, bias, weight=weight), rtol=1e-6, atol=1e-14
            )
            np.testing.assert_array_equal(new.v, v)
        else:
            kinds.append("step")
            direction = -np.linalg.solve(
                np.eye(len(v)) + C * s * x[J].T @ (weight[J, None] * x[J]), grad(v)
            )
            moved = np.asarray(new.v) - v
            t = moved @ direction / (direction @ direction)
            np.testing.assert_allclose(
                moved, t * direction, atol=1e-8 * np.abs(v + direction).max()
            )
            assert t > 0 and abs(grad(v + t * direction) @ direction) <= 1.1e-3 * abs(
                grad(v) @ direction
            )
        state = new
    assert kinds.count("multiplier") >= 3 and kinds.count("step") >= 6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_optima_of_the_tube_at_all_scales_of_the_targets(scale):
    """1/2 |w|^2 + C/scale sum max(|y - f| / scale - eps, 0) is the problem at scale 1, written in
    other units."""
    y = scale * TARGET
    peer = LinearSVR(C=C, epsilon=0.2, tol=1e-10, max_iter=10**7, random_state=0, dual=True).fit(
        X, TARGET
    )
    solver = jaxsvm.augmented_lagrangian(C * scale, loss=losses.eps_insensitive(0.2 * scale))
    run = fit(solver, dataset(y=y, dtype=np.float32, task="regression"))
    assert run.converged
    found, wanted = (
        np.append(run.model.w, run.model.b) / scale,
        np.append(peer.coef_, peer.intercept_),
    )
    np.testing.assert_allclose(found, wanted, atol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("bias", BIASES)
def test_the_dual_coefficients_certify_the_solution(bias):
    data = dataset(weight=WEIGHT, dtype=np.float32)
    run = fit(jaxsvm.augmented_lagrangian(C, bias=bias), data)
    share = np.asarray(run.state.solver.coef)
    assert np.all((Y * share >= 0) & (Y * share <= 1))
    coef = jnp.asarray(C * WEIGHT * share, jnp.float32)
    b = jnp.sum(coef) if bias == "feature" else jnp.zeros(())
    dual = models.Expansion(kernels.linear(), data.x, coef, b, jnp.arange(N, dtype=jnp.int32), bias)
    certificate = jaxsvm.certificate(dual, data, 1 / (C * WEIGHT.sum()))
    upper = jaxsvm.certificate(run.model, data, 1 / (C * WEIGHT.sum())).primal
    assert certificate.exact and -1e-6 * upper <= upper - certificate.dual <= 2e-6 * upper
    assert float(run.info.residual[-1]) <= 1e-6


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([0.0, 0.2]))
def test_the_residual_is_a_gap_whatever_the_data(seed, C, noise):
    """Separable rows, equal rows and columns of zeros are among them."""
    random = np.random.default_rng(seed)
    x = np.round(random.normal(size=(40, 3)), 1) * [1, 1, 0]
    y = np.where(x[:, 0] + noise * random.normal(size=40) > 0, 1.0, -1.0)
    run = fit(jaxsvm.augmented_lagrangian(C), dataset(x, y, dtype=np.float32))
    x = x.astype(np.float32).astype(np.float64)
    share = np.asarray(run.state.solver.coef, np.float64)
    vector = with_ones(x, "feature").T @ (C * share)
    dual = C * np.sum(y * share) - vector @ vector / 2
    upper = primal(weights_of(run.model, "feature"), "feature", x, y, C)
    assert -2e-6 * upper <= upper - dual <= (float(run.info.residual[-1]) + 2e-6) * upper
    assert float(run.info.residual[-1]) <= 1e-5


@pytest.mark.long
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_float32_meets_the_tolerance_on_standardised_columns(C):
    x, y = load_breast_cancer(return_X_y=True)
    x, y = ((x - x.mean(0)) / x.std(0)).astype(np.float32), 2.0 * y - 1
    run = fit(jaxsvm.augmented_lagrangian(C), dataset(x, y, dtype=np.float32), tol=1e-5)
    assert run.converged and run.evals <= 100 * len(y)
    best = fit(jaxsvm.interior_point(C), dataset(x, y, dtype=np.float32))
    x = x.astype(np.float64)
    values = [primal(weights_of(each.model, "feature"), "feature", x, y, C) for each in (run, best)]
    assert values[0] / values[1] - 1 <= 1.2e-5


def test_an_update_ends_where_nothing_improves():
    run = fit(
        jaxsvm.augmented_lagrangian(C, rounds=10_000), dataset(dtype=np.float32), steps=1, tol=1e-30
    )
    assert not run.converged and run.finite and run.evals < 1000 * N
    assert float(run.info.residual[-1]) <= 1e-6


def test_support_counts_rows_with_a_coefficient():
    """Two of five rows that count are on the margin of w = 1, one of weight 0 is within it."""
    data = jaxsvm.dataset(
        [[1.0], [-1.0], [3.0], [-4.0], [2.0], [0.5]], [1, -1, 1, -1, 1, 1], [1, 1, 1, 1, 1, 0]
    )
    run = fit(jaxsvm.augmented_lagrangian(10.0, bias="none"), data, steps=1, tol=1e-5)
    assert float(run.model.w[0]) == pytest.approx(1, abs=1e-4) and int(run.info.support[-1]) == 2


@pytest.mark.long
def test_updates_of_one_step_are_one_update(x64):
    """A run that is cut after every step ends at the same point."""
    many = fit(jaxsvm.augmented_lagrangian(C, rounds=1), dataset(), steps=60, every=1)
    one = fit(jaxsvm.augmented_lagrangian(C, rounds=60), dataset(), steps=1)
    assert one.converged and np.all(np.diff(np.asarray(many.info.residual)) <= 0)
    np.testing.assert_allclose(many.model.w, one.model.w, atol=1e-9)


@pytest.mark.long
def test_linear_svc_takes_it_on_many_rows_unless_c_and_the_rows_are_large():
    x = RNG.normal(size=(5000, 5)).astype(np.float32)
    y = np.where(x @ [1.0, 0.5, 0, 0, -1] + 0.5 * RNG.normal(size=5000) > 0, 1, -1)
    easy = OurLinearSVC(loss="hinge").fit(x, y)
    assert easy.solver_ == "augmented_lagrangian" and easy.fit_.converged
    assert OurLinearSVC(loss="hinge").fit(x[:900], y[:900]).solver_ == "interior_point"
    with pytest.warns(Warning, match="not met"):  # five steps are not enough
        OurLinearSVC(loss="hinge", max_iter=5).fit(x, y)
    hard = OurLinearSVC(loss="hinge", C=1e6).fit(x * np.float32([1, 1, 1, 1, 300]), y)  # no warning
    assert hard.solver_ == "interior_point" and hard.fit_.converged


def test_maximisers_and_their_slopes_at_the_corners_of_the_tube(x64):
    """At a corner the coefficient is 0, and its derivative is taken to be 0."""
    residual = jnp.array([0.0, 0.5, -0.5, 0.75, -0.75, 3.0])  # multiples of 1/4: sums are exact
    n, loss = len(residual), losses.eps_insensitive(0.5)
    zeros, ones = jnp.zeros(n), jnp.ones(n)
    bounds = loss.quadratic(residual, ones)
    rows = lagrangian.Rows(zeros[:, None], residual, ones, 1.0, 2.0, bounds, loss, False)
    at = types.SimpleNamespace(multiplier=zeros, penalty=2.0)
    coef, slope = rows.coef_of(at, zeros)
    np.testing.assert_array_equal(coef, [0, 0, 0, 0.5, -0.5, 1])
    np.testing.assert_array_equal(slope, [0, 0, 0, 2, 2, 0])
