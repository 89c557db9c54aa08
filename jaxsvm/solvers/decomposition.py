"""Block decomposition of the kernel SVM's dual."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import integer
from ..engines import kernel_cache as kept
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
    solve,
    step_info,
    stop_gradients,
    violation,
)
from ..kernels import Kernel
from ..losses import hinge
from ..numerics import count, norm, times_count, top_k_index
from ..recipe import cast, check_choice, check_positive, register, solver, unwrap_static
from ..samplers import whole
from ..types import Array, Loss, Solver


@register("DecompositionState")
class DecompositionState(NamedTuple):
    """The dual, and the working set that is kept in part."""

    dual: DualState
    working: Array  # (q,)  int32, rows, those that came last in front
    residual: Array  # ()


class Progress(NamedTuple):
    """What one update carries from block to block."""

    state: DecompositionState
    kkt: Array  # ()  violation
    rows: kept.Rows
    moved: Array  # ()  bool, the last block changed something
    rounds: Array  # ()  int32, blocks solved
    settled: Array  # ()  bool, hardly any new rows came in, and more than half of the block is free


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
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i), exactly, a block of rows at a time.

        W = the rows that violate the optimality conditions most, and half of the last W
        coef_W' = argmax of D over coef_W, by steps on pairs, to a tenth of the violation;   K_WW by one product
        pull -= K_.W (coef_W' - coef_W)                                    kernel rows of what moved, kept for later

    One update goes on like this until the violation is at most `tol`, so that a run takes one update as a rule.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive, pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        tol: violation to stop at, > 0; None: 1e-3, as LIBSVM; `fit(tol=)` overrides it.
        stop: what the residual measures: "kkt", LIBSVM's violation max rise - min fall, in units of y; or "gap", the
            duality gap in proportion to the primal.
        working_set: q, rows of a block, a multiple of 4; four times as many once no new rows come in and more than half
            of them are free.
        memory: bytes for kernel rows to keep, a whole number; None: 2 GiB; 0: 2 q rows. At least 2 q rows are kept; with
            all n no row is worked out twice.
        rounds: blocks that one update solves at most; it ends after 2^31 kernel evaluations, too. The next begins with no kernel
            rows kept. `fit` looks at the run, saves it and heeds Ctrl-C between updates.
        start: (n,) alpha to begin from, such as those of another C, best times the ratio of the two; clipped to the bounds,
            and with a free bias scaled down on the heavier side. For losses of real targets the signed coefficients.

    Returns:
        A solver on all rows; model `Expansion` with its dual variables, so that its certificate is exact, and with the
        derivatives of the exact solution in C, the kernel's parameters and the rows (`implicit.solution`; nan where more
        than 2,048 coefficients are free). Under `vmap` runs go one after the other. `evals` counts the kernel rows worked
        out, not the kernel among the rows of a block.

    Raises:
        ValueError: C or tol no single number above 0, a loss or a bias that is not among these, working_set no multiple
            of 4, memory no whole number, start of another length than the data; from `fit` for a precomputed matrix
            that is not symmetric.

    Differs from the papers: second-order pairs inside of the block, sums compensated, the block enlarged near the end.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> run = jaxsvm.fit(decomposition(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=1)
        >>> run.model.coef.tolist()
        [0.5, -0.5, 0.0]

    Reference: T. Joachims, Making large-scale SVM learning practical, 1999; Z. Wen, J. Shi, Q. Li, B. He, J. Chen,
        ThunderSVM: a fast SVM library on GPUs and CPUs, JMLR 19, 2018, section 2; R.-E. Fan, P.-H. Chen, C.-J. Lin,
        Working set selection using second order information, JMLR 6, 2005.
    """
    task = make_qp(C, kernel, loss, bias, start)
    tol = 1e-3 if tol is None else tol
    check_positive(tol=tol)
    check_choice("stop", stop, ("kkt", "gap"))
    if not isinstance(working_set, int) or working_set < 4 or working_set % 4:
        raise ValueError(f"working_set must be a multiple of 4, got {working_set!r}")
    if memory is not None and (not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory must be a whole number of bytes, got {memory!r}: write int(4e9)")
    integer("rounds", rounds, 1)

    def init(key, data):
        dual = init_state(task, bias, data, start)
        working = jnp.arange(min(working_set, data.y.shape[0]), dtype=jnp.int32)
        return DecompositionState(dual, working, jnp.full((), jnp.inf, dual.coef.dtype))

    @jax.custom_batching.sequential_vmap
    def blocks(task, tol, state, x, y):
        """Block after block until `tol`: the state then, and the kernel rows worked out."""
        n, q = y.shape[0], state.working.shape[0]
        slots = kept.num_slots(x, 2**31 if memory is None else memory, 2 * q)
        few, large = kept.num_slots(x, 2**28, n // 8 + 2 * q), max(q, min(4 * q, n // 4 * 4))
        large = large if slots >= min(2 * large, n + kept.CHUNK) else q
        first = task.dual(state.dual, x, y)

        def measured(state):
            dual = first.now(state.dual)
            kkt = violation(dual, bias)
            if stop == "kkt":
                return state._replace(residual=kkt), kkt
            return state._replace(residual=relative_gap(dual, y, task.C * state.dual.weight, unwrap_static(task.loss), bias)), kkt

        def block(size, run):
            """One block of `size` rows."""
            state, dual = run.state.dual, first.now(run.state.dual)
            working = select_working_set(dual, run.state.working[: size // 2], size)
            some = jax.tree.map(lambda a: a.at[working].get(mode="promise_in_bounds"), dual)
            l2 = some.bounds.l2
            gram = task.kernel.gram(x, working) + (0 if l2 is None else jnp.diag(l2))
            near = jnp.maximum(0.1 * run.kkt, 0.3 * tol if stop == "kkt" else 0)
            new, sum_error = solve(gram, some, state.sum_error, near, bias, 100 * size)
            by = new.coef - some.coef
            rows = kept.ensure_rows(run.rows, task.kernel, x, working, by != 0)
            grad, compensation = kept.subtract(state.grad, state.compensation, rows, working, by)
            grad = grad if l2 is None else grad.at[working].add(-l2 * by, mode="promise_in_bounds")
            coef = state.coef.at[working].set(new.coef, mode="promise_in_bounds")
            state = state._replace(coef=coef, grad=grad, compensation=compensation, sum_error=sum_error)
            free = count((new.coef > some.bounds.low) & (new.coef < some.bounds.high))
            settled = (rows.made - run.rows.made <= size // 16) & (free > size // 2)
            measures = measured(run.state._replace(dual=state, working=working))
            return Progress(*measures, rows, jnp.any(by != 0), run.rounds + 1, settled)

        def goal(state):
            """Where to stop: below `tol` by what rounding of the kernel values may hide, by half of it at most."""
            hidden = jnp.finfo(y.dtype).eps * norm(state.dual.coef) if stop == "kkt" else 0
            return jnp.maximum(tol - hidden, tol / 2)

        def goes_on(run):
            worth = (run.state.residual > goal(run.state)) & run.moved
            return worth & (run.rounds < rounds) & (run.rows.made < max(1, 2**31 // n - large))

        def stage(size, run, stays=lambda run: run.moved):
            return lax.while_loop(lambda run: goes_on(run) & stays(run), functools.partial(block, size), run)

        def reached(run):
            return run.state._replace(working=run.state.working[:q]), run.rows.made

        def to_the_end(run):
            if large == q:
                return reached(stage(q, run))
            run = stage(q, run, lambda run: ~run.settled)
            small = run.state.working  # which the large block begins with
            working = jnp.concatenate([small, select_working_set(first.now(run.state.dual), small, large)[: large - q]])
            return reached(stage(large, run._replace(state=run.state._replace(working=working))))

        def from_few_rows(run):
            """Most problems need few rows; room for all is made once it is known that these are not enough."""
            if few >= slots:
                return to_the_end(run)
            run = stage(q, run, lambda run: ~kept.full(run.rows, q) & ~(run.settled & (run.rounds >= 64)))
            more = lambda run: to_the_end(run._replace(rows=kept.grow(run.rows, slots)))  # noqa: E731
            return lax.cond(goes_on(run), more, reached, run)

        state, kkt = measured(state)
        yes, zero = jnp.ones((), bool), jnp.zeros((), jnp.int32)
        run = lambda: from_few_rows(Progress(state, kkt, kept.empty(x, min(few, slots)), yes, zero, ~yes))  # noqa: E731
        return lax.cond(state.residual > goal(state), run, lambda: (state, zero))

    def update(state, batch):
        y = batch.y.astype(state.dual.coef.dtype)
        own, near = stop_gradients(cast((task, tol), y.dtype))
        state, x, y = stop_gradients((state, own.kernel.layout(batch).x, y))
        n = y.shape[0]
        new, made = blocks(own, near, state, x, y)
        return new, step_info(
            own, bias, (state.dual, new.dual), x, y, new.residual, times_count(made, n, max(2**31 // n - 1, 4 * working_set))
        )

    def until(tol):
        options = {"stop": stop, "working_set": working_set, "memory": memory, "rounds": rounds, "start": start}
        return decomposition(C, kernel, loss=loss, bias=bias, tol=tol, **options)

    return Solver(
        init,
        update,
        lambda state, data=None: build_model(task, bias, state.dual, data),
        whole(),
        "all",
        targets="labels" if loss.labels else "real",
        with_tol=until,
        tol=tol,
        validate=kernel_check(task.kernel),
        layout=task.kernel.layout,
    )


def select_working_set(dual: Dual, kept: Array, size: int) -> Array:
    """A working set: the rows that may rise fastest, those that may fall fastest, and those kept; each row once.

    Args:
        dual: of n coefficients.
        kept: (k,) rows that stay.
        size: of the set; all n rows where it is n.

    Reference: Z. Wen et al., ThunderSVM, JMLR 19, 2018, section 2; T. Joachims, Making large-scale SVM learning practical,
        1999, section 3, for the two lists.
    """
    n, k = dual.coef.shape[0], kept.shape[0]
    if size == n:
        return jnp.arange(n, dtype=jnp.int32)
    lowest = jnp.finfo(dual.grad.dtype).min  # of those that cannot move; taken rows are lower still

    def pick(score, taken, many):
        score = jnp.maximum(score, lowest).at[taken].set(-jnp.inf, mode="promise_in_bounds")
        return top_k_index(score, many)

    up = pick(gain_up(dual), kept, (size - k) // 2)
    taken = jnp.concatenate([kept, up])
    down = pick(-gain_down(dual), taken, size - k - (size - k) // 2)
    return jnp.concatenate([up, down, kept])
