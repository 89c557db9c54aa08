"""Primal and dual objectives of a model, in float64."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import carried, cast, refuse_class, restored
from ..checks import has_values, is_array, positive_number, shown
from ..kernels import Kernel, as_kernel, matvec
from ..losses import hinge
from ..models import Classifier, Expansion, Linear, Mapped, MultiLabel, names_of
from ..models.multiclass import StackedModels
from ..numerics import accum_dtype, dot, is_traced, mesh_of
from ..risks import risk_of
from ..types import (
    AnyLoss,
    Array,
    Batch,
    Fit,
    JointLoss,
    Lifted,
    Loss,
    Model,
    SparseRows,
    check_weights,
    refuse_joint,
)


def check_objective(
    model: Model, data: Batch, loss: object = hinge, needs: str = "sqnorm", joint: bool = False
) -> tuple[Any, Batch]:
    """The model without names, and the rows with columns and targets as these names have them.

    `joint`: the loss may be one that couples rows.

    Raises:
        TypeError: a model, data or loss of another type.
        ValueError: rows of other columns or classes than the model knows.
    """
    refuse_class("model", model)
    if not callable(model) or isinstance(model, type | Kernel | Loss) or not hasattr(model, needs):
        how = ": pass run.model" if isinstance(model, Fit) else ""
        raise TypeError(
            f"model must be a model, such as run.model, got {type(model).__name__}{how}"
        )
    check_weights("data", data)
    check_loss(loss, joint)
    names = names_of(model)
    while isinstance(model, Classifier | MultiLabel):
        model = model.inner
    return model, data if names is None else names.matched(data)


def check_dual_model(model: Model) -> None:
    """Raise TypeError for a model that is no expansion over the training rows."""
    if not isinstance(model, Expansion):
        raise TypeError(
            "only an Expansion over the training rows carries dual coefficients, got "
            f"{type(model).__name__}"
        )
    if has_values(model) and np.any((np.asarray(model.index) < 0) & (np.asarray(model.coef) != 0)):
        raise TypeError(
            "the expansion stands on rows that are not training rows (index -1): it "
            "carries no dual coefficients"
        )


def check_loss(loss: object, joint: bool = False) -> None:
    """Raise TypeError for what is not a loss; `joint`: it may be one that couples rows."""
    refuse_class("loss", loss)
    if not joint:
        refuse_joint("loss", loss)
    if not isinstance(loss, Loss | JointLoss):
        raise TypeError(f"loss must be a loss such as jaxsvm.losses.hinge, got {shown(loss)}")


def in_float64(fn: Callable) -> Callable:
    """The function `fn`, compiled and in float64.

    Under tracing it is uncompiled and in the dtype of its arguments. Rows that several processes
    hold stay where they are; all processes make the call.
    """

    @functools.partial(jax.jit, static_argnames=("choices",))
    def compiled(arrays, statics, choices):
        return fn(*arrays, *(restored(thing) for thing in statics), *choices)

    @functools.wraps(fn)
    def run(arrays, statics=(), choices=()):
        if is_traced(arrays, jax.tree.leaves(statics)):
            return fn(*arrays, *statics, *choices)
        rows = [a.y for a in arrays if isinstance(a, Batch) and not has_values(a.y)]
        mesh = jax.set_mesh(mesh_of(rows[0])) if rows else contextlib.nullcontext()
        with jax.enable_x64(True), mesh:
            arrays = jax.tree.map(_wide, arrays)
            args = cast((arrays, tuple(carried(thing) for thing in statics)), jnp.float64)
            # JAX warns of float64 outside
            results = compiled(*args, choices)
            return jax.tree.map(lambda a: np.asarray(a)[()] if has_values(a) else a, results)

    return run


def _wide(leaf: object) -> Any:
    """An array of floating-point numbers in float64, converted without compilation.

    What several processes hold is converted where it lies.
    """
    if not is_array(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return (np.asarray(leaf) if has_values(leaf) else leaf).astype(np.float64)


def _bare(model: Model) -> Model:
    """The model without its feature maps and class names."""
    while isinstance(model, Mapped | Classifier):
        model = model.inner
    return model


def innermost(model: Model) -> Linear | Expansion:
    """The linear model or expansion inside of feature maps and class names."""
    model = _bare(model)
    if not isinstance(model, Linear | Expansion):
        how = ": take its machines one by one, model[c], each with labels of its own"
        how = how if isinstance(model, StackedModels) else ""
        kind = type(model).__name__
        raise TypeError(f"expected a Linear, Expansion or Mapped model, got {kind}{how}")
    return model


def to_features(model: Model, data: Batch) -> tuple[Model, Batch]:
    """The innermost model, and the data in its feature space."""
    while isinstance(model, Mapped | Classifier):
        if isinstance(model, Mapped) and not isinstance(data, Lifted):
            data = data._replace(x=model.features(data.x))
        model = model.inner
    return model, data


def decision_values(model: Model, data: Batch) -> Array:
    """Decision values (n,) or (n, k) at raw or prepared rows."""
    if isinstance(data, Lifted):
        model = _bare(model)
    score, n = model(data.x), data.x.shape[0]
    if jnp.ndim(score) not in (1, 2) or jnp.shape(score)[0] != n:
        raise TypeError(
            f"model must give a decision value, or several, for each of the {n} rows, but "
            f"{shown(model)} gives {shown(score)}"
        )
    return score


_values = jax.jit(decision_values)
SMALL = 2**20  # numbers of dense rows whose linear scores take NumPy less time than a compilation


def values_on_host(model: Any, data: Batch) -> np.ndarray:
    """As `decision_values`, known ones, by as little of a program as there is."""
    x: Any = data.x
    fits = isinstance(model, Linear) and model.w.shape == x.shape[1:]
    if fits and not isinstance(x, SparseRows) and is_array(x) and x.size <= SMALL:
        with np.errstate(all="ignore"):
            return np.asarray(x, accum_dtype(x)) @ np.asarray(model.w) + np.asarray(model.b)
    is_kernel = isinstance(model, Expansion) and np.ndim(model.coef) == 1
    if is_kernel and model.x.shape[1:] == x.shape[1:]:  # the shift is worked out by NumPy
        return np.asarray(matvec(model.kernel, x, model.x, model.coef)) + np.asarray(model.b)
    return np.asarray(_values(carried(model), data))


def normalized_weights(data: Batch) -> Array:
    """The weights of the rows (n,), or of all targets (n, k), of sum 1."""
    weight = data.weight
    if weight.ndim < data.y.ndim:
        xp = np if isinstance(weight, np.ndarray) else jnp
        weight = xp.broadcast_to(weight[:, None], data.y.shape)
    return weight / weight.sum()


def primal(model: Model, data: Batch, lam: float, loss: AnyLoss = hinge) -> Array:
    """The primal objective P(w) = lam/2 |w|^2 + weighted mean loss, in float64.

    Under tracing it is in the dtype of the model.

    Args:
        model: one with `sqnorm()`.
        data: n rows.
        lam: regularisation, > 0.
        loss: of scores, or one that couples rows, such as `losses.rank_hinge`.

    Returns:
        () the objective.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> model = jaxsvm.models.Linear(jnp.ones(1), jnp.zeros(()))
        >>> float(jaxsvm.objectives.primal(model, data, 1.0))
        0.5
    """
    model, data = check_objective(model, data, loss, joint=True)
    if data.y.ndim > 1:
        raise ValueError("primal is of one target a row: take jaxsvm.column(data, c) and model[c]")
    lam = positive_number("lam", lam)
    return _primal((model, data, lam), (loss,))


@in_float64
def _primal(model: Any, data: Batch, lam: Array, loss: Loss) -> Array:
    return lam / 2 * model.sqnorm() + mean_loss(decision_values(model, data), data, loss)


def mean_loss(score: Array, data: Batch, loss: Loss) -> Array:
    """The weighted mean loss (), or the joint risk of a loss that couples rows."""
    if isinstance(loss, JointLoss):
        return risk_of(loss, data).value_and_slope(score)[0]
    share = normalized_weights(data)
    losses = loss.value(score, data.y)
    return jnp.vdot(share, jnp.where(share > 0, losses, jnp.zeros_like(losses)))


def dual(
    alpha: Array, data: Batch, lam: float, kernel: Kernel | None = None, loss: Loss = hinge
) -> Array:
    """The dual objective D at alpha, in float64.

    It is -inf where alpha violates its bounds by more than a relative 1e-6.

    Args:
        alpha: (n,), 0 <= alpha_i <= C w_i for the hinge; for losses of real targets the signed
            coefficients.
        data: n rows.
        lam: regularisation, > 0.
        kernel: None: linear.
        loss: of scores.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(jaxsvm.objectives.dual(jnp.array([0.5, 0.5]), data, 1.0))
        0.5
    """
    check_weights("data", data)
    check_loss(loss)
    lam = positive_number("lam", lam)
    if not is_array(alpha) or jnp.shape(alpha) != data.y.shape:
        what = f"has shape {jnp.shape(alpha)}" if is_array(alpha) else f"is {shown(alpha)}"
        raise ValueError(
            f"alpha {what}, expected one number for each of the {data.y.shape[0]} rows"
        )
    return _dual((alpha, data, lam, None if kernel is None else as_kernel(kernel)), (loss,))


@in_float64
def _dual(alpha: Array, data: Batch, lam: Array, kernel: Kernel | None, loss: Loss) -> Array:
    share = normalized_weights(data)
    coef = clip_rounding(alpha * data.y if loss.labels else alpha, data.y, share, lam, loss)
    x = data.x
    score = dot(x, dot(coef, x)) if kernel is None else matvec(kernel, x, x, coef)
    is_invalid = jnp.any((share == 0) & (coef != 0))  # the bound of a row of weight 0 is 0
    value = -lam / 2 * jnp.dot(coef, score) - penalty(coef, data.y, share, lam, loss)
    return jnp.where(is_invalid, -jnp.inf, value)


def clip_rounding(coef: Array, y: Array, share: Array, lam: Array, loss: Loss) -> Array:
    """The coefficients, with those beyond a bound by rounding reduced by a relative 1e-6.

    The rounding is that of C in float32.
    """
    infeasible = ~jnp.isfinite(loss.conjugate(slopes(coef, share, lam), y))
    return jnp.where(infeasible, (1 - 1e-6) * coef, coef)


def slopes(coef: Array, share: Array, lam: Array) -> Array:
    """u_i = -coef_i / C_i, 0 for rows of weight 0."""
    return jnp.where(share > 0, -coef * lam / jnp.where(share > 0, share, 1), 0)


def penalty(coef: Array, y: Array, share: Array, lam: Array, loss: Loss) -> Array:
    """sum_i share_i conjugate(u_i, y_i) over rows of positive weight."""
    values = loss.conjugate(slopes(coef, share, lam), y)
    return jnp.sum(jnp.where(share > 0, share * values, 0))
