"""Linear survival support vector machines: ranking by censored times."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike
from sklearn.utils import Tags

from ..objectives import concordance_on
from .parameters import PerRow, estimator
from .ranker import PairwiseSVM


@estimator("lam loss tol max_iter progress")
class SurvivalSVM(PairwiseSVM):
    """Minimise lam/2 |w|^2 + sum_ij c_ij loss(<w, x_i - x_j>) over pairs of censored times.

    Row j of a pair had its event before the time of row i, or at the time at which row i was
    censored. c_ij is in proportion to weight_i weight_j, with sum 1. The scores are <w, x>, and a
    larger one stands for a later event. Estimates of scikit-survival have the opposite sign: they
    are risks, and -predict(X) is one.

    The methods are those of `Ranker`. With loss="squared_hinge" and m pairs of unit weights it is
    the problem of scikit-survival's `FastSurvivalSVM(alpha=2 / (lam m), rank_ratio=1)`, which has
    no pairs of equal times. For kernels put a feature map in front,
    `make_pipeline(NystromFeatures(), SurvivalSVM())`.

    Args:
        lam: regularisation, > 0.

    Attributes:
        coef_: (d,) weights.
        n_iter_: rounds made.
        model_: `jaxsvm.models.Linear`.
        fit_: the `jaxsvm.Fit` of the run.

    Raises:
        ValueError: from `fit`, for a parameter out of its range, or times that are 0 or not finite;
            for data without an event before the time of another row.

    Example:
        >>> from jaxsvm.estimators import SurvivalSVM
        >>> x, y = [[3.0], [1.0], [0.0], [2.0]], [9.0, -4.0, 1.5, 4.0]  # the second is censored
        >>> machine = SurvivalSVM(lam=0.1, loss="squared_hinge").fit(x, y)
        >>> machine.predict([[1.0], [2.0]]).argmax().item(), machine.score(x, y)
        (1, 0.8)

    Reference: V. Van Belle, K. Pelckmans, J. A. K. Suykens, S. Van Huffel, Support vector machines
        for survival analysis, CIMED 2007; S. Poelsterl, N. Navab, A. Katouzian, Fast training of
        support vector machines for survival analysis, ECML PKDD 2015.
    """

    _censored, _groups = True, "strata"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True  # of times; the sign of y is that of the event
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *, strata: PerRow = None
    ) -> Self:
        """Train a new model on (n, d) rows.

        Args:
            X: (n, d) rows.
            y: (n,) a structured array of booleans, whether the event was observed, and times, as of
                scikit-survival; or signed times, +time of an event and -time of a censored row.
            sample_weight: (n,) >= 0; None: all 1.
            strata: (n,) a number or name of the stratum of each row, in which it is compared with
                others; None: all are of one.
        """
        return self._fit(X, y, sample_weight, strata)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *, strata: PerRow = None
    ) -> float:
        """The concordance index, in [0, 1], see `jaxsvm.objectives.concordance_on`.

        Args:
            X: (n, d) rows.
            y: (n,) events and times, as of `fit`.
            sample_weight: (n,) >= 0; None: all 1.
            strata: (n,) strata of the rows; None: all are of one.
        """
        return self._value(concordance_on, X, y, sample_weight, strata)
