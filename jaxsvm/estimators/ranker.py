"""Linear ranking of the rows of queries."""

from __future__ import annotations

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from sklearn.utils.validation import _check_sample_weight

from .. import losses
from ..data.fold_numbers import group_numbers
from ..data.from_arrays import dataset
from ..loops.checks import whole_number
from ..models import Linear, check_values
from ..objectives import ndcg_on
from ..ranking import check_grades
from ..recipe import check_choice, check_positive
from ..solvers import newton, ocas
from ..solvers.primal.newton import MOST_ROUNDS
from .base import BaseSVM, Spec, Targets, steps_of_state
from .parameters import set_parameters

LOSSES = ("hinge", "squared_hinge")


class Ranker(BaseSVM):
    """Minimise lam/2 |w|^2 + sum_ij c_ij loss(<w, x_i - x_j>) over pairs with grade_i > grade_j.

    The pairs are of rows of one query; c_ij is in proportion to weight_i weight_j, with sum 1. The
    scores are <w, x>. It is RankSVM, by the cutting planes of `jaxsvm.ocas` for the hinge, and by
    `jaxsvm.newton` for its square. A round takes O(n log n), beside products with the rows. For
    kernels put a feature map in front, `make_pipeline(NystromFeatures(), Ranker())`.

    Args:
        lam: regularisation, > 0.
        loss: "hinge", max(0, 1 - d), or "squared_hinge", max(0, 1 - d)^2, of the difference d of
            the scores. The square takes less time.
        per_query: every query has the same weight, whatever its number of pairs; else every pair
            has.
        k: rows of each query that `score` reads, >= 1; None: all.
        tol: relative duality gap to stop at, > 0.
        max_iter: rounds at most, of cutting planes or of Newton's method, >= 1; of the latter not
            more than 1,000.
        progress: a bar on the standard error stream.

    Attributes:
        coef_: (d,) weights.
        n_iter_: rounds made.
        model_: `jaxsvm.models.Linear`.
        fit_: the `jaxsvm.Fit` of the run.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, and for data without two rows of
            one query with different grades.

    Example:
        >>> x, y = [[3.0], [1.0], [0.0], [2.0]], [2, 1, 0, 1]
        >>> ranker = Ranker(lam=0.1).fit(x, y, qid=[0, 0, 1, 1])
        >>> ranker.predict([[1.0], [2.0]]).argmax().item()
        1

    Reference: T. Joachims, Optimizing search engines using clickthrough data, KDD 2002; V. Franc,
        S. Sonnenburg, Optimized cutting plane algorithm for large-scale risk minimization, JMLR 10,
        2009; C.-P. Lee, C.-J. Lin, Large-scale linear RankSVM, Neural Computation 26, 2014.
    """

    _takes_columns = False

    def __init__(
        self,
        *,
        lam: float = 1e-3,
        loss: str = "hinge",
        per_query: bool = False,
        k: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        progress: bool = False,
    ) -> None:
        set_parameters(self, locals())

    random_state = 0  # the method is deterministic

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, qid: Any = None) -> Self:
        """Train a new model on (n, d) rows.

        Args:
            X: (n, d) rows.
            y: (n,) grades; a larger one is to have a higher score.
            sample_weight: (n,) >= 0; None: all 1.
            qid: (n,) a number or name of the query of each row; None: all are of one query.
        """
        check_choice("loss", self.loss, LOSSES)
        check_positive(lam=self.lam, tol=self.tol)
        if self.k is not None:
            whole_number("k", self.k, 1)
        with self._restore_on_error():
            x, y, weight = self._checked(X, y, sample_weight, reset=True)
            y = _grades(y)
            if len(y) < 2:
                raise ValueError("ranking compares rows: give two or more, got n_samples=1")
            query = self._queries(qid, len(y))
            check_grades(y, weight, query)
            # The order of the grades matters only: in float32 large ones may be equal.
            y = np.unique(y, return_inverse=True)[1].reshape(-1).astype(np.float64)
            self._run(x, Targets(y, query=query), weight)
        return self

    def _spec(self, rows: Any, previous: Any = None, **numbers: Any) -> Spec:
        squared, rounds = self.loss == "squared_hinge", whole_number("max_iter", self.max_iter, 1)
        loss = losses.pairwise(squared=squared, per_query=self.per_query)
        if not squared:
            return Spec(ocas(self.lam, loss=loss), steps=rounds, tol=self.tol)
        solver = newton(self.lam, loss=loss, rounds=float(min(rounds, MOST_ROUNDS)))
        # all rounds are one update
        return Spec(solver, steps=1, tol=self.tol, iterations=steps_of_state)

    def _queries(self, qid: Any, n: int) -> np.ndarray:
        return np.zeros(n, int) if qid is None else group_numbers(qid, n, "qid")

    def predict(self, X: Any) -> np.ndarray:
        """Scores, (n, d) -> (n,); of two rows of a query the one of higher score comes first."""
        return check_values(self._scores(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, qid: Any = None) -> float:
        """The mean nDCG of the queries, in [0, 1], see `jaxsvm.objectives.ndcg_on`.

        Args:
            X: (n, d) rows.
            y: (n,) grades, >= 0.
            sample_weight: (n,) >= 0; None: all 1. A query counts by the mean weight of its rows;
                rows of weight 0 are left out.
            qid: (n,) queries of the rows; None: all are of one query.
        """
        scores = self.predict(X)
        query = self._queries(qid, len(scores))
        weight = _check_sample_weight(sample_weight, scores, dtype=np.float64)
        data = dataset(scores[:, None], np.asarray(y), weight, query=query, task="regression")
        identity = Linear(jnp.ones(1, data.x.dtype), jnp.zeros((), data.x.dtype))
        return float(ndcg_on(data, self.k, weighted=True)(identity))


def _grades(y: np.ndarray) -> np.ndarray:
    """The grades as numbers."""
    try:
        return np.asarray(y, np.float64)
    except (TypeError, ValueError):
        first = y.tolist()[0]
        raise ValueError(f"y must hold grades, numbers, got {first!r}: number them first") from None
