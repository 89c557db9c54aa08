"""SIMBA: sublinear training by sampling rows and columns."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..models import Linear
from ..numerics import accum_dtype, dot, fast_max, gather, pairwise_sum, running_mean, sample_proportional, sqnorms, water_level
from ..projections import shorten
from ..recipe import check_nonnegative, check_positive, register, solver
from ..samplers import uniform
from ..types import Array, Info, Solver, SparseRows


@register("SimbaState")
class SimbaState(NamedTuple):
    """The weights of rows, the sum of those drawn, and the mean of the iterates; rows in units of R."""

    log_q: Array  # (n,)  at most 0
    u: Array  # (d,)
    mean: Array  # (d,)
    compensation: Array  # (d,)  what rounding took from the mean
    reach: Array  # ()   R, the largest norm of a row
    weight: Array  # (n,)
    key: Array  # ()
    t: Array  # ()  int32


@solver
def simba(nu: float, *, horizon: float | None = None) -> Solver:
    """Maximise over |w| <= 1 the smallest margin that a mean slack of nu leaves, in O(n + d) a step.

        f(w) = max min_i (y_i <w, x_i> + xi_i)   over 0 <= xi <= 2 R of mean at most nu,   R = max |x_i|
        i ~ q:  u = u + y_i x_i / (R sqrt(2 T));   w = u / max(1, |u|);   xi = what serves sum_i q_i xi_i most
        j ~ w_j^2:  v_i = y_i x_ij |w|^2 / (R w_j) + xi_i / R;   q_i = q_i (1 - eta v_i + eta^2 v_i^2),   eta = sqrt(log n / T)

    v_i is clipped to [-1/eta, 1/eta]. A step reads one row and one column. Returned is the mean of the w, scaled to norm 1
    and then to margin 1. It is always scaled to norm 1; `sbp` does so only where that raises the level. The problem is that
    of `sbp` with a bound on the slack of each row.

    Args:
        nu: mean slack, >= 0, in units of the margin; 0 is the hard margin.
        horizon: T, the steps that the run is meant to make, > 0; None: ten passes.

    Returns:
        A solver on all rows, which draws its own: what the sampler draws only counts the steps, n a pass. Model `Linear`; where
        the level is not above 0 the mean as it is. The residual is 1 where the row drawn is on the wrong side; it measures
        that row only.

    Raises:
        ValueError: nu no single number of at least 0, horizon no single number above 0.

    Differs from the paper: rows are scaled to norm 1 here; the weights are kept as logarithms, the largest 0; example
        weights count as copies.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[2.0, 0.0], [-1.0, 0.0]], [1, -1])
        >>> run = jaxsvm.fit(simba(0.0), data, jax.random.key(0), steps=200)
        >>> run.model(data.x).tolist()
        [2.0, -1.0]

    Reference: E. Hazan, T. Koren, N. Srebro, Beating SGD: learning SVMs in sublinear time, NIPS 2011, algorithm 1.
    """
    check_nonnegative(nu=nu)
    if horizon is not None:
        check_positive(horizon=horizon)

    def init(key, data):
        weight = data.weight.astype(accum_dtype(data.x))
        reach = jnp.sqrt(jnp.max(jnp.where(weight > 0, sqnorms(data.x), 0))).astype(weight.dtype)
        reach = jnp.where(reach > 0, reach, 1)
        zero = jnp.zeros(data.x.shape[1], reach.dtype)
        log_q = jnp.where(weight > 0, jnp.zeros_like(weight), -jnp.inf)
        return SimbaState(log_q, zero, zero, zero, reach, weight, key, jnp.zeros((), jnp.int32))

    def update(state, batch):
        log_q, u, mean, compensation, reach, weight, key, t = state
        y, n = batch.y.astype(u.dtype), pairwise_sum(weight)
        steps = 10 * n if horizon is None else horizon
        eta = jnp.sqrt(jnp.log(jnp.maximum(n, 2)) / steps)
        draw = jax.random.uniform(jax.random.fold_in(key, t), (2, 1), jnp.float32).astype(u.dtype)
        # A row by its weight: the other player's move.
        i = sample_proportional(weight * jnp.exp(log_q), draw[0])
        row, label = _row(batch.x, i), gather(y, i)[0]
        w_before = u * shorten(dot(u, u), 1.0)
        u = u + label * row / (reach * jnp.sqrt(2 * jnp.asarray(steps, u.dtype)))
        w = u * shorten(dot(u, u), 1.0)
        # All margins from one coordinate, in expectation.
        square = dot(w, w)
        j = sample_proportional(jnp.where(square > 0, w * w, 1), draw[1])
        w_j = gather(w, j)[0]
        slack = _slack(jnp.exp(log_q), weight, nu / reach * n)
        margin = y * _column(batch.x, j) * jnp.where(w_j != 0, square / (reach * jnp.where(w_j != 0, w_j, 1)), 0)
        v = jnp.clip(margin + slack, -1 / eta, 1 / eta)
        log_q = jnp.where(square > 0, log_q + jnp.log1p(eta * v * (eta * v - 1)), log_q)
        log_q = log_q - fast_max(log_q)
        wrong = (label * dot(w_before, row) <= 0).astype(u.dtype)
        info = Info(
            loss=wrong,
            residual=wrong,
            progress=jnp.zeros(1, u.dtype),
            index=i,
            support=jnp.full((), u.shape[0], jnp.int32),
            evals=jnp.full((), 2, jnp.int32),
        )
        mean, compensation = running_mean(mean, compensation, w, 1 / (t + 1).astype(u.dtype))
        return SimbaState(log_q, u, mean, compensation, reach, weight, key, t + 1), info

    def model(state, data=None):
        square = dot(state.mean, state.mean)
        w = state.mean * lax.rsqrt(jnp.where(square > 0, square, 1))
        if data is None:
            raise ValueError("the scale of this model is that of its margins: call solver.model(state, data)")
        margin = data.y.astype(w.dtype) * dot(data.x.astype(w.dtype), w)
        level = water_level(margin, nu * pairwise_sum(state.weight), weight=state.weight)
        return Linear(jnp.where(level > 0, w / jnp.where(level > 0, level, 1), w), jnp.zeros((), w.dtype))

    return Solver(init, update, model, uniform(), "all", residual_scope="sample", targets="labels")


def _row(x, i):
    row = x[i].astype(accum_dtype(x))
    return dot(jnp.ones(1, row.dtype), row)


def _column(x, j):
    if isinstance(x, SparseRows):
        return dot(x, jnp.zeros(x.shape[1], x.dtype).at[j].set(1)).astype(accum_dtype(x))
    return lax.dynamic_slice_in_dim(x, j[0], 1, axis=1)[:, 0].astype(accum_dtype(x))


def _slack(q, weight, budget):
    """The xi in [0, 2] with sum_i weight_i xi_i <= budget that serve sum_i q_i xi_i most: 2 for the largest q, as far as it goes.

    The last value of q that gets some is found by halving the numbers between 0 and 1, which are ordered like their bits.
    """
    q, weight, budget = lax.stop_gradient((q, weight, budget))
    kind = jnp.int64 if q.dtype == jnp.float64 else jnp.int32
    bits = jnp.where(weight > 0, lax.bitcast_convert_type(q, kind), -1)

    def spent(last):
        return 2 * pairwise_sum(jnp.where(bits > last, weight, 0))

    def halve(_, ends):
        low, high = ends  # what is spent above low exceeds the budget, above high it does not
        middle = low + (high - low) // 2
        fits = spent(middle) <= budget
        return jnp.where(fits, low, middle), jnp.where(fits, middle, high)

    one = lax.bitcast_convert_type(jnp.ones((), q.dtype), kind)
    _, last = lax.fori_loop(0, jnp.iinfo(kind).bits - 1, halve, (jnp.full((), -2, kind), one))
    level = jnp.where(bits == last, weight, 0)
    left = jnp.maximum(budget - spent(last), 0)
    mass = pairwise_sum(level)
    return jnp.where(bits > last, 2, jnp.where(bits == last, jnp.minimum(2, left / jnp.where(mass > 0, mass, 1)), 0)).astype(
        q.dtype
    )
