"""The host's side of a stream: chunks checked and counted in a thread of their own, Ctrl-C kept for a good moment."""

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
    """Some rows of a stream, and how far the stream is after them."""

    batch: Batch  # of NumPy arrays
    seen: int  # rows taken in
    chunks: int  # chunks taken in by this part: empty ones before it are counted with it
    complete: bool  # no row of weight 0 was left out


def feed(chunks: Iterable, task: str, seen: int, rows: int | None, double: bool) -> Iterator[HostChunk]:
    """The parts of a stream, checked; rows of weight 0 are left out after they were numbered.

    Args:
        chunks: batches or tuples (x, y), (x, y, weight).
        task: what the targets must be.
        seen: rows before the first chunk.
        rows: numbers go round after so many; None: 2^31.
        double: whether float64 stays.
    """
    skipped = 1
    for number, chunk in enumerate(chunks):
        x, y, weight = _arrays(chunk, f"chunk {number}", double)
        index = ((seen + np.arange(len(y), dtype=np.int64)) % (rows or 2**31)).astype(np.int32)
        seen = (seen + len(y)) % (rows or 2**31)
        batch = (Lifted if isinstance(chunk, Lifted) else Batch)(x, y, index, weight)
        complete = not (weight == 0).any()
        if not complete:
            batch = jax.tree.map(lambda a: a[weight > 0], batch)  # noqa: B023
        if not len(batch.y):
            skipped += 1
            continue
        _check(batch, f"chunk {number}", task)
        yield HostChunk(batch, seen, skipped, complete)
        skipped = 1


def _arrays(chunk: Any, name: str, double: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows, targets and weights as NumPy arrays of the dtypes that solvers see."""
    if isinstance(chunk, Batch):
        chunk = chunk.x, chunk.y, chunk.weight
    if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
        raise TypeError(
            f"{name} is a {type(chunk).__name__}: give batches, or tuples (x, y) or (x, y, weight); jaxsvm.data.chunks(x, y, "
            "rows=1000) cuts one data set"
        )
    if hasattr(chunk[0], "tocsr"):
        raise ValueError(f"x of {name} is a SciPy matrix: make it a Batch first, jaxsvm.dataset(x, y)")

    def real(field, a):
        a = numbers(f"{field} of {name}", a)
        with np.errstate(over="ignore"):  # an infinity, which is refused
            return a.astype(np.float32, copy=False) if a.dtype.kind in "biu" or (a.dtype == np.float64 and not double) else a

    x = chunk[0]
    x = jax.tree.map(np.asarray, dataclasses.replace(x, value=real("x", x.value))) if isinstance(x, SparseRows) else real("x", x)
    if x.ndim != 2:
        raise ValueError(f"x of {name} must be a matrix with a row for each example, got shape {x.shape}")
    wide = x.dtype if x.dtype.itemsize >= 4 else np.float32
    y = real("y", chunk[1]).astype(wide)
    weight = (
        np.ones(len(x.value if isinstance(x, SparseRows) else x), wide)
        if len(chunk) == 2
        else real("weight", chunk[2]).astype(wide)
    )
    if y.shape != x.shape[:1] or weight.shape != x.shape[:1]:
        raise ValueError(f"{name} has {x.shape[0]} rows, targets of shape {y.shape} and weights of shape {weight.shape}")
    return x, y, weight


def _check(batch: Batch, name: str, task: str) -> None:
    for field, a in (
        ("x", batch.x.value if isinstance(batch.x, SparseRows) else batch.x),
        ("y", batch.y),
        ("weight", batch.weight),
    ):
        plain = a.ravel() if a.dtype.itemsize >= 4 else a.ravel().astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.vdot(plain, plain)
        if not np.isfinite(total):
            bad = ~np.isfinite(a.astype(np.float64))
            if not bad.any():  # norms would be infinite, and the model wrong without a sign of it
                raise ValueError(
                    f"{field} of {name} is too large: its squares sum up to what {plain.dtype} cannot hold; scale it"
                )
            row = int(np.argwhere(bad)[0][0])
            raise ValueError(f"{field} of {name} holds a NaN or an infinity, first in row {row}: drop or fill in such rows")
    if (batch.weight < 0).any():
        raise ValueError(f"{name} holds a weight below 0; 0 leaves a row out")
    y = batch.y
    if task == "binary" and not (np.abs(y) == 1).all():
        raise ValueError(
            f"labels must be -1 and +1, {name} holds {y[np.abs(y) != 1][0]:g}; number them with jaxsvm.data.encode, or say "
            "task='regression' or task='multiclass'"
        )
    if task == "multiclass" and not ((y >= 0) & (y == np.floor(y))).all():
        raise ValueError(f"class numbers must be 0 .. k-1, {name} holds others: number them with jaxsvm.data.encode")


def fixed_size_chunks(batch: Batch, like: Batch) -> Iterator[tuple[Batch, np.ndarray]]:
    """The rows in pieces of the size of `like`, the last one padded, and how many rows of each count.

    Raises:
        ValueError: rows of another kind or with other columns.
    """
    x, first = batch.x, like.x
    shapes = [(type(a).__name__, *a.shape[1:], *(a.index.shape[1:] if isinstance(a, SparseRows) else ())) for a in (x, first)]
    if shapes[0] != shapes[1] or type(batch) is not type(like):
        raise ValueError(f"chunks must have the same columns: one has {shapes[0]}, the first has {shapes[1]}")
    size = like.y.shape[0]

    def piece(a, wanted, start):
        part = np.asarray(a[start : start + size], wanted.dtype)
        return part if len(part) == size else np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])

    for start in range(0, batch.y.shape[0], size):
        part = jax.tree.map(lambda a, wanted: piece(a, wanted, start), batch, like)  # noqa: B023
        yield part, np.int32(min(size, batch.y.shape[0] - start))


def next_part(coming: concurrent.futures.Future, interrupt: DeferredInterrupt) -> Any:
    """The result, or None once it is time to stop."""
    while not interrupt.requested:
        done, _ = concurrent.futures.wait([coming], timeout=0.2)
        if done:
            return coming.result()
    return None
