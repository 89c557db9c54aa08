"""Loops of unequal length and branches on a step counter under `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap, sequential_vmap

from ..types import Array


def axes_of(batched: object) -> Any:
    """The axes of `vmap` for arguments of which these have a leading axis."""
    return jax.tree.map(lambda flag: 0 if flag else None, batched)


def map_on_cpu(fn: Callable) -> Callable:
    """The function `fn`, mapped over elements in sequence on a CPU under `vmap`.

    `fn` is a function of arrays with data-dependent loops. A batched loop runs for all elements
    until the last one has ended, and nested loops multiply this. Other devices use the batched
    loops, since the launch of a small step costs them more than its work.
    """
    single = custom_vmap(fn)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        axes = axes_of(tuple(batched))
        in_turns, at_once = jax.vmap(sequential_vmap(fn), axes), jax.vmap(fn, axes)
        result = lax.platform_dependent(*args, cpu=in_turns, default=at_once)
        return result, jax.tree.map(lambda _: True, result)

    return single


def map_sharing(prepare: Callable, solve: Callable) -> Callable:
    """The function (shared, own) -> solve(prepare(shared), own), in turns under `vmap`.

    Where `shared` is the same for all elements, `prepare` is called once for all of them. Otherwise
    it is called for each: no more results are in memory.
    """
    prepare, solve = jax.jit(prepare), jax.jit(solve)  # traced once for both uses below
    whole = lambda shared, own: solve(prepare(shared), own)
    single = custom_vmap(whole)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        of_shared, of_own = map(axes_of, batched)

        @sequential_vmap  # also under an outer `vmap`
        def in_turns(shared, own):
            if any(jax.tree.leaves(batched[0])):
                return jax.vmap(sequential_vmap(whole), (of_shared, of_own))(shared, own)
            return jax.vmap(sequential_vmap(solve), (None, of_own))(prepare(shared), own)

        result = in_turns(*args)
        return result, jax.tree.map(lambda _: True, result)

    return single


def map_in_groups(solve: Callable, many: Callable, most: Callable) -> Callable:
    """The function `solve`, of (shared, own), for several elements at once under `vmap`.

    Args:
        solve: a function of two pytrees, of which the first is the same for elements at once.
        many: (shared, own) -> the results of many elements, where all leaves of `own` and the
            results have a leading axis.
        most: (shared, own) -> the number of elements that `many` may take, by shapes alone, which
            may or may not have a leading axis; 0: elements are solved in turns.
    """
    solve = jax.jit(solve)  # traced once, outside of programs too
    single, at_once = custom_vmap(solve), sequential_vmap(many)  # also under an outer `vmap`

    @single.def_vmap
    def batch_rule(size, batched, shared, own):
        width = 0 if any(jax.tree.leaves(batched[0])) else most(shared, own)
        if not width:
            result = jax.vmap(sequential_vmap(solve), axes_of(tuple(batched)))(shared, own)
            return result, jax.tree.map(lambda _: True, result)
        groups = -(-size // width)
        width = -(-size // groups)  # all of one size; the last one is repeated to fill
        place = jnp.minimum(jnp.arange(groups * width), size - 1).reshape(groups, width)
        stacked = lambda a, flag: (
            a[place] if flag else jnp.broadcast_to(a, (*place.shape, *a.shape))
        )
        of_groups = jax.tree.map(stacked, own, batched[1])
        result = lax.map(lambda own: at_once(shared, own), of_groups)
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:size], result)
        return flat, jax.tree.map(lambda _: True, flat)

    return single


@custom_vmap
def any_under_vmap(when: Array) -> Array:
    """The condition () of a `cond` on a step counter: under `vmap` true if any one is.

    An example is `any_under_vmap(t % 64 == 0)`. A rare branch then stays a branch when several
    problems are mapped. A `cond` on a batched condition computes both branches at every step.
    """
    return when


@any_under_vmap.def_vmap
def _of_any(size: int, batched: object, when: Array) -> tuple[Array, bool]:
    return any_under_vmap(jnp.any(when)), False  # also under an outer `vmap`
