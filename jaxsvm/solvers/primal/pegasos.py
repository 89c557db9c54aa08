"""Pegasos: stochastic subgradients with step 1/(lam t)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from ..._node import between, node, positive
from ...engines.gradient_descent import GradientSolver, pegasos_steps
from ...losses import hinge
from ...types import Array, Loss
from .scaled import ScaledSteps


@node
class pegasos(GradientSolver):
    """Minimise lam/2 |w|^2 + mean_i loss(<w, x_i>, y_i) by stochastic subgradients.

        V = {i in batch: y_i <w, x_i> < 1}                     (hinge; other losses by their slope)
        w = (1 - 1/t) w + 1/(lam t) sum_V y_i x_i / |batch|,   t = 1, 2, ...
        w = w min(1, 1/(sqrt(lam) |w|))                        (if project)

    Returns the last iterate; wrap in `averaged` for the mean, with `start` or growing `weights` to
    discount the first steps. Minibatches: `sampler=samplers.uniform(64)` or `samplers.epochs(64)`
    in `fit`. As printed, the first R^2/lam steps (R^2 = max |x|^2) are longer than 1/R^2, and w
    oscillates. `offset=R^2/lam` omits them; use it for rows of norm well above 1 and for runs of
    fewer than R^2/lam steps.

    Args:
        lam: regularisation, > 0; C = 1/(lam n).
        loss: a loss of scores.
        project: onto the ball of radius 1/sqrt(lam), which holds the optimum of losses with loss(0)
            <= 1, as lam |w*|^2 <= loss(0); switch it off for those that are larger at 0 (real
            targets).
        bias: "none"; "feature" (weight of a constant feature 1, regularised, in the ball); "free"
            (not regularised; moved by steps 1/sqrt(t), since 1/(lam t) needs strong convexity).
        offset: initial value of the step counter, >= 0: the step is 1/(lam (t + offset)); None: 0.
        advance_on_violation: t grows only at steps with a violation (variant A): larger steps, same
            optimum.

    Returns:
        A solver on drawn rows; model `Linear`. Default sampler: one uniformly drawn row per step.

    Raises:
        ValueError: lam not a single positive number, offset below 0, unknown bias.

    Differs from the paper: the ball has radius 1/sqrt(lam) (the overview says diameter); the
        shrink is never skipped, as skipping it would solve the problem of another lam; the free
        bias has a step of its own; `offset` (as in Bottou's schedule).

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-1.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.pegasos(2.0), data, jax.random.key(0), steps=100)
        >>> round(float(result.model.w[0]), 3)
        0.5

    Reference: S. Shalev-Shwartz, Y. Singer, N. Srebro, A. Cotter, Pegasos: primal estimated
        sub-gradient solver for SVM, Mathematical Programming 127, 2011, figures 1 and 2, section 6;
        J. Rupnik, Stochastic subgradient approach for solving linear support vector machines, SiKDD
        2008, sections 3.2, 4.5.
    """

    lam: float = positive()
    _: KW_ONLY
    loss: Loss = hinge
    project: bool = True
    bias: Literal["none", "feature", "free"] = "none"
    advance_on_violation: bool = False
    offset: float | None = between(0.0, default=None)

    def chain(self, stats: object) -> optax.GradientTransformation:
        scale = when_active if self.advance_on_violation else optax.scale_by_learning_rate
        offset = 0.0 if self.offset is None else self.offset
        return pegasos_steps(self.lam, self.bias, scale, self.project, offset)

    @property
    def sparse_steps(self) -> ScaledSteps:
        return ScaledSteps(self)


def when_active(schedule: Callable[[Array], Array]) -> optax.GradientTransformationExtraArgs:
    """`optax.scale_by_learning_rate` that counts the steps with a violation only.

    The step counter is constant at steps where `active` is false.

    Args:
        schedule: count from 0 -> step size.

    Reference: J. Rupnik, SiKDD 2008, section 4.5.
    """
    inner = optax.scale_by_learning_rate(schedule)

    def update(updates, state, params=None, *, active, **extra):
        updates, new = inner.update(updates, state, params)
        return updates, jax.tree.map(lambda a, b: jnp.where(active, a, b), new, state)

    return optax.GradientTransformationExtraArgs(inner.init, update)
