"""Joint risks of all responses: one number for all rows, with a subgradient and the conjugate.

Methods that read all rows at once need no more of a loss than R(f) and u in the subdifferential of
R at f, where f are the responses of the rows. R may couple the rows, as the losses of ranking do.
For every f and f2, R(f2) >= R(f) + <u, f2 - f>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from .numerics import accum_dtype, bisect, fast_max, pairwise_sum, sums, total
from .types import Array, Batch, Loss

__all__ = [
    "Hessian",
    "Risk",
    "best_bias",
    "couples_rows",
    "is_smooth",
    "risk_of",
    "second_order_of",
]

DOUBLINGS = 60  # limit of the search for an interval of biases


class Hessian(NamedTuple):
    """A symmetric positive semi-definite matrix over the rows."""

    product: Callable  # v (n,) -> H v (n,)
    diagonal: Array  # (n,)


class Risk(NamedTuple):
    """A convex function R >= 0 of the responses of all rows.

    The weights of the rows, and the division by their sum, are parts of it.
    """

    # f (n,) or (n, k) -> R (), u as f: the value, and a subgradient
    value_and_slope: Callable
    # u -> sup_f <u, f> - R(f), inf outside its domain; None: not known
    conjugate: Callable | None = None
    # f (n,) -> R (), u (n,) and the derivative of u, a `Hessian`; None: u is not continuous
    second_order: Callable | None = None
    # (n,) bool, the rows that R reads: those of positive weight; None: all
    present: Array | None = None


def risk_of(loss: Any, data: Batch) -> Risk:
    """The risk R(f) = sum_i share_i loss(f_i, y_i) with share_i = weight_i / sum_j weight_j.

    A loss with a function `joint(data) -> Risk` gives that instead.

    Args:
        loss: of scores (n,), or of scores (n, k) and class numbers.
        data: the rows, of which the targets and the weights are read. Rows of weight 0 have no
            effect.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0]], [1, -1], [3.0, 1.0])
        >>> risk = jaxsvm.risks.risk_of(jaxsvm.losses.hinge, data)
        >>> value, slope = risk.value_and_slope(jnp.zeros(2))
        >>> value.item(), slope.tolist()
        (1.0, [-0.75, 0.25])
    """
    if couples_rows(loss):
        return loss.joint(data)
    dtype = accum_dtype(data.x)
    y = data.y.astype(dtype) if jnp.issubdtype(data.y.dtype, jnp.floating) else data.y
    weight = data.weight.astype(dtype)
    share = weight / total(weight)
    present = share > 0
    shaped = lambda a, u: a.reshape(-1, *(1,) * (u.ndim - 1))
    # A weight of 0 times an infinite loss is 0.
    shares = lambda values: jnp.where(shaped(present, values), shaped(share, values) * values, 0)
    mean = lambda values: pairwise_sum(shares(values))
    value_and_slope = lambda f: (mean(loss.value(f, y)), shares(loss.slope(f, y)))

    def conjugate(u):
        divisor = jnp.where(shaped(present, u), shaped(share, u), 1)
        return mean(loss.conjugate(u / divisor, y))

    def second_order(f):
        s = shares(loss.curvature(f, y))
        (value,) = sums((shares(loss.value(f, y)),))  # without derivatives, as all of newton
        return value, shares(loss.slope(f, y)), Hessian(lambda v: s * v, s)

    known = None if loss.conjugate is None else conjugate
    return Risk(value_and_slope, known, second_order if is_smooth(loss) else None, present)


def second_order_of(loss: Loss, data: Batch) -> Callable:
    """The map f -> R (), u (n,), `Hessian` of the risk of a smooth loss.

    Raises:
        ValueError: the slope of the loss is not continuous.
    """
    second_order = risk_of(loss, data).second_order
    if second_order is None:
        raise ValueError(f"the slope of {loss!r} is not continuous: it has no Hessian")
    return second_order


def couples_rows(loss: object) -> bool:
    """Whether a loss has a joint risk of its own, as those of ranking."""
    return getattr(loss, "joint", None) is not None


def is_smooth(loss: Any) -> bool:
    """Whether the slope of a loss is continuous, so that its risk has a Hessian."""
    return getattr(loss, "smooth", False) if couples_rows(loss) else loss.curvature is not None


def best_bias(risk: Risk, f: Array) -> tuple[Array, Array, Array]:
    """The b that minimises R(f + b), by bisection of the sum of the slopes, with value and slope.

    At a kink the slope is a convex combination of those at both ends of the last interval, so that
    its sum is 0: R(f2 + b2) >= R(f + b) + <u, f2 - f> for all f2 and all b2.

    Args:
        risk: R, whose minimum over b exists.
        f: (n,).

    Returns:
        b (), R(f + b) (), and u (n,).
    """

    def balance(b):
        """The sum of the slopes; 0 where it is no more than rounding.

        So the lowest of equally good biases is found, whichever way the rows are summed.
        """
        u = risk.value_and_slope(f + b)[1]
        total = pairwise_sum(u)
        return jnp.where(jnp.abs(total) > tol * pairwise_sum(jnp.abs(u)), total, 0)

    size = jnp.abs(f) if risk.present is None else jnp.where(risk.present, jnp.abs(f), 0)
    tol, reach = 8 * jnp.finfo(f.dtype).eps, fast_max(size) + 1
    # R may be least at all b <= 0, as that of ranking: b = 0, or a sum of such b would grow.
    is_flat = (balance(jnp.zeros_like(reach)) == 0) & (balance(-reach) == 0)
    reach = jnp.where(is_flat, 0, reach)

    def widen(carry):
        k, low, high = carry
        low = jnp.where(balance(low) > 0, 2 * low, low)
        return k + 1, low, jnp.where(balance(high) < 0, 2 * high, high)

    def is_narrow(carry):
        k, low, high = carry
        return (k < DOUBLINGS) & ((balance(low) > 0) | (balance(high) < 0))

    _, low, high = lax.while_loop(is_narrow, widen, (jnp.zeros((), jnp.int32), -reach, reach))
    low, high = bisect(lambda b: ~(balance(b) < 0), low, high, jnp.finfo(f.dtype).nmant + 9)
    (value_low, u_low), (value_high, u_high) = (risk.value_and_slope(f + b) for b in (low, high))
    fall, rise = -pairwise_sum(u_low), pairwise_sum(u_high)
    total = fall + rise
    share = jnp.clip(jnp.where(total > 0, rise / jnp.where(total > 0, total, 1), 0), 0, 1)
    u = share * u_low + (1 - share) * u_high
    return jnp.where(value_low < value_high, low, high), jnp.minimum(value_low, value_high), u
