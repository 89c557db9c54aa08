"""Nystrom features."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import cast, struct
from ..checks import as_array, calling, check_bytes, check_nonnegative, matrix
from ..checks import key as check_key
from ..kernels import Kernel, as_kernel, holds_precomputed
from ..numerics import accum_dtype, count, dot, is_traced
from ..types import Array, Scalar, SparseRows
from .landmarks import uniform


@struct
class Nystrom:
    """The map phi(x) = W' k_S(x), k_S(x) = (k(x_i, x)) over s landmarks.

    Columns of dropped directions are 0.
    """

    kernel: Kernel
    landmarks: Array  # (s, d)
    whitening: Array  # (s, s)  W = Q D^(-1/2) of K_SS = Q D Q', 0 where a direction is dropped

    def __call__(self, x: Array) -> Array:
        """Features, (..., d) -> (..., s)."""
        x = matrix("x", x, self.landmarks.shape[-1], rank=None)
        rows = (x if x.ndim == 2 else x.reshape(-1, x.shape[-1])).astype(accum_dtype(x))
        phi = cast(self, rows.dtype)
        of_rows = dot(phi.kernel(rows, phi.landmarks), phi.whitening)
        return of_rows.reshape(*x.shape[:-1], self.features)

    def landmark_coef(self, w: Array) -> Array:
        """The coefficients (s,) of the same function over the landmarks.

            <phi(x), w> = sum_i coef_i k(x_i, x)

        They grow with the inverse square root of the smallest kept eigenvalue. In float32,
        prediction by the features is more accurate.

        Args:
            w: (s,) weights of the features.

        Reference: S. Lee, S. Wright, ASSET, 2012, section 2 (its equation for the coefficients has
            the exponent of D inverted on one side).
        """
        return dot(self.whitening, w)

    @property
    def rank(self) -> Array:
        """The number of kept directions, () int32."""
        return count(jnp.any(self.whitening != 0, axis=0))

    @property
    def features(self) -> int:
        """The number of features s."""
        return self.whitening.shape[-1]


def nystrom(
    key: Array | None,
    kernel: Kernel,
    x: Array | None = None,
    *,
    landmarks: int | Array,
    eps: float = 1e-16,
    choose: Callable = uniform,
) -> Nystrom:
    """The Nystrom map of a kernel from landmark rows.

    The inner products <phi(x), phi(z)> = k_S(x)' K_SS^+ k_S(z) are exact on landmarks.

        K_SS = Q D Q'                 S: s landmarks, eigenvalues in descending order
        phi(x) = D^(-1/2) Q' k_S(x)
            over the D_jj >= max(eps, s eps_machine D_11); columns of the others are 0

    Outside of transformations the eigendecomposition is in float64, and eps_machine is that of
    float64. For float32 landmarks the D_jj below eps_float32 tr(K_SS) are dropped as well, since
    they are below the rounding of k_S(x). Inside of a transformation, such as a sweep, it is in the
    dtype of the landmarks. In float32 it then keeps far fewer directions of a wide kernel, and the
    map differs from the one outside.

    K - Phi Phi' is positive semi-definite on any rows, so |phi(x)|^2 <= k(x, x). Labels are not
    used. Dropped directions are columns of zeros, whose weight is 0 in every solver. Shapes
    therefore do not depend on values, and the map works under `jit` and `vmap`, over sigma for
    example. Gradients with respect to the kernel's parameters and the landmarks hold up to a
    rotation of the features, with Q constant. Norms, scores and regularised solutions are invariant
    under it.

    Args:
        key: a random key for the draw of the landmarks; None if they are passed.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        x: (n, d) rows to draw from; None if the landmarks are passed.
        landmarks: their number, <= n; or the landmarks (s, d).
        eps: eigenvalues below it are dropped, >= 0; those below s eps_machine D_11 always are.
        choose: (key, kernel, x, s) -> (s, d): `features.uniform`, `features.k_means()`,
            `features.leverage_scores()`, `features.random_pivots()`. Among rows, random pivots
            leave the least of the kernel where its eigenvalues fall fast.

    Returns:
        A map (..., d) -> (..., s), a pytree.

    Raises:
        ValueError: more landmarks than rows; no landmarks; no rows to draw them from; eps below 0.

    Differs from the paper: the decomposition is of the unsigned K_SS (labels cancel, so the map can
        be evaluated anywhere); the threshold is relative to the largest eigenvalue; fixed shapes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> x = jnp.array([[0.0], [1.0], [3.0]])
        >>> phi = jaxsvm.features.nystrom(None, jaxsvm.kernels.rbf(1.0), landmarks=x)
        >>> bool(jnp.allclose(phi(x) @ phi(x).T, jaxsvm.kernels.rbf(1.0)(x, x), atol=1e-5))
        True

    Reference: S. Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for
        support vector machines, 2012, section 2; C. Williams, M. Seeger, NIPS 2000.
    """
    check_nonnegative(eps=eps)
    kernel = as_kernel(kernel)
    if holds_precomputed(kernel):
        raise ValueError(
            "nystrom works out kernel values at landmark rows: give the kernel "
            "itself, not a precomputed matrix"
        )
    if isinstance(landmarks, numbers.Integral):
        if x is None or key is None:
            raise ValueError(
                "nystrom draws landmarks from rows: give a key and x, or the rows "
                "themselves as landmarks"
            )
        check_key("key", key)
        x = matrix("x", x)
        if not 1 <= landmarks <= x.shape[0]:
            raise ValueError(
                f"landmarks must be a number from 1 to the {x.shape[0]} rows to draw "
                f"from, got {landmarks}"
            )
        size = 3 * 8 * int(landmarks) ** 2
        check_bytes(f"the kernel among {landmarks:,} landmarks", size, "lower landmarks")
        if is_traced(key, kernel, x) and isinstance(x, np.ndarray):
            x = jnp.asarray(x)
        with calling("choose", choose, "of key, kernel, rows and their number to landmarks", x):
            rows: Any = choose(key, kernel, x, int(landmarks))
    else:
        rows = landmarks
    rows = as_array("landmarks", rows)
    if len(np.shape(rows)) != 2 or not rows.shape[0]:
        raise ValueError(
            f"landmarks must be a whole number or a matrix of rows, got shape {np.shape(rows)}"
        )
    rows = matrix("landmarks", rows)
    rows = rows if isinstance(rows, SparseRows) else jnp.asarray(rows)
    rows = rows.astype(accum_dtype(rows))
    if is_traced(kernel, rows, eps) or rows.dtype == jnp.float64:
        return Nystrom(kernel, rows, whitening(kernel(rows, rows), eps))
    with jax.enable_x64(True):
        level = jnp.asarray(eps, jnp.float64)
        whitening_matrix = _wide_whitening(*cast((kernel, rows), jnp.float64), level)
    return Nystrom(kernel, rows, whitening_matrix)


@jax.jit
def _wide_whitening(kernel: Kernel, rows: Array, eps: Array) -> Array:
    """The whitening matrix of float32 rows, computed in float64."""
    gram = kernel(rows, rows)
    least = jnp.maximum(eps, float(jnp.finfo(jnp.float32).eps) * jnp.trace(gram))
    return whitening(gram, least).astype(jnp.float32)


@jax.custom_jvp
def whitening(gram: Array, eps: Scalar) -> Array:
    """The whitening matrix Q D^(-1/2) of a positive semi-definite (s, s) matrix.

    It is 0 for eigenvalues below the threshold.
    """
    return _decomposed(gram, eps)[0]


def _decomposed(gram: Array, eps: Scalar) -> tuple[Array, Array, Array, Array]:
    size = gram.shape[0]
    values, vectors = jnp.linalg.eigh((gram + gram.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    least = jnp.maximum(jnp.asarray(eps, gram.dtype), size * jnp.finfo(gram.dtype).eps * values[0])
    keep = (values >= least) & (values > 0)
    root = jnp.where(keep, jax.lax.rsqrt(jnp.where(keep, values, 1)), 0)
    return vectors * root[None, :], vectors, values, root


@whitening.defjvp
def _whitening_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The derivative of Q F(D) Q' R at R = Q, with R constant, by divided differences of F.

    Close eigenvalues are harmless, unless one is kept and the other dropped: for u = F(D_ii), v =
    F(D_jj), both kept, F = D^(-1/2), the divided difference is -u^2 v^2 / (u + v).
    """
    gram, eps = primals
    whitened, vectors, values, root = _decomposed(gram, eps)
    keep = root > 0
    u, v = root[:, None], root[None, :]
    both, same = keep[:, None] & keep[None, :], keep[:, None] == keep[None, :]
    inverse = jnp.where(keep, 1 / jnp.where(keep, root, 1), 0)
    both_kept = -u * v / jnp.where(both, inverse[:, None] + inverse[None, :], 1)
    one_kept = (u - v) / jnp.where(same, 1, values[:, None] - values[None, :])
    differences = jnp.where(both, both_kept, jnp.where(same, 0, one_kept))
    rotated = dot(vectors.T, dot((tangents[0] + tangents[0].T) / 2, vectors))
    return whitened, dot(vectors, differences * rotated)
