"""Samplers: the rows of each step. Every draw is a function of (state, t), so that a run can resume at any step."""

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
    """`one(s, t)` for the steps t .. t + count - 1, stacked."""
    return jax.vmap(one, in_axes=(None, 0))(s, jnp.asarray(t, jnp.int32) + jnp.arange(count, dtype=jnp.int32))


def _share(data: Batch) -> Array:
    """w_i / (mean positive weight), (n,): sum(share * loss) / count(share > 0) estimates the weighted mean loss."""
    positive = data.weight > 0
    mean = jnp.sum(data.weight) / jnp.maximum(jnp.sum(positive.astype(data.weight.dtype)), 1)
    return jnp.where(positive, data.weight / mean, jnp.zeros_like(data.weight))


def _check(batch_size: int) -> None:
    integer("batch_size", batch_size, 1)


@register("UniformState")
class UniformState(NamedTuple):
    """A key, and the cumulative sum of the weights as integers."""

    key: Array  # ()
    total: Array  # (n,)  uint32, non-decreasing
    flat: Array  # ()    bool, all weights are 1: no search in the cumulative sum is needed


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
    """The cumulative sum of the weights as integers (n,): exact for integer weights, else in units of 2^-31 of the sum."""
    integers = jnp.all(weight == jnp.round(weight)) & (jnp.sum(weight) < 2**24)
    units = weight * (jnp.asarray(2.0**31, weight.dtype) * (1 - weight.shape[0] / 2**31) / jnp.sum(weight))
    # A positive weight is at least one unit.
    units = jnp.where(weight > 0, jnp.maximum(jnp.floor(units), 1), jnp.zeros_like(units))
    return jnp.cumsum(jnp.where(integers, weight, units).astype(jnp.uint32), dtype=jnp.uint32)


@sampler
def uniform(batch_size: int = 1, replace: bool = True) -> Sampler:
    """Independent uniform draws at every step.

    With replacement, rows are drawn in proportion to their weight, by inversion of an integer cumulative sum, and have weight
    1 in the batch. The same key then draws the same rows as on a data set that repeats row i weight_i times in succession.
    Without replacement, a step is a uniform subset of the rows of positive weight. Their weight in the batch is
    w_i / (mean positive weight).

    Args:
        batch_size: rows per step, >= 1; structure.
        replace: draw with replacement; structure.

    Returns:
        A sampler.

    Raises:
        ValueError: batch_size below 1 or not an integer; from `init`, a subset of more rows than the data has.

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
        search = lambda p: jnp.searchsorted(s.total, p, side="right").astype(jnp.int32)
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

    def draw_subset(s, t):
        # Floyd: for j = m-b .. m-1, draw r from 0..j; take r, or j if r is in the subset already.
        bits = jax.random.bits(jax.random.fold_in(s.key, t), (b,), jnp.uint32)

        def draw_row(k, subset):
            upper = s.count - b + k
            candidate = multiply_high(bits[k], jnp.maximum(upper + 1, 1).astype(jnp.uint32)).astype(jnp.int32)
            new = jnp.where(jnp.any(subset == candidate), upper, candidate)
            return subset.at[k].set(jnp.where(upper >= 0, new, -1))

        subset = jax.lax.fori_loop(0, b, draw_row, jnp.full((b,), -1, jnp.int32))
        return jnp.where(subset >= 0, s.rows[jnp.maximum(subset, 0)], -1)

    return Sampler(init, lambda s, t, count: _per_step(draw_subset, s, t, count), _share, _no_feedback, rows=lambda n: b)


_ROUNDS = 16  # 8 leave the orders of 4 to 6 rows measurably uneven


def _shuffle(position: Array, count: Array, words: Array, n: int) -> Array:
    """The image of each position under a keyed permutation of 0 .. count-1.

    A Feistel network permutes a grid slightly larger than `count`; it is applied again until the image is below `count` (cycle
    walking). This shuffle needs no memory, and any position can be evaluated alone. A position is (row, column); each round
    rotates the row by a hash of the column, or the column by a hash of the row.

    Args:
        position: (b,) uint32.
        count: () uint32, >= 1.
        words: (_ROUNDS,) uint32, the key; or (_ROUNDS, b), one for each position.
        n: at least `count`; structure.

    Reference: J. Black, P. Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002.
    """
    rows = jnp.sqrt(count.astype(jnp.float32)).astype(jnp.uint32) + 1
    columns = (count + rows - 1) // rows

    def rotate(index, key_part, size, word):
        bits = hash32(key_part + word)
        index = index + ((bits >> 16) * size + ((bits & 0xFFFF) * size >> 16) >> 16)  # multiply_high, for size below 2^16
        return jnp.where(index >= size, index - size, index)

    def rounds(x):
        row = x // columns
        column = x - row * columns
        for word in range(0, _ROUNDS, 2):
            row = rotate(row, column, rows, words[word])
            column = rotate(column, row, columns, words[word + 1])
        return row * columns + column

    def walk(start):
        """The first image below `count`; or `start` itself, for a cycle of cells that never goes below `count`."""
        beyond = lambda x: (x >= count) & (x != start)
        return jax.lax.while_loop(lambda x: jnp.any(beyond(x)), lambda x: jnp.where(beyond(x), rounds(x), x), rounds(start))

    extra = math.isqrt(n) + 2  # an upper bound on the grid cells at or above `count`
    if words.ndim > 1 or position.shape[0] < extra:
        return walk(position)
    # At most `extra` cells lie outside: each of them is walked once, and the images of all positions are looked up.
    image, image_of_extra = rounds(position), walk(jnp.minimum(count + jnp.arange(extra, dtype=jnp.uint32), rows * columns - 1))
    outside = image >= count
    return jnp.where(outside, image_of_extra[jnp.where(outside, image - count, 0)], image)


@sampler
def epochs(batch_size: int = 1, shuffle: bool = True) -> Sampler:
    """Passes over the rows of positive weight, each in a new random order; the last batch of a pass is padded.

    A row has weight w_i / (mean positive weight) in the batch.

    Args:
        batch_size: rows per step, >= 1; structure.
        shuffle: False keeps the stored order; structure.

    Returns:
        A sampler.

    Raises:
        ValueError: batch_size below 1 or not an integer.

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

    def draw_rows(s, t):
        steps_per_pass = jnp.maximum(-(-s.count // b), 1)  # steps in a pass
        position = t % steps_per_pass * b + jnp.arange(b, dtype=jnp.int32)
        is_row = position < s.count
        position = jnp.where(is_row, position, jnp.zeros_like(position))
        if shuffle:
            words = jax.random.bits(jax.random.fold_in(s.key, t // steps_per_pass), (_ROUNDS,), jnp.uint32)
            position = _shuffle(position.astype(jnp.uint32), s.count.astype(jnp.uint32), words, s.rows.shape[0]).astype(jnp.int32)
        return jnp.where(is_row, s.rows[position], -1)

    return Sampler(init, lambda s, t, count: _per_step(draw_rows, s, t, count), _share, _no_feedback, rows=lambda n: b)


@sampler
def whole() -> Sampler:
    """All rows at every step, with weight w_i / (mean positive weight).

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
    """A key, the rows of positive weight, and the active ones: those whose last visit made progress."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # ()   int32, how many they are
    active: Array  # (n,)  int32, active rows first, in order
    moving: Array  # ()   int32, the number of active rows
    moved: Array  # (n,)  int32, progress of each row at its last visit: 1 yes, 0 no; 3 and 2 for a visit in this period
    step: Array  # ()   int32, steps with feedback so far


@sampler
def shrinking(batch_size: int = 16, rounds: int = 2) -> Sampler:
    """Passes over all rows, each followed by passes over active rows only: for dual methods at large C.

    A period is ceil(n/b) steps. One period visits all rows of positive weight in a new random order. The next `rounds` periods
    visit the active rows only, repeatedly, each time in a new random order; a row is active if its last visit made progress.
    Most dual variables stay at a bound, so that the active rows are a small part. Every full pass visits the others again, so
    that no row is dropped for good. The residual of a coordinate method always covers a visit to every row. A row has weight
    w_i / (mean positive weight) in the batch. For methods that report no progress, every period is a full pass.

    Args:
        batch_size: rows per step, >= 1; structure.
        rounds: periods on active rows after each full pass, >= 0; structure.

    Returns:
        A sampler that uses the progress reported by each step.

    Raises:
        ValueError: batch_size or rounds out of range.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20, sampler=shrinking(2), tol=1e-6)
        >>> run.converged
        True

    Differs from the paper: a row becomes inactive when a visit makes no progress above rounding (the paper: when its gradient
        points out of the box by more than the largest violation of the last pass).

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

    def draw_rows(s, t):
        period = length(s.rows.shape[0])
        full_pass = (t // period % (1 + rounds) == 0) | (s.moving == 0)
        size = jnp.where(full_pass, s.count, s.moving)
        position = t % period * b + jnp.arange(b, dtype=jnp.int32)
        round_hash = hash32((position // size).astype(jnp.uint32))
        words = jax.random.bits(jax.random.fold_in(s.key, t // period), (_ROUNDS, 1), jnp.uint32) + round_hash[None, :]
        place = _shuffle((position % size).astype(jnp.uint32), size.astype(jnp.uint32), words, s.rows.shape[0]).astype(jnp.int32)
        return jnp.where(full_pass, s.rows[place], s.active[place])

    def feedback(s, index, progress):
        n = s.rows.shape[0]
        visited = jnp.where(index >= 0, index, n).ravel()
        progressed = s.moved.at[visited].max(2 + (progress > 0).astype(jnp.int32).ravel(), mode="drop")
        step = s.step + count(jnp.any(index >= 0, axis=1))

        def redraw():
            active_now = progressed & 1
            position = jnp.where(active_now > 0, jnp.cumsum(active_now, dtype=jnp.int32) - 1, n)
            return s.active.at[position].set(jnp.arange(n, dtype=jnp.int32), mode="drop"), count(active_now > 0), active_now

        period_ends = step % length(n) == 0
        active, moving, progressed = jax.lax.cond(period_ends, redraw, lambda: (s.active, s.moving, progressed))
        return s._replace(active=active, moving=moving, moved=progressed, step=step)

    draw = lambda s, t, count: _per_step(draw_rows, s, t, count)
    return Sampler(init, draw, _share, feedback, period=length, rows=lambda n: b)


@register("AcfState")
class AcfState(NamedTuple):
    """A key, the preferences, and the schedule of the current epoch."""

    key: Array  # ()
    preference: Array  # (n,)  in [1/20, 20]; 0 for rows of weight 0
    schedule: Array  # (n + padding,)  int32, the rows of an epoch, sorted; visited in a random order
    mean: Array  # ()  mean progress, exponentially weighted
    step: Array  # ()  int32, steps with feedback so far


@sampler
def acf(batch_size: int = 1, change: float = 0.2) -> Sampler:
    """Adaptive coordinate frequencies: rows that make more progress than the mean are visited more often.

        p_i = clip(p_i exp(change (progress / mean - 1)), 1/20, 20);   mean = (1 - 1/n) mean + progress / n

    An epoch of ceil(n/b) steps visits row i floor or ceil of n p_i / sum(p) times, in a random order. The schedule is a
    systematic sample, so that its length is constant. The first epoch visits each row once if no weight is 0, and the initial
    mean is that of its progress. A row has weight w_i / (mean positive weight) in the batch.

    Args:
        batch_size: rows per step, >= 1; structure.
        change: c, the rate at which preferences change, >= 0; 0 gives plain permuted epochs.

    Returns:
        A sampler that uses the progress reported by each step.

    Raises:
        ValueError: batch_size out of range; change negative or not a scalar.

    Differs from the paper: the schedule has fixed length and one random offset (the paper keeps an accumulator for each row, and
        its epochs vary in length). Preferences start at 1 (the paper: at random). They do not change while the mean progress
        is 0.

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

    def draw_rows(s, t):
        steps, position = s.schedule.shape[0] // b, jnp.arange(b, dtype=jnp.uint32)
        words = jax.random.bits(jax.random.fold_in(s.key, t // steps), (_ROUNDS,), jnp.uint32)
        position = (t % steps * b).astype(jnp.uint32) + position
        count = s.schedule.shape[0]
        return s.schedule[_shuffle(position, jnp.uint32(count), words, count).astype(jnp.int32)]

    def feedback(s, index, progress):
        n, steps = s.preference.shape[0], s.schedule.shape[0] // b
        first_epoch = s.step < steps  # feedback never spans two epochs
        rate = jnp.where(first_epoch, 0, 1 / n).astype(s.mean.dtype)
        tiny = jnp.finfo(s.mean.dtype).tiny

        def visit(carry, item):
            p, mean, (row, value) = carry
            p = lax.dynamic_update_index_in_dim(p, value, row, 0)  # the pending write, then only reads: XLA updates in place
            i, gain = item
            row, visited = jnp.maximum(i, 0), i >= 0
            old = index_row(p, row)
            power = jnp.minimum(change * (gain / jnp.where(mean > tiny, mean, 1) - 1), math.log(highest / lowest))
            new = jnp.clip(old * jnp.exp(power), lowest, highest)
            value = jnp.where(visited & ~first_epoch & (mean > tiny) & (old > 0), new, old)
            mean = jnp.where(visited, jnp.where(first_epoch, mean + gain / (steps * b), (1 - rate) * mean + rate * gain), mean)
            return (p, mean, (row, value)), None

        start = (s.preference, s.mean, (jnp.zeros((), jnp.int32), s.preference[0]))
        items = index.ravel(), jnp.broadcast_to(progress.astype(s.mean.dtype), index.shape).ravel()
        (p, mean, (row, value)), _ = lax.scan(visit, start, items)
        p, step = p.at[row].set(value), s.step + count(jnp.any(index >= 0, axis=1))
        redraw = lambda: _systematic(s.key, p, step // steps, steps * b)
        schedule = lax.cond(step % steps == 0, redraw, lambda: s.schedule)
        return AcfState(s.key, p, schedule, mean, step)

    draw = lambda s, t, count: _per_step(draw_rows, s, t, count)
    return Sampler(init, draw, _share, feedback, period=length, rows=lambda n: b)


_UNIT = 16  # fractional bits of a row's visits per epoch


def _systematic(key: Array, preference: Array, epoch: Array, total: int) -> Array:
    """A systematic sample of `total` row numbers, sorted: row i occurs floor or ceil of total p_i / sum(p) times.

    The expected counts are cumulated; row i is drawn once for each point offset + k, k an integer, in its interval. Fixed-point
    arithmetic modulo 2^32 keeps this exact for any number of rows. Offsets of successive epochs are spread evenly.
    """
    n = preference.shape[0]
    expected, positive = preference * (total / jnp.sum(preference)), preference > 0
    integer_part = jnp.floor(expected)
    fraction = jnp.round((expected - integer_part) * 2**_UNIT).astype(jnp.uint32)  # without the integer part: 2^16 overflows
    integer_part = integer_part.astype(jnp.int32)
    remaining = jnp.asarray(total, jnp.int32) - jnp.sum(integer_part, dtype=jnp.int32)
    deficit = ((remaining.astype(jnp.uint32) << _UNIT) - jnp.sum(fraction, dtype=jnp.uint32)).astype(jnp.int32)
    # The rounding error of the sum is distributed over the rows.
    rows, rank = count(positive), jnp.cumsum(positive, dtype=jnp.int32)
    correction = deficit // rows + (rank <= deficit % rows).astype(jnp.int32)
    fraction = fraction + jnp.where(positive, correction, 0).astype(jnp.uint32)
    step = jnp.uint32(2654435769) * epoch.astype(jnp.uint32)  # 2^32 / golden ratio
    offset = (jax.random.bits(key, (), jnp.uint32) + step) >> (32 - _UNIT)
    ends = jnp.cumsum(fraction, dtype=jnp.uint32) + offset
    extra = (ends >> _UNIT) - (ends - fraction >> _UNIT) << (32 - _UNIT)  # modulo 2^16, and with its sign
    repeats = integer_part + (extra.astype(jnp.int32) >> (32 - _UNIT))
    return jnp.repeat(jnp.arange(n, dtype=jnp.int32), repeats, total_repeat_length=total)
