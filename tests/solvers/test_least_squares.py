"""Least squares and its path against scikit-learn's Ridge, RidgeCV and KernelRidge, NumPy's lstsq,
and refits."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import maker
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge, RidgeClassifier, RidgeCV

import jaxsvm
from jaxsvm import features, kernels, models

N, P, CLASSES = 60, 5, 3
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, P)) @ RNG.normal(size=(P, P)) + [50.0, 0, -3, 1, 200]
Y = X @ [0.5, -1.0, 0.2, 0.0, 0.1] + RNG.normal(size=N) + 7
LABELS = np.where(Y > np.median(Y), 1.0, -1.0)
NUMBERS = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
BIASES = ("free", "none", "feature")
LAMS = np.array([1e-6, 1e-3, 0.1, 3.0])


dataset = functools.partial(maker(X, Y, WEIGHT), task="regression")


def wild(data):
    """The same rows, but others where the weight is 0."""
    absent = data.weight == 0
    return data._replace(
        x=jnp.where(absent[:, None], jnp.nan, data.x), y=jnp.where(absent, jnp.nan, data.y)
    )


def peer(lam, bias, x=X, y=Y, weight=WEIGHT, method="svd"):
    """The coefficients and intercept of scikit-learn's Ridge; a constant feature for a regularised
    bias."""
    rows = np.c_[x, np.ones(len(x))] if bias == "feature" else x
    made = Ridge(alpha=lam * weight.sum(), fit_intercept=bias == "free", solver=method).fit(
        rows, y, weight
    )
    return (made.coef_[:-1], made.coef_[-1]) if bias == "feature" else (made.coef_, made.intercept_)


def primal(w, b, lam, bias, x=X, y=Y, weight=WEIGHT):
    square = w @ w + (b * b if bias == "feature" else 0)
    return lam / 2 * square + np.average((x @ w + b - y) ** 2, weights=weight) / 2


# least_squares


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", BIASES)
def test_one_pass_is_ridge_regression(bias, x64):
    for lam in LAMS:
        run = jaxsvm.fit(
            jaxsvm.least_squares(lam, bias=bias),
            wild(dataset()),
            KEY,
            sampler=jaxsvm.samplers.epochs(16),
        )
        w, b = peer(lam, bias)
        # the condition of the shared columns, 1e6, times 1e-16
        np.testing.assert_allclose(run.model.w, w, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(run.model.b, b, rtol=1e-7, atol=1e-7)
        assert run.converged and int(run.state.step) == -(-int((WEIGHT > 0).sum()) // 16)
        assert run.model.bias == bias


def test_float32_sums_reach_the_optimum_of_columns_far_from_0():
    """The first columns are 50 and 200 from 0, with a spread of about 2."""
    x = X.astype(np.float32).astype(float)
    y = Y.astype(np.float32).astype(float)
    for lam in (1e-8, 1e-6, 1e-2):
        run = jaxsvm.fit(jaxsvm.least_squares(lam), dataset(x, y, dtype=np.float32), KEY)
        w, b = np.asarray(run.model.w, float), float(run.model.b)
        # b is rounded to float32, at 1e-6 of 50 or so
        b += np.average(y - x @ w - b, weights=WEIGHT)
        best = primal(*peer(lam, "free", x, y), lam, "free", x, y)
        assert primal(w, b, lam, "free", x, y) <= best * (1 + 1e-6)


@pytest.mark.long
@pytest.mark.parametrize("gamma", [1.0, 0.05])
def test_float32_features_reach_the_optimum_at_small_lam(gamma):
    """20,000 rows, 200 random features; their least eigenvalue is 4e-7 at gamma = 0.05."""
    random = np.random.default_rng(0)
    x = random.normal(size=(20_000, 8)).astype(np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] ** 2 + 0.3 * random.normal(size=len(x))
    phi = features.fourier(KEY, kernels.rbf(gamma=gamma), dim=8, features=200)
    rows, one = np.asarray(phi(x)), np.ones(len(x))
    wide, target = rows.astype(float), y.astype(np.float32).astype(float)
    data = dataset(rows, y, one, dtype=np.float32)
    for lam in (1e-8, 1e-6, 1e-4):
        model = jaxsvm.fit(jaxsvm.least_squares(lam), data, KEY).model
        best = primal(
            *peer(lam, "free", wide, target, one, "cholesky"), lam, "free", wide, target, one
        )
        excess = (
            primal(np.asarray(model.w, float), float(model.b), lam, "free", wide, target, one)
            / best
            - 1
        )
        assert -1e-9 <= excess <= 1e-6


@pytest.mark.long
def test_pieces_in_any_order_make_the_same_sums(x64):
    """A stream cut into chunks of any size, in two orders, and one row at a time."""
    data = dataset(weight=np.maximum(WEIGHT, 1))
    order = RNG.permutation(N)
    whole = jaxsvm.fit(jaxsvm.least_squares(0.1), data, KEY).model
    for rows, batch in ((np.arange(N), 20), (order, 1)):
        chunks = [jaxsvm.take(data, jnp.asarray(part)) for part in np.split(rows, [7, 40])]
        run = jaxsvm.stream(jaxsvm.least_squares(0.1), chunks, KEY, batch_size=batch)
        np.testing.assert_allclose(run.model.w, whole.w, rtol=1e-9)
        np.testing.assert_allclose(run.model.b, whole.b, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("bias", BIASES)
def test_weights_are_copies_and_padding_changes_nothing(bias, x64):
    times = WEIGHT.astype(int)
    copied = dataset(np.repeat(X, times, 0), np.repeat(Y, times), None)
    solver = jaxsvm.least_squares(0.1, bias=bias)
    one, other = (jaxsvm.fit(solver, data, KEY).model for data in (wild(dataset()), copied))
    np.testing.assert_allclose(one.w, other.w, rtol=1e-9)
    state = jaxsvm.fit(solver, copied, KEY).state.solver
    padding = copied._replace(weight=0 * copied.weight, x=copied.x + 1)
    after, info = jaxsvm.step(solver, state, padding)
    for before, now in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-14)
    assert info.evals == 0


def test_a_stream_of_equal_chunks_reads_all_rows(x64):
    data = dataset(weight=None)
    run = jaxsvm.stream(jaxsvm.least_squares(0.1), jaxsvm.data.chunks(data, rows=20), KEY)
    assert int(run.state.step) == 3 and int(run.state.n_pending) == 0
    np.testing.assert_allclose(
        run.model.w, jaxsvm.fit(jaxsvm.least_squares(0.1), data, KEY).model.w, rtol=1e-9
    )


def test_limits(x64):
    """Large lam: w = c / (n lam) and b = mean y. Small lam: NumPy's least squares."""
    data = dataset()
    large = jaxsvm.fit(jaxsvm.least_squares(1e9), data, KEY).model
    mean_x, mean_y = np.average(X, axis=0, weights=WEIGHT), np.average(Y, weights=WEIGHT)
    c = (WEIGHT[:, None] * (X - mean_x)).T @ (Y - mean_y)
    np.testing.assert_allclose(large.w, c / (WEIGHT.sum() * 1e9), rtol=1e-5)
    np.testing.assert_allclose(large.b, mean_y, rtol=1e-6)
    small = jaxsvm.fit(jaxsvm.least_squares(1e-12), data, KEY).model
    root = np.sqrt(WEIGHT)[:, None]
    w = np.linalg.lstsq(root * np.c_[X, np.ones(N)], root[:, 0] * Y)[0]
    np.testing.assert_allclose(np.append(small.w, small.b), w, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_classes_share_one_factorisation_and_are_the_classes_one_by_one(x64):
    data = dataset(y=NUMBERS, task="multiclass")
    run = jaxsvm.fit(jaxsvm.least_squares(0.1, classes=CLASSES), data, KEY)
    assert run.state.solver.moments.gram.shape == (P + CLASSES, P + CLASSES)
    made = RidgeClassifier(alpha=0.1 * WEIGHT.sum(), solver="svd").fit(X, NUMBERS, WEIGHT)
    np.testing.assert_allclose(run.model(data.x), made.decision_function(X), rtol=1e-7, atol=1e-9)
    rest = jaxsvm.fit(jaxsvm.one_vs_rest(jaxsvm.least_squares(0.1), classes=CLASSES), data, KEY)
    np.testing.assert_allclose(rest.model(data.x), run.model(data.x), rtol=1e-9)
    assert jax.tree.structure(rest.model) == jax.tree.structure(run.model)


@pytest.mark.long
def test_all_pivots_are_kernel_ridge_regression(x64):
    """The features of a full factorisation are the kernel."""
    x = (X - X.mean(0)) / X.std(0)
    data = dataset(x, weight=np.ones(N))
    phi = features.cholesky(kernels.rbf(gamma=0.1), data.x, rank=N, tol=0.0)
    model = jaxsvm.fit(
        jaxsvm.on_features(phi, jaxsvm.least_squares(0.01, bias="none")), data, KEY
    ).model
    made = KernelRidge(alpha=0.01 * N, kernel="rbf", gamma=0.1).fit(x, Y)
    new = x + 0.1
    np.testing.assert_allclose(model(new), made.predict(new), rtol=1e-6, atol=1e-6)


@pytest.mark.long
def test_sums_that_rounding_made_indefinite_have_a_solution():
    """Columns in pairs that differ by less than float32 holds."""
    x = RNG.normal(size=(N, 3))
    data = dataset(np.concatenate([x, x + 1e-9], 1), x[:, 0], dtype=np.float32)
    run = jaxsvm.fit(jaxsvm.least_squares(1e-12), data, KEY)
    assert run.finite
    np.testing.assert_allclose(run.model(data.x), x[:, 0], atol=1e-2)


# ridge_path


@pytest.mark.parametrize("bias", BIASES)
def test_the_path_is_ridge_regression_at_each_lam(bias):
    path = jaxsvm.ridge_path(wild(dataset(dtype=np.float32)), lam=LAMS, bias=bias)
    x, y = X.astype(np.float32).astype(float), Y.astype(np.float32).astype(float)
    for i, lam in enumerate(LAMS):
        w, b = peer(lam, bias, x, y)
        np.testing.assert_allclose(path.w[i], w, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(path.objective[i], primal(w, b, lam, bias, x, y), rtol=1e-10)
        np.testing.assert_allclose(
            primal(path.w[i], path.b[i], lam, bias, x, y), path.objective[i], rtol=1e-10
        )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", BIASES)
def test_leave_one_out_errors_are_those_of_refits(bias, x64):
    """One copy of a row is left out, at the same total penalty."""
    data = wild(dataset())
    path = jaxsvm.ridge_path(data, lam=LAMS, bias=bias)
    labels = jaxsvm.ridge_path(data._replace(y=jnp.asarray(LABELS)), lam=LAMS, bias=bias)
    for i, lam in enumerate(LAMS):
        squared, mistakes = 0.0, 0.0
        for row in np.flatnonzero(WEIGHT):
            rest = WEIGHT - (np.arange(N) == row)
            total = lam * WEIGHT.sum() / rest.sum()
            w, b = peer(total, bias, weight=rest)
            squared += WEIGHT[row] * (Y[row] - X[row] @ w - b) ** 2
            w, b = peer(total, bias, y=LABELS, weight=rest)
            mistakes += WEIGHT[row] * (LABELS[row] * (X[row] @ w + b) <= 0)
        np.testing.assert_allclose(path.loo_error[i], squared / WEIGHT.sum(), rtol=1e-8)
        np.testing.assert_allclose(labels.loo_mistakes[i], mistakes / WEIGHT.sum(), rtol=1e-12)
    assert path.best == int(np.argmin(path.loo_error))


def test_the_errors_are_those_of_RidgeCV():
    one = np.ones(N)
    path = jaxsvm.ridge_path(dataset(weight=one, dtype=np.float32), lam=LAMS)
    x, y = X.astype(np.float32).astype(float), Y.astype(np.float32).astype(float)
    made = RidgeCV(LAMS * N, gcv_mode="eigen", store_cv_results=True).fit(x, y)
    np.testing.assert_allclose(path.loo_error, made.cv_results_.mean(0), rtol=1e-8)
    np.testing.assert_allclose(LAMS[path.best] * N, made.alpha_)
    np.testing.assert_allclose(
        path.model(path.best)(x.astype(np.float32)), made.predict(x), rtol=1e-4
    )


def test_weight_k_is_k_copies_on_the_path(x64):
    times = WEIGHT.astype(int)
    one = jaxsvm.ridge_path(dataset(), lam=LAMS)
    other = jaxsvm.ridge_path(dataset(np.repeat(X, times, 0), np.repeat(Y, times), None), lam=LAMS)
    for have, want in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-7, atol=1e-9)


def test_the_first_row_of_the_path_may_have_weight_0(x64):
    order = np.argsort(WEIGHT, kind="stable")
    rows = dataset(X[order], Y[order], WEIGHT[order])
    for have, want in zip(
        *(jax.tree.leaves(jaxsvm.ridge_path(data, lam=LAMS)) for data in (wild(rows), rows)),
        strict=True,
    ):
        np.testing.assert_allclose(have, want, rtol=1e-9)


def test_weights_below_1_are_left_out_as_a_whole(x64):
    """Weights of sum 1: row i with all of its weight, at the same total penalty."""
    weight = WEIGHT / WEIGHT.sum()
    path = jaxsvm.ridge_path(dataset(weight=weight), lam=[0.1])
    squared = 0.0
    for row in np.flatnonzero(weight):
        rest = np.where(np.arange(N) == row, 0, weight)
        w, b = peer(0.1 / rest.sum(), "free", weight=rest)
        squared += weight[row] * (Y[row] - X[row] @ w - b) ** 2
    np.testing.assert_allclose(path.loo_error, squared, rtol=1e-8)


def test_the_path_of_classes_is_that_of_each_class(x64):
    path = jaxsvm.ridge_path(dataset(y=NUMBERS, task="multiclass"), lam=LAMS, classes=CLASSES)
    one_by_one = [
        jaxsvm.ridge_path(dataset(y=np.where(c == NUMBERS, 1.0, -1.0)), lam=LAMS)
        for c in range(CLASSES)
    ]
    np.testing.assert_allclose(path.w, np.stack([each.w for each in one_by_one], 1), rtol=1e-9)
    np.testing.assert_allclose(path.b, np.stack([each.b for each in one_by_one], 1), rtol=1e-9)
    for name in ("objective", "loo_error"):
        np.testing.assert_allclose(
            getattr(path, name), sum(getattr(each, name) for each in one_by_one), rtol=1e-9
        )
    mistakes = 0.0
    for row in np.flatnonzero(WEIGHT):
        rest = WEIGHT - (np.arange(N) == row)
        made = RidgeClassifier(alpha=LAMS[1] * WEIGHT.sum(), solver="svd").fit(X, NUMBERS, rest)
        mistakes += WEIGHT[row] * (made.predict(X[row : row + 1])[0] != NUMBERS[row])
    np.testing.assert_allclose(path.loo_mistakes[1], mistakes / WEIGHT.sum())
    model = path.model(1)
    assert isinstance(model, models.OneVsRest) and model(jnp.asarray(X)).shape == (N, CLASSES)


def test_more_columns_than_rows(x64):
    """Eigenvalues of 0; the least-norm solution at a small lam."""
    random = np.random.default_rng(1)
    x, y = random.normal(size=(8, 20)), random.normal(size=8)
    # lam / least eigenvalue and eps / lam, the two distances to the least norm, are both some 1e-8
    path = jaxsvm.ridge_path(dataset(x, y, None), lam=[1e-8, 1.0], bias="none")
    np.testing.assert_allclose(path.w[0], np.linalg.lstsq(x, y)[0], rtol=1e-5, atol=1e-7)
    w, b = peer(1.0, "none", x, y, np.ones(8))
    np.testing.assert_allclose(path.w[1], w, rtol=1e-9)


@pytest.mark.long
def test_rows_beyond_a_block_and_inside_of_a_transformation(x64):
    x = RNG.normal(size=(5000, 3))
    y = x @ [1.0, 2.0, 3.0] + RNG.normal(size=5000)
    data = dataset(x, y, None)
    path = jaxsvm.ridge_path(data, lam=LAMS)
    np.testing.assert_allclose(path.w[2], peer(LAMS[2], "free", x, y, np.ones(5000))[0], rtol=1e-9)
    made = RidgeCV(LAMS * 5000, gcv_mode="eigen", store_cv_results=True).fit(x, y)
    np.testing.assert_allclose(path.loo_error, made.cv_results_.mean(0), rtol=1e-9)
    inside = jax.jit(lambda lam: jaxsvm.ridge_path(data, lam=lam))(jnp.asarray(LAMS))
    np.testing.assert_allclose(inside.loo_error, path.loo_error, rtol=1e-12)
    slope = jax.jacfwd(lambda lam: jaxsvm.ridge_path(data, lam=lam).loo_error[0])(
        jnp.asarray(LAMS[2:3])
    )
    errors = jaxsvm.ridge_path(data, lam=LAMS[2] + 1e-5 * np.array([-1, 1])).loo_error
    np.testing.assert_allclose(slope[0], np.diff(errors)[0] / 2e-5, rtol=1e-5)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("bias", ["free", "none", "feature"])
def test_inside_of_a_transformation_float32_rows_keep_their_digits(bias):
    """Fewer rows than columns: 1 minus a leverage, some lam / eigenvalue, is below the rounding of
    float32."""
    random = np.random.default_rng(1)
    x, y = random.normal(size=(8, 20)).astype("f"), random.normal(size=8).astype("f")
    lams, data = np.array([1e-8, 1e-4, 1.0], "f"), dataset(x, y, None, dtype=np.float32)
    outside = jaxsvm.ridge_path(data, lam=lams, bias=bias)
    inside = jax.jit(lambda data, lam: jaxsvm.ridge_path(data, lam=lam, bias=bias))(
        data, jnp.asarray(lams)
    )
    rows, targets = x.astype(float), y.astype(float)
    rows = np.c_[rows, np.ones(8)] if bias == "feature" else rows
    for k, lam in enumerate(lams.astype(float)):
        errors = []
        for i in range(8):
            z, t = np.delete(rows, i, 0), np.delete(targets, i)
            shift, level = (z.mean(0), t.mean()) if bias == "free" else (0 * z[0], 0)
            alpha = np.linalg.solve((z - shift) @ (z - shift).T + 8 * lam * np.eye(7), t - level)
            errors.append(targets[i] - level - (rows[i] - shift) @ (z - shift).T @ alpha)
        for path in (outside, inside):
            np.testing.assert_allclose(path.loo_error[k], np.mean(np.square(errors)), rtol=1e-5)
    for have, want in zip(jax.tree.leaves(inside), jax.tree.leaves(outside), strict=True):
        assert have.dtype == jnp.float32
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)


# what is refused


@pytest.mark.long
@pytest.mark.parametrize("n", [45_000, 130_000])
def test_all_rows_are_read_whatever_their_number(n):
    """An update reads 4,096 rows; ten of them, or 20, are not enough."""
    x = np.linspace(-1, 1, n, dtype=np.float32)[:, None]
    data = jaxsvm.dataset(x, np.abs(x[:, 0]), task="regression")
    result = jaxsvm.fit(jaxsvm.least_squares(1e-3), data, KEY)
    assert result.converged
    np.testing.assert_allclose(result.model(data.x[:1]), [0.5], atol=1e-3)
