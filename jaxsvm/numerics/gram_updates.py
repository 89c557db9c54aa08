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
from .sharding import shards

BLOCK = 256  # rows of one update
SHARE = 8  # the matrix is summed anew where more than n / SHARE weights have changed
PASSED = 4.0  # and where the trace of what came and went is this many times its own


@register("WeightedGram")
class WeightedGram(NamedTuple):
    """The matrix X' diag(s) X of the rows, with a constant column 1 where there is a bias."""

    weight: Array  # (n,)  s
    matrix: Array  # (d, d) or (d + 1, d + 1)
    passed: Array  # ()  sum of |change of s_i| |x_i|^2 since the matrix was summed


def no_gram(x: Array | SparseRows, constant: bool) -> WeightedGram:
    """The matrix of weights 0."""
    size, dtype = x.shape[1] + constant, accum_dtype(x)
    zeros = lambda *shape: jnp.zeros(shape, dtype)
    return WeightedGram(zeros(x.shape[0]), zeros(size, size), zeros())


def update_gram(
    gram: WeightedGram,
    x: Array | SparseRows,
    s: Array,
    constant: bool,
    is_used: Array,
    is_doubtful: Array,
) -> tuple[WeightedGram, Array]:
    """The matrix for weights s, and how many rows have changed: n where all were summed.

    Rows with the largest changes come first, in blocks. Their rounding errors add up: where large
    rows came and went, all rows are summed.

    Args:
        gram: the matrix for other weights of the same rows.
        x: (n, d) rows.
        s: (n,) new weights.
        constant: whether X has a constant column.
        is_used: () bool; the matrix may stay as it is where this is false.
        is_doubtful: () bool; where true, a matrix that was updated is summed.
    """
    n = x.shape[0]
    block = min(BLOCK, n)
    s = jnp.where(is_used, s, gram.weight)
    change = s - gram.weight
    changed = jnp.sum(change != 0, dtype=jnp.int32)
    # rows on several devices are not gathered
    is_large = any_under_vmap(changed > (n // SHARE if shards(n) == 1 else 0))

    def has_changes(carry):
        return ~is_large & jnp.any(carry[0] != 0)

    def add(carry):
        change, matrix, passed = carry
        index = top_k_index(jnp.abs(change), block)
        rows = x[index]
        rows = (rows.toarray() if isinstance(rows, SparseRows) else rows).astype(s.dtype)
        if constant:
            rows = jnp.concatenate([rows, jnp.ones((block, 1), s.dtype)], axis=1)
        weighted = rows * change[index][:, None]
        passed = passed + jnp.sum(jnp.abs(weighted) * jnp.abs(rows))
        return change.at[index].set(0), matrix + dot(weighted.T, rows), passed

    start = change, gram.matrix, gram.passed
    _, matrix, passed = lax.while_loop(has_changes, add, start)
    is_exact = passed <= PASSED * jnp.trace(matrix)  # false for nan, too
    is_exact = is_exact & ~(is_doubtful & (passed > 0))
    sums_all = is_large | any_under_vmap(is_used & ~is_exact)
    matrix = lax.cond(sums_all, lambda: weighted_gram(x, s, constant), lambda: matrix)
    passed = jnp.where(sums_all, 0, passed)
    return WeightedGram(s, matrix, passed), jnp.where(sums_all, n, changed)
