"""CPSP: cutting planes in the span of points that are chosen along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive, register
from ...engines.base import AllRowsSolver
from ...engines.bundle import (
    Planes,
    Point,
    Problem,
    add_plane,
    info_of,
    make_problem,
    no_planes,
    relative_gap,
)
from ...implicit import without_derivatives
from ...kernels import Kernel, as_kernel, holds_precomputed
from ...losses import hinge
from ...models import Expansion
from ...numerics import accum_dtype, argmax_value, dot, map_on_cpu, sample_proportional
from ...types import Array, Batch, Info, Loss, SparseRows

CANDIDATES = 59  # the best of so many rows is among the best 5 % with 95 % confidence
TRIALS = 100  # limit of the trials of one search for a point
HALVINGS = 10  # of a step that does not improve a point
MIX = 0.1  # as `mix` of `ocas`
TOL, ROUNDS = 1e-3, 30  # gap, and number of rounds, after which the basis grows


@register("CpspBasis")
class Basis(NamedTuple):
    """Points b_j, with features that are orthonormal functions of their span."""

    points: Array  # (m, d)
    factor: Array  # (m, m)  lower triangular, factor factor' = k(b_i, b_j); 1 where there is none
    features: Array  # (m, n)  factor^-1 k(b_j, x_i); 0 where there is no point
    size: Array  # ()  int32, points


@register("CpspState")
class CpspState(NamedTuple):
    """The basis, the best function and the minimiser of the model in its span, and the planes."""

    basis: Basis
    best: Point
    model: Point
    planes: Planes
    weight: Array  # (n,)
    key: Array
    gap: Array  # ()  relative duality gap in the span
    rounds: Array  # ()  int32, since the basis has grown


@node
class cpsp(AllRowsSolver):
    """Minimise lam/2 |f|^2 + mean_i loss(f(x_i), y_i) over f in the span of chosen points.

        f* = sum_i e_i k(x_i, .) / lam,   e = - sum_k theta_k u_k
        r = sum_i e_i k(x_i, .) - its projection on the span
        the basis gains b = argmax r(b)^2

    f* is the solution outside of the span: theta_k are the weights of the planes, and u_k their
    subgradients in the responses. The search for b starts at the best of 59 drawn rows. It goes on
    by the fixed point b = sum_i r_i k(x_i, b) x_i / sum_i r_i k(x_i, b), with r as a sum over rows
    and basis points. A step that does not increase r(b)^2 is halved. Between two growths there are
    rounds of `ocas` in the span, to a gap of 1e-3, at most 30.

    The basis grows by one point at a time, for more than 50 points by a tenth of them. The points
    need not be rows, so that a few of them do the work of many landmarks.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m). The fixed point is that of the
            Gaussian kernel; of any kernel it leaves a point no worse than a drawn row.
        points: m, size of the basis, >= 1; structure. The features take m n numbers.
        loss: any convex loss >= 0.
        planes: most planes, >= 2; structure. They take as many numbers for each row.
        bias: "none" or "free".

    Returns:
        A solver on all rows; model `Expansion` of the m points. One update is a round, with new
        points before it where they are due. The residual is the relative duality gap in the span,
        inf while the basis grows: `fit(tol=1e-3)` ends when the basis is full. The distance to the
        optimum of the kernel is that of `certificate`. There are no derivatives.

    Raises:
        ValueError: lam not a single positive number, points below 1, planes below 2, another bias,
            crammer_singer, a precomputed kernel. TypeError: for derivatives.

    Differs from the paper: planes are made anew in the span of each basis, where the paper projects
        each plane on its own; orthonormal features take the place of its dual.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.cpsp(0.1, jaxsvm.kernels.rbf(1.0), points=2)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=30, tol=1e-4)
        >>> [round(v, 3) for v in result.model(data.x).tolist()], result.converged
        ([1.0, -1.0], True)

    Reference: T. Joachims, C.-N. Yu, Sparse kernel SVMs via cutting-plane training, Machine
        Learning 76, 2009; B. Schoelkopf et al., Input space versus feature space in kernel-based
        methods, IEEE Transactions on Neural Networks 10, 1999 (the fixed point).
    """

    lam: float = positive()
    kernel: Kernel
    _: KW_ONLY
    points: int = between(1)
    loss: Loss = hinge
    planes: int = between(2, default=100)
    bias: Literal["none", "free"] = "none"

    def check(self) -> None:
        if holds_precomputed(self.kernel):
            raise ValueError(
                "cpsp makes points of its own: a precomputed kernel has no values there"
            )

    def problem(self, basis: Basis, data: Batch, weight: Array) -> Problem:
        """The objective in the span of the basis."""
        rows = data._replace(x=basis.features.T)
        return make_problem(self.lam, self.loss, self.bias, None, rows, weight)

    def init(self, key: Array, data: Batch) -> CpspState:
        (n, d), m, dtype = data.x.shape, self.points, accum_dtype(data.x)
        none = jnp.zeros((), jnp.int32)
        points, features = jnp.zeros((m, d), dtype), jnp.zeros((m, n), dtype)
        basis = Basis(points, jnp.eye(m, dtype=dtype), features, none)
        weight = data.weight.astype(dtype)
        zero = self.problem(basis, data, weight).at(jnp.zeros(m, dtype))
        bundle, infinite = no_planes(self.planes, m, dtype, n), jnp.full((), jnp.inf, dtype)
        state = CpspState(basis, zero, zero, bundle, weight, key, infinite, none)
        return jax.tree.map(jnp.array, state)  # each array its own

    def update(self, state: CpspState, batch: Batch) -> tuple[CpspState, Info]:
        given = cast(self, state.weight.dtype), state, batch
        return _advance(*without_derivatives("cutting planes", given))

    def model(self, state: CpspState, data: Batch | None = None) -> Expansion:
        basis, m = state.basis, self.points
        coef = jax.scipy.linalg.solve_triangular(basis.factor, state.best.w, lower=True, trans=1)
        coef = jnp.where(jnp.arange(m, dtype=jnp.int32) < basis.size, coef, 0)
        index = jnp.full(m, -1, jnp.int32)
        kernel = self.kernel
        return Expansion(kernel, basis.points, coef, state.best.b, index, self.bias)


# Each search under `vmap` goes its own way: rounding decides which maximum it finds.
@map_on_cpu
def _advance(solver: cpsp, state: CpspState, batch: Batch) -> tuple[CpspState, Info]:
    """One round, with new points before it where they are due."""
    most = solver.points
    is_due = (state.rounds >= ROUNDS) | (state.gap <= TOL) | (state.basis.size == 0)
    is_due = is_due & (state.basis.size < most)
    stay = lambda _, state, batch: (state, jnp.zeros((), jnp.int32))
    state, passes = lax.cond(is_due, _grow, stay, solver, state, batch)
    basis, best, model, bundle, weight, key, _, rounds = state
    problem = solver.problem(basis, batch, weight)
    between = (1 - MIX) * best.response + MIX * model.response
    bundle, minimiser = add_plane(problem.lam, bundle, *problem.plane(between))
    model = problem.at(minimiser)
    new = problem.search(best, model, MIX)
    gap = relative_gap(problem, bundle, new)
    info = info_of(problem, best, new, jnp.where(basis.size < most, jnp.inf, gap), 0)
    evals = passes.astype(gap.dtype) * (batch.y.shape[0] + most)
    info = info._replace(support=basis.size, evals=evals)
    return CpspState(basis, new, model, bundle, weight, key, gap, rounds + 1), info


def _grow(solver: cpsp, state: CpspState, batch: Batch) -> tuple[CpspState, Array]:
    """The state with more points and without planes, and the number of kernel rows."""
    basis, planes, kernel, most = state.basis, state.planes, as_kernel(solver.kernel), solver.points
    problem = solver.problem(basis, batch, state.weight)
    _, _, u = problem.plane(state.best.response)
    e = -jnp.where(basis.size == 0, u, dot(planes.theta, planes.u))

    def add(i, carry):
        basis, passes = carry
        key = jax.random.fold_in(state.key, basis.size)
        b, trials = _next_point(kernel, batch.x, basis, e, state.weight, key)
        return _with_point(kernel, batch.x, basis, b), passes + trials + CANDIDATES + 1

    new = jnp.minimum(max(1, most // 10) if most > 50 else 1, most - basis.size)
    basis, passes = lax.fori_loop(0, new, add, (basis, jnp.zeros((), jnp.int32)))
    empty = no_planes(solver.planes, most, planes.slope.dtype, e.shape[0])
    rounds = jnp.zeros((), jnp.int32)
    return state._replace(basis=basis, model=state.best, planes=empty, rounds=rounds), passes


def _with_point(kernel: Kernel, x: Any, basis: Basis, b: Array) -> Basis:
    """The basis with one more point."""
    slot = jnp.arange(basis.points.shape[0], dtype=jnp.int32)
    known = jnp.where(slot < basis.size, kernel(b[None], basis.points)[0], 0)
    row = jax.scipy.linalg.solve_triangular(basis.factor, known, lower=True)
    square = kernel.diag(b[None])[0]
    rest, least = square - dot(row, row), 64 * jnp.finfo(b.dtype).eps * square
    # A point within rounding of the span has no feature.
    scale = jnp.sqrt(jnp.maximum(rest, least))
    feature = jnp.where(rest > least, (kernel(b[None], x)[0] - dot(row, basis.features)) / scale, 0)
    write = lambda a, value: lax.dynamic_update_index_in_dim(a, value, basis.size, 0)
    return Basis(
        write(basis.points, b),
        write(basis.factor, jnp.where(slot == basis.size, scale, row)),
        write(basis.features, feature),
        basis.size + 1,
    )


def _next_point(
    kernel: Kernel, x: Any, basis: Basis, e: Array, weight: Array, key: Array
) -> tuple[Array, Array]:
    """A point b (d,) of large r(b)^2, and the number of trials of its search."""
    projection = dot(basis.features, e)
    coef = jax.scipy.linalg.solve_triangular(basis.factor, projection, lower=True, trans=1)
    coef = jnp.where(jnp.arange(coef.shape[0], dtype=jnp.int32) < basis.size, coef, 0)

    def residual(b):
        """r(b), the target of the fixed point, and whether r(b) is no difference of large sums."""
        of_rows, of_points = e * kernel(b[None], x)[0], -coef * kernel(b[None], basis.points)[0]
        value = jnp.sum(of_rows) + jnp.sum(of_points)
        total = jnp.sum(jnp.abs(of_rows)) + jnp.sum(jnp.abs(of_points))
        target = (dot(of_rows, x) + dot(of_points, basis.points)) / jnp.where(value == 0, 1, value)
        return value, target, jnp.abs(value) > 1e-3 * total

    is_row = (weight > 0).astype(e.dtype)
    drawn = sample_proportional(is_row, jax.random.uniform(key, (CANDIDATES,), e.dtype))
    rows = x[drawn]
    rows = rows.toarray() if isinstance(rows, SparseRows) else rows
    of_rows = dot(kernel(rows, x), e) - dot(basis.features[:, drawn].T, projection)
    return _fixed_point(residual, rows[argmax_value(of_rows * of_rows)[0]].astype(e.dtype))


def _fixed_point(residual: Callable, b: Array) -> tuple[Array, Array]:
    """Steps of the fixed point that increase r(b)^2, and their number with those that do not."""
    least_gain = max(1e-8, float(4 * jnp.finfo(b.dtype).eps))

    def trial(carry):
        k, old, scale, _ = carry
        b, value, target = old
        at = b + scale * (target - b)
        new_value, new_target, is_sure = residual(at)
        is_better = new_value * new_value > value * value
        is_last = new_value * new_value <= (1 + least_gain) * value * value
        done = jnp.where(is_better, is_last | ~is_sure, scale <= 2.0**-HALVINGS)
        keep = lambda new, old: jnp.where(is_better, new, old)
        new = jax.tree.map(keep, (at, new_value, new_target), old)
        return k + 1, new, jnp.where(is_better, 1, scale / 2), done

    value, target, is_sure = residual(b)
    start = jnp.zeros((), jnp.int32), (b, value, target), jnp.ones_like(value), ~is_sure
    k, (b, _, _), _, _ = lax.while_loop(lambda c: (c[0] < TRIALS) & ~c[-1], trial, start)
    return b, k
