"""Nystrom online gradient descent (NOGD)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._node import node, positive, register
from ...engines.online_learning import DescentSolver
from ...kernels import Kernel
from ...numerics import accum_dtype, dot, running_mean
from ...spaces.budgeted_space import PointSpace, dense_centred
from ...types import Array, Batch, Space


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

    def flush(self) -> NystromState:
        """The state with its pending row written."""
        slot, row = self.pending
        write = lambda a, new: lax.dynamic_update_index_in_dim(a, new, slot, 0)
        return self._replace(x=write(self.x, row), sqnorm=write(self.sqnorm, dot(row, row)))


@node
class _switching(PointSpace):
    """Expansions of up to `budget` points, then functions in the span of eigenvectors.

    With `budget` points, the span is that of the leading eigenvectors of their kernel matrix.

    K = V Lam V';   map = V Lam^(-1/2);   w = Lam^(1/2) V' coef, the projection of f onto that span
    """

    kernel: Kernel
    budget: int
    features: int

    def check(self) -> None:
        super().check()
        if not 1 <= self.features <= self.budget:
            raise ValueError(
                f"features must be a whole number from 1 to the budget, {self.budget}, got "
                f"{self.features}"
            )

    def zero(self, key: Array, data: Batch) -> NystromState:
        m, p, d = self.budget, self.features, data.x.shape[-1]
        counter = lambda: jnp.zeros((), jnp.int32)  # arrays of their own, as states are donated
        zeros = lambda *shape: jnp.zeros(shape, accum_dtype(data.x))
        points = zeros(m, d), zeros(m), zeros(m), counter()
        features = zeros(m, p), zeros(p), zeros(p), zeros(p), counter()
        return NystromState(*points, *features, (counter(), zeros(d)), self.kernel.offset(data))

    def evaluate(self, f: NystromState, batch: Batch) -> Array:
        f = f.flush()
        rows = self.first_values(f, batch.x)
        return jnp.where(f.size < self.budget, dot(rows, f.coef), dot(dot(rows, f.map), f.w))

    def add_row(self, f: NystromState, coef: Array, batch: Batch) -> NystromState:
        """Append the row below m points; with m points step along its features z."""
        m, f, step = self.budget, f.flush(), coef[0]
        z = dot(self.first_values(f, batch.x)[0], f.map)
        appends, steps = (step != 0) & (f.size < m), (step != 0) & (f.size == m)
        moves = f.moves + steps.astype(jnp.int32)
        w = f.w + jnp.where(steps, step * z, 0)
        share = steps.astype(w.dtype) / jnp.maximum(moves, 1).astype(w.dtype)
        mean, compensation = running_mean(f.mean, f.compensation, w, share)
        row = f.size, dense_centred(f, batch.x)[0]
        new = f._replace(
            coef=jnp.where(appends & (lax.iota(jnp.int32, m) == f.size), step, f.coef),
            size=f.size + appends.astype(jnp.int32),
            w=w,
            mean=mean,
            compensation=compensation,
            moves=moves,
            pending=jax.tree.map(lambda a, b: jnp.where(appends, a, b), row, f.pending),
        )
        map, w, mean = lax.cond(
            appends & (new.size == m),
            lambda: self._nystrom(new.flush()),
            lambda: (new.map, new.w, new.mean),
        )
        return new._replace(map=map, w=w, mean=mean)

    def _nystrom(self, f: NystromState) -> tuple[Array, Array, Array]:
        """The feature map of m points, and w of f in it, twice: the mean starts there."""
        value, vector = jnp.linalg.eigh(self.kernel(f.x, f.x))
        value, vector = value[::-1][: self.features], vector[:, ::-1][:, : self.features]
        positive = value >= self.budget * jnp.finfo(value.dtype).eps * value[0]
        root = jnp.sqrt(jnp.where(positive, value, 1))
        w = jnp.where(positive, root * dot(f.coef, vector), 0)
        return jnp.where(positive[None, :], vector / root[None, :], 0), w, w

    def coef(self, f: NystromState) -> Array:
        return jnp.where(f.size < self.budget, f.coef, dot(f.map, f.mean))

    def support(self, f: NystromState) -> Array:
        return f.size


@node
class nogd(DescentSolver):
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
        >>> solver = jaxsvm.nogd(0.5, jaxsvm.kernels.rbf(1.0), budget=2, features=2)
        >>> [round(v) for v in jaxsvm.fit(solver, data, jax.random.key(0),
        ...     steps=20).model(data.x).tolist()]
        [1, -1]

    Reference: J. Lu, S. Hoi, J. Wang, P. Zhao, Z. Liu, Large scale online kernel learning, JMLR 17,
        2016, algorithm 2.
    """

    eta: float = positive()
    kernel: Kernel
    _: KW_ONLY
    budget: int
    features: int

    @property
    def space(self) -> Space:
        return _switching(self.kernel, self.budget, self.features)
