"""Budgeted stochastic gradient descent (BSGD)."""

from __future__ import annotations

from dataclasses import KW_ONLY

from ..._node import node, positive
from ...budget import Maintenance, merge
from ...engines.online_learning import PegasosSolver
from ...kernels import Kernel
from ...samplers import epochs
from ...spaces import budgeted
from ...types import Space


@node
class bsgd(PegasosSolver):
    """Minimise lam/2 |w|^2 + mean_i max(0, 1 - y_i <w, phi(x_i)>) by subgradients on a budget.

    w has at most `budget` points; the subgradients are those of rows.

        w' = (1 - 1/t) w + [y_i <w, phi(x_i)> < 1] y_i phi(x_i) / (lam t),   t = 1, 2, ...
        w = maintain(w') if it has more than `budget` points

    The state is s = lam t w, so that equal numbers of violations give bitwise equal coefficients.
    The distance from the run without a budget, on the rows that violated here, is at most (1/T)
    sum_t t |what maintenance changed at step t|.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); Gaussian for `merge`.
        budget: m, points of the model, >= 2; structure.
        maintain: `budget.merge()`, `budget.remove()` or `budget.project()`.

    Returns:
        A solver on drawn rows; model `Expansion` of `budget` points, the last iterate, without
        bias. Default sampler: epochs of random order. Its state does not grow with the rows.

    Raises:
        ValueError: lam not a single positive number, budget below 2, a kernel without the chosen
            maintenance.

    Differs from the paper: the plain rule at t = 1 (the authors' program adds coefficient 1 there);
        a row that is a point already adds to its coefficient; example weights and batches of
        several rows, scored before the first of them.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.bsgd(2.0, jaxsvm.kernels.rbf(0.1), budget=2), data,
        ...     jax.random.key(0), steps=50)
        >>> [round(value, 2) for value in result.model(data.x).tolist()]
        [0.25, -0.25]

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization: budgeted
        stochastic gradient descent for large-scale SVM training, JMLR 13, 2012, algorithm 1.
    """

    lam: float = positive()
    kernel: Kernel
    _: KW_ONLY
    budget: int
    maintain: Maintenance = merge()

    sampler = epochs(1)

    @property
    def space(self) -> Space:
        return budgeted(self.kernel, budget=self.budget, maintain=self.maintain)
