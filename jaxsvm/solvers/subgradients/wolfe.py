"""Wolfe's conjugate subgradient method on the full data set."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from ... import models
from ..._node import between, node, positive, register
from ...engines.base import AllRowsSolver, info_of
from ...engines.conjugate import (
    FunctionValues,
    InnerProductSpace,
    above_rounding,
    add_scaled,
    combined,
    recompute_values,
    scale,
    subgradient,
)
from ...engines.line_search import Line, bounded_step, check_constants, exact_step, line_of
from ...engines.min_norm_point import nearest_point
from ...kernels import Kernel
from ...models import Expansion, Linear
from ...numerics import accum_dtype, count, dot, pairwise_sum
from ...types import Array, Batch, Info, Scalar, state_class


@register("Bundle")
class Bundle(NamedTuple):
    """Subgradients h = lam w - z of several points.

    Slot 0 holds the convex combination of those that left the bundle.
    """

    h: FunctionValues  # (m, ...)
    z: FunctionValues  # (m, ...)
    a: Array  # (m, n)  in [0, 1]
    active: Array | bool  # (m,)  bool, occupied slots


@state_class("WolfeState", sums_of=("rows",))
class WolfeState(NamedTuple):
    """The iterate w, the trial point, the bundle, and the best dual value.

    The next subgradient is that at the trial point.
    """

    w: FunctionValues
    trial: FunctionValues
    a: Array  # (n,)  1 where the hinge is active at the trial point, else 0
    bundle: Bundle
    dual: Array  # ()
    weight: Array  # (n,)
    t: Array  # ()   int32
    lam: Array  # ()  of the bundle and the dual value; nan: unknown, taken for that of the solver


@node
class wolfe(AllRowsSolver):
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) by bundles of subgradients.

    Steps are along shortest convex combinations of the bundle. There is no bias.

        h = the vector of least norm in the convex hull of the bundle
        w = w - t h,   t by a line search along -h
        the bundle gains the subgradient at w - t h with the right-hand slope;
            h replaces the vectors that leave the bundle
        if |h|^2 < 2 lam reset gap:   bundle = {the newest subgradient},   h = that

    Subgradients are lam w - sum_i share_i a_i y_i phi(x_i) with a in [0, 1]. The same combination
    of their a is dual feasible, so that a small |h| implies a small duality gap. A step costs one
    product with the kernel matrix.

    Args:
        lam: regularisation, > 0. For lam >= max k(x, x) the first step ends at the optimum, sum_i
            share_i y_i phi(x_i) / lam.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); None is linear.
        bundle: m, vectors in the bundle, >= 2: one combination and the m - 1 newest subgradients;
            structure.
        weights: "norm": the vector of least norm in the hull; "dual": the combination of highest
            dual value, with h = lam w - sum_i share_i a_i y_i phi(x_i) at the current w, and
            without resets. There the lightest vector leaves the bundle, not the oldest; structure.
        line_search: "exact", or "wolfe" with decrease of at least m_L t |h|^2 and slope of at least
            -m_R |h|^2; structure.
        reset: kappa, >= 0; larger values reset more often, 0 never. The default 0.5 resets where
            |h|^2 < lam gap; with 0.1 there are fewer resets.
        m_L: decrease constant of the search, in (0, 1).
        m_R: slope constant of the search, in [m_L, 1); below m_L a search might fail.

    Returns:
        A solver on all rows; a step uses all of them. Model `Expansion` over all rows, or `Linear`.
        The residual is the relative duality gap (P - D) / P before the step, with the best D so
        far: `fit(tol=1e-3)` stops on it. With another lam a state starts with an empty bundle.

    Raises:
        ValueError: lam not a single positive number, reset below 0, bundle below 2, another choice
            of weights or search, m_L not in (0, 1), m_R not in [m_L, 1).

    Differs from the paper: the duality gap decides when to reset and to stop (there: sums of
        distances). All rows form one function; a step that ends at a kink of it ends there exactly,
        with the right-hand subgradient. Values at the rows are recomputed every 64 steps.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.wolfe(2.0), data, jax.random.key(0), steps=5, tol=1e-6)
        >>> result.model.w.tolist(), result.converged
        ([0.5], True)

    Reference: P. Wolfe, A method of conjugate subgradients for minimizing nondifferentiable
        functions, Mathematical Programming Study 3, 1975; weights="dual": C. Teo, S. Vishwanathan,
        A. Smola, Q. Le, Bundle methods for regularized risk minimization, JMLR 11, 2010.
    """

    lam: float = positive()
    kernel: Kernel | None = None
    _: KW_ONLY
    bundle: int = between(2, default=2)
    weights: Literal["norm", "dual"] = "norm"
    line_search: Literal["exact", "wolfe"] = "exact"
    reset: float = between(0.0, default=0.5)
    m_L: float = between(0.0, 1.0, open=True, default=0.4)
    m_R: float = between(0.0, 1.0, open=True, default=0.45)

    targets = "labels"

    def check(self) -> None:
        check_constants(self.m_L, self.m_R)

    def init(self, key: Array, data: Batch) -> WolfeState:
        """The state at w = 0, with an empty bundle."""
        n, dtype, size = data.y.shape[0], accum_dtype(data.x), self.bundle
        columns = n if self.kernel is not None else data.x.shape[1]
        zeros = lambda *shape: FunctionValues(
            jnp.zeros((*shape, columns), dtype), jnp.zeros((*shape, n), dtype)
        )
        return WolfeState(
            zeros(),
            zeros(),
            jnp.ones(n, dtype),
            Bundle(zeros(size), zeros(size), jnp.zeros((size, n), dtype), jnp.zeros(size, bool)),
            dual=jnp.full((), -jnp.inf, dtype),
            weight=jnp.array(data.weight, dtype),
            t=jnp.zeros((), jnp.int32),
            lam=jnp.array(self.lam, dtype),
        )

    def update(self, state: WolfeState, batch: Batch) -> tuple[WolfeState, Info]:
        lam, kernel, bundle, weights = self.lam, self.kernel, self.bundle, self.weights
        w, trial, a, subgradients, dual, weight, t, lam_before = state
        y, share = batch.y.astype(a.dtype), weight / pairwise_sum(weight)
        space = InnerProductSpace(kernel, batch.x)
        margin = y * w.response
        # The bundle and the dual value of another lam do not count.
        strength = jnp.asarray(lam, dual.dtype)
        is_other = (strength != lam_before) & ~jnp.isnan(lam_before)
        dual = jnp.where(is_other, -jnp.inf, dual)
        subgradients = subgradients._replace(active=subgradients.active & ~is_other)
        # The subgradient at the trial point replaces the oldest of slots 1 to m - 1; with dual
        # weights the lightest, which was moved there.
        z = space.function(share * y * a)
        g = subgradient(lam, trial, z)
        newest = Bundle(g, z, a, jnp.ones((), bool))
        subgradients = _put(subgradients, 1 + t % (bundle - 1), newest)
        # h, a convex combination of the bundle; the dual value of its a, and the duality gap.
        vectors = subgradients.h if weights == "norm" else subgradients.z
        gram = jax.vmap(lambda p: jax.vmap(lambda q: space.inner(p, q))(vectors))(vectors)
        system = (gram, None) if weights == "norm" else (gram / lam, dot(subgradients.a, share))
        hull_weights = nearest_point(system[0], jnp.asarray(subgradients.active), system[1])
        mean = combined(hull_weights, subgradients._replace(active=hull_weights))
        dual = jnp.maximum(dual, dot(share, mean.a) - space.inner(mean.z, mean.z) / (2 * lam))
        risk = pairwise_sum(share * jnp.maximum(1 - margin, 0))
        primal = lam / 2 * space.inner(w, w) + risk
        gap = jnp.maximum(primal - dual, 0)
        h = mean.h if weights == "norm" else subgradient(lam, w, mean.z)
        # Reset to the newest subgradient if |h| is small beside the gap. Slot 0 takes the
        # combination, or that subgradient.
        resets = (
            (weights == "norm")
            & (count(jnp.asarray(subgradients.active)) > 1)
            & (space.inner(h, h) < 2 * lam * self.reset * gap)
        )
        after_reset, after_step = (newest._replace(active=True), g), (mean._replace(active=True), h)
        first, h = jax.tree.map(lambda g, m: jnp.where(resets, g, m), after_reset, after_step)
        active = jnp.where(resets, False, subgradients.active).at[0].set(True)
        subgradients = _put(subgradients, 0, first)._replace(active=active)
        if weights == "dual" and bundle > 2:
            next_slot = 1 + (t + 1) % (bundle - 1)
            subgradients = _move_lightest(subgradients, hull_weights, next_slot)
        # The line search along d = -h.
        d = scale(-1.0, h)
        line = line_of(lam, space, w, d, z, y, share)
        step, trial_step = self.search(line)
        significant = above_rounding(line.square, lam, space.inner(w, w), space.inner(z, z))
        step, trial_step = (jnp.where(significant, a, 0) for a in (step, trial_step))
        new_w, is_recomputed = recompute_values(space, add_scaled(w, step, d), t + 1)
        n, evals_per_row = y.shape[0], 1 if kernel is None else y.shape[0]
        evals = jnp.where(is_recomputed, 2, 1).astype(risk.dtype) * float(n * evals_per_row)
        info = info_of(risk, gap / primal, count(w.coef != 0), evals, -line.change(step))
        new_trial = add_scaled(new_w, trial_step - step, d)
        rest = subgradients, dual, weight, t + 1, strength
        return WolfeState(new_w, new_trial, line.active(trial_step), *rest), info

    def search(self, line: Line) -> tuple[Array, Array]:
        """The step t along -h, and the step to the trial point."""
        if self.line_search == "exact":
            step = exact_step(line)
            return step, step
        start = 1 / line.lam
        ends = 1e-8 * start, jnp.full_like(line.square, jnp.inf), start
        step, rejected_step = bounded_step(line, line.square, self.m_L, self.m_R, *ends)
        return step, jnp.where(step > 0, step, rejected_step)

    def model(self, state: WolfeState, data: Batch | None = None) -> Expansion | Linear:
        if self.kernel is None:
            return Linear(state.w.coef, jnp.zeros((), state.w.coef.dtype))
        return models.expansion(self.kernel, state.w.coef, data)


def _put(bundle: Bundle, slot: Scalar, vector: Bundle) -> Bundle:
    """The bundle with a vector in a slot."""
    return jax.tree.map(lambda slots, value: slots.at[slot].set(value), bundle, vector)


def _move_lightest(bundle: Bundle, hull_weights: Array, slot: Array) -> Bundle:
    """The bundle with its lightest vector of slots 1 to m - 1 in `slot`, if that is occupied."""
    lightest = 1 + jnp.argmin(hull_weights[1:]).astype(jnp.int32)
    place = jnp.arange(hull_weights.shape[0], dtype=jnp.int32)
    swapped = place.at[slot].set(lightest).at[lightest].set(slot)
    order = jnp.where(jnp.asarray(bundle.active)[slot], swapped, place)
    return jax.tree.map(lambda a: a[order], bundle)
