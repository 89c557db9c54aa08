"""`SurvivalSVM` against the explicit pair problem, and as an estimator of scikit-learn."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from jaxsvm.estimators import NystromFeatures, SurvivalSVM

N = 150


def rows(seed=0):
    """Rows, and times with ties of which some 40 % are censored."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 5))
    time = rng.exponential(np.exp(x[:, 0] - x[:, 1]))
    end = rng.exponential(1.8, N)
    y = np.empty(N, [("event", bool), ("time", float)])
    y["event"], y["time"] = time <= end, np.ceil(8 * np.minimum(time, end)) / 8
    return x, y


def pairs(y, strata):
    """The rows i and j of all pairs: j had its event while i was observed."""
    time, event = y["time"], y["event"]
    tied = (time[:, None] == time) & ~event[:, None]
    later = (time[:, None] > time) | tied
    return np.nonzero(event & later & (strata[:, None] == strata))


def concordance(y, estimate, strata, weight):
    """The index of risks, which are higher for earlier events."""
    i, j = pairs(y, strata)
    difference = estimate[j] - estimate[i]
    right = np.where(np.abs(difference) <= 1e-8, 0.5, difference > 0)
    return np.average(right, weights=weight[i] * weight[j])


@pytest.mark.long
@parametrize_with_checks([SurvivalSVM(max_iter=50)])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.long
@pytest.mark.parametrize(("loss", "power"), [("hinge", 1), ("squared_hinge", 2)])
def test_the_weights_are_those_of_liblinear_on_all_pairs(loss, power):
    x, y = rows()
    strata, lam = np.arange(N) % 3, 0.05
    i, j = pairs(y, strata)
    z, sign = x[i] - x[j], np.where(np.arange(len(i)) % 2, 1, -1)
    peer = LinearSVC(
        C=1 / (lam * len(z)), loss=loss, dual=True, fit_intercept=False, tol=1e-9, max_iter=10**6
    )
    w = peer.fit(sign[:, None] * z, sign).coef_[0]
    machine = SurvivalSVM(lam=lam, loss=loss, tol=1e-5).fit(x, y, strata=strata)
    objective = lambda w: lam / 2 * w @ w + (np.maximum(1 - z @ w, 0) ** power).mean()
    assert objective(w) * (1 - 1e-6) <= objective(machine.coef_) <= objective(w) * (1 + 2e-5)
    np.testing.assert_allclose(machine.predict(x), x @ machine.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_the_score_is_the_concordance_index_of_minus_the_scores():
    x, y = rows()
    x[20:40], one = x[:20], np.ones(N)  # rows whose scores are equal
    strata, weight = np.arange(N) % 3, np.random.default_rng(1).choice([0, 1, 2.5], N)
    machine = SurvivalSVM(lam=0.05).fit(x, y)
    risk = -machine.predict(x)
    for stratum, each in ((one, one), (strata, one), (one, weight), (strata, weight)):
        found = machine.score(x, y, each, strata=stratum)
        assert found == pytest.approx(concordance(y, risk, stratum, each), abs=1e-12)
    assert machine.score(x, y) == machine.score(x, y, one) > 0.7


@pytest.mark.long
def test_signed_times_copies_and_pickles_are_the_same_machine():
    x, y = rows()
    twice = np.r_[np.arange(20), np.arange(N)]
    machine = SurvivalSVM(lam=0.05).fit(x, y, np.r_[np.full(20, 2), np.ones(N - 20)])
    signed = np.where(y["event"], y["time"], -y["time"])
    # times that float32 rounds
    for other in (y[twice], signed[twice], signed[twice] * (1 + 2.0**-40)):
        copied = SurvivalSVM(lam=0.05).fit(x[twice], other)
        np.testing.assert_array_equal(copied.coef_, machine.coef_)
    loaded = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(loaded.predict(x), machine.predict(x))
    assert loaded.score(x, signed) == machine.score(x, y)


@pytest.mark.long
def test_scikit_learn_clones_validates_and_searches():
    x, y = rows()
    machine = SurvivalSVM(lam=0.01, loss="squared_hinge")
    assert machine.get_params() == {
        "lam": 0.01, "loss": "squared_hinge", "tol": 1e-3, "max_iter": 1000, "progress": False,
    }  # fmt: skip
    assert clone(machine).get_params() == machine.get_params()
    pipeline = make_pipeline(StandardScaler(), machine)
    scores = cross_val_score(pipeline, x, y, cv=3)
    assert scores.shape == (3,) and (scores > 0.7).all()
    signed = np.where(y["event"], y["time"], -y["time"])
    np.testing.assert_array_equal(cross_val_score(pipeline, x, signed, cv=3), scores)
    search = GridSearchCV(pipeline, {"survivalsvm__lam": [0.01, 0.1]}, cv=3).fit(x, y)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(scores.mean())


@pytest.mark.long
def test_kernels_rank_by_a_pipeline():
    x, y = rows()
    radius = np.abs(x[:, 0])  # no linear score ranks it
    y["time"], y["event"] = 1 + np.round(8 * radius), np.arange(N) % 3 > 0
    linear = SurvivalSVM(lam=0.01).fit(x[:, :1], y).score(x[:, :1], y)
    features = NystromFeatures(n_components=20, random_state=0)
    mapped = make_pipeline(features, SurvivalSVM(lam=1e-3)).fit(x[:, :1], y).score(x[:, :1], y)
    assert linear < 0.7 < 0.95 < mapped


def test_bad_input_gets_one_sentence():
    x, y = rows()
    signed = np.where(y["event"], y["time"], -y["time"])
    renamed = np.array(list(zip(y["time"], y["event"], strict=True)), [("t", float), ("e", bool)])
    zero = y.copy()
    zero["time"][3] = 0
    for make, times, fit, expected in (
        (SurvivalSVM(lam=0.0), y, {}, "lam must be a finite number above 0"),
        (SurvivalSVM(loss="cox"), y, {}, "loss must be one of 'hinge', 'squared_hinge'"),
        (SurvivalSVM(), zero, {}, "times must be finite and above 0, got 0 in row 3"),
        (SurvivalSVM(), 0 * signed, {}, "y must hold times, .*not 0, got 0"),
        (SurvivalSVM(), -np.abs(signed), {}, "no row has an event"),
        (SurvivalSVM(), renamed, {}, "y must have two fields, booleans that say whether"),
        (SurvivalSVM(), y, {"strata": np.arange(N)}, "no event is earlier than the time of"),
        (SurvivalSVM(), y, {"strata": [1, 2]}, "strata must name the strata of each of the 150"),
        (SurvivalSVM(), y[:9], {}, "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=expected):
            make.fit(x, times, **fit)
    with pytest.raises(ValueError, match="two or more, got n_samples=1"):
        SurvivalSVM().fit(x[:1], y[:1])
    with pytest.raises(ValueError, match="must hold times, numbers, got 'late'"):
        SurvivalSVM().fit(x[:2], ["late", "later"])
