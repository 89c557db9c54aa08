"""Pytrees of arrays, models and runs as files."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .. import __about__
from ..checks import brief, has_values, x64_enabled
from ..files import (
    MEMBERS,
    Npz,
    atomic_path,
    check_field,
    is_damage,
    open_npz,
    refuse_special,
    shape_of,
)
from ..recipe import REGISTRY, Recipe, current_name, registered_name, unwrap_static
from ..types import Array, Curve, all_finite
from .functions import Expansion, Linear, Mapped
from .predictions import Classifier

_FORMAT = 1


_HEADER_BYTES = 2**26  # largest header


# modules whose state classes are found by name
_OPTAX = {"optax.": optax, "optax.contrib.": optax.contrib}


class _Refused(ValueError):
    """An undamaged file that cannot be read in this process, for the reason in the message."""


def _class_name(cls: type) -> str | None:
    name = registered_name(cls)
    for prefix, module in _OPTAX.items():
        if name is None and getattr(module, cls.__name__, None) is cls:
            name = prefix + cls.__name__
    return name


def _find(name: str) -> Any:
    if current_name(name) not in REGISTRY:  # modules register their names where they are imported
        importlib.import_module(f"{__name__.split('.')[0]}.api")
    entry = REGISTRY.get(current_name(name))
    prefix, _, last = name.rpartition(".")
    if prefix + "." in _OPTAX:
        cls = getattr(_OPTAX[prefix + "."], last, None)
        entry = cls if isinstance(cls, type) and issubclass(cls, tuple) else None
    if entry is None:
        raise _Refused(
            f"the file holds {name!r}, which is not registered: import or register it first "
            "(jaxsvm.register, kernels.register), or give load(path, like=...)"
        )
    return entry


def _find_factory(name: str) -> Any:
    entry = _find(name)
    if not isinstance(getattr(entry, "result_type", None), type):
        raise _Refused(
            f"the file calls {name!r}, which is not registered as a factory: only "
            "factories are called"
        )
    return entry


def _find_class(name: str) -> type:
    entry = _find(name)
    if not isinstance(entry, type) or not (
        hasattr(entry, "_fields") or hasattr(entry, "__dataclass_fields__")
    ):
        raise _Refused(f"the file makes a {name!r}, which is not registered as a class with fields")
    return entry


def _holds(cls: Any, fields: Iterable[str]) -> bool:
    """Whether these are the fields of the class; fields with defaults may be missing."""
    if hasattr(cls, "_fields"):
        names, required = cls._fields, set(cls._fields) - set(cls._field_defaults)
    else:
        names = getattr(cls, "__dataclass_fields__", {})
        no_default = lambda f: (
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        )
        required = {name for name, field in names.items() if no_default(field)}
    return required <= set(fields) <= set(names)


def _encode(node: Any, arrays: list) -> Any:
    """A pytree as JSON, its arrays appended to `arrays`."""
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if isinstance(node, jax.Array) and not has_values(node):
        raise ValueError(
            "an array that is traced, or in parts on devices of other processes, cannot be saved: "
            "save outside of transformations, and states of several processes by orbax.checkpoint"
        )
    if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(node)))
        return {"key": len(arrays) - 1, "impl": str(jax.random.key_impl(node))}
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        array = np.asarray(node)
        if array.dtype.kind in "OSUMm":
            raise ValueError(
                f"an array of {array.dtype} cannot be saved, only numbers and truth values"
            )
        array = array.astype(array.dtype.newbyteorder("="))
        name = array.dtype.name
        # bfloat16 and similar types: stored as integers with the same bits
        if array.dtype.kind == "V":
            array = array.view(f"u{array.dtype.itemsize}")
        arrays.append(array)
        return {"array": len(arrays) - 1, "dtype": name}
    if isinstance(node, Recipe):
        factory, args, kwargs = node.call()
        factory_name = registered_name(factory)
        if factory_name is not None:
            children = (
                [_encode(a, arrays) for a in args],
                {k: _encode(v, arrays) for k, v in kwargs.items()},
            )
            return {"call": factory_name, "args": children[0], "kwargs": children[1]}
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        class_name = _class_name(type(node))
        if class_name is not None:
            return {
                "named": class_name,
                "fields": {f: _encode(v, arrays) for f, v in zip(node._fields, node, strict=True)},
            }
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
        f"cannot save {reprlib.repr(node)}: arrays, numbers, strings, tuples, lists, dicts and "
        "registered classes, factories and functions can be saved; register yours with "
        "jaxsvm.register(name, thing) or kernels.register(name, fn)"
    )


class _Arrays:
    """The arrays of a file, each read once, when the header names it."""

    def __init__(self, npz: Npz) -> None:
        self.npz, self.unread = npz, set(npz.members) - {"header"}
        self.count = len(self.unread)

    def __len__(self) -> int:
        return self.count

    def read(self, number: Any, name: str) -> Array:
        """The array of that number; `name` is its dtype."""
        member, dtype = f"a{number}", jnp.dtype(name)
        if member not in self.unread:
            raise ValueError(f"the header names {member}, which is not there or was named before")
        self.unread.remove(member)
        # bfloat16 and similar types are integers with the same bits in the file
        stored = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype
        if self.npz.header(member).dtype.newbyteorder("=") != stored:
            raise ValueError(f"{member} is not of dtype {name}, as the header says")
        return jnp.asarray(self.npz.read(member).astype(stored, copy=False).view(dtype))

    def close(self) -> None:
        """Raise for arrays that the header did not name."""
        if self.unread:
            raise ValueError(f"the header does not name {', '.join(sorted(self.unread)[:3])}")


def _with_evals(fields: dict) -> dict:
    """Decoded fields of a `Curve`; in old files evaluations are two integers, high 2^20 + low."""
    if "evals_parts" not in fields:
        return fields
    parts = fields["evals_parts"]
    check_field("evals_parts", parts, "whole", (*jnp.shape(fields["loss"]), 2), least=0)
    evals = np.asarray(parts, np.float64) @ np.array([2.0**20, 1.0])
    rest = {name: value for name, value in fields.items() if name != "evals_parts"}
    return rest | {"evals": jnp.asarray(evals, fields["loss"].dtype)}


def _decode(node: Any, arrays: _Arrays) -> Any:
    """The inverse of `_encode`."""
    if "value" in node:
        return node["value"]
    if "key" in node:
        return jax.random.wrap_key_data(arrays.read(node["key"], "uint32"), impl=node["impl"])
    if "array" in node:
        dtype = jnp.dtype(node["dtype"])
        if not x64_enabled() and dtype.itemsize // (1 + (dtype.kind == "c")) == 8:
            raise _Refused(
                "the file holds 64-bit numbers: switch them on first, "
                "jax.config.update('jax_enable_x64', True)"
            )
        return arrays.read(node["array"], node["dtype"])
    if "call" in node:
        factory = _find_factory(node["call"])
        args = [_decode(a, arrays) for a in node["args"]]
        return _call(factory, args, {k: _decode(v, arrays) for k, v in node["kwargs"].items()})
    if "named" in node:
        name, fields = node["named"], node["fields"]
        cls = _find_class(name)
        known = {"evals" if k == "evals_parts" else k for k in fields} if cls is Curve else fields
        if not _holds(cls, known):
            raise _Refused(
                f"the file holds {name!r} of another version of jaxsvm: load it there, "
                "or begin anew"
            )
        return _make_checked(cls, {k: _decode(v, arrays) for k, v in fields.items()})
    if "function" in node:
        return _find(node["function"])
    if "dict" in node:
        return {k: _decode(v, arrays) for k, v in node["dict"].items()}
    if "tuple" in node:
        return tuple(_decode(v, arrays) for v in node["tuple"])
    if "list" in node:
        return [_decode(v, arrays) for v in node["list"]]
    raise ValueError(f"unknown entry {sorted(node)} in the header")


def _call(factory: Any, args: list, kwargs: dict) -> Recipe:
    """The result of a factory."""
    try:
        return factory(*args, **kwargs)
    except ValueError as error:
        raise _Refused(
            f"the file holds {factory.__name__} with arguments that it refuses: {error}"
        ) from error


def _make_checked(cls: type, fields: dict) -> Any:
    """An object of the class with these fields, checked by its method `__check__`."""
    try:
        instance = cls(**(_with_evals(fields) if cls is Curve else fields))
        if hasattr(cls, "__check__"):
            instance.__check__()
    except ValueError as error:
        raise _Refused(f"the file holds a {cls.__name__} that cannot be: {error}") from error
    return instance


def check_savable(tree: Any) -> None:
    """Raise for a tree that `save` cannot write, without writing.

    Raises:
        ValueError: part of the tree is not registered.
    """
    _encode(tree, [])


def save(path: str | bytes | os.PathLike, tree: Any) -> None:
    """Write a model, a `RunState` or any other tree of arrays to one file.

    The tree is written to a temporary file that then replaces `path` (`files.atomic_path`), so that
    `path` always holds either the old or the new tree. Typed keys are stored as their data and the
    name of their implementation.

    Of a tree that several processes hold, the first one writes the file.

    Args:
        path: the file, in a folder that exists.
        tree: arrays, numbers, strings, tuples, lists, dicts; classes, factories and functions that
            are registered.

    Raises:
        ValueError: the tree holds anything else, or arrays that several processes share.
        OSError: the file cannot be written: no such folder, no space, no permission, a folder, a
            pipe or a device.

    Example:
        >>> import tempfile, os, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> save(path, Linear(jnp.ones(2), jnp.zeros(())))
        >>> load(path)(jnp.ones((1, 2))).tolist()
        [2.0]
    """
    arrays: list = []
    encoded = _encode(tree, arrays)
    header = {
        "format": _FORMAT,
        "jaxsvm": __about__.__version__,
        "jax": jax.__version__,
        "tree": encoded,
    }
    text = json.dumps(header).encode()
    if len(text) > _HEADER_BYTES or len(arrays) >= MEMBERS:
        raise ValueError(
            f"the tree has too many parts: {len(arrays)} arrays, and a description of {len(text)} "
            f"bytes; less than {MEMBERS} arrays and {_HEADER_BYTES} bytes are read"
        )
    if jax.distributed.is_initialized() and jax.process_index() > 0:
        return
    members = {f"a{i}": a for i, a in enumerate(arrays)}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), **members)


def load(path: str | bytes | os.PathLike, like: Any = None) -> Any:
    """The tree that `save` wrote.

    Nothing is unpickled, no module but those of jaxsvm is imported, and only factories are called.
    Only arrays that the header names are read, after their sizes are compared with that of the
    file. Classes with a method `__check__` check their shapes, dtypes and ranges.

    Args:
        path: the file.
        like: a tree of the same structure; its classes are used, so that they need not be
            registered.

    Raises:
        FileNotFoundError, PermissionError, OSError: the file cannot be opened or read.
        ValueError: the file is damaged or of another kind, holds something that is not registered
            or not valid, does not fit `like`, or holds a model with numbers that are not finite.
            (The state of a run may hold them.)
    """
    path = os.fsdecode(path)
    refuse_special(path)
    with _naming(path):
        with open_npz(path, compressed=False) as npz:
            header = _read_header(npz)
            tree, arrays = header["tree"], _Arrays(npz)
            if like is None:
                result = _decode(tree, arrays)
            else:
                actual, expected = (
                    len(arrays),
                    sum(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(like)),
                )
                if actual != expected:
                    raise _Refused(f"the file holds {actual} arrays, `like` has {expected}")
                result = _decode_like(tree, like, arrays)
            arrays.close()
        return _check_model(result)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in errors of its contents.

    Raises:
        ValueError: the file is damaged, of another kind, or refused.
    """
    try:
        yield
    except _Refused as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:
        if not is_damage(error):
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = path
            raise
        raise ValueError(
            f"{path} is damaged or was not written by jaxsvm.models.save ({brief(error)})"
        ) from error


def _check_model(tree: Any) -> Any:
    """The tree, unchanged; raise for a model whose numbers are not all finite.

    States may hold such numbers.
    """
    if callable(tree) and hasattr(tree, "sqnorm") and not all_finite(tree):
        raise _Refused(
            "the model holds numbers that are not finite: its training diverged; train it again"
        )
    _check_axes(tree)
    return tree


def _check_axes(model: Any) -> None:
    """Raise for a model whose parts have different numbers of stacked models."""
    stacked: Any = None  # for each array whether it is stacked, in a multiclass model
    map_axes = 0  # largest number of leading axes of a feature map
    while isinstance(model, Mapped | Classifier) or hasattr(model, "stacked"):
        if hasattr(model, "stacked"):
            stacked = jax.tree.unflatten(jax.tree.structure(model.inner), model.stacked)
        else:
            if isinstance(model, Mapped):
                in_classes = stacked is not None and any(jax.tree.leaves(stacked.phi))
                map_axes = max(map_axes, getattr(unwrap_static(model.phi), "axes", 0) - in_classes)
            stacked = None if stacked is None else stacked.inner
        model = model.inner
    if isinstance(model, Linear | Expansion):
        first = "w" if isinstance(model, Linear) else "coef"
        axes, other = (
            np.ndim(getattr(model, f)) - bool(stacked is not None and getattr(stacked, f))
            for f in (first, "b")
        )
        if map_axes > other:
            raise _Refused(
                f"the file holds a feature map with {map_axes} axes in front and a "
                f"model with {other}"
            )
        if axes - 1 != other:
            shapes = " and ".join(str(shape_of(getattr(model, f))) for f in (first, "b"))
            raise _Refused(
                f"the file holds a {type(model).__name__} whose {first} and b have the "
                f"shapes {shapes}"
            )


def _read_header(npz: Npz) -> Any:
    """The header: versions, and the description of the tree."""
    array = npz.header("header")
    if array.dtype != np.uint8 or array.ndim != 1 or array.shape[0] > _HEADER_BYTES:
        raise ValueError(f"the header has dtype {array.dtype} and shape {array.shape}")
    header = json.loads(npz.read("header").tobytes())
    if header["format"] != _FORMAT:
        raise _Refused(f"the file has format {header['format']}, this version reads {_FORMAT}")
    return header


def _decode_like(node: Any, like: Any, arrays: _Arrays, structure: bool = False) -> Any:
    """`_decode` with the classes, factories and functions of `like`.

    The structure must be the same as that of `like`.

    Args:
        node: a part of the header.
        like: the same part of the user's tree.
        arrays: of the file.
        structure: whether numbers, strings and booleans are structure here, so that they must be
            equal.
    """
    down = lambda child, other, structure=structure: _decode_like(child, other, arrays, structure)
    if "array" in node or "key" in node:
        array = _decode(node, arrays)
        if hasattr(like, "dtype") and (array.shape != like.shape or array.dtype != like.dtype):
            shown = [f"{a.dtype}{list(a.shape)}" for a in (array, like)]
            raise _Refused(f"the file holds an array {shown[0]} where `like` has {shown[1]}")
        if hasattr(like, "dtype"):
            return array
    elif "value" in node:
        value = node["value"]
        if type(value) is type(like) and (
            value == like or isinstance(value, float) or not structure
        ):
            return value
    elif "call" in node and isinstance(like, Recipe):
        factory, args, kwargs = like.call()
        if (
            registered_name(factory) in (None, current_name(node["call"]))
            and len(args) == len(node["args"])
            and set(kwargs) == set(node["kwargs"])
        ):
            children = [down(a, b, True) for a, b in zip(node["args"], args, strict=True)]
            return _call(
                factory, children, {k: down(v, kwargs[k], True) for k, v in node["kwargs"].items()}
            )
    elif "named" in node:
        if _class_name(type(like)) in (None, node["named"]) and _holds(type(like), node["fields"]):
            known = getattr(like, "__dataclass_fields__", {})
            is_static = {
                f: structure or (f in known and known[f].metadata.get("static", False))
                for f in node["fields"]
            }
            return _make_checked(
                type(like),
                {f: down(v, getattr(like, f), is_static[f]) for f, v in node["fields"].items()},
            )
    elif "function" in node and callable(like):
        if registered_name(like) in (None, current_name(node["function"])):
            return like
    elif "dict" in node and isinstance(like, dict):
        if set(node["dict"]) == set(like):
            return {k: down(v, like[k]) for k, v in node["dict"].items()}
    elif "tuple" in node and type(like) is tuple:
        if len(node["tuple"]) == len(like):
            return tuple(down(v, other) for v, other in zip(node["tuple"], like, strict=True))
    elif "list" in node and type(like) is list and len(node["list"]) == len(like):
        return [down(v, other) for v, other in zip(node["list"], like, strict=True)]
    raise _Refused(f"the file holds {json.dumps(node)[:80]} where `like` has {reprlib.repr(like)}")
