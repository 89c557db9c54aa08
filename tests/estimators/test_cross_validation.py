"""`GridCV` beside scikit-learn's GridSearchCV of its machines on the same folds."""

import functools
import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from beside import USUAL, agree, close, equal, same
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.metrics import balanced_accuracy_score, f1_score, get_scorer, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedKFold,
    check_cv,
)
from sklearn.multiclass import OneVsRestClassifier

from jaxsvm.estimators import SVC, SVR, GridCV, LinearSVC, LinearSVR, cross_validation

pytestmark, KINDS = USUAL, (GridCV, GridSearchCV)


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
    close(ours.scores_, scores, atol=atol)
    means = scores.mean(-1)
    place = np.unravel_index(np.argmax(ours.scores_.mean(-1)), means.shape)
    assert ours.best_score_ == pytest.approx(search.best_score_, abs=atol)
    assert means[place] >= means.max() - atol / len(means)
    assert ours.best_params_ == ours.selection_.chosen


@functools.cache
def on_cancer():
    x, y = standard(load_breast_cancer)
    names = np.array(["bad", "good"])[y]
    ours = GridCV(SVC(), {"C": 4, "gamma": 4}).fit(x, names)
    return ours, GridSearchCV(sklearn.svm.SVC(), ours.selection_.table.axes).fit(x, names), x, y


@pytest.mark.long
def test_two_classes():
    ours, theirs, x, y = on_cancer()
    same_choice(ours, theirs, grid_of(theirs, 4, 4), 2.001 / 113)
    assert ours.best_params_ == theirs.best_params_
    close(ours.selection_.table.axes["C"], np.logspace(-1, 3, 4))
    assert ours.n_features_in_ == 30 and ours.classes_.tolist() == ["bad", "good"]
    # the machine is that of the numbers chosen
    agree(ours, theirs, x, 2e-2)
    equal(ours.predict(x), theirs.predict(x))
    assert abs(len(ours.best_estimator_.support_) - len(theirs.best_estimator_.support_)) <= 3
    plain = SVC(**ours.best_params_).fit(x, np.array(["bad", "good"])[y])
    agree(ours, plain, x, 0)
    same(ours.best_estimator_, plain, "dual_coef_")


@pytest.mark.long
def test_the_selection_is_in_the_rows_of_the_user():
    ours, _, x, y = on_cancer()
    splits = list(StratifiedKFold(5).split(x, y))
    for number, (_, test) in enumerate(splits):
        assert (ours.selection_.fold[test] == number).all()
    i, j = ours.selection_.table.place
    train, test = splits[2]
    model = sklearn.svm.SVC(**ours.best_params_, tol=1e-6).fit(x[train], y[train])
    close(ours.selection_.scores[i, j, test], model.decision_function(x[test]), atol=2e-2)
    proof = ours.certificate_
    assert 0 <= proof.gap < 1e-2 * proof.primal and ours.selection_.certificate is proof
    square = np.maximum(0, 1 - (2 * y - 1) * ours.decision_function(x)).sum()
    C, gamma = ours.best_params_.values()
    dual, points = ours.best_estimator_.dual_coef_[0], ours.best_estimator_.support_vectors_
    gram = np.exp(-gamma * ((points[:, None] - points[None]) ** 2).sum(-1))
    assert dual @ gram @ dual / 2 + C * square == pytest.approx(proof.primal, rel=1e-2)
    values = ours.selection_.model(x.astype(np.float32))
    close(values, ours.decision_function(x), atol=2e-2)


@pytest.mark.long
@pytest.mark.parametrize(("load", "n", "size"), [(load_iris, None, 3), (load_digits, 400, 2)])
@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_more_classes(load, n, size, multiclass):
    x, y = standard(load, n)
    axes = {"C": [1.0, 10.0, 100.0][:size], "gamma": [0.003, 0.03, 0.3][:size]}
    ours = GridCV(SVC(multiclass=multiclass), axes, cv=3).fit(x, y)
    model = sklearn.svm.SVC()
    if multiclass == "ovr":
        model, axes = OneVsRestClassifier(model), {f"estimator__{k}": v for k, v in axes.items()}
    theirs = GridSearchCV(model, axes, cv=3).fit(x, y)
    same_choice(ours, theirs, grid_of(theirs, size, size), 2.001 / (len(y) // 3))
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
    same(ours.best_estimator_, plain, "coef_ intercept_", atol=1e-5)


@pytest.mark.long
def test_the_C_of_linear_machines_is_that_of_a_row_in_folds_of_any_size():
    """Folds of 30, 60 and 60 rows: sums of losses, not means."""
    x, y = standard(load_iris)
    fold = np.minimum(np.random.default_rng(0).permutation(150) // 30, 2)
    fold = np.where(fold == 2, 1 + np.arange(150) % 2, fold)
    ours = GridCV(LinearSVC(), {"C": [0.01, 1.0]}, cv=PredefinedSplit(fold)).fit(x, y)
    for i, f in itertools.product(range(2), range(3)):
        model = sklearn.svm.LinearSVC(C=[0.01, 1.0][i], tol=1e-8, max_iter=10**6)
        model.fit(x[fold != f], y[fold != f])
        values = ours.selection_.scores[i, fold == f]
        close(values, model.decision_function(x[fold == f]), atol=1e-3)


@pytest.mark.long
def test_real_targets():
    x, y = standard(load_diabetes, 200)
    y = (y - y.mean()) / y.std()
    axes = {"epsilon": [0.1, 0.3], "gamma": [0.01, 0.1], "C": [0.1, 1.0]}
    ours, theirs = GridCV(SVR(), axes).fit(x, y), GridSearchCV(sklearn.svm.SVR(), axes).fit(x, y)
    same_choice(ours, theirs, grid_of(theirs, 2, 2, 2).swapaxes(1, 2), 1e-2)
    assert ours.scores_.shape == (2, 2, 2, 5)
    equal(ours.predict(x), SVR(**ours.best_params_).fit(x, y).predict(x))
    how = {"C": [0.1, 1.0]}, {"scoring": "neg_mean_absolute_error"}
    error = GridSearchCV(sklearn.svm.SVR(epsilon=0.2), how[0], **how[1]).fit(x, y)
    ours = GridCV(SVR(epsilon=0.2), how[0], **how[1]).fit(x, y)
    close(ours.scores_, grid_of(error, 2), atol=3e-3)
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
    close(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), abs=2e-2)


@pytest.mark.long
def test_a_function_as_score():
    (x, y), seen = cancer(), []

    def score(estimator, X, y):
        seen.append(len(X))
        assert set(estimator.predict(X[:5])) <= {"bad", "good"}
        return f1_score(y, estimator.predict(X), pos_label="good")

    ours = GridCV(SVC(), FEW, cv=3, scoring=score).fit(x, np.array(["bad", "good"])[y])
    assert seen == [50] * 6
    theirs = GridSearchCV(sklearn.svm.SVC(), FEW, cv=3, scoring="f1").fit(x, y)
    close(ours.scores_[:, 0], grid_of(theirs, 2), atol=2e-2)


@pytest.mark.long
@pytest.mark.parametrize(
    "cv", [KFold(3, shuffle=True, random_state=1), GroupKFold(3), "pairs"], ids=str
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


@pytest.mark.long
def test_weights_and_equal_rows():
    """Copies of a row in one fold are a weight; weights are those of the score, too."""
    x, y = cancer(90)
    fold, weight = np.arange(90) % 3, 1.0 + (np.arange(90) % 4 == 0)
    copies, cv = np.repeat(np.arange(90), weight.astype(int)), PredefinedSplit(fold)
    by_weight = GridCV(SVC(), FEW, cv=cv).fit(x, y, sample_weight=weight)
    by_copies = GridCV(SVC(), FEW, cv=PredefinedSplit(fold[copies])).fit(x[copies], y[copies])
    same(by_weight, by_copies, "scores_")
    agree(by_weight, by_copies, x, 0)
    equal(by_weight.selection_.scores[..., copies], by_copies.selection_.scores)
    # without rows of weight 0, and with class weights, which are none of the score
    weight[:30], heavy = 0, {"class_weight": {0: 3.0}}
    ours = GridCV(SVC(**heavy), FEW, cv=cv).fit(x, y, sample_weight=weight)
    named = GridCV(SVC(**heavy), FEW, cv=cv, scoring="accuracy").fit(x, y, sample_weight=weight)
    close(named.scores_, ours.scores_, rtol=1e-6)
    assert np.isnan(ours.selection_.scores[..., :30]).all()
    assert (ours.selection_.fold[:30] == -1).all()
    for (i, C), f in itertools.product(enumerate(FEW["C"]), range(3)):
        train, test = (fold != f) & (weight > 0), (fold == f) & (weight > 0)
        model = sklearn.svm.SVC(C=C, gamma=0.03, **heavy).fit(x[train], y[train], weight[train])
        wanted = model.score(x[test], y[test], weight[test])
        assert abs(ours.scores_[i, 0, f] - wanted) <= 2.001 * 2 / weight[test].sum()


@pytest.mark.long
def test_rows_of_all_kinds():
    x, y = cancer(120)
    dense = GridCV(SVC(), FEW, cv=3).fit(x, y)
    sparse = GridCV(SVC(), FEW, cv=3).fit(scipy.sparse.csr_matrix(x), y)
    close(sparse.selection_.scores, dense.selection_.scores, atol=1e-2)
    frame = pytest.importorskip("pandas").DataFrame(x, columns=[f"c{i}" for i in range(8)])
    named = clone(dense).fit(frame, y)
    equal(named.decision_function(frame), dense.decision_function(x))
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    gram = np.exp(-0.03 * ((x[:, None] - x[None]) ** 2).sum(-1))
    matrix = GridCV(SVC(kernel="precomputed"), {"C": [0.1, 10.0]}, cv=3).fit(gram, y)
    close(matrix.scores_, dense.scores_[:, 0], atol=1e-12)
    equal(pickle.loads(pickle.dumps(dense)).predict(x), dense.predict(x))


@pytest.mark.long
def test_gamma_counts_the_columns_of_sparse_rows():
    x, y = cancer(120)
    x = scipy.sparse.csr_matrix(x[:, :5] + 3)  # of which the solvers get eight columns
    model = GridCV(SVC(), {"C": [1.0, 2.0]}, cv=3, refit=False).fit(x, y).selection_.model
    assert model.inner.kernel == SVC().fit(x, y).model_.inner.kernel


@pytest.mark.long
def test_one_standard_error_and_no_refit():
    (x, y), Cs = cancer(), [0.1, 1.0, 10.0]
    best = GridCV(SVC(), {"C": Cs, "gamma": [0.03]}, cv=3).fit(x, y)
    other = clone(best).set_params(rule="one_se", refit=False).fit(x, y)
    equal(best.scores_, other.scores_)
    mean, se = best.scores_.mean(-1)[:, 0], best.scores_.std(-1, ddof=1)[:, 0] / np.sqrt(3)
    enough = mean >= mean.max() - se[np.argmax(mean)]
    assert other.best_params_["C"] == Cs[np.argmax(enough)]
    assert best.best_params_["C"] == Cs[np.argmax(mean)]
    assert other.best_score_ == pytest.approx(mean[np.argmax(enough)])
    assert hasattr(best, "predict") and not hasattr(other, "predict")
    assert not hasattr(best.set_params(refit=False).fit(x, y), "predict")


@pytest.mark.long
def test_class_weights_of_a_linear_machine_are_those_of_liblinear():
    x, y = load_iris(return_X_y=True)
    options = {"class_weight": {0: 1.0, 1: 50.0, 2: 0.2}, "loss": "squared_hinge"}
    cv, grid = KFold(4, shuffle=True, random_state=0), {"C": [1e-3, 0.1, 1.0]}
    ours = GridCV(LinearSVC(**options), grid, cv=cv).fit(x, y)
    machine = sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**6, dual=False, **options)
    theirs = GridSearchCV(machine, grid, cv=cv).fit(x, y)
    close(ours.scores_.mean(axis=1), grid_of(theirs, 3).mean(axis=1), atol=1e-2)
    assert ours.best_params_ == theirs.best_params_
    same(ours.best_estimator_, theirs.best_estimator_, "coef_", atol=1e-2)


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


def test_scores_of_real_targets_read_them_as_they_were_given():
    """Machines are trained on targets less their median, 52 here; scores add it again."""
    y, far = np.array([50.0, 52.0, 60.0]), np.array([51.0, 52.0, 54.0])
    machine, scorer = SVR(), get_scorer("neg_mean_absolute_percentage_error")
    machine._fit_targets(y, np.ones(3))
    targets = machine._targets(y, np.ones(3))
    score = cross_validation.score_of(machine, targets, scorer)
    found = score(far - 52, targets.value, np.ones(3), None)
    assert found == pytest.approx(np.mean(np.abs(far - y) / y))


NUMBERS = [  # epsilon and l1_ratio, beside the machines that they are the parameters of
    (LinearSVR(), {"epsilon": [0.1, 0.5], "C": [0.1]}),
    (LinearSVC(penalty="elasticnet", tol=1e-6), {"l1_ratio": [0.2, 0.9]}),
]


@pytest.mark.long
@pytest.mark.parametrize(("machine", "grid"), NUMBERS)
def test_the_numbers_of_linear_machines(machine, grid):
    x, y = standard(load_diabetes, 60)
    y = (y - y.mean()) / y.std() if isinstance(machine, LinearSVR) else y > y.mean()
    ours, theirs = (kind(machine, grid, cv=2, refit=False).fit(x, y) for kind in KINDS)
    close(ours.scores_.reshape(2, 2), grid_of(theirs, 2), atol=1e-2)
    assert ours.best_params_ == theirs.best_params_


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, None), (-1, None), (1, 1), (3, 3)])
def test_n_jobs_of_minus_1_is_all_processors(n_jobs, threads, monkeypatch):
    def ask(*args, threads, **options):
        raise InterruptedError(threads)

    monkeypatch.setattr(cross_validation, "select", ask)
    with pytest.raises(InterruptedError) as asked:
        GridCV(SVC(), {"C": 3}, n_jobs=n_jobs).fit(np.arange(20.0)[:, None], np.arange(20) % 2)
    assert asked.value.args == (threads,)


@pytest.mark.long
def test_the_method_of_linear_cells_is_that_of_the_largest_cost():
    """Sparse rows are dense rows, and those of weight 0 are none of a fold."""
    random = np.random.default_rng(0)
    x = (random.random((600, 60)) < 0.2) * random.normal(size=(600, 60))
    y, grid = x @ random.normal(size=60) + random.normal(size=600), {"C": [0.1, 1000.0]}
    scores = lambda *data, **more: GridCV(LinearSVR(), grid, cv=3).fit(*data, **more).scores_
    close(scores(scipy.sparse.csr_array(x), y), scores(x, y), atol=1e-3)
    weight = np.repeat([0.0, 1.0], [200, 400])
    close(scores(x, y, sample_weight=weight), scores(x[200:], y[200:]), atol=1e-6)
