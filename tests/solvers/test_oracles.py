"""The solvers against plain NumPy transcriptions of their papers, on the same rows, and against one
another."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm

import jaxsvm
from jaxsvm import kernels
from jaxsvm.engines.coordinate_ascent import CoordinateState, dual_coef
from jaxsvm.engines.gradient_descent import GradientState, Weights
from jaxsvm.engines.online_learning import OnlineState
from jaxsvm.models import Linear
from jaxsvm.spaces.running_mean import MeanState

# three passes a run; everything has these shapes, so that programs are compiled once
N, D, T = (24, 3, 72)
# float64: 72 steps of rounding (1e-16 each) on iterates of size 1, with room for cancellation
TOL = 1e-12
TOL32 = 3e-5  # float32: 72 steps of 6e-8 each


def _problem():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, D)) * [1.0, 0.7, 0.4] + [0.3, 0.0, 0.2]
    y = np.where(x @ [1.0, -1.0, 0.5] + 0.6 * rng.normal(size=N) > 0, 1.0, -1.0)
    return x, y


X, Y = _problem()
ONES = np.c_[X, np.ones(N)]
R = np.sqrt((X**2).sum(1).max())
LAM, C = 0.1, 1 / (0.1 * N)
UNIFORM = np.random.default_rng(1).integers(0, N, (T, 1))
BATCHES = np.random.default_rng(2).integers(0, N, (T, 4))  # rows repeat within some batches
PASSES = np.concatenate([np.random.default_rng(s).permutation(N) for s in range(T // N)])
WHOLE = np.tile(np.arange(N), (T, 1))
SIGMA = 0.9
RBF = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * SIGMA**2))


class Trace(NamedTuple):
    w: np.ndarray  # (T, d) or (T, n)  weights or coefficients of the model after each step
    b: np.ndarray  # (T,)
    inner: (
        np.ndarray
    )  # the same of what the solver itself holds: dual variables, the iterate behind a mean
    info: jaxsvm.Info
    state: object  # after the last step


def _inner(state):
    if isinstance(state, CoordinateState):
        return dual_coef(state)
    if isinstance(state, OnlineState):
        f = state.f.f if isinstance(state.f, MeanState) else state.f
        return getattr(f, "coef", f)
    if isinstance(state, GradientState):
        return state.params.w
    return state.inner.params.w  # averaged


@jax.jit
def _scan(solver, state, data, rows):
    def step(state, row):
        batch = jaxsvm.take(data, row) if not solver.needs_all_rows else data._replace(index=row)
        state, info = solver.update(state, batch)
        model = solver.model(state, data)
        return state, (
            (model.w if isinstance(model, Linear) else model.coef),
            model.b,
            _inner(state),
            info,
        )

    return jax.lax.scan(step, state, rows)


def dataset(x=X, y=Y, weight=None, dtype=np.float64, task="binary"):
    with np.errstate(all="raise"):
        return jaxsvm.dataset(x.astype(dtype), y, weight, task=task)


def run(solver, rows, data=None, *, times=1, state=None, fed=None):
    """`times` runs over `rows`, one after the other; the trace of the last. `fed`: the weights that
    steps see."""
    data = dataset() if data is None else data
    state = solver.init(jax.random.key(0), data) if state is None else state
    given = data if fed is None else data._replace(weight=jnp.asarray(fed))
    rows = jnp.asarray(rows.reshape(len(rows), -1), jnp.int32)
    for _ in range(times):
        state, out = _scan(solver, state, given, rows)
    w, b, inner, info = jax.tree.map(np.asarray, out)
    return Trace(w, b, inner, info, state)


def close(got, want, tol=TOL):
    """Equal to `tol` of the largest number there is."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    assert np.abs(got - want).max() <= tol * np.abs(want).max()


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


def sdca_by_hand(gram, y, bound, rows, alpha=None):
    """alpha after each visit, and |change| k(x_i, x_i) at it."""
    alpha, bound = (
        np.zeros(len(y)) if alpha is None else alpha.copy(),
        np.broadcast_to(bound, len(y)),
    )
    trace, moved = [], []
    for i in np.ravel(rows):
        old = alpha[i]
        alpha[i] = np.clip(old + (1 - y[i] * (gram[i] @ (alpha * y))) / gram[i, i], 0, bound[i])
        trace.append(alpha.copy())
        moved.append(abs(alpha[i] - old) * gram[i, i])
    return np.array(trace), np.array(moved)


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


def hinge_primal(w, x, y, lam):
    return lam / 2 * (w**2).sum(-1) + np.maximum(1 - y * (w @ x.T), 0).mean(-1)


def hinge_dual(alpha, gram, y):
    coef = alpha * y
    return alpha.sum(-1) - np.einsum("...i,ij,...j->...", coef, gram, coef) / 2


@functools.cache
def optimum(space="linear"):
    """alpha, w and P* at LAM, by cyclic coordinate ascent until nothing moves."""
    x = {"linear": X, "feature": ONES}.get(space)
    gram = RBF if x is None else x @ x.T
    alpha = np.zeros(N)
    for _ in range(500):
        trace, moved = sdca_by_hand(gram, Y, C, np.tile(np.arange(N), 20), alpha)
        alpha = trace[-1]
        if moved[-N:].max() < 1e-15:
            break
    coef, w = alpha * Y, None if x is None else x.T @ (alpha * Y)
    best = LAM / 2 * coef @ gram @ coef + np.maximum(1 - Y * (gram @ coef), 0).mean()
    assert best - LAM * hinge_dual(alpha, gram, Y) < 1e-13  # its own duality gap
    return alpha, w, best


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
    return {"linear": (None, X @ X.T), "kernel": (kernels.rbf(SIGMA), RBF)}[gram_of]


@pytest.mark.parametrize("rows", [UNIFORM, BATCHES], ids=["one", "batch with repeats"])
@pytest.mark.parametrize("space", ["linear", "kernel"])
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
