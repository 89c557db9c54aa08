"""Machines with an L1 norm beside SciPy, scikit-learn, LIBLINEAR and optimality conditions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import formula
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as Liblinear

import jaxsvm
from jaxsvm import losses
from jaxsvm.estimators import GridCV, LinearSVC
from jaxsvm.solvers.primal.columns import Columns

KEY = jax.random.key(0)
RNG = np.random.default_rng(2)
N, D = 60, 12
X = RNG.normal(size=(N, D))
REAL = X[:, :4] @ [1.5, -1.0, 0.7, 0.4] + 0.4 * RNG.normal(size=N) + 0.2
Y = np.where(REAL > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 3, N).astype(float)
SYSTEMS = ("gram", "columns")
LOSSES = {
    "smooth_hinge": losses.smooth_hinge(),
    "squared_hinge": losses.squared_hinge,
    "logistic": losses.logistic,
    "squared": losses.squared,
}


def targets(name):
    return REAL if name == "squared" else Y


def fit(solver, x=X, y=Y, weight=None, tol=1e-12, steps=1, task="binary"):
    return jaxsvm.fit(solver, jaxsvm.dataset(x, y, weight, task=task), KEY, steps=steps, tol=tol)


def with_ones(x):
    return np.c_[np.asarray(x), np.ones(len(x))]


def value(v, x, y, lam, ratio=1.0, weight=None):
    """The objective of the squared hinge in NumPy."""
    share = np.ones(len(y)) / len(y) if weight is None else weight / weight.sum()
    penalty = lam * (ratio * np.abs(v).sum() + (1 - ratio) / 2 * v @ v)
    return penalty + share @ np.maximum(1 - y * (x @ v), 0) ** 2


def oracle(x, y, lam, ratio=1.0):
    """The optimum of the squared hinge by SciPy, w = p - q with p, q >= 0."""
    d = x.shape[1]

    def both(z):
        v = z[:d] - z[d:]
        slack = np.maximum(1 - y * (x @ v), 0)
        grad = -2 * x.T @ (y * slack) / len(y) + lam * (1 - ratio) * v
        total = lam * (ratio * z.sum() + (1 - ratio) / 2 * v @ v) + np.mean(slack**2)
        return total, np.r_[grad, -grad] + lam * ratio

    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 10**5, "maxfun": 10**6, "maxcor": 50}
    start, bounds = np.zeros(2 * d), [(0, None)] * 2 * d
    found = scipy.optimize.minimize(
        both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return found.x[:d] - found.x[d:]


@functools.cache
def three_sets():
    breast, label = load_breast_cancer(return_X_y=True)
    iris, kind = load_iris(return_X_y=True)
    scaled = lambda x: StandardScaler().fit_transform(x)
    return (
        (X, Y, 0.02),
        (scaled(breast), 2.0 * label - 1, 0.01),
        (scaled(iris), np.where(kind == 1, 1.0, -1.0), 0.2),
    )


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_the_optimum_of_scipy_with_its_support(number, system, x64):
    x, y, lam = three_sets()[number]
    ones = with_ones(x)
    expected = oracle(ones, y, lam)
    run = fit(jaxsvm.proximal_newton(lam, bias="feature", system=system), x, y)
    v = np.append(run.model.w, run.model.b)
    assert value(v, ones, y, lam) <= value(expected, ones, y, lam) * (1 + 1e-8)
    np.testing.assert_array_equal(v != 0, np.abs(expected) > 1e-6)
    assert 0 < np.sum(v == 0) and run.converged and "proximal_newton" in run.status


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("ratio", [0.3, 0, 1])
@pytest.mark.parametrize("bias", ["feature", "none"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_conditions_of_optimality_hold(name, ratio, bias, system, x64):
    """0 is a subgradient in each weight, in NumPy; rows of weight 0 do not count."""
    lam, loss, y = 0.03, LOSSES[name], targets(name)
    _, slope, _ = formula(loss)
    solver = jaxsvm.proximal_newton(lam, l1_ratio=ratio, loss=loss, bias=bias, system=system)
    task = "regression" if name == "squared" else "binary"
    run = fit(solver, X, y, WEIGHT, 1e-13, steps=3, task=task)
    x = with_ones(X) if bias == "feature" else X
    v = np.append(run.model.w, run.model.b) if bias == "feature" else np.asarray(run.model.w)
    grad = x.T @ (WEIGHT / WEIGHT.sum() * slope(x @ v, y)) + lam * (1 - ratio) * v
    violation = np.where(v != 0, grad + lam * ratio * np.sign(v), 0)
    violation = np.where(v == 0, np.maximum(np.abs(grad) - lam * ratio, 0), violation)
    assert np.abs(violation).max() < 1e-7
    assert float(run.info.residual[-1]) < 1e-11
    bound = jaxsvm.certificate(
        run.model, jaxsvm.dataset(X, y, WEIGHT, task=task), lam, loss, l1_ratio=ratio
    )
    assert 0 <= float(bound.gap) < 1e-8


@pytest.mark.long
def test_the_logistic_loss_is_that_of_liblinear(x64):
    C = 0.7
    expected = LogisticRegression(l1_ratio=1.0, C=C, solver="liblinear", tol=1e-12, max_iter=10**6)
    expected.fit(X, Y)
    run = fit(jaxsvm.proximal_newton(1 / (C * N), loss=losses.logistic, bias="feature"))
    np.testing.assert_allclose(run.model.w, expected.coef_[0], atol=1e-6)
    assert float(run.model.b) == pytest.approx(expected.intercept_[0], abs=1e-6)


@pytest.mark.long
def test_sparse_rows_and_dense_ones_have_one_optimum(x64):
    x = np.where(RNG.uniform(size=(N, 30)) < 0.2, RNG.normal(size=(N, 30)), 0)
    x[3], x[:, 5] = 0, 0
    label = np.where(x[:, :3].sum(axis=1) > 0, 1.0, -1.0)
    made = lambda system: jaxsvm.proximal_newton(0.01, bias="feature", system=system)
    expected = fit(made("gram"), x, label).model
    for system in SYSTEMS:
        found = fit(made(system), scipy.sparse.csr_matrix(x), label).model
        np.testing.assert_allclose(found.w, expected.w, atol=1e-9)
        assert float(found.b) == pytest.approx(float(expected.b), abs=1e-9)
    data = jaxsvm.dataset(scipy.sparse.csr_matrix(x), label)
    traced = jax.jit(
        lambda data: jaxsvm.fit(made("columns"), data, KEY, steps=1, tol=1e-12).model.w
    )
    np.testing.assert_allclose(traced(data), expected.w, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_columns_that_depend_on_each_other(system, x64):
    """Indicators of four groups, each of sum 1, and the constant; and a column twice."""
    group = RNG.integers(0, 5, (200, 4))
    x = np.concatenate([np.eye(5)[g] for g in group.T], axis=1)
    x = np.c_[x, x[:, :1]]
    y = np.where(x @ RNG.normal(size=21) + 0.5 * RNG.normal(size=200) > 0, 1.0, -1.0)
    lam = 1 / 200
    run = fit(jaxsvm.proximal_newton(lam, bias="feature", system=system), x, y, tol=1e-10)
    ones = with_ones(x)
    best = value(oracle(ones, y, lam), ones, y, lam)
    v = np.append(run.model.w, run.model.b)
    assert value(v, ones, y, lam) == pytest.approx(best, rel=1e-8) and run.converged


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_strong_penalty_leaves_nothing_and_one_below_the_first_column(system, x64):
    largest = np.abs(X.T @ Y * 2 / N).max()
    at = lambda lam: np.asarray(fit(jaxsvm.proximal_newton(lam, system=system), tol=1e-4).model.w)
    assert (at(largest * 1.0001) == 0).all()
    np.testing.assert_array_equal(np.flatnonzero(at(largest * 0.999)), [np.abs(X.T @ Y).argmax()])


@pytest.mark.long
def test_working_sets_take_columns_of_equal_violations(x64):
    """All columns are alike: none of them is the first."""
    y = np.where(np.arange(600) % 2, 1.0, -1.0)
    run = fit(jaxsvm.proximal_newton(1e-4), np.eye(600), y, tol=1e-8)
    # each weight alone: min lam |w| + (1 - w)^2 / n
    np.testing.assert_allclose(run.model.w, y * (1 - 1e-4 * 600 / 2), rtol=1e-6)
    one = fit(jaxsvm.proximal_newton(0.1, system="columns"), [[1.0], [-1.0], [2.0]], [1, -1, 1])
    both = fit(jaxsvm.proximal_newton(0.1, system="gram"), [[1.0], [-1.0], [2.0]], [1, -1, 1])
    assert float(both.model.w[0]) > 0.9
    np.testing.assert_allclose(one.model.w, both.model.w, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_steps_that_find_no_descent_do_not_end_a_run(system, x64):
    """Few rows have curvature: whole steps of the model are far too long."""
    random = np.random.default_rng(4)
    x = random.normal(size=(15, 40))
    y = np.where(x[:, 0] + 0.3 * random.normal(size=15) > 0, 1.0, -1.0)
    loss = losses.smooth_hinge(0.5)
    solver = jaxsvm.proximal_newton(0.01, loss=loss, system=system)
    run = fit(solver, x, y, tol=1e-6, steps=3)
    assert run.converged
    bound = jaxsvm.certificate(run.model, jaxsvm.dataset(x, y), 0.01, loss, l1_ratio=1.0)
    assert float(bound.gap) <= 2e-6 * float(bound.primal)
    far = jaxsvm.proximal_newton(0.01, loss=losses.logistic, system=system)
    data = jaxsvm.dataset([[1.0], [-1.0], [1.0]], [1, -1, -1])
    start = far.init(KEY, data)._replace(v=jnp.array([40.0]))
    expected = jaxsvm.fit(far, data, KEY, steps=1, tol=1e-10).model.w
    assert 0 < float(expected[0]) < 1
    np.testing.assert_allclose(jax.jit(far.update)(start, data)[0].v, expected, rtol=1e-2)


@pytest.mark.long
def test_certificates_are_finite_at_any_lam():
    x, y = [[1.0, 0.3], [-1.0, 0.2], [2.0, -0.7]], [1, -1, 1]
    data, model = jaxsvm.dataset(x, y), jaxsvm.models.Linear(jnp.array([0.5, 0.1]), jnp.zeros(()))
    for lam in np.linspace(0.01, 0.2, 200):
        gap = jaxsvm.certificate(model, data, float(lam), losses.logistic, l1_ratio=1.0).gap
        assert 0.1 < float(gap) < 1


@pytest.mark.long
def test_a_smooth_weight_that_is_0_has_its_derivative(x64):
    data = jaxsvm.dataset([[1.0], [-1.0]], [1.5, -1.5], task="regression")

    def b(t, ratio):
        w = jnp.array([(1.5 - 0.1 * ratio) / (1 + 0.1 * (1 - ratio))])
        rows, zero = data._replace(y=data.y + t), jnp.array(0.0)
        solution = jaxsvm.implicit.linear_solution
        return solution(w, zero, rows, 0.1, losses.squared, "free", l1_ratio=ratio)[1]

    for ratio in (0.0, 0.5):
        assert float(jax.jit(jax.grad(b))(0.0, ratio)) == pytest.approx(1.0)
    data = jaxsvm.dataset(np.c_[X[:, :2], np.zeros(N)], Y)

    def third(t, ratio):
        rows = data._replace(x=data.x.at[0, 2].add(t))
        solver = jaxsvm.proximal_newton(0.1, l1_ratio=ratio)
        return jaxsvm.fit(solver, rows, KEY, steps=1, tol=1e-13).model.w[2]

    plain = jax.jit(third)
    slope = float(plain(1e-5, 0.0) - plain(-1e-5, 0.0)) / 2e-5
    assert abs(slope) > 1e-3
    assert float(jax.jit(jax.grad(third))(0.0, 0.0)) == pytest.approx(slope, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("number", [1, 2])
def test_float32_has_the_objective_and_the_support(number, system):
    x, y, lam = three_sets()[number]
    ones = with_ones(x)
    run = fit(
        jaxsvm.proximal_newton(lam, bias="feature", system=system),
        x.astype(np.float32),
        y,
        tol=1e-5,
    )
    v, expected = np.append(run.model.w, run.model.b).astype(float), oracle(ones, y, lam)
    assert value(v, ones, y, lam) <= value(expected, ones, y, lam) * (1 + 1e-7)
    np.testing.assert_array_equal(v != 0, np.abs(expected) > 1e-6)
    data = jaxsvm.dataset(x.astype(np.float32), y)
    bound = jaxsvm.certificate(run.model, data, lam, losses.squared_hinge, l1_ratio=1.0)
    assert float(bound.primal) - value(expected, ones, y, lam) <= float(bound.gap)
    assert float(bound.gap) <= 1e-4 * float(bound.primal)


@pytest.mark.long
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 6), st.integers(-3, 3))
@settings(max_examples=25, deadline=None)
def test_the_gap_is_a_bound_at_any_point(seed, n, d, scale):
    """Of any weights, for any rows: the objective less the gap is below the optimum."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(n, d)) * 10.0**scale, np.arange(n) % 2 * 2 - 1.0
    lam, ratio, v = 0.1, float(random.choice([1.0, 0.4])), random.normal(size=d)
    with jax.enable_x64(True):
        model = jaxsvm.models.Linear(jnp.asarray(v), jnp.zeros(()))
        bound = jaxsvm.certificate(
            model, jaxsvm.dataset(x, y, task="binary"), lam, losses.squared_hinge, l1_ratio=ratio
        )
    best = value(oracle(x, y, lam, ratio), x, y, lam, ratio)
    assert float(bound.primal) == pytest.approx(value(v, x, y, lam, ratio), rel=1e-12)
    assert float(bound.dual) <= best * (1 + 1e-9) + 1e-12


def score(lam=0.03, ratio=0.7, x=X, weight=None, system=None, loss=losses.squared_hinge):
    data = jaxsvm.dataset(X, Y, np.ones(N))
    data = data._replace(x=x, weight=data.weight if weight is None else weight)
    solver = jaxsvm.proximal_newton(lam, l1_ratio=ratio, loss=loss, bias="feature", system=system)
    model = jaxsvm.fit(solver, data, KEY, steps=2, tol=1e-14).model
    return jnp.sum(jnp.tanh(model(jnp.asarray(X[:7] + 0.1))))


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_derivatives_are_those_of_the_exact_solution(system, x64):
    direction = np.random.default_rng(5).normal(size=X.shape)
    along = {
        "lam": (lambda t: score(lam=t, system=system), 0.03),
        "lam, lasso": (lambda t: score(lam=t, ratio=1.0, system=system), 0.03),
        "l1_ratio": (lambda t: score(ratio=t, system=system), 0.7),
        "rows": (lambda t: score(x=jnp.asarray(X) + t * direction, system=system), 0.0),
        "weights": (
            lambda t: score(weight=1 + t * jnp.asarray(direction[:, 0]), system=system),
            0.0,
        ),
    }
    for name, (fn, at) in along.items():
        slope = float(fn(at + 1e-6) - fn(at - 1e-6)) / 2e-6
        assert float(jax.grad(fn)(at)) == pytest.approx(slope, rel=2e-5, abs=1e-8), name
        assert float(jax.jvp(fn, (at,), (1.0,))[1]) == pytest.approx(slope, rel=2e-5, abs=1e-8), (
            name
        )
    second = jax.grad(jax.grad(lambda t: score(lam=t, loss=losses.logistic, system=system)))
    first = jax.grad(lambda t: score(lam=t, loss=losses.logistic, system=system))
    slope = float(first(0.03 + 1e-5) - first(0.03 - 1e-5)) / 2e-5
    assert float(second(0.03)) == pytest.approx(slope, rel=1e-4)


@pytest.mark.long
def test_weights_of_zero_have_no_derivatives_and_sparse_rows_have_the_same(x64):
    def weights(lam, x):
        return fit(jaxsvm.proximal_newton(lam, bias="feature"), x, tol=1e-13).model.w

    w = np.asarray(weights(0.05, X))
    dense = np.asarray(jax.jacobian(lambda lam: weights(lam, X))(0.05))
    assert (dense[w == 0] == 0).all() and (dense[w != 0] != 0).all() and 0 < np.sum(w == 0) < D
    sparse = jax.jacobian(lambda lam: weights(lam, scipy.sparse.csr_matrix(X)))(0.05)
    np.testing.assert_allclose(sparse, dense, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("columns", "sparse", "by_columns"),
    [(255, True, False), (256, True, True), (511, False, False), (512, False, True)],
)
def test_rows_of_many_columns_go_by_columns(columns, sparse, by_columns):
    data = jaxsvm.dataset(np.eye(8, columns, dtype=np.float32), [1, -1] * 4, sparse=sparse)
    solver = jaxsvm.proximal_newton(0.1, bias="feature")  # whose constant is a column, too
    assert isinstance(solver.layout(data).x, Columns) is by_columns


@pytest.mark.long
def test_traced_sparse_rows_keep_the_matrix_up_to_512_columns():
    # their columns would be dense
    data = jaxsvm.dataset(np.eye(8, 300, dtype=np.float32), [1, -1] * 4, sparse=True)
    solver = jaxsvm.proximal_newton(0.1, bias="feature", tol=1e-6)
    update = lambda data: solver.update(solver.init(KEY, data), data)
    program = str(jax.make_jaxpr(update)(data))
    assert "cholesky" in program
    alone = jaxsvm.fit(solver, data, KEY, steps=1).model
    inside = solver.model(jax.jit(update)(data)[0])
    np.testing.assert_allclose(inside.w, alone.w, atol=1e-5)


def test_a_path_goes_on_from_the_solution_before(x64):
    data = jaxsvm.dataset(X, Y)
    first = jaxsvm.fit(jaxsvm.proximal_newton(0.05), data, KEY, steps=1, tol=1e-10)
    state = first.state._replace(solver=first.state.solver.restart())
    assert int(first.state.solver.steps) > 1 and int(state.solver.steps) == 0
    update = jax.jit(lambda state: jaxsvm.proximal_newton(0.049, tol=1e-10).update(state, data))
    warm, _ = update(state.solver)
    cold = jaxsvm.fit(jaxsvm.proximal_newton(0.049), data, KEY, steps=1, tol=1e-10)
    np.testing.assert_allclose(warm.v, cold.model.w, atol=1e-8)
    again, _ = update(warm)
    assert 0 < int(warm.steps) <= int(again.steps) and int(warm.steps) < int(
        cold.state.solver.steps
    )


def primal(machine, x, y, C, weight=1.0):
    """|w|_1 + |b| / intercept_scaling + C sum of squared hinges, of two classes."""
    coef, b = machine.coef_[0], float(machine.intercept_[0])
    slack = np.maximum(1 - y * (x @ coef + b), 0)
    size = np.abs(coef).sum() + abs(b) / machine.intercept_scaling
    return size + C * np.sum(weight * slack**2)


@pytest.mark.parametrize(("C", "scaling"), [(0.01, 1.0), (0.1, 3.0), (1.0, 1.0)])
@pytest.mark.parametrize("sparse", [False, True])
def test_linear_svc_is_that_of_liblinear(C, scaling, sparse):
    x, y, _ = three_sets()[1]
    options = {"penalty": "l1", "dual": False, "C": C, "intercept_scaling": scaling}
    theirs = Liblinear(**options, tol=1e-8, max_iter=10**5).fit(x, y)
    ours = LinearSVC(**options).fit(scipy.sparse.csr_matrix(x) if sparse else x, y)
    assert primal(ours, x, y, C) == pytest.approx(primal(theirs, x, y, C), rel=2e-5)
    np.testing.assert_array_equal(ours.coef_ != 0, theirs.coef_ != 0)
    assert ours.solver_ == "proximal_newton" and ours.score(x, y) > 0.9


@pytest.mark.long
def test_linear_svc_with_weights_classes_and_a_scaled_intercept():
    x, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    options = {"penalty": "l1", "dual": False, "C": 0.3, "intercept_scaling": 5.0}
    options["class_weight"] = {0: 1.0, 1: 2.0, 2: 0.5}
    theirs = Liblinear(**options, tol=1e-9, max_iter=10**6).fit(x, y, weight)
    ours = LinearSVC(**options, tol=1e-7).fit(x, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=5e-3)


@pytest.mark.long
def test_what_scikit_learn_builds_on_it():
    x, y, _ = three_sets()[1]
    machine = LinearSVC(penalty="l1", dual=False, C=0.05)
    chosen = SelectFromModel(machine).fit(x, y)
    assert 0 < chosen.get_support().sum() < x.shape[1]
    assert RFE(machine, n_features_to_select=5).fit(x, y).support_.sum() == 5
    assert cross_val_score(make_pipeline(SelectFromModel(machine), LinearSVC()), x, y).mean() > 0.9
    few, more = (
        LinearSVC(penalty="elasticnet", l1_ratio=ratio, C=0.05).fit(x, y).coef_
        for ratio in (1.0, 0.1)
    )
    assert 0 < (few != 0).sum() < (more != 0).sum()
    np.testing.assert_allclose(few, machine.fit(x, y).coef_, atol=1e-4)
    path = GridCV(LinearSVC(penalty="l1"), {"C": [0.01, 0.1]}, cv=3).fit(x, y)
    assert path.best_estimator_.solver_ == "proximal_newton" and path.scores_.shape == (2, 3)
    with pytest.raises(ValueError, match="Unsupported set of arguments"):
        LinearSVC(penalty="l1", loss="hinge").fit(x, y)
