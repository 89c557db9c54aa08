"""float64 inside of programs whose numbers are float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from .._node import cast


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
                result = fn(*cast(args, jnp.float64))
                return cast(result, dtype)

        return double(*args)

    return call
