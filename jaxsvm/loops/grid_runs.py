"""The grid of cells and folds that `select` works on, and the fits to make."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..types import Array, Batch
from .selection import strength
from .selection_file import Results
from .threads import Jobs


class Grid(NamedTuple):
    """The grid, the data of its folds, and the fits to make."""

    maker: Callable  # (one number of each axis by name) -> solver
    axes: dict[str, np.ndarray]
    data: Batch
    fold: np.ndarray  # (n,)  int32, -1: in all training sets
    key: Array
    tol: float | None
    steps: int | None
    folds: tuple[int, ...]  # of the fits to make
    wanted: np.ndarray  # bool, of the grid's shape: the cells of these
    results: Results
    jobs: Jobs
    memory: float | None
    threads: int

    @property
    def lines(self) -> list[list[tuple[int, ...]]]:
        """The cells along the first axis for all numbers of the others, least `strength` first."""
        sizes = (strength(name, numbers) for name, numbers in self.axes.items())
        first, *others = (np.argsort(size, kind="stable").tolist() for size in sizes)
        return [[(i, *cell[::-1]) for i in first] for cell in itertools.product(*others[::-1])]

    def solver(self, cell: tuple[int, ...]) -> Any:
        """The solver of a cell, of Python's numbers."""
        pairs = zip(self.axes.items(), cell, strict=True)
        return self.maker(**{name: values[i].item() for (name, values), i in pairs})

    def without(self, fold: int) -> Batch:
        """The data with weight 0 for the rows of a fold."""
        weight: Any = np.array(self.data.weight)
        weight[self.fold == fold] = 0
        return self.data._replace(weight=weight)

    def is_done(self, cells: list[tuple[int, ...]]) -> bool:
        """Whether the results hold all wanted fits of these cells."""
        done = self.results.arrays["done"]
        return all(done[cell][list(self.folds)].all() for cell in cells if self.wanted[cell])

    def record(self, cells: list, fold: int, values: np.ndarray, **numbers: np.ndarray) -> None:
        """Keep the fits of the wanted cells: values (cells, m, ...) and numbers (cells,) each."""
        rows = np.flatnonzero(self.fold == fold)
        wanted = [i for i, cell in enumerate(cells) if self.wanted[cell]]
        for i in wanted:
            own = {name: number[i] for name, number in numbers.items()}
            self.results.record(cells[i], fold, rows, values[i, : len(rows)], own)
        self.jobs.add(len(wanted))
        self.results.write()


def held_rows(fold: np.ndarray) -> np.ndarray:
    """The rows of each fold, (folds, m); -1: padding."""
    rows = [np.flatnonzero(fold == k) for k in range(fold.max() + 1)]
    index = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for place, own in zip(index, rows, strict=True):
        place[: len(own)] = own
    return index
