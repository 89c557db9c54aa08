"""The points of a function on a budget, and the changes that maintenance may make to them."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from .._node import Node
from ..kernels import Kernel
from ..numerics import argmax_value, dot, fast_max, index_row
from ..types import Array, State


class Points(NamedTuple):
    """The m places for stored points and a new point at place m, which is not stored yet.

    Points added with a positive coefficient fill the first `front` of the m places, those with a
    negative one the last `back`.
    """

    x: Array  # (m, d)  minus a common shift where the kernel depends on differences only
    sqnorm: Array  # (m,)  |x_j|^2
    coef: Array  # (m + 1,)
    row: Array  # (d,)  the new point
    values: Array  # (m + 1,)  k(x_j, new point)
    birth: Array  # (m + 1,)  int32, the number of points added before the last change of this one
    annotations: Any  # (m + 1, ...) annotations of each point by the maintenance, a pytree
    front: Array  # ()  int32
    back: Array  # ()  int32
    bits: Array  # ()  uint32, random bits for this change

    @property
    def budget(self) -> int:
        """The number of places m."""
        return self.x.shape[0]

    @property
    def full(self) -> Array:
        """Whether all m places are occupied, () bool."""
        return self.front + self.back >= self.budget

    @property
    def live(self) -> Array:
        """Which places hold points, the new point's included, (m + 1,) bool."""
        return jnp.append(occupied(self.budget, self.front, self.back), True)

    def oldest_of(self, worth: Array) -> Array:
        """The place of the largest entry of `worth` (m + 1,), () int32.

        In a tie it is the oldest point's.
        """
        is_best = worth == fast_max(worth)
        return argmax_value(jnp.where(is_best, -self.birth, jnp.iinfo(jnp.int32).min))[0]

    @property
    def oldest(self) -> Array:
        """The place of the oldest stored point, () int32; defined where all places are occupied."""
        return argmax_value(-self.birth[:-1])[0]

    def at(self, i: Array) -> Array:
        """The point at place i, (d,)."""
        stored = index_row(self.x, jnp.minimum(i, self.budget - 1))
        return jnp.where(i < self.budget, stored, self.row)

    def values_of(self, kernel: Kernel, i: Array) -> Array:
        """The values k(x_j, x_i), (m + 1,)."""
        stored = kernel.values(self.at(i)[None], self.x, self.sqnorm)[0]
        of_stored = jnp.append(stored, index_row(self.values, i))
        return jnp.where(i < self.budget, of_stored, self.values)

    def gram(self, kernel: Kernel) -> Array:
        """The kernel among all points (m + 1, m + 1).

        Rows and columns of empty places are those of the identity.
        """
        rows, live = jnp.concatenate([self.x, self.row[None]]), self.live
        identity = jnp.eye(live.shape[0], dtype=self.coef.dtype)
        return jnp.where(live[:, None] & live[None, :], kernel(rows, rows), identity)

    def scores_without(self, kernel: Kernel) -> Array:
        """The scores without point r (rows) at each point j (columns), (m + 1, m + 1).

        They are f(x_j) - coef_r k(x_r, x_j).
        """
        gram = self.gram(kernel)
        return dot(self.coef, gram)[None, :] - self.coef[:, None] * gram


def occupied(budget: int, front: Array, back: Array) -> Array:
    """Which of the m places hold points: the first `front` and the last `back`, (m,) bool."""
    place = lax.iota(jnp.int32, budget)
    return (place < front) | (place >= budget - back)


class Change(NamedTuple):
    """A decision of the maintenance: one point is removed, and at most one point is replaced."""

    coef: Array  # (m + 1,)  after the change; that of the removed place is not read
    removed: Array  # ()  int32, the place to free; m: the new point is not stored
    replaced: Array  # ()  int32, the place whose point is replaced by `row`; -1: none
    row: Array  # (d,)


def remove_point(points: Points, removed: Array | int, coef: Array | None = None) -> Change:
    """The change that frees one place and replaces no point.

    Args:
        points: before the change.
        removed: () the place to free.
        coef: (m + 1,) coefficients after the change; None: unchanged.
    """
    coef = points.coef if coef is None else coef
    return Change(coef, jnp.asarray(removed, jnp.int32), jnp.full((), -1, jnp.int32), points.row)


class Maintenance(Node):
    """A rule that keeps a function within its budget, as a node; all but `change` has a default.

    Example:
        >>> import jax, jaxsvm
        >>> @jaxsvm.node
        ... class remove_oldest(jaxsvm.budget.Maintenance):
        ...     def change(self, kernel, points, state):
        ...         return jaxsvm.budget.remove_point(points, points.oldest), state
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.linear(), budget=2, maintain=remove_oldest())
        >>> result = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [-1.0]], [1, -1]), jax.random.key(0),
        ...     steps=20)
        >>> result.model.x.shape
        (2, 1)
    """

    example: ClassVar[str] = "a maintenance such as jaxsvm.budget.merge()"

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        """The change for a new point where no place is free, and the next state."""
        raise NotImplementedError

    def memory(self, dtype: DTypeLike) -> State:
        """The initial state, a pytree."""
        return ()

    def annotate(self, y: Array) -> State:
        """The annotations of a new point with the target y (), a pytree; they follow the point."""
        return ()

    def observe(self, annotations: Any, values: Array, live: Array, y: Array) -> State:
        """The annotations (m, ...) after a row.

        Args:
            annotations: (m, ...) before.
            values: (m,) k(x_j, row).
            live: (m,) bool, where there are points.
            y: () the target of the row.
        """
        return annotations

    def evals(self, budget: int) -> int:
        """An upper bound on the kernel evaluations of a change."""
        return 0

    def check_kernel(self, kernel: Kernel) -> None:
        """Raise ValueError for a kernel that it does not support."""


class MatrixMaintenance(Maintenance):
    """A rule that computes the kernel among all points at every change."""

    def evals(self, budget: int) -> int:
        return (budget + 1) ** 2
