"""Block decomposition of the dual of the kernel SVM, after SVM-light and ThunderSVM."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import integer
from ..engines import kernel_cache
from ..engines.dual_qp import (
    Dual,
    DualState,
    build_model,
    gain_down,
    gain_up,
    init_state,
    kernel_check,
    make_qp,
    relative_gap,
    step_info,
    stop_gradients,
    violation,
)
from ..engines.smo_step import solve
from ..kernels import Kernel
from ..losses import hinge
from ..numerics import count, norm, times_count, top_k_index
from ..recipe import cast, check_choice, check_positive, register, solver, unwrap_static
from ..samplers import whole
from ..types import Array, Loss, Solver


@register("DecompositionState")
class DecompositionState(NamedTuple):
    """The dual, and the last working set, half of which stays in the next one."""

    dual: DualState
    working: Array  # (q,)  int32, rows; the newest come first
    residual: Array  # ()   of these coefficients, as `stop` defines it; inf before the first update


class Progress(NamedTuple):
    """What one update carries from block to block."""

    state: DecompositionState
    kkt: Array  # ()  violation, also where the residual is the gap
    rows: kernel_cache.Rows  # the kernel rows in memory
    changed: Array  # ()  bool, the last block changed a coefficient
    rounds: Array  # ()  int32, number of solved blocks
    settled: Array  # ()  bool, last block: at most q/16 rows new in memory, over q/2 rows free


@solver
def decomposition(
    C: float,
    kernel: Kernel,
    *,
    loss: Loss = hinge,
    bias: str = "free",
    tol: float | None = None,
    stop: str = "kkt",
    working_set: int = 512,
    memory: int | None = None,
    rounds: int = 2000,
    start: Array | None = None,
) -> Solver:
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) by blocks.

    The solution is exact; one block of rows is solved at a time.

        W = the rows that violate the optimality conditions most, and half of the last W
        coef_W' = argmax of D over coef_W, by steps on pairs, to a tenth of the violation
        grad -= K_.W (coef_W' - coef_W)

    K_WW is computed by one product. K_.W has the kernel rows of changed coefficients, which a cache
    keeps.

    D is the dual of `engines.dual_qp`, and grad its derivative without the term of l1. One update
    solves blocks until the violation is at most `tol`, so that a run needs one update as a rule.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        tol: violation to stop at, > 0; None: 1e-3, as LIBSVM; `fit(tol=)` overrides it.
        stop: the definition of the residual: "kkt", LIBSVM's violation max gain_up - min gain_down,
            in units of y; or "gap", the duality gap relative to the primal.
        working_set: q, rows of a block, a multiple of 4. Blocks of 4 q rows follow when the last
            one needed hardly any new kernel rows and more than half of its coefficients were free.
        memory: bytes of the cache of kernel rows, an integer; None: 2 GiB; 0: 2 q rows. The cache
            has at least 2 q rows. If it has room for all n, no row is computed twice.
        rounds: maximum number of blocks of one update; an update also ends after 2^31 kernel
            evaluations. The next update starts with an empty cache. `fit` evaluates, saves and
            reacts to Ctrl-C between updates only.
        start: (n,) initial alpha, such as that of another C, best multiplied by the ratio of the
            two. It is clipped to the bounds. With a free bias, its side of larger sum is scaled
            down. For losses of real targets: the signed coefficients.

    Returns:
        A solver on all rows; model `Expansion` with its dual variables, so that its certificate is
        exact. The model has the derivatives of the exact solution in C, the kernel's parameters and
        the rows (`implicit.solution`). They are nan if more than 2,048 coefficients are free. Under
        `vmap` runs are sequential. `evals` counts the computed kernel rows, not the kernel among
        the rows of a block.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, working_set not a
            multiple of 4, memory not an integer, start of another length than the data; from `fit`
            for a precomputed matrix that is not symmetric.

    Differs from the papers: second-order pairs within the block; compensated sums; a larger block
    near the end.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> run = jaxsvm.fit(decomposition(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0),
        ...     steps=1)
        >>> run.model.coef.tolist()
        [0.5, -0.5, 0.0]

    Reference: T. Joachims, Making large-scale SVM learning practical, 1999; Z. Wen, J. Shi, Q. Li,
        B. He, J. Chen, ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 19, 2018, section 2;
        R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order information, JMLR
        6, 2005.
    """
    qp = make_qp(C, kernel, loss, bias, start)
    tol = 1e-3 if tol is None else tol
    check_positive(tol=tol)
    check_choice("stop", stop, ("kkt", "gap"))
    if not isinstance(working_set, int) or working_set < 4 or working_set % 4:
        raise ValueError(f"working_set must be a multiple of 4, got {working_set!r}")
    if memory is not None and (not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory must be a whole number of bytes, got {memory!r}: write int(4e9)")
    integer("rounds", rounds, 1)

    def init(key, data):
        dual = init_state(qp, bias, data, start)
        working = jnp.arange(min(working_set, data.y.shape[0]), dtype=jnp.int32)
        return DecompositionState(dual, working, jnp.full((), jnp.inf, dual.coef.dtype))

    @jax.custom_batching.sequential_vmap
    def solve_blocks(qp, tol, state, x, y):
        """Solve blocks until the residual is at most `tol`.

        Returns the state and the number of computed kernel rows.
        """
        n, q = y.shape[0], state.working.shape[0]
        slots = kernel_cache.num_slots(x, 2**31 if memory is None else memory, 2 * q)
        small_cache, large_block = (
            kernel_cache.num_slots(x, 2**28, n // 8 + 2 * q),
            max(q, min(4 * q, n // 4 * 4)),
        )
        # Large blocks need a cache of twice their rows, or of all rows.
        large_block = large_block if slots >= min(2 * large_block, n + kernel_cache.CHUNK) else q
        # the bounds and the diagonal are the same at every state
        dual_at = qp.dual(state.dual, x, y).at_state

        def with_residual(state):
            """The state with its residual, and the violation."""
            dual = dual_at(state.dual)
            kkt = violation(dual, bias)
            if stop == "kkt":
                return state._replace(residual=kkt), kkt
            return state._replace(
                residual=relative_gap(
                    dual, y, qp.C * state.dual.weight, unwrap_static(qp.loss), bias
                )
            ), kkt

        def solve_block(size, progress):
            """Select a working set, solve its dual, and update the derivative.

            The working set has `size` rows; the derivative is that of all rows.
            """
            state, dual = progress.state.dual, dual_at(progress.state.dual)
            working = select_working_set(dual, progress.state.working[: size // 2], size)
            block = jax.tree.map(lambda a: a.at[working].get(mode="promise_in_bounds"), dual)
            l2 = block.bounds.l2
            gram = qp.kernel.gram(x, working) + (0 if l2 is None else jnp.diag(l2))
            block_tol = jnp.maximum(0.1 * progress.kkt, 0.3 * tol if stop == "kkt" else 0)
            solved, sum_error = solve(gram, block, state.sum_error, block_tol, bias, 100 * size)
            # The new coef_W, and grad -= K_.W times its change.
            change = solved.coef - block.coef
            cache = kernel_cache.ensure_rows(progress.rows, qp.kernel, x, working, change != 0)
            grad, compensation = kernel_cache.subtract(
                state.grad, state.compensation, cache, working, change
            )
            grad = (
                grad if l2 is None else grad.at[working].add(-l2 * change, mode="promise_in_bounds")
            )
            coef = state.coef.at[working].set(solved.coef, mode="promise_in_bounds")
            state = state._replace(
                coef=coef, grad=grad, compensation=compensation, sum_error=sum_error
            )
            # Should the next block be larger?
            n_free = count((solved.coef > block.bounds.low) & (solved.coef < block.bounds.high))
            settled = (cache.n_computed - progress.rows.n_computed <= size // 16) & (
                n_free > size // 2
            )
            new_state, kkt = with_residual(progress.state._replace(dual=state, working=working))
            return Progress(
                new_state, kkt, cache, jnp.any(change != 0), progress.rounds + 1, settled
            )

        def target(state):
            """The residual to stop at: `tol` less what rounding of the kernel values may hide.

            It is at least tol / 2.
            """
            rounding = jnp.finfo(y.dtype).eps * norm(state.dual.coef) if stop == "kkt" else 0
            return jnp.maximum(tol - rounding, tol / 2)

        def should_continue(progress):
            can_improve = (progress.state.residual > target(progress.state)) & progress.changed
            # one more block then stays below 2^31 kernel evaluations
            row_limit = max(1, 2**31 // n - large_block)
            return can_improve & (progress.rounds < rounds) & (progress.rows.n_computed < row_limit)

        def solve_while(condition, size, progress):
            """Solve blocks of `size` rows as long as `condition` of the progress holds."""
            return lax.while_loop(condition, functools.partial(solve_block, size), progress)

        def result(progress):
            """The state and the number of computed kernel rows.

            The working set of the state has q rows again.
            """
            return progress.state._replace(
                working=progress.state.working[:q]
            ), progress.rows.n_computed

        def finish(progress):
            """Solve blocks of q rows until one has settled, then large blocks."""
            if large_block == q:
                return result(solve_while(should_continue, q, progress))
            progress = solve_while(
                lambda progress: should_continue(progress) & ~progress.settled, q, progress
            )
            # Lengthen the working set for the next loop; its first half stays in the first large
            # block.
            working = progress.state.working
            added = select_working_set(dual_at(progress.state.dual), working, large_block)[
                : large_block - q
            ]
            working = jnp.concatenate([working, added])
            progress = progress._replace(state=progress.state._replace(working=working))
            return result(solve_while(should_continue, large_block, progress))

        def start_with_small_cache(progress):
            """Start with a small cache, and allocate the full one once it proves insufficient.

            Most problems need few kernel rows. If blocks settle after 64 or more of them, the full
            cache is allocated too, for the large blocks that follow.
            """
            if small_cache >= slots:
                return finish(progress)
            suffices = lambda progress: (
                ~kernel_cache.full(progress.rows, q) & ~(progress.settled & (progress.rounds >= 64))
            )
            progress = solve_while(
                lambda progress: should_continue(progress) & suffices(progress), q, progress
            )
            grow_and_finish = lambda: finish(
                progress._replace(rows=kernel_cache.grow(progress.rows, slots))
            )
            return lax.cond(should_continue(progress), grow_and_finish, lambda: result(progress))

        state, kkt = with_residual(state)
        true, zero = jnp.ones((), bool), jnp.zeros((), jnp.int32)
        empty_cache = lambda: kernel_cache.empty(x, min(small_cache, slots))
        run = lambda: start_with_small_cache(
            Progress(state, kkt, empty_cache(), changed=true, rounds=zero, settled=~true)
        )
        return lax.cond(state.residual > target(state), run, lambda: (state, zero))

    def update(state, batch):
        y = batch.y.astype(state.dual.coef.dtype)
        cast_qp, cast_tol = stop_gradients(cast((qp, tol), y.dtype))
        state, x, y = stop_gradients((state, cast_qp.kernel.layout(batch).x, y))
        n = y.shape[0]
        new, rows_computed = solve_blocks(cast_qp, cast_tol, state, x, y)
        # `row_limit` and one more block; at least one block
        max_rows = max(2**31 // n - 1, 4 * working_set)
        evals = times_count(rows_computed, n, max_rows)
        return new, step_info(cast_qp, bias, (state.dual, new.dual), x, y, new.residual, evals)

    def with_tol(tol):
        options = {
            "stop": stop,
            "working_set": working_set,
            "memory": memory,
            "rounds": rounds,
            "start": start,
        }
        return decomposition(C, kernel, loss=loss, bias=bias, tol=tol, **options)

    return Solver(
        init,
        update,
        lambda state, data=None: build_model(qp, bias, state.dual, data),
        whole(),
        "all",
        targets="labels" if loss.labels else "real",
        with_tol=with_tol,
        tol=tol,
        validate=kernel_check(qp.kernel),
        layout=qp.kernel.layout,
    )


def select_working_set(dual: Dual, retained: Array, size: int) -> Array:
    """A working set: the retained rows and those of extreme gain, without repetition.

    Extreme are the largest gain_up and the smallest gain_down.

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

    up = top_unselected(gain_up(dual), retained, (size - k) // 2)
    selected = jnp.concatenate([retained, up])
    down = top_unselected(-gain_down(dual), selected, size - k - (size - k) // 2)
    return jnp.concatenate([up, down, retained])
