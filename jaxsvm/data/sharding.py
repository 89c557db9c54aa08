"""Rows over the devices of a mesh, of one process or of many."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import integer, shown
from ..numerics import widened
from ..numerics.sharding import ROWS, auto_axes, example_mesh
from ..types import Array, Batch, SparseRows, check_batch


def shard(data: Batch, mesh: Mesh | None = None, *, blocks: int | None = None) -> Batch:
    """Lay the rows of a data set over the devices of a mesh, in equal blocks.

        block j: the rows j n / blocks to (j + 1) n / blocks - 1, in order, then padding

    All loops take the result in place of `data`: arrays stay on their devices, and a run sends
    numbers that do not grow with the rows. Padding is at most one row a block in one process, a
    copy of the last row with weight 0 and index -1. Rows that are not divisible by the blocks
    change their number: `index` is the row number in the result.

    With several processes (`jax.distributed.initialize`), `data` are the rows of this process, any
    number of them, with the same columns everywhere. The call has to be made by all processes.

    Args:
        data: all rows; or those of this process, if there are several.
        mesh: one with an axis "rows", such as `jax.make_mesh((8,), ("rows",))`; a second axis
            "runs" is for `sweep`. None: one axis over all devices.
        blocks: number of equal blocks, a multiple of the devices on the axis. What a stratified
            sampler draws depends on it, not on the devices: set it to run on fewer or more devices
            later. None: the devices on the axis.

    Returns:
        The rows as arrays with a `NamedSharding` over the axis "rows". All axes of its mesh are
        Auto; `jax.make_mesh` makes them Explicit, under which solvers cannot be traced. Inside of
        `jit` a loop does not see where rows lie: enter `jax.set_mesh(data.y.sharding.mesh)`.

    Raises:
        TypeError: data is not a `Batch`, mesh is not a mesh.
        ValueError: no axis "rows", blocks not a multiple of its devices, or rows of other processes
            in `data`.

    Example:
        >>> import jax, jaxsvm
        >>> data = jaxsvm.dataset([[1.0], [2.0], [3.0]], [-1, 1, 1])
        >>> rows = jaxsvm.shard(data, jax.make_mesh((1,), ("rows",)), blocks=2)
        >>> rows.x[:, 0].tolist(), rows.weight.tolist()
        ([1.0, 1.0, 2.0, 3.0], [1.0, 0.0, 1.0, 1.0])
    """
    check_batch("data", data)
    mesh = Mesh(np.array(jax.devices()), (ROWS,)) if mesh is None else mesh
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a mesh such as {example_mesh()}, got {shown(mesh)}")
    if ROWS not in mesh.axis_names:
        raise ValueError(
            f'mesh must have an axis "{ROWS}", got the axes {", ".join(mesh.axis_names)}: make it '
            f"with {example_mesh()}"
        )
    if not data.y.shape[0]:
        raise ValueError("data has no rows: every process must hold at least one")
    if any(isinstance(a, jax.Array) and not a.is_fully_addressable for a in jax.tree.leaves(data)):
        raise ValueError("data holds rows of other processes: pass the rows of this process only")
    mesh = auto_axes(mesh)
    devices = mesh.shape[ROWS]
    blocks = devices if blocks is None else integer("blocks", blocks, 1)
    if blocks % devices:
        raise ValueError(
            f'blocks must be a multiple of the {devices} devices on the axis "{ROWS}", got {blocks}'
        )
    sharding = NamedSharding(mesh, PartitionSpec(ROWS))
    slices = sharding.addressable_devices_indices_map((blocks,)).values()
    own = np.unique(np.concatenate([np.arange(blocks)[index] for index in slices]))  # of here
    data, length = _same_shapes(data, len(own))

    # each block: floor or ceil of n / blocks rows, then its last row again
    ends = np.arange(len(own) + 1) * data.y.shape[0] // len(own)
    rows = ends[:-1, None] + np.arange(length)
    is_row = rows < ends[1:, None]
    rows = np.minimum(rows, np.maximum(ends[1:, None] - 1, 0)).ravel()

    def lay(a: np.ndarray) -> Array:
        shape = (blocks * length, *a.shape[1:])
        return jax.make_array_from_process_local_data(sharding, a, shape)

    laid = jax.tree.map(lambda a: lay(np.asarray(a)[rows]), data._replace(index=data.weight))
    number = own[:, None] * length + np.arange(length)
    weight = np.where(is_row.ravel(), np.asarray(data.weight)[rows], 0).astype(data.weight.dtype)
    is_known = is_row.ravel() & (np.asarray(data.index)[rows] >= 0)
    index = np.where(is_known, number.ravel(), -1).astype(np.int32)
    return laid._replace(weight=lay(weight), index=lay(index))


def _same_shapes(data: Batch, own: int) -> tuple[Batch, int]:
    """The rows with sparse rows as wide as those of other processes, and the rows of a block."""
    length, width = -(-data.y.shape[0] // own), 0
    if isinstance(data.x, SparseRows):
        data = data._replace(x=data.x.materialize())
        width = data.x.value.shape[1]
    if jax.process_count() > 1:
        of_all = multihost_utils.process_allgather(np.array([length, width]))
        length, widest = (int(number) for number in np.asarray(of_all).max(axis=0))
        if isinstance(data.x, SparseRows):
            data = data._replace(x=widened(data.x, widest))
    return data, length
