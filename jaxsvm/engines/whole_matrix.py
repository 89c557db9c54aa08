"""Sequential minimal optimisation on the whole kernel matrix, for few rows.

The program is small, one loop of pair steps, and compiles in half a second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import accum_dtype, dot, map_sharing
from ..types import Array
from .dual_qp import PATIENCE, DualState, centre, count_idle, never_idle, shift_grad
from .smo_step import solve

STEPS = 2000  # least number of steps between two looks at the residual
LANES = 8192  # coefficients of the problems that are solved at once: a cache holds them
LANE_ROWS = 512  # of a problem, from which on problems are solved one after the other
MAX_ROWS = 2048  # rows up to which steps on the whole matrix are as fast as blocks


def fits(x: Array, memory: float) -> bool:
    """Whether the rows are few, and their kernel matrix takes at most `memory` bytes."""
    n = x.shape[0]
    return n <= MAX_ROWS and n * n * jnp.dtype(accum_dtype(x)).itemsize <= memory


@functools.cache
def make_solver(stop: str, bias: str) -> Callable:
    """The function that solves a dual by steps on pairs of all rows.

        coef_i += by_i, coef_j += by_j;   grad -= by_i K_i + by_j K_j

    The steps are those of `smo_step.STEPS`, and the sums in `grad` are compensated. Under `vmap`
    runs of few rows are made in groups, whose steps are made at once; others are sequential. They
    share the matrix where they have the same rows and kernel.

    Args:
        stop: the definition of the residual: "kkt" or "gap" as of `decomposition`, or "margin" for
            the units of `nu_svc`, "violation" for the other nu problems.
        bias: "free", "none", or "parts" for the problems of `nu_qp`.

    Returns:
        A function (kernel, x), (qp, tol, max_steps, state, y) -> state, residual, steps. It
        ends once the residual is at most `tol`, after `max_steps` steps, or where rounding stops
        it.
    """

    def matrix(shared):
        kernel, x = shared
        dtype = accum_dtype(x)  # a kernel of the user may return another one
        return kernel(x, x).astype(dtype), kernel.diag(x).astype(dtype)

    def from_matrix(matrix, own):
        return solve_matrix(*matrix, *own, stop=stop, bias=bias)

    return map_sharing(matrix, from_matrix, _lanes)


def _lanes(shared: Any, own: Any) -> int:
    """The number of problems whose steps are made at once under `vmap`, by their number of rows."""
    n = own[-1].shape[-1]
    return max(1, LANES // n) if n <= LANE_ROWS else 1


@jax.named_scope("solve_matrix")
def solve_matrix(
    gram: Array,
    diag: Array,
    qp: Any,
    tol: Array,
    max_steps: Array | int,
    state: DualState,
    y: Array,
    *,
    stop: str,
    bias: str,
) -> tuple[DualState, Array, Array]:
    """The state after steps on pairs of all rows, its residual, and the number of steps.

    Args:
        gram: (n, n) kernel matrix.
        diag: (n,) its diagonal.
        qp: `Problem`, or `nu_qp.NuProblem`.
        tol: () the residual to stop at.
        max_steps: maximum number of steps.
        state: at the start.
        y: (n,) targets.
        stop: as of `make_solver`.
        bias: as of `make_solver`.
    """
    state, _ = qp.feasible_start(state, lambda coef: dot(gram, coef))
    constant = qp.dual_from_diag(state, diag, y)  # its bounds and curvature
    if constant.bounds.l2 is not None:
        gram = gram + jnp.diag(constant.bounds.l2)

    most = max(STEPS, 2 * y.shape[0])

    def should_continue(carry):
        return carry[-1]

    def solve_and_check(carry):
        """Look at the residual; if it is too large, make steps until the violation is small."""
        state, steps, idle, _, _ = carry
        centred, shift = centre(qp, state, constant.at_state(state), bias)
        dual = constant.at_state(centred)
        residual = qp.residual(dual, state.weight, y, stop, bias, tol)
        idle = count_idle(idle, residual)
        step_tol = residual.goal if stop == "kkt" else 0.1 * residual.kkt
        unfinished = residual.unsolved & (idle.looks < PATIENCE)
        limit = jnp.where(unfinished, jnp.minimum(max_steps - steps, most), 0)
        uncompensated = dual._replace(grad=centred.grad)
        sums = state.sum_error, step_tol, bias, limit, centred.compensation
        end = solve(gram, uncompensated, *sums)
        state = state._replace(
            coef=end.dual.coef,
            grad=end.dual.grad,
            compensation=end.compensation,
            sum_error=end.sum_error,
        )
        progress = (end.steps > 1) | ((end.steps == 1) & end.changed)
        return shift_grad(state, shift), steps + end.steps, idle, residual.value, progress

    infinite, true = jnp.full((), jnp.inf, y.dtype), jnp.ones((), bool)
    start = state, jnp.zeros((), jnp.int32), never_idle(y.dtype), infinite, true
    state, steps, _, residual, _ = lax.while_loop(should_continue, solve_and_check, start)
    return state, residual, steps
