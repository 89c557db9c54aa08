"""The grid of cells and folds that `select` works on, and the fits to make."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..types import Array, Batch
from .selection_file import Results
from .threads import Limits, Progress


class Grid(NamedTuple):
    """The grid, and the data of its folds."""

    maker: Callable  # (one number of each axis by name) -> solver
    axes: dict[str, np.ndarray]
    order: list[np.ndarray]  # for each axis the indices from the strongest regularisation on
    data: Batch
    fold: np.ndarray  # (n,)  int32, -1: in all training sets
    key: Array
    tol: float | None
    steps: int | None

    @property
    def lines(self) -> list[list[tuple[int, ...]]]:
        """The cells along the first axis for all numbers of the others, by `order`."""
        rest = itertools.product(*self.order[:0:-1])
        return [[(int(i), *map(int, cell[::-1])) for i in self.order[0]] for cell in rest]

    def solver(self, cell: tuple[int, ...]) -> Any:
        """The solver of a cell, of Python's numbers."""
        pairs = zip(self.axes.items(), cell, strict=True)
        return self.maker(**{name: values[i].item() for (name, values), i in pairs})

    def without(self, fold: int) -> Batch:
        """The data with weight 0 for the rows of a fold."""
        weight: Any = np.array(self.data.weight)
        weight[self.fold == fold] = 0
        return self.data._replace(weight=weight)


class GridJob(NamedTuple):
    """Fits to make: some folds of some cells, and what they need."""

    grid: Grid
    folds: tuple[int, ...]
    wanted: np.ndarray  # bool, of the grid's shape: the cells
    results: Results
    limits: Limits
    progress: Progress
    memory: float | None
    threads: int

    def is_done(self, cells: list[tuple[int, ...]], folds: tuple[int, ...]) -> bool:
        """Whether the results hold all wanted fits of these cells and folds."""
        done = self.results.arrays["done"]
        return all(done[cell][list(folds)].all() for cell in cells if self.wanted[cell])

    def record(self, cells: list, fold: int, values: np.ndarray, **numbers: np.ndarray) -> None:
        """Keep the fits of the wanted cells: values (cells, m, ...) and numbers (cells,) each."""
        rows = np.flatnonzero(self.grid.fold == fold)
        wanted = [i for i, cell in enumerate(cells) if self.wanted[cell]]
        for i in wanted:
            own = {name: number[i] for name, number in numbers.items()}
            self.results.record(cells[i], fold, rows, values[i, : len(rows)], own)
        self.progress.add(len(wanted))
        self.limits.has_fit = True
        self.results.write()


def held_rows(fold: np.ndarray) -> np.ndarray:
    """The rows of each fold, (folds, m); -1: padding."""
    rows = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
    index = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for place, own in zip(index, rows, strict=True):
        place[: len(own)] = own
    return index
