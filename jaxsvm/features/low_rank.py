"""What a low-rank approximation of a kernel costs a trained machine."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import cast
from ..checks import matrix
from ..kernels import matvec
from ..numerics import blocked, dot, is_traced
from ..types import Array, SparseRows
from .nystrom_map import Nystrom

BLOCK = 1024  # rows whose kernel values are computed at once
STEP = 256  # the rows of nonzero coefficients are padded to a multiple of this


def low_rank_bound(phi: Nystrom, x: Array, coef: Array) -> Array:
    """The posterior bound 1/2 coef' (K - Phi Phi') coef of the cost of a low-rank kernel.

    Let P be the objective 1/2 |f|^2 + C sum_i weight_i loss(f(x_i) + b, y_i) of the kernel, and let
    w be a machine on the features of a `cholesky` or `nystrom` map. As a function, w has the same
    norm and the same values in the space of the kernel. With the dual coefficients of w, for any
    loss and any bias:

        P(w) - min P <= gap of w on the features + 1/2 coef' (K - Phi Phi') coef

    Multiply the bound by lam for the objective lam/2 |f|^2 + mean loss. It takes one product with
    the kernel matrix of the rows of nonzero coefficients, in blocks. It is close: at the optimum on
    the features at most several times the true cost, and 1 to 1.05 times where that is small.

    Args:
        phi: a `cholesky` or `nystrom` map.
        x: (n, d) training rows.
        coef: (n,) signed dual coefficients, such as `run.state.solver.coef` of `interior_point`.

    Returns:
        () the bound, >= 0; in float64, under tracing in the dtype of the rows.

    Raises:
        TypeError: a map that is not made of a kernel.
        ValueError: coef not one number for each row.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[0.0], [1.0], [2.0], [4.0]], [1, -1, 1, -1])
        >>> phi = jaxsvm.features.cholesky(jaxsvm.kernels.rbf(1.0), data.x, rank=2)
        >>> result = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.interior_point(1.0)), data,
        ...     jax.random.key(0), steps=1)
        >>> bool(0 < jaxsvm.features.low_rank_bound(phi, data.x, result.state.solver.coef) < 1)
        True

    Reference: S. Fine, K. Scheinberg, Efficient SVM training using low-rank kernel representations,
        JMLR 2, 2001, section 5, whose bound tr(K - Phi Phi') C^2 / 2 holds before training.
    """
    if not isinstance(phi, Nystrom):
        raise TypeError(
            f"phi must be a map of features.cholesky or features.nystrom, got {type(phi).__name__}"
        )
    rows: Any = matrix("x", x)
    if jnp.shape(coef) != (rows.shape[0],):
        raise ValueError(
            f"coef must hold a number for each of the {rows.shape[0]} rows of x, got shape "
            f"{jnp.shape(coef)}"
        )
    if is_traced(phi, rows, coef):
        return _bound(phi, rows, coef)
    with jax.enable_x64(True):
        support = np.flatnonzero(np.asarray(coef))
        padded = np.zeros(-(-max(len(support), 1) // STEP) * STEP, np.int64)
        padded[: len(support)] = support
        live = np.where(np.arange(len(padded)) < len(support), np.asarray(coef)[padded], 0)
        rows = rows[padded] if isinstance(rows, SparseRows) else np.asarray(rows)[padded]
        wide_args = cast((phi, jax.tree.map(jnp.asarray, rows), jnp.asarray(live)), jnp.float64)
        bound: Any = np.asarray(_bound(*wide_args))[()]  # JAX warns of float64 outside
        return bound


def _bound(phi: Nystrom, x: Array, coef: Array) -> Array:
    approximate = dot(coef, blocked(phi, x, BLOCK))
    exact = dot(coef, matvec(phi.kernel, x, x, coef, BLOCK))
    return jnp.maximum(exact - dot(approximate, approximate), 0) / 2
