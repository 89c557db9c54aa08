"""Fork safety: a child forked after JAX has started hangs at its first program."""

from __future__ import annotations

import os
import sys

_missing = {"threads": False}


def jax_has_started() -> bool:
    """Whether JAX has initialised its devices; the check does not start it."""
    bridge = sys.modules.get("jax._src.xla_bridge")  # no public function for this
    return bridge is not None and bridge.backends_are_initialized()


def _after_fork() -> None:
    _missing["threads"] = _missing["threads"] or jax_has_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Raise in a forked child, which has no JAX threads.

    Raises:
        RuntimeError: in a child that was forked after JAX had started, with what to do instead.
    """
    if _missing["threads"]:
        raise RuntimeError(
            "this process was forked after JAX had started, so that JAX would hang in it: start "
            "processes with multiprocessing.get_context('spawn') or 'forkserver'"
        )
