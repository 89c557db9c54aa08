"""A first-in, first-out cache of kernel rows within a memory limit.

It is for solvers that choose their own rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..kernels import Kernel
from ..numerics import accum_dtype, count, fold, index_row, top_k_index, two_sum
from ..numerics.sparse_products import in_pairs
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


def alternate_signs(group: Array, by: Array) -> tuple[Array, Array, Array]:
    """The order with group 0 first, then group 1, each with positive and negative `by` in turns.

    In a sum of similar rows neighbours then cancel, so that partial sums and their rounding errors
    stay small. It takes one sort and arithmetic, as cumulative sums take longer to compile.

    Args:
        group: (q,) int32, 0 or 1; 2 for entries that come last.
        by: (q,) the coefficients of the sum.

    Returns:
        Indices (q,) int32, and the numbers of entries of group 0 and of group 1.
    """
    kind = 2 * group + jnp.where(by > 0, 0, 1)
    order = top_k_index(-jnp.minimum(kind, 4).astype(by.dtype), len(by))
    n_first, n_second = fold([(group == k).astype(jnp.int32) for k in range(2)])
    t = lax.iota(jnp.int32, len(by))
    start, size = jnp.where(t < n_first, 0, n_first), jnp.where(t < n_first, n_first, n_second)
    # of each group one from the front, one from the back
    half, is_odd = (t - start) // 2, (t - start) & 1 == 1
    place = jnp.where(t < n_first + n_second, start + jnp.where(is_odd, size - 1 - half, half), t)
    return order.at[place].get(mode="promise_in_bounds"), n_first, n_second


@jax.named_scope("subtract_rows")
def subtract_cached(
    total: Array, compensation: Array, value: Array, slot: Array, by: Array, number: Array
) -> tuple[Array, Array]:
    """total - sum_k by_k value(slot_k) over the first `number` rows of the cache, as `subtract`."""

    def subtract_group(at: tuple[Array, Any]) -> tuple[Array, Any]:
        """Subtract the next rows; behind the last one its row is read again, times 0."""
        first, (total, compensation) = at
        entries = [jnp.minimum(first + u, number - 1) for u in range(GROUP)]
        factor = lambda u: jnp.where(first + u < number, index_row(by, entries[u]), 0)
        row = lambda u: index_row(value, index_row(slot, entries[u]))
        # Without the barrier, XLA reads all arrays once for each use of their sum.
        minus_sum = lax.optimization_barrier(-in_pairs([factor(u) * row(u) for u in range(GROUP)]))
        return first + GROUP, two_sum(total, compensation, minus_sum)

    begin = jnp.zeros((), jnp.int32), (total, compensation)
    return lax.while_loop(lambda at: at[0] < number, subtract_group, begin)[1]


def subtract(at: tuple, kernel: Kernel, x: Array, index: Array, by: Array) -> tuple:
    """total - sum_k by_k row(index_k) by compensated summation; rows with by_k = 0 are not read.

    Cached rows are read first. The others are then computed, each used at once and cached, so that
    no cached row has to be kept for later.

    Args:
        at: the total (n,), its rounding errors (n,), still to be added, and the cache.
        kernel: of the rows.
        x: (n, d) all rows of the data.
        index: (q,) int32, row numbers, each once.
        by: (q,) coefficients.

    Returns:
        What becomes of `at`.
    """
    total, compensation, rows = at
    slot = rows.slot[index]
    group = jnp.where(by == 0, 2, jnp.where(slot >= 0, 0, 1))
    order, n_cached, n_missing = alternate_signs(group, by)
    index, slot, by = (jnp.pad(a[order], (0, CHUNK)) for a in (index, slot, by))
    sums = subtract_cached(total, compensation, rows.value, slot, by, n_cached)

    def subtract_chunk(at: tuple) -> tuple[Array, Array, Array, Rows]:
        """Compute the next rows, write them to consecutive slots, and subtract them."""
        first, total, compensation, rows = at
        chunk = lax.dynamic_slice_in_dim(index, first, CHUNK)
        chunk_by = lax.dynamic_slice_in_dim(by, first, CHUNK)  # 0 behind the last row
        value, start = _with_rows(rows, kernel, x, chunk)
        # Without the barrier, XLA computes the values twice, for both of their uses.
        value = lax.optimization_barrier(value)
        parts = lax.dynamic_slice_in_dim(value, start, CHUNK).reshape(-1, PART, total.shape[0])
        sums = -jnp.sum(chunk_by.reshape(-1, PART, 1) * parts, axis=1)
        for k in range(len(sums)):
            total, compensation = two_sum(total, compensation, sums[k])
        rows = _record_slots(rows, value, start, chunk, jnp.minimum(end - first, CHUNK))
        return first + CHUNK, total, compensation, rows

    end = n_cached + n_missing
    return lax.while_loop(lambda at: at[0] < end, subtract_chunk, (n_cached, *sums, rows))[1:]


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
        number = jnp.minimum(n_missing - k * size, size)
        return _record_slots(rows, *_with_rows(rows, kernel, x, chunk), chunk, number)

    return lax.fori_loop(0, -(-n_missing // size), fill, rows)


def _with_rows(rows: Rows, kernel: Kernel, x: Array, chunk: Array) -> tuple[Array, Array]:
    """The values of the cache with those of some rows, and the slot where they start."""
    start = jnp.where(rows.next + chunk.shape[0] > rows.owner.shape[0], 0, rows.next)
    new = kernel(x[chunk], x).astype(rows.value.dtype)
    return lax.dynamic_update_slice_in_dim(rows.value, new, start, 0), start


def _record_slots(rows: Rows, value: Array, start: Array, chunk: Array, number: Array) -> Rows:
    """The cache with `value`, in which the rows `chunk` were written to slots from `start` on.

    The first `number` of them count; the slots of the others are empty.
    """
    n, size = rows.slot.shape[0], chunk.shape[0]
    is_row = lax.iota(jnp.int32, size) < number
    slots_written = start + lax.iota(jnp.int32, size)
    # Entries at n are dropped. A row that was computed again into another slot stays cached there.
    old_owner = lax.dynamic_slice_in_dim(rows.owner, start, size)
    evicted = (old_owner >= 0) & (rows.slot[old_owner] == slots_written)
    # one scatter, as none of the new rows is evicted
    index = jnp.concatenate([jnp.where(evicted, old_owner, n), jnp.where(is_row, chunk, n)])
    slots = jnp.concatenate([jnp.full_like(slots_written, -1), slots_written])
    slot = rows.slot.at[index].set(slots, mode="drop", wrap_negative_indices=False)
    owner = lax.dynamic_update_slice_in_dim(rows.owner, jnp.where(is_row, chunk, -1), start, 0)
    return Rows(value, slot, owner, start + number, rows.n_computed + number)
