"""Thresholds of decision values by values out of fold."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..models import Classifier, Mapped, OneVsRest

_PLACE = np.zeros(0)  # stands for the intercept among the leaves of a model


def best_threshold(values: np.ndarray, holds: np.ndarray, weight: np.ndarray) -> float:
    """The threshold of the largest weighted F1; 0 where all rows hold, or none.

    Args:
        values: (m,) decision values.
        holds: (m,) bool, whether the label holds.
        weight: (m,) of the rows.
    """
    positive = weight @ holds
    if not 0 < positive < weight.sum():
        return 0.0
    order = np.argsort(-values, kind="stable")
    value, found = values[order], np.cumsum((weight * holds)[order])
    predicted = np.cumsum(weight[order])
    is_end = np.append(value[1:] < value[:-1], True)  # equal values are predicted together
    score = np.where(is_end, 2 * found / (predicted + positive), -1.0)
    k = int(np.argmax(score))
    below = value[k + 1] if k + 1 < len(value) else value[k] - 1
    middle = (value[k] + below) / 2
    return float(middle if middle < value[k] else below)


def shifted(model: Any, by: Any) -> Any:
    """The model plus a constant, or one for each of its values."""
    if isinstance(model, OneVsRest):
        inner = model.inner
        if isinstance(inner, Mapped):  # each has a map of its own
            return dataclasses.replace(model, inner=shifted(inner, by))
        b = np.broadcast_to(np.asarray(inner.b), np.shape(by))
        leaves = jax.tree.leaves(dataclasses.replace(inner, b=_PLACE))
        stacked = [leaf is _PLACE or flag for leaf, flag in zip(leaves, model.stacked, strict=True)]
        inner = dataclasses.replace(inner, b=b)
        return dataclasses.replace(model, inner=shifted(inner, by), stacked=tuple(stacked))
    if isinstance(model, Mapped | Classifier):
        return dataclasses.replace(model, inner=shifted(model.inner, by))
    b = np.asarray(model.b)
    return dataclasses.replace(model, b=(b + by).astype(b.dtype))
