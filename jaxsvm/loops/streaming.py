"""`stream`: a solver run on chunks of rows, each read once, of which at most two are in memory."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sized
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import x64_enabled
from ..data.sharding import shard
from ..files import DeferredInterrupt, check_field
from ..flags import despite_flags
from ..models import classes_of
from ..numerics import accum_dtype, depends_on
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
from .feeds import InOrder, on_each_device, plan_lift
from .identity import origin_of, with_names, with_state
from .loop import drive, rows_of_curve, run_chunk
from .programs import as_argument, conclude
from .progress import Bar
from .rounds import (
    BatchLayout,
    PendingRows,
    StreamReader,
    StreamRound,
    check_columns,
    check_mesh,
    layout_of_batch,
    no_rows,
    pending_of_state,
    to_devices,
)
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
    chunks: Array  # ()  int32, chunks read so far, in each process
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
    memory: float | None = None,
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

    On a mesh of K devices each takes b / K rows of a step. With several processes
    (`jax.distributed.initialize`) all make this call, each with chunks of its own:

        batch_t = the rows t b_p .. (t+1) b_p - 1 of each process p, side by side,
        b_p = b * devices of p / K

    A round reads the next chunk of each process and makes the steps that the longest of them
    fills. A process without rows for a step adds none: chunks of equal sizes keep all at work. The
    model is the same in all.

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
        memory: bytes that the features of a chunk may occupy (solvers on features); above, each
            update computes its own. None: 2 GiB.
        mesh: of all devices with the one axis "rows", such as `jax.make_mesh((8,), ("rows",))`;
            not for solvers with a state for each row. None: one device.
        save: path of a file that holds the state after every chunk; of several processes, of a
            folder that all can write. If it cannot be written there is a warning, and the run
            continues.
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
        RuntimeError: another process failed at its next chunk.
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
    mesh = check_mesh(mesh)
    rows = None if rows is None else whole_number("rows", rows, 1)
    several = jax.process_count() > 1
    saver, error = _saver(save, several)
    seen = 0 if state is None else int(state.seen)
    names = FirstNames()
    checked = host_chunks(chunks, task, seen, rows, x64_enabled(), names, keep_empty=several)
    with (
        _bar(chunks, progress) as bar,
        contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh),
        DeferredInterrupt() as interrupt,
        contextlib.closing(StreamReader(checked, interrupt)) as rounds,
    ):
        like: Batch | None = None
        call: tuple = (batch_size,)
        if state is not None:
            like = jax.tree.map(_no_rows_of, state.pending)
            call += tuple(map(int, (state.step, state.seen, state.chunks)))
        first, lengths = rounds.first(like, call, error)
        curve: list[Curve] = []
        cause = STEPS
        if rounds.interrupted and state is None:
            raise KeyboardInterrupt("the stream was interrupted before its first chunk")
        if first is None or rounds.ended or rounds.interrupted:
            solver, end, step = _empty_stream(solver, state, rows)
        else:
            if isinstance(probe, Probe) and names.classes is not None:
                probe = probe.matched(names.classes)
            plan = _plan(
                solver, probe, first, lengths, mesh, batch_size, state, rows, memory, names
            )
            start = _init_or_resume(plan, key, state, first)
            del first  # the program reads it once more, as part of the first round
            saver.check(_state(plan, start))
            step = start.step
            position, curve, cause = _make_rounds(plan, rounds, start, saver, bar)
            solver, end = plan.solver, _state(plan, position)
        interrupted = rounds.interrupted or interrupt.requested or cause == INTERRUPTED
        # a second Ctrl-C does not lose the run
        with DeferredInterrupt() if interrupted else contextlib.nullcontext():
            run = _fit(solver, end, curve, step, names.classes, interrupted)
            raises = interrupted or interrupt.requested
            return saver.finish(run, raises=raises and on_interrupt == "raise")


def _saver(save: Any, several: bool) -> tuple[Saver, Exception | None]:
    """The writer of the state; with several processes an error is kept until all know."""
    try:
        return Saver(save), None
    except (OSError, TypeError) as error:
        if not several:
            raise
        return Saver(None), error


def _bar(chunks: Any, progress: bool) -> Any:
    """A context with the bar, or with None; it is that of the first process."""
    if not progress or jax.process_index() > 0:
        return contextlib.nullcontext()
    # another process may have more chunks
    has_end = isinstance(chunks, Sized) and jax.process_count() == 1
    return contextlib.closing(Bar(len(chunks) if has_end else None, "chunks"))


class StreamPlan(NamedTuple):
    """What stays the same in all rounds of a stream."""

    solver: Any  # as an argument of a compiled function
    origin: np.ndarray  # of the solver, and the names of the first chunk
    names: FirstNames  # as far as chunks have told
    probe: Any
    layout: BatchLayout
    size: int  # steps of one call of the program
    like: Batch  # no rows, of the types and columns of all
    rows: int | None  # as of `stream`
    per_row: bool  # whether the state has an entry for each row
    lift: bool  # compute the features of all rows of a call at once


class StreamPosition(NamedTuple):
    """A stream between two rounds: the fields of `StreamState`, with numbers of the host."""

    run: RunState  # without a sampler
    pending: PendingRows
    n_pending: int
    seen: int
    chunks: int

    @property
    def step(self) -> int:
        """The number of updates made."""
        return int(self.run.step)


def _no_rows_of(a: Any) -> np.ndarray:
    return np.zeros((0, *a.shape[1:]), a.dtype)


def _plan(
    solver: Any,
    probe: Any,
    first: Batch,
    lengths: np.ndarray,
    mesh: Mesh | None,
    batch_size: Any,
    state: StreamState | None,
    rows: int | None,
    memory: float | None,
    names: FirstNames,
) -> StreamPlan:
    """How a stream of chunks like the first is read.

    Args:
        solver: as of `stream`, as are the others.
        probe: or None.
        first: the first chunk of this process.
        lengths: the rows of the first chunk of each process.
        mesh: of `check_mesh`.
        batch_size: or None.
        state: or None.
        rows: or None.
        memory: or None.
        names: those of classes and columns.
    """
    if state is None:
        b = (solver.sampler or uniform(1)).rows(int(lengths.sum()))
    else:
        b = state.pending.y.shape[0]
    layout = layout_of_batch(mesh, batch_size, b, state is not None)
    dtype = accum_dtype(first.x)
    solver, probe = as_argument(solver, dtype), as_argument(probe, dtype)
    size = max(1, int((-(-lengths // layout.shares)).max()))
    like = jax.tree.map(_no_rows_of, first)
    n = size * layout.batch
    call = jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype), like)
    per_row = layout.mesh is None and _check_rows(solver, first, rows)
    if layout.mesh is not None and _per_row_leaves(solver, no_rows(like, 1)):
        raise ValueError(
            "this solver has a state for each row, and a stream on a mesh keeps none: take one "
            "such as pegasos or asset, or leave mesh out and give rows="
        )
    lift = plan_lift(solver, fields_of(solver), call, "auto", memory, 2**62, False)[0] == "once"
    origin = np.asarray(origin_of(solver, None, names.classes))
    return StreamPlan(solver, origin, names, probe, layout, size, like, rows, per_row, lift)


def _make_rounds(
    plan: StreamPlan, rounds: StreamReader, position: StreamPosition, saver: Saver, bar: Bar | None
) -> tuple[StreamPosition, list[Curve], int]:
    """All rounds from `position` on.

    Returns:
        The position after them, rows of the curve, and why they ended, as of `drive`.
    """

    def check(chunk: HostChunk) -> None:
        check_columns(chunk.batch, plan.like)
        check_targets(unwrap_static(plan.solver), chunk.batch)
        if plan.per_row and not (chunk.complete and (chunk.batch.weight == 1).all()):
            raise ValueError(
                "this solver has a bound for each row, which a stream cannot know "
                "beforehand: use weights of 1, or fit"
            )

    start_time, first = time.monotonic(), position

    def advance(position: StreamPosition, _: int) -> tuple[StreamPosition, list[Curve]] | None:
        this_round = rounds.next(plan.layout, position.pending.unused, position.seen, check)
        if this_round is None:
            return None
        if position.step + this_round.length > MOST_STEPS:
            warnings.warn(_FULL, RuntimeWarning, stacklevel=5)
            return None
        return _make_round(plan, position, this_round)

    def show(position: StreamPosition, row: Curve) -> tuple[int, str]:
        speed = (position.step - first.step) / (time.monotonic() - start_time)
        return position.chunks - first.chunks, f"loss {float(row.loss):.3g}, {speed:.3g} steps/s"

    how: Any = {"to_save": functools.partial(_state, plan), "bar": bar, "show": show}
    return drive(advance, position, saver=saver, **how)


def _make_round(
    plan: StreamPlan, position: StreamPosition, this_round: StreamRound
) -> tuple[StreamPosition, list[Curve]]:
    """The steps of one round; the position after it, and rows of the curve."""
    layout, run, table = plan.layout, position.run, []
    for rows, length in this_round.parts(layout, plan.size):
        feed = InOrder(None, rows, layout.batch, layout.devices, plan.lift)
        inputs: Any = plan.solver, None, plan.probe, None, feed
        run, row = run_chunk(*inputs, run, None, length, every=plan.size)
        table.append(row)
    jax.block_until_ready(run)
    next_position = StreamPosition(
        run,
        position.pending.read(this_round.rows, this_round.used),
        this_round.n_pending,
        (position.seen + this_round.n_read) % (plan.rows or 2**31),
        position.chunks + this_round.chunks,
    )
    return next_position, table


def _state(plan: StreamPlan, position: StreamPosition) -> StreamState:
    """The state to save, with arrays on the devices."""
    solver_state, step = position.run.solver, position.run.step
    mesh = plan.layout.mesh
    counts = (np.int32(position.n_pending), np.int32(position.seen), np.int32(position.chunks))
    numbers = (
        *counts,
        np.bool_(False),
        with_state(with_names(plan.origin, plan.names.classes), solver_state),
    )
    if mesh is None:
        pending, numbers = jax.device_put((position.pending.rows, numbers))
    else:
        everywhere = NamedSharding(mesh, PartitionSpec())
        place = lambda a: jax.make_array_from_process_local_data(everywhere, np.asarray(a))
        pending = to_devices(plan.layout, position.pending.rows)
        numbers = jax.tree.map(place, numbers)
    n_pending, *rest = numbers
    return StreamState(solver_state, pending, n_pending, step, *rest)


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


def _init_or_resume(
    plan: StreamPlan, key: Array | None, state: StreamState | None, first: Batch
) -> StreamPosition:
    """The stream before its first row, or `state`, checked and copied."""
    layout, n = plan.layout, plan.rows if plan.per_row else None
    if state is None:
        data = first if layout.mesh is None else shard(first, layout.mesh)
        run = init_stream(plan.solver, key, data, rows=n, devices=layout.devices)
        return StreamPosition(run, PendingRows(no_rows(plan.like, layout.own_batch)), 0, 0, 0)
    data = first if layout.mesh is None else no_rows(plan.like, layout.devices)
    start = init_stream.eval_shape(plan.solver, jax.random.key(0), data, rows=n)
    like = state._replace(solver=start.solver, pending=no_rows(plan.like, layout.batch))
    check_like(state, like, ("solver", "pending"))
    per_row = lambda fields: plan.per_row
    solver_state = check_origin(plan.solver, state, plan.origin, per_row)
    place = functools.partial(_place_on, layout.mesh)
    solver_state, step = jax.tree.map(place, (solver_state, jnp.asarray(state.step, jnp.int32)))
    run = RunState(solver_state, (), step, jnp.zeros((), bool))
    n_pending = int(state.n_pending)
    pending = pending_of_state(layout, state.pending, n_pending)
    return StreamPosition(run, pending, n_pending, int(state.seen), int(state.chunks))


def _place_on(mesh: Mesh | None, a: Any) -> Array:
    """An array on each device of the mesh; without one, on a single device."""
    a = jnp.asarray(a)
    if mesh is not None and a.is_fully_addressable:
        a = jax.device_put(a, NamedSharding(mesh, PartitionSpec()))
    if mesh is None and len(a.sharding.device_set) > 1:
        a = jax.device_put(a, jax.local_devices()[0])
    return a


def _fit(
    solver: Any, state: Any, rows: list, first_step: int, known: Any, interrupted: bool
) -> Fit:
    """The `Fit` of a stream, whose curve has these rows.

    `first_step` is the number of updates made before this call, `known` the names of the chunks.
    """
    value, count = (jax.ShapeDtypeStruct((), a.dtype) for a in (state.pending.y, state.step))
    types: Any = count, value, value, count, value, None
    curve = rows_of_curve(rows, Curve(*types))
    step, losses = np.asarray(curve.step), np.asarray(curve.loss)
    # rows of the curve with at least one step
    rows_with_steps = np.flatnonzero(step > np.concatenate([[first_step], step[:-1]]))
    loss = losses[rows_with_steps[-1]] if rows_with_steps.size else np.zeros((), losses.dtype)
    model, finite = conclude(solver, state.solver, None, state.pending, loss)
    cause = jnp.asarray(np.int32(INTERRUPTED if interrupted else STEPS))
    tol = jnp.asarray(jnp.nan, state.pending.y.dtype)
    classes = classes_of(fields_of(solver).targets, known)
    return Fit(model, state, curve, tol, finite, cause, classes)


_FULL = (
    f"the next chunk would lead past step {MOST_STEPS}, the last that is counted: the stream ends "
    "here; begin a new one with the chunks that are left"
)


def _empty_stream(
    solver: Any, state: StreamState | None, rows: int | None
) -> tuple[Any, StreamState, int]:
    """The solver as an argument of a compiled function, the state, and its number of steps.

    Raises:
        ValueError: there is no state, or it is that of another solver.
    """
    if state is None:
        raise ValueError("there is no chunk with rows: the stream is empty")
    solver = as_argument(solver, state.pending.y.dtype)
    first = no_rows(jax.tree.map(_no_rows_of, state.pending), 1)
    per_row = bool(_per_row_leaves(solver, first))
    check_origin(solver, state, origin_of(solver, None, None), lambda fields: per_row)
    if rows is not None or not per_row:
        expected = init_stream.eval_shape(solver, jax.random.key(0), first, rows=rows)
        check_like(state, state._replace(solver=expected.solver), ("solver",))
    return solver, state, int(state.step)


def _per_row_leaves(solver: Any, first: Batch) -> list[int]:
    """The places of the leaves of the state whose shapes depend on the number of rows."""
    states = [
        init_stream.eval_shape(solver, jax.random.key(0), first, rows=n).solver
        for n in (first.y.shape[0], first.y.shape[0] + 2**16)
    ]
    leaf_pairs = zip(*map(jax.tree.leaves, states), strict=True)
    return [place for place, (short, long) in enumerate(leaf_pairs) if short.shape != long.shape]


def _check_rows(solver: Any, first: Batch, rows: int | None) -> bool:
    """Whether the state has an entry for each row, in which case `rows` must be given."""
    per_row_leaves = _per_row_leaves(solver, first)
    if not per_row_leaves:
        return False
    if rows is None:
        raise ValueError(
            "this solver has a state for each row: say how many rows there are in all, rows="
        )
    if rows < first.y.shape[0]:
        raise ValueError(
            f"rows={rows}, but the first chunk alone has {first.y.shape[0]}: give "
            "the number of all rows"
        )

    def init_per_row(values):
        state = unwrap_static(solver).init(
            jax.random.key(0), first._replace(x=values[0], y=values[1])
        )
        return [jax.tree.leaves(state)[place] for place in per_row_leaves]

    if any(depends_on(init_per_row, (first.x, first.y))):
        raise ValueError(
            "this solver begins with something of each row (one_vs_one of a dual method: which "
            "pairs a row counts for), which a stream cannot know beforehand: use fit, or "
            "one_vs_rest"
        )
    return True


@functools.partial(jax.jit, static_argnames=("rows", "devices"))
def init_stream(
    solver: Any, key: Array, first: Batch, *, rows: int | None, devices: int = 1
) -> RunState:
    """The run before its first row.

    With `rows`, `solver.init` reads rows of zeros behind the first chunk.
    """
    n_missing = 0 if rows is None else rows - first.y.shape[0]

    def extend(a, fill):
        return (
            a
            if n_missing <= 0
            else jnp.concatenate([a, jnp.full((n_missing, *a.shape[1:]), fill, a.dtype)])
        )

    data = jax.tree.map(lambda a: extend(jnp.asarray(a), 0), first)
    data = data._replace(
        y=extend(jnp.asarray(first.y), 1),
        weight=extend(jnp.asarray(first.weight), 1),
        index=jnp.arange(data.y.shape[0], dtype=jnp.int32),
    )
    state = unwrap_static(solver).init(jax.random.split(key)[0], data)
    step, done = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    return RunState(on_each_device(state, devices), (), step, done)
