"""Conjugate subgradients: the minimum norm point of a convex hull, and line searches on cached responses.

f(w) = lam/2 |w|^2 + sum_i share_i max(0, 1 - y_i <w, phi(x_i)>),   share_i = weight_i / sum weight
lam w - z is a subgradient,   z = sum_i share_i a_i y_i phi(x_i),   a_i = 1 below margin 1, 0 above, between at it
D(a) = sum_i share_i a_i - |z|^2 / (2 lam) <= min f   for every a in [0, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..kernels import Kernel, matvec
from ..numerics import any_under_vmap, dot, fast_max, fast_min, is_traced, pairwise_sum
from ..recipe import check_scalars, register
from ..types import Array

UNIT = 8  # rounding error of a response, in units of eps
TRIALS = 60  # limit of trial steps in a line search
REFRESH = 64  # steps between two computations of a function's values from its coefficients
ROUNDINGS = 256  # in units of eps of its terms: a vector below this size is rounding error only


@register("FunctionValues")
class FunctionValues(NamedTuple):
    """A function by its coefficients and its values at the rows."""

    coef: Array  # (n,) of an expansion over the rows, or (d,) weights
    response: Array  # (n,)


class InnerProductSpace(NamedTuple):
    """The inner product space of functions: expansions over rows with a kernel, or linear weights."""

    made: Callable  # coefficients of rows (n,) -> FunctionValues
    values: Callable  # the coefficients of a function -> its values at the rows (n,)
    inner: Callable  # (FunctionValues, FunctionValues) -> (), the inner product


def make_space(kernel: Kernel | None, x: Array, gram: Array | None = None) -> InnerProductSpace:
    """The space of a kernel over rows x (n, d), with its matrix `gram` (n, n) if that is available; None: linear weights."""
    if kernel is None:

        def weights(coef):
            w = dot(coef, x)
            return FunctionValues(w, dot(x, w))

        return InnerProductSpace(weights, lambda w: dot(x, w), lambda a, b: dot(a.coef, b.coef))
    product = (lambda coef: matvec(kernel, x, x, coef)) if gram is None else (lambda coef: dot(gram, coef))
    return InnerProductSpace(lambda coef: FunctionValues(coef, product(coef)), product, lambda a, b: dot(a.coef, b.response))


def recompute_values(frame: InnerProductSpace, w: FunctionValues, steps: Array) -> tuple[FunctionValues, Array]:
    """w with its values recomputed from the coefficients at every REFRESH-th step, and whether they were, () bool."""
    is_due = any_under_vmap(steps % REFRESH == 0)
    return FunctionValues(w.coef, lax.cond(is_due, lambda: frame.values(w.coef), lambda: w.response)), is_due


def combined(weights: Array, elements):
    """sum_j weights_j elements_j over the leading axis of each array of a tree."""
    return jax.tree.map(lambda a: dot(weights, a), elements)


def add_scaled(a: FunctionValues, t: Array, b: FunctionValues) -> FunctionValues:
    """a + t b."""
    return jax.tree.map(lambda u, v: u + t * v, a, b)


def scale(t: Array, a: FunctionValues) -> FunctionValues:
    """t a."""
    return jax.tree.map(lambda u: t * u, a)


def subgradient(lam: Array, w: FunctionValues, z: FunctionValues) -> FunctionValues:
    """lam w - z."""
    return add_scaled(scale(lam, w), -1.0, z)


def above_rounding(square: Array, lam: Array, w: Array, z: Array) -> Array:
    """Whether a vector exceeds the rounding error of lam w - z, () bool.

    Args:
        square: () squared norm of the vector.
        lam: ().
        w: () squared norm of w.
        z: () squared norm of z.
    """
    unit = ROUNDINGS * jnp.finfo(square.dtype).eps
    return square > unit**2 * (lam**2 * w + z)


def nearest_point(gram: Array, live: Array, gain: Array | None = None) -> Array:
    """The convex weights of the minimum norm point of m vectors: argmin_w w' gram w / 2 - gain' w, w >= 0 of sum 1.

    For two vectors h, g in closed form: h has weight clip(<g, g - h> / |g - h|^2, 0, 1), 0 where they are equal. For more by an
    active set method, one linear system per cycle. A cycle aims at the minimum over the affine hull of the active vectors. If
    that lies outside of their convex hull, it stops at the boundary and drops one vector. Otherwise the vector of the steepest
    descent joins, until none is left.

    Args:
        gram: (m, m) inner products of the vectors.
        live: (m,) bool, the vectors that exist; at least one.
        gain: (m,) linear term; None: 0.

    Returns:
        (m,) weights, 0 where there is no vector.

    Reference: P. Wolfe, Finding the nearest point in a polytope, Mathematical Programming 11, 1976; of two: D. Zhang, S. Sen,
        A stochastic conjugate subgradient algorithm for kernelized support vector machines, algorithm 1.
    """
    m = gram.shape[0]
    gain = jnp.zeros(m, gram.dtype) if gain is None else gain
    if m == 2:
        lead, scale = gram[1, 1] - gram[0, 1] + gain[0] - gain[1], gram[0, 0] + gram[1, 1]
        curve = jnp.maximum(scale - 2 * gram[0, 1], 4 * jnp.finfo(gram.dtype).eps * scale)  # 0 for equal vectors
        equal = curve <= 0
        h = jnp.where(equal, (lead > 0).astype(gram.dtype), jnp.clip(lead / jnp.where(equal, 1, curve), 0, 1))
        h = jnp.where(live[0], jnp.where(live[1], h, 1), 0)
        return jnp.stack([h, 1 - h])
    scale = jnp.max(jnp.where(live, jnp.diagonal(gram), 0))
    least_square = 4 * jnp.finfo(gram.dtype).eps * jnp.where(scale > 0, scale, 1)  # keeps the system regular for equal vectors

    def on_plane(gram, gain, active):
        active_float = active.astype(gram.dtype)
        active_gram = jnp.where(active[:, None] & active[None, :], gram, 0) + jnp.diag(jnp.where(active, least_square, 1))
        system = jnp.block([[active_gram, active_float[:, None]], [active_float[None, :], jnp.zeros((1, 1), gram.dtype)]])
        return jnp.where(active, jnp.linalg.solve(system, jnp.append(jnp.where(active, gain, 0), 1))[:m], 0)

    def cycle(carry):
        weight, active, cycles, _ = carry
        target = on_plane(*fixed, active)
        in_hull = jnp.all(target >= 0)
        ratio = jnp.where(target < 0, weight / jnp.where(target < 0, weight - target, 1), jnp.inf)
        dropped = jnp.argmin(ratio)
        boundary = jnp.maximum(weight + jnp.where(in_hull, 0, ratio[dropped]) * (target - weight), 0).at[dropped].set(0)
        weight = jnp.where(in_hull, target, boundary)
        slope = jnp.where(live, fixed[1] - dot(fixed[0], weight), -jnp.inf)
        joining = jnp.argmax(slope)
        done = in_hull & ((slope[joining] - dot(weight, jnp.where(live, slope, 0)) <= 2 * least_square) | active[joining])
        next_active = jnp.where(in_hull, active.at[joining].set(True), active.at[dropped].set(False))
        return weight, jnp.where(done, active, next_active), cycles + 1, done

    fixed = lax.stop_gradient((gram, gain))
    entry = jnp.arange(m) == m - 1 - jnp.argmax(live[::-1])  # the last live vector is the initial point
    start = (entry.astype(gram.dtype), entry, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    weight, active, _, done = lax.while_loop(lambda carry: ~carry[3] & (carry[2] < 5 * m), cycle, start)
    # Solve once more outside of the loop: while loops have no reverse-mode derivative.
    weight = jnp.where(done, jnp.maximum(on_plane(gram, gain, active), 0), weight)
    return weight / jnp.sum(weight)


class Line(NamedTuple):
    """The restriction of f to the line w + t d, by values at the rows only."""

    lam: Array  # ()
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
        return self.lam * t * (self.cross + t * self.square / 2) + pairwise_sum(self.share * (loss_after - loss_before))

    def active(self, t: Array) -> Array:
        """The a (n,) of the right-hand slope at t: 1 for rows of margin below 1, or at 1 with a falling margin.

        Margins within `margin_tol` of 1 count as 1: along a kink, rounding decides their side.
        """
        slack = 1 - self.margin - t * self.rate
        return jnp.where(jnp.abs(slack) <= self.margin_tol + t * self.rate_tol, self.rate < -self.rate_tol, slack > 0).astype(
            slack.dtype
        )

    def slope(self, t: Array) -> Array:
        """The right-hand slope at t, ()."""
        return self.lam * (self.cross + t * self.square) - pairwise_sum(self.share * self.active(t) * self.rate)


def line_of(
    lam: Array, frame: InnerProductSpace, w: FunctionValues, d: FunctionValues, z: FunctionValues, y: Array, share: Array
) -> Line:
    """The restriction of f to the line w + t d, where d is a combination of vectors lam w - z."""
    unit = UNIT * jnp.finfo(share.dtype).eps
    largest = lambda a: fast_max(jnp.where(share > 0, a, 0))
    margin_tol = unit * jnp.maximum(largest(jnp.abs(w.response)), 1)
    rate_tol = unit * largest(lam * jnp.abs(w.response) + jnp.abs(z.response))
    margin_tol, rate_tol = lax.stop_gradient((margin_tol, rate_tol))
    return Line(lam, frame.inner(w, d), frame.inner(d, d), y * w.response, y * d.response, share, margin_tol, rate_tol)


def exact_step(line: Line) -> Array:
    """The minimiser t >= 0 of f along a line, (); 0 where the slope at 0 is not negative.

    The slope increases with rate lam |d|^2 and by jumps. Bisection narrows its change of sign to an interval with at most one
    jump.
    """
    first, curvature = line.slope(jnp.zeros_like(line.square)), line.lam * line.square
    high = jnp.where(first < 0, -first / jnp.where(curvature > 0, curvature, 1), 0)  # the minimiser without the jumps

    def bisect(_, ends):
        low, slope, high = ends  # with the slope computed at `low`: a second evaluation could count a close jump differently
        middle = (low + high) / 2
        middle_slope = line.slope(middle)
        is_left = middle_slope < 0
        return jnp.where(is_left, middle, low), jnp.where(is_left, middle_slope, slope), jnp.where(is_left, high, middle)

    low, slope, _ = lax.fori_loop(0, jnp.finfo(first.dtype).nmant + 9, bisect, (jnp.zeros_like(high), first, high))
    level = low - slope / jnp.where(curvature > 0, curvature, 1)
    jumps = (1 - line.margin) / jnp.where(line.rate != 0, line.rate, 1)
    jump = fast_min(jnp.where((line.rate != 0) & (jumps > low) & (line.share > 0), jumps, jnp.inf))
    return jnp.where(first < 0, jnp.minimum(level, jump), 0)  # at the jump itself, not at the end of the interval


def bounded_step(line: Line, size: Array, decrease: float, slope: float, low: Array, high: Array, start: Array) -> tuple:
    """A step t of sufficient decrease and small slope (Wolfe conditions), by doubling and halving.

        L = {t > 0: f(t) - f(0) <= -decrease size t};   R = {t > 0: slope of f at t >= -slope size}

    For decrease <= slope, both are intervals that overlap and cover all t > 0, and the search ends. Otherwise it may reach its
    limit of trials.

    Args:
        line: f along d.
        size: |d|^2 in the metric of the method.
        decrease: m_L.
        slope: m_R.
        low: the shortest step.
        high: the longest step.
        start: the first trial step.

    Returns:
        t, 0 where no step longer than `low` has sufficient decrease; and the last rejected trial, outside of L.

    Reference: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized support vector machines,
        algorithm 2, without the factor t in R.
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
        new = (new_inside, new_outside, next_trial, jnp.where(stops, result, new_inside), done | stops)
        return jax.tree.map(lambda a, b: jnp.where(done, a, b), search, new)

    zero = jnp.zeros_like(start)
    initial = (zero, jnp.full_like(start, jnp.inf), jnp.clip(start, low, high), zero, jnp.zeros((), bool))
    _, outside, _, step, _ = lax.fori_loop(0, TRIALS, trial, initial)
    return step, jnp.where(jnp.isfinite(outside), outside, 0)


def check_constants(m_L: float, m_R: float, *, apart: bool = False) -> None:
    """Check the constants of `bounded_step`.

    Args:
        m_L: sufficient decrease, as a fraction of the squared norm, in (0, 1).
        m_R: largest remaining slope, as a fraction of the squared norm, in (0, 1).
        apart: allow m_L > m_R; structure.

    Raises:
        ValueError: m_L or m_R not between 0 and 1; m_L above m_R.
    """
    for name, value in (("m_L", m_L), ("m_R", m_R)):
        check_scalars(**{name: value})
        if not is_traced(value) and not 0 < float(value) < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {float(value):g}")
    if not apart and not is_traced(m_L, m_R) and float(m_L) > float(m_R):
        raise ValueError(
            f"m_L must be at most m_R, or some steps are neither short nor long enough and the search has no end: got "
            f"m_L={float(m_L):g}, m_R={float(m_R):g}"
        )
