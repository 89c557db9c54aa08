"""Exact kernel support vector machines for real targets."""

from __future__ import annotations

from typing import Any

from .. import losses
from ..solvers import decomposition
from .base import Spec
from .kernel_svm import KernelSVM, cost
from .parameters import estimator
from .regressor import BaseRegressor


@estimator(
    "kernel degree gamma coef0 tol C epsilon shrinking cache_size verbose max_iter progress "
    "warm_start"
)
class SVR(BaseRegressor, KernelSVM):
    """A kernel SVM for real targets, solved exactly by block decomposition.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, |y_i - f(x_i) - b| - epsilon), that of
    scikit-learn's `SVR`, with its parameters and attributes.

    Args:
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian", "matern12", "matern32", "matern52",
            "rational_quadratic", "cosine", "chi2", "additive_chi2" or "precomputed", a kernel of
            jaxsvm, or a function (n, d), (m, d) -> (n, m).
        degree: of "poly", an integer.
        gamma: of a kernel by name: a number > 0, "scale" for 1/(d variance of X) or "auto" for 1/d.
        coef0: of "poly" and "sigmoid", the number that is added to the inner products.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0, in
            units of y.
        C: weight of the loss of each row, > 0.
        epsilon: half the width of the tube without loss, units of y, >= 0.
        shrinking: accepted without an effect: working sets are chosen from all rows.
        cache_size: accepted without an effect: the kernel cache takes 512 MiB at most.
        verbose: whether there is a bar on the standard error stream, as by `progress`.
        max_iter: rounds of the solver at most, >= 1, not steps on pairs as in LIBSVM; -1: 2,000.
        progress: whether there is a bar on the standard error stream.
        warm_start: whether `fit` begins at the dual coefficients of the fit before, in proportion
            to C, if that had warm_start=True, too. On other rows it begins anew; other classes or
            columns are refused.

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
        >>> reg = SVR(kernel="linear", C=100.0, epsilon=0.0).fit([[1.0], [2.0]], [2.0, 4.0])
        >>> round(float(reg.predict([[3.0]])[0]), 2)
        6.0
    """

    C: float = 1.0
    epsilon: float = 0.1

    def _spec(self, rows: Any, previous: object = None, **numbers: Any) -> Spec:
        loss = losses.eps_insensitive(self._number("epsilon", numbers))
        C, kernel = cost(self._number("C", numbers)), self._kernel(rows, numbers.get("gamma"))
        solver = decomposition(C, kernel, loss=loss, rounds=self._rounds())
        return self._exact(solver, rows)
