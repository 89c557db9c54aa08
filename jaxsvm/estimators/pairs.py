"""One model for each pair of classes, in the layouts of scikit-learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils.extmath import safe_sparse_dot

from ..checks import is_sparse
from ..kernels import holds_precomputed
from ..loops.checks import adapted
from ..loops.fitting import Inputs, placed, run_once
from ..numerics import accum_dtype, dot, series_size
from ..types import STEPS, Array, Batch, Curve, Fit, RunState
from ..wrappers import OneVsOne
from .preprocess import padded_rows

LANES, FEW = 32, 64  # of more than 64 pairs 32 are trained at a time


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pairs:
    """The decision values of all pairs of classes, (n, d) -> (n, k(k-1)/2)."""

    model: OneVsOne

    def __call__(self, x: Array) -> Array:
        """Values for rows: > 0 for the first class of a pair."""
        return self.model.pairs(x)


def pair_number(first: np.ndarray, second: np.ndarray, k: int) -> np.ndarray:
    """The number of the pair of classes first < second among (0, 1), (0, 2), ..., (k-2, k-1)."""
    return first * (2 * k - first - 1) // 2 + second - first - 1


def pairs_by_opponent(place: np.ndarray, k: int) -> np.ndarray:
    """The numbers of the pairs (k-1, m) of m points of classes `place`.

    Row r of a point of class c is its pair with the class r, or r + 1 from r = c on.
    """
    opponent = np.arange(k - 1)[:, None] + (np.arange(k - 1)[:, None] >= place)
    return pair_number(np.minimum(opponent, place), np.maximum(opponent, place), k)


def votes_of(first_wins: np.ndarray, k: int) -> np.ndarray:
    """The votes (n, k) of pairs of classes, of which the first wins or not, (n, k(k-1)/2)."""
    first, second = (np.eye(k)[number] for number in np.triu_indices(k, 1))
    wins = 1.0 * first_wins
    return wins @ first + (1 - wins) @ second


def values_of_classes(score: np.ndarray, k: int) -> np.ndarray:
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


def fit_pairs(solver: Any, data: Batch, k: int, key: Array, tol: object) -> Fit:
    """The run of `one_vs_one` by an exact solver with a kernel, each pair on rows of its own.

    Programs depend on the rows of the largest pair, not on the number of classes. A few pairs are
    trained one after the other, by the program of two classes.
    """
    solver, sampler, limit = adapted(solver, None, tol, accum_dtype(data.x))
    inputs = placed(solver, sampler, None, data, False)
    y, live = np.asarray(data.y), np.asarray(data.weight) > 0
    of_class = [np.flatnonzero(live & (y == c)) for c in range(k)]
    first, second = np.triu_indices(k, 1)
    rows = [np.concatenate([of_class[c] for c in pair]) for pair in zip(first, second, strict=True)]
    width = LANES if len(rows) > FEW else 1
    most = max(map(len, rows))
    size = padded_rows(most) if width == 1 else series_size(most, 32)
    on_host = jax.tree.map(np.asarray, (inputs.data, inputs.x))
    coef, ends = np.zeros((len(rows), len(y)), accum_dtype(data.x)), []
    for start in range(0, len(rows), width):
        numbers = np.minimum(np.arange(start, start + width), len(rows) - 1)
        index, lengths = np.zeros((width, size), np.int32), [len(rows[i]) for i in numbers]
        for places, i, length in zip(index, numbers, lengths, strict=True):
            places[:length] = rows[i]
        pairs, x = jax.tree.map(lambda a, index=index: a[index], on_host)
        if holds_precomputed(solver.kernel):
            x = np.take_along_axis(x, index[:, None], axis=2)
            pairs = pairs._replace(x=x)
        labels = np.where(pairs.y == first[numbers, None], 1, -1).astype(y.dtype)
        weight = pairs.weight * (np.arange(size) < np.array(lengths)[:, None])
        number = np.broadcast_to(np.arange(size, dtype=np.int32), index.shape)
        pairs = pairs._replace(y=labels, index=number, weight=weight)
        inputs = inputs._replace(data=pairs, x=x)
        model, row = jax.tree.map(np.asarray, (run_pair if width == 1 else run_lanes)(inputs, key))
        for i, values in zip(numbers, model.coef, strict=True):
            coef[i, rows[i]] = values[: len(rows[i])]
        ends.append((model.b, row))
    b, row = jax.tree.map(lambda *a: np.concatenate(a)[: len(rows)], *ends)
    parts = {"x": data.x, "coef": coef, "b": b, "index": np.arange(len(y), dtype=np.int32)}
    shared = dataclasses.replace(jax.tree.map(lambda a: a[0], model), **parts)
    stacked = [False] * len(jax.tree.leaves((shared.kernel, shared.x))) + [True, True, False]
    ends_of = row.step[0], row.loss.mean(), row.residual.max(), row.support.sum(), row.evals.sum()
    curve: Any = Curve._make([*map(np.atleast_1d, ends_of), None])
    state = RunState((), (), row.step[0], curve.residual[0] <= limit)
    finite = np.isfinite(row.loss + row.residual).all()
    of_all = OneVsOne(shared, (*stacked,), k)
    return Fit(of_all, state, curve, limit, finite, jnp.asarray(STEPS, jnp.int32))


def run_pair(inputs: Inputs, key: Array) -> tuple:
    """The model and the row of the curve of a pair, by the program of a machine of two classes."""
    data, x = jax.tree.map(lambda a: a[0], (inputs.data, inputs.x))
    _, row, model = run_once(inputs._replace(data=data, x=x), key)
    return jax.tree.map(lambda a: np.asarray(a)[None], (model, row))


@jax.jit
def run_lanes(inputs: Inputs, key: Array) -> tuple:
    """The models and rows of the curves of several pairs, whose rows have a leading axis."""

    def run(data: Batch, x: object) -> tuple:
        _, row, model = run_once(inputs._replace(data=data, x=x), key)
        return model, row

    return jax.vmap(run)(inputs.data, inputs.x)
