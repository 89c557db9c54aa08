"""Several targets for each row: labels that may hold together, or real numbers; some missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import is_array, is_sparse, refuse_masked, shown
from ..models.frames import is_frame

MOST_MISSING = "y holds no target at all in column {}: leave the column out"


def has_columns(y: object, task: str | None = None) -> bool:
    """Whether y has several targets for each row; one column is taken for labels of that task."""
    try:
        shape = y.shape if is_array(y) else np.asarray(y).shape
    except ValueError:  # rows of several lengths
        return False
    return len(shape) == 2 and (shape[1] != 1 or task == "multilabel")


def target_columns(
    y: Any, weight: np.ndarray | None, task: str | None, names: object
) -> tuple[np.ndarray, np.ndarray | None, tuple]:
    """Targets (n, k), weights (n,) or (n, k), and the names of labels; of real targets none.

    Labels are -1 and +1. Missing targets, which are nan, become 0 or -1 of weight 0.

    Raises:
        ValueError: another task; numbers of more than two values as labels; a column without any
            target; names of another number than the columns.
    """
    if task not in (None, "multilabel", "regression"):
        raise ValueError(
            f"y has several columns, which is for task 'multilabel' or 'regression', got {task!r}"
        )
    refuse_masked("y", y)
    own = list(y.columns) if is_frame(y) else []
    y = np.asarray(y.toarray() if is_sparse(y) else y)
    if y.dtype.kind not in "biufO":
        raise ValueError(f"y of several columns must hold numbers or booleans, got {y.dtype}")
    try:
        y = y.astype(np.float64) if y.dtype.kind in "biuO" else y
    except (TypeError, ValueError) as error:
        raise ValueError("y of several columns must hold numbers or booleans") from error
    if not y.size:
        raise ValueError(f"y has shape {y.shape}: there must be at least one row and one column")
    missing = np.isnan(y)
    if missing.all(axis=0).any():
        raise ValueError(MOST_MISSING.format(int(np.argmax(missing.all(axis=0)))))
    if weight is not None and np.shape(weight) == y.shape:
        counts = (np.asarray(weight) > 0) & ~missing
        if not counts.any(axis=0).all():
            raise ValueError(MOST_MISSING.format(int(np.argmin(counts.any(axis=0)))))
    if missing.any():
        weight = np.ones(len(y)) if weight is None else np.asarray(weight)
        weight = weight[:, None] if weight.ndim == 1 else weight
        y, weight = np.where(missing, 0, y), np.where(missing, 0, weight)
    if task == "regression":
        if names is not None:
            raise ValueError("classes are of labels, and the targets of task 'regression' are real")
        return y, weight, ()
    low = y.min(initial=0)
    if not np.isin(y[~missing], (0, 1) if low >= 0 else (-1, 1)).all():
        values = ", ".join(f"{v:g}" for v in np.unique(y[~missing])[:5])
        raise ValueError(
            f"y of several columns must hold labels 0 and 1, or -1 and +1, got {values}; "
            "task='regression' for real targets"
        )
    return np.where(y > 0, 1.0, -1.0), weight, column_names(own, y.shape[1], names)


def column_names(own: list, k: int, names: Any) -> tuple:
    """The names of k columns; None: those that y has of its own, else 0 .. k-1."""
    names = tuple(own if own else range(k)) if names is None else tuple(names)
    if len(names) != k or len(set(names)) < k:
        raise ValueError(f"classes must name each of the {k} columns of y, got {shown(names)}")
    return names
