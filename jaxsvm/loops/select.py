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
from .fitted_runs import refit_fitted, run_fitted
from .grid_runs import Grid, Limits, Part, Progress
from .race import run_race
from .selection import Scores, Selection, cells_of, strength
from .selection_file import ResultFile, Results, fingerprint
from .shared_runs import refit_shared, run_shared

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
    """Choose numbers of a solver by cross-validation over a grid, and train it with the best.

        score[i, j, f] = score of maker(a=a[i], b=b[j]) trained without fold f, on the rows of f

    A fold is left out by weights of 0, so that all fits are one program. What fits share is worked
    out once: a kernel matrix for all C and folds of a gamma, a feature map for all C.

    Exact kernel machines (`decomposition`) run one after the other along the axes that leave the
    kernel as it is, each from the solution before, and several folds at once. The table then holds
    a certified gap of each fit, worked out in float64. Fits of other solvers are programs over all
    folds and all numbers of the first axis: put first the axis on which no feature map depends.

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
        search: "grid", all cells; or "race": after two fifths of the folds, and after each further
            fifth, cells are left out whose losses exceed those of the best cell by more than two
            standard errors of the paired differences. With a function as `score` its values are
            compared, from three folds on. The scores of cells left out are nan.
        tol: of the fits, as of `fit`; None: the solver's.
        steps: of the fits, as of `fit`; None: ten passes, or until an exact solver's tolerance. Ten
            passes of dual ascent may be too few for a large C.
        memory: bytes of what fits share, > 0; None: 2 GiB. A kernel matrix that does not fit is
            replaced by a cache of its rows, which all C and folds share. For other solvers the
            bound of the temporaries of a program, as of `sweep`.
        threads: fits at the same time; None: the number of processors.
        seconds: start no other fit after this time. Cells that were not completed are nan; if there
            is no other, a ValueError says so.
        save: path of a file that holds all finished fits. A call with the same arguments goes on
            from it, with the same result.
        progress: a bar on the standard error stream.
        **axes: name -> (k,) numbers, one or more axes.

    Returns:
        `Selection`: the table of scores, the decision values of each row by models trained without
        it, `best` and `one_se`, the model trained on all rows, and its certificate.

    Raises:
        TypeError: data is not a `Batch`, maker not a function.
        ValueError: no axis, an axis that is not a vector of finite numbers or not an argument of
            maker; fewer rows than folds, groups or folds of another length, a fold without which
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
    numbers = {name: _axis(name, values) for name, values in axes.items()}
    _check_names(maker, list(numbers))
    first = _first_solver(maker, numbers, data)
    fold = _folds(key, data, fields_of(first).targets, folds, groups)
    count = int(fold.max()) + 1
    _check_folds(fold, data, fields_of(first).targets)
    order = [np.argsort(strength(name, values), kind="stable") for name, values in numbers.items()]
    grid = Grid(maker, numbers, order, data, fold, count, key, tol, steps)
    results = Results(grid.shape, count, fold.shape[0])
    race = search == "race"
    call = fingerprint(
        list(numbers), list(numbers.values()), data, fold, key, tol, steps, repr(first), race
    )
    file = ResultFile(save, results, "" if save is None else call)
    start, limits = time.monotonic(), Limits(seconds)
    total = int(np.prod(grid.shape)) * count
    known = results.count + sum(len(leaves[0]) for leaves in results.paths.values())
    bar = Progress(total, known, progress)
    everything = tuple(range(count)), np.ones(grid.shape, bool)
    part = Part(grid, *everything, results, file, limits, bar, memory, threads)
    run = run_fitted if fields_of(first).sharing is None else run_shared
    rule_of_scores = _Rule(score, fields_of(first).targets == "real")
    try:
        if race:
            run_race(run, part, rule_of_scores.losses)
        else:
            run(part)
    finally:
        bar.close()
        file.write(now=True)
    rule_of_scores.fill(part)
    arrays = results.arrays
    table = Scores(
        arrays["score"],
        arrays["gap"],
        arrays["primal"],
        arrays["support"],
        arrays["seconds"],
        tuple(numbers.values()),
        tuple(numbers),
    )
    place = table.one_se_place if rule == "one_se" else table.place
    refit = refit_fitted if fields_of(first).sharing is None else refit_shared
    model, certificate = refit(grid, place, memory)
    status = _status(table, limits, results.count, race, time.monotonic() - start)
    return Selection(table, arrays["values"], fold, model, certificate, rule, status)


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
    if search == "gradient":
        raise ValueError(
            f"search={search!r} is not there yet: use search='grid', which computes all cells"
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
    first = maker(**middle)
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


def _status(table: Scores, limits: Limits, n_fits: int, race: bool, seconds: float) -> str:
    """One sentence on what was run."""
    total, complete = table.folds.size, int(np.isfinite(table.mean).sum())
    fits = f"{total} fits" if n_fits == total else f"{n_fits} of {total} fits made"
    text = f"{fits}, {complete} of {table.mean.size} cells with a score, {seconds:.1f} s"
    return ("out of time: " if n_fits < total and (not race or limits.out_of_time) else "") + text


class _Rule:
    """The score of a fit, and the losses that a race compares."""

    def __init__(self, score: str | Callable, real: bool) -> None:
        self.score = score
        self.loss = None if callable(score) else _LOSSES[score, real]

    def of_fold(self, values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        """The score of decision values; nan if one is not finite and the rule is not the user's."""
        if self.loss is None:
            return self.score(values, y, weight)  # type: ignore[operator]  # a function
        if not np.isfinite(values).all():
            return np.nan
        return float(np.average(self.loss(values, y), weights=weight))

    def fill(self, part: Part) -> None:
        """Fill in the score of every finished fit."""
        arrays = part.results.arrays
        for cell in cells_of(part.grid.shape):
            for fold in part.folds:
                place = (*cell, fold)
                if arrays["done"][place] and np.isnan(arrays["score"][place]):
                    arrays["score"][place] = self.of_fold(*_held_out(part, cell, fold))

    def losses(
        self, part: Part, cell: tuple[int, ...], folds: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The losses of a cell on the rows of these folds, or its scores, and their weights."""
        outcomes = [_held_out(part, cell, fold) for fold in folds]
        if self.loss is None:
            return np.array([self.of_fold(*outcome) for outcome in outcomes]), np.ones(len(folds))
        values, y, weight = (np.concatenate(arrays) for arrays in zip(*outcomes, strict=True))
        rows_finite = np.isfinite(values).reshape(len(y), -1).all(axis=1)
        return np.where(rows_finite, self.loss(values, y), np.nan), weight


def _held_out(
    part: Part, cell: tuple[int, ...], fold: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decision values, targets and weights of the rows of a fold."""
    data, rows = part.grid.data, part.grid.held_out(fold)
    y, weight = (np.asarray(a, np.float64)[rows] for a in (data.y, data.weight))
    return part.results.arrays["values"][cell][rows].astype(np.float64), y, weight


def _error(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1 for a misclassified row."""
    one = values.ndim == 1
    return (values > 0) != (y > 0) if one else np.argmax(values, axis=1) != y.astype(int)


def _hinge(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The hinge loss."""
    if values.ndim > 1:
        raise ValueError(
            "score='risk' takes models with one value for each row; score many classes by 'error', "
            "or by a function of your own"
        )
    return np.maximum(0, 1 - y * values)


_LOSSES: dict[tuple[str, bool], Callable] = {
    ("error", False): _error,
    ("risk", False): _hinge,
    ("error", True): lambda values, y: (values - y) ** 2,
    ("risk", True): lambda values, y: np.abs(values - y),
}
