"""Nystrom online gradient descent."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..checks import is_whole, shown
from ..engines.online import ogd_rule, online
from ..kernels import Kernel
from ..numerics import accum_dtype, centre, dot, running_mean
from ..recipe import check_positive, register, solver
from ..samplers import epochs
from ..spaces.budgeted import check_budget, check_points, dense_centred, point_space, sequentially, values_at
from ..types import Array, Solver, Space


@register("NystromState")
class NystromState(NamedTuple):
    """At first f = sum_j coef_j k(x_j, .); once all places are taken f(x) = <w, map' k(x)>."""

    x: Array  # (m, d)  less the shift, but for the waiting row
    sqnorm: Array  # (m,)
    coef: Array  # (m,)
    size: Array  # ()  int32, points
    map: Array  # (m, p)  V Lam^(-1/2), 0 before
    w: Array  # (p,)
    mean: Array  # (p,)  of the w that steps led to which moved it
    compensation: Array  # (p,)  what rounding took from the mean
    moves: Array  # ()  int32, how many these are
    pending: tuple[Array, Array]  # () int32 place, (d,) row
    shift: Array  # (d,)  `Kernel.offset` of the rows that there were at first


def _switching(kernel: Kernel, budget: int, features: int) -> Space:
    """Expansions of `budget` points, then the span of the leading eigenvectors of the kernel among them.

    K = V Lam V';   map = V Lam^(-1/2);   w = Lam^(1/2) V' coef, the projection of f onto what is kept
    """
    kernel, m = check_points(kernel), check_budget(budget)
    if not is_whole(features, 1, m):
        raise ValueError(f"features must be a whole number from 1 to the budget, {m}, got {shown(features)}")

    def zero(key, data):
        dtype, d = accum_dtype(data.x), data.x.shape[-1]
        vector, whole, w = jnp.zeros(m, dtype), jnp.zeros((), jnp.int32), jnp.zeros(features, dtype)
        x, pending = jnp.zeros((m, d), dtype), (whole, jnp.zeros(d, dtype))
        map = jnp.zeros((m, features), dtype)
        return NystromState(x, vector, vector, whole, map, w, w, w, whole, pending, kernel.offset(data))

    def written(f):
        place, row = f.pending
        put = lambda a, new: lax.dynamic_update_index_in_dim(a, new, place, 0)  # noqa: E731
        return f._replace(x=put(f.x, row), sqnorm=put(f.sqnorm, dot(row, row)))

    def values(f, x):
        return jnp.where(lax.iota(jnp.int32, m) < f.size, values_at(kernel, f, x), 0)

    def evaluate(f, batch):
        f = written(f)
        near = values(f, batch.x)
        return jnp.where(f.size < m, dot(near, f.coef), dot(dot(near, f.map), f.w))

    def joined(f, coef, batch):
        f, coef = written(f), coef[0]
        z = dot(values(f, batch.x)[0], f.map)
        stores, steps = (coef != 0) & (f.size < m), (coef != 0) & (f.size == m)
        moves = f.moves + steps.astype(jnp.int32)
        w = f.w + jnp.where(steps, coef * z, 0)
        mean, compensation = running_mean(
            f.mean, f.compensation, w, steps.astype(w.dtype) / jnp.maximum(moves, 1).astype(w.dtype)
        )
        new = f._replace(
            coef=jnp.where(stores & (lax.iota(jnp.int32, m) == f.size), coef, f.coef),
            size=f.size + stores.astype(jnp.int32),
            w=w,
            mean=mean,
            compensation=compensation,
            moves=moves,
            pending=jax.tree.map(lambda a, b: jnp.where(stores, a, b), (f.size, dense_centred(f, batch.x)[0]), f.pending),
        )
        switches = stores & (new.size == m)
        parts = lax.cond(switches, lambda: switched(written(new)), lambda: (new.map, new.w, new.mean))
        return new._replace(**dict(zip(("map", "w", "mean"), parts, strict=True)))

    def switched(f):
        value, vector = jnp.linalg.eigh(kernel(f.x, f.x))
        value, vector = value[::-1][:features], vector[:, ::-1][:, :features]
        kept = value >= m * jnp.finfo(value.dtype).eps * value[0]
        root = jnp.sqrt(jnp.where(kept, value, 1))
        w = jnp.where(kept, root * dot(f.coef, vector), 0)
        return jnp.where(kept[None, :], vector / root[None, :], 0), w, w

    def add(f, shrink, coef, batch):
        return sequentially(joined, written, f, coef, batch)

    def points(f):
        return centre(written(f).x, -f.shift), jnp.where(f.size < m, f.coef, dot(f.map, f.mean))

    return point_space(kernel, zero, evaluate, add, points, lambda f: f.size, m)


@solver
def nogd(eta: float, kernel: Kernel, *, budget: int, features: int) -> Solver:
    """Online gradient descent on the hinge with a constant step: on points until there are `budget`, then on Nystrom features.

        f = f + eta [y_i f(x_i) < 1] y_i k(x_i, .)      at first
        K = V Lam V' among the points, leading pairs;   z(x) = Lam^(-1/2) V' k(x);   w = Lam^(1/2) V' coef   once, at the switch
        w = w + eta [y_i <w, z(x_i)> < 1] y_i z(x_i)    from then on

    f goes on as it was, but for what the pairs left out held of it.

    Args:
        eta: step, > 0.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points, >= 2; structure.
        features: p, leading eigenvectors that are kept, 1 to `budget`; those of eigenvalues below m eps of the largest are not;
            structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points, after the switch the mean of the w that steps led to which
        moved it; default feed epochs of random order.

    Raises:
        ValueError: eta not a single positive number, budget below 2, features out of range.

    Differs from the paper: w begins as the projection of f and pairs are in order (the authors' program begins at 0, which
        forgets f, with pairs as they come); example weights multiply the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = nogd(0.5, jaxsvm.kernels.rbf(1.0), budget=2, features=2)
        >>> [round(v) for v in jaxsvm.fit(solver, data, jax.random.key(0), steps=20).model(data.x).tolist()]
        [1, -1]

    Reference: J. Lu, S. Hoi, J. Wang, P. Zhao, Z. Liu, Large scale online kernel learning, JMLR 17, 2016, algorithm 2.
    """
    check_positive(eta=eta)
    return online(lambda data: (), ogd_rule(eta), _switching(kernel, budget, features), sampler=epochs(1))
