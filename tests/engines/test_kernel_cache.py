<<<<<<< HEAD
"""The cache of kernel rows, with fewer slots than rows, against sums of the whole matrix in float64."""
=======
"""The cache of kernel rows with fewer slots than rows, against a dictionary."""
>>>>>>> w39/mutants

import jax
import jax.numpy as jnp
import numpy as np
<<<<<<< HEAD
import pytest
=======
>>>>>>> w39/mutants

from jaxsvm import kernels
from jaxsvm.engines import kernel_cache

<<<<<<< HEAD
N = 3 * kernel_cache.CHUNK
X = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
GRAM = np.exp(-((X[:, None].astype(np.float64) - X[None]) ** 2).sum(-1))


def check_index(rows):
    """Each slot holds the row that it says it holds, and each row is where it says it is."""
    owner, slot = np.asarray(rows.owner), np.asarray(rows.slot)
    for row in np.flatnonzero(slot >= 0):
        assert owner[slot[row]] == row
        np.testing.assert_allclose(np.asarray(rows.value)[slot[row]], GRAM[row], atol=1e-6)


def test_rows_that_were_overwritten_are_computed_again():
    """Slots for two chunks of three: each call overwrites rows of the one before."""
    x = jnp.asarray(X)
    rows = kernel_cache.empty(x, kernel_cache.num_slots(x, 1))  # the least number
    assert len(rows.owner) < N
    subtract = jax.jit(
        lambda total, lost, rows, index, by: kernel_cache.subtract(total, lost, rows, kernels.rbf(gamma=1.0), x, index, by)
    )
    total, lost, want = jnp.zeros(N), jnp.zeros(N), np.zeros(N)
    for call in range(6):
        rng = np.random.default_rng(call)
        index, by = rng.permutation(N)[:48].astype(np.int32), rng.normal(size=48).astype(np.float32)
        total, lost, rows = subtract(total, lost, rows, jnp.asarray(index), jnp.asarray(by))
        want -= by.astype(np.float64) @ GRAM[index]
        np.testing.assert_allclose(np.asarray(total, np.float64) + np.asarray(lost), want, atol=1e-4)
        check_index(rows)
    assert int(rows.n_computed) > 2 * kernel_cache.CHUNK


@pytest.mark.parametrize("slots", [2, 3])
def test_a_cache_of_two_rows(slots):
    """`ensure_rows` with products of one row: a wanted row is there, another one may be gone."""
    x = jnp.asarray(X[:8])
    rows = kernel_cache.empty(x, slots)
    for row in [0, 1, 0, 2, 3, 2, 0, 7, 0]:
        ensure = kernel_cache.ensure_rows(rows, kernels.rbf(gamma=1.0), x, jnp.array([row], jnp.int32), jnp.array([True]), (1,))
        rows = ensure
        owner, slot = np.asarray(rows.owner), np.asarray(rows.slot)
        assert slot[row] >= 0 and (slot >= 0).sum() <= slots
        for other in np.flatnonzero(slot >= 0):
            assert owner[slot[other]] == other
            np.testing.assert_allclose(np.asarray(rows.value)[slot[other]], GRAM[other, :8], atol=1e-6)
=======
N, Q, SIZES = 40, 3, (4, 1)
TABLE = np.arange(N * N, dtype=np.float32).reshape(N, N)


@jax.jit
def ensure(rows, index, wanted):
    kept = kernel_cache.is_cached(rows, index, Q, SIZES)
    return kernel_cache.ensure_rows(rows, kernels.precomputed(), jnp.asarray(TABLE), index, wanted, SIZES), kept


def test_slots_are_reused_and_no_row_is_taken_for_another():
    """Every slot holds the row that it says; wanted rows are there, and are computed only where they were not."""
    slots, random = 22, np.random.default_rng(0)
    rows, reused, kept_before = kernel_cache.empty(jnp.asarray(TABLE), slots), 0, 0
    for _ in range(80):
        index = random.choice(14 if random.random() < 0.6 else N, Q, replace=False).astype(np.int32)
        wanted = random.random(Q) < 0.8
        before = int(rows.n_computed)
        rows, kept = ensure(rows, index, wanted)
        slot, owner, value = (np.asarray(a) for a in (rows.slot, rows.owner, rows.value))
        cached = np.flatnonzero(slot >= 0)
        assert set(index[wanted]) <= set(cached)
        np.testing.assert_array_equal(value[slot[cached]], TABLE[cached])
        np.testing.assert_array_equal(owner[slot[cached]], cached)
        assert int(rows.n_computed) - before == np.sum(wanted & ~np.asarray(kept))
        kept_before += np.sum(wanted & np.asarray(kept))
        reused += len(cached) < min(N, int(rows.n_computed))
        again, _ = ensure(rows, index, wanted & ~np.asarray(kept))  # rows just computed are not the next to go
        assert int(again.n_computed) == int(rows.n_computed)
    assert reused > 40 and kept_before > 40


def test_slots_for_a_number_of_bytes():
    """Whole products of 64 rows that hold as many rows as fit, and one more product."""
    x = jnp.zeros((300, 2), jnp.float32)  # 1,200 bytes a row
    of = lambda rows, least=0: kernel_cache.num_slots(x, rows * 1200, least)
    assert [of(1), of(64), of(65), of(64.99), of(256), of(10**6)] == [128, 128, 192, 128, 320, 384]
    assert of(1, least=100) == 192 and of(0) == 64


def test_rows_of_either_sign_take_turns():
    by = jnp.asarray([1.0, 2.0, -1.0, 0.0, 3.0, -2.0, 5.0])
    mask = jnp.asarray([True, True, True, False, True, True, False])
    order, number = jax.jit(kernel_cache.alternate_signs)(mask, by)
    assert int(number) == 5 and order[:5].tolist() == [0, 2, 1, 5, 4]
>>>>>>> w39/mutants
