"""Descent on the weights of sparse rows as a scale times a vector: a step touches its columns only.

    w = s v;   a shrink changes s, and the addition of a row changes v in the columns of the row

As Pegasos shrinks by 1 - 1/t, s = size / t, where only a projection changes the size. The sum of
the iterates is kept as a second vector u and a number beta:

    sum_t omega_t w_t = beta v + u;   v += a x:   u -= beta a x;   beta += omega_t s

Reference: L. Bottou, Stochastic gradient descent tricks, in Neural Networks: Tricks of the Trade,
    2012, section 5.1; W. Xu, Towards optimal one pass large scale learning with averaged stochastic
    gradient descent, arXiv 1107.2490, 2011, section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import register
from ...engines.gradient_descent import info_of, rows_in
from ...models import Linear
from ...numerics import accum_dtype, any_under_vmap, put_row, row_at, tangents_of, two_sum
from ...numerics.sparse_products import added, referenced, scores
from ...types import Array, Batch, Info

# The size below which it is multiplied into v, and beta v + u is added to the sum, which then loses
# 8 bits at most.
MIN_SIZE = 2.0**-8
BLOCK = 2**16  # steps after which this is done, too: u stays small, and so its rounding errors


@register("ScaledMean")
class ScaledMean(NamedTuple):
    """The numbers of the mean of the iterates; u is a column of `ScaledState.table`."""

    sums: Array  # (3,)  beta, the sum of the weights of the iterates, and of the weighted biases
    rounding: Array  # (3,)  their rounding errors
    weight: Array  # ()  weight of the next iterate
    count: Array  # type: ignore[assignment]  # ()  int32, number of steps


@register("ScaledState")
class ScaledState(NamedTuple):
    """Weights w = size / max(t, 1) v, and the mean of the iterates, if any."""

    table: Array  # (d, 1)  v; or (d, 3)  v, u, and what was folded of the sum
    size: Array  # ()
    square: Array  # ()  |v|^2
    rounding: Array  # ()  its rounding error
    count: Array  # type: ignore[assignment]  # ()  int32, steps of the schedule
    steps: Array  # ()  t = count + offset, of the solver that made the last step
    b: Any  # (), or None without a bias
    mean: ScaledMean | None

    def with_mean(self) -> ScaledState:
        """The initial state with an empty mean of the iterates."""
        zeros = jnp.zeros(3, self.table.dtype)
        mean = ScaledMean(zeros, zeros, zeros[0], jnp.zeros((), jnp.int32))
        return self._replace(table=jnp.pad(self.table, ((0, 0), (0, 2))), mean=mean)

    def weigh_next(self, start: int, weights: Callable | None) -> ScaledState:
        """The state with the weight of the iterate after the next step: 0 before step `start`."""
        mean, dtype = self.mean, self.size.dtype
        assert mean is not None
        since = mean.count - start
        weight = jnp.ones((), dtype)
        if weights is not None:
            weight = jnp.asarray(weights(jnp.maximum(since, 0).astype(dtype)), dtype)
        return self._replace(mean=mean._replace(weight=jnp.where(since >= 0, weight, 0)))

    def mean_of(self, w: Array) -> tuple[Array, Array | None]:
        """The mean of the iterates (d,) with its bias, or the iterate w if the mean is empty."""
        mean = self.mean
        assert mean is not None
        beta, total, biases = mean.sums + mean.rounding
        is_empty, total = total == 0, jnp.where(total > 0, total, 1)
        v, u, before = self.table.T
        mean_w = jnp.where(is_empty, w, (before + (beta * v + u)) / total)
        return mean_w, None if self.b is None else jnp.where(is_empty, self.b, biases / total)


class ScaledSteps(NamedTuple):
    """The steps of Pegasos on scaled weights, for sparse rows.

    w = (1 - 1/t) w - slope x / (lam t);   w = w min(1, r / |w|),   t = count + 1 + offset
    """

    solver: Any  # `pegasos`

    def init(self, data: Batch) -> ScaledState:
        """The state before the first step."""
        dtype = accum_dtype(data.x)
        zero, table = jnp.zeros((), dtype), jnp.zeros((data.x.shape[1], 1), dtype)
        numbers, number = (jnp.ones((), dtype), zero, zero), jnp.zeros((), jnp.int32)
        b = None if self.solver.bias == "none" else zero
        return ScaledState(table, *numbers, number, self._steps(number, dtype), b, None)

    def update(self, state: ScaledState, batch: Batch) -> tuple[ScaledState, Info]:
        """One step, as `Solver.update`."""
        solver, (table, size, square, rounding, number, was, b, mean) = self.solver, state
        x, dtype, before = referenced(batch.x), table.dtype, self._steps(number, table.dtype)
        # the same weights with the offset of this solver, and the same size to the bit with its own
        one, other = jnp.maximum(before, 1), jnp.maximum(was, 1)
        size = size * jnp.where(one == other, 1 + (one - other) / other, one / other)
        product, now, lam = scores(x, table)[:, 0], before + 1, jnp.asarray(solver.lam, dtype)
        score = _scale(size, before) * product + (0 if b is None else b)
        slope, rows = solver.loss.slope(score, batch.y), rows_in(batch)
        rate = batch.weight * slope / rows
        coef = -rate / (lam * size)
        parts = [coef] if mean is None else [coef, -mean.sums[0] * coef, jnp.zeros_like(coef)]
        table = added(table, jnp.stack(parts, axis=1), x)
        if solver.bias == "feature":
            b = before / now * b - jnp.sum(rate) / (lam * now)
        elif solver.bias == "free":
            b = b - lax.rsqrt((number + 1).astype(dtype)) * jnp.sum(rate)
        if solver.project:  # |v|^2 grows by the sum of coef (<v_before, x> + <v, x>)
            gain = jnp.sum(coef * (product + scores(x, table)[:, 0]))
            square, rounding = two_sum(square, rounding, gain)
            norm_square = (size / now) ** 2 * (square + rounding)
            norm_square = norm_square + b * b if solver.bias == "feature" else norm_square
            factor = lax.rsqrt(jnp.maximum(norm_square * lam, 1))
            size, b = factor * size, factor * b if solver.bias == "feature" else b
        if mean is not None:
            of_iterate = size / now, jnp.ones_like(size), jnp.zeros_like(size) if b is None else b
            terms = mean.weight * jnp.stack(of_iterate)
            sums = two_sum(mean.sums, mean.rounding, terms)
            mean = ScaledMean(*sums, mean.weight, mean.count + 1)
        steps = jnp.ones((), jnp.int32)
        if solver.advance_on_violation:  # where t stays, the size shrinks in its place
            steps = jnp.any(rate != 0).astype(jnp.int32)
            size = jnp.where((steps > 0) | (number == 0), size, before / now * size)
        residual = jnp.sum(batch.weight * jnp.abs(slope)) / rows
        info = info_of(solver.loss, score, batch, rows, residual, table.shape[0])
        number = number + steps
        now = self._steps(number, dtype)
        new = ScaledState(table, size, square, rounding, number, now, b, mean)
        return _normalised(new), info

    def model(self, state: ScaledState) -> Linear:
        """The model of the iterate."""
        b = jnp.zeros((), state.table.dtype) if state.b is None else state.b
        w = _scale(state.size, state.steps) * state.table[:, 0]
        return Linear(w, b, self.solver.bias)

    def _steps(self, number: Array, dtype: Any) -> Array:
        """t after so many steps."""
        offset = 0 if self.solver.offset is None else self.solver.offset
        return number.astype(dtype) + jnp.asarray(offset, dtype)


def _scale(size: Array, steps: Array) -> Array:
    """What v is multiplied by; w is 0 before the first step, and any number serves."""
    return size / jnp.maximum(steps, 1)


def _normalised(state: ScaledState) -> ScaledState:
    """The same weights and mean with size 1 and beta 0, if the size is small."""
    mean, is_due, factors = state.mean, state.size < MIN_SIZE, state.size[None]
    if mean is not None:
        is_due = is_due | (mean.count % BLOCK == 0)
    due = any_under_vmap(is_due)
    either = lambda new, old: jnp.where(due, new, old)
    square = either(state.size**2, 1)
    if mean is not None:
        factors = jnp.stack([state.size, mean.sums[0]])
        clear = lambda a: a.at[0].set(either(0, a[0]))
        mean = mean._replace(sums=clear(mean.sums), rounding=clear(mean.rounding))
    table, size = fold(due, state.table, factors), either(1, state.size)
    numbers = size, square * state.square, square * state.rounding
    return ScaledState(table, *numbers, state.count, state.steps, state.b, mean)


def _new_row(row: Array, factors: Array) -> Array:
    """A row of a table, changed as `fold` says."""
    if row.shape[0] == 1:
        return factors * row
    (v, u, before), (size, beta) = row, factors
    return jnp.stack([size * v, jnp.zeros_like(u), before + (beta * v + u)])


_new_rows = jax.vmap(_new_row, (0, None))


@tangents_of(lambda due, table, factors: jnp.where(due, _new_rows(table, factors), table))
def fold(due: Array, table: Array, factors: Array) -> Array:
    """A table with size v for v and beta v + u added to the sum, if that is due.

    On a CPU entry by entry, so that a loop around it stays one small loop, and nothing is copied.
    """

    def by_entry(due, table, factors):
        end = jnp.where(due, table.shape[0], 0).astype(jnp.uint32)
        change = lambda k, table: put_row(table, k, _new_row(row_at(table, k), factors))
        return lax.fori_loop(jnp.zeros((), jnp.uint32), end, change, table)

    def whole(due, table, factors):
        return lax.cond(due, lambda: _new_rows(table, factors), lambda: table)

    return lax.platform_dependent(due, table, factors, cpu=by_entry, default=whole)
