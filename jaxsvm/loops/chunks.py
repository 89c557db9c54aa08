"""The host side of a stream.

Chunks are checked and counted in a thread; Ctrl-C is deferred to the end of a chunk.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..data.dataset import numbers
from ..files import DeferredInterrupt
from ..types import Batch, Lifted, SparseRows


class HostChunk(NamedTuple):
    """Rows of a stream, and the position of the stream after them."""

    batch: Batch  # of NumPy arrays
    seen: int  # rows read up to the end of this chunk
    chunks: int  # chunks read for this one: itself and the empty ones before it
    complete: bool  # it had no rows of weight 0


def feed(
    chunks: Iterable, task: str, seen: int, rows: int | None, double: bool
) -> Iterator[HostChunk]:
    """The checked chunks of a stream; rows of weight 0 are numbered, then left out.

    Args:
        chunks: batches or tuples (x, y), (x, y, weight).
        task: required targets, as of `stream`.
        seen: rows read before the first chunk.
        rows: rows are numbered modulo this; None: 2^31.
        double: keep float64.
    """
    chunks_read = 1
    for number, chunk in enumerate(chunks):
        x, y, weight = _arrays(chunk, f"chunk {number}", double)
        index = ((seen + np.arange(len(y), dtype=np.int64)) % (rows or 2**31)).astype(np.int32)
        seen = (seen + len(y)) % (rows or 2**31)
        arrays: Any = x, y, index, weight
        batch = (Lifted if isinstance(chunk, Lifted) else Batch)(*arrays)
        complete = not (weight == 0).any()
        if not complete:
            batch = jax.tree.map(lambda a: a[weight > 0], batch)  # noqa: B023
        if not len(batch.y):
            chunks_read += 1
            continue
        _check(batch, f"chunk {number}", task)
        yield HostChunk(batch, seen, chunks_read, complete)
        chunks_read = 1


def _arrays(chunk: Any, name: str, double: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows, targets and weights as NumPy arrays of the dtypes that solvers read."""
    if isinstance(chunk, Batch):
        chunk = chunk.x, chunk.y, chunk.weight
    if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
        raise TypeError(
            f"{name} is a {type(chunk).__name__}: give batches, or tuples (x, y) or (x, y, "
            "weight); jaxsvm.data.chunks(x, y, rows=1000) cuts one data set"
        )
    if hasattr(chunk[0], "tocsr"):
        raise ValueError(
            f"x of {name} is a SciPy matrix: make it a Batch first, jaxsvm.dataset(x, y)"
        )

    def as_real(field, a):
        a = numbers(f"{field} of {name}", a)
        with np.errstate(over="ignore"):  # overflows become infinities, which `_check` rejects
            return (
                a.astype(np.float32, copy=False)
                if a.dtype.kind in "biu" or (a.dtype == np.float64 and not double)
                else a
            )

    x = chunk[0]
    x = (
        jax.tree.map(np.asarray, dataclasses.replace(x, value=as_real("x", x.value)))
        if isinstance(x, SparseRows)
        else as_real("x", x)
    )
    if x.ndim != 2:
        raise ValueError(
            f"x of {name} must be a matrix with a row for each example, got shape {x.shape}"
        )
    dtype = x.dtype if x.dtype.itemsize >= 4 else np.float32
    y = as_real("y", chunk[1]).astype(dtype)
    weight = (
        np.ones(len(x.value if isinstance(x, SparseRows) else x), dtype)
        if len(chunk) == 2
        else as_real("weight", chunk[2]).astype(dtype)
    )
    if y.shape != x.shape[:1] or weight.shape != x.shape[:1]:
        raise ValueError(
            f"{name} has {x.shape[0]} rows, targets of shape {y.shape} and weights "
            f"of shape {weight.shape}"
        )
    return x, y, weight


def _check(batch: Batch, name: str, task: str) -> None:
    for field, a in (
        ("x", batch.x.value if isinstance(batch.x, SparseRows) else batch.x),
        ("y", batch.y),
        ("weight", batch.weight),
    ):
        values = a.ravel() if a.dtype.itemsize >= 4 else a.ravel().astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            sqnorm = np.vdot(values, values)
        if not np.isfinite(sqnorm):
            not_finite = ~np.isfinite(a.astype(np.float64))
            # norms would overflow, and the model be wrong without an error
            if not not_finite.any():
                raise ValueError(
                    f"{field} of {name} is too large: its squares sum up to what {values.dtype} "
                    "cannot hold; scale it"
                )
            row = int(np.argwhere(not_finite)[0][0])
            raise ValueError(
                f"{field} of {name} holds a NaN or an infinity, first in row {row}: "
                "drop or fill in such rows"
            )
    if (batch.weight < 0).any():
        raise ValueError(f"{name} holds a weight below 0; 0 leaves a row out")
    y = batch.y
    if task == "binary" and not (np.abs(y) == 1).all():
        raise ValueError(
            f"labels must be -1 and +1, {name} holds {y[np.abs(y) != 1][0]:g}; number them with "
            "jaxsvm.data.encode, or say task='regression' or task='multiclass'"
        )
    if task == "multiclass" and not ((y >= 0) & (y == np.floor(y))).all():
        raise ValueError(
            f"class numbers must be 0 .. k-1, {name} holds others: number them with "
            "jaxsvm.data.encode"
        )


def fixed_size_chunks(batch: Batch, like: Batch) -> Iterator[tuple[Batch, np.int32]]:
    """The rows in chunks of the size of `like`, and the numbers of their rows without padding.

    The last chunk is padded.

    Raises:
        ValueError: rows of another type or with other columns.
    """
    x, first = batch.x, like.x
    shapes = [
        (type(a).__name__, *a.shape[1:], *(a.index.shape[1:] if isinstance(a, SparseRows) else ()))
        for a in (x, first)
    ]
    if shapes[0] != shapes[1] or type(batch) is not type(like):
        raise ValueError(
            f"chunks must have the same columns: one has {shapes[0]}, the first has {shapes[1]}"
        )
    size = like.y.shape[0]

    def pad(a, like, start):
        part = np.asarray(a[start : start + size], like.dtype)
        return (
            part
            if len(part) == size
            else np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])
        )

    for start in range(0, batch.y.shape[0], size):
        part = jax.tree.map(lambda a, like: pad(a, like, start), batch, like)  # noqa: B023
        yield part, np.int32(min(size, batch.y.shape[0] - start))


def next_part(future: concurrent.futures.Future, interrupt: DeferredInterrupt) -> Any:
    """The result of the future, or None once an interrupt is requested."""
    while not interrupt.requested:
        done, _ = concurrent.futures.wait([future], timeout=0.2)
        if done:
            return future.result()
    return None
