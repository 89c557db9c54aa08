"""Estimators that choose their numbers by cross-validation over a grid."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from .. import kernels
from ..checks import integer, is_sparse
from ..data import dataset
from ..loops import C_grid, Selection, select
from ..loops.scoring import ProbabilityScore
from ..loops.select_checks import axis_of
from ..models import Classifier
from .base import BaseSVM, MergedRows, Targets, Trained
from .compact import add_to_intercept, compact, with_inner
from .kernel_svm import KernelSVM
from .linear import LinearSVM
from .parameters import WITH_GAMMA, PerRow, parameters
from .preprocess import batch, make_seed, pad_columns

# what a machine has once it is trained
FITTED = """model_ fit_ n_iter_ fit_status_ coef_ intercept_ support_ support_vectors_ n_support_
    dual_coef_"""


@parameters
class GridCV(BaseSVM):
    """Chooses the numbers of the machine by `jaxsvm.select`, and trains it with them.

    Args:
        Cs: list of numbers > 0, or how many: so many from 0.1 to 1,000, as `jaxsvm.C_grid` has
            them.
        gammas: of a kernel by name, list of numbers > 0, or how many: the usual values for the
            training rows, as `kernels.gamma_grid` has them. None: gamma is "scale",
            1/(d variance of X).
        scoring: name of a score of scikit-learn, or a function (estimator, X, y) -> number, where X
            stands for rows out of fold; greater is better. It may read predictions, decision
            values, and probabilities, by sigmoids that were fitted to the other folds. None: the
            accuracy.
        refit: whether a machine is trained on all rows with the numbers chosen.
        class_weight: dict from class names to factors on C, "balanced" by all rows, or None.
        max_iter: rounds of the solver at most in each fit, >= 1, not steps on pairs as in LIBSVM;
            -1: 2,000.
        random_state: int, `RandomState` or None; the seed of the key, of which exact machines draw
            nothing.
        memory: bytes of the kernel matrix, > 0, as of `jaxsvm.select`; None: 2 GiB.
        n_jobs: fits at the same time, in threads; None or -1: the number of processors.
        verbose: above 0: a bar on the standard error stream.
        probability: whether there are `predict_proba` and `predict_log_proba`, by sigmoids of the
            decision values out of fold of `selection_`: there are no more fits.
    """

    Cs: object = field(default=8, kw_only=False)
    gammas: Any = None
    epsilons: Any = None
    C: float = 1.0  # not one of `__init__`
    cv: object = None
    scoring: object = None
    refit: bool = True
    rule: str = "best"
    memory: float | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *, groups: PerRow = None
    ) -> Self:
        """Choose the numbers, and train a model on all rows with them.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: (n,) class names, or targets.
            sample_weight: (n,) weights, >= 0, of training and of the scores; k equals k copies in
                one fold, 0 equals absence.
            groups: (n,) groups of the rows, for a splitter `cv` that reads them.
        """
        return self._fit(X, y, sample_weight, groups=groups)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> float:
        """The score of the predictions by `scoring`; by default the accuracy, or R^2."""
        scorer = self._scorer()
        if scorer is None:
            return super().score(X, y, sample_weight)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return scorer(self, X, y, **weights)

    def _train(self, x: Any, y: np.ndarray, weight: np.ndarray, **more: Any) -> Trained:
        groups = more.pop("groups", None)
        fold = fold_of_rows(self.cv, x, y, groups, isinstance(self, ClassifierMixin))
        targets = self._targets(y, weight)
        chosen = self._choose(x, targets, weight, fold)
        if self.refit:
            return super()._train(x, y, weight, numbers=chosen, **more)
        for name in FITTED.split():  # of a call before this one
            self.__dict__.pop(name, None)
        return targets, np.full(len(y), -1)

    def _axes(self, x: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The axes of the grid, and numbers that are not chosen, by the names of parameters."""
        axes, fixed = {"C": number_axis("Cs", self.Cs, C_grid)}, {}
        if self.gammas is not None and has_gamma(self.kernel):
            axes["gamma"] = gamma_axis(self.gammas, x)
        if np.ndim(self.epsilons):
            axes["epsilon"] = np.asarray(self.epsilons)
        elif self.epsilons is not None:
            fixed["epsilon"] = self.epsilons
        return {name: axis_of(name, numbers) for name, numbers in axes.items()}, fixed

    def _choose(self, x: object, targets: Targets, weight: np.ndarray, fold: np.ndarray) -> dict:
        """Search the grid; the result are the numbers chosen, which also become attributes."""
        # equal rows of one fold are one row; those of several folds are not
        key = np.unique(np.stack([targets.value, fold]), axis=1, return_inverse=True)[1].ravel()
        rows = self._merged(x, targets, weight, key=key)
        index, names, d = rows.index, targets.names, rows.x.shape[1]
        axes, fixed = self._axes(rows.x[: rows.n_rows])
        maker = lambda **chosen: targets.solver_of(self._spec(rows, **fixed, **chosen).solver)
        spec = self._spec(rows, **fixed, **{name: numbers[0] for name, numbers in axes.items()})
        if spec.name is not None:
            self.solver_ = spec.name
        columns = pad_columns(rows.x) if self._columns == "padded" else rows.x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run on all rows warns about the scale
            target = targets.value[index]
            if names is not None and len(names) > 2:  # padding is not of one class
                target[rows.n_rows :] = np.arange(len(index) - rows.n_rows) % len(names)
            data = batch(columns, target, rows.weight)
        scorer = self._scorer()
        selection = select(
            maker,
            data,
            jax.random.key(make_seed(self.random_state)),
            folds=np.where(rows.copies > 0, fold[index], -1),
            score=self._score_of_fold(targets, scorer),
            rule=self.rule,
            memory=self.memory,
            threads=None if self.n_jobs in (None, -1) else self.n_jobs,
            progress=bool(self.verbose),
            tol=spec.tol,
            steps=spec.steps if spec.passes is None else spec.passes * len(index),
            **axes,
        )
        self.scores_ = (1.0 if scorer is None else 0.0) - selection.table.folds
        place = selection.table.one_se_place if self.rule == "one_se" else selection.table.place
        self.best_score_ = float(self.scores_[place].mean())
        chosen: dict[str, Any] = fixed | selection.chosen
        known: dict[str, Any] = chosen
        if isinstance(self, KernelSVM):
            known = {"gamma": self._gamma if has_gamma(self.kernel) else None} | chosen
        for name, number in known.items():
            setattr(self, f"{name}_", number)
            setattr(self, f"{name}s_", axes.get(name))
        self.certificate_ = selection.certificate
        selection = _in_rows_of_user(selection, rows, fold, names, d, self._centre)
        is_linear, model = isinstance(self, LinearSVM), selection.model
        model = with_inner(model, self._in_units_of_rows) if is_linear else model
        self.selection_ = dataclasses.replace(
            selection, model=model, targets=targets.value + self._centre, weight=weight
        )
        return chosen

    def _calibrate(self, *trained: object) -> None:
        """Fit probabilities to the decision values of the search."""
        self.calibrated_ = self.selection_.calibrated()

    def _score_of_fold(self, targets: Targets, scorer: Callable | None) -> Any:
        """The score of a fold as `select` calls it: less is better."""
        names, factors = targets.names, np.ones(1)
        if names is not None:  # class weights are none of the score
            first = np.unique(targets.value, return_index=True)[1]
            factors = np.broadcast_to(targets.factors, len(targets.value))[first]
        place_of = lambda y: (y > 0).astype(int) if len(names or ()) == 2 else y.astype(int)
        share_of = lambda y, weight: weight if names is None else weight / factors[place_of(y)]

        def score(values: np.ndarray, y: np.ndarray, weight: np.ndarray, fn: Callable) -> float:
            if not np.isfinite(values).all():
                return np.nan
            machine, weight = copy.copy(self), share_of(y, weight)
            predictions, target = (np.asarray(a, np.float64) + self._centre for a in (values, y))
            if names is not None:
                votes = self.multiclass == "ovo" and not self.break_ties
                number, place = predicted(values, votes), place_of(y)
                if scorer is None:
                    return float(np.average(number != place, weights=weight))
                predictions, target = self.classes_[number], self.classes_[place]
            elif scorer is None:
                spread = weight @ (y - np.average(y, weights=weight)) ** 2
                error = weight @ (values - y) ** 2
                return float(error / spread) if spread > 0 else float(error > 0)  # 1 - R^2

            def decision_function(X):
                return values[X[:, 0]]

            def predict_proba(X):
                return fn()[X[:, 0]]

            def predict(X):
                return predictions[X[:, 0]]

            methods = (predict, decision_function, predict_proba)[: 1 if names is None else 3]
            machine.__dict__.update({method.__name__: method for method in methods})
            return -score_by(scorer, machine, target, weight)

        return ProbabilityScore(score, share_of)

    def _scorer(self) -> Callable | None:
        """The scorer of `scoring`; None: that of the class."""
        if self.scoring is None:
            return None
        if not (isinstance(self.scoring, str) or callable(self.scoring)):
            raise ValueError(
                "scoring must be the name of one score of scikit-learn, a function (estimator, X, "
                f"y) -> number, or None, got {self.scoring!r}"
            )
        return check_scoring(self, self.scoring)


def fold_of_rows(cv: object, x: Any, y: np.ndarray, groups: PerRow, classifier: bool) -> np.ndarray:
    """The fold of each row, (n,); -1 for rows that are in all training sets.

    Args:
        cv: a number of folds, a splitter of scikit-learn, an iterable of (train, test), or None.
        x: (n, d) rows.
        y: (n,) targets.
        groups: (n,) for splitters that read them, or None.
        classifier: whether folds by number are stratified.

    Raises:
        ValueError: test sets overlap, or a training set is not all other rows.
    """
    n = x.shape[0]
    splitter = check_cv(cv, y, classifier=classifier)
    fold, rows = np.full(n, -1), np.arange(n)
    for number, (train, test) in enumerate(splitter.split(x, y, groups)):
        test, train = rows[test], np.sort(rows[train])
        problem = ""
        if (fold[test] >= 0).any():
            problem = "its test sets overlap"
        elif not np.array_equal(train, np.setdiff1d(rows, test)):
            problem = "a training set is not all rows outside of the test set"
        if problem:
            raise ValueError(
                "cv must split the rows into disjoint test sets, each of them left out of training "
                f"once, as KFold and GroupKFold do, got {cv!r}: {problem}; for other splits take "
                "GridSearchCV of the machine without CV in its name"
            )
        fold[test] = number
    return fold


def has_gamma(kernel: object) -> bool:
    """Whether the kernel is one by name that has a gamma."""
    return isinstance(kernel, str) and kernel in WITH_GAMMA


def number_axis(name: str, numbers: Any, grid: Callable) -> np.ndarray:
    """The numbers of an axis: those given, or `grid(size)` for a whole number."""
    if np.ndim(numbers) == 0 and not isinstance(numbers, Iterable):
        return grid(integer(name, numbers, 2))
    return np.asarray(numbers if isinstance(numbers, np.ndarray) else list(numbers))


def gamma_axis(gammas: object, x: Any) -> np.ndarray:
    """The values of gamma; a whole number stands for the usual values for these rows."""

    def grid(size: int) -> np.ndarray:
        rows = dataset(x, np.zeros(x.shape[0]), task="regression").x if is_sparse(x) else x
        return kernels.gamma_grid(rows, size)

    return number_axis("gammas", gammas, grid)


def predicted(values: np.ndarray, votes: bool) -> np.ndarray:
    """The class numbers (m,) of decision values (m,) or (m, k).

    With `votes` the values are votes plus a part below 1/2 that breaks ties, which is left out: of
    classes with equally many votes the first is predicted.
    """
    if values.ndim == 1:
        return (values > 0).astype(int)
    return np.argmax(np.rint(values) if votes else values, axis=1)


def score_by(scorer: Callable, machine: BaseSVM, y: np.ndarray, weight: np.ndarray) -> float:
    """The score of a machine at rows that stand for their numbers; copies are rows."""
    rows, count = np.arange(len(y)), np.rint(weight)
    options = {}
    if np.allclose(weight, count, rtol=1e-5, atol=0):
        rows = np.repeat(rows, count.astype(int))
    else:
        options["sample_weight"] = weight
    try:
        return float(scorer(machine, rows[:, None], y[rows], **options))
    except (AttributeError, ValueError) as error:
        if isinstance(machine, ClassifierMixin) or "predict_proba" not in str(error):
            raise
        raise ValueError(
            f"scoring={machine.scoring!r} reads probabilities, and {type(machine).__name__} has "
            "none: take one that reads predictions or decision values, such as 'roc_auc'"
        ) from error


def _in_rows_of_user(
    selection: Selection, rows: MergedRows, fold: np.ndarray, names: Any, d: int, centre: float
) -> Selection:
    """The result for the rows of the user in their order, and for their targets."""
    axes = len(selection.table.names)
    scores = np.take(np.asarray(selection.scores), rows.group, axis=axes)
    absent = rows.group < 0
    scores[(slice(None),) * axes + (absent,)] = np.nan
    model = compact(selection.model, rows.index, d)
    if centre:
        scores, model = scores.astype(np.float64) + centre, add_to_intercept(model, centre)
    fold, model = np.where(absent, -1, fold), model if names is None else Classifier(model, names)
    return dataclasses.replace(selection, scores=scores, fold=fold.astype(np.int32), model=model)
