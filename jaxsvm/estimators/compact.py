"""Parts of a fitted model, without padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels import holds_precomputed
from ..models import Classifier, Expansion, Linear, Mapped, support_index
from ..numerics import bucket_size
from ..types import SparseRows
from ..wrappers import OneVsOne, OneVsRest


def inner_of(model: object) -> Any:
    """The model without class names; the stacked models of a multiclass model."""
    model = model.inner if isinstance(model, Classifier) else model
    return model.inner if isinstance(model, OneVsRest | OneVsOne) else model


def owns_points(model: Expansion) -> bool:
    """Whether the points are those of a budget, not rows of the training data."""
    return model.index.size > 0 and bool((np.asarray(model.index) < 0).all())


def on_rows(model: Expansion) -> Expansion:
    """The model, if its points are rows of the training data that all classes share."""
    if owns_points(model):
        raise AttributeError(
            "the points of a budget are no rows of the training data: look into model_"
        )
    if np.ndim(model.index) > 1:
        raise AttributeError("the models of the classes have points of their own: look into model_")
    return model


def add_to_intercept(model: Any, number: float) -> Any:
    """The model plus a constant, or plus one for each of several targets (k,).

    The intercept is in float64 on the host: float32 may lack the digits.
    """
    if isinstance(model, Mapped | OneVsRest):
        return dataclasses.replace(model, inner=add_to_intercept(model.inner, number))
    b = np.asarray(model.b, np.float64) + number
    return dataclasses.replace(model, b=float(b) if b.ndim == 0 else b)


def compact(model: object, rows: np.ndarray, d: int | None) -> Any:
    """A model without padding: an expansion over its support vectors.

    Their indices are those in the user's data.

    Args:
        model: fitted on padded rows.
        rows: (n,) indices of the padded rows in the user's data.
        d: columns of the user's data; None: the model is on features.
    """
    if isinstance(model, OneVsRest | OneVsOne):
        return dataclasses.replace(model, inner=compact(model.inner, rows, d))
    if isinstance(model, Mapped):
        return dataclasses.replace(model, inner=compact(model.inner, rows, None))
    if isinstance(model, Linear):
        w = np.asarray(model.w)[..., :d]  # by NumPy: nothing is compiled
        return dataclasses.replace(model, w=jax.device_put(w))
    if not isinstance(model, Expansion):
        return model
    if owns_points(model):
        return dataclasses.replace(model, x=model.x[..., :d])
    old_index = np.asarray(model.index)
    numbers = np.where(old_index < 0, -1, rows[old_index])
    if old_index.ndim > 1:  # each of several models has its own points
        return dataclasses.replace(model, index=jnp.asarray(numbers, jnp.int32))
    points = support_index(model)
    size = min(bucket_size(len(points)), len(old_index))
    padded = np.concatenate([points, np.zeros(size - len(points), int)])
    in_use = np.arange(size) < len(points)
    x = jax.tree.map(lambda a: np.asarray(a)[padded], model.x)  # by NumPy: nothing is compiled
    if holds_precomputed(model.kernel):
        x = x[:, padded]
    elif d is not None and x.shape[1] > d:
        x = dataclasses.replace(x, columns=d) if isinstance(x, SparseRows) else x[:, :d].copy()
    coef = np.asarray(model.coef)[..., padded] * in_use
    index = np.where(in_use, numbers[padded], -1).astype(np.int32)
    x, coef, index = jax.device_put((x, coef, index))
    return dataclasses.replace(model, x=x, coef=coef, index=index)
