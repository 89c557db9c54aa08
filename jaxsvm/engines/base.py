"""What solvers have in common: by their space, by their loss, and by updates on all rows."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from ..numerics import packed_by_reference
from ..samplers import whole
from ..types import AnyLoss, Array, Batch, Info, Sampler, Solver, Space


class SpaceSolver(Solver):
    """A solver for a function of a space, which tells what rows it reads and how they lie."""

    @property
    def space(self) -> Space:
        """The function space of f."""
        raise NotImplementedError

    @property
    def needs_all_rows(self) -> bool:
        return self.space.needs_all_rows

    def layout(self, data: Batch) -> Batch:
        return self.space.layout(data)


class LossSolver(Solver):
    """A solver with a loss, which tells what targets it takes."""

    loss: AnyLoss

    @property
    def targets(self) -> Any:
        return "labels" if self.loss.labels else "real"


class AllRowsSolver(LossSolver):
    """A solver whose updates read all rows, and end at the tolerance if it has one."""

    tol: Any = None
    usual_tol: ClassVar[float | None] = None  # where `tol` is None
    needs_all_rows = True
    sampler: Sampler = whole()

    @property
    def iterates_to(self) -> Any:
        return self.usual_tol if self.tol is None else self.tol


class LinearSolver(AllRowsSolver):
    """A solver that reads its rows by products with weights alone: sparse ones are packed."""

    def layout(self, data: Batch) -> Batch:
        return packed_by_reference(data)


def info_of(
    loss: Array, residual: Array, support: Array, evals: Array, progress: object = 0.0
) -> Info:
    """What an update on all rows reports; the progress is of all of them together, () each."""
    index = jnp.full(1, -1, jnp.int32)
    gained = jnp.asarray(progress, residual.dtype)[None]
    return Info(loss, residual, gained, index, support, evals)
