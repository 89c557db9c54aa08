"""Float32 arithmetic against float64 and Python's integers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxsvm import numerics
from jaxsvm.numerics.normal_equations import symmetric

exact = settings(max_examples=30, deadline=None, derandomize=True)
word = st.integers(0, 2**32 - 1)
multiply_high = jax.jit(numerics.multiply_high)


@exact
@given(st.lists(st.tuples(word, word), min_size=4, max_size=4))
def test_multiply_high_is_the_upper_half_of_the_product(factors):
    a, b = (np.array(column, np.uint32) for column in zip(*factors, strict=True))
    got = multiply_high(a, b)
    assert got.dtype == jnp.uint32
    assert got.tolist() == [x * y >> 32 for x, y in factors]


def test_multiply_high_is_right_at_the_ends_of_the_range():
    low = [0, 1, 2, 0xFFFF, 0x10000, 0x10001]
    ends = [*low, 0x7FFFFFFF, 0x80000000, 0xFFFF0000, 0xFFFFFFFE, 0xFFFFFFFF]
    a, b = (column.ravel().astype(np.uint32) for column in np.meshgrid(ends, ends))
    wanted = [int(x) * int(y) >> 32 for x, y in zip(a, b, strict=True)]
    assert multiply_high(a, b).tolist() == wanted


def test_mix_is_a_permutation_that_spreads_every_bit():
    numbers = np.arange(2**16, dtype=np.uint32)
    images = np.asarray(numerics.hash32(numbers))
    assert np.unique(images).size == numbers.size
    for bit in range(16):  # flipping one input bit flips each output bit about half the time
        flipped = np.asarray(numerics.hash32(numbers ^ np.uint32(1 << bit))) ^ images
        share = np.mean((flipped[:, None] >> np.arange(32, dtype=np.uint32)) & 1, axis=0)
        # 2^15 pairs of numbers: a standard deviation of 0.003; the hash is good, not perfect
        assert np.all(np.abs(share - 0.5) < 0.05)


def test_mix_is_the_finaliser_of_murmurhash3():
    """Written out with Python's integers; what is drawn by it stays the same from version to
    version."""

    def fmix32(h):
        for multiplier in (0x85EBCA6B, 0xC2B2AE35):
            h ^= h >> (16 if multiplier == 0x85EBCA6B else 13)
            h = h * multiplier % 2**32
        return h ^ h >> 16

    numbers = np.array([0, 1, 2, 12345, 2**31, 2**32 - 1], np.uint32)
    assert fmix32(1) == 0x514E28B7
    assert numerics.hash32(numbers).tolist() == [fmix32(int(number)) for number in numbers]


@pytest.mark.parametrize("offset", [0.0, 0.7])
def test_two_sum_keeps_a_million_float32_terms_to_the_last_place(offset):
    rng = np.random.default_rng(0)
    terms = (rng.normal(size=1_000_000) + offset).astype(np.float32)

    @jax.jit
    def both(terms):
        def add(carry, term):
            return (*numerics.two_sum(*carry[:2], term), carry[2] + term), None

        return jax.lax.scan(add, (jnp.zeros((), jnp.float32),) * 3, terms)[0]

    total, lost, plain = (float(a) for a in both(terms))
    want = np.sum(terms.astype(np.float64))
    size = max(abs(want), 1e3)  # the partial sums of the centred terms reach about 1000
    assert abs(total + lost - want) <= 4 * np.finfo(np.float32).eps * size
    assert abs(plain - want) > 16 * abs(total + lost - want)


def test_dot_and_squared_norms_are_those_of_float64():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(6, 40)).astype(np.float32), rng.normal(size=(40, 3)).astype(np.float32)
    # 40 products of size 1: 40 roundings of the sum at most
    a, b = x.astype(np.float64), z.astype(np.float64)
    np.testing.assert_allclose(numerics.dot(x, z), a @ b, atol=40 * 6e-8)
    np.testing.assert_allclose(numerics.sqnorms(x), np.sum(a**2, axis=1), rtol=40 * 6e-8)


@pytest.mark.parametrize(
    ("offset", "dtype"), [(0, "float32"), (10, "float32"), (1000, "float32"), (0, "float64")]
)
def test_sqdist_is_off_by_roundings_of_the_squared_norms(offset, dtype, x64):
    # |x|^2 + |z|^2 - 2 <x, z> cancels: the error is relative to the norms, not to the distance.
    # Centre the rows first.
    rng = np.random.default_rng(1)
    x, z = ((rng.normal(size=(n, 5)) + offset).astype(dtype) for n in (7, 9))
    a, b = x.astype(np.float64), z.astype(np.float64)
    norms = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1)[None]
    got = jax.jit(numerics.sqdist)(x, z)
    assert got.dtype == dtype
    off = np.abs(np.asarray(got) - np.sum((a[:, None] - b[None]) ** 2, axis=-1))
    assert np.all(off <= 4 * np.finfo(dtype).eps * norms)


def test_sqdist_is_never_negative():
    x = np.float32(np.random.default_rng(2).normal(size=(20, 5)) * 1e3)
    assert np.min(jax.jit(numerics.sqdist)(x, x * np.float32(1 + 1e-7))) >= 0


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        ("bfloat16", "float32"),
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_wide_is_float32_at_least_and_float64_where_the_rows_are(dtype, want, x64):
    assert numerics.accum_dtype(jnp.zeros((1, 1), dtype)) == want


@pytest.mark.long
def test_norm_is_the_euclidean_norm_with_gradient_zero_at_zero():
    length, slope = jax.value_and_grad(numerics.norm)(jnp.array([3.0, 4.0]))
    assert float(length) == 5.0 and numerics.norm(jnp.zeros(2)) == 0
    np.testing.assert_allclose(slope, [0.6, 0.8], rtol=1e-6)  # two roundings
    np.testing.assert_array_equal(jax.grad(numerics.norm)(jnp.zeros(3)), 0)
    assert np.isnan(numerics.norm(jnp.array([np.nan, 1.0])))


@pytest.mark.parametrize("index", [[3], [0, 4, 2], [2, 2, 0]])
def test_put_and_pick_write_and_read_the_named_places(index):
    """A place that is named twice takes one value."""
    a, index = np.arange(5, dtype=np.float32), np.array(index, np.int32)
    values, want = 10 * a[index] + 1, a.copy()
    want[index] = values
    put = jax.jit(numerics.scatter_set)(a, index, values)
    np.testing.assert_array_equal(put, want)
    np.testing.assert_array_equal(jax.jit(numerics.gather)(put, index), values)


@pytest.mark.parametrize("block", [1, 3, 5, 10, 11])
def test_blocked_equals_unblocked_for_every_block_size(block):
    # whole numbers: no rounding
    x = jnp.asarray(np.random.default_rng(3).integers(-8, 8, size=(10, 3)), jnp.float32)
    for fn in (
        lambda rows: jnp.sum(rows, -1),
        lambda rows: rows[:, None, :] * jnp.arange(1.0, 3.0)[None, :, None],
    ):
        np.testing.assert_array_equal(numerics.blocked(fn, x, block), fn(x))


def test_blocked_never_hands_on_more_rows_than_the_block():
    seen = []
    numerics.blocked(lambda rows: seen.append(rows.shape[0]) or rows[:, 0], jnp.zeros((10, 2)), 4)
    assert set(seen) == {4}


numbers = st.one_of(
    st.sampled_from([-np.inf, np.inf, 0.0, -0.0, 1.0, -1.0, 3.4e38, -3.4e38, 1e-45]),
    st.floats(width=32, allow_nan=False),
)
SIZES = (1, 16, 17, 45)  # few shapes: few programs
several = st.sampled_from(SIZES).flatmap(lambda n: st.lists(numbers, min_size=n, max_size=n))
greatest, least = jax.jit(numerics.fast_max), jax.jit(numerics.fast_min)
first_max = jax.jit(numerics.argmax_value)


@pytest.mark.long
@exact
@given(several)
def test_greatest_least_and_first_max_are_those_of_numpy(values):
    a = np.array(values, np.float32)
    a[np.abs(a) < np.finfo(np.float32).tiny] = 0  # XLA takes subnormal numbers for 0
    assert float(greatest(a)) == a.max() and float(least(a)) == a.min()
    place, top = first_max(a)
    assert place.dtype == jnp.int32 and int(place) == np.argmax(a) and float(top) == a.max()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33, 100])
def test_the_maximum_is_found_wherever_it_is(n):
    a = np.zeros((n, n), np.float32) + np.eye(n, dtype=np.float32)
    place, top = jax.jit(jax.vmap(numerics.argmax_value))(a)
    np.testing.assert_array_equal(place, np.arange(n))
    np.testing.assert_array_equal(top, 1)
    np.testing.assert_array_equal(jax.jit(jax.vmap(numerics.fast_max))(a), 1)
    np.testing.assert_array_equal(jax.jit(jax.vmap(numerics.fast_min))(-a), -1)


def test_ties_go_to_the_first_place_and_nothing_comparable_to_the_last():
    for value, place in ((2, 0), (-np.inf, 0), (np.nan, 44)):
        assert int(first_max(np.full(45, value, np.float32))[0]) == place


@exact
@given(several, st.integers(1, 45))
def test_largest_are_the_places_of_the_largest_in_order(values, k):
    a = np.array(values, np.float32)
    a[np.abs(a) < np.finfo(np.float32).tiny] = 0
    k = 1 if k % 2 else a.size
    got = np.asarray(jax.jit(numerics.top_k_index, static_argnums=1)(a, k))
    assert got.dtype == np.int32 and got.shape == (k,) and len(set(got.tolist())) == k
    np.testing.assert_array_equal(a[got], np.sort(a)[::-1][:k])


def test_at_is_a_number_of_a_vector_and_a_row_of_a_matrix():
    vector = np.arange(5, dtype=np.float32) ** 2
    matrix = np.arange(15, dtype=np.float32).reshape(5, 3)
    at = jax.jit(numerics.index_row)
    for i in range(5):
        assert at(vector, np.int32(i)).shape == () and float(at(vector, np.int32(i))) == vector[i]
        np.testing.assert_array_equal(at(matrix, np.int32(i)), matrix[i])


def test_is_traced_tells_tracers_from_arrays():
    assert jax.jit(lambda a: jnp.where(numerics.is_traced(a), a, 0.0))(jnp.ones(2)).all()
    assert not numerics.is_traced(jnp.ones(2), 1.0)


def test_a_running_mean_keeps_four_million_values():
    """A plain float32 mean is off by 2.8e-3 here."""
    n = 4_000_000
    value = lambda t: jnp.where(t < n // 2, jnp.float32(1), jnp.float32(1.01))

    @jax.jit
    def both():
        def body(t, carry):
            mean, lost, plain = carry
            share = 1 / (t + 1).astype(jnp.float32)
            plain = plain + (value(t) - plain) * share
            return *numerics.running_mean(mean, lost, value(t), share), plain

        return jax.lax.fori_loop(0, n, body, (jnp.float32(0),) * 3)

    mean, lost, plain = (float(a) for a in both())
    want = 0.5 + 0.5 * float(np.float32(1.01))
    assert abs(mean + lost - want) <= 1e-7 and abs(plain - want) > 1e-5


@pytest.mark.parametrize("when", [[3, 7, 5], [3, 8, 5], [4, 8, 0]])
def test_a_branch_on_a_clock_stays_one_under_vmap(when):
    """It is taken for all problems where it is for one, worked out in no other step, and nested
    maps are no exception."""
    taken = []

    def step(t):
        def made():
            jax.debug.callback(lambda: taken.append(1))
            return jnp.ones(())

        return jax.lax.cond(numerics.any_under_vmap(t % 4 == 0), made, lambda: jnp.zeros(()))

    wanted = any(t % 4 == 0 for t in when)
    once = jax.vmap(step)
    for clocks, mapped in ((jnp.array(when), once), (jnp.array([when, when]), jax.vmap(once))):
        taken.clear()
        got = jax.block_until_ready(jax.jit(mapped)(clocks))
        np.testing.assert_array_equal(jnp.broadcast_to(got, clocks.shape), float(wanted))
        jax.effects_barrier()
        assert len(taken) == wanted
    assert [float(step(jnp.array(t))) for t in when] == [float(t % 4 == 0) for t in when]


# float64 inside of float32 programs


def _digits(x):
    """What is left of 1 + x - 1, by a loop and a product of matrices: 0 in float32 for x =
    1e-12."""
    total = jax.lax.fori_loop(0, 3, lambda _, total: total + x, jnp.ones((), x.dtype))
    ones, root = jnp.ones((2, 2), x.dtype), jnp.linalg.cholesky(total * jnp.eye(2, dtype=x.dtype))
    return (root[0, 0] ** 2 - 1) * (ones @ ones)[0, 0]


def _call(x):
    return numerics.in_double(_digits)(jnp.float32, jax.lax.stop_gradient(x))


def _scanned(x):
    step = lambda c, _: (_call(jax.checkpoint(jnp.copy)(x)), None)
    return jax.lax.scan(step, x, length=2)[0]


CALLS = {
    "plain": _call,
    "jit": jax.jit(_call),
    "vmap": lambda x: jax.vmap(_call)(jnp.stack([x, x]))[1],
    "vmap of jit": lambda x: jax.vmap(jax.jit(_call))(jnp.stack([x, x]))[1],
    "jit of vmaps": lambda x: jax.jit(jax.vmap(jax.vmap(_call)))(jnp.stack([x, x])[None])[0, 1],
    "vmap of scan": lambda x: jax.vmap(_scanned)(x[None])[0],
    "cond": lambda x: jax.lax.cond(x > 0, jax.jit(_call), jnp.zeros_like, x),
    "grad": lambda x: jax.jit(jax.grad(lambda y: y * _call(x)))(jnp.ones((), jnp.float32)),
}


@pytest.mark.parametrize("name", CALLS)
def test_double_keeps_digits_inside_of_every_transformation(name):
    value = CALLS[name](jnp.asarray(1e-12, jnp.float32))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, 2 * 3e-12, rtol=1e-3)
    assert float(jax.jit(_digits)(jnp.asarray(1e-12, jnp.float32))) == 0


def test_a_symmetric_map_has_its_derivatives_both_ways():
    """In a loop, which has none backwards."""
    matrix = jnp.array([[2.0, -1.0, 0.5], [-1.0, 3.0, 0.0], [0.5, 0.0, 1.0]])
    row = lambda carry, u: (carry[0] + 1, carry[1].at[carry[0]].set(jnp.dot(matrix[carry[0]], u)))
    product = lambda u: jax.lax.while_loop(
        lambda carry: carry[0] < 3, lambda carry: row(carry, u), (0, jnp.zeros(3))
    )[1]
    for derivative in (jax.jacrev, jax.jacfwd):
        np.testing.assert_allclose(derivative(symmetric(product))(jnp.ones(3)), matrix, rtol=1e-6)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("system", ["cholesky", "cg", "centred", "eigen", "exact"])
def test_preconditioners_are_inverses_of_what_they_say(system, constant):
    """Of the whole matrix, of its diagonal, of that with S = diag(s) - s s' / sum(s), of max(ridge)
    I + sum(s) X'X / n; and an exact solution, of columns that float32 does not tell apart."""
    rng = np.random.default_rng(6)
    x, s = rng.normal(size=(9, 3)).astype(np.float32), rng.uniform(0, 0.2, 9).astype(np.float32)
    ridge, r = rng.uniform(0.01, 0.1, (2, 3 + constant)).astype(np.float32)
    solve = lambda s, ridge, r: numerics.preconditioner(x, system, constant)(s, ridge)(r)
    if system == "exact":
        x[:, 1], ridge = x[:, 0] + 1e-4 * x[:, 1], 1e-8 * ridge
        solve = functools.partial(numerics.exact_solution, x)
    wide = np.c_[x, np.ones(9)] if constant else x.astype(np.float64)
    centred, even = np.diag(s) - np.outer(s, s) / s.sum(), np.eye(9) * s.sum() / 9
    S = {"centred": centred, "eigen": even}.get(system, np.diag(s))
    added = np.full_like(ridge, ridge.max()) if system == "eigen" else ridge
    matrix = np.diag(added) + wide.T @ S @ wide
    matrix = matrix if system in ("cholesky", "eigen", "exact") else np.diag(np.diag(matrix))
    np.testing.assert_allclose(jax.jit(solve)(s, ridge, r), np.linalg.solve(matrix, r), rtol=1e-3)


# drawing rows

sample_proportional = jax.jit(numerics.sample_proportional)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("n", [5, 1, 127, 128, 129, 300])
def test_rows_are_chosen_in_proportion(n):
    rng = np.random.default_rng(n)
    share = np.float32(rng.uniform(0, 1, n) * (rng.uniform(size=n) < 0.6))
    share[rng.integers(n)] = 0.5
    # an even grid: counts are right to one or two
    u = np.float32((np.arange(50_000) + 0.5) / 50_000)
    rows = np.asarray(sample_proportional(share, u))
    assert rows.dtype == np.int32 and np.all(share[rows] > 0) and np.all(np.diff(rows) >= 0)
    counts = np.bincount(rows, minlength=n)
    np.testing.assert_allclose(
        counts, 50_000 * share / share.sum(dtype=np.float64), atol=2.5 + 50_000 * n * 6e-8
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_row_of_share_0_at_the_ends_of_the_range(dtype, x64):
    top = np.nextafter(np.asarray(1, dtype), np.asarray(0, dtype))
    u = np.array([0, np.finfo(dtype).tiny, 0.5, 1 - 2**-20, top], dtype)
    rng = np.random.default_rng(1)
    for size in (1.0, 1e-30, 1e30):
        for places in ([0], [299], [128], [127, 128], [5, 270], list(range(100, 200))):
            share = np.zeros(300, dtype)
            share[places] = size * rng.uniform(0.1, 1, len(places))
            rows = np.asarray(sample_proportional(share, u))
            assert np.all(share[rows] > 0), (size, places)
            assert rows[0] == places[0] and rows[-1] == places[-1]


def test_chosen_against_the_cumulative_sum(x64):
    rng = np.random.default_rng(2)
    share, u = rng.uniform(size=300) * (rng.uniform(size=300) < 0.5), rng.uniform(size=4000)
    want = np.searchsorted(np.cumsum(share) / share.sum(), u, side="right")
    # no u lies within 1e-13 of an end
    np.testing.assert_array_equal(sample_proportional(share, u), want)
