"""Helpers of all readers of files: checks of paths, decompression, checks of numbers."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import as_path, brief, x64_enabled


class ReadError(ValueError):
    """Contents of a file that do not fit the options of its reader.

    `options` are those that may help, each with a value to try, or "".
    """

    def __init__(self, message: str, **options: str) -> None:
        """Keep the options with the message."""
        super().__init__(message)
        self.options = options


def check_paths(paths: Sequence) -> list[str]:
    """The paths as strings, checked to be those of existing files."""
    if not paths:
        raise ValueError("give the path of at least one file")
    paths = [as_path("path", path) for path in paths]
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"{brief(path)} is a folder, expected a file")
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {brief(path)}")
    return paths


def open_any(path: str, mode: str = "r") -> Any:
    """An open file, UTF-8 text or bytes; decompressed if the name ends in .gz, .bz2 or .xz.

    A byte order mark is skipped.

    Raises:
        ValueError: bytes of UTF-16.
    """
    opener: Any = _PACKED.get(os.path.splitext(path)[1], open)
    if mode == "rb":
        file = opener(path, mode)
        try:
            start = file.peek(len(codecs.BOM_UTF8))
            if start.startswith(codecs.BOM_UTF8):
                file.read(len(codecs.BOM_UTF8))
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ValueError(f"{path} is text in UTF-16: save it as UTF-8")
        except BaseException:
            file.close()
            raise
        return file
    return opener(path, mode + "t", encoding="utf-8-sig" if mode == "r" else "utf-8", newline="")


_PACKED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Name the file in errors of decompression and decoding.

    Errors of the file system pass unchanged.

    Raises:
        ValueError: the file cannot be decompressed or is not text.
    """
    with _unpacking(path):
        try:
            yield
        except ValueError as error:
            # read to the end, where a wrong checksum is found
            if os.path.splitext(path)[1] in _PACKED:
                with open_any(path, "rb") as file:
                    while file.read(2**20):
                        pass
            if isinstance(error, UnicodeDecodeError):
                raise ValueError(
                    f"{path} is no text in UTF-8: {error.reason} at byte {error.start}; "
                    "save it as UTF-8"
                ) from error
            raise


@contextmanager
def _unpacking(path: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged: {error}") from error


def run_dtype() -> Any:
    """The widest dtype of a run."""
    return np.float64 if x64_enabled() else np.float32


# no two neighbours match the same characters, so that it is linear in the length
_NUMBER = re.compile(
    r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def number_fault(text: bytes | str, most: float) -> str | None:
    """The fault of a number in a file, or None; underscores, which Python allows, are a fault."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if not _NUMBER.fullmatch(text.strip()):
        return "is no number"
    value = float(text)
    if np.isnan(value):
        return "is no finite number: drop or fill in such rows"
    if abs(value) > most:
        return "is no finite number" if np.isinf(value) else "is too large for float32"
    return None
