"""Compiled programs: their arguments, how many a process keeps, and a cache of them on disk."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import tempfile
import warnings
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from ..checks import as_path, caller_stacklevel

MOST_MAPS = 30_000  # of memory, before the package lets its programs go; Linux allows 65,530
_calls = itertools.count(1)
SETTINGS = {  # so that programs of any size and compilation time are kept
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def cache_programs(folder: str | os.PathLike | None = None) -> str | None:
    """Keep compiled programs on disk, so that later processes need not compile them.

    It turns on JAX's persistent compilation cache for this process, and for all programs, however
    small. The same settings go into the environment, so that processes started later inherit them:
    the workers of `cross_val_score(..., n_jobs=2)`, for example. Call it before the first
    computation; programs compiled before are not kept.

    Other versions of JAX, other devices and other XLA flags make other files, so that environments
    may share a folder. A damaged file costs a warning and the compilation. The folder grows without
    a bound; delete it to empty the cache. Whoever can write to the folder decides what is run.

    Args:
        folder: of the files; it is made if it does not exist. None: that of JAX's setting
            `jax_compilation_cache_dir` if there is one, else `jaxsvm` in the user's cache folder
            ($XDG_CACHE_HOME or ~/.cache; ~/Library/Caches on macOS, %LOCALAPPDATA% on Windows).

    Returns:
        The folder; None if it cannot be written. Then there is a warning, and nothing is changed.

    Raises:
        TypeError: folder is not a path.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.cache_programs()  # doctest: +SKIP
        '/home/me/.cache/jaxsvm'
    """
    config: Any = jax.config
    default = config.jax_compilation_cache_dir or user_cache_folder()
    path = os.path.expanduser(as_path("folder", default if folder is None else folder))
    try:
        if path.startswith("~"):
            raise FileNotFoundError(errno.ENOENT, "there is no home folder")
        path = os.path.abspath(path)
        os.makedirs(path, mode=0o700, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        text = f"compiled programs are not kept, as {path} cannot be written ({error.strerror})"
        advice = "give another folder, jaxsvm.cache_programs(folder)"
        warnings.warn(f"{text}: {advice}", stacklevel=caller_stacklevel())
        return None
    for name, value in {**SETTINGS, "jax_compilation_cache_dir": path}.items():
        config.update(name, value)
        os.environ[name.upper()] = str(value)
    reset_cache()  # JAX reads the settings at its first program only
    return path


def user_cache_folder() -> str:
    """The folder `jaxsvm` in the platform's cache folder of the user."""
    places = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Caches")}
    variable, place = places.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    base = os.environ.get(variable, "")
    # a relative path is to be ignored, by the XDG specification
    base = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), place)
    return os.path.join(base, "jaxsvm")


def release_programs() -> None:
    """Clear the caches of the package's compiled functions if the process has many memory maps.

    Every 64th call looks at that.
    They keep the programs of functions that are gone, such as a probe of each turn of a loop. Each
    takes up to 114 maps of memory; without room for another, XLA crashes. JAX compiles anew what is
    still in use. Functions of other packages keep their programs. It is for Linux alone.
    """
    if next(_calls) % 64 or not os.path.exists("/proc/self/maps"):
        return
    with open("/proc/self/maps", "rb") as maps:
        if sum(1 for _ in maps) <= MOST_MAPS:
            return
    package = __name__.split(".")[0]
    compiled: Any = type(jax.jit(len))
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package)]
    for value in [value for module in modules for value in list(vars(module).values())]:
        # not of another package
        if isinstance(value, compiled) and value.__module__.startswith(package):
            value.clear_cache()
