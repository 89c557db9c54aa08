"""The rows, landmarks and references that the tests of feature maps share."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles

import jaxsvm
from jaxsvm import kernels
from jaxsvm.features import fourier, nystrom

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = np.sign(X @ [2.0, -1.0, 0.5] + 0.3 * RNG.normal(size=24))
X32, PLACES = jnp.asarray(X, jnp.float32), [3, 11, 17, 5, 20, 8]
LAND = X[PLACES]  # s = 6 everywhere, so that programs are shared
SIGMA, KEY, DRAWS = 1.5, jax.random.key(0), 20_000
RBF = kernels.rbf(SIGMA)

given = jax.jit(
    lambda kernel, landmarks, eps=1e-16: nystrom(None, kernel, landmarks=landmarks, eps=eps)
)
random = jax.jit(fourier, static_argnames=("dim", "features", "form"))
apply = jax.jit(lambda phi, x: phi(x))
equal = np.testing.assert_array_equal


def gaussian(x, z, sigma=SIGMA):
    return oracles.gaussian(x, z, 1 / (2 * sigma**2))


def cubic(x, z):
    return (x @ z.T + 1) ** 3


def close(have, want, tol):
    """Equal up to `tol` of the largest value."""
    np.testing.assert_allclose(have, want, rtol=0, atol=tol * np.abs(np.asarray(want)).max())


def within(have, want, error):
    """At most 5 standard errors apart; the draws are fixed."""
    assert (np.abs(have - want) <= 5 * error).all(), (have, want, error)


def train(dtype="f"):
    return jaxsvm.dataset(X.astype(dtype), Y)


def mapped(sigma=SIGMA, dtype="f"):
    return given(kernels.rbf(sigma), LAND.astype(dtype))


def hits_of(drawn, rows):
    """Which row each drawn one is, (..., drawn, rows); none of them comes twice."""
    hits = (np.asarray(drawn)[..., None, :] == np.asarray(rows, "f")).all(-1)
    assert (hits.sum(-1) == 1).all() and (hits.sum(-2) <= 1).all()
    return hits
