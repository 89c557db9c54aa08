"""Loops of unequal length and branches on a step counter under `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        flags, leaves, tree = jax.tree.leaves(batched), *jax.tree.flatten(args)

        def batched_call(*leaves):
            axes = [0 if flag else None for flag in flags]
            return jax.vmap(lambda *leaves: fn(*jax.tree.unflatten(tree, leaves)), axes)(*leaves)

        def sequential_call(*leaves):
            return _map(lambda leaves: single(*jax.tree.unflatten(tree, leaves)), leaves, flags)

        result = lax.platform_dependent(*leaves, cpu=sequential_call, default=batched_call)
        return result, jax.tree.map(lambda _: True, result)

    return single


def map_sharing(prepare: Callable, solve: Callable, lanes: Callable) -> Callable:
    """The function (shared, own) -> solve(prepare(shared), own), in groups under `vmap`.

    Where `shared` is the same for all elements, `prepare` is called once for all of them. Otherwise
    it is called for each group: no more than one group's results are in memory. On other devices
    than a CPU all elements are one group, unless groups are of one element.

    Args:
        prepare: a function of one pytree.
        solve: a function of the result and of another pytree.
        lanes: (shared, own) -> the number of elements of a group on a CPU, by shapes alone, which
            may or may not have a leading axis. The loops of a group go on until its last element
            has ended. 1: one after the other.
    """
    prepare, solve = jax.jit(prepare), jax.jit(solve)  # traced once for both uses below

    @jax.custom_batching.custom_vmap
    def single(shared, own):
        return solve(prepare(shared), own)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        flags, leaves, tree = jax.tree.leaves(batched), *jax.tree.flatten(args)
        width, is_shared = lanes(*args), not any(jax.tree.leaves(batched[0]))

        def call(prepared, leaves):
            shared, own = jax.tree.unflatten(tree, leaves)
            return solve(prepare(shared) if prepared is None else prepared, own)

        @jax.custom_batching.sequential_vmap  # also under an outer `vmap`
        def in_sequence(leaves):
            prepared = prepare(jax.tree.unflatten(tree, leaves)[0]) if is_shared else None
            return _map(lambda leaves: call(prepared, leaves), leaves, flags)

        @jax.custom_batching.sequential_vmap
        def group(prepared, leaves):
            axes = [0 if flag else None for flag in flags]
            return jax.vmap(lambda *leaves: call(prepared, leaves), axes)(*leaves)

        def in_groups(*leaves):
            prepared = prepare(jax.tree.unflatten(tree, leaves)[0]) if is_shared else None
            return _map_groups(lambda leaves: group(prepared, leaves), leaves, flags, size, width)

        def at_once(*leaves):
            return group(None, leaves)

        if width == 1:
            result = in_sequence(leaves)
        else:
            result = lax.platform_dependent(*leaves, cpu=in_groups, default=at_once)
        return result, jax.tree.map(lambda _: True, result)

    return single


def _map_groups(
    fn: Callable, leaves: Sequence[Array], batched: Sequence[bool], size: int, width: int
) -> Any:
    """`fn` of groups of at most `width` elements, all of one size; the last is repeated to fill."""
    groups = -(-size // width)
    width = -(-size // groups)
    place = jnp.minimum(jnp.arange(groups * width), size - 1).reshape(groups, width)
    take = lambda a, flag: a[place] if flag else a
    grouped = [take(a, flag) for a, flag in zip(leaves, batched, strict=True)]
    result = _map(fn, grouped, batched)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:size], result)


def _map(fn: Callable, leaves: Sequence[Array], batched: Sequence[bool]) -> Any:
    """`fn` of the leaves, mapped in sequence over the first axis of those that are batched."""

    def call(rows):
        rows = iter(rows)
        return fn([next(rows) if flag else a for a, flag in zip(leaves, batched, strict=True)])

    return lax.map(call, [a for a, flag in zip(leaves, batched, strict=True) if flag])


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
