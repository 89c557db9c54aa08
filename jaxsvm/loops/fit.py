"""`step` and `fit`: the only place that runs a solver."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import number, shown
from ..numerics import accum_dtype, check_process, is_traced
from ..numerics.sparse_products import FEW
from ..objectives import decision_values
from ..recipe import as_static, cast, check_choice, unwrap_static
from ..samplers import uniform
from ..types import LANE_WIDTH, Array, Batch, Curve, Fit, Info, Lifted, Run, Sampler, Solver, SparseRows, State, check_batch, take
from .checks import (
    check_counters,
    check_key,
    check_like,
    check_limit,
    check_probe,
    check_solver,
    check_steps,
    check_targets,
    whole_number,
)
from .curve import add_info, curve_row, empty_sums
from .progress import Bar
from .saving import Saver


def as_argument(thing: Any, dtype: Any) -> Any:
    """A solver, sampler or probe as an argument of a compiled function."""
    thing = as_static(thing)
    return cast(thing, dtype)


@jax.jit
def _step(solver, state, batch):
    return unwrap_static(solver).update(state, batch)


def step(solver: Solver, state: State, batch: Batch) -> tuple[State, Info]:
    """One compiled update, for loops of your own; compiled once for all numbers of a solver.

    Args:
        solver: any; its numbers are cast to the dtype of the rows.
        state: from `solver.init(key, data)` or the step before.
        batch: the drawn rows, or all rows with `index` naming the step's (see `Solver.reads`).

    Returns:
        The next state, and what the step says of itself.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.pegasos(0.1)
        >>> state, info = step(solver, solver.init(jax.random.key(0), data), data)
        >>> float(info.loss)
        1.0
    """
    check_process()
    check_solver(solver)  # reads a field, which checks the numbers while they are known
    if not isinstance(batch, Batch):
        raise TypeError(f"batch must be a Batch, got {type(batch).__name__}: use jaxsvm.take(data, index)")
    check_batch("batch", batch)
    try:
        return _step(as_argument(solver, accum_dtype(batch.x)), state, batch)
    except Exception as error:
        made = jax.eval_shape(solver.init, jax.random.key(0), batch)
        if jax.tree.structure(made) != jax.tree.structure(state):
            what = f"got {type(state).__name__}, expected {type(made).__name__}"
            raise TypeError(f"state must be that of solver.init(key, data), or of the step before: {what}") from error
        raise


@functools.partial(jax.jit, static_argnames=("look",))
def init_run(solver, sampler, key, data, *, look=None):
    """The run before its first step; a solver whose state has the same shapes on `look` rows sees so many of them."""
    solver, sampler = unwrap_static(solver), unwrap_static(sampler)
    for_solver, for_sampler = jax.random.split(key)
    seen = data
    if look is not None:
        spread = take(data, jnp.asarray(np.arange(look) * data.y.shape[0] // look, jnp.int32))
        shapes = [jax.tree.map(jnp.shape, jax.eval_shape(solver.init, for_solver, part)) for part in (data, spread)]
        seen = spread if shapes[0] == shapes[1] else data
    zero = jnp.zeros((), jnp.int32)
    return Run(solver.init(for_solver, seen), sampler.init(for_sampler, data), zero, jnp.zeros((), bool))


@jax.jit
def _prepare(solver, data):
    return unwrap_static(solver).prepare(data)


@jax.jit
def conclude(solver, state, data, rows, loss):
    """The model of a state, and whether its decision values at training rows are finite, () bool, by one program.

    Args:
        solver: of the run.
        state: of the solver.
        data: all rows, or None, for `Solver.model`.
        rows: training rows, of which at most `SEEN_ROWS` are looked at, evenly spread; rows of weight 0 are left out.
        loss: () of the last piece, which met more rows; 0 where no step was made.
    """
    model = unwrap_static(solver).model(state, data)
    return model, _values_finite(*lax.stop_gradient((model, rows._replace(y=rows.weight), loss)))


SEEN_ROWS = 64  # training rows at which decision values are looked at


def _values_finite(model, rows, loss):
    n = rows.weight.shape[0]
    seen = take(rows, jnp.asarray(np.arange(min(n, SEEN_ROWS)) * n // min(n, SEEN_ROWS), jnp.int32))
    finite = jnp.isfinite(loss)
    try:
        values = decision_values(model, seen)
        known = jnp.isfinite(values).reshape(seen.weight.shape[0], -1).all(axis=1)
    except (TypeError, ValueError, AssertionError):  # a solver of the user's, whose model does not take the training rows
        return finite
    return finite & jnp.all(known | (seen.weight <= 0))


@jax.jit
def _layout(solver, data):
    """The rows in the form that updates read fastest."""
    return unwrap_static(solver).layout(data).x


@functools.partial(jax.jit, static_argnames=("every", "lift"))
def run_chunk(solver, sampler, probe, data, walked, run, tol, count, *, every, lift=False):
    """`every` steps from where `run` stands, or the first `count` of them, and a row of the curve.

    Steps read the rows in another form, `walked`, where that is given. With `lift` the rows of all steps are prepared
    beforehand.
    """
    solver, sampler, probe = unwrap_static(solver), unwrap_static(sampler), unwrap_static(probe)
    reads, adaptive, whole = solver.reads, sampler.period is not None, sampler.whole
    fed = data._replace(x=data.x if walked is None else walked, weight=sampler.weight(data))
    rows = None if whole else sampler.draw(run.sampler, run.step, every)  # outside the loop, where it costs least
    if lift:
        lifted = solver.prepare(take(fed, rows.reshape(-1)))
        lifted = jax.tree.map(lambda a: a.reshape(*rows.shape, *a.shape[1:]), lifted)

    def batch(k):
        if lift:
            return jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, k, keepdims=False), lifted)
        if whole:
            return fed
        index = lax.dynamic_index_in_dim(rows, k, keepdims=False)
        return fed._replace(index=index) if reads == "all" else take(fed, index, copy=False)

    def body(k, carry):
        state, sums, touched = carry
        state, info = solver.update(state, batch(k))
        sums = add_info(sums, info)
        if adaptive:
            write = functools.partial(lax.dynamic_update_index_in_dim, index=k, axis=0)
            touched = write(touched[0], info.index), write(touched[1], info.progress)
        return state, sums, touched

    info = jax.eval_shape(lambda state: solver.update(state, batch(0))[1], run.solver)
    touched = ()
    if adaptive:
        touched = (
            jnp.full((every, *info.index.shape), -1, jnp.int32),
            jnp.zeros((every, *info.progress.shape), info.progress.dtype),
        )
    length = every if count is None else count
    state, sums, touched = lax.fori_loop(0, length, body, (run.solver, empty_sums(info), touched))

    draws = sampler.feedback(run.sampler, *touched) if adaptive else run.sampler
    value = None if probe is None else probe(solver.model(state, data))
    row = curve_row(sums, run.step, length, value)
    measure = row.residual if solver.residual_scope == "whole" or probe is None else value
    done = measure <= tol if tol is not None else jnp.zeros((), bool)
    return Run(state, draws, row.step, done), row


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
) -> Fit:
    """Run a solver: `steps` updates on rows that the sampler draws.

        rows_t = sampler.draw(t);   state_t+1, info_t = solver.update(state_t, rows_t)

    Outside transformations this is a Python loop over one compiled piece of `every` steps (and one for what is left):
    any number of steps with one compilation. The bits are the same, wherever the run is cut: a run stopped and gone on
    with equals the whole run (same `every`, JAX, device and flags). Inside `vmap`, `jit` or `grad` it is a scan over the
    same piece: the same steps as part of another program, equal but for roundings.

    Args:
        solver: any solver; its numbers are cast to the dtype of the rows, its structure decides compilation.
        data: the training rows, from `jaxsvm.dataset`, or `solver.prepare` of them.
        key: a key of `jax.random.key`; may be left out with `state` only.
        steps: updates to make in this call, >= 0; None: ten passes over the rows.
        every: updates between two looks at the run; None: about one pass. With an adaptive sampler there is a look at
            the end of each of its periods, too; inside transformations `every` shrinks to a divisor of the period.
        probe: model -> any tree of arrays, worked out at every look, such as `error_on(test)`.
        tol: stop once the solver's residual is at most this. Where the residual is that of single rows, the probe
            (a scalar) is the criterion. None: go on for `steps`; where these are not given either, a solver with a
            tolerance of its own (`decomposition`) stops there.
        state: where to go on, `run.state` of an earlier call or `models.load(path)`.
        sampler: which rows a step sees; None: as the solver's paper has it.
        lift: when a solver that prepares its rows (`on_features`) does so: "once" for all rows; "piece", for those of a
            piece before its loop; "step", in every update; "auto": the first of these that fits `memory` ("once" where
            steps read all rows). In the last two a solver whose state has no entry for each row looks at evenly spread
            rows in `init`, as many as fit.
        memory: bytes that prepared rows may take, > 0; None: 2 GiB.
        seconds: stop at the first look after so much time; not inside transformations.
        save: a file that holds the state after every look; not inside transformations. Where it cannot be written there is a
            warning, and the run goes on.
        progress: a bar on the standard error stream.

    Returns:
        `Fit`: the model, the state to go on from, the curve, and what became of it in a sentence (`status`). Ctrl-C
        returns what was reached at the last look.

    Raises:
        TypeError: data is no `Batch`, state no `Run`, sampler no sampler.
        ValueError: no key and no state, numbers out of range, `tol` with nothing to measure, rows prepared by the
            piece that take more than `memory`, a state of another solver, sampler or data.
        FileNotFoundError: `save` in a folder that is not there.
        loops.SaveError: the last state could not be saved; the exception holds the whole `Fit` as `run`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=100, every=10, tol=1e-6)
        >>> run.status
        'converged after 10 steps: tolerance 1.0e-06 met, residual 0.0e+00'
    """
    check_process()
    if not isinstance(data, Batch):
        several = isinstance(data, tuple) and data and all(isinstance(part, Batch) for part in data)
        how = "take one of those in it, train, test = loaded" if several else "make one with jaxsvm.dataset(x, y)"
        raise TypeError(f"data must be a Batch, got {type(data).__name__}: {how}")
    check_batch("data", data)
    if state is not None and not isinstance(state, Run):
        raise TypeError(f"state must be the Run of an earlier call, got {type(state).__name__}: pass run.state")
    if key is None and state is None:
        raise ValueError("fit needs a key, such as jax.random.key(0), or a state to go on from")
    check_key(key)
    check_solver(solver)
    if sampler is not None and not hasattr(sampler, "draw"):
        raise TypeError(f"sampler must be one such as jaxsvm.samplers.epochs(64), got {shown(sampler)}")
    sampler = sampler or solver.sampler or uniform(1)
    measured = solver.residual_scope == "whole" or probe is not None  # reading a field checks the numbers while they are known
    if tol is not None and not measured:
        raise ValueError(
            "tol has nothing to stop on: the residual of this solver is that of single rows; give a probe to stop on "
            "(probe=jaxsvm.error_on(held_out)), or steps"
        )
    check_probe(probe)
    every = None if every is None else whole_number("every", every, 1)
    check_limit("tol", tol, signed=True)  # a probe may have any sign
    check_limit("seconds", seconds)
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")
    saver = Saver(save)
    n = data.y.shape[0]
    b, period = sampler.rows(n), sampler.period(n) if callable(sampler.period) else sampler.period
    check_targets(solver, data)
    stops = tol is not None or steps is None
    if solver.with_tol is not None:  # which judges a run by its own tolerance, also one that makes all its steps
        solver = solver if tol is None else solver.with_tol(tol)
        tol = solver.tol if tol is None and solver.residual_scope == "whole" else tol
    enter = functools.partial(as_argument, dtype=accum_dtype(data.x))
    parts = enter(solver), enter(sampler), None if probe is None else enter(probe)
    steps = 10 * -(-n // b) if steps is None else whole_number("steps", steps, 0)
    lift, room = plan_lift(parts[0], data, lift, memory, b * (every or 1), solver.reads == "all" or sampler.whole)
    tol = None if tol is None else jnp.asarray(tol, accum_dtype(data.x))
    traced = is_traced(parts, data, key, state, tol)
    if every is None:
        pace = (
            1 if solver.with_tol else default_every(steps, -(-n // b), solver.reads)
        )  # 1: a step goes on by itself to its tolerance
        every = pace if period is None else max(1, min(steps, period))
        every = max(1, min(every, room // b)) if lift == "piece" else every
    if period is not None:  # no piece crosses the end of a period; inside a transformation all pieces are of one length
        every = min(every, period)
        every = next(e for e in range(every, 0, -1) if period % e == 0) if traced else every
    if lift == "piece" and every * b > room:
        raise ValueError(
            f"the {every * b} rows of a piece are too many to prepare at once, memory={memory:g} holds {room}: lower every or "
            "raise memory"
        )
    if traced and (seconds is not None or save is not None):
        raise ValueError("seconds and save work outside of jit, vmap and grad only")
    if lift == "once":
        data = _prepare(parts[0], data)
    if state is None:
        run = init_run(parts[0], parts[1], key, data, look=min(room, n) if lift in ("piece", "step") else None)
    else:
        check_like(state, init_run.eval_shape(*parts[:2], jax.random.key(0), data))
        check_counters(state, ("step",))
        run = state._replace(step=jnp.asarray(state.step, jnp.int32), done=jnp.zeros((), bool))
    check_steps(0 if is_traced(run.step) else int(run.step), steps)
    draws = not traced and lift != "piece" and solver.reads == "rows" and not sampler.whole
    walked = pack_rows(data.x) if draws and b >= FEW else None
    if solver.layout is not Solver._field_defaults["layout"]:
        walked = _layout(parts[0], data)
        walked = unwrap_static(parts[0]).layout(data._replace(x=walked)).x  # once more where the values are known
    piece = lambda run, every, count=None: run_chunk(*parts, data, walked, run, tol, count, every=every, lift=lift == "piece")  # noqa: E731
    if traced:
        if period is not None and state is not None:
            raise ValueError("an adaptive sampler cannot go on from a state inside a transformation; go on outside")
        run, curve = run_traced(piece, run, steps, every, tol if stops else None)
    else:
        saver.check(run)
        run, curve = run_host(piece, run, steps, every, period, seconds, saver, progress, stops)
    loss = (curve.loss if traced else np.asarray(curve.loss))[-1] if curve.loss.shape[0] else np.zeros((), accum_dtype(data.x))
    model, finite = conclude(parts[0], run.solver, data, data, loss)
    tol = jnp.asarray(jnp.nan if tol is None else tol, accum_dtype(data.x))
    return saver.finish(Fit(model, run, curve, tol, finite))


def pack_rows(x: Any) -> SparseRows | None:
    """Sparse rows packed, where loops walk through them: on a CPU, by whole groups of numbers."""
    known = isinstance(x, SparseRows) and x.start is None and x.rows is None
    known = known and x.value.shape[1] % LANE_WIDTH == 0 and x.value.size < 2**31
    where = {device.platform for device in x.value.devices()} if known and isinstance(x.value, jax.Array) else set()
    return x.packed if where == {"cpu"} else None


def plan_lift(solver: Any, data: Batch, lift: str, memory: float | None, least: int, reads_all: bool) -> tuple[str, int]:
    """When rows are prepared ("never" where there is nothing to prepare), and how many prepared rows fit the memory.

    `least` are the rows of the shortest piece that will do.
    """
    check_choice("lift", lift, ("auto", "once", "piece", "step"))
    memory = 2**31 if memory is None else memory
    found = number("memory", memory)
    if found is not None and not found > 0:
        raise ValueError(f"memory must be a number of bytes above 0, got {found:g}")
    if isinstance(data, Lifted) or unwrap_static(solver).prepare is Solver._field_defaults["prepare"]:
        return "never", data.y.shape[0]
    made = _prepare.eval_shape(solver, data)
    room = int(min(memory, 2**62) // sum(leaf.size // leaf.shape[0] * leaf.dtype.itemsize for leaf in jax.tree.leaves(made.x)))
    if room < 1:
        raise ValueError(f"memory={memory:g} bytes hold not one prepared row: raise memory")
    if lift == "auto":
        lift = "once" if data.y.shape[0] <= room or reads_all else "piece" if least <= room else "step"
    if lift == "piece" and reads_all:
        raise ValueError("lift='piece' prepares the drawn rows, and here a step reads all rows: use 'once' or 'step'")
    return lift, room


def default_every(steps: int, one_pass: int, reads: str) -> int:
    """About a pass, 100 steps at least (10 for a pass of few steps, 100 at most where a step costs a pass)."""
    pace = max(one_pass, 100 if one_pass > 10 else 10)
    pace = min(pace, 100) if reads == "all" else pace
    if steps <= pace:
        return max(steps, 1)
    # A divisor nearby leaves no rest, which would have to be compiled apart.
    return next((e for e in range(pace, pace // 2, -1) if steps % e == 0), pace)


def rows_of_curve(curves: list, like: Curve) -> Curve:
    """Rows of the curve as one table, an empty one of the right types where there are none."""
    if not curves:
        return jax.tree.map(lambda a: jnp.zeros((0, *a.shape), a.dtype), like)

    def stack(*a):  # by NumPy, as JAX compiles a program for each number of rows
        return jnp.stack(a) if jnp.issubdtype(a[0].dtype, jax.dtypes.prng_key) else jax.device_put(np.stack(a))

    return jax.tree.map(stack, *curves)


def run_traced(piece, run, steps, every, tol):
    """The run as one program; after the tolerance is met the rows of the curve repeat, with nothing spent."""

    def one(carry, length):
        run, row = carry
        ahead = jax.checkpoint(lambda run: piece(run, length))
        if tol is None:
            return ahead(run)
        rest = lambda run: (run, row._replace(evals_parts=jnp.zeros_like(row.evals_parts)))  # noqa: E731
        return lax.cond(run.done, rest, ahead, run)

    row = jax.eval_shape(lambda run: piece(run, every)[1], run)
    carry = run, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), row)
    tables = []
    if steps // every:
        carry, table = lax.scan(lambda c, _: (lambda new: (new, new[1]))(one(c, every)), carry, length=steps // every)
        tables.append(table)
    if steps % every:
        carry = one(carry, steps % every)
        tables.append(jax.tree.map(lambda a: a[None], carry[1]))
    table = jax.tree.map(lambda *a: jnp.concatenate(a), *tables) if tables else rows_of_curve([], row)
    return carry[0], table


def run_host(piece, run, steps, every, period, seconds, saver, progress, stops):
    """The run as a loop on the host, which stops at any look."""
    first, made, rows, began = int(run.step), 0, [], time.monotonic()
    bar = Bar(steps, "steps") if progress else None
    try:
        while made < steps and not (stops and bool(run.done)):
            length = min(every, steps - made)
            if period is not None:
                length = min(length, period - (first + made) % period)
            # Whole and shorter pieces are one program, so that a run has the same bits wherever it is cut.
            new, row = jax.block_until_ready(piece(run, every, np.int32(length)))
            run, made = new, made + length
            rows.append(row)
            saver.save(run)
            if bar:
                bar.show(made, f"loss {float(row.loss):.3g}, residual {float(row.residual):.2g}")
            if seconds is not None and time.monotonic() - began > seconds:
                break
    except KeyboardInterrupt:
        pass  # what was reached at the last look is whole
    finally:
        if bar:
            bar.close()
    like = jax.eval_shape(lambda run: piece(run, every)[1], run) if not rows else None
    return run, rows_of_curve(rows, like)
