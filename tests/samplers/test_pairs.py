"""Pairs: their law, differences of rows, runs of linear solvers on them."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, losses, objectives, samplers
from jaxsvm.numerics import differences

FITTING = importlib.import_module("jaxsvm.loops.fitting")
N, QUERIES, B = 60, 6, 16


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4)).astype(np.float32)
    return x, rng.integers(0, 4, N), rng.integers(0, QUERIES, N), rng.choice([0, 1, 2.5], N)


def data():
    x, y, query, weight = rows()
    return jaxsvm.dataset(x, y, weight, query=query)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("per_query", [False, True])
def test_pairs_are_drawn_by_their_weights(per_query):
    _, y, query, weight = rows()
    c = np.where((y[:, None] > y) & (query[:, None] == query), np.outer(weight, weight), 0)
    if per_query:
        for q in range(QUERIES):
            c[query == q] /= max(c[query == q].sum(), 1e-300)
    c /= c.sum()
    sampler = samplers.pairs(1000, per_query)
    index = np.asarray(sampler.draw(sampler.init(jax.random.key(0), data()), 0, 50))
    count = np.zeros((N, N))
    np.add.at(count, (index[:, :1000].ravel(), index[:, 1000:].ravel()), 1)
    assert not count[c == 0].any()
    expected = c[c > 0] * count.sum()
    z = (count[c > 0] - expected) / np.sqrt(expected)
    assert abs(z).max() < 5 and 0.8 < z.std() < 1.2  # of some hundred pairs, with 50,000 draws


@pytest.mark.long
def test_draws_go_on_where_they_ended():
    sampler = samplers.pairs(3)
    state = sampler.init(jax.random.key(1), data())
    np.testing.assert_array_equal(sampler.draw(state, 0, 5)[2:], sampler.draw(state, 2, 3))


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
    lam, batch = 1e-2, data()
    solver = jaxsvm.averaged(jaxsvm.pegasos(lam), start=5000)
    run = jaxsvm.fit(
        solver, batch, jax.random.key(0), steps=10_000, every=10_000, sampler=samplers.pairs(B)
    )
    best = jaxsvm.fit(
        jaxsvm.ocas(lam, loss=losses.rank_hinge),
        batch,
        jax.random.key(0),
        steps=60,
        every=10,
        tol=1e-5,
    )
    primal = [
        float(objectives.primal(each.model, batch, lam, losses.rank_hinge)) for each in (run, best)
    ]
    assert best.converged and primal[1] * (1 - 1e-5) <= primal[0] <= 1.005 * primal[1]


@pytest.mark.long
def test_features_are_computed_before_the_difference(monkeypatch):
    """phi(x_i) - phi(x_j), whenever features are computed; `init` of asset reads pairs, not
    grades."""
    x, *_ = rows()
    phi = features.nystrom(None, kernels.rbf(1.0), landmarks=x[:10])
    solver = jaxsvm.on_features(phi, jaxsvm.asset(0.1, bias="none"))
    weights = []
    for memory in (2**31, 0):
        monkeypatch.setattr(FITTING, "MEMORY", memory)
        jax.clear_caches()
        options = {"steps": 40, "every": 20, "sampler": samplers.pairs(B)}
        weights.append(jaxsvm.fit(solver, data(), jax.random.key(0), **options).model.inner.w)
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-5)
    prepared = solver.prepare(data())
    by_hand = jaxsvm.asset(0.1, bias="none")
    run = jaxsvm.fit(
        by_hand, prepared, jax.random.key(0), steps=40, every=20, sampler=samplers.pairs(B)
    )
    np.testing.assert_allclose(run.model.w, weights[0], atol=1e-5)


def test_a_run_on_pairs_resumes_to_the_bit():
    fit = lambda **options: jaxsvm.fit(
        jaxsvm.pegasos(0.1), data(), every=5, sampler=samplers.pairs(B), **options
    )
    whole = fit(key=jax.random.key(2), steps=20)
    parts = fit(state=fit(key=jax.random.key(2), steps=10).state, steps=10)
    np.testing.assert_array_equal(parts.model.w, whole.model.w)


@pytest.mark.long
def test_sparse_rows_make_the_run_of_dense_ones():
    rng = np.random.default_rng(3)
    _, y, query, weight = rows()
    dense = np.where(rng.random((N, 30)) < 0.3, rng.normal(size=(N, 30)), 0).astype(np.float32)
    run = lambda x: jaxsvm.fit(
        jaxsvm.pegasos(0.1),
        jaxsvm.dataset(x, y, weight, query=query),
        jax.random.key(0),
        steps=20,
        every=20,
        sampler=samplers.pairs(B),
    )
    np.testing.assert_allclose(
        run(scipy.sparse.csr_matrix(dense)).model.w, run(dense).model.w, atol=1e-5
    )


def test_solvers_that_cannot_read_pairs_are_refused():
    for solver, expected in (
        (
            jaxsvm.sdca(1.0),
            "this solver has a variable for each row: take one that reads drawn rows",
        ),
        (jaxsvm.newton(1.0), "a solver that reads all rows does not see"),
        (jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=4), "this solver takes class numbers"),
    ):
        with pytest.raises(ValueError, match=expected):
            jaxsvm.fit(solver, data(), jax.random.key(0), sampler=samplers.pairs())
    alone = jaxsvm.dataset(np.eye(3), [0, 1, 2], query=[0, 1, 2], task="regression")
    with pytest.raises(ValueError, match="no two rows of one query have different grades"):
        jaxsvm.fit(jaxsvm.pegasos(0.1), alone, jax.random.key(0), sampler=samplers.pairs())
    with pytest.raises(ValueError, match="batch_size"):
        samplers.pairs(0)
    state = samplers.pairs(2).init(jax.random.key(0), data())
    assert jnp.shape(samplers.pairs(2).draw(state, 0, 3)) == (3, 4)
