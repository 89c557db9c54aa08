"""Which rows a step sees. Every draw is a function of (state, t): runs resume at any step, whole or in pieces."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .checks import integer
from .numerics import count, hash32, index_row, is_traced, multiply_high
from .recipe import check_scalars, register, sampler
from .types import Array, Batch, Sampler

__all__ = ["acf", "epochs", "shrinking", "uniform", "whole"]


def _no_feedback(s, index, progress):
    return s


def _per_step(one, s, t: Array, count: int) -> Array:
    """`one(s, t)` for `count` steps from t on, as rows."""
    return jax.vmap(one, in_axes=(None, 0))(s, jnp.asarray(t, jnp.int32) + jnp.arange(count, dtype=jnp.int32))


def _share(data: Batch) -> Array:
    """w_i / (mean of the positive weights): sum(share * loss) / count(share > 0) estimates the weighted mean loss."""
    positive = data.weight > 0
    mean = jnp.sum(data.weight) / jnp.maximum(jnp.sum(positive.astype(data.weight.dtype)), 1)
    return jnp.where(positive, data.weight / mean, jnp.zeros_like(data.weight))


def _check(batch_size: int) -> None:
    integer("batch_size", batch_size, 1)


@register("UniformState")
class UniformState(NamedTuple):
    """A key, and the running total of the weights in whole numbers."""

    key: Array  # ()
    total: Array  # (n,)  uint32, non-decreasing
    flat: Array  # ()    bool, all weights are 1: the total need not be searched


@register("EpochsState")
class EpochsState(NamedTuple):
    """A key, and the rows of positive weight."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # ()   int32, how many they are


@register("SubsetState")
class SubsetState(NamedTuple):
    """A key, and the rows of positive weight."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # ()   int32, how many they are


def _quanta(weight: Array) -> Array:
    """Running total of the weights in whole numbers: exact for whole weights, in 2^31ths of the sum otherwise."""
    whole = jnp.all(weight == jnp.round(weight)) & (jnp.sum(weight) < 2**24)
    fine = weight * (jnp.asarray(2.0**31, weight.dtype) * (1 - weight.shape[0] / 2**31) / jnp.sum(weight))
    # A positive weight keeps at least one quantum.
    fine = jnp.where(weight > 0, jnp.maximum(jnp.floor(fine), 1), jnp.zeros_like(fine))
    return jnp.cumsum(jnp.where(whole, weight, fine).astype(jnp.uint32), dtype=jnp.uint32)


@sampler
def uniform(batch_size: int = 1, replace: bool = True) -> Sampler:
    """Independent draws at every step.

    With replacement, rows are drawn in proportion to their weight (inverse cumulative sum, in whole numbers) and
    handed weight 1: the same key visits the same rows as on a data set in which row i stands weight_i times in a
    row. Without, a step is a uniform subset of the rows of positive weight, handed w_i / (mean positive weight).

    Args:
        batch_size: rows a step, >= 1; structure.
        replace: structure.

    Example:
        >>> import jax, jaxsvm
        >>> s = uniform(2); data = jaxsvm.dataset([[0.0], [1.0], [2.0]], [1, -1, 1])
        >>> state = s.init(jax.random.key(0), data)
        >>> bool((s.draw(state, 0, 5)[2:] == s.draw(state, 2, 3)).all())
        True

    Reference: R. W. Floyd's subset algorithm: J. Bentley, Programming pearls, CACM 30(9), 1987.
    """
    b = batch_size
    _check(b)
    if not replace:
        return _subsets(b)

    def init(key, data):
        return UniformState(key, _quanta(data.weight), jnp.all(data.weight == 1))

    def draw(s, t, count):
        bits = _per_step(lambda key, t: jax.random.bits(jax.random.fold_in(key, t), (b,), jnp.uint32), s.key, t, count)
        position = multiply_high(bits, jnp.broadcast_to(s.total[-1], bits.shape))
        search = lambda p: jnp.searchsorted(s.total, p, side="right").astype(jnp.int32)  # noqa: E731
        return jax.lax.cond(s.flat, lambda p: p.astype(jnp.int32), search, position)

    return Sampler(init, draw, lambda data: jnp.ones_like(data.weight), _no_feedback, rows=lambda n: b)


def _positive_rows(data: Batch) -> tuple[Array, Array]:
    """The rows of positive weight first, in order, and their number."""
    positive = data.weight > 0
    rows = jnp.argsort(~positive, stable=True).astype(jnp.int32)
    return rows, count(positive)


def _subsets(b: int) -> Sampler:
    def init(key, data):
        if b > data.weight.shape[0]:
            raise ValueError(f"a subset of {b} rows cannot be drawn from {data.weight.shape[0]}: lower batch_size")
        return SubsetState(key, *_positive_rows(data))

    def one(s, t):
        # Floyd: for j = m-b .. m-1, draw r from 0..j; take r, or j where r was taken before.
        bits = jax.random.bits(jax.random.fold_in(s.key, t), (b,), jnp.uint32)

        def choose(k, chosen):
            j = s.count - b + k
            r = multiply_high(bits[k], jnp.maximum(j + 1, 1).astype(jnp.uint32)).astype(jnp.int32)
            new = jnp.where(jnp.any(chosen == r), j, r)
            return chosen.at[k].set(jnp.where(j >= 0, new, -1))

        chosen = jax.lax.fori_loop(0, b, choose, jnp.full((b,), -1, jnp.int32))
        return jnp.where(chosen >= 0, s.rows[jnp.maximum(chosen, 0)], -1)

    return Sampler(init, lambda s, t, count: _per_step(one, s, t, count), _share, _no_feedback, rows=lambda n: b)


_ROUNDS = 16  # 8 leave the orders of 4 to 6 rows measurably uneven


def _shuffle(position: Array, count: Array, words: Array, n: int) -> Array:
    """The image of each position under a keyed permutation of 0 .. count-1.

    A Feistel network on a grid barely larger than `count`, walked until it lands inside: a shuffle that needs no
    memory and can be read at any place. A position is (row, column); in turn the row is rotated by a hash of the
    column and the column by a hash of the row.

    Args:
        position: (b,) uint32.
        count: () uint32, >= 1.
        words: (_ROUNDS,) uint32, the key; or (_ROUNDS, b), one for each position.
        n: at least `count`; structure.

    Reference: J. Black, P. Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002.
    """
    rows = jnp.sqrt(count.astype(jnp.float32)).astype(jnp.uint32) + 1
    columns = (count + rows - 1) // rows

    def rotate(place, other, size, word):
        bits = hash32(other + word)
        place = place + ((bits >> 16) * size + ((bits & 0xFFFF) * size >> 16) >> 16)  # multiply_high, for size below 2^16
        return jnp.where(place >= size, place - size, place)

    def rounds(x):
        row = x // columns
        column = x - row * columns
        for word in range(0, _ROUNDS, 2):
            row = rotate(row, column, rows, words[word])
            column = rotate(column, row, columns, words[word + 1])
        return row * columns + column

    def walk(first):
        """To the first place inside, or back to `first`, which cells outside do that nothing inside leads to."""
        lost = lambda x: (x >= count) & (x != first)  # noqa: E731
        return jax.lax.while_loop(lambda x: jnp.any(lost(x)), lambda x: jnp.where(lost(x), rounds(x), x), rounds(first))

    beyond = math.isqrt(n) + 2  # cells of the grid that are not meant, at most
    if words.ndim > 1 or position.shape[0] < beyond:
        return walk(position)
    # Many positions leave it through few cells: where each of these leads is walked once.
    image, back = rounds(position), walk(jnp.minimum(count + jnp.arange(beyond, dtype=jnp.uint32), rows * columns - 1))
    outside = image >= count
    return jnp.where(outside, back[jnp.where(outside, image - count, 0)], image)


@sampler
def epochs(batch_size: int = 1, shuffle: bool = True) -> Sampler:
    """Passes over the rows of positive weight, each in a new random order; the last batch of a pass is padded.

    The weight handed is w_i / (mean positive weight).

    Args:
        batch_size: rows a step, >= 1; structure.
        shuffle: False keeps the stored order; structure.

    Example:
        >>> import jax, jaxsvm
        >>> s = epochs(2); data = jaxsvm.dataset([[0.0], [1.0], [2.0]], [1, -1, 1])
        >>> first_pass = s.draw(s.init(jax.random.key(0), data), 0, 2)
        >>> sorted(first_pass.ravel().tolist())
        [-1, 0, 1, 2]
    """
    b = batch_size
    _check(b)

    def init(key, data):
        return EpochsState(key, *_positive_rows(data))

    def one(s, t):
        length = jnp.maximum(-(-s.count // b), 1)  # steps in a pass
        place = t % length * b + jnp.arange(b, dtype=jnp.int32)
        inside = place < s.count
        place = jnp.where(inside, place, jnp.zeros_like(place))
        if shuffle:
            words = jax.random.bits(jax.random.fold_in(s.key, t // length), (_ROUNDS,), jnp.uint32)
            place = _shuffle(place.astype(jnp.uint32), s.count.astype(jnp.uint32), words, s.rows.shape[0]).astype(jnp.int32)
        return jnp.where(inside, s.rows[place], -1)

    return Sampler(init, lambda s, t, count: _per_step(one, s, t, count), _share, _no_feedback, rows=lambda n: b)


@sampler
def whole() -> Sampler:
    """All rows at every step; the weight handed is w_i / (mean positive weight).

    Example:
        >>> import jaxsvm
        >>> whole().rows(150)
        150
    """

    def init(key, data):
        return jnp.zeros(data.weight.shape, jnp.int32)

    def draw(s, t, count):
        rows = jnp.arange(s.shape[0], dtype=jnp.int32)
        return jnp.broadcast_to(rows, (count, s.shape[0]))

    return Sampler(init, draw, _share, _no_feedback, rows=lambda n: n, whole=True)


@register("ShrinkingState")
class ShrinkingState(NamedTuple):
    """A key, the rows of positive weight, and those among them that are still moving."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # ()   int32, how many they are
    active: Array  # (n,)  int32, rows that moved when they were last visited first, in order
    moving: Array  # ()   int32, how many they are
    moved: Array  # (n,)  int32, what is known of each row: 1 moved, 0 did not; in this period 3 and 2
    step: Array  # ()   int32, steps told of


@sampler
def shrinking(batch_size: int = 16, rounds: int = 2) -> Sampler:
    """Passes over all rows, each followed by visits to the rows that still move: for dual methods at large C.

    One period of ceil(n/b) steps goes over the rows of positive weight in a new random order, and begins again where it
    is longer than that; the next `rounds` periods go round and round over those that a step brought progress in the last
    period that visited them, each round in a new random order. Most dual variables come to rest at a bound; they are
    looked at again in every whole pass, so nothing is lost, and the residual of a coordinate method is that of a stretch
    in which it visited every row. The weight handed is w_i / (mean positive weight). Methods that report no progress get
    whole passes.

    Args:
        batch_size: rows a step, >= 1; structure.
        rounds: periods on moving rows after each whole pass, >= 0; structure.

    Raises:
        ValueError: batch_size or rounds out of range.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20, sampler=shrinking(2), tol=1e-6)
        >>> run.converged
        True

    Differs from the paper: a row rests once its visits bring no progress that can be told from rounding (the paper: once its
        gradient points out of the box by more than the largest violation of the last pass).

    Reference: T. Joachims, Making large-scale SVM learning practical, 1999, section 4 (shrinking); C.-J. Hsieh et al.,
        A dual coordinate descent method for large-scale linear SVM, ICML 2008, section 3.2.
    """
    b = batch_size
    _check(b)
    integer("rounds", rounds, 0)

    def length(n):
        return -(-n // b)

    def init(key, data):
        rows, count = _positive_rows(data)
        zero = jnp.zeros((), jnp.int32)
        return ShrinkingState(key, rows, count, rows, zero, jnp.zeros(rows.shape, jnp.int32), zero)

    def one(s, t):
        period = length(s.rows.shape[0])
        whole = (t // period % (1 + rounds) == 0) | (s.moving == 0)
        size = jnp.where(whole, s.count, s.moving)
        place = t % period * b + jnp.arange(b, dtype=jnp.int32)
        lap = hash32((place // size).astype(jnp.uint32))
        words = jax.random.bits(jax.random.fold_in(s.key, t // period), (_ROUNDS, 1), jnp.uint32) + lap[None, :]
        place = _shuffle((place % size).astype(jnp.uint32), size.astype(jnp.uint32), words, s.rows.shape[0]).astype(jnp.int32)
        return jnp.where(whole, s.rows[place], s.active[place])

    def feedback(s, index, progress):
        n = s.rows.shape[0]
        seen = jnp.where(index >= 0, index, n).ravel()
        moved = s.moved.at[seen].max(2 + (progress > 0).astype(jnp.int32).ravel(), mode="drop")
        step = s.step + count(jnp.any(index >= 0, axis=1))

        def redraw():
            known = moved & 1
            place = jnp.where(known > 0, jnp.cumsum(known, dtype=jnp.int32) - 1, n)
            return s.active.at[place].set(jnp.arange(n, dtype=jnp.int32), mode="drop"), count(known > 0), known

        over = step % length(n) == 0
        active, moving, moved = jax.lax.cond(over, redraw, lambda: (s.active, s.moving, moved))
        return s._replace(active=active, moving=moving, moved=moved, step=step)

    draw = lambda s, t, count: _per_step(one, s, t, count)  # noqa: E731
    return Sampler(init, draw, _share, feedback, period=length, rows=lambda n: b)


@register("AcfState")
class AcfState(NamedTuple):
    """A key, the preferences, and the rows of this epoch."""

    key: Array  # ()
    preference: Array  # (n,)  in [1/20, 20]; 0 for rows of weight 0
    schedule: Array  # (n + padding,)  int32, the rows of an epoch, sorted; visited in a random order
    mean: Array  # ()  mean progress, fading
    step: Array  # ()  int32, steps told of


@sampler
def acf(batch_size: int = 1, change: float = 0.2) -> Sampler:
    """Adaptive coordinate frequencies: rows that brought more progress than the mean are visited more often.

        p_i = clip(p_i exp(change (progress / mean - 1)), 1/20, 20);   mean = (1 - 1/n) mean + progress / n

    An epoch of ceil(n/b) steps visits row i floor or ceil of n p_i / sum(p) times, in a random order: a systematic sample, so
    that the length is always the same. In the first epoch, in which nothing is known, each row of a data set without weights
    of 0 is visited once, and the mean begins as that of its progress. The weight handed is w_i / (mean positive weight).

    Args:
        batch_size: rows a step, >= 1; structure.
        change: c, how fast preferences change, >= 0; 0 leaves plain permuted epochs.

    Raises:
        ValueError: batch_size out of range, change negative or no single number.

    Differs from the paper: a schedule of fixed length by one random offset (the paper keeps an accumulator for each row, and
        the length of its epochs varies); preferences begin at 1 (the paper: at random); they stay as they are where the mean
        progress is 0.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20, sampler=acf(), tol=1e-6)
        >>> run.converged
        True

    Reference: T. Glasmachers, U. Dogan, Accelerated coordinate descent with adaptive coordinate frequencies, ACML 2013,
        algorithm 2; S. Qaadan, M. Schueler, T. Glasmachers, Dual SVM training on a budget, ICPRAM 2018, algorithm 2.
    """
    b = batch_size
    _check(b)
    check_scalars(change=change)
    if not is_traced(change) and not float(change) >= 0:
        raise ValueError(f"change must be at least 0, got {float(change):g}")
    lowest, highest = 1 / 20, 20.0

    def length(n):
        return -(-n // b)

    def init(key, data):
        n = data.weight.shape[0]
        preference = (data.weight > 0).astype(data.weight.dtype)
        zero = jnp.zeros((), jnp.int32)
        return AcfState(key, preference, _systematic(key, preference, zero, length(n) * b), jnp.zeros_like(preference[0]), zero)

    def one(s, t):
        steps, place = s.schedule.shape[0] // b, jnp.arange(b, dtype=jnp.uint32)
        words = jax.random.bits(jax.random.fold_in(s.key, t // steps), (_ROUNDS,), jnp.uint32)
        place = (t % steps * b).astype(jnp.uint32) + place
        count = s.schedule.shape[0]
        return s.schedule[_shuffle(place, jnp.uint32(count), words, count).astype(jnp.int32)]

    def feedback(s, index, progress):
        n, steps = s.preference.shape[0], s.schedule.shape[0] // b
        first = s.step < steps  # no piece crosses the end of an epoch
        rate = jnp.where(first, 0, 1 / n).astype(s.mean.dtype)
        tiny = jnp.finfo(s.mean.dtype).tiny

        def one(carry, told):
            p, mean, (row, value) = carry
            p = lax.dynamic_update_index_in_dim(p, value, row, 0)  # write, then only read: in place
            i, gain = told
            row, seen = jnp.maximum(i, 0), i >= 0
            now = index_row(p, row)
            power = jnp.minimum(change * (gain / jnp.where(mean > tiny, mean, 1) - 1), math.log(highest / lowest))
            new = jnp.clip(now * jnp.exp(power), lowest, highest)
            value = jnp.where(seen & ~first & (mean > tiny) & (now > 0), new, now)
            mean = jnp.where(seen, jnp.where(first, mean + gain / (steps * b), (1 - rate) * mean + rate * gain), mean)
            return (p, mean, (row, value)), None

        start = (s.preference, s.mean, (jnp.zeros((), jnp.int32), s.preference[0]))
        told = index.ravel(), jnp.broadcast_to(progress.astype(s.mean.dtype), index.shape).ravel()
        (p, mean, (row, value)), _ = lax.scan(one, start, told)
        p, step = p.at[row].set(value), s.step + count(jnp.any(index >= 0, axis=1))
        redraw = lambda: _systematic(s.key, p, step // steps, steps * b)  # noqa: E731
        schedule = lax.cond(step % steps == 0, redraw, lambda: s.schedule)
        return AcfState(s.key, p, schedule, mean, step)

    draw = lambda s, t, count: _per_step(one, s, t, count)  # noqa: E731
    return Sampler(init, draw, _share, feedback, period=length, rows=lambda n: b)


_UNIT = 16  # bits after the point of a row's share of an epoch


def _systematic(key: Array, preference: Array, epoch: Array, total: int) -> Array:
    """`total` row numbers, sorted: row i stands there floor or ceil of total p_i / sum(p) times.

    The shares are laid end to end, and every place at a whole distance from one offset takes the row that it falls on.
    Whole numbers that wrap around keep this exact for any number of rows. Offsets of successive epochs are spread evenly.
    """
    n = preference.shape[0]
    share, drawn = preference * (total / jnp.sum(preference)), preference > 0
    whole = jnp.floor(share)
    rest = jnp.round((share - whole) * 2**_UNIT).astype(jnp.uint32)  # whole visits apart: 2^16 of them would wrap, too
    whole = whole.astype(jnp.int32)
    left = jnp.asarray(total, jnp.int32) - jnp.sum(whole, dtype=jnp.int32)
    missing = ((left.astype(jnp.uint32) << _UNIT) - jnp.sum(rest, dtype=jnp.uint32)).astype(jnp.int32)
    # What rounding left over is spread over the rows.
    rows, rank = count(drawn), jnp.cumsum(drawn, dtype=jnp.int32)
    mend = missing // rows + (rank <= missing % rows).astype(jnp.int32)
    rest = rest + jnp.where(drawn, mend, 0).astype(jnp.uint32)
    step = jnp.uint32(2654435769) * epoch.astype(jnp.uint32)  # 2^32 / golden ratio
    offset = (jax.random.bits(key, (), jnp.uint32) + step) >> (32 - _UNIT)
    ends = jnp.cumsum(rest, dtype=jnp.uint32) + offset
    more = (ends >> _UNIT) - (ends - rest >> _UNIT) << (32 - _UNIT)  # modulo 2^16, and with its sign
    times = whole + (more.astype(jnp.int32) >> (32 - _UNIT))
    return jnp.repeat(jnp.arange(n, dtype=jnp.int32), times, total_repeat_length=total)
