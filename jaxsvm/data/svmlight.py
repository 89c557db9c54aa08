"""svmlight (LIBSVM) files, read by scikit-learn; every error names the file and the line."""

from __future__ import annotations

import contextlib
import lzma
import os
import re
import warnings
import zlib
from typing import Any

import numpy as np

from ..checks import caller_stacklevel, integer
from ..recipe import check_choice
from .assemble import Loaded, Rows, assemble, with_file_names
from .parsing import EXPANSION, check_paths, number_fault, open_any, reading, run_dtype


def load_svmlight(
    *paths: str | os.PathLike,
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
    columns: int | None = None,
    zero_based: bool | str = "auto",
    expansion: int = EXPANSION,
) -> Loaded:
    r"""Read svmlight (LIBSVM) files, `.gz` and `.bz2` too, as `SparseRows`.

    There is one data set for each file. All files share the number of columns of the widest and the
    classes of the first. Requires scikit-learn.

    Args:
        *paths: one or more.
        task: "binary", "multiclass", "regression" or "ranking", which reads the queries, qid:1,
            of the rows; None: the first for two classes, the second for more.
        positive: the class, or several, that are +1 against the rest; None: the last of two.
        classes: names of an earlier call, such as `train.classes`; None: those of the first file.
        columns: number of columns; None: the largest index in the files.
        zero_based: whether the first column has index 0; "auto": if an index 0 occurs in any of the
            files. Give that of the training rows, `train.zero_based`, for files of their own.
        expansion: bytes that a compressed file may expand to, for each of its own and of 32 KiB;
            a line may have `expansion` times 32 KiB. So a small file cannot fill the memory.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError: a line that is not svmlight, or labels that do not fit the task.
        FileNotFoundError: no such file.
        ImportError: scikit-learn is not installed.

    Warns:
        UserWarning: with `columns` and "auto", indices that fit columns counted from 0 as well as
            from 1; a file that seems to count from 1 beside one that counts from 0.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.svm")
        >>> with open(path, "w") as file:
        ...     _ = file.write("3 1:0.5 4:1\n7 2:2\n")
        >>> (train,) = loaded = load_svmlight(path)
        >>> train.x.shape, train.y.tolist(), loaded.classes
        ((2, 4), [-1.0, 1.0], (3, 7))
    """
    rows = read_svmlight(*paths, columns=columns, zero_based=zero_based, expansion=expansion)
    return with_file_names(
        paths, lambda: assemble(rows, task=task, positive=positive, classes=classes)
    )


def read_svmlight(
    *paths: str | os.PathLike,
    columns: int | None = None,
    zero_based: bool | str = "auto",
    dtype: Any = None,
    expansion: int = EXPANSION,
) -> list[Rows]:
    """The rows of svmlight files as CSR matrices, with raw labels."""
    try:
        from sklearn.datasets import load_svmlight_files
    except ImportError as error:
        raise ImportError(
            "svmlight files are read through scikit-learn: pip install 'jaxsvm[sklearn]'"
        ) from error
    names = check_paths(paths, expansion)
    columns = None if columns is None else integer("columns", columns, 1)
    check_choice("zero_based", zero_based, (True, False, "auto"))
    dtype = dtype or run_dtype()
    try:
        with np.errstate(over="ignore"), contextlib.ExitStack() as stack:
            files = [stack.enter_context(open_any(path, "rb")) for path in names]
            arrays = load_svmlight_files(files, dtype=dtype, zero_based=True, query_id=True)
    except (ValueError, OverflowError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        for path in names:
            _find_bad_line(path, dtype, columns, zero_based)
        raise ValueError(f"{', '.join(names)} cannot be read as svmlight: {error}") from error
    parts = [
        Rows(x, y, query=query if len(query) else None)
        for x, y, query in zip(arrays[::3], arrays[1::3], arrays[2::3], strict=True)
    ]
    for path, part, labels in zip(names, parts, arrays[1::3], strict=True):
        if not part.x.shape[0]:
            raise ValueError(f"{path} holds no rows")
        if not (np.isfinite(part.x.data).all() and np.isfinite(labels).all()) or _holds(path, _ODD):
            _find_bad_line(path, dtype, columns, zero_based)
    ends = [(x.indices.min(), x.indices.max()) if x.nnz else None for x in arrays[::3]]
    from_0 = _counts_from_0(names, ends, columns) if zero_based == "auto" else bool(zero_based)
    first, last = int(not from_0), max((end[1] for end in ends if end), default=0)
    width = max(last + 1 - first, 1) if columns is None else columns
    for path, end in zip(names, ends, strict=True):
        if end and not first <= end[0] <= end[1] < first + width:
            _find_bad_line(path, dtype, columns, from_0)
    return [
        part._replace(x=_with_columns(part.x, first, int(width)), zero_based=from_0)
        for part in parts
    ]


def _counts_from_0(names: list[str], ends: list[tuple | None], columns: int | None) -> bool:
    """Whether an index 0 occurs; a warning says where the indices do not decide it.

    Args:
        names: the files.
        ends: the least and largest index of each file; None: the file has none.
        columns: number of columns, if it is known.
    """
    with_0 = {name: end[1] for name, end in zip(names, ends, strict=True) if end and not end[0]}
    others = {name: end for name, end in zip(names, ends, strict=True) if end and end[0]}
    if with_0:
        name = max(with_0, key=with_0.__getitem__)
        for other, (_, last) in others.items():
            if last == with_0[name] + 1:
                _warn(
                    f"{other} has no index 0 and ends an index after {name}, which has: both are "
                    "read as counted from 0; if they differ, convert one of them"
                )
    elif others and columns is not None and max(last for _, last in others.values()) < columns:
        low, last = min(low for low, _ in others.values()), max(k for _, k in others.values())
        _warn(
            f"{', '.join(others)}: the indices {low} to {last} fit {columns} columns counted from "
            "0 or from 1, and are read as from 1: give zero_based=True or zero_based=False"
        )
    return bool(with_0)


def _with_columns(x: Any, first: int, width: int) -> Any:
    """The matrix whose first column is column `first` of `x`."""
    if not first and x.shape[1] == width:
        return x
    return type(x)((x.data, x.indices - x.indices.dtype.type(first), x.indptr), (x.shape[0], width))


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=caller_stacklevel())


def _find_bad_line(path: str, dtype: Any, columns: int | None, zero_based: bool | str) -> None:
    """Raise ValueError for the first line that is not svmlight.

    scikit-learn does not report it.
    """
    most = float(np.finfo(dtype).max)
    with reading(path), open_any(path, "rb") as file:
        for number, line in enumerate(file, 1):
            fault = _fault(line.split(b"#")[0].split(), most, columns, zero_based)
            if fault:
                raise ValueError(f"{path}, line {number}: {fault}")


# Python parses underscores and non-ASCII digits in numbers; scikit-learn accepts any word that
# starts with qid.
_ODD = re.compile(rb"[_\x80-\xff]|qid(?!:\d{1,19}\s)")
_OVERLAP = 32  # bytes of a block that are searched again with the next one


def _holds(path: str, pattern: re.Pattern) -> bool:
    """Whether the uncompressed file holds a match of the pattern."""
    end = b""
    with open_any(path, "rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            if pattern.search(end + block):
                return True
            end = block[-_OVERLAP:]
    return False


def _fault(
    words: list[bytes], most: float, columns: int | None, zero_based: bool | str
) -> str | None:
    """The fault of a line of svmlight, or None."""
    if not words:
        return None
    show = lambda word: repr(word[:40].decode("utf-8", "replace"))
    fault = number_fault(words[0], most)
    if fault:
        return f"the label {show(words[0])} {fault}"
    before = -1
    for place, word in enumerate(words[1:]):
        index, colon, value = word.partition(b":")
        if not colon:
            return f"{show(word)} has no colon, expected index:value"
        if index == b"qid" and place == 0:
            if not value.isdigit():
                return f"the query {show(value)} is no whole number"
            continue
        # Python reads no integers of thousands of digits, be they zeros
        if not re.fullmatch(rb"[+-]?0{0,99}(0|[1-9]\d*)", index):
            return f"the index {show(index)} is no whole number, or begins with over 99 zeros"
        if len(index.lstrip(b"+-0")) > 10 or int(index) >= 2**31 - 1:
            return f"the index {show(index)} is above {2**31 - 2}; hash the columns to fewer"
        if int(index) < (1 if zero_based is False else 0):
            how = ", the first with zero_based=False" if zero_based is False else ""
            return f"the index {int(index)} is below {int(zero_based is False)}{how}"
        if columns is not None and int(index) >= columns + (zero_based is not True):
            how = ", counted from 0 (zero_based=True)" if zero_based is True else ""
            return f"the index {int(index)} is beyond the {columns} columns{how}"
        if int(index) <= before:
            return f"the index {int(index)} comes after {before}, indices must rise"
        fault = number_fault(value, most)
        if fault:
            return f"the value {show(value)} of index {int(index)} {fault}"
        before = int(index)
    return None
