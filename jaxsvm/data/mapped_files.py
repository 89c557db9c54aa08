"""Memory maps of NumPy files: of `.npy` files and of the members of `.npz` files.

The files are not read.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import brief
from ..files import Npz, is_damage, open_npz, read_header, refuse_special
from .parsing import check_paths


def memory_map(path: str | bytes | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a `.npy` or `.npz` file as memory maps, which are read when they are accessed.

    Compressed members of a `.npz` file (`np.savez_compressed`) and empty ones are read at once.
    Checksums are not verified.

    Args:
        path: the file.

    Returns:
        name -> array, read-only; a `.npy` file has the one name "x".

    Raises:
        ValueError: a damaged file, arrays of Python objects, two of one name, or a size that does
            not match the header.
        FileNotFoundError, PermissionError, OSError: the file cannot be opened or read.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2))
        >>> type(memory_map(path)["x"]).__name__
        'memmap'
    """
    path = array_file(path)
    with whole_arrays(path), open(path, "rb") as file:
        if is_npy(file):
            return {"x": _mapped(path, file, 0, os.path.getsize(path))}
        with open_npz(path) as npz:
            return {name: _member(path, file, npz, name) for name in npz.members}


def array_file(path: str | bytes | os.PathLike) -> str:
    """The path, checked to be that of an existing regular file."""
    (path,) = check_paths((path,))
    refuse_special(path)
    return path


def is_npy(file: Any) -> bool:
    """Whether a file starts with the magic bytes of `.npy`; its position is reset."""
    is_magic = file.read(6) == b"\x93NUMPY"
    file.seek(0)
    return is_magic


def _member(path: str, file: Any, npz: Npz, name: str) -> np.ndarray:
    info = npz.members[name]
    if info.compress_type != zipfile.ZIP_STORED:
        return npz.read(name)
    file.seek(info.header_offset)
    head = file.read(30)
    if head[:4] != b"PK\x03\x04":
        raise ValueError(f"{info.filename} is not where the file says")
    start = (
        info.header_offset
        + 30
        + int.from_bytes(head[26:28], "little")
        + int.from_bytes(head[28:30], "little")
    )
    return _mapped(path, file, start, info.file_size)


def _mapped(path: str, file: Any, start: int, size: int) -> np.ndarray:
    """A memory map of the `.npy` file of `size` bytes at position `start` of the file."""
    file.seek(start)
    header = read_header(file, size)
    if start + size > os.path.getsize(path):
        raise ValueError("an array is shorter than it says")
    if not header.shape or 0 in header.shape:
        file.seek(start)
        return np.lib.format.read_array(file, allow_pickle=False)
    return np.memmap(file, header.dtype, "r", start + header.start, header.shape, header.order)


@contextmanager
def whole_arrays(path: str) -> Iterator[None]:
    """Raise one ValueError for all errors that damaged bytes lead to."""
    try:
        yield
    except Exception as error:
        if not is_damage(error):
            raise
        raise ValueError(
            f"{path} is damaged or no file of NumPy arrays ({brief(error)})"
        ) from error
