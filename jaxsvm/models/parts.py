"""Arrays that lie on the devices of several processes: a folder with one file of each process.

The file `tree.npz` is written last and names the others, so that the folder always holds a whole
tree: the old one or the new one.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..files import atomic_path, open_npz
from ..numerics.sharding import auto_axes

TREE = "tree.npz"


def as_numpy(a: Any) -> np.ndarray:
    """An array on the host; a replicated one from a device of this process."""
    if isinstance(a, jax.Array) and not a.is_fully_addressable:
        return np.asarray(a.addressable_data(0))
    return np.asarray(a)


def spec_of(a: Any) -> list | None:
    """The axes of the mesh over which an array is sharded, for each of its own; None: it is not."""
    sharding = getattr(a, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
        return None
    return [list(axis) if isinstance(axis, tuple) else axis for axis in sharding.spec]


def lay(a: np.ndarray, spec: list | None, mesh: Mesh | None) -> jax.Array:
    """An array on a mesh, sharded as it was; where the mesh does not divide it, replicated.

    Args:
        a: the whole array.
        spec: as of `spec_of`.
        mesh: its axes become Auto; None: the default device.
    """
    if mesh is None:
        return jnp.asarray(a)
    mesh = auto_axes(mesh)
    axes = [tuple(axis) if isinstance(axis, list) else axis for axis in spec or []]
    names = [(axis,) if isinstance(axis, str) else axis or () for axis in axes]
    known = all(name in mesh.shape for axis in names for name in axis)
    fits = known and all(
        size % math.prod(mesh.shape[name] for name in axis) == 0
        for size, axis in zip(a.shape, names, strict=False)
    )
    sharding = NamedSharding(mesh, PartitionSpec(*(axes if fits else ())))
    return jax.make_array_from_callback(a.shape, sharding, lambda index: a[index])


def _part_path(folder: str, number: int, process: int) -> str:
    return os.path.join(folder, f"part-{number}-{process}.npz")


def write_folder(
    folder: str, number: int, arrays: dict[int, Any], write_tree: Callable[[str], None]
) -> None:
    """Write the parts of this process, then, in the first process, the file that names them all.

    All processes call it.

    Args:
        folder: of the saved tree; its parent exists.
        number: of this save, higher than that of the tree in the folder.
        arrays: by number; of each, this process writes what no other one does.
        write_tree: writes `TREE` to the path it is called with.

    Raises:
        OSError: a file of this or of another process could not be written.
    """
    process = jax.process_index()

    def write_parts():
        places: list[Any] = []
        members: dict[str, Any] = {}
        for i, a in arrays.items():
            for part in a.addressable_shards:
                if part.replica_id == 0:
                    members[f"p{len(places)}"] = _storable(np.asarray(part.data))
                    ends = [s.indices(n)[:2] for s, n in zip(part.index, a.shape, strict=True)]
                    places.append([i, ends])
        text = np.frombuffer(json.dumps(places).encode(), np.uint8)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        path = _part_path(folder, number, process)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, places=text, **members)

    _together(write_parts)
    _together(lambda: write_tree(os.path.join(folder, TREE)) if process == 0 else None)
    pattern = re.compile(rf"part-(\d+)-{process}\.npz")
    for name in os.listdir(folder):
        match = pattern.fullmatch(name)
        if match and int(match.group(1)) != number:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _together(action: Callable[[], None]) -> None:
    """Call `action` in all processes, and raise in all of them if one of them fails."""
    error: OSError | None = None
    try:
        action()
    except OSError as caught:
        error = caught
    failed = np.asarray(multihost_utils.process_allgather(np.array(error is not None)))
    if error is not None:
        raise error
    if failed.any():
        raise OSError(f"process {int(np.argmax(failed))} could not write its part")


def _storable(a: np.ndarray) -> np.ndarray:
    """An array of a dtype of NumPy: bfloat16 and similar ones as integers with the same bits."""
    return a.view(f"u{a.dtype.itemsize}") if a.dtype.kind == "V" else a


def read_folder(
    folder: str, number: int, processes: int, shapes: dict[int, tuple[tuple[int, ...], np.dtype]]
) -> dict[int, np.ndarray]:
    """The whole arrays, put together from the parts of all processes.

    Args:
        folder: as of `write_folder`.
        number: of the save.
        processes: those that have written it.
        shapes: shape and stored dtype by number of the array.

    Raises:
        FileNotFoundError: a part is not there.
        ValueError: a part is damaged, or the parts do not make up whole arrays.
    """
    path_of = functools.partial(_part_path, folder, number)
    incomplete = "the parts do not make up whole arrays"
    needed = sum(abs(math.prod(shape)) * dtype.itemsize for shape, dtype in shapes.values())
    if needed > sum(os.path.getsize(path_of(process)) for process in range(processes)):
        raise ValueError(incomplete)
    whole = {i: np.empty(shape, dtype) for i, (shape, dtype) in shapes.items()}
    filled = {i: np.zeros(a.shape, bool) for i, a in whole.items()}
    for process in range(processes):
        with open_npz(path_of(process), compressed=False) as npz:
            for k, (i, ends) in enumerate(json.loads(npz.read("places").tobytes())):
                index = tuple(slice(*end) for end in ends)
                part = npz.read(f"p{k}")
                if part.dtype != whole[i].dtype or part.shape != whole[i][index].shape:
                    raise ValueError(f"part {k} of process {process} does not fit its array")
                if filled[i][index].any():
                    raise ValueError(f"part {k} of process {process} covers numbers of another one")
                whole[i][index], filled[i][index] = part, True
    if not all(a.all() for a in filled.values()):
        raise ValueError(incomplete)
    return whole
