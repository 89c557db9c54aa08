"""Dual step x space: coordinate ascent on the dual, in any order of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp
from jax import lax

from ..numerics import accum_dtype, count, gather, scatter_set
from ..recipe import register
from ..samplers import epochs
from ..types import Array, Batch, Info, Loss, Solver, Space, State, drawn, take


@register("CoordinateState")
class CoordinateState(NamedTuple):
    """Signed dual coefficients and the function that they make; the last row's coefficient waits to be written.

    A loop body that writes a coefficient first and only reads afterwards works in place; one that reads and then
    writes by slices copies all n of them at every step.
    """

    coef: Array  # (n,)  y_i alpha_i for classification, but for the waiting entry
    weight: Array  # (n,)  example weights: the bound of coefficient i is C weight_i
    f: State
    pending: tuple[Array, Array, Array]  # (1,) int32 row, (1,) its coefficient, (1,) int32 its stamp
    support: Array  # ()  int32, coefficients that are not 0
    rows: Array  # ()  int32, rows of positive weight
    stamp: Array  # (n,)  int32, the pass in which a row was last visited, but for the waiting entry
    passes: Array  # ()  int32, number of this pass
    visited: Array  # ()  int32, rows visited in this pass, each counted once
    max_violation: Array  # ()  largest violation in this pass
    residual: Array  # ()  largest violation in the last finished pass


def dual_coef(state: CoordinateState) -> Array:
    """The signed dual coefficients (n,), all written."""
    return scatter_set(state.coef, *state.pending[:2])


def coordinate(
    loss: Loss,
    C: Array,
    space: Space,
    *,
    start: Array | None = None,
    model: Callable | None = None,
    sampler: Any = None,
) -> Solver:
    """Maximise the dual along one coordinate at a time.

        f = sum_i coef_i k(x_i, .);   coef_i' = loss.dual_step(coef_i, f(x_i), y_i, k(x_i, x_i), C weight_i)
        f += (coef_i' - coef_i) k(x_i, .)

    The rows of a batch are visited one after the other, as in steps of one row, with the kernel among them computed
    by one product. The residual is the largest |coef_i' - coef_i| k(x_i, x_i) (margin units) of the last finished
    pass, infinite before the first; a pass lasts until every row of positive weight was visited, whatever the sampler
    (in `epochs` each once). (LIBLINEAR takes the projected gradient, which is no smaller, over its passes.) The kernel
    among the rows of a batch is not counted in `evals`.

    Args:
        loss: with its dual step.
        C: (), weight of the loss of one row against |w|^2 / 2, > 0.
        space: where f lives.
        start: (n,) dual variables alpha to begin from, or None.
        model: (f, coef (n,), data) -> the model; None: the space's own of f.
        sampler: default feed; None: epochs of random order.
    """

    def init(key, data):
        dtype, n = accum_dtype(data.x), data.y.shape[0]
        f, coef = space.zero(key, data), jnp.zeros(n, dtype)
        if start is not None:
            if jnp.shape(start) != (n,):
                raise ValueError(f"start has shape {jnp.shape(start)}, expected one number for each of the {n} rows")
            coef = jnp.asarray(start, dtype) * (data.y.astype(dtype) if loss.labels else 1)
            f = _lift(space, f, coef, data)
        return CoordinateState(
            coef=coef,
            weight=data.weight.astype(dtype),
            f=f,
            pending=(jnp.zeros(1, jnp.int32), coef[:1], jnp.zeros(1, jnp.int32)),
            support=count(coef != 0),
            rows=count(data.weight > 0),
            stamp=jnp.zeros(n, jnp.int32),
            passes=jnp.ones((), jnp.int32),
            visited=jnp.zeros((), jnp.int32),
            max_violation=jnp.zeros((), dtype),
            residual=jnp.full((), jnp.inf, dtype),
        )

    def update(state, batch):
        coef, stamp = (
            dual_coef(state),
            scatter_set(state.stamp, state.pending[0], state.pending[2]),
        )  # write; from here on only read
        step = drawn(batch, space.reads)
        rows = jnp.maximum(step.index, 0)
        bound = jnp.asarray(C, coef.dtype) * gather(state.weight, rows)
        score, gram = space.evaluate(state.f, batch), space.gram(batch)
        chex.assert_equal_shape([score, step.y, step.weight])
        sqnorm, live = jnp.diagonal(gram), step.weight > 0

        def visit(old, score, y, sqnorm, bound, live):
            new = loss.dual_step(old, score, y, sqnorm, bound).astype(old.dtype)
            return jnp.where(live, new, old)

        before, stamped = gather(coef, rows), gather(stamp, rows)
        fresh, now = live & (stamped < state.passes), jnp.broadcast_to(state.passes, rows.shape)
        if rows.shape[0] == 1:
            after = visit(before, score, step.y, sqnorm, bound, live)
            seen, old, pending = score, before, (rows, after, jnp.where(live, now, stamped))
        else:
            after, seen, old = visit_sequentially(visit, before, score, gram, rows, (step.y, sqnorm, bound, live))
            same = live[None, :] & (rows[:, None] == rows[None, :])
            fresh = fresh & ~jnp.any(jnp.tril(same, -1), axis=1)  # a row that stands in the batch twice counts once
            final, stamped = _final(after, rows), jnp.where(jnp.any(same, axis=1), now, stamped)
            coef = coef.at[rows].set(final, mode="promise_in_bounds")
            stamp = stamp.at[rows].set(stamped, mode="promise_in_bounds")
            pending = (rows[:1], final[:1], stamped[:1])
        move = after - old
        max_violation = jnp.maximum(state.max_violation, jnp.max(jnp.abs(move) * sqnorm))
        visited = state.visited + count(fresh)
        over = visited >= state.rows
        new = CoordinateState(
            coef=coef,
            weight=state.weight,
            f=space.add(state.f, jnp.zeros((), coef.dtype), move, batch),
            pending=pending,
            support=state.support + count(after != 0) - count(old != 0),
            rows=state.rows,
            stamp=stamp,
            passes=state.passes + over.astype(jnp.int32),
            visited=jnp.where(over, jnp.zeros_like(visited), visited),
            max_violation=jnp.where(over, jnp.zeros_like(max_violation), max_violation),
            residual=jnp.where(over, max_violation, state.residual),
        )
        share = step.weight / jnp.maximum(jnp.sum(live.astype(coef.dtype)), 1)
        info = Info(
            loss=jnp.sum(share * loss.value(score, step.y)),
            residual=new.residual,
            progress=_gain(loss, old, after, seen, step.y, sqnorm, bound),
            index=step.index,
            support=new.support,
            evals=space.evals(move, batch),
        )
        return new, info

    def finished(state, data=None):
        return space.model(state.f, data) if model is None else model(state.f, dual_coef(state), data)

    targets = "labels" if loss.labels else "real"
    return Solver(init, update, finished, sampler or epochs(1), space.reads, targets=targets, layout=space.layout)


def visit_sequentially(visit, before, score, gram, rows, rest):
    """Visit the rows of a batch one after the other; a row that stands in it twice is seen as it is by then.

    Returns:
        (b,) coefficients after each visit, scores at it, coefficients before it.
    """

    def one(k, carry):
        coef, score, after, seen, old = carry
        at = lambda a: lax.dynamic_slice_in_dim(a, k, 1)  # noqa: E731
        now, f = at(coef), at(score)
        new = visit(now, f, *(at(a) for a in rest))
        coef = jnp.where(rows == at(rows), new, coef)
        score = score + (new - now) * lax.dynamic_index_in_dim(gram, k, keepdims=False)
        write = lambda a, v: lax.dynamic_update_slice_in_dim(a, v, k, 0)  # noqa: E731
        return coef, score, write(after, new), write(seen, f), write(old, now)

    carry = (before, score, before, score, before)
    return lax.fori_loop(0, rows.shape[0], one, carry)[2:]


def _final(after, rows):
    """The coefficient of each row after its last visit in the batch."""
    b = rows.shape[0]
    last = jnp.max(jnp.where(rows[:, None] == rows[None, :], jnp.arange(b)[None, :], 0), axis=1)
    return after[last]


def _gain(loss, old, new, score, y, sqnorm, bound):
    """What the moves added to the dual, (b,)."""
    safe = jnp.where(bound > 0, bound, jnp.ones_like(bound))
    penalty = lambda coef: bound * loss.conjugate(-coef / safe, y)  # noqa: E731
    move = new - old
    gain = penalty(old) - penalty(new) - move * score - sqnorm * move * move / 2
    return jnp.where(move != 0, gain, jnp.zeros_like(gain))


def _lift(space: Space, f: State, coef: Array, data: Batch, block: int = 256) -> State:
    """f + sum_i coef_i k(x_i, .), `block` rows at a time."""
    n = coef.shape[0]
    index = jnp.arange(-(-n // block) * block, dtype=jnp.int32).reshape(-1, block)
    index = jnp.where(index < n, index, -1)

    def add(f, index):
        batch = data._replace(index=index) if space.reads == "all" else take(data, index)
        part = jnp.where(index >= 0, coef[jnp.maximum(index, 0)], jnp.zeros_like(coef[:1]))
        return space.add(f, jnp.zeros((), coef.dtype), part, batch), None

    return lax.scan(add, f, index)[0]
