"""The fits of exact kernel machines along the first axis, each from the solution before."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..implicit import at_bound
from ..kernels import matvec, precomputed
from ..models import Expansion
from ..numerics import accum_dtype
from ..objectives.certificates import certificate_on_support
from ..recipe import cast, fields_of, skip_validation
from ..types import Array, Batch, Certificate, take
from ..wrappers.machines import machine_of, problems_of, values_of
from .fitting import fit
from .grid_runs import Grid, GridJob, held_rows
from .stacks import Stack, stacked_solvers, steps_of
from .threads import run_jobs

SHARED_BYTES = 2**31  # of kernel matrices, where the call names no `memory`
SKIPPED, WARM, COLD = range(3)  # how a fit starts: not, from the one before, from zeros
ROW_STEP = 64  # the rows of a problem are padded to a multiple of this


class _Line:
    """What the fits of some cells share: the kernel matrix in two precisions, if it fits."""

    def __init__(self, grid: Grid, cells: list[tuple[int, ...]], is_matrix: bool) -> None:
        self.grid, self.stack, self.is_matrix = grid, stacked_solvers(grid, cells), is_matrix
        machine, self.wrapper = machine_of(grid.solver(cells[0]))
        data = grid.data
        with jax.enable_x64(True):
            wide, kernel = cast((data, machine.kernel), jnp.float64)
            matrices = (
                _matrices(kernel, kernel.layout(wide).x, accum_dtype(data.x)) if is_matrix else None
            )
            x, wide_x = matrices or (data.x, wide.x)
            self.data, self.wide = data._replace(x=x), wide._replace(x=wide_x)
            self.wide_stack = cast(self.stack, jnp.float64)

    def problems(self, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Targets and weights (P, n) of the problems, for these weights of the rows."""
        return problems_of(self.wrapper, np.asarray(self.grid.data.y), np.asarray(weight))

    def path(self, weight: Any, held: np.ndarray, how: np.ndarray, size: int) -> list:
        """Values at the rows `held`, coefficients, ... of the cells, as of `_fit_path`."""
        problems = self.problems(weight)
        order = np.argsort(problems[1] <= 0, axis=1, kind="stable")[:, :size]
        rows = np.where(np.take_along_axis(problems[1], order, 1) > 0, order, -1).astype(np.int32)
        key, options = (
            jax.random.clone(self.grid.key),
            (self.grid.tol, self.is_matrix, self.grid.steps),
        )
        arrays = self.data, *problems, rows, held, how
        return [np.asarray(a) for a in _fit_path(self.stack, arrays, key, *options)]

    def certify(self, weight: Any, coef: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        """Objectives and gaps of machines of coefficients (cells, P, n), (cells,) each."""
        with jax.enable_x64(True):
            arrays = cast((*self.problems(weight), coef, b), jnp.float64)
            found = _certify(self.wide_stack, self.wide, arrays, self.is_matrix)
            return [np.asarray(a) for a in found]


def run_machines(part: GridJob, lines: list[list[tuple[int, ...]]]) -> None:
    """Make the fits of each line of cells, fold by fold."""
    grid, lock = part.grid, threading.Lock()
    n, weight, held = len(grid.fold), grid.data.weight, held_rows(grid.fold)
    matrices = _matrices_in(part.memory, n)
    problems = lambda weight: problems_of(wrapper, np.asarray(grid.data.y), np.asarray(weight))[1]
    wrapper = machine_of(grid.solver(lines[0][0]))[1]
    single = held.shape[1] == 1
    sizes = [(problems(grid.without(fold).weight) > 0).sum(1).max() for fold in range(len(held))]
    size = n if single else min(n, -(-max(sizes) // ROW_STEP) * ROW_STEP)

    @functools.lru_cache(max(1, min(2, matrices)))  # no thread waits for the last fold of a line
    def shared(number: int) -> tuple[_Line, list | None]:
        """What the fits of a line share, and where a fold is a row the machines on all rows."""
        line, cells = _Line(grid, lines[number], matrices > 0), len(lines[number])
        rows = np.arange(n, dtype=np.int32)
        return line, line.path(weight, rows, np.full(cells, WARM), n) if single else None

    def work(job: tuple[int, int]) -> None:
        number, fold = job
        begin, cells = time.perf_counter(), lines[number]
        with lock:
            line, whole = shared(number)
        own_weight = grid.without(fold).weight
        how = np.array([WARM if part.wanted[cell] else SKIPPED for cell in cells])
        if (
            whole
        ):  # without a row of coefficient 0 only b may be another one, if no coefficient tells it
            whole = [whole[0][:, held[fold]], *whole[1:]]
            is_zero = (whole[1][..., held[fold][0]] == 0).all(axis=1)
            how *= np.where(is_zero, np.where(whole[3].all(axis=1), SKIPPED, COLD), WARM)
        if how.any():
            fits = line.path(own_weight, held[fold], how, size)
            front = lambda a: (how > 0).reshape(-1, *[1] * (a.ndim - 1))
            whole = [np.where(front(a), a, b) for a, b in zip(fits, whole or fits, strict=True)]
        values, coef, b, _ = whole
        primal, gap = line.certify(own_weight, coef, b)
        part.record(
            cells,
            fold,
            values,
            primal=primal,
            gap=np.where(primal > 0, gap / np.where(primal > 0, primal, 1), 0),
            support=np.count_nonzero(coef, axis=(1, 2)),
            seconds=np.full(len(cells), (time.perf_counter() - begin) / len(cells)),
        )

    jobs = [(i, fold) for i in range(len(lines)) for fold in part.folds]
    jobs = [(i, fold) for i, fold in jobs if not part.is_done(lines[i], (fold,))]
    run_jobs(work, jobs[:1], 1, part.limits)  # compiled once, before several threads ask for it
    run_jobs(work, jobs[1:], part.threads if matrices else 1, part.limits)


def _matrices_in(memory: float | None, n: int) -> int:
    """How many kernel matrices in two precisions fit."""
    return int((SHARED_BYTES if memory is None else memory) // (12 * n * n))


def certificate_of(grid: Grid, cell: tuple[int, ...], model: Any, memory: Any) -> Certificate:
    """The certificate of the model of a cell on all rows."""
    line = _Line(grid, [cell], _matrices_in(memory, len(grid.fold)) > 0)
    model = getattr(model, "inner", model)
    coef, b = np.atleast_2d(model.coef)[None], np.atleast_1d(model.b)[None]
    primal, gap = (a[0] for a in line.certify(grid.data.weight, coef, b))
    return Certificate(primal, primal - gap, gap, np.True_)


@functools.partial(jax.jit, static_argnums=(2,))
def _matrices(kernel: Any, x: Any, dtype: Any) -> tuple[Array, Array]:
    gram = kernel(x, x).astype(jnp.float64)
    return gram.astype(dtype), gram


@functools.partial(jax.jit, static_argnums=(4, 5))
def _fit_path(
    stack: Stack, arrays: tuple, key: Array, tol: Any, is_matrix: bool, steps: int | None
) -> tuple[Array, ...]:
    """Decision values (cells, h), coefficients (cells, P, n), intercepts (cells, P).

    And whether there is a coefficient between its bounds, which alone tells the intercept, (cells,
    P).

    `arrays` are the data, targets and weights (P, n) of the problems, the rows (P, m) of each,
    the rows held out (h,), and how the fit of each cell starts (cells,).
    """
    data, targets, weights, rows, held, how = arrays
    n, dtype = data.y.shape[0], accum_dtype(data.x)
    first, wrapper = machine_of(stack.first)
    kernel = precomputed() if is_matrix else first.kernel

    def one_problem(problem: tuple) -> tuple[Array, ...]:
        y, weight, index = problem
        columns = jnp.maximum(index, 0)
        narrow = lambda part: part._replace(x=part.x[:, columns]) if is_matrix else part
        train, test = (
            narrow(take(data._replace(y=y, weight=weight), some)) for some in (index, held)
        )
        signs = train.y.astype(dtype)

        def one_cell(before: tuple, cell: tuple) -> tuple[tuple, tuple[Array, ...]]:
            own, how = cell

            def make_fit() -> tuple[tuple, tuple[Array, ...]]:
                coef, best, C = before
                machine = machine_of(stack.solver(own))[0]
                loss = fields_of(machine.loss)
                # a little more than the ratio of the C, as the start is clipped to its bounds
                start = coef * jnp.minimum(best, machine.C / C * (1 + 4 * jnp.finfo(dtype).eps))
                start = jnp.where(how == COLD, 0, start * signs if loss.labels else start)
                with skip_validation():
                    bound = machine.bind(kernel=kernel, start=start)
                run = fit(bound, train, key, steps=steps_of(bound, steps, train), tol=tol)
                coef, dual = run.model.coef, run.state.solver.dual
                bounds = loss.quadratic(signs, machine.C * dual.weight)
                l1 = 0 if bounds.l1 is None else bounds.l1
                is_free = ~functools.reduce(jnp.logical_or, at_bound(coef, bounds))
                # the best multiple of the coefficients, max_s D(s coef)
                square = jnp.dot(coef, signs - dual.grad - dual.compensation)
                linear = jnp.dot(coef, signs) - jnp.sum(l1 * jnp.abs(coef))
                best = jnp.where(square > 0, linear / jnp.where(square > 0, square, 1), 1)
                return (coef, best, machine.C), (coef, run.model.b, jnp.any(is_free))

            none = jnp.zeros_like(before[0]), jnp.zeros((), dtype), jnp.zeros((), bool)
            skip = lambda: (before, none)
            return lax.cond(how > 0, make_fit, skip)

        start = jnp.zeros(index.shape, dtype), jnp.zeros((), dtype), jnp.ones((), dtype)
        coefs, b, is_free = lax.scan(one_cell, start, (stack.own, how))[1]
        values = matvec(kernel, test.x, train.x, coefs.T) + b[None]
        place = jnp.where(index < 0, n, index)
        whole = jnp.zeros((len(b), n), dtype).at[:, place].set(coefs, mode="drop")
        return values, whole, b, is_free

    values, *rest = lax.map(one_problem, (targets, weights, rows))
    joined = jax.vmap(functools.partial(values_of, wrapper))(values.T)  # of (h, P) each
    return joined, *(jnp.swapaxes(a, 0, 1) for a in rest)


@functools.partial(jax.jit, static_argnums=(3,))
def _certify(stack: Stack, data: Batch, arrays: tuple, is_matrix: bool) -> tuple[Array, Array]:
    """Objectives 1/2 |w|^2 + C sum_i weight_i loss_i and their gaps, sums over the problems."""
    targets, weights, coef, b = arrays
    index = jnp.arange(data.y.shape[0], dtype=jnp.int32)

    def one_cell(own: list, coef: Array, b: Array) -> tuple[Array, Array]:
        machine = machine_of(stack.solver(own))[0]
        kernel = precomputed() if is_matrix else machine.kernel

        def one_problem(y: Array, weight: Array, coef: Array, b: Array) -> tuple[Array, Array]:
            model = Expansion(kernel, data.x, coef, b, index, machine.bias)
            C, rows = machine.C * jnp.sum(weight), data._replace(y=y, weight=weight)
            proof = certificate_on_support(model, rows, 1 / C, machine.loss, machine.bias)
            return C * proof.primal, C * proof.gap

        return jax.tree.map(jnp.sum, jax.vmap(one_problem)(targets, weights, coef, b))

    return jax.vmap(one_cell)(stack.own, coef, b)
