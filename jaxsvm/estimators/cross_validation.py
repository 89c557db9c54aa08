"""`GridCV`: the numbers of a machine by cross-validation over a grid."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import field
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV

from .. import kernels
from ..checks import integer
from ..loops import C_grid, Selection, select
from ..loops.scoring import ProbabilityScore
from ..loops.select_checks import axis_of
from ..models import class_places
from .base import MEASURED_PASSES, MergedRows, Targets
from .linear_svc import LinearSVC
from .linear_svr import LinearSVR
from .parameters import WITH_GAMMA, estimator
from .preprocess import batch, make_seed
from .svc import SVC
from .svr import SVR

MOST_COPIES = 2**20  # of the rows of a fold, for scores without weights
# the numbers that machines read from a grid; fits share the kernel matrix along C
AXES = {SVC: "C gamma", SVR: "C gamma epsilon", LinearSVC: "C l1_ratio", LinearSVR: "C epsilon"}


@estimator("estimator grid cv scoring refit rule memory n_jobs verbose random_state")
class GridCV(BaseSearchCV):
    """Chooses the numbers of a machine by `jaxsvm.select`, and trains it with them.

        scores_[i, j, f] = score of estimator(C=C[i], gamma=gamma[j]), trained without fold f, on it

    The largest mean over the folds is chosen; of equal ones the least C, then the least gamma, then
    the largest epsilon. Fits share the kernel matrix, start from each other, and are certified.
    gamma "scale" and class_weight "balanced" are those of all rows, in every fold.
    Predictions and tags are those of scikit-learn's `GridSearchCV`.

    Args:
        estimator: `SVC` with C and gamma, `SVR` with C, gamma and epsilon, `LinearSVC` with C, and
            l1_ratio of its penalty "elasticnet", or `LinearSVR` with C and epsilon. gamma is one of
            a kernel by name.
        grid: dict from names of these parameters to lists of numbers. Or how many: for C so many
            from 0.1 to 1,000, as `jaxsvm.C_grid` has them, for gamma the usual values for the
            training rows, as `kernels.gamma_grid` has them.
        cv: number of folds, in the order of the rows, of classes stratified; a splitter of
            scikit-learn whose test sets are disjoint and left out of training once, such as `KFold`
            or `GroupKFold`; an iterable of such (train, test); None: 5.
        scoring: name of a score of scikit-learn, or a function (estimator, X, y) -> number, where X
            stands for rows out of fold; greater is better. It may read predictions, and of classes
            decision values, and probabilities by sigmoids of the decision values out of fold.
            None: the accuracy, or R^2.
        refit: whether the machine is trained on all rows with the numbers chosen.
        rule: "best", or "one_se", the strongest regularisation within one standard error of it.
        memory: bytes of the kernel matrix, or of linear machines of the temporaries of a program,
            > 0, as of `jaxsvm.select`; None: 2 GiB, or no limit.
        n_jobs: fits at the same time, in threads; None or -1: the number of processors.
        verbose: above 0: a bar on the standard error stream.
        random_state: int, `RandomState` or None; the seed of the key of the fits, of which exact
            machines draw nothing.

    Attributes:
        best_estimator_: the machine with the numbers chosen, trained on all rows, with `refit`.
        best_params_: the numbers chosen, by name.
        best_score_: mean over the folds of the cell chosen.
        scores_: (cells by axis, folds) score of each cell on the rows of each fold, greater is
            better. Axes are in the order of C, gamma, epsilon and l1_ratio.
        selection_: the `jaxsvm.Selection`, for the rows as they were given. `table.axes` holds the
            numbers of the axes, `calibrated()` gives probabilities without more fits. Its scores
            are 1 - accuracy or 1 - R^2, or minus the score of `scoring`.
        certificate_: of `selection_.model`, a run on all rows with the numbers chosen; for more
            than two classes the sum over the problems, None beyond 20 classes and of linear
            machines.
        scorer_: the function that scores.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, an axis that the machine does not
            read, test sets that overlap, and a fold that holds all rows of a class.

    Example:
        >>> import numpy as np
        >>> from jaxsvm.estimators import SVC, GridCV
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> search = GridCV(SVC(), {"C": [0.1, 10.0], "gamma": [0.01, 1.0]}, cv=3)
        >>> search.fit(X, (X**2).sum(1) > 1.2).best_params_, search.scores_.shape
        ({'C': 10.0, 'gamma': 1.0}, (2, 2, 3))

    Reference: C.-W. Hsu, C.-C. Chang, C.-J. Lin, A practical guide to support vector
        classification, 2003.
    """

    estimator: Any = field(kw_only=False)
    grid: dict[str, Any] = field(kw_only=False)
    cv: object = None
    scoring: str | Callable | None = None
    refit: bool = True
    rule: str = "best"
    memory: float | None = None
    n_jobs: int | None = None
    verbose: int = 0
    random_state: int | np.random.RandomState | None = None
    multimetric_ = False
    feature_names_in_ = property(lambda self: self.best_estimator_.feature_names_in_)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Choose the numbers, and train the machine on all rows with them.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: (n,) class names, or targets.
            **params: `sample_weight` (n,), >= 0, of training and of the scores; k equals k copies
                in one fold, 0 equals absence. `groups` (n,) of the rows, for a splitter `cv` that
                reads them. They are routed as by `GridSearchCV`.
        """
        routed, scorer = self._get_routed_params_for_fit(params), self._get_scorers()[0]
        of_fit, machine = {"sample_weight": None} | routed.estimator.fit, clone(self.estimator)
        names = axes_read(machine, self.grid)
        x, labels, weight = machine._checked(X, y, **of_fit, reset=True)
        machine._fit_targets(labels, weight)
        fold = fold_of_rows(self.cv, machine, x, labels, weight, routed.splitter.split)
        targets = machine._targets(labels, weight)
        # equal rows of one fold are one row; those of several folds are not
        rows = machine._merged(x, targets._replace(query=fold), weight)
        axes: Any = {name: axis(name, self.grid[name], rows) for name in names}
        if "C" in axes:  # the method is one for all cells, the hardest included
            machine.C = axes["C"].max().item()
        solver_of = lambda **numbers: targets.solver_of(machine._spec(rows, **numbers).solver)
        first = {name: numbers[0].item() for name, numbers in axes.items()}
        spec = machine._spec(rows, **first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run on all rows warns about the scale
            data = machine._data(rows, targets, solver_of(**first))
        selection = select(
            solver_of,
            data,
            jax.random.key(make_seed(self.random_state)),
            folds=fold[rows.index],
            score=score_of(machine, targets, None if self.scoring is None else scorer),
            rule=self.rule,
            memory=self.memory,
            threads=None if self.n_jobs == -1 else self.n_jobs,
            progress=bool(self.verbose),
            tol=spec.tol,
            steps=spec.steps or (spec.passes or MEASURED_PASSES) * len(rows.index),
            **axes,
        )
        if self.refit:
            chosen = clone(self.estimator).set_params(**selection.chosen)
            self.best_estimator_ = chosen.fit(X, y, **routed.estimator.fit)
        table = selection.table
        place = table.one_se_place if self.rule == "one_se" else table.place
        self.scores_ = (1.0 if self.scoring is None else 0.0) - table.folds
        self.best_score_ = float(self.scores_[place].mean())
        self.best_params_, self.scorer_ = selection.chosen, scorer
        self.certificate_ = selection.certificate
        self.selection_ = in_rows_of_user(selection, machine, rows, targets, weight)
        return self

    def _get_scorers(self) -> tuple[Callable, str]:
        """The scorer of `scoring`, as scikit-learn's methods read it."""
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                "scoring must be the name of one score of scikit-learn, a function (estimator, X, "
                f"y) -> number, or None, got {self.scoring!r}"
            )
        return check_scoring(self.estimator, self.scoring), "score"


def axes_read(machine: Any, grid: dict[str, Any]) -> list[str]:
    """The names of the axes of the grid, in the order of `AXES`.

    Raises:
        ValueError: there is none, or one that the machine does not read.
    """
    read = " ".join(names for kind, names in AXES.items() if isinstance(machine, kind))
    lacks = {"gamma": getattr(machine, "kernel", "") not in WITH_GAMMA}
    lacks["l1_ratio"] = getattr(machine, "penalty", "") != "elasticnet"
    names = [name for name in read.split() if not lacks.get(name)]
    if not (isinstance(grid, dict) and set() < set(grid) <= set(names)):
        raise ValueError(
            "grid must be a dict from names to numbers: C and gamma of SVC, epsilon too of SVR, C "
            "of LinearSVC, l1_ratio too of its penalty 'elasticnet', C and epsilon of LinearSVR, "
            f"gamma where the kernel has one; got {grid!r} of {machine!r}: for others take "
            "scikit-learn's GridSearchCV"
        )
    return [name for name in names if name in grid]


def axis(name: str, numbers: Any, rows: MergedRows) -> np.ndarray:
    """The numbers of an axis: those given, or the usual ones for a whole number."""
    if np.ndim(numbers) == 0 and name == "C":
        numbers = C_grid(integer("C of the grid", numbers, 2))
    elif np.ndim(numbers) == 0 and name == "gamma":
        x, one = rows.x[: rows.n_rows], np.ones(rows.n_rows)
        numbers = kernels.gamma_grid(batch(x, one, one).x, integer("gamma of the grid", numbers, 2))
    return axis_of(name, numbers)


def fold_of_rows(
    cv: Any, machine: object, x: Any, y: np.ndarray, weight: np.ndarray, more: dict
) -> np.ndarray:
    """The fold of each row, (n,), by `cv`; -1 for rows that are in all training sets.

    A number of folds divides the rows of positive weight. `more` are arguments of the splitter,
    such as groups.

    Raises:
        ValueError: test sets overlap, or a training set is not all other rows.
    """
    splitter = check_cv(cv, y, classifier=is_classifier(machine))
    fold, by_number = np.full(len(y), -1), cv is None or isinstance(cv, int)
    rows = np.flatnonzero(weight > 0) if by_number else np.arange(len(y))
    for number, (train, test) in enumerate(splitter.split(x[rows], y[rows], **more)):
        others = np.setdiff1d(rows, rows[test])
        if (fold[rows[test]] >= 0).any() or not np.array_equal(np.sort(rows[train]), others):
            raise ValueError(
                "cv must split the rows into disjoint test sets, each of them left out of training "
                f"once, as KFold and GroupKFold do, got {cv!r}: for other splits take GridSearchCV"
            )
        fold[rows[test]] = number
    return fold


def score_of(machine: Any, targets: Targets, scorer: Callable | None) -> Any:
    """The `ProbabilityScore` of a fold as `select` calls it: less is better.

    None is the accuracy, or R^2. Other scorers get the machine with the values out of fold, and
    rows that stand for their numbers; copies are rows.
    """
    k = len(targets.names or ())
    place_of = lambda y: (y > 0 if k == 2 else y).astype(int)
    # class weights are none of the score
    factor_of = lambda y: targets.class_weight[place_of(y)] if np.ndim(targets.factors) else 1
    # they were rounded: whole ones are whole again
    whole: Any = lambda a: np.where(np.isclose(a, np.rint(a), rtol=1e-5, atol=0), np.rint(a), a)
    share_of = lambda y, weight: whole(weight / factor_of(y))
    # votes of pairs hold a part below 1/2 that breaks ties; without it the first class wins them
    are_votes = k > 2 and machine.multiclass == "ovo" and not machine.break_ties

    def score(values: np.ndarray, y: np.ndarray, weight: np.ndarray, chances: Callable) -> float:
        if not np.isfinite(values).all():
            return np.nan
        weight, known = share_of(y, weight), copy.copy(machine)
        if k:
            place = class_places(np.rint(values) if are_votes else values)
            if scorer is None:
                return float(np.average(place != place_of(y), weights=weight))
            predictions, target = machine.classes_[place], machine.classes_[place_of(y)]
        elif scorer is None:
            spread = weight @ (y - np.average(y, weights=weight)) ** 2
            error = weight @ (values - y) ** 2
            return float(error / spread) if spread > 0 else float(error > 0)  # 1 - R^2
        else:
            predictions, target = values + machine._centre, y + machine._centre

        def predict(X: np.ndarray) -> np.ndarray:
            return predictions[X[:, 0]]

        def decision_function(X: np.ndarray) -> np.ndarray:
            return values[X[:, 0]]

        def predict_proba(X: np.ndarray) -> np.ndarray:
            return chances()[X[:, 0]]

        methods = (predict, decision_function, predict_proba)[: 3 if k else 1]
        vars(known).update({method.__name__: method for method in methods})
        number, options = np.arange(len(y)), {"sample_weight": weight}
        if (weight == np.rint(weight)).all() and weight.sum() <= MOST_COPIES:  # copies are rows
            number, options = np.repeat(number, weight.astype(int)), {}
        return -float(scorer(known, number[:, None], target[number], **options))

    return ProbabilityScore(score, share_of)


def in_rows_of_user(
    selection: Selection, machine: Any, rows: MergedRows, targets: Targets, weight: np.ndarray
) -> Selection:
    """The result for the rows of the user in their order, and for their targets."""
    axes, absent = len(selection.table.names), rows.group < 0
    scores = np.take(np.asarray(selection.scores), rows.group, axis=axes)
    scores[(slice(None),) * axes + (absent,)] = np.nan
    return dataclasses.replace(
        selection,
        scores=scores.astype(np.float64) + machine._centre if machine._centre else scores,
        fold=np.where(absent, -1, selection.fold[rows.group]).astype(np.int32),
        model=machine._model_of_user(selection.model, rows, targets.names),
        targets=targets.value + machine._centre,
        weight=weight,
    )
