"""Rows read by column, for the steps of `proximal_newton`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...numerics import (
    can_be_packed,
    dot,
    is_traced,
    listed_entries,
    pack_lists,
    put_row,
    row_at,
    row_loops,
)
from ...numerics.sparse_products import walk_row
from ...types import LANE_WIDTH, Array, Rows, SparseRows


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("plain", "transposed"), meta_fields=()
)
@dataclasses.dataclass(frozen=True)
class Columns:
    """Rows with their columns; what other code reads of rows is theirs."""

    plain: Array | SparseRows  # (n, d)
    # (d, n), or (d + 1, n) with the constant 1 where there is a bias; sparse: packed, by reference
    transposed: Array | SparseRows

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.plain.shape
        return n, d

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.plain.dtype

    def scores(self, v: Array) -> Array:
        """X v, (d,) -> (n,), from the columns with v_j != 0 alone."""
        _, add_column = row_loops(self.transposed)
        return add_columns(add_column, *listed(v != 0), v, jnp.zeros(self.shape[0], v.dtype))

    def products(self, u: Array) -> Array:
        """X' u, (n,) -> (d,)."""
        return dot(self.transposed, u)

    def scaled_loops(
        self, root: Array, order: Array, number: Array
    ) -> tuple[Callable, Callable, Callable]:
        """Functions for loops over columns x_j times `root` (n,), of the first `number` of `order`.

        Returns:
            dot_column: (j, t (n,)) -> <root x_j, t>. add_column: (j, c, t, live) -> t + c root x_j;
            it may leave t as it is unless `live`. square: j -> |root x_j|^2.
        """
        x = self.transposed
        if isinstance(x, SparseRows):
            x = _compact(x, root, order, number)
            of_square, _ = row_loops(dataclasses.replace(x, value=x.value * x.value))
            return *row_loops(x), lambda j: of_square(j, jnp.ones_like(root))
        column = lambda j: root * lax.dynamic_index_in_dim(x, j, 0, keepdims=False)
        return (
            lambda j, t: jnp.sum(column(j) * t),
            lambda j, c, t, live: t + c * column(j),
            lambda j: jnp.sum(column(j) ** 2),
        )


@jax.named_scope("compact")
def _compact(x: SparseRows, root: Array, order: Array, number: Array) -> SparseRows:
    """Some packed columns times `root` (n,), without the entries that are 0 then."""
    shape, size = x.value.shape, x.length.shape[0]

    def keep(carry, some):
        place, index, value = carry
        for row, entry in some:
            scaled = entry * row_at(root, row)
            index = put_row(index, place, row.astype(index.dtype))
            value = put_row(value, place, scaled)  # what is not kept is written over, or 0
            place = place + (scaled != 0).astype(jnp.uint32)
        return place, index, value

    def column(k, carry):
        begin, index, value, length, offset = carry
        j = order[k]
        end, index, value = walk_row(x, j, True, keep, (begin, index, value), LANE_WIDTH // 2)
        length = length.at[j].set((end - begin).astype(jnp.int32))
        offset = offset.at[j].set(begin.astype(jnp.int32))
        begin = (end + LANE_WIDTH - 1) // LANE_WIDTH * LANE_WIDTH
        return begin, index, value, length, offset

    flat = lambda dtype: jnp.zeros(x.value.size + LANE_WIDTH, dtype)
    none = jnp.zeros(size, jnp.int32)
    start = jnp.zeros((), jnp.uint32), flat(x.index.dtype), flat(x.value.dtype), none, none
    _, index, value, length, offset = lax.fori_loop(0, number, column, start)
    rows = jnp.arange(size, dtype=jnp.int32)
    shaped = lambda a: a[: x.value.size].reshape(shape)
    return SparseRows(shaped(index), shaped(value), length, x.columns, rows, offset)


def add_columns(add_column: Callable, order: Array, number: Array, v: Array, t: Array) -> Array:
    """t + sum_j v_j x_j over the first `number` of `order`, (n,)."""
    return lax.fori_loop(0, number, lambda k, t: add_column(order[k], v[order[k]], t, True), t)


def listed(mask: Array) -> tuple[Array, Array]:
    """The places where a mask (d,) is true, in front of (d,) int32, and their number."""
    places = jnp.nonzero(mask, size=mask.shape[0], fill_value=0)[0]
    return places.astype(jnp.int32), jnp.sum(mask, dtype=jnp.int32)


def by_columns(x: Rows | Columns, constant: bool) -> Columns:
    """The columns of rows; packed where the rows are sparse and can be packed."""
    if isinstance(x, Columns):
        return x
    if isinstance(x, SparseRows):
        if has_sparse_columns(x):
            return Columns(x, _packed_columns(x, constant))
        dense = x.toarray()
    else:
        dense = x
    ones = [jnp.ones((1, x.shape[0]), x.dtype)] if constant else []
    return Columns(x, jnp.concatenate([dense.T, *ones]))


def has_sparse_columns(x: Rows) -> bool:
    """Whether `by_columns` packs the columns, those of known sparse rows on a CPU."""
    if not isinstance(x, SparseRows):
        return False
    return can_be_packed(x) or (x.offsets is not None and not is_traced(x))


def _packed_columns(x: SparseRows, constant: bool) -> SparseRows:
    """The columns of sparse rows as packed sparse rows, on the host."""
    import scipy.sparse

    index, value, length = listed_entries(x)
    n, d = x.shape
    csc = scipy.sparse.csr_matrix((value, index, np.append(0, np.cumsum(length))), (n, d)).tocsc()
    row, value, length = csc.indices, csc.data, np.diff(csc.indptr)
    if constant:
        row, value = np.append(row, np.arange(n)), np.append(value, np.ones(n, value.dtype))
        length = np.append(length, n)
    return pack_lists(row, value, length, n)
