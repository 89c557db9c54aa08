"""Mehrotra's predictor-corrector steps for the duals of linear machines with few columns.

With alpha_i = C weight_i t_i the dual of `engines.dual_qp` is, divided by C,

    max sum_i weight_i (linear_i t_i - q_i/2 t_i^2) - 1/(2C) w' R w,   w = C X' (weight sign t),
        0 <= t_i <= upper_i

where X has a column of ones for a bias, and R is the identity, with 0 for a free bias. A loss with
an l1 term has two variables for each row, of sign +1 and -1. The steps keep t, u = upper - t, their
multipliers z and v, and w as a variable of its own:

    sign X w + q t - linear - z + v = 0,   C X' (weight sign t) = R w,   t z = u v = 0

Elimination of all but the change of w leaves a system of d numbers:

    theta = z / t + v / u + q
    (R + C X' diag(weight / theta) X) dw = C X' (weight sign r / theta) + C X' (weight sign t) - R w
    dt = (r - sign X dw) / theta
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._node import register
from ...numerics import dot
from ...types import Array, Loss, state_class

FLOOR = float(np.sqrt(np.finfo(np.float32).tiny))  # of t, u, z, v: no quotient overflows in float32
FRACTION = 0.995  # of the way to the boundary
PATIENCE = 5  # steps without progress after which a run ends
ROUNDING = 1e-4  # residual that the best iterate may gain by its rounding to float32
BLOCK = 2**19  # numbers of a block of rows, 4 MiB in float64
BLOCK_ROWS = 256, 8192  # its least and largest number of rows


@register("Iterate")
class Iterate(NamedTuple):
    """The variables of the dual problem with their multipliers, and those of the primal one.

    The four of `dual` are t, u = upper - t, z, and v, each (k, n); all are above 0, but without an
    upper bound u = 1 and v = 0. k is 2 for losses with an l1 term, else 1.
    """

    dual: Array  # (4, k, n)
    w: Array  # (p,)  weights, with that of the bias last


@state_class("InteriorState", method="interior_point", sums_of=())
class InteriorState(NamedTuple):
    """The current iterate and the best one."""

    iterate: Iterate
    best: Iterate
    coef: Array  # (n,)  signed dual coefficients of `best`, within their bounds
    loss: Array  # ()  weighted mean at `best`
    residual: Array  # ()  of `best`; inf before the first evaluation
    infeasibility: Array  # ()  the smallest |C X' (weight sign t) - R w| so far
    idle_steps: Array  # ()  int32, steps since the residual or the infeasibility decreased
    weight: Array  # (n,)  example weights
    steps: Any = np.zeros((), np.int32)  # () of all updates; files of older versions have none


class Rows(NamedTuple):
    """The rows by columns, with what is constant during an update."""

    x: Array  # (p, n)  columns; 0 in rows of weight 0
    y: Array  # (n,)
    weight: Array  # (n,)
    sign: Array  # (k, n)
    linear: Array  # (k, n)
    q: Array  # (k, n)
    bounded: Array  # (k, n)  bool, whether t has an upper bound
    active: Array  # (4, k, n)  bool, which variables steps change
    ridge: Array  # (p,)  the diagonal of R
    C: Array  # ()
    pairs: Array  # ()  weighted number of pairs of a variable and its multiplier
    loss: Loss

    def scores(self, w: Array) -> Array:
        """X w, (n,)."""
        return dot(w, self.x)

    def weights(self, coef: Array) -> Array:
        """C X' (weight coef), (n,) -> (p,)."""
        return self.C * dot(self.x, self.weight * coef)

    def mean(self, dual: Array) -> Array:
        """The mean of the products t z and u v, ()."""
        t, u, z, v = dual
        products = t * z + jnp.where(self.bounded, u * v, 0)
        return dot(self.weight, jnp.sum(products, axis=0)) / self.pairs


def variables(loss: Loss, y: Array) -> tuple[Array, Array, Array, Array]:
    """The sign, linear term, q and upper bound of each variable, (k, n) each."""
    low, high, l1, l2 = loss.quadratic(y, jnp.ones_like(y))
    one = jnp.ones_like(y)
    sign = jnp.sign(y)[None] if loss.labels else jnp.stack([one, -one])
    upper = jnp.where(sign > 0, high[None], -low[None])
    linear = sign * y[None] - (0 if l1 is None else l1[None])
    q = jnp.broadcast_to((jnp.zeros_like(y) if l2 is None else l2)[None], sign.shape)
    return sign, linear, q, upper


def make_rows(C: Array, loss: Loss, bias: str, x: Array, y: Array, weight: Array) -> Rows:
    """The rows in the layout that products read fastest: their columns, one after the other."""
    columns = jnp.where((weight > 0)[None], x.T, 0).astype(y.dtype)
    ridge = jnp.ones(columns.shape[0], y.dtype)
    if bias != "none":
        columns = jnp.concatenate([columns, jnp.ones_like(y)[None]])
        last = jnp.full(1, bias == "feature", y.dtype)
        ridge = jnp.concatenate([ridge, last])
    sign, linear, q, upper = variables(loss, y)
    bounded = jnp.isfinite(upper)
    live = jnp.broadcast_to((weight > 0)[None], sign.shape)
    active = jnp.stack([live, live & bounded, live, live & bounded])
    pairs = dot(weight, jnp.sum(1 + bounded.astype(y.dtype), axis=0))
    return Rows(columns, y, weight, sign, linear, q, bounded, active, ridge, C, pairs, loss)


def start(loss: Loss, y: Array, weight: Array, columns: int) -> Iterate:
    """The iterate at w = 0: t in the middle of its bounds, and z - v = -linear."""
    sign, linear, q, upper = variables(loss, y)
    bounded = jnp.isfinite(upper)
    t = jnp.where(bounded, upper / 2, 1)
    slope = linear - q * t
    total = jnp.maximum(jnp.sum(weight), FLOOR)
    size = dot(weight, jnp.max(jnp.abs(linear), axis=0)) / total
    size = jnp.where(size > 0, size, 1)
    z = size + jnp.maximum(-slope, 0)
    v = jnp.where(bounded, size + jnp.maximum(slope, 0), 0)
    dual = jnp.stack([t, jnp.where(bounded, upper - t, 1), z, v])
    return Iterate(dual, jnp.zeros(columns, y.dtype))


class Value(NamedTuple):
    """What is known of an iterate."""

    scores: Array  # (n,)
    gap: Array  # (p,)  C X' (weight sign t) - R w
    loss: Array  # ()  weighted mean
    residual: Array  # ()
    infeasibility: Array  # ()  the norm of `gap`


@jax.named_scope("evaluate")
def evaluate(rows: Rows, at: Iterate) -> Value:
    """The scores and the relative duality gap of an iterate.

    The gap is a sum of nonnegative terms, |C X' (weight sign t) - R w|^2 / 2 and one for each row.
    """
    scores, coef = rows.scores(at.w), jnp.sum(rows.sign * at.dual[0], axis=0)
    gap = rows.weights(coef) - rows.ridge * at.w
    value = rows.loss.value(scores, rows.y)
    terms = jnp.maximum(value + rows.loss.conjugate(-coef, rows.y) + coef * scores, 0)
    total = lambda a: rows.C * dot(rows.weight, jnp.where(rows.weight > 0, a, 0))
    loss = total(value)
    primal = dot(at.w, rows.ridge * at.w) / 2 + loss
    relative = (dot(gap, rows.ridge * gap) / 2 + total(terms)) / jnp.where(primal > 0, primal, 1)
    size = rows.C * jnp.maximum(jnp.sum(rows.weight), FLOOR)
    # With a free bias the last entry is C times the sum of the coefficients.
    unbalanced = jnp.max(jnp.where(rows.ridge > 0, 0, jnp.abs(gap)))
    residual = jnp.maximum(relative, unbalanced / size)
    return Value(scores, gap, loss / size, residual, jnp.sqrt(dot(gap, gap)))


def weighted_gram(x: Array, weight: Array) -> Array:
    """X' diag(weight) X from the columns (p, n), in blocks of rows."""
    p, n = x.shape
    least, most = BLOCK_ROWS
    block = min(max(least, BLOCK // p), most)
    gram_of = lambda x, weight: dot(x * weight[None, :], x.T)
    whole = n // block
    if whole <= 1:
        return gram_of(x, weight)

    def add(i, total):
        rows = lax.dynamic_slice_in_dim(x, i * block, block, 1)
        return total + gram_of(rows, lax.dynamic_slice_in_dim(weight, i * block, block))

    total = lax.fori_loop(0, whole, add, jnp.zeros((p, p), x.dtype))
    rest = whole * block
    return total if rest == n else total + gram_of(x[:, rest:], weight[rest:])


@jax.named_scope("newton_step")
def step(rows: Rows, at: Iterate, value: Value) -> Iterate:
    """One predictor-corrector step; both directions use one factorisation."""
    t, u, z, v = at.dual
    inverse = jnp.where(rows.active[0], 1 / (z / t + v / u + rows.q), 0)
    gram = weighted_gram(rows.x, rows.weight * jnp.sum(inverse, axis=0))
    factor = lax.linalg.cholesky(jnp.diag(rows.ridge) + rows.C * gram, symmetrize_input=False)

    def direction(r, excess_z, excess_v):
        """The step to t z + excess_z = u v + excess_v = 0, and the length to its first bound."""
        r = r - excess_z / t + excess_v / u
        rhs = rows.weights(jnp.sum(rows.sign * inverse * r, axis=0)) + value.gap
        dw = jax.scipy.linalg.cho_solve((factor, True), rhs)
        dt = inverse * (r - rows.sign * rows.scores(dw)[None, :])
        dz, dv = -z - (excess_z + z * dt) / t, -v - (excess_v - v * dt) / u
        change = jnp.stack([dt, -dt, dz, dv])
        rate = jnp.max(jnp.where(rows.active, -change / at.dual, 0))
        return Iterate(change, dw), 1 / jnp.maximum(rate, 1)

    r = rows.linear - rows.sign * value.scores[None, :] - rows.q * t
    predictor, length = direction(r, jnp.zeros_like(r), jnp.zeros_like(r))
    mean = rows.mean(at.dual)
    target = (rows.mean(at.dual + length * predictor.dual) / mean) ** 3 * mean
    dt, _, dz, dv = predictor.dual
    excess_v = jnp.where(rows.bounded, -dt * dv - target, 0)
    corrector, length = direction(r, dt * dz - target, excess_v)
    move = lambda a, change: a + FRACTION * length * change
    dual = jnp.maximum(move(at.dual, corrector.dual), FLOOR)
    return Iterate(jnp.where(rows.active, dual, at.dual), move(at.w, corrector.w))


def begin(rows: Rows, tol: Array, state: InteriorState) -> InteriorState:
    """The state with the best iterate evaluated on these rows, with this C and loss.

    Where a finished run is far from its optimum now, its rows, C or loss were others. The steps
    start anew then: from the end of a run they would be too short.
    """
    is_first = ~jnp.isfinite(state.residual)
    value = evaluate(rows, state.best)
    residual = jnp.where(is_first, state.residual, value.residual)
    ended = (state.residual <= tol) | (state.idle_steps >= PATIENCE)
    known = 10 * jnp.maximum(tol, state.residual) + ROUNDING
    is_other = ended & ~is_first & ~(residual <= known)
    first = start(rows.loss, rows.y, rows.weight, state.best.w.shape[0])
    return state._replace(
        iterate=jax.tree.map(lambda a, b: jnp.where(is_other, a, b), first, state.iterate),
        residual=residual,
        loss=jnp.where(is_first, state.loss, value.loss),
        infeasibility=jnp.where(is_other, jnp.inf, state.infeasibility),
        idle_steps=jnp.where(is_other, 0, state.idle_steps),
    )


def is_unsolved(state: InteriorState, tol: Array) -> Array:
    """Whether a step may improve the best iterate, () bool."""
    return (state.residual > tol) & (state.idle_steps < PATIENCE)


def improve(rows: Rows, tol: Array, state: InteriorState) -> InteriorState:
    """Evaluate the iterate, keep it if it is the best, and make a step unless that is good."""
    value = evaluate(rows, state.iterate)
    better = value.residual < state.residual
    progressed = value.residual < 0.99 * state.residual
    progressed |= value.infeasibility < 0.9 * state.infeasibility
    idle_steps = jnp.where(progressed, 0, state.idle_steps + 1)
    idle_steps = jnp.where(jnp.isfinite(value.residual), idle_steps, PATIENCE)
    keep = lambda new, old: jnp.where(better, new, old)
    new = state._replace(
        best=jax.tree.map(keep, state.iterate, state.best),
        residual=keep(value.residual, state.residual),
        infeasibility=jnp.minimum(value.infeasibility, state.infeasibility),
        idle_steps=idle_steps.astype(jnp.int32),
        loss=keep(value.loss, state.loss),
    )
    steps = is_unsolved(new, tol)
    iterate = lax.cond(steps, lambda at: step(rows, at, value), lambda at: at, new.iterate)
    return new._replace(iterate=iterate, steps=new.steps + steps.astype(jnp.int32))


def solve(
    bias: str,
    C: Array,
    tol: Array,
    rounds: Array,
    loss: Loss,
    state: InteriorState,
    x: Array,
    y: Array,
) -> InteriorState:
    """Make steps until the residual is at most `tol`, or until `rounds` of them are made.

    No step is made once nothing has improved for `PATIENCE` steps, of all updates.
    """
    rows, limit = make_rows(C, loss, bias, x, y, state.weight), state.steps + rounds
    # An iterate that was stored in float32 may have lost its distance to a bound.
    dual = jnp.where(rows.active, jnp.maximum(state.iterate.dual, FLOOR), state.iterate.dual)
    iterate = state.iterate._replace(dual=dual)
    end = lax.while_loop(
        lambda state: is_unsolved(state, tol) & (state.steps < limit),
        functools.partial(improve, rows, tol),
        begin(rows, tol, state._replace(iterate=iterate)),
    )
    coef = C * rows.weight * jnp.sum(rows.sign * end.best.dual[0], axis=0)
    return end._replace(coef=coef)
