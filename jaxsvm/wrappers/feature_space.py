"""Solvers in feature space."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .._node import node
from ..checks import calling, is_array, shown
from ..models import Mapped
from ..numerics import blocked
from ..types import Array, Batch, Info, Lifted, Model, Solver, State, Wrapper, updated

# rows per call of the feature map, which bounds the memory of a Nystrom map to some MiB
BLOCK = 4096


@node
class on_features(Wrapper):
    """The solver `inner` on features.

    It minimises lam/2 |w|^2 + mean loss(<w, phi(x_i)> + b, y_i), or the objective of `inner`.

    `update` maps raw rows to features. `prepare(data)` maps all rows in blocks and returns them as
    `Lifted`, so that they are not mapped twice. Loops prepare all rows once if the features take at
    most 2 GiB, else those of each update. To share the features between runs, call `prepare`
    explicitly: `fit(solver, solver.prepare(train), ...)`, `error_on(solver.prepare(test))`.

    Args:
        phi: a feature map (n, d) -> (n, p), a pytree; or a plain function.
        inner: any solver. To average, write `on_features(phi, averaged(s))`.

    Returns:
        A solver on raw or prepared rows; model `Mapped(phi, model of inner)`, which evaluates raw
        rows.

    Example:
        >>> import jax, jaxsvm
        >>> phi = jaxsvm.features.nystrom(None, jaxsvm.kernels.linear(), landmarks=[[2.0]])
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.sdca(10.0)), data, jax.random.key(0),
        ...     steps=20)
        >>> result.model(data.x).tolist()
        [1.0, -1.0]
    """

    phi: Any
    inner: Solver

    has_map = True

    def check(self) -> None:
        if not callable(self.phi):
            raise TypeError(f"phi must be a function, got {shown(self.phi)}")

    def prepare(self, data: Batch) -> Batch:
        if isinstance(data, Lifted):
            return data
        with calling("phi", self.phi, "(n, d) -> (n, p)", data.x):
            rows = blocked(self.phi, data.x, BLOCK)
        if not is_array(rows) or len(rows.shape) != 2 or rows.shape[0] != data.x.shape[0]:
            raise ValueError(
                f"phi must give a row of features for each of the {data.x.shape[0]} "
                f"rows, got {shown(rows)}"
            )
        if not jnp.issubdtype(rows.dtype, jnp.floating):
            raise TypeError(
                f"phi must give features that are floating-point numbers, got {shown(rows)}: "
                "convert them, as by .astype(x.dtype)"
            )
        return Lifted(*self.inner.prepare(data._replace(x=rows)))

    def init(self, key: Array, data: Batch) -> State:
        return self.inner.init(key, self.prepare(data))

    def update(self, state: State, batch: Batch) -> tuple[State, Info]:
        return updated(self.inner, state, self.prepare(batch))

    def model(self, state: State, data: Batch | None = None) -> Model:
        rows = None if data is None else self.prepare(data)
        return Mapped(self.phi, self.inner.model(state, rows))

    def validate(self, data: Batch) -> None:
        self.inner.validate(self.prepare(data))
