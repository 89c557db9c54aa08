"""Arithmetic that must be right in float32, and forms that XLA compiles well; the one place that sets precision."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from . import sparse
from .types import Array, SparseRows


def dot(a: Array, b: Array) -> Array:
    """Matrix product in full precision: on accelerators the default rounds the factors to 8 or 11 bits.

    Args:
        a: (n, d) or (d,); (n, d) may be `SparseRows`.
        b: (d, m) or (d,); (d, m) may be `SparseRows`, the other factor must then be dense.
    """
    if isinstance(a, SparseRows):
        return sparse.gather(a, b, jnp.multiply) if a.rows is None or b.ndim > 1 else sparse.scores(a, b)
    if isinstance(b, SparseRows):
        return sparse.scatter(a, b) if b.rows is None or a.ndim > 1 else sparse.added(jnp.zeros(b.columns, a.dtype), a, b)
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def add_rows(w: Array, coef: Array, x: Array) -> Array:
    """w + sum_i coef_i x_i, (d,), (b,), (b, d) -> (d,); only the columns that sparse rows name are touched."""
    if isinstance(x, SparseRows) and x.rows is not None:
        return sparse.added(w, coef, x)
    if isinstance(x, SparseRows):
        return w.at[x.index].add(coef[:, None] * x.value, mode="promise_in_bounds")
    return w + dot(coef, x)


def inner(x: Array, z: Array) -> Array:
    """Products of rows, (n, d), (m, d) -> (n, m); either may be `SparseRows`, nothing of size m d or n d is made of them."""
    if not isinstance(x, SparseRows) and not isinstance(z, SparseRows):
        # One row against many is a matrix times a vector: written otherwise, XLA turns the matrix round in a slow loop.
        return dot(z, x[0])[None, :] if x.shape[0] == 1 else dot(x, z.T)
    return _pairs(_wide(x), _wide(z), jnp.multiply)


def l1_distances(x: Array, z: Array) -> Array:
    """sum_c |x_c - z_c| of rows, (n, d), (m, d) -> (n, m), one column at a time."""
    if isinstance(x, SparseRows) or isinstance(z, SparseRows):
        # Columns that a row does not name add |z_c|: all of them are taken, and the named ones put right.
        size = lambda a: jnp.sum(jnp.abs(a.taken().value if isinstance(a, SparseRows) else a), axis=1)  # noqa: E731
        named = _pairs(x, z, lambda v, w: jnp.abs(v - w) - jnp.abs(v) - jnp.abs(w))
        return jnp.maximum(size(x)[:, None] + size(z)[None, :] + named, 0)
    zero = jnp.zeros((x.shape[0], z.shape[0]), x.dtype)
    column = lambda total, pair: (total + jnp.abs(pair[0][:, None] - pair[1][None, :]), None)  # noqa: E731
    return lax.scan(column, zero, (x.T, z.T))[0]


def _wide(x: Array) -> Array:
    """Rows in the dtype of sums over them, sparse ones as arrays of their own."""
    return (x.taken() if isinstance(x, SparseRows) else x).astype(wide(x))


_DENSE = 2**24  # numbers, of the block of sparse rows that is made dense at a time


def _pairs(x: Array, z: Array, fn: Callable) -> Array:
    """sum_c fn(x_ic, z_jc) over the columns c that sparse rows name, for symmetric fn with fn(0, .) = 0; (n, m)."""
    if not isinstance(x, SparseRows):
        return sparse.gather(z, x.T, fn).T
    if not isinstance(z, SparseRows):
        return sparse.gather(x, z.T, fn)
    x, z = x.taken(), z.taken()
    if x.shape[0] > z.shape[0]:
        return _pairs(z, x, fn).T
    return blocked(lambda rows: sparse.gather(z, rows.toarray().T, fn).T, x, max(1, _DENSE // x.columns))


def wide(x: Array) -> jnp.dtype:
    """The dtype for sums and coefficients over `x`: its own, float32 at least."""
    return x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def sqnorms(x: Array) -> Array:
    """Squared norms of rows, (n, d) -> (n,)."""
    x = x.astype(wide(x))
    x = x.taken().value if isinstance(x, SparseRows) else x
    return jnp.einsum("nd,nd->n", x, x, precision=lax.Precision.HIGHEST)


def sqdist(x: Array, z: Array) -> Array:
    """Squared distances of rows, (n, d), (m, d) -> (n, m), by one matrix product; never negative."""
    x, z = x.astype(wide(x)), z.astype(wide(z))
    return jnp.maximum(sqnorms(x)[:, None] + sqnorms(z)[None, :] - 2 * inner(x, z), 0)


def count(mask: Array) -> Array:
    """How many are true, as an int32 also where 64-bit numbers are on."""
    return jnp.sum(mask, dtype=jnp.int32)


def total(counts: Array) -> Array:
    """The sum of (k,) int32 >= 0, the largest int32 where it does not fit one."""
    high, low = jnp.sum(counts >> 16, dtype=jnp.int32), jnp.sum(counts & 0xFFFF, dtype=jnp.int32)
    high = high + (low >> 16)
    return jnp.where(high < 2**15, (high << 16) + (low & 0xFFFF), jnp.iinfo(jnp.int32).max)


def norm(w: Array) -> Array:
    """Euclidean norm of a vector, with gradient 0 at 0; by a product, which compiles to better loops than a sum."""
    square = dot(w, w)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, jnp.ones_like(square))), jnp.zeros_like(square))


def two_sum(total: Array, lost: Array, term: Array) -> tuple[Array, Array]:
    """Compensated addition: `total + lost` stands for the sum, `lost` for what rounding took from `total`.

    The error of a sum of any number of terms stays at a few units in the last place (Kahan; Neumaier 1974).
    """
    term = term + lost
    new = total + term
    part = new - total
    return new, (total - (new - part)) + (term - part)


def put(a: Array, index: Array, values: Array) -> Array:
    """`a` with `a[index] = values`, in place inside a loop that writes first and only reads afterwards.

    Args:
        a: (n,).
        index: (b,) in [0, n); repeated indices must carry equal values.
        values: (b,).
    """
    if index.shape[0] == 1:  # a slice update, not a scatter: XLA keeps loops of slices together
        return lax.dynamic_update_slice_in_dim(a, values, index[0], 0)
    return a.at[index].set(values, mode="promise_in_bounds")


def pick(a: Array, index: Array) -> Array:
    """`a[index]` for (b,) indices in [0, n)."""
    if index.shape[0] == 1:
        return lax.dynamic_slice_in_dim(a, index[0], 1)
    return a.at[index].get(mode="promise_in_bounds")


def at(a: Array, i: Array) -> Array:
    """`a[i]` for one i in [0, n): a number of (n,), a row of (n, d)."""
    return lax.dynamic_index_in_dim(a, i, keepdims=False)


def _halved(a: Array, fn: Callable) -> Array:
    """A vector folded in halves, for `fn` that may see a number twice: XLA's own reductions take one after the other."""
    while a.shape[0] > 16:
        half = -(-a.shape[0] // 2)
        a = fn(a[:half], a[a.shape[0] - half :])
    return a


def greatest(a: Array) -> Array:
    """max of (n,), several times as fast as `jnp.max` on a CPU."""
    return jnp.max(_halved(a, jnp.maximum))


def least(a: Array) -> Array:
    """min of (n,), as `greatest`."""
    return jnp.min(_halved(a, jnp.minimum))


def first_max(a: Array) -> tuple[Array, Array]:
    """The first place of the maximum of (n,), int32, and the maximum: `jnp.argmax` without its pace on a CPU.

    Where there is none (nan), the last place.
    """
    top, n = greatest(a), a.shape[0]
    place = least(jnp.where(a == top, lax.iota(jnp.int32, n), n - 1))
    return place, top


def largest(a: Array, k: int) -> Array:
    """The places of the k largest of (n,), int32, in order.

    The barrier keeps what follows from being merged into it: XLA then sorts all of `a`, in thirty times the time.
    """
    return lax.optimization_barrier(lax.top_k(a, k))[1]


def blocked(fn: Callable, x: Array, block: int) -> Array:
    """`fn` over the rows of `x` in blocks, so that its temporaries stay bounded.

    Args:
        fn: (block, d) -> (block, ...), row by row.
        x: (n, d), or `SparseRows`.
        block: rows at a time at most, > 0.

    Returns:
        (n, ...)
    """
    n = x.shape[0]
    if n <= block:
        return fn(x)
    x = x.taken() if isinstance(x, SparseRows) else x
    count = -(-n // block)
    block = -(-n // count)  # blocks of one size, which where they fit exactly need no copy in the end
    # The last block reaches back instead of being padded: padding would copy x.
    starts = jnp.minimum(jnp.arange(count, dtype=jnp.int32) * block, n - block)
    part = lambda start: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, block), x)  # noqa: E731
    parts = lax.map(lambda start: fn(part(start)), starts)
    if count * block == n:
        return parts.reshape((-1,) + parts.shape[2:])
    whole = parts[:-1].reshape((-1,) + parts.shape[2:])
    return jnp.concatenate([whole, parts[-1][count * block - n :]])


def golden_section(value: Callable, low: Array, high: Array, steps: int) -> Array:
    """The maximiser of a function with one maximum on [low, high], to 0.618^steps of the interval, one search an element.

    The better end of the last interval; the left part is kept where two values are equal.

    Args:
        value: (...,) -> (...,), finite at `low`; it may be -inf from some point on.
        low: (...,).
        high: (...,).
        steps: whole number, structure.
    """
    ratio = (5**0.5 - 1) / 2

    def narrow(_, ends):
        low, high = ends
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        leftwards = value(left) >= value(right)
        return jnp.where(leftwards, low, left), jnp.where(leftwards, right, high)

    low, high = lax.fori_loop(0, steps, narrow, (low, high))
    return jnp.where(value(high) >= value(low), high, low)


def mix(bits: Array) -> Array:
    """A 32-bit integer hash (the finaliser of MurmurHash3): every input bit moves every output bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper 32 bits of the 64-bit product of two uint32 arrays, without 64-bit integers."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    return a_high * b_high + (middle >> 16) + ((middle & 0xFFFF) + a_low * b_high >> 16)


def is_traced(*trees) -> bool:
    """Whether any leaf is abstract, or the call itself is being traced."""
    leaves = jax.tree.leaves(trees) + [jnp.zeros(())]
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
