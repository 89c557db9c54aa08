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


def inner(rate=RATE):
    return optax.chain(optax.sgd(rate), average_iterates())


# wrapper -> (transform, which parameters are averaged, which of the steps move)
EVERY, PLACES = ("a", "b"), {"a": 0, "b": 1}
from_0 = lambda step: step >= 0
WRAPPED = {
    "alone": (lambda own: own, EVERY),
    "chain": (lambda own: optax.chain(optax.identity(), own), EVERY),
    "named_chain": (lambda own: optax.named_chain(("x", own)), EVERY),
    "masked": (lambda own: optax.masked(own, {"a": True, "b": False}), ("a",)),
    "partition": (lambda own: optax.partition({0: own, 1: optax.sgd(RATE)}, PLACES), ("a",)),
    "two of a partition": (lambda own: optax.partition({0: own, 1: inner()}, PLACES), EVERY),
    "apply_if_finite": (lambda own: optax.apply_if_finite(own, 3), EVERY),
    "flatten": (lambda own: optax.flatten(optax.sgd(RATE)), ()),
    "MultiSteps": (lambda own: optax.MultiSteps(own, 1).gradient_transformation(), EVERY),
    "inject_hyperparams": (lambda own: optax.inject_hyperparams(inner)(RATE), EVERY),
    "conditionally_transform": (lambda own: optax.conditionally_transform(own, from_0), EVERY),
    "extra args": (lambda own: optax.with_extra_args_support(own), EVERY),
}


@pytest.fixture(autouse=True)
def _promotion_of_optax():
    """Some of optax's wrappers add numbers of two types."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.long(but=4)
@pytest.mark.parametrize("name", WRAPPED)
def test_averages_inside_of_a_wrapper(name):
    make, averaged = WRAPPED[name]
    tx, params = make(inner()), PARAMS
    state, path = jax.jit(tx.init)(params), []
    for grads in GRADS:
        updates, state = jax.jit(tx.update)(grads, state, params)
        params = optax.apply_updates(params, updates)
        path.append(params)
    found = averaged_params(state, params)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    moved = PARAMS["a"] - RATE * sum(grads["a"] for grads in GRADS)  # updates pass unchanged
    np.testing.assert_allclose(params["a"], moved, rtol=1e-6)
    for key in EVERY:
        iterates = np.stack([np.asarray(p[key]) for p in path])
        assert np.ptp(iterates, axis=0).min() > 0.1
        expected = iterates.mean(0) if key in averaged else iterates[-1]
        np.testing.assert_allclose(found[key], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["alone", "masked", "partition"])
def test_projections_inside_of_a_wrapper(name):
    bounded = optax.chain(
        optax.sgd(RATE), keep(lambda p: jax.tree.map(lambda w: jnp.clip(w, -2.1, 2.1), p))
    )
    make, _ = WRAPPED[name]
    tx = make(bounded)
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
