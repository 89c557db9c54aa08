"""Linear ranking of the rows of queries, and what it shares with that of censored times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight

from .. import losses
from ..checks import check_choice, check_positive
from ..data.fold_numbers import group_numbers
from ..data.from_arrays import dataset
from ..loops.checks import whole_number
from ..models import Linear, check_values
from ..objectives import ndcg_on
from ..ranking import check_grades, signed_times
from ..solvers import newton, ocas
from ..solvers.primal.newton import MOST_ROUNDS
from .base import ModelAttributes, Spec, Targets, steps_of_state
from .parameters import PerRow, estimator, parameters

LOSSES = ("hinge", "squared_hinge")


@parameters
class PairwiseSVM(ModelAttributes):
    """A linear machine of `losses.pairwise`, by cutting planes or by Newton's method.

    Args:
        lam: regularisation, > 0.
        loss: "hinge", max(0, 1 - d), or "squared_hinge", max(0, 1 - d)^2, of the difference d of
            the scores. The square takes less time.
        tol: relative duality gap to stop at, > 0.
        max_iter: rounds at most, of cutting planes or of Newton's method, >= 1; of the latter not
            more than 1,000.
        progress: a bar on the standard error stream.
    """

    _censored = False  # whether y are signed times; else grades
    _groups = "qid"  # the argument that names the groups in which rows are compared
    random_state = 0  # the method is deterministic
    lam: float = 1e-3
    loss: str = "hinge"
    tol: float = 1e-3
    max_iter: int = 1000

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow, query: PerRow) -> Self:
        """Train on pairs within the groups `query`."""
        check_choice("loss", self.loss, LOSSES)
        check_positive(lam=self.lam, tol=self.tol)
        with self._restore_on_error():
            y = signed_times(y) if self._censored else y
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            y = _numbers(y, "times" if self._censored else "grades")
            if len(y) < 2:
                raise ValueError("ranking compares rows: give two or more, got n_samples=1")
            query = _group_numbers(query, len(y), self._groups)
            check_grades(y, weight, query, self._censored)
            # the numbers of grades in ascending order, as in float32 large grades may be equal; of
            # times those of the magnitudes, from 1 on, with the signs
            place = np.unique(np.abs(y) if self._censored else y, return_inverse=True)[1]
            place = np.sign(y) * (1.0 + place) if self._censored else place.astype(np.float64)
            self._run(x, Targets(place, query=query), weight)
        return self

    def _spec(self, rows: object, previous: object = None) -> Spec:
        squared, rounds = self.loss == "squared_hinge", whole_number("max_iter", self.max_iter, 1)
        how: Any = {"censored": True} if self._censored else {"per_query": self.per_query}
        loss = losses.pairwise(squared=squared, **how)
        if not squared:
            return Spec(ocas(self.lam, loss=loss), steps=rounds, tol=self.tol)
        solver = newton(self.lam, loss=loss, rounds=float(min(rounds, MOST_ROUNDS)))
        # all rounds are one update
        return Spec(solver, steps=1, tol=self.tol, iterations=steps_of_state)

    def _value(
        self, probe_on: Callable, X: ArrayLike, y: ArrayLike, weight: PerRow, query: PerRow
    ) -> float:
        """The value of the probe `probe_on(data)` at the scores of the rows, in float64."""
        scores = self.predict(X)
        weight = _check_sample_weight(weight, scores, dtype=np.float64)
        query = _group_numbers(query, len(scores), self._groups)
        task = "survival" if self._censored else "regression"
        with jax.enable_x64(True):
            data = dataset(scores[:, None], np.asarray(y), weight, query=query, task=task)
            return float(probe_on(data)(Linear(jnp.ones(1), jnp.zeros(()))))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Scores, (n, d) -> (n,); the row of the higher grade, or of the later event, has more."""
        return check_values(self._scores(X))


@estimator("lam loss per_query k tol max_iter progress")
class Ranker(PairwiseSVM):
    """Minimise lam/2 |w|^2 + sum_ij c_ij loss(<w, x_i - x_j>) over pairs with grade_i > grade_j.

    The pairs are of rows of one query; c_ij is in proportion to weight_i weight_j, with sum 1. The
    scores are <w, x>. It is RankSVM, by the cutting planes of `jaxsvm.ocas` for the hinge, and by
    `jaxsvm.newton` for its square. A round takes O(n log n), beside products with the rows. For
    kernels put a feature map in front, `make_pipeline(NystromFeatures(), Ranker())`.

    Args:
        per_query: every query has the same weight, whatever its number of pairs; else every pair
            has.
        k: rows of each query that `score` reads, >= 1; None: all.

    Attributes:
        coef_: (d,) weights.
        n_iter_: rounds made.
        model_: `jaxsvm.models.Linear`.
        fit_: the `jaxsvm.Fit` of the run.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, and for data without two rows of
            one query with different grades.

    Example:
        >>> from jaxsvm.estimators import Ranker
        >>> x, y = [[3.0], [1.0], [0.0], [2.0]], [2, 1, 0, 1]
        >>> ranker = Ranker(lam=0.1).fit(x, y, qid=[0, 0, 1, 1])
        >>> ranker.predict([[1.0], [2.0]]).argmax().item()
        1

    Reference: T. Joachims, Optimizing search engines using clickthrough data, KDD 2002; V. Franc,
        S. Sonnenburg, Optimized cutting plane algorithm for large-scale risk minimization, JMLR 10,
        2009; C.-P. Lee, C.-J. Lin, Large-scale linear RankSVM, Neural Computation 26, 2014.
    """

    per_query: bool = False
    k: int | None = None

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *, qid: PerRow = None
    ) -> Self:
        """Train a new model on (n, d) rows.

        Args:
            X: (n, d) rows.
            y: (n,) grades; a larger one is to have a higher score.
            sample_weight: (n,) >= 0; None: all 1.
            qid: (n,) a number or name of the query of each row; None: all are of one query.
        """
        if self.k is not None:
            whole_number("k", self.k, 1)
        return self._fit(X, y, sample_weight, qid)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *, qid: PerRow = None
    ) -> float:
        """The mean nDCG of the queries, in [0, 1], see `jaxsvm.objectives.ndcg_on`.

        Args:
            X: (n, d) rows.
            y: (n,) grades, >= 0.
            sample_weight: (n,) >= 0; None: all 1. A query counts by the mean weight of its rows;
                rows of weight 0 are left out.
            qid: (n,) queries of the rows; None: all are of one query.
        """
        probe_on = lambda data: ndcg_on(data, self.k, weighted=True)
        return self._value(probe_on, X, y, sample_weight, qid)


def _group_numbers(groups: PerRow, n: int, name: str) -> np.ndarray:
    return np.zeros(n, int) if groups is None else group_numbers(groups, n, name)


def _numbers(y: np.ndarray, what: str) -> np.ndarray:
    """The targets as numbers."""
    try:
        return np.asarray(y, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y must hold {what}, numbers, got {y.tolist()[0]!r}: number them first"
        ) from None
