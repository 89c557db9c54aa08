"""Models: their values, by blocks of rows, on rows of any kind."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import KERNELS, an_expansion, close, equal, rows

import jaxsvm
from jaxsvm import kernels
from jaxsvm.data import Scale
from jaxsvm.models import Classifier, Expansion, Linear, Mapped, expansion

# Values


@pytest.mark.long
def test_linear():
    x, w = rows(9, 3), rows(3, 1)[:, 0]
    wide, model = np.asarray(w, np.float64), Linear(w, jnp.float32(0.5), "free")
    close(model(x), np.asarray(x, np.float64) @ wide + 0.5, rtol=1e-5, atol=1e-6)
    for bias, more in (("free", 0), ("none", 0), ("feature", 0.25)):
        norm = np.sum(wide**2) + more
        close(Linear(w, jnp.float32(0.5), bias).sqnorm(), norm, rtol=1e-6)
    twice = model.scaled(jnp.float32(2))
    assert twice.bias == "free" and float(twice.b) == 1.0
    equal(twice(x), 2 * model(x))


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbf", "nested"])
def test_expansion(name):
    kernel = KERNELS[name]
    model, x = an_expansion(kernel), rows(5, 3, 2)
    gram = lambda a, b: np.asarray(kernel(a, b), np.float64)
    coef = np.asarray(model.coef, np.float64)
    close(model(x), gram(x, model.x) @ coef + 0.25, rtol=1e-5, atol=1e-5)
    close(model.sqnorm(), coef @ gram(model.x, model.x) @ coef, rtol=1e-5)
    half = model.scaled(jnp.float32(0.5))
    assert half.bias == "free" and repr(half.kernel) == repr(model.kernel)
    close(half(x), 0.5 * model(x), rtol=1e-6, atol=1e-6)


def test_expansion_over_the_training_rows():
    data = jaxsvm.dataset([[1.0, 0.0], [0.0, 2.0]], [1, -1])
    model = expansion(kernels.linear(), jnp.array([2.0, -1.0]), data)
    equal(model.index, [0, 1])
    assert model.bias == "none" and float(model.b) == 0 and model.index.dtype == jnp.int32
    equal(model(data.x), [2.0, -4.0])


@pytest.mark.long
def test_support_holds_the_coefficients_that_are_not_0():
    coef, at = jnp.array([0.0, 0.5, 0.0, -1.5, 1e-30, 0.0, -0.0]), np.array([1, 3, 4])
    index = jnp.array([6, 5, 4, 3, -1, 1, 0], jnp.int32)
    model = dataclasses.replace(an_expansion(kernels.rbf(1.5)), coef=coef, index=index)
    support, x = model.support(), rows(5, 3, 2)
    assert all(isinstance(part, np.ndarray) for part in support[:2]) and support.b == 0.25
    equal(support.index, [5, 3, -1])
    equal(support.coef, np.asarray(coef)[at])
    gram = np.asarray(kernels.rbf(1.5)(x, model.x[at]), np.float64)
    close(model(x), gram @ support.coef + support.b, rtol=1e-6, atol=1e-6)
    assert dataclasses.replace(model, coef=jnp.zeros(7)).support().index.shape == (0,)


def test_mapped():
    phi, inner = jaxsvm.data.standardize(rows(20, 3)), Linear(jnp.arange(3.0), jnp.float32(1.0))
    model, x = Mapped(phi, inner), rows(4, 3, 1)
    equal(model(x), inner(phi(x)))
    assert float(model.sqnorm()) == 5.0
    equal(inner.scaled(jnp.float32(3)).w, [0, 3, 6])
    assert float(inner.scaled(jnp.float32(3)).b) == 3


@pytest.mark.long
def test_models_are_pytrees():
    linear, x = Linear(jnp.ones(2), jnp.zeros(())), rows(4, 3)
    for model in (linear, an_expansion(KERNELS["nested"]), Mapped(len, linear)):
        again = jax.tree.unflatten(*reversed(jax.tree.flatten(model)))
        assert type(again) is type(model)
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.b = 1
    model = an_expansion(kernels.rbf(1.0))
    close(jax.jit(lambda m, x: m(x))(model, x), model(x), rtol=1e-6, atol=1e-6)


# Blocks of rows


@pytest.mark.long
@pytest.mark.parametrize("block", [1, 5, 36, 37])
def test_blocks_smaller_than_the_rows_equal_one_block(block):
    """Up to rounding: a product of other shape may sum in another order."""
    model, x = an_expansion(KERNELS["sum"], n=37), rows(37, 3, 3)
    close(model(x, block=block), model(x), rtol=1e-5, atol=1e-5)
    close(model.sqnorm(block=block), model.sqnorm(), rtol=1e-5)


ZERO, WIDE = jnp.zeros(()), Linear(jnp.ones(64), jnp.zeros(()))
READERS = {
    "linear": WIDE,
    "expansion": Expansion(kernels.rbf(1.0), jnp.eye(3, 64), jnp.ones(3), ZERO, jnp.arange(3)),
    "mapped": Mapped(Scale(None, jnp.full(64, 2.0)), WIDE),
    "scale": Scale(jnp.ones(64), jnp.full(64, 2.0)),
    "kernel": lambda x: kernels.linear()(x, jnp.eye(3, 64)),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", READERS)
def test_rows_that_are_filled_again_after_the_call_are_read_before(name):
    """JAX reads a large array of NumPy after the call, as long as it does not begin at a multiple
    of 64 bytes."""
    read = READERS[name]
    x = np.random.default_rng(0).normal(size=(20000, 64)).astype(np.float32)
    memory = np.empty(x.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + 4
    buffer = memory[start : start + x.nbytes].view(np.float32).reshape(x.shape)
    wanted = np.asarray(read(jnp.asarray(x)))
    for _ in range(5):
        buffer[:] = x
        values = read(buffer)
        buffer[:] = 0
        equal(values, wanted)


@pytest.mark.long
def test_no_rows():
    assert an_expansion(kernels.rbf(1.0))(jnp.zeros((0, 3))).shape == (0,)
    assert Linear(jnp.ones(3), jnp.zeros(()))(jnp.zeros((0, 3))).shape == (0,)


def arrays_of(compiled):
    """The element counts of all arrays in a compiled program."""
    shapes = set(re.findall(r"\b[a-z]+\d+\[([\d,]*)\]", compiled.as_text()))
    return {math.prod(int(n) for n in shape.split(",") if n) for shape in shapes}


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbf", "laplacian", "nested"])
def test_temporaries_are_blocks(name):
    """No (n, m) array: with n = 4096, m = 256 that would be 4 MiB, a block of 64 rows is 64 KiB."""
    n, m, block = 4096, 256, 64
    model, x = an_expansion(KERNELS[name], n=m), jnp.ones((n, 3))
    at = lambda size: jax.jit(lambda model, x: model(x, block=size)).lower(model, x).compile()
    whole, parts = at(n), at(block)
    assert max(arrays_of(whole)) >= n * m, "the check sees the array that it looks for"
    assert max(arrays_of(parts)) < n * m / 8
    assert whole.memory_analysis().temp_size_in_bytes >= 4 * n * m
    assert parts.memory_analysis().temp_size_in_bytes < 4 * n * m / 8


@pytest.mark.long
def test_the_default_block_bounds_temporaries_too():
    bytes_of = lambda f, *a: jax.jit(f).lower(*a).compile().memory_analysis().temp_size_in_bytes
    n, m, model = 1 << 15, 128, an_expansion(kernels.rbf(1.0), n=128)
    assert bytes_of(lambda model, x: model(x), model, jnp.ones((n, 3))) < 4 * n * m / 4
    big = an_expansion(kernels.rbf(1.0), n=1 << 13)
    assert bytes_of(lambda model: model.sqnorm(), big) < 4 * (1 << 26) / 4


# Rows of another kind


KINDS = {
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "bool": lambda x: x > 0,
    "whole": lambda x: x.astype(np.int64),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", [None, kernels.rbf(1.0)], ids=str)
def test_rows_of_numpy_are_taken_as_float32(kernel, kind):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("f4") * 3
    model = Linear(jnp.arange(3.0), jnp.float32(1))
    if kernel is not None:
        index = jnp.arange(5, dtype=jnp.int32)
        model = Expansion(kernel, jnp.asarray(x), jnp.arange(5.0), jnp.float32(0), index)
    rows = KINDS[kind](x)
    equal(model(rows), model(jnp.asarray(np.asarray(rows, "f4"))))
    named = Classifier(model, ("a", "b"))
    equal(named.predict(rows), named.predict(rows.astype("f4")))
