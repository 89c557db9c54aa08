"""Rows written to files: atomically, with all digits."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..files import atomic_path
from .assemble import normalize_names
from .parsing import open_any


def save_npz(
    path: str | bytes | os.PathLike, x: Any, y: Any = None, weight: Any = None, query: Any = None
) -> None:
    """Write rows to an uncompressed `.npz` file, which `load_npz` reads and `memory_map` maps.

    Args:
        path: the file, in a folder that exists.
        x: (n, d) array, or a sparse matrix of SciPy.
        y: (n,) class names or targets; None: none.
        weight: (n,); None: none.
        query: (n,) queries of the rows, for ranking; None: none.

    Raises:
        ValueError: arrays of Python objects.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> save_npz(path, np.eye(2), [0, 1])
        >>> sorted(np.load(path))
        ['x', 'y']
    """
    arrays = (
        {"x": x}
        if not hasattr(x, "tocsr")
        else {f"x_{a}": getattr(x.tocsr(), a) for a in ("data", "indices", "indptr")}
    )
    arrays |= {"x_shape": np.asarray(x.shape, np.int64)} if hasattr(x, "tocsr") else {}
    vectors = ("y", y), ("weight", weight), ("query", query)
    arrays |= {name: a for name, a in vectors if a is not None}
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    for name, a in arrays.items():
        if a.dtype.hasobject:
            raise ValueError(
                f"{name} holds Python objects, which are never written: convert it first"
            )
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def save_svmlight(path: str | bytes | os.PathLike, x: Any, y: Any, query: Any = None) -> None:
    """Write rows as svmlight, indices from 1, with all digits.

    The file is compressed if the name ends in .gz or .bz2.

    Args:
        path: the file, in a folder that exists.
        x: (n, d) array, or a sparse matrix of SciPy.
        y: (n,) numbers.
        query: (n,) whole numbers of at least 0, the queries of the rows; None: none.

    Raises:
        ValueError: labels that are not numbers.
    """
    y = normalize_names(y)
    if y.dtype.kind not in "biuf":
        raise ValueError(
            f"labels in svmlight files are numbers, got {str(y[0])!r}: number the "
            "classes, or write .npz or .csv"
        )
    queries = [] if query is None else np.asarray(query).astype(np.int64).tolist()
    show = _show(x.dtype)
    rows = x.tocsr() if hasattr(x, "tocsr") else None
    with atomic_path(path) as temporary, open_any(temporary, "w") as file:
        for i, name in enumerate(y.tolist()):
            if rows is None:
                places = np.flatnonzero(x[i])
                values = x[i][places]
            else:
                part = slice(rows.indptr[i], rows.indptr[i + 1])
                order = np.argsort(rows.indices[part], kind="stable")
                places, values = rows.indices[part][order], rows.data[part][order]
            cells = [
                f"{c + 1}:{show(v)}" for c, v in zip(places.tolist(), values.tolist(), strict=True)
            ]
            number = repr(name) if isinstance(name, float) else str(int(name))
            qid = [f"qid:{queries[i]}"] if queries else []
            file.write(" ".join([number, *qid, *cells]) + "\n")


def save_csv(
    path: str | bytes | os.PathLike, x: Any, y: Any = None, *, delimiter: str = ","
) -> None:
    """Write rows as CSV with a header, x1, x2, ..., with all digits.

    The labels are the last column, y.

    Args:
        path: the file, in a folder that exists; compressed if the name ends in .gz, .bz2 or .xz.
        x: (n, d) array, or a sparse matrix of SciPy, whose zeros are written out.
        y: (n,) class names or targets; None: none.
        delimiter: one character between the cells.
    """
    show, names = _show(x.dtype), None if y is None else normalize_names(y).tolist()
    # a carriage return is a line break to readers, but not to `csv.writer`
    quote_all = any("\r" in str(name) for name in names or ())
    with atomic_path(path) as temporary, open_any(temporary, "w") as file:
        writer = csv.writer(
            file, delimiter=delimiter, lineterminator="\n",
            quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
        )  # fmt: skip
        writer.writerow([f"x{c + 1}" for c in range(x.shape[1])] + ([] if y is None else ["y"]))
        for start in range(0, x.shape[0], 1024):
            rows = x[start : start + 1024]
            for i, row in enumerate(
                rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows), start
            ):
                writer.writerow(
                    [show(v) for v in row.tolist()] + ([] if names is None else [names[i]])
                )


def _show(dtype: Any) -> Callable[[Any], str]:
    """The conversion of numbers to text, from which the same number is read."""
    dtype = np.dtype(dtype)
    if dtype.kind in "biu":
        return lambda v: str(int(v))
    return (lambda v: f"{v:.9g}") if dtype.itemsize <= 4 else (lambda v: f"{v:.17g}")
