"""All rows at every step."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._node import node
from ..types import Array, Batch, Sampler


@node
class whole(Sampler):
    """All rows at every step, with weight w_i / (mean positive weight).

    Example:
        >>> import jaxsvm
        >>> jaxsvm.samplers.whole().rows(150)
        150
    """

    full_batch = True

    def init(self, key: Array, data: Batch) -> Any:
        return np.zeros(data.weight.shape, np.int32)  # without a program

    def draw(self, state: Array, t: object, count: int) -> Array:
        rows = jnp.arange(state.shape[0], dtype=jnp.int32)
        return jnp.broadcast_to(rows, (count, state.shape[0]))

    def rows(self, n: int) -> int:
        return n
