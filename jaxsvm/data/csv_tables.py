"""CSV files whose columns are numbers or words."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import caller_stacklevel, shown
from ..models.tables import Table, no_column
from .assemble import Rows
from .missing import is_missing
from .parsing import EXPANSION, ReadError, check_paths, number_fault, read_lines, reading
from .tables import fit_table, has_target, targets_of


def load_tables(
    paths: Sequence,
    target: int | str | None,
    scale: bool,
    like: Table | None = None,
    *,
    every: bool = False,
    **options: Any,
) -> tuple[list[Rows], Table]:
    """The rows of CSV files with words, and what the columns became, by the first without `like`.

    Args:
        paths: of the files.
        target: as of `read_table`; with None, or where a file has none, there are no labels.
        scale: as of `jaxsvm.dataset`.
        like: of the training rows.
        every: whether rows without a target are kept, with weight 0. A file whose rows all lack it
            has no targets then.
        **options: of `read_table`.
    """
    parts = []
    for path in paths:
        cells, chosen = read_table(path, target, like=like, **options)
        y: Any = None
        weight: Any = None
        if chosen is not None and every:
            y, weight = _with_gaps(cells[chosen])
        elif chosen is not None:
            y, known = targets_of(cells, chosen)
            cells = {name: column[known] for name, column in cells.items()}
        like = fit_table(cells, chosen, scale) if like is None else like
        parts.append(Rows(like.encode(cells), y, weight, table=like))
    if like is None:
        raise ValueError("give the path of at least one file")
    return parts, like


def _with_gaps(cells: np.ndarray) -> tuple[Any, Any]:
    """Targets (n,) and weights, 0 where there is none; None and None where all are missing."""
    known = has_target(cells)
    if not known.any():
        return None, None
    first = int(np.argmax(known))
    y = np.where(known, cells, cells[first])
    return y.astype(str) if cells.dtype == object else y, known.astype(float)


def read_table(
    path: str | os.PathLike,
    target: int | str | None,
    *,
    like: Table | None = None,
    delimiter: str = ",",
    header: bool | str = "auto",
    expansion: int = EXPANSION,
) -> tuple[dict[str, np.ndarray], str | None]:
    """The columns of a CSV file, and the name of the one of targets.

    Spaces around cells do not count, and empty cells, ? and NA are missing. The first line is a
    header where it holds `target`, or all columns of `like`. Columns without names are called by
    their numbers, from 1 on; a target that is no number is then the last one.

    Args:
        path: of the file.
        target: the column of targets by name, or by number (-1 the last, 0 the first).
        like: of the training rows, whose names columns without a header have.
        delimiter: one character between the cells.
        header: whether the first line names the columns, or "auto".
        expansion: as for `load_csv`.

    Raises:
        ValueError: a line with another number of cells, a cell that is no number in a column of
            numbers, a file without rows.

    Warns:
        UserWarning: the file has no header, and the target a name.
    """
    (path,) = check_paths((path,), expansion)
    with reading(path):
        lines = [(n, [c.strip() for c in cells]) for n, cells in read_lines(path, delimiter)]
    lines = [(n, cells) for n, cells in lines if any(cells)]
    if not lines:
        raise ValueError(f"{path} holds no rows")
    head, width = lines[0][1], len(lines[0][1])
    known = like.inputs if like is not None else []
    named = (isinstance(target, str) and target in head) or bool(known) and set(known) <= set(head)
    # a first line of words alone names columns, if none of them is a word of its column
    words = all(number_fault(cell, np.inf) == "is no number" for cell in head)
    is_named = header is True or (header == "auto" and words and like is None)
    if header == "auto" and is_named and not isinstance(target, str):
        below = zip(head, _below(lines, width), strict=True)
        named = not any(cell in column for cell, column in below)
    if header == "auto" and like is not None and not named and set(known) & set(head):
        absent = next(name for name in known if name not in head)
        raise ReadError(no_column(f"{path} has", absent, like, head), header="")
    if is_named and isinstance(target, str) and target not in head:
        raise ReadError(
            f"{path} has no column {target!r}, its first line holds {', '.join(head[:12])}",
            target="",
        )
    has_header = named if header == "auto" else header is True
    names = list(head) if has_header else [str(i + 1) for i in range(width)]
    if not has_header and like is not None:
        names = _names_like(path, like, width)
    if len(set(names)) < width:
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ReadError(f"{path}: two columns have the name {twice!r}", header="")
    rows = lines[1:] if has_header else lines
    for number, cells in rows:
        if len(cells) != width:
            raise ReadError(
                f"{path}, line {number} has {len(cells)} cells, expected {width} as in the first",
                delimiter="",
            )
    if not rows:
        raise ValueError(f"{path} holds no rows")
    chosen = _target(path, target, names, like)
    kinds = {} if like is None else {part.name: part.words is None for part in like.parts}
    numbers = [number for number, _ in rows]
    columns = zip(names, zip(*(cells for _, cells in rows), strict=True), strict=True)
    return {
        name: _cells(path, name, column, numbers, name != chosen, kinds.get(name))
        for name, column in columns
    }, chosen


def _below(lines: list, width: int) -> list[set]:
    """The cells of each column below the first line."""
    return [{cells[i] for _, cells in lines[1:] if i < len(cells)} for i in range(width)]


def _names_like(path: str, like: Table, width: int) -> list[str]:
    """The names of the columns of a file without a header, those of the training rows."""
    names = like.inputs
    if width == len(names) + 1 and like.place >= 0:
        return [*names[: like.place], like.target, *names[like.place :]]
    if width != len(names):
        raise ReadError(
            f"{path} has {width} columns, the model takes {len(names)}, and a target if there is "
            "one: name them in the first line, or mend the file",
            delimiter="",
        )
    return names


def _target(
    path: str, target: int | str | None, names: list[str], like: Table | None
) -> str | None:
    """The name of the column of targets."""
    if like is not None:
        return like.target if like.target in names else None
    if target is None or (isinstance(target, str) and target in names):
        return target
    if isinstance(target, str):
        warnings.warn(
            f"{path} has no header: {target!r} is taken for its last column",
            stacklevel=caller_stacklevel(),
        )
        names[-1] = target
        return target
    if not -len(names) <= target < len(names):
        raise ReadError(
            f"{path} has {len(names)} columns, the target cannot stand in column {target}",
            target="",
        )
    return names[target]


def _cells(
    path: str, name: str, column: tuple, lines: list[int], is_input: bool, numeric: bool | None
) -> np.ndarray:
    """The cells of a column: numbers if all that are there are, else words and None."""
    truths = {"true": "1", "false": "0"}  # numbers, as in a data frame
    if is_input and all(is_missing(c) or c.lower() in truths for c in column):
        column = tuple(truths.get(c.lower(), c) for c in column)
    faults = [None if is_missing(c) else number_fault(c, np.inf) for c in column]
    words = [k for k, fault in enumerate(faults) if fault == "is no number"]
    missing = [is_missing(cell) for cell in column]
    count = len(column) - sum(missing)
    if numeric is None:  # a few words among numbers are mistakes
        numeric = not words or (is_input and len(words) < 0.1 * count)
    if numeric and words:
        raise ReadError(
            f"{path}, line {lines[words[0]]}: the cell {shown(column[words[0]])} in column "
            f"{name!r} is no number, but others are",
            header="",
        )
    if numeric and count:
        cells = zip(column, missing, strict=True)
        return np.array([np.nan if gone else float(cell) for cell, gone in cells])
    out = np.empty(len(column), object)
    out[:] = [None if gone else cell for cell, gone in zip(column, missing, strict=True)]
    return out
