"""Proximal Newton steps for linear machines with an L1 or elastic net penalty."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive
from ...checks import check_whole, shown
from ...engines.base import AllRowsSolver, info_of
from ...engines.coordinate_descent import visiting_stride
from ...implicit import linear_solution
from ...losses import squared_hinge
from ...models import Linear
from ...numerics import (
    accum_dtype,
    affine,
    affine_transpose,
    cholesky,
    dot,
    fast_max,
    map_on_cpu,
    pairwise_sum,
    put_row,
    row_at,
    shards,
    split_constant,
    weighted_gram,
)
from ...objectives.elastic import elastic_gap
from ...risks import is_smooth
from ...types import (
    Array,
    Batch,
    Info,
    Loss,
    Scalar,
    SparseRows,
    from_step_0,
    require,
    state_class,
)
from .columns import Columns, add_columns, by_columns, has_sparse_columns, listed

MOST_ROUNDS = 1000
FEW = 512  # columns, up to which the matrix of a step is formed; the support of dense steps on it
FEW_SPARSE = 256  # likewise, of known sparse rows on a CPU
SWEEPS = 3  # of coordinate descent between two steps on the support
INNER_GRAM, INNER_COLUMNS = 60, 30  # sweeps of one step at most
GOAL_GRAM, GOAL_COLUMNS = 0.01, 0.1  # violation at their end, relative to that before
RATE, PRODUCTS = 0.1, 30  # relative residual of a step on the support, and products at most
LEAST = 64  # columns without weight that a working set takes at least
TRIALS = 20  # halvings of a step
STEEPNESS = 0.01  # share of the slope by which a step makes the objective fall
SHORT = 0.1  # steps up to this length raise the damping of the model, at least to the next number
LEAST_DAMPING = 1e-3  # share of curvatures and derivatives
STUCK = 3  # steps without a gain, after which a run ends
GAIN = 0.9  # a smaller share of the residual is a gain, as a decrease above rounding is


@state_class("ProximalNewtonState", method="proximal_newton", restart=from_step_0)
class ProximalNewtonState(NamedTuple):
    """The weights, with b as the last one where there is a bias, and the weights of the rows."""

    v: Array  # (d,) or (d + 1,)
    weight: Array  # (n,)
    steps: Array  # () int32, steps of all updates


class Point(NamedTuple):
    """A point with what the next step reads there."""

    v: Array  # (p,)
    score: Array  # (n,)
    slope: Array  # (n,)  share_i slope_i
    curvature: Array  # (n,)  share_i curvature_i
    grad: Array  # (p,)  of the risk, X' slope
    value: Array  # ()  the objective
    residual: Array  # ()  the relative duality gap


class Rows(NamedTuple):
    """Few columns: the matrix H = X'SX of a step is formed, and a coordinate reads a row of it."""

    x: Array  # (n, d)
    constant: bool

    def scores(self, v: Array) -> Array:
        """X v, (p,) -> (n,)."""
        return affine(self.x, v, self.constant)

    def products(self, u: Array) -> Array:
        """X' u, (n,) -> (p,)."""
        return affine_transpose(u, self.x, self.constant)


class Objective(NamedTuple):
    """l1 |v|_1 + l2/2 |v|^2 + sum_i share_i loss(f_i, y_i), f = X v."""

    x: Any  # Rows or Columns
    y: Array
    share: Array
    l1: Scalar
    l2: Scalar
    loss: Loss

    def penalty(self, v: Array) -> Array:
        """l1 |v|_1 + l2/2 |v|^2, ()."""
        return pairwise_sum(self.l1 * jnp.abs(v) + self.l2 / 2 * v * v)

    def risk(self, score: Array) -> Array:
        """sum_i share_i loss_i, ()."""
        return pairwise_sum(self.share * self.loss.value(score, self.y))

    @jax.named_scope("evaluate")
    def at(self, v: Array) -> Point:
        """The point v."""
        score = self.x.scores(v)
        slope = self.share * self.loss.slope(score, self.y)
        curvature: Any = self.loss.curvature  # not None, see `is_smooth`
        curvature = self.share * curvature(score, self.y)
        grad = self.x.products(slope)
        numbers: Any = self.share, self.loss, self.l1, self.l2
        gap, value = elastic_gap(v, score, grad, self.y, *numbers)
        residual = gap / jnp.maximum(value, jnp.finfo(value.dtype).tiny)
        return Point(v, score, slope, curvature, grad, value, residual)

    def violation(self, v: Array, grad: Array) -> Array:
        """The distance of each derivative from the subgradients of the penalty, (p,)."""
        full = grad + self.l2 * v
        of_support = jnp.abs(full + self.l1 * jnp.sign(v))
        return jnp.where(v != 0, of_support, jnp.maximum(jnp.abs(full) - self.l1, 0))

    def minimiser(self, ridge: Array, curvature: Array, rate: Array, old: Array) -> Array:
        """The minimiser over one weight of l1 |v| + l2/2 v^2 + a model of the risk, ().

        The model has the derivative `rate` and the second derivative `curvature + ridge` at `old`.
        """
        total = jnp.maximum(curvature + ridge + self.l2, jnp.finfo(old.dtype).tiny)
        t = (curvature + ridge) * old - rate
        return jnp.sign(t) * jnp.maximum(jnp.abs(t) - self.l1, 0) / total


def _ridge_of(diagonal: Array, point: Point, l2: Scalar, damping: Array) -> Array:
    """What the model adds to the curvature of each column, (p,).

    A column without curvature gets the size of its derivative, for a step of about one unit.
    """
    unit = jnp.abs(point.grad + l2 * point.v)
    return damping * (diagonal + unit) + jnp.where(diagonal > 0, 0, unit)


def _step_on_support(
    objective: Objective, v: Array, rate: Array, solve: Callable, product: Callable
) -> tuple[Array, Array, Array]:
    """Newton's step over the weights that are not 0, with fixed signs.

    Weights that would change their signs become 0. Where the model does not fall so, the step ends
    at the first change.

    Args:
        objective: for its penalty.
        v: (p,) the weights.
        rate: (p,) the derivatives of the model of the risk at v.
        solve: a map r -> d with (H + l2 I) d = r on the support, and 0 where r is 0.
        product: the map p -> H p of weights that are 0 outside of the support.

    Returns:
        The new weights, H times their change, and whether the step ended at a change of a sign. The
        old ones where the model does not fall.
    """
    is_in = v != 0
    step = solve(jnp.where(is_in, -(rate + objective.l2 * v + objective.l1 * jnp.sign(v)), 0))
    reach = jnp.where(v * (v + step) < 0, -v / jnp.where(step == 0, 1, step), jnp.inf)
    first = jnp.min(reach)
    is_cut = first < 1
    # all weights that would change their signs become 0, or else the first of them
    whole = jnp.where(is_in & (reach == jnp.inf), v + step, 0)
    short = jnp.where(is_in & ~((reach <= first) & is_cut), v + jnp.minimum(first, 1) * step, 0)

    def tried(new):
        change = product(new - v)
        rise = dot(rate + change / 2, new - v) + objective.penalty(new) - objective.penalty(v)
        return new, change, rise

    new, change, rise = tried(whole)
    new, change, rise = lax.cond(rise < 0, lambda: (new, change, rise), lambda: tried(short))
    falls = rise < 0
    return jnp.where(falls, new, v), jnp.where(falls, change, 0), falls & is_cut


@jax.named_scope("solve_gram")
def _solve_by_gram(objective: Objective, point: Point, damping: Array) -> tuple[Array, Array]:
    """The minimiser of the model at a point, by its matrix; (p,), and the number of sweeps.

    Three sweeps of coordinate descent alternate with Newton steps on the support.
    """
    x, v = objective.x, point.v
    hessian = weighted_gram(x.x, point.curvature, x.constant)
    diagonal = jnp.diagonal(hessian)
    ridge = _ridge_of(diagonal, point, objective.l2, damping)
    hessian, size = hessian + jnp.diag(ridge), v.shape[0]
    goal = GOAL_GRAM * fast_max(objective.violation(v, point.grad))
    zero = jnp.zeros((), jnp.int32)

    def visit(k, carry):
        v, rate = carry
        j = k % size
        old = v[j]
        new = objective.minimiser(ridge[j], diagonal[j], rate[j], old)
        return v.at[j].set(new), rate + hessian[j] * (new - old)

    def on_support(carry):
        v, rate, k, _ = carry
        is_in = v != 0
        ridge_in = jnp.where(is_in, objective.l2, 1)
        solve = cholesky(ridge_in, jnp.where(is_in[:, None] & is_in[None, :], hessian, 0))
        v, change, is_cut = _step_on_support(objective, v, rate, solve, lambda p: dot(hessian, p))
        return v, rate + change, k + 1, is_cut

    def sweep(carry):
        v, rate, sweeps, _ = carry
        v, rate = lax.fori_loop(0, SWEEPS * size, visit, (v, rate))
        goes_on = lambda carry: carry[-1] & (carry[-2] < size)
        v, rate, *_ = lax.while_loop(goes_on, on_support, (v, rate, zero, zero == 0))
        return v, rate, sweeps + SWEEPS, fast_max(objective.violation(v, rate))

    start = v, point.grad, zero, jnp.full((), jnp.inf, v.dtype)
    is_open = lambda carry: (carry[2] < INNER_GRAM) & (carry[3] > goal)
    v, _, sweeps, _ = lax.while_loop(is_open, sweep, start)
    return v, sweeps


@jax.named_scope("solve_columns")
def _solve_by_columns(objective: Objective, point: Point, damping: Array) -> tuple[Array, Array]:
    """The minimiser of the model over a working set; (p,), and the number of passes.

    Coordinate descent keeps t = S^1/2 X (v - v of the point). A visit reads one column, and again
    where it moves.
    """
    x, v, size = objective.x, point.v, point.v.shape[0]
    violation = objective.violation(v, point.grad)
    outside = jnp.where(v != 0, 0, violation)
    room = jnp.maximum(jnp.sum(v != 0, dtype=jnp.int32), LEAST)
    cut = -jnp.sort(-outside)[jnp.minimum(room, size) - 1]
    order, number = listed((v != 0) | ((outside >= cut) & (outside > 0)))  # with all ties
    root, is_sparse = jnp.sqrt(point.curvature), isinstance(x.transposed, SparseRows)
    dot_column, add_column, square = x.scaled_loops(root, order, number)
    put = lambda k, h: h.at[order[k]].set(square(order[k]))
    curvature = lax.fori_loop(0, number, put, jnp.zeros_like(v))
    ridge = _ridge_of(curvature, point, objective.l2, damping)
    goal = GOAL_COLUMNS * fast_max(violation)
    count = number.astype(jnp.uint32)

    def sweep(carry):
        passes, v, t, _ = carry
        stride = visiting_stride(passes, count)

        def visit(_, carry):
            # the weight of the column before is written first, see `engines.coordinate_descent`
            place, (before, value), v, t, largest = carry
            v = put_row(v, before, value)
            j = row_at(order, place).astype(jnp.uint32)
            old, h, extra = row_at(v, j), row_at(curvature, j), row_at(ridge, j)
            change = old - row_at(point.v, j)
            rate = row_at(point.grad, j) + dot_column(j, t) + extra * change
            new = objective.minimiser(extra, h, rate, old)
            t = add_column(j, new - old, t, new != old)
            place = place + stride
            place = jnp.where(place >= count, place - count, place)
            largest = jnp.maximum(largest, jnp.abs(new - old) * (h + extra + objective.l2))
            return place, (j, new), v, t, largest

        first = order[0].astype(jnp.uint32)
        start = jnp.zeros((), jnp.uint32), (first, v[first]), v, t, jnp.zeros((), v.dtype)
        _, (j, value), v, t, largest = lax.fori_loop(0, number, visit, start)
        return passes + 1, put_row(v, j, value), t, largest

    def on_support(v, t):
        is_in = v != 0
        support, many = listed(is_in)

        scores = functools.partial(add_columns, add_column, support, many)

        def products(t):
            put = lambda k, out: out.at[support[k]].set(dot_column(support[k], t))
            return lax.fori_loop(0, many, put, jnp.zeros_like(v))

        product = lambda p: products(scores(p, jnp.zeros_like(t))) + ridge * p
        diagonal = jnp.where(is_in, curvature + ridge + objective.l2, 1)
        solve = lambda r: jax.scipy.sparse.linalg.cg(
            lambda p: product(p) + objective.l2 * p,
            r,
            tol=RATE,
            maxiter=PRODUCTS,
            M=lambda r: r / diagonal,
        )[0]
        rate = point.grad + products(t) + ridge * (v - point.v)
        new, *_ = _step_on_support(objective, v, rate, solve, product)
        return new, scores(new - v, t)

    def sweeps(carry):
        passes, v, t, largest = lax.fori_loop(0, SWEEPS, lambda _, carry: sweep(carry), carry)
        is_due = (largest > goal) & (is_sparse | (jnp.sum(v != 0) <= FEW))
        v, t = lax.cond(is_due, on_support, lambda v, t: (v, t), v, t)
        return passes, v, t, largest

    start = jnp.zeros((), jnp.int32), v, jnp.zeros_like(point.score), jnp.full((), jnp.inf, v.dtype)
    is_open = lambda carry: (carry[0] < INNER_COLUMNS) & (carry[3] > goal)
    passes, v, *_ = lax.while_loop(is_open, sweeps, start)
    return v, passes


class Search(NamedTuple):
    """The state of the loop over steps."""

    steps: Array  # () int32
    point: Point
    damping: Array  # () of the model, 0 after whole steps
    best: Array  # () smallest residual so far
    stuck: Array  # () int32, steps in a row that gained no more than rounding
    passes: Array  # () int32


def _minimise(objective: Objective, v: Array, tol: Array, rounds: Array) -> Search:
    """Proximal Newton steps until the residual is at most `tol`."""
    solve = _solve_by_columns if isinstance(objective.x, Columns) else _solve_by_gram
    rounding = 16 * jnp.finfo(v.dtype).eps

    def should_continue(search):
        point = search.point
        # the gap of v = 0 may be a small share of the objective and tell nothing
        tells = jnp.any(point.v != 0) | ~(fast_max(jnp.abs(point.grad)) > objective.l1)
        is_met = (point.residual <= tol) & tells
        return (search.steps < rounds) & (search.stuck < STUCK) & ~is_met

    def step(search):
        point = search.point
        new, passes = solve(objective, point, search.damping)
        change = new - point.v
        rate = objective.x.scores(change)
        slope = pairwise_sum(point.slope * rate)
        slope = slope + objective.penalty(new) - objective.penalty(point.v)

        def trial(carry):
            k, t, _ = carry
            t = jnp.where(k == 0, 1, t / 2)
            value = objective.risk(point.score + t * rate) + objective.penalty(point.v + t * change)
            goal = point.value + STEEPNESS * t * slope + rounding * point.value
            return k + 1, t, value <= goal

        begin = jnp.zeros((), jnp.int32), jnp.ones_like(slope), jnp.zeros((), bool)
        _, t, is_found = lax.while_loop(lambda c: (c[0] < TRIALS) & ~c[-1], trial, begin)
        # scores anew: added up, their rounding errors would hide the gap
        after = objective.at(jnp.where(is_found, point.v + t * change, point.v))
        gains = point.value - after.value > rounding / 8 * point.value
        gains = gains | (after.residual < GAIN * search.best)
        more = jnp.maximum(10 * search.damping, LEAST_DAMPING)
        less = jnp.where(search.damping > LEAST_DAMPING, search.damping / 10, 0)
        damping = jnp.where(is_found & (t == 1), less, jnp.where(t > SHORT, search.damping, more))
        return Search(
            search.steps + 1,
            after,
            damping,
            jnp.fmin(search.best, after.residual),
            jnp.where(gains, 0, search.stuck + 1),
            search.passes + passes + 3,
        )

    zero = jnp.zeros((), jnp.int32)
    point = objective.at(v)
    start = Search(zero, point, jnp.zeros((), v.dtype), point.residual, zero, zero)
    return lax.while_loop(should_continue, step, start)


@node
class proximal_newton(AllRowsSolver):
    """Minimise l1 |w|_1 + l2/2 |w|^2 + mean_i loss(<w, x_i> + b, y_i), whose w has many zeros.

        l1 = lam l1_ratio,   l2 = lam (1 - l1_ratio)
        z = argmin_z g'(z - w) + 1/2 (z - w)' X'SX (z - w) + l1 |z|_1 + l2/2 |z|^2
        w = w + t (z - w),   t = 1, 1/2, 1/4, ... until the objective falls by a share of the slope

    g = X'u with the shares u of the slopes of the rows, and S with those of their curvatures. The
    argmin is approximate, and X'SX has a diagonal matrix on top after short steps. For few columns
    X'SX is formed, and three sweeps of coordinate descent alternate with Newton steps over the
    weights that are not 0, with fixed signs. For more, coordinate descent goes over a working set:
    the support, and as many or at least 64 of the columns that violate their conditions most. Of
    this file `_solve_by_gram` and `_solve_by_columns` are the second line, `_minimise` the others.

    Args:
        lam: regularisation, > 0; C = 1/(lam n) in |w|_1 + C sum_i loss, as of LIBLINEAR.
        l1_ratio: share of the L1 norm in the penalty, from 0 to 1.
        loss: one with a curvature and a conjugate: squared_hinge, logistic, squared (the lasso),
            smooth_hinge, squared_eps_insensitive, or of your own.
        bias: "feature" (a constant feature 1, regularised with the others) or "none".
        system: "gram", which forms X'SX, or "columns". None: "gram" up to 512 columns with that of
            the bias, up to 256 of sparse rows outside of transformations.
        tol: relative duality gap to stop at, > 0; None: 1e-4; `fit(tol=)` overrides it.
        rounds: steps of one update at most; a whole number. An update ends once `tol` is met, or
            after three steps that gain no more than rounding. 20 halvings without a descent raise
            the diagonal on top, and are a step that moves nothing.

    Returns:
        A solver on all rows; an update uses all of them. Model `Linear`; that of `fit`, and of
        `model(state, data)`, has the derivatives of the exact solution on its support
        (`implicit.linear_solution`). The residual is the duality
        gap relative to the objective, of the slopes or of the slopes scaled to |g| <= l1. In
        float32 rounding keeps it above 1e-6 to 1e-3, the larger C the higher, as a rule;
        `certificate(model, data, lam, loss, l1_ratio=)` works it out in float64. `evals` counts n
        for each sweep, and three times for each step. Under `vmap` runs are sequential on a CPU.

    Raises:
        ValueError: lam or tol not a single positive number, l1_ratio outside [0, 1], rounds not
            from 1 to 1,000, a loss without curvature or conjugate, another bias or system.

    Differs from the papers: X'SX or a working set of columns, and the steps on the support, take
        the place of the one-dimensional Newton steps of LIBLINEAR. The gap decides when to stop.

    Example: the second column is noise
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0, 0.1], [-1.0, 0.1], [2.0, -0.1]], [1, -1, 1])
        >>> result = jaxsvm.fit(jaxsvm.proximal_newton(0.1), data, jax.random.key(0), steps=1)
        >>> [round(w, 3) for w in result.model.w.tolist()], result.converged
        ([0.925, 0.0], True)

    Reference: G.-X. Yuan, C.-H. Ho, C.-J. Lin, An improved GLMNET for L1-regularized logistic
        regression, JMLR 13, 2012; M. Massias, A. Gramfort, J. Salmon, Celer: a fast solver for the
        lasso with dual extrapolation, ICML 2018 (working sets); J. Lee, Y. Sun, M. Saunders,
        Proximal Newton-type methods for minimizing composite functions, SIAM J. Optim. 24, 2014.
    """

    lam: float = positive()
    _: KW_ONLY
    l1_ratio: float = between(0.0, 1.0, default=1.0)
    loss: Loss = squared_hinge
    bias: Literal["none", "feature"] = "none"
    system: Literal["gram", "columns"] | None = None
    tol: float | None = positive(default=None)
    rounds: float = 100.0

    usual_tol = 1e-4  # of the relative duality gap

    def check(self) -> None:
        check_whole("rounds", self.rounds, most=MOST_ROUNDS)
        if not is_smooth(self.loss):
            raise ValueError(
                "proximal_newton needs a loss with a curvature, such as losses.squared_hinge, "
                f"logistic or squared, got {shown(self.loss)}"
            )
        require(self.loss, "conjugate", "newton, whose penalty is the square of the norm")

    @property
    def constant(self) -> bool:
        """Whether there is a constant feature 1."""
        return self.bias == "feature"

    def by_matrix(self, x: Any) -> bool:
        """Whether X'SX is formed of such rows."""
        few = FEW_SPARSE if has_sparse_columns(x) else FEW
        return self.system == "gram" if self.system else x.shape[-1] + self.constant <= few

    def layout(self, data: Batch) -> Batch:
        if self.by_matrix(data.x) or shards(data.y.shape[0]) > 1:
            return data
        x: Any = by_columns(data.x, self.constant)
        return data._replace(x=x)

    def init(self, key: Array, data: Batch) -> ProximalNewtonState:
        dtype = accum_dtype(data.x)
        v = jnp.zeros(data.x.shape[-1] + self.constant, dtype)
        return ProximalNewtonState(v, jnp.array(data.weight, dtype), jnp.zeros((), jnp.int32))

    def update(self, state: ProximalNewtonState, batch: Batch) -> tuple[ProximalNewtonState, Info]:
        dtype = state.v.dtype
        x: Any = batch.x
        if isinstance(x, Columns) or not self.by_matrix(x):
            x = by_columns(x, self.constant)
        else:
            x = x.toarray() if isinstance(x, SparseRows) else x
        arrays = cast(self, dtype), x, batch.y.astype(dtype), state
        risk, value, search = map_on_cpu(_run)(*lax.stop_gradient(arrays))
        last = search.point
        support = jnp.sum(last.v != 0, dtype=jnp.int32)
        evals = search.passes.astype(dtype) * batch.y.shape[0]
        info = info_of(risk, last.residual, support, evals, value - last.value)
        return ProximalNewtonState(last.v, state.weight, state.steps + search.steps), info

    def model(self, state: ProximalNewtonState, data: Batch | None = None) -> Linear:
        w, b = split_constant(state.v, self.constant)
        if data is not None:
            x: Any = data.x.plain if isinstance(data.x, Columns) else data.x
            problem = data._replace(x=x), self.lam, self.loss, self.bias
            w, b = linear_solution(w, b, *problem, l1_ratio=self.l1_ratio)
        return Linear(w, b, self.bias)


def _run(
    solver: proximal_newton, x: Any, y: Array, state: ProximalNewtonState
) -> tuple[Array, Array, Search]:
    """The run of an update; with the risk and the objective before it."""
    share = state.weight / pairwise_sum(state.weight)
    design = x if isinstance(x, Columns) else Rows(x.astype(state.v.dtype), solver.constant)
    l1, l2 = solver.lam * solver.l1_ratio, solver.lam * (1 - solver.l1_ratio)
    objective = Objective(design, y, share, l1, l2, solver.loss)
    risk = objective.risk(design.scores(state.v))
    most = jnp.clip(jnp.asarray(solver.rounds), 1, MOST_ROUNDS).astype(jnp.int32)
    search = _minimise(objective, state.v, solver.iterates_to, most)
    return risk, risk + objective.penalty(state.v), search
