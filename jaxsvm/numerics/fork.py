"""Fork safety: a child forked after JAX has started hangs at its first program.

So in such a child the functions of JAX that this package calls raise an error.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import jax

_PACKAGE = __name__.split(".")[0]
_MODULES = ("jax", "jax.numpy", "jax.lax")  # as the package imports them
# parts of JAX that need no device
_HARMLESS: tuple[str, ...] = (
    "core",
    "distributed",
    "dtypes",
    "errors",
    "sharding",
    "stages",
    "tree",
    "tree_util",
)
_HARMLESS += ("issubdtype", "ndim", "process_count", "process_index", "result_type", "shape")


def jax_has_started() -> bool:
    """Whether JAX has initialised its devices; the check does not start it."""
    bridge = sys.modules.get("jax._src.xla_bridge")  # no public function for this
    return bridge is not None and bridge.backends_are_initialized()


def _refuse(*args: Any, **kwargs: Any) -> None:
    """Stand for a function that would hang.

    Raises:
        jax.errors.JaxRuntimeError: a RuntimeError, with what to do instead.
    """
    raise jax.errors.JaxRuntimeError(
        "this process was forked after JAX had started, so that JAX would hang in it: start "
        "processes with multiprocessing.get_context('spawn') or 'forkserver'"
    )


class _Refusing(types.ModuleType):
    """A module of JAX whose functions raise; its types and constants are there."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in _HARMLESS or isinstance(value, type):
            return value
        if isinstance(value, types.ModuleType):
            return _Refusing(value)
        return _refuse if callable(value) else value


def _after_fork() -> None:
    """Let the package know JAX as modules that refuse.

    Its compiled functions refuse, too, and `matrix`, as callers may go on by operators alone.
    """
    if not jax_has_started():
        return
    compiled, matrix = type(jax.jit(lambda: None)), sys.modules[f"{_PACKAGE}.checks"].matrix
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != _PACKAGE:
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, types.ModuleType) and value.__name__ in _MODULES:
                setattr(module, key, _Refusing(value))
            elif isinstance(value, compiled) or value is matrix:
                setattr(module, key, _refuse)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
