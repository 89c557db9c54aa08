"""The cache of kernel rows, with fewer slots than rows, against sums of the whole matrix in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import kernels
from jaxsvm.engines import kernel_cache

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
