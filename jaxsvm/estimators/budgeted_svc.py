"""Kernel support vector machines on a budget of points."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ..budget import default_for
from ..checks import check_choice, check_positive
from ..objectives import lam_from_C
from ..solvers import bsca, bsgd
from .base import ModelAttributes, Spec
from .classifier import PartialFitMixin
from .parameters import KernelParameters, estimator, kernel_of


@estimator(
    "C kernel gamma degree coef0 budget method partners tol max_passes class_weight random_state "
    "progress probability"
)
class BudgetedSVC(KernelParameters, PartialFitMixin, ModelAttributes):
    """A kernel SVM of at most `budget` points, which solves its problem approximately.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i f(x_i)).

    The budget bounds the cost of a prediction and of a training step for any number of rows. f has
    no intercept.

    Args:
        C: weight of the loss of each row, > 0.
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian", "matern12", "matern32", "matern52",
            "rational_quadratic", "cosine", "chi2" or "additive_chi2", a kernel of jaxsvm, or a
            function (n, d), (m, d) -> (n, m) that JAX can trace. The budget is maintained by
            `jaxsvm.budget.merge` for Gaussian kernels, which it requires. For others it is
            maintained by `jaxsvm.budget.remove`, at the same cost and a larger loss. For
            `jaxsvm.budget.project`, with a smaller loss at O(budget^3) each time, use
            `SVMClassifier(jaxsvm.bsca(..., maintain=...))`.
        budget: points of the model, or of each one-vs-rest model of more than two classes, >= 2.
        method: "bsca", dual coordinate ascent, or "bsgd", stochastic subgradient descent. The
            latter has `partial_fit`, with the kernel and budget of the first call, and lambda =
            1/(C W) for the weight W of its rows.
        partners: number of random candidates from which the best partner of a merge is chosen, >=
            1; None: all points.
        tol: of "bsca": stop once the logarithm of the spread of the contributions to f changes by
            at most this between epochs; "auto": 1e-3, as its paper recommends; None: none. "bsgd"
            has no criterion.
        max_passes: passes over the rows at most, >= 1, rounded up to whole chunks of steps; None:
            ten, or with a tolerance 1,000. Equal rows of a class are one row of a larger weight. Up
            to 10,000 rows of a pass count them one by one, as copies of a row of integer weight.
            The number needed grows in proportion to C.
        class_weight: dict from class names to factors on their rows, "balanced", or None.

    Attributes:
        classes_: (k,) class names.
        model_: a `jaxsvm.models.Classifier`, with the points and their coefficients.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`.
        n_iter_: passes made.
        intercept_: (1,) or (k,) zeros.

    Example:
        >>> from jaxsvm.estimators import BudgetedSVC
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> BudgetedSVC(C=10.0, gamma=1.0, budget=4, random_state=0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]
    """

    _takes_matrix = False
    _structure = ("method", "kernel", "gamma", "degree", "coef0", "budget", "partners")
    C: float = field(default=1.0, kw_only=False)
    budget: int = 500
    method: str = "bsca"
    partners: int | None = 59
    tol: float | str | None = "auto"
    max_passes: int | None = None

    def _spec(self, rows: Any, previous: Any = None) -> Spec:
        check_choice("method", self.method, ("bsca", "bsgd"))
        if previous is None:
            self._total = float(rows.weight.sum())
            named = self.kernel, self.gamma, self.degree, self.coef0
            kernel = kernel_of(*named, rows.x, rows.copies)
            maintain, budget = default_for(kernel, partners=self.partners), self.budget
        else:  # the kernel is that of the first rows, and so is their weight
            kernel, maintain, budget = previous.kernel, previous.maintain, previous.budget
        options: Any = {"budget": budget, "maintain": maintain}
        if self.method == "bsca":
            solver: Any = bsca(self.C, kernel, **options)
        else:
            check_positive(C=self.C)
            solver = bsgd(lam_from_C(self.C, self._total), kernel, **options)
        return Spec(solver, passes=self.max_passes, tol=self.tol, length="max_passes")

    @property
    def _no_partial_fit(self) -> str:
        """Why there is no `partial_fit`."""
        problem = "partial_fit takes method='bsgd': 'bsca' keeps a number for each row"
        return "" if self.method == "bsgd" else problem
