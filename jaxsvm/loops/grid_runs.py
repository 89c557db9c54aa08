"""The grid of cells and folds that `select` works on, and the threads that make its fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..recipe import Recipe, fields_of
from ..types import Array, Batch
from .selection_file import ResultFile, Results
from .threads import Limits, Progress


class Grid(NamedTuple):
    """The grid, and the data of its folds."""

    maker: Callable  # (one number of each axis by name) -> solver
    axes: dict[str, np.ndarray]
    order: list[np.ndarray]  # for each axis the indices from the strongest regularisation on
    data: Batch
    fold: np.ndarray  # (n,)  int32, -1: in all training sets
    folds: int
    key: Array
    tol: float | None
    steps: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(len(numbers) for numbers in self.axes.values())

    @property
    def cells(self) -> list[tuple[int, ...]]:
        """All cells, from the strongest regularisation on, the first axis fastest."""
        grids = np.meshgrid(*self.order[::-1], indexing="ij")
        return [tuple(map(int, cell[::-1])) for cell in zip(*map(np.ravel, grids), strict=True)]

    def numbers(self, cell: tuple[int, ...]) -> dict[str, Any]:
        """The numbers of a cell by axis, as Python's."""
        return {
            name: values[i].item()
            for (name, values), i in zip(self.axes.items(), cell, strict=True)
        }

    def solver(self, cell: tuple[int, ...]) -> Any:
        """The solver of a cell, which stops at `tol`."""
        solver = self.maker(**self.numbers(cell))
        iterates = self.tol is not None and fields_of(solver).hooks.tol is not None
        return solver.bind(tol=self.tol) if iterates and isinstance(solver, Recipe) else solver

    def held_out(self, fold: int) -> np.ndarray:
        """The rows of a fold."""
        return np.flatnonzero(self.fold == fold)

    def without(self, fold: int) -> Batch:
        """The data with weight 0 for the rows of a fold."""
        weight = np.asarray(self.data.weight)
        left: Any = weight.copy()
        left[self.fold == fold] = 0
        return self.data._replace(weight=left)


class GridJob(NamedTuple):
    """Fits to make: some folds of some cells, and what they need."""

    grid: Grid
    folds: tuple[int, ...]
    wanted: np.ndarray  # bool, of the grid's shape: the cells
    results: Results
    file: ResultFile
    limits: Limits
    progress: Progress
    memory: float | None
    threads: int

    def is_done(self, cells: list[tuple[int, ...]], folds: tuple[int, ...]) -> bool:
        """Whether the results hold all wanted fits of these cells and folds."""
        done = self.results.arrays["done"]
        return all(done[cell][list(folds)].all() for cell in cells if self.wanted[cell])
