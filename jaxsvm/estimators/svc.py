"""Exact kernel support vector machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import samplers
from ..recipe import check_choice
from ..solvers import decomposition, sdca
from ..types import Loss
from .base import MEASURED_PASSES
from .classifier import BaseClassifier
from .parameters import is_matrix, kernel_of, loss_of, may_widen

# number of rows from which shrinking saves more time than its longer compilation costs
SHRINKING = 4096


class SVC(BaseClassifier):
    """A kernel SVM, solved exactly by block decomposition.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i (f(x_i) + b)).

    The problem of scikit-learn's `SVC` with the same `tol`; for more than two classes, with
    multiclass "ovo".

    Args:
        C: weight of the loss of each row, > 0.
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian" (exp(-gamma |x - z|_1)),
            "precomputed", a kernel of jaxsvm, or a function (n, d), (m, d) -> (n, m) of JAX
            operations.
        gamma: of a kernel by name: "scale" for 1/(d variance of X), with rows weighted by sample
            weight, "auto" for 1/d, or a number > 0.
        degree: of "poly", an integer; structure.
        coef0: of "poly" and "sigmoid".
        loss: as `LinearSVC`.
        bias: "free", an intercept that is not regularised, or "none"; "feature": regularised with
            the rest (1 is added to the kernel), by dual coordinate ascent.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0; with
            bias "feature", the largest change of a margin in a pass.
        max_passes: blocks of rows at most, each of which reads all rows once, >= 1; structure. With
            bias "feature", passes.
        multiclass: as `SVMClassifier`.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`; used with bias "feature" only.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, support_, dual_coef_, intercept_: as `SVMClassifier`.

    Example:
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> SVC(C=10.0, gamma=1.0, random_state=0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Callable = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        loss: str | Loss = "hinge",
        bias: str = "free",
        tol: float | str | None = 1e-3,
        max_passes: int | None = MEASURED_PASSES,
        multiclass: str = "ovr",
        class_weight: dict | str | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.loss = loss
        self.bias = bias
        self.tol = tol
        self.max_passes = max_passes
        self.multiclass = multiclass
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        check_choice("bias", self.bias, ("free", "none", "feature"))
        kernel = kernel_of(self.kernel, self.gamma, self.degree, self.coef0, x, copies)
        if self.bias == "feature":
            return sdca(self.C, kernel, loss=loss_of(self.loss), bias="feature")
        return decomposition(
            self.C, kernel, loss=loss_of(self.loss), bias=self.bias, rounds=self.max_passes
        )

    def _run_options(self, n: int) -> dict[str, Any]:
        steps: int | None = 1  # an update iterates to the tolerance
        sampler = None
        if self.bias == "feature":
            steps, sampler = None, samplers.shrinking(16) if n >= SHRINKING else samplers.epochs(16)
        return {
            "steps": steps,
            "passes": self.max_passes,
            "tol": self.tol,
            "sampler": sampler,
            "progress": self.progress,
        }

    def _columns(self) -> str:
        return "rows" if is_matrix(self.kernel) else "padded" if may_widen(self.kernel) else "fixed"
