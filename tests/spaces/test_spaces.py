"""The operations of function spaces against their definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import budget, kernels, spaces

X = np.array([[3.0, 4.0], [1.0, -2.0], [0.5, 0.0]], np.float32)
WEIGHT = np.array([1.0, 0.0, 2.0], np.float32)
DATA = jaxsvm.dataset(X, [1, 1, -1], WEIGHT)
COEF = jnp.array([0.5, 0.0, 0.0])
KEY = jax.random.key(0)


def test_a_constant_adds_1_to_all_inner_products():
    space = spaces.with_constant(spaces.linear())
    np.testing.assert_array_equal(space.gram(DATA), X @ X.T + 1)
    np.testing.assert_array_equal(space.sqnorm(DATA.x), [26, 6, 1.25])
    f = space.add(space.zero(KEY, DATA), jnp.zeros(()), COEF, DATA)
    np.testing.assert_array_equal(space.evaluate(f, DATA), (X @ X.T + 1) @ np.asarray(COEF))


def test_evaluations_are_those_of_rows_that_count_and_of_changes():
    """A linear function takes one per row, one of m points m, and what the maintenance says for a
    coefficient."""
    assert int(spaces.linear().evals(COEF, DATA)) == 2

    @jaxsvm.node
    class seven(budget.Maintenance):
        def evals(self, budget):
            return 7

    space = spaces.budgeted(kernels.rbf(1.0), budget=5, maintain=seven())
    assert int(space.evals(COEF, DATA)) == 5 * 2 + 7
    assert int(space.evals(0 * COEF, DATA)) == 5 * 2


def test_means_are_of_the_functions_before_steps_or_after_moves():
    """w = 0, x_0, x_0, x_0 + 2 x_1 before four steps, of which the third does nothing."""
    coefs = np.array([[1, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, -1]], np.float32)
    after = np.cumsum(coefs @ X, axis=0)
    before = np.concatenate([np.zeros((1, 2)), after[:-1]])
    for of, summands in [("steps", before), ("moves", after[[0, 2, 3]])]:
        space = spaces.averaged(spaces.linear(), of=of)
        f = space.zero(KEY, DATA)
        for coef in coefs:
            f = space.add(f, jnp.zeros(()), jnp.asarray(coef), DATA)
        np.testing.assert_allclose(space.model(f).w, summands.mean(0), rtol=1e-6)
        assert int(f.count) == len(summands)
