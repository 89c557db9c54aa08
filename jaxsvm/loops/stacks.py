"""The solvers of several cells of a grid as one argument of a compiled function."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ..numerics import accum_dtype, is_traced
from ..recipe import fields_of, skip_validation, unwrap_static
from ..types import Array, Batch
from .fitting import MANY_ROWS
from .grid_runs import Grid
from .old import as_argument


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Stack:
    """Solvers of one structure; some of their leaves are stacked, the others are equal."""

    own: list[Array]  # (cells, ...)
    rest: list[Array]
    form: tuple = dataclasses.field(metadata={"static": True})  # structure, whether each is stacked

    def solver(self, own: list[Array]) -> Any:
        """The solver of these leaves of one cell."""
        tree, flags = self.form
        own_leaves, rest = iter(own), iter(self.rest)
        leaves = [next(own_leaves if flag else rest) for flag in flags]
        with skip_validation():
            return unwrap_static(jax.tree.unflatten(tree, leaves))

    @property
    def first(self) -> Any:
        """The first solver."""
        return self.solver([leaf[0] for leaf in self.own])


def stacked_solvers(grid: Grid, cells: list[tuple[int, ...]]) -> Stack | None:
    """The solvers of cells along the first axis.

    None if there are several and the maker does not work on numbers without values, or if they
    are structure, as integers are as a rule.
    """
    dtype = accum_dtype(grid.data.x)
    if len(cells) == 1:
        leaves, tree = jax.tree.flatten(as_argument(grid.solver(cells[0]), dtype))
        return Stack([], leaves, (tree, (False,) * len(leaves)))
    first, numbers = next(iter(grid.axes.items()))
    if numbers.dtype.kind != "f":
        return None
    others = {name: value for name, value in grid.numbers(cells[0]).items() if name != first}
    stacks: list[Stack] = []

    def solver_at(number: Array) -> list[Array]:
        leaves, tree = jax.tree.flatten(as_argument(grid.maker(**{first: number}, **others), dtype))
        flags = tuple(map(is_traced, leaves))
        # what does not depend on the number was computed outside of the trace
        rest = [leaf for leaf, flag in zip(leaves, flags, strict=True) if not flag]
        stacks.append(Stack([], rest, (tree, flags)))
        return [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

    try:
        own = jax.vmap(solver_at)(jnp.asarray(numbers[[cell[0] for cell in cells]]))
    except Exception:  # whatever a maker does to numbers that have no values
        return None
    return dataclasses.replace(stacks[-1], own=own)


def steps_of(solver: Any, steps: int | None, data: Batch) -> int | None:
    """The number of steps; None for a solver whose updates run until its tolerance is met.

    It is one where one is enough.
    """
    fields = fields_of(solver)
    is_one = fields.hooks.tol is not None and fields.needs_all_rows and data.y.shape[0] < MANY_ROWS
    return 1 if is_one and steps is None else steps
