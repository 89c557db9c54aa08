"""Samplers: draws are a function of (state, t), and the frequencies are what they should be.

Every data set has N rows, those that a test does not want have weight 0: compiling a draw takes
longer than running it.
"""

import functools
import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawing import draw, init, start
from drawing import rows as weighted
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import jaxsvm
from jaxsvm import samplers
from jaxsvm.samplers.with_replacement import cumulative_units

N = 18
rows = functools.partial(weighted, n=N)
LEAST = 1e-4  # the p-value below which a fixed seed counts as evidence against the distribution


def many(sampler, state, steps, count=1000):
    """The draws of the first `steps` steps, `count` at a time."""
    return np.concatenate([draw(sampler, state, t, count) for t in range(0, steps, count)])


REPLACED, SHUFFLED = samplers.uniform(3), samplers.epochs(3)
SUBSETS = samplers.uniform(3, replace=False)
ORDERED, WHOLE, PASS = samplers.epochs(3, shuffle=False), samplers.whole(), samplers.epochs(N)
TOLD = samplers.shrinking(3), samplers.active_rows(2)  # of feedback
every = pytest.mark.parametrize(
    "sampler", [REPLACED, SUBSETS, SHUFFLED, ORDERED, WHOLE, *TOLD], ids=repr
)
WEIGHT = np.array([1, 0, 2, 0.5, 1, 3, 0, 1])


@pytest.mark.long(but=1)
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


@pytest.mark.long(but=1)
@pytest.mark.parametrize("sampler", [SHUFFLED, REPLACED], ids=repr)
def test_a_vmap_over_keys_draws_what_each_key_draws(sampler):
    data, keys = rows(WEIGHT), jax.random.split(jax.random.key(3), 3)
    together = jax.jit(jax.vmap(lambda key: sampler.draw(sampler.init(key, data), 4, 5)))(keys)
    for key, got in zip(keys, together, strict=True):
        np.testing.assert_array_equal(got, draw(sampler, init(sampler, key, data), 4, 5))


@pytest.mark.long(but=5)
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
    subsets = {subset: i for i, subset in enumerate(itertools.combinations(range(6), 3))}
    found = [subsets[tuple(row)] for row in np.sort(got, axis=1).tolist()]
    assert chi_square(found, np.ones(20)) > LEAST


def test_a_subset_of_more_rows_than_have_weight_is_padded():
    got = many(SUBSETS, start(SUBSETS, rows([0, 1, 0, 1])), 20, 5)
    assert all(sorted(row) == [-1, 1, 3] for row in got.tolist())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("sampler", [SHUFFLED, ORDERED], ids=repr)
def test_each_pass_visits_each_positive_row_once_and_its_last_batch_is_padded(sampler, n):
    weight = np.insert(np.arange(1.0, n + 1), [0, n], 0)  # rows 1 .. n, between two of weight 0
    length = -(-n // 3)
    got = many(sampler, start(sampler, rows(weight)), 20 * length, 5).reshape(20, 3 * length)
    np.testing.assert_array_equal(got[:, n:], -1)
    in_order = np.sort(got[:, :n], axis=1)
    np.testing.assert_array_equal(in_order, np.tile(np.arange(1, n + 1), (20, 1)))
    if sampler is ORDERED:
        np.testing.assert_array_equal(got[:, :n], np.sort(got[:, :n], axis=1))
    elif n > 1:
        assert len(np.unique(got, axis=0)) > 1  # passes differ


@pytest.mark.parametrize("n", [255, 256, 257, 300])
def test_a_pass_over_many_rows_is_a_permutation(n):
    sampler = samplers.epochs(300)
    got = draw(sampler, start(sampler, rows(np.ones(n), n=300)), 0, 3)[:, :n]
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
    found = [orders[tuple(row)] for row in passes(n).tolist()]
    assert chi_square(found, np.ones(len(orders))) > LEAST


def test_successive_passes_are_independent():
    got = passes(5)
    assert chi_square(got[:-1, 0] * 5 + got[1:, 0], np.ones(25)) > LEAST


def test_whole_draws_all_rows_in_order():
    drawn = draw(WHOLE, start(WHOLE, rows(WEIGHT)), 7, 5)
    np.testing.assert_array_equal(drawn, np.tile(np.arange(N), (5, 1)))
    assert WHOLE.full_batch and WHOLE.rows(4) == 4


@pytest.mark.long
@pytest.mark.parametrize("n", [9, 26, 1025])
def test_the_order_of_a_pass_does_not_depend_on_the_size_of_its_steps(n):
    """Large steps find the way back into the range by a table, small ones by walking."""
    data, orders = weighted(np.r_[0, np.ones(n), 0, 0]), []
    for b in (2, n // 2, n):
        sampler = samplers.epochs(b)
        drawn = draw(sampler, start(sampler, data, n), 0, 3 * -(-n // b))
        orders.append(drawn[drawn >= 0].reshape(3, n))
        in_order = np.sort(orders[-1], axis=1)
        np.testing.assert_array_equal(in_order, np.tile(np.arange(1, n + 1), (3, 1)))
        np.testing.assert_array_equal(orders[-1], orders[0])


SEVERAL = """
import jax, jaxsvm
from jaxsvm import samplers
data = jaxsvm.dataset([[float(i)] for i in range(3000)], [1, -1] * 1500)
for sampler in (samplers.epochs(1024), samplers.epochs(3000), samplers.shrinking(512)):
    state = sampler.init(jax.random.key(0), data)
    index = jax.jit(lambda state: sampler.draw(state, 0, 3))(state)
    print(index.size)
"""


@pytest.mark.long
def test_large_draws_compile_with_all_optimisations():
    """LLVM of JAX 0.12 did not come to an end with all rounds of the permutation in one loop."""
    ours = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    how = {"env": environment, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", SEVERAL], **how)
    assert done.returncode == 0 and len(done.stdout.split()) == 3, done.stderr[-2000:]


def test_weights_that_are_not_integers_are_shares_of_2_to_the_31():
    """Their sum is at most 2^31, though a positive weight is one unit at least."""
    weight = np.full(1024, 0.5, np.float32)
    # 2^31 - n are shared, in whole units
    assert cumulative_units(jnp.asarray(weight))[-1] == 2**31 - 1024
    weight[1:] = 1e-12
    assert np.diff(cumulative_units(jnp.asarray(weight))).tolist() == [1] * 1023
    assert int(cumulative_units(jnp.asarray(weight))[-1]) <= 2**31


BATCHES = (samplers.uniform, samplers.epochs, samplers.shrinking, samplers.active_rows)
STRATA, EPOCHS = samplers.strata, samplers.epochs(2)
ALONE = jaxsvm.dataset(np.eye(3), [0, 1, 2], query=[0, 1, 2], task="regression")
RANKED = jaxsvm.dataset(np.eye(3), [0, 1, 2], task="ranking")
on_pairs = lambda solver, data=RANKED: (
    lambda: jaxsvm.fit(solver, data, jax.random.key(0), sampler=samplers.pairs())
)
REFUSED = [
    *(
        (functools.partial(make, size), "batch_size must be a whole number of at least 1, got")
        for make in BATCHES
        for size in (0, -1, 1.5, 2.0, "3", True)
    ),
    (lambda: samplers.pairs(0), "batch_size"),
    *((lambda k=k: samplers.shrinking(4, rounds=k), "rounds must be") for k in (-1, 1.5, True)),
    (lambda: samplers.active_rows(patience=0), "patience"),
    (lambda: samplers.active_rows(effort=0), "effort"),
    (lambda: start(samplers.uniform(N + 1, replace=False), rows(WEIGHT)), "lower batch_size"),
    (lambda: STRATA(WHOLE, blocks=2), r"inner must draw .* one block, and whole\(\) draws all"),
    (lambda: STRATA(STRATA(EPOCHS, blocks=2), blocks=2), "has blocks of its own"),
    (lambda: STRATA(EPOCHS, blocks=0), "blocks must be"),
    (lambda: STRATA(3, blocks=2), "sampler"),
    (on_pairs(jaxsvm.sdca(1.0)), "has a variable for each row: take one that reads drawn rows"),
    (on_pairs(jaxsvm.newton(1.0)), "a solver that reads all rows does not see"),
    (on_pairs(jaxsvm.one_vs_rest(jaxsvm.pegasos(0.1), classes=3)), "takes class numbers"),
    (on_pairs(jaxsvm.pegasos(0.1), ALONE), "no two rows of one query have different grades"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_samplers_that_are_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
