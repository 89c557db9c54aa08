"""Kernel expansions over at most m points, stored as copies."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._node import node, register
from ..budget import Change, Maintenance, Points, occupied, remove_point
from ..checks import integer
from ..kernels import Kernel, holds_precomputed
from ..models import Expansion
from ..numerics import accum_dtype, argmax_value, centre, count, dot, hash32, index_row, sqnorms
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

    @property
    def live(self) -> Array:
        """Which places hold points, (m,) bool."""
        return occupied(self.coef.shape[0], self.front, self.back)

    def flush(self) -> BudgetedState:
        """The state with the pending rows written."""
        x, sqnorm, place = self.x, self.sqnorm, lax.iota(jnp.int32, self.x.shape[0])
        for k in range(3):
            row, at = self.pending.row[k], self.pending.place[k]
            x = lax.dynamic_update_index_in_dim(x, row, at, 0)
            sqnorm = jnp.where(place == at, self.pending.sqnorm[k], sqnorm)
        return self._replace(x=x, sqnorm=sqnorm)


class PointSpace(Space):
    """Functions that are expansions over at most `budget` points, which they store.

    Their states have `x`, minus `shift`, with squared norms `sqnorm`, and `coef`. A method `flush`
    writes the rows that are pending in `x`.
    """

    kernel: Kernel
    budget: int

    def add_row(self, f: Any, coef: Array, batch: Batch) -> Any:
        """The function f + coef k(x, .) for a batch of one row, and coef (1,)."""
        raise NotImplementedError

    def coef(self, f: Any) -> Array:
        """The coefficients of the points in the model, (m,)."""
        raise NotImplementedError

    def change_evals(self) -> int:
        """An upper bound on the kernel evaluations of a row that changes f, beyond its values."""
        return 0

    def values(self, f: Any, x: Array) -> Array:
        """The values k(x_i, x_j) for rows x (b, d) and the points of f, (b, m)."""
        return self.kernel.values(centre(x, f.shift), f.x, f.sqnorm)

    def first_values(self, f: Any, x: Array) -> Array:
        """The same where points fill the first `f.size` places; 0 at the others."""
        return jnp.where(lax.iota(jnp.int32, self.budget) < f.size, self.values(f, x), 0)

    def check(self) -> None:
        integer("budget", self.budget, 2, note=", the points that the model may hold")
        if holds_precomputed(self.kernel):
            raise ValueError(
                "a budget holds points of its own, and a precomputed kernel knows "
                "training rows only: take another one"
            )

    def sqnorm(self, x: Array) -> Array:
        return self.kernel.diag(x)

    def add(self, f: Any, shrink: Array, coef: Array, batch: Batch) -> Any:
        """The function after `add_row` for each row of the batch in sequence."""
        f = f._replace(coef=(1 - shrink) * f.coef)
        if coef.shape[0] == 1:
            return self.add_row(f, coef, batch)
        rows = coef, batch._replace(x=dense(batch.x))
        row_at = lambda i: jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, i, 1), rows)
        add_next = lambda i, f: self.add_row(f, *row_at(i))
        return lax.fori_loop(0, coef.shape[0], add_next, f).flush()

    def model(self, f: Any, data: Batch | None = None) -> Expansion:
        x, coef = centre(f.flush().x, -f.shift), self.coef(f)
        index = jnp.full(coef.shape, -1, jnp.int32)
        return Expansion(self.kernel, x, coef, jnp.zeros((), coef.dtype), index)

    def gram(self, batch: Batch) -> Array:
        x = batch.x
        return self.kernel.diag(x)[:, None] if x.shape[0] == 1 else self.kernel(x, x)

    def evals(self, coef: Array, batch: Batch) -> Array:
        return self.budget * count(batch.weight > 0) + self.change_evals() * count(coef != 0)


@node
class budgeted(PointSpace):
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

    kernel: Kernel
    _: KW_ONLY
    budget: int
    maintain: Maintenance

    def check(self) -> None:
        super().check()
        self.maintain.check_kernel(self.kernel)

    def change_evals(self) -> int:
        return self.maintain.evals(self.budget)

    def zero(self, key: Array, data: Batch) -> BudgetedState:
        dtype, m, d = accum_dtype(data.x), self.budget, data.x.shape[-1]
        counter = lambda: jnp.zeros((), jnp.int32)  # arrays of their own, as states are donated
        zeros = lambda *shape: jnp.zeros(shape, dtype)
        new = self.maintain.annotate(jnp.ones((), dtype))
        return BudgetedState(
            *(zeros(m, d), zeros(m), zeros(m), jnp.zeros(m, jnp.int32)),
            annotations=jax.tree.map(lambda a: jnp.zeros((m, *a.shape), a.dtype), new),
            front=counter(),
            back=counter(),
            added=counter(),
            seed=jax.random.bits(key, (), jnp.uint32),
            memory=self.maintain.memory(dtype),
            pending=PendingWrites(jnp.zeros(3, jnp.int32), zeros(3, d), zeros(3)),
            shift=self.kernel.offset(data),
        )

    def evaluate(self, f: BudgetedState, batch: Batch) -> Array:
        f = f.flush()
        return dot(self.values(f, batch.x), f.coef)

    def contributions(self, f: BudgetedState, batch: Batch) -> Array:
        """The contribution coef_j k(x_j, x_i) of each point to the score of each row, (b, m).

        It is nan where there is no point.
        """
        f = f.flush()
        return jnp.where(f.live[None, :], f.coef[None, :] * self.values(f, batch.x), jnp.nan)

    def add_row(self, f: BudgetedState, coef: Array, batch: Batch) -> BudgetedState:
        f = f.flush()
        row, values, y = dense_centred(f, batch.x), self.values(f, batch.x)[0], batch.y[0]
        observed = self.maintain.observe(f.annotations, values, f.live, y)
        choose = functools.partial(jnp.where, batch.weight[0] > 0)
        f = f._replace(annotations=jax.tree.map(choose, observed, f.annotations))
        without_x = lax.cond(
            coef[0] != 0,
            lambda: self._add_point(f, coef, row, values, y),
            lambda: f._replace(x=None),  # type: ignore[arg-type]  # it is put back
        )
        return without_x._replace(x=f.x)

    def _add_point(
        self, f: BudgetedState, coef: Array, row: Array, values: Array, y: Array
    ) -> BudgetedState:
        """The state after the row is added, without `x`."""
        m, k = self.budget, self.kernel
        # the nearest point
        duplicate, _ = argmax_value(jnp.where(f.live, 2 * values - k.diag(f.x), -jnp.inf))
        is_duplicate = index_row(f.live, duplicate) & jnp.all(index_row(f.x, duplicate) == row[0])
        coef = coef + jnp.where(is_duplicate, index_row(f.coef, duplicate), 0)
        newest = lambda a, new: jnp.where(is_duplicate, index_row(a, duplicate), new)[None]
        annotate = lambda a, new: jnp.concatenate([a, newest(a, new)])
        points = Points(
            x=f.x,
            sqnorm=f.sqnorm,
            coef=jnp.append(f.coef, coef),
            row=row[0],
            values=jnp.append(values, k.diag(row)),
            birth=jnp.append(f.birth, f.added),
            annotations=jax.tree.map(annotate, f.annotations, self.maintain.annotate(y)),
            front=f.front,
            back=f.back,
            bits=hash32(f.seed + hash32(f.added.astype(jnp.uint32))),
        )
        grows = ~is_duplicate & ~points.full
        free = jnp.where(is_duplicate, duplicate, jnp.where(coef[0] > 0, f.front, m - 1 - f.back))
        store = lambda: (remove_point(points, free), f.memory)
        remove = lambda: self.maintain.change(k, points, f.memory)
        change, memory = lax.cond(is_duplicate | grows, store, remove)
        return apply_change(f._replace(memory=memory, added=f.added + 1), points, change, grows)

    def coef(self, f: BudgetedState) -> Array:
        return f.coef

    def support(self, f: BudgetedState) -> Array:
        return f.front + f.back


def dense(x: Array) -> Array:
    """Rows as a dense array."""
    return x.toarray() if isinstance(x, SparseRows) else x


def dense_centred(f: Any, x: Array) -> Array:
    """Rows as a dense array, minus the shift of the points of f."""
    return centre(dense(x), f.shift).astype(f.x.dtype)


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
        is_free = expand(jnp.where(shifts, place == last, place == removed))
        shifted = jnp.where(is_free, jnp.zeros_like(a), shifted)
        return jnp.where(expand(is_stored & (place == target)), new, shifted)

    # copy the row of `last`, unless another write covers it
    copies_last = shifts & (last != removed) & (last != replaced)
    replaces = (replaced >= 0) & (replaced < m)
    new = target, jnp.where(replaced == m, row, points.row)
    second = jnp.where(shifts & (replaced == last), removed, replaced), row
    first = jax.tree.map(functools.partial(jnp.where, is_stored), new, second)
    second = jax.tree.map(functools.partial(jnp.where, replaces), second, first)
    moved = removed, index_row(f.x, last)
    third = jax.tree.map(functools.partial(jnp.where, copies_last), moved, first)
    rows = jnp.stack([first[1], second[1], third[1]])
    pending = PendingWrites(jnp.stack([first[0], second[0], third[0]]), rows, sqnorms(rows))
    no_x: Any = None
    keep = functools.partial(jnp.where, is_stored | replaces)
    return f._replace(
        x=no_x,
        coef=follow(coef[:m], coef[m]),
        birth=follow(f.birth, f.added - 1),
        annotations=jax.tree.map(lambda a: follow(a[:m], a[m]), points.annotations),
        front=f.front + step + (grows & new_positive).astype(jnp.int32),
        back=f.back - step + (grows & new_negative).astype(jnp.int32),
        pending=jax.tree.map(keep, pending, f.pending),
    )
