"""Helpers of all readers of files: checks of paths, decompression, checks of numbers."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..checks import as_path, brief, integer, x64_enabled


class ReadError(ValueError):
    """Contents of a file that do not fit the options of its reader.

    `options` are those that may help, each with a value to try, or "".
    """

    def __init__(self, message: str, **options: str) -> None:
        """Keep the options with the message."""
        super().__init__(message)
        self.options = options


class ExpansionError(ValueError):
    """A compressed file that expands to more than it may."""


EXPANSION = 100  # bytes for each one of a compressed file
SHORT = 2**15  # bytes that every compressed file may be longer, and each of its lines may have


class _Path(str):
    """The path of a file, with the number of bytes that each of its own may expand to."""

    expansion: int = EXPANSION


def check_paths(paths: Sequence, expansion: int = EXPANSION) -> list[str]:
    """The paths as strings, checked to be those of existing files.

    `open_any` expands compressed ones to `expansion` bytes for each of their own.
    """
    if not paths:
        raise ValueError("give the path of at least one file")
    paths = [_Path(as_path("path", path)) for path in paths]
    for path in paths:
        path.expansion = integer("expansion", expansion, 1)
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
        ValueError: bytes of UTF-16; while reading, bytes that expand to too many.
    """
    opener: Any = _PACKED.get(os.path.splitext(path)[1], open)
    if mode != "w" and opener is not open:
        packer = opener
        opener = lambda path, *_, **text: _expanded(path, packer, text)
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


def _expanded(path: str, opener: Any, text: dict) -> Any:
    """The contents of a compressed file; text, if `text` says how it is decoded."""
    file = io.BufferedReader(_Expanded(path, opener), 2**17)
    return io.TextIOWrapper(file, **text) if text else file


class _Expanded(io.RawIOBase):
    """The bytes of a compressed file, whose number and lines are bounded."""

    def __init__(self, path: str, opener: Any) -> None:
        self.path, self.file = path, opener(path, "rb")
        self.expansion = getattr(path, "expansion", EXPANSION)
        self.left = self.expansion * (os.path.getsize(path) + SHORT)
        self.line = 0  # bytes of the line, and of blank lines that follow it
        self.is_over = False  # whether the line has ended, so that what is not blank begins another

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.file.read(len(buffer))
        content = part.rstrip()
        end = max(content.rfind(b"\n"), content.rfind(b"\r"))
        goes_on = end < 0 and not (content and self.is_over)
        self.line = len(part) - end - 1 + (self.line if goes_on else 0)
        rest = part[len(content) :]
        self.is_over = b"\n" in rest or b"\r" in rest or (self.is_over and not content)
        self.left -= len(part)
        for what, is_too_long in (
            (f"more than {self.expansion} times its size and {SHORT} bytes", self.left < 0),
            (
                f"a line, or lines of blanks, of over {self.expansion * SHORT} bytes",
                self.line > self.expansion * SHORT,
            ),
        ):
            if is_too_long:
                raise ExpansionError(
                    f"{self.path} expands to {what}: if it is what it should be, decompress it "
                    f"first, or give a larger expansion than {self.expansion} (the option "
                    "--expansion of the commands)"
                )
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.file.close()
        super().close()


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


def read_lines(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line number and cells of each line of a CSV file that is not empty."""
    with open_any(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise ValueError(
                f"{path}, line {reader.line_num}: {error}; is a quote left open?"
            ) from error
