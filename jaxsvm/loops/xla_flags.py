"""The XLA flag that makes loops over single rows fast before JAX 0.12; set by the user, never behind the user's back."""

from __future__ import annotations

import os

import jax

from ..numerics import jax_has_started

NEEDED_BEFORE = (0, 12)  # from this version on XLA compiles small loops so by itself


def fast_loops(threshold: int = 1_000_000) -> None:
    """Let XLA compile small CPU loops as one function each, where it does not by itself: before JAX 0.12.

    There steps on single rows become several times faster. From JAX 0.12 on they are fast without a flag, and nothing is set.

    Call it before the first use of JAX in the program. It sets `XLA_FLAGS` for the whole process, and products inside such
    loops lose their fast library routines: meant for runs with one row a step. From the shell the same is
    `XLA_FLAGS=--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000`.

    Args:
        threshold: bytes of a loop's data up to which it is compiled as one function; where the loop is handed the rows, as by
            `fit` with a budgeted solver, these count, too: 10**9 leaves none out.

    Raises:
        RuntimeError: if JAX has started already, when the flag would have no effect.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.fast_loops()  # doctest: +SKIP
    """
    if not flag_is_needed():
        return
    option, setting = "--xla_backend_extra_options=", f"xla_cpu_small_while_loop_byte_threshold={threshold}"
    flags = os.environ.get("XLA_FLAGS", "").split()
    if any(flag.startswith(option) and setting in flag.removeprefix(option).split(",") for flag in flags):
        return
    if jax_has_started():
        raise RuntimeError("JAX has started: call jaxsvm.fast_loops() first in the program, or set XLA_FLAGS in the shell")
    others = [flag for flag in flags if not flag.startswith(option)]
    kept = [flag.removeprefix(option) for flag in flags if flag.startswith(option)]
    os.environ["XLA_FLAGS"] = " ".join([*others, option + ",".join([*kept, setting])])


def flag_is_needed() -> bool:
    """Whether the installed XLA leaves small loops slow without the flag."""
    return jax.__version_info__[:2] < NEEDED_BEFORE
