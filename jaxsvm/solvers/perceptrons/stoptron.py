"""The Stoptron."""

from __future__ import annotations

from typing import Any

from ..._node import node
from ...budget import Change, Maintenance, Points, remove_point
from ...kernels import Kernel
from ...types import State
from .on_budget import BudgetedPerceptron


@node
class _stop(Maintenance):
    """Removal of the new point."""

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        return remove_point(points, points.budget), state


@node
class stoptron(BudgetedPerceptron):
    """The perceptron until it has `budget` points; afterwards the function is constant.

        f = f + [y_i f(x_i) <= 0] y_i k(x_i, .)   while there are fewer than `budget` points

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order. The mean of `info.loss` over a pass is the rate of mistakes.

    Raises:
        ValueError: budget below 2.

    Differs from the paper: example weights multiply the correction; a row that is a point already
        adds to its coefficient, also at the end.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> jaxsvm.fit(jaxsvm.stoptron(jaxsvm.kernels.linear(), budget=2), data, jax.random.key(0),
        ...     steps=4).model(data.x).tolist()
        [1.0, -1.0]

    Reference: F. Orabona, J. Keshet, B. Caputo, Bounded kernel-based online learning, JMLR 10,
        2009, section 5.
    """

    maintain = _stop()
