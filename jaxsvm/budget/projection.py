"""Budget maintenance by projection of a removed point onto the span of the others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._node import node
from ..kernels import Kernel
from ..numerics import argmax_value, index_row
from ..types import State
from .base import Change, MatrixMaintenance, Points, remove_point


@node
class project(MatrixMaintenance):
    """Remove one point and project the function onto the others.

    The point is the one whose removal changes f least.

        P = K^-1 over the m + 1 points;   r = argmin_j |w - w'|^2 = argmin_j coef_j^2 / P_jj
        coef_j += -coef_r P_jr / P_rr   for all others

    A change costs O(m^2 d + m^3), a Cholesky factorisation. A jitter of m eps on the diagonal keeps
    K invertible where a point lies in the span of the others.

    Example:
        >>> import jax, jaxsvm
        >>> project = jaxsvm.budget.project()
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.rbf(1.0), budget=2, maintain=project)
        >>> result = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [0.9], [-1.0]], [1, 1, -1]),
        ...     jax.random.key(0), steps=20)
        >>> result.model.x.shape
        (2, 1)

    Differs from the paper: all points are candidates (the paper projects the one of the smallest
        coefficient).

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization: budgeted
        stochastic gradient descent for large-scale SVM training, JMLR 13, 2012, section 4.3.
    """

    @jax.named_scope("project")
    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        gram = points.gram(kernel)
        size = gram.shape[0]
        jitter = size * jnp.finfo(gram.dtype).eps * jnp.mean(jnp.diagonal(gram))
        identity = jnp.eye(size, dtype=gram.dtype)
        factor = jnp.linalg.cholesky(gram + jitter * identity)
        inverse = jax.scipy.linalg.cho_solve((factor, True), identity)
        # Where the factorisation fails, the point is removed without projection.
        plain = jnp.diag(1 / jnp.diagonal(gram))
        inverse = jnp.where(jnp.all(jnp.isfinite(inverse)), inverse, plain)
        pivots = jnp.diagonal(inverse)
        removed, _ = argmax_value(-points.coef * points.coef / pivots)
        share = index_row(points.coef, removed) / index_row(pivots, removed)
        coef = points.coef - share * index_row(inverse, removed)
        return remove_point(points, removed, coef), state
