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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numerics import dot, fast_max, pairwise_sum
from ..recipe import register, unwrap_static
from ..types import Array, Loss, SparseRows

FLOOR = float(np.sqrt(np.finfo(np.float32).tiny))  # of t, u, z, v: no quotient overflows in float32
FRACTION = 0.995  # of the way to the boundary
PATIENCE = 5  # steps without progress after which a run ends
BLOCK = 2**18  # numbers of a block of rows, 2 MiB in float64: it stays in a core's cache


@register("Iterate")
class Iterate(NamedTuple):
    """The variables of the primal and of the dual problem.

    k is 2 for losses with an l1 term, else 1.
    """

    t: Array  # (k, n)  alpha_i / (C weight_i), above 0
    u: Array  # (k, n)  upper - t, above 0; 1 without a bound
    z: Array  # (k, n)  multipliers of t >= 0, above 0
    v: Array  # (k, n)  multipliers of u >= 0, above 0; 0 without a bound
    w: Array  # (p,)    weights, with those of the bias last


@register("InteriorState")
class InteriorState(NamedTuple):
    """The current iterate and the best one."""

    iterate: Iterate
    best: Iterate
    residual: Array  # ()  of `best`; inf before the first step
    infeasibility: Array  # ()  the smallest |C X' (weight sign t) - R w| so far
    waiting: Array  # ()  int32, steps since the residual or the infeasibility decreased
    weight: Array  # (n,)  example weights


class Rows(NamedTuple):
    """The rows by columns, with what is constant during an update."""

    x: Array  # (p, n)  columns; 0 in rows of weight 0
    y: Array  # (n,)
    weight: Array  # (n,)
    sign: Array  # (k, n)
    linear: Array  # (k, n)
    q: Array  # (k, n)
    upper: Array  # (k, n)  inf: no bound
    ridge: Array  # (p,)  the diagonal of R
    C: Array  # ()
    loss: Loss

    @property
    def bounded(self) -> Array:
        """Where t has an upper bound, (k, n) bool."""
        return jnp.isfinite(self.upper)

    def scores(self, w: Array) -> Array:
        """X w, (n,)."""
        return dot(w, self.x)

    def weights(self, coef: Array) -> Array:
        """C X' (weight coef), (n,) -> (p,)."""
        return self.C * dot(self.x, self.weight * coef)

    def coef(self, t: Array) -> Array:
        """The coefficient of each row, divided by C weight: sum_k sign t, (n,)."""
        return jnp.sum(self.sign * t, axis=0)

    def mean(self, a: Array, b: Array) -> Array:
        """The mean of the products t z and u v, as a and b (k, n)."""
        pairs = jnp.sum(a + jnp.where(self.bounded, b, 0), axis=0)
        number = jnp.sum(1 + self.bounded.astype(a.dtype), axis=0)
        return pairwise_sum(self.weight * pairs) / pairwise_sum(self.weight * number)


def variables(loss: Loss, y: Array) -> tuple[Array, Array, Array, Array]:
    """The sign, linear term, q and upper bound of each variable, (k, n) each."""
    low, high, l1, l2 = loss.quadratic(y, jnp.ones_like(y))  # type: ignore[misc]  # checked
    one = jnp.ones_like(y)
    sign = jnp.sign(y)[None] if loss.labels else jnp.stack([one, -one])
    upper = jnp.where(sign > 0, high, -low)
    linear = sign * y - (0 if l1 is None else l1)
    q = jnp.broadcast_to(jnp.zeros_like(y) if l2 is None else l2, sign.shape)
    return sign, linear, q, upper


def make_rows(
    C: Array, loss: Any, bias: str, x: Array | SparseRows, y: Array, weight: Array
) -> Rows:
    """The rows in the layout that products read fastest: their columns, one after the other."""
    loss = unwrap_static(loss)
    columns = jnp.where(weight > 0, x.T, 0).astype(y.dtype)
    ridge = jnp.ones(columns.shape[0], y.dtype)
    if bias != "none":
        columns = jnp.concatenate([columns, jnp.ones_like(y)[None]])
        last = jnp.full(1, bias == "feature", y.dtype)
        ridge = jnp.concatenate([ridge, last])
    return Rows(columns, y, weight, *variables(loss, y), ridge, C, loss)


def start(loss: Loss, y: Array, weight: Array, columns: int) -> Iterate:
    """The iterate at w = 0: t in the middle of its bounds, and z - v = -linear."""
    sign, linear, q, upper = variables(loss, y)
    bounded = jnp.isfinite(upper)
    t = jnp.where(bounded, upper / 2, 1)
    slope = linear - q * t
    total = jnp.maximum(pairwise_sum(weight), jnp.finfo(y.dtype).tiny)
    size = pairwise_sum(weight * jnp.max(jnp.abs(linear), axis=0)) / total
    size = jnp.where(size > 0, size, 1)
    z = size + jnp.maximum(-slope, 0)
    v = jnp.where(bounded, size + jnp.maximum(slope, 0), 0)
    return Iterate(t, jnp.where(bounded, upper - t, 1), z, v, jnp.zeros(columns, y.dtype))


class Value(NamedTuple):
    """What is known of an iterate."""

    scores: Array  # (n,)
    gap: Array  # (p,)  C X' (weight sign t) - R w
    residual: Array  # ()
    infeasibility: Array  # ()  the norm of `gap`


def evaluate(rows: Rows, at: Iterate) -> Value:
    """The scores and the relative duality gap of an iterate.

    The gap is a sum of nonnegative terms, |C X' (weight sign t) - R w|^2 / 2 and one for each row.
    """
    scores, coef = rows.scores(at.w), rows.coef(at.t)
    gap = rows.weights(coef) - rows.ridge * at.w
    value = rows.loss.value(scores, rows.y)
    terms = jnp.maximum(value + rows.loss.conjugate(-coef, rows.y) + coef * scores, 0)
    total = lambda a: rows.C * pairwise_sum(jnp.where(rows.weight > 0, rows.weight * a, 0))
    primal = dot(at.w, rows.ridge * at.w) / 2 + total(value)
    relative = (dot(gap, rows.ridge * gap) / 2 + total(terms)) / jnp.where(primal > 0, primal, 1)
    # With a free bias the last entry is C times the sum of the coefficients.
    unbalanced = jnp.max(jnp.where(rows.ridge > 0, 0, jnp.abs(gap)), initial=0)
    balance = unbalanced / (rows.C * pairwise_sum(rows.weight))
    return Value(scores, gap, jnp.maximum(relative, balance), jnp.sqrt(dot(gap, gap)))


def weighted_gram(x: Array, weight: Array) -> Array:
    """X' diag(weight) X from the columns (p, n), in blocks of rows."""
    p, n = x.shape
    block = max(256, BLOCK // p)
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


def step(rows: Rows, at: Iterate, value: Value) -> Iterate:
    """One predictor-corrector step; both directions use one factorisation."""
    t, u, z, v, w = at
    live, bounded = rows.weight[None, :] > 0, rows.bounded
    inverse = jnp.where(live, 1 / (z / t + v / u + rows.q), 0)
    gram = weighted_gram(rows.x, rows.weight * jnp.sum(inverse, axis=0))
    factor = lax.linalg.cholesky(jnp.diag(rows.ridge) + rows.C * gram, symmetrize_input=False)

    def direction(r):
        """The change of t and w for a right-hand side (k, n)."""
        rhs = rows.weights(jnp.sum(rows.sign * inverse * r, axis=0)) + value.gap
        dw = jax.scipy.linalg.cho_solve((factor, True), rhs)
        return inverse * (r - rows.sign * rows.scores(dw)[None, :]), dw

    def longest(dt, dz, dv):
        """The length of the longest step inside of the bounds, at most 1."""
        dual = jnp.maximum(-dz / z, jnp.where(bounded, -dv / jnp.where(bounded, v, 1), 0))
        rate = jnp.maximum(jnp.maximum(-dt / t, jnp.where(bounded, dt / u, 0)), dual)
        return 1 / jnp.maximum(fast_max(jnp.max(jnp.where(live, rate, 0), axis=0)), 1)

    r = rows.linear - rows.sign * value.scores[None, :] - rows.q * t
    dt, _ = direction(r)
    dz, dv = -z * (1 + dt / t), -v * (1 - dt / u)
    length = longest(dt, dz, dv)
    mean = rows.mean(t * z, u * v)
    predicted = rows.mean(
        (t + length * dt) * (z + length * dz), (u - length * dt) * (v + length * dv)
    )
    target = (predicted / mean) ** 3 * mean
    excess_z, excess_v = dt * dz - target, jnp.where(bounded, -dt * dv - target, 0)
    dt, dw = direction(r - excess_z / t + excess_v / u)
    dz, dv = -z - (excess_z + z * dt) / t, -v - (excess_v - v * dt) / u
    length = FRACTION * longest(dt, dz, dv)
    move = lambda a, change: jnp.where(live, jnp.maximum(a + length * change, FLOOR), a)
    return Iterate(
        move(t, dt),
        jnp.where(bounded, move(u, -dt), u),
        move(z, dz),
        jnp.where(bounded, move(v, dv), v),
        w + length * dw,
    )


class Progress(NamedTuple):
    """What one update carries from step to step."""

    state: InteriorState
    value: Value  # of the current iterate
    steps: Array  # ()  int32


def improve(rows: Rows, progress: Progress) -> Progress:
    """Make one step, and keep the best iterate."""
    state = progress.state
    iterate = step(rows, state.iterate, progress.value)
    value = evaluate(rows, iterate)
    better = value.residual < state.residual
    progressed = (value.residual < 0.99 * state.residual) | (
        value.infeasibility < 0.9 * state.infeasibility
    )
    finite = jnp.isfinite(value.residual)
    waiting = jnp.where(progressed, 0, jnp.where(finite, state.waiting + 1, PATIENCE))
    keep = lambda new, old: jnp.where(better, new, old)
    new = InteriorState(
        iterate=iterate,
        best=jax.tree.map(keep, iterate, state.best),
        residual=keep(value.residual, state.residual),
        infeasibility=jnp.minimum(value.infeasibility, state.infeasibility),
        waiting=waiting.astype(jnp.int32),
        weight=state.weight,
    )
    return Progress(new, value, progress.steps + 1)


def solve(
    bias: str,
    C: Array,
    tol: Array,
    rounds: Array,
    loss: Any,
    state: InteriorState,
    x: Array,
    y: Array,
) -> tuple[InteriorState, Array]:
    """Make steps until the residual is at most `tol`, or until `rounds` of them are made.

    The run also ends when nothing has improved for `PATIENCE` steps. Returns the state and the
    number of steps, () int32.
    """
    rows = make_rows(C, loss, bias, x, y, state.weight)
    # An iterate that was stored in float32 may have lost its distance to a bound.
    floor = lambda a: jnp.where(a > 0, jnp.maximum(a, FLOOR), FLOOR)
    t, u, z, v, w = state.iterate
    iterate = Iterate(floor(t), floor(u), floor(z), jnp.where(rows.bounded, floor(v), 0), w)
    state = state._replace(iterate=iterate)

    def unsolved(progress):
        state = progress.state
        going = (state.residual > tol) & (state.waiting < PATIENCE)
        return going & (progress.steps < rounds)

    start = Progress(state, evaluate(rows, iterate), jnp.zeros((), jnp.int32))
    end = lax.while_loop(unsolved, lambda progress: improve(rows, progress), start)
    return end.state, end.steps
