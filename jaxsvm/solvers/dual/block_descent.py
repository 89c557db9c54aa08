"""Block minimisation of the dual: rows, or their features, are at hand a block at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from ..._node import cast, node, positive
from ...engines.base import LossSolver
from ...engines.coordinate_descent import descend
from ...engines.linear_dual import Start, check_arguments, clip_rounds, clipped, problem_of
from ...implicit import without_derivatives
from ...losses import hinge
from ...models import Linear
from ...numerics import accum_dtype, count, dot, gather
from ...samplers import epochs
from ...types import Array, Batch, Info, Loss, state_class

ROWS = 4096  # of a block


@state_class("BlockState", method="block_descent")
class BlockState(NamedTuple):
    """The dual coefficients, the weights that follow, and the sums of the current pass."""

    coef: Array  # (n,) signed
    w: Array  # (d,) sum_i coef_i x_i
    b: Array  # () sum_i coef_i, or 0
    weight: Array  # (n,) of the rows
    stamp: Array  # (n,) int32, the pass of the last visit to each row
    passes: Array  # () int32, the number of the current pass, from 1
    visited: Array  # () int32, rows visited in it
    gap: Array  # () sum of the terms of the duality gap of these rows, as they were found
    loss: Array  # () sum of their losses
    residual: Array  # () gap / primal of the last complete pass; inf before the first


@node
class block_descent(LossSolver):
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by its dual, block by block.

    A step takes the drawn rows B and moves their dual coefficients, the others fixed:

        w_B = w - sum_{i in B} coef_i x_i
        coef_B towards the argmax of the dual, by passes of coordinates as in `dual_descent`
        w = w_B + sum_{i in B} coef_i x_i

    It makes `rounds` visits for each row of a block while the block is at hand. So it is for rows
    that cost more to make than to visit: features that do not fit into memory, as in
    `on_features(features.fourier(...), block_descent(C))`. If all rows fit, `dual_descent` is
    faster. A block holds 4,096 rows by default: `samplers.epochs(b)` takes b.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            squared_eps_insensitive, pinball, squared.
        bias: "feature" (a constant feature 1, regularised with the others) or "none".
        rounds: visits for each row of a block, on average; a whole number up to 100,000. A pass of
            a short list counts as 1/64 at least.

    Returns:
        A solver on drawn rows; model `Linear`. The residual is that of the last complete pass: the
        sum of the terms of the duality gap over the objective, each at the weights that its row
        met. It is no bound, but mostly larger than the gap at the end of the pass.
        `certificate(dual=result.state.solver.coef)` is one. A row that a step draws twice counts
        once. `evals` counts visits of rows, and two for each look at the gap of a block, and three.

    Raises:
        ValueError: C not a single positive number, another loss or bias, rounds out of range.
        TypeError: for a derivative of a run; `dual_descent` has those of the same solution.

    Differs from the paper: blocks are drawn anew in each pass (the paper: fixed blocks in a random
        order). They come from memory or from a feature map (the paper: from a disk).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.block_descent(10.0), data, jax.random.key(0), steps=2)
        >>> float(result.model.w[0])
        1.0

    Reference: H.-F. Yu, C.-J. Hsieh, K.-W. Chang, C.-J. Lin, Large linear classification when data
        cannot fit in memory, KDD 2010, algorithm 1 (the framework) and the section on the dual.
    """

    C: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["feature", "none"] = "feature"
    rounds: float = 4.0

    sampler = epochs(ROWS)

    def check(self) -> None:
        check_arguments(self.loss, self.rounds)

    def init(self, key: Array, data: Batch) -> BlockState:
        weight = data.weight.astype(accum_dtype(data.x))
        zero, no_rows = jnp.zeros((), weight.dtype), jnp.zeros((), jnp.int32)
        state = BlockState(
            coef=jnp.zeros_like(weight),
            w=jnp.zeros(data.x.shape[-1], weight.dtype),
            b=zero,
            weight=weight,
            stamp=jnp.zeros(weight.shape, jnp.int32),
            passes=no_rows + 1,
            visited=no_rows,
            gap=zero,
            loss=zero,
            residual=zero + jnp.inf,
        )
        return jax.tree.map(jnp.array, state)  # each array its own

    def update(self, state: BlockState, batch: Batch) -> tuple[BlockState, Info]:
        given = cast((self.C, self.rounds, self.loss), state.w.dtype), state, batch
        numbers, state, batch = without_derivatives("block_descent", given)
        solve = _make_solver(self.bias == "feature")
        n, index = state.coef.shape[0], jnp.maximum(batch.index, 0)
        # each row once: not where its number occurs before
        order = jnp.argsort(batch.index, stable=True)
        ordered = batch.index[order]
        same = jnp.concatenate([jnp.zeros(1, bool), ordered[1:] == ordered[:-1]])
        is_repeated = jnp.zeros_like(same).at[order].set(same) & (batch.index >= 0)
        live = (batch.weight > 0) & ~is_repeated
        of_rows = lambda a: jnp.where(live, gather(a, index), 0)
        coef, y = of_rows(state.coef), batch.y.astype(state.coef.dtype)
        start = Start(coef, state.w, state.b)
        end = solve(numbers, (batch.x, y, of_rows(state.weight), live, start))
        first = live & (gather(state.stamp, index) < state.passes)
        add_first = lambda total, a: total + jnp.sum(jnp.where(first, a, 0))
        gap, losses = add_first(state.gap, end.terms), add_first(state.loss, end.losses)
        visited = state.visited + count(first)
        ends = visited >= count(state.weight > 0)
        primal = jnp.sum(end.w * end.w) / 2 + end.b * end.b / 2 + losses
        place = jnp.where(live, index, n)
        new = BlockState(
            coef=state.coef.at[place].set(end.coef, mode="drop"),
            w=end.w,
            b=end.b,
            weight=state.weight,
            stamp=state.stamp.at[place].set(state.passes, mode="drop"),
            passes=state.passes + ends.astype(jnp.int32),
            visited=jnp.where(ends, 0, visited),
            gap=jnp.where(ends, 0, gap),
            loss=jnp.where(ends, 0, losses),
            residual=jnp.where(ends, gap / jnp.where(primal > 0, primal, 1), state.residual),
        )
        share = batch.weight / jnp.maximum(jnp.sum((batch.weight > 0).astype(coef.dtype)), 1)
        info = Info(
            loss=jnp.sum(share * numbers[2].value(end.score, y)),
            residual=new.residual,
            progress=jnp.where(live, end.gain, 0),
            index=jnp.where(is_repeated, -1, batch.index),
            support=count(new.coef != 0),
            evals=end.visits * count(live).astype(coef.dtype),
        )
        return new, info

    def model(self, state: BlockState, data: Batch | None = None) -> Linear:
        return Linear(state.w, state.b, self.bias)


class Solved(NamedTuple):
    """A block whose coefficients were moved, and what its rows had before."""

    coef: Array  # (b,)
    w: Array  # (d,)
    b: Array  # ()
    score: Array  # (b,) decision values before
    losses: Array  # (b,) C weight_i times the losses at them
    terms: Array  # (b,) of the duality gap at them
    gain: Array  # (b,) of the dual, if a visit had moved the row alone
    visits: Array  # () of each row, with looks


@functools.cache
def _make_solver(constant: bool) -> Callable:
    """The function (C, rounds, loss), (x, y, weight, live, start) -> `Solved` of one block."""

    def solve(numbers, block):
        (C, rounds, loss), (x, y, weight, live, start) = numbers, block
        problem = problem_of(x, y, C * weight, loss, constant, start)
        before = clipped(start.coef, problem)
        score = dot(x, start.w) + start.b
        losses, terms = problem.terms(before, score)
        tiny = jnp.full((), jnp.finfo(y.dtype).tiny, y.dtype)  # `rounds` is what ends it
        end = descend(problem, before, tiny, clip_rounds(rounds), live)
        gain = problem.curvature * (end.coef - before) ** 2 / 2
        return Solved(end.coef, end.w, end.b, score, losses, terms, gain, end.visits + 3)

    # under `vmap` in turns: passes over lists of several lengths would wait for the longest
    return jax.custom_batching.sequential_vmap(jax.jit(solve))
