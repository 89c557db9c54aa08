"""What `select` takes: checks of its arguments, its axes, and the folds."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .._node import nodes_in
from ..checks import check_choice, integer, shown
from ..checks import key as check_key
from ..data.fold_numbers import folds as make_folds
from ..types import Array, Batch, JointLoss, Solver, check_weights, row_weights
from .checks import check_solver, check_targets, named_parameters


def check_arguments(
    maker: object, data: object, key: object, score: object, progress: object
) -> None:
    """Raise for arguments of `select` that are not what it takes."""
    is_type = isinstance(maker, type) and not issubclass(maker, Solver)
    if not callable(maker) or is_type:
        raise TypeError(
            "maker must be a function of one number of each axis that returns a solver, got "
            f"{shown(maker)}"
        )
    check_weights("data", data)
    check_key("key", key)
    if not callable(score):
        check_choice("score", score, ("error", "risk", "log_loss", "brier", "auc"))
    if not isinstance(progress, bool):
        raise TypeError(f"progress must be True or False, got {shown(progress)}")


def axis_of(name: str, numbers: object) -> np.ndarray:
    """The numbers of an axis as a vector on the host; integers stay integers."""
    with contextlib.suppress(TypeError, ValueError):
        vector = np.asarray(numbers)
        is_vector = vector.dtype.kind in "iuf" and vector.ndim == 1 and vector.size
        if is_vector and np.isfinite(vector).all():
            return vector
    raise ValueError(
        f"the axis {name} must be a vector of at least one finite number, got {shown(numbers)}"
    )


def first_solver(maker: Callable, axes: dict[str, np.ndarray], data: Batch) -> Solver:
    """The solver of the first cell, after checks of the axes and of the solvers at their ends."""
    if not axes:
        raise ValueError("select needs at least one axis, such as C=jaxsvm.C_grid()")
    is_read = False
    with contextlib.suppress(ValueError, TypeError):  # some builtins have no signature
        is_read = bool(inspect.signature(maker))
    known = named_parameters("maker", maker, axes) if is_read else {}
    missing = [name for name, p in known.items() if p.default is p.empty and name not in axes]
    if missing:
        raise ValueError(
            f"maker needs {', '.join(missing)}, but the axes are {', '.join(axes)}: give an axis "
            "for each parameter without a default"
        )
    middle = {name: numbers[0].item() for name, numbers in axes.items()}
    made = "what maker returns"
    for name, numbers in axes.items():
        for value in {numbers.min().item(), numbers.max().item()} - {middle[name]}:
            check_solver(maker(**middle | {name: value}), made)
    first = check_solver(maker(**middle), made)
    check_targets(first, data)
    return first


def check_score(score: object, solver: Solver) -> None:
    """Raise for a score of single rows beside a loss that couples rows, such as that of ranking."""
    ranks = any(isinstance(part, JointLoss) for part in nodes_in(solver))
    if not callable(score) and ranks:
        raise ValueError(
            f"score={score!r} is of single rows, and the loss of this solver ranks them: take as "
            "score a function (values, targets, weights) -> a number, least for the best order"
        )


def folds_of(key: Array, data: Batch, targets: object, folds: Any, groups: Any) -> np.ndarray:
    """The fold of each row, -1 for rows of weight 0; rows of one query are in one fold.

    Raises:
        ValueError: folds or groups that cannot be; a fold without rows, or without which a class
            is missing.
    """
    weight, y = np.asarray(row_weights(data).weight), np.asarray(data.y)
    n, live = y.shape[0], np.flatnonzero(weight > 0)
    has_classes = targets == "labels" or isinstance(targets, int)
    fold = np.full(n, -1, np.int32)
    if np.ndim(folds) or isinstance(folds, str):
        if isinstance(folds, str) and folds != "loo":
            raise ValueError(
                f"folds must be a number, the fold of each row, or 'loo', got {folds!r}"
            )
        if groups is not None:
            raise ValueError(
                "folds='loo' and folds that are given row by row take no groups: leave groups out"
            )
        fold[live] = np.arange(len(live)) if isinstance(folds, str) else _given(folds, n)[live]
    else:
        if groups is not None and np.shape(groups) != (n,):
            raise ValueError(
                f"groups must name the group of each of the {n} rows, got shape {np.shape(groups)}"
            )
        groups = data.query if groups is None else groups
        own = None if groups is None else np.asarray(groups)[live]
        k = integer("folds", folds, 2)
        # folds of several targets are not stratified, so that any one stands for them
        one = y[live].reshape(len(live), -1)[:, 0]
        fold[live] = make_folds(key, one, k, groups=own, stratify=has_classes)
    sizes = np.bincount(fold[fold >= 0], minlength=1)
    if not sizes.all():
        raise ValueError(
            f"fold {np.argmin(sizes)} holds no row: number the folds 0, 1, ... without gaps"
        )
    if sizes.max() == len(live):
        raise ValueError("without fold 0 there is no row to train on: take more folds")
    if has_classes:
        classes, place = np.unique(y[live], return_inverse=True)
        count = lambda i: np.bincount(place[fold[live] != i], minlength=len(classes))
        for i, c in np.argwhere(np.stack([*map(count, range(len(sizes)))]) == 0)[:1]:
            raise ValueError(
                f"without fold {i} there is no row of class {classes[c]:g}: take fewer folds, more "
                "rows of that class, or other groups"
            )
    return fold


def _given(folds: object, n: int) -> np.ndarray:
    """The folds of rows as they are given."""
    given = np.asarray(folds)
    if given.shape != (n,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"folds must hold a whole number for each of the {n} rows, got "
            f"{given.dtype} of shape {given.shape}"
        )
    if given.min() < -1 or given.max() < 0 or given.min() == given.max():
        raise ValueError(
            "folds must be numbered 0, 1, ..., -1 for rows that are always trained on, so that "
            f"each leaves rows to train on, got {given.min()} to {given.max()}"
        )
    return given
