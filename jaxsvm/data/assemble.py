"""Data sets from the contents of files.

Class names become labels, with one set of names for all files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..checks import caller_stacklevel, class_names
from ..models import Classes
from ..recipe import check_choice
from ..types import Batch
from .class_numbers import encode
from .from_arrays import dataset

REST = "rest"  # the name of the classes that are not in `positive`, if there are several


class Rows(NamedTuple):
    """The contents of a file, on the host."""

    x: Any  # (n, d)  array, or CSR matrix
    y: np.ndarray | None = None  # (n,)  class names or targets; None: not in the file
    weight: np.ndarray | None = None  # (n,)
    query: np.ndarray | None = None  # (n,)  read with task="ranking"
    zero_based: bool | None = None  # of svmlight: whether the first column has index 0
    first_line: bool = False  # of CSV: whether the first row is a line that might name columns
    table: Any = None  # `models.Table`, of rows that were one


class Loaded(tuple):
    """Data sets in the order of the files, and `classes`, the names of their labels.

    Of two classes the second is +1. For more, y holds indices into `classes`. Real targets have no
    names. `jaxsvm.models.Classifier(model, loaded.classes)` predicts these names.

    `zero_based` says whether the first column of svmlight files has index 0; None: there are none.
    """

    classes: tuple
    zero_based: bool | None

    def __new__(
        cls, parts: Sequence[Batch] = (), classes: tuple = (), zero_based: bool | None = None
    ) -> Loaded:
        """A tuple of the parts."""
        self = super().__new__(cls, parts)
        self.classes = tuple(classes)
        self.zero_based = zero_based
        return self


jax.tree_util.register_pytree_node(
    Loaded,
    lambda node: (tuple(node), (node.classes, node.zero_based)),
    lambda names, parts: Loaded(parts, *names),
)


def label(y: Any, classes: Sequence) -> np.ndarray:
    """The labels of class names: -1 and +1 for two classes, indices into `classes` for more.

    Args:
        y: (n,) names.
        classes: as in `Loaded.classes`, including groups of `positive`.

    Raises:
        ValueError: a name that is not in `classes`.

    Example:
        >>> label([3, 8, 1], ("rest", "8")).tolist(), label(["b"], ("a", "b")).tolist()
        ([-1, 1, -1], [1])
    """
    classes = class_names(classes)
    y, known = normalize_names(y), np.asarray(classes)
    # names of groups of `positive`
    if len(classes) == 2 and known.dtype.kind in "US" and not np.isin(y.astype(str), known).all():
        first, second = (np.isin(y.astype(str), name.split("|")) for name in known)
        if (first | second | (known[0] == REST)).all():
            return np.where(second, 1, -1)
    if known.dtype.kind in "US" and y.dtype.kind not in "US":
        y = y.astype(str)
    if known.dtype.kind not in "US" and y.dtype.kind in "US":
        y = normalize_names(y)
    return encode(y, names=classes)[0]


def normalize_names(y: Any) -> np.ndarray:
    """Class names as numbers where possible.

    They become integers if all are integral, else floats if all are numbers, else strings.
    """
    y = np.asarray(y)
    if y.dtype.kind in "US":
        words = y.astype(str)
        try:
            y = y.astype(np.float64)
        except ValueError:
            return y.astype(str)
        if _beyond_ascii(words):
            return words
    if (
        y.dtype.kind == "f"
        and np.isfinite(y).all()
        and (y == np.round(y)).all()
        and (np.abs(y) < 2**53).all()
    ):
        return y.astype(np.int64)
    return y


def _beyond_ascii(words: np.ndarray) -> bool:
    """Whether strings that Python parses as numbers hold underscores or non-ASCII digits.

    Then they are names.
    """
    codes = np.ascontiguousarray(words).view(np.uint32)
    return bool(((codes == ord("_")) | (codes > 127)).any())


def _grouped(classes: tuple, positive: Any) -> tuple:
    """The names of the two groups: the rest, and the classes in `positive`."""
    names = np.atleast_1d(
        np.asarray(list(positive) if isinstance(positive, set | range) else positive)
    )
    shown = ", ".join(map(str, classes[:12])) + (", ..." if len(classes) > 12 else "")
    texts, wanted = [str(name) for name in classes], [str(name) for name in normalize_names(names)]
    unknown = [name for name in wanted if name not in texts]
    if unknown or not 0 < len(set(wanted)) < len(classes):
        raise ValueError(
            f"positive must be one or several, not all, of the classes {shown}; got "
            f"{', '.join(wanted)}"
        )
    if len(classes) == 2:
        return tuple(sorted(classes, key=lambda name: str(name) in wanted))
    rest = [name for name in texts if name not in wanted]
    return (rest[0] if len(rest) == 1 else REST, "|".join(name for name in texts if name in wanted))


def unlabelled(parts: Sequence[Rows]) -> Loaded:
    """Data sets of rows to predict, with targets of 0."""
    return Loaded(
        [
            _batch(part, np.zeros(part.x.shape[0]), "regression", not i)
            for i, part in enumerate(parts)
        ]
    )


def assemble(
    parts: Sequence[Rows], *, task: str | None = None, positive: Any = None, classes: Any = None
) -> Loaded:
    """Data sets with labels from the contents of files; the first part defines the classes.

    Args:
        parts: each with targets.
        task: "binary", "multiclass", "regression", "ranking"; None: the first for two classes, the
            second for more.
        positive: the class, or several, that are +1 against the rest; None: the last of two.
        classes: names of an earlier call; None: those of the first part.

    Raises:
        ValueError: no targets in some of the parts; one class only, more than two with
            task="binary", a class that is not in the first part.
    """
    if task is not None:
        check_choice("task", task, ("binary", "multiclass", "regression", "ranking"))
    if not parts:
        raise ValueError("give the path of at least one file")
    if any(part.y is None for part in parts):
        raise ValueError("there are no labels beside the rows")
    names = [normalize_names(part.y) for part in parts]
    zero_based = next((part.zero_based for part in parts if part.zero_based is not None), None)
    if task in ("regression", "ranking"):
        if positive is not None:
            raise ValueError(
                f"positive is a class, and task={task!r} has none: give one of the two"
            )
        for y in (y for y in names if y.dtype.kind in "US"):
            raise ValueError(f"targets must be numbers with task={task!r}, got {y[0]!r} and others")
        return Loaded(
            [
                _batch(part, y, task, not i)
                for i, (part, y) in enumerate(zip(parts, names, strict=True))
            ],
            zero_based=zero_based,
        )
    if classes is None:
        weighted = names[0] if parts[0].weight is None else names[0][parts[0].weight > 0]
        classes = encode(weighted)[1]
        if parts[0].first_line:
            _warn_of_first_class(weighted)
        if task is None and positive is None:
            _warn_of_many_classes(classes, len(weighted))
        classes = classes if positive is None else _grouped(classes, positive)
        first = task or ("binary" if len(classes) == 2 else "multiclass")
        if first == "binary" and len(classes) > 2:
            shown = ", ".join(map(str, classes[:12])) + (", ..." if len(classes) > 12 else "")
            raise ValueError(
                f"there are {len(classes)} classes, {shown}: say which is +1, "
                f"positive={classes[-1]!r}"
            )
    else:
        classes = class_names(classes)
        first = "regression"  # without a check that every class is present
    batches = []
    for i, (part, y) in enumerate(zip(parts, names, strict=True)):
        # targets of other rows are not read
        used = slice(None) if part.weight is None else np.asarray(part.weight) > 0
        numbers = np.full(len(y), -1 if len(classes) == 2 else 0)
        numbers[used] = label(y[used], classes)
        numbers = (numbers + 1) // 2 if len(classes) == 2 and task == "multiclass" else numbers
        batch = _batch(part, numbers, "regression" if i else first, not i)
        batches.append(batch._replace(classes=Classes(tuple(classes), part.table)))
    return Loaded(batches, classes, zero_based)


def _warn_of_first_class(y: np.ndarray) -> None:
    """Warn of a class whose only row is the first, where few classes have a single row."""
    if np.sum(y == y[0]) > 1:
        return
    single = np.sum(np.unique(y, return_counts=True)[1] == 1)
    if len(y) > 2 and (single == 1 or 10 * single <= len(y)):
        warnings.warn(
            f"the class {y[0].item()!r} has one row, the first: give header=True if that line "
            "names the columns, header=False if it does not",
            stacklevel=caller_stacklevel(),
        )


def _warn_of_many_classes(classes: Sequence, n: int) -> None:
    """Warn of more classes than half the rows, or of many numbers of few rows each."""
    is_text = isinstance(classes[0], str)
    many_numbers = not is_text and len(classes) > 20 and 10 * len(classes) > n
    if n >= 10 and (2 * len(classes) > n or many_numbers):
        targets = "" if is_text else ", or are these targets (task='regression')"
        warnings.warn(
            f"there are {len(classes)} classes in {n} rows, such as {classes[0]!r}: is the label "
            f"another column{targets}?",
            stacklevel=caller_stacklevel(),
        )


def _batch(part: Rows, y: np.ndarray, task: str, warn: bool) -> Batch:
    with warnings.catch_warnings():
        if not warn:  # the warning is shown once
            warnings.simplefilter("ignore")
        query = part.query if task == "ranking" else None
        if query is not None and len(query) != len(y):
            raise ValueError(
                f"{len(query)} of {len(y)} rows name their query, qid: name it in all rows or in "
                "none"
            )
        data = dataset(part.x, y, part.weight, query=query, task=task)
        return data if part.table is None else data._replace(classes=Classes((), part.table))


def with_file_names(paths: Sequence, make: Callable[[], Loaded]) -> Loaded:
    """The result of `make`; errors in the rows name the files."""
    try:
        return make()
    except ValueError as error:
        names = [
            os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
            for path in paths
        ]
        raise ValueError(f"{', '.join(names)}: {error}") from error
