"""The fits of a grid on top of what they share, such as a kernel matrix: paths of warm starts."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import numpy as np

from ..numerics import accum_dtype
from ..recipe import sharing_of
from ..types import Batch, Certificate
from .grid_runs import Grid, GridJob
from .old import as_argument
from .threads import run_jobs

SHARED_BYTES = 2**31  # of what runs share, where the call names no `memory`


class _Group:
    """Cells that share the result of `Sharing.prepare`."""

    def __init__(
        self, number: int, cells: list[tuple[int, ...]], solvers: list[Any], dtype: Any
    ) -> None:
        self.number, self.cells, self.solvers = number, cells, solvers
        # once for each solver, as an attribute of a recipe calls its factory
        self.sharing: list[Any] = [sharing_of(solver) for solver in solvers]
        self.arguments = [as_argument(solver, dtype) for solver in solvers]
        self.lock = threading.Lock()
        self.shared: Any = None
        self.folds_left = 0  # folds to come
        # the runs on all rows, if a fold is a single row
        self.full_data_runs: list[Any] = []

    def solve(self, k: int, shared: Any, data: Batch, state: Any) -> tuple[Any, Any]:
        """What runs share after a run of solver k, and the end of the run, on the host."""
        start = self.sharing[k].start(shared, data, state)
        solve = _solve_in_place if shared.changes else _solve
        shared, end = solve(self.arguments[k], shared, data, start)
        return shared, jax.tree.map(np.asarray, jax.block_until_ready(end))


def _run(solver: Any, shared: Any, data: Batch, state: Any) -> tuple[Any, Any]:
    sharing: Any = sharing_of(solver)
    return sharing.solve(shared, data, state)


_solve, _solve_in_place = jax.jit(_run), jax.jit(_run, donate_argnums=(1,))


def groups_of(grid: Grid) -> list[_Group]:
    """The cells by what they share."""
    groups: dict[Any, tuple[list, list]] = {}
    for cell in grid.cells:
        solver = grid.solver(cell)
        sharing = sharing_of(solver)
        if sharing is None:
            raise ValueError(
                f"the solver at {grid.numbers(cell)} is of another kind than that of the first "
                "cell: call select once for each kind"
            )
        leaves, tree = jax.tree.flatten(sharing.key)
        key = tree, tuple((np.asarray(leaf).tobytes(), np.shape(leaf)) for leaf in leaves)
        cells, solvers = groups.setdefault(key, ([], []))
        cells.append(cell)
        solvers.append(solver)
    dtype = accum_dtype(grid.data.x)
    return [_Group(i, *members, dtype) for i, members in enumerate(groups.values())]


def run_shared(part: GridJob) -> None:
    """Make the fits group by group.

    The fits of a fold in a group are a path: each starts from the solution before it. Several folds
    are worked on at once.
    """
    runs = _SharedRuns(part)
    run_jobs(runs.run_fold, runs.jobs(), runs.threads, part.limits)
    for group in runs.groups:  # where the time was over
        if any((group.number, fold) in part.results.paths for fold in part.folds):
            certify_group(part, group)


class _SharedRuns:
    """The fits of a part of the grid, by several threads."""

    def __init__(self, part: GridJob) -> None:
        grid, self.part = part.grid, part
        self.groups = groups_of(grid)
        self.memory = SHARED_BYTES if part.memory is None else part.memory
        size = max(group.sharing[0].size(grid.data) for group in self.groups)
        # two groups at once, so that no thread waits for the last fold of a group
        self.slots = threading.Semaphore(2 if 2 * size <= self.memory else 1)
        self.threads = part.threads if size <= self.memory else 1
        self.single_rows = bool(np.max(np.bincount(grid.fold[grid.fold >= 0])) == 1)

    def jobs(self) -> list[tuple[_Group, int]]:
        """The folds of each group in which a fit is left to make."""
        jobs, part = [], self.part
        for group in self.groups:
            if part.is_done(group.cells, part.folds):
                continue
            jobs += [(group, fold) for fold in part.folds]
            group.folds_left = len(part.folds)
        return jobs

    def run_fold(self, job: tuple[_Group, int]) -> None:
        """The path of a fold; the last one of a group certifies all."""
        group, fold = job
        if not self.has_shared(group):
            return
        self.run_path(group, fold)
        with group.lock:
            group.folds_left -= 1
            if group.folds_left:
                return
            group.shared, group.full_data_runs = None, []
            self.slots.release()
        if _is_complete(self.part, group):
            certify_group(self.part, group)
            self.part.file.write()

    def has_shared(self, group: _Group) -> bool:
        """Whether the group has what its runs share; waits until there is room for it."""
        with group.lock:
            if group.shared is not None:
                return True
            while not self.slots.acquire(timeout=0.1):
                if self.part.limits.stopped:
                    return False
            group.shared = group.sharing[0].prepare(self.part.grid.data, self.memory)
            if self.single_rows:
                self.run_whole(group)
            return True

    def run_whole(self, group: _Group) -> None:
        """The runs on all rows: without a row of coefficient 0 the solution is the same."""
        data = self.part.grid.data
        state = group.sharing[0].init(data)
        for k in range(len(group.cells)):
            shared, state = group.solve(k, group.shared, data, state)
            group.full_data_runs.append(state)
            if group.shared.changes:
                group.shared = shared

    def run_path(self, group: _Group, fold: int) -> None:
        """The fits of a group without a fold, from the end of those that were made before."""
        grid, results, limits = self.part.grid, self.part.results, self.part.limits
        place, first = (group.number, fold), group.sharing[0]
        train, row = grid.without(fold), grid.held_out(fold)[0]
        state = first.init(train)
        leaves = results.paths.get(place, [])
        if leaves:
            self.part.file.check_path(leaves, state)
            state = jax.tree.unflatten(
                jax.tree.structure(state), [leaf[-1] for leaf in leaves[:-1]]
            )
        for k in range(len(leaves[0]) if leaves else 0, len(group.cells)):
            if limits.stopped:
                return
            begin, is_wanted = time.perf_counter(), self.part.wanted[group.cells[k]]
            if is_wanted and self.single_rows and not first.supports(group.full_data_runs[k])[row]:
                state = group.full_data_runs[
                    k
                ]  # a solution without the row too; only b may be another
            if is_wanted:
                shared, state = group.solve(k, group.shared, train, state)
                if group.shared.changes:
                    group.shared = shared
            seconds = np.asarray(time.perf_counter() - begin if is_wanted else np.nan)
            new = [np.asarray(leaf)[None] for leaf in (*jax.tree.leaves(state), seconds)]
            pairs = zip(leaves, new, strict=True)
            leaves = [np.concatenate(pair) for pair in pairs] if leaves else new
            with results.lock:
                results.paths[place] = leaves
            if is_wanted:
                self.part.progress.add(1)
                limits.has_fit = True
                self.part.file.write()


def _is_complete(part: GridJob, group: _Group) -> bool:
    """Whether the paths of all folds of the part are at their end."""
    paths = [part.results.paths.get((group.number, fold)) for fold in part.folds]
    return all(path is not None and len(path[0]) == len(group.cells) for path in paths)


def certify_group(part: GridJob, group: _Group) -> None:
    """Work out scores and certificates of the runs of a group, and record them."""
    grid, results = part.grid, part.results
    first = group.sharing[0]
    state = first.init(grid.data)
    folds = [fold for fold in part.folds if (group.number, fold) in results.paths]
    paths = [results.paths[group.number, fold] for fold in folds]
    for path in paths:
        part.file.check_path(path, state)
    # cells of a fold after each other, as the products of all are one
    stacked = [np.concatenate(leaves) for leaves in zip(*paths, strict=True)]
    states = jax.tree.unflatten(jax.tree.structure(state), stacked[:-1])
    products = np.asarray(first.products(grid.data, states))
    runs = [(fold, k) for fold, path in zip(folds, paths, strict=True) for k in range(len(path[0]))]
    for i, (fold, k) in enumerate(runs):
        if not part.wanted[group.cells[k]]:
            continue
        state = jax.tree.map(lambda a, i=i: a[i], states)
        values, certificate, support = group.sharing[k].certify(
            grid.without(fold), state, products[i]
        )
        rows, primal = grid.held_out(fold), float(certificate.primal)
        numbers = {
            "primal": primal,
            "gap": float(certificate.gap) / primal if primal > 0 else 0.0,
            "support": support,
            "seconds": float(stacked[-1][i]),
        }
        results.record(group.cells[k], fold, rows, np.asarray(values)[rows], numbers)
    is_complete = _is_complete(part, group)
    with results.lock:
        for fold in folds if is_complete else []:
            del results.paths[group.number, fold]


def refit_shared(
    grid: Grid, place: tuple[int, ...], memory: float | None
) -> tuple[Any, Certificate]:
    """The model of a cell trained on all rows, and its certificate, by the programs of the grid."""
    group = next(group for group in groups_of(grid) if place in group.cells)
    data, k = grid.data, group.cells.index(place)
    sharing = group.sharing[k]
    shared = sharing.prepare(data, SHARED_BYTES if memory is None else memory)
    _, state = group.solve(k, shared, data, sharing.init(data))
    # as many states as in the grid, so that the program is that of the grid
    repeat = lambda a: np.broadcast_to(a, (len(group.cells) * grid.folds, *np.shape(a)))
    product = np.asarray(sharing.products(data, jax.tree.map(repeat, state)))[0]
    certificate = sharing.certify(data, state, product)[1]
    return sharing.model(data, state), certificate
