"""Kernel support vector machines on a budget of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..budget import default_for
from ..objectives import lam_from_C
from ..recipe import check_choice, check_positive
from ..solvers import bsca, bsgd
from .classifier import PartialFitMixin
from .parameters import kernel_of, may_widen


class BudgetedSVC(PartialFitMixin):
    """A kernel SVM of at most `budget` points, which solves its problem approximately.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i f(x_i)).

    The budget bounds the cost of a prediction and of a training step for any number of rows. f has
    no intercept.

    Args:
        C: weight of the loss of each row, > 0.
        kernel: as `SVC`, except "precomputed". The budget is maintained by `jaxsvm.budget.merge`
            for Gaussian kernels, which it requires, and by `jaxsvm.budget.remove` for others, at
            the same cost and a larger loss. For `jaxsvm.budget.project`, with a smaller loss at
            O(budget^3) each time, use `SVMClassifier(jaxsvm.bsca(..., maintain=...))`.
        gamma: as `SVC`.
        degree: as `SVC`.
        coef0: as `SVC`.
        budget: points of the model, or of each one-vs-rest model of more than two classes, >= 2.
        method: "bsca", dual coordinate ascent, or "bsgd", stochastic subgradient descent. The
            latter has `partial_fit`, with the kernel and budget of the first call, and lambda =
            1/(C W) for the weight W of its rows.
        partners: number of random candidates from which the best partner of a merge is chosen, >=
            1; None: all points.
        tol: of "bsca": stop once the logarithm of the spread of the contributions to f changes by
            at most this between epochs; "auto": 1e-3, as its paper recommends; None: none. "bsgd"
            has no criterion.
        max_passes: passes over the rows at most, >= 1, rounded up as in `LinearSVC` and counted as
            in `Pegasos`; None: ten, or with a tolerance 1,000. The number needed grows in
            proportion to C.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, intercept_: as `SVMClassifier`; the points and their
            coefficients are in `model_`.

    Example:
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> BudgetedSVC(C=10.0, gamma=1.0, budget=4, random_state=0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]
    """

    _structure = ("method", "kernel", "gamma", "degree", "coef0", "budget", "partners")
    _total: float

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Callable = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        budget: int = 500,
        method: str = "bsca",
        partners: int | None = 59,
        tol: float | str | None = "auto",
        max_passes: int | None = None,
        class_weight: dict | str | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.budget = budget
        self.method = method
        self.partners = partners
        self.tol = tol
        self.max_passes = max_passes
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        check_choice("method", self.method, ("bsca", "bsgd"))
        if previous is not None:  # the kernel is that of the first rows, and so is their weight
            check_positive(C=self.C)
            _, (_, *arguments), options = previous.call()
            return bsgd(lam_from_C(self.C, self._total), *arguments, **options)
        self._total = float(weight.sum())
        kernel = kernel_of(self.kernel, self.gamma, self.degree, self.coef0, x, copies)
        options = {"budget": self.budget, "maintain": default_for(kernel, partners=self.partners)}
        if self.method == "bsca":
            return bsca(self.C, kernel, **options)
        check_positive(C=self.C)
        return bsgd(lam_from_C(self.C, self._total), kernel, **options)

    def _run_options(self, n: int) -> dict[str, Any]:
        return {
            "steps": None,
            "passes": self.max_passes,
            "tol": self.tol,
            "sampler": None,
            "progress": self.progress,
        }

    def _columns(self) -> str:
        return "padded" if may_widen(self.kernel) else "fixed"

    def _can_partial_fit(self) -> bool:
        if self.method != "bsgd":
            raise AttributeError(
                "partial_fit takes method='bsgd': 'bsca' keeps a number for each row"
            )
        return True
