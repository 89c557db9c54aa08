"""The solver of LIBSVM's nu-SVC, one-class SVM and nu-SVR.

`objectives.nu_problems` has their duals. At the optimum grad_i = linear_i - (K c)_i equals level_k
for every free coefficient of part k. With levels m

    b = (m_1 + m_2) / 2,   margin = (m_2 - m_1) / 2,   tube = (m_1 - m_2) / 2;   one class: b = m_1
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks import number
from ..implicit import parts_solution
from ..kernels import Kernel, as_kernel, rows_check
from ..models import Expansion, expansion
from ..numerics import accum_dtype, count, fast_max, fast_min, is_traced, norm, rounding_of_sums
from ..objectives.nu_problems import (
    SLACK,
    Parts,
    fill,
    largest_nu,
    make_parts,
    quantile,
    signs_of,
)
from ..recipe import cast, check_positive, register
from ..samplers import whole
from ..types import Array, Batch, Hooks, Info, Quadratic, Scalar, Solver
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
    residual_at,
    stop_gradients,
)

LEAST_UNIT = 1e-3  # a margin below it may be 0, and is no unit of a violation


@register("NuState")
class NuState(NamedTuple):
    """Solver state of `nu_svc`, `one_class` and `nu_svr`."""

    inner: DecompositionState  # its dual has coefficients (k, n), a row for each part
    level: Array  # (k,)  the multipliers of the sums

    @property
    def margin(self) -> Array:
        """The margin of `nu_svc` before its model is scaled to 1, (): LIBSVM's r.

        It is at least 0 but for the violation at the end.
        """
        return (self.level[..., 1] - self.level[..., 0]) / 2

    @property
    def tube(self) -> Array:
        """Half the width of the tube that `nu_svr` found, (): epsilon.

        It is at least 0 but for the violation at the end.
        """
        return -self.margin

    @property
    def offset(self) -> Array:
        """The threshold of `one_class`, (): rho."""
        return -self.level[..., 0]

    @property
    def sums_of(self) -> tuple[str, ...]:
        """Of the rows; updates make the coefficients fit other numbers."""
        return ("rows",)


class NuProblem(NamedTuple):
    """One of the three problems on given rows, as `dual_qp.Problem`."""

    kernel: Kernel
    parts: Parts
    start: Array | None  # (n,)  initial coefficients; None: zeros

    @property
    def real_targets(self) -> bool:
        """Whether there may be real targets: not in `one_class`, whose unit is the level itself."""
        return self.parts.low.shape[0] > 1

    def dual(self, state: DualState, x: Array, y: Array) -> Dual:
        """The coefficients of a state with their derivatives, bounds and curvatures."""
        return self.dual_from_diag(state, self.kernel.diag(x), y)

    def dual_from_diag(self, state: DualState, diag: Array, y: Array) -> Dual:
        """As `dual`, from the values k(x_i, x_i) (n,)."""
        bounds = Quadratic(self.parts.low, self.parts.high)
        return Dual(state.coef, state.grad + state.compensation, bounds, diag)

    def feasible_start(self, state: DualState, product: Callable) -> tuple[DualState, Array]:
        """The state at a feasible point, and the number of computed kernel rows.

        A state before its first update, or of another nu or C, begins at LIBSVM's point or that of
        `start`. Any other state stays.

        Args:
            state: from `init_state`, or after an update.
            product: the function c -> K c, (n,) -> (n,).
        """
        n = state.grad.shape[0]

        def start() -> tuple[DualState, Array]:
            coef = self.initial_coef()
            grad = self.parts.linear - product(jnp.sum(coef, axis=0))
            sum_error = jnp.sum(coef, axis=1) - self.parts.total
            return state._replace(coef=coef, grad=grad, sum_error=sum_error), jnp.int32(n)

        total = self.parts.total
        rounding = n * jnp.finfo(total.dtype).eps * jnp.abs(total)
        other_sums = jnp.abs(jnp.sum(state.coef, axis=1) - total) > rounding
        begins = jnp.isinf(state.sum_error[0]) | jnp.any(other_sums)
        return lax.cond(begins, start, lambda: (state, jnp.int32(0)))

    def initial_coef(self) -> Array:
        """Feasible coefficients (k, n)."""
        _, low, high, total = self.parts
        signs = signs_of(low)
        if self.start is None:
            coef = jnp.zeros_like(high)
        else:
            given = jnp.maximum(signs[:, None] * self.start[None, :], 0)
            sums = jnp.sum(given, axis=1)
            coef = given * (signs * total / jnp.where(sums > 0, sums, 1))[:, None]
        return signs[:, None] * jax.vmap(fill)(coef, high - low, signs * total)

    def residual(
        self, dual: Dual, weight: Array, y: Array, stop: str, bias: str, tol: Array
    ) -> Residual:
        """LIBSVM's violation, the larger one of the parts, in the units of the problem.

        The unit is 1, or that of decision values where this is smaller: the margin with `stop`
        "margin", rho with "offset", not below `LEAST_UNIT` of the largest score. The unit also
        grows with the rounding of scores, up to that of decision values.
        """
        up, down = fast_max(gain_up(dual)), fast_min(gain_down(dual))
        kkt = jnp.maximum(jnp.max(up - down), 0)
        rounding, unit = rounding_of_sums(dual.total, dual.diag), jnp.ones_like(kkt)
        level = jnp.where(jnp.isfinite(up), up, down) + jnp.where(jnp.isfinite(down), down, up)
        most = jnp.maximum(1, 2 * rounding / tol)
        if stop == "margin":
            margin = (level[1] - level[0]) / 4
            unit = jnp.where(margin > LEAST_UNIT, jnp.minimum(margin, most), unit)
        elif stop == "offset":
            largest = jnp.minimum(jnp.sum(dual.total) * jnp.max(jnp.abs(dual.diag)), 1)
            unit = jnp.clip(jnp.abs(level[0]) / 2, LEAST_UNIT * largest, most)
        return residual_at(kkt / unit, kkt, rounding / unit, tol)


def levels(dual: Dual) -> Array:
    """The multipliers of the sums (k,), each as `dual_qp.intercept`."""

    def of_part(coef: Array, low: Array, high: Array) -> Array:
        return intercept(dual._replace(coef=coef, bounds=Quadratic(low, high)), "free")

    return jax.vmap(of_part)(dual.coef, dual.bounds.low, dual.bounds.high)


def best_offset(dual: Dual, weight: Array, nu: Array) -> Array:
    """The multiplier of `one_class` that is best for its coefficients, (1,).

    The values of free rows differ by the violation. Where there are such rows, the multiplier is
    chosen so that rows of at most the share nu of the weight are outside.
    """
    coef, bounds = dual.coef[0], dual.bounds
    any_free = jnp.any((coef > bounds.low[0]) & (coef < bounds.high[0]))
    return jnp.where(any_free, quantile(dual.grad, weight, nu), levels(dual))


def init_state(form: str, data: Batch, start: Array | None, working_set: int | None) -> NuState:
    """The initial state, of zeros: the first update begins at a feasible point.

    Raises:
        ValueError: start of another length than the data.
    """
    dtype, n = accum_dtype(data.x), data.y.shape[0]
    if start is not None and jnp.shape(start) != (n,):
        raise ValueError(
            f"start has shape {jnp.shape(start)}, expected one number for each of the {n} rows"
        )
    k = 1 if form == "one_class" else 2
    zero, infinite = jnp.zeros(n, dtype), jnp.full(k, jnp.inf, dtype)
    grad = jnp.asarray(data.y, dtype) if form == "nu_svr" else zero
    weight = jnp.asarray(data.weight, dtype)
    dual = DualState(jnp.zeros((k, n), dtype), grad, zero, infinite, weight)
    inner = DecompositionState(dual, blocks.init_working_set(data, working_set), infinite[0])
    return stop_gradients(NuState(inner, jnp.zeros(k, dtype)))


def step_info(parts: Parts, C: Array, states: tuple, residual: Array, evals: Array) -> Info:
    """The step information of a step between two states `(before, after)`.

    The loss is the weighted mean of the slack before the step, in the units of the problem.
    """
    before, after = (state.inner.dual for state in states)
    value = before.grad[None, :] - states[0].level[:, None]
    slack = parts.high * jnp.maximum(value, 0) + parts.low * jnp.minimum(value, 0)
    sum_weight = jnp.maximum(C * jnp.sum(before.weight), jnp.finfo(value.dtype).tiny)
    change = after.coef - before.coef
    return Info(
        loss=jnp.sum(slack) / sum_weight,
        residual=residual,
        progress=jnp.sum(change, axis=0) * (before.grad + after.grad) / 2,
        index=jnp.where(
            jnp.any(change != 0, axis=0), lax.iota(jnp.int32, before.grad.shape[0]), -1
        ),
        support=count(jnp.sum(after.coef, axis=0) != 0),
        evals=evals,
    )


def build_model(
    form: str, nu: Scalar, C: Scalar, kernel: Kernel, state: NuState, data: Batch | None
) -> Expansion:
    """The model of a state; its derivatives are those of the exact solution."""
    coef = state.inner.dual.coef
    model = expansion(kernel, coef[0], data, "free")
    assert data is not None  # `expansion` refuses None
    nu, C, y, weight = cast((nu, C, data.y, data.weight), coef.dtype)
    parts = make_parts(form, *map(jnp.asarray, (nu, C, y, weight)))
    coef, level = parts_solution(coef, state.level, kernel, data.x, parts)
    total, b = coef[0] if form == "one_class" else coef[0] + coef[1], jnp.mean(level)
    if form == "nu_svc":
        margin = (level[1] - level[0]) / 2
        # the sums of coefficients times kernel values, of which the levels are, may cancel to 0
        size = jnp.sqrt(jnp.abs(kernel.diag(data.x)).astype(b.dtype))
        largest = jnp.maximum(jnp.max(jnp.abs(level)), norm(total * size) * jnp.max(size))
        rounding = 8 * jnp.finfo(b.dtype).eps * largest
        # a small margin below the violation may be 0 as well
        violation = jnp.where(margin <= LEAST_UNIT, state.inner.residual, 0)
        is_zero = margin <= jnp.maximum(rounding, violation)
        margin = jnp.where(is_zero, jnp.ones_like(margin), margin)  # unscaled; nan stays
        total, b = total / margin, b / margin
    return dataclasses.replace(model, coef=total, b=b)


def check_nu(form: str, nu: Scalar, kernel: Kernel, data: Batch) -> None:
    """Check on the host that nu is feasible, and a precomputed matrix symmetric.

    Raises:
        ValueError: nu above LIBSVM's limit for these labels and weights, or the matrix is not
            symmetric.
    """
    check_kernel = rows_check(kernel)
    if check_kernel is not None:
        check_kernel(data)
    y, weight = np.asarray(data.y), np.asarray(data.weight, np.float64)
    if is_traced(nu) or np.ndim(nu) or not np.isin(y[weight > 0], (-1, 1)).all():
        return
    largest = float(largest_nu(form, y, weight))
    if float(nu) > (1 + SLACK) * largest:
        raise ValueError(
            f"nu must be at most 2 min(n+, n-) / n = {largest:.6g} for the weights of these "
            f"classes, got {float(nu):g}: choose a smaller nu, or balance the weights"
        )


def make_solver(
    form: str,
    nu: float,
    C: Scalar,
    kernel: Any,
    tol: float | None,
    options: dict[str, Any],
) -> Solver:
    """The solver of one of the problems.

    Args:
        form: "nu_svc", "one_class" or "nu_svr".
        nu: as of these factories.
        C: as of `nu_svr`; 1 for the others.
        kernel: as of these factories.
        tol: as of these factories.
        options: working_set, memory, rounds and start, as of these factories.

    Raises:
        ValueError: as of these factories.
    """
    working_set, memory, rounds, start = (
        options[name] for name in ("working_set", "memory", "rounds", "start")
    )
    known = number("nu", nu)
    if known is not None and not 0 < known <= 1:
        raise ValueError(f"nu must be above 0 and at most 1, got {known:g}")
    tol = 1e-3 if tol is None else tol
    check_positive(C=C, tol=tol)
    check_start(start)
    blocks.check_options(working_set, memory, rounds)
    kernel = as_kernel(kernel)
    solve = blocks.make_update(
        {"nu_svc": "margin", "one_class": "offset"}.get(form, "violation"),
        "parts",
        working_set,
        memory,
        rounds,
    )

    def update(state, batch):
        dtype = state.level.dtype
        numbers = stop_gradients(cast((nu, C, kernel, start, tol), dtype))
        cast_nu, cast_C, cast_kernel, cast_start, cast_tol = numbers
        y = batch.y.astype(dtype)
        state, x, y = stop_gradients((state, cast_kernel.layout(batch).x, y))
        weight = state.inner.dual.weight
        parts = make_parts(form, cast_nu, cast_C, y, weight)
        qp = NuProblem(cast_kernel, parts, cast_start)
        inner, evals = solve(qp, cast_tol, state.inner, x, y)
        dual = qp.dual_from_diag(inner.dual, jnp.zeros_like(y), y)  # levels do not read diag
        largest = largest_nu(form, y, weight, jnp)
        feasible = (cast_nu > 0) & (cast_nu <= (1 + SLACK) * largest)
        one_class = form == "one_class"
        level = best_offset(dual, weight, cast_nu) if one_class else levels(dual)
        new = NuState(inner, jnp.where(feasible, level, jnp.nan))
        return new, step_info(parts, cast_C, (state, new), inner.residual, evals)

    return Solver(
        lambda key, data: init_state(form, data, start, working_set),
        update,
        lambda state, data=None: build_model(form, nu, C, kernel, state, data),
        whole(),
        True,
        targets={"nu_svc": "labels", "nu_svr": "real", "one_class": None}[form],
        hooks=Hooks(
            tol=tol, validate=functools.partial(check_nu, form, nu, kernel), layout=kernel.layout
        ),
    )
