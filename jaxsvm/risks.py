"""Joint risks of all responses: one number for all rows, with a subgradient and the conjugate.

Methods that read all rows at once need no more of a loss than R(f) and u in the subdifferential of
R at f, where f are the responses of the rows. R may couple the rows, as the losses of ranking do.
For every f and f2, R(f2) >= R(f) + <u, f2 - f>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from .numerics import accum_dtype, pairwise_sum
from .types import Array, Batch, Loss

__all__ = ["Risk", "risk_of"]


class Risk(NamedTuple):
    """A convex function R >= 0 of the responses of all rows.

    The weights of the rows, and the division by their sum, are parts of it.
    """

    # f (n,) or (n, k) -> R (), u as f: the value, and a subgradient
    value_and_slope: Callable
    # u -> sup_f <u, f> - R(f), inf outside its domain; None: not known
    conjugate: Callable | None = None


def risk_of(loss: Loss, data: Batch) -> Risk:
    """The risk R(f) = sum_i share_i loss(f_i, y_i) with share_i = weight_i / sum_j weight_j.

    A loss with a function `joint(data) -> Risk` gives that instead.

    Args:
        loss: of scores (n,), or of scores (n, k) and class numbers.
        data: the rows, of which the targets and the weights are read. Rows of weight 0 have no
            effect.

    Example:
        >>> import jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [1, -1], [3.0, 1.0])
        >>> risk, slope = risk_of(jaxsvm.losses.hinge, data).value_and_slope(jnp.zeros(2))
        >>> risk.item(), slope.tolist()
        (1.0, [-0.75, 0.25])
    """
    joint: Any = getattr(loss, "joint", None)
    if joint is not None:
        return joint(data)
    dtype = accum_dtype(data.x)
    y = data.y.astype(dtype) if jnp.issubdtype(data.y.dtype, jnp.floating) else data.y
    weight = data.weight.astype(dtype)
    share = weight / pairwise_sum(weight)
    shaped = lambda u: share.reshape(-1, *(1,) * (u.ndim - 1))
    # A weight of 0 times an infinite loss is 0.
    mean = lambda values: pairwise_sum(jnp.where(share > 0, share * values, 0))

    def value_and_slope(f):
        slope = loss.slope(f, y)
        return mean(loss.value(f, y)), jnp.where(shaped(slope) > 0, shaped(slope) * slope, 0)

    def conjugate(u):
        divisor = jnp.where(shaped(u) > 0, shaped(u), 1)
        return mean(loss.conjugate(u / divisor, y))

    return Risk(value_and_slope, conjugate)
