"""The deterministic subgradient method on the whole data set."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from ..._node import node, positive
from ...averaging import average_iterates
from ...engines.gradient_descent import GradientSolver, Weights, pegasos_steps, regularised
from ...losses import hinge
from ...numerics import norm
from ...samplers import whole
from ...types import Array, Batch, Loss


@node
class subgradient(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by subgradient steps on all rows.

        g = lam w + mean_i slope_i x_i
        w = project(w - g / (lam t)),   t = 1, 2, ...     onto |w| <= 1/sqrt(lam)
        returned: sum_t t w_t / sum_t t

    The residual is |g| at the current iterate, on the whole training set, so `tol` may stop on it;
    for a loss with kinks it need not fall to 0 (use a certificate); for a smooth one it does.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores with loss(0) <= 1 for labels (the ball holds the optimum then).
        bias: "none", "feature" (regularised) or "free" (steps 1/sqrt(t)).

    Returns:
        A solver on drawn rows whose default sampler is `whole()`; model `Linear`.

    Raises:
        ValueError: lam not a single positive number, unknown bias.

    Differs from the paper: the average weighted by t is returned, whose error falls as 1/t without
        a logarithm.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.subgradient(2.0), data, jax.random.key(0), steps=3)
        >>> float(result.model.w[0])
        0.5

    Reference: N. Z. Shor, Minimization methods for non-differentiable functions, 1985; the average:
        S. Lacoste-Julien, M. Schmidt, F. Bach, A simpler approach to obtaining an O(1/t)
        convergence rate, arXiv 1212.2002, 2012.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["none", "feature", "free"] = "none"

    sampler = whole()
    residual_of = "data"

    def residual(self, grads: Weights, params: Weights, slope: Array, batch: Batch) -> Array:
        add = lambda g, p, shrinks: g + self.lam * p if shrinks else g
        w, b = jax.tree.map(add, grads, params, regularised(self.bias))
        return jnp.sqrt(norm(w) ** 2 + (0 if b is None else b * b))

    def chain(self, stats: object) -> optax.GradientTransformation:
        steps = pegasos_steps(self.lam, self.bias, optax.scale_by_learning_rate)
        return optax.chain(steps, average_iterates(weights=lambda t: t + 1))
