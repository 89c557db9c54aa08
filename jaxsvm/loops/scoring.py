"""The score of a fit of `select`, and the losses of its rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..checks import calling
from .grid_runs import GridJob
from .selection import cells_of


class Scorer:
    """The score of a fit, and the losses that a race compares."""

    def __init__(self, score: str | Callable, real: bool) -> None:
        self.score = score
        self.loss = None if callable(score) else _LOSSES[score, real]

    def of_fold(self, values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        """The score of decision values; nan if one is not finite and the rule is not the user's."""
        if self.loss is None:
            form = "(values, targets, weights) -> one number"
            with calling("score", self.score, form, values, y, weight):
                return float(self.score(values, y, weight))  # type: ignore[operator]  # a function
        if not np.isfinite(values).all():
            return np.nan
        return float(np.average(self.loss(values, y), weights=weight))

    def fill(self, part: GridJob) -> None:
        """Fill in the score of every finished fit."""
        arrays = part.results.arrays
        for fold in part.folds:
            rows, y, weight = _rows_of(part, fold)
            for cell in cells_of(part.grid.shape):
                place = (*cell, fold)
                if arrays["done"][place] and np.isnan(arrays["score"][place]):
                    values = arrays["values"][cell][rows].astype(np.float64)
                    arrays["score"][place] = self.of_fold(values, y, weight)

    def losses(
        self, part: GridJob, cell: tuple[int, ...], folds: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The losses of a cell on the rows of these folds, or its scores, and their weights."""
        outcomes = [_held_out(part, cell, fold) for fold in folds]
        if self.loss is None:
            return np.array([self.of_fold(*outcome) for outcome in outcomes]), np.ones(len(folds))
        values, y, weight = (np.concatenate(arrays) for arrays in zip(*outcomes, strict=True))
        rows_finite = np.isfinite(values).reshape(len(y), -1).all(axis=1)
        return np.where(rows_finite, self.loss(values, y), np.nan), weight


def _rows_of(part: GridJob, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of a fold, their targets and weights."""
    data, rows = part.grid.data, part.grid.held_out(fold)
    return rows, *(np.asarray(a, np.float64)[rows] for a in (data.y, data.weight))


def _held_out(
    part: GridJob, cell: tuple[int, ...], fold: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decision values, targets and weights of the rows of a fold."""
    rows, y, weight = _rows_of(part, fold)
    return part.results.arrays["values"][cell][rows].astype(np.float64), y, weight


def _error(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1 for a misclassified row."""
    one = values.ndim == 1
    return (values > 0) != (y > 0) if one else np.argmax(values, axis=1) != y.astype(int)


def _hinge(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The hinge loss."""
    if values.ndim > 1:
        raise ValueError(
            "score='risk' takes models with one value for each row; score many classes by 'error', "
            "or by a function of your own"
        )
    return np.maximum(0, 1 - y * values)


_LOSSES: dict[tuple[str, bool], Callable] = {
    ("error", False): _error,
    ("risk", False): _hinge,
    ("error", True): lambda values, y: (values - y) ** 2,
    ("risk", True): lambda values, y: np.abs(values - y),
}
