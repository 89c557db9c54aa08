"""What the linear machines with scikit-learn's names share: the intercept, and its weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.linear_model._base import SparseCoefMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import samplers
from ..linear_choice import NAMES, ROUNDS, fastest_linear, linear_solver
from ..loops.checks import whole_number
from ..recipe import check_choice, check_positive
from ..types import Fit, Loss, Sampler
from .base import BaseSVM
from .compact import inner_of
from .preprocess import FLOATS, is_sparse, on_cpu

# residuals to stop at, as shares of `tol`: objectives are then at most LIBLINEAR's at its `tol`; a
# warning comes above `tol`
SHARES = {"newton": 1e-5, "augmented_lagrangian": 1e-2, "interior_point": 1e-2, "sdca": 0.5}
MANY = 5000  # padded rows from which on augmented_lagrangian is tried before interior_point
TRIAL = 150  # steps of augmented_lagrangian after which interior_point begins anew


class LinearSVM(SparseCoefMixin, BaseSVM):
    """A linear machine by the fastest solver, with weights on the host that may be set."""

    _length = "max_iter"
    C: float
    solver: str
    fit_intercept: bool
    intercept_scaling: float
    dual: bool | str
    tol: float | None
    max_iter: int
    verbose: int
    progress: bool
    _coef: Any
    _intercept: Any
    _is_hard: bool = False  # whether augmented_lagrangian has not met the tolerance

    def _columns(self) -> str:
        return "padded"

    def _run_options(self, n: int) -> dict[str, Any]:
        check_positive(**{} if self.tol is None else {"tol": self.tol})
        rows = self.solver_ == "sdca"
        return {
            "steps": None
            if rows
            else 1
            if self._is_trial()
            else -(-self.max_iter // self._steps()),
            "passes": self.max_iter if rows else None,
            "tol": None if self.tol is None else self.tol * SHARES[self.solver_],
            "accepted": -np.inf if self.tol is None else self.tol,
            # a tenth of the time of epochs(1), or less
            "sampler": samplers.active_rows() if rows else None,
            "progress": self.progress or bool(self.verbose),
        }

    def _steps(self) -> int:
        """Steps of one update of a solver that reads all rows."""
        most = TRIAL if self._is_trial() else ROUNDS
        return min(whole_number("max_iter", self.max_iter, 1), most)

    def _linear_solver(self, x: Any, loss: Loss) -> Any:
        """The solver of these rows, by `solver` or the fastest; its name becomes `solver_`."""
        self.solver_ = self._fastest(x, loss)
        is_tried = self.solver == "auto" and x.shape[0] >= MANY and not self._is_hard
        if is_tried and self.solver_ == "interior_point":
            self.solver_ = "augmented_lagrangian"
        return self._solver_of(self.C, loss)

    def _is_trial(self) -> bool:
        """Whether another solver follows where this one does not meet the tolerance."""
        return self.solver == "auto" and self.solver_ == "augmented_lagrangian"

    def _fastest(self, x: Any, loss: Loss) -> str:
        """The name of the solver: that of `solver`, or the fastest for rows of this shape."""
        check_choice("solver", self.solver, ("auto", *NAMES))
        auto = self.solver == "auto"
        return fastest_linear(loss, x.shape[1], is_sparse(x)) if auto else self.solver

    def _solver_of(self, C: Any, loss: Loss, system: str | None = None) -> Any:
        """The solver `solver_` for one value of C."""
        return linear_solver(
            self.solver_, C, loss=loss, bias=self._bias(), steps=self._steps(), system=system
        )

    def _iterations(self, run: Fit, draws: Sampler, n: int, n_rows: int) -> int:
        """Passes of ascent, or steps of the other solvers: the most of a class, or the mean."""
        if self.solver_ == "sdca":
            return super()._iterations(run, draws, n, n_rows)
        if self.solver_ == "newton":
            return int(np.max(run.state.solver.steps))
        models = np.atleast_2d(inner_of(run.model).w).shape[0]
        return run.evals // (n * models)

    def _check_options(self) -> None:
        super()._check_options()
        check_choice("dual", self.dual, ("auto", True, False))
        if self.fit_intercept:
            check_positive(intercept_scaling=self.intercept_scaling)

    def _bias(self) -> str:
        """The kind of intercept of the solver; "none" where its column is among the features."""
        return "feature" if self.fit_intercept and self.intercept_scaling == 1 else "none"

    def _run(self, x: Any, target: np.ndarray, weight: np.ndarray, **options: Any) -> np.ndarray:
        self._check_options()
        x = self._with_constant(x)
        self._is_hard = False
        group = super()._run(x, target, weight, **options)
        if self._is_trial() and not self.fit_.converged and self.tol is not None:
            self._is_hard = True
            group = super()._run(x, target, weight, **options)
        if self._has_column():
            self.model_ = self._without_column(self.model_)
            self.fit_ = self.fit_._replace(model=self.model_)
        inner = inner_of(self.model_)
        coef = np.asarray(inner.w, np.float64)
        b = np.asarray(inner.b, np.float64)
        self._coef = np.atleast_2d(coef) if isinstance(self, ClassifierMixin) else coef
        self._intercept = np.atleast_1d(b).copy() if self.fit_intercept else 0.0
        return group

    def _warn_unless_accepted(self, run: Fit, tol: float | None, accepted: float = -np.inf) -> None:
        if not self._is_trial():
            super()._warn_unless_accepted(run, tol, accepted)

    def _has_column(self) -> bool:
        """Whether the constant is a column of the rows."""
        return self.fit_intercept and self._bias() == "none"

    def _with_constant(self, x: Any) -> Any:
        """The rows, with a constant column where the intercept is not that of the solver."""
        return append_column(x, self.intercept_scaling) if self._has_column() else x

    def _without_column(self, model: Any) -> Any:
        """The model with the weight of the last column as its intercept."""
        if not hasattr(model, "w"):
            return dataclasses.replace(model, inner=self._without_column(model.inner))
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
    def intercept_(self) -> Any:
        """Intercepts, (1,) or (k,); 0.0 without. They may be set."""
        return self._fitted("_intercept")

    @intercept_.setter
    def intercept_(self, value: Any) -> None:
        self._intercept = value

    def _fitted(self, name: str) -> Any:
        if name not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return vars(self)[name]

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        return safe_sparse_dot(on_cpu(X), self.coef_.T, dense_output=True) + self.intercept_


def append_column(x: Any, value: float) -> Any:
    """The rows with a column of one value appended."""
    column = np.full((x.shape[0], 1), value, x.dtype)
    if not is_sparse(x):
        return np.hstack([x, column])
    import scipy.sparse

    return scipy.sparse.hstack([x, column], format="csr")
