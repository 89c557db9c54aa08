"""The host side of a stream: chunks are checked and counted, in a thread of `streaming`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..checks import is_sparse
from ..data.from_arrays import check_digits, check_finite, check_target_digits, numbers
from ..models import Classes
from ..models.frames import by_name, column_names, is_frame
from ..types import Batch, Lifted, SparseRows


class HostChunk(NamedTuple):
    """Rows of a stream, and what was read for them."""

    batch: Batch  # of NumPy arrays
    seen: int  # rows read up to its end, modulo that of `host_chunks`
    chunks: int  # chunks read up to its end
    complete: bool  # it had no rows of weight 0


class FirstNames:
    """The names of the first chunk that has some of classes, and of the first with columns."""

    classes: Any = None

    def matched(self, chunk: Any, name: str) -> Any:
        """A chunk with its columns and classes in the order of the first one.

        Raises:
            ValueError: other columns, or a class that the first chunk did not name.
        """
        of_frame = isinstance(chunk, tuple | list) and len(chunk) > 0 and is_frame(chunk[0])
        if not of_frame and (not isinstance(chunk, Batch) or chunk.classes is None):
            return chunk
        own = Classes((), column_names(chunk[0])) if of_frame else chunk.classes
        known = self.classes or Classes()
        self.classes = Classes(known.names or own.names, known.columns or own.columns)
        try:
            if of_frame:
                return by_name(chunk[0], self.classes.columns), *chunk[1:]
            return self.classes.matched(chunk)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def host_chunks(
    chunks: Iterable, task: str, seen: int, read: int, modulus: int, double: bool, names: FirstNames
) -> Iterator[HostChunk]:
    """The checked chunks of a stream; rows of weight 0 are numbered, then left out.

    Args:
        chunks: batches or tuples (x, y), (x, y, weight).
        task: required targets, as of `stream`.
        seen: rows read before the first chunk.
        read: chunks read before the first one.
        modulus: rows are numbered modulo this.
        double: keep float64.
        names: of the first chunk.
    """
    is_checked, number = False, -1
    for chunk in chunks:  # `enumerate` would hold it while the next one is fetched
        number += 1
        name = f"chunk {number}"
        chunk = names.matched(chunk, name)
        x, y, weight = _arrays(chunk, name, double, not is_checked)
        is_checked = is_checked or len(y) > 1
        index = ((seen + np.arange(len(y), dtype=np.int64)) % modulus).astype(np.int32)
        seen = (seen + len(y)) % modulus
        arrays: Any = x, y, index, weight
        batch = (Lifted if isinstance(chunk, Lifted) else Batch)(*arrays)
        del chunk  # `batch` holds copies
        live = weight != 0
        if not live.all():
            batch = jax.tree.map(lambda a: a[live], batch)  # noqa: B023
        if len(batch.y):
            _check(batch, name, task)
            yield HostChunk(batch, seen, read + number + 1, bool(live.all()))


def _arrays(
    chunk: object, name: str, double: bool, warn: bool
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Copies of rows, targets and weights as NumPy arrays of the dtypes that solvers read.

    The caller may fill its own arrays again while a chunk is in use. With `warn` there is a warning
    where these lack digits of the rows or the targets.
    """
    fields = (chunk.x, chunk.y, chunk.weight) if isinstance(chunk, Batch) else chunk
    if not isinstance(fields, tuple | list) or len(fields) not in (2, 3):
        raise TypeError(
            f"{name} is a {type(chunk).__name__}: give batches, or tuples (x, y) or (x, y, "
            "weight); jaxsvm.data.chunks(x, y, rows=1000) cuts one data set"
        )
    if is_sparse(fields[0]):
        raise ValueError(
            f"x of {name} is a SciPy matrix: make it a Batch first, jaxsvm.dataset(x, y)"
        )

    def as_real(field: str, a: object) -> Any:
        a = numbers(f"{field} of {name}", a)
        is_cast = a.dtype.kind in "biu" or (a.dtype == np.float64 and not double)
        with np.errstate(over="ignore"):  # overflows become infinities, which `_check` rejects
            return np.array(a, np.float32 if is_cast else a.dtype)

    x: Any = fields[0]
    if isinstance(x, SparseRows):
        x = jax.tree.map(np.array, dataclasses.replace(x, value=as_real("x", x.value)))
    else:
        x = as_real("x", x)
    if x.ndim != 2:
        raise ValueError(
            f"x of {name} must be a matrix with a row for each example, got shape {x.shape}"
        )
    dtype = np.dtype(x.dtype if x.dtype.itemsize >= 4 else np.float32)
    y = as_real("y", fields[1]).astype(dtype)
    if warn:
        check_target_digits(numbers("y", fields[1]), dtype, f"y of {name}")
        if isinstance(fields[0], np.ndarray):
            check_digits(fields[0], dtype)
    weight = fields[2] if len(fields) == 3 else np.ones(x.shape[0], dtype)
    weight = as_real("weight", weight).astype(dtype)
    if y.shape != x.shape[:1] or weight.shape != x.shape[:1]:
        raise ValueError(
            f"{name} has {x.shape[0]} rows, targets of shape {y.shape} and weights "
            f"of shape {weight.shape}"
        )
    return x, y, weight


def _check(batch: Batch, name: str, task: str) -> None:
    """Raise for numbers that are not finite, negative weights and targets of another task."""
    x, y, _, weight, *_ = batch
    x = x.value if isinstance(x, SparseRows) else x
    for field, a in (("x", x), ("y", y), ("weight", weight)):
        check_finite(f"{field} of {name}", np.asarray(a), y.dtype)
    if (weight < 0).any():
        raise ValueError(f"{name} holds a weight below 0; 0 leaves a row out")
    if task == "binary" and not (np.abs(y) == 1).all():
        raise ValueError(
            f"labels must be -1 and +1, {name} holds {y[np.abs(y) != 1][0]:g}; use "
            "np.where(y == positive, 1, -1), or say task='regression' or task='multiclass'"
        )
    if task == "multiclass" and not ((y >= 0) & (y == np.floor(y))).all():
        raise ValueError(
            f"class numbers must be 0 .. k-1, {name} holds others: number them with "
            "np.unique(y, return_inverse=True)[1]"
        )
