"""Projectron and Projectron++."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import node, positive, register
from ...engines.online_learning import Move, OnlineSolver, PerceptronSolver
from ...kernels import Kernel
from ...numerics import accum_dtype, dot
from ...samplers import epochs
from ...spaces.budgeted_space import PointSpace, dense_centred
from ...types import Array, Batch, Space, State


@register("SpanState")
class SpanState(NamedTuple):
    """A function over the first `size` points, and the factor that projects onto their span.

    The function is f = sum_j coef_j k(x_j, .). The last row of each matrix is pending, so that a
    loop body updates in place.
    """

    x: Array  # (m, d)  less the shift
    sqnorm: Array  # (m,)
    inverse: Array  # (m, m)  V = L^-1 with L L' = K among the points, so that V' V = K^-1; 0 beyond
    coef: Array  # (m,)
    size: Array  # ()  int32
    pending: tuple[Array, Array, Array]  # () int32 slot, (d,) row of x, (m,) row of V
    shift: Array  # (d,)  `Kernel.offset` of the rows at `init`

    def flush(self) -> SpanState:
        """The state with its pending row written."""
        slot, row, factor_row = self.pending
        write = lambda a, new: lax.dynamic_update_index_in_dim(a, new, slot, 0)
        return self._replace(
            x=write(self.x, row),
            inverse=write(self.inverse, factor_row),
            sqnorm=write(self.sqnorm, dot(row, row)),
        )


@node
class _span(PointSpace):
    """Functions in the span of at most `budget` points.

    A row with a nonzero coefficient becomes a point if its distance from the span is large and a
    slot is free. Otherwise it is projected onto the span.

        d = K^-1 k(x);   distance = k(x, x) - k(x)' d
        f += coef k(x, .) if distance > eta and size < m, else f += coef sum_j d_j k(x_j, .)

    Args:
        kernel: a kernel.
        budget: m.
        eta: () threshold of the squared distance; None: sqrt(eps) k(x, x), below which rounding
            decides.
        partial: (loss, projection, distance) -> the fraction of a correctly classified row, y f >
            0, that is projected; projection = k(x)' d.
    """

    kernel: Kernel
    budget: int
    eta: float | None = None
    partial: Callable | None = None

    def zero(self, key: Array, data: Batch) -> SpanState:
        m, d = self.budget, data.x.shape[-1]
        counter = lambda: jnp.zeros((), jnp.int32)  # arrays of their own, as states are donated
        zeros = lambda *shape: jnp.zeros(shape, accum_dtype(data.x))
        x, inverse, pending = zeros(m, d), zeros(m, m), (counter(), zeros(d), zeros(m))
        rest = zeros(m), counter(), pending, self.kernel.offset(data)
        return SpanState(x, zeros(m), inverse, *rest)

    def evaluate(self, f: SpanState, batch: Batch) -> Array:
        f = f.flush()
        return dot(self.first_values(f, batch.x), f.coef)

    def add_row(self, f: SpanState, coef: Array, batch: Batch) -> SpanState:
        f = f.flush()
        k_x = self.first_values(f, batch.x)[0]
        new, size, pending = lax.cond(
            coef[0] != 0,
            lambda: self._correct(f, coef[0], batch, k_x),
            lambda: (f.coef, f.size, f.pending),
        )
        return f._replace(coef=new, size=size, pending=pending)

    def _correct(self, f: SpanState, coef: Array, batch: Batch, k_x: Array) -> tuple:
        """The coefficients, the number of points and the pending row after a correction.

        The correction appends the row or projects it.
        """
        k_xx, margin = self.kernel.diag(batch.x)[0], batch.y[0] * dot(k_x, f.coef)
        v = dot(f.inverse, k_x)  # d = V' v
        projection = dot(v, v)
        distance = jnp.maximum(k_xx - projection, 0)
        rounding = jnp.sqrt(jnp.finfo(k_xx.dtype).eps) * k_xx
        threshold = rounding if self.eta is None else self.eta
        fraction = jnp.ones_like(k_xx)
        appends = (distance > threshold) & (f.size < self.budget)
        if self.partial is not None:
            part = self.partial(1 - margin, projection, distance)
            fraction = jnp.where(margin > 0, part, fraction)
            appends = appends & (margin <= 0)
        slot = lax.iota(jnp.int32, self.budget)
        projected = f.coef + coef * fraction * dot(v, f.inverse)
        root = jnp.sqrt(jnp.where(appends, distance, 1))
        factor_row = jnp.where(slot == f.size, 1 / root, -dot(v, f.inverse) / root)
        new = f.size, dense_centred(f, batch.x)[0], factor_row
        pending = jax.tree.map(lambda a, b: jnp.where(appends, a, b), new, f.pending)
        new_coef = jnp.where(appends, jnp.where(slot == f.size, coef, f.coef), projected)
        return new_coef, f.size + appends.astype(jnp.int32), pending

    def coef(self, f: SpanState) -> Array:
        return f.coef

    def support(self, f: SpanState) -> Array:
        return f.size


@node
class projectron(PerceptronSolver):
    """The perceptron with projection of mistakes onto the span of the points.

    A mistake close to the span is projected; others become points.

        d = K^-1 k(x_i);   distance = k(x_i, x_i) - k(x_i)' d;   where y_i f(x_i) <= 0:
        f = f + y_i k(x_i, .)  if distance > eta and there are fewer than `budget` points, else
        f = f + y_i sum_j d_j k(x_j, .)

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.
        eta: squared distance from the span up to which a mistake is projected, > 0; None: sqrt(eps)
            k(x, x), 3e-4 in float32, below which rounding decides.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes. A row costs O(m
        d), a mistake O(m^2) more; memory O(m d + m^2).

    Raises:
        ValueError: budget below 2; eta not above 0.

    Differs from the paper: the inverse of a Cholesky factor replaces the inverse of K, which
        rounding would spoil; example weights multiply the correction. `eta` bounds the squared
        distance, as in the authors' program; the paper's bounds the distance. `budget` caps the
        points, and beyond it every mistake is projected.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.projectron(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10,
        2009, figure 2.
    """

    kernel: Kernel
    _: KW_ONLY
    budget: int
    eta: float | None = positive(default=None)

    @property
    def space(self) -> Space:
        return _span(self.kernel, self.budget, self.eta)


@node
class projectron_plus(OnlineSolver):
    """Projectron++: `projectron` that also projects rows with a margin between 0 and 1.

    Such rows are projected as far as that is safe.

        loss = 1 - y_i f(x_i);   projection = k(x_i)' d
        where 0 < y_i f(x_i) < 1 and loss > distance / eta:   f = f + tau y_i sum_j d_j k(x_j, .)
        tau = min(loss / projection, 1, 2 (loss - distance / eta) / projection)

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.
        eta: squared distance from the span up to which a mistake is projected, > 0.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. `info.loss` counts mistakes. A row costs O(m d), one that changes f O(m^2)
        more; memory O(m d + m^2).

    Raises:
        ValueError: budget below 2; eta not above 0.

    Differs from the paper: as in `projectron`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.projectron_plus(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10,
        2009, figure 3; the test of safety as in their library DOGMA.
    """

    kernel: Kernel
    _: KW_ONLY
    budget: int
    eta: float = positive(default=0.1)

    sampler = epochs(1)

    @property
    def space(self) -> Space:
        return _span(self.kernel, self.budget, self.eta, self.partial)

    def partial(self, loss: Array, projection: Array, distance: Array) -> Array:
        """The fraction tau of a row that is projected."""
        safe, divisor = loss - distance / self.eta, jnp.where(projection > 0, projection, 1)
        tau = jnp.minimum(jnp.minimum(loss / divisor, 1), 2 * safe / divisor)
        return jnp.where((safe > 0) & (projection > 0), tau, 0)

    def rule(
        self, state: State, score: Array, batch: Batch, share: Array, gram: Callable, t: Array
    ) -> tuple[State, Move]:
        margin = batch.y * score
        coef = jnp.where(margin < 1, batch.y * share, jnp.zeros_like(score))
        return (), Move(jnp.zeros((), score.dtype), coef, (margin <= 0).astype(score.dtype))
