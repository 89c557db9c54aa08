"""Linear machines by stochastic subgradients, with parameters of `SGDClassifier`."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from sklearn.base import BaseEstimator

from .. import losses, samplers
from ..checks import check_choice, check_positive
from ..solvers import pegasos
from ..types import Array, Loss, Solver
from ..wrappers import averaged
from .base import ModelAttributes, Spec
from .classifier import PartialFitMixin
from .parameters import estimator, mean_sqnorm, parameters

LOSSES = ("hinge", "squared_hinge", "log_loss")


def growing(t: Array) -> Array:
    """The weights 1, 2, ... of the iterates in their mean."""
    return t + 1


def by_passes(machine: BaseEstimator, solver: Solver) -> Spec:
    """`max_iter` passes over the rows by a solver, or by the mean of its iterates."""
    choose = samplers.epochs if machine.shuffle else samplers.uniform
    solver = averaged(solver, weights=growing) if machine.average else solver
    return Spec(solver, passes=machine.max_iter, sampler=choose(machine.batch_size))


@parameters
class PassParameters:
    """Parameters of machines that make a number of passes.

    Args:
        shuffle: whether each pass has the rows in a random order, else rows are drawn one by one
            with repetition.
        random_state: int, `RandomState` or None; the order of rows.
        average: whether the model is the mean of the iterates with weights 1, 2, ..., else the last
            one.
        batch_size: rows of a step, >= 1.
    """

    max_iter: int = 20
    shuffle: bool = True
    verbose: int = 0
    average: bool = True
    batch_size: int = 1


@estimator(
    "loss penalty alpha fit_intercept max_iter shuffle verbose n_jobs random_state class_weight "
    "average batch_size progress probability warm_start"
)
class Pegasos(PassParameters, PartialFitMixin, ModelAttributes):
    """alpha/2 |w|^2 + mean_i weight_i loss(y_i (<w, x_i> + b)) by the steps of Pegasos.

    It stands in for scikit-learn's `SGDClassifier`: the same parameters, as far as the method has
    them. Steps are 1/(alpha (t + t0)), t0 = mean |x|^2 / alpha, on batches of rows. There is no
    stopping criterion: `fit` makes `max_iter` passes, `partial_fit` one.

    Args:
        loss: "hinge", "squared_hinge", "log_loss", or a loss of jaxsvm.
        penalty: "l2".
        alpha: lambda of the objective, > 0; C = 1/(alpha n).
        fit_intercept: whether there is an intercept, regularised with the weights.
        max_iter: passes over the rows, >= 1. Equal rows of a class are one row of a larger weight;
            up to 10,000 rows of a pass count them one by one, as copies of a row of integer weight.
        n_jobs: accepted without an effect: all classes are trained in one program.
        class_weight: dict from class names to factors, "balanced", or None. For more than two
            classes it weighs rows in all k problems, in `SGDClassifier` those of the class alone.
        warm_start: whether `fit` goes on from the fit before, if that had warm_start=True, too, as
            `partial_fit` does: with its weights, their mean and the counter of steps. Other classes
            or columns are refused.

    Attributes:
        coef_: (1, d) or (k, d) weights.
        intercept_: (1,) or (k,) intercepts.
        classes_: (k,) class names.
        n_iter_: passes made.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.

    Example:
        >>> from jaxsvm.estimators import Pegasos
        >>> X, y = [[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1]
        >>> clf = Pegasos(alpha=1e-2, random_state=0).fit(X, y)
        >>> clf.predict([[0.5], [3.5]]).tolist()
        [0, 1]

    Reference: S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter, Pegasos: primal estimated
        sub-gradient solver for SVM, Mathematical Programming 127, 2011.
    """

    _structure = ("fit_intercept", "average")
    loss: str | Loss = field(default="hinge", kw_only=False)
    penalty: str = "l2"
    alpha: float = 1e-4
    fit_intercept: bool = True
    n_jobs: int | None = None

    def _spec(self, rows: Any, previous: object = None) -> Spec:
        if self.penalty != "l2":
            raise ValueError(
                f"penalty must be 'l2', got {self.penalty!r}: sklearn.linear_model.SGDClassifier "
                "has others"
            )
        if isinstance(self.loss, str):
            check_choice("loss", self.loss, LOSSES)
        loss = losses.by_name(self.loss) if isinstance(self.loss, str) else self.loss
        check_positive(alpha=self.alpha)
        bias: Any = "feature" if self.fit_intercept else "none"
        if previous is None:  # steps continue from the mean norm of the first rows
            self._mean_sqnorm = mean_sqnorm(rows.x, rows.copies) + self.fit_intercept
        offset = self._mean_sqnorm / self.alpha
        solver = pegasos(self.alpha, loss=loss, bias=bias, offset=offset)
        return by_passes(self, solver)
