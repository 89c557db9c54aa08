"""Machines whose solver is a parameter."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if

from .. import kernels, losses
from ..models import check_values
from ..recipe import Recipe
from ..solvers import decomposition, lasvm, sdca, smo
from ..types import Solver
from .base import BaseSVM, streams
from .classifier import PartialFitMixin
from .parameters import is_matrix, kernel_of, may_widen, takes_matrix

EXACT = {"decomposition": decomposition, "smo": smo, "lasvm": lasvm}


class SolverParameterMixin:
    """A machine whose solver is a parameter: what it is made of, and training on rows that come in pieces."""

    _length = "steps"

    def _make_solver(self, x, weight, copies):
        if isinstance(self.solver, str):
            return self._by_name(x, copies)
        given = [name for name in ("C", "kernel", "gamma", "epsilon") if getattr(self, name, None) is not None]
        if given:
            raise ValueError(f"{given[0]} goes with a solver by name, such as solver='decomposition': this one has its own")
        solver = self._default() if self.solver is None else self.solver
        if not (isinstance(solver, Recipe | Solver) and hasattr(solver, "update")):
            raise TypeError(f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {solver!r}: call the factory first")
        return solver

    def _by_name(self, x, copies):
        """An exact solver of a kernel machine; x is None where only the kind of solver matters."""
        if self.solver not in EXACT:
            shown = ", ".join(map(repr, EXACT))
            raise ValueError(f"solver must be {shown} or a solver such as jaxsvm.pegasos(1e-3), got {self.solver!r}")
        kernel, gamma = "rbf" if self.kernel is None else self.kernel, "scale" if self.gamma is None else self.gamma
        kernel = kernels.linear() if x is None else kernel_of(kernel, gamma, 3, 0.0, x, copies)
        return EXACT[self.solver](1.0 if self.C is None else self.C, kernel, **self._more())

    def _more(self):
        """What a solver by name takes besides C and the kernel."""
        return {}

    def _run_options(self, n):
        return {"steps": self.steps, "passes": None, "tol": self.tol, "sampler": self.sampler, "progress": self.progress}

    def _pairwise(self):
        return is_matrix(self.kernel) or takes_matrix(self.solver)

    def _pad_columns(self):
        return self.solver is None or isinstance(self.solver, str) and (self.kernel is None or may_widen(self.kernel))

    def _can_partial_fit(self):
        if not streams(self._make_solver(None, None, None)):
            raise AttributeError("partial_fit takes solvers that look at single rows, such as jaxsvm.pegasos(1e-3)")
        return True


class SVMClassifier(SolverParameterMixin, PartialFitMixin):
    """A classifier trained by any solver; more than two classes one against the rest, or each against each.

    Args:
        solver: such as `jaxsvm.pegasos(1e-3)` or `jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(2.0))`; None:
            `jaxsvm.sdca(1.0, bias="feature")`, a linear SVM with C = 1 and a regularised intercept. Solvers that differ in
            their numbers alone share their compiled programs, so a grid may list them. Or the name of an exact solver of a
            kernel machine with a free intercept, "decomposition", "smo" or "lasvm" (exact on the rows that it keeps after a
            pass), made with `C`, `kernel` and `gamma`.
        C: of a solver by name, weight of one row's loss, > 0; None: 1.
        kernel: of a solver by name, as `SVC`; None: "rbf".
        gamma: of a solver by name, as `SVC`; None: "scale".
        multiclass: more than two classes: "ovr", one model for each class against the rest, or "ovo", one for each pair of
            classes, which vote.
        steps: updates, >= 1; None: ten passes, or with a tolerance at most 1,000 (ten updates of "decomposition", which
            goes on by itself in each); one pass for `partial_fit`.
        tol: residual to stop at, in the solver's own measure; "auto": 1e-3 where it measures the training set; None: none.
        sampler: which rows a step sees, such as `jaxsvm.samplers.epochs(64)`; None: as the solver has it.
        class_weight: dict from class names to factors on their rows, "balanced", or None.
        random_state: int, `RandomState` or None; makes the key.
        progress: a bar on the standard error stream.

    Attributes:
        classes_: (k,) class names.
        model_: a `jaxsvm.models.Classifier`, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit`: `fit_.status` says how the run ended, `fit_.info` is the curve.
        n_iter_: passes made; updates of a solver that takes all rows at once.
        coef_, intercept_: of a linear model.
        support_, dual_coef_, intercept_: of an expansion.

    Example:
        >>> import jaxsvm
        >>> clf = SVMClassifier(jaxsvm.sdca(10.0, bias="feature"), random_state=0)
        >>> clf.fit([[0.0], [1.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]).predict([[0.5], [3.5]]).tolist()
        ['no', 'yes']
    """

    def __init__(
        self,
        solver=None,
        *,
        C=None,
        kernel=None,
        gamma=None,
        multiclass="ovr",
        steps=None,
        tol="auto",
        sampler=None,
        class_weight=None,
        random_state=None,
        progress=False,
    ):
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

    def _default(self):
        return sdca(1.0, bias="feature")


class SVMRegressor(SolverParameterMixin, RegressorMixin, BaseSVM):
    """Real targets fitted by any solver with a loss for them.

    Args:
        solver: such as `jaxsvm.sdca(1.0, loss=jaxsvm.losses.eps_insensitive(0.1))`; None: this, with a regularised
            intercept. Or "decomposition", "smo" or "lasvm", as `SVMClassifier`: the problem of scikit-learn's `SVR`.
        C: as `SVMClassifier`.
        kernel: as `SVMClassifier`.
        gamma: as `SVMClassifier`.
        epsilon: of a solver by name, >= 0: what the loss max(0, |y - f(x)| - epsilon) does not count; None: 0.1.
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
        >>> reg = SVMRegressor(jaxsvm.sdca(100.0, loss=jaxsvm.losses.eps_insensitive(0.0)), random_state=0)
        >>> round(float(reg.fit([[1.0], [2.0]], [2.0, 4.0]).predict([[3.0]])[0]), 2)
        6.0
    """

    def __init__(
        self,
        solver=None,
        *,
        C=None,
        kernel=None,
        gamma=None,
        epsilon=None,
        steps=None,
        tol="auto",
        sampler=None,
        random_state=None,
        progress=False,
    ):
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

    def _default(self):
        return sdca(1.0, loss=losses.eps_insensitive(0.1), bias="feature")

    def _more(self):
        return {"loss": losses.eps_insensitive(0.1 if self.epsilon is None else self.epsilon)}

    def fit(self, X, y, sample_weight=None):
        """Train from the beginning on (n, d) rows, (n,) targets and (n,) weights."""
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            self._run(x, y.astype(np.float64), weight)
        return self

    @available_if(SolverParameterMixin._can_partial_fit)
    def partial_fit(self, X, y, sample_weight=None):
        """Go on with more rows, or begin; `steps` updates on them, None: one pass."""
        first = not hasattr(self, "fit_")
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=first)
            self._run(x, y.astype(np.float64), weight, **self._piece(first))
        return self

    def predict(self, X):
        """(n, d) -> (n,) values."""
        return check_values(self._scores(X).ravel())
