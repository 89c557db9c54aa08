"""Steps of sequential minimal optimisation: pairs of coefficients with a free bias, one without."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import argmax_value, fast_max, index_row, two_sum
from ..types import Array
from .dual_qp import Dual, gain_down, gain_up


def snap_to_bound(new: Array, old: Array, low: Array, high: Array) -> Array:
    """A coefficient, moved to its bound where it is within rounding of it.

    The next step corrects the sum.
    """
    rounding = 2 * jnp.finfo(new.dtype).eps * jnp.maximum(jnp.abs(old), jnp.abs(new))
    return jnp.where(high - new <= rounding, high, jnp.where(new - low <= rounding, low, new))


def _curvature(value: Array, scale: Array) -> Array:
    """The curvature, bounded away from 0: for duplicate rows only rounding is left of it."""
    return jnp.maximum(value, 4 * jnp.finfo(value.dtype).eps * jnp.maximum(scale, 1e-12))


class SmoStep(NamedTuple):
    """The rows that one step changed, and by how much."""

    index: Array  # type: ignore[assignment]  # (2,)  int32, the rows of the step
    by: Array  # (2,)  changes of their coefficients, 0 where below rounding
    gap: Array  # ()   violation before the step
    change: Array  # (n,)  the change of `grad`, unrounded, for compensated summation


def _move_pair(
    a: Array, b: Array, ends: tuple, limits: tuple, free_step: Array, sum_error: Array
) -> tuple[Array, Array]:
    """The coefficients of a pair after the step a += t, b -= t, with t = free_step if it fits.

    Bounds are met exactly. The partner changes by the rounded change of a and corrects the sum
    error.

    Args:
        a: () the first coefficient before the step.
        b: () the second one.
        ends: the lower end of b and the upper end of a for this step, () each.
        limits: the bounds (low, high) of a, and those of b.
        free_step: () the step without bounds, >= 0.
        sum_error: () what the sum of the coefficients is off by.
    """
    (lower, upper), (limits_a, limits_b) = ends, limits
    t = jnp.minimum(jnp.minimum(free_step, upper - a), b - lower)
    new_a = jnp.where(t >= upper - a, upper, snap_to_bound(a + t, a, *limits_a))
    new_b = snap_to_bound(jnp.clip(b - (new_a - a) - sum_error, *limits_b), b, *limits_b)
    new_b = jnp.where(t >= b - lower, lower, new_b)
    return jnp.where(free_step > 0, new_a, a), jnp.where(free_step > 0, new_b, b)


def pair_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One SMO step on a pair, which keeps the sum of the coefficients.

    The pair is found by second order working set selection:

        i = argmax gain_up;   j = argmax (gain_up_i - gain_down_j)^2 / (K_ii + K_jj - 2 K_ij);
        coef_i += t, coef_j -= t

    Args:
        row: i -> (n,) kernel values of row i, plus l2_i at entry i.
        dual: before the step.
        sum_error: () the sum of the coefficients, which this step corrects.

    Returns:
        The dual after the step, its sum_error, and the step.

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order
        information, JMLR 6, 2005.
    """
    coef, grad, bounds, diag = dual
    i, up = argmax_value(gain_up(dual))
    row_i, gain_difference = row(i), up - gain_down(dual)
    scale = index_row(diag, i) + diag
    curvature = _curvature(scale - 2 * row_i, scale)
    gain = jnp.where(gain_difference > 0, gain_difference * gain_difference / curvature, -1)
    j, _ = argmax_value(gain)
    row_j = row(j)
    a, b = index_row(coef, i), index_row(coef, j)

    def end(bound, k, is_beyond):
        """The bound of a coefficient, or 0 where l1 > 0 puts a kink before it."""
        if bounds.l1 is None:
            return index_row(bound, k)
        return jnp.where(is_beyond & (index_row(bounds.l1, k) > 0), 0, index_row(bound, k))

    upper, lower = end(bounds.high, i, a < 0), end(bounds.low, j, b > 0)
    free_step = jnp.maximum(index_row(gain_difference, j) / index_row(curvature, j), 0)
    ends = (lower, upper)
    limits = tuple((index_row(bounds.low, k), index_row(bounds.high, k)) for k in (i, j))
    new_a, new_b = _move_pair(a, b, ends, limits, free_step, sum_error)
    index, by = jnp.stack([i, j]), jnp.stack([new_a - a, new_b - b])
    change = -by[0] * row_i - by[1] * row_j
    # two slice updates compile to less than a scatter
    for k, value in ((i, new_a), (j, new_b)):
        coef = lax.dynamic_update_index_in_dim(coef, value, k, 0)
    dual = dual._replace(coef=coef, grad=grad + change)
    gap = jnp.maximum(fast_max(gain_difference), 0)
    return dual, sum_error + (by[0] + by[1]), SmoStep(index, by, gap, change)


def part_pair_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One SMO step on a pair of one part, which keeps the sum of each part.

    Each part has its own row of largest gain. Among the pairs of all parts the best by second order
    is taken:

        i_k = argmax gain_up_k;   k, j = argmax (gain_up_k,i_k - gain_down_kj)^2 / curvature
        coef_ki += t, coef_kj -= t

    Args:
        row: i -> (n,) kernel values of row i.
        dual: before the step; coefficients and bounds are (k, n), a row for each part.
        sum_error: (k,) what the sums of the parts are off by.

    Returns:
        As `pair_step`.

    Reference: C.-C. Chang, C.-J. Lin, LIBSVM: a library for support vector machines, ACM TIST 2,
        2011, section 4.2.
    """
    coef, grad, bounds, diag = dual
    n = grad.shape[0]
    top, up = jax.vmap(argmax_value)(gain_up(dual))
    top_rows = jnp.stack([row(top[k]) for k in range(coef.shape[0])])
    gain_difference = up[:, None] - gain_down(dual)
    scale = jnp.stack([index_row(diag, i) for i in top])[:, None] + diag[None, :]
    curvature = _curvature(scale - 2 * top_rows, scale)
    gain = jnp.where(gain_difference > 0, gain_difference * gain_difference / curvature, -1)
    best, _ = argmax_value(gain.reshape(-1))
    k, j = best // n, best % n
    i, row_i, row_j = index_row(top, k), index_row(top_rows, k), row(j)
    at = lambda a, column: lax.dynamic_slice(a, (k, column), (1, 1))[0, 0]
    a, b = at(coef, i), at(coef, j)
    limits = tuple((at(bounds.low, column), at(bounds.high, column)) for column in (i, j))
    free_step = jnp.maximum(at(gain_difference, j) / at(curvature, j), 0)
    ends = (limits[1][0], limits[0][1])
    new_a, new_b = _move_pair(a, b, ends, limits, free_step, index_row(sum_error, k))
    by = jnp.stack([new_a - a, new_b - b])
    change = -by[0] * row_i - by[1] * row_j
    for column, value in ((i, new_a), (j, new_b)):
        coef = lax.dynamic_update_slice(coef, value[None, None], (k, column))
    added = jnp.where(lax.iota(jnp.int32, coef.shape[0]) == k, by[0] + by[1], 0)
    gap = jnp.maximum(jnp.max(fast_max(gain_difference)), 0)
    dual = dual._replace(coef=coef, grad=grad + change)
    return dual, sum_error + added, SmoStep(jnp.stack([i, j]), by, gap, change)


def coordinate_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One exact step on the coordinate of the largest gain.

    The sum of the coefficients is unconstrained.

        t = clip(gain_up_i / K_ii, 0, high_i - coef_i), or the same downwards;
        i = argmax t (gain_up_i - t K_ii / 2)

    Args and Returns: as in `pair_step`; `sum_error` is returned unchanged.

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 5, SMO as in its authors' program.
    """
    coef, grad, bounds, diag = dual
    up, down = gain_up(dual), -gain_down(dual)
    sign = jnp.where(up >= down, 1, -1).astype(coef.dtype)
    rate = jnp.maximum(jnp.maximum(up, down), 0)
    end = jnp.where(sign > 0, bounds.high, bounds.low)
    if bounds.l1 is not None:
        end = jnp.where((sign * coef < 0) & (bounds.l1 > 0), 0, end)
    room, curvature = jnp.abs(end - coef), _curvature(diag, diag)
    t = jnp.minimum(rate / curvature, room)
    i, gain = argmax_value(jnp.where(rate > 0, t * (rate - t * curvature / 2), -1))
    old = index_row(coef, i)
    limits = index_row(bounds.low, i), index_row(bounds.high, i)
    new = snap_to_bound(index_row(coef + sign * t, i), old, *limits)
    by = jnp.where(gain > 0, new, old) - old
    change = -by * row(i)
    new_coef = coef.at[i].set(jnp.where(gain > 0, new, old), mode="promise_in_bounds")
    index, by = jnp.stack([i, i]), jnp.stack([by, jnp.zeros_like(by)])
    step = SmoStep(index, by, fast_max(rate), change)
    return dual._replace(coef=new_coef, grad=grad + change), sum_error, step


STEPS = {"free": pair_step, "none": coordinate_step, "parts": part_pair_step}


class Solved(NamedTuple):
    """The steps on pairs of one working set so far."""

    dual: Dual
    compensation: Array | None  # (q,)  rounding errors of `dual.grad`, still to be added
    sum_error: Array  # (), or (k,) for parts
    steps: Array  # ()  int32, steps made
    gap: Array  # ()  violation before the last step; inf if none was made
    changed: Array  # ()  bool, the last step changed a coefficient; true if none was made


@jax.named_scope("solve_pairs")
def solve(
    gram: Array,
    dual: Dual,
    sum_error: Array,
    tol: Array,
    bias: str,
    max_steps: Array | int,
    compensation: Array | None = None,
) -> Solved:
    """SMO on a working set of q coefficients with the others fixed.

    It ends once the violation in the set is at most `tol`, or a step is below rounding.

    Args:
        gram: (q, q) kernel, with l2 added on the diagonal.
        dual: of the q coefficients.
        sum_error: (), as in `pair_step`.
        tol: () largest violation at the end, units of y.
        bias: "free", "none", or "parts" for the problems of `nu_qp`.
        max_steps: maximum number of steps.
        compensation: (q,) the rounding errors of `dual.grad`, which is then summed with
            compensation; None: summed without, for sets whose derivative is not kept.
    """

    def step(at: Solved) -> Solved:
        own, rounding = at.dual, at.compensation
        if rounding is not None:
            own = own._replace(grad=own.grad + rounding)
        new, sum_error, made = STEPS[bias](lambda i: index_row(gram, i), own, at.sum_error)
        if rounding is not None:
            grad, rounding = two_sum(at.dual.grad, rounding, made.change)
            new = new._replace(grad=grad)
        return Solved(new, rounding, sum_error, at.steps + 1, made.gap, jnp.any(made.by != 0))

    infinite, zero = jnp.full((), jnp.inf, dual.grad.dtype), jnp.zeros((), jnp.int32)
    begin = Solved(dual, compensation, sum_error, zero, infinite, jnp.ones((), bool))
    goes_on = lambda at: (at.gap > tol) & at.changed & (at.steps < max_steps)
    return lax.while_loop(goes_on, step, begin)
