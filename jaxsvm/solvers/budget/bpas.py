"""Passive-aggressive learning on a budget (BPA-S)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any

import jax.numpy as jnp

from ..._node import node, positive
from ...budget import Change, Maintenance, Points, remove_point
from ...engines.online_learning import Move, OnlineSolver
from ...kernels import Kernel
from ...losses import hinge
from ...numerics import argmax_value, index_row
from ...samplers import epochs
from ...spaces import budgeted
from ...types import Array, Batch, Space, State


@node
class _simple(Maintenance):
    """Removal of one stored point, whose projection on the new point is added to it."""

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        k_xx = points.values[-1]
        # A row with k(x, x) = 0 is 0 in feature space: nothing projects on it.
        safe = jnp.where(k_xx > 0, k_xx, 1)
        projected = jnp.where(k_xx > 0, points.coef[:-1] * points.values[:-1] / safe, 0)
        degradation = points.coef[:-1] ** 2 * kernel.diag(points.x) - projected * projected * k_xx
        r, _ = argmax_value(-degradation)
        return remove_point(points, r, points.coef.at[-1].add(index_row(projected, r))), state


@node
class bpas(OnlineSolver):
    """Passive-aggressive learning on a budget, where a new point replaces an old one.

    The step is the smallest change of f that removes the loss of a row, and one point if the budget
    is full.

        tau = min(C, max(0, 1 - y_i f(x_i)) / k(x_i, x_i))
        below `budget` points:   f = f + tau y_i k(x_i, .);   else
        f = f - coef_r k(x_r, .) + (coef_r k(x_r, x_i) / k(x_i, x_i) + tau y_i) k(x_i, .)
        r = argmin_r coef_r^2 (k(x_r, x_r) - k(x_r, x_i)^2 / k(x_i, x_i))

    The loss afterwards is the same for every r, so that r minimises the change of f.

    Args:
        C: the largest step, > 0.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order.

    Raises:
        ValueError: C not a single positive number, budget below 2.

    Differs from the paper: example weights multiply the step; a row that is a point already adds to
        its coefficient.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.bpas(1.0, jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: Z. Wang, S. Vucetic, Online passive-aggressive algorithms on a budget, AISTATS 2010,
        section 3, BPA-S.
    """

    C: float = positive()
    kernel: Kernel
    _: KW_ONLY
    budget: int

    sampler = epochs(1)

    @property
    def space(self) -> Space:
        return budgeted(self.kernel, budget=self.budget, maintain=_simple())

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        loss = hinge.value(score, batch.y)
        tau = jnp.minimum(self.C, loss / jnp.diagonal(gram()))
        return (), Move(jnp.zeros((), score.dtype), tau * batch.y * share, loss)
