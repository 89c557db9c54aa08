"""Kernel support vector machines for real targets with a bound nu on the share outside the tube."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..solvers import nu_svr
from .kernel_svm import cost
from .svr import KernelRegressor


class NuSVR(KernelRegressor):
    """A kernel SVM for real targets with the parameter nu in place of epsilon, solved exactly.

    It has the parameters and attributes of scikit-learn's `NuSVR`, and solves its problem, that of
    `jaxsvm.nu_svr`.

    Args:
        nu: upper bound of the share of rows outside of the tube and lower bound of the share of
            support vectors, in (0, 1].
        C: weight of the loss of each row, > 0.
        kernel: as `SVC`.
        degree: as `SVC`.
        gamma: as `SVC`.
        coef0: as `SVC`.
        shrinking: as `SVC`.
        tol: as `SVR`.
        cache_size: as `SVC`.
        verbose: as `SVC`.
        max_iter: as `SVC`.
        progress: as `SVC`.

    Attributes:
        support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, fit_status_, n_iter_,
            shape_fit_, model_, fit_: as `SVR`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> reg = NuSVR(kernel="linear", C=100.0).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> round(float(reg.predict([[4.0]])[0]), 2)
        8.0

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000.
    """

    random_state = None

    def __init__(
        self,
        *,
        nu: float = 0.5,
        C: float = 1.0,
        kernel: str | Callable = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        tol: float | None = 1e-3,
        cache_size: float = 200,
        verbose: bool = False,
        max_iter: int = -1,
        progress: bool = False,
    ) -> None:
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.tol = tol
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return nu_svr(self.nu, cost(self.C), self._kernel(x, copies), rounds=self._rounds())
