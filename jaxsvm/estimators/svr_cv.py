"""Kernel support vector machines for real targets whose numbers are chosen by cross-validation."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .cross_validation import GridCV
from .parameters import estimator
from .svr import SVR


@estimator(
    "Cs gammas epsilons kernel degree coef0 cv scoring refit rule tol max_iter random_state memory "
    "n_jobs verbose"
)
class SVRCV(GridCV, SVR):
    """`SVR` with C, gamma and epsilon chosen by cross-validation, by one call of `jaxsvm.select`.

        scores_[i, j, f] = score of SVR(C=Cs_[i], gamma=gammas_[j]), trained without fold f, on it

    Args:
        epsilons: list of values of epsilon, units of y, >= 0; or one, which is not chosen.
        cv: number of folds, in the order of the rows; a splitter of scikit-learn whose test sets
            are disjoint and left out of training once; an iterable of such (train, test); None: 5.
        scoring: name of a score of scikit-learn, or a function (estimator, X, y) -> number, where X
            stands for rows out of fold; greater is better. Only predictions and decision values are
            there to read. None: R^2.
        rule: "best", or "one_se", the least C and gamma within one standard error of it, then the
            largest epsilon.
        tol: stop once LIBSVM's violation of the optimality conditions is at most this, > 0, in
            units of y; of all fits.

    Attributes:
        C_, gamma_, epsilon_: the numbers chosen.
        Cs_, gammas_, epsilons_: the values of each axis; None where a number is not chosen.
        scores_: (k, m, e, folds) score of each cell on the rows of each fold, without the axes
            that are not chosen; greater is better.
        best_score_: mean over the folds of the cell chosen.
        selection_: the `jaxsvm.Selection`, for the rows as they were given. Its scores are 1 - R^2,
            or minus the score of `scoring`.
        certificate_: of `selection_.model`, a run on all rows with the numbers chosen.
        support_: (m,) indices of the support vectors, in order.
        support_vectors_: (m, d) support vectors.
        n_support_: (1,) their number.
        dual_coef_: (1, m) signed coefficients.
        coef_: (1, d) weights of kernel "linear".
        intercept_: (1,) intercept.
        fit_status_: 0 if the tolerance was met, else 1.
        n_iter_: updates of the solver; each iterates to the tolerance.
        shape_fit_: shape of the training rows.
        model_: the model of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, and test sets that overlap.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> reg = SVRCV(Cs=[0.1, 10.0], gammas=[0.01, 1.0], epsilons=0.01, cv=3).fit(X,
        ...     np.sin(X[:, 0]))
        >>> reg.scores_.shape, round(float(reg.predict([[1.5]])[0]), 1)
        ((2, 2, 3), 1.0)
    """

    gammas: Any = field(default=8, kw_only=False)
    epsilons: Any = 0.1
