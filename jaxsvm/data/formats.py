"""Files of all known formats, which are recognised by their names or first lines."""

from __future__ import annotations

import os
import re
from typing import Any

from ..recipe import check_choice
from .assemble import Loaded, Rows, assemble, with_file_names
from .csv import read_csv
from .npz import read_npz
from .parsing import EXPANSION, as_path, check_paths, open_any, reading
from .svmlight import read_svmlight


def kind_of(path: Any, expansion: int = EXPANSION) -> str:
    """The format of a file by its name, else by its first lines: "svmlight", "npz" or "csv".

    Example:
        >>> kind_of("rows.svm.gz"), kind_of("rows.npz"), kind_of("rows.csv")
        ('svmlight', 'npz', 'csv')
    """
    if isinstance(path, tuple | list):
        return "npz"
    end = os.path.splitext(re.sub(r"\.(gz|bz2|xz)$", "", as_path("path", path)))[1].lower()
    known = {
        ".npz": "npz",
        ".npy": "npz",
        ".csv": "csv",
        ".tsv": "csv",
        ".svm": "svmlight",
        ".svmlight": "svmlight",
    }
    known |= {".libsvm": "svmlight"}
    path = as_path("path", path)
    if end in known or not os.path.isfile(path):
        return known.get(end, "svmlight")
    (path,) = check_paths((path,), expansion)
    with reading(path), open_any(path, "rb") as file:
        line = next((line for line in file if line.strip() and not line.startswith(b"#")), b"")
    return "csv" if b"," in line.split(b":")[0] else "svmlight"


def read_files(
    *paths: Any,
    kind: str | None = None,
    columns: int | None = None,
    dtype: Any = None,
    zero_based: Any = "auto",
    missing: bool = False,
    expansion: int = EXPANSION,
    **options: Any,
) -> list[Rows]:
    """The contents of files of any format.

    `missing` and `options` are for CSV, `dtype` and `zero_based` for svmlight, `expansion` for
    both.
    """
    files: list[Any] = [
        tuple(path.split(",")) if isinstance(path, str) and re.search(r"\.npy,", path) else path
        for path in paths
    ]
    kinds = [kind_of(path, expansion) if kind is None else kind for path in files]
    for name in kinds:
        check_choice("kind", name, ("svmlight", "npz", "csv"))
    parts: list[list[Rows]] = [[] for _ in files]
    for i, (path, name) in enumerate(zip(files, kinds, strict=True)):
        if name == "csv":
            tab = {"delimiter": "\t"} if re.search(r"\.tsv(\.|$)", as_path("path", path)) else {}
            options_of = {"columns": columns, "missing": missing, "expansion": expansion}
            parts[i] = [read_csv(path, **(options_of | tab | options))]
        elif name == "npz":
            parts[i] = read_npz(path)
    sparse = [i for i, name in enumerate(kinds) if name == "svmlight"]
    if sparse:  # together, as they share the index of the first column
        others = [part.x.shape[1] for read in parts for part in read]
        rows = read_svmlight(
            *(files[i] for i in sparse),
            columns=columns or (others[0] if others else None),
            dtype=dtype,
            zero_based=zero_based,
            expansion=expansion,
        )
        for i, part in zip(sparse, rows, strict=True):
            parts[i] = [part]
    return [part for read in parts for part in read]


_OPTIONS = ("label", "delimiter", "header", "columns", "zero_based", "expansion")


def load_file(
    *paths: Any,
    kind: str | None = None,
    task: str | None = None,
    positive: Any = None,
    classes: Any = None,
    **options: Any,
) -> Loaded:
    """Read data sets from files, whose formats are recognised by their names or first lines.

    Args:
        *paths: svmlight, `.npz`, `.npy` ("x.npy,y.npy") or CSV files.
        kind: "svmlight", "npz" or "csv"; None: by the name, `.npz` and `.npy`, `.csv` and `.tsv`;
            other files are CSV if their first line holds a comma, else svmlight.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.
        **options: label, delimiter, header of CSV files; columns, zero_based of svmlight files;
            expansion of both.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError, FileNotFoundError, ImportError: as of the reader of each format.
    """
    for name in set(options) - {*_OPTIONS}:
        raise TypeError(f"load_file has no option {name!r}: it takes {', '.join(_OPTIONS)}")
    parts = read_files(*paths, kind=kind, **options)
    for part in parts:
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(
                f"the files differ in columns: {parts[0].x.shape[1]} and {part.x.shape[1]}"
            )
    return with_file_names(
        paths, lambda: assemble(parts, task=task, positive=positive, classes=classes)
    )
