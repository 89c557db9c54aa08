"""Rows with missing numbers, which files hold as NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .assemble import Rows

MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))  # cells of CSV, in lower case


def is_missing(cell: str) -> bool:
    """Whether a cell of a CSV file stands for a missing number."""
    return cell.strip().lower() in MISSING


def incomplete(part: Rows) -> np.ndarray:
    """Which rows have a missing number or an empty label, (n,)."""
    x = part.x
    rows = np.zeros(x.shape[0], bool)
    if not hasattr(x, "tocsr") and x.dtype.kind == "f":
        rows |= np.isnan(x).any(axis=1)
    if part.y is not None:
        rows |= part.y == "" if part.y.dtype.kind in "US" else part.y != part.y
    return rows


def drop(part: Rows) -> Rows:
    """The rows without those that have a missing number or label.

    Raises:
        ValueError: no row is left.
    """
    keep = ~incomplete(part)
    if not keep.any():
        raise ValueError("every row has a missing number: none is left")
    x, y, weight, query = (None if field is None else field[keep] for field in part[:4])
    return Rows(x, y, weight, query, part.zero_based, part.first_line and bool(keep[0]))


def column_means(x: np.ndarray) -> np.ndarray:
    """The mean of each column over the rows that have it, (d,).

    Raises:
        ValueError: a column without a number.
    """
    known = ~np.isnan(x)
    count = known.sum(axis=0)
    if not count.all():
        column = int(np.argmin(count)) + 1
        raise ValueError(f"column {column} beside the label holds no number: leave it out")
    return np.where(known, x, 0).sum(axis=0, dtype=np.float64) / count


def fill(part: Rows, means: Sequence | np.ndarray) -> Rows:
    """The rows with the mean of its column for each missing number.

    Raises:
        ValueError: a label is missing.
    """
    if part.y is not None and incomplete(part._replace(x=np.zeros((len(part.y), 0)))).any():
        raise ValueError("a label is missing, which no mean replaces: drop such rows")
    if hasattr(part.x, "tocsr") or part.x.dtype.kind != "f":
        return part
    return part._replace(x=np.where(np.isnan(part.x), np.asarray(means), part.x))
