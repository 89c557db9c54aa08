"""Any sampler in each of several equal blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._node import between, node, register
from ..types import Array, Batch, Sampler


@register("StrataState")
class StrataState(NamedTuple):
    """The state of the inner sampler of each block, and the first row of each."""

    inner: Any  # (k, ...)
    first: Array  # (k,)  int32


@node
class strata(Sampler):
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
        >>> s = jaxsvm.samplers.strata(jaxsvm.samplers.epochs(1, shuffle=False), blocks=2)
        >>> jax.jit(lambda key: s.draw(s.init(key, data), 0, 2))(jax.random.key(0)).tolist()
        [[0, 2], [1, 3]]

    Reference: W. G. Cochran, Sampling techniques, 3rd edition, 1977, chapter 5; P. Zhao, T. Zhang,
        Accelerating minibatch stochastic gradient descent using stratified sampling, arXiv
        1405.3080, 2014.
    """

    inner: Sampler
    _: KW_ONLY
    blocks: int = between(1)  # without the default of `Sampler`

    def check(self) -> None:
        if self.inner.full_batch or self.inner.blocks > 1 or self.inner.combine is not None:
            raise ValueError(
                f"inner must draw rows of one block, and {self.inner} draws all rows, has blocks "
                "of its own or combines rows: take one such as samplers.epochs(16)"
            )

    def length(self, n: int) -> int:
        """The rows of a block."""
        return -(-n // self.blocks)

    def cut(self, data: Batch) -> Batch:
        """The weights and row numbers in blocks, (k, m), without the rows; padding has weight 0."""
        n, k = data.weight.shape[0], self.blocks
        weight = jnp.pad(data.weight, (0, self.length(n) * k - n)).reshape(k, -1)
        index = jnp.broadcast_to(jnp.arange(weight.shape[1], dtype=jnp.int32), weight.shape)
        return Batch(weight[..., None], weight, index, weight)

    def init(self, key: Array, data: Batch) -> StrataState:
        parts, block = self.cut(data), jnp.arange(self.blocks, dtype=jnp.int32)
        keys = jax.vmap(lambda j: jax.random.fold_in(key, j))(block)
        return StrataState(jax.vmap(self.inner.init)(keys, parts), parts.index.shape[1] * block)

    def draw(self, s: StrataState, t: object, count: int) -> Array:
        local = jax.vmap(lambda inner: self.inner.draw(inner, t, count))(s.inner)  # (k, count, b)
        # a block without weight has no rows to draw: `uniform` names the one behind its last
        size = s.first[1] if self.blocks > 1 else jnp.int32(2**31 - 1)
        is_row = (local >= 0) & (local < size)
        index = jnp.where(is_row, local + s.first[:, None, None], -1)
        return jnp.moveaxis(index, 0, 1).reshape(count, -1)

    def rows(self, n: int) -> int:
        return self.blocks * self.inner.rows(self.length(n))

    def weight(self, data: Batch) -> Array:
        parts = self.cut(data)
        total = jnp.sum(parts.weight, axis=1)
        share = jnp.sum(total > 0, dtype=total.dtype) * total / jnp.sum(total)
        shares = jax.vmap(self.inner.weight)(parts) * share[:, None]
        return shares.reshape(-1)[: data.weight.shape[0]]

    @property
    def period(self) -> Callable | None:
        """That of the rows of a block."""
        period = self.inner.period
        return period and (lambda n: period(self.length(n)))

    def feedback(self, s: StrataState, index: Array, progress: Array) -> StrataState:
        parts = lambda a: jnp.moveaxis(a.reshape(a.shape[0], self.blocks, -1), 1, 0)
        index = parts(index)
        local = jnp.where(index >= 0, index - s.first[:, None, None], -1)
        return s._replace(inner=jax.vmap(self.inner.feedback)(s.inner, local, parts(progress)))
