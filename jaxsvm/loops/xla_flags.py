"""The XLA flag that makes loops over single rows fast before JAX 0.12.

It is set only when the user calls for it.
"""

from __future__ import annotations

import os

import jax

from ..numerics import jax_has_started

NAME = "xla_cpu_small_while_loop_byte_threshold"
NEEDED_BEFORE = (0, 12)  # from this version on XLA compiles small loops so by itself


def fast_loops(threshold: int = 1_000_000) -> None:
    """Let XLA compile each small CPU loop as one function.

    JAX before 0.12 does not do so by itself. Steps on single rows become several times faster. From
    JAX 0.12 on they are fast without the flag, and nothing is set.

    Call it before the first use of JAX in the program. It sets `XLA_FLAGS` for the whole process.
    Products inside such loops do not use the fast library routines, so that it is meant for runs
    with one row a step. In a shell, the same is
    `XLA_FLAGS=--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000`.

    Args:
        threshold: bytes of a loop's data up to which it is compiled as one function. The rows count
            if the loop reads them, as in `fit` with a budgeted solver; 10**9 includes every loop.

    Raises:
        RuntimeError: JAX has started already, so that the flag would have no effect.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.fast_loops()  # doctest: +SKIP
    """
    if not flag_is_needed():
        return
    option, setting = (
        "--xla_backend_extra_options=",
        f"{NAME}={threshold}",
    )
    flags = os.environ.get("XLA_FLAGS", "").split()
    if any(
        flag.startswith(option) and setting in flag.removeprefix(option).split(",")
        for flag in flags
    ):
        return
    if jax_has_started():
        raise RuntimeError(
            "JAX has started: call jaxsvm.fast_loops() first in the program, or "
            "set XLA_FLAGS in the shell"
        )
    others = [flag for flag in flags if not flag.startswith(option)]
    options = [flag.removeprefix(option) for flag in flags if flag.startswith(option)]
    os.environ["XLA_FLAGS"] = " ".join([*others, option + ",".join([*options, setting])])


def loops_are_slow() -> bool:
    """Whether XLA does not compile a small CPU loop as one function."""
    return flag_is_needed() and NAME not in os.environ.get("XLA_FLAGS", "")


def flag_is_needed() -> bool:
    """Whether small loops are slow without the flag in the installed XLA."""
    return jax.__version_info__[:2] < NEEDED_BEFORE
