"""The command line `python -m jaxsvm`.

Without arguments it runs the main job; `train`, `predict`, `select`, `sweep`, `info` and `convert`
work on files. Arguments are checked before JAX is imported.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from .commands import output
from .commands.parser import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: its arguments; None: those of the process, in which compiled programs are then kept on
            disk (`jaxsvm.cache_programs`).

    Returns:
        The exit status: 0; 1 where only the report could not be printed in full; 2 for bad input
        and for results that could not be written; 130 after Ctrl-C. What happened is said in one
        line on the standard error stream.
    """
    output.written.clear()
    output.unprinted.clear()
    own_process, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    if own_process:
        occupy_streams()
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest, **more: say(f"warning: {message}")
        try:
            args = parser().parse_args(argv or ["demo"])
            output.check_inputs(args)
            if own_process and args.module != "info":
                use_cache(not args.no_cache)
            command = importlib.import_module(f"jaxsvm.commands.{args.module}")
            with output.results(args) as stream:
                status = command.run(args, stream)
            return finish(status)
        except SystemExit:  # of --help and --version
            if finish(0):
                return 1
            raise
        except KeyboardInterrupt:
            say(f"interrupted; {' and '.join(output.written) or 'nothing'} was written")
            return 130
        except Exception as error:
            sentence = explained(error)
            if sentence is None:
                raise
            say(f"error: {sentence}")
    return 2


def explained(error: Exception) -> str | None:
    """What went wrong, in one sentence; None: an error of the program."""
    full = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)  # of XLA
    if full or isinstance(error, MemoryError):
        return "not enough memory for these rows; fewer features (--count) or rows take less"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}"
    known = (OSError, ValueError, TypeError, OverflowError, ImportError)
    return str(error) if isinstance(error, known) else None


def finish(status: int) -> int:
    """The exit status of a command, which has written its results: 1 for an incomplete report."""
    if status or not output.unprinted:
        return status
    files = "".join(f"; {path} was written" for path in output.written)
    reason = str(output.unprinted[0].strerror).lower()
    say(f"error: the report could not be printed in full: {reason}{files}")
    return 1


def occupy_streams() -> None:
    """Open the null device for standard streams that are closed.

    A result file would take their number, and get what libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least number that is free


def use_cache(wanted: bool) -> None:
    """Keep compiled programs on disk, or not; a setting of JAX in the environment stays."""
    import jax

    import jaxsvm

    config: Any = jax.config
    if not wanted:
        config.update("jax_enable_compilation_cache", False)
    elif config.jax_enable_compilation_cache:
        # a file that another process is writing, or a full disk, only costs a compilation
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")
        jaxsvm.cache_programs()


def say(text: str) -> None:
    """One line on the standard error stream, with options of Python as those of the commands."""
    for name, value in re.findall(r"\b(header|zero_based|delimiter|task)=(True|False|'.+?')", text):
        option = "--" + name.replace("_", "-")
        shown = {"True": "yes", "False": "no"}.get(value, value)
        text = text.replace(f"{name}={value}", f"{option} {shown}")
    output.note(f"jaxsvm: {' '.join(text.split())}")


if __name__ == "__main__":
    sys.exit(main())
