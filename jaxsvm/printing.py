"""What results say of themselves, in three lines."""

from __future__ import annotations

from typing import Any

import numpy as np


def of_fit(result: Any) -> str:
    """The lines of a `Fit`: the model, how the run ended, and the curve."""
    lines = [f"Fit of {result.model!r}", result.status]
    loss, steps = np.asarray(result.info.loss), np.asarray(result.info.step)
    if steps.ndim == 1 and steps.size:
        # one update starts at a loss that says nothing of its end
        seen = f"loss {loss[0]:.3g} to {loss[-1]:.3g} in " if steps.size > 1 else ""
        rows = "1 row" if steps.size == 1 else f"{steps.size} rows"
        lines.append(f"{seen}{rows} of the curve (.info); {result.evals:,} evaluations")
    return "\n".join(lines)


def of_certificate(proof: Any) -> str:
    """The lines of a `Certificate`."""
    primal, dual, gap = (np.asarray(a) for a in (proof.primal, proof.dual, proof.gap))
    if primal.ndim:
        return f"Certificates of {primal.size} models: gap {gap.min():.3g} to {gap.max():.3g}"
    share = f", {100 * float(gap / primal):.2g} % of it" if primal > 0 else ""
    exact = np.asarray(proof.exact).all()
    whose = "of the model's own coefficients" if exact else "worked out from the model's margins"
    return (
        f"Certificate: the objective {primal:.6g} is at most {gap:.3g} above its minimum{share}\n"
        f"(dual {dual:.6g}, {whose})"
    )


def of_batch(data: Any) -> str:
    """The line of a `Batch`: its size and what its targets are; of other fields, their types."""
    shapes = [getattr(field, "shape", ()) for field in (data.x, data.y)]
    if len(shapes[0]) != 2 or len(shapes[1]) not in (1, 2) or data.y.dtype.kind not in "fiu":
        return f"Batch whose x is {type(data.x).__name__} and y {type(data.y).__name__}"
    n, d = data.x.shape
    kind = "sparse " if hasattr(data.x, "length") else ""
    text = f"Batch of {n:,} {kind}rows of {d:,} columns, {data.x.dtype}"
    if data.y.ndim == 2 and hasattr(data.weight, "T"):
        return f"{text}; {_of_columns(data)}"
    values, counts = np.unique(np.asarray(data.y), return_counts=True)
    if not values.size:
        return text
    names = getattr(data.classes, "names", ())
    numbers = (-1, 1) if len(names) == 2 and not (values == 0).any() else range(len(names))
    if tuple(names) != tuple(numbers) and values.size <= 10:
        name_of = dict(zip(numbers, names, strict=True))
        pairs = zip(values, counts, strict=True)
        told = ", ".join(f"{name_of.get(v)} as {v:g} ({count:,})" for v, count in pairs)
        return f"{text}; classes {told}"
    if values.size <= min(10, max(2, n // 2)):
        pairs = zip(values, counts, strict=True)
        told = ", ".join(f"{value:g} ({count:,})" for value, count in pairs)
        return f"{text}; targets {told}"
    return f"{text}; targets from {values[0]:g} to {values[-1]:g}"


def _of_columns(data: Any) -> str:
    """The targets (n, k): how many, how many of them hold, and how many are missing."""
    y, weight = np.asarray(data.y), np.asarray(data.weight)
    known = np.broadcast_to(weight.T > 0, y.T.shape).T
    missing = f", {1 - known.mean():.2g} of them missing" if not known.all() else ""
    if not hasattr(data.classes, "names"):
        return f"{y.shape[1]} real targets each{missing}"
    return f"{y.shape[1]} labels, {((y > 0) & known).sum() / len(y):.3g} a row{missing}"


def of_selection(found: Any) -> str:
    """The lines of a `Selection`: the choice, its score, and the run."""
    vector = lambda value: np.array2string(np.asarray(value), precision=4, threshold=6)
    text = lambda value: vector(value) if np.ndim(value) else f"{value:.4g}"
    chosen = ", ".join(f"{name} = {text(value)}" for name, value in found.chosen.items())
    best = float(np.nanmin(np.asarray(found.table.values)))
    lines = [f"Selection of {chosen} ({found.rule}); least score {best:.4g}", found.status]
    if found.certificate is not None:
        lines.append(repr(found.certificate).splitlines()[0])
    return "\n".join(lines)
