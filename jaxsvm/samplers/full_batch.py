"""All rows at every step."""

from __future__ import annotations

import jax.numpy as jnp

from ..recipe import sampler
from ..types import Sampler
from .base import no_feedback, share_of_rows


@sampler
def whole() -> Sampler:
    """All rows at every step, with weight w_i / (mean positive weight).

    Example:
        >>> import jaxsvm
        >>> whole().rows(150)
        150
    """

    def init(key, data):
        return jnp.zeros(data.weight.shape, jnp.int32)

    def draw(s, t, count):
        rows = jnp.arange(s.shape[0], dtype=jnp.int32)
        return jnp.broadcast_to(rows, (count, s.shape[0]))

    return Sampler(init, draw, share_of_rows, no_feedback, rows=lambda n: n, full_batch=True)
