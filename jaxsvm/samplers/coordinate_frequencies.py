"""Adaptive coordinate frequencies: rows drawn in proportion to their recent progress."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._node import between, node, register
from ..numerics import count, index_row
from ..types import Array, Batch
from .base import Batches, known_rows
from .permutation import ROUNDS, shuffled

LOWEST, HIGHEST = 1 / 20, 20.0  # preferences


@register("AcfState")
class AcfState(NamedTuple):
    """A key, the preferences, and the schedule of the current epoch."""

    key: Array  # ()
    preference: Array  # (n,)  in [1/20, 20]; 0 for rows of weight 0
    # (n + padding,)  int32, the rows of an epoch, sorted; visited in a random order
    schedule: Array
    mean: Array  # ()  mean progress, exponentially weighted
    step: Array  # ()  int32, steps with feedback so far
    rows: Array  # ()  int32, the rows without padding


@node
class acf(Batches):
    """The sampler of adaptive coordinate frequencies.

    Rows that make more progress than the mean are visited more often:

        p_i = clip(p_i exp(change (progress / mean - 1)), 1/20, 20);
        mean = (1 - 1/n) mean + progress / n

    An epoch of ceil(n/b) steps visits row i floor or ceil of n p_i / sum(p) times, in a random
    order. The schedule is a systematic sample, so that its length is constant. The first epoch
    visits each row once if no weight is 0, and the initial mean is that of its progress. A row has
    weight w_i / (mean positive weight) in the batch.

    Args:
        batch_size: rows per step, >= 1; structure.
        change: c, the rate at which preferences change, >= 0; 0 gives plain permuted epochs.

    Returns:
        A sampler that uses the progress reported by each step.

    Raises:
        ValueError: batch_size out of range; change negative or not a scalar.

    Differs from the paper: the schedule has fixed length and one random offset (the paper keeps an
        accumulator for each row, and its epochs vary in length). Preferences start at 1 (the paper:
        at random). They do not change while the mean progress is 0.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20,
        ...     sampler=jaxsvm.samplers.acf(), tol=1e-6)
        >>> result.converged
        True

    Reference: T. Glasmachers, U. Dogan, Accelerated coordinate descent with adaptive coordinate
        frequencies, ACML 2013, algorithm 2; S. Qaadan, M. Schueler, T. Glasmachers, Dual SVM
        training on a budget, ICPRAM 2018, algorithm 2.
    """

    batch_size: int = between(1, default=1)
    change: float = between(0.0, default=0.2)

    def period(self, n: int) -> int:
        return -(-n // self.batch_size)

    def init(self, key: Array, data: Batch) -> AcfState:
        preference = (data.weight > 0).astype(data.weight.dtype)
        zero = jnp.zeros((), jnp.int32)
        rows = known_rows(data)
        schedule = _systematic(key, preference, zero, rows, self.batch_size)
        return AcfState(key, preference, schedule, jnp.zeros_like(preference[0]), zero, rows)

    def draw_one(self, s: AcfState, t: Array) -> Array:
        b, period = self.batch_size, -(-s.rows // self.batch_size)
        epoch, step = t // period, t % period
        words = jax.random.bits(jax.random.fold_in(s.key, epoch), (ROUNDS,), jnp.uint32)
        position = step * b + jnp.arange(b, dtype=jnp.int32)
        return s.schedule[shuffled(position, period * b, words, s.schedule.shape[0])]

    def feedback(self, s: AcfState, index: Array, progress: Array) -> AcfState:
        b, steps = self.batch_size, -(-s.rows // self.batch_size)
        first_epoch = s.step < steps  # feedback never spans two epochs
        rate = jnp.where(first_epoch, 0, 1 / s.rows.astype(s.mean.dtype))
        tiny, length = jnp.finfo(s.mean.dtype).tiny, (steps * b).astype(s.mean.dtype)

        def visit(carry, item):
            p, mean, (row, value) = carry
            # the pending write, then only reads: XLA updates in place
            p = lax.dynamic_update_index_in_dim(p, value, row, 0)
            i, gain = item
            row, visited = jnp.maximum(i, 0), i >= 0
            old = index_row(p, row)
            rise = self.change * (gain / jnp.where(mean > tiny, mean, 1) - 1)
            power = jnp.minimum(rise, math.log(HIGHEST / LOWEST))
            new = jnp.clip(old * jnp.exp(power), LOWEST, HIGHEST)
            value = jnp.where(visited & ~first_epoch & (mean > tiny) & (old > 0), new, old)
            added, moved = mean + gain / length, (1 - rate) * mean + rate * gain
            mean = jnp.where(visited, jnp.where(first_epoch, added, moved), mean)
            return (p, mean, (row, value)), None

        start = (s.preference, s.mean, (jnp.zeros((), jnp.int32), s.preference[0]))
        items = index.ravel(), jnp.broadcast_to(progress.astype(s.mean.dtype), index.shape).ravel()
        (p, mean, (row, value)), _ = lax.scan(visit, start, items)
        p, step = p.at[row].set(value), s.step + count(jnp.any(index >= 0, axis=1))
        redraw = lambda: _systematic(s.key, p, step // steps, s.rows, b)
        schedule = lax.cond(step % steps == 0, redraw, lambda: s.schedule)
        return AcfState(s.key, p, schedule, mean, step, s.rows)


_UNIT = 16  # fractional bits of a row's visits per epoch


def _systematic(key: Array, preference: Array, epoch: Array, rows: Array, b: int) -> Array:
    """A systematic sample of row numbers for an epoch of steps of `b` rows, sorted.

    Of `total` numbers row i occurs floor or ceil of total p_i / sum(p) times. The expected counts
    are cumulated; row i is drawn once for each point offset + k, k an integer, in its interval.
    Fixed-point arithmetic modulo 2^32 keeps this exact for any number of rows. Offsets of
    successive epochs are spread evenly.
    """
    n, total = preference.shape[0], -(-rows // b) * b
    share = total.astype(preference.dtype) / jnp.sum(preference)
    expected, positive = preference * share, preference > 0
    integer_part = jnp.floor(expected)
    # without the integer part: 2^16 overflows
    fraction = jnp.round((expected - integer_part) * 2**_UNIT).astype(jnp.uint32)
    integer_part = integer_part.astype(jnp.int32)
    remaining = total - jnp.sum(integer_part, dtype=jnp.int32)
    deficit = (remaining.astype(jnp.uint32) << _UNIT) - jnp.sum(fraction, dtype=jnp.uint32)
    deficit = deficit.astype(jnp.int32)
    # The rounding error of the sum is distributed over the rows.
    number, rank = count(positive), jnp.cumsum(positive, dtype=jnp.int32)
    correction = deficit // number + (rank <= deficit % number).astype(jnp.int32)
    fraction = fraction + jnp.where(positive, correction, 0).astype(jnp.uint32)
    step = jnp.uint32(2654435769) * epoch.astype(jnp.uint32)  # 2^32 / golden ratio
    offset = (jax.random.bits(jax.random.clone(key), (), jnp.uint32) + step) >> (32 - _UNIT)
    ends = jnp.cumsum(fraction, dtype=jnp.uint32) + offset
    # modulo 2^16, and with its sign
    extra = (ends >> _UNIT) - (ends - fraction >> _UNIT) << (32 - _UNIT)
    repeats = integer_part + (extra.astype(jnp.int32) >> (32 - _UNIT))
    return jnp.repeat(jnp.arange(n, dtype=jnp.int32), repeats, total_repeat_length=-(-n // b) * b)
