"""Where results go: lines of the report, files, and the standard output as `-`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from ..files import atomic_path, check_target

STANDARD = "-"  # the standard input, or the standard output


def line(head: str, text: str) -> None:
    """Print a line of the report."""
    print(f"{head:<12} {text}", flush=True)


def check_output(path: str | None, *inputs: str | None) -> None:
    """Raise for an output file that cannot be written or is an input, before anything is computed.

    Raises:
        ValueError: a folder that is not writable, one of the inputs.
        OSError: a folder that does not exist; a folder, a pipe or a device instead of a file.
    """
    if path is None or path == STANDARD:
        return
    for source in (part for name in inputs if name for part in (name, *name.split(","))):
        if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
            raise ValueError(f"{path} is a file that is read: give another name")
    if not os.access(os.path.dirname(check_target(path)), os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder may not be written to")


@contextlib.contextmanager
def results(*paths: str | None) -> Iterator[Any]:
    """The stream that `-` stands for.

    If one of the paths is `-`, the report goes to the standard error stream within the block.

    Raises:
        ValueError: more than one of the paths is `-`.
    """
    stream, count = sys.stdout, sum(path == STANDARD for path in paths)
    if count > 1:
        raise ValueError("the standard output (-) takes one result: name files for the others")
    with contextlib.redirect_stdout(sys.stderr) if count else contextlib.nullcontext():
        yield stream


@contextlib.contextmanager
def result_file(path: str, stream: Any, suffix: str = "") -> Iterator[str]:
    """The name of a temporary file that replaces `path` at the end of the block.

    For `-` its contents are written to the stream. The name then ends in `suffix`.
    """
    if path != STANDARD:
        with atomic_path(path) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory() as folder:
        temporary = os.path.join(folder, f"result{suffix}")
        yield temporary
        with open(temporary, "rb") as file:
            stream.flush()
            stream.buffer.write(file.read())
            stream.buffer.flush()


def title(path: str) -> str:
    """The name of an input in the report, without its folder."""
    return "standard input" if path == STANDARD else os.path.basename(path)


def printable(text: str) -> str:
    """The text without characters that control a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
