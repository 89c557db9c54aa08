"""Chunks of data that is larger than memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..checks import check_rows, integer, is_sparse, refuse_masked
from ..models import Classes
from ..models.frames import column_names, frame_numbers, is_frame
from ..types import Batch


class Chunks:
    """A sequence of batches of at most `rows` rows.

    It has `len`, `chunks[i]`, and `chunks[i:]` for the rest.
    """

    def __init__(self, parts: Batch, rows: int) -> None:
        """Split `parts`; see `chunks`."""
        self.parts, self.rows = parts, rows

    def __len__(self) -> int:
        return -(-self.parts.y.shape[0] // self.rows)

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            if step != 1 or stop != len(self):
                raise ValueError("chunks can be cut at the front only, as in chunks[3:]")
            return Chunks(jax.tree.map(lambda a: a[start * self.rows :], self.parts), self.rows)
        if not -len(self) <= i < len(self):
            raise IndexError(f"chunk {i} of {len(self)}")
        start = i % len(self) * self.rows
        return jax.tree.map(lambda a: _read(a, start, start + self.rows), self.parts)


def chunks(x: Any, y: object = None, weight: object = None, *, rows: int) -> Chunks:
    """A sequence of batches for `jaxsvm.stream`, each read when it is indexed.

    Chunks of memory maps, `np.load(path, mmap_mode="r")`, are read from the file, if its rows are
    contiguous; nothing else stays in memory.

    Args:
        x: (n, d) an array, a memory map, a data frame of numbers whose columns keep their names; or
            a `Batch`, dense or with `SparseRows`.
        y: (n,) targets; not with a `Batch`.
        weight: (n,) example weights; None: all 1.
        rows: size of a chunk, >= 1.

    Raises:
        ValueError: shapes that do not match, rows < 1.

    Example:
        >>> import jaxsvm, numpy as np
        >>> parts = jaxsvm.data.chunks(np.ones((10, 2)), np.ones(10), rows=4)
        >>> [part.x.shape for part in parts], len(parts[1:])
        ([(4, 2), (4, 2), (2, 2)], 2)
    """
    rows = integer("rows", rows, 1)
    if is_sparse(x):
        raise ValueError(
            "x is a SciPy matrix: make it a Batch first, jaxsvm.data.chunks(jaxsvm.dataset(x, "
            "y), rows=...)"
        )
    if isinstance(x, str | bytes | os.PathLike):
        raise ValueError("x is a path: open it first, np.load(path, mmap_mode='r')")
    if isinstance(x, Batch):
        if y is not None or weight is not None:
            raise ValueError("a Batch has its own targets and weights: leave y and weight out")
        return Chunks(jax.tree.map(np.asarray, x), rows)
    check_rows(x, y=() if y is None else y, weight=weight)
    for name, a in (("x", x), ("y", y), ("weight", weight)):
        refuse_masked(name, a)
    n = np.shape(x)[0]
    as_array = lambda a: a if isinstance(a, np.memmap) else np.asarray(a)
    ones = np.broadcast_to(np.float32(1), n) if weight is None else as_array(weight)
    columns, x = column_names(x), frame_numbers(x) if is_frame(x) else as_array(x)
    arrays: Any = x, as_array(y), np.broadcast_to(np.int32(0), n), ones
    named = Classes((), columns) if columns else None
    return Chunks(Batch(*arrays)._replace(classes=named), rows)


def _read(a: Any, start: int, stop: int) -> np.ndarray:
    """Rows of an array; those of a memory map are read from the file.

    Otherwise pages of the map would stay in memory.
    """
    root = a
    while isinstance(root, np.memmap) and isinstance(root.base, np.memmap):
        root = root.base
    is_map = isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)
    if not (is_map and root.filename and root.mode != "c" and a.flags.c_contiguous):
        return a[start:stop]
    part = a[start:stop]
    place = root.offset + part.ctypes.data - root.ctypes.data
    values = np.fromfile(root.filename, a.dtype, part.size, offset=place)
    if values.size != part.size:
        raise ValueError(
            f"{root.filename} has become shorter than the {a.shape[0]} rows that it had"
        )
    return values.reshape(part.shape)
