"""What the linear machines with scikit-learn's names share: the intercept, and its weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.linear_model._base import SparseCoefMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from .. import samplers
from ..checks import check_choice, check_positive, is_sparse
from ..data.from_scipy import DENSITY, FEW, is_mostly_zeros, sparsify
from ..loops.checks import whole_number
from ..machines import (
    MOST_DENSE,
    NAMES,
    ROUNDS,
    by_C,
    fastest_linear,
    linear_solver,
    system_for_grid,
)
from ..solvers import crammer_singer, dual_descent, proximal_newton
from ..types import Loss
from .base import BaseSVM, Spec, Trained, steps_of_state
from .compact import inner_of
from .parameters import mean_sqnorm, parameters
from .preprocess import validate

# residuals to stop at, as shares of `tol`: objectives are then below LIBLINEAR's at its `tol`, or
# close to it; a warning comes above `tol`
SHARES = {
    "newton": 1e-5,
    "proximal_newton": 10.0,  # a gap that falls as the violation does, and not as its square
    "augmented_lagrangian": 1e-2,
    "interior_point": 1e-2,
}
SPARSE = 0.35  # as DENSITY, of losses without curvature
MANY_ENTRIES = 2**11  # of sparse rows, from which on equal rows stay apart for dual_descent


@parameters
class LinearSVM(SparseCoefMixin, BaseSVM):
    """A linear machine by the fastest solver, with weights on the host that may be set.

    Args:
        dual: accepted without an effect on the solution; see `solver`.
        C: weight of the loss of each row, > 0.
        fit_intercept: whether there is an intercept, regularised with the weights.
        intercept_scaling: value s of the constant feature whose weight is b/s, > 0; a larger one
            regularises the intercept less.
        random_state: int, `RandomState` or None; the order of rows.
        warm_start: whether `fit` begins at the solution of the fit before, if that had
            warm_start=True, too: by newton and proximal_newton at its weights, by dual_descent on
            the same rows only, else anew. For losses without a continuous slope "auto" then takes
            dual_descent. Other classes or columns are refused, and so are other solvers.
    """

    _packs_rows = True
    _least_rows = 1024
    penalty = "l2"
    multi_class = "ovr"
    dual: bool | str = "auto"
    tol: float | None = 1e-4
    C: float = 1.0
    fit_intercept: bool = True
    intercept_scaling: float = 1
    verbose: int = 0
    max_iter: int = 1000
    solver: str = "auto"

    def _spec(self, rows: Any, previous: object = None, **numbers: Any) -> Spec:
        loss = self._loss(**numbers)
        check_choice("dual", self.dual, ("auto", True, False))
        steps = min(whole_number("max_iter", self.max_iter, 1), ROUNDS)
        name = self._method(rows.x, rows.weight, loss)
        if numbers and self.solver == "auto" and name == "augmented_lagrangian":
            name = "interior_point"  # some C of a grid are large
        C, how = numbers.get("C", self.C), dict[str, Any](rounds=float(steps))
        how["bias"] = "feature" if self.fit_intercept else "none"
        share: Any = 0.0 if self.penalty == "l2" else 1.0
        share = numbers.get("l1_ratio", self.l1_ratio) if self.penalty == "elasticnet" else share
        if self._unit != 1:  # w and b of rows divided by it are times it
            penalties = share / self._unit, (1 - share) / self._unit**2
            C, share = C / sum(penalties), penalties[0] / sum(penalties)
        if name == "proximal_newton":
            solver: Any = by_C(C, proximal_newton(1.0, l1_ratio=share, loss=loss, **how))
        elif self.multi_class == "ovr":
            system = system_for_grid(rows.x.shape, is_sparse(rows.x)) if numbers else None
            solver = linear_solver(name, C, loss=loss, bias=how["bias"], steps=steps, system=system)
        elif name == "dual_descent":  # two classes: the hinge, with w = w_2 - w_1 and twice C
            solver = dual_descent(2 * C, **how)
        else:
            solver = crammer_singer(C, classes=len(self.classes_), **how)
        tol, accepted = None, -np.inf
        if self.tol is not None:
            check_positive(tol=self.tol)
            tol = self.tol * SHARES.get(name, 1.0)
            if name == "dual_descent" and solver.loss.curvature is not None:
                tol *= 0.1  # where LIBLINEAR comes close to the optimum
            accepted = max(self.tol, 10 * tol) if name == "proximal_newton" else self.tol
        spec = Spec(solver, tol=tol, accepted=accepted, name=name)
        if name == "sdca":  # active_rows takes a tenth of the time of epochs(1), or less
            return spec._replace(passes=self.max_iter, sampler=samplers.active_rows())
        return spec._replace(steps=-(-self.max_iter // steps), iterations=steps_of_state)

    def _method(self, x: Any, weight: np.ndarray, loss: Loss) -> str:
        """The solver's name, by the parameters or by what is fastest for the rows."""
        if self.penalty != "l2":
            return "proximal_newton"
        if self.multi_class == "crammer_singer":
            return "dual_descent" if len(self.classes_) == 2 else "crammer_singer"
        check_choice("solver", self.solver, ("auto", *NAMES))
        if self.solver != "auto":
            return self.solver
        if self.warm_start and loss.curvature is None:  # that which can begin at a solution
            return "dual_descent"
        check_positive(C=self.C)
        n, d = int(np.count_nonzero(weight)), x.shape[1]  # padding follows the rows
        load, m = self.C * self._unit**2, x.indptr[n] / n if is_sparse(x) else d
        if loss.curvature is None:
            load *= mean_sqnorm(x, weight) * weight.sum() / n
            load *= (10 + m) * (1 + 4 / max(m, 1)) / (d + d**3 / (16 * n))
        return fastest_linear(loss, n, d, is_sparse(x), load=load)

    @property
    def _unit(self) -> float:
        """By which rows are divided, as solvers have an intercept of scale 1."""
        if self.fit_intercept:
            check_positive(intercept_scaling=self.intercept_scaling)
        return self.intercept_scaling if self.fit_intercept else 1

    def _train(self, x: object, y: np.ndarray, weight: np.ndarray, **more: object) -> Trained:
        fitted = super()._train(x, y, weight, **more)
        inner = inner_of(self.model_)
        coef, b = (np.asarray(a, np.float64) for a in (inner.w, inner.b))
        self.coef_ = np.atleast_2d(coef) if isinstance(self, ClassifierMixin) else coef
        self.intercept_ = np.atleast_1d(b).copy() if self.fit_intercept else 0.0
        return fitted

    def _prepared(self, x: Any, weight: np.ndarray) -> tuple[Any, bool]:
        """The rows in their unit, and whether equal ones may be merged.

        Many rows for `dual_descent` are not merged, as it visits a heavy row only once a pass. On
        few rows weights are copies to the last digit.
        """
        loss, size = self._loss(), math.prod(x.shape)
        most = SPARSE if loss.curvature is None else DENSITY
        if not is_sparse(x):
            x = sparsify(x) if is_mostly_zeros(x, most) else x
        elif size <= MOST_DENSE and (x.shape[1] <= FEW or x.nnz >= SPARSE * size):
            x = x.toarray()
        x = x if self._unit == 1 else x / self._unit
        is_small = not is_sparse(x) or x.nnz <= MANY_ENTRIES
        return x, is_small or self._method(x, weight, loss) != "dual_descent"

    def _scores(self, X: ArrayLike) -> Any:
        check_is_fitted(self, "model_")
        X = validate(self, X, reset=False)
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
