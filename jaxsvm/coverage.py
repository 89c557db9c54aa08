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
from .numerics import bisect, is_traced
from .types import Array, Batch, Model, Rows, Scalar

HALVINGS = 60  # of the ends of intervals: below the rounding of float32 and near that of float64


@struct
class Conformal(Named):
    """Sets of classes or intervals, as `conformal` and `Selection.conformal` make them.

    With scores s_i of rows that a model f was not trained on, and K such models,

        the set of x  = {y: W{i: s_i < s(f_i, x, y)} < (1 - alpha) W (1 + 1/n)}
        s(f, x, y)    = max_{c != y} f_c(x) - f_y(x)  of classes,  |y - f(x)|  of real targets

    W{...} is the weight of the rows in question, W that of all n, and f_i the model without row i.
    The interval of real targets is the hull of its set.

    Example:
        >>> import jax, jaxsvm, numpy as np
        >>> x = np.random.default_rng(0).normal(size=(80, 1))
        >>> data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, "b", "a"))
        >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), jaxsvm.take(data, np.arange(40)),
        ...     jax.random.key(0))
        >>> sets = conformal(result.classifier, jaxsvm.take(data, np.arange(40, 80)), 0.1)
        >>> sets.sets([[-2.0], [2.0]])
        [('a',), ('b',)]
    """

    models: tuple  # K models: rows -> (n,) or (n, k)
    scores: Array  # (K, m) ascending in each row, of rows without model k; inf behind them
    weights: Array  # (K, m) of these rows; 0 behind them
    alpha: Array  # () share of targets that may be missed
    classes: tuple = static(default=())  # names; () for real targets
    columns: tuple = static(default=())  # the names of the columns of rows; (): not known

    def __call__(self, x: Rows) -> Array:
        """(n, k) truth values, whether a class is in the set; of real targets (n, 2) ends."""
        values = jnp.stack([model(x) for model in self.models])
        return self._of_values(values)

    def of_values(self, values: object) -> np.ndarray:
        """As a call, from the values of the models, (K, n) or (K, n, k), on the host."""
        return np.asarray(self._of_values(jnp.asarray(values)))

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

    @jax.jit
    def _of_values(self, values: Array) -> Array:
        """As `of_values`, traced."""
        mass, n = jnp.sum(self.weights), jnp.sum(self.weights > 0)
        # a whole rank is not missed by rounding
        share = (1 - self.alpha) * (1 - 8 * float(jnp.finfo(mass.dtype).eps))
        goal = share * (mass + mass / jnp.maximum(n, 1).astype(mass.dtype))
        ends = jnp.cumsum(self.weights, axis=1)
        below = jnp.concatenate([jnp.zeros_like(ends[:, :1]), ends], axis=1)

        def weight_of(side):
            """The weight of the rows whose score is below (left) or at most (right) a number."""
            of_model = lambda score, mass, at: mass[jnp.searchsorted(score, at, side=side)]
            return lambda at: jnp.sum(jax.vmap(of_model)(self.scores, below, at), axis=0)

        if self.classes:
            return weight_of("left")(class_scores(values)) < goal
        residual = jnp.where(self.weights > 0, self.scores, 0)
        most = jnp.max(residual)

        def upper(values):
            """The least number for which enough residuals are at most its distance, (n,)."""
            is_enough = lambda end: weight_of("right")(end[None] - values) >= goal
            low, high = jnp.min(values, axis=0) - 1e-6 * most, jnp.max(values, axis=0) + most
            end = bisect(is_enough, low, high, HALVINGS)[1]
            return jnp.where(mass >= goal, end, jnp.inf)

        return jnp.stack([-upper(-values), upper(values)], axis=1)


def class_scores(values: Array) -> Array:
    """max_{c != y} f_c - f_y for each class y, (..., n, k), of values (..., n) or (..., n, k)."""
    if values.ndim == 2:  # one value for two classes
        return jnp.stack([values, -values], axis=-1)
    two = jax.lax.top_k(values, 2)[0]
    others = jnp.where(values == two[..., :1], two[..., 1:], two[..., :1])
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
        >>> import jax, jaxsvm, numpy as np
        >>> x = np.linspace(-1, 1, 40)[:, None]
        >>> data = jaxsvm.dataset(x, x[:, 0] + np.tile([0.1, -0.1], 20), task="regression")
        >>> line = jaxsvm.models.Linear(jnp.ones(1), jnp.zeros(()))
        >>> conformal(line, data).predict([[0.0], [2.0]]).astype(float).round(2).tolist()
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
        return from_values((inner,), [values], [data.y], [data.weight], alpha, known)
    k = 2 if values.ndim == 1 else values.shape[1]
    place, names = places_of(data, names, k, traced)
    known = Classes(tuple(names), known.columns)
    return from_values((inner,), [values], [place], [data.weight], alpha, known)


def check_alpha(alpha: Scalar) -> None:
    """Raise ValueError unless it is a number between 0 and 1."""
    check_scalars(alpha=alpha)
    if not is_traced(alpha) and not 0 < float(alpha) < 1:
        raise ValueError(f"alpha must be between 0 and 1, such as 0.1, got {float(alpha):g}")


def from_values(
    models: tuple, values: list, targets: list, weights: list, alpha: object, known: Classes
) -> Conformal:
    """Sets of the values of K models at rows that they were not trained on.

    Args:
        models: K of them.
        values: of each model (m_k,) or (m_k, classes).
        targets: of each (m_k,) numbers of classes, or real targets without names.
        weights: of each (m_k,).
        alpha: as of `conformal`.
        known: the names of classes and columns.

    Raises:
        ValueError: a value of a row of weight above 0 is not finite.
    """
    longest, scores, masses = max(map(len, targets)), [], []
    for value, target, weight in zip(values, targets, weights, strict=True):
        if not is_traced(value, target, weight):
            check_values(np.asarray(value)[np.asarray(weight) > 0])
        value = jnp.asarray(value)
        weight = jnp.asarray(weight, value.dtype)
        if known.names:
            number = jnp.asarray(target, jnp.int32)[:, None]
            score = jnp.take_along_axis(class_scores(value[None])[0], number, axis=1)[:, 0]
        else:
            score = jnp.abs(jnp.asarray(target, value.dtype) - value)
        score = jnp.where(weight > 0, score, jnp.inf)
        order, room = jnp.argsort(score), (0, longest - len(target))
        scores.append(jnp.pad(score[order], room, constant_values=jnp.inf))
        masses.append(jnp.pad(weight[order], room))
    stacked = jnp.stack(scores), jnp.stack(masses)
    level = jnp.asarray(alpha, stacked[0].dtype)
    return Conformal(models, *stacked, level, known.names, known.columns)
