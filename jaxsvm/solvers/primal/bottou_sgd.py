"""Bottou's SGD (SVMSGD2): the step of Pegasos with an initial value t0 of the step counter."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from ..._node import node, positive
from ...engines.gradient_descent import GradientSolver, regularised
from ...losses import hinge
from ...samplers import epochs
from ...schedules import bottou
from ...types import Loss


@node
class bottou_sgd(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by SGD with the schedule of SVMSGD2.

        eta0 = min(lam^(-1/4), 1/lam),   t0 = 1/(eta0 lam)
        eta_t = 1 / (lam (t + t0)),   t = 0, 1, ...
        w = w - eta_t slope x;   b = b - bias_rate eta_t slope
        w = (1 - eta_t lam) w                                       (after the addition)

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores.
        bias: "none", "feature" (shrunk by (1 - bias_rate eta_t lam)) or "free" (not shrunk).
        bias_rate: factor on the step of the bias, > 0.

    Returns:
        A solver on drawn rows; model `Linear`, the last iterate. Default sampler: epochs of random
        order.

    Raises:
        ValueError: lam or bias_rate not a single positive number, unknown bias.

    Differs from the paper: shrinks at every step (skip = 1, the clean form for dense rows); eta0 is
        capped at 1/lam, without which the first shrink factor is negative for lam > 1; rows in
        random order, where the code takes them as stored (`samplers.epochs(1, shuffle=False)`). The
        rate of the bias is a constant, where the code computes one from a sample. A regularised
        bias shrinks at every step, where the code shrinks it at violating steps only.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.bottou_sgd(2.0), data, jax.random.key(0), steps=200)
        >>> abs(float(result.model.w[0]) - 0.5) < 0.02
        True

    Reference: L. Bottou, svmsgd, 2007 (leon.bottou.org/projects/sgd); J. Rupnik, SiKDD 2008,
        section 4.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["none", "feature", "free"] = "none"
    bias_rate: float = positive(default=0.01)

    sampler = epochs(1)

    def chain(self, stats: object) -> optax.GradientTransformation:
        return add_then_shrink(self.lam, self.bias, self.bias_rate)


def add_then_shrink(lam: float, bias: str, bias_rate: float) -> optax.GradientTransformation:
    """Transform gradients g to p + u = (1 - eta lam) (p - eta g), an addition and then a shrink.

    Only what is regularised shrinks.

    Args:
        lam: regularisation, > 0.
        bias: "none", "feature" or "free".
        bias_rate: factor on the step of the bias.

    Reference: L. Bottou, svmsgd, 2007.
    """
    schedule, mask = bottou(lam), regularised(bias)

    def update(grads, state, params=None):
        eta = schedule(state.count)
        rates = grads._replace(w=eta, b=None if grads.b is None else bias_rate * eta)

        def move(g, p, rate, shrinks):
            u = -jnp.asarray(rate, g.dtype) * g
            return u - jnp.asarray(rate * lam, g.dtype) * (p + u) if shrinks else u

        new = optax.ScaleByScheduleState(optax.safe_increment(state.count))
        return jax.tree.map(move, grads, params, rates, mask), new

    init = lambda params: optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))
    return optax.GradientTransformation(init, update)
