"""Checked sparse matrices of SciPy."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np

from ..checks import brief, jax_dtype

if typing.TYPE_CHECKING:
    from scipy.sparse import csr_matrix


DENSITY = 0.1  # share of nonzero numbers up to which sparse rows are faster, measured
FEW = 64  # columns, up to which dense rows are


def csr(x: Any) -> csr_matrix:
    """A copy of a sparse matrix as CSR, without duplicate entries or stored zeros."""
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix with a row for each example, got shape {x.shape}")
    if x.dtype.kind not in "biuf":
        raise ValueError(
            f"x must be a matrix of real numbers, got dtype {x.dtype}; convert it first"
        )
    if x.shape[1] >= 2**31:
        raise ValueError(
            f"x has {x.shape[1]} columns, at most 2^31 - 1 can be numbered; hash them to fewer"
        )
    try:
        x = x.tocsr(copy=True).astype(jax_dtype(x.dtype), copy=False)
        x.check_format(full_check=True)
        x.sum_duplicates()
        x.eliminate_zeros()
    except (ValueError, TypeError, IndexError, RuntimeError) as error:  # the last by C++
        raise ValueError(
            f"x is no valid sparse matrix ({brief(error)}): make it anew from its rows, columns "
            "and values"
        ) from error
    return x


def stored_range(x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns, of a CSR matrix those with entries, and the smallest and largest value of each.

    Implicit zeros are included.
    """
    if isinstance(x, np.ndarray):
        return np.arange(x.shape[1]), *(f(x, axis=0).astype(np.float64) for f in (np.min, np.max))
    # with few entries, memory is proportional to the entries, not to the columns
    few_entries = x.nnz < x.shape[1]
    if few_entries:
        order = np.argsort(x.indices, kind="stable")
        columns, start, count = np.unique(x.indices[order], return_index=True, return_counts=True)
        values = x.data[order]
    else:
        csc = x.tocsc()
        count = np.diff(csc.indptr)
        columns = np.flatnonzero(count)
        values, start, count = csc.data, csc.indptr[columns], count[columns]
    if not len(columns):
        return columns, np.zeros(0), np.zeros(0)
    low = np.minimum.reduceat(values, start).astype(np.float64)
    high = np.maximum.reduceat(values, start).astype(np.float64)
    zero = np.where(count < x.shape[0], 0, low)  # or a value that is there
    return columns, np.minimum(low, zero), np.maximum(high, zero)


def is_mostly_zeros(x: np.ndarray, share: float = DENSITY) -> bool:
    """Whether a dense array (n, d) has columns enough, and a share of nonzero numbers below it."""
    is_wide = x.ndim == 2 and x.shape[1] > FEW
    # booleans are counted in a tenth of the time of numbers
    return is_wide and int(np.count_nonzero(x != 0)) < share * x.size


def sparsify(x: np.ndarray) -> Any:
    """A dense array as CSR, in a fifth of the time of SciPy."""
    import scipy.sparse

    n, d = x.shape
    flat = np.flatnonzero(x != 0)
    start = np.searchsorted(flat, np.arange(n + 1) * d)
    return scipy.sparse.csr_matrix((x.ravel()[flat], flat % d, start), x.shape)
