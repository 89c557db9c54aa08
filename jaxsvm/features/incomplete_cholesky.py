"""Features of a pivoted incomplete Cholesky factorisation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .._node import cast, struct
from ..checks import check_nonnegative, integer, matrix
from ..checks import key as check_key
from ..kernels import Kernel, as_kernel, holds_precomputed
from ..numerics import accum_dtype, argmax_value, is_traced, sample_proportional
from ..types import Array, Scalar
from .nystrom_map import Nystrom
from .pivots import Factor, add_column, empty_factor, laid_out

WIDTH = 32  # the number of features is a multiple of it, so that programs are shared


@struct
class Cholesky(Nystrom):
    """The map phi(x) = L^-1 k_P(x) of pivots P, where K_PP = L L'.

    It is a `Nystrom` map whose landmarks are the pivots and whose whitening matrix is L'^-1.
    Columns without a pivot are 0.
    """

    residual: Array  # ()  tr(K - F F') / tr(K) on the rows of the factorisation
    pivots: Array  # (s,)  int32, rows of the pivots in order; -1: none


def cholesky(
    kernel: Kernel,
    x: Array,
    *,
    rank: int,
    tol: float = 1e-4,
    key: Array | None = None,
) -> Cholesky:
    """The features F of a pivoted incomplete Cholesky factorisation K = F F' + E, E >= 0.

        d = diag K;   repeat, for k = 0, 1, ... rank - 1, while sum d > tol sum diag K:
            p_k = argmax d, or a draw with probabilities d / sum d
            F_k = (K e_p - F F' e_p) / sqrt(d_p);   d = max(d - F_k^2, 0)
        phi(x) = L^-1 k_P(x),   K_PP = L L'

    The features of the rows of `x` are the rows of F. They span the same space as Nystrom features
    of the pivots. A column takes n kernel values and O(n k) operations; memory is n rank numbers.

    The largest d are those of outliers first. Where `rank` is far below what `tol` needs, random
    pivots leave less of the trace.

    The factorisation also ends where d_p is below the rounding error of the features,
    (k + 1) eps max diag K, with eps of the dtype of the rows. In float32 a residual below about
    1e-5 cannot be reached.

    Outside of transformations all is computed in float64, and the number of features is the rank
    that was reached, rounded up to a multiple of 32. Inside of a transformation it is computed in
    the dtype of the rows, with `rank` features. Features without a pivot are 0. Gradients with
    respect to the kernel's parameters and the rows hold with the pivots constant.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        x: (n, d) rows.
        rank: largest number of pivots, from 1 to n.
        tol: share of the trace of K to stop at, >= 0.
        key: a random key, for pivots drawn with probabilities d / sum d. None: the largest d. For
            a Nystrom map `features.random_pivots` draws such pivots in blocks, in less time.

    Returns:
        A map (..., d) -> (..., s), a pytree. `residual` is the share of the trace that is left,
        tr(E) / tr(K); `pivots` are the rows of the pivots. `low_rank_bound` bounds what the
        approximation costs a trained machine.

    Raises:
        ValueError: rank not from 1 to n; tol below 0; a precomputed kernel.

    Differs from the paper: the map can be evaluated at new rows; random pivots; E is measured
        relative to the trace.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsvm import features, kernels
        >>> x = jnp.array([[0.0], [1.0], [1.0], [3.0]])
        >>> phi = features.cholesky(kernels.rbf(1.0), x, rank=4)
        >>> int(phi.rank), bool(jnp.allclose(phi(x) @ phi(x).T, kernels.rbf(1.0)(x, x), atol=1e-5))
        (3, True)

    Reference: S. Fine, K. Scheinberg, Efficient SVM training using low-rank kernel representations,
        JMLR 2, 2001, section 4; Y. Chen, E. Epperly, J. Tropp, R. Webber, Randomly pivoted
        Cholesky, 2022, for random pivots.
    """
    check_nonnegative(tol=tol)
    kernel = as_kernel(kernel)
    if holds_precomputed(kernel):
        raise ValueError(
            "cholesky works out kernel values at the pivots: give the kernel itself, not a "
            "precomputed matrix"
        )
    if key is not None:
        check_key("key", key)
    rows: Any = matrix("x", x)
    rows = rows.astype(accum_dtype(rows))
    integer("rank", rank, 1, rows.shape[0], ", at most the number of rows")
    eps = float(jnp.finfo(rows.dtype).eps)
    if is_traced(kernel, rows, tol, key):
        fixed_kernel, fixed_rows, fixed_tol = jax.tree.map(lax.stop_gradient, (kernel, rows, tol))
        factor, share = _factorise(fixed_kernel, fixed_rows, None, fixed_tol, key, eps, rank)
        return _map_of(kernel, rows, factor.pivots, share)
    with jax.enable_x64(True):
        *wide, level = cast((kernel, rows, float(tol)), jnp.float64)
        factor, wide_share = _factorise(*wide, laid_out(*wide), level, key, eps, rank)
        size = min(rank, -(-max(int(factor.rank), 1) // WIDTH) * WIDTH)
        map64 = _map_of(*wide, factor.pivots[:size], wide_share)
    whitening, residual = map64.whitening.astype(rows.dtype), map64.residual.astype(rows.dtype)
    own = rows[jnp.maximum(map64.pivots, 0)]
    return Cholesky(kernel, own, whitening, residual, map64.pivots)


@functools.partial(jax.jit, static_argnames=("eps", "rank"))
def _factorise(
    kernel: Kernel, x: Array, rows: Array, tol: Scalar, key: Array | None, eps: float, rank: int
) -> tuple[Factor, Array]:
    """The factorisation, and the share of the trace that is left.

    `rows` are those of x in the layout of the kernel; None: not known yet.
    """
    diagonal = kernel.diag(x)
    rows = laid_out(kernel, x) if rows is None else rows
    trace = jnp.sum(diagonal)
    rounding = eps * jnp.max(diagonal)

    def should_continue(factor):
        left, largest = jnp.sum(factor.residual), jnp.max(factor.residual)
        above_rounding = largest > rounding * (factor.rank + 1).astype(diagonal.dtype)
        return (factor.rank < rank) & (left > tol * trace) & above_rounding

    def choose(factor):
        if key is None:
            return argmax_value(factor.residual)[0]
        u = jax.random.uniform(jax.random.fold_in(key, factor.rank), (1,), diagonal.dtype)
        floor = rounding * (factor.rank + 1).astype(diagonal.dtype)
        return sample_proportional(jnp.where(factor.residual > floor, factor.residual, 0), u)[0]

    def add_pivot(factor):
        p = choose(factor)
        return add_column(factor, p, kernel(rows[p[None]], rows)[0])

    factor = lax.while_loop(should_continue, add_pivot, empty_factor(diagonal, rank))
    return factor, jnp.sum(factor.residual) / jnp.where(trace > 0, trace, 1)


@jax.jit
def _map_of(kernel: Kernel, x: Array, pivots: Array, share: Array) -> Cholesky:
    """The map of given pivots, with derivatives in the kernel and the rows."""
    rows, live = x[jnp.maximum(pivots, 0)], pivots >= 0
    gram = kernel(rows, rows)
    one = jnp.eye(pivots.shape[0], dtype=gram.dtype)
    largest = jnp.max(jnp.where(live, jnp.diagonal(gram), 0))
    gram = jnp.where(live[:, None] & live[None, :], gram, one)
    rounding = float(jnp.finfo(gram.dtype).eps) * largest
    lower = lax.linalg.cholesky(gram + rounding * one, symmetrize_input=True)
    inverse = lax.linalg.triangular_solve(lower, one, left_side=True, lower=True)
    whitening = jnp.where(live[:, None] & live[None, :], inverse.T, 0)
    return Cholesky(kernel, rows, whitening, share, pivots)
