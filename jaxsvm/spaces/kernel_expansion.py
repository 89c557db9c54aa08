"""Kernel expansions over all training rows, with cached responses at all rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import models
from ..kernels import Kernel, as_kernel
from ..numerics import accum_dtype, count, dot, gather, two_sum
from ..recipe import register, space
from ..types import Array, Space


@register("ExpansionState")
class ExpansionState(NamedTuple):
    """f = sum_i coef_i k(x_i, .) and its values at the training rows, summed with compensation."""

    coef: Array  # (n,)
    response: Array  # (n,)  f(x_i)
    compensation: Array  # (n,)  rounding errors of the responses, still to be added


@space
def expansion(kernel: Kernel, *, unconditional: bool = False) -> Space:
    """f = sum_i coef_i k(x_i, .) over all n rows.

    A coefficient that changes costs one kernel row; memory is O(n). `evaluate` reads cached
    responses without kernel evaluations. `add` computes the kernel rows of a step by one product,
    and skips it where all coefficients are 0.

    Args:
        kernel: a kernel, or a function (n, d), (m, d) -> (n, m).
        unconditional: compute the product even where all coefficients are 0; faster for methods
            whose steps always change f, since XLA then uses all cores; structure.
    """
    kernel = as_kernel(kernel)

    def rows(batch):
        return jnp.maximum(batch.index, 0)

    def zero(key, data):
        zeros = jnp.zeros(data.x.shape[0], accum_dtype(data.x))
        return ExpansionState(zeros, zeros, zeros)

    def evaluate(f, batch):
        return gather(f.response, rows(batch))

    def add(f, shrink, coef, batch):
        index = rows(batch)

        def product():
            return dot(coef, kernel(batch.x[index], batch.x))

        keep = 1 - shrink
        term = (
            product()
            if unconditional
            else jax.lax.cond(jnp.any(coef != 0), product, lambda: jnp.zeros_like(f.response))
        )
        response, compensation = two_sum(keep * f.response, keep * f.compensation, term)
        return ExpansionState(
            (keep * f.coef).at[index].add(coef, mode="promise_in_bounds"), response, compensation
        )

    def evals(coef, batch):
        return count(coef != 0).astype(coef.dtype) * batch.x.shape[0]

    return Space(
        zero=zero,
        evaluate=evaluate,
        sqnorm=kernel.diag,
        add=add,
        model=lambda f, data=None: models.expansion(kernel, f.coef, data),
        gram=lambda batch: kernel.gram(batch.x, rows(batch)),
        evals=evals,
        support=lambda f: count(f.coef != 0),
        needs_all_rows=True,
        layout=kernel.layout,
    )
