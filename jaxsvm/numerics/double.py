"""float64 inside of programs whose numbers are float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from ..types import State


def in_double(fn: Callable) -> Callable:
    """The function `fn`, computed in float64 whatever the dtype of its arguments.

    It works where 64-bit types are off, too, inside of `jit`, `scan` and `vmap`. Under `vmap` calls
    are sequential: JAX's rules for batches would write float32 into a float64 program. There are no
    derivatives; pass `lax.stop_gradient` of the arguments.

    Args:
        fn: a function of a dtype and of pytrees. Floating numbers are float64 in it, and its
            results are cast to the dtype.

    Returns:
        The function with the same arguments; the dtype is static.
    """

    def call(dtype: DTypeLike, *args: object) -> Any:
        # One for each dtype, as a rule of `vmap` passes arrays only.
        @jax.custom_batching.sequential_vmap
        def double(*args):
            with jax.enable_x64(True):
                result = fn(*_cast(args, jnp.float64))
                return _cast(result, dtype)

        return double(*args)

    return call


def _cast(tree: object, dtype: DTypeLike) -> State:
    """The tree with its floating numbers cast to `dtype`, other leaves as they are."""

    def cast_leaf(leaf):
        leaf = jnp.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return lax.convert_element_type(leaf, dtype)

    return jax.tree.map(cast_leaf, tree)
