"""Functions on a budget and BSGD against NumPy in float64: the algebra of merging, every step, what
holds at each of them."""

import functools
import importlib
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.sparse
from compiling import as_users
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import jaxsvm
from jaxsvm import budget, kernels, samplers
from jaxsvm._node import cast
from jaxsvm.budget.merging import (
    GRID,
    _Side,
    _smallest,
    all_partners,
    by_search,
    from_table,
    merge_position,
    sample_partners,
    table,
    width,
)
from jaxsvm.numerics import multiply_high
from jaxsvm.spaces import budgeted
from jaxsvm.types import take

loops = importlib.import_module("jaxsvm.loops.fitting")  # the package has a function of this name

N, D, LAM, SIGMA = 24, 3, 0.05, 0.9  # one shape for all data sets, so that they share programs
T = 3 * N
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)  # the same rows in both dtypes
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, np.round(RNG.uniform(0.5, 2, N), 2))
NEW = RNG.normal(size=(7, D))
RBF = kernels.rbf(SIGMA)
KEY = jax.random.key(1)
property_test = settings(max_examples=15, deadline=None, derandomize=True, database=None)


gaussian = functools.partial(oracles.gaussian, gamma=1 / (2 * SIGMA**2))


def cubic(x, z):
    return (x @ z.T + 1) ** 3


def dataset(x=X, y=LABELS, weight=None, dtype=np.float64):
    return jaxsvm.dataset(x.astype(dtype), y, weight, task="binary")


def make(maintain, lam=LAM, kernel=RBF, size=5):
    return jaxsvm.bsgd(lam, kernel, budget=size, maintain=maintain)


def orders(times, seed=0, n=N):
    """`times` passes in random orders, (t, 1)."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(
        np.concatenate([rng.permutation(n) for _ in range(times)])[:, None], jnp.int32
    )


@jax.jit
def trace(solver, state, data, rows):
    """After each step on given rows (t, b): the written state, the model, its values at NEW; and
    what the step said."""

    def step(state, index):
        state, info = solver.update(state, take(data, index))
        model = solver.model(state)
        return state, (state.f.flush(), model, model(jnp.asarray(NEW, data.x.dtype)), info)

    return lax.scan(step, state, rows)[1]


def states(solver, data, rows):
    return trace(solver, solver.init(KEY, data), data, rows)


def live(f, t):
    """Points and coefficients of s after a step, in float64."""
    front, back, m = int(f.front[t]), int(f.back[t]), f.coef.shape[1]
    there = [*range(front), *range(m - back, m)]
    return (np.asarray(f.x[t], np.float64) + np.asarray(f.shift[t], np.float64))[there], np.asarray(
        f.coef[t], np.float64
    )[there]


def sqnorm(x, coef, kernel=gaussian):
    return coef @ kernel(x, x) @ coef


# by hand, in NumPy


def s_of(h, m, L):
    return m * np.exp(-L * (1 - h) ** 2) + (1 - m) * np.exp(-L * h**2)


def densely(m, L):
    """max_h s(h) by finer and finer grids, with both ends."""
    m, L = np.broadcast_arrays(np.asarray(m, np.float64), np.asarray(L, np.float64))
    h, best = np.zeros(m.shape), s_of(0.0, m, L)
    centre, step = np.full(m.shape, 0.5), 0.5 / 100
    for _ in range(6):
        for k in range(-100, 101) if step == 0.005 else range(-10, 11):
            at = np.clip(centre + k * step, 0, 1)
            value = s_of(at, m, L)
            h, best = np.where(value > best, at, h), np.maximum(value, best)
        centre, step = h, step / 10
    return h, best


def lost(m, L, s):
    """|w - w'|^2 / (coef_i + coef_j)^2."""
    return m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * np.exp(-L) - s**2


def lost_densely(m, L):
    return lost(m, L, densely(m, L)[1])


def peak(m, L):
    """h and s(h): the root of s' next to the best of a grid, the smallest of several as high."""
    grid = np.linspace(0, 1, 2001)
    value = s_of(grid, m, L)
    k = int(np.argmax(value >= value.max() - 1e-14))
    slope = lambda h: m * (1 - h) * np.exp(-L * (1 - h) ** 2) - (1 - m) * h * np.exp(-L * h**2)
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, 2000)]
    h = (
        scipy.optimize.brentq(slope, low, high, xtol=1e-15)
        if slope(low) > 0 > slope(high)
        else grid[k]
    )
    return h, s_of(h, m, L)


def golden(m, L):
    """What a merge changes, h by ten steps of golden section and the ends."""
    low, high, ratio = 0.0, 1.0, (5**0.5 - 1) / 2
    for _ in range(10):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if s_of(left, m, L) >= s_of(right, m, L) else (left, high)
    return lost(m, L, max(s_of(h, m, L) for h in (low, high, 0.0, 1.0)))


@functools.cache
def dense_table():
    axes = np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID)
    m, kappa = np.meshgrid(*axes, indexing="ij")
    return scipy.interpolate.RegularGridInterpolator(
        axes, lost_densely(m, -np.log(np.maximum(kappa, 1e-300)))
    )


def looked_up(m, L):
    return float(dense_table()([min(m, 1 - m), np.exp(-L)])[0])


def merged(change):
    def maintain(x, coef, kernel):
        side = coef > 0
        paired = np.where(side, side.sum(), (~side).sum()) > 1
        i = int(np.argmin(np.where(paired, np.abs(coef), np.inf)))
        partners = [j for j in np.flatnonzero(side == side[i]) if j != i]
        share = lambda j: coef[i] / (coef[i] + coef[j])
        length = lambda j: ((x[i] - x[j]) ** 2).sum() / (2 * SIGMA**2)
        j = min(partners, key=lambda j: (coef[i] + coef[j]) ** 2 * change(share(j), length(j)))
        h, s = peak(share(j), length(j))
        x, coef = x.copy(), coef.copy()
        x[j], coef[j] = h * x[i] + (1 - h) * x[j], (coef[i] + coef[j]) * s
        return np.delete(x, i, 0), np.delete(coef, i)

    return maintain


def removed(x, coef, kernel):
    i = int(np.argmin(coef**2 * np.diag(kernel(x, x))))
    return np.delete(x, i, 0), np.delete(coef, i)


def projections(x, coef, kernel):
    """For each point the coefficients of the others without it, and what that changes."""
    gram = kernel(x, x)
    for r in range(len(coef)):
        others = np.delete(np.arange(len(coef)), r)
        share = np.linalg.lstsq(gram[np.ix_(others, others)], gram[others, r], rcond=None)[0]
        yield coef[others] + coef[r] * share, coef[r] ** 2 * (gram[r, r] - gram[others, r] @ share)


def projected(x, coef, kernel):
    found = list(projections(x, coef, kernel))
    r = int(np.argmin([changed for _, changed in found]))
    return np.delete(x, r, 0), found[r][0]


def bsgd_by_hand(data, rows, lam, size, maintain, kernel):
    """Points and coefficients of s = lam t w after each step, the oldest point first, and |s -
    s'|^2 of maintenance."""
    x_all, y_all, weight = (np.asarray(a, np.float64) for a in (data.x, data.y, data.weight))
    x, coef, trail = np.zeros((0, D)), np.zeros(0), []
    for t, step in enumerate(np.asarray(rows)):
        step, changed = [i for i in step if i >= 0 and weight[i] > 0], 0.0
        score = kernel(x_all[step], x) @ coef
        for i, s in zip(step, score, strict=True):
            if t > 0 and y_all[i] * s >= lam * t:
                continue
            move, twin = y_all[i] * weight[i] / len(step), np.flatnonzero((x == x_all[i]).all(1))
            if len(twin):
                move += coef[twin[0]]
                x, coef = np.delete(x, twin[0], 0), np.delete(coef, twin[0])
            x, coef = np.concatenate([x, x_all[i : i + 1]]), np.append(coef, move)
            if len(coef) > size:
                fewer, rest = maintain(x, coef, kernel)
                changed += (
                    max(sqnorm(np.concatenate([x, fewer]), np.append(coef, -rest), kernel), 0)
                    ** 0.5
                )
                x, coef = fewer, rest
        trail.append((x, coef, changed))
    return trail


HANDS = {
    "merge, look-up": (budget.merge(), merged(looked_up), RBF, gaussian),
    "merge, golden": (budget.merge(search="golden"), merged(golden), RBF, gaussian),
    "remove": (budget.remove(), removed, RBF, gaussian),
    "remove, cubic": (budget.remove(), removed, kernels.polynomial(), cubic),
    "project": (budget.project(), projected, RBF, gaussian),
    "project, cubic": (budget.project(), projected, kernels.polynomial(), cubic),
}


def agree(name, data, rows, size=5, lam=LAM, atol=1e-9):
    """All steps of a run are those by hand, as functions and in the number of points; how often
    maintenance was called for."""
    maintain, by_hand, kernel, in_numpy = HANDS[name]
    f, _, at_new, info = states(make(maintain, lam, kernel, size), data, rows)
    trail = bsgd_by_hand(data, rows, lam, size, by_hand, in_numpy)
    for t, (x, coef, _) in enumerate(trail):
        np.testing.assert_allclose(
            at_new[t] * lam * (t + 1), in_numpy(NEW, x) @ coef, rtol=atol, atol=atol
        )
        assert int(info.support[t]) == len(coef)
        here = np.sort(live(f, t)[1])
        np.testing.assert_allclose(here, np.sort(coef), rtol=atol, atol=atol)
    return sum(changed > 0 for *_, changed in trail)


# merging two points


M = np.concatenate(
    [
        RNG.uniform(0, 1, 1500),
        RNG.normal(0.5, 1e-3, 250).clip(0, 1),
        np.linspace(0, 1, 21),
        0.5 * np.ones(229),
    ]
)
LENGTH = np.concatenate([RNG.exponential(2, 1000), 10 ** RNG.uniform(-4, 5, 998), [0.0, 1e5]])
RNG.shuffle(LENGTH)
KAPPA = np.exp(-LENGTH)


def in_dtype(dtype):
    """The pairs rounded, and the numbers in float64 that these stand for."""
    m, L = M.astype(dtype), LENGTH.astype(dtype)
    return jnp.asarray(m), jnp.asarray(L), m.astype(np.float64), L.astype(np.float64)


def test_position_is_the_best_of_a_dense_search(x64):
    m, L, *_ = in_dtype(np.float64)
    h, s = map(np.asarray, merge_position(m, L, 15, 2))
    _, best = densely(M, LENGTH)
    np.testing.assert_allclose(s, s_of(h, M, LENGTH), rtol=1e-14)
    np.testing.assert_allclose(s, best, rtol=0, atol=1e-10)
    assert np.all((h >= 0) & (h <= 1))
    # the stationary point to rounding, where s bends enough for it to be one
    bends = (np.abs(M - 0.5) > 0.01) & (LENGTH > 1e-3) & (LENGTH < 20)
    exact = np.array([peak(*pair)[0] for pair in zip(M[bends], LENGTH[bends], strict=True)])
    np.testing.assert_allclose(h[bends], exact, rtol=0, atol=1e-9)
    assert bends.sum() > 500


@pytest.mark.long
def test_ends_are_looked_at_where_points_are_far_apart():
    """In float32, where exp(-L) is 0."""
    m, L = jnp.asarray([0.3, 0.5, 0.7, 0.0, 1.0], jnp.float32), jnp.full(5, 1e5, jnp.float32)
    for steps in (10, 15):
        h, s = merge_position(m, L, steps, 2)
        np.testing.assert_allclose(s, [0.7, 0.5, 0.7, 1, 1], rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(h)[[0, 2, 3, 4]], [0, 1, 0, 1])
    for change in (by_search, from_table):
        np.testing.assert_allclose(change(m, L), [0.09, 0.25, 0.09, 0, 0], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("change, room", [(by_search, 4e-4), (from_table, 1e-4)])
def test_what_a_merge_changes_is_that_of_a_dense_search(change, room, dtype):
    with jax.enable_x64(dtype == np.float64):
        *pair, m, L = in_dtype(dtype)
        got = change(*pair)
        assert got.dtype == dtype
    off = np.asarray(got, np.float64) - lost_densely(m, L)
    assert np.abs(off).max() <= room
    assert off.min() >= -(1e-6 if change is by_search else room)  # a search can only miss


@functools.cache
def between_entries():
    """In the middle of each cell of the table, where interpolation is worst, in float32: m, L and
    what a merge changes."""
    m, kappa = (
        (np.arange(GRID - 1) + 0.5) / (2 * (GRID - 1)),
        (np.arange(GRID - 1) + 0.5) / (GRID - 1),
    )
    m, kappa = np.meshgrid(m.astype(np.float32), kappa.astype(np.float32), indexing="ij")
    return m, -np.log(kappa), lost_densely(m.astype(np.float64), -np.log(kappa).astype(np.float64))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_table_is_within_1e_4_everywhere(dtype):
    m, L, exact = between_entries()
    with jax.enable_x64(dtype == np.float64):
        m, L = jnp.asarray(m, dtype), jnp.asarray(L, dtype)
        got, mirrored = (np.asarray(from_table(share, L), np.float64) for share in (m, 1 - m))
    assert np.abs(got - exact).max() <= 1e-4
    np.testing.assert_allclose(mirrored, got, rtol=0, atol=1e-6)


@pytest.mark.long
def test_the_table_holds_the_minimum_and_its_closed_forms():
    entries = table()
    m, kappa = np.meshgrid(np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID), indexing="ij")
    assert entries.shape == (GRID, GRID) and entries.dtype == np.float64
    np.testing.assert_allclose(entries, dense_table().values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(entries[:, 0], m[:, 0] ** 2, atol=1e-15)
    np.testing.assert_allclose(entries[:, -1], 0, atol=1e-15)
    np.testing.assert_allclose(entries[0], 0, atol=1e-15)
    bimodal = kappa[-1] < np.exp(-2)
    np.testing.assert_allclose(
        entries[-1][~bimodal], (1 - np.sqrt(kappa[-1][~bimodal])) ** 2 / 2, atol=1e-12
    )
    assert np.all(entries[-1][bimodal][1:] < (1 - np.sqrt(kappa[-1][bimodal][1:])) ** 2 / 2 - 1e-12)
    assert np.all(entries <= m**2 * (1 - kappa**2) + 1e-15) and entries.min() >= 0


@pytest.mark.long
def test_closed_forms_of_a_merge(x64):
    m, L, *_ = in_dtype(np.float64)
    h, s = map(np.asarray, merge_position(m, L, 15, 2))
    other, s_other = map(np.asarray, merge_position(1 - m, L, 15, 2))
    np.testing.assert_allclose(s_other, s, rtol=0, atol=1e-10)
    heavier = (np.abs(M - 0.5) > 1e-6) & (LENGTH > 1e-3)
    np.testing.assert_allclose(other[heavier], 1 - h[heavier], rtol=0, atol=1e-6)
    assert np.all((h[heavier] > 0.5) == (M[heavier] > 0.5))  # nearer the heavier point
    # or the smaller would better go
    assert np.all(lost(M, LENGTH, s) <= np.minimum(M, 1 - M) ** 2 * (1 - KAPPA**2) + 1e-15)
    assert np.all(s <= 1) and np.all(s >= np.maximum(M, 1 - M))
    half, L = jnp.full(200, 0.5), jnp.linspace(0.01, 4, 200)  # at 0 all h are as good
    h, s = map(np.asarray, merge_position(half, L, 15, 2))
    middle = np.asarray(L) < 2
    np.testing.assert_allclose(h[middle], 0.5, atol=1e-3)
    np.testing.assert_allclose(s[middle], np.exp(-np.asarray(L)[middle] / 4), atol=1e-10)
    assert np.all(np.abs(h[np.asarray(L) > 2.05] - 0.5) > 0.05)
    np.testing.assert_array_equal(merge_position(jnp.asarray(0.3), jnp.asarray(0.0), 15, 2)[1], 1)


@pytest.mark.parametrize("case", range(4))
def test_no_point_off_the_segment_is_better(case):
    """The minimum over free points by SciPy's BFGS."""
    rng = np.random.default_rng(case)
    x, coef = rng.normal(size=(2, D)), rng.uniform(0.2, 1, 2)
    L = ((x[0] - x[1]) ** 2).sum() / (2 * SIGMA**2)
    m = coef[0] / coef.sum()

    def changed(z):
        value = gaussian(z[None], x)[0]
        beta = value @ coef
        slope = -2 * beta * (coef * value) @ (x - z) / SIGMA**2
        return sqnorm(x, coef) - beta**2, slope

    best = min(
        (
            scipy.optimize.minimize(
                changed, x[0] + a * (x[1] - x[0]) + 0.2 * rng.normal(size=D), jac=True, tol=1e-12
            )
            for a in np.linspace(0, 1, 9)
        ),
        key=lambda found: found.fun,
    )
    with jax.enable_x64(True):
        h, s = merge_position(jnp.asarray(m), jnp.asarray(L), 15, 2)
    np.testing.assert_allclose(coef.sum() ** 2 * lost(m, L, float(s)), best.fun, atol=1e-10)
    np.testing.assert_allclose(float(h) * x[0] + (1 - float(h)) * x[1], best.x, atol=1e-5)


def test_width_is_that_of_a_gaussian():
    np.testing.assert_allclose(
        [width(kernels.rbf(2.0)), width(3 * kernels.rbf(gamma=0.7))], [0.125, 0.7], rtol=1e-6
    )


# every step


@pytest.mark.long
@pytest.mark.parametrize("name", HANDS)
def test_every_step_is_that_of_the_paper(name, x64):
    """Over three passes; the rows are those that the solver's own sampler draws."""
    data, own = dataset(), make(budget.remove()).sampler
    rows = own.draw(own.init(KEY, data), 0, T)
    np.testing.assert_array_equal(
        np.sort(np.asarray(rows).reshape(3, N)), np.tile(np.arange(N), (3, 1))
    )
    assert agree(name, data, rows) >= 8


@pytest.mark.long
@pytest.mark.parametrize("name", ["merge, look-up", "remove", "project"])
def test_weights_and_rows_that_stand_there_twice(name, x64):
    """A row that is a point already adds to its coefficient, and is the newest point then."""
    x = np.tile(X[: N // 3], (3, 1))
    assert agree(name, dataset(x, np.tile(LABELS[: N // 3], 3), WEIGHT), orders(3)) > 10


@pytest.mark.long
@pytest.mark.parametrize("name", ["merge, look-up", "remove", "project"])
def test_rows_of_a_batch_come_one_after_the_other_with_scores_from_before(name, x64):
    rows = np.asarray(orders(3)).reshape(-1, 3)
    rows = np.where(np.arange(rows.size).reshape(rows.shape) % 8 == 5, -1, rows)  # padding
    assert agree(name, dataset(weight=WEIGHT), jnp.asarray(rows)) > 8


@pytest.mark.long
def test_fit_makes_these_steps(x64):
    data, solver = dataset(), make(budget.merge())
    run = jaxsvm.fit(solver, data, KEY, steps=T, every=T)
    for_solver, for_sampler = jax.random.split(KEY)
    rows = solver.sampler.draw(solver.sampler.init(for_sampler, data), 0, T)
    x, coef, _ = bsgd_by_hand(data, rows, LAM, 5, merged(looked_up), gaussian)[-1]
    np.testing.assert_allclose(
        run.model(jnp.asarray(NEW)), gaussian(NEW, x) @ coef / (LAM * T), atol=1e-9
    )
    assert run.model.x.shape == (5, D) and np.all(run.model.index == -1) and float(run.model.b) == 0


@pytest.mark.long
@pytest.mark.parametrize("name", HANDS)
def test_with_room_for_all_rows_it_is_kernel_pegasos(name, x64):
    maintain, _, kernel, _ = HANDS[name]
    data, rows = dataset(weight=WEIGHT), orders(3)
    _, _, at_new, info = states(make(maintain, kernel=kernel, size=N), data, rows)

    @jax.jit
    def unlimited(solver, state):
        def step(state, index):
            state, info = solver.update(state, data._replace(index=index))
            return state, (solver.model(state, data)(jnp.asarray(NEW)), info)

        return lax.scan(step, state, rows)[1]

    solver = jaxsvm.kernel_pegasos(LAM, kernel)
    expected, told = unlimited(solver, solver.init(KEY, data))
    np.testing.assert_allclose(at_new, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(info.support, told.support)
    np.testing.assert_allclose(info.loss, told.loss, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(info.residual, told.residual)
    assert int(info.support[-1]) > 5


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["merge, look-up", "merge, golden", "remove", "project"])
def test_what_maintenance_changed_bounds_the_distance_to_the_run_without_a_budget(name, x64):
    """On the rows that violated here: |w - u| <= (1/T) sum_t t |w_t - w_t'|, and the sum of
    formulae is that of the states."""
    maintain, by_hand, *_ = HANDS[name]
    data, rows = dataset(), orders(3)
    f, *_, info = states(make(maintain), data, rows)
    changed = [part for *_, part in bsgd_by_hand(data, rows, LAM, 5, by_hand, gaussian)]
    moves = np.where(np.asarray(info.residual) > 0, LABELS[np.asarray(rows)[:, 0]], 0)
    before, jumps, apart = (np.zeros((0, D)), np.zeros(0)), [], []
    for t, row in enumerate(np.asarray(rows)):
        now = live(f, t)
        pieces = [now, (before[0], -before[1]), (X[row], -moves[t : t + 1])]
        x, coef = (np.concatenate(part) for part in zip(*pieces, strict=True))
        jumps.append(max(sqnorm(x, coef), 0) ** 0.5)
        free = (
            np.concatenate([now[0], X[np.asarray(rows)[: t + 1, 0]]]),
            np.append(now[1], -moves[: t + 1]),
        )
        apart.append(max(sqnorm(*free), 0) ** 0.5)
        before = now
    np.testing.assert_allclose(jumps, changed, atol=1e-6)  # roots of rounding
    assert np.all(apart <= np.cumsum(changed) * (1 + 1e-9) + 1e-6)
    assert apart[-1] > 0.1
    assert apart[-1] / (LAM * T) <= sum(part / (LAM * (t + 1)) for t, part in enumerate(changed))


# what holds at each step


MAINTAINED = {
    "merge()": budget.merge(),
    "merge(partners=2, search='golden')": budget.merge(partners=2, search="golden"),
    "remove()": budget.remove(),
    "project()": budget.project(),
}
SPACES = [(name, size) for name, size in itertools.product(MAINTAINED, [2, 5])]


@st.composite
def walks(draw):
    """A data set of N rows, some of them equal, and T visits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.sampled_from([2, 4, 9, N]))
    scale = draw(st.sampled_from([0.05, 1.0, 30.0]))
    x = (scale * rng.normal(size=(kinds, D)))[rng.integers(0, kinds, N)]
    y = np.where(rng.random(N) < draw(st.sampled_from([0.1, 0.5, 0.9])), 1.0, -1.0)
    y[:2] = 1, -1
    weight = draw(
        st.sampled_from([np.ones(N), rng.choice([0, 0.5, 1, 2, 3], N) + 1e-3 * (np.arange(N) == 0)])
    )
    return x, y, weight, rng.integers(0, N, (T, 1)), draw(st.sampled_from([1e-3, 0.05, 1.0]))


def visits_to_a_full_budget(name, size, walk):
    """How often there was no room, where all holds that must."""
    x, y, weight, rows, lam = walk
    with jax.enable_x64(True):
        data = dataset(x, y, weight)
        f, model, at_new, info = states(
            make(MAINTAINED[name], lam, size=size), data, jnp.asarray(rows, jnp.int32)
        )
        f, model, at_new, info = jax.tree.map(np.asarray, (f, model, at_new, info))
    front, back, place = f.front, f.back, np.arange(size)
    assert np.all((front >= 0) & (back >= 0) & (front + back <= size))
    np.testing.assert_array_equal(info.support, front + back)
    taken = (place < front[:, None]) | (place >= size - back[:, None])
    assert np.all(f.coef[~taken] == 0) and np.all(np.isfinite(f.coef)) and np.all(np.isfinite(f.x))
    if name != "project()":
        assert np.all(f.coef[place < front[:, None]] >= 0) and np.all(
            f.coef[place >= size - back[:, None]] <= 0
        )
    np.testing.assert_allclose(f.sqnorm[taken], (f.x**2).sum(-1)[taken], rtol=1e-12)
    np.testing.assert_allclose(
        model.coef, f.coef / (lam * np.arange(1, T + 1)[:, None]), rtol=1e-12
    )
    before, full = (np.zeros((0, D)), np.zeros(0)), 0
    for t, row in enumerate(rows[:, 0]):
        now = live(f, t)
        # no two of an age
        assert len(
            {born for born, there in zip(f.birth[t], taken[t], strict=True) if there}
        ) == len(now[1])
        move = np.where(info.residual[t] > 0, y[row] * weight[row], 0.0)
        grown, coef = before
        twin = (grown == x[row]).all(1)
        if move != 0 and not np.any(twin):
            grown, coef = np.append(grown, x[row][None], 0), np.append(coef, move)
        elif move != 0:
            coef = coef + move * twin
        jump = sqnorm(np.concatenate([now[0], grown]), np.append(now[1], -coef))
        rounding = 1e-12 * (1 + np.abs(coef).sum()) ** 2
        if len(coef) <= size:
            assert jump <= rounding and len(now[1]) == len(coef)
        else:
            full += 1
            assert len(now[1]) == size
            # where labels differ a coefficient may be 0 again
            side = np.append(np.arange(size) < front[t - 1], move > 0)
            paired = np.where(side, side.sum(), (~side).sum()) > 1
            least = np.min(
                coef**2, where=paired if name.startswith("merge") else True, initial=np.inf
            )
            if name == "remove()":
                np.testing.assert_allclose(jump, least, atol=rounding)
            assert jump <= least + rounding  # never worse than leaving a point out
        before = now
    return full


@pytest.mark.long
@pytest.mark.parametrize("name, size", SPACES)
def test_points_keep_their_places_and_the_function_changes_no_more_than_it_must(name, size):
    full = []
    property_test(
        given(walks())(lambda walk: full.append(visits_to_a_full_budget(name, size, walk)))
    )()
    assert sum(full) > 100


@pytest.mark.long
def test_a_state_whose_rows_wait_says_what_its_model_says():
    """Values between steps, at rows of the data and at new ones, and `written` changes nothing
    twice."""
    data = dataset(dtype=np.float32)
    space = budgeted(RBF, budget=4, maintain=budget.merge())

    @jax.jit
    def walk(f):
        def step(f, index):
            batch = take(data, index)
            f = space.add(f, jnp.float32(0.1), batch.y, batch)
            once = f.flush()
            twice = once.flush()
            same = jnp.all(once.x == twice.x) & jnp.all(once.sqnorm == twice.sqnorm)
            waits = jnp.any(once.x != f.x)
            return f, (
                space.evaluate(f, data),
                space.evaluate(once, data),
                space.model(f)(data.x),
                same,
                waits,
            )

        return lax.scan(step, f, orders(1))[1]

    value, after, model, same, waits = walk(space.zero(KEY, data))
    np.testing.assert_array_equal(value, after)
    np.testing.assert_allclose(value, model, atol=1e-6)
    assert np.all(same) and np.sum(waits) > 12


# partners


def test_places_of_the_two_signs_and_of_random_removals():
    """Lists of positive and negative points in Python. The hash of a removal stays the same from
    version to version."""

    def fmix32(h):  # the finaliser of MurmurHash3
        for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            h = (h ^ h >> shift) * multiplier % 2**32
        return h ^ h >> 16

    @jaxsvm.node
    class at_random(budget.Maintenance):
        def change(self, kernel, points, state):
            place = multiply_high(points.bits, jnp.uint32(5))
            return budget.remove_point(points, place), state

    space = budgeted(kernels.linear(), budget=5, maintain=at_random())
    add = jax.jit(lambda f, coef, row: space.add(f, 0.0 * coef[0], coef, row))
    data = dataset(dtype=np.float32)
    f, front, back = space.zero(KEY, data), [], []
    seed, coefs = int(f.seed), np.float32(0.5 + 0.01 * np.arange(N)) * np.where(X[:, 0] > 0, 1, -1)
    for t, coef in enumerate(coefs):
        f = add(f, jnp.asarray(coefs[[t]]), take(data, jnp.array([t])))
        own, other = (front, back) if coef > 0 else (back, front)
        if len(front) + len(back) < 5:
            own.append(coef)
            continue
        place = fmix32((seed + fmix32(t)) % 2**32) * 5 >> 32
        side, place = (front, place) if place < len(front) else (back, 4 - place)
        if side is own:
            own[place] = coef
        else:  # the last of the other sign takes the place
            other[place] = other[-1]
            other.pop()
            own.append(coef)
        assert np.asarray(f.coef).tolist() == front + back[::-1]
        assert (int(f.front), int(f.back)) == (len(front), len(back))
    assert front and back


def full_points(front, newcomer, size=8, seed=0, kernel=RBF, coef=None):
    """A full budget of points with `front` of them above 0, and a newcomer, in float64."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size + 1, D))
    if coef is None:
        coef = rng.uniform(0.5, 2, size + 1) * np.where(
            np.append(np.arange(size) < front, newcomer > 0), 1, -1
        )
    x, coef = jnp.asarray(x), jnp.asarray(coef)
    return budget.Points(
        x=x[:-1],
        sqnorm=(x[:-1] ** 2).sum(1),
        coef=coef,
        row=x[-1],
        values=kernel(x[-1:], x)[0],
        birth=jnp.asarray(np.append(rng.permutation(size), size), jnp.int32),
        annotations=(),
        front=jnp.asarray(front, jnp.int32),
        back=jnp.asarray(size - front, jnp.int32),
        bits=jnp.asarray(rng.integers(0, 2**32), jnp.uint32),
    )


def same_sign(points, i):
    """The places of the others that share the sign of place i."""
    coef = np.asarray(points.coef)
    return {int(j) for j in np.flatnonzero((coef > 0) == (coef[i] > 0)) if j != i}


def side_of(points, i):
    """The places of the points that share the sign of place i."""
    coef, m, front = np.asarray(points.coef), points.budget, int(points.front)
    above = coef[i] > 0
    first, stored = (0, front) if above else (front, m - front)
    return _Side(
        *(jnp.asarray(v, jnp.int32) for v in (first, stored, stored + ((coef[m] > 0) == above)))
    )


some = jax.jit(sample_partners, static_argnums=0)


@pytest.mark.parametrize("newcomer", [1, -1])
@pytest.mark.parametrize("front", [0, 1, 3, 7, 8])
def test_partners_are_the_others_of_the_same_sign(front, newcomer, x64):
    points = full_points(front, newcomer)
    for i in range(9):
        others, side = same_sign(points, i), side_of(points, i)
        place, allowed = all_partners(points, i, side)
        assert set(np.asarray(place)[np.asarray(allowed)].tolist()) == others
        for partners in (8, 59):  # no more than 8 others are there
            place, counts = map(np.asarray, some(partners, points, jnp.asarray(i, jnp.int32), side))
            assert counts.sum() == len(others) and set(place[counts].tolist()) == others
            # all are read, the surplus in vain
            assert np.all((place >= 0) & (place <= 8)) or not others


@pytest.mark.parametrize("partners", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "front, newcomer, i", [(2, -1, 5), (7, 1, 8), (7, 1, 0), (8, -1, 4), (6, 1, 2)]
)
def test_a_few_partners_are_one_of_each_stratum(partners, front, newcomer, i, x64):
    points = full_points(front, newcomer)
    others, side = sorted(same_sign(points, i)), side_of(points, i)
    draws = 4000
    bits = jnp.asarray(np.random.default_rng(partners).integers(0, 2**32, draws), jnp.uint32)
    draw = jax.vmap(
        lambda bits: some(partners, points._replace(bits=bits), jnp.asarray(i, jnp.int32), side)
    )
    place, counts = map(np.asarray, draw(bits))
    assert len(others) > partners and np.all(counts) and set(place.ravel().tolist()) == set(others)
    rank, n = np.searchsorted(others, place), len(others)
    assert all(len(set(row)) == partners for row in rank.tolist())
    # Around the ring of the others, from some beginning on, one in each of the strata.
    edge, begin = np.arange(partners + 1) * n // partners, np.arange(n)
    turned = (rank[:, None, :] - begin[None, :, None]) % n
    assert np.all(np.any(np.all((turned >= edge[:-1]) & (turned < edge[1:]), axis=2), axis=1))
    share, expected = (
        np.bincount(rank.ravel(), minlength=len(others)) / draws,
        partners / len(others),
    )
    # 4 standard deviations
    np.testing.assert_allclose(share, expected, atol=4 * (expected / draws) ** 0.5)
    # From the first to the second: the draws within strata are independent of each other.
    if partners > 1:
        ways = np.bincount(
            [(j - i) % n for i in range(edge[1]) for j in range(edge[1], edge[2])], minlength=n
        )
        found = np.bincount((rank[:, 1] - rank[:, 0]) % n, minlength=n) / draws
        expected = ways / ways.sum()
        np.testing.assert_allclose(found, expected, atol=5 * (expected.max() / draws) ** 0.5)


@pytest.mark.parametrize(
    "coef, front, expected",
    [
        ([3, 2, 5, -1, -4, -2, -0.5, -9, 1.5], 3, 6),  # the smallest of all
        ([0.1, -3, -2, -5, -1, -4, -2, -9, -6], 1, 4),  # the only one of its sign stays
        ([3, 2, 5, 4, 1, 6, 7, 8, -0.1], 8, 4),  # so does a newcomer
        ([0.1, -3, -2, -5, -1, -4, -2, -9, 0.05], 1, 8),  # with a newcomer of its sign it does not
    ],
)
def test_the_smallest_that_has_a_partner_goes(coef, front, expected, x64):
    points = full_points(front, coef[-1], coef=np.array(coef, float))
    i, side = _smallest(points)
    assert int(i) == expected
    assert tuple(map(int, side)) == tuple(map(int, side_of(points, expected)))


@pytest.mark.long
def test_a_point_that_counts_nothing_goes_first_and_alone():
    data = jaxsvm.dataset([[0.0], [0.0], [5.0], [9.0], [13.0]], [-1, 1, 1, 1, 1])
    f = budgeted(kernels.rbf(1.0), budget=3, maintain=budget.merge())
    state = f.zero(KEY, data)
    for k in range(5):
        row = jaxsvm.take(data, jnp.array([k]))
        state = f.add(state, jnp.zeros(()), row.y, row)
    model = f.model(state)
    order = np.argsort(np.asarray(model.x)[:, 0])
    np.testing.assert_array_equal(np.asarray(model.x)[order, 0], [5, 9, 13])
    np.testing.assert_array_equal(np.asarray(model.coef)[order], 1)


@pytest.mark.long
def test_projection_does_not_depend_on_where_0_is():
    """Distances of rows far from 0 cancel: without care there is no inverse, and all coefficients
    are nan."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.sign(rng.normal(size=40))
    solver = jaxsvm.bsgd(1e-2, kernels.rbf(3.0), budget=20, maintain=budget.project())
    largest = []
    for offset in (0, 300):
        run = jaxsvm.fit(solver, jaxsvm.dataset((x + offset).astype(np.float32), y), KEY, steps=200)
        assert run.finite
        largest.append(np.abs(run.model.coef).max())
    assert largest[1] == pytest.approx(largest[0], rel=0.05)


def test_of_several_as_small_the_oldest_goes(x64):
    points = full_points(4, 1, coef=np.array([1.0, 1, 1, 1, -1, -1, -1, -1, 1]))
    for shift in range(8):
        born = jnp.asarray(np.append(np.roll(np.arange(8), shift), 8), jnp.int32)
        assert int(_smallest(points._replace(birth=born))[0]) == shift
        change, _ = budget.remove().change(RBF, points._replace(birth=born), ())
        assert int(change.removed) == shift


# projection


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel, in_numpy", [(RBF, gaussian), (kernels.polynomial(), cubic)], ids=["rbf", "cubic"]
)
def test_projection_is_orthogonal_and_of_the_best_point(kernel, in_numpy, x64):
    change = jax.jit(lambda points: budget.project().change(kernel, points, ())[0])
    smallest = 0
    for seed in range(12):
        points = full_points(3, 1, seed=seed, kernel=kernel)
        every = np.concatenate([points.x, points.row[None]])
        coef, gram = np.asarray(points.coef), in_numpy(every, every)
        after, gone, moved, _ = jax.tree.map(np.asarray, change(points))
        stays = np.arange(9) != gone
        apart = coef - np.where(stays, after, 0)
        np.testing.assert_allclose((gram @ apart)[stays], 0, atol=1e-9 * np.abs(gram).max())
        every_way = [changed for _, changed in projections(every, coef, in_numpy)]
        assert int(gone) == int(np.argmin(every_way)) and moved == -1
        np.testing.assert_allclose(apart @ gram @ apart, min(every_way), rtol=1e-6)
        smallest += int(gone) == int(np.argmin(np.abs(coef)))
    assert smallest < 12  # not always the smallest coefficient


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_point_that_stands_there_twice_gives_its_coefficient_to_the_other(dtype):
    with jax.enable_x64(dtype == np.float64):
        points = full_points(8, 1)
        points = points._replace(x=points.x.at[5].set(points.x[2]))
        points = jax.tree.map(
            lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, points
        )
        after, gone, *_ = jax.tree.map(
            np.asarray, jax.jit(lambda p: budget.project().change(RBF, p, ())[0])(points)
        )
    assert gone in (2, 5)
    expected = np.asarray(points.coef, np.float64).copy()
    expected[7 - gone] += expected[gone]
    stays = np.arange(9) != gone
    np.testing.assert_allclose(
        after[stays], expected[stays], rtol=0, atol=1e-3 if dtype == np.float32 else 1e-7
    )


@pytest.mark.long
def test_a_budget_above_the_dimension_loses_nothing_under_the_linear_kernel(x64):
    """Points depend on each other, and projection leaves the function as it is: linear Pegasos in
    NumPy."""
    data, rows = dataset(), orders(3)
    *_, at_new, info = states(
        make(budget.project(), kernel=kernels.linear(), size=D + 1), data, rows
    )
    s, expected = np.zeros(D), []
    for t, i in enumerate(np.asarray(rows)[:, 0]):
        s = s + (LABELS[i] * X[i] if t == 0 or LABELS[i] * (s @ X[i]) < LAM * t else 0)
        expected.append(NEW @ s / (LAM * (t + 1)))
    np.testing.assert_allclose(at_new, expected, atol=1e-8)
    assert int(info.support[-1]) == D + 1


@pytest.mark.long
@pytest.mark.parametrize(
    "kernel, dim", [(kernels.linear(), 10), (kernels.polynomial(), 2)], ids=["linear", "cubic"]
)
def test_a_budget_above_the_rank_of_the_kernel_projects_in_float32(kernel, dim):
    """50 points of rank 10: where rounding leaves no inverse, projection falls back to removal,
    which is far worse."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, dim)).astype(np.float32)
    y = np.sign(
        (x @ rng.normal(size=dim) if dim > 2 else x[:, 0] * x[:, 1]) + 0.1 * rng.normal(size=600)
    )
    data, errors = jaxsvm.dataset(x, y), []
    for maintain in (budget.project(), budget.remove()):
        run = jaxsvm.fit(
            jaxsvm.bsca(1.0, kernel, budget=50, maintain=maintain), data, KEY, steps=3000
        )
        assert run.finite
        errors.append(float(jaxsvm.error_on(data)(run.model)))
    assert errors[0] < errors[1] - 0.02


# other feeds


def numbers(model):
    return jax.tree.map(np.asarray, (model.x, model.coef))


@pytest.mark.long
@pytest.mark.parametrize("name, rows_at_once", list(zip(MAINTAINED, [1, 4, 4, 1], strict=True)))
def test_sparse_rows_make_the_run_of_dense_ones(name, rows_at_once, x64):
    x = X * (np.abs(X) > 0.5)
    feed = samplers.epochs(rows_at_once)
    fit = functools.partial(
        jaxsvm.fit, make(MAINTAINED[name]), key=KEY, steps=40, every=40, sampler=feed
    )
    sparse, dense = (
        fit(data=jaxsvm.dataset(scipy.sparse.csr_matrix(x), LABELS)),
        fit(data=dataset(x)),
    )
    np.testing.assert_allclose(
        sparse.model(jnp.asarray(NEW)), dense.model(jnp.asarray(NEW)), atol=1e-9
    )
    np.testing.assert_array_equal(sparse.info.support, dense.info.support)
    for ours, theirs in zip(numbers(sparse.model), numbers(dense.model), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert np.abs(numbers(dense.model)[1]).max() > 0.1


@pytest.mark.long
@pytest.mark.parametrize("maintain", MAINTAINED.values(), ids=MAINTAINED)
def test_float32_makes_the_run_of_float64(maintain):
    """The same points go and merge; roundings are of float32, coefficients of s up to 10."""
    found = []
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            f, _, at_new, info = states(make(maintain), dataset(dtype=dtype), orders(3))
            assert at_new.dtype == f.x.dtype == f.coef.dtype == info.loss.dtype == dtype
            assert f.front.dtype == f.birth.dtype == info.evals.dtype == jnp.int32
            found.append(
                (
                    np.asarray(at_new, np.float64) * LAM * np.arange(1, T + 1)[:, None],
                    info.support,
                    f.front,
                    info.evals,
                )
            )
    (ours, *whole), (theirs, *expected) = found
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
    jax.tree.map(np.testing.assert_array_equal, whole, expected)


@pytest.mark.long
@pytest.mark.parametrize("maintain", list(MAINTAINED.values())[:2], ids=list(MAINTAINED)[:2])
def test_a_multiple_of_the_kernel_divides_lam(maintain, x64):
    """<w, phi> = c sum_j N_j k(x_j, .) / (lam t): the same rows violate, the same points merge."""
    data, rows = dataset(), orders(3)
    _, scaled, at_new, info = states(make(maintain, LAM, 3 * RBF), data, rows)
    _, plain, expected, told = states(make(maintain, LAM / 3), data, rows)
    np.testing.assert_allclose(at_new, expected, atol=1e-10)
    np.testing.assert_allclose(scaled.x, plain.x, atol=1e-10)
    np.testing.assert_allclose(3 * scaled.coef, plain.coef, atol=1e-10)
    np.testing.assert_allclose(info.loss, told.loss, atol=1e-10)


@pytest.mark.long
def test_evaluations_are_counted():
    """m for a row's value, and what maintenance may look at for a row that moves."""
    data, rows = dataset(dtype=np.float32), orders(3)
    for maintain, extra in (
        (budget.merge(), 5),
        (budget.merge(partners=2), 2),
        (budget.remove(), 0),
        (budget.project(), 36),
    ):
        *_, info = states(make(maintain), data, rows)
        np.testing.assert_array_equal(info.evals, 5 + extra * (np.asarray(info.residual) > 0))


# what is compiled


AS_USERS = as_users()
BUDGET, WIDTH = 300, 40
IN_PLACE = {
    "parameter",
    "get-tuple-element",
    "dynamic-update-slice",
    "bitcast",
    "tuple",
    "while",
    "conditional",
}


def made_in_loops(program, shape):
    """Instructions in loops that make an array of `shape` anew: all that is not handed on or
    written in place."""
    blocks = dict(
        re.findall(r"^(?:ENTRY )?%?([\w.-]+) [^\n]*\{\n(.*?)^\}", program, flags=re.S | re.M)
    )
    bodies = {name for text in blocks.values() for name in re.findall(r"body=%?([\w.-]+)", text)}
    assert bodies and bodies <= set(blocks), (
        "no loops found: the text of programs has changed, and this test with it"
    )
    waiting, inside, found = list(bodies), set(), []
    while waiting:
        name = waiting.pop()
        if name in inside:
            continue
        inside.add(name)
        for line in blocks[name].splitlines():
            made = re.match(r"\s*(?:ROOT )?%?[\w.-]+ = (.*?) ([\w-]+)\((.*)", line)
            if made is None:
                continue
            what, code, rest = made.groups()
            called = [other for other in re.findall(r"%([\w.-]+)", rest) if other in blocks]
            if code != "fusion":
                waiting += called
                fresh = shape in what and code not in IN_PLACE | {"call"}
            else:  # a fusion is one loop over what it ends with
                end = re.search(r"ROOT .*? = (.*?) ([\w-]+)\(", blocks[called[0]])[2]
                fresh = shape in what and end != "dynamic-update-slice"
            found += [line.strip()] * fresh
    return found


def compiled(update, maintain):
    """The loop of a run, as users have it."""
    x = np.random.default_rng(0).normal(size=(500, WIDTH)).astype(np.float32)
    data = dataset(x, np.where(x[:, 0] > 0, 1.0, -1.0), dtype=np.float32)
    made = cast(make(maintain, kernel=kernels.rbf(5.0), size=BUDGET), np.float32)

    def run(made, state, data, rows):
        return lax.fori_loop(
            0, 100, lambda k, state: update(made, state, take(data, rows[k])), state
        )

    state = jax.eval_shape(made.init, KEY, data)
    rows = jnp.zeros((100, 1), jnp.int32)
    return jax.jit(run).lower(made, state, data, rows).compile(AS_USERS).as_text()


PLACES = f"f32[{BUDGET},{WIDTH}]"


@pytest.mark.long
@pytest.mark.parametrize(
    "maintain", [budget.merge(partners=59), budget.merge(), budget.remove()], ids=repr
)
def test_points_are_written_in_place(maintain):
    program = compiled(lambda made, state, batch: made.update(state, batch)[0], maintain)
    assert PLACES in program
    assert made_in_loops(program, PLACES) == []


@pytest.mark.long
def test_a_copy_of_the_points_would_be_found():
    """Steps that choose between old and new points, or read the old ones when the new ones are
    written."""

    def at_once(made, state, batch):
        state = made.update(state, batch)[0]
        return state._replace(f=state.f.flush())

    def chosen(made, state, batch):
        new = at_once(made, state, batch)
        return jax.tree.map(lambda a, b: jnp.where(batch.y[0] > 0, a, b), new, state)

    def read_late(made, state, batch):
        new = at_once(made, state, batch)
        first = jnp.argmax(new.f.x[:, 0])
        return new._replace(
            f=new.f._replace(seed=new.f.seed + (state.f.x[first, 0] > 0).astype(jnp.uint32))
        )

    assert made_in_loops(compiled(chosen, budget.remove()), PLACES)
    assert any(
        " copy(" in line for line in made_in_loops(compiled(read_late, budget.remove()), PLACES)
    )


# kernels


KERNELS = [
    kernels.linear(),
    kernels.rbf(1.5),
    kernels.rbf(gamma=0.3),
    kernels.laplacian(2.0),
    kernels.polynomial(0.5, 1.5, degree=2),
    kernels.sigmoid(0.2, -0.5),
    kernels.rbf(1.5) + kernels.linear(),
    kernels.rbf(1.5) * kernels.polynomial(),
    0.5 * kernels.rbf(1.5),
    2 * (kernels.linear() + 3 * kernels.rbf(1.0)) * kernels.rbf(2.0),
    kernels.laplacian(2.0) + kernels.linear(),  # one of them is none of products
    kernels.custom(lambda x, z: jnp.abs(x @ z.T)),
]


@pytest.mark.long
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_values_with_known_norms_are_those_of_a_call(kernel, x64):
    z = jnp.asarray(X)
    for x in (jnp.asarray(NEW), jnp.asarray(NEW[:1])):
        np.testing.assert_allclose(
            kernel.values(x, z, (z**2).sum(1)), kernel(x, z), rtol=1e-12, atol=1e-13
        )
    sparse = jaxsvm.dataset(scipy.sparse.csr_matrix(X), LABELS).x
    if "custom" not in repr(kernel):
        np.testing.assert_allclose(
            kernel.values(sparse, z, (z**2).sum(1)), kernel(z, z), rtol=1e-12, atol=1e-13
        )


# what is refused


@pytest.mark.parametrize(
    ("sentence", "make_it"),
    [
        (
            "budget must be a whole number of at least 2, .* got 1$",
            lambda: make(budget.merge(), size=1),
        ),
        (
            "budget must be a whole number, got 2.5",
            lambda: make(budget.merge(), size=2.5),
        ),
        (
            "budget must be a whole number, got True",
            lambda: make(budget.merge(), size=True),
        ),
        (
            "budget must be a whole number of at least 2, .* got -3",
            lambda: make(budget.remove(), size=-3),
        ),
        (
            r"Gaussian kernel only, got linear\(\): take kernels.rbf, or .*remove\(\) or .*project",
            lambda: make(budget.merge(), kernel=kernels.linear()),
        ),
        (
            r"Gaussian kernel only, got laplacian\(2.0\)",
            lambda: make(budget.merge(), kernel=kernels.laplacian(2.0)),
        ),
        (
            r"Gaussian kernel only, got scaled\(laplacian\(2.0\), 3.0\)",
            lambda: make(budget.merge(), kernel=3 * kernels.laplacian(2.0)),
        ),
        (
            r"Gaussian kernel only, got sum_\(rbf\(0.9\), linear\(\)\)",
            lambda: make(budget.merge(partners=3), kernel=RBF + kernels.linear()),
        ),
        (
            "Gaussian kernel only, got custom",
            lambda: make(budget.merge(), kernel=lambda x, z: x @ z.T),
        ),
        (
            "a precomputed kernel knows training rows only",
            lambda: make(budget.remove(), kernel=kernels.precomputed()),
        ),
        (
            "a precomputed kernel knows training rows only",
            lambda: make(budget.remove(), kernel=2 * kernels.precomputed()),
        ),
        (
            "partners must be a whole number of at least 1, or None, got 0",
            lambda: make(budget.merge(partners=0)),
        ),
        (
            "partners must be a whole number of at least 1, or None, got True",
            lambda: make(budget.merge(partners=True)),
        ),
        (
            "search must be one of 'lookup', 'golden', got 'x'",
            lambda: make(budget.merge(search="x")),
        ),
        ("lam must be a finite number above 0, got 0", lambda: make(budget.merge(), lam=0.0)),
    ],
)
def test_bad_input(sentence, make_it):
    data = dataset(dtype=np.float32)
    with pytest.raises(ValueError, match=sentence):
        make_it().init(KEY, data)
    with pytest.raises(ValueError, match=sentence):
        jaxsvm.fit(make_it(), data, KEY, steps=1)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="expected a kernel or a function"):
        make(budget.remove(), kernel=2.0).init(KEY, dataset(dtype=np.float32))


@pytest.mark.parametrize(
    "wrong", [None, "merge", 1.0, budget.merge, object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_maintenance_is_refused(wrong):
    with pytest.raises(
        TypeError, match="maintain (must be a maintenance such as|is the factory merge itself)"
    ):
        jaxsvm.bsgd(0.1, jaxsvm.kernels.rbf(1.0), budget=4, maintain=wrong)
