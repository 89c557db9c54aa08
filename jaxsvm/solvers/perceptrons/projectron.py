"""Projectron and Projectron++."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...engines.online_learning import margin_perceptron_rule, online, perceptron_on
from ...kernels import Kernel
from ...numerics import accum_dtype, centre, dot
from ...recipe import check_positive, register, solver
from ...samplers import epochs
from ...spaces.budgeted_space import (
    check_budget,
    check_points,
    dense_centred,
    point_space,
    sequentially,
    values_at,
)
from ...types import Array, Scalar, Solver, Space


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


def _span(
    kernel: Kernel, budget: int, eta: Scalar | None, partial: Callable | None = None
) -> Space:
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
    kernel, m = check_points(kernel), check_budget(budget)

    def zero(key, data):
        dtype, d = accum_dtype(data.x), data.x.shape[-1]
        vector, size = jnp.zeros(m, dtype), jnp.zeros((), jnp.int32)
        x, inverse, pending = (
            jnp.zeros((m, d), dtype),
            jnp.zeros((m, m), dtype),
            (size, jnp.zeros(d, dtype), vector),
        )
        return SpanState(x, vector, inverse, vector, size, pending, kernel.offset(data))

    def flush(f):
        """The state with its pending row written."""
        slot, row, factor_row = f.pending
        write = lambda a, new: lax.dynamic_update_index_in_dim(a, new, slot, 0)
        return f._replace(
            x=write(f.x, row),
            inverse=write(f.inverse, factor_row),
            sqnorm=write(f.sqnorm, dot(row, row)),
        )

    def values(f, x):
        return jnp.where(lax.iota(jnp.int32, m) < f.size, values_at(kernel, f, x), 0)

    def evaluate(f, batch):
        f = flush(f)
        return dot(values(f, batch.x), f.coef)

    def add_row(f, coef, batch):
        f = flush(f)
        k_x = values(f, batch.x)[0]
        parts = lax.cond(
            coef[0] != 0,
            lambda: correct(f, coef[0], batch, k_x),
            lambda: (f.coef, f.size, f.pending),
        )
        return f._replace(**dict(zip(("coef", "size", "pending"), parts, strict=True)))

    def correct(f, coef, batch, k_x):
        """The coefficients, the number of points and the pending row after a correction.

        The correction appends the row or projects it.
        """
        k_xx, margin = kernel.diag(batch.x)[0], batch.y[0] * dot(k_x, f.coef)
        v = dot(f.inverse, k_x)  # d = V' v
        projection = dot(v, v)
        distance = jnp.maximum(k_xx - projection, 0)
        threshold = jnp.sqrt(jnp.finfo(k_xx.dtype).eps) * k_xx if eta is None else eta
        fraction, appends = jnp.ones_like(k_xx), (distance > threshold) & (f.size < m)
        if partial is not None:
            fraction = jnp.where(margin > 0, partial(1 - margin, projection, distance), fraction)
            appends = appends & (margin <= 0)
        slot = lax.iota(jnp.int32, m)
        projected = f.coef + coef * fraction * dot(v, f.inverse)
        root = jnp.sqrt(jnp.where(appends, distance, 1))
        factor_row = jnp.where(slot == f.size, 1 / root, -dot(v, f.inverse) / root)
        new = f.size, dense_centred(f, batch.x)[0], factor_row
        pending = jax.tree.map(lambda a, b: jnp.where(appends, a, b), new, f.pending)
        return (
            jnp.where(appends, jnp.where(slot == f.size, coef, f.coef), projected),
            f.size + appends.astype(jnp.int32),
            pending,
        )

    def add(f, shrink, coef, batch):
        return sequentially(add_row, flush, f._replace(coef=(1 - shrink) * f.coef), coef, batch)

    return point_space(
        kernel,
        zero,
        evaluate,
        add,
        lambda f: (centre(flush(f).x, -f.shift), f.coef),
        lambda f: f.size,
        m,
    )


@solver
def projectron(kernel: Kernel, *, budget: int, eta: float | None = None) -> Solver:
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
        >>> jaxsvm.fit(projectron(jaxsvm.kernels.linear(), budget=2), data, jax.random.key(0),
        ...     steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10,
        2009, figure 2.
    """
    if eta is not None:
        check_positive(eta=eta)
    return perceptron_on(_span(kernel, budget, eta))


@solver
def projectron_plus(kernel: Kernel, *, budget: int, eta: float = 0.1) -> Solver:
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
        >>> solver = projectron_plus(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10,
        2009, figure 3; the test of safety as in their library DOGMA.
    """
    check_positive(eta=eta)

    def partial(loss, projection, distance):
        safe, divisor = loss - distance / eta, jnp.where(projection > 0, projection, 1)
        tau = jnp.minimum(jnp.minimum(loss / divisor, 1), 2 * safe / divisor)
        return jnp.where((safe > 0) & (projection > 0), tau, 0)

    return online(
        lambda data: (),
        margin_perceptron_rule,
        _span(kernel, budget, eta, partial),
        sampler=epochs(1),
    )
