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


def pair_step(row: Callable, dual: Dual, sum_error: Array) -> tuple[Dual, Array, SmoStep]:
    """One SMO step on a pair, which keeps the sum of the coefficients.

    The pair is found by second order working set selection:

        i = argmax gain_up;   j = argmax (gain_up_i - gain_down_j)^2 / (K_ii + K_jj - 2 K_ij);
        coef_i += t, coef_j -= t

    Of coefficients in parts each part has its own row i. Among the pairs of all parts the best by
    second order is taken, and the sum of each part is kept.

    Args:
        row: i -> (n,) kernel values of row i, plus l2_i at entry i.
        dual: before the step; coefficients and bounds are (n,), or (k, n) without l1 and l2.
        sum_error: () or (k,) what the sums are off by, which this step corrects.

    Returns:
        The dual after the step, its sum_error, and the step.

    Reference: R.-E. Fan, P.-H. Chen, C.-J. Lin, Working set selection using second order
        information, JMLR 6, 2005; of parts: C.-C. Chang, C.-J. Lin, LIBSVM: a library for support
        vector machines, ACM TIST 2, 2011, section 4.2.
    """
    coef, grad, bounds, diag = dual

    def pairs_of(up, down):
        """The row i of largest gain, its kernel values, and what decides on j, (n,) each."""
        i, largest = argmax_value(up)
        row_i, difference = row(i), largest - down
        scale = index_row(diag, i) + diag
        curvature = _curvature(scale - 2 * row_i, scale)
        gain = jnp.where(difference > 0, difference * difference / curvature, -1)
        return i, row_i, difference, curvature, gain

    at: Callable = index_row
    part: tuple = ()
    if coef.ndim == 1:
        error = sum_error
        i, row_i, difference, curvature, gain = pairs_of(gain_up(dual), gain_down(dual))
        j, _ = argmax_value(gain)
    else:
        found = [pairs_of(*gains) for gains in zip(gain_up(dual), gain_down(dual), strict=True)]
        tops, rows, difference, curvature, gain = map(jnp.stack, zip(*found, strict=True))
        best, _ = argmax_value(gain.reshape(-1))
        k, j = best // len(grad), best % len(grad)
        i, row_i, error = (index_row(a, k) for a in (tops, rows, sum_error))
        at, part = lambda a, i: lax.dynamic_slice(a, (k, i), (1, 1))[0, 0], (k,)
    row_j, a, b = row(j), at(coef, i), at(coef, j)

    def end(bound, i, is_beyond):
        """The bound of a coefficient, or 0 where l1 > 0 puts a kink before it."""
        if bounds.l1 is None:
            return at(bound, i)
        return jnp.where(is_beyond & (index_row(bounds.l1, i) > 0), 0, at(bound, i))

    upper, lower = end(bounds.high, i, a < 0), end(bounds.low, j, b > 0)
    of_a, of_b = ((at(bounds.low, k), at(bounds.high, k)) for k in (i, j))
    free_step = jnp.maximum(at(difference, j) / at(curvature, j), 0)
    # Bounds are met exactly. The partner changes by the rounded change of a, and corrects the sum.
    t = jnp.minimum(jnp.minimum(free_step, upper - a), b - lower)
    new_a = jnp.where(t >= upper - a, upper, snap_to_bound(a + t, a, *of_a))
    new_b = snap_to_bound(jnp.clip(b - (new_a - a) - error, *of_b), b, *of_b)
    new_b = jnp.where(t >= b - lower, lower, new_b)
    new_a, new_b = jnp.where(free_step > 0, new_a, a), jnp.where(free_step > 0, new_b, b)
    index, by = jnp.stack([i, j]), jnp.stack([new_a - a, new_b - b])
    change = -by[0] * row_i - by[1] * row_j
    # two slice updates compile to less than a scatter
    for k, value in zip((i, j), (new_a, new_b), strict=True):
        coef = lax.dynamic_update_slice(coef, value.reshape((1,) * coef.ndim), (*part, k))
    added = by[0] + by[1]
    if part:
        added = jnp.where(lax.iota(jnp.int32, len(coef)) == part[0], added, 0)
    gap = jnp.maximum(jnp.max(fast_max(difference)), 0)
    dual = dual._replace(coef=coef, grad=grad + change)
    return dual, sum_error + added, SmoStep(index, by, gap, change)


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


STEPS = {"free": pair_step, "none": coordinate_step, "parts": pair_step}


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
