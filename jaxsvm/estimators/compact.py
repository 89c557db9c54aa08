"""What a fitted model is made of, without padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..kernels import holds_precomputed
from ..models import Classifier, Expansion, Linear, Mapped
from ..multiclass import OneVsOne, OneVsRest
from ..types import SparseRows
from .preprocess import bucket_size


def inner_of(model: Any) -> Any:
    """The model without names of classes; of several the models as they are stacked."""
    model = model.inner if isinstance(model, Classifier) else model
    return model.inner if isinstance(model, OneVsRest | OneVsOne) else model


def support_mask(model: Expansion) -> np.ndarray:
    """The numbers of the points with a coefficient, of one model or another, that is not 0."""
    return np.flatnonzero((np.atleast_2d(model.coef) != 0).any(axis=0))


def owns_points(model: Expansion) -> bool:
    """Whether the points are the model's own (a budget), not rows of the training data."""
    return model.index.size > 0 and bool((np.asarray(model.index) < 0).all())


def on_rows(model: Expansion) -> Expansion:
    """The model, if its points are rows of the training data, the same for all classes."""
    if owns_points(model):
        raise AttributeError("the points of a budget are no rows of the training data: look into model_")
    if np.ndim(model.index) > 1:
        raise AttributeError("the models of the classes have points of their own: look into model_")
    return model


def compact(model: Any, rows: np.ndarray, d: int | None) -> Any:
    """A model without padding: an expansion on the rows that it uses, with their numbers in the data that came.

    Args:
        model: fitted on padded rows.
        rows: (n,) the numbers of these in the data that came.
        d: columns of these; None: the model sees others.
    """
    if isinstance(model, OneVsRest | OneVsOne):
        return dataclasses.replace(model, inner=compact(model.inner, rows, d))
    if isinstance(model, Mapped):
        return dataclasses.replace(model, inner=compact(model.inner, rows, None))
    if isinstance(model, Linear):
        return dataclasses.replace(model, w=model.w[..., :d])
    if not isinstance(model, Expansion):
        return model
    if owns_points(model):
        return dataclasses.replace(model, x=model.x[..., :d])
    held = np.asarray(model.index)
    numbers = np.where(held < 0, -1, rows[held])
    if held.ndim > 1:  # points of their own for each of several models
        return dataclasses.replace(model, index=jnp.asarray(numbers, jnp.int32))
    points = support_mask(model)
    size = min(bucket_size(len(points)), len(held))
    taken, known = np.concatenate([points, np.zeros(size - len(points), int)]), np.arange(size) < len(points)
    x = model.x[taken]
    if holds_precomputed(model.kernel):
        x = x[:, taken]
    elif d is not None and x.shape[1] > d:
        x = dataclasses.replace(x, columns=d) if isinstance(x, SparseRows) else x[:, :d]
    coef = jnp.where(known, model.coef[..., taken], 0).astype(model.coef.dtype)
    index = jnp.asarray(np.where(known, numbers[taken], -1), jnp.int32)
    return dataclasses.replace(model, x=x, coef=coef, index=index)
