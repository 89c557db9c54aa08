"""Models: callable pytrees, rows -> decision values; and files that hold them, or any other state, without pickle."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import reprlib
import zipfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import __about__
from .checks import class_names, integer, matrix, shown
from .kernels import Kernel, holds_precomputed, matvec
from .numerics import blocked, dot, is_traced
from .recipe import REGISTRY, Recipe, freed, registered_name, static, struct
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
        matrix("x", x, self.w.shape[-1])
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
        matrix("x", x, None if holds_precomputed(self.kernel) else self.x.shape[-1])
        integer("block", block, 1)
        return matvec(self.kernel, x, self.x, self.coef, block) + self.b

    def sqnorm(self, *, block: int = 1024) -> Array:
        """|w|^2 = coef' K coef as the objective has it, in blocks of rows: with b^2 where the bias is a feature."""
        square = dot(self.coef, matvec(self.kernel, self.x, self.x, self.coef, block))
        return square + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Expansion:
        """factor f, for functions that a solver keeps up to a factor."""
        return dataclasses.replace(self, coef=factor * self.coef, b=factor * self.b)

    def support(self) -> Support:
        """The rows whose coefficient is not 0, on the host: how many there are decides the shapes.

        Raises:
            TypeError: inside a transformation.
        """
        if is_traced(self.coef):
            raise TypeError("support() needs the coefficients' values: call it outside of jit, vmap and grad")
        place = np.flatnonzero(np.asarray(self.coef))
        return Support(np.asarray(self.index)[place], np.asarray(self.coef)[place], float(self.b))


class Support(NamedTuple):
    """Support vectors: f(x) = sum_i coef_i k(x_index_i, x) + b."""

    index: np.ndarray  # (s,)  training rows, -1 where none
    coef: np.ndarray  # (s,)  signed, y_i alpha_i for classification
    b: float


@struct
class Mapped:
    """f(x) = inner(phi(x)): a model on features, taking raw rows."""

    phi: Any  # a pytree, or `recipe.fixed` of a plain function
    inner: Any

    def features(self, x: Array) -> Array:
        """phi(x), (n, d) -> (n, p)."""
        return freed(self.phi)(x)

    def __call__(self, x: Array, *, block: int = 4096) -> Array:
        """Decision values, (n, d) -> (n,), `block` rows at a time: temporaries are (block, p)."""
        matrix("x", x)
        integer("block", block, 1)
        return blocked(lambda rows: self.inner(self.features(rows)), x, block)

    def sqnorm(self) -> Array:
        """|w|^2 in feature space, as the objective has it."""
        return self.inner.sqnorm()


@struct
class Classifier:
    """A model with the names of its classes: decision values as `inner` gives them, predictions by name.

    Two classes: the sign of the value decides, 0 counts as the first. More: the largest of k values.
    """

    inner: Any  # rows -> (n,) for two classes, (n, k) for k
    classes: tuple = static()

    def __post_init__(self) -> None:
        """Refuse names of fewer than two classes."""
        object.__setattr__(self, "classes", class_names(self.classes))

    def __call__(self, x: Array) -> Array:
        """Decision values, (n, d) -> (n,) or (n, k)."""
        if not callable(self.inner) or isinstance(self.inner, type | Recipe):
            raise TypeError(f"inner must be a model, got {shown(self.inner)}")
        return self.inner(x)

    def predict(self, x: Array) -> np.ndarray:
        """Class names, (n, d) -> (n,), on the host."""
        score = np.asarray(self(x))
        place = (score > 0).astype(int) if score.ndim == 1 else np.argmax(score, axis=1)
        return np.asarray(self.classes)[place]

    def sqnorm(self) -> Array:
        """|w|^2, as the objective has it."""
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
_OPTAX = {"optax.": optax, "optax.contrib.": optax.contrib}  # whose state classes are known by name


class _Unknown(ValueError):
    """A whole file that cannot be read here and now; the sentence says what is missing."""


def _class_name(cls: type) -> str | None:
    name = registered_name(cls)
    for place, module in _OPTAX.items():
        if name is None and getattr(module, cls.__name__, None) is cls:
            name = place + cls.__name__
    return name


def _find(name: str) -> Any:
    thing = REGISTRY.get(name)
    place, _, last = name.rpartition(".")
    if place + "." in _OPTAX:
        found = getattr(_OPTAX[place + "."], last, None)
        thing = found if isinstance(found, type) and issubclass(found, tuple) else None
    if thing is None:
        raise _Unknown(
            f"the file holds {name!r}, which is not registered: import or register it first "
            "(jaxsvm.register, kernels.register), or give load(path, like=...)"
        )
    return thing


def _holds(cls: type, fields: dict) -> bool:
    """Whether these are fields of the class, all of them but those that came later and have defaults."""
    if hasattr(cls, "_fields"):
        known, needed = cls._fields, set(cls._fields) - set(cls._field_defaults)
    else:
        found = getattr(cls, "__dataclass_fields__", {})
        free = lambda f: f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING  # noqa: E731
        known, needed = found, {name for name, field in found.items() if free(field)}
    return needed <= set(fields) <= set(known)


def _encode(node: Any, arrays: list) -> Any:
    """A pytree as JSON, its arrays appended to `arrays`."""
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(node)))
        return {"key": len(arrays) - 1, "impl": str(jax.random.key_impl(node))}
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        array = np.asarray(node)
        if array.dtype.kind in "OSUMm":
            raise ValueError(f"an array of {array.dtype} cannot be saved, only numbers and truth values")
        array = array.astype(array.dtype.newbyteorder("="))
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
        if not jax.config.jax_enable_x64 and array.dtype.itemsize // (1 + (array.dtype.kind == "c")) == 8:
            raise _Unknown("the file holds 64-bit numbers: switch them on first, jax.config.update('jax_enable_x64', True)")
        return jnp.asarray(array)
    if "call" in node:
        args = [_decode(a, arrays) for a in node["args"]]
        return _find(node["call"])(*args, **{k: _decode(v, arrays) for k, v in node["kwargs"].items()})
    if "named" in node:
        cls = _find(node["named"])
        if not _holds(cls, node["fields"]):
            raise _Unknown(f"the file holds {node['named']!r} of another version of jaxsvm: load it there, or begin anew")
        return cls(**{k: _decode(v, arrays) for k, v in node["fields"].items()})
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
        header, arrays = _read(path)
        if like is None:
            return _decode(header["tree"], arrays)
        have, want = len(arrays), sum(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(like))
        if have != want:
            raise _Unknown(f"the file holds {have} arrays, `like` has {want}")
        return _decode_like(header["tree"], like, arrays)
    except FileNotFoundError:
        raise
    except _Unknown as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    except Exception as error:  # whatever a damaged byte leads to
        raise ValueError(f"{os.fspath(path)} is damaged or was not written by jaxsvm.models.save ({error})") from error


def _read(path: str | os.PathLike) -> tuple[dict, list]:
    """Header and arrays, every byte of them checked against the sums in the file."""

    def array(member: bytes) -> np.ndarray:
        stream = io.BytesIO(member)
        found = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError("an array is longer than it says")
        return found

    with zipfile.ZipFile(path) as file:
        members = {name.removesuffix(".npy"): array(file.read(name)) for name in file.namelist()}
    header = json.loads(bytes(members["header"]))
    if header["format"] != _FORMAT:
        raise _Unknown(f"the file has format {header['format']}, this version reads {_FORMAT}")
    return header, [members[f"a{i}"] for i in range(len(members) - 1)]


def _decode_like(node: Any, like: Any, arrays: list, choice: bool = False) -> Any:
    """`_decode` with the classes, factories and functions of `like`, which must have the same structure.

    Args:
        node: of the header.
        like: what stands there in the tree given.
        arrays: of the file.
        choice: whether numbers, words and truth values are structure here, and so must be equal.
    """
    down = lambda child, other, choice=choice: _decode_like(child, other, arrays, choice)  # noqa: E731
    if "array" in node or "key" in node:
        have = _decode(node, arrays)
        if hasattr(like, "dtype") and (have.shape != like.shape or have.dtype != like.dtype):
            shown = [f"{a.dtype}{list(a.shape)}" for a in (have, like)]
            raise _Unknown(f"the file holds an array {shown[0]} where `like` has {shown[1]}")
        if hasattr(like, "dtype"):
            return have
    elif "value" in node:
        value = node["value"]
        if type(value) is type(like) and (value == like or isinstance(value, float) or not choice):
            return value
    elif "call" in node and isinstance(like, Recipe):
        factory, args, kwargs = like.call()
        if (
            registered_name(factory) in (None, node["call"])
            and len(args) == len(node["args"])
            and set(kwargs) == set(node["kwargs"])
        ):
            args = [down(a, b, True) for a, b in zip(node["args"], args, strict=True)]
            return factory(*args, **{k: down(v, kwargs[k], True) for k, v in node["kwargs"].items()})
    elif "named" in node:
        if _class_name(type(like)) in (None, node["named"]) and _holds(type(like), node["fields"]):
            made = getattr(like, "__dataclass_fields__", {})
            fixed = {f: choice or (f in made and made[f].metadata.get("static", False)) for f in node["fields"]}
            return type(like)(**{f: down(v, getattr(like, f), fixed[f]) for f, v in node["fields"].items()})
    elif "function" in node and callable(like):
        if registered_name(like) in (None, node["function"]):
            return like
    elif "dict" in node and isinstance(like, dict):
        if set(node["dict"]) == set(like):
            return {k: down(v, like[k]) for k, v in node["dict"].items()}
    elif "tuple" in node and type(like) is tuple:
        if len(node["tuple"]) == len(like):
            return tuple(down(v, other) for v, other in zip(node["tuple"], like, strict=True))
    elif "list" in node and type(like) is list and len(node["list"]) == len(like):
        return [down(v, other) for v, other in zip(node["list"], like, strict=True)]
    raise _Unknown(f"the file holds {json.dumps(node)[:80]} where `like` has {reprlib.repr(like)}")
