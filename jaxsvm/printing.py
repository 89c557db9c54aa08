"""What results say of themselves, in three lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from .checks import is_array


def of_fit(result: Any) -> str:
    """The lines of a `Fit`: the model, how the run ended, and the curve."""
    lines = [f"Fit of {result.model!r}", result.status]
    loss, steps = np.asarray(result.info.loss), np.asarray(result.info.step)
    if steps.ndim == 1 and steps.size:
        # one update starts at a loss that says nothing of its end
        many = f"loss {loss[0]:.3g} to {loss[-1]:.3g} in {steps.size} rows"
        rows = many if steps.size > 1 else "1 row"
        lines.append(f"{rows} of the curve (.info); {result.evals:,} evaluations")
    return "\n".join(lines)


def of_certificate(proof: Any) -> str:
    """The lines of a `Certificate`."""
    primal, dual, gap = (np.asarray(a) for a in (proof.primal, proof.dual, proof.gap))
    if primal.ndim:
        return f"Certificates of {primal.size} models: gap {gap.min():.3g} to {gap.max():.3g}"
    share = f", {100 * float(gap / primal):.2g} % of it" if primal > 0 else ""
    exact = np.asarray(proof.exact).all()
    whose = "of the model's own coefficients" if exact else "worked out from the model's margins"
    hint = "; is loss= the solver's own? dual= may help" if not exact and gap > primal / 10 else ""
    return (
        f"Certificate: the objective {primal:.6g} is at most {gap:.3g} above its minimum{share}\n"
        f"(dual {dual:.6g}, {whose}{hint})"
    )


def of_batch(data: Any) -> str:
    """The line of a `Batch`: its size and what its targets are; of other fields, their types."""
    shapes = [field.shape if is_array(field) else () for field in (data.x, data.y)]
    if len(shapes[0]) != 2 or len(shapes[1]) not in (1, 2) or data.y.dtype.kind not in "fiu":
        return f"Batch whose x is {type(data.x).__name__} and y {type(data.y).__name__}"
    (n, d), y, padding = data.x.shape, np.asarray(data.y), ""
    names = getattr(data.classes, "names", None)
    if width := 0 if names is None else data.classes.width:  # before padding
        y, padding = y[np.asarray(data.index) >= 0], f", padded to {n:,} of {d:,}"
        n, d = len(y), width
    kind = "sparse " if hasattr(data.x, "length") else ""
    text = f"Batch of {n:,} {kind}rows of {d:,} columns{padding}, {data.x.dtype}"
    if y.ndim == 2:
        what = "labels" if names else "real targets"
        return f"{text}; {y.shape[1]} {what} each"
    values, counts = np.unique(y, return_counts=True)
    if not values.size:
        return text
    if values.size > min(10, max(2, n // 2)):
        return f"{text}; targets from {values[0]:g} to {values[-1]:g}"
    names = names or ()
    numbers = (-1, 1) if len(names) == 2 and not (values == 0).any() else range(len(names))
    named = {} if tuple(names) == tuple(numbers) else dict(zip(numbers, names, strict=True))
    label = lambda v: f"{named[v]} as {v:g}" if v in named else f"{v:g}"
    told = ", ".join(f"{label(v)} ({k:,})" for v, k in zip(values, counts, strict=True))
    return f"{text}; {'classes' if named else 'targets'} {told}"


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
