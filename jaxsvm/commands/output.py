"""Where results go: lines of the report, files, and the standard output as `-`.

At its top it imports the standard library only: wrong arguments are told at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

STANDARD = "-"  # the standard input, or the standard output
# line breaks, tabs, escape sequences, directions of text, and bytes that are no text
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# of the running command: files that are complete, and why the report was not printed in full
written: list[str] = []
unprinted: list[OSError] = []


def line(head: str, text: str) -> None:
    """Print a line of the report."""
    show(printable(f"{head:<12} {text}"))


def show(text: str) -> None:
    """Print a paragraph of the report.

    A closed pipe or a full disk does not raise, so that results are still written: the error is
    kept in `unprinted`.
    """
    if unprinted:
        return
    try:
        write(sys.stdout, f"{text}\n")
    except OSError as error:
        unprinted.append(error)


def note(text: str) -> None:
    """Print a line on the standard error stream, or nothing where that is closed."""
    with contextlib.suppress(OSError):
        write(sys.stderr, f"{printable(text)}\n")


def write(stream: Any, data: str | bytes) -> None:
    """Write all of the data to a standard stream.

    It goes past the buffer, whose rest Python would try to write once more at its end.

    Raises:
        OSError: the stream is closed, or what it leads to is closed or full.
    """
    name = "the standard output"
    if stream is None or stream.closed:  # None: closed before Python began
        raise OSError(errno.EBADF, "the stream is closed", name)
    try:
        if not hasattr(stream, "buffer"):  # of a notebook
            stream.write(data if isinstance(data, str) else data.decode())
        stream.flush()
        if not hasattr(stream, "buffer"):
            return
        if isinstance(data, str):
            data = data.encode(stream.encoding, "backslashreplace")
        raw, rest = getattr(stream.buffer, "raw", stream.buffer), memoryview(data)
        while rest:  # a pipe and a disk may take a part
            count = raw.write(rest)
            if count is None:  # a pipe that does not block is full
                time.sleep(0.01)
            rest = rest[count or 0 :]
    except OSError as error:
        error.filename = name
        raise


def inputs(args: Any) -> list[str]:
    """The files that a command reads; an array may lie in a file of its own: x.npy,y.npy."""
    model = args.model if args.module in ("predict", "info") else None
    names = (args.file, args.test, args.groups, model)
    return [path for name in names for path in re.split(r"(?<=\.npy),", name or STANDARD)]


def check_inputs(args: Any) -> None:
    """Raise for an input file that does not exist, before anything else is imported.

    Raises:
        FileNotFoundError, IsADirectoryError: as the readers do.
    """
    for path in inputs(args):
        # of several processes the others, which wait for this one, are to learn of it
        if path == STANDARD or args.processes is not None:
            continue
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder, expected a file")
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {path}")


def check_outputs(args: Any) -> None:
    """Raise for an output file that cannot be written, before anything is computed.

    Raises:
        ValueError: a file that is read, a folder that is not writable, several times `-`.
        OSError: a folder that does not exist; a folder, a pipe or a device instead of a file.
    """
    from ..files import check_target

    paths = outputs(args)
    if paths.count(STANDARD) > 1:
        raise ValueError("the standard output (-) takes one result: name files for the others")
    if args.save == STANDARD:
        raise ValueError("--save is a file that is read again: name one, not the standard output")
    for path in [path for path in (*paths, args.save) if path not in (None, STANDARD)]:
        for source in inputs(args):
            if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
                raise ValueError(f"{path} is a file that is read: give another name")
        if not os.access(os.path.dirname(check_target(path)), os.W_OK):
            raise ValueError(f"{path} cannot be written: its folder may not be written to")


def outputs(args: Any) -> list[str | None]:
    """The files that a command writes at its end."""
    return [args.out, args.plot, None if args.module in ("predict", "info") else args.model]


@contextlib.contextmanager
def results(args: Any) -> Iterator[Any]:
    """A stream for what `-` stands for, printed at the end of the block, after all files.

    If a result goes there, the report goes to the standard error stream within the block.

    Raises:
        ValueError: as `check_outputs`.
        OSError: as `check_outputs`; the standard output does not take all.
    """
    if not args.processes:
        check_outputs(args)
    stdout, stream, to_standard = sys.stdout, io.BytesIO(), STANDARD in outputs(args)
    with contextlib.redirect_stdout(sys.stderr) if to_standard else contextlib.nullcontext():
        try:
            yield stream
        finally:
            if stream.tell():
                write(stdout, stream.getvalue())


@contextlib.contextmanager
def result_file(path: str, stream: Any, suffix: str = "", *, atomic: bool = False) -> Iterator[str]:
    """The name of a temporary file that replaces `path` at the end of the block.

    For `-` its contents are written to the stream; the name then ends in `suffix`. Where the block
    is `atomic` it gets the path itself. Errors of the file system name the path.
    """
    if path == STANDARD:
        with tempfile.TemporaryDirectory() as folder:
            temporary = os.path.join(folder, f"result{suffix}")
            yield temporary
            with open(temporary, "rb") as file:
                stream.write(file.read())
        return
    from ..files import atomic_path

    try:
        with contextlib.nullcontext(path) if atomic else atomic_path(path) as name:
            yield name
    except OSError as error:
        if error.errno is not None:
            error.filename = path
        raise
    if path not in written:
        written.append(path)


def title(path: str) -> str:
    """The name of an input in the report, without its folder."""
    return "standard input" if path == STANDARD else os.path.basename(path)


def printable(text: str) -> str:
    """The text on one line; characters that control a terminal are escaped."""
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
