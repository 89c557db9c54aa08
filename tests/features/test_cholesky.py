"""Pivoted incomplete Cholesky features against a transcription in NumPy, Nystrom's formula and
LIBSVM on the whole kernel."""

from __future__ import annotations

import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer
from sklearn.svm import SVC, SVR

import jaxsvm
from jaxsvm import features, kernels, losses, models
from jaxsvm.features import cholesky, low_rank_bound, nystrom

RNG = np.random.default_rng(2)
N, D, GAMMA = 90, 3, 0.2
X = RNG.normal(size=(N, D))
X[40:60] = X[:20]  # twenty rows that come twice
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=N)
Y = np.where(TARGET > 0, 1.0, -1.0)
KEY = jax.random.key(3)
RBF = kernels.rbf(gamma=GAMMA)


def gaussian(x, z, gamma=GAMMA):
    return oracles.gaussian(x, z, gamma)


def cubic(x, z):
    return (x @ z.T + 1) ** 3


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


# the features


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("kernel", "formula", "tol"),
    [(RBF, gaussian, 3e-2), (kernels.polynomial(1.0, 1.0), cubic, 1e-6), (cubic, cubic, 1e-2)],
    ids=["rbf", "polynomial", "a plain function"],
)
def test_the_features_of_the_rows_are_the_columns_of_the_factor(kernel, formula, tol, x64):
    phi = cholesky(kernel, X, rank=40, tol=tol)
    gram = formula(X, X)
    columns, pivots = transcription(gram, 40, tol)
    k = len(pivots)
    assert 3 < k < 40 and int(phi.rank) == k and phi.pivots[:k].tolist() == pivots
    assert phi.features == min(40, -(-k // 32) * 32) and not np.any(phi.pivots[k:] >= 0)
    got = np.asarray(phi(X))
    scale = np.abs(columns).max()
    np.testing.assert_allclose(got[:, :k], columns, atol=1e-8 * scale)
    assert not got[:, k:].any()
    np.testing.assert_allclose(
        phi.residual, np.trace(gram - columns @ columns.T) / np.trace(gram), rtol=1e-6, atol=1e-15
    )
    assert (
        float(phi.residual) <= tol and np.linalg.eigvalsh(gram - got @ got.T)[0] > -1e-9 * scale**2
    )
    # the space of Nystrom features of the pivots, at new rows too
    new = X + 0.3
    values, among = formula(new, X[pivots]), formula(X[pivots], X[pivots])
    np.testing.assert_allclose(
        phi(new) @ phi(new).T,
        values @ np.linalg.solve(among, values.T),
        atol=1e-6 * np.abs(formula(new, new)).max(),
    )
    weights = np.zeros(phi.features)
    weights[:k] = RNG.normal(size=k)
    coef = np.asarray(phi.landmark_coef(jnp.asarray(weights)))
    np.testing.assert_allclose(
        formula(new, X[pivots]) @ coef[:k], phi(new) @ weights, atol=1e-6 * scale
    )


def test_float32_rows_have_the_pivots_of_float64():
    phi = cholesky(RBF, X.astype(np.float32), rank=60, tol=1e-4)
    with jax.enable_x64(True):
        wide = cholesky(RBF, X.astype(np.float32).astype(float), rank=60, tol=1e-4)
    assert phi.whitening.dtype == np.float32 and phi.pivots.tolist() == wide.pivots.tolist()
    np.testing.assert_allclose(phi(X.astype(np.float32)), wide(X), atol=1e-4)
    left = 1 - np.sum(np.asarray(phi(X.astype(np.float32)), float) ** 2) / N
    assert abs(left - float(phi.residual)) <= 3e-5


def test_it_ends_at_the_rank_of_the_kernel_and_at_rounding():
    """Rows that come twice are pivots once; a linear kernel of 3 columns has rank 3."""
    full = cholesky(RBF, X.astype(np.float32), rank=N, tol=0.0)
    pivots = np.asarray(full.pivots)[np.asarray(full.pivots) >= 0]
    assert (
        len(np.unique(X[pivots], axis=0)) == len(pivots) <= 70 and np.isfinite(full.whitening).all()
    )
    linear = cholesky(kernels.linear(), X.astype(np.float32), rank=N, tol=0.0)
    assert int(linear.rank) == 3 and linear.features == 32 and float(linear.residual) <= 1e-6
    assert int(cholesky(kernels.linear(), np.zeros((4, 2), np.float32), rank=2).rank) == 0


def test_a_multiple_of_the_kernel_scales_the_features():
    """What keeps the Gram matrix of the pivots regular is relative to its diagonal, also where
    features are left over."""

    @jax.jit
    def products(scale, x):
        phi = cholesky(scale * kernels.linear(), x, rank=8, tol=0.0)
        return phi(x) @ phi(x).T / scale

    x = X[:30].astype(np.float32)
    for scale in (1e-9, 1e-5, 1.0, 1e5):  # within some roundings of the largest product, 6
        np.testing.assert_allclose(products(np.float32(scale), x), x @ x.T, atol=2e-5)


def test_random_pivots_are_drawn_in_proportion_to_what_is_left():
    """The first two of three rows at distances that give d = (1, 1, 1), then by 1 - k^2."""
    x = np.array([[0.0], [1.0], [3.0]], np.float32)
    draw = jax.jit(jax.vmap(lambda key: cholesky(RBF, x, rank=2, tol=0.0, key=key).pivots))
    pivots = np.asarray(draw(jax.random.split(KEY, 6000)))
    gram = gaussian(x, x).astype(float)
    left = 1 - gram**2
    for first in range(3):
        rows = pivots[pivots[:, 0] == first]
        assert abs(len(rows) / 6000 - 1 / 3) <= 0.025  # four deviations
        share = np.bincount(rows[:, 1], minlength=3) / len(rows)
        np.testing.assert_allclose(share, left[first] / left[first].sum(), atol=0.045)
    phi = cholesky(RBF, X.astype(np.float32), rank=60, tol=1e-3, key=KEY)
    assert float(phi.residual) <= 1e-3 and len(set(phi.pivots[: int(phi.rank)].tolist())) == int(
        phi.rank
    )
    assert (
        phi.pivots.tolist()
        == cholesky(RBF, X.astype(np.float32), rank=60, tol=1e-3, key=KEY).pivots.tolist()
    )


def test_random_pivots_leave_less_where_outliers_come_first():
    """A dense cloud and outliers far from each other, more than there are pivots."""
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(300, 2)), 60 * random.normal(size=(40, 2))]).astype(
        np.float32
    )
    greedy = cholesky(RBF, x, rank=32, tol=1e-3)
    drawn = cholesky(RBF, x, rank=32, tol=1e-3, key=KEY)
    wide = x.astype(float)
    for phi in (greedy, drawn):
        pivots = np.asarray(phi.pivots)
        among, values = gaussian(wide[pivots], wide[pivots]), gaussian(wide, wide[pivots])
        left = 340 - np.trace(values @ np.linalg.solve(among, values.T))
        np.testing.assert_allclose(phi.residual, left / 340, rtol=1e-4)
    columns, _ = transcription(gaussian(wide, wide), 32, 1e-3)
    np.testing.assert_allclose(greedy.residual, 1 - np.sum(columns**2) / 340, rtol=1e-4)
    assert float(drawn.residual) < 0.7 * float(greedy.residual)


def test_inside_of_transformations_it_is_the_same_map(x64):
    widths = jnp.array([0.05, 0.1])
    maps = jax.jit(
        jax.vmap(lambda gamma: cholesky(kernels.rbf(gamma=gamma), X, rank=32, tol=5e-2))
    )(widths)
    for i, gamma in enumerate(widths):
        alone = cholesky(kernels.rbf(gamma=float(gamma)), X, rank=32, tol=5e-2)
        k = int(alone.rank)
        assert maps.pivots[i].tolist() == alone.pivots.tolist() and 3 < k < 32
        np.testing.assert_allclose(maps.whitening[i], alone.whitening, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(maps.residual[i], alone.residual, rtol=1e-6)


@pytest.mark.long
def test_derivatives_are_those_of_differences_with_the_pivots_constant(x64):
    def value(gamma, shift):
        phi = cholesky(
            kernels.rbf(gamma=gamma), X + shift * jnp.asarray(X) ** 2, rank=12, tol=1e-12
        )
        return jnp.sum(jnp.tanh(phi(X + 0.2)[:, :12]))

    h, at = 1e-6, (jnp.asarray(0.3), jnp.asarray(0.01))
    found = jax.grad(value, (0, 1))(*at)
    for i in range(2):
        up, down = list(at), list(at)
        up[i], down[i] = at[i] + h, at[i] - h
        np.testing.assert_allclose(found[i], (value(*up) - value(*down)) / (2 * h), rtol=1e-5)


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


def test_what_is_refused():
    x = X.astype(np.float32)
    for rank in (0, N + 1, 2.5):
        with pytest.raises(
            ValueError, match="rank must be a whole number from 1 to 90, at most the number of rows"
        ):
            cholesky(RBF, x, rank=rank)
    with pytest.raises(ValueError, match="tol must be a finite number of at least 0, got -1"):
        cholesky(RBF, x, rank=2, tol=-1.0)
    with pytest.raises(ValueError, match="precomputed"):
        cholesky(kernels.precomputed(), x, rank=2)
    with pytest.raises(TypeError, match="key must be one key"):
        cholesky(RBF, x, rank=2, key=0)
    phi = cholesky(RBF, x, rank=2)
    with pytest.raises(ValueError, match="x must have 3 columns"):
        phi(np.zeros((2, 4), np.float32))
    with pytest.raises(
        ValueError, match=r"coef must hold a number for each of the 90 rows of x, got shape \(3,\)"
    ):
        low_rank_bound(phi, x, np.ones(3))
    with pytest.raises(
        TypeError, match="phi must be a map of features.cholesky or features.nystrom, got Fourier"
    ):
        low_rank_bound(features.fourier(KEY, RBF, dim=3, features=4), x, np.ones(N))


# ------------------------------------------------------------------------- machines on the
# features, and what the rest costs


def optimum(loss, C, bias, gram):
    """The minimum of 1/2 |f|^2 + C sum loss in the space of the kernel, by LIBSVM: its dual
    value."""
    if repr(loss) == repr(losses.eps_insensitive(0.1)):
        made = SVR(kernel="precomputed", C=C, epsilon=0.1, tol=1e-9).fit(gram, TARGET)
        coef = made.dual_coef_[0]
        support = made.support_
        return (
            coef @ TARGET[support]
            - 0.1 * np.abs(coef).sum()
            - coef @ gram[np.ix_(support, support)] @ coef / 2
        )
    if loss is losses.squared_hinge:  # the hinge without an upper bound and with K + I / (2 C)
        gram, C = gram + np.eye(N) / (2 * C), 1e8
    made = SVC(kernel="precomputed", C=C, tol=1e-9).fit(gram, Y)
    coef, support = made.dual_coef_[0], made.support_
    return np.abs(coef).sum() - coef @ gram[np.ix_(support, support)] @ coef / 2


@pytest.mark.long
@pytest.mark.parametrize(
    "loss", [losses.hinge, losses.squared_hinge, losses.eps_insensitive(0.1)], ids=repr
)
def test_the_bound_is_above_what_the_rest_of_the_kernel_is_worth(loss, x64):
    C, gram = 2.0, gaussian(X, X)
    best, excesses = optimum(loss, C, "free", gram), []
    data = jaxsvm.dataset(
        X, Y if loss.labels else TARGET, task="binary" if loss.labels else "regression"
    )
    for tol in (0.1, 1e-2, 1e-3, 1e-9):
        phi = cholesky(RBF, X, rank=32 if tol > 1e-3 else N, tol=tol)
        solver = jaxsvm.on_features(
            phi, jaxsvm.interior_point(C, loss=loss, bias="free", tol=1e-10)
        )
        run = jaxsvm.fit(solver, data, KEY)
        value = jaxsvm.objectives.primal(run.model, data, 1 / (C * N), loss) * C * N
        bound = low_rank_bound(phi, X, run.state.solver.coef)
        excess = value / best - 1
        assert -1e-8 <= excess <= bound / best * (1 + 1e-6) + 1e-8
        assert bound <= 7 * (value - best) + 1e-6 * best  # it is close, too
        excesses.append(excess)
    assert np.all(np.diff(excesses) <= 1e-9) and excesses[0] > 1e-3 and excesses[-1] <= 1e-6
    inside = jax.jit(low_rank_bound)(phi, jnp.asarray(X), run.state.solver.coef)
    np.testing.assert_allclose(inside, bound, atol=1e-9)


@pytest.mark.long
def test_the_bound_of_nystrom_features_in_float32():
    """The bound is in float64 whatever the rows; by definition, in NumPy."""
    x, y = load_breast_cancer(return_X_y=True)
    x, y = ((x - x.mean(0)) / x.std(0)).astype(np.float32), 2.0 * y - 1
    kernel = kernels.rbf(gamma=1 / 30)
    phi = nystrom(KEY, kernel, x, landmarks=40)
    data = jaxsvm.dataset(x, y)
    run = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.interior_point(1.0)), data, KEY)
    coef = np.asarray(run.state.solver.coef, float)
    wide = x.astype(float)
    gram = gaussian(wide, wide, 1 / 30)
    with jax.enable_x64(True):
        mapped = np.asarray(phi(jnp.asarray(wide)))
    expected = coef @ (gram - mapped @ mapped.T) @ coef / 2
    np.testing.assert_allclose(low_rank_bound(phi, x, run.state.solver.coef), expected, rtol=1e-6)


@pytest.mark.long
@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="no folder of data sets")
def test_known_ranks_and_costs():
    """1,500 rows of svmguide1, gamma = 0.25: ranks and costs of a transcription in NumPy."""
    files = np.load(pathlib.Path(os.environ["JAXSVM_DATA"]) / "svmguide1.npz")
    x, y = files["X_train"].astype(float), files["y_train"].astype(float)
    x = (x - x.mean(0)) / x.std(0)
    drawn = np.random.default_rng(0).permutation(len(y))[:1500]
    x, y = x[drawn], y[drawn]
    gram, kernel = gaussian(x, x, 0.25), kernels.rbf(gamma=0.25)
    data = jaxsvm.dataset(x.astype(np.float32), y)
    for tol, rank in ((1e-1, 51), (1e-2, 111), (1e-3, 191), (1e-4, 275)):
        phi = cholesky(kernel, data.x, rank=400, tol=tol)
        assert int(phi.rank) == rank and float(phi.residual) <= tol
        left = 1 - np.sum(np.asarray(phi(data.x), float) ** 2) / len(y)
        assert abs(left - float(phi.residual)) <= 3e-5
        for lam in (1e-3, 1e-5):
            C = 1 / (lam * len(y))
            made = SVC(kernel="precomputed", C=C, tol=1e-8).fit(gram, y)
            coef, support = made.dual_coef_[0], made.support_
            best = np.abs(coef).sum() - coef @ gram[np.ix_(support, support)] @ coef / 2
            run = jaxsvm.fit(
                jaxsvm.on_features(phi, jaxsvm.interior_point(C, bias="free", tol=1e-8)), data, KEY
            )
            excess = jaxsvm.objectives.primal(run.model, data, lam) - lam * best
            bound = lam * low_rank_bound(phi, data.x, run.state.solver.coef)
            # float32 features: the cost is above the bound by their roundings at most
            assert -1e-6 <= excess <= bound * (1 + 1e-6) + 1e-5 * lam * best
            assert bound <= 7 * excess + 1e-5
