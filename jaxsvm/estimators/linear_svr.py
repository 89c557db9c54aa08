"""Linear support vector machines for real targets."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from .. import losses
from ..models import check_values
from ..recipe import check_choice
from .linear import LinearSVM

LOSSES = {
    "epsilon_insensitive": losses.eps_insensitive,
    "squared_epsilon_insensitive": losses.squared_eps_insensitive,
}


class LinearSVR(RegressorMixin, LinearSVM):
    """Minimise 1/2 (|w|^2 + (b/s)^2) + C sum_i weight_i loss(<w, x_i> + b - y_i).

    s is `intercept_scaling`. The class has the parameters and attributes of scikit-learn's
    `LinearSVR`, and solves its problem.

    Args:
        epsilon: half the width of the tube without loss, units of y, >= 0.
        tol: as `LinearSVC`; for ascent in units of y.
        C: weight of the loss of each row, > 0.
        loss: "epsilon_insensitive", or its square "squared_epsilon_insensitive".
        fit_intercept: as `LinearSVC`.
        intercept_scaling: as `LinearSVC`.
        dual: as `LinearSVC`.
        verbose: as `LinearSVC`.
        random_state: as `LinearSVC`.
        max_iter: as `LinearSVC`.
        progress: as `LinearSVC`.
        solver: as `LinearSVC`.

    Attributes:
        coef_: (d,) weights; they may be set.
        intercept_: (1,) intercept; 0.0 without.
        n_iter_, solver_, model_, fit_: as `LinearSVC`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.

    Example:
        >>> reg = LinearSVR(C=100.0, fit_intercept=False, random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0

    Reference: C.-H. Ho, C.-J. Lin, Large-scale linear support vector regression, JMLR 13, 2012.
    """

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        tol: float | None = 1e-4,
        C: float = 1.0,
        loss: str = "epsilon_insensitive",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        dual: bool | str = "auto",
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        progress: bool = False,
        solver: str = "auto",
    ) -> None:
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.progress = progress
        self.solver = solver

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        check_choice("loss", self.loss, tuple(LOSSES))
        return self._linear_solver(x, LOSSES[self.loss](self.epsilon))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new model on (n, d) rows, (n,) targets and (n,) weights."""
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            self._run(x, y.astype(np.float64), weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, (n, d) -> (n,)."""
        return check_values(self._scores(X).ravel())
