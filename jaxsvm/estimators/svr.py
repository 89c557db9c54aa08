"""Exact kernel support vector machines for real targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from .. import losses
from ..kernels import Kernel
from ..models import check_values
from ..solvers import decomposition
from .kernel_svm import KernelSVM, cost
from .preprocess import centre_of


class KernelRegressor(RegressorMixin, KernelSVM):
    """A kernel regressor: fit and predict."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new model.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: (n,) targets.
            sample_weight: (n,) weights, >= 0; k equals k copies, 0 equals absence.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, **more: Any) -> Self:
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            y = y.astype(np.float64)
            self._centre = centre_of(y, weight)
            self._train(x, y, weight, **more)
        return self

    def _train(self, x: Any, y: np.ndarray, weight: np.ndarray, **more: Any) -> None:
        group = self._run(x, y, weight, **more)
        self._set_dual(x, weight, group)

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, (n, d) -> (n,)."""
        return check_values(self._scores(X).ravel())


class SVR(KernelRegressor):
    """A kernel SVM for real targets, solved exactly by block decomposition.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, |y_i - f(x_i) - b| - epsilon), that of
    scikit-learn's `SVR`, with its parameters and attributes.

    Args:
        kernel: as `SVC`.
        degree: as `SVC`.
        gamma: as `SVC`.
        coef0: as `SVC`.
        tol: as `SVC`, in units of y.
        C: weight of the loss of each row, > 0.
        epsilon: half the width of the tube without loss, units of y, >= 0.
        shrinking: as `SVC`.
        cache_size: as `SVC`.
        verbose: as `SVC`.
        max_iter: as `SVC`.
        progress: as `SVC`.

    Attributes:
        support_: (m,) indices of the support vectors, in order.
        support_vectors_: (m, d) support vectors.
        n_support_: (1,) their number.
        dual_coef_: (1, m) signed coefficients.
        coef_: (1, d) weights of kernel "linear".
        intercept_: (1,) intercept.
        fit_status_, shape_fit_, model_, fit_: as `SVC`.
        n_iter_: updates of the solver.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> reg = SVR(kernel="linear", C=100.0, epsilon=0.0).fit([[1.0], [2.0]], [2.0, 4.0])
        >>> round(float(reg.predict([[3.0]])[0]), 2)
        6.0
    """

    def __init__(
        self,
        *,
        kernel: str | Callable = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float | None = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
        shrinking: bool = True,
        cache_size: float = 200,
        verbose: bool = False,
        max_iter: int = -1,
        progress: bool = False,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.progress = progress

    random_state = None

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return self._solver_of(self.C, self.epsilon, self._kernel(x, copies))

    def _solver_of(self, C: float, epsilon: float, kernel: Kernel) -> Any:
        """The solver for one value of C and of epsilon, and a kernel."""
        loss = losses.eps_insensitive(epsilon)
        return decomposition(cost(C), kernel, loss=loss, rounds=self._rounds())
