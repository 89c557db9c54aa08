"""Tables (d, k) whose rows belong to the columns of sparse rows: vectors that change together.

As in `sparse_products`, rows given by reference are read entry by entry on a CPU.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax

from ...numerics.reductions import two_sum
from ...numerics.sparse_products import _in_pairs, _walked, gather, walk_row
from ...types import Array, SparseRows


@jax.custom_jvp
def products_and_squares(table: Array, x: SparseRows) -> tuple[Array, Array]:
    """<x_i, w> and |x_i|^2, w the first column of a table, (d, k), (b, d) -> (b,), (b,)."""

    def plain(table, x):
        x = x.materialize()
        return jnp.stack([gather(x, table[:, 0], jnp.multiply), jnp.sum(x.value**2, axis=1)])

    def walk(table, x):
        zero = jnp.zeros((), table.dtype)

        def sums(i, out):
            def one(sums, some):
                product = _in_pairs([v * _entry(table, c) for c, v in some])
                return sums[0] + product, sums[1] + _in_pairs([v * v for _, v in some])

            product, square = walk_row(x, i, True, one, (zero, zero), _TABLE_TURN)
            return lax.dynamic_update_slice(out, jnp.stack([product, square])[:, None], (0, i))

        return lax.fori_loop(0, x.rows.shape[0], sums, jnp.zeros((2, x.rows.shape[0]), table.dtype))

    if x.rows is None:
        sums = plain(table, x)
    else:
        on_cpu = functools.partial(_walked, walk, walk)
        sums = lax.platform_dependent(table, x, cpu=on_cpu, default=plain)
    return sums[0], sums[1]


@products_and_squares.defjvp
def _products_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    (table, x), (dtable, dx) = primals, tangents
    tangent = dataclasses.replace(x, value=dx.value)
    dproduct = gather(x, dtable[:, 0], jnp.multiply) + gather(tangent, table[:, 0], jnp.multiply)
    dsquare = 2 * jnp.sum(x.materialize().value * tangent.materialize().value, axis=1)
    return products_and_squares(table, x), (dproduct, dsquare)


# entries at once: so few that XLA treats a whole step of Pegasos as one small loop
_TABLE_TURN = 1


def _entry(table: Array, column: Array) -> Array:
    zero = jnp.zeros_like(column)
    return lax.dynamic_slice(table, (column, zero), (1, 1), allow_negative_indices=False)[0, 0]


@jax.custom_jvp
def add_outer(table: Array, coef: Array, x: SparseRows) -> Array:
    """A table with sum_i x_i coef_i' added to its first columns, (d, k), (b, j), (b, d) -> (d, k).

    Rows given by reference change only the rows of the table that they name.
    """
    width = coef.shape[1]

    def plain(table, coef, x):
        x = x.materialize()
        terms = x.value[:, :, None] * coef[:, None, :]
        return table.at[x.index, :width].add(terms, mode="promise_in_bounds")

    def walk(table, coef, x, skip=True):
        def add(i, table):
            i = i.astype(jnp.uint32)
            zero = jnp.zeros((), jnp.uint32)
            factor = lax.dynamic_slice(coef, (i, zero), (1, width), allow_negative_indices=False)

            def one(table, some):
                for column, value in some:
                    place = column, zero
                    old = lax.dynamic_slice(table, place, (1, width), allow_negative_indices=False)
                    table = lax.dynamic_update_slice(
                        table, old + factor * value, place, allow_negative_indices=False
                    )
                return table

            live = factor[0, 0] != 0 if skip else True
            return walk_row(x, i, live, one, table, _TABLE_TURN)

        return lax.fori_loop(0, x.rows.shape[0], add, table)

    if x.rows is None:
        return plain(table, coef, x)
    together = functools.partial(walk, skip=False)
    on_cpu = functools.partial(_walked, walk, together)
    return lax.platform_dependent(table, coef, x, cpu=on_cpu, default=plain)


@add_outer.defjvp
def _add_outer_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (table, coef, x), (dtable, dcoef, dx) = primals, tangents
    tangent, rows = dataclasses.replace(x, value=dx.value).materialize(), x.materialize()
    terms = rows.value[:, :, None] * dcoef[:, None, :]
    terms = terms + tangent.value[:, :, None] * coef[:, None, :]
    dtable = dtable.at[rows.index, : coef.shape[1]].add(terms, mode="promise_in_bounds")
    return add_outer(table, coef, x), dtable


@jax.custom_jvp
def fold_columns(due: Array, table: Array, numbers: Array) -> Array:
    """A table (d, 1) or (d, 4) after a change of all its rows, if that is due.

        v = scale v
        mean += share ((beta v + u) / omega - mean), compensated;   u = 0      (four columns)

    Entry by entry, so that a loop around it stays one small loop, and the table is not copied.

    Args:
        due: () bool.
        table: (d, 1) v; or (d, 4) v, u, mean, rounding errors of the mean.
        numbers: (1,) scale; or (4,) scale, beta, 1/omega, share.
    """

    def single(due, table, numbers):
        end = jnp.where(due, table.shape[0], 0).astype(jnp.uint32)
        zero = jnp.zeros((), jnp.uint32)

        def change(carry):
            k, table = carry
            place, shape = (k, zero), (1, table.shape[1])
            row = lax.dynamic_slice(table, place, shape, allow_negative_indices=False)
            row = _folded(row, numbers)
            return k + 1, lax.dynamic_update_slice(table, row, place, allow_negative_indices=False)

        return lax.while_loop(lambda carry: carry[0] < end, change, (zero, table))[1]

    @jax.custom_batching.custom_vmap
    def call(due, table, numbers):
        return lax.platform_dependent(due, table, numbers, cpu=single, default=_fold_whole)

    @call.def_vmap
    def batch_rule(size, batched, *args):
        stacked = lambda a, flag: a if flag else jnp.broadcast_to(a, (size, *a.shape))
        full = list(map(stacked, args, batched))
        every = jax.vmap(lambda due, table, numbers: jnp.where(due, _folded(table, numbers), table))
        return lax.cond(jnp.any(full[0]), lambda: every(*full), lambda: full[1]), True

    return call(due, table, numbers)


def _fold_whole(due: Array, table: Array, numbers: Array) -> Array:
    return lax.cond(due, lambda: _folded(table, numbers), lambda: table)


def _folded(table: Array, numbers: Array) -> Array:
    """All rows of a table, changed as `fold_columns` says."""
    if table.shape[1] == 1:
        return numbers[0] * table
    scale, beta, inverse_omega, share = numbers
    v, u, mean, low = (table[:, k] for k in range(4))
    mean, low = two_sum(mean, low, share * ((beta * v + u) * inverse_omega - mean - low))
    return jnp.stack([scale * v, jnp.zeros_like(u), mean, low], axis=1)


@fold_columns.defjvp
def _fold_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (due, table, numbers), (_, dtable, dnumbers) = primals, tangents
    whole = lambda table, numbers: jnp.where(due, _folded(table, numbers), table)
    tangent = jax.jvp(whole, (table, numbers), (dtable, dnumbers))[1]
    return fold_columns(due, table, numbers), tangent
