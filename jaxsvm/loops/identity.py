"""Of which rows, numbers and names a state is, by checksums."""

from __future__ import annotations

import functools
import inspect
import numbers
import weakref
import zlib
from typing import Any

import jax
import numpy as np

from ..closures import Closure
from ..numerics import is_traced
from ..recipe import Recipe, unwrap_static
from ..types import Batch, Lifted

FREE = ("tol", "start")  # arguments that a run may change: its end, and what its first step reads
SPACES = ("kernel", "phi", "space")  # those that say in which space a function lies
NAMES = (
    *("rows or targets", "weights", "kernels or features", "numbers or functions"),
    *("names of classes", "names of columns"),
)
_known: dict[int, tuple[Any, int]] = {}  # checksums of arrays on a device, which do not change


def origin_of(solver: Any, data: Batch | None, names: Any) -> np.ndarray:
    """Of what a state is, (6,) uint32, as `NAMES`; 0 where it is not known.

    Args:
        solver: a call, with its numbers in the dtype of the run.
        data: the rows, or None. Features are not known: their rounding differs between versions.
        names: of classes and columns, `models.Classes`; None: not known.
    """
    rows, weight = ((), ()) if data is None else ((data.y, data.query), data.weight)
    rows = rows if data is None or isinstance(data, Lifted) else (data.x, *rows)
    space, rest = words_of(solver)
    words = ((), ()) if names is None else (names.names, names.columns)
    # 0, 0.0 and False are one name
    plain = lambda name: repr(float(name) if isinstance(name, numbers.Real) else name)
    named = [crc_of([*map(plain, each)]) if each else 0 for each in words]
    known = [
        crc_of(jax.tree.leaves(part)) if jax.tree.leaves(part) else 0 for part in (rows, weight)
    ]
    return np.array([*known, crc_of(space), crc_of(rest), *named], np.uint32)


def crc_of(parts: list) -> int:
    """A checksum of arrays and words, from 1 on; 0 where the values of an array are not here."""
    crc = 1
    for part in parts:
        if is_traced(part) or not getattr(part, "is_fully_addressable", True):
            return 0
        crc = zlib.crc32(part.encode() if isinstance(part, str) else _bytes_of(part), crc)
    return max(crc, 1)


def _bytes_of(a: Any) -> bytes:
    """The checksum of an array as bytes, worked out once for an array on a device."""
    kept, place = _known.get(id(a)), id(a)
    if kept is None or kept[0]() is not a:
        is_key = jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(a) if is_key else a)
        values = np.ascontiguousarray(values, jax.dtypes.canonicalize_dtype(values.dtype))
        kept = lambda: None, zlib.crc32(values.reshape(-1).view(np.uint8))
        if isinstance(a, jax.Array):
            kept = weakref.ref(a, lambda _: _known.pop(place, None)), kept[1]
            _known[place] = kept
    return kept[1].to_bytes(4, "little")


def words_of(thing: Any) -> tuple[list, list]:
    """What a call is, as words and arrays: its kernels and feature maps, and all else.

    Functions count by their names.
    """
    space: list = []
    rest: list = []

    def add(thing: Any, words: list) -> None:
        thing = unwrap_static(thing)
        if isinstance(thing, Recipe):
            factory, args, kwargs = thing.call()
            words.append(f"{factory.__module__}.{factory.__qualname__}")
            for name, value in inspect.signature(factory).bind(*args, **kwargs).arguments.items():
                if name not in FREE:
                    add(value, space if name in SPACES else words)
        elif isinstance(thing, functools.partial):
            add((thing.func, thing.args, thing.keywords), words)
        elif isinstance(thing, Closure):
            add((thing.template.function, thing.values), words)
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

    add(thing, rest)
    return space, rest
