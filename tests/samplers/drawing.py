"""Draws of samplers and feedback to them, compiled once for each sampler and number of steps."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.svm import LinearSVC

import jaxsvm


def rows(weight, n=None):
    """n rows, the first with these weights and the others with none: samplers read nothing else."""
    weight = np.asarray(weight, np.float32)
    n = len(weight) if n is None else n
    weight, index = np.pad(weight, (0, n - len(weight))), np.arange(n, dtype=np.int32)
    return jaxsvm.Batch(*map(jnp.asarray, (np.zeros((n, 1), "f"), np.ones(n, "f"), index, weight)))


init = jax.jit(lambda sampler, key, data: sampler.init(key, data))
feedback = jax.jit(lambda sampler, state, index, gain: sampler.feedback(state, index, gain))
_draw = jax.jit(lambda sampler, state, t, count: sampler.draw(state, t, count), static_argnums=3)


def start(sampler, data, seed=0):
    """The state that a key makes."""
    return init(sampler, jax.random.key(seed), data)


def draw(sampler, state, t, count):
    """The rows of `count` steps from t on, (count, b)."""
    return np.asarray(_draw(sampler, state, jnp.int32(t), count))


def by_liblinear(x, y, loss="hinge", **options):
    """The weights of LIBLINEAR's optimum without a bias."""
    options = {"tol": 1e-8, "max_iter": 100_000, "dual": True, "random_state": 0} | options
    return LinearSVC(loss=loss, fit_intercept=False, **options).fit(x, y).coef_[0]
