"""Budgeted stochastic dual coordinate ascent (BSCA)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax.numpy as jnp

from ..._node import node, positive, register
from ...budget import Maintenance, merge
from ...engines.coordinate_ascent import CoordinateState, coordinate
from ...kernels import Kernel
from ...losses import hinge
from ...numerics import count
from ...spaces import budgeted
from ...types import Array, Batch, Info, Model, Solver, Wrapper


@register("BscaState")
class BscaState(NamedTuple):
    """The coordinate ascent on a budget, with the spread of this epoch and of the last.

    The residual compares the two spreads.
    """

    inner: CoordinateState
    top: Array  # ()  maximum of the values in this epoch
    bottom: Array  # ()  minimum
    visits: Array  # ()  int32, rows visited in this epoch
    spread: Array  # ()  log(top - bottom) of the last complete epoch; inf before the first
    residual: Array  # ()  |change of the spread| over the last epoch; inf before the second


@node
class bsca(Wrapper):
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i max(0, 1 - y_i <w, phi(x_i)>) on a budget.

    w has at most `budget` points.

        alpha_i' = clip(alpha_i + (1 - y_i <w, phi(x_i)>) / k(x_i, x_i), 0, C weight_i)
        w += (alpha_i' - alpha_i) y_i phi(x_i)
        w = maintain(w) if it has more than `budget` points

    alpha serves to clip the step. The model is w, which differs from sum_i alpha_i y_i phi(x_i)
    after the first maintenance. With the sampler `samplers.acf()` this is ACF-BSCA.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n). The number of epochs grows with C: a row
            reaches its bound after of the order of C visits.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); Gaussian for `merge`.
        budget: m, points of the model, >= 2; structure.
        maintain: `budget.merge()`, `budget.remove()` or `budget.project()`.
        stop: the definition of the residual; structure. "summands" and "gradients": |log(top -
            bottom) - log(top - bottom) of the previous epoch|, of the maximum and minimum over an
            epoch. "summands" takes them of all coef_j k(x_j, x_i) of visited rows, "gradients" of
            their 1 - y_i <w, phi(x_i)>. "moves": the largest |alpha_i' - alpha_i| k(x_i, x_i) of
            the last pass, as in `sdca`. It also replaces a change of exactly 0.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points, without bias. Default sampler:
        epochs of random order. `fit(tol=0.001)` stops as the paper recommends, 0.01 stops sooner;
        the residual need not become that small. The state has 12 bytes a row. `objectives.dual`
        accepts its alpha, `data.y * engines.coordinate_ascent.dual_coef(state.inner)`.

    Raises:
        ValueError: C not a single positive number, budget below 2, a kernel without the chosen
            maintenance, another stop.

    Differs from the paper: the objective has C sum_i (printed (C/n) sum_i in equation 1). A row
        that is a point already adds to its coefficient. Constant extremes do not end the run while
        the coefficients move.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.bsca(10.0, jaxsvm.kernels.rbf(1.0), budget=2), data,
        ...     jax.random.key(0), steps=100)
        >>> [round(value, 3) for value in result.model(data.x).tolist()]
        [1.0, -1.0]

    Reference: S. Qaadan, M. Schueler, T. Glasmachers, Dual SVM training on a budget, ICPRAM 2018,
        https://arxiv.org/abs/1806.10182, algorithm 1 and section 4.
    """

    C: float = positive()
    kernel: Kernel
    _: KW_ONLY
    budget: int
    maintain: Maintenance = merge()
    stop: Literal["summands", "gradients", "moves"] = "summands"

    @property
    def space(self) -> budgeted:
        """The function space of w."""
        return budgeted(self.kernel, budget=self.budget, maintain=self.maintain)

    @property
    def inner(self) -> Solver:  # type: ignore[override]  # worked out
        return coordinate(hinge, self.C, self.space)

    def init(self, key: Array, data: Batch) -> BscaState:
        inner = self.inner.init(key, data)
        infinite = lambda sign=1: jnp.full((), sign * jnp.inf, inner.coef.dtype)
        visits = jnp.zeros((), jnp.int32)
        return BscaState(inner, infinite(-1), infinite(), visits, infinite(), infinite())

    def update(self, state: BscaState, batch: Batch) -> tuple[BscaState, Info]:
        space, f = self.space, state.inner.f
        if self.stop == "summands":
            values = space.contributions(f, batch)
        else:
            values = 1 - batch.y[:, None] * space.evaluate(f, batch)[:, None]
        # The extremes of this epoch, and at its end the change of the spread.
        valid = (batch.weight > 0)[:, None] & jnp.isfinite(values)
        top = jnp.maximum(state.top, jnp.max(jnp.where(valid, values, -jnp.inf)))
        bottom = jnp.minimum(state.bottom, jnp.min(jnp.where(valid, values, jnp.inf)))
        visits = state.visits + count(batch.weight > 0)
        epoch_ends = visits >= state.inner.rows
        spread = jnp.log(jnp.maximum(top - bottom, 0))
        change = jnp.abs(spread - state.spread)
        # The step of coordinate ascent, with maintenance.
        inner, info = self.inner.update(state.inner, batch)
        finite = jnp.where(jnp.isfinite(change), change, jnp.inf)
        change = jnp.where(change == 0, info.residual, finite)
        new = BscaState(
            inner=inner,
            top=jnp.where(epoch_ends, -jnp.inf, top),
            bottom=jnp.where(epoch_ends, jnp.inf, bottom),
            visits=jnp.where(epoch_ends, 0, visits),
            spread=jnp.where(epoch_ends, spread, state.spread),
            residual=jnp.where(epoch_ends, change, state.residual),
        )
        # points of the model, not nonzero alphas
        info = info._replace(support=space.support(inner.f))
        return new, info if self.stop == "moves" else info._replace(residual=new.residual)

    def model(self, state: BscaState, data: Batch | None = None) -> Model:
        return self.inner.model(state.inner, data)
