"""Arrays in `.npy` and `.npz` files.

Sizes are checked before memory is allocated, and nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

HEADER_BYTES = 10_000  # largest header of an array, as in NumPy
READ_BYTES = 2**20  # bytes of one read
MEMBERS = 2**16  # arrays of the largest file that is read
DEFLATE = 1032  # bytes that a byte of deflate can stand for


class ArrayHeader(NamedTuple):
    """The header of a `.npy` file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: Literal["C", "F"]  # "C", row by row, or "F", column by column
    start: int  # bytes before the values

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


def read_header(stream: Any, size: int) -> ArrayHeader:
    """The header of a `.npy` file; the stream is then at the first value.

    Args:
        stream: of bytes, at the start of the file.
        size: bytes of the file.

    Raises:
        ValueError: an invalid header, Python objects, a size that does not match that of the file.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    head = stream.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(head, "little")
    if length > min(HEADER_BYTES, size):
        raise ValueError(f"the header of an array has {length} bytes")
    parse = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    try:
        shape, fortran_order, dtype = parse(io.BytesIO(head + stream.read(length)))
    except (MemoryError, RecursionError) as error:  # of deep nests in its text
        raise ValueError("the header of an array is no description of one") from error
    if dtype.hasobject:
        raise ValueError(
            "an array holds Python objects, which are never read: save it with allow_pickle=False"
        )
    if min(shape, default=0) < 0 or not dtype.itemsize or dtype.subdtype is not None:
        raise ValueError(f"an array of shape {shape} and dtype {dtype}")
    start = 8 + len(head) + length
    expected_size = start + math.prod(map(int, shape)) * dtype.itemsize
    if expected_size != size:
        raise ValueError(
            f"an array is {'shorter' if size < expected_size else 'longer'} than it says"
        )
    return ArrayHeader(shape, dtype, "F" if fortran_order else "C", start)


def read_array(stream: Any, size: int) -> np.ndarray:
    """The array of a `.npy` file.

    Its size is compared with that of the file before memory is allocated.

    Args:
        stream: of bytes, at the start of the file.
        size: bytes of the file.

    Raises:
        ValueError: as `read_header`; a stream of another length.
    """
    header = read_header(stream, size)
    content = np.empty(size - header.start, np.uint8)
    view = memoryview(content.data)
    for first in range(0, len(content), READ_BYTES):
        part = view[first : first + READ_BYTES]
        if stream.readinto(part) != len(part):
            raise ValueError("an array is shorter than it says")
    if stream.read(1):  # at its end the checksum of a zip member is compared
        raise ValueError("an array is longer than it says")
    return np.ndarray(header.shape, header.dtype, content, order=header.order)


class Npz:
    """An open `.npz` file: names, headers and arrays, each of which is read on request."""

    def __init__(self, file: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
        """The open file and its members by name."""
        self.file, self.members = file, members

    def header(self, name: str) -> ArrayHeader:
        """The header of an array."""
        with self.file.open(self.members[name]) as stream:
            return read_header(stream, self.members[name].file_size)

    def read(self, name: str) -> np.ndarray:
        """An array, after its checksum is compared."""
        with self.file.open(self.members[name]) as stream:
            return read_array(stream, self.members[name].file_size)


@contextlib.contextmanager
def open_npz(path: str, *, compressed: bool = True) -> Iterator[Npz]:
    """Open a `.npz` file; no array is read yet.

    Args:
        path: the file.
        compressed: allow compressed members, as of `np.savez_compressed`.

    Raises:
        ValueError: two members of one name, members that overlap, another compression, a size that
            its bytes cannot have, more than `MEMBERS` members.
        zipfile.BadZipFile: not a zip file.
    """
    allowed = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) if compressed else (zipfile.ZIP_STORED,)
    with open(path, "rb") as raw, zipfile.ZipFile(raw) as file:
        members: dict[str, zipfile.ZipInfo] = {}
        if len(file.infolist()) > MEMBERS:
            raise ValueError(f"it holds {len(file.infolist())} arrays, at most {MEMBERS} are read")
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name in members:
                raise ValueError(f"two members have the name {name}")
            if info.compress_type not in allowed:
                raise ValueError(f"the member {name} is compressed in a way that is not read here")
            if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
                raise ValueError(f"the member {name} has two sizes")
            if info.file_size > DEFLATE * info.compress_size:
                raise ValueError(
                    f"the member {name} says that {info.compress_size} bytes unpack to "
                    f"{info.file_size}, which they cannot"
                )
            with file.open(info):  # raises if its two names differ
                pass
            members[name] = info
        if sum(info.compress_size for info in members.values()) > os.fstat(raw.fileno()).st_size:
            raise ValueError("its members overlap")
        yield Npz(file, members)


def refuse_special(path: str) -> None:
    """Raise for a folder, a pipe or a device.

    Raises:
        FileNotFoundError: no such file.
        IsADirectoryError: a folder.
        OSError: a pipe, a device or a socket.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder, expected a file")
    if not stat.S_ISREG(mode):
        raise OSError(f"{path} is a pipe, a device or a socket, expected a file")


def is_damage(error: Exception) -> bool:
    """Whether an error is due to the contents of a file, not to the file system or the machine."""
    if isinstance(error, OSError):  # wrong positions in a zip file lead to an invalid seek
        return type(error) is OSError and error.errno in (None, errno.EINVAL)
    return not isinstance(error, MemoryError | jax.errors.JaxRuntimeError)
