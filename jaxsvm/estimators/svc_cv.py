"""Kernel support vector machines for classes whose C and gamma are chosen by cross-validation."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .cross_validation import GridCV
from .parameters import estimator
from .svc import SVC


@estimator(
    "Cs gammas kernel degree coef0 cv scoring refit rule tol class_weight max_iter "
    "decision_function_shape break_ties random_state loss multiclass memory n_jobs verbose "
    "probability"
)
class SVCCV(GridCV, SVC):
    """`SVC` with C and gamma chosen by cross-validation, by one call of `jaxsvm.select`.

        scores_[i, j, f] = score of SVC(C=Cs_[i], gamma=gammas_[j]), trained without fold f, on it

    The largest mean over the folds is chosen; of equal ones the least C, then the least gamma. A
    machine with these numbers is trained on all rows. Fits share the kernel matrix, start from each
    other, and are certified.

    Args:
        kernel: "rbf", "linear", "poly", "sigmoid", "laplacian", "matern12", "matern32", "matern52",
            "rational_quadratic", "cosine", "chi2", "additive_chi2" or "precomputed", a kernel of
            jaxsvm, or a function (n, d), (m, d) -> (n, m).
        degree: of "poly", an integer.
        coef0: of "poly" and "sigmoid", the number that is added to the inner products.
        cv: number of folds, stratified in the order of the rows; a splitter of scikit-learn whose
            test sets are disjoint and left out of training once, such as `KFold` or `GroupKFold`;
            an iterable of such (train, test); None: 5.
        rule: "best", or "one_se", the least C and gamma within one standard error of it.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0; of all
            fits.

    Attributes:
        C_: the C chosen.
        gamma_: the gamma chosen; None for kernels without.
        Cs_: (k,) the values of C.
        gammas_: (m,) the values of gamma; None if it is not chosen.
        scores_: (k, m, folds) score of each cell on the rows of each fold, greater is better; (k,
            folds) if gamma is not chosen.
        best_score_: mean over the folds of the cell chosen.
        selection_: the `jaxsvm.Selection`, for the rows as they were given. Its scores are
            1 - accuracy, or minus the score of `scoring`.
        certificate_: of `selection_.model`, a run on all rows with the numbers chosen; for more
            than two classes the sum over the problems, None beyond 20 classes.
        support_, support_vectors_: (m,) indices of the support vectors, grouped by class, and
            (m, d) the rows themselves.
        n_support_: (k,) numbers of support vectors of the classes.
        dual_coef_: (k-1, m) signed coefficients, in the layout of scikit-learn; (k, m) for
            multiclass "ovr".
        coef_: weights of kernel "linear".
        intercept_: (1,) or (k(k-1)/2,) intercepts; (k,) for multiclass "ovr".
        classes_: (k,) class names.
        class_weight_: (k,) factors on C.
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: updates of the solver, of each model; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`; by another method `selection_.calibrated(method)`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, test sets that overlap, and a fold
            that holds all rows of a class.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 2))
        >>> clf = SVCCV(Cs=[0.1, 10.0], gammas=[0.01, 1.0], cv=3).fit(X, (X**2).sum(1) > 1.2)
        >>> clf.C_, clf.gamma_, clf.scores_.shape
        (10.0, 1.0, (2, 2, 3))

    Reference: C.-W. Hsu, C.-C. Chang, C.-J. Lin, A practical guide to support vector
        classification, 2003.
    """

    gammas: Any = field(default=8, kw_only=False)
