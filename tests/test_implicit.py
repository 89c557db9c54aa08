"""Derivatives of exact solutions are differences of exact solutions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.svm
from solutions import (
    LABELS,
    STEP,
    WEIGHT,
    X,
    Z,
    directions,
    exact,
    gaussian,
    gradient,
    held_out,
    moved,
    objective,
    sets,
    start,
)

CASES = [
    ("hinge", "free"),
    ("hinge", "none"),
    ("squared_hinge", "free"),
    ("squared_hinge", "none"),
    ("smooth_hinge", "none"),
    ("squared", "free"),
    ("eps_insensitive", "free"),
    ("eps_insensitive", "none"),
    ("pinball", "free"),
]


@pytest.mark.long
@pytest.mark.parametrize("name, bias", CASES)
def test_gradients_are_differences_of_exact_solutions(name, bias, x64):
    p = start(name)
    where = sets(name, bias, p)
    coef, b = exact(name, bias, p, where)
    place = where[0]
    assert np.sum(place == 0) > 2 and (name in ("squared", "squared_hinge") or np.any(place == 1))
    value, found = gradient(p, coef, b, name, bias)
    np.testing.assert_allclose(value, held_out(name, bias, p, where), rtol=1e-13)
    for key, direction in directions(name, p).items():
        either = [held_out(name, bias, moved(p, key, direction, by), where) for by in (STEP, -STEP)]
        # differences: STEP^2 of the third derivative, and 1e-14 / STEP of rounding; the ridge: less
        np.testing.assert_allclose(
            np.vdot(found[key], direction),
            (either[0] - either[1]) / (2 * STEP),
            rtol=1e-6,
            atol=1e-7,
        )


def test_the_differences_are_those_of_libsvm(x64):
    # which keeps kernel values in float32: differences far apart, good to some digits
    name, bias, p = "hinge", "free", start("hinge")

    some = WEIGHT > 0  # scikit-learn's prediction mixes up columns of rows of weight 0

    def f(C):
        svc = sklearn.svm.SVC(kernel="precomputed", C=C, tol=1e-9)
        svc.fit(gaussian(X[some], X[some], p["sigma"]), LABELS[some], sample_weight=WEIGHT[some])
        return np.sum(np.tanh(svc.decision_function(gaussian(Z, X[some], p["sigma"]))))

    value, found = gradient(p, *exact(name, bias, p, sets(name, bias, p)), name, bias)
    np.testing.assert_allclose(value, f(1.5), rtol=1e-5)
    np.testing.assert_allclose(found["C"], (f(1.51) - f(1.49)) / 0.02, rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("name, bias", [("hinge", "free"), ("eps_insensitive", "none")])
def test_forward_mode_is_reverse_mode(name, bias, x64):
    p = start(name)
    coef, b = exact(name, bias, p, sets(name, bias, p))
    along = {key: np.zeros_like(p[key]) for key in p} | directions(name, p)
    _, found = gradient(p, coef, b, name, bias)
    slope = jax.jit(
        lambda p, along: jax.jvp(lambda p: objective(p, coef, b, name, bias), (p,), (along,))[1]
    )(p, along)
    np.testing.assert_allclose(slope, sum(np.vdot(found[key], along[key]) for key in p), rtol=1e-11)


@pytest.mark.long
def test_second_derivatives_are_differences_of_first_ones(x64):
    name, bias, p = "squared_hinge", "free", start("squared_hinge")
    where = sets(name, bias, p)
    at = lambda p: exact(name, bias, p, where)

    def first(logs, coef, b):
        return jax.grad(
            lambda logs: objective(
                p | {"C": jnp.exp(logs[0]), "sigma": jnp.exp(logs[1])}, coef, b, name, bias
            )
        )(logs)

    logs = np.log([p["C"], p["sigma"]])
    found = jax.jit(jax.jacfwd(first))(logs, *at(p))
    call = jax.jit(first)
    for i in range(2):
        there = [logs + by * np.eye(2)[i] for by in (STEP, -STEP)]
        either = [call(t, *at(p | {"C": np.exp(t[0]), "sigma": np.exp(t[1])})) for t in there]
        np.testing.assert_allclose(
            found[:, i], (either[0] - either[1]) / (2 * STEP), rtol=1e-5, atol=1e-7
        )


@pytest.mark.long
def test_vmap_over_C_is_a_loop(x64):
    name, bias, Cs = "hinge", "free", np.array([0.05, 0.6, 1.5])
    found = [exact(name, bias, p, sets(name, bias, p)) for p in (start(name, C=C) for C in Cs)]
    coefs, bs = np.stack([coef for coef, _ in found]), np.array([b for _, b in found])
    own = lambda C, coef, b: gradient(start(name) | {"C": C}, coef, b, name, bias)
    together = jax.vmap(own)(jnp.asarray(Cs), jnp.asarray(coefs), jnp.asarray(bs))
    for i, C in enumerate(Cs):
        one = own(C, coefs[i], bs[i])
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-9, atol=1e-11),
            together,
            one,
        )
