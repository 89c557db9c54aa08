"""Random Fourier features."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._node import cast, struct
from ..checks import check_bytes, check_choice, integer, matrix
from ..checks import key as check_key
from ..kernels import Kernel, as_kernel
from ..numerics import accum_dtype, centre, dot, offset
from ..types import Array, SparseRows

FORMS = ("paired", "phase")


@struct
class Fourier:
    """phi(x) = amplitude [cos(scale V'x), sin(scale V'x)], or amplitude cos(scale V'x + shift).

    Frequencies are drawn at unit scale: maps of different widths share them, and the width has a
    gradient.
    """

    frequencies: Array  # (d, q)  at unit scale
    shift: Array | None  # (q,)   of the phase form, None: paired
    scale: Array  # ()            1/sigma for the Gaussian kernel
    amplitude: Array  # ()        so that E <phi(x), phi(z)> = k(x, z)
    offset: Array | None = None  # (d,)  subtracted from the rows; None: 0

    def __call__(self, x: Array) -> Array:
        """Features, (..., d) -> (..., p)."""
        x = matrix("x", x, self.frequencies.shape[0], rank=None)
        x = x.astype(accum_dtype(x))
        phi = cast(self, x.dtype)
        angle = dot(x if phi.offset is None else centre(x, phi.offset), phi.frequencies) * phi.scale
        if phi.shift is None:
            return phi.amplitude * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        shift = jnp.expand_dims(phi.shift, tuple(range(angle.ndim - 1)))
        return phi.amplitude * jnp.cos(angle + shift)

    @property
    def features(self) -> int:
        """The number of features p."""
        return self.frequencies.shape[-1] * (2 if self.shift is None else 1)


def fourier(
    key: Array,
    kernel: Kernel,
    *,
    dim: int,
    features: int,
    form: str = "paired",
    x: Array | None = None,
) -> Fourier:
    """Random Fourier features: E <phi(x), phi(z)> = k(x, z) for a shift-invariant kernel.

        paired   phi(x) = [cos v_j'x, sin v_j'x]_j sqrt(k(0,0)/q),    j = 1 .. q = p/2,
                 |phi(x)|^2 = k(x, x) exactly
        phase    phi(x) = [cos(v_j'x + u_j)]_j sqrt(2 k(0,0)/p),      j = 1 .. p,
                 u_j uniform in [0, 2 pi)
        v_j from the kernel's spectral law: normal with variance 1/sigma^2 for `rbf`,
            Cauchy / sigma for `laplacian`, multivariate t of 2 nu degrees of freedom / sigma for
            `matern`, normal / sigma times a root of a gamma variable for `rational_quadratic`

    The variance of <phi(x), phi(z)> for the Gaussian kernel with k = k(x, z) is (1 - k^2)^2 / p in
    the paired form and (1 + k^4/2 - k^2) / p in the phase form. Draws depend on the key and the
    shapes only, so that a sweep over sigma shares them.

    Args:
        key: a random key of `jax.random.key`.
        kernel: `rbf`, `laplacian`, `matern` or `rational_quadratic`, or a multiple of one.
        dim: number of columns d of the rows.
        features: number of features p; even in the paired form.
        form: "paired" or "phase".
        x: (n, d) rows such as `train.x`, whose common shift is subtracted from all rows; None: no
            shift. Pass them if columns are far from 0: the error of an angle is eps |v_j| |x -
            shift|.

    Returns:
        A map (..., d) -> (..., p), a pytree; the features have the dtype of x, at least float32.

    Raises:
        ValueError: another kernel, an odd number of paired features, no features.

    Differs from the paper: the factor sqrt(2/p) of the phase form (printed: sqrt(1/p)); normal
        frequencies with variance 1/sigma^2 (the density is printed with sigma inverted).

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> kernel = jaxsvm.kernels.rbf(2.0)
        >>> phi = jaxsvm.features.fourier(jax.random.key(0), kernel, dim=3, features=1000)
        >>> x = jnp.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
        >>> [round(float(v), 1) for v in (phi(x)[0] @ phi(x)[1], kernel(x, x)[0, 1])]
        [0.7, 0.7]

    Reference: A. Rahimi, B. Recht, Random features for large-scale kernel machines, NIPS 2007; S.
        Lee, S. Wright, ASSET: approximate stochastic subgradient estimation training for support
        vector machines, 2012, section 2; variances: D. Sutherland, J. Schneider, On the error of
        random Fourier features, UAI 2015.
    """
    draw, scale = spectrum(kernel)
    q, dim = frequencies_for(key, dim, features, form)
    size = dim * q * scale.dtype.itemsize
    check_bytes(f"{q:,} frequencies for {dim:,} columns", size, "lower features")
    for_frequencies, for_shift = jax.random.split(key)
    frequencies = draw(for_frequencies, (dim, q), scale.dtype)
    return map_of(frequencies, for_shift, kernel, features, form, x)


def spectrum(kernel: Kernel) -> tuple[Callable, Array]:
    """The spectral law of a kernel: a function that draws at unit scale, and the scale.

    Raises:
        ValueError: none is known.
    """
    law = as_kernel(kernel).spectrum
    if law is None:
        raise ValueError(
            "Fourier features need a kernel of x - z with a known law: rbf, laplacian, matern, "
            f"rational_quadratic, or a number times one; got {kernel!r}. features.nystrom takes "
            "any kernel of rows"
        )
    draw, scale = law
    return draw, scale()


def frequencies_for(key: Array, dim: int, features: int, form: str) -> tuple[int, int]:
    """The number of frequencies for `features` features, and that of the columns of rows.

    Raises:
        ValueError: see `fourier`.
    """
    check_choice("form", form, FORMS)
    each = 2 if form == "paired" else 1
    if integer("features", features, each) % each:
        raise ValueError(f"features must be an even whole number above 0, got {features}")
    check_key("key", key)
    return int(features) // each, integer("dim", dim, 1)


def map_of(
    frequencies: Array, key: Array, kernel: Kernel, features: int, form: str, x: Array | None
) -> Fourier:
    """The map with frequencies (d, q) at unit scale, shifted to the rows x (n, d)."""
    if x is not None and (jnp.ndim(x) != 2 or jnp.shape(x)[1] != frequencies.shape[0]):
        raise ValueError(
            f"x must hold rows of dim={frequencies.shape[0]} columns, got shape {jnp.shape(x)}"
        )
    q, dtype = frequencies.shape[1], frequencies.dtype
    shift = None if form == "paired" else 2 * jnp.pi * jax.random.uniform(key, (q,), dtype)
    at_zero = kernel.diag(jnp.zeros((1, frequencies.shape[0]), dtype))[0]
    amplitude = jnp.sqrt(at_zero / (q if form == "paired" else features / 2))
    x = x if x is None or isinstance(x, SparseRows) else jnp.asarray(x)
    of_rows = None if x is None else offset(x)
    return Fourier(frequencies, shift, spectrum(kernel)[1], amplitude, of_rows)
