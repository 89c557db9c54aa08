"""Descent on the weights of sparse rows as a scale times a vector: a step touches its columns only.

    w = s v;   a shrink changes s, and the addition of a row changes v in the columns of the row

The mean of the iterates is kept as two vectors and three numbers:

    sum_t omega_t w_t = beta v + u;   v += a x:   u -= beta a x;   beta += omega_t s

Reference: L. Bottou, Stochastic gradient descent tricks, in Neural Networks: Tricks of the Trade,
    2012, section 5.1; W. Xu, Towards optimal one pass large scale learning with averaged stochastic
    gradient descent, arXiv 1107.2490, 2011, section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..._node import register
from ...checks import as_number
from ...engines.gradient_descent import rows_in
from ...models import Linear
from ...numerics import accum_dtype, count, two_sum
from ...types import Array, Batch, Info, Loss, Scalar
from .sparse_tables import add_outer, fold_columns, products_and_squares

# The scale below which it is multiplied into the vector. For a mean, v is at most 2^8 times w, so
# that beta v + u loses 8 bits at most. Without a mean |v|^2 must stay finite.
MIN_SCALE, MIN_SCALE_WITHOUT_MEAN = 2.0**-8, 2.0**-30
BLOCK = 2**16  # steps after which beta v + u is added to the mean, with compensation


@register("ScaledMean")
class ScaledMean(NamedTuple):
    """The numbers of the mean of the iterates; its vectors are columns of `ScaledState.table`."""

    beta: Array  # ()
    omega: Array  # ()  sum of the weights of the iterates in beta v + u
    total: Array  # ()  sum of the weights of the iterates in the mean
    weight: Array  # ()  weight of the next iterate
    count: Array  # type: ignore[assignment]  # ()  int32, number of steps
    b: Any  # ()  mean of the biases, or None
    b_compensation: Any  # ()  its rounding error, or None


@register("ScaledState")
class ScaledState(NamedTuple):
    """Weights w = scale v, and the mean of the iterates if there is one."""

    # (d, 1)  v; or (d, 4)  v, u, the mean, and its rounding errors, which are still to be added
    table: Array
    scale: Array  # ()
    scale_compensation: Array  # ()  its rounding error, as 1 - 1/t is near 1
    square: Array  # ()  |v|^2
    square_compensation: Array  # ()  its rounding error
    count: Array  # type: ignore[assignment]  # ()  int32, steps of the schedule
    b: Any  # (), or None without a bias
    mean: ScaledMean | None

    def with_mean(self) -> ScaledState:
        """The initial state with an empty mean of the iterates."""
        zero = jnp.zeros_like(self.scale)
        b = None if self.b is None else zero
        mean = ScaledMean(zero, zero, zero, zero, jnp.zeros((), jnp.int32), b, b)
        return self._replace(table=jnp.pad(self.table, ((0, 0), (0, 3))), mean=mean)

    def weigh_next(self, start: int, weights: Callable | None) -> ScaledState:
        """The state with the weight of the iterate after the next step: 0 before step `start`."""
        mean, dtype = self.mean, self.scale.dtype
        assert mean is not None
        since = mean.count - start
        weight = jnp.ones((), dtype)
        if weights is not None:
            weight = jnp.asarray(weights(jnp.maximum(since, 0).astype(dtype)), dtype)
        return self._replace(mean=mean._replace(weight=jnp.where(since >= 0, weight, 0)))

    def mean_weights(self) -> tuple[Array, Array | None]:
        """The mean of the iterates (d,) with its bias, or the iterate if the mean is empty."""
        mean = self.mean
        assert mean is not None
        is_empty = mean.total + mean.omega == 0
        folded = fold_columns(jnp.ones((), bool), self.table, _fold_numbers(self))
        w = jnp.where(is_empty, self.scale * self.table[:, 0], folded[:, 2])
        return w, None if self.b is None else jnp.where(is_empty, self.b, mean.b)


class ScaledSteps(NamedTuple):
    """The steps of Pegasos on scaled weights, for sparse rows.

    w = (1 - 1/(t + offset)) w - slope x / (lam (t + offset));   w = w min(1, r / |w|)
    """

    loss: Loss  # of scores
    lam: Scalar
    bias: str  # "none", "feature" or "free"
    offset: Scalar  # as of `pegasos`
    project: bool  # onto the ball of radius r = 1/sqrt(lam)
    advance_on_violation: bool  # as of `pegasos`

    def init(self, data: Batch) -> ScaledState:
        """The state before the first step."""
        dtype = accum_dtype(data.x)
        zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)
        table = jnp.zeros((data.x.shape[1], 1), dtype)
        b = None if self.bias == "none" else zero
        return ScaledState(table, one, zero, zero, zero, jnp.zeros((), jnp.int32), b, None)

    def update(self, state: ScaledState, batch: Batch) -> tuple[ScaledState, Info]:
        """One step, as `Solver.update`."""
        table, scale, dtype = state.table, state.scale, state.table.dtype
        product, row_square = products_and_squares(table, batch.x)
        score = scale * product if state.b is None else scale * product + state.b
        slope = self.loss.slope(score, batch.y)
        # XLA treats the loop over steps of one row as small only while it has few operations.
        is_single = score.shape[0] == 1
        total = (lambda a: a[0]) if is_single else (lambda a: jnp.sum(a) / rows_in(batch))
        row_gradient = batch.weight * slope
        row_gradient = row_gradient if is_single else row_gradient / rows_in(batch)
        active = jnp.any(row_gradient != 0)
        # The schedule 1 / (self.lam (count + 1 + self.offset)), and what it shrinks by.
        before = state.count.astype(dtype) + jnp.asarray(as_number("offset", self.offset), dtype)
        inverse_step = jnp.asarray(self.lam, dtype) * (before + 1)
        # w is 0 before the first step, which shrinks it to 0: then any scale serves.
        drop = jnp.where(before > 0, -scale / (before + 1), 0)
        scale, scale_low = two_sum(scale, state.scale_compensation, drop)
        coef = row_gradient / (-inverse_step * scale)
        columns = coef[:, None]
        if state.mean is not None:
            columns = jnp.stack([coef, -state.mean.beta * coef], axis=1)
        table = add_outer(table, columns, batch.x)
        square, compensation = state.square, state.square_compensation
        if self.project and is_single:
            gain = coef[0] * (2 * product[0] + coef[0] * row_square[0])
            square, compensation = two_sum(square, compensation, gain)
        elif self.project:
            square = jnp.sum(table[:, 0] ** 2)
        b = state.b
        if self.bias == "feature":
            b = before / (before + 1) * b - jnp.sum(row_gradient) / inverse_step
        elif self.bias == "free":
            rate = lax.rsqrt((state.count + 1).astype(dtype))
            b = b - rate * jnp.sum(row_gradient)
        if self.project:
            norm_square = scale * scale * (square + compensation)
            norm_square = norm_square + b * b if self.bias == "feature" else norm_square
            factor = lax.rsqrt(jnp.maximum(norm_square * self.lam, 1))
            scale, scale_low = scale * factor, scale_low * factor
            b = factor * b if self.bias == "feature" else b
        steps = active.astype(jnp.int32) if self.advance_on_violation else jnp.ones((), jnp.int32)
        mean = None if state.mean is None else add_iterate(state.mean, scale, b)
        numbers = scale, scale_low, square, compensation
        new = normalise_scale(ScaledState(table, *numbers, state.count + steps, b, mean))
        info = Info(
            loss=total(batch.weight * self.loss.value(score, batch.y)),
            residual=total(batch.weight * jnp.abs(slope)),
            progress=jnp.zeros_like(score),
            index=batch.index,
            support=jnp.full((), table.shape[0], jnp.int32),
            evals=count(batch.weight > 0),
        )
        return new, info

    def model(self, state: ScaledState) -> Linear:
        """The model of the iterate."""
        b = jnp.zeros((), state.table.dtype) if state.b is None else state.b
        return Linear(state.scale * state.table[:, 0], b, self.bias)


def add_iterate(mean: ScaledMean, scale: Array, b: Array | None) -> ScaledMean:
    """The numbers of the mean with the newest iterate."""
    omega = mean.omega + mean.weight
    b_mean, b_compensation = mean.b, mean.b_compensation
    if b is not None:
        total = mean.total + omega
        share = mean.weight / jnp.where(total > 0, total, 1)
        change = share * (b - b_mean - b_compensation)
        b_mean, b_compensation = two_sum(b_mean, b_compensation, change)
    numbers = mean.beta + mean.weight * scale, omega, mean.total, mean.weight, mean.count + 1
    return ScaledMean(*numbers, b_mean, b_compensation)


def _fold_numbers(state: ScaledState) -> Array:
    """The numbers that `fold_columns` needs: (1,) scale; or (4,) scale, beta, 1 / omega, share."""
    mean = state.mean
    if mean is None:
        return state.scale[None]
    safe = lambda a: jnp.where(a > 0, a, 1)
    share = mean.omega / safe(mean.total + mean.omega)
    return jnp.stack([state.scale, mean.beta, 1 / safe(mean.omega), share])


def normalise_scale(state: ScaledState) -> ScaledState:
    """The same weights with scale 1, and with beta v + u in the mean, where that is due.

    It changes all columns. It is due where the scale is small, and after `BLOCK` steps.
    """
    mean = state.mean
    needs_rescale = state.scale < (MIN_SCALE_WITHOUT_MEAN if mean is None else MIN_SCALE)
    if mean is not None:
        needs_rescale = needs_rescale | (mean.count % BLOCK == 0)
    table = fold_columns(needs_rescale, state.table, _fold_numbers(state))
    square_factor = jnp.where(needs_rescale, state.scale * state.scale, 1)
    if mean is not None:
        cleared = lambda a: jnp.where(needs_rescale, 0, a)
        total = jnp.where(needs_rescale, mean.total + mean.omega, mean.total)
        mean = mean._replace(beta=cleared(mean.beta), omega=cleared(mean.omega), total=total)
    return state._replace(
        table=table,
        scale=jnp.where(needs_rescale, 1, state.scale),
        scale_compensation=jnp.where(needs_rescale, 0, state.scale_compensation),
        square=square_factor * state.square,
        square_compensation=square_factor * state.square_compensation,
        mean=mean,
    )
