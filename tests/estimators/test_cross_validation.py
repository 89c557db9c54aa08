"""`SVCCV`, `SVRCV` and `LinearSVCCV` beside scikit-learn's GridSearchCV of its machines on the same
folds."""

import functools
import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
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
)
from sklearn.utils.estimator_checks import parametrize_with_checks

import jaxsvm
from jaxsvm.estimators import SVC, SVCCV, SVR, SVRCV, LinearSVC, LinearSVCCV, cross_validation

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns", "ignore:.*tolerance.*not met"),
]


@pytest.mark.long(but=3)
@parametrize_with_checks(
    [
        SVCCV(Cs=[1.0, 10.0], gammas=[0.1, 1.0], cv=3),
        SVRCV(Cs=[1.0, 10.0], gammas=[0.1, 1.0], cv=3),
        LinearSVCCV(Cs=[0.1, 1.0], cv=3),
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


def same_choice(ours, search, scores, atol, names):
    """Scores of every cell and fold, and the choice where no other cell is as good."""
    np.testing.assert_allclose(ours.scores_, scores, atol=atol)
    place = np.unravel_index(np.argmax(scores.mean(-1)), scores.shape[:-1])
    ours_place = np.unravel_index(np.argmax(ours.scores_.mean(-1)), scores.shape[:-1])
    assert ours.best_score_ == pytest.approx(search.best_score_, abs=atol)
    assert scores[ours_place].mean() >= scores[place].mean() - atol / len(scores[place])
    assert {name: getattr(ours, f"{name}_") for name in names} == ours.selection_.chosen


@functools.cache
def on_cancer():
    x, y = standard(load_breast_cancer)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        ours = SVCCV(Cs=4, gammas=4).fit(x, np.array(["bad", "good"])[y])
    axes = {"C": ours.Cs_, "gamma": ours.gammas_}
    return ours, GridSearchCV(sklearn.svm.SVC(), axes).fit(x, np.array(["bad", "good"])[y]), x, y


@pytest.mark.long
def test_two_classes():
    ours, theirs, x, y = on_cancer()
    scores = grid_of(theirs, 4, 4)
    assert np.abs(ours.scores_ - scores).max() * 113 <= 2.001
    same_choice(ours, theirs, scores, 2.001 / 113, ("C", "gamma"))
    assert {"C": ours.C_, "gamma": ours.gamma_} == theirs.best_params_
    np.testing.assert_allclose(ours.Cs_, np.logspace(-1, 3, 4))
    assert ours.gammas_.shape == (4,)
    assert ours.n_features_in_ == 30
    assert ours.classes_.tolist() == ["bad", "good"]
    # the machine is that of the numbers chosen
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=2e-2)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    assert abs(len(ours.support_) - len(theirs.best_estimator_.support_)) <= 3
    plain = SVC(C=ours.C_, gamma=ours.gamma_).fit(x, np.array(["bad", "good"])[y])
    np.testing.assert_array_equal(ours.decision_function(x), plain.decision_function(x))
    np.testing.assert_array_equal(ours.dual_coef_, plain.dual_coef_)


@pytest.mark.long
def test_the_selection_is_in_the_rows_of_the_user():
    ours, _, x, y = on_cancer()
    splits = list(StratifiedKFold(5).split(x, y))
    for number, (_, test) in enumerate(splits):
        assert (ours.selection_.fold[test] == number).all()
    i, j = ours.selection_.table.place
    train, test = splits[2]
    model = sklearn.svm.SVC(C=ours.C_, gamma=ours.gamma_, tol=1e-6).fit(x[train], y[train])
    np.testing.assert_allclose(
        ours.selection_.scores[i, j, test], model.decision_function(x[test]), atol=2e-2
    )
    proof = ours.certificate_
    assert 0 <= proof.gap < 1e-2 * proof.primal and ours.selection_.certificate is proof
    square = np.maximum(0, 1 - (2 * y - 1) * ours.decision_function(x)).sum()
    dual = ours.dual_coef_[0]
    gram = np.exp(
        -ours.gamma_ * ((ours.support_vectors_[:, None] - ours.support_vectors_[None]) ** 2).sum(-1)
    )
    assert dual @ gram @ dual / 2 + ours.C_ * square == pytest.approx(proof.primal, rel=1e-2)
    np.testing.assert_allclose(
        ours.selection_.model(x.astype(np.float32)), ours.decision_function(x), atol=2e-2
    )


@pytest.mark.long
@pytest.mark.parametrize(("load", "n", "size"), [(load_iris, None, 3), (load_digits, 400, 2)])
@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_more_classes(load, n, size, multiclass):
    x, y = standard(load, n)
    ours = SVCCV(
        Cs=[1.0, 10.0, 100.0][:size], gammas=[0.003, 0.03, 0.3][:size], multiclass=multiclass, cv=3
    ).fit(x, y)
    model = sklearn.svm.SVC()
    if multiclass == "ovr":
        from sklearn.multiclass import OneVsRestClassifier

        model = OneVsRestClassifier(model)
    axes = {"C": ours.Cs_, "gamma": ours.gammas_}
    prefix = "estimator__" if multiclass == "ovr" else ""
    theirs = GridSearchCV(model, {prefix + name: axis for name, axis in axes.items()}, cv=3).fit(
        x, y
    )
    scores = grid_of(theirs, size, size)
    same_choice(ours, theirs, scores, 2.001 / (len(y) // 3), ("C", "gamma"))
    assert np.mean(ours.predict(x) == theirs.predict(x)) > 0.99
    assert 0 <= ours.certificate_.gap < 1e-2 * ours.certificate_.primal
    assert ours.selection_.scores.shape == (size, size, len(y), len(ours.classes_))


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_linear_machines(loss):
    x, y = standard(load_breast_cancer)
    ours = LinearSVCCV(Cs=5, loss=loss).fit(x, y)
    machine = sklearn.svm.LinearSVC(loss=loss, max_iter=10**6, random_state=0)
    theirs = GridSearchCV(machine, {"C": ours.Cs_}).fit(x, y)
    same_choice(ours, theirs, grid_of(theirs, 5), 2.001 / 113, ("C",))
    plain = LinearSVC(C=ours.C_, loss=loss).fit(x, y)
    assert (
        ours.solver_ == plain.solver_ == ("newton" if loss == "squared_hinge" else "interior_point")
    )
    np.testing.assert_allclose(ours.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, plain.intercept_, atol=1e-5)


@pytest.mark.long
def test_the_C_of_linear_machines_is_that_of_a_row_in_folds_of_any_size():
    """Folds of 30, 60 and 60 rows: sums of losses, not means."""
    x, y = standard(load_iris)
    fold = np.minimum(np.random.default_rng(0).permutation(150) // 30, 2)
    fold = np.where(fold == 2, 1 + np.arange(150) % 2, fold)
    ours = LinearSVCCV(Cs=[0.01, 1.0], cv=PredefinedSplit(fold)).fit(x, y)
    for i, C in enumerate(ours.Cs_):
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
    ours = SVRCV(Cs=[0.1, 1.0], gammas=[0.01, 0.1], epsilons=[0.1, 0.3]).fit(x, y)
    axes = {"C": ours.Cs_, "epsilon": ours.epsilons_, "gamma": ours.gammas_}
    theirs = GridSearchCV(sklearn.svm.SVR(), axes).fit(x, y)
    scores = grid_of(theirs, 2, 2, 2).swapaxes(1, 2)
    same_choice(ours, theirs, scores, 1e-2, ("C", "gamma", "epsilon"))
    assert ours.scores_.shape == (2, 2, 2, 5)
    plain = SVR(C=ours.C_, gamma=ours.gamma_, epsilon=ours.epsilon_).fit(x, y)
    np.testing.assert_array_equal(ours.predict(x), plain.predict(x))
    error = GridSearchCV(
        sklearn.svm.SVR(epsilon=0.2), {"C": [0.1, 1.0]}, scoring="neg_mean_absolute_error"
    ).fit(x, y)
    ours = SVRCV(Cs=[0.1, 1.0], gammas=None, epsilons=0.2, scoring="neg_mean_absolute_error").fit(
        x, y
    )
    np.testing.assert_allclose(ours.scores_, grid_of(error, 2), atol=3e-3)
    assert ours.epsilon_ == 0.2 and ours.epsilons_ is None and ours.gammas_ is None
    assert ours.gamma_ == pytest.approx(1 / (x.shape[1] * x.var()), rel=1e-4)
    assert ours.score(x, y) == pytest.approx(-np.abs(ours.predict(x) - y).mean())


FEW = {"Cs": [0.1, 10.0], "gammas": [0.03], "cv": 3}


def cancer(n=150):
    x, y = standard(load_breast_cancer)
    return x[:n, :8], y[:n]


@pytest.mark.long
@pytest.mark.parametrize(
    "scoring", ["roc_auc", "f1_macro", make_scorer(balanced_accuracy_score), None]
)
def test_scores_of_scikit_learn(scoring):
    x, y = cancer()
    ours = SVCCV(**FEW, scoring=scoring).fit(x, y)
    theirs = GridSearchCV(sklearn.svm.SVC(gamma=0.03), {"C": FEW["Cs"]}, cv=3, scoring=scoring).fit(
        x, y
    )
    np.testing.assert_allclose(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), abs=2e-2)


def test_a_function_as_score():
    x, y = cancer()
    seen = []

    def score(estimator, X, y):
        seen.append(len(X))
        assert set(estimator.predict(X[:5])) <= {"bad", "good"}
        return f1_score(y, estimator.predict(X), pos_label="good")

    ours = SVCCV(**FEW, scoring=score).fit(x, np.array(["bad", "good"])[y])
    assert seen == [50] * 6
    theirs = GridSearchCV(sklearn.svm.SVC(gamma=0.03), {"C": FEW["Cs"]}, cv=3, scoring="f1").fit(
        x, y
    )
    np.testing.assert_allclose(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)


@pytest.mark.parametrize(
    "cv", [KFold(3, shuffle=True, random_state=1), GroupKFold(3), "pairs", 4], ids=str
)
def test_splitters(cv):
    x, y = cancer()
    groups = np.arange(150) // 10
    if cv == "pairs":
        cv = [(test, train) for train, test in KFold(2).split(x)]
    ours = SVCCV(**FEW | {"cv": cv}).fit(x, y, groups=groups)
    theirs = GridSearchCV(sklearn.svm.SVC(gamma=0.03), {"C": FEW["Cs"]}, cv=cv).fit(
        x, y, groups=groups
    )
    assert np.abs(ours.scores_[:, 0] - grid_of(theirs, 2)).max() <= 2.001 / 37


def test_weights_and_equal_rows():
    """Copies of a row in one fold are a weight; weights are those of the score, too."""
    x, y = cancer(90)
    fold, weight = np.arange(90) % 3, 1.0 + (np.arange(90) % 4 == 0)
    copies = np.repeat(np.arange(90), weight.astype(int))
    by_weight = SVCCV(**FEW | {"cv": PredefinedSplit(fold)}).fit(x, y, weight)
    by_copies = SVCCV(**FEW | {"cv": PredefinedSplit(fold[copies])}).fit(x[copies], y[copies])
    np.testing.assert_array_equal(by_weight.scores_, by_copies.scores_)
    np.testing.assert_array_equal(by_weight.decision_function(x), by_copies.decision_function(x))
    np.testing.assert_array_equal(
        by_weight.selection_.scores[..., copies], by_copies.selection_.scores
    )
    # without rows of weight 0, and with class weights, which are none of the score
    weight[:30] = 0
    ours = SVCCV(**FEW | {"cv": PredefinedSplit(fold)}, class_weight={0: 3.0}).fit(x, y, weight)
    assert np.isnan(ours.selection_.scores[..., :30]).all()
    assert (ours.selection_.fold[:30] == -1).all()
    for f in range(3):
        train, test = (fold != f) & (weight > 0), (fold == f) & (weight > 0)
        for i, C in enumerate(FEW["Cs"]):
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
    dense = SVCCV(**FEW).fit(x, y)
    sparse = SVCCV(**FEW).fit(scipy.sparse.csr_matrix(x), y)
    np.testing.assert_allclose(sparse.selection_.scores, dense.selection_.scores, atol=1e-2)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=[f"c{i}" for i in range(8)])
    named = SVCCV(**FEW).fit(frame, y)
    np.testing.assert_array_equal(named.decision_function(frame), dense.decision_function(x))
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    gram = np.exp(-0.03 * ((x[:, None] - x[None]) ** 2).sum(-1))
    matrix = SVCCV(Cs=[0.1, 10.0], kernel="precomputed", cv=3).fit(gram, y)
    np.testing.assert_allclose(matrix.scores_, dense.scores_[:, 0], atol=1e-12)
    assert matrix.gamma_ is None and matrix.gammas_ is None
    again = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(again.predict(x), dense.predict(x))
    assert clone(dense).get_params() == SVCCV(**FEW).get_params()


def test_gamma_counts_the_columns_of_sparse_rows():
    x, y = cancer(120)
    x = scipy.sparse.csr_matrix(x[:, :5] + 3)  # of which the solvers get eight columns
    assert SVCCV(Cs=[1.0, 2.0], gammas=None, cv=3).fit(x, y).gamma_ == SVC().fit(x, y)._gamma


def test_one_standard_error_and_no_refit():
    x, y = cancer()
    options = {"Cs": [0.1, 1.0, 10.0], "gammas": [0.03], "cv": 3}
    best, other = SVCCV(**options).fit(x, y), SVCCV(**options, rule="one_se", refit=False).fit(x, y)
    np.testing.assert_array_equal(best.scores_, other.scores_)
    mean, se = best.scores_.mean(-1)[:, 0], best.scores_.std(-1, ddof=1)[:, 0] / np.sqrt(3)
    enough = mean >= mean.max() - se[np.argmax(mean)]
    assert other.C_ == options["Cs"][np.argmax(enough)]
    assert best.C_ == options["Cs"][np.argmax(mean)]
    assert other.best_score_ == pytest.approx(mean[np.argmax(enough)])
    with pytest.raises(NotFittedError):
        other.predict(x)
    assert hasattr(best, "support_")
    assert not hasattr(best.set_params(refit=False).fit(x, y), "support_")


def test_bad_input():
    x, y = cancer(60)
    for cv, what in (
        (RepeatedKFold(n_splits=3, n_repeats=2), "its test sets overlap"),
        (ShuffleSplit(3, random_state=0), "overlap"),
        (TimeSeriesSplit(3), "a training set is not all rows outside of the test set"),
    ):
        with pytest.raises(
            ValueError, match=f"cv must split the rows into disjoint test sets.*{what}"
        ):
            SVCCV(**FEW | {"cv": cv}).fit(x, y)
    for search, message in (
        (SVCCV(Cs=1), "Cs must be a whole number of at least 2, got 1"),
        (SVCCV(gammas=0), "gammas must be a whole number of at least 2, got 0"),
        (SVCCV(Cs=[-1.0, 1.0]), "C must be a finite number above 0, got -1"),
        (LinearSVCCV(Cs=[]), "the axis C must be a vector of at least one finite number"),
        (SVCCV(**FEW, rule="first"), "rule must be one of 'best', 'one_se', got 'first'"),
        (SVCCV(**FEW, scoring=["accuracy", "f1"]), "scoring must be the name of one score"),
        (SVCCV(**FEW | {"cv": PredefinedSplit(1 - y)}), "without fold 0 there is no row of class"),
        (SVCCV(**FEW | {"cv": GroupKFold(3)}), "groups"),
        (SVRCV(Cs=[0.0], gammas=[1.0]), "C must be a finite number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            search.fit(x, y)
    assert jaxsvm.C_grid(3).shape == (3,)


@pytest.mark.long
def test_class_weights_of_a_linear_machine_are_those_of_liblinear():
    x, y = load_iris(return_X_y=True)
    options = {"class_weight": {0: 1.0, 1: 50.0, 2: 0.2}, "loss": "squared_hinge"}
    cv = KFold(4, shuffle=True, random_state=0)
    ours = LinearSVCCV(Cs=[1e-3, 0.1, 1.0], cv=cv, **options).fit(x, y)
    theirs = GridSearchCV(
        sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**6, dual=False, **options),
        {"C": [1e-3, 0.1, 1.0]},
        cv=cv,
    ).fit(x, y)
    np.testing.assert_allclose(
        ours.scores_.mean(axis=1), theirs.cv_results_["mean_test_score"], atol=1e-2
    )
    assert ours.C_ == theirs.best_params_["C"]
    np.testing.assert_allclose(ours.coef_, theirs.best_estimator_.coef_, atol=1e-2)


def test_predictions_out_of_fold_are_the_largest_values_or_the_most_votes():
    values = np.array([[0.1, 2.9, -1.0], [1.2, 0.9, 1.1], [-3.0, -2.0, -1.0]])
    assert cross_validation.predicted(values, votes=False).tolist() == [1, 0, 2]
    assert cross_validation.predicted(values, votes=True).tolist() == [1, 0, 2]
    # of two votes each, the first, whatever is added for ties
    assert cross_validation.predicted(
        np.array([[1.9, 0.1, 2.2], [0.1, 2.1, 1.9]]), votes=True
    ).tolist() == [0, 1]
    assert cross_validation.predicted(np.array([0.5, -0.5, 0.0]), votes=False).tolist() == [1, 0, 0]


def test_n_jobs_of_minus_1_is_all_processors(monkeypatch):
    class Asked(Exception):
        pass

    def ask(*args, threads, **options):
        raise Asked(threads)

    monkeypatch.setattr(cross_validation, "select", ask)
    for n_jobs, threads in [(None, None), (-1, None), (1, 1), (3, 3)]:
        with pytest.raises(Asked) as asked:
            SVCCV(n_jobs=n_jobs).fit(np.arange(20.0)[:, None], np.arange(20) % 2)
        assert asked.value.args == (threads,)
