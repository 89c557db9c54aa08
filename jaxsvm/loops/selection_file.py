"""The file in which `select` keeps what it has computed, so that a killed run goes on."""

from __future__ import annotations

import re
import threading
import time
import zipfile
from typing import Any

import jax
import numpy as np

from ..files import atomic_path, open_npz
from ..files.npz import is_damage, refuse_special
from .identity import crc_of
from .old import words_of
from .saving import SaveError, Saver

FORMAT = "jaxsvm select 2"
SHARE = 20  # time between two writes, in units of the time of one


class Results:
    """The results of all fits as NumPy arrays, filled by several threads."""

    def __init__(self, shape: tuple[int, ...], folds: int, n: int) -> None:
        """Nothing computed yet.

        Args:
            shape: of the grid.
            folds: their number.
            n: number of rows.
        """
        self.shape, self.folds, self.n = shape, folds, n
        whole = (*shape, folds)
        self.arrays = {
            name: np.full(whole, np.nan) for name in ("score", "gap", "primal", "seconds")
        }
        self.arrays["support"] = np.full(whole, -1, np.int32)
        self.arrays["done"] = np.zeros(whole, bool)
        self.arrays["values"] = np.full((*shape, n), np.nan, np.float32)
        # the ends of runs whose group is not complete: (group, fold) -> their leaves
        self.paths: dict[tuple[int, int], list[np.ndarray]] = {}
        self.lock = threading.Lock()

    def record(
        self,
        cell: tuple[int, ...],
        fold: int,
        rows: np.ndarray,
        values: np.ndarray,
        numbers: dict[str, Any],
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
            wanted = (*self.shape, self.n, *values.shape[1:])
            if self.arrays["values"].shape != wanted:
                self.arrays["values"] = np.full(wanted, np.nan, np.float32)
            self.arrays["values"][cell][rows] = values
            for name, value in numbers.items():
                self.arrays[name][(*cell, fold)] = value
            self.arrays["done"][(*cell, fold)] = True

    @property
    def count(self) -> int:
        """The number of fits made."""
        return int(self.arrays["done"].sum())


class _FileError(ValueError):
    """A file that does not hold what it should."""


def _is_like(array: np.ndarray, known: np.ndarray, name: str) -> bool:
    """Whether a file may hold this array in the place of a known one."""
    if array.dtype != known.dtype:
        return False
    if name == "values":  # a last axis for classes
        return array.shape[: known.ndim] == known.shape and array.ndim <= known.ndim + 1
    return array.shape == known.shape


class ResultFile:
    """Writes results to a file from time to time, and reads them back."""

    def __init__(self, path: Any, results: Results, call: str) -> None:
        """Read the results that the file holds, if it is there.

        Args:
            path: of the file; None: nothing is read or written.
            results: to fill.
            call: what must be the same in both calls, as `digest` puts it.

        Raises:
            ValueError: the file is another one, or of another call.
        """
        self.saver, self.results, self.call = Saver(path), results, call
        self.path = self.saver.path
        self.written, self.took = time.monotonic(), 0.0
        self.lock = threading.Lock()
        if self.path is not None:
            self._read(self.path)

    def _read(self, path: str) -> None:
        try:
            refuse_special(path)
        except FileNotFoundError:
            return
        try:
            with open_npz(path) as npz:
                names = list(npz.members)
                written = str(npz.read("format")) if "format" in names else ""
                if written != FORMAT:
                    raise self.error(
                        "was written by another version of this package"
                        if written.startswith("jaxsvm select")
                        else "is not one of select"
                    )
                if str(npz.read("call")) != self.call:
                    raise self.error(
                        "is of another call of select, with other data, axes, solvers or options"
                    )
                arrays = {name: npz.read(name) for name in names}
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            raise (error if isinstance(error, _FileError) else self.error()) from error
        for name, known in self.results.arrays.items():
            if name not in arrays or not _is_like(arrays[name], known, name):
                raise self.error()
            self.results.arrays[name] = arrays[name]
        paths: dict[tuple[int, int], dict[int, np.ndarray]] = {}
        for name in arrays:
            place = re.fullmatch(r"path\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})", name)
            if place:
                group, fold, leaf = map(int, place.groups())
                paths.setdefault((group, fold), {})[leaf] = arrays[name]
            elif name.startswith("path."):
                raise self.error()
        for leaves in paths.values():
            lengths = {len(leaf) if leaf.ndim else 0 for leaf in leaves.values()}
            if set(leaves) != set(range(len(leaves))) or len(lengths) > 1 or 0 in lengths:
                raise self.error()
        self.results.paths = {
            place: [leaves[i] for i in range(len(leaves))] for place, leaves in paths.items()
        }

    def error(self, problem: str = "cannot be read as one of select") -> ValueError:
        """What to raise for a file that does not hold what it should."""
        return _FileError(
            f"the file of save={self.path!r} {problem}: delete it, or give another name"
        )

    def check_path(self, leaves: list[np.ndarray], state: Any) -> None:
        """Raise unless the leaves of a path are those of such states, and their seconds."""
        types = lambda a: (np.shape(a), np.result_type(a))
        wanted = [*map(types, jax.tree.leaves(state)), ((), np.dtype(np.float64))]
        if [types(leaf[-1]) for leaf in leaves] != wanted:
            raise self.error()

    def finish(self, selection: Any) -> Any:
        """The selection, provided that its results were saved.

        Raises:
            SaveError: they were not; with the selection.
        """
        if self.saver.error is None:
            return selection
        raise SaveError(
            f"the selection is complete, but its results could not be saved to {self.path} "
            f"({self.saver.error}): it is in the field run of this exception",
            selection,
        ) from self.saver.error

    def write(self, *, now: bool = False) -> None:
        """Write the results, unless the last write was so recent that writing would cost time."""
        if self.path is None:
            return
        with self.lock:
            start = time.monotonic()
            if not now and start - self.written < SHARE * self.took:
                return
            self.saver.write(self._write)
            self.written = time.monotonic()
            self.took = self.written - start

    def _write(self, path: str) -> None:
        with self.results.lock:
            arrays = {name: array.copy() for name, array in self.results.arrays.items()}
            paths = dict(self.results.paths)
        for (group, fold), leaves in paths.items():
            for i, leaf in enumerate(leaves):
                arrays[f"path.{group}.{fold}.{i}"] = leaf
        with atomic_path(path) as temporary, open(temporary, "r+b") as stream:
            np.savez(
                stream,
                format=np.asarray(FORMAT),
                call=np.asarray(self.call),
                **arrays,  # type: ignore[arg-type]
            )


def digest(*parts: Any) -> str:
    """A number that differs for other arrays, numbers and names of functions."""
    space, rest = words_of(parts)
    return f"{crc_of([*space, *rest]):08x}"
