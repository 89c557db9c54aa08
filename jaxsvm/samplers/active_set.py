"""Passes over the rows that still move, and over all rows in between."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..numerics import count
from ..types import Array, Batch
from .base import Batches
from .permutation import in_rounds

PERIOD = 4096  # rows between two updates of the counters
WORDS = 4  # rounds of the shuffle, of rows that are in random order already


@register("ActiveRowsState")
class ActiveRowsState(NamedTuple):
    """A key, the rows of positive weight, the active ones, and the counters of both."""

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, these in random order
    count: Array  # type: ignore[assignment]  # ()   int32, how many they are
    active: Array  # (n,)  int32, active rows first
    n_active: Array  # ()   int32, the number of active rows
    idle: Array  # (n,)  int32, visits of each row without progress since its last progress
    step: Array  # ()   int32, steps with feedback so far
    start: Array  # ()   int32, first step of the current pass
    passes: Array  # ()   int32, number of the current pass, from 0
    full: Array  # ()   bool, whether the current pass is over all rows
    gain: Array  # ()   progress in the current pass
    full_gain: Array  # ()   progress in the last pass over all rows
    spent: Array  # ()   int32, visits of active rows since that pass


@node
class active_rows(Batches):
    """Passes over the active rows, each in a random order; passes over all rows in between.

    They are for dual methods, most of whose variables stay at a bound. A row is active until
    `patience` visits in a row made no progress, and again from a visit with progress on. A pass
    over all rows follows once passes over active rows gained less for each visit than the last
    pass over all rows did, or had visited `effort` n rows. Thus no row is dropped for good, and
    the residual of a coordinate method always covers a visit to every row.

    Counters are updated once in min(n, 4,096) rows, so that passes over fewer rows are repeated.
    A row has weight w_i / (mean positive weight) in the batch. For methods that report no
    progress, every pass is over all rows.

    Args:
        batch_size: rows per step, >= 1; structure.
        patience: visits without progress after which a row is left out, >= 1; structure.
        effort: visits of active rows between two passes over all rows, per row, >= 1; structure.

    Returns:
        A sampler that uses the progress reported by each step.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20,
        ...     sampler=jaxsvm.samplers.active_rows(), tol=1e-6)
        >>> result.converged
        True

    Differs from the paper: all rows are visited again by the gain per visit, not for a share of
        the time; the visits end by the residual of all rows, not of active ones.

    Reference: T. Glasmachers, Recipe for fast large-scale SVM training: polishing, parallelism,
        and more RAM!, 2022, section 3 (shrinking); I. Steinwart, D. Hush, C. Scovel, Training SVMs
        without offset, JMLR 12, 2011.
    """

    batch_size: int = between(1, default=1)
    patience: int = between(1, default=2)
    effort: int = between(1, default=4)

    def period(self, n: int) -> int:
        return -(-min(n, PERIOD) // self.batch_size)

    def init(self, key: Array, data: Batch) -> ActiveRowsState:
        order_key, key = jax.random.split(key)
        positive = data.weight > 0
        order = jax.random.bits(order_key, positive.shape, jnp.uint32) >> 1
        order = jnp.where(positive, order, jnp.uint32(2**32 - 1))
        rows, n_rows = jnp.argsort(order).astype(jnp.int32), count(positive)
        zero, gain = jnp.zeros((), jnp.int32), jnp.zeros((), data.weight.dtype)
        idle, pass_0 = jnp.zeros(rows.shape, jnp.int32), (zero, zero, zero, jnp.ones((), bool))
        return ActiveRowsState(key, rows, n_rows, rows, zero, idle, *pass_0, gain, gain, zero)

    def draw_one(self, s: ActiveRowsState, t: Array) -> Array:
        b, size = self.batch_size, pass_size(s)
        position = (t - s.start) * b + jnp.arange(b, dtype=jnp.int32)
        key = jax.random.fold_in(s.key, s.passes)
        place = in_rounds(key, position, size, WORDS, s.rows.shape[0])
        return jnp.where(s.full, s.rows[place], s.active[place])

    def feedback(self, s: ActiveRowsState, index: Array, progress: Array) -> ActiveRowsState:
        n = s.rows.shape[0]
        visited = jnp.where(index >= 0, index, n).ravel()
        gained = jnp.where((index >= 0) & (progress > 0), index, n).ravel()
        idle = s.idle.at[visited].add(1, mode="drop").at[gained].set(0, mode="drop")
        gain = s.gain + jnp.sum(jnp.where(index >= 0, progress, 0)).astype(s.gain.dtype)
        step = s.step + count(jnp.any(index >= 0, axis=1))
        visits = (step - s.start) * self.batch_size
        ends = visits >= pass_size(s)

        def compact():
            is_active = (idle[s.rows] < self.patience) & (jnp.arange(n, dtype=jnp.int32) < s.count)
            target = jnp.where(is_active, jnp.cumsum(is_active, dtype=jnp.int32) - 1, n)
            return s.active.at[target].set(s.rows, mode="drop"), count(is_active)

        active, n_active = jax.lax.cond(ends, compact, lambda: (s.active, s.n_active))
        spent = jnp.where(s.full, 0, s.spent + visits)
        full_gain = jnp.where(s.full, gain, s.full_gain)
        per_visit = lambda gain, visits: gain / jnp.maximum(visits, 1).astype(gain.dtype)
        poor = per_visit(gain, visits) < per_visit(full_gain, s.count)
        full = (n_active == 0) | (~s.full & (poor | (spent // self.effort >= s.count)))
        at_end = lambda new, old: jnp.where(ends, new, old)
        return s._replace(
            active=active,
            n_active=n_active,
            idle=idle,
            step=step,
            start=at_end(step, s.start),
            passes=s.passes + ends.astype(jnp.int32),
            full=at_end(full, s.full),
            gain=at_end(jnp.zeros_like(gain), gain),
            full_gain=at_end(full_gain, s.full_gain),
            spent=at_end(spent, s.spent),
        )


def pass_size(s: ActiveRowsState) -> Array:
    """The rows of the current pass, at least 1."""
    return jnp.maximum(jnp.where(s.full, s.count, s.n_active), 1)
