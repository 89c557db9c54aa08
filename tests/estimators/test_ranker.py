"""`Ranker` against the explicit pair problem, and as an estimator of scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import ndcg_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from jaxsvm.estimators import NystromFeatures, Ranker

N, QUERIES = 200, 20


def rows():
    """Grades that rise with the first column within a query, and fall with it from query to
    query."""
    rng = np.random.default_rng(0)
    x, query, offset = (
        rng.normal(size=(N, 6)),
        rng.integers(0, QUERIES, N),
        rng.normal(size=QUERIES),
    )
    score = 2 * x[:, 0] + x[:, 1] + 0.5 * rng.normal(size=N) - 3 * offset[query]
    x[:, 0] += 2 * offset[query]
    return x, np.clip(np.round(score) + 5, 0, 10).astype(int), query


@pytest.mark.long
@parametrize_with_checks([Ranker(max_iter=50)])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.long
@pytest.mark.parametrize(("loss", "power"), [("hinge", 1), ("squared_hinge", 2)])
def test_the_weights_are_those_of_liblinear_on_all_pairs(loss, power):
    x, y, query = rows()
    lam = 0.05
    i, j = np.nonzero((y[:, None] > y) & (query[:, None] == query))
    z, sign = x[i] - x[j], np.where(np.arange(len(i)) % 2, 1, -1)
    peer = LinearSVC(
        C=1 / (lam * len(z)), loss=loss, dual=True, fit_intercept=False, tol=1e-9, max_iter=10**6
    )
    w = peer.fit(sign[:, None] * z, sign).coef_[0]
    ranker = Ranker(lam=lam, loss=loss, tol=1e-5).fit(x, y, qid=query)
    assert 1 <= ranker.n_iter_ <= (100 if power == 1 else 10)
    objective = lambda w: lam / 2 * w @ w + (np.maximum(1 - z @ w, 0) ** power).mean()
    assert objective(w) * (1 - 1e-6) <= objective(ranker.coef_) <= objective(w) * (1 + 2e-5)
    np.testing.assert_allclose(ranker.predict(x), x @ ranker.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_the_score_is_ndcg_and_queries_help():
    x, y, query = rows()
    ranker = Ranker(lam=0.05, k=5).fit(x, y, qid=query)
    scores = ranker.predict(x)
    theirs = [
        ndcg_score([2.0 ** y[query == q] - 1], [scores[query == q]], k=5)
        for q in range(QUERIES)
        if y[query == q].any()
    ]
    assert ranker.score(x, y, qid=query) == pytest.approx(np.mean(theirs), rel=1e-5)
    assert ranker.score(x, y, qid=query) > clone(ranker).fit(x, y).score(x, y, qid=query)


@pytest.mark.long
def test_the_weights_of_a_score_are_those_of_queries():
    """The mean weight of a query, as scikit-learn's score takes; a row of weight 0 is absent."""
    x, y, query = rows()
    ranker = Ranker(lam=0.05, k=5).fit(x, y, qid=query)
    of_query = np.random.default_rng(1).uniform(0.5, 3, QUERIES)
    of_query[4] = 0
    absent = np.random.default_rng(2).random(N) < 0.2
    scores, gain, factor = ranker.predict(x), 2.0**y - 1, np.where(absent, 0, of_query[query])
    present = lambda q: (query == q) & ~absent
    theirs = np.array(
        [ndcg_score([gain[present(q)]], [scores[present(q)]], k=5) for q in range(QUERIES)]
    )
    found = ranker.score(x, y, sample_weight=factor, qid=query)
    assert found == pytest.approx(np.average(theirs, weights=of_query), rel=1e-5)
    assert abs(found - ranker.score(x, y, qid=query)) > 1e-3
    uneven = np.where(np.arange(N) % 2, 0.5, 2) * factor
    mean = [uneven[present(q)].mean() for q in range(QUERIES)]
    assert ranker.score(x, y, sample_weight=uneven, qid=query) == pytest.approx(
        np.average(theirs, weights=mean), rel=1e-5
    )
    with pytest.raises(ValueError, match="weight"):
        ranker.score(x, y, sample_weight=-factor, qid=query)


@pytest.mark.long
def test_copies_are_weights_and_names_are_numbers():
    x, y, query = rows()
    twice = np.r_[np.arange(20), np.arange(N)]
    copied = Ranker(lam=0.05).fit(x[twice], y[twice], qid=query[twice])
    weight = np.r_[np.full(20, 2), np.ones(N - 20)]
    weighted = Ranker(lam=0.05).fit(x, y, weight, qid=query)
    np.testing.assert_array_equal(copied.coef_, weighted.coef_)
    # grades that are equal in float32
    named = Ranker(lam=0.05).fit(x, y + 2.0**40, weight, qid=[f"q{q}" for q in query])
    np.testing.assert_allclose(named.coef_, weighted.coef_, atol=1e-3)


@pytest.mark.long
def test_kernels_rank_by_a_pipeline():
    x, _, query = rows()
    y = np.clip(np.round(np.abs(x[:, 0]) * 2), 0, 4)  # no linear score ranks it
    linear = Ranker(lam=0.01).fit(x, y, qid=query).score(x, y, qid=query)
    machine = make_pipeline(NystromFeatures(n_components=64, random_state=0), Ranker(lam=1e-3)).fit(
        x, y, ranker__qid=query
    )
    features = machine[0].transform(x)
    assert machine[-1].score(features, y, qid=query) > linear + 0.05


def test_bad_input_gets_one_sentence():
    x, y, query = rows()
    for make, fit, expected in (
        (Ranker(lam=0.0), {}, "lam must be a finite number above 0"),
        (Ranker(loss="squared"), {}, "loss must be one of 'hinge', 'squared_hinge'"),
        (Ranker(k=0), {}, "k must be a whole number of at least 1, got 0"),
        (Ranker(), {"qid": np.where(query == 3, np.nan, query)}, "qid holds a NaN"),
        (Ranker(), {"qid": query[:3]}, "qid must name the qid of each"),
        (Ranker(), {"qid": np.arange(N)}, "no two rows of one query have different grades"),
    ):
        with pytest.raises(ValueError, match=expected):
            make.fit(x, y, **fit)
    with pytest.raises(ValueError, match="two or more, got n_samples=1"):
        Ranker().fit(x[:1], y[:1])
    with pytest.raises(ValueError, match="must hold grades, numbers, got 'low'"):
        Ranker().fit(x[:2], ["low", "high"])
