"""What a function on a budget stands on, and what maintenance may do to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..kernels import Kernel
from ..numerics import argmax_value, dot, fast_max, index_row
from ..recipe import recipe
from ..types import Array


class Points(NamedTuple):
    """The m stored points and a newcomer, place m, which is stored nowhere yet.

    Points that came with a coefficient above 0 are in the first `front` places, those below 0 in the last `back` of the m.
    """

    x: Array  # (m, d)  less a shift that they have in common where the kernel is one of differences
    sqnorm: Array  # (m,)  |x_j|^2
    coef: Array  # (m + 1,)
    row: Array  # (d,)  the newcomer
    values: Array  # (m + 1,)  k(x_j, newcomer)
    birth: Array  # (m + 1,)  int32, how many newcomers there were before
    annotations: Any  # (m + 1, ...) what the maintenance has noted of each point, a pytree
    front: Array  # ()  int32
    back: Array  # ()  int32
    bits: Array  # ()  uint32, drawn for this newcomer

    @property
    def budget(self) -> int:
        """The number of places m."""
        return self.x.shape[0]

    @property
    def full(self) -> Array:
        """Whether all m places are taken, () bool."""
        return self.front + self.back >= self.budget

    @property
    def live(self) -> Array:
        """Which places are taken, the newcomer's with them, (m + 1,) bool."""
        return jnp.append(occupied(self.budget, self.front, self.back), True)

    def oldest_of(self, worth: Array) -> Array:
        """The place of the largest of (m + 1,) numbers, of several that of the oldest point, () int32."""
        return argmax_value(jnp.where(worth == fast_max(worth), -self.birth, jnp.iinfo(jnp.int32).min))[0]

    @property
    def oldest(self) -> Array:
        """The place of the stored point that came first, where all places are taken, () int32."""
        return argmax_value(-self.birth[:-1])[0]

    def at(self, i: Array) -> Array:
        """The point at place i, (d,)."""
        return jnp.where(i < self.budget, index_row(self.x, jnp.minimum(i, self.budget - 1)), self.row)

    def values_of(self, kernel: Kernel, i: Array) -> Array:
        """The values k(x_j, x_i), (m + 1,)."""
        stored = kernel.values(self.at(i)[None], self.x, self.sqnorm)[0]
        return jnp.where(i < self.budget, jnp.append(stored, index_row(self.values, i)), self.values)

    def gram(self, kernel: Kernel) -> Array:
        """The kernel among all points (m + 1, m + 1); rows and columns of places that are not taken are the identity's."""
        every, live = jnp.concatenate([self.x, self.row[None]]), self.live
        return jnp.where(live[:, None] & live[None, :], kernel(every, every), jnp.eye(live.shape[0], dtype=self.coef.dtype))

    def scores_without(self, kernel: Kernel) -> Array:
        """What f without point r is at x_j, for all points r (rows) and j (columns), (m + 1, m + 1)."""
        gram = self.gram(kernel)
        return dot(self.coef, gram)[None, :] - self.coef[:, None] * gram


def occupied(budget: int, front: Array, back: Array) -> Array:
    """Which of the m places hold points: the first `front` and the last `back`, (m,) bool."""
    place = lax.iota(jnp.int32, budget)
    return (place < front) | (place >= budget - back)


class Change(NamedTuple):
    """What maintenance decides: one place is given up, and at most one point moves."""

    coef: Array  # (m + 1,)  after it; that of the place given up is not read
    removed: Array  # ()  int32, the place given up; m: the newcomer is not stored
    moved: Array  # ()  int32, the place whose point becomes `row`; -1: none
    row: Array  # (d,)


def remove_point(points: Points, removed: Array, coef: Array | None = None) -> Change:
    """The change that gives up a place and moves no point.

    Args:
        points: before.
        removed: () the place.
        coef: (m + 1,) coefficients afterwards; None: as they were.
    """
    coef = points.coef if coef is None else coef
    return Change(coef, jnp.asarray(removed, jnp.int32), jnp.full((), -1, jnp.int32), points.row)


def _anything(kernel: Kernel) -> None:
    """Every kernel will do."""


class Maintenance(NamedTuple):
    """How a function is kept within its budget."""

    change: Callable  # (kernel, points, memo)  -> (Change, memo), where a newcomer finds no free place
    memory: Callable = lambda dtype: ()  # (dtype)  -> memo, what is to be remembered, a pytree
    annotate: Callable = lambda y: ()  # (y ())       -> what is to be noted of a newcomer, a pytree; it goes with the point
    # (notes (m, ...), values (m,), live (m,), y ()) -> notes, at every row, k(x_j, row) in values; None: nothing changes
    observe: Callable | None = None
    evals: Callable = lambda budget: 0  # (budget)  -> kernel evaluations of a change, at most
    check: Callable = _anything  # (kernel) -> None, raising for kernels that it cannot work with


maintenance = recipe(Maintenance)
