"""`select`: the numbers of a solver by cross-validation over a grid, in one call."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..checks import as_number, integer, shown
from ..checks import key as check_key
from ..data.folds import folds as make_folds
from ..numerics import check_process, is_traced
from ..recipe import check_choice, check_positive, fields_of
from ..types import Array, Batch, check_batch
from .checks import check_limit, check_solver, check_targets, whole_number
from .gradient_search import (
    EVALUATIONS,
    TRACE,
    Problem,
    SearchResult,
    as_numbers,
    empty_trace,
    start_of,
)
from .gradient_search import search as search_by_gradient
from .grid_runs import (
    Grid,
    Limits,
    Progress,
    refit_fitted,
    refit_shared,
    run_fitted,
    run_shared,
)
from .selection import POINT, Scores, Selection, cells_of, strength
from .selection_file import ResultFile, Results, fingerprint

SEARCHES = ("grid", "race", "gradient")


def select(
    maker: Callable,
    data: Batch,
    key: Array,
    *,
    folds: Any = 5,
    groups: Any = None,
    score: str | Callable = "error",
    rule: str = "best",
    search: str = "grid",
    tol: float | None = None,
    steps: int | None = None,
    memory: float | None = None,
    threads: int | None = None,
    seconds: float | None = None,
    save: str | bytes | os.PathLike | None = None,
    progress: bool = True,
    **axes: Any,
) -> Selection:
    """Choose numbers of a solver by cross-validation, and train it with the best.

        score[i, j, f] = score of maker(a=a[i], b=b[j]) trained without fold f, on the rows of f

    A fold is left out by weights of 0, so that all fits are one program. What fits share is worked
    out once: a kernel matrix for all C and folds of a gamma, a feature map for all C.

    Exact kernel machines (`decomposition`) run one after the other along the axes that leave the
    kernel as it is, each from the solution before, and several folds at once. The table then holds
    a certified gap of each fit, worked out in float64. Fits of other solvers are programs over all
    folds and all numbers of the first axis: put first the axis on which no feature map depends.

    A gradient search minimises the smoothed out-of-fold risk over the logarithms of all numbers by
    L-BFGS: the mean over the rows held out of log(1 + exp(-y f)), of the cross-entropy of the
    softmax for class numbers, or of (y - f)^2 for real targets. Derivatives of exact machines are
    those of the exact solution, those of other solvers of their steps. The fits are made in float64
    to a tolerance of 1e-6. Each number stays within a factor of 1,000 of its start. The search
    ends after 100 evaluations at most. Then the folds are fitted at the start and at the end, as in
    a grid of these two cells, and the one of less mean score is chosen. So its score is never above
    that of the start. Exact machines take long at a large C: start from a small one.

    Args:
        maker: (one number of each axis by name) -> solver.
        data: n rows; rows of weight 0 are left out of all fits.
        key: a key of `jax.random.key`, for the folds and for all fits.
        folds: number of folds; they are stratified for labels and class numbers. Or the fold of
            each row, (n,) integers from 0 on, -1 for rows that are in all training sets. Or "loo":
            each row is a fold; exact kernel machines then start from the solution on all rows
            where the row is no support vector, which is the solution without it.
        groups: (n,) a name or number of the group of each row; rows of one group are in one fold.
        score: "error", the weighted share of misclassified rows, or the mean squared error of real
            targets; "risk", the mean hinge loss, or absolute error; or a function of decision
            values (m,) or (m, classes), targets (m,) and weights (m,) of a fold, NumPy arrays, ->
            a number. The least is best.
        rule: of the model: "best", the least mean score, or "one_se", the strongest regularisation
            within one standard error of it. Among equal scores both take the strongest
            regularisation.
        search: "grid", all cells; or "gradient": each axis is the start of one parameter, a number
            C=1.0 or a vector gamma=np.ones(d), which the maker gets as a whole.
        tol: of the fits, as of `fit`; None: the solver's.
        steps: of the fits, as of `fit`; None: ten passes, or until an exact solver's tolerance. Ten
            passes of dual ascent may be too few for a large C.
        memory: bytes of what fits share, > 0; None: 2 GiB. A kernel matrix that does not fit is
            replaced by a cache of its rows, which all C and folds share. For other solvers the
            bound of the temporaries of a program, as of `sweep`.
        threads: fits at the same time; None: the number of processors. Those of a gradient search
            are made one after the other.
        seconds: start no other fit after this time. Cells that were not completed are nan; if there
            is no other, a ValueError says so. A gradient search ends, but both of its points are
            fitted in any case.
        save: path of a file that holds all finished fits, and all evaluations of a gradient search.
            A call with the same arguments goes on from it, with the same result.
        progress: a bar on the standard error stream.
        **axes: name -> (k,) numbers, one or more axes; with search="gradient" a number or a vector.

    Returns:
        `Selection`: the table of scores, the decision values of each row by models trained without
        it, `best` and `one_se`, the model trained on all rows, and its certificate.

    Raises:
        TypeError: data is not a `Batch`, maker not a function.
        ValueError: no axis, an axis that is not a vector of finite numbers or not an argument of
            maker; a start that is not above 0, or a solver without derivatives for a gradient
            search; fewer rows than folds, groups or folds of another length, a fold without which
            only one class is left; a file of another call; no cell with a finite score.
        FileNotFoundError: the folder of `save` does not exist.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> from jaxsvm import kernels
        >>> x = np.random.default_rng(0).normal(size=(60, 2))
        >>> data = jaxsvm.dataset(x, np.where((x**2).sum(1) > 1.2, 1, -1))
        >>> maker = lambda C, gamma: jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))
        >>> found = jaxsvm.select(maker, data, jax.random.key(0), C=np.array([0.1, 10.0]),
        ...     gamma=np.array([0.01, 1.0]), progress=False)
        >>> found.best
        {'C': 10.0, 'gamma': 1.0}
        >>> float(found.table.gap.max()) < 1e-2
        True

    Reference: T. Hastie, R. Tibshirani, J. Friedman, The elements of statistical learning, 2009,
        section 7.10 (one standard error); C.-W. Hsu, C.-C. Chang, C.-J. Lin, A practical guide to
        support vector classification, 2003.
    """
    check_process()
    _check_arguments(maker, data, key, score, rule, search, seconds, progress)
    if is_traced(data, key, axes):
        raise ValueError("select works outside of jit, vmap and grad only")
    steps = None if steps is None else whole_number("steps", steps, 0)
    threads = _processors() if threads is None else integer("threads", threads, 1)
    check_limit("tol", tol)
    if memory is not None:
        check_positive(memory=memory)
        memory = as_number("memory", memory)
    by_gradient = search == "gradient"
    as_axis = start_of if by_gradient else _axis
    numbers = {name: as_axis(name, values) for name, values in axes.items()}
    _check_names(maker, list(numbers))
    first = (
        _checked_solver(maker, as_numbers(numbers), data)
        if by_gradient
        else _first_solver(maker, numbers, data)
    )
    fold = _folds(key, data, fields_of(first).targets, folds, groups)
    count = int(fold.max()) + 1
    _check_folds(fold, data, fields_of(first).targets)
    results = Results((2,) if by_gradient else _shape(numbers), count, fold.shape[0])
    if by_gradient:
        results.arrays |= {TRACE: empty_trace(numbers), END: empty_trace(numbers)[0]}
    call = fingerprint(
        list(numbers), list(numbers.values()), data, fold, key, tol, steps, repr(first)
    )
    call = f"{call} gradient {EVALUATIONS}" if by_gradient else call
    file = ResultFile(save, results, "" if save is None else call)
    start, limits = time.monotonic(), Limits(seconds)
    found = None
    if by_gradient:
        problem = Problem(maker, numbers, data, fold, count, key, tol, steps)
        found = _searched(problem, results, file, limits, progress)
        # both points are checked in any case
        maker, limits = _maker_of_points(maker, found.points), Limits(None)
        numbers = {POINT: np.arange(2)}
    order = [np.argsort(strength(name, values), kind="stable") for name, values in numbers.items()]
    grid = Grid(maker, numbers, order, data, fold, count, key, tol, steps)
    total = int(np.prod(grid.shape)) * count
    known = results.count + sum(len(leaves[0]) for leaves in results.paths.values())
    bar = Progress(total, known, progress)
    run = run_fitted if fields_of(first).sharing is None else run_shared
    try:
        run(grid, results, file, limits, bar, memory, threads)
    finally:
        bar.close()
        file.write(now=True)
    _score_all(grid, results, score, fields_of(first).targets)
    arrays = results.arrays
    table = Scores(
        arrays["score"],
        arrays["gap"],
        arrays["primal"],
        arrays["support"],
        arrays["seconds"],
        tuple(numbers.values()),
        tuple(numbers),
        None if found is None else found.points,
    )
    place = table.one_se_place if rule == "one_se" else table.place
    refit = refit_fitted if fields_of(first).sharing is None else refit_shared
    model, certificate = refit(grid, place, memory)
    n_fits = results.count
    status = f"{n_fits} of {total} fits made, " if n_fits < total else f"{total} fits, "
    status = ("out of time: " if n_fits < total else "") + status
    status += f"{np.isfinite(table.mean).sum()} of {table.mean.size} cells with a score, "
    status += f"{time.monotonic() - start:.1f} s"
    status = status if found is None else f"{found.status}; {status}"
    return Selection(table, arrays["values"], fold, model, certificate, rule, status)


END = "end"  # the array of the results that names the end of the search that was checked


def _searched(
    problem: Problem, results: Results, file: ResultFile, limits: Limits, progress: bool
) -> SearchResult:
    """The result of a gradient search; fits that are known of another end are forgotten."""
    try:
        found = search_by_gradient(problem, results, file, limits, progress)
    finally:
        file.write(now=True)
    end = np.concatenate([np.ravel(numbers[1]) for numbers in found.points.values()])
    known = results.arrays[END][: len(end)]
    if not np.array_equal(known, end):
        known[:] = end
        results.arrays["done"][:] = False
        results.paths = {}
    return found


def _maker_of_points(maker: Callable, points: dict[str, np.ndarray]) -> Callable:
    """A maker of the solver at a point of a gradient search, by its number."""

    def solver_at(**point: int) -> Any:
        place = point[POINT]
        return maker(**as_numbers({name: numbers[place] for name, numbers in points.items()}))

    return solver_at


def _shape(axes: dict[str, np.ndarray]) -> tuple[int, ...]:
    """The number of cells along each axis."""
    return tuple(map(len, axes.values()))


def C_grid(size: int = 8) -> np.ndarray:
    """The usual values of C: `size` numbers from 0.1 to 1,000, evenly spaced by their logarithms.

    Args:
        size: how many, >= 2.

    Example:
        >>> C_grid(5).tolist()
        [0.1, 1.0, 10.0, 100.0, 1000.0]
    """
    return np.logspace(-1, 3, integer("size", size, 2))


def _processors() -> int:
    """The number of processors that this process may use; 1 if JAX computes elsewhere."""
    if jax.default_backend() != "cpu":
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _check_arguments(
    maker: Any,
    data: Any,
    key: Any,
    score: Any,
    rule: Any,
    search: Any,
    seconds: Any,
    progress: Any,
) -> None:
    """Raise for arguments of `select` that are not what it takes."""
    if not callable(maker) or isinstance(maker, type):
        raise TypeError(
            "maker must be a function of one number of each axis that returns a solver, got "
            f"{shown(maker)}"
        )
    check_batch("data", data)
    check_key("key", key)
    if not callable(score):
        check_choice("score", score, ("error", "risk"))
    check_choice("rule", rule, ("best", "one_se"))
    check_choice("search", search, SEARCHES)
    if search == "race":
        raise ValueError(
            f"search={search!r} is not there yet: use search='grid', which computes all cells"
        )
    if search == "gradient" and rule != "best":
        raise ValueError(
            f"search='gradient' compares two points, which have no order of regularisation: "
            f"leave rule={rule!r} out, or use search='grid'"
        )
    check_limit("seconds", seconds)
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")


def _axis(name: str, numbers: Any) -> np.ndarray:
    """The numbers of an axis as a vector on the host; integers stay integers."""
    wrong = f"the axis {name} must be a vector of at least one finite number, got "
    try:
        vector = np.asarray(numbers)
    except (TypeError, ValueError) as error:
        raise ValueError(wrong + shown(numbers)) from error
    if vector.dtype.kind not in "iuf":
        raise ValueError(wrong + shown(numbers))
    if vector.ndim != 1 or not vector.shape[0]:
        raise ValueError(f"{wrong}shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(wrong + f"{vector[~np.isfinite(vector)][0]:g}")
    return vector


def _check_names(maker: Callable, names: list[str]) -> None:
    """Raise unless the axes are arguments of the maker, and all that it needs."""
    if not names:
        raise ValueError("select needs at least one axis, such as C=jaxsvm.C_grid()")
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = [p.name for p in by_name]
    has_kwargs = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in names:
        if name not in known and not has_kwargs:
            raise ValueError(
                f"maker has no parameter named {name}, only {', '.join(known)}: name the axes as "
                "maker does"
            )
    missing = [p.name for p in by_name if p.default is p.empty and p.name not in names]
    if missing:
        raise ValueError(
            f"maker needs {', '.join(missing)}, but the axes are {', '.join(names)}: give an axis "
            "for each parameter without a default"
        )


def _first_solver(maker: Callable, axes: dict[str, np.ndarray], data: Batch) -> Any:
    """The solver of the first cell, after checks of it and of those at the ends of the axes."""
    middle = {name: numbers[0].item() for name, numbers in axes.items()}
    for name, numbers in axes.items():
        for value in {numbers.min().item(), numbers.max().item()} - {middle[name]}:
            check_solver(maker(**middle | {name: value}))
    return _checked_solver(maker, middle, data)


def _checked_solver(maker: Callable, numbers: dict[str, Any], data: Batch) -> Any:
    """The solver at these numbers, after checks of it."""
    first = maker(**numbers)
    try:
        check_solver(first)
    except TypeError as error:
        raise TypeError(f"maker must return a solver, got {shown(first)}") from error
    check_targets(fields_of(first), data)
    return first


def _folds(key: Array, data: Batch, targets: Any, folds: Any, groups: Any) -> np.ndarray:
    """The fold of each row, -1 for rows of weight 0."""
    weight, y = np.asarray(data.weight), np.asarray(data.y)
    n, live = y.shape[0], np.flatnonzero(weight > 0)
    fold = np.full(n, -1, np.int32)
    if isinstance(folds, str):
        if folds != "loo":
            raise ValueError(
                f"folds must be a number, the fold of each row, or 'loo', got {folds!r}"
            )
        if groups is not None:
            raise ValueError("folds='loo' leaves out single rows: leave groups out")
        fold[live] = np.arange(len(live))
        return fold
    if np.ndim(folds) == 0:
        if groups is not None and np.shape(groups) != (n,):
            raise ValueError(
                f"groups must name the group of each of the {n} rows, got shape {np.shape(groups)}"
            )
        own = None if groups is None else np.asarray(groups)[live]
        k = integer("folds", folds, 2)
        stratify = targets == "labels" or isinstance(targets, int)
        fold[live] = make_folds(key, y[live], k, groups=own, stratify=stratify)
        return fold
    given = np.asarray(folds)
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"folds must hold a whole number for each of the {n} rows, got "
            f"{given.dtype} of shape {given.shape}"
        )
    if groups is not None:
        raise ValueError("folds that are given row by row take no groups: leave groups out")
    if given.min() < -1 or given.max() < 1:
        raise ValueError(
            "folds must be numbered 0, 1, ..., at least two of them, -1 for rows that are always "
            f"trained on, got {given.min()} to {given.max()}"
        )
    fold[live] = given[live]
    return fold


def _check_folds(fold: np.ndarray, data: Batch, targets: Any) -> None:
    """Raise for a fold without rows, or without which a class is missing."""
    y, live = np.asarray(data.y), np.asarray(data.weight) > 0
    for i, count in enumerate(np.bincount(fold[fold >= 0])):
        if not count:
            raise ValueError(f"fold {i} holds no row: number the folds 0, 1, ... without gaps")
    if targets != "labels" and not isinstance(targets, int):
        return
    classes = np.unique(y[live])
    place = np.searchsorted(classes, y)
    counts = np.zeros((int(fold.max()) + 1, len(classes)), int)
    np.add.at(counts, (fold[live & (fold >= 0)], place[live & (fold >= 0)]), 1)
    missing = np.argwhere(counts == np.bincount(place[live], minlength=len(classes))[None, :])
    if len(missing):
        i, c = missing[0]
        raise ValueError(
            f"without fold {i} there is no row of class {classes[c]:g}: take fewer folds, more "
            "rows of that class, or other groups"
        )


def _score_all(grid: Grid, results: Results, score: str | Callable, targets: Any) -> None:
    """Fill in the score of every finished fit."""
    data = grid.data
    y, weight = (np.asarray(a, np.float64) for a in (data.y, data.weight))
    real = targets == "real"
    rule = score if callable(score) else _SCORES[score, real]
    rows = [grid.held_out(fold) for fold in range(grid.folds)]
    for cell in cells_of(grid.shape):
        values = results.arrays["values"][cell].astype(np.float64)
        for fold, index in enumerate(rows):
            if results.arrays["done"][(*cell, fold)]:
                results.arrays["score"][(*cell, fold)] = rule(
                    values[index], y[index], weight[index]
                )


def _error(values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The weighted share of misclassified rows; nan if a value is not finite."""
    wrong = (
        (values > 0) != (y > 0) if values.ndim == 1 else np.argmax(values, axis=1) != y.astype(int)
    )
    return _mean(wrong, values, weight)


def _mean(losses: np.ndarray, values: np.ndarray, weight: np.ndarray) -> float:
    """The weighted mean of losses; nan if a value is not finite."""
    if not np.isfinite(values).all():
        return np.nan
    return float(np.average(losses, weights=weight))


def _hinge(values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The mean hinge loss."""
    if values.ndim > 1:
        raise ValueError(
            "score='risk' takes models with one value for each row; score many classes by 'error', "
            "or by a function of your own"
        )
    return _mean(np.maximum(0, 1 - y * values), values, weight)


_SCORES: dict[tuple[str, bool], Callable] = {
    ("error", False): _error,
    ("risk", False): _hinge,
    ("error", True): lambda values, y, weight: _mean((values - y) ** 2, values, weight),
    ("risk", True): lambda values, y, weight: _mean(np.abs(values - y), values, weight),
}
