"""`step` and `fit`: the loops that run a solver."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import number, on_host, shown
from ..files import DeferredInterrupt
from ..numerics import (
    CentredRows,
    accum_dtype,
    in_mesh_of,
    is_traced,
    pack_rows,
)
from ..numerics.sparse_products import MIN_ROWS
from ..recipe import Recipe, cast, check_choice, check_positive, fields_of, is_kind, untried
from ..samplers import uniform
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
    Run,
    Sampler,
    Solver,
    SparseRows,
    State,
    check_batch,
    check_weights,
    same_structure,
)
from .checks import (
    check_combined,
    check_counters,
    check_drawn,
    check_draws,
    check_kernels,
    check_key,
    check_like,
    check_limit,
    check_origin,
    check_probe,
    check_solver,
    check_steps,
    check_targets,
    has_sums,
    whole_number,
)
from .identity import origin_of, sealed
from .processes import all_processes, mesh_has_all_processes
from .programs import (
    LONGEST_CALL,
    MOST_CHUNKS,
    MOST_ON_HOST,
    as_argument,
    conclude,
    constants_of,
    init_run,
    layout_of,
    prepare,
    run_chunk,
    run_chunks,
    update,
)
from .progress import Bar
from .saving import Saver

MANY = 2**15  # rows; the fingerprint of fewer takes less time than to find out whether it is read


@in_mesh_of("batch")
def step(solver: Solver, state: State, batch: Batch) -> tuple[State, Info]:
    """One compiled update, for loops written by the user.

    Solvers that differ in numbers alone share one program.

    Args:
        solver: any; its numbers are cast to the dtype of the rows.
        state: from `solver.init(key, data)` or the step before.
        batch: the drawn rows; for `reads="all"` all rows, with `index` naming those of the step
            (see `Solver.reads`).

    Returns:
        The next state, and the `Info` of the step.

    Raises:
        TypeError: batch is not a `Batch`, or the state does not have the structure of this
            solver's.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.pegasos(0.1)
        >>> state, info = step(solver, solver.init(jax.random.key(0), data), data)
        >>> float(info.loss)
        1.0
    """
    check_solver(solver)  # outside of the program, in which its numbers have no values
    if not isinstance(batch, Batch):
        raise TypeError(
            f"batch must be a Batch, got {type(batch).__name__}: use jaxsvm.take(data, index)"
        )
    check_batch("batch", batch)
    try:
        return update(as_argument(solver, accum_dtype(batch.x)), state, batch)
    except Exception as error:
        expected = jax.eval_shape(solver.init, jax.random.key(0), batch)
        if not same_structure(expected, state):
            what = f"got {type(state).__name__}, expected {type(expected).__name__}"
            raise TypeError(
                f"state must be that of solver.init(key, data), or of the step before: {what}"
            ) from error
        raise


@in_mesh_of("data")
def fit(
    solver: Solver,
    data: Batch,
    key: Array | None = None,
    *,
    steps: int | None = None,
    every: int | None = None,
    probe: Callable | None = None,
    tol: float | None = None,
    state: Run | None = None,
    sampler: Sampler | None = None,
    lift: str = "auto",
    memory: float | None = None,
    seconds: float | None = None,
    save: str | bytes | os.PathLike | None = None,
    progress: bool = False,
    on_interrupt: str = "raise",
) -> Fit:
    """Run a solver: `steps` updates on rows that the sampler draws.

        rows_t = sampler.draw(t);   state_t+1, info_t = solver.update(state_t, rows_t)

    Outside of transformations this is a Python loop over one compiled chunk of `every` steps. A
    shorter last chunk uses the same program, so any number of steps takes one compilation.
    Interrupting and resuming a run does not change its bits (same `every`, JAX, device and flags).
    Inside `vmap`, `jit` or `grad` it is a scan over the same chunk: the same steps as part of
    another program, equal except for rounding.

    Args:
        solver: any solver; its numbers are cast to the dtype of the rows, its structure determines
            compilation.
        data: the training rows, from `jaxsvm.dataset`, or `solver.prepare` of them.
        key: a key of `jax.random.key`; may be left out with `state` only.
        steps: updates to make in this call, >= 0; None: ten passes over the rows.
        every: length of a chunk in updates, >= 1; None: about one pass. After each chunk the curve
            gets a row, and `probe`, `tol`, `seconds` and `save` apply. With an adaptive sampler a
            chunk also ends with each of its periods; inside transformations `every` is lowered to a
            divisor of the period.
        probe: model -> any tree of arrays, computed after each chunk, such as `error_on(test)`.
        tol: stop once the solver's residual is at most this. If the residual measures single rows
            only, the probe (a scalar) is compared instead. None: make all `steps`. If those are
            None too, a solver with a tolerance of its own (`decomposition`) stops at that.
        state: the state to resume from, `run.state` of an earlier call or `models.load(path)`, with
            the solver and data of that call. Another tolerance is taken. A state with sums over
            rows, or with numbers for each row, is refused with other rows, targets, weights or
            numbers, unless updates work the sums out anew (`Solver.recomputes`). Inside
            transformations it becomes nan; arrays of kernels and feature maps that are worked out
            there have other last bits, so make these outside. For a start from another solution see
            the argument `start` of the solvers.
        sampler: chooses the rows of each step; None: the sampler of the solver's paper.
        lift: when a solver with a feature map (`on_features`) computes the features: "once", of all
            rows before the first step; "piece", of the rows of each chunk before its loop; "step",
            in every update; "auto": the first of these that fits `memory` ("once" if steps read all
            rows). With "piece" and "step", `init` reads as many evenly spread rows as fit, unless
            the solver's state has an entry for each row.
        memory: bytes that features may occupy, > 0; None: 2 GiB.
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
        `Fit`: the model, the state to resume from, the curve, a sentence on how the run ended
        (`status`), and its cause in one word (`reason`).

    Raises:
        KeyboardInterrupt: Ctrl-C, with on_interrupt="raise".
        TypeError: data is not a `Batch`, state not a `Run`, sampler not a sampler.
        ValueError: neither key nor state, numbers out of range, `tol` without a criterion, features
            of a chunk that exceed `memory`, a state of another solver, sampler or data.
        FileNotFoundError: the folder of `save` does not exist.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as
        `run`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=100, every=10,
        ...     tol=1e-6)
        >>> run.status
        'converged after 10 steps: tolerance 1.0e-06 met, residual 0.0e+00'
    """
    fields = _check_arguments(solver, data, key, state, sampler, probe, tol, seconds, progress)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    every = None if every is None else whole_number("every", every, 1)
    saver = Saver(save)
    sampler = sampler or fields.sampler or uniform(1)
    n, draws = data.y.shape[0], fields_of(sampler)
    # Rows of a step, and steps between two updates of an adaptive sampler.
    b = whole_number("rows of the sampler", draws.rows(n), 1)
    period = whole_number("period of the sampler", draws.period(n), 1) if draws.period else None
    _check_rows(fields, sampler, data)
    check_kernels(solver, data)
    stops = tol is not None or steps is None
    solver, tol = _with_tolerance(solver, fields, tol)
    dtype = accum_dtype(data.x)
    solver_arg, sampler_arg = as_argument(solver, dtype), as_argument(sampler, dtype)
    probe_arg = None if probe is None else as_argument(probe, dtype)
    steps = 10 * -(-n // b) if steps is None else whole_number("steps", steps, 0)
    reads_all = fields.reads == "all" or draws.whole
    needs = b * (every or 1), reads_all
    lift, max_lifted = plan_lift(solver_arg, fields, data, lift, memory, *needs)
    limit = tol if tol is None or isinstance(tol, jax.core.Tracer) else float(tol)
    limit = None if limit is None else cast(limit, dtype)
    traced = is_traced(solver_arg, sampler_arg, probe_arg, data, key, state, limit)
    max_every = max_lifted // b if lift == "piece" else None
    every = _chunk_length(fields, Lengths(steps, -(-n // b), period, max_every), every, traced)
    if lift == "piece" and every * b > max_lifted:
        raise ValueError(
            f"the {every * b} rows of a piece are too many to prepare at once, memory={memory:g} "
            f"holds {max_lifted}: lower every or raise memory"
        )
    if traced and (seconds is not None or save is not None):
        raise ValueError("seconds and save work outside of jit, vmap and grad only")
    # of many rows only where a state holds sums over them
    is_read = data.y.shape[0] <= MANY or has_sums(fields, data)
    origin: Any = origin_of(solver_arg, data if is_read else None)
    if lift == "once":
        data = prepare(solver_arg, data)
    init_rows = min(max_lifted, n) if lift in ("piece", "step") else None
    run = _init_or_resume(solver_arg, sampler_arg, key, data, state, init_rows, origin)
    check_steps(0 if traced else int(run.step), steps)
    takes_rows = not traced and lift != "piece" and fields.reads == "rows" and not draws.whole
    # packing pays off from MIN_ROWS rows a step on
    packed_rows = _rows_for_steps(solver_arg, fields, data, takes_rows and b >= MIN_ROWS)
    takes_updates = takes_rows and b == 1 and fields.updates is not None and lift != "step"
    constants = constants_of(solver_arg, data) if takes_updates else None
    inputs: Any = solver_arg, sampler_arg, probe_arg, data, packed_rows

    def chunk(run: Run, every: int, count: Any = None) -> tuple[Run, Curve]:
        options: Any = {"every": every, "lift": lift == "piece", "constants": constants}
        run, row = run_chunk(*inputs, run._replace(origin=None), limit, count, **options)
        return run._replace(origin=origin), row

    def chunks(run: Run, end: Any, most: Any) -> tuple[Run, Curve, Array]:
        options: Any = {"every": every, "period": period, "stops": stops}
        run, table, n_chunks = run_chunks(
            *inputs, run._replace(origin=None), limit, constants, end, most, **options
        )
        return run._replace(origin=origin), table, n_chunks

    if traced:
        if period is not None and state is not None:
            raise ValueError(
                "an adaptive sampler cannot go on from a state inside a transformation; go on "
                "outside"
            )
        cause = STEPS
        run, curve = run_traced(chunk, run, steps, every, limit if stops else None)
    else:
        saver.check(run)
        first_step = int(run.step)
        several = chunks if constants is not None and probe is None else None
        run, curve, cause = run_host(
            chunk, run, steps, every, period, seconds, saver, progress, stops, several
        )
        check_drawn(draws, run, curve, first_step, n)
    loss = _last_loss(curve, traced, accum_dtype(data.x))
    centred = packed_rows if isinstance(packed_rows, CentredRows) else None
    # a second Ctrl-C does not lose the run
    with DeferredInterrupt() if cause == INTERRUPTED else contextlib.nullcontext():
        model, finite = conclude(solver_arg, run.solver, data, data, loss, centred)
        limit = cast(np.nan, dtype) if limit is None else limit
        result = Fit(model, sealed(run), curve, limit, finite, jax.device_put(np.int32(cause)))
        return saver.finish(result, raises=cause == INTERRUPTED and on_interrupt == "raise")


def _check_arguments(
    solver: Any,
    data: Any,
    key: Any,
    state: Any,
    sampler: Any,
    probe: Any,
    tol: Any,
    seconds: Any,
    progress: Any,
) -> Solver:
    """The fields of the solver; raise for arguments of `fit` that are not valid.

    These are arguments of another type, numbers out of range, and a tolerance without a criterion.
    """
    if not isinstance(data, Batch):
        several = isinstance(data, tuple) and data and all(isinstance(part, Batch) for part in data)
        how = (
            "take one of those in it, train, test = loaded"
            if several
            else "make one with jaxsvm.dataset(x, y)"
        )
        raise TypeError(f"data must be a Batch, got {type(data).__name__}: {how}")
    check_weights("data", data)
    if state is not None and not isinstance(state, Run):
        raise TypeError(
            f"state must be the Run of an earlier call, got {type(state).__name__}: pass run.state"
        )
    if key is None and state is None:
        raise ValueError("fit needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    fields = check_solver(solver)
    if sampler is not None and not is_kind(sampler, Sampler):
        raise TypeError(
            f"sampler must be one such as jaxsvm.samplers.epochs(64), got {shown(sampler)}"
        )
    has_criterion = fields.residual_scope == "whole" or probe is not None
    if tol is not None and not has_criterion:
        raise ValueError(
            "tol has nothing to stop on: the residual of this solver is that of single rows; "
            "give a probe to stop on (probe=jaxsvm.error_on(held_out)), or steps"
        )
    check_probe(probe)
    check_limit("tol", tol, signed=True)  # a probe may have any sign
    check_limit("seconds", seconds)
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")
    return fields


def _check_rows(fields: Solver, sampler: Any, data: Batch) -> None:
    """Raise for targets or draws that the solver does not take."""
    draws = fields_of(sampler)
    if draws.combine is None:
        check_targets(fields, data)
    else:
        check_combined(fields, draws, data)
    check_draws(fields, sampler, data.y.shape[0])


def _with_tolerance(solver: Any, fields: Solver, tol: Any) -> tuple[Any, Any]:
    """The solver that stops its updates at `tol`, if it does, and the tolerance of the run.

    `Fit.converged` refers to the tolerance of the solver, even if all steps are made.
    """
    own = fields.tol
    if own is None:
        return solver, tol
    if tol is None:
        is_none = not is_traced(own) and bool(np.isnan(own))
        return solver, own if fields.residual_scope == "whole" and not is_none else None
    if not (isinstance(own, float) and own == 0):  # 0: of rows that were not read
        check_positive(tol=tol)
    with untried():  # the solver was checked when it was created
        return solver.bind(tol=tol) if isinstance(solver, Recipe) else solver, tol


class Lengths(NamedTuple):
    """Numbers of updates that bound the length of a chunk."""

    run: int  # in this call
    one_pass: int  # about a pass over the rows
    period: int | None  # between two updates of an adaptive sampler
    max_every: int | None  # whose rows `memory` holds, where each chunk prepares its own


def _chunk_length(fields: Solver, lengths: Lengths, every: int | None, traced: bool) -> int:
    """The length of a chunk, in updates; `every` if it is given and no period is shorter."""
    period, max_every = lengths.period, lengths.max_every
    if every is None:
        # An update of a solver with a tolerance runs until it is met, so that each one is a chunk.
        iterates = fields.tol is not None
        every = 1 if iterates else default_every(lengths.run, lengths.one_pass, fields.reads)
        every = every if period is None else max(1, min(lengths.run, period))
        every = every if max_every is None else max(1, min(every, max_every))
    if period is None:
        return every
    # no chunk crosses the end of a period; inside a transformation all chunks have one length
    every = min(every, period)
    return next(e for e in range(every, 0, -1) if period % e == 0) if traced else every


def _last_loss(curve: Curve, traced: bool, dtype: Any) -> Any:
    """The mean loss of the last chunk, (); nan if any is, and 0 if no step was made."""
    if not curve.loss.shape[0]:
        return np.zeros((), dtype)
    xp: Any = jnp if traced else np
    loss = xp.asarray(curve.loss)
    return xp.where(xp.isnan(loss).any(), xp.full_like(loss[-1], xp.nan), loss[-1])


def _init_or_resume(
    solver: Any,
    sampler: Any,
    key: Array | None,
    data: Batch,
    state: Run | None,
    init_rows: int | None,
    origin: Any,
) -> Run:
    """The run before its first step, or `state`, checked and ready to go on."""
    if state is None:
        return init_run(solver, sampler, key, data, init_rows=init_rows)._replace(origin=origin)
    check_like(state, init_run.eval_shape(solver, sampler, jax.random.key(0), data))
    check_counters(state, ("step",))
    solver_state = check_origin(solver, state, origin, lambda fields: has_sums(fields, data))
    step, done = jnp.asarray(state.step, jnp.int32), jnp.zeros((), bool)
    return state._replace(solver=solver_state, step=step, done=done, origin=origin)


def _rows_for_steps(solver: Any, fields: Solver, data: Batch, pack: bool) -> Any:
    """The rows in the layout that steps read.

    It is that of the solver, or packed sparse rows; None: as they are.
    """
    packed_rows = pack_rows(data.x) if pack else None
    if fields.layout is not Solver._field_defaults["layout"]:
        # of few numbers by NumPy, as a program would have to be compiled; sparse rows as they are,
        # since they keep their packed form
        is_dense = not isinstance(data.x, SparseRows)
        if is_dense and (on_host(data.x) is None or data.x.size > MOST_ON_HOST):
            data = data._replace(x=layout_of(solver, data))
        # Outside of the program, as a kernel chooses how to compute distances by the values of the
        # rows.
        packed_rows = fields.layout(data).x
    return packed_rows


def plan_lift(
    solver: Any,
    fields: Solver,
    data: Batch,
    lift: str,
    memory: float | None,
    least: int,
    reads_all: bool,
) -> tuple[str, int]:
    """When features are computed, and how many rows of them fit `memory`.

    The first is "never" for a solver without a feature map.

    Args:
        solver: as an argument of a compiled function.
        fields: of the solver.
        data: the training rows.
        lift: as of `fit`.
        memory: as of `fit`.
        least: rows of the shortest chunk allowed.
        reads_all: whether a step reads all rows.
    """
    check_choice("lift", lift, ("auto", "once", "piece", "step"))
    memory = 2**31 if memory is None else memory
    known = number("memory", memory)
    if known is not None and not known > 0:
        raise ValueError(f"memory must be a number of bytes above 0, got {known:g}")
    if isinstance(data, Lifted) or fields.prepare is Solver._field_defaults["prepare"]:
        return "never", data.y.shape[0]
    features = prepare.eval_shape(solver, data).x
    row_bytes = sum(
        leaf.size // leaf.shape[0] * leaf.dtype.itemsize for leaf in jax.tree.leaves(features)
    )
    capacity = int(min(memory, 2**62) // row_bytes)
    if capacity < 1:
        raise ValueError(f"memory={memory:g} bytes hold not one prepared row: raise memory")
    if lift == "auto":
        lift = (
            "once"
            if data.y.shape[0] <= capacity or reads_all
            else "piece"
            if least <= capacity
            else "step"
        )
    if lift == "piece" and reads_all:
        raise ValueError(
            "lift='piece' prepares the drawn rows, and here a step reads all rows: "
            "use 'once' or 'step'"
        )
    return lift, capacity


def default_every(steps: int, one_pass: int, reads: str) -> int:
    """The length of a chunk of a run of `steps`: about a pass, which has `one_pass` steps.

    It is at least 100 steps, or 10 where a pass has 10 steps at most; at most 100 if a step reads
    all rows.
    """
    length = max(one_pass, 100 if one_pass > 10 else 10)
    length = min(length, 100) if reads == "all" else length
    if steps <= length:
        return max(steps, 1)
    # A divisor of the steps leaves no shorter last chunk, which inside a transformation is compiled
    # separately.
    return next((e for e in range(length, length // 2, -1) if steps % e == 0), length)


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


def run_traced(
    chunk: Callable, run: Run, steps: int, every: int, tol: Array | None
) -> tuple[Run, Curve]:
    """The run as one program.

    Once the tolerance is met, the curve repeats its last row without evaluations.
    """

    def advance(carry, length):
        """One more chunk of `length` steps: the run after it, and its row of the curve."""
        run, row = carry
        # The derivative computes the chunk again, and stores none of its steps.
        next_chunk = jax.checkpoint(lambda run: chunk(run, length))
        if tol is None:
            return next_chunk(run)
        repeat = lambda run: (run, row._replace(evals_parts=jnp.zeros_like(row.evals_parts)))
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


def run_host(
    chunk: Callable,
    run: Run,
    steps: int,
    every: int,
    period: int | None,
    seconds: float | None,
    saver: Saver,
    progress: bool,
    stops: bool,
    chunks: Callable | None,
) -> tuple[Run, Curve, int]:
    """The run as a loop on the host, which may stop after any chunk, and why it ended.

    A chunk also ends with each `period` of an adaptive sampler. If `stops`, the run ends once its
    tolerance is met. `chunks`, if there is one, is `run_chunks`: each call makes twice as many
    chunks as the one before, up to a limit, or one if something is to be done after each. What is
    computed does not depend on that.
    """
    cause = STEPS
    # several processes make the same calls: an interrupt of one ends them all after the same one
    together = mesh_has_all_processes()
    interrupt = DeferredInterrupt()
    first_step, steps_done, rows, start_time = int(run.step), 0, [], time.monotonic()
    max_chunks, one_by_one = 1, progress or seconds is not None or saver.path is not None
    bar = Bar(steps, "steps") if progress else None
    context = contextlib.ExitStack()
    try:
        if together:
            context.enter_context(interrupt)
        while steps_done < steps and not (stops and bool(run.done)):
            call_time = time.monotonic()
            if chunks is not None:
                end = np.int32(first_step + steps)
                run, table, n_chunks = jax.block_until_ready(chunks(run, end, np.int32(max_chunks)))
                table = jax.tree.map(lambda a: np.asarray(a)[: int(n_chunks)], table)  # noqa: B023
                rows += [jax.tree.map(lambda a: a[k], table) for k in range(int(n_chunks))]  # noqa: B023
                steps_done = int(run.step) - first_step
                row = rows[-1]
            else:
                length = min(every, steps - steps_done)
                if period is not None:
                    length = min(length, period - (first_step + steps_done) % period)
                # Chunks of `every` steps and shorter ones are one program, so that interrupting a
                # run does not change its bits.
                next_run, row = jax.block_until_ready(chunk(run, every, np.int32(length)))
                run, steps_done = next_run, steps_done + length
                rows.append(row)
            saver.save(run)
            if bar:
                bar.show(
                    steps_done, f"loss {float(row.loss):.3g}, residual {float(row.residual):.2g}"
                )
            single = one_by_one or time.monotonic() - call_time >= LONGEST_CALL
            late = seconds is not None and time.monotonic() - start_time > seconds
            if together:
                table = all_processes(single, late, interrupt.requested)
                single, late, stopped = (bool(flags.any()) for flags in table.T)
                if stopped:
                    cause = INTERRUPTED
                    break
            if max_chunks < MOST_CHUNKS and not single:
                max_chunks *= 2
            if late:
                cause = SECONDS if steps_done < steps else STEPS
                break
    except KeyboardInterrupt:
        cause = INTERRUPTED  # the result of the last complete chunk is kept
    finally:
        context.close()
        if bar:
            bar.close()
    row_types = jax.eval_shape(lambda run: chunk(run, every)[1], run) if not rows else None
    return run, rows_of_curve(rows, row_types), cause
