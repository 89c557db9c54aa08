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

from ..numerics import accum_dtype, dot, index_row, map_sharing
from ..types import Array
from .dual_qp import (
    PATIENCE,
    Dual,
    DualState,
    Idle,
    add_l2,
    centre,
    count_idle,
    never_idle,
    shift_grad,
)
from .smo_step import make_step, no_steps, solve

STEPS = 2000  # least number of steps between two looks at the residual
LANES = 4096  # coefficients of the problems that a CPU solves at once: a cache holds them
LANE_STEPS = 16  # steps after which problems that are solved make room for others
LANE_ROWS = 512  # of a problem; those of more rows are solved one after the other
LANE_ROWS_OF_CPU = 128
LANE_MEMORY = 2**28  # bytes of the kernel matrices of problems that are solved at once
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
    runs of up to 128 rows are made at once (`solve_many`), on other devices than a CPU of up to
    512; others are sequential. They share the matrix where they have the same rows and kernel.

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

    def at_once(matrices, own, is_batched):
        gram, diag = matrices
        return solve_many(gram, diag, own, is_batched, stop=stop, bias=bias)

    return map_sharing(matrix, from_matrix, at_once, _most_at_once)


def _most_at_once(shared: Any, own: Any) -> int:
    """The number of problems of so many rows that are solved at once; 0: none."""
    n, itemsize = own[-1].shape[-1], own[-1].dtype.itemsize
    limit = LANE_ROWS_OF_CPU if jax.default_backend() == "cpu" else LANE_ROWS
    return LANE_MEMORY // (n * n * itemsize) if n <= limit else 0


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


@jax.named_scope("solve_many")
def solve_many(
    gram: Array, diag: Array, own: Any, is_batched: tuple, *, stop: str, bias: str
) -> tuple[DualState, Array, Array]:
    """As `solve_matrix` for many problems: a step is made for each of a number of them at once.

    A problem that is solved makes room for the next one, so that the slowest ones do not hold up
    all others.

    Args:
        gram: (g, n, n) kernel matrices, or (n, n) for all problems.
        diag: (g, n) or (n,).
        own: qp, tol, max_steps, state and y, as of `solve_matrix`.
        is_batched: whether the matrices, and each leaf of `own`, have a leading axis (g,).
        stop: as of `solve_matrix`.
        bias: as of `solve_matrix`.
    """
    of_matrix, flags = is_batched
    leaves, tree = jax.tree.flatten(own)
    batched = [a for a, flag in zip(leaves, flags, strict=True) if flag]
    size = (gram if of_matrix else batched[0]).shape[0]
    n = own[-1].shape[-1]
    width = min(size, max(1, LANES // n) if jax.default_backend() == "cpu" else size)
    at_problem = lambda a, p: lax.dynamic_index_in_dim(a, p, 0, keepdims=False)

    def task_of(p):
        parts = [at_problem(a, p) if flag else a for a, flag in zip(leaves, flags, strict=True)]
        qp, tol, max_steps, state, y = jax.tree.unflatten(tree, parts)
        values = at_problem(diag, p) if of_matrix else diag
        return Pairs(qp, tol, max_steps, y, qp.dual_from_diag(state, values, y), stop, bias), state

    def begin(p):
        task, state = task_of(p)
        product = lambda coef: dot(at_problem(gram, p) if of_matrix else gram, coef)
        return task.look(task.begin(task.qp.feasible_start(state, product)[0]))

    def advance(p, run):
        """A look, if one is due, and steps until the next one, but not more than `LANE_STEPS`."""
        task, _ = task_of(jnp.minimum(p, size - 1))

        def row(i):
            if not of_matrix:
                return add_l2(index_row(gram, i), task.constant, i)
            block = lax.dynamic_slice(gram, (p, i, jnp.zeros_like(i)), (1, 1, n))
            return add_l2(block[0, 0], task.constant, i)

        looked = task.look(run)
        run = jax.tree.map(lambda new, old: jnp.where(run.is_due, new, old), looked, run)
        # an empty lane makes no steps
        limit = jnp.where(p < size, jnp.minimum(run.limit, run.inner.steps + LANE_STEPS), 0)
        inner = lax.while_loop(
            lambda at: at.goes_on(run.tol, limit), lambda at: make_step(row, at, bias), run.inner
        )
        run = run._replace(inner=inner)
        has_ended = ~inner.goes_on(run.tol, run.limit)
        concluded = task.conclude(run)
        run = jax.tree.map(lambda new, old: jnp.where(has_ended, new, old), concluded, run)
        return run, has_ended & ~run.is_due

    starts = jax.vmap(begin)(jnp.arange(size, dtype=jnp.int32))
    result_of = lambda run: (run.state, run.residual, run.steps)

    def round_(carry):
        place, runs, following, results = carry
        runs, is_solved = jax.vmap(advance)(place, runs)
        is_solved &= place < size  # others are empty
        to = jnp.where(is_solved, place, size)
        store = lambda a, new: a.at[to].set(new, mode="drop")
        results = jax.tree.map(store, results, result_of(runs))
        order = following + jnp.cumsum(is_solved, dtype=jnp.int32) - 1
        place = jnp.where(is_solved, order, place)
        fresh = jax.tree.map(lambda a: a[jnp.minimum(place, size - 1)], starts)
        choose = lambda new, old: jnp.where(is_solved.reshape(-1, *[1] * (new.ndim - 1)), new, old)
        runs = jax.tree.map(choose, fresh, runs)
        return place, runs, following + jnp.sum(is_solved, dtype=jnp.int32), results

    first = jnp.arange(width, dtype=jnp.int32)
    runs = jax.tree.map(lambda a: a[:width], starts)
    carry = first, runs, jnp.full((), width, jnp.int32), result_of(starts)
    return lax.while_loop(lambda carry: jnp.any(carry[0] < size), round_, carry)[-1]
