"""What perceptrons on a budget share: all but the choice of the point that leaves."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar

from ..._node import node
from ...budget import Maintenance
from ...engines.online_learning import PerceptronSolver
from ...kernels import Kernel
from ...spaces import budgeted
from ...types import Space


@node
class BudgetedPerceptron(PerceptronSolver):
    """The perceptron on at most `budget` points."""

    kernel: Kernel
    _: KW_ONLY
    budget: int

    maintain: ClassVar[Maintenance]

    @property
    def space(self) -> Space:
        return budgeted(self.kernel, budget=self.budget, maintain=self.maintain)
