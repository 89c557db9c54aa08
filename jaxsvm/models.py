"""Models: callable pytrees, rows -> decision values; and files that hold them, or any other state, without pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import __about__
from .kernels import Kernel, matvec
from .numerics import dot
from .recipe import REGISTRY, Recipe, registered_name, static, struct
from .types import Array, Batch


@struct
class Linear:
    """f(x) = <w, x> + b.

    `bias` says what b is: "none" (b = 0), "feature" (a weight on a constant feature 1, regularised with the others) or
    "free" (not regularised).
    """

    w: Array  # (p,)
    b: Array  # ()
    bias: str = static(default="none")

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, p) -> (n,)."""
        return dot(x, self.w) + self.b

    def sqnorm(self) -> Array:
        """|w|^2 as the objective has it: with b^2 where the bias is a feature."""
        return dot(self.w, self.w) + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Linear:
        """factor f, for functions that a solver keeps up to a factor."""
        return dataclasses.replace(self, w=factor * self.w, b=factor * self.b)


@struct
class Expansion:
    """f(x) = sum_i coef_i k(x_i, x) + b.

    `index` says which training rows the x_i are, -1 where none: `certificate` reads dual variables off there.
    """

    kernel: Kernel
    x: Array  # (m, d)
    coef: Array  # (m,)
    b: Array  # ()
    index: Array  # (m,)  int32
    bias: str = static(default="none")

    def __call__(self, x: Array, *, block: int = 1024) -> Array:
        """Decision values, (n, d) -> (n,), `block` rows at a time: temporaries are (block, m)."""
        return matvec(self.kernel, x, self.x, self.coef, block) + self.b

    def sqnorm(self, *, block: int = 1024) -> Array:
        """|w|^2 = coef' K coef as the objective has it, in blocks of rows: with b^2 where the bias is a feature."""
        square = dot(self.coef, matvec(self.kernel, self.x, self.x, self.coef, block))
        return square + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Expansion:
        """factor f, for functions that a solver keeps up to a factor."""
        return dataclasses.replace(self, coef=factor * self.coef, b=factor * self.b)


@struct
class Mapped:
    """f(x) = inner(phi(x)): a model on features, taking raw rows."""

    phi: Any
    inner: Any

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n,)."""
        return self.inner(self.phi(x))

    def sqnorm(self) -> Array:
        """|w|^2 in feature space, as the objective has it."""
        return self.inner.sqnorm()


def expansion(kernel: Kernel, coef: Array, data: Batch | None, bias: str = "none") -> Expansion:
    """The expansion over all training rows.

    Raises:
        ValueError: if `data` is None: the state of a solver does not hold the rows.
    """
    if data is None:
        raise ValueError("this model is an expansion over the training rows: call solver.model(state, data)")
    n = coef.shape[0]
    return Expansion(kernel, data.x, coef, jnp.zeros((), coef.dtype), jnp.arange(n, dtype=jnp.int32), bias)


# Files: a zip of .npy arrays, and a header in JSON that says how they hang together. No code is ever loaded.

_FORMAT = 1


def _class_name(cls: type) -> str | None:
    name = registered_name(cls)
    if name is None and getattr(optax, cls.__name__, None) is cls:
        name = f"optax.{cls.__name__}"
    return name


def _find(name: str) -> Any:
    thing = REGISTRY.get(name)
    if name.startswith("optax."):
        found = getattr(optax, name.removeprefix("optax."), None)
        thing = found if isinstance(found, type) and issubclass(found, tuple) else None
    if thing is None:
        raise ValueError(
            f"the file holds {name!r}, which is not registered: import or register it first "
            "(jaxsvm.register, kernels.register), or give load(path, like=...)"
        )
    return thing


def _encode(node: Any, arrays: list) -> Any:
    """A pytree as JSON, its arrays appended to `arrays`."""
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(node)))
        return {"key": len(arrays) - 1, "impl": str(jax.random.key_impl(node))}
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        array = np.asarray(node)
        if array.dtype.kind == "O":
            raise ValueError("an array of Python objects cannot be saved")
        name = array.dtype.name
        if array.dtype.kind == "V":  # bfloat16 and its kin: stored as the integers behind them
            array = array.view(f"u{array.dtype.itemsize}")
        arrays.append(array)
        return {"array": len(arrays) - 1, "dtype": name}
    if isinstance(node, Recipe):
        factory, args, kwargs = node.call()
        name = registered_name(factory)
        if name is not None:
            children = [_encode(a, arrays) for a in args], {k: _encode(v, arrays) for k, v in kwargs.items()}
            return {"call": name, "args": children[0], "kwargs": children[1]}
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        name = _class_name(type(node))
        if name is not None:
            return {"named": name, "fields": {f: _encode(v, arrays) for f, v in zip(node._fields, node, strict=True)}}
    elif isinstance(node, tuple | list):
        return {"tuple" if isinstance(node, tuple) else "list": [_encode(v, arrays) for v in node]}
    elif isinstance(node, dict) and all(isinstance(k, str) for k in node):
        return {"dict": {k: _encode(v, arrays) for k, v in node.items()}}
    elif hasattr(node, "__dataclass_fields__") and registered_name(type(node)):
        fields = {f: _encode(getattr(node, f), arrays) for f in node.__dataclass_fields__}
        return {"named": registered_name(type(node)), "fields": fields}
    elif callable(node) and registered_name(node):
        return {"function": registered_name(node)}
    raise ValueError(
        f"cannot save {reprlib.repr(node)}: arrays, numbers, strings, tuples, lists, dicts and registered classes, factories and "
        "functions can be saved; register yours with jaxsvm.register(name, thing) or kernels.register(name, fn)"
    )


def _decode(node: Any, arrays: list) -> Any:
    """The inverse of `_encode`."""
    if "value" in node:
        return node["value"]
    if "key" in node:
        return jax.random.wrap_key_data(jnp.asarray(arrays[node["key"]]), impl=node["impl"])
    if "array" in node:
        array = arrays[node["array"]]
        dtype = jnp.dtype(node["dtype"])
        array = array.view(dtype) if array.dtype != dtype else array
        if array.dtype.itemsize == 8 and not jax.config.jax_enable_x64 and array.dtype.kind in "fiu":
            raise ValueError("the file holds 64-bit numbers: switch them on first, jax.config.update('jax_enable_x64', True)")
        return jnp.asarray(array)
    if "call" in node:
        args = [_decode(a, arrays) for a in node["args"]]
        return _find(node["call"])(*args, **{k: _decode(v, arrays) for k, v in node["kwargs"].items()})
    if "named" in node:
        return _find(node["named"])(**{k: _decode(v, arrays) for k, v in node["fields"].items()})
    if "function" in node:
        return _find(node["function"])
    if "dict" in node:
        return {k: _decode(v, arrays) for k, v in node["dict"].items()}
    if "tuple" in node:
        return tuple(_decode(v, arrays) for v in node["tuple"])
    if "list" in node:
        return [_decode(v, arrays) for v in node["list"]]
    raise ValueError(f"unknown entry {sorted(node)} in the header")


def save(path: str | os.PathLike, tree: Any) -> None:
    """Write a model, a `Run` or any other tree of arrays to one file.

    The file is written beside and renamed into place: whatever happens, `path` holds the old tree or the new one,
    never a part. Typed keys are stored as their data and the name of their implementation.

    Args:
        path: the file, in a folder that exists.
        tree: arrays, numbers, strings, tuples, lists, dicts; classes, factories and functions that are registered.

    Raises:
        ValueError: for anything else, with what to do.

    Example:
        >>> import tempfile, os, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> save(path, Linear(jnp.ones(2), jnp.zeros(())))
        >>> load(path)(jnp.ones((1, 2))).tolist()
        [2.0]
    """
    arrays: list = []
    encoded = _encode(tree, arrays)
    header = {"format": _FORMAT, "jaxsvm": __about__.__version__, "jax": jax.__version__, "tree": encoded}
    path = os.fspath(path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as file:
            text = np.frombuffer(json.dumps(header).encode(), np.uint8)
            np.savez(file, header=text, **{f"a{i}": a for i, a in enumerate(arrays)})
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def load(path: str | os.PathLike, like: Any = None) -> Any:
    """Read what `save` wrote. Nothing is unpickled and no module is imported.

    Args:
        path: the file.
        like: a tree of the same structure; its classes are used, so that they need not be registered.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged or no such file at all, holds something that is not registered, or does not
            fit `like`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(bytes(file["header"]))
            arrays = [file[f"a{i}"] for i in range(len(file.files) - 1)]
        if header["format"] != _FORMAT:
            raise ValueError(f"it has format {header['format']}, this version reads {_FORMAT}")
    except FileNotFoundError:
        raise
    except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zipfile.zlib.error, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)} is damaged or was not written by jaxsvm.models.save ({error})") from error
    if like is None:
        return _decode(header["tree"], arrays)
    leaves, structure = jax.tree.flatten(like)
    stored = _leaves(header["tree"])
    if len(stored) != len(leaves):
        raise ValueError(f"the file holds {len(stored)} arrays, `like` has {len(leaves)}")
    found = [_decode(node, arrays) for node in stored]
    for have, want in zip(found, leaves, strict=True):
        if jnp.shape(have) != jnp.shape(want) or jnp.result_type(have) != jnp.result_type(want):
            raise ValueError(
                f"the file holds an array {jnp.result_type(have)}{list(jnp.shape(have))} where `like` has "
                f"{jnp.result_type(want)}{list(jnp.shape(want))}"
            )
    return jax.tree.unflatten(structure, found)


def _leaves(node: Any) -> list:
    """The arrays and numbers of a header, in the order of `jax.tree.leaves`."""
    if "array" in node or "key" in node or isinstance(node.get("value"), float):
        return [node]
    children = node.get("tuple") or node.get("list") or list((node.get("fields") or {}).values())
    children = children or [node["dict"][k] for k in sorted(node.get("dict") or {})]
    children = children or list(node.get("args") or []) + [v for _, v in sorted((node.get("kwargs") or {}).items())]
    return [leaf for child in children for leaf in _leaves(child)]
