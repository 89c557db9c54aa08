"""Pairs: their law, differences of rows, runs of linear solvers on them."""

import importlib

import jax
import numpy as np
import pytest
import scipy.sparse
from drawing import draw, start
from oracles import pair_weights

import jaxsvm
from jaxsvm import features, kernels, losses, objectives, samplers
from jaxsvm.numerics import differences

FITTING = importlib.import_module("jaxsvm.loops.fitting")
N, QUERIES = 60, 6


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4)).astype(np.float32)
    return x, rng.integers(0, 4, N), rng.integers(0, QUERIES, N), rng.choice([0, 1, 2.5], N)


def ranked(x):
    _, y, query, weight = rows()
    return jaxsvm.dataset(x, y, weight, query=query)


DATA, FEED, KEY = ranked(rows()[0]), samplers.pairs(16), jax.random.key(0)


def fit(solver, data=DATA, sampler=FEED, **options):
    options = {"key": KEY, "steps": 20, "every": 20} | options
    return jaxsvm.fit(solver, data, sampler=sampler, **options)


@pytest.mark.parametrize("per_query", [False, True])
def test_pairs_are_drawn_by_their_weights(per_query):
    _, y, query, weight = rows()
    c = pair_weights(lambda y: y[:, None] > y, y, query, weight, per_query)
    sampler = samplers.pairs(1000, per_query)
    index = draw(sampler, start(sampler, DATA), 0, 50)
    count = np.zeros((N, N))
    np.add.at(count, (index[:, :1000].ravel(), index[:, 1000:].ravel()), 1)
    assert not count[c == 0].any()
    expected = c[c > 0] * count.sum()
    z = (count[c > 0] - expected) / np.sqrt(expected)
    assert abs(z).max() < 5 and 0.8 < z.std() < 1.2  # of some hundred pairs, with 50,000 draws


@pytest.mark.long
def test_draws_go_on_where_they_ended():
    sampler = samplers.pairs(2)
    state = start(sampler, DATA, 1)
    whole, rest = draw(sampler, state, 0, 5), draw(sampler, state, 2, 3)
    np.testing.assert_array_equal(whole[2:], rest)
    assert rest.shape == (3, 4)


@pytest.mark.long
def test_differences_of_sparse_rows_are_those_of_dense_ones():
    rng = np.random.default_rng(1)
    dense = np.where(rng.random((40, 30)) < 0.3, rng.normal(size=(40, 30)), 0).astype(np.float32)
    dense[:3, 0] = dense[20:23, 0] = 2.0  # the column of padding
    x = jaxsvm.dataset(scipy.sparse.csr_matrix(dense), np.r_[-1, np.ones(39)]).x
    found = differences(x, 20)
    np.testing.assert_array_equal(found.toarray(), dense[:20] - dense[20:])
    behind = np.arange(found.value.shape[1]) >= np.asarray(found.length)[:, None]
    assert not np.asarray(found.value)[behind].any()
    assert 0 <= int(found.index.min()) and int(found.index.max()) < found.columns
    for i in range(20):
        index = np.asarray(found.index[i])[: int(found.length[i])]
        assert len(set(index)) == len(index)


@pytest.mark.long
def test_pegasos_on_drawn_pairs_reaches_the_optimum_of_ranking():
    """Acceptance: 10,000 steps of 16 pairs, suffix mean, lam = 1e-2: at most 1.005 of the
    minimum."""
    lam, loss = 1e-2, losses.rank_hinge
    solver = jaxsvm.averaged(jaxsvm.pegasos(lam), start=5000)
    run = fit(solver, steps=10_000, every=10_000)
    best = fit(jaxsvm.ocas(lam, loss=loss), sampler=None, steps=60, every=10, tol=1e-5)
    found, least = (float(objectives.primal(each.model, DATA, lam, loss)) for each in (run, best))
    assert best.converged and least * (1 - 1e-5) <= found <= 1.005 * least


@pytest.mark.long
def test_features_are_computed_before_the_difference(monkeypatch):
    """phi(x_i) - phi(x_j), whenever features are computed; `init` of asset reads pairs, not
    grades."""
    x, *_ = rows()
    phi = features.nystrom(None, kernels.rbf(1.0), landmarks=x[:10])
    inner = jaxsvm.asset(0.1, bias="none")
    solver = jaxsvm.on_features(phi, inner)
    by_hand = fit(inner, solver.prepare(DATA), steps=40).model.w
    for memory in (2**31, 0):
        monkeypatch.setattr(FITTING, "MEMORY", memory)
        jax.clear_caches()
        np.testing.assert_allclose(fit(solver, steps=40).model.inner.w, by_hand, atol=1e-5)


def test_a_run_on_pairs_resumes_to_the_bit():
    solver = jaxsvm.pegasos(0.1)
    first = fit(solver, steps=10, every=5)
    rest = fit(solver, key=None, state=first.state, steps=10, every=5)
    np.testing.assert_array_equal(rest.model.w, fit(solver, every=5).model.w)


@pytest.mark.long
def test_sparse_rows_make_the_run_of_dense_ones():
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((N, 30)) < 0.3, rng.normal(size=(N, 30)), 0).astype(np.float32)
    forms = scipy.sparse.csr_matrix(dense), dense
    one, two = (fit(jaxsvm.pegasos(0.1), ranked(x)).model.w for x in forms)
    np.testing.assert_allclose(one, two, atol=1e-5)
