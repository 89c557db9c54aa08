"""Parts of a grid, dealt over the devices of a mesh: each device runs the program of one device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import shown
from ..numerics.sharding import auto_axes
from ..types import Array

RUNS = "runs"  # the axis of a mesh over which runs are dealt


class MeshSplit(NamedTuple):
    """The devices of one axis of a mesh, and what each of them runs."""

    mesh: Mesh  # with Auto axes
    axis: str
    run_part: Callable  # (numbers of the first axis, other point, args, kwargs) -> tree

    @classmethod
    def over(cls, mesh: Any, run_part: Callable) -> MeshSplit:
        """The axis "runs" of the mesh, or its only axis.

        Raises:
            TypeError: not a mesh.
            ValueError: several axes, none of which is "runs".
        """
        if not isinstance(mesh, Mesh):
            raise TypeError(
                f'mesh must be a mesh such as jax.make_mesh((8,), ("{RUNS}",)), got {shown(mesh)}'
            )
        names = mesh.axis_names
        if RUNS not in names and len(names) != 1:
            raise ValueError(
                f'mesh must have an axis "{RUNS}", over which the points are dealt, got the axes '
                f"{', '.join(names)}"
            )
        return cls(auto_axes(mesh), RUNS if RUNS in names else names[0], run_part)

    @property
    def size(self) -> int:
        """Parts that run at the same time."""
        return self.mesh.shape[self.axis]

    def widest(self, first: int, others: int) -> int:
        """The most numbers of the first axis in a part with which no device stays idle.

        Args:
            first: numbers of the first axis.
            others: points of the other axes.
        """
        return -(-first // min(first, -(-self.size // others)))

    def place(self, a: Array) -> Array:
        """An argument on all devices of the mesh; one that lies there already is not moved."""
        if getattr(a.sharding, "mesh", None) == self.mesh:
            return a
        return jax.device_put(a, NamedSharding(self.mesh, PartitionSpec()))

    def lower(self, values: Array, point: tuple, args: tuple, kwargs: dict) -> Any:
        """The program that runs one part on each device, before it is compiled."""
        dealt = PartitionSpec(self.axis)

        def one(values, point, args, kwargs):
            alone = jax.tree.map(lambda a: a[0], (values, point))
            return jax.tree.map(lambda a: a[None], self.run_part(*alone, args, kwargs))

        specs = dealt, dealt, PartitionSpec(), PartitionSpec()
        each = jax.shard_map(
            one,
            mesh=self.mesh,
            axis_names={self.axis},
            in_specs=specs,
            out_specs=dealt,
            check_vma=False,
        )
        repeat = lambda a: jnp.broadcast_to(a, (self.size, *jnp.shape(a)))
        stacked = jax.tree.map(self._lay, jax.tree.map(repeat, (values, point)))
        with jax.set_mesh(self.mesh):
            return jax.jit(each).lower(*stacked, args, kwargs)

    def _lay(self, a: Array) -> Array:
        """The parts of an array, one on each device of the axis."""
        return jax.device_put(a, NamedSharding(self.mesh, PartitionSpec(self.axis)))

    def rounds(self, jobs: list) -> list:
        """As many jobs at once as there are devices; the last round repeats its last job."""
        padded = jobs + [jobs[-1]] * (-len(jobs) % self.size)
        together = lambda jobs: jax.tree.map(lambda *a: self._lay(jnp.stack(a)), *jobs)
        return [together(padded[i : i + self.size]) for i in range(0, len(padded), self.size)]

    def parts(self, done: Any) -> list:
        """The results of a round, one for each device, on the first device of this process."""
        here = jax.local_devices()[0]
        if jax.process_count() > 1:
            gather = functools.partial(multihost_utils.process_allgather, tiled=True)
            done = jax.tree.map(lambda a: np.asarray(gather(a)), done)
        done = jax.device_put(done, here)
        return [jax.tree.map(lambda a: a[i], done) for i in range(self.size)]  # noqa: B023
