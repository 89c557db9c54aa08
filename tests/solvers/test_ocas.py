"""Cutting planes against LIBLINEAR, LIBSVM, scikit-learn, closed forms, and the methods written out
in NumPy, float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from cases import maker
from oracles import formula
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import features, kernels, losses, objectives, ocas, svm_perf
from jaxsvm.engines.bundle import make_problem

KEY = jax.random.key(0)
N, D, LAM, PLANES = 60, 4, 0.02, 30
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, D)) * np.array([1.0, 0.5, 2.0, 1.0])
TARGETS = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.7 * RANDOM.normal(size=N) + 0.8
Y = np.where(TARGETS > 0, 1.0, -1.0)
WEIGHT = RANDOM.integers(0, 4, size=N).astype(float)
both = pytest.mark.parametrize("factory", [ocas, svm_perf])


dataset = maker(X, Y)


def hinge(w, b=0.0, x=X, y=Y):
    return np.maximum(0, 1 - y * (x @ w + b)).mean()


# Closed forms and formulas


@pytest.mark.long
@both
def test_one_plane_solves_a_strong_regularisation(factory, x64):
    lam = 1.1 * (X**2).sum(1).max()
    run = jaxsvm.fit(factory(lam), dataset(weight=WEIGHT), KEY, steps=2)
    mean = np.average(Y[:, None] * X, axis=0, weights=WEIGHT)
    np.testing.assert_allclose(run.model.w, mean / lam, rtol=1e-12)
    assert run.info.residual[-1] < 1e-14


def simplex_dual(slopes, offsets, lam):
    """The convex weights of highest dual value, and that: the best of all active sets."""
    slopes, offsets = np.asarray(slopes), np.asarray(offsets)
    gram = slopes @ slopes.T / lam
    m = len(offsets)
    best, found = -np.inf, None
    for size in range(1, min(m, D + 1) + 1):
        for active in itertools.combinations(range(m), size):
            active = list(active)
            system = np.block(
                [
                    [gram[np.ix_(active, active)], np.ones((size, 1))],
                    [np.ones((1, size)), np.zeros((1, 1))],
                ]
            )
            theta = np.linalg.lstsq(system, np.append(offsets[active], 1), rcond=None)[0][:size]
            if theta.min() < -1e-12 or abs(theta.sum() - 1) > 1e-9:
                continue
            value = theta @ offsets[active] - theta @ gram[np.ix_(active, active)] @ theta / 2
            if value > best + 1e-13:
                best, found = value, np.zeros(m)
                found[active] = theta
    return found, best


def written_out(rounds, mix):
    """OCAS in NumPy: (objective, dual value, w) after each round."""
    slopes, offsets = [np.zeros(D)], [0.0]
    w, model, out = np.zeros(D), np.zeros(D), []
    objective = lambda w: LAM / 2 * w @ w + hinge(w)
    for _ in range(rounds):
        point = (1 - mix) * w + mix * model
        on = Y * (X @ point) < 1
        slopes.append(-(Y * on) @ X / N)
        offsets.append(on.mean())
        theta, dual = simplex_dual(slopes, offsets, LAM)
        model = -theta @ np.array(slopes) / LAM
        d = model - w
        # the search by sorting: the slope before each breakpoint
        z, q = 1 - Y * (X @ w), Y * (X @ d)
        on = (z > 0) | ((z == 0) & (q < 0))
        slope = LAM * w @ d - (on * q).mean()
        t = 0.0
        if slope < 0:
            breaks = np.where((q != 0) & (z / np.where(q, q, 1) > 0), z / np.where(q, q, 1), np.inf)
            order = np.argsort(breaks)
            t = np.inf
            for i in order[np.isfinite(breaks[order])]:
                zero = -slope / (LAM * d @ d)
                if zero <= breaks[i]:
                    t = zero
                    break
                slope += abs(q[i]) / N
                if slope + LAM * d @ d * breaks[i] >= 0:
                    t = breaks[i]
                    break
            t = -slope / (LAM * d @ d) if np.isinf(t) else t
        w = w + t * d
        out.append((objective(w), dual, w))
    return out


def test_the_model_of_svm_perf_is_the_best_of_its_rounds(x64):
    runs = [jaxsvm.fit(svm_perf(LAM), dataset(), KEY, steps=k).model.w for k in range(2, 10)]
    values = [LAM / 2 * w @ w + hinge(w) for w in map(np.asarray, runs)]
    assert np.diff(values).max() <= 1e-12


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mix", [0.1, 1.0])
def test_rounds_are_those_of_the_method_written_out(mix, x64):
    expected = written_out(8, mix)
    solver, data = ocas(LAM, mix=mix, planes=PLANES), dataset()
    step, state = jax.jit(solver.update), solver.init(KEY, data)
    for primal, dual, w in expected:
        state, info = step(state, data)
        np.testing.assert_allclose(state.best.w, w, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(info.residual, (primal - dual) / primal, rtol=1e-7)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("loss", [losses.hinge, losses.logistic], ids=repr)
def test_the_search_ends_at_the_minimum_of_the_ray(loss, x64):
    problem = make_problem(LAM, loss, "none", None, dataset(), jnp.asarray(WEIGHT))
    search = jax.jit(lambda a, b: problem.search(problem.at(a), problem.at(b), 0.1))
    share = WEIGHT / WEIGHT.sum()
    for _ in range(5):
        a, b = RANDOM.normal(size=(2, D))
        found = search(a, b)
        objective = lambda t, a=a, b=b: (
            LAM / 2 * np.sum((a + t * (b - a)) ** 2)
            + share @ formula(loss)[0](X @ (a + t * (b - a)), Y)
        )
        best = scipy.optimize.minimize_scalar(
            objective, bounds=(0, 50), method="bounded", options={"xatol": 1e-10}
        )
        least = min(best.fun, objective(0.0))
        np.testing.assert_allclose(
            problem.objective(found), least, rtol=1e-9 if loss is losses.hinge else 1e-5
        )
        np.testing.assert_allclose(found.response, X @ found.w, atol=1e-12)


# Promises of the docstrings


@pytest.mark.long
@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gap_bounds_the_distance_to_the_optimum(factory, dtype, x64):
    best = LinearSVC(
        loss="hinge",
        C=1 / (LAM * N),
        fit_intercept=False,
        tol=1e-10,
        max_iter=10**6,
        random_state=0,
    ).fit(X, Y)
    w = best.coef_[0]
    least = LAM / 2 * w @ w + hinge(w)
    data = dataset(dtype=dtype)
    solver = factory(LAM, planes=6)
    step, state, last = jax.jit(solver.update), solver.init(KEY, data), np.inf
    rounding = 1e-6 if dtype == "float32" else 1e-9  # of LIBLINEAR
    for _ in range(40):
        state, info = step(state, data)
        found = np.asarray(state.best.w, np.float64)
        primal = LAM / 2 * found @ found + hinge(found)
        assert info.residual >= 0
        assert primal * (1 - float(info.residual)) <= least * (1 + rounding)  # the dual value
        assert least * (1 - rounding) <= primal <= last * (1 + rounding)
        last = primal
    assert info.residual < 1e-3


@pytest.mark.long
@both
def test_sparse_rows_give_the_same_without_a_dense_copy(factory, x64):
    x = X * (np.abs(X) > 0.5)
    for bias in ("none", "feature"):
        solver = factory(LAM, planes=PLANES, bias=bias)
        sparse = jaxsvm.dataset(scipy.sparse.csr_matrix(x), Y)
        one, other = (
            jaxsvm.fit(solver, data, KEY, steps=12).model for data in (dataset(x), sparse)
        )
        np.testing.assert_allclose(one.w, other.w, atol=1e-9)
        np.testing.assert_allclose(one.b, other.b, atol=1e-9)
    wide = jaxsvm.dataset(scipy.sparse.random(N, 977, 0.02, "csr", random_state=0), Y)
    text = jax.jit(solver.update).lower(solver.init(KEY, wide), wide).as_text()
    assert f"{N}x977x" not in text and "977x" in text


@pytest.mark.long
def test_features_of_drawn_rows_are_cpny(x64):
    """Cutting planes on Nystrom features: the optimum is that of the interior point method on the
    same features."""
    data = dataset()
    phi = features.nystrom(KEY, kernels.rbf(1.0), data.x, landmarks=12)
    run = jaxsvm.fit(jaxsvm.on_features(phi, ocas(LAM)), data, KEY, steps=300, tol=1e-9)
    inner = jaxsvm.interior_point(1 / (LAM * N), bias="none")
    exact = jaxsvm.fit(jaxsvm.on_features(phi, inner), data, KEY, steps=1, tol=1e-12)
    assert run.converged
    np.testing.assert_allclose(run.model(data.x), exact.model(data.x), atol=1e-3)
    one, other = (float(objectives.primal(each.model, data, LAM)) for each in (run, exact))
    np.testing.assert_allclose(one, other, rtol=1e-8)
