"""The batch perceptron against a transcription in NumPy, its mistake bound and a linear program."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from oracles import gaussian

import jaxsvm
from jaxsvm import kernels

N, D = 40, 2
RNG = np.random.default_rng(6)
X = RNG.normal(size=(N, D))
Y = np.where(X @ [1.0, -0.5] > 0, 1.0, -1.0)
X = X + 0.2 * Y[:, None] * np.array([1.0, -0.5])  # a gap between the classes
WEIGHT = RNG.integers(0, 3, N) * 1.0
KEY = jax.random.key(0)


GRAMS = {"linear": (kernels.linear(), X @ X.T), "rbf": (kernels.rbf(1.0), gaussian(X, X))}


dataset = maker(X, Y)


@functools.partial(jax.jit, static_argnames=("steps",))
def trace(solver, data, steps):
    """The coefficients after each step, and the infos."""

    def step(state, _):
        state, info = solver.update(state, data._replace(index=jnp.zeros(1, jnp.int32)))
        return state, (state.f.coef, info)

    return jax.lax.scan(step, solver.init(KEY, data), None, steps)[1]


def by_hand(gram, y, weight, margin, steps):
    """The row that is worst, one that was added before among several; yields coefficients, the row
    or -1, and the shortage."""
    coef = np.zeros(len(y))
    for _ in range(steps):
        c = np.where(weight > 0, y * (gram @ coef), np.inf)
        worst, size = c.min(), np.sqrt(max(coef @ gram @ coef, 0))
        ties = np.flatnonzero(c <= worst + 1e-12)
        known = ties[coef[ties] != 0]
        i = known[0] if len(known) else ties[0]
        short = margin - worst / size if size > 0 else np.inf
        i = i if worst <= margin * size + 1e-12 else -1
        if i >= 0:
            coef[i] += weight[i] * y[i]
        yield coef.copy(), i, max(short, 0), np.average(c <= 1e-13, weights=weight)


@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["plain", "weights"])
@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("name", GRAMS)
def test_the_worst_row_is_added(name, margin, weight, x64):
    kernel, gram = GRAMS[name]
    x, y = X.copy(), Y.copy()
    # wild rows that do not count
    x[weight == 0], y[weight == 0] = (50 * X[weight == 0], -Y[weight == 0])
    coefs, info = trace(jaxsvm.batch_perceptron(margin, kernel), dataset(x, y, weight), 60)
    moved = 0
    for t, (coef, i, short, wrong) in enumerate(by_hand(gram, Y, weight, margin, 60)):
        np.testing.assert_allclose(coefs[t], coef, rtol=1e-12, atol=1e-12)
        assert info.index[t].tolist() == [i] and int(info.evals[t]) == (N if i >= 0 else 0)
        assert float(info.residual[t]) == pytest.approx(short, rel=1e-9, abs=1e-12)
        assert float(info.loss[t]) == pytest.approx(wrong, abs=1e-12)
        moved += i >= 0
    assert moved >= 5


def widest(x, y):
    """The largest margin of a line through 0 in the plane, over all directions."""
    angle = np.linspace(0, 2 * np.pi, 200_001)
    return np.max(np.min(y[:, None] * (x @ np.stack([np.cos(angle), np.sin(angle)])), axis=0))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_the_mistake_bound(seed, x64):
    """At most (R / G)^2 rows are added; then all margins are above 0 and nothing moves."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(N, D)), rng.normal(size=D)
    w, y = w / np.linalg.norm(w), np.sign(x @ w)
    x = x + rng.uniform(0.1, 0.4) * y[:, None] * w
    bound = (np.linalg.norm(x, axis=1).max() / widest(x, y)) ** 2
    run = jaxsvm.fit(
        jaxsvm.batch_perceptron(0.0, kernels.linear()),
        dataset(x, y),
        KEY,
        steps=400,
        every=N,
        tol=0.0,
    )
    added = int(np.abs(np.asarray(run.model.coef)).sum())
    assert run.converged and 1 <= added <= bound
    assert run.evals == added * N
    assert np.all(y * np.asarray(run.model(x)) > 0)
    assert float(jaxsvm.error_on(dataset(x, y))(run.model)) == 0


def test_a_margin_is_exceeded_in_the_end(x64):
    """Below the largest margin the run ends with a larger one than asked for."""
    best = widest(X, Y)
    for share in (0.5, 0.9):
        solver = jaxsvm.batch_perceptron(share * best, kernels.linear())
        run = jaxsvm.fit(solver, dataset(), KEY, steps=20_000, every=N, tol=0.0)
        score = np.asarray(run.model(X))
        assert run.converged and share * best < np.min(Y * score) / np.sqrt(
            float(run.model.sqnorm())
        ) <= best * (1 + 1e-6)
    never = jaxsvm.fit(
        jaxsvm.batch_perceptron(1.05 * best, kernels.linear()),
        dataset(),
        KEY,
        steps=2000,
        every=N,
        tol=0.0,
    )
    assert not never.converged and 0.05 * best <= float(never.info.residual[-1]) * (1 + 1e-6)


@pytest.mark.long
def test_rows_added_before_are_preferred():
    """Of rows that are as bad the first of those that have a coefficient is taken, otherwise the
    first."""
    x = np.float32([[5.0, 5.0], [1.0, 0.0], [5.0, 5.0], [1.0, 0.0], [-4.0, 0.1]])
    data = jaxsvm.dataset(x, [1, 1, 1, 1, -1])
    solver = jaxsvm.batch_perceptron(10.0, kernels.linear())
    state, batch = solver.init(KEY, data), data._replace(index=jnp.zeros(1, jnp.int32))

    def taken(response, *known):
        f = state.f._replace(
            coef=jnp.zeros(5, jnp.float32).at[jnp.array(known, int)].set(1),
            response=jnp.float32(response),
        )
        return solver.update(state._replace(f=f), batch)[1].index.tolist()

    tied = -0.5 * data.y  # margins below 0: a row is added whatever the norm
    assert taken(tied) == [0] and taken(tied, 3) == [3] and taken(tied, 4, 2) == [2]
    worst = jnp.array([-0.5, -0.5, -0.1, -0.5, 0.1])  # margins -0.5 at 0, 1 and 3
    assert taken(worst) == [0] and taken(worst, 2, 4) == [0] and taken(worst, 3, 4) == [3]
