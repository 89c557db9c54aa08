"""How tests compile: flags of XLA that exist, and the options that undo those of conftest.py."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp

FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


def known_flags(*flags: str) -> list[str]:
    """Those of `flags` that the installed XLA knows, as asked in another process: XLA aborts at an
    unknown flag."""
    environment = os.environ | {"XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
    start = [sys.executable, "-c", "import jax; jax.devices()"]
    done = subprocess.run(start, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode == 0:
        return list(flags)
    unknown = [line for line in done.stderr.splitlines() if "Unknown flag" in line]
    if not unknown:
        raise RuntimeError(f"JAX does not start with {flags}: {done.stderr[-2000:]}")
    return [flag for flag in flags if not any(flag in line for line in unknown)]


def can_convert(dtype: Any) -> bool:
    """Whether XLA has numbers of `dtype` on this processor: without F16C
    (`--xla_cpu_max_isa=SSE4_2`) no float16, no float8."""
    try:
        jnp.arange(2).astype(dtype).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        if "Failed to materialize symbols" not in str(error):
            raise
        return False
    return True


def as_users() -> dict:
    """Options of `compile` for a program as users have it, whatever flags the tests run under."""
    emitters = (
        {"xla_cpu_use_fusion_emitters": True}
        if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", "")
        else {}
    )
    return emitters | {"xla_backend_optimization_level": 3}


def listen() -> list[str]:
    """A list that grows by the name of each event of JAX's compiler from now on.

    Left out is the trial of a factory where it is called, which compiles nothing.
    """
    events: list[str] = []

    def note(event: str, seconds: float, **more: object) -> None:
        if more.get("fun_name") != "trial_of_a_factory":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return events
