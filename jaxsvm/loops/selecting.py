"""`select`: the numbers of a solver by cross-validation over a grid, in one call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..checks import check_choice, check_limit, check_positive, integer
from ..flags import despite_flags
from ..models import classes_of
from ..numerics import is_traced
from ..types import Array, Batch
from ..wrappers.paths import certificate_of
from .checks import whole_number
from .fits import run_fits
from .fitting import fit
from .grid_runs import Grid
from .race import run_race
from .scoring import Scorer
from .select_checks import axis_of, check_arguments, check_score, first_solver, folds_of
from .selection import Scores, Selection
from .selection_file import Results
from .threads import Jobs, processors


@despite_flags
def select(
    maker: Callable,
    data: Batch,
    key: Array,
    *,
    folds: object = 5,
    groups: object = None,
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
    **axes: object,
) -> Selection:
    """Choose numbers of a solver by cross-validation, and train it with the best.

        score[i, j, f] = score of maker(a=a[i], b=b[j]) trained without fold f, on the rows of f

    What fits share is worked out once for all numbers of the first axis: a kernel matrix for all C
    and folds of a gamma, a feature map for all C. So put first the axis on which no kernel and no
    feature map depends.

    Fits of exact kernel machines (`decomposition`) run along the first axis, each from the solution
    before, and the fits of all numbers of the first axis are one program. The table then holds the
    duality gap of each fit. Fits of other solvers are programs over all folds and all numbers of
    the first axis. Along it, fits of `newton` start from the solution before.

    Args:
        maker: (one number of each axis by name) -> solver.
        data: n rows; rows of weight 0 are left out of all fits.
        key: a key of `jax.random.key`, for the folds and for all fits.
        folds: number of folds; they are stratified for labels and class numbers. Or the fold of
            each row, (n,) integers from 0 on, -1 for rows that are in all training sets; a single
            fold 0 is a validation set. Or "loo": each row is a fold; exact kernel machines then
            make no fit where the row is no support vector of the machine on all rows, which is the
            solution without it.
        groups: (n,) a name or number of the group of each row; rows of one group are in one fold.
            None: the queries of the data, if it has them.
        score: "error", the weighted share of misclassified rows, or the mean squared error of real
            targets; "risk", the mean hinge loss, or absolute error; "log_loss" or "brier", of the
            probabilities of `Selection.calibrated`, by sigmoids of the decision values out of fold,
            each class against the rest; "auc", one minus the area under the ROC curve, of more
            than two classes the mean over them; or a function of decision values (m,) or
            (m, classes), targets (m,) and weights (m,) of a fold, NumPy arrays, -> a number. The
            least is best.
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
            replaced by a cache of its rows in each fit. For other solvers the bound of the
            temporaries of a program, as of `sweep`.
        threads: fits at the same time; None: the number of processors.
        seconds: start no other program of fits after this time. Cells that were not completed are
            nan; if there is no other, a ValueError says so.
        save: path of a file that holds all finished fits. A call with the same arguments goes on
            from it, with the same result. It belongs to the rows, the folds and the axes, and to
            the solver of the first cell.
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
    check_arguments(maker, data, key, score, progress)
    check_choice("rule", rule, ("best", "one_se"))
    check_choice("search", search, ("grid", "race"))
    check_limit("seconds", seconds)
    if is_traced(data, key, axes):
        raise ValueError("select works outside of jit, vmap and grad only")
    names, data = data.classes, data._replace(classes=None)  # other names: the same programs
    steps = None if steps is None else whole_number("steps", steps, 0)
    threads = processors() if threads is None else integer("threads", threads, 1)
    check_limit("tol", tol)
    if memory is not None:
        check_positive(memory=memory)
    numbers = {name: axis_of(name, values) for name, values in axes.items()}
    first = first_solver(maker, numbers, data)
    targets = first.targets
    fold = folds_of(key, data, targets, folds, groups)
    count, shape = int(fold.max()) + 1, tuple(map(len, numbers.values()))
    check_score(score, first)
    scorer, call = Scorer(score, targets), (numbers, data, first, fold, key, tol, steps, search)
    results = Results(shape, count, len(fold), save, *call)
    start = time.monotonic()
    jobs = Jobs(results.arrays["done"].size, results.count, "fits", progress, seconds)
    fits = tuple(range(count)), np.ones(shape, bool), results, jobs, memory, threads
    grid = Grid(maker, numbers, data, fold, key, tol, steps, *fits)
    try:
        if search == "race":
            run_race(run_fits, grid, scorer.losses)
        else:
            run_fits(grid)
    finally:
        jobs.close()
        results.write(now=True)
    scorer.fill(grid)
    arrays = results.arrays
    fields: Any = {name: arrays[name] for name in ("gap", "primal", "support", "seconds")}
    table = Scores(arrays["score"], **fields, numbers=(*numbers.values(),), names=(*numbers,))
    n_scores, n_fits, total = np.isfinite(table.mean).sum(), results.count, table.folds.size
    if jobs.out_of_time and not n_scores:
        raise ValueError(
            f"no cell was completed within {seconds:g} seconds: give more of them, or save=path, "
            "from which the next call goes on"
        )
    place = table.one_se_place if rule == "one_se" else table.place
    solver, key = grid.solver(place), jax.random.clone(key)  # all fits have the same
    model = fit(solver, data, key, steps=steps, tol=tol).model
    made = f"{total} fits" if n_fits == total else f"{n_fits} of {total} fits made"
    is_cut = n_fits < total and (search == "grid" or jobs.out_of_time)
    cells = f"{n_scores} of {table.mean.size} cells with a score"
    took = f"{time.monotonic() - start:.1f} s"
    status = f"{'out of time: ' if is_cut else ''}{made}, {cells}, {took}"
    classes, rows = classes_of(targets, names), (np.asarray(data.y), np.asarray(data.weight))
    certificate = certificate_of(solver, data, model)
    choice = model, certificate, rule, status, classes, *rows
    return results.finish(Selection(table, arrays["values"], fold, *choice))


def C_grid(size: int = 8) -> np.ndarray:
    """The usual values of C: `size` numbers from 0.1 to 1,000, evenly spaced by their logarithms.

    Args:
        size: how many, >= 2.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.C_grid(5).tolist()
        [0.1, 1.0, 10.0, 100.0, 1000.0]
    """
    return np.logspace(-1, 3, integer("size", size, 2))
