"""Tables with words to numbers: data frames and dicts of columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import caller_stacklevel, x64_enabled
from ..models.tables import Column, Table, cells_of, is_boolean

MOST_WORDS = 100  # of a column, that have an indicator each
RARE = 1e-3  # share of the rows below which a word is rare


def holds_words(frame: Any) -> bool:
    """Whether a column of a table holds words."""
    dtypes = getattr(frame, "dtypes", None)
    if dtypes is not None and hasattr(frame, "to_numpy"):  # of pandas and polars: no cell is read
        if all(str(kind).lower().startswith(_NUMBERS) for kind in list(dtypes)):
            return False
    return any(column.dtype == object for column in cells_of(frame).values())


_NUMBERS = ("int", "uint", "float", "bool")


def fit_table(
    cells: dict[str, np.ndarray], target: str | Sequence[str] | None, scale: bool
) -> Table:
    """What the columns of the training rows become.

    A word has an indicator if it is in a thousandth of the rows, up to `MOST_WORDS` of a column;
    the others share one. Missing cells have an indicator, and missing numbers become the mean.

    Args:
        cells: the columns, of numbers with nan, or of strings and None.
        target: the column that is left out, or several of them; None: none.
        scale: whether numbers are brought to mean 0 and deviation 1.

    Raises:
        ValueError: no column is left; one that holds no cell.
    """
    targets = [target] if isinstance(target, str) else list(target or ())
    inputs = [name for name in cells if name not in targets]
    if not inputs:
        raise ValueError("the table has no column beside the target")
    columns = tuple(tuple(_fitted(name, cells[name], scale)) for name in inputs)
    if not isinstance(target, str):
        return Table(columns)
    return Table(columns, target, list(cells).index(target))


def _fitted(name: str, cells: np.ndarray, scale: bool) -> Column:
    if cells.dtype != object:
        known = cells[~np.isnan(cells)]
        if not np.isfinite(known).all():
            raise ValueError(f"the column {name!r} holds an infinity: drop or fill in such rows")
        if not len(known):
            raise ValueError(f"the column {name!r} holds no number: leave it out")
        mean, deviation = float(known.mean()), float(known.std())
        if not scale:
            _warn_of_digits(name, known)
        if counts_rows(cells):
            warnings.warn(
                f"the column {name!r} {COUNTS.format(cells[0])}", stacklevel=caller_stacklevel()
            )
        missing = len(known) < len(cells)
        shift, width = (
            (mean, deviation if known.min() < known.max() else 1.0) if scale else (0.0, 1.0)
        )
        return Column(name, None, (), mean, shift, width, missing)
    words, counts = np.unique([cell for cell in cells if cell is not None], return_counts=True)
    if not len(words):
        raise ValueError(f"the column {name!r} holds no word: leave it out")
    if len(words) > max(10, counts.sum() / 2):
        warnings.warn(
            f"the column {name!r} holds {len(words)} different words in {counts.sum()} rows, such "
            f"as {words[0]!r}: leave out names, and turn dates into numbers",
            stacklevel=caller_stacklevel(),
        )
    order = np.argsort(-counts, kind="stable")[:MOST_WORDS]
    kept = order[counts[order] >= RARE * len(cells)]
    if len(kept) == len(words) - 1:  # a single other one is as well kept
        kept = np.arange(len(words))
    is_kept = np.isin(np.arange(len(words)), kept)
    names = tuple(words[is_kept].tolist()), tuple(words[~is_kept].tolist())
    return Column(name, *names, 0.0, 0.0, 1.0, bool(counts.sum() < len(cells)))


def counts_rows(cells: np.ndarray) -> bool:
    """Whether a column of numbers (n,) counts ten rows or more from 0 or 1."""
    if len(cells) < 10 or cells[0] not in (0, 1) or cells[1] != cells[0] + 1:
        return False
    return bool((np.diff(cells) == 1).all())


COUNTS = "counts the rows from {:g}: it says nothing of other rows, leave it out"


def _warn_of_digits(name: str, known: np.ndarray) -> None:
    """Warn of numbers (n,) whose differences float32 does not hold."""
    width, lost = np.ptp(known), np.abs(known - known.astype(np.float32)).max()
    if not x64_enabled() and lost > 1e-4 * width > 0:
        warnings.warn(
            f"rounding to float32 moves the column {name!r} by up to {lost:.2g}, but its numbers "
            f"differ by {width:.2g} only: take scale=True",
            stacklevel=caller_stacklevel(),
        )


def targets_of(cells: dict[str, np.ndarray], target: str) -> tuple[np.ndarray, np.ndarray]:
    """The targets of the rows that have one, and which rows these are, (n,) bool.

    Raises:
        ValueError: no such column.

    Warns:
        UserWarning: rows without a target, which are left out.
    """
    check_there(cells, target)
    y = cells[target]
    known = has_target(y)
    if not known.any():
        raise ValueError(f"the column of targets {target!r} is empty")
    if not known.all():
        warnings.warn(
            f"{(~known).sum()} of {len(y)} rows have no target, and are left out",
            stacklevel=caller_stacklevel(),
        )
    y = y[known]
    if y.dtype == object:
        return y.astype(str), known
    is_whole = (y == np.round(y)).all() and (np.abs(y) < 2**53).all()
    return y.astype(np.int64) if is_whole else y, known


def check_there(cells: dict[str, np.ndarray], name: str) -> None:
    """Raise unless a table has the column."""
    if name not in cells:
        raise ValueError(
            f"the table has no column {name!r}, it has {', '.join(map(str, list(cells)[:12]))}"
        )


def several_targets(cells: dict[str, np.ndarray], targets: Sequence[str]) -> Any:
    """Targets (n, k) of columns of numbers or truth values; nan where missing.

    Raises:
        ValueError: no such column, or one of words.
    """
    for name in targets:
        check_there(cells, name)
        if cells[name].dtype == object:
            raise ValueError(
                f"the column of targets {name!r} holds words: of several targets each is a number, "
                "or 0 and 1 for a label"
            )
    return np.stack([cells[name] for name in targets], axis=1)


def has_target(cells: np.ndarray) -> np.ndarray:
    """Which cells of a column of targets hold one, (n,) bool."""
    if cells.dtype == object:
        return np.array([cell is not None for cell in cells], bool)
    return ~np.isnan(cells)


def rows_of_table(
    frame: Any, target: str | list[str] | None, y: Any, like: Table | None, scale: bool
) -> tuple[np.ndarray, Any, Table, np.ndarray]:
    """The rows (n, d) and targets of a table, what its columns became, and which rows are used.

    Args:
        frame: a data frame or a dict of columns.
        target: the name of the column of targets, or several; None: they are y.
        y: (n,) targets, or None.
        like: the table of the training rows; None: these are it.
        scale: as of `fit_table`.

    Raises:
        ValueError: both or neither of target and y; columns that are not there.
    """
    cells = cells_of(frame)
    if (target is None) == (y is None):
        raise ValueError("a table needs its targets: give target='name of a column', or y")
    lengths = {len(column) for column in cells.values()}
    if len(lengths) != 1:
        raise ValueError(f"the columns of the table differ in length: {sorted(lengths)[:5]}")
    known = np.ones(lengths.pop(), bool)
    if isinstance(target, list):
        y = several_targets(cells, target)
    elif target is not None:
        y, known = targets_of(cells, target)
        y = y.astype(bool) if is_boolean(frame, target) else y
        cells = {name: column[known] for name, column in cells.items()}
    table = fit_table(cells, target, scale) if like is None else like
    return table.encode(cells), y, table, known
