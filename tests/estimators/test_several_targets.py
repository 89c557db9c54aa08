"""y of several columns: as scikit-learn's multi-output classes around a machine of one target."""

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor

import jaxsvm
from jaxsvm import estimators

X, Y = make_multilabel_classification(150, 8, n_classes=5, random_state=0)
X = (X - X.mean(0)) / X.std(0)
XR, YR = make_regression(120, 6, n_targets=3, random_state=0, noise=3.0)
YR = YR * [1, 0.1, 0.01] + [0, 3, 1e5]
WEIGHT = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
MANY = {"max_iter": 1_000_000}

CLASSIFIERS = {
    "SVC": ({"gamma": 0.1, "tol": 1e-5}, {}),
    "LinearSVC": ({"tol": 1e-7}, MANY),
    "LinearSVC hinge": ({"loss": "hinge", "tol": 1e-6}, MANY),
    "LinearSVC l1": ({"penalty": "l1", "tol": 1e-7, "dual": False}, MANY),
    "LinearSVC balanced": ({"class_weight": "balanced", "tol": 1e-7}, MANY),
    "SVC balanced": ({"gamma": 0.1, "class_weight": "balanced", "tol": 1e-5}, {}),
}


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_labels_are_those_of_multi_output_classifier(name, weight):
    own, of_peer = CLASSIFIERS[name]
    machine = getattr(estimators, name.split()[0])(**own)
    one = getattr(sklearn.svm, name.split()[0])(**own, **of_peer)
    if "balanced" in name and weight is not None:  # scikit-learn's weights of classes ignore it
        used = np.repeat(np.arange(len(X)), WEIGHT.astype(int))
        peer = MultiOutputClassifier(one).fit(X[used], Y[used])
    else:
        peer = MultiOutputClassifier(one).fit(X, Y, sample_weight=weight)
    machine.fit(X, Y, sample_weight=weight)
    values = np.stack([each.decision_function(X) for each in peer.estimators_], 1)
    assert np.allclose(machine.decision_function(X), values, atol=3e-3 if "hinge" in name else 1e-4)
    close = np.abs(values) < 3e-3
    assert ((machine.predict(X) == peer.predict(X)) | close).all()
    assert [names.tolist() for names in machine.classes_] == [[0, 1]] * 5
    if name.startswith("Linear"):
        assert machine.coef_.shape == (5, 8) and machine.intercept_.shape == (5,)


def test_many_sparse_rows_with_several_labels_are_those_of_dense_rows():
    """From 2^15 entries on other methods than dual_descent merge equal rows, of one label only."""
    x, y = np.tile(X, (30, 1)), np.tile(Y, (30, 1))
    dense, sparse = (estimators.LinearSVC().fit(a, y) for a in (x, scipy.sparse.csr_matrix(x)))
    assert np.allclose(dense.coef_, sparse.coef_, atol=1e-4)


@pytest.mark.parametrize("name", ["SVR", "NuSVR", "LinearSVR"])
def test_real_targets_are_those_of_multi_output_regressor(name):
    options = {"tol": 1e-6} | ({"C": 10.0} if name == "LinearSVR" else {"gamma": 0.1})
    targets = YR - [0, 0, 1e5] if name == "LinearSVR" else YR  # its intercept is regularised
    machine = getattr(estimators, name)(**options).fit(XR, targets)
    more = MANY if name == "LinearSVR" else {}
    peer = MultiOutputRegressor(getattr(sklearn.svm, name)(**options, **more)).fit(XR, targets)
    scale = targets.std(0)
    assert (np.abs(machine.predict(XR) - peer.predict(XR)) < 1e-4 * scale + 1e-3).all()
    assert np.isclose(machine.score(XR, targets), peer.score(XR, targets), atol=1e-4)


def test_sparse_rows_and_sparse_labels():
    x = scipy.sparse.csr_matrix(X * (np.abs(X) > 1))
    machine = estimators.LinearSVC(tol=1e-7).fit(x, scipy.sparse.csr_matrix(Y))
    peer = MultiOutputClassifier(sklearn.svm.LinearSVC(tol=1e-7, **MANY)).fit(x, Y)
    coef = np.concatenate([each.coef_ for each in peer.estimators_])
    assert np.allclose(machine.coef_, coef, atol=1e-4)


def test_names_of_classes_of_each_column():
    names = np.where(Y[:, :2] > 0, ["yes", "up"], ["no", "down"]).astype(object)
    machine = estimators.SVC().fit(X, names)
    assert [each.tolist() for each in machine.classes_] == [["no", "yes"], ["down", "up"]]
    predicted = machine.predict(X)
    assert predicted.shape == (150, 2)
    assert set(predicted[:, 0]) == {"no", "yes"} and set(predicted[:, 1]) == {"down", "up"}
    assert (
        predicted == np.where(machine.decision_function(X) > 0, names.max(0), names.min(0))
    ).all()


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.filterwarnings("error")
def test_a_label_that_no_row_has_is_never_predicted(class_weight):
    labels = Y.copy()
    labels[:, 2:4] = 0, 1
    for machine in (estimators.SVC(), estimators.LinearSVC()):
        machine.set_params(class_weight=class_weight).fit(X, labels)
        predicted = machine.predict(X)
        assert (predicted[:, 2] == 0).all() and (predicted[:, 3] == 1).all()
        alone = clone(machine).fit(X, labels[:, 0])  # the other labels change nothing
        np.testing.assert_array_equal(predicted[:, 0], alone.predict(X))


@pytest.mark.parametrize(
    "machine",
    [
        estimators.SVMClassifier(jaxsvm.sdca(0.1, bias="feature")),
        estimators.SVMClassifier(jaxsvm.decomposition(1.0, jaxsvm.kernels.rbf(gamma=0.2))),
        estimators.Pegasos(),
        estimators.BudgetedSVC(),
    ],
)
def test_other_solvers_take_several_labels(machine):
    machine.fit(X, Y)
    alone = [type(machine)(**machine.get_params()).fit(X, Y[:, c]) for c in range(5)]
    score = lambda machine, y: (machine.predict(X) == y).mean()
    assert score(machine, Y) > np.mean([score(alone[c], Y[:, c]) for c in range(5)]) - 0.05


def test_scikit_learn_s_tools_take_it():
    grid = GridSearchCV(estimators.SVC(), {"C": [0.1, 1.0]}, cv=3).fit(X, Y)
    assert grid.best_score_ > 0
    assert len(cross_val_score(estimators.SVR(), XR, YR, cv=3)) == 3
    machine = pickle.loads(pickle.dumps(grid.best_estimator_))
    assert np.array_equal(machine.predict(X), grid.predict(X))


def test_the_model_is_saved(tmp_path):
    machine = estimators.SVC().fit(X, Y)
    jaxsvm.models.save(tmp_path / "model.npz", machine.model_)
    model = jaxsvm.models.load(tmp_path / "model.npz")
    values = np.asarray(model(jax.numpy.asarray(X)))
    assert np.allclose(values, machine.decision_function(X), atol=1e-5)


@pytest.mark.parametrize(
    ("machine", "y", "message"),
    [
        (estimators.SVC(probability=True), Y, "probability=True takes one target a row"),
        (estimators.LinearSVC(probability=True), Y, "probability=True takes one target a row"),
        (estimators.LinearSVC(multi_class="crammer_singer"), Y, "is for one target of several"),
        (estimators.LinearSVC(class_weight={0: 2}), Y, "None or 'balanced' for several labels"),
        (estimators.SVC(), Y + np.arange(150)[:, None] % 3, "column 0 of y holds 4 classes"),
        (estimators.SVCCV(), Y, "1d array"),
        (estimators.NuSVC(), Y, "1d array"),
    ],
)
def test_bad_input_gets_one_sentence(machine, y, message):
    with pytest.raises(ValueError, match=message):
        machine.fit(X, y)


def test_partial_fit_takes_one_target():
    with pytest.raises(ValueError, match="partial_fit takes one target a row"):
        estimators.Pegasos().partial_fit(X, Y, classes=[0, 1])
