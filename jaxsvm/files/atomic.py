"""Atomic writing of files."""

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
except ImportError:  # not a POSIX system: temporary files of killed processes stay
    fcntl = None  # type: ignore[assignment]  # in place of a module

# bytes of the target's name in that of its temporary file; file systems allow 255 in all
NAME_BYTES = 180


@contextlib.contextmanager
def atomic_path(path: str | bytes | os.PathLike) -> Iterator[str]:
    """The name of a temporary file that replaces `path` at the end of the block.

    It is in the folder of `path`, and `path` is never incomplete. The temporary file is unique, and
    locked while in use. Temporary files of the same target without a lock belong to killed
    processes and are removed. Of a symbolic link, the file it points to is replaced. An existing
    file keeps its permissions. Ctrl-C is deferred until the file is written; a second one is not.

    Args:
        path: the file, in a folder that exists.

    Yields:
        The name of the temporary file, which exists, is empty and has the same last extension as
        `path`.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
        OSError: `path` is a pipe, a device or a socket; errors of the file system.

    Example:
        >>> import os, tempfile, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
        >>> with jaxsvm.files.atomic_path(path) as temporary, open(temporary, "w") as file:
        ...     _ = file.write("text")
        >>> open(path).read(), os.listdir(os.path.dirname(path))
        ('text', ['a.txt'])
    """
    target = check_target(path)
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    _remove_stale(target)
    with _about(target):
        temporary, lock = _create(target, 0o666 if mode is None else 0o600)
        # as an interrupted writer may raise another error instead
        with DeferredInterrupt(again=True), lock:
            try:
                yield temporary
                os.fsync(lock.fileno())
                if mode is not None:
                    os.chmod(temporary, mode)
                if fcntl is None:  # Windows does not replace an open file
                    lock.close()
                os.replace(temporary, target)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)


@contextlib.contextmanager
def _about(target: str) -> Iterator[None]:
    """Name the target in errors of the file system that name its temporary file, or none."""
    try:
        yield
    except OSError as error:
        _, prefix, _ = _parts(target)
        name = os.path.basename(str(error.filename or prefix))
        if error.errno is not None and name.startswith(prefix):
            error.filename, error.filename2 = target, None
        raise


def check_target(path: str | bytes | os.PathLike) -> str:
    """The file that is written for `path`, after links are resolved.

    Raises:
        FileNotFoundError: the folder does not exist.
        IsADirectoryError: `path` is a folder.
        OSError: `path` is a pipe, a device, a socket, or a link that leads to itself.
        TypeError, ValueError: `path` is not a path.
    """
    path = as_path("path", path)
    target = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(f"{path} is in a folder that does not exist: make it first")
    refuse_special(path, "the name of a file")
    if os.path.islink(target):
        raise OSError(f"{path} is a symbolic link that leads to itself")
    return target


def refuse_special(path: str, expected: str = "a file") -> None:
    """Raise for a folder, a pipe or a device; a file that is not there passes.

    Raises:
        IsADirectoryError: a folder.
        OSError: a pipe, a device or a socket.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder, expected {expected}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is a pipe, a device or a socket, expected {expected}")


def _parts(target: str) -> tuple[str, str, str]:
    """Folder, prefix and suffix of the names of the target's temporary files."""
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[-NAME_BYTES:])
    # the suffix determines the compression
    return folder, f".{short}.", f".part{os.path.splitext(name)[1][-20:]}"


def _create(target: str, mode: int) -> tuple[str, BinaryIO]:
    """The name of a new temporary file, and the open file, locked."""
    folder, prefix, suffix = _parts(target)
    opener = lambda name, flags: os.open(name, flags, mode)
    while True:
        temporary = os.path.join(folder, f"{prefix}{os.urandom(8).hex()}{suffix}")
        lock = open(temporary, "xb", buffering=0, opener=opener)
        if fcntl is not None:
            # file systems without locks, where the file is not removed either
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return temporary, lock
        lock.close()  # another writer removed the file before it was locked


def _remove_stale(target: str) -> None:
    """Remove the temporary files of the target that no process has locked."""
    if fcntl is None:
        return
    folder, prefix, suffix = _parts(target)
    pattern = re.compile(f"{re.escape(prefix)}[0-9a-f]{{16}}{re.escape(suffix)}")
    opener = lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # a folder without read permission
        for name in filter(pattern.fullmatch, os.listdir(folder)):
            stale = os.path.join(folder, name)
            # locked, of another user, or removed meanwhile
            with contextlib.suppress(OSError), open(stale, "r+b", opener=opener) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(stale)
