"""Linear functions by their weights; a step reads the sampled rows only."""

from __future__ import annotations

import jax.numpy as jnp

from .._node import node
from ..models import Linear
from ..numerics import accum_dtype, add_rows, count, cross_products, dot, sqnorms
from ..types import Array, Batch, Space


@node
class linear(Space):
    """Linear functions f(x) = <w, x> by their weights w (d,), without a bias.

    See `with_constant` for a regularised bias.
    """

    def zero(self, key: Array, data: Batch) -> Array:
        return jnp.zeros(data.x.shape[-1], accum_dtype(data.x))

    def evaluate(self, f: Array, batch: Batch) -> Array:
        return dot(batch.x, f)

    def sqnorm(self, x: Array) -> Array:
        return sqnorms(x)

    def add(self, f: Array, shrink: Array, coef: Array, batch: Batch) -> Array:
        return add_rows((1 - shrink) * f, coef, batch.x)

    def model(self, f: Array, data: Batch | None = None) -> Linear:
        return Linear(f, jnp.zeros((), f.dtype))

    def gram(self, batch: Batch) -> Array:
        x = batch.x
        return sqnorms(x)[:, None] if x.shape[0] == 1 else cross_products(x, x)

    def evals(self, coef: Array, batch: Batch) -> Array:
        return count(batch.weight > 0)

    def support(self, f: Array) -> Array:
        return jnp.full((), f.shape[0], jnp.int32)
