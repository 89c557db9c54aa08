"""Linear support vector machines for real targets."""

from __future__ import annotations

from typing import Any

from .. import losses
from ..checks import check_choice
from ..types import Loss
from .linear import LinearSVM
from .parameters import estimator
from .regressor import BaseRegressor

LOSSES = {
    "epsilon_insensitive": losses.eps_insensitive,
    "squared_epsilon_insensitive": losses.squared_eps_insensitive,
}


@estimator(
    "epsilon tol C loss fit_intercept intercept_scaling dual verbose random_state max_iter "
    "progress solver warm_start"
)
class LinearSVR(LinearSVM, BaseRegressor):
    """Minimise 1/2 (|w|^2 + (b/s)^2) + C sum_i weight_i loss(<w, x_i> + b - y_i).

    s is `intercept_scaling`. The class has the parameters and attributes of scikit-learn's
    `LinearSVR`, and solves its problem.

    Args:
        epsilon: half the width of the tube without loss, units of y, >= 0.
        tol: largest relative duality gap without a warning, > 0. The solvers stop at a share of it:
            1/100, or 1/10^5 of newton, and dual_descent at tol, for the squared loss at tol / 10.
            sdca stops once the largest change of a margin in a pass is at most tol, in units of y.
        loss: "epsilon_insensitive", or its square "squared_epsilon_insensitive".
        max_iter: steps of the solver at most, >= 1; of ascent passes over the rows.
        solver: "auto", "newton", "augmented_lagrangian", "interior_point",
            "dual_descent" or "sdca". "auto" takes
            the fastest by the loss and the shape of the rows.

    Attributes:
        coef_: (d,) weights; they may be set.
        intercept_: (1,) intercept; 0.0 without.
        n_iter_: steps of the solver, or passes of ascent.
        solver_: the name of the solver.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.

    Example:
        >>> from jaxsvm.estimators import LinearSVR
        >>> reg = LinearSVR(C=100.0, fit_intercept=False, random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0

    Reference: C.-H. Ho, C.-J. Lin, Large-scale linear support vector regression, JMLR 13, 2012.
    """

    _free_intercept = False
    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"
    intercept_scaling: float = 1.0

    def _loss(self, **numbers: Any) -> Loss:
        check_choice("loss", self.loss, tuple(LOSSES))
        return LOSSES[self.loss](numbers.get("epsilon", self.epsilon))
