"""`select`: the numbers of a solver by cross-validation over a grid, in one call."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import as_number, integer, shown
from ..flags import despite_flags
from ..models import classes_of
from ..numerics import is_traced
from ..recipe import check_positive, fields_of
from ..types import Array, Batch
from .checks import check_limit, whole_number
from .grid_runs import Grid, GridJob
from .race import run_race
from .scoring import Scorer
from .select_checks import (
    axis_of,
    check_arguments,
    check_folds,
    check_names,
    check_score,
    check_single,
    first_solver,
    folds_of,
)
from .selection import Scores, Selection, strength
from .selection_file import ResultFile, Results, digest
from .threads import Limits, Progress, processors
from .vmapped_fits import refit, run_fits


@despite_flags
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
    fold_models: bool = False,
    **axes: Any,
) -> Selection:
    """Choose numbers of a solver by cross-validation, and train it with the best.

        score[i, j, f] = score of maker(a=a[i], b=b[j]) trained without fold f, on the rows of f

    A fold is left out by weights of 0, so that all fits are one program. What fits share is worked
    out once: a kernel matrix for all C and folds of a gamma, a feature map for all C.

    Exact kernel machines (`decomposition`) of the same kernel run one after the other, each from
    the solution before. Several folds run at once. The table then holds a certified gap of each
    fit, worked out in float64. Fits of other solvers are programs over all folds and all numbers
    of the first axis. So put first the axis on which no feature map depends. Along it, fits of
    `newton` start from the solution before.

    Args:
        maker: (one number of each axis by name) -> solver.
        data: n rows; rows of weight 0 are left out of all fits.
        key: a key of `jax.random.key`, for the folds and for all fits.
        folds: number of folds; they are stratified for labels and class numbers. Or the fold of
            each row, (n,) integers from 0 on, -1 for rows that are in all training sets; a single
            fold 0 is a validation set. Or "loo": each row is a fold; exact kernel machines then
            start from the solution on all rows where the row is no support vector, which is the
            solution without it.
        groups: (n,) a name or number of the group of each row; rows of one group are in one fold.
            None: the queries of the data, if it has them.
        score: "error", the weighted share of misclassified rows, or the mean squared error of real
            targets; "risk", the mean hinge loss, or absolute error; "log_loss" or "brier", of
            probabilities by sigmoids that were fitted to the other folds, each class against the
            rest; "auc", one minus the area under the ROC curve, of more than two classes the mean
            over them; or a function of decision values (m,) or (m, classes), targets (m,) and
            weights (m,) of a fold, NumPy arrays, -> a number. The least is best.
        rule: of the model: "best", the least mean score, or "one_se", the strongest regularisation
            within one standard error of it. Among equal scores both take the strongest
            regularisation.
        search: "grid" or "race". A grid fits all cells. A race leaves out cells after two fifths of
            the folds, and after each further fifth: those whose losses exceed the best cell's by
            more than two standard errors of the paired differences. Their scores are nan. With a
            function as `score` its values are compared, from three folds on.
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
            from it, with the same result. Functions are the same if their code is, what they close
            over, and the globals that they read; those of installed packages, if their names are.
        progress: a bar on the standard error stream.
        fold_models: whether the result holds the models of the choice that were trained without
            each fold, by another fit each, for `Selection.conformal`.
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
        loops.SaveError: the last results could not be saved; the exception holds the `Selection` as
            `run`.

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
    check_arguments(maker, data, key, score, rule, search, seconds, progress)
    if not isinstance(fold_models, bool):
        raise TypeError(f"fold_models must be True or False, got {shown(fold_models)}")
    if is_traced(data, key, axes):
        raise ValueError("select works outside of jit, vmap and grad only")
    names, data = data.classes, data._replace(classes=None)  # other names: the same programs
    steps = None if steps is None else whole_number("steps", steps, 0)
    threads = processors() if threads is None else integer("threads", threads, 1)
    check_limit("tol", tol)
    if memory is not None:
        check_positive(memory=memory)
        memory = as_number("memory", memory)
    numbers = {name: axis_of(name, values) for name, values in axes.items()}
    check_names(maker, list(numbers))
    first = first_solver(maker, numbers, data)
    check_score(score, first)
    fold = folds_of(key, data, fields_of(first).targets, folds, groups)
    count = int(fold.max()) + 1
    check_single(count, score)
    check_folds(fold, data, fields_of(first).targets)
    results = Results(tuple(map(len, numbers.values())), count, fold.shape[0])
    race = search == "race"
    call = ""
    if save is not None:
        call = digest(numbers, data, _digests(maker, numbers), fold, key, tol, steps, race)
    file = ResultFile(save, results, call)
    start, limits = time.monotonic(), Limits(seconds)
    order = [np.argsort(strength(name, values), kind="stable") for name, values in numbers.items()]
    grid = Grid(maker, numbers, order, data, fold, key, tol, steps)
    total = results.arrays["done"].size
    bar = Progress(total, results.count, "fits", progress)
    everything = tuple(range(count)), np.ones(results.shape, bool)
    part = GridJob(grid, *everything, results, file, limits, bar, memory, threads)
    rule_of_scores = Scorer(score, fields_of(first).targets)
    try:
        if race:
            run_race(run_fits, part, rule_of_scores.losses)
        else:
            run_fits(part)
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
    if limits.out_of_time and not np.isfinite(table.mean).any():
        raise ValueError(
            f"no cell was completed within {seconds:g} seconds: give more of them, or save=path, "
            "from which the next call goes on"
        )
    place = table.one_se_place if rule == "one_se" else table.place
    model, certificate = refit(grid, place, memory)
    status = _status(table, limits, results.count, race, time.monotonic() - start)
    classes = classes_of(fields_of(first).targets, names)
    targets, weight = np.asarray(data.y), np.asarray(data.weight)
    of_folds = None
    if fold_models:
        left_out = (grid._replace(data=grid.without(k)) for k in range(count))
        of_folds = tuple(refit(part, place, memory)[0] for part in left_out)
    selection = Selection(
        table,
        arrays["values"],
        fold,
        model,
        certificate,
        rule,
        status,
        classes,
        targets,
        weight,
        of_folds,
    )
    return file.finish(selection)


def _digests(maker: Callable, axes: dict[str, np.ndarray]) -> list[str]:
    """Those of the solvers of all cells, each of which may hold a map and is let go at once."""
    cells = itertools.product(*(numbers.tolist() for numbers in axes.values()))
    return [digest(maker(**dict(zip(axes, cell, strict=True)))) for cell in cells]


def C_grid(size: int = 8) -> np.ndarray:
    """The usual values of C: `size` numbers from 0.1 to 1,000, evenly spaced by their logarithms.

    Args:
        size: how many, >= 2.

    Example:
        >>> C_grid(5).tolist()
        [0.1, 1.0, 10.0, 100.0, 1000.0]
    """
    return np.logspace(-1, 3, integer("size", size, 2))


def _status(table: Scores, limits: Limits, n_fits: int, race: bool, seconds: float) -> str:
    """One sentence on what was run."""
    total, complete = table.folds.size, int(np.isfinite(table.mean).sum())
    fits = f"{total} fits" if n_fits == total else f"{n_fits} of {total} fits made"
    text = f"{fits}, {complete} of {table.mean.size} cells with a score, {seconds:.1f} s"
    return ("out of time: " if n_fits < total and (not race or limits.out_of_time) else "") + text
