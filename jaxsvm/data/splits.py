"""Random parts of a data set."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import key as check_key
from ..checks import number
from ..types import Array, Batch, check_batch, take


def split(key: Array, data: Batch, *shares: float) -> tuple[Batch, ...]:
    """Split the rows at random into parts; each part is a data set whose rows are numbered from 0.

    Args:
        key: a key of `jax.random.key`, for the order.
        data: n rows.
        shares: relative sizes of the parts, > 0.

    Raises:
        ValueError: fewer than two shares, one not above 0, or a part without rows.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> data = jaxsvm.dataset(np.eye(10), [1, -1] * 5)
        >>> [part.y.shape[0] for part in jaxsvm.data.split(jax.random.key(0), data, 3, 1, 1)]
        [6, 2, 2]
    """
    check_key("key", key)
    check_batch("data", data)
    # shares that are not known are refused too
    known = [number("share", share) or 0.0 for share in shares]
    if len(shares) < 2 or not all(0 < share < np.inf for share in known) or sum(known) == np.inf:
        raise ValueError(f"split takes two or more shares above 0, got {shares}")
    n = data.rows
    if n < data.y.shape[0]:
        data = take(data, jnp.asarray(np.flatnonzero(np.asarray(data.index) >= 0)))
    ends = np.round(np.cumsum(known) / np.sum(known) * n).astype(int)
    order = jax.random.permutation(key, n).astype(jnp.int32)
    parts = [order[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if any(part.shape[0] == 0 for part in parts):
        raise ValueError(f"{n} rows are too few for the shares {shares}: a part would be empty")
    numbers = lambda part: jnp.arange(part.shape[0], dtype=jnp.int32)
    own = lambda part: {"index": numbers(part), "weight": data.weight[part]}
    return tuple(take(data, part)._replace(**own(part)) for part in parts)
