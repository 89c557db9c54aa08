"""Random pivots in blocks against the column-by-column form, written in NumPy in float64."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.sparse
import scipy.stats

import jaxsvm
from jaxsvm import kernels
from jaxsvm.features import nystrom, pivots, random_pivots

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
RBF, LINEAR = kernels.rbf(gamma=0.5), kernels.linear()
X = RNG.normal(size=(300, 2)).astype(np.float32)


def numbered(x):
    """The rows with their numbers as a last column, which `kernel_of` does not see."""
    return np.c_[x, np.arange(len(x))].astype(x.dtype)


def unnumbered(inner):
    """A kernel of the columns but the last."""
    return kernels.custom(lambda x, z: inner(x[:, :-1], z[:, :-1]))


@functools.partial(jax.jit, static_argnames=("inner", "count", "block"))
def drawn(key, x, *, inner, count, block=128):
    """The numbers of the rows that are chosen, in order."""
    rows = random_pivots(block)(key, unnumbered(inner), x, count)
    return rows[:, -1].astype(jnp.int32)


def several(keys, x, **options):
    """The numbers of the rows of each key, (keys, count)."""
    return np.asarray(jax.vmap(lambda key: drawn(key, numbered(x), **options))(keys))


def gaussian(x, z=None, gamma=0.5):
    x = x.astype(float)
    return oracles.gaussian(x, x if z is None else z.astype(float), gamma)


def residual(gram, rows):
    """The diagonal of what these rows leave of a matrix."""
    among = gram[np.ix_(rows, rows)]
    return np.diag(gram) - np.einsum(
        "ip,pi->i", gram[:, rows], np.linalg.pinv(among, 1e-13, True) @ gram[rows]
    )


def by_columns(gram, count, random):
    """The randomly pivoted Cholesky factorisation, one column at a time: pivots and trace left."""
    d, factor, rows = np.diag(gram).copy(), np.zeros((len(gram), count)), []
    for i in range(count):
        p = random.choice(len(gram), p=d / d.sum())
        column = gram[:, p] - factor[:, :i] @ factor[p, :i]
        factor[:, i] = column / np.sqrt(column[p])
        d = np.maximum(d - factor[:, i] ** 2, 0)
        d[p] = 0
        rows.append(p)
    return rows, d.sum()


@pytest.mark.long
@pytest.mark.parametrize("block", [2, 1, 3])
def test_pivots_have_the_distribution_of_the_column_by_column_form(block):
    """Triples of five rows: within a block that rejects, and across blocks."""
    x = np.array([[0.0, 0.5], [0.3, 0.4], [1.5, 0.0], [1.6, 0.1], [-0.5, -1.0]], np.float32)
    gram, draws = gaussian(x) + x.astype(float) @ x.T, 20_000  # its diagonal is not constant
    keys = jax.random.split(KEY, draws)
    found = several(keys, x, inner=RBF + LINEAR, count=3, block=block)

    def chance(triple):
        left = [np.maximum(residual(gram, list(triple[:i])), 0) for i in range(3)]
        return np.prod([d[p] / d.sum() for d, p in zip(left, triple, strict=True)])

    triples = list(itertools.permutations(range(5), 3))
    want = draws * np.array([chance(triple) for triple in triples])
    np.testing.assert_allclose(want.sum(), draws)
    count = np.array([(found == triple).all(1).sum() for triple in triples])
    assert count.sum() == draws and want.min() > 10 and want.max() > 10 * want.min()
    assert np.sum((count - want) ** 2 / want) <= scipy.stats.chi2.ppf(0.999, len(want) - 1)


@pytest.mark.long
def test_the_trace_that_is_left_is_that_of_the_column_by_column_form():
    gram, count, seeds = gaussian(X, gamma=2.0), 40, 200
    keys, inner = jax.random.split(KEY, seeds), kernels.rbf(gamma=2.0)
    found = several(keys, X, inner=inner, count=count, block=16)
    left = [residual(gram, rows).sum() for rows in found]
    random = np.random.default_rng(1)
    want = [by_columns(gram, count, random)[1] for _ in range(seeds)]
    error = np.hypot(np.std(left), np.std(want)) / np.sqrt(seeds)
    assert abs(np.mean(left) - np.mean(want)) <= 4 * error < 0.04 * np.mean(want)
    chosen = [random.choice(300, count, replace=False) for _ in range(20)]
    assert np.mean(want) < 0.85 * np.mean([residual(gram, rows).sum() for rows in chosen])


@pytest.mark.long
def test_the_map_leaves_what_the_projection_on_its_rows_leaves():
    phi = nystrom(KEY, kernels.rbf(gamma=0.5), X, landmarks=30, choose=random_pivots(8))
    rows = np.asarray(phi.landmarks)
    hits = (rows[:, None] == X[None]).all(-1)
    assert (hits.sum(1) == 1).all() and (hits.sum(0) <= 1).all()
    left = 300 - np.sum(np.asarray(phi(X), float) ** 2)
    np.testing.assert_allclose(left, residual(gaussian(X), hits.argmax(1)).sum(), rtol=1e-2)


@pytest.mark.long
def test_copies_are_no_pivots_while_other_rows_are_left():
    """Fifty rows, four times each: fifty pivots, and then rows that are not chosen yet."""
    x = np.tile(2 * X[:50], (4, 1))
    inner = kernels.rbf(gamma=8.0)
    for found in several(jax.random.split(KEY, 5), x, inner=inner, count=200, block=8):
        assert len(np.unique(found)) == 200 and len(np.unique(found[:50] % 50)) == 50


def test_a_row_proposed_twice_is_accepted_once():
    """Even where rounding leaves more of it than the threshold."""
    among = jnp.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.1], [0.1, 0.1, 1.0]])
    drawn, none = jnp.array([7, 7, 2], jnp.int32), jnp.zeros((), jnp.int32)
    factor, inverse = pivots._accept(drawn, among, jnp.ones(3), jnp.zeros(3), none, 3)
    assert factor.pivots.tolist() == [0, 2, -1]
    lower = np.linalg.cholesky(np.array([[1.0, 0.1], [0.1, 1.0]]))
    np.testing.assert_allclose(inverse, np.pad(np.linalg.inv(lower), (0, 1)), atol=1e-6)


def test_beyond_rounding_rows_are_drawn_by_what_is_left():
    """Rows of length 1 in two columns; 300 of 2,000 have a third one, below s eps = 2.4e-5."""
    x = RNG.normal(size=(2000, 3)).astype(np.float32)
    x[:, :2] /= np.linalg.norm(x[:, :2], axis=1)[:, None]
    x[:, 2] = np.where(np.arange(2000) < 300, 3e-3, 0)
    found = np.asarray(drawn(KEY, numbered(x), inner=LINEAR, count=200))
    assert (found[:2] >= 300).all()  # the pivots
    assert len(set(found.tolist())) == 200 and np.mean(found < 300) > 0.7


@pytest.mark.long
def test_a_kernel_of_low_rank_and_rows_of_zeros():
    x = np.r_[X[:20], np.zeros((20, 2), np.float32)]
    options, size = {"inner": LINEAR, "count": 10}, np.sum(x**2, 1).max()
    keys = jax.random.split(KEY, 20)
    every = several(keys, x, **options)
    for found in every:
        assert len(np.unique(found)) == 10 and (found[:2] < 20).all()
        left = residual(x.astype(float) @ x.T, found[:2])
        np.testing.assert_allclose(left, 0, atol=1e-5 * size)
    assert len(np.unique(every[:, 2:4])) > 15  # the rest is drawn, too
    assert int(nystrom(KEY, LINEAR, x, landmarks=10, choose=random_pivots()).rank) == 2
    assert all(len(np.unique(found)) == 10 for found in several(keys, 0 * x, **options))


@pytest.mark.long
@pytest.mark.parametrize("block", [16, 1, 128])
def test_rounding_is_not_taken_for_a_residual(block):
    """A smooth kernel is exhausted in float32: no pivot before has a residual of rounding only."""
    count, gram, inner = 150, gaussian(X, gamma=0.02), kernels.rbf(gamma=0.02)
    found = np.asarray(drawn(KEY, numbered(X), inner=inner, count=count, block=block))
    assert len(np.unique(found)) == count
    floor = count * np.finfo(np.float32).eps
    left = [np.maximum(residual(gram, found[:i]), 0) for i in range(count)]
    own = np.array([d[p] for d, p in zip(left, found, strict=True)])
    end = int(np.argmax(own < floor / 4))
    assert 5 < end < 60
    assert left[end].max() < 4 * floor and (own[:end] > floor / 4).all()


@pytest.mark.long
def test_sparse_rows_are_chosen_as_dense_ones():
    x = scipy.sparse.random(120, 10, 0.3, random_state=0, format="csr", dtype=np.float32)
    rows = jaxsvm.dataset(x, np.ones(120), task="regression").x
    for kernel in (RBF, kernels.polynomial(1.0, 1.0)):
        dense = random_pivots(8)(KEY, kernel, x.toarray(), 30)
        for part in (rows, rows.packed):
            sparse = random_pivots(8)(KEY, kernel, part, 30)
            np.testing.assert_array_equal(sparse.toarray(), dense)


@pytest.mark.long
def test_inside_of_transformations_the_rows_are_the_same():
    make = functools.partial(nystrom, x=X, landmarks=20, choose=random_pivots(8))
    draw = lambda gamma, key: make(key, kernels.rbf(gamma=gamma)).landmarks
    gammas, keys = jnp.array([0.3, 3.0], jnp.float32), jax.random.split(KEY, 3)
    both = jax.jit(jax.vmap(jax.vmap(draw, (None, 0)), (0, None)))(gammas, keys)
    for i, j in itertools.product(range(2), range(3)):
        for _ in range(2):
            np.testing.assert_array_equal(both[i, j], draw(float(gammas[i]), keys[j]))
    assert (both[0, 0] != both[0, 1]).any() and (both[0, 0] != both[1, 0]).any()


@pytest.mark.long
def test_derivatives_hold_with_the_rows_constant(x64):
    x = X[:40].astype(float)
    rows = random_pivots()(KEY, kernels.rbf(gamma=0.4), x, 6)

    def value(gamma, landmarks=6):
        kernel = kernels.rbf(gamma=gamma)
        phi = nystrom(KEY, kernel, x, landmarks=landmarks, choose=random_pivots())
        return jnp.sum(phi(x) ** 2 * jnp.arange(40.0)[:, None])

    up, down = value(0.4 + 1e-6, rows), value(0.4 - 1e-6, rows)
    np.testing.assert_allclose(jax.grad(value)(0.4), (up - down) / 2e-6, rtol=1e-6)


@pytest.mark.long
def test_other_dtypes(x64):
    for dtype in (jnp.float64, jnp.bfloat16):
        rows = random_pivots()(KEY, kernels.rbf(gamma=0.5), jnp.asarray(X, dtype), 20)
        assert rows.dtype == dtype and rows.shape == (20, 2)
        assert len(np.unique(np.asarray(rows, float), axis=0)) == 20
