"""Water filling: how high water of a given volume stands over a ground, in one basin or in two that share it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..recipe import register
from ..types import Array
from .batching import map_on_cpu
from .products import dot
from .reductions import fast_max, fast_min, pairwise_sum

FEW = 8  # steps of Newton's method from a guess
ROUNDS = 150  # of the search for the bias, a third of them halvings: enough for float64 even if nothing else helped


def water_level(responses: Array, volume: Array, *, weight: Array | None = None, start: Array | None = None) -> Array:
    """The level G with sum_i weight_i max(0, G - c_i) = volume; the lowest c_i for volume 0.

        A = {i: c_i < G};   G = (volume + sum_A weight_i c_i) / sum_A weight_i,   until A shrinks no more

    Newton's method on a convex function that is linear in pieces: from the second step on G falls, and the end is exact; from
    a guess it ends where the volume is met but for roundings.
    Derivatives are those of the level: weight_i / sum_A weight in c_i of A, 1 / sum_A weight in the volume; not in the weights.

    Args:
        responses: c (n,), finite where they count.
        volume: >= 0.
        weight: (n,) >= 0, not all 0; rows of weight 0 do not exist; None: ones.
        start: a guess, such as the level before c moved a little; None: all rows under water.

    Returns:
        ()

    Example:
        >>> import jax.numpy as jnp
        >>> float(water_level(jnp.array([0.0, 1.0, 5.0]), 3.0))
        2.0

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012, section 3
        (there by dividing and conquering, here without partitions).
    """
    return one_level(responses, volume, weight=weight, start=start).level


@register("WaterFill")
class WaterFill(NamedTuple):
    """Water in one basin, or in two, one of each class."""

    level: Array  # ()   of two the mean: level - bias in that of the positive class, level + bias in the other
    bias: Array  # ()   0 for one basin
    share: Array  # (n,)  the p that attains it, of sum 1, 1/2 in each of two basins


def one_level(responses: Array, volume: Array, *, weight: Array | None = None, start: Array | None = None) -> WaterFill:
    """The water level, and the rows' shares that attain it: level = min_p sum_i p_i c_i + volume max_i p_i / weight_i.

    Args:
        responses: c (n,), as in `water_level`.
        volume: >= 0.
        weight: (n,) >= 0; None: ones.
        start: a guess of the level.

    Returns:
        `Basins`: p in proportion to the weights of the rows under water, of those at the level where none is under it.
    """
    responses, volume, weight = _terms(responses, volume, weight)
    c, poured, w, guess = _held((responses, volume, weight, start))
    edge, level, mass = map_on_cpu(_solve_level)(c, poured, w, guess)
    share, slope = _lifted(c, edge, mass, w)
    return WaterFill(_with_derivatives(level, share, slope, responses, volume), jnp.zeros_like(level), share)


def two_levels(
    responses: Array,
    y: Array,
    volume: Array,
    *,
    weight: Array | None = None,
    start: tuple[Array, Array, Array] | None = None,
) -> WaterFill:
    """The bias b for which water over c_i + y_i b stands highest: the volume goes to two basins, one of each class.

        level = max_b G(b),   sum_i weight_i max(0, G(b) - c_i - y_i b) = volume
        = min_p sum_i p_i c_i + volume max_i p_i / weight_i,   p >= 0 of sum 1/2 in each class

    G is concave and linear in pieces, with slope (P - N) / (P + N) for the weights P and N under water in the two classes. Its
    maximum is bracketed; where it is flat, b is the middle. Derivatives are those of the level; the bias has none.

    Args:
        responses: c (n,), finite where they count.
        y: (n,) in {-1, +1}.
        volume: >= 0.
        weight: (n,) >= 0; rows of weight 0 do not exist; None: ones.
        start: a guess: bias, level, and how far the bias may have moved since.

    Returns:
        `Basins`; the level is infinite, the bias and the shares are 0 where a class has no rows.

    Example:
        >>> import jax.numpy as jnp
        >>> found = two_basins(jnp.array([0.0, 1.0, 5.0]), jnp.array([1.0, 1.0, -1.0]), 2.0)
        >>> float(found.level), float(found.bias)
        (3.5, 3.0)

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012, section 4,
        algorithm 3 (there by dividing and conquering).
    """
    responses, volume, weight = _terms(responses, volume, weight)
    c, poured, w, y, start = _held((responses, volume, weight, y, start))
    left, right, both = map_on_cpu(_bracketed)(c, poured, w, y, start)
    best = _either(left.level >= right.level, left, right)
    steep = left.slope - right.slope
    mixed = jnp.where(steep > 0, left.slope / jnp.where(steep > 0, steep, 1), 0)  # of the right piece: no class outweighs
    parts = [_lifted(c + y * piece.bias, piece.edge, piece.mass, w) for piece in (left, right)]
    share, slope = jax.tree.map(lambda a, b: (1 - mixed) * a + mixed * b, *parts)
    bias = jnp.where(best.slope == 0, _middle(c, y, best, w), best.bias)
    level = jnp.where(both, best.level, jnp.inf)
    share, bias = jnp.where(both, share, 0), jnp.where(both, bias, 0)
    return WaterFill(_with_derivatives(level, share, slope, responses, volume), bias, share)


class _Piece(NamedTuple):
    """G at a bias, and its slope there."""

    bias: Array  # ()
    level: Array  # ()
    slope: Array  # ()
    mass: Array  # ()   of the rows under water
    edge: Array  # ()   below which they are

    def at(self, bias):
        return self.level + self.slope * (bias - self.bias)


class _Search(NamedTuple):
    """A bracket of the best bias; one that is not known yet is infinite."""

    left: _Piece  # slope >= 0
    right: _Piece  # slope <= 0
    stride: Array  # ()
    rounds: Array  # ()  int32
    done: Array  # ()  bool


def _either(first: Array, a: _Piece, b: _Piece) -> _Piece:
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), a, b)


def _held(tree):
    return jax.tree.map(lax.stop_gradient, tree)


def _terms(responses, volume, weight):
    weight = jnp.ones_like(responses) if weight is None else weight
    return jnp.where(weight > 0, responses, 0), jnp.asarray(volume, responses.dtype), weight


def _bracketed(c, volume, w, y, start):
    """Two pieces between which G is highest, and whether there are rows of both classes."""
    sides = jnp.where(y > 0, w, 0), jnp.where(y > 0, 0, w)
    both = (pairwise_sum(sides[0]) > 0) & (pairwise_sum(sides[1]) > 0)

    def over(bias, guess):
        """The piece of G at a bias."""
        ground = c + y * bias
        edge, level, mass = _solve_level(ground, volume, w, guess)
        under = _under(ground, edge, w)
        more, less = (pairwise_sum(jnp.where(under, side, 0)) for side in sides)
        return _Piece(bias, level, (more - less) / (more + less), mass, edge)

    def goes_on(search):
        return both & ~search.done & (search.rounds < ROUNDS)

    def narrow(search):
        left, right, stride, rounds, _ = search
        met = jnp.isfinite(left.bias) & jnp.isfinite(right.bias)
        # Strides that double, until there are two sides. Then where the pieces meet, where the slope would be 0, halfway.
        beyond = jnp.where(jnp.isfinite(left.bias), left.bias + stride, right.bias - stride)
        steep = left.slope - right.slope
        meet = left.bias + (right.at(left.bias) - left.level) / steep
        even = left.bias + left.slope / steep * (right.bias - left.bias)
        between = lax.select_n(rounds % 3, meet, even, (left.bias + right.bias) / 2)
        bias = jnp.where(met, jnp.clip(between, left.bias, right.bias), beyond)
        bound = jnp.fmin(left.at(bias), right.at(bias))  # G is concave
        new = over(bias, bound)
        room = 4 * jnp.finfo(c.dtype).eps * jnp.maximum(jnp.abs(bound), jnp.abs(bias))
        # Nothing lies below the bound where both pieces hold, and nothing between neighbours.
        ends = met & (((rounds % 3 == 0) & (new.level >= bound - room)) | (right.bias - left.bias <= room))
        left, right = _either(new.slope >= 0, new, left), _either(new.slope <= 0, new, right)
        return _Search(left, right, jnp.where(met, stride, 2 * stride), rounds + 1, ends | (new.slope == 0))

    begin, guess, stride = _first(c, volume, sides, start)
    first = over(begin, guess)
    ends = [_Piece(*(jnp.full((), a, c.dtype) for a in (end, 0, slope, 0, 0))) for end, slope in ((-jnp.inf, 1), (jnp.inf, -1))]
    left, right = _either(first.slope >= 0, first, ends[0]), _either(first.slope <= 0, first, ends[1])
    search = _Search(left, right, stride, jnp.zeros((), jnp.int32), first.slope == 0)
    left, right, *_ = lax.while_loop(goes_on, narrow, search)
    return left, right, both


def _first(c, volume, sides, start):
    """Where the search for the bias starts: bias, level, stride."""
    low = [fast_min(jnp.where(side > 0, c, jnp.inf)) for side in sides]
    least_stride = 4 * jnp.finfo(c.dtype).eps * (jnp.abs(low[0]) + jnp.abs(low[1])) + jnp.finfo(c.dtype).tiny
    if start is not None:
        bias, level, stride = (jnp.asarray(a, c.dtype) for a in start)
        return bias, level, jnp.maximum(stride, least_stride)
    both = jnp.isfinite(low[0]) & jnp.isfinite(low[1])
    # The best without volume: rows far above do not touch the digits.
    return jnp.where(both, (low[1] - low[0]) / 2, 0), None, volume / pairwise_sum(sides[0] + sides[1]) + least_stride


def _solve_level(ground, volume, w, guess):
    """The edge of the water, the level by one more step of Newton's method from it, and what the rows below the edge weigh."""
    if guess is None:
        return _newton_from_top(ground, volume, w)

    def again(carry):
        _, level, *_, steps = carry
        return level, *_step(ground, volume, w, level), steps + 1

    def wrong(carry):
        _, _, mass, missing, _ = carry
        return ~((mass > 0) & (jnp.abs(missing) <= 64 * jnp.finfo(ground.dtype).eps * volume))

    # Near the level two or three steps are enough; else from all rows under water, in a loop of one round: of many levels at
    # once a `cond` would search for all of them anew.
    first = (guess, *_step(ground, volume, w, guess), jnp.zeros((), jnp.int32))
    *found, _, _ = last = lax.while_loop(lambda carry: wrong(carry) & (carry[-1] < FEW), again, first)
    anew = lambda carry: (jnp.zeros((), bool), *_newton_from_top(ground, volume, w))  # noqa: E731
    return lax.while_loop(lambda carry: carry[0], anew, (wrong(last), *found))[1:]


def _step(ground, volume, w, level):
    """The level for the rows below `level`, what these weigh, and the volume that is missing up to it."""
    below = jnp.where(ground < level, w, 0)
    mass, missing = pairwise_sum(below), volume - pairwise_sum(below * (level - ground))
    return jnp.where(mass > 0, level + missing / jnp.where(mass > 0, mass, 1), level), mass, missing


def _newton_from_top(ground, volume, w):
    """The same from all rows under water: then levels only fall, until the rows under water stay the same."""
    floor = fast_min(jnp.where(w > 0, ground, jnp.inf))

    def newton(level):
        below = jnp.where(ground < level, w, 0)
        mass = pairwise_sum(below)
        # Heights over the floor are summed: no digit cancels, however far the level is.
        height = (volume + pairwise_sum(below * (ground - floor))) / jnp.where(mass > 0, mass, 1)
        return jnp.where(mass > 0, floor + height, level), mass

    def fall(carry):
        level, before, _ = carry
        lower, mass = newton(level)
        less = mass < before  # as much is the same rows: nothing is left to do
        return jnp.where(less, lower, level), mass, less

    high = floor + (volume + pairwise_sum(w * jnp.where(w > 0, ground - floor, 0))) / pairwise_sum(w)
    infinite, tiny = (jnp.full((), a, ground.dtype) for a in (jnp.inf, jnp.finfo(ground.dtype).tiny))
    level, mass, _ = lax.while_loop(lambda carry: carry[2], fall, (high, infinite, jnp.ones((), bool)))
    # Where no row is under water, those at the level count: the edge is above them.
    above = jnp.where(jnp.abs(level) < tiny, tiny, jnp.nextafter(level, infinite))
    at_level = pairwise_sum(jnp.where(ground <= level, w, 0))
    # Once more from the level down: it may be near rows of which most have little water over them.
    found = _step(ground, volume, w, level)[0]
    return jnp.where(mass > 0, level, above), found, jnp.where(mass > 0, mass, at_level)


def _under(ground, edge, w):
    """The rows under water, or at its level where there is none under it."""
    return (ground < edge) & (w > 0)


def _lifted(ground, edge, mass, w):
    """What a level gains per unit of each row (n,), of sum 1, and per unit of volume ()."""
    return jnp.where(_under(ground, edge, w), w, 0) / mass, 1 / mass


def _middle(c, y, piece, w):
    """The middle of the biases between which the same rows are under water."""
    under, live = _under(c + y * piece.bias, piece.edge, w), w > 0
    top = lambda side, rows: fast_max(jnp.where(rows & side & live, c, -jnp.inf))  # noqa: E731
    bottom = lambda side, rows: fast_min(jnp.where(rows & side & live, c, jnp.inf))  # noqa: E731
    low = jnp.maximum(piece.level - bottom(y > 0, ~under), top(y <= 0, under) - piece.level)
    high = jnp.minimum(piece.level - top(y > 0, under), bottom(y <= 0, ~under) - piece.level)
    return (low + high) / 2


@jax.custom_jvp
def _with_derivatives(level, share, slope, responses, volume):
    """The level, whose derivatives in the responses are the shares, and in the volume the slope; both cost nothing unasked."""
    return level


@_with_derivatives.defjvp
def _derivatives(given, moved):
    level, share, slope, *_ = given
    *_, responses, volume = moved
    return level, dot(share, responses) + slope * volume
