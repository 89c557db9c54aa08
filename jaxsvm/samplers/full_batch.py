"""All rows at every step."""

from __future__ import annotations

import jax.numpy as jnp

from .._node import node
from ..types import Array, Batch, Sampler


@node
class whole(Sampler):
    """All rows at every step, with weight w_i / (mean positive weight).

    Example:
        >>> import jaxsvm
        >>> whole().rows(150)
        150
    """

    full_batch = True

    def init(self, key: Array, data: Batch) -> Array:
        return jnp.zeros(data.weight.shape, jnp.int32)

    def draw(self, state: Array, t: object, count: int) -> Array:
        rows = jnp.arange(state.shape[0], dtype=jnp.int32)
        return jnp.broadcast_to(rows, (count, state.shape[0]))

    def rows(self, n: int) -> int:
        return n
