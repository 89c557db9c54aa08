"""`Ranker` and `SurvivalSVM` against the explicit pair problem, and as estimators of
scikit-learn."""

import pickle

import numpy as np
import pytest
from beside import close, equal
from sklearn.base import clone
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from jaxsvm.estimators import NystromFeatures, Ranker, SurvivalSVM

pytestmark = pytest.mark.long
N, QUERIES, ONE = 200, 20, np.ones(200)
STRATA, TWICE = np.arange(N) % 3, np.r_[np.arange(20), np.arange(N)]
COPIES = np.r_[np.full(20, 2), np.ones(N - 20)]  # of each row, in TWICE


def graded():
    """Grades that rise with the first column within a query, and fall with it from query to
    query."""
    rng = np.random.default_rng(0)
    x, query = rng.normal(size=(N, 6)), rng.integers(0, QUERIES, N)
    offset = rng.normal(size=QUERIES)[query]
    score = 2 * x[:, 0] + x[:, 1] + 0.5 * rng.normal(size=N) - 3 * offset
    x[:, 0] += 2 * offset
    return x, np.clip(np.round(score) + 5, 0, 10).astype(int), query


def timed():
    """Times with ties, of which some 40 % are censored."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 5))
    time, end = rng.exponential(np.exp(x[:, 0] - x[:, 1])), rng.exponential(1.8, N)
    y = np.empty(N, [("event", bool), ("time", float)])
    y["event"], y["time"] = time <= end, np.ceil(8 * np.minimum(time, end)) / 8
    return x, y


def signed(y):
    """Times in one column."""
    return np.where(y["event"], y["time"], -y["time"])


def later(y):
    """Which rows are above which: row j had its event while row i was observed."""
    time, event = y["time"], y["event"]
    return event & ((time[:, None] > time) | ((time[:, None] == time) & ~event[:, None]))


@pytest.mark.parametrize(("loss", "power"), [("hinge", 1), ("squared_hinge", 2)])
@pytest.mark.parametrize("machine", [Ranker, SurvivalSVM])
def test_the_weights_are_those_of_liblinear_on_all_pairs(machine, loss, power):
    if machine is Ranker:
        x, y, group = graded()
        above, groups = y[:, None] > y, {"qid": group}
    else:
        (x, y), group = timed(), STRATA
        above, groups = later(y), {"strata": group}
    i, j = np.nonzero(above & (group[:, None] == group))
    z, sign, lam = x[i] - x[j], np.where(np.arange(len(i)) % 2, 1, -1), 0.05
    peer = LinearSVC(loss=loss, dual=True, fit_intercept=False, tol=1e-9, max_iter=10**6)
    peer.set_params(C=1 / (lam * len(z))).fit(sign[:, None] * z, sign)
    made = machine(lam=lam, loss=loss, tol=1e-5).fit(x, y, **groups)
    objective = lambda w: lam / 2 * w @ w + (np.maximum(1 - z @ w, 0) ** power).mean()
    assert -1e-6 <= objective(made.coef_) / objective(peer.coef_[0]) - 1 <= 2e-5
    assert 1 <= made.n_iter_ <= (100 if power == 1 else 10)
    close(made.predict(x), x @ made.coef_, rtol=1e-5, atol=1e-6)


def test_the_score_is_ndcg_and_queries_help():
    """Weights of a score are the mean weights of queries; a row of weight 0 is absent."""
    x, y, query = graded()
    ranker = Ranker(lam=0.05, k=5).fit(x, y, qid=query)
    assert ranker.score(x, y, qid=query) > clone(ranker).fit(x, y).score(x, y, qid=query)
    of_query, scores = np.random.default_rng(1).uniform(0.5, 3, QUERIES), ranker.predict(x)
    of_query[4] = 0
    absent = np.random.default_rng(2).random(N) < 0.2

    def expected(weight):
        """Of the queries, and their mean weights."""
        present = [(query == q) & ((weight > 0) | (q == 4)) for q in range(QUERIES)]
        each = [ndcg_score([2.0 ** y[p] - 1], [scores[p]], k=5) for p in present]
        return np.average(each, weights=[weight[p].mean() for p in present])

    factor = np.where(absent, 0, of_query[query])
    found = []
    for weight in (ONE, factor, np.where(np.arange(N) % 2, 0.5, 2) * factor):
        found.append(ranker.score(x, y, sample_weight=weight, qid=query))
        assert found[-1] == pytest.approx(expected(weight), rel=1e-5)
    assert found[0] == ranker.score(x, y, qid=query) and abs(found[1] - found[0]) > 1e-3
    with pytest.raises(ValueError, match="weight"):
        ranker.score(x, y, sample_weight=-factor, qid=query)


def test_the_score_is_the_concordance_index_of_minus_the_scores():
    x, y = timed()
    x[20:40] = x[:20]  # rows whose scores are equal
    weight, machine = np.random.default_rng(1).choice([0, 1, 2.5], N), SurvivalSVM(lam=0.05)
    risk = -machine.fit(x, y).predict(x)
    for strata, each in ((ONE, ONE), (STRATA, ONE), (ONE, weight), (STRATA, weight)):
        i, j = np.nonzero(later(y) & (strata[:, None] == strata))
        difference = risk[j] - risk[i]  # risks are higher for earlier events
        right = np.where(np.abs(difference) <= 1e-8, 0.5, difference > 0)
        wanted = np.average(right, weights=each[i] * each[j])
        assert machine.score(x, y, each, strata=strata) == pytest.approx(wanted, abs=1e-12)
    assert machine.score(x, y) == machine.score(x, y, ONE) > 0.7


def test_copies_are_weights_and_names_are_numbers():
    x, y, query = graded()
    made = Ranker(lam=0.05)
    copied = made.fit(x[TWICE], y[TWICE], qid=query[TWICE]).coef_
    equal(made.fit(x, y, COPIES, qid=query).coef_, copied)
    # grades that are equal in float32
    named = made.fit(x, y + 2.0**40, COPIES, qid=[f"q{q}" for q in query])
    close(named.coef_, copied, atol=1e-3)


def test_signed_times_copies_and_pickles_are_the_same_machine():
    x, y = timed()
    machine = SurvivalSVM(lam=0.05).fit(x, y, COPIES)
    # times that float32 rounds
    for other in (y[TWICE], signed(y)[TWICE], signed(y)[TWICE] * (1 + 2.0**-40)):
        equal(SurvivalSVM(lam=0.05).fit(x[TWICE], other).coef_, machine.coef_)
    loaded = pickle.loads(pickle.dumps(machine))
    equal(loaded.predict(x), machine.predict(x))
    assert loaded.score(x, signed(y)) == machine.score(x, y)


def test_scikit_learn_clones_validates_and_searches():
    x, y = timed()
    machine = SurvivalSVM(lam=0.01, loss="squared_hinge")
    numbers = {"lam": 0.01, "loss": "squared_hinge", "tol": 1e-3, "max_iter": 1000}
    assert clone(machine).get_params() == machine.get_params() == numbers | {"progress": False}
    pipeline = make_pipeline(StandardScaler(), machine)
    scores = cross_val_score(pipeline, x, y, cv=3)
    assert scores.shape == (3,) and (scores > 0.7).all()
    equal(cross_val_score(pipeline, x, signed(y), cv=3), scores)
    search = GridSearchCV(pipeline, {"survivalsvm__lam": [0.01, 0.1]}, cv=3).fit(x, y)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(scores.mean())


def test_kernels_rank_by_a_pipeline():
    """No linear score ranks a radius."""
    mapped = lambda points: NystromFeatures(n_components=points, random_state=0)
    x, y = timed()
    x, y["time"], y["event"] = x[:, :1], 1 + np.round(8 * np.abs(x[:, 0])), np.arange(N) % 3 > 0
    by_features = make_pipeline(mapped(20), SurvivalSVM(lam=1e-3)).fit(x, y).score(x, y)
    assert SurvivalSVM(lam=0.01).fit(x, y).score(x, y) < 0.7 < 0.95 < by_features
    x, _, query = graded()
    y = np.clip(np.round(np.abs(x[:, 0]) * 2), 0, 4)
    linear = Ranker(lam=0.01).fit(x, y, qid=query).score(x, y, qid=query)
    machine = make_pipeline(mapped(64), Ranker(lam=1e-3)).fit(x, y, ranker__qid=query)
    assert machine[-1].score(machine[0].transform(x), y, qid=query) > linear + 0.05
