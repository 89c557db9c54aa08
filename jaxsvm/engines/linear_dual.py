"""The dual of a linear machine, and its weights with the derivatives that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from .._node import cast, node, positive
from ..checks import check_whole
from ..implicit import simplex_solution, solution
from ..kernels import linear
from ..losses import hinge
from ..models import Linear
from ..numerics import (
    dot,
    pairwise_sum,
    put_row,
    row_at,
    row_loops,
    split_constant,
    sqnorms,
    tangents_of,
)
from ..types import Array, Batch, Loss, Quadratic, Rows, Scalar, SparseRows
from .base import LinearSolver

COLUMNS = 1000  # a factorisation of more takes longer than the passes of other methods
MOST_ROUNDS = 100_000


def check_quadratic(loss: Loss, by_kernel: bool = False) -> None:
    """Raise ValueError for a loss whose dual is not quadratic; it names methods that take it."""
    if loss.quadratic is None:
        has = {"newton": not by_kernel and loss.curvature, "cpsp" if by_kernel else "ocas": True}
        has["sdca"] = loss.dual_step and loss.conjugate
        raise ValueError(
            f"the dual of {loss!r} is not quadratic: take {', '.join(filter(has.get, has))}, or a "
            "loss such as hinge or eps_insensitive"
        )


def check_arguments(loss: Loss, rounds: Scalar) -> None:
    """Raise ValueError for a loss whose dual is not quadratic, or a wrong number of rounds."""
    check_whole("rounds", rounds, most=MOST_ROUNDS)
    check_quadratic(loss)


@node
class LinearDualSolver(LinearSolver):
    """A method for the dual of a linear machine; an update ends once the gap is at most `tol`."""

    C: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["feature", "free", "none"] = "feature"
    tol: float | None = positive(default=None)
    rounds: float = 100.0

    def check(self) -> None:
        check_arguments(self.loss, self.rounds)

    def numbers(self, dtype: DTypeLike) -> tuple:
        """C, the tolerance, the number of rounds and the loss, for an update."""
        return cast((self.C, self.iterates_to, self.rounds, self.loss), dtype)


def check_columns(caller: str, columns: int, instead: str, most: int = COLUMNS) -> None:
    """Raise ValueError for rows of more columns than a factorisation is for.

    Args:
        caller: the solver's name.
        columns: of the rows.
        instead: what to take for such rows.
        most: columns that the caller takes.
    """
    if columns > most:
        raise ValueError(
            f"{caller} takes rows of up to {most} columns, got {columns}: take {instead}"
        )


def clip_rounds(rounds: Scalar) -> Array:
    """The number of rounds as an int32 from 1 to `MOST_ROUNDS`."""
    return jnp.clip(jnp.asarray(rounds), 1, MOST_ROUNDS).astype(jnp.int32)


def parameters_of(C: Scalar, loss: Loss | None, data: Batch, dtype: DTypeLike) -> tuple:
    """x (n, d), which may be sparse, y (n,), weight (n,), C () and the loss."""
    numbers = cast((data.y, data.weight, C, loss), dtype)
    return data.x, *jax.tree.map(jnp.asarray, numbers)


def linear_model(
    bias: str, v: Array, coef: Array | None = None, parameters: tuple | None = None
) -> Linear:
    """The model of weights v, with the derivatives of the exact solution in the parameters.

    Args:
        bias: "feature", "free" or "none".
        v: (p,) optimal weights, with that of the bias last where there is one; of k classes
            (k, p).
        coef: (n,) signed dual coefficients, exactly on those of their bounds that are active; of k
            classes (n, k), as `implicit.simplex_solution` has them.
        parameters: as `parameters_of` returns them; None: without derivatives.

    Returns:
        The model. Without differentiation nothing is computed.
    """

    def weights_of(w, coef, parameters):
        x, y, weight, C, loss = parameters
        x = x.toarray() if isinstance(x, SparseRows) else x
        x = jnp.pad(x, ((0, 0), (0, int(bias == "feature"))), constant_values=1)
        data = Batch(x, y, jnp.arange(y.shape[0], dtype=jnp.int32), weight)
        if coef.ndim > 1:
            return dot(simplex_solution(coef, linear(), data, C).T, x)
        b = w[-1] if bias == "free" else jnp.zeros((), w.dtype)
        kind = "free" if bias == "free" else "none"
        attached, b = solution(coef, b, linear(), data, C, loss, kind)
        weights = dot(attached, x)
        return jnp.concatenate([weights, b[None]]) if bias == "free" else weights

    if parameters is not None:
        exact = tangents_of(weights_of)(lambda w, coef, parameters: w)
        v = exact(*lax.stop_gradient((v, coef)), parameters)
    return Linear(*split_constant(v, bias != "none"), bias)


class Start(NamedTuple):
    """Coefficients of the rows, and the weights w, b that hold them and those of other rows."""

    coef: Array  # (n,)
    w: Array  # (d,)
    b: Array  # ()


class DualProblem(NamedTuple):
    """The dual: sum_i y_i coef_i - l1_i |coef_i| - l2_i/2 coef_i^2 - (|w|^2 + b^2) / 2."""

    x: Rows  # (n, d)
    y: Array  # (n,)
    C: Array  # (n,) C times the weight of the row
    bounds: Quadratic
    curvature: Array  # (n,) |x_i|^2 + l2_i, and 1 of the constant; above 0
    loss: Loss
    constant: bool
    start: Start | None = None  # None: there are no other rows

    def gains(self, i: Array, coef: Array, score: Array) -> tuple[Array, Array]:
        """The derivatives of the dual as |coef_i| grows, and as it falls; -inf at a bound."""
        up = down = self._slope(i, coef, score)
        if self.bounds.l1 is not None:
            l1 = row_at(self.bounds.l1, i)
            up = up - jnp.where(coef >= 0, l1, -l1)
            down = down - jnp.where(coef > 0, l1, -l1)
        up = jnp.where(coef < row_at(self.bounds.high, i), up, -jnp.inf)
        down = jnp.where(coef > row_at(self.bounds.low, i), -down, -jnp.inf)
        if self.loss.labels:  # one sign for each row
            is_up = row_at(self.y, i) > 0
            return jnp.where(is_up, up, down), jnp.where(is_up, down, up)
        grows = jnp.where(coef > 0, up, jnp.where(coef < 0, down, jnp.maximum(up, down)))
        falls = jnp.where(coef > 0, down, jnp.where(coef < 0, up, -jnp.inf))
        return grows, falls

    def maximiser(self, i: Array, coef: Array, score: Array) -> Array:
        """The coef_i of the largest dual, the others fixed."""
        q = row_at(self.curvature, i)
        free = q * coef + self._slope(i, coef, score)  # q times the maximiser, which would overflow
        if self.bounds.l1 is not None:
            free = jnp.sign(free) * jnp.maximum(jnp.abs(free) - row_at(self.bounds.l1, i), 0)
        free = free / q
        return jnp.clip(free, row_at(self.bounds.low, i), row_at(self.bounds.high, i))

    def _slope(self, i: Array, coef: Array, score: Array) -> Array:
        """The derivative of the dual in coef_i, without the l1 term."""
        slope = row_at(self.y, i) - score
        return slope if self.bounds.l2 is None else slope - row_at(self.bounds.l2, i) * coef

    def weights(self, coef: Array) -> tuple[Array, Array]:
        """The weights w, b of the coefficients."""
        change = coef if self.start is None else coef - self.start.coef
        w, b = dot(change, self.x), jnp.sum(change) if self.constant else jnp.zeros((), coef.dtype)
        return (w, b) if self.start is None else (self.start.w + w, self.start.b + b)

    def gap(self, coef: Array) -> tuple[Array, Array, Any, Array]:
        """The weights of the coefficients, the sum of losses and the relative duality gap.

        The gap is a sum of terms of at least 0.
        """
        w, b = self.weights(coef)
        value, terms = self.terms(coef, dot(self.x, w) + b)
        loss = pairwise_sum(value)
        primal = dot(w, w) / 2 + b * b / 2 + loss
        return w, b, loss, pairwise_sum(terms) / jnp.where(primal > 0, primal, 1)

    def terms(self, coef: Array, score: Array) -> tuple[Array, Array]:
        """The losses, and the terms of the gap, at the decision values."""
        value = jnp.where(self.C > 0, self.C * self.loss.value(score, self.y), 0)
        _, _, l1, l2 = self.bounds
        conjugate = -self.y * coef
        conjugate = conjugate if l1 is None else conjugate + l1 * jnp.abs(coef)
        conjugate = conjugate if l2 is None else conjugate + l2 / 2 * coef * coef
        return value, jnp.maximum(value + conjugate + coef * score, 0)


class DualProblems(DualProblem):
    """k problems on the same rows, y and C (n, k), that are solved at once.

    A row leaves the list where it would in all of them.
    """

    __slots__ = ()

    def weights(self, coef: Array) -> tuple[Array, Array]:
        """The weights w (d, k), b (k,) of the coefficients (n, k)."""
        _, add_row = row_loops(self.x)
        add = lambda i, w: add_row(i, row_at(coef, i), w, True)
        w = jnp.zeros((self.x.shape[1], coef.shape[1]), coef.dtype)
        b = jnp.sum(coef, axis=0)
        return self._over_rows(add, w), b if self.constant else jnp.zeros_like(b)

    def gap(self, coef: Array) -> tuple[Array, Array, tuple[Array, Array], Array]:
        """The weights, the sum of losses and the gap of each problem, and the largest gap."""
        w, b = self.weights(coef)
        dot_row, _ = row_loops(self.x)
        score = self._over_rows(lambda i, f: put_row(f, i, dot_row(i, w) + b), jnp.zeros_like(coef))
        losses, gaps = (jax.vmap(pairwise_sum, 1)(a) for a in self.terms(coef, score))
        primal = jnp.sum(w * w, axis=0) / 2 + b * b / 2 + losses
        gaps = gaps / jnp.where(primal > 0, primal, 1)
        return w, b, (losses, gaps), jnp.max(gaps)

    def _over_rows(self, fn: Callable, start: Array) -> Array:
        """`fn(i, carry)` of all rows i in order."""
        step = lambda i, carry: fn(i.astype(jnp.uint32), carry)
        return jax.lax.fori_loop(0, self.y.shape[0], step, start)


def problem_of(
    x: Rows, y: Array, C: Array, loss: Loss, constant: bool, start: Start | None = None
) -> DualProblem:
    """The dual of targets y (n,), or of k problems with (n, k), with C times the weights as y."""
    bounds = loss.quadratic(y, C)
    curvature = sqnorms(x) + (1.0 if constant else 0.0)
    if bounds.l2 is not None:
        curvature = curvature.reshape(-1, *[1] * (y.ndim - 1)) + bounds.l2
    # of a row of zeros it is tiny
    curvature = jnp.maximum(curvature, jnp.finfo(curvature.dtype).tiny * 16)
    kind = DualProblem if y.ndim == 1 else DualProblems
    return kind(x, y, C, bounds, curvature, loss, constant, start)


def clipped(coef: Array, problem: DualProblem) -> Array:
    """The coefficients within their bounds."""
    return jnp.clip(coef, problem.bounds.low, problem.bounds.high)
