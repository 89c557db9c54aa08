"""One model for each pair of classes, in the layouts of scikit-learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils.extmath import safe_sparse_dot

from ..checks import is_sparse
from ..numerics import dot
from ..types import Array
from ..wrappers import OneVsOne


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pairs:
    """The decision values of all pairs of classes, (n, d) -> (n, k(k-1)/2)."""

    model: OneVsOne

    def __call__(self, x: Array) -> Array:
        """Values for rows: > 0 for the first class of a pair."""
        return self.model.pairs(x)


def pair_number(first: np.ndarray, second: np.ndarray, k: int) -> Any:
    """The number of the pair of classes first < second among (0, 1), (0, 2), ..., (k-2, k-1)."""
    return first * (2 * k - first - 1) // 2 + second - first - 1


def by_opponent(coef: np.ndarray, place: np.ndarray, k: int) -> np.ndarray:
    """The coefficients (k-1, m) of m points of classes `place` from those of pairs, (k(k-1)/2, m).

    Row r of a point of class c is its coefficient against the class r, or r + 1 from r = c on.
    """
    opponent = np.arange(k - 1)[:, None] + (np.arange(k - 1)[:, None] >= place)
    number = pair_number(np.minimum(opponent, place), np.maximum(opponent, place), k)
    return coef[number, np.arange(len(place))]


def votes_of(first_wins: Any, k: int) -> Any:
    """The votes (n, k) of pairs of classes, of which the first wins or not, (n, k(k-1)/2)."""
    first, second = (np.eye(k)[number] for number in np.triu_indices(k, 1))
    wins = 1.0 * first_wins
    return wins @ first + (1 - wins) @ second


def values_of_classes(score: np.ndarray, k: int) -> Any:
    """The votes (n, k) of the values of pairs, (n, k(k-1)/2), as scikit-learn ranks the classes.

    A monotone function of the sum of the values of each class, within (-1/3, 1/3), is added.
    """
    signs = np.subtract(*(np.eye(k)[number] for number in np.triu_indices(k, 1)))
    if isinstance(score, jax.Array):
        sums = dot(score, jnp.asarray(signs, score.dtype))
    else:
        sums = score.astype(np.float64) @ signs
    return votes_of(score >= 0, k) + sums / (3 * (abs(sums) + 1))


def pair_coef(coef: Any, vectors: Any, counts: np.ndarray) -> Any:
    """The weights (k(k-1)/2, d) of pairs of classes, from a dual solution grouped by class."""
    ends = np.cumsum(counts)
    part = [slice(end - n, end) for end, n in zip(ends, counts, strict=True)]
    coef = coef.toarray() if is_sparse(coef) else coef
    product = lambda row, c: safe_sparse_dot(
        coef[row : row + 1, part[c]], vectors[part[c]], dense_output=True
    )
    pairs = zip(*np.triu_indices(len(counts), 1), strict=True)
    dense = np.concatenate([product(b - 1, a) + product(a, b) for a, b in pairs])
    return type(vectors)(dense) if is_sparse(vectors) else dense
