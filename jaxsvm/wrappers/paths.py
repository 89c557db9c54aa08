"""Exact kernel machines of several C, each from the solution before, for many folds and problems.

All share the kernel matrix of their rows where it fits. Problems are the classes of `one_vs_rest`,
the pairs of `one_vs_one`, which have the rows of their two classes, and columns of targets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._node import cast
from ..engines.dual_qp import Problem, relative_gap
from ..implicit import at_bound
from ..kernels import matvec, precomputed
from ..models import Expansion
from ..models.multiclass import StackedModels, votes
from ..numerics import accum_dtype
from ..objectives.certificates import own_certificate
from ..types import Array, Batch, Certificate, Solver, take
from .multiclass import one_vs_one
from .problems import Problems

SKIPPED, WARM, COLD = range(3)  # how a fit starts: not, from the one before, from zeros
ROW_STEP = 64  # the rows of a problem are padded to a multiple of this
MOST_CLASSES = 20  # of pairs whose coefficients at all rows are held at the same time
# fields of machines whose update goes on from `start` to the optimum that C, kernel, loss and bias
# define; their states have the field `dual`
ARGUMENTS = {"C", "kernel", "loss", "bias", "start", "stop"}


def machine_of(solver: Any) -> tuple[Any, Any]:
    """The exact machine that a solver is, and the wrapper of classes or columns around it.

    Both are None for other solvers; the wrapper is None where there is none.
    """
    wrapper = solver if isinstance(solver, Problems) else None
    if isinstance(wrapper, one_vs_one) and wrapper.classes > MOST_CLASSES:
        return None, None
    solver = solver.inner if wrapper else solver
    is_exact = isinstance(solver, Solver) and vars(solver).keys() >= ARGUMENTS
    return (solver, wrapper) if is_exact else (None, None)


@jax.jit
def problems_of(wrapper: Any, data: Batch) -> tuple[Array, Array]:
    """The targets and the weights of the rows in each problem, (P, n) each.

    A pair of classes has weight 0 for the rows of other classes.
    """
    parts = {"y": data.y[None]} if wrapper is None else wrapper.parts(data)
    return parts["y"], jnp.broadcast_to(parts.get("weight", data.weight), parts["y"].shape)


def most_rows(wrapper: object, data: Batch, weights: np.ndarray) -> int:
    """The most rows of a problem, padded, for these weights (folds, n)."""
    of_folds = (problems_of(wrapper, data._replace(weight=w))[1] for w in weights)
    most = max(int((np.asarray(weight) > 0).sum(axis=1).max()) for weight in of_folds)
    return min(weights.shape[1], -(-most // ROW_STEP) * ROW_STEP)


@functools.partial(jax.jit, static_argnames=("run", "size", "is_matrix"))
def fit_paths(
    stack: Any, arrays: tuple, key: Array, goal: object, run: Callable, size: int, is_matrix: bool
) -> tuple[Array, dict]:
    """Decision values at the rows held out (cells, folds, m), and numbers (cells, folds).

    Args:
        stack: the solvers of the cells: `first`, and `solver(own)` of the leaves `own` of one.
        arrays: the data, weights (folds, n), rows held out (folds, m), rows as laid out, and how
            each cell starts (cells,), `WARM` or `SKIPPED`.
        key: of all fits.
        goal: of all fits, or None.
        run: (machine, data, key, goal) -> `Fit`; structure, as are the others.
        size: the most rows of a problem.
        is_matrix: whether the kernel matrix of all rows is worked out.
    """
    (data, weights, held, x, how), n = arrays, arrays[0].y.shape[0]
    (first, wrapper), dtype = machine_of(stack.first), accum_dtype(data.x)
    kernel, loss = (precomputed() if is_matrix else first.kernel), first.loss
    data = data._replace(x=first.kernel(x, x).astype(dtype)) if is_matrix else data

    def one_problem(y: Array, weight: Array, held: Array, how: Array) -> tuple[Array, ...]:
        order = jnp.argsort(weight <= 0, stable=True)[:size]
        rows = jnp.where(weight[order] > 0, order, -1)
        part = data._replace(y=y, weight=weight)
        train, test = take(part, rows), take(part, held)
        if is_matrix:
            train, test = (each._replace(x=each.x[:, order]) for each in (train, test))
        signs = train.y.astype(dtype)

        def one_cell(before: tuple, cell: tuple) -> tuple[tuple, tuple[Array, ...]]:
            own, how = cell

            def make_fit() -> tuple[tuple, tuple[Array, ...]]:
                coef, best, C = before
                machine = machine_of(stack.solver(own))[0]
                # a little more than the ratio of the C, as the start is clipped to its bounds
                start = coef * jnp.minimum(best, machine.C / C * (1 + 4 * jnp.finfo(dtype).eps))
                start = jnp.where(how == COLD, 0, start * signs if loss.labels else start)
                bound = machine.replace(kernel=kernel, start=start)
                end: Any = run(bound, train, key, goal)
                coef, state = end.model.coef, end.state.solver.dual
                qp = Problem(machine.C, kernel, loss)
                dual = qp.dual_from_diag(state, jnp.zeros_like(signs), signs)
                gap, primal = relative_gap(dual, signs, machine.C * state.weight, loss, first.bias)
                is_free = ~functools.reduce(jnp.logical_or, at_bound(coef, dual.bounds))
                # the best multiple of the coefficients, max_s D(s coef)
                l1 = 0 if dual.bounds.l1 is None else dual.bounds.l1
                square = jnp.dot(coef, signs - dual.grad)
                linear = jnp.dot(coef, signs) - jnp.sum(l1 * jnp.abs(coef))
                best = jnp.where(square > 0, linear / jnp.where(square > 0, square, 1), 1)
                found = coef, end.model.b, jnp.any(is_free), gap * primal, primal
                return (coef, best, machine.C), found

            zero = jnp.zeros((), dtype)
            none = jnp.zeros_like(before[0]), zero, jnp.zeros((), bool), zero, zero
            return lax.cond(how == SKIPPED, lambda: (before, none), make_fit)

        start = jnp.zeros(rows.shape, dtype), jnp.zeros((), dtype), jnp.ones((), dtype)
        coefs, b, *rest = lax.scan(one_cell, start, (stack.own, how))[1]
        values = (matvec(kernel, test.x, train.x, coefs.T) + b[None]).T
        place = jnp.where(rows < 0, n, rows)
        return values, jnp.zeros((len(b), n), dtype).at[:, place].set(coefs, mode="drop"), *rest

    targets = problems_of(wrapper, data._replace(weight=weights[0]))[0]
    whole: Any = None
    if held.shape[1] == 1:  # a row without a coefficient needs no fit, unless b may change
        everything = problems_of(wrapper, data._replace(weight=jnp.max(weights, axis=0)))
        index = jnp.arange(n, dtype=jnp.int32)
        whole = lax.map(lambda p: one_problem(p[0], p[1], index, how), everything)

    def one_fold(fold: tuple[Array, Array]) -> tuple[Array, dict]:
        weight, held = fold
        rows = problems_of(wrapper, data._replace(weight=weight))

        def of_problem(problem: tuple) -> tuple[Array, ...]:
            y, weight, p = problem
            if whole is None:
                return one_problem(y, weight, held, how)
            old = [part[p] for part in whole]
            is_zero, is_free = old[1][:, held[0]] == 0, old[2]
            own = jnp.where(is_zero, jnp.where(is_free, SKIPPED, COLD), how)
            old[0] = old[0][:, held]
            skipped = own == SKIPPED
            pick = lambda a, b: jnp.where(skipped.reshape(-1, *[1] * (a.ndim - 1)), a, b)
            return tuple(map(pick, old, one_problem(y, weight, held, jnp.minimum(own, how * COLD))))

        problems = *rows, jnp.arange(len(targets))
        values, coef, _, gap, primal = lax.map(of_problem, problems)  # (P, cells, ...)
        total = primal.sum(axis=0)
        numbers = {"support": (coef != 0).sum(axis=(0, 2)), "primal": total}
        numbers["gap"] = gap.sum(axis=0) / jnp.where(total > 0, total, jnp.inf)
        joined = jnp.moveaxis(values, 0, -1)  # (cells, m, P)
        if wrapper is None:
            return joined[..., 0], numbers
        if isinstance(wrapper, one_vs_one):
            joined = jax.vmap(lambda values: votes(values, wrapper.classes))(joined)
        return joined, numbers

    found = lax.map(one_fold, (weights, held))
    return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), found)


def certificate_of(solver: Solver, data: Batch, model: Any) -> Certificate | None:
    """The certificate of a model on its rows, in float64; None: of no exact machine."""
    machine, wrapper = machine_of(solver)
    if machine is None:
        return None
    model = model.inner if isinstance(model, StackedModels) else model
    with jax.enable_x64(True):
        data, machine = cast((data, machine), jnp.float64)
        index: Any = np.arange(data.y.shape[0], dtype=np.int32)
        sums = np.zeros(2)
        ends = np.atleast_2d(model.coef), np.atleast_1d(model.b)  # by NumPy: nothing is compiled
        problems: Any = map(np.asarray, (*problems_of(wrapper, data), *cast(ends, np.float64)))
        for y, weight, coef, b in zip(*problems, strict=True):
            expansion = Expansion(machine.kernel, data.x, coef, b, index, machine.bias)
            C, rows = machine.C * np.sum(weight), data._replace(y=y, weight=weight)
            proof = own_certificate((expansion, rows, 1 / C), (machine.loss,), (machine.bias,))
            sums += np.array([C * proof.primal, C * proof.gap])
    return Certificate(sums[0], sums[0] - sums[1], sums[1], True)
