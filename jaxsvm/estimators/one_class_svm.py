"""Kernel support vector machines for the support of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import _num_samples

from ..models import check_values
from ..solvers import one_class
from .kernel_svm import KernelSVM


class OneClassSVM(OutlierMixin, KernelSVM):
    """A detector of outliers: f(x) >= rho holds for all but a share nu of the training rows.

    It has the parameters and attributes of scikit-learn's `OneClassSVM`, and solves its problem,
    that of `jaxsvm.one_class`.

    Args:
        kernel: as `SVC`.
        degree: as `SVC`.
        gamma: as `SVC`.
        coef0: as `SVC`.
        tol: as `SVC`.
        nu: upper bound of the share of training rows outside and lower bound of the share of
            support vectors, in (0, 1].
        shrinking: as `SVC`.
        cache_size: as `SVC`.
        verbose: as `SVC`.
        max_iter: as `SVC`.
        progress: as `SVC`.

    Attributes:
        offset_: (1,) rho; `decision_function` is `score_samples` less rho.
        dual_coef_: (1, m) coefficients, >= 0.
        intercept_: (1,) -rho.
        support_, support_vectors_, n_support_, coef_, fit_status_, n_iter_, shape_fit_, model_,
            fit_: as `SVR`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> clf = OneClassSVM(gamma=1.0, nu=0.2).fit([[0.0], [0.1], [0.2], [0.3], [0.4]])
        >>> clf.predict([[0.2], [9.0]]).tolist()
        [1, -1]

    Reference: B. Schoelkopf, J. Platt, J. Shawe-Taylor, A. Smola, R. Williamson, Estimating the
        support of a high-dimensional distribution, Neural Computation 13, 2001.
    """

    random_state = None

    def __init__(
        self,
        *,
        kernel: str | Callable = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float | None = 1e-3,
        nu: float = 0.5,
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
        self.nu = nu
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return one_class(self.nu, self._kernel(x, copies), rounds=self._rounds())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train a new model.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: ignored.
            sample_weight: (n,) weights, >= 0; k equals k copies, 0 equals absence.
        """
        with self._restore_on_error():
            x, y, weight = self._checked(X, np.zeros(_num_samples(X)), sample_weight, reset=True)
            group = self._run(x, y, weight)
            self._set_dual(x, weight, group)
            self.offset_ = -self.intercept_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values f(x) - rho, (n, d) -> (n,): > 0 inside, < 0 outside."""
        return check_values(self._scores(X).ravel()).astype(np.float64)

    def score_samples(self, X: Any) -> np.ndarray:
        """The values f(x), (n, d) -> (n,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """(n, d) -> (n,): 1 inside, -1 outside."""
        return np.where(self.decision_function(X) >= 0, 1, -1).astype(np.intp)
