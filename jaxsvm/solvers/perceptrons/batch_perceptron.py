"""The batch perceptron."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from ..._node import between, node, register
from ...engines.base import SpaceSolver
from ...kernels import Kernel
from ...models import Expansion
from ...numerics import argmax_value, index_row
from ...samplers import uniform
from ...spaces.kernel_expansion import ExpansionState, expansion
from ...types import Array, Batch, Info


@register("BatchPerceptronState")
class BatchPerceptronState(NamedTuple):
    """The function, and the weights of the rows."""

    f: ExpansionState
    weight: Array  # (n,)


@node
class batch_perceptron(SpaceSolver):
    """Find a function that separates with a margin, by adding the row of smallest margin.

    There is no objective and no bias.

        i = argmin_i y_i f(x_i); of several minima one that was added before
        f = f + weight_i y_i k(x_i, .)   if y_i f(x_i) <= margin |f|

    On data that a function of norm 1 separates with margin G, within radius R, margin 0 needs at
    most (R/G)^2 steps; f is constant afterwards. At slack 0 the water level is the smallest margin:
    the stochastic batch perceptron selects the same row at nu = 0. It projects, its steps decrease,
    and it never rests.

    Args:
        margin: the required margin, >= 0, below the maximum margin; in units of sqrt(k(x, x)).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).

    Returns:
        A solver on all rows that selects its own. The sampler only counts the steps, n a pass.
        Model `Expansion`. The residual is max(0, margin - min_i y_i f(x_i) / |f|) before the step,
        and infinite at f = 0; the loss is the share of rows with y_i f(x_i) <= 0.

    Raises:
        ValueError: margin not a single number of at least 0.

    Differs from the paper: equality also leads to a step, since f = 0 would be stationary
        otherwise; example weights multiply the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-2.0]], [1, -1])
        >>> result = jaxsvm.fit(jaxsvm.batch_perceptron(0.5, jaxsvm.kernels.linear()), data,
        ...     jax.random.key(0), steps=5)
        >>> result.model(data.x).tolist()
        [1.0, -2.0]

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron,
        ICML 2012, section 3, the perceptron of its authors' program.
    """

    margin: float = between(0.0)
    kernel: Kernel

    sampler = uniform()
    targets = "labels"

    @property
    def space(self) -> expansion:
        """The function space of f."""
        return expansion(self.kernel)

    def init(self, key: Array, data: Batch) -> BatchPerceptronState:
        f = self.space.zero(key, data)
        return BatchPerceptronState(f, jnp.array(data.weight, f.coef.dtype))

    def update(
        self, state: BatchPerceptronState, batch: Batch
    ) -> tuple[BatchPerceptronState, Info]:
        (f, weight), space = state, self.space
        score = f.response + f.compensation
        y, present = batch.y.astype(score.dtype), weight > 0
        neg_margin = jnp.where(present, -y * score, -jnp.inf)
        i, max_neg_margin = argmax_value(neg_margin)
        is_repeated = (neg_margin == max_neg_margin) & (f.coef != 0)
        repeated, has_repeated = argmax_value(jnp.where(is_repeated, 1, 0))
        i = jnp.where(has_repeated > 0, repeated, i)
        norm_f = jnp.sqrt(jnp.maximum(jnp.dot(f.coef, f.response), 0))
        distance = max_neg_margin / jnp.where(norm_f > 0, norm_f, 1)
        shortfall = self.margin + jnp.where(norm_f > 0, distance, jnp.inf)
        is_short = max_neg_margin + self.margin * norm_f >= 0
        coef = jnp.where(is_short, index_row(y * weight, i), 0)[None]
        added = batch._replace(index=i[None])
        f = space.add(f, jnp.zeros((), score.dtype), coef, added)
        info = Info(
            loss=jnp.dot(weight, (neg_margin >= 0).astype(y.dtype)) / jnp.sum(weight),
            residual=jnp.maximum(shortfall, 0),
            progress=jnp.zeros_like(coef),
            index=jnp.where(coef != 0, added.index, -1),
            support=space.support(f),
            evals=space.evals(coef, added),
        )
        return BatchPerceptronState(f, weight), info

    def model(self, state: BatchPerceptronState, data: Batch | None = None) -> Expansion:
        return self.space.model(state.f, data)
