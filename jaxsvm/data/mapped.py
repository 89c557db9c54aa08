"""NumPy files without reading them: memory maps of `.npy` files and of the members of `.npz` files."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .opening import checked


def memory_map(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The arrays of a `.npy` or `.npz` file without reading them: they lie in the file until they are asked for.

    Compressed members of a `.npz` file (`np.savez_compressed`) and those without numbers are read. The sums that a
    `.npz` file keeps of its bytes are not checked.

    Args:
        path: the file.

    Returns:
        name -> array, read-only; a `.npy` file has the one name "x".

    Raises:
        ValueError: a damaged file, or arrays of Python objects.
        FileNotFoundError: no such file.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, x=np.eye(2))
        >>> type(memory_map(path)["x"]).__name__
        'memmap'
    """
    (path,) = checked((path,))
    with whole_arrays(path), open(path, "rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return {"x": _mapped(path, file, 0, os.path.getsize(path))}
        with zipfile.ZipFile(file) as members:
            return {info.filename.removesuffix(".npy"): _member(path, file, members, info) for info in members.infolist()}


def _member(path: str, file: Any, members: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type == zipfile.ZIP_STORED:
        file.seek(info.header_offset)
        head = file.read(30)
        if head[:4] != b"PK\x03\x04":
            raise ValueError(f"{info.filename} is not where the file says")
        start = info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        return _mapped(path, file, start, start + info.file_size)
    return np.lib.format.read_array(io.BytesIO(members.read(info)), allow_pickle=False)


def _mapped(path: str, file: Any, start: int, end: int) -> np.ndarray:
    """The array whose `.npy` bytes go from `start` to `end` of the file."""
    file.seek(start)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array holds Python objects, which are never read")
    if file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize > end:
        raise ValueError("an array is shorter than it says")
    if not shape or 0 in shape:
        file.seek(start)
        return np.lib.format.read_array(io.BytesIO(file.read(end - start)), allow_pickle=False)
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if by_columns else "C")


@contextmanager
def whole_arrays(path: str) -> Iterator[None]:
    """Whatever a damaged byte leads to becomes a sentence."""
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"{path} is damaged or no file of NumPy arrays ({error})") from error
