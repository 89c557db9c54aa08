"""Matrices X' diag(s) X that are updated, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm.numerics import gram_updates
from jaxsvm.numerics.gram_updates import no_gram, update_gram

N, D = 2_400, 5  # n / 8 rows are two blocks
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(N, D)) * (RANDOM.random((N, D)) < 0.6)
WIDE = np.column_stack([X, np.ones(N)])


def step_of(x, constant):
    return jax.jit(lambda gram, s, is_used: update_gram(gram, x, s, constant, is_used, False))


DENSE = {constant: step_of(jnp.asarray(X, "float32"), constant) for constant in (False, True)}


def exact(s, constant):
    rows = WIDE if constant else X
    return rows.T * np.asarray(s, float) @ rows


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_few_and_many_changes_give_the_matrix(kind, constant, x64):
    x = (
        jaxsvm.dataset(scipy.sparse.csr_matrix(X), np.ones(N), task="regression").x
        if kind == "sparse"
        else jnp.asarray(X)
    )
    step, gram, s = step_of(x, constant), no_gram(x, constant), np.zeros(N)
    # from one block to several, the limit of n / 8 changes, and beyond it
    assert gram_updates.BLOCK < N // 8
    for changes in (N, 1, gram_updates.BLOCK // 2, N // 8, N // 8 + 1, 0, 3):
        rows = RANDOM.choice(N, changes, replace=False)
        s[rows] = np.where(RANDOM.random(changes) < 0.5, 0.0, RANDOM.random(changes))
        before = np.asarray(gram.weight)
        gram, multiplied = step(gram, jnp.asarray(s), True)
        np.testing.assert_allclose(gram.matrix, exact(s, constant), atol=1e-10)
        np.testing.assert_array_equal(gram.weight, s)
        changed = int((before != s).sum())
        assert int(multiplied) == (N if changed > N // 8 else changed)


def test_an_unused_matrix_stays():
    gram, _ = DENSE[False](no_gram(jnp.asarray(X, "float32"), False), jnp.ones(N), True)
    after, multiplied = DENSE[False](gram, jnp.zeros(N), False)
    assert int(multiplied) == 0
    jax.tree.map(np.testing.assert_array_equal, after, gram)


def test_mapped_updates_are_those_of_each(x64):
    x = jnp.asarray(X)
    weight = jnp.asarray(RANDOM.random((3, N)) < 0.5, float)
    few = weight.at[:, :290].set(1 - weight[:, :290])
    update = jax.jit(
        jax.vmap(lambda gram, s, is_used: update_gram(gram, x, s, True, is_used, False)[0])
    )
    start = jax.tree.map(lambda a: jnp.stack([a] * 3), no_gram(x, True))
    gram = update(start, weight, jnp.ones(3, bool))
    gram = update(gram, few, jnp.array([True, False, True]))
    for i, s in enumerate([few[0], weight[1], few[2]]):
        np.testing.assert_allclose(gram.matrix[i], exact(s, True), atol=1e-10)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_rounding_errors_stay_small(seed):
    """Fifty updates in float32: the error stays within that of as many sums."""
    random = np.random.default_rng(seed)
    gram, s = no_gram(jnp.asarray(X, "float32"), True), np.full(N, 0.5, "float32")
    for _ in range(50):
        rows = random.choice(N, random.integers(1, N // 10), replace=False)
        s[rows] = np.where(s[rows] > 0, 0, 0.5)
        gram, _ = DENSE[True](gram, jnp.asarray(s), True)
    size = np.sqrt(np.outer(*[(WIDE**2).sum(0)] * 2))  # of the sums
    assert (np.abs(gram.matrix - exact(s, True)) / size).max() <= 50 * np.finfo("float32").eps


def test_large_rows_that_come_and_go_leave_no_trace():
    """Their rounding errors would be larger than the matrix of the others."""
    x = jnp.asarray(np.concatenate([1e4 * X[:3], X[3:]]), "float32")
    step, gram, s = step_of(x, False), no_gram(x, False), np.ones(N, "float32")
    gram, _ = step(gram, jnp.asarray(s), True)
    for rows in (slice(3), slice(3, 9)):
        s[rows] = 0
        gram, multiplied = step(gram, jnp.asarray(s), True)
        wide = np.asarray(x, float)
        want = wide.T * s @ wide
        assert np.abs(gram.matrix - want).max() <= 1e-4 * np.trace(want)
        assert int(multiplied) == (N if rows == slice(3) else 6)


def test_a_doubtful_matrix_is_summed_once():
    x = jnp.asarray(X, "float32")
    update = jax.jit(lambda gram, s: update_gram(gram, x, s, False, True, True))
    gram, _ = DENSE[False](no_gram(x, False), jnp.ones(N), True)
    gram, _ = DENSE[False](gram, jnp.ones(N).at[:5].set(0), True)
    assert float(gram.passed) > 0
    gram, multiplied = update(gram, gram.weight)
    assert int(multiplied) == N and float(gram.passed) == 0
    assert int(update(gram, gram.weight)[1]) == 0


def test_a_matrix_that_is_not_finite_is_summed():
    gram, _ = DENSE[False](no_gram(jnp.asarray(X, "float32"), False), jnp.ones(N), True)
    gram = gram._replace(matrix=gram.matrix.at[0, 0].set(jnp.nan))
    after, _ = DENSE[False](gram, jnp.ones(N).at[0].set(0), True)
    assert np.isfinite(after.matrix).all()
