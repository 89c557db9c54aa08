"""Kernel support vector machines for the support of a distribution."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OutlierMixin
from sklearn.utils.validation import _num_samples

from ..models import check_values
from ..solvers import one_class
from .base import BaseSVM, Spec
from .kernel_svm import KernelSVM
from .parameters import PerRow, estimator


class OutlierDetector(OutlierMixin, BaseSVM):
    """A machine f(x) - rho for the support of a distribution, trained without targets."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: PerRow = None) -> Self:
        """Train a new model.

        Args:
            X: (n, d) rows, an array or any sparse matrix; of a precomputed kernel (n, n).
            y: ignored.
            sample_weight: (n,) weights, >= 0; k equals k copies, 0 equals absence.
        """
        return self._fit(X, sample_weight, True)

    def _fit(self, X: ArrayLike, sample_weight: PerRow, reset: bool, **more: object) -> Self:
        with self._restore_on_error():
            x, y, weight = self._checked(X, np.zeros(_num_samples(X)), sample_weight, reset)
            self._train(x, y, weight, **more)
            self.offset_ = -self.intercept_
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Decision values f(x) - rho, (n, d) -> (n,): > 0 inside, < 0 outside."""
        return check_values(self._scores(X).ravel()).astype(np.float64)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """The values f(x), (n, d) -> (n,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: ArrayLike) -> np.ndarray:
        """(n, d) -> (n,): 1 inside, -1 outside."""
        return np.where(self.decision_function(X) >= 0, 1, -1)


@estimator("kernel degree gamma coef0 tol nu shrinking cache_size verbose max_iter progress")
class OneClassSVM(OutlierDetector, KernelSVM):
    """A detector of outliers: f(x) >= rho holds for all but a share nu of the training rows.

    It has the parameters and attributes of scikit-learn's `OneClassSVM`, and solves its problem,
    that of `jaxsvm.one_class`.

    Args:
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0.
        nu: upper bound of the share of training rows outside and lower bound of the share of
            support vectors, in (0, 1].

    Attributes:
        offset_: (1,) rho; `decision_function` is `score_samples` less rho.
        dual_coef_: (1, m) coefficients, >= 0.
        intercept_: (1,) -rho.
        support_: (m,) indices of the support vectors, in order.
        support_vectors_: (m, d) support vectors.
        n_support_: (1,) their number.
        coef_: (1, d) weights of kernel "linear".
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: updates of the solver; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> from jaxsvm.estimators import OneClassSVM
        >>> clf = OneClassSVM(gamma=1.0, nu=0.2).fit([[0.0], [0.1], [0.2], [0.3], [0.4]])
        >>> clf.predict([[0.2], [9.0]]).tolist()
        [1, -1]

    Reference: B. Schoelkopf, J. Platt, J. Shawe-Taylor, A. Smola, R. Williamson, Estimating the
        support of a high-dimensional distribution, Neural Computation 13, 2001.
    """

    nu: float = 0.5

    def _spec(self, rows: object, previous: object = None) -> Spec:
        solver = one_class(self.nu, self._kernel(rows), rounds=self._rounds())
        return self._exact(solver, rows)
