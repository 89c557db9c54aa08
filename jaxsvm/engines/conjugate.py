"""Conjugate subgradients: the shortest vector among a few, and searches along a line that see cached responses only.

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

UNIT = 8  # roundings of a response
TRIALS = 60  # of a search that may not end by itself
REFRESH = 64  # steps between two sums of the values of a function from its coefficients
ROUNDINGS = 256  # of the parts of a vector: below so many it is what they left of 0, and its responses belong to another one


@register("FunctionValues")
class FunctionValues(NamedTuple):
    """A function: what it is made of, and its values at the rows."""

    coef: Array  # (n,) of an expansion over the rows, or (d,) weights
    response: Array  # (n,)


class InnerProductSpace(NamedTuple):
    """Where functions live: a kernel's space over some rows, or linear weights."""

    made: Callable  # coefficients of rows (n,) -> Element
    values: Callable  # what an element is made of -> its values at the rows (n,)
    inner: Callable  # (Element, Element) -> (), the inner product of the space


def make_space(kernel: Kernel | None, x: Array, gram: Array | None = None) -> InnerProductSpace:
    """The space of a kernel over rows x, by its matrix where that is at hand; None: linear weights."""
    if kernel is None:

        def weights(coef):
            w = dot(coef, x)
            return FunctionValues(w, dot(x, w))

        return InnerProductSpace(weights, lambda w: dot(x, w), lambda a, b: dot(a.coef, b.coef))
    product = (lambda coef: matvec(kernel, x, x, coef)) if gram is None else (lambda coef: dot(gram, coef))
    return InnerProductSpace(lambda coef: FunctionValues(coef, product(coef)), product, lambda a, b: dot(a.coef, b.response))


def recompute_values(frame: InnerProductSpace, w: FunctionValues, steps: Array) -> tuple[FunctionValues, Array]:
    """w with its values at the rows, now and then summed anew, as thousands of steps gather roundings, and whether they are."""
    anew = any_under_vmap(steps % REFRESH == 0)
    return FunctionValues(w.coef, lax.cond(anew, lambda: frame.values(w.coef), lambda: w.response)), anew


def combined(weights: Array, elements):
    """sum_j weights_j elements_j, over the leading axis of all arrays of a tree."""
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
    """Whether a vector is more than the roundings of lam w - z, by the squares of all three."""
    unit = ROUNDINGS * jnp.finfo(square.dtype).eps
    return square > unit**2 * (lam**2 * w + z)


def nearest_point(gram: Array, live: Array, gain: Array | None = None) -> Array:
    """The weights of the shortest vector in the convex hull of a few: argmin_w w' gram w / 2 - gain' w, w >= 0 of sum 1.

    Of two vectors h, g by the closed form: h has the weight clip(<g, g - h> / |g - h|^2, 0, 1), 0 where they are equal. Of
    more by active sets, one linear system a cycle: to the nearest point of the plane through some of them, as far as their
    hull goes, where the vector on the way is left out; in the end the vector that is most behind the point joins.

    Args:
        gram: (m, m) inner products of the vectors.
        live: (m,) bool, those that there are; at least one.
        gain: (m,); None: 0.

    Returns:
        (m,), 0 where there is no vector.

    Reference: P. Wolfe, Finding the nearest point in a polytope, Mathematical Programming 11, 1976; of two: D. Zhang, S. Sen,
        A stochastic conjugate subgradient algorithm for kernelized support vector machines, algorithm 1.
    """
    m = gram.shape[0]
    gain = jnp.zeros(m, gram.dtype) if gain is None else gain
    if m == 2:
        lead, scale = gram[1, 1] - gram[0, 1] + gain[0] - gain[1], gram[0, 0] + gram[1, 1]
        curve = jnp.maximum(scale - 2 * gram[0, 1], 4 * jnp.finfo(gram.dtype).eps * scale)  # equal vectors have none
        flat = curve <= 0
        h = jnp.where(flat, (lead > 0).astype(gram.dtype), jnp.clip(lead / jnp.where(flat, 1, curve), 0, 1))
        h = jnp.where(live[0], jnp.where(live[1], h, 1), 0)
        return jnp.stack([h, 1 - h])
    scale = jnp.max(jnp.where(live, jnp.diagonal(gram), 0))
    least_square = 4 * jnp.finfo(gram.dtype).eps * jnp.where(scale > 0, scale, 1)  # equal vectors: no singular system

    def on_plane(gram, gain, inside):
        one = inside.astype(gram.dtype)
        among = jnp.where(inside[:, None] & inside[None, :], gram, 0) + jnp.diag(jnp.where(inside, least_square, 1))
        system = jnp.block([[among, one[:, None]], [one[None, :], jnp.zeros((1, 1), gram.dtype)]])
        return jnp.where(inside, jnp.linalg.solve(system, jnp.append(jnp.where(inside, gain, 0), 1))[:m], 0)

    def cycle(carry):
        weight, inside, cycles, _ = carry
        aim = on_plane(*fixed, inside)
        within = jnp.all(aim >= 0)
        ratio = jnp.where(aim < 0, weight / jnp.where(aim < 0, weight - aim, 1), jnp.inf)
        out = jnp.argmin(ratio)
        on_way = jnp.maximum(weight + jnp.where(within, 0, ratio[out]) * (aim - weight), 0).at[out].set(0)
        weight = jnp.where(within, aim, on_way)
        slope = jnp.where(live, fixed[1] - dot(fixed[0], weight), -jnp.inf)
        top = jnp.argmax(slope)
        done = within & ((slope[top] - dot(weight, jnp.where(live, slope, 0)) <= 2 * least_square) | inside[top])
        after = jnp.where(within, inside.at[top].set(True), inside.at[out].set(False))
        return weight, jnp.where(done, inside, after), cycles + 1, done

    fixed = lax.stop_gradient((gram, gain))
    first = jnp.arange(m) == m - 1 - jnp.argmax(live[::-1])  # some vector: the hull is entered there
    start = (first.astype(gram.dtype), first, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    weight, inside, _, done = lax.while_loop(lambda carry: ~carry[3] & (carry[2] < 5 * m), cycle, start)
    # Once more, as a function of the matrix: loops of no fixed length have no derivatives.
    weight = jnp.where(done, jnp.maximum(on_plane(gram, gain, inside), 0), weight)
    return weight / jnp.sum(weight)


class Line(NamedTuple):
    """f along w + t d, by its values at the rows: nothing else is needed."""

    lam: Array  # ()
    cross: Array  # ()   <w, d>
    square: Array  # ()   |d|^2
    margin: Array  # (n,)  y_i <w, phi(x_i)>
    rate: Array  # (n,)  y_i <d, phi(x_i)>
    share: Array  # (n,)
    margin_tol: Array  # ()   what rounding may have made of margins
    rate_tol: Array  # ()   and of rates

    def change(self, t: Array) -> Array:
        """f(w + t d) - f(w), from differences."""
        before = jnp.maximum(1 - self.margin, 0)
        after = jnp.maximum(1 - self.margin - t * self.rate, 0)
        return self.lam * t * (self.cross + t * self.square / 2) + pairwise_sum(self.share * (after - before))

    def active(self, t: Array) -> Array:
        """The rows below margin 1 at t, or at it and about to fall below: a of the subgradient with the right slope (n,).

        Both but for roundings: on its way along a kink a row is at margin 1, and which side it is on is nothing to go by.
        """
        room = 1 - self.margin - t * self.rate
        return jnp.where(jnp.abs(room) <= self.margin_tol + t * self.rate_tol, self.rate < -self.rate_tol, room > 0).astype(
            room.dtype
        )

    def slope(self, t: Array) -> Array:
        """The slope to the right of t."""
        return self.lam * (self.cross + t * self.square) - pairwise_sum(self.share * self.active(t) * self.rate)


def line_of(
    lam: Array, frame: InnerProductSpace, w: FunctionValues, d: FunctionValues, z: FunctionValues, y: Array, share: Array
) -> Line:
    """f along w + t d, where d is made of vectors such as lam w - z."""
    unit = UNIT * jnp.finfo(share.dtype).eps
    largest = lambda a: fast_max(jnp.where(share > 0, a, 0))  # noqa: E731
    margin_tol = unit * jnp.maximum(largest(jnp.abs(w.response)), 1)
    rate_tol = unit * largest(lam * jnp.abs(w.response) + jnp.abs(z.response))
    margin_tol, rate_tol = lax.stop_gradient((margin_tol, rate_tol))
    return Line(lam, frame.inner(w, d), frame.inner(d, d), y * w.response, y * d.response, share, margin_tol, rate_tol)


def exact_step(line: Line) -> Array:
    """The t >= 0 that minimises f along a line: 0 where the slope at 0 is not below 0.

    The slope grows, by lam |d|^2 a unit and by jumps: its change of sign is halved down to one jump, or to none.
    """
    first, curve = line.slope(jnp.zeros_like(line.square)), line.lam * line.square
    high = jnp.where(first < 0, -first / jnp.where(curve > 0, curve, 1), 0)  # where it would be without the jumps

    def halve(_, ends):
        low, slope, high = ends  # with the slope that was found there: a jump so near might be counted to a second one
        middle = (low + high) / 2
        there = line.slope(middle)
        falls = there < 0
        return jnp.where(falls, middle, low), jnp.where(falls, there, slope), jnp.where(falls, high, middle)

    low, slope, _ = lax.fori_loop(0, jnp.finfo(first.dtype).nmant + 9, halve, (jnp.zeros_like(high), first, high))
    level = low - slope / jnp.where(curve > 0, curve, 1)
    jumps = (1 - line.margin) / jnp.where(line.rate != 0, line.rate, 1)
    jump = fast_min(jnp.where((line.rate != 0) & (jumps > low) & (line.share > 0), jumps, jnp.inf))
    return jnp.where(first < 0, jnp.minimum(level, jump), 0)  # at a jump itself, not at the end that roundings count to it


def bounded_step(line: Line, size: Array, decrease: float, slope: float, low: Array, high: Array, start: Array) -> tuple:
    """A t of sufficient decrease and small slope, by doubling and halving.

        L = {t > 0: f(t) - f(0) <= -decrease size t};   R = {t > 0: slope of f at t >= -slope size}

    For decrease <= slope both are intervals that overlap and cover all t > 0, and this ends; otherwise not always.

    Args:
        line: f along d.
        size: |d|^2 in the metric of the method.
        decrease: m_L.
        slope: m_R.
        low: the shortest step that counts.
        high: the longest step allowed.
        start: the first trial.

    Returns:
        t, 0 where no step longer than `low` decreases f enough, and the last trial outside of L.

    Reference: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized support vector machines,
        algorithm 2, without the factor t in R.
    """

    def trial(_, search):
        inside, outside, t, found, done = search
        left = line.change(t) <= -decrease * size * t
        right = line.slope(t) >= -slope * size
        good = left & right
        new_inside, new_outside = jnp.where(left, t, inside), jnp.where(left, outside, t)
        between = (new_inside + new_outside) / 2
        up = jnp.where(jnp.isfinite(new_outside), between, 2 * t)
        down = jnp.where(new_inside > 0, between, t / 2)
        after = jnp.where(left, up, down)
        over, under = left & (after > high), ~left & (after < low)
        ends = good | over | under
        result = jnp.where(good | over, t, jnp.where(under, 0, new_inside))
        new = (new_inside, new_outside, after, jnp.where(ends, result, new_inside), done | ends)
        return jax.tree.map(lambda a, b: jnp.where(done, a, b), search, new)

    zero = jnp.zeros_like(start)
    first = (zero, jnp.full_like(start, jnp.inf), jnp.clip(start, low, high), zero, jnp.zeros((), bool))
    _, outside, _, found, _ = lax.fori_loop(0, TRIALS, trial, first)
    return found, jnp.where(jnp.isfinite(outside), outside, 0)


def check_constants(m_L: float, m_R: float, *, apart: bool = False) -> None:
    """Refuse constants of a search that may find nothing.

    Args:
        m_L: share of the norm by which f has to decrease.
        m_R: share of the norm by which f may still fall.
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
