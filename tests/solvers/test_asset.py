"""ASSET and ASSET* against NumPy transcriptions of the paper, its constants by hand, and optima
found by others."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import sklearn.svm
from oracles import formula

import jaxsvm
from jaxsvm import losses
from jaxsvm.solvers.primal.asset import measure as sizes_of

N, D, T, FROM = 24, 3, 72, 40  # all runs have these shapes, so that programs are compiled once
# float64: 72 steps of rounding (1e-16 each) on iterates of size 1, with room for cancellation
TOL = 1e-12


def _problem():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, D)) * [1.0, 0.7, 0.4] + [0.3, 0.0, 0.2]
    y = np.where(x @ [1.0, -1.0, 0.5] + 0.6 * rng.normal(size=N) > 0, 1.0, -1.0)
    return x, y, x @ [0.5, -1.0, 2.0] + 0.3 * rng.normal(size=N) + 1


X, Y, TARGET = _problem()
SINGLE = np.random.default_rng(1).integers(0, N, (T, 1))
BATCHES = np.random.default_rng(2).integers(0, N, (T, 4))  # rows repeat within some batches

# name -> the library's loss, and value, slope and curvature of table 2.6 of the specification
LOSSES = {
    name: (loss, *formula(loss))
    for name, loss in {
        "hinge": losses.hinge,
        "squared_hinge": losses.squared_hinge,
        "logistic": losses.logistic,
        "eps_insensitive": losses.eps_insensitive(0.2),
        "pinball": losses.pinball(0.3),
        "squared": losses.squared,
    }.items()
}
each_loss = pytest.mark.parametrize("name", LOSSES)
measure = jax.jit(sizes_of, static_argnames="intercept")


def targets(name):
    return Y if LOSSES[name][0].labels else TARGET


def dataset(name, x=X, y=None, weight=None, dtype=np.float64):
    y = targets(name) if y is None else y
    return jaxsvm.dataset(
        x.astype(dtype), y, weight, task="binary" if LOSSES[name][0].labels else "regression"
    )


@jax.jit
def _scan(solver, data, rows):
    def step(state, row):
        state, _ = solver.update(state, jaxsvm.take(data, row))
        return state, (state.params, solver.model(state))

    state = solver.init(jax.random.key(0), data)
    return state.numbers, jax.lax.scan(step, state, rows)[1]


def trace(solver, data, rows):
    """The set, (T, d + 1) iterates and models after each step: w, then b."""
    found, (params, model) = _scan(solver, data, jnp.asarray(rows, jnp.int32))
    b = np.zeros(len(rows)) if params.b is None else np.asarray(params.b)
    return found, np.c_[params.w, b], np.c_[model.w, model.b]


def close(got, want, tol=TOL):
    """Equal to `tol` of the largest number there is."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape and np.isfinite(got).all()
    assert abs(got - want).max() <= tol * abs(want).max()


# by hand, in NumPy


def set_by_hand(name, x, y, lam, free):
    """Radius of the ball, bound of |b|, first step."""
    _, value, slope, _ = LOSSES[name]
    zero, square = np.zeros(len(y)), (x**2).sum(1)
    radius = np.sqrt(value(zero, y).mean() / lam)
    positive = (y > 0).mean()
    alone = (
        max(1, abs(np.log(positive / (1 - positive)))) if LOSSES[name][0].labels else abs(y).max()
    )
    bound = alone + radius * np.sqrt(square.max()) if free else 0.0
    pull = np.mean(slope(zero, y) ** 2 * (square + free))
    return radius, bound, np.sqrt((radius**2 + bound**2) / pull)


def by_hand(name, lam, rows, *, free=False, star=False, x=X, average_from=FROM):
    """Iterates and averages after each step, and how often the ball, the interval and the cap of
    the step were met."""
    y, slope = targets(name), LOSSES[name][2]
    radius, bound, first = set_by_hand(name, x, y, lam, free)
    w, b, total, mean, trace, means, met = (
        np.zeros(x.shape[1]),
        0.0,
        0.0,
        np.zeros(x.shape[1] + 1),
        [],
        [],
        np.zeros(3, int),
    )
    for j, batch in enumerate(rows, 1):
        eta = 1 / (lam * j) if star else min(first / np.sqrt(j), 1 / lam)
        pull = slope(x[batch] @ w + b, y[batch]) / len(batch)
        w, b = (1 - eta * lam) * w - eta * pull @ x[batch], b - eta * pull.sum() * free
        met += np.linalg.norm(w) > radius, abs(b) > bound, not star and first / np.sqrt(j) > 1 / lam
        w, b = w * min(1, radius / max(np.linalg.norm(w), 1e-300)), np.clip(b, -bound, bound)
        point = np.r_[w, b]
        if j > average_from:
            total += eta
            mean = mean + eta / total * (point - mean)
        trace.append(point)
        means.append(mean if j > average_from else point)
    return np.array(trace), np.array(means), met


def objective(name, point, lam, x=X, y=None):
    y = targets(name) if y is None else y
    point = np.asarray(point, np.float64)
    return lam / 2 * point[:-1] @ point[:-1] + LOSSES[name][1](x @ point[:-1] + point[-1], y).mean()


def optimum(name, lam, x, y):
    """The optimum with a free bias, of another program."""
    by = {"hinge": oracles.liblinear, "eps_insensitive": oracles.liblinear, "pinball": oracles.box}
    problem = SimpleNamespace(lam=lam, loss=LOSSES[name][0], bias="free")
    return by.get(name, oracles.minimum)(x, y, problem)


# steps


@pytest.mark.long(but=2)
@each_loss
def test_asset_steps_and_averages_as_printed(x64, name):
    met = np.zeros(3, int)
    for lam in (0.1, 1.0, 3.0):  # at the larger ones the first steps are cut to 1/lam
        for rows in (SINGLE, BATCHES):
            solver = jaxsvm.asset(lam, loss=LOSSES[name][0], average_from=FROM)
            _, iterates, models = trace(solver, dataset(name), rows)
            want, means, now = by_hand(name, lam, rows, free=True)
            close(iterates, want)
            close(models, means)
            met += now
    assert met[0] > 0 and met[2] > 0  # the ball and the cap were at work


@pytest.mark.long(but=2)
@each_loss
def test_asset_steps_and_averages_without_a_bias(x64, name):
    met = 0
    for lam in (0.01, 0.1, 10.0):
        _, iterates, models = trace(
            jaxsvm.asset(lam, loss=LOSSES[name][0], average_from=FROM, bias="none"),
            dataset(name),
            SINGLE,
        )
        want, means, now = by_hand(name, lam, SINGLE)
        close(iterates, want)
        close(models, means)
        met += now[2]
    assert met > 0


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("name", "rows", "average_from"),
    [(name, BATCHES, FROM) for name in LOSSES] + [("hinge", SINGLE, FROM), ("hinge", SINGLE, None)],
    ids=lambda value: "x".join(map(str, value.shape)) if isinstance(value, np.ndarray) else None,
)
def test_asset_star_steps_and_averages_as_printed(x64, name, rows, average_from):
    _, iterates, models = trace(
        jaxsvm.asset_star(0.1, loss=LOSSES[name][0], average_from=average_from), dataset(name), rows
    )
    want, means, met = by_hand(name, 0.1, rows, star=True)
    assert met[0] > 0
    close(iterates, want)
    close(models, want if average_from is None else means)


def test_the_average_starts_with_the_first_step_by_default_and_before_its_start_is_the_iterate(x64):
    data = dataset("hinge")
    _, iterates, models = trace(jaxsvm.asset(0.1), data, SINGLE)
    close(models, by_hand("hinge", 0.1, SINGLE, free=True, average_from=0)[1])
    assert abs(models[1:] - iterates[1:]).max() > 0.1
    _, iterates, models = trace(jaxsvm.asset(0.1, average_from=T), data, SINGLE)
    np.testing.assert_array_equal(models, iterates)


def test_the_interval_of_the_bias_is_kept_where_steps_would_leave_it(x64):
    # One class at the origin drives b up by eta each step until it stands at the other end of its
    # margin; at targets
    # far from 0 the steps of the squared loss overshoot.
    x = np.zeros((N, D))
    data = jaxsvm.dataset(x, TARGET + 50, task="regression")
    found, iterates, _ = trace(
        jaxsvm.asset(0.001, loss=losses.squared, average_from=FROM), data, SINGLE
    )
    assert np.isclose(abs(iterates[:, -1]).max(), float(found.bound), rtol=1e-14)
    assert abs(iterates[:, -1]).max() <= float(found.bound)


# constants


@pytest.mark.long(but=4)
@pytest.mark.parametrize("free", [True, False])
@each_loss
def test_the_set_and_the_first_step_by_hand(x64, name, free):
    for lam in (1e-4, 0.1):
        got = measure(dataset(name), lam, LOSSES[name][0], intercept=free)
        np.testing.assert_allclose(got, set_by_hand(name, X, targets(name), lam, free), rtol=1e-13)


def test_the_constants_of_the_table(x64):
    """Table 2.6, the radius less its sqrt(2), and D_G^2 a mean: with 1/M^2 it would be M times
    smaller."""
    lam, square = 0.01, (X**2).sum(1)
    far = abs(TARGET) > 0.2
    at_zero = {
        "hinge": 1,
        "squared_hinge": 1,
        "logistic": np.log(2),
        "eps_insensitive": ((abs(TARGET) - 0.2) * far).mean(),
    }
    pulls = {
        "hinge": (square + 1).mean(),
        "squared_hinge": 4 * (square + 1).mean(),
        "logistic": (square + 1).mean() / 4,
        "eps_insensitive": (far * (square + 1)).mean(),
        "pinball": (np.where(TARGET > 0, 0.3, 0.7) ** 2 * (square + 1)).mean(),
    }
    assert 0 < far.sum() < N or far.all()
    for name, pull in pulls.items():
        got = measure(dataset(name), lam, LOSSES[name][0], intercept=True)
        if name in at_zero:
            np.testing.assert_allclose(got.radius**2, at_zero[name] / lam, rtol=1e-13)
        np.testing.assert_allclose((got.radius**2 + got.bound**2) / got.first**2, pull, rtol=1e-13)


@pytest.mark.long(but=2)
@each_loss
def test_the_optimum_lies_in_the_set(x64, name):
    labels, n = LOSSES[name][0].labels, 12  # few rows, for the sake of SciPy
    x, y = X[:n], targets(name)[:n]
    rare = np.where(np.arange(n) == 5, 1.0, -1.0)
    near = 1e-3 * x  # the bias alone has to do the work
    cases = (
        [(x, rare), (x, -rare), (near, rare)]
        if labels
        else [(x, y + 30), (x, 4 * y - 20), (near, y + 30)]
    )
    cases.append((x, y))
    for x, y in cases:
        for lam in (0.01, 1.0):
            best = optimum(name, lam, x, y)
            b = float(best.f(np.zeros((1, D)))[0])
            got = measure(dataset(name, x, y), lam, LOSSES[name][0], intercept=True)
            # SciPy's tolerance
            assert np.sqrt(best.square) <= float(got.radius) * (1 + 1e-6)
            assert abs(b) <= float(got.bound) * (1 + 1e-6)


def test_logistic_with_rare_positives_needs_more_than_the_interval_of_the_hinge(x64):
    x, y = np.zeros((1000, 1)), np.where(np.arange(1000) == 0, 1.0, -1.0)
    got = measure(jaxsvm.dataset(x, y), 1.0, losses.logistic, intercept=True)
    np.testing.assert_allclose(got.bound, np.log(999), rtol=1e-12)  # the optimal b is -log(999)


@each_loss
def test_example_weights_count_as_copies_and_rows_of_weight_zero_do_not_count(x64, name):
    y, copies = targets(name), np.random.default_rng(5).integers(0, 4, N)
    assert (copies == 0).any() and len(np.unique(y[copies > 0] > 0)) == 2
    x, shown = X.copy(), y.copy()
    x[copies == 0] *= 1e3
    shown[copies == 0] *= 1 if LOSSES[name][0].labels else 1e3
    for free in (True, False):
        one = measure(dataset(name, x, shown, copies), 0.1, LOSSES[name][0], intercept=free)
        many = measure(
            dataset(name, np.repeat(X, copies, 0), np.repeat(y, copies)),
            0.1,
            LOSSES[name][0],
            intercept=free,
        )
        np.testing.assert_allclose(one, many, rtol=1e-13)
        assert np.isfinite(one).all()


def test_losses_that_pull_nowhere_still_give_a_finite_set():
    data = jaxsvm.dataset(X.astype(np.float32), np.full(N, 0.2), task="regression")
    for free in (True, False):
        found = measure(data, 0.1, losses.eps_insensitive(0.5), intercept=free)
        assert np.isfinite(found).all() and float(found.radius) == 0


# invariants


def test_iterates_and_averages_stay_in_the_set_in_float32():
    rows = np.random.default_rng(4).integers(0, N, (T, 1))
    for lam in (1e-3, 0.1, 3.0):
        solver = jaxsvm.asset(lam, loss=losses.hinge, average_from=FROM)
        found, iterates, models = trace(solver, dataset("hinge", dtype=np.float32), rows)
        for points in (iterates, models):
            sizes = np.linalg.norm(points[:, :-1].astype(float), axis=1)
            assert sizes.max() <= float(found.radius) * (1 + 1e-6)
            assert abs(points[:, -1]).max() <= float(found.bound) * (1 + 1e-6)


# The excess of a noisy problem, where every step is in doubt.
NOISY_X = np.random.default_rng(8).normal(size=(60, D))
NOISY_Y = np.where(
    NOISY_X[:, 0] + 0.4 + 1.5 * np.random.default_rng(9).normal(size=60) > 0, 1.0, -1.0
)


@functools.partial(jax.jit, static_argnames=("steps",))
def _averages(keys, data, *, steps):
    solver = jaxsvm.asset(0.01, average_from=steps // 2)
    return jax.vmap(lambda key: jaxsvm.fit(solver, data, key, steps=steps, every=steps).model)(keys)


@pytest.mark.long
def test_the_excess_falls_at_least_like_one_over_the_root_of_the_steps():
    lam = 0.01
    svc = sklearn.svm.SVC(C=1 / (lam * 60), kernel="linear", tol=1e-8).fit(NOISY_X, NOISY_Y)
    least = objective("hinge", np.r_[svc.coef_[0], svc.intercept_], lam, NOISY_X, NOISY_Y)
    data, keys = (
        jaxsvm.dataset(NOISY_X.astype(np.float32), NOISY_Y),
        jax.random.split(jax.random.key(0), 16),
    )
    excess, bound = {}, {}
    for steps in (500, 8000):
        models = _averages(keys, data, steps=steps)
        points = np.c_[models.w, models.b]
        values = np.array([objective("hinge", p, lam, NOISY_X, NOISY_Y) for p in points]) - least
        assert values.min() >= -1e-6 * least  # LIBSVM's tolerance
        excess[steps] = values.mean()
        radius, interval, first = set_by_hand("hinge", NOISY_X, NOISY_Y, lam, True)
        bound[steps] = (radius**2 + interval**2) / first / np.sqrt(steps)  # D_X D_G / sqrt(N)
    assert excess[8000] <= excess[500] / 4
    assert all(excess[steps] <= bound[steps] for steps in excess)


# errors


@pytest.mark.long
@pytest.mark.parametrize(
    "targets, loss, bias",
    [
        ([0.05, -0.05, 0.02, 0], losses.eps_insensitive(0.1), "free"),
        ([0, 0, 0, 0], losses.squared, "none"),
    ],
    ids=["tube", "zero"],
)
def test_targets_that_nothing_is_to_be_learnt_from_give_the_model_0(targets, loss, bias):
    data = jaxsvm.dataset(np.ones((4, 1), "f"), targets, task="regression")
    model = jaxsvm.fit(
        jaxsvm.asset(0.1, loss=loss, bias=bias), data, jax.random.key(0), steps=10
    ).model
    assert float(model.w[0]) == float(model.b) == 0


@pytest.mark.long
def test_rows_of_one_class_give_a_bound_that_is_finite():
    data = jaxsvm.Batch(
        jnp.ones((41, 2)), jnp.ones(41), jnp.arange(41, dtype=jnp.int32), jnp.ones(41)
    )
    model = jaxsvm.fit(
        jaxsvm.asset(0.1, loss=losses.logistic), data, jax.random.key(0), steps=50
    ).model
    assert np.isfinite(model.w).all() and 0 < float(model.b) < 100
