"""Budgeted online gradient descent (BOGD)."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

from ..._node import node, positive
from ...budget import Change, Maintenance, Points, remove_point
from ...engines.online_learning import DescentSolver
from ...kernels import Kernel
from ...numerics import is_traced
from ...spaces import budgeted
from ...types import Space, State


@node
class _oldest(Maintenance):
    """Removal of the oldest point."""

    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        return remove_point(points, points.oldest), state


@node
class bogd(DescentSolver):
    """Minimise lam/2 |w|^2 + hinge on a budget by online gradient descent with a constant step.

        f = (1 - eta lam) f + eta [y_i f(x_i) < 1] y_i k(x_i, .)
        remove the oldest of more than `budget` points

    The function consists of the last m violations, so that eta m must be well above 1.

    Args:
        lam: regularisation, > 0.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        budget: m, points of the model, >= 2; structure.
        eta: step, > 0; eta lam < 1.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points. Default sampler: epochs of
        random order.

    Raises:
        ValueError: lam or eta not a single positive number, eta lam not below 1, budget below 2.

    Differs from the paper: the oldest point is removed (the paper draws one and scales the others
        up); example weights multiply the step; a row that is a point already adds to its
        coefficient and becomes the newest.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> solver = jaxsvm.bogd(0.1, jaxsvm.kernels.linear(), budget=2)
        >>> [round(value) for value in jaxsvm.fit(solver, data, jax.random.key(0),
        ...     steps=40).model(data.x).tolist()]
        [1, -1]

    Reference: P. Zhao, J. Wang, P. Wu, R. Jin, S. Hoi, Fast bounded online gradient descent
        algorithms for scalable kernel-based online learning, ICML 2012; S. Hoi, J. Wang, P. Zhao,
        LIBOL and KOL, JMLR 15, 2014.
    """

    lam: float = positive()
    kernel: Kernel
    _: KW_ONLY
    budget: int
    eta: float = positive(default=0.2)

    def check(self) -> None:
        super().check()
        if not is_traced(self.lam, self.eta) and float(self.eta) * float(self.lam) >= 1:
            raise ValueError(
                "eta lam must be below 1, or a step turns the function round, got "
                f"{float(self.eta) * float(self.lam):g}: lower eta"
            )

    @property
    def space(self) -> Space:
        return budgeted(self.kernel, budget=self.budget, maintain=_oldest())
