"""Decision values of any number of rows by few programs, and the names that they predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import carried, static, struct
from ..checks import class_names, is_sparse, matrix
from ..kernels import holds_precomputed
from ..numerics import is_traced, pad_rows, series_size, widened, with_zero_columns
from ..types import Array, Batch, Lifted, Model, Rows, SparseRows
from .frames import by_name, places
from .functions import Expansion, Mapped, support_index
from .multiclass import StackedModels

SIZES = (1, 16, 256, 4096)  # rows of a program
LEAST_SHARE = 0.25  # of the rows of a block that are no padding


@jax.jit
def _call(model: Any, x: Any) -> Any:
    return model(x)


def decision_values(model: Model, x: Rows, sizes: Sequence[int] = SIZES) -> np.ndarray:
    """The values of a model at any number of rows, on the host.

    Rows are cut into blocks of `sizes`, the last one padded. So that many programs are compiled at
    most, whatever the numbers of rows; of sparse rows for each power of 2 of the longest row.

    Args:
        model: rows (m, d) -> (m, ...), each row by itself.
        x: (n, d) an array, `SparseRows`, a sparse matrix of SciPy, or a data frame, whose columns
            are taken by name where the model knows theirs.
        sizes: numbers of rows, increasing.

    Returns:
        (n, ...) values. A row's value may differ by rounding from one size to another.

    Raises:
        TypeError, ValueError: as the model for what is no matrix of its columns.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> model = jaxsvm.models.Linear(jnp.array([2.0]), jnp.array(1.0))
        >>> jaxsvm.models.decision_values(model, [[1.0], [2.0], [3.0]]).tolist()
        [3.0, 5.0, 7.0]
    """
    columns = (names_of(model) or Classes()).columns
    x, model = _on_host(by_name(x, columns)), carried(model)
    n, start = x.shape[0], 0
    parts: list[np.ndarray] = []
    while start < n or not parts:
        # the largest size of which the rows fill enough
        size = max((s for s in sizes if n - start >= LEAST_SHARE * s), default=sizes[0])
        rows = np.minimum(np.arange(start, start + size), n - 1) if n else np.arange(0)
        block = jax.tree.map(lambda a, rows=rows: a[rows], x)
        parts.append(np.asarray(_call(model, block))[: n - start])
        start += size
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _on_host(x: Any) -> Any:
    """The rows as NumPy arrays of a dtype of JAX; sparse ones are padded to a power of 2."""
    if is_sparse(x):
        x = x.tocsr().astype(np.float32 if x.dtype.kind in "biu" else x.dtype)
        x.sum_duplicates()  # of a copy
        x = pad_rows(x)
    elif isinstance(x, list) or type(x) is tuple or hasattr(x, "to_numpy"):
        x = np.asarray(x)
    x = matrix("x", x)
    if not isinstance(x, SparseRows):
        return np.asarray(x)
    x = jax.tree.map(np.asarray, x.materialize())
    return widened(x, series_size(x.value.shape[1], 1))


def _support_only(model: object) -> Any:
    """The model without points of coefficient 0, in all models where several share the points."""
    if isinstance(model, Mapped | StackedModels):
        return dataclasses.replace(model, inner=_support_only(model.inner))
    if not isinstance(model, Expansion) or holds_precomputed(model.kernel) or is_traced(model):
        return model
    if np.ndim(model.index) > 1 or len(model.x.shape) > 2:  # each has its own
        return model
    points = support_index(model)
    take = lambda a: np.asarray(a)[points]
    x, coef = jax.tree.map(take, model.x), np.asarray(model.coef)[..., points]
    parts: dict[str, Any] = {"x": x, "coef": coef, "index": take(model.index)}
    return dataclasses.replace(model, **parts)


@struct
class ZeroColumns:
    """x -> x with columns of zeros behind its `width` ones, as `dataset(pad=True)` lays them."""

    width: int = static()

    def __call__(self, x: Array) -> Array:
        return with_zero_columns(x, self.width)


@struct
class TargetNames:
    """The names of what values predict, and of the columns of rows."""

    names: tuple = static(default=())
    columns: tuple = static(default=())  # (): not known
    width: int = static(default=0)  # columns of rows before columns of zeros; 0: there are none

    def in_order(self, data: Batch) -> Batch:
        """The rows with their columns in the order of these, and with columns of zeros as these."""
        known = data.classes
        if known is None or not self.columns or known.columns in ((), self.columns):
            is_raw = self.width and not isinstance(data, Lifted)
            return data._replace(x=with_zero_columns(data.x, self.width)) if is_raw else data
        order = np.array(places(self.columns, known.columns, "columns of the rows"))
        if isinstance(data.x, SparseRows) or isinstance(data, Lifted):
            raise ValueError(
                "sparse or prepared rows must have their columns in the order of training"
            )
        known = dataclasses.replace(known, columns=self.columns, width=self.width)
        return data._replace(x=with_zero_columns(data.x[:, order], self.width), classes=known)

    def predict(self, model: Any, x: Any) -> Any:
        """What a model predicts.

        Args:
            model: rows -> values.
            x: (n, d) rows; of a data frame the columns by their names, where both know them.

        Returns:
            Of classes the names (n,): for (n,) values the second where they are above 0, for (n, k)
            that of the largest. Of labels which hold, (n, k) numbers 0 and 1. Of real targets the
            values. On the host; inside of a transformation an array of JAX.

        Raises:
            ValueError: a frame with other columns; decision values that are not finite.
            TypeError: inside of a transformation, names that are strings.
        """
        x = by_name(x, self.columns)
        if is_traced(model, x):
            return self.predicted(model(with_zero_columns(x, self.width)))
        values = decision_values(model, with_zero_columns(_on_host(x), self.width))
        return self.predicted(check_values(values))

    def of_rows(self, model: Model) -> Model:
        """The model as one of rows without columns of zeros."""
        return Mapped(ZeroColumns(self.width), model) if self.width else model

    def predicted(self, values: Any) -> Any:
        """What values on the host predict, or values that are traced."""
        raise NotImplementedError


@struct
class Classes(TargetNames):
    """What values predict: class names of labels -1 and +1, or of class numbers 0 .. k-1.

    Without names the targets are real. It is structure of the pytrees that hold it, not a leaf.
    """

    def matched(self, data: Batch) -> Batch:
        """The rows with their columns and classes in the order of these names.

        Names that either side does not know are not compared.

        Raises:
            ValueError: other columns, or a class that is not among these.
        """
        known = data.classes
        if not isinstance(known, Classes) or not self.names or known.names in ((), self.names):
            return self.in_order(data)
        strange = [name for name in known.names if name not in self.names]
        if strange:
            raise ValueError(
                f"the rows have the class {strange[0]!r}, which is not among those of training, "
                f"{', '.join(map(repr, self.names[:12]))}"
            )
        xp = np if isinstance(data.y, np.ndarray) else jnp
        place = np.array([self.names.index(name) for name in known.names], data.y.dtype)
        y = xp.asarray(place)[xp.where(data.y > 0, data.y, 0).astype(np.int32)]
        if len(self.names) == 2:  # labels -1 and +1, or class numbers 0 and 1
            y = xp.where(xp.any(data.y == 0), y, 2 * y - 1)
        named = dataclasses.replace(known, names=self.names)
        return self.in_order(data._replace(y=y, classes=named))

    def predicted(self, values: Any) -> Any:
        if not self.names:
            return values
        traced = is_traced(values)
        if traced and isinstance(self.names[0], str):
            raise TypeError(
                f"class names that are strings, such as {self.names[0]!r}, cannot be predicted "
                "inside of jit, vmap or grad: take the decision values there, result.model(x)"
            )
        return (jnp if traced else np).asarray(self.names)[class_places(values)]

    def classifier(self, model: Model) -> Model:
        """The model with the names, without points of coefficient 0, for files and for serving.

        Raises:
            AttributeError: there are no names.
        """
        if not self.names:
            raise AttributeError("the targets are real: there are no classes to predict")
        return Classifier(self.of_rows(_support_only(model)), self.names, self.columns)


@struct
class Labels(TargetNames):
    """The names of labels of which several may hold: those whose value is above 0.

    It is structure of the pytrees that hold it, not a leaf.
    """

    def matched(self, data: Batch) -> Batch:
        """As that of `Classes`; the targets of a row are in the order of these labels."""
        known = data.classes
        if isinstance(known, Labels) and known.names not in ((), self.names) and self.names:
            order = np.array(places(self.names, known.names, "labels of the rows"))
            weight = data.weight if data.weight.ndim == 1 else data.weight[:, order]
            named = dataclasses.replace(known, names=self.names)
            data = data._replace(y=data.y[:, order], weight=weight, classes=named)
        return self.in_order(data)

    def predicted(self, values: Any) -> Any:
        return (values > 0).astype(jnp.int32 if is_traced(values) else int)

    def classifier(self, model: Model) -> Model:
        """The model with the names, as that of `Classes`, a `MultiLabel`."""
        return MultiLabel(self.of_rows(_support_only(model)), self.names, self.columns)


class Named:
    """A model that knows the names of its classes, and of the columns of its rows."""

    inner: Any
    classes: tuple
    columns: tuple

    @property
    def named(self) -> Any:
        """The names."""
        return Classes(self.classes, self.columns)

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n,) or (n, k)."""
        return self.inner(x)

    def predict(self, x: Rows) -> Any:
        """What the values say, as `Classes.predict`: (n,) names, or (n, k) numbers 0 and 1."""
        return self.named.predict(self.inner, x)


def names_of(model: object) -> Classes | Labels | None:
    """The names that a model knows, also behind maps of its rows; None: a bare model."""
    while isinstance(model, Mapped):
        model = model.inner
    return model.named if isinstance(model, Named) else None


@struct
class MultiLabel(Named):
    """A model with the names of labels of which several may hold: those of a value above 0."""

    inner: Any  # rows -> (n, k)
    labels: tuple = static()  # k names, in the order of the values
    columns: tuple = static(default=())  # as of `Classes`

    @property
    def named(self) -> Labels:
        """The names."""
        return Labels(self.labels, self.columns)


@struct
class Classifier(Named):
    """A model with class names: decision values of `inner`, and predicted names.

    Of two classes the second is predicted for values > 0. Of k classes that of the largest value is
    predicted.
    """

    inner: Any  # rows -> (n,) for two classes, (n, k) for k
    classes: tuple = static()
    columns: tuple = static(default=())  # as of `Classes`

    def __post_init__(self) -> None:
        """Raise for names of fewer than two classes."""
        object.__setattr__(self, "classes", class_names(self.classes))

    def sqnorm(self) -> Array:
        """|w|^2, as in the objective."""
        return self.inner.sqnorm()


def classes_of(targets: Any, known: Any) -> Any:
    """The known names of the rows, else the classes of a solver's `targets`.

    A solver that does not read targets, such as `one_class`, predicts values.
    """
    known = known or Classes()
    several = targets if isinstance(targets, tuple) else ()
    if targets is None or several[:1] == ("real",):
        return Classes((), known.columns, known.width)
    if known.names:
        return known
    if several:
        return Labels(tuple(range(several[1])), known.columns, known.width)
    numbers = tuple(range(targets)) if isinstance(targets, int) else ()
    return Classes((-1, 1) if targets == "labels" else numbers, known.columns, known.width)


def check_values(score: np.ndarray) -> np.ndarray:
    """The decision values (n,) or (n, k), unchanged; those that are traced pass.

    Raises:
        ValueError: one of them is not finite.
    """
    if is_traced(score) or (isinstance(score, jax.Array) and jnp.isfinite(score).all()):
        return score  # without a copy on the host
    finite = np.isfinite(np.asarray(score, np.float64))
    invalid = ~(finite if finite.ndim == 1 else finite.all(axis=1))
    if invalid.any():
        raise ValueError(
            f"the decision values of {invalid.sum()} of {len(score)} rows are not finite, first "
            f"of row {np.argmax(invalid)}: the model diverged in training, or the rows hold a NaN "
            "or are too large for it; look at the scale of the data and train again"
        )
    return score


def class_places(score: np.ndarray) -> np.ndarray:
    """The predicted class indices (n,).

    For (n,) values: 1 if > 0, else 0. For (n, k) values: the index of the largest.

    Raises:
        ValueError: for decision values that are not finite.
    """
    check_values(score)
    return (score > 0).astype(int) if score.ndim == 1 else score.argmax(axis=1)
