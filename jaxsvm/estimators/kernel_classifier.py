"""Kernel classifiers with the options of scikit-learn: pairs of classes, probabilities."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from ..checks import caller_stacklevel, check_choice
from ..models import check_values
from .base import Targets, Trained
from .classifier import BaseClassifier
from .kernel_svm import KernelSVM
from .pairs import values_of_classes, votes_of
from .parameters import parameters


@parameters
class KernelClassifier(KernelSVM, BaseClassifier):
    """A kernel classifier: votes of pairs of classes, decision values, probabilities.

    Args:
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0.
        decision_function_shape: "ovr" or "ovo", the columns of `decision_function` for more than
            two classes.
        break_ties: whether `predict` breaks ties of votes by decision values; with
            decision_function_shape "ovr".
    """

    _by_pairs = True
    multiclass = "ovo"
    decision_function_shape: str = "ovr"
    break_ties: bool = False

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        check_choice("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        if self.decision_function_shape == "ovo":
            self._check_pairs("decision_function_shape='ovo'")
        return super()._targets(y, weight)

    def _check_pairs(self, option: str) -> None:
        """Raise if an option of pairs of classes is given without them."""
        if len(self.classes_) > 2 and self.multiclass == "ovr":
            raise ValueError(
                f"{option} needs a model for each pair of classes: leave multiclass='ovo'"
            )

    def _train(self, x: object, y: np.ndarray, weight: np.ndarray, **more: object) -> Trained:
        targets, group = super()._train(x, y, weight, **more)
        self.class_weight_ = targets.class_weight
        models = len(np.atleast_1d(self.intercept_))
        self.n_iter_ = np.full(models, self.n_iter_, np.int32)
        return targets, group

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Decision values.

        Args:
            X: (n, d) rows; of a precomputed kernel (n, training rows).

        Returns:
            (n,) for two classes, > 0 for the second. Else (n, k) for decision_function_shape "ovr":
            votes of the pairs, plus a monotone function of the sum of their values within (-1/3,
            1/3). (n, k(k-1)/2) for "ovo": values of the pairs, > 0 for the first class. With
            multiclass "ovr" (n, k) values, the largest for the class.
        """
        score = self._scores(X)
        of_pairs = self.decision_function_shape == "ovo" and len(self.classes_) > 2
        return score if of_pairs else self._class_values(score)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """(n, d) -> (n,) class names.

        Of classes with equally many votes the first is predicted, or with break_ties that of the
        largest decision value.
        """
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        classes = getattr(self, "classes_", ())
        if len(classes) <= 2 or self.multiclass == "ovr":
            return super().predict(X)
        score, k = check_values(self._scores(X)), len(self.classes_)
        votes = values_of_classes(score, k) if self.break_ties else votes_of(score > 0, k)
        return self.classes_[votes.argmax(axis=1)]

    # Probabilities: sigmoids of decision values out of fold, of pairs of classes for votes.

    def _calibrate(self, x: object, y: np.ndarray, weight: np.ndarray, targets: Targets) -> None:
        """As `BaseClassifier._calibrate`; it tells of probabilities that contradict `predict`."""
        self._check_pairs("probability=True")
        super()._calibrate(x, y, weight, targets)
        if (self.probA_ > 0).any():
            pair = int(np.argmax(self.probA_))
            places = [place[pair] for place in np.triu_indices(len(self.classes_), 1)]
            one, other = self.classes_[places].tolist()
            warnings.warn(
                f"the probabilities of the classes {one!r} and {other!r} contradict predict "
                f"(probA_ is {self.probA_[pair]:.3g}, expected below 0): decision values of rows "
                "that are held out do not tell these classes apart, so take other parameters or "
                "features",
                stacklevel=caller_stacklevel(),
            )

    @property
    def probA_(self) -> np.ndarray:
        """Slopes of Platt's sigmoids, (k(k-1)/2,); empty without probabilities."""
        return self.calibrated_.curve.slope if "calibrated_" in vars(self) else np.empty(0)

    @property
    def probB_(self) -> np.ndarray:
        """Offsets of Platt's sigmoids, (k(k-1)/2,); empty without probabilities."""
        offset = self.calibrated_.curve.offset if "calibrated_" in vars(self) else np.empty(0)
        return offset if len(offset) > 1 else -offset  # of two classes it is of the second
