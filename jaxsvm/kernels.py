"""Kernels: block functions (n, d), (m, d) -> (n, m) made of matrix products, as pytrees of their parameters.

`kernel(x, z)` is a block, `kernel.diag(x)` the values k(x_i, x_i); `+`, `*` combine kernels, a number in front scales.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import recipe as _recipe
from .checks import integer, matrix, shown
from .numerics import blocked, dot, inner, l1_distances, sqnorms, wide
from .recipe import Recipe, positive, refuse_factory, scalars
from .types import Array, Batch, SparseRows


class _Kernel(NamedTuple):
    block: Callable  # ((n, d), (m, d)) -> (n, m)
    diagonal: Callable  # (n, d)        -> (n,)
    among: Callable | None = None  # (x (n, d), index (b,)) -> (b, b), where rows of x alone do not tell
    # k(x, z) = k(0, 0) E cos <v, x - z> with v = scale times independent draws of this name; None: no such law is known
    spectrum: tuple[str, Array] | None = None  # ("normal" | "cauchy", scale ())
    # (<x, z>, |x|^2, |z|^2) -> k(x, z), value by value; None: products do not tell
    of_products: Callable | None = None


def _shaped(values: Array, n: int, m: int) -> Array:
    """A block of values as it is, if it has the shape of one."""
    if jnp.shape(values) != (n, m):
        raise ValueError(f"the kernel returned shape {jnp.shape(values)} for {n} and {m} rows, expected ({n}, {m})")
    return values


@jax.tree_util.register_pytree_node_class
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
        matrix("x", x)
        matrix("z", z, None if holds_precomputed(self) else x.shape[1])
        return _shaped(self.make().block(x, z), x.shape[0], z.shape[0])

    def diag(self, x: Array) -> Array:
        """The values k(x_i, x_i), (n, d) -> (n,)."""
        matrix("x", x)
        return self.make().diagonal(x)

    def values(self, x: Array, z: Array, sqnorm: Array) -> Array:
        """The block of values as of a call, (n, d), (m, d), (m,) -> (n, m), where the squared norms of z are known."""
        made = self.make()
        if made.of_products is None:
            return self(x, z)
        x = x.astype(wide(x))
        return made.of_products(inner(x, z), sqnorms(x)[:, None], sqnorm[None, :])

    def gram(self, x: Array, index: Array) -> Array:
        """The values among the rows `index` of `x`, (n, d), (b,) -> (b, b)."""
        made = self.make()
        if made.among is not None:
            return made.among(x, index)
        rows = x[index]
        return self(rows, rows)

    def __add__(self, other: Any) -> Kernel:
        return sum_(self, _wrapped(other))

    def __mul__(self, other: Any) -> Kernel:
        return scaled(self, other) if jnp.isscalar(other) or hasattr(other, "dtype") else product(self, _wrapped(other))

    def __rmul__(self, factor: Any) -> Kernel:
        return scaled(self, factor)


kernel = _recipe.recipe(_Kernel, Kernel)


@kernel
def linear() -> _Kernel:
    """<x, z>."""
    return _of_products(lambda product, x, z: product, sqnorms)


def _of_products(value: Callable, diagonal: Callable, **known: Any) -> _Kernel:
    """A kernel that is a function of <x, z>, |x|^2 and |z|^2."""

    def block(x, z):
        x, z = x.astype(wide(x)), z.astype(wide(z))
        return value(inner(x, z), sqnorms(x)[:, None], sqnorms(z)[None, :])

    return _Kernel(block, diagonal, of_products=value, **known)


@kernel
def rbf(sigma: float | None = None, *, gamma: float | None = None) -> _Kernel:
    """exp(-|x - z|^2 / (2 sigma^2)), or exp(-gamma |x - z|^2): the Gaussian kernel.

    Args:
        sigma: width, units of x, > 0.
        gamma: 1 / (2 sigma^2); give one of the two.

    Raises:
        ValueError: if both or neither are given, or the one is not above 0.
    """
    if (sigma is None) == (gamma is None):
        raise ValueError("rbf takes sigma or gamma = 1 / (2 sigma^2), one of them")
    if sigma is not None:
        positive(sigma=sigma)
        gamma = 1 / (2 * sigma * sigma)
    else:
        positive(gamma=gamma)
    return _of_products(
        lambda product, x, z: jnp.exp(-gamma * jnp.maximum(x + z - 2 * product, 0)),
        lambda x: jnp.ones(x.shape[0], wide(x)),
        spectrum=("normal", jnp.sqrt(2 * jnp.asarray(gamma))),
    )


@kernel
def laplacian(sigma: float) -> _Kernel:
    """exp(-|x - z|_1 / sigma); costs n m d operations that are not a matrix product, one column at a time.

    Args:
        sigma: width, units of x, > 0.
    """
    positive(sigma=sigma)

    def block(x, z):
        return jnp.exp(-l1_distances(x.astype(wide(x)), z.astype(wide(z))) / sigma)

    return _Kernel(block, lambda x: jnp.ones(x.shape[0], wide(x)), spectrum=("cauchy", 1 / jnp.asarray(sigma)))


@kernel
def polynomial(gamma: float = 1.0, coef0: float = 1.0, *, degree: int = 3) -> _Kernel:
    """(gamma <x, z> + coef0)^degree.

    Args:
        gamma: > 0.
        coef0: >= 0 for a positive semi-definite kernel.
        degree: whole number >= 1, structure.
    """
    positive(gamma=gamma)
    scalars(coef0=coef0)
    integer("degree", degree, 1)
    return _of_products(
        lambda product, x, z: (gamma * product + coef0) ** degree,
        lambda x: (gamma * sqnorms(x) + coef0) ** degree,
    )


@kernel
def sigmoid(gamma: float = 1.0, coef0: float = 0.0) -> _Kernel:
    """tanh(gamma <x, z> + coef0); not positive semi-definite, so dual objectives need not be concave.

    Args:
        gamma: > 0.
        coef0: any number.
    """
    positive(gamma=gamma)
    scalars(coef0=coef0)
    return _of_products(
        lambda product, x, z: jnp.tanh(gamma * product + coef0),
        lambda x: jnp.tanh(gamma * sqnorms(x) + coef0),
    )


@kernel
def precomputed() -> _Kernel:
    """Values worked out beforehand: the rows of `x` are rows of the matrix of k(row, training rows).

    Train on the (n, n) matrix, predict on (m, n) blocks; the second argument is always the training set.
    """

    def block(x, z):
        if x.shape[1] != z.shape[0]:
            raise ValueError(f"a precomputed block has a column for each of the {z.shape[0]} training rows, got {x.shape[1]}")
        return x.astype(wide(x))

    among = lambda x, index: x[index][:, index].astype(wide(x))  # noqa: E731
    return _Kernel(block, lambda x: jnp.diagonal(x).astype(wide(x)), among)


@kernel
def custom(fn: Callable, diag: Callable | None = None) -> _Kernel:
    """Any function (n, d), (m, d) -> (n, m), made of JAX operations, as a kernel.

    Args:
        fn: the block function. `kernels.register(name, fn)` makes models with it loadable.
        diag: (n, d) -> (n,); by default one block of one row at a time.
    """
    _takes("the kernel", fn, "x, z")
    if diag is not None:
        _takes("diag", diag, "x")
    block, given = _of_jax("the kernel", fn), None if diag is None else _of_jax("diag", diag)
    alone = lambda x: jax.vmap(lambda row: _shaped(block(row[None], row[None]), 1, 1)[0, 0])(x)  # noqa: E731
    return _Kernel(block, given or alone)


def _takes(name: str, fn: Callable, arguments: str) -> None:
    """Refuse functions of NumPy, which JAX cannot trace, and those of other arguments."""
    of_numpy = any(str(getattr(thing, "__module__", "")).split(".")[0] == "numpy" for thing in (fn, type(fn)))
    if not callable(fn) or isinstance(fn, type) or of_numpy:
        how = ", of NumPy: write one with jax.numpy" if of_numpy else ""
        raise TypeError(f"{name} must be a function of {arguments} made of JAX operations, got {shown(fn)}{how}")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # one that does not tell
        return
    try:
        signature.bind(*arguments.split(","))
    except TypeError as error:
        raise TypeError(f"{name} must be a function of {arguments}, got {shown(fn)}: {error}") from error


def _of_jax(name: str, fn: Callable) -> Callable:
    """A user's function that says so where it hands its arguments to NumPy."""

    def call(*rows):
        try:
            return fn(*rows)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                f"{name}, {shown(fn)}, asks for the values of its rows: write it with jax.numpy, not NumPy"
            ) from error

    return call


@kernel
def sum_(a: Kernel, b: Kernel) -> _Kernel:
    """k_a + k_b; written `a + b`."""
    return _both(jnp.add, a, b)


def _both(join: Callable, a: Kernel, b: Kernel) -> _Kernel:
    """Two kernels joined value by value."""
    of = a.make().of_products, b.make().of_products
    return _Kernel(
        lambda x, z: join(a(x, z), b(x, z)),
        lambda x: join(a.diag(x), b.diag(x)),
        lambda x, index: join(a.gram(x, index), b.gram(x, index)),
        of_products=None if None in of else lambda *products: join(of[0](*products), of[1](*products)),
    )


@kernel
def product(a: Kernel, b: Kernel) -> _Kernel:
    """k_a k_b, value by value; written `a * b`."""
    return _both(jnp.multiply, a, b)


@kernel
def scaled(inner: Kernel, factor: float) -> _Kernel:
    """factor k; written `factor * k`.

    Args:
        inner: the kernel.
        factor: > 0.
    """
    positive(factor=factor)
    made = inner.make()
    return _Kernel(
        lambda x, z: factor * inner(x, z),
        lambda x: factor * inner.diag(x),
        lambda x, index: factor * inner.gram(x, index),
        made.spectrum,
        None if made.of_products is None else lambda *products: factor * made.of_products(*products),
    )


def holds_precomputed(kernel: Kernel) -> bool:
    """Whether values of the kernel were worked out beforehand, so that it says nothing of new rows."""
    factory, args, kwargs = kernel.call()
    parts = [part for part in (*args, *kwargs.values()) if isinstance(part, Kernel)]
    return factory is precomputed or any(map(holds_precomputed, parts))


def check_symmetric(kernel: Kernel, data: Batch) -> None:
    """Refuse precomputed values that are not those of a symmetric matrix, one block of rows at a time, on the host.

    Raises:
        ValueError: with the place and the two values.
    """
    if not holds_precomputed(kernel):
        return
    if isinstance(data.x, SparseRows):
        raise ValueError("a precomputed matrix must be dense, got sparse rows: pass it as an array, such as K.toarray()")
    x = np.asarray(data.x)
    n = x.shape[0]
    if x.shape != (n, n):
        raise ValueError(f"a precomputed matrix for {n} rows has shape ({n}, {n}), got {x.shape}: k(row, training row)")
    room = 1e-5 * max(float(np.abs(x).max()), np.finfo(np.float32).tiny)
    for start in range(0, n, 1024):
        apart = np.abs(x[start : start + 1024] - x[:, start : start + 1024].T)
        if apart.max() > room:
            i, j = np.unravel_index(np.argmax(apart), apart.shape)
            i += start
            raise ValueError(
                f"the precomputed matrix is not symmetric: {x[i, j]:g} at ({i}, {j}) and {x[j, i]:g} at ({j}, {i}); "
                "pass k(x, x), or (k + k.T) / 2"
            )


def as_kernel(thing: Any) -> Kernel:
    """A kernel as it is, its numbers checked where they are known; a plain function wrapped.

    Raises:
        TypeError: for anything else.
        ValueError: for a kernel whose numbers are out of range.
    """
    made = _wrapped(thing)
    made.make()
    return made


def _wrapped(thing: Any) -> Kernel:
    refuse_factory("kernel", thing)
    if isinstance(thing, Kernel):
        return thing
    if callable(thing) and not isinstance(thing, type):
        return custom(thing)
    raise TypeError(f"expected a kernel or a function (n, d), (m, d) -> (n, m), got {shown(thing)}")


def register(name: str, fn: Callable) -> Callable:
    """Make a kernel function of your own known by name, so that models with it can be saved and loaded.

    Call it before `models.load`, in every program that loads such a model.
    """
    return _recipe.register(name, fn)


def matvec(kernel: Kernel, x: Array, z: Array, coef: Array, block: int = 1024) -> Array:
    """sum_j coef_j k(x_i, z_j) in blocks of rows, (n, d), (m, d), (m,) or (m, c) -> (n,) or (n, c)."""
    kernel = kernel if isinstance(kernel, Kernel) else as_kernel(kernel)
    integer("block", block, 1)
    matrix("x", x)
    matrix("z", z)
    if not hasattr(coef, "shape") or coef.shape[:1] != (z.shape[0],):
        raise ValueError(f"coef must hold a number for each of the {z.shape[0]} rows of z, got {shown(coef)}")
    return blocked(lambda rows: dot(kernel(rows, z), coef), x, block)
