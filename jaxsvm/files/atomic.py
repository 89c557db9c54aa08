"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ..checks import as_path
from .interrupt import DeferredInterrupt

try:
    import fcntl
except ImportError:  # no POSIX system: a temporary file of a killed process stays
    fcntl = None

NAME_BYTES = 180  # of the target's name in that of its temporary file; file systems allow 255 in all


@contextlib.contextmanager
def atomic_path(path: str | bytes | os.PathLike) -> Iterator[str]:
    """A temporary file beside `path` to write to; it replaces `path` at the end, so `path` is never a part of a file.

    The temporary file is unique and locked while in use. Temporary files of the same target that nobody has locked are
    those of killed processes and are removed. A symbolic link stays, the file it points to is replaced. An existing file
    keeps its permissions. Ctrl-C waits until the file is written; a second one does not.

    Args:
        path: the file, in a folder that exists.

    Yields:
        The name of the temporary file, which exists, is empty and has the same last extension as `path`.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
        OSError: `path` is a pipe, a device or a socket; whatever the file system refuses.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
        >>> with atomic_path(path) as temporary, open(temporary, "w") as file:
        ...     _ = file.write("text")
        >>> open(path).read(), os.listdir(os.path.dirname(path))
        ('text', ['a.txt'])
    """
    target = check_target(path)
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    _remove_stale(target)
    temporary, lock = _create(target, 0o666 if mode is None else 0o600)
    with DeferredInterrupt(again=True), lock:  # a writer that is interrupted may hide the interrupt by an error of its own
        try:
            yield temporary
            os.fsync(lock.fileno())
            if mode is not None:
                os.chmod(temporary, mode)
            if fcntl is None:  # an open file cannot be replaced there
                lock.close()
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def check_target(path: str | bytes | os.PathLike) -> str:
    """The file that is written where `path` is asked for: links are followed.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
        OSError: `path` is a pipe, a device, a socket, or a link that leads to itself.
        TypeError, ValueError: `path` is no path.
    """
    path = as_path("path", path)
    target = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(f"{path} is in a folder that does not exist: make it first")
    if os.path.isdir(target):
        raise IsADirectoryError(f"{path} is a folder, expected the name of a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(f"{path} is a pipe, a device or a socket, expected the name of a file")
    if os.path.islink(target):
        raise OSError(f"{path} is a symbolic link that leads to itself")
    return target


def _parts(target: str) -> tuple[str, str, str]:
    """Folder, beginning and end of the names of the target's temporary files."""
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[-NAME_BYTES:])
    return folder, f".{short}.", f".part{os.path.splitext(name)[1][-20:]}"  # the end of the name says how to pack


def _create(target: str, mode: int) -> tuple[str, BinaryIO]:
    """The name of a new temporary file, and the open file, locked."""
    folder, begin, end = _parts(target)
    while True:
        temporary = os.path.join(folder, f"{begin}{os.urandom(8).hex()}{end}")
        lock = open(temporary, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, mode))  # noqa: B023
        if fcntl is not None:
            with contextlib.suppress(OSError):  # where there are no locks nobody removes the file either
                fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return temporary, lock
        lock.close()  # another writer took the file for a stale one before it was locked


def _remove_stale(target: str) -> None:
    """Remove the target's temporary files that no process has locked."""
    if fcntl is None:
        return
    folder, begin, end = _parts(target)
    pattern = re.compile(f"{re.escape(begin)}[0-9a-f]{{16}}{re.escape(end)}")
    names: list[str] = []
    with contextlib.suppress(OSError):  # a folder that may be written to but not read
        names = [name for name in os.listdir(folder) if pattern.fullmatch(name)]
    for name in names:
        with contextlib.suppress(OSError):  # locked, of another user, or gone by now
            with open(os.path.join(folder, name), "r+b", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(lock.name)
