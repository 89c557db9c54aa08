"""Kernel support vector machines for real targets with a bound nu on the share outside the tube."""

from __future__ import annotations

from ..solvers import nu_svr
from .base import Spec
from .kernel_svm import KernelSVM, cost
from .parameters import estimator
from .regressor import BaseRegressor


@estimator("nu C kernel degree gamma coef0 shrinking tol cache_size verbose max_iter progress")
class NuSVR(BaseRegressor, KernelSVM):
    """A kernel SVM for real targets with the parameter nu in place of epsilon, solved exactly.

    It has the parameters and attributes of scikit-learn's `NuSVR`, and solves its problem, that of
    `jaxsvm.nu_svr`.

    Args:
        nu: upper bound of the share of rows outside of the tube and lower bound of the share of
            support vectors, in (0, 1].
        C: weight of the loss of each row, > 0.

    Attributes:
        support_: (m,) indices of the support vectors, in order.
        support_vectors_: (m, d) support vectors.
        n_support_: (1,) their number.
        dual_coef_: (1, m) signed coefficients.
        coef_: (1, d) weights of kernel "linear".
        intercept_: (1,) intercept.
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: updates of the solver; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> from jaxsvm.estimators import NuSVR
        >>> reg = NuSVR(kernel="linear", C=100.0).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> round(float(reg.predict([[4.0]])[0]), 2)
        8.0

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000.
    """

    nu: float = 0.5
    C: float = 1.0

    def _spec(self, rows: object, previous: object = None) -> Spec:
        kernel = self._kernel(rows)
        solver = nu_svr(self.nu, cost(self.C), kernel, rounds=self._rounds())
        return self._exact(solver, rows)
