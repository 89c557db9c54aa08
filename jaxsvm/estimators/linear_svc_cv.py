"""Linear support vector machines for classes whose C is chosen by cross-validation."""

from __future__ import annotations

from ..types import Loss
from .cross_validation import GridCV
from .linear_svc import LinearSVC
from .parameters import estimator


@estimator(
    "Cs loss cv scoring refit rule tol fit_intercept intercept_scaling class_weight random_state "
    "max_iter solver memory n_jobs verbose penalty l1_ratio probability"
)
class LinearSVCCV(GridCV, LinearSVC):
    """`LinearSVC` with C chosen by cross-validation, by one call of `jaxsvm.select`.

        scores_[i, f] = score of LinearSVC(C=Cs_[i]), trained without fold f, on it

    All fits are one program. Its solver is that of `LinearSVC`, by the loss and the shape of the
    rows.

    Args:
        cv: number of folds, stratified in the order of the rows; a splitter of scikit-learn whose
            test sets are disjoint and left out of training once; an iterable of such (train, test);
            None: 5.
        rule: "best", or "one_se", the least C within one standard error of it.
        tol: largest relative duality gap without a warning, > 0; of all fits. The solvers stop at a
            share of it: 1/100, or 1/10^5 of newton. Ascent stops once the largest change of a
            margin in a pass is at most tol / 2.
        intercept_scaling: value s of the constant feature whose weight is b/s, > 0; a larger one
            regularises the intercept less.
        random_state: int, `RandomState` or None; the order of rows.
        max_iter: steps of the solver at most in each fit, >= 1; of ascent passes over the rows.
        solver: "auto", "newton", "augmented_lagrangian", "interior_point" or "sdca". "auto" takes
            the fastest by the loss and the shape of the rows.
        memory: bytes of the temporaries of a program, as of `jaxsvm.select`; None: no limit.
        penalty: "l2", "l1" or "elasticnet", as of `LinearSVC`.
        l1_ratio: as of `LinearSVC`.

    Attributes:
        C_: the C chosen.
        Cs_: (k,) the values of C.
        scores_: (k, folds) score of each C on the rows of each fold, greater is better.
        best_score_: mean over the folds of the C chosen.
        selection_: the `jaxsvm.Selection`, for the rows as they were given. Its scores are
            1 - accuracy, or minus the score of `scoring`.
        certificate_: None.
        coef_, intercept_: (1, d) or (k, d) weights and (1,) or (k,) intercepts; 0.0 without.
        classes_: (k,) class names.
        n_iter_: steps of the solver, or passes of ascent.
        solver_: the name of the solver.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.
        calibrated_: with probability=True a `jaxsvm.calibration.Calibrated`, for
            `jaxsvm.models.save`; by another method `selection_.calibrated(method)`.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, test sets that overlap, and a fold
            that holds all rows of a class.

    Example:
        >>> import numpy as np
        >>> X = np.arange(12.0)[:, None]
        >>> clf = LinearSVCCV(Cs=[0.1, 10.0], cv=2).fit(X, X[:, 0] > 5)
        >>> clf.scores_.shape, clf.predict([[2.0], [9.0]]).tolist()
        ((2, 2), [False, True])
    """

    penalty: str = "l2"  # by its name
    loss: str | Loss = "squared_hinge"
