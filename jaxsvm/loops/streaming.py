"""`stream`: a solver run on chunks of rows, each read once, of which at most two are in memory.

stream -> _begin -> _read -> run_batches (compiled)
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import operator
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._node import carried, cast, register
from ..checks import caller_stacklevel, calling, check_choice, shown, x64_enabled
from ..data.sharding import shard
from ..files import DeferredInterrupt
from ..flags import despite_flags, with_flags_of_caller
from ..models import classes_of
from ..numerics import accum_dtype, depends_on
from ..numerics.sharding import ROWS, auto_axes, example_mesh, split_rows
from ..objectives.probes import Probe
from ..samplers import uniform
from ..types import (
    INTERRUPTED,
    STEPS,
    Array,
    Batch,
    Curve,
    Fit,
    Lifted,
    RunState,
    Solver,
    SparseRows,
    State,
    updated,
)
from .checks import (
    check_key,
    check_probe,
    check_solver,
    check_targets,
    whole,
    whole_number,
)
from .chunks import FirstNames, HostChunk, host_chunks
from .fitting import add_info, conclude, curve_row, empty_sums, rows_of_curve, with_features
from .origin import MOST_STEPS, check_counters, check_like, check_origin, origin_of
from .program_cache import release_programs
from .progress import Bar
from .saving import Saver


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
    # (6,) uint32, as of `RunState`; those of rows, targets and weights are 0, not known
    origin: Array | None = None


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
        >>> import jax, jaxsvm
        >>> parts = jaxsvm.data.chunks(jaxsvm.data.breast_cancer(columns=[0, 1]), rows=200)
        >>> result = jaxsvm.stream(jaxsvm.pegasos(0.1), parts, jax.random.key(0))
        >>> int(result.state.step), result.info.loss.shape
        (569, (3,))
    """
    if key is None and state is None:
        raise ValueError("stream needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    if state is not None and not isinstance(state, StreamState):
        raise TypeError(
            "state must be that of an earlier stream, got "
            f"{'that of fit' if isinstance(state, RunState) else type(state).__name__}: pass the "
            "run.state of a stream"
        )
    if state is not None:
        check_counters(state, ("n_pending", "step", "seen", "chunks"))
    if not isinstance(chunks, Iterable) and not hasattr(chunks, "__getitem__"):
        raise TypeError(
            f"chunks must be a sequence or an iterator of chunks, got {type(chunks).__name__}"
        )
    wanted = check_solver(solver).targets
    check_probe(probe)
    tasks = {"labels": "binary", "real": "regression", None: "binary"}
    task = tasks.get(wanted, "multiclass") if task is None else task
    check_choice("task", task, ("binary", "multiclass", "regression"))
    if solver.needs_all_rows:
        raise ValueError(
            "this solver reads all rows at every step: use fit; or, in a stream, one such as "
            "pegasos or asset, for kernels on features (jaxsvm.on_features)"
        )
    if not isinstance(mesh, Mesh | None):
        raise TypeError(f"mesh must be a mesh such as {example_mesh()}, got {shown(mesh)}")
    if mesh is not None and tuple(mesh.axis_names) != (ROWS,):
        raise ValueError(
            f'mesh must have the axis "{ROWS}" alone, got {", ".join(mesh.axis_names)}: make it '
            f"with {example_mesh()}"
        )
    if mesh is not None and mesh.is_multi_process:
        raise ValueError(
            "mesh has devices of other processes, and a stream is of one: make it of "
            "jax.local_devices(); rows of several processes are for jaxsvm.shard and fit"
        )
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    mesh, rows = None if mesh is None else auto_axes(mesh), whole("rows", rows, 1)
    saver, names, curve, ended = Saver(save), FirstNames(), list[Curve](), False
    read = (0, 0) if state is None else (int(state.seen), int(state.chunks))
    checked = host_chunks(chunks, task, *read, rows or 2**31, x64_enabled(), names)
    length = len(chunks) if isinstance(chunks, Sized) else None
    with (
        contextlib.closing(Bar(length, "chunks")) if progress else contextlib.nullcontext() as bar,
        contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh),
        DeferredInterrupt() as interrupt,
        contextlib.closing(read_ahead(checked, interrupt)) as parts,
    ):
        chunk: HostChunk | None = next(parts, None)
        if state is None and interrupt.requested:
            raise KeyboardInterrupt("the stream was interrupted before its first chunk")
        if state is None and chunk is None:
            raise ValueError("there is no chunk with rows: the stream is empty")
        first: Any = state and no_rows(state.pending, 1) if chunk is None else chunk.batch
        if isinstance(probe, Probe) and names.classes is not None:
            probe = probe.matched(names.classes)
        asked = batch_size, rows, mesh
        plan, start = _begin(solver, probe, first, names, key, state, asked)
        saver.check(start)
        left, now = itertools.chain([] if chunk is None else [chunk], parts), start
        del chunk, first  # each chunk can go once it was read
        try:
            for part in left:
                steps = (int(now.n_pending) + len(part.batch.y)) // plan.batch
                if int(now.step) + steps > MOST_STEPS:
                    text = f"no step passes {MOST_STEPS}: begin a new stream with the chunks left"
                    warnings.warn(text, RuntimeWarning, stacklevel=caller_stacklevel())
                    break
                result = _read(plan, now, part, steps)
                with DeferredInterrupt(again=True):  # the run, its rows and its file stand together
                    now, curve = result[0], curve + result[1]
                    if saver.path is not None:
                        saver.save(_on_devices(plan, names, now))
                if bar:
                    text = f"loss {float(curve[-1].loss):.3g}"
                    bar.show(int(now.chunks) - int(start.chunks), text)
        except KeyboardInterrupt:
            ended = True  # the result of the last complete chunk is kept
        end: Any = state if state is not None and now is start else _on_devices(plan, names, now)
        ended |= interrupt.requested
        # a second Ctrl-C does not lose the run
        with DeferredInterrupt() if ended else contextlib.nullcontext():
            cause = np.int32(INTERRUPTED if ended else STEPS)
            tol: Any = np.asarray(np.nan, end.pending.y.dtype)
            table = rows_of_curve(curve, Curve(end.step, tol, tol, end.step, tol, None))
            has_steps = np.diff(np.asarray(table.step), prepend=int(start.step)) > 0
            loss = np.asarray(table.loss)[has_steps][-1:].sum()  # 0 without steps
            model, finite = conclude(plan.solver, end.solver, None, end.pending, loss)
            run = Fit(model, end, table, tol, finite, cause, classes_of(wanted, names.classes))
            raises = on_interrupt == "raise" and (ended or interrupt.requested)
            return saver.finish(run, raises=raises)


class StreamPlan(NamedTuple):
    """What stays the same in all chunks of a stream."""

    solver: Solver  # as an argument of a compiled function
    probe: Any
    mesh: Mesh | None  # None: one device
    parts: int  # devices, each of which has its part of a batch
    batch: int  # rows of a step
    size: int  # steps of one call of the program
    rows: int | None  # entries of the state, one for each row; None: it has none

    def place(self, rows: Batch) -> Batch:
        """Rows of whole batches on the devices: part j of each batch on device j."""
        if self.mesh is None:
            return rows
        front = -1, self.parts, self.batch // self.parts
        by_part = lambda a: a.reshape(*front, *a.shape[1:]).swapaxes(0, 1).reshape(a.shape)
        sharding = NamedSharding(self.mesh, PartitionSpec(ROWS))
        return jax.device_put(jax.tree.map(by_part, rows), sharding)


def _begin(
    solver: Solver, probe: object, first: Any, names: Any, key: object, state: State, asked: tuple
) -> tuple[StreamPlan, StreamState]:
    """How chunks like the first are read, and the stream before them: `state`, checked and copied.

    `asked` are batch_size, rows and mesh.
    """
    batch, rows, mesh = asked
    parts, n = 1 if mesh is None else mesh.size, len(first.y)
    drawn = -(-(solver.sampler or uniform(1)).rows(n) // parts) * parts
    default = drawn if state is None else len(state.pending.y)
    batch = whole_number("batch_size", default if batch is None else batch, 1)
    if batch % parts:
        raise ValueError(
            f'batches must be a multiple of the {parts} devices on the axis "{ROWS}", got batches '
            f"of {batch} rows: give another batch_size; or, to go on from a state, fewer devices"
        )
    like, dtype = no_rows(first, 1), accum_dtype(first.x)
    release_programs()
    solver = cast(solver, dtype)
    entries = solver.row_entries(like)
    per_row = any(entries)
    if per_row and mesh is not None:
        raise ValueError(
            "this solver has a state for each row, and a stream on a mesh keeps none: take one "
            "such as pegasos or asset, or leave mesh out and give rows="
        )
    if per_row and rows is None:
        raise ValueError(
            "this solver has a state for each row: say how many rows there are in all, rows="
        )
    if per_row and rows < n:
        raise ValueError(
            f"rows={rows}, but the first chunk alone has {n}: give the number of all rows"
        )
    init = lambda part: solver.init(jax.random.key(0), like._replace(x=part[0], y=part[1]))
    if any(map(operator.and_, entries, depends_on(init, (like.x, like.y)))):
        raise ValueError(
            "this solver begins with something of each row (one_vs_one of a dual method: which "
            "pairs a row counts for), which a stream cannot know beforehand: use fit, or "
            "one_vs_rest"
        )
    rows, size = rows if per_row else None, max(1, -(-n // batch))
    plan = StreamPlan(solver, cast(carried(probe), dtype), mesh, parts, batch, size, rows)
    origin: Any = origin_of(solver, None, names.classes)
    pending = no_rows(first, batch)
    if state is None:
        data = first if mesh is None else shard(first, mesh)
        begun = init_stream(solver, key, data, rows=rows, parts=parts)
        zero, step = np.int32(0), jnp.zeros((), jnp.int32)
        counts: Any = zero, step, zero, zero, np.bool_(False), origin
        return plan, StreamState(begun, pending, *counts)
    types = init_stream.eval_shape(solver, jax.random.key(0), like, rows=rows)
    check_like(state, state._replace(solver=types, pending=pending), ("solver", "pending"))
    solver_state = check_origin(solver, like, state, origin)
    home: Any = None if mesh is None else NamedSharding(mesh, PartitionSpec())
    if mesh is None and len(jnp.asarray(state.step).sharding.device_set) > 1:
        home = jax.local_devices()[0]
    solver_state, step = jax.device_put((solver_state, state.step), home)
    pending = jax.tree.map(np.asarray, state.pending)
    count = int(np.sum(pending.index >= 0))
    if count != state.n_pending:
        raise ValueError(
            f"state holds {count} rows that wait for a batch, and n_pending is "
            f"{int(state.n_pending)}: it was changed after its run, go on from it as it was"
        )
    return plan, state._replace(solver=solver_state, pending=pending, step=step, origin=origin)


def read_ahead(chunks: Iterator, interrupt: DeferredInterrupt) -> Generator:
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


def _read(plan: StreamPlan, state: State, chunk: HostChunk, steps: int) -> tuple[Any, list[Curve]]:
    """The state after a chunk, which fills so many steps, and a row of the curve for each call."""
    width = lambda x: f", {x.index.shape[1]} a row" if isinstance(x, SparseRows) else ""
    what = lambda rows: ("Lifted " if isinstance(rows, Lifted) else "") + type(rows.x).__name__
    kind = lambda rows: f"{rows.x.shape[1]} columns ({what(rows)}{width(rows.x)})"
    if kind(chunk.batch) != kind(state.pending):
        raise ValueError(
            f"chunks must have the same columns: one has {kind(chunk.batch)}, those before it "
            f"{kind(state.pending)}"
        )
    check_targets(plan.solver, chunk.batch)
    if plan.rows is not None and not (chunk.complete and (chunk.batch.weight == 1).all()):
        raise ValueError(
            "this solver has a bound for each row, which a stream cannot know beforehand: use "
            "weights of 1, or fit"
        )
    b, size, waiting, used = plan.batch, plan.size, int(state.n_pending), steps * plan.batch
    rows = jax.tree.map(lambda a, like: np.asarray(a, like.dtype), chunk.batch, state.pending)
    cut = lambda rows, start, end: jax.tree.map(lambda a: a[start:end], rows)
    unused = cut(state.pending, b - waiting if steps else b, b)
    padding = no_rows(rows, -used % (size * b) if steps else size * b)
    # one alone is not copied
    pieces = [p for p in (unused, cut(rows, 0, max(used - waiting, 0)), padding) if len(p.y)]
    filled = pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *pieces)
    curve = []
    for k in range(0, max(steps, 1), size):
        part, count = plan.place(cut(filled, k * b, (k + size) * b)), np.int32(min(size, steps - k))
        inputs, run = (plan.solver, plan.probe, part), (state.solver, state.step)
        new, row = run_batches(inputs, *run, count, batch=b, parts=plan.parts)
        state = state._replace(solver=new, step=row.step)
        curve.append(row)
    jax.block_until_ready(state.solver)
    last = jax.tree.map(lambda a, new: np.concatenate([a, new[-b:]])[-b:], state.pending, rows)
    left = waiting + len(rows.y) - used
    index = np.where(np.arange(b) >= b - left, last.index, -1).astype(np.int32)
    state = state._replace(pending=last._replace(index=index), n_pending=np.int32(left))
    return state._replace(seen=np.int32(chunk.seen), chunks=np.int32(chunk.chunks)), curve


def no_rows(like: Batch, n: int) -> Batch:
    """n rows of weight 0 that no step learns from."""
    zeros = jax.tree.map(lambda a: np.zeros((n, *a.shape[1:]), a.dtype), like)
    # 1 is a valid target of each kind
    return zeros._replace(y=np.ones_like(zeros.y), index=np.full(n, -1, np.int32))


def _on_devices(plan: StreamPlan, names: FirstNames, state: State) -> StreamState:
    """The state to save or return, with the names that chunks have told."""
    origin = origin_of(plan.solver, None, names.classes)
    return jax.device_put(state._replace(pending=plan.place(state.pending), origin=origin))


@functools.partial(jax.jit, static_argnames=("batch", "parts"))
def run_batches(
    inputs: tuple, state: State, step: Any, count: Any, *, batch: int, parts: int
) -> tuple[State, Curve]:
    """The updates on the first `count` batches of a chunk: the next state, a row of the curve.

    The features of all rows are computed first, if they take at most `fitting.MEMORY` bytes.

    Args:
        inputs: the solver, the probe or None, and rows of whole batches, as of `StreamPlan.place`.
        state: of the solver.
        step: () int32, updates before the chunk.
        count: () int32.
        batch: rows of an update; structure.
        parts: of a batch, each on its device; structure.
    """
    (solver, probe, rows), share = inputs, batch // parts
    probe = (lambda model: None) if probe is None else probe
    # traced once; what the solver computes of its numbers is rounded as within an update
    update = jax.jit(lambda state, rows: updated(solver, state, rows))
    rows = with_features(solver, rows)

    def batch_at(k: Any) -> Batch:
        def cut(a: Array) -> Array:
            part = lax.dynamic_slice_in_dim(split_rows(a, parts), k * share, share, axis=1)
            return part.reshape(batch, *a.shape[1:])

        if parts > 1 or not isinstance(rows.x, SparseRows):
            return jax.tree.map(cut, rows)
        index = k * batch + jnp.arange(batch, dtype=jnp.int32)  # by reference
        x: Any = dataclasses.replace(rows.x, rows=index)
        return jax.tree.map(cut, rows._replace(x=rows.y))._replace(x=x)

    def body(k: object, carry: tuple) -> tuple:
        state, info = update(carry[0], batch_at(k))
        return state, add_info(carry[1], info)

    info = jax.eval_shape(update, state, jax.eval_shape(batch_at, 0))[1]
    state, sums = lax.fori_loop(0, count, body, (state, empty_sums(info)))
    with calling("probe", probe, "of the model to arrays of numbers"):
        value = jax.tree.map(jnp.asarray, probe(solver.model(state, None)))
    state = lax.with_sharding_constraint(state, PartitionSpec()) if parts > 1 else state
    return state, curve_row(sums, step, count, value)


@functools.partial(jax.jit, static_argnames=("rows", "parts"))
def init_stream(
    solver: Solver, key: Array, first: Batch, *, rows: int | None, parts: int = 1
) -> State:
    """The state before the first row, by the first chunk; or by `rows` rows of zeros."""
    if rows is not None:
        zeros = jax.tree.map(lambda a: jnp.zeros((rows, *a.shape[1:]), a.dtype), first)
        first = zeros._replace(y=zeros.y + 1, weight=zeros.weight + 1)
    first = first._replace(index=jnp.arange(first.y.shape[0], dtype=jnp.int32))
    state = solver.init(jax.random.split(key)[0], first)
    # whole on each device: the compiler would be free to divide it
    return lax.with_sharding_constraint(state, PartitionSpec()) if parts > 1 else state
