"""Loops of unequal length and branches on a clock under `vmap`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..types import Array


def map_on_cpu(fn: Callable) -> Callable:
    """`fn` of arrays, with loops whose length depends on them: under `vmap` a CPU works the elements off one after the other.

    The loops that `vmap` makes go on for all elements until the last one is done, and a loop within a loop multiplies that.
    Other devices take these, as small steps cost them more than what is done in them.
    """

    @jax.custom_batching.custom_vmap
    def alone(*args):
        return fn(*args)

    @alone.def_vmap
    def many(size, batched, *args):
        leaves, tree = jax.tree.flatten(args)
        axes = [0 if b else None for b in jax.tree.leaves(batched)]

        def together(*leaves):
            return jax.vmap(lambda *own: fn(*jax.tree.unflatten(tree, own)), axes)(*leaves)

        def in_turn(*leaves):
            def one(rows):
                rows = iter(rows)
                own = [a if axis is None else next(rows) for a, axis in zip(leaves, axes, strict=True)]
                return alone(*jax.tree.unflatten(tree, own))

            return lax.map(one, [a for a, axis in zip(leaves, axes, strict=True) if axis == 0])

        found = lax.platform_dependent(*leaves, cpu=in_turn, default=together)
        return found, jax.tree.map(lambda _: True, found)

    return alone


@jax.custom_batching.custom_vmap
def any_under_vmap(when: Array) -> Array:
    """The condition () of a `cond` on a clock, such as `due(t % 64 == 0)`: under `vmap` it holds for all where it does for one.

    A branch that is taken now and then stays one, where several problems have a clock each: a `cond` on conditions of their
    own works out both branches at every step.
    """
    return when


@any_under_vmap.def_vmap
def _of_any(size, batched, when):
    return any_under_vmap(jnp.any(when)), False  # and for all of an outer map
