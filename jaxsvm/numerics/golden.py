"""Golden-section search."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from ..types import Array


def golden_section(value: Callable, low: Array, high: Array, steps: int) -> Array:
    """The maximiser of a function with one maximum on [low, high], to 0.618^steps of the interval, one search an element.

    The better end of the last interval; the left part is kept where two values are equal.

    Args:
        value: (...,) -> (...,), finite at `low`; it may be -inf from some point on.
        low: (...,).
        high: (...,).
        steps: whole number, structure.
    """
    ratio = (5**0.5 - 1) / 2

    def narrow(_, ends):
        low, high = ends
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        leftwards = value(left) >= value(right)
        return jnp.where(leftwards, low, left), jnp.where(leftwards, right, high)

    low, high = lax.fori_loop(0, steps, narrow, (low, high))
    return jnp.where(value(high) >= value(low), high, low)
