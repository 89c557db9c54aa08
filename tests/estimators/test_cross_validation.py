"""`GridCV` beside scikit-learn's GridSearchCV of its machines on the same folds."""

import functools
import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.metrics import balanced_accuracy_score, f1_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from jaxsvm.estimators import SVC, SVR, GridCV, LinearSVC, LinearSVR, NuSVC, cross_validation

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore:.*tolerance.*not met"),
]


@pytest.mark.long(but=3)
@parametrize_with_checks(
    [
        GridCV(SVC(), {"C": [1.0, 10.0], "gamma": [0.1, 1.0]}, cv=3),
        GridCV(SVR(), {"C": [1.0, 10.0], "gamma": [0.1, 1.0]}, cv=3),
        GridCV(LinearSVC(), {"C": [0.1, 1.0]}, cv=3),
    ]
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def standard(load, n=None):
    x, y = load(return_X_y=True)
    x, y = x[:n], y[:n]
    return (x - x.mean(0)) / (x.std(0) + (x.std(0) == 0)), y


def grid_of(search, *lengths):
    """The scores of a GridSearchCV, (cells by axis, folds)."""
    folds = [search.cv_results_[f"split{i}_test_score"] for i in range(search.n_splits_)]
    return np.stack(folds, axis=-1).reshape(*lengths, -1)


def same_choice(ours, search, scores, atol):
    """Scores of every cell and fold, and the choice where no other cell is as good."""
    np.testing.assert_allclose(ours.scores_, scores, atol=atol)
    place = np.unravel_index(np.argmax(scores.mean(-1)), scores.shape[:-1])
    ours_place = np.unravel_index(np.argmax(ours.scores_.mean(-1)), scores.shape[:-1])
    assert ours.best_score_ == pytest.approx(search.best_score_, abs=atol)
    assert scores[ours_place].mean() >= scores[place].mean() - atol / len(scores[place])
    assert ours.best_params_ == ours.selection_.chosen


@functools.cache
def on_cancer():
    x, y = standard(load_breast_cancer)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        ours = GridCV(SVC(), {"C": 4, "gamma": 4}).fit(x, np.array(["bad", "good"])[y])
    axes = ours.selection_.table.axes
    return ours, GridSearchCV(sklearn.svm.SVC(), axes).fit(x, np.array(["bad", "good"])[y]), x, y


@pytest.mark.long
def test_two_classes():
    ours, theirs, x, y = on_cancer()
    scores = grid_of(theirs, 4, 4)
    assert np.abs(ours.scores_ - scores).max() * 113 <= 2.001
    same_choice(ours, theirs, scores, 2.001 / 113)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.selection_.table.axes["C"], np.logspace(-1, 3, 4))
    assert ours.n_features_in_ == 30
    assert ours.classes_.tolist() == ["bad", "good"]
    # the machine is that of the numbers chosen
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=2e-2)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    assert abs(len(ours.best_estimator_.support_) - len(theirs.best_estimator_.support_)) <= 3
    plain = SVC(**ours.best_params_).fit(x, np.array(["bad", "good"])[y])
    np.testing.assert_array_equal(ours.decision_function(x), plain.decision_function(x))
    np.testing.assert_array_equal(ours.best_estimator_.dual_coef_, plain.dual_coef_)


@pytest.mark.long
def test_the_selection_is_in_the_rows_of_the_user():
    ours, _, x, y = on_cancer()
    splits = list(StratifiedKFold(5).split(x, y))
    for number, (_, test) in enumerate(splits):
        assert (ours.selection_.fold[test] == number).all()
    i, j = ours.selection_.table.place
    train, test = splits[2]
    model = sklearn.svm.SVC(**ours.best_params_, tol=1e-6).fit(x[train], y[train])
    np.testing.assert_allclose(
        ours.selection_.scores[i, j, test], model.decision_function(x[test]), atol=2e-2
    )
    proof = ours.certificate_
    assert 0 <= proof.gap < 1e-2 * proof.primal and ours.selection_.certificate is proof
    square = np.maximum(0, 1 - (2 * y - 1) * ours.decision_function(x)).sum()
    C, gamma = ours.best_params_.values()
    dual, points = ours.best_estimator_.dual_coef_[0], ours.best_estimator_.support_vectors_
    gram = np.exp(-gamma * ((points[:, None] - points[None]) ** 2).sum(-1))
    assert dual @ gram @ dual / 2 + C * square == pytest.approx(proof.primal, rel=1e-2)
    np.testing.assert_allclose(
        ours.selection_.model(x.astype(np.float32)), ours.decision_function(x), atol=2e-2
    )


@pytest.mark.long
@pytest.mark.parametrize(("load", "n", "size"), [(load_iris, None, 3), (load_digits, 400, 2)])
@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_more_classes(load, n, size, multiclass):
    x, y = standard(load, n)
    axes = {"C": [1.0, 10.0, 100.0][:size], "gamma": [0.003, 0.03, 0.3][:size]}
    ours = GridCV(SVC(multiclass=multiclass), axes, cv=3).fit(x, y)
    model = sklearn.svm.SVC()
    if multiclass == "ovr":
        from sklearn.multiclass import OneVsRestClassifier

        model = OneVsRestClassifier(model)
    prefix = "estimator__" if multiclass == "ovr" else ""
    theirs = GridSearchCV(model, {prefix + name: axis for name, axis in axes.items()}, cv=3).fit(
        x, y
    )
    scores = grid_of(theirs, size, size)
    same_choice(ours, theirs, scores, 2.001 / (len(y) // 3))
    assert np.mean(ours.predict(x) == theirs.predict(x)) > 0.99
    assert 0 <= ours.certificate_.gap < 1e-2 * ours.certificate_.primal
    assert ours.selection_.scores.shape == (size, size, len(y), len(ours.classes_))


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_linear_machines(loss):
    x, y = standard(load_breast_cancer)
    ours = GridCV(LinearSVC(loss=loss), {"C": 5}).fit(x, y)
    machine = sklearn.svm.LinearSVC(loss=loss, max_iter=10**6, random_state=0)
    theirs = GridSearchCV(machine, ours.selection_.table.axes).fit(x, y)
    same_choice(ours, theirs, grid_of(theirs, 5), 2.001 / 113)
    plain = LinearSVC(**ours.best_params_, loss=loss).fit(x, y)
    np.testing.assert_allclose(ours.best_estimator_.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.best_estimator_.intercept_, plain.intercept_, atol=1e-5)


@pytest.mark.long
def test_the_C_of_linear_machines_is_that_of_a_row_in_folds_of_any_size():
    """Folds of 30, 60 and 60 rows: sums of losses, not means."""
    x, y = standard(load_iris)
    fold = np.minimum(np.random.default_rng(0).permutation(150) // 30, 2)
    fold = np.where(fold == 2, 1 + np.arange(150) % 2, fold)
    ours = GridCV(LinearSVC(), {"C": [0.01, 1.0]}, cv=PredefinedSplit(fold)).fit(x, y)
    for i, C in enumerate([0.01, 1.0]):
        for f in range(3):
            model = sklearn.svm.LinearSVC(C=C, tol=1e-8, max_iter=10**6).fit(
                x[fold != f], y[fold != f]
            )
            values = ours.selection_.scores[i, fold == f]
            np.testing.assert_allclose(values, model.decision_function(x[fold == f]), atol=1e-3)


@pytest.mark.long
def test_real_targets():
    x, y = standard(load_diabetes, 200)
    y = (y - y.mean()) / y.std()
    axes = {"epsilon": [0.1, 0.3], "gamma": [0.01, 0.1], "C": [0.1, 1.0]}
    ours = GridCV(SVR(), axes).fit(x, y)
    theirs = GridSearchCV(sklearn.svm.SVR(), axes).fit(x, y)
    scores = grid_of(theirs, 2, 2, 2).swapaxes(1, 2)
    same_choice(ours, theirs, scores, 1e-2)
    assert ours.scores_.shape == (2, 2, 2, 5)
    plain = SVR(**ours.best_params_).fit(x, y)
    np.testing.assert_array_equal(ours.predict(x), plain.predict(x))
    error = GridSearchCV(
        sklearn.svm.SVR(epsilon=0.2), {"C": [0.1, 1.0]}, scoring="neg_mean_absolute_error"
    ).fit(x, y)
    ours = GridCV(SVR(epsilon=0.2), {"C": [0.1, 1.0]}, scoring="neg_mean_absolute_error").fit(x, y)
    np.testing.assert_allclose(ours.scores_, grid_of(error, 2), atol=3e-3)
    assert ours.score(x, y) == pytest.approx(-np.abs(ours.predict(x) - y).mean())


FEW = {"C": [0.1, 10.0], "gamma": [0.03]}


def cancer(n=150):
    x, y = standard(load_breast_cancer)
    return x[:n, :8], y[:n]


@pytest.mark.long
@pytest.mark.parametrize(
    "scoring", ["roc_auc", "f1_macro", make_scorer(balanced_accuracy_score), None]
)
def test_scores_of_scikit_learn(scoring):
    x, y = cancer()
    ours = GridCV(SVC(), FEW, cv=3, scoring=scoring).fit(x, y)
    theirs = GridSearchCV(sklearn.svm.SVC(), FEW, cv=3, scoring=scoring).fit(x, y)
    np.testing.assert_allclose(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), abs=2e-2)


def test_a_function_as_score():
    x, y = cancer()
    seen = []

    def score(estimator, X, y):
        seen.append(len(X))
        assert set(estimator.predict(X[:5])) <= {"bad", "good"}
        return f1_score(y, estimator.predict(X), pos_label="good")

    ours = GridCV(SVC(), FEW, cv=3, scoring=score).fit(x, np.array(["bad", "good"])[y])
    assert seen == [50] * 6
    theirs = GridSearchCV(sklearn.svm.SVC(), FEW, cv=3, scoring="f1").fit(x, y)
    np.testing.assert_allclose(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)


@pytest.mark.parametrize(
    "cv", [KFold(3, shuffle=True, random_state=1), GroupKFold(3), "pairs", 4], ids=str
)
def test_splitters(cv):
    x, y = cancer()
    x[75:], y[75:] = x[:75], y[:75]  # equal rows, in several folds
    groups = np.arange(150) // 10
    if cv == "pairs":
        cv = [(test, train) for train, test in KFold(2).split(x)]
    ours = GridCV(SVC(), FEW, cv=cv).fit(x, y, groups=groups)
    for number, (_, test) in enumerate(check_cv(cv, y, classifier=True).split(x, y, groups)):
        assert (ours.selection_.fold[test] == number).all()
    theirs = GridSearchCV(sklearn.svm.SVC(), FEW, cv=cv).fit(x, y, groups=groups)
    assert np.abs(ours.scores_[:, 0] - grid_of(theirs, 2)).max() <= 2.001 / 37


def test_weights_and_equal_rows():
    """Copies of a row in one fold are a weight; weights are those of the score, too."""
    x, y = cancer(90)
    fold, weight = np.arange(90) % 3, 1.0 + (np.arange(90) % 4 == 0)
    copies = np.repeat(np.arange(90), weight.astype(int))
    by_weight = GridCV(SVC(), FEW, cv=PredefinedSplit(fold)).fit(x, y, sample_weight=weight)
    by_copies = GridCV(SVC(), FEW, cv=PredefinedSplit(fold[copies])).fit(x[copies], y[copies])
    np.testing.assert_array_equal(by_weight.scores_, by_copies.scores_)
    np.testing.assert_array_equal(by_weight.decision_function(x), by_copies.decision_function(x))
    np.testing.assert_array_equal(
        by_weight.selection_.scores[..., copies], by_copies.selection_.scores
    )
    # without rows of weight 0, and with class weights, which are none of the score
    weight[:30] = 0
    machine, cv = SVC(class_weight={0: 3.0}), PredefinedSplit(fold)
    ours = GridCV(machine, FEW, cv=cv).fit(x, y, sample_weight=weight)
    same = GridCV(machine, FEW, cv=cv, scoring="accuracy").fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(same.scores_, ours.scores_, rtol=1e-6)
    assert np.isnan(ours.selection_.scores[..., :30]).all()
    assert (ours.selection_.fold[:30] == -1).all()
    for f in range(3):
        train, test = (fold != f) & (weight > 0), (fold == f) & (weight > 0)
        for i, C in enumerate(FEW["C"]):
            model = sklearn.svm.SVC(C=C, gamma=0.03, class_weight={0: 3.0}).fit(
                x[train], y[train], weight[train]
            )
            wanted = model.score(x[test], y[test], weight[test])
            assert ours.scores_[i, 0, f] == pytest.approx(
                wanted, abs=2.001 * 2 / weight[test].sum()
            )


@pytest.mark.long
def test_rows_of_all_kinds():
    x, y = cancer(120)
    dense = GridCV(SVC(), FEW, cv=3).fit(x, y)
    sparse = GridCV(SVC(), FEW, cv=3).fit(scipy.sparse.csr_matrix(x), y)
    np.testing.assert_allclose(sparse.selection_.scores, dense.selection_.scores, atol=1e-2)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=[f"c{i}" for i in range(8)])
    named = clone(dense).fit(frame, y)
    np.testing.assert_array_equal(named.decision_function(frame), dense.decision_function(x))
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    gram = np.exp(-0.03 * ((x[:, None] - x[None]) ** 2).sum(-1))
    matrix = GridCV(SVC(kernel="precomputed"), {"C": [0.1, 10.0]}, cv=3).fit(gram, y)
    np.testing.assert_allclose(matrix.scores_, dense.scores_[:, 0], atol=1e-12)
    again = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(again.predict(x), dense.predict(x))


def test_gamma_counts_the_columns_of_sparse_rows():
    x, y = cancer(120)
    x = scipy.sparse.csr_matrix(x[:, :5] + 3)  # of which the solvers get eight columns
    model = GridCV(SVC(), {"C": [1.0, 2.0]}, cv=3, refit=False).fit(x, y).selection_.model
    assert model.inner.kernel == SVC().fit(x, y).model_.inner.kernel


def test_one_standard_error_and_no_refit():
    x, y = cancer()
    Cs = [0.1, 1.0, 10.0]
    best = GridCV(SVC(), {"C": Cs, "gamma": [0.03]}, cv=3).fit(x, y)
    other = clone(best).set_params(rule="one_se", refit=False).fit(x, y)
    np.testing.assert_array_equal(best.scores_, other.scores_)
    mean, se = best.scores_.mean(-1)[:, 0], best.scores_.std(-1, ddof=1)[:, 0] / np.sqrt(3)
    enough = mean >= mean.max() - se[np.argmax(mean)]
    assert other.best_params_["C"] == Cs[np.argmax(enough)]
    assert best.best_params_["C"] == Cs[np.argmax(mean)]
    assert other.best_score_ == pytest.approx(mean[np.argmax(enough)])
    assert hasattr(best, "predict") and not hasattr(other, "predict")
    assert not hasattr(best.set_params(refit=False).fit(x, y), "predict")


def test_bad_input():
    x, y = cancer(60)
    for cv in (RepeatedKFold(n_splits=3), ShuffleSplit(3, random_state=0), TimeSeriesSplit(3)):
        with pytest.raises(ValueError, match="cv must split the rows into disjoint test sets"):
            GridCV(SVC(), FEW, cv=cv).fit(x, y)
    for machine, grid, options, message in (
        (SVC(), {"C": 1}, {}, "C of the grid must be a whole number of at least 2, got 1"),
        (SVC(), {"gamma": 0}, {}, "gamma of the grid must be a whole number of at least 2, got 0"),
        (SVC(), {"C": [-1.0, 1.0]}, {}, "C must be a finite number above 0, got -1"),
        (SVR(), {"C": [0.0], "gamma": [1.0]}, {}, "C must be a finite number above 0"),
        (SVR(), {"epsilon": 0.1}, {}, "the axis epsilon must be a vector of at least one"),
        (LinearSVC(), {"C": []}, {}, "the axis C must be a vector of at least one finite number"),
        (
            SVC(),
            {},
            {},
            "grid must be a dict from names to numbers: .*take scikit-learn's GridSearch",
        ),
        (SVC(kernel="linear"), {"C": [1.0], "gamma": [1.0]}, {}, "grid must be .* gamma where the"),
        (NuSVC(), {"gamma": [1.0]}, {}, "grid must be .* of NuSVC"),
        (sklearn.svm.SVC(), {"C": [1.0]}, {}, "grid must be .* of SVC"),
        (SVC(), [FEW], {}, "grid must be a dict"),
        (SVC(), FEW, {"rule": "first"}, "rule must be one of 'best', 'one_se', got 'first'"),
        (SVC(), FEW, {"scoring": ["accuracy", "f1"]}, "scoring must be the name of one score"),
        (SVC(), FEW, {"cv": PredefinedSplit(1 - y)}, "without fold 0 there is no row of class"),
        (SVC(), FEW, {"cv": GroupKFold(3)}, "groups"),
    ):
        with pytest.raises(ValueError, match=message):
            GridCV(machine, grid, **options).fit(x, y)


@pytest.mark.long
def test_class_weights_of_a_linear_machine_are_those_of_liblinear():
    x, y = load_iris(return_X_y=True)
    options = {"class_weight": {0: 1.0, 1: 50.0, 2: 0.2}, "loss": "squared_hinge"}
    cv = KFold(4, shuffle=True, random_state=0)
    ours = GridCV(LinearSVC(**options), {"C": [1e-3, 0.1, 1.0]}, cv=cv).fit(x, y)
    theirs = GridSearchCV(
        sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**6, dual=False, **options),
        {"C": [1e-3, 0.1, 1.0]},
        cv=cv,
    ).fit(x, y)
    np.testing.assert_allclose(
        ours.scores_.mean(axis=1), theirs.cv_results_["mean_test_score"], atol=1e-2
    )
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.best_estimator_.coef_, theirs.best_estimator_.coef_, atol=1e-2)


def test_predictions_out_of_fold_are_the_largest_values_or_the_most_votes():
    x, y = standard(load_iris)

    def right(machine, values, number):
        targets = machine.fit(x, y)._targets(np.arange(3), np.ones(3))
        score = cross_validation.score_of(machine, targets, None)
        return score(np.array(values), np.array(number), np.ones(len(number)), None) == 0

    values = [[0.1, 2.9, -1.0], [1.2, 0.9, 1.1], [-3.0, -2.0, -1.0]]
    assert right(SVC(multiclass="ovr"), values, [1, 0, 2]) and right(SVC(), values, [1, 0, 2])
    # of two votes each, the first, whatever is added for ties
    values = [[1.9, 0.1, 2.2], [0.1, 2.1, 1.9]]
    assert right(SVC(), values, [0, 1]) and right(SVC(break_ties=True), values, [2, 1])


def test_the_numbers_of_linear_machines():
    """epsilon and l1_ratio, beside the machines that they are the parameters of."""
    x, y = standard(load_diabetes, 100)
    for machine, grid, targets in (
        (LinearSVR(), {"epsilon": [0.1, 0.5], "C": [0.1]}, (y - y.mean()) / y.std()),
        (LinearSVC(penalty="elasticnet", tol=1e-6), {"l1_ratio": [0.2, 0.9]}, y > y.mean()),
    ):
        ours, theirs = (
            kind(machine, grid, cv=3).fit(x, targets) for kind in (GridCV, GridSearchCV)
        )
        np.testing.assert_allclose(ours.scores_.reshape(2, 3), grid_of(theirs, 2), atol=1e-2)
        assert ours.best_params_ == theirs.best_params_


def test_n_jobs_of_minus_1_is_all_processors(monkeypatch):
    class Asked(Exception):
        pass

    def ask(*args, threads, **options):
        raise Asked(threads)

    monkeypatch.setattr(cross_validation, "select", ask)
    for n_jobs, threads in [(None, None), (-1, None), (1, 1), (3, 3)]:
        with pytest.raises(Asked) as asked:
            GridCV(SVC(), {"C": 3}, n_jobs=n_jobs).fit(np.arange(20.0)[:, None], np.arange(20) % 2)
        assert asked.value.args == (threads,)


def test_the_method_of_linear_cells_is_that_of_the_largest_cost():
    """Sparse rows are dense rows, and those of weight 0 are none of a fold."""
    random = np.random.default_rng(0)
    x = (random.random((600, 60)) < 0.2) * random.normal(size=(600, 60))
    y, grid = x @ random.normal(size=60) + random.normal(size=600), {"C": [0.1, 1000.0]}
    dense, sparse = (
        GridCV(LinearSVR(), grid, cv=3).fit(rows, y).scores_
        for rows in (x, scipy.sparse.csr_array(x))
    )
    np.testing.assert_allclose(sparse, dense, atol=1e-3)
    weight = np.repeat([0.0, 1.0], [200, 400])
    weighted = GridCV(LinearSVR(), grid, cv=3).fit(x, y, sample_weight=weight).scores_
    absent = GridCV(LinearSVR(), grid, cv=3).fit(x[200:], y[200:]).scores_
    np.testing.assert_allclose(weighted, absent, atol=1e-6)
    with pytest.raises(ValueError, match="l1_ratio too of its penalty 'elasticnet'"):
        GridCV(LinearSVC(), {"l1_ratio": [0.1, 0.9]}).fit(x, y > 0)
