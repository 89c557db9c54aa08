"""Water filling: the level of a given volume of water over a ground.

The ground is one basin, or two that share the volume.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._node import register
from ..types import Array, Scalar
from .batching import map_on_cpu
from .reductions import fast_max, fast_min, pairwise_sum
from .tangents import with_slopes

FEW = 8  # Newton steps from an initial guess
# limit for the search of the bias; a third are bisections, which alone would suffice in float64
ROUNDS = 150


@register("WaterFill")
class WaterFill(NamedTuple):
    """The water level in one basin, or in two basins, one per class."""

    # Of two basins the mean: level - bias in the positive class, level + bias in the other.
    level: Array  # ()
    bias: Array  # ()   0 for one basin
    share: Array  # (n,)  the p that attains the minimum, of sum 1, 1/2 in each of two basins


def one_level(
    responses: Array, volume: Array, *, weight: Array | None = None, start: Array | None = None
) -> WaterFill:
    """The level G with sum_i weight_i max(0, G - c_i) = volume, and the shares p that attain it.

        level = min_p sum_i p_i c_i + volume max_i p_i / weight_i
        A = {i: c_i < G};   G = (volume + sum_A weight_i c_i) / sum_A weight_i,
            until A shrinks no more

    For volume 0 it is the lowest c_i. Newton's method on a convex piecewise linear function: G
    decreases from the second step on, and the result is exact. From a guess it stops when the
    volume is met up to rounding. Derivatives are those of the level: weight_i / sum_A weight with
    respect to c_i in A, 1 / sum_A weight with respect to the volume, -(G - c_i) / sum_A weight with
    respect to weight_i in A.

    Args:
        responses: c (n,), finite where the weight is positive.
        volume: () >= 0.
        weight: (n,) >= 0, not all 0; rows of weight 0 are ignored; None: ones.
        start: () an initial guess, such as the level before a small change of c; None: start with
            all rows under water.

    Returns:
        `WaterFill`: p is proportional to the weights of the rows under water, or at the level if no
        row is under water.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> float(jaxsvm.numerics.one_level(jnp.array([0.0, 1.0, 5.0]), 3.0).level)
        2.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 3 (there by divide and conquer, here without partitions).
    """
    responses, volume, weight = _prepare(responses, volume, weight)
    c, v, w, guess = lax.stop_gradient((responses, volume, weight, start))
    edge, level, mass = map_on_cpu(_solve_level)(c, v, w, guess)
    slopes = _level_derivatives(c, edge, level - c, mass, w)
    level = with_slopes(level, slopes, (responses, volume, weight))
    return WaterFill(level, jnp.zeros_like(level), slopes[0])


def two_levels(
    responses: Array,
    y: Array,
    volume: Array,
    *,
    weight: Array | None = None,
    start: tuple[Array, Array, Array] | None = None,
) -> WaterFill:
    """The bias b that maximises the water level over c_i + y_i b.

    Two basins, one per class, share the volume.

        level = max_b G(b),   sum_i weight_i max(0, G(b) - c_i - y_i b) = volume
            = min_p sum_i p_i c_i + volume max_i p_i / weight_i,   p >= 0 of sum 1/2 in each class

    G is concave and piecewise linear. Its slope is (P - N) / (P + N) for the weights P and N under
    water in the two classes. A bracket of its maximum is narrowed; where the maximum is an
    interval, b is its midpoint. Derivatives are those of the level and of the bias.

    Args:
        responses: c (n,), finite where the weight is positive.
        y: (n,) in {-1, +1}.
        volume: () >= 0.
        weight: (n,) >= 0; rows of weight 0 are ignored; None: ones.
        start: an initial guess: bias, level, and the initial stride of the bias.

    Returns:
        `WaterFill`. Where a class has no rows, the level is infinite, the bias and the shares are
        0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> points, signs = jnp.array([0.0, 1.0, 5.0]), jnp.array([1.0, 1.0, -1.0])
        >>> fill = jax.jit(jaxsvm.numerics.two_levels)(points, signs, 2.0)
        >>> float(fill.level), float(fill.bias)
        (3.5, 3.0)

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 4, algorithm 3 (there by divide and conquer).
    """
    responses, volume, weight = _prepare(responses, volume, weight)
    c, v, w, y, start = lax.stop_gradient((responses, volume, weight, y, start))
    left, right, both = map_on_cpu(_bracket)(c, v, w, y, start)
    best = _either(left.level >= right.level, left, right)
    slope_drop = left.slope - right.slope
    over_drop = lambda a: jnp.where(slope_drop > 0, a / jnp.where(slope_drop > 0, slope_drop, 1), 0)
    right_share = over_drop(left.slope)  # both classes have equal weight then
    # under water are the rows of a piece at its own bias
    depth = lambda piece: piece.at(best.bias) - (c + y * best.bias)
    parts = [
        _level_derivatives(c + y * piece.bias, piece.edge, depth(piece), piece.mass, w)
        for piece in (left, right)
    ]
    slopes = jax.tree.map(lambda a, b: (1 - right_share) * a + right_share * b, *parts)
    variables = responses, volume, weight
    level = with_slopes(best.level, slopes, variables)
    # The bias where the two pieces meet, or of a plateau its midpoint.
    by_drop = jax.tree.map(lambda a, b: over_drop(b - a), *parts)
    meeting = with_slopes(best.bias, by_drop, variables)
    plateau = _middle(responses, y, best._replace(level=level), w)
    bias = jnp.where(best.slope == 0, plateau, meeting)
    level = jnp.where(both, level, jnp.inf)
    share, bias = jnp.where(both, slopes[0], 0), jnp.where(both, bias, 0)
    return WaterFill(level, bias, share)


class _Piece(NamedTuple):
    """A linear piece of G: its value and slope at a bias."""

    bias: Array  # ()
    level: Array  # ()
    slope: Array  # ()
    mass: Array  # ()   weight of the rows under water
    edge: Array  # ()   rows below it are under water

    def at(self, bias: Array) -> Array:
        return self.level + self.slope * (bias - self.bias)


def _either(first: Array, a: _Piece, b: _Piece) -> _Piece:
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), a, b)


def _prepare(responses: Array, volume: Scalar, weight: Array | None) -> tuple[Array, Array, Array]:
    weight = jnp.ones_like(responses) if weight is None else weight
    return jnp.where(weight > 0, responses, 0), jnp.asarray(volume, responses.dtype), weight


@jax.jit
def _bracket(
    c: Array, volume: Array, w: Array, y: Array, start: tuple | None
) -> tuple[_Piece, _Piece, Array]:
    """The two pieces around the maximum of G, and whether both classes have rows."""
    sides = jnp.where(y > 0, w, 0), jnp.where(y > 0, 0, w)
    both = (pairwise_sum(sides[0]) > 0) & (pairwise_sum(sides[1]) > 0)

    def piece_at(bias, guess):
        """The linear piece of G at a bias."""
        ground = c + y * bias
        edge, level, mass = _solve_level(ground, volume, w, guess)
        under = _under(ground, edge, w)
        positive, negative = (pairwise_sum(jnp.where(under, side, 0)) for side in sides)
        return _Piece(bias, level, (positive - negative) / (positive + negative), mass, edge)

    def should_continue(search):
        *_, rounds, done = search
        return both & ~done & (rounds < ROUNDS)

    def narrow(search):
        left, right, stride, rounds, _ = search
        has_bracket = jnp.isfinite(left.bias) & jnp.isfinite(right.bias)
        # Strides double until the bracket has two ends. Then in turn: the intersection of the
        # pieces, the secant, bisection.
        extended = jnp.where(jnp.isfinite(left.bias), left.bias + stride, right.bias - stride)
        slope_drop = left.slope - right.slope
        intersection = left.bias + (right.at(left.bias) - left.level) / slope_drop
        secant = left.bias + left.slope / slope_drop * (right.bias - left.bias)
        between = lax.select_n(rounds % 3, intersection, secant, (left.bias + right.bias) / 2)
        bias = jnp.where(has_bracket, jnp.clip(between, left.bias, right.bias), extended)
        bound = jnp.fmin(left.at(bias), right.at(bias))  # G is concave
        new = piece_at(bias, bound)
        room = 4 * jnp.finfo(c.dtype).eps * jnp.maximum(jnp.abs(bound), jnp.abs(bias))
        # The maximum is found if G attains the bound of both pieces, or if the bracket has no float
        # in between.
        is_attained = (rounds % 3 == 0) & (new.level >= bound - room)
        ends = has_bracket & (is_attained | (right.bias - left.bias <= room))
        left, right = _either(new.slope >= 0, new, left), _either(new.slope <= 0, new, right)
        stride = jnp.where(has_bracket, stride, 2 * stride)
        return left, right, stride, rounds + 1, ends | (new.slope == 0)

    initial_bias, guess, stride = _initial_guess(c, volume, sides, start)
    first = piece_at(initial_bias, guess)
    # an end that is not known yet is infinite
    unknown = lambda *numbers: _Piece(*(jnp.full((), a, c.dtype) for a in (*numbers, 0, 0)))
    left = _either(first.slope >= 0, first, unknown(-jnp.inf, 0, 1))
    right = _either(first.slope <= 0, first, unknown(jnp.inf, 0, -1))
    search = left, right, stride, jnp.zeros((), jnp.int32), first.slope == 0
    left, right, *_ = lax.while_loop(should_continue, narrow, search)
    return left, right, both


def _initial_guess(
    c: Array, volume: Array, sides: tuple[Array, Array], start: tuple | None
) -> tuple[Array, Array | None, Array]:
    """The initial bias, level and stride of the search."""
    low = [fast_min(jnp.where(side > 0, c, jnp.inf)) for side in sides]
    limits = jnp.finfo(c.dtype)
    least_stride = 4 * limits.eps * (jnp.abs(low[0]) + jnp.abs(low[1])) + limits.tiny
    if start is not None:
        bias, level, stride = (jnp.asarray(a, c.dtype) for a in start)
        return bias, level, jnp.maximum(stride, least_stride)
    both = jnp.isfinite(low[0]) & jnp.isfinite(low[1])
    # The optimum for volume 0: rows far above it do not cost precision.
    stride = volume / pairwise_sum(sides[0] + sides[1]) + least_stride
    return jnp.where(both, (low[1] - low[0]) / 2, 0), None, stride


@jax.jit
def _solve_level(
    ground: Array, volume: Array, w: Array, guess: Array | None
) -> tuple[Array, Array, Array]:
    """The edge of the water, the level, and the weight of the rows below the edge.

    The level is that of one more Newton step from the edge.
    """
    if guess is None:
        return _newton_from_top(ground, volume, w)

    def refine(carry):
        _, level, *_, steps = carry
        return level, *_step(ground, volume, w, level), steps + 1

    def is_unsolved(carry):
        _, _, mass, missing, _ = carry
        return ~((mass > 0) & (jnp.abs(missing) <= 64 * jnp.finfo(ground.dtype).eps * volume))

    # From a good guess two or three steps suffice. Otherwise solve from the top, in a loop of at
    # most one round: under `vmap` a `cond` would solve every level again.
    first = (guess, *_step(ground, volume, w, guess), jnp.zeros((), jnp.int32))
    goes_on = lambda carry: is_unsolved(carry) & (carry[-1] < FEW)
    *solved, _, _ = outcome = lax.while_loop(goes_on, refine, first)
    from_top = lambda carry: (jnp.zeros((), bool), *_newton_from_top(ground, volume, w))
    return lax.while_loop(lambda carry: carry[0], from_top, (is_unsolved(outcome), *solved))[1:]


@jax.jit
def _step(ground: Array, volume: Array, w: Array, level: Array) -> tuple[Array, Array, Array]:
    """A Newton step from `level`: the new level, the weight under water, the missing volume.

    The new level and the weight are those of the rows below `level`. The volume is missing at
    `level`.
    """
    below = jnp.where(ground < level, w, 0)
    mass, missing = pairwise_sum(below), volume - pairwise_sum(below * (level - ground))
    return jnp.where(mass > 0, level + missing / jnp.where(mass > 0, mass, 1), level), mass, missing


@jax.jit
def _newton_from_top(ground: Array, volume: Array, w: Array) -> tuple[Array, Array, Array]:
    """As `_solve_level`, starting with all rows under water.

    Levels decrease until the set under water is unchanged.
    """
    floor = fast_min(jnp.where(w > 0, ground, jnp.inf))

    def fall(carry):
        level, before, _ = carry
        below = jnp.where(ground < level, w, 0)
        mass = pairwise_sum(below)
        # Sums of heights above the floor: no cancellation, however large the level is.
        height = (volume + pairwise_sum(below * (ground - floor))) / jnp.where(mass > 0, mass, 1)
        shrinks = mass < before  # an equal weight means the same rows
        lower = jnp.where(mass > 0, floor + height, level)
        return jnp.where(shrinks, lower, level), mass, shrinks

    total = volume + pairwise_sum(w * jnp.where(w > 0, ground - floor, 0))
    high, infinite = floor + total / pairwise_sum(w), jnp.full((), jnp.inf, ground.dtype)
    tiny = jnp.full((), jnp.finfo(ground.dtype).tiny, ground.dtype)
    begin = high, infinite, jnp.ones((), bool)
    level, mass, _ = lax.while_loop(lambda carry: carry[2], fall, begin)
    # If no row is under water, the rows at the level count, and the edge is just above them.
    above = jnp.where(jnp.abs(level) < tiny, tiny, jnp.nextafter(level, infinite))
    at_level = pairwise_sum(jnp.where(ground <= level, w, 0))
    # One more step: most rows under water may be close to the level.
    refined = _step(ground, volume, w, level)[0]
    return jnp.where(mass > 0, level, above), refined, jnp.where(mass > 0, mass, at_level)


def _under(ground: Array, edge: Array, w: Array) -> Array:
    """The rows under water, or those at the level if none is under water, (n,) bool."""
    return (ground < edge) & (w > 0)


def _level_derivatives(
    ground: Array, edge: Array, depth: Array, mass: Array, w: Array
) -> tuple[Array, Array, Array]:
    """The derivatives of the level in responses (n,), of sum 1, volume and weights (n,).

    `depth` (n,) is that of the water, which is read below the edge.
    """
    under = _under(ground, edge, w)
    return jnp.where(under, w, 0) / mass, 1 / mass, jnp.where(under, -depth, 0) / mass


def _middle(c: Array, y: Array, piece: _Piece, w: Array) -> Array:
    """The midpoint of the biases for which the same rows are under water."""
    under, live = _under(c + y * piece.bias, piece.edge, w), w > 0
    top = lambda side, rows: fast_max(jnp.where(rows & side & live, c, -jnp.inf))
    bottom = lambda side, rows: fast_min(jnp.where(rows & side & live, c, jnp.inf))
    low = jnp.maximum(piece.level - bottom(y > 0, ~under), top(y <= 0, under) - piece.level)
    high = jnp.minimum(piece.level - top(y > 0, under), bottom(y <= 0, ~under) - piece.level)
    return (low + high) / 2
