"""Step lengths along a line: the exact minimiser, and one by two conditions of descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import fast_max, fast_min, is_traced, pairwise_sum
from ..types import Array, Scalar
from .conjugate import FunctionValues, InnerProductSpace

UNIT = 8  # rounding error of a response, in units of eps
TRIALS = 60  # limit of trial steps in a line search
FLATNESS = 1e-3  # `slope_step` ends at this share of the initial slope


class Line(NamedTuple):
    """The restriction of f to the line w + t d, by values at the rows only."""

    lam: Scalar  # ()
    cross: Array  # ()   <w, d>
    square: Array  # ()   |d|^2
    margin: Array  # (n,)  y_i <w, phi(x_i)>
    rate: Array  # (n,)  y_i <d, phi(x_i)>
    share: Array  # (n,)
    margin_tol: Array  # ()   rounding error of the margins
    rate_tol: Array  # ()   rounding error of the rates

    def change(self, t: Array) -> Array:
        """f(w + t d) - f(w) (), summed from differences per row."""
        loss_before = jnp.maximum(1 - self.margin, 0)
        loss_after = jnp.maximum(1 - self.margin - t * self.rate, 0)
        risk = pairwise_sum(self.share * (loss_after - loss_before))
        return self.lam * t * (self.cross + t * self.square / 2) + risk

    def active(self, t: Array) -> Array:
        """The a (n,) of the right-hand slope at t.

        It is 1 for rows of margin below 1, or at 1 with a falling margin. Margins within
        `margin_tol` of 1 count as 1: along a kink, rounding decides their side.
        """
        slack = 1 - self.margin - t * self.rate
        is_kink = jnp.abs(slack) <= self.margin_tol + t * self.rate_tol
        return jnp.where(is_kink, self.rate < -self.rate_tol, slack > 0).astype(slack.dtype)

    def slope(self, t: Array) -> Array:
        """The right-hand slope at t, ()."""
        rate = pairwise_sum(self.share * self.active(t) * self.rate)
        return self.lam * (self.cross + t * self.square) - rate


def line_of(
    lam: Scalar,
    space: InnerProductSpace,
    w: FunctionValues,
    d: FunctionValues,
    z: FunctionValues,
    y: Array,
    share: Array,
) -> Line:
    """The restriction of f to the line w + t d, where d is a combination of vectors lam w - z."""
    unit = UNIT * jnp.finfo(share.dtype).eps
    largest = lambda a: fast_max(jnp.where(share > 0, a, 0))
    margin_tol = unit * jnp.maximum(largest(jnp.abs(w.response)), 1)
    rate_tol = unit * largest(lam * jnp.abs(w.response) + jnp.abs(z.response))
    margin_tol, rate_tol = lax.stop_gradient((margin_tol, rate_tol))
    inner, response = (space.inner(w, d), space.inner(d, d)), (y * w.response, y * d.response)
    return Line(lam, *inner, *response, share, margin_tol, rate_tol)


@jax.named_scope("line_search")
def exact_step(line: Line) -> Array:
    """The minimiser t >= 0 of f along a line, (); 0 where the slope at 0 is not negative.

    The slope increases with rate lam |d|^2 and by jumps. Bisection narrows its change of sign to an
    interval with at most one jump.
    """
    first, curvature = line.slope(jnp.zeros_like(line.square)), line.lam * line.square
    # the minimiser without the jumps
    high = jnp.where(first < 0, -first / jnp.where(curvature > 0, curvature, 1), 0)

    def bisect(_, ends):
        # with the slope computed at `low`: a second evaluation could count a close jump differently
        low, slope, high = ends
        middle = (low + high) / 2
        middle_slope = line.slope(middle)
        pair = (middle, middle_slope, high), (low, slope, middle)
        return jax.tree.map(lambda a, b: jnp.where(middle_slope < 0, a, b), *pair)

    rounds, ends = jnp.finfo(first.dtype).nmant + 9, (jnp.zeros_like(high), first, high)
    low, slope, _ = lax.fori_loop(0, rounds, bisect, ends)
    level = low - slope / jnp.where(curvature > 0, curvature, 1)
    jumps = (1 - line.margin) / jnp.where(line.rate != 0, line.rate, 1)
    jump = fast_min(jnp.where((line.rate != 0) & (jumps > low) & (line.share > 0), jumps, jnp.inf))
    # at the jump itself, not at the end of the interval
    return jnp.where(first < 0, jnp.minimum(level, jump), 0)


@jax.named_scope("line_search")
def slope_step(slope: Callable, curvature: Array) -> Array:
    """A step t >= 0 at which a slope is at most 1/1000 of that at 0, by false position, ().

    Trials are doubled from 1 until the slope is not negative. Then the root of the line through
    both ends is tried, with the slope at an end that stays halved (the Illinois rule). At a jump of
    the slope through 0 the search ends just before the jump. It ends after 60 trials, too.

    Args:
        slope: t -> (), the slope of a convex function at t.
        curvature: () a lower bound of the growth of the slope, > 0.

    Returns:
        0 where the slope at 0 is not negative.

    Reference: M. Dowell, P. Jarratt, A modified regula falsi method for computing the root of an
        equation, BIT 11, 1971.
    """
    zero = jnp.zeros_like(curvature)
    first = slope(zero)
    most = jnp.where(first < 0, -first / jnp.where(curvature > 0, curvature, 1), 0)
    eps = jnp.finfo(first.dtype).eps

    def trial(search):
        k, low, high, t, result, _ = search
        value = slope(t)
        is_left = value < 0
        # The slope at the end that stays counts half, if it has stayed before.
        halve = lambda end, stays: (end[0], jnp.where(stays & end[2], end[1] / 2, end[1]), stays)
        replaced = (t, value, jnp.zeros((), bool))
        select = lambda new, old: jax.tree.map(lambda a, b: jnp.where(is_left, a, b), new, old)
        low, high = select(replaced, halve(low, ~is_left)), select(halve(high, is_left), replaced)
        is_bracketed = jnp.isfinite(high[0])
        rise = high[1] - low[1]
        root = high[0] - high[1] * (high[0] - low[0]) / jnp.where(rise > 0, rise, 1)
        is_inside = (root > low[0]) & (root < high[0])
        inner = jnp.where(is_inside, root, (low[0] + high[0]) / 2)
        next_t = jnp.where(is_bracketed, inner, jnp.minimum(2 * t, most))
        is_flat = jnp.abs(value) <= FLATNESS * jnp.abs(first)
        is_narrow = is_bracketed & (high[0] - low[0] <= 4 * eps * high[0])
        result = jnp.where(is_flat, t, low[0])
        return k + 1, low, high, next_t, result, is_flat | is_narrow

    k, no, infinite = jnp.zeros((), jnp.int32), jnp.zeros((), bool), jnp.full_like(most, jnp.inf)
    ends, t = ((zero, first, no), (infinite, zero, no)), jnp.minimum(jnp.ones_like(most), most)
    initial = k, *ends, t, zero, first >= 0
    return lax.while_loop(lambda search: (search[0] < TRIALS) & ~search[-1], trial, initial)[4]


@jax.named_scope("line_search")
def bounded_step(
    line: Line,
    size: Array,
    decrease: Scalar,
    slope: Scalar,
    low: Scalar,
    high: Scalar,
    start: Scalar,
) -> tuple[Array, Array]:
    """A step t of sufficient decrease and small slope (Wolfe conditions), by doubling and halving.

        L = {t > 0: f(t) - f(0) <= -decrease size t};   R = {t > 0: slope of f at t >= -slope size}

    For decrease <= slope, both are intervals that overlap and cover all t > 0, and the search ends.
    Otherwise it may reach its limit of trials.

    Args:
        line: f along d.
        size: |d|^2 in the metric of the method.
        decrease: m_L.
        slope: m_R.
        low: the shortest step.
        high: the longest step.
        start: the first trial step.

    Returns:
        t, 0 where no step longer than `low` has sufficient decrease; and the last rejected trial,
        outside of L.

    Reference: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized support
        vector machines, algorithm 2, without the factor t in R.
    """

    def trial(_, search):
        inside, outside, t, step, done = search
        in_left = line.change(t) <= -decrease * size * t
        in_right = line.slope(t) >= -slope * size
        accepted = in_left & in_right
        new_inside, new_outside = jnp.where(in_left, t, inside), jnp.where(in_left, outside, t)
        midpoint = (new_inside + new_outside) / 2
        longer = jnp.where(jnp.isfinite(new_outside), midpoint, 2 * t)
        shorter = jnp.where(new_inside > 0, midpoint, t / 2)
        next_trial = jnp.where(in_left, longer, shorter)
        too_long, too_short = in_left & (next_trial > high), ~in_left & (next_trial < low)
        stops = accepted | too_long | too_short
        result = jnp.where(accepted | too_long, t, jnp.where(too_short, 0, new_inside))
        step_now = jnp.where(stops, result, new_inside)
        new = new_inside, new_outside, next_trial, step_now, done | stops
        return jax.tree.map(lambda a, b: jnp.where(done, a, b), search, new)

    zero, infinite = jnp.zeros_like(start), jnp.full_like(start, jnp.inf)
    initial = zero, infinite, jnp.clip(start, low, high), zero, jnp.zeros((), bool)
    _, outside, _, step, _ = lax.fori_loop(0, TRIALS, trial, initial)
    return step, jnp.where(jnp.isfinite(outside), outside, 0)


def check_constants(m_L: float, m_R: float) -> None:
    """Raise ValueError for constants of `bounded_step` that are known, and m_L above m_R."""
    if not is_traced(m_L, m_R) and float(m_L) > float(m_R):
        raise ValueError(
            "m_L must be at most m_R, or some steps are neither short nor long enough and the "
            f"search has no end: got m_L={float(m_L):g}, m_R={float(m_R):g}"
        )
