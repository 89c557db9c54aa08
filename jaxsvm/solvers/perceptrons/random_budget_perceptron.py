"""The random budget perceptron."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..._node import node
from ...budget import Change, Maintenance, Points, remove_point
from ...kernels import Kernel
from ...numerics import multiply_high
from ...types import State
from .on_budget import BudgetedPerceptron


@node
class _at_random(Maintenance):
    """Removal of a stored point drawn uniformly."""

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        return remove_point(points, multiply_high(points.bits, jnp.uint32(points.budget))), state


@node
class random_budget_perceptron(BudgetedPerceptron):
    """The perceptron on a budget; it removes a stored point drawn uniformly.

        f = f + [y_i f(x_i) <= 0] y_i k(x_i, .)
        f = f - coef_r k(x_r, .),   r uniform among the stored ones, beyond the budget

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes; the last function
        alone is a noisy estimate.

    Raises:
        ValueError: budget below 2.

    Differs from the paper: example weights multiply the correction; a row that is a point already
        adds to its coefficient.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.random_budget_perceptron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: G. Cavallanti, N. Cesa-Bianchi, C. Gentile, Tracking the best hyperplane with a
        simple budget perceptron, Machine Learning 69, 2007, figure 3.
    """

    maintain = _at_random()
