"""Kernel expansions over all training rows, with cached responses at all rows."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import models
from .._node import node, register
from ..kernels import Kernel
from ..numerics import accum_dtype, count, dot, gather, two_sum
from ..types import Array, Batch, Space


@register("ExpansionState")
class ExpansionState(NamedTuple):
    """f = sum_i coef_i k(x_i, .) and its values at the training rows, summed with compensation."""

    coef: Array  # (n,)
    response: Array  # (n,)  f(x_i)
    compensation: Array  # (n,)  rounding errors of the responses, still to be added


@node
class expansion(Space):
    """f = sum_i coef_i k(x_i, .) over all n rows.

    A coefficient that changes costs one kernel row; memory is O(n). `evaluate` reads cached
    responses without kernel evaluations. `add` computes the kernel rows of a step by one product,
    and skips it where all coefficients are 0.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        unconditional: compute the product even where all coefficients are 0; faster for methods
            whose steps always change f, since XLA then uses all cores; structure.
    """

    kernel: Kernel
    _: KW_ONLY
    unconditional: bool = False

    needs_all_rows = True

    def zero(self, key: Array, data: Batch) -> ExpansionState:
        zeros = lambda: jnp.zeros(data.x.shape[0], accum_dtype(data.x))
        return ExpansionState(zeros(), zeros(), zeros())

    def evaluate(self, f: ExpansionState, batch: Batch) -> Array:
        return gather(f.response, _rows(batch))

    def sqnorm(self, x: Array) -> Array:
        return self.kernel.diag(x)

    def add(self, f: ExpansionState, shrink: Array, coef: Array, batch: Batch) -> ExpansionState:
        index = _rows(batch)
        product = lambda: dot(coef, self.kernel(batch.x[index], batch.x))
        none = lambda: jnp.zeros_like(f.response)
        term = product() if self.unconditional else jax.lax.cond(jnp.any(coef != 0), product, none)
        keep = 1 - shrink
        response, compensation = two_sum(keep * f.response, keep * f.compensation, term)
        new = (keep * f.coef).at[index].add(coef, mode="promise_in_bounds")
        return ExpansionState(new, response, compensation)

    def model(self, f: ExpansionState, data: Batch | None = None) -> models.Expansion:
        return models.expansion(self.kernel, f.coef, data)

    def gram(self, batch: Batch) -> Array:
        return self.kernel.gram(batch.x, _rows(batch))

    def evals(self, coef: Array, batch: Batch) -> Array:
        return count(coef != 0).astype(coef.dtype) * batch.x.shape[0]

    def support(self, f: ExpansionState) -> Array:
        return count(f.coef != 0)

    def layout(self, data: Batch) -> Batch:
        return self.kernel.layout(data)


def _rows(batch: Batch) -> Array:
    """The row numbers of the step."""
    return jnp.maximum(batch.index, 0)
