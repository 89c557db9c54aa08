"""An interior point method for linear machines with few columns."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..._node import cast, node
from ...engines.base import info_of
from ...engines.dual_qp import Dual, intercept
from ...engines.linear_dual import (
    LinearDualSolver,
    check_columns,
    clip_rounds,
    linear_model,
    parameters_of,
)
from ...implicit import at_bound
from ...models import Linear
from ...numerics import accum_dtype, affine, count, in_double, is_traced
from ...types import Array, Batch, Info, Loss, Quadratic, SparseRows
from . import interior
from .interior import InteriorState, Iterate


@node
class interior_point(LinearDualSolver):
    """Minimise 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) by an interior point method.

    It is for up to 1,000 columns, or features: `on_features(features.cholesky(...),
    interior_point(C))` is a kernel machine, and `features.low_rank_bound` bounds what its low-rank
    kernel costs. A step solves one system of d numbers, by one factorisation for two right-hand
    sides. For the hinge, with alpha_i = C weight_i t_i, u = 1 - t, and multipliers
    z of t >= 0 and v of u >= 0:

        theta = z / t + v / u;   M = I + C X' diag(weight / theta) X
        M dw = C X' (weight y r / theta) + C X' (weight y t) - w;   dt = (r - y X dw) / theta
        predictor: r = 1 - y X w, the step to t z = u v = 0
        corrector: r += (mu - dt dz) / t - (mu + dt dv) / u
        t, u, z, v, w += 0.995 of the longest step inside of the bounds

    mu is the mean of t z and u v, times the cube of the share that the predictor leaves of it. It
    starts at w = 0, t = 1/2, z = 1, v = 2, and takes 13 to 40 steps as a rule.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        loss: one whose dual is quadratic: hinge, squared_hinge, smooth_hinge, eps_insensitive,
            squared_eps_insensitive, pinball, squared. Losses of real targets with a tube have two
            variables for each row.
        bias: "feature" (regularised), "free" (not regularised) or "none".
        tol: relative duality gap to stop at, > 0; None: 1e-6; `fit(tol=)` overrides it. With a free
            bias the mean coefficient, divided by C, is at most that, too.
        rounds: maximum number of steps of one update, a whole number. `fit` evaluates, saves and
            reacts to Ctrl-C between updates only. No further step is made once nothing has
            improved for 5 steps, of all updates.

    Returns:
        A solver on all rows; model `Linear`. The residual is the relative duality gap of the best
        iterate so far, which is the model. Where all coefficients are at bounds, a free bias of it
        is the midpoint of those that are optimal. Its signed dual coefficients are
        `run.state.solver.coef`. All steps of an update are in float64, also where 64-bit types are
        off, and the state is rounded to the dtype of the rows after it. The model has the
        derivatives of the exact solution in C, the loss and the rows (`implicit.solution`); they
        are nan if more than 2,048 coefficients are free. Sparse rows are made dense. Under `vmap`
        runs are sequential. A later update first evaluates the best iterate as it is stored, so
        that a run goes on from the state of another C or loss.

    Raises:
        ValueError: C or tol not a single positive number, another loss or bias, rows of more than
            1,000 columns; from `fit`: a free bias with rows of one class only.

    Differs from the papers: w is a variable of its own (in Fine and Scheinberg it is X' alpha),
        which loses fewer digits and allows to start at w = 0, with half of the steps. The features
        are the columns themselves. Primal and dual steps have one length.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.interior_point(10.0)
        >>> result = jaxsvm.fit(solver, data, jax.random.key(0), steps=1, tol=1e-6)
        >>> round(float(result.model.w[0]), 4), result.converged
        (1.0, True)

    Reference: S. Fine, K. Scheinberg, Efficient SVM training using low-rank kernel representations,
        JMLR 2, 2001; S. Mehrotra, On the implementation of a primal-dual interior point method,
        SIAM J. Optimization 2, 1992; M. Ferris, T. Munson, Interior-point methods for massive
        support vector machines, SIAM J. Optimization 13, 2002.
    """

    usual_tol = 1e-6

    def validate(self, data: Batch) -> None:
        super().validate(data)
        is_known = not is_traced(data.y, data.weight)
        if self.bias != "free" or not self.loss.labels or not is_known:
            return
        # the dual of rows of one class has no point but 0
        values = np.unique(np.asarray(data.y)[np.asarray(data.weight) > 0])
        if values.size == 1 and values[0] in (-1, 1):
            raise ValueError(
                f"all rows have the label {values[0]:g}: a free bias needs rows of both classes; "
                "take bias='feature' or bias='none'"
            )

    def init(self, key: Array, data: Batch) -> InteriorState:
        columns, is_free = data.x.shape[-1], self.bias == "free"
        instead = "kernel_svm with kernels.linear()" if is_free else "dual_descent"
        check_columns("interior_point", columns, instead)
        dtype = accum_dtype(data.x)
        y, weight, loss = jax.tree.map(jnp.asarray, cast((data.y, data.weight, self.loss), dtype))
        start = interior.start(loss, y, weight, columns + (self.bias != "none"))
        infinite = jnp.full((), jnp.inf, dtype)
        zero = jnp.zeros((), jnp.int32)
        number = jnp.zeros((), dtype), infinite, infinite, zero
        state = InteriorState(start, start, jnp.zeros_like(y), *number, weight, zero)
        return jax.tree.map(jnp.array, lax.stop_gradient(state))  # each array its own

    def update(self, state: InteriorState, batch: Batch) -> tuple[InteriorState, Info]:
        dtype = state.residual.dtype
        x = batch.x.toarray() if isinstance(batch.x, SparseRows) else batch.x
        given = self.numbers(dtype), state, x, batch.y.astype(dtype)
        (C, tol, most, loss), state, x, y = lax.stop_gradient(given)
        solve = in_double(functools.partial(interior.solve, self.bias))
        new = solve(dtype, C, tol, clip_rounds(most), loss, state, x, y)
        support = count((_snapped(new.best, y, loss) != 0) & (state.weight > 0))
        evals = (new.steps - state.steps).astype(dtype) * y.shape[0]
        return new, info_of(new.loss, new.residual, support, evals)

    def model(self, state: InteriorState, data: Batch | None = None) -> Linear:
        if data is None:
            return linear_model(self.bias, state.best.w)
        x, y, weight, C, loss = parameters_of(self.C, self.loss, data, state.residual.dtype)
        x = (x.toarray() if isinstance(x, SparseRows) else x).astype(y.dtype)
        w, coef = state.best.w, C * weight * _snapped(state.best, y, loss)
        if self.bias == "free":
            w = _with_midpoint(w, coef, x, y, loss.quadratic(y, C * weight))
        return linear_model(self.bias, w, coef, (x, y, weight, C, loss))


def _snapped(best: Iterate, y: Array, loss: Loss) -> Array:
    """The signed coefficients divided by C weight, (n,), on their bounds where those are active.

    A bound is active where its multiplier exceeds the distance to it.
    """
    sign, _, _, upper = interior.variables(loss, y)
    t, u, z, v = best.dual
    snapped = jnp.where(t < z, 0, jnp.where(u < v, upper, t))
    return jnp.sum(sign * snapped, axis=0)


def _with_midpoint(w: Array, coef: Array, x: Array, y: Array, bounds: Quadratic) -> Array:
    """The weights, with the midpoint of all optimal b where all coefficients are at bounds.

    That is the b of the other exact machines, and of the derivatives.
    """
    l2 = 0 if bounds.l2 is None else bounds.l2 * coef
    grad = y - affine(x, w[:-1], False) - l2
    dual = lax.stop_gradient(Dual(coef, grad, bounds, jnp.zeros_like(y)))
    is_bound = jnp.all(functools.reduce(jnp.logical_or, at_bound(coef, dual.bounds)))
    return w.at[-1].set(jnp.where(is_bound, intercept(dual, "free"), w[-1]))
