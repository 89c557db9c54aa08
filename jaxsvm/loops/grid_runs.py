"""The grid of cells and folds that `select` works on, and the threads that make its fits."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..recipe import Recipe, fields_of
from ..types import Array, Batch
from .progress import Bar
from .selection_file import ResultFile, Results


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
        iterates = self.tol is not None and fields_of(solver).tol is not None
        return solver.bind(tol=self.tol) if iterates and isinstance(solver, Recipe) else solver

    def held_out(self, fold: int) -> np.ndarray:
        """The rows of a fold."""
        return np.flatnonzero(self.fold == fold)

    def without(self, fold: int) -> Batch:
        """The data with weight 0 for the rows of a fold."""
        weight = np.asarray(self.data.weight)
        left: Any = np.where(self.fold == fold, np.zeros((), weight.dtype), weight)
        return self.data._replace(weight=left)


class Limits:
    """When to stop: at the first of Ctrl-C, an error in another thread, and the time."""

    def __init__(self, seconds: float | None) -> None:
        """Start the clock."""
        self.event = threading.Event()
        self.end = None if seconds is None else time.monotonic() + seconds
        self.has_fit = False  # one fit is made in any case

    @property
    def out_of_time(self) -> bool:
        """Whether the time is over, and a fit was made."""
        return self.has_fit and self.end is not None and time.monotonic() > self.end

    @property
    def stopped(self) -> bool:
        """Whether no other fit may start."""
        return self.event.is_set() or self.out_of_time


class Progress:
    """Counts fits on a bar, for several threads."""

    def __init__(self, total: int, done: int, shown: bool) -> None:
        """The bar, if it is shown."""
        self.bar = Bar(total, "fits") if shown else None
        self.done, self.lock = done, threading.Lock()

    def add(self, count: int) -> None:
        """So many more fits are made."""
        with self.lock:
            self.done += count
            if self.bar:
                self.bar.show(self.done)

    def close(self) -> None:
        """End the line."""
        if self.bar:
            self.bar.close()


def run_jobs(work: Callable, jobs: list, threads: int, limits: Limits) -> None:
    """Do all jobs in their order, by several threads; an error of one ends the others."""
    pool = concurrent.futures.ThreadPoolExecutor(max(1, threads))

    def run_job(job: Any) -> None:
        try:
            if not limits.stopped:
                work(job)
        except BaseException:
            limits.event.set()
            raise

    try:
        for future in [pool.submit(run_job, job) for job in jobs]:
            future.result()
    finally:
        limits.event.set()
        pool.shutdown(wait=True, cancel_futures=True)
    limits.event.clear()


class Part(NamedTuple):
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
