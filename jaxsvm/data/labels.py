"""Class names to labels and back."""

from __future__ import annotations

from typing import Any

import numpy as np


def encode(y: Any, names: Any = None) -> tuple[np.ndarray, tuple]:
    """Labels that solvers take: -1 and +1 for two classes, class numbers 0 .. k-1 for more.

    Args:
        y: (n,) class names: whole numbers, other numbers, strings or truth values.
        names: the classes in order, as returned for the training rows; None: those found in y, sorted. The last of two
            is +1.

    Returns:
        (n,) labels, and the names as a tuple of Python numbers or strings. `jaxsvm.models.Classifier(model, names)`
        predicts in these names.

    Raises:
        ValueError: fewer than two classes, or a name that is not among `names`.

    Example:
        >>> encode(["spam", "ham", "spam"])
        (array([ 1, -1,  1]), ('ham', 'spam'))
    """
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must hold one class name for each row, got shape {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y holds a NaN or an infinity, which is no class: drop such rows")
    known = np.unique(y) if names is None else np.asarray(names)
    if len(known) < 2:
        raise ValueError(f"y holds a single class, {known.tolist()}: a classifier needs rows of two or more")
    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known[order], y), len(known) - 1)]
    strange = known[place] != y
    if strange.any():
        raise ValueError(f"y holds the class {y[strange][0].item()!r}, which is not among {known.tolist()}")
    return (2 * place - 1 if len(known) == 2 else place), tuple(known.tolist())
