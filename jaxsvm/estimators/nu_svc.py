"""Kernel support vector machines for classes with a bound nu on the share of margin errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ..solvers import nu_svc
from .kernel_classifier import KernelClassifier


class NuSVC(KernelClassifier):
    """A kernel SVM with the parameter nu in place of C, solved exactly.

    It has the parameters and attributes of scikit-learn's `NuSVC`, and solves its problem:
    `jaxsvm.nu_svc` for each pair of classes.

    Args:
        nu: upper bound of the share of margin errors and lower bound of the share of support
            vectors, in (0, 1]. For each pair of classes it is at most 2 min(n+, n-) / (n+ + n-).
        kernel: as `SVC`.
        degree: as `SVC`.
        gamma: as `SVC`.
        coef0: as `SVC`.
        shrinking: as `SVC`.
        probability: as `SVC`. In a training set nu is at most its limit there.
        tol: as `SVC`.
        cache_size: as `SVC`.
        class_weight: accepted without an effect, as in LIBSVM; `class_weight_` holds the factors.
        verbose: as `SVC`.
        max_iter: as `SVC`.
        decision_function_shape: as `SVC`.
        break_ties: as `SVC`.
        random_state: as `SVC`.
        progress: as `SVC`.

    Attributes:
        support_, support_vectors_, n_support_, dual_coef_, coef_, intercept_, classes_,
            class_weight_, fit_status_, n_iter_, shape_fit_, probA_, probB_, model_, fit_: as `SVC`.

    Raises:
        ValueError: from `fit`, for nu above its limit for a pair of classes; otherwise as `SVC`.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> NuSVC(nu=0.5, gamma=1.0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000.
    """

    _weighs_classes = False

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str | Callable = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool | str = False,
        tol: float | None = 1e-3,
        cache_size: float = 200,
        class_weight: dict | str | None = None,
        verbose: bool = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return nu_svc(self.nu, self._kernel(x, copies), rounds=self._rounds())

    def _encode(
        self, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `BaseClassifier._encode`, after LIBSVM's check of nu for each pair of classes."""
        place, target, factors = super()._encode(y, weight)
        total = np.bincount(place, weight, len(factors))
        limits = limits_of_nu(total)
        for limit, a, b in zip(limits, *np.triu_indices(len(total), 1), strict=True):
            if self.nu > limit * (1 + 1e-6):
                one, other = self.classes_[[a, b]].tolist()
                raise ValueError(
                    f"specified nu is infeasible: for the classes {one!r} and {other!r} it must be "
                    f"at most 2 min(n+, n-) / (n+ + n-) = {limit:.6g} by weight, got {self.nu:g}"
                )
        return place, target, factors

    def _for_fold(self, total: np.ndarray) -> Self:
        """As `KernelClassifier._for_fold`; nu is at most the limit of this fold."""
        return super()._for_fold(total).set_params(nu=min(self.nu, limits_of_nu(total).min()))


def limits_of_nu(total: np.ndarray) -> np.ndarray:
    """The largest nu of each pair of classes, from the weights (k,) of the classes."""
    first, second = np.triu_indices(len(total), 1)
    return 2 * np.minimum(total[first], total[second]) / (total[first] + total[second])
