"""The compiled programs of a run: its start, its chunks of updates, and its end."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import calling, check_bytes, is_numeric, shown
from ..numerics import shards
from ..objectives import decision_values
from ..recipe import as_static, cast, fields_of, unwrap_static
from ..types import (
    Array,
    Batch,
    Curve,
    Info,
    Lifted,
    Model,
    Run,
    Sampler,
    Scalar,
    Solver,
    State,
    take,
    take_by_block,
)
from .compile_options import jit_by_size
from .curve import Sums, add_info, curve_row, empty_sums

MOST_MAPS = 30_000  # of memory, before the package lets its programs go; Linux allows 65,530
_calls = itertools.count(1)


def as_argument(node: Any, dtype: Any) -> Any:
    """A solver, sampler or probe as an argument of a compiled function.

    Its numbers are cast to `dtype`.
    """
    if next(_calls) % 256 == 0:
        release_programs()
    node = as_static(node)
    return cast(node, dtype)


def release_programs() -> None:
    """Clear the caches of the package's compiled functions if the process has many memory maps.

    They keep the programs of functions that are gone, such as a probe of each turn of a loop. Each
    takes up to 114 maps of memory; without room for another, XLA crashes. JAX compiles anew what is
    still in use. Functions of other packages keep their programs. It is for Linux alone.
    """
    try:
        with open("/proc/self/maps", "rb") as maps:
            if sum(1 for _ in maps) <= MOST_MAPS:
                return
    except OSError:
        return
    package, compiled = __name__.split(".")[0], (type(update), FunctionType)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package)]
    for value in [value for module in modules for value in list(vars(module).values())]:
        is_compiled = isinstance(value, compiled) and hasattr(value, "clear_cache")
        if is_compiled and value.__module__.startswith(package):  # not of another package
            value.clear_cache()


@jax.jit
def update(solver: Any, state: State, batch: Batch) -> tuple[State, Info]:
    """One update of the solver."""
    return unwrap_static(solver).update(state, batch)


def _evenly_spread(data: Batch, k: int) -> Batch:
    """k of the rows, evenly spread."""
    return take(data, jnp.asarray(np.arange(k) * data.weight.shape[0] // k, jnp.int32))


@jit_by_size(once=True, static_argnames=("init_rows",))
def init_run(
    solver: Any, sampler: Any, key: Array, data: Batch, *, init_rows: int | None = None
) -> Run:
    """The run before its first step.

    With `init_rows`, `solver.init` reads that many evenly spread rows, if its state has the same
    shapes on them as on all.
    """
    solver, sampler = unwrap_static(solver), unwrap_static(sampler)
    solver_key, sampler_key = jax.random.split(key)
    init_data, draws = data, fields_of(sampler)
    sampler_state = draws.init(sampler_key, data)
    if draws.combine is not None:
        init_data = _combined(solver, draws, sampler_state, data, init_rows)
    elif init_rows is not None:
        subset = _evenly_spread(data, init_rows)
        shapes = [
            jax.tree.map(jnp.shape, jax.eval_shape(solver.init, solver_key, rows))
            for rows in (data, subset)
        ]
        init_data = subset if shapes[0] == shapes[1] else data
    zero = jnp.zeros((), jnp.int32)
    state = solver.init(solver_key, init_data)
    # known before it is made, as this function is compiled
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    check_bytes("the numbers of the solver's state", size, "lower its sizes, such as budget")
    return Run(
        state,
        sampler_state,
        zero,
        jnp.zeros((), bool),
    )


def _combined(solver: Any, draws: Any, state: State, data: Batch, rows: int | None) -> Batch:
    """Combined rows of the first steps: as many as the data have rows, or at most about `rows`."""
    n = data.y.shape[0]
    steps = max(1, min(n, n if rows is None else rows) // draws.rows(n))
    index, _ = _existing_rows(_draw(draws, state, 0, steps, n), n, 1, steps)
    drawn_rows = solver.prepare(take(data, index.ravel()))
    by_step = jax.tree.map(lambda a: a.reshape(*index.shape, *a.shape[1:]), drawn_rows)
    combined = jax.vmap(draws.combine)(by_step)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), combined)


@jax.jit
def prepare(solver: Any, data: Batch) -> Lifted:
    """The rows after the feature map of the solver."""
    return unwrap_static(solver).prepare(data)


@jit_by_size(once=True)
def conclude(
    solver: Any,
    state: State,
    data: Batch | None,
    rows: Batch,
    loss: Scalar,
    packed_rows: Any = None,
) -> tuple[Model, Array]:
    """The model of a state, and whether its run was finite, () bool.

    That is so if the loss and the decision values at some training rows are finite, and all weights
    finite and at least 0, not all 0 in `data`. One program computes both.

    Args:
        solver: of the run.
        state: of the solver.
        data: all rows, or None; the second argument of `Solver.model`.
        rows: training rows; decision values are computed at `CHECKED_ROWS` of them at most, evenly
            spread. Rows of weight 0 are left out.
        loss: () mean loss of the last chunk, which covers more rows, or that of another chunk if it
            is not a number; 0 if no step was made.
        packed_rows: `rows.x` in the layout of the solver, in which values are cheaper; or None.
    """
    solver = fields_of(solver)
    # y of the checked rows is not read; a copy of the weights stands in for it.
    rows = rows._replace(y=rows.weight)
    total = jnp.sum(jnp.where(rows.weight >= 0, rows.weight, jnp.nan))
    valid = (total >= 0 if data is None else total > 0) & (total < jnp.inf)
    loss = jnp.where(valid, loss, jnp.nan)
    model = solver.model(state, data)
    if packed_rows is None:
        return model, _values_finite(*lax.stop_gradient((model, rows, loss)))
    packed = rows._replace(x=packed_rows)
    packed_model = solver.model(state, None if data is None else data._replace(x=packed_rows))
    return model, _values_finite(*lax.stop_gradient((packed_model, packed, loss)))


MOST_ON_HOST = 2**21  # numbers of rows up to which NumPy prepares them: a few milliseconds
CHECKED_ROWS = 64  # training rows at which the final decision values are checked


def _values_finite(model: Model, rows: Batch, loss: Scalar) -> Array:
    subset = _evenly_spread(rows, min(rows.weight.shape[0], CHECKED_ROWS))
    loss_finite = jnp.isfinite(loss)
    try:
        values = decision_values(model, subset)
        row_finite = jnp.isfinite(values).reshape(subset.weight.shape[0], -1).all(axis=1)
    # a user's solver whose model does not accept training rows
    except (TypeError, ValueError, AssertionError):
        return loss_finite
    return loss_finite & jnp.all(row_finite | (subset.weight <= 0))


@jax.jit
def layout_of(solver: Any, data: Batch) -> Any:
    """The rows in the layout that updates read fastest."""
    return unwrap_static(solver).layout(data).x


@jax.jit
def constants_of(solver: Any, data: Batch) -> Any:
    """What the faster loop of the solver reads of all rows."""
    return fields_of(solver).constants(data)


@jit_by_size(static_argnames=("every", "lift"))
def run_chunk(
    solver: Any,
    sampler: Any,
    probe: Any,
    data: Batch,
    packed_rows: Any,
    run: Run,
    tol: Array | None,
    count: Any,
    *,
    every: int,
    lift: bool = False,
    constants: Any = None,
) -> tuple[Run, Curve]:
    """Make `every` steps from `run`, or only the first `count` of them.

    Returns the next run and a row of the curve.

    Args:
        solver: as an argument of a compiled function, as are `sampler` and `probe`.
        sampler: draws the rows of the steps.
        probe: model -> tree of arrays, or None.
        data: the training rows.
        packed_rows: the same rows in a faster layout, which the steps read instead of `data.x`; or
            None.
        run: the state at the start of the chunk.
        tol: () the run is done once its criterion is at most this; or None.
        count: () int32, steps to make; None: `every`.
        every: length of the chunk; structure.
        lift: prepare the rows of all steps before the loop; structure.
        constants: of all rows, with which the steps are those of `Solver.updates`; or None.
    """
    # compiled: `eval_shape` below and the loop trace it once
    update_state = functools.partial(update, solver)
    solver, sampler, probe = fields_of(solver), fields_of(sampler), unwrap_static(probe)
    reads, adaptive, whole = solver.reads, sampler.period is not None, sampler.whole
    step_data = data._replace(
        x=data.x if packed_rows is None else packed_rows, weight=_weight(sampler, data)
    )
    combine = sampler.combine or (lambda rows: rows)
    # a Python integer gives the loop a reverse-mode derivative
    length = every if count is None else count
    n = data.y.shape[0]
    # rows on several devices are taken where they are
    blocks = sampler.blocks if shards(n) > 1 else 1
    indices: Any = None
    exist: Any = None
    if not whole:  # drawn outside of the loop, which is cheaper
        drawn_rows = _draw(sampler, run.sampler, run.step, every, n)
        indices, exist = _existing_rows(drawn_rows, n, blocks, length)
    places: Any = None
    if lift and adaptive and blocks == 1 and count is not None:
        features, places = _features_of_drawn(solver, step_data, indices, count)
    elif lift:
        features = _features_of_steps(solver, step_data, indices, blocks)

    def batch(k):
        if lift:
            read = lambda a: lax.dynamic_index_in_dim(a, k, keepdims=False)
            if places is None:
                return combine(jax.tree.map(read, features))
            place, index = read(places), read(indices)
            rows = jax.tree.map(lambda a: a.at[place].get(mode="promise_in_bounds"), features)
            return combine(rows._replace(index=index, weight=jnp.where(index >= 0, rows.weight, 0)))
        if whole:
            return step_data
        index = lax.dynamic_index_in_dim(indices, k, keepdims=False)
        if reads == "all":
            return step_data._replace(index=index)
        if blocks > 1:
            return take_by_block(step_data, index, blocks)
        rows = take(step_data, index, copy=False)
        return rows if sampler.combine is None else combine(solver.prepare(rows))

    def body(k, carry):
        state, sums, feedback = carry
        state, info = update_state(state, batch(k))
        sums = add_info(sums, info)
        if adaptive:
            write = functools.partial(lax.dynamic_update_index_in_dim, index=k, axis=0)
            feedback = write(feedback[0], info.index), write(feedback[1], info.progress)
        return state, sums, feedback

    if constants is not None:
        state, info = jax.jit(solver.updates)(run.solver, step_data, indices, length, constants)
        sums = _marked(add_info(empty_sums(info), info), exist)
        feedback: tuple = (info.index, info.progress)
        return _end_chunk(
            solver,
            sampler if adaptive else None,
            probe,
            data,
            run,
            state,
            sums,
            feedback,
            tol,
            length,
        )

    _, info = jax.eval_shape(update_state, run.solver, jax.eval_shape(batch, 0))
    feedback = ()
    # the changed rows and the progress of each step; -1 where a shorter chunk makes no step
    if adaptive:
        feedback = (
            jnp.full((every, *info.index.shape), -1, jnp.int32),
            jnp.zeros((every, *info.progress.shape), info.progress.dtype),
        )
    carry = run.solver, empty_sums(info), feedback
    # one step is a smaller program without the loop
    state, sums, feedback = body(0, carry) if every == 1 else lax.fori_loop(0, length, body, carry)
    sums = _marked(sums, exist)
    return _end_chunk(
        solver, sampler if adaptive else None, probe, data, run, state, sums, feedback, tol, length
    )


def _draw(sampler: Sampler, state: State, step: Any, count: int, n: int) -> Array:
    """The row numbers that the sampler draws for `count` steps, (count, rows of a step).

    Raises:
        TypeError, ValueError: its function fails, or gives other arrays.
    """
    form, shape = "(state, step, count) -> (count, b) row numbers", (count, sampler.rows(n))
    with calling("draw of the sampler", sampler.draw, form):
        index = sampler.draw(state, step, count)
    is_integer = hasattr(index, "dtype") and jnp.issubdtype(index.dtype, jnp.integer)
    if not is_integer or index.shape != shape:
        raise ValueError(
            f"draw of the sampler must give integers of shape {shape}, (count, rows of a step), "
            f"got {shown(index)}"
        )
    return index


def _weight(sampler: Sampler, data: Batch) -> Array:
    """The weights that steps read, (n,).

    Raises:
        TypeError, ValueError: the sampler's function fails, or gives another array.
    """
    with calling("weight of the sampler", sampler.weight, "of the data to the weights (n,)"):
        weight = sampler.weight(data)
    shape = data.weight.shape
    if getattr(weight, "shape", None) != shape or not is_numeric(weight.dtype):
        raise ValueError(
            f"weight of the sampler must give a number for each row, of shape {shape}, got "
            f"{shown(weight)}"
        )
    return weight


def _existing_rows(index: Array, n: int, blocks: int, count: Any) -> tuple[Array, Array]:
    """The drawn row numbers (steps, b), and whether those of the first `count` steps exist, ().

    Numbers out of range become -1, padding: else steps would read other rows. With `blocks`, part j
    of a draw is from the j-th block of the rows.
    """
    size = n // blocks
    first = jnp.repeat(size * jnp.arange(blocks, dtype=index.dtype), index.shape[1] // blocks)
    exists = (index == -1) | ((index >= first[None, :]) & (index < first[None, :] + size))
    is_step = lax.broadcasted_iota(jnp.int32, index.shape, 0) < count
    return jnp.where(exists, index, -1), jnp.all(exists | ~is_step)


def _marked(sums: Sums, exist: Array | None) -> Sums:
    """The sums, with a loss that is not a number if rows were drawn that do not exist."""
    if exist is None:
        return sums
    floats, ints = sums
    return floats.at[0].set(jnp.where(exist, floats[0], jnp.nan)), ints


def _features_of_steps(solver: Solver, data: Batch, indices: Array, blocks: int) -> Batch:
    """The prepared rows of each step, (steps, rows of a step, ...).

    They are prepared block by block, in the order in which blocks lie on devices.
    """
    steps = indices.shape[0]
    by_block = jnp.moveaxis(indices.reshape(steps, blocks, -1), 1, 0)
    rows = by_block.reshape(-1)
    prepared = solver.prepare(
        take(data, rows) if blocks == 1 else take_by_block(data, rows, blocks)
    )
    by_step = lambda a: jnp.moveaxis(a.reshape(*by_block.shape, *a.shape[1:]), 0, 1)
    return jax.tree.map(lambda a: by_step(a).reshape(*indices.shape, *a.shape[1:]), prepared)


PREPARED_BLOCK = 4096  # rows that are prepared at once


def _features_of_drawn(
    solver: Solver, data: Batch, indices: Array, count: Array
) -> tuple[Batch, Array]:
    """The prepared rows that the first `count` steps draw, each once, and their places by step.

    Adaptive samplers draw the same rows several times in a chunk, and chunks end early with their
    periods. A loop over blocks ends with the last row that is drawn.

    Returns:
        The rows, as many as the chunk has draws, of which the drawn ones come first; and places,
        int32 of the shape of `indices`.
    """
    n, size = data.y.shape[0], indices.size
    steps = lax.broadcasted_iota(jnp.int32, indices.shape, 0)
    drawn_rows = jnp.where((steps < count) & (indices >= 0), indices, n)  # n: no row
    is_drawn = jnp.zeros(n, jnp.int32).at[drawn_rows.ravel()].set(1, mode="drop")
    place = jnp.cumsum(is_drawn, dtype=jnp.int32) - 1
    rows = jnp.zeros(size, jnp.int32)
    rows = rows.at[jnp.where(is_drawn > 0, place, size)].set(
        jnp.arange(n, dtype=jnp.int32), mode="drop"
    )
    block = min(size, PREPARED_BLOCK)

    def prepare_block(start):
        return solver.prepare(take(data, lax.dynamic_slice_in_dim(rows, start, block)))

    def write_block(k, features):
        start = jnp.minimum(k * block, size - block)
        write = lambda a, part: lax.dynamic_update_slice_in_dim(a, part, start, 0)
        return jax.tree.map(write, features, prepare_block(start))

    types = jax.eval_shape(prepare_block, jnp.zeros((), jnp.int32))
    empty = jax.tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype), types)
    features = lax.fori_loop(0, (place[-1] + block) // block, write_block, empty)
    return features, jnp.maximum(place[jnp.maximum(indices, 0)], 0)


def probed(probe: Callable | None, model: Callable[[], Model]) -> Any:
    """The result of the probe, a tree of arrays; None without a probe, which traces no model.

    Raises:
        TypeError, ValueError: the probe fails, or returns what is no array of numbers.
    """
    if probe is None:
        return None
    with calling("probe", probe, "of the model to arrays of numbers"):
        return jax.tree.map(jnp.asarray, probe(model()))


def _end_chunk(
    solver: Solver,
    sampler: Sampler | None,
    probe: Callable | None,
    data: Batch,
    run: Run,
    state: State,
    sums: Sums,
    feedback: tuple,
    tol: Array | None,
    length: Any,
) -> tuple[Run, Curve]:
    """The run after the steps of a chunk, and its row of the curve.

    The sampler is an adaptive one, which `feedback` is for, or None.
    """
    sampler_state = run.sampler if sampler is None else sampler.feedback(run.sampler, *feedback)
    value = probed(probe, lambda: solver.model(state, data))
    row = curve_row(sums, run.step, length, value)
    criterion = row.residual if solver.residual_scope == "whole" or probe is None else value
    is_array = hasattr(criterion, "dtype") and hasattr(criterion, "shape")
    if tol is not None and not (is_array and criterion.shape == () and is_numeric(criterion.dtype)):
        came = shown(criterion) if is_array else type(criterion).__name__
        raise ValueError(
            f"the probe must give one number to compare with tol, got {came}: return one, or give "
            "steps and no tol"
        )
    done = criterion <= tol if tol is not None else jnp.zeros((), bool)
    return Run(state, sampler_state, row.step, done), row


MOST_CHUNKS = 64  # chunks of one call of `run_chunks`
LONGEST_CALL = 0.2  # seconds of a call after which the next ones make no more chunks


@jit_by_size(static_argnames=("every", "period", "stops"))
def run_chunks(
    solver: Any,
    sampler: Any,
    probe: Any,
    data: Batch,
    packed_rows: Any,
    run: Run,
    tol: Array | None,
    constants: Any,
    end: Any,
    most: Any,
    *,
    every: int,
    period: int | None,
    stops: bool,
) -> tuple[Run, Curve, Array]:
    """Make up to `most` chunks from `run`, as one program.

    Args:
        solver: as of `run_chunk`, with `updates`.
        sampler: as of `run_chunk`.
        probe: as of `run_chunk`.
        data: as of `run_chunk`.
        packed_rows: as of `run_chunk`.
        run: the state at the start.
        tol: as of `run_chunk`.
        constants: as of `run_chunk`.
        end: () int32, the step at which the run ends.
        most: () int32, at most `MOST_CHUNKS`.
        every: as of `run_chunk`; structure.
        period: steps between two updates of an adaptive sampler, or None; structure.
        stops: whether the run ends once its tolerance is met; structure.

    Returns:
        The next run, a table of `MOST_CHUNKS` rows of the curve, and how many of them were made.
    """

    def chunk(run):
        length = jnp.minimum(every, end - run.step)
        if period is not None:
            length = jnp.minimum(length, period - run.step % period)
        return run_chunk(
            solver,
            sampler,
            probe,
            data,
            packed_rows,
            run,
            tol,
            length,
            every=every,
            constants=constants,
        )

    def should_continue(carry):
        n_chunks, run, _ = carry
        more = (n_chunks < most) & (run.step < end)
        return more & ~run.done if stops else more

    def body(carry):
        n_chunks, run, table = carry
        run, row = chunk(run)
        write = lambda a, value: lax.dynamic_update_index_in_dim(a, value, n_chunks, 0)
        return n_chunks + 1, run, jax.tree.map(write, table, row)

    empty = lambda a: jnp.zeros((MOST_CHUNKS, *a.shape), a.dtype)
    table = jax.tree.map(empty, jax.eval_shape(chunk, run)[1])
    n_chunks, run, table = lax.while_loop(
        should_continue, body, (jnp.zeros((), jnp.int32), run, table)
    )
    return run, table, n_chunks
