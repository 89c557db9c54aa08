"""Exact kernel machines on the same rows: one kernel matrix, or one cache of its rows, for all."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...engines import blocks, kernel_cache, whole_matrix
from ...engines.blocks import DecompositionState, Progress, Task
from ...engines.dual_qp import DualState, Problem, intercept, never_idle
from ...kernels import Kernel, matvec
from ...models import expansion
from ...numerics import accum_dtype, dot, rounding_of_sums, two_sum
from ...objectives.certificates import balanced
from ...objectives.evaluate import in_float64
from ...recipe import cast, unwrap_static
from ...types import Array, Certificate, Quadratic, Sharing, take

# numbers of the matrix that steps on pairs of all rows may read before blocks are solved: no block
# is gathered for the many runs that end with these steps
PAIR_READS = 4e6


class Matrix(NamedTuple):
    """The kernel matrix of all rows."""

    gram: Array  # (n, n)
    diag: Array  # (n,)

    @property
    def changes(self) -> bool:
        """False: runs do not change it, so that several may be made at once."""
        return False


class CachedRows(NamedTuple):
    """The kernel rows in memory, of a matrix that does not fit."""

    rows: kernel_cache.Rows
    x: Array  # (n, d)
    diag: Array  # (n,)

    @property
    def changes(self) -> bool:
        """True: each run goes on with the rows that those before it computed."""
        return True


class PathState(NamedTuple):
    """The end of a run, from which the next one may start."""

    coef: Array  # (n,)
    product: Array  # (n,)  K coef, less what `compensation` and `pending` say
    compensation: Array  # (n,)  rounding errors of `product`, still to be added
    pending: Array  # (n,)  K pending is still to be added to `product`
    sum_error: Array  # ()  the sum of the coefficients at a start, if the bias is free
    b: Array  # ()
    residual: Array  # ()
    steps: Array  # ()  int32, steps on pairs of all rows, and blocks


def make_sharing(qp: Problem, bias: str, stop: str, tol: Any, rounds: float) -> Sharing:
    """What exact kernel machines share, for `recipe.sharing_of`.

    A run starts with steps on pairs of all rows. If these do not suffice, blocks follow, as in
    `decomposition`. Where the matrix does not fit, there are blocks only, and the kernel rows that
    were computed stay for the runs that follow.

    Args:
        qp: the quadratic program.
        bias: as of `decomposition`.
        stop: as of `decomposition`.
        tol: () residual to stop at.
        rounds: maximum number of blocks of a run.
    """

    def size(data):
        n = data.y.shape[0]
        return n * n * jnp.dtype(accum_dtype(data.x)).itemsize

    def prepare(data, memory):
        dtype = accum_dtype(data.x)
        kernel, x = cast(qp.kernel, dtype), qp.kernel.layout(data).x
        if size(data) <= memory:
            return _matrix(kernel, x)
        slots = kernel_cache.num_slots(x, memory, 4 * min(blocks.BLOCK, data.y.shape[0]))
        return CachedRows(kernel_cache.empty(x, slots), x, _diagonal(kernel, x))

    def init(data):
        zero: Any = np.zeros(data.y.shape[0], accum_dtype(data.x))  # on the host
        number: Any = np.zeros((), zero.dtype)
        steps: Any = np.zeros((), np.int32)
        return PathState(zero, zero, zero, zero, number, number, number, steps)

    def start(shared, data, state):
        C, loss, y, weight = cast((qp.C, qp.loss, data.y, data.weight), accum_dtype(data.x))
        bounds = jax.tree.map(np.asarray, _bounds(loss, y, C, weight))
        return _scaled(state, bounds, np.asarray(y), bias, not shared.changes)

    def solve(shared, data, state):
        y, weight = cast((data.y, data.weight), state.coef.dtype)
        cast_qp, cast_tol = lax.stop_gradient(cast((qp, tol), y.dtype))
        most = jnp.minimum(jnp.asarray(rounds), 2.0**30).astype(jnp.int32)
        return _solve(cast_qp, cast_tol, most, shared, y, weight, state, stop, bias)

    def products(data, states):
        return _products((qp.kernel, data.x, states.coef))

    def certify(data, state, product):
        C, kernel = cast((qp.C, qp.kernel), accum_dtype(data.x))
        diag = _diagonal(kernel, data.x)
        arrays = C, data.weight, data.y, state.coef, product, state.b, diag
        scores, certificate = _certified(arrays, (unwrap_static(qp.loss),), (bias,))
        return scores, certificate, int(np.count_nonzero(state.coef))

    def model(data, state):
        model = expansion(qp.kernel, jnp.asarray(state.coef), data, bias)
        return dataclasses.replace(model, b=jnp.asarray(state.b))

    def supports(state):
        return np.asarray(state.coef) != 0

    def restrict(data, shared, rows):
        if isinstance(shared, Matrix):
            return Matrix(shared.gram[rows[:, None], rows], shared.diag[rows])
        kernel = cast(qp.kernel, accum_dtype(data.x))
        return _matrix(kernel, qp.kernel.layout(take(data, rows)).x)

    parts = prepare, size, init, start, solve, products, certify, model, supports, restrict
    return Sharing(qp.kernel, *parts)


@jax.jit
def _bounds(loss: Any, y: Array, C: Array, weight: Array) -> Quadratic:
    return unwrap_static(loss).quadratic(y, C * weight)


@jax.jit
def _matrix(kernel: Kernel, x: Array) -> Matrix:
    dtype = accum_dtype(x)  # a kernel of the user may return another one
    return Matrix(kernel(x, x).astype(dtype), kernel.diag(x).astype(dtype))


@jax.jit
def _diagonal(kernel: Kernel, x: Array) -> Array:
    return kernel.diag(x).astype(accum_dtype(x))


def _scaled(
    state: PathState, bounds: Quadratic, y: np.ndarray, bias: str, scale: bool
) -> PathState:
    """The best feasible multiple of the coefficients, worked out in float64.

    Args:
        state: the end of another run, or of several, with leading axes.
        bounds: of the coefficients in the next run.
        y: (..., n) targets.
        bias: "free" or "none".
        scale: False: the coefficients as they are, if they are feasible, else zeros.
    """
    low, high, l1, l2 = bounds
    coef = np.asarray(state.coef, np.float64)
    product = np.asarray(state.product, np.float64) + np.asarray(state.compensation, np.float64)
    add = lambda terms: np.sum(terms, axis=-1, keepdims=True)
    linear = add(y * coef - (0 if l1 is None else l1 * np.abs(coef)))
    square = add(coef * product + (0 if l2 is None else l2 * coef * coef))
    ends = np.where(coef > 0, high, low).astype(np.float64)
    nonzero = coef != 0
    ratio = np.where(nonzero, ends / np.where(nonzero, coef, 1), np.inf)
    room = np.min(ratio, axis=-1, keepdims=True, initial=np.inf)
    best = np.where(square > 0, linear / np.where(square > 0, square, 1), 1.0)
    factor = np.minimum(np.maximum(best, 0.0), room) if scale else (room >= 1).astype(np.float64)
    exact = factor * coef
    # those that a bound stops are exactly at it
    at_end = nonzero & (np.abs(exact) >= np.abs(ends) * (1 - 1e-6)) & scale
    rounded = np.where(at_end, ends, exact).astype(y.dtype)
    total = factor * product
    head = total.astype(y.dtype)
    wide_sum = np.sum(rounded, axis=-1, dtype=np.float64) * (bias == "free")
    fields: dict[str, Any] = {
        "coef": rounded,
        "product": head,
        "compensation": (total - head).astype(y.dtype),
        "pending": (rounded - exact).astype(y.dtype),
        "sum_error": np.asarray(wide_sum, y.dtype),
    }
    return state._replace(**fields)


def _solve(
    qp: Problem,
    tol: Array,
    rounds: Array,
    shared: Any,  # Matrix or CachedRows
    y: Array,
    weight: Array,
    state: PathState,
    stop: str,
    bias: str,
) -> tuple[Any, PathState]:
    """Solve from `state` to the tolerance."""
    matrix = isinstance(shared, Matrix)
    gram: Any = shared.gram if matrix else None
    n = y.shape[0]
    bounds = unwrap_static(qp.loss).quadratic(y, qp.C * weight)
    times_l2 = lambda coef: jnp.zeros_like(coef) if bounds.l2 is None else bounds.l2 * coef
    pending = jnp.zeros_like(y)  # a cache is never asked for it
    if matrix:
        pending = lax.cond(
            jnp.any(state.pending != 0), lambda: dot(gram, state.pending), lambda: pending
        )
    grad, compensation = y, jnp.zeros_like(y)
    for term in (state.product, state.compensation, pending, times_l2(state.coef)):
        grad, compensation = two_sum(grad, compensation, -term)
    dual = DualState(state.coef, grad, compensation, state.sum_error, weight)

    steps = jnp.zeros((), jnp.int32)
    small = n <= 2 * blocks.BLOCK
    if gram is not None:
        most = jnp.minimum(rounds, (2**31 - 1) // (100 * n)) * (100 * n)
        most = most if small else jnp.minimum(most, int(PAIR_READS / n))
        dual, residual, steps = whole_matrix.solve_matrix(
            gram, shared.diag, qp, tol, most, dual, y, stop=stop, bias=bias
        )
    if gram is None or not small:
        constant = qp.dual_from_diag(dual, shared.diag, y)
        x = None if matrix else shared.x
        task = Task(qp, tol, rounds, x, y, constant, stop, bias, gram)
        q = min(2 * blocks.BLOCK, n // 4 * 4)
        row_limit = max(1, 2**31 // n - q)
        residual_at_start = task.residual(dual)
        working = jnp.arange(q, dtype=jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        rows = None if matrix else shared.rows._replace(n_computed=zero)
        begin = DecompositionState(dual, working, residual_at_start.value)
        start = Progress(begin, residual_at_start, rows, never_idle(dual.coef.dtype), zero)
        end = blocks.solve_all(task, row_limit, q > blocks.BLOCK, start)
        dual, residual, steps = end.state.dual, end.residual.value, steps + end.rounds
        shared = shared if matrix else shared._replace(rows=end.rows)

    product, rounding = two_sum(y, -dual.compensation, -dual.grad)
    product, rounding = two_sum(product, rounding, -times_l2(dual.coef))
    b = intercept(qp.dual_from_diag(dual, shared.diag, y), bias)
    zero = jnp.zeros_like(y)
    return shared, PathState(dual.coef, product, rounding, zero, dual.sum_error, b, residual, steps)


@in_float64
def _products(kernel: Kernel, x: Array, coefs: Array) -> Array:
    """K coef for each of the coefficients (c, n), (c, n)."""
    return matvec(kernel, x, x, coefs.T).T


@in_float64
def _certified(
    C: Array,
    weight: Array,
    y: Array,
    coef: Array,
    product: Array,
    b: Array,
    diag: Array,
    loss: Any,
    bias: str,
) -> tuple[Array, Certificate]:
    """The scores, and the certificate of 1/2 |w|^2 + sum_i C weight_i loss_i.

    Args:
        C: () > 0.
        weight: (m n,) of the rows of m problems, one after the other; so are the next three.
        y: (m n,) targets.
        coef: (m n,) coefficients.
        product: (m n,) K coef.
        b: () or (m n,) intercepts.
        diag: (n,) values k(x_i, x_i) of the rows that the problems share.
        loss: of scores.
        bias: "free" or "none".
    """
    row_C = C * weight
    bounds = loss.quadratic(y, row_C)
    # rounding leaves coefficients beyond a bound, and a sum that is not 0; a row for each problem
    parts = jnp.clip(coef, bounds.low, bounds.high).reshape(-1, diag.shape[0])
    parts = jax.vmap(balanced)(parts) if bias == "free" else parts
    feasible = parts.ravel()
    score = product + b
    value = loss.value(score, y)
    slope = jnp.where(row_C > 0, -feasible / jnp.where(row_C > 0, row_C, 1), 0)
    terms = jnp.maximum(value + loss.conjugate(slope, y) - slope * score, 0)
    weighted_sum = lambda a: jnp.sum(jnp.where(row_C > 0, row_C * a, 0))
    # |w - w(feasible)| is at most the sum of the norms of what was changed
    distance = jnp.abs(parts - coef.reshape(parts.shape)) @ jnp.sqrt(jnp.abs(diag))
    sums = jax.vmap(rounding_of_sums, in_axes=(0, None))(parts, diag)
    rounding = 4 * jnp.sum(jnp.abs(parts), axis=1) * sums
    primal = jnp.dot(coef, product) / 2 + weighted_sum(value)
    gap = weighted_sum(terms) + jnp.sum(distance * distance / 2 + rounding)
    return score, Certificate(primal, primal - gap, gap, jnp.ones((), bool))
