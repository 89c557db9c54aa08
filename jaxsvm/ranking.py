"""Pairs of rows of one query with different grades, summed over without a list of them.

A pair (i, j) has grade_i > grade_j, both rows are of one query, and its weight c_ij is proportional
to weight_i weight_j, with sum 1. A score is invariant to a constant for each query.

Of times y holds +time of a row whose event was observed, and -time of a censored one. The grade is
then the time, and of equal times that of the censored row is higher. A censored row is never the
lower one of a pair: its event is only known to be later than its time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .checks import refuse_masked
from .numerics import (
    accum_dtype,
    count,
    gather,
    in_double,
    pairwise_sum,
    tangents_of,
    with_slopes,
)
from .numerics.wavelet import Ranges, key_bits, sums_by_key
from .risks import Hessian, Risk
from .types import Array, Batch


class Blocks(NamedTuple):
    """The block of equal keys around each position of a sorted sequence."""

    first: Array  # (n,)  int32
    end: Array  # (n,)  int32, after the last position


class Pairs(NamedTuple):
    """The pairs of a data set: what does not depend on scores."""

    query: Array | None  # (n,)  int32
    grade: Array  # (n,)  int32, the grades numbered from 0 in ascending order
    bits: Array  # ()    int32, of the largest of these numbers
    block: Blocks  # of the queries, where rows are sorted by query
    weight: Array  # (n,)
    # (n,)  weight of the row, over the sum of weight_i weight_j over all pairs: c_ij = share_i
    # weight_j = share_j weight_i. Of each query its own sum, if all queries have equal weight.
    share: Array
    # (n,)  0 of censored rows, 1 of others: c_ij = share_i weight_j event_j; None: all 1
    event: Array | None = None


class SortedRows(NamedTuple):
    """Rows sorted by query, and by score within a query."""

    row: Array  # (n,)  int32, row numbers
    score: Array  # (n,)


class Partners(NamedTuple):
    """Sums over the partners of each row in some of its pairs, (m, n)."""

    below: Array  # of those with a lower grade
    above: Array  # of those with a higher grade


def blocks_of(*keys: Array) -> Blocks:
    """The blocks of sorted keys (n,), which are equal if all of them are."""
    n = keys[0].shape[0]
    place = lax.iota(jnp.int32, n)
    changes = jnp.zeros(n - 1, bool)
    for key in keys:
        changes = changes | (key[1:] != key[:-1])
    edge = jnp.ones(1, bool)
    first = lax.cummax(jnp.where(jnp.concatenate([edge, changes]), place, 0))
    end = jnp.where(jnp.concatenate([changes, edge]), place + 1, n)
    return Blocks(first, lax.cummin(end, reverse=True))


def sort_rows(*keys: Array | None) -> tuple[Array, ...]:
    """The keys (n,) that are not None, sorted by the first, then the second, and so on.

    The last result are the row numbers, int32.
    """
    known = [key for key in keys if key is not None]
    place = lax.iota(jnp.int32, known[0].shape[0])
    return tuple(lax.sort((*known, place), num_keys=len(known)))


def pairs_of(data: Batch, per_query: bool = False, censored: bool = False) -> Pairs:
    """The pairs of the rows of positive weight.

    Args:
        data: n rows, whose y are grades, or signed times.
        per_query: whether the pairs of each query have the same sum of weights.
        censored: whether y are signed times.
    """
    weight = _constant(data.weight.astype(accum_dtype(data.x)))
    n = weight.shape[0]
    # the grades of absent rows count for nothing, and make no number of their own
    present = weight > 0
    y = jnp.where(present, data.y, jnp.min(jnp.where(present, data.y, jnp.inf)))
    keys = (jnp.abs(y), (y < 0).astype(jnp.int32)) if censored else (y,)
    *in_order, row = sort_rows(*keys)
    is_first = blocks_of(*in_order).first == lax.iota(jnp.int32, n)
    grade = at_rows(row, jnp.cumsum(is_first, dtype=jnp.int32) - 1)
    event = (y > 0).astype(weight.dtype) if censored else None
    lower = weight if event is None else weight * event
    *_, row = sort_rows(data.query, grade)
    if data.query is None:
        block = Blocks(jnp.zeros(n, jnp.int32), jnp.full(n, n, jnp.int32))
    else:
        block = blocks_of(data.query[row])
    # queries numbered by their first position
    number = block.first if per_query else jnp.zeros(n, jnp.int32)
    of_rows = block, grade[row], weight[row], lower[row], number
    totals = in_double(_pair_weights)(weight.dtype, *of_rows)
    total = totals[number] * count(totals > 0).astype(weight.dtype)
    share = jnp.where(total > 0, weight[row] / jnp.where(total > 0, total, 1), 0)
    return Pairs(data.query, grade, key_bits(grade), block, weight, at_rows(row, share), event)


def weight_below(block: Blocks, grade: Array, weight: Array) -> Array:
    """The weight of the rows of a query with a lower grade, (n,); sorted by query and grade."""
    before = jnp.concatenate([jnp.zeros(1, weight.dtype), jnp.cumsum(weight)])
    return before[blocks_of(block.first, grade).first] - before[block.first]


def _pair_weights(block: Blocks, grade: Array, weight: Array, lower: Array, number: Array) -> Array:
    """The sums of the weights of pairs with equal numbers, (n,); `lower` is of the lower rows."""
    of_rows = weight * weight_below(block, grade, lower)
    return jax.ops.segment_sum(of_rows, number, num_segments=number.shape[0])


def check_grades(y: object, weight: object, query: object, censored: bool = False) -> None:
    """Raise unless there is a pair among the rows of positive weight.

    Raises:
        ValueError: no two rows of one query have different grades. If `censored`, y holds a number
            that is no signed time, no row has an event, or no other one of its query is later.
    """
    present = np.asarray(weight) > 0
    y = np.asarray(y)[present]
    query = np.zeros(len(y)) if query is None else np.asarray(query)[present]
    is_time = np.isfinite(y) & (y != 0)
    if censored and not is_time.all():
        raise ValueError(
            "y must hold times, +time of an event and -time of a censored row, finite and not 0, "
            f"got {y[~is_time][0]:g}"
        )
    if censored and not (y > 0).any():
        raise ValueError(
            "no row has an event: y must hold +time where the event was observed, and -time where "
            "it was censored"
        )
    order = np.lexsort((y < 0, np.abs(y), query) if censored else (y, query))
    y, query = y[order], query[order]
    is_pair = (query[1:] == query[:-1]) & (y[1:] != y[:-1])
    if not (is_pair & (y[:-1] > 0) if censored else is_pair).any():
        what = "no two rows of one query have different grades"
        if censored:
            what = "no event is earlier than the time of another row of its query"
        raise ValueError(f"{what}: there is nothing to rank; look at y and query")


def signed_times(y: Any) -> Any:
    """Signed times (n,) of a structured array, as of scikit-survival; anything else as it is.

    Args:
        y: (n,) with two fields: booleans, whether the event was observed, and times > 0.

    Raises:
        ValueError: other fields; times that are not finite, or not above 0.
    """
    names = y.dtype.names if isinstance(y, np.ndarray) else None
    if names is None:
        return y
    kinds = [y.dtype[name].kind for name in names]
    if len(kinds) != 2 or kinds[0] != "b" or kinds[1] not in "iuf":
        raise ValueError(
            "y must have two fields, booleans that say whether the event was observed, then "
            f"times, got {y.dtype}"
        )
    event, time = y[names[0]], y[names[1]]
    refuse_masked("y", event)
    refuse_masked("y", time)
    time = time.astype(np.float64)
    wrong = np.argwhere(~(np.isfinite(time) & (time > 0)))
    if len(wrong):
        row = tuple(wrong[0])
        raise ValueError(
            f"times must be finite and above 0, got {time[row]:g} in row {row[0]}: drop such rows"
        )
    return np.where(event, time, -time)


def at_rows(row: Array, values: Array) -> Array:
    """Values (n,) of sorted positions in the order of the rows."""
    return jnp.zeros_like(values).at[row].set(values, unique_indices=True)


def sorted_scores(pairs: Pairs, score: Array) -> SortedRows:
    """The rows sorted by query and score; the scores of absent rows are not read."""
    score = jnp.where(pairs.weight > 0, score, 0)
    *_, score, row = sort_rows(pairs.query, score)
    return SortedRows(row, score)


def violators(
    block: Blocks, score: Array, margin: float = 1.0, exceeds: Callable = operator.gt
) -> tuple[Ranges, Ranges]:
    """The partners of each position in pairs with score_j > score_i - margin: ranges of positions.

    Args:
        block: of the queries.
        score: (n,) sorted in each query.
        margin: >= 0.
        exceeds: another comparison, >=, which a margin of 0 needs.

    Returns:
        For each position in the place of i, the range of its partners j, which have the lower
        grade; and for each in the place of j the range of its partners i. The grades are not read
        here. Both ranges are decided by one comparison, so that they are the same pairs.
    """
    first, end = block
    n, bound = score.shape[0], score - margin

    def halve(_, interval):
        low, high = interval  # the first position with score > bound is in [low, high]
        middle = (low + high) // 2
        is_beyond = exceeds(gather(score, middle), bound)
        return jnp.where(is_beyond, low, middle + 1), jnp.where(is_beyond, middle, high)

    # the score at the position itself is beyond
    start, _ = lax.fori_loop(0, n.bit_length(), halve, (first, lax.iota(jnp.int32, n)))
    # `start` never falls: the positions that have j in their range end at their number
    counts = jnp.zeros(n, jnp.int32).at[start].add(1, indices_are_sorted=True)
    return Ranges(start, end), Ranges(first, jnp.cumsum(counts, dtype=jnp.int32))


def sum_partners(pairs: Pairs, row: Array, values: Array, below: Ranges, above: Ranges) -> Partners:
    """Sums of `values` (m, n) over the partners of each position, of lower and of higher grade.

    In float32, differences of sums over all queries would lose the digits of a small query.

    Args:
        pairs: of the data.
        row: (n,) the rows at the positions.
        values: (m, n) m numbers of each position.
        below: n ranges of positions in which partners of lower grade are.
        above: n ranges of positions in which partners of higher grade are.
    """
    grade, sums = pairs.grade[row], in_double(sums_by_key)
    if pairs.event is None:
        return Partners(*sums(values.dtype, grade, values, pairs.bits, grade, below, above))
    m, event = len(values), pairs.event[row][None]
    values = jnp.concatenate([values * event, values])
    lower, upper = sums(values.dtype, grade, values, pairs.bits, grade, below, above)
    return Partners(lower[:m], upper[m:] * event)


def pair_risk(
    data: Batch, squared: bool = False, per_query: bool = False, censored: bool = False
) -> Risk:
    """The mean hinge loss of the pairs, or its square; see `losses.pairwise`.

        R = sum_i v_i (d_i (1 - f_i) + p_i f_i),   u_i = v_i (p_i - d_i)

    where v are the shares, and d_i and p_i the weights of the violators below and above row i. With
    D(f) and P(f) the same sums of weight_j f_j, the square has the slope and the Hessian

        u_i = 2 v_i (p_i (1 + f_i) - P_i(f) - d_i (1 - f_i) - D_i(f))
        (H z)_i = 2 v_i ((d_i + p_i) z_i - D_i(z) - P_i(z))

    R has the derivative u in the scores. The slope itself is a constant in derivatives.
    """
    pairs = pairs_of(data, per_query, censored)

    def evaluate(score):
        """The risk, its slope, and the Hessian of the square."""
        score = score.astype(pairs.weight.dtype)
        row, f = sorted_scores(pairs, lax.stop_gradient(score))
        first = pairs.block.first
        f = f - gather(f, first)  # of one magnitude for all queries
        share, weight, ranges = pairs.share[row], pairs.weight[row], violators(pairs.block, f)
        values = jnp.stack([weight, weight * f] if squared else [weight])
        below, above = sum_partners(pairs, row, values, *ranges)
        d, p = below[0], above[0]
        if squared:
            slack = below[1] + d * (1 - f)  # of the pairs with partners below, summed
            slope = 2 * share * (p * (1 + f) - above[1] - slack)
            risk = pairwise_sum(slope * f / 2 + share * slack)
        else:
            slope = share * (p - d)
            risk = pairwise_sum(share * (d * (1 - f) + p * f))

        def product(z):
            z = jnp.where(weight > 0, z[row], 0)  # an absent row may be the first of its query
            z = z - gather(z, first)
            below, above = sum_partners(pairs, row, (weight * z)[None], *ranges)
            return at_rows(row, 2 * share * ((d + p) * z - below[0] - above[0]))

        slope = at_rows(row, slope)
        hessian = Hessian(product, at_rows(row, 2 * share * (d + p)))
        return with_slopes(jnp.maximum(risk, 0), slope, score), slope, hessian

    second = evaluate if squared else None
    return Risk(lambda score: evaluate(score)[:2], second_order=second, present=pairs.weight > 0)


def _refuse(weight: Array) -> NoReturn:
    raise TypeError(
        "losses of ranking have no derivatives in the weights of the rows: take "
        "jax.lax.stop_gradient of the weights"
    )


@tangents_of(_refuse)
def _constant(weight: Array) -> Array:
    """The weights of the rows; derivatives in them are refused."""
    return weight
