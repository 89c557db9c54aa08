"""Solvers in feature space."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from ..checks import calling, shown
from ..models import Mapped
from ..numerics import blocked
from ..recipe import as_static, replace, solver
from ..types import Lifted, Solver

# rows per call of the feature map, which bounds the memory of a Nystrom map to some MiB
BLOCK = 4096


@solver
def on_features(phi: Callable, inner: Solver) -> Solver:
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
        >>> result = jaxsvm.fit(on_features(phi, jaxsvm.sdca(10.0)), data, jax.random.key(0),
        ...     steps=20)
        >>> result.model(data.x).tolist()
        [1.0, -1.0]
    """

    def prepare(data):
        if isinstance(data, Lifted):
            return data
        with calling("phi", phi, "(n, d) -> (n, p)", data.x):
            rows = blocked(phi, data.x, BLOCK)
        if len(getattr(rows, "shape", ())) != 2 or rows.shape[0] != data.x.shape[0]:
            raise ValueError(
                f"phi must give a row of features for each of the {data.x.shape[0]} "
                f"rows, got {shown(rows)}"
            )
        if not jnp.issubdtype(rows.dtype, jnp.floating):
            raise TypeError(
                f"phi must give features that are floating-point numbers, got {shown(rows)}: "
                "convert them, as by .astype(x.dtype)"
            )
        return Lifted(*inner.prepare(data._replace(x=rows)))

    return replace(
        inner,
        init=lambda key, data: inner.init(key, prepare(data)),
        update=lambda state, batch: inner.update(state, prepare(batch)),
        model=lambda state, data=None: Mapped(
            as_static(phi), inner.model(state, None if data is None else prepare(data))
        ),
        hooks=inner.hooks.on_prepared(prepare),
    )
