"""A space with a regularised intercept: one more coordinate, a constant feature 1."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from .._node import node, register
from ..numerics import accum_dtype
from ..types import Array, Batch, Model, Space, State
from .wrapper import SpaceWrapper


@register("ConstantState")
class ConstantState(NamedTuple):
    """A function and the weight of the constant feature."""

    f: State
    b: Array  # ()


@node
class with_constant(SpaceWrapper):
    """Functions f + b with squared norm |f|^2 + b^2: the space of the kernel k + 1.

    Args:
        inner: a space whose models have `b` and `bias` (linear, expansion).
    """

    inner: Space

    def zero(self, key: Array, data: Batch) -> ConstantState:
        return ConstantState(self.inner.zero(key, data), jnp.zeros((), accum_dtype(data.x)))

    def evaluate(self, f: ConstantState, batch: Batch) -> Array:
        return self.inner.evaluate(f.f, batch) + f.b

    def sqnorm(self, x: Array) -> Array:
        return self.inner.sqnorm(x) + 1

    def add(self, f: ConstantState, shrink: Array, coef: Array, batch: Batch) -> ConstantState:
        b = (1 - shrink) * f.b + jnp.sum(coef)
        return ConstantState(self.inner.add(f.f, shrink, coef, batch), b)

    def model(self, f: ConstantState, data: Batch | None = None) -> Model:
        model: Any = self.inner.model(f.f, data)
        return dataclasses.replace(model, b=f.b, bias="feature")

    def gram(self, batch: Batch) -> Array:
        return self.inner.gram(batch) + 1

    def support(self, f: ConstantState) -> Array:
        return self.inner.support(f.f)
