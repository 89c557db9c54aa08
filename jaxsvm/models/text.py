"""Text files of a header and numbered lines, as LIBSVM and LIBLINEAR write them."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from ..checks import brief, x64_enabled
from ..files import refuse_special


def run_dtype() -> np.dtype:
    """The dtype of the numbers of a model that is read."""
    return np.dtype(np.float64 if x64_enabled() else np.float32)


class TextFile:
    """The lines of a file, and the values of its header; errors name the file and the line.

    A line of the header is a key and its values. The last key has no values, and the lines behind
    it are the body.
    """

    def __init__(self, path: str) -> None:
        """Read the file.

        Raises:
            OSError: the file cannot be read.
        """
        refuse_special(path)
        with open(path, "rb") as file:
            content = file.read()
        self.path, self.size = path, len(content)
        self._lines = [(i, line) for i, line in enumerate(content.splitlines(), 1) if line.strip()]
        self._header: dict[str, tuple[int, list[bytes]]] = {}
        self._body: list[tuple[int, bytes]] = []

    def refuse(self, line: int, sentence: str) -> NoReturn:
        """Raise ValueError for the contents of a line."""
        raise ValueError(f"{self.path}, line {line}: {sentence}")

    def first(self) -> str:
        """The first word of the file; empty for an empty file."""
        return _shown(self._lines[0][1].split()[0]) if self._lines else ""

    def read_header(self, keys: tuple[str, ...], last: str) -> None:
        """Read the keys and values up to the key `last`."""
        for place, (line, text) in enumerate(self._lines):
            key, values = _shown(text.split()[0]), text.split()[1:]
            if key == last:
                self._body = self._lines[place + 1 :]
                return
            if key not in keys:
                self.refuse(line, f"expected one of {', '.join((*keys, last))}, got {key!r}")
            if key in self._header:
                self.refuse(line, f"{key} was given before, in line {self._header[key][0]}")
            self._header[key] = line, values
        raise ValueError(f"{self.path} ends in its header: expected a line {last!r}")

    def has(self, key: str) -> bool:
        """Whether the header has this key."""
        return key in self._header

    def line_of(self, key: str) -> int:
        """The number of the line of a key."""
        return self._values(key, None)[0]

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """The value of a key, one of `allowed`."""
        line, values = self._values(key, 1)
        name = _shown(values[0])
        if name not in allowed:
            self.refuse(line, f"{key} must be one of {', '.join(allowed)}, got {name!r}")
        return name

    def integers(self, key: str, count: int, least: int) -> list[int]:
        """The `count` values of a key, integers of 32 bits that are at least `least`."""
        line, values = self._values(key, count)
        return [self.integer(line, key, word, least) for word in values]

    def integer(self, line: int, name: str, word: bytes, least: int) -> int:
        """A word as an integer of 32 bits."""
        digits = word.removeprefix(b"-")
        if not digits.isdigit() or len(digits) > 10 or not least <= int(word) < 2**31:
            limit = f" of at least {least}" if least > -(2**31) else ""
            self.refuse(
                line, f"{name} must be an integer{limit} and below 2^31, got {_quote(word)}"
            )
        return int(word)

    def numbers(self, key: str, count: int) -> np.ndarray:
        """The `count` values of a key, finite numbers."""
        line, values = self._values(key, count)
        return self.parse(line, values)

    def parse(self, line: int, words: list[bytes]) -> np.ndarray:
        """Words as numbers that are finite in the dtype of the model, in float64."""
        try:
            values = np.array([*map(float, words)])
            valid = b"_" not in b"".join(words)  # Python allows it
        except ValueError:
            valid = False
        if not valid:
            word = next(word for word in words if b"_" in word or not _is_number(word))
            self.refuse(line, f"expected a number, got {_quote(word)}")
        invalid = ~(np.abs(values) <= np.finfo(run_dtype()).max)
        if invalid.any():
            word, value = words[int(np.argmax(invalid))], values[np.argmax(invalid)]
            if math.isfinite(value):
                self.refuse(
                    line,
                    f"{_quote(word)} is too large for float32: switch on 64-bit numbers, "
                    "jax.config.update('jax_enable_x64', True)",
                )
            self.refuse(line, f"expected a finite number, got {_quote(word)}")
        return values

    def body(self, count: int, what: str) -> list[tuple[int, bytes]]:
        """The `count` lines behind the header, with their numbers; `what` says what they hold."""
        if len(self._body) < count:
            raise ValueError(
                f"{self.path} ends too early: expected {count} lines of {what}, got "
                f"{len(self._body)}"
            )
        if len(self._body) > count:
            line, _ = self._body[count]
            self.refuse(line, f"expected the end of the file after {count} lines of {what}")
        return self._body

    def _values(self, key: str, count: int | None) -> tuple[int, list[bytes]]:
        if key not in self._header:
            raise ValueError(f"{self.path} has no line {key!r} in its header")
        line, values = self._header[key]
        if count is not None and len(values) != count:
            self.refuse(line, f"expected {key} and {count} values, got {len(values)}")
        return line, values


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _shown(word: bytes) -> str:
    return brief(word.decode("ascii", "replace"))


def _quote(word: bytes) -> str:
    return repr(_shown(word))
