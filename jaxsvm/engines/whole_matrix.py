"""Sequential minimal optimisation on the whole kernel matrix, for few rows.

The program is small, one loop of pair steps, and compiles in half a second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import accum_dtype, dot, map_sharing
from ..types import Array
from .dual_qp import (
    PATIENCE,
    DualState,
    Idle,
    centre,
    count_idle,
    never_idle,
    shift_grad,
)
from .smo_step import solve

STEPS = 2000  # least number of steps between two looks at the residual
MAX_ROWS = 2048  # rows up to which steps on the whole matrix are as fast as blocks
MAX_GIVEN = 4096  # the same where the matrix is given, not computed


def fits(x: Array, memory: float, most: int = MAX_ROWS) -> bool:
    """Whether the rows are few, and their kernel matrix takes at most `memory` bytes."""
    n = x.shape[0]
    return n <= most and n * n * jnp.dtype(accum_dtype(x)).itemsize <= memory


@functools.cache
def make_solver(stop: str, bias: str) -> Callable:
    """The function that solves a dual by steps on pairs of all rows.

        coef_i += by_i, coef_j += by_j;   grad -= by_i K_i + by_j K_j

    The steps are those of `smo_step.STEPS`, and the sums in `grad` are compensated. Under `vmap`
    runs are made in turns. They share the matrix where they have the same rows and kernel.

    Args:
        stop: the definition of the residual: "kkt" or "gap" as of `decomposition`, or "margin" for
            the units of `nu_svc`, "violation" and "offset" for the other nu problems.
        bias: "free", "none", or "parts" for the problems of `nu_qp`.

    Returns:
        A function (kernel, x), (qp, tol, rounds, state, y) -> state, residual, steps. It ends
        once the residual is at most `tol`, after the rounds, or where rounding stops it.
    """

    def matrix(shared):
        kernel, x = shared
        dtype = accum_dtype(x)  # a kernel of the user may return another one
        return kernel(x, x).astype(dtype), kernel.diag(x).astype(dtype)

    solve_own = functools.partial(solve_matrix, stop=stop, bias=bias)
    return map_sharing(matrix, solve_own)


@jax.named_scope("solve_matrix")
def solve_matrix(matrix: tuple, own: tuple, stop: str, bias: str) -> tuple:
    """The state after steps on pairs of all rows, its residual, and the number of steps.

    Args:
        matrix: the kernel matrix (n, n), and its diagonal (n,).
        own: the `Problem` or `nu_qp.NuProblem`; the residual to stop at; the maximum number of
            steps, in units of 100 n; the state at the start; targets (n,).
        stop: as of `make_solver`.
        bias: as of `make_solver`.
    """
    (gram, diag), (qp, tol, rounds, state, y) = matrix, own
    state, _ = qp.feasible_start(state, lambda coef: dot(gram, coef))
    n = y.shape[0]
    constant = qp.dual_from_diag(state, diag, y)  # its bounds and curvature
    if constant.bounds.l2 is not None:
        gram = gram + jnp.diag(constant.bounds.l2)

    def solve_and_check(run: Run) -> Run:
        """Look at the residual; if it is too large, make steps until the violation is small."""
        centred, shift = centre(qp, run.state, constant.at_state(run.state), bias)
        dual = constant.at_state(centred)
        residual = qp.residual(dual, run.state.weight, y, stop, bias, tol)
        idle = count_idle(run.idle, residual)
        step_tol = residual.goal if stop == "kkt" else 0.1 * residual.kkt
        unfinished = residual.unsolved & (idle.looks < PATIENCE)
        done = run.steps.astype(y.dtype) / (100 * n)
        left = 100 * n * jnp.minimum(rounds - done, (2**31 - 1) // (100 * n) - done)
        limit = jnp.where(unfinished, jnp.minimum(left, max(STEPS, 2 * n)), 0).astype(jnp.int32)
        uncompensated = dual._replace(grad=centred.grad)
        sums = run.state.sum_error, centred.compensation
        end: Any = solve(gram, uncompensated, sums[0], step_tol, bias, limit, sums[1])
        ends = end.dual.grad, end.compensation, end.sum_error
        new = DualState(end.dual.coef, *ends, run.state.weight)
        is_due = (end.steps > 1) | ((end.steps == 1) & end.changed)
        steps = run.steps + end.steps
        return Run(shift_grad(new, shift), steps, idle, residual.value, is_due)

    infinite, yes = jnp.full((), jnp.inf, y.dtype), jnp.ones((), bool)
    begin = Run(state, jnp.zeros((), jnp.int32), never_idle(y.dtype), infinite, yes)
    end = lax.while_loop(lambda run: run.is_due, solve_and_check, begin)
    return end.state, end.residual, end.steps


class Run(NamedTuple):
    """A run of steps on pairs of all rows."""

    state: DualState  # at the last look
    steps: Array  # ()  int32, until then
    idle: Idle
    residual: Array  # ()  at the last look
    is_due: Array  # ()  bool, a look comes next, as the last steps have changed something
