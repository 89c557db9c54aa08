"""Linear support vector machines for classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linear_choice import one_vs_weighted_rest
from ..recipe import check_choice
from ..types import Loss
from .classifier import BaseClassifier
from .linear import LinearSVM
from .parameters import loss_of


class LinearSVC(LinearSVM, BaseClassifier):
    """Minimise 1/2 (|w|^2 + (b/s)^2) + C sum_i weight_i loss(y_i (<w, x_i> + b)).

    s is `intercept_scaling`. The class has the parameters and attributes of scikit-learn's
    `LinearSVC`, and solves its problem. More than two classes are reduced to one against the rest.

    solver="auto" takes `jaxsvm.newton` for a loss with a continuous slope, such as the squared
    hinge. For other losses of dense rows of at most 512 columns it takes `jaxsvm.interior_point`,
    from 5,000 rows on after 150 steps of `jaxsvm.augmented_lagrangian` that have not met the
    tolerance. Else it takes dual coordinate ascent, `jaxsvm.sdca`.

    Args:
        penalty: "l2".
        loss: "squared_hinge", "hinge", or a loss of jaxsvm.
        dual: accepted without an effect on the solution; see `solver`.
        tol: interior_point and augmented_lagrangian stop once the relative duality gap is at most
            tol / 100, newton once it is at most tol / 10^5 or float32 allows no descent, > 0. There
            is a warning if the gap stays above tol. Ascent stops once the largest change of a
            margin in a pass is at most tol / 2.
        C: weight of the loss of each row, > 0.
        multi_class: "ovr".
        fit_intercept: whether there is an intercept, regularised with the weights.
        intercept_scaling: value s of the constant feature whose weight is b/s, > 0. A larger one
            regularises the intercept less.
        class_weight: as `SVC`. For more than two classes it weighs, as in LIBLINEAR, the rows of a
            class in its problem, and not where they are of the rest.
        verbose: as `progress`.
        random_state: int, `RandomState` or None; the order of rows.
        max_iter: steps of the solver at most, >= 1; above 1,000 rounded up to thousands. For
            ascent they are passes over the rows, rounded up to whole chunks of steps: one pass
            over the rows padded to a multiple of 256 or more, and at least 128 steps.
        progress: a bar on the standard error stream.
        solver: "auto", "newton", "augmented_lagrangian", "interior_point" or "sdca".

    Attributes:
        coef_: (1, d) or (k, d) weights; they may be set, and `sparsify` makes them sparse.
        intercept_: (1,) or (k,) intercepts; 0.0 without.
        classes_: (k,) class names.
        n_iter_: steps of the solver, or passes of ascent; for more than two classes the most of
            newton and the mean of the others.
        solver_: the name of the solver.
        model_, fit_: as `SVMClassifier`. With another `intercept_scaling` than 1, a certificate of
            `model_` counts b^2 in place of (b/s)^2.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, penalty "l1", and multi_class
            "crammer_singer".

    Example:
        >>> clf = LinearSVC(C=10.0, random_state=0).fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
        >>> clf.score([[0.5], [3.5]], [0, 1])
        1.0

    Reference: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, A dual coordinate
        descent method for large-scale linear SVM, ICML 2008.
    """

    _factors: np.ndarray | None

    def __init__(
        self,
        penalty: str = "l2",
        loss: str | Loss = "squared_hinge",
        *,
        dual: bool | str = "auto",
        tol: float | None = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: dict | str | None = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        progress: bool = False,
        solver: str = "auto",
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.progress = progress
        self.solver = solver

    def _check_options(self) -> None:
        super()._check_options()
        if isinstance(self.penalty, int | float):
            raise ValueError(
                f"penalty must be 'l2', got {self.penalty!r}: write LinearSVC(C={self.penalty!r}), "
                "as penalty is the first parameter since version 0.4"
            )
        if self.penalty == "l1":
            raise ValueError(
                "penalty='l1' is not supported: take penalty='l2', or sklearn.svm.LinearSVC for "
                "sparse weights"
            )
        check_choice("penalty", self.penalty, ("l2",))
        if self.multi_class == "crammer_singer":
            raise ValueError(
                "multi_class='crammer_singer' is not supported: take multi_class='ovr', or "
                "the solver jaxsvm.ocas(lam, loss=jaxsvm.losses.crammer_singer, classes=k)"
            )
        check_choice("multi_class", self.multi_class, ("ovr",))

    def _class_weights(self, y: np.ndarray, place: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """As `BaseClassifier._class_weights`; of more than two classes they are of the solver."""
        factors = super()._class_weights(y, place, weight)
        self._factors = factors if len(factors) > 2 and (factors != 1).any() else None
        return factors if self._factors is None else np.ones(len(factors))

    def _for_classes(self, solver: Any, k: int) -> Any:
        if self._factors is None:
            return super()._for_classes(solver, k)
        return one_vs_weighted_rest(solver, self._factors)

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return self._linear_solver(x, loss_of(self.loss))
