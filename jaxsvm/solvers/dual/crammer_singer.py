"""The multiclass machine of Crammer and Singer, by coordinates of its dual."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import between, cast, node, positive
from ...checks import check_whole
from ...engines.base import LinearSolver, info_of
from ...engines.coordinate_descent import descend
from ...engines.linear_dual import (
    MOST_ROUNDS,
    clip_rounds,
    linear_model,
    parameters_of,
)
from ...losses import crammer_singer as hinge_of_classes
from ...models import OneVsRest
from ...numerics import (
    accum_dtype,
    count,
    dot,
    map_on_cpu,
    pairwise_sum,
    row_at,
    sqnorms,
)
from ...types import Array, Batch, Info, from_step_0, state_class


@state_class("CrammerSingerState", sums_of=(), restart=from_step_0)
class CrammerSingerState(NamedTuple):
    """The dual coefficients, and the weights w_m = sum_i coef_im x_i, b_m = sum_i coef_im."""

    coef: Array  # (n, k); of each row with sum 0
    w: Array  # (k, d)
    b: Array  # (k,)
    weight: Array  # (n,) of the rows
    residual: Array  # () relative duality gap; inf before the first update
    steps: Array  # () int32, passes of all updates


class Problem(NamedTuple):
    """The dual: sum_i coef_iy_i - sum_m (|w_m|^2 + b_m^2) / 2, coef_i = C_i (e_y_i - p_i)."""

    x: Any  # (n, d)
    y: Array  # (n,) int32
    C: Array  # (n,) C times the weight of the row
    curvature: Array  # (n,) |x_i|^2, and 1 of the constant
    constant: bool

    def gains(self, i: Array, coef: Array, score: Array) -> tuple[Array, Array]:
        """What the leading class is ahead of the last one with p_im > 0, another class, twice."""
        own = jnp.arange(coef.shape[0], dtype=jnp.int32) == row_at(self.y, i)
        ahead = jnp.where(own, score, score + 1)
        has_share = jnp.where(own, coef < row_at(self.C, i), coef < 0)
        last = jnp.argmin(jnp.where(has_share, ahead, jnp.inf))
        others = jnp.where(jnp.arange(coef.shape[0]) == last, -jnp.inf, ahead)
        gain = jnp.where(row_at(self.C, i) > 0, jnp.max(others) - ahead[last], -jnp.inf)
        return gain, gain

    def maximiser(self, i: Array, coef: Array, score: Array) -> Array:
        """The coefficients of row i of the largest dual, the others fixed."""
        numbers = (row_at(a, i) for a in (self.y, self.curvature, self.C))
        return hinge_of_classes.dual_step(*(a[None] for a in (coef, score, *numbers)))[0]

    def weights(self, coef: Array) -> tuple[Array, Array]:
        """The weights w (d, k), b (k,) of the coefficients."""
        total = jnp.sum(coef, axis=0)
        w = jax.vmap(lambda u: dot(u, self.x), in_axes=1, out_axes=1)(coef)
        return w, total if self.constant else jnp.zeros_like(total)

    def gap(self, coef: Array) -> tuple[Array, Array, Array, Array]:
        """The weights of the coefficients, the sum of losses and the relative duality gap.

        The gap is a sum of terms of at least 0.
        """
        w, b = self.weights(coef)
        score = jax.vmap(lambda w: dot(self.x, w), in_axes=1, out_axes=1)(w) + b[None, :]
        value = jnp.where(self.C > 0, self.C * hinge_of_classes.value(score, self.y), 0)
        own = jnp.take_along_axis(coef, self.y[:, None], axis=1)[:, 0]
        terms = jnp.maximum(value - own + jnp.sum(coef * score, axis=1), 0)
        loss = pairwise_sum(value)
        primal = (jnp.sum(w * w) + jnp.sum(b * b)) / 2 + loss
        return w, b, loss, pairwise_sum(terms) / jnp.where(primal > 0, primal, 1)


@node
class crammer_singer(LinearSolver):
    """Minimise the objective of all k classes at once, by the rows of its dual.

        1/2 sum_m (|w_m|^2 + b_m^2) + C sum_i weight_i max_m (f_m(x_i) + [m != y_i] - f_{y_i}(x_i))

    with f_m(x) = <w_m, x> + b_m. A pass visits listed rows, as in `dual_descent`. A visit maximises
    the dual exactly over the k coefficients of a row, with q = |x_i|^2 + 1, e_y a unit vector:

        p = projection of e_y + (f(x_i) - e_y - q coef_i) / (q C weight_i) onto the simplex
        coef_i' = C weight_i (e_y - p)
        w_m += (coef_im' - coef_im) x_i,   b_m += coef_im' - coef_im

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        classes: k, for class numbers 0 .. k-1; structure.
        bias: "feature" (a constant feature 1, regularised with the others) or "none".
        tol: relative duality gap to stop at, > 0; None: 1e-4; `fit(tol=)` overrides it.
        rounds: visits of each row in one update, at most; a whole number up to 100,000.

    Returns:
        A solver on all rows, for class numbers as targets; model `OneVsRest` of `Linear`. An update
        makes passes until the gap is at most `tol`, so that a run needs one update as a rule. The
        residual is the relative duality gap; dual coefficients are `result.state.solver.coef`. The
        model has the derivatives of the exact solution in C and the rows
        (`implicit.simplex_solution`); they are nan if more than 2,048 coefficients are free. Under
        `vmap` runs are sequential on a CPU and batched elsewhere. With `on_features` it is a kernel
        machine, exact for the features of `features.cholesky` at full rank.

    Raises:
        ValueError: C or tol not a single positive number, another bias, classes below 2, rounds out
            of range.

    Differs from the paper: rows leave the list, not classes; rows are visited in strides of primes,
        not in a random order; the subproblem of a row is solved by a projection, as in Crammer and
        Singer; the gap decides when to stop, not the violation.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [0.0], [-1.0]], [0, 1, 2], task="multiclass")
        >>> machine = jaxsvm.crammer_singer(10.0, classes=3)
        >>> result = jaxsvm.fit(machine, data, jax.random.key(0), steps=1)
        >>> result.predict(data.x).tolist(), result.converged
        ([0, 1, 2], True)

    Reference: S. Keerthi, S. Sundararajan, K.-W. Chang, C.-J. Hsieh, C.-J. Lin, A sequential dual
        method for large scale multi-class linear SVMs, KDD 2008, section 3; K. Crammer, Y. Singer,
        On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2, 2001,
        section 6.
    """

    C: float = positive()
    _: KW_ONLY
    classes: int = between(2)
    bias: Literal["feature", "none"] = "feature"
    tol: float | None = positive(default=None)
    rounds: float = 1000.0

    usual_tol = 1e-4  # of the relative duality gap

    def check(self) -> None:
        check_whole("rounds", self.rounds, most=MOST_ROUNDS)

    @property
    def targets(self) -> int:
        return self.classes

    def init(self, key: Array, data: Batch) -> CrammerSingerState:
        dtype, k = accum_dtype(data.x), self.classes
        weight = jnp.array(data.weight, dtype)
        coef = jnp.zeros((weight.shape[0], k), dtype)
        w, b = jnp.zeros((k, data.x.shape[-1]), dtype), jnp.zeros(k, dtype)
        infinite, steps = jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32)
        return CrammerSingerState(coef, w, b, weight, infinite, steps)

    def update(self, state: CrammerSingerState, batch: Batch) -> tuple[CrammerSingerState, Info]:
        numbers = cast((self.C, self.iterates_to, self.rounds), state.w.dtype)
        arrays = lax.stop_gradient((numbers, state, batch.x, batch.y.astype(jnp.int32)))
        constant = self.bias == "feature"

        def passes(numbers, state, x, y):
            C, tol, rounds = numbers
            bound = C * state.weight
            problem = Problem(x, y, bound, sqnorms(x) + float(constant), constant)
            # coefficients of another C are moved to the nearest ones of this C
            coef, e = state.coef, jax.nn.one_hot(y, self.classes, dtype=bound.dtype)
            is_feasible = jnp.all(coef <= bound[:, None] * e, axis=1, keepdims=True)
            nearest = hinge_of_classes.dual_step(coef, e, y, jnp.ones_like(bound), bound)
            start = jnp.where(is_feasible, coef, nearest)
            return descend(problem, start, tol, clip_rounds(rounds))

        end = map_on_cpu(passes)(*arrays)
        steps = state.steps + end.passes
        new = CrammerSingerState(end.coef, end.w.T, end.b, state.weight, end.residual, steps)
        total = numbers[0] * jnp.maximum(jnp.sum(state.weight), jnp.finfo(new.w.dtype).tiny)
        support, evals = count(jnp.any(new.coef != 0, axis=1)), end.visits * state.coef.shape[0]
        return new, info_of(end.loss / total, new.residual, support, evals)

    def model(self, state: CrammerSingerState, data: Batch | None = None) -> OneVsRest:
        constant = [state.b[:, None]] if self.bias == "feature" else []
        v = jnp.concatenate([state.w, *constant], axis=1)
        parameters = None if data is None else parameters_of(self.C, None, data, v.dtype)
        return OneVsRest(linear_model(self.bias, v, state.coef, parameters), (True, True))
