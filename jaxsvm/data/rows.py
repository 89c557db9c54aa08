"""The checked way in: rows from the host become a `Batch`, and wrong ones are refused with a sentence."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..numerics import wide
from ..recipe import choice
from ..sparse import UNROLL
from ..types import Batch, SparseRows


def dataset(x: Any, y: Any, weight: Any = None, *, task: str = "binary") -> Batch:
    """Check rows and targets on the host and make them a data set.

    Whole-number and boolean columns become float32; y and weight take the dtype of x (float32 at least). A sparse matrix
    becomes `SparseRows`, padded to the row with the most numbers, and is never made dense.

    Args:
        x: (n, d) numbers, n >= 1, d >= 1; finite. An array, or a sparse matrix of SciPy.
        y: (n,) labels, -1 and +1 both present; class numbers 0 .. k-1 with task="multiclass", all of them present; real
            targets with task="regression". See `jaxsvm.data.encode` for labels with other names.
        weight: (n,) example weights, >= 0, not all 0; None: all 1. Weight k means the same as k copies.
        task: "binary", "multiclass" or "regression".

    Raises:
        ValueError: what was expected, what came, what to do; also for labels other than -1 and +1, a single class,
            NaN, infinity, or no rows.

    Warns:
        UserWarning: if the ranges of the columns differ by more than a factor of 1,000.

    Example:
        >>> dataset([[1, 2], [3, 4]], [1, -1]).x.dtype.name
        'float32'
    """
    choice("task", task, ("binary", "multiclass", "regression"))
    sparse = _is_sparse(x)
    x, y = _csr(x) if sparse else _numbers("x", x), _numbers("y", y)
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix with a row for each example, got shape {x.shape}; use x.reshape(len(x), -1)")
    if not x.shape[0] or not x.shape[1]:
        raise ValueError(f"x has shape {x.shape}: there must be at least one row and one column")
    if y.shape != x.shape[:1]:
        raise ValueError(f"y must hold one target for each of the {x.shape[0]} rows of x, got shape {y.shape}")
    weight = np.ones(len(y)) if weight is None else _numbers("weight", weight)
    if weight.shape != y.shape:
        raise ValueError(f"weight must hold one number for each of the {len(y)} rows of x, got shape {weight.shape}")
    for name, a in (("x", x.data if sparse else x), ("y", y), ("weight", weight)):
        _finite(name, a, x.indptr if sparse and name == "x" else None)
    held = weight if jax.config.jax_enable_x64 else weight.astype(np.float32)  # as solvers will see it
    if (held < 0).any() or not (held > 0).any():
        raise ValueError("weight must be at least 0 everywhere and above 0 somewhere; 0 leaves a row out")
    if task == "binary":
        _labels(y[held > 0])
    if task == "multiclass":
        _class_numbers(y[held > 0])
    _scales(x)
    x = x if np.issubdtype(x.dtype, np.floating) or x.dtype.kind == "V" else x.astype(np.float32)
    x = _padded(x) if sparse else jnp.asarray(x)
    dtype = wide(x)
    index = jnp.arange(x.shape[0], dtype=jnp.int32)
    return Batch(x, jnp.asarray(y.astype(np.float64), dtype), index, jnp.asarray(weight.astype(np.float64), dtype))


def _is_sparse(x: Any) -> bool:
    return hasattr(x, "tocsr")


def _csr(x: Any) -> Any:
    """A sparse matrix as CSR with each column at most once in a row and no stored zeros, its own arrays."""
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix with a row for each example, got shape {x.shape}")
    if x.dtype.kind not in "biuf":
        raise ValueError(f"x must be a matrix of real numbers, got dtype {x.dtype}; convert it first")
    if x.shape[1] >= 2**31:
        raise ValueError(f"x has {x.shape[1]} columns, at most 2^31 - 1 can be numbered; hash them to fewer")
    x = x.tocsr(copy=True)
    x.sum_duplicates()
    x.eliminate_zeros()
    return x


def _padded(x: Any) -> SparseRows:
    """The rows of a CSR matrix, padded to the longest and to whole turns of the loops over them."""
    long = np.diff(x.indptr)
    shape = x.shape[0], max(-(-int(long.max()) // UNROLL) * UNROLL, UNROLL)
    try:
        index, value = np.zeros(shape, np.int32), np.zeros(shape, x.dtype)
    except MemoryError as error:
        needed = shape[0] * shape[1] * (4 + x.dtype.itemsize)
        raise ValueError(
            f"x takes {needed:.3g} bytes with its rows padded to the longest, {shape[1]} numbers: drop or cut the longest rows"
        ) from error
    row = np.repeat(np.arange(shape[0]), long)
    place = np.arange(len(row)) - np.repeat(x.indptr[:-1], long)
    index[row, place], value[row, place] = x.indices, x.data
    return SparseRows(jnp.asarray(index), jnp.asarray(value), jnp.asarray(long, jnp.int32), int(x.shape[1]))


def _numbers(name: str, a: Any) -> np.ndarray:
    if _is_sparse(a):
        raise ValueError(f"{name} is a sparse matrix, which is taken for x only: make it dense with {name}.toarray()")
    try:
        a = np.asarray(a)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers; its rows differ in length") from error
    if a.dtype.kind not in "biufV" or (a.dtype.kind == "V" and a.dtype.name != "bfloat16"):
        how = "number its classes with jaxsvm.data.encode" if name == "y" and a.dtype.kind in "OSU" else "convert it first"
        raise ValueError(f"{name} must be an array of real numbers, got dtype {a.dtype}; {how}")
    return a


def _finite(name: str, a: np.ndarray, indptr: np.ndarray | None = None) -> None:
    """Refuse NaN and infinity; with `indptr` `a` are the numbers of a CSR matrix."""
    with np.errstate(over="ignore"):
        narrow = a.astype(np.float32) if a.dtype == np.float64 and not jax.config.jax_enable_x64 else a
        bad = ~np.isfinite(narrow.astype(np.float64))
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        row = row if indptr is None else int(np.searchsorted(indptr, row, side="right")) - 1
        kind = "a NaN" if np.isnan(a[bad].astype(np.float64)).any() else "an infinity, or a number too large for float32"
        raise ValueError(f"{name} holds {kind}, first in row {row}: drop or fill in such rows ({int(bad.sum())} numbers)")


def _labels(y: np.ndarray) -> None:
    found = np.unique(y)
    if len(found) == 1:
        raise ValueError(f"all labels are {found[0]:g}: a classifier needs rows of both classes")
    if not np.array_equal(found, [-1, 1]):
        shown = ", ".join(f"{v:g}" for v in found[:5]) + (", ..." if len(found) > 5 else "")
        how = f"np.where(y == {found[-1]:g}, 1, -1)" if len(found) == 2 else "one class against the rest: np.where(y == c, 1, -1)"
        raise ValueError(f"labels must be -1 and +1, got {shown}; use {how}, or task='regression' for real targets")


def _class_numbers(y: np.ndarray) -> None:
    found = np.unique(y)
    if len(found) < 2 or not np.array_equal(found, np.arange(len(found))):
        shown = ", ".join(f"{v:g}" for v in found[:5]) + (", ..." if len(found) > 5 else "")
        raise ValueError(f"class numbers must be 0 .. k-1, k >= 2, each of them present, got {shown}; use jaxsvm.data.encode(y)")


def _scales(x: Any) -> None:
    if _is_sparse(x):
        spread = (x.max(axis=0) - x.min(axis=0)).toarray().ravel().astype(np.float64)
    else:
        spread = np.ptp(x.astype(np.float64), axis=0)
    spread = spread[spread > 0]
    if spread.size and spread.max() > 1000 * spread.min():
        warnings.warn(
            f"the ranges of the columns go from {spread.min():.2g} to {spread.max():.2g}: solvers converge slowly on such "
            "rows; scale them first, for example with jaxsvm.data.standardize",
            stacklevel=3,
        )
