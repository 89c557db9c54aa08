"""Models: callable pytrees, rows -> decision values; and files that hold them, or any other state, without pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import reprlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import __about__
from .checks import brief, class_names, integer, matrix, shown
from .files import Npz, atomic_path, check_field, check_front, is_damage, open_npz, refuse_special, shape_of
from .kernels import Kernel, holds_precomputed, matvec
from .numerics import blocked, check_process, dot, is_traced
from .recipe import REGISTRY, Recipe, check_choice, registered_name, static, struct, unwrap_static
from .renamed import FIELDS, OPTIONS, added, current_keys, current_name
from .types import Array, Batch, all_finite

__all__ = ["Classifier", "Expansion", "Linear", "Mapped", "Support", "load", "save"]

BIASES = ("none", "feature", "free")


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
        check_process()
        x = matrix("x", x, self.w.shape[-1])
        return dot(x, self.w) + self.b

    def sqnorm(self) -> Array:
        """|w|^2 as the objective has it: with b^2 where the bias is a feature."""
        return dot(self.w, self.w) + (self.b * self.b if self.bias == "feature" else 0)

    def scaled(self, factor: Array) -> Linear:
        """factor f, for functions that a solver keeps up to a factor."""
        return dataclasses.replace(self, w=factor * self.w, b=factor * self.b)

    def __check__(self) -> None:
        check_choice("bias", self.bias, BIASES)
        check_field("w", self.w)
        check_field("b", self.b)
        if jnp.ndim(self.w) < 1:
            raise ValueError("w must be a vector, got one number")
        check_front("b", jnp.shape(self.b), jnp.shape(self.w)[:-1])


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
        check_process()
        x = matrix("x", x, None if holds_precomputed(self.kernel) else self.x.shape[-1])
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

    def __check__(self) -> None:
        check_choice("bias", self.bias, BIASES)
        if not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a kernel, got {self.kernel!r}")
        check_field("coef", self.coef)
        check_field("b", self.b)
        check_field("index", self.index, "whole", least=-1)
        x, coef, index = map(shape_of, (self.x, self.coef, self.index))
        if len(x) < 2 or not x[-2:-1] == coef[-1:] == index[-1:]:
            raise ValueError(f"x, coef and index must have as many rows, got shapes {x}, {coef} and {index}")
        for name, front in (("b", jnp.shape(self.b)), ("x", x[:-2]), ("index", index[:-1])):
            check_front(name, front, coef[:-1])


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
        return unwrap_static(self.phi)(x)

    def __call__(self, x: Array, *, block: int = 4096) -> Array:
        """Decision values, (n, d) -> (n,), `block` rows at a time: temporaries are (block, p)."""
        check_process()
        x = matrix("x", x)
        integer("block", block, 1)
        return blocked(lambda rows: self.inner(self.features(rows)), x, block)

    def sqnorm(self) -> Array:
        """|w|^2 in feature space, as the objective has it."""
        return self.inner.sqnorm()

    def __check__(self) -> None:
        if not callable(unwrap_static(self.phi)) or not callable(self.inner):
            raise ValueError(f"phi must be a feature map and inner a model, got {self.phi!r} and {self.inner!r}")
        given, taken = getattr(unwrap_static(self.phi), "features", None), _columns(self.inner)
        if isinstance(given, int) and taken not in (None, given):
            raise ValueError(f"phi gives {given} features, but inner takes rows of {taken} columns")


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
        """Class names, (n, d) -> (n,), on the host.

        Raises:
            ValueError: for decision values that are not finite.
        """
        return np.asarray(self.classes)[class_places(np.asarray(self(x)))]

    def sqnorm(self) -> Array:
        """|w|^2, as the objective has it."""
        return self.inner.sqnorm()

    def __check__(self) -> None:
        if not callable(self.inner):
            raise ValueError(f"inner must be a model, got {self.inner!r}")
        inner = self.inner
        while isinstance(inner, Mapped):
            inner = inner.inner
        scores = 1 if isinstance(inner, Linear | Expansion) else getattr(inner, "scores", None)
        if scores is not None and len(self.classes) != max(scores, 2):
            raise ValueError(f"there are {len(self.classes)} classes, but the model gives {scores} values for each row")


def _columns(model: Any) -> int | None:
    """How many columns the rows of a model have; None: it does not say."""
    while not isinstance(model, Linear | Expansion | Mapped) and hasattr(model, "inner"):
        model = model.inner
    if isinstance(model, Linear):
        return model.w.shape[-1]
    return model.x.shape[-1] if isinstance(model, Expansion) and not holds_precomputed(model.kernel) else None


def check_values(score: np.ndarray) -> np.ndarray:
    """The decision values (n,) or (n, k) as they are.

    Raises:
        ValueError: if one of them is not finite.
    """
    strange = ~np.isfinite(np.asarray(score, np.float64)).reshape(len(score), -1).all(axis=1)
    if strange.any():
        raise ValueError(
            f"the decision values of {strange.sum()} of {len(score)} rows are not finite, first of row {np.argmax(strange)}: the "
            "model diverged in training, or the rows are too large for it; look at the scale of the data and train again"
        )
    return score


def class_places(score: np.ndarray) -> np.ndarray:
    """Which class the decision values name (n,): of (n,) 1 above 0, else 0; of (n, k) the place of the largest.

    Raises:
        ValueError: for decision values that are not finite.
    """
    check_values(score)
    return (score > 0).astype(int) if score.ndim == 1 else np.argmax(score, axis=1)


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
_HEADER_BYTES = 2**26  # of the header at most
_OPTAX = {"optax.": optax, "optax.contrib.": optax.contrib}  # whose state classes are known by name


class _Refused(ValueError):
    """A whole file that cannot be read here and now; the sentence says why."""


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
        raise _Refused(
            f"the file holds {name!r}, which is not registered: import or register it first "
            "(jaxsvm.register, kernels.register), or give load(path, like=...)"
        )
    return thing


def _find_factory(name: str) -> Any:
    thing = _find(name)
    if not isinstance(getattr(thing, "result_type", None), type):
        raise _Refused(f"the file calls {name!r}, which is not registered as a factory: only factories are called")
    return thing


def _find_class(name: str) -> type:
    thing = _find(name)
    if not isinstance(thing, type) or not (hasattr(thing, "_fields") or hasattr(thing, "__dataclass_fields__")):
        raise _Refused(f"the file makes a {name!r}, which is not registered as a class with fields")
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


class _Arrays:
    """The arrays of a file, each read once, where the header names it."""

    def __init__(self, npz: Npz):
        self.npz, self.unread = npz, set(npz.members) - {"header"}

    def __len__(self) -> int:
        return len(self.npz.members) - 1

    def read(self, place: Any, name: str) -> np.ndarray:
        """An array of the dtype of that name."""
        member, dtype = f"a{place}", jnp.dtype(name)
        if member not in self.unread:
            raise ValueError(f"the header names {member}, which is not there or was named before")
        self.unread.remove(member)
        held = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype
        if self.npz.header(member).dtype.newbyteorder("=") != held:
            raise ValueError(f"{member} is not of dtype {name}, as the header says")
        return self.npz.read(member).astype(held, copy=False).view(dtype)

    def close(self) -> None:
        """Refuse arrays that the header did not name."""
        if self.unread:
            raise ValueError(f"the header does not name {', '.join(sorted(self.unread)[:3])}")


def _decode(node: Any, arrays: _Arrays) -> Any:
    """The inverse of `_encode`."""
    if "value" in node:
        return node["value"]
    if "key" in node:
        return jax.random.wrap_key_data(jnp.asarray(arrays.read(node["key"], "uint32")), impl=node["impl"])
    if "array" in node:
        dtype = jnp.dtype(node["dtype"])
        if not jax.config.jax_enable_x64 and dtype.itemsize // (1 + (dtype.kind == "c")) == 8:
            raise _Refused("the file holds 64-bit numbers: switch them on first, jax.config.update('jax_enable_x64', True)")
        return jnp.asarray(arrays.read(node["array"], node["dtype"]))
    if "call" in node:
        name = current_name(node["call"])
        factory = _find_factory(name)
        args = [_decode(a, arrays) for a in node["args"]]
        kwargs = current_keys(OPTIONS, name, node["kwargs"])
        return _call(factory, args, {k: _decode(v, arrays) for k, v in kwargs.items()})
    if "named" in node:
        name = current_name(node["named"])
        cls, fields = _find_class(name), current_keys(FIELDS, name, node["fields"])
        missing = added(name, fields)
        if not _holds(cls, {**fields, **missing}):
            raise _Refused(f"the file holds {name!r} of another version of jaxsvm: load it there, or begin anew")
        found = {k: _decode(v, arrays) for k, v in fields.items()}
        return _checked(cls, {**found, **{k: make(found) for k, make in missing.items()}})
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
    """What a factory makes; a kernel is made once more inside, which checks its numbers where each is one number."""
    try:
        made = factory(*args, **kwargs)
        if isinstance(made, Kernel) and all(np.ndim(number) == 0 for number in made.numbers):
            made.make()
    except ValueError as error:
        raise _Refused(f"the file holds {factory.__name__} with arguments that it refuses: {error}") from error
    return made


def _checked(cls: type, fields: dict) -> Any:
    """An object of the class with these fields, if the class says nothing against them."""
    try:
        made = cls(**fields)
        if hasattr(cls, "__check__"):
            made.__check__()
    except ValueError as error:
        raise _Refused(f"the file holds a {cls.__name__} that cannot be: {error}") from error
    return made


def check_savable(tree: Any) -> None:
    """Refuse what `save` refuses, without writing.

    Raises:
        ValueError: something that is not registered, with what to do.
    """
    _encode(tree, [])


def save(path: str | bytes | os.PathLike, tree: Any) -> None:
    """Write a model, a `Run` or any other tree of arrays to one file.

    The file is written beside and renamed into place (`files.atomic_path`): whatever happens, `path` holds the old tree
    or the new one, never a part. Typed keys are stored as their data and the name of their implementation.

    Args:
        path: the file, in a folder that exists.
        tree: arrays, numbers, strings, tuples, lists, dicts; classes, factories and functions that are registered.

    Raises:
        ValueError: for anything else, with what to do.
        OSError: the file cannot be written: no such folder, no space, no permission, a folder, a pipe or a device.

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
    text = json.dumps(header).encode()
    if len(text) > _HEADER_BYTES:
        raise ValueError(
            f"the tree has too many parts: its description takes {len(text)} bytes, at most {_HEADER_BYTES} are read"
        )
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), **{f"a{i}": a for i, a in enumerate(arrays)})


def load(path: str | bytes | os.PathLike, like: Any = None) -> Any:
    """Read what `save` wrote. Nothing is unpickled, no module is imported, no function that is not a factory is called.

    Only arrays that the header names are read, each once its size is known to be that of its part of the file. Classes with
    a method `__check__` say whether what they hold can be: shapes, dtypes and ranges.

    Args:
        path: the file.
        like: a tree of the same structure; its classes are used, so that they need not be registered.

    Raises:
        FileNotFoundError, PermissionError, OSError: the file cannot be opened or read.
        ValueError: if the file is damaged or no such file at all, holds something that is not registered or cannot be, does
            not fit `like`, or holds a model with numbers that are not finite. (The state of a run may hold them.)
    """
    path = os.fsdecode(path)
    refuse_special(path)
    try:
        with open_npz(path, compressed=False) as npz:
            tree, arrays = _read_header(npz), _Arrays(npz)
            if like is None:
                made = _decode(tree, arrays)
            else:
                have, want = len(arrays), sum(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(like))
                if have != want:
                    raise _Refused(f"the file holds {have} arrays, `like` has {want}")
                made = _decode_like(tree, like, arrays)
            arrays.close()
        return _check_model(made)
    except _Refused as error:
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:
        if not is_damage(error):
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = path
            raise
        raise ValueError(f"{path} is damaged or was not written by jaxsvm.models.save ({brief(error)})") from error


def _check_model(tree: Any) -> Any:
    """What was read, unless it is a model that holds numbers that are not finite; states may hold them."""
    if callable(tree) and hasattr(tree, "sqnorm") and not all_finite(tree):
        raise _Refused("the model holds numbers that are not finite: its training diverged; train it again")
    _check_axes(tree)
    return tree


def _check_axes(model: Any) -> None:
    """Refuse a model whose parts belong to different numbers of models held as one."""
    own: Any = None  # for each array whether it is stacked, in a model of many classes
    most = 0  # axes in front of one of the maps
    while isinstance(model, Mapped | Classifier) or hasattr(model, "stacked"):
        if hasattr(model, "stacked"):
            own = jax.tree.unflatten(jax.tree.structure(model.inner), model.stacked)
        else:
            if isinstance(model, Mapped):
                most = max(
                    most, getattr(unwrap_static(model.phi), "axes", 0) - (own is not None and any(jax.tree.leaves(own.phi)))
                )
            own = None if own is None else own.inner
        model = model.inner
    if isinstance(model, Linear | Expansion):
        first = "w" if isinstance(model, Linear) else "coef"
        axes, other = (np.ndim(getattr(model, f)) - bool(own is not None and getattr(own, f)) for f in (first, "b"))
        if most > other:
            raise _Refused(f"the file holds a feature map with {most} axes in front and a model with {other}")
        if axes - 1 != other:
            shapes = " and ".join(str(shape_of(getattr(model, f))) for f in (first, "b"))
            raise _Refused(f"the file holds a {type(model).__name__} whose {first} and b have the shapes {shapes}")


def _read_header(npz: Npz) -> Any:
    """What the header says of the tree."""
    told = npz.header("header")
    if told.dtype != np.uint8 or told.ndim != 1 or told.shape[0] > _HEADER_BYTES:
        raise ValueError(f"the header has dtype {told.dtype} and shape {told.shape}")
    header = json.loads(npz.read("header").tobytes())
    if header["format"] != _FORMAT:
        raise _Refused(f"the file has format {header['format']}, this version reads {_FORMAT}")
    return header["tree"]


def _decode_like(node: Any, like: Any, arrays: _Arrays, structure: bool = False) -> Any:
    """`_decode` with the classes, factories and functions of `like`, which must have the same structure.

    Args:
        node: of the header.
        like: what stands there in the tree given.
        arrays: of the file.
        structure: whether numbers, words and truth values are structure here, and so must be equal.
    """
    down = lambda child, other, structure=structure: _decode_like(child, other, arrays, structure)  # noqa: E731
    if "array" in node or "key" in node:
        have = _decode(node, arrays)
        if hasattr(like, "dtype") and (have.shape != like.shape or have.dtype != like.dtype):
            shown = [f"{a.dtype}{list(a.shape)}" for a in (have, like)]
            raise _Refused(f"the file holds an array {shown[0]} where `like` has {shown[1]}")
        if hasattr(like, "dtype"):
            return have
    elif "value" in node:
        value = node["value"]
        if type(value) is type(like) and (value == like or isinstance(value, float) or not structure):
            return value
    elif "call" in node and isinstance(like, Recipe):
        factory, args, kwargs = like.call()
        if (
            registered_name(factory) in (None, node["call"])
            and len(args) == len(node["args"])
            and set(kwargs) == set(node["kwargs"])
        ):
            args = [down(a, b, True) for a, b in zip(node["args"], args, strict=True)]
            return _call(factory, args, {k: down(v, kwargs[k], True) for k, v in node["kwargs"].items()})
    elif "named" in node:
        if _class_name(type(like)) in (None, node["named"]) and _holds(type(like), node["fields"]):
            made = getattr(like, "__dataclass_fields__", {})
            fixed = {f: structure or (f in made and made[f].metadata.get("static", False)) for f in node["fields"]}
            return _checked(type(like), {f: down(v, getattr(like, f), fixed[f]) for f, v in node["fields"].items()})
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
    raise _Refused(f"the file holds {json.dumps(node)[:80]} where `like` has {reprlib.repr(like)}")
