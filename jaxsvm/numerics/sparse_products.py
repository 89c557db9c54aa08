"""Products of sparse rows.

On a CPU, rows given by reference (`SparseRows.rows`) are read entry by entry: padding and rows of
coefficient 0 cost nothing. Packed rows (`SparseRows.packed`) are also contiguous in memory.
Derivatives use the padded form, which is linear in each term.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..types import LANE_WIDTH, Array, SparseRows
from .batching import axes_of, map_on_cpu


def gather(x: SparseRows, b: object, fn: Callable) -> Array:
    """sum_k fn(value_ik, b[index_ik]), (n, d), (d,) or (d, m) -> (n,) or (n, m)."""
    b, x = jnp.asarray(b), x.materialize()
    if b.ndim == 1:
        return jnp.sum(fn(x.value, b.at[x.index].get(mode="promise_in_bounds")), axis=-1)

    # one entry of every row at a time: otherwise XLA would hold (n, r, m) numbers
    def add(k, total):
        at = lambda a: lax.dynamic_index_in_dim(a, k, 1, keepdims=False)
        return total + fn(at(x.value)[:, None], b.at[at(x.index)].get(mode="promise_in_bounds"))

    zero = jnp.zeros((x.shape[0], b.shape[1]), jnp.result_type(x.dtype, b.dtype))
    return lax.fori_loop(0, x.value.shape[1], add, zero)


def scatter(a: object, x: SparseRows) -> Array:
    """sum_i a_i x_i, (n,) or (m, n), (n, d) -> (d,) or (m, d)."""
    a, x = jnp.asarray(a), x.materialize()
    if a.ndim == 1:
        zero = jnp.zeros(x.columns, a.dtype)
        return zero.at[x.index].add(a[:, None] * x.value, mode="promise_in_bounds")

    def add(k, total):
        at = lambda v: lax.dynamic_index_in_dim(v, k, 1, keepdims=False)
        return total.at[at(x.index)].add(at(x.value)[:, None] * a.T, mode="promise_in_bounds")

    return lax.fori_loop(0, x.value.shape[1], add, jnp.zeros((x.columns, a.shape[0]), a.dtype)).T


# from so many rows per step and `vmap` lanes on, sequential lanes are faster than batched ones
MIN_ROWS, MIN_LANES = 4, 8


def _walked(single: Callable, batched: Callable, *args: object) -> Array:
    """The result of `single(*args)`, where the last of `args` are rows.

    Under `vmap` it is computed lane after lane, or by `batched` if lanes or rows are few.
    """
    alone = lambda *args: single(*args)  # whose defaults are no arguments
    call = jax.custom_batching.custom_vmap(alone)

    @call.def_vmap
    def batch_rule(size, is_batched, *args):
        # per-lane rows would be copied for every lane
        shared_rows = not (is_batched[-1].index or is_batched[-1].value)
        sequential = shared_rows and size >= MIN_LANES and args[-1].rows.shape[-1] >= MIN_ROWS
        lane = map_on_cpu(alone) if sequential else batched
        return jax.vmap(lane, axes_of(tuple(is_batched)), axis_size=size)(*args), True

    return call(*args)


def walk_row(
    x: SparseRows, i: Array, live: Array | bool, one: Callable, start: object, turn: int
) -> Any:
    """The fold of `one(carry, [(column, value), ...])` over the i-th referenced row.

    The row is empty unless `live`. Each call of `one` takes `turn` entries.
    """
    width = x.value.shape[1]
    turn = turn if width % LANE_WIDTH == 0 else 1
    index, value = x.index.reshape(-1), x.value.reshape(-1)
    row = row_at(x.rows, i).astype(jnp.uint32)  # unsigned: XLA adds no handling of negative indices
    first = row * width if x.offsets is None else row_at(x.offsets, row).astype(jnp.uint32)
    last = first + jnp.where(live, row_at(x.length, row), 0).astype(jnp.uint32)

    def some(carry):
        place, carry = carry
        at = lambda a: lax.dynamic_slice(a, (place,), (turn,), allow_negative_indices=False)
        columns, values = at(index), at(value)
        entries = [(columns[u].astype(jnp.uint32), values[u]) for u in range(turn)]
        return place + turn, one(carry, entries)

    return lax.while_loop(lambda carry: carry[0] < last, some, (first, start))[1]


def referenced(x: Any) -> SparseRows:
    """The rows by reference."""
    if x.rows is not None:
        return x
    return dataclasses.replace(x, rows=jnp.arange(x.shape[0], dtype=jnp.int32))


def row_at(a: Any, i: Array) -> Array:
    """Row i of an array, i an unsigned integer."""
    size = (1, *a.shape[1:])
    return lax.dynamic_slice(a, _start(a, i), size, allow_negative_indices=False)[0]


def put_row(a: Array, i: Array, value: Array) -> Array:
    """The array with another row i, an unsigned integer; in place in a loop that reads it after."""
    return lax.dynamic_update_slice(a, value[None], _start(a, i), allow_negative_indices=False)


def _start(a: Array, i: Array) -> tuple[Array, ...]:
    return (i, *[jnp.zeros_like(i)] * (a.ndim - 1))


def in_pairs(terms: list) -> Array:
    """The sum of the terms by a binary tree, which shortens the chain of dependent additions."""
    while len(terms) > 1:
        terms = [functools.reduce(jnp.add, terms[k : k + 2]) for k in range(0, len(terms), 2)]
    return terms[0]


def _dot_row(x: SparseRows, i: Array, w: Array) -> Array:
    """<x_i, w> of the row at place i, () or (k,)."""
    one = lambda total, some: total + in_pairs([v * row_at(w, c) for c, v in some])
    return walk_row(x, i, True, one, jnp.zeros(w.shape[1:], w.dtype), LANE_WIDTH)


@jax.custom_jvp
def scores(x: SparseRows, w: Array) -> Array:
    """<x_i, w> of rows given by reference, (b, d), (d,) or (d, k) -> (b,) or (b, k)."""

    def walk(w, x):
        score = lambda i, out: put_row(out, i.astype(jnp.uint32), _dot_row(x, i, w))
        zeros = jnp.zeros(x.rows.shape + w.shape[1:], w.dtype)
        return lax.fori_loop(0, x.rows.shape[0], score, zeros)

    plain = lambda w, x: gather(x, w, jnp.multiply)
    return lax.platform_dependent(w, x, cpu=functools.partial(_walked, walk, walk), default=plain)


@scores.defjvp
def _scores_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (x, w), (dx, dw) = primals, tangents
    tangent = dataclasses.replace(x, value=dx.value)
    return scores(x, w), gather(x, dw, jnp.multiply) + gather(tangent, w, jnp.multiply)


@jax.custom_jvp
def added(w: Array, coef: Array, x: SparseRows) -> Array:
    """w + sum_i x_i coef_i of rows given by reference, (d,), (b,) or (d, k), (b, k), as w."""

    def walk(w, coef, x, skip=True):
        def add(i, w):
            c = row_at(coef, i.astype(jnp.uint32))
            # With more numbers at once, XLA does not treat the loop as small.
            live = (jnp.any(c != 0) if c.ndim else c != 0) if skip else True
            return walk_row(x, i, live, _adding(c), w, LANE_WIDTH // 2)

        return lax.fori_loop(0, x.rows.shape[0], add, w)

    # Batched lanes that skip different rows would select between whole weight vectors: none is
    # skipped.
    together = functools.partial(walk, skip=False)
    plain = lambda w, coef, x: w + scatter(coef.T, x).T
    on_cpu = functools.partial(_walked, walk, together)
    return lax.platform_dependent(w, coef, x, cpu=on_cpu, default=plain)


@added.defjvp
def _added_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (w, coef, x), (dw, dcoef, dx) = primals, tangents
    tangent = dataclasses.replace(x, value=dx.value)
    return added(w, coef, x), dw + scatter(dcoef.T, x).T + scatter(coef.T, tangent).T


def pack_rows(x: Any) -> SparseRows | None:
    """Sparse rows packed for loops that read them in place.

    None if they are not on one CPU device or cannot be packed.
    """
    return x.packed if can_be_packed(x) else None


def can_be_packed(x: Any) -> bool:
    """Whether these are padded sparse rows on one CPU device, outside of transformations."""
    padded = isinstance(x, SparseRows) and x.offsets is None and x.rows is None
    padded = padded and x.value.shape[1] % LANE_WIDTH == 0 and x.value.size < 2**31
    padded = padded and isinstance(x.value, jax.Array) and not isinstance(x.value, jax.core.Tracer)
    return padded and [device.platform for device in x.value.devices()] == ["cpu"]


def row_loops(x: object) -> tuple[Callable, Callable]:
    """Functions for loops that read one row after the other, without derivatives.

    Returns:
        dot_row: (i (), w (d,)) -> <x_i, w>. add_row: (i, c (), w, live ()) -> w + c x_i, in place
        in a loop that reads w before; it may leave w as it is unless `live`. Of k weights w is
        (d, k), and <x_i, w> and c are (k,).
    """
    if not isinstance(x, SparseRows):
        row = lambda i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False)
        product = lambda i, w: jnp.dot(row(i), w, precision=lax.Precision.HIGHEST)
        return product, lambda i, c, w, live: w + _outer(row(i), c)
    if x.offsets is None:
        padded = x.materialize()
        entries = lambda i: (padded.index[i], padded.value[i])

        def product_of_padded(i, w):
            index, value = entries(i)
            return jnp.tensordot(value, w.at[index].get(mode="promise_in_bounds"), 1)

        def add_padded(i, c, w, live):
            index, value = entries(i)
            return w.at[index].add(_outer(value, c), mode="promise_in_bounds")

        return product_of_padded, add_padded
    x = referenced(x)
    add_row = lambda i, c, w, live: walk_row(x, i, live, _adding(c), w, LANE_WIDTH)
    return functools.partial(_dot_row, x), add_row


def _outer(a: Array, c: Array) -> Array:
    """a_i c, (d,), () -> (d,), or (d,), (k,) -> (d, k)."""
    return a * c if jnp.ndim(c) == 0 else a[:, None] * c[None, :]


def _adding(c: Array) -> Callable:
    """A step of `walk_row` that adds c times the entries of a row."""

    def one(w, some):
        for column, value in some:
            w = put_row(w, column, row_at(w, column) + c * value)
        return w

    return one
