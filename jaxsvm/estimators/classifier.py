"""Classifiers: class names, class weights, and training on parts of the data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..calibration import calibrate_columns, columns_of
from ..checks import check_choice
from ..models import class_places
from ..wrappers import one_vs_one, one_vs_rest
from .base import BaseSVM, Targets, can_partial_fit
from .pairs import values_of_classes
from .parameters import PerRow, parameters

FOLDS = 5  # of the cross-validation of probabilities, where each class has so many rows
MULTICLASS = {"ovr": one_vs_rest, "ovo": one_vs_one}


@parameters
class BaseClassifier(ClassifierMixin, BaseSVM):
    """A classifier with class names, class weights and more than two classes.

    Args:
        probability: whether there are `predict_proba` and `predict_log_proba`, by sigmoids of
            decision values of five more fits, each without a fifth of the rows, stratified in their
            order; by fewer of them where a class has fewer rows. A row of weight k is in one fold.
    """

    class_weight: dict | str | None = None
    probability: bool | str = False
    multiclass = "ovr"

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Train a new model.

        Args:
            X: (n, d) rows, an array or any sparse matrix, which stays sparse.
            y: (n,) class names.
            sample_weight: (n,) weights, >= 0; k equals k copies, 0 equals absence.
        """
        with self._restore_on_error():
            if self.probability not in (True, False, "deprecated"):
                raise ValueError(
                    f"probability must be True or False, got {self.probability!r}: the "
                    "probabilities are by sigmoids; for others take "
                    "CalibratedClassifierCV(method=...)"
                )
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            self._fit_targets(y, weight)
            self.__dict__.pop("calibrated_", None)  # of a model before this one
            targets, _ = self._train(x, y, weight)
            if self._probable():
                self._calibrate(x, y, weight, targets)
        return self

    def _fit_targets(self, y: np.ndarray, weight: np.ndarray) -> None:
        """Keep the names of the classes."""
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        if self.classes_.dtype.kind in "mM":
            raise ValueError(
                f"y must hold numbers, strings or booleans as class names, got {y.dtype}: "
                "pass y.astype(str)"
            )
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class, {self.classes_.tolist()[0]!r}: a classifier needs rows of two "
                "classes or more, of a sample_weight above 0"
            )

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        """What rows with these class names and weights are trained on."""
        check_choice("multiclass", self.multiclass, tuple(MULTICLASS))
        k = len(self.classes_)
        place = np.searchsorted(self.classes_, y).clip(max=k - 1)
        if (strange := (self.classes_[place] != y) & (weight > 0)).any():
            raise ValueError(
                f"y holds the class {y[strange][:1].tolist()[0]!r}, which is not "
                f"among {self.classes_.tolist()}"
            )
        target = 2.0 * place - 1 if k == 2 else place.astype(np.float64)
        factors, names = self._class_weights(y, place, weight), tuple(self.classes_.tolist())
        reduce = MULTICLASS[self.multiclass]
        return Targets(target, names, place, factors, factors[place], reduce)

    def _class_weights(self, y: np.ndarray, place: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """(k,) factors; "balanced" gives all classes the same total sample weight."""
        k = len(self.classes_)
        if self.class_weight is None:
            return np.ones(k)
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            totals = np.bincount(place[weight > 0], weight[weight > 0], k)
            return weight.sum() / (k * totals)
        given = self.class_weight
        if isinstance(given, dict):  # classes whose rows weigh 0 are absent
            absent = set(np.unique(y[weight == 0]).tolist()) - set(self.classes_.tolist())
            given = {name: factor for name, factor in given.items() if name not in absent}
        factors = compute_class_weight(given, classes=self.classes_, y=self.classes_)
        if not (factors > 0).all():
            raise ValueError(
                "class_weight must be above 0 for every class, got "
                f"{dict(zip(self.classes_.tolist(), factors, strict=True))}"
            )
        return factors

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Decision values, (n, d) -> (n,) or (n, k).

        For two classes they are > 0 for the second, else largest for the class.

        With "ovo" these are votes; the sum of decision values breaks ties.
        """
        return self._class_values(self._scores(X))

    def _class_values(self, scores: np.ndarray) -> np.ndarray:
        """Values (n,) of two classes, else (n, k), of pairs of classes by votes."""
        if len(self.classes_) == 2:
            return scores.ravel()
        return values_of_classes(scores, len(self.classes_)) if self._of_pairs else scores

    def predict(self, X: ArrayLike) -> np.ndarray:
        """(n, d) -> (n,) class names."""
        place = class_places(self.decision_function(X))
        return self.classes_[place]

    # Probabilities where `probability` is True: by sigmoids of decision values out of fold, of more
    # than two classes of each against the rest, as of `CalibratedClassifierCV(ensemble=False)`, or
    # of each pair.

    def _probable(self) -> bool:
        """Whether probabilities are asked for; "deprecated", scikit-learn's default, is False."""
        return bool(self.probability) and self.probability != "deprecated"

    def _calibrate(self, x: Any, y: np.ndarray, weight: np.ndarray, targets: Targets) -> None:
        """Fit probabilities by machines on four fifths of the rows each."""
        used = np.flatnonzero(weight > 0)
        x, place, weight = x[used], targets.place[used], weight[used]
        folds = min(FOLDS, int(np.bincount(place).min()))
        if folds < 2:
            raise ValueError(
                "probability=True needs two rows of each class, to leave one out, and one has a "
                "single row: leave probability out, or add rows"
            )
        machine = clone(self).set_params(probability=False)
        coupling = "pairs" if self._of_pairs else "rest"
        if coupling == "pairs":
            machine.set_params(decision_function_shape="ovo")
        if self._kernel_rows is not None:  # x is the matrix of a function of arrays
            machine.set_params(kernel="precomputed")
        if isinstance(self.class_weight, dict):  # of names, and the folds are of numbers
            machine.set_params(class_weight=dict(enumerate(targets.class_weight.tolist())))
        with config_context(enable_metadata_routing=False):  # the weights are for `fit`
            x = x[:, used] if self._columns == "rows" else x
            how: Any = {"method": "decision_function", "params": {"sample_weight": weight}}
            values = cross_val_predict(machine, x, place, cv=folds, **how)
        columns = values if coupling == "pairs" else columns_of(values, "rest")
        how = "sigmoid", coupling, targets.names or ()
        self.calibrated_ = calibrate_columns(self.model_.inner, columns, place, weight, *how)

    def _check_probability(self) -> bool:
        if not self._probable():
            raise AttributeError("predict_proba needs probability=True, got probability=False")
        return True

    @available_if(lambda self: self._check_probability())
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the classes, (n, d) -> (n, k), in the order of `classes_`.

        The most probable class need not be that of `predict`.
        """
        check_is_fitted(self, "model_")
        if not hasattr(self, "calibrated_"):
            raise NotFittedError(
                "predict_proba is not available when fitted with probability=False: call fit with "
                "probability=True; partial_fit makes none"
            )
        values = self._scores(X)
        if self.calibrated_.coupling == "pairs":
            return self.calibrated_.of_columns(values)
        return self.calibrated_.of_values(self._class_values(values))

    @available_if(lambda self: self._check_probability())
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms of the probabilities, (n, d) -> (n, k)."""
        return np.log(self.predict_proba(X))


class PartialFitMixin(BaseClassifier):
    """A classifier with `partial_fit`, where nothing is against it."""

    @available_if(can_partial_fit)
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: Any = None, sample_weight: PerRow = None
    ) -> Self:
        """Continue training on more rows, or start.

        It makes one pass over them, or `steps` updates if there is this parameter.

        Weights are relative to the rows of one call; the step counter of the solver continues.

        Args:
            X: (n, d) rows.
            y: (n,) class names.
            classes: all class names; required in the first call.
            sample_weight: (n,) weights, >= 0.
        """
        first = not hasattr(self, "fit_")
        if first and classes is None:
            raise ValueError(
                "classes must be given at the first call of partial_fit: later rows may hold others"
            )
        if isinstance(self.class_weight, str):
            raise ValueError(
                "class_weight='balanced' needs all rows at once: give partial_fit a "
                "dict from names to factors"
            )
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=first)
            if first:
                self.classes_ = np.unique(classes)
                if len(self.classes_) < 2:
                    raise ValueError(
                        f"classes holds one class, {self.classes_.tolist()}: a "
                        "classifier needs two or more"
                    )
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes are {self.classes_.tolist()} since the first call, got "
                    f"{np.unique(classes).tolist()}"
                )
            self.__dict__.pop("calibrated_", None)
            self._train(x, y, weight, **self._partial_options(first))
        return self
