"""Kernel classifiers with the options of scikit-learn: pairs of classes, probabilities."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from ..checks import caller_stacklevel, check_choice
from ..models import check_values
from .base import Targets, Trained
from .classifier import BaseClassifier
from .kernel_svm import KernelSVM
from .pairs import values_of_classes, votes_of
from .parameters import parameters
from .preprocess import module_of, named
from .probabilities import coupled, fit_sigmoids, sigmoid, units_of

FOLDS = 5  # of the cross-validation of probabilities, as in LIBSVM


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
        if self.decision_function_shape == "ovo" and y.ndim == 1:
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
        self._sigmoids = (np.empty(0), np.empty(0))
        return targets, group

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Decision values.

        Args:
            X: (n, d) rows; of a precomputed kernel (n, training rows).

        Returns:
            (n,) for two classes, > 0 for the second. Else (n, k) for decision_function_shape "ovr":
            votes of the pairs, plus a monotone function of the sum of their values within (-1/3,
            1/3). (n, k(k-1)/2) for "ovo": values of the pairs, > 0 for the first class. With
            multiclass "ovr" (n, k) values, the largest for the class. Of k labels (n, k) values, >
            0 where the label holds.
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
        if isinstance(classes, list) or len(classes) <= 2 or self.multiclass == "ovr":
            return super().predict(X)
        score, k = check_values(self._scores(X)), len(self.classes_)
        votes = values_of_classes(score, k) if self.break_ties else votes_of(score > 0, k)
        return named(self.classes_, votes.argmax(axis=1))

    # Probabilities.

    def _calibrate(
        self, x: Any, y: object, weight: np.ndarray, targets: Targets, group: Any
    ) -> None:
        """Fit a sigmoid for each pair of classes to decision values of five-fold cross-validation.

        The units of `units_of` are drawn into folds class by class with `random_state`. As in
        LIBSVM, the value of a pair is 1, -1 or 0 where a training set has rows of the first class
        only, of the second, or neither.
        """
        self._check_pairs("probability=True")
        k, random = len(self.classes_), check_random_state(self.random_state)
        place = targets.place
        used = np.flatnonzero(group >= 0)
        rows = used[np.unique(group[used], return_index=True)[1]]  # one of each merged row
        number, share, count = units_of(group[used], weight[used])
        size, classes = len(number), place[rows][number]
        order = random.permutation(size)
        fold = np.empty(size, int)
        fold[order[np.argsort(classes[order], kind="stable")]] = np.arange(size) % FOLDS
        first, second = np.triu_indices(k, 1)
        score = np.zeros((size, len(first)))
        for held_out in (fold == i for i in range(min(FOLDS, size))):
            total = np.bincount(classes[~held_out], share[~held_out], k)
            present = np.flatnonzero(total)
            score[held_out] = (total[first] > 0) * 1.0 - (total[second] > 0)
            if len(present) < 2:
                continue
            inner_weight = np.zeros(len(weight))
            inner_weight[rows] = np.bincount(number[~held_out], share[~held_out], len(rows))
            inner_targets = targets._replace(names=tuple(present.tolist()))
            if len(present) < k:  # the classes of this training set are numbered anew
                inner = np.searchsorted(present, place).clip(max=len(present) - 1)
                value = 2.0 * inner - 1 if len(present) == 2 else inner * 1.0
                inner_targets = inner_targets._replace(value=value)
            machine = copy.copy(self)
            if "nu" in vars(self):  # at most its limit of this fold
                machine.set_params(nu=min(self.nu, limits_of_nu(total[present]).min()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                machine._run(x, inner_targets, inner_weight, least=len(rows))
            at, back = np.unique(number[held_out], return_inverse=True)
            at = np.resize(at, min(len(back), len(rows)))  # one shape for all folds
            values = machine._values(x[rows[at]]).reshape(len(at), -1)[back]
            pairs = np.flatnonzero((total[first] > 0) & (total[second] > 0))
            values = -values if len(present) == 2 else values  # > 0 for the first class
            score[np.ix_(held_out, pairs)] = values
        A, B = self._sigmoids = fit_sigmoids(score, classes, share, count, k)
        if (A > 0).any():
            pair = int(np.argmax(A))
            one, other = self.classes_[[first[pair], second[pair]]].tolist()
            warnings.warn(
                f"the probabilities of the classes {one!r} and {other!r} contradict predict "
                f"(probA_ is {A[pair]:.3g}, expected below 0): decision values of rows that are "
                "held out do not tell these classes apart, so take other parameters or features",
                stacklevel=caller_stacklevel(),
            )

    @property
    def probA_(self) -> np.ndarray:
        """Slopes of Platt's sigmoids, (k(k-1)/2,); empty without probabilities."""
        return self._sigmoids[0]

    @property
    def probB_(self) -> np.ndarray:
        """Offsets of Platt's sigmoids, (k(k-1)/2,); empty without probabilities."""
        return self._sigmoids[1]

    @available_if(lambda self: self._check_probability())
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities of the classes, (n, d) -> (n, k), in the order of `classes_`.

        They are fitted by cross-validation, so that the most probable class need not be that of
        `predict`.
        """
        if "calibrated_" in vars(self):
            return super().predict_proba(X)
        score = self._scores(X)
        A, B = self._sigmoids
        if not len(A):
            raise NotFittedError(
                "predict_proba is not available when fitted with probability=False"
            )
        score = check_values(score).reshape(len(score), -1)
        k = len(self.classes_)
        pairs = sigmoid(-score if k == 2 else score, A, B)
        if k > 2:
            return coupled(pairs, k)
        return module_of(pairs).hstack([pairs, 1 - pairs])


def limits_of_nu(total: np.ndarray) -> np.ndarray:
    """The largest nu of each pair of classes, from the weights (k,) of the classes."""
    first, second = np.triu_indices(len(total), 1)
    return 2 * np.minimum(total[first], total[second]) / (total[first] + total[second])
