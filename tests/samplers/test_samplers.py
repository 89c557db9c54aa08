"""Samplers: draws are a function of (state, t), and the frequencies are what they should be.

Every data set has N rows, those that a test does not want have weight 0: compiling a draw takes
longer than running it.
"""

import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import jaxsvm
from jaxsvm import samplers
from jaxsvm.samplers.with_replacement import cumulative_units

N = 18
LEAST = 1e-4  # the p-value below which a fixed seed counts as evidence against the distribution


def rows(weight, n=N):
    """n rows, the first with these weights; the samplers read nothing else."""
    weight = np.pad(np.asarray(weight, np.float32), (0, n - len(weight)))
    index = jnp.arange(n, dtype=jnp.int32)
    return jaxsvm.Batch(jnp.zeros((n, 1)), jnp.ones(n), index, jnp.asarray(weight))


init = jax.jit(lambda sampler, key, data: sampler.init(key, data))
_draw = jax.jit(lambda sampler, state, t, count: sampler.draw(state, t, count), static_argnums=3)


def start(sampler, data, seed=0):
    return init(sampler, jax.random.key(seed), data)


def draw(sampler, state, t, count):
    return np.asarray(_draw(sampler, state, jnp.int32(t), count))


def many(sampler, state, steps, count=1000):
    """The draws of the first `steps` steps, `count` at a time."""
    return np.concatenate([draw(sampler, state, t, count) for t in range(0, steps, count)])


REPLACED, SUBSETS, SHUFFLED = (
    samplers.uniform(3),
    samplers.uniform(3, replace=False),
    samplers.epochs(3),
)
ORDERED, WHOLE, PASS = samplers.epochs(3, shuffle=False), samplers.whole(), samplers.epochs(N)
TOLD = samplers.shrinking(3), samplers.active_rows(2)  # of feedback
every = pytest.mark.parametrize(
    "sampler", [REPLACED, SUBSETS, SHUFFLED, ORDERED, WHOLE, *TOLD], ids=repr
)
WEIGHT = np.array([1, 0, 2, 0.5, 1, 3, 0, 1])


@every
def test_five_draws_are_those_of_five_single_steps_at_any_step(sampler):
    state = start(sampler, rows(WEIGHT))

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(st.integers(0, 1_000_000_000))
    def check(t):
        together = draw(sampler, state, t, 5)
        assert together.dtype == np.int32 and together.shape == (5, sampler.rows(N))
        np.testing.assert_array_equal(
            together, np.concatenate([draw(sampler, state, t + i, 1) for i in range(5)])
        )

    check()


@pytest.mark.parametrize("sampler", [REPLACED, SHUFFLED], ids=repr)
def test_a_vmap_over_keys_draws_what_each_key_draws(sampler):
    data, keys = rows(WEIGHT), jax.random.split(jax.random.key(3), 3)
    together = jax.jit(jax.vmap(lambda key: sampler.draw(sampler.init(key, data), 4, 5)))(keys)
    for key, got in zip(keys, together, strict=True):
        np.testing.assert_array_equal(got, draw(sampler, init(sampler, key, data), 4, 5))


@every
def test_draws_are_the_same_with_float64_switched_on(sampler):
    data = rows(WEIGHT)
    want = draw(sampler, start(sampler, data), 0, 5)
    with jax.enable_x64(True):
        wide = data._replace(weight=data.weight.astype(jnp.float64))
        got = draw(sampler, start(sampler, wide), 0, 5)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("sampler", [REPLACED, SUBSETS, SHUFFLED, ORDERED], ids=repr)
def test_rows_of_weight_zero_are_never_drawn(sampler):
    got = many(sampler, start(sampler, rows(WEIGHT)), 400, 5)
    assert set(np.unique(got)) - {-1} == set(np.flatnonzero(WEIGHT))


@pytest.mark.parametrize("sampler", [REPLACED, SUBSETS, SHUFFLED, *TOLD], ids=repr)
def test_another_key_gives_other_rows(sampler):
    one, two = (draw(sampler, start(sampler, rows(WEIGHT), seed), 0, 5) for seed in (0, 1))
    assert np.any(one != two)


@every
def test_the_weight_handed_on_is_one_or_the_share_of_the_mean_positive_weight(sampler):
    got = np.asarray(sampler.weight(rows(WEIGHT)))
    share = np.pad(WEIGHT / WEIGHT[WEIGHT > 0].mean(), (0, N - WEIGHT.size))
    # two roundings
    np.testing.assert_allclose(got, np.ones(N) if sampler is REPLACED else share, rtol=1e-6)


def chi_square(got, shares):
    counts = np.bincount(np.ravel(got), minlength=len(shares)).astype(float)
    kept = np.asarray(shares) > 0
    assert counts[~kept].sum() == 0
    shares = np.asarray(shares, np.float64)[kept]
    return stats.chisquare(counts[kept], shares / shares.sum() * counts.sum()).pvalue


@pytest.mark.parametrize(
    "weight",
    [
        np.ones(N),
        np.ones(7),
        [1, 2, 3, 0, 4, 5, 1],
        [0.3, 0.1, 0.0, 2.7, 1.4, 0.55, 1e-9],
        [0.5] * 7,
        [1e6, 2e6, 3e7, 1e7, 5e6, 0, 1],
        [1e-12, 3e-12, 0, 2e-12, 1e-12, 1e-12, 5e-12],
    ],
)
def test_uniform_draws_rows_in_proportion_to_their_weight(weight):
    weight = np.pad(np.asarray(weight, np.float64), (0, N - len(weight)))
    got = many(REPLACED, start(REPLACED, rows(weight)), 10_000)
    common = weight > 1e-6 * np.max(weight)  # the rest is too rare for a chi-square test
    assert np.mean(~common[got]) < 1e-3
    assert chi_square(got[common[got]], np.where(common, weight, 0)) > LEAST


def test_uniform_draws_of_one_step_and_of_neighbouring_steps_are_independent():
    got = many(REPLACED, start(REPLACED, rows(np.ones(5))), 20_000)
    for one, two in (
        (got[:, 0], got[:, 1]),
        (got[:, 1], got[:, 2]),
        (got[:-1, 2], got[1:, 0]),
        (got[:-1, 0], got[1:, 0]),
    ):
        assert chi_square(one * 5 + two, np.ones(25)) > LEAST


def test_weight_k_draws_the_same_rows_as_k_adjacent_copies():
    copies = np.array([3, 1, 0, 2, 1, 4, 0, 7])
    original = np.repeat(np.arange(8), copies)
    assert original.size == N
    weighted = many(REPLACED, start(REPLACED, rows(copies)), 1000)
    copied = many(REPLACED, start(REPLACED, rows(np.ones(N))), 1000)
    np.testing.assert_array_equal(weighted, original[copied])


def test_subsets_hold_distinct_rows_and_every_subset_comes_equally_often():
    got = many(SUBSETS, start(SUBSETS, rows(np.ones(6))), 10_000)
    assert all(len(set(row)) == 3 for row in got.tolist())
    assert chi_square(got, np.ones(6)) > LEAST
    pairs = {pair: i for i, pair in enumerate(itertools.combinations(range(6), 2))}
    found = [
        pairs[pair]
        for row in np.sort(got, axis=1).tolist()
        for pair in itertools.combinations(row, 2)
    ]
    # pairs that share a subset depend on each other: compare each with its own standard deviation
    share = np.bincount(found) / len(got)
    assert np.max(np.abs(share - 0.2)) < 4.5 * np.sqrt(0.2 * 0.8 / len(got))
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(6), 3))}
    assert (
        chi_square([subsets[tuple(row)] for row in np.sort(got, axis=1).tolist()], np.ones(20))
        > LEAST
    )


def test_a_subset_of_more_rows_than_have_weight_is_padded():
    got = many(SUBSETS, start(SUBSETS, rows([0, 1, 0, 1])), 20, 5)
    assert all(sorted(row) == [-1, 1, 3] for row in got.tolist())


def test_a_subset_of_more_rows_than_there_are_is_refused():
    with pytest.raises(ValueError, match="lower batch_size"):
        samplers.uniform(N + 1, replace=False).init(jax.random.key(0), rows(WEIGHT))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("sampler", [SHUFFLED, ORDERED], ids=repr)
def test_each_pass_visits_each_positive_row_once_and_its_last_batch_is_padded(sampler, n):
    weight = np.insert(np.arange(1.0, n + 1), [0, n], 0)  # rows 1 .. n, between two of weight 0
    length = -(-n // 3)
    got = many(sampler, start(sampler, rows(weight)), 20 * length, 5).reshape(20, 3 * length)
    np.testing.assert_array_equal(got[:, n:], -1)
    np.testing.assert_array_equal(
        np.sort(got[:, :n], axis=1), np.tile(np.arange(1, n + 1), (20, 1))
    )
    if sampler is ORDERED:
        np.testing.assert_array_equal(got[:, :n], np.sort(got[:, :n], axis=1))
    elif n > 1:
        assert len(np.unique(got, axis=0)) > 1  # passes differ


@pytest.mark.parametrize("n", [255, 256, 257, 300])
def test_a_pass_over_many_rows_is_a_permutation(n):
    sampler = samplers.epochs(300)
    got = draw(sampler, start(sampler, rows(np.ones(n), 300)), 0, 3)[:, :n]
    np.testing.assert_array_equal(np.sort(got, axis=1), np.tile(np.arange(n), (3, 1)))
    # neighbours in storage do not stay neighbours: 2 of n pairs are expected to
    assert np.mean(np.abs(np.diff(got, axis=1)) == 1) < 0.05


PASSES = 6000


def passes(n):
    """(PASSES, n) orders: a step of PASS is a whole pass."""
    got = many(PASS, start(PASS, rows(np.ones(n))), PASSES)
    np.testing.assert_array_equal(got[:, n:], -1)
    return got[:, :n]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 16, 17])
def test_every_row_stands_at_every_place_and_before_every_other_equally_often(n):
    got = passes(n)
    table = np.stack([np.bincount(got[:, place], minlength=n) for place in range(n)])
    want = PASSES / n
    assert stats.chi2.sf(np.sum((table - want) ** 2) / want, (n - 1) ** 2) > LEAST
    place = np.argsort(got, axis=1)
    before = [np.mean(place[:, i] < place[:, j]) for i, j in itertools.combinations(range(n), 2)]
    # 4.5 standard deviations, for up to 136 pairs
    assert np.max(np.abs(np.array(before) - 0.5)) < 4.5 * 0.5 / np.sqrt(PASSES)
    assert chi_square(got[:, 0] * n + got[:, 1], 1 - np.eye(n).ravel()) > LEAST


@pytest.mark.parametrize("n", [3, 4, 5])
def test_every_order_of_a_few_rows_comes_equally_often(n):
    orders = {order: i for i, order in enumerate(itertools.permutations(range(n)))}
    assert (
        chi_square([orders[tuple(row)] for row in passes(n).tolist()], np.ones(len(orders))) > LEAST
    )


def test_successive_passes_are_independent():
    got = passes(5)
    assert chi_square(got[:-1, 0] * 5 + got[1:, 0], np.ones(25)) > LEAST


def test_whole_draws_all_rows_in_order():
    np.testing.assert_array_equal(
        draw(WHOLE, start(WHOLE, rows(WEIGHT)), 7, 5), np.tile(np.arange(N), (5, 1))
    )
    assert WHOLE.full_batch and WHOLE.rows(4) == 4


@pytest.mark.long
@pytest.mark.parametrize("n", [9, 26, 1025])
def test_the_order_of_a_pass_does_not_depend_on_the_size_of_its_steps(n):
    """Large steps find the way back into the range by a table, small ones by walking."""
    data = jaxsvm.dataset(
        np.zeros((n + 3, 1)), np.arange(n + 3), weight=np.r_[0, np.ones(n), 0, 0], task="regression"
    )
    orders = []
    for b in (2, n // 2, n):
        sampler = samplers.epochs(b)
        length = -(-n // b)
        draws = np.asarray(
            jax.jit(sampler.draw, static_argnums=2)(
                sampler.init(jax.random.key(n), data), 0, 3 * length
            )
        )
        orders.append(draws.reshape(3, -1))
        assert all(sorted(own[own >= 0]) == list(range(1, n + 1)) for own in orders[-1])
    for order in orders:
        for own, first in zip(order, orders[0], strict=True):
            np.testing.assert_array_equal(own[own >= 0], first[first >= 0])


@pytest.mark.parametrize("make", [samplers.uniform, samplers.epochs, samplers.shrinking])
@pytest.mark.parametrize("batch_size", [0, -1, -3, 1.5, 2.0, "3", "4", True])
def test_a_batch_size_that_is_no_whole_number_above_zero_is_refused(make, batch_size):
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got"):
        make(batch_size)


SEVERAL = """
import jax, jaxsvm
from jaxsvm import samplers
from jaxsvm.samplers.with_replacement import cumulative_units
data = jaxsvm.dataset([[float(i)] for i in range(3000)], [1, -1] * 1500)
for sampler in (samplers.epochs(1024), samplers.epochs(3000), samplers.shrinking(512)):
    state = sampler.init(jax.random.key(0), data)
    index = jax.jit(lambda state: sampler.draw(state, 0, 3))(state)
    print(index.size)
"""


@pytest.mark.long
@pytest.mark.parametrize("program", [SEVERAL], ids=["samplers"])
def test_large_draws_compile_with_all_optimisations(program):
    """LLVM of JAX 0.12 did not come to an end with all rounds of the permutation in one loop."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and len(done.stdout.split()) == 3, done.stderr[-2000:]


def test_weights_that_are_not_integers_are_shares_of_2_to_the_31():
    """Their sum is at most 2^31, though a positive weight is one unit at least."""
    weight = np.full(1024, 0.5, np.float32)
    # 2^31 - n are shared, in whole units
    assert cumulative_units(jnp.asarray(weight))[-1] == 2**31 - 1024
    weight[1:] = 1e-12
    assert np.diff(cumulative_units(jnp.asarray(weight))).tolist() == [1] * 1023
    assert int(cumulative_units(jnp.asarray(weight))[-1]) <= 2**31
