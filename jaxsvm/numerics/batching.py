"""Loops of unequal length and branches on a step counter under `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..types import Array


def map_on_cpu(fn: Callable) -> Callable:
    """The function `fn`, mapped over elements in sequence on a CPU under `vmap`.

    `fn` is a function of arrays with data-dependent loops. A batched loop runs for all elements
    until the last one has ended, and nested loops multiply this. Other devices use the batched
    loops, since the launch of a small step costs them more than its work.
    """

    @jax.custom_batching.custom_vmap
    def single(*args):
        return fn(*args)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        leaves, tree = jax.tree.flatten(args)
        axes = [0 if b else None for b in jax.tree.leaves(batched)]

        def batched_call(*leaves):
            return jax.vmap(lambda *arguments: fn(*jax.tree.unflatten(tree, arguments)), axes)(
                *leaves
            )

        def sequential_call(*leaves):
            def call_element(rows):
                rows = iter(rows)
                arguments = [
                    a if axis is None else next(rows) for a, axis in zip(leaves, axes, strict=True)
                ]
                return single(*jax.tree.unflatten(tree, arguments))

            return lax.map(
                call_element, [a for a, axis in zip(leaves, axes, strict=True) if axis == 0]
            )

        result = lax.platform_dependent(*leaves, cpu=sequential_call, default=batched_call)
        return result, jax.tree.map(lambda _: True, result)

    return single


@jax.custom_batching.custom_vmap
def any_under_vmap(when: Array) -> Array:
    """The condition () of a `cond` on a step counter: under `vmap` true if any one is.

    An example is `any_under_vmap(t % 64 == 0)`. A rare branch then stays a branch when several
    problems are mapped. A `cond` on a batched condition computes both branches at every step.
    """
    return when


@any_under_vmap.def_vmap
def _of_any(size: int, batched: Any, when: Array) -> tuple[Array, bool]:
    return any_under_vmap(jnp.any(when)), False  # also under an outer `vmap`
