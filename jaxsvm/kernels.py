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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import recipe as _recipe
from .checks import calling, has_shape, has_values, integer, is_numeric, matrix, on_host, shown
from .names import ALIASES, KERNELS
from .numerics import (
    CentredRows,
    accum_dtype,
    blocked,
    centred,
    centred_pair,
    chi2_distances,
    count,
    cross_products,
    distances,
    dot,
    gather,
    harmonic_sums,
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
from .recipe import (
    Recipe,
    arguments_named,
    check_choice,
    check_positive,
    check_scalars,
    fields_of,
    refuse_factory,
)
from .types import Array, Batch, Hooks, SparseRows

__all__ = [
    "Kernel",
    "additive_chi2",
    "chi2",
    "cosine",
    "custom",
    "gamma_grid",
    "kernel",
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


class _Kernel(NamedTuple):
    block: Callable  # ((n, d), (m, d)) -> (n, m)
    diagonal: Callable  # (n, d)        -> (n,)
    # (x (n, d), index (b,)) -> (b, b), for kernels whose values need more than the rows of x
    among: Callable | None = None
    # k(x, z) = k(0, 0) E cos <v, x - z> with v = scale() times the columns that `draw` gives, as
    # (key, (d, q), dtype) -> (d, q); None: no such law is known
    spectrum: tuple[Callable, Callable[[], Array]] | None = None  # draw, scale
    # (<x, z>, |x|^2, |z|^2, d) -> k(x, z), elementwise; None: not a function of these
    of_products: Callable | None = None
    # k(x + a, z + a) = k(x, z): `block` receives both sides as `CentredRows` of one shift
    differences: bool = False
    gammas: tuple = ()  # the gamma of each factor or term that depends on gamma |x - z|^2

    def settled(self, rows: CentredRows) -> CentredRows:
        """The rows, marked for distances from differences where products are too inaccurate."""
        coarse = not rows.subtract and any(needs_subtraction(rows, gamma) for gamma in self.gammas)
        return dataclasses.replace(rows, subtract=True) if coarse else rows

    def __call__(self, x: Any, z: Any) -> Array:
        """As of `Kernel`; combinations of kernels call this, so that each is made once."""
        x = matrix("x", x)
        # of a combination each part checks the columns; those of a precomputed kernel may differ
        z = matrix("z", z, x.shape[1] if self.among is None else None)
        if not self.differences:
            return _shaped(self.block(x, z), x.shape[0], z.shape[0])
        first, second = centred_pair(x, z)
        return _shaped(self.block(first, self.settled(second)), x.shape[0], z.shape[0])

    def diag(self, x: Any) -> Array:
        """As of `Kernel`."""
        x = matrix("x", x)
        return _shaped(self.diagonal(x), x.shape[0])

    def gram(self, x: Any, index: Array) -> Array:
        """As of `Kernel`."""
        if self.among is not None:
            return self.among(x, index)
        rows = x[index]
        return self(rows, rows)


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


@jax.tree_util.register_pytree_with_keys_class
class Kernel(Recipe):
    """A kernel with its parameters: a callable pytree.

    Example:
        >>> import jax.numpy as jnp
        >>> k = 0.5 * rbf(sigma=1.0) + linear()
        >>> k(jnp.ones((2, 3)), jnp.ones((1, 3))).tolist()
        [[3.5], [3.5]]
    """

    __slots__ = ()

    def __call__(self, x: Array, z: Array) -> Array:
        """The block of values k(x_i, z_j), (n, d), (m, d) -> (n, m)."""
        return self.make()(x, z)

    def diag(self, x: Array) -> Array:
        """The values k(x_i, x_i), (n, d) -> (n,)."""
        return self.make().diag(x)

    def values(self, x: Array, z: Array, sqnorm: Array) -> Array:
        """The block of values k(x_i, z_j), (n, d), (m, d), (m,) -> (n, m).

        The squared norms of z are known. No shift is subtracted here: for rows far from the origin,
        subtract their `offset` first.
        """
        fields = self.make()
        if fields.of_products is None:
            return fields(x, z)
        x = x.astype(accum_dtype(x))
        return fields.of_products(
            cross_products(x, z), sqnorms(x)[:, None], sqnorm[None, :], x.shape[-1]
        )

    def offset(self, data: Batch) -> Array:
        """The common shift (d,) of the rows of positive weight.

        It is 0 for a single row, or if `differences` is false.
        """
        host = isinstance(data.x, np.ndarray)
        xp: Any = np if host else jnp
        zeros, live = xp.zeros(data.x.shape[-1], accum_dtype(data.x)), data.weight > 0
        if not self.make().differences:
            return zeros
        return xp.where((live.sum() if host else count(live)) > 1, offset(data.x, live), zeros)

    def layout(self, data: Batch) -> Batch:
        """The data with rows in the form of the fastest blocks.

        The rows are minus their shift, with their squared norms.

        Outside of transformations the values of the rows decide how distances are computed: see
        `needs_subtraction`.
        """
        fields = _numbers_on_host(self).make()
        if not fields.differences:
            return data
        rows: Any = data.x
        if not isinstance(rows, CentredRows):
            x, weight = on_host(data.x), on_host(data.weight)
            if x is None or weight is None:
                rows = centred(data.x, self.offset(data))
            else:  # by NumPy, so that nothing is compiled
                rows = jax.device_put(centred(x, self.offset(data._replace(x=x, weight=weight))))
        return data._replace(x=fields.settled(rows))

    def gram(self, x: Array, index: Array) -> Array:
        """The values among the rows `index` of `x`, (n, d), (b,) -> (b, b)."""
        return self.make().gram(x, index)

    def __add__(self, other: Any) -> Kernel:
        return sum_(self, _wrapped(other))

    def __mul__(self, other: Any) -> Kernel:
        return (
            scaled(self, other)
            if jnp.isscalar(other) or hasattr(other, "dtype")
            else product(self, _wrapped(other))
        )

    def __rmul__(self, factor: Any) -> Kernel:
        return scaled(self, factor)


def _numbers_on_host(kernel: Kernel) -> Kernel:
    """The kernel, with known parameters as NumPy's: arithmetic on them compiles no program."""

    def number(a: Any) -> Any:
        known = on_host(a)
        weak = known is not None and not known.ndim and getattr(a, "weak_type", False)
        return a if known is None else known.item() if weak else known

    return jax.tree.map(number, kernel)


_kernel = _recipe.recipe(_Kernel, Kernel)


def kernel(factory: Callable) -> Callable:
    """A decorator that makes a factory of kernels with numbers that can be swept and derived.

    `factory` returns a kernel, such as `custom(fn)`, or a function (n, d), (m, d) -> (n, m). Its
    positional arguments are leaves: a new value compiles nothing, `jax.vmap` and `jax.grad` reach
    it. Keyword arguments that are strings, booleans or integers are structure. It is called once
    where its numbers are known, so that it may refuse them. Files know the kernel by the names of
    the module and the function.

    Example:
        >>> @kernel
        ... def cauchy(width=1.0):
        ...     return lambda x, z: 1 / (1 + sqdist(x, z) / width)
        >>> cauchy(2.0)
        cauchy(2.0)
        >>> value = lambda width: cauchy(width)(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0, 0]
        >>> jax.grad(value)(1.0).tolist()
        0.25
    """

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> _Kernel:
        return _wrapped(factory(*args, **kwargs)).make()

    return _kernel(make)


@_kernel
def linear() -> _Kernel:
    """The linear kernel <x, z>."""
    return _of_products(lambda product, x, z: product, sqnorms)


def _of_products(value: Callable, diagonal: Callable) -> _Kernel:
    """A kernel that is a function of <x, z>, |x|^2 and |z|^2."""

    def block(x, z):
        x, z = x.astype(accum_dtype(x)), z.astype(accum_dtype(z))
        return value(cross_products(x, z), sqnorms(x)[:, None], sqnorms(z)[None, :])

    return _Kernel(block, diagonal, of_products=lambda product, x, z, columns: value(product, x, z))


@_kernel
def rbf(sigma: float | None = None, *, gamma: Array | None = None) -> _Kernel:
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
        >>> import jax.numpy as jnp
        >>> k = rbf(gamma=jnp.array([1.0, 1e-6]))
        >>> (k(jnp.zeros((1, 2)), jnp.eye(2)) > 0.9).tolist()
        [[False, True]]
    """
    if (sigma is None) == (gamma is None):
        raise ValueError("rbf takes sigma or gamma = 1 / (2 sigma^2), one of them")
    if sigma is not None:
        check_positive(sigma=sigma)
        square = 2 * sigma * sigma
        rate: Any = float("inf") if isinstance(square, float) and square == 0 else 1 / square
    elif has_shape(gamma):
        return _rbf_by_column(gamma)
    else:
        check_positive(gamma=gamma)
        rate = gamma

    # 1 at distance 0, also where gamma is infinite in float32.
    value = lambda square: jnp.where(square == 0, 1, jnp.exp(-rate * square))
    return _Kernel(
        lambda x, z: value(sqdist_of(x, z)),
        _ones,
        spectrum=(jax.random.normal, lambda: jnp.sqrt(2 * jnp.asarray(rate))),
        of_products=lambda *products: value(distances(*products)),
        differences=True,
        gammas=(rate,),
    )


def _rbf_by_column(gamma: Any) -> _Kernel:
    """`rbf` with one gamma for each column, (d,)."""
    wrong = "gamma must be a number above 0, or a vector with one for each column, got "
    if gamma.ndim > 1:
        raise ValueError(f"{wrong}shape {tuple(gamma.shape)}; sweep it with jax.vmap")
    known = on_host(gamma)
    if known is not None and not ((known > 0) & (known < np.inf)).all():
        raise ValueError(wrong + f"{known[~((known > 0) & (known < np.inf))][0]:g} in it")

    def block(x, z):
        if x.shape[-1] != gamma.shape[0]:
            raise ValueError(
                f"gamma holds one number for each of {gamma.shape[0]} columns, but the rows have "
                f"{x.shape[-1]}"
            )
        square = sqdist_of(x, z, jnp.asarray(gamma))
        return jnp.where(square == 0, 1, jnp.exp(-square))

    return _Kernel(block, _ones, differences=True, gammas=(gamma,))


@_kernel
def laplacian(sigma: float) -> _Kernel:
    """The Laplacian kernel exp(-|x - z|_1 / sigma).

    It is computed column by column, in n m d operations without a matrix product.

    Args:
        sigma: width, units of x, > 0.
    """
    check_positive(sigma=sigma)

    def block(x, z):
        distance = l1_distances(x.value, z.value)
        return jnp.where(distance == 0, 1, jnp.exp(-distance / sigma))

    return _Kernel(
        block, _ones, spectrum=(jax.random.cauchy, lambda: 1 / jnp.asarray(sigma)), differences=True
    )


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
        >>> import jax.numpy as jnp
        >>> k = matern(2.0, nu=0.5)(jnp.zeros((1, 1)), jnp.array([[0.0], [2.0]]))
        >>> [round(value, 3) for value in k[0].tolist()]
        [1.0, 0.368]

    Reference: C. Rasmussen, C. Williams, Gaussian processes for machine learning, 2006, section
        4.2.1.
    """
    choices = {0.5: matern12, 1.5: matern32, 2.5: matern52}
    if nu not in choices:
        raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {shown(nu)}")
    return choices[nu](sigma)


@_kernel
def matern12(sigma: float) -> _Kernel:
    """`matern(sigma, nu=0.5)`."""
    return _matern(sigma, 0.5, 0.0, lambda t: 1)


@_kernel
def matern32(sigma: float) -> _Kernel:
    """`matern(sigma, nu=1.5)`."""
    return _matern(sigma, 1.5, 3 / 2, lambda t: 1 + t)


@_kernel
def matern52(sigma: float) -> _Kernel:
    """`matern(sigma, nu=2.5)`."""
    return _matern(sigma, 2.5, 5 / 6, lambda t: 1 + t + t * t / 3)


def _matern(sigma: float, nu: float, curvature: float, factor: Callable) -> _Kernel:
    """factor(t) exp(-t) with t = sqrt(2 nu) r, which is 1 - curvature r^2 for small r."""
    check_positive(sigma=sigma)
    rate = curvature / (sigma * sigma)

    def value(square):
        away = square > 0  # the root of 0 has no derivative
        t = jnp.sqrt(2 * nu * jnp.where(away, square, 1)) / sigma
        return jnp.where(away, factor(t) * jnp.exp(-t), 1 - rate * square)

    def block(x, z):
        sparse = isinstance(x.value, SparseRows) or isinstance(z.value, SparseRows)
        if not curvature and not sparse:  # the root of a rounding error is large
            z = dataclasses.replace(z, subtract=True)
        return value(sqdist_of(x, z))

    return _Kernel(
        block,
        _ones,
        spectrum=(functools.partial(_student, nu), lambda: 1 / jnp.asarray(sigma)),
        of_products=(lambda *products: value(distances(*products))) if curvature else None,
        differences=True,
        gammas=(rate,) if curvature else (),
    )


def _student(nu: float, key: Array, shape: tuple[int, int], dtype: Any) -> Array:
    """Columns of the multivariate t distribution of 2 nu degrees of freedom."""
    for_normal, for_gamma = jax.random.split(key)
    rate = jax.random.gamma(for_gamma, nu, shape[1:], dtype) / nu
    return jax.random.normal(for_normal, shape, dtype) / jnp.sqrt(rate)[None, :]


@_kernel
def rational_quadratic(sigma: float, alpha: float = 1.0) -> _Kernel:
    """The rational quadratic kernel (1 + |x - z|^2 / (2 alpha sigma^2))^(-alpha).

    It is a mixture of Gaussian kernels of many widths; for alpha to infinity it is `rbf(sigma)`.

    Args:
        sigma: width, units of x, > 0; scikit-learn's `length_scale`.
        alpha: how few widths, > 0.

    Example:
        >>> import jax.numpy as jnp
        >>> k = rational_quadratic(1.0)(jnp.zeros((1, 1)), jnp.array([[2.0]]))
        >>> round(float(k[0, 0]), 3)
        0.333

    Reference: C. Rasmussen, C. Williams, Gaussian processes for machine learning, 2006, section
        4.2.1.
    """
    check_positive(sigma=sigma, alpha=alpha)
    rate = 1 / (2 * sigma * sigma)
    value = lambda square: jnp.exp(-alpha * jnp.log1p(square * (rate / alpha)))

    def draw(key, shape, dtype):
        for_normal, for_gamma = jax.random.split(key)
        width = jax.random.gamma(for_gamma, jnp.asarray(alpha, dtype), shape[1:]) / alpha
        return jax.random.normal(for_normal, shape, dtype) * jnp.sqrt(width)[None, :]

    return _Kernel(
        lambda x, z: value(sqdist_of(x, z)),
        _ones,
        spectrum=(draw, lambda: 1 / jnp.asarray(sigma)),
        of_products=lambda *products: value(distances(*products)),
        differences=True,
        gammas=(rate,),
    )


def _ones(x: Any) -> Array:
    """The values k(x_i, x_i) = 1."""
    return jnp.ones(x.shape[0], accum_dtype(x))


@_kernel
def cosine() -> _Kernel:
    """The cosine <x, z> / (|x| |z|), 0 for rows of zeros.

    Example:
        >>> import jax.numpy as jnp
        >>> k = cosine()(jnp.array([[3.0, 4.0], [0.0, 0.0]]), jnp.array([[0.0, 2.0]]))
        >>> [round(value, 3) for value in k[:, 0].tolist()]
        [0.8, 0.0]
    """

    def inverse_norm(square):
        return jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)

    return _of_products(
        lambda product, x, z: product * inverse_norm(x) * inverse_norm(z),
        lambda x: (sqnorms(x) > 0).astype(accum_dtype(x)),
    )


@_kernel
def additive_chi2() -> _Kernel:
    """The additive chi-squared kernel sum_j 2 x_j z_j / (x_j + z_j), for columns of at least 0.

    scikit-learn's `additive_chi2_kernel` is 2 k(x, z) - |x|_1 - |z|_1, which is not positive
    semi-definite. With a free bias both give the same machine, at C/2 and C. Values of rows that
    hold a negative number are nan. It is computed column by column, in n m d operations.

    Example:
        >>> import jax.numpy as jnp
        >>> additive_chi2()(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 0.0]])).tolist()
        [[1.5]]

    Reference: A. Vedaldi, A. Zisserman, Efficient additive kernels via explicit feature maps, IEEE
        PAMI 34, 2012.
    """
    return _Kernel(
        lambda x, z: _of_histograms(x, z, harmonic_sums(x, z)),
        lambda x: _of_histograms(x, None, row_sums(x)),
    )


@_kernel
def chi2(gamma: float = 1.0) -> _Kernel:
    """The exponential chi-squared kernel exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j)).

    It is for columns of at least 0, such as histograms. Values of rows that hold a negative number
    are nan. It is computed column by column, in n m d operations without a matrix product.

    Args:
        gamma: > 0, as of scikit-learn's `chi2_kernel`.

    Example:
        >>> import jax.numpy as jnp
        >>> k = chi2(0.5)(jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 2.0]]))
        >>> round(float(k[0, 0]), 3)
        0.607

    Reference: J. Zhang, M. Marszalek, S. Lazebnik, C. Schmid, Local features and kernels for
        classification of texture and object categories, IJCV 73, 2007.
    """
    check_positive(gamma=gamma)
    return _Kernel(
        lambda x, z: _of_histograms(x, z, jnp.exp(-gamma * chi2_distances(x, z))),
        lambda x: _of_histograms(x, None, _ones(x)),
    )


def _of_histograms(x: Any, z: Any, values: Array) -> Array:
    """The values (n, m), or (n,) without z; nan for rows that hold a negative number."""

    def is_negative(rows):
        rows = rows.materialize().value if isinstance(rows, SparseRows) else rows
        return jnp.any(rows < 0, axis=1)

    wrong = is_negative(x) if z is None else is_negative(x)[:, None] | is_negative(z)[None, :]
    return jnp.where(wrong, jnp.nan, values)


@_kernel
def polynomial(gamma: float = 1.0, coef0: float = 1.0, *, degree: int = 3) -> _Kernel:
    """The polynomial kernel (gamma <x, z> + coef0)^degree.

    Args:
        gamma: > 0.
        coef0: >= 0 for a positive semi-definite kernel.
        degree: integer >= 0; structure.
    """
    check_positive(gamma=gamma)
    check_scalars(coef0=coef0)
    integer("degree", degree, 0)
    return _of_products(
        lambda product, x, z: (gamma * product + coef0) ** degree,
        lambda x: (gamma * sqnorms(x) + coef0) ** degree,
    )


@_kernel
def sigmoid(gamma: float = 1.0, coef0: float = 0.0) -> _Kernel:
    """The sigmoid kernel tanh(gamma <x, z> + coef0).

    It is not positive semi-definite: duals need not be concave.

    Args:
        gamma: > 0.
        coef0: any number.
    """
    check_positive(gamma=gamma)
    check_scalars(coef0=coef0)
    return _of_products(
        lambda product, x, z: jnp.tanh(gamma * product + coef0),
        lambda x: jnp.tanh(gamma * sqnorms(x) + coef0),
    )


@_kernel
def precomputed() -> _Kernel:
    """A precomputed kernel matrix: the rows of `x` are rows of the matrix of k(row, training rows).

    Train on the (n, n) matrix, predict on (m, n) blocks; the second argument is always the training
    set.
    """

    def block(x, z):
        if x.shape[1] != z.shape[0]:
            raise ValueError(
                f"a precomputed block has a column for each of the {z.shape[0]} "
                f"training rows, got {x.shape[1]}"
            )
        return x.astype(accum_dtype(x))

    among = lambda x, index: x[index][:, index].astype(accum_dtype(x))
    return _Kernel(block, lambda x: jnp.diagonal(x).astype(accum_dtype(x)), among)


@_kernel
def custom(fn: Callable, diag: Callable | None = None, *, differences: bool = False) -> _Kernel:
    """A kernel from any function (n, d), (m, d) -> (n, m) of JAX operations.

    Args:
        fn: the block function. `kernels.register(name, fn)` makes models with it loadable.
            `kernels.sqdist(x, z)` computes squared distances accurately for rows far from the
            origin.
        diag: (n, d) -> (n,); None: blocks of a single row.
        differences: whether fn is a function of x - z; it then receives rows minus their common
            shift; structure.

    Example:
        >>> import jax.numpy as jnp
        >>> cauchy = custom(lambda x, z: 1 / (1 + sqdist(x, z)))
        >>> cauchy(jnp.array([[1e6], [1e6 + 1]]), jnp.array([[1e6]])).tolist()
        [[1.0], [0.5]]
    """
    _takes("the kernel", fn, "x, z")
    if diag is not None:
        _takes("diag", diag, "x")
    block, diag_fn = _of_jax("the kernel", fn), None if diag is None else _of_jax("diag", diag)
    if differences:
        block, diag_fn = _plain_rows(block), None if diag_fn is None else _plain_rows(diag_fn)
    row_by_row = lambda x: jax.vmap(lambda row: _shaped(block(row[None], row[None]), 1, 1)[0, 0])(x)
    return _Kernel(block, diag_fn or row_by_row, differences=differences)


def _plain_rows(fn: Callable) -> Callable:
    """A user's function, called with rows as arrays."""
    return lambda *sides: fn(
        *(rows.value if isinstance(rows, CentredRows) else rows for rows in sides)
    )


def _takes(name: str, fn: Callable, arguments: str) -> None:
    """Raise for NumPy functions, which JAX cannot trace, and for functions of other arguments."""
    of_numpy = any(
        str(getattr(thing, "__module__", "")).split(".")[0] == "numpy" for thing in (fn, type(fn))
    )
    if not callable(fn) or isinstance(fn, type) or of_numpy:
        how = ", of NumPy: write one with jax.numpy" if of_numpy else ""
        raise TypeError(
            f"{name} must be a function of {arguments} made of JAX operations, got {shown(fn)}{how}"
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # no signature is available
        return
    try:
        signature.bind(*arguments.split(","))
    except TypeError as error:
        raise TypeError(
            f"{name} must be a function of {arguments}, got {shown(fn)}: {error}"
        ) from error


def _of_jax(name: str, fn: Callable) -> Callable:
    """A user's function whose errors name it and the shapes of the rows."""

    def call(*rows):
        form = "(n, d), (m, d) -> (n, m)" if len(rows) == 2 else "(n, d) -> (n,)"
        with calling(name, fn, form, *rows):
            return fn(*rows)

    return call


@_kernel
def sum_(a: Kernel, b: Kernel) -> _Kernel:
    """The sum k_a + k_b; written `a + b`."""
    return _both(jnp.add, a, b)


def _both(join: Callable, a: Kernel, b: Kernel) -> _Kernel:
    """Two kernels combined elementwise by `join`."""
    first, second = _wrapped(a).make(), _wrapped(b).make()
    fns, same_kind = (
        (first.of_products, second.of_products),
        first.differences == second.differences,
    )
    return _Kernel(
        lambda x, z: join(first(x, z), second(x, z)),
        lambda x: join(first.diag(x), second.diag(x)),
        lambda x, index: join(first.gram(x, index), second.gram(x, index)),
        # If only one is a kernel of differences, each subtracts its own shift.
        of_products=None
        if None in fns or not same_kind
        else lambda *products: join(fns[0](*products), fns[1](*products)),
        differences=first.differences and second.differences,
        gammas=first.gammas + second.gammas,
    )


@_kernel
def product(a: Kernel, b: Kernel) -> _Kernel:
    """The elementwise product k_a k_b; written `a * b`."""
    return _both(jnp.multiply, a, b)


@_kernel
def scaled(inner: Kernel, factor: float) -> _Kernel:
    """The multiple factor k; written `factor * k`.

    Args:
        inner: the kernel.
        factor: > 0.
    """
    check_positive(factor=factor)
    fields = _wrapped(inner).make()
    return _Kernel(
        lambda x, z: factor * fields(x, z),
        lambda x: factor * fields.diag(x),
        lambda x, index: factor * fields.gram(x, index),
        fields.spectrum,
        None
        if fields.of_products is None
        else lambda *products: factor * fields.of_products(*products),
        fields.differences,
        fields.gammas,
    )


@_kernel
def in_units(inner: Kernel, unit: float) -> _Kernel:
    """The kernel k(x / unit, z / unit), for rows whose squares leave the range of float32.

    Args:
        inner: the kernel k.
        unit: size of the numbers in the rows, > 0; with a power of two the division is exact.
    """
    check_positive(unit=unit)
    fields = _wrapped(inner).make()
    return _Kernel(
        lambda x, z: fields(_divided(x, unit), _divided(z, unit)),
        lambda x: fields.diag(_divided(x, unit)),
        lambda x, index: fields.gram(_divided(x, unit), index),
        spectrum=None
        if fields.spectrum is None
        else (fields.spectrum[0], lambda: fields.spectrum[1]() / unit),
    )


def _divided(x: Any, unit: Any) -> Any:
    """The rows divided by a number."""
    if isinstance(x, SparseRows):
        x = x.materialize()
        return dataclasses.replace(x, value=x.value / unit)
    return x.astype(accum_dtype(x)) / unit


def by_name(name: str, gamma: Any = 1.0, coef0: Any = 0.0, degree: int = 3) -> Kernel:
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
        >>> by_name("laplacian", 0.5), by_name("poly", 0.5, degree=2)
        (laplacian(2.0), polynomial(0.5, 0.0, degree=2))
    """
    makers: dict[str, Callable[[], Kernel]] = {
        "linear": linear,
        "rbf": lambda: rbf(gamma=gamma),
        "laplacian": lambda: laplacian(1 / gamma),
        "matern12": lambda: matern12((2 * gamma) ** -0.5),
        "matern32": lambda: matern32((2 * gamma) ** -0.5),
        "matern52": lambda: matern52((2 * gamma) ** -0.5),
        "rational_quadratic": lambda: rational_quadratic((2 * gamma) ** -0.5),
        "cosine": cosine,
        "chi2": lambda: chi2(gamma),
        "additive_chi2": additive_chi2,
        "polynomial": lambda: polynomial(gamma, coef0, degree=degree),
        "sigmoid": lambda: sigmoid(gamma, coef0),
        "precomputed": precomputed,
    }
    name = ALIASES.get(name, name)
    check_choice("kernel", name, tuple(KERNELS))
    return makers[name]()


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
        >>> gamma_grid(np.array([[0.0], [2.0]]), 2).round(4).tolist()
        [0.0079, 25.0]
    """
    rows: Any = matrix("x", x)
    size, n = integer("size", size, 2), rows.shape[0]
    some = rows[np.unique(np.arange(min(n, 512)) * n // min(n, 512))]
    values = np.asarray(some.materialize().value if isinstance(some, SparseRows) else some)
    unit = float(power_of_two(np.max(np.abs(values), initial=0)))
    some = _divided(some, unit)
    square = np.asarray(sqdist(some, some), np.float64)[np.triu_indices(some.shape[0], 1)]
    if not (square > 0).any():
        raise ValueError(f"all {some.shape[0]} rows are equal: no gamma makes them differ")
    return np.logspace(-1.5, 2, size) / np.median(square[square > 0]) / unit**2


def holds_precomputed(kernel: Kernel) -> bool:
    """Whether the kernel contains a precomputed one, which cannot be evaluated at new rows."""
    return _holds(kernel, precomputed)


def holds_custom(thing: Any) -> bool:
    """Whether this is a function of the user, or a kernel of rows that contains one."""
    if not isinstance(thing, Kernel):
        return callable(thing)
    return _holds(thing, custom) and not holds_precomputed(thing)


def _calls(kernel: Kernel) -> Iterator[tuple[Callable, tuple, dict]]:
    """The factory and arguments of the kernel, and of each of which it is made."""
    factory, args, kwargs = kernel.call()
    yield factory, args, kwargs
    for part in (*args, *kwargs.values()):
        if isinstance(part, Kernel):
            yield from _calls(part)


def _holds(kernel: Kernel, kind: Callable) -> bool:
    """Whether the kernel, or one of which it is made, is of the factory `kind`."""
    return any(factory is kind for factory, _, _ in _calls(kernel))


def _has_diag(kernel: Kernel) -> bool:
    """Whether it, or one of which it is made, is of a function for the diagonal of the user's."""
    return any(factory is custom and args[1] is not None for factory, args, _ in _calls(kernel))


def rows_check(kernel: Kernel) -> Callable | None:
    """The check of the data that a kernel needs, as `Hooks.validate`; None: no check."""
    checks: list[Callable] = []
    if holds_precomputed(kernel):
        checks.append(functools.partial(check_symmetric, kernel))
    if _holds(kernel, chi2) or _holds(kernel, additive_chi2):
        checks.append(functools.partial(check_not_negative, kernel))
    return functools.partial(_check_all, tuple(checks)) if checks else None


def _check_all(checks: tuple[Callable, ...], data: Batch) -> None:
    for check in checks:
        check(data)


def check_not_negative(kernel: Kernel, data: Batch) -> None:
    """Check that no row of positive weight holds a negative number.

    Raises:
        ValueError: one does, with its number and the value.
    """
    rows = data.x.materialize().value if isinstance(data.x, SparseRows) else data.x
    x, live = on_host(rows), on_host(data.weight)
    if x is None or live is None or not (wrong := (x < 0).any(axis=1) & (live > 0)).any():
        return
    row = int(np.argmax(wrong))
    raise ValueError(
        f"{kernel!r} takes rows of numbers of at least 0, got {x[row].min():g} in row {row}: scale "
        "the columns to [0, 1], such as by jaxsvm.data.scale"
    )


def check_symmetric(kernel: Kernel, data: Batch) -> None:
    """Check on the host, block by block, that a precomputed matrix is symmetric.

    Raises:
        ValueError: not symmetric, with the position and the two values.
    """
    if not holds_precomputed(kernel):
        return
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


def check_custom(kernel: Kernel, data: Batch) -> None:
    """Check a kernel of the user at eight of the rows.

    Raises:
        ValueError: a value that is not finite, not symmetric, k(x, x) < 0, another one than that of
            `diag`; with the rows and the values.
    """
    live = np.flatnonzero(np.asarray(data.weight) > 0)
    rows = live[np.linspace(0, len(live) - 1, min(8, len(live))).astype(int)]
    x = on_host(data.x)
    x = data.x[rows] if x is None else x[rows]
    values = np.asarray(kernel(x, x), float)
    if not np.isfinite(values).all():
        i, j = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"the kernel must give finite numbers, got {values[i, j]} for rows {rows[i]} and "
            f"{rows[j]}: mend the function of kernels.custom, or scale the rows"
        )
    diag = np.diagonal(values)
    rounding = 10 * float(jnp.finfo(accum_dtype(data.x)).eps) ** 0.5 * np.abs(values).max()
    if diag.min() < -rounding:
        i = np.argmin(diag)
        raise ValueError(
            f"the kernel must be positive semi-definite, got k(x, x) = {diag[i]:g} for row "
            f"{rows[i]}: mend the function of kernels.custom"
        )
    given = np.asarray(kernel.diag(x), float) if _has_diag(kernel) else diag
    if not np.abs(diag - given).max() <= 0.1 * np.abs(values).max():
        i = np.argmax(np.abs(diag - given))
        raise ValueError(
            f"diag of kernels.custom must give k(x, x), got {given[i]:g} where k(x, x) = "
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


def check_kernels(solver: Any, data: Batch) -> None:
    """Raise for kernels of the user that are none on known rows, before a feature map."""
    kernels = [*filter(holds_custom, arguments_named("kernel", solver))]
    is_known = kernels and has_values(solver, data) and not is_traced()
    if is_known and fields_of(solver).prepare is Hooks().prepare:
        for kernel in kernels:
            check_custom(as_kernel(kernel), data)


def as_kernel(thing: Any) -> Kernel:
    """A kernel, after a check of its parameters; a plain function is wrapped by `custom`.

    Raises:
        TypeError: neither a kernel nor a function.
        ValueError: parameters out of range.
    """
    result = _wrapped(thing)
    result.make()
    return result


def _wrapped(thing: Any) -> Kernel:
    refuse_factory("kernel", thing)
    if isinstance(thing, Kernel):
        return thing
    if callable(thing) and not isinstance(thing, type):
        return custom(thing)
    raise TypeError(f"expected a kernel or a function (n, d), (m, d) -> (n, m), got {shown(thing)}")


def register(name: str, fn: Callable) -> Callable:
    """Register a user's kernel function by name, so that models with it can be saved and loaded.

    Call it before `models.load`, in every program that loads such a model.
    """
    return _recipe.register(name, fn)


def matvec(kernel: Kernel, x: Array, z: Array, coef: Array, block: int = 1024) -> Array:
    """The sums sum_j coef_j k(x_i, z_j) in blocks of rows.

    The shapes are (n, d), (m, d), (m,) or (m, c) -> (n,) or (n, c).
    """
    kernel = kernel if isinstance(kernel, Kernel) else as_kernel(kernel)
    integer("block", block, 1)
    rows: Any = matrix("x", x)
    points: Any = matrix("z", z)
    if not hasattr(coef, "shape") or coef.shape[:1] != (points.shape[0],):
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
        points = kernel.make().settled(centred(known, shift))
        rows = centred(known_rows, shift)
    return _compiled_sums(kernel, rows, points, coef, block=block)


def _sums(kernel: Kernel, x: Any, z: Any, coef: Array, block: int) -> Array:
    """As `matvec`, after its checks."""
    prepare_rows: Callable = lambda rows: rows
    if kernel.differences and not isinstance(z, CentredRows):
        shift = offset(z)  # one shift for all blocks
        z = kernel.make().settled(centred(z, shift))
        prepare_rows = lambda rows: centred(rows, shift)
    sums = lambda rows, z, coef: dot(kernel(prepare_rows(rows), z), coef)
    if shards(z.shape[0]) > 1:
        return _sums_over_shards(sums, x, z, coef, block)
    return blocked(lambda rows: sums(rows, z, coef), x, block)


def _sums_over_shards(sums: Callable, x: Any, z: Any, coef: Array, block: int) -> Array:
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
