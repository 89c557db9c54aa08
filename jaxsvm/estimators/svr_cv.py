"""Kernel support vector machines for real targets whose numbers are chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .cross_validation import KernelCV
from .svr import SVR


class SVRCV(KernelCV, SVR):
    """`SVR` with C, gamma and epsilon chosen by cross-validation, by one call of `jaxsvm.select`.

        scores_[i, j, f] = score of SVR(C=Cs_[i], gamma=gammas_[j]), trained without fold f, on it

    Args:
        Cs: as `SVCCV`.
        gammas: as `SVCCV`.
        epsilons: list of values of epsilon, units of y, >= 0; or one, which is not chosen.
        kernel: as `SVR`.
        degree: as `SVR`.
        coef0: as `SVR`.
        cv: as `SVCCV`, but folds by number are not stratified.
        scoring: as `SVCCV`; None: R^2.
        refit: as `SVCCV`.
        rule: "best", or "one_se", the least C and gamma within one standard error of it, then the
            largest epsilon.
        tol: as `SVR`, of all fits.
        max_iter: as `SVR`, of all fits.
        random_state: as `SVCCV`.
        memory: as `SVCCV`.
        n_jobs: as `SVCCV`.
        verbose: as `SVCCV`.

    Attributes:
        C_, gamma_, epsilon_: the numbers chosen.
        Cs_, gammas_, epsilons_: the values of each axis; None where a number is not chosen.
        scores_: (k, m, e, folds) score of each cell on the rows of each fold, without the axes
            that are not chosen; greater is better.
        best_score_: mean over the folds of the cell chosen.
        selection_: the `jaxsvm.Selection`, for the rows as they were given. Its scores are 1 - R^2,
            or minus the score of `scoring`.
        certificate_: of `selection_.model`, a run on all rows with the numbers chosen.
        support_, dual_coef_, model_, fit_ and others: as `SVR`.

    Raises:
        ValueError: from `fit`, as `SVR`; test sets that overlap.

    Example:
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> reg = SVRCV(Cs=[0.1, 10.0], gammas=[0.01, 1.0], epsilons=0.01, cv=3).fit(X,
        ...     np.sin(X[:, 0]))
        >>> reg.scores_.shape, round(float(reg.predict([[1.5]])[0]), 1)
        ((2, 2, 3), 1.0)
    """

    def __init__(
        self,
        Cs: Any = 8,
        gammas: Any = 8,
        *,
        epsilons: Any = 0.1,
        kernel: str | Callable = "rbf",
        degree: int = 3,
        coef0: float = 0.0,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        rule: str = "best",
        tol: float | None = 1e-3,
        max_iter: int = -1,
        random_state: Any = None,
        memory: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.gammas = gammas
        self.epsilons = epsilons
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.rule = rule
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _axes(self, x: Any) -> dict[str, np.ndarray]:
        axes = self._C_and_gamma(x)
        if np.ndim(self.epsilons) == 0:
            self.epsilon_, self.epsilons_ = self.epsilons, None
            return axes
        return axes | {"epsilon": np.asarray(self.epsilons)}

    def _solver_at(self, x: Any, copies: Any, **numbers: Any) -> Any:
        kernel = self._kernel(x, copies, numbers.get("gamma"))
        return self._solver_of(numbers["C"], numbers.get("epsilon", self.epsilons), kernel)
