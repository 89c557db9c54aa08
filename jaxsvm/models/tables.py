"""Tables whose columns are numbers or words: what became of them, kept with a model."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ..checks import caller_stacklevel, shown
from ..recipe import static, struct
from ..types import Array

OTHER, MISSING = "(other)", "(missing)"


class Column(NamedTuple):
    """A column of a table, and the numbers that it becomes.

    Of numbers x these are (x - shift) / scale, and whether the cell is missing; then x is `fill`.
    Of words they are one for each of `words`, one for all others, and one for missing cells.
    """

    name: str
    words: tuple | None  # that have an indicator; None: numbers
    rare: tuple  # words of the training rows that share one
    fill: float  # in place of a missing number
    shift: float
    scale: float
    has_missing: bool  # whether missing cells have one

    @property
    def outputs(self) -> list[str]:
        """The names of the numbers that it becomes."""
        first = [self.name] if self.words is None else [f"{self.name}={w}" for w in self.words]
        ends = ((self.rare, OTHER), (self.has_missing, MISSING))
        return first + [f"{self.name}={end}" for there, end in ends if there]

    def encode(self, cells: np.ndarray) -> tuple[np.ndarray, list]:
        """The numbers (n, m) of cells (n,), and the words that no training row had."""
        if self.words is None:
            missing = np.isnan(cells)
            value = (np.where(missing, self.fill, cells) - self.shift) / self.scale
            return np.stack([value, missing][: 1 + self.has_missing], axis=1), []
        other = len(self.words)
        missing = other + bool(self.rare)
        width, nowhere = missing + self.has_missing, missing + 1
        place: dict = {word: k for k, word in enumerate(self.words)} | dict.fromkeys(
            self.rare, other
        )
        place[None] = missing if self.has_missing else nowhere
        unknown = sorted({cell for cell in cells if cell not in place})
        place |= dict.fromkeys(unknown, other if self.rare else nowhere)
        at = np.array([place[cell] for cell in cells], int)
        return np.eye(nowhere + 1)[at][:, :width], unknown

    def __str__(self) -> str:
        """What the column becomes, in a few words."""
        ends = [
            what for there, what in ((self.rare, "others"), (self.has_missing, "missing")) if there
        ]
        if self.words is None:
            scaled = "" if (self.shift, self.scale) == (0, 1) else f", scale {self.scale:.4g}"
            text = f"number, mean {self.fill:.4g}{scaled}"
        else:
            few = ", ".join(self.words[:3]) + (", ..." if len(self.words) > 3 else "")
            text = f"{len(self.words)} words: {few}"
        return f"{self.name} ({text}{''.join('; ' + end for end in ends)})"


@struct
class Table:
    """The columns of a table in order, and the numbers that they become: a map of rows.

    `jaxsvm.dataset(frame, target=...)` makes it, `data.classes.table` is where it is. It has no
    arrays, so that it is structure of the pytrees that hold it.
    """

    columns: tuple = static()  # of the fields of `Column`
    target: str = static(default="")  # the name of the column of targets; "": none
    place: int = static(default=-1)  # of it among all columns

    @property
    def parts(self) -> list[Column]:
        """The columns."""
        return [Column(*fields) for fields in self.columns]

    @property
    def inputs(self) -> list[str]:
        """The names of the columns of the table, without the target."""
        return [fields[0] for fields in self.columns]

    @property
    def names(self) -> list[str]:
        """The names of the numbers (d,), such as "age" and "sex=Female"."""
        return [name for part in self.parts for name in part.outputs]

    def encode(self, frame: Any) -> np.ndarray:
        """The rows (n, d) float32 of a table.

        Args:
            frame: a data frame with the columns by name, in any order, or a dict of them.

        Raises:
            ValueError: a column is not there, or holds what does not fit.

        Warns:
            UserWarning: words that the training rows did not hold.
        """
        cells = cells_of(frame)
        for name in self.inputs:
            if name not in cells:
                raise ValueError(no_column("the table has", name, self, list(cells)))
        lengths = {len(cells[name]) for name in self.inputs}
        if len(lengths) != 1:
            raise ValueError(f"the columns of the table differ in length: {sorted(lengths)}")
        out, strange = [], []
        for part in self.parts:
            column = cells[part.name]
            if part.words is None and column.dtype == object:
                column = as_numbers(column, part.name)
            if part.words is not None and column.dtype != object:
                column = as_words(column)
            numbers, unknown = part.encode(column)
            out.append(numbers.astype(np.float32))
            strange += [(part.name, unknown)] if unknown else []
        if strange:
            told = "; ".join(f"{name}: {', '.join(words[:5])}" for name, words in strange[:3])
            warnings.warn(
                f"words that no training row had, which count as none or as rare ones: {told}",
                stacklevel=caller_stacklevel(),
            )
        return np.concatenate(out, axis=1)

    def numbers(self, x: Any) -> Any:
        """The numbers of rows of a table; numbers (n, d) are as they are.

        Raises:
            ValueError: rows with words that are no table; an array of NumPy, or a list, with as
                many columns as the table, which may hold its cells.
        """
        if is_table(x):
            return self.encode(x)
        if isinstance(x, jax.Array) or hasattr(x, "tocsr") or hasattr(x, "length"):
            return x
        array = np.asarray(x)
        is_cells = array.ndim == 2 and array.shape[1] == len(self.inputs) and not self._is_plain
        if array.dtype.kind in "OSU" or is_cells:
            numbers = "; numbers as those of data.x are an array of JAX" if is_cells else ""
            raise ValueError(
                "the model reads a table: pass a data frame, or a dict, with the columns "
                f"{', '.join(self.inputs[:12])}{numbers}"
            )
        return x

    @property
    def _is_plain(self) -> bool:
        """Whether each cell is its own number."""
        unchanged = (0.0, 1.0, False)
        return all(
            part.words is None and (part.shift, part.scale, part.has_missing) == unchanged
            for part in self.parts
        )

    def __str__(self) -> str:
        """The columns, and what they become."""
        return "; ".join(map(str, self.parts))

    def __check__(self) -> None:
        whole = [isinstance(c, tuple) and len(c) == len(Column._fields) for c in self.columns]
        if not all(whole):
            raise ValueError("columns must hold the fields of models.tables.Column")


@struct
class OnTable:
    """A model of the rows of a table: words and missing cells in, decision values or classes out.

    It is what files hold of a machine that was trained on `dataset(frame, target=...)`.
    """

    table: Table
    inner: Any  # a model, or a `Classifier` or `Calibrated`, on the numbers

    def __call__(self, x: Any) -> Array:
        """Decision values at rows of a table, or at their numbers (n, d)."""
        return self.inner(self.table.numbers(x))

    def predict(self, x: Any) -> Any:
        """What the model on the numbers predicts: classes (n,), or values of real targets."""
        call: Callable = getattr(self.inner, "predict", self.inner)
        return call(self.table.numbers(x))

    def predict_proba(self, x: Any) -> Any:
        """The probabilities of the classes, (n, k), of a model that has them."""
        if not hasattr(self.inner, "predict_proba"):
            raise AttributeError("the model has no probabilities: make them with jaxsvm.calibrate")
        return self.inner.predict_proba(self.table.numbers(x))

    def sets(self, x: Any) -> list[tuple]:
        """The names of the classes in each row's set, of what `jaxsvm.conformal` gives."""
        return self.inner.sets(self.table.numbers(x))

    @property
    def classes(self) -> tuple:
        """The names of the classes, in the order of probabilities."""
        return self.inner.classes

    def __check__(self) -> None:
        if not isinstance(self.table, Table):
            raise ValueError(f"table must be a Table, got {shown(self.table)}")


def check_table(table: Table | None, data: Any, what: str) -> None:
    """Raise where rows came from a table of which other numbers were made.

    Args:
        table: of the model's training rows; None: they were no table.
        data: `Batch` of other rows.
        what: a name of these rows.
    """
    other = getattr(getattr(data, "classes", None), "table", None)
    if table is not None and other is not None and other.columns != table.columns:
        raise ValueError(
            f"the rows of {what} were made numbers by themselves: make them as those of training, "
            "jaxsvm.dataset(frame, target=..., like=train)"
        )


def no_column(where: str, name: str, table: Table, there: list[str]) -> str:
    """The sentence that a column is not there, and which one may be meant."""
    strange = [str(other) for other in there if other not in (*table.inputs, table.target)]
    similar = difflib.get_close_matches(name, strange, 1)
    meant = f"; rename {similar[0]!r} if that is it" if similar else ""
    return (
        f"{where} no column {name!r}, which the model reads, but "
        f"{', '.join(map(str, there[:12]))}{meant}"
    )


def is_table(x: Any) -> bool:
    """Whether this is a data frame, or a dict of columns."""
    if hasattr(x, "tocsr") or hasattr(x, "length"):  # sparse rows, some of which are dicts
        return False
    of_frames = type(x).__module__.split(".")[0] == "pyarrow"
    return isinstance(x, dict) or of_frames or (hasattr(x, "columns") and hasattr(x, "shape"))


def cells_of(frame: Any) -> dict[str, np.ndarray]:
    """The columns of a table by name: float64 with nan, or objects, strings and None.

    Raises:
        ImportError: narwhals is not installed, and this is no dict.
        ValueError: columns of another kind, or of several lengths.
    """
    if isinstance(frame, dict):
        out = {}
        for name, cells in frame.items():
            if str(name) in out:
                raise ValueError(f"two columns of the table have one name: {str(name)!r}")
            out[str(name)] = _column(str(name), np.asarray(cells))
        return out
    try:
        import narwhals
    except ImportError as error:
        raise ImportError(
            "data frames need narwhals: pip install 'jaxsvm[table]', or pass a dict of columns"
        ) from error
    try:
        table: Any = narwhals.from_native(frame, eager_only=True)
    except narwhals.exceptions.DuplicateError as error:
        raise ValueError(f"two columns of the table have one name: {error}") from error
    out = {}
    for name in table.columns:
        column = table.get_column(name)
        kind = column.dtype
        if kind.is_temporal():
            raise ValueError(
                f"the column {name!r} holds times: turn it into numbers or words, or leave it out"
            )
        cells = column.to_list()
        if kind in (narwhals.Categorical, narwhals.Enum):  # also of numbers
            cells = [None if _is_absent(cell) else str(cell) for cell in cells]
        is_number = kind.is_numeric() or kind == narwhals.Boolean
        if is_number and not column.is_null().any():
            out[str(name)] = column.to_numpy().astype(np.float64)
        else:
            out[str(name)] = _column(str(name), np.array([*cells, None], object)[:-1])
    return out


def is_boolean(frame: Any, name: str) -> bool:
    """Whether a column of a table holds truth values, of which some may be missing."""
    if isinstance(frame, dict):
        cells = next(np.asarray(a).tolist() for k, a in frame.items() if str(k) == name)
    else:
        import narwhals

        table: Any = narwhals.from_native(frame, eager_only=True)
        column = next(k for k in table.columns if str(k) == name)
        cells = table.get_column(column).to_list()
    live = [cell for cell in cells if not _is_absent(cell)]
    return bool(live) and all(isinstance(cell, bool) for cell in live)


def _column(name: str, cells: np.ndarray) -> np.ndarray:
    """The cells (n,) as float64, or as strings and None."""
    if cells.ndim != 1:
        raise ValueError(f"the column {name!r} has shape {cells.shape}, expected (n,)")
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    if cells.dtype.kind not in "OSU":
        raise ValueError(f"the column {name!r} holds {cells.dtype}: pass numbers or words")
    items = cells.tolist()
    absent = list(map(_is_absent, items))
    live = [item for item, gone in zip(items, absent, strict=True) if not gone]
    if live and not any(isinstance(item, str | bytes) for item in live):
        try:
            return np.array(
                [np.nan if gone else float(i) for i, gone in zip(items, absent, strict=True)]
            )
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the column {name!r} holds {shown(live[0])}: pass numbers or words"
            ) from error
    out = np.empty(len(items), object)
    out[:] = [None if gone else word_of(item) for item, gone in zip(items, absent, strict=True)]
    return out


def _is_absent(item: Any) -> bool:
    """Whether a cell is missing: None, nan, or what pandas has for it."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float) and item != item


def word_of(item: Any) -> str:
    """A cell as a word; a whole number has no point."""
    if isinstance(item, bytes):
        return item.decode().strip()
    is_whole = isinstance(item, float) and np.isfinite(item) and item == int(item)
    return str(int(item) if is_whole else item).strip()


def as_numbers(cells: np.ndarray, name: str) -> np.ndarray:
    """Words that are numbers, as these.

    Raises:
        ValueError: one is not.
    """
    out = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        try:
            out[i] = np.nan if cell is None else float(cell)
        except ValueError as error:
            raise ValueError(
                f"row {i}: the cell {cell!r} of column {name!r} is no number, as the training "
                "rows have there"
            ) from error
    return out


def as_words(cells: np.ndarray) -> np.ndarray:
    """Numbers as words, whole ones without a point; nan is missing."""
    out = np.empty(len(cells), object)
    out[:] = [None if c != c else word_of(c) for c in cells.tolist()]
    return out
