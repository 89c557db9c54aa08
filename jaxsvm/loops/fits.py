"""The fits of a grid as programs of `fit`, over all folds and the numbers of the first axis."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._node import cast, same_number
from ..numerics import accum_dtype, depends_on
from ..objectives.evaluate import decision_values
from ..types import Array, Batch, Solver, SparseRows, row_weights, said, take
from ..wrappers.paths import SKIPPED, WARM, fit_paths, machine_of, most_rows
from .fitting import MANY_ROWS, MEMORY, fit, has_no_map, with_features
from .grid_runs import Grid, held_rows
from .sweeping import widest_program
from .threads import may_overlap


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Stack:
    """Solvers of one structure as one argument of a program."""

    own: list[Any]  # (cells, ...), the leaves that differ
    rest: list[Any]  # those that do not
    form: tuple = dataclasses.field(metadata={"static": True})  # structure, whether each differs

    @classmethod
    def of(cls, grid: Grid, cells: list[tuple[int, ...]]) -> Stack | None:
        """The solvers of these cells; None if their structures differ."""
        dtype = accum_dtype(grid.data.x)
        flat = [jax.tree.flatten(cast(grid.solver(cell), dtype)) for cell in cells]
        columns = list(zip(*(leaves for leaves, _ in flat), strict=False))
        if len({tree for _, tree in flat}) > 1:
            return None
        differs = tuple(any(not same_number(column[0], a) for a in column) for column in columns)
        part = lambda flag: [c for c, own in zip(columns, differs, strict=True) if own is flag]
        own, rest = [np.stack(column) for column in part(True)], [c[0] for c in part(False)]
        return cls(own, rest, (flat[0][1], differs))

    def solver(self, own: list[Any]) -> Any:
        """The solver of these leaves of one cell."""
        own_leaves, rest = iter(own), iter(self.rest)
        leaves = [next(own_leaves if flag else rest) for flag in self.form[1]]
        return jax.tree.unflatten(self.form[0], leaves)

    @property
    def first(self) -> Any:
        """The first solver."""
        return self.solver([leaf[0] for leaf in self.own])


def run_fits(grid: Grid) -> None:
    """Make the fits by programs that hold all folds, and all numbers of the first axis.

    What does not depend on the first axis is computed once for all its numbers. Cells whose solvers
    differ in structure have a program each. A program is left out where all its cells are.
    """
    lines, data = grid.lines, grid.data
    first, folds, held = grid.solver(lines[0][0]), list(grid.folds), held_rows(grid.fold)
    kernels = [m and m.kernel for m, _ in (machine_of(grid.solver(cell)) for cell in lines[0])]
    if Stack.of(grid, lines[0]) is None or any(kernel != kernels[0] for kernel in kernels):
        lines = [[cell] for line in lines for cell in line]
    lines = [line for line in lines if not grid.is_done(line)]
    if isinstance(data.x, SparseRows) and has_no_map(first, data):
        data = first.layout(data)  # which no program can make of sparse rows
    weights = np.stack([np.asarray(grid.without(fold).weight) for fold in folds])
    rows = jax.device_put((data, weights, held[folds]))
    given = rows, grid.key, grid.tol
    lower = lambda cells: _fit_cells.lower(Stack.of(grid, cells), *given, steps=grid.steps)
    program: Any = functools.partial(_fit_cells, steps=grid.steps)
    if kernels[0] is not None:
        train = np.asarray(data.weight)[None] if held.shape[1] == 1 else weights
        room = MEMORY if grid.memory is None else grid.memory
        fits = len(grid.fold) ** 2 * data.y.dtype.itemsize <= room
        most = most_rows(machine_of(first)[1], data, train)
        run = runner(grid.steps)
        program = functools.partial(fit_paths, run=run, size=most, is_matrix=fits)
    elif lines and grid.memory is not None:
        part = lambda n: lower(lines[0][:n])
        width = widest_program(part, len(lines[0]), grid.memory, of_folds=True)[1]
        lines = [line[i : i + width] for line in lines for i in range(0, len(line), width)]

    def work(cells: list[tuple[int, ...]]) -> None:
        began, own, machine = time.perf_counter(), rows, machine_of(grid.solver(cells[0]))[0]
        if machine is not None:  # on the host, as the values of rows decide
            how = np.where(grid.wanted[tuple(np.transpose(cells))], WARM, SKIPPED)
            own = (*rows, machine.kernel.layout(row_weights(data)).x, how)
        found = program(Stack.of(grid, cells), own, jax.random.clone(grid.key), grid.tol)
        values, numbers = jax.tree.map(np.asarray, jax.block_until_ready(found))
        seconds = (time.perf_counter() - began) / (len(cells) * len(folds))
        numbers["seconds"] = np.full((len(cells), len(folds)), seconds)
        for f, fold in enumerate(folds):
            parts = {name: number[:, f] for name, number in numbers.items()}
            grid.record(cells, fold, values[:, f], **parts)

    grid.jobs.run(work, lines[:1], 1)  # compiled once, before several threads ask for it
    several = grid.threads > 1 and len(lines) > 1
    waits = several and kernels[0] is None and not may_overlap(lower(lines[1]))
    grid.jobs.run(work, lines[1:], 1 if waits else grid.threads)


@functools.cache
def runner(steps: int | None) -> Callable:
    """The function that makes a fit of a solver on a part of the rows."""
    return lambda solver, data, key, tol: fit(
        solver, data, key, steps=steps_of(solver, steps, data), tol=tol
    )


@functools.partial(jax.jit, static_argnames=("steps",))
def _fit_cells(
    stack: Stack, arrays: tuple[Batch, Array, Array], key: Array, tol: float, *, steps: int | None
) -> tuple[Array, dict]:
    """Decision values at the rows held out (cells, folds, m), and numbers (cells, folds).

    The runs are vectorised if all start from `init`. Else those of a fold are a path of warm
    starts.
    """
    (data, weights, index), first = arrays, stack.first
    features = lambda own: stack.solver(own).prepare(data).x
    first_own = [leaf[0] for leaf in stack.own]
    cells = stack.own[0].shape[0] if stack.own else 1

    def outcome_of(run: Any, held: Batch) -> tuple[Array, dict]:
        support = run.info.support
        last = support[-1] if support.shape[0] else jnp.zeros((), jnp.int32)
        return decision_values(run.model, held), {"support": last}

    restarts = said(jax.eval_shape(first.init, key, data), "restart") is not None
    if not restarts or any(depends_on(features, first_own)):

        def one_cell(_: Array, own: list[Array]) -> tuple[Array, dict]:
            solver = stack.solver(own)
            rows = with_features(solver, data)

            def one_fold(weight: Array, held: Array) -> tuple[Array, dict]:
                train = rows._replace(weight=weight)
                return outcome_of(runner(steps)(solver, train, key, tol), take(rows, held))

            return jax.vmap(one_fold)(weights, index)

        return jax.vmap(one_cell)(jnp.arange(cells), stack.own)
    rows = with_features(stack.first, data)

    def one_path(weight: Array, held: Array) -> tuple[Array, dict]:
        # a layout may hold the rows as they were
        plain = take(rows._replace(x=getattr(rows.x, "plain", rows.x)), held)
        train = rows._replace(weight=weight)
        before = fit(first, train, key, steps=0).state._replace(origin=None)

        def next_cell(start: object, own: list[Array]) -> tuple[Any, tuple[Array, dict]]:
            solver, state = stack.solver(own), before._replace(solver=start)
            run = fit(solver, train, steps=steps_of(first, steps, train), tol=tol, state=state)
            return run.state.solver.restart(), outcome_of(run, plain)

        return lax.scan(next_cell, before.solver, stack.own, length=cells)[1]

    if isinstance(rows.x, jax.Array):
        return jax.vmap(one_path, out_axes=1)(weights, index)
    # loops over the entries of sparse rows are fast one after the other
    found = lax.map(lambda fold: one_path(*fold), (weights, index))
    return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), found)


def steps_of(solver: Solver, steps: int | None, data: Batch) -> int | None:
    """The number of steps; None for a solver whose updates run until its tolerance is met.

    It is one where one is enough.
    """
    is_one = solver.iterates_to is not None and solver.needs_all_rows
    return 1 if steps is None and is_one and data.y.shape[0] < MANY_ROWS else steps
