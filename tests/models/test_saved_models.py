"""Files give back what was saved in them."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import scipy.sparse
from compiling import can_convert
from samples import KERNELS, an_expansion, equal, rows

import jaxsvm
from jaxsvm import features, kernels, losses, samplers
from jaxsvm.engines import gradient
from jaxsvm.engines.gradient_descent import Weights
from jaxsvm.loops.streaming import StreamState
from jaxsvm.models import Classifier, Linear, Mapped, expansion, load, save
from jaxsvm.wrappers import OneVsOne, OneVsRest


def same(found, wanted):
    """The same tree: classes, structure, dtypes, every bit."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for have, want in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if not isinstance(want, jax.Array | np.ndarray | np.generic):
            assert type(have) is type(want) and (have == want or have != have and want != want)
            continue
        assert isinstance(have, jax.Array) and have.dtype == want.dtype and have.shape == want.shape
        if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(have) == jax.random.key_impl(want)
            have, want = jax.random.key_data(have), jax.random.key_data(want)
        assert np.asarray(have).tobytes() == np.asarray(want).tobytes()


def again(tree, path):
    save(path, tree)
    return load(path)


@pytest.mark.parametrize("name", KERNELS)
def test_models_with_every_kernel(name, path):
    model = an_expansion(KERNELS[name])
    found = again(model, path)
    same(found, model)
    assert repr(found.kernel) == repr(model.kernel) and found.bias == "free"
    equal(found(rows(2, 3, 1)), model(rows(2, 3, 1)))


def test_a_precomputed_kernel(path):
    data = jaxsvm.dataset([[2.0, 1.0], [1.0, 2.0]], [1, -1])
    model = expansion(kernels.precomputed(), jnp.array([1.0, 2.0]), data)
    equal(again(model, path)(model.x), model(model.x))


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
    equal(found(rows(2, 3)), model(rows(2, 3)))
    equal(found.kernel.diag(rows(2, 3)), model.kernel.diag(rows(2, 3)))


X4 = jaxsvm.dataset([[1.0, 0.0], [-1.0, 0.5], [2.0, 1.0], [-2.0, 0.0]], [1, -1, 1, -1])


OPTIMISERS = {
    "adam": optax.adam(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "partition": optax.partition({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, Weights("a", "b")),
    "masked": optax.masked(optax.adam(0.1), Weights(True, False)),
    "injected": optax.inject_hyperparams(optax.sgd)(0.1),
    "schedule": optax.chain(optax.clip(1.0), optax.sgd(optax.cosine_decay_schedule(0.1, 10))),
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
    one, other = (jax.random.key(seed, impl=impl) for seed in (3, 4))
    tree = {"one": one, "many": jax.random.split(other, 3)}
    found = again(tree, path)
    same(found, tree)
    equal(jax.random.normal(found["one"], (3,)), jax.random.normal(one, (3,)))


DTYPES = "bfloat16 float8_e4m3fn int4 float16 float32 complex64 int8 uint16 uint32 bool"


@pytest.mark.long(but=3)
@pytest.mark.parametrize("dtype", DTYPES.split())
def test_dtypes(dtype, path):
    if not can_convert(dtype):
        pytest.skip(f"XLA has no {dtype} on this processor")
    array = jnp.asarray([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    tree = (array, array[0, 1], array[:0], array[:, :0])
    same(again(tree, path), tree)


def test_numpy_arrays_come_back_as_jax_arrays(path):
    """Of any order of their bytes."""
    ones, whole = np.ones((2, 3), np.float32, order="F").T, np.arange(3, dtype=np.int32)
    tree = [whole, np.float32(0.5), ones, np.bool_(True), whole.astype(ml_dtypes.bfloat16)]
    same(again(tree, path), tree)
    array = np.arange(6, dtype=">i2").reshape(2, 3)
    same(again(array, path), array.astype(np.int16))


NUMBERS = [None, True, False, 0, -(2**80), 0.1, -0.0, np.inf, -np.inf, np.nan]
TREES = [
    {"": {"value": 1, "array": 2, "named": "Linear"}, "b": [None, (1, "x"), []], "a": ((),)},
    [1, 2.5, {"z": (True, None)}],
    {"b": jnp.zeros(()), "a": [jnp.zeros((0, 3)), ((jnp.ones(2),),)]},
]


@pytest.mark.parametrize(
    "tree", [*NUMBERS, "", "snow \u2744 \x00 \U0001f600", (), [], {}, *TREES], ids=repr
)
def test_plain_values(tree, path):
    found = again(tree, path)
    same(found, tree)
    assert str(found) == str(tree), "inf, nan, -0.0, and the order of entries"


def test_paths_may_be_strings(tmp_path):
    save(str(tmp_path / "file without suffix"), jnp.ones(2))
    assert os.listdir(tmp_path) == ["file without suffix"]
    equal(load(str(tmp_path / "file without suffix")), jnp.ones(2))


BATCH = jaxsvm.dataset(np.eye(4, dtype=np.float32), [1, -1, 1, -1])
SPARSE = jaxsvm.dataset(scipy.sparse.csr_matrix(np.eye(4, 6, dtype=np.float32)), BATCH.y)
ONE = Linear(jnp.ones(2), jnp.zeros(()))
THREE = Linear(jnp.ones((3, 2)), jnp.zeros(3))


@pytest.mark.parametrize(
    "tree",
    [
        ONE,
        dataclasses.replace(ONE, bias="feature"),
        Mapped(jaxsvm.data.standardize(rows(4, 2)), ONE),
        BATCH,
        kernels.rbf(0.5),
        jaxsvm.averaged(jaxsvm.pegasos(0.1, loss=losses.squared_hinge, bias="free"), start=5),
        samplers.epochs(4, shuffle=False),
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
def test_rows_states_maps_and_recipes(tree, path):
    found = again(tree, path)
    same(found, tree)
    assert type(found) is type(tree)
    assert repr(found) == repr(tree) or not isinstance(tree, jaxsvm.Node)


@pytest.mark.long
def test_runs_of_a_sweep_load(path):
    """All their arrays have an axis more."""
    many = jaxsvm.dataset(np.eye(4, dtype=np.float32), [0, 1, 2, 0], task="multiclass")
    run = lambda solver, data: jaxsvm.fit(solver, data, jax.random.key(0), steps=3)
    one = lambda lam: run(jaxsvm.kernel_pegasos(lam, kernels.rbf(lam + 1.0)), BATCH)
    three = lambda lam: run(jaxsvm.one_vs_one(jaxsvm.pegasos(lam), classes=3), many)
    for make in (one, three):
        swept = jax.vmap(make)(jnp.array([0.1, 1.0]))
        same(again(swept, path), swept)
