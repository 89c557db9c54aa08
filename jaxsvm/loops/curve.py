"""Accumulate step infos into a row of the curve.

They are kept in two small vectors, as each array of a carry costs time.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..numerics import add_counts
from ..types import Array, Count, Curve, Info

# (2,) sum of losses, last residual; (3,) int32 support, evaluations in two parts
Sums = tuple[Array, Array]


def empty_sums(info: Info) -> Sums:
    """The sums over no steps, for infos of these types."""
    return jnp.zeros(2, info.loss.dtype), jnp.zeros(3, jnp.int32)


def add_info(sums: Sums, info: Info) -> Sums:
    """The sums with one more step."""
    floats, ints = sums
    floats = jnp.stack([floats[0] + info.loss, jnp.asarray(info.residual, floats.dtype)])
    evals = add_counts(Count(ints[1], ints[2]), info.evals)
    return floats, jnp.stack([jnp.asarray(info.support, jnp.int32), evals.high, evals.low])


def curve_row(sums: Sums, step: Array, count: Any, probe: Any) -> Curve:
    """The row of the curve for a chunk of steps.

    Args:
        sums: over the steps of the chunk.
        step: () int32, number of steps before the chunk.
        count: number of steps in the chunk, () or a Python integer.
        probe: result of the probe.
    """
    # The barrier keeps a division: by a constant, XLA compiles a product with its inverse, which
    # rounds differently.
    steps = lax.optimization_barrier(jnp.asarray(count, jnp.int32))
    (loss, residual), (support, high, low) = sums
    residual = jnp.where(steps > 0, residual, jnp.full_like(residual, jnp.nan))
    # saturates instead of overflowing
    step = jnp.minimum(step, jnp.iinfo(jnp.int32).max - steps) + steps
    return Curve(
        step, loss / steps.astype(loss.dtype), residual, support, jnp.stack([high, low]), probe
    )
