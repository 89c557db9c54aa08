"""Dual coordinate descent with shrinking: `descend` is the loop, `_pass` a pass over rows."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from ..numerics import count, row_loops
from ..types import Array

SHARE = 0.03  # of the largest violation of all rows, down to which listed rows are solved
RENEWAL = 10.0  # visits of each row after which all are listed again in any case
FIRST_LOOK, LATEST_LOOK = 3.0, 16.0  # violation over sqrt(tol), and visits, at the first look
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


class Problem(Protocol):
    """A dual whose rows have one coefficient, or k of them, and the weights that follow."""

    @property
    def x(self) -> Any:
        """The rows (n, d)."""

    @property
    def constant(self) -> bool:
        """Whether there is a constant feature 1, whose weight is b."""

    def gain(self, i: Array, coef: Array, score: Array) -> Array:
        """The rate at which the dual grows as row i moves; below 0 where it may not, ()."""

    def maximiser(self, i: Array, coef: Array, score: Array) -> Array:
        """The coefficients of row i of the largest dual, the others fixed."""

    def weights(self, coef: Array) -> tuple[Array, Array]:
        """The weights w, b of the coefficients."""

    def gap(self, coef: Array) -> tuple[Array, Array, Any, Array]:
        """The weights w, b of the coefficients, the sum of losses and the relative duality gap."""


class Search(NamedTuple):
    """What passes carry."""

    coef: Array  # (n,), or (n, k)
    w: Array  # (d,), or (d, k)
    b: Array  # (), or (k,)
    order: Array  # (n + 1,) int32, the listed rows come first
    size: Array  # () int32, how many they are
    violation: Array  # () largest violation of the last pass; inf: no row leaves
    scale: Array  # () largest violation of all passes
    goal: Array  # () violation at which listed rows are solved, a share of that of all rows
    loss: Any  # () sum of losses at the last look, or what `gap` of the problem gives instead
    residual: Array  # () at the last look
    best: Array  # () residual at the last look that made it fall by a tenth
    passes: Array  # () int32
    visits: Array  # () of each row: of listed ones, and two for a look at the gap
    look: Array  # () violation of all rows at which the gap is computed
    latest: Array  # () visits after which it is, in any case: twice those at that fall
    renewal: Array  # () visits after which all rows are listed again
    is_stuck: Array  # () bool, rounding leaves nothing to gain


def descend(
    problem: Problem, coef: Array, tol: Array, rounds: Array, live: Array | None = None
) -> Search:
    """Passes until the gap is at most `tol`.

    Rows that are not `live` (n,) are not visited: they have no coefficient and no loss. The gap is
    about proportional to the largest violation. So the next look is where the violation would be
    small enough.
    """
    n, dtype = coef.shape[0], coef.dtype
    everything, zero = jnp.arange(n + 1, dtype=jnp.int32), jnp.zeros((), jnp.int32)
    infinite, all_rows = jnp.full((), jnp.inf, dtype), jnp.full((), n, jnp.int32)
    if live is not None:
        everything = jnp.argsort(jnp.append(~live, True), stable=True).astype(jnp.int32)
        all_rows = count(live)
    one_visit = jnp.maximum(all_rows, 1).astype(dtype)  # of each row
    most, rounding = rounds.astype(dtype), float(jnp.finfo(dtype).eps) ** 0.5

    def should_continue(at):
        return (at.residual > tol) & (at.visits < most) & ~at.is_stuck

    def step(at):
        new, kept, number, moved = _pass(problem, at)
        is_whole, violation = at.size == all_rows, new.violation
        goal = jnp.where(is_whole, SHARE * violation, at.goal)
        visits = at.visits + jnp.maximum(at.size.astype(dtype) / one_visit, SHORTEST)
        looks = is_whole & ((violation <= at.look) | ~moved | (visits >= at.latest))
        looks |= visits >= most
        begins_anew = looks | (violation <= goal) | (number == 0) | (visits >= at.renewal)
        # a look sums w up anew, in which updates leave rounding errors
        w, b, loss, residual = lax.cond(
            looks, problem.gap, lambda coef: (new.w, new.b, at.loss, at.residual), new.coef
        )
        spent = visits + jnp.where(looks, 2.0, 0.0)
        share = jnp.clip(tol / residual, 0.02, 0.5)
        has_gained, is_late = looks & (residual <= 0.9 * at.best), looks & (visits >= at.latest)
        no_gain = is_late & ~has_gained & (goal < SHARE * rounding * at.scale)
        return Search(
            coef=new.coef,
            w=w,
            b=b,
            order=jnp.where(begins_anew, everything, kept),
            size=jnp.where(begins_anew, all_rows, number),
            violation=jnp.where(begins_anew | ~(violation > 0), infinite, violation),
            scale=jnp.maximum(at.scale, violation),
            goal=goal,
            loss=loss,
            residual=residual,
            best=jnp.where(has_gained, residual, at.best),
            passes=at.passes + 1,
            visits=spent,
            look=jnp.where(looks, share * goal / SHARE, at.look),
            latest=jnp.where(has_gained | is_late, 2 * spent, at.latest),
            renewal=jnp.where(begins_anew, spent + RENEWAL, at.renewal),
            is_stuck=is_whole & ~moved | no_gain,
        )

    after = lambda visits: jnp.full((), visits, dtype)
    w, b = problem.weights(coef)
    loss = jax.tree.map(lambda a: jnp.full(a.shape, jnp.inf, a.dtype), jax.eval_shape(problem.gap, coef)[2])
    begin = Search(
        coef, w, b, everything, all_rows, infinite, after(0.0), infinite, loss, infinite, infinite,
        zero, after(0.0), FIRST_LOOK * jnp.sqrt(tol), after(LATEST_LOOK), after(RENEWAL),
        jnp.zeros((), bool),
    )  # fmt: skip
    return lax.while_loop(should_continue, step, begin)


@jax.named_scope("visit_rows")
def _pass(problem: Problem, at: Search) -> tuple[Search, Array, Array, Array]:
    """A visit of each listed row; the rows that stay, their number, and whether any moved."""
    dot_row, add_row = row_loops(problem.x)
    size = at.size.astype(jnp.uint32)
    stride = visiting_stride(at.passes, size)

    def visit(_, carry):
        # The coefficient of the row before is written first: XLA would copy an array that a body
        # reads before it writes. The row i is known from the visit before, so that reads of it
        # do not wait for the list.
        place, i, (row, value), coef, w, b, kept, number, violation, moved = carry
        coef = put_row(coef, row, value)
        old = row_at(coef, i)
        score = dot_row(i, w) + b
        gain = problem.gain(i, old, score)
        stays = gain >= -at.violation
        moves = (gain > 0) & stays
        new = jnp.where(moves, problem.maximiser(i, old, score), old)
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
            jnp.where(stays, jnp.maximum(violation, gain), violation),
            moved | has_moved,
        )

    zero = jnp.zeros((), jnp.uint32)
    first = at.order[0].astype(jnp.uint32)
    carry = (
        zero, first, (first, row_at(at.coef, first)), at.coef, at.w, at.b,
        jnp.zeros_like(at.order), jnp.zeros((), jnp.int32), jnp.full_like(at.violation, -jnp.inf),
        jnp.zeros((), bool),
    )  # fmt: skip
    _, _, (row, value), coef, w, b, kept, number, violation, moved = lax.fori_loop(
        0, at.size, visit, carry
    )
    new = at._replace(coef=put_row(coef, row, value), w=w, b=b, violation=violation)
    return new, kept, number, moved


def row_at(a: Array, i: Array) -> Array:
    """Row i of an array, i an unsigned integer."""
    size = (1, *a.shape[1:])
    return lax.dynamic_slice(a, _start(a, i), size, allow_negative_indices=False)[0]


def put_row(a: Array, i: Array, value: Array) -> Array:
    """The array with another row i, an unsigned integer; in place in a loop that reads it after."""
    return lax.dynamic_update_slice(a, value[None], _start(a, i), allow_negative_indices=False)


def _start(a: Array, i: Array) -> tuple[Array, ...]:
    return (i, *[jnp.zeros_like(i)] * (a.ndim - 1))


def visiting_stride(passes: Array, size: Array) -> Array:
    """A stride modulo `size` that visits each of so many places once, another one in each pass.

    Args:
        passes: () int32, made before.
        size: () uint32.
    """
    primes = jnp.asarray(PRIMES, jnp.uint32)
    return primes[passes % len(PRIMES)] % jnp.maximum(size, 1)
