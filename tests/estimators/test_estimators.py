"""The classes for scikit-learn: its own SVMs on the same problems, and what its tools ask of
them."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from beside import USUAL, agree, both, by_hand, clear_rows, close, equal, same
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm import budget, kernels, losses, models, objectives
from jaxsvm.estimators import (
    SVC,
    BudgetedSVC,
    FourierFeatures,
    LinearSVC,
    NystromFeatures,
    SVMClassifier,
    SVMRegressor,
)
from jaxsvm.loops import fitting

pytestmark = USUAL
rows = clear_rows
TIGHT = {"loss": "hinge", "tol": 1e-9, "max_iter": 10**6, "random_state": 0}
WEIGHT = np.random.default_rng(1).uniform(0.2, 3.0, 90)


def on_root(gram, y, C, weight=None):
    """LIBLINEAR on a root of a kernel matrix, without an intercept; and the root."""
    root = np.linalg.cholesky(gram + 1e-10 * np.eye(len(gram)))
    return sklearn.svm.LinearSVC(C=C, fit_intercept=False, **TIGHT).fit(root, y, weight), root


# The same problems as scikit-learn's solvers.


def test_svc_is_that_of_libsvm():
    """With weights, a class weight, and every attribute."""
    x, y = rows()
    ours = SVC(2.0, class_weight="balanced", tol=1e-5).fit(x, y, WEIGHT)
    # LIBSVM balances by rows and takes gamma from rows, not from their weights; weights of classes
    # do not move the kernel.
    each = {name: WEIGHT.sum() / (2 * WEIGHT[y == name].sum()) for name in ("ant", "bee")}
    mean = np.average(x, 0, WEIGHT).mean()
    gamma = 1 / (4 * np.average((x - mean) ** 2, 0, WEIGHT).mean())
    theirs = sklearn.svm.SVC(C=2.0, class_weight=each, gamma=gamma, tol=1e-7).fit(x, y, WEIGHT)
    assert ours.fit_.converged and ours.n_iter_ == 1
    agree(ours, theirs, x, 1e-4)  # tol, and float32
    same(ours, theirs, "intercept_", atol=1e-4)
    mine, other = np.zeros(len(y)), np.zeros(len(y))
    mine[ours.support_], other[theirs.support_] = ours.dual_coef_[0], theirs.dual_coef_[0]
    close(mine, other, atol=1e-3)  # where the dual is flat
    assert len(ours.support_) == (mine != 0).sum()
    assert list(ours.predict(x)) == list(theirs.predict(x))


@pytest.mark.long
@pytest.mark.parametrize("multiclass", ["ovr", "ovo"])
def test_three_classes_are_those_of_libsvm(multiclass):
    x, y = rows(3)
    ours = SVC(2.0, gamma=0.3, tol=1e-5, multiclass=multiclass).fit(x, y)
    theirs = sklearn.svm.SVC(C=2.0, gamma=0.3, tol=1e-7)
    theirs = (OneVsRestClassifier(theirs) if multiclass == "ovr" else theirs).fit(x, y)
    assert ours.fit_.converged and ours.intercept_.shape == (3,)
    agree(ours, theirs, x, 1e-4)  # tol, and float32
    assert list(ours.predict(x)) == list(theirs.predict(x))
    if multiclass == "ovr":
        assert ours.dual_coef_.shape == (3, len(ours.support_))
        each = rbf_kernel(x, ours.support_vectors_, gamma=0.3) @ ours.dual_coef_.T + ours.intercept_
        close(each, theirs.decision_function(x), atol=1e-4)


@pytest.mark.long
def test_exact_solvers():
    x, y = rows()
    kernel = kernels.rbf(gamma=1 / (x.shape[1] * x.var()))
    wanted = SVC(2.0, tol=1e-5, max_iter=2000).fit(x, y)
    named = SVMClassifier(jaxsvm.decomposition(2.0, kernel), tol=1e-5).fit(x, y)
    agree(named, wanted, x, 2e-5)
    for solver in (jaxsvm.smo(2.0, kernel), jaxsvm.lasvm(2.0, kernel)):
        other = SVMClassifier(solver, tol=1e-5, random_state=0).fit(x, y)
        assert other.fit_.converged and np.mean(other.predict(x) == named.predict(x)) > 0.98
        if type(solver) is jaxsvm.smo:  # LASVM ends at the optimum on the rows that it kept
            agree(other, wanted, x, 1e-4)
    for solver in (jaxsvm.smo, jaxsvm.sdca):
        given = SVMClassifier(solver(2.0, kernels.precomputed()))
        assert given.__sklearn_tags__().input_tags.pairwise
    assert SVC(kernel="precomputed").__sklearn_tags__().input_tags.pairwise


@pytest.mark.long
def test_pairs_of_classes_by_any_solver():
    x, y = rows(3)
    solver = jaxsvm.sdca(0.5, bias="feature")
    made = SVMClassifier(solver, multiclass="ovo", tol=1e-5, random_state=0).fit(x, y)
    theirs = OneVsOneClassifier(sklearn.svm.LinearSVC(C=0.5, **TIGHT)).fit(x, y)
    each = np.array([each.coef_[0] for each in theirs.estimators_])
    # where the objective is flat; theirs are above 0 for the second
    close(made.coef_, -each, atol=1e-2)
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
    gram, held = rbf_kernel(x, gamma=1 / (x.shape[1] * x.var())), ours.support_
    theirs, root = on_root(gram + 1, y, 2.0)
    close(ours.decision_function(x), theirs.decision_function(root), atol=1e-3)
    scores = gram[:, held] @ ours.dual_coef_.T + ours.intercept_
    close(scores, ours.decision_function(x), atol=1e-4)  # float32
    assert ours.dual_coef_.shape == (3, len(held)) and len(np.unique(held)) == len(held)
    assert 0 < abs(ours.dual_coef_).max() <= 2.0


@pytest.mark.long
@pytest.mark.parametrize("method", ["bsca", "bsgd"])
def test_budgeted_svc_with_room_for_all_rows_solves_the_problem_of_the_kernel(method):
    """Without an intercept, and with weights: on a root of K it is that of LIBLINEAR."""
    x, y = rows()
    each = {"ant": 2.0, "bee": 0.5}
    share, sign = WEIGHT * [each[name] for name in y], np.where(y == "bee", 1, -1)
    ours = BudgetedSVC(0.5, gamma=0.3, method=method, budget=95, class_weight=each, random_state=0)
    ours.set_params(tol=None, max_passes=300).fit(x, y, WEIGHT)
    theirs, root = on_root(rbf_kernel(x, gamma=0.3), y, 0.5, share)
    best, made = theirs.coef_[0], ours.decision_function(x)
    loss = lambda score: 0.5 * share @ np.maximum(0, 1 - sign * score)
    least, value = best @ best / 2 + loss(root @ best), ours.model_.sqnorm() / 2 + loss(made)
    # 300 passes: dual ascent is at its end, the last subgradients are 1 / (lambda t) = C sum(share)
    # / t = 0.3 % of what they are at first.
    assert -1e-4 < value / least - 1 < (1e-3 if method == "bsca" else 1e-2)
    if method == "bsca":
        close(made, root @ best, atol=1e-2)  # where the objective is flat
    assert ours.intercept_.tolist() == [0.0] and ours.n_iter_ >= 300


@pytest.mark.long
def test_budgeted_svc_holds_so_many_points_and_is_its_solver():
    x, y = rows(3)
    ours = BudgetedSVC(2.0, gamma=0.3, budget=10, random_state=0).fit(x, y)
    solver = jaxsvm.bsca(2.0, kernels.rbf(gamma=0.3), budget=10, maintain=budget.merge(partners=59))
    # two programs, as columns are padded: merging amplifies their rounding
    agree(ours, SVMClassifier(solver, random_state=0).fit(x, y), x, 1e-3)
    held = ours.model_.inner.inner
    assert held.x.shape == (3, 10, 4) and held.coef.shape == (3, 10) and ours.fit_.converged
    close(ours.decision_function(x), by_hand(held, x, 0.3), atol=1e-4)  # float32
    exact = SVC(2.0, gamma=0.3).fit(x, y)
    assert ours.score(x, y) > exact.score(x, y) - 0.06 and ours.intercept_.tolist() == [0, 0, 0]
    for name in ("support_", "dual_coef_"):
        assert not hasattr(ours, name), "its points are no rows"


@pytest.mark.long
def test_budgeted_svc_with_a_kernel_that_has_no_merge():
    """Points that go leave the others as they are: rows."""
    x, y = rows()
    ours = BudgetedSVC(kernel="laplacian", budget=20, random_state=0).fit(x, y)
    points = np.asarray(ours.model_.inner.x)[np.asarray(ours.model_.inner.coef) != 0]
    distance = np.abs(points[:, None] - x[None].astype(np.float32)).max(-1)
    assert len(points) == 20 and distance.min(1).max() == 0 and ours.score(x, y) > 0.7


@pytest.mark.long
def test_models_are_certified_on_the_rows_that_came():
    x, y = rows()
    ours = SVC(2.0, tol=1e-4, random_state=0).fit(x, y)
    proof = objectives.certificate(ours.model_, jaxsvm.dataset(x, y), jaxsvm.lam_from_C(2.0, 90))
    assert proof.exact and proof.gap < 1e-3 * proof.primal
    x = x.astype(np.float32)
    phi = jaxsvm.features.nystrom(jax.random.key(0), kernels.rbf(1.0), jnp.asarray(x), landmarks=20)
    solver = jaxsvm.on_features(phi, jaxsvm.sdca(1.0, kernels.linear()))
    made = SVMClassifier(solver, tol=1e-5, random_state=0).fit(x, y)
    data = jaxsvm.dataset(x, np.where(y == made.classes_[1], 1, -1))
    proof = jaxsvm.certificate(made.model_.inner, data, 1 / len(x))
    assert proof.exact and float(proof.gap) < 1e-4


@pytest.mark.long
def test_regressors_against_ridge_and_liblinear():
    x, _ = rows()
    y = x @ [2.0, -1.0, 0.5, 0.0] + 0.3 * np.random.default_rng(0).normal(size=len(x)) + 1
    solver = jaxsvm.sdca(0.5, loss=losses.squared)
    squared = SVMRegressor(solver, tol=1e-6, random_state=0).fit(x, y)
    ridge = sklearn.linear_model.Ridge(alpha=2.0, fit_intercept=False).fit(x, y)
    close(squared.coef_, ridge.coef_, atol=1e-4)  # 1e-6 in the residual, and float32
    kernel, loss = kernels.rbf(gamma=1 / (x.shape[1] * x.var())), losses.eps_insensitive(0.2)
    theirs = sklearn.svm.SVR(C=3.0, epsilon=0.2, tol=1e-7).fit(x, y)
    for solver in (jaxsvm.decomposition, jaxsvm.smo):
        exact = SVMRegressor(solver(3.0, kernel, loss=loss), tol=1e-5).fit(x, y)
        agree(exact, theirs, x, 1e-4)  # tol, and float32
    tube = SVMRegressor(tol=1e-4, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVR(epsilon=0.1, **TIGHT | {"loss": "epsilon_insensitive"})
    agree(tube, theirs.fit(x, y), x, 1e-2)  # where the objective is flat


# Weights, sparse rows.


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
    random, made = np.random.default_rng(1), clone(estimator).set_params(random_state=3)
    weight, order = random.integers(0, 4, len(y)), random.permutation(len(y))
    copied = made.fit(np.repeat(x, weight, 0), np.repeat(y, weight)).decision_function(x)
    equal(made.fit(x[order], y[order], weight[order]).decision_function(x), copied)


def test_balanced_class_weights_are_those_of_scikit_learn():
    x, y = rows(3)
    keep = (y != "ant") | (np.arange(len(y)) % 3 == 0)
    same(*both("LinearSVC", (x[keep], y[keep]), class_weight="balanced", dual=False), "coef_", 1e-3)


@pytest.mark.long
def test_wide_sparse_rows_are_never_dense():
    """The rows would take 2.4 GB, and 10 with their padding."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 60)
    column = np.stack([random.integers(10, 10**7, 60), y], axis=1).ravel()
    x = scipy.sparse.csr_array((np.ones(120), column, np.arange(0, 121, 2)), shape=(60, 10**7))
    assert LinearSVC(C=10.0, random_state=0).fit(x, y).score(x, y) == 1.0


# The tools of scikit-learn.


TWELVE = [jaxsvm.sdca(C, bias="feature") for C in np.logspace(-3, 2, 12)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "axes", "least"),
    [
        (SVMClassifier(), {"solver": TWELVE}, 0.8),
        (SVC(), {"C": [0.1, 1.0, 10.0], "gamma": [0.1, 0.3, 1.0, 3.0]}, 0.85),
        (BudgetedSVC(budget=30), {"C": [0.3, 1.0, 10.0], "gamma": [0.1, 0.3]}, 0.85),
    ],
)
def test_a_grid_of_numbers_compiles_once(model, axes, least):
    x, y = rows(n=91)  # folds of 60 and 61 rows
    first = {name: axis[0] for name, axis in axes.items()}
    grid = GridSearchCV(model.set_params(random_state=0), axes, cv=3, error_score="raise")
    programs = fitting.run_chunk, fitting.begin, fitting.conclude
    clone(model).set_params(**first).fit(x, y)
    before = [program._cache_size() for program in programs]
    grid.fit(x, y)
    assert [program._cache_size() for program in programs] == before and all(before)
    assert grid.best_score_ > least


@pytest.mark.long
@pytest.mark.parametrize(
    "features",
    [NystromFeatures(n_components=90), FourierFeatures(n_components=300)],
    ids=["Nystrom", "Fourier"],
)
def test_pipelines_of_features_come_near_the_kernel(features):
    x, y = rows(3)
    features = clone(features).set_params(gamma=0.3, random_state=0)
    made = make_pipeline(StandardScaler(), features, LinearSVC(random_state=0)).fit(x, y)
    kernel = make_pipeline(StandardScaler(), SVC(gamma=0.3, random_state=0)).fit(x, y)
    assert np.mean(made.predict(x) == kernel.predict(x)) > 0.93
    lifted = made[:-1].transform(x)
    gram = rbf_kernel(made[0].transform(x), gamma=0.3)
    close(lifted @ lifted.T, gram, atol=0.25)  # 1/sqrt(300) four times


def test_landmarks_are_rows_where_features_are_kernel_values():
    x, _ = rows()
    made = NystromFeatures(gamma=0.3, n_components=20, random_state=0).fit(x[:30])
    _, places = np.nonzero((made.phi_.landmarks[:, None] == x[:30].astype("f")).all(-1))
    assert len(set(places.tolist())) == 20
    lifted = made.transform(x[:30])
    close(lifted @ lifted[places].T, rbf_kernel(x[:30], x[places], gamma=0.3), atol=1e-3)


@pytest.mark.parametrize("choose", ["uniform", "random_pivots"])
def test_as_many_landmarks_as_rows_give_the_kernel(choose):
    x, made = rows()[0][:20], NystromFeatures(n_components=30, gamma=0.3, choose=choose)
    with pytest.warns(UserWarning, match="but only 20 rows: all are taken"):
        lifted = made.fit_transform(x)
    close(lifted @ lifted.T, rbf_kernel(x, gamma=0.3), atol=1e-4)


@pytest.mark.long
def test_landmarks_of_another_choice():
    x, _ = rows()
    at = lambda choose: (
        NystromFeatures(n_components=10, choose=choose, random_state=0).fit(x).phi_.landmarks
    )
    assert at(jaxsvm.features.k_means()).shape == (10, 4)
    equal(at("random_pivots"), at(jaxsvm.features.random_pivots()))


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
    again = pickle.loads(pickle.dumps(made))
    equal(again.decision_function(x), made.decision_function(x))
    assert again.fit_.status == made.fit_.status
    models.save(tmp_path / "model.npz", made.model_)
    loaded = models.load(tmp_path / "model.npz")
    assert (loaded.predict(jnp.asarray(x, jnp.float32)) == made.predict(x)).all()


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


@pytest.mark.long
def test_steps_and_sampler():
    epochs = jaxsvm.samplers.epochs(16)
    made = SVMClassifier(jaxsvm.pegasos(1e-2), steps=300, sampler=epochs, random_state=0)
    assert int(made.fit(*rows()).fit_.state.step) == 300 and made.n_iter_ == -(-300 * 16 // 90)


@pytest.mark.long
def test_double_precision_where_it_is_on(x64):
    x, y = rows()
    ours = LinearSVC(tol=1e-10, max_iter=100_000, random_state=0).fit(x, y)
    theirs = sklearn.svm.LinearSVC(dual=False, tol=1e-12).fit(x, y)
    assert ours.model_.inner.w.dtype == jnp.float64
    close(ours.coef_, theirs.coef_, atol=1e-8)


# Which rows the points of a model are.


@pytest.mark.long
@pytest.mark.parametrize("k, multiclass", [(2, "ovr"), (3, "ovr"), (3, "ovo")])
def test_points_of_a_sample_keep_the_numbers_of_their_rows(k, multiclass):
    x, y = rows(k)
    solver = jaxsvm.scs(1e-2, kernels.rbf(1.0), capacity=60)
    made = SVMClassifier(solver, steps=60, multiclass=multiclass, random_state=0).fit(x, y)
    assert made.score(x, y) > 0.85
    model = made.model_.inner if k == 2 else made.model_.inner.inner
    index, points = np.asarray(model.index), np.asarray(model.x)
    assert (index >= 0).sum() > 60 * (1 if k == 2 else 2) / 2
    equal(points[index >= 0], x.astype(np.float32)[index[index >= 0]])
    if k == 2:
        assert np.isin(made.support_, np.arange(len(x))).all()
    else:
        with pytest.raises(AttributeError, match="points of their own"):
            made.support_  # noqa: B018


@pytest.mark.long
def test_a_model_of_no_rows_has_no_support():
    x, _ = rows()
    loss = losses.eps_insensitive(50.0)
    made = SVMRegressor(jaxsvm.decomposition(1.0, kernels.rbf(1.0), loss=loss)).fit(x, x[:, 0])
    assert made.support_.shape == (0,) and made.dual_coef_.shape == (1, 0)
    assert np.ptp(made.predict(x)) == 0
    assert not hasattr(made, "coef_")


def test_the_width_of_the_kernel_counts_rows_by_sample_weight_alone():
    x, y = rows()
    x[y == "ant"] += 3
    weights = {"ant": 1.0, "bee": 20.0}
    gamma = lambda weight=None: float(
        SVC(random_state=0, class_weight=weight).fit(x, y).model_.inner.kernel.gamma
    )
    assert gamma() == pytest.approx(1 / (x.shape[1] * x.var()), rel=1e-6)
    assert gamma(weights) == gamma() == gamma("balanced")
    agree(*both("SVC", (x, y), tol=1e-6, class_weight=weights), x, 1e-4)


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
    equal(model.coef_, before)
