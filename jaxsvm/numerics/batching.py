"""Loops of unequal length and branches on a step counter under `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..types import Array, State


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


def map_sharing(prepare: Callable, solve: Callable, many: Callable, most: Callable) -> Callable:
    """The function (shared, own) -> solve(prepare(shared), own), at once or in turns under `vmap`.

    Where `shared` is the same for all elements, `prepare` is called once for all of them. Otherwise
    it is called for the elements that are solved at once, or for each: no more results are in
    memory.

    Args:
        prepare: a function of one pytree.
        solve: a function of the result and of another pytree.
        many: (prepared, own, is_batched) -> the results of many elements, with a leading axis;
            `is_batched` says whether `prepared`, and each leaf of `own`, have one, too.
        most: (shared, own) -> the number of elements that `many` may take, by shapes alone, which
            may or may not have a leading axis; 0: elements are solved in turns.
    """
    prepare, solve = jax.jit(prepare), jax.jit(solve)  # traced once for both uses below

    @jax.custom_batching.custom_vmap
    def single(shared, own):
        return solve(prepare(shared), own)

    @single.def_vmap
    def batch_rule(size, batched, *args):
        flags, leaves, tree = jax.tree.leaves(batched), *jax.tree.flatten(args)
        width, is_shared = most(*args), not any(jax.tree.leaves(batched[0]))
        own_flags = tuple(jax.tree.leaves(batched[1]))

        @jax.custom_batching.sequential_vmap  # also under an outer `vmap`
        def in_turns(leaves):
            shared, _ = jax.tree.unflatten(tree, leaves)
            prepared = prepare(shared) if is_shared else None

            def call(leaves):
                shared, own = jax.tree.unflatten(tree, leaves)
                return solve(prepare(shared) if prepared is None else prepared, own)

            return _map(call, leaves, flags)

        @jax.custom_batching.sequential_vmap
        def at_once(leaves):
            shared, own = jax.tree.unflatten(tree, leaves)
            axes = jax.tree.map(lambda flag: 0 if flag else None, batched[0])
            prepared = prepare(shared) if is_shared else jax.vmap(prepare, (axes,))(shared)
            return many(prepared, own, (not is_shared, own_flags))

        if width:
            result = _map_groups(at_once, leaves, flags, size, width)
        else:
            result = in_turns(leaves)
        return result, jax.tree.map(lambda _: True, result)

    return single


def _map_groups(
    fn: Callable, leaves: Sequence[Array], batched: Sequence[bool], size: int, width: int
) -> State:
    """`fn` of groups of at most `width` elements, all of one size; the last is repeated to fill."""
    groups = -(-size // width)
    if groups == 1:
        return fn(leaves)
    width = -(-size // groups)
    place = jnp.minimum(jnp.arange(groups * width), size - 1).reshape(groups, width)
    take = lambda a, flag: a[place] if flag else a
    grouped = [take(a, flag) for a, flag in zip(leaves, batched, strict=True)]
    result = _map(fn, grouped, batched)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:size], result)


def _map(fn: Callable, leaves: Sequence[Array], batched: Sequence[bool]) -> State:
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
def _of_any(size: int, batched: object, when: Array) -> tuple[Array, bool]:
    return any_under_vmap(jnp.any(when)), False  # also under an outer `vmap`
