"""The layout of sparse rows that products read fastest."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..types import LANE_WIDTH, Batch, SparseRows
from .reductions import is_traced
from .sparse_products import pack_rows


def packed_by_reference(data: Batch) -> Batch:
    """Sparse rows packed and given by reference, which products read fastest; on a CPU."""
    packed: Any = None if is_traced(data.x) else pack_rows(data.x)
    if packed is None:
        return data
    rows = jnp.arange(packed.shape[0], dtype=jnp.int32)
    return data._replace(x=dataclasses.replace(packed, rows=rows))


def pack_lists(index: Any, value: Any, length: Any, columns: int) -> SparseRows:
    """Sparse rows packed and by reference, from the entries of all rows one after the other.

    The rows begin at multiples of `LANE_WIDTH`. Sizes are rounded up, so that few shapes exist, and
    so few programs.

    Args:
        index: (m,) their columns, on the host.
        value: (m,)
        length: (n,) entries of each row.
        columns: d.
    """
    length = np.asarray(length, np.int32)
    room = -(-length // LANE_WIDTH) * LANE_WIDTH
    offset, n = np.cumsum(room) - room, len(length)
    narrow = np.int32 if room.sum() < 2**31 else np.int64  # made in less time
    place = np.repeat((offset - np.cumsum(length) + length).astype(narrow), length)
    place = (place + np.arange(len(place), dtype=narrow)).astype(np.intp)
    width = bucket_size(max(int(room.max(initial=0)), LANE_WIDTH), LANE_WIDTH)
    total = max(bucket_size(int(room.sum()), 4096), width)
    shape = (-(-total // width), width)
    # cast before it is put in place, which takes a third of the time
    index = np.asarray(index).astype(np.uint16 if columns <= 2**16 else np.int32)
    packed = np.zeros(shape, index.dtype), np.zeros(shape, value.dtype)
    for flat, entries in zip(packed, (index, value), strict=True):
        flat.reshape(-1)[place] = entries
    small = length, np.arange(n, dtype=np.int32), offset.astype(np.int32)
    (index, value), (length, rows, offset) = jax.device_put((packed, small))
    return SparseRows(index, value, length, columns, rows, offset)


def bucket_size(n: int, least: int = 256) -> int:
    """The size of n numbers with padding, so that few sizes exist.

    It is a multiple of `least`, or of a power of 2 of at most n/8 where that is larger.
    """
    step = max(least, 1 << max(n.bit_length() - 4, 0))
    return -(-n // step) * step


def listed_entries(x: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments `index`, `value` and `length` of `pack_lists`, of known rows."""
    rows = slice(None) if x.rows is None else np.asarray(x.rows)
    length, width = np.asarray(x.length)[rows], x.value.shape[1]
    offset = np.arange(len(x.length)) * width if x.offsets is None else np.asarray(x.offsets)
    place = np.repeat(offset[rows] - np.cumsum(length) + length, length) + np.arange(length.sum())
    flat = lambda a: np.asarray(a).reshape(-1)[place]
    return flat(x.index), flat(x.value), length
