"""`stream`: a solver run on chunks of rows, each read once, of which at most two are in memory."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sized
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import x64_enabled
from ..files import DeferredInterrupt, check_field
from ..numerics import accum_dtype, check_process, depends_on
from ..recipe import as_static, cast, check_choice, register, unwrap_static
from ..samplers import uniform
from ..types import (
    INTERRUPTED,
    STEPS,
    Array,
    Batch,
    Curve,
    Fit,
    Run,
    Solver,
    SparseRows,
    State,
)
from .checks import (
    MOST_STEPS,
    check_counters,
    check_key,
    check_like,
    check_probe,
    check_solver,
    check_targets,
    whole_number,
)
from .chunks import feed, fixed_size_chunks, next_part
from .curve import add_info, curve_row, empty_sums
from .fit import plan_lift, rows_of_curve
from .programs import conclude
from .progress import Bar
from .saving import Saver


@register("StreamState")
class StreamState(NamedTuple):
    """The state that `stream` resumes from."""

    solver: State
    pending: Batch  # (b,) buffer: its last `n_pending` rows have not filled a batch yet
    n_pending: Array  # ()    int32
    step: Array  # ()    int32, updates made
    seen: Array  # ()    int32, rows read so far (modulo `rows` if that was given, else 2^31)
    chunks: Array  # ()  int32, chunks read so far
    done: Array  # ()    bool, False: a stream has no tolerance

    def __check__(self) -> None:
        if not isinstance(self.pending, Batch):
            raise ValueError(f"pending must be a batch, got {type(self.pending).__name__}")
        check_field("n_pending", self.n_pending, "whole", (), least=0, most=self.pending.y.shape[0])
        for name in ("step", "seen", "chunks"):
            check_field(name, getattr(self, name), "whole", (), least=0)
        check_field("done", self.done, "truth", ())


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

    Args:
        solver: any with `reads="rows"` (linear, on features, on a budget).
        chunks: batches or tuples (x, y) or (x, y, weight), finite numbers, x (m, d) dense or
            `SparseRows` of one width, m >= 1; see `jaxsvm.data.chunks`. `init` reads the first.
        key: a key of `jax.random.key`; may be left out with `state` only, which has its own.
        rows: number of rows in all, >= 1; for solvers with a state for each row (dual ones). Rows
            are numbered modulo `rows`: give the chunks of all passes, one after the other. Their
            weights must be 1.
        state: the state to resume from, `run.state` of an earlier call or `models.load(path)`.
            `chunks` are then those that were not read yet, `chunks[int(state.chunks):]` of the same
            sequence; if none is left, the run is returned unchanged.
        batch_size: rows of an update, >= 1; None: that of the state, else that of the solver's
            paper.
        task: required targets of the chunks, "binary", "multiclass" or "regression"; None: those of
            the solver.
        probe: model -> any tree of arrays, computed after every chunk.
        memory: bytes that the features of a chunk may occupy (solvers on features); above, each
            update computes its own. None: 2 GiB.
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
            of another solver.
        FileNotFoundError: the folder of `save` does not exist.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as
        `run`.

    Differs from `fit`: the sampler of the solver is not used; steps read the weights unscaled, so
    that their mean should be 1.

    Example:
        >>> import jaxsvm
        >>> parts = jaxsvm.data.chunks(jaxsvm.data.breast_cancer(columns=[0, 1]), rows=200)
        >>> run = stream(jaxsvm.pegasos(0.1), parts, jax.random.key(0))
        >>> int(run.state.step), run.info.loss.shape
        (569, (3,))
    """
    check_process()
    task = _check_arguments(solver, chunks, key, state, task, probe)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    saver = Saver(save)
    rows = None if rows is None else whole_number("rows", rows, 1)
    host_chunks = feed(chunks, task, 0 if state is None else int(state.seen), rows, x64_enabled())
    chunk = next(host_chunks, None)
    if chunk is None:
        return _empty_stream(solver, state)
    first = chunk.batch
    size, dtype = first.y.shape[0], accum_dtype(first.x)
    b = state.pending.y.shape[0] if state is not None else (solver.sampler or uniform(1)).rows(size)
    b = b if batch_size is None else whole_number("batch_size", batch_size, 1)
    solver, probe = cast(as_static(solver), dtype), cast(as_static(probe), dtype)
    per_row = _check_rows(solver, first, rows)
    stream_state = _init_or_resume(solver, key, state, first, rows if per_row else None, b)
    saver.check(stream_state)
    buffer = jax.eval_shape(
        lambda: jax.tree.map(lambda a: jnp.zeros((size + b, *a.shape[1:]), a.dtype), first)
    )
    lift = plan_lift(solver, buffer, "auto", memory, 2**62, False)[0] == "once"

    bar = Bar(len(chunks) if isinstance(chunks, Sized) else None, "chunks") if progress else None
    executor = concurrent.futures.ThreadPoolExecutor(1)
    curve, chunks_done, first_step, start_time = [], 0, int(stream_state.step), time.monotonic()
    try:
        with DeferredInterrupt() as interrupt:
            while chunk is not None:
                check_targets(unwrap_static(solver), chunk.batch)
                if int(stream_state.step) + chunk.batch.y.shape[0] // b + 1 > MOST_STEPS:
                    warnings.warn(_FULL, RuntimeWarning, stacklevel=2)
                    break
                if per_row and not (chunk.complete and (chunk.batch.weight == 1).all()):
                    raise ValueError(
                        "this solver has a bound for each row, which a stream cannot know "
                        "beforehand: use weights of 1, or fit"
                    )
                next_chunk = executor.submit(next, host_chunks, None)
                for batch, count in fixed_size_chunks(chunk.batch, first):
                    stream_state, row = run_stream_chunk(
                        solver, probe, stream_state, batch, count, lift=lift
                    )
                    curve.append(row)
                stream_state = stream_state._replace(
                    seen=jnp.asarray(chunk.seen, jnp.int32),
                    chunks=stream_state.chunks + chunk.chunks,
                )
                jax.block_until_ready(stream_state)
                chunks_done += chunk.chunks
                saver.save(stream_state)
                if bar:
                    speed = (int(stream_state.step) - first_step) / (time.monotonic() - start_time)
                    bar.show(chunks_done, f"loss {float(row.loss):.3g}, {speed:.3g} steps/s")
                chunk = next_part(next_chunk, interrupt)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        if bar:
            bar.close()
    interrupted = interrupt.requested
    # a second Ctrl-C does not lose the run
    with DeferredInterrupt() if interrupted else contextlib.nullcontext():
        run = _fit(solver, stream_state, rows_of_curve(curve, None), first_step, interrupted)
        return saver.finish(run, raises=interrupted and on_interrupt == "raise")


def _check_arguments(
    solver: Any, chunks: Any, key: Any, state: Any, task: str | None, probe: Any
) -> str:
    """The task, by default that of the solver; raise for arguments that are not valid."""
    if key is None and state is None:
        raise ValueError("stream needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    if state is not None and not isinstance(state, StreamState):
        what = "that of fit" if isinstance(state, Run) else type(state).__name__
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
    if solver.reads == "all":
        raise ValueError(
            "this solver reads all rows at every step: use fit, or features "
            "(jaxsvm.on_features), in a stream"
        )
    return task


def _init_or_resume(
    solver: Any,
    key: Array | None,
    state: StreamState | None,
    first: Batch,
    rows: int | None,
    batch: int,
) -> StreamState:
    """The stream before its first row, or `state`, checked and copied."""
    if state is None:
        return init_stream(solver, key, first, rows=rows, batch=batch)
    expected = init_stream.eval_shape(solver, jax.random.key(0), first, rows=rows, batch=batch)
    check_like(state, expected, ("solver", "pending"))
    # a copy, as the program reuses the memory of its argument
    return jax.tree.map(jnp.copy, state)


def _fit(solver: Any, state: Any, curve: Curve, first_step: int, interrupted: bool = False) -> Fit:
    """The `Fit` of a stream; `first_step` is the number of updates made before this call."""
    step, losses = np.asarray(curve.step), np.asarray(curve.loss)
    # rows of the curve with at least one step
    rows_with_steps = np.flatnonzero(step > np.concatenate([[first_step], step[:-1]]))
    loss = losses[rows_with_steps[-1]] if rows_with_steps.size else np.zeros((), losses.dtype)
    model, finite = conclude(solver, state.solver, None, state.pending, loss)
    cause = jnp.asarray(np.int32(INTERRUPTED if interrupted else STEPS))
    return Fit(model, state, curve, jnp.asarray(jnp.nan, state.pending.y.dtype), finite, cause)


_FULL = (
    f"the next chunk would lead past step {MOST_STEPS}, the last that is counted: the stream ends "
    "here; begin a new one with the chunks that are left"
)


def _empty_stream(solver: Any, state: StreamState | None) -> Fit:
    """The `Fit` of a stream without rows: the run of `state`, unchanged."""
    if state is None:
        raise ValueError("there is no chunk with rows: the stream is empty")
    dtype = state.pending.y.dtype
    count, value = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), dtype)
    types: Any = count, value, value, count, jax.ShapeDtypeStruct((2,), jnp.int32), None
    curve = rows_of_curve([], Curve(*types))
    return _fit(cast(as_static(solver), dtype), state, curve, int(state.step))


def _check_rows(solver: Any, first: Batch, rows: int | None) -> bool:
    """Whether the state has an entry for each row, in which case `rows` must be given."""
    states = [
        init_stream.eval_shape(solver, jax.random.key(0), first, rows=n, batch=1).solver
        for n in (first.y.shape[0], 2**30)
    ]
    leaf_pairs = zip(*map(jax.tree.leaves, states), strict=True)
    per_row_leaves = [
        place for place, (short, long) in enumerate(leaf_pairs) if short.shape != long.shape
    ]
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


@functools.partial(jax.jit, static_argnames=("rows", "batch"))
def init_stream(
    solver: Any, key: Array, first: Batch, *, rows: int | None, batch: int
) -> StreamState:
    """The stream before its first row.

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
    buffer = jax.tree.map(lambda a: jnp.zeros((batch, *a.shape[1:]), a.dtype), first)
    zero = jnp.zeros((), jnp.int32)
    return StreamState(
        unwrap_static(solver).init(jax.random.split(key)[0], data),
        buffer,
        zero,
        zero,
        zero,
        zero,
        jnp.zeros((), bool),
    )


@functools.partial(jax.jit, static_argnames=("lift",), donate_argnums=(2,))
def run_stream_chunk(
    solver: Any, probe: Any, stream_state: StreamState, chunk: Batch, count: np.int32, *, lift: bool
) -> tuple[StreamState, Curve]:
    """One update for each batch filled; and a row of the curve.

    Batches are filled by the buffered rows and the first `count` of a chunk.
    """
    solver, probe = unwrap_static(solver), unwrap_static(probe)
    b = stream_state.pending.y.shape[0]
    rows = jax.tree.map(lambda *a: jnp.concatenate(a), stream_state.pending, chunk)
    # buffered rows are the last of the buffer
    start, total = b - stream_state.n_pending, stream_state.n_pending + count
    length = total // b
    step_rows = solver.prepare(rows) if lift else rows
    slice_of = lambda tree, start: jax.tree.map(
        lambda a: lax.dynamic_slice_in_dim(a, start, b), tree
    )

    def batch(start):
        if not isinstance(step_rows.x, SparseRows):
            return slice_of(step_rows, start)
        # rows by reference, as in fit
        index = jnp.asarray(start, jnp.int32) + jnp.arange(b, dtype=jnp.int32)
        return slice_of(step_rows._replace(x=step_rows.y), start)._replace(
            x=dataclasses.replace(step_rows.x, rows=index)
        )

    def body(k, carry):
        state, sums = carry
        state, info = solver.update(state, batch(start + k * b))
        return state, add_info(sums, info)

    info = jax.eval_shape(lambda state: solver.update(state, batch(0))[1], stream_state.solver)
    state, sums = lax.fori_loop(0, length, body, (stream_state.solver, empty_sums(info)))
    value = None if probe is None else probe(solver.model(state, None))
    row = curve_row(sums, stream_state.step, length, value)
    n_pending = total - length * b
    return stream_state._replace(
        solver=state, pending=slice_of(rows, count), n_pending=n_pending, step=row.step
    ), row
