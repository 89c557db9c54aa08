"""Gradient search: derivatives against differences of LIBSVM's and LIBLINEAR's risks, searches
against grids of one width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import listen
from sklearn.svm import SVC, SVR, LinearSVC

import jaxsvm
from jaxsvm import features, kernels, losses, select
from jaxsvm.loops import gradient_search

KEY = jax.random.key(0)
N, D, USEFUL = 120, 8, 3
START = {"C": 1.0, "gamma": np.full(D, 0.1)}


def rows(n=N, seed=0):
    """Three columns decide, five are noise."""
    x = np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)
    return x, np.where(x[:, 0] * x[:, 1] + x[:, 2] > 0, 1, -1)


X, Y = rows()
DATA = jaxsvm.dataset(X, Y)
FOLD = np.arange(N) % 3


def machine(C, gamma):
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def call(maker=machine, data=DATA, **options):
    return select(maker, data, KEY, search="gradient", progress=False, **options)


def problem(maker, data, **starts):
    starts = {name: np.asarray(a, float) for name, a in starts.items()}
    return gradient_search.Problem(maker, starts, data, FOLD.astype(np.int32), 3, KEY, None, None)


def slopes_of(problem):
    """The risk and its derivatives at the start, and the logarithms of the start."""
    theta = np.log(np.concatenate([np.ravel(a) for a in problem.starts.values()]))
    with jax.enable_x64(True):
        return gradient_search._risk_function(problem)(0 * theta), theta


def differences(risk, theta, h=1e-4):
    return np.array(
        [(risk(theta + h * e) - risk(theta - h * e)) / (2 * h) for e in np.eye(len(theta))]
    )


def out_of_fold(fit_on, x, loss):
    """The mean loss of models trained without a fold, by rows."""
    values = np.zeros(N)
    for f in range(3):
        values[f == FOLD] = fit_on(f != FOLD)(x[f == FOLD])
    return loss(values).mean()


def svc(x, y, C):
    """LIBSVM's machine with gamma 1, its free coefficients solved for in float64: its kernel rows
    are in float32."""
    kernel = lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1))
    rough = SVC(C=C, gamma=1.0, tol=1e-8).fit(x, y)
    coef = np.zeros(len(y))
    coef[rough.support_] = rough.dual_coef_[0]
    size, K = np.abs(coef), kernel(x, x)
    free = (size > 0) & (size < C)
    coef = np.where(free, 0, coef)
    m = free.sum()
    matrix = np.block(
        [[K[np.ix_(free, free)], np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]]
    )
    end = np.linalg.solve(matrix, np.append((y - K @ coef)[free], -coef.sum()))
    coef[free], b = end[:-1], end[-1]
    margin = y * (K @ coef + b)
    assert (y * coef)[free].min() > 0 and np.abs(coef).max() <= C  # the optimality conditions
    assert margin[size == 0].min() >= 1 and margin[size == C].max() <= 1
    return lambda rows: kernel(rows, x) @ coef + b


def logistic(values):
    return np.logaddexp(0, -Y * values)


@pytest.mark.long
@pytest.mark.parametrize("C, gamma", [(0.7, 0.3), (20.0, 0.05)])
def test_derivatives_are_differences_of_risks_of_libsvm(C, gamma):
    """In log C, and in the logarithm of one gamma a column."""
    gammas = gamma * np.geomspace(0.3, 3, D)

    def risk(theta):
        x = X.astype(float) * np.exp(theta[1:] / 2)
        fit_on = lambda train: svc(x[train], Y[train], np.exp(theta[0]))
        return out_of_fold(fit_on, x, logistic)

    (value, slope), theta = slopes_of(problem(machine, DATA, C=C, gamma=gammas))
    want = differences(risk, theta)
    assert value == pytest.approx(risk(theta), rel=1e-6)
    np.testing.assert_allclose(slope, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
    assert np.abs(want).min() > 0


@pytest.mark.long
def test_derivatives_of_regression_with_weights():
    """In C, the tube and one gamma for all columns, against LIBSVM's SVR."""
    y, weight = np.tanh(X[:, 0] + X[:, 1] ** 2 / 2), np.where(np.arange(N) % 7 == 0, 2.0, 1.0)
    data = jaxsvm.dataset(X, y, weight, task="regression")
    maker = lambda C, eps, gamma: jaxsvm.decomposition(
        C, kernels.rbf(gamma=gamma), loss=losses.eps_insensitive(eps)
    )

    def risk(theta):
        C, eps, gamma = np.exp(theta)
        fit_on = lambda t: (
            SVR(C=C, epsilon=eps, gamma=gamma, tol=1e-10).fit(X[t], y[t], weight[t]).predict
        )
        return out_of_fold(fit_on, X, lambda values: (values - y) ** 2 * weight) * N / weight.sum()

    (value, slope), theta = slopes_of(problem(maker, data, C=2.0, eps=0.1, gamma=0.2))
    want = differences(risk, theta)
    assert value == pytest.approx(risk(theta), rel=1e-5)
    np.testing.assert_allclose(slope, want, atol=1e-3 * np.abs(want).max())


@pytest.mark.long
def test_derivatives_of_a_linear_machine():
    """Newton's method on the squared hinge, against LIBLINEAR."""
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.3 > 0, 1, -1)
    data = jaxsvm.dataset(X, y)

    def risk(theta):
        def fit_on(train):
            C = 1 / (np.exp(theta[0]) * train.sum())
            model = LinearSVC(C=C, dual=False, fit_intercept=False, tol=1e-12, max_iter=10000)
            return model.fit(X[train].astype(float), y[train]).decision_function

        return out_of_fold(fit_on, X.astype(float), lambda values: np.logaddexp(0, -y * values))

    (value, slope), theta = slopes_of(problem(jaxsvm.newton, data, lam=0.1))
    assert value == pytest.approx(risk(theta), rel=1e-5)
    np.testing.assert_allclose(slope, differences(risk, theta), rtol=1e-3)


def test_smooth_losses():
    values, y = np.array([[0.3, -1.0, 2.0], [0.0, 1.0, 0.5]]), np.array([2.0, 0.0])
    got = gradient_search._smooth_losses(
        jnp.asarray(values, jnp.float32), jnp.asarray(y, jnp.float32), 3
    )
    want = np.log(np.exp(values).sum(1)) - values[[0, 1], [2, 0]]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.fixture(scope="module")
def found():
    return call(**START)


@pytest.mark.long(but=1)
def test_widths_of_columns_beat_one_width(found):
    grid = select(
        machine, DATA, KEY, C=np.logspace(-1, 3, 5), gamma=np.logspace(-2.5, 0.5, 5), progress=False
    )
    x, y = rows(2000, seed=1)
    error = lambda model: np.mean((np.asarray(model(x)) > 0) != (y > 0))
    assert error(found.model) < 0.6 * error(grid.model)
    assert found.table.mean[1] < grid.table.mean.min() < found.table.mean[0]
    gamma = found.best["gamma"]
    assert gamma.shape == (D,) and gamma[:USEFUL].min() > 10 * np.median(gamma[USEFUL:])


def test_the_result_is_that_of_libsvm_at_the_point(found):
    assert list(found.best) == list(found.chosen) == list(found.one_se) == ["C", "gamma"]
    C, scale = found.best["C"], np.sqrt(found.best["gamma"])
    assert isinstance(C, float) and found.table.axes["point"].tolist() == [0, 1]
    for point, (C_at, gamma) in enumerate([(START["C"], START["gamma"]), (C, found.best["gamma"])]):
        x = X.astype(float) * np.sqrt(gamma)
        for f in range(5):
            train = found.fold != f
            model = SVC(C=C_at, gamma=1.0).fit(x[train], Y[train])
            wrong = (model.predict(x[~train]) != Y[~train]).mean()
            assert abs(found.table.folds[point, f] - wrong) * (~train).sum() <= 1.001
    model = SVC(C=C, gamma=1.0, tol=1e-6).fit(X * scale, Y)
    values = model.decision_function(X * scale)
    np.testing.assert_allclose(found.model(X), values, atol=1e-2 * np.abs(values).max())
    assert float(found.certificate.gap) < 1e-2 * float(found.certificate.primal)
    assert found.scores.shape == (2, N) and np.isfinite(found.scores).all()
    assert found.status.startswith("gradient search: ") and "smoothed risk" in found.status
    assert str(found.table).count("*") == 1
    assert jax.tree.structure(jax.tree.map(lambda a: a, found)) == jax.tree.structure(found)


def test_a_search_within_a_larger_box_does_not_leave_it(found):
    points = found.table.points
    for name in START:
        ratio = points[name][1] / points[name][0]
        assert (
            ratio.min() >= 0.999 / gradient_search.FACTOR
            and ratio.max() <= 1.001 * gradient_search.FACTOR
        )


def same(first, second):
    """Equal results, but for the seconds."""
    np.testing.assert_array_equal(first.table.folds, second.table.folds)
    np.testing.assert_array_equal(first.scores, second.scores)
    for name, numbers in first.best.items():
        np.testing.assert_array_equal(numbers, second.best[name])


@pytest.mark.long
def test_stopped_by_the_time_and_continued(found, tmp_path, monkeypatch):
    path = tmp_path / "search.npz"
    part = call(**START, save=path, seconds=1e-6)
    assert "1 evaluations" in part.status and "out of time" in part.status
    np.testing.assert_array_equal(part.table.folds[0], part.table.folds[1])
    np.testing.assert_array_equal(part.best["gamma"], START["gamma"])
    same(found, call(**START, save=path))

    def refused(problem):
        raise AssertionError("all evaluations are in the file")

    monkeypatch.setattr(gradient_search, "_risk_function", refused)
    same(found, call(**START, save=path))
    with pytest.raises(ValueError, match="is of another call of select"):
        call(**START | {"C": 2.0}, save=path)


@pytest.mark.long
def test_the_start_is_chosen_if_the_exact_folds_say_so():
    """A score that is worse the more decision values differ from those of the start."""
    first = select(machine, DATA, KEY, C=[1.0], gamma=[0.1], progress=False)
    order = iter([0.0] * 5 + [1.0] * 5)
    found = call(**START, score=lambda values, y, weight: next(order))
    assert found.best["C"] == 1.0 and np.array_equal(found.best["gamma"], START["gamma"])
    np.testing.assert_allclose(found.model(X), first.model(X), atol=1e-3)


def test_values_that_are_not_finite_are_rejected():
    """A bowl with a hole: the search stays out of the hole and ends beside it."""

    def evaluate(theta):
        if theta[0] > 0.7:
            return np.nan, np.full(2, np.nan)
        return float((theta - 1) @ (theta - 1)) + 1, 2 * (theta - 1)

    end, risk, _ = gradient_search._descend(evaluate, np.zeros(2))
    assert risk < 1.2 and 0.3 < end[0] <= 0.7 and end[1] == pytest.approx(1, abs=0.35)


def test_steps_find_the_minimum_within_the_box(monkeypatch):
    """Rosenbrock's valley has its minimum at (1, 1); a bowl around 20 its one in the box at log
    1,000."""
    monkeypatch.setattr(gradient_search, "FALL", 1e-6)
    valley = lambda t: 1 + 100 * (t[1] - t[0] ** 2) ** 2 + (1 - t[0]) ** 2
    slope = lambda t: np.array(
        [-400 * t[0] * (t[1] - t[0] ** 2) - 2 * (1 - t[0]), 200 * (t[1] - t[0] ** 2)]
    )
    with jax.enable_x64(True):
        end, _, _ = gradient_search._descend(lambda t: (valley(t), slope(t)), np.array([-1.2, 1.0]))
        assert valley(end) < 1.1
        bowl = lambda t: (float((t - 20) @ (t - 20)), 2 * (t - 20))
        end, _, _ = gradient_search._descend(bowl, np.array([0.0, 15.0]))
    np.testing.assert_allclose(end, [np.log(1e3), 20], atol=1e-2)


@pytest.mark.long
def test_other_solvers():
    """Machines on Nystrom features, ascent steps, and two numbers of a linear machine's loss."""
    maker = lambda lam, gamma: jaxsvm.on_features(
        features.nystrom(jax.random.key(1), kernels.rbf(gamma=gamma), DATA.x, landmarks=30),
        jaxsvm.newton(lam),
    )
    found = call(maker, lam=0.1, gamma=np.full(D, 0.3), folds=3)
    assert found.table.mean[1] < 0.8 * found.table.mean[0] and found.certificate is None
    assert found.model(X).shape == (N,)
    found = call(lambda C: jaxsvm.sdca(C), C=1e-3, folds=3)
    assert found.table.mean[1] <= found.table.mean[0]


def test_bad_input():
    for wrong in (-1.0, 0.0, np.nan, [1.0, -2.0], np.ones((2, 2)), [], "a", True):
        with pytest.raises(
            ValueError,
            match=(
                "search='gradient' takes as axis C the start of the search, a finite number above 0"
            ),
        ):
            call(C=wrong, gamma=0.1)
    with pytest.raises(ValueError, match="maker has no parameter named gama, only C, gamma"):
        call(C=1.0, gama=0.1)
    with pytest.raises(ValueError, match="maker needs gamma, but the axes are C"):
        call(C=1.0)
    with pytest.raises(ValueError, match=r"C has shape \(2,\)"):
        call(C=[1.0, 2.0], gamma=0.1)
    with pytest.raises(
        ValueError, match="gamma holds one number for each of 3 columns, but the rows have 8"
    ):
        call(C=1.0, gamma=np.ones(3))
    with pytest.raises(ValueError, match="leave rule='one_se' out"):
        call(**START, rule="one_se")
    whole = lambda C, gamma: machine(int(C) + 1.0, gamma)
    with pytest.raises(
        ValueError,
        match=r"needs a solver whose fit has derivatives in C, gamma.*: use search='grid'",
    ):
        call(whole, **START)
    constant = lambda C: machine(1.0, 0.1)
    with pytest.raises(ValueError, match="the smoothed risk does not change with C at the start"):
        call(constant, C=1.0)


@pytest.mark.long
def test_a_second_search_compiles_nothing(found):
    """Also for another maker of the same solvers."""
    events = listen()
    same(found, call(lambda C, gamma: machine(C, gamma), **START))
    assert not [event for event in events if event.endswith("backend_compile_duration")]
