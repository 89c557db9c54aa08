"""Pytrees of arrays, models and runs as files: an npz of arrays, and their structure as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .. import __about__
from .._node import REGISTRY, Node, registered_name
from ..checks import as_path, has_values, x64_enabled
from ..files import atomic_path, read_arrays
from ..types import Array, all_finite

_FORMAT = 1

# classes, factories and functions of older files by their names there, and their names today
_RENAMED = {"SubsetState": "EpochsState"}

# modules whose state classes are found by name
_OPTAX = {"optax": optax, "optax.contrib": optax.contrib}


class _Refused(ValueError):
    """What an undamaged file has that cannot be read here, as the rest of a sentence."""


def _class_name(cls: type) -> str | None:
    name = registered_name(cls)
    for prefix, module in _OPTAX.items():
        if name is None and issubclass(cls, tuple) and getattr(module, cls.__name__, None) is cls:
            name = f"{prefix}.{cls.__name__}"
    return name


def _field_names(cls: type) -> Any:
    """The fields of a NamedTuple or dataclass; None of other classes."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return getattr(cls, "_fields", None)


def _find(name: str) -> Any:
    """What is registered by that name, or a state class of optax."""
    name = _RENAMED.get(name, name)
    entry = REGISTRY.get(name)
    if entry is None:
        prefix, _, last = name.rpartition(".")
        entry = getattr(_OPTAX.get(prefix), last, None)
        if not (isinstance(entry, type) and issubclass(entry, tuple)):
            raise _Refused(
                f"holds {name!r}, which is not registered: import or register it first, by "
                "jaxsvm.register or kernels.register"
            )
    return entry


def _make(name: str, fields: dict) -> Any:
    """An object of a class; nothing else is called."""
    entry: Any = _find(name)
    if not isinstance(entry, type) or _field_names(entry) is None:
        raise _Refused(f"makes a {name!r}, which is not registered as a class")
    try:
        # the numbers of several nodes at once are arrays, which a node refuses
        cls: Any = entry
        several = issubclass(cls, Node) and any(map(np.ndim, jax.tree.leaves(fields)))
        return cls.unchecked(fields) if several else cls(**fields)
    except (TypeError, ValueError) as error:
        raise _Refused(
            f"holds a {name!r} that this version of jaxsvm does not take ({error}): load it with "
            "the version that wrote it, or begin anew"
        ) from error


def _encode(node: object, arrays: list) -> object:
    """A pytree as JSON, its arrays appended to `arrays`."""
    each = lambda parts: [_encode(part, arrays) for part in parts]
    named = lambda parts: {name: _encode(part, arrays) for name, part in parts.items()}
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        return _encode_array(node, arrays)
    if isinstance(node, jax.tree_util.Partial) and not jax.tree.leaves(node):
        node = node.func  # as nodes hold functions
    if (fields := _field_names(type(node))) is not None:
        if name := _class_name(type(node)):
            return {"named": name, "fields": named({f: getattr(node, f) for f in fields})}
    elif isinstance(node, tuple | list):
        return {"tuple" if isinstance(node, tuple) else "list": each(node)}
    elif isinstance(node, dict) and all(isinstance(k, str) for k in node):
        return {"dict": named(node)}
    elif callable(node) and registered_name(node):
        return {"function": registered_name(node)}
    raise ValueError(
        f"cannot save {reprlib.repr(node)}: arrays, numbers, strings, tuples, lists, dicts and "
        "registered classes, factories and functions can be saved; register yours with "
        "jaxsvm.register(name, thing) or kernels.register(name, fn)"
    )


def _encode_array(node: object, arrays: list) -> dict:
    if isinstance(node, jax.Array) and not has_values(node):
        raise ValueError(
            "an array that is traced, or in parts on devices of other processes, cannot be saved: "
            "save outside of transformations, and states of several processes by orbax.checkpoint"
        )
    if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(node)))
        return {"key": len(arrays) - 1, "impl": str(jax.random.key_impl(node))}
    array = np.asarray(node)
    if array.dtype.kind in "OSUMm":
        raise ValueError(
            f"an array of {array.dtype} cannot be saved, only numbers and truth values"
        )
    array = array.astype(array.dtype.newbyteorder("="))
    # bfloat16 and similar types: stored as integers with the same bits
    arrays.append(array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array)
    return {"array": len(arrays) - 1, "dtype": array.dtype.name}


def _decode(node: object, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `_encode`; takes the arrays out of `arrays`."""
    each = lambda parts: [_decode(part, arrays) for part in parts]
    named = lambda parts: {name: _decode(part, arrays) for name, part in parts.items()}
    match node:
        case {"value": value}:
            return value
        case {"key": number, "impl": impl}:
            return jax.random.wrap_key_data(jnp.asarray(arrays.pop(f"a{number}")), impl=impl)
        case {"array": number, "dtype": name}:
            return _decode_array(arrays.pop(f"a{number}"), jnp.dtype(name))
        case {"named": name, "fields": fields}:
            return _make(name, named(fields))
        case {"function": name}:
            return _find(name)
        case {"dict": parts}:
            return named(parts)
        case {"tuple": parts}:
            return tuple(each(parts))
        case {"list": parts}:
            return each(parts)
    raise ValueError("an entry of the header is none of `_encode`")


def _decode_array(array: np.ndarray, dtype: np.dtype) -> Array:
    if not x64_enabled() and dtype.itemsize // (1 + (dtype.kind == "c")) == 8:
        raise _Refused(
            "holds 64-bit numbers: switch them on first, jax.config.update('jax_enable_x64', True)"
        )
    # of the other byte order, where the machine that wrote it has that one
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False).view(dtype))


def check_savable(tree: object) -> None:
    """Raise for a tree that `save` cannot write, without writing.

    Raises:
        ValueError: part of the tree is not registered.
    """
    _encode(tree, [])


def save(path: str | bytes | os.PathLike, tree: object) -> None:
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
        >>> import os, tempfile, jax.numpy as jnp, jaxsvm
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> jaxsvm.models.save(path, jaxsvm.models.Linear(jnp.ones(2), jnp.zeros(())))
        >>> jaxsvm.models.load(path)(jnp.ones((1, 2))).tolist()
        [2.0]
    """
    arrays: list = []
    versions = {"format": _FORMAT, "jaxsvm": __about__.__version__, "jax": jax.__version__}
    text = json.dumps(versions | {"tree": _encode(tree, arrays)}).encode()
    if jax.distributed.is_initialized() and jax.process_index() > 0:
        return
    members = {f"a{i}": a for i, a in enumerate(arrays)}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), **members)


def load(path: str | bytes | os.PathLike) -> Any:
    """The tree that `save` wrote.

    Nothing is unpickled, no module but those of jaxsvm is imported, and only classes and factories
    that are registered are called. Take files only from people whom you trust to have written them
    by `save`: checksums find damage, not intent.

    Args:
        path: the file.

    Raises:
        FileNotFoundError, PermissionError, OSError: the file cannot be opened or read.
        ValueError: the file is damaged or of another kind or version, holds something that is not
            registered or 64-bit numbers without x64, or a model with numbers that are not finite.
            (The state of a run may hold them.)
    """
    path, version = as_path("path", path), ""
    try:
        arrays = read_arrays(path)
        header = json.loads(arrays.pop("header").tobytes())
        version = header["jaxsvm"]
        if header["format"] != _FORMAT:
            raise _Refused(
                f"has format {header['format']!r}, expected {_FORMAT}: load it with the version "
                "that wrote it"
            )
        tree = _decode(header["tree"], arrays)
    except _Refused as error:
        raise ValueError(f"{path} {error} (jaxsvm {version!r} wrote this file)") from error
    except (OSError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is damaged or was not written by jaxsvm.models.save: take another copy of it, "
            "or begin anew"
        ) from error
    if callable(tree) and hasattr(tree, "sqnorm") and not all_finite(tree):
        raise ValueError(
            f"{path}: the model holds numbers that are not finite: its training diverged; train it "
            "again"
        )
    return tree
