"""Pairs of classes in the layouts of scikit-learn, and runs of several problems of two classes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils.extmath import safe_sparse_dot

from .. import kernels
from ..checks import is_sparse
from ..engines.dual_qp import QpSolver
from ..engines.nu_qp import NuSolver
from ..engines.whole_matrix import MAX_GIVEN
from ..flags import despite_flags
from ..kernels import holds_precomputed
from ..loops.checks import adapted, check_rows
from ..loops.fitting import Inputs, placed, run_once
from ..machines import one_vs_weighted_rest
from ..numerics import accum_dtype, dot, series_size
from ..types import STEPS, Array, Batch, Curve, Fit, RunState, Solver
from ..wrappers import OneVsOne, one_vs_one, one_vs_rest
from ..wrappers.problems import Problems
from .functions import VALUES, kernel_values
from .preprocess import MANY, padded_rows

LANES, FEW = 32, 64  # of more than 64 problems 32 are trained at a time


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


# Runs of several problems.


class Problem(NamedTuple):
    """One of the problems that a run consists of, on all rows or on its own."""

    y: Any  # (m,) targets
    weight: Any  # (m,)
    rows: np.ndarray | None = None  # (m,) numbers of the rows; None: all


def problems_of(whole: Solver, solver: Solver, data: Batch) -> list[Problem]:
    """The problems of `whole` that are runs of `solver`; none: it has a program of its own."""
    if whole is solver:
        if not isinstance(solver, QpSolver | NuSolver) or len(data.y) > MAX_GIVEN:
            return [Problem(data.y, data.weight)]
        live = np.flatnonzero(np.asarray(data.weight) > 0)
        return [Problem(np.asarray(data.y)[live], np.asarray(data.weight)[live], live)]
    if isinstance(whole, one_vs_one) and isinstance(solver, QpSolver | NuSolver):
        return pairs_of(np.asarray(data.y), np.asarray(data.weight), whole.classes)
    if len(data.y) > MANY or not isinstance(data.x, jax.Array):
        return []  # rows that are read once for all classes
    if isinstance(whole, one_vs_rest):
        return rests_of(np.asarray(data.y), np.asarray(data.weight), np.ones(whole.classes))
    if isinstance(whole, one_vs_weighted_rest):
        return rests_of(np.asarray(data.y), np.asarray(data.weight), np.asarray(whole.factors))
    return []


def pairs_of(y: np.ndarray, weight: np.ndarray, k: int) -> list[Problem]:
    """The problem of each pair of classes, on its rows."""
    of_class = [np.flatnonzero((weight > 0) & (y == c)) for c in range(k)]
    pairs = [(of_class[a], of_class[b]) for a, b in zip(*np.triu_indices(k, 1), strict=True)]
    label = lambda pair: np.repeat(np.array([1, -1], y.dtype), [*map(len, pair)])
    rows = [np.concatenate(pair) for pair in pairs]
    return [Problem(label(pair), weight[own], own) for pair, own in zip(pairs, rows, strict=True)]


def rests_of(y: np.ndarray, weight: np.ndarray, factors: np.ndarray) -> list[Problem]:
    """The problem of each class, whose rows its factor weighs, against the rest."""
    own = y == np.arange(len(factors))[:, None]
    labels = np.where(own, 1, -1).astype(y.dtype)
    return [*map(Problem, labels, weight * np.where(own, factors[:, None], 1).astype(weight.dtype))]


@despite_flags
def fit_problems(
    whole: Any, solver: Any, data: Batch, problems: list[Problem], key: Array, tol: object
) -> Fit:
    """The run of all problems of `whole` by programs of one.

    Programs depend on the rows of the largest problem, not on the number of problems. Where these
    are few the host makes the kernel matrix, so that they do not depend on the columns either.
    """
    width = LANES if len(problems) > FEW and problems[0].rows is not None else 1
    most = max(len(problem.y) for problem in problems)
    size = series_size(most, 32) if width > 1 else padded_rows(most)
    solver, sampler, limit = adapted(solver, None, tol, accum_dtype(data.x))
    check_rows(whole, sampler, data)
    kernel = solver.kernel if isinstance(solver, QpSolver | NuSolver) else None
    if type(kernel) in VALUES and size <= MAX_GIVEN and isinstance(data.x, jax.Array):
        solver = solver.replace(kernel=kernels.precomputed())
    inputs = placed(solver, sampler, None, data, False)
    made: list[tuple] = []
    for start in range(0, len(problems), width):
        part = [problems[min(i, len(problems) - 1)] for i in range(start, start + width)]
        rows = [rows_of(problem, inputs, kernel, size) for problem in part]
        if width == 1:
            made.append(run_once(rows[0], key))
        else:
            lanes = jax.tree.map(lambda *a: np.stack(a), *((own.data, own.x) for own in rows))
            ends = run_lanes(inputs, *lanes, key)
            made += [jax.tree.map(lambda a, i=i: a[i], ends) for i in range(width)]
    states, ends, found = zip(*made[: len(problems)], strict=True)
    models = [*found]
    row = jax.tree.map(lambda *a: np.stack(a), *ends)
    sums = row.step[0], row.loss.mean(), row.residual.max(), row.support.sum(), row.evals.sum()
    curve: Any = Curve._make([*map(np.atleast_1d, sums), None])
    run = RunState([*states], (), row.step[0], curve.residual[0] <= limit)
    finite = np.isfinite(row.loss + row.residual).all()
    if kernel is not None:  # of all rows, which the models share
        parts = {"kernel": kernel, "x": data.x, "index": np.arange(len(data.y), dtype=np.int32)}
        coefs = map(on_all_rows, models, problems, [len(data.y)] * len(problems))
        models = [
            dataclasses.replace(m, coef=c, **parts) for m, c in zip(models, coefs, strict=True)
        ]
    return Fit(joined(whole, models), run, curve, limit, finite, np.int32(STEPS))


def rows_of(problem: Problem, inputs: Inputs, kernel: Any, size: int) -> Inputs:
    """The inputs of a problem: its rows, padded to a size, or their values of the kernel."""
    solver: Any = inputs.solver
    data, is_matrix = inputs.data, kernel is not None and holds_precomputed(solver.kernel)
    if problem.rows is None and not is_matrix:
        return inputs._replace(data=data._replace(y=problem.y, weight=problem.weight))
    own = np.arange(len(data.y)) if problem.rows is None else problem.rows
    longer = lambda a: np.concatenate([a, np.zeros(size - len(own), a.dtype)])
    parts: dict[str, Any] = {"y": longer(problem.y), "weight": longer(problem.weight)}
    parts["index"] = np.arange(size, dtype=np.int32)
    if not is_matrix:
        place = longer(own)
        x, parts["x"] = jax.tree.map(lambda a: np.asarray(a)[place], (inputs.x, data.x))
        return inputs._replace(data=data._replace(**parts), x=x)
    rows, values = np.asarray(inputs.x)[own], np.zeros((size, size), data.y.dtype)
    given = holds_precomputed(kernel)
    own_values = rows[:, own] if given else kernel_values(kernel, rows, rows, rows.dtype)
    values[: len(own), : len(own)] = own_values
    parts["x"] = jax.device_put(values)
    return inputs._replace(data=data._replace(**parts), x=parts["x"])


def on_all_rows(model: Any, problem: Problem, n: int) -> np.ndarray:
    """The coefficients (n,) of all rows, by those of the rows of a problem."""
    own = slice(None) if problem.rows is None else problem.rows
    coef = np.zeros(n, model.coef.dtype)
    coef[own] = np.asarray(model.coef)[: len(problem.y)]
    return coef


def joined(whole: object, models: list) -> Any:
    """The model of several, which share the leaves that are the same object."""
    if isinstance(whole, one_vs_weighted_rest):
        whole = whole.rest
    if not isinstance(whole, Problems):
        return models[0]
    columns = [*zip(*map(jax.tree.leaves, models), strict=True)]
    own = tuple(any(leaf is not column[0] for leaf in column) for column in columns)
    leaves = [np.stack(a) if flag else a[0] for a, flag in zip(columns, own, strict=True)]
    return whole.join(jax.tree.unflatten(jax.tree.structure(models[0]), leaves), own)


@jax.jit
def run_lanes(inputs: Inputs, data: Batch, x: object, key: Array) -> tuple:
    """The ends of several problems, whose rows have a leading axis."""
    return jax.vmap(lambda data, x: run_once(inputs._replace(data=data, x=x), key))(data, x)
