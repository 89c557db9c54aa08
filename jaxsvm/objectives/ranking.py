"""Probes of ranking: how well the scores of a model order held-out rows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import static, struct
from ..checks import check_choice, integer
from ..numerics import is_traced, pairwise_sum
from ..numerics.wavelet import Ranges
from ..ranking import (
    Blocks,
    Pairs,
    SortedRows,
    blocks_of,
    check_grades,
    pairs_of,
    sort_rows,
    sorted_scores,
    sum_partners,
    violators,
)
from ..types import Array, Batch, check_weights
from .probes import Probe

GAINS = ("exponential", "linear")


def auc_on(data: Batch) -> Callable:
    """A probe for `fit`: model -> the area under the ROC curve.

    It is the weighted share of pairs of a positive and a negative row in which the positive one has
    the higher score. Equal scores count one half.

    Args:
        data: held-out rows of two classes; queries are not read.

    Returns:
        A function of a model; nan if a score is not finite or there is no pair.

    Raises:
        ValueError: rows of other than two classes, if they are known.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [1.0]], [1, -1, -1])
        >>> float(jaxsvm.metrics.auc_on(data)(Linear(jnp.ones(1), jnp.zeros(()))))
        0.75
    """
    check_weights("data", data)
    if not is_traced(data.y, data.weight):
        classes = np.unique(np.asarray(data.y)[np.asarray(data.weight) > 0])
        if len(classes) != 2:
            raise ValueError(
                f"auc_on takes rows of two classes, got {len(classes)}: for grades take "
                "pair_accuracy_on or ndcg_on"
            )
    return _PairShare(data._replace(query=None), tie=0.5)


def pair_accuracy_on(data: Batch) -> Callable:
    """A probe for `fit`: model -> the weighted share of pairs that are in the right order.

    The pairs are those of `losses.rank_hinge`: two rows of one query with different grades. A pair
    of equal scores is not in the right order. So the share is at least 1 - `risk_on(data,
    losses.rank_hinge)`. Kendall's tau is 2 share - 1 if no scores are equal.

    Args:
        data: held-out rows with grades, and with queries, if there are several.

    Returns:
        A function of a model; nan if a score is not finite or there is no pair.

    Raises:
        ValueError: no pair, if the grades are known.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[3.0], [1.0], [2.0]], [2, 1, 0], task="ranking")
        >>> model = Linear(jnp.ones(1), jnp.zeros(()))
        >>> round(float(jaxsvm.metrics.pair_accuracy_on(data)(model)), 4)
        0.6667
    """
    check_weights("data", data)
    if not is_traced(data.y, data.weight, data.query):
        check_grades(data.y, data.weight, data.query)
    return _PairShare(data)


def concordance_on(data: Batch) -> Callable:
    """A probe for `fit`: model -> the concordance index of the scores with censored times.

    It is the weighted share of comparable pairs in the right order, where the later time has the
    higher score. Scores within 1e-8 are equal, and count one half. Pairs are those of
    `losses.pairwise(censored=True)`: the row of the earlier time has an event. Of equal times the
    one with the event is earlier, and two events are not comparable.

    Estimates of scikit-survival have the opposite sign, as they are risks: with unit weights it is
    `concordance_index_censored(event, time, -score)`.

    Args:
        data: held-out rows of `dataset(x, y, task="survival")`, whose y are signed times, +time of
            an event and -time of a censored row; with queries, if pairs are within strata.

    Returns:
        A function of a model; nan if a score is not finite or there is no pair.

    Raises:
        ValueError: no event, no comparable pair, or a time of 0, if the times are known.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[1.0], [3.0], [2.0]], [1.5, 4.0, -2.0], task="survival")
        >>> float(jaxsvm.metrics.concordance_on(data)(Linear(jnp.ones(1), jnp.zeros(()))))
        1.0

    Reference: F. E. Harrell, K. L. Lee, D. B. Mark, Multivariable prognostic models, Statistics in
        Medicine 15, 1996.
    """
    check_weights("data", data)
    if not is_traced(data.y, data.weight, data.query):
        check_grades(data.y, data.weight, data.query, censored=True)
    return _PairShare(data, tie=0.5, tol=1e-8, censored=True)


def ndcg_on(
    data: Batch, k: int | None = None, *, gains: str = "exponential", weighted: bool = False
) -> Callable:
    """A probe for `fit`: model -> the mean normalised discounted cumulative gain of the queries.

        DCG = sum of gain(grade) / log2(1 + rank) over the k rows of the highest scores
        nDCG = DCG / (the DCG of the best order)

    Rows of equal scores have the mean over all of their orders. A query without a grade above 0 is
    left out of the mean.

    Args:
        data: held-out rows with grades of at least 0, and with queries, if there are several. Rows
            of weight 0 are left out.
        k: rows that count, >= 1; None: all of a query. Structure.
        gains: "exponential", 2^grade - 1, or "linear", the grade. Structure.
        weighted: each query has the mean weight of its rows in the mean over queries; else all have
            the same. Structure.

    Returns:
        A function of a model; nan if a score is not finite or no query has a grade above 0.

    Raises:
        ValueError: k or gains out of range; a known grade below 0, or too large for 2^grade.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[3.0], [1.0], [2.0]], [0, 1, 2], task="ranking")
        >>> round(float(jaxsvm.metrics.ndcg_on(data)(Linear(jnp.ones(1), jnp.zeros(())))), 4)
        0.659

    Reference: K. Jarvelin, J. Kekalainen, Cumulated gain-based evaluation of IR techniques, ACM
        TOIS 20, 2002; equal scores: F. McSherry, M. Najork, Computing information retrieval
        performance measures efficiently in the presence of tied scores, ECIR 2008.
    """
    check_weights("data", data)
    k = None if k is None else integer("k", k, 1)
    check_choice("gains", gains, GAINS)
    if not is_traced(data.y, data.weight):
        y = np.asarray(data.y)[np.asarray(data.weight) > 0]
        if y.size and y.min() < 0:
            raise ValueError(
                f"ndcg_on takes grades of at least 0, got {y.min():g}: shift them, or number "
                "them from 0 on"
            )
        most = np.finfo(np.asarray(data.weight).dtype).maxexp
        if gains == "exponential" and y.size and y.max() >= most:
            raise ValueError(
                f"ndcg_on takes grades below {most} with gains='exponential', got {y.max():g}: "
                "take gains='linear', or number them from 0 on"
            )
    return _Ndcg(data, k, gains, weighted)


def _scores(score: Array, data: Batch) -> Array:
    """The scores (n,) of the rows in the dtype of the weights."""
    if score.ndim != 1:
        raise ValueError(
            f"ranking takes models with one value for each row, got {score.shape[-1]} values"
        )
    return score.astype(data.weight.dtype)


def _finite_or_nan(value: Array, score: Array, data: Batch) -> Array:
    return jnp.where(jnp.all(jnp.isfinite(score) | (data.weight <= 0)), value, jnp.nan)


def _misordered(pairs: Pairs, rows: SortedRows, start: Array) -> Array:
    """The weight of the pairs whose row of lower grade is at position `start` or later."""
    below = Ranges(start, pairs.block.end)
    nothing = Ranges(pairs.block.first, pairs.block.first)
    weight = pairs.weight[rows.row][None]
    sums = sum_partners(pairs, rows.row, weight, below, nothing)
    return pairwise_sum(pairs.share[rows.row] * sums.below[0])


@struct
class _PairShare(Probe):
    """The share of pairs in the right order; `tie` is what a pair of scores within tol counts."""

    tie: float = static(default=0.0)
    tol: float = static(default=0.0)
    censored: bool = static(default=False)

    def of(self, score: Array) -> Array:
        score, pairs = _scores(score, self.data), pairs_of(self.data, censored=self.censored)
        rows = sorted_scores(pairs, score)
        ahead, behind = violators(pairs.block, rows.score, self.tol, operator.ge)
        wrong = _misordered(pairs, rows, behind.end)
        wrong_or_tied = _misordered(pairs, rows, ahead.start)
        right = 1 - (1 - self.tie) * wrong_or_tied - self.tie * wrong
        right = jnp.where(jnp.any(pairs.share > 0), right, jnp.nan)
        return _finite_or_nan(right, score, self.data)


@struct
class _Ndcg(Probe):
    k: Any = static(default=None)
    gains: str = static(default=GAINS[0])
    weighted: bool = static(default=False)

    def of(self, score: Array) -> Array:
        data, score = self.data, _scores(score, self.data)
        present = data.weight > 0
        grade = data.y.astype(score.dtype)
        gain = jnp.exp2(grade) - 1 if self.gains == "exponential" else grade
        gain = jnp.where(present, gain, 0)
        query = jnp.zeros(score.shape, jnp.int32) if data.query is None else data.query
        by_score = self._discounted(query, jnp.where(present, -score, jnp.inf), gain)
        best = self._discounted(query, -gain, gain)
        ratio = by_score / jnp.where(best > 0, best, 1)
        weight = self._query_weights(query, present) if self.weighted else jnp.ones_like(best)
        weight = jnp.where(best > 0, weight, 0)
        mean = pairwise_sum(weight * ratio) / pairwise_sum(weight)
        return _finite_or_nan(mean, score, data)

    def _query_weights(self, query: Array, present: Array) -> Array:
        """The mean weight of the present rows of each query, at its first position."""
        query, row = sort_rows(query)
        first, n = blocks_of(query).first, query.shape[0]
        sums = lambda values: jax.ops.segment_sum(values[row], first, num_segments=n)
        present = present.astype(self.data.weight.dtype)
        return sums(self.data.weight * present) / jnp.maximum(sums(present), 1)

    def _discounted(self, query: Array, key: Array, gain: Array) -> Array:
        """The DCG of each query, rows in the order of the key, at the query's first position."""
        n = key.shape[0]
        query, key, row = sort_rows(query, key)
        block, ties = blocks_of(query), blocks_of(query, key)
        rank = jnp.arange(n, dtype=jnp.int32) - block.first
        discount = 1 / jnp.log2(2 + rank.astype(gain.dtype))
        discount = discount if self.k is None else jnp.where(rank < self.k, discount, 0)
        mean_discount = _mean(discount, ties)
        return jax.ops.segment_sum(gain[row] * mean_discount, block.first, num_segments=n)


def _mean(values: Array, block: Blocks) -> Array:
    """The mean of the values of the block of each position, (n,)."""
    n = values.shape[0]
    total = jax.ops.segment_sum(values, block.first, num_segments=n)
    return total[block.first] / (block.end - block.first).astype(values.dtype)
