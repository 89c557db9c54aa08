"""Kernel rows that are kept as long as the memory given holds them, for solvers that choose their rows themselves."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ..kernels import Kernel
from ..numerics import accum_dtype, count, index_row, two_sum
from ..types import Array


class Rows(NamedTuple):
    """Rows of the kernel matrix in slots; a new row takes the place of the oldest once all slots are taken."""

    value: Array  # (slots, n)
    slot: Array  # (n,)  int32, where row i is; -1: nowhere
    owner: Array  # (slots,)  int32, whose row is in a slot; -1: nobody's
    next: Array  # ()  int32, the slot that is filled next
    made: Array  # ()  int32, rows worked out so far


CHUNKS = (64, 32, 16)  # rows that are worked out together: many cost least a row, few least in all
CHUNK = CHUNKS[0]


def num_slots(x: Array, memory: float, least: int) -> int:
    """How many rows to hold: what fits `memory` bytes, `least` at least, all at most."""
    n = x.shape[0]
    room = int(min(memory, 2**62) // (n * jnp.dtype(accum_dtype(x)).itemsize))
    return -(-min(max(room, least), n) // CHUNK) * CHUNK + CHUNK


def empty(x: Array, slots: int) -> Rows:
    """No rows yet."""
    n, zero = x.shape[0], jnp.zeros((), jnp.int32)
    nobody = lambda k: jnp.full(k, -1, jnp.int32)  # noqa: E731
    return Rows(jnp.zeros((slots, n), accum_dtype(x)), nobody(n), nobody(slots), zero, zero)


def grow(rows: Rows, slots: int) -> Rows:
    """The rows with room for more. (Fresh memory costs about as much time as the rows of half of it: hence in two steps.)"""
    old, n = rows.value.shape
    value = lax.dynamic_update_slice(jnp.zeros((slots, n), rows.value.dtype), rows.value, (0, 0))
    return rows._replace(value=value, owner=jnp.pad(rows.owner, (0, slots - old), constant_values=-1))


def full(rows: Rows, q: int) -> Array:
    """Whether q more rows would take the places of others."""
    return rows.next + q + 2 * CHUNK > rows.owner.shape[0]


def first(mask: Array) -> tuple[Array, Array]:
    """The places of the true entries of (q,) in order, then zeros; and how many they are."""
    q = mask.shape[0]
    place = jnp.where(mask, jnp.cumsum(mask.astype(jnp.int32)) - 1, q)
    return jnp.zeros(q, jnp.int32).at[place].set(lax.iota(jnp.int32, q), mode="drop"), count(mask)


def ensure_rows(rows: Rows, kernel: Kernel, x: Array, index: Array, wanted: Array) -> Rows:
    """The rows with all of `index` (q,) that are `wanted` (q,) among them, those that were missing worked out."""
    slots, n = rows.owner.shape[0], x.shape[0]
    q, ahead = index.shape[0], rows.slot[index] - rows.next
    kept = rows.slot[index] >= 0
    if slots < n + CHUNK:  # rows that new ones may take the place of count as missing
        kept = kept & (jnp.where(ahead < 0, ahead + slots, ahead) >= q + 2 * CHUNK)
    order, missing = first(wanted & ~kept)
    index = jnp.pad(index[order], (0, CHUNK))

    def fill(size, k, carry):
        rows, done = carry
        part = lax.dynamic_slice_in_dim(index, done, size)
        real = done + lax.iota(jnp.int32, size) < missing
        start = jnp.where(rows.next + size > slots, 0, rows.next)
        place = start + lax.iota(jnp.int32, size)
        value = lax.dynamic_update_slice(rows.value, kernel(x[part], x).astype(rows.value.dtype), (start, jnp.zeros_like(start)))
        before = rows.owner[place]
        compensation = (before >= 0) & (rows.slot[before] == place)
        slot = rows.slot.at[jnp.where(compensation, before, n)].set(-1, mode="drop")
        slot = slot.at[jnp.where(real, part, n)].set(place, mode="drop")
        owner = rows.owner.at[place].set(jnp.where(real, part, -1))
        more = count(real)
        return Rows(value, slot, owner, start + more, rows.made + more), done + more

    rest, few = missing % CHUNK, CHUNKS[1] // 2
    times = (missing // CHUNK + count(rest > CHUNKS[1]), (rest > few) & (rest <= CHUNKS[1]), (rest > 0) & (rest <= few))
    carry = rows, jnp.zeros((), jnp.int32)
    for size, often in zip(CHUNKS, times, strict=True):
        carry = lax.fori_loop(0, often.astype(jnp.int32), functools.partial(fill, size), carry)
    return carry[0]


UNROLL = 8  # rows that are read at a time


def subtract(total: Array, compensation: Array, rows: Rows, index: Array, by: Array) -> tuple[Array, Array]:
    """total - sum_k by_k row(index_k), compensated; rows of by_k = 0 are not read.

    Args:
        total: (n,).
        compensation: (n,) what rounding took from it.
        rows: with those of `index`.
        index: (q,).
        by: (q,).
    """
    order, used = first(by != 0)
    slot = jnp.pad(rows.slot[index[order]], (0, UNROLL))
    by = jnp.pad(jnp.where(lax.iota(jnp.int32, by.shape[0]) < used, by[order], 0), (0, UNROLL))
    slot = jnp.where(by != 0, slot, slot[0])  # a row that is surely there

    def some(k, sums):
        for u in range(UNROLL):
            sums = two_sum(*sums, -index_row(by, k * UNROLL + u) * index_row(rows.value, index_row(slot, k * UNROLL + u)))
        return sums

    return lax.fori_loop(0, -(-used // UNROLL), some, (total, compensation))
