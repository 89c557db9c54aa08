"""Solvers, samplers and probes, which are kept as calls, as the loop reads them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from .checks import check_limit, shown
from .kernels import check_kernels
from .recipe import (
    Recipe,
    as_static,
    cast,
    fields_of,
    is_kind,
    refuse_factory,
    skip_validation,
    unwrap_static,
)
from .samplers import uniform
from .types import Batch, Solver

FREE = ("tol", "start")  # arguments that a run may change: its end, and what its first step reads
SPACES = ("kernel", "phi", "space")  # those that say in which space a function lies


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Old:
    """A solver or a sampler; what its call makes, and its hooks, are attributes."""

    call: Any

    @functools.cached_property
    def made(self) -> Any:
        """What the call makes, once."""
        return fields_of(self.call)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made if name in self.made._fields else self.made.hooks, name)

    def check_rows(self, data: Batch) -> None:
        """Raise for kernels of the user that are none on known rows."""
        check_kernels(self.call, data)

    def row_entries(self, data: Batch) -> list[bool]:
        """For each leaf of the state, whether its size depends on the number of rows."""
        n, init = data.y.shape[0], functools.partial(self.init, jax.random.key(0))
        longer = lambda a: jax.ShapeDtypeStruct((n + 1, *a.shape[1:]), a.dtype)
        states = jax.eval_shape(init, data), jax.eval_shape(init, jax.tree.map(longer, data))
        shapes = [[leaf.shape for leaf in jax.tree.leaves(state)] for state in states]
        return [short != long for short, long in zip(*shapes, strict=True)]

    def has_sums(self, data: Batch) -> bool:
        """Whether a state of `fit` holds sums over rows, or numbers for each of them."""
        if self.needs_all_rows or any(self.row_entries(data)):
            return True
        return hasattr(jax.eval_shape(self.init, jax.random.key(0), data), "sums_of")

    def words(self) -> tuple[list, list]:
        """As `words_of`."""
        return words_of(self.call)


def check_solver(solver: Any) -> Solver:
    """The fields of a solver; raise unless it is one, with known numbers in their range."""
    refuse_factory("solver", solver)
    if not is_kind(solver, Solver):
        raise TypeError(
            f"solver must be a solver such as jaxsvm.pegasos(1e-3), got {shown(solver)}"
        )
    return fields_of(solver)


def adapted(solver: Any, sampler: Any, tol: Any, dtype: Any) -> tuple[Old, Old, Any]:
    """The solver that stops its updates at `tol`, if it does, the sampler, and the tolerance.

    That is nan for none. A solver with a tolerance of its own has that, even if all steps are made.

    Raises:
        TypeError: it is no solver.
    """
    fields = check_solver(solver)
    own = fields.hooks.tol
    check_limit("tol", tol, signed=True)  # a probe may have any sign
    if tol is None:
        tol = own if fields.residual_of == "data" else None
    elif own is not None and isinstance(solver, Recipe):
        with skip_validation():  # the solver was checked when it was created
            solver = solver.bind(tol=tol)
    known = tol if isinstance(tol, jax.core.Tracer) else float(np.nan if tol is None else tol)
    sampler = as_static(sampler or fields.sampler or uniform(1))
    return Old(cast(as_static(solver), dtype)), Old(cast(sampler, dtype)), cast(known, dtype)


def as_argument(node: Any, dtype: Any) -> Any:
    """A solver, sampler or probe as an argument of a program, whose numbers are cast to `dtype`."""
    return cast(as_static(node), dtype)


def words_of(call: Any) -> tuple[list, list]:
    """What a call is, as words and arrays: its kernels and feature maps, and all else.

    Functions count by their names.
    """
    space: list = []
    rest: list = []

    def add(thing: Any, words: list) -> None:
        thing = unwrap_static(thing)
        if isinstance(thing, Recipe):
            words.append(f"{thing.spec[0].__module__}.{thing.spec[0].__qualname__}")
            for name, value in thing.arguments().items():
                if name not in FREE:
                    add(value, space if name in SPACES else words)
        elif isinstance(thing, functools.partial):
            add((thing.func, thing.args, thing.keywords), words)
        elif not jax.tree_util.all_leaves([thing]):
            for part in jax.tree.leaves(thing, is_leaf=lambda node: isinstance(node, Recipe)):
                add(part, words)
        elif isinstance(thing, float | complex) or hasattr(thing, "dtype"):
            words.append(np.asarray(thing) if isinstance(thing, float | complex) else thing)
        elif callable(thing):
            name = getattr(thing, "__qualname__", type(thing).__qualname__)
            words.append(f"{getattr(thing, '__module__', '')}.{name}")
        else:
            words.append(repr(thing))

    add(call, rest)
    return space, rest
