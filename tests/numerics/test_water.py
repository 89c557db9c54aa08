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
from jaxsvm.numerics import one_level, two_levels

N = 40  # one shape for all, so that programs are compiled once
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)
few = settings(max_examples=40, deadline=None, derandomize=True)

FACTORIALS = [float(math.factorial(k)) for k in range(31)]
RESPONSES = {
    "random": lambda rng: rng.normal(size=N),
    "tied": lambda rng: rng.integers(-2, 3, N) * 1.0,
    "rounded": lambda rng: np.round(rng.normal(size=N), 1),
    "log-uniform": lambda rng: 10 ** rng.uniform(-6, 6, N),
    "ladder": lambda rng: rng.permutation([1.0] * 9 + FACTORIALS),  # n steps of Newton's
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


def water_level(*args, **options):
    return one_level(*args, **options).level


fill = jax.jit(lambda c, v, weight, start=None: water_level(c, v, weight=weight, start=start))
share_out = jax.jit(
    lambda c, y, v, weight, start=None: two_levels(c, y, v, weight=weight, start=start)
)
slopes_of_one = jax.jit(jax.grad(fill, argnums=(0, 1)))
slopes_of_two = jax.jit(jax.grad(lambda *args: share_out(*args).level, argnums=(0, 2)))
one_basin, both_basins = jax.jit(water_level), jax.jit(two_levels)  # of 8 rows


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
                volume = size * rng.uniform(0.5, 1.5)
                yield tuple(np.asarray(a, dtype) for a in (c, y, volume, weight))


def wide(*arrays):
    return [np.asarray(a, np.float64) for a in arrays]


# other programs


def by_program(c, volume, weight, y=None):
    """min <p, c> + volume q over p <= weight q, sum p = 1, half of it in each class; the cost is
    scaled to about 1."""
    n, scale = len(c), max(volume, np.abs(c).max(), 1e-30)
    mass = np.ones((1, n)) if y is None else np.array([y > 0, y < 0]) * 1.0
    upper, equal = np.c_[np.eye(n), -weight], np.c_[mass, np.zeros(len(mass))]
    sides = np.zeros(n), equal, np.ones(len(mass)) / len(mass)
    made = linprog(np.append(c, volume) / scale, upper, *sides, method="highs")
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
        found = fill(c, volume, weight)
        assert found.dtype == dtype
        level = float(found)
        c, _, volume, weight = live(c, y, volume, weight)
        want = by_sorting(c, volume, weight)
        # Two roundings of the level, each times the rows under water: for volumes below that,
        # nothing else is known of it.
        rounded = 2 * eps * abs(want) * weight.sum()
        assert abs(weight @ np.maximum(level - c, 0) - volume) <= tolerance * volume + rounded
        # what that leaves of the level
        assert abs(level - want) * (weight @ (c < want)) <= tolerance * volume + rounded
        assert volume > 0 or level == c.min()


@pytest.mark.parametrize("ground", ["random", "tied", "equal", "shifted"])
def test_levels_are_those_of_the_linear_programs(ground, x64):
    """Of one basin and of two, to the programs' own tolerance."""
    for c, y, volume, weight in problems(ground, "float64", times=1):
        levels = fill(c, volume, weight), share_out(c, y, volume, weight).level
        c, y, volume, w = live(c, y, volume, weight)
        for level, labels in zip(levels, (None, y), strict=True):
            want, scale = by_program(c, volume, w, labels)
            assert abs(float(level) - want) <= 1e-7 * scale
        assert by_sorting_two(c, y, volume, w)[0] == pytest.approx(want, abs=1e-7 * scale)


@DTYPES
def test_a_start_from_anywhere_leads_to_the_same_level(dtype, x64):
    eps = np.finfo(dtype).eps
    for ground in ("random", "tied", "equal", "one far below"):
        for c, _y, volume, weight in problems(ground, dtype, times=1):
            cold = float(fill(c, volume, weight))
            lowest, mass = c[weight > 0].min(), float(weight.sum())
            room = TOLERANCE[dtype] * float(volume) + 4 * eps * abs(cold) * mass
            starts = (0.0, 1.0, -7.0, 1e4, -1e30, 1e30, np.nan)
            for start in (cold, np.nextafter(cold, np.inf), lowest, *starts):
                level = float(fill(c, volume, weight, np.asarray(start, dtype)))
                size = float(weight @ (c < cold))
                assert abs(level - cold) * max(size, 1e-3) <= room, (ground, start, volume)


@pytest.mark.long
@DTYPES
def test_rows_of_weight_0_may_hold_anything(dtype, x64):
    for c, y, volume, weight in problems("random", dtype, times=2):
        weight = np.where(np.arange(N) % 3 == 2, 0, weight).astype(dtype)
        rest = volume, weight
        plain = fill(c, *rest), share_out(c, y, *rest)
        for wild in (0.0, -1e30, 1e30, np.inf, np.nan):
            strange = np.where(weight > 0, c, wild).astype(dtype)
            found = (fill(strange, *rest), share_out(strange, np.where(weight > 0, y, -y), *rest))
            jax.tree.map(np.testing.assert_array_equal, found, plain)
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
        all_of = lambda c, y, volume: np.array(
            [one_basin(c, volume), *both_basins(c, y, volume)[:2]]
        )
        found = all_of(c, y, volume)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12 * 256)
        close(all_of(c[order], y[order], volume), found)
        close(all_of(c + shift, y, volume), found + [shift, shift, 0])
        close(all_of(factor * c, y, factor * volume), factor * found, atol=1e-12 * 256 * 64)
        close(all_of(c, -y, volume), found * [1, 1, -1])
        close(all_of(c + shift * y, y, volume)[1:], found[1:] - [0, shift])


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
        lifted = weight @ np.maximum(level - c - y * bias, 0)
        assert abs(lifted - volume) <= tolerance * volume + rounded * weight.sum()
        room = tolerance * volume / weight.sum() + tolerance * abs(want) + rounded
        assert abs(level - want) <= room
        assert abs(by_sorting(c + y * bias, volume, weight) - want) <= room
        # real weights leave slopes near 0: a bias is known as far as it matters
        whole = np.all(weight == np.round(weight))
        assert not whole or abs(bias - middle) <= room + tolerance * abs(middle)


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
            near = (bias, level, 0.0), (bias + 0.3, level - 0.1, 0.6)
            room = 10 * TOLERANCE[dtype] * (np.abs(c[weight > 0]).max() + abs(level) + abs(bias))
            for start in (*near, (-50.0, 3.0, 1e-3), (1e3, -1e3, 1.0), (0.0, 0.0, 0.0)):
                start = tuple(np.asarray(a, dtype) for a in start)
                warm = wide(*share_out(c, y, volume, weight, start)[:2])
                np.testing.assert_allclose(warm, [level, bias], atol=room, err_msg=str(start))


@pytest.mark.long
def test_a_class_without_rows_has_no_level():
    c, weight = np.float32(RESPONSES["random"](np.random.default_rng(0))), np.ones(N, "f")
    later = np.arange(N) >= 3
    for y, w in ((np.ones(N), weight), (-np.ones(N), weight), (1 - 2 * later, np.float32(later))):
        for volume in (0.0, 2.0):
            found = share_out(c, np.float32(y), np.float32(volume), w)
            assert np.isposinf(found.level) and found.bias == 0 and not np.any(found.share)


# batches and derivatives


CLOSE = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)


def stacked(ground="random"):
    return [np.stack(a) for a in zip(*problems(ground, "float64", times=1), strict=True)]


@pytest.mark.long
def test_vmap_is_a_loop(x64):
    for ground in ("random", "ladder"):
        c, y, volume, weight = stacked(ground)
        start = np.zeros_like(volume)
        for fn, args in (
            (fill, (c, volume, weight)),
            (fill, (c, volume, weight, start)),
            (share_out, (c, y, volume, weight)),
            (share_out, (c, y, volume, weight, (start, start, start + 1))),
        ):
            loop = [fn(*jax.tree.map(lambda a: a[i], args)) for i in range(len(c))]
            loop = jax.tree.map(lambda *a: np.stack(a), *loop)
            jax.tree.map(CLOSE, jax.vmap(fn)(*args), loop)


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
        one = lambda c, v: fill(c, v, weight)
        both = lambda c, v: share_out(c, y, v, weight).level
        by_one, by_both = slopes_of_one(c, volume, weight), slopes_of_two(c, y, volume, weight)
        under = weight * (c < float(one(c, volume)))
        np.testing.assert_allclose(by_one[0], under / under.sum(), rtol=1e-12)
        np.testing.assert_allclose(by_one[1], 1 / under.sum(), rtol=1e-12)
        share = share_out(c, y, volume, weight).share
        np.testing.assert_allclose(by_both[0], share, rtol=1e-12, atol=1e-15)
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
    along = lambda c, v, t: jax.jvp(lambda c: water_level(c, v), (c,), (t,))[1]
    forward = jax.vmap(along)(c, volume, tangent)
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


# the water of a known optimum

X = np.random.default_rng(8).normal(size=(N, 2))
NOISE = 0.4 * np.random.default_rng(9).normal(size=N)
Y = np.where(X[:, 0] - 0.5 * X[:, 1] ** 2 + NOISE > -0.4, 1.0, -1.0)
GRAM = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2)


@pytest.mark.long
@pytest.mark.parametrize("lam", [0.3, 0.03, 0.003])
def test_the_level_over_a_reference_solution_is_one_over_its_norm(lam, x64):
    """U/|U| at nu = (mean hinge) / |u|: without bias by decomposition, with the best bias by
    LIBSVM."""
    data = jaxsvm.dataset(X, Y)
    C = jaxsvm.objectives.C_from_lam(lam, N)
    solver = jaxsvm.decomposition(C, kernels.rbf(1.0), bias="none", tol=1e-10)
    u = jaxsvm.fit(solver, data, jax.random.key(0)).model
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
