"""The fits of a grid as programs of `fit`, over all folds and the numbers of the first axis."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numerics import accum_dtype, depends_on, is_traced
from ..objectives import decision_values
from ..recipe import fields_of, unwrap_static
from ..samplers import uniform
from ..types import Array, Batch, Hooks, Lifted, SparseRows, take
from .fitting import MANY_ROWS, Inputs, begin, fit
from .grid_runs import Grid, GridJob
from .old import Old, as_argument
from .threads import may_overlap, run_jobs

RETAINED_BYTES = 2**31  # of features that are computed once for all runs of a program


def refit_fitted(grid: Grid, place: tuple[int, ...], memory: float | None) -> tuple[Any, None]:
    """The model of a cell trained on all rows; its certificate is not known."""
    solver = grid.maker(**grid.numbers(place))
    key = jax.random.clone(grid.key)  # all fits have the same
    run = fit(solver, grid.data, key, steps=grid.steps, tol=grid.tol)
    return run.model, None


def run_fitted(part: GridJob) -> None:
    """Make the fits by programs that hold all folds, and all numbers of the first axis.

    What does not depend on the first axis is computed once for all its numbers. A maker that reads
    its numbers, such as one that rounds them, gets one of them at a time. A program is left out
    where all its cells are.
    """
    grid, results = part.grid, part.results
    held = [grid.held_out(fold) for fold in part.folds]
    index = np.full((len(held), max(map(len, held))), -1, np.int32)
    for i, rows in enumerate(held):
        index[i, : len(rows)] = rows
    weights = np.stack([np.asarray(grid.without(fold).weight) for fold in part.folds])
    fields = fields_of(grid.maker(**grid.numbers(grid.cells[0])))
    args = jax.device_put((laid_out(fields, grid.data), weights, index)), grid.key, grid.tol
    jobs = [cells for cells in _jobs(part, args) if not part.is_done(cells, part.folds)]

    def work(cells: list[tuple[int, ...]]) -> None:
        begin = time.perf_counter()
        solver, flags = _solvers_of(grid, cells)
        data, key, tol = args[0], jax.random.clone(args[1]), args[2]
        options: Any = {"stacked": flags, "steps": grid.steps}
        outcome = _fit_cells(solver, len(cells), data, key, tol, **options)
        values, support = map(np.asarray, jax.block_until_ready(outcome))
        seconds = (time.perf_counter() - begin) / (len(cells) * len(held))
        wanted = [(i, cell) for i, cell in enumerate(cells) if part.wanted[cell]]
        for i, cell in wanted:
            for f, (fold, rows) in enumerate(zip(part.folds, held, strict=True)):
                numbers = {"support": support[i, f], "seconds": seconds}
                results.record(cell, fold, rows, values[i, f, : len(rows)], numbers)
        part.progress.add(len(wanted) * len(held))
        part.limits.has_fit = True
        part.file.write()

    if jobs:
        work(jobs[0])  # compiled once, before several threads ask for it
    if len(jobs) > 1:
        lowered = _lowered(grid, jobs[0], args) if part.threads > 1 else None
        threads = part.threads if lowered is None or may_overlap(lowered) else 1
        run_jobs(work, jobs[1:], threads, part.limits)


def laid_out(fields: Any, data: Batch) -> Batch:
    """The data; sparse rows in the layout of the solver, which no program can make."""
    if not isinstance(data.x, SparseRows) or fields.prepare is not Hooks().prepare:
        return data
    return fields.hooks.layout(data)


def _solvers_of(grid: Grid, cells: list[tuple[int, ...]]) -> tuple[Any, tuple]:
    """The solvers of a program as one, and which of its leaves are stacked."""
    stacked = _stacked_solvers(grid, cells) if len(cells) > 1 else None
    if stacked is not None:
        return stacked
    solver = as_argument(grid.maker(**grid.numbers(cells[0])), accum_dtype(grid.data.x))
    return solver, (False,) * len(jax.tree.leaves(solver))


def _lowered(grid: Grid, cells: list[tuple[int, ...]], args: tuple) -> Any:
    """The program of these cells before compilation."""
    solver, flags = _solvers_of(grid, cells)
    return _fit_cells.lower(solver, len(cells), *args, stacked=flags, steps=grid.steps)


def _jobs(part: GridJob, args: tuple) -> list[list[tuple[int, ...]]]:
    """The cells of each program."""
    grid = part.grid
    lines = [
        [(int(i), *cell[1:]) for i in grid.order[0]]
        for cell in grid.cells
        if cell[0] == grid.order[0][0]
    ]
    lines = [cells for cells in lines if not part.is_done(cells, part.folds)]
    stacked = _stacked_solvers(grid, lines[0]) if lines else None
    if stacked is None:
        return [[cell] for line in lines for cell in line]
    width = _width(stacked, len(lines[0]), args, grid.steps, part.memory)
    return [line[i : i + width] for line in lines for i in range(0, len(line), width)]


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
    """Decision values at the rows held out (cells, folds, m), and supports (cells, folds).

    The solvers are one, whose leaves are stacked where `stacked` is true. Their runs are vectorised
    if all start from `init`. Else those of a fold are a path of warm starts.
    """
    (data, weights, index), (leaves, tree) = arrays, jax.tree.flatten(solver)
    own = [leaf for leaf, flag in zip(leaves, stacked, strict=True) if flag]

    def solver_of(own: list[Array]) -> Any:
        own_leaves = iter(own)
        both = [
            next(own_leaves) if flag else leaf for leaf, flag in zip(leaves, stacked, strict=True)
        ]
        return unwrap_static(jax.tree.unflatten(tree, both))

    first_own = [leaf[0] for leaf in own]
    first = fields_of(solver_of(first_own))
    features = lambda own: fields_of(solver_of(own)).prepare(data).x
    state = jax.eval_shape(first.init, key, data)
    if not hasattr(state, "restart") or any(depends_on(features, first_own)):
        one_cell = lambda _, own: _fit_folds(solver_of(own), data, weights, index, key, tol, steps)
        return jax.vmap(one_cell)(jnp.arange(cells), own)
    data = with_features(first, data)

    def one_fold(weight: Array, rows: Array) -> tuple[Array, Array]:
        # a layout may hold the rows as they were
        plain = data._replace(x=getattr(data.x, "plain", data.x))
        train, held = data._replace(weight=weight), take(plain, rows)
        solver = as_argument(solver_of(first_own), accum_dtype(train.x))
        sampler = as_argument(first.sampler or uniform(1), accum_dtype(train.x))
        before = begin(Inputs(Old(solver), Old(sampler), None, train, train.x), key)

        def one_cell(start: Any, own: list[Array]) -> tuple[Any, tuple[Array, Array]]:
            run = fit(
                solver_of(own),
                train,
                steps=steps_of(first, steps, train),
                tol=tol,
                state=before._replace(solver=start),
            )
            outcome = decision_values(run.model, held), _support(run)
            return run.state.solver.restart(), outcome

        return lax.scan(one_cell, before.solver, own, length=cells)[1]

    if isinstance(data.x, jax.Array):
        return jax.vmap(one_fold, out_axes=1)(weights, index)
    # loops over the entries of sparse rows are fast one after the other
    found = lax.map(lambda fold: one_fold(*fold), (weights, index))
    return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), found)


def steps_of(fields: Any, steps: int | None, data: Batch) -> int | None:
    """The number of steps; None for a solver whose updates run until its tolerance is met.

    It is one where one is enough.
    """
    is_one = fields.hooks.tol is not None and fields.needs_all_rows and data.y.shape[0] < MANY_ROWS
    return 1 if is_one and steps is None else steps


def _support(run: Any) -> Array:
    support = run.info.support
    return support[-1] if support.shape[0] else jnp.zeros((), jnp.int32)


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
    fields = fields_of(solver)
    data = with_features(fields, data)

    def one_fold(weight: Array, rows: Array) -> tuple[Array, Array]:
        train = data._replace(weight=weight)
        run = fit(solver, train, key, steps=steps_of(fields, steps, train), tol=tol)
        return decision_values(run.model, take(data, rows)), _support(run)

    return jax.vmap(one_fold)(weights, index)


def with_features(fields: Any, data: Batch) -> Any:
    """The rows after the feature map of a solver, if it has one and they are not too large."""
    if fields.prepare is Hooks().prepare or isinstance(data, Lifted):
        return data
    features = jax.eval_shape(fields.prepare, data).x
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(features))
    return fields.prepare(data) if size <= RETAINED_BYTES else data
