"""The tightest perceptron."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..._node import node
from ...budget import Change, MatrixMaintenance, Points, remove_point
from ...kernels import Kernel
from ...numerics import argmax_value
from ...types import Array, State
from .on_budget import BudgetedPerceptron


@node
class _likely_errors(MatrixMaintenance):
    """Removal of the point without which the expected accuracy on the points is highest.

    Of several such points the oldest is removed.
    """

    def annotate(self, y: Array) -> Array:
        # label counts of the rows nearest to the point; at first its own label
        return jnp.stack([(y > 0).astype(y.dtype), (y <= 0).astype(y.dtype)])

    def observe(self, annotations: Array, values: Array, live: Array, y: Array) -> Array:
        nearest, _ = argmax_value(jnp.where(live, values, -jnp.inf))
        new = jnp.where(jnp.any(live), self.annotate(y), 0)
        return annotations.at[nearest].add(new, mode="promise_in_bounds")

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        # the mean of a beta distribution
        positive = (points.annotations[:, 0] + 1) / (jnp.sum(points.annotations, axis=1) + 2)
        score = points.scores_without(kernel)
        accuracy = jnp.sum(jnp.where(score > 0, positive, 1 - positive), axis=1)
        age = points.birth.astype(accuracy.dtype) / (points.birth[-1] + 1).astype(accuracy.dtype)
        return remove_point(points, argmax_value(accuracy - 1e-3 * age)[0]), state


@node
class tightest_perceptron(BudgetedPerceptron):
    """The perceptron on a budget, with removal by the expected accuracy on the points.

    The point is removed without which that accuracy is highest.

        p_j = (1 + rows of label +1 nearest to x_j) / (2 + rows nearest to x_j)
        f = f + [y_i f(x_i) <= 0] y_i k(x_i, .)
        r = argmax_r sum_j P_j(sign(f(x_j) - coef_r k(x_r, x_j))),
            P_j(+1) = p_j, P_j(-1) = 1 - p_j
        f = f - coef_r k(x_r, .)

    Nearest is the stored point of largest k at the time of the row; the counts of a new point
    include itself.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes; the last function
        alone is a noisy estimate. A correction beyond the budget costs O(m^2 d).

    Raises:
        ValueError: budget below 2.

    Differs from the paper: a uniform prior of the class probabilities; age counts for up to a
        thousandth of a point; example weights multiply the correction; a row that is a point
        already adds to its coefficient and becomes the newest.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.tightest_perceptron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: Z. Wang, S. Vucetic, Tighter perceptron with improved dual use of cached data for
        model representation and validation, IJCNN 2009.
    """

    maintain = _likely_errors()
