"""Averaged stochastic gradient descent."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal

import optax

from ..._node import between, node, positive
from ...averaging import average_iterates
from ...engines.gradient_descent import GradientSolver, descent
from ...losses import hinge
from ...samplers import epochs
from ...schedules import averaged_sgd
from ...types import Loss


@node
class asgd(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by averaged SGD with long steps.

        eta0 = min(lam^(-1/4), 1/lam)
        eta_t = eta0 / (1 + lam eta0 t),   t < average_from;
            eta0 / (1 + lam eta0 (t - average_from))^(3/4) after
        u = (1 - lam eta_t) u - eta_t slope x;   b = b - bias_rate eta_t slope
        returned: the mean of the iterates from step average_from on

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores.
        average_from: steps before the averaging begins, >= 0; about one pass.
        bias: "none", "feature" (regularised) or "free".
        bias_rate: factor on the step of the bias, > 0.

    Returns:
        A solver on drawn rows; model `Linear`. Default sampler: epochs of random order.

    Raises:
        ValueError: lam or bias_rate not a single positive number, average_from below 0 or not an
            integer, unknown bias.

    Differs from the paper: the mean is uniform (without mu0 of the code); the averaged bias moves
        at every step (svmasgd of 2010 averages it on violating steps only), with `bias_rate`
        throughout (svmasgd: before the averaging begins); eta0 is capped at 1/lam. The step starts
        again at eta0 where the averaging begins, as in svmasgd; other versions of that program go
        on with the step reached.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.asgd(1.0, average_from=100)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=2000)
        >>> abs(float(result.model.w[0]) - 1) < 0.05
        True

    Reference: W. Xu, Towards optimal one pass large scale learning with averaged stochastic
        gradient descent, arXiv 1107.2490, 2011; L. Bottou, svmasgd, 2010.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    average_from: int = between(0, default=10_000)
    bias: Literal["none", "feature", "free"] = "none"
    bias_rate: float = positive(default=0.01)

    sampler = epochs(1)

    def chain(self, stats: object) -> optax.GradientTransformation:
        step = optax.scale_by_learning_rate(averaged_sgd(self.lam, self.average_from))
        bias_step = optax.chain(step, optax.scale(self.bias_rate))
        tx = descent(self.lam, step, self.bias, bias_step=bias_step)
        return optax.chain(tx, average_iterates(start=self.average_from))
