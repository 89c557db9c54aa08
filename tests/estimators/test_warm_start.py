"""`warm_start`: a fit that begins at the last solution ends at that of a cold one, sooner."""

import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
from beside import USUAL, close, primal, values
from sklearn.base import RegressorMixin, clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.preprocessing import StandardScaler

import jaxsvm
from jaxsvm.estimators import LinearSVC, LinearSVR, Pegasos, SVMClassifier

pytestmark = USUAL

X, CLASSES = make_classification(
    400, 10, n_informative=6, n_classes=3, n_clusters_per_class=1, random_state=0
)
NAMES = np.array(["ant", "bee", "cat"])[CLASSES]
REAL, TARGET = load_diabetes(return_X_y=True)
REAL, TARGET = StandardScaler().fit_transform(REAL), (TARGET - TARGET.mean()) / TARGET.std()


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "made, k, atol",
    [
        (LinearSVC(), 3, 1e-3),
        (LinearSVR(epsilon=0.1), 2, 2e-2),
        (LinearSVC(loss="hinge", class_weight="balanced"), 3, 0.1),
        (LinearSVC(loss="hinge", intercept_scaling=2.0), 2, 0.1),
        (LinearSVC(loss="hinge", solver="dual_descent", tol=1e-5), 3, 5e-2),
        (LinearSVC(penalty="l1"), 2, 5e-3),
        (LinearSVC(multi_class="crammer_singer", tol=1e-5), 3, 5e-2),
        (LinearSVR(loss="squared_epsilon_insensitive"), 2, 1e-3),
        (LinearSVR(), 2, 2e-2),
    ],
)
def test_another_cost_takes_fewer_iterations_to_the_same_solution(made, k, atol):
    x, y = (REAL, TARGET) if isinstance(made, RegressorMixin) else (X, NAMES)
    y = NAMES == "cat" if len(x) == len(X) and k == 2 else y
    C = made.C * (1.01 if getattr(made, "intercept_scaling", 1) == 2 else 1.1)
    warm = clone(made).set_params(random_state=0, warm_start=True).fit(x, y)
    first = np.max(warm.n_iter_), warm.fit_.info.evals.sum()
    expected = values(clone(made).set_params(random_state=0, C=C).fit(x, y), x)
    warm.set_params(C=C).fit(x, y)
    again = np.max(warm.n_iter_), warm.fit_.info.evals.sum()
    assert again[0] < first[0] and again[1] < first[1] or again == first == (1, first[1])
    close(values(warm, x), expected, atol=atol)
    order = np.random.default_rng(0).permutation(len(x))
    warm.fit(x[order], y[order])
    assert np.max(warm.n_iter_) <= 4  # there already
    close(values(warm, x), expected, atol=atol)


def test_stochastic_machines_go_on():
    sign, C = np.where(CLASSES == 2, 1, -1), 1 / (1.1e-2 * len(X))
    objective = lambda machine: primal(machine, X, sign, C) / (C * len(X))
    best = objective(LinearSVC(loss="hinge", C=C).fit(X, sign))
    warm = Pegasos(alpha=1e-2, max_iter=10, random_state=0, warm_start=True).fit(X, sign)
    for _ in range(3):
        warm.set_params(alpha=1.1e-2).fit(X, sign)
    cold = Pegasos(alpha=1.1e-2, max_iter=10, random_state=0).fit(X, sign)
    assert objective(warm) - best < min(0.5 * (objective(cold) - best), 1e-2 * best)
    # the counter of the steps goes on
    machine = SVMClassifier(jaxsvm.pegasos(1e-2), steps=50, random_state=0, warm_start=True)
    state = machine.fit(X, sign).fit(X, sign).fit_.state
    leaves = jax.tree.leaves(state.solver)
    assert int(state.step) == 50 and [leaf for leaf in leaves if leaf.dtype == np.int32] == [100]


def on_map(seed):
    features, rbf = jaxsvm.features, jaxsvm.kernels.rbf(0.1)
    phi = features.fourier(jax.random.key(seed), rbf, dim=10, features=64)
    return jaxsvm.on_features(phi, jaxsvm.pegasos(1e-2))


WEIGHT = np.random.default_rng(0).uniform(0.5, 2, len(X))
FIRST, ALL, SPARSE = (X[:390], NAMES[:390]), (X, NAMES), (scipy.sparse.csr_array(X), NAMES, WEIGHT)
DUAL = LinearSVC(solver="dual_descent", C=0.01, random_state=0)
MAPPED = SVMClassifier(on_map(0), steps=100, random_state=0)
ANEW = {  # a machine, its first rows, what is changed, its other rows, the distance to a cold fit
    "Newton's weights on other rows": (LinearSVC(), FIRST, {}, ALL, 1e-4),
    "weights, sparse rows, a pickle": (LinearSVC(), ALL, {}, SPARSE, 1e-4),
    "another solver": (LinearSVC(), ALL, {"penalty": "l1"}, ALL, 5e-3),
    "a dual machine on other rows": (DUAL, FIRST, {}, ALL, 0),
    "another feature map": (MAPPED, ALL, {"solver": on_map(1)}, ALL, 0),
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("made", "first", "change", "then", "atol"), ANEW.values(), ids=ANEW)
def test_it_ends_where_a_cold_one_does(made, first, change, then, atol):
    """To the bit where it begins anew."""
    warm = pickle.loads(pickle.dumps(clone(made).set_params(warm_start=True).fit(*first)))
    steps, cold = warm.n_iter_, clone(made).set_params(**change).fit(*then)
    warm.set_params(**change).fit(*then)
    close(warm.decision_function(X), cold.decision_function(X), atol=atol, rtol=0)
    assert warm.n_iter_ < steps or first is not FIRST or atol == 0
