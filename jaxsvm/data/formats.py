"""Files of any kind that is known, told by their names, else by their first lines."""

from __future__ import annotations

import os
import re
from typing import Any

from ..recipe import check_choice
from .assemble import Loaded, Rows, assemble, with_file_names
from .csv import read_csv
from .npz import read_npz
from .parsing import as_path, open_any, reading
from .svmlight import read_svmlight


def kind_of(path: Any) -> str:
    """The format of a file, by its name, else by its first lines: "svmlight", "npz" or "csv".

    Example:
        >>> kind_of("rows.svm.gz"), kind_of("rows.npz"), kind_of("rows.csv")
        ('svmlight', 'npz', 'csv')
    """
    if isinstance(path, tuple | list):
        return "npz"
    end = os.path.splitext(re.sub(r"\.(gz|bz2|xz)$", "", as_path("path", path)))[1].lower()
    known = {".npz": "npz", ".npy": "npz", ".csv": "csv", ".tsv": "csv", ".svm": "svmlight", ".svmlight": "svmlight"}
    known |= {".libsvm": "svmlight"}
    path = as_path("path", path)
    if end in known or not os.path.isfile(path):
        return known.get(end, "svmlight")
    with reading(path), open_any(path, "rb") as file:
        line = next((line for line in file if line.strip() and not line.startswith(b"#")), b"")
    return "csv" if b"," in line.split(b":")[0] else "svmlight"


def read_files(
    *paths: Any,
    kind: str | None = None,
    columns: int | None = None,
    dtype: Any = None,
    zero_based: Any = "auto",
    **how: Any,
) -> list[Rows]:
    """The rows of files of any kind, as they stand there; `how` is for CSV, `dtype` and `zero_based` for svmlight."""
    paths = [tuple(path.split(",")) if isinstance(path, str) and re.search(r"\.npy,", path) else path for path in paths]
    kinds = [kind_of(path) if kind is None else kind for path in paths]
    for name in kinds:
        check_choice("kind", name, ("svmlight", "npz", "csv"))
    if set(kinds) == {"svmlight"}:
        return read_svmlight(*paths, columns=columns, dtype=dtype, zero_based=zero_based)
    made: list[Rows] = []
    for path, name in zip(paths, kinds, strict=True):
        if name == "svmlight":
            made += read_svmlight(
                path, columns=columns or (made[0].x.shape[1] if made else None), dtype=dtype, zero_based=zero_based
            )
        elif name == "csv":
            between = {"delimiter": "\t"} if re.search(r"\.tsv(\.|$)", as_path("path", path)) else {}
            made.append(read_csv(path, columns=columns, **(between | how)))
        else:
            made += read_npz(path)
    return made


def load_file(
    *paths: Any, kind: str | None = None, task: str | None = None, positive: Any = None, classes: Any = None, **how: Any
) -> Loaded:
    """Read data sets from files of any kind that is known, told by their names, else by their first lines.

    Args:
        *paths: svmlight, `.npz`, `.npy` ("x.npy,y.npy") or CSV files.
        kind: "svmlight", "npz" or "csv"; None: `.npz` and `.npy`; `.csv` and `.tsv`; any other is CSV where a comma
            stands in its first line, else svmlight.
        task: as for `load_svmlight`.
        positive: as for `load_svmlight`.
        classes: as for `load_svmlight`.
        **how: label, delimiter, header of CSV files; columns, zero_based of svmlight files.

    Returns:
        `Loaded`: a tuple of data sets with `classes`.

    Raises:
        ValueError, FileNotFoundError, ImportError: as the readers of each kind.
    """
    for name in set(how) - {"columns", "zero_based", "label", "delimiter", "header"}:
        raise TypeError(f"load_file has no option {name!r}: it takes label, delimiter, header, columns, zero_based")
    parts = read_files(*paths, kind=kind, **how)
    for part in parts:
        if part.x.shape[1] != parts[0].x.shape[1]:
            raise ValueError(f"the files differ in columns: {parts[0].x.shape[1]} and {part.x.shape[1]}")
    return with_file_names(paths, lambda: assemble(parts, task=task, positive=positive, classes=classes))
