"""Rows and models of files for the commands: reading, missing numbers, scaling, description."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsvm

from .. import models
from ..data import missing
from ..data.assemble import Rows, assemble, normalize_names
from ..data.class_numbers import encode
from ..data.csv_tables import load_tables
from ..data.formats import kind_of, read_files
from ..data.parsing import ReadError
from ..recipe import as_static
from ..types import Batch, SparseRows
from .output import STANDARD, line, result_file, title
from .parser import SCALES

INPUT = "the standard input"
HELP = {  # what the options of the readers are called here
    "delimiter": "--delimiter says what stands between cells",
    "label": "--label says which column holds the labels, --target that columns may be words",
    "target": "--target says which column holds the targets",
    "header": "--header says whether the first line names columns",
    "missing": "--missing drop leaves such rows out, --missing mean fills them in",
}
ENDINGS = (
    ".npz", ".npy", ".csv", ".tsv", ".svm", ".svmlight", ".libsvm", ".gz", ".bz2", ".xz",
)  # fmt: skip
YES = {"auto": "auto", "yes": True, "no": False}


def rows(args: Any, *paths: str, columns: int | None = None, means: Any = None) -> list[Rows]:
    """The rows of files, read with the options; sets --zero-based where a file has decided it.

    Args:
        args: the options.
        *paths: of the files; `-` is the standard input.
        columns: of a model; a CSV file of so many columns has no labels.
        means: for missing numbers; None: those of the columns of the first file.
    """
    is_number = re.fullmatch("-?[0-9]{1,9}", args.label)
    options: dict = {"label": int(args.label) if is_number else args.label}
    options |= {"header": YES[args.header], "zero_based": YES[args.zero_based]}
    if args.delimiter is not None:
        options["delimiter"] = args.delimiter.replace("\\t", "\t")
    if paths.count(STANDARD) > 1:
        raise ValueError("the standard input (-) can be read once: name a file for the other rows")
    with contextlib.ExitStack() as stack:
        local = [stack.enter_context(local_file(path)) for path in paths]
        stack.enter_context(_with_help(args, paths, local))
        kind, named = args.format, any(os.path.splitext(path)[1] in ENDINGS for path in paths)
        if kind is None and not named and (args.delimiter is not None or args.header != "auto"):
            # options of CSV say what neither the name nor the first line does
            kind = "npz" if all(kind_of(path) == "npz" for path in local) else "csv"
        parts = read_files(
            *local, kind=kind, columns=columns, missing=args.missing is not None,
            expansion=args.expansion, dtype=np.float64 if args.module == "convert" else None,
            **options,
        )  # fmt: skip
    bases = {part.zero_based for part in parts} - {None}
    if bases:
        args.zero_based = "yes" if True in bases else "no"
    return _without_missing(args, parts, means)


@contextlib.contextmanager
def local_file(path: str) -> Iterator[str]:
    """The path; for `-` that of a temporary file with what the standard input holds."""
    if path != STANDARD:
        yield path
        return
    if sys.stdin is None:
        raise OSError("the standard input is closed")
    text = sys.stdin.buffer.read()
    packed = {b"PK": ".npz", b"\x1f\x8b": ".gz", b"BZ": ".bz2", b"\xfd7": ".xz"}
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, f"input{packed.get(text[:2], '')}")
        with open(name, "wb") as file:
            file.write(text)
        try:
            yield name
        except ValueError as error:
            raise ValueError(str(error).replace(name, INPUT)) from error


@contextlib.contextmanager
def _with_help(args: Any, paths: Sequence[str], local: list[str]) -> Iterator[None]:
    """Errors name the options that may help."""
    try:
        yield
    except ValueError as error:
        advice = []
        if isinstance(error, ReadError):
            advice = [
                f"try --{option} {value!r}" if value else HELP[option]
                for option, value in error.options.items()
            ]
        elif args.format is None and any(
            kind_of(name) == "svmlight" and os.path.splitext(path)[1] not in ENDINGS
            for path, name in zip(paths, local, strict=True)
        ):
            advice = ["it was read as svmlight: --format csv reads cells"]
        raise ValueError(f"{error} ({'; '.join(advice)})" if advice else str(error)) from error


def _without_missing(args: Any, parts: list[Rows], means: Any) -> list[Rows]:
    """The parts without missing numbers, by --missing; a warning says how many there were."""
    count = sum(int(missing.incomplete(part).sum()) for part in parts)
    if not count:
        return parts
    text = f"{count} of {sum(part.x.shape[0] for part in parts)} rows have"
    if args.missing is None:
        raise ValueError(f"{text} a missing number (NaN): {HELP['missing']}")
    what, fix = "are left out", missing.drop
    if args.missing == "mean":
        means = missing.column_means(parts[0].x) if means is None else means
        what = "are filled in by the means of their columns"
        fix = functools.partial(missing.fill, means=means)
    parts = [fix(part) for part in parts]
    warnings.warn(f"{text} missing cells, which {what}", stacklevel=2)
    return parts


class Data(NamedTuple):
    """What a command trains on: data sets, scaled, and how they came to be."""

    parts: list[Batch]  # training rows, and those for the error
    names: list[str]  # of the parts in the report
    classes: tuple  # (): real targets
    scale: Any  # None: the columns are as in the file
    notes: dict[str, str]  # of the model file
    table: Any = None  # what the columns of a table became

    def model(self, inner: Any, calibrated: Any = None) -> Any:
        """The model of the rows as in the file, from one of these rows.

        It has the probabilities of `calibrated`, if there is one.
        """
        inner = inner if self.scale is None else models.Mapped(as_static(self.scale), inner)
        if calibrated is not None:
            calibrated = getattr(calibrated, "inner", calibrated)  # of `OnTable`
            inner = dataclasses.replace(calibrated, model=inner, classes=self.classes)
        elif self.classes:
            inner = models.Classifier(inner, self.classes)
        return inner if self.table is None else models.OnTable(self.table, inner)


def training_data(args: Any, key: Any) -> Data:
    """The rows of the options, scaled; prints a line on each data set.

    Args:
        args: the options.
        key: of the rows that --hold-out takes.

    Raises:
        ValueError: files that do not go together, or labels that look like measurements.
    """
    if args.scale != "none":
        ignore_range_warnings()
    data = _labelled(args, key)
    for i, part in enumerate(data.parts):
        line("" if i else "read", described(data.names[i], part, data.classes))
    name = args.scale
    if data.table is not None and name == "auto":
        name = "none"  # the numbers are scaled already, and indicators stay as they are
        line("columns", str(data.table))
    if name == "auto":
        name = "unit" if isinstance(data.parts[0].x, SparseRows) else "standardize"
    makers = {"standardize": jaxsvm.data.standardize, "unit": jaxsvm.data.scale}
    scale = makers[name](data.parts[0].x) if name in makers else None
    notes = {
        "rows": described(title(args.file), data.parts[0], data.classes),
        "scaled": f"{SCALES[name]} (--scale {name})"
        if data.table is None or name != "none"
        else "the numbers of the table" + (" as they are" if args.scale == "none" else ""),
        # `predict` reads other rows alike
        **({} if args.zero_based == "auto" else {"zero-based": args.zero_based}),
    }
    line("scaled", notes["scaled"])
    parts = [p if scale is None else p._replace(x=call(scale, p.x)) for p in data.parts]
    return data._replace(parts=parts, scale=scale, notes=notes)


def _labelled(args: Any, key: Any) -> Data:
    """The rows of the options with labels."""
    table = None
    if getattr(args, "target", None) is not None:
        read, table = table_rows(args, [path for path in (args.file, args.test) if path], None)
    else:
        read = rows(args, *[path for path in (args.file, args.test) if path])
    used = [read[0], *([read[-1]] if args.test else read[1:2])]
    columns = [part.x.shape[1] for part in used]
    if len(set(columns)) > 1:
        raise ValueError(f"the files differ in columns: {' and '.join(map(str, columns))}")
    positive = None if args.positive is None else [n.strip() for n in args.positive.split(",")]
    if positive is None and args.task is None and used[0].y is not None:
        refuse_measurements(args.file, used[0].y)
    loaded = assemble(compact(used), task=args.task, positive=positive)
    names, share = [args.file, args.test or f"test part of {args.file}"], args.hold_out
    if share is None:
        return Data(list(loaded), names, loaded.classes, None, {}, table)
    if not 0 < share < 1:
        raise ValueError(f"--hold-out must be between 0 and 1, got {share:g}")
    parts = jaxsvm.data.split(key, loaded[0], 1 - share, share)
    return Data(list(parts), [args.file, "held out of it"], loaded.classes, None, {}, table)


def table_rows(args: Any, paths: Sequence[str], like: Any) -> tuple[list[Rows], Any]:
    """The rows of CSV files with words, and what their columns became.

    Args:
        args: the options.
        paths: of the files; `-` is the standard input.
        like: the table of a model; None: it is made of the first file.
    """
    target = args.target if like is None else like.target
    if isinstance(target, str) and re.fullmatch("-?[0-9]{1,9}", target) and like is None:
        target = int(target)
    options: dict = {"header": YES[args.header], "expansion": args.expansion}
    if args.delimiter is not None:
        options["delimiter"] = args.delimiter.replace("\\t", "\t")
    if args.missing == "drop":
        raise ValueError("missing cells of a table become numbers: leave --missing out")
    if paths.count(STANDARD) > 1:
        raise ValueError("the standard input (-) can be read once: name a file for the other rows")
    with contextlib.ExitStack() as stack:
        local = [stack.enter_context(local_file(path)) for path in paths]
        stack.enter_context(_with_help(args, paths, local))
        scale = getattr(args, "scale", "none") != "none"
        return load_tables(local, target, scale, like, every=like is not None, **options)


def refuse_measurements(path: str, y: np.ndarray) -> None:
    """Raise ValueError where the labels (n,) of a file look like measurements."""
    classes, n = encode(normalize_names(y))[1], len(y)
    numbers = [name for name in classes if isinstance(name, float) and name % 1]
    if numbers and len(classes) > max(2, n / 2):
        raise ValueError(
            f"the labels of {path} are {len(classes)} different numbers in {n} rows, such as "
            f"{numbers[0]:g}: name the column of classes (--label), or take --task regression"
        )


def compact(parts: list[Rows]) -> list[Rows]:
    """The parts, with sparse matrices made dense if their padded rows would need as much memory."""
    sparse = [part for part in parts if hasattr(part.x, "tocsr")]
    longest = max((int(np.diff(p.x.tocsr().indptr).max(initial=0)) for p in sparse), default=0)
    if len(sparse) == len(parts) and 2 * longest < parts[0].x.shape[1]:  # a value and a column each
        return parts
    return [p._replace(x=p.x.toarray()) if hasattr(p.x, "tocsr") else p for p in parts]


def described(name: str, data: Batch, classes: tuple) -> str:
    """One line on a data set: size, kind and classes."""
    (n, d), y, kind = data.x.shape, np.asarray(data.y), "dense"
    if isinstance(data.x, SparseRows):
        kind = f"sparse, {data.x.value.shape[1]} numbers a row at most"
    text = f"{name}: {n} rows x {d} columns, {kind}"
    if not classes:
        return f"{text}; targets from {y.min():g} to {y.max():g}"
    places = (y > 0).astype(int) if len(classes) == 2 else y.astype(int)
    counts = np.bincount(places, minlength=len(classes))
    shown = [f"{c} ({k})" for c, k in zip(classes, counts, strict=True)]
    return f"{text}; classes {', '.join(shown[:10])}{', ...' if len(shown) > 10 else ''}"


@jax.jit
def call(model: Any, x: Any) -> Any:
    """A map of rows or a model at the rows `x`, as one program."""
    return model(x)


def ignore_range_warnings() -> None:
    """Ignore warnings on the ranges of columns, which will be scaled."""
    warnings.filterwarnings("ignore", message="the ranges of the columns")


def load_model(path: str) -> tuple[Any, dict[str, str]]:
    """The model of a file and its notes; `-` is the standard input."""
    with local_file(path) as name:
        return models.load(name), models.load_notes(name)


def save_model(path: str, stream: Any, model: Any, notes: dict[str, str]) -> None:
    """Write a model and its notes; `-` is the stream. Of several processes the first writes."""
    if jax.process_index():
        return
    with result_file(path, stream, ".npz", atomic=True) as name:
        models.save(name, model, notes=notes)


def columns_of(model: Any) -> int:
    """The number of columns of a model's rows.

    Raises:
        ValueError: the model was not made by these commands.
    """
    if isinstance(model, models.OnTable):
        return len(model.table.inputs)
    while model is not None:
        for name in ("mean", "width", "landmarks", "w", "x"):
            if hasattr(model, name):
                return int(getattr(model, name).shape[-1])
        if hasattr(model, "frequencies"):
            return int(model.frequencies.shape[0])
        if hasattr(model, "dim"):
            return int(model.dim)
        parts = (getattr(model, name, None) for name in ("phi", "inner", "model"))
        model = next((part for part in parts if part is not None), None)
    raise ValueError("the file holds no model of rows: expected what jaxsvm train writes")
