"""Decomposition of a dual into blocks of rows, solved one at a time with a cache of kernel rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import number
from ..kernels import matvec
from ..numerics import count, times_count, top_k_index
from ..recipe import register
from ..types import Array, Count
from . import kernel_cache, whole_matrix
from .dual_qp import Dual, DualState, Residual, gain_down, gain_up
from .smo_step import solve


@register("DecompositionState")
class DecompositionState(NamedTuple):
    """The dual, and the last working set, half of which stays in the next one."""

    dual: DualState
    working: Array  # (q,)  int32, rows; the newest come first
    residual: Array  # ()   of these coefficients, as `stop` defines it; inf before the first update

    @property
    def ignores_padding(self) -> bool:
        """True: an update on rows of weight 0 changes no coefficient, which multiclass uses."""
        return True


class Task(NamedTuple):
    """What is constant during one update."""

    qp: Any  # Problem, or `nu_qp.NuProblem`
    tol: Array  # ()  the residual to stop at
    rounds: Array  # ()  int32, maximum number of blocks
    x: Array | None  # (n, d)  all rows; None with `matrix`
    y: Array  # (n,)
    dual: Dual  # its bounds and curvature
    stop: str
    bias: str
    matrix: Array | None = None  # (n, n)  the kernel matrix; None: rows are computed and cached

    def gram(self, working: Array) -> Array:
        """The kernel among the rows of a working set (q,), (q, q)."""
        if self.matrix is None:
            return self.qp.kernel.gram(self.x, working)
        return self.matrix.at[working[:, None], working[None, :]].get(mode="promise_in_bounds")

    def ensure_rows(
        self, rows: kernel_cache.Rows | None, working: Array, wanted: Array
    ) -> kernel_cache.Rows:
        """The cache with the wanted rows of a working set; all rows of `matrix`."""
        if self.matrix is not None:
            return kernel_cache.all_rows(self.matrix)
        assert rows is not None and self.x is not None
        return kernel_cache.ensure_rows(rows, self.qp.kernel, self.x, working, wanted)

    def residual(self, state: DualState) -> Residual:
        """The residual of these coefficients."""
        dual = self.dual.at_state(state)
        return self.qp.residual(dual, state.weight, self.y, self.stop, self.bias, self.tol)


class Progress(NamedTuple):
    """What one update carries from block to block."""

    state: DecompositionState
    residual: Residual  # of the state
    rows: kernel_cache.Rows | None  # the kernel rows in memory; None with `Task.matrix`
    changed: Array  # ()  bool, the last block changed a coefficient
    rounds: Array  # ()  int32, number of solved blocks
    settled: Array  # ()  bool, last block: at most q/16 rows new in memory, over q/2 rows free


def solve_block(task: Task, size: int, progress: Progress) -> Progress:
    """Select a working set W of `size` rows, solve its dual, and update the derivative.

    coef_W' = argmax of D over coef_W;   grad -= K_.W (coef_W' - coef_W)
    """
    l2 = task.dual.bounds.l2
    state, dual = progress.state.dual, task.dual.at_state(progress.state.dual)
    working = select_working_set(dual, progress.state.working[: size // 2], size)
    block = jax.tree.map(lambda a: a.at[..., working].get(mode="promise_in_bounds"), dual)
    gram = task.gram(working)
    gram = gram if l2 is None else gram + jnp.diag(block.bounds.l2)
    block_tol = jnp.maximum(
        0.1 * progress.residual.kkt, 0.3 * task.tol if task.stop == "kkt" else 0
    )
    solved = solve(gram, block, state.sum_error, block_tol, task.bias, 100 * size)
    # The new coef_W, and grad -= K_.W times its change.
    coef = solved.dual.coef
    parts_change = coef - block.coef
    change = parts_change if coef.ndim == 1 else jnp.sum(parts_change, axis=0)
    cache = task.ensure_rows(progress.rows, working, change != 0)
    grad, compensation = kernel_cache.subtract(
        state.grad, state.compensation, cache, working, change
    )
    if l2 is not None:
        grad = grad.at[working].add(-block.bounds.l2 * change, mode="promise_in_bounds")
    state = state._replace(
        coef=state.coef.at[..., working].set(coef, mode="promise_in_bounds"),
        grad=grad,
        compensation=compensation,
        sum_error=solved.sum_error,
    )
    # Should the next block be larger?
    n_free = count((coef > block.bounds.low) & (coef < block.bounds.high))
    settled = n_free > size // 2
    if progress.rows is not None:
        settled &= cache.n_computed - progress.rows.n_computed <= size // 16
    residual = task.residual(state)
    new = DecompositionState(state, working, residual.value)
    rows = None if progress.rows is None else cache
    return Progress(new, residual, rows, jnp.any(parts_change != 0), progress.rounds + 1, settled)


def can_continue(task: Task, row_limit: int, progress: Progress) -> Array:
    """Whether another block may improve the coefficients, and no limit is reached, () bool."""
    more = progress.residual.unsolved & progress.changed & (progress.rounds < task.rounds)
    return more if progress.rows is None else more & (progress.rows.n_computed < row_limit)


def solve_blocks_while(task: Task, condition: Callable, size: int, progress: Progress) -> Progress:
    """Solve blocks of `size` rows as long as the condition of the progress holds."""
    return lax.while_loop(condition, functools.partial(solve_block, task, size), progress)


def finish_blocks(
    task: Task, row_limit: int, q: int, large_block: int, progress: Progress
) -> Progress:
    """Solve blocks of q rows until one has settled, then large blocks, to the end."""
    unfinished = functools.partial(can_continue, task, row_limit)
    if large_block == q:
        return solve_blocks_while(task, unfinished, q, progress)
    unsettled = lambda progress: unfinished(progress) & ~progress.settled
    progress = solve_blocks_while(task, unsettled, q, progress)
    # Lengthen the working set for the next loop; its first half stays in the first large block.
    working, dual = progress.state.working, task.dual.at_state(progress.state.dual)
    added = select_working_set(dual, working, large_block)[: large_block - q]
    state = progress.state._replace(working=jnp.concatenate([working, added]))
    return solve_blocks_while(task, unfinished, large_block, progress._replace(state=state))


@functools.cache
def make_solver(stop: str, bias: str, memory: int | None) -> Callable:
    """The function that solves blocks until the residual is at most `tol`.

    Args:
        stop: as of `decomposition`.
        bias: as of `decomposition`.
        memory: as of `decomposition`.

    Returns:
        A function qp, tol, rounds, state, x, y -> state, number of computed kernel rows. Under
        `vmap` runs are sequential.
    """

    @jax.custom_batching.sequential_vmap
    def solve_blocks(qp, tol, rounds, state, x, y):
        n, q = y.shape[0], state.working.shape[0]
        dual, start_rows = qp.feasible_start(state.dual, functools.partial(matvec, qp.kernel, x, x))
        state = state._replace(dual=dual)
        slots = kernel_cache.num_slots(x, 2**31 if memory is None else memory, 2 * q)
        small_cache = min(kernel_cache.num_slots(x, 2**28, n // 8 + 2 * q), slots)
        large_block = max(q, min(4 * q, n // 4 * 4))
        # Large blocks need a cache of twice their rows, or of all rows.
        large_block = large_block if slots >= min(2 * large_block, n + kernel_cache.CHUNK) else q
        # one more block then stays below 2^31 kernel evaluations
        row_limit = max(1, 2**31 // n - large_block)
        task = Task(qp, tol, rounds, x, y, qp.dual(state.dual, x, y), stop, bias)
        unfinished = functools.partial(can_continue, task, row_limit)
        solve_while = functools.partial(solve_blocks_while, task)
        finish = functools.partial(finish_blocks, task, row_limit, q, large_block)

        def result(progress):
            """The state, whose working set has q rows again, and the number of kernel rows."""
            working = progress.state.working[:q]
            return progress.state._replace(working=working), progress.rows.n_computed + start_rows

        def start_with_small_cache(progress):
            """Start with a small cache, and allocate the full one once it proves insufficient.

            Most problems need few kernel rows. If blocks settle after 64 or more of them, the full
            cache is allocated too, for the large blocks that follow.
            """
            if small_cache == slots:
                return result(finish(progress))
            suffices = lambda progress: (
                ~kernel_cache.full(progress.rows, q) & ~(progress.settled & (progress.rounds >= 64))
            )
            both = lambda progress: unfinished(progress) & suffices(progress)
            progress = solve_while(both, q, progress)
            grow = lambda: progress._replace(rows=kernel_cache.grow(progress.rows, slots))
            return lax.cond(
                unfinished(progress), lambda: result(finish(grow())), lambda: result(progress)
            )

        residual = task.residual(state.dual)
        state = state._replace(residual=residual.value)
        true, zero = jnp.ones((), bool), jnp.zeros((), jnp.int32)
        start = lambda: Progress(
            state,
            residual,
            kernel_cache.empty(x, small_cache),
            changed=true,
            rounds=zero,
            settled=~true,
        )
        return lax.cond(
            residual.unsolved,
            lambda: start_with_small_cache(start()),
            lambda: (state, zero + start_rows),
        )

    return solve_blocks


def check_options(working_set: int | None, memory: int | None, rounds: float) -> None:
    """Check three arguments of `decomposition`.

    Raises:
        ValueError: one of the arguments is not what `decomposition` takes.
    """
    if working_set is not None and (
        not isinstance(working_set, int) or working_set < 4 or working_set % 4
    ):
        raise ValueError(f"working_set must be a multiple of 4, got {working_set!r}")
    if memory is not None and (not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory must be a whole number of bytes, got {memory!r}: write int(4e9)")
    known = number("rounds", rounds)
    if known is not None and not (known >= 1 and known % 1 == 0):
        raise ValueError(f"rounds must be a whole number of at least 1, got {known:g}")


def init_working_set(n: int, working_set: int | None) -> Array:
    """The working set (q,) before the first block."""
    return jnp.arange(min(working_set or 512, n), dtype=jnp.int32)


def make_update(
    stop: str, bias: str, working_set: int | None, memory: int | None, rounds: float
) -> Callable:
    """The function of one update: steps on the whole matrix if the rows are few, else blocks.

    Args:
        stop: as of `decomposition`.
        bias: "free", "none", or "parts" for the problems of `nu_qp`.
        working_set: as of `decomposition`.
        memory: as of `decomposition`.
        rounds: as of `decomposition`.

    Returns:
        A function qp, tol, state, x, y -> state, evals. State and rows are without derivatives.
    """
    solve_whole = whole_matrix.make_solver(stop, bias)
    solve_blocks = make_solver(stop, bias, memory)
    limit = 2**31 if memory is None else memory

    def update(
        qp: Any, tol: Array, state: DecompositionState, x: Array, y: Array
    ) -> tuple[DecompositionState, Array | Count]:
        n = y.shape[0]
        most = jnp.minimum(jnp.asarray(rounds), 2.0**30).astype(jnp.int32)
        if working_set is None and whole_matrix.fits(x, limit):
            per_round = 100 * n  # as many as a block of n rows may take
            steps = jnp.minimum(most, (2**31 - 1) // per_round) * per_round
            own = qp, tol, steps, state.dual, y
            dual, residual, _ = solve_whole((qp.kernel, x), own)
            evals = times_count(jnp.asarray(n, jnp.int32), n, n)
            return state._replace(dual=dual, residual=residual), evals
        new, rows_computed = solve_blocks(qp, tol, most, state, x, y)
        # `row_limit` and one more block; at least one block; the rows of a feasible start
        max_rows = max(2**31 // n - 1, 4 * state.working.shape[0]) + (n if bias == "parts" else 0)
        return new, times_count(rows_computed, n, max_rows)

    return update


def select_working_set(dual: Dual, retained: Array, size: int) -> Array:
    """A working set: the retained rows and those of extreme gain, without repetition.

    Extreme are the largest gain_up and the smallest gain_down, of each part in equal numbers.

    Args:
        dual: of n coefficients.
        retained: (k,) rows that stay in the working set.
        size: of the working set; if it is n, all rows in order.

    Reference: Z. Wen et al., ThunderSVM, JMLR 19, 2018, section 2; T. Joachims, Making large-scale
        SVM learning practical, 1999, section 3, for the two lists.
    """
    n, k = dual.coef.shape[0], retained.shape[0]
    if size == n:
        return jnp.arange(n, dtype=jnp.int32)
    # the score of rows at a bound in place of -inf: they rank before rows already selected
    lowest = jnp.finfo(dual.grad.dtype).min

    def top_unselected(score, selected, number):
        score = jnp.maximum(score, lowest).at[selected].set(-jnp.inf, mode="promise_in_bounds")
        return top_k_index(score, number)

    up, down = gain_up(dual), -gain_down(dual)
    lists = [up, down] if up.ndim == 1 else [*up, *down]
    selected = retained
    for i, score in enumerate(lists):
        number = (size - selected.shape[0]) // (len(lists) - i)
        selected = jnp.concatenate([selected, top_unselected(score, selected, number)])
    return jnp.concatenate([selected[k:], retained])
