"""CSV files; every error names the file and the line."""

from __future__ import annotations

import itertools
import numbers
import os
import re
import warnings
from typing import Any

import numpy as np

from ..checks import caller_stacklevel
from ..recipe import check_choice
from .assemble import Loaded, Rows, assemble, unlabelled, with_file_names
from .missing import is_missing
from .parsing import (
    EXPANSION,
    ExpansionError,
    ReadError,
    check_paths,
    number_fault,
    open_any,
    read_lines,
    reading,
    run_dtype,
)
from .tables import COUNTS, counts_rows


def load_csv(
    *paths: str | os.PathLike,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
    expansion: int = EXPANSION,
    target: int | str | None = None,
    scale: bool = False,
) -> Loaded:
    r"""Read CSV files, `.gz`, `.bz2` and `.xz` too.

    The cells are numbers, except a column of labels, which may be strings. With `target` they may
    be words, or missing.

    Args:
        *paths: one or more, with the same columns.
        label: the column of labels by index (-1 the last, 0 the first) or by its name in the
            header; None: no labels, and targets of 0.
        delimiter: one character between the cells.
        header: whether the first line names the columns; "auto": if none of its cells, except the
            label, is a number, or if they are rising whole numbers, as pandas writes, before rows
            of fractional ones. A first line in which only some are numbers is an error.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.
        expansion: as for `load_svmlight`.
        target: the column of targets by name or number, in place of `label`: the columns are those
            of a table, as of `jaxsvm.dataset(frame, target=...)`, by the rows of the first file.
            Spaces around cells do not count, and empty cells, ? and NA are missing. The first line
            is a header where it holds this name. Without a header a name stands for the last
            column, with a warning.
        scale: with `target`, as of `jaxsvm.dataset`.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError: a cell that is not a finite number, a line with another number of cells, a file
            without rows, labels that do not fit the task.
        FileNotFoundError: no such file.

    Warns:
        UserWarning: a first line that might be a header; a class whose only row is the first;
            labels that hold another delimiter; a column that counts the rows.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("length,kind\n1.5,cat\n2,dog\n")
        >>> load_csv(path).classes
        ('cat', 'dog')
    """
    if target is not None:
        from .csv_tables import load_tables

        reading_options: Any = {"delimiter": delimiter, "header": header, "expansion": expansion}
        parts, _ = load_tables(paths, target, scale, **reading_options)
        make = lambda: assemble(parts, task=task, positive=positive, classes=classes)
        return with_file_names(paths, make)
    options: Any = {"label": label, "delimiter": delimiter, "header": header}
    parts = [read_csv(path, expansion=expansion, **options) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(
                f"{path} has {part.x.shape[1]} columns beside the label, {paths[0]} "
                f"has {parts[0].x.shape[1]}"
            )
    if label is None and task is None and parts:
        return with_file_names(paths, lambda: unlabelled(parts))
    return with_file_names(
        paths, lambda: assemble(parts, task=task, positive=positive, classes=classes)
    )


def read_csv(
    path: str | os.PathLike,
    *,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    columns: int | None = None,
    missing: bool = False,
    expansion: int = EXPANSION,
) -> Rows:
    """The rows of a CSV file with its raw labels.

    There are no labels with label=None, or if a line has exactly `columns` cells. With `missing`,
    cells that stand for missing numbers become NaN, and labels may be empty.
    """
    check_choice("header", header, (True, False, "auto"))
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"delimiter must be the one character between cells, got {delimiter!r}")
    (path,) = check_paths((path,), expansion)
    with reading(path):
        filled = (
            (number, cells) for number, cells in read_lines(path, delimiter) if _is_filled(cells)
        )
        number, first = next(filled, (0, []))
        if not first:
            raise ValueError(f"{path} holds no rows")
        width, head = len(first), [cell.strip() for cell in first]
        label = None if width == columns else label
        by_name = isinstance(label, str)
        if by_name and label not in head:
            raise ReadError(
                f"{path} has no column named {label!r}, its first line holds "
                f"{', '.join(head[:12])}",
                label="",
                **({"delimiter": _delimiter_of(head[0])} if width == 1 else {}),
            )
        place = (
            None
            if label is None
            else head.index(label)
            if isinstance(label, str)
            else _column(path, label, width)
        )
        if width == 1 and label is not None:
            what = (
                f"has a single cell, {head[0][:40]!r}: is {delimiter!r} what stands between cells?"
            )
            raise ReadError(f"{path}, line {number} {what}", delimiter=_delimiter_of(first[0]))
        skip: bool | None = by_name or header is True
        if header == "auto" and not by_name:
            skip = _names_columns(path, number, head, place, missing) or _numbers_columns(
                path, number, head, place, delimiter
            )
        skip_lines = number if skip else 0
        names: dict[str, int] = {}
        converters: Any = dict.fromkeys(range(width), _number) if missing else {}
        if place is not None:
            converters[place] = lambda cell: names.setdefault(cell.strip(), len(names))
        try:
            with open_any(path) as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a file without rows, which is checked below
                for _ in range(skip_lines):
                    next(file)
                table = np.loadtxt(
                    file,
                    delimiter=delimiter,
                    comments=None,
                    quotechar='"',
                    ndmin=2,
                    converters=converters or None,
                )
        except (UnicodeDecodeError, ExpansionError):
            raise
        except ValueError as error:
            _find_bad_cell(path, width, place, skip_lines, delimiter, missing)
            raise ReadError(f"{path} cannot be read as CSV: {error}", delimiter="") from error
        fits = not table.size or table.shape[1] == width
        if (
            not fits
            or not (np.abs(table) <= float(np.finfo(run_dtype()).max)).all()
            or any(map(_label_fault, names))
        ):
            _find_bad_cell(path, width, place, skip_lines, delimiter, missing)
    if not table.size:
        raise ValueError(f"{path} holds no rows")
    _warn_of_row_numbers(path, table, place, head if skip else None)
    if place is None:
        return Rows(table)
    _warn_of_delimiter(path, [name for name in names if name], delimiter)
    return Rows(
        np.delete(table, place, axis=1),
        np.asarray(list(names))[table[:, place].astype(int)],
        first_line=header == "auto" and skip is False,
    )


def _number(cell: str) -> float:
    """The number of a cell, NaN where it is missing."""
    if is_missing(cell):
        return np.nan
    if number_fault(cell, np.inf) == "is no number":
        raise ValueError(f"{cell!r} is no number")
    return float(cell)


def _delimiter_of(line: str) -> str:
    """The character that seems to stand between the cells of a line, or ""."""
    counts = {character: line.count(character) for character in ";\t| ,"}
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] else ""


def _warn_of_row_numbers(
    path: str, table: np.ndarray, place: int | None, head: list[str] | None
) -> None:
    """Warn of a column that counts the rows from 0 or 1."""
    for i in range(table.shape[1]):
        if i != place and counts_rows(table[:, i]):
            name = "" if head is None else f", {head[i][:40]!r},"
            warnings.warn(
                f"{path}: column {i + 1}{name} {COUNTS.format(table[0, i])}",
                stacklevel=caller_stacklevel(),
            )


def _names_columns(
    path: str, number: int, head: list[str], place: int | None, missing: bool
) -> bool:
    """Whether the first line is a header: none of its cells, except the label, is a number."""
    cells = [
        cell for i, cell in enumerate(head) if i != place and not (missing and is_missing(cell))
    ]
    words = [cell for cell in cells if number_fault(cell, np.inf) == "is no number"]
    if words and len(words) < len(cells):
        gap = {"missing": ""} if is_missing(words[0]) else {}
        raise ReadError(
            f"{path}, line {number}: the cell {words[0][:40]!r} is no number, but others of the "
            "line are: say header=True if the line names the columns, else mend the cell",
            **gap,
            label=str(head.index(words[0])) if len(words) == 1 and not gap else "",
            header="",
        )
    return bool(words)


def _numbers_columns(
    path: str, number: int, head: list[str], place: int | None, delimiter: str
) -> bool | None:
    """Whether the first line numbers the columns: rising whole numbers before fractional ones.

    pandas writes 0, 1, 2, ... for columns without names. None, with a warning: it is not clear.
    """
    is_word = lambda cell: number_fault(cell, np.inf) == "is no number"
    counted = {i for i, cell in enumerate(head) if i != place or not is_word(cell)}
    if not counted or not all(_is_whole(head[i]) for i in counted):
        return False
    values = [int(head[i]) for i in sorted(counted)]
    if values[0] < 0 or any(b <= a for a, b in itertools.pairwise(values)):
        return False
    rows = [
        cells
        for line, cells in itertools.islice(read_lines(path, delimiter), HEADER_ROWS)
        if line > number
    ]
    if not rows or any(len(cells) != len(head) for cells in rows):
        return False  # an error that names the line follows
    columns = counted - {place}
    known = {i: [cells[i] for cells in rows if not is_missing(cells[i])] for i in counted}
    fractional = {i for i, cells in known.items() if cells and all(map(_is_fractional, cells))}
    other_labels = False  # words below a number, or numbers below a word
    if place is not None:
        labels = {cells[place].strip() for cells in rows} - {""}
        if place not in counted and head[place] in labels:
            return False
        other_labels = {is_word(name) for name in labels} == {place in counted}
    consecutive, many = values[-1] - values[0] == len(values) - 1, len(head) > 2
    if consecutive and values[0] == 0:
        found = bool(fractional & columns) and (many or fractional == counted)
    else:
        found = many and columns <= fractional
    counts = consecutive and values[0] < 2
    if found or other_labels and (counts or many):
        return True
    if fractional & columns or counts and len(values) > 2 + values[0]:
        warnings.warn(
            f"{path}, line {number}: {', '.join(head[:12])} is read as a row: give header=True if "
            "it names the columns, header=False if it does not",
            stacklevel=caller_stacklevel(),
        )
        return None
    return False


HEADER_ROWS = 1000  # that are compared with a first line of whole numbers


def _is_whole(cell: str) -> bool:
    """Whether a cell is a whole number without a point."""
    digits = cell.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 16


def _is_fractional(cell: str) -> bool:
    """Whether a cell is a number with a point or an exponent."""
    return not _is_whole(cell) and number_fault(cell, np.inf) != "is no number"


def _warn_of_delimiter(path: str, names: list[str], delimiter: str) -> None:
    """Warn of labels that hold a number and what may be another delimiter, as 5;yes."""
    for other in ";\t|":
        ends = (name.partition(other)[::2] for name in names)
        if other != delimiter and all(
            _is_whole(left) and right or _is_whole(right) and left for left, right in ends
        ):
            warnings.warn(
                f"{path}: the labels, such as {names[0][:40]!r}, hold {other!r}: if it stands "
                f"between cells, give delimiter={other!r}, and numbers with a decimal point",
                stacklevel=caller_stacklevel(),
            )


def _is_filled(cells: list[str]) -> bool:
    """Whether a cell of a line is not blank."""
    return any(map(str.strip, cells))


def _column(path: str, label: int, width: int) -> int:
    if isinstance(label, bool) or not isinstance(label, numbers.Integral):
        raise TypeError(f"label must be the number of a column, its name or None, got {label!r}")
    if not -width <= label < width:
        raise ReadError(
            f"{path} has {width} columns, the label cannot stand in column {label}", label=""
        )
    return int(label) % width


def _find_bad_cell(
    path: str, width: int, place: int | None, skip_lines: int, delimiter: str, missing: bool
) -> None:
    """Raise ValueError for the first invalid line, as NumPy reports rows, not lines."""
    most = float(np.finfo(run_dtype()).max)
    for number, cells in read_lines(path, delimiter):
        if number <= skip_lines:
            continue
        if not _is_filled(cells) and not (missing and len(cells) == width):
            raise ReadError(
                f"{path}, line {number}: every cell is empty, expected numbers; leave the line out",
                **({"missing": ""} if len(cells) == width else {}),
            )
        if len(cells) != width:
            raise ReadError(
                f"{path}, line {number} has {len(cells)} cells, expected {width} as in the first",
                delimiter="",
            )
        for i, cell in enumerate(cells):
            if missing and (not cell.strip() if i == place else is_missing(cell)):
                continue
            fault = _label_fault(cell) if i == place else number_fault(cell, most)
            if fault and i != place and re.fullmatch(r"[+-]?\d*,\d+", cell.strip()):
                fault += ": a decimal point is expected"
            if fault:
                help_by = {"missing": ""} if is_missing(cell) else {"label": "", "delimiter": ""}
                raise ReadError(
                    f"{path}, line {number}: the cell {cell[:40]!r} in column {i + 1} {fault}",
                    **help_by,
                )


def _label_fault(cell: str) -> str | None:
    """The fault of a label, or None."""
    if not cell.strip():
        return "is empty"
    if "\ufeff" in cell:
        return "holds a byte order mark"
    return "holds a null character" if "\0" in cell else None
