"""Merging two points against a dense search, the choice of partners, and projection."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from budgets import (
    CUBIC,
    KEY,
    RBF,
    RNG,
    SIGMA,
    D,
    cubic,
    dense_table,
    densely,
    gaussian,
    lost,
    peak,
    projections,
    s_of,
    sqnorm,
)

import jaxsvm
from jaxsvm import budget, kernels
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
from jaxsvm.spaces import budgeted

close = np.testing.assert_allclose

# merging two points


NEAR_HALF = RNG.normal(0.5, 1e-3, 250).clip(0, 1)
M = np.concatenate([RNG.uniform(0, 1, 1500), NEAR_HALF, np.linspace(0, 1, 21), np.full(229, 0.5)])
LENGTH = np.concatenate([RNG.exponential(2, 1000), 10 ** RNG.uniform(-4, 5, 998), [0.0, 1e5]])
RNG.shuffle(LENGTH)


@pytest.mark.long
def test_position_is_the_best_of_a_dense_search(x64):
    h, s = map(np.asarray, merge_position(jnp.asarray(M), jnp.asarray(LENGTH), 15, 2))
    close(s, s_of(h, M, LENGTH), rtol=1e-14)
    close(s, densely(M, LENGTH)[1], rtol=0, atol=1e-10)
    assert np.all((h >= 0) & (h <= 1))
    # the stationary point to rounding, where s bends enough for it to be one
    bends = (np.abs(M - 0.5) > 0.01) & (LENGTH > 1e-3) & (LENGTH < 20)
    exact = np.array([peak(*pair)[0] for pair in zip(M[bends], LENGTH[bends], strict=True)])
    close(h[bends], exact, rtol=0, atol=1e-9)
    assert bends.sum() > 500


@pytest.mark.long
def test_ends_are_looked_at_where_points_are_far_apart():
    """In float32, where exp(-L) is 0."""
    m, L = jnp.asarray([0.3, 0.5, 0.7, 0.0, 1.0], jnp.float32), jnp.full(5, 1e5, jnp.float32)
    for steps in (10, 15):
        h, s = merge_position(m, L, steps, 2)
        close(s, [0.7, 0.5, 0.7, 1, 1], rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(h)[[0, 2, 3, 4]], [0, 1, 0, 1])
    for change in (by_search, from_table):
        close(change(m, L), [0.09, 0.25, 0.09, 0, 0], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("change, room", [(by_search, 4e-4), (from_table, 1e-4)])
def test_what_a_merge_changes_is_that_of_a_dense_search(change, room, dtype):
    pair = M.astype(dtype), LENGTH.astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        got = jax.jit(change)(*pair)
        assert got.dtype == dtype
    m, L = (number.astype(np.float64) for number in pair)
    off = np.asarray(got, np.float64) - lost(m, L, densely(m, L)[1])
    assert np.abs(off).max() <= room
    assert off.min() >= -(1e-6 if change is by_search else room)  # a search can only miss


@functools.cache
def between_entries():
    """In the middle of each cell of the table, where interpolation is worst, in float32: m, L and
    what a merge changes."""
    middle = (np.arange(GRID - 1, dtype=np.float32) + 0.5) / (GRID - 1)
    m, kappa = np.meshgrid(middle / 2, middle, indexing="ij")
    L = -np.log(kappa)
    wide = m.astype(np.float64), L.astype(np.float64)
    return m, L, lost(*wide, densely(*wide)[1])


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_table_is_within_1e_4_everywhere(dtype):
    m, L, exact = between_entries()
    with jax.enable_x64(dtype == np.float64):
        m, L = jnp.asarray(m, dtype), jnp.asarray(L, dtype)
        got, mirrored = (np.asarray(from_table(share, L), np.float64) for share in (m, 1 - m))
    assert np.abs(got - exact).max() <= 1e-4
    close(mirrored, got, rtol=0, atol=1e-6)


@pytest.mark.long
def test_the_table_holds_the_minimum_and_its_closed_forms():
    entries = table()
    m, kappa = np.meshgrid(np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID), indexing="ij")
    assert entries.shape == (GRID, GRID) and entries.dtype == np.float64
    close(entries, dense_table().values, rtol=0, atol=1e-9)
    close(entries[:, 0], m[:, 0] ** 2, atol=1e-15)
    close(entries[:, -1], 0, atol=1e-15)
    close(entries[0], 0, atol=1e-15)
    assert np.all(entries <= m**2 * (1 - kappa**2) + 1e-15) and entries.min() >= 0


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

    starts = [x[0] + a * (x[1] - x[0]) + 0.2 * rng.normal(size=D) for a in np.linspace(0, 1, 9)]
    found = [scipy.optimize.minimize(changed, start, jac=True, tol=1e-12) for start in starts]
    best = min(found, key=lambda each: each.fun)
    with jax.enable_x64(True):
        h, s = merge_position(jnp.asarray(m), jnp.asarray(L), 15, 2)
    close(coef.sum() ** 2 * lost(m, L, float(s)), best.fun, atol=1e-10)
    close(float(h) * x[0] + (1 - float(h)) * x[1], best.x, atol=1e-5)


def test_width_is_that_of_a_gaussian():
    close([width(k) for k in (kernels.rbf(2.0), 3 * RBF)], [0.125, 1 / (2 * SIGMA**2)], rtol=1e-6)


# partners


def full_points(front, newcomer, seed=0, kernel=RBF, coef=None):
    """A full budget of points with `front` of them above 0, and a newcomer, in float64."""
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(9, D)))
    if coef is None:
        above = np.append(np.arange(8) < front, newcomer > 0)
        coef = rng.uniform(0.5, 2, 9) * np.where(above, 1, -1)
    return budget.Points(
        x=x[:-1],
        sqnorm=(x[:-1] ** 2).sum(1),
        coef=jnp.asarray(coef, float),
        row=x[-1],
        values=kernel(x[-1:], x)[0],
        birth=jnp.asarray(np.append(rng.permutation(8), 8), jnp.int32),
        annotations=(),
        front=jnp.asarray(front, jnp.int32),
        back=jnp.asarray(8 - front, jnp.int32),
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
    counts = first, stored, stored + ((coef[m] > 0) == above)
    return _Side(*(jnp.asarray(count, jnp.int32) for count in counts))


some = jax.jit(sample_partners, static_argnums=0)


@pytest.mark.long
@pytest.mark.parametrize(("front", "newcomer"), [(0, 1), (1, -1), (7, 1), (8, -1)])
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


@pytest.mark.long(but=4)
@pytest.mark.parametrize("partners", [1, 3])
@pytest.mark.parametrize(
    "front, newcomer, i", [(2, -1, 5), (7, 1, 8), (7, 1, 0), (8, -1, 4), (6, 1, 2)]
)
def test_a_few_partners_are_one_of_each_stratum(partners, front, newcomer, i, x64):
    points = full_points(front, newcomer)
    others, side = sorted(same_sign(points, i)), side_of(points, i)
    draws = 4000
    bits = jnp.asarray(np.random.default_rng(partners).integers(0, 2**32, draws), jnp.uint32)
    of = lambda bits: some(partners, points._replace(bits=bits), jnp.asarray(i, jnp.int32), side)
    place, counts = map(np.asarray, jax.vmap(of)(bits))
    assert len(others) > partners and np.all(counts) and set(place.ravel().tolist()) == set(others)
    rank, n = np.searchsorted(others, place), len(others)
    assert all(len(set(row)) == partners for row in rank.tolist())
    # Around the ring of the others, from some beginning on, one in each of the strata.
    edge, begin = np.arange(partners + 1) * n // partners, np.arange(n)
    turned = (rank[:, None, :] - begin[None, :, None]) % n
    assert np.all(np.any(np.all((turned >= edge[:-1]) & (turned < edge[1:]), axis=2), axis=1))
    share, expected = np.bincount(rank.ravel(), minlength=n) / draws, partners / n
    # 4 standard deviations
    close(share, expected, atol=4 * (expected / draws) ** 0.5)
    # From the first to the second: the draws within strata are independent of each other.
    if partners > 1:
        apart = [(j - i) % n for i in range(edge[1]) for j in range(edge[1], edge[2])]
        ways = np.bincount(apart, minlength=n)
        found = np.bincount((rank[:, 1] - rank[:, 0]) % n, minlength=n) / draws
        expected = ways / ways.sum()
        close(found, expected, atol=5 * (expected.max() / draws) ** 0.5)


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
    points = full_points(front, coef[-1], coef=coef)
    i, side = _smallest(points)
    assert int(i) == expected
    assert tuple(map(int, side)) == tuple(map(int, side_of(points, expected)))


@pytest.mark.long
def test_a_point_that_counts_nothing_goes_first_and_alone():
    data = jaxsvm.dataset([[0.0], [0.0], [5.0], [9.0], [13.0]], [-1, 1, 1, 1, 1])
    space = budgeted(kernels.rbf(1.0), budget=3, maintain=budget.merge())
    f = space.zero(KEY, data)
    for k in range(5):
        row = jaxsvm.take(data, jnp.array([k]))
        f = space.add(f, jnp.zeros(()), row.y, row)
    model = space.model(f)
    assert np.sort(model.x[:, 0]).tolist() == [5, 9, 13] and model.coef.tolist() == [1, 1, 1]


def test_of_several_as_small_the_oldest_goes(x64):
    points = full_points(4, 1, coef=[1.0, 1, 1, 1, -1, -1, -1, -1, 1])
    for shift in range(8):
        born = jnp.asarray(np.append(np.roll(np.arange(8), shift), 8), jnp.int32)
        assert int(_smallest(points._replace(birth=born))[0]) == shift
        change, _ = budget.remove().change(RBF, points._replace(birth=born), ())
        assert int(change.removed) == shift
    points = full_points(4, 1, seed=1, coef=np.ones(9), kernel=CUBIC)
    rows = np.vstack([points.x, points.row])
    least = np.argmin(np.diag(cubic(rows, rows)))
    assert int(budget.remove().change(CUBIC, points, ())[0].removed) == least


# projection


@pytest.mark.long
@pytest.mark.parametrize("kernel, in_numpy", [(RBF, gaussian), (CUBIC, cubic)])
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
        close((gram @ apart)[stays], 0, atol=1e-9 * np.abs(gram).max())
        every_way = [changed for _, changed in projections(every, coef, in_numpy)]
        assert int(gone) == int(np.argmin(every_way)) and moved == -1
        close(apart @ gram @ apart, min(every_way), rtol=1e-6)
        smallest += int(gone) == int(np.argmin(np.abs(coef)))
    assert smallest < 12  # not always the smallest coefficient


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_point_that_stands_there_twice_gives_its_coefficient_to_the_other(dtype):
    with jax.enable_x64(dtype == np.float64):
        points = full_points(8, 1)
        points = cast(points._replace(x=points.x.at[5].set(points.x[2])), dtype)
        change = jax.jit(lambda points: budget.project().change(RBF, points, ())[0])
        after, gone, *_ = map(np.asarray, change(points))
    assert gone in (2, 5)
    expected = np.asarray(points.coef, np.float64).copy()
    expected[7 - gone] += expected[gone]
    stays = np.arange(9) != gone
    close(after[stays], expected[stays], rtol=0, atol=1e-3 if dtype == np.float32 else 1e-7)
