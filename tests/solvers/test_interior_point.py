"""The interior point method against its Newton system in NumPy, LIBLINEAR, LIBSVM and bounds in
float64."""

from __future__ import annotations

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from oracles import weights_of, with_ones
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC, LinearSVC

import jaxsvm
from jaxsvm import features, kernels, losses, models
from jaxsvm.engines.linear_dual import linear_model, parameters_of

N, D, C = 80, 4, 2.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
TARGET = X @ [1.0, -0.7, 0.4, 0.0] + 0.6 * RNG.normal(size=N) + 0.3
Y = np.where(TARGET > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
fit = functools.partial(jaxsvm.fit, key=KEY)
BIASES = ("none", "feature", "free")


dataset = maker(X, Y)


def primal(w, bias, x=X, y=Y, C=C, weight=1.0):
    """The objective of the hinge."""
    penalised = w[:-1] if bias == "free" else w
    return penalised @ penalised / 2 + C * np.sum(
        weight * np.maximum(1 - y * (with_ones(x, bias) @ w), 0)
    )


def dual(coef, bias, x=X, y=Y):
    """The dual objective of the hinge, a lower bound of every primal value for feasible
    coefficients."""
    w = with_ones(x, "none" if bias == "free" else bias).T @ coef
    return y @ coef - w @ w / 2


# by hand, in NumPy


def newton(x, y, weight, C, ridge, dual, w, excess):
    """The direction (4, n), (p,) of the whole Newton system, written out and solved as it stands.

    The unknowns are dt, dz, dv of all rows and dw; the equations are those of the optimality
    conditions.
    """
    t, u, z, v = dual
    n, p, one = len(y), len(w), np.eye(len(y))
    none, yx = np.zeros((n, n)), y[:, None] * x
    matrix = np.block(
        [
            [none, -one, one, yx],  # y X w - 1 - z + v = 0
            [np.diag(z), np.diag(t), none, np.zeros((n, p))],  # t z = target
            [-np.diag(v), none, np.diag(u), np.zeros((n, p))],  # u v = target, du = -dt
            [
                C * (weight[:, None] * yx).T,
                np.zeros((p, 2 * n)),
                -np.diag(ridge),
            ],  # C X' (weight y t) = R w
        ]
    )
    gap = C * yx.T @ (weight * t) - ridge * w
    rhs = np.concatenate([1 + z - v - yx @ w, -t * z - excess[0], -u * v - excess[1], -gap])
    step = np.linalg.solve(matrix, rhs)
    dt, dz, dv = step[: 3 * n].reshape(3, n)
    return np.stack([dt, -dt, dz, dv]), step[3 * n :]


def transcription(x, y, weight, C, bias, steps):
    """The iterates: the four variables (4, n) and w."""
    x = with_ones(x, bias)
    ridge = np.ones(x.shape[1])
    ridge[-1] = 0 if bias == "free" else 1
    n = len(y)
    dual, w = (
        np.stack([np.full(n, 0.5), np.full(n, 0.5), np.ones(n), np.full(n, 2.0)]),
        np.zeros(x.shape[1]),
    )
    longest = lambda change: min(1, 1 / np.max(-change / dual))
    mean = lambda dual: weight @ (dual[0] * dual[2] + dual[1] * dual[3]) / (2 * weight.sum())
    for _ in range(steps):
        yield dual, w
        change, _ = newton(x, y, weight, C, ridge, dual, w, (0, 0))
        target = mean(dual + longest(change) * change) ** 3 / mean(dual) ** 2
        excess = change[0] * change[2] - target, change[1] * change[3] - target
        change, dw = newton(x, y, weight, C, ridge, dual, w, excess)
        length = 0.995 * longest(change)
        dual, w = dual + length * change, w + length * dw


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", BIASES)
def test_steps_are_those_of_the_newton_system(bias, x64):
    weight = np.maximum(WEIGHT, 1)
    data, solver = dataset(weight=weight), jaxsvm.interior_point(C, bias=bias, rounds=1)
    state = solver.init(KEY, data)
    for step, (variables, w) in enumerate(transcription(X, Y, weight, C, bias, 9)):
        np.testing.assert_allclose(
            state.iterate.dual[:, 0], variables, rtol=1e-6, atol=1e-9, err_msg=f"step {step}"
        )
        np.testing.assert_allclose(state.iterate.w, w, rtol=1e-6, atol=1e-9)
        state, info = jaxsvm.step(solver, state, data)
        # What the step evaluated is the iterate before it; the best one so far is reported.
        coef, balance = (
            C * weight * Y * variables[0],
            abs(np.sum(weight * Y * variables[0])) / weight.sum(),
        )
        upper = primal(w, bias, weight=weight)
        # of the Lagrangian, where the coefficients do not sum to 0
        gap = (upper - dual(coef, bias)) / upper
        gap += 0 if bias != "free" else w[-1] * coef.sum() / upper
        expected = max(gap, balance) if bias == "free" else gap
        assert float(info.residual) <= expected * (1 + 1e-6)
        if np.array_equal(state.best.w, w) or step == 0:
            np.testing.assert_allclose(info.residual, expected, rtol=1e-6)


# float32, large C


@pytest.mark.long
@pytest.mark.parametrize("bias", ["feature", "free"])
@pytest.mark.parametrize("C", [1e6, 1.0, 1e4])
@pytest.mark.parametrize("scale", [True, False], ids=["standardised", "raw"])
@pytest.mark.filterwarnings("ignore:the ranges of the columns")
def test_float32_rows_reach_the_optimum_at_large_C(bias, C, scale):
    """Raw columns have ranges from 0.03 to 4,000. The dual value of coefficients in float64 bounds
    the optimum from below."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = ((x - x.mean(0)) / x.std(0) if scale else x).astype(np.float32), 2.0 * y - 1
    run = fit(jaxsvm.interior_point(C, bias=bias), dataset(x, y, dtype=np.float32))
    assert run.finite and run.converged and run.evals <= 60 * len(y)
    with jax.enable_x64(True):
        state = fit(jaxsvm.interior_point(C, bias=bias), dataset(x, y), tol=1e-8).state.solver
        coef = np.clip(y * np.asarray(state.coef), 0, C) * y
    x = x.astype(np.float64)
    lower, upper = dual(coef, bias, x, y), primal(weights_of(run.model, bias), bias, x, y, C)
    # The tolerance, and w rounded to float32: of |w| = 500 at C = 1e6.
    assert -1e-6 <= upper / lower - 1 <= max(1e-5, 1e-9 * C)


@pytest.mark.long
def test_small_lam_in_float64_reaches_1e_10(x64):
    data = dataset(weight=WEIGHT)
    run = fit(jaxsvm.interior_point(1e5), data, tol=1e-10)
    assert run.converged and float(run.info.residual[-1]) <= 1e-10
    coef = np.asarray(run.state.solver.coef)
    upper = primal(weights_of(run.model, "feature"), "feature", C=1e5, weight=WEIGHT)
    assert 0 <= upper - dual(coef, "feature") <= 2e-10 * upper


# invariants


@pytest.mark.long
@pytest.mark.parametrize("bias", BIASES)
def test_every_iterate_is_inside_of_its_bounds(bias, x64):
    data, solver = dataset(weight=WEIGHT), jaxsvm.interior_point(C, bias=bias, rounds=1, tol=1e-9)
    run = fit(solver, data, steps=30, every=1)
    residual = np.asarray(run.info.residual)
    assert np.all(residual >= 0) and np.all(np.diff(residual) <= 0) and residual[-1] <= 1e-9
    state, live = run.state.solver, WEIGHT > 0
    for iterate in (state.iterate, state.best):
        t, u, z, v = np.asarray(iterate.dual)[:, 0, live]
        assert min(np.min(a) for a in (t, u, z, v)) > 0
        np.testing.assert_allclose(t + u, 1, rtol=1e-12)
    coef = np.asarray(state.coef)
    assert np.all((Y * coef >= 0) & (Y * coef <= C * WEIGHT)) and np.all(coef[~live] == 0)
    if bias == "free":
        assert abs(coef.sum()) <= 1e-9 * C * WEIGHT.sum()


def test_blocks_of_rows_add_up(x64):
    """More rows than a block, and a rest."""
    from jaxsvm.solvers.dual.interior import BLOCK_ROWS, weighted_gram

    n = 3 * BLOCK_ROWS[1] + 17
    x, weight = RNG.normal(size=(n, 3)), RNG.random(n)
    np.testing.assert_allclose(
        weighted_gram(jnp.asarray(x.T), jnp.asarray(weight)),
        x.T @ (weight[:, None] * x),
        rtol=1e-12,
    )


@pytest.mark.long
def test_the_end_of_progress_is_the_end_of_the_run():
    """A tolerance below the rounding of float64 is not met; the model is the best one, and later
    updates make no step."""
    run = fit(jaxsvm.interior_point(C), dataset(dtype=np.float32), tol=1e-30, steps=1)
    assert not run.converged and run.finite and run.evals <= 40 * N
    assert float(run.info.residual[-1]) <= 1e-12
    again = fit(jaxsvm.interior_point(C), dataset(dtype=np.float32), tol=1e-30, state=run.state)
    assert again.evals == 0 and np.array_equal(again.model.w, run.model.w)
    assert float(again.info.residual[-1]) <= 1e-7  # of the model, which is rounded to float32


# certificates, wrappers


@pytest.mark.long
@pytest.mark.parametrize("bias", BIASES)
def test_the_dual_coefficients_certify_the_solution(bias):
    data = dataset(dtype=np.float32)
    run = fit(jaxsvm.interior_point(C, bias=bias), data)
    coef = run.state.solver.coef
    b = {"none": jnp.zeros(()), "feature": jnp.sum(coef), "free": run.model.b}[bias]
    index = jnp.arange(N, dtype=jnp.int32)
    certificate = jaxsvm.certificate(
        models.Expansion(kernels.linear(), data.x, coef, b, index, bias), data, 1 / (C * N)
    )
    assert certificate.exact and certificate.gap <= 1e-5 * certificate.primal
    assert jaxsvm.certificate(run.model, data, 1 / (C * N)).gap >= 0


@pytest.mark.long
def test_features():
    phi = features.nystrom(KEY, kernels.rbf(2.0), X.astype(np.float32), landmarks=30)
    data = dataset(dtype=np.float32)
    run = fit(jaxsvm.on_features(phi, jaxsvm.interior_point(C)), data)
    slow = fit(jaxsvm.on_features(phi, jaxsvm.sdca(C, bias="feature")), data, steps=10**5, tol=1e-6)
    np.testing.assert_allclose(run.model(data.x), slow.model(data.x), atol=2e-3)


# ------------------------------------------------------------------------------------------- the
# steps, and known optima

# The optima of lam/2 |w|^2 + mean hinge without a bias, of a transcription in NumPy; intervals
# where it ended above 1e-9.
OPTIMA = {
    ("svmguide1", 1e-3): (0.423561017, 0.423561017),
    ("svmguide1", 1e-4): (0.422345, 0.422353),
    ("svmguide1", 1e-5): (0.422223, 0.422231),
    ("svmguide1", 1e-6): (0.422217963, 0.422217963),
    ("a9a", 1e-3): (0.351328928, 0.351328928),
    ("a9a", 1e-4): (0.344647062, 0.344647062),
    ("a9a", 1e-5): (0.343067293, 0.343067293),
    ("a9a", 1e-6): (0.342890692, 0.342890692),
    ("covtype", 1e-3): (0.630805887, 0.630805887),
    ("covtype", 1e-4): (0.590961082, 0.590961082),
    ("covtype", 1e-5): (0.582775540, 0.582775540),
    ("covtype", 1e-6): (0.581824365, 0.581824365),
    ("ijcnn1", 1e-3): (0.193501, 0.193511),
    ("ijcnn1", 1e-4): (0.175797, 0.175812),
    ("ijcnn1", 1e-5): (0.171376, 0.171393),
    ("ijcnn1", 1e-6): (0.170855, 0.170869),
}


def known_rows(name, count=None):
    """svmguide1 standardised; 10,000 rows of a9a; 20,000 of covtype, class 2 against the rest,
    columns in [0, 1]; ijcnn1."""
    files = np.load(pathlib.Path(os.environ["JAXSVM_DATA"]) / f"{name}.npz")
    x, y = files["X_train"], files["y_train"]
    count = count or {"a9a": 10_000, "covtype": 20_000}.get(name, len(y))
    if count < len(y):
        drawn = np.random.default_rng(0).choice(len(y), count, replace=False)
        x, y = x[drawn], y[drawn]
    x, y = x.astype(float), y.astype(float)
    if name == "svmguide1":
        x = (x - x.mean(0)) / x.std(0)
    if name == "covtype":
        low, width = x.min(0), np.ptp(x, 0)
        x, y = (x - low) / np.where(width > 0, width, 1), np.where(y == 2, 1.0, -1.0)
    return x, y


def steps_to(solver, data, tol):
    run = fit(solver, data, tol=tol)
    assert run.converged and float(run.info.residual[-1]) <= tol
    return run, run.evals // len(data.y)


@pytest.mark.long
@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_steps_to_the_optimum(bias, x64):
    x, y = load_breast_cancer(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), 2.0 * y - 1
    data = dataset(x, y)
    for lam in (1e-3, 1e-6):
        solver = jaxsvm.interior_point(1 / (lam * len(y)), bias=bias)
        assert steps_to(solver, data, 1e-6)[1] <= 70
        run, steps = steps_to(solver, data, 1e-8)
        assert steps <= 75
        # SVC stops at a violation, LIBLINEAR's dual value is a bound
        C = 1 / (lam * len(y))
        value = primal(weights_of(run.model, bias), bias, x, y, C)
        if bias == "free":
            made = SVC(kernel="linear", C=C, tol=1e-8).fit(x, y)
            coef = np.zeros(len(y))
            coef[made.support_] = made.dual_coef_[0]
        else:
            options = {"loss": "hinge", "tol": 1e-9, "max_iter": 10**6, "random_state": 0}
            w = LinearSVC(C=C, fit_intercept=False, **options).fit(x, y).coef_[0]
            assert value <= primal(w, bias, x, y, C) * (1 + 1e-8)
            coef = np.asarray(run.state.solver.coef)
        assert 0 <= value / dual(coef, bias, x, y) - 1 <= 1e-7


@pytest.mark.long
@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="no folder of data sets")
@pytest.mark.parametrize("name", ["svmguide1", "a9a", "covtype", "ijcnn1"])
def test_known_optima(name, x64):
    x, y = known_rows(name)
    data = dataset(x, y)
    for lam in (1e-3, 1e-4, 1e-5, 1e-6):
        C = 1 / (lam * len(y))
        for bias in BIASES:
            solver = jaxsvm.interior_point(C, bias=bias)
            assert steps_to(solver, data, 1e-6)[1] <= 70
            run, steps = steps_to(solver, data, 1e-8)
            assert steps <= 75
            if bias == "none":
                low, high = OPTIMA[name, lam]
                value = lam * primal(weights_of(run.model, bias), bias, x, y, C)
                assert low * (1 - 1e-7) <= value <= high * (1 + 1e-7)


@pytest.mark.long
@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="no folder of data sets")
@pytest.mark.parametrize("bias", BIASES)
def test_steps_on_100_000_rows(bias, x64):
    x, y = known_rows("covtype", 100_000)
    data = dataset(x, y)
    for lam in (1e-4, 1e-6):
        C = 1 / (lam * len(y))
        run, steps = steps_to(jaxsvm.interior_point(C, bias=bias), data, 1e-8)
        assert steps <= 75
        coef = np.asarray(run.state.solver.coef)
        assert np.all((y * coef >= 0) & (y * coef <= C))
        upper, lower = primal(weights_of(run.model, bias), bias, x, y, C), dual(coef, bias, x, y)
        # of the Lagrangian
        lower += weights_of(run.model, bias)[-1] * coef.sum() if bias == "free" else 0
        assert -1e-9 <= upper / lower - 1 <= 2e-8


@pytest.mark.long
@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="no folder of data sets")
@pytest.mark.parametrize("name", ["svmguide1", "a9a", "covtype", "ijcnn1"])
def test_known_optima_from_rows_in_float32(name):
    """Steps are in float64 there too; 40 of them, and w rounded to float32."""
    x, y = known_rows(name)
    data = dataset(x, y, dtype=np.float32)
    for lam, ask in ((1e-3, 1e-3), (1e-5, 1e-3), (1e-6, 2e-2)):
        for bias in BIASES:
            solver = jaxsvm.interior_point(1 / (lam * len(y)), bias=bias, rounds=40)
            run = fit(solver, data, steps=1)
            assert float(run.info.residual[-1]) <= ask
            if bias == "none":
                value = lam * primal(weights_of(run.model, bias), bias, x, y, 1 / (lam * len(y)))
                assert (
                    OPTIMA[name, lam][0] * (1 - 1e-6) <= value <= OPTIMA[name, lam][1] * (1 + ask)
                )


# what is refused


@pytest.mark.long
def test_rows_of_one_class():
    data = dataset(dtype=np.float32)
    one_class = data._replace(y=jnp.ones_like(data.y))
    assert fit(jaxsvm.interior_point(C), one_class).converged
    free = jax.jit(lambda data: fit(jaxsvm.interior_point(C, bias="free"), data, steps=1).model.w)
    assert np.all(np.isfinite(free(one_class)))  # where the labels are not known


def test_a_free_bias_that_no_coefficient_decides_is_the_midpoint(x64):
    """All coefficients are at bounds: the bias and its derivatives are those of LIBSVM's dual."""
    random = np.random.default_rng(7)
    x = random.normal(size=(24, 3))
    x /= np.linalg.norm(x, axis=1).max()
    y = np.sign(x @ np.array([2.0, -1.0, 0.5]) + 0.6 * random.normal(size=24) + 0.3)
    data = dataset(x, y)
    bias = lambda C: fit(jaxsvm.interior_point(C, bias="free", tol=1e-12), data, steps=3).model.b
    reference = SVC(C=1.0, kernel="linear", tol=1e-10).fit(x, y)
    assert set(np.abs(reference.dual_coef_[0])) == {1.0}
    scores = x @ reference.coef_[0]
    is_support = np.isin(np.arange(24), reference.support_)
    edge = y - scores  # the bias at which a row is on its margin
    low, high = edge[(y > 0) != is_support].max(), edge[(y > 0) == is_support].min()
    assert high - low > 0.01
    both = jax.jit(jax.value_and_grad(bias))
    (value, slope), (above, _), (below, _) = map(both, (1.0, 1.0 + 1e-4, 1.0 - 1e-4))
    assert float(value) == pytest.approx((low + high) / 2, abs=1e-9)
    assert float(slope) == pytest.approx(float(above - below) / 2e-4, rel=1e-6)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", BIASES[::-1])
def test_derivatives_of_two_rows_are_those_by_hand(bias):
    """Rows at c + 1 and c - 1 have w = 4 C / (1 + 4 C) and, if b is free, b = - c w."""
    c = 2.0 if bias == "free" else 0.0
    data, C, w = dataset([[c + 1], [c - 1]], [1, -1], dtype="float32"), 0.5, 2 / 3
    v = jnp.array([w, -c * w][: 1 if bias == "none" else 2], "f")

    def model(C):
        given = parameters_of(C, losses.squared_hinge, data, jnp.float32)
        return linear_model(bias, v, jnp.array([w, -w], "f") / 2, given)

    found = jax.jit(jax.jacfwd(model))(C)
    np.testing.assert_allclose([found.w[0], found.b], [4 / 9, -c * 4 / 9], atol=1e-5)
