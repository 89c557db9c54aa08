"""`fit`: updates of a solver on rows that a sampler draws.

fit -> begin | resumed -> run_chunk (compiled), in a Python loop or, inside of a transformation,
       in a scan -> conclude;   where one update goes on to a tolerance: run_once, alone
a step: run_chunk -> batch(index) -> Solver.update
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import samplers
from .._node import carried, cast, holds_functions
from ..checks import (
    calling,
    check_bytes,
    check_positive,
    is_array,
    is_key,
    is_numeric,
    on_host,
    shown,
)
from ..files import DeferredInterrupt
from ..flags import despite_flags
from ..models import classes_of
from ..numerics import (
    accum_dtype,
    in_mesh_of,
    in_transformation,
    is_traced,
    pack_rows,
    shards,
    two_sum,
)
from ..numerics.sparse_products import MIN_ROWS
from ..objectives.evaluate import decision_values
from ..objectives.probes import Probe
from ..types import (
    INTERRUPTED,
    SECONDS,
    STEPS,
    Array,
    Batch,
    Curve,
    Fit,
    Info,
    Lifted,
    Model,
    RunState,
    Sampler,
    Scalar,
    Solver,
    State,
    check_weights,
    row_weights,
    rows_at,
    take_by_block,
    updated,
)
from .checks import (
    adapted,
    check_arguments,
    check_rows,
    whole,
)
from .origin import MOST_STEPS, origin_of, resumed
from .program_cache import release_programs
from .progress import Bar
from .saving import Saver

MEMORY = 2**31  # bytes of features up to which those of all rows are made before the first step
DRAWS, MOST_DRAWN = 256, 2**16  # steps whose rows are drawn at once, and the most rows of them
MANY_ROWS = 50_000  # from which an update of `decomposition` may end before its tolerance
CHECKED_ROWS = 64  # training rows at which the decision values of a result are checked


class Inputs(NamedTuple):
    """What stays the same in all chunks of a run."""

    solver: Solver
    sampler: Sampler
    probe: Any  # model -> tree of arrays, as an argument of a program; or None
    data: Batch  # the training rows
    x: Any  # the same rows as steps read them; None: as they are


class Lengths(NamedTuple):
    """Numbers of steps."""

    run: int  # in this call
    chunk: int
    period: int | None  # between two updates of an adaptive sampler; no chunk crosses its end
    table: int  # whose rows are drawn at once; 1: a chunk is one step
    stops: bool  # once the tolerance is met


@despite_flags
@in_mesh_of("data")
def fit(
    solver: Solver,
    data: Batch,
    key: Array | None = None,
    *,
    steps: int | None = None,
    passes: float | None = None,
    every: int | None = None,
    probe: Callable | None = None,
    tol: float | None = None,
    state: RunState | None = None,
    sampler: Sampler | None = None,
    seconds: float | None = None,
    save: str | bytes | os.PathLike | None = None,
    progress: bool = False,
    on_interrupt: str = "raise",
) -> Fit:
    """Run a solver: `steps` updates on rows that the sampler draws.

        rows_t = sampler.draw(t);   state_t+1, info_t = solver.update(state_t, rows_t)

    Outside of transformations this is a Python loop over one compiled program, which makes a chunk
    of `every` steps. Other numbers of steps, lengths of a chunk and tolerances use the same
    program. Features are made of all rows before the first step where they take at most 2 GiB, else
    in each update.
    Interrupting and resuming a run does not change its bits (same `every`, JAX, device and flags).
    Inside `vmap`, `jit` or `grad` it is a scan over the same chunk: the same steps as part of
    another program, equal except for rounding.

    Args:
        solver: any solver; its numbers are cast to the dtype of the rows, its structure determines
            compilation.
        data: the training rows, from `jaxsvm.dataset`, or `solver.prepare` of them.
        key: a key of `jax.random.key`; may be left out with `state` only.
        steps: updates to make in this call, >= 0; None: `passes`, or ten passes over the rows. A
            solver with a tolerance of its own makes ten updates at most, from 100,000 rows on ten
            for each 50,000, and at least one pass.
        passes: the same as a number of passes, > 0: so many times n / rows of a step, rounded up.
        every: length of a chunk in updates, >= 1; None: about one pass, or one update that iterates
            to a tolerance. After each chunk the curve gets a row, and `probe`, `tol`, `seconds` and
            `save` apply. With an adaptive sampler a chunk also ends with each of its periods;
            inside transformations `every` is lowered to a divisor of the period.
        probe: model -> any tree of arrays, computed after each chunk, such as `error_on(test)`.
        tol: stop once the solver's residual is at most this. If the residual measures single rows
            only, the probe (a scalar) is compared instead. None: make all `steps`. If those are
            None too, a solver with a tolerance of its own (`decomposition`) stops at that.
        state: the state to resume from, `run.state` of an earlier call or `models.load(path)`, with
            the solver and data of that call. Another tolerance is taken. A state with sums over
            rows, or with numbers for each row, is refused with other rows, targets, weights or
            numbers, unless updates work the sums out anew (`sums_of`, see `Solver`). Values that
            are traced are not compared. For a start from another solution see the argument `start`
            of the solvers.
        sampler: chooses the rows of each step; None: the sampler of the solver's paper.
        seconds: stop after the first chunk that ends later than this; not inside transformations.
        save: path of a file that holds the state after each chunk; not inside transformations. If
            it cannot be written, or another run writes it meanwhile, there is a warning, and the
            run continues.
        progress: a bar on the standard error stream; not inside transformations.
        on_interrupt: what Ctrl-C does. "raise": it ends the run, and the program or the notebook
            cell, as elsewhere in Python. The KeyboardInterrupt holds the `Fit` of the last complete
            chunk as `run`; in a notebook this is `sys.last_value.run`. "return": `fit` returns that
            `Fit`, and the program goes on. Without an effect inside transformations.

    Returns:
        `Fit`: the model, the state to resume from, the curve (`info`), a sentence on how it ended
        (`status`), and its cause in one word (`reason`).

    Raises:
        KeyboardInterrupt: Ctrl-C, with on_interrupt="raise".
        TypeError: data is not a `Batch`, state not a `RunState`, sampler not a sampler.
        ValueError: neither key nor state, both steps and passes, numbers out of range, `tol`
            without a criterion, a state of another solver, sampler or data.
        FileNotFoundError: the folder of `save` does not exist.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as
            `run`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=100, every=10,
        ...     tol=1e-6)
        >>> result.status
        'converged after 10 steps: tolerance 1.0e-06 met, residual 0.0e+00'
    """
    check_weights("data", data)
    names, dtype = data.classes, accum_dtype(data.x)
    solver, drawn, limit = adapted(solver, sampler, tol, dtype)
    check_arguments(solver, key, state, sampler, probe, tol, seconds, progress, on_interrupt)
    saver = Saver(save)
    probe = probe.matched(names) if isinstance(probe, Probe) and names is not None else probe
    probe = cast(carried(probe), dtype)
    right = check_rows(solver, drawn, data)
    traced = is_traced(solver, drawn, probe, data, key, state, limit)
    # what a function closes over is not seen
    traced = traced or (in_transformation() and holds_functions((solver, drawn)))
    length = lengths(solver, drawn, limit, data, (steps, passes, every, tol))
    if traced and (seconds is not None or save is not None or progress):
        raise ValueError("seconds, save and progress work outside of jit, vmap and grad only")
    if traced and length.period is not None and state is not None:
        raise ValueError(
            "an adaptive sampler cannot go on from a state inside a transformation; go on outside"
        )
    # without the names, as others need no other programs
    inputs = placed(solver, drawn, probe, data._replace(classes=None), traced)
    release_programs()
    key, origin = jax.random.key(0) if key is None else key, origin_of(solver, data, names)
    # of plain rows an update that goes on to a tolerance is the start, too, in one program
    run: State = None
    is_plain = probe is None and isinstance(drawn, samplers.whole)
    if state is not None or save is not None:
        like = begin.eval_shape(inputs._replace(probe=None), (key, key))
        saver.check(like)
    if state is not None:
        run = resumed(solver, inputs.data, state, like, origin)
    elif traced or not (is_plain and length.table == 1 and has_no_map(solver, inputs.data)):
        run = begun(inputs, key)
    if tol is not None and solver.residual_of != "data":
        value = run_chunk.eval_shape(inputs, run, limit, None, table=1)[1].probe
        if not is_number(value):
            raise ValueError(
                "the probe must give one number to compare with tol, got "
                f"{shown(value) if is_array(value) else type(value).__name__}: return one, "
                "or give steps and no tol"
            )
    cause, model, finite = STEPS, None, True
    if traced:
        run, curve = scan_chunks(inputs, run, limit, length)
    else:
        how = saver, origin, progress, seconds
        run, curve, cause, model = run_on_host(inputs, run, key, limit, length, how)
    # a second Ctrl-C does not lose the run
    with DeferredInterrupt() if cause == INTERRUPTED else contextlib.nullcontext():
        if model is None:
            xp: Any = jnp if traced else np
            losses = xp.asarray(curve.loss)
            loss = xp.where(xp.isnan(losses).any(), losses.dtype.type(np.nan), losses[-1:].sum())
            model, finite = conclude(solver, run.solver, inputs.data, inputs.data, loss, right)
        ended, names = np.int32(cause), classes_of(solver.targets, names)
        result = Fit(model, run._replace(origin=origin), curve, limit, finite, ended, names)
        return saver.finish(result, raises=cause == INTERRUPTED and on_interrupt == "raise")


@jax.jit
def run_once(inputs: Inputs, key: Array) -> tuple[State, Curve, Model]:
    """The state of one update on all rows, the row of its curve, and its model.

    What the host does with a few numbers is left to it: in a program each takes time to compile.
    """
    solver, sampler, _, data, x = inputs
    state = solver.init(jax.random.split(key)[0], data)
    x = data.x if x is None else x
    state, info = updated(solver, state, data._replace(x=x, weight=weight_of(sampler, data)))
    row = Curve(jnp.int32(1), info.loss, info.residual, info.support, info.evals, None)
    return state, row, solver.model(state, data)


# The compiled part


@functools.partial(jax.jit, static_argnames=("table",))
def run_chunk(
    inputs: Inputs, run: RunState, limit: Any, count: Any, *, table: int
) -> tuple[RunState, Curve]:
    """`count` steps from `run`: the next run, and a row of the curve.

    Args:
        inputs: of the run.
        run: the state at the start.
        limit: () the run is done once its criterion is at most this; nan: never.
        count: () int32; None: `table`, by a loop that has a reverse-mode derivative.
        table: steps whose rows are drawn at once; structure.
    """
    solver, sampler, probe, data, x = inputs
    n, of_data = data.y.shape[0], solver.residual_of == "data"
    rows = data._replace(x=x, weight=weight_of(sampler, data))
    # rows on several devices are taken there
    adaptive, blocks = sampler.period is not None, sampler.blocks if shards(n) > 1 else 1

    def batch(index: Any) -> Batch:
        if sampler.full_batch:
            return rows
        if solver.needs_all_rows:
            return rows._replace(index=index)
        if blocks > 1:
            return take_by_block(rows, index, blocks)
        drawn = rows_at(rows, index, copy=False)
        return drawn if sampler.combine is None else sampler.combine(solver.prepare(drawn))

    # compiled: `eval_shape` and the loop trace it once
    update = jax.jit(lambda state, index: updated(solver, state, batch(index)))

    def make_steps(first: Any, length: object, carry: tuple) -> tuple:
        """The carry after `length` steps, whose rows are drawn outside of the loop: cheaper."""
        indices, exist = jnp.zeros((table, 1), jnp.int32), jnp.ones((), bool)
        if not sampler.full_batch:
            now = run.sampler, run.step + first
            indices, exist = draw_rows(sampler, *now, table, n, blocks, length)

        def body(k: object, carry: tuple) -> tuple:
            state, sums, feedback = carry
            state, info = update(state, lax.dynamic_index_in_dim(indices, k, keepdims=False))
            write = lambda a, row: lax.dynamic_update_index_in_dim(a, row, k, 0)
            if adaptive:
                feedback = jax.tree.map(write, feedback, (info.index, info.progress))
            return state, add_info(sums, info), feedback

        state, (sums, support), feedback = carry
        sums = sums.at[0].set(jnp.where(exist, sums[0], jnp.nan))  # of the losses
        carry = state, (sums, support), feedback
        return body(0, carry) if table == 1 else lax.fori_loop(0, length, body, carry)

    b = 1 if sampler.full_batch else sampler.rows(n)
    _, info = jax.eval_shape(update, run.solver, jax.ShapeDtypeStruct((b,), jnp.int32))
    full = lambda a, value: jnp.full((table, *a.shape), value, a.dtype)
    feedback: Any = (full(info.index, -1), full(info.progress, 0)) if adaptive else ()
    carry = run.solver, empty_sums(info), feedback
    if count is None or table == 1 or adaptive or sampler.full_batch:
        carry = make_steps(0, table if count is None else count, carry)
    else:
        part = lambda i, carry: make_steps(i * table, jnp.minimum(table, count - i * table), carry)
        carry = lax.fori_loop(0, -(-count // table), part, carry)
    state, sums, feedback = carry
    sampler_state = sampler.feedback(run.sampler, *feedback) if adaptive else run.sampler
    value = None
    if probe is not None:
        with calling("probe", probe, "of the model to arrays of numbers"):
            value = jax.tree.map(jnp.asarray, probe(solver.model(state, data)))
    row = curve_row(sums, run.step, table if count is None else count, value)
    criterion = row.residual if of_data or probe is None else value
    done = criterion <= limit if is_number(criterion) else jnp.zeros((), bool)
    return RunState(state, sampler_state, row.step, done), row


def weight_of(sampler: Sampler, data: Batch) -> Array:
    """The weights that steps read, (n,), or (n, k) where each target has its own.

    Raises:
        TypeError, ValueError: the sampler's function fails, or gives another array.
    """
    rows = row_weights(data)
    with calling("weight of the sampler", sampler.weight, "of the data to the weights (n,)"):
        weight = sampler.weight(rows)
    if not is_number(weight, rows.weight.shape):
        raise ValueError(
            f"weight of the sampler must give a number for each row, of shape {rows.weight.shape}, "
            f"got {shown(weight)}"
        )
    if rows is data:
        return weight
    return weight[:, None] * data.weight / jnp.where(rows.weight > 0, rows.weight, 1)[:, None]


def is_number(a: object, shape: tuple = ()) -> bool:
    """Whether it is an array with one number, or with numbers of this shape."""
    return is_array(a) and a.shape == shape and is_numeric(a.dtype)


def draw_rows(
    sampler: Sampler, state: State, step: object, table: int, n: int, blocks: int, count: Any
) -> tuple[Array, Array]:
    """The rows of `table` steps, (table, b), and whether those of the first `count` exist, ().

    Numbers out of range become -1, padding: else steps would read other rows. With `blocks`, part j
    of a draw is from the j-th block of the rows.

    Raises:
        TypeError, ValueError: the sampler's function fails, or gives other arrays.
    """
    form, shape = "(state, step, count) -> (count, b) row numbers", (table, sampler.rows(n))
    with calling("draw of the sampler", sampler.draw, form):
        index = sampler.draw(state, step, table)
    if not is_array(index) or index.shape != shape or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(
            f"draw of the sampler must give integers of shape {shape}, (count, rows of a step), "
            f"got {shown(index)}"
        )
    size = n // blocks
    first = jnp.repeat(size * jnp.arange(blocks, dtype=index.dtype), index.shape[1] // blocks)
    exists = (index == -1) | ((index >= first[None, :]) & (index < first[None, :] + size))
    is_step = lax.broadcasted_iota(jnp.int32, index.shape, 0) < count
    return jnp.where(exists, index, -1), jnp.all(exists | ~is_step)


def scan_chunks(
    inputs: Inputs, run: RunState, limit: object, length: Lengths
) -> tuple[RunState, Curve]:
    """The run as part of another program; once it is done, the curve repeats its last row."""
    steps, every, period, _, stops = length
    if period is not None:  # all chunks have one length, and none crosses the end of a period
        every = next(e for e in range(every, 0, -1) if period % e == 0)

    def advance(carry: tuple, count: int) -> tuple[RunState, Curve]:
        run, row = carry
        # the derivative makes the chunk again, and stores none of its steps
        make = jax.checkpoint(lambda run: run_chunk(inputs, run, limit, None, table=count))
        repeat = lambda run: (run, row._replace(evals=jnp.zeros_like(row.evals)))
        return lax.cond(run.done, repeat, make, run) if stops else make(run)

    types = jax.eval_shape(lambda run: run_chunk(inputs, run, limit, None, table=every)[1], run)
    carry = run, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), types)
    body = lambda carry, _: (new := advance(carry, every), new[1])
    carry, curve = lax.scan(body, carry, length=steps // every)
    if steps % every:
        carry = advance(carry, steps % every)
        curve = jax.tree.map(lambda a, row: jnp.concatenate([a, row[None]]), curve, carry[1])
    return carry[0], curve


def run_on_host(
    inputs: Inputs, run: State, key: Array, limit: object, length: Lengths, how: tuple
) -> tuple[RunState, Curve, int, Model | None]:
    """The run as a Python loop, which may stop after any chunk, its curve, and why it ended.

    A `run` that is None begins with `run_once`. Where that ends it, the last result is its model.
    `how` are the saver, the origin, and progress and seconds of `fit`.
    """
    saver, origin, progress, seconds = how
    steps, every, period, table, stops = length
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    first, cause, model = 0 if run is None else int(run.step), STEPS, None
    rows: list[Curve] = []
    step, end, took = first, first + steps, math.inf
    if end > MOST_STEPS:
        raise ValueError(
            f"the run stands at step {first}, {steps} more would pass {MOST_STEPS}, the last "
            "that is counted: make fewer, or begin a new run"
        )
    with contextlib.closing(Bar(steps, "steps")) if progress else contextlib.nullcontext() as bar:
        waits = stops or bar is not None or saver.path is not None or seconds is not None
        try:
            while step < end and not (rows and stops and bool(run.done)):
                count = np.int32(min(every, end - step, period - step % period if period else end))
                began = time.monotonic()
                if run is None:
                    new, row, made = first_update(inputs, key, limit)
                else:
                    (new, row), made = run_chunk(inputs, run, limit, count, table=table), None
                if waits or took > 1e-3:  # seconds; shorter chunks are sent one after the other
                    jax.block_until_ready(row.loss)  # one program makes all
                    took = time.monotonic() - began
                with DeferredInterrupt(again=True):  # the run, its rows and its file stand together
                    run, step, model = new, step + int(count), made
                    rows.append(row)
                    saver.save(run._replace(origin=origin))
                if bar:
                    bar.show(step - first, f"loss {row.loss:.3g}, residual {row.residual:.2g}")
                if time.monotonic() > deadline and step < end:
                    cause = SECONDS
                    break
        except KeyboardInterrupt:  # the result of the last complete chunk is kept
            cause = INTERRUPTED
    if run is None:  # no update was made
        run = begun(inputs, key)
    like = None if rows else run_chunk.eval_shape(inputs, run, limit, None, table=1)[1]
    return run, rows_of_curve(rows, like), cause, model


def first_update(inputs: Inputs, key: Array, limit: object) -> tuple[RunState, Curve, Model | None]:
    """The run after `run_once`, the row of its curve on the host, and its model if it is finite."""
    state, row, model = run_once(inputs, key)
    row = jax.tree.map(np.asarray, row)
    number = lambda a: a.astype(row.loss.dtype)
    row = row._replace(residual=number(row.residual), evals=number(row.evals))
    done: State = np.asarray(row.residual <= limit)
    run = RunState(state, inputs.sampler.init(key, inputs.data), row.step, done)
    return run, row, model if np.isfinite([row.loss, row.residual]).all() else None


# The curve

# (4,) sum of losses, last residual, evaluations and their rounding; () int32 support
Sums = tuple[Array, Array]


def empty_sums(info: Info) -> Sums:
    """The sums over no steps, for infos of these types."""
    return jnp.zeros(4, info.loss.dtype), jnp.zeros((), jnp.int32)


def add_info(sums: Sums, info: Info) -> Sums:
    """The sums with one more step."""
    floats, _ = sums
    evals = two_sum(floats[2], floats[3], info.evals.astype(floats.dtype))
    residual = jnp.asarray(info.residual, floats.dtype)
    floats = jnp.stack([floats[0] + info.loss, residual, *evals])
    return floats, jnp.asarray(info.support, jnp.int32)


def curve_row(sums: Sums, step: Array, count: object, probe: object) -> Curve:
    """The row of the curve for a chunk of steps.

    Args:
        sums: over the steps of the chunk.
        step: () int32, number of steps before the chunk.
        count: number of steps in the chunk, () or a Python integer.
        probe: result of the probe.
    """
    # The barrier keeps a division: by a constant, XLA compiles a product with its inverse, which
    # rounds differently.
    steps = lax.optimization_barrier(jnp.asarray(count, jnp.int32))
    (loss, residual, evals, rounding), support = sums
    residual = jnp.where(steps > 0, residual, jnp.full_like(residual, jnp.nan))
    # saturates instead of overflowing
    step = jnp.minimum(step, jnp.iinfo(jnp.int32).max - steps) + steps
    mean_loss = loss / steps.astype(loss.dtype)
    return Curve(step, mean_loss, residual, support, evals + rounding, probe)


def rows_of_curve(rows: list[Curve], like: object) -> Curve:
    """The rows of the curve as one table; without rows an empty one, of the types of `like`."""
    if not rows:
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)
    # by NumPy, as JAX compiles a program for each number of rows
    stack = lambda *a: jnp.stack(a) if is_key(a[0]) else np.stack(a)
    return jax.tree.map(stack, *rows)


# Before and after


def lengths(solver: Solver, sampler: Sampler, limit: Scalar, data: Batch, asked: tuple) -> Lengths:
    """Steps of a run, of a chunk and so on; `asked` are steps, passes, every and tol of `fit`."""
    steps, passes, every, tol = asked
    steps, every = whole("steps", steps, 0), whole("every", every, 1)
    iterates = solver.iterates_to is not None
    stops = tol is not None or (steps is None and passes is None)
    n = data.y.shape[0] if sampler.blocks > 1 else data.rows  # blocks are cut with their padding
    b, period = sampler.rows(n), sampler.period(n) if sampler.period else None
    for name, each in (("rows", b), ("period", period)):
        if not (each is None or (isinstance(each, int | np.integer) and each >= 1)):
            raise ValueError(
                f"{name} of the sampler must be a whole number of at least 1, got {each}"
            )
    a_pass = -(-n // b)
    if steps is not None and passes is not None:
        raise ValueError("steps and passes say the same: give one of them")
    if passes is not None:
        check_positive(passes=passes)
        steps = math.ceil(float(passes) * n / b)
    elif steps is None:  # updates on a part of the rows read all of them once
        goes_on = iterates and (is_traced(limit) or not np.isnan(limit))
        steps = max(most_updates(n), a_pass) if goes_on else 10 * a_pass
    if every is None and period is not None:
        every = max(1, steps)
    elif every is None:  # an update that goes on until a tolerance is met is a chunk
        every = 1 if iterates else default_every(steps, a_pass, solver.needs_all_rows)
    most = max(2, min(DRAWS, MOST_DRAWN // sampler.rows(len(data.y))))
    table = 1 if every == 1 and iterates else most
    if period is not None:  # rows with padding have a longer one, and share its program
        every = min(every, period)
        table = every if every < period else max(every, sampler.period(len(data.y)))
    return Lengths(steps, every, period, table, stops)


def most_updates(n: int) -> int:
    """The updates to a tolerance on n rows, at most."""
    return 10 * max(1, n // MANY_ROWS)


def default_every(steps: int, one_pass: int, needs_all_rows: bool) -> int:
    """The length of a chunk of a run of `steps`: about a pass, which has `one_pass` steps.

    It is at least 100 steps, or 10 where a pass has 10 steps at most; at most 100 if a step reads
    all rows.
    """
    length = max(one_pass, 100 if one_pass > 10 else 10)
    length = min(length, 100) if needs_all_rows else length
    if steps <= length:
        return max(steps, 1)
    # a divisor of the steps leaves no shorter last chunk, which a transformation compiles apart
    return next((e for e in range(length, length // 2, -1) if steps % e == 0), length)


def placed(solver: Solver, sampler: Sampler, probe: object, data: Batch, traced: bool) -> Inputs:
    """The rows, as features if these are small, and `x` as steps read them fastest."""
    reads_all = solver.needs_all_rows or sampler.full_batch
    data = with_features(solver, data, reads_all)
    # packing pays off from MIN_ROWS rows a step on
    packs = not reads_all and not traced and sampler.rows(len(data.y)) >= MIN_ROWS
    packed = pack_rows(data.x) if packs else None
    # outside of the program, as a kernel chooses how to compute distances by the values of the rows
    x = solver.layout(data).x if reads_all else data.x
    return Inputs(solver, sampler, probe, data, x if packed is None else packed)


def has_no_map(solver: Solver, data: Batch) -> bool:
    """Whether the rows are what the solver reads."""
    return isinstance(data, Lifted) or not solver.has_map


def rows_that_fit(solver: Solver, data: Batch) -> int:
    """How many of the rows have features that take at most `MEMORY` bytes."""
    n = data.y.shape[0]
    if has_no_map(solver, data):
        return n
    leaves = jax.tree.leaves(prepare.eval_shape(solver, data).x)  # traced once
    sizes = (leaf.size // leaf.shape[0] * leaf.dtype.itemsize for leaf in leaves)
    return min(n, max(1, MEMORY // sum(sizes)))


def with_features(solver: Solver, data: Batch, always: object = False) -> Batch:
    """The rows after the feature map of a solver, if it has one and they fit, or `always`."""
    fits = always or rows_that_fit(solver, data) == data.y.shape[0]
    return prepare(solver, data) if fits and not has_no_map(solver, data) else data


prepare = jax.jit(lambda solver, data: solver.prepare(data))


@jax.jit
def two_keys(key: Array) -> tuple[Array, Array]:
    """The keys of the solver and of the sampler; apart, as `begin` is compiled for each shape."""
    return (*jax.random.split(key),)


def begun(inputs: Inputs, key: Array) -> RunState:
    """The run before its first step; NumPy makes the state of a sampler of known weights."""
    keys, sampler, rows = two_keys(key), inputs.sampler, row_weights(inputs.data)
    if isinstance(sampler, samplers.uniform | samplers.epochs) and on_host(rows.weight) is not None:
        return begin(inputs, keys, sampler.init(keys[1], rows))
    return begin(inputs, keys)


@jax.jit
def begin(inputs: Inputs, keys: tuple[Array, Array], sampler_state: State = None) -> RunState:
    """The run before its first step, by keys for the solver and for the sampler.

    Of features that are not made before, `solver.init` reads as many evenly spread rows as fit, if
    its state has the same shapes on them as on all; of combined rows those of the first steps.
    """
    solver, sampler, _, data, _ = inputs
    n, most = data.y.shape[0], rows_that_fit(solver, data)
    if sampler_state is None:
        sampler_state = sampler.init(keys[1], row_weights(data))
    rows = data
    if sampler.combine is not None:
        steps = max(1, min(n, most) // sampler.rows(n))
        index, _ = draw_rows(sampler, sampler_state, 0, steps, n, 1, steps)
        combined = jax.vmap(lambda i: sampler.combine(solver.prepare(rows_at(data, i))))(index)
        rows = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), combined)
    elif most < n:
        part = evenly_spread(data, most)
        shapes = lambda rows: jax.tree.map(jnp.shape, jax.eval_shape(solver.init, keys[0], rows))
        rows = part if shapes(part) == shapes(data) else data
    # the barrier keeps arrays of the state apart from those of the rows: a state may be donated
    state = lax.optimization_barrier(solver.init(keys[0], rows))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    check_bytes("the numbers of the solver's state", size, "lower its sizes, such as budget")
    return RunState(state, sampler_state, jnp.zeros((), jnp.int32), jnp.zeros((), bool))


def evenly_spread(data: Batch, k: int) -> Batch:
    """k of the rows, evenly spread."""
    return rows_at(data, jnp.asarray(np.arange(k) * data.weight.shape[0] // k, jnp.int32))


@jax.jit
def conclude(
    solver: Any, state: State, data: Batch | None, rows: Batch, loss: Any, right: Any = None
) -> tuple[Model, Array]:
    """The model of a state, and whether its run was finite, () bool.

    That is so if the loss and the decision values at some `rows` of weight above 0 are. The model
    is of nan where traced numbers, targets or weights are not `right`.
    """
    model, finite = solver.model(state, data), jnp.isfinite(loss)
    if right is not None:
        is_real = lambda a: is_array(a) and jnp.issubdtype(a.dtype, jnp.floating)
        mend = lambda a: jnp.where(right, a, jnp.nan) if is_real(a) else a
        model, finite = jax.tree.map(mend, model), finite & right
    rows = lax.stop_gradient(evenly_spread(rows, min(rows.weight.shape[0], CHECKED_ROWS)))
    try:
        values = decision_values(lax.stop_gradient(model), rows)
        row_finite = jnp.isfinite(values).reshape(rows.weight.shape[0], -1).all(axis=1)
    except (TypeError, ValueError, AssertionError):  # a model that does not take training rows
        return model, finite
    return model, finite & jnp.all(row_finite | (row_weights(rows).weight <= 0))
