"""Water levels against sorting, bisection and linear programs in NumPy's float64."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.svm import SVC
from water_levels import by_sorting, by_sorting_two

import jaxsvm
from jaxsvm import kernels
from jaxsvm.numerics import sample_proportional, two_levels, water_level

N = 40  # one shape for all, so that programs are compiled once
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
few = settings(max_examples=40, deadline=None, derandomize=True)

RESPONSES = {
    "random": lambda rng: rng.normal(size=N),
    "tied": lambda rng: rng.integers(-2, 3, N) * 1.0,
    "rounded": lambda rng: np.round(rng.normal(size=N), 1),
    "log-uniform": lambda rng: 10 ** rng.uniform(-6, 6, N),
    "ladder": lambda rng: rng.permutation(
        [math.factorial(max(k, 1)) * 1.0 for k in range(-9, 31)]
    ),  # n steps of Newton's
    "equal": lambda rng: np.full(N, rng.normal()),
    "shifted": lambda rng: 1e3 + rng.normal(size=N),
    "one far below": lambda rng: np.append(rng.normal(size=N - 1), -1e4),
    "some far above": lambda rng: np.where(rng.uniform(size=N) < 0.1, 1e12, rng.normal(size=N)),
}
WEIGHTS = {
    "ones": lambda rng: np.ones(N),
    "real": lambda rng: rng.uniform(0.1, 3, N),
    "whole": lambda rng: rng.integers(0, 4, N) * 1.0,
}
VOLUMES = (0.0, 1e-6, 1e-2, 1.0, 30.0, 1e4, 1e12)
GROUND = pytest.mark.parametrize("ground", RESPONSES)

fill = jax.jit(lambda c, volume, weight, start: water_level(c, volume, weight=weight, start=start))
fill_cold = jax.jit(lambda c, volume, weight: water_level(c, volume, weight=weight))
share_out = jax.jit(lambda c, y, volume, weight: two_levels(c, y, volume, weight=weight))
slopes_of_one = jax.jit(
    jax.grad(lambda c, volume, weight: water_level(c, volume, weight=weight), argnums=(0, 1))
)
slopes_of_two = jax.jit(
    jax.grad(lambda c, y, v, weight: two_levels(c, y, v, weight=weight).level, argnums=(0, 2))
)
# in the property tests, of 8 rows
one_basin, both_basins = (jax.jit(water_level), jax.jit(two_levels))
share_out_warm = jax.jit(
    lambda c, y, volume, weight, start: two_levels(c, y, volume, weight=weight, start=start)
)


def problems(ground, dtype, times=3):
    """(responses, labels, volume, weight) of one ground, rounded to a dtype; both classes have
    rows."""
    rng = np.random.default_rng(sum(map(ord, ground)))
    for _ in range(times):
        for weigh in WEIGHTS.values():
            for size in VOLUMES:
                c, weight = RESPONSES[ground](rng), weigh(rng)
                y = np.sign(rng.uniform(-1, 1, N) + rng.choice([-0.9, 0, 0.9]))
                y[:2], weight[:2] = [1, -1], np.maximum(weight[:2], 1)
                yield tuple(
                    np.asarray(a, dtype) for a in (c, y, size * rng.uniform(0.5, 1.5), weight)
                )


def wide(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


# other programs


def by_bisection(c, volume, weight):
    low, high = c.min(), c.min() + volume / weight[np.argmin(c)]
    for _ in range(2000):
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (
            (low, middle) if weight @ np.maximum(middle - c, 0) >= volume else (middle, high)
        )
    return high


def by_program(c, volume, weight, y=None):
    """min <p, c> + volume q over p <= weight q, sum p = 1, half of it in each class; the cost is
    scaled to about 1."""
    n, scale = len(c), max(volume, np.abs(c).max(), 1e-30)
    mass = np.ones((1, n)) if y is None else np.array([y > 0, y < 0]) * 1.0
    made = linprog(
        np.append(c, volume) / scale,
        A_ub=np.c_[np.eye(n), -weight],
        b_ub=np.zeros(n),
        A_eq=np.c_[mass, np.zeros(len(mass))],
        b_eq=np.ones(len(mass)) / len(mass),
        method="highs",
    )
    assert made.success
    return made.fun * scale, scale


def live(c, y, volume, weight):
    """In float64, without the rows that do not count."""
    c, y, volume, weight = wide(c, y, volume, weight)
    return c[weight > 0], y[weight > 0], float(volume), weight[weight > 0]


# one basin


@DTYPES
@GROUND
def test_level(ground, dtype, x64):
    eps, tolerance = np.finfo(dtype).eps, TOLERANCE[dtype]
    for c, y, volume, weight in problems(ground, dtype):
        found = fill_cold(c, volume, weight)
        assert found.dtype == dtype
        level = float(found)
        c, _, volume, weight = live(c, y, volume, weight)
        want = by_sorting(c, volume, weight)
        np.testing.assert_allclose(
            by_bisection(c, volume, weight), want, rtol=1e-13, atol=1e-13 * np.abs(c).min()
        )
        # Two roundings of the level, each times the rows under water: for volumes below that,
        # nothing else is known of it.
        rounded = 2 * eps * abs(want) * weight.sum()
        assert abs(weight @ np.maximum(level - c, 0) - volume) <= tolerance * volume + rounded
        # what that leaves of the level
        assert abs(level - want) * (weight @ (c < want)) <= tolerance * volume + rounded
        if volume == 0:
            assert level == c.min()


@pytest.mark.parametrize("ground", ["random", "tied", "equal", "shifted"])
def test_level_is_that_of_the_linear_program(ground, x64):
    for c, y, volume, weight in problems(ground, "float64", times=1):
        want, scale = by_program(*live(c, y, volume, weight)[::2], weight[weight > 0])
        # the program's own tolerance
        assert abs(float(fill_cold(c, volume, weight)) - want) <= 1e-7 * scale


@DTYPES
def test_a_start_from_anywhere_leads_to_the_same_level(dtype, x64):
    eps = np.finfo(dtype).eps
    for ground in ("random", "tied", "equal", "one far below"):
        for c, _y, volume, weight in problems(ground, dtype, times=1):
            cold = float(fill_cold(c, volume, weight))
            lowest, mass = c[weight > 0].min(), float(weight.sum())
            room = TOLERANCE[dtype] * float(volume) + 4 * eps * abs(cold) * mass
            for start in (
                cold,
                np.nextafter(cold, np.inf),
                lowest,
                0.0,
                1.0,
                -7.0,
                1e4,
                -1e30,
                1e30,
                np.nan,
            ):
                level = float(fill(c, volume, weight, np.asarray(start, dtype)))
                size = float(weight @ (c < cold))
                assert abs(level - cold) * max(size, 1e-3) <= room, (ground, start, volume)


@pytest.mark.long
@DTYPES
def test_rows_of_weight_0_may_hold_anything(dtype, x64):
    for c, y, volume, weight in problems("random", dtype, times=2):
        weight = np.where(np.arange(N) % 3 == 2, 0, weight).astype(dtype)
        plain = fill_cold(c, volume, weight), share_out(c, y, volume, weight)
        for wild in (0.0, -1e30, 1e30, np.inf, np.nan):
            strange = np.where(weight > 0, c, wild).astype(dtype)
            other = np.where(weight > 0, y, -y)
            for one, two in zip(
                jax.tree.leaves(plain),
                jax.tree.leaves(
                    (fill_cold(strange, volume, weight), share_out(strange, other, volume, weight))
                ),
                strict=True,
            ):
                np.testing.assert_array_equal(one, two)
        want = by_sorting(*live(c, y, volume, weight)[::2], wide(weight[weight > 0])[0])
        assert float(plain[0]) == pytest.approx(want, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])


@pytest.mark.long
def test_by_hand():
    assert float(water_level(jnp.array([0.0, 1.0, 5.0]), 3.0)) == 2.0
    assert float(water_level(jnp.array([0.0, 1.0, 5.0]), 0.0)) == 0.0
    assert float(water_level(jnp.array([5.0]), 0.5)) == 5.5
    assert float(water_level(jnp.array([3.0, 3.0]), 1.0, weight=jnp.array([1.0, 3.0]))) == 3.25
    assert float(water_level(jnp.array([0.0, 1.0]), 4.0, weight=jnp.array([0.0, 2.0]))) == 3.0
    found = two_levels(jnp.array([0.0, 1.0, 5.0]), jnp.array([1.0, 1.0, -1.0]), 2.0)
    # The basins stand at 0.5 and 6.5: one row each and volumes 0.5 and 1.5; also at 1 and 6, and
    # that is all: the middle.
    assert float(found.level) == 3.5 and float(found.bias) == pytest.approx((6.5 - 0.5) / 2)
    np.testing.assert_allclose(found.share, [0.5, 0, 0.5])


finite = st.floats(-100, 100, width=32)


@pytest.mark.long
@few
@given(
    st.lists(finite, min_size=8, max_size=8),
    st.floats(0, 50),
    st.floats(-50, 50),
    st.floats(2**-6, 64),
    st.randoms(),
)
def test_invariances(c, volume, shift, factor, random):
    """Order does not count; G(c + t) = G(c) + t; G(s c; s V) = s G(c; V); y changes sign: so does
    the bias."""
    with jax.enable_x64(True):
        c, y, order = np.array(c), np.array([1.0, -1.0] * 4), list(range(8))
        random.shuffle(order)
        one = one_basin
        level, found = float(one(c, volume)), two_basins_of(c, y, volume)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12 * 256)
        close(float(one(c[order], volume)), level)
        close(float(one(c + shift, volume)), level + shift)
        close(float(one(factor * c, factor * volume)), factor * level, atol=1e-12 * 256 * 64)
        close(two_basins_of(c[order], y[order], volume), found)
        close(two_basins_of(c + shift, y, volume), found + [shift, 0])
        close(two_basins_of(factor * c, y, factor * volume), factor * found, atol=1e-12 * 256 * 64)
        close(two_basins_of(c, -y, volume), found * [1, -1])
        close(two_basins_of(c + shift * y, y, volume), found - [0, shift])


def two_basins_of(c, y, volume):
    found = both_basins(c, y, volume)
    return np.array([float(found.level), float(found.bias)])


@few
@given(
    st.lists(finite, min_size=8, max_size=8),
    st.lists(st.floats(0, 30), min_size=3, max_size=3, unique=True),
)
def test_the_level_grows_with_the_volume_ever_slower(c, volumes):
    with jax.enable_x64(True):
        c, y = np.array(c), np.array([1.0, -1.0] * 4)
        low, middle, high = sorted(volumes)
        for level in (one_basin, lambda c, v: both_basins(c, y, v).level):
            a, b, d = (float(level(c, v)) for v in (low, middle, high))
            assert a - 1e-10 <= b <= d + 1e-10
            assert (b - a) * (high - middle) >= (d - b) * (middle - low) - 1e-9


# two basins


@DTYPES
@GROUND
def test_level_and_bias_of_two_basins(ground, dtype, x64):
    eps, tolerance = np.finfo(dtype).eps, TOLERANCE[dtype]
    for c, y, volume, weight in problems(ground, dtype):
        found = share_out(c, y, volume, weight)
        assert {a.dtype.name for a in found} == {dtype}
        level, bias = float(found.level), float(found.bias)
        c, y, volume, weight = live(c, y, volume, weight)
        want, middle = by_sorting_two(c, y, volume, weight)
        # As for one basin; the two levels are sums of level and bias.
        rounded = 4 * eps * (abs(want) + abs(middle))
        assert (
            abs(weight @ np.maximum(level - c - y * bias, 0) - volume)
            <= tolerance * volume + rounded * weight.sum()
        )
        room = tolerance * volume / weight.sum() + tolerance * abs(want) + rounded
        assert abs(level - want) <= room
        assert abs(by_sorting(c + y * bias, volume, weight) - want) <= room
        if np.all(
            weight == np.round(weight)
        ):  # real weights leave slopes near 0: a bias is known as far as it matters
            assert abs(bias - middle) <= room + tolerance * abs(middle)


def test_level_of_two_basins_is_that_of_the_linear_program(x64):
    for ground in ("random", "tied", "equal", "shifted"):
        for c, y, volume, weight in problems(ground, "float64", times=1):
            found = share_out(c, y, volume, weight)
            c, y, volume, w = live(c, y, volume, weight)
            want, scale = by_program(c, volume, w, y)
            assert abs(float(found.level) - want) <= 1e-7 * scale
            assert by_sorting_two(c, y, volume, w)[0] == pytest.approx(want, abs=1e-7 * scale)


@DTYPES
@GROUND
def test_the_shares_attain_the_level(ground, dtype, x64):
    """p >= 0, one half in each class, <p, c> + volume max p_i / weight_i = level; so it is the
    dual's optimum."""
    tolerance = 4 * TOLERANCE[dtype]
    for c, y, volume, weight in problems(ground, dtype):
        found = share_out(c, y, volume, weight)
        p, level = wide(found.share)[0], float(found.level)
        assert np.all(p >= 0) and np.all(p[weight == 0] == 0)
        np.testing.assert_allclose([p[y > 0].sum(), p[y < 0].sum()], 0.5, rtol=tolerance)
        peak = (p[weight > 0] / wide(weight)[0][weight > 0]).max()
        value = p @ wide(c)[0] + float(volume) * peak
        size = p @ np.abs(wide(c)[0]) + float(volume) * peak
        assert abs(value - level) <= tolerance * size


@pytest.mark.parametrize("ground", ["random", "tied", "rounded", "equal"])
def test_as_many_rows_of_both_classes_are_under_water(ground, x64):
    for c, y, volume, _weight in problems(ground, "float64"):
        found = share_out(c, y, volume, np.ones(N))
        depth = float(found.level) - c - y * float(found.bias)
        edge = 1e-12 * (1 + np.abs(c).max() + float(volume))
        below = [np.sum(depth[side] > edge) for side in (y > 0, y < 0)]
        at_most = [np.sum(depth[side] >= -edge) for side in (y > 0, y < 0)]
        assert max(below) <= min(at_most)
        assert max(below) >= 1 or volume < 1e-9


@DTYPES
def test_weights_all_the_same_are_no_weights(dtype, x64):
    """0.1 has no end in base 2: the sums of both classes are equal only up to rounding, where the
    maximum is flat."""
    for c, y, volume, _ in problems("random", dtype, times=2):
        if volume <= 1e4:
            plain = share_out(c, y, volume, np.ones(N, dtype))
            tenth = share_out(c, y, np.asarray(0.1 * volume, dtype), np.full(N, 0.1, dtype))
            rooms = 30 * TOLERANCE[dtype] * (1 + float(volume))
            np.testing.assert_allclose(
                wide(tenth.level, tenth.bias), wide(plain.level, plain.bias), atol=rooms
            )


@pytest.mark.long
@DTYPES
def test_a_start_from_anywhere_leads_to_the_same_basins(dtype, x64):
    for ground in ("random", "tied", "equal"):
        for c, y, volume, weight in problems(ground, dtype, times=1):
            cold = share_out(c, y, volume, weight)
            level, bias = float(cold.level), float(cold.bias)
            for start in (
                (bias, level, 0.0),
                (bias + 0.3, level - 0.1, 0.6),
                (-50.0, 3.0, 1e-3),
                (1e3, -1e3, 1.0),
                (0.0, 0.0, 0.0),
            ):
                warm = share_out_warm(
                    c, y, volume, weight, tuple(np.asarray(a, dtype) for a in start)
                )
                room = (
                    10 * TOLERANCE[dtype] * (np.abs(c[weight > 0]).max() + abs(level) + abs(bias))
                )
                np.testing.assert_allclose(
                    wide(warm.level, warm.bias),
                    [level, bias],
                    atol=room,
                    err_msg=f"{ground} {start}",
                )


@pytest.mark.long
def test_a_class_without_rows_has_no_level():
    c, weight = np.float32(RESPONSES["random"](np.random.default_rng(0))), np.ones(N, "f")
    for y, w in (
        (np.ones(N), weight),
        (-np.ones(N), weight),
        (np.where(np.arange(N) < 3, 1, -1), np.float32(np.arange(N) >= 3)),
    ):
        for volume in (0.0, 2.0):
            found = share_out(c, np.float32(y), np.float32(volume), w)
            assert np.isposinf(found.level) and found.bias == 0 and not np.any(found.share)


# batches and derivatives


def stacked(ground="random"):
    return [np.stack(a) for a in zip(*problems(ground, "float64", times=1), strict=True)]


@pytest.mark.long
def test_vmap_is_a_loop(x64):
    for ground in ("random", "ladder"):
        c, y, volume, weight = stacked(ground)
        start = np.zeros_like(volume)
        for fn, args in (
            (fill_cold, (c, volume, weight)),
            (fill, (c, volume, weight, start)),
            (share_out, (c, y, volume, weight)),
            (share_out_warm, (c, y, volume, weight, (start, start, start + 1))),
        ):
            swept = jax.vmap(fn)(*args)
            loop = [fn(*jax.tree.map(lambda a: a[i], args)) for i in range(len(c))]
            loop = jax.tree.map(lambda *a: np.stack(a), *loop)
            for one, other in zip(jax.tree.leaves(swept), jax.tree.leaves(loop), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def slopes(level, c, volume, h=1e-6):
    """Central differences of level(c, volume)."""
    rows = [(level(c + h * e, volume) - level(c - h * e, volume)) / (2 * h) for e in np.eye(N)]
    return np.array(rows, float), float((level(c, volume + h) - level(c, volume - h)) / (2 * h))


@pytest.mark.long
@pytest.mark.parametrize("weigh", WEIGHTS)
def test_derivatives_of_the_level(weigh, x64):
    rng = np.random.default_rng(3)
    c, weight = rng.normal(size=N), WEIGHTS[weigh](rng)
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    for volume in (0.7, 11.0, 500.0):
        one, both = (
            lambda c, v: fill_cold(c, v, weight),
            lambda c, v: share_out(c, y, v, weight).level,
        )
        by_one, by_both = slopes_of_one(c, volume, weight), slopes_of_two(c, y, volume, weight)
        under = weight * (c < float(one(c, volume)))
        np.testing.assert_allclose(by_one[0], under / under.sum(), rtol=1e-12)
        np.testing.assert_allclose(by_one[1], 1 / under.sum(), rtol=1e-12)
        np.testing.assert_allclose(
            by_both[0], share_out(c, y, volume, weight).share, rtol=1e-12, atol=1e-15
        )
        # Rounding 1e-16 / h of the differences; no kink lies within h.
        for level, found in ((one, by_one), (both, by_both)):
            for got, want in zip(found, slopes(level, c, volume), strict=True):
                np.testing.assert_allclose(got, want, atol=1e-8)


@pytest.mark.long
def test_derivatives_forward_batched_and_from_a_start(x64):
    c, y, volume, weight = (a[8:12] for a in stacked())
    plain = jax.vmap(jax.grad(water_level, argnums=(0, 1)))(c, volume)
    warm = jax.vmap(jax.grad(lambda c, v: water_level(c, v, start=0.1), argnums=(0, 1)))(c, volume)
    for one, other in zip(plain, warm, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    tangent = np.random.default_rng(0).normal(size=c.shape)
    forward = jax.vmap(lambda c, v, t: jax.jvp(lambda c: water_level(c, v), (c,), (t,))[1])(
        c, volume, tangent
    )
    np.testing.assert_allclose(forward, np.sum(np.asarray(plain[0]) * tangent, axis=1), rtol=1e-10)
    # the bias and the level move with responses, volume and weights
    weight, share = 1 + 0.3 * np.sin(np.arange(c.size)).reshape(c.shape), np.cos(tangent)
    for k in range(len(c)):

        def both(t, k=k):
            w = weight[k] * (1 + t * share[k])
            fill = two_levels(c[k] + t * tangent[k], y[k], volume[k] * (1 + t), weight=w)
            return jnp.stack([fill.level, fill.bias])

        difference = (both(1e-7) - both(-1e-7)) / 2e-7
        np.testing.assert_allclose(jax.jacfwd(both)(0.0), difference, rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------------------------------------- the
# water of a known optimum


X = np.random.default_rng(8).normal(size=(N, 2))
Y = np.where(
    X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.4 * np.random.default_rng(9).normal(size=N) > -0.4, 1.0, -1.0
)
GRAM = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2)


@pytest.mark.long
@pytest.mark.parametrize("lam", [0.3, 0.03, 0.003])
def test_the_level_over_a_reference_solution_is_one_over_its_norm(lam, x64):
    """U/|U| at nu = (mean hinge) / |u|: without bias by decomposition, with the best bias by
    LIBSVM."""
    data = jaxsvm.dataset(X, Y)
    C = jaxsvm.objectives.C_from_lam(lam, N)
    u = jaxsvm.fit(
        jaxsvm.decomposition(C, kernels.rbf(1.0), bias="none", tol=1e-10), data, jax.random.key(0)
    ).model
    size = float(u.sqnorm()) ** 0.5
    margin = Y * np.asarray(u(X)) / size
    level = water_level(margin, N * float(jaxsvm.nu_from(u, data)))
    assert float(level) == pytest.approx(1 / size, rel=1e-12)

    made = SVC(kernel="precomputed", C=C, tol=1e-12).fit(GRAM, Y)
    f = GRAM[:, made.support_] @ made.dual_coef_[0]
    size = np.sqrt(made.dual_coef_[0] @ f[made.support_])
    nu = np.maximum(1 - Y * (f + made.intercept_[0]), 0).mean() / size
    found = two_levels(Y * f / size, Y, N * nu)
    # LIBSVM keeps its matrix in float32
    assert float(found.level) == pytest.approx(1 / size, rel=1e-6)
    # b / |u|, where the margin of one row fixes it.
    assert float(found.bias) == pytest.approx(made.intercept_[0] / size, abs=1e-5)
    # Another bias is worse: the water stands higher over the best one.
    off = np.maximum(1 - Y * (f + made.intercept_[0] + 0.2), 0).mean() / size
    assert float(two_levels(Y * f / size, Y, N * off).level) > 1 / size + 1e-4


# drawing rows


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 5, 127, 128, 129, 300])
def test_rows_are_chosen_in_proportion(n):
    rng = np.random.default_rng(n)
    share = np.float32(rng.uniform(0, 1, n) * (rng.uniform(size=n) < 0.6))
    share[rng.integers(n)] = 0.5
    # an even grid: counts are right to one or two
    u = np.float32((np.arange(50_000) + 0.5) / 50_000)
    rows = np.asarray(jax.jit(sample_proportional)(share, u))
    assert rows.dtype == np.int32 and np.all(share[rows] > 0) and np.all(np.diff(rows) >= 0)
    counts = np.bincount(rows, minlength=n)
    np.testing.assert_allclose(
        counts, 50_000 * share / share.sum(dtype=np.float64), atol=2.5 + 50_000 * n * 6e-8
    )


@DTYPES
def test_no_row_of_share_0_at_the_ends_of_the_range(dtype, x64):
    top = np.nextafter(np.asarray(1, dtype), np.asarray(0, dtype))
    u = np.array([0, np.finfo(dtype).tiny, 0.5, 1 - 2**-20, top], dtype)
    rng = np.random.default_rng(1)
    for size in (1.0, 1e-30, 1e30):
        for places in ([0], [299], [128], [127, 128], [5, 270], list(range(100, 200))):
            share = np.zeros(300, dtype)
            share[places] = size * rng.uniform(0.1, 1, len(places))
            rows = np.asarray(jax.jit(sample_proportional)(share, u))
            assert np.all(share[rows] > 0), (size, places)
            assert rows[0] == places[0] and rows[-1] == places[-1]


def test_chosen_against_the_cumulative_sum(x64):
    rng = np.random.default_rng(2)
    share, u = rng.uniform(size=300) * (rng.uniform(size=300) < 0.5), rng.uniform(size=4000)
    want = np.searchsorted(np.cumsum(share) / share.sum(), u, side="right")
    # no u lies within 1e-13 of an end
    np.testing.assert_array_equal(jax.jit(sample_proportional)(share, u), want)
