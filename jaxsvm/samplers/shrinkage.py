"""Epochs over the rows at which the last rounds gained."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..numerics import count
from ..types import Array, Batch
from .base import Batches, known_rows, positive_rows
from .permutation import ROUNDS, in_rounds


@register("ShrinkingState")
class ShrinkingState(NamedTuple):
    """A key, the rows of positive weight, and the active ones.

    A row is active if its last visit made progress.
    """

    key: Array  # ()
    rows: Array  # (n,)  int32, rows of positive weight first, in order
    count: Array  # type: ignore[assignment]  # ()   int32, how many they are
    active: Array  # (n,)  int32, active rows first, in order
    n_active: Array  # ()   int32, the number of active rows
    # Progress of each row at its last visit: 1 yes, 0 no; 3 and 2 for a visit in this period.
    progressed: Array  # (n,)  int32
    step: Array  # ()   int32, steps with feedback so far
    period: Array  # ()   int32, the steps of a period


@node
class shrinking(Batches):
    """Passes over all rows, each followed by passes over active rows only.

    They are for dual methods at large C.

    A period is ceil(n/b) steps. One period visits all rows of positive weight in a new random
    order. The next `rounds` periods visit the active rows only, repeatedly, each time in a new
    random order; a row is active if its last visit made progress. Most dual variables stay at a
    bound, so that the active rows are a small part. Every full pass visits the others again, so
    that no row is dropped for good. The residual of a coordinate method always covers a visit to
    every row. A row has weight w_i / (mean positive weight) in the batch. For methods that report
    no progress, every period is a full pass.

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
        >>> result = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=20,
        ...     sampler=jaxsvm.samplers.shrinking(2), tol=1e-6)
        >>> result.converged
        True

    Differs from the paper: a row becomes inactive when a visit makes no progress above rounding
        (the paper: when its gradient points out of the box by more than the largest violation of
        the last pass).

    Reference: T. Joachims, Making large-scale SVM learning practical, 1999, section 4 (shrinking);
        C.-J. Hsieh et al., A dual coordinate descent method for large-scale linear SVM, ICML 2008,
        section 3.2.
    """

    batch_size: int = between(1, default=16)
    rounds: int = between(0, default=2)

    def period(self, n: int) -> int:
        return -(-n // self.batch_size)

    def init(self, key: Array, data: Batch) -> ShrinkingState:
        rows, count = positive_rows(data)
        zero, period = jnp.zeros((), jnp.int32), -(-known_rows(data) // self.batch_size)
        progressed = jnp.zeros(rows.shape, jnp.int32)
        return ShrinkingState(key, rows, count, rows, zero, progressed, zero, period)

    def draw_one(self, s: ShrinkingState, t: Array) -> Array:
        b, period = self.batch_size, s.period
        full_pass = (t // period % (1 + self.rounds) == 0) | (s.n_active == 0)
        size = jnp.where(full_pass, s.count, s.n_active)
        position = t % period * b + jnp.arange(b, dtype=jnp.int32)
        key = jax.random.fold_in(s.key, t // period)
        place = in_rounds(key, position, size, ROUNDS, s.rows.shape[0])
        return jnp.where(full_pass, s.rows[place], s.active[place])

    def feedback(self, s: ShrinkingState, index: Array, progress: Array) -> ShrinkingState:
        n = s.rows.shape[0]
        visited = jnp.where(index >= 0, index, n).ravel()
        gained = 2 + (progress > 0).astype(jnp.int32).ravel()
        progressed = s.progressed.at[visited].max(gained, mode="drop")
        step = s.step + count(jnp.any(index >= 0, axis=1))

        def redraw():
            active_now = progressed & 1
            position = jnp.where(active_now > 0, jnp.cumsum(active_now, dtype=jnp.int32) - 1, n)
            active = s.active.at[position].set(jnp.arange(n, dtype=jnp.int32), mode="drop")
            return active, count(active_now > 0), active_now

        period_ends = step % s.period == 0
        keep = lambda: (s.active, s.n_active, progressed)
        active, n_active, progressed = jax.lax.cond(period_ends, redraw, keep)
        return s._replace(active=active, n_active=n_active, progressed=progressed, step=step)
