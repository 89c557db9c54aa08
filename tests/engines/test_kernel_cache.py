"""The cache of kernel rows with fewer slots than rows, against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsvm import kernels
from jaxsvm.engines import kernel_cache

N, Q, SIZE = 40, 3, 4
TABLE = np.arange(N * N, dtype=np.float32).reshape(N, N)


@jax.jit
def ensure(rows, index, wanted):
    kept = kernel_cache.is_cached(rows, index, Q, SIZE)
    return kernel_cache.ensure_rows(
        rows, kernels.precomputed(), jnp.asarray(TABLE), index, wanted, SIZE
    ), kept


def test_slots_are_reused_and_no_row_is_taken_for_another():
    """Every slot holds the row that it says; wanted rows are there, and are computed only where
    they were not."""
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
        # rows just computed are not the next to go
        again, _ = ensure(rows, index, wanted & ~np.asarray(kept))
        assert int(again.n_computed) == int(rows.n_computed)
    assert reused > 40 and kept_before > 40


def test_slots_for_a_number_of_bytes():
    """Whole products of 64 rows that hold as many rows as fit, and one more product."""
    x = jnp.zeros((300, 2), jnp.float32)  # 1,200 bytes a row
    of = lambda rows, least=0: kernel_cache.num_slots(x, rows * 1200, least)
    assert [of(1), of(64), of(65), of(64.99), of(256), of(10**6)] == [128, 128, 192, 128, 320, 384]
    assert of(1, least=100) == 192 and of(0) == 64


def test_rows_of_either_sign_take_turns():
    by = jnp.asarray([1.0, 2.0, -1.0, 0.0, 3.0, -2.0, 5.0, -4.0, -5.0])
    group = jnp.asarray([0, 0, 0, 2, 0, 0, 1, 1, 1])
    order, *numbers = jax.jit(kernel_cache.alternate_signs)(group, by)
    assert list(map(int, numbers)) == [5, 3] and order.tolist() == [0, 5, 1, 2, 4, 6, 8, 7, 3]


def test_rows_that_were_overwritten_are_computed_again():
    """Slots for two chunks of three: each call overwrites rows of the one before."""
    n = 3 * kernel_cache.CHUNK
    points = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    gram = np.exp(-((points[:, None].astype(np.float64) - points[None]) ** 2).sum(-1))
    x = jnp.asarray(points)
    rows = kernel_cache.empty(x, kernel_cache.num_slots(x, 1))  # the least number
    assert len(rows.owner) < n
    subtract = jax.jit(
        lambda total, lost, rows, index, by: kernel_cache.subtract(
            (total, lost, rows), kernels.rbf(gamma=1.0), x, index, by
        )
    )
    total, lost, want = jnp.zeros(n), jnp.zeros(n), np.zeros(n)
    for call in range(6):
        rng = np.random.default_rng(call)
        index, by = rng.permutation(n)[:48].astype(np.int32), rng.normal(size=48).astype(np.float32)
        total, lost, rows = subtract(total, lost, rows, jnp.asarray(index), jnp.asarray(by))
        want -= by.astype(np.float64) @ gram[index]
        found = np.asarray(total, np.float64) + np.asarray(lost)
        np.testing.assert_allclose(found, want, atol=1e-4)
    assert int(rows.n_computed) > 2 * kernel_cache.CHUNK
