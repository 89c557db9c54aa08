"""Support vector machines whose solver is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if

from .. import kernels, losses
from ..models import Mapped, check_values
from ..recipe import Recipe
from ..solvers import decomposition, lasvm, sdca, smo
from ..types import Batch, Solver
from .base import BaseSVM, streams
from .classifier import PartialFitMixin
from .parameters import is_matrix, kernel_of, may_widen, spaces_of, takes_matrix
from .preprocess import centre_of, equal_trees

EXACT = {"decomposition": decomposition, "smo": smo, "lasvm": lasvm}


class SolverParameterMixin:
    """Makes the solver from the parameters, by value or by name."""

    _length = "steps"
    solver: Any
    C: float | None
    kernel: str | Callable | None
    gamma: float | str | None
    steps: int | None
    tol: float | str | None
    sampler: Any
    progress: bool
    _default: Callable[[], Any]

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        if isinstance(self.solver, str):
            return self._by_name(x, copies)
        conflicting = [
            name
            for name in ("C", "kernel", "gamma", "epsilon")
            if getattr(self, name, None) is not None
        ]
        if conflicting:
            raise ValueError(
                f"{conflicting[0]} goes with a solver by name, such as solver='decomposition': "
                "this one has its own"
            )
        solver = self._default() if self.solver is None else self.solver
        if not (isinstance(solver, Recipe | Solver) and hasattr(solver, "update")):
            raise TypeError(
                "solver must be a solver such as jaxsvm.pegasos(1e-3), got "
                f"{solver!r}: call the factory first"
            )
        if previous is not None and not equal_trees(spaces_of(solver), spaces_of(previous)):
            raise ValueError(
                f"solver is {previous!r} since the first rows, got {solver!r} with another kernel "
                "or feature map: call fit for a new model, or set it back for partial_fit"
            )
        return solver

    def _by_name(self, x: Any, copies: Any) -> Any:
        """The exact solver of that name; with x=None its kernel is a placeholder."""
        if self.solver not in EXACT:
            shown = ", ".join(map(repr, EXACT))
            raise ValueError(
                f"solver must be {shown} or a solver such as jaxsvm.pegasos(1e-3), "
                f"got {self.solver!r}"
            )
        kernel, gamma = (
            "rbf" if self.kernel is None else self.kernel,
            "scale" if self.gamma is None else self.gamma,
        )
        kernel = kernels.linear() if x is None else kernel_of(kernel, gamma, 3, 0.0, x, copies)
        return EXACT[self.solver](1.0 if self.C is None else self.C, kernel, **self._more())

    def _more(self) -> dict[str, Any]:
        """Arguments of a solver by name besides C and the kernel."""
        return {}

    def _run_options(self, n: int) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "passes": None,
            "tol": self.tol,
            "sampler": self.sampler,
            "progress": self.progress,
        }

    def _columns(self) -> str:
        if is_matrix(self.kernel) or takes_matrix(self.solver):
            return "rows"
        by_name = isinstance(self.solver, str) and (self.kernel is None or may_widen(self.kernel))
        return "padded" if self.solver is None or by_name else "fixed"

    def _can_partial_fit(self) -> bool:
        if not streams(self._make_solver(None, None, None)):
            raise AttributeError(
                "partial_fit takes solvers that look at single rows, such as jaxsvm.pegasos(1e-3)"
            )
        return True


class SVMClassifier(SolverParameterMixin, PartialFitMixin):
    """A classifier trained by any solver.

    More than two classes are reduced to one-vs-rest or one-vs-one.

    Args:
        solver: such as `jaxsvm.pegasos(1e-3)` or `jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(2.0))`; None:
            `jaxsvm.sdca(1.0, bias="feature")`, a linear SVM with C = 1 and a regularised intercept.
            Solvers that differ in numbers alone share compiled programs, so that a grid may list
            them. Or the name of an exact solver of a kernel SVM with a free intercept, made with
            `C`, `kernel` and `gamma`: "decomposition", "smo" or "lasvm" (exact on the rows that it
            keeps after a pass).
        C: of a solver by name, weight of the loss of each row, > 0; None: 1.
        kernel: of a solver by name, as `SVC`; None: "rbf".
        gamma: of a solver by name, as `SVC`; None: "scale".
        multiclass: for more than two classes, "ovr", one model for each class against the rest, or
            "ovo", votes of one model for each pair of classes.
        steps: updates, >= 1; None: ten passes, or with a tolerance at most 1,000 (ten updates of
            "decomposition", each of which iterates to the tolerance); one pass for `partial_fit`.
        tol: stop once the residual of the solver is at most this; "auto": 1e-3 if it measures the
            training set; None: none.
        sampler: chooses the rows of each step, such as `jaxsvm.samplers.epochs(64)`; None: that of
            the solver.
        class_weight: dict from class names to factors on their rows, "balanced", or None.
        random_state: int, `RandomState` or None; the seed of the key.
        progress: a bar on the standard error stream.

    Attributes:
        classes_: (k,) class names.
        model_: a `jaxsvm.models.Classifier`, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit`: `fit_.status` is a sentence on how the run ended, `fit_.info` the
            curve.
        n_iter_: passes made; or updates, if each reads all rows.
        coef_, intercept_: of a linear model.
        support_, dual_coef_, intercept_: of an expansion.

    Example:
        >>> import jaxsvm
        >>> clf = SVMClassifier(jaxsvm.sdca(10.0, bias="feature"), random_state=0)
        >>> clf.fit([[0.0], [1.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]).predict([[0.5],
        ...     [3.5]]).tolist()
        ['no', 'yes']
    """

    _structure = ("multiclass",)

    def __init__(
        self,
        solver: Any = None,
        *,
        C: float | None = None,
        kernel: str | Callable | None = None,
        gamma: float | str | None = None,
        multiclass: str = "ovr",
        steps: int | None = None,
        tol: float | str | None = "auto",
        sampler: Any = None,
        class_weight: dict | str | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.solver = solver
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.multiclass = multiclass
        self.steps = steps
        self.tol = tol
        self.sampler = sampler
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _default(self) -> Any:
        return sdca(1.0, bias="feature")


class SVMRegressor(SolverParameterMixin, RegressorMixin, BaseSVM):
    """A regressor trained by any solver with a loss for real targets.

    Args:
        solver: such as `jaxsvm.sdca(1.0, loss=jaxsvm.losses.eps_insensitive(0.1))`; None: this,
            with a regularised intercept. Or "decomposition", "smo" or "lasvm", as `SVMClassifier`:
            the problem of scikit-learn's `SVR`.
        C: as `SVMClassifier`.
        kernel: as `SVMClassifier`.
        gamma: as `SVMClassifier`.
        epsilon: of a solver by name, >= 0: insensitivity of the loss max(0, |y - f(x)| - epsilon);
            None: 0.1.
        steps: as `SVMClassifier`.
        tol: as `SVMClassifier`.
        sampler: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        model_: the model of jaxsvm.
        fit_, n_iter_, coef_, intercept_, support_, dual_coef_: as `SVMClassifier`.

    Example:
        >>> import jaxsvm
        >>> reg = SVMRegressor(jaxsvm.sdca(100.0, loss=jaxsvm.losses.eps_insensitive(0.0)),
        ...     random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0
    """

    def __init__(
        self,
        solver: Any = None,
        *,
        C: float | None = None,
        kernel: str | Callable | None = None,
        gamma: float | str | None = None,
        epsilon: float | None = None,
        steps: int | None = None,
        tol: float | str | None = "auto",
        sampler: Any = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.solver = solver
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.epsilon = epsilon
        self.steps = steps
        self.tol = tol
        self.sampler = sampler
        self.random_state = random_state
        self.progress = progress

    def _default(self) -> Any:
        return sdca(1.0, loss=losses.eps_insensitive(0.1), bias="feature")

    def _more(self) -> dict[str, Any]:
        return {"loss": losses.eps_insensitive(0.1 if self.epsilon is None else self.epsilon)}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train a new model on (n, d) rows, (n,) targets and (n,) weights."""
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            y = y.astype(np.float64)
            self._set_centre(x, y, weight)
            self._run(x, y, weight)
        return self

    def _set_centre(self, x: Any, y: np.ndarray, weight: np.ndarray) -> None:
        """Centre the targets where a free intercept makes the problem the same."""
        centre = centre_of(y, weight)
        self._centre = centre if centre and self._has_free_intercept(x.shape[1]) else 0.0

    def _has_free_intercept(self, columns: int) -> bool:
        solver = self._make_solver(None, None, None)
        n = columns if self._columns() == "rows" else 8
        shape: Any = lambda *size, dtype=np.float32: jax.ShapeDtypeStruct(size, dtype)
        data = Batch(shape(n, columns), shape(n), shape(n, dtype=np.int32), shape(n))
        model = jax.eval_shape(
            lambda key, data: solver.model(solver.init(key, data), data), jax.random.key(0), data
        )
        while isinstance(model, Mapped):
            model = model.inner
        return getattr(model, "bias", None) == "free"

    @available_if(SolverParameterMixin._can_partial_fit)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Continue training on more rows, or start: `steps` updates on them, or one pass."""
        first = not hasattr(self, "fit_")
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=first)
            y = y.astype(np.float64)
            if first:
                self._set_centre(x, y, weight)
            self._run(x, y, weight, **self._partial_options(first))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, (n, d) -> (n,)."""
        return check_values(self._scores(X).ravel())
