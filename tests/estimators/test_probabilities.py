"""Probabilities of estimators beside `CalibratedClassifierCV` on the same folds."""

import numpy as np
import pytest
import sklearn.svm
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import brier_score_loss, get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm import models
from jaxsvm.estimators import (
    SVC,
    SVR,
    BudgetedSVC,
    GridCV,
    LinearSVC,
    NuSVC,
    Pegasos,
    SVMClassifier,
)

pytestmark = pytest.mark.usefixtures("usual_promotion")

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
    theirs = CalibratedClassifierCV(
        sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**5), ensemble=False, cv=5
    ).fit(x, y)
    np.testing.assert_allclose(made.predict_proba(x), theirs.predict_proba(x), atol=2e-3)
    np.testing.assert_allclose(made.predict_log_proba(x), np.log(made.predict_proba(x)), atol=1e-6)
    plain = clone(made).set_params(probability=False).fit(x, y)
    np.testing.assert_array_equal(plain.predict(x), made.predict(x))
    assert not hasattr(plain, "predict_proba")
    # The same in a file.
    assert made.calibrated_.classes == tuple(made.classes_)
    np.testing.assert_allclose(made.calibrated_.predict_proba(x), made.predict_proba(x), atol=1e-5)


@pytest.mark.long(but=2)
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
    x, y = part(k)
    weight = WEIGHT[: len(y)]
    made = clone(machine).set_params(random_state=0)
    theirs = CalibratedClassifierCV(made, ensemble=False, cv=5)
    used = weight > 0
    theirs.fit(x[used], y[used], sample_weight=weight[used])
    made = clone(made).set_params(probability=True).fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(made.predict_proba(x), theirs.predict_proba(x), atol=5e-3)
    with_names = made.predict_proba(x)[np.arange(len(y)), np.searchsorted(made.classes_, y)]
    assert np.mean(with_names) > 0.5


@pytest.mark.long(but=2)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "machine",
    [SVC(tol=1e-5), LinearSVC(tol=1e-6), SVC(multiclass="ovr", tol=1e-5)],
    ids=["SVC", "LinearSVC", "ovr"],
)
def test_a_search_has_those_of_its_folds(machine, k):
    x, y = part(k)
    folds = StratifiedKFold(4)
    weight = WEIGHT[: len(y)]
    made = GridCV(machine, {"C": [1.0]}, cv=folds).fit(x, y, sample_weight=weight)
    single = machine
    if isinstance(machine, LinearSVC):
        single = sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**5)
    theirs = CalibratedClassifierCV(single, ensemble=False, cv=folds)
    theirs.fit(x, y, sample_weight=weight)
    chances = made.selection_.calibrated().predict_proba(x)
    np.testing.assert_allclose(chances, theirs.predict_proba(x), atol=1e-2)
    isotonic = made.selection_.calibrated("isotonic")
    assert isotonic.classes == tuple(made.classes_)
    assert log_loss(y, chances) < 1.2 * log_loss(y, theirs.predict_proba(x))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score", "roc_auc_ovr"])
@pytest.mark.parametrize(("k", "weights"), [(2, {1: 5.0}), (3, None)])
def test_scores_of_probabilities(scoring, k, weights):
    """Each fold's come from sigmoids of the others: transcribed by scikit-learn's parts."""
    machine = LinearSVC(class_weight=weights, probability=True)
    made = GridCV(machine, {"C": [0.1, 1.0]}, cv=3, scoring=scoring)
    x, y = part(k)
    y = y if k == 3 else (y == "green") * 1
    fold = made.fit(x, y).selection_.fold
    place = np.searchsorted(made.classes_, y)
    for cell in range(2):
        values = made.selection_.scores[cell].astype(float)
        for f in range(3):
            own = fold == f
            chances = jaxsvm.calibration.crossfit(
                values.reshape(len(y), -1),
                place,
                np.ones(len(y)),
                own.astype(np.int32),
                "sigmoid",
                "rest",
            )

            class Rows(sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator):
                """Whose rows are probabilities."""

                classes_ = made.classes_

                def predict_proba(self, X):
                    return X

            wanted = get_scorer(scoring)(Rows(), chances[own], y[own])
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
    with pytest.raises(NotFittedError, match="call fit with probability=True, partial_fit makes"):
        made.predict_proba(X)
    made.fit(X, Y).predict_proba(X)
    made.partial_fit(X, Y)
    with pytest.raises(NotFittedError, match="there are no probabilities"):
        made.predict_proba(X)


def test_bad_input_gets_a_sentence():
    with pytest.raises(AttributeError, match="predict_proba"):
        LinearSVC().fit(X, Y).predict_proba(X)
    with pytest.raises(ValueError, match="probability must be True or False, got 'isotonic': the"):
        LinearSVC(probability="isotonic").fit(X, Y)
    few = np.concatenate([np.flatnonzero(Y == "red")[:2], np.flatnonzero(Y == "blue")])
    LinearSVC(probability=True).fit(X[few], Y[few]).predict_proba(X)  # by two folds
    few = few[1:]
    with pytest.raises(ValueError, match="needs two rows of each class, to leave one out, and"):
        LinearSVC(probability=True).fit(X[few], Y[few])
    with pytest.raises(AttributeError, match="SVR has none of .*: predict_proba"):
        GridCV(SVR(), {"C": [1.0]}, cv=3, scoring="neg_log_loss").fit(X, IRIS.target * 1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    "machine",
    [
        LinearSVC(),
        SVC(),
        NuSVC(nu=0.3),
        GridCV(SVC(), {"C": [1.0], "gamma": [0.1]}),
        GridCV(LinearSVC(), {"C": [1.0]}),
        BudgetedSVC(budget=20),
        Pegasos(alpha=1e-2),
        SVMClassifier(),
    ],
    ids=lambda machine: type(machine).__name__,
)
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibrated_classifier_works_around_each(machine, method):
    if hasattr(machine, "random_state"):
        machine = clone(machine).set_params(random_state=0)
    made = CalibratedClassifierCV(machine, method=method, cv=3).fit(X, Y)
    assert brier_score_loss(Y, made.predict_proba(X)) < 0.5
    scores = cross_val_score(made, X, Y, cv=3, scoring="neg_log_loss")
    assert np.isfinite(scores).all()


@pytest.mark.long
def test_a_grid_by_log_loss():
    """Probabilities inside of `GridSearchCV`, and a model in a file."""
    search = GridSearchCV(
        LinearSVC(probability=True), {"C": [0.01, 1.0]}, scoring="neg_log_loss", cv=3
    )
    assert search.fit(X, Y).best_score_ > -0.7


def test_probabilities_in_a_file(tmp_path):
    made = LinearSVC(probability=True).fit(X, Y)
    models.save(tmp_path / "model.npz", made.calibrated_)
    again = models.load(tmp_path / "model.npz")
    np.testing.assert_allclose(again.predict_proba(X), made.predict_proba(X), atol=1e-5)
    assert again.predict(X[:1]).tolist() == [again.classes[made.predict_proba(X[:1]).argmax()]]


@pytest.mark.parametrize("machine", [SVC, LinearSVC])
def test_class_weights_by_name_are_those_of_the_folds(machine):
    numbers = np.unique(Y, return_inverse=True)[1]
    by_name = dict(zip(np.unique(Y), (1.0, 5.0, 2.0), strict=True))
    named, numbered = (
        machine(probability=True, class_weight=weights, random_state=0).fit(X, y)
        for y, weights in ((Y, by_name), (numbers, dict(enumerate(by_name.values()))))
    )
    np.testing.assert_array_equal(named.predict_proba(X), numbered.predict_proba(X))
    plain = machine(probability=True, random_state=0).fit(X, Y)
    assert (named.predict_proba(X) != plain.predict_proba(X)).any()


def test_sigmoids_of_two_classes_have_the_signs_of_libsvm():
    x, y = part(2)
    made = SVC(probability=True).fit(x, y)
    value = 1 / (1 + np.exp(-made.probA_ * made.decision_function(x) + made.probB_))
    np.testing.assert_allclose(made.predict_proba(x)[:, 0], value, atol=1e-6)


def test_a_search_with_a_scale_of_the_intercept_has_models_of_the_rows():
    made = GridCV(LinearSVC(intercept_scaling=10.0), {"C": [0.01, 1.0]}, cv=3).fit(X, Y)
    found = np.asarray(made.selection_.model.inner(X.astype(np.float32)))
    np.testing.assert_allclose(found, made.decision_function(X), atol=1e-4)
