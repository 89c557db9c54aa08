"""Exact kernel machines inside of wrappers: the problems of classes and columns one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..models.multiclass import votes
from ..recipe import Recipe, unwrap_static
from ..wrappers import multi_output, one_vs_one, one_vs_rest

MOST_CLASSES = 20  # of pairs whose coefficients at all rows are held at the same time
WRAPPERS = one_vs_one, one_vs_rest, multi_output
# of factories of machines whose update goes on from `start` to the optimum that C, kernel, loss and
# bias define; their states have the field `dual`
ARGUMENTS = {"C", "kernel", "loss", "bias", "start", "stop"}


def machine_of(solver: Any) -> tuple[Any, Any]:
    """The call of an exact machine that a solver is, and the wrapper of classes or columns around.

    Both are None for other solvers; the wrapper is None where there is none.
    """
    solver, wrapper = unwrap_static(solver), None
    while isinstance(solver, Recipe):
        factory: Any = solver.spec[0]
        if factory.rules.keys() >= ARGUMENTS:
            return solver, wrapper
        if factory is one_vs_one and solver.arguments()["classes"] > MOST_CLASSES:
            break
        if wrapper is None and factory in WRAPPERS:
            wrapper, solver = solver, solver.arguments()["inner"]
        else:
            solver = solver.make()
    return None, None


def problems_of(wrapper: Any, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The targets and the weights of the rows in each problem, (P, n) each.

    A pair of classes has weight 0 for the rows of other classes.
    """
    if wrapper is None or wrapper.spec[0] is multi_output:
        targets = np.atleast_2d(y.T)
        return targets, np.broadcast_to(weight.T, targets.shape)
    every = np.arange(wrapper.classes)
    if wrapper.spec[0] is one_vs_rest:
        targets = np.where(y == every[:, None], 1, -1)
        return targets.astype(y.dtype), np.broadcast_to(weight, targets.shape)
    first, second = (c[:, None] for c in np.triu_indices(len(every), 1))
    targets = np.where(y == first, 1, -1).astype(y.dtype)
    return targets, weight * ((y == first) | (y == second))


def values_of(wrapper: Any, values: Any) -> Any:
    """Decision values (m,) or (m, k) from those of the problems, (m, P)."""
    if wrapper is None:
        return values[:, 0]
    return votes(values, wrapper.classes) if wrapper.spec[0] is one_vs_one else values
