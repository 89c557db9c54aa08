"""Kernel expansions over at most m points, stored as copies."""

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
    """Up to three delayed writes of rows into their places; a write may be repeated."""

    place: Array  # (3,)  int32; a place that occurs twice has the same row twice
    row: Array  # (3, d)
    sqnorm: Array  # (3,)


@register("BudgetedState")
class BudgetedState(NamedTuple):
    """f = sum_j coef_j k(x_j, .) over the occupied places.

    These are the first `front` and the last `back` places; coef is 0 elsewhere.

    The writes of the last step are delayed: a loop body that first writes and then only reads is
    updated in place by XLA.
    """

    x: Array  # (m, d)  minus the shift, without the pending rows
    sqnorm: Array  # (m,)
    coef: Array  # (m,)
    birth: Array  # (m,)  int32, the number of points added before this one
    annotations: Any  # (m, ...) annotations of each point by the maintenance
    front: Array  # ()  int32, points added with a positive coefficient
    back: Array  # ()  int32, points added with a negative coefficient
    added: Array  # ()  int32, points added so far
    seed: Array  # ()  uint32
    memory: Any  # state of the maintenance
    pending: PendingWrites
    shift: Array  # (d,)  `Kernel.offset` of the data at initialisation


@space
def budgeted(kernel: Kernel, *, budget: int, maintain: Maintenance) -> Space:
    """f = sum_j coef_j k(x_j, .) with at most `budget` points, which are copies of rows.

    Memory and time per step are O(m d). A row with a nonzero step becomes a point; a row equal to a
    point adds to its coefficient. Where no place is free, `maintain` decides which of the m + 1
    points is removed and how the others compensate. Rows of a batch are added in sequence, by
    scores evaluated before the first. Sparse rows are stored as dense points.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); not `precomputed`.
        budget: m, >= 2; structure.
        maintain: `budget.merge()`, `budget.remove()`, `budget.project()`, or a custom maintenance.

    Returns:
        A space for `jaxsvm.engines.online` and others.

    Raises:
        ValueError: budget below 2; a precomputed kernel; a kernel that the maintenance does not
            support.
        TypeError: maintain is not a maintenance.
    """
    kernel, m = check_points(kernel), check_budget(budget)
    refuse_factory("maintain", maintain)
    if not is_kind(maintain, Maintenance):
        raise TypeError(
            f"maintain must be a maintenance such as jaxsvm.budget.merge(), got {shown(maintain)}"
        )
    maintain.check(kernel)

    def zero(key, data):
        dtype, zero_count = accum_dtype(data.x), jnp.zeros((), jnp.int32)
        x, vector = jnp.zeros((m, data.x.shape[-1]), dtype), jnp.zeros(m, dtype)
        seed = jax.random.bits(key, (), jnp.uint32)
        pending = PendingWrites(
            jnp.zeros(3, jnp.int32), x[jnp.zeros(3, jnp.int32)], jnp.zeros(3, dtype)
        )
        annotations = jax.tree.map(
            lambda a: jnp.zeros((m, *jnp.shape(a)), a.dtype), maintain.annotate(jnp.ones((), dtype))
        )
        birth = jnp.zeros(m, jnp.int32)
        zero_counts = zero_count, zero_count, zero_count
        return BudgetedState(
            x,
            vector,
            vector,
            birth,
            annotations,
            *zero_counts,
            seed,
            maintain.memory(dtype),
            pending,
            kernel.offset(data),
        )

    def evaluate(f, batch):
        f = flush(f)
        return dot(values_at(kernel, f, batch.x), f.coef)

    def add(f, shrink, coef, batch):
        return sequentially(add_row, flush, f._replace(coef=(1 - shrink) * f.coef), coef, batch)

    def add_row(f, coef, batch):
        """f + coef k(x, .) for a batch of one row."""
        f = flush(f)
        row, values = dense_centred(f, batch.x), values_at(kernel, f, batch.x)[0]
        if maintain.observe is not None:
            new = maintain.observe(
                f.annotations, values, occupied(f.coef.shape[0], f.front, f.back), batch.y[0]
            )
            f = f._replace(
                annotations=jax.tree.map(
                    functools.partial(jnp.where, batch.weight[0] > 0), new, f.annotations
                )
            )
        without_x = lax.cond(
            coef[0] != 0,
            lambda: add_point(f, coef, row, values, batch.y[0]),
            lambda: f._replace(x=None),
        )
        return without_x._replace(x=f.x)

    def add_point(f, coef, row, values, y):
        """The state after the row is added, without `x`."""
        live = occupied(f.coef.shape[0], f.front, f.back)
        # the nearest point
        duplicate, _ = argmax_value(jnp.where(live, 2 * values - kernel.diag(f.x), -jnp.inf))
        is_duplicate = index_row(live, duplicate) & jnp.all(index_row(f.x, duplicate) == row[0])
        coef = coef + jnp.where(is_duplicate, index_row(f.coef, duplicate), 0)
        annotate = lambda a, new: jnp.concatenate(
            [a, jnp.where(is_duplicate, index_row(a, duplicate), new)[None]]
        )
        points = Points(
            x=f.x,
            sqnorm=f.sqnorm,
            coef=jnp.append(f.coef, coef),
            row=row[0],
            values=jnp.append(values, kernel.diag(row)),
            birth=jnp.append(f.birth, f.added),
            annotations=jax.tree.map(annotate, f.annotations, maintain.annotate(y)),
            front=f.front,
            back=f.back,
            bits=hash32(f.seed + hash32(f.added.astype(jnp.uint32))),
        )
        grows = ~is_duplicate & ~points.full
        free = jnp.where(is_duplicate, duplicate, jnp.where(coef[0] > 0, f.front, m - 1 - f.back))
        store = lambda: (remove_point(points, free), f.memory)
        change, memory = lax.cond(
            is_duplicate | grows, store, lambda: maintain.change(kernel, points, f.memory)
        )
        return apply_change(f._replace(memory=memory, added=f.added + 1), points, change, grows)

    points = lambda f: (centre(flush(f).x, -f.shift), f.coef)
    return point_space(
        kernel, zero, evaluate, add, points, lambda f: f.front + f.back, m, maintain.evals(m)
    )


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
    """A space whose functions are expansions over points that they store.

    Args:
        kernel: of the space.
        zero: as `Space.zero`.
        evaluate: as `Space.evaluate`.
        add: as `Space.add`.
        points: f -> its points (m, d) and their coefficients (m,).
        support: as `Space.support`.
        row: kernel evaluations per row.
        move: upper bound on the further evaluations for a row that changes f.
    """

    def model(f, data=None):
        x, coef = points(f)
        return Expansion(
            kernel, x, coef, jnp.zeros((), coef.dtype), jnp.full(coef.shape, -1, jnp.int32)
        )

    return Space(
        zero=zero,
        evaluate=evaluate,
        sqnorm=kernel.diag,
        add=add,
        model=model,
        gram=lambda batch: (
            kernel.diag(batch.x)[:, None] if batch.x.shape[0] == 1 else kernel(batch.x, batch.x)
        ),
        evals=lambda coef, batch: row * count(batch.weight > 0) + move * count(coef != 0),
        support=support,
    )


def check_points(kernel: Any) -> Kernel:
    """The kernel, after a check that it can be evaluated at any points.

    Raises:
        ValueError: it is precomputed.
    """
    kernel = as_kernel(kernel)
    if holds_precomputed(kernel):
        raise ValueError(
            "a budget holds points of its own, and a precomputed kernel knows "
            "training rows only: take another one"
        )
    return kernel


def check_budget(budget: int) -> int:
    """The number of points, after a check.

    Raises:
        ValueError: below 2, or not an integer.
    """
    return integer("budget", budget, 2, note=", the points that the model may hold")


def flush(f: BudgetedState) -> BudgetedState:
    """The state with the pending rows written."""
    x, sqnorm, place = f.x, f.sqnorm, lax.iota(jnp.int32, f.x.shape[0])
    for k in range(3):
        x = lax.dynamic_update_index_in_dim(x, f.pending.row[k], f.pending.place[k], 0)
        sqnorm = jnp.where(place == f.pending.place[k], f.pending.sqnorm[k], sqnorm)
    return f._replace(x=x, sqnorm=sqnorm)


def contributions(kernel: Kernel, f: BudgetedState, batch: Batch) -> Array:
    """The contribution coef_j k(x_j, x_i) of each point to the score of each row, (b, m).

    It is nan where there is no point.
    """
    f = flush(f)
    return jnp.where(
        occupied(f.coef.shape[0], f.front, f.back)[None, :],
        f.coef[None, :] * values_at(as_kernel(kernel), f, batch.x),
        jnp.nan,
    )


def dense(x: Array) -> Array:
    """Rows as a dense array."""
    return x.toarray() if isinstance(x, SparseRows) else x


def dense_centred(f: Any, x: Array) -> Array:
    """Rows as a dense array, minus the shift of the points of f."""
    return centre(dense(x), f.shift).astype(f.x.dtype)


def values_at(kernel: Kernel, f: Any, x: Array) -> Array:
    """k(x_i, x_j) for rows x (b, d) and the points of f, (b, m)."""
    return kernel.values(centre(x, f.shift), f.x, f.sqnorm)


def sequentially(
    add_row: Callable, flush_writes: Callable, f: Any, coef: Array, batch: Batch
) -> Any:
    """The state after `add_row` for each row of a batch in sequence.

    The call is `add_row(f, coef (1,), batch of one row)`. With more than one row, pending writes
    are flushed by `flush_writes` at the end.
    """
    if coef.shape[0] == 1:
        return add_row(f, coef, batch)
    rows = coef, batch._replace(x=dense(batch.x))
    row_at = lambda k: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, k, 1), rows)
    return flush_writes(lax.fori_loop(0, coef.shape[0], lambda k, f: add_row(f, *row_at(k)), f))


def apply_change(f: BudgetedState, points: Points, change: Change, grows: Array) -> BudgetedState:
    """The state after a change, without `x`, and the rows to write.

    Coefficients and annotations are in their new places.

    Args:
        f: the state before; its flushed points are in `points`.
        points: before the change.
        change: the new point goes to the removed place; m: it is not stored.
        grows: () bool, whether that place was free.
    """
    m, (coef, removed, replaced, row) = points.budget, change
    place = lax.iota(jnp.int32, m)
    new_positive, new_negative = coef[m] > 0, coef[m] < 0
    is_stored, in_front = removed < m, removed < f.front
    # Positive coefficients stay in front of negative ones. Where a point of the other sign is
    # removed, the last one of that sign moves into its place, and the new point goes to the free
    # place next to its own sign.
    shifts = is_stored & ~grows & jnp.where(in_front, new_negative, new_positive)
    last = jnp.where(in_front, f.front - 1, m - f.back)
    target = jnp.where(shifts, jnp.where(in_front, m - 1 - f.back, f.front), removed)
    step = jnp.where(shifts, jnp.where(in_front, -1, 1), 0)

    def follow(a, new):
        expand = lambda mask: mask.reshape(-1, *[1] * (a.ndim - 1))
        shifted = jnp.where(expand(shifts & (place == removed)), index_row(a, last), a)
        shifted = jnp.where(
            expand(jnp.where(shifts, place == last, place == removed)), jnp.zeros_like(a), shifted
        )
        return jnp.where(expand(is_stored & (place == target)), new, shifted)

    # copy the row of `last`, unless another write covers it
    copies_last = shifts & (last != removed) & (last != replaced)
    replaces = (replaced >= 0) & (replaced < m)
    new = target, jnp.where(replaced == m, row, points.row)
    second = jnp.where(shifts & (replaced == last), removed, replaced), row
    first = jax.tree.map(functools.partial(jnp.where, is_stored), new, second)
    second = jax.tree.map(functools.partial(jnp.where, replaces), second, first)
    third = jax.tree.map(
        functools.partial(jnp.where, copies_last), (removed, index_row(f.x, last)), first
    )
    rows = jnp.stack([first[1], second[1], third[1]])
    pending = PendingWrites(jnp.stack([first[0], second[0], third[0]]), rows, sqnorms(rows))
    no_x: Any = None
    return f._replace(
        x=no_x,
        coef=follow(coef[:m], coef[m]),
        birth=follow(f.birth, f.added - 1),
        annotations=jax.tree.map(lambda a: follow(a[:m], a[m]), points.annotations),
        front=f.front + step + (grows & new_positive).astype(jnp.int32),
        back=f.back - step + (grows & new_negative).astype(jnp.int32),
        pending=jax.tree.map(
            functools.partial(jnp.where, is_stored | replaces), pending, f.pending
        ),
    )
