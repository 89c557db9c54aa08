"""Rows from NumPy files, `.npz` and `.npy`; nothing is unpickled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..files import ArrayHeader, open_npz, read_array
from .assemble import Loaded, Rows, assemble, with_file_names
from .mapped_files import array_file, is_npy, whole_arrays

BESIDE = ("y", "weight", "query")  # the arrays beside the rows
SPARSE = ("data", "indices", "indptr", "shape")  # the arrays of a sparse matrix


def load_npz(
    *paths: Any, task: str | None = None, positive: Any = None, classes: Any = None
) -> Loaded:
    """Read data sets from `.npz` files, or from `.npy` files given as tuples. Nothing is unpickled.

    A `.npz` file holds the arrays x and y (or X and y), and optionally weight and, for ranking,
    query; or several parts, as x_train, y_train, x_test, y_test. A sparse matrix is stored as
    x_data, x_indices, x_indptr, x_shape. An array class_names holds the names of class numbers.

    Args:
        *paths: one or more; ("x.npy", "y.npy") or ("x.npy", "y.npy", "weight.npy") is one of `.npy`
            files.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.

    Returns:
        `Loaded`: a tuple of data sets, the parts of the first file before those of the next, with
        `classes`.

    Raises:
        ValueError: a damaged file, arrays that are missing or do not match, labels that do not fit
            the task.
        FileNotFoundError, PermissionError, OSError: the file cannot be opened or read.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2), y=["ham", "spam"])
        >>> load_npz(path).classes
        ('ham', 'spam')
    """
    parts = [part for path in paths for part in read_npz(path)]
    return with_file_names(
        paths, lambda: assemble(parts, task=task, positive=positive, classes=classes)
    )


def read_npz(path: Any) -> list[Rows]:
    """The parts of a `.npz` file, training rows first; or of a tuple of `.npy` files."""
    if isinstance(path, tuple | list):
        if not 1 <= len(path) <= 3:
            raise ValueError(
                f"rows, labels and weights are three .npy files at most, got {len(path)}"
            )
        arrays = dict(zip(("x", "y", "weight"), (_read_npy(each) for each in path), strict=False))
        return [_part(arrays, "x", "")]
    path = array_file(path)
    with whole_arrays(path), open(path, "rb") as file:
        if is_npy(file):
            return [Rows(read_array(file, os.path.getsize(path)))]
    with whole_arrays(path), open_npz(path) as npz:
        heads = _heads(npz.members)
        headers = {name: npz.header(name) for name in npz.members if name in _needed(heads)}
    if not heads:
        raise ValueError(f"{path} holds no array x, only {', '.join(npz.members) or 'nothing'}")
    with _named_file(path):
        for x, part in heads:
            _check_part(headers, x, part)
    with whole_arrays(path), open_npz(path) as npz:
        arrays = {name: npz.read(name) for name in headers}
    with _named_file(path):
        return [_part(arrays, x, part) for x, part in heads]


def _heads(names: Iterable[str]) -> list[tuple[str, str]]:
    """The parts of a file: the name of the array of rows and its suffix.

    The name is "x" or "X"; a suffix is, for example, "_train".
    """
    matches = [re.fullmatch(r"([xX])(_\w+)?", name.removesuffix("_data")) for name in names]
    heads = list(dict.fromkeys((match[1], match[2] or "") for match in matches if match))
    heads = [(x, part) for x, part in heads if not part.endswith(("_indices", "_indptr", "_shape"))]
    return sorted(heads, key=lambda head: ("", "_train", "_test", head[1]).index(head[1]))


def _needed(heads: list[tuple[str, str]]) -> set[str]:
    """The names of the arrays of the parts; no others are read."""
    rows = {f"{x}{part}{end}" for x, part in heads for end in ("", *(f"_{end}" for end in SPARSE))}
    return {"class_names"} | rows | {f"{name}{part}" for _, part in heads for name in BESIDE}


@contextmanager
def _named_file(path: str) -> Iterator[None]:
    """Errors in the arrays name the file."""
    try:
        yield
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_npy(path: str | bytes | os.PathLike) -> np.ndarray:
    path = array_file(path)
    with whole_arrays(path), open(path, "rb") as file:
        return read_array(file, os.path.getsize(path))


def _check_part(arrays: Mapping[str, ArrayHeader | np.ndarray], x: str, part: str) -> None:
    """Raise for arrays whose shapes or dtypes do not match; headers are enough."""
    rows = arrays.get(x + part)
    if rows is None:
        missing = [end for end in SPARSE if f"{x}{part}_{end}" not in arrays]
        if missing:
            raise ValueError(f"beside {x}{part}_data there is no {x}{part}_{missing[0]}")
        of_part = [arrays[f"{x}{part}_{end}"] for end in SPARSE]
        data, indices, indptr, shape = of_part
        lines_up = data.ndim == 1 and data.shape == indices.shape and indptr.ndim == 1
        if not lines_up or shape.shape != (2,) or shape.dtype.kind not in "iu":
            shapes = ", ".join(
                f"{end} {a.dtype}{a.shape}" for end, a in zip(SPARSE, of_part, strict=True)
            )
            raise ValueError(f"{x}{part} is no sparse matrix: its arrays are {shapes}")
        n = max(indptr.shape[0] - 1, 0)
    else:
        if rows.ndim != 2:
            raise ValueError(
                f"{x}{part} must be a matrix with a row for each example, got shape {rows.shape}"
            )
        n = rows.shape[0]
    y, weight, query = (arrays.get(name + part) for name in BESIDE)
    for name, what, array in zip(
        BESIDE, ("label", "number", "query"), (y, weight, query), strict=True
    ):
        if array is not None and array.shape != (n,):
            raise ValueError(
                f"{name}{part} must hold one {what} for each of the {n} rows, got shape "
                f"{array.shape}"
            )
    if weight is not None and weight.dtype.kind not in "biuf":
        raise ValueError(f"weight{part} must hold numbers, got dtype {weight.dtype}")


def _part(arrays: dict[str, np.ndarray], x: str, part: str) -> Rows:
    """One part of the arrays of a file: x_part, y_part, weight_part."""
    _check_part(arrays, x, part)
    rows, names = arrays.get(x + part), arrays.get("class_names")
    if rows is None:
        import scipy.sparse

        data, indices, indptr, shape = (arrays[f"{x}{part}_{end}"] for end in SPARSE)
        rows = scipy.sparse.csr_matrix((data, indices, indptr), shape=shape.tolist())
        rows.check_format(full_check=True)
    y, weight, query = (arrays.get(name + part) for name in BESIDE)
    if (
        y is not None
        and names is not None
        and y.dtype.kind in "iu"
        and y.size
        and 0 <= y.min()
        and y.max() < len(names)
    ):
        y = names[y]
    return Rows(rows, y, weight, query)
