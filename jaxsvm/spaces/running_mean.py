"""A space of functions with the running mean of its iterates."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Literal, NamedTuple

import jax.numpy as jnp

from .._node import node, register
from ..numerics import running_mean
from ..types import Array, Batch, Model, Space, State
from .wrapper import SpaceWrapper


@register("MeanState")
class MeanState(NamedTuple):
    """The current function and the mean of the functions so far."""

    f: State
    mean: State
    compensation: State  # rounding errors of the mean, still to be added
    count: Array  # type: ignore[assignment]  # ()  int32, number of functions in the mean


@node
class averaged(SpaceWrapper):
    """The space `inner` with the mean of the iterates as the model.

    Evaluation is at the current function.

    mean_t = (f_1 + ... + f_t) / t. With "steps", f_1 = 0, f_2, ... are the functions before each
    step; with "moves", the functions after each step that changed f.

    Args:
        inner: a space whose states add like vectors (linear, expansion).
        of: "steps" or "moves"; structure.
    """

    inner: Space
    _: KW_ONLY
    of: Literal["steps", "moves"] = "steps"

    def zero(self, key: Array, data: Batch) -> MeanState:
        zero = lambda: self.inner.zero(key, data)  # each with arrays of its own
        return MeanState(zero(), zero(), zero(), jnp.zeros((), jnp.int32))

    def evaluate(self, f: MeanState, batch: Batch) -> Array:
        return self.inner.evaluate(f.f, batch)

    def add(self, f: MeanState, shrink: Array, coef: Array, batch: Batch) -> MeanState:
        new = self.inner.add(f.f, shrink, coef, batch)
        is_counted = jnp.ones((), bool) if self.of == "steps" else jnp.any(coef != 0)
        summand = f.f if self.of == "steps" else new
        count = f.count + is_counted.astype(jnp.int32)
        step_size = is_counted.astype(coef.dtype) / jnp.maximum(count, 1).astype(coef.dtype)
        mean, compensation = running_mean(f.mean, f.compensation, summand, step_size)
        return MeanState(new, mean, compensation, count)

    def model(self, f: MeanState, data: Batch | None = None) -> Model:
        return self.inner.model(f.mean, data)

    def support(self, f: MeanState) -> Array:
        return self.inner.support(f.mean)
