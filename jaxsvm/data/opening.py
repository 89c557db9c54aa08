"""What all readers of files need: paths that are there, text that is unpacked, numbers that fit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def checked(paths: Sequence) -> list[str]:
    """The paths as strings, each of a file that is there."""
    if not paths:
        raise ValueError("give the path of at least one file")
    paths = [os.fsdecode(path) for path in paths]
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder, expected a file")
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {path}")
    return paths


def open_any(path: str, mode: str = "r") -> Any:
    """A text file in UTF-8, or bytes, unpacked where the name ends in .gz, .bz2 or .xz."""
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(os.path.splitext(path)[1], open)
    if "b" in mode:
        return opener(path, mode)
    return opener(path, mode + "t", encoding="utf-8-sig" if mode == "r" else "utf-8", newline="")


def floats() -> Any:
    """The widest numbers that a run can have."""
    return np.float64 if jax.config.jax_enable_x64 else np.float32


def number_fault(text: bytes | str, most: float) -> str | None:
    """What is wrong with a number in a file; None: nothing."""
    try:
        value = float(text)
    except ValueError:
        return "is no number"
    if np.isnan(value):
        return "is no finite number: drop or fill in such rows"
    if abs(value) > most:
        return "is no finite number" if np.isinf(value) else "is too large for float32"
    return None
