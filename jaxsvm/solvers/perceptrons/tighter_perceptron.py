"""The tighter budget perceptron."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..._node import node
from ...budget import Change, MatrixMaintenance, Points, remove_point
from ...kernels import Kernel
from ...types import State
from .on_budget import BudgetedPerceptron


@node
class _fewest_errors(MatrixMaintenance):
    """Removal of the point without which the fewest points are misclassified.

    Of several such points the oldest is removed.
    """

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        wrong = jnp.sign(points.coef)[None, :] * points.scores_without(kernel) <= 0
        errors = jnp.sum(wrong, axis=1, dtype=jnp.int32)
        return remove_point(points, points.oldest_of(-errors)), state


@node
class tighter_perceptron(BudgetedPerceptron):
    """The perceptron on a budget, with removal of the point that leaves the fewest errors.

    Errors are misclassified points.

        f = f + [y_i f(x_i) <= 0] y_i k(x_i, .);   f = f - coef_r k(x_r, .)
        r = argmin_r sum_j [y_j (f(x_j) - coef_r k(x_r, x_j)) <= 0],   the oldest of several

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes; the last function
        alone is a noisy estimate. A correction beyond the budget costs O(m^2 d).

    Raises:
        ValueError: budget below 2.

    Differs from the paper: errors are counted on the points of the model (the paper: or on all rows
        so far); example weights multiply the correction; a row that is a point already adds to its
        coefficient and becomes the newest.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.tighter_perceptron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: J. Weston, A. Bordes, L. Bottou, Online (and offline) on an even tighter budget,
        AISTATS 2005, section 3.
    """

    maintain = _fewest_errors()
