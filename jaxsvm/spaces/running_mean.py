"""A space of functions with the running mean of its iterates."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..numerics import running_mean
from ..recipe import check_choice, register, space
from ..types import Array, Space, State


@register("MeanState")
class MeanState(NamedTuple):
    """The current function and the mean of the functions so far."""

    f: State
    mean: State
    compensation: State  # rounding errors of the mean, still to be added
    count: Array  # type: ignore[assignment]  # ()  int32, number of functions in the mean


@space
def averaged(inner: Space, *, of: str = "steps") -> Space:
    """The space `inner` with the mean of the iterates as the model.

    Evaluation is at the current function.

    mean_t = (f_1 + ... + f_t) / t. With "steps", f_1 = 0, f_2, ... are the functions before each
    step; with "moves", the functions after each step that changed f.

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
        is_counted, summand = (
            (jnp.ones((), bool), s.f) if of == "steps" else (jnp.any(coef != 0), f)
        )
        count = s.count + is_counted.astype(jnp.int32)
        step_size = is_counted.astype(coef.dtype) / jnp.maximum(count, 1).astype(coef.dtype)
        mean, compensation = running_mean(s.mean, s.compensation, summand, step_size)
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
        needs_all_rows=inner.needs_all_rows,
        layout=inner.layout,
    )
