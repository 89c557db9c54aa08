"""Scaling of columns: pure maps, fitted on the training rows."""

from __future__ import annotations

import jax.numpy as jnp

from ..recipe import struct
from ..types import Array


@struct
class Standardize:
    """x -> (x - mean) / scale, column by column: a pure map."""

    mean: Array  # (d,)
    scale: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """(n, d) -> (n, d)."""
        return (x - self.mean[None, :]) / self.scale[None, :]


def standardize(x: Array) -> Standardize:
    """The map that gives the columns of `x` mean 0 and standard deviation 1; constant columns become 0.

    Args:
        x: (n, d), the training rows.

    Example:
        >>> x = jnp.array([[1.0], [3.0]])
        >>> standardize(x)(x).tolist()
        [[-1.0], [1.0]]
    """
    constant = jnp.max(x, 0) == jnp.min(x, 0)  # the deviation of such a column is a rounding of 0
    mean, deviation = jnp.mean(x, 0), jnp.std(x, 0)
    return Standardize(jnp.where(constant, x[0], mean), jnp.where(constant, jnp.ones_like(deviation), deviation))
