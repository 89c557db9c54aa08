"""Any sampler in each of several equal blocks of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..checks import integer
from ..recipe import fields_of, register, sampler
from ..types import Array, Batch, Sampler


@register("StrataState")
class StrataState(NamedTuple):
    """The state of the inner sampler of each block, and the first row of each."""

    inner: Any  # (k, ...)
    first: Array  # (k,)  int32


@sampler
def strata(inner: Sampler, *, blocks: int) -> Sampler:
    """The draws of `inner` in each of `blocks` equal blocks of rows, side by side.

        block j: rows j m to (j + 1) m - 1,   m = ceil(n / blocks);   key_j = fold_in(key, j)
        a step: inner.draw of block 0, .., inner.draw of block blocks - 1

    A step has `blocks` times as many rows as one of `inner`. A row of block j has the weight that
    `inner` gives it in its block, times K W_j / W. Here W_j is the sum of the weights in the block,
    and K the number of blocks where it is positive. So a step estimates the weighted mean loss of
    all rows without bias.

    On rows that lie on several devices (`jaxsvm.shard`), no row leaves its device if `blocks` is a
    multiple of the devices. What is drawn is a function of the key, the step and `blocks`, not of
    the devices.

    Args:
        inner: any sampler except `whole` and `pairs`.
        blocks: number of blocks, >= 1; structure.

    Returns:
        A sampler.

    Raises:
        TypeError: inner is not a sampler.
        ValueError: blocks below 1, or inner draws all rows, has blocks itself or combines rows.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[0.0], [1.0], [2.0], [3.0]], [1, -1, 1, -1])
        >>> s = strata(jaxsvm.samplers.epochs(1, shuffle=False), blocks=2)
        >>> s.draw(s.init(jax.random.key(0), data), 0, 2).tolist()
        [[0, 2], [1, 3]]

    Reference: W. G. Cochran, Sampling techniques, 3rd edition, 1977, chapter 5; P. Zhao, T. Zhang,
        Accelerating minibatch stochastic gradient descent using stratified sampling, arXiv
        1405.3080, 2014.
    """
    integer("blocks", blocks, 1)
    of_block = fields_of(inner)
    kinds = {
        "draws all rows": of_block.full_batch,
        "has blocks of its own": of_block.blocks > 1,
        "combines rows": of_block.combine is not None,
    }
    for kind in [text for text, is_so in kinds.items() if is_so]:
        raise ValueError(
            f"inner must draw rows of one block, and {inner} {kind}: take one such as "
            "samplers.epochs(16)"
        )

    def length(n):
        return -(-n // blocks)

    def cut(data: Batch) -> Batch:
        """The weights and row numbers in blocks, (k, m), without the rows; padding has weight 0."""
        n = data.weight.shape[0]
        weight = jnp.pad(data.weight, (0, length(n) * blocks - n)).reshape(blocks, -1)
        index = jnp.broadcast_to(jnp.arange(weight.shape[1], dtype=jnp.int32), weight.shape)
        return Batch(weight[..., None], weight, index, weight)

    def init(key, data):
        parts = cut(data)
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(jnp.arange(blocks, dtype=jnp.int32))
        first = parts.index.shape[1] * jnp.arange(blocks, dtype=jnp.int32)
        return StrataState(jax.vmap(of_block.init)(keys, parts), first)

    def draw(s, t, count):
        local = jax.vmap(lambda inner: of_block.draw(inner, t, count))(s.inner)  # (k, count, b)
        # a block without weight has no rows to draw: `uniform` names the one behind its last
        size = s.first[1] if blocks > 1 else jnp.int32(2**31 - 1)
        is_row = (local >= 0) & (local < size)
        index = jnp.where(is_row, local + s.first[:, None, None], -1)
        return jnp.moveaxis(index, 0, 1).reshape(count, -1)

    def weight(data):
        parts = cut(data)
        total = jnp.sum(parts.weight, axis=1)
        share = jnp.sum(total > 0, dtype=total.dtype) * total / jnp.sum(total)
        shares = jax.vmap(of_block.weight)(parts) * share[:, None]
        return shares.reshape(-1)[: data.weight.shape[0]]

    def feedback(s, index, progress):
        parts = lambda a: jnp.moveaxis(a.reshape(a.shape[0], blocks, -1), 1, 0)
        index = parts(index)
        local = jnp.where(index >= 0, index - s.first[:, None, None], -1)
        inner = jax.vmap(of_block.feedback)(s.inner, local, parts(progress))
        return s._replace(inner=inner)

    period = of_block.period
    return Sampler(
        init,
        draw,
        weight,
        feedback,
        period=None if period is None else lambda n: period(length(n)),
        rows=lambda n: blocks * of_block.rows(length(n)),
        blocks=blocks,
    )
