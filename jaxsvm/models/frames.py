"""Columns of data frames by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..types import Rows


def is_frame(x: object) -> bool:
    """Whether this is a data frame, of pandas or polars: columns with `to_numpy`."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def column_names(x: Any) -> tuple[str, ...]:
    """The names of the columns of a data frame if all are strings, as in scikit-learn; else ()."""
    names = tuple(x.columns) if is_frame(x) else ()
    return names if all(isinstance(name, str) for name in names) else ()


def frame_numbers(frame: Any) -> np.ndarray:
    """The numbers (n, d) of a data frame.

    Raises:
        ValueError: columns of one name, of words, or with missing cells.
    """
    if len(set(frame.columns)) < len(frame.columns):
        raise ValueError("two columns of the frame have one name: rename one of them")
    columns = {name: np.asarray(frame[name].to_numpy()) for name in frame.columns}
    words = [name for name, a in columns.items() if a.dtype.kind not in "biuf"]
    wrong = [name for name, a in columns.items() if name in words or np.isnan(a).any()]
    shown = ", ".join(map(repr, wrong[:8]))
    if wrong and not words:
        raise ValueError(
            f"the columns {shown} hold missing cells: fill them by SimpleImputer, new rows as "
            "those of training, see docs/tables.md"
        )
    if wrong:
        raise ValueError(
            f"the columns {shown} hold words or missing cells: fit "
            "make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown='ignore'), "
            f"{words[:8]}), remainder=make_pipeline(SimpleImputer(), StandardScaler())), SVC()), "
            "see docs/tables.md"
        )
    return np.column_stack(list(columns.values())) if columns else np.zeros((len(frame), 0))


def places(wanted: Sequence, own: Sequence, what: str) -> list[int]:
    """The place among `own` of each of the names `wanted`, in their order.

    Raises:
        ValueError: the two are not the same set; the sentence names what differs.
    """
    place = {name: k for k, name in enumerate(own)}
    absent = [name for name in wanted if name not in place]
    strange = sorted(place.keys() - set(wanted), key=str)
    if absent or strange:
        lists = (("without", absent), ("with", strange))
        told = [f"{word} {', '.join(map(repr, names[:8]))}" for word, names in lists if names]
        raise ValueError(f"the {what} are not those of the training rows: {' and '.join(told)}")
    return [place[name] for name in wanted]


def by_name(x: Rows, columns: tuple[str, ...]) -> Any:
    """The rows; of a data frame its numbers, in the order of `columns` where both have names.

    Raises:
        ValueError: the frame has other columns, or some that hold no numbers.
    """
    if not is_frame(x):
        return x
    own = column_names(x)
    order = places(columns, own, "columns of the frame") if own and columns else None
    numbers = frame_numbers(x)
    return numbers if order is None else numbers[:, order]
