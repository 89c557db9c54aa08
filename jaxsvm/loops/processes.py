"""A few numbers of each process, which all processes read: each call is made by all of them."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils


def all_processes(*numbers: int) -> np.ndarray:
    """What each process passed, int32, (processes, numbers)."""
    own = np.array(numbers, np.int32)
    if jax.process_count() == 1:
        return own[None]
    return np.asarray(multihost_utils.process_allgather(own))


def mesh_has_all_processes() -> bool:
    """Whether there are several processes, and the mesh in force has devices of each.

    Only then do all processes make the same calls.
    """
    if jax.process_count() == 1:
        return False
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        return False
    processes = {device.process_index for device in mesh.devices.flat}
    return len(processes) == jax.process_count()
