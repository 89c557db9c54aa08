"""Parts of a fitted model, without padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels import holds_precomputed
from ..models import Classifier, Expansion, Linear, Mapped, decision_values, support_index
from ..models.multiclass import StackedModels
from ..types import SparseRows
from ..wrappers import OneVsOne, OneVsRest
from .functions import VALUES, kernel_values
from .preprocess import is_sparse, to_train_dtype

SIZES = (256, 4096)  # rows of the programs that predict
MANY = 2**28  # products of numbers, from which on a program takes less time
BLOCK = 2**20  # values that NumPy makes at once


def inner_of(model: object) -> Any:
    """The model without class names; the stacked models of a multiclass model."""
    model = model.inner if isinstance(model, Classifier) else model
    return model.inner if isinstance(model, OneVsRest | OneVsOne) else model


def with_inner(model: object, fn: Callable) -> Any:
    """The model with `fn` of the one inside of class names, maps and stacks in its place."""
    if isinstance(model, Classifier | Mapped | StackedModels):
        return dataclasses.replace(model, inner=with_inner(model.inner, fn))
    return fn(model)


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
    """The model plus a constant, in float64 on the host: float32 may lack the digits."""
    return with_inner(model, lambda model: dataclasses.replace(model, b=float(model.b) + number))


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
    x = jax.tree.map(lambda a: np.asarray(a)[points], model.x)  # by NumPy: nothing is compiled
    if holds_precomputed(model.kernel):
        x = x[:, points]
    elif d is not None and x.shape[1] > d:
        x = dataclasses.replace(x, columns=d) if isinstance(x, SparseRows) else x[:, :d].copy()
    index = numbers[points].astype(np.int32)
    coef = np.take(np.asarray(model.coef), points, axis=-1)
    x, coef, index = jax.device_put((x, coef, index))
    return dataclasses.replace(model, x=x, coef=coef, index=index)


def apply(fn: Any, x: Any) -> Any:
    """The values of a model or a map at checked rows, by few programs whatever their number.

    Values of the usual kernels are made by NumPy, unless a program runs for longer than it
    compiles.
    """
    x, points = to_train_dtype(x), fn.inner if isinstance(fn, OneVsRest) else fn
    is_usual = isinstance(points, Expansion) and type(points.kernel) in VALUES
    is_shared = is_usual and points.index.ndim == 1 and len(points.x.shape) == 2
    if not is_shared or isinstance(points.x, SparseRows) or is_sparse(x):
        return decision_values(fn, x, SIZES)
    z, coef = np.asarray(points.x), np.asarray(points.coef)
    if len(x) * (z.size + coef.size) > MANY:
        return decision_values(fn, x, SIZES)
    size = BLOCK // max(len(z), 1) or 1
    blocks = [x[start : start + size] for start in range(0, len(x), size)]
    values = [kernel_values(points.kernel, rows, z, np.float64, coef) for rows in blocks]
    return (np.concatenate(values) + np.asarray(points.b)).astype(x.dtype)
