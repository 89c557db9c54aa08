"""A first-in, first-out cache of kernel rows within a memory limit.

It is for solvers that choose their own rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
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
PART = 16  # newly computed rows that are summed without compensation


def num_slots(x: Array, memory: float, least: int = 0) -> int:
    """The number of slots for kernel rows within `memory` bytes, besides one chunk.

    It is the number of rows that fit, between `least` and n, rounded up to whole chunks, plus one
    chunk. The last chunk is for the slots that a product writes after its last row. With room for n
    rows, no slot is reused.
    """
    n = x.shape[0]
    capacity = int(min(memory, 2**62) // (n * jnp.dtype(accum_dtype(x)).itemsize))
    return -(-min(max(capacity, least), n) // CHUNK) * CHUNK + CHUNK


def empty(x: Array, slots: int) -> Rows:
    """A cache without rows."""
    n, zeros = x.shape[0], lambda: jnp.zeros((), jnp.int32)  # each a buffer that may be donated
    minus_ones = lambda k: jnp.full(k, -1, jnp.int32)
    value = jnp.zeros((slots, n), accum_dtype(x))
    return Rows(value, minus_ones(n), minus_ones(slots), zeros(), zeros())


def alternate_signs(mask: Array, by: Array) -> tuple[Array, Array]:
    """The order with the true entries of (q,) first, those of positive and negative `by` in turns.

    In a sum of similar rows neighbours then cancel, so that partial sums and their rounding errors
    stay small.

    Args:
        mask: (q,) bool.
        by: (q,) the coefficients of the sum.

    Returns:
        Indices (q,) int32 and the number of true entries.
    """
    positive, negative = mask & (by > 0), mask & (by <= 0)
    # Sort keys: even numbers for positive entries, odd ones for negative, the largest for others.
    rank = lambda side: 2 * jnp.cumsum(side.astype(jnp.int32))
    largest = 2 * mask.shape[0] + 2
    key = jnp.where(positive, rank(positive), jnp.where(negative, rank(negative) + 1, largest))
    return jnp.argsort(key).astype(jnp.int32), count(mask)


@jax.named_scope("subtract_rows")
def subtract_cached(
    total: Array, compensation: Array, rows: Rows, index: Array, by: Array
) -> tuple[Array, Array]:
    """total - sum_k by_k row(index_k) over the cached rows, as `subtract`."""
    slot_of = rows.slot[index]
    order, n_cached = alternate_signs((by != 0) & (slot_of >= 0), by)
    # Padding reads a cached row, times 0.
    slot = jnp.pad(slot_of[order], (0, GROUP))
    slot = jnp.where(lax.iota(jnp.int32, slot.shape[0]) < n_cached, slot, slot[0])
    cached_by = _reorder(by, order, n_cached, GROUP)

    def subtract_group(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        """Subtract the next rows of the cache."""
        entries = [k * GROUP + u for u in range(GROUP)]
        row = lambda i: index_row(rows.value, index_row(slot, i))
        return two_sum(*sums, _minus_sum([index_row(cached_by, i) * row(i) for i in entries]))

    return lax.fori_loop(0, -(-n_cached // GROUP), subtract_group, (total, compensation))


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
    slot_of = rows.slot[index]
    sums = subtract_cached(total, compensation, rows, index, by)
    order, n_missing = alternate_signs((by != 0) & (slot_of < 0), by)
    missing = jnp.pad(index[order], (0, CHUNK))
    missing_by = _reorder(by, order, n_missing, CHUNK)

    def subtract_chunk(k: Array, carry: tuple[Array, Array, Rows]) -> tuple[Array, Array, Rows]:
        """Compute the next rows, write them to consecutive slots, and subtract them."""
        total, compensation, rows = carry
        chunk = lax.dynamic_slice_in_dim(missing, k * CHUNK, CHUNK)
        chunk_by = lax.dynamic_slice_in_dim(missing_by, k * CHUNK, CHUNK)
        is_row = k * CHUNK + lax.iota(jnp.int32, CHUNK) < n_missing
        value, start = _with_rows(rows, kernel, x, chunk)
        # Without the barrier, XLA computes the values twice, for both of their uses.
        value = lax.optimization_barrier(value)
        for offset in range(0, CHUNK, PART):
            part = lax.dynamic_slice_in_dim(value, start + offset, PART)
            terms = [chunk_by[offset + u] * part[u] for u in range(PART)]
            total, compensation = two_sum(total, compensation, _minus_sum(terms))
        return total, compensation, _record_slots(rows, value, start, chunk, is_row)

    return lax.fori_loop(0, -(-n_missing // CHUNK), subtract_chunk, (*sums, rows))


def first(mask: Array) -> tuple[Array, Array]:
    """The indices of the true entries of (q,) in order, padded with zeros, and their number."""
    q = mask.shape[0]
    position = jnp.where(mask, jnp.cumsum(mask.astype(jnp.int32)) - 1, q)  # q: dropped
    order = jnp.zeros(q, jnp.int32).at[position].set(lax.iota(jnp.int32, q), mode="drop")
    return order, count(mask)


def is_cached(rows: Rows, index: Array, q: int, size: int) -> Array:
    """Whether each of some rows stays in the cache while `ensure_rows` is called with q rows, bool.

    Args:
        rows: the cache.
        index: row numbers.
        q: rows of the call.
        size: as of `ensure_rows`.
    """
    slots, n = rows.owner.shape[0], rows.slot.shape[0]
    slot = rows.slot[index]
    # Where slots are reused, a row that may be overwritten during the call counts as missing. The
    # call writes at most q rows, the padding of its last product, and skips less than a product's
    # slots at the end of the cache.
    if slots >= n + size:
        return slot >= 0
    distance = slot - rows.next  # slots from the next one to that of the row
    distance = jnp.where(distance < 0, distance + slots, distance)
    return (slot >= 0) & (distance >= q + 2 * size)


@jax.named_scope("compute_rows")
def ensure_rows(
    rows: Rows, kernel: Kernel, x: Array, index: Array, wanted: Array, size: int
) -> Rows:
    """The cache with row index_k for every k where `wanted` is true; missing rows are computed.

    Args:
        rows: the cache.
        kernel: of the rows.
        x: (n, d) all rows of the data.
        index: (q,) int32, row numbers.
        wanted: (q,) bool, which entries of `index` count.
        size: rows per kernel product.

    Returns:
        The cache. None of the wanted rows is overwritten by another one.
    """
    cached = is_cached(rows, index, index.shape[0], size)
    order, n_missing = first(wanted & ~cached)
    missing_rows = jnp.pad(index[order], (0, size))

    def fill(k: Array, rows: Rows) -> Rows:
        """Write the next `size` missing rows, or those left, to consecutive slots."""
        chunk = lax.dynamic_slice_in_dim(missing_rows, k * size, size)
        is_row = k * size + lax.iota(jnp.int32, size) < n_missing
        return _record_slots(rows, *_with_rows(rows, kernel, x, chunk), chunk, is_row)

    return lax.fori_loop(0, -(-n_missing // size), fill, rows)


def _with_rows(rows: Rows, kernel: Kernel, x: Array, chunk: Array) -> tuple[Array, Array]:
    """The values of the cache with those of some rows, and the slot where they start."""
    start = jnp.where(rows.next + chunk.shape[0] > rows.owner.shape[0], 0, rows.next)
    new = kernel(x[chunk], x).astype(rows.value.dtype)
    return lax.dynamic_update_slice_in_dim(rows.value, new, start, 0), start


def _record_slots(rows: Rows, value: Array, start: Array, chunk: Array, is_row: Array) -> Rows:
    """The cache with `value`, in which the rows `chunk` were written to slots from `start` on.

    Rows count where `is_row` is true; the slots of the others are empty.
    """
    n, slots_written = rows.slot.shape[0], start + lax.iota(jnp.int32, chunk.shape[0])
    # Entries at n are dropped. A row that was computed again into another slot stays cached there.
    old_owner = rows.owner[slots_written]
    evicted = (old_owner >= 0) & (rows.slot[old_owner] == slots_written)
    slot = rows.slot.at[jnp.where(evicted, old_owner, n)].set(-1, mode="drop")
    slot = slot.at[jnp.where(is_row, chunk, n)].set(slots_written, mode="drop")
    owner = rows.owner.at[slots_written].set(jnp.where(is_row, chunk, -1))
    computed = count(is_row)
    return Rows(value, slot, owner, start + computed, rows.n_computed + computed)


def _reorder(by: Array, order: Array, number: Array, padding: int) -> Array:
    """The first `number` coefficients in an order, (q,), and zeros, (q + padding,)."""
    coef = jnp.where(lax.iota(jnp.int32, by.shape[0]) < number, by[order], 0)
    return jnp.pad(coef, (0, padding))


def _minus_sum(terms: list[Array]) -> Array:
    """Minus the sum of 2^k arrays, added in pairs in one pass over them."""
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    # Without the barrier, XLA reads all arrays once for each use of their sum.
    return lax.optimization_barrier(-terms[0])
