"""Orthogonal random features."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..checks import check_bytes
from ..kernels import Kernel
from ..types import Array
from .random_fourier import Fourier, frequencies_for, map_of, spectrum


def orthogonal(
    key: Array,
    kernel: Kernel,
    *,
    dim: int,
    features: int,
    form: str = "paired",
    x: Array | None = None,
) -> Fourier:
    """Random Fourier features of the Gaussian kernel with orthogonal frequencies.

    The frequencies are orthogonal in groups of `dim`:

        V = [Q_1 S_1, Q_2 S_2, ...],   Q_g (d, d) orthogonal, uniformly distributed;
            S_g diagonal, chi(d) distributed
        phi as in `fourier`, with the columns of V / sigma as frequencies

    Each single frequency has the same law as in `fourier`, so that the map is unbiased. Its
    variance is at most as large, and smaller for large d.

    Args:
        key: a random key of `jax.random.key`.
        kernel: `rbf`, or a multiple of it.
        dim: number of columns d of the rows.
        features: number of features p; even in the paired form.
        form: "paired" or "phase".
        x: (n, d) rows whose common shift is subtracted from all rows, as in `fourier`; None: no
            shift.

    Returns:
        A map (..., d) -> (..., p).

    Raises:
        ValueError: another kernel, whose law is not the same in all directions; else as `fourier`.

    Differs from the paper: nothing (the exact form; the structured one is not implemented).

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> kernel = jaxsvm.kernels.rbf(1.0)
        >>> phi = jaxsvm.features.orthogonal(jax.random.key(0), kernel, dim=4, features=8)
        >>> v = phi.frequencies / jnp.linalg.norm(phi.frequencies, axis=0, keepdims=True)
        >>> bool(jnp.allclose(v.T @ v, jnp.eye(4), atol=1e-5))
        True

    Reference: F. Yu, A. Suresh, K. Choromanski, D. Holtmann-Rice, S. Kumar, Orthogonal random
        features, NIPS 2016, section 3.
    """
    draw, scale = spectrum(kernel)
    if draw is not jax.random.normal:
        raise ValueError(
            f"orthogonal features need the Gaussian kernel (rbf), got {kernel!r}; "
            "features.fourier takes it"
        )
    q, dim = frequencies_for(key, dim, features, form)
    groups = -(-q // dim)
    size = 3 * groups * dim**2 * scale.dtype.itemsize
    check_bytes(f"{groups:,} orthogonal matrices for {dim:,} columns", size, "lower features")
    for_directions, for_lengths, for_shift = jax.random.split(key, 3)
    # The orthogonal factor of a normal matrix is uniformly distributed if the diagonal of the other
    # factor is positive.
    normal = jax.random.normal(for_directions, (groups, dim, dim), scale.dtype)
    directions, upper = jnp.linalg.qr(normal)
    directions = directions * jnp.sign(jnp.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    normal = jax.random.normal(for_lengths, (dim, groups * dim), scale.dtype)
    lengths = jnp.linalg.norm(normal, axis=0)
    frequencies = jnp.moveaxis(directions, 0, 1).reshape(dim, groups * dim) * lengths[None, :]
    return map_of(frequencies[:, :q], for_shift, kernel, features, form, x)
