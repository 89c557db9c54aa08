"""Squared distances that keep their digits where the rows are far from the origin.

|x - z|^2 = |x|^2 + |z|^2 - 2 <x, z> takes one matrix product, but loses eps |x|^2. Distances do not change when all rows
move, so a common shift is taken out of both sides first. What is lost then is relative to the spread of the rows.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..types import Array, SparseRows
from .products import above_rounding, accum_dtype, cross_products, sqnorms
from .reductions import is_traced


@functools.partial(jax.tree_util.register_dataclass, data_fields=("value", "sqnorm"), meta_fields=("subtract",))
@dataclasses.dataclass(frozen=True, eq=False)
class CentredRows:
    """Rows less a common shift, with their squared norms: what kernels of differences read, worked out once.

    It stands where an (n, d) array of rows stands: `shape`, `dtype`, `astype`, rows by number. Two blocks may meet in a
    kernel only if they have the same shift.
    """

    value: Array  # (n, d), or `SparseRows`
    sqnorm: Array  # (n,)
    subtract: bool = False  # distances are summed from differences, as products would leave none of their digits

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    @property
    def dtype(self) -> jnp.dtype:
        """Of the values."""
        return self.value.dtype

    def astype(self, dtype: Any) -> CentredRows:
        """The rows with values of `dtype`."""
        if dtype == self.dtype:
            return self
        return dataclasses.replace(self, value=self.value.astype(dtype), sqnorm=self.sqnorm.astype(dtype))

    def __getitem__(self, rows: Any) -> CentredRows:
        return dataclasses.replace(self, value=self.value[rows], sqnorm=self.sqnorm[rows])


def offset(x: Array, live: Array | None = None) -> Array:
    """A shift (d,) that takes columns far from 0 near to it; 0 for the others.

        middle = (min + max) / 2;   half = (max - min) / 2;   shift = q round(middle / q),   q = 2^k <= half / 2 < 2 q

    It is taken where no number of the column is nearer to 0 than all are to the shift, min |x_i| >= max |x_i - shift|: no bit of
    a number is lost by it, so that adding it again gives the rows back. (About where |middle| >= 2.25 half.) Extremes
    and powers of two have no rounding, so that any program finds the same bits.

    Args:
        x: (n, d); `SparseRows` have a shift of 0, as they would not stay sparse.
        live: (n,) bool, rows that count; None: all. Rows that are 0 throughout, which may be padding, never do.
    """
    x = lax.stop_gradient(x)
    if isinstance(x, SparseRows):
        return jnp.zeros(x.shape[-1], accum_dtype(x))
    x = x.astype(accum_dtype(x))
    live = jnp.any(x != 0, axis=1) & (True if live is None else live)
    low = jnp.min(jnp.where(live[:, None], x, jnp.inf), axis=0, initial=jnp.inf)
    high = jnp.max(jnp.where(live[:, None], x, -jnp.inf), axis=0, initial=-jnp.inf)
    half = high / 2 - low / 2
    middle = low + half
    mantissa, exponent = jnp.frexp(half)
    q = jnp.ldexp(jnp.ones_like(half), exponent - 2)
    # A number of 24 (53) bits is a multiple of every power of two below its last place.
    fine = (mantissa == 0) | (jnp.abs(middle) * jnp.finfo(x.dtype).eps >= q)
    shift = jnp.where(fine, middle, jnp.round(middle / q) * q)
    nearest = jnp.where(jnp.sign(low) == jnp.sign(high), jnp.minimum(jnp.abs(low), jnp.abs(high)), 0)
    far = nearest >= jnp.maximum(jnp.abs(low - shift), jnp.abs(high - shift))
    return jnp.where(far & jnp.isfinite(shift), shift, 0)


def centre(x: Array, shift: Array) -> Array:
    """x - shift, (n, d), (d,) -> (n, d); sparse rows as they are, whose shift is 0."""
    if isinstance(x, SparseRows):
        return x
    x = x.astype(accum_dtype(x))
    return x - jnp.expand_dims(shift.astype(x.dtype), tuple(range(x.ndim - 1)))


def centred(x: Array, shift: Array) -> CentredRows:
    """Rows less a shift, (n, d), (d,)."""
    value = centre(x, shift)
    value = value.astype(accum_dtype(value))
    return CentredRows(value, sqnorms(value))


def centred_pair(x: Array, z: Array) -> tuple[CentredRows, CentredRows]:
    """Both sides of a block less the shift of the second, as they are where they have been centred."""
    if isinstance(x, CentredRows) and isinstance(z, CentredRows):
        return x, z
    shift = offset(z)
    return centred(x, shift), centred(z, shift)


def distances(product: Array, x: Array, z: Array, columns: int) -> Array:
    """|x - z|^2 of <x, z>, |x|^2 and |z|^2, value by value; exactly 0 where rounding is all that is left, as for equal rows."""
    square = x + z
    return above_rounding(square - 2 * product, square, columns)


def sqdist(x: Array, z: Array) -> Array:
    """Squared distances of rows, (n, d), (m, d) -> (n, m), by one matrix product; never negative, 0 between equal rows.

    The error is at most (8 + 4 sqrt(d)) eps max |x - shift|^2, whatever shift the rows have in common (`offset`).
    """
    return sqdist_of(*centred_pair(x, z))


def sqdist_of(x: CentredRows, z: CentredRows) -> Array:
    """`sqdist` of rows that are less their shift."""
    if x.subtract or z.subtract:
        return lax.map(lambda row: sqnorms(z.value - row[None, :]), x.value)
    return distances(cross_products(x.value, z.value), x.sqnorm[:, None], z.sqnorm[None, :], x.shape[-1])


COARSE = 1e-3  # error of gamma |x - z|^2 from which on small distances are summed from differences


def needs_subtraction(x: CentredRows, gamma: Array) -> bool:
    """Whether gamma |x - z|^2 by products is off by more than `COARSE`; False where that is not known yet, or rows are sparse.

    Sums of differences cost a pass over all rows for each row, several times a product.
    """
    if isinstance(x.value, SparseRows) or is_traced(x, gamma):
        return False
    most = float(np.max(np.asarray(x.sqnorm), initial=0))
    return bool(4 * float(jnp.finfo(x.dtype).eps) * 2 * most * float(gamma) > COARSE)
