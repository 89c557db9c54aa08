"""A `Batch` of rows whose values are not known, inside of a transformation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import check_rows, matrix, on_host
from ..numerics import accum_dtype
from ..types import Array, Batch, SparseRows


def traced_batch(
    x: Any, y: object, weight: object, query: object, task: str, classes: object = None
) -> Batch:
    """The batch of traced arrays, whose shapes and dtypes are checked; values are the caller's.

    Args:
        x: (n, d) rows, n >= 1, d >= 1.
        y: (n,) real targets, class numbers or grades as they are; of task "binary" see `labels`.
        weight: (n,) or None.
        query: (n,) integers, or None.
        task: as of `dataset`.
        classes: the names of the classes, for the batch.

    Raises:
        TypeError, ValueError: shapes or dtypes that do not match.
    """
    x = matrix("x", x)
    check_rows(x, y=y, weight=weight, query=query)
    n, dtype = x.shape[0], accum_dtype(x)
    values = x.value if isinstance(x, SparseRows) else x
    for name, a in (("x", values), ("y", y), ("weight", weight)):
        known = None if a is None or is_traced_array(a) else on_host(a)
        if known is not None and not np.isfinite(known).all():
            raise ValueError(f"{name} holds a NaN or an infinity: drop or fill in such rows")
    y = labels(jnp.asarray(y), dtype) if task == "binary" else jnp.asarray(y).astype(dtype)
    query = None if query is None else jnp.asarray(query).astype(jnp.int32)
    index = np.arange(n, dtype=np.int32)
    weight = jnp.ones(n, dtype) if weight is None else jnp.asarray(weight).astype(dtype)
    return Batch(jnp.asarray(x), y, jnp.asarray(index), weight, query, classes)


def labels(y: Array, dtype: np.dtype) -> Array:
    """Labels -1 and +1 of booleans, of 0 and 1, or of -1 and +1; nan of any other number.

    A run on a label that is nan has a model that is nan.
    """
    if y.dtype == bool:
        return jnp.where(y, 1, -1).astype(dtype)
    is_low = (y == 0) | (y == -1)
    return jnp.where(y == 1, 1, jnp.where(is_low, -1, jnp.nan)).astype(dtype)


def is_traced_array(*arrays: object) -> bool:
    """Whether one of them is an array, or holds one, whose values are not known."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arrays))
