"""Linear functions by their weights; a step reads the sampled rows only."""

from __future__ import annotations

import jax.numpy as jnp

from ..models import Linear
from ..numerics import accum_dtype, add_rows, count, cross_products, dot, sqnorms
from ..recipe import space
from ..types import Space


@space
def linear() -> Space:
    """Linear functions f(x) = <w, x> by their weights w (d,), without a bias.

    See `with_constant` for a regularised bias.
    """

    def zero(key, data):
        return jnp.zeros(data.x.shape[-1], accum_dtype(data.x))

    def evaluate(w, batch):
        return dot(batch.x, w)

    def add(w, shrink, coef, batch):
        return add_rows((1 - shrink) * w, coef, batch.x)

    def model(w, data=None):
        return Linear(w, jnp.zeros((), w.dtype))

    return Space(
        zero=zero,
        evaluate=evaluate,
        sqnorm=sqnorms,
        add=add,
        model=model,
        gram=lambda batch: (
            sqnorms(batch.x)[:, None] if batch.x.shape[0] == 1 else cross_products(batch.x, batch.x)
        ),
        evals=lambda coef, batch: count(batch.weight > 0),
        support=lambda w: jnp.full((), w.shape[0], jnp.int32),
    )
