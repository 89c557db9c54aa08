"""The file in which `select` keeps what it has computed, so that a killed run goes on."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np

from ..files import atomic_path, read_arrays
from .origin import crc_of, words_of
from .saving import SaveError, Saver

FORMAT = "jaxsvm select 3"
SHARE = 20  # time between two writes, in units of the time of one


class Results:
    """The results of all fits as NumPy arrays, filled by several threads, and their file."""

    def __init__(
        self, shape: tuple[int, ...], folds: int, n: int, path: Any = None, *call: object
    ) -> None:
        """The results that the file holds, if it is there, else none.

        Args:
            shape: of the grid.
            folds: their number.
            n: number of rows.
            path: of the file; None: nothing is read or written.
            *call: what must be the same in both calls: trees of arrays and numbers, solvers.

        Raises:
            ValueError: the file is another one, or of another call.
        """
        whole = (*shape, folds)
        names = "score", "gap", "primal", "seconds"
        self.arrays: dict[str, np.ndarray] = {name: np.full(whole, np.nan) for name in names}
        self.arrays["support"] = np.full(whole, -1, np.int32)
        self.arrays["done"] = np.zeros(whole, bool)
        self.arrays["values"] = np.full((*shape, n), np.nan, np.float32)
        self.saver, self.lock = Saver(path), threading.Lock()
        space, rest = words_of(call)
        self.call = "" if path is None else f"{crc_of([*space, *rest]):08x}"
        self.written, self.took = time.monotonic(), 0.0
        if path is not None and os.path.exists(self.saver.path):
            self._read(self.saver.path)

    def record(
        self, cell: tuple, fold: int, rows: object, values: np.ndarray, numbers: dict
    ) -> None:
        """Keep the result of one fit.

        Args:
            cell: of the grid.
            fold: the fold that was left out.
            rows: (m,) the rows of the fold.
            values: (m,) or (m, classes) decision values there.
            numbers: by the names of the arrays.
        """
        with self.lock:
            shape = *self.arrays["values"].shape[: len(cell) + 1], *values.shape[1:]
            if self.arrays["values"].shape != shape:
                self.arrays["values"] = np.full(shape, np.nan, np.float32)
            self.arrays["values"][cell][rows] = values
            for name, value in {**numbers, "done": True}.items():
                self.arrays[name][(*cell, fold)] = value

    @property
    def count(self) -> int:
        """The number of fits made."""
        return int(self.arrays["done"].sum())

    def _read(self, path: str) -> None:
        try:
            arrays = read_arrays(path)
        except ValueError as error:
            raise self._error("cannot be read as one of select") from error
        written = str(arrays.get("format", ""))
        if not written.startswith("jaxsvm select"):
            raise self._error("is not one of select")
        if written != FORMAT:
            raise self._error("was written by another version of this package")
        if str(arrays.get("call")) != self.call:
            raise self._error(
                "is of another call of select, with other data, axes, solvers or options"
            )
        for name, known in self.arrays.items():
            new = arrays.get(name, np.zeros(()))
            # values may have a last axis, for classes
            if new.dtype != known.dtype or new.shape[: known.ndim] != known.shape:
                raise self._error("cannot be read as one of select")
            self.arrays[name] = new

    def _error(self, problem: str) -> ValueError:
        return ValueError(
            f"the file of save={self.saver.path!r} {problem}: delete it, or give another name"
        )

    def finish(self, selection: object) -> Any:
        """The selection, provided that its results were saved.

        Raises:
            SaveError: they were not; with the selection.
        """
        if self.saver.error is None:
            return selection
        raise SaveError(
            f"the selection is complete, but its results could not be saved to "
            f"{self.saver.path} ({self.saver.error}): it is in the field run of this exception",
            selection,
        ) from self.saver.error

    def write(self, *, now: bool = False) -> None:
        """Write the results, unless the last write was so recent that writing would cost time."""
        with self.lock:
            start = time.monotonic()
            if self.saver.path is None or not (now or start - self.written >= SHARE * self.took):
                return
            self.saver.write(self._write)
            self.written = time.monotonic()
            self.took = self.written - start

    def _write(self, path: str) -> None:
        arrays: Any = self.arrays
        with atomic_path(path) as temporary, open(temporary, "r+b") as stream:
            np.savez(stream, format=np.asarray(FORMAT), call=np.asarray(self.call), **arrays)
