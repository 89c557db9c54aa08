"""The checked way in: rows from the host become a `Batch`, and wrong ones are refused with a sentence."""

from __future__ import annotations

import importlib.resources
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .numerics import wide
from .recipe import choice, struct
from .types import Array, Batch, take


def dataset(x: Any, y: Any, weight: Any = None, *, task: str = "binary") -> Batch:
    """Check rows and targets on the host and make them a data set.

    Whole-number and boolean columns become float32; y and weight take the dtype of x (float32 at least).

    Args:
        x: (n, d) numbers, n >= 1, d >= 1; finite.
        y: (n,) labels, -1 and +1 both present; real targets with task="regression".
        weight: (n,) example weights, >= 0, not all 0; None: all 1. Weight k means the same as k copies.
        task: "binary" or "regression".

    Raises:
        ValueError: what was expected, what came, what to do; also for labels other than -1 and +1, a single class,
            NaN, infinity, or no rows.

    Warns:
        UserWarning: if the ranges of the columns differ by more than a factor of 1,000.

    Example:
        >>> dataset([[1, 2], [3, 4]], [1, -1]).x.dtype.name
        'float32'
    """
    choice("task", task, ("binary", "regression"))
    x, y = _numbers("x", x), _numbers("y", y)
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix with a row for each example, got shape {x.shape}; use x.reshape(len(x), -1)")
    if not x.shape[0] or not x.shape[1]:
        raise ValueError(f"x has shape {x.shape}: there must be at least one row and one column")
    if y.shape != x.shape[:1]:
        raise ValueError(f"y must hold one target for each of the {x.shape[0]} rows of x, got shape {y.shape}")
    weight = np.ones(len(y)) if weight is None else _numbers("weight", weight)
    if weight.shape != y.shape:
        raise ValueError(f"weight must hold one number for each of the {len(y)} rows of x, got shape {weight.shape}")
    for name, a in (("x", x), ("y", y), ("weight", weight)):
        _finite(name, a)
    held = weight if jax.config.jax_enable_x64 else weight.astype(np.float32)  # as solvers will see it
    if (held < 0).any() or not (held > 0).any():
        raise ValueError("weight must be at least 0 everywhere and above 0 somewhere; 0 leaves a row out")
    if task == "binary":
        _labels(y[held > 0])
    _scales(x)
    x = jnp.asarray(x if np.issubdtype(x.dtype, np.floating) or x.dtype.kind == "V" else x.astype(np.float32))
    dtype = wide(x)
    index = jnp.arange(x.shape[0], dtype=jnp.int32)
    return Batch(x, jnp.asarray(y.astype(np.float64), dtype), index, jnp.asarray(weight.astype(np.float64), dtype))


def _numbers(name: str, a: Any) -> np.ndarray:
    if hasattr(a, "toarray"):
        raise ValueError(f"{name} is a sparse matrix, which is not taken here: make it dense with {name}.toarray()")
    try:
        a = np.asarray(a)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of numbers; its rows differ in length") from error
    if a.dtype.kind not in "biufV" or (a.dtype.kind == "V" and a.dtype.name != "bfloat16"):
        raise ValueError(f"{name} must be an array of real numbers, got dtype {a.dtype}; convert it first")
    return a


def _finite(name: str, a: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        narrow = a.astype(np.float32) if a.dtype == np.float64 and not jax.config.jax_enable_x64 else a
        bad = ~np.isfinite(narrow.astype(np.float64))
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
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


def _scales(x: np.ndarray) -> None:
    spread = np.ptp(x.astype(np.float64), axis=0)
    spread = spread[spread > 0]
    if spread.size and spread.max() > 1000 * spread.min():
        warnings.warn(
            f"the ranges of the columns go from {spread.min():.2g} to {spread.max():.2g}: solvers converge slowly on such "
            "rows; scale them first, for example with jaxsvm.data.standardize",
            stacklevel=3,
        )


@struct
class Standardize:
    """x -> (x - mean) / scale, column by column: a pure map."""

    mean: Array  # (d,)
    scale: Array  # (d,)

    def __call__(self, x: Array) -> Array:
        """(n, d) -> (n, d)."""
        return (x - self.mean[None, :]) / self.scale[None, :]


def standardize(x: Array) -> Standardize:
    """The map that gives the columns of `x` mean 0 and standard deviation 1; constant columns become 0.

    Args:
        x: (n, d), the training rows.

    Example:
        >>> x = jnp.array([[1.0], [3.0]])
        >>> standardize(x)(x).tolist()
        [[-1.0], [1.0]]
    """
    constant = jnp.max(x, 0) == jnp.min(x, 0)  # the deviation of such a column is a rounding of 0
    mean, deviation = jnp.mean(x, 0), jnp.std(x, 0)
    return Standardize(jnp.where(constant, x[0], mean), jnp.where(constant, jnp.ones_like(deviation), deviation))


def split(key: Array, data: Batch, *shares: float) -> tuple[Batch, ...]:
    """Cut the rows at random into parts; each part is a data set with row numbers of its own.

    Args:
        key: for the order.
        data: n rows.
        shares: relative sizes of the parts, > 0.

    Raises:
        ValueError: fewer than two shares, one not above 0, or a part without rows.

    Example:
        >>> data = dataset(np.eye(10), [1, -1] * 5)
        >>> [part.y.shape[0] for part in split(jax.random.key(0), data, 3, 1, 1)]
        [6, 2, 2]
    """
    if len(shares) < 2 or not all(np.isfinite(share) and share > 0 for share in shares):
        raise ValueError(f"split takes two or more shares above 0, got {shares}")
    n = data.y.shape[0]
    ends = np.round(np.cumsum(shares) / np.sum(shares) * n).astype(int)
    order = jax.random.permutation(key, n).astype(jnp.int32)
    parts = [order[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if any(part.shape[0] == 0 for part in parts):
        raise ValueError(f"{n} rows are too few for the shares {shares}: a part would be empty")
    return tuple(
        take(data, part)._replace(index=jnp.arange(part.shape[0], dtype=jnp.int32), weight=data.weight[part]) for part in parts
    )


def breast_cancer(columns: Sequence[int] | None = None) -> Batch:
    """Breast Cancer Wisconsin (Diagnostic): 569 rows, 30 columns, +1 = malignant (212), -1 = benign (357).

    Comes with the package, as in the source: unscaled, so standardise it.

    Args:
        columns: which of the 30; None: all.

    Example:
        >>> breast_cancer(columns=[0, 1]).x.shape
        (569, 2)

    Reference: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository, 1995, CC BY 4.0,
        https://doi.org/10.24432/C5DW2B.
    """
    path = importlib.resources.files("jaxsvm") / "datasets" / "breast_cancer_wdbc.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        x, y = arrays["X_train"], arrays["y_train"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the docstring says that the columns are unscaled
        return dataset(x if columns is None else x[:, list(columns)], y)
