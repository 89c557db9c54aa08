"""The self-tuned Forgetron."""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import DTypeLike

from ..._node import node
from ...budget import Change, Maintenance, Points, remove_point
from ...kernels import Kernel
from ...numerics import dot, index_row
from ...types import Array
from .on_budget import BudgetedPerceptron


@node
class _shrink_and_forget(Maintenance):
    """Shrinkage of all coefficients and removal of the oldest point.

    The shrink factor is the largest that the damage bound allows.
    """

    def change(self, kernel: Kernel, points: Points, state: Array) -> tuple[Change, Array]:
        r, mistakes = points.oldest, (points.birth[-1] + 1).astype(points.coef.dtype)
        sigma = jnp.abs(index_row(points.coef, r))
        mu = jnp.sign(index_row(points.coef, r)) * dot(points.values_of(kernel, r), points.coef)
        phi = shrinkage(sigma, mu, state, mistakes)
        damage = state + (sigma * phi) ** 2 + 2 * sigma * phi * (1 - phi * mu)
        return remove_point(points, r, phi * points.coef), damage

    def memory(self, dtype: DTypeLike) -> Array:
        return jnp.zeros((), dtype)

    def evals(self, budget: int) -> int:
        return budget


def shrinkage(sigma: Array, mu: Array, damage: Array, mistakes: Array) -> Array:
    """The largest phi in (0, 1] that keeps the damage within its bound.

        (sigma phi)^2 + 2 sigma phi (1 - phi mu) + damage <= 15/32 mistakes

    The formula of the root is valid for every sign of the leading coefficient.

    Reference: O. Dekel, S. Shalev-Shwartz, Y. Singer, The Forgetron, SIAM Journal on Computing 37,
        2008, section 5.
    """
    a, b, c = sigma * sigma - 2 * sigma * mu, 2 * sigma, damage - 15 / 32 * mistakes
    root = jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0))
    phi = -2 * c / jnp.where(b + root > 0, b + root, 1)
    return jnp.where(a + b + c <= 0, 1, jnp.clip(phi, 0, 1))


@node
class forgetron(BudgetedPerceptron):
    """The perceptron on a budget; it shrinks the function and removes the oldest point.

        f' = f + [y_i f(x_i) <= 0] y_i k(x_i, .);   f = phi (f' - coef_r k(x_r, .)),   r the oldest
        phi the largest in (0, 1] with Q + (|coef_r| phi)^2 + 2 |coef_r| phi (1 - phi y_r f'(x_r))
            <= 15/32 mistakes;   Q that sum

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes; the last function
        alone is a noisy estimate.

    Raises:
        ValueError: budget below 2.

    Differs from the paper: the formula of the root is valid for every sign of the leading
        coefficient (public implementations return a root above 1 if it is negative); example
        weights multiply the correction; a row that is a point already adds to its coefficient and
        becomes the newest.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.forgetron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: O. Dekel, S. Shalev-Shwartz, Y. Singer, The Forgetron: a kernel-based perceptron on a
        budget, SIAM Journal on Computing 37, 2008, figure 3 (self-tuned).
    """

    maintain = _shrink_and_forget()
