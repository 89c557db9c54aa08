"""What the kernel machines with scikit-learn's names share: kernels, options, dual attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_consistent_length

from .. import kernels
from ..checks import is_array, is_sparse
from ..kernels import Kernel
from ..loops.checks import whole_number
from ..loops.fitting import MANY_ROWS, most_updates
from ..models import support_index
from ..types import Solver
from .base import BaseSVM, Rows, Spec, Trained
from .compact import inner_of, on_rows
from .functions import as_numbers, is_function, kernel_matrix
from .pairs import pair_coef, pairs_by_opponent
from .parameters import KernelParameters, PerRow, gamma_of, is_matrix, kernel_of, parameters
from .preprocess import validate

# blocks of rows at most where max_iter is -1
MAX_BLOCKS = 2000
# C for C = inf: hard margins, as far as float32 goes
LARGEST_C = 1e10


@parameters
class KernelSVM(KernelParameters, BaseSVM):
    """A kernel machine with the parameters and attributes of scikit-learn's.

    Args:
        shrinking: accepted without an effect: working sets are chosen from all rows.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0, in
            units of y.
        cache_size: accepted without an effect: the kernel cache takes 512 MiB at most.
        max_iter: rounds of the solver at most, >= 1, not steps on pairs as in LIBSVM; -1: 2,000.
    """

    shrinking: bool = True
    tol: float | None = 1e-3
    cache_size: float = 200
    max_iter: int = -1
    _gamma = None

    def _rounds(self) -> int:
        """Rounds of the solver at most."""
        return MAX_BLOCKS if self.max_iter == -1 else whole_number("max_iter", self.max_iter, 1)

    def _exact(self, solver: Solver, rows: Any) -> Spec:
        """The run of an exact solver: one update, which may end before the tolerance of many rows.

        Then it goes on, unless `max_iter` bounds it.
        """
        n = rows.n_rows
        steps = 1 if n < MANY_ROWS or self.max_iter != -1 else most_updates(n)
        return Spec(solver, steps=steps, tol=self.tol)

    def _kernel(self, rows: Any, gamma: float | None = None) -> Kernel:
        """The kernel.

        Without a number, gamma is that of the first training rows that this is called with.
        """
        if self._kernel_rows is not None:
            return kernels.precomputed()
        if gamma is None and isinstance(self.kernel, str) and self._gamma is None:
            self._gamma = gamma_of(self.kernel, self.gamma, rows.x, rows.copies)
        gamma = self._gamma if gamma is None else gamma
        return kernel_of(self.kernel, gamma, self.degree, self.coef0, rows.x, rows.copies)

    # Rows, and kernels that are functions of arrays.

    def _checked(self, X: Any, y: ArrayLike, sample_weight: PerRow, reset: bool) -> Rows:
        """As `BaseSVM._checked`; for a function of arrays, x is the matrix of the kernel."""
        if is_matrix(self.kernel) and is_sparse(X):
            raise TypeError(
                "Sparse precomputed kernels are not supported: pass an array, such as K.toarray()"
            )
        self._gamma = self._kernel_rows = None
        if not is_function(self.kernel):
            X, y, weight = super()._checked(X, y, sample_weight, reset)
            self.shape_fit_ = X.shape
            return X, y, weight
        check_consistent_length(X, y)
        rows = as_numbers(X)
        matrix = kernel_matrix(self.kernel, rows, rows)
        matrix, y, weight = super()._checked(matrix, y, sample_weight, True)
        self._kernel_rows = rows
        self.shape_fit_ = rows.shape if hasattr(rows, "shape") else (len(rows),)
        del self.n_features_in_
        is_table = is_array(rows) and len(rows.shape) == 2 and rows.dtype.kind in "fiub"
        if is_sparse(rows) or is_table:  # names and the number of columns are kept
            validate(self, X, reset=True)
        return matrix, y, weight

    def _scores(self, X: ArrayLike) -> np.ndarray:
        if self._kernel_rows is None:
            return super()._scores(X)
        if hasattr(self, "n_features_in_"):
            X = validate(self, X, reset=False)
        return self._values(kernel_matrix(self.kernel, as_numbers(X), self._kernel_rows))

    # The dual solution.

    def _train(self, x: Any, y: np.ndarray, weight: np.ndarray, **more: object) -> Trained:
        targets, group = super()._train(x, y, weight, **more)
        # the dual solution; equal rows share a coefficient by weight
        place, k = targets.place, len(targets.names or (None,))
        model = on_rows(inner_of(self.model_))
        points = support_index(model)
        coef, b = np.atleast_2d(np.asarray(model.coef)), np.asarray(model.b, np.float64)
        self.intercept_ = np.broadcast_to(b, coef.shape[:1]).copy()  # of each model
        number = np.full(max(group.max(), 0) + 1, -1)
        number[group[np.asarray(model.index)[points]]] = np.arange(len(points))
        number = np.where(group >= 0, number[group], -1)
        index = np.flatnonzero(number >= 0)
        if place is not None:
            index = index[np.argsort(place[index], kind="stable")]
        number = number[index]
        total = np.bincount(number, weight[index], len(points))
        classes = np.zeros(len(index), int) if place is None else place[index]
        models: Any = np.arange(len(coef))[:, None]
        if self._of_pairs:
            models = pairs_by_opponent(classes, k)
        coef = coef[models, points[number]] * (weight[index] / total[number])
        vectors = np.empty((0, 0)) if self._columns == "rows" else x[index].astype(np.float64)
        self.support_, self.support_vectors_ = index.astype(np.int32), vectors
        self.dual_coef_ = type(vectors)(coef) if is_sparse(vectors) else coef
        self.n_support_ = np.bincount(classes, minlength=k).astype(np.int32)
        self.fit_status_ = int(self.tol is not None and not self.fit_.state.done)
        return targets, group

    @property
    def coef_(self) -> Any:
        """Weights of a machine with kernel "linear"; a read-only array."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        dual = self.dual_coef_, self.support_vectors_
        coef = pair_coef(*dual, self.n_support_) if self._of_pairs else safe_sparse_dot(*dual)
        (coef.data if is_sparse(coef) else coef).flags.writeable = False
        return coef


def cost(C: object) -> Any:
    """C as the solvers take it: an infinite C is a large one."""
    return LARGEST_C if isinstance(C, float) and C == float("inf") else C
