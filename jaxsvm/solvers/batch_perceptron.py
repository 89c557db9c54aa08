"""The batch perceptron."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from ..kernels import Kernel, as_kernel
from ..numerics import argmax_value, index_row
from ..recipe import check_nonnegative, register, solver
from ..samplers import uniform
from ..spaces import expansion
from ..spaces.expansion import ExpansionState
from ..types import Array, Info, Solver


@register("BatchPerceptronState")
class BatchPerceptronState(NamedTuple):
    """The function, and the weights of the rows."""

    f: ExpansionState
    weight: Array  # (n,)


@solver
def batch_perceptron(margin: float, kernel: Kernel) -> Solver:
    """Find a function that separates with a margin, by adding the row that is worst; no objective, no bias.

        i = argmin_i y_i f(x_i), of several one that was added before
        f = f + weight_i y_i k(x_i, .)   if y_i f(x_i) <= margin |f|

    On data that a function of norm 1 separates with margin G, within radius R, margin 0 needs at most (R/G)^2 steps; then
    nothing moves. The worst row is one with slack 0: this is the stochastic batch perceptron at nu = 0 without its projection.

    Args:
        margin: to be exceeded, >= 0, below the largest possible one; in units of sqrt(k(x, x)).
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).

    Returns:
        A solver on all rows, which chooses its own: what the sampler draws only counts the steps, n a pass. Model
        `Expansion`. The residual is by how much the smallest margin y_i f(x_i) / |f| before the step fell short, at least 0,
        and infinite at f = 0; the loss is the share of rows with y_i f(x_i) <= 0.

    Raises:
        ValueError: margin no single number of at least 0.

    Differs from the paper: equality falls short too, without which f = 0 would stay; example weights multiply the step.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [-2.0]], [1, -1])
        >>> run = jaxsvm.fit(batch_perceptron(0.5, jaxsvm.kernels.linear()), data, jax.random.key(0), steps=5)
        >>> run.model(data.x).tolist()
        [1.0, -2.0]

    Reference: A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012, section 3,
        the perceptron of its authors' program.
    """
    check_nonnegative(margin=margin)
    space = expansion(as_kernel(kernel))

    def init(key, data):
        f = space.zero(key, data)
        return BatchPerceptronState(f, data.weight.astype(f.coef.dtype))

    def update(state, batch):
        f, weight = state
        score = f.response + f.compensation
        y, live = batch.y.astype(score.dtype), weight > 0
        below = jnp.where(live, -y * score, -jnp.inf)
        i, worst = argmax_value(below)
        again, known = argmax_value(jnp.where((below == worst) & (f.coef != 0), 1, 0))
        i = jnp.where(known > 0, again, i)
        size = jnp.sqrt(jnp.maximum(jnp.dot(f.coef, f.response), 0))
        short = margin + jnp.where(size > 0, worst / jnp.where(size > 0, size, 1), jnp.inf)
        coef = jnp.where(worst + margin * size >= 0, index_row(y * weight, i), 0)[None]
        own = batch._replace(index=i[None])
        f = space.add(f, jnp.zeros((), score.dtype), coef, own)
        info = Info(
            loss=jnp.dot(weight, (below >= 0).astype(y.dtype)) / jnp.sum(weight),
            residual=jnp.maximum(short, 0),
            progress=jnp.zeros_like(coef),
            index=jnp.where(coef != 0, own.index, -1),
            support=space.support(f),
            evals=space.evals(coef, own),
        )
        return BatchPerceptronState(f, weight), info

    model = lambda state, data=None: space.model(state.f, data)  # noqa: E731
    return Solver(init, update, model, uniform(), "all", targets="labels", layout=space.layout)
