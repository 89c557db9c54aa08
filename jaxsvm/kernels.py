"""Kernels: block functions (n, d), (m, d) -> (n, m), as pytrees of their parameters.

Blocks are computed by matrix products.

`kernel(x, z)` is a block, `kernel.diag(x)` the values k(x_i, x_i); `+` and `*` combine kernels, a
number factor scales one.

Kernels of differences (`rbf`, `laplacian`, sums, products and multiples of them) are invariant
under a common shift. One is subtracted from dense rows first, so that columns far from the origin
lose no accuracy.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from . import _node
from ._node import Node, between, holds_functions, node, nodes_in, positive, refuse_class
from .checks import (
    calling,
    check_choice,
    has_shape,
    has_values,
    integer,
    is_numeric,
    matrix,
    on_host,
    shown,
)
from .names import ALIASES, KERNELS
from .numerics import (
    CentredRows,
    accum_dtype,
    blocked,
    centred,
    centred_pair,
    check_open,
    chi2_distances,
    count,
    cross_products,
    distances,
    dot,
    gather,
    harmonic_sums,
    in_transformation,
    index_row,
    is_traced,
    l1_distances,
    needs_subtraction,
    offset,
    power_of_two,
    row_sums,
    shards,
    split_rows,
    sqdist_of,
    sqnorms,
)
from .numerics import sqdist as sqdist
from .types import Array, Batch, Rows, SparseRows

__all__ = [
    "Kernel",
    "additive_chi2",
    "chi2",
    "cosine",
    "custom",
    "gamma_grid",
    "laplacian",
    "linear",
    "matern",
    "matern12",
    "matern32",
    "matern52",
    "polynomial",
    "precomputed",
    "rational_quadratic",
    "rbf",
    "register",
    "sigmoid",
    "sqdist",
]


def _shaped(values: Array, *rows: int) -> Array:
    """A block of values, or values (n,), after a check of its shape."""
    if jnp.shape(values) != rows:
        counts = " and ".join(map(str, rows))
        raise ValueError(
            f"the kernel returned shape {jnp.shape(values)} for {counts} rows, expected {rows}"
        )
    if not is_numeric(values.dtype):
        raise TypeError(f"the kernel must return real numbers, got {shown(values)}")
    return values


class Kernel(Node):
    """A kernel with its parameters: a node that is called, and combined by `+` and `*`.

    One of your own is a subclass with a method `block`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxsvm
        >>> k = 0.5 * jaxsvm.kernels.rbf(sigma=1.0) + jaxsvm.kernels.linear()
        >>> k(jnp.ones((2, 3)), jnp.ones((1, 3))).tolist()
        [[3.5], [3.5]]
        >>> @jaxsvm.node
        ... class cauchy(jaxsvm.kernels.Kernel):
        ...     width: float = jaxsvm.positive(default=1.0)
        ...     def block(self, x, z):
        ...         return 1 / (1 + jaxsvm.kernels.sqdist(x, z) / self.width)
        >>> value = lambda width: cauchy(width)(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0, 0]
        >>> jax.jit(jax.grad(value))(1.0).tolist()
        0.25
    """

    # k(x, z) = k(0, 0) E cos <v, x - z> with v = scale() times the columns that `draw` gives, as
    # (key, (d, q), dtype) -> (d, q): the tuple draw, scale; None: no such law is known
    spectrum: Any = None
    # (<x, z>, |x|^2, |z|^2, d) -> k(x, z), elementwise; None: not a function of these
    of_products: Any = None
    # k(x + a, z + a) = k(x, z): `block` receives both sides as `CentredRows` of one shift
    differences: Any = False
    gammas: Any = ()  # the gamma of each factor or term that depends on gamma |x - z|^2
    # of a combination each part checks the columns; those of a precomputed kernel may differ
    checks_columns: Any = True

    @classmethod
    def admit(cls, name: str, value: object) -> Kernel:
        """A part of a kernel; a plain function is wrapped by `custom`."""
        return as_kernel(value)

    def parts(self) -> list[Kernel]:
        """The kernels among the fields."""
        return [value for value in vars(self).values() if isinstance(value, Kernel)]

    def validate(self, data: Batch) -> None:
        """Raise ValueError for rows that a part cannot read, or on which the whole is no kernel."""
        parts = [part for part in nodes_in(self) if isinstance(part, Kernel)]
        for part in parts:
            part.check_rows(data)
        users = [part for part in parts if isinstance(part, custom)]
        if users and not holds_precomputed(self) and has_values(self) and not in_transformation():
            self.check_values(data, any(part.diag_fn is not None for part in users))

    def check_rows(self, data: Batch) -> None:
        """Raise ValueError for rows that it cannot read, whatever it is a part of."""

    def check_values(self, data: Batch, has_diag: bool) -> None:
        """Check values of a user's functions at eight of the rows, and those of `diag_fn`.

        Raises:
            ValueError: a value that is not finite, not symmetric, k(x, x) < 0, another one than
                that of `diag_fn`; with the rows and the values.
        """
        live = np.flatnonzero(np.asarray(data.weight) > 0)
        if not live.size:
            return
        rows = live[np.linspace(0, len(live) - 1, min(8, len(live))).astype(int)]
        x = on_host(data.x)
        x = data.x[rows] if x is None else x[rows]
        values = np.asarray(self(x, x), float)
        size, diag = np.abs(values).max(), np.diagonal(values)
        given = np.asarray(self.diag(x), float) if has_diag else diag
        rounding = 10 * float(jnp.finfo(accum_dtype(data.x)).eps) ** 0.5 * size
        if not np.isfinite(values).all():
            i, j = np.argwhere(~np.isfinite(values))[0]
            raise ValueError(
                f"the kernel must give finite numbers, got {values[i, j]} for rows {rows[i]} and "
                f"{rows[j]}: mend the function of kernels.custom, or scale the rows"
            )
        if diag.min() < -rounding:
            i = np.argmin(diag)
            raise ValueError(
                f"the kernel must be positive semi-definite, got k(x, x) = {diag[i]:g} for row "
                f"{rows[i]}: mend the function of kernels.custom"
            )
        if not np.abs(diag - given).max() <= 0.1 * size:
            i = np.argmax(np.abs(diag - given))
            raise ValueError(
                f"diag_fn of kernels.custom must give k(x, x), got {given[i]:g} where k(x, x) = "
                f"{diag[i]:g} for row {rows[i]}: mend it, or leave it out"
            )
        asymmetry = np.abs(values - values.T)
        if asymmetry.max() > rounding:
            i, j = np.unravel_index(np.argmax(asymmetry), asymmetry.shape)
            raise ValueError(
                f"the kernel must be symmetric, got k(x, z) = {values[i, j]:g} and k(z, x) = "
                f"{values[j, i]:g} for rows {rows[i]} and {rows[j]}: mend the function of "
                "kernels.custom, or take (k(x, z) + k(z, x).T) / 2"
            )

    def block(self, x: object, z: object) -> Array:
        """The block of values k(x_i, z_j), (n, d), (m, d) -> (n, m), of rows that were checked."""
        raise NotImplementedError

    def diagonal(self, x: Array) -> Array:
        """The values k(x_i, x_i), (n, d) -> (n,), of rows that were checked."""
        one = lambda row: _shaped(self.block(row[None], row[None]), 1, 1)[0, 0]
        return jax.vmap(one)(x)

    def gram(self, x: Array, index: Array) -> Array:
        """The values among the rows `index` of `x`, (n, d), (b,) -> (b, b)."""
        rows = x[index]
        return self(rows, rows)

    def refuse_open(self, x: object) -> None:
        if holds_functions(self):
            check_open(lambda parts: parts[1](parts[0][:1], parts[0]), (x, self))

    def __call__(self, x: Array, z: Array) -> Array:
        """The block of values k(x_i, z_j), (n, d), (m, d) -> (n, m)."""
        x = matrix("x", x)
        z = matrix("z", z, x.shape[1] if self.checks_columns else None)
        if not self.differences:
            return _shaped(self.block(x, z), x.shape[0], z.shape[0])
        first, second = centred_pair(x, z)
        return _shaped(self.block(first, self.settled(second)), x.shape[0], z.shape[0])

    def diag(self, x: Array) -> Array:
        """The values k(x_i, x_i), (n, d) -> (n,)."""
        x = matrix("x", x)
        return _shaped(self.diagonal(x), x.shape[0])

    def values(self, x: Array, z: Array, sqnorm: Array) -> Array:
        """The block of values k(x_i, z_j), (n, d), (m, d), (m,) -> (n, m).

        The squared norms of z are known. No shift is subtracted here: for rows far from the origin,
        subtract their `offset` first.
        """
        of_products = self.of_products
        if of_products is None:
            return self(x, z)
        x = x.astype(accum_dtype(x))
        return of_products(cross_products(x, z), sqnorms(x)[:, None], sqnorm[None, :], x.shape[-1])

    def settled(self, rows: Any) -> Any:
        """The rows, marked for distances from differences where products are too inaccurate."""
        coarse = not rows.subtract and any(needs_subtraction(rows, gamma) for gamma in self.gammas)
        return dataclasses.replace(rows, subtract=True) if coarse else rows

    def offset(self, data: Batch) -> Array:
        """The common shift (d,) of the rows of positive weight.

        It is 0 for a single row, or if `differences` is false.
        """
        host = isinstance(data.x, np.ndarray)
        xp: Any = np if host else jnp
        zeros, live = xp.zeros(data.x.shape[-1], accum_dtype(data.x)), data.weight > 0
        if not self.differences:
            return zeros
        return xp.where((live.sum() if host else count(live)) > 1, offset(data.x, live), zeros)

    def layout(self, data: Batch) -> Batch:
        """The data with rows in the form of the fastest blocks.

        The rows are minus their shift, with their squared norms.

        Outside of transformations the values of the rows decide how distances are computed: see
        `needs_subtraction`.
        """
        kernel = _numbers_on_host(self)
        if not kernel.differences:
            return data
        rows: Any = data.x
        if not isinstance(rows, CentredRows):
            x, weight = on_host(data.x), on_host(data.weight)
            if x is None or weight is None:
                rows = centred(data.x, self.offset(data))
            else:  # by NumPy, so that nothing is compiled
                rows = jax.device_put(centred(x, self.offset(data._replace(x=x, weight=weight))))
        return data._replace(x=kernel.settled(rows))

    def __add__(self, other: Any) -> Kernel:
        return sum_(self, other)

    def __mul__(self, other: Any) -> Kernel:
        return product(self, other) if callable(other) else scaled(self, other)

    def __rmul__(self, factor: Any) -> Kernel:
        return scaled(self, factor)


def _numbers_on_host(kernel: Kernel) -> Kernel:
    """The kernel, with known parameters as NumPy's: arithmetic on them compiles no program."""

    def number(a: object) -> Any:
        known = on_host(a)
        weak = known is not None and not known.ndim and isinstance(a, jax.Array) and a.weak_type
        return a if known is None else known.item() if weak else known

    return jax.tree.map(number, kernel)


class _OfProducts(Kernel):
    """A kernel that is a function of <x, z>, |x|^2 and |z|^2."""

    def block(self, x: Any, z: Any) -> Array:
        z = z.astype(accum_dtype(z))
        return self.values(x, z, sqnorms(z))

    def diagonal(self, x: Array) -> Array:
        square = sqnorms(x)
        return self.of_products(square, square, square, x.shape[-1])


class _OfDistances(Kernel):
    """A kernel that is a function of a distance, as a rule |x - z|^2, and 1 where that is 0."""

    differences = True
    of_products = property(lambda self: lambda *products: self.value(distances(*products)))
    gammas = property(lambda self: (self.rate,))

    def value(self, distance: Array) -> Array:
        raise NotImplementedError

    def distance(self, x: Any, z: Any) -> Array:
        """The distances of centred rows."""
        return sqdist_of(x, z)

    def block(self, x: object, z: object) -> Array:
        return self.value(self.distance(x, z))

    def diagonal(self, x: Array) -> Array:
        return jnp.ones(x.shape[0], accum_dtype(x))


@node
class linear(_OfProducts):
    """The linear kernel <x, z>."""

    def of_products(self, product: Array, *rest: object) -> Array:
        return product


@node
class rbf(_OfDistances):
    """The Gaussian kernel exp(-|x - z|^2 / (2 sigma^2)), or exp(-gamma |x - z|^2).

    With a vector, exp(-sum_j gamma_j (x_j - z_j)^2) has a width for each column, as in automatic
    relevance determination (ARD). It is not known to Fourier features, `budget.merge` and LIBSVM.

    Args:
        sigma: width, units of x, > 0.
        gamma: 1 / (2 sigma^2), a number or (d,) one for each column, > 0; give one of the two.

    For dense rows with any common shift, the error of gamma |x - z|^2 is at most (8 + 4 sqrt(d))
    eps gamma max |x - mean|^2. k between equal rows is exactly 1. Where the error would exceed
    1e-3, distances are computed from differences, which is slower and accurate. This needs known
    values: it happens outside of transformations, and in `fit` outside of them. Sparse rows are not
    shifted.

    Raises:
        ValueError: both or neither are passed; the one passed is not above 0; rows of another
            number of columns than gamma.

    Example: the first column counts, the second hardly
        >>> import jax.numpy as jnp, jaxsvm
        >>> k = jaxsvm.kernels.rbf(gamma=jnp.array([1.0, 1e-6]))
        >>> (k(jnp.zeros((1, 2)), jnp.eye(2)) > 0.9).tolist()
        [[False, True]]
    """

    sigma: float | None = positive(default=None)
    _: KW_ONLY
    gamma: float | Array | None = positive(default=None)
    of_products = property(lambda self: None if self.by_column else super().of_products)

    def check(self) -> None:
        gamma: Any = self.gamma
        if (self.sigma is None) == (gamma is None):
            raise ValueError("rbf takes sigma or gamma = 1 / (2 sigma^2), one of them")
        if np.ndim(gamma) > 1:
            raise ValueError(
                "gamma must be a number above 0, or a vector with one for each column, got shape "
                f"{np.shape(gamma)}; sweep it with jax.vmap"
            )

    @property
    def spectrum(self) -> tuple | None:
        law = jax.random.normal, lambda: jnp.sqrt(2 * jnp.asarray(self.rate))
        return None if self.by_column else law

    @property
    def by_column(self) -> bool:
        """Whether there is a gamma for each column."""
        return has_shape(self.gamma)

    @property
    def rate(self) -> Any:
        """The gamma, or those of the columns."""
        if self.sigma is None:
            return self.gamma
        square = 2 * self.sigma * self.sigma
        return float("inf") if isinstance(square, float) and square == 0 else 1 / square

    def distance(self, x: Any, z: Any) -> Array:
        if not self.by_column:
            return sqdist_of(x, z)
        if x.shape[-1] != self.rate.shape[0]:
            raise ValueError(
                f"gamma holds one number for each of {self.rate.shape[0]} columns, but the rows "
                f"have {x.shape[-1]}"
            )
        return sqdist_of(x, z, jnp.asarray(self.rate))

    def value(self, distance: Array) -> Array:
        # 1 at distance 0, also where gamma is infinite in float32
        exponent = distance if self.by_column else self.rate * distance
        return jnp.where(distance == 0, 1, jnp.exp(-exponent))


@node
class laplacian(_OfDistances):
    """The Laplacian kernel exp(-|x - z|_1 / sigma).

    It is computed column by column, in n m d operations without a matrix product.

    Args:
        sigma: width, units of x, > 0.
    """

    sigma: float = positive()
    spectrum = property(lambda self: (jax.random.cauchy, lambda: 1 / jnp.asarray(self.sigma)))
    gammas, of_products = (), None

    def distance(self, x: Any, z: Any) -> Array:
        return l1_distances(x.value, z.value)

    def value(self, distance: Array) -> Array:
        return jnp.where(distance == 0, 1, jnp.exp(-distance / self.sigma))


def matern(sigma: float, *, nu: float = 1.5) -> Kernel:
    """The Matern kernel of length sigma, with r = |x - z| / sigma.

        nu = 1/2   exp(-r)                                        matern12(sigma)
        nu = 3/2   (1 + sqrt(3) r) exp(-sqrt(3) r)                matern32(sigma)
        nu = 5/2   (1 + sqrt(5) r + 5/3 r^2) exp(-sqrt(5) r)      matern52(sigma)

    Functions of its space have about nu derivatives; for nu to infinity it is `rbf(sigma)`. For
    nu = 1/2 distances of dense rows are computed from differences, in n m d operations without a
    matrix product. Its derivative in x at x = z does not exist and is taken as 0.

    Args:
        sigma: length, units of x, > 0; scikit-learn's `length_scale`.
        nu: 0.5, 1.5 or 2.5; structure.

    Raises:
        ValueError: sigma not above 0, another nu.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> k = jaxsvm.kernels.matern(2.0, nu=0.5)(jnp.zeros((1, 1)), jnp.array([[0.0], [2.0]]))
        >>> [round(value, 3) for value in k[0].tolist()]
        [1.0, 0.368]

    Reference: C. Rasmussen, C. Williams, Gaussian processes for machine learning, 2006, section
        4.2.1.
    """
    choices = {0.5: matern12, 1.5: matern32, 2.5: matern52}
    if nu not in choices:
        raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {shown(nu)}")
    return choices[nu](sigma)


@node
class _Matern(_OfDistances):
    """factor(t) exp(-t) with t = sqrt(2 nu) r, which is 1 - curvature r^2 for small r."""

    sigma: float = positive()
    nu: ClassVar[float]
    curvature: ClassVar[float]
    factor: ClassVar[Callable]
    spectrum = property(lambda self: (self.draw, lambda: 1 / jnp.asarray(self.sigma)))
    rate = property(lambda self: self.curvature / (self.sigma * self.sigma))

    def value(self, distance: Array) -> Array:
        square, away = distance, distance > 0  # the root of 0 has no derivative
        t = jnp.sqrt(2 * self.nu * jnp.where(away, square, 1)) / self.sigma
        return jnp.where(away, self.factor(t) * jnp.exp(-t), 1 - self.rate * square)

    def draw(self, key: Array, shape: tuple[int, int], dtype: np.dtype) -> Array:
        """Columns of the multivariate t distribution of 2 nu degrees of freedom."""
        for_normal, for_gamma = jax.random.split(key)
        rate = jax.random.gamma(for_gamma, self.nu, shape[1:], dtype) / self.nu
        return jax.random.normal(for_normal, shape, dtype) / jnp.sqrt(rate)[None, :]


@node
class matern12(_Matern):
    """`matern(sigma, nu=0.5)`."""

    nu, curvature, gammas, of_products = 0.5, 0.0, (), None
    factor = staticmethod(lambda t: 1)

    def distance(self, x: Any, z: Any) -> Array:
        if not isinstance(x.value, SparseRows) and not isinstance(z.value, SparseRows):
            z = dataclasses.replace(z, subtract=True)  # the root of a rounding error is large
        return sqdist_of(x, z)


@node
class matern32(_Matern):
    """`matern(sigma, nu=1.5)`."""

    nu, curvature = 1.5, 3 / 2
    factor = staticmethod(lambda t: 1 + t)


@node
class matern52(_Matern):
    """`matern(sigma, nu=2.5)`."""

    nu, curvature = 2.5, 5 / 6
    factor = staticmethod(lambda t: 1 + t + t * t / 3)


@node
class rational_quadratic(_OfDistances):
    """The rational quadratic kernel (1 + |x - z|^2 / (2 alpha sigma^2))^(-alpha).

    It is a mixture of Gaussian kernels of many widths; for alpha to infinity it is `rbf(sigma)`.

    Args:
        sigma: width, units of x, > 0; scikit-learn's `length_scale`.
        alpha: how few widths, > 0.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> k = jaxsvm.kernels.rational_quadratic(1.0)(jnp.zeros((1, 1)), jnp.array([[2.0]]))
        >>> round(float(k[0, 0]), 3)
        0.333

    Reference: C. Rasmussen, C. Williams, Gaussian processes for machine learning, 2006, section
        4.2.1.
    """

    sigma: float = positive()
    alpha: float = positive(default=1.0)
    spectrum = property(lambda self: (self.draw, lambda: 1 / jnp.asarray(self.sigma)))
    rate = property(lambda self: 1 / (2 * self.sigma * self.sigma))

    def value(self, distance: Array) -> Array:
        return jnp.exp(-self.alpha * jnp.log1p(distance * (self.rate / self.alpha)))

    def draw(self, key: Array, shape: tuple[int, int], dtype: np.dtype) -> Array:
        """As in `spectrum`."""
        for_normal, for_gamma = jax.random.split(key)
        width = jax.random.gamma(for_gamma, jnp.asarray(self.alpha, dtype), shape[1:]) / self.alpha
        return jax.random.normal(for_normal, shape, dtype) * jnp.sqrt(width)[None, :]


@node
class cosine(_OfProducts):
    """The cosine <x, z> / (|x| |z|), 0 for rows of zeros.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> x = jnp.array([[3.0, 4.0], [0.0, 0.0]])
        >>> k = jaxsvm.kernels.cosine()(x, jnp.array([[0.0, 2.0]]))
        >>> [round(value, 3) for value in k[:, 0].tolist()]
        [0.8, 0.0]
    """

    def of_products(self, product: Array, x: Array, z: Array, columns: int) -> Array:
        inverse_norm = lambda a: jnp.where(a > 0, jax.lax.rsqrt(jnp.where(a > 0, a, 1)), 0)
        return product * inverse_norm(x) * inverse_norm(z)

    def diagonal(self, x: Array) -> Array:
        return (sqnorms(x) > 0).astype(accum_dtype(x))


class _OfHistograms(Kernel):
    """A kernel of rows of numbers of at least 0."""

    def check_rows(self, data: Batch) -> None:
        """Raise ValueError for a row of positive weight that holds a negative number."""
        rows = data.x.materialize().value if isinstance(data.x, SparseRows) else data.x
        x, live = on_host(rows), on_host(data.weight)
        if x is None or live is None or not (wrong := (x < 0).any(axis=1) & (live > 0)).any():
            return
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{self!r} takes rows of numbers of at least 0, got {x[row].min():g} in row {row}: "
            "scale the columns to [0, 1], such as by jaxsvm.data.scale"
        )


@node
class additive_chi2(_OfHistograms):
    """The additive chi-squared kernel sum_j 2 x_j z_j / (x_j + z_j), for columns of at least 0.

    scikit-learn's `additive_chi2_kernel` is 2 k(x, z) - |x|_1 - |z|_1, which is not positive
    semi-definite. With a free bias both give the same machine, at C/2 and C. Values of rows that
    hold a negative number are nan. It is computed column by column, in n m d operations.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> k = jaxsvm.kernels.additive_chi2()
        >>> k(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 0.0]])).tolist()
        [[1.5]]

    Reference: A. Vedaldi, A. Zisserman, Efficient additive kernels via explicit feature maps, IEEE
        PAMI 34, 2012.
    """

    def block(self, x: Any, z: Any) -> Array:
        return _of_histograms(x, z, harmonic_sums(x, z))

    def diagonal(self, x: Array) -> Array:
        return _of_histograms(x, None, row_sums(x))


@node
class chi2(_OfHistograms):
    """The exponential chi-squared kernel exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j)).

    It is for columns of at least 0, such as histograms. Values of rows that hold a negative number
    are nan. It is computed column by column, in n m d operations without a matrix product.

    Args:
        gamma: > 0, as of scikit-learn's `chi2_kernel`.

    Example:
        >>> import jax.numpy as jnp, jaxsvm
        >>> k = jaxsvm.kernels.chi2(0.5)(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]]))
        >>> round(float(k[0, 0]), 3)
        0.607

    Reference: J. Zhang, M. Marszalek, S. Lazebnik, C. Schmid, Local features and kernels for
        classification of texture and object categories, IJCV 73, 2007.
    """

    gamma: float = positive(default=1.0)

    def block(self, x: Any, z: Any) -> Array:
        return _of_histograms(x, z, jnp.exp(-self.gamma * chi2_distances(x, z)))

    def diagonal(self, x: Array) -> Array:
        return _of_histograms(x, None, jnp.ones(x.shape[0], accum_dtype(x)))


def _of_histograms(x: object, z: object, values: Array) -> Array:
    """The values (n, m), or (n,) without z; nan for rows that hold a negative number."""

    def is_negative(rows):
        rows = rows.materialize().value if isinstance(rows, SparseRows) else rows
        return jnp.any(rows < 0, axis=1)

    wrong = is_negative(x) if z is None else is_negative(x)[:, None] | is_negative(z)[None, :]
    return jnp.where(wrong, jnp.nan, values)


@node
class polynomial(_OfProducts):
    """The polynomial kernel (gamma <x, z> + coef0)^degree.

    Args:
        gamma: > 0.
        coef0: >= 0 for a positive semi-definite kernel.
        degree: integer >= 0; structure.
    """

    gamma: float = positive(default=1.0)
    coef0: float = 1.0
    _: KW_ONLY
    degree: int = between(0, default=3)

    def of_products(self, product: Array, *rest: object) -> Array:
        return (self.gamma * product + self.coef0) ** self.degree


@node
class sigmoid(_OfProducts):
    """The sigmoid kernel tanh(gamma <x, z> + coef0).

    It is not positive semi-definite: duals need not be concave.

    Args:
        gamma: > 0.
        coef0: any number.
    """

    gamma: float = positive(default=1.0)
    coef0: float = 0.0

    def of_products(self, product: Array, *rest: object) -> Array:
        return jnp.tanh(self.gamma * product + self.coef0)


@node
class precomputed(Kernel):
    """A precomputed kernel matrix: the rows of `x` are rows of the matrix of k(row, training rows).

    Train on the (n, n) matrix, predict on (m, n) blocks; the second argument is always the training
    set.
    """

    checks_columns = False

    def block(self, x: Any, z: Any) -> Array:
        if x.shape[1] != z.shape[0]:
            raise ValueError(
                f"a precomputed block has a column for each of the {z.shape[0]} "
                f"training rows, got {x.shape[1]}"
            )
        return x.astype(accum_dtype(x))

    def diagonal(self, x: Array) -> Array:
        return jnp.diagonal(x).astype(accum_dtype(x))

    def gram(self, x: Array, index: Array) -> Array:
        return x[index][:, index].astype(accum_dtype(x))

    def check_rows(self, data: Batch) -> None:
        """Check on the host, block by block, that the matrix is symmetric.

        Raises:
            ValueError: not symmetric, with the position and the two values.
        """
        if isinstance(data.x, SparseRows):
            raise ValueError(
                "a precomputed matrix must be dense, got sparse rows: pass it as an "
                "array, such as K.toarray()"
            )
        x = np.asarray(data.x)
        n = x.shape[0]
        if x.shape != (n, n):
            raise ValueError(
                f"a precomputed matrix for {n} rows has shape ({n}, {n}), got {x.shape}: "
                "k(row, training row)"
            )
        tolerance = 1e-5 * max(float(np.abs(x).max()), float(np.finfo(np.float32).tiny))
        for start in range(0, n, 1024):
            asymmetry = np.abs(x[start : start + 1024] - x[:, start : start + 1024].T)
            if asymmetry.max() > tolerance:
                row, j = np.unravel_index(np.argmax(asymmetry), asymmetry.shape)
                i = int(row) + start
                raise ValueError(
                    f"the precomputed matrix is not symmetric: {x[i, j]:g} at ({i}, {j}) and "
                    f"{x[j, i]:g} at ({j}, {i}); pass k(x, x), or (k + k.T) / 2"
                )


@node
class custom(Kernel):
    """A kernel from any function (n, d), (m, d) -> (n, m) of JAX operations.

    Args:
        fn: the block function; `params`, where given, are its last argument.
            `kernels.register(name, fn)` makes models with it loadable. `kernels.sqdist(x, z)`
            computes squared distances accurately for rows far from the origin.
        params: numbers or a pytree of them, which are leaves: `jax.grad` and `jax.vmap` reach them.
        diag_fn: (n, d) -> (n,), with `params` as `fn`; None: blocks of a single row.
        differences: whether fn is a function of x - z; it then receives rows minus their common
            shift; structure.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsvm import kernels
        >>> block = lambda x, z, width: 1 / (1 + kernels.sqdist(x, z) / width)
        >>> cauchy = kernels.custom(block, 1.0)
        >>> cauchy(jnp.array([[1e6], [1e6 + 1]]), jnp.array([[1e6]])).tolist()
        [[1.0], [0.5]]
    """

    fn: Any
    params: Any = None
    _: KW_ONLY
    diag_fn: Any = None
    differences: bool = False

    def __post_init__(self) -> None:
        rest = "" if self.params is None else ", params"
        _takes("the kernel", self.fn, f"x, z{rest}")
        if self.diag_fn is not None:
            _takes("diag", self.diag_fn, f"x{rest}")
        super().__post_init__()

    def block(self, x: object, z: object) -> Array:
        return self._called("the kernel", self.fn, "(n, d), (m, d) -> (n, m)", x, z)

    def diagonal(self, x: Array) -> Array:
        if self.diag_fn is None:
            return super().diagonal(x)
        return self._called("diag", self.diag_fn, "(n, d) -> (n,)", x)

    def _called(self, name: str, fn: Callable, form: str, *rows: object) -> Array:
        """What a function of the user gives; its errors name it and the shapes of the rows."""
        rows = tuple(a.value if isinstance(a, CentredRows) else a for a in rows)
        with calling(name, fn, form, *rows):
            return fn(*rows) if self.params is None else fn(*rows, self.params)


def _takes(name: str, fn: Callable, arguments: str) -> None:
    """Raise for NumPy functions, which JAX cannot trace, and for functions of other arguments."""
    modules = {str(getattr(thing, "__module__", "")) for thing in (fn, type(fn))}
    of_numpy = any(module.split(".")[0] == "numpy" for module in modules)
    if not callable(fn) or isinstance(fn, type) or of_numpy:
        how = ", of NumPy: write one with jax.numpy" if of_numpy else ""
        raise TypeError(
            f"{name} must be a function of {arguments} made of JAX operations, got {shown(fn)}{how}"
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # none is available
        return
    try:
        signature.bind(*arguments.split(","))
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function of {arguments}, got {shown(fn)}: {error}"
        ) from error


class _Combined(Kernel):
    """A kernel whose values are worked out from those of its parts, elementwise."""

    checks_columns = False
    differences = property(lambda self: all(part.differences for part in self.parts()))
    gammas = property(lambda self: sum((part.gammas for part in self.parts()), ()))

    @property
    def of_products(self) -> Callable | None:
        known = all(part.of_products for part in self.parts())
        # if only one is a kernel of differences, each subtracts its own shift
        if not known or len({part.differences for part in self.parts()}) > 1:
            return None
        return lambda *products: self.of(lambda part: part.of_products(*products))

    def of(self, values: Callable) -> Array:
        """The values, from those of each part."""
        raise NotImplementedError

    def block(self, x: object, z: object) -> Array:
        return self.of(lambda part: part(x, z))

    def diagonal(self, x: Array) -> Array:
        return self.of(lambda part: part.diag(x))

    def gram(self, x: Array, index: Array) -> Array:
        return self.of(lambda part: part.gram(x, index))


@node
class sum_(_Combined):
    """The sum k_a + k_b; written `a + b`."""

    a: Kernel
    b: Kernel

    def of(self, values: Callable) -> Array:
        return values(self.a) + values(self.b)


@node
class product(_Combined):
    """The elementwise product k_a k_b; written `a * b`."""

    a: Kernel
    b: Kernel

    def of(self, values: Callable) -> Array:
        return values(self.a) * values(self.b)


@node
class scaled(_Combined):
    """The multiple factor k; written `factor * k`.

    Args:
        inner: the kernel.
        factor: > 0.
    """

    inner: Kernel
    factor: float = positive()
    spectrum = property(lambda self: self.inner.spectrum)

    def of(self, values: Callable) -> Array:
        return self.factor * values(self.inner)


def by_name(name: str, gamma: Any = 1.0, coef0: object = 0.0, degree: int = 3) -> Kernel:
    """The kernel of a name, of those of the numbers that it takes.

    Args:
        name: one of `names.KERNELS`, or scikit-learn's "poly".
        gamma: 1 / (2 sigma^2) of rbf, matern12 to matern52 and rational_quadratic (alpha = 1), 1 /
            sigma of laplacian, factor of <x, z> of polynomial and sigmoid, of the sum of chi2.
        coef0: constant of polynomial and sigmoid.
        degree: of polynomial.

    Raises:
        ValueError: another name, or a number that the kernel does not take.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.kernels.by_name("laplacian", 0.5), jaxsvm.kernels.by_name("poly", 0.5, degree=2)
        (laplacian(2.0), polynomial(0.5, 0.0, degree=2))
    """
    name = ALIASES.get(name, name)
    check_choice("kernel", name, tuple(KERNELS))
    kind, numbers = globals()[name], {"gamma": gamma, "coef0": coef0, "degree": degree}
    if KERNELS[name] == ("gamma",) and name not in ("rbf", "chi2"):
        return kind(1 / gamma if name == "laplacian" else (2 * gamma) ** -0.5)  # of their width
    return kind(**{number: numbers[number] for number in KERNELS[name]})


def gamma_grid(x: Array, size: int = 8) -> np.ndarray:
    """The usual values of gamma for rows x: `size` numbers from 0.03 / m to 100 / m.

    They are evenly spaced by their logarithms; m is the median of |x_i - x_j|^2 among 512 rows,
    those of distance 0 left out.

    Args:
        x: (n, d) rows, n >= 2.
        size: how many, >= 2.

    Returns:
        (size,) increasing numbers, on the host.

    Raises:
        ValueError: all rows are equal.

    Example:
        >>> import jaxsvm, numpy as np
        >>> jaxsvm.kernels.gamma_grid(np.array([[0.0], [2.0]]), 2).round(4).tolist()
        [0.0079, 25.0]
    """
    rows: Any = matrix("x", x)
    size, n = integer("size", size, 2), rows.shape[0]
    some = rows[np.unique(np.arange(min(n, 512)) * n // min(n, 512))]
    values = np.asarray(some.materialize().value if isinstance(some, SparseRows) else some)
    unit = float(power_of_two(np.max(np.abs(values), initial=0)))
    is_real = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
    some = jax.tree.map(lambda a: a / unit if is_real(a) else a, some)
    square = np.asarray(sqdist(some, some), np.float64)[np.triu_indices(some.shape[0], 1)]
    if not (square > 0).any():
        raise ValueError(f"all {some.shape[0]} rows are equal: no gamma makes them differ")
    return np.logspace(-1.5, 2, size) / np.median(square[square > 0]) / unit**2


def holds_precomputed(kernel: Kernel) -> bool:
    """Whether the kernel contains a precomputed one, which cannot be evaluated at new rows."""
    return any(isinstance(part, precomputed) for part in nodes_in(kernel))


def as_kernel(thing: object) -> Kernel:
    """A kernel; a plain function is wrapped by `custom`.

    Raises:
        TypeError: neither a kernel nor a function.
    """
    refuse_class("kernel", thing)
    if isinstance(thing, Kernel):
        return thing
    if callable(thing) and not isinstance(thing, type):
        return custom(thing)
    raise TypeError(f"expected a kernel or a function (n, d), (m, d) -> (n, m), got {shown(thing)}")


def register(name: str, fn: Callable) -> Callable:
    """Register a user's kernel function by name, so that models with it can be saved and loaded.

    Call it before `models.load`, in every program that loads such a model.
    """
    return _node.register(name, fn)


def matvec(kernel: Kernel, x: Array, z: Array, coef: Array, block: int = 1024) -> Array:
    """The sums sum_j coef_j k(x_i, z_j) in blocks of rows.

    The shapes are (n, d), (m, d), (m,) or (m, c) -> (n,) or (n, c).
    """
    kernel, rows, points = as_kernel(kernel), matrix("x", x), matrix("z", z)
    if np.shape(coef)[:1] != points.shape[:1]:
        raise ValueError(
            f"coef must hold a number for each of the {points.shape[0]} rows of z, "
            f"got {shown(coef)}"
        )
    if is_traced(kernel, rows, points, coef):
        return _sums(kernel, rows, points, coef, block)
    # Outside of transformations this is one program. The shift is subtracted before it, as the
    # values of the rows decide how distances are computed.
    kernel = _numbers_on_host(kernel)
    if kernel.differences and not isinstance(points, CentredRows | SparseRows):
        known, known_rows = on_host(points), on_host(rows)
        if known is None or known_rows is None:
            return _sums(kernel, rows, points, coef, block)
        shift = offset(known)
        points = kernel.settled(centred(known, shift))
        rows = centred(known_rows, shift)
    return _compiled_sums(kernel, rows, points, coef, block=block)


def _sums(kernel: Kernel, x: Any, z: Any, coef: Array, block: int) -> Array:
    """As `matvec`, after its checks."""
    prepare_rows: Callable = lambda rows: rows
    if kernel.differences and not isinstance(z, CentredRows):
        shift = offset(z)  # one shift for all blocks
        z = kernel.settled(centred(z, shift))
        prepare_rows = lambda rows: centred(rows, shift)
    sums = lambda rows, z, coef: dot(kernel(prepare_rows(rows), z), coef)
    if shards(z.shape[0]) > 1:
        return _sums_over_shards(sums, x, z, coef, block)
    return blocked(lambda rows: sums(rows, z, coef), x, block)


def _sums_over_shards(sums: Callable, x: Rows, z: Rows, coef: Array, block: int) -> Array:
    """As `matvec`, where the rows of z lie on several devices: no device holds all of them.

    Of x and z, the one with fewer rows is sent to all devices, part by part.
    """
    x, z = (a.materialize() if isinstance(a, SparseRows) else a for a in (x, z))
    n, m = x.shape[0], z.shape[0]
    if n < m or shards(n) == 1:
        block = min(block, n)
        count = -(-n // block)
        rows = jnp.arange(count * block, dtype=jnp.int32).reshape(count, -1)
        part = lambda rows: jax.tree.map(lambda a: gather(a, jnp.minimum(rows, n - 1)), x)
        parts = jax.lax.map(lambda rows: sums(part(rows), z, coef), rows)
        return parts.reshape(-1, *parts.shape[2:])[:n]
    shards_of_z = jax.tree.map(lambda a: split_rows(a, shards(m)), (z, coef))

    def add(total, j):
        one = jax.tree.map(lambda a: index_row(a, j), shards_of_z)
        return total + blocked(lambda rows: sums(rows, *one), x, block), None

    zero = jnp.zeros((n, *coef.shape[1:]), jnp.result_type(accum_dtype(x), coef.dtype))
    return jax.lax.scan(add, zero, jnp.arange(shards(m), dtype=jnp.int32))[0]


_compiled_sums = functools.partial(jax.jit, static_argnames=("block",))(_sums)
