"""Rows for the commands: reading, missing numbers, scaling, description."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from .. import models
from ..data import missing
from ..data.assemble import Rows
from ..data.formats import kind_of, read_files
from ..data.parsing import ReadError
from ..data.scaling import scale, standardize
from ..types import Batch, SparseRows
from . import parser
from .output import STANDARD, result_file, writing

INPUT = "the standard input"
HELP = {  # what the options of the readers are called here
    "delimiter": "--delimiter says what stands between cells",
    "label": "--label says which column holds the labels",
    "header": "--header says whether the first line names columns",
    "missing": "--missing drop leaves such rows out, --missing mean fills them in",
}


def rows(
    args: Any, *paths: str, columns: int | None = None, dtype: Any = None, means: Any = None
) -> list[Rows]:
    """The rows of files, read with the options; sets --zero-based where a file has decided it.

    Args:
        args: the options.
        *paths: of the files; `-` is the standard input.
        columns: of a model; a CSV file of so many columns has no labels.
        dtype: of svmlight.
        means: for missing numbers; None: those of the columns of the first file.
    """
    is_number = re.fullmatch("-?[0-9]{1,9}", args.label)
    reading: dict = {"label": int(args.label) if is_number else args.label}
    reading["header"] = {"auto": "auto", "yes": True, "no": False}[args.header]
    reading["zero_based"] = {"auto": "auto", "yes": True, "no": False}[args.zero_based]
    reading["missing"] = args.missing is not None
    reading["expansion"] = args.expansion
    if args.delimiter is not None:
        reading["delimiter"] = args.delimiter.replace("\\t", "\t")
    if paths.count(STANDARD) > 1:
        raise ValueError("the standard input (-) can be read once: name a file for the other rows")
    with contextlib.ExitStack() as stack:
        local = [stack.enter_context(local_file(path)) for path in paths]
        stack.enter_context(_with_help(args, paths, local))
        parts = read_files(
            *local, kind=_kind(args, paths, local), columns=columns, dtype=dtype, **reading
        )
    bases = {part.zero_based for part in parts} - {None}
    if bases:
        args.zero_based = "yes" if True in bases else "no"
    return _without_missing(args, parts, means)


def reading_notes(args: Any) -> dict[str, str]:
    """What the model file keeps of how its rows were read: `predict` reads others alike."""
    return {} if args.zero_based == "auto" else {"zero-based": args.zero_based}


@contextlib.contextmanager
def local_file(path: str) -> Iterator[str]:
    """The path; for `-` that of a temporary file with what the standard input holds."""
    if path != STANDARD:
        yield path
        return
    if sys.stdin is None:
        raise OSError("the standard input is closed")
    text = sys.stdin.buffer.read()
    start = text[:6]
    ending = {b"PK": ".npz", b"\x1f\x8b": ".gz", b"BZ": ".bz2", b"\xfd7": ".xz"}.get(start[:2], "")
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, f"input{ending}")
        with open(name, "wb") as file:
            file.write(text)
        yield name


def _kind(args: Any, paths: tuple, local: list[str]) -> str | None:
    """The format; options of CSV decide where the name and the first line do not."""
    options_of_csv = args.delimiter is not None or args.header != "auto"
    unknown = all(
        path == STANDARD or os.path.splitext(path)[1] not in (*_KNOWN, *_PACKED) for path in paths
    )
    if args.format is None and options_of_csv and unknown:
        return "npz" if all(kind_of(path) == "npz" for path in local) else "csv"
    return args.format


_KNOWN = (".npz", ".npy", ".csv", ".tsv", ".svm", ".svmlight", ".libsvm")
_PACKED = (".gz", ".bz2", ".xz")


@contextlib.contextmanager
def _with_help(args: Any, paths: tuple, local: list[str]) -> Iterator[None]:
    """Errors name the options that may help, and the standard input by its name."""
    try:
        yield
    except ValueError as error:
        text, advice = str(error), []
        for path, name in zip(paths, local, strict=True):
            text = text.replace(name, INPUT) if path == STANDARD else text
        if isinstance(error, ReadError):
            advice = [
                f"try --{option} {value!r}" if value else HELP[option]
                for option, value in error.options.items()
            ]
        elif args.format is None and any(
            kind_of(name) == "svmlight" and os.path.splitext(path)[1] not in (*_KNOWN, *_PACKED)
            for path, name in zip(paths, local, strict=True)
        ):
            advice = ["it was read as svmlight: --format csv reads cells"]
        raise ValueError(f"{text} ({'; '.join(advice)})" if advice else text) from error


def _without_missing(args: Any, parts: list[Rows], means: Any) -> list[Rows]:
    """The parts without missing numbers, by --missing; a warning says how many there were."""
    counts = [int(missing.incomplete(part).sum()) for part in parts]
    if not any(counts):
        return parts
    total = sum(part.x.shape[0] for part in parts)
    if args.missing is None:
        raise ValueError(
            f"{sum(counts)} of {total} rows have a missing number (NaN): {HELP['missing']}"
        )
    if args.missing == "drop":
        what = "are left out"
        parts = [missing.drop(part) for part in parts]
    else:
        what = "are filled in by the means of their columns"
        means = missing.column_means(parts[0].x) if means is None else means
        parts = [missing.fill(part, means) for part in parts]
    warnings.warn(f"{sum(counts)} of {total} rows have missing cells, which {what}", stacklevel=2)
    return parts


def load_model(path: str) -> tuple[Any, dict[str, str]]:
    """The model of a file and its notes; `-` is the standard input."""
    with local_file(path) as name:
        try:
            return models.load(name), models.load_notes(name)
        except ValueError as error:
            text = str(error)
            raise ValueError(text.replace(name, INPUT) if path == STANDARD else text) from error


def save_model(path: str, stream: Any, model: Any, notes: dict[str, str]) -> None:
    """Write a model and its notes; `-` is the stream."""
    if path != STANDARD:
        with writing(path):
            models.save(path, model, notes=notes)
        return
    with result_file(path, stream, ".npz") as temporary:
        models.save(temporary, model, notes=notes)


def compact(parts: list[Rows]) -> list[Rows]:
    """The parts, with sparse matrices made dense if their padded rows would need as much memory."""
    if not all(hasattr(part.x, "tocsr") for part in parts):
        return [
            part._replace(x=part.x.toarray()) if hasattr(part.x, "tocsr") else part
            for part in parts
        ]
    longest = max(int(np.diff(part.x.tocsr().indptr).max(initial=0)) for part in parts)
    if 2 * longest < parts[0].x.shape[1]:  # each entry has a value and a column
        return parts
    return [part._replace(x=part.x.toarray()) for part in parts]


def positive(args: Any) -> Any:
    """The classes of --positive."""
    return None if args.positive is None else [name.strip() for name in args.positive.split(",")]


def described(name: str, data: Batch, classes: tuple) -> str:
    """One line on a data set: size, kind and classes."""
    n, d = data.x.shape
    kind = (
        f"sparse, {data.x.value.shape[1]} numbers a row at most"
        if isinstance(data.x, SparseRows)
        else "dense"
    )
    y = np.asarray(data.y)
    if not classes:
        return f"{name}: {n} rows x {d} columns, {kind}; targets from {y.min():g} to {y.max():g}"
    places = (y > 0).astype(int) if len(classes) == 2 else y.astype(int)
    counts = np.bincount(places, minlength=len(classes))
    shown = ", ".join(f"{c} ({k})" for c, k in list(zip(classes, counts, strict=True))[:10]) + (
        ", ..." if len(classes) > 10 else ""
    )
    return f"{name}: {n} rows x {d} columns, {kind}; classes {shown}"


MAKE_SCALE = {"standardize": standardize, "unit": scale, "none": None}


@jax.jit
def call(model: Any, x: Any) -> Any:
    """A map of rows or a model at the rows `x`, as one program."""
    return model(x)


def scaler(args: Any, x: Any) -> tuple[Any, str]:
    """The map of columns or None, and its description."""
    name = args.scale
    if name == "auto":
        name = "unit" if isinstance(x, SparseRows) else "standardize"
    make = MAKE_SCALE[name]
    return (None if make is None else make(x)), f"{parser.SCALES[name]} (--scale {name})"


def ignore_range_warnings(scaled: bool = True) -> None:
    """Ignore warnings on the ranges of columns that will be scaled."""
    if scaled:
        warnings.filterwarnings("ignore", message="the ranges of the columns")


def variance_of(x: Any) -> float:
    """The variance of all entries of the rows, implicit zeros included."""
    values = np.asarray(x.value if isinstance(x, SparseRows) else x).ravel()
    size = float(np.prod(x.shape))
    mean = float(np.sum(values, dtype=np.float64)) / size
    return max(float(np.vdot(values, values)) / size - mean * mean, 0.0)
