"""Rows of the tests of the stochastic batch perceptron, and its exact solutions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from oracles import gaussian

import jaxsvm
from jaxsvm import kernels, objectives

N, D, NU = 40, 2, 0.15  # one shape for all data sets, so that programs are compiled once
RBF = kernels.rbf(1.0)
KEY = jax.random.key(4)
BOTH = pytest.mark.parametrize("bias", ["none", "free"])


def noisy(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D))
    return x, np.where(x[:, 0] - 0.6 * x[:, 1] ** 2 + 0.5 * rng.normal(size=N) > -0.4, 1.0, -1.0)


X, Y = noisy(0)
ONES = np.ones(N)
WEIGHT = np.random.default_rng(1).integers(0, 4, N) * 1.0

K = gaussian(X, X)

dataset = maker(X, Y)


def make(nu=NU, kernel=RBF, **choices):
    return jaxsvm.sbp(nu, kernel, **choices)


@functools.partial(jax.jit, static_argnames=("steps", "b"))
def trace(solver, data, key, steps, b=1):
    """States, models and infos of so many steps of b draws."""

    def step(state, _):
        state, info = solver.update(state, data._replace(index=jnp.zeros(b, jnp.int32)))
        return state, (state, solver.model(state, data), info)

    return jax.lax.scan(step, solver.init(key, data), None, steps)[1]


def exact(lam, bias, x=X, y=Y, weight=None):
    """The minimiser u of lam/2 |w|^2 + mean hinge: (model, nu, f* = 1/|u|)."""
    data = dataset(x, y, weight)
    C = objectives.C_from_lam(lam, float(np.sum(data.weight)))
    u = jaxsvm.fit(jaxsvm.decomposition(C, RBF, bias=bias, tol=1e-10), data, KEY).model
    return u, float(jaxsvm.nu_from(u, data)), 1 / float(objectives.radius_from(u))


@functools.cache
def front(lam, bias):
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        return exact(lam, bias)
