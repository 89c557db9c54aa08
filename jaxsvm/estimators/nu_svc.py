"""Kernel support vector machines for classes with a bound nu on the share of margin errors."""

from __future__ import annotations

import numpy as np

from ..solvers import nu_svc
from .base import Spec, Targets
from .kernel_classifier import KernelClassifier
from .parameters import estimator


@estimator(
    "nu kernel degree gamma coef0 shrinking probability tol cache_size class_weight verbose "
    "max_iter decision_function_shape break_ties random_state progress"
)
class NuSVC(KernelClassifier):
    """A kernel SVM with the parameter nu in place of C, solved exactly.

    It has the parameters and attributes of scikit-learn's `NuSVC`, and solves its problem:
    `jaxsvm.nu_svc` for each pair of classes.

    Args:
        nu: upper bound of the share of margin errors and lower bound of the share of support
            vectors, in (0, 1]. For each pair of classes it is at most 2 min(n+, n-) / (n+ + n-).
        probability: whether `fit` also fits probabilities, as of `SVC`. nu is to be at most the
            limit of each training set, too.
        class_weight: accepted without an effect, as in LIBSVM; `class_weight_` holds the factors.
        random_state: accepted without an effect.

    Attributes:
        support_: (m,) indices of the support vectors, grouped by class.
        support_vectors_: (m, d) support vectors.
        n_support_: (k,) numbers of support vectors of the classes.
        dual_coef_: (k-1, m) signed coefficients, in the layout of scikit-learn.
        coef_: weights of kernel "linear", (1, d) or (k(k-1)/2, d).
        intercept_: (1,) or (k(k-1)/2,) intercepts.
        classes_: (k,) class names.
        class_weight_: (k,) factors, which have no effect.
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: (1,) or (k(k-1)/2,) updates of the solver; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        probA_, probB_: parameters of the sigmoids 1 / (1 + exp(A f + B)) of pairs.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, nu above its limit for a pair of
            classes, and rows of fewer than two classes.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> from jaxsvm.estimators import NuSVC
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> NuSVC(nu=0.5, gamma=1.0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]

    Reference: B. Schoelkopf, A. Smola, R. Williamson, P. Bartlett, New support vector algorithms,
        Neural Computation 12, 2000.
    """

    nu: float = 0.5

    def _spec(self, rows: object, previous: object = None) -> Spec:
        solver = nu_svc(self.nu, self._kernel(rows), rounds=self._rounds())
        return self._exact(solver, rows)

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        """As `BaseClassifier._targets`, after LIBSVM's check of nu for each pair of classes."""
        targets = super()._targets(y, weight)
        total = np.bincount(targets.place, weight, len(self.classes_))
        for a, b in zip(*np.triu_indices(len(total), 1), strict=True):
            limit = 2 * min(total[a], total[b]) / (total[a] + total[b])
            if self.nu > limit * (1 + 1e-6):
                one, other = self.classes_[[a, b]].tolist()
                raise ValueError(
                    f"specified nu is infeasible: for the classes {one!r} and {other!r} it must be "
                    f"at most 2 min(n+, n-) / (n+ + n-) = {limit:.6g} by weight, got {self.nu:g}"
                )
        return targets._replace(factors=1.0)
