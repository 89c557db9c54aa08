"""The solver of LIBSVM's nu-SVC, one-class SVM and nu-SVR.

`objectives.nu_problems` has their duals. At the optimum grad_i = linear_i - (K c)_i equals level_k
for every free coefficient of part k. With levels m

    b = (m_1 + m_2) / 2,   margin = (m_2 - m_1) / 2,   tube = (m_1 - m_2) / 2;   one class: b = m_1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._node import between, cast, node, positive
from ..checks import number
from ..implicit import parts_solution
from ..kernels import Kernel
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
from ..types import MOST_ROUNDINGS, Array, Batch, Info, Quadratic, state_class
from . import blocks
from .base import AllRowsSolver
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
)

LEAST_UNIT = 1e-3  # a margin below it may be 0, and is no unit of a violation


@state_class("NuState", sums_of=("rows",))
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
            state: from `NuSolver.init`, or after an update.
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
        "margin", rho with "offset", not below `LEAST_UNIT` of the largest score, nor so low that
        rounding is a violation. The unit also grows with the rounding of scores, up to that of
        decision values.
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
            # where rho is 0, its rounding is no violation
            least = jnp.minimum(MOST_ROUNDINGS * rounding / tol, most)
            least = jnp.maximum(least, LEAST_UNIT * largest)
            unit = jnp.clip(jnp.abs(level[0]) / 2, least, most)
        return residual_at(kkt / unit, kkt, rounding / unit, tol)


def levels(dual: Dual) -> Array:
    """The multipliers of the sums (k,), each as `dual_qp.intercept`."""
    of = lambda coef, *bounds: dual._replace(coef=coef, bounds=Quadratic(*bounds))
    bounds = dual.bounds.low, dual.bounds.high
    return jax.vmap(lambda *part: intercept(of(*part), "free"))(dual.coef, *bounds)


def best_offset(dual: Dual, weight: Array, nu: Array) -> Array:
    """The multiplier of `one_class` that is best for its coefficients, (1,).

    The values of free rows differ by the violation. Where there are such rows, the multiplier is
    chosen so that rows of at most the share nu of the weight are outside.
    """
    coef, bounds = dual.coef[0], dual.bounds
    any_free = jnp.any((coef > bounds.low[0]) & (coef < bounds.high[0]))
    return jnp.where(any_free, quantile(dual.grad, weight, nu), levels(dual))


def step_info(parts: Parts, C: Array, states: tuple, residual: Array, evals: Array) -> Info:
    """The step information of a step between two states `(before, after)`.

    The loss is the weighted mean of the slack before the step, in the units of the problem.
    """
    before, after = (state.inner.dual for state in states)
    value = before.grad[None, :] - states[0].level[:, None]
    slack = parts.high * jnp.maximum(value, 0) + parts.low * jnp.minimum(value, 0)
    sum_weight = jnp.maximum(C * jnp.sum(before.weight), jnp.finfo(value.dtype).tiny)
    change, place = after.coef - before.coef, lax.iota(jnp.int32, before.grad.shape[0])
    return Info(
        loss=jnp.sum(slack) / sum_weight,
        residual=residual,
        progress=jnp.sum(change, axis=0) * (before.grad + after.grad) / 2,
        index=jnp.where(jnp.any(change != 0, axis=0), place, -1),
        support=count(jnp.sum(after.coef, axis=0) != 0),
        evals=evals,
    )


@node
class NuOptions(AllRowsSolver):
    """What all the problems take by name."""

    _: KW_ONLY
    tol: float | None = positive(default=None)
    working_set: int | None = None
    memory: int | None = between(0, 2**62, default=None)
    rounds: float = 2000.0
    start: Array | None = None


def check_nu(nu: object) -> None:
    """Raise ValueError for a nu that is known and not in (0, 1]."""
    known = number("nu", nu)
    if known is not None and not 0 < known <= 1:
        raise ValueError(f"nu must be above 0 and at most 1, got {known:g}")


class NuSolver(NuOptions):
    """The solver of one of the problems, which is a subclass."""

    form: str  # "nu_svc", "one_class" or "nu_svr"
    stop: str = "violation"  # as of `NuProblem.residual`
    nu: Any
    C: Any = 1.0
    kernel: Kernel
    targets: Any = None

    bias = "free"  # of its model
    usual_tol = 1e-3

    def check(self) -> None:
        check_nu(self.nu)
        check_start(self.start)
        blocks.check_options(self.working_set, self.rounds)

    def layout(self, data: Batch) -> Batch:
        return self.kernel.layout(data)

    def validate(self, data: Batch) -> None:
        """Raise ValueError for nu above LIBSVM's limit for these labels and weights.

        Of a precomputed matrix, also where it is not symmetric.
        """
        super().validate(data)
        y, weight = np.asarray(data.y), np.asarray(data.weight, np.float64)
        if is_traced(self.nu) or np.ndim(self.nu) or not np.isin(y[weight > 0], (-1, 1)).all():
            return
        largest = float(largest_nu(self.form, y, weight))
        if float(self.nu) > (1 + SLACK) * largest:
            raise ValueError(
                f"nu must be at most 2 min(n+, n-) / n = {largest:.6g} for the weights of these "
                f"classes, got {float(self.nu):g}: choose a smaller nu, or balance the weights"
            )

    def init(self, key: Array, data: Batch) -> NuState:
        """The initial state, of zeros: the first update begins at a feasible point."""
        dtype, n = accum_dtype(data.x), data.y.shape[0]
        if self.start is not None and jnp.shape(self.start) != (n,):
            raise ValueError(
                f"start has shape {jnp.shape(self.start)}, expected one number for each of the "
                f"{n} rows"
            )
        k = 1 if self.form == "one_class" else 2
        grad = jnp.array(data.y, dtype) if self.form == "nu_svr" else jnp.zeros(n, dtype)
        sums, weight = jnp.full(k, jnp.inf, dtype), jnp.array(data.weight, dtype)
        dual = DualState(jnp.zeros((k, n), dtype), grad, jnp.zeros(n, dtype), sums, weight)
        working = blocks.init_working_set(data, self.working_set)
        inner = DecompositionState(dual, working, jnp.full((), jnp.inf, dtype))
        return lax.stop_gradient(NuState(inner, jnp.zeros(k, dtype)))

    def update(self, state: NuState, batch: Batch) -> tuple[NuState, Info]:
        dtype, one_class = state.level.dtype, self.form == "one_class"
        numbers = self.nu, self.C, self.kernel, self.start, self.iterates_to
        nu, C, kernel, start, tol = lax.stop_gradient(cast(numbers, dtype))
        y, limits = batch.y.astype(dtype), (self.working_set, self.memory, self.rounds)
        state, x, y = lax.stop_gradient((state, kernel.layout(batch).x, y))
        weight = state.inner.dual.weight
        parts = make_parts(self.form, nu, C, y, weight)
        qp = NuProblem(kernel, parts, start)
        inner, evals = blocks.update(qp, tol, state.inner, x, y, self.stop, "parts", limits)
        dual = qp.dual_from_diag(inner.dual, jnp.zeros_like(y), y)  # levels do not read diag
        largest = largest_nu(self.form, y, weight, jnp)
        feasible = (nu > 0) & (nu <= (1 + SLACK) * largest)
        level = best_offset(dual, weight, nu) if one_class else levels(dual)
        new = NuState(inner, jnp.where(feasible, level, jnp.nan))
        return new, step_info(parts, C, (state, new), inner.residual, evals)

    def model(self, state: NuState, data: Batch | None = None) -> Expansion:
        """The model of a state; its derivatives are those of the exact solution."""
        coef, kernel = state.inner.dual.coef, self.kernel
        model = expansion(kernel, coef[0], data, "free")
        assert data is not None  # `expansion` refuses None
        numbers = cast((self.nu, self.C, data.y, data.weight), coef.dtype)
        parts = make_parts(self.form, *map(jnp.asarray, numbers))
        coef, level = parts_solution(coef, state.level, kernel, data.x, parts)
        total, b = jnp.sum(coef, axis=0), jnp.mean(level)
        if self.form == "nu_svc":
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
