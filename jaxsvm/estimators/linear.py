"""What the linear machines with scikit-learn's names share: the intercept, and its weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.linear_model._base import SparseCoefMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from .. import samplers
from ..checks import check_choice, check_positive
from ..data.from_scipy import is_mostly_zeros, is_sparse, sparsify
from ..loops.checks import whole_number
from ..machines import (
    MOST_COLUMNS,
    NAMES,
    ROUNDS,
    fastest_linear,
    linear_solver,
    system_for_grid,
)
from ..numerics import dot
from ..types import Loss
from .base import BaseSVM, Spec, Trained, steps_of_state
from .compact import inner_of
from .parameters import parameters
from .preprocess import on_cpu, validate

# residuals to stop at, as shares of `tol`: objectives are then below LIBLINEAR's at its `tol`, or
# close to it; a warning comes above `tol`
SHARES = {
    "newton": 1e-5,
    "proximal_newton": 10.0,  # a gap that falls as the violation does, and not as its square
    "augmented_lagrangian": 1e-2,
    "interior_point": 1e-2,
    "dual_descent": 0.5,
    "crammer_singer": 0.5,
    "sdca": 0.5,
}
MANY_ENTRIES = 2**15  # of sparse rows, from which on equal rows stay apart for dual_descent
TRIAL = 150  # steps of augmented_lagrangian after which interior_point begins anew
TRIAL_VISITS = 200  # of each row by dual_descent, likewise


@parameters
class LinearSVM(SparseCoefMixin, BaseSVM):
    """A linear machine by the fastest solver, with weights on the host that may be set."""

    _packs_rows = True
    dual: bool | str = "auto"
    tol: float | None = 1e-4
    C: float = 1.0
    fit_intercept: bool = True
    intercept_scaling: float = 1
    verbose: int = 0
    max_iter: int = 1000
    solver: str = "auto"

    def _loss(self) -> Loss:
        """The loss of the parameters."""
        raise NotImplementedError

    def _linear_spec(self, rows: Any, numbers: dict[str, Any]) -> Spec:
        """The fastest solver of these rows, or that of `solver`; another one if it takes long."""
        x, loss, is_auto = rows.x, self._loss(), self.solver == "auto"
        check_choice("dual", self.dual, ("auto", True, False))
        check_choice("solver", self.solver, ("auto", *NAMES))
        name = self._method(x, int((rows.group >= 0).sum()), loss)
        rounds = {"augmented_lagrangian": TRIAL, "dual_descent": TRIAL_VISITS}.get(name, 0)
        is_tried = rounds > 0 and x.shape[1] <= MOST_COLUMNS
        if not is_auto or numbers or not is_tried:
            name = "interior_point" if is_auto and name == "augmented_lagrangian" else name
            return self._spec_by(name, x, loss, numbers)
        trial = self._spec_by(name, x, loss, numbers, most=rounds)
        name = "interior_point" if loss.curvature is None else "newton"
        safe = self._spec_by(name, x, loss, numbers)
        return trial._replace(steps=1, instead=None if self.tol is None else safe)

    def _method(self, x: Any, rows: int, loss: Loss) -> str:
        """The solver's name, by `solver` or by what is fastest for so many rows, not merged."""
        if self.solver != "auto":
            return self.solver
        is_smooth = loss.curvature is not None
        if self.warm_start and not is_smooth:  # those that can begin at a solution
            return "sdca" if loss.quadratic is None else "dual_descent"
        if is_smooth and loss.quadratic is not None and rows < x.shape[1]:
            return "dual_descent"
        return fastest_linear(loss, rows, x.shape[1], not is_sparse(x))

    def _spec_by(
        self, name: str, x: Any, loss: Loss, numbers: dict[str, Any], most: int = ROUNDS
    ) -> Spec:
        """The run of the solver of that name, of at most so many steps of one update."""
        steps = min(whole_number("max_iter", self.max_iter, 1), most)
        system = system_for_grid(x.shape, is_sparse(x)) if numbers else None
        how: Any = {"loss": loss, "bias": self._bias(), "steps": steps, "system": system}
        solver = linear_solver(name, self._number("C", numbers), **how)
        return self._spec_of(name, solver, steps)

    def _spec_of(self, name: str, solver: object, steps: int) -> Spec:
        """The run of a solver whose updates make so many steps."""
        tol, accepted = None, -np.inf
        if self.tol is not None:
            check_positive(tol=self.tol)
            tol = self.tol * SHARES[name]
            if name == "dual_descent" and isinstance(getattr(self, "classes_", None), list):
                tol = self.tol  # of several labels at once the worst one's: most are far below
            elif name == "dual_descent" and self._loss().curvature is not None:
                tol *= 0.1  # where LIBLINEAR comes close to the optimum
            accepted = max(self.tol, 10 * tol) if name == "proximal_newton" else self.tol
        spec = Spec(solver, tol=tol, accepted=accepted, name=name)
        if name == "sdca":  # active_rows takes a tenth of the time of epochs(1), or less
            return spec._replace(passes=self.max_iter, sampler=samplers.active_rows())
        return spec._replace(steps=-(-self.max_iter // steps), iterations=steps_of_state)

    def _bias(self) -> str:
        """The kind of intercept of the solver; "none" where its column is among the features."""
        return "feature" if self.fit_intercept and self.intercept_scaling == 1 else "none"

    def _train(self, x: object, y: np.ndarray, weight: np.ndarray, **more: object) -> Trained:
        fitted = super()._train(x, y, weight, **more)
        if self._has_column():
            self.model_ = self._without_column(self.model_)
            self.fit_ = self.fit_._replace(model=self.model_)
        inner = inner_of(self.model_)
        coef = np.asarray(inner.w, np.float64)
        b = np.asarray(inner.b, np.float64)
        self._coef = np.atleast_2d(coef) if isinstance(self, ClassifierMixin) else coef
        self._intercept = np.atleast_1d(b).copy() if self.fit_intercept else 0.0
        return fitted

    def _has_column(self) -> bool:
        """Whether the constant is a column of the rows."""
        return self.fit_intercept and self._bias() == "none"

    def _prepared(self, x: Any, weight: np.ndarray) -> tuple[Any, bool]:
        """The rows, with a constant column for an intercept that is of no solver.

        Many rows for `dual_descent` are not merged, as it visits a heavy row only once a pass. On
        few rows weights are copies to the last digit.
        """
        if self.fit_intercept:
            check_positive(intercept_scaling=self.intercept_scaling)
        x = sparsify(x) if not is_sparse(x) and is_mostly_zeros(x) else x
        x = append_column(x, self.intercept_scaling) if self._has_column() else x
        if not is_sparse(x) or x.nnz <= MANY_ENTRIES:
            return x, True
        return x, self._method(x, int((weight > 0).sum()), self._loss()) != "dual_descent"

    def _without_column(self, model: Any) -> Any:
        """The model with the weight of the last column as its intercept."""
        if not hasattr(model, "w"):
            inner = self._without_column(model.inner)
            stacked = {"stacked": (True, True)} if hasattr(model, "stacked") else {}
            return dataclasses.replace(model, inner=inner, **stacked)
        w = np.asarray(model.w)
        b = (self.intercept_scaling * w[..., -1]).astype(w.dtype)
        return dataclasses.replace(model, w=w[..., :-1], b=b, bias="feature")

    @property
    def coef_(self) -> Any:
        """Weights, (1, d) or (k, d) of a classifier, (d,) of a regressor; they may be set."""
        return self._fitted("_coef")

    @coef_.setter
    def coef_(self, value: Any) -> None:
        self._coef = value

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts, (1,) or (k,); 0.0 without. They may be set."""
        return self._fitted("_intercept")

    @intercept_.setter
    def intercept_(self, value: Any) -> None:
        self._intercept = value

    def _fitted(self, name: str) -> np.ndarray:
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return vars(self)[name]

    def _scores(self, X: ArrayLike) -> Any:
        check_is_fitted(self, "model_")
        X = validate(self, X, reset=False)
        if isinstance(X, jax.Array):  # under array API dispatch
            weights, b = (jnp.asarray(a, X.dtype) for a in (self.coef_.T, self.intercept_))
            return dot(X, weights) + b
        return safe_sparse_dot(on_cpu(X), self.coef_.T, dense_output=True) + self.intercept_


def append_column(x: Any, value: float) -> Any:
    """The rows with a column of one value appended."""
    column = np.full((x.shape[0], 1), value, x.dtype)
    if not is_sparse(x):
        return np.hstack([x, column])
    import scipy.sparse

    return scipy.sparse.hstack([x, column], format="csr")
