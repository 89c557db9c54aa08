"""Products of sparse rows.

Rows that are only pointed at (`SparseRows.rows`) are walked through number by number on a CPU: padding costs nothing there,
and neither do rows whose coefficient is 0. Derivatives take the padded form, which is linear term by term.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .types import Array, SparseRows

UNROLL = 4  # numbers of a row at a time: sums of their own, as one sum would wait for itself


def gather(x: SparseRows, b: Array, fn: Callable) -> Array:
    """sum_k fn(value_ik, b[index_ik]), (n, d), (d,) or (d, m) -> (n,) or (n, m)."""
    b, x = jnp.asarray(b), x.taken()
    if b.ndim == 1:
        return jnp.sum(fn(x.value, b.at[x.index].get(mode="promise_in_bounds")), axis=-1)

    def add(k, total):  # one place of all rows at a time: XLA would hold (n, r, m) numbers
        at = lambda a: lax.dynamic_index_in_dim(a, k, 1, keepdims=False)  # noqa: E731
        return total + fn(at(x.value)[:, None], b.at[at(x.index)].get(mode="promise_in_bounds"))

    return lax.fori_loop(0, x.value.shape[1], add, jnp.zeros((x.shape[0], b.shape[1]), jnp.result_type(x.dtype, b.dtype)))


def scatter(a: Array, x: SparseRows) -> Array:
    """sum_i a_i x_i, (n,) or (m, n), (n, d) -> (d,) or (m, d)."""
    a, x = jnp.asarray(a), x.taken()
    if a.ndim == 1:
        return jnp.zeros(x.columns, a.dtype).at[x.index].add(a[:, None] * x.value, mode="promise_in_bounds")

    def add(k, total):
        at = lambda v: lax.dynamic_index_in_dim(v, k, 1, keepdims=False)  # noqa: E731
        return total.at[at(x.index)].add(at(x.value)[:, None] * a.T, mode="promise_in_bounds")

    return lax.fori_loop(0, x.value.shape[1], add, jnp.zeros((x.columns, a.shape[0]), a.dtype)).T


def _walk(x: SparseRows, i: Array, live: Array, one: Callable, start: Any) -> Any:
    """`one(carry, [(column, value), ...])` over the numbers of the i-th row that is meant, where it is live."""
    width = x.value.shape[1]
    turn = UNROLL if width % UNROLL == 0 else 1
    index, value = x.index.reshape(-1), x.value.reshape(-1)
    row = _at(x.rows, i).astype(jnp.uint32)  # unsigned: no wrapping of negative numbers to be looked after
    first = row * width
    last = first + jnp.where(live, _at(x.length, row), 0).astype(jnp.uint32)

    def some(carry):
        place, carry = carry
        return place + turn, one(carry, [(_at(index, place + u).astype(jnp.uint32), _at(value, place + u)) for u in range(turn)])

    return lax.while_loop(lambda carry: carry[0] < last, some, (first, start))[1]


def _at(a: Array, i: Array) -> Array:
    return lax.dynamic_slice(a, (i,), (1,), allow_negative_indices=False)[0]


@jax.custom_jvp
def scores(x: SparseRows, w: Array) -> Array:
    """<x_i, w> of rows that are pointed at, (b, d), (d,) -> (b,)."""

    def walk(x, w):
        def score(i, out):
            one = lambda sums, some: tuple(s + v * _at(w, c) for s, (c, v) in zip(sums, some, strict=True))  # noqa: E731
            zero = jnp.zeros((), w.dtype)
            sums = _walk(x, i, True, one, (zero,) * (UNROLL if x.value.shape[1] % UNROLL == 0 else 1))
            return lax.dynamic_update_slice(out, functools.reduce(jnp.add, sums)[None], (i,))

        return lax.fori_loop(0, x.rows.shape[0], score, jnp.zeros(x.rows.shape[0], w.dtype))

    return lax.platform_dependent(x, w, cpu=walk, default=lambda x, w: gather(x, w, jnp.multiply))


@scores.defjvp
def _scores_jvp(primals, tangents):
    (x, w), (dx, dw) = primals, tangents
    moved = dataclasses.replace(x, value=dx.value)
    return scores(x, w), gather(x, dw, jnp.multiply) + gather(moved, w, jnp.multiply)


@jax.custom_jvp
def added(w: Array, coef: Array, x: SparseRows) -> Array:
    """w + sum_i coef_i x_i of rows that are pointed at, (d,), (b,), (b, d) -> (d,)."""
    plain = lambda w, coef, x: w + scatter(coef, x)  # noqa: E731
    return lax.platform_dependent(w, coef, x, cpu=_walk_and_add, default=plain)


@jax.custom_batching.custom_vmap
def _walk_and_add(w, coef, x):
    return _add_each(w, coef, x, skip=True)


@_walk_and_add.def_vmap
def _walk_and_add_together(size, batched, w, coef, x):
    """No row is skipped, as a loop whose length differs from lane to lane would choose between whole weights each time."""
    axes = jax.tree.map(lambda b: 0 if b else None, tuple(batched))
    return jax.vmap(functools.partial(_add_each, skip=False), in_axes=axes, axis_size=size)(w, coef, x), True


def _add_each(w, coef, x, skip):
    def add(i, w):
        c = _at(coef, i.astype(jnp.uint32))

        def one(w, some):
            for column, value in some:
                w = lax.dynamic_update_slice(w, (_at(w, column) + c * value)[None], (column,), allow_negative_indices=False)
            return w

        return _walk(x, i, c != 0 if skip else True, one, w)

    return lax.fori_loop(0, x.rows.shape[0], add, w)


@added.defjvp
def _added_jvp(primals, tangents):
    (w, coef, x), (dw, dcoef, dx) = primals, tangents
    moved = dataclasses.replace(x, value=dx.value)
    return added(w, coef, x), dw + scatter(dcoef, x) + scatter(coef, moved)
