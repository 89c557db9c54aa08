"""Constrained descent, perceptrons, dual ascent and subgradients against their papers, in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from by_hand import (
    BATCHES,
    LAM,
    PASSES,
    RBF,
    SIGMA,
    TOL32,
    UNIFORM,
    WHOLE,
    C,
    D,
    N,
    T,
    X,
    Y,
    close,
    dataset,
    hinge_dual,
    hinge_primal,
    optimum,
    run,
    sdca_by_hand,
)

import jaxsvm
from jaxsvm import kernels

R = np.sqrt((X**2).sum(1).max())


def constrained_by_hand(gram, y, radius, rows):
    """Mean of the iterates before each step, and the iterate after it."""
    coef, total, means, iterates = np.zeros(len(y)), np.zeros(len(y)), [], []
    reach = np.sqrt(np.diagonal(gram).max())
    for t, batch in enumerate(rows, 1):
        total += coef
        hit = batch[y[batch] * (gram[batch] @ coef) < 1]
        coef = coef.copy()
        np.add.at(coef, hit, radius / (reach * np.sqrt(t)) * y[hit] / len(batch))
        size = np.sqrt(coef @ gram @ coef)
        coef = coef * radius / size if size > radius else coef
        means.append(total / t)
        iterates.append(coef)
    return np.array(means), np.array(iterates)


def perceptron_by_hand(gram, y, rows):
    """Coefficients after each step, the mean of those before each step, the share of mistakes."""
    coef, total, coefs, means, wrong = np.zeros(len(y)), np.zeros(len(y)), [], [], []
    for t, batch in enumerate(rows, 1):
        total += coef
        hit = y[batch] * (gram[batch] @ coef) <= 0
        coef = coef.copy()
        np.add.at(coef, batch[hit], y[batch[hit]] / len(batch))
        coefs.append(coef)
        means.append(total / t)
        wrong.append(hit.mean())
    return np.array(coefs), np.array(means), np.array(wrong)


def subgradient_by_hand(x, y, lam, steps, *, weight=None):
    share = np.full(len(y), 1 / len(y)) if weight is None else weight / weight.sum()
    w, total, trace = np.zeros(x.shape[1]), np.zeros(x.shape[1]), []
    for t in range(1, steps + 1):
        g = lam * w - (share * y * (y * (x @ w) < 1)) @ x
        w = w - g / (lam * t)
        w = w * min(1, 1 / (np.sqrt(lam) * np.linalg.norm(w)))
        total = total + t * w
        trace.append(total / (t * (t + 1) / 2))
    return np.array(trace)


# constrained SGD


@pytest.mark.parametrize("rows", [UNIFORM, BATCHES], ids=["one", "batch"])
@pytest.mark.parametrize("kernel", [None, kernels.rbf(SIGMA)], ids=["linear", "rbf"])
def test_constrained_sgd_step_by_step_and_in_its_ball(kernel, rows, x64):
    radius, gram = 1.3, X @ X.T if kernel is None else RBF
    got = run(jaxsvm.constrained_sgd(radius, kernel), rows)
    means, iterates = constrained_by_hand(gram, Y, radius, rows)
    close(got.w, means @ X if kernel is None else means)
    close(got.inner, iterates @ X if kernel is None else iterates)
    square = (
        (got.inner**2).sum(1)
        if kernel is None
        else np.einsum("ti,ij,tj->t", got.inner, gram, got.inner)
    )
    assert square.max() <= radius**2 * (1 + 1e-12)  # |w|^2 is carried along: 72 roundings
    assert square.max() >= radius**2 * (1 - 1e-12)  # and the edge is reached


def test_constrained_sgd_regret_and_guarantee(x64):
    """Zinkevich: sum of l_t(w_t) - l_t(u) <= 3 r R sqrt(T), for every u in the ball and any rows at
    all."""
    _, best, _ = optimum()
    radius, worst = np.linalg.norm(best), []
    hinge = np.maximum(1 - Y * (X @ best), 0)
    excess = []
    for seed in range(6):
        rows = np.random.default_rng(seed).integers(0, N, (T, 1))
        got = run(jaxsvm.constrained_sgd(radius), rows)
        worst.append((got.info.loss - hinge[rows[:, 0]]).sum())
        excess.append(hinge_primal(got.w[-1], X, Y, 0.0) - hinge.mean())
    assert max(worst) <= 3 * radius * R * np.sqrt(T)
    # In expectation the mean iterate is above the minimum over the ball (u = w*_lam, lam |w*| the
    # multiplier) by less.
    assert -1e-12 <= min(excess)
    assert np.mean(excess) <= 3 * radius * R / np.sqrt(T)
    assert np.mean(excess) <= 0.1  # measured 0.027: the bound above is loose


# perceptron


@pytest.mark.parametrize(
    "average, rows", [(False, UNIFORM), (True, BATCHES)], ids=["last of one", "mean of batch"]
)
@pytest.mark.parametrize("kernel", [None, kernels.rbf(SIGMA)], ids=["linear", "rbf"])
def test_perceptron_step_by_step(kernel, rows, average, x64):
    gram = X @ X.T if kernel is None else RBF
    got = run(jaxsvm.perceptron(kernel, average=average), rows)
    coefs, means, wrong = perceptron_by_hand(gram, Y, rows)
    want = means if average else coefs
    close(got.w, want @ X if kernel is None else want)
    np.testing.assert_array_equal(got.info.residual, wrong)
    np.testing.assert_array_equal(got.info.loss, wrong)


def test_perceptron_mistake_bound(x64):
    """At most (R/G)^2 mistakes, G the margin of a separator of norm 1, however often and in
    whatever order rows come."""
    w = np.array([1.0, -1.0, 0.5])
    x = X + np.outer(np.sign(X @ w), w) * 0.25
    y = np.sign(x @ w)
    svm = (
        sklearn.svm.LinearSVC(C=1e4, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6)
        .fit(x, y)
        .coef_[0]
    )
    margin = (y * (x @ svm)).min() / np.linalg.norm(svm)
    reach = np.sqrt((x**2).sum(1).max())
    data, state, mistakes = dataset(x, y), None, 0
    for _ in range(10):
        got = run(jaxsvm.perceptron(), PASSES, data, state=state)
        state, mistakes = got.state, mistakes + got.info.loss.sum()
    assert 3 <= mistakes <= (reach / margin) ** 2
    assert got.info.loss.sum() == 0 and (y * (x @ got.w[-1]) > 0).all()  # ended, and separates


# SDCA


def _kernel(gram_of):
    squares = kernels.polynomial(degree=2), (X @ X.T + 1) ** 2  # its diagonal is not 1
    return {"linear": (None, X @ X.T), "kernel": (kernels.rbf(SIGMA), RBF), "squares": squares}[
        gram_of
    ]


@pytest.mark.long(but=3)
@pytest.mark.parametrize("rows", [UNIFORM, BATCHES], ids=["one", "batch with repeats"])
@pytest.mark.parametrize("space", ["squares", "linear", "kernel"])
def test_sdca_visits_rows_one_after_the_other(space, rows, x64):
    assert rows.shape[1] == 1 or any(len(set(batch)) < 4 for batch in rows)
    kernel, gram = _kernel(space)
    got = run(jaxsvm.sdca(C, kernel), rows)
    alpha, moved = sdca_by_hand(gram, Y, C, rows)
    after = alpha[rows.shape[1] - 1 :: rows.shape[1]]
    close(got.inner, after * Y)
    close(got.w, (after * Y) @ X if space == "linear" else after * Y)
    # No step lowers the dual; the gain that a step reports is what it gained; the box holds
    # exactly.
    value = np.r_[0, hinge_dual(got.inner * Y, gram, Y)]
    assert np.diff(value).min() >= -1e-13
    np.testing.assert_allclose(got.info.progress.sum(1), np.diff(value), atol=1e-13 * value.max())
    assert (got.inner * Y >= 0).all() and (got.inner * Y <= C).all() and (got.inner * Y == C).any()
    np.testing.assert_array_equal(got.info.support, (after != 0).sum(1))
    # The residual: the largest move of the last stretch of steps in which every row was visited,
    # infinite before.
    want, last, seen, worst = [], np.inf, set(), 0
    for batch, moves in zip(rows, moved.reshape(rows.shape), strict=True):
        seen, worst = seen | set(batch.tolist()), max(worst, moves.max())
        if len(seen) == N:
            last, seen, worst = worst, set(), 0
        want.append(last)
    assert np.isfinite(last) == (len(set(rows.ravel().tolist())) == N)
    np.testing.assert_allclose(got.info.residual, want, rtol=1e-10, atol=1e-13)


@pytest.mark.long
def test_sdca_in_float32():
    x = X.astype(np.float32).astype(np.float64)
    got = run(jaxsvm.sdca(C), UNIFORM, dataset(dtype=np.float32))
    alpha, _ = sdca_by_hand(x @ x.T, Y, C, UNIFORM)
    assert got.w.dtype == got.inner.dtype == np.float32
    close(got.w, (alpha * Y) @ x, TOL32)
    assert (got.inner * Y <= np.float32(C)).all()


def test_sdca_with_example_weights_has_boxes_of_their_size(x64):
    weight = np.random.default_rng(5).integers(0, 4, N).astype(float)
    data = dataset(weight=weight)
    rows = np.where(weight[UNIFORM] > 0, UNIFORM, -1)  # padding where the row does not count
    got = run(jaxsvm.sdca(C), rows, data)
    alpha, _ = sdca_by_hand(X @ X.T, Y, C * weight, rows[rows >= 0])
    close(got.inner[-1], alpha[-1] * Y)
    assert (got.inner[:, weight == 0] == 0).all()


def test_sdca_meets_the_optimality_conditions(x64):
    """U1 and U4 at the optimum, by a fit of our own."""
    for space in ("linear", "kernel"):
        kernel, gram = _kernel(space)
        got = run(jaxsvm.sdca(C, kernel), PASSES, times=200)
        alpha, margin = got.inner[-1] * Y, Y * (gram @ got.inner[-1])
        if space == "linear":  # after 14,400 visits w is still the sum of its rows
            close(got.w[-1], got.inner[-1] @ X, 1e-11)
        best = optimum("linear" if space == "linear" else "rbf")[2]
        close(LAM * hinge_dual(alpha, gram, Y), best, 1e-10)
        inside = (alpha > 1e-9) & (alpha < C - 1e-9)
        assert inside.any()
        np.testing.assert_allclose(margin[inside], 1, atol=1e-8)
        assert (alpha[margin > 1 + 1e-8] == 0).all() and (alpha[margin < 1 - 1e-8] == C).all()
        norm = alpha * Y @ gram @ (alpha * Y)
        total = LAM * norm + np.maximum(1 - margin, 0).mean()
        assert total == pytest.approx(LAM * alpha.sum(), rel=1e-8) and total <= 1
        assert got.info.residual[-1] < 1e-8


@pytest.mark.parametrize("space", ["linear", "kernel"])
def test_sdca_goes_on_from_given_dual_variables(space, x64):
    kernel, gram = _kernel(space)
    alpha = np.random.default_rng(3).uniform(0, C, N)
    got = run(jaxsvm.sdca(C, kernel, start=jnp.asarray(alpha)), UNIFORM)
    want, _ = sdca_by_hand(gram, Y, C, UNIFORM, alpha)
    close(got.inner, want * Y)
    best = optimum("linear" if space == "linear" else "rbf")[0]
    again = run(jaxsvm.sdca(C, kernel, start=jnp.asarray(best)), UNIFORM)
    close(again.inner[-1], best * Y, 1e-11)  # at the optimum nothing moves


@pytest.mark.long
def test_sdca_starts_from_more_rows_than_one_block(x64):
    rng = np.random.default_rng(4)
    x, alpha = rng.normal(size=(300, 2)), rng.uniform(0, 1, 300)
    data = dataset(x, np.where(rng.random(300) < 0.5, 1.0, -1.0))
    coef, gram = alpha * np.asarray(data.y), np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    start = jnp.asarray(alpha)
    close(jaxsvm.sdca(1.0, start=start).init(jax.random.key(0), data).f, coef @ x)
    close(
        jaxsvm.sdca(1.0, kernels.rbf(1.0), start=start).init(jax.random.key(0), data).f.response,
        gram @ coef,
    )
    with pytest.raises(ValueError, match="start has shape"):
        jaxsvm.sdca(1.0, start=start[:-1]).init(jax.random.key(0), data)


# subgradient


def test_subgradient_step_by_step(x64):
    got = run(jaxsvm.subgradient(LAM), WHOLE)
    close(got.w, subgradient_by_hand(X, Y, LAM, T))
    before = np.r_[np.zeros((1, D)), got.inner[:-1]]
    g = LAM * before - ((Y * (before @ X.T * Y < 1)) @ X) / N
    close(got.info.residual, np.linalg.norm(g, axis=1))
