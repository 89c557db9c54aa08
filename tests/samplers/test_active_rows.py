"""The sampler of active rows: its rule against a transcription, and the optimum of runs with it
against LIBLINEAR."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm

import jaxsvm
from jaxsvm import losses, samplers

N = 30
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, 1.0)
POSITIVE = np.flatnonzero(WEIGHT)


def start(sampler, seed=0):
    data = jaxsvm.Batch(
        jnp.zeros((N, 1)),
        jnp.ones(N),
        jnp.arange(N, dtype=jnp.int32),
        jnp.asarray(WEIGHT, jnp.float32),
    )
    return sampler.init(jax.random.key(seed), data)


def by_hand(drawn, gains, patience, effort):
    """The set of rows that each period's pass is over, by the rule as the docstring has it."""
    idle, passes = np.zeros(N, int), [set(POSITIVE)]
    full, gain, visits, full_gain, spent = True, 0.0, 0, 0.0, 0
    for index, gained in zip(drawn, gains, strict=True):
        for row in index:
            idle[row] += 1
        idle[index[gained > 0]] = 0
        gain, visits = gain + gained.sum(), visits + len(index)
        if visits >= len(passes[-1]):
            active = {row for row in POSITIVE if idle[row] < patience}
            spent = 0 if full else spent + visits
            full_gain = gain if full else full_gain
            poor = gain / visits < full_gain / len(POSITIVE)
            full = not active or (not full and (poor or spent >= effort * len(POSITIVE)))
            passes.append(set(POSITIVE) if full else active)
            gain, visits = 0.0, 0
        else:
            passes.append(passes[-1])
    return passes


@pytest.mark.parametrize(("patience", "effort"), [(1, 1), (2, 2), (3, 5)])
def test_the_rows_of_each_pass_follow_the_rule(patience, effort):
    sampler = samplers.active_rows(patience=patience, effort=effort)
    state, rng, drawn, gains = start(sampler), np.random.default_rng(1), [], []
    period = sampler.period(N)
    draw, feedback = jax.jit(lambda s, t: sampler.draw(s, t, period)), jax.jit(sampler.feedback)
    movers = {k: rng.permutation(N)[: rng.integers(0, 12)] for k in range(40)}
    for k in range(40):
        index = np.asarray(draw(state, k * period))
        gained = np.where(np.isin(index, movers[k // 4]), rng.uniform(1, 2, index.shape), 0).astype(
            np.float32
        )
        drawn.append(index[:, 0])
        gains.append(gained[:, 0])
        state = feedback(state, jnp.asarray(index), jnp.asarray(gained))
    expected = by_hand(drawn, gains, patience, effort)
    sizes = {len(rows) for rows in expected}
    assert len(sizes) > 3  # passes of several sizes were met
    for index, rows in zip(drawn, expected, strict=False):
        visits = np.bincount(index, minlength=N)
        assert set(index) <= rows
        assert visits[sorted(rows)].min() >= period // len(rows)  # each as often as any other
        assert visits.max() <= -(-period // len(rows))


@pytest.mark.parametrize("option", [{"batch_size": 0}, {"patience": 0}, {"effort": 0}])
def test_numbers_out_of_range(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        samplers.active_rows(**option)


def problem(sparse):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < (0.4 if sparse else 1))
    y = np.where(x @ rng.normal(size=12) + rng.normal(size=300) > 0, 1, -1)
    return (scipy.sparse.csr_matrix(x) if sparse else x).astype(np.float32), y


@pytest.mark.long(but=2)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_the_optimum_is_that_of_liblinear(name, sparse):
    x, y = problem(sparse)
    loss, power = getattr(losses, name), 1 + (name == "squared_hinge")
    svc = sklearn.svm.LinearSVC(
        C=5.0, loss=name, fit_intercept=False, tol=1e-8, max_iter=100_000, dual=True, random_state=0
    )

    def objective(w):
        return w @ w / 2 + 5 * (np.maximum(1 - y * (x @ w), 0) ** power).sum()

    run = jaxsvm.fit(
        jaxsvm.sdca(5.0, loss=loss),
        jaxsvm.dataset(x, y),
        jax.random.key(0),
        steps=2000 * 300,
        tol=1e-4,
        sampler=samplers.active_rows(),
    )
    assert run.converged
    best = objective(svc.fit(x, y).coef_[0])
    assert abs(objective(np.asarray(run.model.w, np.float64)) - best) < 1e-5 * best


@pytest.mark.long
def test_double_precision(x64):
    x, y = problem(False)
    x = x.astype(np.float64)
    run = jaxsvm.fit(
        jaxsvm.sdca(1.0),
        jaxsvm.dataset(x, y),
        jax.random.key(0),
        steps=2000 * 300,
        sampler=samplers.active_rows(),
    )
    svc = sklearn.svm.LinearSVC(
        C=1.0, loss="hinge", fit_intercept=False, tol=1e-9, max_iter=100_000, random_state=0
    )
    one, other = (
        w @ w / 2 + np.maximum(1 - y * (x @ w), 0).sum()
        for w in (np.asarray(run.model.w), svc.fit(x, y).coef_[0])
    )
    assert run.model.w.dtype == np.float64
    assert abs(one - other) < 1e-8 * other
