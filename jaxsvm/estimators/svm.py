"""Support vector machines whose solver is a parameter."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if

from .. import losses
from .._node import nodes_in
from ..solvers import sdca
from ..types import Solver
from .base import ModelAttributes, Spec, can_partial_fit
from .classifier import PartialFitMixin
from .parameters import PerRow, estimator, parameters, spaces_of
from .preprocess import equal_trees
from .regressor import BaseRegressor
from .starts import streams


@parameters
class SolverParameterMixin(ModelAttributes):
    """A machine whose solver is a parameter.

    Args:
        tol: stop once the residual of the solver is at most this; "auto": 1e-3 if it measures the
            training set; None: none.
        sampler: chooses the rows of each step, such as `jaxsvm.samplers.epochs(64)`; None: that of
            the solver.
        warm_start: whether `fit` begins at the solution of the fit before, if that had
            warm_start=True, too. Solvers that look at single rows go on as by `partial_fit`, newton
            begins at the weights, and dual_descent at the coefficients, on the same rows only, else
            anew. Other classes or columns are refused, and so are solvers that
            cannot.
    """

    solver: Any = field(default=None, kw_only=False)
    steps: int | None = None
    tol: float | str | None = "auto"
    sampler: Any = None

    def _spec(self, rows: object, previous: object = None) -> Spec:
        loss: dict[str, Any] = {}
        if isinstance(self, RegressorMixin):
            loss = {"loss": losses.eps_insensitive(0.1)}
        solver = sdca(1.0, bias="feature", **loss) if self.solver is None else self.solver
        if not isinstance(solver, Solver):
            raise TypeError(
                "solver must be a solver such as jaxsvm.pegasos(1e-3), got "
                f"{solver!r}: call the factory first"
            )
        if previous is not None and not equal_trees(spaces_of(solver), spaces_of(previous)):
            raise ValueError(
                f"solver is {previous!r} since the first rows, got {solver!r} with another kernel "
                "or feature map: call fit for a new model, or set it back for partial_fit"
            )
        options: dict[str, Any] = {"steps": self.steps, "tol": self.tol, "sampler": self.sampler}
        return Spec(solver, length="steps", **options)

    @property
    def _no_partial_fit(self) -> str:
        """Why there is no `partial_fit`."""
        problem = "partial_fit takes solvers that look at single rows, such as jaxsvm.pegasos(1e-3)"
        return "" if streams(self._spec(None).solver) else problem


@estimator(
    "solver multiclass steps tol sampler class_weight random_state progress probability warm_start"
)
class SVMClassifier(SolverParameterMixin, PartialFitMixin):
    """A classifier trained by any solver.

    More than two classes are reduced to one-vs-rest or one-vs-one.

    Args:
        solver: such as `jaxsvm.pegasos(1e-3)` or `jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(2.0))`; None:
            `jaxsvm.sdca(1.0, bias="feature")`, a linear SVM with C = 1 and a regularised intercept.
            Solvers that differ in numbers alone share compiled programs, so that a grid may list
            them.
        multiclass: for more than two classes, "ovr", one model for each class against the rest, or
            "ovo", votes of one model for each pair of classes.
        steps: updates, >= 1; None: ten passes, or with a tolerance at most 1,000 (ten updates of
            `decomposition`, each of which iterates to the tolerance); one pass for `partial_fit`.
        class_weight: dict from class names to factors on their rows, "balanced", or None.

    Attributes:
        classes_: (k,) class names.
        model_: a `jaxsvm.models.Classifier`, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit`: `fit_.status` is a sentence on how the run ended, `fit_.info` the
            curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`.
        n_iter_: passes made; or updates, if each reads all rows.
        coef_, intercept_: of a linear model.
        support_, dual_coef_, intercept_: of an expansion.

    Example:
        >>> import jaxsvm
        >>> from jaxsvm.estimators import SVMClassifier
        >>> clf = SVMClassifier(jaxsvm.sdca(10.0, bias="feature"), random_state=0)
        >>> clf.fit([[0.0], [1.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]).predict([[0.5],
        ...     [3.5]]).tolist()
        ['no', 'yes']
    """

    _structure = ("multiclass",)
    multiclass: str = "ovr"


@estimator("solver steps tol sampler random_state progress warm_start")
class SVMRegressor(SolverParameterMixin, BaseRegressor):
    """A regressor trained by any solver with a loss for real targets.

    Args:
        solver: such as `jaxsvm.sdca(1.0, loss=jaxsvm.losses.eps_insensitive(0.1))`; None: this,
            with a regularised intercept.
        steps: updates, >= 1; None: ten passes, or with a tolerance at most 1,000; one pass for
            `partial_fit`.

    Attributes:
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        n_iter_: passes made; or updates, if each reads all rows.
        coef_, intercept_: of a linear model.
        support_, dual_coef_, intercept_: of an expansion.

    Example:
        >>> import jaxsvm
        >>> from jaxsvm.estimators import SVMRegressor
        >>> reg = SVMRegressor(jaxsvm.sdca(100.0, loss=jaxsvm.losses.eps_insensitive(0.0)),
        ...     random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0
    """

    @property
    def _free_intercept(self) -> bool:
        """Whether the intercept of the solver's model is not regularised."""
        return any(
            getattr(node, "bias", "") == "free" for node in nodes_in(self._spec(None).solver)
        )

    @available_if(can_partial_fit)
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Continue training on more rows, or start: `steps` updates on them, or one pass."""
        first = not hasattr(self, "fit_")
        return self._fit(X, y, sample_weight, reset=first, **self._partial_options(first))
