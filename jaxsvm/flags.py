"""JAX's flags: what a call of the package asks of them, and those of a thread."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")

# those that a `with` of JAX sets for one thread and that programs, or what they raise, depend on
_OF_THREADS = (
    *("debug_infs", "debug_key_reuse", "debug_nans", "default_device", "disable_jit", "enable_x64"),
    *("default_matmul_precision", "default_prng_impl", "threefry_partitionable"),
    *("numpy_dtype_promotion", "numpy_rank_promotion"),
)


def flag(name: str) -> bool:
    """The value of a flag in this thread."""
    return getattr(jax.config, f"jax_{name}")


def despite_flags(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator: `jax.debug_infs` is off, as a residual is infinite before it is known."""

    @functools.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with jax.debug_infs(False) if flag("debug_infs") else contextlib.nullcontext():
            return fn(*args, **kwargs)

    return call


def with_flags_of_caller(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """`fn` for other threads, where it runs under the flags of the thread that calls this."""
    flags = {name: flag(name) for name in _OF_THREADS}

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with contextlib.ExitStack() as stack:
            for name, value in flags.items():
                if flag(name) != value:
                    stack.enter_context(getattr(jax, name)(value))
            return fn(*args, **kwargs)

    return call
