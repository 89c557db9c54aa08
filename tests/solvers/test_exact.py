"""Exact kernel machines against LIBSVM, and what holds at every step."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_machines import (
    AT_Z,
    GRAM,
    KEY,
    LABELS,
    PROBLEMS,
    RBF,
    SIGMA,
    TARGETS,
    TUBE,
    WEIGHT,
    Box,
    C,
    D,
    N,
    X,
    Z,
    dataset,
    fit,
    fit_smo,
    libsvm,
    solver,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm._node import cast

exact = settings(max_examples=15, deadline=None, derandomize=True, database=None)

# the optimum


@pytest.mark.long
@pytest.mark.parametrize("name", ["decomposition", "smo"])
@pytest.mark.parametrize("y", [LABELS, TARGETS], ids=["labels", "targets"])
def test_as_good_as_libsvm_at_its_tolerance_in_float32(name, y):
    loss = losses.hinge if y is LABELS else TUBE
    data = dataset(y=y)
    smo = name == "smo"
    run = fit_smo(jaxsvm.smo(C, RBF, loss=loss), data) if smo else fit(solver(loss), data)
    assert run.converged
    part, coef = Box(loss, y, C), libsvm(y, GRAM, tol=1e-3)[0]
    assert part.value(run.model.coef, GRAM) >= (1 - 1e-5) * part.value(coef, GRAM)
    best, best_b = libsvm(y, GRAM, tol=1e-8)
    # Both are within tol of the optimality conditions; f is off by several times as much.
    np.testing.assert_allclose(run.model(Z.astype(np.float32)), AT_Z @ best + best_b, atol=1e-2)


@functools.cache
def fine(name):
    """The run in float64 to 1e-6."""
    loss, bias, y = PROBLEMS[name]
    with jax.enable_x64(True):
        return fit(solver(loss, bias), dataset(np.float64, y), tol=1e-6)


def test_weights_and_classes_are_boxes_of_their_size():
    weight = WEIGHT * np.where(LABELS > 0, 3.0, 0.5)
    coef, b = libsvm(LABELS, GRAM, tol=1e-8, weight=weight)
    for stop, rounds in (("kkt", 1000), ("gap", 40)):
        run = fit(solver(stop=stop, rounds=rounds), dataset(weight=weight), tol=1e-5)
        assert run.converged and np.all(np.asarray(run.model.coef)[weight == 0] == 0)
        np.testing.assert_allclose(run.model(Z.astype(np.float32)), AT_Z @ coef + b, atol=1e-3)
    plain, plain_b = libsvm(LABELS, GRAM, tol=1e-8)
    assert np.abs(AT_Z @ (coef - plain) + b - plain_b).max() > 0.05


OWN = lambda x, z: jnp.exp(-jnp.sum((x[:, None] - z[None]) ** 2, -1) / (2 * SIGMA**2))


@pytest.mark.long
@pytest.mark.parametrize(
    "make, kernel, x, new",
    [
        (solver, OWN, X, Z),
        (solver, kernels.precomputed(), GRAM, AT_Z),
        (lambda kernel: jaxsvm.smo(C, kernel), kernels.precomputed(), GRAM, AT_Z),
    ],
    ids=["function", "precomputed", "smo precomputed"],
)
def test_precomputed_values_and_functions_are_kernels(make, kernel, x, new):
    coef, b = libsvm(LABELS, GRAM, tol=1e-8)
    run = (fit if make is solver else fit_smo)(make(kernel=kernel), dataset(x=x), tol=1e-4)
    assert run.converged
    np.testing.assert_allclose(run.model(new.astype(np.float32)), AT_Z @ coef + b, atol=2e-3)


def test_support_vectors_are_those_of_libsvm(x64):
    tol = 1e-6
    run, (coef, b) = fine("hinge free"), libsvm(LABELS, GRAM, tol=tol)
    margin = LABELS * (GRAM @ coef + b)
    clear = np.abs(margin - 1) > 10 * tol
    ours, theirs = (
        set(np.flatnonzero((np.abs(c) > 1e-3 * C) & clear))
        for c in (np.asarray(run.model.coef), coef)
    )
    assert ours == theirs and len(ours) > 5 and np.sum(clear) > 20
    support = run.model.support()
    assert theirs <= set(support.index)
    np.testing.assert_allclose(
        AT_Z[:, support.index] @ support.coef + support.b, AT_Z @ coef + b, atol=1e-4
    )


# invariants at every step

TINY = 12  # rows; fewer are made by weights of 0


@functools.partial(jax.jit, static_argnames=("steps",))
def _walk(made, data, steps):
    """The coefficients, residuals and losses after each of so many updates."""

    def step(state, _):
        state, info = made.update(state, data)
        return state, (getattr(state, "dual", state).coef, info)

    return lax.scan(step, made.init(KEY, data), length=steps)[1]


TRAIL = {
    "smo": (lambda C, loss, bias: jaxsvm.smo(C, RBF, loss=loss, bias=bias), 150),
    "decomposition": (
        lambda C, loss, bias: solver(loss, bias, C, working_set=4, rounds=1, tol=1e-4),
        40,
    ),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", TRAIL)
@pytest.mark.parametrize("loss, bias", [(losses.hinge, "free"), (TUBE, "none")], ids=repr)
def test_bounds_and_sum_hold_at_every_step(name, loss, bias):
    make, steps = TRAIL[name]

    @exact
    @given(
        seed=st.integers(0, 2**32 - 1),
        scale=st.sampled_from([1e-4, 0.3, 1.0, 1e3]),
        C=st.sampled_from([1e-3, 0.7, 10.0, 1e5]),
        copies=st.booleans(),
        counted=st.integers(2, TINY),
    )
    @example(seed=0, scale=1.0, C=1e5, copies=True, counted=TINY)
    def check(seed, scale, C, copies, counted):
        rng = np.random.default_rng(seed)
        x = scale * rng.normal(size=(TINY, D)) * [1.0, 1e-2, 1.0]
        x = np.repeat(x[::3], 3, axis=0) if copies else x
        y = (
            np.where(rng.random(TINY) < 0.5, 1.0, -1.0)
            if loss.labels
            else scale * rng.normal(size=TINY)
        )
        y[:2] = (1, -1) if loss.labels else y[:2]
        weight = np.where(
            np.arange(TINY) < counted, np.round(rng.uniform(0.1, 3, TINY), 1), 0
        ).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns on scales far apart
            data = jaxsvm.dataset(
                x.astype(np.float32), y, weight, task="binary" if loss.labels else "regression"
            )
        coefs, info = jax.tree.map(
            np.asarray, _walk(cast(make(C, loss, bias), np.float32), data, steps)
        )
        assert coefs.dtype == np.float32
        high = np.float32(C) * weight
        low, high = (
            Box(loss, y, high.astype(np.float64)).low,
            Box(loss, y, high.astype(np.float64)).high,
        )
        assert np.all((low <= coefs) & (coefs <= high))
        if bias == "free":
            wide = coefs.astype(np.float64)
            assert np.all(np.abs(wide.sum(1)) <= 1e-6 * np.abs(wide).sum(1))
        assert np.all(np.isfinite(coefs)) and np.all(info.residual >= 0)

    check()


@pytest.mark.long
def test_no_step_lowers_the_dual_and_the_gain_is_what_it_says(x64):
    for make, steps in TRAIL.values():
        coefs, info = _walk(
            cast(make(C, TUBE, "free"), np.float64), dataset(np.float64, TARGETS), steps
        )
        part = Box(TUBE, TARGETS, C)
        value = np.array([0.0] + [part.value(coef, GRAM) for coef in coefs])
        # LIBSVM's violation before a step, ours after a block.
        before = np.array(
            [
                part.violation(coef, GRAM, "free")
                for coef in np.concatenate([np.zeros((1, N)), coefs])
            ]
        )
        np.testing.assert_allclose(
            info.residual, before[:-1] if steps == 150 else before[1:], rtol=1e-9, atol=1e-12
        )
        assert np.diff(value).min() >= -1e-12 and np.diff(value)[:10].min() > 0
        np.testing.assert_allclose(info.progress.sum(1), np.diff(value), atol=1e-11)
        moved = np.diff(np.concatenate([np.zeros((1, N)), coefs]), axis=0) != 0
        np.testing.assert_array_equal(np.asarray(info.index), np.where(moved, np.arange(N), -1))
        np.testing.assert_array_equal(info.support, (np.asarray(coefs) != 0).sum(1))
