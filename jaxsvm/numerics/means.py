"""Running means whose rounding errors do not add up."""

from __future__ import annotations

from typing import Any

import jax

from ..types import Array
from .reductions import two_sum


def running_mean(mean: Any, lost: Any, value: Any, share: Array) -> tuple[Any, Any]:
    """mean + share (value - mean), with compensation: late values move a mean by less than its last place.

    A plain float32 mean stands still after a few million values; `mean + lost` follows them.

    Args:
        mean: a tree of arrays.
        lost: the same tree, what rounding took from the mean; zeros at first.
        value: the same tree, the newest value.
        share: () its share of all weights so far, 1 / t for the plain mean of t values; 0 changes nothing.

    Returns:
        The new mean, and what rounding took from it.
    """
    moved = jax.tree.map(lambda m, low, v: two_sum(m, low, share.astype(m.dtype) * (v - m - low)), mean, lost, value)
    return jax.tree.transpose(jax.tree.structure(mean), jax.tree.structure((0, 0)), moved)
