"""`LinearSVC`, `LinearSVR` and `Pegasos` beside scikit-learn's linear machines, on the same
rows."""

import inspect

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.svm
from beside import (
    AT,
    DATA,
    IRIS,
    LABELS,
    REAL,
    SPECIES,
    TARGET,
    TOY,
    USUAL,
    agree,
    both,
    close,
    equal,
    known,
    primal,
    same,
)
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm.estimators import LinearSVC, LinearSVR, Pegasos, preprocess

pytestmark = USUAL
X, Y = DATA["scaled"] = StandardScaler().fit_transform(IRIS), SPECIES


@pytest.mark.parametrize(
    # a large intercept_scaling makes the problem flat, and the hinge has no curvature
    "data, options, atol",
    [
        ("scaled", {}, 1e-4),
        ("scaled", {"loss": "hinge"}, 2e-2),
        ("scaled", {"intercept_scaling": 3.0}, 5e-3),
        ("scaled", {"fit_intercept": False}, 1e-4),
        ("two", {"C": 0.5, "loss": "hinge"}, 1e-2),
        pytest.param("three", {"C": 0.5, "loss": "hinge"}, 1e-2, marks=pytest.mark.long),
        pytest.param("two", {"C": 0.5}, 1e-4, marks=pytest.mark.long),
        pytest.param("three", {"C": 0.5}, 1e-4, marks=pytest.mark.long),
    ],
)
def test_classifiers_solve_the_problem_of_liblinear(data, options, atol):
    (ours, theirs), (x, y) = known("LinearSVC", data, **options), DATA[data]
    same(ours, theirs, "classes_")
    same(ours, theirs, "coef_ intercept_", atol=atol)
    agree(ours, theirs, x, 3 * atol)
    assert np.mean(ours.predict(x) == theirs.predict(x)) > 0.98 + 0.01 * (data == "scaled")
    assert type(ours.n_iter_) is int and ours.fit_.converged
    if data == "scaled":
        equal(ours.predict(x), ours.classes_[np.argmax(ours.decision_function(x), axis=1)])
    if options.keys() <= {"C", "loss"}:
        power = 1 + (ours.loss != "hinge")
        close(*(primal(made, x, y, ours.C, power) for made in (ours, theirs)), rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"loss": "hinge"}, {"dual": True}, {"dual": False}])
def test_two_classes(options):
    made, theirs = known("LinearSVC", "toy", **options)
    same(made, theirs, "coef_", atol=1e-3)
    close(made.intercept_, [0], atol=1e-3)
    equal(made.predict(AT), [1, 2, 2])
    assert made.decision_function(AT).shape == (3,)


@pytest.mark.parametrize(
    "options, atol",
    [
        ({"loss": "squared_epsilon_insensitive", "epsilon": 0.1}, 1e-4),
        ({"loss": "squared_epsilon_insensitive", "fit_intercept": False, "dual": True}, 1e-4),
        ({"epsilon": 0.1}, 1e-2),  # no curvature
        pytest.param({"intercept_scaling": 3.0, "C": 0.1}, 1e-2, marks=pytest.mark.long),
    ],
)
def test_regressors_solve_the_problem_of_liblinear(options, atol):
    ours, theirs = known("LinearSVR", "real", **options)
    same(ours, theirs, "coef_ intercept_", atol=atol)
    close(ours.predict(REAL), REAL @ ours.coef_ + ours.intercept_, rtol=1e-12)


def test_the_intercept_is_free_where_its_scale_is_large():
    rows = np.array([[2, 1], [3, 1], [1, 3], [2, 3]]), [0, 0, 1, 1]
    options = {"C": 4, "max_iter": 10**4}
    assert (
        abs(both("LinearSVC", rows, 1e-6, intercept_scaling=0.01, **options)[0].intercept_) < 0.01
    )
    made, theirs = both("LinearSVC", rows, 1e-6, intercept_scaling=5, dual=False, **options)
    same(made, theirs, "intercept_", atol=2e-2)
    close(made.model_(np.float32(rows[0])), made.decision_function(rows[0]), atol=1e-4)


def test_weights_are_copies_and_zero_is_absence():
    weight = np.random.default_rng(0).integers(0, 4, 6) + np.array([1, 0, 0, 1, 0, 0])
    for made, target in (
        (LinearSVC(random_state=0), LABELS),
        (LinearSVR(random_state=0), range(6)),
    ):
        one = made.fit(TOY, target, weight).coef_
        equal(made.fit(np.repeat(TOY, weight, 0), np.repeat(target, weight)).coef_, one)
        equal(made.fit(TOY, target, np.ones(6)).coef_, made.fit(TOY, target).coef_)


@pytest.mark.parametrize("weight", ["balanced", {"a": 5.0}], ids=str)
def test_class_weights_of_two_classes(weight):
    data = X, np.where(Y == "setosa", "a", "b")
    same(*both("LinearSVC", data, class_weight=weight, dual=False), "coef_", atol=1e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("solver", ["newton", "interior_point", "augmented_lagrangian", "sdca"])
def test_class_weights_of_three_classes_are_those_of_liblinear(solver):
    weight = np.random.default_rng(0).random(len(Y)) * 2
    loss = "squared_hinge" if solver == "newton" else "hinge"
    unlike = {"setosa": 1.0, "versicolor": 5.0, "virginica": 0.2}
    for class_weight in (unlike, dict.fromkeys(np.unique(Y), 2.0)):
        options = {"class_weight": class_weight, "loss": loss}
        ours = LinearSVC(solver=solver, random_state=0, tol=1e-5, **options).fit(X, Y, weight)
        theirs = sklearn.svm.LinearSVC(tol=1e-8, max_iter=10**6, **options).fit(X, Y, weight)
        same(ours, theirs, "coef_ intercept_", atol=1e-3)


def test_weights_may_be_set_and_made_sparse():
    ours, _ = known("LinearSVC", "scaled")
    made = LinearSVC(random_state=0).fit(X, Y)
    made.coef_, made.intercept_ = ours.coef_.copy(), ours.intercept_.copy()
    equal(made.decision_function(X), ours.decision_function(X))
    made.sparsify()
    assert scipy.sparse.issparse(made.coef_)
    for x in (X, scipy.sparse.csr_array(X)):
        close(made.decision_function(x), ours.decision_function(X), atol=1e-12)
        equal(made.predict(x), ours.predict(X))
    equal(made.densify().coef_, ours.coef_)
    made.coef_ = 0 * made.coef_
    equal(made.decision_function(X), np.broadcast_to(made.intercept_, (150, 3)))
    assert not hasattr(LinearSVC(), "coef_") and not hasattr(LinearSVC(), "intercept_")


@pytest.mark.parametrize("options, atol", [({}, 1e-3), ({"intercept_scaling": 3.0}, 1e-2)])
def test_sparse_rows_are_dense_ones(options, atol):
    """Of any kind; int64 indices too."""
    ours, _ = known("LinearSVC", "scaled", **options)
    sparse = scipy.sparse.csr_array(X)
    sparse.indices, sparse.indptr = sparse.indices.astype(np.int64), sparse.indptr.astype(np.int64)
    for rows in (sparse, scipy.sparse.dok_array(X), scipy.sparse.coo_matrix(X)):
        made = LinearSVC(random_state=0, **options).fit(rows, Y)
        same(made, ours, "coef_", atol=atol)
        close(made.decision_function(rows), ours.decision_function(X), atol=3 * atol)
    close(made.decision_function(sparse.tocsc()), ours.decision_function(X), atol=3 * atol)


def test_too_few_passes_are_told():
    options = {"C": 100.0, "tol": 1e-9, "max_iter": 1, "random_state": 0}
    for made, x, y in ((LinearSVC(loss="hinge"), X, Y), (LinearSVR(), REAL, TARGET)):
        with pytest.warns(ConvergenceWarning, match="a larger max_iter"):
            made.set_params(**options).fit(x, y)
        assert type(made.n_iter_) is int and made.n_iter_ < 10


# Pegasos.


def test_pegasos_has_parameters_of_sgd_classifier():
    ours, theirs = (inspect.signature(each).parameters for each in (Pegasos, SGDClassifier))
    # documented: no stopping criterion; the mean is the better default
    changed = {"max_iter", "average"}
    additions = {"batch_size", "progress", "probability"}
    assert set(ours) - additions <= set(theirs)
    assert all(ours[key].default == theirs[key].default for key in set(ours) - additions - changed)


@pytest.mark.parametrize("k", [2, pytest.param(3, marks=pytest.mark.long)])
def test_pegasos_comes_near_the_optimum(k):
    x, y = make_classification(200, 8, n_informative=5, n_classes=k, random_state=0)
    made = Pegasos(alpha=1e-2, max_iter=50, random_state=0).fit(x, y)
    C = 1 / (1e-2 * 200)
    best = sklearn.svm.LinearSVC(loss="hinge", C=C, tol=1e-8, max_iter=10**6).fit(x, y)
    assert primal(best, x, y, C) <= primal(made, x, y, C) < 1.01 * primal(best, x, y, C)
    assert made.coef_.shape == best.coef_.shape and made.n_iter_ >= 50


@pytest.mark.long
def test_pegasos_with_other_options():
    options = {"average": False, "shuffle": False, "fit_intercept": False, "batch_size": 8}
    last = Pegasos(loss="log_loss", random_state=0, **options).fit(X, Y)
    assert last.score(X, Y) > 0.8 and last.intercept_.tolist() == [0, 0, 0]


@pytest.mark.long
@pytest.mark.parametrize("name", ["newton", "interior_point", "augmented_lagrangian"])
def test_steps_are_counted_in_the_states(name):
    """Of all updates, whatever the evaluations are; states of older files begin to count at 0."""
    made = getattr(jaxsvm, name)(1e-4 if name == "newton" else 3.0, rounds=2.0)
    data = jaxsvm.dataset(X, np.where(Y == Y[0], 1, -1))
    run = jaxsvm.fit(made, data, jax.random.key(0), steps=3, tol=1e-30)
    assert int(run.state.solver.steps) == 6
    if name != "newton":
        kept = {k: v for k, v in run.state.solver._asdict().items() if k != "steps"}
        state = run.state._replace(solver=type(run.state.solver)(**kept))
        more = jaxsvm.fit(made, data, steps=1, tol=1e-30, state=state)
        assert int(more.state.solver.steps) == 2
    made = LinearSVC(solver=name, loss="squared_hinge", max_iter=3, tol=1e-12).fit(X, Y)
    assert made.n_iter_ == 3


def sparse_problem(n=2400, d=150, density=0.1):
    random = np.random.default_rng(8)
    x = scipy.sparse.random(n, d, density, random_state=1, format="csr", dtype=np.float32)
    x.data = random.normal(size=x.nnz).astype(np.float32)
    return x, np.where(x @ random.normal(size=d) + random.normal(size=n) > 0, "b", "a")


@pytest.mark.long
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_of_many_entries_are_packed_and_not_merged(loss):
    """Weight k is k copies, weight 0 is absence, and the optimum is LIBLINEAR's."""
    x, y = sparse_problem()
    assert x.nnz > 2**15
    weight = np.random.default_rng(2).integers(0, 4, len(y)) * 1.0
    options = {"loss": loss, "C": 0.1, "tol": 1e-5, "random_state": 0}
    ours = LinearSVC(solver="dual_descent", **options).fit(x, y, weight)
    copies = np.repeat(np.arange(len(y)), weight.astype(int))
    again = LinearSVC(solver="dual_descent", **options).fit(x[copies], y[copies])
    theirs = sklearn.svm.LinearSVC(**options | {"tol": 1e-8, "max_iter": 10**6, "dual": True})
    dense, power = np.float64(x.toarray()), 1 + (loss != "hinge")
    value = lambda made: primal(made, dense, y, 0.1, power, weight)
    best = value(theirs.fit(x, y, weight))
    for model in (ours, again):
        assert -1e-7 <= value(model) / best - 1 <= 2e-5
    assert ours.fit_.status.startswith("converged after 1 step")
    agree(ours, theirs, x, 0.01 if loss == "hinge" else 3e-3)


@pytest.mark.long
def test_arrays_of_mostly_zeros_are_trained_on_as_sparse_rows():
    x, y = sparse_problem(n=300, density=0.05)
    dense, sparse = (LinearSVC(loss="hinge", random_state=0).fit(a, y) for a in (x.toarray(), x))
    assert np.array_equal(dense.coef_, sparse.coef_) and dense.solver_ == sparse.solver_
    assert np.array_equal(dense.predict(x.toarray()), sparse.predict(x))


@pytest.mark.long
def test_a_fit_of_one_program_is_that_of_the_solver():
    x, y = X.astype(np.float32), np.where(Y == "setosa", 1, -1)
    ours = LinearSVC(loss=jaxsvm.losses.logistic, tol=1e-3, random_state=0).fit(x, y)
    assert int(ours.fit_.state.step) == 1 and ours.fit_.converged and ours.fit_.finite
    assert ours.fit_.info.loss.shape == ours.fit_.info.residual.shape == (1,)
    key, tol = jax.random.key(0), float(ours.fit_.tol)
    run = jaxsvm.fit(ours._solver, jaxsvm.dataset(x, y), key, tol=tol)
    close(ours.coef_[0], run.model.w, atol=1e-5)
    close(ours.fit_.info.loss, run.info.loss, rtol=1e-5)
    few = LinearSVC(C=1e4, tol=1e-9, max_iter=2, solver="newton", random_state=0)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 step"):
        assert not few.fit(x, y).fit_.converged


def test_rows_that_are_not_merged_have_the_form_of_merged_ones():
    x, y, weight = np.arange(10.0).reshape(5, 2), np.arange(5), np.array([1.0, 0, 2, 0, 3])
    rows, copies, group = preprocess.drop_absent(x, y, weight)
    merged, weights, of = preprocess.merge_duplicates(x, y, weight)
    assert np.array_equal(np.sort(merged), rows) and np.array_equal(np.sort(weights), copies)
    assert np.array_equal(group, [0, -1, 1, -1, 2]) and np.array_equal(of < 0, group < 0)


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 3])
def test_the_model_of_another_intercept_scaling_is_that_of_the_estimator(k):
    """Its intercept is a column of the rows in training; of several classes each has its own."""
    x, y = make_classification(60, 4, n_informative=3, n_redundant=0, n_classes=k, random_state=0)
    x = x.astype(np.float32)
    made = LinearSVC(intercept_scaling=3.0, probability=True, random_state=0).fit(x, y)
    values = jaxsvm.models.decision_values(made.model_, x[:7])
    close(values, made.decision_function(x[:7]), atol=1e-5)
    chances = made.calibrated_.predict_proba(x[:7])
    close(chances, made.predict_proba(x[:7]), atol=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("rows", "share", "C", "wanted"),
    [
        (5200, 1.0, 1.0, "augmented_lagrangian"),
        (5200, 1.0, 100.0, "interior_point"),
        (600, 0.05, 0.5, "dual_descent"),
        (600, 0.05, 30.0, "interior_point"),
        (1200, 0.05, 30.0, "augmented_lagrangian"),
        (600, 0.05, 300.0, "interior_point"),
    ],
)
def test_the_hinge_takes_a_solver_by_the_rows_and_C(rows, share, C, wanted):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 70)) * (random.random((rows, 70)) < share)
    y = x @ random.normal(size=70) + random.normal(size=rows) > 0
    x = x if share == 1 else scipy.sparse.csr_matrix(x)
    assert LinearSVC(loss="hinge", C=C, random_state=0).fit(x, y).solver_ == wanted


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("name", "form"),
    [("LinearSVC", scipy.sparse.csr_array), ("LinearSVR", np.asarray), ("linear_svm", np.asarray)],
)
def test_far_more_columns_than_rows(name, form):
    """The optimum is 1e-3 of C n: rounding of the margins to float32 alone is more than the gap."""
    x = np.random.default_rng(0).normal(size=(60, 20_000))
    y = x[:, :20].sum(axis=1) / np.sqrt(20)
    y, options = (y, {}) if name == "LinearSVR" else (np.sign(y), {"loss": "hinge"})
    if name == "linear_svm":
        data = jaxsvm.dataset(form(x), y)
        run = jaxsvm.fit(jaxsvm.linear_svm(1.0), data, jax.random.key(0))
        w, b, passes = run.model.w, run.model.b, int(run.state.solver.steps)
    else:
        made = getattr(jaxsvm.estimators, name)(**options).fit(form(x), y)
        run, w, b, passes = made.fit_, made.coef_, made.intercept_, made.n_iter_
    theirs = sklearn.svm.LinearSVR() if name == "LinearSVR" else sklearn.svm.LinearSVC(**options)
    theirs.fit(x, y)

    def objective(w, b):
        w, b = np.float64(np.ravel(w)), np.float64(np.ravel(b))[0]
        error = np.abs(y - x @ w - b) if name == "LinearSVR" else np.maximum(0, 1 - y * (x @ w + b))
        return 0.5 * (w @ w + b * b) + error.sum()

    assert run.converged and passes < 30
    assert objective(w, b) < objective(theirs.coef_, theirs.intercept_) * (1 + 1e-4)
