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
            args = parser().parse_args(argv) if argv else None
            if args:
                check_inputs(args)
            if own_process and not (args and args.module == "info"):
                use_cache(not (args and args.no_cache))
            if args is None:
                module("demo").main()
            return finish(module(args.module).run(args) if args else 0)
        except SystemExit:  # of --help and --version
            if finish(0):
                return 1
            raise
        except KeyboardInterrupt:
            say(f"interrupted; {' and '.join(output.written) or 'nothing'} was written")
            return 130
        except OSError as error:
            reason = error.strerror
            say(
                f"error: {error.filename}: {reason.lower()}"
                if reason and error.filename
                else f"error: {error}"
            )
        except MemoryError:
            say("error: not enough memory for these rows")
        except (ValueError, TypeError, OverflowError, ImportError) as error:
            say(f"error: {error}")
        except RuntimeError as error:  # of XLA
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            say(
                "error: not enough memory for these rows; fewer features (--count) or rows take "
                "less"
            )
    return 2


def finish(status: int) -> int:
    """The exit status of a command, which has written its results: 1 for an incomplete report."""
    if status or not output.unprinted:
        return status
    files = "".join(f"; {path} was written" for path in output.written)
    reason = str(output.unprinted[0].strerror).lower()
    say(f"error: the report could not be printed in full: {reason}{files}")
    return 1


def module(name: str) -> Any:
    """The module of a command, which imports JAX."""
    return importlib.import_module(f"{__package__}.commands.{name}")


def occupy_streams() -> None:
    """Open the null device for standard streams that are closed.

    A result file would take their number, and get what libraries print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least number that is free


def check_inputs(args: Any) -> None:
    """Raise for an input file that does not exist, before anything else is imported.

    Raises:
        FileNotFoundError, IsADirectoryError: as the readers do.
    """
    if getattr(args, "processes", None) is not None:
        return  # the other processes, which wait for this one, are to learn of it
    names = [getattr(args, name, None) for name in ("file", "test", "groups")]
    if args.module in ("predict", "info"):
        names.append(args.model)
    for name in names:
        if name is None or name == "-":
            continue
        # arrays in files of their own: x.npy,y.npy
        for path in name.split(",") if re.search(r"\.npy,", name) else [name]:
            if os.path.isdir(path):
                raise IsADirectoryError(f"{path} is a folder, expected a file")
            if not os.path.exists(path):
                raise FileNotFoundError(f"there is no file {path}")


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


OPTIONS = r"\b(header|zero_based|delimiter|task)=(True|False|'[^']+')"


def say(text: str) -> None:
    """One line on the standard error stream, with options of Python as those of the commands."""
    for name, value in re.findall(OPTIONS, text):
        option = "--" + name.replace("_", "-")
        shown = {"True": "yes", "False": "no"}.get(value, value)
        text = text.replace(f"{name}={value}", f"{option} {shown}")
    output.note(f"jaxsvm: {' '.join(text.split())}")


if __name__ == "__main__":
    sys.exit(main())
