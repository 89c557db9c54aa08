"""`average_iterates` and `keep` inside of optax's wrappers, against means and clips in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsvm
from jaxsvm import average_iterates, averaged_params, keep

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([3.0])}
GRADS = [{"a": jnp.array([0.5, 1.0]) * k, "b": jnp.array([-1.0]) * k} for k in range(1, 6)]
RATE = 0.1


def inner():
    return optax.chain(optax.sgd(RATE), average_iterates())


# wrapper -> (transform, which parameters are averaged, which of the steps move)
EVERY = ("a", "b")
WRAPPED = {
    "alone": (inner, EVERY),
    "chain": (lambda: optax.chain(optax.identity(), inner()), EVERY),
    "named_chain": (lambda: optax.named_chain(("x", inner())), EVERY),
    "masked": (lambda: optax.masked(inner(), {"a": True, "b": False}), ("a",)),
    "partition": (
        lambda: optax.partition(
            {"own": inner(), "plain": optax.sgd(RATE)}, {"a": "own", "b": "plain"}
        ),
        ("a",),
    ),
    "two of a partition": (
        lambda: optax.partition({"one": inner(), "other": inner()}, {"a": "one", "b": "other"}),
        EVERY,
    ),
    "apply_if_finite": (lambda: optax.apply_if_finite(inner(), 3), EVERY),
    "flatten": (lambda: optax.flatten(optax.sgd(RATE)), ()),
    "MultiSteps": (lambda: optax.MultiSteps(inner(), 1).gradient_transformation(), EVERY),
    "inject_hyperparams": (
        lambda: optax.inject_hyperparams(
            lambda rate: optax.chain(optax.sgd(rate), average_iterates())
        )(RATE),
        EVERY,
    ),
    "conditionally_transform": (
        lambda: optax.conditionally_transform(inner(), lambda step: step >= 0),
        EVERY,
    ),
    "extra args": (lambda: optax.with_extra_args_support(inner()), EVERY),
}


@pytest.fixture(autouse=True)
def _promotion_of_optax():
    """Some of optax's wrappers add numbers of two types."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("name", WRAPPED)
def test_averages_inside_of_a_wrapper(name):
    make, averaged = WRAPPED[name]
    tx, params = make(), PARAMS
    state, path = jax.jit(tx.init)(params), []
    for grads in GRADS:
        updates, state = jax.jit(tx.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
        path.append(params)
    found = averaged_params(state, params)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    steps = np.zeros(2), np.zeros(1)
    for key, start in zip(EVERY, steps, strict=True):
        iterates = np.stack([np.asarray(p[key]) for p in path])
        assert np.ptp(iterates, axis=0).min() > 0.1, start
        expected = iterates.mean(0) if key in averaged else iterates[-1]
        np.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["alone", "masked", "partition"])
def test_projections_inside_of_a_wrapper(name):
    bounded = optax.chain(
        optax.sgd(RATE), keep(lambda p: jax.tree.map(lambda w: jnp.clip(w, -2.1, 2.1), p))
    )
    tx = {
        "alone": lambda: bounded,
        "masked": lambda: optax.masked(bounded, {"a": True, "b": False}),
        "partition": lambda: optax.partition(
            {"own": bounded, "plain": optax.sgd(RATE)}, {"a": "own", "b": "plain"}
        ),
    }[name]()
    params, state = PARAMS, tx.init(PARAMS)
    for grads in GRADS:
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        assert np.abs(params["a"]).max() <= 2.1 + 1e-6
    # what is masked takes the gradients themselves as updates
    expected = {"alone": 2.1, "masked": 3 - 15, "partition": 4.5}[name]
    assert float(params["b"][0]) == pytest.approx(expected)


def test_parameters_and_state_can_be_donated_together():
    tx = inner()

    def step(params, state):
        updates, state = tx.update(GRADS[0], state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.copy, PARAMS)
    donating = jax.jit(step, donate_argnums=(0, 1))
    params, state = donating(params, tx.init(params))
    params, state = donating(params, state)
    assert np.isfinite(np.asarray(jaxsvm.averaged_params(state, params)["a"])).all()
