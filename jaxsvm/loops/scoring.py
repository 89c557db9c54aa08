"""The score of a fit of `select`, and the losses of its rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..calibration import columns_of, crossfit
from ..checks import calling
from .grid_runs import GridJob
from .selection import cells_of

MOST_GROUPS = 10  # of folds, of which each has probabilities by curves fitted to the others


class Outcome:
    """The rows of some folds of a cell: decision values by models that were trained without them.

    `fold` (m,) is the number of each row's fold among these.
    """

    def __init__(self, part: GridJob, cell: tuple[int, ...], folds: list[int]) -> None:
        rows = [np.flatnonzero(part.grid.fold == fold) for fold in folds]
        index, data = np.concatenate(rows), part.grid.data
        self.values = part.results.arrays["values"][cell][index].astype(np.float64)
        self.y, self.weight = (np.asarray(a, np.float64)[index] for a in (data.y, data.weight))
        self.fold = np.repeat(np.arange(len(folds)), list(map(len, rows)))

    def probabilities(self, share: np.ndarray) -> np.ndarray:
        """Those of the classes, (m, k), by sigmoids that were fitted to the other folds.

        Folds are gathered into ten groups. They are nan for a single fold, and where a value is not
        finite. `share` (m,) are the weights of the rows.
        """
        group, coupling = (self.fold % MOST_GROUPS).astype(np.int32), "rest"
        columns = columns_of(self.values, coupling)
        if group.max() == 0 or not np.isfinite(columns).all():
            return np.full((len(columns), max(columns.shape[1], 2)), np.nan)
        place = class_numbers(self.values, self.y)
        return crossfit(columns, place, share, group, "sigmoid", coupling)


class Scorer:
    """The score of a fit, and the losses that a race compares.

    A function whose attribute `takes_probabilities` is true gets a function () -> (m, k) after the
    values, targets and weights. Its `share_of`, if there is one, are the weights of the rows by
    targets and weights, for these probabilities.
    """

    def __init__(self, score: str | Callable, targets: Any) -> None:
        self.score: Any = _one_minus_auc if score == "auc" else score
        several = isinstance(targets, tuple)
        real = (targets[0] if several else targets) == "real"
        if several and not callable(score) and score not in ("error", "risk"):
            raise ValueError(
                f"score={score!r} is of one target a row, and this solver has {targets[1]}: take "
                "'error', 'risk' or a function"
            )
        if real and not callable(score) and score not in ("error", "risk"):
            raise ValueError(
                f"score={score!r} is of classes, and the targets of this solver are real: take "
                "'error' or 'risk'"
            )
        self.loss = None if callable(self.score) else _LOSSES[self.score, real]
        if several and self.loss is not None:
            self.loss = _LOSSES_OF_COLUMNS.get((str(score), real), self.loss)
        self.of_probabilities = score in ("log_loss", "brier")

    def of_folds(self, outcome: Outcome, folds: Iterable[int]) -> list[float]:
        """The scores of these folds; nan where a value is not finite and the rule is not a user's.

        `folds` are numbers as of `Outcome.fold`.
        """
        share_of = getattr(self.score, "share_of", lambda y, weight: weight)
        chances = functools.cache(
            lambda: outcome.probabilities(share_of(outcome.y, outcome.weight))
        )
        values = chances() if self.of_probabilities else outcome.values

        def of_fold(number: int) -> float:
            rows = outcome.fold == number
            fold = values[rows], outcome.y[rows], outcome.weight[rows]
            if self.loss is not None:
                if not np.isfinite(fold[0]).all():
                    return np.nan
                losses, weights = _by_row(self.loss(*fold[:2]), fold[2])
                return float(np.average(losses, weights=weights))
            more = (lambda: chances()[rows],) if hasattr(self.score, "takes_probabilities") else ()
            form = "(values, targets, weights) -> one number"
            with calling("score", self.score, form, *fold, *more):
                return float(self.score(*fold, *more))

        return [of_fold(number) for number in folds]

    def fill(self, part: GridJob) -> None:
        """Fill in the score of every finished fit."""
        arrays = part.results.arrays
        for cell in cells_of(part.wanted.shape):
            done, score = arrays["done"][cell], arrays["score"][cell]
            known = [fold for fold in part.folds if done[fold]]
            new = [number for number, fold in enumerate(known) if np.isnan(score[fold])]
            if new:
                scores = self.of_folds(Outcome(part, cell, known), new)
                score[[known[number] for number in new]] = scores

    def losses(
        self, part: GridJob, cell: tuple[int, ...], folds: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The losses of a cell on the rows of these folds, or its scores, and their weights."""
        outcome = Outcome(part, cell, list(folds))
        if self.loss is None:
            return np.array(self.of_folds(outcome, range(len(folds)))), np.ones(len(folds))
        values = outcome.values
        if self.of_probabilities:
            values = outcome.probabilities(outcome.weight)
        rows_finite = np.isfinite(values).reshape(len(outcome.y), -1).all(axis=1)
        losses, weights = _by_row(self.loss(values, outcome.y), outcome.weight)
        return np.where(rows_finite, losses, np.nan), weights


def _by_row(losses: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The losses (m,) of the rows and their weights; of several targets means over them."""
    if losses.ndim == 1:
        return losses, weight
    shares = np.broadcast_to(weight.reshape(len(losses), -1), losses.shape)
    total = shares.sum(axis=1)
    mean = np.sum(np.where(shares > 0, shares * losses, 0), axis=1) / np.where(total > 0, total, 1)
    return mean, total / losses.shape[1]


def class_numbers(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The numbers of the classes (m,) of targets, by the shape of decision values."""
    return (y > 0).astype(int) if values.ndim == 1 else y.astype(int)


def _error(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1 for a misclassified row."""
    predicted = values > 0 if values.ndim == 1 else np.argmax(values, axis=1)
    return predicted != class_numbers(values, y)


def _hinge(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The hinge loss."""
    if values.ndim > 1:
        raise ValueError(
            "score='risk' takes models with one value for each row; score many classes by 'error', "
            "or by a function of your own"
        )
    return np.maximum(0, 1 - y * values)


def _places(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The numbers of the classes (m,) of targets, by probabilities (m, k)."""
    return (y > 0).astype(int) if p.shape[1] == 2 else y.astype(int)


def _log_loss(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-log of the probability of a row's class, at most 36."""
    own = np.take_along_axis(p, _places(p, y)[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(own, np.finfo(p.dtype).eps))


def _brier(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """sum_c (p_c - [c is the row's class])^2; of two classes half of it."""
    difference = p - np.eye(p.shape[1])[_places(p, y)]
    return np.sum(difference**2, axis=1) / (2 if p.shape[1] == 2 else 1)


def _one_minus_auc(values: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """One minus the area under the ROC curve; of k classes the mean of each against the rest."""
    place = class_numbers(values, y)
    columns = columns_of(values, "rest").T
    one = [
        _area(f, np.where(place == c, weight, 0), np.where(place == c, 0, weight))
        for c, f in enumerate(columns, 1 if values.ndim == 1 else 0)
    ]
    return 1 - float(np.mean(one))


def _area(score: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> float:
    """The weighted share of pairs in which the positive row has the higher score; ties are half."""
    rank = np.unique(score, return_inverse=True)[1]
    above, below = (np.bincount(rank, weight) for weight in (positive, negative))
    total = above.sum() * below.sum()
    return float(above @ (np.cumsum(below) - below / 2) / total) if total > 0 else np.nan


_LOSSES: dict[tuple[str, bool], Callable] = {
    ("error", False): _error,
    ("risk", False): _hinge,
    ("log_loss", False): _log_loss,
    ("brier", False): _brier,
    ("error", True): lambda values, y: (values - y) ** 2,
    ("risk", True): lambda values, y: np.abs(values - y),
}
# of labels of which several may hold
_LOSSES_OF_COLUMNS: dict[tuple[str, bool], Callable] = {
    ("error", False): lambda values, y: (values > 0) != (y > 0),
    ("risk", False): lambda values, y: np.maximum(0, 1 - y * values),
}
