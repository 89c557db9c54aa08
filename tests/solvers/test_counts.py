"""Products of rows and kernel values that steps say they took."""

import jax
import numpy as np
import pytest

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


@pytest.mark.long
def test_a_new_point_is_chosen_among_candidates():
    points = 5
    rows = evals_of(jaxsvm.cpsp(0.1, kernels.rbf(1.0), points=points)) / (N + points)
    assert rows == int(rows) > CANDIDATES + 1
