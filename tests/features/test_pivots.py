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
from jaxsvm import checks, features, kernels
from jaxsvm.features import nystrom, pivots, random_pivots

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
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


def rbf(x, z):
    return kernels.rbf(gamma=0.5)(x, z)


def rbf_and_linear(x, z):
    """Its diagonal is not constant."""
    return rbf(x, z) + kernels.linear()(x, z)


def linear(x, z):
    return kernels.linear()(x, z)


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


@pytest.mark.long(but=1)
@pytest.mark.parametrize("block", [2, 1, 3])
def test_pivots_have_the_distribution_of_the_column_by_column_form(block):
    """Triples of five rows: within a block that rejects, and across blocks."""
    x = np.array([[0.0, 0.5], [0.3, 0.4], [1.5, 0.0], [1.6, 0.1], [-0.5, -1.0]], np.float32)
    gram, draws = gaussian(x) + x.astype(float) @ x.T, 20_000
    draw = jax.vmap(lambda key: drawn(key, numbered(x), inner=rbf_and_linear, count=3, block=block))
    found = np.asarray(draw(jax.random.split(KEY, draws)))
    triples = list(itertools.permutations(range(5), 3))
    share = []
    for triple in triples:
        chance = 1.0
        for i, p in enumerate(triple):
            left = np.maximum(residual(gram, list(triple[:i])), 0)
            chance *= left[p] / left.sum()
        share.append(chance)
    share = np.array(share)
    np.testing.assert_allclose(share.sum(), 1)
    count = np.array([(found == triple).all(1).sum() for triple in triples])
    want = share * draws
    assert count.sum() == draws and want.min() > 10 and want.max() > 10 * want.min()
    assert np.sum((count - want) ** 2 / want) <= scipy.stats.chi2.ppf(0.999, len(want) - 1)


@pytest.mark.long
def test_the_trace_that_is_left_is_that_of_the_column_by_column_form():
    gram, count, seeds = gaussian(X, gamma=2.0), 40, 200
    inner = kernels.rbf(gamma=2.0)
    draw = jax.vmap(lambda key: drawn(key, numbered(X), inner=inner, count=count, block=16))
    left = [residual(gram, rows).sum() for rows in np.asarray(draw(jax.random.split(KEY, seeds)))]
    random = np.random.default_rng(1)
    want = [by_columns(gram, count, random)[1] for _ in range(seeds)]
    error = np.hypot(np.std(left), np.std(want)) / np.sqrt(seeds)
    assert abs(np.mean(left) - np.mean(want)) <= 4 * error < 0.04 * np.mean(want)
    chosen = [random.choice(300, count, replace=False) for _ in range(20)]
    assert np.mean(want) < 0.85 * np.mean([residual(gram, rows).sum() for rows in chosen])


def test_the_map_leaves_what_the_projection_on_its_rows_leaves():
    phi = nystrom(KEY, kernels.rbf(gamma=0.5), X, landmarks=30, choose=random_pivots(8))
    rows = np.asarray(phi.landmarks)
    hits = (rows[:, None] == X[None]).all(-1)
    assert (hits.sum(1) == 1).all() and (hits.sum(0) <= 1).all()
    left = 300 - np.sum(np.asarray(phi(X), float) ** 2)
    np.testing.assert_allclose(left, residual(gaussian(X), hits.argmax(1)).sum(), rtol=1e-2)


def test_copies_are_no_pivots_while_other_rows_are_left():
    """Fifty rows, four times each: fifty pivots, and then rows that are not chosen yet."""
    x = np.tile(2 * X[:50], (4, 1))
    for seed in range(5):
        key = jax.random.key(seed)
        found = np.asarray(drawn(key, numbered(x), inner=kernels.rbf(gamma=8.0), count=60, block=8))
        assert len(set(found.tolist())) == 60
        assert len(set((found[:50] % 50).tolist())) == 50
    everything = drawn(KEY, numbered(x), inner=kernels.rbf(gamma=8.0), count=200)
    assert sorted(everything.tolist()) == list(range(200))


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
    found = np.asarray(drawn(KEY, numbered(x), inner=linear, count=200))
    assert (found[:2] >= 300).all()  # the pivots
    assert len(set(found.tolist())) == 200 and np.mean(found < 300) > 0.7


def test_a_kernel_of_low_rank_and_rows_of_zeros():
    x = np.r_[X[:20], np.zeros((20, 2), np.float32)]
    for seed in range(20):
        found = np.asarray(drawn(jax.random.key(seed), numbered(x), inner=linear, count=10))
        assert len(set(found.tolist())) == 10 and (found[:2] < 20).all()
        np.testing.assert_allclose(
            residual(x.astype(float) @ x.T, found[:2]), 0, atol=1e-5 * np.sum(x**2, 1).max()
        )
    phi = nystrom(KEY, kernels.linear(), x, landmarks=10, choose=random_pivots())
    assert int(phi.rank) == 2
    nothing = drawn(KEY, numbered(np.zeros((40, 2), np.float32)), inner=linear, count=10)
    assert len(set(nothing.tolist())) == 10
    draw = jax.vmap(lambda key: drawn(key, numbered(x), inner=linear, count=4))
    others = np.asarray(draw(jax.random.split(KEY, 50)))[:, 2:]
    assert len(np.unique(others)) > 15  # the rest is drawn, too


@pytest.mark.long(but=1)
@pytest.mark.parametrize("block", [16, 1, 128])
def test_rounding_is_not_taken_for_a_residual(block):
    """A smooth kernel is exhausted in float32: no pivot before has a residual of rounding only."""
    x, count = X, 150
    gram = gaussian(x, gamma=0.02)
    found = np.asarray(
        drawn(KEY, numbered(x), inner=kernels.rbf(gamma=0.02), count=count, block=block)
    )
    assert len(set(found.tolist())) == count
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
    for kernel in (kernels.rbf(gamma=0.5), kernels.polynomial(1.0, 1.0)):
        choose = random_pivots(8)
        sparse, dense = (choose(KEY, kernel, part, 30) for part in (rows, x.toarray()))
        np.testing.assert_array_equal(sparse.toarray(), dense)
        packed = choose(KEY, kernel, rows.packed, 30)
        np.testing.assert_array_equal(packed.toarray(), dense)


@pytest.mark.long
def test_inside_of_transformations_the_rows_are_the_same():
    kernel = lambda gamma: kernels.rbf(gamma=gamma)
    choose = random_pivots(8)
    draw = lambda gamma, key: nystrom(key, kernel(gamma), X, landmarks=20, choose=choose).landmarks
    gammas, keys = jnp.array([0.3, 3.0], jnp.float32), jax.random.split(KEY, 3)
    both = jax.jit(jax.vmap(jax.vmap(draw, (None, 0)), (0, None)))(gammas, keys)
    for i, j in itertools.product(range(2), range(3)):
        alone = draw(float(gammas[i]), keys[j])
        np.testing.assert_array_equal(both[i, j], alone)
        np.testing.assert_array_equal(draw(float(gammas[i]), keys[j]), alone)
    assert (np.asarray(both[0, 0]) != np.asarray(both[0, 1])).any()
    assert (np.asarray(both[0, 0]) != np.asarray(both[1, 0])).any()


@pytest.mark.long
def test_derivatives_hold_with_the_rows_constant(x64):
    x = X[:40].astype(float)
    rows = random_pivots()(KEY, kernels.rbf(gamma=0.4), x, 6)

    def value(gamma, landmarks=6):
        kernel = kernels.rbf(gamma=gamma)
        phi = nystrom(KEY, kernel, x, landmarks=landmarks, choose=random_pivots())
        return jnp.sum(phi(x) ** 2 * jnp.arange(40.0)[:, None])

    found = jax.grad(value)(0.4)
    h = 1e-6
    np.testing.assert_allclose(
        found, (value(0.4 + h, rows) - value(0.4 - h, rows)) / (2 * h), rtol=1e-6
    )


def test_other_dtypes(x64):
    for dtype in (jnp.float64, jnp.bfloat16):
        rows = random_pivots()(KEY, kernels.rbf(gamma=0.5), jnp.asarray(X, dtype), 20)
        assert rows.dtype == dtype and rows.shape == (20, 2)
        assert len(np.unique(np.asarray(rows, float), axis=0)) == 20


def test_what_is_refused(monkeypatch):
    for block in (0, 2.5):
        with pytest.raises(ValueError, match="block must be a whole number of at least 1, got"):
            random_pivots(block)
    with pytest.raises(ValueError, match="landmarks must be a number from 1 to the 300 rows"):
        nystrom(KEY, kernels.rbf(1.0), X, landmarks=301, choose=random_pivots())
    monkeypatch.setattr(checks, "MOST_BYTES", 50_000)
    with pytest.raises(
        ValueError,
        match=r"^the factor of 300 rows and 40 pivots would take 96,000 bytes, more than 50,000: "
        r"lower landmarks, .* take features.leverage_scores\(\), or raise",
    ):
        nystrom(KEY, kernels.rbf(1.0), X, landmarks=40, choose=random_pivots())
    assert features.random_pivots is random_pivots
