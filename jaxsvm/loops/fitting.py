"""`fit`: updates of a solver on rows that a sampler draws.

fit -> begin | resume -> run_chunk (compiled), in a Python loop or, inside of a transformation,
       in a scan -> conclude
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

from ..checks import check_bytes, on_host
from ..files import DeferredInterrupt
from ..flags import despite_flags
from ..models import classes_of
from ..numerics import accum_dtype, in_mesh_of, is_traced, pack_rows, shards
from ..numerics.sparse_products import MIN_ROWS
from ..objectives import Probe, decision_values
from ..recipe import (
    Recipe,
    cast,
    check_positive,
    fields_of,
    own_buffers,
    skip_validation,
    unwrap_static,
)
from ..samplers import uniform
from ..types import (
    INTERRUPTED,
    SECONDS,
    STEPS,
    Array,
    Batch,
    Curve,
    Fit,
    Hooks,
    Lifted,
    Model,
    RunState,
    Sampler,
    Solver,
    SparseRows,
    State,
    row_weights,
    take,
    take_by_block,
)
from .checks import (
    check_arguments,
    check_counters,
    check_criterion,
    check_drawn,
    check_like,
    check_origin,
    check_rows,
    check_steps,
    draw_rows,
    has_sums,
    may_be_rows,
    probed,
    whole_number,
)
from .compile_options import jit_by_size
from .curve import add_info, curve_row, empty_sums, row_on_host, rows_of_curve
from .identity import origin_of
from .program_cache import as_argument
from .progress import Bar
from .saving import Saver

MEMORY = 2**31  # bytes of features up to which those of all rows are made before the first step
DRAWS, MOST_DRAWN = 256, 2**16  # steps whose rows are drawn at once, and the most rows of them
MOST_ON_HOST = 2**21  # numbers of rows up to which NumPy lays them out: a few milliseconds
MANY_ROWS = 50_000  # from which an update of `decomposition` may end before its tolerance
CHECKED_ROWS = 64  # training rows at which the decision values of a result are checked
MANY = 2**15  # rows; the checksum of fewer takes less time than to find out whether it is read


@jax.tree_util.register_pytree_node_class
class Old:
    """A solver or a sampler, kept as a call, with what it holds and its hooks as attributes."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def tree_flatten(self) -> tuple[tuple, None]:
        """The call as a child."""
        return (self.call,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Old:
        """The inverse of `tree_flatten`."""
        return cls(*children)

    @functools.cached_property
    def made(self) -> Any:
        """What the call makes, once."""
        return fields_of(self.call)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made if name in self.made._fields else self.made.hooks, name)


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
        progress: a bar on the standard error stream.
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
    check_arguments(solver, data, key, state, sampler, probe, tol, seconds, progress, on_interrupt)
    saver, names, n, dtype = Saver(save), data.classes, data.y.shape[0], accum_dtype(data.x)
    probe = probe.matched(names) if isinstance(probe, Probe) and names is not None else probe
    data = data._replace(classes=None)  # other names need no other programs
    sampler = Old(as_argument(sampler or fields_of(solver).sampler or uniform(1), dtype))
    old, limit = with_tolerance(solver, tol, dtype)
    b, period = check_rows(old, sampler, data)
    length = lengths(old, limit, steps, passes, every, n, b, period)
    probe = None if probe is None else as_argument(probe, dtype)
    traced = is_traced(old, sampler, probe, data, key, state, limit)
    if traced and (seconds is not None or save is not None):
        raise ValueError("seconds and save work outside of jit, vmap and grad only")
    if traced and period is not None and state is not None:
        raise ValueError("inside a transformation an adaptive sampler cannot go on from a state")
    origin = origin_of(old.call, data if n <= MANY or has_sums(old, data) else None, names)
    data, x = placed(old, sampler, data, traced)
    run = (
        begin(old, sampler, key, data)
        if state is None
        else resume(old, sampler, data, state, origin)
    )
    inputs, stops = (
        (old, sampler, probe, data, x),
        tol is not None or (steps is None and passes is None),
    )
    if tol is not None and old.residual_of != "data":
        check_criterion(run_chunk.eval_shape(*inputs, run, limit, None, table=1)[1].probe)
    if traced:
        run, curve, cause = *scan_chunks(inputs, run, limit, length, stops), STEPS
    else:
        host = stops, origin, saver, progress, seconds
        run, curve, cause = run_on_host(inputs, run, limit, length, *host)
        check_drawn(sampler, run, curve, n)
    # a second Ctrl-C does not lose the run
    with DeferredInterrupt() if cause == INTERRUPTED else contextlib.nullcontext():
        model, finite = conclude(old, run.solver, data, data, last_loss(curve, traced))
        if is_traced(data.y, data.weight):
            model, finite = nan_unless(may_be_rows(old, sampler, data), model, finite)
        kept = run.solver if traced else own_buffers(run.solver, (data, state))
        ended, run = jax.device_put(np.int32(cause)), run._replace(solver=kept, origin=origin)
        result = Fit(model, run, curve, limit, finite, ended, classes_of(old.targets, names))
        return saver.finish(result, raises=cause == INTERRUPTED and on_interrupt == "raise")


@despite_flags
def fit_once(solver: Any, data: Batch, key: Array, tol: Any) -> Fit:
    """`fit` by one update of a solver that goes on until `tol` is met, as a single program.

    It is for the estimators, which checked all but the values of the rows.
    """
    old, limit = with_tolerance(solver, tol, accum_dtype(data.x))
    sampler = Old(as_argument(old.sampler, limit.dtype))
    check_rows(old, sampler, data)
    data, x = placed(old, sampler, data, False)
    run, row, model, finite = run_once(old, sampler, key, data, x, limit)
    curve = jax.tree.map(lambda a: np.asarray(a)[None], row)
    return Fit(model, run, curve, limit, finite, np.int32(STEPS))


@jit_by_size()
def run_once(
    solver: Any, sampler: Any, key: Array, data: Batch, x: Any, limit: Any
) -> tuple[RunState, Curve, Model, Array]:
    """The whole run of one step."""
    run = begin(solver, sampler, key, data._replace(x=x))
    run, row = run_chunk(solver, sampler, None, data, x, run, limit, None, table=1)
    return run, row, *conclude(solver, run.solver, data, data, row.loss)


# The compiled part


@jit_by_size(static_argnames=("table",))
def run_chunk(
    solver: Any,
    sampler: Any,
    probe: Any,
    data: Batch,
    x: Any,
    run: RunState,
    limit: Any,
    count: Any,
    *,
    table: int,
) -> tuple[RunState, Curve]:
    """`count` steps from `run`: the next run, and a row of the curve.

    Args:
        solver: an `Old`, as is `sampler`.
        sampler: draws the rows of the steps.
        probe: model -> tree of arrays, or None.
        data: the training rows.
        x: the same rows as steps read them.
        run: the state at the start.
        limit: () the run is done once its criterion is at most this; nan: never.
        count: () int32; None: `table`, by a loop that has a reverse-mode derivative.
        table: steps whose rows are drawn at once; structure.
    """
    n, probe, adaptive = data.y.shape[0], unwrap_static(probe), sampler.period is not None
    rows = data._replace(x=x, weight=weight_of(sampler, data))
    blocks = sampler.blocks if shards(n) > 1 else 1  # rows on several devices are taken there

    def batch(index: Any) -> Batch:
        if sampler.full_batch:
            return rows
        if solver.needs_all_rows:
            return rows._replace(index=index)
        if blocks > 1:
            return take_by_block(rows, index, blocks)
        drawn = take(rows, index, copy=False)
        return drawn if sampler.combine is None else sampler.combine(solver.prepare(drawn))

    # compiled: `eval_shape` and the loop trace it once
    update = jax.jit(lambda state, index: solver.update(state, batch(index)))

    def make_steps(first: Any, length: Any, carry: tuple) -> tuple:
        """The carry after `length` steps, whose rows are drawn outside of the loop: cheaper."""
        indices, exist = jnp.zeros((table, 1), jnp.int32), True
        if not sampler.full_batch:
            drawn = draw_rows(sampler, run.sampler, run.step + first, table, n)
            indices, exist = existing_rows(drawn, n, blocks, length)

        def body(k: Any, carry: tuple) -> tuple:
            state, sums, feedback, exists = carry
            state, info = update(state, lax.dynamic_index_in_dim(indices, k, keepdims=False))
            write = lambda a, row: lax.dynamic_update_index_in_dim(a, row, k, 0)
            if adaptive:
                feedback = jax.tree.map(write, feedback, (info.index, info.progress))
            return state, add_info(sums, info), feedback, exists

        *rest, exists = carry
        carry = *rest, exists & exist
        return body(0, carry) if table == 1 else lax.fori_loop(0, length, body, carry)

    b = 1 if sampler.full_batch else sampler.rows(n)
    _, info = jax.eval_shape(update, run.solver, jax.ShapeDtypeStruct((b,), jnp.int32))
    full = lambda a, value: jnp.full((table, *a.shape), value, a.dtype)
    feedback: Any = (full(info.index, -1), full(info.progress, 0)) if adaptive else ()
    carry = run.solver, empty_sums(info), feedback, jnp.ones((), bool)
    if count is None or table == 1 or adaptive or sampler.full_batch:
        carry = make_steps(0, table if count is None else count, carry)
    else:
        part = lambda i, carry: make_steps(i * table, jnp.minimum(table, count - i * table), carry)
        carry = lax.fori_loop(0, -(-count // table), part, carry)
    state, (sums, support), feedback, exist = carry
    sampler_state = sampler.feedback(run.sampler, *feedback) if adaptive else run.sampler
    sums = sums.at[0].set(jnp.where(exist, sums[0], jnp.nan))  # of the losses
    value = None if probe is None else probed(probe, solver.model(state, data))
    row = curve_row((sums, support), run.step, table if count is None else count, value)
    criterion = row.residual if solver.residual_of == "data" or probe is None else value
    done = criterion <= limit if jnp.shape(criterion) == () else jnp.zeros((), bool)
    return RunState(state, sampler_state, row.step, done), row


def weight_of(sampler: Any, data: Batch) -> Array:
    """The weights that steps read, (n,), or (n, k) where each target has its own."""
    rows = row_weights(data)
    weight = sampler.weight(rows)
    if rows is data:
        return weight
    return weight[:, None] * data.weight / jnp.where(rows.weight > 0, rows.weight, 1)[:, None]


def existing_rows(index: Array, n: int, blocks: int, count: Any) -> tuple[Array, Array]:
    """The drawn row numbers (steps, b), and whether those of the first `count` steps exist, ().

    Numbers out of range become -1, padding: else steps would read other rows. With `blocks`, part j
    of a draw is from the j-th block of the rows.
    """
    size = n // blocks
    first = jnp.repeat(size * jnp.arange(blocks, dtype=index.dtype), index.shape[1] // blocks)
    exists = (index == -1) | ((index >= first[None, :]) & (index < first[None, :] + size))
    is_step = lax.broadcasted_iota(jnp.int32, index.shape, 0) < count
    return jnp.where(exists, index, -1), jnp.all(exists | ~is_step)


def scan_chunks(
    inputs: tuple, run: RunState, limit: Any, length: Lengths, stops: bool
) -> tuple[RunState, Curve]:
    """The run as part of another program; once it is done, the curve repeats its last row."""
    steps, every, period = length
    if period is not None:  # all chunks have one length, and none crosses the end of a period
        every = next(e for e in range(every, 0, -1) if period % e == 0)

    def advance(carry: tuple, count: int) -> tuple[RunState, Curve]:
        run, row = carry
        # the derivative makes the chunk again, and stores none of its steps
        make = jax.checkpoint(lambda run: run_chunk(*inputs, run, limit, None, table=count))
        repeat = lambda run: (run, row._replace(evals=jnp.zeros_like(row.evals)))
        return lax.cond(run.done, repeat, make, run) if stops else make(run)

    types = jax.eval_shape(lambda run: run_chunk(*inputs, run, limit, None, table=every)[1], run)
    carry = run, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), types)
    body = lambda carry, _: (new := advance(carry, every), new[1])
    carry, curve = lax.scan(body, carry, length=steps // every)
    if steps % every:
        carry = advance(carry, steps % every)
        curve = jax.tree.map(lambda a, row: jnp.concatenate([a, row[None]]), curve, carry[1])
    return carry[0], curve


def run_on_host(
    inputs: tuple,
    run: RunState,
    limit: Any,
    length: Lengths,
    stops: bool,
    origin: Any,
    saver: Saver,
    progress: bool,
    seconds: float | None,
) -> tuple[RunState, Curve, int]:
    """The run as a Python loop, which may stop after any chunk, its curve, and why it ended."""
    (solver, sampler, *_), (steps, every, period) = inputs, length
    start, first, rows, cause = time.monotonic(), int(run.step), [], STEPS
    end, single = first + steps, every == 1 and solver.tol is not None
    check_steps(first, steps)
    run = run._replace(origin=None)
    saver.check(run)
    most = max(1, min(DRAWS, MOST_DRAWN // sampler.rows(inputs[3].y.shape[0])))
    table = 1 if single else every if period is not None else most
    with contextlib.closing(Bar(steps, "steps")) if progress else contextlib.nullcontext() as bar:
        try:
            while int(run.step) < end and not (stops and bool(run.done)):
                step = int(run.step)
                count = min(every, end - step, period - step % period if period else every)
                pair = run_chunk(*inputs, run, limit, np.int32(count), table=table)
                pair = jax.block_until_ready(pair)
                with DeferredInterrupt(again=True):  # the run, its rows and its file stand together
                    run = pair[0]
                    rows.append(row_on_host(pair[1]))
                    saver.save(run._replace(origin=origin))
                if bar:
                    text = (
                        f"loss {float(rows[-1].loss):.3g}, residual {float(rows[-1].residual):.2g}"
                    )
                    bar.show(int(run.step) - first, text)
                is_late = seconds is not None and time.monotonic() - start > seconds
                if is_late and int(run.step) < end:
                    return run, rows_of_curve(rows, None), SECONDS
        except KeyboardInterrupt:  # the result of the last complete chunk is kept
            cause = INTERRUPTED
    like = None if rows else run_chunk.eval_shape(*inputs, run, limit, None, table=1)[1]
    return run, rows_of_curve(rows, like), cause


# Before and after


class Lengths(NamedTuple):
    """Numbers of steps."""

    run: int  # in this call
    chunk: int
    period: int | None  # between two updates of an adaptive sampler; no chunk crosses its end


def lengths(
    solver: Any,
    limit: Any,
    steps: Any,
    passes: Any,
    every: Any,
    n: int,
    b: int,
    period: int | None,
) -> Lengths:
    """How many steps a run makes, and a chunk of it."""
    if steps is not None and passes is not None:
        raise ValueError("steps and passes say the same: give one of them")
    a_pass, iterates = -(-n // b), solver.tol is not None
    if passes is not None:
        check_positive(passes=passes)
        steps = math.ceil(float(passes) * n / b)
    elif steps is not None:
        steps = whole_number("steps", steps, 0)
    else:  # updates on a part of the rows read all of them once
        goes_on = iterates and (is_traced(limit) or not np.isnan(limit))
        steps = max(most_updates(n), a_pass) if goes_on else 10 * a_pass
    if every is not None:
        every = whole_number("every", every, 1)
    elif period is not None:
        every = max(1, steps)
    else:  # an update that goes on until a tolerance is met is a chunk
        every = 1 if iterates else default_every(steps, a_pass, solver.needs_all_rows)
    return Lengths(steps, every if period is None else min(every, period), period)


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


def with_tolerance(solver: Any, tol: Any, dtype: Any) -> tuple[Old, Any]:
    """The solver that stops its updates at `tol`, if it does, and the tolerance of the run.

    That is nan for none. A solver with a tolerance of its own has that, even if all steps are made.
    """
    fields = fields_of(solver)
    own = fields.hooks.tol
    if tol is None:
        tol = own if fields.residual_of == "data" else None
    elif own is not None:
        if not (isinstance(own, float) and own == 0):  # 0: of rows that were not read
            check_positive(tol=tol)
        with skip_validation():  # the solver was checked when it was created
            solver = solver.bind(tol=tol) if isinstance(solver, Recipe) else solver
    known = tol if isinstance(tol, jax.core.Tracer) else float(np.nan if tol is None else tol)
    return Old(as_argument(solver, dtype)), cast(known, dtype)


def placed(solver: Any, sampler: Any, data: Batch, traced: bool) -> tuple[Batch, Any]:
    """The rows, as features if these are small, and `x` as steps read them fastest."""
    reads_all = solver.needs_all_rows or sampler.full_batch
    if reads_all or rows_that_fit(solver, data) == data.y.shape[0]:
        data = data if has_no_map(solver, data) else prepare(solver, data)
    if not reads_all:
        # packing pays off from MIN_ROWS rows a step on
        few = traced or sampler.rows(data.y.shape[0]) < MIN_ROWS
        packed = None if few else pack_rows(data.x)
        return data, data.x if packed is None else packed
    rows = data
    # of few numbers by NumPy, as a program would have to be compiled; sparse rows as they are,
    # since they keep their packed form
    is_large = on_host(data.x) is None or data.x.size > MOST_ON_HOST
    if solver.layout is not Hooks().layout and not isinstance(data.x, SparseRows) and is_large:
        rows = data._replace(x=layout_of(solver, data))
    # outside of the program, as a kernel chooses how to compute distances by the values of the rows
    return data, solver.layout(rows).x


def has_no_map(solver: Any, data: Batch) -> bool:
    """Whether the rows are what the solver reads."""
    return isinstance(data, Lifted) or solver.prepare is Hooks().prepare


def rows_that_fit(solver: Any, data: Batch) -> int:
    """How many of the rows have features that take at most `MEMORY` bytes."""
    n = data.y.shape[0]
    if has_no_map(solver, data):
        return n
    leaves = jax.tree.leaves(jax.eval_shape(solver.prepare, data).x)
    return min(n, MEMORY // sum(a.size // a.shape[0] * a.dtype.itemsize for a in leaves))


prepare = jax.jit(lambda solver, data: solver.prepare(data))
layout_of = jax.jit(lambda solver, data: solver.layout(data).x)


@jit_by_size(once=True)
def begin(solver: Any, sampler: Any, key: Array, data: Batch) -> RunState:
    """The run before its first step.

    Of features that are not made before, `solver.init` reads as many evenly spread rows as fit, if
    its state has the same shapes on them as on all.
    """
    n, rows, most = data.y.shape[0], data, rows_that_fit(solver, data)
    solver_key, sampler_key = jax.random.split(key)
    sampler_state = sampler.init(sampler_key, row_weights(data))
    if sampler.combine is not None:
        rows = combined_rows(solver, sampler, sampler_state, data, most)
    elif most < n:
        part, shapes = evenly_spread(data, most), []
        for each in (data, part):
            shapes.append(jax.tree.map(jnp.shape, jax.eval_shape(solver.init, solver_key, each)))
        rows = part if shapes[0] == shapes[1] else data
    state, zero = solver.init(solver_key, rows), jnp.zeros((), jnp.int32)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    check_bytes("the numbers of the solver's state", size, "lower its sizes, such as budget")
    return RunState(state, sampler_state, zero, jnp.zeros((), bool))


def combined_rows(solver: Any, sampler: Any, state: State, data: Batch, most: int) -> Batch:
    """Combined rows of the first steps, about as many as there are rows, or `most`."""
    n = data.y.shape[0]
    steps = max(1, min(n, most) // sampler.rows(n))
    index, _ = existing_rows(draw_rows(sampler, state, 0, steps, n), n, 1, steps)
    batch = lambda index: sampler.combine(solver.prepare(take(data, index)))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.vmap(batch)(index))


def evenly_spread(data: Batch, k: int) -> Batch:
    """k of the rows, evenly spread."""
    return take(data, jnp.asarray(np.arange(k) * data.weight.shape[0] // k, jnp.int32))


def resume(solver: Any, sampler: Any, data: Batch, state: RunState, origin: Any) -> RunState:
    """`state`, checked and ready to go on."""
    check_like(state, begin.eval_shape(solver, sampler, jax.random.key(0), data))
    check_counters(state, ("step",))
    kept = check_origin(state, origin, lambda: has_sums(solver, data))
    step, done = jnp.asarray(state.step, jnp.int32), jnp.zeros((), bool)
    return RunState(kept, state.sampler, step, done)


def last_loss(curve: Curve, traced: bool) -> Any:
    """The mean loss of the last chunk, (); nan if any is, and 0 if no step was made."""
    xp: Any = jnp if traced else np
    losses = xp.asarray(curve.loss)
    last = losses[-1] if losses.shape[0] else xp.zeros((), losses.dtype)
    return xp.where(xp.isnan(losses).any(), xp.full_like(last, xp.nan), last)


@jit_by_size(once=True)
def conclude(
    solver: Any, state: State, data: Batch | None, rows: Batch, loss: Any
) -> tuple[Model, Array]:
    """The model of a state, and whether its run was finite, () bool.

    That is so if the loss and the decision values at some `rows` of weight above 0 are.
    """
    model, finite = solver.model(state, data), jnp.isfinite(loss)
    rows = lax.stop_gradient(evenly_spread(rows, min(rows.weight.shape[0], CHECKED_ROWS)))
    try:
        values = decision_values(lax.stop_gradient(model), rows)
        row_finite = jnp.isfinite(values).reshape(rows.weight.shape[0], -1).all(axis=1)
    except (TypeError, ValueError, AssertionError):  # a model that does not take training rows
        return model, finite
    return model, finite & jnp.all(row_finite | (row_weights(rows).weight <= 0))


def nan_unless(right: Any, model: Any, finite: Any) -> tuple[Any, Any]:
    """The model, of nan where traced targets or weights are none."""
    is_real = lambda a: hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.floating)
    nan_of = lambda a: jnp.where(right, a, jnp.nan) if is_real(a) else a
    return jax.tree.map(nan_of, model), finite & right
