"""Which points go, shrinkage, batches and single rows of online methods on a budget."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.spatial
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from online_by_hand import (
    BUDGET,
    KEY,
    LABELS,
    METHODS,
    NEW,
    PERCEPTRONS,
    RBF,
    RNG,
    D,
    Function,
    N,
    Perceptron,
    X,
    alone,
    at,
    batches,
    by_hand,
    run,
    trace,
)

import jaxsvm
from jaxsvm import kernels, samplers
from jaxsvm.solvers.perceptrons.forgetron import shrinkage

EPS = 2.0**-23  # of float32

# random_budget_perceptron


def numbers(x, rows=X):
    """Which rows the points (m, d) are; places of zeros that nothing was stored in are left out."""
    far, which = scipy.spatial.cKDTree(rows).query(x)
    return set(which[far == 0].tolist())


@pytest.mark.long
def test_random_budget_perceptron_given_the_points_that_went(x64):
    states, info, values = alone("random")
    points = np.asarray(jax.vmap(METHODS["random"](BUDGET).model)(states).x)
    f, held, gone = Function(), [], []
    for t, (row, label) in enumerate(zip(X, LABELS, strict=True)):
        mistake = label * f(row[None])[0] <= 0
        assert mistake == info.loss[t]
        if mistake:
            f.append(row[None], label)
            now = numbers(points[t])
            out = [place for place, number in enumerate(held) if number not in now]
            # one of the old ones, never the newcomer
            assert len(out) == (len(held) == BUDGET) and t in now
            held.append(t)
            for place in out:
                f.drop(place)
                gone.append(held.pop(place))
        np.testing.assert_allclose(values[t], f(NEW), rtol=0, atol=1e-12)
    assert len(gone) > 2 * BUDGET


def far(n):
    """Rows so far from each other that the kernel among them is the identity."""
    return np.stack([50.0 * np.arange(n), np.zeros(n), np.zeros(n)], axis=1)


@functools.cache
def drops(seed, rounds=10):
    """Of rows that are all mistakes: the age among the stored points of that which goes, (t,)."""
    solver = METHODS["random"](BUDGET)
    with jax.enable_x64(True):
        x, y = far(rounds * N), np.where(np.arange(rounds * N) % 3 == 0, 1.0, -1.0)
        state, held, ages = solver.init(jax.random.key(seed), at(batches(), 0)), [], []
        for k in range(rounds):
            states, info, _ = jax.device_get(
                trace(solver, state, batches(x[k * N : k * N + N], y[k * N : k * N + N]))
            )
            assert np.all(info.loss == 1)
            state = at(states, -1)
            for t, points in enumerate(
                np.asarray(jax.vmap(solver.model)(states).x[..., 0] / 50).astype(int), k * N
            ):
                if len(held) == BUDGET:
                    ages.append(
                        [place for place, number in enumerate(held) if number not in points]
                    )
                    held.pop(ages[-1][0])
                held.append(t)
                assert len(held) < BUDGET or set(held) == set(points.tolist())
    assert np.shape(ages) == (rounds * N - BUDGET, 1)
    return np.ravel(ages)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_every_old_point_is_as_likely_to_go(seed):
    """By age, and by age after that of the drop before: chi-square of 12 and 16 classes."""
    ages = drops(seed)
    assert scipy.stats.chisquare(np.bincount(ages, minlength=BUDGET)).pvalue > 1e-3
    pairs = np.bincount(4 * (ages[:-1] // 3) + ages[1:] // 3, minlength=16)
    assert scipy.stats.chisquare(pairs).pvalue > 1e-3


@pytest.mark.long
def test_another_key_draws_others():
    assert np.mean(drops(0) == drops(1)) < 0.2  # 1/12 by chance


# room for all

OFTEN = RNG.integers(0, 50, N)  # rows that come several times, with either label
MIXED, MIXED_LABELS = X[OFTEN], LABELS[OFTEN] * np.where(RNG.random(N) < 0.25, -1, 1)


@functools.cache
def perceptron():
    """Losses, and values at new rows, of `perceptron(kernel)` on rows that come again; and how many
    of them it needs."""
    data, solver = jaxsvm.dataset(MIXED, MIXED_LABELS), jaxsvm.perceptron(RBF)

    @jax.jit
    def scanned(state, rows):
        def step(state, row):
            state, info = solver.update(state, data._replace(index=row))
            return state, (info.loss, solver.model(state, data)(NEW))

        return jax.lax.scan(step, state, rows)[1]

    losses, values = scanned(solver.init(KEY, data), jnp.arange(N, dtype=jnp.int32)[:, None])
    return losses, values, len(set(OFTEN[np.asarray(losses) == 1]))


@pytest.mark.long
@pytest.mark.parametrize("name", [*PERCEPTRONS, "projectron"])
def test_with_room_for_all_it_is_the_perceptron(name, x64):
    """Rows come again with either label, so that coefficients grow, vanish and change sign in their
    places."""
    losses, values, distinct = perceptron()
    expected = by_hand(Perceptron(np.inf), MIXED, MIXED_LABELS)
    assert distinct < np.sum(losses)
    make = PERCEPTRONS.get(name, jaxsvm.projectron)
    _, info, found = run(make(RBF, budget=distinct), batches(MIXED, MIXED_LABELS))
    np.testing.assert_array_equal(info.loss, losses)
    np.testing.assert_array_equal(info.loss, expected[0])
    assert int(info.support[-1]) == distinct
    # sums of some 50 values in other orders; Projectron's d of a row that is a point is 1 but for
    # 1e-16 cond(K)
    tolerance = 1e-12 if name in PERCEPTRONS else 1e-9
    np.testing.assert_allclose(found, values, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found, expected[1], rtol=0, atol=tolerance)


# forgetron


@pytest.mark.parametrize(
    ("sigma", "mu", "damage", "mistakes"),
    [
        (1.0, -1.0, 0.0, 3.0),  # a = 3
        (2.0, 1.0, 0.0, 2.0),  # a = 0
        (2.0, 1.25, 0.0, 32 / 15),  # a = -1, b = 4, c = -1
        (1.0, 1.0, 0.25, 2.0),  # a = -1, b = 2
        (0.5, 3.0, 0.0, 1.0),  # a < 0 and all of it is safe
        (0.3, -2.0, 4.0, 9.0),
    ],
)
def test_shrinkage_is_the_largest_that_is_safe(sigma, mu, damage, mistakes, x64):
    phi = np.arange(1, 10**6 + 1) / 10**6
    safe = (sigma * phi) ** 2 + 2 * sigma * phi * (1 - phi * mu) + damage <= 15 / 32 * mistakes
    np.testing.assert_allclose(shrinkage(sigma, mu, damage, mistakes), phi[safe].max(), atol=1.1e-6)


def test_shrinkage_where_public_code_has_the_other_root(x64):
    np.testing.assert_allclose(shrinkage(2.0, 1.25, 0.0, 32 / 15), 2 - 3**0.5, rtol=1e-12)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0, 0.5), st.floats(0.2, 3))
def test_forgetron_shrinks_within_bounds_and_its_damage_stays_below_them(
    seed, sigma, noise, weight
):
    """In float32: 0 < phi <= 1 and Q <= 15/32 mistakes, whatever the rows, their weight and the
    width of the kernel."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(N, D)).astype(np.float32)
    y = np.where(random.random(N) < noise, -1, 1) * np.sign(x[:, 0])
    states, info, _ = run(
        jaxsvm.forgetron(kernels.rbf(sigma), budget=4), batches(x, y.astype(np.float32), weight)
    )
    f, mistakes = states.f, np.cumsum(info.loss > 0)
    np.testing.assert_array_equal(f.added, mistakes)
    late = np.flatnonzero((info.loss > 0) & (mistakes > 4))
    newest = np.argmax(np.where(f.coef != 0, f.birth, -1), axis=1)
    phi = np.abs(f.coef[late, newest[late]]) / np.float32(weight)
    assert np.all(phi > 0) and np.all(phi <= 1 + EPS)
    # a phi on the bound is rounded, and so is the sum, whose terms are below 20 weight^2
    assert np.all(f.memory <= 15 / 32 * mistakes * (1 + 4 * EPS) + 40 * EPS * max(weight, 1) ** 2)


# batches, sparse rows


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("bogd", "fogd")])
def test_rows_of_a_batch_come_in_turn(name, x64):
    """Rows so far apart that no score changes in between; bogd shrinks once a step, features of
    fogd are never so far apart."""
    solver, x = METHODS[name](BUDGET), far(N)
    ones, info, _ = run(solver, batches(x))
    # a step takes the mean of its rows
    threes, batched, _ = run(solver, batches(x, weight=3.0, b=3))
    one, three = solver.model(at(ones, -1)), solver.model(at(threes, -1))
    np.testing.assert_allclose(three.x, one.x, rtol=0, atol=0)
    np.testing.assert_allclose(three.coef, one.coef, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        batched.loss, 3 * info.loss.reshape(-1, 3).mean(1), rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(batched.support, info.support[2::3])
    assert int(info.support[-1]) == BUDGET


# single cases


def test_weights_multiply_the_steps_of_descent(x64):
    data = jaxsvm.dataset([[0.0], [50.0]], [1, -1], [1.0, 3.0])
    solver = jaxsvm.bogd(1e-9, RBF, budget=4, eta=0.2)
    state, _ = jaxsvm.step(solver, solver.init(KEY, data), data)
    np.testing.assert_allclose(solver.model(state)(data.x), [0.1, -0.3], rtol=1e-6)


@pytest.mark.long
def test_projectron_takes_all_mistakes_of_a_batch_as_the_perceptron_does(x64):
    """The second row is right once the first is in; it was a mistake when the batch was scored."""
    data = jaxsvm.Batch(
        jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        jnp.ones(2),
        jnp.arange(2, dtype=jnp.int32),
        jnp.ones(2),
    )
    values = []
    for solver in (jaxsvm.projectron(RBF, budget=4), jaxsvm.stoptron(RBF, budget=4)):
        state = solver.update(solver.init(KEY, data), data)[0]
        values.append(solver.model(state)(data.x))
    np.testing.assert_allclose(*values, rtol=1e-12)


@pytest.mark.long
def test_bpas_takes_a_row_that_is_0_in_feature_space():
    """Nothing projects on it; the other rows are learned as if it were absent."""
    data = jaxsvm.dataset(
        np.array([[1.0, 0], [0, 1], [0, 0], [2, 1]], np.float32), np.array([1, -1, 1, 1])
    )
    solver = jaxsvm.bpas(1.0, kernels.linear(), budget=2)
    found = jaxsvm.fit(solver, data, KEY, steps=8, sampler=samplers.epochs(1, shuffle=False))
    assert np.isfinite(np.asarray(found.model.coef)).all() and found.finite


def test_counts_of_a_point_stay_when_its_row_is_a_mistake_again():
    """p_j counts all rows nearest to x_j, those too that are the point itself."""
    data = jaxsvm.dataset(np.array([[1.0], [1.0]], np.float32), np.array([1, -1]))
    solver = jaxsvm.tightest_perceptron(kernels.linear(), budget=3)
    sampler = samplers.epochs(1, shuffle=False)
    state = jaxsvm.fit(solver, data, KEY, steps=4, sampler=sampler).state.solver
    # a row of weight 0 counts nowhere
    state, _ = jaxsvm.step(solver, state, jaxsvm.take(data._replace(weight=0 * data.weight), [0]))
    counts = np.concatenate(
        [np.asarray(a).reshape(3, -1) for a in jax.tree.leaves(state.f.annotations)], axis=1
    )
    assert counts.sum() == 4 and sorted(counts[counts.sum(1) > 0].ravel()) == [2, 2]
