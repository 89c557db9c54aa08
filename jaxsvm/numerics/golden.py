"""Golden-section search and bisection."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from ..types import Array


def golden_section(value: Callable, low: Array, high: Array, steps: int) -> Array:
    """The maximiser of a unimodal function on [low, high], elementwise.

    It is found to 0.618^steps of the interval. The result is the better end of the last interval.
    In a tie the left part is kept.

    Args:
        value: (...,) -> (...,), finite at `low`; it may be -inf beyond some point.
        low: (...,) lower ends.
        high: (...,) upper ends.
        steps: number of steps; structure.
    """
    ratio = (5**0.5 - 1) / 2

    def narrow(_, ends):
        low, high = ends
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        go_left = value(left) >= value(right)
        return jnp.where(go_left, low, left), jnp.where(go_left, right, high)

    low, high = lax.fori_loop(0, steps, narrow, (low, high))
    return jnp.where(value(high) >= value(low), high, low)


def bisect(is_above: Callable, low: Array, high: Array, steps: int) -> tuple[Array, Array]:
    """The ends of an interval that is halved `steps` times, elementwise; of floats or integers.

    `is_above(t)` says that the number that is sought is at most t.
    """

    def halve(_, ends):
        low, high = ends
        is_whole = jnp.issubdtype(low.dtype, jnp.integer)
        middle = low + (high - low) // 2 if is_whole else (low + high) / 2
        above = is_above(middle)
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    return lax.fori_loop(0, steps, halve, (low, high))
