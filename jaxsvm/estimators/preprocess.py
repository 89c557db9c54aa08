"""Rows of scikit-learn, checked, in an order of their own and padded: as rows of solvers."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state

from ..data import dataset
from ..numerics import blocked
from ..types import Batch, SparseRows

FLOATS = [np.float64, np.float32]


def is_sparse(x: Any) -> bool:
    """Whether x is a matrix of SciPy."""
    return hasattr(x, "tocsr")


def bucket_size(n: int, least: int = 256) -> int:
    """The padded length of n rows: one of a few, at most an eighth more than n and `least`."""
    step = max(least, 1 << max(n.bit_length() - 4, 0))
    return -(-n // step) * step


def to_train_dtype(x: Any) -> Any:
    """Rows in the dtype that they will be trained in, -0 as 0."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which `dataset` refuses with a sentence
        x = x.astype(np.float64 if jax.config.jax_enable_x64 and x.dtype == np.float64 else np.float32)
    return x.tocsr() if is_sparse(x) else x + x.dtype.type(0)


def row_hashes(x: Any) -> np.ndarray:
    """(n,) uint64: equal rows have equal marks, whether dense or sparse, and others hardly ever."""

    def mix(bits):  # the finaliser of SplitMix64
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))

    def hashes(values, column):
        bits = values.view(f"u{values.dtype.itemsize}").astype(np.uint64)
        return np.where(bits == 0, np.uint64(0), mix(bits ^ mix(column.astype(np.uint64) + np.uint64(1))))

    if is_sparse(x):
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes(x.data, x.indices))])
        return total[x.indptr[1:]] - total[x.indptr[:-1]]
    return np.concatenate([hashes(x[i : i + 4096], np.arange(x.shape[1])).sum(axis=1) for i in range(0, len(x), 4096)])


def merge_duplicates(x: Any, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of positive weight in an order of their own, equal ones as one: their numbers (m,) and weights (m,)."""
    live = np.flatnonzero(weight > 0)
    if is_sparse(x):
        x.sum_duplicates()
        x.eliminate_zeros()
    marks = row_hashes(x)[live]
    order = np.lexsort((y[live], marks))
    marks, order = marks[order], live[order]
    same = np.flatnonzero((marks[1:] == marks[:-1]) & (y[order[1:]] == y[order[:-1]]))
    here, next_ = x[order[same]], x[order[same + 1]]
    differ = np.diff((here != next_).tocsr().indptr) if is_sparse(x) else (here != next_).any(axis=1)
    first = np.ones(len(order), bool)
    first[same[np.asarray(differ) == 0] + 1] = False
    first = np.flatnonzero(first)
    return order[first], np.add.reduceat(weight[order], first)


def pad_columns(x: Any) -> Any:
    """Rows with columns of zeros behind, up to a multiple of 8."""
    d = -(-x.shape[1] // 8) * 8
    if not is_sparse(x):
        return np.pad(x, ((0, 0), (0, d - x.shape[1])))
    x.resize((x.shape[0], d))
    return x


def batch(x: Any, y: np.ndarray, weight: np.ndarray) -> Batch:
    """A checked data set whose sparse rows have one of a few widths."""
    data = dataset(x, y, weight, task="regression")
    if isinstance(data.x, SparseRows):
        width = data.x.value.shape[1]
        rest = ((0, 0), (0, bucket_size(width, 8) - width))
        pad = lambda a: jnp.pad(a, rest)  # noqa: E731
        data = data._replace(x=dataclasses.replace(data.x, index=pad(data.x.index), value=pad(data.x.value)))
    return data


@jax.jit
def _call(fn: Any, x: Any) -> Any:
    return blocked(fn, x, 4096)


def apply(fn: Any, x: Any) -> np.ndarray:
    """A model or a map at checked rows, padded to a length that is compiled already as a rule."""
    n = x.shape[0]
    x = to_train_dtype(x)[np.concatenate([np.arange(n), np.zeros(bucket_size(n) - n, int)])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scale of the columns is told of when training
        rows = batch(x, np.zeros(x.shape[0]), np.ones(x.shape[0])).x
    return np.asarray(_call(fn, rows))[:n]


def make_seed(random_state: Any) -> int:
    """A number for a key."""
    return int(check_random_state(random_state).randint(2**31 - 1))
