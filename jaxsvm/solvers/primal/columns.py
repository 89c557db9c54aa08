"""Rows read by column: what steps of `proximal_newton` do with all columns, or with some of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...numerics import dot, is_traced, pack_rows, row_loops, shards
from ...types import LANE_WIDTH, Array, Batch, SparseRows


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("transposed",), meta_fields=()
)
@dataclasses.dataclass(frozen=True)
class Columns:
    """The transpose of rows, (d, n), with the constant 1 as its last row where there is a bias."""

    transposed: Array | SparseRows  # sparse: packed and by reference

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        columns, rows = self.transposed.shape
        return rows, columns

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.transposed.dtype

    def scores(self, v: Array) -> Array:
        """X v, (d,) -> (n,), from the columns with v_j != 0 alone."""
        _, add_column = row_loops(self.transposed)
        order, size = listed(v != 0)

        def add(k, total):
            j = order[k]
            return add_column(j, v[j], total, True)

        return lax.fori_loop(0, size, add, jnp.zeros(self.shape[0], v.dtype))

    def products(self, u: Array) -> Array:
        """X' u, (n,) -> (d,)."""
        return dot(self.transposed, u)

    def scaled_loops(self, root: Array) -> tuple[Callable, Callable, Callable]:
        """Functions for loops over columns x_j times `root` (n,).

        Returns:
            dot_column: (j, t (n,)) -> <root x_j, t>. add_column: (j, c, t, live) -> t + c root x_j;
            it may leave t as it is unless `live`. square: j -> |root x_j|^2.
        """
        x = self.transposed
        if isinstance(x, SparseRows):
            value = x.value * root.at[x.index].get(mode="promise_in_bounds")
            dot_column, add_column = row_loops(dataclasses.replace(x, value=value))
            of_square, _ = row_loops(dataclasses.replace(x, value=value * value))
            ones = jnp.ones_like(root)
            return dot_column, add_column, lambda j: of_square(j, ones)
        column = lambda j: root * lax.dynamic_index_in_dim(x, j, 0, keepdims=False)
        return (
            lambda j, t: jnp.sum(column(j) * t),
            lambda j, c, t, live: t + c * column(j),
            lambda j: jnp.sum(column(j) ** 2),
        )


def listed(mask: Array) -> tuple[Array, Array]:
    """The places where a mask (d,) is true, in front of (d,) int32, and their number."""
    places = jnp.nonzero(mask, size=mask.shape[0], fill_value=0)[0]
    return places.astype(jnp.int32), jnp.sum(mask, dtype=jnp.int32)


def by_columns(x: Any, constant: bool) -> Columns:
    """The columns of rows; packed where the rows are sparse and can be packed."""
    if isinstance(x, Columns):
        return x
    if isinstance(x, SparseRows):
        packable = not is_traced(x) and pack_rows(x) is not None
        if packable:
            return Columns(_packed_columns(x, constant))
        x = x.toarray()
    ones = [jnp.ones((1, x.shape[0]), x.dtype)] if constant else []
    return Columns(jnp.concatenate([x.T, *ones]))


def layout_of(constant: bool, most: int) -> Callable:
    """The layout (data) -> data, by columns for rows of more than `most` columns."""

    def layout(data: Batch) -> Batch:
        if data.x.shape[1] + constant <= most or shards(data.y.shape[0]) > 1:
            return data
        return data._replace(x=by_columns(data.x, constant))

    return layout


def _packed_columns(x: SparseRows, constant: bool) -> SparseRows:
    """The columns of sparse rows as packed sparse rows, on the host."""
    stored = np.arange(x.value.shape[1]) < np.asarray(x.length)[:, None]
    row, column, value = (
        np.nonzero(stored)[0],
        np.asarray(x.index)[stored],
        np.asarray(x.value)[stored],
    )
    n, d = x.shape
    if constant:
        row, column = np.append(row, np.arange(n)), np.append(column, np.full(n, d))
        value, d = np.append(value, np.ones(n, value.dtype)), d + 1
    order = np.argsort(column, kind="stable")
    length = np.bincount(column, minlength=d)
    room = -(-length // LANE_WIDTH) * LANE_WIDTH
    start, offset = np.cumsum(length) - length, np.cumsum(room) - room
    place = np.repeat(offset - start, length) + np.arange(row.size)
    width = max(int(room.max(initial=0)), LANE_WIDTH)
    total = -(-int(room.sum()) // 4096) * 4096  # few shapes, and so few programs
    shape = (-(-max(total, width) // width), width)
    index = np.zeros(shape, np.uint16 if n <= 2**16 else np.int32)
    flat = np.zeros(shape, value.dtype)
    index.reshape(-1)[place], flat.reshape(-1)[place] = row[order], value[order]
    whole = lambda a: jnp.asarray(a, jnp.int32)
    return SparseRows(
        jnp.asarray(index), jnp.asarray(flat), whole(length), n, whole(np.arange(d)), whole(offset)
    )
