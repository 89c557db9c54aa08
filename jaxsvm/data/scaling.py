"""Scaling of columns: pure maps, fitted to the training rows."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from .._node import struct
from ..checks import matrix
from ..numerics import power_of_two
from ..types import Array, SparseRows


@struct
class Standardize:
    """x -> (x - mean) / scale, column by column: a pure map."""

    mean: Array  # (d,)
    scale: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """Standardised rows, (n, d) -> (n, d)."""
        x = _dense(x, self.mean.shape[0])
        return (x - self.mean[None, :]) / self.scale[None, :]


def standardize(x: Array) -> Standardize:
    """The map that gives the columns of `x` mean 0 and standard deviation 1.

    Constant columns become 0.

    Args:
        x: (n, d), the training rows.

    Raises:
        ValueError: x are `SparseRows`, whose zeros would not stay zeros.

    Example:
        >>> x = jnp.array([[1.0], [3.0]])
        >>> standardize(x)(x).tolist()
        [[-1.0], [1.0]]
    """
    x = _dense(x)
    _refuse_empty(x)
    return _standardize(x)


@jax.jit
def _standardize(x: Array) -> Standardize:
    # the computed deviation of such a column is a rounding error
    constant = jnp.max(x, 0) == jnp.min(x, 0)
    # in units of a power of two near the largest number: no sum of squares leaves the range
    unit = power_of_two(jnp.max(jnp.abs(x), 0))
    scaled = x / unit[None, :]
    mean, deviation = unit * jnp.mean(scaled, 0), unit * jnp.std(scaled, 0)
    constant = constant | (deviation < jnp.finfo(x.dtype).tiny)
    deviation = jnp.where(constant, jnp.ones_like(deviation), deviation)
    return Standardize(jnp.where(constant, x[0], mean), deviation)


@struct
class Scale:
    """x -> (x - low) / width, column by column: a pure map."""

    low: Array | None  # (d,)  None: 0, so that zeros stay zeros
    width: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """Scaled rows, (n, d) -> (n, d); `SparseRows` stay sparse."""
        x = matrix("x", x, self.width.shape[0])
        if not isinstance(x, SparseRows):
            return (x if self.low is None else x - self.low[None, :]) / self.width[None, :]
        if self.low is not None:
            raise ValueError(
                "the map was fitted on dense rows and moves zeros: make the rows "
                "dense with x.toarray()"
            )
        width = jnp.asarray(self.width).at[x.index].get(mode="promise_in_bounds")
        return dataclasses.replace(x, value=x.value / width)


def scale(x: Array) -> Scale:
    """The map of the columns of `x` to [0, 1].

    Columns of `SparseRows` are mapped to [-1, 1], where zeros stay zeros.

        dense    (x - min) / (max - min)        sparse    x / max |x|

    Constant columns of dense rows become 0; empty columns of sparse rows stay 0.

    Args:
        x: (n, d), the training rows.

    Example:
        >>> x = jnp.array([[1.0], [3.0], [2.0]])
        >>> scale(x)(x).tolist()
        [[0.0], [1.0], [0.5]]
    """
    x = matrix("x", x)
    _refuse_empty(x)
    return _scale(x)


@jax.jit
def _scale(x: Array) -> Scale:
    if isinstance(x, SparseRows):
        low, size = None, jnp.abs(x.value)
        width = jnp.zeros(x.columns, x.dtype).at[x.index].max(size, mode="promise_in_bounds")
    else:
        low, width = jnp.min(x, 0), jnp.max(x, 0) - jnp.min(x, 0)
    return Scale(low, jnp.where(width > 0, width, jnp.ones_like(width)))


def _dense(x: Array, columns: int | None = None) -> Array:
    x = matrix("x", x, columns)
    if isinstance(x, SparseRows):
        raise ValueError(
            "standardize would make sparse rows dense: use jaxsvm.data.scale, which "
            "keeps zeros, or x.toarray()"
        )
    return x


def _refuse_empty(x: Array) -> None:
    if not x.shape[0]:
        raise ValueError("x has no rows, from which the map of its columns would be made")
