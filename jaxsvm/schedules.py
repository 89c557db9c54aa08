"""Step size schedules that optax lacks: functions of the step count, from 0."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from .checks import as_number, check_nonnegative, integer, positive_number
from .types import Array, Scalar

__all__ = ["averaged_sgd", "bottou", "bottou_eta0", "inverse_sqrt", "inverse_time"]


def _number(count: Array, like: Scalar) -> Array:
    """The count in the dtype of `like`; strict promotion would refuse int32 with float32."""
    dtype = jnp.asarray(like).dtype
    return jnp.asarray(count, dtype if jnp.issubdtype(dtype, jnp.inexact) else float)


def inverse_time(scale: float, offset: float = 0.0) -> Callable[[Array], Array]:
    """The schedule scale / (count + 1 + offset): the step of Pegasos with scale = 1/lam.

    Args:
        scale: step size times step number, > 0.
        offset: initial value of the step counter, >= 0.

    Example:
        >>> import jaxsvm
        >>> [float(jaxsvm.schedules.inverse_time(2.0)(t)) for t in (0, 1)]
        [2.0, 1.0]
    """
    check_nonnegative(offset=offset)
    scale, offset = positive_number("scale", scale), as_number("offset", offset)
    return lambda count: scale / (_number(count, scale) + 1 + offset)


def inverse_sqrt(scale: float) -> Callable[[Array], Array]:
    """The schedule scale / sqrt(count + 1): the step of robust stochastic approximation.

    Args:
        scale: the first step size, > 0.
    """
    scale = positive_number("scale", scale)
    return lambda count: scale / jnp.sqrt(_number(count, scale) + 1)


def bottou(lam: float) -> Callable[[Array], Array]:
    """The schedule 1 / (lam (count + t0)), t0 = 1 / (eta0 lam): the step of SVMSGD2.

    eta0 = min(lam^(-1/4), 1/lam). eta0 suits weights of the expected norm, for rows of norm about
    1. It is capped for lam > 1, where the first shrink factor would be negative.

    Args:
        lam: regularisation, > 0.

    Reference: L. Bottou, svmsgd (2007); N. Murata's and his heuristic for eta0.
    """
    eta0, lam = bottou_eta0(lam), as_number("lam", lam)
    return lambda count: 1 / (lam * (_number(count, lam) + 1 / (eta0 * lam)))


def bottou_eta0(lam: float) -> Array:
    """min(lam^(-1/4), 1/lam), the first step size of `bottou` and of averaged SGD."""
    number = jnp.asarray(positive_number("lam", lam))
    return jnp.minimum(number**-0.25, 1 / number)


def averaged_sgd(lam: float, start: int) -> Callable[[Array], Array]:
    """The schedule of averaged SGD: eta0 / (1 + lam eta0 t) for t < start.

    From `start` on it is eta0 / (1 + lam eta0 (t - start))^0.75.

    eta0 = min(lam^(-1/4), 1/lam), as in `bottou`.

    Args:
        lam: regularisation, > 0.
        start: number of steps before averaging, >= 0.

    Reference: W. Xu, Towards optimal one pass large scale learning with averaged stochastic
        gradient descent, arXiv 1107.2490, 2011; L. Bottou, svmasgd (2010).
    """
    integer("start", start, 0)
    eta0, lam = bottou_eta0(lam), as_number("lam", lam)

    def schedule(count: Array) -> Array:
        before = eta0 / (1 + lam * eta0 * _number(count, lam))
        after = eta0 / (1 + lam * eta0 * _number(jnp.maximum(count - start, 0), lam)) ** 0.75
        return jnp.where(count < start, before, after)

    return schedule
