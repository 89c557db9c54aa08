"""States and models in `flax.serialization`, bit for bit."""

import jax
import numpy as np
import pytest
from oracles import assert_same_bits

import jaxsvm
from jaxsvm import kernels

serialization = pytest.importorskip("flax.serialization")
X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
DATA = jaxsvm.dataset(X, np.where(X[:, 0] > 0, 1, -1))
CLASSES = jaxsvm.dataset(X, np.arange(30) % 3, task="multiclass")
SOLVERS = {
    "pegasos": lambda: jaxsvm.pegasos(0.1),
    "averaged": lambda: jaxsvm.averaged(jaxsvm.asset(0.1)),
    "decomposition": lambda: jaxsvm.decomposition(1.0, kernels.rbf(1.0)),
    "one_vs_rest": lambda: jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_round_trip_keeps_every_bit(name):
    jaxsvm.models.register_with_flax()
    jaxsvm.models.register_with_flax()  # a second call
    data = CLASSES if name == "one_vs_rest" else DATA
    result = jaxsvm.fit(SOLVERS[name](), data, jax.random.key(0), steps=5)
    for tree in (result, result.model, result.state, {"a": [result.state.solver, result.model]}):
        assert_same_bits(back_of(tree), tree)
    go_on = lambda state: jaxsvm.fit(SOLVERS[name](), data, state=state, steps=9).model
    assert_same_bits(go_on(back_of(result.state)), go_on(result.state))


def back_of(tree):
    return serialization.from_bytes(tree, serialization.to_bytes(tree))


def test_solvers_keep_their_numbers():
    jaxsvm.models.register_with_flax()
    solver = jaxsvm.decomposition(2.0, kernels.rbf(0.5))
    state = serialization.to_state_dict(solver)
    assert state[".C"] == 2.0 and state[".kernel.sigma"] == 0.5
    other = serialization.from_state_dict(jaxsvm.decomposition(1.0, kernels.rbf(1.0)), state)
    assert other == solver


def test_another_structure_is_refused():
    jaxsvm.models.register_with_flax()
    saved = serialization.to_bytes(jaxsvm.models.Linear(np.ones(2), np.zeros(())))
    with pytest.raises(ValueError, match="is not that of a Classifier like the target"):
        serialization.from_bytes(
            jaxsvm.models.Classifier(jaxsvm.models.Linear(np.ones(2), np.zeros(())), (0, 1)), saved
        )
