"""`jaxsvm info`: what a model file holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import models
from ..recipe import unwrap_static
from ..wrappers import OneVsOne, OneVsRest
from .output import line
from .rows import load_model
from .solvers import columns_of


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    model, notes = load_model(args.model)
    columns = columns_of(model)
    line("model", f"{args.model}, written by jaxsvm {notes.pop('jaxsvm')}")
    classes = model.classes if isinstance(model, models.Classifier) else ()
    inner = model.inner if isinstance(model, models.Classifier) else model
    maps = []
    while isinstance(inner, models.Mapped):
        maps.append(type(unwrap_static(inner.phi)).__name__)
        inner = inner.inner
    many = {OneVsRest: "one against the rest: ", OneVsOne: "pairs of classes: "}.get(
        type(inner), ""
    )
    while isinstance(inner, OneVsRest | OneVsOne | models.Mapped):
        inner = inner.inner
    line(
        "what",
        f"{'classifier' if classes else 'function'} of {columns} columns; {many}{kind(inner)}",
    )
    if maps:
        line("maps", ", ".join(maps))
    if classes:
        shown = ", ".join(map(str, classes[:20])) + (", ..." if len(classes) > 20 else "")
        line("classes", f"{len(classes)}: {shown}")
    for name, text in notes.items():
        line(name, text)
    if "certificate" not in notes:
        line("certificate", "none in the file")
    return 0


def kind(model: Any) -> str:
    """A phrase on a linear model or an expansion, or on several with a leading axis."""
    if isinstance(model, models.Linear):
        weights = np.atleast_2d(model.w)
        several = f"{weights.shape[0]} times " if weights.shape[0] > 1 else ""
        return f"linear, {several}{weights.shape[1]} weights, bias {model.bias}"
    if isinstance(model, models.Expansion):
        points = np.shape(model.coef)[-1]
        return f"kernel machine of {points} points, {model.kernel!r}, bias {model.bias}"
    return type(model).__name__
