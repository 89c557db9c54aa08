"""The stochastic batch perceptron: its looks, its programs, its lam, and its derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batch_perceptrons import (
    BOTH,
    KEY,
    ONES,
    RBF,
    WEIGHT,
    K,
    N,
    X,
    Y,
    dataset,
    exact,
    front,
    make,
    trace,
)
from oracles import gaussian
from water_levels import by_sorting

import jaxsvm
from jaxsvm import kernels, objectives, samplers

# steps, looks, programs


@pytest.mark.long
@pytest.mark.parametrize(("look", "bias"), [(0, "none"), (7, "free"), (None, "none")])
def test_looks_cost_the_whole_matrix_and_change_nothing_else(look, bias, x64):
    states, _, info = trace(make(bias=bias, bound_every=look), dataset(), KEY, 100)
    plain = trace(make(bias=bias, bound_every=0), dataset(), KEY, 100)[0]
    for one, other in zip(
        jax.tree.leaves((states.s, states.fill, states.p)),
        jax.tree.leaves((plain.s, plain.fill, plain.p)),
        strict=False,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    steps = np.arange(1, 101)
    looks = np.zeros(100, bool) if look == 0 else steps % (look or N) == 0
    np.testing.assert_array_equal(
        info.evals, (2 if bias == "free" else 1) * N + np.where(looks, N * N, 0)
    )
    assert np.all(np.isinf(np.asarray(info.residual)[np.cumsum(looks) == 0]))
    run = jaxsvm.fit(make(bias=bias, bound_every=look), dataset(), KEY, steps=100, every=10)
    assert run.evals == int(np.sum(info.evals))
    assert int(info.support[-1]) == np.sum(np.asarray(states.s.mean.coef[-1]) != 0)


@pytest.mark.long
@BOTH
def test_batches_of_draws(bias):
    """As many draws as the sampler hands rows, whatever these are; the mean of them is the step."""
    data, solver = dataset(dtype=np.float32), make(bias=bias, bound_every=0)
    run = lambda sampler: jaxsvm.fit(solver, data, KEY, steps=30, sampler=sampler)
    eight, one, other = map(run, (samplers.uniform(8), samplers.uniform(1), samplers.epochs(8)))
    assert eight.evals == 8 * one.evals == 30 * 8 * N * (2 if bias == "free" else 1)
    # Both are means of draws from the same law: eight a step are nearer to its mean, a run of steps
    # of the shares themselves.
    assert not np.array_equal(eight.model.coef, one.model.coef)
    # the same draws in another program
    np.testing.assert_allclose(other.model.coef, eight.model.coef, rtol=1e-5, atol=1e-6)


def products(jaxpr, met):
    """All dot_general of a jaxpr and of those inside it: pairs of operand shapes."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            met.append(tuple(v.aval.shape for v in equation.invars))
        for inner in jax.tree.leaves(
            equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                products(getattr(inner, "jaxpr", inner), met)
    return met


@pytest.mark.long
@BOTH
def test_the_rows_of_sixteen_runs_are_one_product(bias):
    """And the sixteen runs are those made one by one."""
    nus, data = jnp.linspace(0.02, 0.5, 16), dataset(dtype=np.float32)
    # five columns: no other product has them
    x = np.random.default_rng(3).normal(size=(N, 5)).astype("f")
    wide = jaxsvm.dataset(x, Y)._replace(index=jnp.zeros(1, jnp.int32))
    solver = lambda nu: make(nu, bias=bias, bound_every=0)

    def steps(nu):
        made = make(nu, bias=bias)
        return jax.lax.fori_loop(
            0, 3, lambda _, state: made.update(state, wide)[0], made.init(KEY, wide)
        )

    rows = 16 * (2 if bias == "free" else 1)
    met = [
        pair
        for pair in products(jax.make_jaxpr(jax.vmap(steps))(nus).jaxpr, [])
        if sum(5 in shape for shape in pair) == 2
    ]
    small = [pair for pair in met if {np.prod(shape) for shape in pair} == {5 * N, 5 * rows}]
    # all else with columns is the bound, under a condition that all runs share
    assert len(small) == 1, met

    run = lambda nu: jaxsvm.fit(solver(nu), data, KEY, steps=40, every=40)
    swept = jax.jit(jax.vmap(run))(nus)
    for i in (0, 7, 15):
        alone = run(float(nus[i]))
        # Batched products are added in another order: 40 steps carry a few roundings each.
        np.testing.assert_allclose(swept.model.coef[i], alone.model.coef, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(swept.model.b[i], alone.model.b, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_a_long_run_in_float32_does_not_drift():
    """After 5,000 steps the responses and |w|^2 are still those of the coefficients."""
    run = jaxsvm.fit(
        make(0.1, bound_every=0), dataset(dtype=np.float32), KEY, steps=5000, every=1000
    )
    f = run.state.solver.s.f
    coef = np.asarray(f.coef, np.float64)
    gram = gaussian(X.astype("f").astype(float), X.astype("f").astype(float))
    # of values up to 1, kernel values to 1e-7
    np.testing.assert_allclose(f.response + f.compensation, gram @ coef, atol=3e-6)
    assert coef @ gram @ coef <= 1 + 3e-6


# conversions


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("lam", [0.3, 0.1, 0.03, 0.01])
def test_lam_from_the_shares_of_an_exact_solution(lam, bias, x64):
    u, nu, best = front(lam, bias)
    alpha = np.abs(np.asarray(u.coef))
    C = 1 / (lam * N)
    assert np.any(alpha >= C * (1 - 1e-9))  # otherwise lam is not determined
    p = alpha / alpha.sum()
    assert float(objectives.lam_from_nu(nu, p, dataset(), RBF, bias)) == pytest.approx(
        lam, rel=1e-6
    )
    # The level at u/|u| is 1/|u|, and |v| + n nu max p is the same number.
    assert np.sqrt((p * Y) @ K @ (p * Y)) + N * nu * p.max() == pytest.approx(best, rel=1e-6)


@pytest.mark.long
@BOTH
def test_lam_with_weights(bias, x64):
    lam = 0.05
    u, nu, _ = exact(lam, bias, weight=WEIGHT)
    alpha = np.abs(np.asarray(u.coef))
    found = objectives.lam_from_nu(nu, alpha / alpha.sum(), dataset(weight=WEIGHT), RBF, bias)
    assert float(found) == pytest.approx(lam, rel=1e-6)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("lam", [0.2, 0.05])
def test_there_and_back(lam, bias, x64):
    """lam -> nu -> a long run -> lam; and the run's model is near the optimum that it began
    with."""
    u, nu, best = front(lam, bias)
    run = jaxsvm.fit(make(nu, bias=bias, bound_every=0), dataset(), KEY, steps=20_000, every=1000)
    assert float(
        objectives.lam_from_nu(nu, run.state.solver.p, dataset(), RBF, bias)
    ) == pytest.approx(lam, rel=0.1)
    objective = float(objectives.primal(run.model, dataset(), lam))
    minimum = float(objectives.primal(u, dataset(), lam))
    assert 0 <= objective / minimum - 1 + 1e-9 <= 0.01
    assert float(objectives.radius_from(run.model)) == pytest.approx(1 / best, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize("lam", [0.2, 0.05])
def test_the_radius_of_an_optimum_gives_the_same_optimum(lam, x64):
    u, nu, best = front(lam, "none")
    radius = float(objectives.radius_from(u))
    assert radius == pytest.approx(1 / best, rel=1e-12)
    hinge = float(jaxsvm.risk_on(dataset())(u))
    run = jaxsvm.fit(jaxsvm.constrained_sgd(radius, RBF), dataset(), KEY, steps=40_000, every=1000)
    assert float(objectives.radius_from(run.model)) <= radius * (1 + 1e-9)
    # On any data 3 radius R / sqrt(T) bounds it, in expectation; without the worst case of its
    # proof it is a third.
    assert -1e-9 <= float(jaxsvm.risk_on(dataset())(run.model)) - hinge <= radius / np.sqrt(40_000)


# bad input


def test_one_class_is_a_problem_like_any_other_without_a_bias():
    one = dataset(dtype=np.float32)._replace(y=jnp.ones(N, jnp.float32))
    assert jaxsvm.fit(make(), one, KEY, steps=N).finite


@pytest.mark.long
def test_rows_of_zeros_among_others(x64):
    """They cannot move, and are drawn all the same; the level stands over them."""
    x = np.where(np.arange(N)[:, None] < 5, 0, X)
    run = jaxsvm.fit(make(0.3, kernel=kernels.linear()), dataset(x), KEY, steps=2000, every=N)
    assert run.finite and np.isfinite(run.info.residual[-1])
    w = x.T @ np.asarray(run.model.coef)
    level = 0.3 / np.maximum(0, 1 - Y * (x @ w)).mean()
    turns = np.linspace(0, 2 * np.pi, 181)
    best = max(  # over a grid on the disc
        by_sorting(Y * (x @ (r * np.array([np.cos(a), np.sin(a)]))), N * 0.3, ONES)
        for a in turns
        for r in np.linspace(0, 1, 21)
    )
    assert level >= 0.98 * best and best <= level / (1 - float(run.info.residual[-1])) + 1e-9


def test_what_a_lam_is_worked_out_from():
    p, plain = np.full(N, 1 / N), lambda x, z: x @ z.T
    with jax.numpy_dtype_promotion("standard"):
        same = [
            float(objectives.lam_from_nu(0.1, p, dataset(), kernel))
            for kernel in (plain, kernels.linear())
        ]
    assert same[0] == pytest.approx(same[1], rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("bias", ["free", "none"])
def test_derivatives_of_a_run_in_rows_and_weights(bias, x64):
    """The level and the bias of the water move with both; forward, reverse and differences."""
    random = np.random.default_rng(5)
    x = random.normal(size=(24, 3))
    y = np.where(x[:, 0] + 0.5 * random.normal(size=24) > 0, 1, -1)
    weight, change = 1 + 0.2 * np.sin(np.arange(24)), random.normal(size=(24, 3))
    data = jaxsvm.dataset(x, y, weight)

    def value(t):
        moved = data._replace(x=x + t[0] * change, weight=weight * (1 + t[1] * change[:, 0]))
        solver = jaxsvm.sbp(0.3, jaxsvm.kernels.rbf(1.0), bias=bias)
        model = jaxsvm.fit(solver, moved, jax.random.key(3), steps=6, every=3).model
        return jnp.sum(jnp.tanh(model(x[:7] + 0.1)))

    at, steps, plain = jnp.zeros(2), 1e-6 * np.eye(2), jax.jit(value)
    differences = [float(plain(step) - plain(-step)) / 2e-6 for step in steps]
    for slopes in (jax.jit(jax.grad(value))(at), jax.jit(jax.jacfwd(value))(at)):
        np.testing.assert_allclose(slopes, differences, rtol=1e-4)
