"""Crammer and Singer's machine beside LIBLINEAR and a linear program's optimality conditions."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import features, implicit, kernels, losses
from jaxsvm.engines.coordinate_descent import PRIMES

KEY = jax.random.key(0)
RNG = np.random.default_rng(3)
N, D, K = 40, 4, 3
X = RNG.normal(size=(N, D))
Y = np.argmax(X @ RNG.normal(size=(D, K)) + 0.7 * RNG.normal(size=(N, K)), axis=1)
Y[:K] = range(K)
WEIGHT = RNG.integers(1, 4, N).astype(float)
STEP = jax.jit(losses.crammer_singer.dual_step)


def rows(x=X, y=Y, weight=None):
    return jaxsvm.dataset(x, y, weight, task="multiclass")


def objective(w, b, C, x=X, y=Y, weight=1.0):
    """The objective in NumPy, with the bias regularised."""
    f = x @ np.asarray(w, float).T + np.asarray(b, float)
    ahead = f + 1
    ahead[np.arange(len(y)), y] -= 1
    slack = ahead.max(axis=1) - f[np.arange(len(y)), y]
    return (np.sum(np.square(w)) + np.sum(np.square(b))) / 2 + C * np.sum(weight * slack)


def weights(model):
    return np.asarray(model.inner.w), np.asarray(model.inner.b)


@functools.cache
def reference(C, bias="feature", weighted=False):
    """LIBLINEAR's weights at a violation of 1e-10."""
    solver = LinearSVC(
        multi_class="crammer_singer", C=C, tol=1e-10, max_iter=10**6, fit_intercept=bias != "none"
    )
    solver.fit(X, Y, WEIGHT if weighted else None)
    return solver.coef_, solver.intercept_ if bias != "none" else np.zeros(K)


@pytest.mark.long(but=4)
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("bias", ["feature", "none"])
@pytest.mark.parametrize("weighted", [True, False])
def test_it_is_the_optimum_of_liblinear(C, bias, weighted, x64):
    weight = WEIGHT if weighted else None
    machine = jaxsvm.crammer_singer(C, classes=K, bias=bias, tol=1e-12, rounds=1e5)
    result = jaxsvm.fit(machine, rows(weight=weight), KEY, steps=1)
    assert result.converged
    best = reference(C, bias, weighted)
    for found, expected in zip(weights(result.model), best, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    mass = WEIGHT if weighted else 1.0
    primal = objective(*weights(result.model), C, weight=mass)
    assert primal <= objective(*best, C, weight=mass) * (1 + 1e-10)
    loss = (primal - objective(*weights(result.model), 0.0)) / C / np.sum(mass * np.ones(N))
    assert float(result.info.loss[-1]) == pytest.approx(loss, rel=1e-6)


def test_in_float32_the_gap_is_that_of_the_objective():
    result = jaxsvm.fit(jaxsvm.crammer_singer(1.0, classes=K, tol=1e-5), rows(), KEY)
    least = objective(*reference(1.0), 1.0)
    assert result.converged
    assert objective(*weights(result.model), 1.0) <= least * (1 + 1e-5)
    coef = np.asarray(result.state.solver.coef, float)
    np.testing.assert_allclose(coef.sum(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(coef.T @ X, weights(result.model)[0], atol=1e-4)
    # a class that is not the row's has a coefficient of at most 0, the row's one of at most C
    own = coef[np.arange(N), Y]
    assert ((own >= 0) & (own <= 1)).all() and (np.sort(coef, axis=1)[:, :-1] <= 0).all()
    loss = objective(*weights(result.model), 1.0) - objective(*weights(result.model), 0.0)
    assert float(result.info.loss[-1]) == pytest.approx(loss / N, rel=1e-4)


def test_an_unfinished_run_reports_its_gap(x64):
    machine = jaxsvm.crammer_singer(10.0, classes=K, rounds=2)
    run = jaxsvm.fit(machine, rows(), KEY, steps=1)
    coef = np.asarray(run.state.solver.coef)
    w, b = coef.T @ X, coef.sum(axis=0)
    dual = coef[np.arange(N), Y].sum() - (np.sum(w**2) + np.sum(b**2)) / 2
    primal = objective(w, b, 10.0)
    assert run.info.residual[-1] > 1e-3
    np.testing.assert_allclose(run.info.residual[-1], (primal - dual) / primal, rtol=1e-10)


@pytest.mark.long
def test_rows_of_weight_0_have_no_effect():
    weight = np.where(np.arange(N) < 30, 1.0, 0.0)
    machine = jaxsvm.crammer_singer(1.0, classes=K, tol=1e-7)
    part = jaxsvm.fit(machine, rows(X[:30], Y[:30]), KEY).model
    whole = jaxsvm.fit(machine, rows(weight=weight), KEY)
    for found, expected in zip(weights(whole.model), weights(part), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-3)
    assert not np.asarray(whole.state.solver.coef)[30:].any()


@pytest.mark.long
def test_a_row_of_zeros_and_equal_rows():
    x = np.concatenate([np.zeros((1, D)), np.repeat(X[:1], 3, axis=0), X])
    y = np.concatenate([[0], [0, 1, 2], Y])
    result = jaxsvm.fit(jaxsvm.crammer_singer(1.0, classes=K, bias="none"), rows(x, y), KEY)
    assert result.converged and np.isfinite(weights(result.model)[0]).all()


@pytest.mark.long
def test_two_classes_are_the_machine_of_the_hinge():
    y = (X[:, 0] > 0) * 1
    joint = jaxsvm.fit(
        jaxsvm.crammer_singer(0.5, classes=2, tol=1e-7), rows(y=y), KEY, steps=1
    ).model
    binary = jaxsvm.fit(jaxsvm.dual_descent(1.0, tol=1e-7), jaxsvm.dataset(X, y), KEY).model
    w, b = weights(joint)
    np.testing.assert_allclose(w[1] - w[0], binary.w, atol=1e-3)
    assert b[1] - b[0] == pytest.approx(float(binary.b), abs=1e-3)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", ["feature", "none"])
@pytest.mark.parametrize("C", [0.05, 3.0])
def test_derivatives_are_those_of_the_optimum(C, bias, x64):
    """Forward and reverse, in C, rows and weights, against differences of solutions."""
    direction, share = RNG.normal(size=X.shape), RNG.normal(size=N)
    probe = RNG.normal(size=(5, D))

    def value(t):
        data = rows()._replace(x=X + t[0] * direction, weight=WEIGHT * (1 + t[1] * share))
        machine = jaxsvm.crammer_singer(C * jnp.exp(t[2]), classes=K, bias=bias, rounds=1e5)
        model = jaxsvm.fit(machine, data, KEY, steps=1, tol=1e-13).model
        return jnp.sum(jnp.sin(model(probe)))

    at, plain = np.zeros(3), jax.jit(value)
    differences = [(plain(step) - plain(-step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    for slopes in (jax.jit(jax.grad(value))(at), jax.jit(jax.jacfwd(value))(at)):
        np.testing.assert_allclose(slopes, differences, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_derivatives_of_a_kernel_machine(x64):
    """By all features of an incomplete Cholesky factorisation, in the width of the kernel."""

    def value(gamma):
        kernel = kernels.rbf(gamma=gamma)
        phi = features.cholesky(kernel, X, rank=N, tol=1e-14)
        machine = jaxsvm.on_features(
            phi, jaxsvm.crammer_singer(1.0, classes=K, bias="none", rounds=1e5)
        )
        return jnp.sum(jaxsvm.fit(machine, rows(), KEY, steps=1, tol=1e-13).model(X[:5]) ** 2)

    difference = (value(0.3 + 1e-5) - value(0.3 - 1e-5)) / 2e-5
    assert float(jax.grad(value)(0.3)) == pytest.approx(float(difference), rel=1e-3)


@pytest.mark.long
def test_too_many_free_coefficients_make_nan(x64):
    data = rows()
    coef = jaxsvm.fit(
        jaxsvm.crammer_singer(0.05, classes=K, bias="none"), data, KEY, steps=1, tol=1e-12
    ).state.solver.coef

    def total(x, free):
        args = coef, kernels.linear(), data._replace(x=x), 0.05
        return jnp.sum(implicit.simplex_solution(*args, free=free) ** 2)

    assert np.isnan(jax.grad(total)(data.x, 1)).any()
    assert np.isfinite(jax.grad(total)(data.x, None)).all()


@pytest.mark.long
def test_vmap_over_problems_is_a_loop():
    """As in few-shot learning: several small data sets."""
    x = RNG.normal(size=(3, 15, D)).astype(np.float32)
    y = np.tile(np.arange(15) % K, (3, 1))

    def episode(x, y, C=0.4):
        data = jaxsvm.dataset(x, y, task="multiclass")
        return jaxsvm.fit(jaxsvm.crammer_singer(C, classes=K), data, KEY, steps=1).model.inner.w

    together = jax.jit(jax.vmap(episode))(x, y)
    for i in range(3):
        np.testing.assert_allclose(together[i], episode(x[i], y[i]), atol=1e-5)
    slopes = jax.vmap(jax.grad(lambda x, y: jnp.sum(episode(x, y) ** 2)))(x, y)
    assert np.isfinite(slopes).all() and np.abs(slopes).max() > 0


@pytest.mark.long
def test_it_goes_on_from_another_C_and_from_its_own_state(x64):
    first = jaxsvm.fit(jaxsvm.crammer_singer(0.3, classes=K, tol=1e-10), rows(), KEY, steps=1)
    again = jaxsvm.fit(
        jaxsvm.crammer_singer(0.3, classes=K, tol=1e-10), rows(), state=first.state, steps=2
    )
    assert int(again.state.solver.steps) == int(first.state.solver.steps)
    other = jaxsvm.crammer_singer(0.1, classes=K, tol=1e-10)
    moved = jaxsvm.fit(other, rows(), state=first.state, steps=2).model
    fresh = jaxsvm.fit(other, rows(), KEY, steps=1).model
    for found, expected in zip(weights(moved), weights(fresh), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"C": -1.0}, "C must be a finite number above 0"),
        ({"C": 1.0, "tol": 0.0}, "tol must be"),
        ({"C": 1.0, "classes": 1}, "classes must be"),
        ({"C": 1.0, "bias": "free"}, "bias must be one of 'feature', 'none'"),
        ({"C": 1.0, "rounds": 0}, "rounds must be a whole number from 1 to 100000"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        jaxsvm.crammer_singer(**{"classes": K, **arguments})


def test_labels_are_refused():
    data = jaxsvm.dataset(X, np.where(Y > 0, 1, -1))
    with pytest.raises(ValueError, match=r"class numbers 0 .. 2, the data hold -1, 1"):
        jaxsvm.fit(jaxsvm.crammer_singer(1.0, classes=K), data, KEY)


@pytest.mark.long(but=6)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("options", [{}, {"intercept_scaling": 3.0}, {"fit_intercept": False}])
@pytest.mark.parametrize("class_weight", [None, {0: 3.0}, "balanced"])
def test_the_estimator_is_that_of_scikit_learn(k, options, class_weight):
    names = np.minimum(Y, k - 1)
    options = {"C": 0.5, "multi_class": "crammer_singer", "class_weight": class_weight, **options}
    ours = jaxsvm.estimators.LinearSVC(tol=1e-6, max_iter=10**5, **options).fit(X, names, WEIGHT)
    theirs = LinearSVC(tol=1e-10, max_iter=10**6, **options).fit(X, names, WEIGHT)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=3e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=3e-3)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.97
    assert ours.solver_ == ("crammer_singer" if k > 2 else "dual_descent") and ours.n_iter_ > 1


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_a_step_is_a_projection_onto_the_simplex(C):
    """That which sorts (Held, Wolfe, Crowder), in NumPy and float64."""
    one_hot, q = np.eye(4), 3.0
    for _ in range(20):
        share = RNG.dirichlet(np.ones(4) / 2).astype(np.float32) * (RNG.random(4) < 0.7)
        y, f = RNG.integers(4), RNG.normal(size=4).astype(np.float32)
        old = np.float32(C) * (share.sum() * one_hot[y] - share).astype(np.float32)
        z = one_hot[y] + (f - one_hot[y] - q * old.astype(float)) / (q * C)
        ordered = np.sort(z)[::-1]
        levels = (np.cumsum(ordered) - 1) / np.arange(1, 5)
        new = C * (one_hot[y] - np.maximum(z - levels[np.nonzero(ordered > levels)[0].max()], 0))
        found = np.asarray(STEP(*(np.asarray(a, np.float32)[None] for a in (old, f, y, q, C))))[0]
        np.testing.assert_allclose(found, new, rtol=1e-6, atol=1e-6 * max(C, 1))
        assert abs(found.sum()) <= 2e-7 * np.abs(found).max()


def exact_step(coef, f, y, q, C):
    """The maximiser in rational arithmetic: from the largest set of classes below their bounds."""
    coef, f, q, C = [*map(Fraction, coef)], [*map(Fraction, f)], Fraction(q), Fraction(C)
    bound = [C * (m == y) for m in range(len(f))]
    ahead = [f[m] - (m == y) for m in range(len(f))]
    level = [q * (bound[m] - coef[m]) + ahead[m] for m in range(len(f))]
    order = sorted(range(len(f)), key=lambda m: -level[m])
    for size in range(len(f), 0, -1):
        below = order[:size]
        room = sum(bound[m] - coef[m] for m in order[size:])
        t = (sum(ahead[m] for m in below) - q * room) / size
        if t <= level[below[-1]]:
            break
    return [float(min(bound[m], coef[m] + (t - ahead[m]) / q)) for m in range(len(f))]


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    exponents=st.tuples(st.integers(-12, 12), st.integers(-6, 6), st.integers(-2, 4)),
    seed=st.integers(0, 2**32 - 1),
    k=st.sampled_from([2, 3, 20]),
    ties=st.booleans(),
)
@example(exponents=(0, -6, 0), seed=0, k=20, ties=True)
def test_a_step_of_any_size_keeps_the_sum(exponents, seed, k, ties):
    """q, C and scores of any size, with equal scores, beside rational arithmetic."""
    q, C, size = (float(np.float32(10.0**e)) for e in exponents)
    random = np.random.default_rng(seed)
    f = (size * (random.integers(-1, 2, k) if ties else random.normal(size=k))).astype(np.float32)
    y = int(random.integers(k))
    numbers = (np.zeros(k, np.float32), f, np.int32(y), np.float32(q), np.float32(C))
    found = np.asarray(STEP(*(np.asarray(a)[None] for a in numbers))[0], float)
    assert abs(found.sum()) <= 1e-6 * k * C
    assert (found <= C * (np.arange(k) == y) * (1 + 1e-6)).all()
    expected = exact_step([0.0] * k, [float(v) for v in f], y, q, C)
    rounding = 4e-7 * (np.abs(f).max() + 1) / q  # of the scores
    np.testing.assert_allclose(found, expected, atol=1e-5 * C + rounding)


@pytest.mark.long
def test_mixed_second_derivatives(x64):
    """The derivative in C of the one in the rows, against its difference."""
    data = rows(X[:12], Y[:12])

    def value(C, x):
        machine = jaxsvm.crammer_singer(C, classes=K, rounds=1e5)
        run = jaxsvm.fit(machine, data._replace(x=x), KEY, steps=1, tol=1e-13)
        return jnp.sum(jnp.sin(run.model(X[:12])))

    slope = jax.jit(jax.grad(value, 1))
    slope_in_C = jax.jit(jax.jacfwd(slope))
    for C in (0.5, 2.0):
        mixed = slope_in_C(C, data.x)
        difference = (slope(C + 1e-5, data.x) - slope(C - 1e-5, data.x)) / 2e-5
        np.testing.assert_allclose(mixed, difference, rtol=1e-3, atol=1e-5)


def test_a_pass_is_that_of_numpy(x64):
    """One visit of each row, transcribed with a projection that sorts."""
    result = jaxsvm.fit(
        jaxsvm.crammer_singer(0.7, classes=K, rounds=1, tol=1e-12), rows(), KEY, steps=1
    )
    coef, w = np.zeros((N, K)), np.zeros((K, D + 1))
    x = np.column_stack([X, np.ones(N)])
    for visit in range(N):
        i = visit * (PRIMES[0] % N) % N
        q, e = x[i] @ x[i], np.eye(K)[Y[i]]
        z = e + (w @ x[i] - e - q * coef[i]) / (q * 0.7)
        ordered = np.sort(z)[::-1]
        levels = (np.cumsum(ordered) - 1) / np.arange(1, K + 1)
        new = 0.7 * (e - np.maximum(z - levels[np.nonzero(ordered > levels)[0].max()], 0))
        w += np.outer(new - coef[i], x[i])
        coef[i] = new
    np.testing.assert_allclose(result.state.solver.coef, coef, atol=1e-12)


def test_rows_that_are_solved_leave_the_list(x64):
    """Else there were more visits than passes: a look is counted as two visits of each row."""
    machine = jaxsvm.crammer_singer(1.0, classes=K, tol=1e-7, rounds=1e5)
    result = jaxsvm.fit(machine, rows(), KEY, steps=1)
    assert result.converged
    passes, visits = int(result.state.solver.steps), float(result.info.evals[-1]) / N
    assert visits < 0.8 * passes
