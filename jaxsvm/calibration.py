"""Class probabilities of a model, from its decision values at rows that it was not trained on."""

from __future__ import annotations

import dataclasses
import warnings
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._node import static, struct
from .checks import caller_stacklevel, check_choice, shown, x64_enabled
from .models import Classifier, Mapped, Named, OneVsOne, check_values, decision_values
from .numerics import is_traced, series_size
from .objectives.evaluate import in_float64
from .types import Array, Batch, Model, Rows, check_weights

METHODS = ("sigmoid", "isotonic")
COUPLINGS = ("rest", "pairs")
LEAST = 1e-7  # probability of one of two classes, before pairs are coupled


@struct
class Sigmoid:
    """P(positive | score) = 1 / (1 + exp(slope score + offset)), with the signs of LIBSVM."""

    slope: Array  # ()
    offset: Array  # ()

    def __call__(self, score: Array, xp: ModuleType = jnp) -> Array:
        """(n,) -> (n,)."""
        return xp.exp(-xp.logaddexp(0, self.slope * score + self.offset))


@struct
class Isotonic:
    """An ascending function, linear between its points and constant outside of them."""

    score: Array  # (m,) ascending
    value: Array  # (m,) ascending, in [0, 1]

    def __call__(self, score: Array, xp: ModuleType = jnp) -> Array:
        """(n,) -> (n,)."""
        return xp.interp(score, self.score, self.value)


def _logistic(point: Array, rows: tuple[Array, ...]) -> Array:
    """The mean loss of a sigmoid, ()."""
    score, target, share = rows
    z = point[0] * score + point[1]
    return jnp.sum(share * (jax.nn.softplus(-z) + target * z))


def _newton_step(point: Array, rows: tuple[Array, ...]) -> tuple[Array, Array]:
    """The gradient of `_logistic`, (2,), and Newton's direction, (2,)."""
    score, target, share = rows
    p = jax.nn.sigmoid(-(point[0] * score + point[1]))
    rest, curvature = share * (target - p), share * p * (1 - p)
    slope, level = jnp.sum(rest * score), jnp.sum(rest)
    moments = [jnp.sum(curvature * score**k) for k in (2, 1, 0)]
    a, b, c = lax.stop_gradient((moments[0] + 1e-12, moments[1], moments[2] + 1e-12))
    direction = jnp.stack([b * level - c * slope, b * slope - a * level]) / (a * c - b * b)
    return jnp.stack([slope, level]), direction


def fit_sigmoid(score: Array, positive: Array, weight: Array, steps: int = 100) -> Sigmoid:
    """The sigmoid of the largest likelihood, by Newton's method with a line search.

        minimise  sum_i weight_i (log(1 + exp(-z_i)) + t_i z_i),  z_i = slope score_i + offset,
        t_i = (n+ + 1) / (n+ + 2) of positive rows, 1 / (n- + 2) of the others

    n+ and n- are the sums of their weights. Its derivatives are those of the minimiser.

    Args:
        score: (n,) decision values.
        positive: (n,) truth values.
        weight: (n,) weights, >= 0.
        steps: Newton steps at most.

    Reference: J. Platt, Probabilistic outputs for support vector machines, 1999; H.-T. Lin, C.-J.
        Lin, R. C. Weng, A note on Platt's probabilistic outputs for support vector machines,
        Machine Learning 68, 2007, section 3.
    """
    dtype, tiny = score.dtype, jnp.finfo(score.dtype).tiny
    n_positive = jnp.sum(jnp.where(positive, weight, 0))
    n_negative = jnp.sum(jnp.where(positive, 0, weight))
    target = jnp.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    used = jnp.where(weight > 0, score, 0)
    unit = lax.stop_gradient(jnp.maximum(jnp.max(jnp.abs(used)), tiny))
    rows = used / unit, target, weight / jnp.maximum(jnp.sum(weight), tiny)
    frozen = lax.stop_gradient(rows)

    def step(carry):
        point, value, _, k = carry
        gradient, direction = _newton_step(point, frozen)
        slope = jnp.sum(gradient * direction)
        at = lambda size: (size, _logistic(point + size * direction, frozen))
        is_far = lambda trial: (trial[1] > value + 1e-4 * trial[0] * slope) & (trial[0] > 1e-10)
        halve = lambda trial: at(trial[0] / 2)
        size, new = lax.while_loop(is_far, halve, at(jnp.ones((), dtype)))
        # else rounding hides any further decrease
        moves = (size > 1e-10) & (jnp.max(jnp.abs(gradient)) > jnp.finfo(dtype).eps ** 0.5)
        point = jnp.where(moves, point + size * direction, point)
        return point, jnp.where(moves, new, value), moves, k + 1

    prior = lax.stop_gradient(jnp.log((n_negative + 1) / (n_positive + 1)))
    start = jnp.stack([jnp.zeros((), dtype), prior])
    carry = start, _logistic(start, frozen), jnp.ones((), bool), jnp.zeros((), jnp.int32)
    point = lax.while_loop(lambda carry: carry[2] & (carry[3] < steps), step, carry)[0]
    point = point + _newton_step(point, rows)[1]
    return Sigmoid(point[0] / unit, point[1])


def fit_isotonic(score: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> Isotonic:
    """The ascending function of the least squares, by SciPy on the host.

        minimise  sum_i weight_i (value(score_i) - [row i is positive])^2

    Rows of equal score are one.

    Args:
        score: (n,) decision values.
        positive: (n,) truth values.
        weight: (n,) weights, >= 0.

    Returns:
        A function of n points, of which the last one is repeated.

    Reference: R. E. Barlow, D. J. Bartholomew, J. M. Bremner, H. D. Brunk, Statistical inference
        under order restrictions, 1972, chapter 1; B. Zadrozny, C. Elkan, Transforming classifier
        scores into accurate multiclass probability estimates, KDD 2002.
    """
    from scipy.optimize import isotonic_regression

    used = (weight > 0) | (weight.max() <= 0)  # all where none counts
    point, group = np.unique(score[used], return_inverse=True)
    mass = np.maximum(np.bincount(group, weight[used]), np.finfo(np.float64).tiny)
    share = np.bincount(group, (weight * positive)[used]) / mass
    value = isotonic_regression(share, weights=mass).x
    padded: Any = lambda a: np.pad(a, (0, len(score) - len(point)), mode="edge")
    return Isotonic(padded(point), padded(value))


def couple(pairs: Array, k: int, xp: ModuleType = jnp) -> Array:
    """Class probabilities (n, k) from those of the first class of each pair, (n, k(k-1)/2).

    They minimise sum_{a != b} (r_ba p_a - r_ab p_b)^2 over sum_a p_a = 1, where r_ab is the
    probability of a among a and b. This is a linear system of k + 1 equations for each row.

    Args:
        pairs: in the order (0, 1), (0, 2), ..., (k-2, k-1).
        k: the number of classes.
        xp: jax.numpy or numpy.

    Reference: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability estimates for multi-class classification
        by pairwise coupling, JMLR 5, 2004, section 4.
    """
    first, second = np.triu_indices(k, 1)
    number, upper = np.zeros((k, k), int), np.zeros((k, k), bool)
    number[first, second] = number[second, first] = np.arange(len(first))
    upper[first, second] = True
    of_first = pairs[:, number]
    r = xp.where(upper[None], of_first, 1 - of_first) * (upper | upper.T)[None].astype(pairs.dtype)
    diagonal = np.eye(k, dtype=pairs.dtype)[None] * xp.sum(r**2, axis=1)[:, None, :]
    edge = np.zeros((1, k + 1, k + 1), pairs.dtype)
    edge[0, k, :k] = edge[0, :k, k] = 1
    system = xp.pad(diagonal - xp.swapaxes(r, 1, 2) * r, ((0, 0), (0, 1), (0, 1))) + edge
    right = np.zeros((1, k + 1, 1), pairs.dtype)
    right[:, k] = 1
    p = xp.clip(xp.linalg.solve(system, xp.broadcast_to(right, (len(pairs), k + 1, 1))), 0, None)
    p = p[:, :k, 0]
    return p / xp.sum(p, axis=1, keepdims=True)


@struct
class Columns:
    """The values that curves are fitted to, (n, d) -> (n, m); `coupling` as of `Calibrated`."""

    model: Any
    coupling: str = static()

    def __call__(self, x: Any) -> Array:
        """Values of the rows, those of pairs > 0 for the first class."""
        inner = self.model
        while isinstance(inner, Mapped) and self.coupling == "pairs":
            x, inner = inner.phi(x), inner.inner
        if self.coupling == "pairs" and isinstance(inner, OneVsOne):
            return inner.pairs(x)
        return columns_of(inner(x), self.coupling)


def columns_of(values: Any, coupling: str) -> Any:
    """As `Columns`, of decision values (n,) of two classes or (n, k)."""
    if values.ndim == 1:
        return values[:, None] if coupling == "rest" else -values[:, None]
    if coupling == "rest":
        return values
    first, second = np.triu_indices(values.shape[1], 1)
    return values[:, first] - values[:, second]


def number_of_classes(columns: Array | np.ndarray, coupling: str) -> int:
    """k, of columns (n, m)."""
    m = columns.shape[1]
    return int((1 + (1 + 8 * m) ** 0.5) / 2) if coupling == "pairs" else max(m, 2)


def fit_curves(columns: Any, place: Any, weight: Any, method: str, coupling: str) -> Any:
    """The curves of all columns, stacked; of "isotonic" by NumPy.

    Args:
        columns: (n, m) of `Columns`.
        place: (n,) int numbers of the classes.
        weight: (n,) weights, >= 0.
        method: one of `METHODS`.
        coupling: as of `Calibrated`.
    """
    xp: Any = np if method == "isotonic" else jnp
    weights = xp.broadcast_to(weight[:, None], columns.shape)
    k, m = number_of_classes(columns, coupling), columns.shape[1]
    # the classes of each column, of which the first is positive
    of_columns = np.triu_indices(k, 1) if coupling == "pairs" else (np.arange(k)[-m:],)
    positive, *others = (place[:, None] == np.asarray(a, place.dtype)[None] for a in of_columns)
    for negative in others:  # of pairs; else all others are
        weights = xp.where(positive | negative, weights, 0)
    if xp is jnp:
        return jax.vmap(fit_sigmoid, in_axes=1)(columns, positive, weights)
    curves = map(fit_isotonic, columns.T, positive.T, weights.T)
    return jax.tree.map(lambda *parts: np.stack(parts), *curves)


def probabilities(curve: Any, columns: Any, coupling: str, xp: ModuleType = jnp) -> Array:
    """The probabilities of the k classes, (n, k), in `jax.numpy` or `numpy`."""
    k = number_of_classes(columns, coupling)
    if xp is jnp:
        p = jax.vmap(lambda curve, score: curve(score), (0, 1), 1)(curve, columns)
    else:
        curves = map(type(curve), *map(np.asarray, jax.tree.leaves(curve)))
        p = np.stack([fn(score, np) for fn, score in zip(curves, columns.T, strict=True)], axis=1)
    if coupling == "pairs":
        return couple(xp.clip(p, LEAST, 1 - LEAST), k, xp)
    if p.shape[1] == 1:
        return xp.concatenate([1 - p, p], axis=1)
    total = xp.sum(p, axis=1, keepdims=True)
    return xp.where(total > 0, p / xp.where(total > 0, total, 1), 1 / k)


@struct
class Calibrated(Named):
    """Class probabilities of a model, as `calibrate` and `Selection.calibrated` make them.

    `coupling` says how those of more than two classes come about. "rest": one curve for each class
    against the rest, divided by their sum. "pairs": one for each pair, coupled by `couple`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0]], ["b", "a", "b", "a"])
        >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
        >>> chances = jaxsvm.calibrate(result.classifier, data)
        >>> chances.classes, chances.predict([[2.0]]).tolist()
        (('a', 'b'), ['b'])
        >>> chances.predict_proba([[0.0]]).tolist()
        [[0.5, 0.5]]
    """

    model: Any  # rows -> (n,) for two classes, (n, k) for k
    curve: Any  # stacked `Sigmoid`s or `Isotonic`s of the columns
    coupling: str = static()
    classes: tuple = static()  # their names, in the order of the columns of probabilities
    columns: tuple = static(default=())  # the names of the columns of rows; (): not known

    def __call__(self, x: Rows) -> Array:
        """The probabilities of the classes, (n, d) -> (n, k)."""
        values = Columns(self.model, self.coupling)(x)
        return probabilities(self.curve, values, self.coupling)

    def predict_proba(self, x: Rows) -> Any:
        """As a call, on the host: of any rows, lists too, by few compiled programs."""
        return self(x) if is_traced(self, x) else decision_values(self, x)

    def predict(self, x: Rows) -> np.ndarray:
        """The names of the most probable classes, (n, d) -> (n,), on the host."""
        return np.asarray(self.classes)[np.argmax(self.predict_proba(x), axis=1)]

    def of_values(self, values: object) -> Any:
        """The probabilities (n, k) from the model's decision values, (n,) or (n, k).

        They are on the host and in float64, or on the device of arrays of JAX.
        """
        return self.of_columns(columns_of(values, self.coupling))

    def of_columns(self, columns: object) -> Any:
        """As `of_values`, of the values (n, m) that the curves are fitted to."""
        if isinstance(columns, jax.Array):
            return probabilities(self.curve, columns, self.coupling)
        columns = check_values(np.asarray(columns, np.float64))
        blocks = np.array_split(columns, max(1, len(columns) // 4096))
        made = [probabilities(self.curve, block, self.coupling, np) for block in blocks]
        return np.concatenate(made)


def calibrate(model: Any, data: Batch, *, method: str = "sigmoid", coupling: str = "rest") -> Any:
    """Class probabilities of a model, fitted to rows that it was not trained on.

    "sigmoid" (Platt) has two numbers for each class, "isotonic" any ascending function, which needs
    some 1,000 rows. The most probable class need not be that of the largest value.

    Args:
        model: (n, d) -> (n,) for two classes, (n, k) for k; a `Classifier`, such as
            `result.classifier`, keeps its names.
        data: rows of classes, labels or class numbers, on which the model was not trained: values
            of training rows are too far from 0. `Selection.calibrated` needs none.
        method: "sigmoid" or "isotonic". Structure.
        coupling: of more than two classes, "rest": one curve for each class against the rest,
            divided by their sum; "pairs": one for each pair of classes, by the difference of their
            values, or by the pair's own of a `OneVsOne`, coupled as in LIBSVM. It has no effect on
            two classes. Structure.

    Returns:
        `Calibrated`: rows -> (n, k) probabilities, in the order of its `classes`. The fit is in
        float64. In transformations a sigmoid is fitted in the dtype of the model, and has
        derivatives in the values and weights.

    Raises:
        TypeError: model or data of another type. ValueError: method or coupling not one of those
            named, "isotonic" in a transformation, real targets, classes that the model does not
            have, values that are not finite.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0], [2.0], [-2.0]], [1, -1, 1, -1])
        >>> result = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
        >>> jaxsvm.calibrate(result.model, data).predict_proba([[0.0]])
        array([[0.5, 0.5]], dtype=float32)

    Reference: A. Niculescu-Mizil, R. Caruana, Predicting good probabilities with supervised
        learning, ICML 2005; for "pairs" T.-F. Wu, C.-J. Lin, R. C. Weng, JMLR 5, 2004.
    """
    check_method(method, coupling)
    check_held_out("calibrate", model, data, Calibrated)
    names, inner, of_rows = None, model, ()
    if isinstance(model, Classifier):
        names, inner, of_rows = model.classes, model.inner, model.columns
        data = model.named.matched(data)
    to_columns = Columns(inner, coupling)
    traced = is_traced(inner, data)
    columns = to_columns(data.x) if traced else decision_values(to_columns, data.x)
    place, names = places_of(data, names, number_of_classes(columns, coupling), traced)
    made = calibrate_columns(inner, columns, place, data.weight, method, coupling, names)
    return dataclasses.replace(made, columns=of_rows)


def check_held_out(caller: str, model: Model, data: Batch, made: type) -> None:
    """Raise unless it is a model of decision values, and rows with one target each.

    Args:
        caller: the name of the function.
        model: the model.
        data: the rows.
        made: the class of what the function returns.
    """
    if not callable(model) or isinstance(model, type | tuple | made):
        raise TypeError(
            "model must be one of decision values, such as result.model or result.classifier, got "
            f"{shown(model)}"
        )
    check_weights("data", data)
    if data.y.ndim > 1:
        raise ValueError(
            f"{caller} takes one target a row, and these rows have {data.y.shape[1]}: pass "
            "model[c] and jaxsvm.column(data, c) for each of them"
        )


def check_method(method: object, coupling: str) -> str:
    """The coupling; raise ValueError for a method or a coupling without name."""
    check_choice("method", method, METHODS)
    check_choice("coupling", coupling, COUPLINGS)
    return coupling


def calibrate_columns(
    model: Any,
    columns: Any,
    place: Any,
    weight: Any,
    method: str,
    coupling: str,
    names: tuple,
) -> Calibrated:
    """The model with curves that are fitted to its `Columns`.

    Raises:
        ValueError: a value of a row of weight above 0 is not finite.
    """
    rows: Any = columns, place, weight
    if not is_traced(rows):
        columns, place, weight = rows = [*map(np.asarray, rows)]
        check_values(columns[weight > 0])
        every = np.arange(number_of_classes(columns, coupling))
        absent = np.setdiff1d(every, place[weight > 0])
        if len(absent):
            warnings.warn(
                f"no row of calibration is of class {names[absent[0]]!r}: its "
                "probability is near 0 at all rows",
                stacklevel=caller_stacklevel(),
            )
        # by rows of weight 0 to sizes of programs
        more = series_size(len(weight), 256) - len(weight)
        rows = [np.pad(a, [(0, more)] + [(0, 0)] * (a.ndim - 1)) for a in rows]
    elif method == "isotonic":
        raise ValueError("isotonic functions are fitted outside of jit, vmap and grad")
    if method == "isotonic":
        curve = fit_curves(rows[0], rows[1], rows[2], method, coupling)
    else:
        curve = _sigmoids(tuple(rows), (), (method, coupling))
    if not is_traced(curve):
        dtype = np.asarray(columns).dtype if x64_enabled() else np.float32
        curve = jax.tree.map(lambda a: np.asarray(a, dtype), curve)
    return Calibrated(model, curve, coupling, tuple(names))


_sigmoids = in_float64(fit_curves)


def places_of(data: Batch, names: tuple | None, k: int, traced: bool) -> tuple[Any, tuple]:
    """The numbers of the rows' classes among the names of the model, and these names.

    Where rows or model are traced, they are not compared.

    Raises:
        ValueError: targets that are no classes of the model.
    """
    known = names or ((-1, 1) if k == 2 else tuple(range(k)))
    if traced:
        return jnp.where(data.y > 0, data.y, 0).astype(jnp.int32), known
    y, used = np.asarray(data.y), np.asarray(data.weight) > 0
    place, own = np.where(y > 0, y, 0).astype(np.int32), data.classes and data.classes.names
    if not own and not np.isin(y[used], [*range(k), *([-1] if k == 2 else [])]).all():
        raise ValueError(
            f"data must have the labels -1 and +1, or class numbers from 0 to {k - 1}, got "
            f"{np.unique(y[used])[:4].tolist()}: probabilities are those of classes"
        )
    if not own:
        return place, known
    if names is None and len(own) != k:
        raise ValueError(
            f"data has {len(own)} classes, and the model gives values of {k}: pass "
            "result.classifier, which knows their names"
        )
    return place, own
