"""What the samplers share."""

from __future__ import annotations

from types import ModuleType
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
    weight, xp = by_numpy(data.weight)
    rows = xp.argsort(~(weight > 0), stable=True).astype(np.int32)
    return jax.device_put((rows, (weight > 0).sum(dtype=np.int32)))


def by_numpy(a: Array) -> tuple[Array, ModuleType]:
    """The array for NumPy, and this, where it is known here; else as it is, for `jax.numpy`."""
    known = on_host(a)
    return (a, jnp) if known is None else (known, np)
