"""What tells one call from another, in this process and in the next.

A state holds sums over rows, and a file of `select` the results of a call. Neither may go on with
other rows, numbers or functions. `parts_of` says what a solver is. `origin_of` puts that and the
rows and names into seven numbers, which a state carries with one of its own.
"""

from __future__ import annotations

import dis
import functools
import numbers
import os
import re
import sysconfig
import types
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..closures import Closure
from ..numerics import fingerprints, is_traced
from ..recipe import Recipe, unwrap_static
from ..types import Array, Batch, Lifted

# arguments that a run may change: its end, and what only its first step reads
_FREE = ("tol", "start")
# arguments that say in which space a function lies: its coefficients hold in no other
_SPACES = ("kernel", "phi", "space")
# functions below these folders are told apart by their names
_FOLDERS = (
    *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
)
_INSTALLED = (*(os.path.join(folder, "") for folder in _FOLDERS), "<frozen")
# what each of the numbers of an origin speaks of, but for the last, which is the state itself
_NAMES = (
    *("rows", "targets or queries", "weights", "kernels or features", "numbers or functions"),
    *("names of classes", "names of columns"),
)


class _Parts:
    """The structure of things as text, and their numbers."""

    def __init__(self, free: tuple[str, ...] = ()) -> None:
        """Nothing yet; arguments of the names `free` are left out."""
        self.free = free
        self.text: list[str] = []
        self.numbers: list[Any] = []
        # functions and objects by their addresses: their places, and themselves, to stay there
        self.seen: dict[int, tuple[int, Any]] = {}

    def add(self, thing: Any, rest: _Parts | None = None) -> None:
        """Add a thing; with `rest`, what says in which space it lies, and all else to `rest`."""
        thing = unwrap_static(thing)
        if isinstance(thing, jax.core.Tracer) and _is_over(thing):
            return  # in a list that counts traces
        if isinstance(thing, Recipe):
            self._add_call(thing, rest)
        elif rest is not None and not _holds_recipes(thing):
            rest.add(thing)
        elif isinstance(thing, type | types.ModuleType):
            self.text.append(thing.__name__)
        elif thing is None or isinstance(thing, str | bytes | int):
            self.text.append(repr(thing))
        elif isinstance(thing, float | complex) or _is_array(thing):
            self.text.append(f"number {np.shape(thing)}")
            self.numbers.append(thing if hasattr(thing, "dtype") else np.asarray(thing))
        elif isinstance(thing, Closure):
            self.add_all("closure", thing.template.function, *thing.values)
        elif isinstance(thing, dict):  # whose keys JAX may be unable to sort
            for key in sorted(thing, key=repr):
                self.text.append(repr(key))
                self.add(thing[key], rest)
        elif _is_tree(thing):
            children, tree = jax.tree.flatten(thing, is_leaf=lambda node: node is not thing)
            for part in tree.node_data():  # type: ignore[attr-defined]
                if part is thing:  # of `jax.tree_util.register_static`
                    self._add_once(thing, self._add_object)
                else:
                    self.add(part)
            for child in children:
                self.add(child, rest)
        elif isinstance(thing, functools.partial):
            self.add_all("partial", thing.func, thing.args, thing.keywords)
        elif isinstance(thing, types.MethodType):
            self.add_all("method", thing.__func__, thing.__self__)
        elif isinstance(thing, types.FunctionType):
            self._add_once(thing, self._add_function)
        elif isinstance(getattr(thing, "__wrapped__", None), types.FunctionType):
            self.add(thing.__wrapped__)  # of jax.jit
        else:
            self._add_once(thing, self._add_object)

    def add_all(self, *things: Any) -> None:
        """Add several things."""
        for thing in things:
            self.add(thing)

    def _add_call(self, call: Recipe, rest: _Parts | None) -> None:
        factory, args, kwargs = call.call()
        factory_parts = self if rest is None else rest
        factory_parts.text.append(factory.__qualname__)
        if "<locals>" in factory.__qualname__:
            factory_parts.add(factory.__wrapped__)
        for name, value in (*zip(factory.rules, args, strict=False), *kwargs.items()):
            if name not in self.free:
                self.add(value, None if name in _SPACES else rest)

    def _add_once(self, thing: Any, add: Callable) -> None:
        """Add what may refer to itself."""
        is_new = id(thing) not in self.seen
        place, _ = self.seen.setdefault(id(thing), (len(self.seen), thing))
        self.text.append(f"<{place}>")
        if is_new:
            add(thing)

    def _add_function(self, function: types.FunctionType) -> None:
        """A function of a package by its name; another by its code and all that this reads."""
        installed = function.__code__.co_filename.startswith(_INSTALLED)
        if installed and "<" not in function.__qualname__:
            self.text += [function.__qualname__, str(function.__module__)]
            return
        self.add_all(function.__defaults__, function.__kwdefaults__)
        self.add_all(*(c.cell_contents for c in function.__closure__ or () if c != _EMPTY))
        for name in sorted(self._add_code(function.__code__)):
            value = function.__globals__.get(name)
            is_number = isinstance(value, float | int | str | Recipe) or _is_array(value)
            if is_number or _is_tree(value) or callable(value):
                self.add_all(name, value)

    def _add_code(self, code: types.CodeType) -> set[str]:
        """Add the code of a function and of those within it; the names of globals that it reads."""
        reads = [each.argval for each in dis.get_instructions(code) if each.opname in _READS]
        names = set(reads)
        self.text += [code.co_code.hex(), *code.co_names]
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                names |= self._add_code(constant)
            elif isinstance(constant, frozenset):
                self.text += sorted(map(repr, constant))
            else:
                self.text.append(repr(constant))
        return names

    def _add_object(self, thing: Any) -> None:
        """Another object: its fields, or what it prints without addresses."""
        fields = dict(getattr(thing, "__dict__", {}))
        for kind in type(thing).__mro__:
            slots = vars(kind).get("__slots__", ())
            slots = (slots,) if isinstance(slots, str) else slots
            fields |= {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
        self.text.append(type(thing).__qualname__)
        for name in sorted(fields):
            self.add_all(name, fields[name])
        if not fields:
            self.text.append(re.sub(r" at 0x[0-9a-f]+", "", repr(thing)))


_EMPTY = types.CellType()
_READS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions that read globals


def _is_array(thing: Any) -> bool:
    """Whether it is an array of numbers or keys."""
    if not isinstance(thing, np.ndarray | np.generic | jax.Array):
        return False
    kinds = (np.number, np.bool_, jax.dtypes.prng_key)
    return any(jax.dtypes.issubdtype(thing.dtype, kind) for kind in kinds)


def _is_over(tracer: Any) -> bool:
    """Whether the transformation that a tracer belongs to has ended."""
    try:
        jnp.copy(tracer)
    except jax.errors.UnexpectedTracerError:
        return True
    return False


def _is_tree(thing: Any) -> bool:
    """Whether JAX takes it apart."""
    return not jax.tree_util.all_leaves([thing])


def _holds_recipes(thing: Any) -> bool:
    leaves = jax.tree.leaves(thing, is_leaf=lambda node: isinstance(node, Recipe))
    return any(isinstance(leaf, Recipe) for leaf in leaves)


def parts_of(*things: Any) -> tuple[str, list]:
    """What things are: their structure as text, and their numbers and arrays in its order.

    A function of an installed package counts by its name. Another counts by its code, what it
    closes over, and the numbers, arrays and functions among the globals that it reads.
    """
    parts = _Parts()
    parts.add_all(*things)
    return "|".join(parts.text), parts.numbers


def origin_of(solver: Any, data: Batch | None, names: Any) -> Array | np.ndarray:
    """Where a state comes from, as numbers (8,) uint32, 0 where it is not known.

    They speak of the rows; of targets and queries; of weights; of kernels and feature maps; of the
    other numbers and functions of the solver, but for its tolerance and its start; of the names of
    classes, and of columns; and of the state itself, see `sealed`. They are on the host if all
    values are.

    Args:
        solver: any.
        data: the rows, or None. Features are not known: their rounding differs between versions.
        names: of classes and columns, `models.Classes`; None: not known.
    """
    space, rest = _Parts(_FREE), _Parts(_FREE)
    space.add(solver, rest)
    rows = [] if data is None or isinstance(data, Lifted) else jax.tree.leaves(data.x)
    targets = [] if data is None else jax.tree.leaves((data.y, data.query))
    weights = [] if data is None else [data.weight]
    parts = rows, targets, weights, _words(space), _words(rest), *_of_names(names), []
    return fingerprints(parts)


def with_names(origin: np.ndarray, names: Any) -> np.ndarray:
    """An origin with the numbers of these names."""
    return np.concatenate([origin[:5], np.asarray(fingerprints(_of_names(names))), origin[7:]])


def _of_names(names: Any) -> list[list]:
    """A number each for the names of classes and of columns, where they are known."""
    known = ((), ()) if names is None else (names.names, names.columns)
    # 0, 0.0 and False are one name
    plain = lambda name: float(name) if isinstance(name, numbers.Real) else name
    return [[_crc(repr([*map(plain, words)]))] if words else [] for words in known]


def _words(parts: _Parts) -> list:
    return [_crc("|".join(parts.text)), *parts.numbers]


def _crc(text: str) -> np.ndarray:
    """A number of a text, (1,); that of nothing is not 0: it is known."""
    return np.array([zlib.crc32(text.encode(), 1)], np.uint32)


def sealed(run: Any) -> Any:
    """A state of `fit` or `stream` whose origin tells whether that of its solver was changed."""
    return run if run.origin is None else run._replace(origin=with_state(run.origin, run.solver))


def with_state(origin: Any, state: Any) -> Any:
    """An origin with the number of the state of a solver."""
    number = fingerprints([jax.tree.leaves(state)])
    if isinstance(origin, jax.core.Tracer) or isinstance(number, jax.core.Tracer):
        return jnp.concatenate([origin[:-1], number])
    return np.append(np.asarray(origin)[:-1], np.asarray(number))


def differs(old: Any, new: Any) -> Any:
    """In which of their numbers two origins differ, (8,) bool; not where one is unknown."""
    old, new = (a if is_traced(a) else np.asarray(a) for a in (old, new))
    return (old != new) & (old != 0) & (new != 0)


def names_of(different: np.ndarray) -> str:
    """What differs, in words."""
    return " and ".join(name for name, flag in zip(_NAMES, different, strict=False) if flag)
