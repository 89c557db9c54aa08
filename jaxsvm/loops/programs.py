"""The compiled programs of a run: its start, its chunks of updates, and its end."""

from __future__ import annotations

import itertools
import sys
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import check_bytes
from ..objectives import decision_values
from ..recipe import as_static, cast, fields_of, unwrap_static
from ..types import (
    Array,
    Batch,
    Model,
    RunState,
    Scalar,
    State,
    row_weights,
    take,
)
from .compile_options import jit_by_size
from .feeds import draw_rows, existing_rows, prepare

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
    package, compiled = __name__.split(".")[0], (type(prepare), FunctionType)
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package)]
    for value in [value for module in modules for value in list(vars(module).values())]:
        is_compiled = isinstance(value, compiled) and hasattr(value, "clear_cache")
        if is_compiled and value.__module__.startswith(package):  # not of another package
            value.clear_cache()


def _evenly_spread(data: Batch, k: int) -> Batch:
    """k of the rows, evenly spread."""
    return take(data, jnp.asarray(np.arange(k) * data.weight.shape[0] // k, jnp.int32))


@jit_by_size(once=True, static_argnames=("init_rows",))
def init_run(
    solver: Any, sampler: Any, key: Array, data: Batch, *, init_rows: int | None = None
) -> RunState:
    """The run before its first step.

    With `init_rows`, `solver.init` reads that many evenly spread rows, if its state has the same
    shapes on them as on all.
    """
    solver, sampler = unwrap_static(solver), unwrap_static(sampler)
    solver_key, sampler_key = jax.random.split(key)
    init_data, draws = data, fields_of(sampler)
    sampler_state = draws.init(sampler_key, row_weights(data))
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
    return RunState(
        state,
        sampler_state,
        zero,
        jnp.zeros((), bool),
    )


def _combined(solver: Any, draws: Any, state: State, data: Batch, rows: int | None) -> Batch:
    """Combined rows of the first steps: as many as the data have rows, or at most about `rows`."""
    n = data.y.shape[0]
    steps = max(1, min(n, n if rows is None else rows) // draws.rows(n))
    index, _ = existing_rows(draw_rows(draws, state, 0, steps, n), n, 1, steps)
    drawn_rows = solver.prepare(take(data, index.ravel()))
    by_step = jax.tree.map(lambda a: a.reshape(*index.shape, *a.shape[1:]), drawn_rows)
    combined = jax.vmap(draws.combine)(by_step)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), combined)


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

    That is so if the loss and the decision values at some training rows are finite. One program
    computes both.

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
    model = solver.model(state, data)
    if packed_rows is None:
        return model, values_finite(*lax.stop_gradient((model, rows, loss)))
    packed = rows._replace(x=packed_rows)
    packed_model = solver.model(state, None if data is None else data._replace(x=packed_rows))
    return model, values_finite(*lax.stop_gradient((packed_model, packed, loss)))


CHECKED_ROWS = 64  # training rows at which the final decision values are checked


def values_finite(model: Model, rows: Batch, loss: Scalar) -> Array:
    """Whether the loss and the decision values at some rows of weight above 0 are finite, ()."""
    subset = _evenly_spread(rows, min(rows.weight.shape[0], CHECKED_ROWS))
    loss_finite = jnp.isfinite(loss)
    try:
        values = decision_values(model, subset)
        row_finite = jnp.isfinite(values).reshape(subset.weight.shape[0], -1).all(axis=1)
    # a user's solver whose model does not accept training rows
    except (TypeError, ValueError, AssertionError):
        return loss_finite
    return loss_finite & jnp.all(row_finite | (row_weights(subset).weight <= 0))
