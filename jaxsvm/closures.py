"""Functions that close over traced values, as pytrees of these values.

A transformation such as `jax.grad` or `jax.vmap` reaches the leaves of a recipe. What a function
holds in its cells is out of its reach, and a rule for derivatives takes it for a constant. So the
traced values that a function closes over become leaves: `Closure` is the function without them.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import jax

from .checks import shown

_Jitted: Any = type(jax.jit(lambda: None))
# functions, and what stands for one: their parts are copied with other values
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, _Jitted)
ADVICE = "pass them by jax.tree_util.Partial(function, values), or as arguments of a factory"


class _Slot:
    """The place of a traced value in a function."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Template:
    """A function with slots in place of its traced values; equal to itself alone."""

    def __init__(self, function: Any) -> None:
        self.function = function


@jax.tree_util.register_pytree_node_class
class Closure:
    """A function whose traced values are leaves."""

    __slots__ = ("__weakref__", "template", "values")  # JAX keeps references to functions

    def __init__(self, template: _Template, values: Any) -> None:
        """The function with slots, and the values that belong there."""
        self.template, self.values = template, tuple(values)

    def tree_flatten(self) -> tuple[tuple, _Template]:
        """The values as children."""
        return self.values, self.template

    @classmethod
    def tree_unflatten(cls, template: _Template, values: Any) -> Closure:
        """The inverse of `tree_flatten`."""
        return cls(template, values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the values in their places."""
        fill = _Copy(_Slot, lambda slot: self.values[slot.number])
        return fill.leaf(self.template.function)(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.template.function)

    def __repr__(self) -> str:
        return shown(self.template.function)


class _Copy:
    """Copies of trees and functions with other values in the places of those of one type."""

    def __init__(self, kind: type, value_for: Callable) -> None:
        """`value_for` maps each value of type `kind` to its replacement."""
        self.kind, self.value_for = kind, value_for
        # id of each function -> the function and its copy, which is None while it is made
        self.copies: dict[int, tuple[Any, Any]] = {}
        self.recursive: set[int] = set()

    def tree(self, tree: Any) -> Any:
        """The copy of a tree; the tree itself if it holds no such value."""
        leaves, structure = _flatten(tree)
        copies = [self.leaf(leaf) for leaf in leaves]
        if all(map(lambda copy, leaf: copy is leaf, copies, leaves)):
            return tree
        return structure.unflatten(copies)

    def leaf(self, leaf: Any) -> Any:
        """The copy of a value or function; itself if it holds no such value."""
        if isinstance(leaf, self.kind):
            return self.value_for(leaf)
        if id(leaf) in self.copies:
            copy = self.copies[id(leaf)][1]
            if copy is None:
                self.recursive.add(id(leaf))
                return leaf
            return copy
        if not isinstance(leaf, _FUNCTIONS):
            if self.kind is not _Slot:
                self._refuse_hidden(leaf)
            return leaf
        self.copies[id(leaf)] = leaf, None
        copy = self._function(leaf)
        if id(leaf) in self.recursive and copy is not leaf:
            raise ValueError(
                f"{shown(leaf)} closes over itself and over traced values, whose derivatives would "
                f"be lost: {ADVICE}"
            )
        self.copies[id(leaf)] = leaf, copy
        return copy

    def _function(self, function: Any) -> Any:
        """The function with copies of its parts; itself if they are the same."""
        cells: tuple = ()
        parts: list[Any]
        if isinstance(function, _Jitted):
            parts = [function.__wrapped__]
        elif isinstance(function, types.MethodType):
            parts = [function.__func__, function.__self__]
        elif isinstance(function, functools.partial):
            parts = [function.func, function.args, function.keywords]
        else:
            cells = function.__closure__ or ()
            contents = [cell.cell_contents for cell in cells if _is_filled(cell)]
            parts = [function.__defaults__, function.__kwdefaults__, *contents]
        copies = list(map(self.tree, parts))
        if all(map(lambda copy, part: copy is part, copies, parts)):
            return function
        if isinstance(function, _Jitted):
            return copies[0]
        if isinstance(function, types.MethodType):
            return types.MethodType(*copies)
        if isinstance(function, functools.partial):
            return type(function)(copies[0], *copies[1], **copies[2])
        filled = iter(copies[2:])
        copy = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            copies[0],
            tuple(types.CellType(next(filled)) if _is_filled(cell) else cell for cell in cells),
        )
        copy.__kwdefaults__ = copies[1]
        copy.__dict__.update(function.__dict__)
        return copy

    def _refuse_hidden(self, thing: Any) -> None:
        """Raise for an object with traced values that is no pytree."""
        if isinstance(thing, type | types.ModuleType | jax.Array) or not hasattr(thing, "__dict__"):
            return
        self.copies[id(thing)] = thing, thing
        values, _ = _flatten(dict(vars(thing)))
        functions = [value for value in values if callable(thing) and callable(value)]
        if any(isinstance(value, self.kind) for value in values) or any(
            self.leaf(function) is not function for function in functions
        ):
            raise ValueError(
                f"{shown(thing)} holds traced values and is no pytree, so that their derivatives "
                f"would be lost: {ADVICE}"
            )


def _flatten(tree: Any) -> tuple[list, Any]:
    """The leaves and structure of a tree; a `functools.partial` is a leaf."""
    try:
        return jax.tree.flatten(tree, is_leaf=lambda node: isinstance(node, functools.partial))
    except (TypeError, ValueError):  # a dict whose keys have no order
        return [], None


def _is_filled(cell: types.CellType) -> bool:
    return cell != types.CellType()  # an empty cell equals another


def open_closures(tree: Any) -> Any:
    """The tree with a `Closure` in place of each function that closes over traced values.

    They may be in its cells, defaults, in a `functools.partial` or the pytree of a method, and in
    functions among these.

    Raises:
        ValueError: traced values in an object that is no pytree, or in a function that closes over
            itself.
    """
    leaves, structure = _flatten(tree)
    opened = [_opened(leaf) if callable(leaf) else leaf for leaf in leaves]
    if all(map(lambda new, leaf: new is leaf, opened, leaves)):
        return tree
    return structure.unflatten(opened)


def check_open(function: Callable, parameters: Any) -> None:
    """Raise if `function(parameters)` depends on traced values that are not among `parameters`.

    A rule for derivatives with respect to `parameters` would lose those of the other values.
    """
    consts = jax.make_jaxpr(function)(parameters).consts
    if any(isinstance(value, jax.core.Tracer) for value in consts):
        raise ValueError(
            "a kernel or loss reads traced values that it is not passed, such as those of a global "
            f"variable, so that their derivatives would be lost: {ADVICE}"
        )


def _opened(function: Any) -> Any:
    if isinstance(function, jax.tree_util.Partial) and _opened(function.func) is function.func:
        return function  # its values are leaves already
    values: list[Any] = []

    def slot(value):
        values.append(value)
        return _Slot(len(values) - 1)

    template = _Copy(jax.core.Tracer, slot).leaf(function)
    return Closure(_Template(template), values) if values else function
