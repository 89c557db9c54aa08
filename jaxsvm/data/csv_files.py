"""CSV files; every refusal names the file and the line."""

from __future__ import annotations

import csv
import gzip
import lzma
import os
import warnings
import zlib
from typing import Any

import numpy as np

from ..recipe import choice
from .loaded import Loaded, Rows, assemble, named
from .opening import checked, floats, number_fault, open_any


def load_csv(
    *paths: str | os.PathLike,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
) -> Loaded:
    r"""Read CSV files, `.gz`, `.bz2` and `.xz` too: numbers, and a column of labels, which may be words.

    Args:
        *paths: one or more, with the same columns.
        label: the column of labels by number (-1 the last, 0 the first) or by its name in the header.
        delimiter: between the cells.
        header: whether the first line names the columns; "auto": where it holds a cell, the label apart, that is no number.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError: a cell that is no finite number, a line with another number of cells, a file without rows, each with
            the number of the line; labels that do not fit the task.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("length,kind\n1.5,cat\n2,dog\n")
        >>> load_csv(path).classes
        ('cat', 'dog')
    """
    parts = [read_csv(path, label=label, delimiter=delimiter, header=header) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(f"{path} has {part.x.shape[1]} columns beside the label, {paths[0]} has {parts[0].x.shape[1]}")
    return named(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))


def read_csv(
    path: str | os.PathLike,
    *,
    label: int | str | None = -1,
    delimiter: str = ",",
    header: bool | str = "auto",
    columns: int | None = None,
) -> Rows:
    """The rows of a CSV file with its labels as they stand there; label=None, or just `columns` cells a line: it has none."""
    choice("header", header, (True, False, "auto"))
    (path,) = checked((path,))
    try:
        with open_any(path) as file:
            first = next((cells for cells in csv.reader(file, delimiter=delimiter) if any(map(str.strip, cells))), None)
        if first is None:
            raise ValueError(f"{path} holds no rows")
        width, head = len(first), [cell.strip() for cell in first]
        label = None if width == columns else label
        by_name = isinstance(label, str)
        if by_name and label not in head:
            raise ValueError(f"{path} has no column named {label!r}, its first line holds {', '.join(head[:12])}")
        place = None if label is None else head.index(label) if by_name else _column(path, label, width)
        if width == 1 and label is not None:
            raise ValueError(f"{path}, line 1 has a single cell, {head[0][:40]!r}: is {delimiter!r} what stands between cells?")
        cells = [cell for i, cell in enumerate(head) if i != place]
        skip = header if header != "auto" else by_name or any(number_fault(cell, np.inf) == "is no number" for cell in cells)
        names: dict[str, int] = {}
        kept = {} if place is None else {place: lambda cell: names.setdefault(cell.strip(), len(names))}
        with open_any(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file without rows is told of below
            for _ in range(_lines_before(path, delimiter) + 1 if skip else 0):
                next(file)
            table = np.loadtxt(file, delimiter=delimiter, comments=None, quotechar='"', ndmin=2, converters=kept or None)
        most = float(np.finfo(floats()).max)
        if table.size and table.shape[1] != width:
            raise ValueError("cells")
        if not (np.abs(table) <= most).all():
            raise ValueError("numbers")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except (ValueError, csv.Error) as error:
        if str(error).startswith(path):
            raise
        _find_bad_cell(path, width, place, bool(skip), delimiter)
        raise ValueError(f"{path} cannot be read as CSV: {error}") from error
    if not table.size:
        raise ValueError(f"{path} holds no rows")
    if place is None:
        return Rows(table)
    if "" in names:
        _find_bad_cell(path, width, place, bool(skip), delimiter)
    return Rows(np.delete(table, place, axis=1), np.asarray(list(names))[table[:, place].astype(int)])


def _column(path: str, label: int, width: int) -> int:
    if not -width <= label < width:
        raise ValueError(f"{path} has {width} columns, the label cannot stand in column {label}")
    return label % width


def _lines_before(path: str, delimiter: str) -> int:
    """Lines before the first that is not blank."""
    with open_any(path) as file:
        return next(number for number, line in enumerate(file) if line.strip())


def _find_bad_cell(path: str, width: int, place: int | None, skip: bool, delimiter: str) -> None:
    """Raise ValueError for the first line that does not fit, as NumPy counts rows, not lines."""
    most = float(np.finfo(floats()).max)
    with open_any(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        for cells in reader:
            if not any(map(str.strip, cells)):
                continue
            if skip:
                skip = False
                continue
            if len(cells) != width:
                raise ValueError(f"{path}, line {reader.line_num} has {len(cells)} cells, expected {width} as in the first")
            for i, cell in enumerate(cells):
                fault = (None if cell.strip() else "is empty") if i == place else number_fault(cell, most)
                if fault:
                    raise ValueError(f"{path}, line {reader.line_num}: the cell {cell[:40]!r} in column {i + 1} {fault}")
