"""The sampler of active rows: its rule against a transcription, and the optimum of runs with it
against LIBLINEAR."""

import jax
import numpy as np
import pytest
import scipy.sparse
from drawing import by_liblinear, draw, feedback, rows, start

import jaxsvm
from jaxsvm import losses, samplers

N = 30
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, 1.0)
POSITIVE = np.flatnonzero(WEIGHT)


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
    state, rng, drawn, gains = start(sampler, rows(WEIGHT)), np.random.default_rng(1), [], []
    period = sampler.period(N)
    movers = {k: rng.permutation(N)[: rng.integers(0, 12)] for k in range(40)}
    for k in range(40):
        index = draw(sampler, state, k * period, period)
        gained = np.where(np.isin(index, movers[k // 4]), rng.uniform(1, 2, index.shape), 0)
        gained = gained.astype(np.float32)
        drawn.append(index[:, 0])
        gains.append(gained[:, 0])
        state = feedback(sampler, state, index, gained)
    expected = by_hand(drawn, gains, patience, effort)
    assert len({len(some) for some in expected}) > 3  # passes of several sizes were met
    for index, some in zip(drawn, expected, strict=False):
        visits = np.bincount(index, minlength=N)
        assert set(index) <= some
        assert visits[sorted(some)].min() >= period // len(some)  # each as often as any other
        assert visits.max() <= -(-period // len(some))


def problem(sparse):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 12)) * (rng.random((300, 12)) < (0.4 if sparse else 1))
    y = np.where(x @ rng.normal(size=12) + rng.normal(size=300) > 0, 1, -1)
    return (scipy.sparse.csr_matrix(x) if sparse else x).astype(np.float32), y


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "sparse", "dtype", "C", "options", "room"),
    [
        ("squared_hinge", True, "float32", 5.0, {"tol": 1e-4}, 1e-5),
        ("hinge", False, "float32", 5.0, {"tol": 1e-4}, 1e-5),
        ("hinge", True, "float32", 5.0, {"tol": 1e-4}, 1e-5),
        ("squared_hinge", False, "float32", 5.0, {"tol": 1e-4}, 1e-5),
        ("hinge", False, "float64", 1.0, {}, 1e-8),
    ],
)
def test_the_optimum_is_that_of_liblinear(name, sparse, dtype, C, options, room):
    x, y = problem(sparse)
    x, power = x.astype(dtype), 1 + (name == "squared_hinge")
    objective = lambda w: w @ w / 2 + C * (np.maximum(1 - y * (x @ w), 0) ** power).sum()
    with jax.enable_x64(dtype == "float64"):
        solver = jaxsvm.sdca(C, loss=getattr(losses, name))
        feed = {"sampler": samplers.active_rows(), "steps": 2000 * 300}
        run = jaxsvm.fit(solver, jaxsvm.dataset(x, y), jax.random.key(0), **feed, **options)
    assert run.converged == bool(options) and run.model.w.dtype == dtype
    best = objective(by_liblinear(x, y, name, C=C, tol=1e-9))
    assert abs(objective(np.asarray(run.model.w, np.float64)) - best) < room * best
