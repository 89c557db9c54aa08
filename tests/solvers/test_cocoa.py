"""CoCoA+ against a transcription in NumPy, LIBLINEAR and LIBSVM; its dual, its certificate, its
blocks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm.samplers import epochs

KEY, C, N = jax.random.key(2), 0.5, 62  # in blocks of 16, 16, 16 and 14 rows


@functools.cache
def problem(n=N, real=False):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 5)) * [1, 2, 0.5, 1, 1]
    score = x @ [1.0, -0.5, 1.0, 0.0, 0.3] + 0.7 * rng.normal(size=n)
    return x, score if real else np.sign(score)


def data(dtype=np.float64):
    x, y = problem()
    return jaxsvm.dataset(x.astype(dtype), y)


def transcription(x, y, weight, blocks, orders):
    """Algorithm 1 of Ma et al. with one pass of coordinate ascent as the local solver: w and alpha
    after each round."""
    n, m = len(y), -(-len(y) // blocks)
    w, alpha, history = np.zeros(x.shape[1]), np.zeros(n), []
    for order in orders:  # (blocks, visits) row numbers in the block
        total = np.zeros_like(w)
        for j in range(blocks):
            local, delta = w.copy(), np.zeros_like(w)
            for i in order[j] + m * j:
                gain = (1 - y[i] * (x[i] @ local)) / (blocks * x[i] @ x[i])
                change = np.clip(alpha[i] + gain, 0, C * weight[i]) - alpha[i]
                alpha[i] += change
                local += blocks * change * y[i] * x[i]
                delta += change * y[i] * x[i]
            total += delta
        w = w + total
        history.append((w.copy(), alpha.copy()))
    return history


def visits(state, rounds, visit):
    """The orders of a run, by the sampler of single blocks."""
    orders = []
    for t in range(rounds):
        blocks = []
        for j in range(state.order.count.shape[0]):
            own = jax.tree.map(lambda a: a[j], state.order)
            steps = -(-int(own.count) // visit)
            index = np.asarray(
                jax.jit(epochs(visit).draw, static_argnums=2)(own, jnp.int32(t * steps), steps)
            ).ravel()
            blocks.append(index[index >= 0])
        orders.append(blocks)
    return orders


@pytest.mark.long(but=1)
@pytest.mark.parametrize("visit", [1, 4])
def test_rounds_are_those_of_the_paper(visit, x64):
    (x, y), weight = problem(), np.ones(N)
    weight[[3, 20, 61]] = [0, 2, 0.5]
    solver = jaxsvm.cocoa(C, blocks=4, visit=visit)
    run = jaxsvm.fit(solver, jaxsvm.dataset(x, y, weight), KEY, steps=3, every=1)
    history = transcription(x, y, weight, 4, visits(run.state.solver, 3, visit))
    np.testing.assert_allclose(run.model.w, history[-1][0], rtol=1e-10, atol=1e-12)
    last = run.state.solver.local
    alpha = np.stack([np.asarray(a) for a in last.coef]).ravel()[:N] * y
    pending = [
        (16 * j + int(last.pending[0][j, 0]), float(last.pending[1][j, 0])) for j in range(4)
    ]
    for i, value in pending:
        alpha[i] = value * y[i]
    np.testing.assert_allclose(alpha, history[-1][1], rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_the_dual_never_falls_and_the_optimum_is_that_of_liblinear(x64):
    (x, y), rows = problem(), data()
    best = (
        LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0)
        .fit(x, y)
        .coef_[0]
    )
    primal = lambda w: w @ w / 2 + C * np.maximum(1 - y * (x @ w), 0).sum()
    state, duals = None, [0.0]
    for _ in range(12):
        run = jaxsvm.fit(
            jaxsvm.cocoa(C, blocks=4), rows, None if state else KEY, steps=1, every=1, state=state
        )
        state = run.state
        local = state.solver.local
        coef = np.asarray(jax.vmap(lambda a, i, v: a.at[i].set(v))(local.coef, *local.pending[:2]))
        alpha = coef.ravel()[:N] * y
        assert (alpha >= 0).all() and (alpha <= C).all()
        w = (alpha * y) @ x
        np.testing.assert_allclose(w, run.model.w, rtol=1e-9, atol=1e-12)
        duals.append(alpha.sum() - w @ w / 2)
    assert (np.diff(duals) >= -1e-12).all() and duals[-1] <= primal(best)
    run = jaxsvm.fit(jaxsvm.cocoa(C, blocks=4), rows, state=state, steps=3000, tol=1e-9)
    assert run.converged
    np.testing.assert_allclose(run.model.w, best, rtol=1e-5, atol=1e-6)
    certificate = jaxsvm.certificate(run.model, rows, 1 / (C * N), passes=300)
    assert certificate.gap < 1e-6 and float(certificate.primal) == pytest.approx(
        primal(best) / (C * N), rel=1e-6
    )


@pytest.mark.long
def test_one_block_is_coordinate_ascent():
    """With one block nothing is stretched: a round is a pass of sdca in the same order."""
    rows = data(np.float32)
    run = jaxsvm.fit(jaxsvm.cocoa(C, blocks=1, visit=1), rows, KEY, steps=2, every=1)
    state = jaxsvm.sdca(C).init(KEY, rows)
    step = jax.jit(jaxsvm.sdca(C).update)
    for order in visits(run.state.solver, 2, 1):
        for i in order[0]:
            state, _ = step(state, jaxsvm.take(rows, jnp.array([i], jnp.int32)))
    np.testing.assert_allclose(run.model.w, state.f, rtol=2e-5, atol=1e-6)
