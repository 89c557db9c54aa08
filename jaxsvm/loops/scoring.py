"""The score of a fit of `select`, and the losses of its rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..calibration import calibrate_columns, columns_of
from ..checks import calling
from .grid_runs import Grid


class Outcome(NamedTuple):
    """The rows of some folds of a cell, by models that were trained without them."""

    values: np.ndarray  # (m,) or (m, k)  float64, decision values
    y: np.ndarray  # (m,) or (m, k)
    weight: np.ndarray  # (m,) or (m, k)
    fold: np.ndarray  # (m,)  the number of each row's fold among these

    @classmethod
    def of(cls, grid: Grid, cell: tuple[int, ...], folds: list[int]) -> Outcome:
        """The rows of these folds, fold by fold."""
        rows = [np.flatnonzero(grid.fold == fold) for fold in folds]
        arrays = grid.results.arrays["values"][cell], grid.data.y, grid.data.weight
        index, number = np.concatenate(rows), np.repeat(np.arange(len(folds)), [*map(len, rows)])
        values, y, weight = (np.asarray(a, np.float64)[index] for a in arrays)
        return cls(values, y, weight, number)

    def probabilities(self, share: np.ndarray) -> np.ndarray:
        """Those of the classes, (m, k), by sigmoids of these values, as of `Selection.calibrated`.

        They are nan where a value is not finite. `share` (m,) are the weights of the rows.
        """
        columns = columns_of(self.values, "rest")
        names = tuple(range(max(columns.shape[1], 2)))
        if not np.isfinite(columns).all():
            return np.full((len(columns), len(names)), np.nan)
        place = class_numbers(self.values, self.y)
        how = "sigmoid", "rest", names
        return calibrate_columns(None, columns, place, share, *how).of_columns(columns)


class ProbabilityScore(NamedTuple):
    """A score that gets a function () -> (m, k) after the values, targets and weights."""

    score: Callable
    share_of: Callable  # (targets, weights) -> weights of the rows for these probabilities

    def __call__(self, *args: object) -> float:
        return self.score(*args)


class Scorer:
    """The score of a fit, and the losses that a race compares."""

    def __init__(self, score: str | Callable, targets: str | tuple) -> None:
        several = isinstance(targets, tuple)
        is_real = (targets[0] if several else targets) == "real"
        is_of_any = callable(score) or score in ("error", "risk")
        if is_real and not is_of_any:
            raise ValueError(
                f"score={score!r} is of classes, and the targets of this solver are real: take "
                "'error' or 'risk'"
            )
        if several and not is_of_any:
            raise ValueError(
                f"score={score!r} is of one target a row, and this solver has {targets[1]}: take "
                "'error', 'risk' or a function"
            )
        self.score: Any = _one_minus_auc if score == "auc" else score
        kind = "real" if is_real else "columns" if several else "labels"
        self.loss = None if callable(self.score) else _LOSSES[self.score, kind]

    def of_folds(self, outcome: Outcome) -> list[float]:
        """The score of each fold; nan where a value is not finite and the rule is not a user's."""
        rows_of = [outcome.fold == number for number in range(outcome.fold.max() + 1)]
        if self.loss is not None:
            losses, weights = self._of_rows(outcome)
            return [float(np.average(losses[rows], weights=weights[rows])) for rows in rows_of]
        share = lambda: self.score.share_of(outcome.y, outcome.weight)
        chances = functools.cache(lambda: outcome.probabilities(share()))

        def of_fold(rows: np.ndarray) -> float:
            args: Any = [a[rows] for a in outcome[:3]]
            if isinstance(self.score, ProbabilityScore):
                args.append(lambda: chances()[rows])
            with calling("score", self.score, "(values, targets, weights) -> one number", *args):
                return float(self.score(*args))

        return [of_fold(rows) for rows in rows_of]

    def fill(self, grid: Grid) -> None:
        """Fill in the score of every finished fit."""
        arrays = grid.results.arrays
        for cell in np.ndindex(grid.wanted.shape):
            folds = np.flatnonzero(arrays["done"][cell]).tolist()
            if folds:
                arrays["score"][cell][folds] = self.of_folds(Outcome.of(grid, cell, folds))

    def losses(
        self, grid: Grid, cell: tuple[int, ...], folds: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The losses of a cell on the rows of these folds, or its scores, and their weights."""
        outcome = Outcome.of(grid, cell, list(folds))
        if self.loss is not None:
            return self._of_rows(outcome)
        return np.array(self.of_folds(outcome)), np.ones(len(folds))

    def _of_rows(self, outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
        """The losses (m,) of the rows and their weights; of several targets means over them."""
        assert self.loss is not None
        values, y, weight, _ = outcome
        if self.score in ("log_loss", "brier"):
            values = outcome.probabilities(weight)
        finite = np.isfinite(values).reshape(len(y), -1).all(axis=1)
        losses = self.loss(values, y)
        if losses.ndim > 1:
            shares = np.broadcast_to(weight.reshape(len(y), -1), losses.shape)
            total = shares.sum(axis=1)
            losses = np.where(shares > 0, shares * losses, 0).sum(axis=1)
            losses, weight = losses / np.where(total > 0, total, 1), total / y.shape[1]
        return np.where(finite, losses, np.nan), weight


def class_numbers(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The numbers of the classes (m,) of targets, by the shape of values or probabilities."""
    return (y > 0).astype(int) if values.ndim == 1 or values.shape[1] == 2 else y.astype(int)


def _error(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1 for a misclassified row."""
    predicted = values > 0 if values.ndim == 1 else np.argmax(values, axis=1)
    return predicted != class_numbers(values, y)


def _hinge(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The hinge loss."""
    if values.shape != y.shape:
        raise ValueError(
            "score='risk' takes models with one value for each row; score many classes by 'error', "
            "or by a function of your own"
        )
    return np.maximum(0, 1 - y * values)


def _log_loss(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-log of the probability of a row's class, at most 36."""
    own = np.take_along_axis(p, class_numbers(p, y)[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(own, np.finfo(p.dtype).eps))


def _brier(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """sum_c (p_c - [c is the row's class])^2; of two classes half of it."""
    difference = p - np.eye(p.shape[1])[class_numbers(p, y)]
    return np.sum(difference**2, axis=1) / (2 if p.shape[1] == 2 else 1)


def _one_minus_auc(values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """One minus the area under the ROC curve; of k classes the mean of each against the rest."""
    place, columns = class_numbers(values, y), columns_of(values, "rest").T
    numbers = [1] if values.ndim == 1 else range(len(columns))
    areas = [_area(f, weight, place == c) for c, f in zip(numbers, columns, strict=True)]
    return 1 - float(np.mean(areas))


def _area(score: np.ndarray, weight: np.ndarray, positive: np.ndarray) -> float:
    """The weighted share of pairs in which the positive row has the higher score; ties are half."""
    rank = np.unique(score, return_inverse=True)[1]
    above, below = (np.bincount(rank, weight * part) for part in (positive, ~positive))
    total = above.sum() * below.sum()
    return float(above @ (np.cumsum(below) - below / 2) / total) if total > 0 else np.nan


# by the score, and the targets; "columns" are labels of which several may hold
_LOSSES: dict[tuple[str, str], Callable] = {
    ("error", "labels"): _error,
    ("risk", "labels"): _hinge,
    ("log_loss", "labels"): _log_loss,
    ("brier", "labels"): _brier,
    ("error", "real"): lambda values, y: (values - y) ** 2,
    ("risk", "real"): lambda values, y: np.abs(values - y),
    ("error", "columns"): lambda values, y: (values > 0) != (y > 0),
    ("risk", "columns"): _hinge,
}
