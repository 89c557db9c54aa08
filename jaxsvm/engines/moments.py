"""Centred second moments of weighted rows, added up in pieces.

A piece with weights k, sum m, mean c and rows a_i changes sums of weight M and mean mu by

    delta = c - mu,   gram += sum_i k_i (a_i - c)(a_i - c)' + m M / (m + M) delta delta'
    mu += m / (m + M) delta,   M += m

The order of the pieces and their borders change roundings only, and a piece of weight 0 changes
nothing. Moments about 0 have c = mu = 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike

from .._node import register
from ..numerics import dot, fold_rows, two_sum
from ..types import Array, SparseRows

BLOCK = 512  # rows whose products are added without compensation
# what to take for rows of more columns than this, whose squared number is stored
LIMIT = "newton(loss=losses.squared)", 16_384


@register("Moments")
class Moments(NamedTuple):
    """Sums over rows of p inputs and k targets, q = p + k numbers each."""

    weight: Array  # ()
    mean: Array  # (q,)  0 for moments about 0
    gram: Array  # (q, q)  second moments about the mean, times the weight
    compensation: Array  # (q, q)  rounding errors of `gram`, still to be added

    def inputs(self, p: int) -> tuple[Array, Array, Array]:
        """The moments of the p inputs (p, p), with the targets (p, k), and of each target (k,)."""
        gram = self.gram + self.compensation
        return gram[:p, :p], gram[:p, p:], jnp.diagonal(gram)[p:]


def no_moments(q: int, dtype: DTypeLike) -> Moments:
    """The moments of no rows."""
    gram, compensation = (jnp.zeros((q, q), dtype) for _ in range(2))  # each a buffer of its own
    return Moments(jnp.zeros((), dtype), jnp.zeros(q, dtype), gram, compensation)


def add_rows(moments: Moments, rows: Array, weight: Array, centred: bool) -> Moments:
    """The moments with one more piece of rows (n, q) and weights (n,)."""
    added = jnp.sum(weight)
    total = moments.weight + added
    share = added / jnp.where(total > 0, total, 1)
    mean = dot(weight, rows) / jnp.where(added > 0, added, 1)
    mean = mean if centred else jnp.zeros_like(mean)
    change = mean - moments.mean
    rows = rows - mean[None, :]
    between = share * moments.weight * change[:, None] * change[None, :]
    piece = dot((weight[:, None] * rows).T, rows) + between
    gram, compensation = two_sum(moments.gram, moments.compensation, piece)
    return Moments(total, moments.mean + share * change, gram, compensation)


def joint_rows(rows: tuple, classes: int | None, constant: bool, shift: Any = 0.0) -> Array:
    """Inputs and targets side by side less `shift` (1, q), (n, p) and (n,) -> (n, p + 1 or p + k).

    The rows are x, y and weight; those of weight 0 may hold anything, and are 0. A constant input 1
    comes behind the others where `constant` is true. With `classes`, y are class numbers, and
    target c is +1 for rows of class c, else -1.
    """
    x, y, weight = rows
    inputs = (x.toarray() if isinstance(x, SparseRows) else x).astype(y.dtype)
    inputs = jnp.pad(inputs, ((0, 0), (0, int(constant))), constant_values=1)
    targets = y[:, None]
    if classes is not None:
        is_class = targets == jnp.arange(classes, dtype=y.dtype)[None, :]
        targets = jnp.where(is_class, 1, -1).astype(y.dtype)
    joint = jnp.concatenate([inputs, targets], axis=1) - shift
    return jnp.where((weight > 0)[:, None], joint, 0)


def add_joint(
    moments: Moments, batch: tuple, shift: Array, classes: int | None, bias: str
) -> Moments:
    """The moments with a batch of rows x, y, weight, less `shift` (q,), in blocks."""

    def add(moments, part, is_new):
        x, y, weight = part
        weight = jnp.where(is_new, weight, 0)
        rows = joint_rows((x, y, weight), classes, bias == "feature", shift[None, :])
        return add_rows(moments, rows, weight, bias == "free")

    return fold_rows(add, moments, batch, BLOCK)
