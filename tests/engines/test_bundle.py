"""Planes, their model and its gap against SciPy and sums in NumPy; the searches on lines against
their formulas."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import jaxsvm
from jaxsvm import losses
from jaxsvm.engines import bundle
from jaxsvm.engines.line_search import slope_step
from jaxsvm.engines.min_norm_point import nearest_point

RANDOM = np.random.default_rng(2)
P, SIZE = 5, 8
SLOPES = RANDOM.normal(size=(30, P))
OFFSETS = RANDOM.random(30)
add = jax.jit(bundle.add_plane)


def dual(theta, planes, lam):
    slope = np.asarray(planes.slope, np.float64)
    return theta @ np.asarray(planes.offset, np.float64) - np.sum((theta @ slope) ** 2) / (2 * lam)


def best_dual(planes, lam):
    """The maximum over the simplex, by SciPy from several starts."""
    m = int(planes.size)
    slope, offset = (np.asarray(a, np.float64)[:m] for a in (planes.slope, planes.offset))
    scale = lam / max(1.0, np.abs(slope @ slope.T).max())

    def below(t):
        pull = t @ slope
        return scale * (pull @ pull / (2 * lam) - t @ offset), scale * (slope @ pull / lam - offset)

    total = {"type": "eq", "fun": lambda t: t.sum() - 1, "jac": lambda t: np.ones(m)}
    how = {"method": "SLSQP", "options": {"ftol": 1e-16, "maxiter": 500}}
    how |= {"bounds": [(0, 1)] * m, "constraints": total}
    return -scipy.optimize.minimize(below, np.full(m, 1 / m), jac=True, **how).fun / scale


def filled(count, lam, dtype, size=SIZE):
    planes, history = bundle.no_planes(size, P, jnp.dtype(dtype)), []
    for plane in zip(SLOPES[:count], OFFSETS[:count], strict=True):
        slope, offset, at, start = (jnp.asarray(a, dtype) for a in (*plane, lam, np.zeros(1)))
        planes, w = add(at, planes, slope, offset, start)
        history.append((planes, w))
    return history


@pytest.mark.parametrize("lam", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_model_is_minimised(lam, dtype, x64):
    for planes, w in filled(SIZE, lam, dtype)[::3]:
        theta = np.asarray(planes.theta, np.float64)
        assert np.all(theta >= 0)
        np.testing.assert_allclose(theta.sum(), 1, rtol=1e-6)
        # of weights that are rounded afterwards
        tolerance = 1e-9 if dtype == "float64" else 1e-6 * (1 + 1e-3 / lam)
        assert dual(theta, planes, lam) >= best_dual(planes, lam) - tolerance
        want = -theta @ np.asarray(planes.slope, np.float64) / lam
        np.testing.assert_allclose(w, want, atol=1e-6 / lam)


@pytest.mark.long
def test_the_solution_is_in_float64_where_64_bit_types_are_off():
    """Planes of size 1 cancel to lam |w|, 1e-6: in float32 the error would be about 1e-7 / lam."""
    lam = 1e-6
    planes, w = filled(SIZE, lam, "float32")[-1]
    slope, w = np.asarray(planes.slope, np.float64), np.asarray(w, np.float64)
    primal = lam / 2 * w @ w + np.max(np.asarray(planes.offset) + slope @ w)
    np.testing.assert_allclose(primal, best_dual(planes, lam), atol=1e-6)


@pytest.mark.long
def test_planes_leave_idle_first_and_the_dual_value_never_falls(x64):
    lam, size = 0.05, 3
    merged = replaced = 0
    previous, value = bundle.no_planes(size, P, jnp.dtype("float64")), 0.0
    for planes, _ in filled(30, lam, "float64", size):
        assert not np.any(planes.slope[0]) and planes.offset[0] == 0
        new = dual(np.asarray(planes.theta), planes, lam)
        assert new >= value - 1e-12
        np.testing.assert_allclose(planes.gram.sum(0), planes.slope @ planes.slope.T, atol=1e-12)
        if int(previous.size) == size + 1:
            changed = np.flatnonzero(np.any(np.asarray(planes.slope != previous.slope), axis=1))
            idle = np.asarray(previous.idle)[1:]
            if idle.max() > 0:  # the longest idle one alone
                assert list(changed) == [1 + np.argmax(idle)]
                replaced += 1
            else:
                assert set(changed) == set(1 + np.argsort(previous.theta[1:])[:2])
                merged += 1
        previous, value = planes, new
    assert merged > 3 and replaced > 3


def test_the_gap_is_primal_minus_dual(x64):
    lam = 0.1
    planes, _ = filled(SIZE, lam, "float64")[-1]
    for _ in range(5):
        w = RANDOM.normal(size=P)
        risk = np.max(planes.offset + planes.slope @ w) + 0.3
        exact = lam / 2 * w @ w + risk - dual(np.asarray(planes.theta), planes, lam)
        found = bundle.gap_at(jnp.asarray(lam), planes, jnp.asarray(w), risk)
        np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.long
def test_a_start_does_not_change_the_nearest_point(x64):
    gram, gain = SLOPES[:6] @ SLOPES[:6].T, OFFSETS[:6]
    live = np.arange(6) < 5
    nearest = jax.jit(nearest_point)
    best = nearest(gram, live, gain)
    for start in (np.eye(6)[1], np.array([0.0, 0.5, 0.0, 0.5, 0.0, 0.0])):
        found = nearest(gram, live, gain, (start, start > 0))
        np.testing.assert_allclose(found, best, atol=1e-12)


@pytest.mark.parametrize("columns", [5, 300])
def test_many_vectors_meet_the_optimality_conditions(columns, x64):
    """Of 300 in 5 columns at most 6 have weight; in 300 columns all have."""
    vectors = np.random.default_rng(4).normal(size=(300, columns)) + (2 if columns == 5 else 0)
    gram, gain = vectors @ vectors.T, 0.1 * np.resize(OFFSETS, 300)
    theta = np.asarray(jax.jit(nearest_point)(gram, np.ones(300, bool), gain))
    slope = gain - gram @ theta
    assert slope.max() - theta @ slope <= 1e-11 * gram.max()
    assert (theta > 0).sum() <= 6 if columns == 5 else (theta > 0).sum() > 128
    np.testing.assert_allclose(theta.sum(), 1, rtol=1e-12)


SLOPE_FUNCTIONS = {  # slope, a lower bound of its growth, its root
    "line": (lambda t: 2 * t - 3, 2.0, 1.5),
    "cubic": (lambda t: t**3 + 0.01 * t - 8, 0.01, 1.9991670138686535),
    "far": (lambda t: 1e-4 * t - 1, 1e-4, 1e4),
    "near": (lambda t: 1e4 * t - 1, 1e4, 1e-4),
    "jump": (lambda t: t - 2 + jnp.where(t > 0.7, 3.0, 0.0), 1.0, 0.7),
    "rises": (lambda t: t + 1, 1.0, 0.0),
}


@pytest.mark.parametrize("name", SLOPE_FUNCTIONS)
def test_a_search_ends_where_the_slope_is_small_or_changes_sign(name, x64):
    slope, curvature, root = SLOPE_FUNCTIONS[name]
    t = jax.jit(functools.partial(slope_step, slope))(jnp.asarray(curvature))
    np.testing.assert_allclose(t, root, rtol=1e-3, atol=1e-12)
    if name == "jump":
        np.testing.assert_allclose(t, root, rtol=1e-12)
        assert slope(t) < 0


def test_a_margin_within_rounding_of_large_scores_counts_as_1():
    """Along the ray the margin 0.99 of a row rises by 1, and |w| from 1. Beside a score of 10^5
    rounding may have made it of 1, which needs no step."""
    data = jaxsvm.dataset(np.ones((2, 2), "f"), [-1, 1])
    problem = jaxsvm.ocas(0.1).problem(data, jnp.ones(2))
    at = lambda w, *f: problem.with_bias(jnp.array([w, 0.0]), jnp.zeros(()), jnp.array(f))
    search = jax.jit(lambda f: problem.search(at(1.0, -f, 0.99), at(2.0, -f, 1.99), 0.0).w)
    for other, want in ((1e5, 1.0), (3.0, 1.01)):
        np.testing.assert_allclose(search(other), [want, 0], rtol=1e-5)


def test_weights_of_classes_are_rows_with_the_bias_last():
    x, w = RANDOM.normal(size=(5, 2)), RANDOM.normal(size=9)
    data = jaxsvm.dataset(x, np.arange(5) % 3, task="multiclass")
    solver = jaxsvm.ocas(0.1, loss=losses.crammer_singer, classes=3, bias="feature")
    point = bundle.Point(jnp.asarray(w), jnp.zeros(()), None, None)
    model = solver.model(bundle.BundleState(point, point, None, None, None)).inner
    np.testing.assert_allclose(model.w, w.reshape(3, 3)[:, :2], rtol=1e-6)
    np.testing.assert_allclose(model.b, w.reshape(3, 3)[:, 2], rtol=1e-6)
    scores = solver.problem(data, jnp.ones(5)).responses(point.w)
    np.testing.assert_allclose(scores, np.c_[x, np.ones(5)] @ w.reshape(3, 3).T, atol=1e-5)
