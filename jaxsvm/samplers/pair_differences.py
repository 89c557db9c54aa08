"""Differences of two rows of one query with different grades."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..numerics import differences, multiply_high
from ..ranking import blocks_of, check_grades, pairs_of, sort_rows, weight_below
from ..types import Array, Batch
from .base import Batches
from .with_replacement import cumulative_units


@register("PairsState")
class PairsState(NamedTuple):
    """A key, and the rows in the order of their queries, then of their grades."""

    key: Array  # ()
    row: Array  # (n,)  int32, row numbers
    # (n + 1,)  uint32, the weight of the pairs of the rows before, as those of higher grade
    pairs: Array
    weight: Array  # (n + 1,)  uint32, the weight of the rows before
    start: Array  # (n,)  int32, the first position of the query
    end: Array  # (n,)  int32, the first position of the query with the same grade


@node
class pairs(Batches):
    """Differences x_i - x_j of rows of one query with grade_i > grade_j, with the label 1.

    So a linear solver trains on pairs: its objective is lam/2 |w|^2 + mean loss(<w, x_i - x_j>, 1),
    that of ranking. Pairs are drawn with replacement, in proportion to weight_i weight_j: first i
    by the weight of its pairs, then j among the rows of its query with a lower grade, both by
    inversion of an integer cumulative sum. `draw` gives the rows i, then the rows j, and `combine`
    takes the differences.

    It is for solvers that read drawn rows and have no variable for each row, such as pegasos and
    asset, also on features; without a bias, which pairs do not determine. `init` of the solver sees
    about n drawn pairs in place of the rows.

    Args:
        batch_size: pairs of a step, >= 1; structure.
        per_query: every query has the same weight, whatever its number of pairs; else every pair
            has. Structure.

    Returns:
        A sampler; y of the data are grades, `query` the queries.

    Raises:
        ValueError: batch_size below 1 or not an integer; from `fit`, data without two rows of one
            query with different grades, a solver that reads all rows or has a variable for each.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[3.0], [2.0], [0.0]], [2, 1, 0], task="ranking")
        >>> result = jaxsvm.fit(jaxsvm.pegasos(0.1), data, jax.random.key(0), steps=50,
        ...     sampler=jaxsvm.samplers.pairs(4))
        >>> bool(result.model.w[0] > 0)
        True

    Reference: D. Sculley, Large scale learning to rank, NIPS workshop on advances in ranking, 2009.
    """

    batch_size: int = between(1, default=1)
    per_query: bool = False

    def init(self, key: Array, data: Batch) -> PairsState:
        of_data = pairs_of(data, self.per_query)
        *_, row = sort_rows(data.query, of_data.grade)
        grade, weight = of_data.grade[row], of_data.weight[row]
        mass = of_data.share[row] * weight_below(of_data.block, grade, weight)
        units = lambda a: jnp.concatenate([jnp.zeros(1, jnp.uint32), cumulative_units(a)])
        end = blocks_of(of_data.block.first, grade).first
        return PairsState(key, row, units(mass), units(weight), of_data.block.first, end)

    def draw_one(self, s: PairsState, t: Array) -> Array:
        bits = jax.random.bits(jax.random.fold_in(s.key, t), (2, self.batch_size), jnp.uint32)
        high = _position(s.pairs, bits[0], s.pairs[0], s.pairs[-1])
        low = _position(s.weight, bits[1], s.weight[s.start[high]], s.weight[s.end[high]])
        return s.row[jnp.concatenate([high, low])]

    def rows(self, n: int) -> int:
        return 2 * self.batch_size

    def weight(self, data: Batch) -> Array:
        return jnp.ones_like(data.weight)

    def combine(self, batch: Batch) -> Batch:
        b, ones = self.batch_size, jnp.ones(self.batch_size, batch.y.dtype)
        first = jax.tree.map(lambda a: a[:b], batch._replace(x=batch.y))
        return first._replace(x=differences(batch.x, b), y=ones, weight=ones)

    def validate(self, data: Batch) -> None:
        check_grades(data.y, data.weight, data.query)


def _position(total: Array, bits: Array, low: Array, high: Array) -> Array:
    """Random positions, by numbers between `low` and `high` in a cumulative sum from 0 on."""
    target = low + multiply_high(bits, jnp.broadcast_to(high - low, bits.shape))
    return jnp.searchsorted(total, target, side="right").astype(jnp.int32) - 1
