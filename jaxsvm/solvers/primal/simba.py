"""SIMBA: sublinear training by sampling rows and columns."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, node, positive, register
from ...models import Linear
from ...numerics import (
    accum_dtype,
    bisect,
    dot,
    fast_max,
    gather,
    one_level,
    pairwise_sum,
    running_mean,
    sample_proportional,
    sqnorms,
)
from ...projections import shorten
from ...samplers import uniform
from ...types import Array, Batch, Info, Rows, Solver, SparseRows


@register("SimbaState")
class SimbaState(NamedTuple):
    """The row weights q, the sum u of the drawn rows, and the mean of the iterates w.

    Rows are in units of R.
    """

    log_q: Array  # (n,)  log q, with maximum 0
    u: Array  # (d,)
    mean: Array  # (d,)
    compensation: Array  # (d,)  compensation of the sum behind the mean
    reach: Array  # ()   R, the largest norm of a row
    weight: Array  # (n,)
    key: Array  # ()
    t: Array  # ()  int32


@node
class simba(Solver):
    """Maximise the smallest margin over |w| <= 1, given a mean slack of nu, in O(n + d) a step.

        f(w) = max min_i (y_i <w, x_i> + xi_i)   over 0 <= xi <= 2 R of mean at most nu,
            R = max |x_i|
        i ~ q:  u = u + y_i x_i / (R sqrt(2 T));   w = u / max(1, |u|);   xi = argmax sum_i q_i xi_i
        j ~ w_j^2:  v_i = y_i x_ij |w|^2 / (R w_j) + xi_i / R;
        q_i = q_i (1 - eta v_i + eta^2 v_i^2),   eta = sqrt(log n / T)

    v_i is clipped to [-1/eta, 1/eta]. A step reads one row and one column. The model is the mean of
    the w, scaled to norm 1 and then to margin 1; `sbp` scales to norm 1 only where that raises the
    level. The problem is that of `sbp` with a bound on the slack of each row.

    Args:
        nu: mean slack, >= 0, in units of the margin; 0 is the hard margin.
        horizon: T, the planned number of steps, > 0; None: ten passes.

    Returns:
        A solver on all rows that draws its own. The sampler only counts the steps, n a pass. Model
        `Linear`; if its level is not above 0, the mean is scaled to norm 1 only. The residual is 1
        if the drawn row is misclassified, else 0; it measures that row only.

    Raises:
        ValueError: nu not a single number of at least 0, horizon not a single positive number.

    Differs from the paper: rows are scaled to norm at most 1 here; q is stored as logarithms with
        maximum 0; example weights count as copies.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[2.0, 0.0], [-1.0, 0.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.simba(0.0), data, jax.random.key(0), steps=200)
        >>> result.model(data.x).tolist()
        [2.0, -1.0]

    Reference: E. Hazan, T. Koren, N. Srebro, Beating SGD: learning SVMs in sublinear time, NIPS
        2011, algorithm 1.
    """

    nu: float = between(0.0)
    _: KW_ONLY
    horizon: float | None = positive(default=None)

    sampler = uniform()
    needs_all_rows = True
    residual_of = "batch"
    targets = "labels"

    def init(self, key: Array, data: Batch) -> SimbaState:
        weight = jnp.array(data.weight, accum_dtype(data.x))
        R = jnp.sqrt(jnp.max(jnp.where(weight > 0, sqnorms(data.x), 0))).astype(weight.dtype)
        R = jnp.where(R > 0, R, 1)
        log_q = jnp.where(weight > 0, jnp.zeros_like(weight), -jnp.inf)
        u, mean, compensation = (jnp.zeros(data.x.shape[1], R.dtype) for _ in range(3))
        zero = jnp.zeros((), jnp.int32)
        return SimbaState(log_q, u, mean, compensation, R, weight, jnp.copy(key), zero)

    def update(self, state: SimbaState, batch: Batch) -> tuple[SimbaState, Info]:
        log_q, u, mean, compensation, R, weight, key, t = state
        y, n = batch.y.astype(u.dtype), pairwise_sum(weight)
        steps = 10 * n if self.horizon is None else self.horizon
        eta = jnp.sqrt(jnp.log(jnp.maximum(n, 2)) / steps)
        uniforms = jax.random.uniform(jax.random.fold_in(key, t), (2, 1), jnp.float32)
        uniforms = uniforms.astype(u.dtype)
        # i ~ q, and a step of w along row i.
        i = sample_proportional(weight * jnp.exp(log_q), uniforms[0])
        row, label = _row(batch.x, i), gather(y, i)[0]
        w_before = u * shorten(dot(u, u), 1.0)
        u = u + label * row / (R * jnp.sqrt(2 * jnp.asarray(steps, u.dtype)))
        w = u * shorten(dot(u, u), 1.0)
        # j ~ w_j^2: an unbiased estimate of all margins from column j, and a step of q.
        square = dot(w, w)
        j = sample_proportional(jnp.where(square > 0, w * w, 1), uniforms[1])
        w_j = gather(w, j)[0]
        slack = _slack(jnp.exp(log_q), weight, self.nu / R * n)
        scale = jnp.where(w_j != 0, square / (R * jnp.where(w_j != 0, w_j, 1)), 0)
        v = jnp.clip(y * _column(batch.x, j) * scale + slack, -1 / eta, 1 / eta)
        log_q = jnp.where(square > 0, log_q + jnp.log1p(eta * v * (eta * v - 1)), log_q)
        log_q = log_q - fast_max(log_q)
        mistake = (label * dot(w_before, row) <= 0).astype(u.dtype)
        info = Info(
            loss=mistake,
            residual=mistake,
            progress=jnp.zeros(1, u.dtype),
            index=i,
            support=jnp.full((), u.shape[0], jnp.int32),
            evals=jnp.full((), 2, jnp.int32),
        )
        mean, compensation = running_mean(mean, compensation, w, 1 / (t + 1).astype(u.dtype))
        return SimbaState(log_q, u, mean, compensation, R, weight, key, t + 1), info

    def model(self, state: SimbaState, data: Batch | None = None) -> Linear:
        square = dot(state.mean, state.mean)
        w = state.mean * lax.rsqrt(jnp.where(square > 0, square, 1))
        if data is None:
            raise ValueError(
                "the scale of this model is that of its margins: call solver.model(state, data)"
            )
        margin = data.y.astype(w.dtype) * dot(data.x.astype(w.dtype), w)
        volume = self.nu * pairwise_sum(state.weight)
        level = one_level(margin, volume, weight=state.weight).level
        w = jnp.where(level > 0, w / jnp.where(level > 0, level, 1), w)
        return Linear(w, jnp.zeros((), w.dtype))


def _row(x: Rows, i: Array) -> Array:
    row = x[i].astype(accum_dtype(x))
    return dot(jnp.ones(1, row.dtype), row)


def _column(x: Array | SparseRows, j: Array) -> Array:
    if isinstance(x, SparseRows):
        return dot(x, jnp.zeros(x.shape[1], x.dtype).at[j].set(1)).astype(accum_dtype(x))
    return lax.dynamic_slice_in_dim(x, j[0], 1, axis=1)[:, 0].astype(accum_dtype(x))


def _slack(q: Array, weight: Array, budget: Array) -> Array:
    """argmax sum_i q_i xi_i over xi in [0, 2] with sum_i weight_i xi_i <= budget.

    xi is 2 for the largest q until the budget is used up. The smallest q with a positive xi is
    found by bisection over the floating-point numbers in [0, 1], ordered by their bits.
    """
    q, weight, budget = lax.stop_gradient((q, weight, budget))
    kind = jnp.int64 if q.dtype == jnp.float64 else jnp.int32
    bits = jnp.where(weight > 0, lax.bitcast_convert_type(q, kind), -1)
    spent = lambda threshold: 2 * pairwise_sum(jnp.where(bits > threshold, weight, 0))
    fits = lambda threshold: spent(threshold) <= budget  # with xi = 2 above it
    one = lax.bitcast_convert_type(jnp.ones((), q.dtype), kind)
    _, threshold = bisect(fits, jnp.full((), -2, kind), one, jnp.iinfo(kind).bits - 1)
    weight_at = jnp.where(bits == threshold, weight, 0)
    remaining = jnp.maximum(budget - spent(threshold), 0)
    mass = pairwise_sum(weight_at)
    # xi of the rows whose q is at the threshold
    xi_at = lambda: jnp.minimum(2, remaining / jnp.where(mass > 0, mass, 1))
    return jnp.where(bits > threshold, 2, jnp.where(bits == threshold, xi_at(), 0)).astype(q.dtype)
