"""Linear support vector machines."""

from __future__ import annotations

from typing import Any

from ..solvers import sdca
from ..types import Loss
from .base import MEASURED_PASSES
from .classifier import BaseClassifier
from .parameters import loss_of


class LinearSVC(BaseClassifier):
    """1/2 (|w|^2 + b^2) + C sum_i weight_i loss(y_i (<w, x_i> + b)) by dual coordinate ascent.

    The problem of scikit-learn's `LinearSVC(dual=True)` with the same loss.

    Args:
        C: weight of the loss of each row, > 0.
        loss: "hinge", "squared_hinge", or a loss of jaxsvm.
        bias: "feature", an intercept regularised with the weights, or "none".
        tol: stop once the largest change of a margin in a pass is at most this, > 0.
        max_passes: passes over the rows at most, >= 1. They are rounded up to whole chunks of
            steps: one pass over the rows padded to a multiple of 256 or more, and at least 128
            steps.
        class_weight: as `SVMClassifier`.
        random_state: as `SVMClassifier`.
        progress: as `SVMClassifier`.

    Attributes:
        classes_, model_, fit_, n_iter_, coef_, intercept_: as `SVMClassifier`.

    Example:
        >>> clf = LinearSVC(C=10.0, random_state=0).fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
        >>> clf.score([[0.5], [3.5]], [0, 1])
        1.0
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str | Loss = "hinge",
        bias: str = "feature",
        tol: float | str | None = 1e-3,
        max_passes: int | None = MEASURED_PASSES,
        class_weight: dict | str | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.C = C
        self.loss = loss
        self.bias = bias
        self.tol = tol
        self.max_passes = max_passes
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def _make_solver(self, x: Any, weight: Any, copies: Any, previous: Any = None) -> Any:
        return sdca(self.C, loss=loss_of(self.loss), bias=self.bias)

    def _run_options(self, n: int) -> dict[str, Any]:
        return {
            "steps": None,
            "passes": self.max_passes,
            "tol": self.tol,
            "sampler": None,
            "progress": self.progress,
        }

    def _columns(self) -> str:
        return "padded"
