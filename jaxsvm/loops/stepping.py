"""`step`: one compiled update, for loops of the user."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._node import cast
from ..flags import despite_flags
from ..numerics import accum_dtype, in_mesh_of, is_traced
from ..types import Batch, Info, Solver, State, check_batch, same_structure, updated
from .checks import check_solver


@despite_flags
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
        TypeError: batch is not a `Batch` of arrays, or the state does not have the structure of
            this solver's.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.pegasos(0.1)
        >>> state, info = jaxsvm.step(solver, solver.init(jax.random.key(0), data), data)
        >>> float(info.loss)
        1.0
    """
    check_batch("batch", batch)
    key = id(solver), batch.x.dtype
    if key in _arguments:
        argument = _arguments[key][1]
    else:
        check_solver(solver)  # outside of the program, in which its numbers have no values
        argument = jax.tree.map(jnp.asarray, cast(solver, accum_dtype(batch.x)))
        if not is_traced(argument):
            _arguments[key] = solver, argument
            if len(_arguments) > MOST_ARGUMENTS:
                _arguments.pop(next(iter(_arguments)), None)
    try:
        return _update(argument, state, batch)
    except Exception as error:
        expected = jax.eval_shape(solver.init, jax.random.key(0), batch)
        if not same_structure(expected, state):
            raise TypeError(
                "state must be that of solver.init(key, data), or of the step before: got "
                f"{type(state).__name__}, expected {type(expected).__name__}"
            ) from error
        raise


_update = jax.jit(updated)

# of the last calls of `step`: (id of the solver, dtype of the rows) -> the solver, which keeps its
# id, and it as an argument, whose numbers are on the device
_arguments: dict[tuple, tuple[Any, Any]] = {}
MOST_ARGUMENTS = 16
