"""Sums, extremes and places of vectors, right in float32 and in forms that XLA compiles well."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..types import Array
from .products import dot

BLOCK = 128  # numbers that are looked through for one row


def count(mask: Array) -> Array:
    """How many are true, as an int32 also where 64-bit numbers are on."""
    return pairwise_sum(jnp.ravel(mask).astype(jnp.int32)).astype(jnp.int32)


def pairwise_sum(a: Array) -> Array:
    """The sum of (n,), folded in halves: several times as fast as `jnp.sum` on a CPU, and less of it is lost in rounding."""
    n = a.shape[0]
    folds = max((n - 1).bit_length() - 8, 0)  # to at most 256 numbers
    whole = n >> folds << folds
    a, rest = a[:whole], a[whole:]
    for _ in range(folds):
        half = a.shape[0] // 2
        a = a[:half] + a[half:]
    return jnp.sum(a) + jnp.sum(rest) if n > whole else jnp.sum(a)


def sample_proportional(share: Array, u: Array) -> Array:
    """Rows in proportion to a share, by the inverse of its cumulative sum, block by block.

    Args:
        share: (n,) >= 0, not all 0.
        u: (b,) in [0, 1).

    Returns:
        (b,) int32, rows whose share is above 0.
    """
    share, u = lax.stop_gradient((share, u))
    blocks = jnp.pad(share, (0, -share.shape[0] % BLOCK)).reshape(-1, BLOCK)
    ends = jnp.cumsum(dot(blocks, jnp.ones(BLOCK, share.dtype)))
    below = lambda target, end: jnp.clip(target, 0, jnp.nextafter(end, jnp.zeros_like(end)))  # noqa: E731

    def one(u):
        target = below(u * ends[-1], ends[-1])
        block = count(ends <= target)
        inside = jnp.cumsum(index_row(blocks, block))
        left = below(target - jnp.where(block > 0, index_row(ends, jnp.maximum(block - 1, 0)), 0), inside[-1])
        return block * BLOCK + count(inside <= left)

    return jax.vmap(one)(u)


def norm(w: Array) -> Array:
    """Euclidean norm of a vector, with gradient 0 at 0; by a product, which compiles to better loops than a sum."""
    square = dot(w, w)
    return jnp.where(square == 0, jnp.zeros_like(square), jnp.sqrt(jnp.where(square == 0, jnp.ones_like(square), square)))


def two_sum(total: Array, lost: Array, term: Array) -> tuple[Array, Array]:
    """Compensated addition: `total + lost` stands for the sum, `lost` for what rounding took from `total`.

    The error of a sum of any number of terms stays at a few units in the last place (Kahan; Neumaier 1974).
    """
    term = term + lost
    new = total + term
    part = new - total
    return new, (total - (new - part)) + (term - part)


def scatter_set(a: Array, index: Array, values: Array) -> Array:
    """`a` with `a[index] = values`, in place inside a loop that writes first and only reads afterwards.

    Args:
        a: (n,).
        index: (b,) in [0, n); repeated indices must carry equal values.
        values: (b,).
    """
    if index.shape[0] == 1:  # a slice update, not a scatter: XLA keeps loops of slices together
        return lax.dynamic_update_slice_in_dim(a, values, index[0], 0)
    return a.at[index].set(values, mode="promise_in_bounds")


def gather(a: Array, index: Array) -> Array:
    """`a[index]` for (b,) indices in [0, n)."""
    if index.shape[0] == 1:
        return lax.dynamic_slice_in_dim(a, index[0], 1)
    return a.at[index].get(mode="promise_in_bounds")


def index_row(a: Array, i: Array) -> Array:
    """`a[i]` for one i in [0, n): a number of (n,), a row of (n, d)."""
    return lax.dynamic_index_in_dim(a, i, keepdims=False)


def _halved(a: Array, fn: Callable) -> Array:
    """A vector folded in halves, for `fn` that may see a number twice: XLA's own reductions take one after the other."""
    while a.shape[0] > 16:
        half = -(-a.shape[0] // 2)
        a = fn(a[:half], a[a.shape[0] - half :])
    return a


def fast_max(a: Array) -> Array:
    """max of (n,), several times as fast as `jnp.max` on a CPU."""
    return jnp.max(_halved(a, jnp.maximum))


def fast_min(a: Array) -> Array:
    """min of (n,), as `greatest`."""
    return jnp.min(_halved(a, jnp.minimum))


def argmax_value(a: Array) -> tuple[Array, Array]:
    """The first place of the maximum of (n,), int32, and the maximum: `jnp.argmax` without its pace on a CPU.

    Where there is none (nan), the last place.
    """
    top, n = fast_max(a), a.shape[0]
    place = fast_min(jnp.where(a == top, lax.iota(jnp.int32, n), n - 1))
    return place, top


def top_k_index(a: Array, k: int) -> Array:
    """The places of the k largest of (n,), int32, in order.

    The barrier keeps what follows from being merged into it: XLA then sorts all of `a`, in thirty times the time.
    """
    return lax.optimization_barrier(lax.top_k(a, k))[1]


def is_traced(*trees) -> bool:
    """Whether any leaf is abstract, or the call itself is being traced."""
    leaves = jax.tree.leaves(trees) + [jnp.zeros(())]
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
