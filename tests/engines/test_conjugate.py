"""The parts of conjugate subgradients: shortest vectors against quadratic programs, searches
against sums written out."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import equations
from scipy.optimize import minimize_scalar, nnls

import jaxsvm
from jaxsvm.engines import conjugate
from jaxsvm.engines.line_search import Line, bounded_step, check_constants, exact_step
from jaxsvm.engines.min_norm_point import nearest_point

few = settings(max_examples=60, derandomize=True, deadline=None, database=None)
seeds = st.integers(0, 10**6)
shortest = jax.jit(nearest_point)
exact = jax.jit(exact_step)
changes = jax.jit(lambda line, t: jax.vmap(line.change)(t))
slopes = jax.jit(lambda line, t: jax.vmap(line.slope)(t))

# the shortest vector


def two(h, g, gain=None):
    """Weights of h and g."""
    vectors = np.stack([h, g])
    return np.asarray(shortest(vectors @ vectors.T, np.ones(2, bool), gain))


@given(seeds)
@few
def test_two_vectors_have_a_closed_form(seed):
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        h, g = rng.normal(size=(2, 4)) + rng.normal() * rng.integers(0, 2)
        h = h * 10 ** rng.uniform(-3, 3)
        weight = two(h, g)
        th = np.clip(g @ (g - h) / ((g - h) @ (g - h)), 0, 1)
        np.testing.assert_allclose(weight, [th, 1 - th], rtol=1e-10, atol=1e-12)
        # The list of 5.1, which holds of the shortest vector however it was found.
        p, room = weight @ np.stack([h, g]), 1e-12 * max(h @ h, g @ g)
        assert p @ p <= min(g @ g, h @ h) + room
        assert p @ g >= p @ p - room and p @ h >= p @ p - room
        if 1e-9 < weight[0] < 1 - 1e-9:
            np.testing.assert_allclose([p @ g, p @ h], p @ p, atol=room)
        assert (weight[0] == 1) == (g @ h >= h @ h) and (weight[0] == 0) == (g @ h >= g @ g)


def test_two_vectors_that_are_special(x64):
    one, zero = np.array([1.0, 2.0]), np.zeros(2)
    # of equal ones the new one
    assert two(one, one).tolist() == [0, 1] and two(zero, zero).tolist() == [0, 1]
    assert two(zero, one).tolist() == [1, 0] and two(one, zero).tolist() == [0, 1]
    np.testing.assert_allclose(two(one, -3 * one), [0.75, 0.25])
    gram = np.array([[1.0, 0.5], [0.5, 3.0]])
    for live in np.eye(2, dtype=bool):
        np.testing.assert_array_equal(
            shortest(np.where(np.outer(live, live), gram, np.nan), live), live
        )
    # With a gain: min 1/2 |v|^2 - gain' weights, by a search over the segment.
    for gain in ([0.3, -0.2], [0.0, 9.0], [9.0, 0.0]):
        both, gain = np.array([[1.0, 0.0], [0.3, 2.0]]), np.array(gain)

        def value(th, both=both, gain=gain):
            weight = np.array([th, 1 - th])
            return np.sum((weight @ both) ** 2) / 2 - weight @ gain

        best = minimize_scalar(value, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).x
        np.testing.assert_allclose(two(*both, gain)[0], best, atol=1e-7)
    assert two(zero, zero, np.array([2.0, 1.0])).tolist() == [1, 0]
    assert two(one, one, np.array([1.0, 2.0])).tolist() == [0, 1]


def assert_slope(function, at, rtol, h=1e-6):
    """Both derivatives are the central difference."""
    difference = (function(at + h) - function(at - h)) / (2 * h)
    reverse = jax.grad(function)(at)
    np.testing.assert_allclose(reverse, difference, rtol=rtol)
    np.testing.assert_allclose(jax.jvp(function, (at,), (1.0,))[1], reverse, rtol=1e-12)


@pytest.mark.long
def test_the_shortest_of_two_has_derivatives(x64):
    """In reverse, too; they are those of the closed form, and numbers where it has a kink."""
    h, g = jnp.array([1.0, 0.3]), jnp.array([-0.4, 1.5])

    def length(s):
        vectors = jnp.stack([s * h, g])
        weight = nearest_point(vectors @ vectors.T, jnp.ones(2, bool))
        return jnp.sum((weight @ vectors) ** 2)

    # height over the line
    closed = lambda s: (s * (h[0] * g[1] - h[1] * g[0])) ** 2 / jnp.sum((g - s * h) ** 2)
    np.testing.assert_allclose(jax.grad(length)(0.9), jax.grad(closed)(0.9), rtol=1e-12)
    assert np.isfinite(jax.grad(length)(0.0))
    at_once = lambda s: jnp.sum(nearest_point(s * jnp.zeros((2, 2)), jnp.ones(2, bool)) ** 2)
    assert float(jax.grad(at_once)(1.0)) == 0


@pytest.mark.long
def test_the_shortest_of_three_has_derivatives(x64):
    """In reverse, too, against differences."""
    vectors = jnp.array([[1.0, 0.3, 0.2], [-0.4, 1.5, 0.1], [0.2, -0.3, 1.0]])
    scaled = lambda s: vectors * jnp.array([[s], [1.0], [1.0]])
    weight = jax.jit(lambda s: nearest_point(scaled(s) @ scaled(s).T, jnp.ones(3, bool)))
    assert np.all(weight(0.9) > 0.01)
    assert abs(jax.grad(lambda s: weight(s)[0])(0.9)) > 0.1
    assert_slope(lambda s: weight(s)[0], 0.9, rtol=1e-6)


def by_program(vectors):
    """The shortest vector of a hull by nonnegative least squares: min |[V' ; big 1'] w - [0 ;
    big]|, scaled to sum 1."""
    big = 1e3 * np.sqrt((vectors**2).sum(1).max())
    matrix, right = np.c_[vectors, np.full(len(vectors), big)].T, np.zeros(vectors.shape[1])
    w, _ = nnls(matrix, np.append(right, big), maxiter=10_000)
    return w / w.sum() @ vectors


@pytest.mark.long
@given(seeds, st.integers(3, 10))
@few
def test_a_bundle(seed, m):
    """Vectors of which some are dead, double or 0, many or few of one plane: the length is that of
    the program."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        vectors = np.zeros((10, 6))
        shift = rng.choice([0.0, 0.3, 1.0, 3.0])
        vectors[:m] = (rng.normal(size=(m, 6)) + shift) * 10 ** rng.uniform(-1, 1, (m, 1))
        if rng.integers(2):
            vectors[1] = vectors[0]
        if rng.integers(4) == 0:
            vectors[2] = 0
        live = np.arange(10) < m
        live[rng.integers(0, m)] = False
        place = rng.permutation(10)
        vectors, live = vectors[place], live[place]
        # in the places of no vector
        wild = np.where(live[:, None], vectors, 7 * rng.normal(size=(10, 6)))
        weight = np.asarray(shortest(wild @ wild.T, live))
        assert np.all(weight >= 0) and np.all(weight[~live] == 0)
        np.testing.assert_allclose(weight.sum(), 1, rtol=1e-14)
        p, size = weight @ wild, (vectors[live] ** 2).sum(1).max()
        assert np.all(vectors[live] @ p >= p @ p - 1e-9 * size)
        # of a penalty 1e6
        np.testing.assert_allclose(p @ p, np.sum(by_program(vectors[live]) ** 2), atol=1e-5 * size)


def test_a_bundle_in_float32():
    """Subgradients of a run, alike and near a shortest vector of length 0: the conditions within a
    few roundings."""
    rng = np.random.default_rng(3)
    centre = rng.normal(size=(10, 1))
    vectors = (rng.normal(size=(10, 20)) - 0.3 * centre).astype(np.float32)
    weight = np.asarray(shortest(vectors @ vectors.T, np.ones(10, bool)))
    assert weight.dtype == np.float32
    p = weight.astype(float) @ vectors
    assert np.all(vectors @ p >= p @ p - 1e-5 * (vectors**2).sum(1).max())


# the line


def on_line(dtype, lam, cross, square, margin, rate, share):
    """A line whose margins and rates are known to a few roundings of the largest."""
    unit = 8 * np.finfo(dtype).eps
    near, rough = unit * max(1, np.abs(margin).max()), unit * np.abs(rate).max()
    return Line(
        *(np.asarray(a, dtype) for a in (lam, cross, square, margin, rate, share, near, rough))
    )


class Hinges:
    """f along a line, from margins and rates, term by term in NumPy."""

    def __init__(self, seed, n=12, ties=False):
        rng = np.random.default_rng(seed)
        self.lam = 10 ** rng.uniform(-3, 0.5)
        self.margin = rng.normal(size=n) + 0.5
        self.rate = rng.normal(size=n) * 10 ** rng.uniform(-1, 1)
        if ties:  # several rows have the same kink, some at 0, and some rows do not move
            kink = rng.integers(0, 4, n) / 2
            self.margin = 1 - kink * self.rate
            self.rate[rng.integers(0, n)] = 0
        self.share = rng.integers(0, 4, n) + 0.0
        self.share[0] = 1
        self.share /= self.share.sum()
        self.square = 10 ** rng.uniform(-2, 2)
        self.cross = rng.normal() * np.sqrt(self.square)

    @classmethod
    def with_kinks(cls, lam, rate, kinks):
        """Two rows of half the weight, along a unit vector, at right angles to where it starts."""
        f, rate = cls(0, n=2), np.array(rate)
        f.lam, f.cross, f.square, f.share = lam, 0.0, 1.0, np.array([0.5, 0.5])
        f.margin, f.rate = 1 - rate * np.array(kinks), rate
        return f

    def line(self, dtype=np.float64):
        return on_line(dtype, self.lam, self.cross, self.square, self.margin, self.rate, self.share)

    def value(self, t):
        """f(w + t d) but for lam/2 |w|^2, (...,) -> (...,)."""
        t = np.asarray(t, float)[..., None]
        hinge = np.maximum(0, 1 - self.margin - t * self.rate) @ self.share
        return self.lam * (t[..., 0] * self.cross + t[..., 0] ** 2 * self.square / 2) + hinge

    def slope(self, t, side=1e-9):
        """The slope on the right of t."""
        t = t + side * max(1, abs(t))
        pull = self.share @ np.where(self.margin + t * self.rate < 1, self.rate, 0)
        return self.lam * (self.cross + t * self.square) - pull

    def lowest(self):
        """The minimum over t >= 0, with the kinks sorted: between two of them the slope is a
        straight line."""
        moves = (self.rate != 0) & (self.share > 0)
        kinks = (1 - self.margin[moves]) / self.rate[moves]
        ends = np.append(0, np.sort(kinks[kinks > 1e-13]))
        for k, start in enumerate(ends):
            end = ends[k + 1] if k + 1 < len(ends) else np.inf
            middle = start + min(1, (end - start) / 2)
            below = self.margin + middle * self.rate < 1
            pull = self.share @ np.where(below, self.rate, 0)
            level = (pull / self.lam - self.cross) / self.square
            if level <= end:
                return max(start, level)
        raise AssertionError("the last piece has no end")


@given(seeds, st.booleans())
@few
def test_a_line_is_the_function_along_it(seed, ties):
    with jax.enable_x64(True):
        f = Hinges(seed, ties=ties)
        line = f.line()
        t = np.append(np.linspace(0, 3, 13), [1e-3, 40.0])
        close, h = np.testing.assert_allclose, 1e-6  # to the right, where kinks are
        close(changes(line, t), f.value(t) - f.value(0.0), rtol=1e-9, atol=1e-10)
        close(slopes(line, t), [f.slope(s) for s in t], rtol=1e-6, atol=1e-6)
        close(slopes(line, t), (f.value(t + h) - f.value(t)) / h, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_at_a_kink_the_right_side_counts(dtype, x64):
    """Rows at margin 1, but for roundings, are below it just behind if they fall, and above if they
    rise or rest."""
    t = 0.7
    rate = np.array([3.0, -3.0, 0.0, 30.0, -30.0, 3.0, -3.0])
    margin = 1 - t * rate
    margin[5], margin[6] = margin[5] - 1e-3, margin[6] + 1e-3  # below and above, no ties
    line = on_line(dtype, 1, 1, 1, margin, rate, np.full(7, 1 / 7))
    np.testing.assert_array_equal(line.active(jnp.asarray(t, dtype)), [0, 1, 0, 0, 1, 1, 0])
    before, here, behind = (line.slope(jnp.asarray(t + side, dtype)) for side in (-1e-4, 0, 1e-4))
    np.testing.assert_allclose(here, behind, atol=2e-4)
    np.testing.assert_allclose(here - before, (3 + 3 + 30 + 30) / 7, atol=1e-3)  # the jump at t
    # On the way along a kink a row is at margin 1; what is left of its rate, on either side of 0,
    # says nothing.
    here = jnp.asarray(t, dtype)
    for side in (-1, 1):
        margin = jnp.asarray(line.margin).at[2].set(1 + side * line.margin_tol / 2)
        rate = jnp.asarray(line.rate).at[2].set(side * line.rate_tol / 2)
        on_kink = line._replace(margin=margin, rate=rate)
        np.testing.assert_array_equal(on_kink.active(here), line.active(here))


def test_a_row_that_rests_on_its_kink_is_not_active(x64):
    """Also where nothing is lost to rounding: the tolerances of a line through zero functions are
    0."""
    line = on_line(np.float64, 1, 1, 1, np.ones(3), np.array([0.0, 1.0, -1.0]), np.ones(3) / 3)
    line = line._replace(margin_tol=jnp.zeros(()), rate_tol=jnp.zeros(()))
    assert line.active(jnp.zeros(())).tolist() == [0, 0, 1]


# the exact search


@given(seeds, st.booleans())
@few
def test_the_exact_step_is_that_of_sorted_kinks(seed, ties):
    with jax.enable_x64(True):
        f = Hinges(seed, ties=ties)
        t, best = float(exact(f.line())), f.lowest()
        np.testing.assert_allclose(t, best, rtol=1e-9, atol=1e-12)
        grid = np.append(best * np.linspace(0, 3, 1001), np.linspace(0, 10, 1001))
        assert f.value(t) <= f.value(grid).min() + 1e-12 * max(1, abs(f.value(t)))
        if f.slope(0.0) >= 0:
            assert t == 0
        else:
            assert t > 0 and float(f.line().slope(jnp.asarray(t))) >= -1e-9


STEEP = (1e-7, [2 * (1 - 1e-3), 2e-3], [1e-3, 10.0])


@pytest.mark.parametrize(
    ("lam", "rate", "kinks", "lowest", "dtype", "rtol"),
    [
        *((1e-9, [1 / k, -2.0], [k, k], min(k, 5e3), "float64", 1e-14) for k in (1e-6, 1, 1e5)),
        (*STEEP, 10, "float64", 1e-12),
        # margins of one are known to 6e-8, and with the rate 2e-3 the kink to 3e-5
        (*STEEP, 10, "float32", 1e-5),
    ],
)
def test_a_step_to_a_kink_is_the_kink(lam, rate, kinks, lowest, dtype, rtol, x64):
    """To the last digits, also far out, and where the slope is -1 to 1e-3, then -1e-3 to 10."""
    f = Hinges.with_kinks(lam, rate, kinks)
    assert f.lowest() == pytest.approx(lowest)
    step = exact(f.line(dtype))
    assert step.dtype == dtype
    np.testing.assert_allclose(step, f.lowest(), rtol=rtol)


def test_no_step_where_there_is_no_direction(x64):
    still = Hinges(1).line()._replace(cross=np.float64(0), square=np.float64(0))
    still = still._replace(rate=np.zeros(12))
    assert float(exact(still)) == 0


@pytest.mark.long
def test_the_exact_step_has_derivatives(x64):
    """Where the slope passes through 0, and at a kink, by differences."""
    line = Hinges(4).line()
    for margin in (line.margin, line.margin + 0.3 * np.abs(line.rate)):
        line = line._replace(margin=margin, cross=np.float64(-5.0), lam=np.float64(0.05))
        step = jax.jit(
            lambda s: exact_step(line._replace(lam=s * line.lam, margin=s * line.margin))
        )
        assert float(step(1.0)) > 0
        assert_slope(step, 1.0, rtol=1e-5)


# the bounded search

bounded = jax.jit(bounded_step)
CONSTANTS = [(0.4, 0.45), (0.1, 0.4), (0.2, 0.2)]


def descending(seed):
    """A line whose slope at 0 is -1.2 |d|^2 or so: as for a subgradient, d = -g, not far from
    it."""
    f = Hinges(seed)
    f.cross -= (f.slope(0.0) + f.square * np.random.default_rng(seed).uniform(0.3, 1.5)) / f.lam
    return f


@pytest.mark.long
@given(seeds, st.sampled_from(CONSTANTS))
@few
def test_the_two_sets_of_a_search(seed, constants):
    """L is (0, tL], R is [tR, inf), they cover all t > 0 and overlap; and the step is in both."""
    with jax.enable_x64(True):
        decrease, slope = constants
        f = descending(seed)
        line, size = f.line(), jnp.asarray(f.square)
        best = f.lowest()
        grid = (best if best > 0 else 1.0) * np.logspace(-5, 3, 801)
        change, rates = np.asarray(changes(line, grid)), np.asarray(slopes(line, grid))
        np.testing.assert_allclose(change, f.value(grid) - f.value(0.0), rtol=1e-6, atol=1e-8)
        left, right = change <= -decrease * f.square * grid, rates >= -slope * f.square
        # an interval from 0, and one to infinity
        assert np.all(left[:-1] >= left[1:]) and np.all(right[:-1] <= right[1:])
        assert np.all(left | right)
        tiny, one = jnp.asarray(1e-9), jnp.asarray(1.0)
        below = lambda high: bounded(line, size, decrease, slope, tiny, jnp.asarray(high), one)
        found, beyond = map(float, below(np.inf))
        if found == 0:
            assert f.slope(0.0) > -decrease * f.square  # nothing falls fast enough
            assert not left[grid > 1e-8].any() and 0 < beyond <= 2e-9
        else:
            assert float(f.value(found) - f.value(0.0)) <= -decrease * f.square * found + 1e-12
            assert f.slope(found) >= -slope * f.square - 1e-7 * abs(f.slope(0.0))
        # A radius that it would exceed: as far as half of it at least, in L still.
        high = found / 3
        if found > 0 and float(line.slope(jnp.asarray(high))) < -slope * f.square:
            near, _ = map(float, below(high))
            assert high / 2 <= near <= high * (1 + 1e-12)
            assert float(line.change(jnp.asarray(near))) <= -decrease * f.square * near


def test_steps_that_are_too_short_do_not_count(x64):
    """Where the decrease ends before `low`, the step is 0, and the last trial is the first one not
    below `low` or less."""
    f = Hinges.with_kinks(1e-3, [2.0, -1.0], [0.005, 2.0])
    search = lambda low: map(float, bounded(f.line(), 1.0, 0.4, 0.45, low, np.inf, 1.0))
    found, _ = search(1e-4)
    assert 0 < found <= 0.0125 and found >= 0.005 - 1e-12  # in L to 0.0125, in R from 0.005
    found, beyond = search(0.02)
    # in R, not in L: the point whose subgradient comes next
    assert found == 0 and 0.02 <= beyond < 0.04
    assert f.slope(beyond) >= -0.45 and f.value(beyond) - f.value(0.0) > -0.4 * beyond


def test_constants_apart_find_nothing(x64):
    """Slopes -1, -0.2 and 0 with kinks at 1 and 10: with (0.4, 0.1) no t is in both sets, and 60
    trials end."""
    f = Hinges.with_kinks(1e-12, [1.6, 0.4], [1.0, 10.0])
    grid = np.linspace(0.01, 30, 30_000)
    fall, slope = f.value(grid) - f.value(0.0), np.array([f.slope(t) for t in grid])
    np.testing.assert_allclose(slope[[10, 5000, 20_000]], [-1, -0.2, 0], atol=1e-9)
    in_both = lambda m_L, m_R: grid[(fall <= -m_L * grid) & (slope >= -m_R)]
    assert in_both(0.4, 0.1).size == 0 and np.any((fall > -0.4 * grid) & (slope < -0.1))
    found, beyond = map(float, bounded(f.line(), 1.0, 0.4, 0.1, 1e-9, np.inf, 1.0))
    # in L only
    assert fall[np.argmin(np.abs(grid - found))] <= -0.4 * found + 1e-3 and f.slope(found) < -0.1
    # halved to the end of L
    assert beyond == pytest.approx(found, rel=1e-12) and found == pytest.approx(4, rel=1e-6)
    found, _ = map(float, bounded(f.line(), 1.0, 0.4, 0.45, 1e-9, np.inf, 1.0))
    assert in_both(0.4, 0.45).min() - 1e-3 <= found <= in_both(0.4, 0.45).max()


def test_a_search_reads_responses_only():
    """No product with a matrix in either: the sizes in their programs are n, not n n or n d."""
    line, one = Hinges(0, n=200).line(np.float32), np.float32(1)
    within = lambda line: bounded_step(line, line.square, 0.4, 0.45, 1e-6, np.inf, one)
    for search in (exact_step, within):
        steps = equations(jax.make_jaxpr(search)(line).jaxpr)
        assert max(v.aval.size for step, _ in steps for v in step.outvars) <= 200


def test_constants_are_checked():
    check_constants(0.4, 0.4)
    with pytest.raises(ValueError, match=r"m_L must be at most m_R, .* got m_L=0\.4, m_R=0\.2"):
        check_constants(0.4, 0.2)
    # nobody knows them here
    assert jax.jit(lambda m: [check_constants(m, 0.2)] and m)(0.4) == pytest.approx(0.4)


# functions


@pytest.mark.long
@pytest.mark.parametrize("space", ["kernel", "matrix", "linear"])
def test_functions_are_expansions_with_their_values(space, x64):
    rng = np.random.default_rng(0)
    x, (p, q) = rng.normal(size=(30, 3)), rng.normal(size=(2, 30))
    gram = x @ x.T if space == "linear" else np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    kernel = None if space == "linear" else jaxsvm.kernels.rbf(1.0)
    matrix = jnp.asarray(gram) if space == "matrix" else None
    frame = conjugate.InnerProductSpace(kernel, jnp.asarray(x), matrix)
    a, b = frame.function(jnp.asarray(p)), frame.function(jnp.asarray(q))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
    close(a.response, gram @ p)
    close(frame.inner(a, b), p @ gram @ q)
    close(a.coef, p @ x if space == "linear" else p)
    close(conjugate.subgradient(0.3, a, b).response, gram @ (0.3 * p - q))
    close(frame.inner(conjugate.add_scaled(a, 2.0, b), a), (p + 2 * q) @ gram @ p)
    both = jax.tree.map(lambda u, v: jnp.stack([u, v]), a, b)
    close(conjugate.combined(jnp.array([0.3, 0.7]), both).response, gram @ (0.3 * p + 0.7 * q))
