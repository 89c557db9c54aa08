"""Rows drawn with equal probability, or in proportion to their weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..numerics import multiply_high
from ..types import Array, Batch
from .base import Batches, by_numpy, positive_rows
from .permutation import EpochsState


@register("UniformState")
class UniformState(NamedTuple):
    """A key, and the cumulative sum of the weights as integers."""

    key: Array  # ()
    total: Array  # (n,)  uint32, non-decreasing
    flat: Array  # ()    bool, all weights are 1: no search in the cumulative sum is needed


def cumulative_units(weight: Array) -> Array:
    """The cumulative sum of the weights as integers (n,).

    It is exact for integer weights, else in units of 2^-31 of the sum. NumPy works it out for
    weights that are known here, as a program for it takes long to compile.
    """
    (weight, xp), dtype = by_numpy(weight), weight.dtype
    integers = xp.all(weight == xp.round(weight)) & (weight.sum() < 2**24)
    positive = (weight > 0).sum().astype(dtype)  # each of them may gain a unit
    most = xp.asarray(2.0**31 * (1 - positive / 2.0**31), dtype)
    # A positive weight is at least one unit.
    units = xp.maximum(xp.floor(weight * (most / weight.sum())), (weight > 0).astype(dtype))
    return xp.cumsum(xp.where(integers, weight, units).astype(xp.uint32), dtype=xp.uint32)


@node
class uniform(Batches):
    """Independent uniform draws at every step.

    With replacement, rows are drawn in proportion to their weight, by inversion of an integer
    cumulative sum, and have weight 1 in the batch. The same key then draws the same rows as on a
    data set that repeats row i weight_i times in succession. Without replacement, a step is a
    uniform subset of the rows of positive weight. Their weight in the batch is w_i / (mean positive
    weight).

    Args:
        batch_size: rows per step, >= 1; structure.
        replace: draw with replacement; structure.

    Returns:
        A sampler.

    Raises:
        ValueError: batch_size below 1 or not an integer; from `init`, a subset of more rows than
            the data has.

    Example:
        >>> import jax, jaxsvm
        >>> s = jaxsvm.samplers.uniform(2); data = jaxsvm.dataset([[0.0], [1.0], [2.0]], [1, -1, 1])
        >>> state = s.init(jax.random.key(0), data)
        >>> draw = jax.jit(s.draw, static_argnums=2)
        >>> bool((draw(state, 0, 5)[2:] == draw(state, 2, 3)).all())
        True

    Reference: R. W. Floyd's subset algorithm: J. Bentley, Programming pearls, CACM 30(9), 1987.
    """

    batch_size: int = between(1, default=1)
    replace: bool = True  # type: ignore[assignment]  # in place of the method of nodes

    def init(self, key: Array, data: Batch) -> UniformState | EpochsState:
        b, n = self.batch_size, data.weight.shape[0]
        if self.replace:
            flat = (by_numpy(data.weight)[0] == 1).all()
            return UniformState(key, *jax.device_put((cumulative_units(data.weight), flat)))
        if b > n:
            raise ValueError(f"a subset of {b} rows cannot be drawn from {n}: lower batch_size")
        return EpochsState(key, *positive_rows(data))

    def draw_one(self, s: Any, t: Array) -> Array:
        bits = jax.random.bits(jax.random.fold_in(s.key, t), (self.batch_size,), jnp.uint32)
        if not self.replace:
            return _subset(bits, s)
        position = multiply_high(bits, jnp.broadcast_to(s.total[-1], bits.shape))
        search = lambda p: jnp.searchsorted(s.total, p, side="right").astype(jnp.int32)
        return jax.lax.cond(s.flat, lambda p: p.astype(jnp.int32), search, position)

    def weight(self, data: Batch) -> Array:
        return jnp.ones_like(data.weight) if self.replace else super().weight(data)


def _subset(bits: Array, s: EpochsState) -> Array:
    """Floyd: for j = m-b .. m-1, draw r from 0..j; take r, or j if r is in the subset already."""
    b = len(bits)

    def draw_row(k, subset):
        upper = s.count - b + k
        size = jnp.maximum(upper + 1, 1).astype(jnp.uint32)
        candidate = multiply_high(bits[k], size).astype(jnp.int32)
        new = jnp.where(jnp.any(subset == candidate), upper, candidate)
        return subset.at[k].set(jnp.where(upper >= 0, new, -1))

    subset = jax.lax.fori_loop(0, b, draw_row, jnp.full((b,), -1, jnp.int32))
    return jnp.where(subset >= 0, s.rows[jnp.maximum(subset, 0)], -1)
