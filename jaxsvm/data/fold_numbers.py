"""Folds of cross-validation."""

from __future__ import annotations

import jax
import numpy as np

from ..checks import integer, shown
from ..checks import key as check_key
from ..types import Array


def folds(
    key: Array, y: object, k: int, *, groups: object = None, stratify: bool = True
) -> np.ndarray:
    """The fold of each row, at random: numbers 0 .. k-1 of about equal frequency.

    Weights of a sweep written by hand: rows of fold i are left out by weight 0,
    `data._replace(weight=jnp.where(fold == i, 0, data.weight))`.

    Args:
        key: a key of `jax.random.key`.
        y: (n,) targets.
        k: number of folds, from 2 to n.
        groups: (n,) a name or number of the group of each row; rows of one group are in one fold.
        stratify: whether each value of y comes about equally often in all folds. Without groups the
            counts differ by 1 at most. For real targets pass False.

    Returns:
        (n,) int32, on the host.

    Raises:
        ValueError: fewer rows, or fewer groups, than folds; groups of another length than y.

    Example:
        >>> import jax, jaxsvm
        >>> fold = jaxsvm.data.folds(jax.random.key(0), [1, -1, 1, -1], 2)
        >>> int(fold[0] + fold[2]), int(fold[1] + fold[3])
        (1, 1)
    """
    check_key("key", key)
    k = integer("k", k, 2)
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must be a vector with a target for each row, got shape {y.shape}")
    n = y.shape[0]
    if n < k:
        raise ValueError(f"{n} rows are too few for {k} folds: take at most {n}")
    # by NumPy, so that no program is compiled
    order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(n)
    fold = np.empty(n, np.int32)
    if groups is not None:
        member = group_numbers(groups, n)
        if member.max() + 1 < k:
            raise ValueError(
                f"{member.max() + 1} groups are too few for {k} folds: take at most as many folds"
            )
        return _by_group(member, y if stratify else np.zeros(n), order, k)
    if stratify:
        order = order[np.argsort(y[order], kind="stable")]
    fold[order] = np.arange(n) % k
    return fold


def group_numbers(groups: object, n: int, name: str = "groups") -> np.ndarray:
    """The groups of n rows as numbers from 0 on; `name` is that of the argument.

    Raises:
        ValueError: another length, NaN, or what has no order.
    """
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(
            f"{name} must name the {name.removesuffix('s')} of each of the {n} rows, got shape "
            f"{names.shape}"
        )
    if names.dtype.kind == "f" and np.isnan(names).any():
        first = int(np.flatnonzero(np.isnan(names))[0])
        raise ValueError(f"{name} holds a NaN, first in row {first}: name it, or drop such rows")
    try:
        return np.unique(names, return_inverse=True)[1].reshape(n)
    except TypeError as error:
        raise ValueError(f"{name} must be numbers or names, got {shown(groups)}") from error


def _by_group(member: np.ndarray, y: np.ndarray, order: np.ndarray, k: int) -> np.ndarray:
    """The fold of each row: the largest group first, each into the fold that it fills most evenly.

    Evenly means the least sum over the values of y of the squared counts, in units of the value's
    frequency. Groups of equal size come in the order of their first rows in `order`.
    """
    values, inverse = np.unique(y, return_inverse=True)
    value = inverse.reshape(-1)
    counts = np.zeros((int(np.max(member)) + 1, len(values)))
    np.add.at(counts, (member, value), 1)
    frequency = counts.sum(axis=0)
    _, first = np.unique(member[order], return_index=True)
    by_size = sorted(range(len(counts)), key=lambda g: (-counts[g].sum(), first[g]))
    fold_counts, fold_of = np.zeros((k, counts.shape[1])), np.zeros(len(counts), np.int32)
    for g in by_size:
        growth = ((2 * fold_counts + counts[g]) * counts[g] / frequency**2).sum(axis=1)
        fold_of[g] = np.lexsort((fold_counts.sum(axis=1), growth))[0]
        fold_counts[fold_of[g]] += counts[g]
    return fold_of[member]
