"""Stochastic conjugate subgradients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import integer
from ..engines.conjugate import (
    FunctionValues,
    above_rounding,
    add_scaled,
    bounded_step,
    check_constants,
    exact_step,
    line_of,
    make_space,
    nearest_point,
    recompute_values,
    scale,
    subgradient,
)
from ..kernels import Kernel, as_kernel, holds_precomputed, matvec
from ..models import Expansion, Linear
from ..numerics import (
    accum_dtype,
    add_counts,
    count,
    dot,
    is_traced,
    multiply_counts,
    narrow_count,
    pairwise_sum,
    sample_proportional,
)
from ..recipe import check_choice, check_nonnegative, check_positive, check_scalars, register, solver
from ..samplers import whole
from ..types import Array, Info, Solver

SHORTEST = 100  # of the radius: steps of a search below its hundredth do not count


@register("ScsState")
class ScsState(NamedTuple):
    """The function, the point whose subgradient comes next and its active rows, the last direction, and the sample."""

    w: FunctionValues
    trial: FunctionValues
    a: Array  # (capacity,)
    h: FunctionValues  # minus the last direction
    radius: Array  # ()  that steps keep
    size: Array  # ()  int32, rows of the sample so far
    index: Array  # (capacity,)  int32, the rows in their order
    weight: Array  # (n,)  of all rows: the sample is drawn from all of them, whatever part a loop has prepared
    gram: Array | None  # (capacity, capacity); None: linear
    key: Array  # ()
    t: Array  # ()   int32


@solver
def scs(
    lam: float,
    kernel: Kernel | None = None,
    *,
    capacity: int,
    growth: int | None = None,
    first: int | None = None,
    metric: str = "rkhs",
    line_search: str = "exact",
    fresh_sample: bool = False,
    at_incumbent: bool = False,
    paper_constants: bool = False,
    eta1: float = 0.2,
    eta2: float = 0.1,
    gamma: float = 2.0,
    m_L: float = 0.4,
    m_R: float = 0.45,
) -> Solver:
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) on a growing sample, along conjugate subgradients.

        h = the shortest vector between a subgradient on the sample and the last h;   candidate = w - t h
        w = candidate, if on the grown sample it falls eta1 times as far as on the old one, and |h| > eta2 lam radius
        radius = gamma radius where it was taken, radius / gamma where not;   t |h| <= radius

    After a step that was not taken the subgradient is that of the candidate. No bias.

    Args:
        lam: regularisation, > 0; the paper has 1, where on unit diagonals the optimum is the mean of y_i phi(x_i).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); None is linear.
        capacity: rows of the sample in the end, drawn without replacement, <= n; the memory is its square; structure.
        growth: rows that join at every step; None: a tenth of the capacity; structure.
        first: rows to begin with; None: as `growth`; structure.
        metric: "rkhs": lengths and angles of functions; "euclidean": of their coefficients, as in the paper; structure.
        line_search: "exact" or "wolfe" (m_L, m_R: decrease t m_L |h|^2 at least, slope -m_R |h|^2 at least); structure.
        fresh_sample: compare on other rows, drawn anew in every step, as many as the sample has, as in the paper; structure.
        at_incumbent: the next subgradient always at w, as in the paper; structure.
        paper_constants: the constants as printed: m_L = 0.4 > m_R = 0.2, whose search may find nothing (60 trials), eta1 = 1.1,
            eta2 not times lam, with line_search="wolfe" and at_incumbent; takes almost no step; structure.
        eta1: in (0, 1).
        eta2: >= 0.
        gamma: > 1.
        m_L: in (0, 1).
        m_R: in [m_L, 1).

    Returns:
        A solver on all rows, which draws its own in `init`; a step counts as a pass. Model `Expansion` of `capacity` rows,
        or `Linear`. The residual is |h| once the sample is complete, before that infinite; the loss is that on the sample.

    Raises:
        ValueError: lam, gamma no single number above 0 (gamma: 1), capacity below the first sample or above the number of rows,
            growth or first no whole number of at least 1, another metric or search, eta1 not in (0, 1), m_L > m_R.

    Differs from the paper: lam (there 1); the slope condition without the factor t, and m_L <= m_R; eta1 below 1 (falls are
        negative: above 1 almost nothing is accepted); eta2 in units of lam; a step of length 0 is none; the radius has a
        largest value, 10 / sqrt(lam), and starts at 1 / sqrt(lam); the sample has a last size; lengths of functions by
        default; the subgradient at the candidate after a step that was not taken, which at w would repeat itself; values at
        the sample are summed anew every 64 steps.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> run = jaxsvm.fit(scs(2.0, capacity=2), data, jax.random.key(0), steps=5)
        >>> run.model.w.tolist()
        [0.5]

    Reference: D. Zhang, S. Sen, A stochastic conjugate subgradient algorithm for kernelized support vector machines,
        algorithms 1 and 2.
    """
    check_positive(lam=lam)
    check_nonnegative(eta2=eta2)
    check_choice("metric", metric, ("rkhs", "euclidean"))
    check_choice("line_search", line_search, ("exact", "wolfe"))
    growth, first = _checked(capacity, growth, first)
    for name, value, low, high in (("eta1", eta1, 0, 1), ("gamma", gamma, 1, float("inf"))):
        check_scalars(**{name: value})
        if not is_traced(value) and not low < float(value) < high:
            raise ValueError(f"{name} must lie between {low} and {high:g}, got {float(value):g}")
    if paper_constants:
        m_L, m_R, eta1, least_share, line_search, at_incumbent = 0.4, 0.2, 1.1, eta2, "wolfe", True
    else:
        least_share = eta2 * lam
    check_constants(m_L, m_R, apart=paper_constants)
    kernel = None if kernel is None else as_kernel(kernel)
    if kernel is not None and holds_precomputed(kernel):
        raise ValueError(
            "scs holds a sample of the rows, and a precomputed kernel needs all of them: take wolfe, or another kernel"
        )

    def init(key, data):
        n, dtype = data.y.shape[0], accum_dtype(data.x)
        if capacity > n:
            raise ValueError(f"capacity is {capacity}, but there are {n} rows: lower it")
        order, fresh = jax.random.split(key)
        absent = (data.weight <= 0).astype(jnp.float32)
        index = jnp.argsort(jax.random.uniform(order, (n,), jnp.float32) + absent)[:capacity].astype(jnp.int32)
        x = data.x[index]
        gram = None if kernel is None else kernel(x, x)
        zero = FunctionValues(jnp.zeros(data.x.shape[1] if kernel is None else capacity, dtype), jnp.zeros(capacity, dtype))
        radius, weight = 1 / jnp.sqrt(jnp.asarray(lam, dtype)), data.weight.astype(dtype)
        size, t = jnp.full((), first, jnp.int32), jnp.zeros((), jnp.int32)
        return ScsState(zero, zero, jnp.ones(capacity, dtype), zero, radius, size, index, weight, gram, fresh, t)

    def update(state, batch):
        w, trial, a, last, radius, size, index, weights, gram, key, t = state
        weight = weights[index]
        y = batch.y.astype(a.dtype)[index]
        frame = make_space(kernel, batch.x[index] if kernel is None else None, gram)
        share, grown = _shares(weight, size), jnp.minimum(size + growth, capacity)
        # The shortest vector between the subgradient at the last trial and the last direction.
        z = frame.made(share * y * a)
        g = subgradient(lam, trial, z)
        images = metric == "euclidean" and kernel is not None
        if images:
            g = frame.made(jnp.where(share > 0, g.response, 0))
        inner = frame.inner if metric == "rkhs" else lambda p, q: dot(p.coef, q.coef)
        cross = inner(g, last)
        hull = nearest_point(jnp.array([[inner(last, last), cross], [cross, inner(g, g)]]), jnp.stack([t > 0, t >= 0]))
        h = add_scaled(scale(hull[0], last), hull[1], g)
        size_h = inner(h, h)
        length = jnp.where(size_h > 0, jnp.sqrt(jnp.where(size_h > 0, size_h, 1)), 0)
        # The search along -h, no further than the radius.
        d, far = scale(-1.0, h), radius / jnp.where(length > 0, length, 1)
        line = line_of(lam, frame, w, d, z, y, share)
        if line_search == "exact":
            step = jnp.minimum(exact_step(line), far)
            step = beyond = jnp.where(step < 1e-8 * far, 0, step)
        else:
            step, beyond = bounded_step(line, size_h, m_L, m_R, far / SHORTEST, far, jnp.minimum(1 / lam, far))
        extent = (lambda p: dot(p.response, p.response)) if images else (lambda p: frame.inner(p, p))
        moves = above_rounding(size_h, lam, extent(trial), extent(z))
        step, beyond = jnp.where(moves, step, 0), jnp.where(moves, beyond, 0)
        # Taken where other rows agree.
        if fresh_sample:
            other = _others(kernel, batch, weights, index, key, t, w, d)
            compared = line._replace(**other, share=_shares(jnp.ones_like(weight), grown))
        else:
            compared = line._replace(share=_shares(weight, grown))
        falls = compared.change(step) <= eta1 * line.change(step)
        taken = falls & (length > least_share * radius) & (step > 0)
        ahead = jnp.where(step > 0, step, beyond)
        ahead = jnp.where(taken, step, 0) if at_incumbent else ahead
        info = Info(
            loss=pairwise_sum(share * jnp.maximum(1 - line.margin, 0)),
            residual=jnp.where(size == capacity, length, jnp.inf),
            progress=jnp.where(taken, -line.change(step), 0)[None],
            index=jnp.full(1, -1, jnp.int32),
            support=count(w.coef != 0),
            evals=_new_values(kernel, size, grown, t, capacity**2 if fresh_sample else 0, capacity),
        )
        new, _ = recompute_values(frame, add_scaled(w, jnp.where(taken, step, 0), d), t + 1)
        trial = add_scaled(new, jnp.where(taken, ahead - step, ahead), d)
        radius = jnp.where(taken, jnp.minimum(gamma * radius, 10 / jnp.sqrt(jnp.asarray(lam, a.dtype))), radius / gamma)
        made = ScsState(new, trial, line.active(ahead), h, radius, grown, index, weights, gram, key, t + 1)
        return made, info

    def model(state, data=None):
        b = jnp.zeros((), state.a.dtype)
        if kernel is None:
            return Linear(state.w.coef, b)
        if data is None:
            raise ValueError("this model is an expansion over training rows: call solver.model(state, data)")
        return Expansion(kernel, data.x[state.index], state.w.coef, b, state.index)

    return Solver(init, update, model, whole(), "all", targets="labels", validate=_check(capacity))


def _checked(capacity: int, growth: int | None, first: int | None) -> tuple[int, int]:
    """How many rows join at a step, and how many there are at first.

    Raises:
        ValueError: one is no whole number of at least 1, or the first sample exceeds the capacity.
    """
    growth = -(-capacity // 10) if growth is None and isinstance(capacity, int) else growth
    first = growth if first is None else first
    for name, value in (("capacity", capacity), ("growth", growth), ("first", first)):
        integer(name, value, 1)
    if first > capacity:
        raise ValueError(f"capacity is {capacity}, below the first sample of {first} rows: raise it, or lower first")
    return growth, first


def _check(capacity):
    def check(data):
        live = int((data.weight > 0).sum())
        if live < capacity:
            raise ValueError(f"capacity is {capacity}, but there are {live} rows of positive weight: lower it")

    return check


def _shares(weight, size):
    """The weights of the first `size` rows, of sum 1."""
    inside = jnp.where(lax.iota(jnp.int32, weight.shape[0]) < size, weight, 0)
    return inside / pairwise_sum(inside)


def _others(kernel, batch, weight, index, key, t, w, d):
    """Margins of w and d at rows drawn anew, by their weight."""
    rows = sample_proportional(
        weight, jax.random.uniform(jax.random.fold_in(key, t), index.shape, jnp.float32).astype(weight.dtype)
    )
    x, y = batch.x[rows], batch.y.astype(weight.dtype)[rows]
    pair = jnp.stack([w.coef, d.coef], axis=1)
    values = dot(x, pair) if kernel is None else matvec(kernel, x, batch.x[index], pair)
    return {"margin": y * values[:, 0], "rate": y * values[:, 1]}


def _new_values(kernel, size, grown, t, other, capacity):
    """Kernel values among the rows that joined, of them with the others, and `other`; of linear weights products with rows."""
    if kernel is None:
        return grown
    before = jnp.where(t > 0, size, 0)
    new = multiply_counts(grown - before, grown + before)
    return narrow_count(add_counts(new, other), capacity**2 + other)
