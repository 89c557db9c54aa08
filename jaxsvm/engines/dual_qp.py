"""Box-constrained quadratic duals: gains, violation, bias, duality gap.

    D(coef) = sum_i (y_i coef_i - l1_i |coef_i| - l2_i/2 coef_i^2) - 1/2 coef' K coef,
        low_i <= coef_i <= high_i

and sum_i coef_i = 0 where the bias is free. `Loss.quadratic` returns low, high, l1 and l2. The
coefficients are signed; `grad` is the derivative without the l1 term, grad_i = y_i - (K coef)_i -
l2_i coef_i.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from .._node import cast, node, positive, register
from ..implicit import at_bound, solution
from ..kernels import Kernel, matvec
from ..losses import hinge
from ..models import Expansion, expansion
from ..numerics import (
    accum_dtype,
    balanced,
    fast_max,
    fast_min,
    fold,
    index_row,
    is_traced,
    rounding_of,
    two_sum,
)
from ..types import (
    MOST_ROUNDINGS,
    Array,
    Batch,
    Info,
    Loss,
    Quadratic,
    Scalar,
)
from .base import AllRowsSolver
from .linear_dual import check_quadratic


class Dual(NamedTuple):
    """Coefficients with derivative, bounds and curvature: of all rows, or of a working set.

    In the problems of `nu_qp` coefficients and bounds are (k, n), a row for each part.
    """

    coef: Array  # (n,)  exactly within its bounds
    grad: Array  # (n,)
    bounds: Quadratic  # of (n,)
    diag: Array  # (n,)  k(x_i, x_i) + l2_i

    def at_state(self, state: DualState) -> Dual:
        """The same rows with the coefficients and derivatives of `state`."""
        return self._replace(coef=state.coef, grad=state.grad + state.compensation)

    @property
    def total(self) -> Array:
        """The coefficient of each row, (n,), the sum of its parts."""
        return self.coef if self.coef.ndim == 1 else jnp.sum(self.coef, axis=0)


@register("DualState")
class DualState(NamedTuple):
    """Solver state of a quadratic dual: the coefficients and the derivative.

    The derivative is kept by compensated summation.
    """

    coef: Array  # (n,), or (k, n) for the problems of `nu_qp`
    grad: Array  # (n,)
    compensation: Array  # (n,)  rounding errors of `grad`, still to be added
    sum_error: Array  # () or (k,)   sum_i coef_i less what it should be, 0 but for rounding
    weight: Array  # (n,)  example weights


def add_l2(values: Array, dual: Dual, i: Array) -> Array:
    """Row i of the kernel (n,) plus l2_i at entry i, as a step reads it."""
    return values if dual.bounds.l2 is None else values.at[i].add(index_row(dual.bounds.l2, i))


class Problem(NamedTuple):
    """The quadratic program that is maximised.

    Whether sum_i coef_i = 0 is a separate argument `bias`.
    """

    C: Scalar  # ()
    kernel: Kernel
    loss: Loss

    @property
    def real_targets(self) -> bool:
        """Whether the targets are real numbers, which may lie far from 0."""
        return not self.loss.labels

    def dual(self, state: DualState, x: Array, y: Array) -> Dual:
        """The coefficients of a state with their derivatives, bounds and curvatures."""
        return self.dual_from_diag(state, self.kernel.diag(x), y)

    def dual_from_diag(self, state: DualState, diag: Array, y: Array) -> Dual:
        """As `dual`, from the values k(x_i, x_i) (n,)."""
        bounds = self.loss.quadratic(y, self.C * state.weight)
        diag = diag if bounds.l2 is None else diag + bounds.l2
        return Dual(state.coef, state.grad + state.compensation, bounds, diag)

    def feasible_start(self, state: DualState, product: Callable) -> tuple[DualState, int]:
        """The state itself: that of `init_state` is feasible."""
        return state, 0

    def residual(
        self, dual: Dual, weight: Array, y: Array, stop: str, bias: str, tol: Array
    ) -> Residual:
        """As `residual_of`, with the example weights (n,) in place of C."""
        return residual_of(dual, y, self.C * weight, self.loss, stop, bias, tol)


@node
class QpSolver(AllRowsSolver):
    """A solver of the quadratic program of a kernel machine."""

    C: float = positive()
    kernel: Kernel
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["free", "none"] = "free"
    start: Array | None = None  # (n,) initial alpha; None: zeros

    @property
    def qp(self) -> Problem:
        """The quadratic program."""
        return Problem(self.C, self.kernel, self.loss)

    def check(self) -> None:
        check_start(self.start)
        check_quadratic(self.loss, by_kernel=True)

    def layout(self, data: Batch) -> Batch:
        return self.kernel.layout(data)


def check_start(start: Array | None) -> None:
    """Raise ValueError for a known `start` with numbers that are not finite."""
    if start is not None and not is_traced(start) and not np.all(np.isfinite(np.asarray(start))):
        raise ValueError(
            "start holds numbers that are not finite: leave it out, or pass the "
            "alpha of a finished run"
        )


def init_state(qp: Problem, bias: str, data: Batch, start: Array | None) -> DualState:
    """The initial state: zeros, or `start` (n,) projected onto the constraints.

    Raises:
        ValueError: start of another length than the data.
    """
    dtype, n, loss = accum_dtype(data.x), data.y.shape[0], qp.loss
    weight, y = jnp.array(data.weight, dtype), jnp.array(data.y, dtype)
    coef, grad = jnp.zeros(n, dtype), y
    if start is not None:
        if jnp.shape(start) != (n,):
            raise ValueError(
                f"start has shape {jnp.shape(start)}, expected one number for each of the {n} rows"
            )
        bounds = loss.quadratic(y, jnp.asarray(qp.C, dtype) * weight)
        coef = make_feasible(jnp.asarray(start, dtype) * (y if loss.labels else 1), bounds, bias)
        l2 = 0 if bounds.l2 is None else bounds.l2 * coef
        grad = y - matvec(qp.kernel, data.x, data.x, coef) - l2
    sum_error = jnp.sum(coef) if bias == "free" else jnp.zeros((), dtype)
    return lax.stop_gradient(DualState(coef, grad, jnp.zeros_like(grad), sum_error, weight))


def step_info(
    qp: Problem, bias: str, states: tuple, x: Array, y: Array, residual: Array, evals: Array
) -> Info:
    """The step information of a step between two states `(before, after)`."""
    before, after = (qp.dual(state, x, y) for state in states)
    score, weight = scores(before, y, intercept(before, bias)), states[0].weight
    sums = weight * qp.loss.value(score, y), weight, (after.coef != 0).astype(jnp.int32)
    total, weights, support = fold(sums)
    loss = total / jnp.maximum(weights, jnp.finfo(y.dtype).tiny)
    index = jnp.where(after.coef != before.coef, jnp.arange(y.shape[0], dtype=jnp.int32), -1)
    return Info(loss, residual, dual_gain(before, after), index, support, evals)


def build_model(qp: Problem, bias: str, state: DualState, data: Batch | None) -> Expansion:
    """The model of a state; its derivatives are those of the exact solution."""
    model = expansion(qp.kernel, state.coef, data, bias)
    assert data is not None  # `expansion` refuses None
    qp = cast(qp, state.coef.dtype)
    b = lax.stop_gradient(intercept(qp.dual(state, data.x, data.y.astype(state.coef.dtype)), bias))
    coef, b = solution(state.coef, b, qp.kernel, data, qp.C, qp.loss, bias)
    return dataclasses.replace(model, coef=coef, b=b)


def gain_up(dual: Dual) -> Array:
    """The derivative of D as each coefficient increases, (n,); -inf at its upper bound."""
    coef, grad, bounds, _ = dual
    gain = grad if bounds.l1 is None else grad - jnp.where(coef >= 0, bounds.l1, -bounds.l1)
    return jnp.where(coef < bounds.high, jnp.broadcast_to(gain, coef.shape), -jnp.inf)


def gain_down(dual: Dual) -> Array:
    """The decrease rate of D as each coefficient decreases, (n,); inf at its lower bound."""
    coef, grad, bounds, _ = dual
    gain = grad if bounds.l1 is None else grad - jnp.where(coef > 0, bounds.l1, -bounds.l1)
    return jnp.where(coef > bounds.low, jnp.broadcast_to(gain, coef.shape), jnp.inf)


def violation(dual: Dual, bias: str) -> Array:
    """The violation of the optimality conditions (), in units of y, 0 at the maximum of D.

    With a free bias LIBSVM's max gain_up - min gain_down; without one the largest |projected
    derivative|.
    """
    return violation_of(fast_max(gain_up(dual)), fast_min(gain_down(dual)), bias)


def violation_of(up: Array, down: Array, bias: str) -> Array:
    """The violation by the largest gain_up and the smallest gain_down, () each."""
    return jnp.maximum(up - down if bias == "free" else jnp.maximum(up, -down), 0)


@functools.partial(jax.jit, static_argnames=("bias",))
def intercept(dual: Dual, bias: str) -> Array:
    """The bias b () by the optimality conditions, without derivatives.

    It is the mean over free coefficients, else the midpoint of its interval. Bounds are rounded, so
    that sum_i coef_i = 0 is known to the rounding of its terms only. Where all free coefficients
    are so near to an end, as one is that makes up for it, none counts as free.
    """
    coef, grad, bounds, _ = dual = lax.stop_gradient(dual)
    if bias != "free":
        return jnp.zeros((), grad.dtype)
    free = ~functools.reduce(jnp.logical_or, at_bound(coef, bounds))
    value = grad if bounds.l1 is None else grad - bounds.l1 * jnp.sign(coef)
    end = jnp.where(coef - bounds.low <= bounds.high - coef, bounds.low, bounds.high)
    if bounds.l1 is not None:
        end = jnp.where((bounds.l1 > 0) & (jnp.abs(coef) <= jnp.abs(coef - end)), 0, end)
    dual = dual._replace(coef=end)
    sums = free.astype(value.dtype), jnp.where(free, value, 0), jnp.abs(coef)
    highs = jnp.where(free, jnp.abs(coef - end), 0), gain_up(dual)
    number, total, size, farthest, up, down = fold(sums, highs, (gain_down(dual),))
    ends = jnp.where(jnp.isfinite(up), jnp.where(jnp.isfinite(down), (up + down) / 2, up), down)
    ends = jnp.where(jnp.isfinite(ends), ends, 0)  # no row of positive weight
    is_free = farthest > jnp.finfo(coef.dtype).eps * size
    return jnp.where(is_free, total / jnp.maximum(number, 1), ends)


def scores(dual: Dual, y: Array, b: Array) -> Array:
    """The scores f(x_i) = (K coef)_i + b, (n,)."""
    l2 = 0 if dual.bounds.l2 is None else dual.bounds.l2 * dual.coef
    return y - dual.grad - l2 + b


def dual_gain(before: Dual, after: Dual) -> Array:
    """The increase of D by the change of each coefficient, (n,).

    Their sum is exact, since D is quadratic.
    """
    change, l1 = after.coef - before.coef, before.bounds.l1
    l1_change = 0 if l1 is None else l1 * (jnp.abs(after.coef) - jnp.abs(before.coef))
    return change * (before.grad + after.grad) / 2 - l1_change


def relative_gap(dual: Dual, y: Array, C: Array, loss: Loss, bias: str) -> tuple[Array, Array]:
    """The relative duality gap (P - D) / P (), as a sum of nonnegative terms, and P ().

    Args:
        dual: of all n coefficients.
        y: (n,) targets.
        C: (n,) weight of each row's loss, >= 0.
        loss: of scores.
        bias: "free" or "none", as in the dual.
    """
    b = intercept(dual, bias)
    score = scores(dual, y, b)
    safe_C = jnp.where(C > 0, C, 1)
    value = loss.value(score, y)
    slope = -dual.coef / safe_C
    terms = jnp.maximum(value + loss.conjugate(slope, y) - slope * score, 0)
    weighted_sum = lambda a: jnp.sum(jnp.where(C > 0, C * a, 0))
    primal = jnp.dot(dual.coef, score - b) / 2 + weighted_sum(value)
    return weighted_sum(terms) / jnp.where(primal > 0, primal, 1), primal


class Residual(NamedTuple):
    """How far coefficients are from the solution, () each."""

    value: Array  # as `decomposition` defines it by `stop`; see `residual_at`
    kkt: Array  # the violation
    goal: Array  # the value to stop at
    unsolved: Array  # bool, whether the value without rounding is above `goal`
    near: Array  # bool, whether the value is at most `MOST_ROUNDINGS` times its rounding


def residual_at(value: Array, kkt: Array, rounding: Array, tol: Array) -> Residual:
    """The residual of a value whose error by rounding is `rounding`, () each.

    Steps go on to tol - rounding, or to half of the larger one of the two. Where rounding
    exceeds the tolerance, the residual is at least `rounding`, so that the tolerance is not met.
    """
    goal = jnp.maximum(tol - rounding, jnp.maximum(tol, rounding) / 2)
    residual = jnp.where(rounding > tol, jnp.maximum(value, rounding), value)
    return Residual(residual, kkt, goal, value > goal, value <= MOST_ROUNDINGS * rounding)


def residual_of(
    dual: Dual, y: Array, C: Array, loss: Loss, stop: str, bias: str, tol: Array
) -> Residual:
    """The residual of coefficients.

    Args:
        dual: of all n coefficients.
        y: (n,) targets.
        C: (n,) weight of each row's loss, >= 0.
        loss: of scores.
        stop: "kkt" or "gap".
        bias: "free" or "none".
        tol: () the residual that was asked for.
    """
    square, diag = jnp.abs(dual.coef * dual.diag * dual.coef), dual.diag
    highs, lows = (gain_up(dual), diag), (gain_down(dual), diag)
    square, up, most, down, least = fold((square,), highs, lows)
    kkt = violation_of(up, down, bias)
    rounding = rounding_of(jnp.maximum(most, -least), square)
    if stop == "gap":
        gap, primal = relative_gap(dual, y, C, loss, bias)
        share = jnp.sum(jnp.abs(dual.coef)) / jnp.where(primal > 0, primal, 1)
        return residual_at(gap, kkt, rounding * share, tol)
    return residual_at(kkt, kkt, rounding, tol)


def shift_grad(state: DualState, shift: Array | None) -> DualState:
    """The state with `shift` () added to the derivative, without rounding; None: the same state."""
    if shift is None:
        return state
    grad, rounding = two_sum(state.grad, jnp.zeros_like(state.grad), shift)
    return state._replace(grad=grad, compensation=state.compensation + rounding)


def centre(qp: Any, state: DualState, dual: Dual, bias: str) -> tuple[DualState, Array | None]:
    """The state with a derivative around 0, and the shift () that undoes it; None: there is none.

    With a free bias steps read differences of derivatives. These lose digits where real targets,
    and so all derivatives, are far from 0. The shift is the middle of the violation of `dual`, that
    of the state.
    """
    if bias == "none" or not qp.real_targets:
        return state, None
    middle = jnp.mean((fast_max(gain_up(dual)) + fast_min(gain_down(dual))) / 2)
    shift = jnp.where(jnp.isfinite(middle), middle, 0)  # no row of positive weight
    return shift_grad(state, -shift), shift


class Idle(NamedTuple):
    """What tells that rounding has stopped a run, () each."""

    looks: Array  # int32, those in a row without a new least violation
    least: Array  # the least violation of all looks


PATIENCE = 10  # looks in a row without a new least violation after which a run ends


def never_idle(dtype: DTypeLike) -> Idle:
    """Before the first look."""
    return Idle(jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, dtype))


def count_idle(idle: Idle, residual: Residual, changed: Array | bool = True) -> Idle:
    """As `idle`, after another look.

    Near rounding, steps that only change the rounding leave the least violation as it was. Where
    not even a coefficient has `changed`, no more looks are of use.
    """
    improves = (residual.kkt < idle.least) | ~residual.near
    looks = jnp.where(improves, 0, idle.looks + 1)
    least = jnp.minimum(idle.least, residual.kkt)
    return Idle(looks if changed is True else jnp.where(changed, looks, PATIENCE), least)


def make_feasible(coef: Array, bounds: Quadratic, bias: str) -> Array:
    """Coefficients clipped to their bounds and, with a free bias, of sum 0.

    The side of larger sum is scaled down.
    """
    coef = jnp.clip(coef, bounds.low, bounds.high)
    if bias != "free":
        return coef
    up, down = jnp.sum(jnp.maximum(coef, 0)), jnp.sum(jnp.maximum(-coef, 0))
    # Rounding is left to `sum_error`: to scale it away would move a whole side off its bounds.
    near = jnp.abs(up - down) <= 1e-6 * jnp.maximum(up, down)
    return jnp.where(near, coef, balanced(coef))
