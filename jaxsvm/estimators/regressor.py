"""Regressors: real targets, and their centre."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from ..models import check_values
from .base import BaseSVM
from .parameters import PerRow
from .preprocess import centre_of


class BaseRegressor(RegressorMixin, BaseSVM):
    """A regressor: fit and predict."""

    _free_intercept: ClassVar[Any] = True  # whether the intercept is not regularised

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Train a new model.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: (n,) targets.
            sample_weight: (n,) weights, >= 0; k equals k copies, 0 equals absence.
        """
        return self._fit(X, y, sample_weight)

    def _fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow, reset: bool = True, **more: object
    ) -> Self:
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=reset)
            if reset:
                self._fit_targets(y, weight)
            self._train(x, y, weight, **more)
        return self

    def _fit_targets(self, y: np.ndarray, weight: np.ndarray) -> None:
        """Keep the centre of the targets, where a free intercept makes the problem the same."""
        self._centre = centre_of(np.asarray(y, np.float64), weight) if self._free_intercept else 0.0

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predicted targets, (n, d) -> (n,)."""
        return check_values(self._scores(X)).ravel()
