"""Nystrom online gradient descent (NOGD)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...checks import is_whole, shown
from ...engines.online_learning import ogd_rule, online
from ...kernels import Kernel
from ...numerics import accum_dtype, centre, dot, running_mean
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
from ...types import Array, Solver, Space


@register("NystromState")
class NystromState(NamedTuple):
    """f = sum_j coef_j k(x_j, .) below m points; with m points f(x) = <w, map' k(x)>."""

    x: Array  # (m, d)  less the shift; the pending row is not yet written
    sqnorm: Array  # (m,)
    coef: Array  # (m,)
    size: Array  # ()  int32, number of points
    map: Array  # (m, p)  V Lam^(-1/2), 0 before
    w: Array  # (p,)
    mean: Array  # (p,)  mean of the w after each step that changed w
    compensation: Array  # (p,)  compensation of the sum behind the mean
    moves: Array  # ()  int32, number of steps that changed w
    pending: tuple[Array, Array]  # () int32 slot, (d,) row
    shift: Array  # (d,)  `Kernel.offset` of the rows at `init`


def _switching(kernel: Kernel, budget: int, features: int) -> Space:
    """Expansions of up to `budget` points, then functions in the span of eigenvectors.

    With `budget` points, the span is that of the leading eigenvectors of their kernel matrix.

    K = V Lam V';   map = V Lam^(-1/2);   w = Lam^(1/2) V' coef, the projection of f onto that span
    """
    kernel, m = check_points(kernel), check_budget(budget)
    if not is_whole(features, 1, m):
        raise ValueError(
            f"features must be a whole number from 1 to the budget, {m}, got {shown(features)}"
        )

    def zero(key, data):
        dtype, d = accum_dtype(data.x), data.x.shape[-1]
        vector, zero_count, w = (
            jnp.zeros(m, dtype),
            jnp.zeros((), jnp.int32),
            jnp.zeros(features, dtype),
        )
        x, pending = jnp.zeros((m, d), dtype), (zero_count, jnp.zeros(d, dtype))
        map = jnp.zeros((m, features), dtype)
        return NystromState(
            x, vector, vector, zero_count, map, w, w, w, zero_count, pending, kernel.offset(data)
        )

    def flush(f):
        """The state with its pending row written."""
        slot, row = f.pending
        write = lambda a, new: lax.dynamic_update_index_in_dim(a, new, slot, 0)
        return f._replace(x=write(f.x, row), sqnorm=write(f.sqnorm, dot(row, row)))

    def values(f, x):
        return jnp.where(lax.iota(jnp.int32, m) < f.size, values_at(kernel, f, x), 0)

    def evaluate(f, batch):
        f = flush(f)
        kernel_rows = values(f, batch.x)
        return jnp.where(f.size < m, dot(kernel_rows, f.coef), dot(dot(kernel_rows, f.map), f.w))

    def add_row(f, coef, batch):
        """Append the row below m points; with m points step along its features z."""
        f, coef = flush(f), coef[0]
        z = dot(values(f, batch.x)[0], f.map)
        appends, steps = (coef != 0) & (f.size < m), (coef != 0) & (f.size == m)
        moves = f.moves + steps.astype(jnp.int32)
        w = f.w + jnp.where(steps, coef * z, 0)
        mean, compensation = running_mean(
            f.mean, f.compensation, w, steps.astype(w.dtype) / jnp.maximum(moves, 1).astype(w.dtype)
        )
        new = f._replace(
            coef=jnp.where(appends & (lax.iota(jnp.int32, m) == f.size), coef, f.coef),
            size=f.size + appends.astype(jnp.int32),
            w=w,
            mean=mean,
            compensation=compensation,
            moves=moves,
            pending=jax.tree.map(
                lambda a, b: jnp.where(appends, a, b),
                (f.size, dense_centred(f, batch.x)[0]),
                f.pending,
            ),
        )
        is_switch = appends & (new.size == m)
        parts = lax.cond(is_switch, lambda: nystrom(flush(new)), lambda: (new.map, new.w, new.mean))
        return new._replace(**dict(zip(("map", "w", "mean"), parts, strict=True)))

    def nystrom(f):
        """The feature map of m points, and w of f in it, twice: the mean starts there."""
        value, vector = jnp.linalg.eigh(kernel(f.x, f.x))
        value, vector = value[::-1][:features], vector[:, ::-1][:, :features]
        positive = value >= m * jnp.finfo(value.dtype).eps * value[0]
        root = jnp.sqrt(jnp.where(positive, value, 1))
        w = jnp.where(positive, root * dot(f.coef, vector), 0)
        return jnp.where(positive[None, :], vector / root[None, :], 0), w, w

    def add(f, shrink, coef, batch):
        return sequentially(add_row, flush, f, coef, batch)

    def points(f):
        return centre(flush(f).x, -f.shift), jnp.where(f.size < m, f.coef, dot(f.map, f.mean))

    return point_space(kernel, zero, evaluate, add, points, lambda f: f.size, m)


@solver
def nogd(eta: float, kernel: Kernel, *, budget: int, features: int) -> Solver:
    """Minimise the hinge by online gradient descent, on points and then on Nystrom features.

    The step is constant. The features are those of `budget` points.

        f = f + eta [y_i f(x_i) < 1] y_i k(x_i, .)      below m points
        K = V Lam V' over the points, p leading pairs   at m points
        z(x) = Lam^(-1/2) V' k(x);   w = Lam^(1/2) V' coef
        w = w + eta [y_i <w, z(x_i)> < 1] y_i z(x_i)    afterwards

    The switch preserves f, up to its part in the omitted eigenvectors.

    Args:
        eta: step, > 0.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points, >= 2; structure.
        features: p, leading eigenvectors, 1 to `budget`; those of eigenvalues below m eps of the
            largest are omitted; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. After the switch the model is the mean of the w after each step that changed
        w. The m^2 kernel values of the switch are not counted.

    Raises:
        ValueError: eta not a single positive number, budget below 2, features out of range.

    Differs from the paper: w starts as the projection of f, with eigenvalues in order. The authors'
        program starts at 0, which discards f, with eigenvalues in any order. The model is a mean,
        where the paper returns the last w. Both phases have one step. Example weights multiply the
        step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = nogd(0.5, jaxsvm.kernels.rbf(1.0), budget=2, features=2)
        >>> [round(v) for v in jaxsvm.fit(solver, data, jax.random.key(0),
        ...     steps=20).model(data.x).tolist()]
        [1, -1]

    Reference: J. Lu, S. Hoi, J. Wang, P. Zhao, Z. Liu, Large scale online kernel learning, JMLR 17,
        2016, algorithm 2.
    """
    check_positive(eta=eta)
    return online(
        lambda data: (), ogd_rule(eta), _switching(kernel, budget, features), sampler=epochs(1)
    )
