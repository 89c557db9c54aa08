"""A cache of compiled programs on disk, which later processes and worker processes read.

It is set only when the user calls for it.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import warnings
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from ..checks import as_path, caller_stacklevel

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
    if folder is None:
        folder = config.jax_compilation_cache_dir or user_cache_folder()
    path = os.path.expanduser(as_path("folder", folder))
    try:
        if path.startswith("~"):
            raise FileNotFoundError(errno.ENOENT, "there is no home folder")
        path = os.path.abspath(path)
        os.makedirs(path, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled programs are not kept, as {path} cannot be written ({error.strerror}): "
            "give another folder, jaxsvm.cache_programs(folder)",
            stacklevel=caller_stacklevel(),
        )
        return None
    settings = {**SETTINGS, "jax_compilation_cache_dir": path}
    was_on = all(getattr(config, name) == value for name, value in settings.items())
    for name, value in settings.items():
        config.update(name, value)
        os.environ[name.upper()] = str(value)
    if not was_on:
        reset_cache()  # JAX reads the settings at its first program only
    return path


def user_cache_folder() -> str:
    """The folder `jaxsvm` in the platform's cache folder of the user."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        # a relative path is to be ignored, by the XDG specification
        base = base if os.path.isabs(base) else os.path.join(home, ".cache")
    return os.path.join(base, "jaxsvm")
