"""Linear support vector machines for real targets."""

from __future__ import annotations

from .. import losses
from ..checks import check_choice
from ..types import Loss
from .base import Spec
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
            1/100, or 1/10^5 of newton. Ascent stops once the largest change of a margin in a pass
            is at most tol / 2, in units of y.
        C: weight of the loss of each row, > 0.
        loss: "epsilon_insensitive", or its square "squared_epsilon_insensitive".
        fit_intercept: whether there is an intercept, regularised with the weights.
        intercept_scaling: value s of the constant feature whose weight is b/s, > 0; a larger one
            regularises the intercept less.
        dual: accepted without an effect on the solution; see `solver`.
        verbose: whether there is a bar on the standard error stream, as by `progress`.
        random_state: int, `RandomState` or None; the order of rows.
        max_iter: steps of the solver at most, >= 1; of ascent passes over the rows.
        progress: whether there is a bar on the standard error stream.
        solver: "auto", "newton", "augmented_lagrangian", "interior_point",
            "dual_descent" or "sdca". "auto" takes
            the fastest by the loss and the shape of the rows.
        warm_start: whether `fit` begins at the solution of the fit before, if that had
            warm_start=True, too: by newton and proximal_newton at its weights, by other solvers on
            the same rows only, else anew. For losses without a continuous slope "auto" then takes
            dual_descent, or sdca where loops are slow. Other classes or columns are refused, and so
            are interior_point and augmented_lagrangian.

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
        >>> reg = LinearSVR(C=100.0, fit_intercept=False, random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0

    Reference: C.-H. Ho, C.-J. Lin, Large-scale linear support vector regression, JMLR 13, 2012.
    """

    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"
    intercept_scaling: float = 1.0

    def _spec(self, rows: object, previous: object = None, **numbers: object) -> Spec:
        return self._linear_spec(rows, numbers)

    def _loss(self) -> Loss:
        check_choice("loss", self.loss, tuple(LOSSES))
        return LOSSES[self.loss](self.epsilon)

    def _has_free_intercept(self, columns: int) -> bool:
        return False
