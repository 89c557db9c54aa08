"""Stochastic dual coordinate ascent."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from typing import Literal

import jax.numpy as jnp

from ... import spaces
from ..._node import node, positive
from ...engines.coordinate_ascent import CoordinateSolver, dual_coef
from ...kernels import Kernel
from ...losses import hinge
from ...models import expansion
from ...types import Array, Batch, Loss, Model, Space, State


@node
class sdca(CoordinateSolver):
    """Maximise the dual of 1/2 |w|^2 + C sum_i weight_i loss(<w, phi(x_i)>, y_i) by coordinates.

    A step maximises it exactly along one row.

        w = sum_i alpha_i y_i phi(x_i),   0 <= alpha_i <= C weight_i   (hinge)
        alpha_i' = clip(alpha_i + (1 - y_i <w, phi(x_i)>) / k(x_i, x_i), 0, C weight_i)
        w += (alpha_i' - alpha_i) y_i phi(x_i)

    No step decreases the dual. Bias "feature" adds 1 to k, and b = sum_i alpha_i y_i.

    Args:
        C: weight of one row's loss, > 0; lam = 1/(C n) in lam/2 |w|^2 + mean loss.
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m); None is linear.
        loss: any loss with a dual step, real targets included.
        bias: "none", or "feature": the weight of a constant feature 1, regularised with the others.
            (A free bias is an equality in the dual, which no single coordinate can keep.)
        start: (n,) initial alpha, within its bounds; for losses of real targets the signed
            coefficients.

    Returns:
        A solver on drawn rows (linear, model `Linear`) or on all rows (model `Expansion` with its
        dual variables, so that its certificate is exact). Default sampler: epochs of random order.
        The residual is the largest move times k(x_i, x_i) in the last whole pass (margin units), so
        `tol` may stop on it.

    Raises:
        ValueError: C not a single positive number, another bias, start of another length than the
            data; from `fit` for a precomputed matrix that is not symmetric.

    Differs from the paper: permuted passes by default (the analysis draws uniformly:
        `samplers.uniform()`).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.sdca(10.0), data, jax.random.key(0), steps=10)
        >>> float(result.model.w[0])
        1.0

    Reference: C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, A dual coordinate
        descent method for large-scale linear SVM, ICML 2008, algorithm 1; S. Shalev-Shwartz, T.
        Zhang, Stochastic dual coordinate ascent methods for regularized loss minimization, JMLR 14,
        2013.
    """

    C: float = positive()
    kernel: Kernel | None = None
    _: KW_ONLY
    loss: Loss = hinge
    bias: Literal["none", "feature"] = "none"
    start: Array | None = None

    @property
    def space(self) -> Space:
        return spaces.space_for(self.kernel, self.bias)

    def model(self, state: State, data: Batch | None = None) -> Model:
        if self.kernel is None:
            return self.space.model(state.f, data)
        coef = dual_coef(state)
        f = expansion(self.kernel, coef, data, self.bias)
        return f if self.bias == "none" else dataclasses.replace(f, b=jnp.sum(coef))
