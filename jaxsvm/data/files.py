"""Data sets from files: CSV, Parquet, svmlight and npz, by the readers of other libraries."""

from __future__ import annotations

import functools
import os
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..models.frames import is_frame
from ..types import Batch
from .from_arrays import dataset

ARRAYS = (("x", "y"), ("X", "y"), ("X_train", "y_train"))  # names of rows and targets in a npz file
MISSING = ["", "?", "NA", "NaN", "nan"]  # cells of a CSV file
KINDS = {".csv": "csv", ".parquet": "parquet", ".npz": "npz"}  # any other ending: svmlight


class Rows(NamedTuple):
    """What a file holds."""

    x: Any  # (n, d) a data frame, a CSR matrix or an array
    y: Any = None  # (n,)
    query: Any = None  # (n,)
    weight: Any = None  # (n,)
    first: int = 0  # number of the first column in an svmlight file


def load(path: str | os.PathLike, target: str | None = None, *, task: str | None = None) -> Batch:
    r"""The data set of a file.

    The name's ending says how it is read: .csv and .parquet by pandas, .npz by NumPy, and any
    other by scikit-learn as svmlight. A column `qid`, the `qid:` of svmlight and the array `query`
    of a npz file are queries: the data set is then one for ranking.

    Args:
        path: the file. A npz file holds x and y, X and y, or X_train and y_train; and may hold
            weight and query.
        target: the name of the column of targets in a table; other files have their own.
        task: as of `jaxsvm.dataset`, such as "regression" for real targets.

    Raises:
        ValueError: no such column, columns of words, missing cells, a damaged file; as `dataset`.
        FileNotFoundError: there is no such file.
        ImportError: pandas or scikit-learn is missing.

    Example:
        >>> import os, tempfile, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "rows.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("a,b,pet\n1,2,cat\n3,5,dog\n")
        >>> jaxsvm.data.load(path, "pet")
        Batch of 2 rows of 2 columns, float32; classes cat as -1 (1), dog as 1 (1)
    """
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"there is no file {os.fspath(path)}: data sets by name are fetched by "
            "sklearn.datasets.fetch_openml, and breast_cancer is jaxsvm.data.breast_cancer()"
        )
    x, y, query, weight, _ = read(path, target)
    if y is None:
        names = f"one of {_names(x.columns)}" if is_frame(x) else "the file has no array y"
        raise ValueError(f"name the column of targets, load(path, target=...): {names}")
    try:
        return dataset(x, y, weight, query=query, task=task)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def read(path: str | os.PathLike, target: str | None = None, like: Mapping | None = None) -> Rows:
    """The rows of a file, as other libraries read them.

    Args:
        path: the file.
        target: the name of the column of targets in a table.
        like: of the training rows: `words`, columns read as text; `width` and `first`, the number
            of columns of svmlight rows and the number of the first. The target may then be missing.

    Raises:
        ValueError: no such column, or a damaged file.
        ImportError: a library is missing.
    """
    path, like = os.fspath(path), like or {}
    kind = KINDS.get(os.path.splitext(path)[1].lower(), "svmlight")
    if target is not None and not like and kind in ("npz", "svmlight"):
        raise ValueError(f"{path} is read as {kind}, which has its own targets: name no target")
    try:
        if kind == "npz":
            return _npz(path)
        if kind == "svmlight":
            return _svmlight(path, **{key: like[key] for key in ("width", "first") if key in like})
        return _table(path, kind, target, like.get("words"))
    except ImportError as error:
        name = error.name or "pyarrow"
        raise ImportError(
            f"reading {path} needs {name}: pip install 'jaxsvm[files]'", name=name
        ) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}, read as {kind}: {' '.join(str(error).split())}") from error


def _table(path: str, kind: str, target: str | None, words: list | None) -> Rows:
    import pandas

    if kind == "parquet":
        x = pandas.read_parquet(path)
        for name in x.columns.intersection(words or []):
            x[name] = x[name].astype(str).where(x[name].notna(), np.nan)
    else:
        read_csv = functools.partial(pandas.read_csv, path, skipinitialspace=True)
        names = read_csv(header=None, nrows=1, dtype=str).iloc[0]
        if names.dropna().duplicated().any():
            raise ValueError(f"two columns have the name {names[names.duplicated()].iloc[0]!r}")
        kinds: Any = dict.fromkeys(words or (), str)
        x = read_csv(na_values=MISSING, keep_default_na=False, low_memory=False, dtype=kinds)
    x.columns = x.columns.astype(str)
    if target is not None and target not in x and words is None:
        raise ValueError(f"there is no column {target!r}, expected one of {_names(x.columns)}")
    y = x.pop(target) if target in x else None
    return Rows(x, y, x.pop("qid").to_numpy() if "qid" in x else None)


def _svmlight(path: str, width: int | None = None, first: int | None = None) -> Rows:
    from sklearn.datasets import load_svmlight_file

    count = None if width is None else width + (first or 0)
    x, y, query = load_svmlight_file(path, n_features=count, query_id=True, zero_based=True)
    empty = x.shape[1] > 1 and x[:, 0].nnz == 0  # then the first column has the number 1
    if first == 1 and not empty:
        raise ValueError("the file has a column 0, and those of the training rows begin at 1")
    first = int(empty) if first is None else first
    return Rows(x[:, first:], y, query if len(query) else None, None, first)


def _npz(path: str) -> Rows:
    arrays = np.load(path, allow_pickle=False)
    names = [] if isinstance(arrays, np.ndarray) else arrays.files
    for x, y in ARRAYS:
        if x in names:
            parts: Any = [arrays[k] if k in names else None for k in (x, y, "query", "weight")]
            shapes = [np.shape(a) for a in parts[1:] if a is not None]
            if parts[0].ndim != 2 or any(shape != parts[0].shape[:1] for shape in shapes):
                raise ValueError(
                    f"expected {x} (n, d) and n targets, got {parts[0].shape}, {shapes}"
                )
            return Rows(*parts)
    raise ValueError(f"expected the arrays x and y, got {_names(names) or 'no npz file'}")


def _names(names: Any) -> str:
    """The first of many names."""
    shown = ", ".join(map(repr, list(names)[:20]))
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
