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
from ..engines.dual_qp import DualState
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

    solver: Any  # of two classes or one column
    state: Any  # of the solver of all of them
    names: Any  # of the classes, or None
    shape: tuple[int, ...]  # columns of the rows; number of targets, if there are several
    rows: str  # `digest_of` them


def streams(solver: Solver) -> bool:
    """Whether a run can continue on other rows.

    It can if steps read drawn rows and the state has no entry for each row.
    """
    return not solver.needs_all_rows and solver.residual_of == "batch"


def digest_of(x: object, value: np.ndarray) -> str:
    """A digest of rows, dense or sparse, and of their targets."""
    return hashlib.sha256(row_hashes(x).tobytes() + value.tobytes()).hexdigest()


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
    fields = whole(now.solver)
    shapes = jax.eval_shape(fields.init, key, data)
    first = _unmasked(shapes)
    by_dual = takes(now.solver, "start") and _coefficients(first) is not None
    if not (streams(fields) or said(first, "restart") or by_dual):
        raise ValueError(
            "warm_start=True takes a solver that can begin at a solution, and "
            f"{said(first, 'method', 'this solver')} cannot: set warm_start=False, or take newton, "
            "dual_descent, pegasos, sdca or decomposition"
        )
    if last is None:
        return None
    if (last.names, last.shape) != (now.names, now.shape):
        raise ValueError(
            f"warm_start=True begins at the last solution, of {_kind(last)}, and the rows have "
            f"{_kind(now)}: set warm_start=False, or fit a clone"
        )
    same_space = equal_trees(spaces_of(now.solver), spaces_of(last.solver))
    if streams(fields):
        return last.state if same_space and _are_like(last.state, shapes) else None
    old, is_primal = _unmasked(last.state), hasattr(first, "v")
    part = (lambda state: getattr(state, "v", None)) if is_primal else _coefficients
    is_of_use = same_space if is_primal else last.rows == now.rows
    if not (is_of_use and _are_like(part(old), part(first))):
        return None
    value = jnp.asarray(part(old)) * (1.0 if is_primal else _ratio(now.solver, last.solver))
    fresh = _initial(cast(whole(now.solver), accum_dtype(data.x)), key, data)
    if by_dual:
        state = _at_dual(value, now.solver, whole, key, data)
    else:
        state = _unmasked(fresh)._replace(**{"v" if is_primal else "coef": value})
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
    y, weight = _unmasked(whole(targets_of_rows()).init(key, data))
    is_signed = solver.targets == "labels"
    alpha = coef * y.astype(coef.dtype) if is_signed else coef
    return _begun(cast(solver, coef.dtype), alpha, y, weight, key, data)


@jax.jit
def _begun(solver: Solver, alpha: Array, y: Array, weight: Array, key: Array, data: Batch) -> State:
    """The states of problems with targets and weights (n,) or (k, n) that begin at alpha."""

    def init(alpha, y, weight):
        bound = solver.replace(start=alpha)
        return bound.init(key, data._replace(y=y, weight=weight))

    return (jax.vmap(init) if alpha.ndim == 2 else init)(alpha, y, weight)


def _unmasked(state: object) -> State:
    """The state of the problems, without the factors of their weights."""
    return state.inner if isinstance(state, MaskedState) else state


def _coefficients(state: State) -> Array | None:
    """The signed dual coefficients of a state, (n,) or (k, n); None: it has none to begin at."""
    if isinstance(state, CoordinateState):
        known = not isinstance(state.coef, jax.ShapeDtypeStruct)
        every = jax.vmap(dual_coef) if state.coef.ndim == 2 else dual_coef
        return every(state) if known else state.coef
    state = getattr(state, "dual", state)
    return state.coef if isinstance(state, DualState) or said(state, "restart") else None


def _are_like(one: object, other: object) -> bool:
    """Whether two trees have the same structure and shapes."""
    shapes = lambda tree: [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
    return same_structure(one, other) and shapes(one) == shapes(other)


def _kind(solution: Solution) -> str:
    """The columns and the classes, or targets, of a solution in words."""
    columns, *several = solution.shape
    targets = "".join(f" and {k} targets" for k in several)
    classes = "" if solution.names is None else f" and the classes {list(solution.names)}"
    return f"{columns} columns{targets}{classes}"
