"""Arrays in `.npy` and `.npz` files: sizes are checked against the file before memory is taken, nothing is unpickled."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

HEADER_BYTES = 10_000  # of the header of an array at most, as NumPy has it
READ_BYTES = 2**20  # at once


class ArrayHeader(NamedTuple):
    """What a `.npy` file says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype
    order: str  # "C", row by row, or "F", column by column
    start: int  # bytes before the numbers

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


def read_header(stream: Any, size: int) -> ArrayHeader:
    """The header of a `.npy` file, the stream left at the first number.

    Args:
        stream: bytes, at the beginning of the file.
        size: bytes of the file.

    Raises:
        ValueError: no such header, Python objects, an array of another size than the file.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    head = stream.read(2 if version == (1, 0) else 4)
    length = int.from_bytes(head, "little")
    if length > min(HEADER_BYTES, size):
        raise ValueError(f"the header of an array has {length} bytes")
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = parse(io.BytesIO(head + stream.read(length)))
    if dtype.hasobject:
        raise ValueError("an array holds Python objects, which are never read: save it with allow_pickle=False")
    if min(shape, default=0) < 0 or not dtype.itemsize or dtype.subdtype is not None:
        raise ValueError(f"an array of shape {shape} and dtype {dtype}")
    start = 8 + len(head) + length
    told = start + math.prod(map(int, shape)) * dtype.itemsize
    if told != size:
        raise ValueError(f"an array is {'shorter' if size < told else 'longer'} than it says")
    return ArrayHeader(shape, dtype, "F" if by_columns else "C", start)


def read_array(stream: Any, size: int) -> np.ndarray:
    """The array of a `.npy` file; memory is taken once its size is known to be that of the file.

    Args:
        stream: bytes, at the beginning of the file.
        size: bytes of the file.

    Raises:
        ValueError: as `read_header`; a stream of another length.
    """
    header = read_header(stream, size)
    content = np.empty(size - header.start, np.uint8)
    view = memoryview(content)
    for first in range(0, len(content), READ_BYTES):
        part = view[first : first + READ_BYTES]
        if stream.readinto(part) != len(part):
            raise ValueError("an array is shorter than it says")
    if stream.read(1):  # here the checksum of a zip's member is compared, too
        raise ValueError("an array is longer than it says")
    return np.ndarray(header.shape, header.dtype, content, order=header.order)


class Npz:
    """An open `.npz` file: the names of its arrays, their headers, and each array when it is asked for."""

    def __init__(self, file: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]):
        """Keep the open file and its members by name."""
        self.file, self.members = file, members

    def header(self, name: str) -> ArrayHeader:
        """What the file says of an array."""
        with self.file.open(self.members[name]) as stream:
            return read_header(stream, self.members[name].file_size)

    def read(self, name: str) -> np.ndarray:
        """An array; its checksum is compared."""
        with self.file.open(self.members[name]) as stream:
            return read_array(stream, self.members[name].file_size)


@contextlib.contextmanager
def open_npz(path: str, *, compressed: bool = True) -> Iterator[Npz]:
    """Open a `.npz` file; no array is read yet.

    Args:
        path: the file.
        compressed: whether members may be compressed, as `np.savez_compressed` does it.

    Raises:
        ValueError: two members of one name, members that overlap, other kinds of compression.
        zipfile.BadZipFile: no zip file.
    """
    allowed = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) if compressed else (zipfile.ZIP_STORED,)
    with open(path, "rb") as raw, zipfile.ZipFile(raw) as file:
        members: dict[str, zipfile.ZipInfo] = {}
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name in members:
                raise ValueError(f"two members have the name {name}")
            if info.compress_type not in allowed:
                raise ValueError(f"the member {name} is compressed in a way that is not read here")
            if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
                raise ValueError(f"the member {name} has two sizes")
            with file.open(info):  # its name stands in two places, which must agree
                pass
            members[name] = info
        if sum(info.compress_size for info in members.values()) > os.fstat(raw.fileno()).st_size:
            raise ValueError("its members overlap")
        yield Npz(file, members)


def refuse_special(path: str) -> None:
    """Refuse a folder, a pipe, a device, which cannot be read as a file of arrays.

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
    """Whether the bytes of a file led to an error while it was read, rather than the file system or the machine."""
    if isinstance(error, OSError):  # what is out of place in a zip file leads to a seek that is refused
        return type(error) is OSError and error.errno in (None, errno.EINVAL)
    return not isinstance(error, MemoryError | jax.errors.JaxRuntimeError)
