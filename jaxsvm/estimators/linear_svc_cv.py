"""Linear support vector machines for classes whose C is chosen by cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linear_choice import system_for_grid
from ..loops import C_grid
from ..types import Loss
from .cross_validation import CrossValidated, Targets, number_axis
from .linear_svc import LinearSVC
from .parameters import loss_of
from .preprocess import is_sparse


class LinearSVCCV(CrossValidated, LinearSVC):
    """`LinearSVC` with C chosen by cross-validation, by one call of `jaxsvm.select`.

        scores_[i, f] = score of LinearSVC(C=Cs_[i]), trained without fold f, on it

    All fits are one program. Its solver is that of `LinearSVC`, by the loss and the shape of the
    rows.

    Args:
        Cs: as `SVCCV`.
        loss: as `LinearSVC`.
        cv: as `SVCCV`.
        scoring: as `SVCCV`.
        refit: as `SVCCV`.
        rule: "best", or "one_se", the least C within one standard error of it.
        tol: as `LinearSVC`, of all fits.
        fit_intercept: as `LinearSVC`.
        intercept_scaling: as `LinearSVC`.
        class_weight: as `LinearSVC`; "balanced" by all rows.
        random_state: as `LinearSVC`.
        max_iter: as `LinearSVC`, of all fits.
        solver: as `LinearSVC`.
        memory: bytes of the temporaries of a program, as of `jaxsvm.select`; None: no limit.
        n_jobs: as `SVCCV`.
        verbose: as `SVCCV`.

    Attributes:
        C_: the C chosen.
        Cs_: (k,) the values of C.
        scores_: (k, folds) score of each C on the rows of each fold, greater is better.
        best_score_: mean over the folds of the C chosen.
        selection_: as `SVCCV`.
        certificate_: None.
        coef_, intercept_, classes_, solver_, model_, fit_ and others: as `LinearSVC`.

    Raises:
        ValueError: from `fit`, as `LinearSVC`; test sets that overlap; a fold that holds all rows
            of a class.

    Example:
        >>> X = np.arange(12.0)[:, None]
        >>> clf = LinearSVCCV(Cs=[0.1, 10.0], cv=2).fit(X, X[:, 0] > 5)
        >>> clf.scores_.shape, clf.predict([[2.0], [9.0]]).tolist()
        ((2, 2), [False, True])
    """

    penalty = "l2"
    dual = "auto"
    multi_class = "ovr"

    def __init__(
        self,
        Cs: Any = 8,
        *,
        loss: str | Loss = "squared_hinge",
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        rule: str = "best",
        tol: float | None = 1e-4,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: dict | str | None = None,
        random_state: Any = None,
        max_iter: int = 1000,
        solver: str = "auto",
        memory: float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.loss = loss
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.rule = rule
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.max_iter = max_iter
        self.solver = solver
        self.memory = memory
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _axes(self, x: Any) -> dict[str, np.ndarray]:
        self.solver_ = self._fastest(x, loss_of(self.loss))
        return {"C": number_axis("Cs", self.Cs, C_grid)}

    def _solver_at(self, x: Any, copies: Any, **numbers: Any) -> Any:
        loss = loss_of(self.loss)
        system = system_for_grid(loss, x.shape, is_sparse(x))
        return self._solver_of(numbers["C"], loss, system)

    def _choose(self, x: Any, targets: Targets, weight: np.ndarray, fold: np.ndarray) -> None:
        super()._choose(self._with_constant(x), targets, weight, fold)

    def _select_options(self, n: int) -> dict[str, Any]:
        options = self._run_options(n)
        steps = self.max_iter * n if self.solver_ == "sdca" else options["steps"]
        return {"tol": options["tol"], "steps": steps}
