"""The fits of a grid as programs of `fit`, over all folds and the numbers of the first axis."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numerics import accum_dtype, depends_on
from ..objectives import decision_values
from ..recipe import fields_of
from ..samplers import uniform
from ..types import Array, Batch, Hooks, Lifted, SparseRows, take
from .fitting import Inputs, begin, fit
from .grid_runs import Grid, GridJob, held_rows
from .machine_fits import run_machines
from .old import Old, as_argument
from .problems import machine_of
from .stacks import Stack, stacked_solvers, steps_of
from .threads import may_overlap, run_jobs

RETAINED_BYTES = 2**31  # of features that are computed once for all runs of a program


def refit(grid: Grid, cell: tuple[int, ...]) -> Any:
    """The model of a cell trained on all rows."""
    key = jax.random.clone(grid.key)  # all fits have the same
    return fit(grid.solver(cell), grid.data, key, steps=grid.steps, tol=grid.tol).model


def run_fits(part: GridJob) -> None:
    """Make the fits by programs that hold all folds, and all numbers of the first axis.

    What does not depend on the first axis is computed once for all its numbers. A maker that reads
    its numbers, such as one that rounds them, gets one of them at a time. A program is left out
    where all its cells are. Exact machines have programs of their own.
    """
    grid, lines = part.grid, part.grid.lines
    machines = [machine_of(grid.solver(cell))[0] for cell in lines[0]]
    stack = stacked_solvers(grid, lines[0])
    if stack is None or any(m and m.kernel != machines[0].kernel for m in machines):
        lines = [[cell] for line in lines for cell in line]
    if machines[0] is not None:
        return run_machines(part, lines)
    folds, data = list(part.folds), grid.data
    fields = fields_of(grid.solver(lines[0][0]))
    if isinstance(data.x, SparseRows) and fields.prepare is Hooks().prepare:
        data = fields.hooks.layout(data)  # which no program can make of sparse rows
    weights = np.stack([np.asarray(grid.without(fold).weight) for fold in folds])
    args = jax.device_put((data, weights, held_rows(grid.fold)[folds])), grid.key, grid.tol
    lines = [line for line in lines if not part.is_done(line, part.folds)]
    if lines and stack is not None:
        width = _width(stack, len(lines[0]), args, grid.steps, part.memory)
        lines = [line[i : i + width] for line in lines for i in range(0, len(line), width)]

    def work(cells: list[tuple[int, ...]]) -> None:
        begin = time.perf_counter()
        key = jax.random.clone(grid.key)
        outcome = _fit_cells(stacked_solvers(grid, cells), args[0], key, grid.tol, grid.steps)
        values, support = map(np.asarray, jax.block_until_ready(outcome))
        seconds = (time.perf_counter() - begin) / (len(cells) * len(folds))
        for f, fold in enumerate(folds):
            numbers = {"support": support[:, f], "seconds": np.full(len(cells), seconds)}
            part.record(cells, fold, values[:, f], **numbers)

    run_jobs(work, lines[:1], 1, part.limits)  # compiled once, before several threads ask for it
    threads = part.threads
    if threads > 1 and len(lines) > 1:
        lowered = _fit_cells.lower(stacked_solvers(grid, lines[0]), *args, grid.steps)
        threads = threads if may_overlap(lowered) else 1
    run_jobs(work, lines[1:], threads, part.limits)


def _width(stack: Any, cells: int, args: tuple, steps: int | None, memory: float | None) -> int:
    """The number of cells of a program that fits `memory`, at most `cells`.

    Raises:
        ValueError: a single cell does not fit.
    """
    while memory is not None:
        part = dataclasses.replace(stack, own=[leaf[:cells] for leaf in stack.own])
        analysis: Any = _fit_cells.lower(part, *args, steps).compile().memory_analysis()
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


@functools.partial(jax.jit, static_argnums=(4,))
def _fit_cells(
    stack: Stack, arrays: tuple[Batch, Array, Array], key: Array, tol: Any, steps: int | None
) -> tuple[Array, Array]:
    """Decision values at the rows held out (cells, folds, m), and supports (cells, folds).

    The runs are vectorised if all start from `init`. Else those of a fold are a path of warm
    starts.
    """
    (data, weights, index), first = arrays, fields_of(stack.first)
    features = lambda own: fields_of(stack.solver(own)).prepare(data).x
    first_own = [leaf[0] for leaf in stack.own]
    state = jax.eval_shape(first.init, key, data)

    def outcome_of(run: Any, held: Batch) -> tuple[Array, Array]:
        support = run.info.support
        last = support[-1] if support.shape[0] else jnp.zeros((), jnp.int32)
        return decision_values(run.model, held), last

    if not hasattr(state, "restart") or any(depends_on(features, first_own)):

        def one_cell(_: Array, own: list[Array]) -> tuple[Array, Array]:
            solver = stack.solver(own)
            rows = with_features(fields_of(solver), data)

            def one_fold(weight: Array, held: Array) -> tuple[Array, Array]:
                train = rows._replace(weight=weight)
                run = fit(solver, train, key, steps=steps_of(solver, steps, train), tol=tol)
                return outcome_of(run, take(rows, held))

            return jax.vmap(one_fold)(weights, index)

        cells = stack.own[0].shape[0] if stack.own else 1
        return jax.vmap(one_cell)(jnp.arange(cells), stack.own)
    rows = with_features(first, data)

    def one_path(weight: Array, held: Array) -> tuple[Array, Array]:
        # a layout may hold the rows as they were
        plain = take(rows._replace(x=getattr(rows.x, "plain", rows.x)), held)
        train = rows._replace(weight=weight)
        solver = as_argument(stack.first, accum_dtype(train.x))
        sampler = as_argument(first.sampler or uniform(1), accum_dtype(train.x))
        before = begin(Inputs(Old(solver), Old(sampler), None, train, train.x), key)

        def next_cell(start: Any, own: list[Array]) -> tuple[Any, tuple[Array, Array]]:
            solver, state = stack.solver(own), before._replace(solver=start)
            run = fit(solver, train, steps=steps_of(first, steps, train), tol=tol, state=state)
            return run.state.solver.restart(), outcome_of(run, plain)

        return lax.scan(next_cell, before.solver, stack.own, length=None if stack.own else 1)[1]

    if isinstance(rows.x, jax.Array):
        return jax.vmap(one_path, out_axes=1)(weights, index)
    # loops over the entries of sparse rows are fast one after the other
    found = lax.map(lambda fold: one_path(*fold), (weights, index))
    return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), found)


def with_features(fields: Any, data: Batch) -> Any:
    """The rows after the feature map of a solver, if it has one and they are not too large."""
    if fields.prepare is Hooks().prepare or isinstance(data, Lifted):
        return data
    features = jax.eval_shape(fields.prepare, data).x
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(features))
    return fields.prepare(data) if size <= RETAINED_BYTES else data
