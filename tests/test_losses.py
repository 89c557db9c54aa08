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
from oracles import formula

from jaxsvm import losses

SIGNS = (-1.0, 1.0)
TARGETS = (-1.3, 0.0, 2.5)
AT_2_5, ENDS = (2.5, 2.5, 0.0), ((1.0, 1.0, 0.0), (-1.0, -1.0, 0.0))


class Case(NamedTuple):
    loss: losses.Loss
    domain: Callable  # y -> (low, high), the slopes at which the conjugate is finite
    kinks: tuple  # (f, y, the slope chosen there)

    @property
    def targets(self):
        return SIGNS if self.loss.labels else TARGETS

    @property
    def value(self):
        """NumPy (f, y) -> loss."""
        return formula(self.loss)[0]

    @property
    def slope(self):
        """NumPy (f, y) -> some subgradient, non-decreasing in f."""
        return formula(self.loss)[1]


def interval(y):
    return (-1.0, 0.0) if y > 0 else (0.0, 1.0)


def half_line(y):
    return (-np.inf, 0.0) if y > 0 else (0.0, np.inf)


def everywhere(y):
    return (-np.inf, np.inf)


CASES = [
    Case(losses.hinge, interval, ENDS),
    Case(losses.squared_hinge, half_line, ENDS),
    *(
        Case(losses.smooth_hinge(w), interval, (ENDS[0], (1 - w, 1.0, -1.0), (w - 1, -1.0, 1.0)))
        for w in (1.0, 0.25)
    ),
    Case(losses.logistic, interval, ((0.0, 1.0, -0.5),)),
    Case(losses.squared, everywhere, (AT_2_5,)),
    *(
        Case(losses.squared_eps_insensitive(eps), everywhere, (AT_2_5, (2.5 + eps, 2.5, 0.0)))
        for eps in (0.1, 0.0)
    ),
    *(
        Case(losses.eps_insensitive(eps), lambda y: SIGNS, ((eps, 0, 0), (-eps, 0, 0), (0, 0, 0)))
        for eps in (0.5, 0.0)
    ),
    *(
        Case(losses.pinball(tau), lambda y, tau=tau: (-tau, 1 - tau), (AT_2_5,))
        for tau in (0.5, 0.9)
    ),
]
KINKED = ("hinge", "eps_insensitive", "pinball")
LOGISTIC = next(case for case in CASES if case.loss is losses.logistic)
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.loss))
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
close, equal = np.testing.assert_allclose, np.testing.assert_array_equal

value = jax.jit(lambda loss, f, y: loss.value(f, y))
slope = jax.jit(lambda loss, f, y: loss.slope(f, y))
curvature = jax.jit(lambda loss, f, y: loss.curvature(f, y))
conjugate = jax.jit(lambda loss, u, y: loss.conjugate(u, y))
called = jax.jit(lambda loss, f, y: loss(f, y))
dual_step = jax.jit(lambda loss, *args: loss.dual_step(*args))


@jax.jit
def derivatives(loss, f, y):
    """The first one, and the second one with that of the slope."""
    total = lambda f: jnp.sum(loss(f, y))
    second = jnp.diagonal(jax.hessian(total)(f)), jax.vmap(jax.grad(loss.slope))(f, y)
    return jax.grad(total)(f), second


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
    got, eps = value(case.loss, f, y), 8 * np.finfo(dtype).eps
    assert got.dtype == dtype
    # a handful of roundings of numbers of the size of the score
    close(got, case.value(f.astype(np.float64), y.astype(np.float64)), rtol=eps, atol=eps)


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
    (f, y), h = scores(case), 1e-5
    below, at, above = (case.slope(f + shift, y) for shift in (-h, 0, h))
    jumps = np.abs(above - below).max() > 0.5
    assert (case.loss.curvature is None) == jumps == (repr(case.loss).split("(")[0] in KINKED)
    if not jumps:
        away = np.abs((above - at) - (at - below)) < 1e-3 * h
        assert away.sum() > 10
        found = np.asarray(curvature(case.loss, f, y))[away]
        close(found, ((above - below) / (2 * h))[away], rtol=1e-5, atol=1e-5)


@cases
def test_slope_at_the_kinks_is_the_documented_choice(case):
    f, y, want = (jnp.asarray(column, jnp.float32) for column in zip(*case.kinks, strict=True))
    equal(slope(case.loss, f, y), want)


@cases
def test_conjugate_is_the_supremum_over_a_grid_of_scores(case, x64):
    # The grid step is a power of 2, so that every kink lies on it. Between grid points a loss of
    # curvature <= 4 hides
    # at most 4 h^2 / 8; beyond the grid only the logistic loss still rises, by less than entr(0.99)
    # < 0.01 exp(-40).
    step, reach = 2.0**-7, 64
    f = np.arange(-reach / step, reach / step + 1) * step
    for y in case.targets:
        grid = f if y in (-1.0, 0.0, 1.0, 2.5) else f + y  # kinks at y
        u = np.linspace(*np.clip(case.domain(y), -3, 3), 21)
        want = np.max(u[:, None] * grid[None, :] - case.value(grid, y)[None, :], axis=1)
        close(conjugate(case.loss, u, np.full_like(u, y)), want, atol=4 * step**2 / 8 + 1e-12)


@cases
def test_conjugate_is_infinite_where_the_supremum_has_no_end(case, x64):
    for y in case.targets:
        low, high = case.domain(y)
        u = np.array([low - 0.01, low - 5, high + 0.01, high + 5])
        u = u[np.isfinite(u)]
        assert u.size or case.domain is everywhere
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
    assert got.dtype == dtype and np.all(np.isfinite(got))


@cases
def test_fenchel_young_gap_is_non_negative_and_zero_at_the_slope(case, x64):
    (f, y), loss = scores(case), case.loss
    gap = lambda u, f, y: np.asarray(value(loss, f, y)) + conjugate(loss, u, y) - u * f
    for target in case.targets:
        reach = np.linspace(*np.clip(case.domain(target), -3, 3), 17)
        g, u = pairs(np.linspace(-4, 4, 33), reach)
        assert np.min(gap(u, g, np.full_like(g, target))) > -1e-12
    close(gap(np.asarray(slope(loss, f, y)), f, y), 0, atol=1e-12)  # rounding of terms up to 1000


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


@cases
@dtypes
def test_dual_step_is_the_maximiser_on_every_scale(case, dtype, x64):
    """The exact one for a score that is off by a few roundings: between those of two scores near
    by. That of a row of zeros goes to the end that its score asks for."""
    args = problems(case, dtype)
    args = [column[args[-1] > 0] for column in args]
    got = np.asarray(dual_step(case.loss, *args))
    assert got.dtype == dtype
    coef, f, y, q, C = (column.astype(np.float64) for column in args)
    eps = 16 * np.finfo(dtype).eps
    off = eps * (1 + np.abs(f) + np.abs(y) + q * np.abs(coef))
    low, high = (maximiser(case, coef, at, y, q, C) for at in (f + off, f - off))
    slack = eps * (np.abs(coef) + np.abs(low) + np.abs(high))  # rounding of the answer itself
    wrong = ~((got >= low - slack) & (got <= high + slack))
    assert not wrong.any(), [[float(c[i]) for c in (*args, got)] for i in np.flatnonzero(wrong)[:3]]


@cases
@dtypes
def test_dual_step_is_zero_where_C_is_zero(case, dtype, x64):
    coef, *rest = (column[problems(case, dtype)[4] == 0] for column in problems(case, dtype))
    start = np.linspace(-1, 1, coef.size).astype(dtype)  # wherever the coefficient stood
    equal(dual_step(case.loss, start, *rest), 0)


def test_zero_rows_take_finite_steps_whatever_the_units_of_the_target():
    one, loss = jnp.ones(1), losses.eps_insensitive(100.0)
    equal(loss.dual_step(0 * one, 0 * one, 1000 * one, 0 * one, 2 * one), [2.0])


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
def test_logistic_dual_step_is_exact_where_curvature_times_C_is_huge(size, x64):
    every = itertools.product((0.0, 0.3, 0.999, 1.0), (-40.0, -3.0, 0.5, 60.0), SIGNS)
    coef, f, y = np.array([*every]).T
    args = coef * y, f, y, np.full_like(f, size), np.ones_like(f)
    close(dual_step(losses.logistic, *args), maximiser(LOGISTIC, *args), atol=1e-12)


def test_values_are_those_of_optax():
    f, y = (a.astype(np.float32) for a in pairs(np.linspace(-3, 3, 25), SIGNS))
    close(losses.hinge.value(f, y), optax.losses.hinge_loss(f, y))
    close(losses.squared.value(f, y), optax.losses.l2_loss(f, y))
    want = optax.losses.sigmoid_binary_cross_entropy(f, (y + 1) / 2)
    # another form, a few roundings
    close(losses.logistic.value(f, y), want, rtol=1e-6, atol=1e-6)


def test_logistic_value_and_slope_are_finite_far_out():
    f, y = jnp.array([-1e30, 1e30]), jnp.ones(2)
    equal(losses.logistic.value(f, y), jnp.array([1e30, 0.0]))
    equal(losses.logistic.slope(f, y), [-1.0, 0.0])


@pytest.mark.long
def test_a_narrow_smooth_hinge_is_the_hinge_and_width_is_swept_by_vmap():
    f, one = jnp.linspace(-2, 2, 9), jnp.ones(9)
    stacked = jax.vmap(losses.smooth_hinge)(jnp.array([1e-6, 1.0]))
    swept = jax.vmap(lambda loss: loss.value(f, one))(stacked)
    # at most width / 2 apart, and rounding
    close(swept[0], np.maximum(0, 1 - f), atol=1e-6)
    equal(swept[1], losses.smooth_hinge(1.0).value(f, one))


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


quadratic = jax.jit(lambda loss, y, C: loss.quadratic(y, C))
QUADRATIC = [case for case in CASES if case.loss.quadratic is not None]
quadratics = pytest.mark.parametrize("case", QUADRATIC, ids=lambda case: repr(case.loss))


def test_all_losses_but_the_logistic_have_a_quadratic_dual():
    assert [case for case in CASES if case.loss.quadratic is None] == [LOGISTIC]
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
        close([low, high], [-C * ends[1], -C * ends[0]], rtol=1e-15)
        first, last = max(low, -reach * C), min(high, reach * C)
        coef = first + share * (last - first)
        found = y * coef - kink * abs(coef) - soft / 2 * coef**2
        want = conjugate(case.loss, np.array([-coef / C]), np.array([y]))[0]
        assert found == pytest.approx(-C * float(want), rel=1e-12, abs=1e-12 * C)
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
    for field in (field for field in part if field is not None):
        assert field.dtype == dtype and field.shape == y.shape and np.all(np.isfinite(field))
    equal(part.low, 0)
    equal(part.high, 0)


@quadratics
def test_the_quadratic_part_has_its_maximum_where_the_dual_step_goes(case, x64):
    """Over one coefficient both maximise the same: pull coef - kink |coef| - (soft + q)/2 coef^2 in
    its bounds."""
    args = problems(case, np.float64)
    coef, f, y, q, C = args = [column[(args[3] > 0) & (args[4] > 0)] for column in args]
    part = quadratic(case.loss, y, C)
    kink, soft = (0.0 if field is None else np.asarray(field) for field in (part.l1, part.l2))
    pull = y - f + q * coef  # without this coefficient's own share of the score
    step = np.sign(pull) * np.maximum(np.abs(pull) - kink, 0) / (q + soft)
    want = np.clip(step, part.low, part.high)
    close(dual_step(case.loss, *args), want, rtol=1e-9, atol=1e-9 * np.max(np.abs(want)))


@cases
def test_losses_are_called_with_scores_and_targets(case):
    """Their derivative in the score is the slope that steps use, also at kinks, and the second one
    is that of the slope."""
    loss, y = case.loss, np.float32([1, 1, -1, 1, -1, 1])
    score, inside = np.float32([[0.5, 1, -2, 0.75, 3, 0], [0.6, 1.4, -2, 0.65, 3, 0.1]])
    values, slopes = value(loss, score, y), slope(loss, score, y)
    equal(called(loss, score, y), values)
    equal(loss([0.5], [1]), values[:1])
    equal(derivatives(loss, score, y)[0], slopes)
    close(*derivatives(loss, inside, y)[1], rtol=1e-5)


@pytest.mark.long
def test_derivatives_of_a_called_loss_in_its_number_and_target():
    score, y = jnp.array([0.5, -2.0]), jnp.array([1.0, 0.5])
    of_width = lambda width: jnp.sum(losses.smooth_hinge(width)(score, y))
    want = float(of_width(0.8001) - of_width(0.7999)) / 2e-4
    assert float(jax.grad(of_width)(0.8)) == pytest.approx(want, rel=1e-2)
    close(jax.grad(lambda y: jnp.sum(losses.squared(score, y)))(y), -losses.squared.slope(score, y))
