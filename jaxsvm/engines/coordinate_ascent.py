"""Coordinate ascent on the dual: a loss's dual step in a function space, over rows in any order."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from .._node import node, positive
from ..numerics import (
    accum_dtype,
    count,
    gather,
    rounding_of_sums,
    scatter_set,
)
from ..samplers import epochs
from ..types import (
    Array,
    Batch,
    Info,
    Loss,
    Model,
    Space,
    State,
    drawn,
    require,
    state_class,
    take,
)
from .base import LossSolver, SpaceSolver


@state_class("CoordinateState", ignores_padding=True)
class CoordinateState(NamedTuple):
    """The signed dual coefficients and the function sum_i coef_i k(x_i, .).

    The last write to `coef` and `stamp` is pending. The write is delayed by one step so that the
    loop body first writes and then only reads: XLA then updates in place. A body that reads first
    would copy all n coefficients at every step.
    """

    coef: Array  # (n,)  y_i alpha_i for classification, without the pending entry
    weight: Array  # (n,)  example weights: the bound of coefficient i is C weight_i
    f: State
    # (1,) int32 row, (1,) its coefficient, (1,) int32 its stamp
    pending: tuple[Array, Array, Array]
    support: Array  # ()  int32, coefficients that are not 0
    rows: Array  # ()  int32, rows of positive weight
    stamp: Array  # (n,)  int32, the pass of the last visit to each row, without the pending entry
    passes: Array  # ()  int32, the number of the current pass, from 1
    visited: Array  # ()  int32, distinct rows visited in the current pass
    max_violation: Array  # ()  largest violation in the current pass
    residual: Array  # ()  largest violation in the last complete pass


def dual_coef(state: CoordinateState) -> Array:
    """The signed dual coefficients (n,), the pending one included."""
    return scatter_set(state.coef, *state.pending[:2])


class CoordinateSolver(SpaceSolver, LossSolver):
    """Maximise the dual along one coordinate at a time, as `coordinate`."""

    loss: Loss
    C: Any
    start: Any = None  # (n,) initial dual variables alpha; None: zeros
    sampler: Any = epochs(1)

    def check(self) -> None:
        others = "cpsp, which needs" if self.needs_all_rows else "pegasos or ocas, which need"
        for field in ("dual_step", "conjugate"):
            require(self.loss, field, f"{others} none")

    def init(self, key: Array, data: Batch) -> State:
        dtype, n, space = accum_dtype(data.x), data.y.shape[0], self.space
        f, coef = space.zero(key, data), jnp.zeros(n, dtype)
        if self.start is not None:
            if jnp.shape(self.start) != (n,):
                raise ValueError(
                    f"start has shape {jnp.shape(self.start)}, expected one number for "
                    f"each of the {n} rows"
                )
            sign = data.y.astype(dtype) if self.loss.labels else 1
            coef = jnp.asarray(self.start, dtype) * sign
            f = _lift(space, f, coef, data)
        return CoordinateState(
            coef=coef,
            weight=jnp.array(data.weight, dtype),  # arrays of its own, as states are donated
            f=f,
            pending=(jnp.zeros(1, jnp.int32), jnp.array(coef[:1]), jnp.zeros(1, jnp.int32)),
            support=count(coef != 0),
            rows=count(data.weight > 0),
            stamp=jnp.zeros(n, jnp.int32),
            passes=jnp.ones((), jnp.int32),
            visited=jnp.zeros((), jnp.int32),
            max_violation=jnp.zeros((), dtype),
            residual=jnp.full((), jnp.inf, dtype),
        )

    def update(self, state: State, batch: Batch) -> tuple[Any, Info]:
        loss, space, dtype = self.loss, self.space, state.coef.dtype
        row, _, stamp = state.pending
        # only reads follow
        state = state._replace(coef=dual_coef(state), stamp=scatter_set(state.stamp, row, stamp))
        step = drawn(batch, space.needs_all_rows)
        index, y, live = jnp.maximum(step.index, 0), step.y, step.weight > 0
        bound = jnp.asarray(self.C, dtype) * gather(state.weight, index)
        score, gram = space.evaluate(state.f, batch), space.gram(batch)
        chex.assert_equal_shape([score, y, step.weight])
        sqnorm = jnp.diagonal(gram)
        visits = _visit_batch(loss, state, index, (y, sqnorm, bound, live), score, gram)
        move = visits.new - visits.old
        max_violation = jnp.maximum(state.max_violation, jnp.max(jnp.abs(move) * sqnorm))
        visited = state.visited + count(visits.first_visit)
        pass_ends = visited >= state.rows
        end_violation = max_violation
        if space.needs_all_rows:  # a sum of kernel values
            rounding = lambda: rounding_of_sums(dual_coef(state), space.sqnorm(batch.x))
            floor = lax.cond(pass_ends, rounding, lambda: jnp.zeros((), dtype))
            end_violation = jnp.maximum(max_violation, floor)
        new_state = visits.state._replace(
            f=space.add(state.f, jnp.zeros((), dtype), move, batch),
            support=state.support + count(visits.new != 0) - count(visits.old != 0),
            passes=state.passes + pass_ends.astype(jnp.int32),
            visited=jnp.where(pass_ends, jnp.zeros_like(visited), visited),
            max_violation=jnp.where(pass_ends, jnp.zeros_like(max_violation), max_violation),
            residual=jnp.where(pass_ends, end_violation, state.residual),
        )
        safe = jnp.where(bound > 0, bound, 1)
        penalty = lambda coef: bound * loss.conjugate(-coef / safe, y)
        gain = penalty(visits.old) - penalty(visits.new)  # of the dual objective, by each visit
        gain = gain - move * visits.score - sqnorm * move * move / 2
        normalized_weight = step.weight / jnp.maximum(jnp.sum(live.astype(dtype)), 1)
        info = Info(
            loss=jnp.sum(normalized_weight * loss.value(score, y)),
            residual=new_state.residual,
            progress=jnp.where(move != 0, gain, 0),
            index=step.index,
            support=new_state.support,
            evals=space.evals(move, batch),
        )
        return new_state, info

    def model(self, state: State, data: Batch | None = None) -> Model:
        return self.space.model(state.f, data)


@node
class coordinate(CoordinateSolver):
    """Maximise the dual along one coordinate at a time.

        f = sum_i coef_i k(x_i, .);
        coef_i' = loss.dual_step(coef_i, f(x_i), y_i, k(x_i, x_i), C weight_i)
        f += (coef_i' - coef_i) k(x_i, .)

    The rows of a batch are visited in sequence, as in steps of one row; the kernel among them is
    one product, which `evals` does not count. The residual is the largest |coef_i' - coef_i| k(x_i,
    x_i), in margin units, of the last complete pass, and infinite before the first. Of expansions
    it is at least what rounding of kernel values leaves. A pass ends
    when every row of positive weight was visited, for any sampler; in `epochs` each row once.
    LIBLINEAR uses the projected gradient instead, which is at least as large.

    Args:
        loss: one that has a `dual_step`.
        C: (), weight of one row's loss relative to |w|^2 / 2, > 0.
        space: the function space of f.
        start: (n,) initial dual variables alpha; None: zeros.
        sampler: the default sampler.

    Returns:
        A solver, stopped by the residual of its last complete pass.

    Raises:
        ValueError: a loss without `dual_step`; from `init`, `start` of another length than that of
            the data.
    """

    loss: Loss
    C: float = positive()
    space: Space
    _: KW_ONLY
    start: Array | None = None
    sampler: Any = epochs(1)


class Visits(NamedTuple):
    """The visits of a batch, and the state after them, but for what all of its rows decide."""

    new: Array  # (b,)  coefficient after each visit
    score: Array  # (b,)  score at it
    old: Array  # (b,)  coefficient before it
    first_visit: Array  # (b,)  bool, whether it is the first of its row in the pass
    state: CoordinateState


@jax.named_scope("visit_rows")
def _visit_batch(
    loss: Loss, state: CoordinateState, index: Array, rest: tuple, score: Array, gram: Array
) -> Visits:
    """Visit the rows of a batch in sequence: each reads the scores and coefficients before it.

    Args:
        loss: one that has a `dual_step`.
        state: without pending entries.
        index: (b,) int32, row numbers; they may repeat.
        rest: y, k(x_i, x_i), C weight_i and whether there is a row of positive weight, (b,) each.
        score: (b,) scores before the batch.
        gram: (b, b) kernel among the rows.
    """
    live = rest[-1]

    def visit(old, score, y, sqnorm, bound, live):
        new = loss.dual_step(old, score, y, sqnorm, bound).astype(old.dtype)
        return jnp.where(live, new, old)

    before, last_pass = gather(state.coef, index), gather(state.stamp, index)
    first_visit = live & (last_pass < state.passes)
    current_pass = jnp.broadcast_to(state.passes, index.shape)
    if index.shape[0] == 1:
        new = visit(before, score, *rest)
        pending = index, new, jnp.where(live, current_pass, last_pass)
        return Visits(new, score, before, first_visit, state._replace(pending=pending))

    def visit_row(k, carry):
        coef, score, after, score_at_visit, old = carry
        row_at = lambda a: lax.dynamic_slice_in_dim(a, k, 1)
        coef_at_visit, score_now = row_at(coef), row_at(score)
        new = visit(coef_at_visit, score_now, *(row_at(a) for a in rest))
        coef = jnp.where(index == row_at(index), new, coef)
        score = score + (new - coef_at_visit) * lax.dynamic_index_in_dim(gram, k, keepdims=False)
        write_at = lambda a, v: lax.dynamic_update_slice_in_dim(a, v, k, 0)
        after, score_at_visit = write_at(after, new), write_at(score_at_visit, score_now)
        return coef, score, after, score_at_visit, write_at(old, coef_at_visit)

    carry = (before, score, before, score, before)
    new, score_at_visit, old = lax.fori_loop(0, index.shape[0], visit_row, carry)[2:]
    same = live[None, :] & (index[:, None] == index[None, :])
    # a row that occurs twice in the batch counts once
    first_visit = first_visit & ~jnp.any(jnp.tril(same, -1), axis=1)
    # of each row after its last visit in the batch
    place = jnp.arange(index.shape[0])[None, :]
    final = new[jnp.max(jnp.where(index[:, None] == index[None, :], place, 0), axis=1)]
    last_pass = jnp.where(jnp.any(same, axis=1), current_pass, last_pass)
    coef = state.coef.at[index].set(final, mode="promise_in_bounds")
    stamp = state.stamp.at[index].set(last_pass, mode="promise_in_bounds")
    pending = index[:1], final[:1], last_pass[:1]
    state = state._replace(coef=coef, stamp=stamp, pending=pending)
    return Visits(new, score_at_visit, old, first_visit, state)


def _lift(space: Space, f: State, coef: Array, data: Batch, block: int = 256) -> State:
    """f + sum_i coef_i k(x_i, .), `block` rows at a time."""
    n = coef.shape[0]
    index = jnp.arange(-(-n // block) * block, dtype=jnp.int32).reshape(-1, block)
    index = jnp.where(index < n, index, -1)

    def add(f, index):
        batch = data._replace(index=index) if space.needs_all_rows else take(data, index)
        coef_block = jnp.where(index >= 0, coef[jnp.maximum(index, 0)], jnp.zeros_like(coef[:1]))
        return space.add(f, jnp.zeros((), coef.dtype), coef_block, batch), None

    return lax.scan(add, f, index)[0]
