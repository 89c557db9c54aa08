"""`step` and `fit`: the loops that run a solver."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import shown
from ..files import DeferredInterrupt
from ..flags import despite_flags, flag
from ..models import classes_of
from ..numerics import (
    CentredRows,
    accum_dtype,
    in_mesh_of,
    is_traced,
)
from ..objectives import Probe
from ..recipe import (
    Recipe,
    cast,
    check_choice,
    check_positive,
    fields_of,
    is_kind,
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
    Info,
    Model,
    RunState,
    Sampler,
    Solver,
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
    may_be_targets,
    whole_number,
)
from .compile_options import jit_by_size
from .curve import add_info, curve_row, empty_sums
from .feeds import choose_feed
from .identity import origin_of, sealed
from .loop import (
    MOST_CHUNKS,
    drive,
    rows_of_curve,
    rows_of_table,
    run_chunk,
    run_chunks,
    scan_chunks,
)
from .programs import as_argument, conclude, init_run, values_finite
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
        batch: the drawn rows; for a solver that needs all rows these, and `index` names those of
            the step.

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
    if not isinstance(batch, Batch):
        raise TypeError(
            f"batch must be a Batch, got {type(batch).__name__}: use jaxsvm.take(data, index)"
        )
    argument = _argument_of(solver, batch)
    try:
        update = despite_flags(_checked_update) if flag("debug_infs") else _checked_update
        return update(argument, state, batch)
    except Exception as error:
        check_batch("batch", batch)
        expected = jax.eval_shape(solver.init, jax.random.key(0), batch)
        if not same_structure(expected, state):
            what = f"got {type(state).__name__}, expected {type(expected).__name__}"
            raise TypeError(
                f"state must be that of solver.init(key, data), or of the step before: {what}"
            ) from error
        raise


@jax.jit
def _checked_update(solver: Any, state: State, batch: Batch) -> tuple[State, Info]:
    """One update; what of the batch is structure is checked where it is traced, once for each."""
    check_batch("batch", batch)
    return unwrap_static(solver).update(state, batch)


# solvers of the last calls of `step`: (id, dtype of the rows) -> the solver, and it as an argument
_arguments: dict[tuple, tuple[Any, Any]] = {}
MOST_ARGUMENTS = 16


def _argument_of(solver: Any, batch: Batch) -> Any:
    """A checked solver as an argument; that of the same object is kept."""
    if not hasattr(batch.x, "dtype"):
        check_batch("batch", batch)
    key = id(solver), batch.x.dtype
    kept = _arguments.get(key)
    if kept is not None and kept[0] is solver:
        return kept[1]
    argument = _on_device(solver, accum_dtype(batch.x))
    if not is_traced(argument):
        _arguments[key] = solver, argument
        while len(_arguments) > MOST_ARGUMENTS:
            _arguments.pop(next(iter(_arguments)), None)
    return argument


@despite_flags
def _on_device(solver: Any, dtype: Any) -> Any:
    """A checked solver as an argument, whose numbers are on the device before the first call."""
    check_solver(solver)  # outside of the program, in which its numbers have no values
    return jax.tree.map(jnp.asarray, as_argument(solver, dtype))


MANY_ROWS = 50_000  # from which an update of `decomposition` may end before its tolerance


def most_updates(n: int) -> int:
    """The updates to a tolerance on n rows, at most."""
    return 10 * max(1, n // MANY_ROWS)


def _steps_of(steps: Any, passes: Any, n: int, b: int) -> int | None:
    """The number of steps that was asked for; None: none."""
    if passes is None:
        return None if steps is None else whole_number("steps", steps, 0)
    if steps is not None:
        raise ValueError("steps and passes say the same: give one of them")
    check_positive(passes=passes)
    return math.ceil(float(passes) * n / b)


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
    lift: str = "auto",
    memory: float | None = None,
    seconds: float | None = None,
    save: str | bytes | os.PathLike | None = None,
    progress: bool = False,
    on_interrupt: str = "raise",
) -> Fit:
    """Run a solver: `steps` updates on rows that the sampler draws.

        rows_t = sampler.draw(t);   state_t+1, info_t = solver.update(state_t, rows_t)

    Outside of transformations this is a Python loop over one compiled program, which makes one or
    several chunks of `every` steps. A shorter last chunk uses the same program, so any number of
    steps takes one compilation.
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
            numbers, unless updates work the sums out anew (`sums_of`, see `Solver`). Inside
            transformations it becomes nan; arrays of kernels and feature maps that are worked out
            there have other last bits, so make these outside. For a start from another solution see
            the argument `start` of the solvers.
        sampler: chooses the rows of each step; None: the sampler of the solver's paper.
        lift: when a solver with a feature map (`on_features`) computes the features: "once", of all
            rows before the first step; "chunk", of the rows of each chunk before its loop; "step",
            in every update; "auto": the first of these that fits `memory` ("once" if steps read all
            rows). With "chunk" and "step", `init` reads as many evenly spread rows as fit, unless
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
        `Fit`: the model, the state to resume from, the curve (`info`), a sentence on how it ended
        (`status`), and its cause in one word (`reason`).

    Raises:
        KeyboardInterrupt: Ctrl-C, with on_interrupt="raise".
        TypeError: data is not a `Batch`, state not a `RunState`, sampler not a sampler.
        ValueError: neither key nor state, both steps and passes, numbers out of range, `tol`
            without a criterion, features of a chunk that exceed `memory`, a state of another
            solver, sampler or data.
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
    fields = _check_arguments(solver, data, key, state, sampler, probe, tol, seconds, progress)
    check_choice("on_interrupt", on_interrupt, ("raise", "return"))
    every = None if every is None else whole_number("every", every, 1)
    saver = Saver(save)
    names = data.classes
    classes = classes_of(fields.targets, names)
    probe = probe.matched(names) if isinstance(probe, Probe) and names is not None else probe
    data = data._replace(classes=None)  # other names need no other programs
    sampler = sampler or fields.sampler or uniform(1)
    n, draws = data.y.shape[0], fields_of(sampler)
    # Rows of a step, and steps between two updates of an adaptive sampler.
    b = whole_number("rows of the sampler", draws.rows(n), 1)
    period = whole_number("period of the sampler", draws.period(n), 1) if draws.period else None
    _check_rows(fields, sampler, data)
    check_kernels(solver, data)
    steps = _steps_of(steps, passes, n, b)
    stops = tol is not None or steps is None
    solver, tol = _with_tolerance(solver, fields, tol)
    dtype = accum_dtype(data.x)
    solver_arg, sampler_arg = as_argument(solver, dtype), as_argument(sampler, dtype)
    probe_arg = None if probe is None else as_argument(probe, dtype)
    if steps is None:
        goes_on = fields.hooks.tol is not None and tol is not None
        # updates on a part of the rows read all of them once
        steps = max(most_updates(n), -(-n // b)) if goes_on else 10 * -(-n // b)
    limit = tol if tol is None or isinstance(tol, jax.core.Tracer) else float(tol)
    limit = None if limit is None else cast(limit, dtype)
    traced = is_traced(solver_arg, sampler_arg, probe_arg, data, key, state, limit)
    # of many rows only where a state holds sums over them
    is_read = data.y.shape[0] <= MANY or has_sums(fields, data)
    origin: Any = origin_of(solver_arg, data if is_read else None, names)
    options: Any = {"lift": lift, "memory": memory, "every": every, "traced": traced}
    feed, data, init_rows, most_rows = choose_feed(solver_arg, fields, sampler_arg, data, **options)
    max_every = None if most_rows is None else most_rows // b
    every = _chunk_length(fields, Lengths(steps, -(-n // b), period, max_every), every, traced)
    if most_rows is not None and every * b > most_rows:
        size = "" if memory is None else f"={memory:g}"
        raise ValueError(
            f"the {every * b} rows of a chunk are too many to prepare at once, memory{size} holds "
            f"{most_rows}: lower every or raise memory"
        )
    if traced and (seconds is not None or save is not None):
        raise ValueError("seconds and save work outside of jit, vmap and grad only")
    run = _init_or_resume(solver_arg, sampler_arg, key, data, state, init_rows, origin)
    first_step = 0 if traced else int(run.step)
    check_steps(first_step, steps)
    inputs: Any = solver_arg, sampler_arg, probe_arg, data, feed
    if traced:
        if period is not None and state is not None:
            raise ValueError(
                "an adaptive sampler cannot go on from a state inside a transformation; go on "
                "outside"
            )
        cause, chunk = STEPS, lambda run, every: run_chunk(*inputs, run, limit, None, every=every)
        run, curve = scan_chunks(
            chunk, run._replace(origin=None), steps, every, limit if stops else None
        )
        run = run._replace(origin=origin)
    else:
        saver.check(run)
        call = Call(inputs, limit, first_step, steps, every, stops)
        run, curve, cause = _on_host(call, run, saver, progress, seconds)
        check_drawn(draws, run, curve, first_step, n)
    loss = _last_loss(curve, traced, accum_dtype(data.x))
    # known targets and weights were checked
    is_right = may_be_targets(fields.targets, data) if is_traced(data.y, data.weight) else True
    if is_traced(data.weight):
        is_right &= _may_be_weights(data.weight)
        loss = jnp.where(is_right, loss, jnp.nan)
    centred = feed.x if isinstance(feed.x, CentredRows) else None
    # a second Ctrl-C does not lose the run
    with DeferredInterrupt() if cause == INTERRUPTED else contextlib.nullcontext():
        model, finite = conclude(solver_arg, run.solver, data, data, loss, centred)
        if is_right is not True:
            model = _nan_unless(is_right, model)
        limit = cast(np.nan, dtype) if limit is None else limit
        ended = jax.device_put(np.int32(cause))
        run = run if traced else run._replace(solver=own_buffers(run.solver, (data, state)))
        result = Fit(model, sealed(run), curve, limit, finite, ended, classes)
        return saver.finish(result, raises=cause == INTERRUPTED and on_interrupt == "raise")


@despite_flags
def fit_once(solver: Any, data: Batch, key: Array, tol: Any) -> Fit:
    """`fit` by one update, for a solver whose update goes on until `tol` is met: a single program.

    It is for the estimators. On small data the checks and three programs of `fit` take longer than
    the run. Only the values of rows are checked; there is no bar, and the state has no origin.
    """
    fields, dtype = fields_of(solver), accum_dtype(data.x)
    if fields.hooks.validate is not None:
        fields.hooks.validate(data)
    check_kernels(solver, data)
    solver, tol = _with_tolerance(solver, fields, tol)
    limit = cast(np.nan if tol is None else float(tol), dtype)
    x = fields.hooks.layout(data).x
    state, row, model, finite = _update_once(as_argument(solver, dtype), key, data, x)
    row = jax.tree.map(lambda a: np.asarray(a)[None], row)
    done: Any = row.residual[0] <= limit
    run: Any = RunState(state, (), row.step[0], done)
    ended: Any = np.int32(STEPS)
    return Fit(model, run, row, limit, finite, ended)


@jit_by_size()
def _update_once(solver: Any, key: Array, data: Batch, x: Any) -> tuple[State, Curve, Model, Array]:
    """The state, the row of the curve and the model of one update on the rows x of the data."""
    solver = unwrap_static(solver)
    laid_out = data._replace(x=x)
    state, info = solver.update(solver.init(key, laid_out), laid_out)
    row = curve_row(add_info(empty_sums(info), info), jnp.zeros((), jnp.int32), 1, None)
    model = solver.model(state, data)
    return state, row, model, values_finite(model, data, row.loss)


class Call(NamedTuple):
    """What stays the same in all chunks of a run on the host."""

    inputs: tuple  # solver, sampler, probe, data and feed
    limit: Any  # the tolerance, or None
    first_step: int
    steps: int  # to make
    every: int
    stops: bool  # whether the run ends once its tolerance is met


def _on_host(
    call: Call, run: RunState, saver: Saver, progress: bool, seconds: float | None
) -> tuple[RunState, Curve, int]:
    """The run as a loop on the host, which may stop after any chunk, and why it ended."""
    end, every, origin = call.first_step + call.steps, call.every, run.origin
    # One chunk at a time, a smaller program, where an update iterates and is mostly the only one;
    # and with a probe, as the results of several may be large.
    single = call.inputs[2] is not None or fields_of(call.inputs[0]).hooks.tol is not None
    structure: Any = {"every": every, "room": 1 if single else MOST_CHUNKS}

    def advance(run: RunState, most: int) -> tuple[RunState, list[Curve]] | None:
        if int(run.step) >= end or (call.stops and bool(run.done)):
            return None
        numbers = call.limit, np.int32(end), np.int32(most)
        run, table, n_chunks = run_chunks(
            *call.inputs, run._replace(origin=None), *numbers, **structure, stops=call.stops
        )
        run = jax.block_until_ready(run)._replace(origin=origin)
        return run, rows_of_table(table, n_chunks)

    def show(run: RunState, row: Curve) -> tuple[int, str]:
        text = f"loss {float(row.loss):.3g}, residual {float(row.residual):.2g}"
        return int(run.step) - call.first_step, text

    with contextlib.ExitStack() as stack:
        bar = (
            stack.enter_context(contextlib.closing(Bar(call.steps, "steps"))) if progress else None
        )
        how: Any = {"bar": bar, "show": show, "seconds": seconds}
        run, rows, cause = drive(advance, run, saver=saver, room=structure["room"], **how)
    cause = STEPS if cause == SECONDS and int(run.step) >= end else cause
    start = run._replace(origin=None)
    like = None
    if not rows:
        like = run_chunk.eval_shape(*call.inputs, start, call.limit, None, every=every)[1]
    return run, rows_of_curve(rows, like), cause


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
    if state is not None and not isinstance(state, RunState):
        raise TypeError(
            f"state must be the RunState of an earlier call, got {type(state).__name__}: pass "
            "run.state"
        )
    if key is None and state is None:
        raise ValueError("fit needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    fields = check_solver(solver)
    if sampler is not None and not is_kind(sampler, Sampler):
        raise TypeError(
            f"sampler must be one such as jaxsvm.samplers.epochs(64), got {shown(sampler)}"
        )
    has_criterion = fields.residual_of == "data" or probe is not None
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
    own = fields.hooks.tol
    if own is None:
        return solver, tol
    if tol is None:
        is_none = not is_traced(own) and bool(np.isnan(own))
        return solver, own if fields.residual_of == "data" and not is_none else None
    if not (isinstance(own, float) and own == 0):  # 0: of rows that were not read
        check_positive(tol=tol)
    with skip_validation():  # the solver was checked when it was created
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
        iterates = fields.hooks.tol is not None
        every = (
            1 if iterates else default_every(lengths.run, lengths.one_pass, fields.needs_all_rows)
        )
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


def _nan_unless(is_right: Any, model: Any) -> Any:
    """The model, whose numbers are nan where targets or weights are none."""
    is_real = lambda a: hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.floating)
    nan_of = lambda a: jnp.where(is_right, a, jnp.nan) if is_real(a) else a
    return jax.tree.map(nan_of, model)


def _may_be_weights(weight: Array) -> Array:
    """Whether weights of rows are finite and at least 0, and not all of them 0, () bool."""
    total = jnp.sum(jnp.where(weight >= 0, weight, jnp.nan))
    return (total > 0) & (total < jnp.inf)


def _init_or_resume(
    solver: Any,
    sampler: Any,
    key: Array | None,
    data: Batch,
    state: RunState | None,
    init_rows: int | None,
    origin: Any,
) -> RunState:
    """The run before its first step, or `state`, checked and ready to go on."""
    if state is None:
        return init_run(solver, sampler, key, data, init_rows=init_rows)._replace(origin=origin)
    check_like(state, init_run.eval_shape(solver, sampler, jax.random.key(0), data))
    check_counters(state, ("step",))
    solver_state = check_origin(solver, state, origin, lambda fields: has_sums(fields, data))
    step, done = jnp.asarray(state.step, jnp.int32), jnp.zeros((), bool)
    return state._replace(solver=solver_state, step=step, done=done, origin=origin)


def default_every(steps: int, one_pass: int, needs_all_rows: bool) -> int:
    """The length of a chunk of a run of `steps`: about a pass, which has `one_pass` steps.

    It is at least 100 steps, or 10 where a pass has 10 steps at most; at most 100 if a step reads
    all rows.
    """
    length = max(one_pass, 100 if one_pass > 10 else 10)
    length = min(length, 100) if needs_all_rows else length
    if steps <= length:
        return max(steps, 1)
    # A divisor of the steps leaves no shorter last chunk, which inside a transformation is compiled
    # separately.
    return next((e for e in range(length, length // 2, -1) if steps % e == 0), length)
