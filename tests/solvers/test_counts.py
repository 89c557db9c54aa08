"""What steps say that they took and found: products of rows, kernel values, steps, losses."""

import jax
import numpy as np
import pytest
import sklearn.svm

import jaxsvm
from jaxsvm import kernels
from jaxsvm.solvers.planes.cpsp import CANDIDATES

N, D = 30, 4
X = np.random.default_rng(0).normal(size=(N, D))
DATA = jaxsvm.dataset(X, np.where(X[:, 0] > 0.2, 1, -1))


def evals_of(solver):
    state = solver.init(jax.random.key(0), DATA)
    return float(jaxsvm.step(solver, state, DATA)[1].evals)


@pytest.mark.parametrize(("system", "least"), [("cholesky", 1 + 1 + D), ("cg", 1 + 1 + 1)])
def test_a_newton_step_reads_all_rows_for_its_gradient_and_its_system(system, least):
    passes = evals_of(jaxsvm.newton(0.1, system=system, rounds=1.0)) / N
    assert passes == int(passes) >= least
    if system == "cholesky":
        assert passes == least


def test_newton_counts_the_steps_of_all_updates():
    run = lambda **of: jaxsvm.fit(jaxsvm.newton(0.01, rounds=1.0, tol=1e-9), DATA, every=1, **of)
    first = run(key=jax.random.key(0), steps=2)
    assert int(first.state.solver.steps) == 2
    assert int(run(state=first.state, steps=1).state.solver.steps) == 3


def test_the_loss_of_nu_svr_is_the_mean_slack():
    """At the optimum, where the next step begins; the tube ends at the rows that are free."""
    y, C = X[:, 1] ** 2, 0.5
    theirs = sklearn.svm.NuSVR(nu=0.3, C=C, gamma=0.5, tol=1e-8).fit(X, y)
    size, away = np.abs(theirs.dual_coef_[0]), np.abs(y - theirs.predict(X))
    width = np.median(away[theirs.support_[size < 0.99 * C]])
    data = jaxsvm.dataset(X, y, task="regression")
    fit = lambda **of: jaxsvm.fit(jaxsvm.nu_svr(0.3, C, kernels.rbf(1.0), tol=1e-6), data, **of)
    loss = fit(state=fit(key=jax.random.key(0)).state, steps=1).info.loss[0]
    slack = np.mean(np.maximum(away - width, 0))
    assert slack > 0.01 and loss == pytest.approx(slack, rel=1e-3)


@pytest.mark.parametrize("factory", [jaxsvm.kernel_pegasos, jaxsvm.bsgd])
def test_a_row_of_margin_1_is_not_added(factory):
    """Of two rows that are one, with k = 1 and lam = 1: each step adds one, but for the second."""
    kept = {"budget": 2, "maintain": jaxsvm.budget.remove()} if factory is jaxsvm.bsgd else {}
    data, solver = jaxsvm.dataset([[1.0], [-1.0]], [1, -1]), factory(1.0, kernels.linear(), **kept)
    run = jaxsvm.fit(solver, data, jax.random.key(0), steps=5)
    assert float(run.model(data.x)[0]) == pytest.approx(4 / 5)


@pytest.mark.long
def test_a_new_point_is_chosen_among_candidates():
    points = 5
    rows = evals_of(jaxsvm.cpsp(0.1, kernels.rbf(1.0), points=points)) / (N + points)
    assert rows == int(rows) > CANDIDATES + 1
