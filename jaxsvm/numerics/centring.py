"""Squared distances that stay accurate for rows far from the origin.

|x - z|^2 = |x|^2 + |z|^2 - 2 <x, z> needs one matrix product, but has an error of eps |x|^2.
Distances are invariant under a common shift, so one is subtracted from both sides first. The error
is then relative to the spread of the rows.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from ..types import Array, Rows, SparseRows
from .products import above_rounding, accum_dtype, cross_products, dot, sqnorms
from .reductions import fold, is_traced
from .sharding import mesh_of


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("value", "sqnorm"), meta_fields=("subtract",)
)
@dataclasses.dataclass(frozen=True, eq=False)
class CentredRows:
    """Rows minus a common shift, with their squared norms, computed once.

    It is the argument of kernels of differences. It supports what an (n, d) array of rows does:
    `shape`, `dtype`, `astype`, indexing by row. Two blocks in one kernel call must have the same
    shift.
    """

    value: Array  # (n, d), or `SparseRows`
    sqnorm: Array  # (n,)
    subtract: bool = False  # compute distances from differences, where products would cancel

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """The number of axes, 2."""
        return len(self.shape)

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the values."""
        return self.value.dtype

    def astype(self, dtype: DTypeLike) -> CentredRows:
        """The rows with values of `dtype`."""
        if dtype == self.dtype:
            return self
        value, sqnorm = self.value.astype(dtype), self.sqnorm.astype(dtype)
        return dataclasses.replace(self, value=value, sqnorm=sqnorm)

    def __getitem__(self, rows: Rows) -> CentredRows:
        return dataclasses.replace(self, value=self.value[rows], sqnorm=self.sqnorm[rows])


# the bits of the exponent, by the bytes of a number
EXPONENT: Any = {4: np.int32(0xFF << 23), 8: np.int64(0x7FF << 52)}


def _extremes(x: Array, live: Array) -> tuple[Array, Array]:
    """The smallest and largest number of each column, (d,) each, of the rows `live` (n,).

    One loop makes both, without a branch, as each takes time to compile.
    """
    side = lambda empty: (jnp.where(live[:, None], x, empty),)
    high, low = fold((), side(-jnp.inf), side(jnp.inf))
    return low, high


def _host_extremes(x: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_extremes` by NumPy."""
    x = x if live.all() else x[live]
    return x.min(axis=0, initial=np.inf), x.max(axis=0, initial=-np.inf)


def offset(x: Any, live: Any = None) -> Any:
    """The shift (d,) that centres columns far from 0; 0 for the other columns.

        middle = (min + max) / 2;   half = (max - min) / 2;   shift = q round(middle / q),
            q = 2^k <= half / 2 < 2 q

    A column is shifted where min |x_i| >= max |x_i - shift|, about where |middle| >= 2.25 half. The
    subtraction is then exact: adding the shift restores the rows. Extremes and powers of two are
    free of rounding, so that every program computes the same bits.

    Args:
        x: (n, d); the shift of `SparseRows` is 0, which keeps them sparse.
        live: (n,) bool, the rows to use; None: all. Rows of zeros, which may be padding, are never
            used.

    Returns:
        (d,) the shift.
    """
    if isinstance(x, SparseRows):
        return jnp.zeros(x.shape[-1], accum_dtype(x))
    host = isinstance(x, np.ndarray)
    xp: Any = np if host else jnp  # the same bits from both
    x = (x if host else lax.stop_gradient(x)).astype(accum_dtype(x))
    with np.errstate(all="ignore"):
        live = (x != 0).any(axis=1) & (True if live is None else live)
        low, high = (_host_extremes if host else _extremes)(x, live)
        half = high / 2 - low / 2
        middle = low + half
        bits = EXPONENT[half.dtype.itemsize]
        q = (half.view(bits.dtype) & bits).view(half.dtype) / 2
        # A number of 24 (53) bits is a multiple of every power of two below its last place.
        is_exact = (half == 0) | (xp.abs(middle) * jnp.finfo(x.dtype).eps >= q)
        shift = xp.where(is_exact, middle, xp.round(middle / q) * q)
        nearest = xp.where(xp.sign(low) == xp.sign(high), xp.minimum(xp.abs(low), xp.abs(high)), 0)
        is_far = nearest >= xp.maximum(xp.abs(low - shift), xp.abs(high - shift))
        return xp.where(is_far & xp.isfinite(shift), shift, xp.zeros_like(shift))


def centre(x: Rows, shift: Array) -> Any:
    """x - shift, (n, d), (d,) -> (n, d); sparse rows, whose shift is 0, are unchanged."""
    if isinstance(x, SparseRows):
        return x
    x = x.astype(accum_dtype(x))
    return x - shift.astype(x.dtype).reshape((1,) * (x.ndim - 1) + (-1,))


def centred(x: Rows, shift: Array) -> CentredRows:
    """Rows (n, d) minus a shift (d,), as `CentredRows`."""
    value = centre(x, shift)
    value = value.astype(accum_dtype(value))
    return CentredRows(value, sqnorms(value))


def centred_pair(x: Array, z: Array) -> tuple[CentredRows, CentredRows]:
    """Both sides of a block minus the shift of the second.

    They are unchanged if both are centred already.
    """
    if isinstance(x, CentredRows) and isinstance(z, CentredRows):
        return x, z
    shift = offset(z)
    return centred(x, shift), centred(z, shift)


def distances(product: Array, x: Array, z: Array, columns: int) -> Array:
    """The distances |x - z|^2 from <x, z>, |x|^2 and |z|^2, elementwise.

    They are exactly 0 below the rounding error, as for equal rows.
    """
    square = x + z
    return above_rounding(square - 2 * product, square, columns)


def sqdist(x: Array, z: Array) -> Array:
    """Squared distances of rows, (n, d), (m, d) -> (n, m), by one matrix product.

    They are never negative, and 0 between equal rows. The error is at most
    (8 + 4 sqrt(d)) eps max |x - shift|^2, where `offset` gives the shift.
    """
    return sqdist_of(*centred_pair(x, z))


def sqdist_of(x: CentredRows, z: CentredRows, factors: Array | None = None) -> Array:
    """`sqdist` of centred rows; with factors (d,) > 0, sum_j factor_j (x_j - z_j)^2."""
    root = None if factors is None else jnp.sqrt(factors).astype(x.dtype)
    if x.subtract or z.subtract:
        scale = jnp.ones(x.shape[-1], x.dtype) if root is None else root
        return lax.map(lambda row: sqnorms(scale[None, :] * (z.value - row[None, :])), x.value)
    if root is not None:
        x, z = _times(x, root), _times(z, root)
    product = cross_products(x.value, z.value)
    return distances(product, x.sqnorm[:, None], z.sqnorm[None, :], x.shape[-1])


def _times(x: CentredRows, scale: Array) -> CentredRows:
    """The rows with their columns multiplied by `scale` (d,)."""
    if isinstance(x.value, SparseRows):
        rows = x.value.materialize()
        value: Any = dataclasses.replace(rows, value=rows.value * scale[rows.index])
    else:
        value = x.value * scale[None, :]
    return CentredRows(value, sqnorms(value), x.subtract)


COARSE = 1e-3  # error of gamma |x - z|^2 above which distances are computed from differences


def needs_subtraction(x: CentredRows, gamma: Array) -> bool:
    """Whether the error of gamma |x - z|^2 by products exceeds `COARSE`; gamma () or (d,).

    False under tracing and for sparse rows. Distances from differences need a pass over all rows
    for each row, several times the cost of a product.
    """
    if isinstance(x.value, SparseRows) or is_traced(x, gamma):
        return False
    factor = np.asarray(gamma)
    if factor.ndim and factor.shape != x.shape[-1:]:
        return False  # the kernel refuses it
    if mesh_of(x.sqnorm) is not None:  # rows on several devices, which may be of other processes
        square: Any = jnp.max(dot(x.value**2, gamma) if factor.ndim else x.sqnorm * gamma)
    elif factor.ndim:
        square = np.square(np.asarray(x.value)) @ factor
    else:
        square = np.asarray(x.sqnorm) * float(factor)
    max_square = float(np.max(square, initial=0))
    return bool(4 * float(jnp.finfo(x.dtype).eps) * 2 * max_square > COARSE)
