"""Accumulate step infos into a row of the curve.

They are kept in two small vectors, as each array of a carry costs time.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numerics import two_sum
from ..types import Array, Curve, Info

# (4,) sum of losses, last residual, evaluations and their rounding; () int32 support
Sums = tuple[Array, Array]


def empty_sums(info: Info) -> Sums:
    """The sums over no steps, for infos of these types."""
    return jnp.zeros(4, info.loss.dtype), jnp.zeros((), jnp.int32)


def add_info(sums: Sums, info: Info) -> Sums:
    """The sums with one more step."""
    floats, _ = sums
    evals = two_sum(floats[2], floats[3], info.evals.astype(floats.dtype))
    residual = jnp.asarray(info.residual, floats.dtype)
    floats = jnp.stack([floats[0] + info.loss, residual, *evals])
    return floats, jnp.asarray(info.support, jnp.int32)


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
    (loss, residual, evals, rounding), support = sums
    residual = jnp.where(steps > 0, residual, jnp.full_like(residual, jnp.nan))
    # saturates instead of overflowing
    step = jnp.minimum(step, jnp.iinfo(jnp.int32).max - steps) + steps
    mean_loss = loss / steps.astype(loss.dtype)
    return Curve(step, mean_loss, residual, support, evals + rounding, probe)


def row_on_host(row: Curve) -> Curve:
    """A row of the curve, on the host where it is of numbers."""
    return jax.tree.map(lambda a: a if _is_key(a) else np.asarray(a), row)


def rows_of_curve(rows: list[Curve], like: Any) -> Curve:
    """The rows of the curve as one table; without rows an empty one, of the types of `like`."""
    if not rows:
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)
    # by NumPy, as JAX compiles a program for each number of rows
    stack = lambda *a: jnp.stack(a) if _is_key(a[0]) else np.stack(a)
    return jax.device_put(jax.tree.map(stack, *rows))


def _is_key(a: Any) -> bool:
    return jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
