"""Rows in chunks, and streams over them: of the tests of streams."""

import functools
import importlib

import jax
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, samplers

# the package has a function of this name
streams = importlib.import_module("jaxsvm.loops.streaming")

KEY = jax.random.key(0)
N, D = 100, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, D)).astype(np.float32)
NOISE = 0.3 * RANDOM.normal(size=N)
Y = np.sign(X @ np.array([1.0, -1, 0.5, 0], np.float32) + NOISE).astype(np.float32)
DATA = jaxsvm.dataset(X, Y)
THREE = jaxsvm.dataset(X, np.arange(N) % 3, task="multiclass")
RARE = scipy.sparse.random(N, 50, 0.1, random_state=0, format="csr", dtype=np.float32)
PEGASOS, SDCA = jaxsvm.pegasos(0.1, bias="free"), jaxsvm.sdca(1.0)
AVERAGED = jaxsvm.averaged(jaxsvm.pegasos(0.1))
PHI = features.fourier(KEY, kernels.rbf(1.0), dim=D, features=D)


def pieces(*sizes):
    """(x, y) tuples of these sizes, one after the other."""
    ends = np.cumsum(sizes)
    return [(X[start:end], Y[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


HALVES, FIFTHS = pieces(50, 50), pieces(*[20] * 5)


def stream(chunks=((X, Y),), solver=PEGASOS, **options):
    """A stream from its start, or from a state."""
    return jaxsvm.stream(solver, chunks, **{"key": None if "state" in options else KEY} | options)


def fitted(solver, b=1, data=DATA, passes=1):
    """The run over the rows in their order."""
    steps, sampler = passes * N // b, samplers.epochs(b, shuffle=False)
    return jaxsvm.fit(solver, data, KEY, steps=steps, sampler=sampler)


def near(a, b):
    """The same steps in another program: a few roundings of float32."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def same(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in leaves)


@functools.cache
def in_one(solver, b):
    return stream(solver=solver, rows=N, batch_size=b)
