"""JAX's flags: what a call of the package asks of them, and those of a thread."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")

# those that a `with` of JAX sets for one thread and that programs, or what they raise, depend on
_OF_THREADS = (
    "debug_infs",
    "debug_key_reuse",
    "debug_nans",
    "default_device",
    "default_matmul_precision",
    "default_prng_impl",
    "disable_jit",
    "enable_x64",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "threefry_partitionable",
    "transfer_guard_device_to_device",
    "transfer_guard_device_to_host",
    "transfer_guard_host_to_device",
)


def flag(name: str) -> Any:
    """The value of a flag in this thread."""
    return getattr(jax.config, f"jax_{name}")


def despite_flags(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator: numbers may move to the device and be infinite, whatever JAX's flags say.

    `jax.transfer_guard` is for rows: it holds where a matrix on the host is among the arguments.
    `jax.debug_infs` is off, as a residual is infinite before it is known.
    """

    @functools.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        is_guarded = flag("transfer_guard_host_to_device") not in (None, "allow")
        if not is_guarded and not flag("debug_infs"):
            return fn(*args, **kwargs)
        with contextlib.ExitStack() as stack:
            stack.enter_context(jax.debug_infs(False))
            if is_guarded and not any(map(_is_matrix, jax.tree.leaves((args, kwargs)))):
                stack.enter_context(jax.transfer_guard("allow"))
            return fn(*args, **kwargs)

    return call


def _is_matrix(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.ndim > 1


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
