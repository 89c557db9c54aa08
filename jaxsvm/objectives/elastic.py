"""The duality gap of a linear machine with an L1 or elastic net penalty."""

from __future__ import annotations

import jax.numpy as jnp

from ..numerics import fast_max, pairwise_sum
from ..types import Array, Loss


def elastic_gap(
    v: Array, score: Array, grad: Array, y: Array, share: Array, loss: Loss, l1: Array, l2: Array
) -> tuple[Array, Array]:
    """The gap of l1 |v|_1 + l2/2 |v|^2 + sum_i share_i loss(f_i, y_i), f = X v, and its value.

    It is the smaller one of two dual points, c = 1 and the largest c <= 1 with |c g| <= l1:

        gap = sum_i share_i (loss_i + conjugate(c slope_i) - c slope_i f_i)
            + sum_j l1 |v_j| + l2/2 v_j^2 + c g_j v_j + max(|c g_j| - l1, 0)^2 / (2 l2)

    No term is negative but for rounding.

    Args:
        v: (p,) the weights.
        score: (n,) f.
        grad: (p,) g = X' (share slope).
        y: (n,) targets.
        share: (n,) weights of the rows, of sum 1.
        loss: one with a conjugate.
        l1: () >= 0.
        l2: () >= 0; l1 + l2 > 0.
    """
    losses, slope = loss.value(score, y), loss.slope(score, y)

    def gap(c, over):
        row = losses + loss.conjugate(c * slope, y) - c * slope * score
        excess = jnp.where(over > 0, over * over / (2 * l2), 0)
        column = l1 * jnp.abs(v) + l2 / 2 * v * v + c * grad * v + excess
        of_rows = pairwise_sum(jnp.where(share > 0, share * jnp.maximum(row, 0), 0))
        return of_rows + pairwise_sum(jnp.maximum(column, 0))

    largest = fast_max(jnp.abs(grad))
    fits = jnp.where(largest > l1, l1 / jnp.where(largest > 0, largest, 1), 1)
    value = pairwise_sum(share * losses) + pairwise_sum(l1 * jnp.abs(v) + l2 / 2 * v * v)
    over = jnp.maximum(jnp.abs(grad) - l1, 0)
    at_one = gap(jnp.ones_like(fits), over)
    return jnp.fmin(at_one, gap(fits, jnp.zeros_like(over))), value
