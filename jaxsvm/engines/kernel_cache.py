"""A first-in, first-out cache of kernel rows within a memory limit.

It is for solvers that choose their own rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ..kernels import Kernel
from ..numerics import accum_dtype, count, index_row, two_sum
from ..types import Array


class Rows(NamedTuple):
    """Cached rows of the kernel matrix, each in a slot.

    Once all slots are in use, a new row overwrites the oldest.
    """

    value: Array  # (slots, n)
    slot: Array  # (n,)  int32, the slot of row i; -1: not cached
    owner: Array  # (slots,)  int32, the row in each slot; -1: empty
    # ()  int32, the slot that is written next; a product that would pass the end starts at slot 0
    next: Array
    n_computed: Array  # ()  int32, rows computed so far


CHUNK = 64  # rows of a kernel product
GROUP = 8  # cached rows that are summed without compensation
PART = 16  # the same of computed rows


def num_slots(x: Array, memory: float) -> int:
    """The number of slots for kernel rows within `memory` bytes, besides one chunk.

    It is the number of rows that fit, at most n, rounded up to whole chunks, plus one chunk. The
    last chunk is for the slots that a product writes after its last row. With room for n rows, no
    slot is reused.
    """
    n = x.shape[0]
    capacity = int(min(memory, 2**62) // (n * jnp.dtype(accum_dtype(x)).itemsize))
    return -(-min(capacity, n) // CHUNK) * CHUNK + CHUNK


def empty(x: Array, slots: int) -> Rows:
    """A cache without rows."""
    n, zero = x.shape[0], jnp.zeros((), jnp.int32)
    minus_ones = lambda k: jnp.full(k, -1, jnp.int32)
    return Rows(jnp.zeros((slots, n), accum_dtype(x)), minus_ones(n), minus_ones(slots), zero, zero)


def by_turns(mask: Array, by: Array) -> tuple[Array, Array]:
    """The true entries of (q,) first, those of positive and of negative `by` in turns.

    In a sum of similar rows neighbours then cancel, so that partial sums and their rounding errors
    stay small.

    Returns:
        Indices (q,) int32 and the number of true entries.
    """
    positive, negative = mask & (by > 0), mask & (by <= 0)
    rank = lambda own: 2 * jnp.cumsum(own.astype(jnp.int32))
    last = 2 * mask.shape[0] + 2
    key = jnp.where(positive, rank(positive), jnp.where(negative, rank(negative) + 1, last))
    return jnp.argsort(key).astype(jnp.int32), count(mask)


def subtract(
    total: Array,
    compensation: Array,
    rows: Rows,
    kernel: Kernel,
    x: Array,
    index: Array,
    by: Array,
) -> tuple[Array, Array, Rows]:
    """total - sum_k by_k row(index_k) by compensated summation; rows with by_k = 0 are not read.

    Cached rows are read first. The others are then computed, each used at once and cached, so that
    no cached row has to be kept for later.

    Args:
        total: (n,).
        compensation: (n,) rounding errors of `total`, still to be added.
        rows: the cache.
        kernel: of the rows.
        x: (n, d) all rows of the data.
        index: (q,) int32, row numbers, each once.
        by: (q,) coefficients.

    Returns:
        The new total (n,), its rounding errors (n,), and the cache.
    """
    slots, n = rows.owner.shape[0], x.shape[0]
    slot_of = rows.slot[index]
    order, n_cached = by_turns((by != 0) & (slot_of >= 0), by)
    # Padding reads a cached row, times 0.
    slot = jnp.pad(slot_of[order], (0, GROUP))
    slot = jnp.where(lax.iota(jnp.int32, slot.shape[0]) < n_cached, slot, slot[0])
    cached_by = _ordered(by, order, n_cached, GROUP)

    def subtract_group(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        """Subtract the next rows of the cache."""
        places = [k * GROUP + u for u in range(GROUP)]
        terms = [
            index_row(cached_by, i) * index_row(rows.value, index_row(slot, i)) for i in places
        ]
        return two_sum(*sums, _minus_sum(terms))

    sums = lax.fori_loop(0, -(-n_cached // GROUP), subtract_group, (total, compensation))

    order, n_missing = by_turns((by != 0) & (slot_of < 0), by)
    missing = jnp.pad(index[order], (0, CHUNK))
    missing_by = _ordered(by, order, n_missing, CHUNK)

    def subtract_chunk(k: Array, carry: tuple[Array, Array, Rows]) -> tuple[Array, Array, Rows]:
        """Compute the next rows, write them to consecutive slots, and subtract them."""
        total, compensation, rows = carry
        chunk = lax.dynamic_slice_in_dim(missing, k * CHUNK, CHUNK)
        chunk_by = lax.dynamic_slice_in_dim(missing_by, k * CHUNK, CHUNK)
        is_row = k * CHUNK + lax.iota(jnp.int32, CHUNK) < n_missing
        start = jnp.where(rows.next + CHUNK > slots, 0, rows.next)
        slots_written = start + lax.iota(jnp.int32, CHUNK)
        value = lax.dynamic_update_slice_in_dim(
            rows.value, kernel(x[chunk], x).astype(rows.value.dtype), start, 0
        )
        # Without the barrier, XLA computes the values twice, for both of their uses.
        value = lax.optimization_barrier(value)
        for place in range(0, CHUNK, PART):
            part = lax.dynamic_slice_in_dim(value, start + place, PART)
            terms = [chunk_by[place + u] * part[u] for u in range(PART)]
            total, compensation = two_sum(total, compensation, _minus_sum(terms))
        # Entries at n are dropped.
        old_owner = rows.owner[slots_written]
        slot = rows.slot.at[jnp.where(old_owner >= 0, old_owner, n)].set(-1, mode="drop")
        slot = slot.at[jnp.where(is_row, chunk, n)].set(slots_written, mode="drop")
        owner = rows.owner.at[slots_written].set(jnp.where(is_row, chunk, -1))
        computed = count(is_row)
        rows = Rows(value, slot, owner, start + computed, rows.n_computed + computed)
        return total, compensation, rows

    return lax.fori_loop(0, -(-n_missing // CHUNK), subtract_chunk, (*sums, rows))


def _ordered(by: Array, order: Array, number: Array, padding: int) -> Array:
    """The first `number` coefficients in an order, (q,), and zeros, (q + padding,)."""
    used = jnp.where(lax.iota(jnp.int32, by.shape[0]) < number, by[order], 0)
    return jnp.pad(used, (0, padding))


def _minus_sum(terms: list[Array]) -> Array:
    """Minus the sum of 2^k arrays, added in pairs in one pass over them."""
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    # Without the barrier, XLA reads all arrays once for each use of their sum.
    return lax.optimization_barrier(-terms[0])
