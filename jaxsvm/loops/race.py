"""The race of `select`: cells that are significantly worse are left out after some of the folds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .grid_runs import Grid

ROUNDS = 5  # at most; the first has two fifths of the folds
Z = 2.0  # standard errors by which a cell must be worse than the best one
FEWEST = 3  # folds, where only the score of a whole fold is known


def run_race(run: Callable, grid: Grid, losses: Callable) -> None:
    """Make the fits of some folds at a time, and leave out cells before the next ones.

    With l the losses of a cell, l* those of the cell of the least mean so far, on the same rows,

        d = l - l*,   left out if  mean(d) > Z se(d),   se(d)^2 = variance of d / their number.

    Args:
        run: makes the fits of a grid.
        grid: all cells and folds.
        losses: (grid, cell, folds so far) -> losses and weights of what is compared, the same for
            all cells.

    Reference: O. Maron, A. Moore, Hoeffding races, NIPS 1993; M. Birattari, T. Stuetzle, L.
        Paquete, K. Varrentrapp, A racing algorithm for configuring metaheuristics, GECCO 2002.
    """
    wanted = grid.wanted
    rounds = np.array_split(np.asarray(grid.folds), min(ROUNDS, len(grid.folds)))
    rounds = [np.concatenate(rounds[:2]), *rounds[2:]]
    known: tuple[int, ...] = ()
    for folds in rounds:
        next_folds = tuple(int(fold) for fold in folds)
        run(grid._replace(folds=next_folds, wanted=wanted))
        if grid.jobs.stopped:
            return
        known += next_folds
        wanted = wanted & ~_worse(grid, wanted, known, losses)


def _worse(grid: Grid, wanted: np.ndarray, folds: tuple[int, ...], losses: Callable) -> np.ndarray:
    """The cells that are significantly worse than the best one, as a mask of the grid."""
    cells = [cell for cell in np.ndindex(wanted.shape) if wanted[cell]]
    pairs = [losses(grid, cell, folds) for cell in cells]
    share = pairs[0][1] / pairs[0][1].sum()
    values = np.stack([value for value, _ in pairs])
    mean = values @ share  # not finite where a value is not
    worse = np.zeros(wanted.shape, bool)
    if not np.isfinite(mean).any():
        return worse
    difference = values - values[np.argmin(np.where(np.isfinite(mean), mean, np.inf))]
    average = difference @ share
    se = np.sqrt(np.sum((share * (difference - average[:, None])) ** 2, axis=1))
    is_worse = (average > Z * se) & (len(share) >= FEWEST)
    worse[tuple(np.transpose(cells))] = is_worse | ~np.isfinite(mean)
    return worse
