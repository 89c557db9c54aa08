"""Linear support vector machines for classes."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from ..checks import check_choice
from ..machines import one_vs_weighted_rest
from ..types import Loss
from .base import Targets
from .classifier import BaseClassifier
from .linear import LinearSVM
from .parameters import estimator, loss_of


@estimator(
    "penalty loss dual tol C multi_class fit_intercept intercept_scaling class_weight verbose "
    "random_state max_iter progress solver l1_ratio probability warm_start"
)
class LinearSVC(LinearSVM, BaseClassifier):
    """Minimise 1/2 (|w|^2 + (b/s)^2) + C sum_i weight_i loss(y_i (<w, x_i> + b)).

    s is `intercept_scaling`. With penalty="l1" the first term is |w|_1 + |b/s|. With "elasticnet"
    it is l1_ratio times that plus 1 - l1_ratio times the first. Many weights are 0 then. The class
    has the parameters and attributes of scikit-learn's `LinearSVC`, and solves its problem. More
    than two classes are reduced to one against the rest, or trained at once, with
    `multi_class="crammer_singer"`, by `jaxsvm.crammer_singer`, two by `jaxsvm.dual_descent`; then
    loss, dual and solver have no effect.

    solver="auto" takes `jaxsvm.dual_descent` for the hinge and the squared hinge where there are
    less than three times as many rows as columns. Else it takes `jaxsvm.newton` for a loss with a
    continuous slope, such as the squared hinge. For the hinge the rows and C decide between
    `jaxsvm.dual_descent`, `jaxsvm.augmented_lagrangian` and `jaxsvm.interior_point`, by the
    thresholds of docs/linear.md.
    Other penalties than "l2" take `jaxsvm.proximal_newton`, for a loss with a continuous slope.

    Args:
        penalty: "l2", "l1" or "elasticnet".
        loss: "squared_hinge", "hinge", or a loss of jaxsvm.
        tol: interior_point and augmented_lagrangian stop once the relative duality gap is at most
            tol / 100, newton once it is at most tol / 10^5 or float32 allows no descent, > 0.
            dual_descent stops at tol, or tol / 10 for a loss with a curvature, all classes at once
            at tol, and sdca once the largest change of a margin in a pass is at most tol. There is
            a warning if the gap stays above tol. With another penalty than "l2" the gap to stop at
            is 10 tol, and there is a warning above 100 tol: it falls as slowly as the weights come
            near, and the objective is closer.
        multi_class: "ovr" or "crammer_singer".
        intercept_scaling: value s of the constant feature whose weight is b/s, > 0. A larger one
            regularises the intercept less.
        class_weight: dict from class names to factors on C, "balanced" for the same total weight of
            all classes, or None. For more than two classes it weighs, as in LIBLINEAR, the rows of
            a class in its problem, and not where they are of the rest.
        max_iter: steps of the solver at most, >= 1; above 1,000 rounded up to thousands. For all
            classes at once they are visits of each row. For ascent they are passes over the rows,
            rounded up to whole chunks of steps: one pass over the rows padded to a multiple of 256
            or more, and at least 128 steps.
        solver: "auto", "newton", "augmented_lagrangian", "interior_point",
            "dual_descent" or "sdca"; with another
            penalty than "l2" "auto" or "proximal_newton".
        l1_ratio: share of the L1 norm in the penalty "elasticnet", from 0 to 1; else without an
            effect.

    Attributes:
        coef_: (1, d) or (k, d) weights; they may be set, and `sparsify` makes them sparse.
        intercept_: (1,) or (k,) intercepts; 0.0 without.
        classes_: (k,) class names.
        n_iter_: steps of the solver, passes of ascent, or of all classes at once passes over the
            rows that still move; for more than two classes the most of newton and the mean of the
            others.
        solver_: the name of the solver.
        model_: a `jaxsvm.models.Classifier`, for `jaxsvm.models.save`. With another
            `intercept_scaling` than 1, a certificate of it counts b^2 in place of (b/s)^2.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, and for another penalty than "l2"
            with loss="hinge", dual=True, a solver of "l2" or multi_class="crammer_singer".

    Example:
        >>> from jaxsvm.estimators import LinearSVC
        >>> clf = LinearSVC(C=10.0, random_state=0).fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
        >>> clf.score([[0.5], [3.5]], [0, 1])
        1.0

    Reference: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, A dual coordinate
        descent method for large-scale linear SVM, ICML 2008.
    """

    penalty: str = field(default="l2", kw_only=False)
    loss: str | Loss = field(default="squared_hinge", kw_only=False)
    multi_class: str = "ovr"
    l1_ratio: float = 0.5

    def _loss(self, **numbers: object) -> Loss:
        if isinstance(self.penalty, int | float):
            raise ValueError(
                f"penalty must be 'l2', got {self.penalty!r}: write LinearSVC(C={self.penalty!r}), "
                "as penalty is the first parameter since version 0.4"
            )
        check_choice("penalty", self.penalty, ("l2", "l1", "elasticnet"))
        check_choice("multi_class", self.multi_class, ("ovr", "crammer_singer"))
        loss = loss_of(self.loss)
        others = self.multi_class == "ovr" and self.solver in ("auto", "proximal_newton")
        if self.penalty != "l2" and (loss.curvature is None or self.dual is True or not others):
            raise ValueError(
                f"penalty={self.penalty!r} takes loss='squared_hinge' or another with a continuous "
                "slope, dual='auto' or False, solver='auto' and multi_class='ovr'. Unsupported set "
                f"of arguments: penalty={self.penalty!r}, loss={self.loss!r}, dual={self.dual!r}"
            )
        return loss

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        """As `BaseClassifier._targets`; of more than two classes the solver has the weights."""
        targets, k = super()._targets(y, weight), len(self.classes_)
        if self.multi_class == "crammer_singer":
            return targets._replace(reduce=None)
        factors = targets.class_weight
        if k == 2 or (factors == 1).all():
            return targets
        reduce = lambda solver, classes: one_vs_weighted_rest(solver, factors)
        return targets._replace(factors=1.0, reduce=reduce)
