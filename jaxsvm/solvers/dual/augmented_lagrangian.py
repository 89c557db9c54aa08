"""An augmented Lagrangian method for linear machines with few columns."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._node import cast, node
from ...engines.base import info_of
from ...engines.line_search import slope_step
from ...engines.linear_dual import (
    LinearDualSolver,
    check_columns,
    clip_rounds,
    linear_model,
    parameters_of,
)
from ...models import Linear
from ...numerics import (
    accum_dtype,
    affine,
    affine_transpose,
    cholesky,
    count,
    dot,
    map_on_cpu,
    pairwise_sum,
    sparsely_weighted_gram,
)
from ...types import Array, Batch, Info, Loss, Quadratic, SparseRows, state_class

GROWTH = 3.0  # of the penalty, from one augmented Lagrangian to the next
# penalties of targets of mean size 1; with larger ones than needed float32 ends above 1e-6
USUAL_PENALTY, MOST_PENALTY = 30.0, 1e4
SLOW = 0.9  # share of the residual before, above which the penalty grows beyond the usual one
OTHER = 10.0  # growth of the residual of the best point from which on the problem is another one
SHARE = 0.5  # of the duality gap that the error of a minimisation may be
PATIENCE = 30  # Newton steps without a smaller residual after which a run ends


@state_class("AugmentedLagrangianState", method="augmented_lagrangian", sums_of=())
class AugmentedLagrangianState(NamedTuple):
    """The iterate of the augmented Lagrangian, and the best pair of primal and dual points."""

    v: Array  # (p,)  weights, with that of the bias last
    multiplier: Array  # (n,)  signed, divided by C weight
    penalty: Array  # ()
    is_new: Array  # () bool, whether no step was made with this multiplier
    previous: Array  # ()  the residual at the last change of the multiplier; inf before
    best: Array  # (p,)  the weights of the smallest residual so far
    coef: Array  # (n,)  signed dual coefficients of `best`, divided by C weight
    loss: Array  # ()  weighted mean at `best`
    residual: Array  # ()  of `best`; inf before the first evaluation
    idle_steps: Array  # () int32, Newton steps since the residual decreased
    weight: Array  # (n,)  example weights
    steps: Any = np.zeros((), np.int32)  # () of all updates; files of older versions have none


class Point(NamedTuple):
    """What is known of an iterate."""

    coef: Array  # (n,)  the maximisers c_i
    slope: Array  # (n,)  - d c_i / d score_i
    grad: Array  # (p,)
    loss: Array  # ()  weighted mean
    residual: Array  # ()
    is_minimum: Array  # () bool, whether the next multiplier follows


class Rows(NamedTuple):
    """The rows of an update, with what is constant in it."""

    x: Array  # (n, d)
    y: Array  # (n,)
    share: Array  # (n,)  C weight
    size: Array  # ()  the sum of `share`
    unit: Array  # ()  the first penalty
    bounds: Quadratic
    loss: Loss
    constant: bool

    def coef_of(self, state: AugmentedLagrangianState, scores: Array) -> tuple[Array, Array]:
        """The maximisers c_i, and their derivatives by -score_i, (n,) each."""
        low, high, l1, l2 = self.bounds
        factor = 1 if l2 is None else 1 / (1 + state.penalty * l2)
        free = state.multiplier + state.penalty * (self.y - scores)
        is_flat = jnp.zeros(free.shape, bool)
        if l1 is not None:
            is_flat = jnp.abs(free) <= state.penalty * l1
            free = jnp.sign(free) * jnp.maximum(jnp.abs(free) - state.penalty * l1, 0)
        free = factor * free
        is_inside = (free > low) & (free < high) & ~is_flat
        slope = jnp.where(is_inside, factor * state.penalty, 0)
        return jnp.clip(free, low, high), slope

    def gap_at(self, v: Array, coef: Array, scores: Array) -> tuple[Array, Array, Array, Array]:
        """The gradient (p,), the sum of losses, the duality gap and its relative size.

        The gap is half of the squared gradient and a sum of terms of at least 0.
        """
        grad = v - affine_transpose(self.share * coef, self.x, self.constant)
        value = self.loss.value(scores, self.y)
        terms = jnp.maximum(value + self.loss.conjugate(-coef, self.y) + coef * scores, 0)
        total = lambda a: pairwise_sum(self.share * jnp.where(self.share > 0, a, 0))
        loss = total(value)
        objective = dot(v, v) / 2 + loss
        gap = dot(grad, grad) / 2 + total(terms)
        return grad, loss, gap, gap / jnp.where(objective > 0, objective, 1)

    def at(self, state: AugmentedLagrangianState, scores: Array) -> Point:
        """What is known of the iterate."""
        coef, slope = self.coef_of(state, scores)
        grad, loss, gap, residual = self.gap_at(state.v, coef, scores)
        is_minimum = (dot(grad, grad) / 2 <= SHARE * gap) & ~state.is_new
        return Point(coef, slope, grad, loss / self.size, residual, is_minimum)

    def begin(self, state: AugmentedLagrangianState, tol: Array) -> AugmentedLagrangianState:
        """The state with the best point evaluated on these rows, with this C and loss.

        Where a finished run is far from its optimum now, its rows, C or loss were others.
        """
        is_first = ~jnp.isfinite(state.residual)
        low, high, *_ = self.bounds
        coef = jnp.clip(state.coef, low, high)
        scores = affine(self.x, state.best, self.constant)
        _, loss, _, residual = self.gap_at(state.best, coef, scores)
        keep = lambda old, new: jnp.where(is_first, old, new)
        residual, loss = keep(state.residual, residual), keep(state.loss, loss / self.size)
        ended = (state.residual <= tol) | (state.idle_steps >= PATIENCE)
        is_other = ended & ~is_first & ~(residual <= OTHER * jnp.maximum(tol, state.residual))
        anew = state._replace(
            penalty=self.unit,
            is_new=jnp.ones((), bool),
            previous=jnp.full_like(state.previous, jnp.inf),
            idle_steps=jnp.zeros_like(state.idle_steps),
        )
        state = jax.tree.map(lambda new, old: jnp.where(is_other, new, old), anew, state)
        return state._replace(coef=keep(state.coef, coef), loss=loss, residual=residual)

    @jax.named_scope("newton_step")
    def newton_step(
        self, state: AugmentedLagrangianState, scores: Array, point: Point
    ) -> AugmentedLagrangianState:
        """v + t d, with the Newton direction d and a line search for t."""
        gram = sparsely_weighted_gram(self.x, self.share * point.slope, self.constant)
        direction = cholesky(jnp.ones_like(state.v), gram)(-point.grad)
        rate = affine(self.x, direction, self.constant)
        cross, square = dot(state.v, direction), dot(direction, direction)

        def slope(t):
            coef, _ = self.coef_of(state, scores + t * rate)
            return cross + t * square - dot(self.share * coef, rate)

        t = slope_step(slope, square)
        return state._replace(v=state.v + t * direction, is_new=jnp.zeros((), bool))


@node
class augmented_lagrangian(LinearDualSolver):
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by augmented Lagrangians.

    With multipliers m_i and a penalty s, each minimises

        L(w) = 1/2 |w|^2 + C sum_i weight_i max_c (-loss*(-c) - c score_i - (c - m_i)^2 / (2 s))

    by Newton steps with a line search. For the hinge, margins y_i score_i and the unsigned
    c_i and m_i, a step is

        c_i = min(max(m_i + s (1 - margin_i), 0), 1),   J = {i: 0 < c_i < 1}
        g = w - C X' (weight y c),   H = I + C s sum_{i in J} weight_i x_i x_i'
        w += - t H^-1 g,   where the slope of L along it is 1/1000 of that at t = 0

    Once 1/2 |g|^2 is at most half of the duality gap of w and c: m = c, s = min(3 s, 30); s goes
    on to 10^4 where the gap is more than 0.9 of that at the change before. It starts at w = 0, m =
    1/2, s = 1. For real targets s is divided by their mean absolute value.
    Only rows of J enter H, so a step costs little more than three passes over the rows. It takes
    20 to 130 steps as a rule; where C |x|^2 is above 10^5, or columns have very different ranges,
    take `interior_point`.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        loss: one whose dual is quadratic: hinge, eps_insensitive, pinball, squared_hinge,
            smooth_hinge, squared_eps_insensitive, squared.
        bias: "feature" (regularised) or "none".
        tol: relative duality gap to stop at, > 0; None: 1e-6; `fit(tol=)` overrides it.
        rounds: maximum number of Newton steps and changes of multipliers of one update, a whole
            number. No further step is made once the gap has not decreased by 1 % for 30
            steps, of all updates.

    Returns:
        A solver on all rows; model `Linear`. The residual is the relative duality gap of the best
        iterate so far, which is the model; its signed dual coefficients, divided by C weight, are
        `run.state.solver.coef`. The model has the derivatives of the exact solution in C, the loss
        and the rows (`implicit.solution`); they are nan if more than 2,048 coefficients are free.
        Sparse rows are made dense. Under `vmap` runs are sequential on a CPU. An update first
        evaluates the best iterate, so that a run goes on from the state of another C or loss.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, rows of more than
            1,000 columns.

    Differs from the paper: the multipliers change when the error of the minimisation is a share of
        the duality gap, which is also the criterion to stop. The Newton system is solved by a
        Cholesky factor, not by conjugate gradients. The line search is by false position.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.augmented_lagrangian(10.0, bias="none")
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1)
        >>> round(float(result.model.w[0]), 4), result.converged
        (1.0, True)

    Reference: Y. Yan, Q. Li, An efficient augmented Lagrangian method for support vector machine,
        Optimization Methods and Software 35, 2020; R. T. Rockafellar, Augmented Lagrangians and
        applications of the proximal point algorithm in convex programming, Mathematics of
        Operations Research 1, 1976.
    """

    bias: Literal["feature", "none"] = dataclasses.field(default="feature", kw_only=True)

    usual_tol = 1e-6

    def init(self, key: Array, data: Batch) -> AugmentedLagrangianState:
        columns = data.x.shape[-1]
        check_columns("augmented_lagrangian", columns, "dual_descent")
        dtype = accum_dtype(data.x)
        y, weight, loss = jax.tree.map(jnp.asarray, cast((data.y, data.weight, self.loss), dtype))
        low, high, *_ = loss.quadratic(y, jnp.ones_like(y))
        is_bounded = jnp.isfinite(low) & jnp.isfinite(high)
        middle = jnp.where(is_bounded, (low + high) / 2, 0)
        v = jnp.zeros(columns + (self.bias == "feature"), dtype)
        penalty = _first_penalty(y, weight)
        infinite, zero = jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32)
        best = v, jnp.zeros_like(y), infinite, infinite, zero
        is_new = jnp.ones((), bool)
        state = AugmentedLagrangianState(v, middle, penalty, is_new, infinite, *best, weight, zero)
        return jax.tree.map(jnp.array, lax.stop_gradient(state))  # each array its own

    def update(
        self, state: AugmentedLagrangianState, batch: Batch
    ) -> tuple[AugmentedLagrangianState, Info]:
        dtype = state.v.dtype
        x = batch.x.toarray() if isinstance(batch.x, SparseRows) else batch.x
        given = lax.stop_gradient((self.numbers(dtype), state, x, batch.y.astype(dtype)))
        new = map_on_cpu(functools.partial(_minimise, self.bias == "feature"))(*given)
        support = count((new.coef != 0) & (new.weight > 0))
        evals = (new.steps - state.steps).astype(dtype) * batch.y.shape[0]
        return new, info_of(new.loss, new.residual, support, evals)

    def model(self, state: AugmentedLagrangianState, data: Batch | None = None) -> Linear:
        v, dtype = state.best, state.v.dtype
        if data is None:
            return linear_model(self.bias, v)
        x, y, weight, C, loss = parameters_of(self.C, self.loss, data, dtype)
        parameters = x.astype(dtype), y, weight, C, loss
        return linear_model(self.bias, v, C * weight * state.coef, parameters)


def _first_penalty(y: Array, weight: Array) -> Array:
    """The inverse of the mean size of the targets, 1 for labels."""
    size = pairwise_sum(weight * jnp.abs(y)) / jnp.maximum(pairwise_sum(weight), 1e-30)
    return 1 / jnp.where(size > 0, size, 1)


def _minimise(
    constant: bool, numbers: tuple, state: AugmentedLagrangianState, x: Array, y: Array
) -> AugmentedLagrangianState:
    """The state after one update."""
    C, tol, rounds, loss = numbers
    x = jnp.where((state.weight > 0)[:, None], x, 0)
    share = C * state.weight
    bounds = loss.quadratic(y, jnp.ones_like(y))
    unit = _first_penalty(y, state.weight)
    rows = Rows(x, y, share, pairwise_sum(share), unit, bounds, loss, constant)
    limit = state.steps + clip_rounds(rounds)

    def is_unsolved(state):
        # with a small C the gap of 0 is a small share of P, but 0 tells no rows apart
        is_open = (state.residual > tol) | jnp.all(state.best == 0)
        return is_open & (state.idle_steps < PATIENCE)

    def step(state):
        scores = affine(rows.x, state.v, constant)
        point = rows.at(state, scores)
        is_better = point.residual < state.residual
        idle_steps = jnp.where(point.residual < 0.99 * state.residual, 0, state.idle_steps + 1)
        idle_steps = jnp.where(jnp.isfinite(point.residual), idle_steps, PATIENCE)
        keep = lambda new, old: jnp.where(is_better, new, old)
        state = state._replace(
            best=keep(state.v, state.best),
            coef=keep(point.coef, state.coef),
            loss=keep(point.loss, state.loss),
            residual=keep(point.residual, state.residual),
            idle_steps=idle_steps.astype(jnp.int32),
        )
        is_slow = point.residual > SLOW * state.previous
        most = rows.unit * jnp.where(is_slow, MOST_PENALTY, USUAL_PENALTY)
        grown = jnp.minimum(GROWTH * state.penalty, most)
        changed = state._replace(
            multiplier=point.coef,
            penalty=jnp.maximum(state.penalty, grown),
            is_new=jnp.ones((), bool),
            previous=point.residual,
        )
        new = lax.cond(
            is_unsolved(state) & ~point.is_minimum,
            lambda: rows.newton_step(state, scores, point),
            lambda: jax.tree.map(lambda a, b: jnp.where(point.is_minimum, a, b), changed, state),
        )
        return new._replace(steps=state.steps + 1)

    goes_on = lambda state: (state.steps < limit) & is_unsolved(state)
    return lax.while_loop(goes_on, step, rows.begin(state, tol))
