"""Rows that come in pieces, and rows that repeat."""

import pickle

import jax
import numpy as np
import pytest
import sklearn.svm
from beside import USUAL, by_hand, clear_rows, close, equal, primal
from sklearn.base import clone

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.estimators import SVC, BudgetedSVC, LinearSVC, Pegasos, SVMClassifier, SVMRegressor

pytestmark = USUAL


def goes_on_after_a_pickle(made, x, y):
    """Pickled between two pieces it goes on as if nothing had been."""
    again = pickle.loads(pickle.dumps(made))
    values = [each.partial_fit(x[:50], y[:50]).decision_function(x) for each in (made, again)]
    equal(*values)


@pytest.mark.long
def test_partial_fit_in_pieces():
    x, y = clear_rows(3, n=400)
    made = SVMClassifier(jaxsvm.averaged(jaxsvm.pegasos(1e-2, bias="feature")), random_state=0)
    for piece in np.array_split(np.arange(400), 8) * 3:
        made.partial_fit(x[piece], y[piece], classes=["bee", "ant", "cat"])
    assert list(made.classes_) == ["ant", "bee", "cat"]
    theirs = sklearn.svm.LinearSVC(loss="hinge", C=1 / (1e-2 * 400), max_iter=10**5).fit(x, y)
    assert made.score(x, y) > theirs.score(x, y) - 0.03
    assert int(made.fit_.state.solver.average.count[0]) == 3 * 400  # the clock ran on
    goes_on_after_a_pickle(made, x, y)


@pytest.mark.long
def test_partial_fit_of_a_budgeted_svc():
    x, y = clear_rows(3, n=400)
    made = BudgetedSVC(0.1, method="bsgd", budget=30, random_state=0)
    pieces = np.array_split(np.arange(400), 4)
    for piece in pieces * 3:
        made.partial_fit(x[piece], y[piece], classes=["bee", "ant", "cat"])
    held, first = made.model_.inner.inner, x[pieces[0]]
    assert made.fit_.state.solver.t.tolist() == [1200] * 3 and held.x.shape == (3, 30, 4)
    # The kernel is that of the first rows: gamma="scale" of later ones would change what the points
    # mean.
    gamma = 1 / (4 * first.astype(np.float32).var())
    close(made.decision_function(x), by_hand(held, x, gamma), atol=1e-3)  # float32
    assert made.score(x, y) > SVC(0.1).fit(x, y).score(x, y) - 0.04
    goes_on_after_a_pickle(made, x, y)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_partial_fit_reaches_the_optimum_of_new_numbers(loss):
    x, y = clear_rows()
    made = Pegasos(alpha=1e-2, random_state=0).partial_fit(x, y, classes=["ant", "bee"])
    made.set_params(alpha=1.0, loss=loss)
    for _ in range(40):
        made.partial_fit(x, y)
    C, power = 1 / len(x), 1 + (loss != "hinge")
    best = sklearn.svm.LinearSVC(loss=loss, C=C, tol=1e-6, max_iter=100_000).fit(x, y)
    least = primal(best, x, y, C, power)
    assert least * (1 - 1e-6) < primal(made, x, y, C, power) < 1.02 * least


@pytest.mark.long
def test_partial_fit_of_a_budgeted_svc_takes_a_new_cost():
    # Rows far apart: f(x_i) = y_i min(1, C weight_i).
    x, y = 9.0 * np.arange(20)[:, None], np.tile([0, 1], 10)
    made = BudgetedSVC(0.1, method="bsgd", gamma=1.0, budget=30, random_state=0)
    made.partial_fit(x, y, classes=[0, 1])
    close(made.decision_function(x), 0.1 * (2 * y - 1), rtol=1e-5)
    made.set_params(C=0.5).partial_fit(x[:10], y[:10]).partial_fit(x[10:], y[10:])
    close(made.decision_function(x), 0.5 * (2 * y - 1), rtol=1e-5)


@pytest.mark.long
def test_partial_fit_of_another_solver_with_new_numbers():
    x, y = clear_rows()
    key = jax.random.key(0)
    mapped = lambda lam: jaxsvm.on_features(
        jaxsvm.features.fourier(key, kernels.rbf(1.0), dim=4, features=8), jaxsvm.pegasos(lam)
    )  # each on a map of its own, which are equal
    for first, other in ((jaxsvm.pegasos(0.1), jaxsvm.pegasos(1.0)), (mapped(0.1), mapped(0.2))):
        values = []
        for then in (first, other):
            made = SVMClassifier(first, random_state=0).partial_fit(x, y, classes=["ant", "bee"])
            values.append(made.set_params(solver=then).partial_fit(x, y).decision_function(x))
        assert (values[0] != values[1]).any()


@pytest.mark.long
def test_partial_fit_of_a_regressor():
    x, _ = clear_rows(n=400)
    y = x @ [2.0, -1.0, 0.5, 0.0]
    solver = jaxsvm.averaged(jaxsvm.pegasos(1e-3, loss=losses.squared, project=False, offset=2e4))
    made = SVMRegressor(solver, random_state=0)
    for _ in range(10):
        made.partial_fit(x, y)
    assert made.score(x, y) > 0.95


def test_partial_fit_takes_pieces_of_one_class_and_is_there_for_streams_alone():
    x, y = clear_rows()
    made, one = SVMClassifier(jaxsvm.pegasos(1e-2), random_state=0), y == "ant"
    made.partial_fit(x[one], y[one], classes=["ant", "bee"]).partial_fit(x[~one], y[~one])
    exact = (
        jaxsvm.decomposition(1.0, kernels.rbf(1.0)),
        jaxsvm.kernel_pegasos(1e-2, kernels.rbf(1.0)),
    )
    for other in (SVMClassifier(), LinearSVC(), BudgetedSVC(), *map(SVMClassifier, exact)):
        assert not hasattr(other, "partial_fit")


def repeated():
    """1,000 rows of three columns of zeros and ones, and their labels."""
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (1000, 3)).astype(float)
    return x, (x.sum(axis=1) > 1) ^ (random.random(1000) < 0.1)


def test_a_pass_over_rows_that_repeat_counts_them_all():
    x, y = repeated()
    table, counts = np.unique(np.c_[x, y], axis=0, return_counts=True)
    kinds, labels = table[:, :3], table[:, 3] > 0
    made = Pegasos(alpha=1e-2, random_state=0).fit(x, y)
    best = sklearn.svm.LinearSVC(loss="hinge", C=0.1, max_iter=100_000, tol=1e-6).fit(x, y)
    assert primal(made, x, y, 0.1) < 1.02 * primal(best, x, y, 0.1)
    copies = clone(made).fit(kinds, labels, counts)
    close(copies.coef_, made.coef_, atol=1e-6)
    assert made.n_iter_ == copies.n_iter_ == 21  # 20, rounded up to whole chunks
    first = Pegasos(alpha=1e-2, random_state=0).partial_fit(x, y, classes=[False, True])
    assert int(first.fit_.state.step) == 1000
    halves = clone(made).fit(kinds, labels, counts + 0.5)  # no copies: rows of other weights
    assert int(halves.fit_.state.step) == 512


@pytest.mark.long
def test_a_budgeted_svc_of_rows_that_repeat_reaches_the_optimum():
    x, y = repeated()
    best = sklearn.svm.SVC(C=100.0, gamma=1.0).fit(x, y)
    hinge = lambda made: np.maximum(0, 1 - (2 * y - 1) * made.decision_function(x)).mean()
    made = BudgetedSVC(100.0, gamma=1.0, budget=50, random_state=0).fit(x, y)
    assert made.fit_.converged and hinge(made) < hinge(best) + 1e-3
