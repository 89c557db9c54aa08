"""AUC, pair accuracy and nDCG against scikit-learn, SciPy and all pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import ndcg_score, roc_auc_score

import jaxsvm
from jaxsvm import objectives
from jaxsvm.models import Linear

N, QUERIES = 50, 5
MODEL = Linear(jnp.ones(1), jnp.zeros(()))  # the score is the column


def rows(seed):
    """Scores with ties, grades, queries, and weights of 0 and 1."""
    rng = np.random.default_rng(seed)
    score = np.round(rng.normal(size=N), 1).astype(np.float32)
    return (
        score,
        rng.integers(0, 4, N),
        rng.integers(0, QUERIES, N),
        (rng.random(N) < 0.8).astype(float),
    )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", range(3))
def test_auc_is_that_of_scikit_learn_with_ties_and_weights(seed):
    score, *_ = rows(seed)
    rng = np.random.default_rng(seed)
    y, weight = rng.choice([-1, 1], N), rng.choice([0, 0.5, 1, 2], N)
    found = jaxsvm.objectives.auc_on(jaxsvm.dataset(score[:, None], y, weight))(MODEL)
    np.testing.assert_allclose(found, roc_auc_score(y, score, sample_weight=weight), rtol=1e-6)


@pytest.mark.long
def test_auc_tells_scores_apart_that_differ_in_the_last_bit():
    score = np.array([-1e6, 1.0, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    assert float(objectives.auc_on(jaxsvm.dataset(score[:, None], [-1, -1, 1]))(MODEL)) == 1


@pytest.mark.parametrize("gains", ["exponential", "linear"])
@pytest.mark.parametrize("k", [None, 3])
def test_ndcg_is_that_of_scikit_learn_with_ties(k, gains):
    score, y, query, weight = rows(4)
    y[query == 2] = 0  # left out of the mean
    gain = 2.0**y - 1 if gains == "exponential" else y
    of = lambda q: (query == q) & (weight > 0)
    theirs = [ndcg_score([gain[of(q)]], [score[of(q)]], k=k) for q in range(QUERIES) if q != 2]
    data = jaxsvm.dataset(score[:, None], y, weight, query=query)
    np.testing.assert_allclose(
        objectives.ndcg_on(data, k, gains=gains)(MODEL), np.mean(theirs), rtol=1e-6
    )


def test_pair_accuracy_is_a_share_of_pairs_and_kendalls_tau():
    score, y, query, _ = rows(5)
    weight = np.random.default_rng(5).choice([0, 1, 2.5], N)
    c = np.where((y[:, None] > y) & (query[:, None] == query), np.outer(weight, weight), 0)
    data = jaxsvm.dataset(score[:, None], y, weight, query=query)
    found = objectives.pair_accuracy_on(data)(MODEL)
    np.testing.assert_allclose(found, (c * (score[:, None] > score)).sum() / c.sum(), rtol=1e-6)
    risk = jaxsvm.risk_on(data, jaxsvm.losses.rank_hinge)(MODEL)
    assert float(risk) >= 1 - float(found)
    score, y = np.random.default_rng(6).permutation(N), np.random.default_rng(7).permutation(N)
    data = jaxsvm.dataset(score[:, None].astype(np.float32), y, task="ranking")
    tau = scipy.stats.kendalltau(score, y).statistic
    np.testing.assert_allclose(2 * objectives.pair_accuracy_on(data)(MODEL) - 1, tau, atol=1e-6)


def test_the_hinge_risk_of_labels_bounds_the_auc():
    score, *_ = rows(8)
    y = np.random.default_rng(8).choice([-1, 1], N)
    labels, grades = (
        jaxsvm.dataset(score[:, None], y),
        jaxsvm.dataset(score[:, None], y, task="ranking"),
    )
    assert float(jaxsvm.risk_on(grades, jaxsvm.losses.rank_hinge)(MODEL)) >= 1 - float(
        objectives.auc_on(labels)(MODEL)
    )


def test_probes_of_scores_that_are_not_finite_are_nan_and_map_over_models():
    score, y, query, _ = rows(9)
    data = jaxsvm.dataset(score[:, None], y, query=query)
    for probe in (objectives.pair_accuracy_on(data), objectives.ndcg_on(data, 3)):
        models = Linear(jnp.array([[1.0], [-1.0], [jnp.nan]]), jnp.zeros(3))
        values = jax.jit(jax.vmap(probe))(models)
        np.testing.assert_allclose(values[0], probe(MODEL), rtol=1e-6)
        assert np.isfinite(values[1]) and np.isnan(values[2])


def test_probes_of_traced_grades_without_a_pair_are_nan():
    score, y, query, _ = rows(9)
    data = jaxsvm.dataset(score[:, None], y, query=query)
    for make in (objectives.auc_on, objectives.pair_accuracy_on):
        of_grades = jax.jit(lambda y, make=make: make(data._replace(y=y))(MODEL))
        assert np.isnan(of_grades(jnp.ones(N))) and np.isfinite(
            of_grades((data.y > 1).astype(data.y.dtype))
        )


def test_bad_input_gets_one_sentence():
    x = np.arange(3.0)[:, None]
    grades = jaxsvm.dataset(x, [0, 1, 2], task="ranking")
    alone = jaxsvm.dataset(x, [0, 1, 2], query=[0, 1, 2], task="regression")
    for call, expected in (
        (lambda: objectives.auc_on(grades), "auc_on takes rows of two classes, got 3"),
        (
            lambda: objectives.pair_accuracy_on(alone),
            "no two rows of one query have different grades",
        ),
        (
            lambda: objectives.ndcg_on(jaxsvm.dataset(x, [-1, 1, 1])),
            "takes grades of at least 0, got -1",
        ),
        (lambda: objectives.ndcg_on(grades, 0), "k must be"),
        (
            lambda: objectives.ndcg_on(grades._replace(y=100 * grades.y)),
            "grades below 128 with gains='exponential', got",
        ),
        (lambda: objectives.ndcg_on(grades, gains="best"), "gains must be one of"),
        (lambda: objectives.ndcg_on(grades)(lambda x: jnp.ones((3, 2))), "one value for each row"),
    ):
        with pytest.raises(ValueError, match=expected):
            call()
