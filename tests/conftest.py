"""Strict arithmetic for our own code: no silent promotion of dtypes or ranks. XLA compiles
quickly."""

import atexit
import collections
import gc
import itertools
import os
import pathlib
import shutil
import tempfile

import jax
import pytest
from compiling import FLAGS, known_flags

from jaxsvm._node import REGISTRY
from jaxsvm.loops import program_cache as programs

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Nearly all of the time is compilation of programs that run once: compiled so, they take less than
# half. XLA's flags are
# read when JAX starts, after the imports; commands and notebooks take the environment. With
# XLA_FLAGS set, to nothing too
# (`XLA_FLAGS= pytest`), programs are compiled as users have them.
# An XLA that does not know a flag aborts, so it is asked first: JAX 0.12 has no other emitters than
# those of fusions.
if "XLA_FLAGS" not in os.environ:
    os.environ.update(
        {"XLA_FLAGS": " ".join(known_flags(*FLAGS)), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    )
    jax.config.update("jax_disable_most_optimizations", True)
# Two workers share two processors. BLAS threads that wait for each other would spin meanwhile:
# small linear systems, as of `implicit`, take up to ten times as long. Workers and notebooks start
# with it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.set_threshold(200_000, 50, 1000)  # traces are many small objects

# What one process of a run has compiled, the others find: pytest's workers, notebooks, commands.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
CACHE = {
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
os.environ.update({name.upper(): str(value) for name, value in CACHE.items()})
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
for name, value in CACHE.items():
    jax.config.update(name, value)


def mark_long(items):
    """Notebooks are long tests. Of a test marked `long(but=k)` the first k cases are not."""
    seen = collections.Counter()
    for item in items:
        marker = item.get_closest_marker("long")
        if item.nodeid.split("::")[0].endswith(".ipynb"):
            item.add_marker(pytest.mark.long)
        elif marker and seen[item.obj] < marker.kwargs.get("but", 0):
            item.own_markers = [m for m in item.own_markers if m.name != "long"]
            seen[item.obj] += 1


@pytest.hookimpl(tryfirst=True)  # before `-m` is read
def pytest_collection_modifyitems(items):
    """Notebooks first, as they take longest; the tests of one solver follow each other: they run
    the same compiled programs."""
    mark_long(items)
    met = {}  # modules and cases, in the order in which they come

    def place(item):
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        name = item.nodeid.split("::")[0]
        module = met.setdefault(name, len(met))
        return (
            not name.endswith(".ipynb"),
            module,
            met.setdefault((module, getattr(case, "text", None)), len(met)),
        )

    items.sort(key=place)


# The package lets its programs go between two tests, as below, and not within one that counts them.
programs.MOST_MAPS = 50_000
MAPS = pathlib.Path("/proc/self/maps")
_ended = itertools.count(1)


def pytest_runtest_teardown():
    """Forget compiled programs before the process has as many pieces of memory as Linux allows
    (65,530): XLA would crash."""
    if next(_ended) % 50 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()


@pytest.fixture
def x64():
    """float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def usual_promotion():
    """As users have it: the strict promotion of these tests is for our own arithmetic."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def optimised():
    """Programs compiled with all optimisations, for a test whose runs take longer than its
    compilation."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def registry():
    """The registry as it was, afterwards."""
    before = dict(REGISTRY)
    yield REGISTRY
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def path(tmp_path):
    """A file where nothing is yet."""
    return tmp_path / "a.model"
