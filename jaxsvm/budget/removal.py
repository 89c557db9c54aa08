"""Budget maintenance by removal of the point that changes the function least."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._node import node
from ..kernels import Kernel
from ..types import State
from .base import Change, Maintenance, Points, remove_point


@node
class remove(Maintenance):
    """Remove the point whose removal changes the function least.

        r = argmin_j |w - w'|^2 = argmin_j coef_j^2 k(x_j, x_j)

    The oldest point goes in a tie. The new point is a candidate: where its removal changes f least,
    it is not stored.

    Example:
        >>> import jax, jaxsvm
        >>> remove = jaxsvm.budget.remove()
        >>> solver = jaxsvm.bsgd(0.1, jaxsvm.kernels.linear(), budget=2, maintain=remove)
        >>> result = jaxsvm.fit(solver, jaxsvm.dataset([[1.0], [-1.0]], [1, -1]), jax.random.key(0),
        ...     steps=20)
        >>> result.model.x.shape
        (2, 1)

    Reference: Z. Wang, K. Crammer, S. Vucetic, Breaking the curse of kernelization: budgeted
        stochastic gradient descent for large-scale SVM training, JMLR 13, 2012, section 4.3.
    """

    @jax.named_scope("remove")
    def change(self, kernel: Kernel, points: Points, state: State) -> tuple[Change, Any]:
        diag = jnp.append(kernel.diag(points.x), kernel.diag(points.row[None]))
        return remove_point(points, points.oldest_of(-points.coef * points.coef * diag)), state
