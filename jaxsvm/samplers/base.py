"""What the samplers share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import on_host
from ..numerics import count
from ..types import Array, Batch, Sampler, State


class Batches(Sampler):
    """A sampler of `batch_size` rows a step, which draws each step alone."""

    batch_size: Any

    def rows(self, n: int) -> int:
        return self.batch_size

    def draw(self, state: State, t: object, count: int) -> Array:
        steps = jnp.asarray(t, jnp.int32) + jnp.arange(count, dtype=jnp.int32)
        return jax.vmap(self.draw_one, in_axes=(None, 0))(state, steps)

    def draw_one(self, state: State, t: Array) -> Array:
        """The rows of one step, (b,)."""
        raise NotImplementedError


def known_rows(data: Batch) -> Array:
    """The number of rows without padding, () int32."""
    return count(data.index >= 0)


def positive_rows(data: Batch) -> tuple[Array, Array]:
    """The rows of positive weight first, in order, and their number; by NumPy if known here."""
    weight: Any = on_host(data.weight)
    if weight is None:
        positive = data.weight > 0
        return jnp.argsort(~positive, stable=True).astype(jnp.int32), count(positive)
    parts = np.flatnonzero(weight > 0), np.flatnonzero(~(weight > 0))
    return jax.device_put((np.concatenate(parts, dtype=np.int32), np.int32(len(parts[0]))))
