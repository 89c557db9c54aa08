"""Dual coordinate descent with shrinking: `descend` is the loop, `_pass` a pass over rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import count, put_row, row_at, row_loops
from ..types import Array

FIRST, LEAST = 2.0, 1e-3  # first goal over sqrt(tol) times the largest gain, and over that gain
SHARES = 0.02, 0.5  # of a goal in that before
RENEWAL = 20.0  # visits of each row after which all are listed again in any case
PATIENCE = 3  # looks without a gain, near rounding, after which a run ends
LATEST = 120.0  # visits of each row after which the gap is computed in any case
SHORTEST = 1 / 64  # visits of each row that a pass counts at least: float32 adds them up exactly
# more than any number of rows, so that a stride modulo the size of a list has no common divisor
# with it: 32 primes between 2^30 and 2^31
PRIMES = (
    *(1362286843, 1524616343, 1275303751, 1134617557, 1565004953, 1980230267, 1816127809),
    *(1543570517, 1788199291, 1725220751, 1918462303, 1147885483, 1963474363, 1445272397),
    *(1918250717, 1502199961, 1812102289, 1652015093, 1086002081, 1963711703, 2046549319),
    *(1677607093, 2091157333, 1124496689, 1762495573, 1946906371, 1390127117, 1238349961),
    *(1857340997, 1668987283, 1708834223, 1104983753),
)


class Search(NamedTuple):
    """What passes carry."""

    coef: Array  # (n,), or (n, k)
    w: Array  # (d,), or (d, k)
    b: Array  # (), or (k,)
    order: Array  # (n + 1,) int32, the listed rows come first
    size: Array  # () int32, how many they are
    grows: Array  # () largest gain of the last pass by growth; inf: no row leaves
    falls: Array  # () the same by a fall
    scale: Array  # () largest gain of the first pass
    goal: Array  # () gain at which the rows of a list are solved
    loss: Any  # () sum of losses at the last look, or what `gap` of the problem gives instead
    residual: Array  # () at the last look; inf before
    best: Array  # () residual at the last look that made it fall by a tenth
    idle: Array  # () int32, looks since then at a goal near rounding
    passes: Array  # () int32
    visits: Array  # () of each row: of listed ones, and two for a look at the gap
    renewal: Array  # () visits after which all rows are listed again, and w is summed up anew
    latest: Array  # () visits after which the gap is computed in any case
    is_stuck: Array  # () bool, rounding leaves nothing to gain


def descend(
    problem: Any, coef: Array, tol: Array, rounds: Array, live: Array | None = None
) -> Search:
    """Passes until the gap is at most `tol`.

    The problem is a `linear_dual.DualProblem`, or has its `x`, `constant`, `gains`, `maximiser`,
    `weights` and `gap`. The coefficients of a row are () or (k,). Rows that are not `live` (n,)
    are not visited: they have no coefficient and no loss. The listed rows are visited until their
    gains are at most `goal`, then all rows. Where these meet it too, the gap is computed, and the
    goal is lowered if that is not enough.
    """
    n, dtype = coef.shape[0], coef.dtype
    everything, zero = jnp.arange(n + 1, dtype=jnp.int32), jnp.zeros((), jnp.int32)
    infinite, all_rows = jnp.full((), jnp.inf, dtype), jnp.full((), n, jnp.int32)
    if live is not None:
        everything = jnp.argsort(jnp.append(~live, True), stable=True).astype(jnp.int32)
        all_rows = count(live)
    one_visit = jnp.maximum(all_rows, 1).astype(dtype)  # of each row
    starts_at_0, rounding = ~jnp.any(coef != 0), float(jnp.finfo(dtype).eps) ** 0.5
    most = rounds.astype(dtype) + jnp.where(starts_at_0, 0.0, 2.0)
    should_continue = lambda at: (at.residual > tol) & (at.visits < most) & ~at.is_stuck

    def step(at):
        new, kept, number, moved = _pass(problem, at)
        is_first, is_whole = jnp.isinf(at.goal) & (at.size > 0), at.size == all_rows
        violation = jnp.maximum(jnp.maximum(new.grows, new.falls), 0)
        scale = jnp.where(is_first, violation, at.scale)
        share = lambda residual: jnp.clip(tol / residual, *SHARES)
        known = jnp.isfinite(at.residual)
        first = jnp.where(known, share(at.residual), jnp.maximum(FIRST * jnp.sqrt(tol), LEAST))
        goal = jnp.where(is_first, first * violation, at.goal)
        made = jnp.maximum(at.size.astype(dtype) / one_visit, SHORTEST)
        visits = at.visits + jnp.where(at.size > 0, made, 0)
        is_met, is_late = violation <= goal, visits >= at.latest
        looks = is_whole & (is_met | ~moved | is_late) | (visits >= most) | (at.size == 0)
        looks |= jnp.isnan(violation)
        begins_anew = looks | is_met | is_late | (number == 0) | (visits >= at.renewal)
        # updates leave rounding errors in w, which is summed up anew
        w, b, loss, residual = lax.switch(
            jnp.where(looks, 2, begins_anew.astype(jnp.int32)),
            (
                lambda coef: (new.w, new.b, at.loss, at.residual),
                lambda coef: (*problem.weights(coef), at.loss, at.residual),
                problem.gap,
            ),
            new.coef,
        )
        spent = visits + jnp.where(looks, 2.0, 0.0)
        has_gained = residual <= 0.9 * at.best
        goal = jnp.where(looks & is_met, share(residual) * goal, goal)
        at_rounding = (goal < rounding * scale).astype(jnp.int32)
        idle = jnp.where(looks, jnp.where(has_gained, 0, at.idle + at_rounding), at.idle)
        threshold = lambda gain: jnp.where(begins_anew | ~(gain > 0), infinite, gain)
        return Search(
            coef=new.coef,
            w=w,
            b=b,
            order=jnp.where(begins_anew, everything, kept),
            size=jnp.where(begins_anew, all_rows, number),
            grows=threshold(new.grows),
            falls=threshold(new.falls),
            scale=scale,
            goal=goal,
            loss=loss,
            residual=residual,
            best=jnp.where(looks & has_gained, residual, at.best),
            idle=idle,
            passes=at.passes + (at.size > 0).astype(jnp.int32),
            visits=spent,
            renewal=jnp.where(begins_anew, spent + RENEWAL, at.renewal),
            latest=jnp.where(looks, jnp.maximum(2 * spent, LATEST), at.latest),
            is_stuck=is_whole & ~moved | looks & (idle >= PATIENCE),
        )

    after = lambda visits: jnp.full((), visits, dtype)
    unknown = lambda a: jnp.full(a.shape, jnp.inf, a.dtype)
    loss = jax.tree.map(unknown, jax.eval_shape(problem.gap, coef)[2])
    size = jnp.where(starts_at_0, all_rows, 0)  # 0: a look comes first
    w, b = problem.weights(coef)
    begin = Search(
        coef, w, b, everything, size, infinite, infinite, infinite, infinite,
        loss, infinite, infinite, zero, zero, after(0.0), after(RENEWAL), after(LATEST),
        jnp.zeros((), bool),
    )  # fmt: skip
    return lax.while_loop(should_continue, step, begin)


@jax.named_scope("visit_rows")
def _pass(problem: Any, at: Search) -> tuple[Search, Array, Array, Array]:
    """A visit of each listed row; the rows that stay, their number, and whether any moved."""
    dot_row, add_row = row_loops(problem.x)
    size = at.size.astype(jnp.uint32)
    stride = visiting_stride(at.passes, size)

    def visit(_, carry):
        # The coefficient of the row before is written first: XLA would copy an array that a body
        # reads before it writes. The row i is known from the visit before, so that reads of it
        # do not wait for the list.
        place, i, (row, value), coef, w, b, kept, number, most, moved = carry
        coef = put_row(coef, row, value)
        old = row_at(coef, i)
        score = dot_row(i, w) + b
        grows, falls = problem.gains(i, old, score)
        # a row leaves that would lose more by a move than any other gains by the reverse
        stays = (grows >= -at.falls) | (falls >= -at.grows)
        moves = (jnp.maximum(grows, falls) > 0) & stays
        new = jnp.where(moves, problem.maximiser(i, old, score), old)
        stays = jnp.any(stays)
        change = new - old
        has_moved = jnp.any(change != 0)
        place = place + stride
        place = jnp.where(place >= size, place - size, place)
        return (
            place,
            row_at(at.order, place).astype(jnp.uint32),
            (i, new),
            coef,
            add_row(i, change, w, has_moved),
            b + change if problem.constant else b,
            put_row(kept, number.astype(jnp.uint32), i.astype(jnp.int32)),
            number + stays.astype(jnp.int32),
            tuple(
                jnp.where(stays, jnp.maximum(a, jnp.max(b)), a)
                for a, b in zip(most, (grows, falls), strict=True)
            ),
            moved | has_moved,
        )

    zero = jnp.zeros((), jnp.uint32)
    first, no_gain = at.order[0].astype(jnp.uint32), jnp.full_like(at.grows, -jnp.inf)
    carry = (
        zero, first, (first, row_at(at.coef, first)), at.coef, at.w, at.b,
        jnp.zeros_like(at.order), jnp.zeros((), jnp.int32), (no_gain, no_gain), jnp.zeros((), bool),
    )  # fmt: skip
    carry = lax.fori_loop(0, at.size, visit, carry)
    _, _, (row, value), coef, w, b, kept, number, (grows, falls), moved = carry
    new = at._replace(coef=put_row(coef, row, value), w=w, b=b, grows=grows, falls=falls)
    return new, kept, number, moved


def visiting_stride(passes: Array, size: Array) -> Array:
    """A stride modulo `size` that visits each of so many places once, another one in each pass.

    Args:
        passes: () int32, made before.
        size: () uint32.
    """
    primes = jnp.asarray(PRIMES, jnp.uint32)
    return primes[passes % len(PRIMES)] % jnp.maximum(size, 1)
