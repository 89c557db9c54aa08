"""Padding: sparse rows to one width, rows and columns to sizes of a series."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..checks import matrix
from ..types import LANE_WIDTH, Array, SparseRows

PADDED_COLUMNS = 64  # the least number of columns of padded data sets


def series_size(n: int, least: int) -> int:
    """The first of least, 2 least, 4 least, ... of at least n."""
    return max(least, 1 << max(n - 1, 0).bit_length())


def with_zero_columns(x: Any, width: int) -> Any:
    """Rows of `width` columns with columns of zeros behind them, as `dataset(pad=True)` lays them.

    Rows that have them are unchanged, and all rows if `width` is 0.

    Raises:
        ValueError: another number of columns.
    """
    size = series_size(width, PADDED_COLUMNS)
    if not width or x.shape[-1] == size:
        return x
    x = matrix("x", x, width)
    if isinstance(x, SparseRows):
        return dataclasses.replace(x, columns=size)
    return _to_width(x, size)


def widened(x: SparseRows, width: int) -> SparseRows:
    """Rows with more places for entries, `width` in each; they are plain."""
    return dataclasses.replace(x, index=_to_width(x.index, width), value=_to_width(x.value, width))


def _to_width(a: Array, width: int) -> Array:
    pad = np.pad if isinstance(a, np.ndarray) else jnp.pad
    return pad(a, ((0, 0), (0, width - a.shape[1])))


def pad_rows(x: Any) -> SparseRows:
    """The rows of a CSR matrix, padded to the longest and to a multiple of `LANE_WIDTH`.

    Args:
        x: `indptr`, `indices`, `data`, `shape` and `dtype` as in SciPy.
    """
    length = np.diff(x.indptr)
    shape = x.shape[0], max(-(-int(length.max(initial=0)) // LANE_WIDTH) * LANE_WIDTH, LANE_WIDTH)
    try:
        index, value = np.zeros(shape, np.int32), np.zeros(shape, x.dtype)
    except MemoryError as error:
        needed = shape[0] * shape[1] * (4 + x.dtype.itemsize)
        raise ValueError(
            f"x takes {needed:.3g} bytes with its rows padded to the longest, {shape[1]} numbers: "
            "drop or cut the longest rows"
        ) from error
    row = np.repeat(np.arange(shape[0]), length)
    place = np.arange(len(row)) - np.repeat(x.indptr[:-1], length)
    index[row, place], value[row, place] = x.indices, x.data
    return SparseRows(
        jnp.asarray(index), jnp.asarray(value), jnp.asarray(length, jnp.int32), int(x.shape[1])
    )
