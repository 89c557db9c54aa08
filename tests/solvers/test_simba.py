"""SIMBA against a transcription in NumPy, a linear program and exact optima."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from scipy.optimize import linprog
from water_levels import by_sorting

import jaxsvm
from jaxsvm import kernels, objectives
from jaxsvm.numerics import sample_proportional
from jaxsvm.solvers.primal.simba import _slack

N, D, NU = 60, 4, 0.3
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D))
Y = np.where(X @ [1.0, -0.7, 0.4, 0.0] + 0.4 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)


dataset = maker(X, Y)


@functools.partial(jax.jit, static_argnames=("steps",))
def trace(solver, data, steps):
    """States and infos, and the columns drawn: the second of the two numbers of a step, from
    w^2."""

    def step(state, _):
        after, info = solver.update(state, data._replace(index=jnp.zeros(1, jnp.int32)))
        u = jax.random.uniform(jax.random.fold_in(state.key, state.t), (2, 1), jnp.float32).astype(
            state.u.dtype
        )
        w = after.u / jnp.maximum(1, jnp.linalg.norm(after.u))
        column = sample_proportional(jnp.where(jnp.any(w != 0), w * w, jnp.ones_like(w)), u[1])[0]
        return after, (after, info, column)

    return jax.lax.scan(step, solver.init(KEY, data), None, steps)[1]


def greedy(q, weight, budget):
    """2 for the largest q, as far as the budget goes, a row of weight k taking k times as much;
    ties share."""
    xi = np.zeros(len(q))
    for value in np.unique(q[weight > 0])[::-1]:
        tied = (q == value) & (weight > 0)
        xi[tied] = min(2, budget / weight[tied].sum())
        budget -= weight[tied].sum() * xi[tied][0]
    return xi


def by_hand(x, y, weight, nu, horizon, rows, columns):
    """Algorithm 1 on rows and columns drawn before, with the rows scaled to norm 1; yields log q, u
    and the mean."""
    live = weight > 0
    reach, n = np.linalg.norm(x[live], axis=1).max(), weight.sum()
    x, nu = x / reach, nu / reach
    eta = np.sqrt(np.log(n) / horizon)
    q, u, total = np.where(live, 1.0, 0), np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for t, (i, j) in enumerate(zip(rows, columns, strict=True), 1):
        assert live[i]
        u = u + y[i] * x[i] / np.sqrt(2 * horizon)
        w = u / max(1, np.linalg.norm(u))
        xi = greedy(q, weight, n * nu)
        v = np.clip(y * x[:, j] * (w @ w) / w[j] + xi, -1 / eta, 1 / eta)
        q = np.where(live, q * (1 - eta * v + eta**2 * v**2), 0)
        q = q / q.max()
        total += w
        yield q, u, total / t


@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["plain", "weights"])
@pytest.mark.parametrize("nu", [0.0, NU, 100.0])
def test_the_run_of_the_paper(nu, weight, x64):
    x, y = X.copy(), Y.copy()
    # wild rows that do not count
    x[weight == 0], y[weight == 0] = (50 * X[weight == 0], -Y[weight == 0])
    solver, data = jaxsvm.simba(nu, horizon=200.0), dataset(x, y, weight)
    states, info, columns = trace(solver, data, 80)
    assert len(np.unique(info.index)) > 10 and len(np.unique(columns)) >= 3
    wrong = []
    for t, (q, u, mean) in enumerate(
        by_hand(X, Y, weight, nu, 200, np.asarray(info.index)[:, 0], np.asarray(columns))
    ):
        np.testing.assert_allclose(np.exp(states.log_q[t]), q, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(states.u[t], u, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(states.mean[t], mean, rtol=1e-10, atol=1e-13)
        i = int(info.index[t, 0])
        before = np.zeros(D) if t == 0 else np.asarray(states.u[t - 1])
        wrong.append(Y[i] * (before @ X[i]) <= 0)
    np.testing.assert_array_equal(info.loss, wrong)
    np.testing.assert_array_equal(info.residual, wrong)
    assert np.all(np.asarray(info.evals) == 2)
    w = mean / np.linalg.norm(mean)
    live = weight > 0
    level = by_sorting((Y * (X @ w))[live], weight.sum() * nu, weight[live])
    model = solver.model(jax.tree.map(lambda a: a[-1], states), data)
    np.testing.assert_allclose(model.w, w / (level if level > 0 else 1), rtol=1e-9)


@pytest.mark.long
def test_rows_are_drawn_by_their_weight(x64):
    """A row by weight times q: many draws from the state of one step, other keys."""
    data, solver = dataset(weight=WEIGHT), jaxsvm.simba(NU, horizon=200.0)
    state = jax.tree.map(lambda a: a[-1], trace(solver, data, 80)[0])
    draws = 20_000
    step = lambda key: solver.update(
        state._replace(key=key), data._replace(index=jnp.zeros(1, jnp.int32))
    )[1].index[0]
    rows = np.asarray(jax.jit(jax.vmap(step))(jax.random.split(KEY, draws)))
    p = WEIGHT * np.exp(np.asarray(state.log_q))
    p = p / p.sum()
    assert p.max() > 2 * p[WEIGHT > 0].min()
    # Five standard deviations of a count.
    assert np.all(
        np.abs(np.bincount(rows, minlength=N) - draws * p)
        <= 5 * np.sqrt(draws * p * (1 - p)) + 1e-9
    )


@pytest.mark.parametrize("kind", ["random", "tied", "equal", "tiny"])
def test_the_slack_is_that_of_the_linear_program(kind, x64):
    """max sum_i weight_i q_i xi_i over 0 <= xi <= 2, sum_i weight_i xi_i <= budget: what is drawn
    is by weight times q."""
    rng = np.random.default_rng(len(kind))
    q = {
        "random": rng.uniform(size=N),
        "tied": rng.integers(1, 5, N) / 4,
        "equal": np.ones(N),
        "tiny": 10 ** rng.uniform(-300, 0, N),
    }[kind]
    for weight in (np.ones(N), WEIGHT, rng.uniform(0, 2, N)):
        for budget in (0.0, 0.5, 7.3, 30.0, 2 * weight.sum() - 0.1, 2 * weight.sum(), 1e4):
            xi = np.asarray(jax.jit(_slack)(q, weight, budget))
            spent = weight @ xi
            assert np.all((xi >= 0) & (xi <= 2)) and spent <= budget * (1 + 1e-12) + 1e-12
            made = linprog(
                -weight * q, A_ub=weight[None], b_ub=[budget], bounds=(0, 2), method="highs"
            )
            # the program's own tolerance
            assert weight * q @ xi == pytest.approx(-made.fun, abs=1e-7)
            np.testing.assert_allclose(
                np.where(weight > 0, xi, 0), greedy(q, weight, budget), rtol=1e-9, atol=1e-10
            )


def exact(lam, x=X, y=Y):
    """(nu, f* = 1/|u|) of the minimiser u of lam/2 |w|^2 + mean hinge."""
    data = dataset(x, y)
    C = objectives.C_from_lam(lam, len(y))
    u = jaxsvm.fit(
        jaxsvm.decomposition(C, kernels.linear(), bias="none", tol=1e-10), data, KEY
    ).model
    return float(jaxsvm.nu_from(u, data)), 1 / float(objectives.radius_from(u))


@pytest.mark.long
@pytest.mark.parametrize("lam", [0.3, 0.05])
def test_the_optimum_is_reached(lam, x64):
    """f(mean / |mean|) is below f* and within 3 per cent of it after 10,000 steps, 0.5 after 60,000
    (ALGORITHMS 3.4 g)."""
    nu, best = exact(lam)
    reach = np.linalg.norm(X, axis=1).max()
    for steps, room in ((10_000, 0.03), (60_000, 0.005)):
        run = jaxsvm.fit(
            jaxsvm.simba(nu, horizon=float(steps)), dataset(), KEY, steps=steps, every=10_000
        )
        w = np.asarray(run.state.solver.mean)
        level = by_sorting(Y * (X @ w) / np.linalg.norm(w), N * nu, np.ones(N))
        assert -1e-9 <= 1 - level / best <= room
        # of margin 1
        np.testing.assert_allclose(run.model.w, w / np.linalg.norm(w) / level, rtol=1e-9)
        assert 0.5 < np.linalg.norm(w) <= 1 + 1e-12 and 2 * reach > nu


@pytest.mark.long
def test_without_slack_it_finds_the_widest_margin(x64):
    y = np.sign(X @ [1.0, -0.7, 0.4, 0.0])
    x = X + 0.3 * y[:, None] * np.array([1.0, -0.7, 0.4, 0.0])
    data = dataset(x, y)
    u = jaxsvm.fit(
        jaxsvm.decomposition(1e6, kernels.linear(), bias="none", tol=1e-8), data, KEY
    ).model
    best = 1 / float(objectives.radius_from(u))
    assert np.min(y * np.asarray(u(x))) == pytest.approx(1, rel=1e-5)  # hard margin
    run = jaxsvm.fit(jaxsvm.simba(0.0, horizon=60_000.0), data, KEY, steps=60_000, every=10_000)
    w = np.asarray(run.model.w)
    np.testing.assert_allclose(np.min(y * (x @ w)), 1, rtol=1e-9)
    assert 0.95 * best <= 1 / np.linalg.norm(w) <= best * (1 + 1e-6)


@pytest.mark.long
def test_the_scale_of_the_rows_is_that_of_the_problem(x64):
    """Rows and nu a thousand times as large: the same steps; the model is that much smaller."""
    one, other = (
        jaxsvm.fit(jaxsvm.simba(s * NU, horizon=200.0), dataset(s * X), KEY, steps=200, every=100)
        for s in (1.0, 1000.0)
    )
    np.testing.assert_allclose(1000 * np.asarray(other.model.w), one.model.w, rtol=1e-8)


@pytest.mark.long
def test_rows_of_sixteen_bits_and_rows_of_zeros():
    """Sums stay in float32; rows without length leave w where it is."""
    rounded = jnp.asarray(X, jnp.bfloat16)
    fits = [
        jaxsvm.fit(jaxsvm.simba(NU), jaxsvm.dataset(x, Y), KEY, steps=5 * N)
        for x in (rounded, rounded.astype(jnp.float32))
    ]
    assert {fit.model.w.dtype.name for fit in fits} == {"float32"}
    np.testing.assert_allclose(fits[0].model.w, fits[1].model.w, rtol=1e-5)
    none = jaxsvm.fit(jaxsvm.simba(NU), dataset(0 * X, dtype=np.float32), KEY, steps=N)
    assert none.finite and not np.any(np.asarray(none.model.w))


@pytest.mark.long
def test_the_horizon_is_ten_passes_by_default():
    """A step is along y x / (R sqrt(2 T)), and T counts the weights as copies."""
    data = jaxsvm.dataset([[3.0, 4.0], [-3.0, -4.0]], [1, -1], [3, 4])
    for solver in (jaxsvm.simba(0.0), jaxsvm.simba(0.0, horizon=70)):
        state, _ = jax.jit(solver.update)(solver.init(KEY, data), data)
        np.testing.assert_allclose(state.u, np.array([3, 4]) / (5 * np.sqrt(2 * 70)), rtol=1e-6)
