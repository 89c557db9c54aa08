"""Pegasos and other descents on the weights against their papers, step by step in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import (
    BATCHES,
    LAM,
    ONES,
    PASSES,
    RBF,
    SIGMA,
    TOL32,
    UNIFORM,
    WHOLE,
    D,
    N,
    T,
    X,
    Y,
    close,
    dataset,
    hinge_primal,
    optimum,
    run,
)

import jaxsvm
from jaxsvm import kernels
from jaxsvm.engines.gradient_descent import Weights

# by hand, in NumPy


def pegasos_by_hand(x, y, lam, rows, *, project=True, bias="none", advance=False, w=None):
    x = np.c_[x, np.ones(len(x))] if bias == "feature" else x
    w, b, t, trace = np.zeros(x.shape[1]) if w is None else w, 0.0, 1, []
    for batch in rows:
        hit = batch[y[batch] * (x[batch] @ w + b) < 1]
        w = (1 - 1 / t) * w + y[hit] @ x[hit] / (lam * t * len(batch))
        if bias == "free":
            b += y[hit].sum() / len(batch) / np.sqrt(t)
        if project and np.linalg.norm(w) > 1 / np.sqrt(lam):
            w = w / (np.sqrt(lam) * np.linalg.norm(w))
        t += 1 if len(hit) or not advance else 0
        trace.append(np.r_[w, b])
    trace = np.array(trace)
    return trace[:, :-1] if bias == "feature" else trace


def kernel_pegasos_by_hand(gram, y, lam, rows):
    """Coefficients after each step, and the share of each batch that violated."""
    count, coefs, hits = np.zeros(len(y)), [], []
    for t, batch in enumerate(rows, 1):
        k = len(batch)
        f = np.zeros(k) if t == 1 else gram[batch] @ (count * y) / (lam * k * (t - 1))
        hit = y[batch] * f < 1
        np.add.at(count, batch[hit], 1)
        coefs.append(count * y / (lam * k * t))
        hits.append(hit.mean())
    return np.array(coefs), np.array(hits)


def svmsgd_by_hand(x, y, lam, rows, *, free=False, rate=0.01):
    w, b, t, trace = np.zeros(x.shape[1]), 0.0, 1 / (min(lam**-0.25, 1 / lam) * lam), []
    for i in rows[:, 0]:
        eta, hit = 1 / (lam * t), y[i] * (x[i] @ w + b) < 1
        if hit:
            w = w + eta * y[i] * x[i]
            b += eta * y[i] * rate * free
        w = w * (1 - eta * lam)
        t += 1
        trace.append(np.r_[w, b])
    return np.array(trace)


def asgd_by_hand(x, y, lam, rows, start, *, free=False, rate=0.01):
    eta0, w, b, mean, trace = min(lam**-0.25, 1 / lam), np.zeros(x.shape[1]), 0.0, None, []
    for t, i in enumerate(rows[:, 0]):
        eta = (
            eta0 / (1 + lam * eta0 * t)
            if t < start
            else eta0 / (1 + lam * eta0 * (t - start)) ** 0.75
        )
        hit = y[i] * (x[i] @ w + b) < 1
        w = (1 - lam * eta) * w + hit * eta * y[i] * x[i]
        b += hit * free * rate * eta * y[i]
        now = np.r_[w, b]
        mean = now if t <= start else mean + (now - mean) / (t - start + 1)
        trace.append(mean)
    return np.array(trace)


# Pegasos

PEGASOS = [
    (dict(), UNIFORM),
    (dict(), BATCHES),
    (dict(project=False), UNIFORM),
    (dict(project=False), BATCHES),
    (dict(bias="feature"), UNIFORM),
    (dict(bias="free"), BATCHES),
    (dict(advance_on_violation=True), UNIFORM),
    (dict(advance_on_violation=True, project=False, bias="feature"), UNIFORM),
    (dict(advance_on_violation=True, bias="free"), UNIFORM),
]


@pytest.mark.parametrize("options, rows", PEGASOS, ids=[f"{o}-{r.shape[1]}" for o, r in PEGASOS])
def test_pegasos_is_the_paper_step_by_step(options, rows, x64):
    by_hand = dict(options)
    by_hand["advance"] = by_hand.pop("advance_on_violation", False)
    got = run(jaxsvm.pegasos(LAM, **options), rows)
    close(np.c_[got.w, got.b], pegasos_by_hand(X, Y, LAM, rows, **by_hand))


def test_pegasos_in_float32():
    x = X.astype(np.float32).astype(np.float64)
    got = run(jaxsvm.pegasos(LAM), UNIFORM, dataset(dtype=np.float32))
    assert got.w.dtype == np.float32
    close(got.w, pegasos_by_hand(x, Y, LAM, UNIFORM)[:, :-1], TOL32)


def test_p3_the_start_matters_through_its_violations_only(x64):
    data, solver = dataset(), jaxsvm.pegasos(LAM, project=False)
    state = solver.init(jax.random.key(0), data)
    one, two = np.zeros(D), np.full(D, 1e-3)  # all margins below 1 at both
    other = state._replace(params=Weights(jnp.asarray(two), None))
    assert (Y * (X @ two) < 1).all()
    close(run(solver, UNIFORM, state=other).w, run(solver, UNIFORM, state=state).w)
    # A start with other violations gives another path: the recursion from there.
    far = 50 * np.linalg.lstsq(X, Y, rcond=None)[0]
    first = np.flatnonzero(Y * (X @ far) > 1)[0]
    rows = np.r_[[[first]], UNIFORM[1:]]
    got = run(solver, rows, state=state._replace(params=Weights(jnp.asarray(far), None))).w
    close(got, pegasos_by_hand(X, Y, LAM, rows, project=False, w=far)[:, :-1])
    assert np.abs(got[0]).max() < 1e-13 * np.abs(far).max()  # 1 - 1/t wipes it, as no row was added
    assert np.abs(run(solver, rows, state=state).w[0] - one).min() > 1e-3


def test_p4_on_all_rows_the_order_does_not_matter(x64):
    shuffled = np.array([np.random.default_rng(s).permutation(N) for s in range(T)])
    close(run(jaxsvm.pegasos(LAM), shuffled).w, run(jaxsvm.pegasos(LAM), WHOLE).w)


def test_averaged_pegasos_is_the_mean_of_the_iterates(x64):
    iterates = pegasos_by_hand(X, Y, LAM, UNIFORM)[:, :-1]
    start = 20
    plain = run(jaxsvm.averaged(jaxsvm.pegasos(LAM), start=start), UNIFORM).w
    late = run(jaxsvm.averaged(jaxsvm.pegasos(LAM), weights=lambda t: t + 1.0), UNIFORM).w
    mean = np.cumsum(iterates[start:], 0) / np.arange(1, T - start + 1)[:, None]
    close(plain, np.r_[iterates[:start], mean])
    weight = np.arange(1.0, T + 1)[:, None]
    close(late, np.cumsum(weight * iterates, 0) / np.cumsum(weight, 0))


# kernel Pegasos


@pytest.mark.parametrize("rows", [UNIFORM, BATCHES], ids=["one", "batch"])
def test_kernel_pegasos_counts_and_decisions(rows, x64):
    got = run(jaxsvm.kernel_pegasos(LAM, kernels.rbf(SIGMA)), rows)
    coefs, hits = kernel_pegasos_by_hand(RBF, Y, LAM, rows)
    np.testing.assert_array_equal(got.info.residual, hits)
    assert 0.2 < hits.mean() < 0.95  # both kinds of decision occur
    close(got.w, coefs)
    counts = got.inner * Y * rows.shape[1]
    # k N_i / k: whole up to the rounding of 1/k
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-12)
    assert round(counts[-1].sum()) == round(hits.sum() * rows.shape[1])


def test_kernel_pegasos_in_float32():
    x = X.astype(np.float32).astype(np.float64)
    gram = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * SIGMA**2))
    got = run(jaxsvm.kernel_pegasos(LAM, kernels.rbf(SIGMA)), UNIFORM, dataset(dtype=np.float32))
    coefs, hits = kernel_pegasos_by_hand(gram, Y, LAM, UNIFORM)
    np.testing.assert_array_equal(got.info.residual, hits.astype(np.float32))
    close(got.w, coefs, 1e-6)  # whole numbers over lam t: two roundings


@pytest.mark.parametrize("rows", [UNIFORM, BATCHES], ids=["one", "batch"])
def test_kernel_pegasos_with_the_linear_kernel_is_pegasos(rows, x64):
    coef = run(jaxsvm.kernel_pegasos(LAM, kernels.linear()), rows).w
    close(coef @ X, run(jaxsvm.pegasos(LAM, project=False), rows).w)


# Bottou's, ASGD


@pytest.mark.parametrize("lam", [0.02, 0.5, 3.0])
@pytest.mark.parametrize("free", [False, True])
def test_bottou_sgd_is_the_code_with_skip_1(lam, free, x64):
    got = run(jaxsvm.bottou_sgd(lam, bias="free" if free else "none", bias_rate=0.05), UNIFORM)
    close(np.c_[got.w, got.b], svmsgd_by_hand(X, Y, lam, UNIFORM, free=free, rate=0.05))


@pytest.mark.parametrize("start, free", [(0, False), (30, True)])
def test_asgd_is_the_direct_recursion(start, free, x64):
    got = run(
        jaxsvm.asgd(LAM, average_from=start, bias="free" if free else "none", bias_rate=0.05),
        UNIFORM,
    )
    close(np.c_[got.w, got.b], asgd_by_hand(X, Y, LAM, UNIFORM, start, free=free, rate=0.05))


@pytest.mark.parametrize(
    "solver", [jaxsvm.bottou_sgd, functools.partial(jaxsvm.asgd, average_from=T)]
)
def test_a_feature_bias_converges_to_the_optimum_of_the_augmented_problem(solver, x64):
    """With bias_rate below 1 too: it slows the bias down, the problem stays the same.

    After 43,200 steps P is 1e-6 to 5e-5 above P*; with a penalty on the bias that is 1/bias_rate =
    4 times too heavy
    the limit is 4e-3 above.
    """
    _, best, value = optimum("feature")
    assert abs(best[-1]) > 0.1  # the bias matters
    got = run(solver(LAM, bias="feature", bias_rate=0.25), PASSES, times=600)
    w = np.r_[got.w[-1], got.b[-1]]
    assert hinge_primal(w, ONES, Y, LAM) - value < 2e-4
