"""Running means by compensated summation."""

from __future__ import annotations

from typing import Any

import jax

from ..types import Array
from .reductions import two_sum


def running_mean(
    mean: object, compensation: object, value: object, share: Array
) -> tuple[Any, Any]:
    """mean + share (value - mean), with compensation for steps below the last place of the mean.

    A plain float32 mean stops changing after a few million values; mean + compensation does not.

    Args:
        mean: a tree of arrays.
        compensation: the same tree, the rounding errors of the mean; initially zeros.
        value: the same tree, the newest value.
        share: () its weight relative to all weights so far, 1 / t for the mean of t values; 0
            leaves the mean unchanged.

    Returns:
        The new mean and its rounding errors.
    """
    add = lambda m, low, v: two_sum(m, low, share.astype(m.dtype) * (v - m - low))
    sums = jax.tree.map(add, mean, compensation, value)
    return jax.tree.transpose(jax.tree.structure(mean), jax.tree.structure((0, 0)), sums)
