"""Exact kernel support vector machines for real targets."""

from __future__ import annotations

from typing import Any

from .. import losses
from ..solvers import decomposition
from .base import Spec
from .kernel_svm import KernelSVM, cost
from .parameters import estimator
from .regressor import BaseRegressor


@estimator("kernel degree gamma coef0 tol C epsilon shrinking cache_size verbose max_iter progress")
class SVR(BaseRegressor, KernelSVM):
    """A kernel SVM for real targets, solved exactly by block decomposition.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, |y_i - f(x_i) - b| - epsilon), that of
    scikit-learn's `SVR`, with its parameters and attributes.

    Args:
        C: weight of the loss of each row, > 0.
        epsilon: half the width of the tube without loss, units of y, >= 0.

    Attributes:
        support_: (m,) indices of the support vectors, in order.
        support_vectors_: (m, d) support vectors.
        n_support_: (1,) their number.
        dual_coef_: (1, m) signed coefficients.
        coef_: (1, d) weights of kernel "linear".
        intercept_: (1,) intercept.
        fit_status_: 0 if the tolerance was met, else 1.
        shape_fit_: shape of the training rows.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        n_iter_: updates of the solver.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> from jaxsvm.estimators import SVR
        >>> reg = SVR(kernel="linear", C=100.0, epsilon=0.0).fit([[1.0], [2.0]], [2.0, 4.0])
        >>> round(float(reg.predict([[3.0]])[0]), 2)
        6.0
    """

    C: float = 1.0
    epsilon: float = 0.1

    def _spec(self, rows: Any, previous: object = None, **numbers: Any) -> Spec:
        loss = losses.eps_insensitive(numbers.get("epsilon", self.epsilon))
        C, kernel = cost(numbers.get("C", self.C)), self._kernel(rows, numbers.get("gamma"))
        solver = decomposition(C, kernel, loss=loss, rounds=self._rounds())
        return self._exact(solver, rows)
