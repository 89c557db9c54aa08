"""Wolfe's method of conjugate subgradients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import models
from ..checks import integer
from ..engines.conjugate import (
    FunctionValues,
    above_rounding,
    add_scaled,
    bounded_step,
    check_constants,
    combined,
    exact_step,
    line_of,
    make_space,
    nearest_point,
    recompute_values,
    scale,
    subgradient,
)
from ..engines.dual_qp import kernel_check
from ..kernels import Kernel, as_kernel
from ..models import Linear
from ..numerics import accum_dtype, count, dot, pairwise_sum, times_count
from ..recipe import check_choice, check_nonnegative, check_positive, register, solver
from ..samplers import whole
from ..types import Array, Info, Solver


@register("Bundle")
class Bundle(NamedTuple):
    """Subgradients lam w - z of several points, the first a combination of those that were given up."""

    h: FunctionValues  # (m, ...)
    z: FunctionValues  # (m, ...)
    a: Array  # (m, n)  in [0, 1]
    active: Array  # (m,)  bool


@register("WolfeState")
class WolfeState(NamedTuple):
    """The function, the point whose subgradient comes next and its active rows, the bundle, and the best dual value."""

    w: FunctionValues
    trial: FunctionValues
    a: Array  # (n,)
    bundle: Bundle
    dual: Array  # ()
    weight: Array  # (n,)
    t: Array  # ()   int32


@solver
def wolfe(
    lam: float,
    kernel: Kernel | None = None,
    *,
    bundle: int = 2,
    weights: str = "norm",
    line_search: str = "exact",
    reset: float = 0.5,
    m_L: float = 0.4,
    m_R: float = 0.45,
) -> Solver:
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) along the shortest combination of subgradients, without bias.

        h = the vector of least norm in the hull of the subgradients;   w = w + t (-h),   t from a search along the line
        the subgradient at w - t h with the right slope joins;   h takes the place of those that leave
        where |h|^2 < 2 lam reset gap, all but the last leave

    Subgradients are lam w - sum_i share_i a_i y_i phi(x_i), a in [0, 1]: the same combination of their a is feasible in the
    dual, which makes |h| small and the duality gap small together. One product with the kernel matrix a step.

    Args:
        lam: regularisation, > 0; from max k(x, x) on the first step ends at the optimum, sum_i share_i y_i phi(x_i) / lam.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); None is linear.
        bundle: vectors at hand, >= 2: the combination so far and the newest ones; structure.
        weights: "norm": the hull's vector of least norm; "dual": its combination of highest dual value, for
            h = lam w - sum_i share_i a_i y_i phi(x_i) at the current w, which never resets; structure.
        line_search: "exact" (the minimum along the line) or "wolfe" (m_L, m_R: decrease t m_L |h|^2 at least, slope -m_R |h|^2
            at least); structure.
        reset: kappa, >= 0; the larger, the more often; 0 never resets. The default 0.5 resets where |h|^2 < lam gap.
        m_L: in (0, 1).
        m_R: in [m_L, 1): otherwise a search may find nothing.

    Returns:
        A solver on all rows, all of them a step. Model `Expansion` over all rows, or `Linear`. The residual is the relative
        duality gap (P - D) / P before the step, by the best D so far: `fit(tol=1e-3)` stops on it.

    Raises:
        ValueError: lam no single number above 0, reset below 0, bundle below 2, another choice of weights or search,
            m_L not in (0, 1), m_R not in [m_L, 1).

    Differs from the paper: where to reset and to stop is decided by the duality gap (there by sums of distances); all rows in
        one function, whose kinks are hit exactly and left on the right side; values at the rows are summed anew every 64 steps.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(wolfe(2.0), data, jax.random.key(0), steps=5, tol=1e-6)
        >>> run.model.w.tolist(), run.converged
        ([0.5], True)

    Reference: P. Wolfe, A method of conjugate subgradients for minimizing nondifferentiable functions, Mathematical
        Programming Study 3, 1975; weights="dual": C. Teo, S. Vishwanathan, A. Smola, Q. Le, Bundle methods for regularized
        risk minimization, JMLR 11, 2010.
    """
    check_positive(lam=lam)
    check_nonnegative(reset=reset)
    check_choice("weights", weights, ("norm", "dual"))
    check_choice("line_search", line_search, ("exact", "wolfe"))
    integer("bundle", bundle, 2)
    check_constants(m_L, m_R)
    kernel = None if kernel is None else as_kernel(kernel)

    def init(key, data):
        n, dtype = data.y.shape[0], accum_dtype(data.x)
        zero = FunctionValues(jnp.zeros(data.x.shape[1] if kernel is None else n, dtype), jnp.zeros(n, dtype))
        empty = jax.tree.map(lambda a: jnp.zeros((bundle, *a.shape), dtype), zero)
        held = Bundle(empty, empty, jnp.zeros((bundle, n), dtype), jnp.zeros(bundle, bool))
        weight, low = data.weight.astype(dtype), jnp.full((), -jnp.inf, dtype)
        return WolfeState(zero, zero, jnp.ones(n, dtype), held, low, weight, jnp.zeros((), jnp.int32))

    def update(state, batch):
        w, trial, a, held, dual, weight, t = state
        y, share = batch.y.astype(a.dtype), weight / pairwise_sum(weight)
        frame = make_space(kernel, batch.x)
        margin = y * w.response
        # The subgradient at the last trial joins in the place of the oldest.
        z = frame.made(share * y * a)
        g = subgradient(lam, trial, z)
        place = 1 + t % (bundle - 1)
        held = jax.tree.map(lambda all, one: all.at[place].set(one), held, Bundle(g, z, a, jnp.ones((), bool)))
        # The vector of the hull, and the dual value of its a.
        vectors = held.z if weights == "dual" else held.h
        gram = jax.vmap(lambda p: jax.vmap(lambda q: frame.inner(p, q))(vectors))(vectors)
        gain = dot(held.a, share) if weights == "dual" else None
        hull = nearest_point(gram / lam if weights == "dual" else gram, held.active, gain)
        mean = combined(hull, held._replace(active=hull))
        dual = jnp.maximum(dual, dot(share, mean.a) - frame.inner(mean.z, mean.z) / (2 * lam))
        risk = pairwise_sum(share * jnp.maximum(1 - margin, 0))
        value = lam / 2 * frame.inner(w, w) + risk
        gap = jnp.maximum(value - dual, 0)
        h = mean.h if weights == "norm" else subgradient(lam, w, mean.z)
        resets = (weights == "norm") & (count(held.active) > 1) & (frame.inner(h, h) < 2 * lam * reset * gap)
        first, h = jax.tree.map(lambda g, m: jnp.where(resets, g, m), (Bundle(g, z, a, True), g), (mean._replace(active=True), h))
        live = jnp.where(resets, jnp.zeros(bundle, bool), held.active).at[0].set(True)
        held = jax.tree.map(lambda all, one: all.at[0].set(one), held, first)._replace(active=live)
        # The search along -h, and the active rows where it ends.
        d = scale(-1.0, h)
        line = line_of(lam, frame, w, d, z, y, share)
        if line_search == "exact":
            step = ahead = exact_step(line)
        else:
            start = 1 / lam
            step, beyond = bounded_step(line, line.square, m_L, m_R, 1e-8 * start, jnp.inf * start, start)
            ahead = jnp.where(step > 0, step, beyond)
        moves = above_rounding(line.square, lam, frame.inner(w, w), frame.inner(z, z))
        step, ahead = jnp.where(moves, step, 0), jnp.where(moves, ahead, 0)
        new, anew = recompute_values(frame, add_scaled(w, step, d), t + 1)
        n, each = y.shape[0], 1 if kernel is None else y.shape[0]
        info = Info(
            loss=risk,
            residual=gap / value,
            progress=-line.change(step)[None],
            index=jnp.full(1, -1, jnp.int32),
            support=count(w.coef != 0),
            evals=times_count(jnp.where(anew, 2 * n, n).astype(jnp.int32), each, 2 * n),
        )
        return WolfeState(new, add_scaled(new, ahead - step, d), line.active(ahead), held, dual, weight, t + 1), info

    def model(state, data=None):
        if kernel is None:
            return Linear(state.w.coef, jnp.zeros((), state.w.coef.dtype))
        return models.expansion(kernel, state.w.coef, data)

    check = None if kernel is None else kernel_check(kernel)
    return Solver(init, update, model, whole(), "all", targets="labels", validate=check)
