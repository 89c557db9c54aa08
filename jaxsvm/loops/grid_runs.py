"""The fits of a grid of cells and folds: on top of what they share, or as programs of `fit`."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..numerics import accum_dtype, is_traced
from ..objectives import decision_values
from ..recipe import fields_of, unwrap_static
from ..types import Array, Batch, Certificate, Lifted, Solver, take
from .fit import as_argument, fit
from .progress import Bar
from .selection_file import ResultFile, Results

SHARED_BYTES = 2**31  # of what runs share, where the call names no `memory`
RETAINED_BYTES = 2**31  # of features that are computed once for all runs of a program


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
        with_tol = fields_of(solver).with_tol
        return solver if self.tol is None or with_tol is None else with_tol(self.tol)

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


# Runs on top of what they share


class _Group:
    """Cells that share the result of `Sharing.prepare`."""

    def __init__(
        self, number: int, cells: list[tuple[int, ...]], solvers: list[Any], dtype: Any
    ) -> None:
        self.number, self.cells, self.solvers = number, cells, solvers
        # once for each solver, as an attribute of a recipe calls its factory
        self.sharing = [fields_of(solver).sharing for solver in solvers]
        self.arguments = [as_argument(solver, dtype) for solver in solvers]
        self.lock = threading.Lock()
        self.shared: Any = None
        self.left = 0  # folds to come
        # the runs on all rows, if a fold is a single row
        self.whole: list[Any] = []


def _run(solver: Any, shared: Any, data: Batch, state: Any) -> tuple[Any, Any]:
    return fields_of(unwrap_static(solver)).sharing.solve(shared, data, state)


_solve, _solve_in_place = jax.jit(_run), jax.jit(_run, donate_argnums=(1,))


def _solve_from(group: _Group, k: int, shared: Any, data: Batch, state: Any) -> tuple[Any, Any]:
    """What runs share after a run of solver k, and the end of the run, on the host."""
    start = group.sharing[k].start(shared, data, state)
    solve = _solve_in_place if shared.changes else _solve
    shared, end = solve(group.arguments[k], shared, data, start)
    return shared, jax.tree.map(np.asarray, jax.block_until_ready(end))


def groups_of(grid: Grid) -> list[_Group]:
    """The cells by what they share."""
    groups: dict[Any, tuple[list, list]] = {}
    for cell in grid.cells:
        solver = grid.solver(cell)
        sharing = fields_of(solver).sharing
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


def run_shared(
    grid: Grid,
    results: Results,
    file: ResultFile,
    limits: Limits,
    progress: Progress,
    memory: float | None,
    threads: int,
) -> None:
    """Make the fits group by group.

    The fits of a fold in a group are a path: each starts from the solution before it. Several folds
    are worked on at once.
    """
    memory = SHARED_BYTES if memory is None else memory
    groups = groups_of(grid)
    size = max(group.sharing[0].size(grid.data) for group in groups)
    # two groups at once, so that no thread waits for the last fold of a group
    in_memory = 2 if 2 * size <= memory else 1
    slots = threading.Semaphore(in_memory)
    single_rows = bool(np.bincount(grid.fold[grid.fold >= 0]).max() == 1)
    if size > memory:
        threads = 1

    def has_shared(group: _Group) -> bool:
        """Whether the group has what its runs share; waits until there is room for it."""
        with group.lock:
            if group.shared is not None:
                return True
            while not slots.acquire(timeout=0.1):
                if limits.stopped:
                    return False
            group.shared = group.sharing[0].prepare(grid.data, memory)
            if single_rows:
                run_whole(group)
            return True

    def run_whole(group: _Group) -> None:
        """The runs on all rows: without a row of coefficient 0 the solution is the same."""
        state = group.sharing[0].init(grid.data)
        for k in range(len(group.cells)):
            shared, state = _solve_from(group, k, group.shared, grid.data, state)
            group.whole.append(state)
            if group.shared.changes:
                group.shared = shared

    def one_path(job: tuple[_Group, int]) -> None:
        group, fold = job
        if not has_shared(group):
            return
        run_path(group, fold)
        with group.lock:
            group.left -= 1
            if group.left:
                return
            group.shared, group.whole = None, []
            slots.release()
        if _is_complete(group, grid, results):
            certify_group(grid, group, results)
            file.write()

    def run_path(group: _Group, fold: int) -> None:
        place = group.number, fold
        leaves = results.paths.get(place, [])
        first = group.sharing[0]
        train = grid.without(fold)
        state = first.init(train)
        tree = jax.tree.structure(state)
        if leaves:
            state = jax.tree.unflatten(tree, [leaf[-1] for leaf in leaves[:-1]])
        start_at = len(leaves[0]) if leaves else 0
        row = grid.held_out(fold)[0]
        for k in range(start_at, len(group.cells)):
            if limits.stopped:
                return
            begin = time.perf_counter()
            if single_rows and not first.supports(group.whole[k])[row]:
                state = group.whole[k]  # a solution without the row too; only b may be another
            shared, state = _solve_from(group, k, group.shared, train, state)
            if group.shared.changes:
                group.shared = shared
            seconds = np.asarray(time.perf_counter() - begin)
            new = [np.asarray(leaf)[None] for leaf in (*jax.tree.leaves(state), seconds)]
            joined = (
                [np.concatenate(pair) for pair in zip(leaves, new, strict=True)] if leaves else new
            )
            leaves = joined
            with results.lock:
                results.paths[place] = leaves
            progress.add(1)
            limits.has_fit = True
            file.write()

    jobs = []
    for group in groups:
        if all(results.arrays["done"][cell].all() for cell in group.cells):
            continue
        for fold in range(grid.folds):
            jobs.append((group, fold))
            group.left += 1
    run_jobs(one_path, jobs, threads, limits)
    for group in groups:  # where the time was over
        if any((group.number, fold) in results.paths for fold in range(grid.folds)):
            certify_group(grid, group, results)


def _is_complete(group: _Group, grid: Grid, results: Results) -> bool:
    """Whether all runs of a group are made."""
    paths = [results.paths.get((group.number, fold)) for fold in range(grid.folds)]
    return all(path is not None and len(path[0]) == len(group.cells) for path in paths)


def certify_group(grid: Grid, group: _Group, results: Results) -> None:
    """Work out scores and certificates of all runs of a group, and record them."""
    complete = _is_complete(group, grid, results)
    first = group.sharing[0]
    tree = jax.tree.structure(first.init(grid.data))
    folds = [fold for fold in range(grid.folds) if (group.number, fold) in results.paths]
    paths = [results.paths[group.number, fold] for fold in folds]
    # cells of a fold after each other, as the products of all are one
    stacked = [np.concatenate(leaves) for leaves in zip(*paths, strict=True)]
    states = jax.tree.unflatten(tree, stacked[:-1])
    products = np.asarray(first.products(grid.data, states))
    runs = [(fold, k) for fold, path in zip(folds, paths, strict=True) for k in range(len(path[0]))]
    for i, (fold, k) in enumerate(runs):
        sharing = group.sharing[k]
        state = jax.tree.map(lambda a, i=i: a[i], states)
        values, certificate, support = sharing.certify(grid.without(fold), state, products[i])
        rows, primal = grid.held_out(fold), float(certificate.primal)
        numbers = {
            "primal": primal,
            "gap": float(certificate.gap) / primal if primal > 0 else 0.0,
            "support": support,
            "seconds": float(stacked[-1][i]),
        }
        results.record(group.cells[k], fold, rows, np.asarray(values)[rows], numbers)
    with results.lock:
        for fold in folds if complete else []:
            del results.paths[group.number, fold]


def refit_shared(
    grid: Grid, place: tuple[int, ...], memory: float | None
) -> tuple[Any, Certificate]:
    """The model of a cell trained on all rows, and its certificate, by the programs of the grid."""
    group = next(group for group in groups_of(grid) if place in group.cells)
    data, k = grid.data, group.cells.index(place)
    sharing = group.sharing[k]
    shared = sharing.prepare(data, SHARED_BYTES if memory is None else memory)
    _, state = _solve_from(group, k, shared, data, sharing.init(data))
    # as many states as in the grid, so that the program is that of the grid
    repeat = lambda a: np.broadcast_to(a, (len(group.cells) * grid.folds, *np.shape(a)))
    product = np.asarray(sharing.products(data, jax.tree.map(repeat, state)))[0]
    certificate = sharing.certify(data, state, product)[1]
    return sharing.model(data, state), certificate


# Runs as programs of `fit`


def refit_fitted(grid: Grid, place: tuple[int, ...], memory: float | None) -> tuple[Any, None]:
    """The model of a cell trained on all rows; its certificate is not known."""
    solver = grid.maker(**grid.numbers(place))
    run = fit(solver, grid.data, grid.key, steps=grid.steps, tol=grid.tol)
    return run.model, None


def run_fitted(
    grid: Grid,
    results: Results,
    file: ResultFile,
    limits: Limits,
    progress: Progress,
    memory: float | None,
    threads: int,
) -> None:
    """Make the fits by programs that hold all folds, and all numbers of the first axis.

    What does not depend on the first axis is computed once for all its numbers. A maker that reads
    its numbers, such as one that rounds them, gets one of them at a time.
    """
    held = [grid.held_out(fold) for fold in range(grid.folds)]
    index = np.full((grid.folds, max(map(len, held))), -1, np.int32)
    for i, rows in enumerate(held):
        index[i, : len(rows)] = rows
    weights = np.stack([np.asarray(grid.without(fold).weight) for fold in range(grid.folds)])
    args = jax.device_put((grid.data, weights, index)), grid.key, grid.tol
    rows_of_grid = [
        [(i, *cell[1:]) for i in range(grid.shape[0])]
        for cell in grid.cells
        if cell[0] == grid.order[0][0]
    ]
    jobs = [cells for cells in rows_of_grid if not _all_done(results, cells)]
    if jobs and (stacked := _stacked_solvers(grid, jobs[0])) is not None:
        width = _width(stacked, len(jobs[0]), args, grid.steps, memory)
        jobs = [row[i : i + width] for row in jobs for i in range(0, len(row), width)]
    else:
        jobs = [[cell] for row in jobs for cell in row]
    jobs = [cells for cells in jobs if not _all_done(results, cells)]

    def work(cells: list[tuple[int, ...]]) -> None:
        begin = time.perf_counter()
        stacked = _stacked_solvers(grid, cells) if len(cells) > 1 else None
        if stacked is None:
            solver = as_argument(grid.maker(**grid.numbers(cells[0])), accum_dtype(grid.data.x))
            stacked = solver, (False,) * len(jax.tree.leaves(solver))
        solver, flags = stacked
        outcome = _fit_cells(solver, len(cells), *args, stacked=flags, steps=grid.steps)
        values, support = map(np.asarray, jax.block_until_ready(outcome))
        seconds = (time.perf_counter() - begin) / (len(cells) * grid.folds)
        for i, cell in enumerate(cells):
            for fold, rows in enumerate(held):
                numbers = {"support": support[i, fold], "seconds": seconds}
                results.record(cell, fold, rows, values[i, fold, : len(rows)], numbers)
        progress.add(len(cells) * grid.folds)
        limits.has_fit = True
        file.write()

    if jobs:
        work(jobs[0])  # compiled once, before several threads ask for it
        run_jobs(work, jobs[1:], threads, limits)


def _all_done(results: Results, cells: list[tuple[int, ...]]) -> bool:
    return all(results.arrays["done"][cell].all() for cell in cells)


def _stacked_solvers(grid: Grid, cells: list[tuple[int, ...]]) -> tuple[Any, tuple] | None:
    """The solvers of cells along the first axis as one, and which of its leaves are stacked.

    None if the maker does not work on numbers without values, or if they are structure, as integers
    are as a rule.
    """
    first, numbers = next(iter(grid.axes.items()))
    if numbers.dtype.kind != "f":
        return None
    others = {name: value for name, value in grid.numbers(cells[0]).items() if name != first}
    solvers: list[Any] = []

    def solver_at(number: Array) -> list[Array]:
        solver = as_argument(grid.maker(**{first: number}, **others), accum_dtype(grid.data.x))
        leaves, tree = jax.tree.flatten(solver)
        flags = tuple(is_traced(leaf) for leaf in leaves)
        # what does not depend on the number was computed outside of the trace
        solvers.append(
            (tree, flags, [None if f else a for a, f in zip(leaves, flags, strict=True)])
        )
        return [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

    try:
        stack = iter(jax.vmap(solver_at)(jnp.asarray(numbers[[cell[0] for cell in cells]])))
    except Exception:  # whatever a maker does to numbers that have no values
        return None
    tree, flags, leaves = solvers[-1]
    leaves = [next(stack) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
    return jax.tree.unflatten(tree, leaves), flags


def _width(
    stacked: tuple[Any, tuple], cells: int, args: tuple, steps: int | None, memory: float | None
) -> int:
    """The number of cells of a program that fits `memory`, at most `cells`.

    Raises:
        ValueError: a single cell does not fit.
    """
    solver, flags = stacked
    while memory is not None:
        leaves, tree = jax.tree.flatten(solver)
        part = [a[:cells] if flag else a for a, flag in zip(leaves, flags, strict=True)]
        part_solver = jax.tree.unflatten(tree, part)
        lowered = _fit_cells.lower(part_solver, cells, *args, stacked=flags, steps=steps)
        analysis: Any = lowered.compile().memory_analysis()
        size = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        if size <= memory:
            break
        if cells == 1:
            raise ValueError(
                f"the folds of one cell take {size:.3g} bytes, memory={memory:.3g}: raise memory, "
                "or use fewer folds, features or rows"
            )
        cells = -(-cells // 2)
    return cells


@functools.partial(jax.jit, static_argnames=("cells", "stacked", "steps"))
def _fit_cells(
    solver: Any,
    cells: int,
    arrays: tuple[Batch, Array, Array],
    key: Array,
    tol: Any,
    *,
    stacked: tuple[bool, ...],
    steps: int | None,
) -> tuple[Array, Array]:
    """`_fit_folds` for several solvers, whose leaves are stacked where `stacked` is true."""
    (data, weights, index), (leaves, tree) = arrays, jax.tree.flatten(solver)
    own = [leaf for leaf, flag in zip(leaves, stacked, strict=True) if flag]

    def one_cell(_: Array, own: list[Array]) -> tuple[Array, Array]:
        own_leaves = iter(own)
        both = [
            next(own_leaves) if flag else leaf for leaf, flag in zip(leaves, stacked, strict=True)
        ]
        one = jax.tree.unflatten(tree, both)
        return _fit_folds(one, data, weights, index, key, tol, steps)

    return jax.vmap(one_cell)(jnp.arange(cells), own)


def _fit_folds(
    solver: Any,
    data: Batch,
    weights: Array,
    index: Array,
    key: Array,
    tol: Any,
    steps: int | None,
) -> tuple[Array, Array]:
    """Decision values (folds, m) at the rows held out, and the support of each fit (folds,)."""
    solver = unwrap_static(solver)
    fields = fields_of(solver)
    if fields.with_tol is not None and steps is None:
        steps = 1  # an update runs until its tolerance is met
    data = with_features(fields, data)

    def one_fold(weight: Array, rows: Array) -> tuple[Array, Array]:
        run = fit(solver, data._replace(weight=weight), key, steps=steps, tol=tol)
        values = decision_values(run.model, take(data, rows))
        support = run.info.support
        return values, support[-1] if support.shape[0] else jnp.zeros((), jnp.int32)

    return jax.vmap(one_fold)(weights, index)


def with_features(fields: Any, data: Batch) -> Any:
    """The rows after the feature map of a solver, if it has one and they are not too large."""
    if fields.prepare is Solver._field_defaults["prepare"] or isinstance(data, Lifted):
        return data
    features = jax.eval_shape(fields.prepare, data).x
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(features))
    return fields.prepare(data) if size <= RETAINED_BYTES else data
