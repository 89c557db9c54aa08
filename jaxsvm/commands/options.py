"""Shared parts of the commands: options, reading, scaling, lines of the report."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from ..data.assemble import Rows
from ..data.formats import read_files
from ..data.scaling import scale, standardize
from ..files import check_target
from ..types import Batch, SparseRows


class Parser(argparse.ArgumentParser):
    """A parser that keeps the line breaks of its examples and raises ValueError."""

    def __init__(self, **kwargs: Any) -> None:
        """As `argparse.ArgumentParser`."""
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs
        )

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def add_reading_options(parser: Any) -> None:
    """Add the options for reading files."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--format",
        choices=("svmlight", "npz", "csv"),
        help="of the files; without it their names, then their first lines tell",
    )
    group.add_argument(
        "--label",
        default="-1",
        metavar="COLUMN",
        help="CSV: the column of labels, by number or name (the last)",
    )
    group.add_argument(
        "--zero-based",
        choices=("auto", "yes", "no"),
        default="auto",
        help="svmlight: whether the first column has index 0 (auto: where an index 0 occurs)",
    )
    group.add_argument(
        "--delimiter", help="CSV: what stands between cells (a comma; a tab in .tsv files)"
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="CSV: whether the first line names columns (auto)",
    )


def add_naming_options(parser: Any) -> None:
    """Add the options for the meaning of labels."""
    parser.add_argument(
        "--positive",
        metavar="CLASS",
        help="the class, or several with commas, against all others; without it the last of two",
    )


def rows(args: Any, *paths: str, columns: int | None = None, dtype: Any = None) -> list[Rows]:
    """The rows of files, read with the options."""
    label = args.label
    reading: dict = {"label": int(label) if label.lstrip("-").isdigit() else label}
    reading["header"] = {"auto": "auto", "yes": True, "no": False}[args.header]
    reading["zero_based"] = {"auto": "auto", "yes": True, "no": False}[args.zero_based]
    if args.delimiter is not None:
        reading["delimiter"] = args.delimiter.replace("\\t", "\t")
    return read_files(*paths, kind=args.format, columns=columns, dtype=dtype, **reading)


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


SCALES = {
    "standardize": (standardize, "columns to mean 0, deviation 1"),
    "unit": (scale, "columns to [0, 1], sparse ones to [-1, 1]"),
    "none": (None, "values as they are"),
}


def add_scaling_options(parser: Any) -> None:
    """Add the option for scaling columns."""
    parser.add_argument(
        "--scale",
        choices=(*SCALES, "auto"),
        default="auto",
        help="columns, by the training rows, kept in the model: "
        + "; ".join(f"{name}: {description}" for name, (_, description) in SCALES.items())
        + "; auto (default): unit for sparse rows, else standardize",
    )


def scaler(args: Any, x: Any) -> tuple[Any, str]:
    """The map of columns or None, and its description."""
    name = args.scale
    if name == "auto":
        name = "unit" if isinstance(x, SparseRows) else "standardize"
    make, description = SCALES[name]
    return (None if make is None else make(x)), f"{description} (--scale {name})"


def ignore_range_warnings(scaled: bool = True) -> None:
    """Ignore warnings on the ranges of columns that will be scaled."""
    if scaled:
        warnings.filterwarnings("ignore", message="the ranges of the columns")


def variance_of(x: Any) -> float:
    """The variance of all entries of the rows, implicit zeros included."""
    values = x.value if isinstance(x, SparseRows) else x
    size = float(np.prod(x.shape))
    mean = float(jnp.sum(values)) / size
    return max(float(jnp.sum(values * values)) / size - mean * mean, 0.0)


def output(path: str | None, *inputs: str | None) -> None:
    """Raise for an output file that cannot be written or is an input, before anything is computed.

    Raises:
        ValueError: a folder that is not writable, one of the inputs.
        OSError: a folder that does not exist; a folder, a pipe or a device instead of a file.
    """
    if path is None:
        return
    for source in (part for name in inputs if name for part in (name, *name.split(","))):
        if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise ValueError(f"{path} is a file that is read: give another name")
    if not os.access(os.path.dirname(check_target(path)), os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder may not be written to")


def line(head: str, text: str) -> None:
    """Print a line of the report."""
    print(f"{head:<12} {text}", flush=True)


def pace(steps: int, one_pass: int) -> int:
    """Steps of a chunk: a pass, but at most a hundredth of the run and at least a thousandth."""
    length = max(1, steps // 1000, min(one_pass, steps // 100))
    # a divisor of the steps where there is one: all chunks are whole
    return next((e for e in range(length, length // 2, -1) if steps % e == 0), length)
