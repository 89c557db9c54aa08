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


def map_sharing(prepare: Callable, solve: Callable) -> Callable:
    """The function (shared, own) -> solve(prepare(shared), own), in sequence under `vmap`.

    Where `shared` is the same for all elements, `prepare` is called once for all of them, and
    otherwise once for each: no more than one of its results is in memory.

    Args:
        prepare: a function of one pytree.
        solve: a function of the result and of another pytree.
    """
    prepare, solve = jax.jit(prepare), jax.jit(solve)  # traced once for both uses below

    @jax.custom_batching.custom_vmap
    def single(shared, own):
        return solve(prepare(shared), own)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        flags, leaves, tree = jax.tree.leaves(batched), *jax.tree.flatten(args)

        @jax.custom_batching.sequential_vmap  # also under an outer `vmap`
        def share(leaves):
            prepared = prepare(jax.tree.unflatten(tree, leaves)[0])
            solve_element = lambda leaves: solve(prepared, jax.tree.unflatten(tree, leaves)[1])
            return _map(solve_element, leaves, flags)

        if any(jax.tree.leaves(batched[0])):
            result = _map(lambda leaves: single(*jax.tree.unflatten(tree, leaves)), leaves, flags)
        else:
            result = share(leaves)
        return result, jax.tree.map(lambda _: True, result)

    return single


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
