"""Probabilities of estimators beside those of scikit-learn: of machines, and of folds."""

import itertools

import jax
import numpy as np
import pytest
import scipy.optimize
import sklearn.svm
from beside import LABELS, TOY, USUAL, both, close, equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import brier_score_loss, get_scorer, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm import calibration, models
from jaxsvm.estimators import SVC, BudgetedSVC, GridCV, LinearSVC, NuSVC, Pegasos, SVMClassifier

pytestmark = USUAL

IRIS = load_iris()
X = StandardScaler().fit_transform(IRIS.data + np.random.default_rng(0).normal(size=(150, 4)))
Y = np.array(["red", "green", "blue"])[IRIS.target]
WEIGHT = np.random.default_rng(1).integers(0, 3, 150) * 1.0


def part(k):
    return (X, Y) if k == 3 else (X[Y != "red"], Y[Y != "red"])


@pytest.mark.parametrize("k", [2, 3])
def test_a_linear_machine_has_the_probabilities_of_scikit_learn(k):
    x, y = part(k)
    made = LinearSVC(probability=True, tol=1e-6, random_state=0).fit(x, y)
    machine = sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**5)
    theirs = CalibratedClassifierCV(machine, ensemble=False, cv=5).fit(x, y)
    close(made.predict_proba(x), theirs.predict_proba(x), atol=2e-3)
    close(made.predict_log_proba(x), np.log(made.predict_proba(x)), atol=1e-6)
    plain = clone(made).set_params(probability=False).fit(x, y)
    equal(plain.predict(x), made.predict(x))
    assert not hasattr(plain, "predict_proba")
    # The same in a file.
    assert made.calibrated_.classes == tuple(made.classes_)
    close(made.calibrated_.predict_proba(x), made.predict_proba(x), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("k", [3, 2])
@pytest.mark.parametrize(
    "machine",
    [
        Pegasos(alpha=1e-2),
        BudgetedSVC(budget=30),
        SVMClassifier(),
        SVMClassifier(jaxsvm.decomposition(1.0, jaxsvm.kernels.rbf(gamma=0.3))),
        LinearSVC(loss="hinge"),
        LinearSVC(penalty="l1"),
        LinearSVC(multi_class="crammer_singer"),
    ],
    ids=lambda machine: repr(machine)[:40],
)
def test_any_machine_has_those_of_calibrated_classifier(machine, k):
    """Rows of weight 0 are absent."""
    (x, y), made = part(k), clone(machine).set_params(random_state=0)
    weight, theirs = WEIGHT[: len(y)], CalibratedClassifierCV(made, ensemble=False, cv=5)
    used = weight > 0
    theirs.fit(x[used], y[used], sample_weight=weight[used])
    made = clone(made).set_params(probability=True).fit(x, y, sample_weight=weight)
    close(made.predict_proba(x), theirs.predict_proba(x), atol=5e-3)
    with_names = made.predict_proba(x)[np.arange(len(y)), np.searchsorted(made.classes_, y)]
    assert np.mean(with_names) > 0.5


@pytest.mark.long(but=1)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "machine",
    [SVC(tol=1e-5), LinearSVC(tol=1e-6), SVC(multiclass="ovr", tol=1e-5)],
    ids=["SVC", "LinearSVC", "ovr"],
)
def test_a_search_has_those_of_its_folds(machine, k):
    (x, y), folds = part(k), StratifiedKFold(4)
    weight = WEIGHT[: len(y)]
    made = GridCV(machine, {"C": [1.0]}, cv=folds).fit(x, y, sample_weight=weight)
    exact = sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**5)
    single = exact if isinstance(machine, LinearSVC) else machine
    theirs = CalibratedClassifierCV(single, ensemble=False, cv=folds)
    theirs.fit(x, y, sample_weight=weight)
    chances = made.selection_.calibrated().predict_proba(x)
    close(chances, theirs.predict_proba(x), atol=1e-2)
    assert made.selection_.calibrated("isotonic").classes == tuple(made.classes_)
    assert log_loss(y, chances) < 1.2 * log_loss(y, theirs.predict_proba(x))


class Rows(sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator):
    """Whose rows are probabilities."""

    def __init__(self, classes):
        self.classes_ = classes

    def predict_proba(self, X):
        return X


@pytest.mark.long(but=1)
@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score", "roc_auc_ovr"])
@pytest.mark.parametrize(("k", "weights"), [(2, {1: 5.0}), (3, None)])
def test_scores_of_probabilities(scoring, k, weights):
    """They come from sigmoids of the values out of fold; the scores are scikit-learn's."""
    machine = LinearSVC(class_weight=weights, probability=True)
    made = GridCV(machine, {"C": [0.1, 1.0]}, cv=3, scoring=scoring)
    x, y = part(k)
    y = y if k == 3 else (y == "green") * 1
    fold = made.fit(x, y).selection_.fold
    place = np.searchsorted(made.classes_, y)
    for cell, f in itertools.product(range(2), range(3)):
        values, own = made.selection_.scores[cell].astype(float).reshape(len(y), -1), fold == f
        given = None, values, place, np.ones(len(y))
        sigmoids = calibration.calibrate_columns(*given, "sigmoid", "rest", made.classes_)
        chances = sigmoids.of_columns(values)
        wanted = get_scorer(scoring)(Rows(made.classes_), chances[own], y[own])
        assert made.scores_[cell, f] == pytest.approx(wanted, rel=1e-6)
    assert made.best_score_ == pytest.approx(made.scores_.mean(axis=-1).max())
    assert np.isfinite(made.score(x, y))


def test_class_weights_weigh_the_fits_and_not_the_probabilities():
    rare = np.concatenate([np.flatnonzero(Y == "blue")[:10], np.flatnonzero(Y == "green")])
    x, y = X[rare], Y[rare]
    made = GridCV(LinearSVC(class_weight="balanced"), {"C": [1.0]}).fit(x, y)
    chances = made.selection_.calibrated().predict_proba(x)
    assert np.mean(chances[:, 0]) == pytest.approx(10 / 60, abs=0.03)
    made = LinearSVC(class_weight="balanced", probability=True).fit(x, y)
    assert np.mean(made.predict_proba(x)[:, 0]) == pytest.approx(10 / 60, abs=0.03)


def test_partial_fit_has_no_probabilities():
    made = Pegasos(probability=True, random_state=0)
    made.partial_fit(X, Y, classes=np.unique(Y))
    with pytest.raises(NotFittedError, match="call fit with probability=True; partial_fit makes"):
        made.predict_proba(X)
    made.fit(X, Y).predict_proba(X)
    made.partial_fit(X, Y)
    with pytest.raises(NotFittedError, match="not available when fitted with probability=False"):
        made.predict_proba(X)


STOCHASTIC = [BudgetedSVC(budget=20), Pegasos(alpha=1e-2), SVMClassifier()]
MACHINES = [LinearSVC(), SVC(), NuSVC(nu=0.3), *(m.set_params(random_state=0) for m in STOCHASTIC)]
SEARCHES = [GridCV(SVC(), {"C": [1.0], "gamma": [0.1]}), GridCV(LinearSVC(), {"C": [1.0]})]


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES + SEARCHES, ids=lambda made: type(made).__name__)
def test_calibrated_classifier_works_around_each(machine):
    for method in ("sigmoid", "isotonic", "temperature"):
        made = CalibratedClassifierCV(machine, method=method, cv=3).fit(X, Y)
        assert brier_score_loss(Y, made.predict_proba(X)) < 0.5
        assert np.isfinite(cross_val_score(made, X, Y, cv=3, scoring="neg_log_loss")).all()


def test_probabilities_in_a_file(tmp_path):
    made = LinearSVC(probability=True).fit(X, Y)
    models.save(tmp_path / "model.npz", made.calibrated_)
    again = models.load(tmp_path / "model.npz")
    close(again.predict_proba(X), made.predict_proba(X), atol=1e-5)
    assert again.predict(X[:1]).tolist() == [again.classes[made.predict_proba(X[:1]).argmax()]]


def test_folds_may_be_two_or_lack_a_class():
    few = np.concatenate([np.flatnonzero(Y == "red")[:2], np.flatnonzero(Y == "blue")])
    LinearSVC(probability=True).fit(X[few], Y[few]).predict_proba(X)
    tiny = SVC(probability=True, random_state=0).fit(TOY[[0, 1, 3, 4]], [1, 1, 2, 2])
    close(tiny.predict_proba(TOY).sum(axis=1), 1)


@pytest.mark.parametrize("machine", [SVC, LinearSVC])
def test_class_weights_by_name_are_those_of_the_folds(machine):
    numbers = np.unique(Y, return_inverse=True)[1]
    by_name = dict(zip(np.unique(Y), (1.0, 5.0, 2.0), strict=True))
    named, numbered = (
        machine(probability=True, class_weight=weights, random_state=0).fit(X, y)
        for y, weights in ((Y, by_name), (numbers, dict(enumerate(by_name.values()))))
    )
    equal(named.predict_proba(X), numbered.predict_proba(X))
    plain = machine(probability=True, random_state=0).fit(X, Y)
    assert (named.predict_proba(X) != plain.predict_proba(X)).any()


def test_sigmoids_of_two_classes_have_the_signs_of_libsvm():
    x, y = part(2)
    made = SVC(probability=True).fit(x, y)
    value = 1 / (1 + np.exp(-made.probA_ * made.decision_function(x) + made.probB_))
    close(made.predict_proba(x)[:, 0], value, atol=1e-6)


@pytest.mark.long
def test_a_search_with_a_scale_of_the_intercept_has_models_of_the_rows():
    made = GridCV(LinearSVC(intercept_scaling=10.0), {"C": [0.01, 1.0]}, cv=3).fit(X, Y)
    found = np.asarray(made.selection_.model.inner(X.astype(np.float32)))
    close(found, made.decision_function(X), atol=1e-4)


# Of pairs of classes, as LIBSVM makes them.


def test_sigmoids_are_those_of_scipy():
    random = np.random.default_rng(0)
    for scale, offset in ((1.0, 0.0), (30.0, 4.0), (1e-3, -2.0)):
        score = random.normal(size=200) * scale
        positive = random.random(200) < 1 / (1 + np.exp(-2 * score / scale + offset))
        low, high = 1 / ((~positive).sum() + 2), (positive.sum() + 1) / (positive.sum() + 2)
        target, unit = np.where(positive, high, low), score / scale
        value = lambda ab, z=unit: ab[0] * z + ab[1]
        loss = lambda ab, f=value, t=target: np.sum(np.logaddexp(0, -f(ab)) + t * f(ab))
        with jax.enable_x64(True):
            curve = jax.jit(calibration.fit_sigmoid)(score, positive, np.ones(200))
        best = scipy.optimize.minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8})
        close([curve.slope.item() * scale, curve.offset.item()], best.x, atol=1e-4)


def test_coupled_probabilities_minimise_their_objective():
    random, k = np.random.default_rng(0), 5
    first, second = np.triu_indices(k, 1)
    pairs = np.clip(random.random((4, len(first))), 1e-3, 1 - 1e-3)
    for r, p in zip(pairs, calibration.couple(pairs, k, np), strict=True):
        objective = lambda p, r=r: np.sum(((1 - r) * p[first] - r * p[second]) ** 2)
        limits = {
            "constraints": {"type": "eq", "fun": lambda p: p.sum() - 1},
            "bounds": [(0, 1)] * k,
        }
        best = scipy.optimize.minimize(objective, np.full(k, 1 / k), tol=1e-14, **limits)
        close(p, best.x, atol=1e-4)
        assert abs(p.sum() - 1) < 1e-12 and (p > 0).all()
    # Where the pairs agree with probabilities, these come out.
    true = random.dirichlet(np.ones(k), 10)
    agreed = true[:, first] / (true[:, first] + true[:, second])
    close(calibration.couple(agreed, k, np), true, atol=1e-9)


def test_probabilities_are_there_where_they_are_asked_for():
    ours = SVC().fit(TOY, LABELS)
    for made in (SVC(), SVC(probability="deprecated"), ours):
        assert not hasattr(made, "predict_proba") and not hasattr(made, "predict_log_proba")
    assert ours.probA_.size == ours.probB_.size == 0
    assert hasattr(SVC(probability=True), "predict_proba")


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "name, k, options",
    [
        ("SVC", 2, {}),
        ("NuSVC", 2, {"nu": 0.4}),
        ("SVC", 3, {"kernel": "linear", "class_weight": "balanced"}),
    ],
)
def test_probabilities_of_rows_that_repeat_are_those_of_scikit_learn(name, k, options):
    """1,000 rows of three columns of zeros and ones, with classes that overlap."""
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (1000, 3)).astype(float)
    labels = np.digitize(x.sum(axis=1), [1.5, 2.5][: k - 1])
    y = np.where(random.random(1000) < 0.1, random.permutation(labels), labels)
    ours, theirs = both(name, (x, y), probability=True, random_state=0, **options)
    p, judges = ours.predict_proba(x), [theirs]
    if k == 2:  # of pairs, as ours
        plain = clone(theirs).set_params(probability=False)
        judges.append(CalibratedClassifierCV(plain, ensemble=False).fit(x, y))
        # the probability of rows of one kind is near the share of their class
        full = x.sum(axis=1) == 3
        assert abs(ours.predict_proba([[1, 1, 1]])[0, 1] - y[full].mean()) < 0.05
    for judge in judges:
        assert 0.95 < log_loss(y, p) / log_loss(y, judge.predict_proba(x)) < 1.05
    clear = np.ptp(np.sort(p, axis=1)[:, -2:], axis=1) > 0.1
    equal(ours.classes_[p.argmax(axis=1)][clear], ours.predict(x)[clear])


def test_probabilities_that_contradict_the_machine_are_told():
    random = np.random.default_rng(3)
    x, y = random.normal(size=(60, 2)), random.integers(0, 2, 60)
    with pytest.warns(UserWarning, match="classes 0 and 1 contradict predict"):
        made = SVC(gamma=0.1, probability=True, random_state=0).fit(x, y)
    assert made.probA_[0] > 0
