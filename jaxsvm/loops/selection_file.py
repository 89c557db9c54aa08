"""The file in which `select` keeps what it has computed, so that a killed run goes on."""

from __future__ import annotations

import hashlib
import threading
import time
import zipfile
from typing import Any

import jax
import numpy as np

from ..files import atomic_path, open_npz
from ..files.npz import is_damage, refuse_special
from .saving import Saver

FORMAT = "jaxsvm select 1"
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


class ResultFile:
    """Writes results to a file from time to time, and reads them back."""

    def __init__(self, path: Any, results: Results, call: str) -> None:
        """Read the results that the file holds, if it is there.

        Args:
            path: of the file; None: nothing is read or written.
            results: to fill.
            call: what must be the same in both calls, as `fingerprint` puts it.

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
        problem = None
        try:
            with open_npz(path) as npz:
                names = list(npz.members)
                if "format" not in names or str(npz.read("format")) != FORMAT:
                    problem = "is not one of select"
                elif str(npz.read("call")) != self.call:
                    problem = "is of another call of select, with other data, axes or options"
                else:
                    arrays = {name: npz.read(name) for name in names}
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            problem = "cannot be read as one of select"
        if problem:
            raise ValueError(
                f"the file of save={path!r} {problem}: delete it, or give another name"
            )
        paths: dict[tuple[int, int], dict[int, np.ndarray]] = {}
        for name, array in arrays.items():
            if name.startswith("path."):
                group, fold, leaf = map(int, name.split(".")[1:])
                paths.setdefault((group, fold), {})[leaf] = array
            elif name in self.results.arrays:
                self.results.arrays[name] = array
        self.results.paths = {
            place: [leaves[i] for i in range(len(leaves))] for place, leaves in paths.items()
        }

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


def fingerprint(*parts: Any) -> str:
    """A number that differs for other arrays, numbers or structures."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts):
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if hasattr(leaf, "dtype"):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()
