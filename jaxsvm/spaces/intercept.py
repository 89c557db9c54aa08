"""A space with a regularised intercept: one more coordinate, a constant feature 1."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from ..numerics import accum_dtype
from ..recipe import register, space
from ..types import Array, Space, State


@register("ConstantState")
class ConstantState(NamedTuple):
    """A function and the weight of the constant feature."""

    f: State
    b: Array  # ()


@space
def with_constant(inner: Space) -> Space:
    """Functions f + b with squared norm |f|^2 + b^2: the space of the kernel k + 1.

    Args:
        inner: a space whose models have `b` and `bias` (linear, expansion).
    """

    def add(s, shrink, coef, batch):
        return ConstantState(
            inner.add(s.f, shrink, coef, batch), (1 - shrink) * s.b + jnp.sum(coef)
        )

    return Space(
        zero=lambda key, data: ConstantState(
            inner.zero(key, data), jnp.zeros((), accum_dtype(data.x))
        ),
        evaluate=lambda s, batch: inner.evaluate(s.f, batch) + s.b,
        sqnorm=lambda x: inner.sqnorm(x) + 1,
        add=add,
        model=lambda s, data=None: dataclasses.replace(
            inner.model(s.f, data), b=s.b, bias="feature"
        ),
        gram=lambda batch: inner.gram(batch) + 1,
        evals=inner.evals,
        support=lambda s: inner.support(s.f),
        needs_all_rows=inner.needs_all_rows,
        layout=inner.layout,
    )
