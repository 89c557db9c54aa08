"""Tensor sketches: random features of polynomial kernels."""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp

from .. import kernels
from .._node import cast, static, struct
from ..checks import check_bytes, integer, matrix
from ..checks import key as check_key
from ..kernels import Kernel, as_kernel
from ..numerics import accum_dtype
from ..types import Array, SparseRows


@struct
class TensorSketch:
    """phi(x) = F^-1 prod_j F(C_j (sqrt(gamma) x, sqrt(coef0))), F the Fourier transform."""

    bucket: Array  # (degree, d + 1)  int32, the feature that each column is added to
    sign: Array  # (degree, d + 1)  -1 or 1
    gamma: Array  # ()
    coef0: Array  # ()
    features: int = static(default=1)  # p

    def __call__(self, x: Array) -> Array:
        """Features, (..., d) -> (..., p)."""
        x = matrix("x", x, self.dim, rank=None)
        x = x.astype(accum_dtype(x))
        phi = cast(self, x.dtype)
        spectra = []
        for bucket, sign in zip(phi.bucket, phi.sign, strict=True):
            sketch = jnp.sqrt(phi.gamma) * _count_sketch(x, bucket[:-1], sign[:-1], self.features)
            sketch = sketch.at[..., bucket[-1]].add(sign[-1] * jnp.sqrt(phi.coef0))
            spectra.append(jnp.fft.rfft(sketch, axis=-1))
        spectrum = functools.reduce(operator.mul, spectra)
        return jnp.fft.irfft(spectrum, n=self.features, axis=-1).astype(x.dtype)

    @property
    def dim(self) -> int:
        """The number of columns d of the rows."""
        return self.bucket.shape[-1] - 1


def _count_sketch(x: Array, bucket: Array, sign: Array, size: int) -> Array:
    """Sums of the columns of each bucket, with signs, (..., d) -> (..., size)."""
    if isinstance(x, SparseRows):
        x = x.materialize()
        rows = jnp.arange(x.shape[0])[:, None]
        zero = jnp.zeros((x.shape[0], size), x.dtype)
        return zero.at[rows, bucket[x.index]].add(x.value * sign[x.index])
    zero = jnp.zeros((*x.shape[:-1], size), x.dtype)
    return zero.at[..., bucket].add(x * jnp.expand_dims(sign, tuple(range(x.ndim - 1))))


def tensor_sketch(key: Array, kernel: Kernel, *, dim: int, features: int) -> TensorSketch:
    """Tensor sketch: E <phi(x), phi(z)> = (gamma <x, z> + coef0)^degree.

        C_j u   (C_j u)_b = sum of s_jc u_c over the columns c with h_jc = b,   j = 1 .. degree
                h_jc uniform in 0 .. p - 1, s_jc = -1 or 1
        phi(x) = F^-1 prod_j F(C_j u),   u = (sqrt(gamma) x, sqrt(coef0))

    That is the count sketch of the tensor u x ... x u, in O(degree (d + p log p)) operations a row.
    The variance of <phi(x), phi(z)> is at most (2 + 3^degree) |u(x)|^(2 degree) |u(z)|^(2 degree)
    / p. Draws depend on the key and the shapes only, so that a sweep over gamma and coef0 shares
    them.

    Args:
        key: a random key of `jax.random.key`.
        kernel: `polynomial` of degree >= 1.
        dim: number of columns d of the rows.
        features: number of features p, >= 1.

    Returns:
        A map (..., d) -> (..., p), a pytree; the features have the dtype of x, at least float32.

    Raises:
        ValueError: another kernel, degree 0, no features.

    Differs from the paper: signs and buckets are independent draws, not 2-wise and 3-wise
        independent hash functions.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> kernel = jaxsvm.kernels.polynomial(0.5, 1.0, degree=2)
        >>> phi = jaxsvm.features.tensor_sketch(jax.random.key(0), kernel, dim=2, features=4096)
        >>> x = jnp.array([[1.0, 0.0], [1.0, 1.0]])
        >>> error = jax.jit(lambda x: jnp.max(jnp.abs(phi(x) @ phi(x).T - kernel(x, x))))
        >>> float(error(x)) < 0.2
        True

    Reference: N. Pham, R. Pagh, Fast and scalable polynomial kernels via explicit feature maps, KDD
        2013; variance: H. Avron, H. Nguyen, D. Woodruff, Subspace embeddings for the polynomial
        kernel, NIPS 2014.
    """
    kernel = as_kernel(kernel)
    if not isinstance(kernel, kernels.polynomial) or not kernel.degree:
        raise ValueError(
            f"a tensor sketch needs a polynomial kernel of degree 1 and more, got {kernel!r}; "
            "features.nystrom takes any kernel of rows"
        )
    degree, dim, features = kernel.degree, integer("dim", dim, 1), integer("features", features, 1)
    check_key("key", key)
    check_bytes(f"{degree} sketches of {dim:,} columns", 8 * degree * (dim + 1), "lower degree")
    for_buckets, for_signs = jax.random.split(key)
    shape = degree, dim + 1
    bucket = jax.random.randint(for_buckets, shape, 0, features, jnp.int32)
    sign = jax.random.rademacher(for_signs, shape, jnp.result_type(float))
    gamma, coef0 = jnp.asarray(kernel.gamma), jnp.asarray(kernel.coef0)
    return TensorSketch(bucket, sign, gamma, coef0, features)
