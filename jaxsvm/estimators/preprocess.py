"""Checked rows of scikit-learn as rows of solvers: sorted, merged and padded."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from ..checks import is_sparse, x64_enabled
from ..data.from_arrays import check_finite, checked_batch
from ..models.frames import is_frame
from ..numerics import bucket_size, series_size, widened
from ..types import Batch

FLOATS = [np.float64, np.float32]
MANY = 4096  # rows from which programs are of about their size


def validate(estimator: Any, X: Any, *y: ArrayLike, **options: Any) -> Any:
    """`validate_data` of rows of numbers, and of targets.

    Raises:
        ValueError: as it does; of words it says where they are and what to do.
    """
    try:
        return validate_data(estimator, X, *y, accept_sparse="csr", dtype=FLOATS, **options)
    except np.exceptions.DTypePromotionError as error:
        raise ValueError(
            "X holds columns that cannot be joined as numbers, such as dates: turn them into "
            "numbers, or leave them out"
        ) from error
    except ValueError as error:
        problem, _, word = str(error).partition(": ")
        word = word.removeprefix("np.str_(").removesuffix(")")
        if problem != "could not convert string to float":
            raise
        names = X.columns if is_frame(X) else ()
        places = [f"column {name!r} of X" for name in names if holds_words(X[name])]
        place = (places or ["X" if holds_words(X) else "y"])[0]
        advice = "encode them by sklearn.preprocessing.OneHotEncoder in a pipeline"
        advice = "give numbers, or take a classifier" if place == "y" else advice
        raise ValueError(f"{place} holds words, such as {word}: {advice}") from error


def holds_words(values: object) -> bool:
    """Whether an array or a column is of words, which NumPy cannot read as numbers."""
    with contextlib.suppress(TypeError, ValueError):
        np.asarray(0 if is_sparse(values) else values, np.float64)
        return False
    return True


def to_train_dtype(x: Any, weight: np.ndarray | None = None) -> Any:
    """The rows in the dtype of training, with -0 replaced by 0.

    Raises:
        ValueError: a number of a row, of weight above 0, is too large for this dtype.
    """
    dtype = np.dtype(np.float64 if x64_enabled() and x.dtype == np.float64 else np.float32)
    x = x.tocsr(copy=True) if is_sparse(x) else x
    if is_sparse(x):
        x.sum_duplicates()
        x.eliminate_zeros()
    try:
        with np.errstate(over="raise"):
            cast = with_values(x, x.data.astype(dtype)) if is_sparse(x) else x.astype(dtype)
    except FloatingPointError:
        x = x.copy()
        values, indptr = (x.data, x.indptr) if is_sparse(x) else (x, None)
        if weight is not None:
            absent = weight == 0
            values[absent if indptr is None else np.repeat(absent, np.diff(indptr))] = 0
        check_finite("X", values, dtype, indptr)
        cast = x.astype(dtype)
    return cast if is_sparse(x) else cast + dtype.type(0)


def centre_of(y: np.ndarray, weight: np.ndarray) -> float:
    """The weighted median of real targets that lie far from 0, which rounding would spoil; else 0.

    Far means more than twice the distance between their quartiles. Weight k equals k copies.
    """
    order = np.argsort(y, kind="stable")
    total = np.cumsum(weight[order])
    places = np.searchsorted(total, total[-1] * np.array([0.25, 0.5, 0.75]))
    low, median, high = y[order[places]]
    return float(median) if abs(median) > 2 * (high - low) else 0.0


def row_hashes(x: Any) -> np.ndarray:
    """Hashes of the rows, (n,) uint64, the same for dense and sparse rows."""

    def mix(bits):  # the finaliser of SplitMix64
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))

    def hashes(values, column):
        bits = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
        mixed = mix(bits ^ mix(column.astype(np.uint64) + np.uint64(1)))
        return np.where(bits == 0, np.uint64(0), mixed)

    if is_sparse(x):
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes(x.data, x.indices))])
        return total[x.indptr[1:]] - total[x.indptr[:-1]]
    blocks = (x[i : i + 4096] for i in range(0, len(x), 4096))
    return np.concatenate([hashes(rows, np.arange(x.shape[1])).sum(axis=1) for rows in blocks])


def merge_duplicates(x: Any, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """The rows of positive weight, sorted by hash and merged where equal.

    They are given by their indices (m,) and weights (m,). The third array (n,) holds the number of
    the merged row of each row, or -1.
    """
    positive = np.flatnonzero(weight > 0)
    hashes = row_hashes(x)[positive]
    order = np.lexsort((y[positive], hashes))
    hashes, order = hashes[order], positive[order]
    candidates = np.flatnonzero((hashes[1:] == hashes[:-1]) & (y[order[1:]] == y[order[:-1]]))
    rows, next_rows = x[order[candidates]], x[order[candidates + 1]]
    unequal = rows != next_rows
    differ = np.diff(unequal.tocsr().indptr) if is_sparse(x) else unequal.any(axis=1)
    is_first = np.ones(len(order), bool)
    is_first[candidates[np.asarray(differ) == 0] + 1] = False
    starts = np.flatnonzero(is_first)
    group = np.full(len(weight), -1)
    group[order] = np.cumsum(is_first) - 1
    return order[starts], np.add.reduceat(weight[order], starts), group


def drop_absent(x: object, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """The rows of positive weight as they are, in the form of `merge_duplicates`."""
    is_present = weight > 0
    rows = np.flatnonzero(is_present)
    return rows, weight[rows], np.where(is_present, np.cumsum(is_present) - 1, -1)


def padded_rows(n: int, least: int = 256) -> int:
    """The rows of the program that trains on n: a power of two, and more finely above 2,560."""
    return series_size(n, least) if n <= 2048 else max(bucket_size(n), 2560)


def pad_columns(x: Any) -> Any:
    """The rows with columns of zeros appended, as many as the program has that trains on them.

    Few rows have 32, 64 or 128 columns, so that few sizes exist. More rows are trained on for
    longer than their program compiles. In sparse rows columns of zeros cost next to nothing.
    """
    n, d = x.shape
    is_small = n <= MANY and d <= 128
    size = series_size(d, 32) if is_small else bucket_size(d, 8) if is_sparse(x) else -(-d // 8) * 8
    return with_values(x, x.data, size) if is_sparse(x) else np.pad(x, ((0, 0), (0, size - d)))


def with_values(x: Any, values: np.ndarray, d: int | None = None) -> Any:
    """A CSR matrix of the same lists with other values, and columns of zeros appended up to d."""
    return type(x)((values, x.indices, x.indptr), shape=(x.shape[0], d or x.shape[1]))


def batch(
    x: object,
    y: np.ndarray,
    weight: np.ndarray,
    query: np.ndarray | None = None,
    packed: bool = False,
) -> Batch:
    """A checked data set whose sparse rows are `packed`, or padded to a width of `bucket_size`."""
    data = checked_batch(x, y, weight, query=query, task="regression", packed=packed)
    rows: Any = data.x
    if is_sparse(x) and not packed:
        rows = widened(rows, bucket_size(rows.value.shape[1], 8))
    return data._replace(x=rows)


def equal_trees(one: object, other: object) -> bool:
    """Whether two parameters, such as kernels, are of one structure with equal numbers."""
    trees: list[Any] = [jax.tree.structure(each) for each in (one, other)]
    leaves = jax.tree.leaves(one), jax.tree.leaves(other)
    return trees[0] == trees[1] and all(map(np.array_equal, *leaves))


def make_seed(random_state: int | np.random.RandomState | None) -> int:
    """An integer seed for a key."""
    return int(check_random_state(random_state).randint(2**31 - 1))
