"""Scaling of columns: pure maps, fitted to the training rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import struct
from ..checks import check_rows, matrix
from ..numerics import is_traced, power_of_two
from ..types import Array, Rows, SparseRows


@struct
class Standardize:
    """x -> (x - mean) / scale, column by column: a pure map."""

    mean: Array  # (d,)
    scale: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """Standardised rows, (n, d) -> (n, d)."""
        return _compute(_shifted, _dense(x, self.mean.shape[0]), self.mean, self.scale)


def standardize(x: Array) -> Standardize:
    """The map that gives the columns of `x` mean 0 and standard deviation 1.

    Constant columns become 0.

    Args:
        x: (n, d), the training rows.

    Raises:
        ValueError: x are `SparseRows`, whose zeros would not stay zeros.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> x = jnp.array([[1.0], [3.0]])
        >>> jaxsvm.data.standardize(x)(x).tolist()
        [[-1.0], [1.0]]
    """
    x = _dense(x)
    check_rows(x)
    return Standardize(*_compute(_moments, x))


def _moments(x: Array) -> tuple[Array, Array]:
    """The mean and the deviation of each column; of a constant one its number and 1."""
    xp = np if isinstance(x, np.ndarray) else jnp
    dtype = x.dtype
    # the computed deviation of such a column is a rounding error
    constant = xp.max(x, 0) == xp.min(x, 0)
    # in units of a power of two near the largest number: no sum of squares leaves the range
    unit = power_of_two(xp.max(xp.abs(x), 0))
    scaled = (x / unit[None, :]).astype(np.float64 if xp is np else dtype)
    mean, deviation = (unit * of(scaled, 0) for of in (xp.mean, xp.std))
    constant = constant | (deviation < jnp.finfo(dtype).tiny)
    pair = xp.where(constant, x[0], mean), xp.where(constant, 1, deviation)
    return pair[0].astype(dtype), pair[1].astype(dtype)


@struct
class Scale:
    """x -> (x - low) / width, column by column: a pure map."""

    low: Array | None  # (d,)  None: 0, so that zeros stay zeros
    width: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """Scaled rows, (n, d) -> (n, d); `SparseRows` stay sparse."""
        x = matrix("x", x, self.width.shape[0])
        if not isinstance(x, SparseRows):
            low = np.zeros(1, x.dtype) if self.low is None else self.low
            return _compute(_shifted, x, low, self.width)
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
        >>> import jax.numpy as jnp, jaxsvm
        >>> x = jnp.array([[1.0], [3.0], [2.0]])
        >>> jaxsvm.data.scale(x)(x).tolist()
        [[0.0], [1.0], [0.5]]
    """
    x = matrix("x", x)
    check_rows(x)
    return Scale(*_compute(_ranges, x))


def _ranges(x: Rows) -> tuple[Array | None, Array]:
    """The smallest number and the range of each column; of sparse rows None and the largest."""
    xp = np if isinstance(x, np.ndarray) else jnp
    if isinstance(x, SparseRows):
        low, size = None, jnp.abs(x.value)
        width = jnp.zeros(x.columns, x.dtype).at[x.index].max(size, mode="promise_in_bounds")
    else:
        low, width = xp.min(x, 0), xp.max(x, 0) - xp.min(x, 0)
    return low, xp.where(width > 0, width, xp.ones_like(width))


def _shifted(x: Array, low: Array, width: Array) -> Array:
    """The rows minus `low`, in units of `width`."""
    return (x - low[None, :]) / width[None, :]


def _compute(fn: Callable, x: Rows, *numbers: object) -> Any:
    """`fn` of rows of NumPy by NumPy, which compiles nothing, and of others by one program."""
    if isinstance(x, np.ndarray) and not is_traced(numbers):
        with np.errstate(all="ignore"):
            return jax.device_put(fn(x, *map(np.asarray, numbers)))
    return jax.jit(fn)(x, *numbers)


def _dense(x: Array, columns: int | None = None) -> Array:
    x = matrix("x", x, columns)
    if isinstance(x, SparseRows):
        raise ValueError(
            "standardize would make sparse rows dense: use jaxsvm.data.scale, which "
            "keeps zeros, or x.toarray()"
        )
    return x
