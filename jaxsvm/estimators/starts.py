"""Where runs begin: at the state of a run on other rows, or at the solution of the last fit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._node import cast
from ..numerics import accum_dtype
from ..types import Array, Batch, Solver, State, said, same_structure
from ..wrappers.problems import MaskedState
from .parameters import spaces_of
from .preprocess import equal_trees, row_hashes


class Solution(NamedTuple):
    """The end of a fit, at which the next one may begin."""

    solver: Solver  # of two classes or one column
    state: State  # of the solver of all of them
    names: Any  # of the classes, or None
    columns: int
    rows: str  # a digest of the rows, dense or sparse, and of their targets

    @classmethod
    def of(cls, solver: Solver, x: Any, value: np.ndarray, names: Any, columns: int) -> Solution:
        """That of a run on rows x with targets, without a state."""
        rows = hashlib.sha256(row_hashes(x).tobytes() + value.tobytes()).hexdigest()
        return cls(solver, None, names, columns, rows)

    @property
    def kind(self) -> str:
        """The columns and the classes in words."""
        classes = "" if self.names is None else f" and the classes {[*self.names]}"
        return f"{self.columns} columns{classes}"


def streams(solver: Solver) -> bool:
    """Whether a run can continue on other rows.

    It can if steps read drawn rows and the state has no entry for each row.
    """
    return not solver.needs_all_rows and solver.residual_of == "batch"


def start_of(
    last: Solution | None, now: Solution, whole: Callable, key: Array, data: Batch
) -> State:
    """The state of a run that begins at the last solution; None: it begins anew.

    States of runs that continue on other rows go on, and weights are a start on any rows. Dual
    coefficients are one on the same rows.

    Args:
        last: of the fit before; None: there was none.
        now: the same of this fit, without a state.
        whole: (solver of two classes or one column) -> the solver of all of them.
        key: of the run.
        data: the rows of this run.

    Raises:
        ValueError: a solver that cannot begin at a solution; other classes or columns.
    """
    solver = whole(now.solver)
    goes_on, shapes = streams(solver), jax.eval_shape(solver.init, key, data)
    first = _bare(shapes)
    if not (goes_on or said(first, "restart")):
        raise ValueError(
            "warm_start=True takes a solver that can begin at a solution, and "
            f"{said(first, 'method', 'this solver')} cannot: set warm_start=False, or take newton, "
            "proximal_newton, dual_descent or pegasos"
        )
    if last is None:
        return None
    if (last.names, last.columns) != (now.names, now.columns):
        raise ValueError(
            f"warm_start=True begins at the last solution, of {last.kind}, and the rows have "
            f"{now.kind}: set warm_start=False, or fit a clone"
        )
    if type(_bare(last.state)) is not type(first) or not equal_trees(
        spaces_of(now.solver), spaces_of(last.solver)
    ):
        return None
    if goes_on:
        sizes = lambda tree: jax.tree.map(jnp.shape, jax.tree.leaves(tree))
        is_like = same_structure(last.state, shapes) and sizes(last.state) == sizes(shapes)
        return last.state if is_like else None
    name = "v" if "v" in first._fields else "coef"
    value = getattr(_bare(last.state), name)
    if (name == "coef" and last.rows != now.rows) or value.shape != getattr(first, name).shape:
        return None
    fresh = jax.jit(type(solver).init)(cast(solver, accum_dtype(data.x)), key, data)
    state = _bare(fresh)._replace(**{name: value})
    return fresh._replace(inner=state) if isinstance(fresh, MaskedState) else state


def _bare(state: object) -> Any:
    """The state of the problems, without the factors of their weights."""
    return state.inner if isinstance(state, MaskedState) else state
