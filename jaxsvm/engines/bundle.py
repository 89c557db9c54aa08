"""Cutting planes of a risk, and the minimum of their maximum plus a squared norm.

    P(w) = lam/2 |w|^2 + R(X w),   R >= 0 convex (`risks.Risk`)

A plane is a lower bound of the risk: with u a subgradient of R at f and R* its conjugate,

    R(X w) >= offset + <slope, w>,   slope = X' u,   offset = R(f) - <u, f> = - R*(u)

Slot 0 holds the zero plane, as R >= 0. The model is the maximum of the planes. Its dual is over
convex weights of the planes, and bounds the minimum of P from below:

    max_theta  theta' offset - |slope' theta|^2 / (2 lam),   theta >= 0, sum theta = 1
    w = - slope' theta / lam
    P(v) - max = sum_k theta_k (R(X v) - offset_k - <slope_k, v>) + lam/2 |v - w|^2   for all v

where no term of the last sum is negative. If no slot is free, a new plane replaces the one that has
been without weight for longest. If all have weight, the two lightest are replaced by their mean, so
that the dual value does not fall.

In float32 these sums cancel from |slope| down to lam |w|. So the m x m work is in float64 always.

Reference: C. Teo, S. Vishwanathan, A. Smola, Q. Le, Bundle methods for regularized risk
    minimization, JMLR 11, 2010; K. Kiwiel, Methods of descent for nondifferentiable optimization,
    1985 (the mean of two planes).
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._node import between, cast, node, positive, register
from ..implicit import without_derivatives
from ..losses import crammer_singer_loss, hinge, hinge_loss
from ..models import Linear, OneVsRest
from ..numerics import (
    accum_dtype,
    affine,
    affine_transpose,
    dot,
    fast_max,
    in_double,
    index_row,
    norm,
    packed_by_reference,
    pairwise_sum,
)
from ..risks import Risk, best_bias, risk_of
from ..types import AnyLoss, Array, Batch, Info, Scalar
from . import base
from .base import AllRowsSolver
from .conjugate import ROUNDINGS
from .line_search import UNIT, Line, exact_step, slope_step
from .min_norm_point import nearest_point

IDLE = 1e-6  # a plane of less weight is idle


@register("Planes")
class Planes(NamedTuple):
    """Lower bounds offset_k + <slope_k, w> of the risk; slot 0 is the zero plane."""

    slope: Array  # (m, p)
    offset: Array  # (m,)
    theta: Array  # (m,)  convex weights of the last solution
    idle: Array  # (m,)  int32, solutions since the weight was above `IDLE`
    gram: Array  # (2, m, m)  slope slope', as a sum of two numbers each
    u: Array  # (m, n)  subgradients in the responses; (m, 0) where they are not kept
    size: Array  # ()  int32, occupied slots


@register("BundlePoint")
class Point(NamedTuple):
    """Weights, and the responses of all rows to them."""

    w: Array  # (p,)  with that of a constant feature last; of k classes one after the other
    b: Array  # ()  a bias that is not regularised, else 0
    response: Array  # (n,) or (n, k)  X w + b
    risk: Array  # ()


class Problem(NamedTuple):
    """The objective over given rows."""

    lam: Array
    data: Batch
    loss: AnyLoss
    bias: str
    classes: int | None  # k; None: one response for each row
    risk: Risk

    def responses(self, w: Array) -> Array:
        """X w, (p,) -> (n,) or (n, k)."""
        of_class = lambda w: affine(self.data.x, w, self.bias == "feature")
        if self.classes is None:
            return of_class(w)
        return jax.vmap(of_class, out_axes=1)(w.reshape(self.classes, -1))

    def transposed(self, u: Array) -> Array:
        """X' u, (n,) or (n, k) -> (p,)."""
        of_class = lambda u: affine_transpose(u, self.data.x, self.bias == "feature")
        return of_class(u) if self.classes is None else jax.vmap(of_class, in_axes=1)(u).ravel()

    def evaluate(self, response: Array) -> tuple[Array, Array, Array]:
        """The best free bias (), the risk () with it, and a slope (n,) or (n, k) there."""
        if self.bias == "free":
            return best_bias(self.risk, response)
        return (jnp.zeros((), response.dtype), *self.risk.value_and_slope(response))

    def with_bias(self, w: Array, b: Array, response: Array) -> Point:
        """The point of weights w, with the best bias added to b and to the responses."""
        change, risk, _ = self.evaluate(response)
        return Point(w, b + change, response + change, risk)

    def at(self, w: Array) -> Point:
        """The point of weights w, by one product with X."""
        return self.with_bias(w, jnp.zeros((), w.dtype), self.responses(w))

    def objective(self, point: Point) -> Array:
        """P, ()."""
        return self.lam / 2 * dot(point.w, point.w) + point.risk

    def plane(self, response: Array) -> tuple[Array, Array, Array]:
        """The slope (p,) and the offset () of the plane at a response, and its u."""
        _, risk, u = self.evaluate(response)
        if self.risk.conjugate is None:
            return self.transposed(u), risk - pairwise_sum(jnp.ravel(u * response)), u
        return self.transposed(u), -self.risk.conjugate(u), u

    @jax.named_scope("line_search")
    def search(self, a: Point, b: Point, mix: Scalar) -> Point:
        """The point of least objective on the ray from a through b; a where none is less.

        A free bias changes linearly along the ray, and is minimised at its end. Along that ray the
        objective may not decrease. So a second ray leads through (1 - mix) a + mix b, with the best
        bias there.
        """
        joint = self._on_ray(a, b)
        if self.bias != "free":
            return joint
        w, bias, response = ((1 - mix) * a + mix * b for a, b in zip(joint[:3], b[:3], strict=True))
        return self._on_ray(joint, self.with_bias(w, bias, response))

    def _on_ray(self, a: Point, b: Point) -> Point:
        """`search` along one ray of weights and biases."""
        change = jax.tree.map(lambda a, b: b - a, a, b)
        cross, square = dot(a.w, change.w), dot(change.w, change.w)
        if isinstance(self.loss, hinge_loss):
            y, weight = self.data.y.astype(a.w.dtype), self.data.weight
            share, unit = weight / pairwise_sum(weight), UNIT * jnp.finfo(a.w.dtype).eps
            size = lambda point: fast_max(jnp.where(weight > 0, jnp.abs(point.response), 0))
            tols = unit * jnp.maximum(size(a), 1), unit * (size(a) + size(b))
            rate, margin = y * (b.response - a.response), y * a.response
            t = exact_step(Line(self.lam, cross, square, margin, rate, share, *tols))
        else:
            t = slope_step(lambda t: self._slope(cross, square, a, change, t), self.lam * square)
        # Weights that differ by rounding only have responses that do not belong to the ray.
        unit = ROUNDINGS * jnp.finfo(a.w.dtype).eps
        t = jnp.where(square > unit**2 * (dot(a.w, a.w) + dot(b.w, b.w)), t, 0)
        w, bias, response = (old + t * rate for old, rate in zip(a[:3], change[:3], strict=True))
        trial = self.with_bias(w, bias, response)
        is_better = self.objective(trial) < self.objective(a)
        return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), trial, a)

    def _slope(self, cross: Array, square: Array, a: Point, change: Point, t: Array) -> Array:
        """The slope of P at a + t change, ()."""
        u = self.risk.value_and_slope(a.response + t * change.response)[1]
        rate = pairwise_sum(jnp.ravel(u * change.response))
        return self.lam * (cross + t * square) + rate


@register("BundleState")
class BundleState(NamedTuple):
    """The best point, the minimiser of the model, and the planes."""

    best: Point
    model: Point
    planes: Planes
    weight: Array  # (n,)
    t: Array  # ()  int32


def make_problem(
    lam: Scalar, loss: Any, bias: str, classes: int | None, data: Batch, weight: Array
) -> Problem:
    """The objective over the rows of `data` with weights (n,), in the dtype of those."""
    lam, loss = cast((lam, loss), weight.dtype)
    given = jnp.asarray(lam), loss, data._replace(weight=weight)
    number, loss, data = without_derivatives("cutting planes", given)
    return Problem(number, data, loss, bias, classes, risk_of(loss, data))


def no_planes(size: int, columns: int, dtype: np.dtype, rows: int = 0) -> Planes:
    """The zero plane, and `size` free slots; `rows` numbers of each u are kept."""
    m, zeros = size + 1, lambda *shape: jnp.zeros(shape, dtype)
    idle, one = jnp.zeros(m, jnp.int32), jnp.ones((), jnp.int32)
    theta, gram, u = zeros(m).at[0].set(1), zeros(2, m, m), zeros(m, rows)
    return Planes(zeros(m, columns), zeros(m), theta, idle, gram, u, one)


@jax.named_scope("add_plane")
def add_plane(
    lam: Array, planes: Planes, slope: Array, offset: Array, u: Array
) -> tuple[Planes, Array]:
    """The planes with a new one, and the minimiser of their model (p,)."""
    planes, changed, newest = _insert(planes, slope, offset, jnp.ravel(u)[: planes.u.shape[1]])
    solution = in_double(_solve)(slope.dtype, lam, planes, changed, newest)
    theta, gram, w = lax.stop_gradient(solution)
    idle = jnp.where(theta > IDLE, 0, planes.idle + 1)
    return planes._replace(theta=theta, idle=idle, gram=gram), w


def _insert(planes: Planes, slope: Array, offset: Array, u: Array) -> tuple[Planes, Array, Array]:
    """The planes with a new one, the two changed slots (2,), and the slot of the new one."""
    slot = jnp.arange(planes.offset.shape[0], dtype=jnp.int32)
    is_free = slot >= planes.size
    # free slots first, then the longest without weight, then the lightest
    rank = jnp.where(planes.idle > 0, planes.idle.astype(slope.dtype), -planes.theta)
    rank = jnp.where(is_free, jnp.inf, jnp.where(slot == 0, -jnp.inf, rank))
    dropped = jnp.argmax(rank).astype(jnp.int32)
    partner = jnp.where(is_free | (planes.idle > 0) | (slot == 0), jnp.inf, planes.theta)
    partner = jnp.argmin(partner.at[dropped].set(jnp.inf)).astype(jnp.int32)
    # A dropped plane of positive weight becomes a part of its partner.
    theta = jnp.where(is_free | (planes.idle > 0), 0, planes.theta)
    mass = theta[dropped] + theta[partner]
    share = theta[dropped] / jnp.where(mass > 0, mass, 1)

    def write(a, value):
        mean = (1 - share) * index_row(a, partner) + share * index_row(a, dropped)
        return a.at[partner].set(mean).at[dropped].set(value)

    theta = theta.at[partner].set(mass).at[dropped].set(0)
    planes = planes._replace(
        slope=write(planes.slope, slope),
        offset=write(planes.offset, offset),
        u=write(planes.u, u),
        theta=theta / jnp.sum(theta),
        idle=planes.idle.at[dropped].set(0),
        size=jnp.minimum(planes.size + 1, slot.shape[0]).astype(jnp.int32),
    )
    return planes, jnp.stack([partner, dropped]), dropped


@jax.named_scope("solve_planes")
def _solve(lam: Array, planes: Planes, changed: Array, newest: Array) -> tuple[Array, Array, Array]:
    """The weights (m,), the inner products as two numbers each, and the minimiser (p,)."""
    dtype = planes.slope.dtype
    gram = planes.gram[0] + planes.gram[1]
    products = dot(planes.slope, planes.slope[changed].T)
    for i in range(changed.shape[0]):
        gram = gram.at[changed[i]].set(products[:, i]).at[:, changed[i]].set(products[:, i])
    slot = jnp.arange(planes.offset.shape[0], dtype=jnp.int32)
    start = planes.theta, (planes.theta > 0) | (slot == newest)
    theta = nearest_point(gram / lam, slot < planes.size, planes.offset, start)
    head = gram.astype(jnp.float32).astype(dtype)
    return theta, jnp.stack([head, gram - head]), -dot(theta, planes.slope) / lam


def gap_at(lam: Array, planes: Planes, w: Array, risk: Array) -> Array:
    """P(w) minus the maximum of the dual, (), as a sum of terms >= 0."""
    slack = risk - planes.offset - dot(planes.slope, w)
    distance = norm(w + dot(planes.theta, planes.slope) / lam)
    # Rounding alone makes a slack negative.
    return dot(planes.theta, jnp.maximum(slack, 0)) + lam / 2 * distance**2


def relative_gap(problem: Problem, planes: Planes, point: Point) -> Array:
    """The duality gap of a point, relative to its objective, ()."""
    primal = problem.objective(point)
    gap = in_double(gap_at)(point.w.dtype, problem.lam, planes, point.w, point.risk)
    return gap / jnp.maximum(primal, jnp.finfo(primal.dtype).tiny)


def info_of(
    problem: Problem, before: Point, after: Point, residual: Array, passes: Array | int
) -> Info:
    """What one round reports; `passes` are the products of rows with weights or slopes, <= 3."""
    support = jnp.full((), after.w.shape[0], jnp.int32)
    size = float(problem.data.y.shape[0] * (problem.classes or 1))
    progress = problem.objective(before) - problem.objective(after)
    evals = jnp.asarray(passes, residual.dtype) * size
    return base.info_of(before.risk, residual, support, evals, progress)


@node
class BundleSolver(AllRowsSolver):
    """Cutting planes on all rows; a state holds the point of its model as `best`."""

    lam: float = positive()
    _: KW_ONLY
    loss: AnyLoss = hinge
    planes: int = between(2, default=100)
    bias: Literal["none", "feature", "free"] = "none"
    classes: int | None = between(2, default=None)

    mix = 1.0  # part of the minimiser of the model in the point of the new plane

    def check(self) -> None:
        if isinstance(self.loss, crammer_singer_loss) != (self.classes is not None):
            raise ValueError(
                "classes=k and loss=losses.crammer_singer belong together, got "
                f"classes={self.classes!r} and loss={self.loss!r}"
            )
        if self.classes is not None and self.bias == "free":
            raise ValueError(
                "a free bias of several classes is not supported: take bias='feature' or "
                "bias='none'"
            )

    @property
    def targets(self) -> Any:
        return self.classes or ("labels" if self.loss.labels else "real")

    def layout(self, data: Batch) -> Batch:
        return packed_by_reference(data) if self.classes is None else data

    def problem(self, data: Batch, weight: Array) -> Problem:
        """The objective over rows with weights (n,)."""
        return make_problem(self.lam, self.loss, self.bias, self.classes, data, weight)

    def next_best(self, problem: Problem, best: Point, model: Point, t: Array) -> tuple[Point, Any]:
        """The best point after a round, and the products with the rows that the round took."""
        raise NotImplementedError

    def init(self, key: Array, data: Batch) -> BundleState:
        dtype = accum_dtype(data.x)
        columns = (data.x.shape[-1] + (self.bias == "feature")) * (self.classes or 1)
        weight, planes = data.weight.astype(dtype), no_planes(self.planes, columns, dtype)
        start = self.problem(data, weight).at(jnp.zeros(columns, dtype))
        state = BundleState(start, start, planes, weight, jnp.zeros((), jnp.int32))
        return jax.tree.map(jnp.array, state)  # each array its own

    def update(self, state: BundleState, batch: Batch) -> tuple[BundleState, Info]:
        best, model, planes, weight, t = state
        problem = self.problem(batch, weight)
        part = without_derivatives("cutting planes", cast(self.mix, weight.dtype))
        between = (1 - part) * best.response + part * model.response
        planes, minimiser = add_plane(problem.lam, planes, *problem.plane(between))
        model = problem.at(minimiser)
        new, passes = self.next_best(problem, best, model, t)
        info = info_of(problem, best, new, relative_gap(problem, planes, new), passes)
        return BundleState(new, model, planes, weight, t + 1), info

    def model(self, state: Any, data: Batch | None = None) -> Linear | OneVsRest:
        point, k = state.best, self.classes
        w = point.w if k is None else point.w.reshape(k, -1)
        b = jnp.broadcast_to(point.b, w.shape[:-1])
        if self.bias == "feature":
            w, b = w[..., :-1], w[..., -1]
        linear = Linear(w, b, self.bias)
        return linear if k is None else OneVsRest(linear, (True, True))
