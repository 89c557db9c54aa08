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
from ..types import Array, Batch, Certificate, row_weights, take
from .fitting import fit
from .grid_runs import Grid, GridJob, held_rows
from .problems import machine_of, problems_of, values_of
from .stacks import Stack, stacked_solvers, steps_of
from .threads import run_jobs

SHARED_BYTES = 2**31  # of kernel matrices, where the call names no `memory`
ROW_STEP = 64  # the rows of a problem are padded to a multiple of this
NO_FOLD = -2  # in place of a fold: all rows are trained on
SKIPPED, WARM, COLD = range(3)  # how a fit starts: not, from the one before, from zeros


class _Line:
    """What the fits of some cells share: the kernel matrix in two precisions, if it fits."""

    def __init__(self, grid: Grid, cells: list[tuple[int, ...]], is_matrix: bool) -> None:
        self.grid, self.stack, self.is_matrix = grid, stacked_solvers(grid, cells), is_matrix
        machine, self.wrapper = machine_of(grid.solver(cells[0]))
        with jax.enable_x64(True):
            wide, kernel = cast((grid.data, machine.kernel), jnp.float64)
            x, wide_x = grid.data.x, wide.x
            if is_matrix:
                wide_x = _matrix(kernel, kernel.layout(row_weights(wide)).x)
                x = wide_x.astype(accum_dtype(grid.data.x))
            self.data, self.wide = grid.data._replace(x=x), wide._replace(x=wide_x)
            self.wide_stack = cast(self.stack, jnp.float64)

    def problems(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Targets and weights (P, n) of the problems without a fold."""
        data = self.grid.without(fold)
        return problems_of(self.wrapper, np.asarray(data.y), np.asarray(data.weight))

    def path(self, fold: int, held: np.ndarray, how: np.ndarray, size: int) -> list:
        """The fits without a fold, as `_fit_path` returns them, with values at the rows `held`.

        Each problem has at most `size` rows.
        """
        problems = self.problems(fold)
        order = np.argsort(problems[1] <= 0, axis=1, kind="stable")[:, :size]
        rows = np.where(np.take_along_axis(problems[1], order, 1) > 0, order, -1).astype(np.int32)
        arrays, key = (self.data, *problems, rows, held, how), jax.random.clone(self.grid.key)
        found = _fit_path(self.stack, arrays, key, self.grid.tol, self.is_matrix, self.grid.steps)
        return [np.asarray(a) for a in found]

    def certify(self, fold: int, coef: Any, b: Any) -> list[np.ndarray]:
        """Objectives and relative gaps (cells,) of coefficients (cells, P, n) without a fold."""
        with jax.enable_x64(True):
            arrays = cast((*self.problems(fold), coef, b), jnp.float64)
            found = _certify(self.wide_stack, self.wide, arrays, self.is_matrix)
            return [np.asarray(a) for a in found]


def run_machines(part: GridJob, lines: list[list[tuple[int, ...]]]) -> None:
    """Make the fits of each line of cells, fold by fold."""
    grid, lock, held = part.grid, threading.Lock(), held_rows(part.grid.fold)
    jobs = [(i, fold) for i in range(len(lines)) for fold in part.folds]
    jobs = [(i, fold) for i, fold in jobs if not part.is_done(lines[i], (fold,))]
    if not jobs:
        return
    n, single, matrices = len(grid.fold), held.shape[1] == 1, matrices_in(part.memory, grid)

    @functools.lru_cache(max(1, min(2, matrices)))  # no thread waits for the last fold of a line
    def shared(number: int) -> tuple[_Line, list | None]:
        """What the fits of a line share, and where a fold is a row the machines on all rows."""
        line, how = _Line(grid, lines[number], matrices > 0), np.full(len(lines[number]), WARM)
        rows = np.arange(n, dtype=np.int32)
        return line, line.path(NO_FOLD, rows, how, n) if single else None

    count = lambda fold: (shared(jobs[0][0])[0].problems(fold)[1] > 0).sum(axis=1).max()
    most = n if single else max(map(count, range(len(held))))
    size = min(n, -(-most // ROW_STEP) * ROW_STEP)

    def work(job: tuple[int, int]) -> None:
        begin, (number, fold) = time.perf_counter(), job
        cells = lines[number]
        with lock:
            line, whole = shared(number)
        how = np.array([WARM if part.wanted[cell] else SKIPPED for cell in cells])
        if whole:  # without a row of coefficient 0 only b may change, if no coefficient decides it
            whole = [whole[0][:, held[fold]], *whole[1:]]
            is_zero = (whole[1][..., held[fold, 0]] == 0).all(axis=1)
            how *= np.where(is_zero, np.where(whole[3].all(axis=1), SKIPPED, COLD), WARM)
        if how.any():
            fits = line.path(fold, held[fold], how, size)
            front = lambda a: (how > 0).reshape(-1, *[1] * (a.ndim - 1))
            whole = [np.where(front(a), a, b) for a, b in zip(fits, whole or fits, strict=True)]
        assert whole
        values, coef, b, _ = whole
        primal, gap = line.certify(fold, coef, b)
        seconds = np.full(len(cells), (time.perf_counter() - begin) / len(cells))
        numbers = {"primal": primal, "gap": gap, "support": (coef != 0).sum(axis=(1, 2))}
        part.record(cells, fold, values, seconds=seconds, **numbers)

    run_jobs(work, jobs[:1], 1, part.limits)  # compiled once, before several threads ask for it
    run_jobs(work, jobs[1:], part.threads if matrices else 1, part.limits)


def matrices_in(memory: float | None, grid: Grid) -> int:
    """How many kernel matrices in two precisions fit."""
    return int((SHARED_BYTES if memory is None else memory) // (12 * len(grid.fold) ** 2))


def certificate_of(
    grid: Grid, cell: tuple[int, ...], model: Any, memory: float | None
) -> Certificate | None:
    """The certificate of the model of a cell on all rows; None: not of an exact machine."""
    if machine_of(grid.solver(cell))[0] is None:
        return None
    model = getattr(model, "inner", model)
    coef, b = np.atleast_2d(model.coef)[None], np.atleast_1d(model.b)[None]
    line = _Line(grid, [cell], matrices_in(memory, grid) > 0)
    primal, gap = (a[0] for a in line.certify(NO_FOLD, coef, b))
    return Certificate(primal, primal * (1 - gap), primal * gap, True)


_matrix = jax.jit(lambda kernel, x: kernel(x, x).astype(jnp.float64))


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
        part = data._replace(y=y, weight=weight)
        train, test = narrow(take(part, index)), narrow(take(part, held))
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
                run: Any = fit(bound, train, key, steps=steps_of(bound, steps, train), tol=tol)
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
            return lax.cond(how > 0, make_fit, lambda: (before, none))

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
    """Objectives 1/2 |w|^2 + C sum_i weight_i loss_i, sums over the problems, and relative gaps."""
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

        primal, gap = map(jnp.sum, jax.vmap(one_problem)(targets, weights, coef, b))
        return primal, gap / jnp.where(primal > 0, primal, jnp.inf)

    return jax.vmap(one_cell)(stack.own, coef, b)
