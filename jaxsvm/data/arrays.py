"""NumPy files, `.npz` and `.npy`, as rows; nothing is unpickled."""

from __future__ import annotations

import io
import os
import re
import zipfile
from typing import Any

import numpy as np

from .loaded import Loaded, Rows, assemble, named
from .mapped import whole_arrays
from .opening import checked


def load_npz(*paths: Any, task: str | None = None, positive: Any = None, classes: Any = None) -> Loaded:
    """Read data sets from `.npz` files, or from `.npy` files given as tuples. Nothing is unpickled.

    A `.npz` file holds the arrays x and y (or X and y), and weight where there are weights; or several parts, as
    x_train, y_train, x_test, y_test; a sparse matrix is x_data, x_indices, x_indptr, x_shape. An array class_names
    gives names to class numbers.

    Args:
        *paths: one or more; ("x.npy", "y.npy") or ("x.npy", "y.npy", "weight.npy") is one of `.npy` files.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.

    Returns:
        `Loaded`: a tuple of data sets, the parts of the first file before those of the next, with `classes`.

    Raises:
        ValueError: a damaged file, arrays that are missing or do not fit, labels that do not fit the task.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2), y=["ham", "spam"])
        >>> load_npz(path).classes
        ('ham', 'spam')
    """
    parts = [part for path in paths for part in read_npz(path)]
    return named(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))


def read_npz(path: Any) -> list[Rows]:
    """The parts of a `.npz` file, training rows first; or of a tuple of `.npy` files."""
    if isinstance(path, tuple | list):
        if not 1 <= len(path) <= 3:
            raise ValueError(f"rows, labels and weights are three .npy files at most, got {len(path)}")
        arrays = dict(zip(("x", "y", "weight"), (_read_npy(each) for each in path), strict=False))
        return [_part(arrays, "x", "")]
    (path,) = checked((path,))
    with open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return [Rows(_read_npy(path))]
    with whole_arrays(path), zipfile.ZipFile(path) as file:
        members = {
            name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False)
            for name in file.namelist()
        }
    found = [re.fullmatch(r"([xX])(_\w+)?", name.removesuffix("_data")) for name in members]
    heads = list(dict.fromkeys((match[1], match[2] or "") for match in found if match))
    heads = [(x, part) for x, part in heads if not part.endswith(("_indices", "_indptr", "_shape"))]
    heads.sort(key=lambda head: ("", "_train", "_test", head[1]).index(head[1]))
    if not heads:
        raise ValueError(f"{path} holds no array x, only {', '.join(members) or 'nothing'}")
    try:
        return [_part(members, x, part) for x, part in heads]
    except (ValueError, TypeError, IndexError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_npy(path: str | os.PathLike) -> np.ndarray:
    (path,) = checked((path,))
    with whole_arrays(path), open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _part(arrays: dict, x: str, part: str) -> Rows:
    """One data set among the arrays of a file: x_part, y_part, weight_part."""
    rows, names = arrays.get(x + part), arrays.get("class_names")
    if rows is None:
        import scipy.sparse

        missing = [end for end in ("indices", "indptr", "shape") if f"{x}{part}_{end}" not in arrays]
        if missing:
            raise ValueError(f"beside {x}{part}_data there is no {x}{part}_{missing[0]}")
        data, indices, indptr, shape = (arrays[f"{x}{part}_{end}"] for end in ("data", "indices", "indptr", "shape"))
        rows = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(int(k) for k in shape))
        rows.check_format(full_check=True)
    y = arrays.get("y" + part)
    if rows.ndim != 2:
        raise ValueError(f"{x}{part} must be a matrix with a row for each example, got shape {rows.shape}")
    if y is not None and y.shape != rows.shape[:1]:
        raise ValueError(f"y{part} must hold one label for each of the {rows.shape[0]} rows, got shape {y.shape}")
    weight = arrays.get("weight" + part)
    if weight is not None and weight.shape != rows.shape[:1]:
        raise ValueError(f"weight{part} must hold one number for each of the {rows.shape[0]} rows, got shape {weight.shape}")
    if weight is not None and weight.dtype.kind not in "biuf":
        raise ValueError(f"weight{part} must hold numbers, got dtype {weight.dtype}")
    if y is not None and names is not None and y.dtype.kind in "iu" and y.size and 0 <= y.min() and y.max() < len(names):
        y = names[y]
    return Rows(rows, y, weight)
