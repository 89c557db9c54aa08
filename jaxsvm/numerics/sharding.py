"""Rows that lie on several devices: how many shards there are, and arithmetic within each.

The rows of a data set are sharded over the axis "rows" of a mesh (`jaxsvm.shard`). While a loop
runs, that mesh is in force (`jax.set_mesh`), and these functions read it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

from ..types import Array, Batch

ROWS = "rows"  # the axis of a mesh over which rows are sharded

_P = ParamSpec("_P")
_R = TypeVar("_R")


def shards(n: int) -> int:
    """The number of shards of n rows under the mesh in force.

    It is 1 without a mesh, inside of `shard_map` over the rows, and where the axis does not divide
    n.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or ROWS in mesh.manual_axes:
        return 1
    k = dict(mesh.shape).get(ROWS, 1)
    return k if n % k == 0 else 1


def example_mesh() -> str:
    """The call that makes a mesh of all devices, for messages."""
    return f'jax.make_mesh(({jax.device_count()},), ("{ROWS}",))'


def split_rows(a: Array, k: int) -> Array:
    """(n, ...) -> (k, n / k, ...): no row leaves its device if k is a multiple of the shards."""
    return a.reshape(k, a.shape[0] // k, *a.shape[1:])


def on_one_device(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """`fn` with one shard only: what is mapped over shards is computed within each."""

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return fn(*args, **kwargs)

    return call


def map_shards(fn: Callable, *arrays: Array) -> Any:
    """`fn` of the rows of each shard, with a leading axis (k,)."""
    k = shards(arrays[0].shape[0])
    return jax.vmap(on_one_device(fn))(*(split_rows(a, k) for a in arrays))


def auto_axes(mesh: Mesh) -> Mesh:
    """The same mesh with Auto axes: the compiler places what solvers compute."""
    auto = (AxisType.Auto,) * len(mesh.axis_names)
    return Mesh(mesh.devices, mesh.axis_names, axis_types=auto)


def mesh_of(y: object) -> Mesh | None:
    """The mesh over which the rows of a data set are sharded, by its targets (n,).

    None: they are on one device, replicated, or traced.

    Raises:
        ValueError: the rows are sharded in another way than by `jaxsvm.shard`.
    """
    if isinstance(y, jax.core.Tracer) or not isinstance(y, jax.Array):
        return None
    sharding = y.sharding
    if isinstance(sharding, SingleDeviceSharding):
        return None
    if len(sharding.device_set) == 1 or sharding.is_fully_replicated:
        return None
    if not isinstance(sharding, NamedSharding) or sharding.spec != PartitionSpec(ROWS):
        raise ValueError(
            f"the rows of the data lie on {len(sharding.device_set)} devices as {sharding}, "
            f'expected the axis "{ROWS}": lay them with jaxsvm.shard(data, mesh)'
        )
    mesh = sharding.mesh
    if not isinstance(mesh, Mesh) or set(mesh.axis_types) != {AxisType.Auto}:
        raise ValueError(
            f"the mesh of the data has axes of the types {mesh.axis_types}, expected Auto: lay the "
            "rows with jaxsvm.shard(data, mesh), which makes them so"
        )
    return mesh


def in_mesh_of(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """A decorator: calls run in the mesh of the rows of the argument `name`, a `Batch`."""

    def decorate(fn: Callable[_P, _R]) -> Callable[_P, _R]:
        place = list(inspect.signature(fn).parameters).index(name)

        @functools.wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            data: Any = args[place] if len(args) > place else kwargs.get(name)
            mesh = mesh_of(data.y if isinstance(data, Batch) else None)
            if mesh is None:
                return fn(*args, **kwargs)
            with jax.set_mesh(mesh):
                return fn(*args, **kwargs)

        return call

    return decorate
