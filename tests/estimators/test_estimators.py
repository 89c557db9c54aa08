"""The classes for scikit-learn: its own checks, its own SVMs on the same problems, and what its
tools ask of them."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from plain import counting
from sklearn.base import RegressorMixin, clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import jaxsvm
from jaxsvm import budget, kernels, losses, models, objectives
from jaxsvm.estimators import (
    SVC,
    SVR,
    BudgetedSVC,
    FourierFeatures,
    LinearSVC,
    LinearSVR,
    NystromFeatures,
    Pegasos,
    SVMClassifier,
    SVMRegressor,
)
from jaxsvm.loops import fitting

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings(
        "ignore:the ranges of the columns", "ignore:.*tolerance.*not met", "ignore:n_components"
    ),
]


def rows(k=2, n=90, d=4):
    x, y = make_classification(
        n,
        d,
        n_informative=3,
        n_redundant=0,
        n_classes=k,
        n_clusters_per_class=1,
        flip_y=0.1,
        random_state=0,
    )
    return x, np.array(["ant", "bee", "cat"])[y]


def not_of_sigmoids(estimator):
    """Checks that calibration by folds cannot pass, nor `CalibratedClassifierCV` the first two."""
    if not (isinstance(estimator, LinearSVC | SVC) and estimator.probability):
        return {}
    copies = "a row of weight k is in one fold, k copies are in several"
    kinds = ("dense", "sparse")
    return {
        **{f"check_sample_weight_equivalence_on_{kind}_data": copies for kind in kinds},
        "check_classifiers_train": "the most probable class need not be that of predict",
    }


@pytest.mark.long(but=25)
@parametrize_with_checks(
    [
        *(
            SVMClassifier(),
            SVMRegressor(),
            LinearSVC(),
            SVC(),
            BudgetedSVC(budget=30),
            NystromFeatures(),
            FourierFeatures(),
        ),
        *(SVR(), LinearSVR(), Pegasos(), SVC(probability=True), LinearSVC(probability=True)),
    ],
    expected_failed_checks=not_of_sigmoids,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The same problems as scikit-learn's solvers.


def primal(model, x, y, C, loss):
    """The objective of `LinearSVC`, summed over the problems of one class against the rest."""
    names = model.classes_ if len(model.classes_) > 2 else model.classes_[1:]
    slack = np.maximum(
        0, 1 - np.where(y[:, None] == names, 1, -1) * (x @ model.coef_.T + model.intercept_)
    )
    return (np.sum(model.coef_**2) + np.sum(model.intercept_**2)) / 2 + C * np.sum(
        slack if loss == "hinge" else slack**2
    )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_linear_svc_is_that_of_liblinear(k, loss):
    x, y = rows(k)
    ours = LinearSVC(C=0.5, loss=loss, tol=1e-3, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVC(
        C=0.5, loss=loss, dual=True, tol=1e-6, max_iter=10**6, random_state=0
    ).fit(x, y)
    assert ours.fit_.converged
    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.intercept_.shape == theirs.intercept_.shape
    # Moves of 1e-3 in margin units leave some 1e-5 of the objective, and ten times their size in
    # weights where it is flat.
    np.testing.assert_allclose(
        primal(ours, x, y, 0.5, loss), primal(theirs, x, y, 0.5, loss), rtol=1e-4
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-2)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-2)
    assert np.mean(ours.predict(x) == theirs.predict(x)) > 0.98
    assert list(ours.classes_) == list(theirs.classes_)


@pytest.mark.long
def test_svc_is_that_of_libsvm():
    """With weights, a class weight, and every attribute."""
    x, y = rows()
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    ours = SVC(2.0, class_weight="balanced", tol=1e-5).fit(x, y, weight)
    # LIBSVM balances by rows and takes gamma from rows, not from their weights.
    each = {name: weight.sum() / (2 * weight[y == name].sum()) for name in ("ant", "bee")}
    share = weight  # weights of classes do not move the kernel
    spread = np.average((x - np.average(x, 0, share) @ np.full(4, 1 / 4)) ** 2, 0, share).mean()
    theirs = sklearn.svm.SVC(C=2.0, class_weight=each, gamma=1 / (4 * spread), tol=1e-7).fit(
        x, y, weight
    )
    assert ours.fit_.converged and ours.n_iter_ == 1
    # tol, and float32
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    mine, other = np.zeros(len(y)), np.zeros(len(y))
    mine[ours.support_], other[theirs.support_] = ours.dual_coef_[0], theirs.dual_coef_[0]
    np.testing.assert_allclose(mine, other, atol=1e-3)  # where the dual is flat
    assert len(ours.support_) == (mine != 0).sum()
    assert list(ours.predict(x)) == list(theirs.predict(x))


@pytest.mark.long
@pytest.mark.parametrize("multiclass", ["ovr", "ovo"])
def test_three_classes_are_those_of_libsvm(multiclass):
    x, y = rows(3)
    ours = SVC(2.0, gamma=0.3, tol=1e-5, multiclass=multiclass).fit(x, y)
    theirs = sklearn.svm.SVC(C=2.0, gamma=0.3, tol=1e-7, decision_function_shape="ovo")
    theirs = (OneVsRestClassifier(theirs) if multiclass == "ovr" else theirs).fit(x, y)
    assert ours.fit_.converged and ours.intercept_.shape == (3,)
    if multiclass == "ovr":
        assert ours.dual_coef_.shape == (3, len(ours.support_))
        each = rbf_kernel(x, ours.support_vectors_, gamma=0.3) @ ours.dual_coef_.T + ours.intercept_
        np.testing.assert_allclose(each, theirs.decision_function(x), atol=1e-4)  # tol, and float32
    else:
        theirs.set_params(decision_function_shape="ovr")
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-4)
    assert list(ours.predict(x)) == list(theirs.predict(x))


@pytest.mark.long
def test_exact_solvers():
    x, y = rows()
    kernel = kernels.rbf(gamma=1 / (x.shape[1] * x.var()))
    score = SVC(2.0, tol=1e-5, max_iter=2000).fit(x, y).decision_function(x)
    named = SVMClassifier(jaxsvm.decomposition(2.0, kernel), tol=1e-5).fit(x, y)
    np.testing.assert_allclose(named.decision_function(x), score, atol=2e-5)
    assert not hasattr(named, "partial_fit")
    for solver in (jaxsvm.smo(2.0, kernel), jaxsvm.lasvm(2.0, kernel)):
        other = SVMClassifier(solver, tol=1e-5, random_state=0).fit(x, y)
        assert other.fit_.converged and np.mean(other.predict(x) == named.predict(x)) > 0.98
        if type(solver) is jaxsvm.smo:  # LASVM ends at the optimum on the rows that it kept
            np.testing.assert_allclose(other.decision_function(x), score, atol=1e-4)
    given = SVMClassifier(jaxsvm.smo(2.0, kernels.precomputed()))
    assert given.__sklearn_tags__().input_tags.pairwise


@pytest.mark.long
def test_pairs_of_classes_by_any_solver():
    x, y = rows(3)
    made = SVMClassifier(
        jaxsvm.sdca(0.5, bias="feature"), multiclass="ovo", tol=1e-5, random_state=0
    ).fit(x, y)
    liblinear = sklearn.svm.LinearSVC(C=0.5, loss="hinge", tol=1e-8, max_iter=10**6, random_state=0)
    theirs = OneVsOneClassifier(liblinear).fit(x, y)
    each = np.array([each.coef_[0] for each in theirs.estimators_])
    # where the objective is flat; theirs are above 0 for the second
    np.testing.assert_allclose(made.coef_, -each, atol=1e-2)
    assert made.intercept_.shape == (3,) and np.mean(made.predict(x) == theirs.predict(x)) > 0.98
    pieces = SVMClassifier(jaxsvm.pegasos(1e-2), multiclass="ovo", random_state=0)
    for _ in range(2):
        pieces.partial_fit(x, y, classes=["ant", "bee", "cat"])
    assert pieces.coef_.shape == (3, 4) and pieces.score(x, y) > 0.6


@pytest.mark.long
def test_svc_with_a_regularised_intercept():
    """That is 1 more in the kernel: on a root of K + 1 LIBLINEAR solves the same problem."""
    x, y = rows(3)
    ours = SVC(2.0, bias="feature", multiclass="ovr", tol=1e-5, random_state=0).fit(x, y)
    gram = rbf_kernel(x, gamma=1 / (x.shape[1] * x.var())) + 1
    root = np.linalg.cholesky(gram + 1e-10 * np.eye(len(x)))
    theirs = sklearn.svm.LinearSVC(
        loss="hinge", C=2.0, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0
    ).fit(root, y)
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(root), atol=1e-3)
    scores = (
        rbf_kernel(x, x[ours.support_], gamma=1 / (x.shape[1] * x.var())) @ ours.dual_coef_.T
        + ours.intercept_
    )
    np.testing.assert_allclose(scores, ours.decision_function(x), atol=1e-4)  # float32
    assert ours.dual_coef_.shape == (3, len(ours.support_))
    assert 0 < abs(ours.dual_coef_).max() <= 2.0
    assert len(np.unique(ours.support_)) == len(ours.support_)


@pytest.mark.long
@pytest.mark.parametrize("method", ["bsca", "bsgd"])
def test_budgeted_svc_with_room_for_all_rows_solves_the_problem_of_the_kernel(method):
    """Without an intercept, and with weights: on a root of K it is that of LIBLINEAR."""
    x, y = rows()
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    each = {"ant": 2.0, "bee": 0.5}
    share = weight * [each[name] for name in y]
    ours = BudgetedSVC(
        0.5,
        gamma=0.3,
        method=method,
        budget=95,
        class_weight=each,
        tol=None,
        max_passes=300,
        random_state=0,
    )
    ours.fit(x, y, weight)
    gram = rbf_kernel(x, gamma=0.3)
    root = np.linalg.cholesky(gram + 1e-10 * np.eye(len(x)))
    theirs = sklearn.svm.LinearSVC(
        loss="hinge", C=0.5, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0
    )
    best = theirs.fit(root, y, share).coef_[0]
    sign = np.where(y == "bee", 1, -1)

    def objective(score, sqnorm):
        return sqnorm / 2 + 0.5 * share @ np.maximum(0, 1 - sign * score)

    least, made = objective(root @ best, best @ best), ours.decision_function(x)
    # 300 passes: dual ascent is at its end, the last subgradients are 1 / (lambda t) = C sum(share)
    # / t = 0.3 % of what they are
    # at first.
    assert (
        least * (1 - 1e-4)
        < objective(made, float(ours.model_.sqnorm()))
        < least * (1 + (1e-3 if method == "bsca" else 1e-2))
    )
    if method == "bsca":
        np.testing.assert_allclose(made, root @ best, atol=1e-2)  # where the objective is flat
    assert ours.intercept_.tolist() == [0.0] and ours.n_iter_ >= 300


@pytest.mark.long
def test_budgeted_svc_holds_so_many_points_and_is_its_solver():
    x, y = rows(3)
    ours = BudgetedSVC(2.0, gamma=0.3, budget=10, random_state=0).fit(x, y)
    solver = jaxsvm.bsca(2.0, kernels.rbf(gamma=0.3), budget=10, maintain=budget.merge(partners=59))
    other = SVMClassifier(solver, random_state=0).fit(x, y)
    # two programs, as columns are padded: merging amplifies their rounding
    np.testing.assert_allclose(ours.decision_function(x), other.decision_function(x), atol=1e-3)
    held = ours.model_.inner.inner
    assert held.x.shape == (3, 10, 4) and held.coef.shape == (3, 10) and ours.fit_.converged
    by_hand = [
        coef @ rbf_kernel(points, x, gamma=0.3)
        for points, coef in zip(held.x, held.coef, strict=True)
    ]
    # float32
    np.testing.assert_allclose(ours.decision_function(x), np.transpose(by_hand), atol=1e-4)
    exact = SVC(2.0, gamma=0.3).fit(x, y)
    assert ours.score(x, y) > exact.score(x, y) - 0.06 and ours.intercept_.tolist() == [0, 0, 0]
    assert not hasattr(ours, "support_") and not hasattr(ours, "dual_coef_"), (
        "its points are no rows"
    )


@pytest.mark.long
def test_budgeted_svc_with_a_kernel_that_has_no_merge():
    x, y = rows()
    ours = BudgetedSVC(kernel="laplacian", budget=20, random_state=0).fit(x, y)
    points = np.asarray(ours.model_.inner.x)[np.asarray(ours.model_.inner.coef) != 0]
    distance = np.abs(points[:, None] - x[None].astype(np.float32)).max(-1)
    assert len(points) == 20 and distance.min(1).max() == 0, (
        "points that go leave the others as they are: rows"
    )
    assert ours.score(x, y) > 0.7


@pytest.mark.long
def test_the_model_of_an_expansion_is_certified_on_the_rows_that_came():
    x, y = rows()
    ours = SVC(2.0, tol=1e-4, random_state=0).fit(x, y)
    data = jaxsvm.dataset(x, y)
    proof = objectives.certificate(ours.model_, data, jaxsvm.lam_from_C(2.0, len(y)))
    assert proof.exact and proof.gap < 1e-3 * proof.primal


@pytest.mark.long
def test_kernels_by_name_by_value_and_by_function():
    x, y = rows()
    named = SVC(gamma=0.5, tol=1e-5, random_state=0).fit(x, y).decision_function(x)
    pair = lambda a, b: jnp.exp(-0.5 * jnp.sum((a[:, None] - b[None]) ** 2, -1))
    for kernel in (kernels.rbf(gamma=0.5), pair):
        other = SVC(kernel=kernel, tol=1e-5, random_state=0).fit(x, y).decision_function(x)
        np.testing.assert_allclose(other, named, atol=1e-3)  # two solutions to 1e-5 in margin units
    gram = rbf_kernel(x, gamma=0.5)
    made = SVC(kernel="precomputed", tol=1e-5, random_state=0).fit(gram, y)
    np.testing.assert_allclose(made.decision_function(gram[:7]), named[:7], atol=1e-3)
    for pairwise in (made, SVMClassifier(jaxsvm.sdca(1.0, kernels.precomputed()))):
        assert pairwise.__sklearn_tags__().input_tags.pairwise
    with pytest.raises(ValueError, match="kernel must be one of"):
        SVC(kernel="rbff").fit(x, y)
    with pytest.raises(ValueError, match="gamma must be"):
        SVC(gamma="sclae").fit(x, y)


@pytest.mark.long
def test_regressors_against_ridge_and_liblinear():
    x, _ = rows()
    y = x @ [2.0, -1.0, 0.5, 0.0] + 0.3 * np.random.default_rng(0).normal(size=len(x)) + 1
    squared = SVMRegressor(jaxsvm.sdca(0.5, loss=losses.squared), tol=1e-6, random_state=0).fit(
        x, y
    )
    ridge = sklearn.linear_model.Ridge(alpha=2.0, fit_intercept=False).fit(x, y)
    # 1e-6 in the residual, and float32
    np.testing.assert_allclose(squared.coef_, ridge.coef_, atol=1e-4)
    kernel, loss = kernels.rbf(gamma=1 / (x.shape[1] * x.var())), losses.eps_insensitive(0.2)
    for solver in (jaxsvm.decomposition, jaxsvm.smo):
        exact = SVMRegressor(solver(3.0, kernel, loss=loss), tol=1e-5).fit(x, y)
        theirs = sklearn.svm.SVR(C=3.0, epsilon=0.2, tol=1e-7).fit(x, y)
        # tol, and float32
        np.testing.assert_allclose(exact.predict(x), theirs.predict(x), atol=1e-4)
    tube = SVMRegressor(tol=1e-4, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVR(
        epsilon=0.1, C=1.0, tol=1e-6, max_iter=10**6, random_state=0
    ).fit(x, y)
    # where the objective is flat
    np.testing.assert_allclose(tube.predict(x), theirs.predict(x), atol=1e-2)


# Weights, names, sparse rows.


@pytest.mark.long
@pytest.mark.parametrize(
    "estimator",
    [
        SVMClassifier(jaxsvm.averaged(jaxsvm.pegasos(1e-2))),
        SVC(class_weight="balanced"),
        LinearSVC(class_weight={"ant": 3.0}),
        BudgetedSVC(budget=10, method="bsgd", class_weight={"ant": 3.0}),
    ],
    ids=["pegasos", "SVC", "LinearSVC", "BudgetedSVC"],
)
def test_weights_are_copies_to_the_last_bit(estimator):
    """Also for a stochastic solver, with class weights, and in any order of the rows."""
    x, y = rows(3)
    random = np.random.default_rng(1)
    weight = random.integers(0, 4, len(y))
    order = random.permutation(len(y))
    copied = (
        clone(estimator)
        .set_params(random_state=3)
        .fit(np.repeat(x, weight, 0), np.repeat(y, weight))
    )
    weighted = clone(estimator).set_params(random_state=3).fit(x[order], y[order], weight[order])
    np.testing.assert_array_equal(copied.decision_function(x), weighted.decision_function(x))


def test_balanced_class_weights_are_those_of_scikit_learn():
    x, y = rows(3)
    keep = (y != "ant") | (np.arange(len(y)) % 3 == 0)
    ours = LinearSVC(class_weight="balanced", loss="squared_hinge", tol=1e-4, random_state=0).fit(
        x[keep], y[keep]
    )
    theirs = sklearn.svm.LinearSVC(dual=False, tol=1e-8, class_weight="balanced").fit(
        x[keep], y[keep]
    )
    # a smooth problem: some times the residual
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("estimator", [LinearSVC(), SVC()], ids=["LinearSVC", "SVC"])
def test_sparse_rows_of_any_kind(estimator):
    """The same run as on dense rows, up to sums in another order; int64 indices too."""
    x, y = rows(3)
    x = np.where(abs(x) > 0.7, x, 0)
    dense = clone(estimator).set_params(random_state=0).fit(x, y).decision_function(x)
    sparse = scipy.sparse.csr_array(x)
    sparse.indices, sparse.indptr = sparse.indices.astype(np.int64), sparse.indptr.astype(np.int64)
    made = clone(estimator).set_params(random_state=0).fit(sparse, y)
    # both within 1e-3 in margin units
    np.testing.assert_allclose(made.decision_function(sparse), dense, atol=1e-2)
    made.fit(scipy.sparse.coo_matrix(x), y)
    np.testing.assert_allclose(made.decision_function(scipy.sparse.csc_matrix(x)), dense, atol=1e-2)


@pytest.mark.long
def test_wide_sparse_rows_are_never_dense():
    """The rows would take 2.4 GB, and 10 with their padding."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 60)
    column = np.stack([random.integers(10, 10**7, 60), y], axis=1)
    x = scipy.sparse.csr_array(
        (np.ones(120), column.ravel(), np.arange(0, 121, 2)), shape=(60, 10**7)
    )
    assert LinearSVC(C=10.0, random_state=0).fit(x, y).score(x, y) == 1.0


# The tools of scikit-learn.


def counted(solver):
    """A factory like `solver` that counts how often its update is traced."""
    calls = []
    wrap = counting(calls)
    return lambda number: wrap(solver(number)), calls


@pytest.mark.long
def test_a_grid_of_twelve_numbers_compiles_once():
    x, y = rows(n=91)  # folds of 60 and 61 rows
    make, calls = counted(lambda C: jaxsvm.sdca(C, bias="feature"))
    SVMClassifier(make(0.05), random_state=0).fit(x, y)
    once = len(calls)
    assert once > 0
    numbers = np.logspace(-3, 2, 12)
    grid = GridSearchCV(
        SVMClassifier(random_state=0),
        {"solver": [make(C) for C in numbers]},
        cv=3,
        error_score="raise",
    ).fit(x, y)
    assert len(calls) == once and grid.best_score_ > 0.8


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "axes"),
    [
        (SVC(), {"C": [0.1, 1.0, 10.0], "gamma": [0.1, 0.3, 1.0, 3.0]}),
        (BudgetedSVC(budget=30), {"C": [0.3, 1.0, 10.0], "gamma": [0.1, 0.3]}),
    ],
)
def test_a_grid_of_a_convenience_compiles_once(model, axes):
    x, y = rows(n=91)
    grid = GridSearchCV(model.set_params(random_state=0), axes, cv=3, error_score="raise")
    programs = fitting.run_chunk, fitting.begin, fitting.conclude
    clone(model).fit(x, y)
    before = [program._cache_size() for program in programs]
    grid.fit(x, y)
    assert [program._cache_size() for program in programs] == before and all(before)
    assert grid.best_score_ > 0.85


@pytest.mark.long
@pytest.mark.parametrize(
    "features",
    [NystromFeatures(n_components=90), FourierFeatures(n_components=300)],
    ids=["Nystrom", "Fourier"],
)
def test_pipelines_of_features_come_near_the_kernel(features):
    x, y = rows(3)
    made = make_pipeline(
        StandardScaler(),
        clone(features).set_params(gamma=0.3, random_state=0),
        LinearSVC(random_state=0),
    )
    kernel = make_pipeline(StandardScaler(), SVC(gamma=0.3, random_state=0))
    made, kernel = made.fit(x, y), kernel.fit(x, y)
    assert np.mean(made.predict(x) == kernel.predict(x)) > 0.93
    lifted = made[:-1].transform(x)
    # 1/sqrt(300) four times
    np.testing.assert_allclose(
        lifted @ lifted.T, rbf_kernel(made[0].transform(x), gamma=0.3), atol=0.25
    )
    assert list(made[:-1].get_feature_names_out())[1] == f"{type(features).__name__.lower()}1"


@pytest.mark.long
def test_landmarks_of_another_choice():
    x, _ = rows()
    phi = (
        NystromFeatures(n_components=10, choose=jaxsvm.features.k_means(), random_state=0)
        .fit(x)
        .phi_
    )
    assert phi.landmarks.shape == (10, 4)
    named = NystromFeatures(n_components=10, choose="random_pivots", random_state=0).fit(x).phi_
    function = jaxsvm.features.random_pivots()
    called = NystromFeatures(n_components=10, choose=function, random_state=0).fit(x).phi_
    np.testing.assert_array_equal(named.landmarks, called.landmarks)
    with pytest.raises(ValueError, match="choose must be one of 'uniform', 'k_means', "):
        NystromFeatures(choose="kmeans").fit(x)


@pytest.mark.long
@pytest.mark.parametrize(
    "estimator",
    [
        SVC(kernel="poly", degree=2, coef0=1.0, break_ties=True),
        SVMClassifier(jaxsvm.pegasos(1e-2, bias="free")),
        BudgetedSVC(budget=10),
    ],
    ids=["SVC", "pegasos", "BudgetedSVC"],
)
def test_clone_pickle_and_files(estimator, tmp_path):
    x, y = rows(3)
    made = clone(estimator).set_params(random_state=0).fit(x, y)
    assert repr(clone(made)) == repr(made)
    scores = made.decision_function(x)
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.decision_function(x), scores)
    assert again.fit_.status == made.fit_.status
    models.save(tmp_path / "model.npz", made.model_)
    loaded = models.load(tmp_path / "model.npz")
    assert (loaded.predict(jnp.asarray(x, jnp.float32)) == made.predict(x)).all()


# Streams.


@pytest.mark.long
def test_partial_fit_in_pieces():
    x, y = rows(3, n=400)
    made = SVMClassifier(jaxsvm.averaged(jaxsvm.pegasos(1e-2, bias="feature")), random_state=0)
    for piece in np.array_split(np.arange(400), 8) * 3:
        made.partial_fit(x[piece], y[piece], classes=["bee", "ant", "cat"])
    assert list(made.classes_) == ["ant", "bee", "cat"]
    theirs = sklearn.svm.LinearSVC(
        loss="hinge", C=1 / (1e-2 * 400), max_iter=10**5, random_state=0
    ).fit(x, y)
    assert made.score(x, y) > theirs.score(x, y) - 0.03
    assert int(made.fit_.state.solver.average.count[0]) == 3 * 400  # the clock ran on
    # Pickled between two pieces it goes on as if nothing had been.
    other = pickle.loads(pickle.dumps(made))
    for m in (made, other):
        m.partial_fit(x[:50], y[:50])
    np.testing.assert_array_equal(made.coef_, other.coef_)


@pytest.mark.long
def test_partial_fit_of_a_budgeted_svc():
    x, y = rows(3, n=400)
    made = BudgetedSVC(0.1, method="bsgd", budget=30, random_state=0)
    pieces = np.array_split(np.arange(400), 4)
    for piece in pieces * 3:
        made.partial_fit(x[piece], y[piece], classes=["bee", "ant", "cat"])
    held, first = made.model_.inner.inner, x[pieces[0]]
    assert made.fit_.state.solver.t.tolist() == [1200] * 3 and held.x.shape == (3, 30, 4)
    # The kernel is that of the first rows: gamma="scale" of later ones would change what the points
    # mean.
    gamma = 1 / (4 * first.astype(np.float32).var())
    by_hand = [
        coef @ rbf_kernel(points, x, gamma=gamma)
        for points, coef in zip(held.x, held.coef, strict=True)
    ]
    # float32
    np.testing.assert_allclose(made.decision_function(x), np.transpose(by_hand), atol=1e-3)
    assert made.score(x, y) > SVC(0.1).fit(x, y).score(x, y) - 0.04
    other = pickle.loads(pickle.dumps(made))
    for m in (made, other):
        m.partial_fit(x[:50], y[:50])
    np.testing.assert_array_equal(made.decision_function(x), other.decision_function(x))
    assert not hasattr(BudgetedSVC(), "partial_fit")


@pytest.mark.long
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_partial_fit_reaches_the_optimum_of_new_numbers(loss):
    x, y = rows()
    made = Pegasos(alpha=1e-2, random_state=0).partial_fit(x, y, classes=["ant", "bee"])
    made.set_params(alpha=1.0, loss=loss)
    for _ in range(40):
        made.partial_fit(x, y)
    C = 1 / len(x)
    best = sklearn.svm.LinearSVC(loss=loss, C=C, tol=1e-6, max_iter=100_000).fit(x, y)
    at_most = primal(best, x, y, C, loss)
    assert at_most * (1 - 1e-6) < primal(made, x, y, C, loss) < 1.02 * at_most


@pytest.mark.long
def test_partial_fit_of_a_budgeted_svc_takes_a_new_cost():
    # Rows far apart: f(x_i) = y_i min(1, C weight_i).
    x, y = 9.0 * np.arange(20)[:, None], np.tile([0, 1], 10)
    made = BudgetedSVC(0.1, method="bsgd", gamma=1.0, budget=30, random_state=0).partial_fit(
        x, y, classes=[0, 1]
    )
    np.testing.assert_allclose(made.decision_function(x), 0.1 * (2 * y - 1), rtol=1e-5)
    made.set_params(C=0.5).partial_fit(x[:10], y[:10]).partial_fit(x[10:], y[10:])
    np.testing.assert_allclose(made.decision_function(x), 0.5 * (2 * y - 1), rtol=1e-5)


FOURIER = [
    jaxsvm.features.fourier(jax.random.key(i), kernels.rbf(1.0), dim=4, features=8) for i in (0, 1)
]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "made, refused",
    [
        (
            Pegasos(random_state=0),
            [
                ({"alpha": -1}, "alpha must be a finite number above 0, got -1"),
                ({"loss": "epsilon"}, "loss must be one of 'hinge'"),
                ({"penalty": "l1"}, "penalty must be 'l2', got 'l1'"),
                (
                    {"fit_intercept": False},
                    "fit_intercept is True since the first rows, got False: call fit",
                ),
                ({"average": False}, "average is True since the first rows"),
            ],
        ),
        (
            BudgetedSVC(method="bsgd", gamma=0.3, budget=20, random_state=0),
            [
                ({"C": -1.0}, "C must be a finite number above 0, got -1"),
                ({"gamma": 0.5}, "gamma is 0.3 since the first rows, got 0.5"),
                (
                    {"kernel": kernels.rbf(2.0)},
                    r"kernel is 'rbf' since the first rows, got rbf\(2.0\)",
                ),
                ({"budget": 30}, "budget is 20 since the first rows, got 30"),
            ],
        ),
        (
            SVMClassifier(jaxsvm.bsgd(0.1, kernels.rbf(1.0), budget=20), random_state=0),
            [
                ({"multiclass": "ovo"}, "multiclass is 'ovr' since the first rows"),
                (
                    {"solver": jaxsvm.bsgd(0.1, kernels.rbf(2.0), budget=20)},
                    "with another kernel or feature map",
                ),
            ],
        ),
        (
            SVMClassifier(jaxsvm.on_features(FOURIER[0], jaxsvm.pegasos(0.1)), random_state=0),
            [
                (
                    {"solver": jaxsvm.on_features(FOURIER[1], jaxsvm.pegasos(0.1))},
                    "with another kernel or feature map",
                )
            ],
        ),
    ],
)
def test_partial_fit_refuses_a_change_of_structure_and_bad_numbers(made, refused):
    x, y = rows(3)
    made = clone(made).partial_fit(x, y, classes=["ant", "bee", "cat"])
    for change, message in refused:
        changed = pickle.loads(pickle.dumps(made)).set_params(**change)
        with pytest.raises(ValueError, match=message):
            changed.partial_fit(x, y)
        np.testing.assert_array_equal(changed.decision_function(x), made.decision_function(x))


@pytest.mark.long
def test_partial_fit_of_another_solver_with_new_numbers():
    x, y = rows()
    at = lambda change: (
        SVMClassifier(jaxsvm.pegasos(0.1), random_state=0)
        .partial_fit(x, y, classes=["ant", "bee"])
        .set_params(**change)
        .partial_fit(x, y)
        .coef_
    )
    assert (at({}) != at({"solver": jaxsvm.pegasos(1.0)})).any()
    phi = jaxsvm.features.fourier(jax.random.key(0), kernels.rbf(1.0), dim=4, features=8)
    mapped = SVMClassifier(jaxsvm.on_features(FOURIER[0], jaxsvm.pegasos(0.1)))
    mapped.partial_fit(x, y, classes=["ant", "bee"])
    # an equal map
    mapped.set_params(solver=jaxsvm.on_features(phi, jaxsvm.pegasos(0.2))).partial_fit(x, y)


# Rows that repeat.


def repeated():
    """1,000 rows of three columns of zeros and ones, their labels, and the 16 kinds with their
    numbers."""
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (1000, 3)).astype(float)
    y = (x.sum(axis=1) > 1) ^ (random.random(1000) < 0.1)
    table, group = np.unique(np.c_[x, y], axis=0, return_inverse=True)
    return x, y, table[:, :3], table[:, 3] > 0, np.bincount(group.ravel())


def test_a_pass_over_rows_that_repeat_counts_them_all():
    x, y, kinds, labels, counts = repeated()
    made = Pegasos(alpha=1e-2, random_state=0).fit(x, y)
    best = sklearn.svm.LinearSVC(loss="hinge", C=0.1, max_iter=100_000, tol=1e-6).fit(x, y)
    assert primal(made, x, y, 0.1, "hinge") < 1.02 * primal(best, x, y, 0.1, "hinge")
    copies = clone(made).fit(kinds, labels, counts)
    np.testing.assert_allclose(copies.coef_, made.coef_, atol=1e-6)
    assert made.n_iter_ == copies.n_iter_ == 21  # 20, rounded up to whole chunks
    first = Pegasos(alpha=1e-2, random_state=0).partial_fit(x, y, classes=[False, True])
    assert int(first.fit_.state.step) == 1000
    halves = clone(made).fit(kinds, labels, counts + 0.5)  # no copies: rows of other weights
    assert int(halves.fit_.state.step) == 512


@pytest.mark.long
def test_a_budgeted_svc_of_rows_that_repeat_reaches_the_optimum():
    x, y = repeated()[:2]
    best = sklearn.svm.SVC(C=100.0, gamma=1.0).fit(x, y)
    hinge = lambda made: np.maximum(0, 1 - (2 * y - 1) * made.decision_function(x)).mean()
    made = BudgetedSVC(100.0, gamma=1.0, budget=50, random_state=0).fit(x, y)
    assert made.fit_.converged and hinge(made) < hinge(best) + 1e-3


def test_partial_fit_takes_pieces_of_one_class_and_refuses_the_rest():
    x, y = rows()
    made = SVMClassifier(jaxsvm.pegasos(1e-2), random_state=0)
    with pytest.raises(ValueError, match="classes must be given"):
        made.partial_fit(x, y)
    made.partial_fit(x[y == "ant"], y[y == "ant"], classes=["ant", "bee"]).partial_fit(
        x[y == "bee"], y[y == "bee"]
    )
    with pytest.raises(ValueError, match="since the first call"):
        made.partial_fit(x, y, classes=["ant", "cat"])
    with pytest.raises(ValueError, match="holds the class 'cow'"):
        made.partial_fit(x[:1], ["cow"])
    assert not hasattr(SVMClassifier(), "partial_fit") and not hasattr(LinearSVC(), "partial_fit")
    assert not hasattr(SVMClassifier(jaxsvm.kernel_pegasos(1e-2, kernels.rbf(1.0))), "partial_fit")


@pytest.mark.long
def test_partial_fit_of_a_regressor():
    x, _ = rows(n=400)
    y = x @ [2.0, -1.0, 0.5, 0.0]
    solver = jaxsvm.averaged(jaxsvm.pegasos(1e-3, loss=losses.squared, project=False, offset=2e4))
    made = SVMRegressor(solver, random_state=0)
    for _ in range(10):
        made.partial_fit(x, y)
    assert made.score(x, y) > 0.95


# What is told.


@pytest.mark.long
def test_a_missed_tolerance_is_told():
    x, y = rows()
    said = r"stopped after \d+ steps?; residual .* not met: a larger max_iter"
    with pytest.warns(ConvergenceWarning, match=said):
        made = LinearSVC(C=1000.0, tol=1e-7, max_iter=1, random_state=0).fit(x, y)
    assert not made.fit_.converged and made.n_iter_ >= 1
    with pytest.warns(ConvergenceWarning, match="a larger steps") as told:
        SVMRegressor(steps=1, tol=1e-9).fit(x, x[:, 0])
        SVMClassifier(steps=1, tol=1e-9).fit(x, y)
    assert {warning.filename for warning in told} == {__file__}  # the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert LinearSVC(random_state=0).fit(x, y).fit_.converged


def test_steps_and_sampler():
    x, y = rows()
    made = SVMClassifier(
        jaxsvm.pegasos(1e-2), steps=300, sampler=jaxsvm.samplers.epochs(16), random_state=0
    ).fit(x, y)
    assert int(made.fit_.state.step) == 300 and made.n_iter_ == -(-300 * 16 // 90)


def test_wrong_parameters_are_told():
    x, y = rows()
    for estimator, match in [
        (SVMClassifier(jaxsvm.pegasos), "call the factory first"),
        (SVMClassifier(tol="tight"), "tol must be"),
        (LinearSVC(C=-1.0), "C must be a finite number above 0"),
        (LinearSVC(loss="huber"), "loss must be"),
        (LinearSVC(-1.0), r"write LinearSVC\(C=-1.0\)"),
        (LinearSVC(penalty="l3"), "penalty must be one of 'l2', 'l1', 'elasticnet'"),
        (LinearSVC(penalty="l1", loss="hinge"), "with a continuous slope"),
        (
            LinearSVC(penalty="elasticnet", l1_ratio=2.0),
            "l1_ratio must be a finite number",
        ),
        (LinearSVC(multi_class="ovo"), "multi_class must be one of 'ovr', 'crammer_singer'"),
        (LinearSVC(dual="both"), "dual must be one of"),
        (LinearSVC(intercept_scaling=0.0), "intercept_scaling must be a finite number above 0"),
        (
            LinearSVR(loss="hinge"),
            "loss must be one of 'epsilon_insensitive', 'squared_epsilon_insensitive'",
        ),
        (LinearSVR(epsilon=-1.0), "eps must be a finite number of at least 0"),
        (SVR(epsilon=-1.0), "eps must be a finite number of at least 0"),
        (SVC(max_iter=0), "max_iter must be a whole number of at least 1"),
        (SVC(decision_function_shape="all"), "decision_function_shape must be one of 'ovr', 'ovo'"),
        (Pegasos(penalty="l1"), "penalty must be 'l2', got 'l1'"),
        (Pegasos(loss="huber"), "loss must be one of 'hinge', 'squared_hinge', 'log_loss'"),
        (Pegasos(alpha=0.0), "alpha must be a finite number above 0"),
        (Pegasos(max_iter=0), "max_iter must be a whole number of at least 1"),
        (SVC(bias="bounded"), "bias must be one of 'free', 'none', 'feature'"),
        (SVC(loss=losses.logistic), "is not quadratic: take cpsp, sdca, or a loss"),
        (SVMClassifier("sdca"), "solver must be a solver such as"),
        (BudgetedSVC(budget=1), "budget must be a whole number of at least 2"),
        (BudgetedSVC(partners=0), "partners must be a whole number of at least 1"),
        (BudgetedSVC(method="sgd"), "method must be one of 'bsca', 'bsgd'"),
        (BudgetedSVC(kernel="precomputed"), "a budget holds points of its own"),
        (BudgetedSVC(-1.0, method="bsgd"), "C must be a finite number above 0"),
        (SVMClassifier(multiclass="all"), "multiclass must be one of 'ovr', 'ovo'"),
        (LinearSVC(tol=-1.0), "tol must be a finite number above 0"),
        (LinearSVC(max_iter=0), "max_iter must be a whole number of at least 1"),
        (BudgetedSVC(max_passes=2.5), "max_passes must be a whole number of at least 1"),
        (
            SVMClassifier(jaxsvm.pegasos(1e-2), steps=0),
            "steps must be a whole number of at least 1",
        ),
        (SVC(gamma=-1.0), "gamma must be a finite number above 0"),
        (SVC(kernel="laplacian", gamma=0.0), "gamma must be a finite number above 0"),
        (
            SVMClassifier(jaxsvm.pegasos(1e-2), tol=1e-3),
            "tol has nothing to stop on.*give steps",
        ),
        (BudgetedSVC(method="bsgd", tol=1e-3), "tol has nothing to stop on.*give max_passes"),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            estimator.fit(x, x[:, 0] if isinstance(estimator, RegressorMixin) else y)
    with pytest.raises(ValueError, match="one class"):
        LinearSVC().fit(x, np.full(len(x), "ant"))
    with pytest.raises(ValueError, match="one class"):
        LinearSVC().fit(x, y, (y == "ant").astype(float))
    with pytest.raises(ValueError, match="at least 0"):
        LinearSVC().fit(x, y, np.full(len(x), -1.0))
    with pytest.raises(ValueError, match="too large for float32"):
        LinearSVC().fit(np.where(np.arange(4) == 1, 1e300, x), y)
    with pytest.raises(NotFittedError):
        LinearSVC().predict(x)
    assert not hasattr(SVC(random_state=0).fit(x, y), "coef_")


@pytest.mark.long
def test_double_precision_where_it_is_on(x64):
    x, y = rows()
    ours = LinearSVC(tol=1e-10, max_iter=100_000, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVC(dual=False, tol=1e-12).fit(x, y)
    assert ours.model_.inner.w.dtype == jnp.float64
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


# Which rows the points of a model are.


@pytest.mark.long
@pytest.mark.parametrize("k, multiclass", [(2, "ovr"), (3, "ovr"), (3, "ovo")])
def test_points_of_a_sample_keep_the_numbers_of_their_rows(k, multiclass):
    x, y = rows(k)
    made = SVMClassifier(
        jaxsvm.scs(1e-2, kernels.rbf(1.0), capacity=60),
        steps=60,
        multiclass=multiclass,
        random_state=0,
    ).fit(x, y)
    assert made.score(x, y) > 0.85
    model = made.model_.inner if k == 2 else made.model_.inner.inner
    index, points = np.asarray(model.index), np.asarray(model.x)
    assert (index >= 0).sum() > 60 * (1 if k == 2 else 2) / 2
    np.testing.assert_array_equal(points[index >= 0], x.astype(np.float32)[index[index >= 0]])
    if k == 2:
        held = made.support_
        np.testing.assert_array_equal(np.isin(held, np.arange(len(x))), True)
    else:
        with pytest.raises(AttributeError, match="points of their own"):
            made.support_  # noqa: B018


@pytest.mark.long
def test_a_machine_on_features_is_certified_on_the_rows_that_came():
    x, y = rows()
    phi = jaxsvm.features.nystrom(
        jax.random.key(0), kernels.rbf(1.0), jnp.asarray(x, jnp.float32), landmarks=20
    )
    solver = jaxsvm.on_features(phi, jaxsvm.sdca(1.0, kernels.linear()))
    made = SVMClassifier(solver, tol=1e-5, random_state=0).fit(x, y)
    labels = np.where(y == made.classes_[1], 1, -1)
    proof = jaxsvm.certificate(
        made.model_.inner, jaxsvm.dataset(x.astype(np.float32), labels), 1 / len(x)
    )
    assert proof.exact and float(proof.gap) < 1e-4


@pytest.mark.long
def test_a_model_of_no_rows_has_no_support():
    x, _ = rows()
    loss = losses.eps_insensitive(50.0)
    made = SVMRegressor(jaxsvm.decomposition(1.0, kernels.rbf(1.0), loss=loss)).fit(x, x[:, 0])
    assert made.support_.shape == (0,) and made.dual_coef_.shape == (1, 0)
    assert np.ptp(made.predict(x)) == 0


def test_what_was_fitted_stays_where_another_fit_fails():
    x, y = rows()
    for made, target in ((LinearSVC(random_state=0), y), (SVMRegressor(random_state=0), x[:, 0])):
        before = made.fit(x, target).predict(x)
        for other in (x[:, :2], np.hstack([x, x])):
            with pytest.raises(ValueError, match="sample_weight must be at least 0"):
                made.fit(other, target, sample_weight=np.full(len(x), -1.0))
            np.testing.assert_array_equal(made.predict(x), before)


def test_the_width_of_the_kernel_counts_rows_by_sample_weight_alone():
    x, y = rows()
    x[y == "ant"] += 3
    gamma = lambda **choices: float(
        SVC(random_state=0, **choices).fit(x, y).model_.inner.kernel.gamma
    )
    assert gamma() == pytest.approx(1 / (x.shape[1] * x.var()), rel=1e-6)
    assert (
        gamma(class_weight={"ant": 1.0, "bee": 100.0}) == gamma() == gamma(class_weight="balanced")
    )
    weighted = SVC(class_weight={"ant": 1.0, "bee": 20.0}, tol=1e-6).fit(x, y)
    theirs = sklearn.svm.SVC(class_weight={"ant": 1.0, "bee": 20.0}, tol=1e-8).fit(x, y)
    np.testing.assert_allclose(
        weighted.decision_function(x), theirs.decision_function(x), atol=1e-4
    )


def test_decision_values_that_are_not_finite_are_refused():
    x, y = rows()
    for made, target in (
        (SVMClassifier(jaxsvm.pegasos(0.1), random_state=0), y),
        (SVMRegressor(random_state=0), x[:, 0]),
    ):
        made.fit(x, target)
        made.model_ = jax.tree.map(
            lambda a: a * np.nan if jnp.issubdtype(a.dtype, jnp.floating) else a, made.model_
        )
        with pytest.raises(
            ValueError, match="the decision values of 90 of 90 rows are not finite, first of row 0"
        ):
            made.predict(x)


def test_ctrl_c_leaves_an_estimator_as_it_was(monkeypatch):
    """Unfitted before its first `fit`; later with the attributes of the fit before."""
    from jaxsvm.estimators import base

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    x, y = rows()
    model = SVMClassifier(jaxsvm.pegasos(0.1), steps=20)
    run = base.run_solver
    for fitted in (False, True):
        monkeypatch.setattr(base, "run_solver", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y)
        monkeypatch.setattr(base, "run_solver", run)
        if not fitted:
            with pytest.raises(NotFittedError):
                model.predict(x)
            before = model.fit(x, y).coef_
    np.testing.assert_array_equal(model.coef_, before)
