"""`jaxsvm info`: what a model file holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import models
from ..calibration import Calibrated
from ..recipe import unwrap_static
from ..wrappers import OneVsOne, OneVsRest
from .output import line
from .rows import columns_of, load_model


def run(args: Any, stream: Any) -> int:
    """Run the command; returns the exit status."""
    model, notes = load_model(args.model)
    columns, table = columns_of(model), None
    if isinstance(model, models.OnTable):
        table, model = model.table, model.inner
    if isinstance(model, Calibrated):
        model = models.Classifier(model.model, model.classes)
    line("model", f"{args.model}, written by jaxsvm {notes.pop('jaxsvm')}")
    classes = model.classes if isinstance(model, models.Classifier) else ()
    inner, maps, many = model.inner if classes else model, [], ""
    while isinstance(inner, OneVsRest | OneVsOne | models.Mapped):
        if isinstance(inner, models.Mapped):
            maps.append(type(unwrap_static(inner.phi)).__name__)
        else:
            kind = isinstance(inner, OneVsRest)
            many = "one against the rest: " if kind else "pairs of classes: "
        inner = inner.inner
    head = "classifier" if classes else "function"
    line("what", f"{head} of {columns} columns; {many}{described(inner)}")
    if table is not None:
        line("columns", f"{table}; target {table.target}")
    if maps:
        line("maps", ", ".join(maps))
    if classes:
        shown = ", ".join(map(str, classes[:20])) + (", ..." if len(classes) > 20 else "")
        line("classes", f"{len(classes)}: {shown}")
    for name, text in {"certificate": "none in the file", **notes}.items():
        line(name, text)
    return 0


def described(model: Any) -> str:
    """A phrase on a linear model or an expansion, or on several with a leading axis."""
    if isinstance(model, models.Linear):
        several, columns = np.atleast_2d(model.w).shape
        times = f"{several} times " if several > 1 else ""
        return f"linear, {times}{columns} weights, bias {model.bias}"
    if isinstance(model, models.Expansion):
        points = np.shape(model.coef)[-1]
        return f"kernel machine of {points} points, {model.kernel!r}, bias {model.bias}"
    return type(model).__name__
