"""Closures in, pytrees out: numbers are leaves, choices are structure.

A factory such as `pegasos(lam, *, loss, project)` is written as plain closures. The decorators here keep the call
instead of its result: the numbers among the arguments become the leaves of a pytree, all else becomes its structure,
and the factory is called where its functions are needed, under whatever transformation is at work there. So one
compilation serves every `lam`, `jax.vmap` over `pegasos(lams)` is a sweep, and `jax.grad` reaches `lam`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .types import Batch, Certificate, Curve, Fit, Info, Lifted, Loss, Run, Sampler, Solver, Space, SparseRows

REGISTRY: dict[str, Any] = {}  # name -> class, factory or function: what `models.load` may make


def register(name: str, thing: Any = None) -> Any:
    """Make `thing` known to `models.load` as `name`; without `thing`, a decorator.

    Raises:
        ValueError: if another thing has that name already.
    """
    if thing is None:
        return functools.partial(register, name)
    other = REGISTRY.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (thing.__module__, thing.__qualname__):
        raise ValueError(f"the name {name!r} is taken by {other!r}; register {thing!r} under another name")
    REGISTRY[name] = thing
    return thing


for _type in (Batch, Certificate, Curve, Fit, Info, Lifted, Run, SparseRows):
    register(_type.__name__, _type)


def registered_name(thing: Any) -> str | None:
    """The name that `thing` was registered under, or None."""
    return next((name for name, other in REGISTRY.items() if other is thing), None)


def static(**kwargs: Any) -> Any:
    """A field of a `struct` that is structure, not a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def struct(cls: type) -> type:
    """A frozen dataclass that is a pytree, prints arrays by their shapes, and that `models.save` knows by its class name.

    A method `__check__`, where it has one, is called by `models.load`: it raises ValueError for fields that cannot be.
    """
    cls.__repr__ = _show_fields
    return register(cls.__name__, jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)))


def _show_fields(self: Any) -> str:
    shown = ", ".join(f"{field.name}={_show(getattr(self, field.name))}" for field in dataclasses.fields(self))
    return f"{type(self).__name__}({shown})"


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | complex) or hasattr(leaf, "dtype")


def _plain(value: Any, positional: bool) -> Any:
    """NumPy scalars as Python's; whole numbers given for a positional argument as floats."""
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return float(value) if positional else int(value)
    return value


@jax.tree_util.register_pytree_node_class
class Recipe:
    """A call of a factory, kept: a pytree with the attributes of what the factory makes."""

    __slots__ = ("numbers", "spec")

    def __init__(self, factory: Callable, fields: tuple[str, ...], args: tuple, kwargs: dict):
        """Split the arguments of one call into leaves and structure."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        self.numbers = tuple(leaf for leaf in leaves if _is_number(leaf))
        self.spec = (factory, fields, tree, tuple(None if _is_number(leaf) else (leaf,) for leaf in leaves))

    def tree_flatten(self):
        """Numbers as children, everything else as structure."""
        return self.numbers, self.spec

    @classmethod
    def tree_unflatten(cls, spec, numbers):
        """The inverse of `tree_flatten`; never looks at the numbers."""
        self = object.__new__(cls)
        self.numbers, self.spec = tuple(numbers), spec
        return self

    def call(self) -> tuple[Callable, tuple, dict]:
        """The factory and the arguments that it is called with."""
        factory, _, tree, choices = self.spec
        numbers = iter(self.numbers)
        args, kwargs = jax.tree.unflatten(tree, [next(numbers) if c is None else c[0] for c in choices])
        return factory, args, kwargs

    def make(self) -> Any:
        """What the factory returns for these arguments, made here and now."""
        factory, args, kwargs = self.call()
        return factory.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Recipe.__slots__ or name not in self.spec[1]:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.make(), name)

    def __repr__(self) -> str:
        factory, args, kwargs = self.call()
        signature = inspect.signature(factory)
        shown, by_name = [], False
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            if repr(value) == repr(parameter.default):
                by_name = True
            elif by_name or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                shown.append(f"{name}={_show(value)}")
            else:
                shown.append(_show(value))
        return f"{factory.__name__}({', '.join(shown)})"

    def __reduce__(self):
        factory, args, kwargs = self.call()
        return _rebuild, (factory.__module__, registered_name(factory) or factory, args, kwargs)


def _show(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        concrete = not isinstance(value, jax.core.Tracer) and value.shape == ()
        if concrete and jnp.issubdtype(value.dtype, jnp.number):
            return repr(value.item())
        return f"{value.dtype}{list(value.shape)}"
    return getattr(value, "__name__", None) or repr(value)


def _rebuild(module: str, factory: str | Callable, args: tuple, kwargs: dict) -> Recipe:
    """The inverse of `Recipe.__reduce__`; the module that registers the factory may not be imported yet."""
    if isinstance(factory, str) and factory not in REGISTRY:
        importlib.import_module(module)
    return (REGISTRY[factory] if isinstance(factory, str) else factory)(*args, **kwargs)


def recipe(made: type, kind: type[Recipe] = Recipe, counts: bool = False) -> Callable:
    """A decorator: a factory of `made` tuples becomes a factory of pytrees with the same attributes.

    Positional arguments are numbers or pytrees; keyword arguments are choices (floats and arrays among them leaves).
    Whole numbers given for positional arguments are leaves too, as floats, unless the factory `counts` with them.
    """

    def decorate(factory: Callable) -> Callable:
        signature = inspect.signature(factory)
        keyword = {p.name for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}

        @functools.wraps(factory)
        def keep(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            for name, value in bound.arguments.items():
                bound.arguments[name] = _plain(value, positional=name not in keyword and not counts)
            return kind(keep, made._fields, bound.args, bound.kwargs)

        keep.result_type = made  # says that this is a factory, to `models.load` too
        if "<locals>" in factory.__qualname__:
            return keep
        module = (factory.__module__ or "__main__").removeprefix("jaxsvm.")
        return register(f"{module}.{factory.__name__}", keep)

    return decorate


solver = recipe(Solver)
sampler = recipe(Sampler, counts=True)
space = recipe(Space)
loss = recipe(Loss)


def replace(inner: Solver | Recipe, wrapper: Callable, **fields: Any) -> Solver:
    """The solver `inner` with other fields: what a wrapper does not change stays, also fields that come later.

    Args:
        inner: a solver, or the call of its factory.
        wrapper: solver -> the wrapped solver; it makes that of `inner.until(tol)`, too.
        **fields: of `Solver`, in place of those of `inner`.
    """
    while isinstance(inner, Recipe):
        inner = inner.make()
    until = None if inner.until is None else lambda tol: wrapper(inner.until(tol))
    return inner._replace(**{"until": until} | fields)


def scalars(**numbers: Any) -> None:
    """Check that each is one number.

    Raises:
        ValueError: if one has a shape, with what to do instead.
    """
    for name, value in numbers.items():
        if np.ndim(value) != 0:
            raise ValueError(f"{name} has shape {np.shape(value)}; sweep it with jax.vmap or jaxsvm.sweep")


def nonnegative(**numbers: Any) -> None:
    """Check that each is one number and, where its value is known, that it is not below 0.

    Raises:
        ValueError: with the name, what was expected and what came.
    """
    scalars(**numbers)
    for name, value in numbers.items():
        if not isinstance(value, jax.core.Tracer) and not (float(value) >= 0 and np.isfinite(float(value))):
            raise ValueError(f"{name} must be a finite number of at least 0, got {float(value):g}")


def positive(**numbers: Any) -> None:
    """Check that each is one number and, where its value is known, that it is above 0.

    Raises:
        ValueError: with the name, what was expected and what came.
    """
    scalars(**numbers)
    for name, value in numbers.items():
        if not isinstance(value, jax.core.Tracer) and not (float(value) > 0 and np.isfinite(float(value))):
            raise ValueError(f"{name} must be a finite number above 0, got {float(value):g}")


def choice(name: str, value: Any, allowed: tuple) -> None:
    """Check that `value` is one of `allowed`.

    Raises:
        ValueError: with the name, the choices and what came.
    """
    if not isinstance(value, str | bool) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


@jax.tree_util.register_pytree_node_class
class Fixed:
    """Anything that is no pytree of numbers (plain solvers, functions), carried through jit as structure."""

    def __init__(self, thing: Any):
        """Hold `thing`, which must be hashable."""
        self.thing = thing

    def tree_flatten(self):
        """No leaves."""
        return (), self.thing

    @classmethod
    def tree_unflatten(cls, thing, _):
        """The inverse of `tree_flatten`."""
        return cls(thing)


def fixed(thing: Any) -> Any:
    """`thing` if all its leaves are numbers, else `thing` as structure."""
    return thing if all(_is_number(leaf) for leaf in jax.tree.leaves(thing)) else Fixed(thing)


def freed(thing: Any) -> Any:
    """The inverse of `fixed`."""
    return thing.thing if isinstance(thing, Fixed) else thing


def cast(tree: Any, dtype: Any) -> Any:
    """The floating numbers of `tree` as arrays of `dtype`, strongly typed: a float64 lam must not widen a float32 run."""

    def one(leaf):
        is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if is_key or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        return jnp.asarray(leaf, dtype)

    return jax.tree.map(one, tree)
