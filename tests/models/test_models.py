"""Models, and the files that hold them: nothing is unpickled, nothing half written, nothing half
read."""

import copy
import dataclasses
import gc
import io
import json
import os
import pathlib
import re
import tempfile
import tracemalloc
import warnings
import zipfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import scipy.sparse
from compiling import can_convert
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import features, kernels, losses, models, recipe, samplers
from jaxsvm.data import Scale, Standardize
from jaxsvm.engines import gradient
from jaxsvm.engines.gradient_descent import Weights
from jaxsvm.loops.streaming import StreamState
from jaxsvm.models import (
    Classifier,
    Expansion,
    Linear,
    Mapped,
    expansion,
    load,
    save,
    serialization,
)
from jaxsvm.recipe import Recipe
from jaxsvm.types import Curve, RunState
from jaxsvm.wrappers import OneVsOne, OneVsRest


def rows(n, d, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, d))


def an_expansion(kernel, n=7, d=3, **changes):
    made = Expansion(
        kernel,
        rows(n, d),
        rows(n, 1, 1)[:, 0],
        jnp.float32(0.25),
        jnp.arange(n, dtype=jnp.int32),
        "free",
    )
    return dataclasses.replace(made, **changes)


# Values


def test_linear():
    x, w = rows(9, 3), rows(3, 1)[:, 0]
    model = Linear(w, jnp.float32(0.5), "free")
    np.testing.assert_allclose(
        model(x), np.asarray(x, np.float64) @ np.asarray(w, np.float64) + 0.5, rtol=1e-5, atol=1e-6
    )
    norm = float(np.sum(np.asarray(w, np.float64) ** 2))
    np.testing.assert_allclose(model.sqnorm(), norm, rtol=1e-6)
    np.testing.assert_allclose(Linear(w, jnp.float32(0.5)).sqnorm(), norm, rtol=1e-6)
    np.testing.assert_allclose(
        Linear(w, jnp.float32(0.5), "feature").sqnorm(), norm + 0.25, rtol=1e-6
    )
    twice = model.scaled(jnp.float32(2))
    assert twice.bias == "free" and float(twice.b) == 1.0
    np.testing.assert_array_equal(twice(x), 2 * model(x))


KERNELS = {
    "linear": kernels.linear(),
    "rbf": kernels.rbf(1.5),
    "gamma": kernels.rbf(gamma=0.5),
    "laplacian": kernels.laplacian(2.0),
    "polynomial": kernels.polynomial(0.5, 1.0, degree=2),
    "sigmoid": kernels.sigmoid(0.1, -1.0),
    "sum": kernels.rbf(1.0) + kernels.linear(),
    "product": kernels.rbf(1.0) * kernels.polynomial(degree=2),
    "scaled": 0.5 * kernels.rbf(1.0),
    "nested": 2.0 * (kernels.rbf(1.0) + kernels.linear() * kernels.sigmoid())
    + kernels.laplacian(1.0),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["rbf", "nested"])
def test_expansion(name):
    kernel = KERNELS[name]
    model, x = an_expansion(kernel), rows(5, 3, 2)
    gram = lambda a, b: np.asarray(kernel(a, b), np.float64)
    coef = np.asarray(model.coef, np.float64)
    np.testing.assert_allclose(model(x), gram(x, model.x) @ coef + 0.25, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.sqnorm(), coef @ gram(model.x, model.x) @ coef, rtol=1e-5)
    half = model.scaled(jnp.float32(0.5))
    assert half.bias == "free" and repr(half.kernel) == repr(model.kernel)
    np.testing.assert_allclose(half(x), 0.5 * model(x), rtol=1e-6, atol=1e-6)


def test_expansion_over_the_training_rows():
    data = jaxsvm.dataset([[1.0, 0.0], [0.0, 2.0]], [1, -1])
    model = expansion(kernels.linear(), jnp.array([2.0, -1.0]), data)
    np.testing.assert_array_equal(model.index, [0, 1])
    assert model.bias == "none" and float(model.b) == 0 and model.index.dtype == jnp.int32
    np.testing.assert_array_equal(model(data.x), [2.0, -4.0])
    with pytest.raises(
        ValueError, match=r"expansion over the training rows: call solver\.model\(state, data\)"
    ):
        expansion(kernels.linear(), jnp.ones(2), None)


@pytest.mark.long
def test_support_holds_the_coefficients_that_are_not_0():
    coef = jnp.array([0.0, 0.5, 0.0, -1.5, 1e-30, 0.0, -0.0])
    index = jnp.array([6, 5, 4, 3, -1, 1, 0], jnp.int32)
    model = dataclasses.replace(an_expansion(kernels.rbf(1.5)), coef=coef, index=index)
    support = model.support()
    assert all(isinstance(part, np.ndarray) for part in support[:2]) and support.b == 0.25
    np.testing.assert_array_equal(support.index, [5, 3, -1])
    np.testing.assert_array_equal(support.coef, np.asarray(coef)[[1, 3, 4]])
    x = rows(5, 3, 2)
    alone = (
        np.asarray(kernels.rbf(1.5)(x, model.x[jnp.array([1, 3, 4])]), np.float64) @ support.coef
        + support.b
    )
    np.testing.assert_allclose(model(x), alone, rtol=1e-6, atol=1e-6)
    assert dataclasses.replace(model, coef=jnp.zeros(7)).support().index.shape == (0,)
    with pytest.raises(TypeError, match="outside of jit, vmap and grad"):
        jax.jit(lambda model: model.support())(model)


def test_mapped():
    phi = jaxsvm.data.standardize(rows(20, 3))
    inner = Linear(jnp.arange(3.0), jnp.float32(1.0))
    model = Mapped(phi, inner)
    np.testing.assert_array_equal(model(rows(4, 3, 1)), inner(phi(rows(4, 3, 1))))
    assert float(model.sqnorm()) == 5.0


@pytest.mark.long
def test_models_are_pytrees():
    for model in (
        Linear(jnp.ones(2), jnp.zeros(())),
        an_expansion(KERNELS["nested"]),
        Mapped(len, Linear(jnp.ones(2), 0.0)),
    ):
        again = jax.tree.unflatten(*reversed(jax.tree.flatten(model)))
        assert type(again) is type(model)
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.b = 1
    x = rows(4, 3)
    model = an_expansion(kernels.rbf(1.0))
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, x), model(x), rtol=1e-6, atol=1e-6)


# Blocks of rows


@pytest.mark.long
@pytest.mark.parametrize("block", [1, 5, 36, 37])
def test_blocks_smaller_than_the_rows_equal_one_block(block):
    """Up to rounding: a product of other shape may sum in another order."""
    model, x = an_expansion(KERNELS["sum"], n=37), rows(37, 3, 3)
    np.testing.assert_allclose(model(x, block=block), model(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.sqnorm(block=block), model.sqnorm(), rtol=1e-5)


READERS = {
    "linear": Linear(jnp.ones(64), jnp.zeros(())),
    "expansion": Expansion(
        kernels.rbf(1.0), jnp.eye(3, 64), jnp.ones(3), jnp.zeros(()), jnp.arange(3)
    ),
    "mapped": Mapped(Scale(None, jnp.full(64, 2.0)), Linear(jnp.ones(64), jnp.zeros(()))),
    "scale": Scale(jnp.ones(64), jnp.full(64, 2.0)),
    "kernel": lambda x: kernels.linear()(x, jnp.eye(3, 64)),
}


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
        np.testing.assert_array_equal(values, wanted)


def test_no_rows():
    assert an_expansion(kernels.rbf(1.0))(jnp.zeros((0, 3))).shape == (0,)
    assert Linear(jnp.ones(3), jnp.zeros(()))(jnp.zeros((0, 3))).shape == (0,)


def arrays_of(compiled):
    """The element counts of all arrays in a compiled program."""
    shapes = set(re.findall(r"\b[a-z]+\d+\[([\d,]*)\]", compiled.as_text()))
    return {
        int(np.prod([int(n) for n in shape.split(",") if n], dtype=np.int64)) for shape in shapes
    }


@pytest.mark.parametrize("name", ["rbf", "laplacian", "nested"])
def test_temporaries_are_blocks(name):
    """No (n, m) array: with n = 4096, m = 256 that would be 4 MiB, a block of 64 rows is 64 KiB."""
    n, m, block = 4096, 256, 64
    model, x = an_expansion(KERNELS[name], n=m), jnp.ones((n, 3))
    whole = jax.jit(lambda model, x: model(x, block=n)).lower(model, x).compile()
    parts = jax.jit(lambda model, x: model(x, block=block)).lower(model, x).compile()
    assert max(arrays_of(whole)) >= n * m, "the check sees the array that it looks for"
    assert max(arrays_of(parts)) < n * m / 8
    assert whole.memory_analysis().temp_size_in_bytes >= 4 * n * m
    assert parts.memory_analysis().temp_size_in_bytes < 4 * n * m / 8


@pytest.mark.long
def test_the_default_block_bounds_temporaries_too():
    n, m = 1 << 15, 128
    model, x = an_expansion(kernels.rbf(1.0), n=m), jnp.ones((n, 3))
    compiled = jax.jit(lambda model, x: model(x)).lower(model, x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * n * m / 4
    big = an_expansion(kernels.rbf(1.0), n=1 << 13)
    compiled = jax.jit(lambda model: model.sqnorm()).lower(big).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * (1 << 26) / 4


# Files: round trips


def same(found, wanted):
    """The same tree: classes, structure, dtypes, every bit."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for have, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        same_leaf(have, want)


def same_leaf(have, want):
    if isinstance(want, jax.Array | np.ndarray | np.generic):
        assert isinstance(have, jax.Array) and have.dtype == want.dtype and have.shape == want.shape
        if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(have) == jax.random.key_impl(want)
            have, want = jax.random.key_data(have), jax.random.key_data(want)
        assert np.asarray(have).tobytes() == np.asarray(want).tobytes()
    else:
        assert type(have) is type(want) and (have == want or have != have and want != want)


def again(tree, path):
    save(path, tree)
    return load(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tree.npz"


@pytest.mark.parametrize("name", KERNELS)
def test_models_with_every_kernel(name, path):
    model = an_expansion(KERNELS[name])
    found = again(model, path)
    same(found, model)
    assert repr(found.kernel) == repr(model.kernel) and found.bias == "free"
    np.testing.assert_array_equal(found(rows(2, 3, 1)), model(rows(2, 3, 1)))


def test_a_precomputed_kernel(path):
    model = expansion(
        kernels.precomputed(),
        jnp.array([1.0, 2.0]),
        jaxsvm.dataset([[2.0, 1.0], [1.0, 2.0]], [1, -1]),
    )
    np.testing.assert_array_equal(again(model, path)(model.x), model(model.x))


@pytest.mark.parametrize(
    "model",
    [
        Linear(jnp.arange(3.0), jnp.float32(2.0)),
        Linear(jnp.arange(3.0), jnp.float32(2.0), "feature"),
        Mapped(jaxsvm.data.standardize(rows(4, 3)), Linear(jnp.arange(3.0), jnp.float32(2.0))),
        jaxsvm.dataset([[1.0], [-1.0]], [1, -1]),
        kernels.rbf(0.5),
        jaxsvm.averaged(jaxsvm.pegasos(0.1, loss=losses.squared_hinge, bias="free"), start=5),
        samplers.epochs(4, shuffle=False),
    ],
    ids=repr,
)
def test_models_data_and_recipes(model, path):
    found = again(model, path)
    same(found, model)
    assert type(found) is type(model)
    if isinstance(model, Recipe):
        assert repr(found) == repr(model)


def own_block(x, z):
    return 1.0 + jnp.matmul(x, z.T)


def own_diag(x):
    return 1.0 + jnp.sum(x * x, 1)


@pytest.mark.parametrize(
    "kernel", [lambda k: k, lambda k: 0.5 * k + kernels.linear()], ids=["alone", "in a sum"]
)
def test_a_registered_kernel_of_ones_own(kernel, path, registry):
    kernels.register("tests.own_block", own_block)
    kernels.register("tests.own_diag", own_diag)
    model = an_expansion(kernel(kernels.custom(own_block, own_diag)))
    found = again(model, path)
    np.testing.assert_array_equal(found(rows(2, 3)), model(rows(2, 3)))
    np.testing.assert_array_equal(found.kernel.diag(rows(2, 3)), model.kernel.diag(rows(2, 3)))


def test_an_unregistered_kernel_is_refused(path):
    save(path, jnp.ones(2))
    with pytest.raises(
        ValueError,
        match=r"cannot save <function own.*register yours with .*kernels\.register\(name, fn\)",
    ):
        save(path, an_expansion(kernels.custom(own_block)))
    np.testing.assert_array_equal(load(path), jnp.ones(2))
    assert os.listdir(path.parent) == [path.name]


def test_a_kernel_that_the_reader_has_not_registered(path, registry):
    kernels.register("tests.own_block", own_block)
    model = an_expansion(kernels.custom(own_block))
    save(path, model)
    del registry["tests.own_block"]
    with pytest.raises(
        ValueError,
        match=r"the file holds 'tests\.own_block', which is not registered: import or register it",
    ):
        load(path)
    same(load(path, like=model), model)


X4 = jaxsvm.dataset([[1.0, 0.0], [-1.0, 0.5], [2.0, 1.0], [-2.0, 0.0]], [1, -1, 1, -1])

SOLVERS = {
    "pegasos": jaxsvm.pegasos(0.1),
    "pegasos free": jaxsvm.pegasos(0.1, bias="free"),
    "pegasos active": jaxsvm.pegasos(0.1, advance_on_violation=True, bias="feature"),
    "averaged": jaxsvm.averaged(jaxsvm.pegasos(0.1), weights=lambda t: t + 1),
    "asgd": jaxsvm.asgd(0.1, bias="free"),
    "bottou": jaxsvm.bottou_sgd(0.1, bias="free"),
    "subgradient": jaxsvm.subgradient(0.1, bias="free"),
    "sdca": jaxsvm.sdca(1.0),
    "sdca kernel": jaxsvm.sdca(1.0, kernels.rbf(1.0)),
    "kernel pegasos": jaxsvm.kernel_pegasos(0.1, kernels.rbf(1.0)),
    "perceptron": jaxsvm.perceptron(kernels.rbf(1.0), average=True),
    "constrained": jaxsvm.constrained_sgd(1.0, kernels.rbf(1.0)),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_runs_of_every_solver(name, path):
    solver = SOLVERS[name]
    sampler = solver.sampler

    @jax.jit
    def start(key):
        state = solver.init(key, X4)
        return RunState(state, sampler.init(key, X4), jnp.int32(3), jnp.zeros((), bool))

    run = start(jax.random.key(1))
    found = again(run, path)
    same(found, run)
    assert isinstance(found, RunState) and type(found.solver) is type(run.solver)
    same(load(path, like=run), run)


OPTIMISERS = {
    "adam": optax.adam(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "partition": optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, Weights("a", "b")),
    "masked": optax.masked(optax.adam(0.1), Weights(True, False)),
    "injected": optax.inject_hyperparams(optax.sgd)(0.1),
    "schedule": optax.chain(
        optax.clip(1.0), optax.scale_by_schedule(optax.cosine_decay_schedule(0.1, 10))
    ),
    "finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "lbfgs": optax.scale_by_lbfgs(),
    "averages": optax.chain(optax.sgd(0.1), jaxsvm.average_iterates(weights=lambda t: t + 1)),
    "schedule-free": optax.contrib.schedule_free_sgd(0.1),
    "dog": optax.contrib.dog(0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_states_of_optax(name, path):
    """What the gradient engine is given, its contrib optimisers too, is saved by
    `fit(save=...)`."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state = gradient(losses.hinge, OPTIMISERS[name], bias="free").init(jax.random.key(0), X4)
    same(again(state, path), state)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys(impl, path):
    tree = {
        "one": jax.random.key(3, impl=impl),
        "many": jax.random.split(jax.random.key(4, impl=impl), 3),
    }
    found = again(tree, path)
    same(found, tree)
    np.testing.assert_array_equal(
        jax.random.normal(found["one"], (3,)), jax.random.normal(tree["one"], (3,))
    )


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    "dtype",
    [
        jnp.bfloat16,
        jnp.float8_e4m3fn,
        jnp.int4,
        jnp.float16,
        jnp.float32,
        jnp.complex64,
        jnp.int8,
        jnp.uint16,
        jnp.uint32,
        bool,
    ],
    ids=lambda d: np.dtype(d).name,
)
def test_dtypes(dtype, path):
    if not can_convert(dtype):
        pytest.skip(f"XLA has no {np.dtype(dtype).name} on this processor")
    array = jnp.asarray([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    tree = (array, array[0, 1], array[:0], array[:, :0])
    same(again(tree, path), tree)


def test_numpy_arrays_come_back_as_jax_arrays(path):
    tree = [
        np.arange(3, dtype=np.int32),
        np.float32(0.5),
        np.ones((2, 3), np.float32, order="F").T,
        np.bool_(True),
    ]
    tree.append(np.arange(3, dtype=np.float32).astype(ml_dtypes.bfloat16))
    same(again(tree, path), tree)


def test_arrays_in_the_other_byte_order(path):
    same(
        again(np.arange(6, dtype=">i2").reshape(2, 3), path),
        np.arange(6, dtype=np.int16).reshape(2, 3),
    )


def test_float64_with_and_without_x64(path):
    with jax.enable_x64(True):
        tree = {
            "x": jnp.array([1.0, 1e300, -0.0]),
            "i": jnp.array([2**40]),
            "u": jnp.array(2**63, jnp.uint64),
        }
        same(again(tree, path), tree)
    for like in (None, tree):
        with pytest.raises(
            ValueError,
            match=(
                r"64-bit numbers: switch them on first, "
                r"jax\.config\.update\('jax_enable_x64', True\)"
            ),
        ):
            load(path, like=like)


def test_complex128_without_x64_is_not_narrowed_silently(path):
    with jax.enable_x64(True):
        save(path, jnp.array([1.0 + 1e-12j]))
    with pytest.raises(ValueError, match="switch them on first"):
        load(path)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        False,
        0,
        -(2**80),
        0.1,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        "",
        "snow \u2744 \x00 \U0001f600",
        (),
        [],
        {},
        {"": {"value": 1, "array": 2, "named": "Linear"}, "b": [None, (1, "x"), []], "a": ((),)},
        [1, 2.5, {"z": (True, None)}],
        {"b": jnp.zeros(()), "a": [jnp.zeros((0, 3)), ((jnp.ones(2),),)]},
    ],
    ids=repr,
)
def test_plain_values(tree, path):
    found = again(tree, path)
    same(found, tree)
    assert str(found) == str(tree), "inf, nan, -0.0, and the order of entries"


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        (object(), "cannot save <object obj"),
        ({1: 2}, r"cannot save \{1: 2\}"),
        ({1, 2}, r"cannot save \{1, 2\}"),
        (b"bytes", "cannot save b'bytes'"),
        (1j, "cannot save 1j"),
        ([lambda x: x], "cannot save <function <la"),
        (np.array([object()]), "an array of object cannot be saved"),
        (kernels.custom(lambda x, z: x @ z.T), "cannot save <function"),
    ],
    ids=["object", "int keys", "set", "bytes", "complex", "lambda", "object array", "kernel"],
)
def test_what_cannot_be_saved_is_refused_with_a_sentence(tree, shown, path):
    with pytest.raises(ValueError, match=shown):
        save(path, {"fine": jnp.ones(2), "not": tree})
    assert os.listdir(path.parent) == []


def test_what_cannot_be_read_back_is_refused_when_it_is_saved():
    """Not at the end of a long run, when it is loaded."""
    for tree in (np.array(["a", "b"]), np.array([b"a"]), np.array(["2020-01-01"], "datetime64[D]")):
        with tempfile.TemporaryDirectory() as folder, pytest.raises(ValueError):
            save(os.path.join(folder, "x"), tree)


def test_a_class_that_is_not_registered(path):
    class Loose(NamedTuple):
        a: Any

    @dataclasses.dataclass
    class Bare:
        a: Any

    for tree in (Loose(jnp.ones(2)), Bare(jnp.ones(2))):
        with pytest.raises(
            ValueError, match=r"cannot save .*register yours with jaxsvm\.register\(name, thing\)"
        ):
            save(path, tree)


def test_paths_may_be_strings(tmp_path):
    save(str(tmp_path / "file without suffix"), jnp.ones(2))
    assert os.listdir(tmp_path) == ["file without suffix"]
    np.testing.assert_array_equal(load(str(tmp_path / "file without suffix")), jnp.ones(2))


# like=


class Loose(NamedTuple):
    """A class that the reader has not registered."""

    w: Any
    inner: Any


def test_like_gives_the_classes(path, registry):
    recipe.register("tests.Loose", Loose)
    tree = Loose(jnp.ones(2), {"b": (jnp.int32(1), None), "a": [jax.random.key(1), 0.5]})
    save(path, tree)
    del registry["tests.Loose"]
    with pytest.raises(
        ValueError,
        match=r"the file holds 'tests\.Loose', which is not registered.*load\(path, like=\.\.\.\)",
    ):
        load(path)
    like = Loose(jnp.zeros(2), {"b": (jnp.int32(7), None), "a": [jax.random.key(9), 1.5]})
    found = load(path, like=like)
    assert type(found) is Loose
    same(found, tree)


def test_like_may_be_shapes_alone(path):
    tree = {"w": jnp.ones((2, 3)), "t": jnp.int32(4)}
    save(path, tree)
    same(load(path, like=jax.eval_shape(lambda: tree)), tree)


def test_like_with_plain_numbers_and_words(path):
    """Whole numbers, strings and booleans are leaves of a dict for JAX."""
    tree = {"n": 3, "name": "x", "on": True, "w": jnp.ones(2), "rate": 0.5, "none": None}
    save(path, tree)
    same(load(path, like={**tree, "w": jnp.zeros(2)}), tree)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            {"w": jnp.zeros(3), "t": jnp.int32(0)},
            r"the file holds an array float32\[2\] where `like` has float32\[3\]",
        ),
        (
            {"w": jnp.zeros(2), "t": jnp.zeros(())},
            r"the file holds an array int32\[\] where `like` has float32\[\]",
        ),
        ({"w": jnp.zeros(2)}, "the file holds 2 arrays, `like` has 1"),
        (
            {"w": jnp.zeros(2), "t": jnp.int32(0), "z": jnp.zeros(1)},
            "the file holds 2 arrays, `like` has 3",
        ),
    ],
    ids=["shape", "dtype", "fewer", "more"],
)
def test_like_that_does_not_fit(like, message, path):
    save(path, {"w": jnp.ones(2), "t": jnp.int32(5)})
    with pytest.raises(ValueError, match=message):
        load(path, like=like)


@pytest.mark.parametrize(
    ("tree", "like"),
    [
        ({"w": 1.0, "t": 2.0}, {"w": 1.0, "b": 2.0}),
        ((1.0, 2.0), [1.0, 2.0]),
        (Linear(jnp.ones(2), 0.5, "free"), Linear(jnp.ones(2), 0.5, "none")),
        (kernels.rbf(2.0), kernels.laplacian(2.0)),
        (kernels.polynomial(degree=2), kernels.polynomial(degree=3)),
    ],
    ids=["names", "list", "bias", "kernel", "degree"],
)
def test_like_of_another_structure(tree, like, path):
    """Numbers that fit by chance must not make another model."""
    save(path, tree)
    same(load(path, like=tree), tree)
    with pytest.raises(ValueError, match="like"):
        load(path, like=like)


# Files of other versions


class Older(NamedTuple):
    """A state before its class grew."""

    w: Any


class Grown(NamedTuple):
    """The same with a field that older files do not have."""

    w: Any
    more: Any = None


class Needy(NamedTuple):
    """The same with a field that has to be there."""

    w: Any
    more: Any


@pytest.mark.parametrize("like", [False, True])
def test_files_of_another_version(like, path, registry):
    """A field with a default may be missing; any other difference is told as what it is."""
    recipe.register("tests.Older", Older)
    save(path, Older(jnp.ones(2)))
    for cls, fits in ((Grown, True), (Needy, False), (Linear, False)):
        registry["tests.Older"] = cls
        given = (
            {"like": cls(*[jnp.zeros(2)] * (2 if cls is Needy else 1))}
            if like and cls is not Linear
            else {}
        )
        if fits:
            same(load(path, **given), Grown(jnp.ones(2)))
            continue
        with pytest.raises(
            ValueError, match="of another version of jaxsvm|holds 1 arrays, `like` has 2"
        ):
            load(path, **given)


def test_sparse_rows_saved_before_they_could_be_packed(path, monkeypatch):
    x = jaxsvm.dataset(scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.0]]), [1, -1]).x
    encode = serialization._encode

    def older(node, arrays):
        made = encode(node, arrays)
        made.get("fields", {}).pop("start", None)
        return made

    monkeypatch.setattr(serialization, "_encode", older)
    save(path, x)
    monkeypatch.undo()
    for extra in ({}, {"like": x}):
        assert np.array_equal(load(path, **extra).toarray(), x.toarray())


# Nothing is unpickled


class Trap:
    """Leaves a mark where it is unpickled."""

    sprung = []

    def __reduce__(self):
        return Trap.sprung.append, (1,)


def zipped(path, header, **arrays):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)


def test_a_file_with_an_object_array_is_refused(path):
    array = np.empty(1, object)
    array[0] = Trap()
    zipped(path, {"format": 1, "tree": {"array": 0, "dtype": "float32"}}, a0=array)
    with pytest.raises(
        ValueError, match=re.escape(f"{path} is damaged or was not written by jaxsvm.models.save")
    ):
        load(path)
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=True)
    with pytest.raises(ValueError, match="is damaged or was not written by"):
        load(path)
    assert Trap.sprung == []


def test_a_pickle_is_refused(path):
    import pickle

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="is damaged or was not written by"):
        load(path)
    assert Trap.sprung == []


@pytest.mark.parametrize(
    "name", ["os.system", "optax.adam", "optax.os", "optax.tree", "builtins.eval", "optax.__name__"]
)
def test_only_registered_names_are_found(name, path):
    for kind in ("call", "named", "function"):
        zipped(path, {"format": 1, "tree": {kind: name, "args": [], "kwargs": {}, "fields": {}}})
        with pytest.raises(ValueError, match=f"the file holds '{name}', which is not registered"):
            load(path)


# Damaged files


WHOLE = {
    "model": an_expansion(kernels.rbf(0.5), n=30),
    "key": jax.random.key(7),
    "bf16": jnp.arange(11.0, dtype=jnp.bfloat16),
    "rest": [1, 0.25, "word", None, True],
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "whole.npz"
    save(path, WHOLE)
    return path.read_bytes()


def identical_or_refused(content, path):
    """Loads to the identical tree (True), or raises ValueError that names the file (False);
    anything else fails."""
    pathlib.Path(path).write_bytes(content)
    try:
        found = load(path)
    except ValueError as error:
        assert type(error) is ValueError, f"a subclass may say anything: {error!r}"
        assert str(path) in str(
            error
        ) and "is damaged or was not written by jaxsvm.models.save" in str(error)
        return False
    same(found, WHOLE)
    return True


def test_the_intact_file_loads(intact, path):
    assert identical_or_refused(intact, path)


def test_truncated_files(intact, path):
    for end in np.linspace(0, len(intact) - 1, 50).astype(int):
        assert not identical_or_refused(intact[:end], path), f"cut at byte {end} of {len(intact)}"


def test_bytes_appended_or_in_front(intact, path):
    identical_or_refused(intact + b"\0" * 40, path)
    identical_or_refused(b"\0" * 40 + intact, path)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(data=st.data())
def test_flipped_bytes(intact, data):
    """One to three bytes, anywhere."""
    content = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(intact) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        identical_or_refused(bytes(content), os.path.join(folder, "tree.npz"))


def places_of_structure(content):
    """The bytes of the zip's own records and of the headers of its arrays: all but the numbers."""
    places = []
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        for info in file.infolist():
            start = info.header_offset
            name, extra = (
                int.from_bytes(content[start + at : start + at + 2], "little") for at in (26, 28)
            )
            places.extend(range(start, start + 30 + name + extra + 80))
        places.extend(range(file.start_dir, len(content)))
    return [place for place in places if place < len(content)]


@pytest.mark.long
@settings(max_examples=120, derandomize=True, deadline=None)
@given(data=st.data())
def test_flipped_bytes_of_the_structure(intact, data):
    """Where the checksums of the numbers do not reach."""
    content = bytearray(intact)
    content[data.draw(st.sampled_from(places_of_structure(intact)))] ^= data.draw(
        st.integers(1, 255)
    )
    with tempfile.TemporaryDirectory() as folder:
        identical_or_refused(bytes(content), os.path.join(folder, "tree.npz"))


@pytest.mark.parametrize("size", [30, 30_000])
def test_a_shape_made_smaller(size, path):
    """(30,) -> (10,) is one bit; a large array is then read in part and the checksum of the whole
    never compared."""
    save(path, jnp.zeros(size))
    content = path.read_bytes()
    assert content.count(b"'shape': (3") == 1
    path.write_bytes(content.replace(b"'shape': (3", b"'shape': (1"))
    with pytest.raises(ValueError, match="is damaged or was not written by"):
        load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"'shape': (30,)", b"'shape': (30})"),
        (b"'shape': (30,)", b"'shape': ((0,)"),
        (b"{'descr'", b"\n'descr'"),
        (b"{'descr'", b" 'descr'"),
        (b"'<f4'", b"'<O4'"),
        (b"'<f4'", b"'|V4'"),
        (b"'<f4'", b"'<i4'"),
        (b"'<f4'", b"'>f4'"),
        (b"'<f4'", b'"""f4'),
        (b"False", b"F\0lse"),
        (b"(30, 3)", b"(30,93)"),
        (b"(30, 3)", b"(30,-3)"),
    ],
)
def test_headers_of_arrays_that_are_damaged(old, new, intact, path):
    content = intact.replace(old, new)
    assert content != intact and len(content) == len(intact)
    identical_or_refused(content, path)


def test_zip_records_that_are_damaged(intact, path):
    """A flag that says encrypted, an unknown compression, a method that needs a newer reader."""
    central = [at for at in range(len(intact)) if intact.startswith(b"PK\1\2", at)]
    assert len(central) > 3
    for offset, value in (
        (8, 1),
        (10, 99),
        (10, 8),
        (10, 12),
        (10, 14),
        (6, 90),
        (24, 255),
        (20, 3),
        (28, 255),
        (9, 8),
    ):
        content = bytearray(intact)
        content[central[0] + offset] = value
        identical_or_refused(bytes(content), path)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff\xfe",
        b"not json",
        b"[]",
        b"3",
        b"{}",
        {"format": 1},
        {"format": 1, "tree": None},
        {"format": 1, "tree": {}},
        {"format": 1, "tree": {"array": 5, "dtype": "float32"}},
        {"format": 1, "tree": {"array": 0, "dtype": "float99"}},
        {"format": 1, "tree": {"array": 0}},
        {"format": 1, "tree": {"key": 0, "impl": "no such"}},
        {"format": 1, "tree": {"named": "Linear", "fields": {"nonsense": {"value": 1}}}},
        {
            "format": 1,
            "tree": {"call": "kernels.rbf", "args": [], "kwargs": {"nonsense": {"value": 1}}},
        },
        {"format": 1, "tree": {"tuple": 5}},
        {"format": 2, "tree": {"value": 1}},
        b'{"format": 1, "tree": ' + b'{"list": [' * 5000 + b"]}" * 5000 + b"}",
    ],
    ids=range(18),
)
def test_headers_of_another_kind(header, path):
    """Not written by `save`, or by another version: ValueError with the name of the file."""
    zipped(path, header, a0=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load(path)


def test_other_files(path):
    for content in (b"", b"PK", b"text", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or was not written by"):
            load(path)
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ValueError, match="is damaged or was not written by"):
        load(path)
    with open(path, "wb") as file:
        np.savez(file, something=np.ones(3))
    with pytest.raises(ValueError, match="is damaged or was not written by"):
        load(path)


def test_a_newer_format_is_named(path):
    zipped(path, {"format": 2, "tree": {"value": 1}})
    with pytest.raises(ValueError, match="the file has format 2, this version reads 1"):
        load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing here"):
        load(tmp_path / "nothing here")
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "no folder" / "file", jnp.ones(2))


# Files that say something else than they hold


def members_of(path):
    with zipfile.ZipFile(path) as file:
        return {info.filename: file.read(info) for info in file.infolist()}


def written_as(path, members, how=zipfile.ZIP_STORED):
    """The members (name, bytes) as a zip file; a name may come twice."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", how) as file:
        warnings.simplefilter("ignore")  # of a name that comes twice
        for name, content in members:
            file.writestr(name, content)


def npy(array, shape=None):
    """The bytes of a `.npy` file, which may say that it has another shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream,
        np.lib.format.header_data_from_array_1_0(array)
        | ({} if shape is None else {"shape": shape}),
    )
    return stream.getvalue() + array.tobytes()


def refused_in_little_memory(message, read, path, most=10e6):
    """Refused, with the name of the file, before much memory was taken."""
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def test_members_that_the_header_does_not_name(path):
    save(path, jnp.arange(3))
    members = members_of(path)
    for name, content in (
        ("a1.npy", npy(np.zeros(3))),
        ("more.txt", b"text"),
        ("a00.npy", npy(np.zeros(3))),
    ):
        written_as(path, [*members.items(), (name, content)])
        with pytest.raises(
            ValueError, match=f"the header does not name {name.removesuffix('.npy')}"
        ):
            load(path)


def test_members_that_come_twice(path):
    save(path, jnp.arange(3))
    members = members_of(path)
    for name in ("a0.npy", "a0", "header.npy"):
        written_as(path, [*members.items(), (name, members.get(name, npy(np.zeros(3))))])
        with pytest.raises(
            ValueError, match=f"two members have the name {name.removesuffix('.npy')}"
        ):
            load(path)


def test_arrays_that_the_header_names_twice_or_not_at_all(path):
    for tree, arrays in (
        ({"list": [{"array": 0, "dtype": "float32"}] * 2}, {"a0": np.zeros(2, np.float32)}),
        (
            {"array": True, "dtype": "float32"},
            {"aTrue": np.zeros(2, np.float32), "a1": np.zeros(2, np.float32)},
        ),
        ({"array": "../header", "dtype": "uint8"}, {}),
        ({"array": "header", "dtype": "uint8"}, {}),
    ):
        zipped(path, {"format": 1, "tree": tree}, **arrays)
        with pytest.raises(
            ValueError,
            match=(
                "is damaged or was not written by .*(is not there "
                "or was named before|does not name)"
            ),
        ):
            load(path)


BOMB = 40_000_000  # bytes, of which 40 kB are left by compression


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["a0.npy", "a1.npy", "notes.txt", "header.npy"])
def test_bombs_take_no_memory(name, path):
    save(path, jnp.arange(3, dtype=jnp.float32))
    bomb = npy(np.zeros(0, np.float32), (BOMB // 4,)) + bytes(BOMB)
    members = members_of(path) | {name: bomb}
    written_as(path, members.items(), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1e5
    del bomb, members
    refused_in_little_memory("is damaged or was not written by", load, path)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dtype", ["<f4", "|V1000", "<U250"])
def test_an_array_that_says_it_is_large_takes_no_memory(dtype, path):
    save(path, jnp.arange(3, dtype=jnp.float32))
    members = members_of(path)
    written_as(path, (members | {"a0.npy": npy(np.zeros(3, dtype), (10**9,))}).items())
    refused_in_little_memory("a0 is not of dtype|an array is shorter than it says", load, path)


@pytest.mark.long
def test_members_that_overlap_take_no_memory(path):
    """A thousand members of a megabyte in a file of one."""
    content = npy(np.zeros(250_000, np.float32))
    with zipfile.ZipFile(path, "w") as file:
        header = {
            "format": 1,
            "tree": {"list": [{"array": k, "dtype": "float32"} for k in range(1000)]},
        }
        file.writestr("header.npy", npy(np.frombuffer(json.dumps(header).encode(), np.uint8)))
        file.writestr("a0.npy", content)
        for k in range(1, 1000):
            info = copy.copy(file.getinfo("a0.npy"))
            info.filename = f"a{k}.npy"
            file.filelist.append(info)
    refused_in_little_memory("is damaged or was not written by", load, path)


def test_a_header_that_is_too_long(path, monkeypatch):
    monkeypatch.setattr(serialization, "_HEADER_BYTES", 2000)
    save(path, ["word"] * 10)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="the tree has too many parts"):
        save(path, ["word"] * 1000)
    assert path.read_bytes() == before
    monkeypatch.undo()
    save(path, ["word"] * 1000)
    monkeypatch.setattr(serialization, "_HEADER_BYTES", 2000)
    with pytest.raises(ValueError, match="the header has dtype uint8 and shape"):
        load(path)


def test_an_array_of_another_dtype_than_the_header_says(path):
    save(path, jnp.arange(3, dtype=jnp.float32))
    members = members_of(path)
    written_as(path, (members | {"a0.npy": npy(np.arange(3, dtype=np.int32))}).items())
    with pytest.raises(ValueError, match="a0 is not of dtype float32, as the header says"):
        load(path)


def test_an_array_written_on_a_machine_of_the_other_byte_order(path):
    save(path, jnp.arange(3, dtype=jnp.float32))
    members = members_of(path)
    written_as(path, (members | {"a0.npy": npy(np.arange(3, dtype=">f4"))}).items())
    assert load(path).tolist() == [0, 1, 2]


# Only factories are called, only classes are made


def test_a_function_that_a_user_registered_is_not_called(path, registry):
    calls = []

    def own(*args, **kwargs):
        calls.append(args)

    kernels.register("tests.own", own)
    recipe.register("tests.bare", type("Bare", (), {"__init__": own}))
    for node in (
        {"call": "tests.own", "args": [{"value": "rm"}], "kwargs": {}},
        {"call": "tests.bare", "args": [], "kwargs": {}},
        {"call": "Linear", "args": [{"value": 1}, {"value": 1}], "kwargs": {}},
        {"named": "tests.own", "fields": {}},
        {"named": "tests.bare", "fields": {}},
        {"named": "kernels.rbf", "fields": {"sigma": {"value": 1.0}}},
    ):
        zipped(path, {"format": 1, "tree": node})
        with pytest.raises(
            ValueError,
            match=(
                r"tree.npz: the file (calls|makes a) '.*', which is "
                r"not registered as a (factory|class)"
            ),
        ):
            load(path)
    zipped(path, {"format": 1, "tree": {"function": "tests.own"}})
    assert load(path) is own and not calls


# What a class says of itself


def altered(path, tree, old, new):
    """The file of a tree with another word in its header."""
    save(path, tree)
    members = members_of(path)
    header = members["header.npy"][128:]
    assert header.count(old) >= 1
    written_as(
        path,
        (members | {"header.npy": npy(np.frombuffer(header.replace(old, new), np.uint8))}).items(),
    )


@pytest.mark.parametrize(
    ("kernel", "old", "new", "message"),
    [
        (kernels.rbf(2.0), b"2.0", b"-1.0", "sigma must be a finite number above 0, got -1"),
        (kernels.rbf(2.0), b"2.0", b"NaN", "sigma must be a finite number above 0, got nan"),
        (
            kernels.linear() + 3.0 * kernels.laplacian(2.0),
            b"2.0",
            b"0.0",
            "sigma must be a finite number above 0",
        ),
        (
            kernels.linear() + 3.0 * kernels.laplacian(2.0),
            b"3.0",
            b"-3.0",
            "factor must be a finite number above 0",
        ),
        (
            kernels.polynomial(1.0, degree=3),
            b'{"value": 3}',
            b'{"value": -3}',
            "degree must be a whole number",
        ),
    ],
)
def test_kernels_out_of_range(kernel, old, new, message, path):
    altered(path, an_expansion(kernel), old, new)
    with pytest.raises(
        ValueError, match=f"tree.npz: the file holds .* with arguments that it refuses: {message}"
    ):
        load(path)


def test_a_bias_that_there_is_not(path):
    for tree in (
        Linear(jnp.ones(2), jnp.zeros(()), "feature"),
        an_expansion(kernels.rbf(1.0), bias="feature"),
    ):
        altered(path, tree, b'"feature"', b'"evil"')
        with pytest.raises(
            ValueError,
            match="tree.npz: .* bias must be one of 'none', 'feature', 'free', got 'evil'",
        ):
            load(path)


def sparse_rows(**changes):
    x = jaxsvm.dataset(scipy.sparse.csr_matrix(np.eye(4, 6, dtype=np.float32)), [1, -1, 1, -1]).x
    return dataclasses.replace(x, **changes)


def a_batch(**changes):
    return jaxsvm.dataset(np.eye(4, dtype=np.float32), [1, -1, 1, -1])._replace(**changes)


def a_run(**changes):
    return RunState((), (), jnp.int32(3), jnp.zeros((), bool))._replace(**changes)


def a_flow(**changes):
    return StreamState((), a_batch(), *[jnp.int32(2)] * 4, jnp.zeros((), bool))._replace(**changes)


def a_map(**changes):
    phi = features.nystrom(None, kernels.rbf(1.0), landmarks=rows(4, 2))
    return dataclasses.replace(phi, **changes)


def waves(**changes):
    return dataclasses.replace(
        features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=2, features=4), **changes
    )


ONE = Linear(jnp.ones(2), jnp.zeros(()))
THREE = Linear(jnp.ones((3, 2)), jnp.zeros(3))


def named(classes):
    """A model whose names of classes its own constructor would refuse."""
    model = Classifier(ONE, ("a", "b"))
    object.__setattr__(model, "classes", classes)
    return model


INT = jnp.arange(7, dtype=jnp.int32)
IMPOSSIBLE = {
    "w of words": (Linear("w", jnp.zeros(())), "w must be an array"),
    "w of truth values": (
        Linear(jnp.ones(2, bool), jnp.zeros(())),
        "w must hold real numbers, got dtype bool",
    ),
    "w a number": (Linear(jnp.float32(1), jnp.zeros(())), "w must be a vector"),
    "b a vector": (Linear(jnp.ones(2), jnp.zeros(3)), "b has the axes"),
    "coef longer": (
        an_expansion(kernels.rbf(1.0), coef=jnp.ones(8)),
        "x, coef and index must have as many rows",
    ),
    "index shorter": (
        an_expansion(kernels.rbf(1.0), index=INT[:3]),
        "x, coef and index must have as many rows",
    ),
    "index below -1": (
        an_expansion(kernels.rbf(1.0), index=INT - 2),
        "index must be at least -1, got -2",
    ),
    "index of floats": (
        an_expansion(kernels.rbf(1.0), index=jnp.ones(7)),
        "index must hold whole numbers",
    ),
    "x a vector": (
        an_expansion(kernels.rbf(1.0), x=jnp.ones(7)),
        "x, coef and index must have as many rows",
    ),
    "no kernel": (an_expansion("rbf"), "kernel must be a kernel"),
    "inner no model": (
        Mapped(kernels.linear(), jnp.ones(2)),
        "phi must be a feature map and inner a model",
    ),
    "one class": (named(("a",)), "classes must be the names of two classes or more, each once"),
    "a class twice": (
        named(("a", "a")),
        "classes must be the names of two classes or more, each once",
    ),
    "classes no names": (
        named(("a", None)),
        "classes must be the names of two classes or more, each once",
    ),
    "three classes of one value": (
        Classifier(ONE, ("a", "b", "c")),
        "there are 3 classes, but the model gives 1 values",
    ),
    "two classes of three": (
        Classifier(Mapped(kernels.linear(), OneVsRest(THREE, (True, True))), ("a", "b")),
        "there are 2 classes, but the model gives 3 values",
    ),
    "stacked too short": (
        OneVsRest(THREE, (True,)),
        "stacked must hold a truth value for each of the 2 arrays",
    ),
    "stacked nowhere": (OneVsRest(THREE, (False, False)), "stacked must hold a truth value"),
    "stacks apart": (
        OneVsRest(Linear(jnp.ones((3, 2)), jnp.zeros(3)).scaled(1.0), (True, 1)),
        "stacked must hold a truth value",
    ),
    "pairs": (
        OneVsOne(THREE, (True, True), 5),
        "5 classes have 10 pairs, but inner holds 3 models",
    ),
    "no pair": (OneVsOne(THREE, (True, True), 1), "classes must be"),
    "column below 0": (
        sparse_rows(index=sparse_rows().index - 1),
        "index must be at least 0, got -1",
    ),
    "column too large": (sparse_rows(columns=3), "index must be at most 2, got 3"),
    "columns no number": (sparse_rows(columns="6"), "columns must"),
    "length too large": (sparse_rows(length=jnp.full(4, 99)), "length must be at most 8, got 99"),
    "numbers behind length": (
        sparse_rows(length=jnp.zeros(4, jnp.int32)),
        "value must be 0 behind",
    ),
    "rows that are not there": (sparse_rows(rows=jnp.array([4])), "rows must be at most 3, got 4"),
    "offsets too large": (
        dataclasses.replace(sparse_rows().packed, offsets=jnp.full(4, 30)),
        "and length name numbers behind",
    ),
    "offsets below 0": (
        dataclasses.replace(sparse_rows().packed, offsets=jnp.full(4, -1)),
        "offsets must be at least 0",
    ),
    "y longer": (a_batch(y=jnp.ones(5)), r"y must have shape \(4,\), got \(5,\)"),
    "row below -1": (a_batch(index=jnp.full(4, -2)), "index must be at least -1"),
    "weight below 0": (a_batch(weight=jnp.full(4, -1.0)), "weight must be at least 0"),
    "x of a batch": (a_batch(x=jnp.float32(1)), "x must be a matrix"),
    "step below 0": (a_run(step=jnp.int32(-1)), "step must be at least 0, got -1"),
    "step a fraction": (a_run(step=jnp.float32(1.5)), "step must hold whole numbers"),
    "done a vector": (a_run(done=jnp.zeros(2, bool)), "done must have shape"),
    "done a number": (a_run(done=jnp.int32(0)), "done must hold truth values"),
    "too many pending rows": (a_flow(n_pending=jnp.int32(5)), "n_pending must be at most 4, got 5"),
    "pending no batch": (a_flow(pending=jnp.ones(2)), "pending must be a batch"),
    "chunks below 0": (a_flow(chunks=jnp.int32(-1)), "chunks must be at least 0"),
    "seen a vector": (a_flow(seen=jnp.zeros(2, jnp.int32)), "seen must have shape"),
    "curve": (
        Curve(INT, jnp.ones(7), jnp.ones(6), INT, jnp.zeros((7, 2), jnp.int32), None),
        r"residual must have shape \(7,\), got \(6,\)",
    ),
    "mean and scale": (Standardize(jnp.ones(3), jnp.ones(2)), "scale must have shape"),
    "low and width": (Scale(jnp.ones(3), jnp.ones(2)), "low must have shape"),
    "landmarks": (a_map(landmarks=rows(3, 2)), "landmarks .* and whitening"),
    "shift": (waves(shift=jnp.ones(5)), "shift has shape"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("like", [False, True])
def test_what_cannot_be_is_refused(name, like, path):
    tree, message = IMPOSSIBLE[name]
    save(path, {"inside": [tree]})
    with pytest.raises(
        ValueError,
        match=re.escape(f"{path}: the file holds a ") + rf"\w+ that cannot be: .*{message}",
    ):
        load(path, **({"like": {"inside": [tree]}} if like else {}))


@pytest.mark.parametrize(
    "tree",
    [
        sparse_rows(),
        sparse_rows().packed,
        sparse_rows(rows=jnp.array([3, 0])),
        a_batch(),
        a_run(),
        a_flow(),
        a_map(),
        waves(),
        a_batch(x=sparse_rows()),
        OneVsRest(THREE, (True, True)),
        OneVsOne(THREE, (True, True), 3),
        Classifier(ONE, (1, 2)),
        OneVsRest(Linear(jnp.ones((3, 2)), jnp.zeros(())), (True, False)),
        Linear(jnp.ones(2), 0.5),
        a_batch(index=jnp.full(4, -1)),
        Classifier(OneVsRest(THREE, (True, True)), (1, 2.5, "c")),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_what_can_be_loads(tree, path):
    same(again(tree, path), tree)


@pytest.mark.long
def test_runs_of_a_sweep_load(path):
    """All their arrays have an axis more."""
    data = a_batch()

    def one(lam, sigma):
        return jaxsvm.fit(
            jaxsvm.kernel_pegasos(lam, kernels.rbf(sigma)), data, jax.random.key(0), steps=3
        )

    swept = jax.vmap(one)(jnp.array([0.1, 1.0]), jnp.array([1.0, 2.0]))
    same(again(swept, path), swept)
    many = jaxsvm.dataset(np.eye(4, dtype=np.float32), [0, 1, 2, 0], task="multiclass")
    three = lambda lam: jaxsvm.fit(
        jaxsvm.one_vs_one(jaxsvm.pegasos(lam), classes=3), many, jax.random.key(0), steps=3
    )
    swept = jax.vmap(three)(jnp.array([0.1, 1.0]))
    same(again(swept, path), swept)


def test_a_class_of_ones_own_is_asked(path, registry):
    @recipe.struct
    class Halves:
        x: Any

        def __check__(self):
            if self.x.shape != (2,):
                raise ValueError("x must be two numbers")

    same(again(Halves(jnp.ones(2)), path), Halves(jnp.ones(2)))
    save(path, Halves(jnp.ones(3)))
    with pytest.raises(
        ValueError, match="the file holds a Halves that cannot be: x must be two numbers"
    ):
        load(path)


def places_in(node):
    """The places of a header's tree, each as the container and the key."""
    pairs = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, child in list(pairs):
        yield node, key
        yield from places_in(child)


ODD_NODES = [
    None,
    -1,
    0,
    10**9,
    1e300,
    True,
    "x",
    "free",
    "kernels.rbf",
    "Linear",
    [],
    {},
    {"value": None},
    {"value": -1},
]
ODD_NODES += [
    {"value": [1]},
    {"array": 0, "dtype": "float32"},
    {"array": 1, "dtype": "O"},
    {"key": 0, "impl": "rbg"},
]
ODD_NODES += [
    {"call": "kernels.linear", "args": [], "kwargs": {}},
    {"call": "kernels.custom", "args": [{"value": 1}], "kwargs": {}},
]
ODD_NODES += [
    {"named": "Batch", "fields": {}},
    {"function": "kernels.rbf"},
    {"tuple": []},
    {"list": [{"value": 2}]},
]


@pytest.mark.long
@settings(max_examples=150, derandomize=True, deadline=None)
@given(data=st.data())
def test_headers_with_another_word(data):
    """Whole files, checksums and all, that say something else: a tree or a ValueError with the name
    of the file."""
    tree = {
        "model": Classifier(
            an_expansion(0.5 * kernels.rbf(2.0) + kernels.linear(), n=3), ("ham", "spam")
        ),
        "three": OneVsRest(THREE, (True, True)),
        "run": a_run(sampler=jax.random.key(0)),
        "rows": sparse_rows(),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tree.npz")
        save(path, tree)
        members = members_of(path)
        header = json.loads(members["header.npy"][128:])
        for _ in range(data.draw(st.integers(1, 2))):
            node, key = data.draw(st.sampled_from(list(places_in(header))))
            node[key] = copy.deepcopy(data.draw(st.sampled_from(ODD_NODES)))
        written_as(
            path,
            (
                members | {"header.npy": npy(np.frombuffer(json.dumps(header).encode(), np.uint8))}
            ).items(),
        )
        try:
            load(path)
        except ValueError as error:
            assert type(error) is ValueError and str(path) in str(error)


# What the file system refuses is not damage


def test_errors_of_the_file_system_pass(path, monkeypatch):
    save(path, jnp.ones(2))
    for error in (
        PermissionError(13, "Permission denied"),
        OSError(5, "Input/output error"),
        MemoryError(),
    ):

        def failing(*args, error=error, **kwargs):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(zipfile, "ZipFile", failing)
            with pytest.raises(type(error)) as caught:
                load(path)
        assert caught.value is error and getattr(error, "filename", str(path)) == str(path)
        assert "damaged" not in str(error)


def test_folders_and_pipes_are_no_models(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a pipe, a device or a socket, expected a file"):
        load(tmp_path / "pipe")


def test_a_file_without_permission(path):
    save(path, jnp.ones(2))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read any file")
    with pytest.raises(PermissionError, match=re.escape(str(path))):
        load(path)


# Files of 0.3.0


@pytest.mark.long
def test_models_written_by_0_3_0():
    """A file of that version: linear, a kernel expansion, three classes on scaled rows."""
    found = load(pathlib.Path(__file__).parents[1] / "fixtures" / "models-0.3.0.npz")
    x = jnp.array([[1.0, 2.0], [-1.0, 0.0]])
    assert found["linear"](x).tolist() == [-2.5, -0.5] and found["linear"].bias == "feature"
    squared = np.array([[5.0, 4.0], [1.0, 4.0]])  # |x_i - z_j|^2, z = (0, 0), (1, 0)
    kernel = np.exp(-squared / 8) + 0.5 * np.array([[0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(found["expansion"](x), kernel @ [1, -0.5] + 0.25, rtol=1e-6)
    assert found["expansion"].index.tolist() == [3, -1]
    assert found["classifier"].predict(x).tolist() == ["a", "c"] and found[
        "classifier"
    ].classes == ("a", "b", "c")
    np.testing.assert_allclose(found["classifier"](x), [[0, 0, 0], [-2, -1, 0]], atol=1e-6)


# Whole or not at all


def failing(*args, **kwargs):
    raise OSError(28, "No space left on device")


def halfway(file, **arrays):
    file.write(b"half of it")
    raise OSError(28, "No space left on device")


def interrupted(*args, **kwargs):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "name", "how"),
    [
        (os, "fsync", failing),
        (np, "savez", failing),
        (np, "savez", halfway),
        (os, "replace", failing),
        (np, "savez", interrupted),
    ],
    ids=["fsync", "savez", "halfway", "replace", "interrupt"],
)
@pytest.mark.parametrize("old", [True, False], ids=["over an old file", "new"])
def test_save_is_atomic(module, name, how, old, path, monkeypatch):
    if old:
        save(path, {"old": jnp.arange(3)})
    before = path.read_bytes() if old else None
    with monkeypatch.context() as patch:
        patch.setattr(module, name, how)
        with pytest.raises((OSError, KeyboardInterrupt)):
            save(path, {"new": jnp.ones(1000)})
    assert os.listdir(path.parent) == ([path.name] if old else [])
    if old:
        assert path.read_bytes() == before
        same(load(path), {"old": jnp.arange(3)})
    save(path, {"new": jnp.ones(1000)})
    same(load(path), {"new": jnp.ones(1000)})


def test_save_leaves_one_file(path):
    for k in range(3):
        save(path, jnp.full(3, k))
    assert os.listdir(path.parent) == [path.name]
    assert models.load(path)[0] == 2


# Models that are not finite


def test_a_model_that_is_not_finite_does_not_predict():
    model = models.Classifier(Linear(jnp.array([jnp.nan, 1.0]), jnp.zeros(())), ("no", "yes"))
    with pytest.raises(
        ValueError,
        match=(
            r"^the decision values of 3 of 3 rows are not finite, "
            r"first of row 0: the model diverged"
        ),
    ):
        model.predict(jnp.ones((3, 2)))
    model = models.Classifier(Linear(jnp.array([1.0, 1.0]), jnp.zeros(())), ("no", "yes"))
    with pytest.raises(ValueError, match="x holds a NaN or an infinity, first in row 1"):
        model.predict(jnp.array([[1.0, 1.0], [jnp.inf, 1.0]]))
    many = models.Classifier(lambda x: x @ jnp.array([[0.0, 1, 2], [0, 2, 1]]), ("a", "b", "c"))
    with pytest.raises(ValueError, match="x holds a NaN or an infinity, first in row 1"):
        many.predict(jnp.array([[1.0, 2.0], [1.0, jnp.nan]]))


@pytest.mark.parametrize("field", ["w", "b"])
def test_a_model_that_is_not_finite_is_not_loaded(field, tmp_path):
    path = tmp_path / "model"
    good = Linear(jnp.ones(2), jnp.zeros(()))
    bad = dataclasses.replace(good, **{field: jnp.nan * getattr(good, field)})
    for model in (
        bad,
        models.Classifier(bad, ("no", "yes")),
        dataclasses.replace(an_expansion(kernels.rbf(1.0)), b=-jnp.inf),
    ):
        save(path, model)
        for like in (None, model):
            with pytest.raises(
                ValueError,
                match=(
                    "the model holds numbers that are not finite: its "
                    "training diverged; train it again"
                ),
            ):
                load(path, like)
    state = RunState(
        bad, jnp.array([jnp.inf]), jnp.int32(0), jnp.array(False)
    )  # a state may hold them: inf for no bound yet
    save(path, state)
    assert np.isinf(load(path).sampler).all()
    save(path, good)
    assert load(path).w.tolist() == [1, 1]


# Rows of another kind


def models_of_two_columns():
    data = jaxsvm.dataset(
        np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0]]), [0, 1, 2], task="multiclass"
    )
    two = data._replace(y=jnp.array([1.0, -1.0, 1.0]))
    fit = lambda solver, data: jaxsvm.fit(solver, data, jax.random.key(0), steps=2).model
    phi = jaxsvm.features.fourier(jax.random.key(0), jaxsvm.kernels.rbf(1.0), dim=2, features=4)
    linear = fit(jaxsvm.pegasos(0.1), two)
    return {
        "Linear": linear,
        "Expansion": fit(jaxsvm.sdca(1.0, jaxsvm.kernels.rbf(1.0)), two),
        "Mapped": fit(jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)), two),
        "OneVsRest": fit(jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3), data),
        "OneVsOne": fit(jaxsvm.one_vs_one(jaxsvm.pegasos(0.1), classes=3), data),
        "Classifier": models.Classifier(linear, ("a", "b")),
        "Classifier.predict": models.Classifier(linear, ("a", "b")).predict,
    }


@pytest.mark.long
def test_rows_of_another_kind_or_shape_are_refused():
    """Before, they met a traceback from JAX, or numbers of rows with one column were broadcast."""
    x = np.ones((3, 2), np.float32)
    wrong = [
        None,
        "x",
        [[1.0, 2.0]],
        x[0],
        x[None],
        np.ones((3, 1)),
        np.ones((3, 3)),
        np.array([["a", "b"]]),
        x * 1j,
    ]
    wrong += [scipy.sparse.csr_matrix(x), jaxsvm.dataset(x * [[1], [2], [3]], [1, -1, 1])]
    for name, model in models_of_two_columns().items():
        # `predict` takes what people have: lists, and matrices of SciPy
        taken = wrong[2], wrong[9] if name == "Classifier.predict" else None
        taken = taken if name == "Classifier.predict" else ()
        for rows in (rows for rows in wrong if not any(rows is other for other in taken)):
            with pytest.raises(
                (TypeError, ValueError),
                match="^(x must (be|have)|x is a sparse matrix|the map takes rows)",
            ):
                model(rows)
                pytest.fail(f"{name} took {rows!r}")


@pytest.mark.parametrize(
    "classes", [("a",), (), "ab", ["a", "a"], None, 3, (None, "a"), ("a", float("nan"))]
)
def test_names_of_classes_are_two_or_more(classes):
    with pytest.raises(
        ValueError, match="^classes must be the names of two classes or more, each once, got "
    ):
        models.Classifier(models.Linear(jnp.ones(2), jnp.zeros(())), classes)


def of_kind(x, kind):
    return {
        "other byte order": x.astype(x.dtype.newbyteorder()),
        "bool": x > 0,
        "whole": x.astype(np.int64),
    }[kind]


@pytest.mark.parametrize("kind", ["other byte order", "bool", "whole"])
@pytest.mark.parametrize("kernel", [None, kernels.rbf(1.0)], ids=str)
def test_rows_of_numpy_are_taken_as_float32(kernel, kind):
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("f4") * 3
    model = Linear(jnp.arange(3.0), jnp.float32(1))
    if kernel is not None:
        model = Expansion(
            kernel, jnp.asarray(x), jnp.arange(5.0), jnp.float32(0), jnp.arange(5, dtype=jnp.int32)
        )
    rows = of_kind(x, kind)
    assert np.array_equal(model(rows), model(jnp.asarray(np.asarray(rows, "f4"))))
    assert np.array_equal(
        Classifier(model, ("a", "b")).predict(rows),
        Classifier(model, ("a", "b")).predict(rows.astype("f4")),
    )


def test_masked_and_complex_rows_are_refused():
    model, x = Linear(jnp.ones(2), jnp.float32(0)), np.ones((3, 2), "f4")
    for call in (model, Classifier(model, ("a", "b")).predict):
        with pytest.raises(ValueError, match="^x has masked entries"):
            call(np.ma.masked_array(x, mask=[[1, 0]] * 3))
        with pytest.raises(TypeError, match="^x must be a number, got an array of complex64"):
            call(x.astype("c8"))


def test_a_map_and_its_model_fit(path):
    phi = jaxsvm.features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=3, features=8)
    for tree in (
        Mapped(phi, Linear(jnp.ones(5), jnp.zeros(()))),
        Classifier(Mapped(phi, Linear(jnp.ones(9), jnp.zeros(()))), (0, 1)),
    ):
        save(path, tree)
        with pytest.raises(
            ValueError, match="phi gives 8 features, but inner takes rows of [59] columns"
        ):
            load(path)


@pytest.mark.parametrize("shape", [(3, 3), (1, 3)])
def test_the_parts_of_a_model_are_of_one_model(shape, path):
    alone = Linear(jnp.ones(shape), jnp.zeros(()))
    many = jaxsvm.OneVsRest(Linear(jnp.ones((2, *shape)), jnp.zeros(())), (True, False))
    for tree in (alone, Classifier(alone, ("a", "b")), many):
        save(path, tree)
        with pytest.raises(
            ValueError, match="the file holds a Linear whose w and b have the shapes"
        ):
            load(path)


def test_few_bytes_of_a_damaged_file_are_quoted(path):
    save(path, {"a": jnp.ones(300)})
    content = path.read_bytes()
    place = content.index(b"a0.npy")  # of the member; the directory comes last
    path.write_bytes(
        content[: place - 4] + b"\xff\x7f" + content[place - 2 :]
    )  # the length of its name
    with pytest.raises(ValueError, match="is damaged") as refused:
        load(path)
    assert len(str(refused.value)) < len(str(path)) + 250


def test_a_map_of_many_does_not_fit_one_model(path):
    phi = jaxsvm.features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=3, features=8)
    many = jaxsvm.features.Fourier(phi.frequencies[None], None, phi.scale, phi.amplitude)
    for tree in (
        Mapped(many, Linear(jnp.ones(8), jnp.zeros(()))),
        Classifier(Mapped(many, Linear(jnp.ones(8), jnp.zeros(()))), (0, 1)),
    ):
        save(path, tree)
        with pytest.raises(
            ValueError, match="a feature map with 1 axes in front and a model with 0"
        ):
            load(path)
    swept = jax.vmap(lambda w: Mapped(phi, Linear(w, w[0])))(jnp.ones((2, 8)))
    save(path, swept)
    assert load(path).inner.w.shape == (2, 8)
