"""Newton's method for linear machines with a smooth loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import cast, node, positive
from ...checks import check_whole, shown
from ...engines.base import LinearSolver, info_of
from ...implicit import linear_solution
from ...losses import squared_hinge
from ...models import Linear
from ...numerics import (
    accum_dtype,
    affine,
    affine_transpose,
    any_under_vmap,
    dot,
    exact_solution,
    preconditioner,
    solve_normal,
    split_constant,
    sums,
    system_for,
)
from ...risks import couples_rows, is_smooth, second_order_of
from ...types import (
    AnyLoss,
    Array,
    Batch,
    Info,
    SparseRows,
    from_step_0,
    state_class,
)

MOST_ROUNDS = 1000
SMALL = 2**15  # numbers of rows whose systems are solved in float64, without conjugate gradients
RATE = 0.1  # largest relative residual of a Newton system
MOST_PRODUCTS = 500  # with the Hessian, in one system of conjugate gradients
TRIALS = 40  # limit of trial steps in a line search
STEEPNESS = 0.01  # a line search ends at this share of the initial slope


@state_class("NewtonState", method="newton", sums_of=(), restart=from_step_0)
class NewtonState(NamedTuple):
    """The weights, with b as the last one where there is a bias, and the weights of the rows."""

    v: Array  # (d,) or (d + 1,)
    weight: Array  # (n,)
    steps: Array  # () int32, Newton steps of all updates


class Point(NamedTuple):
    """A point with what the next step reads there."""

    v: Array  # (d,) or (d + 1,)
    score: Array  # (n,)
    curvature: Array  # (n,) the diagonal of the Hessian of the risk
    grad: Array  # as v
    risk: Array  # ()
    value: Array  # () the objective
    residual: Array  # ()
    tells: Array  # () bool, whether it may be a solution: v = 0 only where its gradient is 0


class Objective(NamedTuple):
    """The objective sum_j ridge_j v_j^2 / 2 + R(scores) over given rows."""

    x: Array | SparseRows
    lam: Array  # ()
    risk: Callable  # scores -> R (), slopes (n,), Hessian
    bias: str
    constant: bool  # whether the rows lack the constant column of the bias

    def ridge(self, v: Array) -> Array:
        """lam, and 0 for a free bias, as v."""
        ridge = jnp.full_like(v, 1) * self.lam
        return ridge.at[-1].set(0) if self.bias == "free" else ridge

    @jax.named_scope("evaluate")
    def at(self, v: Array) -> Point:
        """The point v."""
        score, ridge = affine(self.x, v, self.constant), self.ridge(v)
        risk, slope, hessian = self.risk(score)
        grad = ridge * v + affine_transpose(slope, self.x, self.constant)
        # The gap of the dual point -slope / lam is |grad|^2 / (2 lam). For a free bias a Newton
        # step in b alone comes first: it changes the gradient in w, too.
        after, curvature = grad, ridge
        if self.bias == "free":
            column = affine_transpose(hessian.diagonal, self.x, self.constant)
            step = jnp.where(column[-1] > 0, grad[-1] / column[-1], 0)
            # where no row has curvature, the rounding of the sum of slopes would be an infinite gap
            rounding = 8 * jnp.finfo(grad.dtype).eps * jnp.sum(jnp.abs(slope))
            is_flat = (column[-1] == 0) & (jnp.abs(grad[-1]) <= rounding)
            after = (grad - step * column).at[-1].set(jnp.where(is_flat, 0, grad[-1]))
            curvature = curvature.at[-1].set(column[-1])
        gaps = jnp.where(after == 0, 0, after * after / curvature)
        sizes = gaps, jnp.abs(v), jnp.abs(grad)
        square, gap, worst, most, steepest = sums((ridge * v * v, gaps), sizes)
        gap = jnp.where(worst < jnp.inf, gap, jnp.inf)  # a compensated sum of it would be nan
        value = square / 2 + risk
        residual = gap / 2 / jnp.maximum(value, jnp.finfo(grad.dtype).tiny)
        # with a small C the gap of v = 0 is a small share of P, but v = 0 tells no rows apart
        tells = (most > 0) | (steepest == 0)
        return Point(v, score, hessian.diagonal, grad, risk, value, residual, tells)

    @jax.named_scope("line_search")
    def step_length(self, point: Point, direction: Array, rate: Array) -> Array:
        """The minimiser t > 0 of the objective along -direction, to a hundredth of its slope.

        Newton's method for the slope, safeguarded by bisection, on stored scores.
        """
        weighted = self.ridge(point.v) * direction
        terms = STEEPNESS * point.grad * direction, weighted * point.v, weighted * direction
        goal, linear, square = sums(terms)

        def trial(carry):
            k, t, low, high, _ = carry
            _, u, hessian = self.risk(point.score - t * rate)
            slope = t * square - linear - dot(u, rate)
            curvature = square + dot(hessian.product(rate), rate)
            is_last = jnp.abs(slope) <= goal
            low, high = jnp.where(slope < 0, t, low), jnp.where(slope < 0, high, t)
            next_t = t - slope / jnp.where(curvature > 0, curvature, 1)
            is_inside = (next_t > low) & (next_t < high) & (curvature > 0)
            bisected = jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * t)
            next_t = jnp.where(is_last, t, jnp.where(is_inside, next_t, bisected))
            return k + 1, next_t, low, high, is_last

        one = jnp.ones_like(goal)
        carry = jnp.zeros((), jnp.int32), one, 0 * one, jnp.inf * one, jnp.zeros((), bool)
        return lax.while_loop(lambda carry: (carry[0] < TRIALS) & ~carry[-1], trial, carry)[1]


class Search(NamedTuple):
    """The state of the loop over Newton steps."""

    steps: Array  # () int32; -1 before the first point is evaluated
    products: Array  # () int32, with the rows, of conjugate gradients
    first: tuple[Array, Array]  # risk and objective of the first point, () each
    best: tuple[Array, Array, Array]  # the best point so far, its objective and residual
    next: Array  # the point to evaluate
    goes_on: Array  # () bool


def _minimise(objective: Objective, v: Array, tol: Array, system: str, rounds: Array) -> Search:
    """Newton steps from v until the residual is at most `tol`.

    Points are evaluated at one place of the loop, as a second one takes time to compile.
    """
    rows, constant, size = objective.x, objective.constant, v.shape[0]
    precondition = preconditioner(rows, system, constant)
    # the loop of conjugate gradients takes as long to compile as all else
    few = not isinstance(rows, SparseRows) and rows.size <= SMALL and v.dtype == jnp.float32
    exact = few and system == "cholesky" and jax.default_backend() == "cpu"
    limit = min(2 * size + 10, MOST_PRODUCTS)

    def direct(point, goes_on, products):
        """The point after a step, and `products` with those of conjugate gradients for it."""
        ridge = objective.ridge(point.v)
        if objective.bias == "free":
            # where no row has curvature, b moves by a unit of scores: its system has no solution
            unit = jnp.abs(point.grad[-1])
            unit = jnp.where(unit > 0, unit, 1)
            ridge = ridge.at[-1].set(jnp.where(jnp.any(point.curvature > 0), 0, unit))
        # under `vmap`, where others go on, a gradient of 0 needs no products
        point = point._replace(grad=jnp.where(goes_on, point.grad, 0))
        if exact:
            d = exact_solution(rows, point.curvature, ridge, point.grad)
            rate = affine(rows, d, constant)
        else:
            weigh = objective.risk(point.score)[-1].product
            solve, rtol = precondition(point.curvature, ridge), jnp.sqrt(point.residual)
            system_of = rows, weigh, ridge, point.grad, solve
            d, rate, more = solve_normal(*system_of, jnp.minimum(rtol, RATE), limit, constant)
            products += more
        return point.v - objective.step_length(point, d, rate) * d, products

    def step(search):
        # Scores anew: added up, their rounding errors would hide the residual.
        new = objective.at(search.next)
        is_better = (new.value < search.best[1]) | (new.residual < search.best[2])
        is_better &= jnp.isfinite(new.value)
        is_met = (new.residual <= tol) & new.tells
        steps = search.steps + 1
        goes_on = is_better & ~is_met & (steps < MOST_ROUNDS) & (steps.astype(v.dtype) < rounds)
        either = lambda when, *trees: jax.tree.map(lambda a, b: jnp.where(when, a, b), *trees)
        first = either(search.steps < 0, (new.risk, new.value), search.first)
        best = either(is_better, (new.v, new.value, new.residual), search.best)
        point, products = lax.cond(
            any_under_vmap(goes_on),
            lambda: direct(new, goes_on, search.products),
            lambda: (new.v, search.products),
        )
        return Search(steps, products, first, best, point, goes_on)

    zero, infinite = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, v.dtype)
    unknown = infinite, infinite
    begin = Search(zero - 1, zero, unknown, (v, *unknown), v, zero == 0)
    return lax.while_loop(lambda search: search.goes_on, step, begin)


@node
class newton(LinearSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i) by Newton's method.

        g = lam w + sum_i share_i slope_i x_i,   H = lam I + sum_i share_i curvature_i x_i x_i'
        d = - H^-1 g,  by conjugate gradients to a relative residual of at most 0.1
        w = w + t d,   t by a line search on the scores of the rows, to 1/100 of the slope at 0

    Of this file `Objective.at` is the first line, `_minimise` the others with the loop.

    (w, b) takes the place of w where there is a bias. For a ranking loss, with u the slopes of its
    risk and S the Hessian: g = lam w + X'u, H = lam I + X'SX, by products with S. The conjugate
    gradients are preconditioned by a Cholesky factor of H, of which one step is exact up to
    rounding, by the diagonal of H, or by the eigenvectors of X'X, the same for all weights and lam.
    On a processor a factor in float64 solves systems of at most 2^15 numbers in float32.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: one with a continuous slope: squared_hinge, smooth_hinge, logistic, squared,
            squared_eps_insensitive, rank_squared_hinge; or of your own, with `Loss.curvature`.
        bias: "none", "feature" (regularised) or "free", which a ranking loss does not take.
        system: "cholesky", which forms H; "cg", which computes products with H only; or "eigen",
            for many runs on the same rows. None: "cholesky" for dense rows of at most 512 columns,
            else "cg". A ranking loss takes "cg".
        tol: relative duality gap to stop at, > 0; None: 1e-6; `fit(tol=)` overrides it.
        rounds: Newton steps of one update, at most; a whole number. An update ends once `tol` is
            met, or where rounding leaves no descent.

    Returns:
        A solver on all rows; an update uses all of them. Model `Linear`; that of `fit`, and of
        `model(state, data)`, has the derivatives of the exact solution
        (`implicit.linear_solution`). The residual after the update is
        |g|^2 / (2 lam P), where P is the objective. That is the duality gap of the slopes at w,
        relative to P. With a free bias it is the gap to second order, where H_wb and H_bb are from
        the column of b in H: (|g_w - H_wb g_b / H_bb|^2 / (2 lam) + g_b^2 / (2 H_bb)) / P. `evals`
        counts n for each gradient, each step of conjugate gradients and each row of H.

    Raises:
        ValueError: lam or tol not a single positive number, rounds not from 1 to 1,000, a
            loss whose slope is not continuous, another bias or system, or one that a ranking loss
            does not take. TypeError: for derivatives of a ranking loss in the weights of rows.

    Differs from the papers: relative gaps decide when to stop; the residual of a Newton system is
        at most the square root of the relative gap; no trust region (LIBLINEAR's TRON has one). A
        free bias moves by about one unit of the scores where no row has curvature.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.newton(2.0), data, jax.random.key(0), steps=1)
        >>> result.model.w.tolist(), result.converged
        ([0.5], True)

    Reference: S. Keerthi, D. DeCoste, A modified finite Newton method for fast solution of large
        scale linear SVMs, JMLR 6, 2005; C.-J. Lin, R. Weng, S. Keerthi, Trust region Newton method
        for large-scale logistic regression, JMLR 9, 2008; C.-P. Lee, C.-J. Lin, Large-scale linear
        RankSVM, Neural Computation 26, 2014.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: AnyLoss = squared_hinge
    bias: Literal["none", "feature", "free"] = "none"
    system: Literal["cholesky", "cg", "eigen"] | None = None
    tol: float | None = positive(default=None)
    rounds: float = 100.0

    usual_tol = 1e-6  # of the duality gap, relative to the objective

    def check(self) -> None:
        check_whole("rounds", self.rounds, most=MOST_ROUNDS)
        if not is_smooth(self.loss):
            raise ValueError(
                "newton needs a loss with a continuous slope, such as losses.squared_hinge, "
                f"smooth_hinge, logistic or rank_squared_hinge, got {shown(self.loss)}"
            )
        if not couples_rows(self.loss):
            return
        if self.bias == "free":
            raise ValueError(f"{shown(self.loss)} does not depend on a free bias: take bias='none'")
        if self.system not in (None, "cg"):
            raise ValueError(
                f"{shown(self.loss)} couples rows, so that its systems are not formed: take "
                f"system='cg', got {self.system!r}"
            )

    def init(self, key: Array, data: Batch) -> NewtonState:
        dtype = accum_dtype(data.x)
        v = jnp.zeros(data.x.shape[-1] + (self.bias != "none"), dtype)
        return NewtonState(v, jnp.array(data.weight, dtype), jnp.zeros((), jnp.int32))

    def update(self, state: NewtonState, batch: Batch) -> tuple[NewtonState, Info]:
        numbers = cast((self.lam, self.iterates_to, self.rounds, self.loss), state.v.dtype)
        state, batch, numbers = lax.stop_gradient((state, batch, numbers))
        lam, limit, rounds, loss = numbers
        risk = second_order_of(loss, batch._replace(weight=state.weight))
        objective = Objective(batch.x, lam, risk, self.bias, self.bias != "none")
        form = "centred" if couples_rows(loss) else self.system or system_for(batch.x)
        last = _minimise(objective, state.v, limit, form, rounds)
        (loss, first), (v, value, residual) = last.first, last.best
        of_step = 1 + (v.shape[0] if form == "cholesky" else 0)  # a gradient, and the rows of H
        passes = 1 + of_step * last.steps + last.products
        evals = passes.astype(v.dtype) * batch.y.shape[0]
        info = info_of(loss, residual, jnp.int32(batch.x.shape[1]), evals, first - value)
        return NewtonState(v, state.weight, state.steps + last.steps), info

    def model(self, state: NewtonState, data: Batch | None = None) -> Linear:
        w, b = split_constant(state.v, self.bias != "none")
        if data is not None:
            w, b = linear_solution(w, b, data, self.lam, self.loss, self.bias)
        return Linear(w, b, self.bias)
