"""ASSET and ASSET*: stochastic subgradients for SVMs on approximate features."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import optax

from ..averaging import average_iterates
from ..checks import MOST_COUNT, is_whole, shown
from ..engines.gradient import descent, gradient
from ..losses import hinge
from ..numerics import sqnorms
from ..projections import ball, keep, product
from ..recipe import check_choice, check_positive, register, solver
from ..schedules import inverse_sqrt, inverse_time
from ..types import Array, Batch, Loss, Solver


@register("AssetSet")
class AssetSet(NamedTuple):
    """The set that the iterates are kept in, and the length of the first step."""

    radius: Array  # ()  of the ball that w stays in
    bound: Array  # ()  of |b|
    first: Array  # ()  D_X / D_G


def measure(data: Batch, lam: float, loss: Loss, intercept: bool) -> AssetSet:
    """D_X, the largest |(w, b)| of the set, and D_G, the root mean square of the subgradient at 0, over the rows.

        radius^2 = F(0)/lam,   as lam |w*|^2 = -mean slope_i <w*, x_i> <= mean (loss(0) - loss(f_i)) <= F(0)
        bound = b_0 + radius max |x_i|,   b_0 = max |y_i|, or max(1, |log odds of the classes|) for labels: the bias
            alone would be no larger
        D_X^2 = radius^2 + bound^2;   D_G^2 = mean slope(0, y_i)^2 (|x_i|^2 + 1)

    Without an intercept the bound is 0 and the + 1 falls away.

    Reference: S. Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for support vector
        machines, ICPRAM 2012, section 3 (D_X and D_G); the radius as in Pegasos, for any loss.
    """
    share = data.weight / jnp.sum(data.weight)
    zero, square = jnp.zeros_like(share), sqnorms(data.x)
    live = share > 0
    most = lambda a: jnp.max(jnp.where(live, a, zero))  # noqa: E731
    radius = jnp.sqrt(jnp.dot(share, loss.value(zero, data.y)) / lam)
    bound = jnp.zeros_like(radius)
    if intercept:
        some = jnp.finfo(share.dtype).eps  # where all rows seen are of one class
        above = jnp.clip(jnp.dot(share, (data.y > 0).astype(share.dtype)), some, 1 - some)
        alone = jnp.maximum(1, jnp.abs(jnp.log(above) - jnp.log1p(-above))) if loss.labels else most(jnp.abs(data.y))
        bound = alone + radius * jnp.sqrt(most(square))
    pull = jnp.dot(share, loss.slope(zero, data.y) ** 2 * (square + (1 if intercept else 0)))
    reach = jnp.sqrt(radius**2 + bound**2)
    first = reach / jnp.sqrt(jnp.where(pull > 0, pull, jnp.ones_like(pull)))
    return AssetSet(radius, bound, jnp.where(first > 0, first, jnp.ones_like(first)))  # a set of one point: any step


def _check_start(average_from: int) -> None:
    if not is_whole(average_from, 0):
        raise ValueError(
            f"average_from must be a whole number of steps of at least 0, {MOST_COUNT} at most, got {shown(average_from)}"
        )


@solver
def asset(lam: float, *, loss: Loss = hinge, average_from: int = 0, bias: str = "free") -> Solver:
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by robust stochastic approximation; b is not regularised.

        eta_j = D_X / (D_G sqrt(j)),   j = 1, 2, ...
        (w, b) = project((1 - eta_j lam) w - eta_j slope x,  b - eta_j slope)      |w| <= radius, |b| <= bound
        returned: sum_j eta_j (w, b)_j / sum_j eta_j over j > average_from

    The method of the paper is `on_features(phi, asset(lam, ...))` with a Nystrom map; with a Fourier map over a stream
    it is ASSET_on. For losses whose slope is largest at 0 (hinge, eps_insensitive, pinball; nearly so logistic)
    E F(average) - min F = O(D_X D_G / sqrt(N)) after N steps, average_from = rho N, whatever the strong convexity: at
    small lam, where D_X is about 1/sqrt(lam), that may be far from the optimum. Squared losses have no such bound here.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores, >= 0: hinge, squared hinge, logistic; eps_insensitive, pinball, squared for real targets.
        average_from: steps left out of the average, >= 0; half of all or more is usual.
        bias: "free" or "none".

    Returns:
        A solver on drawn rows; model `Linear`, the average; default feed one uniform row a step.

    Raises:
        ValueError: lam not a single positive number, another bias, average_from no whole number of at least 0.

    Differs from the paper: D_G^2 is a mean over all rows that `init` sees (printed with 1/M^2, which makes the steps
        sqrt(M) times too long; M samples); the step is at most 1/lam, so that the shrink factor is never negative;
        the ball is that of the loss at 0, the interval one that holds the optimal b (both for the rows that `init`
        sees); a row violates where its margin is below 1, with the iterate before the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[3.0], [1.0]], [1, -1])
        >>> run = jaxsvm.fit(asset(0.01, average_from=2000), data, jax.random.key(0), steps=4000)
        >>> (run.model(data.x) > 0).tolist()
        [True, False]

    Reference: S. Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for support vector
        machines, ICPRAM 2012, section 3, algorithm 1; A. Nemirovski, A. Juditsky, G. Lan, A. Shapiro, Robust
        stochastic approximation approach to stochastic programming, SIAM J. Optimization 19, 2009.
    """
    check_positive(lam=lam)
    check_choice("bias", bias, ("free", "none"))
    _check_start(average_from)
    free = bias == "free"

    def chain(found):
        def eta(count):
            return jnp.minimum(inverse_sqrt(found.first)(count), 1 / jnp.asarray(lam, found.first.dtype))

        inside = {"w": ball(found.radius)} | ({"b": lambda b: jnp.clip(b, -found.bound, found.bound)} if free else {})
        return optax.chain(
            descent(lam, optax.scale_by_learning_rate(eta), bias),
            keep(product(inside)),
            average_iterates(start=average_from, weights=lambda since: eta(since + average_from)),
        )

    return gradient(loss, chain, bias=bias, data_stats=lambda data: measure(data, lam, loss, intercept=free))


@solver
def asset_star(lam: float, *, loss: Loss = hinge, average_from: int | None = None) -> Solver:
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i>, y_i) by steps 1/(lam j) in a ball; no intercept.

        eta_j = 1/(lam j),   j = 1, 2, ...
        w = (1 - 1/j) w - eta_j slope x;   w = w min(1, radius / |w|),   radius^2 = F(0)/lam
        returned: the last w, or sum_j eta_j w_j / sum_j eta_j over j > average_from

    The method of the paper is `on_features(phi, asset_star(lam, ...))`; for the hinge it is Pegasos on features.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: as for `asset`.
        average_from: steps left out of the average, >= 0; None: no average, the last iterate.

    Returns:
        A solver on drawn rows; model `Linear`; default feed one uniform row a step.

    Raises:
        ValueError: lam not a single positive number, average_from no whole number of at least 0.

    Differs from the paper: the ball is that of the loss at 0 (for the hinge the same, 1/sqrt(lam)).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(asset_star(2.0), data, jax.random.key(0), steps=100)
        >>> round(float(run.model.w[0]), 3)
        0.5

    Reference: S. Lee, S. Wright, ASSET, ICPRAM 2012, section 3 (ASSET*); the step: S. Shalev-Shwartz, Y. Singer,
        N. Srebro, Pegasos, ICML 2007.
    """
    check_positive(lam=lam)
    if average_from is not None:
        _check_start(average_from)
    eta = inverse_time(1 / lam)

    def chain(found):
        steps = descent(lam, optax.scale_by_learning_rate(eta), "none"), keep(product({"w": ball(found.radius)}))
        if average_from is None:
            return optax.chain(*steps)
        return optax.chain(*steps, average_iterates(start=average_from, weights=lambda since: eta(since + average_from)))

    return gradient(loss, chain, data_stats=lambda data: measure(data, lam, loss, intercept=False))
