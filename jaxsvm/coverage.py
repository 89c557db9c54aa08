"""Conformal prediction: sets of classes, or intervals, that hold the target at a given rate."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._node import static, struct
from .calibration import check_held_out, places_of
from .checks import check_scalars
from .models import Classes, Classifier, Named, check_values, decision_values, names_of
from .numerics import is_traced
from .types import Array, Batch, Model, Rows, Scalar


@struct
class Conformal(Named):
    """Sets of classes or intervals, as `conformal` and `Selection.conformal` make them.

    With scores s_i of n rows that the model f was not trained on,

        the set of x  = {y: s(x, y) <= limit}
        s(x, y)       = max_{c != y} f_c(x) - f_y(x)  of classes,  |y - f(x)|  of real targets
        limit         = min {s_i: W{j: s_j <= s_i} >= (1 - alpha) W (1 + 1/n)},  else inf

    W{...} is the weight of the rows in question, W that of all.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> x = np.random.default_rng(0).normal(size=(80, 1))
        >>> data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, "b", "a"))
        >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.take(data, np.arange(40)),
        ...     jax.random.key(0))
        >>> sets = jaxsvm.conformal(result.classifier, jaxsvm.take(data, np.arange(40, 80)), 0.1)
        >>> sets.sets([[-2.0], [2.0]])
        [('a',), ('b',)]
    """

    model: Any  # rows -> (n,) or (n, k)
    limit: Array  # () the largest score in a set
    classes: tuple = static(default=())  # names; () for real targets
    columns: tuple = static(default=())  # the names of the columns of rows; (): not known

    def __call__(self, x: Rows) -> Array:
        """(n, k) truth values, whether a class is in the set; of real targets (n, 2) ends."""
        values = self.model(x)
        if self.classes:
            return class_scores(values) <= self.limit
        return jnp.stack([values - self.limit, values + self.limit], axis=1)

    def predict(self, x: Rows) -> Any:
        """As a call, on the host: of any rows, lists too, by few compiled programs."""
        return self(x) if is_traced(self, x) else decision_values(self, x)

    def sets(self, x: Rows) -> list[tuple]:
        """The names of the classes in each row's set.

        Raises:
            AttributeError: the targets are real.
        """
        if not self.classes:
            raise AttributeError("the targets are real: predict(x) gives the ends of intervals")
        return [tuple(itertools.compress(self.classes, row)) for row in self.predict(x).tolist()]


def class_scores(values: Array) -> Array:
    """max_{c != y} f_c - f_y for each class y, (n, k), of values (n,) or (n, k)."""
    if values.ndim == 1:  # one value for two classes
        return jnp.stack([values, -values], axis=-1)
    two = jax.lax.top_k(values, 2)[0]
    others = jnp.where(values == two[:, :1], two[:, 1:], two[:, :1])
    return others - values


def conformal(model: Model, data: Batch, alpha: float = 0.1) -> Any:
    """Sets of classes, or intervals of real targets, from rows that a model was not trained on.

    This is split conformal prediction: for new rows that are exchangeable with those of `data` the
    set holds the target with probability 1 - alpha at least, and 1 - alpha + 1/(n + 1) at most if
    no scores are equal. A set may hold several classes, or none, where the values fit none well.

    Args:
        model: (n, d) -> (n,) values of two classes or real targets, (n, k) of k classes: decision
            values, or probabilities such as `jaxsvm.calibrate` gives; a `Classifier`, such as
            `result.classifier`, keeps its names.
        data: n rows on which the model was not trained. They have real targets if they have no
            class names, the model has none and gives one value for each row.
        alpha: share of targets that may be missed, in (0, 1).

    Returns:
        `Conformal`: rows -> (n, k) truth values, or (n, 2) ends of intervals, which are infinite
        where there are too few rows.

    Raises:
        TypeError: model or data of another type. ValueError: alpha not in (0, 1), classes that the
            model does not have, values that are not finite.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm, numpy as np
        >>> x = np.linspace(-1, 1, 40)[:, None]
        >>> data = jaxsvm.dataset(x, x[:, 0] + np.tile([0.1, -0.1], 20), task="regression")
        >>> line = jaxsvm.models.Linear(jnp.ones(1), jnp.zeros(()))
        >>> jaxsvm.conformal(line, data).predict([[0.0], [2.0]]).astype(float).round(2).tolist()
        [[-0.1, 0.1], [1.9, 2.1]]

    Reference: V. Vovk, A. Gammerman, G. Shafer, Algorithmic learning in a random world, 2005; J.
        Lei, M. G'Sell, A. Rinaldo, R. J. Tibshirani, L. Wasserman, Distribution-free predictive
        inference for regression, JASA 113, 2018, algorithm 2.
    """
    check_alpha(alpha)
    check_held_out("conformal", model, data, Conformal)
    known: Any = names_of(model) or Classes()
    names, data = known.names or None, known.matched(data)
    inner = model.inner if isinstance(model, Classifier) else model
    traced = is_traced(inner, data)
    values = inner(data.x) if traced else decision_values(inner, data.x)
    if values.ndim == 1 and not names and (data.classes is None or not data.classes.names):
        return from_values(inner, values, data.y, data.weight, alpha, known)
    k = 2 if values.ndim == 1 else values.shape[1]
    place, names = places_of(data, names, k, traced)
    known = Classes(tuple(names), known.columns)
    return from_values(inner, values, place, data.weight, alpha, known)


def check_alpha(alpha: Scalar) -> None:
    """Raise ValueError unless it is a number between 0 and 1."""
    check_scalars(alpha=alpha)
    if not is_traced(alpha) and not 0 < float(alpha) < 1:
        raise ValueError(f"alpha must be between 0 and 1, such as 0.1, got {float(alpha):g}")


def from_values(
    model: Model, values: Any, target: Any, weight: Any, alpha: Scalar, known: Classes
) -> Conformal:
    """Sets of the values of a model at rows that it was not trained on.

    Args:
        model: of the sets.
        values: (n,) or (n, classes).
        target: (n,) numbers of classes, or real targets without names.
        weight: (n,).
        alpha: as of `conformal`.
        known: the names of classes and columns.

    Raises:
        ValueError: a value of a row of weight above 0 is not finite.
    """
    if not is_traced(values, target, weight):
        check_values(np.asarray(values)[np.asarray(weight) > 0])
    values = jnp.asarray(values)
    dtype = values.dtype
    if known.names:
        number = jnp.asarray(target, jnp.int32)[:, None]
        score = jnp.take_along_axis(class_scores(values), number, axis=1)[:, 0]
    else:
        score = jnp.abs(jnp.asarray(target, dtype) - values)
    limit = _quantile(score, jnp.asarray(weight, dtype), jnp.asarray(alpha, dtype))
    return Conformal(model, limit, known.names, known.columns)


@jax.jit
def _quantile(score: Array, weight: Array, alpha: Array) -> Array:
    """The least score that a share 1 - alpha of the weight, and one row more, does not exceed."""
    order = jnp.argsort(jnp.where(weight > 0, score, jnp.inf))
    mass, n = jnp.sum(weight), jnp.sum(weight > 0)
    # a whole rank is not missed by rounding
    share = (1 - alpha) * (1 - 8 * float(jnp.finfo(mass.dtype).eps))
    goal = share * (mass + mass / jnp.maximum(n, 1).astype(mass.dtype))
    place = jnp.searchsorted(jnp.cumsum(weight[order]), goal)
    return score[order].at[place].get(mode="fill", fill_value=jnp.inf)
