"""Linear machines for the support of a distribution, by stochastic subgradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike

from .._node import node, positive
from ..engines.gradient_descent import GradientSolver, descent
from ..engines.nu_qp import check_nu
from ..schedules import inverse_time
from ..types import Array, Loss
from .base import ModelAttributes, Spec
from .one_class_svm import OutlierDetector
from .parameters import PerRow, estimator, mean_sqnorm
from .pegasos import PassParameters, by_passes


@node
class shortfall(Loss):
    """The loss max(0, -f) of scores below 0; targets are not read.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsvm.estimators.sgd_one_class_svm import shortfall
        >>> shortfall()(jnp.array([-2.0, 1.0]), jnp.zeros(2)).tolist()
        [2.0, 0.0]
    """

    labels = False

    def value(self, f: Array, y: Array) -> Array:
        return jnp.maximum(-f, 0)

    def slope(self, f: Array, y: Array) -> Array:
        return -(f < 0).astype(f.dtype)


@node
class one_class_descent(GradientSolver):
    """Minimise nu/2 |w|^2 - nu rho + mean_i weight_i max(0, rho - <w, x_i>) by subgradients.

        eta = 1 / (nu t + 1),  t = 1, 2, ...;   V = {i in batch: <w, x_i> < rho}
        w = (1 - nu eta) w + eta sum_V x_i / |batch|
        rho = rho + scale eta (nu - |V| / |batch|)

    Rows in another unit, and `scale` with them, have the same steps in that unit.

    Args:
        nu: share of the rows outside, in (0, 1].
        scale: mean |x_i|^2, the unit of rho, > 0.

    Returns:
        A solver on drawn rows, which do not read targets; model `Linear`, <w, x> - rho.

    Raises:
        ValueError: nu not in (0, 1].

    Example:
        >>> import jax, jaxsvm
        >>> from jaxsvm.estimators.sgd_one_class_svm import one_class_descent
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [0.0, 0.0], task="regression")
        >>> run = jaxsvm.fit(one_class_descent(1.0, scale=2.5), data, jax.random.key(0), steps=4000)
        >>> round(float(run.model.w[0]), 1)
        1.5
    """

    nu: float = positive()
    _: KW_ONLY
    scale: float = positive()

    loss = shortfall()
    bias = "free"

    def check(self) -> None:
        check_nu(self.nu)

    def chain(self, stats: object) -> optax.GradientTransformation:
        rate = lambda unit: inverse_time(unit / self.nu, 1 / self.nu)
        step, bias_step = (optax.scale_by_learning_rate(rate(unit)) for unit in (1, self.scale))
        pull = optax.stateless(lambda grads, params: grads._replace(b=grads.b + self.nu))
        return optax.chain(pull, descent(self.nu, step, "free", bias_step=bias_step))


@estimator("nu max_iter shuffle verbose random_state warm_start average batch_size progress")
class SGDOneClassSVM(PassParameters, OutlierDetector, ModelAttributes):
    """A detector of outliers, <w, x> >= rho for all but a share nu of the rows, on any number.

        minimise nu/2 |w|^2 - nu rho + mean_i weight_i max(0, rho - <w, x_i>)

    That is nu times 1/2 |w|^2 - rho + mean_i max(0, rho - <w, x_i>) / nu, the problem of
    scikit-learn's `SGDOneClassSVM`. `OneClassSVM(kernel="linear")` has the same w and rho, times
    nu and the number of rows. Its parameters are there as far as the method has them. Steps
    are 1/(nu t + 1), in units of the rows, so that they need no scaling. There is no stopping
    criterion: `fit` makes `max_iter` passes, `partial_fit` one. For kernels put a feature map in
    front, `make_pipeline(FourierFeatures(), SGDOneClassSVM())`.

    Args:
        nu: upper bound of the share of training rows outside, in (0, 1].
        max_iter: passes over the rows, >= 1, rounded up to whole chunks of steps. Equal rows are
            one row of a larger weight.
        warm_start: whether `fit` goes on from the fit before, if that had warm_start=True, too, as
            `partial_fit` does. Rows of another number of columns are refused.

    Attributes:
        coef_: (1, d) weights.
        offset_: (1,) rho; `decision_function` is `score_samples` less rho.
        intercept_: (1,) -rho.
        n_iter_: passes made.
        model_: the model <w, x> - rho of jaxsvm, for `jaxsvm.models.save`.
        fit_: the `jaxsvm.Fit` of the run, with its status and its curve.

    Raises:
        ValueError: from `fit`, for a parameter out of its range.

    Example:
        >>> from jaxsvm.estimators import SGDOneClassSVM
        >>> rows = [[1.0, 1.2], [1.1, 0.9], [0.9, 1.0], [1.2, 1.1], [1.0, 1.0]]
        >>> clf = SGDOneClassSVM(nu=0.1, random_state=0).fit(rows)
        >>> clf.predict([[1.1, 1.1], [-1.0, 0.5]]).tolist()
        [1, -1]

    Reference: B. Schoelkopf, J. Platt, J. Shawe-Taylor, A. Smola, R. Williamson, Estimating the
        support of a high-dimensional distribution, Neural Computation 13, 2001; L. Bottou,
        Stochastic gradient descent tricks, in Neural Networks: Tricks of the Trade, 2012.
    """

    _structure = ("average",)
    nu: float = field(default=0.5, kw_only=False)

    def _spec(self, rows: Any, previous: object = None) -> Spec:
        if previous is None:  # the unit of rho stays that of the first rows
            self._mean_sqnorm = mean_sqnorm(rows.x, rows.copies) or 1.0
        solver = one_class_descent(self.nu, scale=self._mean_sqnorm)
        return by_passes(self, solver)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: PerRow = None
    ) -> Self:
        """Continue training by one pass over more rows, or start.

        Args:
            X: (n, d) rows.
            y: ignored.
            sample_weight: (n,) weights, >= 0; a weight of k counts as k copies of the row.
        """
        first = not hasattr(self, "fit_")
        return self._fit(X, sample_weight, first, **self._partial_options(first))

    @property
    def coef_(self) -> np.ndarray:
        """(1, d) weights."""
        return np.atleast_2d(super().coef_)
