"""What the samplers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..checks import integer
from ..numerics import count
from ..types import Array, Batch


def no_feedback(s: Any, index: Array, progress: Array) -> Any:
    """Return the state unchanged: draws do not depend on progress."""
    return s


def per_step(one: Callable, s: Any, t: Array, count: int) -> Array:
    """`one(s, t)` for the steps t .. t + count - 1, stacked."""
    return jax.vmap(one, in_axes=(None, 0))(
        s, jnp.asarray(t, jnp.int32) + jnp.arange(count, dtype=jnp.int32)
    )


def share_of_rows(data: Batch) -> Array:
    """The shares w_i / (mean positive weight), (n,).

    sum(share * loss) / count(share > 0) estimates the weighted mean loss.
    """
    positive = data.weight > 0
    mean = jnp.sum(data.weight) / jnp.maximum(jnp.sum(positive.astype(data.weight.dtype)), 1)
    return jnp.where(positive, data.weight / mean, jnp.zeros_like(data.weight))


def check_batch_size(batch_size: int) -> None:
    """Raise ValueError for a number of rows below 1."""
    integer("batch_size", batch_size, 1)


def positive_rows(data: Batch) -> tuple[Array, Array]:
    """The rows of positive weight first, in order, and their number."""
    positive = data.weight > 0
    rows = jnp.argsort(~positive, stable=True).astype(jnp.int32)
    return rows, count(positive)
