"""The rounds of a stream: each reads one chunk in every process, and makes the steps that it fills.

In one process without a mesh these are the same rounds, of one process and one device.
"""

from __future__ import annotations

import concurrent.futures
import functools
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import is_remote, own_values, shown
from ..files import DeferredInterrupt
from ..flags import with_flags_of_caller
from ..numerics.sharding import ROWS, auto_axes, example_mesh
from ..types import Batch, SparseRows
from .checks import whole_number
from .chunks import HostChunk, next_part
from .processes import all_processes

READ, ENDED, STOPPED, FAILED = range(4)  # what became of the next chunk of a process


class BatchLayout(NamedTuple):
    """Where the rows of a step lie: part j of a batch is on device j of the axis "rows"."""

    mesh: Mesh | None  # None: one device
    batch: int  # rows of a step, of all processes
    devices: int  # on the axis, each with `batch / devices` rows of a step
    own: np.ndarray  # the numbers of the devices of this process, ascending
    shares: np.ndarray  # (processes,) rows of each process in a step

    @property
    def own_batch(self) -> int:
        """Rows of this process in a step."""
        return self.batch // self.devices * len(self.own)


def check_mesh(mesh: Any) -> Mesh | None:
    """The mesh with Auto axes, or None.

    Raises:
        TypeError: not a mesh.
        ValueError: other axes than "rows", or devices of some processes only.
    """
    if mesh is None:
        if jax.process_count() > 1:
            raise ValueError(
                "a stream in several processes needs the mesh of all devices: mesh="
                f"{example_mesh()}"
            )
        return None
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a mesh such as {example_mesh()}, got {shown(mesh)}")
    if tuple(mesh.axis_names) != (ROWS,):
        raise ValueError(
            f'mesh must have the axis "{ROWS}" alone, got {", ".join(mesh.axis_names)}: make it '
            f"with {example_mesh()}"
        )
    processes = {device.process_index for device in mesh.devices.flat}
    if len(processes) != jax.process_count():
        raise ValueError(
            f"mesh has devices of {len(processes)} processes, got {jax.process_count()} processes: "
            "make it of jax.devices()"
        )
    return auto_axes(mesh)


def layout_of_batch(
    mesh: Mesh | None, batch_size: Any, default: int, of_state: bool = False
) -> BatchLayout:
    """How the rows of a step are divided.

    Args:
        mesh: of `check_mesh`.
        batch_size: rows of a step, or None.
        default: what None means.
        of_state: whether that is the number of a state; if not, it is rounded up to a multiple of
            the devices.

    Raises:
        ValueError: a batch size that is not a multiple of the devices.
    """
    if mesh is None:
        batch = default if batch_size is None else whole_number("batch_size", batch_size, 1)
        return BatchLayout(None, batch, 1, np.arange(1), np.array([batch]))
    devices = mesh.size
    batch = default if of_state else -(-default // devices) * devices
    batch = batch if batch_size is None else whole_number("batch_size", batch_size, 1)
    if batch % devices and batch_size is None:
        raise ValueError(
            f"the state has batches of {batch} rows, which the {devices} devices of the mesh do "
            "not divide: take a mesh of fewer devices"
        )
    if batch % devices:
        raise ValueError(
            f'batch_size must be a multiple of the {devices} devices on the axis "{ROWS}", got '
            f"{batch}: take {batch // devices * devices + devices}"
        )
    process = np.array([device.process_index for device in mesh.devices.flat])
    own = np.flatnonzero(process == jax.process_index())
    shares = batch // devices * np.bincount(process, minlength=jax.process_count())
    return BatchLayout(mesh, batch, devices, own, shares)


def to_devices(layout: BatchLayout, rows: Batch) -> Batch:
    """Rows of this process, in the order of its devices, as part of the rows of all processes."""
    if layout.mesh is None:
        return rows
    sharding, scale = NamedSharding(layout.mesh, PartitionSpec(ROWS)), layout.devices
    own = len(layout.own)

    def lay(a: np.ndarray) -> jax.Array:
        shape = (len(a) // own * scale, *a.shape[1:])
        return jax.make_array_from_process_local_data(sharding, np.ascontiguousarray(a), shape)

    return jax.tree.map(lay, rows)


def own_rows(layout: BatchLayout, rows: Batch) -> Batch:
    """The part of a batch on the devices of this process, as NumPy arrays."""

    def part(a: Any) -> np.ndarray:
        if is_remote(a):
            return own_values(a)
        a = np.asarray(a)
        return a.reshape(layout.devices, -1, *a.shape[1:])[layout.own].reshape(-1, *a.shape[1:])

    return jax.tree.map(part, rows)


def no_rows(like: Batch, n: int) -> Batch:
    """n rows of weight 0 that no step learns from."""
    zeros = jax.tree.map(lambda a: np.zeros((n, *a.shape[1:]), a.dtype), like)
    # 1 is a valid target of each kind
    return zeros._replace(y=np.ones_like(zeros.y), index=np.full(n, -1, np.int32))


def _concatenate(*parts: Batch) -> Batch:
    """The rows of several batches; without a copy if only one has any."""
    parts = tuple(part for part in parts if len(part.y)) or parts[:1]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *parts)


class PendingRows(NamedTuple):
    """The last rows that a process has read, as many as it has in a step.

    Rows that were part of a step have index -1; the others are the first of the next steps.
    """

    rows: Batch

    @property
    def unused(self) -> Batch:
        """The rows that no step has read."""
        is_unused = self.rows.index >= 0
        return jax.tree.map(lambda a: a[is_unused], self.rows)

    def read(self, rows: Batch, used: int) -> PendingRows:
        """After new rows; the first `used` of the unused and the new ones were part of a step."""
        size, n_unused = len(self.rows.y), int(np.sum(self.rows.index >= 0))
        order = np.argsort(self.rows.index >= 0, kind="stable")  # the unused rows last
        last = jax.tree.map(
            lambda a, b: np.concatenate([a[order], b[-size:]])[-size:], self.rows, rows
        )
        unused = np.arange(size) >= size - (n_unused + len(rows.y) - used)
        return PendingRows(last._replace(index=np.where(unused, last.index, -1).astype(np.int32)))


def columns_of(batch: Batch) -> tuple:
    """What the chunks of a stream have in common: kind, columns and dtype of the rows."""
    x = batch.x
    width = x.index.shape[1:] if isinstance(x, SparseRows) else ()
    return type(batch).__name__, type(x).__name__, *x.shape[1:], *width, str(x.dtype)


def check_columns(batch: Batch, like: Batch) -> None:
    """Raise a ValueError for rows of another kind or with other columns."""
    shapes = [columns_of(rows)[1:-1] for rows in (batch, like)]
    if shapes[0] != shapes[1] or type(batch) is not type(like):
        kinds = [f"{columns} columns ({kind})" for kind, columns, *_ in shapes]
        if shapes[0][:2] == shapes[1][:2]:
            kinds = [
                f"{type(rows).__name__} rows, padded to {rows.x.shape}" for rows in (batch, like)
            ]
        raise ValueError(
            f"chunks must have the same columns: one has {kinds[0]}, those before it {kinds[1]}"
        )


def pending_of_state(layout: BatchLayout, pending: Batch, n_pending: int) -> PendingRows:
    """What this process has of the rows in a saved state.

    Raises:
        ValueError: their number is another one.
    """
    if not is_remote(pending.index):
        count = int(np.sum(np.asarray(pending.index) >= 0))
        if count != n_pending:
            raise ValueError(
                f"state holds {count} rows that wait for a batch, and n_pending is {n_pending}: it "
                "was changed after its run, go on from it as it was"
            )
    return PendingRows(own_rows(layout, pending))


def _number_rows(chunk: HostChunk, first: int, like: Batch) -> Batch:
    """The rows of a chunk with the dtypes of `like`; of several processes numbered from `first`."""
    rows = jax.tree.map(lambda a, b: np.asarray(a, b.dtype), chunk.batch, like)
    if jax.process_count() == 1:  # `host_chunks` has numbered them
        return rows
    number = (rows.index.astype(np.int64) - chunk.first + first) % 2**31
    return rows._replace(index=number.astype(np.int32))


class StreamRound(NamedTuple):
    """One chunk of each process, of which all processes know the same."""

    unused: Batch  # rows of this process that were read before
    rows: Batch  # of its chunk; may be none
    steps: np.ndarray  # (processes,) how many steps each of them has rows for
    shares: np.ndarray  # (processes,) rows of each in a step
    n_pending: int  # rows of all processes that fill no step
    n_read: int  # rows of all processes in their chunks, with those of weight 0
    chunks: int  # chunks read, with those before it that had no rows

    @property
    def length(self) -> int:
        """The number of steps."""
        return int(self.steps.max())

    @property
    def used(self) -> int:
        """How many of the rows are part of a step."""
        return int((self.steps * self.shares)[jax.process_index()])

    def parts(self, layout: BatchLayout, size: int) -> Iterator[tuple[Batch, np.int32]]:
        """The rows of the steps on their devices, `size` steps at a time, and how many these are.

        A process without rows for a step adds rows of weight 0, which are not part of the mean.
        """
        q = layout.own_batch
        before = len(self.unused.y)
        for start in range(0, max(self.length, 1), size):
            first, end = start * q, min((start + size) * q, self.used)
            parts = (
                _rows_between(self.unused, first, min(end, before)),
                _rows_between(self.rows, first - before, end - before),
            )
            n_missing = size * q - sum(len(part.y) for part in parts)
            own = _concatenate(*parts, no_rows(self.rows, n_missing))
            length = np.int32(min(size, self.length - start))
            yield to_devices(layout, _by_device(layout, own, size)), length


def _rows_between(rows: Batch, first: int, end: int) -> Batch:
    return jax.tree.map(lambda a: a[max(first, 0) : max(end, 0)], rows)


def _by_device(layout: BatchLayout, rows: Batch, steps: int) -> Batch:
    """Rows in the order of steps -> in the order of devices, then of steps."""
    devices = len(layout.own)
    if devices == 1:
        return rows

    def order(a: np.ndarray) -> np.ndarray:
        by_step = a.reshape(steps, devices, -1, *a.shape[1:])
        return np.swapaxes(by_step, 0, 1).reshape(a.shape)

    return jax.tree.map(order, rows)


def _hash(value: Any) -> int:
    """A number from 1 on that other values hardly have."""
    return (zlib.crc32(repr(value).encode()) >> 1) | 1


def _raise_failure(statuses: np.ndarray, error: Exception | None) -> None:
    """Raise the error of this process; or one that names a process that failed."""
    if error is not None:
        raise error
    if (statuses == FAILED).any():
        raise RuntimeError(
            f"process {int(np.argmax(statuses == FAILED))} failed at its next chunk, so that all "
            "processes end the stream: see the error of that process"
        )


class StreamReader:
    """The rounds of a stream. Each chunk is fetched while the solver works on the one before.

    All processes make the same calls, as each call sends a few numbers to all. Where one process
    fails or is interrupted, all end with the same round.
    """

    def __init__(self, chunks: Iterator[HostChunk], interrupt: DeferredInterrupt) -> None:
        """Fetch the first chunk.

        Args:
            chunks: of this process, from `host_chunks`.
            interrupt: of this process; once it is requested, no process begins another round.
        """
        self._chunks, self._interrupt = chunks, interrupt
        self._executor = concurrent.futures.ThreadPoolExecutor(1)
        # a chunk is made under the flags of the caller
        self._next = with_flags_of_caller(functools.partial(next, chunks, None))
        self._future = self._executor.submit(self._next)
        self.interrupted = False  # in any process
        self.ended = False  # in all processes, before the first round

    def close(self) -> None:
        """Leave the chunk that was fetched ahead."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _fetch_chunk(
        self, check: Callable = lambda batch: None
    ) -> tuple[int, HostChunk | None, Any]:
        """What became of the next chunk of this process, the chunk, and an error."""
        try:
            chunk = next_part(self._future, self._interrupt)
            if self._interrupt.requested:
                return STOPPED, None, None
            if chunk is None:
                return ENDED, None, None
            check(chunk)
            return READ, chunk, None
        except (Exception, SystemExit) as error:  # noqa: BLE001, raised once all processes know
            return FAILED, None, error

    def first(
        self, like: Batch | None, call: tuple, error: Exception | None
    ) -> tuple[Batch | None, np.ndarray]:
        """The first chunk of this process, and the rows of that of each process, (processes,).

        Args:
            like: rows of the state, to return where this process has no chunk; or None.
            call: what must be the same in all processes, beside the columns of the rows.
            error: of this process before this call; or None.

        Raises:
            ValueError: processes that do not make the same call, or have no rows to start with.
        """
        status, chunk, failure = self._fetch_chunk()
        error = error or failure
        rows = chunk.batch if chunk is not None else like
        columns = None if rows is None else columns_of(rows)
        kinds = (0 if rows is None else _hash(columns)), _hash(call)
        length = 0 if chunk is None else len(chunk.batch.y)
        status = FAILED if error is not None else status
        statuses, of_rows, of_call, lengths = all_processes(status, *kinds, length).T
        _raise_failure(statuses, error)
        self.interrupted = bool((statuses == STOPPED).any())
        self.ended = bool((statuses == ENDED).all())
        if len(set(of_rows.tolist()) - {0}) > 1:
            raise ValueError(
                "the first chunks of the processes have different columns or types, that of "
                f"process {jax.process_index()} has {columns}"
            )
        if len(set(of_call.tolist())) > 1:
            raise ValueError(
                "all processes must make the same call of stream, that of process "
                f"{jax.process_index()} has (batch_size, step, rows read, chunks) = {call}"
            )
        if like is None and not (self.interrupted or self.ended) and not lengths.all():
            raise ValueError(
                f"process {int(np.argmin(lengths))} has no rows in its first chunk: each needs some"
            )
        return rows, lengths

    def next(
        self, layout: BatchLayout, unused: Batch, seen: int, check: Callable
    ) -> StreamRound | None:
        """The next round; None once all chunks are read, or a process is interrupted.

        Args:
            layout: of a step.
            unused: rows of this process that have filled no step yet.
            seen: rows that all processes have read.
            check: raises for a chunk that the solver does not take.
        """
        status, chunk, error = self._fetch_chunk(check)
        n_read, n_rows = (0, 0) if chunk is None else (chunk.n_read, len(chunk.batch.y))
        table = all_processes(status, n_read, len(unused.y) + n_rows)
        statuses, all_read, available = table.T
        _raise_failure(statuses, error)
        self.interrupted = bool((statuses == STOPPED).any())
        if self.interrupted or (statuses == ENDED).all():
            return None
        rows = jax.tree.map(lambda a: a[:0], unused)
        if chunk is not None:
            self._future = self._executor.submit(self._next)
            before = seen + int(all_read[: jax.process_index()].sum())
            rows = _number_rows(chunk, before, unused)
        steps = available // layout.shares
        n_pending = int((available - steps * layout.shares).sum())
        chunks = 1 if chunk is None else chunk.chunks
        return StreamRound(
            unused, rows, steps, layout.shares, n_pending, int(all_read.sum()), chunks
        )
