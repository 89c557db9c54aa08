"""Models, and the files that hold them: nothing is unpickled, nothing half written, nothing half read."""

import dataclasses
import io
import json
import os
import pathlib
import re
import tempfile
import zipfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import kernels, losses, models, recipe, samplers
from jaxsvm.engines import gradient
from jaxsvm.engines.gradient import Weights
from jaxsvm.models import Expansion, Linear, Mapped, expansion, load, save
from jaxsvm.recipe import Recipe
from jaxsvm.types import Run


def rows(n, d, seed=0):
    return jax.random.normal(jax.random.key(seed), (n, d))


def an_expansion(kernel, n=7, d=3, **changes):
    return Expansion(
        kernel, rows(n, d), rows(n, 1, 1)[:, 0], jnp.float32(0.25), jnp.arange(n, dtype=jnp.int32), **{"bias": "free"} | changes
    )


# Values


def test_linear():
    x, w = rows(9, 3), rows(3, 1)[:, 0]
    model = Linear(w, jnp.float32(0.5), "free")
    np.testing.assert_allclose(model(x), np.asarray(x, np.float64) @ np.asarray(w, np.float64) + 0.5, rtol=1e-5, atol=1e-6)
    norm = float(np.sum(np.asarray(w, np.float64) ** 2))
    np.testing.assert_allclose(model.sqnorm(), norm, rtol=1e-6)
    np.testing.assert_allclose(Linear(w, jnp.float32(0.5)).sqnorm(), norm, rtol=1e-6)
    np.testing.assert_allclose(Linear(w, jnp.float32(0.5), "feature").sqnorm(), norm + 0.25, rtol=1e-6)
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
    "nested": 2.0 * (kernels.rbf(1.0) + kernels.linear() * kernels.sigmoid()) + kernels.laplacian(1.0),
}


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
    with pytest.raises(ValueError, match=r"expansion over the training rows: call solver\.model\(state, data\)"):
        expansion(kernels.linear(), jnp.ones(2), None)


def test_support_holds_the_coefficients_that_are_not_0():
    coef = jnp.array([0.0, 0.5, 0.0, -1.5, 1e-30, 0.0, -0.0])
    index = jnp.array([6, 5, 4, 3, -1, 1, 0], jnp.int32)
    model = dataclasses.replace(an_expansion(kernels.rbf(1.5)), coef=coef, index=index)
    support = model.support()
    assert all(isinstance(part, np.ndarray) for part in support[:2]) and support.b == 0.25
    np.testing.assert_array_equal(support.index, [5, 3, -1])
    np.testing.assert_array_equal(support.coef, np.asarray(coef)[[1, 3, 4]])
    x = rows(5, 3, 2)
    alone = np.asarray(kernels.rbf(1.5)(x, model.x[jnp.array([1, 3, 4])]), np.float64) @ support.coef + support.b
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


def test_models_are_pytrees():
    for model in (Linear(jnp.ones(2), jnp.zeros(())), an_expansion(KERNELS["nested"]), Mapped(len, Linear(jnp.ones(2), 0.0))):
        again = jax.tree.unflatten(*reversed(jax.tree.flatten(model)))
        assert type(again) is type(model)
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.b = 1
    x = rows(4, 3)
    model = an_expansion(kernels.rbf(1.0))
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, x), model(x), rtol=1e-6, atol=1e-6)


# Blocks of rows


@pytest.mark.parametrize("block", [1, 5, 36, 37])
def test_blocks_smaller_than_the_rows_equal_one_block(block):
    """Up to rounding: a product of other shape may sum in another order."""
    model, x = an_expansion(KERNELS["sum"], n=37), rows(37, 3, 3)
    np.testing.assert_allclose(model(x, block=block), model(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.sqnorm(block=block), model.sqnorm(), rtol=1e-5)


def test_no_rows():
    assert an_expansion(kernels.rbf(1.0))(jnp.zeros((0, 3))).shape == (0,)
    assert Linear(jnp.ones(3), jnp.zeros(()))(jnp.zeros((0, 3))).shape == (0,)


def arrays_of(compiled):
    """The element counts of all arrays in a compiled program."""
    shapes = set(re.findall(r"\b[a-z]+\d+\[([\d,]*)\]", compiled.as_text()))
    return {int(np.prod([int(n) for n in shape.split(",") if n], dtype=np.int64)) for shape in shapes}


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
    model = expansion(kernels.precomputed(), jnp.array([1.0, 2.0]), jaxsvm.dataset([[2.0, 1.0], [1.0, 2.0]], [1, -1]))
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


@pytest.mark.parametrize("kernel", [lambda k: k, lambda k: 0.5 * k + kernels.linear()], ids=["alone", "in a sum"])
def test_a_registered_kernel_of_ones_own(kernel, path, registry):
    kernels.register("tests.own_block", own_block)
    kernels.register("tests.own_diag", own_diag)
    model = an_expansion(kernel(kernels.custom(own_block, own_diag)))
    found = again(model, path)
    np.testing.assert_array_equal(found(rows(2, 3)), model(rows(2, 3)))
    np.testing.assert_array_equal(found.kernel.diag(rows(2, 3)), model.kernel.diag(rows(2, 3)))


def test_an_unregistered_kernel_is_refused(path):
    save(path, jnp.ones(2))
    with pytest.raises(ValueError, match=r"cannot save <function own.*register yours with .*kernels\.register\(name, fn\)"):
        save(path, an_expansion(kernels.custom(own_block)))
    np.testing.assert_array_equal(load(path), jnp.ones(2))
    assert os.listdir(path.parent) == [path.name]


def test_a_kernel_that_the_reader_has_not_registered(path, registry):
    kernels.register("tests.own_block", own_block)
    model = an_expansion(kernels.custom(own_block))
    save(path, model)
    del registry["tests.own_block"]
    with pytest.raises(ValueError, match=r"the file holds 'tests\.own_block', which is not registered: import or register it"):
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
        return Run(state, sampler.init(key, X4), jnp.int32(3), jnp.zeros((), bool))

    run = start(jax.random.key(1))
    found = again(run, path)
    same(found, run)
    assert isinstance(found, Run) and type(found.solver) is type(run.solver)
    same(load(path, like=run), run)


OPTIMISERS = {
    "adam": optax.adam(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "partition": optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, Weights("a", "b")),
    "masked": optax.masked(optax.adam(0.1), Weights(True, False)),
    "injected": optax.inject_hyperparams(optax.sgd)(0.1),
    "schedule": optax.chain(optax.clip(1.0), optax.scale_by_schedule(optax.cosine_decay_schedule(0.1, 10))),
    "finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "lbfgs": optax.scale_by_lbfgs(),
    "averages": optax.chain(optax.sgd(0.1), jaxsvm.average_iterates(weights=lambda t: t + 1)),
    "schedule-free": optax.contrib.schedule_free_sgd(0.1),
    "dog": optax.contrib.dog(0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_states_of_optax(name, path):
    """What the gradient engine is given, its contrib optimisers too, is saved by `fit(save=...)`."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state = gradient(losses.hinge, OPTIMISERS[name], bias="free").init(jax.random.key(0), X4)
    same(again(state, path), state)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys(impl, path):
    tree = {"one": jax.random.key(3, impl=impl), "many": jax.random.split(jax.random.key(4, impl=impl), 3)}
    found = again(tree, path)
    same(found, tree)
    np.testing.assert_array_equal(jax.random.normal(found["one"], (3,)), jax.random.normal(tree["one"], (3,)))


@pytest.mark.parametrize(
    "dtype",
    [jnp.bfloat16, jnp.float8_e4m3fn, jnp.int4, jnp.float16, jnp.float32, jnp.complex64, jnp.int8, jnp.uint16, jnp.uint32, bool],
    ids=lambda d: np.dtype(d).name,
)
def test_dtypes(dtype, path):
    array = jnp.asarray([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    tree = (array, array[0, 1], array[:0], array[:, :0])
    same(again(tree, path), tree)


def test_numpy_arrays_come_back_as_jax_arrays(path):
    tree = [np.arange(3, dtype=np.int32), np.float32(0.5), np.ones((2, 3), np.float32, order="F").T, np.bool_(True)]
    tree.append(np.arange(3, dtype=np.float32).astype(ml_dtypes.bfloat16))
    same(again(tree, path), tree)


def test_arrays_in_the_other_byte_order(path):
    same(again(np.arange(6, dtype=">i2").reshape(2, 3), path), np.arange(6, dtype=np.int16).reshape(2, 3))


def test_float64_with_and_without_x64(path):
    with jax.enable_x64(True):
        tree = {"x": jnp.array([1.0, 1e300, -0.0]), "i": jnp.array([2**40]), "u": jnp.array(2**63, jnp.uint64)}
        same(again(tree, path), tree)
    for like in (None, tree):
        with pytest.raises(
            ValueError, match=r"64-bit numbers: switch them on first, jax\.config\.update\('jax_enable_x64', True\)"
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
        with pytest.raises(ValueError, match=r"cannot save .*register yours with jaxsvm\.register\(name, thing\)"):
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
    with pytest.raises(ValueError, match=r"the file holds 'tests\.Loose', which is not registered.*load\(path, like=\.\.\.\)"):
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
        ({"w": jnp.zeros(2), "t": jnp.int32(0), "z": jnp.zeros(1)}, "the file holds 2 arrays, `like` has 3"),
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
        given = {"like": cls(*[jnp.zeros(2)] * (2 if cls is Needy else 1))} if like and cls is not Linear else {}
        if fits:
            same(load(path, **given), Grown(jnp.ones(2)))
            continue
        with pytest.raises(ValueError, match="of another version of jaxsvm|holds 1 arrays, `like` has 2"):
            load(path, **given)


def test_sparse_rows_saved_before_they_could_be_packed(path, monkeypatch):
    x = jaxsvm.dataset(scipy.sparse.csr_matrix([[0.0, 2.0], [1.0, 0.0]]), [1, -1]).x
    encode = models._encode

    def older(node, arrays):
        made = encode(node, arrays)
        made.get("fields", {}).pop("start", None)
        return made

    monkeypatch.setattr(models, "_encode", older)
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
    with pytest.raises(ValueError, match=re.escape(f"{path} is damaged or was not written by jaxsvm.models.save")):
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


@pytest.mark.parametrize("name", ["os.system", "optax.adam", "optax.os", "optax.tree", "builtins.eval", "optax.__name__"])
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
    """Loads to the identical tree (True), or raises ValueError that names the file (False); anything else fails."""
    pathlib.Path(path).write_bytes(content)
    try:
        found = load(path)
    except ValueError as error:
        assert type(error) is ValueError, f"a subclass may say anything: {error!r}"
        assert str(path) in str(error) and "is damaged or was not written by jaxsvm.models.save" in str(error)
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
            name, extra = (int.from_bytes(content[start + at : start + at + 2], "little") for at in (26, 28))
            places.extend(range(start, start + 30 + name + extra + 80))
        places.extend(range(file.start_dir, len(content)))
    return [place for place in places if place < len(content)]


@settings(max_examples=120, derandomize=True, deadline=None)
@given(data=st.data())
def test_flipped_bytes_of_the_structure(intact, data):
    """Where the checksums of the numbers do not reach."""
    content = bytearray(intact)
    content[data.draw(st.sampled_from(places_of_structure(intact)))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        identical_or_refused(bytes(content), os.path.join(folder, "tree.npz"))


@pytest.mark.parametrize("size", [30, 30_000])
def test_a_shape_made_smaller(size, path):
    """(30,) -> (10,) is one bit; a large array is then read in part and the checksum of the whole never compared."""
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
    for offset, value in ((8, 1), (10, 99), (10, 8), (10, 12), (10, 14), (6, 90), (24, 255), (20, 3), (28, 255), (9, 8)):
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
        {"format": 1, "tree": {"call": "kernels.rbf", "args": [], "kwargs": {"nonsense": {"value": 1}}}},
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


# Rows of another kind


def models_of_two_columns():
    data = jaxsvm.dataset(np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0]]), [0, 1, 2], task="multiclass")
    two = data._replace(y=jnp.array([1.0, -1.0, 1.0]))
    fit = lambda solver, data: jaxsvm.fit(solver, data, jax.random.key(0), steps=2).model  # noqa: E731
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


def test_rows_of_another_kind_or_shape_are_refused():
    """Before, they met a traceback from JAX, or numbers of rows with one column were broadcast."""
    x = np.ones((3, 2), np.float32)
    wrong = [None, "x", [[1.0, 2.0]], x[0], x[None], np.ones((3, 1)), np.ones((3, 3)), np.array([["a", "b"]]), x * 1j]
    wrong += [scipy.sparse.csr_matrix(x), jaxsvm.dataset(x * [[1], [2], [3]], [1, -1, 1])]
    for name, model in models_of_two_columns().items():
        for rows in wrong:
            with pytest.raises((TypeError, ValueError), match="^(x must (be|have)|x is a sparse matrix|the map takes rows)"):
                model(rows)
                pytest.fail(f"{name} took {rows!r}")


@pytest.mark.parametrize("classes", [("a",), (), "ab", ["a", "a"], None, 3, (None, "a")])
def test_names_of_classes_are_two_or_more(classes):
    with pytest.raises(ValueError, match="^classes must be the names of two classes or more, each once, got "):
        models.Classifier(models.Linear(jnp.ones(2), jnp.zeros(())), classes)
