"""`warm_start`: a fit that begins at the last solution ends at that of a cold one, sooner."""

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm.estimators import LinearSVC, LinearSVR, Pegasos, SVMClassifier, SVMRegressor

pytestmark = [
    pytest.mark.usefixtures("usual_promotion"),
    pytest.mark.filterwarnings("ignore:the ranges of the columns"),
]

X, CLASSES = make_classification(
    400, 10, n_informative=6, n_classes=3, n_clusters_per_class=1, random_state=0
)
NAMES = np.array(["ant", "bee", "cat"])[CLASSES]
REAL, TARGET = load_diabetes(return_X_y=True)
REAL, TARGET = StandardScaler().fit_transform(REAL), (TARGET - TARGET.mean()) / TARGET.std()


def values(estimator, x):
    return getattr(estimator, "decision_function", estimator.predict)(x)


def rows(estimator, k):
    return (
        (REAL, TARGET)
        if isinstance(estimator, LinearSVR | SVMRegressor)
        else ((X, NAMES) if k == 3 else (X, NAMES == "cat"))
    )


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    "made, k, atol",
    [
        (LinearSVC(), 3, 1e-3),
        (LinearSVC(loss="hinge", class_weight="balanced"), 3, 0.1),
        (LinearSVR(epsilon=0.1), 2, 2e-2),
        (LinearSVC(loss="hinge", intercept_scaling=2.0), 2, 0.1),
        (LinearSVC(loss="hinge", solver="dual_descent", tol=1e-5), 3, 5e-2),
        (LinearSVC(penalty="l1"), 2, 5e-3),
        (LinearSVC(multi_class="crammer_singer", tol=1e-5), 3, 5e-2),
        (LinearSVR(loss="squared_epsilon_insensitive"), 2, 1e-3),
        (LinearSVR(), 2, 2e-2),
    ],
)
def test_another_cost_takes_fewer_iterations_to_the_same_solution(made, k, atol):
    x, y = rows(made, k)
    C = made.C * (1.01 if getattr(made, "intercept_scaling", 1) == 2 else 1.1)
    warm = clone(made).set_params(random_state=0, warm_start=True).fit(x, y)
    first = np.max(warm.n_iter_), warm.fit_.info.evals.sum()
    expected = values(clone(made).set_params(random_state=0, C=C).fit(x, y), x)
    warm.set_params(C=C).fit(x, y)
    again = np.max(warm.n_iter_), warm.fit_.info.evals.sum()
    assert again[0] < first[0] and again[1] < first[1] or again == first == (1, first[1])
    np.testing.assert_allclose(values(warm, x), expected, atol=atol)
    order = np.random.default_rng(0).permutation(len(x))
    warm.fit(x[order], y[order])
    assert np.max(warm.n_iter_) <= 4  # there already
    np.testing.assert_allclose(values(warm, x), expected, atol=atol)


def objective(machine, x, sign):
    slack = np.maximum(0, 1 - sign * (x @ machine.coef_[0] + machine.intercept_[0]))
    square = (machine.coef_**2).sum() + (machine.intercept_**2).sum()
    return machine.alpha / 2 * square + slack.mean()


def test_stochastic_machines_go_on():
    sign = np.where(CLASSES == 2, 1, -1)
    exact = LinearSVC(loss="hinge", C=1 / (1.1e-2 * len(X))).fit(X, sign)
    exact.alpha = 1.1e-2
    best = objective(exact, X, sign)
    warm = Pegasos(alpha=1e-2, max_iter=10, random_state=0, warm_start=True).fit(X, sign)
    gaps = []
    for _ in range(3):
        warm.set_params(alpha=1.1e-2).fit(X, sign)
        gaps.append(objective(warm, X, sign) - best)
    cold = Pegasos(alpha=1.1e-2, max_iter=10, random_state=0).fit(X, sign)
    assert gaps[-1] < 0.5 * (objective(cold, X, sign) - best) and gaps[-1] < 1e-2 * best
    # the counter of the steps goes on
    machine = SVMClassifier(jaxsvm.pegasos(1e-2), steps=50, random_state=0, warm_start=True)
    state = machine.fit(X, sign).fit(X, sign).fit_.state
    leaves = jax.tree.leaves(state.solver)
    assert int(state.step) == 50 and [leaf for leaf in leaves if leaf.dtype == np.int32] == [100]


def test_newton_begins_at_its_weights_on_other_rows():
    machine = LinearSVC(warm_start=True).fit(X[:390], NAMES[:390])
    steps = machine.n_iter_
    machine.fit(X, NAMES)
    assert machine.n_iter_ < steps
    expected = LinearSVC().fit(X, NAMES).decision_function(X)
    np.testing.assert_allclose(machine.decision_function(X), expected, atol=1e-4)
    # a dual machine begins anew
    made = LinearSVC(solver="dual_descent", random_state=0, warm_start=True)
    machine = clone(made).fit(X[:390], NAMES[:390]).fit(X, NAMES)
    cold = clone(made).fit(X, NAMES)
    np.testing.assert_array_equal(machine.decision_function(X), cold.decision_function(X))


def test_weights_sparse_rows_and_pickles():
    y = NAMES
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    machine = LinearSVC(warm_start=True).fit(X, y)
    machine = pickle.loads(pickle.dumps(machine))
    machine.fit(scipy.sparse.csr_array(X), y, weight)
    cold = LinearSVC().fit(X, y, weight)
    np.testing.assert_allclose(machine.decision_function(X), cold.decision_function(X), atol=1e-4)


def test_another_solver_or_feature_map_begins_anew():
    machine = LinearSVC(warm_start=True).fit(X, NAMES)
    machine.set_params(penalty="l1").fit(X, NAMES)
    cold = LinearSVC(penalty="l1").fit(X, NAMES)
    np.testing.assert_allclose(machine.decision_function(X), cold.decision_function(X), atol=5e-3)

    def on_map(seed):
        phi = jaxsvm.features.fourier(
            jax.random.key(seed), jaxsvm.kernels.rbf(0.1), dim=10, features=64
        )
        return jaxsvm.on_features(phi, jaxsvm.pegasos(1e-2))

    made = SVMClassifier(on_map(0), steps=100, random_state=0, warm_start=True)
    warm = clone(made).fit(X, NAMES).set_params(solver=on_map(1)).fit(X, NAMES)
    cold = clone(made).set_params(solver=on_map(1)).fit(X, NAMES)
    np.testing.assert_array_equal(warm.decision_function(X), cold.decision_function(X))


@pytest.mark.parametrize("made", [LinearSVC(warm_start=True), Pegasos(warm_start=True)])
def test_other_classes_and_columns_are_refused(made):
    machine = clone(made).fit(X, NAMES)
    before = machine.decision_function(X)
    with pytest.raises(ValueError, match="10 columns and the classes .* have 9 columns"):
        machine.fit(X[:, :9], NAMES)
    with pytest.raises(ValueError, match=r"\['ant', 'bee', 'cat'\].*\['ant', 'bee'\].*set warm"):
        machine.fit(X[NAMES != "cat"], NAMES[NAMES != "cat"])
    np.testing.assert_array_equal(machine.decision_function(X), before)  # as it was
    # as in scikit-learn
    theirs = sklearn.linear_model.SGDClassifier(warm_start=True).fit(X, NAMES)
    with pytest.raises(ValueError):
        theirs.fit(X[NAMES != "cat"], NAMES[NAMES != "cat"])


@pytest.mark.parametrize(
    "made, named",
    [
        (LinearSVC(loss="hinge", solver="interior_point"), "interior_point"),
        (LinearSVC(solver="sdca"), "this solver"),
        (SVMClassifier(jaxsvm.ocas(1e-2)), "this solver"),
        (SVMRegressor(jaxsvm.nu_svr(0.5, 1.0, jaxsvm.kernels.linear())), "this solver"),
        (SVMClassifier(jaxsvm.averaged(jaxsvm.sdca(1.0))), "this solver"),
        (SVMClassifier(jaxsvm.bsca(1.0, jaxsvm.kernels.rbf(1.0), budget=10)), "this solver"),
    ],
)
def test_solvers_that_cannot_are_refused(made, named):
    x, y = rows(made, 2)
    with pytest.raises(ValueError, match=f"{named} cannot: set warm_start=False"):
        made.set_params(warm_start=True).fit(x, y)
