"""Jobs of all engines under JAX's debugging flags and modes: they end at the same model."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import features, kernels, losses, samplers

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
RBF = kernels.rbf(gamma=0.5)


@functools.cache
def data(kind="labels", dtype="float32"):
    x = jnp.asarray(X).astype(dtype)
    if kind == "classes":
        return jaxsvm.dataset(x, np.arange(40) % 3, task="multiclass")
    if kind == "real":
        return jaxsvm.dataset(x, X[:, 0], task="regression")
    return jaxsvm.dataset(x, Y)


def fitted(make, kind="labels", **options):
    return lambda key, dtype: jaxsvm.fit(make(), data(kind, dtype), key, **options).model


@functools.cache
def phi():
    return features.fourier(jax.random.key(2), RBF, dim=3, features=8)


JOBS = {
    "pegasos": fitted(lambda: jaxsvm.pegasos(0.1), steps=12),
    "averaged": fitted(lambda: jaxsvm.averaged(jaxsvm.pegasos(0.1)), steps=12),
    "epochs": fitted(lambda: jaxsvm.asgd(0.1), steps=12, sampler=samplers.epochs(4)),
    "asset": fitted(lambda: jaxsvm.asset(0.1), steps=12),
    "sdca": fitted(lambda: jaxsvm.sdca(1.0), steps=80),
    "sdca, acf": fitted(lambda: jaxsvm.sdca(1.0), steps=80, sampler=samplers.acf()),
    "sdca, kernel": fitted(lambda: jaxsvm.sdca(1.0, RBF), steps=80),
    "cocoa": fitted(lambda: jaxsvm.cocoa(1.0, blocks=2), steps=4),
    "dual_descent": fitted(lambda: jaxsvm.dual_descent(1.0)),
    "interior_point": fitted(lambda: jaxsvm.interior_point(1.0)),
    "augmented_lagrangian": fitted(lambda: jaxsvm.augmented_lagrangian(1.0)),
    "newton": fitted(lambda: jaxsvm.newton(0.1, loss=losses.logistic, bias="free")),
    "decomposition": fitted(lambda: jaxsvm.decomposition(1.0, RBF)),
    "nu_svc": fitted(lambda: jaxsvm.nu_svc(0.3, RBF)),
    "smo": fitted(lambda: jaxsvm.smo(1.0, RBF), steps=40),
    "lasvm": fitted(lambda: jaxsvm.lasvm(1.0, RBF), steps=2),
    "bsgd": fitted(lambda: jaxsvm.bsgd(0.1, RBF, budget=8), steps=20),
    "perceptron": fitted(lambda: jaxsvm.perceptron(RBF), steps=20),
    "ocas": fitted(lambda: jaxsvm.ocas(0.1), steps=5),
    "wolfe": fitted(lambda: jaxsvm.wolfe(0.1), steps=5),
    "scs": fitted(lambda: jaxsvm.scs(0.1, capacity=20), steps=5),
    "least_squares": fitted(lambda: jaxsvm.least_squares(0.1), "real", steps=4),
    "on_features": fitted(lambda: jaxsvm.on_features(phi(), jaxsvm.pegasos(0.1)), steps=12),
    "one_vs_rest": fitted(
        lambda: jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3), "classes", steps=12
    ),
    "select": lambda key, dtype: (
        jaxsvm.select(
            lambda C: jaxsvm.linear_svm(C),
            data("labels", dtype),
            key,
            C=np.array([0.1, 1.0]),
            folds=2,
            progress=False,
        ).model
    ),
}
MODES = {
    "debug": {
        "jax_check_tracer_leaks": True,
        "jax_debug_nans": True,
        "jax_debug_infs": True,
        "jax_debug_key_reuse": True,
    },
    "precision": {"jax_default_matmul_precision": "highest"},
    "draws": {"jax_threefry_partitionable": False, "jax_default_prng_impl": "rbg"},
}


@functools.cache
def plain(job):
    return JOBS[job](jax.random.key(0), "float32")


FEW = ("pegasos", "sdca, kernel", "decomposition", "bsgd", "newton", "select")


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "mode"), [(job, m) for job in JOBS for m in MODES if m == "debug" or job in FEW]
)
def test_flags_change_nothing(job, mode):
    expected = plain(job)
    data()
    before = {name: getattr(jax.config, name) for name in MODES[mode]}
    if mode == "debug":  # what it finds depends on whether a program was called before
        jax.clear_caches()
    for name, value in MODES[mode].items():
        jax.config.update(name, value)
    try:
        for _ in range(3 if mode == "debug" else 1):  # JAX has other paths for later calls
            found = JOBS[job](jax.random.key(0), "float32")
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(np.asarray(one)).all()
        if mode != "draws":  # other keys draw other rows
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "dtype"), [*((job, "bfloat16") for job in JOBS), *((job, "float16") for job in FEW)]
)
def test_rows_of_16_bits(job, dtype):
    with jax.numpy_dtype_promotion("standard"):  # rows of 16 bits meet numbers of 32
        model = JOBS[job](jax.random.key(0), dtype)
    for leaf in jax.tree.leaves(model):
        assert np.isfinite(np.asarray(leaf, np.float64)).all()


@pytest.mark.long
@pytest.mark.parametrize("job", FEW)
def test_raw_keys(job):
    """An old key of two words is a key, or it is refused in a sentence."""
    try:
        model = JOBS[job](jax.random.PRNGKey(0), "float32")
    except (TypeError, ValueError) as error:
        assert "key" in str(error) and "jax.random" in str(error)
        return
    for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(plain(job)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("job", ["averaged", "newton", "dual_descent", "decomposition", "wolfe"])
def test_without_compilation(job):
    expected = plain(job)
    with jax.disable_jit():
        found = JOBS[job](jax.random.key(0), "float32")
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("job", "parts"),
    [
        ("decomposition", ["solve_matrix", "solve_pairs"]),
        ("dual_descent", ["visit_rows"]),
        ("interior_point", ["newton_step", "evaluate"]),
        ("ocas", ["add_plane", "solve_planes", "line_search"]),
        ("sdca", ["visit_rows"]),
    ],
)
def test_profiles_name_the_parts_of_a_run(job, parts):
    """By `jax.named_scope`, as the names of operations."""
    run = jax.jit(lambda key: JOBS[job](key, "float32")(X))
    text = run.lower(jax.random.key(0)).as_text(debug_info=True)
    for part in parts:
        assert re.search(rf'["/]{part}/', text)


@pytest.mark.long
def test_residuals_may_be_infinite_in_loops_under_debug_infs():
    """The residual of `sdca` is infinite before its first pass over the rows."""
    solver, key = jaxsvm.sdca(1.0), jax.random.key(0)
    jax.clear_caches()
    with jax.debug_infs(True):
        for _ in range(3):
            state = solver.init(key, data())
            state, info = jaxsvm.step(solver, state, jaxsvm.take(data(), jnp.arange(4)))
            assert np.isinf(info.residual) and np.isfinite(info.loss)


@pytest.mark.long
def test_threads_run_under_the_flags_of_their_caller():
    """The fits of `select` run in threads, in which a `with` of JAX would not hold."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        x, y = np.asarray(X, np.float64), Y
        key, machine = jax.random.key(0), lambda C: jaxsvm.decomposition(C, RBF)
        options = {"C": np.array([0.1, 1.0]), "folds": 2, "progress": False}
        model = jaxsvm.select(machine, jaxsvm.dataset(x, y), key, **options).model
        assert model.coef.dtype == jnp.float64
