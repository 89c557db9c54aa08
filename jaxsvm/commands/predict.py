"""`jaxsvm predict`: a model and rows in a file to class names."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxsvm import models, wrappers  # noqa: F401  registers multiclass models

from ..calibration import Calibrated
from ..checks import class_names
from ..data.assemble import label, normalize_names
from ..data.from_arrays import dataset
from ..data.scaling import Scale, Standardize
from ..recipe import unwrap_static
from ..types import SparseRows
from . import rows as reading
from .output import STANDARD, note, printable, result_file


def run(args: Any, stream: Any) -> int:
    """Run the command; returns the exit status."""
    if args.model == STANDARD == args.file:
        raise ValueError("the standard input (-) can be read once: name a file for the model")
    model, notes = reading.load_model(args.model)
    if args.zero_based == "auto" and notes.get("zero-based") in ("yes", "no"):
        args.zero_based = notes["zero-based"]
    table = None
    if isinstance(model, models.OnTable):
        table, model = model.table, model.inner
    columns, means = reading.columns_of(model), None
    chances = model if isinstance(model, Calibrated) else None
    if chances is not None:
        model = models.Classifier(chances.model, chances.classes)
    if args.probability and chances is None:
        raise ValueError(
            f"{args.model} holds no probabilities: give --probability to train or select, too"
        )
    inner = model.inner if isinstance(model, models.Classifier) else model
    scale = unwrap_static(getattr(inner, "phi", None))
    if args.missing == "mean":
        if not isinstance(scale, Standardize):
            raise ValueError(
                "the model holds no means of its columns: train it with --scale standardize, or "
                "give --missing drop"
            )
        means = np.asarray(scale.mean)
    if table is not None:
        rows = reading.table_rows(args, [args.file], table)[0][0]
    else:
        rows = reading.rows(args, args.file, columns=columns, means=means)[:2][-1]
    if rows.x.shape[1] != columns:
        raise ValueError(f"{args.file} has {rows.x.shape[1]} columns, the model takes {columns}")
    classes = model.classes if isinstance(model, models.Classifier) else ()
    reading.ignore_range_warnings()
    x: Any = dataset(rows.x, np.zeros(rows.x.shape[0]), task="regression").x
    moves_zeros = isinstance(scale, Standardize) or getattr(scale, "low", None) is not None
    if isinstance(x, SparseRows) and isinstance(scale, Scale | Standardize) and moves_zeros:
        x = x.toarray()
    score = models.check_values(np.asarray(reading.call(model, x)))
    names = np.asarray(classes)[models.class_places(score)] if classes else score
    class_names([printable(str(name)) for name in classes] or ["0", "1"])  # they are told apart
    lines = [printable(str(name)) for name in names.tolist()]
    if classes and (args.scores or args.probability):
        shown = chances.of_values(score) if args.probability and chances else score
        values = [[f"{v:.9g}" for v in row] for row in np.atleast_2d(shown.T).T.tolist()]
        lines = ["\t".join([name, *row]) for name, row in zip(lines, values, strict=True)]
    if args.probability:
        lines = ["\t".join(["class", *(printable(str(name)) for name in classes)]), *lines]
    with result_file(args.out, stream) as name, open(name, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    note(describe(rows, names, score, classes))
    return 0


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
