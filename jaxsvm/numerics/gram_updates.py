"""The matrix X' diag(s) X, updated by the rows whose weight s_i has changed."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from ..recipe import register
from ..types import Array, SparseRows
from .batching import any_under_vmap
from .normal_equations import weighted_gram
from .products import accum_dtype, dot
from .reductions import top_k_index
from .shards import shards

BLOCK = 256  # rows of one update
SHARE = 8  # the matrix is summed anew where more than n / SHARE weights have changed


@register("WeightedGram")
class WeightedGram(NamedTuple):
    """The matrix X' diag(s) X of the rows, with a constant column 1 where there is a bias."""

    weight: Array  # (n,)  s
    matrix: Array  # (d, d) or (d + 1, d + 1)


def no_gram(x: Array | SparseRows, constant: bool) -> WeightedGram:
    """The matrix of weights 0."""
    size, dtype = x.shape[1] + constant, accum_dtype(x)
    return WeightedGram(jnp.zeros(x.shape[0], dtype), jnp.zeros((size, size), dtype))


def update_gram(
    gram: WeightedGram, x: Array | SparseRows, s: Array, constant: bool, is_used: Array
) -> tuple[WeightedGram, Array]:
    """The matrix for weights s, and the number of rows that were multiplied.

    Rows with the largest changes come first, in blocks. Rounding errors add up until the matrix is
    summed anew: take it for a preconditioner, or check what follows from it.

    Args:
        gram: the matrix for other weights of the same rows.
        x: (n, d) rows.
        s: (n,) new weights.
        constant: whether X has a constant column.
        is_used: () bool; the matrix may stay as it is where this is false.
    """
    n = x.shape[0]
    block = min(BLOCK, n)
    s = jnp.where(is_used, s, gram.weight)
    change = s - gram.weight
    changed = jnp.sum(change != 0, dtype=jnp.int32)
    # rows on several devices are not gathered
    is_large = any_under_vmap(changed > n // SHARE) if shards(n) == 1 else jnp.ones((), bool)

    def sum_all() -> Array:
        return weighted_gram(x, s, constant)

    def add_changes() -> Array:
        def add(carry):
            change, matrix = carry
            index = top_k_index(jnp.abs(change), block)
            rows = x[index]
            rows = (rows.toarray() if isinstance(rows, SparseRows) else rows).astype(s.dtype)
            if constant:
                rows = jnp.concatenate([rows, jnp.ones((block, 1), s.dtype)], axis=1)
            matrix = matrix + dot((rows * change[index][:, None]).T, rows)
            return change.at[index].set(0), matrix

        has_changes = lambda carry: jnp.any(carry[0] != 0)
        return lax.while_loop(has_changes, add, (change, gram.matrix))[1]

    matrix = lax.cond(is_large, sum_all, add_changes)
    return WeightedGram(s, matrix), jnp.where(is_large, n, changed)
