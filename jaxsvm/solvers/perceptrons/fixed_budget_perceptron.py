"""The perceptron on a fixed budget."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..._node import node
from ...budget import Change, MatrixMaintenance, Points, remove_point
from ...kernels import Kernel
from ...numerics import argmax_value
from ...types import State
from .on_budget import BudgetedPerceptron


@node
class _best_without(MatrixMaintenance):
    """Removal of the point that the others classify with the largest margin."""

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        margin = jnp.sign(points.coef) * jnp.diagonal(points.scores_without(kernel))
        return remove_point(points, argmax_value(margin)[0]), state


@node
class fixed_budget_perceptron(BudgetedPerceptron):
    """The perceptron on a budget, with removal of the point of largest margin.

    The margin of a point is computed from the other points.

        f = f + [y_i f(x_i) <= 0] y_i k(x_i, .)
        r = argmax_j y_j (f(x_j) - coef_j k(x_j, x_j));   f = f - coef_r k(x_r, .)

    Suitable for separable classes. Where classes overlap, misclassified points remain.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes; the last function
        alone is a noisy estimate. A correction beyond the budget costs O(m^2 d).

    Raises:
        ValueError: budget below 2.

    Differs from the paper: corrections on mistakes only (the paper allows a margin); one point is
        removed, and only beyond the budget; example weights multiply the correction; a row that is
        a point already adds to its coefficient.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.fixed_budget_perceptron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: K. Crammer, J. Kandola, Y. Singer, Online classification on a budget, NIPS 2003,
        figure 1.
    """

    maintain = _best_without()
