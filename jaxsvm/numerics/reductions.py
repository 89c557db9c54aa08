"""Sums, extremes and indices of vectors.

They are accurate in float32 and in forms that XLA compiles well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import get_opaque_trace_state
from jax.sharding import PartitionSpec

from ..types import Array
from .products import dot
from .sharding import ROWS, map_shards, on_one_device, shards
from .tangents import tangents_of

SHORT = 1024  # entries of vectors up to which one loop reduces several
BLOCK = 128  # entries that are searched linearly for one sample


def count(mask: Array) -> Array:
    """The number of true entries, () int32 even if 64-bit types are enabled."""
    return pairwise_sum(jnp.ravel(mask).astype(jnp.int32)).astype(jnp.int32)


def fold(sums: Any, highs: Any = (), lows: Any = ()) -> tuple[Array, ...]:
    """The sums, maxima and minima of arrays over their first axis, without derivatives.

    One loop makes all, and compiles as fast as one of them. It is sequential: not for hot loops.
    Sums are compensated; on several shards the results of each are reduced once more.
    """
    arrays = lax.stop_gradient((*sums, *highs, *lows))
    kinds = [jnp.add] * len(sums) + [jnp.maximum] * len(highs) + [jnp.minimum] * len(lows)
    starts = {jnp.add: 0, jnp.maximum: -jnp.inf, jnp.minimum: jnp.inf}
    with_zeros = lambda arrays: tuple((a, jnp.zeros_like(a)) for a in arrays)

    def join(kind: Any, a: tuple, b: tuple) -> tuple:
        """A value and its rounding error from two of them."""
        return two_sum(a[0], a[1] + b[1], b[0]) if kind is jnp.add else (kind(a[0], b[0]), a[1])

    def reduced(*arrays: Array) -> tuple:
        first = with_zeros(
            jnp.asarray(starts[k], a.dtype) for k, a in zip(kinds, arrays, strict=True)
        )
        ends = lax.reduce(with_zeros(arrays), first, lambda *ab: tuple(map(join, kinds, *ab)), (0,))
        return tuple(a if a.dtype.kind == "i" else a + rounding for a, rounding in ends)

    if shards(arrays[0].shape[0]) == 1:
        return reduced(*arrays)
    return tuple(k.reduce(a) for k, a in zip(kinds, map_shards(reduced, *arrays), strict=True))


def sums(terms: Any, sizes: Any = ()) -> tuple[Array, ...]:
    """The sums of vectors of one length, then the maxima of others, without derivatives.

    Those of short ones are made by one loop, which compiles sooner.
    """
    if terms[0].shape[0] <= SHORT:
        return fold(terms, sizes)
    return *map(jnp.sum, terms), *map(fast_max, sizes)


def pairwise_sum(a: Array) -> Array:
    """The sum of (n,) by pairwise folding.

    It is several times as fast as `jnp.sum` on a CPU, with a smaller rounding error.
    """
    k = shards(a.shape[0])
    a = a if k == 1 else a.reshape(k, -1)  # each shard by itself
    n = a.shape[-1]
    folds = max((n - 1).bit_length() - 8, 0)  # to at most 256 numbers
    foldable = n >> folds << folds
    a, tail = a[..., :foldable], a[..., foldable:]
    for _ in range(folds):
        half = a.shape[-1] // 2
        a = a[..., :half] + a[..., half:]
    return jnp.sum(a) + jnp.sum(tail) if n > foldable else jnp.sum(a)


@tangents_of(pairwise_sum)
def total(a: Array) -> Array:
    """The sum of (n,), by one loop where it is short, which compiles sooner."""
    return fold((a,))[0] if a.shape[0] <= SHORT else pairwise_sum(a)


def sample_proportional(share: Array, u: Array) -> Array:
    """Random rows with probabilities proportional to `share`.

    They are drawn by inversion of its cumulative sum in blocks.

    Args:
        share: (n,) >= 0, not all 0.
        u: (b,) uniform random numbers in [0, 1).

    Returns:
        (b,) int32, rows of positive share.
    """
    share, u = lax.stop_gradient((share, u))
    if (k := shards(share.shape[0])) > 1:
        return _sample_on_shards(share, u, k)
    blocks, ends = _blocks_and_ends(share)
    return jax.vmap(lambda u: _search_blocks(blocks, ends, _below(u * ends[-1], ends[-1])))(u)


def _blocks_and_ends(share: Array) -> tuple[Array, Array]:
    """The shares in blocks, and their cumulative sum at the end of each block."""
    blocks = jnp.pad(share, (0, -share.shape[0] % BLOCK)).reshape(-1, BLOCK)
    return blocks, jnp.cumsum(dot(blocks, jnp.ones(BLOCK, share.dtype)))


def _below(target: Array, end: Array) -> Array:
    """The target, clipped to [0, end)."""
    return jnp.clip(target, 0, jnp.nextafter(end, jnp.zeros_like(end)))


def _search_blocks(blocks: Array, ends: Array, target: Array) -> Array:
    """The first row at which the cumulative sum of the shares exceeds the target."""
    block = count(ends <= target)
    within = jnp.cumsum(index_row(blocks, block))
    before = jnp.where(block > 0, index_row(ends, jnp.maximum(block - 1, 0)), 0)
    remainder = _below(target - before, within[-1])
    return block * BLOCK + count(within <= remainder)


def _sample_on_shards(share: Array, u: Array, k: int) -> Array:
    """`sample_proportional` in two levels: a shard by the sums of all, then a row of that shard.

    Masked sums over the shards are all-reduces, of k numbers and of b.
    """
    blocks, ends = map_shards(_blocks_and_ends, share)
    sums = jnp.sum(jnp.where(jnp.eye(k, dtype=bool), ends[:, -1:], 0), axis=0)
    shard_ends = jnp.cumsum(sums)
    starts = jnp.concatenate([jnp.zeros_like(sums[:1]), shard_ends[:-1]])
    target = _below(u * shard_ends[-1], shard_ends[-1])
    drawn = jnp.sum((shard_ends[None, :] <= target[:, None]).astype(jnp.int32), axis=1)

    def search(shard, blocks, ends):
        within = _below(target - starts[shard], ends[-1])
        row = jax.vmap(lambda target: _search_blocks(blocks, ends, target))(within)
        return jnp.where(drawn == shard, shard * (share.shape[0] // k) + row, 0)

    rows = jax.vmap(on_one_device(search))(jnp.arange(k, dtype=jnp.int32), blocks, ends)
    return jnp.sum(rows, axis=0)


def norm(w: Array) -> Array:
    """The Euclidean norm of a vector, with gradient 0 at 0.

    It is computed by a dot product, which compiles to faster loops than a sum.
    """
    square = dot(w, w)
    root = jnp.sqrt(jnp.where(square == 0, jnp.ones_like(square), square))
    return jnp.where(square == 0, jnp.zeros_like(square), root)


def rounding_of_sums(coef: Array, diag: Array) -> Array:
    """The rounding error of the sums (K coef)_i that is to be expected, (), without derivatives.

    It is that of kernel values k(x_i, x_j) of at most sqrt(k(x_i, x_i) k(x_j, x_j)), each with a
    random error of half a unit in the last place.

    Args:
        coef: (n,) coefficients.
        diag: (n,) values k(x_i, x_i).
    """
    coef, diag = lax.stop_gradient((coef, jnp.abs(diag)))
    return rounding_of(jnp.max(diag), dot(coef * diag, coef))


def rounding_of(largest: Array, square: Array) -> Array:
    """`rounding_of_sums` by the largest |k(x_i, x_i)| and sum_i coef_i^2 |k(x_i, x_i)|."""
    return jnp.finfo(square.dtype).eps / 2 * jnp.sqrt(largest) * jnp.sqrt(square)


def balanced(coef: Array) -> Array:
    """The coefficients (n,) with the side of larger sum scaled down: their sum is 0.

    Every bound that has 0 inside is respected.
    """
    up, down = jnp.sum(jnp.maximum(coef, 0)), jnp.sum(jnp.maximum(-coef, 0))
    least = jnp.minimum(up, down)
    factor = lambda side: least / jnp.where(side > 0, side, 1)
    return jnp.where(coef > 0, coef * factor(up), coef * factor(down))


def two_sum(total: Array, compensation: Array, term: Array) -> tuple[Array, Array]:
    """Compensated addition: the sum is total + compensation.

    `compensation` is the rounding error of `total`. The error of a sum of any number of terms is a
    few units in the last place (Kahan; Neumaier 1974).
    """
    term = term + compensation
    new_total = total + term
    added = new_total - total
    return new_total, (total - (new_total - added)) + (term - added)


def scatter_set(a: Array, index: Array, values: Array) -> Array:
    """The array `a` after a[index] = values.

    The write is in place in a loop body that first writes and then only reads.

    Args:
        a: (n,).
        index: (b,) in [0, n); repeated indices must carry equal values.
        values: (b,).
    """
    # a slice update instead of a scatter: XLA fuses loops of slices
    if index.shape[0] == 1 and shards(a.shape[0]) == 1:
        return lax.dynamic_update_slice_in_dim(a, values, index[0], 0)
    return a.at[index].set(values, mode="promise_in_bounds")


def gather(a: Array, index: Array) -> Array:
    """`a[index]` for (b,) indices in [0, n)."""
    if index.shape[0] == 1 and shards(a.shape[0]) == 1:
        return lax.dynamic_slice_in_dim(a, index[0], 1)
    return a.at[index].get(mode="promise_in_bounds")


def index_row(a: Array, i: Array) -> Array:
    """`a[i]` for one i in [0, n): an entry of (n,), or a row of (n, d)."""
    if shards(a.shape[0]) > 1:  # a gather within each shard; a slice would join them first
        return a.at[jnp.reshape(i, 1)].get(mode="promise_in_bounds")[0]
    return lax.dynamic_index_in_dim(a, i, keepdims=False)


def _extreme(a: Array, fold: Callable, reduce: Callable) -> Array:
    """The last axis reduced, first in halves by an idempotent `fold`; in each shard by itself.

    XLA's own reductions are sequential on a CPU.
    """
    k = shards(a.shape[-1])
    a = a if k == 1 else a.reshape(*a.shape[:-1], k, -1)
    while a.shape[-1] > 16:
        half = -(-a.shape[-1] // 2)
        a = fold(a[..., :half], a[..., a.shape[-1] - half :])
    return reduce(a, axis=-1 if k == 1 else (-2, -1))


def fast_max(a: Array) -> Array:
    """The maximum over the last axis, several times as fast as `jnp.max` on a CPU.

    Rows of a matrix (k, n) are reduced by one loop, which compiles to less than k loops.
    """
    return _extreme(a, jnp.maximum, jnp.max)


def fast_min(a: Array) -> Array:
    """The minimum over the last axis, as `fast_max`."""
    return _extreme(a, jnp.minimum, jnp.min)


def argmax_value(a: Array) -> tuple[Array, Array]:
    """The first index of the maximum of (n,), int32, and the maximum.

    It is faster than `jnp.argmax` on a CPU. The index is n - 1 if the maximum is nan.
    """
    top, n = fast_max(a), a.shape[0]
    index = fast_min(jnp.where(a == top, lax.iota(jnp.int32, n), n - 1))
    return index, top


def top_k_index(a: Array, k: int) -> Array:
    """The indices of the k largest entries of (n,), int32, in descending order of the entries.

    Without the barrier, XLA fuses the operations that follow and sorts all of `a`, which takes
    thirty times as long. On rows of several shards, each selects its k largest, and the largest of
    these are the same in the same order.
    """
    if (many := shards(a.shape[0])) > 1 and a.shape[0] // many >= k:
        # A barrier for each output, as XLA's partitioner aborts where one barrier has two; and
        # `shard_map`, as it would join all rows for a mapped `top_k`.
        select = lambda a: tuple(map(lax.optimization_barrier, lax.top_k(a, k)))
        rows = PartitionSpec(ROWS)
        candidates = jax.shard_map(select, in_specs=rows, out_specs=rows)(a)
        value, place = lax.with_sharding_constraint(candidates, PartitionSpec())
        first = jnp.arange(many, dtype=place.dtype) * (a.shape[0] // many)
        return (place + jnp.repeat(first, k))[select(value)[1]]
    return lax.optimization_barrier(lax.top_k(a, k)[1])


def power_of_two(size: Array) -> Array:
    """The powers of two just below numbers, within those of a normal inverse; elementwise."""
    xp = np if isinstance(size, np.ndarray | np.generic) else jnp
    least = float(jnp.finfo(size.dtype).tiny) * 4
    exponent = xp.frexp(xp.clip(size, least, 1 / least))[1]
    return xp.ldexp(xp.ones_like(size), exponent - 1)


def is_traced(*trees: object) -> bool:
    """Whether any leaf is a tracer, or the call itself is being traced."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees)):
        return True
    # in a trace all arrays are tracers, in a mere `vmap` or `grad` they are not
    return in_transformation() and isinstance(jax.device_put(np.float32(0)), jax.core.Tracer)


def in_transformation() -> bool:
    """Whether the call is inside of `jit`, `vmap`, `grad` or another transformation of JAX."""
    return bool(get_opaque_trace_state() != _outside)


_outside = get_opaque_trace_state()
