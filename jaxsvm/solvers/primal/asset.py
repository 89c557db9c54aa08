"""ASSET and ASSET*: stochastic subgradients for SVMs on approximate features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax

from ..._node import between, node, positive, register
from ...averaging import average_iterates
from ...engines.gradient_descent import GradientSolver, descent
from ...losses import hinge
from ...numerics import sqnorms
from ...projections import ball, keep, product
from ...schedules import inverse_sqrt, inverse_time
from ...types import Array, Batch, Loss


@register("AssetSet")
class AssetSet(NamedTuple):
    """The feasible set of the iterates, and the first step length."""

    radius: Array  # ()  of the ball of w
    bound: Array  # ()  of |b|
    first: Array  # ()  D_X / D_G


def measure(data: Batch, lam: float, loss: Loss, intercept: bool) -> AssetSet:
    """D_X, the largest |(w, b)| of the set, and D_G, the root mean square subgradient at 0.

    The mean is over the rows.

        radius^2 = F(0)/lam,
            as lam |w*|^2 = -mean slope_i <w*, x_i> <= mean (loss(0) - loss(f_i)) <= F(0)
        bound = b_0 + radius max |x_i|,
            b_0 = max |y_i|, or max(1, |log odds of the classes|) for labels,
            which bounds the optimal b at w = 0
        D_X^2 = radius^2 + bound^2;   D_G^2 = mean slope(0, y_i)^2 (|x_i|^2 + 1)

    Without an intercept the bound is 0 and the + 1 is absent. D_G is that of draws by weight. Draws
    without replacement scale slopes by the weights instead, so that it is larger there.

    Reference: S. Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for
        support vector machines, ICPRAM 2012, section 3 (D_X and D_G); the radius as in Pegasos, for
        any loss.
    """
    share = data.weight / jnp.sum(data.weight)
    zero, square = jnp.zeros_like(share), sqnorms(data.x)
    present = share > 0
    largest = lambda a: jnp.max(jnp.where(present, a, zero))
    radius = jnp.sqrt(jnp.dot(share, loss.value(zero, data.y)) / lam)
    bound = jnp.zeros_like(radius)
    if intercept:
        eps = jnp.finfo(share.dtype).eps  # if all rows are of one class
        positive = jnp.clip(jnp.dot(share, (data.y > 0).astype(share.dtype)), eps, 1 - eps)
        if loss.labels:
            b_0 = jnp.maximum(1, jnp.abs(jnp.log(positive) - jnp.log1p(-positive)))
        else:
            b_0 = largest(jnp.abs(data.y))
        bound = b_0 + radius * jnp.sqrt(largest(square))
    D_G_square = jnp.dot(share, loss.slope(zero, data.y) ** 2 * (square + (1 if intercept else 0)))
    D_X = jnp.sqrt(radius**2 + bound**2)
    first = D_X / jnp.sqrt(jnp.where(D_G_square > 0, D_G_square, jnp.ones_like(D_G_square)))
    # D_X = 0: every step is projected to 0
    return AssetSet(radius, bound, jnp.where(first > 0, first, jnp.ones_like(first)))


@node
class asset(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by robust stochastic approximation.

    b is not regularised.

        eta_j = D_X / (D_G sqrt(j)),   j = 1, 2, ...
        (w, b) = project((1 - eta_j lam) w - eta_j slope x,  b - eta_j slope)
            |w| <= radius, |b| <= bound
        returned: sum_j eta_j (w, b)_j / sum_j eta_j over j > average_from

    The method of the paper is `on_features(phi, asset(lam, ...))` with a Nystrom map; with a
    Fourier map over a stream it is ASSET_on. For losses whose slope is largest at 0 (hinge,
    eps_insensitive, pinball; almost so logistic) E F(average) - min F = O(D_X D_G / sqrt(N)) after
    N steps with average_from = rho N. The bound does not use strong convexity: at small lam, where
    D_X is about 1/sqrt(lam), it may be loose. It does not hold for squared losses.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores, >= 0: hinge, squared hinge, logistic; eps_insensitive, pinball,
            squared for real targets.
        average_from: steps before the average starts, >= 0; usually at least half of all steps.
        bias: "free" or "none".

    Returns:
        A solver on drawn rows; model `Linear`, the average. Default sampler: one uniformly drawn
        row per step.

    Raises:
        ValueError: lam not a single positive number, another bias, average_from not an integer of
            at least 0.

    Differs from the paper: D_G^2 is a mean over all rows of `init`, where the paper samples M rows;
        the printed 1/M^2 would make the steps sqrt(M) times too long. The step is at most 1/lam, so
        that the shrink factor is never negative. The ball follows from the loss at 0, and the
        interval contains the optimal b, both for the rows of `init`. A row violates if its margin
        is below 1 at the iterate before the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[3.0], [1.0]], [1, -1])
        >>> solver = jaxsvm.asset(0.01, average_from=2000)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=4000)
        >>> (result.model(data.x) > 0).tolist()
        [True, False]

    Reference: S. Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for
        support vector machines, ICPRAM 2012, section 3, algorithm 1; A. Nemirovski, A. Juditsky, G.
        Lan, A. Shapiro, Robust stochastic approximation approach to stochastic programming, SIAM J.
        Optimization 19, 2009.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    average_from: int = between(0, default=0)
    bias: Literal["free", "none"] = "free"

    def stats(self, data: Batch) -> AssetSet:
        return measure(data, self.lam, self.loss, intercept=self.bias == "free")

    def chain(self, stats: Any) -> optax.GradientTransformation:
        most = 1 / jnp.asarray(self.lam, stats.first.dtype)
        eta = lambda count: jnp.minimum(inverse_sqrt(stats.first)(count), most)
        projections = {"w": ball(stats.radius)}
        if self.bias == "free":
            projections["b"] = lambda b: jnp.clip(b, -stats.bound, stats.bound)
        step = descent(self.lam, optax.scale_by_learning_rate(eta), self.bias)
        return optax.chain(step, keep(product(projections)), _average(eta, self.average_from))


@node
class asset_star(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i>, y_i) by steps 1/(lam j) in a ball; no intercept.

        eta_j = 1/(lam j),   j = 1, 2, ...
        w = (1 - 1/j) w - eta_j slope x;   w = w min(1, radius / |w|),   radius^2 = F(0)/lam
        returned: the last w, or sum_j eta_j w_j / sum_j eta_j over j > average_from

    The method of the paper is `on_features(phi, asset_star(lam, ...))`; for the hinge it is Pegasos
    on features.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: as for `asset`.
        average_from: steps before the average starts, >= 0; None: no average, the last iterate.

    Returns:
        A solver on drawn rows; model `Linear`. Default sampler: one uniformly drawn row per step.

    Raises:
        ValueError: lam not a single positive number, average_from not an integer of at least 0.

    Differs from the paper: the ball follows from the loss at 0 (for the hinge the same,
        1/sqrt(lam)).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.asset_star(2.0), data, jax.random.key(0), steps=100)
        >>> round(float(result.model.w[0]), 3)
        0.5

    Reference: S. Lee, S. Wright, ASSET, ICPRAM 2012, section 3 (ASSET*); the step: S.
        Shalev-Shwartz, Y. Singer, N. Srebro, Pegasos, ICML 2007.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    average_from: int | None = between(0, default=None)

    def stats(self, data: Batch) -> AssetSet:
        return measure(data, self.lam, self.loss, intercept=False)

    def chain(self, stats: Any) -> optax.GradientTransformation:
        eta, start = inverse_time(1 / self.lam), self.average_from
        step = descent(self.lam, optax.scale_by_learning_rate(eta), "none")
        tail = () if start is None else (_average(eta, start),)
        return optax.chain(step, keep(product({"w": ball(stats.radius)})), *tail)


def _average(eta: Callable, start: int) -> optax.GradientTransformation:
    """The mean of the iterates from step `start` on, weighted by their step lengths."""
    return average_iterates(start, lambda since: eta(since + start))
