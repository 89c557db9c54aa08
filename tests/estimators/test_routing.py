"""Metadata routing of scikit-learn: weights, queries and groups find the estimator that asks."""

import jax
import numpy as np
import pytest
import sklearn
from beside import close, equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jaxsvm.estimators import (
    SVC,
    SVR,
    GridCV,
    LinearSVC,
    LinearSVR,
    Pegasos,
    Ranker,
    SGDOneClassSVM,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*tolerance.*not met")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 4))
Y = (X[:, 0] + 0.5 * RANDOM.normal(size=90) > 0).astype(int)
WEIGHT = RANDOM.uniform(0, 3, 90)
GROUPS = np.arange(90) % 6
FOLDS = [(np.setdiff1d(np.arange(90), np.arange(i, 90, 3)), np.arange(i, 90, 3)) for i in range(3)]


@pytest.fixture(autouse=True)
def routing():
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        sklearn.config_context(enable_metadata_routing=True),
    ):
        yield


def in_pipeline(machine):
    return make_pipeline(StandardScaler().set_fit_request(sample_weight=False), machine)


@pytest.mark.parametrize(
    "made", [LinearSVC(), SVC(), Pegasos(random_state=0), LinearSVR(), SVR()], ids=str
)
def test_sample_weights_are_those_of_a_fit(made):
    machine = clone(made).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    name, number = type(made).__name__.lower(), "alpha" if isinstance(made, Pegasos) else "C"
    grid = GridSearchCV(in_pipeline(machine), {f"{name}__{number}": [0.1, 1.0]}, cv=FOLDS)
    grid.fit(X, Y, sample_weight=WEIGHT)
    results = cross_validate(grid.best_estimator_, X, Y, params={"sample_weight": WEIGHT}, cv=FOLDS)
    by_hand, expected = grid.best_estimator_[-1], []
    for train, test in FOLDS:
        scale = StandardScaler().fit(X[train]).transform
        by_hand = clone(by_hand).fit(scale(X[train]), Y[train], WEIGHT[train])
        expected.append(by_hand.score(scale(X[test]), Y[test], WEIGHT[test]))
    close(results["test_score"], expected, rtol=1e-6)
    close(grid.best_score_, np.mean(expected), rtol=1e-6)


def test_outliers_take_weights_and_pieces_have_requests():
    machine = SGDOneClassSVM(0.2, random_state=0).set_fit_request(sample_weight=True)
    pipeline = in_pipeline(machine).fit(X, sample_weight=WEIGHT)
    rows = pipeline[0].transform(X)
    by_hand = SGDOneClassSVM(0.2, random_state=0).fit(rows, sample_weight=WEIGHT)
    equal(pipeline.decision_function(X), by_hand.decision_function(rows))
    requests = Pegasos().set_partial_fit_request(classes=True, sample_weight=True)
    asked = requests.get_metadata_routing().partial_fit.requests
    assert asked == {"classes": True, "sample_weight": True}


def test_queries_of_a_ranker():
    ranker = Ranker(loss="squared_hinge").set_fit_request(qid=True, sample_weight=False)
    ranker.set_score_request(qid=True, sample_weight=False)
    found = cross_validate(ranker, X, Y, params={"qid": GROUPS}, cv=FOLDS)["test_score"]
    for value, (train, test) in zip(found, FOLDS, strict=True):
        by_hand = Ranker(loss="squared_hinge").fit(X[train], Y[train], qid=GROUPS[train])
        wanted = by_hand.score(X[test], Y[test], qid=GROUPS[test])
        close(value, wanted, rtol=1e-6)
    weight = 1.0 * (GROUPS[test] != GROUPS[test][0])
    found, rest = by_hand.score(X[test], Y[test], weight, qid=GROUPS[test]), test[weight > 0]
    close(found, by_hand.score(X[rest], Y[rest], qid=GROUPS[rest]), rtol=1e-6)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("machine", [SVC(), LinearSVC()], ids=["svc", "linear"])
def test_groups_of_a_search(machine):
    asks = clone(machine).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    made = GridCV(asks, {"C": [0.1, 1.0]}, cv=GroupKFold(3))
    pipeline = in_pipeline(made).fit(X, Y, groups=GROUPS, sample_weight=WEIGHT)
    rows, expected = pipeline[0].transform(X), GridSearchCV(asks, made.grid, cv=GroupKFold(3))
    expected.fit(rows, Y, groups=GROUPS, sample_weight=WEIGHT)
    folds = [expected.cv_results_[f"split{i}_test_score"] for i in range(3)]
    close(pipeline[-1].scores_, np.transpose(folds), atol=0.03)
    close(pipeline.decision_function(X), expected.decision_function(rows), atol=1e-5)
    other = clone(made).set_params(cv=3).fit(rows, Y, sample_weight=WEIGHT)
    assert not np.array_equal(other.scores_, pipeline[-1].scores_)


def test_probabilities_are_fitted_by_weights():
    machine = LinearSVC(probability=True).fit(X, Y, sample_weight=WEIGHT)
    with sklearn.config_context(enable_metadata_routing=False):
        expected = LinearSVC(probability=True).fit(X, Y, sample_weight=WEIGHT).predict_proba(X)
    equal(machine.predict_proba(X), expected)
