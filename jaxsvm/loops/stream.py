"""`stream`: a solver fed with chunks of rows, each seen once, of which only a few are in memory."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..files import DeferredInterrupt, check_field
from ..multiclass import depends_on
from ..numerics import accum_dtype, check_process
from ..recipe import as_static, cast, check_choice, register, unwrap_static
from ..samplers import uniform
from ..types import Array, Batch, Curve, Fit, Run, Solver, SparseRows, State
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
from .fit import conclude, plan_lift, rows_of_curve
from .progress import Bar
from .saving import Saver


@register("StreamState")
class StreamState(NamedTuple):
    """Everything that `stream` goes on from."""

    solver: State
    waiting: Batch  # (b,) rows, the last `held` of which wait for their batch to fill
    n_waiting: Array  # ()    int32
    step: Array  # ()    int32, updates made
    seen: Array  # ()    int32, rows taken in (modulo `rows` where that was given, else 2^31)
    chunks: Array  # ()  int32, chunks taken in
    done: Array  # ()    bool, False: a stream has no tolerance

    def __check__(self) -> None:
        if not isinstance(self.waiting, Batch):
            raise ValueError(f"waiting must be a batch, got {type(self.waiting).__name__}")
        check_field("n_waiting", self.n_waiting, "whole", (), least=0, most=self.waiting.y.shape[0])
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
) -> Fit:
    """Run a solver over rows that come in chunks: one update for each `batch_size` of them, in their order.

        batch_t = rows t b .. (t+1) b - 1 of the stream;   state_t+1, info_t = solver.update(state_t, batch_t)

    Chunks are cut and joined as they come: where one ends changes nothing, and rows that do not fill a batch wait in the
    state. The next chunk is fetched while the solver works on the last. One program serves all chunks that are no longer
    than the first; longer ones are cut. Rows of weight 0 are left out. Where the rows have an order (by class, by time),
    shuffle them beforehand: nothing is shuffled here.

    Args:
        solver: any whose steps read the drawn rows (linear, on features, on a budget).
        chunks: batches or tuples (x, y) or (x, y, weight), finite numbers, x (m, d) dense or `SparseRows` of one width,
            m >= 1; see `jaxsvm.data.chunks`. `init` sees the first.
        key: a key of `jax.random.key`; may be left out with `state` only, which has its own.
        rows: how many rows there are in all; for solvers with a state for each row (dual ones), which count the rows
            from 0 again after so many. Give the chunks of all passes, one after the other. Their weights must be 1.
        state: where to go on, `run.state` of an earlier call or `models.load(path)`; `chunks` are those not yet taken in,
            `chunks[int(state.chunks):]` of the same sequence; where none is left, the run is returned as it stands.
        batch_size: rows of an update, >= 1; None: as the state has it, else the solver's paper.
        task: what the targets of the chunks must be: "binary", "multiclass" or "regression"; None: as the solver takes them.
        probe: model -> any tree of arrays, worked out after every chunk.
        memory: bytes that the prepared rows of a chunk may take (solvers on features); above, each update prepares its
            own. None: 2 GiB.
        save: a file that holds the state after every chunk. Where it cannot be written there is a warning, and the run goes
            on.
        progress: a bar on the standard error stream.

    Returns:
        `Fit`: the model, the state to go on from, the curve with a row for each chunk (loss nan where no batch was
        filled), and what became of it in a sentence. Ctrl-C returns what was reached after the last chunk; the chunk
        fetched ahead is not in it, so an iterator must be made anew for what is left.

    Raises:
        TypeError: a chunk that is no batch.
        ValueError: no key and no state, no chunk, chunks of other columns, numbers that are not finite, targets that
            are not those of `task`, a solver that reads all rows, one that begins with something of each row
            (`one_vs_one` of a dual method), a state of another solver.
        FileNotFoundError: `save` in a folder that is not there.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as `run`.

    Differs from `fit`: the sampler of the solver is not asked; steps see the weights as they are, so that their mean
    should be 1.

    Example:
        >>> import jaxsvm
        >>> parts = jaxsvm.data.chunks(jaxsvm.data.breast_cancer(columns=[0, 1]), rows=200)
        >>> run = stream(jaxsvm.pegasos(0.1), parts, jax.random.key(0))
        >>> int(run.state.step), run.info.loss.shape
        (569, (3,))
    """
    check_process()
    if key is None and state is None:
        raise ValueError("stream needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    if state is not None and not isinstance(state, StreamState):
        what = "that of fit" if isinstance(state, Run) else type(state).__name__
        raise TypeError(f"state must be that of an earlier stream, got {what}: pass the run.state of a stream")
    if state is not None:
        check_counters(state, ("n_waiting", "step", "seen", "chunks"))
    if not isinstance(chunks, Iterable) and not hasattr(chunks, "__getitem__"):
        raise TypeError(f"chunks must be a sequence or an iterator of chunks, got {type(chunks).__name__}")
    check_solver(solver)
    check_probe(probe)
    if task is None:
        task = {"labels": "binary", "real": "regression", None: "binary"}.get(solver.targets, "multiclass")
    check_choice("task", task, ("binary", "multiclass", "regression"))
    if solver.reads == "all":
        raise ValueError("this solver reads all rows at every step: use fit, or features (jaxsvm.on_features), in a stream")
    saver = Saver(save)
    rows = None if rows is None else whole_number("rows", rows, 1)
    parts = feed(chunks, task, 0 if state is None else int(state.seen), rows, jax.config.jax_enable_x64)
    part = next(parts, None)
    if part is None:
        return _nothing_left(solver, state)
    first = part.batch
    size, dtype = first.y.shape[0], accum_dtype(first.x)
    b = state.waiting.y.shape[0] if state is not None else (solver.sampler or uniform(1)).rows(size)
    b = b if batch_size is None else whole_number("batch_size", batch_size, 1)
    solver, probe = cast(as_static(solver), dtype), cast(as_static(probe), dtype)
    per_row = _check_rows(solver, first, rows)
    begin = dict(rows=rows if per_row else None, batch=b)
    if state is None:
        flow = init_stream(solver, key, first, **begin)
    else:
        check_like(state, init_stream.eval_shape(solver, jax.random.key(0), first, **begin), ("solver", "waiting"))
        flow = jax.tree.map(jnp.copy, state)  # the program takes over the memory of its argument
    saver.check(flow)
    more = jax.eval_shape(lambda: jax.tree.map(lambda a: jnp.zeros((size + b, *a.shape[1:]), a.dtype), first))
    lift = plan_lift(solver, more, "auto", memory, 2**62, False)[0] == "once"

    bar = Bar(len(chunks) if hasattr(chunks, "__len__") else None, "chunks") if progress else None
    fetch = concurrent.futures.ThreadPoolExecutor(1)
    curve, taken, before, began = [], 0, int(flow.step), time.monotonic()
    try:
        with DeferredInterrupt() as interrupt:
            while part is not None:
                check_targets(unwrap_static(solver), part.batch)
                if int(flow.step) + part.batch.y.shape[0] // b + 1 > MOST_STEPS:
                    warnings.warn(_FULL, RuntimeWarning, stacklevel=2)
                    break
                if per_row and not (part.complete and (part.batch.weight == 1).all()):
                    raise ValueError(
                        "this solver has a bound for each row, which a stream cannot know beforehand: use weights of 1, or fit"
                    )
                coming = fetch.submit(next, parts, None)
                for batch, count in fixed_size_chunks(part.batch, first):
                    flow, row = run_stream_chunk(solver, probe, flow, batch, count, lift=lift)
                    curve.append(row)
                flow = flow._replace(seen=jnp.asarray(part.seen, jnp.int32), chunks=flow.chunks + part.chunks)
                jax.block_until_ready(flow)
                taken += part.chunks
                saver.save(flow)
                if bar:
                    pace = (int(flow.step) - before) / (time.monotonic() - began)
                    bar.show(taken, f"loss {float(row.loss):.3g}, {pace:.3g} steps/s")
                part = next_part(coming, interrupt)
    finally:
        fetch.shutdown(wait=False, cancel_futures=True)
        if bar:
            bar.close()
    return saver.finish(_fit(solver, flow, rows_of_curve(curve, None), before))


def _fit(solver: Solver, flow: StreamState, curve: Curve, before: int) -> Fit:
    """What came of a stream, whose first step of this call was number `before`."""
    step, losses = np.asarray(curve.step), np.asarray(curve.loss)
    filled = np.flatnonzero(step > np.concatenate([[before], step[:-1]]))  # chunks that made a step
    model, finite = conclude(
        solver, flow.solver, None, flow.waiting, losses[filled[-1]] if filled.size else np.zeros((), losses.dtype)
    )
    return Fit(model, flow, curve, jnp.asarray(jnp.nan, flow.waiting.y.dtype), finite)


_FULL = (
    f"the next chunk would lead past step {MOST_STEPS}, the last that is counted: the stream ends here; begin a new one with the "
    "chunks that are left"
)


def _nothing_left(solver, state: StreamState | None) -> Fit:
    """What a stream without rows gives: the run as it stands."""
    if state is None:
        raise ValueError("there is no chunk with rows: the stream is empty")
    dtype = state.waiting.y.dtype
    none, floats, ints = (jax.ShapeDtypeStruct(shape, t) for shape, t in (((), jnp.int32), ((), dtype), ((2,), jnp.int32)))
    curve = rows_of_curve([], Curve(none, floats, floats, none, ints, None))
    return _fit(cast(as_static(solver), dtype), state, curve, int(state.step))


def _check_rows(solver, first: Batch, rows: int | None) -> bool:
    """Whether the state has an entry for each row, in which case `rows` must be given."""
    made = [init_stream.eval_shape(solver, jax.random.key(0), first, rows=n, batch=1).solver for n in (first.y.shape[0], 2**30)]
    leaves = zip(*map(jax.tree.leaves, made), strict=True)
    of_rows = [place for place, (few, many) in enumerate(leaves) if few.shape != many.shape]
    same = not of_rows
    if not same and rows is None:
        raise ValueError("this solver has a state for each row: say how many rows there are in all, rows=")
    if not same and rows < first.y.shape[0]:
        raise ValueError(f"rows={rows}, but the first chunk alone has {first.y.shape[0]}: give the number of all rows")

    def begin(values):
        state = unwrap_static(solver).init(jax.random.key(0), first._replace(x=values[0], y=values[1]))
        return [jax.tree.leaves(state)[place] for place in of_rows]

    if not same and any(depends_on(begin, (first.x, first.y))):
        raise ValueError(
            "this solver begins with something of each row (one_vs_one of a dual method: which pairs a row counts for), which "
            "a stream cannot know beforehand: use fit, or one_vs_rest"
        )
    return not same


@functools.partial(jax.jit, static_argnames=("rows", "batch"))
def init_stream(solver, key, first, *, rows, batch):
    """The stream before its first row; with `rows` `init` sees rows of zeros after the first chunk."""
    lacking = 0 if rows is None else rows - first.y.shape[0]

    def longer(a, fill):
        return a if lacking <= 0 else jnp.concatenate([a, jnp.full((lacking, *a.shape[1:]), fill, a.dtype)])

    data = jax.tree.map(lambda a: longer(jnp.asarray(a), 0), first)
    data = data._replace(
        y=longer(jnp.asarray(first.y), 1),
        weight=longer(jnp.asarray(first.weight), 1),
        index=jnp.arange(data.y.shape[0], dtype=jnp.int32),
    )
    empty = jax.tree.map(lambda a: jnp.zeros((batch, *a.shape[1:]), a.dtype), first)
    zero = jnp.zeros((), jnp.int32)
    return StreamState(
        unwrap_static(solver).init(jax.random.split(key)[0], data), empty, zero, zero, zero, zero, jnp.zeros((), bool)
    )


@functools.partial(jax.jit, static_argnames=("lift",), donate_argnums=(2,))
def run_stream_chunk(solver, probe, flow, chunk, count, *, lift):
    """All batches that the waiting rows and the first `count` rows of a chunk fill; a row of the curve."""
    solver, probe = unwrap_static(solver), unwrap_static(probe)
    b = flow.waiting.y.shape[0]
    row = jax.tree.map(lambda *a: jnp.concatenate(a), flow.waiting, chunk)
    first, total = b - flow.n_waiting, flow.n_waiting + count  # what waits stands at the end of its place
    length = total // b
    ready = solver.prepare(row) if lift else row
    slice_of = lambda tree, start: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, b), tree)  # noqa: E731

    def batch(start):
        if not isinstance(ready.x, SparseRows):
            return slice_of(ready, start)
        rows = jnp.asarray(start, jnp.int32) + jnp.arange(b, dtype=jnp.int32)  # pointed at, as in fit
        return slice_of(ready._replace(x=ready.y), start)._replace(x=dataclasses.replace(ready.x, rows=rows))

    def body(k, carry):
        state, sums = carry
        state, info = solver.update(state, batch(first + k * b))
        return state, add_info(sums, info)

    info = jax.eval_shape(lambda state: solver.update(state, batch(0))[1], flow.solver)
    state, sums = lax.fori_loop(0, length, body, (flow.solver, empty_sums(info)))
    value = None if probe is None else probe(solver.model(state, None))
    found = curve_row(sums, flow.step, length, value)
    held = total - length * b
    return flow._replace(solver=state, waiting=slice_of(row, count), n_waiting=held, step=found.step), found
