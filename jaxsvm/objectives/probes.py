"""Probes: functions of a model that a loop evaluates on held-out data."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import carried, static, struct
from ..checks import has_values
from ..losses import hinge
from ..numerics import is_traced
from ..types import AnyLoss, Array, Batch, Model, check_weights
from .evaluate import (
    check_loss,
    check_objective,
    decision_values,
    mean_loss,
    normalized_weights,
    values_on_host,
)


def misclassified(score: Array, y: Array) -> Array:
    """Which rows are misclassified (n,).

    A row is misclassified if its score has the wrong sign or is not finite, or if another class has
    the largest score.
    """
    is_finite = abs(score) < np.inf
    if score.ndim == y.ndim:
        return ((score > 0) != (y > 0)) | ~is_finite
    return (score.argmax(axis=1) != y.astype(int)) | ~is_finite.all(axis=1)


@struct
class Probe:
    """A function of a model that reads held-out rows."""

    data: Batch
    by_numpy = False  # whether only the values of the model are a program

    def on(self, data: Batch) -> Probe:
        """The probe on other rows."""
        return dataclasses.replace(self, data=data)

    def matched(self, names: Any) -> Any:
        """The probe on its rows with columns and classes as `names`, `models.Classes`, has them."""
        return self.on(names.matched(self.data))

    def __call__(self, model: Model) -> Array:
        model, data = check_objective(model, self.data, needs="__call__")
        probe = self if data is self.data else self.on(data)
        # without the names, which need no other program; functions may be of anything
        probe = dataclasses.replace(probe, data=data._replace(classes=None))
        if jax.tree_util.all_leaves([model]) or is_traced(probe, model):
            return probe.of(decision_values(model, probe.data))
        if not (self.by_numpy and has_values(probe, model)):
            return _measure(probe, carried(model))
        rows = jax.tree.map(np.asarray, data._replace(x=data.y, classes=None))
        score = values_on_host(model, probe.data)
        return jax.device_put(dataclasses.replace(probe, data=rows).of(score))

    def of(self, score: Any) -> Array:
        """The number for decision values (n,) or (n, k), ()."""
        raise NotImplementedError


@jax.jit
def _measure(probe: Probe, model: Model) -> Array:
    return probe.of(decision_values(model, probe.data))


@struct
class _Error(Probe):
    # "signs": -1 and +1; "numbers": class numbers; "real": neither; "": either, or not known
    labels: str = static(default="")
    by_numpy = True

    def on(self, data: Batch) -> Probe:
        return error_on(data)

    def of(self, score: Array) -> Array:
        y, labels, xp = self.data.y, self.labels, np if isinstance(score, np.ndarray) else jnp
        if y.ndim == 2:
            _check_columns(score, y)
        elif labels not in ("", "signs" if score.ndim == 1 else "numbers"):
            want = f"{score.shape[-1]} values a row, for class numbers 0 .. k-1"
            want = "one value a row, for labels -1 and +1" if score.ndim == 1 else want
            other = "class numbers, or real targets: take risk_on for those"
            have = "labels -1 and +1" if labels == "signs" else other
            raise ValueError(f"the model gives {want}, but the data of error_on hold {have}")
        # rounding does not lead above 1
        wrong = misclassified(score, y).astype(score.dtype)
        return xp.minimum(xp.vdot(normalized_weights(self.data), wrong), 1)


def _kind_of(data: Batch) -> str:
    """What the targets are, as `_Error.labels`."""
    if is_traced(data.y, data.weight):
        return ""
    y = np.asarray(data.y)[np.asarray(data.weight) > 0]
    if (y == 1).all():
        return ""
    return "numbers" if (y >= 0).all() else "signs" if (y**2 == 1).all() else "real"


def error_on(data: Batch) -> Probe:
    """A probe for `fit`: model -> weighted fraction of misclassified rows.

    A row is misclassified if its score has the wrong sign, its largest score is that of another
    class, or a score is not finite. Of k labels that may hold together it is the share of labels
    that are wrong (the Hamming loss).

    Args:
        data: held-out rows with labels in {-1, +1}, or class numbers 0 .. k-1 for a model with k
            values. Columns and classes are taken by name where `result.classifier`, or the rows of
            `fit(probe=)`, know theirs. `solver.prepare(data)` computes their features once for all
            evaluations.

    Raises:
        ValueError: several real targets a row; from the probe, a model for the other kind of
            labels, if the kind is known.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(jaxsvm.error_on(data)(Linear(jnp.ones(1), jnp.zeros(()))))
        0.0
    """
    check_weights("data", data)
    is_several = data.y.ndim == 2 and not is_traced(data.y)
    if is_several and not np.isin(np.asarray(data.y), (-1, 1)).all():
        raise ValueError(
            "error_on is of labels, and these are real targets: take risk_on(data, loss)"
        )
    return _Error(data, _kind_of(data))


def risk_on(data: Batch, loss: AnyLoss = hinge) -> Probe:
    """A probe for `fit`: model -> weighted mean loss on the rows of `data`.

    It is inf if a score is not finite. Of k targets a row it is the mean over all of them.

    Args:
        data: held-out rows, raw or by `solver.prepare`.
        loss: of scores, or one that couples rows, such as `losses.rank_hinge`.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> from jaxsvm.models import Linear
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> float(jaxsvm.risk_on(data)(Linear(0.5 * jnp.ones(1), jnp.zeros(()))))
        0.5
    """
    check_weights("data", data)
    check_loss(loss, joint=True)
    return _Risk(data, loss)


@struct
class _Risk(Probe):
    loss: Any

    def of(self, score: Array) -> Array:
        data = self.data
        if data.y.ndim == 2:
            _check_columns(score, data.y)
        elif score.ndim != 1:
            raise ValueError(
                "risk_on takes models with one value for each row; measure a model "
                "of many classes with error_on"
            )
        risk = mean_loss(score, data, self.loss)
        is_finite = jnp.all(jnp.isfinite(score) | (normalized_weights(data) <= 0))
        return jnp.where(is_finite, risk, jnp.inf)


def _check_columns(score: Array, y: Array) -> None:
    """Raise unless there is a value for each target."""
    if score.shape != y.shape:
        raise ValueError(
            f"the rows have {y.shape[1]} targets each, and the model gives values of shape "
            f"{score.shape}: take a model of jaxsvm.multi_output"
        )
