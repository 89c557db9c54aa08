"""The step infos of a piece, accumulated into a row of the curve: two small vectors, as each part of a carry costs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..numerics import add_counts
from ..types import Array, Count, Curve, Info

Sums = tuple[Array, Array]  # (2,) sum of losses, last residual; (3,) int32 support, evaluations in two parts


def empty_sums(info: Info) -> Sums:
    """The sums of no steps, for infos of these types."""
    return jnp.zeros(2, info.loss.dtype), jnp.zeros(3, jnp.int32)


def add_info(sums: Sums, info: Info) -> Sums:
    """The sums with one more step."""
    floats, ints = sums
    floats = jnp.stack([floats[0] + info.loss, jnp.asarray(info.residual, floats.dtype)])
    spent = add_counts(Count(ints[1], ints[2]), info.evals)
    return floats, jnp.stack([jnp.asarray(info.support, jnp.int32), spent.high, spent.low])


def curve_row(sums: Sums, step: Array, count: Any, probe: Any) -> Curve:
    """The piece as a row of the curve.

    Args:
        sums: over all its steps.
        step: () int32, steps before it.
        count: its steps, a number or ().
        probe: what the probe found.
    """
    # Behind a barrier, as a division by a number known beforehand is compiled to a product, which rounds differently.
    made = lax.optimization_barrier(jnp.asarray(count, jnp.int32))
    (loss, residual), (support, high, low) = sums
    residual = jnp.where(made > 0, residual, jnp.full_like(residual, jnp.nan))
    step = jnp.minimum(step, jnp.iinfo(jnp.int32).max - made) + made  # where it would overflow, it stands still
    return Curve(step, loss / made.astype(loss.dtype), residual, support, jnp.stack([high, low]), probe)
