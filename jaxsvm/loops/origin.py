"""Which run a state goes on with: of the same form, and of which rows, numbers and names."""

from __future__ import annotations

import functools
import numbers
import weakref
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._node import Node, is_number
from ..checks import is_key
from ..numerics import is_traced
from ..types import Array, Batch, Lifted, RunState, Solver, State, said, same_structure

NAMES = (
    *("rows or targets", "weights", "kernels or features", "numbers or functions"),
    *("names of classes", "names of columns"),
)
MANY = 2**15  # rows; fewer are read in less time than it takes to find out whether to
_known: dict[int, tuple[Any, int]] = {}  # checksums of arrays on a device, which do not change


FREE = ("tol", "start")  # arguments that a run may change: its end, and what its first step reads
SPACES = ("kernel", "phi", "space")  # those that say in which space a function lies


def origin_of(solver: Solver, data: Batch | None, names: Any) -> np.ndarray:
    """Of what a state is, (6,) uint32, as `NAMES`; 0 where it is not known.

    Args:
        solver: as `fit` keeps it, with its numbers in the dtype of the run.
        data: the rows, or None. Features are not known: their rounding differs between versions.
            Many rows are read only where the state holds sums over them.
        names: of classes and columns, `models.Classes`; None: not known.
    """
    rows = [] if data is None else [data.y, data.query]
    if data is not None and data.y.shape[0] > MANY and not solver.has_sums(data):
        rows = []
    elif not isinstance(data, Lifted | None):
        rows.append(data.x)
    space, rest = words_of(solver)
    words = ((), ()) if names is None else (names.names, names.columns)
    # 0, 0.0 and False are one name
    plain = lambda name: repr(float(name) if isinstance(name, numbers.Real) else name)
    weight = [] if data is None else [data.weight]
    parts = jax.tree.leaves(rows), weight, *([*map(plain, each)] for each in words)
    known = [crc_of(part) if part else 0 for part in parts]
    return np.array([*known[:2], crc_of(space), crc_of(rest), *known[2:]], np.uint32)


def crc_of(parts: list) -> int:
    """A checksum of arrays and words, from 1 on; 0 where the values of an array are not here."""
    crc = 1
    for part in parts:
        is_jax = isinstance(part, jax.Array)
        if is_jax and (isinstance(part, jax.core.Tracer) or not part.is_fully_addressable):
            return 0
        crc = zlib.crc32(part.encode() if isinstance(part, str) else _bytes_of(part), crc)
    return max(crc, 1)


def _bytes_of(a: Array) -> bytes:
    """The checksum of an array as bytes, worked out once for an array on a device."""
    kept, place = _known.get(id(a)), id(a)
    if kept is None or kept[0]() is not a:
        values = np.asarray(jax.random.key_data(a) if is_key(a) else a)
        values = np.ascontiguousarray(values, jax.dtypes.canonicalize_dtype(values.dtype))
        kept = lambda: None, zlib.crc32(values.reshape(-1).view(np.uint8).data)
        if isinstance(a, jax.Array):
            kept = weakref.ref(a, lambda _: _known.pop(place, None)), kept[1]
            _known[place] = kept
    return kept[1].to_bytes(4, "little")


def resumed(solver: Solver, data: Batch, state: RunState, like: RunState, origin: Any) -> RunState:
    """`state`, checked and ready to go on; `like` is a state of the new run, by its shapes."""
    check_like(state, like)
    check_counters(state, ("step",))
    kept = check_origin(solver, data, state, origin)
    xp: Any = jnp if is_traced(state.step) else np
    return RunState(kept, state.sampler, xp.asarray(state.step, np.int32), xp.zeros((), bool))


def check_origin(solver: Solver, data: Batch, run: RunState, new: np.ndarray) -> State:
    """The state of a solver, unless it holds sums over other rows, or of another kernel.

    Args:
        solver: as `fit` keeps it.
        data: rows of its run.
        run: the `RunState` or `StreamState` with the state.
        new: the origin of the run which is to go on.

    Raises:
        ValueError: it does. What is traced is not compared.
    """
    state = run.solver
    is_known = run.origin is not None and not is_traced(run.origin)
    old = np.asarray(run.origin) if is_known else np.zeros_like(new)
    different = (old != new) & (old != 0) & (new != 0)
    if not different.any():
        return state
    both = ("rows", "numbers") if solver.has_sums(data) else ()
    sums_of = said(state, "sums_of", both)
    # samplers hold the weights
    different &= np.array(["rows" in sums_of, True, True, "numbers" in sums_of, True, True])
    if said(state, "restart") and different[3]:  # goes on with other numbers
        state, different[3] = state.restart(), False
    if different.any():
        raise ValueError(
            f"state comes from a run with other {' and '.join(np.array(NAMES)[different])}: go on "
            "with what it was made with, or begin a new run with key= (from coefficients with "
            "start=, where the solver takes them)"
        )
    return state


def check_like(state: State, like: object, parts: tuple[str, ...] = ("solver", "sampler")) -> None:
    """Raise unless the fields `parts` of `state` match those of `like`.

    They match if structure, shapes and dtypes are equal.
    """
    for part in parts:
        actual, expected = getattr(state, part), getattr(like, part)
        leaves = [jax.tree.leaves(tree) for tree in (actual, expected)]
        old, new = ([*map(jnp.shape, tree)] for tree in leaves)
        if not same_structure(actual, expected) or old != new:
            raise ValueError(
                "state comes from "
                + ("batches of other rows" if part == "pending" else f"another {part}, or data of ")
                + ("" if part == "pending" else "other shapes")
                + ": go on with the solver, sampler and data that it was made with"
            )
        for one, other in zip(*leaves, strict=True):
            # keys of all implementations are of one kind
            if one.dtype != other.dtype and not (is_key(one) and is_key(other)):
                raise ValueError(
                    f"state holds numbers of {one.dtype}, and this run computes in {other.dtype}: "
                    "go on with rows and settings (jax_enable_x64) of the precision that it was "
                    "made with"
                )


MOST_STEPS = 2**31 - 1  # the largest value of the step counter


def check_counters(state: State, names: tuple[str, ...]) -> None:
    """Raise unless the counters of a state are single integers, from 0 to `MOST_STEPS` if known."""
    for name in names:
        value = getattr(state, name)
        is_count = np.shape(value) == () and jnp.issubdtype(jnp.result_type(value), jnp.integer)
        if not is_count or not (is_traced(value) or 0 <= int(value) <= MOST_STEPS):
            raise ValueError(
                f"state.{name} must be one whole number from 0 to {MOST_STEPS}, got {value}: pass "
                "run.state as it came, and go on with several runs in jax.vmap"
            )


def words_of(thing: object) -> tuple[list, list]:
    """What a node is, as words and arrays: its kernels and feature maps, and all else.

    Functions count by their names.
    """
    space: list = []
    rest: list = []

    def add(thing: object, words: list) -> None:
        if isinstance(thing, Node):
            words.append(f"{type(thing).__module__}.{type(thing).__qualname__}")
            for name, value in vars(thing).items():
                if name not in FREE:
                    add(value, space if name in SPACES else words)
        elif isinstance(thing, functools.partial):
            add((thing.func, thing.args, thing.keywords), words)
        elif not jax.tree_util.all_leaves([thing]):
            for part in jax.tree.leaves(thing, is_leaf=lambda part: isinstance(part, Node)):
                add(part, words)
        elif is_number(thing):
            words.append(np.asarray(thing) if isinstance(thing, float | complex) else thing)
        elif callable(thing):
            name = getattr(thing, "__qualname__", type(thing).__qualname__)
            words.append(f"{getattr(thing, '__module__', '')}.{name}")
        else:
            words.append(repr(thing))

    add(thing, rest)
    return space, rest
