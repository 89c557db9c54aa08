"""LASVM: an online kernel SVM that converges to the exact solution on its current set of rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import integer
from ..engines.dual_qp import (
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
from ..engines.smo_step import STEPS
from ..kernels import Kernel
from ..losses import hinge
from ..numerics import argmax_value, count, fast_max, index_row, times_count, top_k_index, two_sum
from ..recipe import cast, register, solver
from ..samplers import epochs
from ..types import Array, Loss, Solver

SEEDS = 5  # initial rows of each class, as in the authors' program; twice as many for real targets
# relative tolerance of ties, in units of the violation: far above the rounding of float32
TIE = 1e-4


@register("LasvmState")
class LasvmState(NamedTuple):
    """The dual, the set S, and the position within the passes.

    S is the set of rows whose coefficients may change.
    """

    dual: DualState
    in_set: Array  # (n,)  bool, S; other coefficients are 0
    stamp: Array  # (n,)  int32, the pass of the last visit of a row
    passes: Array  # ()  int32, number of the current pass
    visited: Array  # ()  int32, distinct rows visited in this pass


@solver
def lasvm(
    C: float,
    kernel: Kernel,
    *,
    loss: Loss = hinge,
    bias: str = "free",
    passes: int = 1,
    start: Array | None = None,
) -> Solver:
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)> + b, y_i) online.

    The coefficients that may change are those of a set S of rows, which is built online.

        PROCESS(k):  k joins S unless it forms no violating pair with a row of S;
                     a step along its most violating pair
        REPROCESS:   a step along the most violating pair of S;
                     rows with coef 0 leave S if they are in no violating pair
        a step:      coef_i += t;   coef_j -= t;   grad -= t (K_.i - K_.j);
                     i = argmax_S gain_up, j = argmin_S gain_down

    `gain_up` and `gain_down` are the derivatives of the dual to the right and to the left. t is the
    exact maximiser within the bounds of both. Each visit of a row is PROCESS, then REPROCESS. After
    `passes` passes there are only REPROCESS steps, which converge to the optimum on S; with more
    passes that is the optimum on all rows. Without a bias a step changes one coefficient. PROCESS
    and REPROCESS cost two kernel rows each (one without a bias), or none where nothing changes, and
    O(n).

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            pinball, squared.
        bias: "free" (not regularised; sum_i coef_i = 0) or "none".
        passes: online passes before the finishing steps, >= 1; a pass visits every row of positive
            weight.
        start: (n,) initial alpha, as in `decomposition`; rows with alpha above 0 are in S at the
            start.

    Returns:
        A solver on all rows; a step visits the drawn rows one after the other; default feed epochs
        of random order. Model `Expansion`, with the derivatives of the exact solution on S. The
        residual is infinite during the passes. Then it is the violation max gain_up - min gain_down
        over S after the step, in units of y; without a bias it is the largest
        |projected derivative|. `fit(tol=)` ends the finishing steps; 1e-3 is the paper's. Rows
        outside of S do not enter the residual; `certificate` covers them.

    Raises:
        ValueError: C not a single positive number, another loss or bias, passes not an integer of
            at least 1, start of another length than the data; from `fit` for a precomputed matrix
            that is not symmetric.

    Differs from the paper: the derivative is stored for all rows, not for S alone. A row then costs
        nothing until its coefficient changes, and a whole kernel row when it does. REPROCESS steps
        on any violation (the paper: above a tolerance). The first of several rows that tie to 1e-4
        of the violation is selected, and coefficients next to a bound are set to it, so that
        rounding has little influence. b is the mean over free coefficients (the paper: the middle
        between the extremes). Rows of weight 0 never join. Other losses than the hinge follow the
        same rule.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [3.0]], [1, -1, 1])
        >>> run = jaxsvm.fit(lasvm(10.0, jaxsvm.kernels.linear()), data, jax.random.key(0),
        ...     steps=100, tol=1e-3)
        >>> [round(coef, 3) for coef in run.model.coef.tolist()]
        [0.5, -0.5, 0.0]

    Reference: A. Bordes, S. Ertekin, J. Weston, L. Bottou, Fast kernel classifiers with online and
        active learning, JMLR 6, 2005, section 3, https://www.jmlr.org/papers/v6/bordes05a.html.
    """
    qp = make_qp(C, kernel, loss, bias, start)
    integer("passes", passes, 1)

    def init(key, data):
        dual = init_state(qp, bias, data, start)
        one, zero = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
        in_set = initial_set(key, data.y, dual.weight > 0, loss.labels) | (dual.coef != 0)
        return LasvmState(dual, in_set, jnp.zeros(data.y.shape, jnp.int32), one, zero)

    def update(state, batch):
        y = batch.y.astype(state.dual.coef.dtype)
        cast_qp = stop_gradients(cast(qp, y.dtype))
        state, x, y = stop_gradients((state, batch.x, y))
        dual_at_start, rows = cast_qp.dual(state.dual, x, y), lax.iota(jnp.int32, y.shape[0])

        def take_step(state, movable):
            """The best step of the rows of a mask, and the number of computed kernel rows.

            A step changes two of the rows, or one.
            """
            dual = restrict(dual_at_start.at_state(state), movable)
            violates = violation(dual, bias) > 0

            def kernel_row(i):
                row = lax.cond(
                    violates, lambda: cast_qp.kernel(x[i[None]], x)[0], lambda: jnp.zeros_like(y)
                )
                return add_l2(row, dual, i)

            new, sum_error, step = STEPS[bias](kernel_row, dual, state.sum_error)
            grad, compensation = two_sum(state.grad, state.compensation, step.change)
            rows_computed = jnp.where(violates, 2 if bias == "free" else 1, 0)
            return DualState(new.coef, grad, compensation, sum_error, state.weight), rows_computed

        def process(state, in_set, k, wanted):
            """PROCESS(k): row k joins S if it forms a violating pair.

            It then steps along its most violating pair.
            """
            dual = dual_at_start.at_state(state)
            up, down = index_row(gain_up(dual), k), index_row(gain_down(dual), k)
            i, j, max_up, min_down = _most_violating(restrict(dual, in_set), bias, up, down)
            # The paper discards k only if S has a violating pair; otherwise k could not move and
            # REPROCESS would remove it.
            joins = wanted & ~index_row(in_set, k) & ((up >= min_down) | (down <= max_up))
            partner = jnp.where(up - min_down >= max_up - down, j, i) if bias == "free" else k
            in_set = in_set | (joins & (rows == k))
            return *take_step(state, joins & in_set & ((rows == k) | (rows == partner))), in_set

        def reprocess(state, in_set, wanted):
            """REPROCESS: a step along the most violating pair of S.

            Rows that cannot move any more leave S.
            """
            i, j, *_ = _most_violating(restrict(dual_at_start.at_state(state), in_set), bias)
            state, rows_computed = take_step(state, wanted & in_set & ((rows == i) | (rows == j)))
            dual = restrict(dual_at_start.at_state(state), in_set)
            i, j, max_up, min_down = _most_violating(dual, bias)
            leaves = (
                wanted
                & (dual.coef == 0)
                & (gain_up(dual) <= min_down)
                & (gain_down(dual) >= max_up)
            )
            # 0 is inside the bounds of real targets, so that all rows might leave: the extremes
            # stay
            if not loss.labels:
                leaves = leaves & (rows != i) & (rows != j)
            return state, rows_computed, in_set & ~leaves

        def visit(carry, k):
            """PROCESS(k) during the passes, and REPROCESS."""
            state, rows_computed = carry
            k, active = jnp.maximum(k, 0), (k >= 0) & (index_row(state.dual.weight, k) > 0)
            online = active & (state.passes <= passes)
            dual, process_rows, in_set = process(state.dual, state.in_set, k, online)
            dual, reprocess_rows, in_set = reprocess(dual, in_set, active)
            first_visit = online & (index_row(state.stamp, k) < state.passes)
            visited = state.visited + first_visit.astype(jnp.int32)
            pass_ends = visited >= count(dual.weight > 0)
            new = LasvmState(
                dual=dual,
                in_set=in_set,
                stamp=jnp.where(first_visit & (rows == k), state.passes, state.stamp),
                passes=state.passes + pass_ends.astype(jnp.int32),
                visited=jnp.where(pass_ends, 0, visited),
            )
            return (new, rows_computed + process_rows + reprocess_rows), None

        (new, rows_computed), _ = lax.scan(visit, (state, jnp.zeros((), jnp.int32)), batch.index)
        violation_on_set = violation(restrict(dual_at_start.at_state(new.dual), new.in_set), bias)
        residual = jnp.where(new.passes > passes, violation_on_set, jnp.inf)
        evals = times_count(rows_computed, y.shape[0], 4 * batch.index.shape[0])
        return new, step_info(cast_qp, bias, (state.dual, new.dual), x, y, residual, evals)

    def model(state, data=None):
        """The model of the problem on S: other rows have weight 0.

        With one class S is empty, and all rows count.
        """
        in_set = state.in_set | ~jnp.any(state.in_set)
        weight_on_set = lambda weight: jnp.where(in_set, weight, jnp.zeros_like(weight))
        data = None if data is None else data._replace(weight=weight_on_set(data.weight))
        return build_model(
            qp, bias, state.dual._replace(weight=weight_on_set(state.dual.weight)), data
        )

    return Solver(
        init,
        update,
        model,
        epochs(1),
        "all",
        targets="labels" if loss.labels else "real",
        validate=kernel_check(qp.kernel),
        layout=qp.kernel.layout,
    )


def restrict(dual: Dual, rows: Array) -> Dual:
    """The dual in which only the coefficients of a mask (n,) may change.

    The bounds of the others are their values.

    Reference: A. Bordes et al., JMLR 6, 2005, section 3, where the search for a pair goes over S
        alone.
    """
    bound_or_coef = lambda bound: jnp.where(rows, bound, dual.coef)
    return dual._replace(
        bounds=dual.bounds._replace(
            low=bound_or_coef(dual.bounds.low), high=bound_or_coef(dual.bounds.high)
        )
    )


def _most_violating(
    dual: Dual, bias: str, up_k: Array | float = -jnp.inf, down_k: Array | float = jnp.inf
) -> tuple[Array, Array, Array, Array]:
    """The most violating pair i, j, its gain_up_i and its gain_down_j.

    Without a bias the result is one row twice, and zeros. A step within the bounds makes two rows
    tie, up to rounding. Rows within `TIE` of the violation count as tied, and the first is
    selected. The violation may be that with one more row, of `up_k` and `down_k`. If no row can
    move, the result is index 0 and infinities.
    """
    up, down = gain_up(dual), -gain_down(dual)
    if bias != "free":
        up, zero = jnp.maximum(up, down), jnp.zeros_like(up[0])
        i, _ = _first_maximum(up, jnp.maximum(fast_max(up), 0))
        return i, i, zero, zero
    gap = jnp.maximum(jnp.maximum(fast_max(up), up_k) - jnp.minimum(-fast_max(down), down_k), 0)
    (i, max_up), (j, max_down) = _first_maximum(up, gap), _first_maximum(down, gap)
    return i, j, max_up, -max_down


def _first_maximum(gain: Array, gap: Array) -> tuple[Array, Array]:
    """The first index within `TIE` gap of the maximum, and the maximum."""
    top = fast_max(gain)
    return argmax_value((gain >= top - TIE * gap).astype(jnp.int32))[0], top


def initial_set(key: Array, y: Array, positive: Array, labels: bool) -> Array:
    """The initial S, a mask (n,) of random rows of positive weight.

    It has `SEEDS` rows of each class, or twice as many rows for real targets.

    Reference: A. Bordes et al., JMLR 6, 2005, section 3, which starts from a few examples of each
        class.
    """
    order = jax.random.uniform(key, y.shape, jnp.float32)
    size = min(SEEDS if labels else 2 * SEEDS, y.shape[0])

    def sample(group):
        top = top_k_index(jnp.where(group, order, -1), size)
        return group & jnp.zeros(y.shape, bool).at[top].set(True, mode="promise_in_bounds")

    return sample(positive & (y > 0)) | sample(positive & (y < 0)) if labels else sample(positive)
