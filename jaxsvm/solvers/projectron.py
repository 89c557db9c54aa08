"""Projectron and Projectron++."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..engines.online import margin_perceptron_rule, online, perceptron_on
from ..kernels import Kernel
from ..numerics import accum_dtype, centre, dot
from ..recipe import check_positive, register, solver
from ..samplers import epochs
from ..spaces.budgeted import check_budget, check_points, dense_centred, point_space, sequentially, values_at
from ..types import Array, Solver, Space


@register("SpanState")
class SpanState(NamedTuple):
    """f = sum_j coef_j k(x_j, .) over the first `size` points, and what projects onto their span.

    The last row of each matrix waits to be written, so that a loop body works in place.
    """

    x: Array  # (m, d)  less the shift
    sqnorm: Array  # (m,)
    inverse: Array  # (m, m)  V = L^-1 with L L' = K among the points, so that V' V = K^-1; 0 beyond
    coef: Array  # (m,)
    size: Array  # ()  int32
    pending: tuple[Array, Array, Array]  # () int32 place, (d,) row of x, (m,) row of V
    shift: Array  # (d,)  `Kernel.offset` of the rows that there were at first


def _span(kernel: Kernel, budget: int, eta: Array | None, partial: Callable | None = None) -> Space:
    """Functions in the span of at most `budget` points.

    A row that adds to f is projected onto the span where it is nearly in it, or no place is free; else it becomes a point.

        d = K^-1 k(x);   left = k(x, x) - k(x)' d
        f += coef k(x, .) if left > eta and size < m, else f += coef sum_j d_j k(x_j, .)

    Args:
        kernel: a kernel.
        budget: m.
        eta: () threshold; None: sqrt(eps) of k(x, x), below which rounding decides.
        partial: (loss, reach, left) -> how much of a row that is right, y f > 0, is projected; reach = k(x)' d.
    """
    kernel, m = check_points(kernel), check_budget(budget)

    def zero(key, data):
        dtype, d = accum_dtype(data.x), data.x.shape[-1]
        vector, size = jnp.zeros(m, dtype), jnp.zeros((), jnp.int32)
        x, inverse, pending = jnp.zeros((m, d), dtype), jnp.zeros((m, m), dtype), (size, jnp.zeros(d, dtype), vector)
        return SpanState(x, vector, inverse, vector, size, pending, kernel.offset(data))

    def written(f):
        place, row, line = f.pending
        put = lambda a, new: lax.dynamic_update_index_in_dim(a, new, place, 0)  # noqa: E731
        return f._replace(x=put(f.x, row), inverse=put(f.inverse, line), sqnorm=put(f.sqnorm, dot(row, row)))

    def values(f, x):
        return jnp.where(lax.iota(jnp.int32, m) < f.size, values_at(kernel, f, x), 0)

    def evaluate(f, batch):
        f = written(f)
        return dot(values(f, batch.x), f.coef)

    def joined(f, coef, batch):
        f = written(f)
        near = values(f, batch.x)[0]
        small = lax.cond(coef[0] != 0, lambda: moved(f, coef[0], batch, near), lambda: (f.coef, f.size, f.pending))
        return f._replace(**dict(zip(("coef", "size", "pending"), small, strict=True)))

    def moved(f, coef, batch, near):
        own, margin = kernel.diag(batch.x)[0], batch.y[0] * dot(near, f.coef)
        half = dot(f.inverse, near)
        reach = dot(half, half)
        left = jnp.maximum(own - reach, 0)
        least = jnp.sqrt(jnp.finfo(own.dtype).eps) * own if eta is None else eta
        share, joins = jnp.ones_like(own), (left > least) & (f.size < m)
        if partial is not None:
            share = jnp.where(margin > 0, partial(1 - margin, reach, left), share)
            joins = joins & (margin <= 0)
        place = lax.iota(jnp.int32, m)
        onto = f.coef + coef * share * dot(half, f.inverse)
        root = jnp.sqrt(jnp.where(joins, left, 1))
        line = jnp.where(place == f.size, 1 / root, -dot(half, f.inverse) / root)
        new = f.size, dense_centred(f, batch.x)[0], line
        pending = jax.tree.map(lambda a, b: jnp.where(joins, a, b), new, f.pending)
        return jnp.where(joins, jnp.where(place == f.size, coef, f.coef), onto), f.size + joins.astype(jnp.int32), pending

    def add(f, shrink, coef, batch):
        return sequentially(joined, written, f._replace(coef=(1 - shrink) * f.coef), coef, batch)

    return point_space(kernel, zero, evaluate, add, lambda f: (centre(written(f).x, -f.shift), f.coef), lambda f: f.size, m)


@solver
def projectron(kernel: Kernel, *, budget: int, eta: float | None = None) -> Solver:
    """The perceptron; a mistake that the points nearly span is projected onto them instead of becoming a point.

        d = K^-1 k(x_i);   left = k(x_i, x_i) - k(x_i)' d;   where y_i f(x_i) <= 0:
        f = f + y_i k(x_i, .) if left > eta and there are fewer than `budget` points, else f = f + y_i sum_j d_j k(x_j, .)

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.
        eta: squared distance from the span below which a mistake is projected, > 0; None: sqrt(eps) k(x, x), 3e-4 in float32,
            below which rounding decides: all others become points.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points; default feed epochs of random order. The mean of
        `info.loss` over a pass is the rate of mistakes. Costs O(m d), O(m^2) more at a mistake; memory O(m d + m^2).

    Raises:
        ValueError: budget below 2; eta not above 0.

    Differs from the paper: the inverse of a Cholesky factor instead of the inverse of K, for which rounding would not do;
        example weights multiply the correction.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> jaxsvm.fit(projectron(jaxsvm.kernels.linear(), budget=2), data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10, 2009, figure 2.
    """
    if eta is not None:
        check_positive(eta=eta)
    return perceptron_on(_span(kernel, budget, eta))


@solver
def projectron_plus(kernel: Kernel, *, budget: int, eta: float = 0.1) -> Solver:
    """Projectron++: as `projectron`, and rows that are right by less than 1 are projected, too, as far as that is safe.

        where 0 < y_i f(x_i) < 1 and loss > left / eta:   f = f + tau y_i sum_j d_j k(x_j, .),   reach = k(x_i)' d
        tau = min(loss / reach, 1, 2 (loss - left / eta) / reach),   loss = 1 - y_i f(x_i)

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.
        eta: squared distance from the span below which a mistake is projected, > 0.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points; default feed epochs of random order. `info.loss` counts
        mistakes. Costs O(m d), O(m^2) more where a row moves f; memory O(m d + m^2).

    Raises:
        ValueError: budget below 2; eta not above 0.

    Differs from the paper: as `projectron`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = projectron_plus(jaxsvm.kernels.linear(), budget=2)
        >>> jaxsvm.fit(solver, data, jax.random.key(0), steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10, 2009, figure 3; the test of
        safety as in their library DOGMA.
    """
    check_positive(eta=eta)

    def partial(loss, reach, left):
        safe, over = loss - left / eta, jnp.where(reach > 0, reach, 1)
        tau = jnp.minimum(jnp.minimum(loss / over, 1), 2 * safe / over)
        return jnp.where((safe > 0) & (reach > 0), tau, 0)

    return online(lambda data: (), margin_perceptron_rule, _span(kernel, budget, eta, partial), sampler=epochs(1))
