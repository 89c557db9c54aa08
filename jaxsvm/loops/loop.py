"""The loop that runs a solver: one compiled chunk of steps over a feed, one driver on the host.

fit:     choose_feed -> drive (on the host) or scan_chunks (inside a transformation) -> conclude
a step:  drive -> run_chunks -> run_chunk -> Feed.open -> Solver.update
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import calling, is_numeric, shown
from ..files import DeferredInterrupt
from ..recipe import fields_of, unwrap_static
from ..types import INTERRUPTED, SECONDS, STEPS, Array, Batch, Curve, Info, Model, RunState, State
from .compile_options import jit_by_size
from .curve import Sums, add_info, curve_row, empty_sums
from .feeds import Feed, FusedSteps
from .progress import Bar
from .saving import Saver

MOST_CHUNKS = 64  # chunks of one call of `run_chunks`
LONGEST_CALL = 0.2  # seconds of a call after which the next ones make as many chunks as it


@jax.jit
def update(solver: Any, state: State, batch: Batch) -> tuple[State, Info]:
    """One update of the solver."""
    return unwrap_static(solver).update(state, batch)


@functools.partial(jax.jit, static_argnames=("every",))
def run_chunk(
    solver: Any,
    sampler: Any,
    probe: Any,
    data: Any,
    feed: Feed,
    run: RunState,
    tol: Array | None,
    count: Any,
    *,
    every: int,
) -> tuple[RunState, Curve]:
    """Make `every` steps from `run`, or only the first `count` of them.

    Returns the next run and a row of the curve.

    Args:
        solver: as an argument of a compiled function, as are `sampler` and `probe`.
        sampler: draws the rows of the steps; None: the feed has them.
        probe: model -> tree of arrays, or None.
        data: the training rows, or None where no model reads them.
        feed: the rows of each step.
        run: the state at the start of the chunk.
        tol: () the run is done once its criterion is at most this; or None.
        count: () int32, steps to make; None: `every`.
        every: length of the chunk; structure.
    """
    # compiled: `eval_shape` below and the loop trace it once
    update_state = functools.partial(update, solver)
    solver, sampler, probe = fields_of(solver), fields_of(sampler), unwrap_static(probe)
    adaptive = sampler is not None and sampler.period is not None
    # a Python integer gives the loop a reverse-mode derivative
    length = every if count is None else count
    feedback: Any = ()
    exist: Array | None
    if isinstance(feed, FusedSteps):
        state, info, exist = feed.make_steps(solver, sampler, data, run, every, length)
        sums, feedback = add_info(empty_sums(info), info), (info.index, info.progress)
    else:
        batch, exist = feed.open(solver, sampler, data, run, every, length)

        def body(k, carry):
            state, sums, feedback = carry
            state, info = update_state(state, batch(k))
            sums = add_info(sums, info)
            if adaptive:
                feedback = lax.dynamic_update_index_in_dim(feedback, _words(info), k, 0)
            return state, sums, feedback

        _, info = jax.eval_shape(update_state, run.solver, jax.eval_shape(batch, 0))
        if adaptive:
            feedback = jnp.tile(_words(_no_changes(info)), (every, 1))
        carry = run.solver, empty_sums(info), feedback
        # one step is a smaller program without the loop
        is_one = every == 1 and not feed.may_be_empty
        state, sums, feedback = body(0, carry) if is_one else lax.fori_loop(0, length, body, carry)
        feedback = _changes(feedback, info) if adaptive else feedback
    sampler_state = sampler.feedback(run.sampler, *feedback) if adaptive else run.sampler
    value = probed(probe, lambda: solver.model(state, data))
    row = curve_row(_marked(sums, exist), run.step, length, value)
    criterion = row.residual if solver.residual_of == "data" or probe is None else value
    done = jnp.zeros((), bool) if tol is None else _is_met(criterion, tol)
    return RunState(feed.place(state), sampler_state, row.step, done), row


def _no_changes(info: Any) -> Info:
    """The changed rows and the progress of a step that a shorter chunk does not make: -1 and 0."""
    zeros = lambda a: jnp.zeros(a.shape, a.dtype)
    return info._replace(index=zeros(info.index) - 1, progress=zeros(info.progress))


def _words(info: Info) -> Array:
    """The changed rows and the progress of a step as one row of int32.

    Two tables, one for each, take a loop on the CPU 2.5 microseconds a step more.
    """
    index = info.index.astype(jnp.int32)
    return jnp.concatenate([index, lax.bitcast_convert_type(info.progress, jnp.int32).ravel()])


def _changes(table: Array, info: Any) -> tuple[Array, Array]:
    """The changed rows and the progress of all steps, from their words; `info` has their types."""
    index, words = jnp.split(table, info.index.shape, axis=1)
    words = words.reshape(*words.shape[:1], *info.progress.shape, -1)
    words = words if info.progress.dtype.itemsize > 4 else words[..., 0]
    return index, lax.bitcast_convert_type(words, info.progress.dtype)


def _marked(sums: Sums, exist: Array | None) -> Sums:
    """The sums, with a loss that is not a number if rows were drawn that do not exist."""
    if exist is None:
        return sums
    floats, support = sums
    return floats.at[0].set(jnp.where(exist, floats[0], jnp.nan)), support


@jax.named_scope("probe")
def probed(probe: Callable | None, model: Callable[[], Model]) -> Any:
    """The result of the probe, a tree of arrays; None without a probe, which traces no model.

    Raises:
        TypeError, ValueError: the probe fails, or returns what is no array of numbers.
    """
    if probe is None:
        return None
    with calling("probe", probe, "of the model to arrays of numbers"):
        return jax.tree.map(jnp.asarray, probe(model()))


def _is_met(criterion: Any, tol: Array) -> Array:
    """Whether the criterion of a run is at most its tolerance, () bool.

    Raises:
        ValueError: it is the result of a probe, and no number.
    """
    is_array = hasattr(criterion, "dtype") and hasattr(criterion, "shape")
    if not (is_array and criterion.shape == () and is_numeric(criterion.dtype)):
        came = shown(criterion) if is_array else type(criterion).__name__
        raise ValueError(
            f"the probe must give one number to compare with tol, got {came}: return one, or give "
            "steps and no tol"
        )
    return criterion <= tol


@jit_by_size(static_argnames=("every", "room", "stops"))
def run_chunks(
    solver: Any,
    sampler: Any,
    probe: Any,
    data: Batch,
    feed: Feed,
    run: RunState,
    tol: Array | None,
    end: Any,
    most: Any,
    *,
    every: int,
    room: int,
    stops: bool,
) -> tuple[RunState, Curve, Any]:
    """Make up to `most` chunks from `run`, which end at the periods of an adaptive sampler, too.

    Args:
        solver: as of `run_chunk`, as are the others up to `tol`.
        sampler: draws the rows of the steps.
        probe: or None.
        data: the training rows.
        feed: the rows of each step.
        run: the state at the start.
        tol: or None.
        end: () int32, the step at which the run ends.
        most: () int32, at most `room`.
        every: of a chunk; structure.
        room: rows of the table; structure. 1 is a program without a loop over chunks.
        stops: whether the run ends once its tolerance is met; structure.

    Returns:
        The next run, a table of `room` rows of the curve, and how many of them were made.
    """
    draws = fields_of(sampler)
    period = draws.period(data.y.shape[0]) if draws.period else None

    def chunk(run):
        # a shorter last chunk is the same program: to interrupt a run does not change its bits
        length = jnp.minimum(every, end - run.step)
        if period is not None:
            length = jnp.minimum(length, period - run.step % period)
        # traced once; a call of a compiled function would take 20 ms of a first fit
        make = run_chunk if room > 1 else inspect.unwrap(run_chunk)
        return make(solver, sampler, probe, data, feed, run, tol, length, every=every)

    if room == 1:
        run, row = chunk(run)
        return run, jax.tree.map(lambda a: a[None], row), 1

    def should_continue(carry):
        n_chunks, run, _ = carry
        more = (n_chunks < most) & (run.step < end)
        return more & ~run.done if stops else more

    def body(carry):
        n_chunks, run, table = carry
        run, row = chunk(run)
        write = lambda a, value: lax.dynamic_update_index_in_dim(a, value, n_chunks, 0)
        return n_chunks + 1, run, jax.tree.map(write, table, row)

    empty = lambda a: jnp.zeros((room, *a.shape), a.dtype)
    table = jax.tree.map(empty, jax.eval_shape(chunk, run)[1])
    carry = jnp.zeros((), jnp.int32), run, table
    n_chunks, run, table = lax.while_loop(should_continue, body, carry)
    return run, table, n_chunks


def scan_chunks(
    chunk: Callable, run: RunState, steps: int, every: int, tol: Array | None
) -> tuple[RunState, Curve]:
    """The run as part of another program, by `chunk` (run, length) -> (run, row of the curve).

    Once the tolerance is met, the curve repeats its last row without evaluations.
    """

    def advance(carry, length):
        """One more chunk of `length` steps: the run after it, and its row of the curve."""
        run, row = carry
        # The derivative computes the chunk again, and stores none of its steps.
        next_chunk = jax.checkpoint(lambda run: chunk(run, length))
        if tol is None:
            return next_chunk(run)
        repeat = lambda run: (run, row._replace(evals=jnp.zeros_like(row.evals)))
        return lax.cond(run.done, repeat, next_chunk, run)

    def body(carry, _):
        carry = advance(carry, every)
        return carry, carry[1]

    row_types = jax.eval_shape(lambda run: chunk(run, every)[1], run)
    carry = run, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), row_types)
    tables: list[Curve] = []
    if steps // every:
        carry, table = lax.scan(body, carry, length=steps // every)
        tables.append(table)
    if steps % every:
        carry = advance(carry, steps % every)
        tables.append(jax.tree.map(lambda a: a[None], carry[1]))
    table = (
        jax.tree.map(lambda *a: jnp.concatenate(a), *tables)
        if tables
        else rows_of_curve([], row_types)
    )
    return carry[0], table


def drive(
    advance: Callable[[Any, int], tuple[Any, list[Curve]] | None],
    run: Any,
    *,
    saver: Saver,
    to_save: Callable = lambda run: run,
    bar: Bar | None = None,
    show: Callable[[Any, Curve], tuple[int, str]] = lambda run, row: (0, ""),
    seconds: float | None = None,
    room: int = 1,
) -> tuple[Any, list[Curve], int]:
    """Advance a run on the host until it ends, time is over, or Ctrl-C; the last complete state.

    Args:
        advance: (run, most) -> the run after up to `most` chunks and their rows of the curve; None:
            it was at its end.
        run: where it stands.
        saver: of the state after each call.
        to_save: run -> what is saved.
        bar: or None.
        show: (run, last row) -> what the bar shows.
        seconds: to stop after the first call that ends later than this; or None.
        room: most chunks of a call. Each call makes twice as many as the one before, unless
            something is to be done after each; what is computed does not depend on that.

    Returns:
        The run, rows of the curve, and why it ended: STEPS, SECONDS or INTERRUPTED.
    """
    start, most = time.monotonic(), 1
    rows: list[Curve] = []
    one_by_one = bar is not None or seconds is not None or saver.path is not None
    one_by_one = one_by_one or jax.process_count() > 1  # processes make the same calls
    try:
        while True:
            call = time.monotonic()
            result = advance(run, most)
            if result is None:
                return run, rows, STEPS
            with DeferredInterrupt(again=True):  # the run, its rows and its file stand together
                run, table = result
                rows += table
                del result, table
                if saver.path is not None:
                    saver.save(to_save(run))
            if bar:
                bar.show(*show(run, rows[-1]))
            single = one_by_one or time.monotonic() - call >= LONGEST_CALL
            late = seconds is not None and time.monotonic() - start > seconds
            if late:
                return run, rows, SECONDS
            most = most if single else min(2 * most, room)
    except KeyboardInterrupt:
        return run, rows, INTERRUPTED  # the result of the last complete chunk is kept


def rows_of_curve(curves: list, like: Curve | None) -> Curve:
    """The rows of the curve as one table.

    If there are none, it is an empty table of the types of `like`.
    """
    if not curves:
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)

    def stack(*a):  # by NumPy, as JAX compiles a program for each number of rows
        is_key = jnp.issubdtype(a[0].dtype, jax.dtypes.prng_key)
        return jnp.stack(a) if is_key else np.stack(a)

    return jax.device_put(jax.tree.map(stack, *curves))


def rows_of_table(table: Curve, n: Any) -> list[Curve]:
    """The first `n` rows of a table, on the host where they are numbers."""
    is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    table = jax.tree.map(lambda a: a if is_key(a) else np.asarray(a), table)
    row = lambda k: jax.tree.map(lambda a: a[k], table)
    return [row(k) for k in range(int(n))]
