"""Whether this process may run JAX: a child forked from a process in which JAX has started hangs at its first program."""

from __future__ import annotations

import os
import sys

_lost = {"threads": False}


def jax_has_started() -> bool:
    """Whether JAX has its devices, asked without starting it."""
    bridge = sys.modules.get("jax._src.xla_bridge")  # no public way to ask
    return bridge is not None and bridge.backends_are_initialized()


def _after_fork() -> None:
    _lost["threads"] = _lost["threads"] or jax_has_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Refuse to go on in a forked child without the threads of JAX.

    Raises:
        RuntimeError: in a child that was forked after JAX had started, with what to do instead.
    """
    if _lost["threads"]:
        raise RuntimeError(
            "this process was forked after JAX had started, so that JAX would hang in it: start processes with "
            "multiprocessing.get_context('spawn') or 'forkserver'"
        )
