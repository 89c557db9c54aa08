"""Any vector space of functions with the running mean of its iterates beside it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..numerics import running_mean
from ..recipe import check_choice, register, space
from ..types import Array, Space, State


@register("MeanState")
class MeanState(NamedTuple):
    """The current function and the mean of all before it."""

    f: State
    mean: State
    compensation: State  # what rounding took from the mean
    count: Array  # ()  int32, functions in the mean


@space
def averaged(inner: Space, *, of: str = "steps") -> Space:
    """`inner`, whose model is a mean of its functions; evaluation is at the current one.

    mean_t = (f_1 + ... + f_t) / t, where f_1 = 0, f_2, ... are the functions at which the steps were taken; or those that
    steps led to which moved them.

    Args:
        inner: a space whose states add like vectors (linear, expansion).
        of: "steps" or "moves"; structure.
    """
    check_choice("of", of, ("steps", "moves"))

    def zero(key, data):
        f = inner.zero(key, data)
        return MeanState(f, f, jax.tree.map(jnp.zeros_like, f), jnp.zeros((), jnp.int32))

    def add(s, shrink, coef, batch):
        f = inner.add(s.f, shrink, coef, batch)
        counts, seen = (jnp.ones((), bool), s.f) if of == "steps" else (jnp.any(coef != 0), f)
        count = s.count + counts.astype(jnp.int32)
        share = counts.astype(coef.dtype) / jnp.maximum(count, 1).astype(coef.dtype)
        mean, compensation = running_mean(s.mean, s.compensation, seen, share)
        return MeanState(f, mean, compensation, count)

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
        layout=inner.layout,
    )
