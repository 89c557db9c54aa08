"""Kernel expansions over at most m points, which they own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..budget import Change, Maintenance, Points, occupied, remove_point
from ..checks import integer, shown
from ..kernels import Kernel, as_kernel, holds_precomputed
from ..models import Expansion
from ..numerics import accum_dtype, argmax_value, centre, count, dot, hash32, index_row, sqnorms
from ..recipe import is_kind, refuse_factory, register, space
from ..types import Array, Batch, Space, SparseRows


@register("PendingWrites")
class PendingWrites(NamedTuple):
    """Rows that are to be written into their places; writing them twice does no harm."""

    place: Array  # (3,)  int32; where one stands twice, with the same row
    row: Array  # (3, d)
    sqnorm: Array  # (3,)


@register("BudgetedState")
class BudgetedState(NamedTuple):
    """f = sum_j coef_j k(x_j, .) over the places that are taken: the first `front`, the last `back`; 0 elsewhere.

    The rows of the last step wait to be written: a loop body that writes first and only reads afterwards works in place.
    """

    x: Array  # (m, d)  less the shift, but for the waiting rows
    sqnorm: Array  # (m,)
    coef: Array  # (m,)
    birth: Array  # (m,)  int32, newcomers before the point came
    annotations: Any  # (m, ...) of the maintenance, on each point
    front: Array  # ()  int32, points that came with a coefficient above 0
    back: Array  # ()  int32, points that came with one below 0
    added: Array  # ()  int32, newcomers so far
    seed: Array  # ()  uint32
    memory: Any  # of the maintenance
    pending: PendingWrites
    shift: Array  # (d,)  `Kernel.offset` of the rows that there were at first


@space
def budgeted(kernel: Kernel, *, budget: int, maintain: Maintenance) -> Space:
    """f = sum_j coef_j k(x_j, .) with at most `budget` points, copies of rows: O(m d) memory and time, whatever came before.

    A row that moves f becomes a point; one that is a point already adds to its coefficient. Where no place is free,
    `maintain` decides which of the m + 1 points goes and how the others make up for it. Rows of a batch come one after the
    other, with scores taken before the first. Sparse rows are stored as dense points.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); not `precomputed`.
        budget: m, >= 2; structure.
        maintain: `budget.merge()`, `budget.remove()`, `budget.project()`, or one of your own.

    Raises:
        ValueError: budget below 2; a precomputed kernel; one that the maintenance cannot work with.
    """
    kernel, m = check_points(kernel), check_budget(budget)
    refuse_factory("maintain", maintain)
    if not is_kind(maintain, Maintenance):
        raise TypeError(f"maintain must be a maintenance such as jaxsvm.budget.merge(), got {shown(maintain)}")
    maintain.check(kernel)

    def zero(key, data):
        dtype, whole = accum_dtype(data.x), jnp.zeros((), jnp.int32)
        x, vector = jnp.zeros((m, data.x.shape[-1]), dtype), jnp.zeros(m, dtype)
        seed = jax.random.bits(key, (), jnp.uint32)
        pending = PendingWrites(jnp.zeros(3, jnp.int32), x[jnp.zeros(3, jnp.int32)], jnp.zeros(3, dtype))
        annotations = jax.tree.map(lambda a: jnp.zeros((m, *jnp.shape(a)), a.dtype), maintain.annotate(jnp.ones((), dtype)))
        birth = jnp.zeros(m, jnp.int32)
        counts = whole, whole, whole
        return BudgetedState(
            x, vector, vector, birth, annotations, *counts, seed, maintain.memory(dtype), pending, kernel.offset(data)
        )

    def evaluate(f, batch):
        f = flush(f)
        return dot(values_at(kernel, f, batch.x), f.coef)

    def add(f, shrink, coef, batch):
        return sequentially(joined, flush, f._replace(coef=(1 - shrink) * f.coef), coef, batch)

    def joined(f, coef, batch):
        """f + coef k(x, .), for the one row of a batch."""
        f = flush(f)
        row, values = dense_centred(f, batch.x), values_at(kernel, f, batch.x)[0]
        if maintain.observe is not None:
            seen = maintain.observe(f.annotations, values, occupied(f.coef.shape[0], f.front, f.back), batch.y[0])
            f = f._replace(annotations=jax.tree.map(functools.partial(jnp.where, batch.weight[0] > 0), seen, f.annotations))
        small = lax.cond(coef[0] != 0, lambda: taken_in(f, coef, row, values, batch.y[0]), lambda: f._replace(x=None))
        return small._replace(x=f.x)

    def taken_in(f, coef, row, values, y):
        """What becomes of all but the points themselves."""
        live = occupied(f.coef.shape[0], f.front, f.back)
        twin, _ = argmax_value(jnp.where(live, 2 * values - kernel.diag(f.x), -jnp.inf))  # the nearest point
        known = index_row(live, twin) & jnp.all(index_row(f.x, twin) == row[0])
        coef = coef + jnp.where(known, index_row(f.coef, twin), 0)
        points = Points(
            x=f.x,
            sqnorm=f.sqnorm,
            coef=jnp.append(f.coef, coef),
            row=row[0],
            values=jnp.append(values, kernel.diag(row)),
            birth=jnp.append(f.birth, f.added),
            annotations=jax.tree.map(lambda a, new: jnp.concatenate([a, new[None]]), f.annotations, maintain.annotate(y)),
            front=f.front,
            back=f.back,
            bits=hash32(f.seed + hash32(f.added.astype(jnp.uint32))),
        )
        grows = ~known & ~points.full
        free = jnp.where(known, twin, jnp.where(coef[0] > 0, f.front, m - 1 - f.back))
        store = lambda: (remove_point(points, free), f.memory)  # noqa: E731
        change, memo = lax.cond(known | grows, store, lambda: maintain.change(kernel, points, f.memory))
        return apply_change(f._replace(memory=memo, added=f.added + 1), points, change, grows)

    points = lambda f: (centre(flush(f).x, -f.shift), f.coef)  # noqa: E731
    return point_space(kernel, zero, evaluate, add, points, lambda f: f.front + f.back, m, maintain.evals(m))


def point_space(
    kernel: Kernel,
    zero: Callable,
    evaluate: Callable,
    add: Callable,
    points: Callable,
    support: Callable,
    row: int,
    move: int = 0,
) -> Space:
    """A space whose functions are expansions over points of their own.

    Args:
        kernel: of the space.
        zero: as `Space.zero`.
        evaluate: as `Space.evaluate`.
        add: as `Space.add`.
        points: f -> its points (m, d) and their coefficients (m,).
        support: as `Space.support`.
        row: kernel evaluations for a row.
        move: more of them, at most, for one that moves f.
    """

    def model(f, data=None):
        x, coef = points(f)
        return Expansion(kernel, x, coef, jnp.zeros((), coef.dtype), jnp.full(coef.shape, -1, jnp.int32))

    return Space(
        zero=zero,
        evaluate=evaluate,
        sqnorm=kernel.diag,
        add=add,
        model=model,
        gram=lambda batch: kernel.diag(batch.x)[:, None] if batch.x.shape[0] == 1 else kernel(batch.x, batch.x),
        evals=lambda coef, batch: row * count(batch.weight > 0) + move * count(coef != 0),
        support=support,
    )


def check_points(kernel: Any) -> Kernel:
    """The kernel, if its values among any points can be had.

    Raises:
        ValueError: it is precomputed.
    """
    kernel = as_kernel(kernel)
    if holds_precomputed(kernel):
        raise ValueError("a budget holds points of its own, and a precomputed kernel knows training rows only: take another one")
    return kernel


def check_budget(budget: int) -> int:
    """The number of points, if it is one.

    Raises:
        ValueError: below 2, or no whole number.
    """
    return integer("budget", budget, 2, note=", the points that the model may hold")


def flush(f: BudgetedState) -> BudgetedState:
    """The state with the rows that wait in their places."""
    x, sqnorm, place = f.x, f.sqnorm, lax.iota(jnp.int32, f.x.shape[0])
    for k in range(3):
        x = lax.dynamic_update_index_in_dim(x, f.pending.row[k], f.pending.place[k], 0)
        sqnorm = jnp.where(place == f.pending.place[k], f.pending.sqnorm[k], sqnorm)
    return f._replace(x=x, sqnorm=sqnorm)


def contributions(kernel: Kernel, f: BudgetedState, batch: Batch) -> Array:
    """What each point adds to the value at each row, coef_j k(x_j, x_i), (b, m); nan where there is no point."""
    f = flush(f)
    return jnp.where(
        occupied(f.coef.shape[0], f.front, f.back)[None, :],
        f.coef[None, :] * values_at(as_kernel(kernel), f, batch.x),
        jnp.nan,
    )


def dense(x: Array) -> Array:
    """Rows as a plain array."""
    return x.toarray() if isinstance(x, SparseRows) else x


def dense_centred(f: Any, x: Array) -> Array:
    """Rows as a plain array, less the shift of the points of f."""
    return centre(dense(x), f.shift).astype(f.x.dtype)


def values_at(kernel: Kernel, f: Any, x: Array) -> Array:
    """k(x_i, x_j) at rows and the points of f, (b, d) -> (b, m)."""
    return kernel.values(centre(x, f.shift), f.x, f.sqnorm)


def sequentially(join: Callable, written: Callable, f: Any, coef: Array, batch: Batch) -> Any:
    """`join(f, coef (1,), batch of one row)` for the rows of a batch in turn; several end `written`, whatever the last was."""
    if coef.shape[0] == 1:
        return join(f, coef, batch)
    rows = coef, batch._replace(x=dense(batch.x))
    alone = lambda k: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, k, 1), rows)  # noqa: E731
    return written(lax.fori_loop(0, coef.shape[0], lambda k, f: join(f, *alone(k)), f))


def apply_change(f: BudgetedState, points: Points, change: Change, grows: Array) -> BudgetedState:
    """The state after a change, without its points: where everything goes, and the rows that wait to be written.

    Args:
        f: before; its written points are in `points`.
        points: before.
        change: the place given up is the newcomer's own from now on; m: it is not stored.
        grows: () bool, that place was free.
    """
    m, (coef, gone, moved, row) = points.budget, change
    place = lax.iota(jnp.int32, m)
    ahead, behind = coef[m] > 0, coef[m] < 0
    stays, in_front = gone < m, gone < f.front
    # Coefficients above 0 stay in front of those below: where a point of the other sign goes, the last of that sign moves
    # into its place, and the newcomer takes the place next to its own sign.
    shifts = stays & ~grows & jnp.where(in_front, behind, ahead)
    last = jnp.where(in_front, f.front - 1, m - f.back)
    target = jnp.where(shifts, jnp.where(in_front, m - 1 - f.back, f.front), gone)
    step = jnp.where(shifts, jnp.where(in_front, -1, 1), 0)

    def follow(a, newcomer):
        here = lambda mask: mask.reshape(-1, *[1] * (a.ndim - 1))  # noqa: E731
        inner = jnp.where(here(shifts & (place == gone)), index_row(a, last), a)
        inner = jnp.where(here(jnp.where(shifts, place == last, place == gone)), jnp.zeros_like(a), inner)
        return jnp.where(here(stays & (place == target)), newcomer, inner)

    carried = shifts & (last != gone) & (last != moved)  # the row of `last` goes along unless it is written anyway
    changed = (moved >= 0) & (moved < m)
    newcomer = target, jnp.where(moved == m, row, points.row)
    second = jnp.where(shifts & (moved == last), gone, moved), row
    first = jax.tree.map(functools.partial(jnp.where, stays), newcomer, second)
    second = jax.tree.map(functools.partial(jnp.where, changed), second, first)
    third = jax.tree.map(functools.partial(jnp.where, carried), (gone, index_row(f.x, last)), first)
    rows = jnp.stack([first[1], second[1], third[1]])
    pending = PendingWrites(jnp.stack([first[0], second[0], third[0]]), rows, sqnorms(rows))
    return f._replace(
        x=None,
        coef=follow(coef[:m], coef[m]),
        birth=follow(f.birth, f.added - 1),
        annotations=jax.tree.map(lambda a: follow(a[:m], a[m]), points.annotations),
        front=f.front + step + (grows & ahead).astype(jnp.int32),
        back=f.back - step + (grows & behind).astype(jnp.int32),
        pending=jax.tree.map(functools.partial(jnp.where, stays | changed), pending, f.pending),
    )
