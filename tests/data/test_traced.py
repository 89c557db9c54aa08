"""`dataset` inside of transformations, against the same call outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm
from jaxsvm import losses

RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 3)).astype(np.float32)
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
WEIGHT = RNG.integers(1, 4, 30).astype(np.float32)
KEY = jax.random.key(0)


def weights(x, y, weight=None, tol=1e-6, loss=losses.squared_hinge):
    data, solver = jaxsvm.dataset(x, y, weight), jaxsvm.linear_svm(0.5, loss=loss, tol=tol)
    return jaxsvm.fit(solver, data, KEY, steps=1).model.w


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "y", [Y > 0, (Y > 0) * 1, Y.astype(np.float32)], ids=["booleans", "0 and 1", "-1 and 1"]
)
def test_a_traced_call_is_the_call_outside(y):
    outside = weights(X, y, WEIGHT)
    np.testing.assert_allclose(jax.jit(weights)(X, y, WEIGHT), outside, rtol=1e-5, atol=1e-6)
    several = jax.jit(jax.vmap(weights))(jnp.stack([X, 2 * X]), jnp.stack([y, y]))
    np.testing.assert_allclose(several[1], weights(2 * X, y), rtol=1e-4, atol=1e-5)


def test_what_is_known_of_y_is_numbered_as_outside():
    names = np.where(Y > 0, "yes", "no")
    inside = jax.jit(lambda x: weights(x, names))(X)
    np.testing.assert_allclose(inside, weights(X, names), rtol=1e-5, atol=1e-6)
    seen = []
    jax.jit(lambda x: seen.append(jaxsvm.dataset(x, np.where(Y > 0, 7, 3))))(X)
    assert seen[0].classes.names == (3, 7)


def test_derivatives_in_rows_and_weights(x64):
    x, weight, change = X.astype(float), WEIGHT.astype(float), RNG.normal(size=X.shape)
    moved = lambda t: weights(x + t * change, Y, weight * (1 + 0.1 * t), 1e-15)
    total = jax.jit(lambda t: jnp.sum(jnp.tanh(moved(t))))
    difference = (total(1e-6) - total(-1e-6)) / 2e-6
    assert float(jax.grad(total)(0.0)) == pytest.approx(float(difference), rel=1e-4)


def test_labels_that_are_none_are_not_trained_on():
    """1 and 2 could be names, but which they are is not known: the model is nan, not wrong."""
    assert np.isnan(jax.jit(weights)(X, (Y > 0) + 1)).all()
    assert np.isfinite(weights(X, (Y > 0) + 1)).all()


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.hinge], ids=str)
def test_weights_that_are_none_make_nan(bad, loss):
    coefficients = jax.jit(lambda weight: weights(X, Y, weight, loss=loss))
    assert np.isnan(coefficients(np.where(np.arange(30) == 3, bad, WEIGHT))).all()
    assert np.isnan(coefficients(0 * WEIGHT)).all()
    assert np.isfinite(coefficients(WEIGHT)).all()


@pytest.mark.parametrize("name", ["x", "y", "weight"])
def test_what_is_known_is_finite(name):
    known = {"x": X, "y": X[:, 0].copy(), "weight": WEIGHT}
    known[name] = np.where(np.arange(30) == 7, np.nan, known[name].T).T
    traced = "y" if name == "x" else "x"
    make = lambda a: jaxsvm.dataset(**{**known, traced: a}, task="regression")
    with pytest.raises(ValueError, match=f"{name} holds a NaN"):
        jax.jit(make)(known[traced])


def test_other_tasks():
    made = jax.jit(lambda x, y: jaxsvm.dataset(x, y, task="regression"))(X, X[:, 0])
    np.testing.assert_array_equal(made.y, X[:, 0])
    made = jax.jit(lambda x, y: jaxsvm.dataset(x, y, task="multiclass"))(X, np.arange(30) % 3)
    np.testing.assert_array_equal(made.y, np.arange(30) % 3)
    made = jax.jit(lambda x, y, q: jaxsvm.dataset(x, y, query=q))(X, X[:, 0], np.arange(30) // 5)
    np.testing.assert_array_equal(made.query, np.arange(30) // 5)
    assert made.weight.tolist() == [1.0] * 30 and made.index.tolist() == list(range(30))
