"""`step`: one compiled update, for loops of the user."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..flags import despite_flags, flag
from ..numerics import accum_dtype, in_mesh_of, is_traced
from ..recipe import unwrap_static
from ..types import Batch, Info, Solver, State, check_batch, same_structure
from .checks import check_solver
from .old import as_argument


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
