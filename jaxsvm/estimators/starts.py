"""Where runs begin: at the state of a run on other rows, or at the solution of the last fit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._node import cast, node, takes
from ..engines.coordinate_ascent import CoordinateState, dual_coef
from ..numerics import accum_dtype
from ..types import Array, Batch, Solver, State, said, same_structure
from ..wrappers.problems import MaskedState
from .parameters import spaces_of
from .preprocess import equal_trees, row_hashes


@node
class targets_of_rows(Solver):
    """Its state are the targets and the weights of the rows, of each problem."""

    targets = "labels"

    def init(self, key: Array, data: Batch) -> tuple[Array, Array]:
        return data.y, data.weight


class Solution(NamedTuple):
    """The end of a fit, at which the next one may begin."""

    solver: Solver  # of two classes or one column
    state: State  # of the solver of all of them
    names: Any  # of the classes, or None
    columns: str  # their number, and that of several targets, in words
    rows: str  # a digest of the rows, dense or sparse, and of their targets

    @classmethod
    def of(cls, solver: Solver, x: Any, value: np.ndarray, names: Any, columns: int) -> Solution:
        """That of a run on rows x with targets, without a state."""
        targets = f" and {value.shape[1]} targets" if value.ndim == 2 else ""
        rows = hashlib.sha256(row_hashes(x).tobytes() + value.tobytes()).hexdigest()
        return cls(solver, None, names, f"{columns} columns{targets}", rows)

    @property
    def kind(self) -> str:
        """The columns, and the classes or targets, in words."""
        return self.columns + ("" if self.names is None else f" and the classes {[*self.names]}")


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
    coefficients are one on the same rows, in proportion to C.

    Args:
        last: of the fit before; None: there was none.
        now: the same of this fit, without a state.
        whole: (solver of two classes or one column) -> the solver of all of them.
        key: of the run.
        data: the rows of this run.

    Raises:
        ValueError: a solver that cannot begin at a solution; other classes or columns.
    """
    solver, goes_on = now.solver, streams(whole(now.solver))
    shapes = jax.eval_shape(whole(solver).init, key, data)
    first = _bare(shapes)
    parts = {"v", "coef", "dual"}.intersection(getattr(first, "_fields", ()))
    if not (goes_on or said(first, "restart") or takes(solver, "start") and parts):
        raise ValueError(
            "warm_start=True takes a solver that can begin at a solution, and "
            f"{said(first, 'method', 'this solver')} cannot: set warm_start=False, or take newton, "
            "dual_descent, pegasos, sdca or decomposition"
        )
    if last is None:
        return None
    if (last.names, last.columns) != (now.names, now.columns):
        raise ValueError(
            f"warm_start=True begins at the last solution, of {last.kind}, and the rows have "
            f"{now.kind}: set warm_start=False, or fit a clone"
        )
    old, is_primal = _bare(last.state), "v" in parts
    of_use = goes_on or is_primal or last.rows == now.rows
    if not (of_use and equal_trees(spaces_of(solver), spaces_of(last.solver))):
        return None
    if goes_on or type(old) is not type(first):
        return last.state if _are_like(last.state, shapes) else None
    name = "v" if is_primal else "coef"
    value = old.v if is_primal else _coefficients(old) * _ratio(solver, last.solver)
    if is_primal and not _are_like(value, first.v):
        return None
    fresh = _initial(cast(whole(solver), accum_dtype(data.x)), key, data)
    if takes(solver, "start"):
        state = _at_dual(value, solver, whole, key, data)
    else:
        state = _bare(fresh)._replace(**{name: value})
    return fresh._replace(inner=state) if isinstance(fresh, MaskedState) else state


@jax.jit
def _initial(solver: Solver, key: Array, data: Batch) -> State:
    """The state before the first step."""
    return solver.init(key, data)


def _ratio(solver: object, before: object) -> float:
    """The ratio of the C of two solvers, 1 where they have none."""
    C, old = (vars(each).get("C") for each in (solver, before))
    return 1.0 if C is None or old is None else float(C) / float(old)


def _at_dual(coef: Array, solver: Solver, whole: Callable, key: Array, data: Batch) -> State:
    """The states of the problems that begin at signed coefficients, (n,) or (k, n)."""
    y, weight = _bare(whole(targets_of_rows()).init(key, data))
    alpha = coef * y.astype(coef.dtype) if solver.targets == "labels" else coef
    return _begun(cast(solver, coef.dtype), alpha, y, weight, key, data)


@jax.jit
def _begun(solver: Solver, alpha: Array, y: Array, weight: Array, key: Array, data: Batch) -> State:
    """The states of problems with targets and weights (n,) or (k, n) that begin at alpha."""

    def init(alpha, y, weight):
        return solver.replace(start=alpha).init(key, data._replace(y=y, weight=weight))

    return (jax.vmap(init) if alpha.ndim == 2 else init)(alpha, y, weight)


def _bare(state: object) -> Any:
    """The state of the problems, without the factors of their weights."""
    return state.inner if isinstance(state, MaskedState) else state


def _coefficients(state: Any) -> Array:
    """The signed dual coefficients of a state, (n,) or (k, n)."""
    if isinstance(state, CoordinateState):
        return (jax.vmap(dual_coef) if state.coef.ndim == 2 else dual_coef)(state)
    return getattr(state, "dual", state).coef


def _are_like(one: object, other: object) -> bool:
    """Whether two trees have the same structure and shapes."""
    shapes = lambda tree: [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
    return same_structure(one, other) and shapes(one) == shapes(other)
