"""What many tests compare with: plain NumPy in float64, sums over explicit pairs of rows, and
equality to the bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize


def gaussian(x: Any, z: Any, gamma: float = 0.5) -> np.ndarray:
    """exp(-gamma |x_i - z_j|^2), (n, m) in float64."""
    x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
    return np.exp(-gamma * ((x[:, None] - z[None]) ** 2).sum(-1))


def pair_weights(is_above, y, query, weight, per_query=False):
    """c_ij of all pairs of rows of one query, (n, n); `is_above` (y) says which is above which."""
    c = np.where(is_above(y) & (query[:, None] == query), np.outer(weight, weight), 0.0)
    if per_query:
        for q in set(query):
            c[query == q] /= max(c[query == q].sum(), 1e-300)
    return c / max(c.sum(), 1e-300)


def differences(is_above, x, y, query, weight):
    """The rows x_i - x_j of all pairs, and their weights."""
    c = pair_weights(is_above, y, query, weight)
    i, j = np.nonzero(c)
    return x[i] - x[j], c[i, j]


def by_pairs(c, score, squared):
    """The risk and its slope from the differences of all pairs."""
    slack = np.maximum(1 - (score[:, None] - score), 0)
    pull = 2 * c * slack if squared else c * (slack > 0)
    return (c * (slack**2 if squared else slack)).sum(), pull.sum(axis=0) - pull.sum(axis=1)


def smooth_pairs(is_above, x, y, query, weight, lam):
    """Weights and value of the optimum of the squared loss by SciPy on the explicit pairs."""
    z, c = differences(is_above, x, y, query, weight)
    slack = lambda w: np.maximum(1 - z @ w, 0)
    fun = lambda w: lam / 2 * w @ w + c @ slack(w) ** 2
    jac = lambda w: lam * w - 2 * (c * slack(w)) @ z
    start = np.zeros(x.shape[1])
    best = scipy.optimize.minimize(fun, start, jac=jac, method="BFGS", options={"gtol": 1e-11})
    return best.x, best.fun


def assert_same_bits(found: Any, wanted: Any) -> None:
    """Fail unless two trees have the same structure, dtypes and bits; keys are compared by their
    words."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for have, want in zip(
        *(jax.tree.leaves(jax.tree.map(jnp.asarray, tree)) for tree in (found, wanted)), strict=True
    ):
        if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            have, want = jax.random.key_data(have), jax.random.key_data(want)
        assert have.dtype == want.dtype and np.asarray(have).tobytes() == np.asarray(want).tobytes()


def with_ones(x: np.ndarray, bias: str) -> np.ndarray:
    """The rows, with the constant feature where there is a bias."""
    return x if bias == "none" else np.c_[x, np.ones(len(x))]


def weights_of(model: Any, bias: str) -> np.ndarray:
    """The weights of a linear model in float64, with that of the constant feature last."""
    w = np.asarray(model.w, np.float64)
    return w if bias == "none" else np.append(w, float(model.b))
