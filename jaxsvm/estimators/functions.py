"""Kernels of arrays of NumPy: plain functions, and the usual kernels of few rows."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import threadpoolctl

from .. import kernels
from ..checks import is_sparse
from ..kernels import Kernel


def is_function(kernel: object) -> bool:
    """Whether the kernel parameter is a plain function, not a kernel of jaxsvm or its class."""
    return callable(kernel) and not isinstance(kernel, type | Kernel)


def as_numbers(X: object) -> Any:
    """The rows as a float64 array; sparse rows and objects such as strings as they are.

    A series of pandas becomes an array, so that its index plays no role.
    """
    if is_sparse(X):
        return X.tocsr()
    try:
        rows = np.asarray(X)
        if rows.ndim == 2 and rows.dtype.kind in "fiub":
            return rows.astype(np.float64)
        return rows if hasattr(X, "iloc") and rows.ndim == 1 else X
    except (TypeError, ValueError):
        return X


def kernel_matrix(fn: Any, rows: Any, other: Any) -> np.ndarray:
    """The values (n, m) of a function of arrays at n rows and m others."""
    values = fn(rows, other)
    values = np.asarray(values.toarray() if is_sparse(values) else values, np.float64)
    n, m = (x.shape[0] if is_sparse(x) else len(x) for x in (rows, other))
    if values.shape != (n, m):
        raise ValueError(
            f"the kernel function must give an array of shape ({n}, {m}) for {n} rows and {m} "
            f"others, got shape {values.shape}"
        )
    return values


def _rbf(kernel: kernels.rbf, x: np.ndarray, z: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values exp(-rate |x - z|^2): of one row by its distances, of more by one product."""
    if len(x) == 1:
        gap = z - x
        return np.exp(-kernel.rate * np.einsum("nd,nd->n", gap, gap)[None].astype(dtype))
    shift = z[:1].sum(axis=0)  # of rows far from 0 products lose digits
    x, z = x - shift, z - shift
    square, one = lambda a: np.einsum("nd,nd->n", a, a)[:, None], lambda a: np.ones((len(a), 1))
    left = kernel.rate * np.hstack([2 * x, -square(x), -one(x)])
    power = (left @ np.hstack([z, one(z), square(z)]).T).astype(dtype, copy=False)
    return np.exp(np.minimum(power, 0, out=power), out=power)


VALUES: dict[type[Kernel], Callable] = {
    kernels.linear: lambda k, x, z, _: x @ z.T,
    kernels.rbf: _rbf,
    kernels.polynomial: lambda k, x, z, _: (k.gamma * (x @ z.T) + k.coef0) ** k.degree,
    kernels.sigmoid: lambda k, x, z, _: np.tanh(k.gamma * (x @ z.T) + k.coef0),
}


def kernel_values(
    kernel: Kernel, x: np.ndarray, z: np.ndarray, dtype: object, coef: Any = None
) -> np.ndarray:
    """The values (n, m) of a kernel of `VALUES` at dense rows, of sums in float64.

    With coefficients (m,) or (k, m) their sums, (n,) or (n, k).
    """
    numbers, rows = jax.tree.map(np.asarray, kernel), np.float64(z)
    threads = one_thread() if len(x) > 1 else contextlib.nullcontext()
    with threads, np.errstate(over="ignore"):  # what is too large makes no finite model
        values = VALUES[type(kernel)](numbers, rows if x is z else np.float64(x), rows, dtype)
        values = values.astype(dtype, copy=False)
        return values if coef is None else values @ coef.T


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread for products of NumPy: several wait for longer than small products take.

    The number is one of the process, so that callers wait for each other.
    """
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield


_controller, _lock = functools.cache(threadpoolctl.ThreadpoolController), threading.RLock()
