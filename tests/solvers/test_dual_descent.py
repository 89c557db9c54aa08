"""Dual coordinate descent with shrinking against visits in NumPy, LIBLINEAR, the interior point
method and bounds in float64."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import weights_of, with_ones
from sklearn.datasets import load_breast_cancer
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import losses
from jaxsvm.engines.coordinate_descent import PRIMES

N, D, C = 90, 6, 2.0
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
TARGET = X @ [1.0, -0.7, 0.4, 0.0, 0.3, 0.0] + 0.6 * RNG.normal(size=N) + 0.3
Y = np.where(TARGET > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
fit = functools.partial(jaxsvm.fit, key=KEY)
FORMS = {"dense": np.asarray, "sparse": scipy.sparse.csr_matrix}


def dataset(x=X, y=Y, weight=None, form="sparse", dtype=np.float32, task="binary"):
    return jaxsvm.dataset(FORMS[form](np.asarray(x, dtype)), y, weight, task=task)


def primal(w, bias, x=X, y=Y, C=C, weight=1.0):
    """The objective of the hinge."""
    return w @ w / 2 + C * np.sum(weight * np.maximum(1 - y * (with_ones(x, bias) @ w), 0))


def visits_of(x, y, low, high, l1, tol, rounds):
    """The rule of the docstring for a dual sum_i y_i c_i - l1 |c_i| - |w|^2 / 2: the coefficients,
    the weights, and how many rows were listed in each pass."""
    everything = np.arange(len(y))
    coef, w, listed = np.zeros(len(y)), np.zeros(x.shape[1]), everything
    limit, goal, residual, sizes = [np.inf, np.inf], np.inf, 1.0, []
    visits, latest, renewal = 0.0, 120.0, 20.0
    while visits < rounds and residual > tol:
        stride, place = PRIMES[len(sizes) % len(PRIMES)] % len(listed), 0
        kept, most = [], [-np.inf, -np.inf]
        for _ in listed:
            i, place = listed[place], (place + stride) % len(listed)
            grad = y[i] - x[i] @ w
            up = grad - (l1 if coef[i] >= 0 else -l1) if coef[i] < high[i] else -np.inf
            down = -grad + (l1 if coef[i] > 0 else -l1) if coef[i] > low[i] else -np.inf
            if low[i] < 0 < high[i] and coef[i] == 0:
                gains = max(up, down), -np.inf
            else:
                grows_up = coef[i] > 0 or (coef[i] == 0 and high[i] > 0)
                gains = (up, down) if grows_up else (down, up)
            if gains[0] >= -limit[1] or gains[1] >= -limit[0]:
                kept.append(i)
                most = np.maximum(most, gains)
                if max(gains) > 0:
                    q = x[i] @ x[i]
                    free = coef[i] + grad / q
                    free = np.sign(free) * max(abs(free) - l1 / q, 0)
                    new = np.clip(free, low[i], high[i])
                    w, coef[i] = w + (new - coef[i]) * x[i], new
        sizes.append(len(listed))
        visits += max(len(listed) / len(y), 1 / 64)
        violation, is_whole = max(*most, 0), len(listed) == len(y)
        goal = max(2 * tol**0.5, 1e-3) * violation if len(sizes) == 1 else goal
        is_late = visits >= latest
        looks = (is_whole and (violation <= goal or is_late)) or visits >= rounds
        begins_anew = looks or violation <= goal or is_late or not kept or visits >= renewal
        if looks:
            visits += 2
            slack = np.maximum((y - x @ w) * np.sign(y) if l1 == 0 else abs(y - x @ w) - l1, 0)
            value = w @ w / 2 + np.maximum(high, -low) @ slack
            residual = (value - y @ coef + l1 * abs(coef).sum() + w @ w / 2) / value
            goal *= np.clip(tol / residual, 0.02, 0.5) if violation <= goal else 1
            latest = max(2 * visits, 120)
        renewal = visits + 20 if begins_anew else renewal
        listed = everything if begins_anew else np.array(kept)
        limit = [np.inf if begins_anew or gain <= 0 else gain for gain in most]
    return coef, w, sizes


@pytest.mark.long(but=2)
@pytest.mark.parametrize("loss", ["hinge", "tube"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("C", [0.05, 5.0])
def test_visits_are_those_of_the_rule(form, loss, C, x64):
    """Rows leave the list in these passes and come back; at C = 5, after twenty visits of each."""
    rounds, kind = 90, losses.hinge if loss == "hinge" else losses.eps_insensitive(0.2)
    x, options = with_ones(X, "feature"), {"form": form, "dtype": np.float64}
    bound = C * np.ones(N)
    if loss == "hinge":
        data = dataset(**options)
        expected = visits_of(x, Y, np.where(Y > 0, 0, -C), np.where(Y > 0, C, 0), 0.0, 1e-9, rounds)
    else:
        data = dataset(y=TARGET, task="regression", **options)
        expected = visits_of(x, TARGET, -bound, bound, 0.2, 1e-9, rounds)
    coef, w, sizes = expected
    assert len(set(sizes)) > 2 and len(sizes) > 8
    run = fit(jaxsvm.dual_descent(C, loss=kind, tol=1e-9, rounds=rounds), data, steps=1)
    assert int(run.state.solver.steps) == len(sizes)
    np.testing.assert_allclose(run.state.solver.coef, coef, atol=1e-10)
    np.testing.assert_allclose(weights_of(run.model, "feature"), w, atol=1e-10)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("form", FORMS)
def test_the_residual_is_the_gap_of_its_coefficients(form):
    """Also where the update ends before its tolerance is met. The bias is a large one."""
    Y = np.where(TARGET > 1.2, 1.0, -1.0)
    for rounds, tol in ((5, 1e-9), (1000, 1e-4)):
        solver = jaxsvm.dual_descent(C, tol=tol, rounds=rounds)
        run = fit(solver, dataset(y=Y, weight=WEIGHT, form=form), steps=1)
        assert run.model.b**2 > 0.2 * run.model.sqnorm()
        coef = np.asarray(run.state.solver.coef, np.float64)
        assert np.all((Y * coef >= 0) & (Y * coef <= C * WEIGHT + 1e-6))
        x = with_ones(X.astype(np.float32).astype(np.float64), "feature")
        w = weights_of(run.model, "feature")
        np.testing.assert_allclose(w, coef @ x, atol=1e-5)
        upper = primal(w, "feature", y=Y, weight=WEIGHT)
        gap = upper - (Y @ coef - np.sum((coef @ x) ** 2) / 2)
        assert float(run.info.residual[-1]) == pytest.approx(gap / upper, rel=2e-3, abs=1e-6)
    assert run.converged


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([0.0, 0.2]))
def test_the_residual_bounds_the_objective_whatever_the_data(seed, C, noise):
    """Separable rows, equal rows, rows of zeros and columns of zeros are among them."""
    random = np.random.default_rng(seed)
    x = np.round(random.normal(size=(40, 3)), 1) * [1, 1, 0] * (random.random((40, 1)) < 0.9)
    y = np.where(x[:, 0] + noise * random.normal(size=40) >= 0, 1.0, -1.0)
    if np.unique(y).size < 2:
        return
    run = fit(jaxsvm.dual_descent(C), dataset(x, y))
    best = LinearSVC(C=C, loss="hinge", dual=True, tol=1e-9, max_iter=10**6, random_state=0)
    best.fit(x, y)
    least = primal(np.append(best.coef_[0], best.intercept_), "feature", x, y, C)
    ours = primal(weights_of(run.model, "feature"), "feature", x, y, C)
    assert run.finite and ours <= least * (1 + float(run.info.residual[-1]) + 1e-5)


@pytest.mark.long
def test_rows_of_zeros_of_large_targets():
    """Without a bias their curvature is 0: no quotient of it overflows."""
    x = X.copy()
    x[3] = 0
    y = 1000 * TARGET + 5000
    options = {"loss": losses.eps_insensitive(100.0), "bias": "none"}
    data = dataset(x, y, task="regression")
    ours = fit(jaxsvm.dual_descent(1.0, tol=1e-6, **options), data)
    other = fit(jaxsvm.interior_point(1.0, **options), data)
    assert ours.finite
    np.testing.assert_allclose(ours.model.w, other.model.w, rtol=1e-2, atol=0.1)


@pytest.mark.long
def test_a_tolerance_below_rounding_ends_the_run():
    """Of float32, long before the limit of 1,000 visits, which are some 30,000 passes here. The
    hinge is passed in float64."""
    x = scipy.sparse.random(800, 300, 0.05, random_state=0, format="csr")
    x.data = np.random.default_rng(0).normal(size=x.nnz)
    y = np.where(x @ np.random.default_rng(1).normal(size=300) > 0, 1, -1)
    data = jaxsvm.dataset(x.astype(np.float32), y)
    run = fit(jaxsvm.dual_descent(1.0, tol=1e-8), data, steps=1)
    assert run.converged and int(run.state.solver.steps) < 5000
    smooth = jaxsvm.dual_descent(1.0, loss=losses.squared_hinge, tol=1e-8)
    run = fit(smooth, data, steps=1)
    assert not run.converged and float(run.info.residual[-1]) < 1e-6
    assert float(run.info.evals[-1]) < 900 * 800  # three looks without a gain end it


def test_rows_that_cannot_move_end_the_run():
    """Nothing moves in a pass where C is tiny: the run ends after it, without a thousand others."""
    run = fit(jaxsvm.dual_descent(1e-6), dataset(), steps=1, tol=1e-30)
    assert int(run.state.solver.steps) < 20 and run.finite
    np.testing.assert_allclose(Y * run.state.solver.coef, 1e-6, rtol=1e-5)


@pytest.mark.long
def test_many_visits_are_counted():
    """Short lists are visited without end only until `rounds` visits of each row have gone by."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    run = fit(jaxsvm.dual_descent(1e3, tol=1e-12, rounds=50), dataset(x, 2.0 * y - 1), steps=1)
    assert not run.converged and 50 <= run.evals / len(y) <= 56


@pytest.mark.long
def test_derivatives_are_those_of_the_interior_point_method(x64):
    at = lambda make, data: lambda C: fit(make(C), data, steps=1).model(X[:5])
    slope = lambda make, data: jax.jit(jax.jacobian(at(make, data)))(0.02)
    data = {form: dataset(form=form, dtype=np.float64) for form in FORMS}
    other = slope(lambda C: jaxsvm.interior_point(C, tol=1e-12), data["dense"])
    for form in FORMS:
        ours = slope(lambda C: jaxsvm.dual_descent(C, tol=1e-12, rounds=1e5), data[form])
        assert np.abs(ours).max() > 1e-2
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-7)


def test_derivatives_in_the_rows_are_differences_of_solutions(x64):
    data = dataset(form="dense", dtype=np.float64)
    step = np.random.default_rng(1).normal(size=X.shape)
    solver = jaxsvm.dual_descent(0.3, loss=losses.squared_hinge, tol=1e-14, rounds=1e5)
    at = lambda t: fit(solver, data._replace(x=data.x + t * step), steps=1).model.w
    slope, plain = jax.jit(jax.jacfwd(at))(0.0), jax.jit(at)
    differences = (plain(1e-5) - plain(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, differences, rtol=1e-4, atol=1e-6)
