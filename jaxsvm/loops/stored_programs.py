"""Programs on disk that a later process runs without tracing them.

JAX's cache of compiled programs is read after a function is traced, which takes most of the time of
a first `fit`. Here the traced program itself is kept (`jax.export`), under a key that needs no
tracing: the function, the structure and types of its arguments, the versions, the source files and
the settings. It is compiled through JAX's cache. JAX writes programs by the package flatbuffers:
where it is not installed, nothing is kept.

Only programs of the package's own functions are kept. Those of users are known to the process by
their identity, which says nothing about their source.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax import export

from .. import __about__
from ..checks import x64_enabled
from ..files import atomic_path
from ..numerics import is_traced
from ..recipe import REGISTRY, registered_name

FOLDER = "traced"  # in the folder of `cache_programs`
PACKAGES = ("jaxsvm", "jax", "optax")  # whose source is part of the key, by version or by file
DIGEST = 32  # bytes of the checksum at the start of a file
# settings in which functions are not run as compiled programs, or are checked
DEBUGGING = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_check_tracer_leaks")
# settings that a context manager may change in a thread
TRACING = (
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)
MOST_KEPT = 256  # programs of a function that a process keeps

VARIABLE = "JAXSVM_PROGRAM_CACHE"  # the folder, which processes that are started later inherit


class _Unknown(Exception):
    """Something that has no description by which another process would know it."""


def _sources() -> list:
    """Versions, and sizes and times of the package's files, as Python tells its own stale files."""
    files = []
    for folder, _, names in os.walk(Path(__file__).parents[1]):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            about = os.stat(path)
            files.append((path, about.st_size, about.st_mtime_ns))
    installed = [importlib.metadata.version(name) for name in ("jax", "jaxlib", "optax", "numpy")]
    versions = [__about__.__version__, *installed]
    return [versions, sorted(files)]


SOURCES = _sources()  # read at import: files that change later are not those of this process


def use_folder(folder: str) -> None:
    """Keep traced programs below this folder, as long as it is that of JAX's cache."""
    os.environ[VARIABLE] = folder


def folder_in_use() -> str | None:
    """The folder of traced programs, or None."""
    config: Any = jax.config
    folder = os.environ.get(VARIABLE)
    used = folder and folder == config.jax_compilation_cache_dir and _has_flatbuffers()
    if not used or not config.jax_enable_compilation_cache or jax.device_count() > 1:
        return None
    if any(getattr(config, name) for name in DEBUGGING):
        return None
    return os.path.join(folder or "", FOLDER)


@functools.cache
def _has_flatbuffers() -> bool:
    """Whether the package in whose format JAX writes programs is there; JAX does not require it."""
    return importlib.util.find_spec("flatbuffers") is not None


class StoredPrograms:
    """A function as programs from disk, one for each structure and types of its arguments."""

    def __init__(self, function: Callable, options: dict, static: tuple[str, ...]) -> None:
        """Keep programs of `function`.

        Args:
            function: to be traced where a program is not on disk.
            options: of the compiler.
            static: names of arguments that are structure.
        """
        self.function, self.options, self.static = function, options, static
        self.programs: dict[Any, tuple] = {}  # that this process has read or made

    def __len__(self) -> int:
        return sum(program is not None for program, _ in self.programs.values())

    def __call__(self, args: tuple, keywords: dict) -> tuple:
        """The result for these arguments, in a tuple.

        An empty tuple where the program cannot be kept: then the caller runs its own.
        """
        folder = folder_in_use()
        if folder is None or is_traced(args, keywords):
            return ()
        choices = {name: keywords[name] for name in self.static if name in keywords}
        rest = {name: value for name, value in keywords.items() if name not in choices}
        leaves, tree = jax.tree.flatten((args, rest))
        if not _on_default_device(leaves):
            return ()
        types = tuple(jax.typeof(leaf) for leaf in leaves)
        key = tree, types, tuple(choices.items()), (folder, *_settings())
        if key not in self.programs:
            if len(self.programs) >= MOST_KEPT:
                self.programs.clear()
            self.programs[key] = _program(self.function, self.options, leaves, key)
        program, out_tree = self.programs[key]
        return () if program is None else (jax.tree.unflatten(out_tree, program(*leaves)),)


def _on_default_device(leaves: list) -> bool:
    """Whether all arrays are on the device for which programs are made."""
    config: Any = jax.config
    device = {jax.devices()[0]}
    arrays = (leaf for leaf in leaves if isinstance(leaf, jax.Array))
    return config.jax_default_device is None and all(a.devices() == device for a in arrays)


def _program(function: Callable, options: dict, leaves: list, key: tuple) -> tuple:
    """The program of a key, from leaves to leaves, and the structure of its result.

    (None, None) where it cannot be kept.
    """
    tree, types, choices, (folder, *settings) = key
    try:
        about = [_describe(tree), _describe(dict(choices)), _name(function)]
    except _Unknown:
        return None, None
    types = [str(each) for each in types]
    text = json.dumps([*about, types, settings, sorted(options.items()), SOURCES])
    path = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest())
    content = _read(path)
    if content is None:
        content = _trace(function, tree, leaves, dict(choices))
        _write(path, content)
    header, _, body = content.partition(b"\n")
    if not body:  # cannot be kept
        return None, None
    exported = export.deserialize(bytearray(body))
    compiled = jax.jit(exported.call, compiler_options=options or None)
    return compiled, _rebuild(json.loads(header))


def _trace(function: Callable, tree: Any, leaves: list, choices: dict) -> bytes:
    """The structure of the result as a line of JSON, and the program; empty if it has none."""
    structures = []

    def flat(*leaves: Any) -> list:
        args, keywords = jax.tree.unflatten(tree, leaves)
        results, structure = jax.tree.flatten(function(*args, **keywords, **choices))
        structures.append(structure)
        return results

    try:
        exported = export.export(jax.jit(flat))(*leaves)
        header = json.dumps(_describe(structures[0]))
        return header.encode() + b"\n" + bytes(exported.serialize())
    # programs with calls into Python, or of which JAX does not promise that they stay valid
    except (_Unknown, ValueError, NotImplementedError):
        return b"\n"


def _read(path: str) -> bytes | None:
    """The content of a file that `_write` wrote; None where there is none, or a damaged one."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    digest, content = content[:DIGEST], content[DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


def _write(path: str, content: bytes) -> None:
    """Write a file with its checksum; one that cannot be written is not kept."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with atomic_path(path) as temporary:
            Path(temporary).write_bytes(hashlib.sha256(content).digest() + content)
    except OSError:
        pass


def _settings() -> tuple:
    """What else a traced program depends on."""
    config = tuple(str(getattr(jax.config, name, None)) for name in TRACING)
    return jax.default_backend(), x64_enabled(), os.environ.get("XLA_FLAGS", ""), config


def _describe(thing: Any) -> Any:
    """A description in JSON of a structure, of a choice or of a function of the package.

    Raises:
        _Unknown: anything else.
    """
    if thing is None or type(thing) in (bool, int, float, str):
        return {"value": thing}
    if thing is type(None):
        return {"class of None": None}
    if isinstance(thing, jax.tree_util.PyTreeDef):
        node = thing.node_data()
        if node is None:
            return {"leaf": None}
        children = [_describe(child) for child in thing.children()]
        return {"node": [_describe(part) for part in node], "children": children}
    if isinstance(thing, np.dtype):
        return {"dtype": thing.name}
    if type(thing) in (tuple, list):
        return {type(thing).__name__: [_describe(part) for part in thing]}
    if type(thing) is dict and all(isinstance(name, str) for name in thing):
        return {"dict": [[name, _describe(part)] for name, part in thing.items()]}
    if isinstance(thing, type | FunctionType):
        module, name = thing.__module__, thing.__qualname__
        if _is_known(module):
            if _find(module, name) is thing:
                return {"name": [module, name]}
            if registered_name(thing) is not None:
                return {"registered": registered_name(thing)}
    raise _Unknown(type(thing).__name__)


def _name(function: Callable) -> list[str]:
    """Module and name of a function of the package.

    Raises:
        _Unknown: another function, or one without a name of its own.
    """
    module, name = function.__module__, function.__qualname__
    if not _is_known(module) or "<" in name:
        raise _Unknown(name)
    return [module, name]


def _is_known(module: str) -> bool:
    """Whether the key covers the source of the module."""
    return module.partition(".")[0] in (*PACKAGES, "builtins")


def _find(module: str, name: str) -> Any:
    """The class or function of that name, or None."""
    definition: Any = importlib.import_module(module)
    for part in name.split("."):
        definition = getattr(definition, part, None)
    return definition


def _rebuild(about: Any) -> Any:
    """The inverse of `_describe`."""
    kind, content = next(iter(about.items()))
    if kind == "value":
        return content
    if kind == "class of None":
        return type(None)
    if kind == "leaf":
        return jax.tree.structure(0)
    if kind == "node":
        node = tuple(_rebuild(part) for part in content)
        children = [_rebuild(child) for child in about["children"]]
        make = jax.tree_util.PyTreeDef.from_node_data_and_children
        return make(jax.tree_util.default_registry, node, children)
    if kind == "dtype":
        return np.dtype(content)
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](_rebuild(part) for part in content)
    if kind == "dict":
        return {name: _rebuild(part) for name, part in content}
    return REGISTRY[content] if kind == "registered" else _find(*content)
