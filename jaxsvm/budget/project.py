"""Projection: a point goes, and the others take over what they can of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..numerics import argmax_value, index_row
from .base import Maintenance, maintenance, remove_point


@maintenance
def project() -> Maintenance:
    """Give up a point and project the function onto the others, the point for which this changes it least.

        P = K^-1 over the m + 1 points;   r = argmin_j |w - w'|^2 = argmin_j coef_j^2 / P_jj
        coef_j += -coef_r P_jr / P_rr   for all others

    Costs O(m^2 d + m^3) where the budget is exceeded: a Cholesky factorisation, with a jitter of m eps on the diagonal, without
    which points that are in the span of others have no inverse.

    Example:
        >>> import jax, jaxsvm
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.rbf(1.0), budget=2, maintain=project())
        >>> run = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [0.9], [-1.0]], [1, 1, -1]), jax.random.key(0), steps=20)
        >>> run.model.x.shape
        (2, 1)

    Differs from the paper: all points are looked at (the paper projects that of the smallest coefficient).

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization: budgeted stochastic gradient descent for
        large-scale SVM training, JMLR 13, 2012, section 4.3.
    """

    def change(kernel, points, memo):
        gram = points.gram(kernel)
        size = gram.shape[0]
        jitter = size * jnp.finfo(gram.dtype).eps * jnp.mean(jnp.diagonal(gram))
        identity = jnp.eye(size, dtype=gram.dtype)
        inverse = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(gram + jitter * identity), True), identity)
        # Where rounding has left no inverse, the point goes alone.
        inverse = jnp.where(jnp.all(jnp.isfinite(inverse)), inverse, jnp.diag(1 / jnp.diagonal(gram)))
        pivots = jnp.diagonal(inverse)
        gone, _ = argmax_value(-points.coef * points.coef / pivots)
        share = index_row(points.coef, gone) / index_row(pivots, gone)
        return remove_point(points, gone, points.coef - share * index_row(inverse, gone)), memo

    # K among all points is made anew.
    return Maintenance(change, evals=lambda budget: (budget + 1) ** 2)
