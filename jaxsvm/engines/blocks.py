"""Decomposition of a dual into blocks of rows, solved one at a time with a cache of kernel rows.

`update` is one update. It solves the whole kernel matrix where rows are few
(`whole_matrix`); else `make_solver` repeats `working_set_step`: `select_working_set`, then
`smo_step.solve` or, for sets of over 512 rows, `solve_by_blocks`, then `kernel_cache.subtract`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import check_whole
from ..kernels import holds_precomputed, matvec
from ..numerics import dot, fold, top_k_index, two_sum
from ..types import Array, Batch, state_class
from . import kernel_cache, whole_matrix
from .dual_qp import (
    PATIENCE,
    Dual,
    DualState,
    Idle,
    Residual,
    centre,
    count_idle,
    gain_down,
    gain_up,
    never_idle,
    shift_grad,
)
from .smo_step import solve

BLOCK = 512  # rows that steps on pairs are made on
MAX_SET = 8 * BLOCK  # rows of the largest working set that is chosen without an argument
# of writes at indices of [0, n), which then are no kernel of their own
KNOWN: Any = {"mode": "promise_in_bounds", "wrap_negative_indices": False}
MEMORY = 2**29  # bytes of cached kernel rows, without an argument


@state_class("DecompositionState", method="decomposition", ignores_padding=True)
class DecompositionState(NamedTuple):
    """The dual, and the last working set, half of which stays in the next one."""

    dual: DualState
    working: Array  # (q,)  int32, rows; the newest, or by blocks the free ones, come first
    residual: Array  # ()   of these coefficients, as `stop` defines it; inf before the first update


class Task(NamedTuple):
    """What is constant during one update."""

    qp: Any  # Problem, or `nu_qp.NuProblem`
    tol: Array  # ()  the residual to stop at
    x: Array  # (n, d)  all rows
    y: Array  # (n,)
    dual: Dual  # its bounds and curvature
    stop: str
    bias: str

    def residual(self, state: DualState) -> Residual:
        """The residual of these coefficients."""
        dual = self.dual.at_state(state)
        return self.qp.residual(dual, state.weight, self.y, self.stop, self.bias, self.tol)


class Progress(NamedTuple):
    """What one update carries from working set to working set."""

    state: DecompositionState
    residual: Residual  # of the state
    rows: kernel_cache.Rows  # the kernel rows in memory
    idle: Idle
    rounds: Array  # ()  int32, number of solved working sets


@jax.named_scope("select_working_set")
def select_working_set(dual: Dual, retained: Array, size: int) -> Array:
    """A working set: the retained rows and those of extreme gain, without repetition.

    Extreme are the largest gain_up and the smallest gain_down, of each part in equal numbers.

    Args:
        dual: of n coefficients.
        retained: (k,) rows that stay, the first of them where one row of each list needs the room.
        size: of the working set; if it is n, all rows in order.

    Reference: Z. Wen et al., ThunderSVM, JMLR 19, 2018, section 2; T. Joachims, Making large-scale
        SVM learning practical, 1999, section 3, for the two lists.
    """
    n = dual.grad.shape[0]
    if size == n:
        return jnp.arange(n, dtype=jnp.int32)
    # the score of rows at a bound in place of -inf: they rank before rows already selected
    lowest = jnp.finfo(dual.grad.dtype).min

    up, down = gain_up(dual), -gain_down(dual)
    lists = [up, down] if up.ndim == 1 else [*up, *down]
    selected = retained = retained[: size - len(lists)]
    for i, score in enumerate(lists):
        number = (size - selected.shape[0]) // (len(lists) - i)
        score = jnp.maximum(score, lowest).at[selected].set(-jnp.inf, **KNOWN)
        selected = jnp.concatenate([selected, top_k_index(score, number)])
    # the barrier keeps XLA from joining the rows once for each use
    return lax.optimization_barrier(jnp.concatenate([selected[retained.shape[0] :], retained]))


def working_set_step(task: Task, by_blocks: bool, progress: Progress) -> Progress:
    """Select a working set W, solve its dual, and update the derivative.

    coef_W' = argmax of D over coef_W;   grad -= Q_.W (coef_W' - coef_W),   Q = K + diag(l2)
    """
    l2 = task.dual.bounds.l2
    state, dual = progress.state.dual, task.dual.at_state(progress.state.dual)
    size = progress.state.working.shape[0]
    working = select_working_set(dual, progress.state.working[: size // 2], size)
    at_working = lambda a: a.at[..., working].get(mode="promise_in_bounds")
    own = jax.tree.map(at_working, dual)
    kernel = task.qp.kernel
    gram = kernel.gram(task.x, working)
    gram = gram if l2 is None else gram + jnp.diag(own.bounds.l2)
    tol = 0.3 * jnp.maximum(progress.residual.kkt / 3, task.tol if task.stop == "kkt" else 0)
    if by_blocks:
        rows = at_working(state.weight), at_working(task.y)
        coef, sum_error = solve_by_blocks(task, gram, own, rows, progress, tol)
    else:
        solved = solve(gram, own, state.sum_error, tol, task.bias, 100 * size)
        coef, sum_error = solved.dual.coef, solved.sum_error
    # The new coef_W, and grad -= K_.W times its change.
    parts_change = coef - own.coef
    change = parts_change if coef.ndim == 1 else jnp.sum(parts_change, axis=0)
    sums = state.grad, state.compensation, progress.rows
    grad, compensation, cache = kernel_cache.subtract(sums, kernel, task.x, working, change)
    if l2 is not None:
        grad = grad.at[working].add(-own.bounds.l2 * change, mode="promise_in_bounds")
    new_coef = state.coef.at[..., working].set(coef, **KNOWN)
    state = DualState(new_coef, grad, compensation, sum_error, state.weight)
    if by_blocks:  # free rows first: they change in the next working set too
        free = (coef > own.bounds.low) & (coef < own.bounds.high)
        free = free if free.ndim == 1 else jnp.any(free, axis=0)
        working = working[top_k_index(free.astype(change.dtype), size)]
    residual = task.residual(state)
    idle = count_idle(progress.idle, residual, any_change(parts_change))
    new = DecompositionState(state, working, residual.value)
    return Progress(new, residual, cache, idle, progress.rounds + 1)


def update(
    qp: Any,
    tol: Array,
    state: DecompositionState,
    x: Array,
    y: Array,
    stop: str,
    bias: str,
    limits: tuple[int | None, int | None, float],
) -> tuple[DecompositionState, Array]:
    """The state after an update, and its kernel evaluations.

    It makes steps on the whole matrix if the rows are few, else blocks. State and rows are without
    derivatives.

    Args:
        qp: `Problem`, or `nu_qp.NuProblem`.
        tol: () the residual to stop at.
        state: before the update.
        x: (n, d) all rows.
        y: (n,) targets.
        stop: as of `whole_matrix.make_solver`.
        bias: "free", "none", or "parts" for the problems of `nu_qp`.
        limits: working_set, memory and rounds, as of `decomposition`.
    """
    n, (working_set, memory, rounds) = y.shape[0], limits
    is_given = holds_precomputed(qp.kernel)
    most_rows = whole_matrix.MAX_GIVEN if is_given else whole_matrix.MAX_ROWS
    limit = 2**31 if memory is None else memory
    if working_set is None and whole_matrix.fits(x, limit, most_rows):
        own = qp, tol, jnp.asarray(rounds, y.dtype), state.dual, y
        dual, residual, _ = whole_matrix.make_solver(stop, bias)((qp.kernel, x), own)
        evals = jnp.asarray(float(n * n), y.dtype)
        return state._replace(dual=dual, residual=residual), evals
    most = jnp.minimum(jnp.asarray(rounds), 2.0**30).astype(jnp.int32)
    cache_memory = MEMORY if memory is None else memory
    solve_sets = make_solver(stop, bias, cache_memory, by_blocks=working_set is None)
    new, rows_computed = solve_sets(qp, tol, most, state, x, y)
    return new, rows_computed.astype(y.dtype) * n


@functools.cache
def make_solver(stop: str, bias: str, memory: int, by_blocks: bool) -> Callable:
    """The function that solves working sets until the residual is at most `tol`.

    Args:
        stop: as of `decomposition`.
        bias: as of `decomposition`.
        memory: bytes of the cache of kernel rows.
        by_blocks: whether working sets of more than `BLOCK` rows are solved by blocks.

    Returns:
        A function qp, tol, rounds, state, x, y -> state, number of computed kernel rows. Under
        `vmap` runs are sequential.
    """

    @jax.custom_batching.sequential_vmap
    def solve_sets(qp, tol, rounds, state, x, y):
        n, size = y.shape[0], state.working.shape[0]
        dual, start_rows = qp.feasible_start(state.dual, functools.partial(matvec, qp.kernel, x, x))
        state = state._replace(dual=dual)
        # 2^31 evaluations, or 2^33 by blocks; one more working set may follow
        most_evals = 2**33 if by_blocks and size > BLOCK else 2**31
        row_limit = max((most_evals - 1) // n, size + 1) - size
        task = Task(qp, tol, x, y, qp.dual(state.dual, x, y), stop, bias)

        def can_continue(at):
            """Whether another working set may improve the coefficients, and no limit is reached."""
            unfinished = (at.idle.looks < PATIENCE) & (at.rounds < rounds)
            return at.residual.unsolved & unfinished & (at.rows.n_computed < row_limit)

        def run(state, residual):
            rows = kernel_cache.empty(x, kernel_cache.num_slots(x, memory))
            dual, shift = centre(qp, state.dual, task.dual.at_state(state.dual), bias)
            begin = state._replace(dual=dual), residual, rows, never_idle(y.dtype)
            step = functools.partial(working_set_step, task, by_blocks and size > BLOCK)
            end = lax.while_loop(can_continue, step, Progress(*begin, jnp.zeros((), jnp.int32)))
            dual = shift_grad(end.state.dual, shift)
            return end.state._replace(dual=dual), end.rows.n_computed + start_rows

        residual = task.residual(state.dual)
        state = state._replace(residual=residual.value)
        # At the solution no cache is allocated.
        return lax.cond(
            residual.unsolved,
            lambda: run(state, residual),
            lambda: (state, jnp.zeros((), jnp.int32) + start_rows),
        )

    return solve_sets


def any_change(change: Array) -> Array:
    """Whether any coefficient changed, ()."""
    return fold((), (jnp.abs(change).reshape(-1),))[0] > 0


class Blocks(NamedTuple):
    """What the solution of a working set by blocks carries from block to block."""

    dual: Dual  # of the working set
    compensation: Array  # (m,)  rounding errors of its derivative, still to be added
    sum_error: Array
    block: Array  # (BLOCK,)  int32, places in the working set
    residual: Residual  # in the working set
    idle: Idle
    rounds: Array  # ()  int32, number of solved blocks


@jax.named_scope("solve_by_blocks")
def solve_by_blocks(
    task: Task, gram: Array, start: Dual, rows: tuple, progress: Progress, tol: Array
) -> tuple[Array, Array]:
    """The solution on a working set of m rows by blocks of them, with its kernel matrix.

    Args:
        task: the update.
        gram: (m, m) kernel, with l2 added on the diagonal.
        start: the dual of the working set.
        rows: weights and targets of its rows, (m,) each.
        progress: of all rows; its violation is that of the set, too, which holds the rows of it.
        tol: () largest violation in the working set at the end.

    Returns:
        The coefficients, (m,) or (k, m), and sum_error.
    """

    def should_continue(at: Blocks) -> Array:
        return (at.residual.kkt > tol) & (at.idle.looks < PATIENCE) & (at.rounds < 2000)

    def solve_next(at: Blocks) -> Blocks:
        dual = at.dual._replace(grad=at.dual.grad + at.compensation)
        block = select_working_set(dual, at.block[: BLOCK // 2], BLOCK)
        own = jax.tree.map(lambda a: a.at[..., block].get(mode="promise_in_bounds"), dual)
        own_rows = gram.at[block].get(mode="promise_in_bounds")
        block_tol = 0.3 * jnp.maximum(at.residual.kkt / 3, tol)
        own_gram = own_rows.at[:, block].get(mode="promise_in_bounds")
        solved = solve(own_gram, own, at.sum_error, block_tol, task.bias, 100 * BLOCK)
        change = solved.dual.coef - own.coef
        total_change = change if change.ndim == 1 else jnp.sum(change, axis=0)
        grad, compensation = two_sum(at.dual.grad, at.compensation, -dot(total_change, own_rows))
        coef = dual.coef.at[..., block].set(solved.dual.coef, **KNOWN)
        dual = dual._replace(coef=coef, grad=grad)
        whole = dual._replace(grad=grad + compensation)
        residual = task.qp.residual(whole, *rows, "kkt", task.bias, task.tol)
        idle = count_idle(at.idle, residual, any_change(change))
        return Blocks(dual, compensation, solved.sum_error, block, residual, idle, at.rounds + 1)

    zero = jnp.zeros((), jnp.int32)
    block = lax.iota(jnp.int32, BLOCK)
    none, idle = jnp.zeros_like(start.grad), never_idle(start.grad.dtype)
    sum_error, first = progress.state.dual.sum_error, progress.residual
    begin = Blocks(start, none, sum_error, block, first, idle, zero)
    end = lax.while_loop(should_continue, solve_next, begin)
    return end.dual.coef, end.sum_error


def init_working_set(data: Batch, working_set: int | None) -> Array:
    """The first working set (q,): an eighth of the rows, or less where columns are many."""
    n, columns = data.x.shape
    if working_set is None:
        working_set = max(2 * BLOCK, min(MAX_SET, n // 32 * 4, 2**19 // columns // 4 * 4))
    return jnp.arange(min(working_set, n), dtype=jnp.int32)


def check_options(working_set: int | None, rounds: float) -> None:
    """Raise ValueError for a working set that is no multiple of 4, or rounds that are not whole."""
    if working_set is not None and (working_set < 4 or working_set % 4):
        raise ValueError(f"working_set must be a multiple of 4, got {working_set!r}")
    check_whole("rounds", rounds)
