"""Strict arithmetic for our own code: no silent promotion of dtypes or ranks. XLA compiles quickly."""

import os

import jax
import pytest

from jaxsvm.recipe import REGISTRY

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Nearly all of the time is compilation of programs that run once: these flags halve it. Read when JAX starts, after the
# imports. With XLA_FLAGS set, to nothing too (`XLA_FLAGS= pytest`), programs are compiled as users have them.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1")


@pytest.fixture
def x64():
    """float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def registry():
    """The registry as it was, afterwards."""
    before = dict(REGISTRY)
    yield REGISTRY
    REGISTRY.clear()
    REGISTRY.update(before)
