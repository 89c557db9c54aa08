"""AUC, pair accuracy and nDCG against scikit-learn, SciPy and all pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from oracles import pair_weights
from sklearn.metrics import ndcg_score, roc_auc_score

import jaxsvm
from jaxsvm import losses, objectives
from jaxsvm.models import Linear

N, QUERIES = 50, 5
MODEL = Linear(jnp.ones(1), jnp.zeros(()))  # the score is the column


def rows(seed):
    """Scores with ties, grades, queries, and weights of 0 and 1."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.normal(size=N), 1).astype(np.float32)
    y, query = rng.integers(0, 4, N), rng.integers(0, QUERIES, N)
    return score, y, query, (rng.random(N) < 0.8).astype(float)


def scored(score, y, weight=None, **options):
    """Rows that score what their only column holds."""
    return jaxsvm.dataset(np.asarray(score, np.float32)[:, None], y, weight, **options)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", range(3))
def test_auc_is_that_of_scikit_learn_with_ties_and_weights(seed):
    score, rng = rows(seed)[0], np.random.default_rng(seed)
    y, weight = rng.choice([-1, 1], N), rng.choice([0, 0.5, 1, 2], N)
    found = objectives.auc_on(scored(score, y, weight))(MODEL)
    np.testing.assert_allclose(found, roc_auc_score(y, score, sample_weight=weight), rtol=1e-6)


@pytest.mark.long
def test_auc_tells_scores_apart_that_differ_in_the_last_bit():
    score = [-1e6, 1.0, np.nextafter(np.float32(1), np.float32(2))]
    assert float(objectives.auc_on(scored(score, [-1, -1, 1]))(MODEL)) == 1


@pytest.mark.parametrize("gains", ["exponential", "linear"])
@pytest.mark.parametrize(("k", "weighted"), [(None, True), (3, False)])
def test_ndcg_is_that_of_scikit_learn_with_ties(k, weighted, gains):
    score, y, query, weight = rows(4)
    weight *= np.random.default_rng(4).uniform(0.5, 3, N)
    y[query == 2] = 0  # left out of the mean
    gain = 2.0**y - 1 if gains == "exponential" else y
    of = lambda q: (query == q) & (weight > 0)
    theirs = [ndcg_score([gain[of(q)]], [score[of(q)]], k=k) for q in range(QUERIES) if q != 2]
    of_query = [weight[of(q)].mean() if weighted else 1 for q in range(QUERIES) if q != 2]
    data, options = scored(score, y, weight, query=query), {"gains": gains, "weighted": weighted}
    found = objectives.ndcg_on(data, k, **options)(MODEL)
    np.testing.assert_allclose(found, np.average(theirs, weights=of_query), rtol=1e-6)


@pytest.mark.long
def test_pair_accuracy_is_a_share_of_pairs_and_kendalls_tau():
    (score, y, query, _), rng = rows(5), np.random.default_rng(5)
    weight = rng.choice([0, 1, 2.5], N)
    c = pair_weights(lambda y: y[:, None] > y, y, query, weight)
    data = scored(score, y, weight, query=query)
    found = objectives.pair_accuracy_on(data)(MODEL)
    np.testing.assert_allclose(found, (c * (score[:, None] > score)).sum(), rtol=1e-6)
    assert float(jaxsvm.risk_on(data, losses.rank_hinge)(MODEL)) >= 1 - float(found)
    score, y = rng.permutation(N), rng.permutation(N)
    found = objectives.pair_accuracy_on(scored(score, y, task="ranking"))(MODEL)
    tau = scipy.stats.kendalltau(score, y).statistic
    np.testing.assert_allclose(2 * found - 1, tau, atol=1e-6)


def test_the_hinge_risk_of_labels_bounds_the_auc():
    score, y = rows(8)[0], np.random.default_rng(8).choice([-1, 1], N)
    risk = jaxsvm.risk_on(scored(score, y, task="ranking"), losses.rank_hinge)(MODEL)
    assert float(risk) >= 1 - float(objectives.auc_on(scored(score, y))(MODEL))


@pytest.mark.long
def test_probes_of_scores_that_are_not_finite_are_nan_and_map_over_models():
    score, y, query, _ = rows(9)
    data = scored(score, y, query=query)
    models = Linear(jnp.array([[1.0], [-1.0], [jnp.nan]]), jnp.zeros(3))
    for probe in (objectives.pair_accuracy_on(data), objectives.ndcg_on(data, 3)):
        values = jax.jit(jax.vmap(probe))(models)
        np.testing.assert_allclose(values[0], probe(MODEL), rtol=1e-6)
        assert np.isnan(values).tolist() == [False, False, True]


@pytest.mark.long
def test_probes_of_traced_grades_without_a_pair_are_nan():
    score, y, query, _ = rows(9)
    data = scored(score, y, query=query)
    grades = jnp.ones(N), (data.y > 1).astype(data.y.dtype)
    for make in (objectives.auc_on, objectives.pair_accuracy_on):
        of_grades = jax.jit(lambda y, make=make: make(data._replace(y=y))(MODEL))
        assert [bool(np.isnan(of_grades(y))) for y in grades] == [True, False]
