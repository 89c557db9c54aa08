"""Class probabilities from decision values, in float64 on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..calibration import couple, fit_sigmoid
from ..objectives.evaluate import in_float64
from ..types import Array
from .preprocess import bucket_size, module_of

MOST_UNITS = 100  # of one row, however many copies it stands for


def units_of(group: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The units that are drawn into folds: copies of a row of integer weight, else whole rows.

    Args:
        group: (n,) numbers of the merged rows.
        weight: (n,) weights of the rows, > 0.

    Returns:
        Merged rows, weights, and numbers of copies of the units, in an order that depends on the
        merged rows alone. A row of more than `MOST_UNITS` copies has units of several copies.
    """
    is_whole = weight == np.rint(weight)
    copies = np.bincount(group[is_whole], weight[is_whole], group.max() + 1)
    units = np.minimum(copies, MOST_UNITS).astype(int)
    share = np.repeat(copies / np.maximum(units, 1), units)
    part_group, part = group[~is_whole], weight[~is_whole]
    order = np.lexsort((part, part_group))
    rows = np.concatenate([np.repeat(np.arange(len(units)), units), part_group[order]])
    both = np.concatenate([share, part[order]]), np.concatenate([share, np.ones(len(part))])
    return rows, *both


def fit_sigmoids(
    score: np.ndarray, place: np.ndarray, weight: np.ndarray, count: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """A and B of P(first class of a pair | score) = 1 / (1 + exp(A score + B)), (k(k-1)/2,).

    Args:
        score: (n, k(k-1)/2) decision values of rows that were not trained on.
        place: (n,) numbers of the classes.
        weight: (n,) weights.
        count: (n,) numbers of copies, of which Platt's targets have the sums.
        k: the number of classes.
    """
    padding = bucket_size(len(place)) - len(place)
    arrays = (np.pad(a, ((0, padding), (0, 0))[: a.ndim]) for a in (score, place, weight, count))
    return _fit_sigmoids(tuple(arrays), (), (k,))


@in_float64
def _fit_sigmoids(score: Array, place: Array, weight: Array, count: Array, k: int) -> tuple:
    def of_pair(score, first, second):
        among = (place == first) | (place == second)
        weights, counts = (jnp.where(among, a, 0) for a in (weight, count))
        curve = fit_sigmoid(score, place == first, weights, counts)
        return curve.slope, curve.offset

    return jax.vmap(of_pair, (1, 0, 0))(score, *map(jnp.asarray, np.triu_indices(k, 1)))


def sigmoid(score: object, A: np.ndarray, B: np.ndarray) -> Any:
    """The values 1 / (1 + exp(A score + B)) of columns of scores, within [1e-7, 1 - 1e-7]."""
    xp = module_of(score)
    return xp.clip(xp.exp(-xp.logaddexp(0, score * A[None] + B[None])), 1e-7, 1 - 1e-7)


def coupled(pairs: Any, k: int) -> Any:
    """As `calibration.couple`, a block of rows at a time."""
    xp = module_of(pairs)
    blocks = xp.array_split(pairs, max(1, len(pairs) // 4096))
    return xp.concatenate([couple(block, k, xp) for block in blocks])
