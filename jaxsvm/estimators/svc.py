"""Exact kernel support vector machines for classes."""

from __future__ import annotations

from dataclasses import field
from typing import Any, cast

from .. import samplers
from ..checks import check_choice
from ..solvers import decomposition, sdca
from ..types import Loss
from .base import Spec
from .kernel_classifier import KernelClassifier
from .kernel_svm import cost
from .parameters import estimator, loss_of


@estimator(
    "C kernel degree gamma coef0 shrinking probability tol cache_size class_weight verbose "
    "max_iter decision_function_shape break_ties random_state loss bias multiclass progress"
)
class SVC(KernelClassifier):
    """A kernel SVM, solved exactly.

    The problem is 1/2 |f|^2 + C sum_i weight_i max(0, 1 - y_i (f(x_i) + b)).

    It has the parameters and attributes of scikit-learn's `SVC`, and solves its problem with the
    same `tol`. The parameters from `loss` on are additions.

    Args:
        C: weight of the loss of each row, > 0.
        kernel: "rbf", "linear", "poly", "sigmoid", "precomputed", "laplacian", "matern12",
            "matern32", "matern52", "rational_quadratic", "cosine", "chi2" or "additive_chi2" (see
            `jaxsvm.kernels`), a kernel of jaxsvm, or a function (n, d), (m, d) -> (n, m). It
            is called with NumPy arrays, SciPy matrices or objects, and its matrix over the training
            rows is kept. `jaxsvm.kernels.custom(fn)` is a compiled kernel of a function of JAX.
        degree: of "poly", an integer; structure.
        gamma: of a kernel by name: "scale" for 1/(d variance of X), with rows weighted by sample
            weight, "auto" for 1/d, or a number > 0.
        coef0: of "poly" and "sigmoid".
        probability: whether `fit` also fits probabilities, by five-fold cross-validation: five more
            runs. Platt's sigmoids are fitted to the decision values out of fold, those of each pair
            of classes for more than two. Folds are stratified in the order of the rows, as of
            `CalibratedClassifierCV(ensemble=False)`; a row of weight k is in one of them. There is
            a warning where probabilities contradict `predict`.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0; with
            bias "feature", the largest change of a margin in a pass.
        class_weight: dict from class names to factors on C, "balanced", or None. "balanced" gives
            all classes the same total sample weight.
        max_iter: rounds of `jaxsvm.decomposition` at most, not steps on pairs as in LIBSVM: blocks
            of rows, or up to 2,048 rows 100 n steps on pairs each; -1: 2,000.
            With bias "feature", passes over the rows; -1: 1,000.
        random_state: int, `RandomState` or None; the order of rows with bias "feature".
        loss: "hinge", "squared_hinge", or a loss of jaxsvm with a quadratic dual.
        bias: "free", an intercept that is not regularised, or "none"; "feature": regularised with
            the rest (1 is added to the kernel), by dual coordinate ascent.
        multiclass: for more than two classes, "ovo", votes of one model for each pair, or "ovr",
            one model for each class against the rest.

    Attributes:
        support_: (m,) indices of the support vectors, grouped by class; equal rows are listed with
            equal shares of their coefficient.
        support_vectors_: (m, d) support vectors.
        n_support_: (k,) numbers of support vectors of the classes.
        dual_coef_: (k-1, m) signed coefficients, in the layout of scikit-learn; (k, m) for
            multiclass "ovr".
        coef_: weights of kernel "linear", (1, d) or (k(k-1)/2, d).
        intercept_: (1,) or (k(k-1)/2,) intercepts.
        classes_: (k,) class names.
        class_weight_: (k,) factors on C.
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: (1,) or (k(k-1)/2,) updates of the solver; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        probA_, probB_: parameters of the sigmoids 1 / (1 + exp(A f + B)) of pairs.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range or combined with one that excludes
            it, and for rows of fewer than two classes.
        TypeError: a sparse precomputed matrix.

    Example:
        >>> from jaxsvm.estimators import SVC
        >>> X, y = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]
        >>> SVC(C=10.0, gamma=1.0).fit(X, y).predict(X).tolist()
        [0, 0, 1, 1]

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order
        information, JMLR 6, 2005; H.-T. Lin, C.-J. Lin, R. C. Weng, A note on Platt's probabilistic
        outputs for support vector machines, Machine Learning 68, 2007; T.-F. Wu, C.-J. Lin, R. C.
        Weng, Probability estimates for multi-class classification by pairwise coupling, JMLR 5,
        2004.
    """

    C: float = field(default=1.0, kw_only=False)
    loss: str | Loss = "hinge"
    bias: str = "free"
    multiclass: str = "ovo"

    def _spec(self, rows: Any, previous: object = None, **numbers: Any) -> Spec:
        C, kernel = cost(numbers.get("C", self.C)), self._kernel(rows, numbers.get("gamma"))
        check_choice("bias", self.bias, ("free", "none", "feature"))
        loss, bias = loss_of(self.loss), cast(Any, self.bias)
        if self.bias == "feature":
            ascent = sdca(C, kernel, loss=loss, bias="feature")
            passes = None if self.max_iter == -1 else self._rounds()
            return Spec(ascent, passes=passes, tol=self.tol, sampler=samplers.shrinking(16))
        solver = decomposition(C, kernel, loss=loss, bias=bias, rounds=self._rounds())
        return self._exact(solver, rows)
