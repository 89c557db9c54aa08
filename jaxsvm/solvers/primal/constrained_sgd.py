"""Stochastic subgradients on the hinge over a ball."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from ... import spaces
from ..._node import node, positive
from ...engines.online_learning import Move, OnlineSolver
from ...kernels import Kernel
from ...losses import hinge
from ...projections import shorten
from ...types import Array, Batch, Space, State


@node
class constrained_sgd(OnlineSolver):
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
        >>> result = jaxsvm.fit(jaxsvm.constrained_sgd(0.5), data, jax.random.key(0), steps=400)
        >>> round(float(result.model.w[0]), 2)
        0.5

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 5; M. Zinkevich, Online convex programming, ICML 2003.
    """

    radius: float = positive()
    kernel: Kernel | None = None

    @property
    def space(self) -> Space:
        return spaces.averaged(spaces.space_for(self.kernel))

    def start(self, data: Batch) -> State:
        sqnorms = self.space.sqnorm(data.x)
        sqnorms = jnp.where(data.weight > 0, sqnorms, jnp.zeros_like(data.weight))
        R = jnp.sqrt(jnp.max(sqnorms))
        return jnp.zeros((), sqnorms.dtype), jnp.where(R > 0, R, jnp.ones_like(R))

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        sqnorm, R = state  # |w|^2, R
        eta = self.radius / (R * jnp.sqrt(t.astype(score.dtype) + 1))
        move = jnp.where(batch.y * score < 1, eta * batch.y * share, jnp.zeros_like(score))
        sqnorm_new = sqnorm + 2 * jnp.dot(move, score) + jnp.dot(move, jnp.dot(gram(), move))
        sqnorm_new = jnp.maximum(sqnorm_new, 0)
        factor = shorten(sqnorm_new, self.radius)
        change = Move(1 - factor, factor * move, hinge.value(score, batch.y))
        return (sqnorm_new * factor * factor, R), change
