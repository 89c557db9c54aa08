"""Pairs of classes in the layouts of scikit-learn, and runs of several problems of two classes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
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
from ..numerics import accum_dtype, series_size
from ..types import STEPS, Array, Batch, Curve, Fit, RunState, Solver
from ..wrappers import one_vs_one, one_vs_rest
from ..wrappers.problems import Problems
from .functions import VALUES, kernel_values
from .preprocess import MANY, padded_rows

LANES, FEW = 32, 64  # of more than 64 problems 32 are trained at a time


def pairs_by_opponent(place: np.ndarray, k: int) -> np.ndarray:
    """The numbers of the pairs (k-1, m) of m points of classes `place`: of (0, 1), (0, 2), ...

    Row r of a point of class c is its pair with the class r, or r + 1 from r = c on.
    """
    opponent = np.arange(k - 1)[:, None] + (np.arange(k - 1)[:, None] >= place)
    first = np.minimum(opponent, place)
    return first * (2 * k - first - 1) // 2 + np.maximum(opponent, place) - first - 1


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
    are few the host makes kernel matrices, so that they do not depend on the columns either.
    """
    width = LANES if len(problems) > FEW and problems[0].rows is not None else 1
    most = max(len(problem.y) for problem in problems)
    size = series_size(most, 32) if width > 1 else padded_rows(most)
    solver, sampler, limit = adapted(solver, None, tol, accum_dtype(data.x))
    check_rows(whole, sampler, data)
    kernel = solver.kernel if isinstance(solver, QpSolver | NuSolver) else None
    few = width == 1 and len(data.y) <= MAX_GIVEN and isinstance(data.x, jax.Array)
    matrix = None
    if kernel is not None and holds_precomputed(kernel):
        matrix = np.asarray(data.x)
    elif few and kernel is not None and type(kernel) in VALUES:
        solver = solver.replace(kernel=kernels.precomputed())
        live = None if problems[0].rows is None else np.count_nonzero(data.weight)
        known = np.asarray(data.x)[:live]  # the others are padding
        matrix = kernel_values(kernel, known, known, known.dtype)
    inputs = placed(solver, sampler, None, data, False)
    rows, made = inputs, list[tuple]()
    names = ("w", "b") if kernel is None else ("coef", "b")
    for start in range(0, len(problems), width):
        part = [problems[min(i, len(problems) - 1)] for i in range(start, start + width)]
        if made and part[0].rows is None:  # the same rows, and kernel values, as before
            rows = rows._replace(data=rows.data._replace(y=part[0].y, weight=part[0].weight))
        else:
            rows = rows_of(part, inputs, matrix, size)
        ends = run_once(rows, key) if width == 1 else run_lanes(inputs, rows.data, rows.x, key)
        state, row, model = ends  # but for the last, models are not kept: they hold kernel values
        made.append((state, row, [vars(model).get(name) for name in names]))
    each = lambda a: np.asarray(a)[None] if width == 1 else np.asarray(a)
    join = lambda *parts: np.concatenate([*map(each, parts)])[: len(problems)]
    states, ends_of, fields = zip(*made, strict=True)
    row = jax.tree.map(join, *ends_of)
    sums = row.step[0], row.loss.mean(), row.residual.max(), row.support.sum(), row.evals.sum()
    curve: Any = Curve._make([*map(np.atleast_1d, sums), None])
    run = RunState([*states], (), row.step[0], curve.residual[0] <= limit)
    finite = np.isfinite(row.loss + row.residual).all()
    own, shared = dict[str, np.ndarray](), dict[str, Any]()
    if kernel is not None or len(problems) > 1:
        columns = zip(*fields, strict=True)
        own = {name: join(*column) for name, column in zip(names, columns, strict=True)}
    if kernel is not None:  # of all rows, which the models share
        shared = {"kernel": kernel, "x": data.x, "index": np.arange(len(data.y), dtype=np.int32)}
        coefs = np.zeros((len(problems), len(data.y)), row.loss.dtype)
        for coef, values, problem in zip(coefs, own["coef"], problems, strict=True):
            place = slice(None) if problem.rows is None else problem.rows
            coef[place] = values[: len(problem.y)]
        own["coef"] = coefs
    model = joined(whole, dataclasses.replace(model, **shared), own)
    return Fit(model, run, curve, limit, finite, np.int32(STEPS))


def rows_of(problems: list[Problem], inputs: Inputs, matrix: Any, size: int) -> Inputs:
    """The inputs of problems: their rows, padded to a size, or their part of the kernel `matrix`.

    Those of several have a leading axis.
    """
    data = inputs.data
    if problems[0].rows is None and matrix is None:
        data = data._replace(y=problems[0].y, weight=problems[0].weight)
        return inputs._replace(data=data)
    index = np.zeros((len(problems), size), np.int32)
    y, weight = (np.zeros(index.shape, a.dtype) for a in (data.y, data.weight))
    own = np.zeros((0 if matrix is None else len(problems), size, size), y.dtype)
    for i, problem in enumerate(problems):
        m = len(problem.y)
        index[i, :m] = np.arange(m) if problem.rows is None else problem.rows
        y[i, :m], weight[i, :m] = problem.y, problem.weight
        if matrix is not None:
            own[i, :m, :m] = matrix[np.ix_(index[i, :m], index[i, :m])]
    number, x = np.broadcast_to(np.arange(size, dtype=np.int32), index.shape), None
    if matrix is None:
        x, own = jax.tree.map(lambda a: np.asarray(a)[index], (inputs.x, data.x))
    parts: Any = {"x": own, "y": y, "weight": weight, "index": number}
    data = data._replace(**parts)
    if len(problems) == 1:
        data, x = jax.tree.map(lambda a: a[0], (data, x))
    return inputs._replace(data=data, x=x)


def joined(whole: Any, model: Any, own: dict[str, np.ndarray]) -> Any:
    """The model of several, of one of them and the stacked fields in which they differ."""
    one = dataclasses.replace(model, **{name: stacked[0] for name, stacked in own.items()})
    if not isinstance(whole, Problems):
        return one
    every = dataclasses.replace(model, **own)
    leaves = zip(jax.tree.leaves(every), jax.tree.leaves(one), strict=True)
    return whole.join(every, tuple(np.ndim(a) > np.ndim(b) for a, b in leaves))


@jax.jit
def run_lanes(inputs: Inputs, data: Batch, x: object, key: Array) -> tuple:
    """The ends of several problems, whose rows have a leading axis."""
    return jax.vmap(lambda data, x: run_once(inputs._replace(data=data, x=x), key))(data, x)
