"""LASVM: an online kernel SVM that ends at the exact solution on the rows that it keeps."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import integer
from ..engines.dual_qp import (
    STEPS,
    Dual,
    DualState,
    add_l2,
    build_model,
    gain_down,
    gain_up,
    init_state,
    kernel_check,
    make_qp,
    step_info,
    stop_gradients,
    violation,
)
from ..kernels import Kernel
from ..losses import hinge
from ..numerics import argmax_value, count, fast_max, index_row, times_count, top_k_index, two_sum
from ..recipe import cast, register, solver
from ..samplers import epochs
from ..types import Array, Loss, Solver

SEEDS = 5  # of each class; the authors' program takes so many. Twice as many where targets are real
TIE = 1e-4  # of the violation: far below it, far above the rounding of float32


@register("LasvmState")
class LasvmState(NamedTuple):
    """The dual, the rows that may move, and how far the passes are."""

    dual: DualState
    in_set: Array  # (n,)  bool, S; the coefficients outside are 0
    stamp: Array  # (n,)  int32, the pass in which a row was last visited
    passes: Array  # ()  int32, number of this pass
    visited: Array  # ()  int32, rows visited in this pass, each counted once


@solver
def lasvm(
    C: float, kernel: Kernel, *, loss: Loss = hinge, bias: str = "free", passes: int = 1, start: Array | None = None
) -> Solver:
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) over a set S of rows, which come one by one.

        PROCESS(k):  k joins S unless no row of S makes a violating pair with it;   a step along its worst pair
        REPROCESS:   a step along the worst pair of S;   rows with coef 0 leave S if they make no violating pair with others
        a step:      coef_i += t;   coef_j -= t;   pull -= t (K_.i - K_.j);   i = argmax_S rise, j = argmin_S fall

    `rise` and `fall` are what the dual gains and loses per unit that a coefficient grows or falls, t is the best within the
    bounds of both. After `passes` passes of PROCESS(k), REPROCESS the steps are REPROCESS alone, which ends at the optimum on
    S; more passes lead to that on all rows. Without a bias a step moves one coefficient. PROCESS and REPROCESS cost two
    kernel rows each (one without a bias), none where nothing moves, and O(n).

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive, pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        passes: over the rows of positive weight before the finishing, >= 1; a pass lasts until each was visited.
        start: (n,) alpha to begin from, as in `decomposition`; rows with alpha above 0 begin in S.

    Returns:
        A solver on all rows, of which a step visits those drawn, one after the other; default feed epochs of random order.
        Model `Expansion`, with the derivatives of the exact solution on S. The residual is infinite in the passes, then the
        violation max rise - min fall among S after the step (without a bias the largest |projected derivative|), in units
        of y: `fit(tol=)` finishes, 1e-3 is the paper's. It says nothing of the rows outside of S; `certificate` does.

    Raises:
        ValueError: C no single number above 0, a loss or a bias that is not among these, passes no whole number of at least
            1, start of another length than the data; from `fit` for a precomputed matrix that is not symmetric.

    Differs from the paper: the derivative is kept for all rows, not for S alone, so that a row costs nothing until it moves,
        and then a whole kernel row; REPROCESS steps for any violation (the paper: above a tolerance); of rows that tie to
        1e-4 of the violation the first is taken, and coefficients beside an end go onto it, so that rounding decides little;
        b is the mean over free coefficients (the paper: the middle between the extremes); rows of weight 0 never join;
        losses besides the hinge, whose rows join and leave by the same rule.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> run = jaxsvm.fit(lasvm(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=100, tol=1e-3)
        >>> [round(coef, 3) for coef in run.model.coef.tolist()]
        [0.5, -0.5, 0.0]

    Reference: A. Bordes, S. Ertekin, J. Weston, L. Bottou, Fast kernel classifiers with online and active learning, JMLR 6,
        2005, section 3, https://www.jmlr.org/papers/v6/bordes05a.html.
    """
    task = make_qp(C, kernel, loss, bias, start)
    integer("passes", passes, 1)

    def init(key, data):
        dual = init_state(task, bias, data, start)
        one, zero = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
        in_set = initial_set(key, data.y, dual.weight > 0, loss.labels) | (dual.coef != 0)
        return LasvmState(dual, in_set, jnp.zeros(data.y.shape, jnp.int32), one, zero)

    def update(state, batch):
        y = batch.y.astype(state.dual.coef.dtype)
        own = stop_gradients(cast(task, y.dtype))
        state, x, y = stop_gradients((state, batch.x, y))
        known, row = own.dual(state.dual, x, y), lax.iota(jnp.int32, y.shape[0])

        def moved(dual, movable):
            """The best step of the rows of a mask, two of them or one; and the kernel rows worked out for it."""
            held = restrict(known.now(dual), movable)
            worth = violation(held, bias) > 0

            def values(i):
                made = lax.cond(worth, lambda: own.kernel(x[i[None]], x)[0], lambda: jnp.zeros_like(y))
                return add_l2(made, held, i)

            after, sum_error, move = STEPS[bias](values, held, dual.sum_error)
            grad, compensation = two_sum(dual.grad, dual.compensation, move.change)
            made = jnp.where(worth, 2 if bias == "free" else 1, 0)
            return DualState(after.coef, grad, compensation, sum_error, dual.weight), made

        def process(dual, in_set, k, wanted):
            """Row k joins S, unless it cannot move against any row of S, and moves against the worst."""
            whole = known.now(dual)
            up, down = index_row(gain_up(whole), k), index_row(gain_down(whole), k)
            i, j, most, least = _worst(restrict(whole, in_set), bias, up, down)
            # The paper discards only where S has a violating pair; what it lets in otherwise cannot move and leaves at once.
            joins = wanted & ~index_row(in_set, k) & ((up >= least) | (down <= most))
            partner = jnp.where(up - least >= most - down, j, i) if bias == "free" else k
            in_set = in_set | (joins & (row == k))
            return *moved(dual, joins & in_set & ((row == k) | (row == partner))), in_set

        def reprocess(dual, in_set, wanted):
            """A step of the worst rows of S, and what cannot move any more leaves it."""
            i, j, *_ = _worst(restrict(known.now(dual), in_set), bias)
            dual, made = moved(dual, wanted & in_set & ((row == i) | (row == j)))
            held = restrict(known.now(dual), in_set)
            i, j, most, least = _worst(held, bias)
            leaves = wanted & (held.coef == 0) & (gain_up(held) <= least) & (gain_down(held) >= most)
            if not loss.labels:  # where rows may go both ways from 0, all might leave: the two that are the extremes stay
                leaves = leaves & (row != i) & (row != j)
            return dual, made, in_set & ~leaves

        def visit(carry, k):
            state, made = carry
            k, live = jnp.maximum(k, 0), (k >= 0) & (index_row(state.dual.weight, k) > 0)
            online = live & (state.passes <= passes)
            dual, first, in_set = process(state.dual, state.in_set, k, online)
            dual, second, in_set = reprocess(dual, in_set, live)
            fresh = online & (index_row(state.stamp, k) < state.passes)
            visited = state.visited + fresh.astype(jnp.int32)
            over = visited >= count(dual.weight > 0)
            new = LasvmState(
                dual=dual,
                in_set=in_set,
                stamp=jnp.where(fresh & (row == k), state.passes, state.stamp),
                passes=state.passes + over.astype(jnp.int32),
                visited=jnp.where(over, 0, visited),
            )
            return (new, made + first + second), None

        (new, made), _ = lax.scan(visit, (state, jnp.zeros((), jnp.int32)), batch.index)
        left = violation(restrict(known.now(new.dual), new.in_set), bias)
        residual = jnp.where(new.passes > passes, left, jnp.inf)
        return new, step_info(
            own, bias, (state.dual, new.dual), x, y, residual, times_count(made, y.shape[0], 4 * batch.index.shape[0])
        )

    def model(state, data=None):
        """The model of the problem on S: rows outside count as absent. S is empty where there is one class."""
        in_set = state.in_set | ~jnp.any(state.in_set)
        only = lambda weight: jnp.where(in_set, weight, jnp.zeros_like(weight))  # noqa: E731
        data = None if data is None else data._replace(weight=only(data.weight))
        return build_model(task, bias, state.dual._replace(weight=only(state.dual.weight)), data)

    return Solver(
        init,
        update,
        model,
        epochs(1),
        "all",
        targets="labels" if loss.labels else "real",
        validate=kernel_check(task.kernel),
        layout=task.kernel.layout,
    )


def restrict(dual: Dual, rows: Array) -> Dual:
    """The dual in which only the rows of a mask (n,) may move."""
    held = lambda bound: jnp.where(rows, bound, dual.coef)  # noqa: E731
    return dual._replace(bounds=dual.bounds._replace(low=held(dual.bounds.low), high=held(dual.bounds.high)))


def _worst(
    dual: Dual, bias: str, more_up: Array | float = -jnp.inf, more_down: Array | float = jnp.inf
) -> tuple[Array, Array, Array, Array]:
    """The rows of the most violating pair, how fast the first may rise and the second fall; without a bias one row and 0.

    A step inside of the box leaves two rows that tie but for rounding: rows behind by less than `TIE` of the violation
    count as tied, and the first of them is taken; the violation against one more row may be the larger one. Where no row
    can move, place 0, and infinities.
    """
    up, down = gain_up(dual), -gain_down(dual)
    if bias != "free":
        up, zero = jnp.maximum(up, down), jnp.zeros_like(up[0])
        i, _ = _first(up, jnp.maximum(fast_max(up), 0))
        return i, i, zero, zero
    gap = jnp.maximum(jnp.maximum(fast_max(up), more_up) - jnp.minimum(-fast_max(down), more_down), 0)
    (i, most), (j, least) = _first(up, gap), _first(down, gap)
    return i, j, most, -least


def _first(speed: Array, gap: Array) -> tuple[Array, Array]:
    """The first place of the maximum but for ties, and the maximum."""
    top = fast_max(speed)
    return argmax_value((speed >= top - TIE * gap).astype(jnp.int32))[0], top


def initial_set(key: Array, y: Array, positive: Array, labels: bool) -> Array:
    """The rows that S begins with, a mask (n,): a few of positive weight, drawn, of each class."""
    order = jax.random.uniform(key, y.shape, jnp.float32)
    many = min(SEEDS if labels else 2 * SEEDS, y.shape[0])

    def some(group):
        top = top_k_index(jnp.where(group, order, -1), many)
        return group & jnp.zeros(y.shape, bool).at[top].set(True, mode="promise_in_bounds")

    return some(positive & (y > 0)) | some(positive & (y < 0)) if labels else some(positive)
