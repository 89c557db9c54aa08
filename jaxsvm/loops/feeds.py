"""Feeds: where the rows of each step come from. `choose_feed` decides it for `fit`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from ..checks import calling, is_numeric, number, on_host, shown
from ..numerics import pack_rows, shards
from ..numerics.sharding import split_rows
from ..numerics.sparse_products import MIN_ROWS
from ..recipe import check_choice, fields_of, static
from ..types import (
    Array,
    Batch,
    Hooks,
    Lifted,
    RunState,
    Sampler,
    Solver,
    SparseRows,
    State,
    row_weights,
    take,
    take_by_block,
)

_T = TypeVar("_T")

MOST_ON_HOST = 2**21  # numbers of rows up to which NumPy prepares them: a few milliseconds
PREPARED_BLOCK = 4096  # rows that are prepared at once


@dataclass_transform(
    eq_default=False, frozen_default=True, field_specifiers=(dataclasses.field, static)
)
def _feed(cls: type[_T]) -> type[_T]:
    """A frozen dataclass that is a pytree."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True, eq=False)(cls))


class Steps(NamedTuple):
    """The batches of the steps of a chunk."""

    batch: Callable[[Any], Batch]  # (k) -> of step k
    exist: Array | None = None  # () bool, whether all drawn rows do; None: none were drawn


@_feed
class Feed:
    """The rows of each step, a pytree; a subclass defines `open`.

    `x` is None, or the rows in a layout that steps read faster than `data.x`.
    """

    x: Any = None
    may_be_empty: ClassVar[bool] = False  # whether a chunk may make no step

    def rows(self, sampler: Sampler, data: Batch) -> Batch:
        """All rows as steps read them."""
        x = data.x if self.x is None else self.x
        return data._replace(x=x, weight=_weight(sampler, data))

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """The steps of the chunk that starts at `run`.

        Args:
            solver: its fields.
            sampler: its fields.
            data: the training rows.
            run: at the start of the chunk.
            every: steps of a whole chunk; structure.
            count: steps of this one, () or a Python integer.
        """
        raise NotImplementedError

    def place(self, state: State) -> State:
        """The state after a chunk, where it must lie."""
        return state


@_feed
class Whole(Feed):
    """Each step reads all rows."""

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """As of `Feed`."""
        rows = self.rows(sampler, data)
        return Steps(lambda k: rows)


@_feed
class Indexed(Feed):
    """Each step gets all rows, and the numbers of those drawn, for `Solver.needs_all_rows`."""

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """As of `Feed`."""
        rows = self.rows(sampler, data)
        indices, exist = drawn_rows(sampler, run, every, count, data.y.shape[0])
        return Steps(lambda k: rows._replace(index=_row(indices, k)), exist)


@_feed
class Drawn(Feed):
    """Each step reads the rows that it draws."""

    blocks: int = static(default=1)  # of rows on several devices, which are taken where they are

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """As of `Feed`."""
        rows = self.rows(sampler, data)
        indices, exist = drawn_rows(sampler, run, every, count, data.y.shape[0], self.blocks)

        def batch(k):
            index = _row(indices, k)
            if self.blocks > 1:
                return take_by_block(rows, index, self.blocks)
            drawn = take(rows, index, copy=False)
            return drawn if sampler.combine is None else sampler.combine(solver.prepare(drawn))

        return Steps(batch, exist)


@_feed
class ChunkFeatures(Drawn):
    """As `Drawn`; the features of all rows of a chunk are computed before its first step."""

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """As of `Feed`."""
        rows = self.rows(sampler, data)
        indices, exist = drawn_rows(sampler, run, every, count, data.y.shape[0], self.blocks)
        combine = sampler.combine or (lambda rows: rows)
        if sampler.period is None or self.blocks > 1 or isinstance(count, int):
            features = _features_of_steps(solver, rows, indices, self.blocks)
            return Steps(lambda k: combine(jax.tree.map(lambda a: _row(a, k), features)), exist)
        features, places = _features_of_drawn(solver, rows, indices, count)

        def batch(k):
            place, index = _row(places, k), _row(indices, k)
            rows = jax.tree.map(lambda a: a.at[place].get(mode="promise_in_bounds"), features)
            return combine(rows._replace(index=index, weight=jnp.where(index >= 0, rows.weight, 0)))

        return Steps(batch, exist)


@_feed
class InOrder(Feed):
    """The rows of a chunk of a stream, `batch` a step, in their order; device by device."""

    chunk: Any = None  # a Batch
    batch: int = static(default=1)
    devices: int = static(default=1)
    lift: bool = static(default=False)  # compute the features of all rows before the first step
    may_be_empty: ClassVar[bool] = True

    def open(
        self, solver: Solver, sampler: Sampler, data: Batch, run: RunState, every: int, count: Any
    ) -> Steps:
        """As of `Feed`."""
        rows = solver.prepare(self.chunk) if self.lift else self.chunk
        share = self.batch // self.devices

        def cut(a, k):
            part = lax.dynamic_slice_in_dim(split_rows(a, self.devices), k * share, share, axis=1)
            return part.reshape(self.batch, *a.shape[1:])

        def batch(k):
            if isinstance(rows.x, SparseRows) and self.devices == 1:
                index = k * self.batch + jnp.arange(self.batch, dtype=jnp.int32)  # by reference
                sliced = jax.tree.map(lambda a: cut(a, k), rows._replace(x=rows.y))
                return sliced._replace(x=dataclasses.replace(rows.x, rows=index))
            return jax.tree.map(lambda a: cut(a, k), rows)

        return Steps(batch)

    def place(self, state: State) -> State:
        """As of `Feed`: a copy on each device."""
        return on_each_device(state, self.devices)


def on_each_device(tree: Any, devices: int) -> Any:
    """All arrays whole on each device: the compiler would be free to divide them."""
    return tree if devices == 1 else lax.with_sharding_constraint(tree, PartitionSpec())


def _row(a: Array, k: Any) -> Array:
    return lax.dynamic_index_in_dim(a, k, keepdims=False)


def draw_rows(sampler: Sampler, state: State, step: Any, count: int, n: int) -> Array:
    """The row numbers that the sampler draws for `count` steps, (count, rows of a step).

    Raises:
        TypeError, ValueError: its function fails, or gives other arrays.
    """
    form, shape = "(state, step, count) -> (count, b) row numbers", (count, sampler.rows(n))
    with calling("draw of the sampler", sampler.draw, form):
        index = sampler.draw(state, step, count)
    is_integer = hasattr(index, "dtype") and jnp.issubdtype(index.dtype, jnp.integer)
    if not is_integer or index.shape != shape:
        raise ValueError(
            f"draw of the sampler must give integers of shape {shape}, (count, rows of a step), "
            f"got {shown(index)}"
        )
    return index


def _weight(sampler: Sampler, data: Batch) -> Array:
    """The weights that steps read, (n,), or (n, k) where each target has its own.

    Raises:
        TypeError, ValueError: the sampler's function fails, or gives another array.
    """
    rows = row_weights(data)
    with calling("weight of the sampler", sampler.weight, "of the data to the weights (n,)"):
        weight = sampler.weight(rows)
    shape = rows.weight.shape
    if getattr(weight, "shape", None) != shape or not is_numeric(weight.dtype):
        raise ValueError(
            f"weight of the sampler must give a number for each row, of shape {shape}, got "
            f"{shown(weight)}"
        )
    if rows is data:
        return weight
    share = data.weight / jnp.where(rows.weight > 0, rows.weight, 1)[:, None]
    return weight[:, None] * share


def existing_rows(index: Array, n: int, blocks: int, count: Any) -> tuple[Array, Array]:
    """The drawn row numbers (steps, b), and whether those of the first `count` steps exist, ().

    Numbers out of range become -1, padding: else steps would read other rows. With `blocks`, part j
    of a draw is from the j-th block of the rows.
    """
    size = n // blocks
    first = jnp.repeat(size * jnp.arange(blocks, dtype=index.dtype), index.shape[1] // blocks)
    exists = (index == -1) | ((index >= first[None, :]) & (index < first[None, :] + size))
    is_step = lax.broadcasted_iota(jnp.int32, index.shape, 0) < count
    return jnp.where(exists, index, -1), jnp.all(exists | ~is_step)


def drawn_rows(
    sampler: Sampler, run: RunState, every: int, count: Any, n: int, blocks: int = 1
) -> tuple[Array, Array]:
    """The rows of the steps of a chunk, (every, b), and whether those of `count` steps exist.

    They are drawn outside of the loop, which is cheaper.
    """
    return existing_rows(draw_rows(sampler, run.sampler, run.step, every, n), n, blocks, count)


def _features_of_steps(solver: Solver, data: Batch, indices: Array, blocks: int) -> Batch:
    """The prepared rows of each step, (steps, rows of a step, ...).

    They are prepared block by block, in the order in which blocks lie on devices.
    """
    steps = indices.shape[0]
    by_block = jnp.moveaxis(indices.reshape(steps, blocks, -1), 1, 0)
    rows = by_block.reshape(-1)
    prepared = solver.prepare(
        take(data, rows) if blocks == 1 else take_by_block(data, rows, blocks)
    )
    by_step = lambda a: jnp.moveaxis(a.reshape(*by_block.shape, *a.shape[1:]), 0, 1)
    return jax.tree.map(lambda a: by_step(a).reshape(*indices.shape, *a.shape[1:]), prepared)


def _features_of_drawn(
    solver: Solver, data: Batch, indices: Array, count: Array
) -> tuple[Batch, Array]:
    """The prepared rows that the first `count` steps draw, each once, and their places by step.

    Adaptive samplers draw the same rows several times in a chunk, and chunks end early with their
    periods. A loop over blocks ends with the last row that is drawn.

    Returns:
        The rows, as many as the chunk has draws, of which the drawn ones come first; and places,
        int32 of the shape of `indices`.
    """
    n, size = data.y.shape[0], indices.size
    steps = lax.broadcasted_iota(jnp.int32, indices.shape, 0)
    drawn = jnp.where((steps < count) & (indices >= 0), indices, n)  # n: no row
    is_drawn = jnp.zeros(n, jnp.int32).at[drawn.ravel()].set(1, mode="drop")
    place = jnp.cumsum(is_drawn, dtype=jnp.int32) - 1
    rows = jnp.zeros(size, jnp.int32)
    rows = rows.at[jnp.where(is_drawn > 0, place, size)].set(
        jnp.arange(n, dtype=jnp.int32), mode="drop"
    )
    block = min(size, PREPARED_BLOCK)

    def prepare_block(start):
        return solver.prepare(take(data, lax.dynamic_slice_in_dim(rows, start, block)))

    def write_block(k, features):
        start = jnp.minimum(k * block, size - block)
        write = lambda a, part: lax.dynamic_update_slice_in_dim(a, part, start, 0)
        return jax.tree.map(write, features, prepare_block(start))

    types = jax.eval_shape(prepare_block, jnp.zeros((), jnp.int32))
    empty = jax.tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype), types)
    features = lax.fori_loop(0, (place[-1] + block) // block, write_block, empty)
    return features, jnp.maximum(place[jnp.maximum(indices, 0)], 0)


class Choice(NamedTuple):
    """How a run reads its rows."""

    feed: Feed
    data: Batch  # the rows that `init`, probes and the model read
    init_rows: int | None  # how many of them `init` reads; None: all
    most_rows: int | None  # of a chunk, whose features fit `memory`; None: any number


def choose_feed(
    solver: Any,
    fields: Solver,
    sampler: Any,
    data: Batch,
    *,
    lift: str,
    memory: float | None,
    every: int | None,
    traced: bool,
) -> Choice:
    """The feed of a run of `fit`.

    Args:
        solver: as an argument of a compiled function, as is `sampler`.
        fields: of the solver.
        sampler: draws the rows of steps.
        data: the training rows.
        lift: as of `fit`, as are the next two.
        memory: or None.
        every: or None.
        traced: whether the run is part of a transformation.
    """
    draws, n = fields_of(sampler), data.y.shape[0]
    b, reads_all = draws.rows(n), fields.needs_all_rows or draws.full_batch
    lift, capacity = plan_lift(solver, fields, data, lift, memory, b * (every or 1), reads_all)
    data = prepare(solver, data) if lift == "once" else data
    init_rows = min(capacity, n) if lift in ("chunk", "step") else None
    by_reference = not traced and not reads_all and lift != "chunk"
    # packing pays off from MIN_ROWS rows a step on
    x = pack_rows(data.x) if by_reference and b >= MIN_ROWS else None
    if fields.hooks.layout is not Hooks().layout:
        x = _laid_out(solver, fields, data)
    blocks = draws.blocks if shards(n) > 1 else 1  # rows on several devices are taken there
    feed: Feed
    if lift == "chunk":
        feed = ChunkFeatures(x, blocks)
    elif draws.full_batch:
        feed = Whole(x)
    elif reads_all:
        feed = Indexed(x)
    else:
        feed = Drawn(x, blocks)
    return Choice(feed, data, init_rows, capacity if lift == "chunk" else None)


@jax.jit
def prepare(solver: Any, data: Batch) -> Lifted:
    """The rows after the feature map of the solver."""
    return fields_of(solver).prepare(data)


@jax.jit
def _layout_of(solver: Any, data: Batch) -> Any:
    return fields_of(solver).hooks.layout(data).x


def _laid_out(solver: Any, fields: Solver, data: Batch) -> Any:
    """The rows in the layout of the solver."""
    # of few numbers by NumPy, as a program would have to be compiled; sparse rows as they are,
    # since they keep their packed form
    is_dense = not isinstance(data.x, SparseRows)
    if is_dense and (on_host(data.x) is None or data.x.size > MOST_ON_HOST):
        data = data._replace(x=_layout_of(solver, data))
    # Outside of the program, as a kernel chooses how to compute distances by the values of the
    # rows.
    return fields.hooks.layout(data).x


def plan_lift(
    solver: Any,
    fields: Solver,
    data: Batch,
    lift: str,
    memory: float | None,
    least: int,
    reads_all: bool,
) -> tuple[str, int]:
    """When features are computed, and how many rows of them fit `memory`.

    The first is "never" for a solver without a feature map.

    Args:
        solver: as an argument of a compiled function.
        fields: of the solver.
        data: the training rows.
        lift: as of `fit`.
        memory: as of `fit`.
        least: rows of the shortest chunk allowed.
        reads_all: whether a step reads all rows.
    """
    check_choice("lift", lift, ("auto", "once", "chunk", "step"))
    memory = 2**31 if memory is None else memory
    known = number("memory", memory)
    if known is not None and not known > 0:
        raise ValueError(f"memory must be a number of bytes above 0, got {known:g}")
    if isinstance(data, Lifted) or fields.prepare is Hooks().prepare:
        return "never", data.y.shape[0]
    features = prepare.eval_shape(solver, data).x
    row_bytes = sum(
        leaf.size // leaf.shape[0] * leaf.dtype.itemsize for leaf in jax.tree.leaves(features)
    )
    capacity = int(min(memory, 2**62) // row_bytes)
    if capacity < 1:
        raise ValueError(f"memory={memory:g} bytes hold not one prepared row: raise memory")
    if lift == "auto":
        lift = (
            "once"
            if data.y.shape[0] <= capacity or reads_all
            else "chunk"
            if least <= capacity
            else "step"
        )
    if lift == "chunk" and reads_all:
        raise ValueError(
            "lift='chunk' prepares the drawn rows, and here a step reads all rows: "
            "use 'once' or 'step'"
        )
    return lift, capacity
