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
    Dual,
    DualState,
    Idle,
    centre,
    count_idle,
    never_idle,
    shift_grad,
)
from .smo_step import no_steps, solve

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

    return map_sharing(matrix, from_matrix, from_matrix, lambda *_: 0)


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
    task = Pairs(qp, tol, max_steps, y, constant, stop, bias)

    def solve_and_check(run):
        """Look at the residual; if it is too large, make steps until the violation is small."""
        run = task.look(run)
        start = run.inner
        sums = start.dual, start.sum_error, run.tol, bias, run.limit, start.compensation
        return task.conclude(run._replace(inner=solve(gram, *sums)))._replace(**NO_STEPS)

    end = lax.while_loop(lambda run: run.is_due, solve_and_check, task.begin(state))
    return end.state, end.residual, end.steps


class Run(NamedTuple):
    """A run of steps on pairs of all rows, with the steps since the last look."""

    state: DualState  # at the last look
    steps: Array  # ()  int32, until then
    idle: Idle
    residual: Array  # ()  at the last look
    is_due: Array  # ()  bool, a look comes next
    inner: Any = None  # `Solved`
    tol: Any = None  # ()  violation at which the next look is due
    limit: Any = None  # ()  int32, steps after which it is
    shift: Any = None  # ()  what `centre` has subtracted


NO_STEPS: dict[str, Any] = dict.fromkeys(("inner", "tol", "limit", "shift"))


class Pairs(NamedTuple):
    """What is constant during a run."""

    qp: Any  # Problem, or `nu_qp.NuProblem`
    tol: Array
    max_steps: Array | int
    y: Array
    constant: Dual  # its bounds and curvature
    stop: str
    bias: str

    def begin(self, state: DualState) -> Run:
        """Before the first look."""
        dtype, zero = self.y.dtype, jnp.zeros((), jnp.int32)
        infinite, yes = jnp.full((), jnp.inf, dtype), jnp.ones((), bool)
        return Run(state, zero, never_idle(dtype), infinite, yes)

    def look(self, run: Run) -> Run:
        """The residual, and how far to go until the next look; not at all at the solution."""
        centred, shift = centre(self.qp, run.state, self.constant.at_state(run.state), self.bias)
        dual = self.constant.at_state(centred)
        residual = self.qp.residual(dual, run.state.weight, self.y, self.stop, self.bias, self.tol)
        idle = count_idle(run.idle, residual)
        step_tol = residual.goal if self.stop == "kkt" else 0.1 * residual.kkt
        unfinished = residual.unsolved & (idle.looks < PATIENCE)
        most = jnp.minimum(self.max_steps - run.steps, max(STEPS, 2 * self.y.shape[0]))
        limit = jnp.where(unfinished, most, 0).astype(jnp.int32)
        uncompensated = dual._replace(grad=centred.grad)
        inner = no_steps(uncompensated, run.state.sum_error, centred.compensation)
        no = jnp.zeros((), bool)
        return Run(run.state, run.steps, idle, residual.value, no, inner, step_tol, limit, shift)

    def conclude(self, run: Run) -> Run:
        """After the steps; a look is due if they have changed something."""
        end = run.inner
        state = run.state._replace(
            coef=end.dual.coef,
            grad=end.dual.grad,
            compensation=end.compensation,
            sum_error=end.sum_error,
        )
        progress = (end.steps > 1) | ((end.steps == 1) & end.changed)
        return run._replace(
            state=shift_grad(state, run.shift), steps=run.steps + end.steps, is_due=progress
        )
