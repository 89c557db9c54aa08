"""Estimators that choose their numbers by cross-validation over a grid."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from .. import kernels
from ..calibration import Calibrated
from ..checks import integer, is_sparse
from ..data import dataset
from ..loops import C_grid, Selection, select
from ..loops.scoring import ProbabilityScore
from ..loops.select_checks import axis_of
from ..models import Classifier
from ..types import Solver
from .base import BaseSVM, MergedRows, Targets, Trained
from .compact import add_to_intercept, compact
from .kernel_classifier import KernelClassifier
from .kernel_svm import KernelSVM
from .parameters import WITH_GAMMA, estimator
from .preprocess import batch, make_seed, pad_columns
from .tasks import as_task

# what a machine has once it is trained
FITTED = ("model_", "fit_", "n_iter_", "fit_status_", "_dual", "_coef", "_intercept")


class CrossValidated(BaseSVM):
    """Chooses the numbers of the machine by `jaxsvm.select`, and trains it with them."""

    _takes_columns = False

    @as_task
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
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

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
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
        for name in FITTED:  # of a call before this one
            self.__dict__.pop(name, None)
        return targets, np.full(len(y), -1)

    def _axes(self, x: object) -> dict[str, np.ndarray]:
        """The numbers of the axes, by the names of the parameters that they replace."""
        return {"C": number_axis("Cs", self.Cs, C_grid)}

    def _choose(self, x: object, targets: Targets, weight: np.ndarray, fold: np.ndarray) -> dict:
        """Search the grid; the result are the numbers chosen, which also become attributes."""
        # equal rows of one fold are one row; those of several folds are not
        key = np.unique(np.stack([targets.value, fold]), axis=1, return_inverse=True)[1].ravel()
        rows = self._merged(x, targets, weight, key=key)
        index, names, d = rows.index, targets.names, rows.x.shape[1]
        axes: dict[str, Any] = self._axes(rows.x[: rows.n_rows])
        for name, numbers in axes.items():
            axes[name] = axis_of(name, numbers)
            setattr(self, f"{name}s_", axes[name])
        spec = self._spec(rows, **{name: numbers[0] for name, numbers in axes.items()})
        if spec.name is not None:
            self.solver_ = spec.name

        def maker(**numbers: object) -> Solver:
            return targets.solver_of(self._spec(rows, **numbers).solver)

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
            score=_Score(self, scorer, targets),
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
        for name, number in selection.chosen.items():
            setattr(self, f"{name}_", number)
        self.certificate_ = selection.certificate
        selection = _in_rows_of_user(selection, rows, fold, names, d, self._centre)
        self.selection_ = dataclasses.replace(
            selection, targets=targets.value + self._centre, weight=weight
        )
        return selection.chosen

    def _calibrated(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> Calibrated:
        """Probabilities by the machines of the search."""
        return self.selection_.calibrated()

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


class KernelCV(CrossValidated, KernelSVM):
    """Chooses C, and gamma of a kernel that has it, of a kernel machine."""

    def _axes(self, x: object) -> dict[str, np.ndarray]:
        """The axes C and gamma; the latter where it is chosen."""
        self.gammas_ = None
        axes = super()._axes(x)
        if self.gammas is None or not self._has_gamma():
            return axes
        return axes | {"gamma": gamma_axis(self.gammas, x)}

    def _choose(self, x: object, targets: Targets, weight: np.ndarray, fold: np.ndarray) -> dict:
        chosen = super()._choose(x, targets, weight, fold)
        if "gamma" not in chosen:
            self.gamma_ = self._gamma if self._has_gamma() else None
        return chosen

    def _has_gamma(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel in WITH_GAMMA


def fold_of_rows(
    cv: object, x: Any, y: np.ndarray, groups: ArrayLike | None, classifier: bool
) -> np.ndarray:
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


@estimator
class _OutOfFold(BaseEstimator):
    """Decision values of rows by machines that were trained without them, as an estimator.

    X are the numbers of the rows, (n, 1).
    """

    values: Any = None

    def predict(self, X: Any) -> np.ndarray:
        return self.values[X[:, 0]]


class _OutOfFoldRegressor(RegressorMixin, _OutOfFold):
    """Predicted targets."""


@estimator
class _OutOfFoldClassifier(ClassifierMixin, _OutOfFold):
    """Decision values, and the classes that the machine would predict."""

    classes_: Any = None
    votes: bool = False
    probabilities: Any = None

    def decision_function(self, X: Any) -> np.ndarray:
        return self.values[X[:, 0]]

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.probabilities()[X[:, 0]]

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[predicted(self.values, self.votes)[X[:, 0]]]


def predicted(values: np.ndarray, votes: bool) -> np.ndarray:
    """The class numbers (m,) of decision values (m,) or (m, k).

    With `votes` the values are votes plus a part below 1/2 that breaks ties, which is left out: of
    classes with equally many votes the first is predicted.
    """
    if values.ndim == 1:
        return (values > 0).astype(int)
    return np.argmax(np.rint(values) if votes else values, axis=1)


class _Score(ProbabilityScore):
    """The score of a fold as `select` calls it: less is better."""

    def __init__(self, estimator: BaseEstimator, scorer: Callable | None, targets: Targets) -> None:
        self.scorer, self.scoring = scorer, estimator.scoring
        self.centre = estimator._centre
        self.machine = type(estimator).__name__
        self.classes = None if targets.names is None else np.asarray(estimator.classes_)
        self.votes = False
        if self.classes is not None:
            by_votes = isinstance(estimator, KernelClassifier) and not estimator.break_ties
            self.votes = by_votes and estimator.multiclass == "ovo"
            first = np.unique(targets.value, return_index=True)[1]
            self.class_weights = np.broadcast_to(targets.factors, len(targets.value))[first]

    def share_of(self, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The weights of rows without the class weights."""
        classes = 0 if self.classes is None else len(self.classes)
        place = (y > 0).astype(int) if classes == 2 else y.astype(int)
        return weight / self.class_weights[place] if classes else weight

    def __call__(
        self, values: np.ndarray, y: np.ndarray, weight: np.ndarray, probabilities: Callable
    ) -> float:
        if not np.isfinite(values).all():
            return np.nan
        if self.classes is None:
            return self._of_targets(values, y, weight)
        place = (y > 0).astype(int) if values.ndim == 1 else y.astype(int)
        weight = self.share_of(y, weight)
        if self.scorer is None:
            return float(np.average(predicted(values, self.votes) != place, weights=weight))
        own: Any = {"values": values, "classes_": self.classes, "votes": self.votes}
        machine = _OutOfFoldClassifier(**own, probabilities=probabilities)
        return self._by_scorer(machine, self.classes[place], weight)

    def _of_targets(self, values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        if self.scorer is not None:
            values, y = (np.asarray(a, np.float64) + self.centre for a in (values, y))
            return self._by_scorer(_OutOfFoldRegressor(values=values), y, weight)
        spread = weight @ (y - np.average(y, weights=weight)) ** 2
        error = weight @ (values - y) ** 2
        return float(error / spread) if spread > 0 else float(error > 0)  # 1 - R^2

    def _by_scorer(self, estimator: object, y: np.ndarray, weight: np.ndarray) -> float:
        assert self.scorer is not None
        rows, count = np.arange(len(y)), np.rint(weight)
        options = {}
        if np.allclose(weight, count, rtol=1e-5, atol=0):  # copies
            rows = np.repeat(rows, count.astype(int))
        else:
            options["sample_weight"] = weight
        try:
            return -float(self.scorer(estimator, rows[:, None], y[rows], **options))
        except AttributeError as error:
            if "predict_proba" not in str(error):
                raise
            raise ValueError(
                f"scoring={self.scoring!r} reads probabilities, and {self.machine} has none: take "
                "one that reads predictions or decision values, such as 'roc_auc'"
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
