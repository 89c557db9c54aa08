"""Frozen dataclasses as pytrees: numbers and nodes are leaves, all else is structure.

One compilation serves every number, `jax.vmap` over a class makes a batch, and `jax.grad` reaches
each number.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from .checks import (
    MOST_COUNT,
    as_array,
    as_number,
    integer,
    is_array,
    on_host,
    refuse_shape,
    shown,
)

_T = TypeVar("_T")
REGISTRY: dict[str, Any] = {}  # name -> class, factory or function: what `models.load` may make
# what words of annotations stand for where the module does not say it
_WORDS = {"Callable": Callable, "Literal": typing.Literal, "Array": jax.Array, "Any": Any}


def register(name: str, thing: Any = None) -> Any:
    """Make `thing` known to `models.load` as `name`; without `thing`, a decorator.

    Raises:
        ValueError: if another thing has that name already.
    """
    if thing is None:
        return functools.partial(register, name)
    other = REGISTRY.get(name, thing)
    if (other.__module__, other.__qualname__) != (thing.__module__, thing.__qualname__):
        raise ValueError(
            f"the name {name!r} is taken by {other!r}; register {thing!r} under another name"
        )
    REGISTRY[name] = thing
    return thing


def name_in_files(thing: object) -> str:
    """The name of a class or factory in files: "solvers.pegasos", of users with their module.

    That of the package's own does not depend on the file that it is in.
    """
    module = thing.__module__ or "__main__"
    parts = module.split(".")
    return f"{parts[1] if module.startswith(f'{__package__}.') else module}.{shown_name(thing)}"


def shown_name(thing: Any) -> str:
    """The name of a class or factory in print: its own, or that of its one instance."""
    return vars(thing).get("_name", thing.__name__)


def registered_name(thing: object) -> str | None:
    """The name that `thing` was registered under, or None."""
    return next((name for name, other in REGISTRY.items() if other is thing), None)


def static(**kwargs: Any) -> Any:
    """A field that is structure, whatever its annotation."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def between(least: float, most: float = np.inf, *, open: bool = False, **kwargs: Any) -> Any:
    """A field of finite numbers from `least` to `most`; `open`: without these two."""
    return dataclasses.field(metadata={"range": (least, most, open)}, **kwargs)


def positive(**kwargs: Any) -> Any:
    """A field of finite numbers above 0."""
    return between(0.0, open=True, **kwargs)


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(dataclasses.field, static, between, positive),
)
def node(cls: type[_T]) -> type[_T]:
    """Make a class with annotated fields a pytree that prints as its call.

    A field is structure if it is annotated `bool`, `int`, `str`, `Callable` or `Literal`, with or
    without None, or made by `static()`. All other fields are leaves, or trees with leaves: one of
    `float` takes one number, and integers become floats there.

    Example:
        >>> import jax, jaxsvm
        >>> @jaxsvm.node
        ... class line(jaxsvm.Node):
        ...     slope: float
        ...     name: str = "a line"
        >>> line(2), jax.tree.leaves(line(2))
        (line(2.0), [2.0])
    """
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    hints = _hints(cls)
    shape: list[str] = []
    leaves: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # a dataclass by now
        is_structure = field.metadata.get("static", _is_structure(hints[field.name]))
        (shape if is_structure else leaves).append(field.name)
    for name in (*shape, *leaves):
        if isinstance(getattr(cls, name, None), property):  # the field stands before it
            setattr(cls, name, None)
    keys = tuple(map(jax.tree_util.GetAttrKey, leaves))
    get = lambda self, names: tuple(vars(self)[name] for name in names)

    def unflatten(structure: tuple, children: Any) -> Any:
        self = object.__new__(cls)  # without checks: JAX passes tracers and placeholders
        vars(self).update(zip(shape, structure, strict=True))
        vars(self).update(zip(leaves, children, strict=True))
        return self

    jax.tree_util.register_pytree_with_keys(
        cls,
        lambda self: (tuple(zip(keys, get(self, leaves), strict=True)), get(self, shape)),
        unflatten,
        lambda self: (get(self, leaves), get(self, shape)),
    )
    cls._hints, cls._shape = hints, tuple(shape)  # type: ignore[attr-defined]  # of `Node`
    return register(name_in_files(cls), cls)


def _hints(cls: type) -> dict[str, tuple]:
    """What each field may be, as a tuple of types, of the class and its bases."""
    found: dict[str, tuple] = {}
    for base in reversed(cls.__mro__):
        scope = _WORDS | vars(sys.modules.get(base.__module__, types.SimpleNamespace()))
        for name, hint in inspect.get_annotations(base).items():
            if isinstance(hint, str):
                try:
                    hint = eval(hint, scope)  # noqa: S307  an annotation of the class itself
                except NameError:  # a name of type checkers only
                    hint = Any
            union = typing.get_origin(hint) in (typing.Union, types.UnionType)
            found[name] = typing.get_args(hint) if union else (hint,)
    return found


def _is_structure(hint: tuple) -> bool:
    """Whether all that a field may be is structure."""
    words = (bool, int, str, type(None), Callable, typing.Callable)
    of = lambda part: part in words or typing.get_origin(part) in (Callable, typing.Literal)
    return hint != (type(None),) and all(map(of, hint))


class Node:
    """The base of nodes."""

    example: typing.ClassVar[str] = ""  # in messages; "": the name of the class
    _hints: typing.ClassVar[dict[str, tuple]]
    _shape: typing.ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # as `node` makes it
            value = _admitted(field, self._hints[field.name], vars(self)[field.name])
            vars(self)[field.name] = value
        self.check()

    @classmethod
    def unchecked(cls, fields: dict[str, Any]) -> Self:
        """A node with these fields, whose numbers may have the axes of a batch."""
        self = object.__new__(cls)
        given = {f.name: f.default for f in dataclasses.fields(cls)} | fields  # type: ignore[arg-type]
        is_tree = lambda name, value: callable(value) and name not in cls._shape
        vars(self).update((k, carried(v) if is_tree(k, v) else v) for k, v in given.items())
        return self

    def check(self) -> None:
        """Raise ValueError for fields that cannot be; called where a user makes a node."""

    def validate(self, data: Any) -> None:
        """Raise ValueError for rows that it, or a node in it, cannot process; called on the host.

        Targets, values of rows, and a kernel of a user that is none on them.
        """
        for part in nodes_of(vars(self)):
            part.validate(data)

    def refuse_batch(self) -> None:
        """Raise ValueError for one that `jax.vmap` made, with arrays in the places of numbers."""
        for field, hint, value in fields_in(self):
            if float in hint and jax.Array not in hint and np.ndim(value):
                refuse_shape(field.name, value)

    def refuse_open(self, x: object) -> None:
        """Raise ValueError for kernels in it whose functions close over traced values."""
        for part in nodes_of(vars(self)):
            part.refuse_open(x)

    @classmethod
    def admit(cls, name: str, value: object) -> Any:
        """The value of a field of this kind; raise TypeError for one of another."""
        refuse_class(name, value)
        if not isinstance(value, cls):
            raise TypeError(f"{name} must be {cls.example or cls.__name__}, got {shown(value)}")
        return value

    def replace(self, **changes: object) -> Any:
        """The same node with other fields; those that it has not are those of the node that has."""
        own = vars(self)
        new: dict[str, Any] = {}
        for name, value in changes.items():
            takers = [name] if name in own else [k for k, v in own.items() if takes(v, name)]
            if len(takers) != 1:
                few = "no field" if not takers else "more than one field"
                raise TypeError(f"{type(self).__name__}: {few} takes {name}")
            inner = new.get(takers[0], own[takers[0]])
            new[takers[0]] = value if takers == [name] else inner.replace(**{name: value})
        return dataclasses.replace(self, **new)  # type: ignore[type-var]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        one: Any = jax.tree.structure(self)
        leaves = jax.tree.leaves(self), jax.tree.leaves(other)
        return bool(one == jax.tree.structure(other)) and all(map(same_number, *leaves))

    def __hash__(self) -> int:
        return hash((type(self), *(vars(self)[name] for name in self._shape)))

    def __repr__(self) -> str:
        by_name = False
        parts: list[str] = []
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        for field in sorted(fields, key=lambda field: field.kw_only is True):
            text = show(vars(self)[field.name])
            is_default = text == show(field.default)
            by_name = by_name or field.kw_only is True or is_default
            if not is_default:
                parts.append(f"{field.name}={text}" if by_name else text)
        return f"{shown_name(type(self))}({', '.join(parts)})"


def takes(value: object, name: str) -> bool:
    """Whether it is a node that has such a field, or a node among its fields has."""
    own = vars(value) if isinstance(value, Node) else {}
    return name in own or any(takes(part, name) for part in own.values())


def _admitted(field: dataclasses.Field, hint: tuple, value: Any) -> Any:
    """The value of a field as it is kept; raise for one that its annotation excludes."""
    name, kinds = field.name, [h for h in hint if isinstance(h, type) and issubclass(h, Node)]
    if value is None and (type(None) in hint or field.default is None):
        return None
    if isinstance(value, np.bool_ | np.str_):
        value = value.item()
    if kinds and (len(kinds) == 1 or not isinstance(value, tuple(kinds))):
        return kinds[0].admit(name, value)
    if float in hint and (jax.Array not in hint or not np.ndim(value)):
        if isinstance(value, bool):
            raise TypeError(f"{name} must be a number, got {value!r}")
        value = as_number(name, value)
        if isinstance(value, np.ndarray | np.generic):
            value = float(value)
        elif is_array(value) and not jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(jnp.result_type(float))
    elif jax.Array in hint:
        value = as_array(name, value)
    elif callable(value) and not _is_structure(hint):
        value = carried(value)
    if "range" in field.metadata:
        least, most, is_open = field.metadata["range"]
        if int in hint:
            note = ", or None" * (type(None) in hint)
            return integer(name, value, least, min(most, MOST_COUNT), note)
        _check_range(name, value, least, most, is_open)
    choices = [word for h in hint if typing.get_origin(h) is typing.Literal for word in h.__args__]
    if choices and (isinstance(value, bool | float) or value not in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    plain = tuple(h for h in hint if h in (bool, int, str))
    if len(plain) + (type(None) in hint) == len(hint):
        if isinstance(value, np.integer):
            value = int(value)
        if not isinstance(value, plain) or (isinstance(value, bool) and bool not in plain):
            if plain == (int,):
                raise ValueError(f"{name} must be a whole number, got {shown(value)}")
            what = "True or False" if plain == (bool,) else " or ".join(p.__name__ for p in plain)
            raise TypeError(f"{name} must be {what}, got {shown(value)}")
    functions: Any = Callable
    if (functions in map(typing.get_origin, hint) or functions in hint) and not callable(value):
        raise TypeError(f"{name} must be a function, got {shown(value)}")
    return value


def is_number(leaf: object) -> bool:
    """Whether a leaf is a number or an array."""
    return isinstance(leaf, float | complex) or is_array(leaf)


@node
class Carried(Node):
    """A thing with leaves that are no numbers, as of another library: its arrays are leaves."""

    arrays: list
    rest: Any = static()  # the structure, and the other leaves

    @property
    def thing(self) -> Any:
        """The thing itself."""
        (tree, rest), arrays = self.rest, iter(self.arrays)
        return tree.unflatten([next(arrays) if leaf is None else leaf[0] for leaf in rest])

    def __call__(self, *args: object) -> Any:
        return self.thing(*args)


def carried(value: object) -> Any:
    """A value as a tree of numbers; a function becomes a tree without leaves."""
    if type(value) is functools.partial:
        value = jax.tree_util.Partial(value.func, *value.args, **value.keywords)
    leaves, tree = jax.tree.flatten(value)
    if all(map(is_number, leaves)):
        return value
    if callable(value) and jax.tree_util.all_leaves([value]):
        return jax.tree_util.Partial(value)
    pairs = [(leaf, is_array(leaf)) for leaf in leaves]
    rest = tuple(None if flag else (leaf,) for leaf, flag in pairs)
    return Carried([leaf for leaf, flag in pairs if flag], (tree, rest))


def restored(value: object) -> Any:
    """What `carried` made a tree of."""
    return value.thing if isinstance(value, Carried) else value


def _check_range(name: str, value: object, least: float, most: float, open: bool) -> None:
    """Raise for a number, or one of an array, that is known and out of its range."""
    known = np.asarray(value) if isinstance(value, float) else on_host(value)
    if known is None:
        return
    wrong = known[~lies_in(known, least, most, open)]
    if wrong.size:
        ends = f"above {least:g}" if open else f"of at least {least:g}"
        both = f" and below {most:g}" if open else f" and at most {most:g}"
        goal = ends if most == np.inf else ends + both
        raise ValueError(f"{name} must be a finite number {goal}, got {float(wrong.flat[0]):g}")


def lies_in(value: Any, least: float, most: float, open: bool) -> Any:
    """Which numbers lie in the range of a field, and are finite."""
    inside = (value > least) & (value < most) if open else (value >= least) & (value <= most)
    return inside & (abs(value) < np.inf)


def nodes_of(tree: object) -> Iterator[Any]:
    """The nodes of a tree, without those in their fields."""
    is_node = lambda part: isinstance(part, Node)
    return filter(is_node, jax.tree.leaves(tree, is_leaf=is_node))


def nodes_in(tree: object) -> Iterator[Any]:
    """All nodes of a tree, those in the fields of others too."""
    for part in nodes_of(tree):
        yield part
        yield from nodes_in(vars(part))


def holds_functions(tree: object) -> bool:
    """Whether nodes of a tree hold functions, or are of classes of a user."""
    is_own = lambda part: type(part).__module__.startswith(f"{__package__}.")
    is_function = lambda leaf: callable(leaf) and not isinstance(leaf, Node)
    leaves = lambda part: jax.tree.leaves(vars(part), is_leaf=callable)
    return any(not is_own(p) or any(map(is_function, leaves(p))) for p in nodes_in(tree))


def refuse_class(name: str, value: object) -> None:
    """Raise TypeError for a class of nodes that was passed without a call."""
    if inspect.isclass(value) and issubclass(value, Node):
        raise TypeError(
            f"{name} is the factory {value.__name__} itself: call it, {value.__name__}(...)"
        )


def fields_in(tree: object) -> Iterator[tuple[dataclasses.Field, tuple, Any]]:
    """The fields of all nodes of a tree, with what they may be and their values."""
    for part in nodes_in(tree):
        for field in dataclasses.fields(part):
            if (value := vars(part)[field.name]) is not None:
                yield field, part._hints[field.name], value


def in_range(tree: object) -> Any:
    """Whether the numbers of all nodes of a tree lie in the ranges of their fields, () bool."""
    held = jnp.ones((), bool)
    for field, _, value in fields_in(tree):
        if "range" in field.metadata:
            held &= jnp.all(lies_in(value, *field.metadata["range"]))
    return held


def same_number(one: object, other: object) -> bool:
    """Whether two numbers or arrays are known and of the same values."""
    if one is other:
        return True
    one, other = (np.asarray(a) if isinstance(a, float) else on_host(a) for a in (one, other))
    return one is not None and other is not None and np.array_equal(one, other)


def show(value: object) -> str:
    """A field in a repr."""
    if is_array(value):
        concrete = not isinstance(value, jax.core.Tracer) and value.shape == ()
        if concrete and jnp.issubdtype(value.dtype, jnp.number):
            return str(value.dtype.type(value)) if value.dtype.kind == "f" else repr(value.item())
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, jax.tree_util.Partial) and not jax.tree.leaves(value):
        value = value.func
    return getattr(value, "__name__", None) or repr(value)


@dataclass_transform(
    eq_default=False, frozen_default=True, field_specifiers=(dataclasses.field, static)
)
def struct(cls: type[_T]) -> type[_T]:
    """A frozen dataclass that is a pytree and prints arrays by their shapes.

    `models.save` knows it by its class name.
    """
    if "__repr__" not in vars(cls):
        cls.__repr__ = _show_fields  # type: ignore[method-assign]  # of any class
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    return register(cls.__name__, jax.tree_util.register_dataclass(cls))


def _show_fields(self: Any) -> str:
    fields = (f"{f.name}={show(getattr(self, f.name))}" for f in dataclasses.fields(self))
    return f"{type(self).__name__}({', '.join(fields)})"


def cast(tree: object, dtype: Any) -> Any:
    """The floating numbers of `tree` as arrays of `dtype`, strongly typed.

    A float64 lam must not widen a float32 run.

    Raises:
        ValueError: a number of Python or NumPy is out of the range of `dtype`.
    """

    def one(leaf):
        if not is_number(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        # known numbers stay on the host, where nothing is compiled
        if isinstance(leaf, float | np.floating):
            return _in_dtype(leaf, dtype)
        known = on_host(leaf)
        return jnp.asarray(leaf, dtype) if known is None else np.asarray(known, dtype)

    return jax.tree.map(one, tree)


def _in_dtype(value: Any, dtype: np.dtype) -> np.ndarray:
    """One number in another type.

    Raises:
        ValueError: it becomes infinite, or 0, as subnormal numbers do in programs of XLA.
    """
    with np.errstate(over="ignore"):
        new = np.asarray(value, dtype)
    limits = jnp.finfo(dtype)
    if np.isfinite(value) and value and not limits.tiny <= abs(new) < np.inf:
        raise ValueError(
            f"numbers must be 0 or from {float(limits.tiny):.3g} to {float(limits.max):.3g} in "
            f"size for {limits.dtype}, got {value:g}: scale the rows, or use 64-bit numbers"
        )
    return new
