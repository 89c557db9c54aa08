"""`jaxsvm predict`: a model and rows in a file to class names."""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import numpy as np

from jaxsvm import models, wrappers  # noqa: F401  registers multiclass models

from ..checks import class_names
from ..data.assemble import label, normalize_names
from ..data.dataset import dataset
from ..data.scaling import Scale, Standardize
from ..loops.progress import Bar
from ..recipe import unwrap_static
from ..types import SparseRows
from . import rows as reading
from .output import STANDARD, check_output, note, printable, result_file, write
from .solvers import columns_of

BLOCK = 8192  # rows of one call of the model


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    check_output(args.out, args.model, args.file)
    if args.model == STANDARD == args.file:
        raise ValueError("the standard input (-) can be read once: name a file for the model")
    model, notes = reading.load_model(args.model)
    if args.zero_based == "auto" and notes.get("zero-based") in ("yes", "no"):
        args.zero_based = notes["zero-based"]
    columns = columns_of(model)
    means = None
    if args.missing == "mean":
        means = means_of(model)
    rows = reading.rows(args, args.file, columns=columns, means=means)[:2][-1]
    if rows.x.shape[1] != columns:
        raise ValueError(f"{args.file} has {rows.x.shape[1]} columns, the model takes {columns}")
    classes = model.classes if isinstance(model, models.Classifier) else ()
    reading.ignore_range_warnings()
    x = dataset(rows.x, np.zeros(rows.x.shape[0]), task="regression").x
    score = scores(model, x)
    names = decide(score, classes)
    if classes:
        class_names([printable(str(name)) for name in classes])  # they are told apart
    values = np.atleast_2d(score.T).T
    lines = (
        printable(str(name))
        + (args.scores and classes and "\t" + "\t".join(f"{v:.9g}" for v in value) or "")
        for name, value in zip(names.tolist(), values.tolist(), strict=True)
    )
    if args.out and args.out != STANDARD:
        with (
            result_file(args.out, sys.stdout) as temporary,
            open(temporary, "w", encoding="utf-8") as file,
        ):
            file.writelines(line + "\n" for line in lines)
    else:
        write(sys.stdout, "".join(line + "\n" for line in lines))
    note(describe(rows, names, score, classes))
    return 0


def means_of(model: Any) -> np.ndarray:
    """The means of the columns of the training rows, for missing numbers.

    Raises:
        ValueError: the model holds none.
    """
    inner = model.inner if isinstance(model, models.Classifier) else model
    phi = unwrap_static(getattr(inner, "phi", None))
    if not isinstance(phi, Standardize):
        raise ValueError(
            "the model holds no means of its columns: train it with --scale standardize, or give "
            "--missing drop"
        )
    return np.asarray(phi.mean)


def scores(model: Any, x: Any) -> np.ndarray:
    """Decision values (n,) or (n, k), computed in blocks of rows, with a bar after two seconds."""
    call = jax.jit(lambda model, x: model(x))
    n, start_time, bar, blocks = x.shape[0], time.monotonic(), None, []
    dense = isinstance(x, SparseRows) and moves_zeros(model)
    for start in range(0, n, BLOCK):
        rows = x[start : start + BLOCK]
        blocks.append(np.asarray(call(model, rows.toarray() if dense else rows)))
        if bar is None and time.monotonic() - start_time > 2 and start + BLOCK < n:
            bar = Bar(n, "rows")
        if bar:
            bar.show(min(start + BLOCK, n))
    if bar:
        bar.close()
    return np.concatenate(blocks)


def moves_zeros(model: Any) -> bool:
    """Whether the model scales rows by a map that does not keep zeros."""
    phi = getattr(
        getattr(model, "inner", model) if isinstance(model, models.Classifier) else model,
        "phi",
        None,
    )
    return isinstance(phi, Standardize) or (isinstance(phi, Scale) and phi.low is not None)


def decide(score: np.ndarray, classes: tuple) -> np.ndarray:
    """Class names of decision values, as `Classifier.predict`; for real targets the values."""
    if not classes:
        return models.check_values(score)
    return np.asarray(classes)[models.class_places(score)]


def describe(rows: Any, names: np.ndarray, score: np.ndarray, classes: tuple) -> str:
    """One line on the predictions: their number, and the error where it is known.

    It is known if the file has labels of the model.
    """
    head = f"{len(names)} rows"
    if rows.y is None:
        return head
    weight = np.ones(len(names)) if rows.weight is None else np.asarray(rows.weight, np.float64)
    share = weight / weight.sum()
    if not classes:
        y = normalize_names(rows.y)
        if y.dtype.kind not in "biuf":
            return f"{head}; the targets of the file are no numbers: no error worked out"
        return f"{head}, error {np.sqrt(share @ (score - y) ** 2):.6g} (root mean square)"
    try:
        wrong = label(rows.y, classes) != label(names, classes)
    except ValueError:
        return (
            f"{head}; the labels of the file are not all classes of the model: no error worked out"
        )
    return f"{head}, error {share @ wrong:.2%}"
