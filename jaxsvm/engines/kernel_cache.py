"""A first-in, first-out cache of kernel rows within a memory limit.

It is for solvers that choose their own rows.
"""

from __future__ import annotations

import functools
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


# rows per kernel product: a large product costs less per row, a small one less in total
CHUNKS = (64, 32, 16)
CHUNK = CHUNKS[0]
# slots that a call may skip at the end, or write after its last row, besides those of its rows
SPARE = 2 * CHUNK


def num_slots(x: Array, memory: float, least: int) -> int:
    """The number of slots for kernel rows within `memory` bytes.

    It is the number of rows that fit, between `least` and n, rounded up to whole chunks, plus one
    chunk. The last chunk is for the slots that a product writes after its last row. With room for n
    rows, no slot is reused.
    """
    n = x.shape[0]
    capacity = int(min(memory, 2**62) // (n * jnp.dtype(accum_dtype(x)).itemsize))
    return -(-min(max(capacity, least), n) // CHUNK) * CHUNK + CHUNK


def empty(x: Array, slots: int) -> Rows:
    """A cache without rows."""
    n, zero = x.shape[0], jnp.zeros((), jnp.int32)
    minus_ones = lambda k: jnp.full(k, -1, jnp.int32)
    return Rows(jnp.zeros((slots, n), accum_dtype(x)), minus_ones(n), minus_ones(slots), zero, zero)


def all_rows(matrix: Array) -> Rows:
    """A cache that holds all rows of a kernel matrix (n, n), each in its own slot."""
    own = lax.iota(jnp.int32, matrix.shape[0])
    zero = jnp.zeros((), jnp.int32)
    return Rows(matrix, own, own, zero, zero)


def grow(rows: Rows, slots: int) -> Rows:
    """The cache with more slots.

    A solver starts with part of the slots and grows the cache once. Allocating slots takes about
    half the time of computing the kernel rows that fill them.
    """
    old_slots, n = rows.value.shape
    value = lax.dynamic_update_slice(jnp.zeros((slots, n), rows.value.dtype), rows.value, (0, 0))
    return rows._replace(
        value=value, owner=jnp.pad(rows.owner, (0, slots - old_slots), constant_values=-1)
    )


def full(rows: Rows, q: int) -> Array:
    """Whether q more rows may overwrite cached ones, () bool, if none was overwritten so far."""
    return rows.next + q + SPARE > rows.owner.shape[0]


def first(mask: Array) -> tuple[Array, Array]:
    """The indices of the true entries of (q,) in order, padded with zeros, and their number."""
    q = mask.shape[0]
    position = jnp.where(mask, jnp.cumsum(mask.astype(jnp.int32)) - 1, q)
    return jnp.zeros(q, jnp.int32).at[position].set(lax.iota(jnp.int32, q), mode="drop"), count(
        mask
    )


def ensure_rows(rows: Rows, kernel: Kernel, x: Array, index: Array, wanted: Array) -> Rows:
    """The cache with row index_k for every k where `wanted` is true; missing rows are computed.

    Args:
        rows: the cache.
        kernel: of the rows.
        x: (n, d) all rows of the data.
        index: (q,) int32, row numbers.
        wanted: (q,) bool, which entries of `index` count.

    Returns:
        The cache. None of the wanted rows is overwritten by another one.
    """
    slots, n = rows.owner.shape[0], x.shape[0]
    # slots from the next one to that of the row
    q, distance = index.shape[0], rows.slot[index] - rows.next
    cached = rows.slot[index] >= 0
    # slots are reused: a cached row that may be overwritten during this call counts as missing
    if slots < n + CHUNK:
        cached = cached & (jnp.where(distance < 0, distance + slots, distance) >= q + SPARE)
    order, n_missing = first(wanted & ~cached)
    missing_rows = jnp.pad(index[order], (0, CHUNK))

    def fill(size, _, carry):
        """Write the next `size` missing rows, or those left, to consecutive slots."""
        rows, n_done = carry
        chunk = lax.dynamic_slice_in_dim(missing_rows, n_done, size)
        is_row = n_done + lax.iota(jnp.int32, size) < n_missing
        start = jnp.where(rows.next + size > slots, 0, rows.next)
        slots_written = start + lax.iota(jnp.int32, size)
        value = lax.dynamic_update_slice(
            rows.value, kernel(x[chunk], x).astype(rows.value.dtype), (start, jnp.zeros_like(start))
        )
        # Entries at n are dropped. A row that was computed again into another slot stays cached
        # there.
        old_owner = rows.owner[slots_written]
        evicted = (old_owner >= 0) & (rows.slot[old_owner] == slots_written)
        slot = rows.slot.at[jnp.where(evicted, old_owner, n)].set(-1, mode="drop")
        slot = slot.at[jnp.where(is_row, chunk, n)].set(slots_written, mode="drop")
        owner = rows.owner.at[slots_written].set(jnp.where(is_row, chunk, -1))
        computed = count(is_row)
        return Rows(
            value, slot, owner, start + computed, rows.n_computed + computed
        ), n_done + computed

    # Whole chunks, and for the rest one product of the smallest size that holds it.
    rest, (_, medium, small) = n_missing % CHUNK, CHUNKS
    products = (
        n_missing // CHUNK + count(rest > medium),
        (rest > small) & (rest <= medium),
        (rest > 0) & (rest <= small),
    )
    carry = rows, jnp.zeros((), jnp.int32)
    for size, repeats in zip(CHUNKS, products, strict=True):
        carry = lax.fori_loop(0, repeats.astype(jnp.int32), functools.partial(fill, size), carry)
    return carry[0]


UNROLL = 8  # rows per iteration of the loop of `subtract`


def subtract(
    total: Array, compensation: Array, rows: Rows, index: Array, by: Array
) -> tuple[Array, Array]:
    """total - sum_k by_k row(index_k) by compensated summation; rows with by_k = 0 are not read.

    Args:
        total: (n,).
        compensation: (n,) rounding errors of `total`, still to be added.
        rows: the cache; it holds row index_k wherever by_k is not 0.
        index: (q,) int32, row numbers.
        by: (q,) coefficients.

    Returns:
        The new total (n,) and its rounding errors (n,).
    """
    order, n_used = first(by != 0)
    slot = jnp.pad(rows.slot[index[order]], (0, UNROLL))
    by = jnp.pad(jnp.where(lax.iota(jnp.int32, by.shape[0]) < n_used, by[order], 0), (0, UNROLL))
    slot = jnp.where(by != 0, slot, slot[0])  # padding reads a cached row, times 0

    def subtract_block(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        for u in range(UNROLL):
            sums = two_sum(
                *sums,
                -index_row(by, k * UNROLL + u)
                * index_row(rows.value, index_row(slot, k * UNROLL + u)),
            )
        return sums

    return lax.fori_loop(0, -(-n_used // UNROLL), subtract_block, (total, compensation))
