"""Duals that are quadratic between bounds: what can still move, how far it is from the optimum, the best move of one or two.

    D(coef) = sum_i (y_i coef_i - kink_i |coef_i| - soft_i/2 coef_i^2) - 1/2 coef' K coef,   low_i <= coef_i <= high_i

and sum_i coef_i = 0 where the bias is free. `Loss.quadratic` gives the parts. The coefficients are signed; `pull` is the
derivative without the kink, pull_i = y_i - (K coef)_i - soft_i coef_i.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..implicit import at_bound, solution
from ..kernels import Kernel, as_kernel, check_symmetric, holds_precomputed, matvec
from ..models import Expansion, expansion
from ..numerics import accum_dtype, argmax_value, count, fast_max, fast_min, index_row, is_traced
from ..recipe import as_static, cast, check_choice, check_positive, register, unwrap_static
from ..types import Array, Batch, Info, Loss, Quadratic


class Dual(NamedTuple):
    """Coefficients and what is known of each: all of a data set, or a working set of them."""

    coef: Array  # (n,)  within its bounds, exactly
    grad: Array  # (n,)
    bounds: Quadratic  # of (n,)
    diag: Array  # (n,)  k(x_i, x_i) + soft_i

    def now(self, state: DualState) -> Dual:
        """The same rows with the coefficients of a later state."""
        return self._replace(coef=state.coef, grad=state.grad + state.compensation)


@register("DualState")
class DualState(NamedTuple):
    """What solvers of such duals remember: the coefficients, and the derivative in each, summed with compensation."""

    coef: Array  # (n,)
    grad: Array  # (n,)
    compensation: Array  # (n,)  what rounding took from `pull`
    sum_error: Array  # ()   what rounding has made of sum_i coef_i
    weight: Array  # (n,)  example weights


def add_l2(values: Array, dual: Dual, i: Array) -> Array:
    """Row i of the kernel (n,) as steps read it, soft_i added at place i."""
    return values if dual.bounds.l2 is None else values.at[i].add(index_row(dual.bounds.l2, i))


class Problem(NamedTuple):
    """What is maximised, but for the bias."""

    C: Array  # ()
    kernel: Kernel
    loss: Any  # `recipe.fixed` of a loss

    def dual(self, state: DualState, x: Array, y: Array) -> Dual:
        """The coefficients of a state and what is known of each."""
        bounds = unwrap_static(self.loss).quadratic(y, self.C * state.weight)
        diag = self.kernel.diag(x)
        return Dual(state.coef, state.grad + state.compensation, bounds, diag if bounds.l2 is None else diag + bounds.l2)


def make_qp(C: Array, kernel: Any, loss: Loss, bias: str, start: Array | None) -> Problem:
    """The problem, checked, and where it is to begin.

    Raises:
        ValueError: C no single number above 0, another bias, a loss whose dual is not quadratic, a start that is not finite.
    """
    if start is not None and not is_traced(start) and not np.all(np.isfinite(np.asarray(start))):
        raise ValueError("start holds numbers that are not finite: leave it out, or pass the alpha of a finished run")
    check_positive(C=C)
    check_choice("bias", bias, ("free", "none"))
    if loss.quadratic is None:
        raise ValueError(f"the dual of {loss!r} is not quadratic: take sdca, or a loss such as hinge or eps_insensitive")
    return Problem(C, as_kernel(kernel), as_static(loss))


def init_state(task: Problem, bias: str, data: Batch, start: Array | None) -> DualState:
    """The state before the first step, at 0 or at `start` (n,), made feasible.

    Raises:
        ValueError: start of another length than the data.
    """
    dtype, n = accum_dtype(data.x), data.y.shape[0]
    loss, (weight, y) = unwrap_static(task.loss), cast((data.weight, data.y), dtype)
    coef, grad = jnp.zeros(n, dtype), y
    if start is not None:
        if jnp.shape(start) != (n,):
            raise ValueError(f"start has shape {jnp.shape(start)}, expected one number for each of the {n} rows")
        bounds = loss.quadratic(y, jnp.asarray(task.C, dtype) * weight)
        coef = make_feasible(jnp.asarray(start, dtype) * (y if loss.labels else 1), bounds, bias)
        grad = y - matvec(task.kernel, data.x, data.x, coef) - (0 if bounds.l2 is None else bounds.l2 * coef)
    sum_error = jnp.sum(coef) if bias == "free" else jnp.zeros((), dtype)
    return stop_gradients(DualState(coef, grad, jnp.zeros_like(grad), sum_error, weight))


def step_info(task: Problem, bias: str, states: tuple, x: Array, y: Array, residual: Array, evals: Array) -> Info:
    """What a step between two states says of itself."""
    before, after = (task.dual(state, x, y) for state in states)
    score, weight = scores(before, y, intercept(before, bias)), states[0].weight
    return Info(
        loss=jnp.sum(weight * unwrap_static(task.loss).value(score, y)) / jnp.maximum(jnp.sum(weight), jnp.finfo(y.dtype).tiny),
        residual=residual,
        progress=dual_gain(before, after),
        index=jnp.where(after.coef != before.coef, jnp.arange(y.shape[0], dtype=jnp.int32), -1),
        support=count(after.coef != 0),
        evals=evals,
    )


def build_model(task: Problem, bias: str, state: DualState, data: Batch) -> Expansion:
    """The model, with the derivatives of the exact solution."""
    made = expansion(task.kernel, state.coef, data, bias)
    task = cast(task, state.coef.dtype)
    b = stop_gradients(intercept(task.dual(state, data.x, data.y.astype(state.coef.dtype)), bias))
    coef, b = solution(state.coef, b, task.kernel, data, task.C, unwrap_static(task.loss), bias)
    return dataclasses.replace(made, coef=coef, b=b)


def gain_up(dual: Dual) -> Array:
    """What D gains per unit that a coefficient grows, (n,); -inf where it is at its upper end."""
    coef, grad, bounds, _ = dual
    gain = grad if bounds.l1 is None else grad - jnp.where(coef >= 0, bounds.l1, -bounds.l1)
    return jnp.where(coef < bounds.high, gain, -jnp.inf)


def gain_down(dual: Dual) -> Array:
    """What D loses per unit that a coefficient falls, (n,); inf where it is at its lower end."""
    coef, grad, bounds, _ = dual
    gain = grad if bounds.l1 is None else grad - jnp.where(coef > 0, bounds.l1, -bounds.l1)
    return jnp.where(coef > bounds.low, gain, jnp.inf)


def violation(dual: Dual, bias: str) -> Array:
    """How far D is from its maximum, 0 there, in units of y: LIBSVM's max rise - min fall with a free bias.

    Without a bias the largest |projected derivative|.
    """
    up, down = fast_max(gain_up(dual)), fast_min(gain_down(dual))
    return jnp.maximum(up - down if bias == "free" else jnp.maximum(up, -down), 0)


def intercept(dual: Dual, bias: str) -> Array:
    """The bias that the optimality conditions give: the mean over free coefficients, else the middle of what is left."""
    coef, grad, bounds, _ = dual
    if bias != "free":
        return jnp.zeros((), grad.dtype)
    on_low, on_high, on_zero = at_bound(coef, bounds)
    free, value = ~(on_low | on_high | on_zero), grad if bounds.l1 is None else grad - bounds.l1 * jnp.sign(coef)
    dual = dual._replace(coef=jnp.where(on_low, bounds.low, jnp.where(on_high, bounds.high, coef)))
    total, up, down = jnp.sum(free.astype(grad.dtype)), fast_max(gain_up(dual)), fast_min(gain_down(dual))
    ends = jnp.where(jnp.isfinite(up), jnp.where(jnp.isfinite(down), (up + down) / 2, up), down)
    ends = jnp.where(jnp.isfinite(ends), ends, 0)  # no row counts
    return jnp.where(total > 0, jnp.sum(jnp.where(free, value, 0)) / jnp.maximum(total, 1), ends)


def scores(dual: Dual, y: Array, b: Array) -> Array:
    """f(x_i) = (K coef)_i + b, (n,)."""
    l2 = 0 if dual.bounds.l2 is None else dual.bounds.l2 * dual.coef
    return y - dual.grad - l2 + b


def dual_gain(before: Dual, after: Dual) -> Array:
    """What each coefficient's move added to D, (n,); the sum is exact, since D is quadratic."""
    move, l1 = after.coef - before.coef, before.bounds.l1
    kinked = 0 if l1 is None else l1 * (jnp.abs(after.coef) - jnp.abs(before.coef))
    return move * (before.grad + after.grad) / 2 - kinked


def relative_gap(dual: Dual, y: Array, C: Array, loss: Loss, bias: str) -> Array:
    """(P - D) / P, the gap summed from terms that are not negative.

    Args:
        dual: all coefficients.
        y: (n,) targets.
        C: (n,) weight of each row's loss.
        loss: of scores.
        bias: as the dual has it.
    """
    b = intercept(dual, bias)
    score = scores(dual, y, b)
    safe = jnp.where(C > 0, C, 1)
    value = loss.value(score, y)
    slope = -dual.coef / safe
    terms = jnp.maximum(value + loss.conjugate(slope, y) - slope * score, 0)
    rows = lambda a: jnp.sum(jnp.where(C > 0, C * a, 0))  # noqa: E731
    primal = jnp.dot(dual.coef, score - b) / 2 + rows(value)
    return rows(terms) / jnp.where(primal > 0, primal, 1)


def _upper(coef: Array, bounds: Quadratic, i: Array) -> Array:
    """Where coefficient i has to stop on its way up: at its bound, or at the kink."""
    high = index_row(bounds.high, i)
    return high if bounds.l1 is None else jnp.where((coef < 0) & (index_row(bounds.l1, i) > 0), 0, high)


def _lower(coef: Array, bounds: Quadratic, i: Array) -> Array:
    low = index_row(bounds.low, i)
    return low if bounds.l1 is None else jnp.where((coef > 0) & (index_row(bounds.l1, i) > 0), 0, low)


def snap_to_bound(new: Array, old: Array, low: Array, high: Array) -> Array:
    """A coefficient on its end where all that keeps it off is the rounding of the step; the next step mends the sum."""
    near = 2 * jnp.finfo(new.dtype).eps * jnp.maximum(jnp.abs(old), jnp.abs(new))
    return jnp.where(high - new <= near, high, jnp.where(new - low <= near, low, new))


def _curvature(value: Array, scale: Array) -> Array:
    """Duplicates have none: rounding is all that is left of it."""
    return jnp.maximum(value, 4 * jnp.finfo(value.dtype).eps * jnp.maximum(scale, 1e-12))


class SmoStep(NamedTuple):
    """What one step did."""

    index: Array  # (2,)  int32, rows that moved
    by: Array  # (2,)  by how much, 0 where rounding left nothing
    gap: Array  # ()   violation before the step
    change: Array  # (n,)  of `pull`, for sums that are compensated: in pull after the step some of it is rounded away


def pair_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One step along a pair, which keeps the sum: the row that may rise fastest, and the partner that gains most.

        i = argmax rise;   j = argmax (rise_i - fall_j)^2 / (K_ii + K_jj - 2 K_ij);   coef_i += t, coef_j -= t

    Args:
        row: i -> (n,) kernel values of row i, soft_i added at place i.
        dual: where the step starts.
        sum_error: what rounding has made of the sum; the next step takes it back.

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order information, JMLR 6, 2005.
    """
    coef, grad, bounds, diag = dual
    i, up = argmax_value(gain_up(dual))
    own, lead = row(i), up - gain_down(dual)
    scale = index_row(diag, i) + diag
    curve = _curvature(scale - 2 * own, scale)
    j, _ = argmax_value(jnp.where(lead > 0, lead * lead / curve, -1))
    other = row(j)
    a, b = index_row(coef, i), index_row(coef, j)
    top, bottom = _upper(a, bounds, i), _lower(b, bounds, j)
    best = jnp.maximum(index_row(lead, j) / index_row(curve, j), 0)
    t = jnp.minimum(jnp.minimum(best, top - a), b - bottom)
    # Ends are met exactly, and the partner takes what the first really moved and what earlier roundings left.
    new_a = jnp.where(t >= top - a, top, snap_to_bound(a + t, a, index_row(bounds.low, i), index_row(bounds.high, i)))
    low, high = index_row(bounds.low, j), index_row(bounds.high, j)
    new_b = snap_to_bound(jnp.clip(b - (new_a - a) - sum_error, bottom, high), b, low, high)
    new_b = jnp.where(t >= b - bottom, bottom, new_b)
    new_a, new_b = jnp.where(best > 0, new_a, a), jnp.where(best > 0, new_b, b)
    index, new, by = jnp.stack([i, j]), jnp.stack([new_a, new_b]), jnp.stack([new_a - a, new_b - b])
    change = -by[0] * own - by[1] * other
    dual = dual._replace(coef=coef.at[index].set(new, mode="promise_in_bounds"), grad=grad + change)
    return dual, sum_error + (by[0] + by[1]), SmoStep(index, by, jnp.maximum(fast_max(lead), 0), change)


def coordinate_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One step along the coordinate that gains most, exactly; nothing keeps the sum.

        t = clip(rise_i / K_ii, 0, high_i - coef_i), or the same downwards;   i = argmax t (rise_i - t K_ii / 2)

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012, section 5, SMO
        as in its authors' program.
    """
    coef, grad, bounds, diag = dual
    up, down = gain_up(dual), -gain_down(dual)
    sign = jnp.where(up >= down, 1, -1).astype(coef.dtype)
    rate = jnp.maximum(jnp.maximum(up, down), 0)
    end = jnp.where(sign > 0, bounds.high, bounds.low)
    if bounds.l1 is not None:
        end = jnp.where((sign * coef < 0) & (bounds.l1 > 0), 0, end)
    room, curve = jnp.abs(end - coef), _curvature(diag, diag)
    t = jnp.minimum(rate / curve, room)
    i, gain = argmax_value(jnp.where(rate > 0, t * (rate - t * curve / 2), -1))
    old = index_row(coef, i)
    new = snap_to_bound(index_row(coef + sign * t, i), old, index_row(bounds.low, i), index_row(bounds.high, i))
    new = jnp.where(index_row(rate / curve >= room, i), index_row(end, i), new)
    by = jnp.where(gain > 0, new, old) - old
    change = -by * row(i)
    dual = dual._replace(coef=coef.at[i].set(jnp.where(gain > 0, new, old), mode="promise_in_bounds"), grad=grad + change)
    return dual, sum_error, SmoStep(jnp.stack([i, i]), jnp.stack([by, jnp.zeros_like(by)]), fast_max(rate), change)


STEPS = {"free": pair_step, "none": coordinate_step}


def solve(gram: Array, dual: Dual, sum_error: Array, tol: Array, bias: str, most: int) -> tuple[Dual, Array]:
    """SMO on a few coefficients, the others held: until the violation among them is at most `tol`.

    Args:
        gram: (q, q), soft added on the diagonal.
        dual: of q coefficients.
        sum_error: as of `pair`.
        tol: ().
        bias: "free" or "none".
        most: steps at most.

    Returns:
        The dual and the drift.
    """

    def body(carry):
        dual, sum_error, steps, _, _ = carry
        dual, sum_error, move = STEPS[bias](lambda i: index_row(gram, i), dual, sum_error)
        return dual, sum_error, steps + 1, move.gap, jnp.any(move.by != 0)

    def goes_on(carry):
        _, _, steps, gap, moved = carry
        return (gap > tol) & moved & (steps < most)

    infinite = jnp.full((), jnp.inf, dual.grad.dtype)
    carry = (dual, sum_error, jnp.zeros((), jnp.int32), infinite, jnp.ones((), bool))
    return lax.while_loop(goes_on, body, carry)[:2]


def make_feasible(coef: Array, bounds: Quadratic, bias: str) -> Array:
    """Coefficients within their bounds and, with a free bias, of sum 0: the heavier side is scaled down."""
    coef = jnp.clip(coef, bounds.low, bounds.high)
    if bias != "free":
        return coef
    up, down = jnp.sum(jnp.maximum(coef, 0)), jnp.sum(jnp.maximum(-coef, 0))
    # Rounding is left to `drift`: scaling it away would take a whole side off its bounds.
    even = jnp.abs(up - down) <= 1e-6 * jnp.maximum(up, down)
    share = lambda side: jnp.where(even, 1, jnp.minimum(1, jnp.minimum(up, down) / jnp.where(side > 0, side, 1)))  # noqa: E731
    return jnp.where(coef > 0, coef * share(up), coef * share(down))


def kernel_check(kernel: Kernel) -> Callable | None:
    """The check of data that a kernel asks for, `Solver.validate`."""
    return functools.partial(check_symmetric, kernel) if holds_precomputed(kernel) else None


def stop_gradients(tree):
    """No derivative flows through a solver's own steps: `implicit.solution` has those of what they lead to."""
    return jax.tree.map(lax.stop_gradient, tree)
