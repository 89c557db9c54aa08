"""Padded sparse rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..types import LANE_WIDTH, SparseRows


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
