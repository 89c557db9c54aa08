"""Programs on small data, compiled in less time."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..numerics import is_traced

SMALL = 2**18  # numbers in all arguments up to which compilation takes longer than most runs
ONCE = {"xla_backend_optimization_level": 0}  # for a program that a run calls once
# JAX 0.10 has emitters of loops that compile in half of the time; they run up to a fifth slower
IS_OLD = jax.__version_info__[:2] < (0, 11)
FEWER_PASSES: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False} if IS_OLD else {}


def jit_by_size(once: bool = False, **kwargs: Any) -> Callable:
    """`jax.jit` that compiles another program where all arguments are small, on a CPU.

    That one is compiled with fewer optimisations. Inside of a transformation, and where the user
    chose options of XLA's CPU compiler (`XLA_FLAGS`), there is one program only.

    Args:
        once: whether a run calls the function once, so that its speed does not matter.
        **kwargs: of `jax.jit`.

    Returns:
        A decorator. The function has the methods `lower`, `eval_shape` and `clear_cache` of
        `jax.jit`.
    """
    options = FEWER_PASSES | (ONCE if once else {})

    def decorate(function: Callable) -> Any:
        optimised: Any = jax.jit(function, **kwargs)
        if not options:
            return optimised
        quick: Any = jax.jit(function, compiler_options=options, **kwargs)

        @functools.wraps(function)
        def call(*args: object, **keywords: object) -> Any:
            return (quick if _is_small((args, keywords)) else optimised)(*args, **keywords)

        result: Any = call
        result.lower, result.eval_shape = optimised.lower, optimised.eval_shape
        result.clear_cache = lambda: (optimised.clear_cache(), quick.clear_cache())
        result._cache_size = lambda: optimised._cache_size() + quick._cache_size()
        return result

    return decorate


def _is_small(arguments: object) -> bool:
    is_plain = jax.default_backend() == "cpu" and "xla_cpu" not in os.environ.get("XLA_FLAGS", "")
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(arguments))
    return is_plain and size <= SMALL and not is_traced(arguments)
