"""Stochastic conjugate subgradients (SCS): algorithms 1 and 2 of Zhang and Sen."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, node, positive, register
from ...engines.base import AllRowsSolver, info_of
from ...engines.conjugate import (
    FunctionValues,
    InnerProductSpace,
    above_rounding,
    add_scaled,
    recompute_values,
    scale,
    subgradient,
)
from ...engines.line_search import Line, bounded_step, check_constants, exact_step, line_of
from ...engines.min_norm_point import nearest_point
from ...kernels import Kernel, holds_precomputed, matvec
from ...models import Expansion, Linear
from ...numerics import accum_dtype, count, dot, pairwise_sum, sample_proportional
from ...types import Array, Batch, Info

MIN_STEP_DIVISOR = 100  # the "wolfe" search tries no step with t |h| < radius / MIN_STEP_DIVISOR
ZERO_STEP = 1e-8  # a shorter step of the "exact" search, relative to the longest one, counts as 0
MAX_RADIUS = 10  # bound on the radius, in units of 1 / sqrt(lam)


@register("ScsState")
class ScsState(NamedTuple):
    """The incumbent w, the trial point, the last direction, the radius and the sample.

    The next subgradient is that at the trial point.
    """

    w: FunctionValues
    trial: FunctionValues
    a: Array  # (capacity,)  1 where the hinge is active at the trial point, else 0
    h: FunctionValues  # minus the last direction
    radius: Array  # ()  bound on |t h|
    size: Array  # ()  int32, current sample size
    index: Array  # type: ignore[assignment]  # (capacity,)  int32, sampled rows; the first `size` are the current sample
    weight: Array  # (n,)  weights of all rows: fresh samples are drawn from all rows
    gram: Array | None  # (capacity, capacity) kernel matrix of the sampled rows; None: linear
    key: Array  # ()   of the fresh samples
    t: Array  # ()   int32, number of steps made


@node
class scs(AllRowsSolver):
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) on a growing sample.

    Steps are along conjugate subgradients.

        h = the shortest vector of the segment between g and the last h
        w' = w - t h,   t |h| <= radius
        accept w' if f_k(w') - f_k(w) <= eta1 (f_{k-1}(w') - f_{k-1}(w))
            and |h| > eta2 lam radius and t > 0
        accepted: w = w', radius = gamma radius;   rejected: radius = radius / gamma

    f_{k-1} and f_k are the objectives on the old and on the grown sample. g is a subgradient of
    f_{k-1} at w. After a rejected step g is a subgradient at the rejected point w'. There is no
    bias.

    Args:
        lam: regularisation, > 0. The paper has 1, where with k(x, x) = 1 the optimum is the mean of
            y_i phi(x_i).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); None is linear.
        capacity: final sample size, <= n. Rows are drawn without replacement; the memory is
            capacity^2; structure.
        growth: rows added to the sample at every step; None: a tenth of the capacity; structure.
        first: initial sample size; None: `growth`; structure.
        metric: "rkhs": inner products of functions; "euclidean": those of their coefficients, as in
            the paper; structure.
        line_search: "exact", or "wolfe" with decrease of at least m_L t |h|^2 and slope of at least
            -m_R |h|^2; structure.
        fresh_sample: compute f_k on a new sample, drawn at every step and as large as the grown
            one, as in the paper; structure.
        at_incumbent: compute every subgradient at w, as in the paper; structure.
        paper_constants: the constants as printed; almost no step is accepted with them. m_L = 0.4 >
            m_R = 0.2, so that a search may fail after its 60 trials; eta1 = 1.1; eta2 without the
            factor lam; line_search="wolfe"; at_incumbent; structure.
        eta1: fraction of the decrease on the old sample that the grown one must confirm, in (0, 1).
        eta2: lower bound of |h| / (lam radius) for accepted steps, >= 0.
        gamma: factor of the radius, > 1.
        m_L: decrease constant of the search, in (0, 1).
        m_R: slope constant of the search, in [m_L, 1).

    Returns:
        A solver on all rows that draws its sample in `init`; a step counts as a pass. Model
        `Expansion` of `capacity` rows, or `Linear`. The residual is |h|, and infinite until the
        sample is complete. The loss is the mean hinge on the sample.

    Raises:
        ValueError: lam not a single positive number; gamma not above 1; eta1 not in (0, 1); m_L
            above m_R; capacity below `first` or above the number of rows; growth or first not an
            integer of at least 1; another metric or search.

    Differs from the paper: a free lam; eta2 in units of lam; eta1 below 1, since decreases are
        negative numbers. The slope condition has no factor t, and m_L <= m_R. A step of length 0 is
        rejected. The radius starts at 1 / sqrt(lam) and has the maximum 10 / sqrt(lam). The sample
        size has a maximum. The metric is that of functions by default. After a rejected step the
        subgradient is that at the rejected point, since at w it would repeat. Values at the sampled
        rows are recomputed every 64 steps.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.scs(2.0, capacity=2), data, jax.random.key(0), steps=5)
        >>> result.model.w.tolist()
        [0.5]

    Reference: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized support
        vector machines, algorithms 1 and 2.
    """

    lam: float = positive()
    kernel: Kernel | None = None
    _: KW_ONLY
    capacity: int = between(1)
    growth: int | None = between(1, default=None)
    first: int | None = between(1, default=None)
    metric: Literal["rkhs", "euclidean"] = "rkhs"
    line_search: Literal["exact", "wolfe"] = "exact"
    fresh_sample: bool = False
    at_incumbent: bool = False
    paper_constants: bool = False
    eta1: float = between(0.0, 1.0, open=True, default=0.2)
    eta2: float = between(0.0, default=0.1)
    gamma: float = between(1.0, open=True, default=2.0)
    m_L: float = between(0.0, 1.0, open=True, default=0.4)
    m_R: float = between(0.0, 1.0, open=True, default=0.45)

    targets = "labels"

    def check(self) -> None:
        _, first = self.sizes
        if first > self.capacity:
            raise ValueError(
                f"capacity is {self.capacity}, below the first sample of {first} rows: raise "
                "it, or lower first"
            )
        if not self.paper_constants:
            check_constants(self.m_L, self.m_R)
        if self.kernel is not None and holds_precomputed(self.kernel):
            raise ValueError(
                "scs holds a sample of the rows, and a precomputed kernel needs all of them: take "
                "wolfe, or another kernel"
            )

    @property
    def sizes(self) -> tuple[int, int]:
        """The growth and the initial size of the sample."""
        growth = -(-self.capacity // 10) if self.growth is None else self.growth
        return growth, growth if self.first is None else self.first

    def validate(self, data: Batch) -> None:
        super().validate(data)
        n_rows = int((data.weight > 0).sum())
        if n_rows < self.capacity:
            raise ValueError(
                f"capacity is {self.capacity}, but there are {n_rows} rows of positive weight: "
                "lower it"
            )

    def init(self, key: Array, data: Batch) -> ScsState:
        """The state at w = 0, where all rows have margin 0."""
        n, capacity, dtype = data.y.shape[0], self.capacity, accum_dtype(data.x)
        if capacity > n:
            raise ValueError(f"capacity is {capacity}, but there are {n} rows: lower it")
        order_key, fresh_key = jax.random.split(key)
        last = (data.weight <= 0).astype(jnp.float32)  # rows of weight 0
        order = jnp.argsort(jax.random.uniform(order_key, last.shape, jnp.float32) + last)
        index = order[:capacity].astype(jnp.int32)
        x = data.x[index]
        columns = x.shape[1] if self.kernel is None else capacity
        zero = lambda: FunctionValues(jnp.zeros(columns, dtype), jnp.zeros(capacity, dtype))
        return ScsState(
            w=zero(),
            trial=zero(),
            a=jnp.ones(capacity, dtype),
            h=zero(),
            radius=1 / jnp.sqrt(jnp.asarray(self.lam, dtype)),
            size=jnp.full((), self.sizes[1], jnp.int32),
            index=index,
            weight=jnp.array(data.weight, dtype),
            gram=None if self.kernel is None else self.kernel(x, x),
            key=fresh_key,
            t=jnp.zeros((), jnp.int32),
        )

    def update(self, state: ScsState, batch: Batch) -> tuple[ScsState, Info]:
        lam, kernel, capacity = self.lam, self.kernel, self.capacity
        eta1, at_incumbent = self.eta1, self.at_incumbent
        min_norm = self.eta2 * lam  # lower bound of |h| / radius
        if self.paper_constants:
            eta1, at_incumbent, min_norm = 1.1, True, self.eta2
        w, radius, size, t = state.w, state.radius, state.size, state.t
        weight, y = state.weight[state.index], batch.y.astype(state.a.dtype)[state.index]
        x = batch.x[state.index] if kernel is None else None
        space = InnerProductSpace(kernel, x, state.gram)
        euclidean = self.metric == "euclidean" and kernel is not None
        sample = Sample(space, _sample_weights(weight, size), euclidean)
        grown_size = jnp.minimum(size + self.sizes[0], capacity)
        # h, the shortest vector between the last h and g, the subgradient at the trial point.
        z = space.function(sample.share * y * state.a)
        g = sample.gradient(subgradient(lam, state.trial, z))
        cross = sample.inner(g, state.h)
        gram = jnp.array([[sample.inner(state.h, state.h), cross], [cross, sample.inner(g, g)]])
        first, second = nearest_point(gram, jnp.stack([t > 0, t >= 0]))  # at t = 0 g alone
        h = add_scaled(scale(first, state.h), second, g)
        sqnorm_h = sample.inner(h, h)
        norm_h = jnp.where(sqnorm_h > 0, jnp.sqrt(jnp.where(sqnorm_h > 0, sqnorm_h, 1)), 0)
        # The line search along d = -h, within the radius.
        d, max_step = scale(-1.0, h), radius / jnp.where(norm_h > 0, norm_h, 1)
        line = line_of(lam, space, w, d, z, y, sample.share)
        step, rejected_step = self.search(line, sqnorm_h, max_step)
        # There is no step if h is within the rounding error of the terms lam w and z.
        sqnorms = sample.gradient_sqnorm(state.trial), sample.gradient_sqnorm(z)
        significant = above_rounding(sqnorm_h, lam, *sqnorms)
        step, rejected_step = (jnp.where(significant, a, 0) for a in (step, rejected_step))
        # The step is accepted if the grown sample, or a fresh one, confirms the decrease.
        grown_line = line
        if self.fresh_sample:
            grown_line, weight = _fresh_line(kernel, state, batch, line, d)
        grown_line = grown_line._replace(share=_sample_weights(weight, grown_size))
        sufficient = grown_line.change(step) <= eta1 * line.change(step)
        accepted = sufficient & (norm_h > min_norm * radius) & (step > 0)
        # The next subgradient is that at w + trial_step d, after an accepted step the new w.
        trial_step = jnp.where(step > 0, step, rejected_step)
        trial_step = jnp.where(accepted, step, 0) if at_incumbent else trial_step
        risk = pairwise_sum(sample.share * jnp.maximum(1 - line.margin, 0))
        residual = jnp.where(size == capacity, norm_h, jnp.inf)
        # the rows of the sample; of kernels the pairs with a row that joined it, at first all
        evals = grown_size.astype(norm_h.dtype)
        if kernel is not None:
            old_size = jnp.where(t > 0, size, 0).astype(evals.dtype)
            evals = evals**2 - old_size**2 + (capacity**2 if self.fresh_sample else 0)
        progress = jnp.where(accepted, -line.change(step), 0)
        info = info_of(risk, residual, count(w.coef != 0), evals, progress)
        new_w = add_scaled(w, jnp.where(accepted, step, 0), d)
        new_w, _ = recompute_values(space, new_w, t + 1)
        # An accepted step is already part of the new w.
        trial = add_scaled(new_w, jnp.where(accepted, trial_step - step, trial_step), d)
        most = MAX_RADIUS / jnp.sqrt(jnp.asarray(lam, radius.dtype))
        longer = jnp.minimum(self.gamma * radius, most)
        radius = jnp.where(accepted, longer, radius / self.gamma)
        a = line.active(trial_step)
        new = state._replace(w=new_w, trial=trial, a=a, h=h, radius=radius, size=grown_size)
        return new._replace(t=t + 1), info

    def search(self, line: Line, sqnorm_h: Array, max_step: Array) -> tuple[Array, Array]:
        """The step t along -h, of at most `max_step`, and a rejected step.

        The rejected step is that to the trial point where t is 0.
        """
        if self.line_search == "exact" and not self.paper_constants:
            step = jnp.minimum(exact_step(line), max_step)
            step = jnp.where(step < ZERO_STEP * max_step, 0, step)
            return step, step  # where t is 0, the trial point is w
        m_L, m_R = (0.4, 0.2) if self.paper_constants else (self.m_L, self.m_R)
        # The first trial 1 / lam is the step from w to z / lam if h is the subgradient at w.
        first_trial = jnp.minimum(1 / line.lam, max_step)
        min_step = max_step / MIN_STEP_DIVISOR
        return bounded_step(line, sqnorm_h, m_L, m_R, min_step, max_step, first_trial)

    def model(self, state: ScsState, data: Batch | None = None) -> Expansion | Linear:
        """The model of w: an expansion over the sampled rows, or linear weights."""
        b = jnp.zeros((), state.a.dtype)
        if self.kernel is None:
            return Linear(state.w.coef, b)
        if data is None:
            raise ValueError(
                "this model is an expansion over training rows: call solver.model(state, data)"
            )
        return Expansion(self.kernel, data.x[state.index], state.w.coef, b, state.index)


class Sample(NamedTuple):
    """The current sample, and its functions with the metric of the method.

    Functions are expansions over the `capacity` sampled rows; those beyond the current sample have
    share 0.
    """

    space: InnerProductSpace
    share: Array  # (capacity,)  normalised weights
    euclidean: bool  # whether the metric is that of the coefficients of an expansion

    def inner(self, p: FunctionValues, q: FunctionValues) -> Array:
        """The inner product of the metric, ()."""
        return dot(p.coef, q.coef) if self.euclidean else self.space.inner(p, q)

    def gradient(self, q: FunctionValues) -> FunctionValues:
        """The subgradient in the metric, from q = lam w - z.

        The derivatives of f in the coefficients are the values of q.
        """
        if not self.euclidean:
            return q
        return self.space.function(jnp.where(self.share > 0, q.response, 0))

    def gradient_sqnorm(self, q: FunctionValues) -> Array:
        """The squared norm of a subgradient, from its function, ()."""
        return dot(q.response, q.response) if self.euclidean else self.space.inner(q, q)


def _sample_weights(weight: Array, size: Array) -> Array:
    """The weights of the first `size` rows, normalised to sum 1; 0 for the others."""
    in_sample = jnp.where(lax.iota(jnp.int32, weight.shape[0]) < size, weight, 0)
    return in_sample / pairwise_sum(in_sample)


def _fresh_line(
    kernel: Kernel | None, state: ScsState, batch: Batch, line: Line, d: FunctionValues
) -> tuple[Line, Array]:
    """The line w + t d with margins and rates at rows drawn anew, and their weights.

    Rows are drawn in proportion to their weight, so that those drawn have equal weights.
    """
    weight, index = state.weight, state.index
    u = jax.random.uniform(jax.random.fold_in(state.key, state.t), index.shape, jnp.float32)
    rows = sample_proportional(weight, u.astype(weight.dtype))
    x, y = batch.x[rows], batch.y.astype(weight.dtype)[rows]
    coef = jnp.stack([state.w.coef, d.coef], axis=1)
    values = dot(x, coef) if kernel is None else matvec(kernel, x, batch.x[index], coef)
    margin, rate = y * values[:, 0], y * values[:, 1]
    return line._replace(margin=margin, rate=rate), jnp.ones_like(line.share)
