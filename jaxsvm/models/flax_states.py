"""States and models in `flax.serialization`, for training code that keeps its states there."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ..recipe import REGISTRY, Recipe
from ..types import Array


def register_with_flax() -> None:
    """Let `flax.serialization` read and write models, solvers, and the states of runs.

    After it `flax.serialization.to_bytes(result.model)` and `from_bytes(result.model, data)` work,
    and a `RunState` or a model may stand anywhere in a state of Flax. What is written are the
    leaves; structure, such as the kind of a kernel, is that of the target. Random keys, which Flax
    refuses, are written as their words. A second call changes nothing.

    Raises:
        ImportError: Flax is not installed.

    Example:
        >>> import flax.serialization, jaxsvm
        >>> register_with_flax()
        >>> model = jaxsvm.models.Linear(jnp.array([1.0]), 0.5)
        >>> flax.serialization.to_state_dict(model)
        {'.w': Array([1.], dtype=float32), '.b': 0.5}
    """
    from flax import serialization

    kinds = [kind for kind in REGISTRY.values() if dataclasses.is_dataclass(kind)]
    for kind in (*kinds, Recipe, *Recipe.__subclasses__()):
        serialization.register_serialization_state(kind, _to_dict, _from_dict, override=True)
    # Flax reads named tuples itself, but no random keys
    kind_of_key = type(jax.random.key(0))
    serialization.register_serialization_state(
        kind_of_key, jax.random.key_data, _key_of, override=True
    )


def _key_of(target: Array, words: Any) -> Array:
    """The random key of these words, of the target's generator."""
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(target))


def _named(tree: Any) -> list[tuple[str, Any]]:
    """The leaves with the names of their places."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _to_dict(tree: Any) -> dict[str, Any]:
    """The leaves by their places."""
    return dict(_named(tree))


def _from_dict(target: Any, state: dict[str, Any]) -> Any:
    """The target with the leaves of a dictionary."""
    names = [name for name, _ in _named(target)]
    if set(state) != set(names):
        raise ValueError(
            f"the state is not that of a {type(target).__name__} like the target: they differ in "
            f"{', '.join(sorted(set(state) ^ set(names))[:5])}"
        )
    return jax.tree.unflatten(jax.tree.structure(target), [state[name] for name in names])
