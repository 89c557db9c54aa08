"""Centred second moments of weighted rows, added up in pieces.

A piece with weights k, sum m, mean c and rows a_i changes sums of weight M and mean mu by

    delta = c - mu,   gram += sum_i k_i (a_i - c)(a_i - c)' + m M / (m + M) delta delta'
    mu += m / (m + M) delta,   M += m

The order of the pieces and their borders change roundings only, and a piece of weight 0 changes
nothing. Moments about 0 have c = mu = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike

from .._node import register
from ..numerics import dot, fold_rows, two_sum
from ..types import Array, SparseRows

BLOCK = 512  # rows whose products are added without compensation
COLUMNS = 16_384  # whose squared number is stored


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


def joint_rows(x: Array | SparseRows, y: Array, classes: int | None, constant: bool) -> Array:
    """Inputs and targets side by side, (n, p) and (n,) -> (n, p + 1) or (n, p + k).

    A constant input 1 comes behind the others where `constant` is true. With `classes`, y are class
    numbers, and target c is +1 for rows of class c, else -1.
    """
    inputs = (x.toarray() if isinstance(x, SparseRows) else x).astype(y.dtype)
    columns = [inputs]
    if constant:
        columns.append(jnp.ones((inputs.shape[0], 1), y.dtype))
    if classes is None:
        targets = y[:, None]
    else:
        numbers = jnp.arange(classes, dtype=y.dtype)
        targets = jnp.where(y[:, None] == numbers[None, :], 1, -1).astype(y.dtype)
    return jnp.concatenate([*columns, targets], axis=1)


def add_joint(
    moments: Moments, batch: tuple, shift: Array, classes: int | None, bias: str
) -> Moments:
    """The moments with a batch of rows x, y, weight, less `shift` (q,), in blocks.

    Rows of weight 0 may hold anything.
    """

    def add(moments, part, is_new):
        x, y, weight = part
        weight = jnp.where(is_new, weight, 0)
        rows = joint_rows(x, y, classes, bias == "feature") - shift[None, :]
        rows = jnp.where((weight > 0)[:, None], rows, 0)
        return add_rows(moments, rows, weight, bias == "free")

    return fold_rows(add, moments, batch, BLOCK)


def check_columns(caller: str, x: Array | SparseRows) -> None:
    """Raise for rows of too many columns.

    Raises:
        ValueError: more than `COLUMNS`.
    """
    if x.shape[-1] > COLUMNS:
        raise ValueError(
            f"{caller} takes rows of up to {COLUMNS} columns, got {x.shape[-1]}: take "
            "newton(loss=losses.squared)"
        )
