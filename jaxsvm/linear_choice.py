"""Which solver of a linear machine is fastest, by the loss and the shape of the rows."""

from __future__ import annotations

from typing import Any

from .recipe import check_choice, check_positive
from .solvers import interior_point, newton, sdca
from .types import Loss, Solver

NAMES = ("newton", "interior_point", "sdca")
MOST_COLUMNS = 512  # of rows for which a step of the interior point method is cheap
ROUNDS = 1000  # steps of one update, at most


def fastest_linear(loss: Loss, columns: int, sparse: bool) -> str:
    """The name of the fastest solver: "newton", "interior_point" or "sdca".

    Args:
        loss: newton takes smooth losses, interior_point those with a quadratic dual.
        columns: of the rows.
        sparse: whether the rows are sparse; interior_point makes them dense.
    """
    if loss.curvature is not None:
        return "newton"
    if loss.quadratic is not None and columns <= MOST_COLUMNS and not sparse:
        return "interior_point"
    return "sdca"


def linear_solver(
    name: str, C: Any, total: float, *, loss: Loss, bias: str, steps: int = ROUNDS
) -> Solver:
    """The solver of 1/2 |w|^2 + C sum_i weight_i loss(<w, x_i> + b, y_i) of that name.

    Args:
        name: "newton", "interior_point" or "sdca".
        C: weight of one row's loss, > 0.
        total: sum of the weights of the rows, > 0.
        loss: one that the solver takes.
        bias: "none" or "feature".
        steps: of one update of newton and interior_point, at most.

    Raises:
        ValueError: another name, or a loss that the solver does not take.
    """
    check_choice("solver", name, NAMES)
    check_positive(C=C)
    if name == "newton":
        return newton(1 / (C * total), loss=loss, bias=bias, rounds=float(steps))
    if name == "interior_point":
        return interior_point(C, loss=loss, bias=bias, rounds=float(steps))
    return sdca(C, loss=loss, bias=bias)
