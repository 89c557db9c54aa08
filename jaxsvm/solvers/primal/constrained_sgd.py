"""Stochastic subgradients on the hinge over a ball."""

from __future__ import annotations

import jax.numpy as jnp

from ... import spaces
from ...engines.online_learning import Move, online
from ...kernels import Kernel
from ...losses import hinge
from ...projections import shorten
from ...recipe import check_positive, solver
from ...types import Solver


@solver
def constrained_sgd(radius: float, kernel: Kernel | None = None) -> Solver:
    """Minimise mean_i max(0, 1 - y_i <w, phi(x_i)>) over |w| <= radius, without bias.

        V = {i in batch: y_i <w, phi(x_i)> < 1}
        eta = radius / (R sqrt(t)),   R^2 = max_i k(x_i, x_i)
        w = w + eta sum_V y_i phi(x_i) / |batch|
        w = w min(1, radius / |w|);   returned: the mean of the iterates

    In a stream R is that of the first chunk.

    The expected excess of the mean over the minimum is at most 3 radius R / sqrt(t). With radius =
    |w*_lam| the optimum is that of lam/2 |w|^2 + mean hinge.

    Args:
        radius: of the ball, > 0.
        kernel: a kernel; None is linear.

    Returns:
        A solver on drawn rows (linear, model `Linear`) or on all rows (model `Expansion`). Default
        sampler: one uniformly drawn row per step.

    Raises:
        ValueError: radius not a single positive number.

    Differs from the paper: |w|^2 is updated by each step, and the projection is part of the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(constrained_sgd(0.5), data, jax.random.key(0), steps=100)
        >>> round(float(result.model.w[0]), 2)
        0.5

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 5; M. Zinkevich, Online convex programming, ICML 2003.
    """
    check_positive(radius=radius)
    space = spaces.averaged(spaces.space_for(kernel))

    def init(data):
        sqnorms = jnp.where(data.weight > 0, space.sqnorm(data.x), jnp.zeros_like(data.weight))
        R = jnp.sqrt(jnp.max(sqnorms))
        return jnp.zeros((), sqnorms.dtype), jnp.where(R > 0, R, jnp.ones_like(R))

    def rule(numbers, score, batch, share, gram, t):
        sqnorm, R = numbers  # |w|^2, R
        eta = radius / (R * jnp.sqrt(t.astype(score.dtype) + 1))
        violates = batch.y * score < 1
        move = jnp.where(violates, eta * batch.y * share, jnp.zeros_like(score))
        sqnorm_new = jnp.maximum(
            sqnorm + 2 * jnp.dot(move, score) + jnp.dot(move, jnp.dot(gram(), move)), 0
        )
        factor = shorten(sqnorm_new, radius)
        return (sqnorm_new * factor * factor, R), Move(
            1 - factor, factor * move, hinge.value(score, batch.y)
        )

    return online(init, rule, space)
