"""Strict arithmetic for our own code: no silent promotion of dtypes or ranks."""

import jax
import pytest

from jaxsvm.recipe import REGISTRY

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


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
