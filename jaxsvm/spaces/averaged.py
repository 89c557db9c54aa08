"""Any vector space of functions with the running mean of its iterates beside it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..recipe import register, space
from ..types import Array, Space, State


@register("MeanState")
class MeanState(NamedTuple):
    """The current function and the mean of all before it."""

    f: State
    mean: State
    count: Array  # ()  int32, functions in the mean


@space
def averaged(inner: Space) -> Space:
    """`inner`, whose model is the mean of the functions at which the steps were taken.

    mean_t = (f_1 + ... + f_t) / t with f_1 = 0; evaluation is at the current function.

    Args:
        inner: a space whose states add like vectors (linear, expansion).
    """

    def zero(key, data):
        f = inner.zero(key, data)
        return MeanState(f, f, jnp.zeros((), jnp.int32))

    def add(s, shrink, coef, batch):
        count = s.count + 1
        mean = jax.tree.map(lambda m, v: m + (v - m) / count.astype(m.dtype), s.mean, s.f)
        return MeanState(inner.add(s.f, shrink, coef, batch), mean, count)

    return Space(
        zero=zero,
        evaluate=lambda s, batch: inner.evaluate(s.f, batch),
        sqnorm=inner.sqnorm,
        add=add,
        model=lambda s, data=None: inner.model(s.mean, data),
        gram=inner.gram,
        evals=inner.evals,
        support=lambda s: inner.support(s.mean),
        reads=inner.reads,
    )
