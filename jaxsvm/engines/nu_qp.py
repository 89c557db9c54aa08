"""The duals of LIBSVM's nu-SVC, one-class SVM and nu-SVR: coefficients in parts of fixed sums.

    D(coef) = linear' c - 1/2 c' K c,   c_i = sum_k coef_ki,
        low_ki <= coef_ki <= high_ki,   sum_i coef_ki = total_k

The first part is >= 0. The second one, which the one-class SVM does not have, is <= 0. With weights
w_i and W = sum_i w_i:

    problem    linear  bounds of the parts                     sums of the parts
    nu_svc     0       w_i where y_i = 1, -w_i where y_i = -1  nu W / 2, -nu W / 2
    one_class  0       w_i                                     nu W
    nu_svr     y       C w_i, -C w_i                           C nu W / 2, -C nu W / 2

At the optimum grad_i = linear_i - (K c)_i equals level_k for every free coefficient of part k. With
levels m:  b = (m_1 + m_2) / 2, margin (m_2 - m_1) / 2, tube (m_1 - m_2) / 2; one class: b = m_1.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import number
from ..implicit import Parts, parts_solution
from ..kernels import Kernel, as_kernel, matvec
from ..models import Expansion, expansion
from ..numerics import accum_dtype, count, fast_max, fast_min, is_traced, norm
from ..recipe import Static, cast, check_positive, register
from ..samplers import whole
from ..types import Array, Batch, Count, Info, Quadratic, Scalar, Solver
from . import blocks
from .blocks import DecompositionState
from .dual_qp import (
    Dual,
    DualState,
    Residual,
    check_start,
    gain_down,
    gain_up,
    intercept,
    kernel_check,
    stop_gradients,
)

SLACK = 1e-6  # relative, by which rounding of nu may exceed its largest value


@register("NuState")
class NuState(NamedTuple):
    """Solver state of `nu_svc`, `one_class` and `nu_svr`."""

    inner: DecompositionState  # its dual has coefficients (k, n), a row for each part
    level: Array  # (k,)  the multipliers of the sums

    @property
    def margin(self) -> Array:
        """The margin of `nu_svc` before its model is scaled to 1, () >= 0: LIBSVM's r."""
        return (self.level[..., 1] - self.level[..., 0]) / 2

    @property
    def tube(self) -> Array:
        """Half the width of the tube that `nu_svr` found, () >= 0: epsilon."""
        return -self.margin

    @property
    def offset(self) -> Array:
        """The threshold of `one_class`, (): rho."""
        return -self.level[..., 0]


class NuProblem(NamedTuple):
    """One of the three problems, as `dual_qp.Problem`."""

    nu: Scalar  # ()
    C: Scalar  # ()  1 except for nu_svr
    kernel: Kernel
    form: Static  # of "nu_svc", "one_class" or "nu_svr"

    def largest(self, y: Array, weight: Array) -> Array:
        """The largest feasible nu, ()."""
        return largest_nu(self.form.thing, y, weight, jnp)

    def parts(self, y: Array, weight: Array) -> Parts:
        """The linear term, bounds and sums; those of the largest feasible nu where nu is larger."""
        zero, cap = jnp.zeros_like(weight), self.C * weight
        nu = jnp.minimum(self.nu, self.largest(y, weight))
        total = self.C * nu * jnp.sum(weight)
        if self.form.thing == "one_class":
            return Parts(zero, zero[None], cap[None], total[None])
        caps = jnp.stack([cap, cap])
        if self.form.thing == "nu_svc":
            caps = jnp.where(jnp.stack([y > 0, y <= 0]), caps, 0)
        zeros, signs = jnp.zeros_like(caps[:1]), jnp.asarray([1.0, -1.0], y.dtype)
        low, high = (
            jnp.concatenate([zeros, -caps[1:]]),
            jnp.concatenate([caps[:1], zeros]),
        )
        return Parts(y if self.form.thing == "nu_svr" else zero, low, high, signs * total / 2)

    def dual(self, state: DualState, x: Array, y: Array) -> Dual:
        """The coefficients of a state with their derivatives, bounds and curvatures."""
        return self.dual_from_diag(state, self.kernel.diag(x), y)

    def dual_from_diag(self, state: DualState, diag: Array, y: Array) -> Dual:
        """As `dual`, from the values k(x_i, x_i) (n,)."""
        parts = self.parts(y, state.weight)
        bounds = Quadratic(parts.low, parts.high)
        return Dual(state.coef, state.grad + state.compensation, bounds, diag)

    def residual(
        self, dual: Dual, weight: Array, y: Array, stop: str, bias: str, tol: Array
    ) -> Residual:
        """LIBSVM's violation, the larger one of the parts; the rest as of `dual_qp.residual_of`."""
        kkt = violation(dual)
        rounding = jnp.finfo(y.dtype).eps * norm(dual.total)
        return Residual(kkt, kkt, jnp.maximum(tol - rounding, tol / 2))


def largest_nu(form: str, y: Any, weight: Any, xp: Any = np) -> Any:
    """The largest feasible nu, in (0, 1]: for nu_svc 2 min(W+, W-) / W, of the weights by class."""
    if form != "nu_svc":
        return xp.ones((), weight.dtype)
    positive, negative = (
        xp.sum(xp.where(y > 0, weight, xp.zeros_like(weight))),
        xp.sum(xp.where(y > 0, xp.zeros_like(weight), weight)),
    )
    total = positive + negative
    return 2 * xp.minimum(positive, negative) / xp.where(total > 0, total, xp.ones_like(total))


def violation(dual: Dual) -> Array:
    """The violation of the optimality conditions (), the largest of the parts."""
    up, down = fast_max(gain_up(dual)), fast_min(gain_down(dual))
    return jnp.maximum(jnp.max(up - down), 0)


def levels(dual: Dual) -> Array:
    """The multipliers of the sums (k,), each as `dual_qp.intercept`."""

    def of_part(coef: Array, low: Array, high: Array) -> Array:
        return intercept(dual._replace(coef=coef, bounds=Quadratic(low, high)), "free")

    return jax.vmap(of_part)(dual.coef, dual.bounds.low, dual.bounds.high)


def fill(coef: Array, cap: Array, total: Array) -> Array:
    """Coefficients (n,) in [0, cap] of the given sum.

    Those given are scaled down to the sum, or else filled up to their bounds in order of the rows.
    From zeros this is LIBSVM's initial point.
    """
    coef = jnp.clip(coef, 0, cap)
    given = jnp.sum(coef)
    coef = coef * jnp.minimum(1, total / jnp.where(given > 0, given, 1))
    room = cap - coef
    return coef + jnp.clip(total - jnp.sum(coef) - (jnp.cumsum(room) - room), 0, room)


def init_state(qp: NuProblem, data: Batch, start: Array | None, working_set: int | None) -> NuState:
    """The initial state, from LIBSVM's initial point or from `start`.

    Raises:
        ValueError: start of another length than the data.
    """
    dtype, n = accum_dtype(data.x), data.y.shape[0]
    qp, y, weight = cast((qp, data.y, data.weight), dtype)
    y, weight = jnp.asarray(y), jnp.asarray(weight)
    parts = qp.parts(y, weight)
    coef = jnp.zeros_like(parts.high)
    signs = jnp.ones(1, dtype) if coef.shape[0] == 1 else jnp.asarray([1.0, -1.0], dtype)
    caps, totals = parts.high - parts.low, signs * parts.total
    if start is not None:
        if jnp.shape(start) != (n,):
            raise ValueError(
                f"start has shape {jnp.shape(start)}, expected one number for each of the {n} rows"
            )
        given = jnp.maximum(signs[:, None] * jnp.asarray(start, dtype)[None, :], 0)
        sums = jnp.sum(given, axis=1)
        coef = given * (totals / jnp.where(sums > 0, sums, 1))[:, None]
    coef = signs[:, None] * jax.vmap(fill)(coef, caps, totals)
    grad = parts.linear - matvec(qp.kernel, data.x, data.x, jnp.sum(coef, axis=0))
    error = jnp.sum(coef, axis=1) - parts.total
    state = DualState(coef, grad, jnp.zeros_like(grad), error, weight)
    # without the kernel's diagonal, which the levels do not read
    level = levels(qp.dual_from_diag(state, jnp.zeros_like(grad), y))
    working = blocks.init_working_set(n, working_set)
    inner = DecompositionState(state, working, jnp.full((), jnp.inf, dtype))
    return stop_gradients(NuState(inner, level))


def step_info(
    qp: NuProblem, states: tuple, level: Array, y: Array, residual: Array, evals: Array | Count
) -> Info:
    """The step information of a step between two dual states `(before, after)`.

    The loss is the weighted mean of the slack before the step, in the units of the problem.
    """
    before, after = (qp.dual_from_diag(state, jnp.zeros_like(y), y) for state in states)
    low, high = before.bounds.low, before.bounds.high
    value = jnp.broadcast_to(before.grad, before.coef.shape) - level[:, None]
    slack = high * jnp.maximum(value, 0) + low * jnp.minimum(value, 0)
    sum_weight = qp.C * jnp.sum(states[0].weight)
    change = jnp.sum(after.coef - before.coef, axis=0)
    moved = jnp.any(after.coef != before.coef, axis=0)
    return Info(
        loss=jnp.sum(slack) / jnp.maximum(sum_weight, jnp.finfo(y.dtype).tiny),
        residual=residual,
        progress=change * (before.grad + after.grad) / 2,
        index=jnp.where(moved, jnp.arange(y.shape[0], dtype=jnp.int32), -1),
        support=count(after.total != 0),
        evals=evals,
    )


def build_model(qp: NuProblem, state: NuState, data: Batch | None) -> Expansion:
    """The model of a state; its derivatives are those of the exact solution."""
    coef = state.inner.dual.coef
    model = expansion(qp.kernel, coef[0], data, "free")
    assert data is not None  # `expansion` refuses None
    qp, y, weight = cast((qp, data.y, data.weight), coef.dtype)
    y, weight = jnp.asarray(y), jnp.asarray(weight)
    coef, level = parts_solution(coef, state.level, qp.kernel, data.x, qp.parts(y, weight))
    if qp.form.thing == "one_class":
        total, b = coef[0], level[0]
    else:
        total, b = jnp.sum(coef, axis=0), jnp.mean(level)
    if qp.form.thing == "nu_svc":
        margin = (level[1] - level[0]) / 2
        rounding = 8 * jnp.finfo(b.dtype).eps * jnp.max(jnp.abs(level))
        margin = jnp.where(margin > rounding, margin, jnp.ones_like(margin))
        total, b = total / margin, b / margin
    largest = jax.lax.stop_gradient(qp.largest(y, weight))
    feasible = (qp.nu > 0) & (qp.nu <= (1 + SLACK) * largest)
    return dataclasses.replace(
        model, coef=jnp.where(feasible, total, jnp.nan), b=jnp.where(feasible, b, jnp.nan)
    )


def check_nu(qp: NuProblem, data: Batch) -> None:
    """Check on the host that nu is feasible, and a precomputed matrix symmetric.

    Raises:
        ValueError: nu above LIBSVM's limit for these labels and weights, or the matrix is not
            symmetric.
    """
    check_kernel = kernel_check(qp.kernel)
    if check_kernel is not None:
        check_kernel(data)
    y, weight = np.asarray(data.y), np.asarray(data.weight, np.float64)
    if is_traced(qp.nu) or np.ndim(qp.nu) or not np.isin(y[weight > 0], (-1, 1)).all():
        return
    largest = float(largest_nu(qp.form.thing, y, weight))
    if float(qp.nu) > (1 + SLACK) * largest:
        raise ValueError(
            f"nu must be at most 2 min(n+, n-) / n = {largest:.6g} for the weights of these "
            f"classes, got {float(qp.nu):g}: choose a smaller nu, or balance the weights"
        )


def make_solver(
    form: str,
    nu: float,
    C: Scalar,
    kernel: Any,
    with_tol: Callable,
    *,
    tol: float | None,
    working_set: int | None,
    memory: int | None,
    rounds: float,
    start: Array | None,
) -> Solver:
    """The solver of one of the problems.

    Args:
        form: "nu_svc", "one_class" or "nu_svr".
        nu: as of these factories.
        C: as of `nu_svr`; 1 for the others.
        kernel: as of these factories.
        with_tol: tol -> the same solver with this tolerance.
        tol: as of these factories.
        working_set: as of `decomposition`.
        memory: as of `decomposition`.
        rounds: as of `decomposition`.
        start: as of these factories.

    Raises:
        ValueError: as of these factories.
    """
    found = number("nu", nu)
    if found is not None and not 0 < found <= 1:
        raise ValueError(f"nu must be above 0 and at most 1, got {found:g}")
    tol = 1e-3 if tol is None else tol
    check_positive(C=C, tol=tol)
    check_start(start)
    rounds = blocks.check_options(working_set, memory, rounds)
    qp = NuProblem(nu, C, as_kernel(kernel), Static(form))
    solve = blocks.make_update("kkt", "parts", working_set, memory, rounds)

    def update(state, batch):
        dtype = state.level.dtype
        cast_qp, cast_tol = stop_gradients(cast((qp, tol), dtype))
        y = batch.y.astype(dtype)
        state, x, y = stop_gradients((state, cast_qp.kernel.layout(batch).x, y))
        inner, evals = solve(cast_qp, cast_tol, state.inner, x, y)
        level = levels(cast_qp.dual_from_diag(inner.dual, jnp.zeros_like(y), y))
        states = state.inner.dual, inner.dual
        info = step_info(cast_qp, states, state.level, y, inner.residual, evals)
        return NuState(inner, level), info

    return Solver(
        lambda key, data: init_state(qp, data, start, working_set),
        update,
        lambda state, data=None: build_model(qp, state, data),
        whole(),
        "all",
        targets={"nu_svc": "labels", "nu_svr": "real", "one_class": None}[form],
        with_tol=with_tol,
        tol=tol,
        validate=functools.partial(check_nu, qp),
        layout=qp.kernel.layout,
    )
