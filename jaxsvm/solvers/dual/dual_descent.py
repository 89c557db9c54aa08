"""Dual coordinate descent with shrinking for linear machines, after LIBLINEAR."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..._node import node
from ...engines.base import info_of
from ...engines.coordinate_descent import descend
from ...engines.linear_dual import (
    LinearDualSolver,
    clip_rounds,
    clipped,
    linear_model,
    parameters_of,
    problem_of,
)
from ...models import Linear
from ...numerics import (
    accum_dtype,
    count,
    in_double,
    map_in_groups,
)
from ...types import Array, Batch, Info, SparseRows, from_step_0, state_class

LEAST_LANES, LANES = 4, 512  # problems that are solved at once under `vmap`
MOST_WEIGHTS = 2**16  # of these problems on dense rows


@state_class("DualDescentState", method="dual_descent", sums_of=(), restart=from_step_0)
class DualDescentState(NamedTuple):
    """The dual coefficients, and the weights w = sum_i coef_i x_i and b = sum_i coef_i."""

    coef: Array  # (n,) signed
    w: Array  # (d,)
    b: Array  # ()
    weight: Array  # (n,) of the rows
    residual: Array  # () relative duality gap; inf before the first update
    steps: Array  # () int32, passes of all updates


@node
class dual_descent(LinearDualSolver):
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by its dual's coordinates.

    A pass visits the rows of a list, first all. A visit is, for the hinge, 0 <= alpha_i <=
    C weight_i:

        g = 1 - y_i (<w, x_i> + b)
        alpha_i' = clip(alpha_i + g / (|x_i|^2 + 1), 0, C weight_i)
        w += (alpha_i' - alpha_i) y_i x_i,   b += (alpha_i' - alpha_i) y_i

    unless alpha_i is at a bound and g points out of it by more than any row of the pass before had
    to gain by the reverse move: then the row leaves the list (shrinking). The gain of a row is |g|
    where alpha_i can move that way. All rows are listed again where the gains of the listed ones
    are at most a goal, and when twenty visits of each row have gone by. Then w is summed up anew,
    and no row leaves in the next pass. The goal is first max(2 sqrt(tol), 0.001) of the largest
    gain. Where all rows meet it, the gap is computed, and the goal is lowered if that is above tol.
    The gap is also computed after 120 visits and each doubling, and first of a run that does not
    begin at 0. It counts as two visits. The run also ends where three looks have not made the gap
    fall by a tenth, and the goal is near rounding. With an eighth as many columns as rows, or more,
    the kinks of the hinge and its like lie closer than float32 can tell: passes are then in
    float64, also where 64-bit types are off, but for problems that are solved at once. The loop is
    `engines.coordinate_descent`. It is for sparse rows and for many columns; with few columns and a
    large C coordinates move slowly, and `interior_point` is faster.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            squared_eps_insensitive, pinball, squared.
        bias: "feature" (a constant feature 1, regularised with the others) or "none".
        tol: relative duality gap to stop at, > 0; None: 1e-4; `fit(tol=)` overrides it.
        rounds: visits of each row in one update, about, after which it ends; a whole number up to
            100,000. A pass of a short list counts as 1/64 at least.

    Returns:
        A solver on all rows; model `Linear`. An update makes passes until the gap is at most `tol`,
        so that a run needs one update as a rule. The residual is the relative duality gap; signed
        dual coefficients are `result.state.solver.coef`. The model has the derivatives of the exact
        solution in C, the loss and the rows (`implicit.solution`); they are nan if more than 2,048
        coefficients are free. Under `vmap` four or more problems with the same rows, C, loss and
        tol are solved at once, on dense rows up to 128 columns. A visit of a row then moves the
        coefficients of all, until each gap is at most `tol`. Other problems run in turns. An
        update clips the coefficients to their bounds first, so that a run goes on from another C.
        `evals` counts visits of rows, and 2 n for a look at the gap.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, rounds out of
            range.

    Differs from the paper: rows are visited in strides of primes, not in a random order. The gap
        decides when to stop, and so what the goal is; the paper's is a number. Rows are listed
        again after twenty visits, too.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.dual_descent(10.0), data, jax.random.key(0), steps=1)
        >>> float(result.model.w[0]), result.converged
        (1.0, True)

    Reference: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, A dual coordinate
        descent method for large-scale linear SVM, ICML 2008, algorithm 3; C.-H. Ho, C.-J. Lin,
        Large-scale linear support vector regression, JMLR 13, 2012, algorithm 4.
    """

    bias: Literal["feature", "none"] = dataclasses.field(default="feature", kw_only=True)
    rounds: float = dataclasses.field(default=1000.0, kw_only=True)

    usual_tol = 1e-4

    def init(self, key: Array, data: Batch) -> DualDescentState:
        dtype = accum_dtype(data.x)
        weight = jnp.array(data.weight, dtype)
        w, zero = jnp.zeros(data.x.shape[-1], dtype), jnp.zeros((), dtype)
        infinite, steps = jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32)
        return DualDescentState(jnp.zeros_like(weight), w, zero, weight, infinite, steps)

    def update(self, state: DualDescentState, batch: Batch) -> tuple[DualDescentState, Info]:
        dtype = state.w.dtype
        given = self.numbers(dtype), state, batch.x, batch.y.astype(dtype)
        (C, tol, most, loss), state, x, y = lax.stop_gradient(given)
        solve = make_solver(self.bias == "feature")
        new, total, visits = solve((C, tol, clip_rounds(most), loss, x), (state, y))
        total /= C * jnp.maximum(jnp.sum(state.weight), jnp.finfo(dtype).tiny)
        return new, info_of(total, new.residual, count(new.coef != 0), visits)

    def model(self, state: DualDescentState, data: Batch | None = None) -> Linear:
        v = jnp.append(state.w, state.b) if self.bias == "feature" else state.w
        parameters = None if data is None else parameters_of(self.C, self.loss, data, v.dtype)
        return linear_model(self.bias, v, state.coef, parameters)


@functools.cache
def make_solver(constant: bool) -> Callable:
    """The function of one update.

    It is (C, tol, rounds, loss, x), (state, y) -> state, losses, visits. Under `vmap` problems on
    the same rows and numbers are solved at once, others in turns.
    """

    def solve(shared, own):
        state, y = own
        C, tol, rounds, loss, x = shared

        def run(coef, x, y, C, loss, tol):
            problem = problem_of(x, y, C, loss, constant)
            return descend(problem, clipped(coef, problem), tol, rounds)

        given = state.coef, x, y, C * state.weight, loss, tol
        has_kinks = loss.curvature is None and x.shape[0] <= 8 * x.shape[1]  # some are padding
        end = in_double(run)(y.dtype, *given) if has_kinks else run(*given)
        steps = state.steps + end.passes
        new = DualDescentState(end.coef, end.w, end.b, state.weight, end.residual, steps)
        return new, end.loss, end.visits * y.shape[0]

    def solve_at_once(shared, own):
        """All problems by the same visits of rows, with k coefficients of each."""
        state, y = own
        C, tol, rounds, loss, x = shared
        problem = problem_of(x, y.T, C * state.weight.T, loss, constant)
        end = descend(problem, clipped(state.coef.T, problem), tol, rounds)
        losses, gaps = end.loss
        steps = state.steps + end.passes
        new = DualDescentState(end.coef.T, end.w.T, end.b, state.weight, gaps, steps)
        return new, losses, jnp.full(len(y), end.visits * y.shape[1])

    def most_at_once(shared, own):
        (*_, x), (state, y) = shared, own
        several = any(a.ndim == 2 and len(a) >= LEAST_LANES for a in (y, state.weight, state.coef))
        # of a dense row a visit changes all weights
        small = isinstance(x, SparseRows) or x.shape[-1] * LANES <= MOST_WEIGHTS
        return LANES if several and small else 0

    return map_in_groups(solve, solve_at_once, most_at_once)
