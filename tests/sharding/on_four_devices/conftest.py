"""Rows on four devices, the same rows on one, and the program of a chunk of a run."""

import functools
import importlib

import collectives
import jax
import numpy as np
import pytest
from compiling import as_users
from jax.sharding import Mesh

import jaxsvm
from jaxsvm.loops.checks import adapted

FITTING = importlib.import_module("jaxsvm.loops.fitting")

COLUMNS = 123  # as a9a has them


@functools.cache
def binary_rows(n):
    """Rows of 14 ones among 123 columns, times a number that makes products round; labels of a
    noisy plane."""
    rng = np.random.default_rng(n)
    x = np.zeros((n, COLUMNS), np.float32)
    x[np.arange(n)[:, None], rng.random((n, COLUMNS)).argsort(axis=1)[:, :14]] = 0.37
    score = x @ rng.normal(size=COLUMNS) + 0.3 * rng.normal(size=n)
    return x, np.where(score > np.median(score), 1, -1).astype(np.float32)


@functools.cache
def normal_rows(n):
    """Normal rows, among which no two gains are equal, and noisy labels."""
    rng = np.random.default_rng(n)
    x = 0.3 * rng.normal(size=(n, COLUMNS))
    score = x @ rng.normal(size=COLUMNS) + rng.normal(size=n)
    return x.astype(np.float32), np.where(score > 0, 1, -1).astype(np.float32)


@pytest.fixture(scope="session")
def mesh():
    assert jax.device_count() == 4
    return jax.make_mesh((4,), ("rows",))


@pytest.fixture(scope="session")
def pair(mesh):
    """n -> the same rows on one device and on four, in the same blocks."""

    @functools.cache
    def make(n, blocks=4, rows=binary_rows):
        data = jaxsvm.dataset(*rows(n))
        one = Mesh(np.array(jax.devices()[:1]), ("rows",))
        return jaxsvm.shard(data, one, blocks=blocks), jaxsvm.shard(data, mesh, blocks=blocks)

    return make


@pytest.fixture(scope="session")
def compiled():
    """(solver, sharded data, sampler=None) -> the optimised program of a chunk of two steps, and
    its collectives by depth."""

    def make(solver, data, sampler=None):
        key = jax.random.key(0)
        run = jaxsvm.fit(solver, data, key, steps=0, sampler=sampler).state._replace(origin=None)
        call, draws, limit = adapted(solver, sampler, None, np.float32)
        with jax.set_mesh(data.y.sharding.mesh):
            inputs = FITTING.placed(call, draws, None, data, True)
            lowered = FITTING.run_chunk.lower(inputs, run, limit, np.int32(2), table=2)
            program = lowered.compile(as_users())
        return program, collectives.by_depth(program.as_text())

    return make
