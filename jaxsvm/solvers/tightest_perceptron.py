"""The tightest perceptron."""

from __future__ import annotations

import jax.numpy as jnp

from ..budget import Maintenance, maintenance, remove_point
from ..engines.online import perceptron_on
from ..kernels import Kernel
from ..numerics import argmax_value
from ..recipe import solver
from ..spaces import budgeted
from ..types import Solver


@maintenance
def _likely_errors() -> Maintenance:
    """The point goes without which points are right with the greatest probability; of several the oldest."""

    def note(y):  # rows of label +1 and of label -1 whose nearest point it is: itself
        return jnp.stack([(y > 0).astype(y.dtype), (y <= 0).astype(y.dtype)])

    def seen(counts, values, live, y):
        nearest, _ = argmax_value(jnp.where(live, values, -jnp.inf))
        return counts.at[nearest].add(jnp.where(jnp.any(live), note(y), 0), mode="promise_in_bounds")

    def change(kernel, points, memo):
        positive = (points.annotations[:, 0] + 1) / (jnp.sum(points.annotations, axis=1) + 2)  # the mean of a Beta law
        score = points.scores_without(kernel)
        right = jnp.sum(jnp.where(score > 0, positive, 1 - positive), axis=1)
        age = points.birth.astype(right.dtype) / (points.birth[-1] + 1).astype(right.dtype)
        return remove_point(points, argmax_value(right - 1e-3 * age)[0]), memo

    return Maintenance(change, annotate=note, observe=seen, evals=lambda budget: (budget + 1) ** 2)


@solver
def tightest_perceptron(kernel: Kernel, *, budget: int) -> Solver:
    """The perceptron; where it has more than `budget` points, the one goes without which they are most likely right.

        p_j = (1 + rows of label +1 nearest to x_j) / (2 + rows nearest to x_j);   f = f + [y_i f(x_i) <= 0] y_i k(x_i, .)
        r = argmax_r sum_j P_j(sign(f(x_j) - coef_r k(x_r, x_j))),   P_j(+1) = p_j, P_j(-1) = 1 - p_j;   f = f - coef_r k(x_r, .)

    Nearest is the stored point of the largest k, when the row comes; a point begins with itself.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points; default feed epochs of random order. The mean of
        `info.loss` over a pass is the rate of mistakes; the last function alone says little. A correction beyond the
        budget costs O(m^2 d).

    Raises:
        ValueError: budget below 2.

    Differs from the paper: a uniform prior of the class probabilities; age counts for up to a thousandth of a point;
        example weights multiply the correction; a row that is a point already adds to its coefficient.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = tightest_perceptron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: Z. Wang, S. Vucetic, Tighter perceptron with improved dual use of cached data for model representation and
        validation, IJCNN 2009.
    """
    return perceptron_on(budgeted(kernel, budget=budget, maintain=_likely_errors()))
