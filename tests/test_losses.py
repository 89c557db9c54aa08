"""Losses against plain NumPy formulas, brute-force conjugates and a bisection for the dual step."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import jaxsvm
from jaxsvm import losses

SIGNS = (-1.0, 1.0)
TARGETS = (-1.3, 0.0, 2.5)


class Case(NamedTuple):
    name: str
    loss: losses.Loss
    value: Callable  # NumPy (f, y) -> loss
    slope: Callable  # NumPy (f, y) -> some subgradient, non-decreasing in f
    targets: tuple
    domain: Callable  # y -> (low, high), the slopes at which the conjugate is finite
    kinks: tuple  # (f, y, the slope chosen there)


def _smooth_value(f, y, width):
    slack = np.maximum(1 - y * f, 0)
    return np.where(slack < width, slack**2 / (2 * width), slack - width / 2)


def _interval(y):
    return (-1.0, 0.0) if y > 0 else (0.0, 1.0)


CASES = [
    Case(
        "hinge",
        losses.hinge,
        lambda f, y: np.maximum(0, 1 - y * f),
        lambda f, y: np.where(y * f < 1, -y, 0),
        SIGNS,
        _interval,
        ((1.0, 1.0, 0.0), (-1.0, -1.0, 0.0)),
    ),
    Case(
        "squared_hinge",
        losses.squared_hinge,
        lambda f, y: np.maximum(0, 1 - y * f) ** 2,
        lambda f, y: -2 * y * np.maximum(0, 1 - y * f),
        SIGNS,
        lambda y: (-np.inf, 0.0) if y > 0 else (0.0, np.inf),
        ((1.0, 1.0, 0.0), (-1.0, -1.0, 0.0)),
    ),
    *[
        Case(
            f"smooth_hinge({width})",
            losses.smooth_hinge(width),
            lambda f, y, width=width: _smooth_value(f, y, width),
            lambda f, y, width=width: -y * np.clip((1 - y * f) / width, 0, 1),
            SIGNS,
            _interval,
            ((1.0, 1.0, 0.0), (1 - width, 1.0, -1.0), (width - 1, -1.0, 1.0)),
        )
        for width in (1.0, 0.25)
    ],
    Case(
        "logistic",
        losses.logistic,
        lambda f, y: np.logaddexp(0, -y * f),
        lambda f, y: -y * expit(-y * f),
        SIGNS,
        _interval,
        ((0.0, 1.0, -0.5),),
    ),
    Case(
        "squared",
        losses.squared,
        lambda f, y: (f - y) ** 2 / 2,
        lambda f, y: f - y,
        TARGETS,
        lambda y: (-np.inf, np.inf),
        ((2.5, 2.5, 0.0),),
    ),
    *[
        Case(
            f"squared_eps_insensitive({eps})",
            losses.squared_eps_insensitive(eps),
            lambda f, y, eps=eps: np.maximum(0, abs(f - y) - eps) ** 2,
            lambda f, y, eps=eps: 2 * np.sign(f - y) * np.maximum(0, abs(f - y) - eps),
            TARGETS,
            lambda y: (-np.inf, np.inf),
            ((2.5, 2.5, 0.0), (2.5 + eps, 2.5, 0.0)),
        )
        for eps in (0.1, 0.0)
    ],
    *[
        Case(
            f"eps_insensitive({eps})",
            losses.eps_insensitive(eps),
            lambda f, y, eps=eps: np.maximum(0, np.abs(f - y) - eps),
            lambda f, y, eps=eps: np.where(np.abs(f - y) > eps, np.sign(f - y), 0),
            TARGETS,
            lambda y: (-1.0, 1.0),
            ((eps, 0.0, 0.0), (-eps, 0.0, 0.0), (0.0, 0.0, 0.0)),
        )
        for eps in (0.5, 0.0)
    ],
    *[
        Case(
            f"pinball({tau})",
            losses.pinball(tau),
            lambda f, y, tau=tau: np.maximum(tau * (y - f), (tau - 1) * (y - f)),
            lambda f, y, tau=tau: np.where(f < y, -tau, np.where(f > y, 1 - tau, 0)),
            TARGETS,
            lambda y, tau=tau: (-tau, 1 - tau),
            ((2.5, 2.5, 0.0),),
        )
        for tau in (0.5, 0.9)
    ],
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])

value = jax.jit(lambda loss, f, y: loss.value(f, y))
slope = jax.jit(lambda loss, f, y: loss.slope(f, y))
conjugate = jax.jit(lambda loss, u, y: loss.conjugate(u, y))
dual_step = jax.jit(lambda loss, *args: loss.dual_step(*args))


def pairs(first, second):
    """All pairs, as two float64 columns."""
    a, b = np.meshgrid(np.asarray(first, np.float64), np.asarray(second, np.float64), indexing="ij")
    return a.ravel(), b.ravel()


def scores(case):
    return pairs(np.concatenate([np.linspace(-4, 4, 33), [-30.0, 30.0]]), case.targets)


@cases
@dtypes
def test_value_is_the_formula_and_keeps_the_dtype(case, dtype, x64):
    f, y = (a.astype(dtype) for a in scores(case))
    got = value(case.loss, f, y)
    assert got.dtype == dtype
    # a handful of roundings of numbers of the size of the score
    want = case.value(f.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(
        got, want, rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps
    )


@cases
def test_slope_is_a_subgradient_at_every_score(case, x64):
    f, y = scores(case)
    got = np.asarray(slope(case.loss, f, y))
    assert got.dtype == np.float64
    other = np.concatenate([np.linspace(-50, 50, 401), f])
    below = case.value(f, y)[:, None] + got[:, None] * (other[None, :] - f[:, None])
    # rounding of values up to 2601
    assert np.min(case.value(other[None, :], y[:, None]) - below) > -1e-12


@cases
def test_curvature_is_the_difference_quotient_of_the_slope(case, x64):
    """Only where the slope is continuous. Within h of a kink of the slope a quotient holds parts of
    both sides."""
    f, y = scores(case)
    h = 1e-5
    below, at, above = (case.slope(f + shift, y) for shift in (-h, 0, h))
    jumps = np.abs(above - below).max() > 0.5
    assert (
        (case.loss.curvature is None)
        == jumps
        == (case.name.split("(")[0] in ("hinge", "eps_insensitive", "pinball"))
    )
    if not jumps:
        away = np.abs((above - at) - (at - below)) < 1e-3 * h
        assert away.sum() > 10
        found = case.loss.curvature(jnp.asarray(f), jnp.asarray(y))
        np.testing.assert_allclose(
            found[away], ((above - below) / (2 * h))[away], rtol=1e-5, atol=1e-5
        )


@cases
def test_slope_at_the_kinks_is_the_documented_choice(case):
    f, y, want = (jnp.asarray(column, jnp.float32) for column in zip(*case.kinks, strict=True))
    np.testing.assert_array_equal(slope(case.loss, f, y), want)


@cases
def test_conjugate_is_the_supremum_over_a_grid_of_scores(case, x64):
    # The grid step is a power of 2, so that every kink lies on it. Between grid points a loss of
    # curvature <= 4 hides
    # at most 4 h^2 / 8; beyond the grid only the logistic loss still rises, by less than entr(0.99)
    # < 0.01 exp(-40).
    step, reach = 2.0**-7, 64
    f = np.arange(-reach / step, reach / step + 1) * step
    for y in case.targets:
        if y not in (-1.0, 0.0, 1.0, 2.5):
            grid = f + y  # kinks at y
        else:
            grid = f
        low, high = (np.clip(end, -3, 3) for end in case.domain(y))
        u = np.linspace(low, high, 21)
        want = np.max(u[:, None] * grid[None, :] - case.value(grid, y)[None, :], axis=1)
        got = conjugate(case.loss, u, np.full_like(u, y))
        np.testing.assert_allclose(got, want, atol=4 * step**2 / 8 + 1e-12)


@cases
def test_conjugate_is_infinite_where_the_supremum_has_no_end(case, x64):
    for y in case.targets:
        low, high = case.domain(y)
        u = np.array([low - 0.01, low - 5, high + 0.01, high + 5])
        u = u[np.isfinite(u)]
        if not u.size:
            assert case.name.startswith("squared")
            continue
        far = np.array([-2000.0, -1000.0, 1000.0, 2000.0])
        line = u[:, None] * far - case.value(far, y)
        # rises without end
        assert np.all(np.maximum(line[:, 0] - line[:, 1], line[:, 3] - line[:, 2]) > 9.9)
        assert np.all(np.isinf(conjugate(case.loss, u, np.full_like(u, y))))


@cases
@dtypes
def test_conjugate_is_finite_at_every_slope_the_loss_has(case, dtype, x64):
    f, y = (a.astype(dtype) for a in scores(case))
    got = conjugate(case.loss, slope(case.loss, f, y), y)
    assert got.dtype == dtype
    assert np.all(np.isfinite(got))


@cases
def test_fenchel_young_gap_is_non_negative_and_zero_at_the_slope(case, x64):
    f, y = scores(case)
    for target in case.targets:
        low, high = (np.clip(end, -3, 3) for end in case.domain(target))
        g, u = pairs(np.linspace(-4, 4, 33), np.linspace(low, high, 17))
        at = np.full_like(g, target)
        gap = value(case.loss, g, at) + conjugate(case.loss, u, at) - u * g
        assert np.min(gap) > -1e-12
    u = slope(case.loss, f, y)
    at_slope = value(case.loss, f, y) + conjugate(case.loss, u, y) - u * f
    np.testing.assert_allclose(at_slope, 0, atol=1e-12)  # rounding of terms up to 1000


COEF = (0.0, 0.3, 1.0)  # of the end of the coefficient's range (of C, where it has no end)
STEPS = list(
    itertools.product(
        COEF, (-40.0, -1.5, 0.0, 0.7, 3.0), (0.0, 1e-3, 1.0, 50.0, 1e4), (0.0, 1e-6, 0.1, 1.0, 1e3)
    )
)


def problems(case, dtype):
    """(coef, score, y, q, C) columns: all combinations, every coefficient inside its range."""
    rows = []
    for y in case.targets:
        low, high = case.domain(y)
        for end in {np.clip(low, -1, 1), np.clip(high, -1, 1)}:
            rows += [(-end * share * C, f, y, q, C) for share, f, q, C in STEPS]
    return [np.array(column, dtype) for column in zip(*rows, strict=True)]


def maximiser(case, coef, f, y, q, C):
    """The v with v = -C slope(f + q (v - coef)), by bisection between 0 and -C slope(f - q
    coef)."""
    residual = lambda v: v + C * case.slope(f + q * (v - coef), y)
    end = -residual(np.zeros_like(coef))
    low, high = np.minimum(end, 0), np.maximum(end, 0)
    for _ in range(120):
        middle = (low + high) / 2
        above = residual(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def check_dual_step(case, dtype, keep):
    """The step is the exact one for a score that is off by a few roundings: between those of two
    scores near by."""
    args = problems(case, dtype)
    args = [column[keep(*args)] for column in args]
    got = np.asarray(dual_step(case.loss, *args))
    assert got.dtype == dtype
    coef, f, y, q, C = (column.astype(np.float64) for column in args)
    eps = np.finfo(dtype).eps
    off = 16 * eps * (1 + np.abs(f) + np.abs(y) + q * np.abs(coef))
    low, high = maximiser(case, coef, f + off, y, q, C), maximiser(case, coef, f - off, y, q, C)
    slack = 16 * eps * (np.abs(coef) + np.abs(low) + np.abs(high))  # rounding of the answer itself
    wrong = ~((got >= low - slack) & (got <= high + slack))
    assert not wrong.any(), [
        [float(column[i]) for column in (*args, got, low, high)] for i in np.flatnonzero(wrong)[:3]
    ]


@cases
@dtypes
def test_dual_step_is_the_maximiser_on_every_scale(case, dtype, x64):
    check_dual_step(case, dtype, lambda coef, f, y, q, C: (C > 0) & (q > 0))


@cases
@dtypes
def test_dual_step_of_a_row_of_zeros_goes_to_the_end_that_its_score_asks_for(case, dtype, x64):
    check_dual_step(case, dtype, lambda coef, f, y, q, C: (C > 0) & (q == 0))


@cases
@dtypes
def test_dual_step_is_zero_where_C_is_zero(case, dtype, x64):
    coef, f, y, q, C = (column[problems(case, dtype)[4] == 0] for column in problems(case, dtype))
    start = np.linspace(-1, 1, coef.size).astype(dtype)  # wherever the coefficient stood
    np.testing.assert_array_equal(dual_step(case.loss, start, f, y, q, C), 0)


@cases
def test_dual_step_beats_a_grid_of_coefficients(case, x64):
    args = [
        np.array(c)
        for c in zip(
            *itertools.product((0.1, -0.2), (-1.5, 0.4, 3.0), (1.0,), (0.0, 0.5, 20.0), (0.3, 2.0)),
            strict=True,
        )
    ]
    coef, f, _, q, C = args
    for target in case.targets:
        y = np.full_like(f, target)
        low, high = (np.clip(-end, -50, 50) for end in reversed(case.domain(target)))
        v = np.linspace(low, high, 2001)[:, None] * C[None, :]

        def dual(v, f=f, y=y):
            shape = (-1, f.size)
            u, at = (np.broadcast_to(a, v.reshape(shape).shape).ravel() for a in (-v / C, y))
            far = np.asarray(conjugate(case.loss, u, at)).reshape(v.shape)
            return -q / 2 * (v - coef) ** 2 - (v - coef) * f - C * far

        best = dual(np.asarray(dual_step(case.loss, coef, f, y, q, C)))
        assert np.all(np.isfinite(best))
        assert np.all(best >= np.max(dual(v), axis=0) - 1e-9)  # rounding of terms up to 1e6


def test_zero_rows_take_finite_steps_whatever_the_units_of_the_target():
    one = jnp.ones(1)
    got = losses.eps_insensitive(100.0).dual_step(0 * one, 0 * one, 1000 * one, 0 * one, 2 * one)
    np.testing.assert_array_equal(got, [2.0])


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
def test_logistic_dual_step_is_exact_where_curvature_times_C_is_huge(size, x64):
    coef, f, y = (
        np.array(c)
        for c in zip(
            *itertools.product((0.0, 0.3, 0.999, 1.0), (-40.0, -3.0, 0.5, 60.0), SIGNS), strict=True
        )
    )
    coef, q, C = coef * y, np.full_like(f, size), np.ones_like(f)
    case = next(case for case in CASES if case.name == "logistic")
    want = maximiser(case, coef, f, y, q, C)
    np.testing.assert_allclose(dual_step(case.loss, coef, f, y, q, C), want, atol=1e-12)


def test_values_are_those_of_optax():
    f, y = (a.astype(np.float32) for a in pairs(np.linspace(-3, 3, 25), SIGNS))
    np.testing.assert_allclose(losses.hinge.value(f, y), optax.losses.hinge_loss(f, y))
    np.testing.assert_allclose(losses.squared.value(f, y), optax.losses.l2_loss(f, y))
    want = optax.losses.sigmoid_binary_cross_entropy(f, (y + 1) / 2)
    # another form, a few roundings
    np.testing.assert_allclose(losses.logistic.value(f, y), want, rtol=1e-6, atol=1e-6)


def test_logistic_value_and_slope_are_finite_far_out():
    f, y = jnp.array([-1e30, 1e30]), jnp.ones(2)
    np.testing.assert_array_equal(losses.logistic.value(f, y), jnp.array([1e30, 0.0]))
    np.testing.assert_array_equal(losses.logistic.slope(f, y), [-1.0, 0.0])


def test_a_narrow_smooth_hinge_is_the_hinge_and_width_is_swept_by_vmap():
    f = jnp.linspace(-2, 2, 9)
    swept = jax.vmap(lambda loss: loss.value(f, jnp.ones(9)))(
        jax.vmap(losses.smooth_hinge)(jnp.array([1e-6, 1.0]))
    )
    # at most width / 2 apart, and rounding
    np.testing.assert_allclose(swept[0], np.maximum(0, 1 - f), atol=1e-6)
    np.testing.assert_array_equal(swept[1], losses.smooth_hinge(1.0).value(f, jnp.ones(9)))


@pytest.mark.parametrize(
    ("name", "number"),
    [("smooth_hinge", 0.0), ("smooth_hinge", -1.0), ("eps_insensitive", -0.1)]
    + [("squared_eps_insensitive", -0.1), ("pinball", 0.0), ("pinball", 1.5)]
    + [(name, jnp.ones(2)) for name in ("smooth_hinge", "eps_insensitive", "pinball")],
)
def test_bad_parameters_raise_a_value_error(name, number):
    with pytest.raises(ValueError):
        getattr(losses, name)(number)


@cases
def test_losses_say_whether_they_take_labels(case):
    assert case.loss.labels == (case.targets == SIGNS)


# Crammer and Singer: scores (b, k)

multiclass = losses.crammer_singer


def multiclass_scores(rows=60, classes=4):
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, classes)) * 2, rng.integers(0, classes, rows).astype(np.int32)


def multiclass_value(f, y):
    return np.array(
        [
            max(row[j] + (j != label) for j in range(len(row))) - row[label]
            for row, label in zip(f, y, strict=True)
        ]
    )


def test_solvers_of_single_scores_refuse_crammer_singer_where_they_are_written():
    sentence = (
        r"loss must be one of single scores here, and crammer_singer.. "
        r"needs a score of each class: take "
        r"jaxsvm.ocas\(lam, loss=crammer_singer.., classes=k\), or another loss "
        r"and jaxsvm.one_vs_rest\(solver, classes=k\)"
    )
    for name in "sdca pegasos asset bottou_sgd interior_point subgradient".split():
        with pytest.raises(ValueError, match=sentence):
            getattr(jaxsvm, name)(0.1, loss=multiclass)


@dtypes
def test_crammer_singer_value_is_the_formula_and_keeps_the_dtype(dtype, x64):
    f, y = multiclass_scores()
    got = value(multiclass, f.astype(dtype), y)
    assert got.dtype == dtype
    # scores up to 8
    np.testing.assert_allclose(
        got, multiclass_value(f.astype(dtype), y), atol=32 * np.finfo(dtype).eps
    )


def test_crammer_singer_slope_is_a_subgradient(x64):
    f, y = multiclass_scores()
    got = np.asarray(slope(multiclass, f, y))
    assert np.any(got == 0) and np.any(got != 0)
    for other in (multiclass_scores()[0][::-1], np.zeros_like(f), f + np.eye(4)[y], f * 5):
        below = multiclass_value(f, y) + np.sum(got * (other - f), axis=1)
        assert np.min(multiclass_value(other, y) - below) > -1e-12


def test_crammer_singer_slope_at_ties_is_none_for_the_own_class_and_the_first_of_others():
    # own class level with both others; both others level
    f = jnp.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    got = slope(multiclass, f, jnp.array([1, 1], jnp.int32))
    np.testing.assert_array_equal(got, [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]])


def test_crammer_singer_conjugate_is_linear_on_the_simplex_and_infinite_off_it(x64):
    y = np.array([2, 2, 2, 2], np.int32)
    own = np.eye(3)[y]
    p = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [-0.1, 0.6, 0.5], [0.3, 0.3, 0.3]])
    got = conjugate(multiclass, p - own, y)
    # sup over f of <u, f> - l(f): shifting f changes nothing on the simplex, where the supremum is
    # at f = -raised
    np.testing.assert_allclose(got[:2], [-0.5, 0.0], atol=1e-15)
    assert np.all(np.isinf(got[2:]))
    grid = np.array(list(itertools.product(np.linspace(-3, 3, 25), repeat=3)))
    brute = [
        np.max(grid @ (row - o) - multiclass_value(grid, np.full(len(grid), 2)))
        for row, o in zip(p[:2], own, strict=False)
    ]
    # the supremum is attained at whole numbers
    np.testing.assert_allclose(got[:2], brute, atol=1e-12)


def test_crammer_singer_fenchel_young_gap_is_non_negative_and_zero_at_the_slope(x64):
    f, y = multiclass_scores()
    rng = np.random.default_rng(1)
    u = rng.dirichlet(np.ones(4), len(y)) - np.eye(4)[y]
    gap = value(multiclass, f, y) + conjugate(multiclass, u, y) - np.sum(u * f, axis=1)
    assert np.min(gap) > -1e-12
    u = slope(multiclass, f, y)
    np.testing.assert_allclose(
        value(multiclass, f, y) + conjugate(multiclass, u, y) - np.sum(u * f, axis=1), 0, atol=1e-12
    )


def simplex(z):
    """The nearest point of the simplex to each row, by bisection for the level."""
    low, high = z.max(axis=1) - 1, z.max(axis=1)
    for _ in range(80):
        level = (low + high) / 2
        above = np.sum(np.maximum(z - level[:, None], 0), axis=1) > 1
        low, high = np.where(above, level, low), np.where(above, high, level)
    return np.maximum(z - level[:, None], 0)


def check_multiclass_step(dtype, q, C):
    rng = np.random.default_rng(2)
    f, y = multiclass_scores()
    f, own = f.astype(dtype), np.eye(4)[y]
    q, C = np.full(len(y), q, dtype), np.full(len(y), C, dtype)
    coef = (C[:, None] * (own - rng.dirichlet(np.ones(4), len(y)))).astype(dtype)
    got = np.asarray(dual_step(multiclass, coef, f, y, q, C))
    assert got.dtype == dtype
    scale, bend = C.astype(np.float64)[:, None], q.astype(np.float64)[:, None]
    # z = q C p's target, free of the division by q C; shifted, since only differences count
    z = bend * (scale * own - coef) + f - own
    p = simplex((z - z.max(axis=1, keepdims=True)) / (bend * scale))
    # The point that is projected carries roundings of its scores, over q C; p itself is at most 1.
    size = np.minimum(1, np.finfo(dtype).eps * (1 + 8 / (q[0] * C[0]))) * 16
    np.testing.assert_allclose(got / scale, own - p, atol=size)
    feasible = own - got / scale
    # Whatever the size of the scores, the answer stays dual feasible to rounding.
    np.testing.assert_allclose(feasible.sum(axis=1), 1, atol=16 * np.finfo(dtype).eps)
    assert feasible.min() > -4 * np.finfo(dtype).eps


@dtypes
@pytest.mark.parametrize(("q", "C"), [(1.0, 1.0), (0.3, 5.0), (50.0, 1e3), (1.0, 1e-3)])
def test_crammer_singer_dual_step_is_the_maximiser_on_the_simplex(dtype, q, C, x64):
    with jax.numpy_dtype_promotion("standard"):
        check_multiclass_step(dtype, q, C)


@pytest.mark.parametrize(("q", "C"), [(1.0, 1e-6), (1e-4, 1e-4), (1e-30, 1.0)])
def test_crammer_singer_dual_step_stays_on_the_simplex_where_q_times_C_is_tiny(q, C):
    with jax.numpy_dtype_promotion("standard"):
        check_multiclass_step(np.float32, q, C)


def test_crammer_singer_dual_step_keeps_strict_dtypes():
    f, y = multiclass_scores()
    one = jnp.ones(len(y))
    got = multiclass.dual_step(
        jnp.zeros(f.shape, jnp.float32), jnp.asarray(f, jnp.float32), jnp.asarray(y), one, one
    )
    assert got.dtype == jnp.float32


@pytest.mark.parametrize("C", [1.0, 0.01, 1e-6])
def test_crammer_singer_dual_step_of_a_row_of_zeros_gives_all_to_the_classes_that_score_highest(C):
    """A row at margin 1, whose coefficients are optimal as they are, keeps them."""
    f = jnp.array([[0.0, 0.0, 0.0], [0.0, 2.0, 1.0], [1.0, 1.0, 4.0]])
    # scores raised by 1 off the own class: ties of two, of two, one winner
    y = jnp.array([1, 1, 0], jnp.int32)
    want = C * np.array([[-0.5, 1.0, -0.5], [0.0, 0.0, 0.0], [1.0, 0.0, -1.0]])
    with jax.numpy_dtype_promotion("standard"):
        got = dual_step(multiclass, jnp.zeros((3, 3)), f, y, jnp.zeros(3), jnp.full(3, C))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_crammer_singer_dual_step_is_zero_where_C_is_zero():
    f, y = multiclass_scores()
    with jax.numpy_dtype_promotion("standard"):
        got = dual_step(
            multiclass,
            jnp.zeros(f.shape),
            jnp.asarray(f, jnp.float32),
            y,
            jnp.ones(len(y)),
            jnp.zeros(len(y)),
        )
    np.testing.assert_array_equal(got, 0)


quadratic = jax.jit(lambda loss, y, C: loss.quadratic(y, C))
QUADRATIC = [case for case in CASES if case.loss.quadratic is not None]
quadratics = pytest.mark.parametrize("case", QUADRATIC, ids=lambda case: case.name)


def test_all_losses_but_the_logistic_have_a_quadratic_dual():
    assert {case.name for case in CASES} - {case.name for case in QUADRATIC} == {"logistic"}
    assert losses.crammer_singer.quadratic is None


@pytest.mark.long(but=4)
@quadratics
def test_the_quadratic_part_is_the_conjugate_with_its_sign_turned(case, x64):
    """y coef - kink |coef| - soft/2 coef^2 = -C conjugate(-coef / C, y) on [low, high], by the
    supremum over scores too."""

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(
        st.sampled_from(case.targets), st.floats(1e-3, 1e3), st.floats(0, 1), st.floats(1e-3, 30)
    )
    def check(y, C, share, reach):
        part = quadratic(case.loss, np.array([y]), np.array([C]))
        low, high = float(part.low[0]), float(part.high[0])
        kink, soft = (0.0 if field is None else float(field[0]) for field in (part.l1, part.l2))
        assert low <= 0 <= high and kink >= 0 and soft >= 0
        ends = case.domain(y)  # of slopes -coef / C
        np.testing.assert_allclose([low, high], [-C * ends[1], -C * ends[0]], rtol=1e-15)
        first, last = max(low, -reach * C), min(high, reach * C)
        coef = first + share * (last - first)
        found = y * coef - kink * abs(coef) - soft / 2 * coef**2
        want = -C * float(conjugate(case.loss, np.array([-coef / C]), np.array([y]))[0])
        assert found == pytest.approx(want, rel=1e-12, abs=1e-12 * C)
        # sup_f slope f - loss(f, y) by its own definition: no score does better, and the nearest of
        # a grid nearly as well.
        f = np.concatenate([np.linspace(-70, 70, 20_001), [y - 1, y, y + 1, -1, 1]])
        values = -coef / C * f - case.value(f, y)
        assert np.max(values) <= -found / C + 1e-12 * (1 + reach**2)
        # a kink lies half a step of the grid away at most
        assert np.max(values) >= -found / C - 4 * 0.007**2 / 8 - 0.007

    check()


@quadratics
@dtypes
def test_the_quadratic_part_of_a_row_that_does_not_count_is_nothing(case, dtype, x64):
    y = np.array(case.targets, dtype)
    part = quadratic(case.loss, y, np.zeros_like(y))
    for field in part:
        assert field is None or (
            field.dtype == dtype and field.shape == y.shape and np.all(np.isfinite(field))
        )
    np.testing.assert_array_equal(part.low, 0)
    np.testing.assert_array_equal(part.high, 0)


@quadratics
def test_the_quadratic_part_has_its_maximum_where_the_dual_step_goes(case, x64):
    """Over one coefficient both maximise the same: pull coef - kink |coef| - (soft + q)/2 coef^2 in
    its bounds."""
    coef, f, y, q, C = (
        column[(problems(case, np.float64)[4] > 0) & (problems(case, np.float64)[3] > 0)]
        for column in problems(case, np.float64)
    )
    part = quadratic(case.loss, y, C)
    kink, soft = (
        np.zeros_like(y) if field is None else np.asarray(field) for field in (part.l1, part.l2)
    )
    pull = y - f + q * coef  # without this coefficient's own share of the score
    want = np.clip(
        np.sign(pull) * np.maximum(np.abs(pull) - kink, 0) / (q + soft), part.low, part.high
    )
    got = np.asarray(dual_step(case.loss, coef, f, y, q, C))
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.max(np.abs(want)))


def with_function(name, fn):
    """The hinge loss, written by a user, with one function of another form."""
    return custom_of(losses.hinge, **{name: fn})


def custom_of(loss, **changes):
    names = ("value", "slope", "conjugate", "dual_step", "quadratic", "curvature")
    given = {f"{each}_fn": getattr(loss, each) for each in names}
    given |= {f"{each}_fn": fn for each, fn in changes.items()}
    return losses.custom(**given, labels=loss.labels, multiclass=loss.multiclass)


WRONG_FUNCTIONS = {
    "slope (b, 1)": (
        "slope",
        lambda f, y: -y[:, None],
        r"got an array of float32 of shape \(3, 1\)",
    ),
    "slope ()": ("slope", lambda f, y: jnp.mean(-y), r"got an array of float32 of shape \(\)"),
    "value ()": ("value", lambda f, y: jnp.mean(y * f), r"got an array of float32 of shape \(\)"),
    "value (2b,)": (
        "value",
        lambda f, y: jnp.concatenate([f, y]),
        r"got an array of float32 of shape \(6,\)",
    ),
    "slope complex": ("slope", jax.lax.complex, "got an array of complex64"),
    "slope None": ("slope", lambda f, y: None, "got None"),
    "curvature": ("curvature", lambda f, y: jnp.ones(()), r"got an array of float32 of shape \(\)"),
    "dual_step": (
        "dual_step",
        lambda coef, f, y, q, C: f[:, None],
        r"got an array of float32 of shape \(3, 1\)",
    ),
}
LOSS_USERS = {
    "solver": lambda loss: jaxsvm.subgradient(0.1, loss=loss),
    "gradient": lambda loss: jax.eval_shape(
        jaxsvm.gradient(loss, optax.sgd(0.1)).init, jax.random.key(0), TWO_ROWS
    ),
    "probe": lambda loss: jaxsvm.risk_on(TWO_ROWS, loss),
}
TWO_ROWS = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])


@pytest.mark.parametrize("user", LOSS_USERS)
@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_a_loss_with_a_function_of_another_form_is_named(name, user):
    field, fn, came = WRONG_FUNCTIONS[name]
    with pytest.raises(
        ValueError, match=f"^{field} of loss must give one number for each score, {came}"
    ):
        LOSS_USERS[user](with_function(field, fn))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda f, y: f if f[0] > 0 else y,
            "asks for the values of its arguments: write it with jax.numpy",
        ),
        (
            lambda f: f,
            r"fails for shapes \(3,\) and \(3,\), expected a function .*positional argument",
        ),
        (lambda f, y: "one", "fails for shapes .*not a valid JAX type"),
    ],
    ids=["if", "arguments", "string"],
)
def test_a_loss_whose_function_fails_is_named(fn, message):
    with pytest.raises(TypeError, match=f"^value of loss, the function <lambda>, {message}"):
        jaxsvm.subgradient(0.1, loss=with_function("value", fn))


def test_a_loss_of_the_user_is_as_its_own_and_needs_no_dual_functions():
    def refuse(*args):
        raise NotImplementedError

    loss = custom_of(losses.hinge, dual_step=refuse, conjugate=None)
    runs = [
        jaxsvm.fit(jaxsvm.subgradient(0.1, loss=each), TWO_ROWS, jax.random.key(0))
        for each in (loss, losses.hinge)
    ]
    assert (runs[0].model.w == runs[1].model.w).all()


@pytest.mark.filterwarnings("ignore:jax.nn.one_hot")  # class numbers are floats
def test_a_loss_of_the_user_for_class_numbers():
    loss = losses.crammer_singer
    with pytest.raises(
        ValueError,
        match=(
            r"slope of loss must give one number for each score, got "
            r".*\(3,\) for scores of shape \(3, 2\)"
        ),
    ):
        custom_of(loss, slope=lambda f, y: f[:, 0])
    assert callable(jaxsvm.risk_on(TWO_ROWS, custom_of(loss)))


@cases
def test_losses_are_called_with_scores_and_targets(case):
    """Their derivative in the score is the slope that steps use, also at kinks, and the second one
    is that of the slope."""
    loss = case.loss
    score = jnp.array([0.5, 1.0, -2.0, 0.75, 3.0, 0.0])
    y = jnp.array([1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    np.testing.assert_array_equal(loss(score, y), loss.value(score, y))
    one = jnp.array([1.0])
    np.testing.assert_array_equal(loss([0.5], [1]), loss.value(0.5 * one, one))
    total = lambda score: jnp.sum(loss(score, y))
    np.testing.assert_array_equal(jax.grad(total)(score), loss.slope(score, y))
    inside = jnp.array([0.6, 1.4, -2.0, 0.65, 3.0, 0.1])
    second = jnp.diagonal(jax.hessian(total)(inside))
    of_slope = jax.vmap(jax.grad(loss.slope))(inside, y)
    np.testing.assert_allclose(second, of_slope, rtol=1e-5)


def test_derivatives_of_a_called_loss_in_its_number_and_target():
    score, y = jnp.array([0.5, -2.0]), jnp.array([1.0, 0.5])
    of_width = lambda make, number: jax.grad(lambda n: jnp.sum(make(n)(score, y)))(number)
    assert of_width(losses.smooth_hinge, 0.8) == pytest.approx(
        float(
            jnp.sum(losses.smooth_hinge(0.8001)(score, y) - losses.smooth_hinge(0.7999)(score, y))
        )
        / 2e-4,
        rel=1e-2,
    )
    np.testing.assert_allclose(
        jax.grad(lambda y: jnp.sum(losses.squared(score, y)))(y), -losses.squared.slope(score, y)
    )


def test_a_loss_of_several_scores_is_called_too():
    score, y = jnp.array([[0.5, 0.0, 2.0], [1.0, 3.0, 0.5]]), jnp.array([0.0, 1.0])
    loss = losses.crammer_singer
    np.testing.assert_array_equal(loss(score, y), loss.value(score, y))
    slope = jax.grad(lambda score: jnp.sum(loss(score, y)))(score)
    np.testing.assert_array_equal(slope, loss.slope(score, y))
