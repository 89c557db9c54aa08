"""Pivoted incomplete Cholesky features against a transcription in NumPy, Nystrom's formula and
LIBSVM on the whole kernel."""

from __future__ import annotations

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.sparse
from feature_maps import close, cubic
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC, SVR

import jaxsvm
from jaxsvm import kernels, losses, models
from jaxsvm.features import cholesky, low_rank_bound, nystrom

RNG = np.random.default_rng(2)
N, D, GAMMA = 90, 3, 0.2
X = RNG.normal(size=(N, D))
X[40:60] = X[:20]  # twenty rows that come twice
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
Y = np.where(TARGET > 0, 1.0, -1.0)
KEY = jax.random.key(3)
RBF, X32 = kernels.rbf(gamma=GAMMA), X.astype(np.float32)
gaussian = functools.partial(oracles.gaussian, gamma=GAMMA)


def transcription(gram, rank, tol):
    """The largest pivot each time: the columns F (n, k) and the pivots."""
    d, columns, pivots = np.diag(gram).copy(), np.zeros((len(gram), 0)), []
    while len(pivots) < rank and d.sum() > tol * np.trace(gram):
        p = int(np.argmax(d))
        column = (gram[:, p] - columns @ columns[p]) / np.sqrt(d[p])
        d = np.maximum(d - column**2, 0)
        d[p] = 0
        columns, pivots = np.c_[columns, column], [*pivots, p]
    return columns, pivots


def project(kernel, x, among):
    """The products of the features of rows, of which some span the space."""
    values = kernel(x, among)
    return values @ np.linalg.solve(kernel(among, among), values.T)


# the features


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "formula", "tol"),
    [(RBF, gaussian, 3e-2), (kernels.polynomial(1.0, 1.0), cubic, 1e-6), (cubic, cubic, 1e-2)],
    ids=["rbf", "polynomial", "a plain function"],
)
def test_the_features_of_the_rows_are_the_columns_of_the_factor(kernel, formula, tol, x64):
    phi, gram = cholesky(kernel, X, rank=40, tol=tol), formula(X, X)
    columns, pivots = transcription(gram, 40, tol)
    k, scale, got = len(pivots), np.abs(columns).max(), np.asarray(phi(X))
    assert 3 < k < 40 and int(phi.rank) == k and phi.pivots[:k].tolist() == pivots
    assert phi.features == min(40, -(-k // 32) * 32) and not np.any(phi.pivots[k:] >= 0)
    close(got[:, :k], columns, 1e-8)
    assert not got[:, k:].any()
    left = np.trace(gram - columns @ columns.T) / np.trace(gram)
    np.testing.assert_allclose(phi.residual, left, rtol=1e-6, atol=1e-15)
    assert float(phi.residual) <= tol
    assert np.linalg.eigvalsh(gram - got @ got.T)[0] > -1e-9 * scale**2
    # the space of Nystrom features of the pivots, at new rows too
    new = X + 0.3
    close(phi(new) @ phi(new).T, project(formula, new, X[pivots]), 1e-6)
    weights = np.append(RNG.normal(size=k), np.zeros(phi.features - k))
    coef = np.asarray(phi.landmark_coef(jnp.asarray(weights)))
    np.testing.assert_allclose(
        formula(new, X[pivots]) @ coef[:k], phi(new) @ weights, atol=1e-6 * scale
    )


@pytest.mark.long
def test_float32_rows_have_the_pivots_of_float64():
    phi = cholesky(RBF, X32, rank=60, tol=1e-4)
    with jax.enable_x64(True):
        wide = cholesky(RBF, X32.astype(float), rank=60, tol=1e-4)
    assert phi.whitening.dtype == np.float32 and phi.pivots.tolist() == wide.pivots.tolist()
    np.testing.assert_allclose(phi(X32), wide(X), atol=1e-4)
    left = 1 - np.sum(np.asarray(phi(X32), float) ** 2) / N
    assert abs(left - float(phi.residual)) <= 3e-5


@pytest.mark.long
def test_it_ends_at_the_rank_of_the_kernel_and_at_rounding():
    """Rows that come twice are pivots once; a linear kernel of 3 columns has rank 3."""
    full = cholesky(RBF, X32, rank=N, tol=0.0)
    pivots = np.asarray(full.pivots)[np.asarray(full.pivots) >= 0]
    assert len(np.unique(X[pivots], axis=0)) == len(pivots) <= 70
    assert np.isfinite(full.whitening).all()
    linear = cholesky(kernels.linear(), X32, rank=N, tol=0.0)
    assert int(linear.rank) == 3 and linear.features == 32 and float(linear.residual) <= 1e-6
    assert int(cholesky(kernels.linear(), np.zeros((4, 2), np.float32), rank=2).rank) == 0


def test_a_multiple_of_the_kernel_scales_the_features():
    """What keeps the Gram matrix of the pivots regular is relative to its diagonal, also where
    features are left over."""

    @jax.jit
    def products(scale, x):
        phi = cholesky(scale * kernels.linear(), x, rank=8, tol=0.0)
        return phi(x) @ phi(x).T / scale

    x = X32[:30]
    for scale in (1e-9, 1e-5, 1.0, 1e5):  # within some roundings of the largest product, 6
        np.testing.assert_allclose(products(np.float32(scale), x), x @ x.T, atol=2e-5)


@pytest.mark.long
def test_random_pivots_are_drawn_in_proportion_to_what_is_left():
    """The first two of three rows at distances that give d = (1, 1, 1), then by 1 - k^2."""
    x = np.array([[0.0], [1.0], [3.0]], np.float32)
    draw = jax.jit(jax.vmap(lambda key: cholesky(RBF, x, rank=2, tol=0.0, key=key).pivots))
    pivots, left = np.asarray(draw(jax.random.split(KEY, 6000))), 1 - gaussian(x, x) ** 2
    for first in range(3):
        rows = pivots[pivots[:, 0] == first]
        assert abs(len(rows) / 6000 - 1 / 3) <= 0.025  # four deviations
        share = np.bincount(rows[:, 1], minlength=3) / len(rows)
        np.testing.assert_allclose(share, left[first] / left[first].sum(), atol=0.045)
    phi, again = (cholesky(RBF, X32, rank=60, tol=1e-3, key=KEY) for _ in range(2))
    assert float(phi.residual) <= 1e-3 and phi.pivots.tolist() == again.pivots.tolist()
    assert len(set(phi.pivots[: int(phi.rank)].tolist())) == int(phi.rank)


def test_random_pivots_leave_less_where_outliers_come_first():
    """A dense cloud and outliers far from each other, more than there are pivots."""
    random = np.random.default_rng(0)
    wide = np.concatenate([random.normal(size=(300, 2)), 60 * random.normal(size=(40, 2))])
    x = wide.astype(np.float32)
    greedy, drawn = (cholesky(RBF, x, rank=32, tol=1e-3, key=key) for key in (None, KEY))
    for phi in (greedy, drawn):
        left = 340 - np.trace(project(gaussian, x, x[np.asarray(phi.pivots)]))
        np.testing.assert_allclose(phi.residual, left / 340, rtol=1e-4)
    columns, _ = transcription(gaussian(x, x), 32, 1e-3)
    np.testing.assert_allclose(greedy.residual, 1 - np.sum(columns**2) / 340, rtol=1e-4)
    assert float(drawn.residual) < 0.7 * float(greedy.residual)


def test_inside_of_transformations_it_is_the_same_map(x64):
    make = lambda gamma: cholesky(kernels.rbf(gamma=gamma), X, rank=32, tol=5e-2)
    widths = jnp.array([0.05, 0.1])
    maps = jax.jit(jax.vmap(make))(widths)
    for i, gamma in enumerate(widths):
        alone = make(float(gamma))
        assert maps.pivots[i].tolist() == alone.pivots.tolist() and 3 < int(alone.rank) < 32
        np.testing.assert_allclose(maps.whitening[i], alone.whitening, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(maps.residual[i], alone.residual, rtol=1e-6)


@pytest.mark.long
def test_derivatives_are_those_of_differences_with_the_pivots_constant(x64):
    def value(at):
        rows = X + at[1] * jnp.asarray(X) ** 2
        phi = cholesky(kernels.rbf(gamma=at[0]), rows, rank=12, tol=1e-12)
        return jnp.sum(jnp.tanh(phi(X + 0.2)[:, :12]))

    at = jnp.array([0.3, 0.01])
    for step, found in zip(1e-6 * np.eye(2), jax.grad(value)(at), strict=True):
        np.testing.assert_allclose(found, (value(at + step) - value(at - step)) / 2e-6, rtol=1e-5)


@pytest.mark.long
def test_sparse_rows_and_saved_maps(tmp_path):
    x = scipy.sparse.random(40, 6, 0.5, random_state=0, format="csr", dtype=np.float32)
    rows = jaxsvm.dataset(x, np.ones(40), task="regression").x
    sparse, dense = (cholesky(RBF, r, rank=32, tol=1e-3) for r in (rows, x.toarray()))
    assert sparse.pivots.tolist() == dense.pivots.tolist()
    np.testing.assert_allclose(sparse(rows), dense(x.toarray()), atol=1e-4)
    models.save(tmp_path / "map", dense)
    again = models.load(tmp_path / "map")
    np.testing.assert_array_equal(again(x.toarray()), dense(x.toarray()))
    assert again.rank == dense.rank and again.residual == dense.residual


# machines on the features, and what the rest costs


def least(x, y, loss, C, gamma=GAMMA):
    """The minimum of 1/2 |f|^2 + C sum loss with a free bias in the space of the kernel, by LIBSVM:
    its dual value."""
    gram, tube = oracles.gaussian(x, x, gamma), 0.0 if loss.labels else 0.1
    if loss is losses.squared_hinge:  # the hinge without an upper bound and with K + I / (2 C)
        gram, C = gram + np.eye(N) / (2 * C), 1e8
    made = SVC if loss.labels else functools.partial(SVR, epsilon=tube)
    fitted, coef = made(kernel="precomputed", C=C, tol=1e-9).fit(gram, y), np.zeros(len(y))
    coef[fitted.support_] = fitted.dual_coef_[0]
    return coef @ y - tube * np.abs(coef).sum() - coef @ gram @ coef / 2


def machine(phi, data, C, loss=losses.hinge, tol=1e-10, bias="free"):
    """The run of a machine on the features, and what the rest of the kernel is worth."""
    solver = jaxsvm.interior_point(C, loss=loss, bias=bias, tol=tol)
    run = jaxsvm.fit(jaxsvm.on_features(phi, solver), data, KEY)
    return run, low_rank_bound(phi, np.asarray(data.x), run.state.solver.coef)


@pytest.mark.long
@pytest.mark.parametrize(
    "loss", [losses.hinge, losses.squared_hinge, losses.eps_insensitive(0.1)], ids=repr
)
def test_the_bound_is_above_what_the_rest_of_the_kernel_is_worth(loss, x64):
    C, y = 2.0, Y if loss.labels else TARGET
    best, excesses = least(X, y, loss, C), []
    data = jaxsvm.dataset(X, y, task="binary" if loss.labels else "regression")
    for tol in (0.1, 1e-2, 1e-3, 1e-9):
        phi = cholesky(RBF, X, rank=32 if tol > 1e-3 else N, tol=tol)
        run, bound = machine(phi, data, C, loss)
        value = jaxsvm.objectives.primal(run.model, data, 1 / (C * N), loss) * C * N
        excesses.append(value / best - 1)
        assert -1e-8 <= excesses[-1] <= bound / best * (1 + 1e-6) + 1e-8
        assert bound <= 7 * (value - best) + 1e-6 * best  # it is close, too
    assert np.all(np.diff(excesses) <= 1e-9) and excesses[0] > 1e-3 and excesses[-1] <= 1e-6
    inside = jax.jit(low_rank_bound)(phi, jnp.asarray(X), run.state.solver.coef)
    np.testing.assert_allclose(inside, bound, atol=1e-9)


def test_the_bound_of_nystrom_features_in_float32():
    """The bound is in float64 whatever the rows; by definition, in NumPy."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = ((x - x.mean(0)) / x.std(0)).astype(np.float32), 2.0 * y - 1
    phi = nystrom(KEY, kernels.rbf(gamma=1 / 30), x, landmarks=40)
    run, bound = machine(phi, jaxsvm.dataset(x, y), 1.0, tol=1e-6, bias="feature")
    coef, wide = np.asarray(run.state.solver.coef, float), x.astype(float)
    with jax.enable_x64(True):
        mapped = np.asarray(phi(jnp.asarray(wide)))
    expected = coef @ (oracles.gaussian(wide, wide, 1 / 30) - mapped @ mapped.T) @ coef / 2
    np.testing.assert_allclose(bound, expected, rtol=1e-6)


@pytest.mark.long
@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="no folder of data sets")
def test_known_ranks_and_costs():
    """1,500 rows of svmguide1, gamma = 0.25: ranks and costs of a transcription in NumPy."""
    files = np.load(pathlib.Path(os.environ["JAXSVM_DATA"]) / "svmguide1.npz")
    x, y = files["X_train"].astype(float), files["y_train"].astype(float)
    x = (x - x.mean(0)) / x.std(0)
    drawn = np.random.default_rng(0).permutation(len(y))[:1500]
    x, y = x[drawn], y[drawn]
    kernel, data = kernels.rbf(gamma=0.25), jaxsvm.dataset(x.astype(np.float32), y)
    for tol, rank in ((1e-1, 51), (1e-2, 111), (1e-3, 191), (1e-4, 275)):
        phi = cholesky(kernel, data.x, rank=400, tol=tol)
        assert int(phi.rank) == rank and float(phi.residual) <= tol
        left = 1 - np.sum(np.asarray(phi(data.x), float) ** 2) / len(y)
        assert abs(left - float(phi.residual)) <= 3e-5
        for lam in (1e-3, 1e-5):
            C = 1 / (lam * len(y))
            best = lam * least(x, y, losses.hinge, C, 0.25)
            run, bound = machine(phi, data, C, tol=1e-8)
            excess = jaxsvm.objectives.primal(run.model, data, lam) - best
            # float32 features: the cost is above the bound by their roundings at most
            assert -1e-6 <= excess <= lam * bound * (1 + 1e-6) + 1e-5 * best
            assert lam * bound <= 7 * excess + 1e-5
