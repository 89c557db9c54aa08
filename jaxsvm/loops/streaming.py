"""`stream`: a solver run on chunks of rows, each read once, of which at most two are in memory.

stream -> _plan -> _begin | _resume -> _on_host -> _read -> run_batches (compiled)
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import caller_stacklevel, calling, shown, x64_enabled
from ..data.sharding import shard
from ..files import DeferredInterrupt, check_field
from ..flags import despite_flags, with_flags_of_caller
from ..models import classes_of
from ..numerics import accum_dtype, depends_on
from ..numerics.sharding import ROWS, auto_axes, example_mesh, split_rows
from ..objectives import Probe
from ..recipe import check_choice, fields_of, register, unwrap_static
from ..samplers import uniform
from ..types import (
    INTERRUPTED,
    STEPS,
    Array,
    Batch,
    Curve,
    Fit,
    RunState,
    Solver,
    SparseRows,
    State,
)
from .checks import (
    MOST_STEPS,
    check_counters,
    check_key,
    check_like,
    check_origin,
    check_probe,
    check_solver,
    check_targets,
    whole_number,
)
from .chunks import FirstNames, HostChunk, host_chunks
from .curve import add_info, curve_row, empty_sums
from .identity import origin_of, with_names, with_state
from .loop import rows_of_curve
from .programs import as_argument, conclude
from .progress import Bar
from .saving import Saver

FEATURES = 2**31  # bytes up to which the features of a chunk are computed before its first step


@register("StreamState")
class StreamState(NamedTuple):
    """The state that `stream` resumes from."""

    solver: State
    # (b,) the last rows read; those with an index >= 0 have not filled a batch yet. On a mesh each
    # device has its part.
    pending: Batch
    n_pending: Array  # ()    int32, how many these are
    step: Array  # ()    int32, updates made
    seen: Array  # ()    int32, rows read so far (modulo `rows` if that was given, else 2^31)
    chunks: Array  # ()  int32, chunks read so far
    done: Array  # ()    bool, False: a stream has no tolerance
    # (8,) uint32, as of `RunState`; those of rows, targets and weights are 0, not known
    origin: Array | None = None

    def __check__(self) -> None:
        if self.origin is not None:
            check_field("origin", self.origin, "whole", (8,), least=0)
        if not isinstance(self.pending, Batch):
            raise ValueError(f"pending must be a batch, got {type(self.pending).__name__}")
        check_field("n_pending", self.n_pending, "whole", (), least=0, most=self.pending.y.shape[0])
        for name in ("step", "seen", "chunks"):
            check_field(name, getattr(self, name), "whole", (), least=0)
        check_field("done", self.done, "truth", ())


@despite_flags
def stream(
    solver: Solver,
    chunks: Iterable,
    key: Array | None = None,
    *,
    rows: int | None = None,
    state: StreamState | None = None,
    batch_size: int | None = None,
    task: str | None = None,
    probe: Callable | None = None,
    mesh: Mesh | None = None,
    save: str | bytes | os.PathLike | None = None,
    progress: bool = False,
    on_interrupt: str = "raise",
) -> Fit:
    """Run a solver over rows that come in chunks.

    It makes one update for each `batch_size` rows, in their order.

        batch_t = rows t b .. (t+1) b - 1 of the stream;
        state_t+1, info_t = solver.update(state_t, batch_t)

    Batches do not depend on where chunks end: rows that do not fill a batch stay in the state. The
    next chunk is fetched while the solver works on the current one. One program serves all chunks
    that are no longer than the first; longer ones are split. Rows of weight 0 are left out. Rows
    are not shuffled: if they are sorted (by class, by time), shuffle them beforehand.

    On a mesh of K devices each takes b / K rows of a step.

    Args:
        solver: any with `needs_all_rows=False` (linear, on features, on a budget).
        chunks: batches or tuples (x, y) or (x, y, weight), finite numbers, x (m, d) dense or
            `SparseRows` of one width, m >= 1; see `jaxsvm.data.chunks`. `init` reads the first,
            whose names of classes and columns are those of the run: others are taken by name. All
            are fetched in one thread of their own, and copied before the next one is fetched. Open
            what belongs to a thread, as a connection of sqlite3, within the generator.
        key: a key of `jax.random.key`; may be left out with `state` only, which has its own.
        rows: number of rows in all, >= 1; for solvers with a state for each row (dual ones). Rows
            are numbered modulo `rows`: give the chunks of all passes, one after the other. Their
            weights must be 1.
        state: the state to resume from, `run.state` of an earlier call or `models.load(path)`, with
            the solver of that call. Another kernel or feature map is refused, other numbers where
            the state has an entry for each row. `chunks` are then those that were not read yet,
            `chunks[int(state.chunks):]` of the same sequence; if none is left, the run is returned
            unchanged.
        batch_size: rows of an update, >= 1, on a mesh a multiple of its devices; None: that of the
            state, else that of the solver's paper (on a mesh rounded up to such a multiple).
        task: required targets of the chunks, "binary", "multiclass" or "regression"; None: those of
            the solver.
        probe: model -> any tree of arrays, computed after every chunk.
        mesh: of devices of this process with the one axis "rows", such as
            `jax.make_mesh((8,), ("rows",))`; not for solvers with a state for each row. None: one
            device.
        save: path of a file that holds the state after every chunk. If it cannot be written there
            is a warning, and the run continues.
        progress: a bar on the standard error stream.
        on_interrupt: what Ctrl-C does, as of `fit`; the chunk at work is completed first. The chunk
            that was fetched ahead is not part of the run, so that an iterator must be created again
            for the rest.

    Returns:
        `Fit`: the model, the state to resume from, the curve with a row for each chunk (loss nan if
        no batch was filled), a sentence on how the run ended (`status`), and its cause in one word
        (`reason`).

    Raises:
        KeyboardInterrupt: Ctrl-C, with on_interrupt="raise"; it holds the `Fit` as `run`.
        TypeError: a chunk that is not a batch.
        ValueError: neither key nor state, no chunk, chunks of other columns, numbers that are not
            finite, targets that are not those of `task`, a solver that reads all rows, one whose
            initial state depends on the values of each row (`one_vs_one` of a dual method), a state
            of another solver, a mesh of other axes.
        FileNotFoundError: the folder of `save` does not exist.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as
            `run`.

    Differs from `fit`: the sampler of the solver is not used; steps read the weights unscaled, so
    that their mean should be 1.

    Example:
        >>> import jaxsvm
        >>> parts = jaxsvm.data.chunks(jaxsvm.data.breast_cancer(columns=[0, 1]), rows=200)
        >>> result = stream(jaxsvm.pegasos(0.1), parts, jax.random.key(0))
        >>> int(result.state.step), result.info.loss.shape
        (569, (3,))
    """
    task = _check_arguments(solver, chunks, key, state, task, probe)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    rows = None if rows is None else whole_number("rows", rows, 1)
    options: dict = {"mesh": _check_mesh(mesh), "batch_size": batch_size, "rows": rows}
    saver, names = Saver(save), FirstNames()
    seen, length = 0 if state is None else int(state.seen), None
    if isinstance(chunks, Sized):
        length = len(chunks)
    checked = host_chunks(chunks, task, seen, rows or 2**31, x64_enabled(), names)
    with (
        contextlib.closing(Bar(length, "chunks")) if progress else contextlib.nullcontext() as bar,
        jax.set_mesh(options["mesh"]) if mesh is not None else contextlib.nullcontext(),
        DeferredInterrupt() as interrupt,
        contextlib.closing(read_ahead(checked, interrupt)) as fetched,
    ):
        first: HostChunk | None = next(fetched, None)
        if state is None and interrupt.requested:
            raise KeyboardInterrupt("the stream was interrupted before its first chunk")
        if first is None and state is None:
            raise ValueError("there is no chunk with rows: the stream is empty")
        if isinstance(probe, Probe) and names.classes is not None:
            probe = probe.matched(names.classes)
        like = state.pending if first is None else first.batch
        plan = _plan(solver, probe, like, names, state=state, **options)
        start = _begin(plan, key, like) if state is None else _resume(plan, state)
        saver.check(start)
        left = fetched if first is None else itertools.chain([first], fetched)
        del first, like  # each chunk can go once it was read
        end, curve, ended = _on_host(plan, start, left, saver, bar)
        end = _on_devices(plan, end) if end is not start else state
        interrupted = ended or interrupt.requested
        # a second Ctrl-C does not lose the run
        with DeferredInterrupt() if interrupted else contextlib.nullcontext():
            run = _fit(plan.solver, end, curve, int(start.step), names.classes, interrupted)
            raises = interrupted or interrupt.requested
            return saver.finish(run, raises=raises and on_interrupt == "raise")


def _check_mesh(mesh: Any) -> Mesh | None:
    """The mesh with Auto axes, or None.

    Raises:
        TypeError: not a mesh.
        ValueError: other axes than "rows", or devices of other processes.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a mesh such as {example_mesh()}, got {shown(mesh)}")
    if tuple(mesh.axis_names) != (ROWS,):
        raise ValueError(
            f'mesh must have the axis "{ROWS}" alone, got {", ".join(mesh.axis_names)}: make it '
            f"with {example_mesh()}"
        )
    if mesh.is_multi_process:
        raise ValueError(
            "mesh has devices of other processes, and a stream is of one: make it of "
            "jax.local_devices(); rows of several processes are for jaxsvm.shard and fit"
        )
    return auto_axes(mesh)


def _check_arguments(
    solver: Any, chunks: Any, key: Any, state: Any, task: str | None, probe: Any
) -> str:
    """The task, by default that of the solver; raise for arguments that are not valid."""
    if key is None and state is None:
        raise ValueError("stream needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    if state is not None and not isinstance(state, StreamState):
        what = "that of fit" if isinstance(state, RunState) else type(state).__name__
        raise TypeError(
            f"state must be that of an earlier stream, got {what}: pass the run.state of a stream"
        )
    if state is not None:
        check_counters(state, ("n_pending", "step", "seen", "chunks"))
    if not isinstance(chunks, Iterable) and not hasattr(chunks, "__getitem__"):
        raise TypeError(
            f"chunks must be a sequence or an iterator of chunks, got {type(chunks).__name__}"
        )
    check_solver(solver)
    check_probe(probe)
    if task is None:
        task = {"labels": "binary", "real": "regression", None: "binary"}.get(
            solver.targets, "multiclass"
        )
    check_choice("task", task, ("binary", "multiclass", "regression"))
    if solver.needs_all_rows:
        raise ValueError(
            "this solver reads all rows at every step: use fit; or, in a stream, one such as "
            "pegasos or asset, for kernels on features (jaxsvm.on_features)"
        )
    return task


class StreamPlan(NamedTuple):
    """What stays the same in all chunks of a stream."""

    solver: Any  # as an argument of a compiled function
    probe: Any
    origin: np.ndarray  # of the solver, and the names of the first chunk
    names: FirstNames  # as far as chunks have told
    mesh: Mesh | None  # None: one device
    batch: int  # rows of a step
    size: int  # steps of one call of the program
    like: Batch  # a row of weight 0, of the types and columns of all
    rows: int | None  # as of `stream`; None where the state has no entry for each row
    modulus: int  # rows are numbered modulo this

    @property
    def devices(self) -> int:
        """How many take part in a step."""
        return 1 if self.mesh is None else self.mesh.size

    def place(self, rows: Batch) -> Batch:
        """Rows of whole batches on the devices: part j of each batch on device j."""
        if self.mesh is None:
            return rows
        sharding = NamedSharding(self.mesh, PartitionSpec(ROWS))

        def lay(a: np.ndarray) -> Array:
            by_step = a.reshape(-1, self.devices, self.batch // self.devices, *a.shape[1:])
            return jax.device_put(np.swapaxes(by_step, 0, 1).reshape(a.shape), sharding)

        return jax.tree.map(lay, rows)

    def check(self, chunk: HostChunk) -> None:
        """Raise a ValueError for a chunk of other columns, or that the solver does not take."""
        columns, others = _columns_of(chunk.batch), _columns_of(self.like)
        if columns != others:
            raise ValueError(
                f"chunks must have the same columns: one has {columns}, those before it {others}"
            )
        check_targets(unwrap_static(self.solver), chunk.batch)
        if self.rows is not None and not (chunk.complete and (chunk.batch.weight == 1).all()):
            raise ValueError(
                "this solver has a bound for each row, which a stream cannot know "
                "beforehand: use weights of 1, or fit"
            )


def _columns_of(batch: Batch) -> str:
    """The kind and the columns of rows, in words."""
    width = f", {batch.x.index.shape[1]} a row" if isinstance(batch.x, SparseRows) else ""
    kind = f"{type(batch).__name__} of {type(batch.x).__name__}"
    return f"{batch.x.shape[1]} columns ({kind}{width})"


def _plan(
    solver: Any,
    probe: Any,
    first: Batch,
    names: FirstNames,
    *,
    mesh: Mesh | None,
    batch_size: int | None,
    rows: int | None,
    state: StreamState | None,
) -> StreamPlan:
    """How a stream of chunks like the first is read; the options are those of `stream`."""
    k, n = 1 if mesh is None else mesh.size, len(first.y)
    if state is None:
        batch = -(-(solver.sampler or uniform(1)).rows(n) // k) * k
    else:
        batch = state.pending.y.shape[0]
    batch = batch if batch_size is None else whole_number("batch_size", batch_size, 1)
    if batch % k:
        raise ValueError(
            f'batches must be a multiple of the {k} devices on the axis "{ROWS}", got batches of '
            f"{batch} rows: give another batch_size; or, to go on from a state, fewer devices"
        )
    dtype, like = accum_dtype(first.x), no_rows(first, 1)
    solver, probe = as_argument(solver, dtype), as_argument(probe, dtype)
    origin = np.asarray(origin_of(solver, None, names.classes))
    per_row = _check_rows(solver, like, n, rows, mesh)
    own_rows, modulus = rows if per_row else None, rows or 2**31
    size = max(1, -(-n // batch))
    return StreamPlan(solver, probe, origin, names, mesh, batch, size, like, own_rows, modulus)


def _check_rows(solver: Any, like: Batch, n: int, rows: int | None, mesh: Mesh | None) -> bool:
    """Whether the state has an entry for each row, in which case `rows` must be given.

    Args:
        solver: as an argument of a compiled function.
        like: a row.
        n: rows of the first chunk.
        rows: as of `stream`, as is `mesh`.
        mesh: or None.
    """
    few, many = (
        jax.tree.leaves(init_stream.eval_shape(solver, jax.random.key(0), like, rows=count))
        for count in (1, 2**16)
    )
    places = [i for i, (a, b) in enumerate(zip(few, many, strict=True)) if a.shape != b.shape]
    if not places:
        return False
    if mesh is not None:
        raise ValueError(
            "this solver has a state for each row, and a stream on a mesh keeps none: take one "
            "such as pegasos or asset, or leave mesh out and give rows="
        )
    if rows is None:
        raise ValueError(
            "this solver has a state for each row: say how many rows there are in all, rows="
        )
    if rows < n:
        raise ValueError(
            f"rows={rows}, but the first chunk alone has {n}: give the number of all rows"
        )

    def init_per_row(values: Any) -> list:
        rows = like._replace(x=values[0], y=values[1])
        state = unwrap_static(solver).init(jax.random.key(0), rows)
        return [jax.tree.leaves(state)[place] for place in places]

    if any(depends_on(init_per_row, (like.x, like.y))):
        raise ValueError(
            "this solver begins with something of each row (one_vs_one of a dual method: which "
            "pairs a row counts for), which a stream cannot know beforehand: use fit, or "
            "one_vs_rest"
        )
    return True


def _begin(plan: StreamPlan, key: Any, first: Batch) -> StreamState:
    """The stream before its first row, which reads the first chunk."""
    data = first if plan.mesh is None else shard(first, plan.mesh)
    state = init_stream(plan.solver, key, data, rows=plan.rows, on_mesh=plan.mesh is not None)
    pending, zero, step = no_rows(plan.like, plan.batch), np.int32(0), jnp.zeros((), jnp.int32)
    return StreamState(state, pending, zero, step, zero, zero, np.bool_(False), plan.origin)


def _resume(plan: StreamPlan, state: StreamState) -> StreamState:
    """`state`, checked and copied."""
    like = init_stream.eval_shape(plan.solver, jax.random.key(0), plan.like, rows=plan.rows)
    pending = no_rows(plan.like, plan.batch)
    check_like(state, state._replace(solver=like, pending=pending), ("solver", "pending"))
    per_row = lambda fields: plan.rows is not None
    moved: Any = check_origin(plan.solver, state, plan.origin, per_row), state.step
    if plan.mesh is not None:
        moved = jax.device_put(moved, NamedSharding(plan.mesh, PartitionSpec()))
    elif len(jnp.asarray(state.step).sharding.device_set) > 1:
        moved = jax.device_put(moved, jax.local_devices()[0])
    pending = jax.tree.map(np.asarray, state.pending)
    count = int(np.sum(pending.index >= 0))
    if count != int(state.n_pending):
        raise ValueError(
            f"state holds {count} rows that wait for a batch, and n_pending is "
            f"{int(state.n_pending)}: it was changed after its run, go on from it as it was"
        )
    counts = {name: np.int32(getattr(state, name)) for name in ("n_pending", "seen", "chunks")}
    return state._replace(solver=moved[0], step=moved[1], pending=pending, **counts)


def read_ahead(chunks: Iterator, interrupt: DeferredInterrupt) -> Iterator:
    """The chunks, each fetched by a thread while the one before is at work; none after Ctrl-C."""
    executor = concurrent.futures.ThreadPoolExecutor(1)
    # a chunk is made under the flags of the caller
    fetch = with_flags_of_caller(functools.partial(next, chunks, None))
    try:
        future = executor.submit(fetch)
        while not interrupt.requested:
            concurrent.futures.wait([future], timeout=0.2)
            if future.done() and not interrupt.requested:
                if (chunk := future.result()) is None:
                    return
                future = executor.submit(fetch)
                yield chunk
                del chunk
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _on_host(
    plan: StreamPlan, position: StreamState, chunks: Iterable, saver: Saver, bar: Bar | None
) -> tuple[StreamState, list[Curve], bool]:
    """The state after all chunks, rows of the curve, and whether a second Ctrl-C ended them.

    Between two chunks all but the state of the solver and its steps is on the host.
    """
    start_time, first, curve = time.monotonic(), position, list[Curve]()
    try:
        for chunk in chunks:
            plan.check(chunk)
            steps = (int(position.n_pending) + len(chunk.batch.y)) // plan.batch
            if int(position.step) + steps > MOST_STEPS:
                warnings.warn(_FULL, RuntimeWarning, stacklevel=caller_stacklevel())
                break
            result = _read(plan, position, chunk, steps)
            with DeferredInterrupt(again=True):  # the run, its rows and its file stand together
                position = result[0]
                curve += result[1]
                if saver.path is not None:
                    saver.save(_on_devices(plan, position))
            if bar:
                speed = (int(position.step) - int(first.step)) / (time.monotonic() - start_time)
                text = f"loss {float(curve[-1].loss):.3g}, {speed:.3g} steps/s"
                bar.show(int(position.chunks - first.chunks), text)
    except KeyboardInterrupt:
        return position, curve, True  # the result of the last complete chunk is kept
    return position, curve, False


_FULL = (
    f"the next chunk would lead past step {MOST_STEPS}, the last that is counted: the stream ends "
    "here; begin a new one with the chunks that are left"
)


def _read(
    plan: StreamPlan, position: StreamState, chunk: HostChunk, steps: int
) -> tuple[StreamState, list[Curve]]:
    """The state after a chunk, which fills so many steps, and a row of the curve for each call."""
    b, size, waiting = plan.batch, plan.size, int(position.n_pending)
    rows = jax.tree.map(lambda a, like: np.asarray(a, like.dtype), chunk.batch, plan.like)
    used, calls = steps * b, max(1, -(-steps // size))
    unused = _slice(position.pending, b - waiting, b if steps else b - waiting)
    new = _slice(rows, 0, max(used - waiting, 0))
    filled = _concatenate(unused, new, no_rows(plan.like, calls * size * b - used))
    state, step, table = position.solver, position.step, []
    for start in range(0, calls * size, size):
        part = plan.place(_slice(filled, start * b, (start + size) * b))
        inputs = plan.solver, plan.probe, part, state, step, np.int32(min(size, steps - start))
        state, row = run_batches(*inputs, batch=b, devices=plan.devices)
        step = row.step
        table.append(row)
    jax.block_until_ready(state)
    last = jax.tree.map(lambda a, new: np.concatenate([a, new[-b:]])[-b:], position.pending, rows)
    left = waiting + len(rows.y) - used
    index = np.where(np.arange(b) >= b - left, last.index, -1).astype(np.int32)
    position = position._replace(
        solver=state,
        pending=last._replace(index=index),
        n_pending=np.int32(left),
        step=step,
        seen=np.int32((int(position.seen) + chunk.n_read) % plan.modulus),
        chunks=np.int32(position.chunks + chunk.chunks),
    )
    return position, table


def no_rows(like: Batch, n: int) -> Batch:
    """n rows of weight 0 that no step learns from."""
    zeros = jax.tree.map(lambda a: np.zeros((n, *a.shape[1:]), a.dtype), like)
    # 1 is a valid target of each kind
    return zeros._replace(y=np.ones_like(zeros.y), index=np.full(n, -1, np.int32))


def _slice(rows: Batch, start: int, end: int) -> Batch:
    return jax.tree.map(lambda a: a[start:end], rows)


def _concatenate(*parts: Batch) -> Batch:
    """The rows of several batches; without a copy if only one has any."""
    parts = tuple(part for part in parts if len(part.y)) or parts[:1]
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *parts)


def _on_devices(plan: StreamPlan, position: StreamState) -> StreamState:
    """The state to save or return, with the names that chunks have told."""
    origin = with_state(with_names(plan.origin, plan.names.classes), position.solver)
    return jax.device_put(position._replace(pending=plan.place(position.pending), origin=origin))


def _fit(
    solver: Any, state: StreamState, rows: list, first_step: int, known: Any, interrupted: bool
) -> Fit:
    """The `Fit` of a stream, whose curve has these rows.

    `first_step` is the number of updates made before this call, `known` the names of the chunks.
    """
    value, count = (jax.ShapeDtypeStruct((), a.dtype) for a in (state.pending.y, state.step))
    types: Any = count, value, value, count, value, None
    curve = rows_of_curve(rows, Curve(*types))
    step, losses = np.asarray(curve.step), np.asarray(curve.loss)
    # rows of the curve with at least one step
    with_steps = losses[step > np.concatenate([[first_step], step[:-1]])]
    loss = with_steps[-1] if with_steps.size else np.zeros((), losses.dtype)
    model, finite = conclude(solver, state.solver, None, state.pending, loss)
    cause = jnp.asarray(np.int32(INTERRUPTED if interrupted else STEPS))
    tol = jnp.asarray(jnp.nan, state.pending.y.dtype)
    classes = classes_of(fields_of(solver).targets, known)
    return Fit(model, state, curve, tol, finite, cause, classes)


# The compiled programs


@functools.partial(jax.jit, static_argnames=("batch", "devices"))
def run_batches(
    solver: Any,
    probe: Any,
    rows: Batch,
    state: State,
    step: Array,
    count: Array,
    *,
    batch: int,
    devices: int,
) -> tuple[State, Curve]:
    """The updates on the first `count` batches of a chunk: the next state, a row of the curve.

    The features of all rows are computed first, if they take at most `FEATURES` bytes.

    Args:
        solver: as an argument of a compiled function, as is `probe`.
        probe: or None.
        rows: of whole batches, as of `StreamPlan.place`.
        state: of the solver.
        step: () int32, updates before the chunk.
        count: () int32.
        batch: rows of an update; structure.
        devices: parts of a batch, each on its device; structure.
    """
    fields, probe, share = fields_of(solver), unwrap_static(probe), batch // devices
    # traced once; what the solver computes of its numbers is rounded as within an update
    update = jax.jit(lambda state, rows: unwrap_static(solver).update(state, rows))
    features = jax.tree.leaves(jax.eval_shape(fields.prepare, rows).x)
    if sum(a.size * a.dtype.itemsize for a in features) <= FEATURES:
        rows = fields.prepare(rows)

    def cut(a: Array, k: Any) -> Array:
        part = lax.dynamic_slice_in_dim(split_rows(a, devices), k * share, share, axis=1)
        return part.reshape(batch, *a.shape[1:])

    def batch_at(k: Any) -> Batch:
        if isinstance(rows.x, SparseRows) and devices == 1:
            index = k * batch + jnp.arange(batch, dtype=jnp.int32)  # by reference
            sliced = jax.tree.map(lambda a: cut(a, k), rows._replace(x=rows.y))
            return sliced._replace(x=dataclasses.replace(rows.x, rows=index))
        return jax.tree.map(lambda a: cut(a, k), rows)

    def body(k: Any, carry: tuple) -> tuple:
        state, info = update(carry[0], batch_at(k))
        return state, add_info(carry[1], info)

    _, info = jax.eval_shape(update, state, jax.eval_shape(batch_at, 0))
    state, sums = lax.fori_loop(0, count, body, (state, empty_sums(info)))
    value = None
    if probe is not None:
        with calling("probe", probe, "of the model to arrays of numbers"):
            value = jax.tree.map(jnp.asarray, probe(fields.model(state, None)))
    row = curve_row(sums, step, count, value)
    return _on_each_device(state) if devices > 1 else state, row


def _on_each_device(tree: Any) -> Any:
    """All arrays whole on each device: the compiler would be free to divide them."""
    return lax.with_sharding_constraint(tree, PartitionSpec())


@functools.partial(jax.jit, static_argnames=("rows", "on_mesh"))
def init_stream(
    solver: Any, key: Array, first: Batch, *, rows: int | None, on_mesh: bool = False
) -> State:
    """The state before the first row.

    With `rows`, `solver.init` reads rows of zeros behind the first chunk.
    """
    n = max(first.y.shape[0], rows or 0)

    def extend(a: Any, fill: int = 0) -> Array:
        widths = [(0, n - a.shape[0]), *[(0, 0)] * (a.ndim - 1)]
        return jnp.pad(a, widths, constant_values=fill)

    index = jnp.arange(n, dtype=jnp.int32)
    data = jax.tree.map(extend, first)._replace(
        y=extend(first.y, 1), weight=extend(first.weight, 1), index=index
    )
    state = unwrap_static(solver).init(jax.random.split(key)[0], data)
    return _on_each_device(state) if on_mesh else state
