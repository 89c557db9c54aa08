"""Products of rows in full precision, in blocks where they are large."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..types import Array, SparseRows, State
from . import sparse_products
from .sharding import on_one_device, shards, split_rows


def dot(a: Array | SparseRows, b: Array | SparseRows) -> Array:
    """The matrix product in full precision.

    On accelerators the default rounds the factors to 8 or 11 bits.

    Args:
        a: (n, d) or (d,); (n, d) may be `SparseRows`.
        b: (d, m) or (d,); (d, m) may be `SparseRows`, the other factor must then be dense.
    """
    if isinstance(a, SparseRows):
        if a.rows is None or b.ndim > 1:
            return sparse_products.gather(a, b, jnp.multiply)
        return sparse_products.scores(a, b)
    if isinstance(b, SparseRows):
        if b.rows is None or a.ndim > 1:
            return sparse_products.scatter(a, b)
        return sparse_products.added(jnp.zeros(b.columns, a.dtype), a, b)
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def add_rows(w: Array, coef: Array, x: Array | SparseRows) -> Array:
    """The sum w + sum_i coef_i x_i, (d,), (b,), (b, d) -> (d,).

    Sparse rows change only the columns that they name.
    """
    if isinstance(x, SparseRows):
        return sparse_products.added(w, coef, sparse_products.referenced(x))
    if x.shape[0] == 1:  # elementwise, which XLA fuses; its products of one row are slow
        return w + coef[0] * x[0]
    return w + dot(coef, x)


def cross_products(x: Array | SparseRows, z: Array | SparseRows) -> Array:
    """Inner products of rows, (n, d), (m, d) -> (n, m).

    Either may be `SparseRows`, of which no dense copy is made.
    """
    if not isinstance(x, SparseRows) and not isinstance(z, SparseRows):
        # One row against many as a matrix-vector product: otherwise XLA transposes the matrix in a
        # slow loop.
        return dot(z, x[0])[None, :] if x.shape[0] == 1 else dot(x, z.T)
    return _pairs(_materialized(x), _materialized(z), jnp.multiply)


def differences(x: Array | SparseRows, b: int) -> Array | SparseRows:
    """The rows x_i - x_{i+b} for the first b of 2 b rows."""
    if not isinstance(x, SparseRows):
        return x[:b] - x[b:]
    x = x.materialize()
    in_row = jnp.arange(x.value.shape[1], dtype=jnp.int32)[None, :] < x.length[:, None]
    index = jnp.where(in_row, x.index, x.columns)  # padding last
    index = jnp.concatenate([index[:b], index[b:]], axis=1)
    value = jnp.concatenate([x.value[:b], -x.value[b:]], axis=1)
    index, value = lax.sort_key_val(index, value)
    # a column of both rows occurs twice: the first entry becomes the sum, the second padding
    is_second = jnp.pad(index[:, 1:] == index[:, :-1], ((0, 0), (1, 0)))
    second = jnp.where(is_second, value, 0)
    value = jnp.where(is_second, 0, value) + jnp.pad(second[:, 1:], ((0, 0), (0, 1)))
    index, value = lax.sort_key_val(jnp.where(is_second, x.columns, index), value)
    is_entry = index < x.columns
    length = jnp.sum(is_entry, axis=1, dtype=jnp.int32)
    return SparseRows(jnp.where(is_entry, index, 0), value, length, x.columns)


def l1_distances(x: Array | SparseRows, z: Array | SparseRows) -> Array:
    """sum_c |x_c - z_c| of rows, (n, d), (m, d) -> (n, m), one column at a time."""
    if isinstance(x, SparseRows) or isinstance(z, SparseRows):
        # A column that x does not name contributes |z_c|: sum over all columns, then correct the
        # named ones.
        values = lambda a: a.materialize().value if isinstance(a, SparseRows) else a
        l1_norm = lambda a: jnp.sum(jnp.abs(values(a)), axis=1)
        correction = _pairs(x, z, lambda v, w: jnp.abs(v - w) - jnp.abs(v) - jnp.abs(w))
        total_size = l1_norm(x)[:, None] + l1_norm(z)[None, :]
        # Between equal rows only rounding is left.
        return above_rounding(total_size + correction, total_size, x.shape[1])
    return _by_column(lambda v, w: jnp.abs(v - w), x, z)


def chi2_distances(x: Array | SparseRows, z: Array | SparseRows) -> Array:
    """sum_c (x_c - z_c)^2 / (x_c + z_c) of rows, (n, d), (m, d) -> (n, m), 0 / 0 as 0."""
    if isinstance(x, SparseRows) or isinstance(z, SparseRows):
        # (v - w)^2 / (v + w) = v + w - 4 v w / (v + w)
        total = row_sums(x)[:, None] + row_sums(z)[None, :]
        return above_rounding(total - 2 * harmonic_sums(x, z), total, x.shape[1])
    return _by_column(lambda v, w: jnp.abs(v - w) * _ratio(jnp.abs(v - w), v + w), x, z)


def row_sums(x: Array | SparseRows) -> Array:
    """The sums of rows, (n, d) -> (n,)."""
    return jnp.sum(x.materialize().value if isinstance(x, SparseRows) else x, axis=1)


def harmonic_sums(x: Array | SparseRows, z: Array | SparseRows) -> Array:
    """sum_c 2 x_c z_c / (x_c + z_c) of rows, (n, d), (m, d) -> (n, m), 0 / 0 as 0."""
    # without the product of both, which may underflow
    harmonic = lambda v, w: 2 * jnp.minimum(v, w) * _ratio(jnp.maximum(v, w), v + w)
    if isinstance(x, SparseRows) or isinstance(z, SparseRows):
        return _pairs(x, z, harmonic)
    return _by_column(harmonic, x, z)


def _ratio(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0, with derivatives 0 there."""
    return jnp.where(b == 0, 0, a / jnp.where(b == 0, 1, b))


def _by_column(fn: Callable, x: Array, z: Array) -> Array:
    """sum_c fn(x_c, z_c) of rows, (n, d), (m, d) -> (n, m), one column at a time."""
    dtype = jnp.promote_types(accum_dtype(x), accum_dtype(z))
    zero = jnp.zeros((x.shape[0], z.shape[0]), dtype)
    column = lambda total, pair: (total + fn(pair[0][:, None], pair[1][None, :]), None)
    return lax.scan(column, zero, (x.astype(dtype).T, z.astype(dtype).T))[0]


def _materialized(x: Array | SparseRows) -> Array | SparseRows:
    """Rows in the dtype of sums over them; sparse rows are materialized."""
    return (x.materialize() if isinstance(x, SparseRows) else x).astype(accum_dtype(x))


_DENSE = 2**24  # entries of the block of sparse rows that is made dense at once


def _pairs(x: Array | SparseRows, z: Array | SparseRows, fn: Callable) -> Array:
    """The sums (n, m) of fn(x_ic, z_jc) over the columns c that sparse rows name.

    `fn` is symmetric, with fn(0, .) = 0.
    """
    if not isinstance(x, SparseRows):
        return _pairs(z, x, fn).T
    if not isinstance(z, SparseRows):
        return sparse_products.gather(x, z.T, fn)
    x, z = x.materialize(), z.materialize()
    if x.shape[0] > z.shape[0]:
        return _pairs(z, x, fn).T
    of_block = lambda rows: sparse_products.gather(z, rows.toarray().T, fn).T
    return blocked(of_block, x, max(1, _DENSE // x.columns))


def accum_dtype(x: Array | SparseRows) -> jnp.dtype:
    """The dtype for sums and coefficients over `x`: that of `x`, at least float32."""
    return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def rounding(columns: int, dtype: jnp.dtype) -> float:
    """The relative error of a distance computed as a sum minus a product over `columns` columns."""
    return float(jnp.finfo(dtype).eps) * (4 + 2 * columns**0.5)


def above_rounding(distance: Array, total: Array, columns: int) -> Array:
    """Distances computed from sums `total`, elementwise; exactly 0 below the rounding error.

    Where the sum is not finite they are unchanged: a NaN must not become 0.
    """
    is_above = distance > rounding(columns, distance.dtype) * total
    return jnp.where(is_above | ~(total < jnp.inf), distance, 0)


def sqnorms(x: Array | SparseRows) -> Array:
    """Squared norms of rows, (n, d) -> (n,)."""
    x = x.astype(accum_dtype(x))
    if isinstance(x, SparseRows) and x.rows is not None and x.offsets is not None:
        return dot(dataclasses.replace(x, value=x.value**2), jnp.ones(x.columns, x.dtype))
    x = x.materialize().value if isinstance(x, SparseRows) else x
    if isinstance(x, np.ndarray):  # on the host, where nothing is compiled
        return np.einsum("nd,nd->n", x, x)
    return jnp.einsum("nd,nd->n", x, x, precision=lax.Precision.HIGHEST)


def blocked(fn: Callable, x: Array | SparseRows, block: int) -> Array:
    """The values of `fn` over the rows of `x`, computed in blocks.

    Blocks bound the memory of temporaries.

    Args:
        fn: (block, d) -> (block, ...), row by row.
        x: (n, d), or `SparseRows`.
        block: maximum number of rows per block, > 0.

    Returns:
        (n, ...)
    """
    n = x.shape[0]
    if n <= block:
        return fn(x)
    x = x.materialize() if isinstance(x, SparseRows) else x
    if (k := shards(n)) > 1:  # blocks within each shard, of all shards at once
        each = on_one_device(lambda part: blocked(fn, part, max(1, block // k)))
        parts = jax.vmap(each)(jax.tree.map(lambda a: split_rows(a, k), x))
        return parts.reshape(n, *parts.shape[2:])
    count = -(-n // block)
    block = -(-n // count)  # blocks of equal size; an exact fit needs no copy at the end
    # The last block overlaps the one before it; padding would copy x.
    starts = jnp.minimum(jnp.arange(count, dtype=jnp.int32) * block, n - block)
    block_at = lambda start: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, block), x)

    def write(values, start):  # in place, as joining the blocks would hold all values twice
        return lax.dynamic_update_slice_in_dim(values, fn(block_at(start)), start, 0), None

    types = jax.eval_shape(fn, jax.eval_shape(block_at, starts[0]))
    return lax.scan(write, jnp.zeros((n, *types.shape[1:]), types.dtype), starts)[0]


def fold_rows(fn: Callable, total: object, rows: object, block: int) -> State:
    """The value of `fn` after all rows, which it receives in blocks.

    Args:
        fn: (total, rows (b, ...), is_new (b,) bool) -> total. Rows that are not new were in the
            block before, too.
        total: the value before the first row, a pytree.
        rows: a pytree of arrays (n, ...) or `SparseRows`.
        block: maximum number of rows per block, > 0.
    """
    is_sparse = lambda part: isinstance(part, SparseRows)
    plain = lambda part: part.materialize() if is_sparse(part) else part
    rows = jax.tree.map(plain, rows, is_leaf=is_sparse)
    n = jax.tree.leaves(rows)[0].shape[0]
    count = max(-(-n // block), 1)
    size = -(-n // count)

    def add(i, total):
        # the last block overlaps the one before it
        start = jnp.minimum(i * size, n - size)
        part = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, size), rows)
        return fn(total, part, start + jnp.arange(size, dtype=jnp.int32) >= i * size)

    if count == 1:
        return fn(total, rows, jnp.ones(n, bool))
    return lax.fori_loop(0, count, add, total)
