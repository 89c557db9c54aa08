"""Models, and that files give back what was saved in them."""

import dataclasses
import os
import re
import tempfile
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import scipy.sparse
from compiling import can_convert

import jaxsvm
from jaxsvm import features, kernels, losses, models, samplers
from jaxsvm.data import Scale
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
)
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
    if isinstance(model, jaxsvm.Node):
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
    model = an_expansion(kernel(kernels.custom(own_block, diag_fn=own_diag)))
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


X4 = jaxsvm.dataset([[1.0, 0.0], [-1.0, 0.5], [2.0, 1.0], [-2.0, 0.0]], [1, -1, 1, -1])


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


BATCH = jaxsvm.dataset(np.eye(4, dtype=np.float32), [1, -1, 1, -1])
SPARSE = jaxsvm.dataset(scipy.sparse.csr_matrix(np.eye(4, 6, dtype=np.float32)), BATCH.y)
ONE = Linear(jnp.ones(2), jnp.zeros(()))
THREE = Linear(jnp.ones((3, 2)), jnp.zeros(3))


@pytest.mark.parametrize(
    "tree",
    [
        SPARSE,
        SPARSE.x.packed,
        dataclasses.replace(SPARSE.x, rows=jnp.array([3, 0])),
        StreamState((), BATCH, *[jnp.int32(2)] * 4, jnp.zeros((), bool)),
        features.nystrom(None, kernels.rbf(1.0), landmarks=rows(4, 2)),
        features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=2, features=4),
        OneVsOne(THREE, (True, True), 3),
        OneVsRest(Linear(jnp.ones((3, 2)), jnp.zeros(())), (True, False)),
        Linear(jnp.ones(2), 0.5),
        Classifier(ONE, (1, 2)),
        Classifier(OneVsRest(THREE, (True, True)), (1, 2.5, "c")),
        jaxsvm.perceptron(average=True).init(jax.random.key(0), BATCH),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_rows_states_and_maps(tree, path):
    same(again(tree, path), tree)


@pytest.mark.long
def test_runs_of_a_sweep_load(path):
    """All their arrays have an axis more."""
    data = BATCH

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
                match="^(x must (be|have)|x is a sparse matrix)",
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
