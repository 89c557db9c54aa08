"""Wolfe's method against a transcription in NumPy, closed forms and exact optima."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import maker
from oracles import gaussian
from sklearn.datasets import load_breast_cancer

import jaxsvm
from jaxsvm import features, kernels
from jaxsvm.solvers.subgradients.wolfe import Bundle, _move_lightest

N, D, LAM = 60, 4, 0.02
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, D))
Y = np.where(X @ [1.0, -0.7, 0.4, 0.0] + 0.6 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, N) * 1.0
KEY = jax.random.key(5)
RBF = kernels.rbf(1.0)


GRAMS = {"linear": X @ X.T, "rbf": gaussian(X, X)}
KERNELS = {"linear": kernels.linear(), "rbf": RBF}


dataset = maker(X, Y)


@functools.partial(jax.jit, static_argnames=("steps",))
def trace(solver, data, steps):
    """The states after each step, and the infos."""

    def step(state, _):
        state, info = solver.update(state, data)
        return state, (state, info)

    return jax.lax.scan(step, solver.init(KEY, data), None, steps)[1]


# by hand, in NumPy


def along(gram, y, share, lam, beta, d):
    """The t >= 0 that minimises f(beta + t d), by its sorted kinks, and the rows that are active on
    the right of it."""
    c, s = y * (gram @ beta), y * (gram @ d)
    slope0, curve = lam * (beta @ gram @ d), lam * (d @ gram @ d)
    active = np.where(np.abs(1 - c) < 1e-12, s < 0, c < 1).astype(float)
    if slope0 - share @ (active * s) >= 0:
        return 0.0, active
    t, moves = 0.0, np.flatnonzero(s)
    kinks = (1 - c[moves]) / s[moves]
    order = moves[np.argsort(kinks)]
    for i in order[(1 - c[order]) / s[order] > 1e-13]:
        kink = (1 - c[i]) / s[i]
        level = (share @ (active * s) - slope0) / curve
        if level <= kink:
            return level, active
        t, active[i] = kink, s[i] < 0
        if slope0 + curve * t - share @ (active * s) >= 0:
            return t, active
    return (share @ (active * s) - slope0) / curve, active


def by_hand(gram, y, share, lam, weights="norm", reset=0.5):
    """ALGORITHMS 5.4 with two vectors and exact steps; yields what is known after each step."""
    n = len(y)
    beta, a, held, best = np.zeros(n), np.ones(n), None, -np.inf
    while True:
        z = share * y * a
        new = (lam * beta - z, z, a)
        if held is None:
            mean, count = new, 1
        else:
            h, g = held[0], new[0]
            apart = g - h if weights == "norm" else z - held[1]
            den = apart @ gram @ apart
            lead = (
                g @ gram @ apart
                if weights == "norm"
                else apart @ gram @ z - lam * share @ (a - held[2])
            )
            th = np.clip(lead / den, 0, 1) if den > 0 else 0.0
            mean, count = tuple(th * u + (1 - th) * v for u, v in zip(held, new, strict=True)), 2
        dual = share @ mean[2] - mean[1] @ gram @ mean[1] / (2 * lam)
        best = max(best, dual)
        loss = share @ np.maximum(0, 1 - y * (gram @ beta))
        value = lam / 2 * beta @ gram @ beta + loss
        direction = mean[0] if weights == "norm" else lam * beta - mean[1]
        resets = (
            weights == "norm"
            and count > 1
            and mean[0] @ gram @ mean[0] < 2 * lam * reset * max(value - best, 0)
        )
        held, direction = (new, new[0]) if resets else (mean, direction)
        step, a = along(gram, y, share, lam, beta, -direction)
        before, beta = beta, beta - step * direction
        yield beta, held, best, value, loss, resets, before


def primal(gram, y, share, lam, beta):
    return lam / 2 * beta @ gram @ beta + share @ np.maximum(0, 1 - y * (gram @ beta))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("weights", ["dual", "norm"])
def test_a_run_goes_on_with_another_lam(weights, x64):
    """The dual value and the bundle of the old lam do not count: the gap is never below the excess
    of the objective."""
    share = np.full(N, 1 / N)
    before = jaxsvm.fit(jaxsvm.wolfe(1.0, weights=weights), dataset(), KEY, steps=50)
    solver = jaxsvm.wolfe(LAM, weights=weights)
    best = jaxsvm.fit(jaxsvm.interior_point(1 / (LAM * N), bias="none"), dataset(), KEY, tol=1e-9)
    run = jaxsvm.fit(solver, dataset(), state=before.state, steps=20_000, tol=1e-2, every=1)
    assert best.converged and run.converged
    value = lambda w: LAM / 2 * w @ w + share @ np.maximum(0, 1 - Y * (X @ w))
    assert value(np.asarray(run.model.w)) <= value(np.asarray(best.model.w)) * (1 + 1.02e-2)
    one = jaxsvm.fit(solver, dataset(), state=before.state, steps=1)
    excess = 1 - value(np.asarray(best.model.w)) / value(np.asarray(before.model.w))
    assert excess > 0.01 and float(one.info.residual[-1]) >= excess


@pytest.mark.long(but=1)
@pytest.mark.parametrize("weight", [WEIGHT, np.ones(N)], ids=["weights", "plain"])
@pytest.mark.parametrize("weights", ["norm", "dual"])
@pytest.mark.parametrize("name", GRAMS)
def test_the_run_by_hand(name, weights, weight, x64):
    """With resets. In few dimensions a step soon goes along a kink: on which side of it is a matter
    of roundings."""
    gram, share, steps = GRAMS[name], weight / weight.sum(), 60 if name == "rbf" else 8
    x, y = X.copy(), Y.copy()
    # wild rows that do not count
    x[weight == 0], y[weight == 0] = (3 * X[weight == 0], -Y[weight == 0])
    solver, data = jaxsvm.wolfe(LAM, KERNELS[name], weights=weights), dataset(x, y, weight)
    states, info = trace(solver, data, steps)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-8)
    count = 0
    for t, (beta, held, best, value, loss, resets, before) in zip(
        range(steps), by_hand(gram, Y, share, LAM, weights), strict=False
    ):
        close(states.w.coef[t], beta)
        close(states.w.response[t][weight > 0], (gram @ beta)[weight > 0])
        close(states.bundle.h.coef[t, 0], held[0])
        close(states.bundle.a[t, 0][weight > 0], held[2][weight > 0])
        close(states.dual[t], best)
        close(info.loss[t], loss)
        close(info.residual[t], (value - best) / value)
        close(info.progress[t, 0], value - primal(gram, Y, share, LAM, beta))
        assert int(states.bundle.active[t].sum()) == (1 if resets else 2)
        assert int(info.support[t]) == np.count_nonzero(before)
        count += resets
    if name == "rbf":
        assert (1 <= count <= 20) == (weights == "norm") and float(info.residual[-1]) < 1e-2
    assert np.all(np.asarray(info.evals) == N * N) and np.all(np.asarray(info.index) == -1)
    assert np.array_equal(states.t, np.arange(1, steps + 1))
    model = solver.model(jax.tree.map(lambda a: a[-1], states), data)
    close(model(jnp.asarray(X)), gram @ beta)


# closed forms


@pytest.mark.long
@pytest.mark.parametrize("lam", [1.0, 5.0])
@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["plain", "weights"])
@pytest.mark.parametrize(
    "choices", [{}, {"weights": "dual", "bundle": 3}, {"line_search": "wolfe"}], ids=str
)
def test_strong_regularisation_takes_one_step(choices, weight, lam, x64):
    """lam >= max k(x, x): w = sum_i share_i y_i phi(x_i) / lam, where nothing moves any more."""
    share = weight / weight.sum()
    scale = np.sqrt((X**2).sum(1).max())
    for kernel, x in ((RBF, X), (None, X / scale)):
        data = dataset(x, weight=weight)
        states, info = trace(jaxsvm.wolfe(lam, kernel, **choices), data, 4)
        best = share * Y / lam if kernel else share * Y @ x / lam
        for t in range(4):
            np.testing.assert_allclose(states.w.coef[t], best, rtol=1e-13, atol=1e-16)
        gram = GRAMS["rbf"] if kernel else x @ x.T
        np.testing.assert_allclose(info.residual[0], 1 - states.dual[0], rtol=1e-13)  # f(0) = 1
        np.testing.assert_allclose(info.residual[1:], 0, atol=1e-14)
        np.testing.assert_allclose(
            states.dual[0], 1 - (share * Y) @ gram @ (share * Y) / (2 * lam), rtol=1e-13
        )
        run = jaxsvm.fit(
            jaxsvm.wolfe(lam, kernel, **choices), data, KEY, steps=9, every=1, tol=1e-12
        )
        assert run.converged and int(run.state.step) == 2


# what always holds

WAYS = [
    {},
    {"bundle": 10},
    {"weights": "dual"},
    {"weights": "dual", "bundle": 10},
    {"line_search": "wolfe"},
    {"line_search": "wolfe", "bundle": 10, "m_L": 0.2, "m_R": 0.2},
    {"reset": 0.0},
]


@functools.cache
def exact(name, lam):
    """The minimum by another program, on the rows written out."""
    x, y = np.repeat(X, WEIGHT.astype(int), 0), np.repeat(Y, WEIGHT.astype(int))
    problem = SimpleNamespace(lam=lam, loss=jaxsvm.losses.hinge, bias="none", kernel=RBF)
    best = (oracles.liblinear if name == "linear" else oracles.box)(x, y, problem)
    return lam / 2 * best.square + np.maximum(0, 1 - y * best.f(x)).mean()


def test_the_lightest_vector_gives_way_to_the_next():
    numbers, weights = jnp.arange(4), jnp.array([0.0, 0.5, 0.1, 0.4])
    for is_used, order in ((True, [0, 1, 3, 2]), (False, [0, 1, 2, 3])):
        bundle = Bundle(numbers, numbers, numbers, jnp.array([True, True, True, is_used]))
        assert _move_lightest(bundle, weights, 3).h.tolist() == order


@pytest.mark.long
@pytest.mark.parametrize("name", GRAMS)
@pytest.mark.parametrize("choices", WAYS, ids=str)
def test_every_step_of_a_run(choices, name, x64):
    """f never rises, the gap bounds the distance, D stays below f*, |h| falls between resets, h is
    the shortest of its hull."""
    gram, lam, share, steps = GRAMS[name], LAM, WEIGHT / WEIGHT.sum(), 150
    states, info = trace(jaxsvm.wolfe(lam, KERNELS[name], **choices), dataset(weight=WEIGHT), steps)
    # As far as the gap is open: from there on f goes up and down by roundings, and h is nothing
    # else.
    steps = min(steps, 1 + int(np.sum(np.asarray(info.residual) >= 1e-12)))
    states, info = jax.tree.map(lambda a: a[:steps], (states, info))
    assert steps >= 10
    best = exact(name, lam)
    value = np.array(
        [1.0, *(primal(gram, Y, share, lam, beta) for beta in np.asarray(states.w.coef))]
    )
    assert np.all(np.diff(value) <= 1e-14)
    np.testing.assert_allclose(-np.diff(value), info.progress[:, 0], atol=1e-12)
    residual = np.asarray(info.residual)
    assert np.all(residual >= 0) and np.all(value[:-1] - best <= residual * value[:-1] + 1e-9)
    assert np.all(np.asarray(states.dual) <= best + 1e-9) and np.all(np.diff(states.dual) >= 0)
    assert residual[-1] < (0.03 if choices.get("reset") == 0 else 3e-3) < residual[5]
    # The bundle after a step: the vector of the hull in the first place, and what it was made of in
    # the others.
    h, z, a, live = (
        np.asarray(part) for part in (*(e.coef for e in states.bundle[:2]), *states.bundle[2:])
    )
    assert np.all((a >= 0) & (a <= 1 + 1e-12)) and np.all(live[:, 0])
    np.testing.assert_allclose(z[live], share * Y * a[live], atol=1e-14)  # one combination for all
    length = np.sqrt(np.einsum("ti,ij,tj->t", h[:, 0], gram, h[:, 0]))
    alone = live.sum(1) == 1
    value_of = lambda a: share @ a - (share * Y * a) @ gram @ (share * Y * a) / (2 * lam)
    for t in range(1, steps):
        if choices.get("weights") == "dual":
            assert not alone[t] and value_of(a[t, 0]) >= value_of(a[t - 1, 0]) - 1e-14
            assert value_of(a[t, 0]) >= max(map(value_of, a[t, live[t]])) - 1e-14
        elif not alone[t]:
            assert length[t] < length[t - 1]
            room = 1e-12 * (1 + h[t, live[t]] @ gram @ h[t, 0]).max()
            assert np.all(h[t, live[t]] @ gram @ h[t, 0] >= length[t] ** 2 - room)
            assert h[t - 1, 0] @ gram @ h[t, 0] >= length[t] ** 2 - room
    kappa = choices.get("reset", 0.5)
    if choices.get("weights") != "dual":
        gap = residual * value[:-1]
        assert np.all(length[~alone] ** 2 >= 2 * lam * kappa * gap[~alone] * (1 - 1e-9))
        assert (1 <= alone.sum() <= steps / 4) == (kappa > 0)
    # In the bounded search a step has decreased f enough, and left a slope that is small.
    if choices.get("line_search") == "wolfe":
        moved = np.diff(value, prepend=value[0])[1:] < 0
        assert moved.sum() > steps / 3


def test_a_step_of_the_bounded_search(x64):
    """Each is in L and in R, for d = -h."""
    gram, share, lam, m_L, m_R = GRAMS["rbf"], np.ones(N) / N, LAM, 0.3, 0.35
    states, _ = trace(jaxsvm.wolfe(lam, RBF, line_search="wolfe", m_L=m_L, m_R=m_R), dataset(), 40)
    w, h = np.asarray(states.w.coef), np.asarray(states.bundle.h.coef)[:, 0]
    np.testing.assert_array_equal(states.trial.coef, w)
    before = np.zeros(N)
    for t in range(40):
        size = h[t] @ gram @ h[t]
        step = -((w[t] - before) @ gram @ h[t]) / size
        assert step > 0
        np.testing.assert_allclose(w[t], before - step * h[t], atol=1e-12)
        margin, rate = Y * (gram @ w[t]), -Y * (gram @ h[t])
        active = np.where(np.abs(1 - margin) < 1e-11, rate < 0, margin < 1)
        assert -lam * w[t] @ gram @ h[t] - share @ (active * rate) >= -m_R * size - 1e-12
        fall = primal(gram, Y, share, lam, w[t]) - primal(gram, Y, share, lam, before)
        assert fall <= -m_L * size * step + 1e-14
        before = w[t]


# to the optimum


@functools.cache
def cancer(dtype="float64"):
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    return x.astype(dtype), 2.0 * y - 1, 1 / x.shape[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "choices", [{}, {"weights": "dual", "bundle": 10}, {"line_search": "wolfe"}], ids=str
)
def test_a_relative_gap_of_a_thousandth(choices, x64):
    """Breast cancer: within 50 steps at lam = 1e-2, within 1,000 at 1e-3; a certificate from
    outside says the same."""
    x, y, gamma = cancer()
    data, kernel = jaxsvm.dataset(x, y), kernels.rbf(gamma=gamma)
    for lam, steps in ((1e-2, 50), (1e-3, 1000)):
        run = jaxsvm.fit(
            jaxsvm.wolfe(lam, kernel, **choices), data, KEY, steps=steps, every=1, tol=1e-3
        )
        assert run.converged and "tolerance 1.0e-03 met" in run.status
        made = jaxsvm.fit(
            jaxsvm.decomposition(1 / (lam * len(y)), kernel, bias="none", tol=1e-8), data, KEY
        ).model
        best = float(jaxsvm.objectives.primal(made, data, lam))
        above = float(jaxsvm.objectives.primal(run.model, data, lam)) / best - 1
        assert -1e-7 <= above <= 1.001e-3
        # D again, from the combination that is carried.
        held = run.state.solver.bundle
        gram, a = np.asarray(kernel(data.x, data.x)), np.asarray(held.a[0])
        v = y * a / len(y)
        np.testing.assert_allclose(held.z.coef[0], v, rtol=1e-9, atol=1e-14)
        dual = a.mean() - v @ gram @ v / (2 * lam)
        assert (
            best * (1 - 3e-3) <= dual <= float(run.state.solver.dual) + 1e-12 <= best * (1 + 1e-7)
        )


@pytest.mark.long
def test_float32_is_enough():
    """A gap of 1e-3 in as many steps, but for a few; f, worked out in float64, rises by roundings
    only."""
    x, y, gamma = cancer("float32")
    data, kernel = jaxsvm.dataset(x, y), kernels.rbf(gamma=gamma)
    gram = np.exp(-gamma * ((x[:, None].astype(float) - x[None]) ** 2).sum(-1))
    for lam, steps in ((1e-2, 50), (1e-3, 500)):
        run = jaxsvm.fit(jaxsvm.wolfe(lam, kernel), data, KEY, steps=steps, every=1, tol=1e-3)
        assert run.converged and run.model.coef.dtype == jnp.float32
        states, info = trace(jaxsvm.wolfe(lam, kernel), data, steps)
        share = np.ones(len(y)) / len(y)
        value = np.array(
            [primal(gram, y, share, lam, beta.astype(float)) for beta in np.asarray(states.w.coef)]
        )
        assert np.all(np.diff(value) <= 2e-6 * value[1:]) and np.all(np.isfinite(info.residual))
        assert float(info.residual[-1]) < 1e-3
        np.testing.assert_allclose(
            states.w.response[-1], gram @ np.asarray(states.w.coef[-1], float), atol=2e-4
        )


# the same run otherwise


def same(one, other, tolerance=1e-9):
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize(
    "choices", [{}, {"weights": "dual", "bundle": 4}, {"line_search": "wolfe"}], ids=str
)
def test_linear_weights_are_the_linear_kernel(choices, x64):
    one, info = trace(jaxsvm.wolfe(LAM, **choices), dataset(), 40)
    other, told = trace(jaxsvm.wolfe(LAM, kernels.linear(), **choices), dataset(), 40)
    same(one.w.coef, np.asarray(other.w.coef) @ X)
    same(info.residual, told.residual)
    same(one.w.response, other.w.response)
    run = jaxsvm.fit(jaxsvm.wolfe(LAM, **choices), dataset(), KEY, steps=40)
    assert isinstance(run.model, jaxsvm.models.Linear)
    same(run.model.w, one.w.coef[-1])


@pytest.mark.long
def test_features_are_rows(x64):
    """A map with all rows as landmarks is the kernel; the model takes raw rows."""
    phi = features.nystrom(None, RBF, landmarks=X)
    run = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.wolfe(LAM)), dataset(), KEY, steps=30, every=10)
    one = jaxsvm.fit(jaxsvm.wolfe(LAM, RBF), dataset(), KEY, steps=30, every=10)
    same(run.model(X), one.model(X), 1e-6)
    same(run.info.residual, one.info.residual, 1e-6)


@pytest.mark.long
def test_values_worked_out_beforehand_are_a_kernel(x64):
    gram = GRAMS["rbf"]
    one = jaxsvm.fit(jaxsvm.wolfe(LAM, RBF), dataset(), KEY, steps=30).model
    other = jaxsvm.fit(jaxsvm.wolfe(LAM, kernels.precomputed()), dataset(gram), KEY, steps=30).model
    same(one.coef, other.coef)
    same(one(X[:5]), other(gram[:5]))


@pytest.mark.long
def test_a_function_is_a_kernel(x64):
    fn = lambda x, z: (x @ z.T + 1) ** 2
    run = jaxsvm.fit(jaxsvm.wolfe(LAM, fn), dataset(), KEY, steps=20)
    same(
        run.model.coef,
        jaxsvm.fit(
            jaxsvm.wolfe(LAM, kernels.polynomial(degree=2)), dataset(), KEY, steps=20
        ).model.coef,
    )


@pytest.mark.long
@pytest.mark.parametrize("kernel", [None, kernels.linear()], ids=["linear", "kernel"])
def test_rows_of_weight_0_may_be_anything(kernel):
    """Nor do they widen what counts as rounding."""
    runs = []
    for size in (1.0, 1e4, 1e8):
        x, y, weight = (
            np.vstack([X, np.full((1, D), size)]),
            np.append(Y, 1.0),
            np.append(np.ones(N), 0.0),
        )
        runs.append(
            jaxsvm.fit(
                jaxsvm.wolfe(LAM, kernel),
                dataset(x, y, weight, np.float32),
                KEY,
                steps=300,
                tol=1e-3,
            )
        )
    assert all(run.converged for run in runs) and len({int(run.state.step) for run in runs}) == 1


@pytest.mark.long
@pytest.mark.parametrize("kernel", [None, RBF], ids=["linear", "rbf"])
def test_values_at_the_rows_gather_no_roundings(kernel):
    """Steps of rounding size go on at the optimum: without new sums they had led away from it by
    5e-4 after 6,000."""
    data = dataset(dtype=np.float32)
    run = jaxsvm.fit(jaxsvm.wolfe(LAM, kernel), data, KEY, steps=6_000, every=1_000)
    w = run.state.solver.w
    values = (X if kernel is None else GRAMS["rbf"]) @ np.asarray(w.coef, np.float64)
    np.testing.assert_allclose(w.response, values, atol=3e-6 * np.abs(values).max())
    refreshes = 6_000 // 64
    assert run.evals == (6_000 + refreshes) * (N if kernel is None else N * N)


@pytest.mark.long
@pytest.mark.parametrize("search", ["exact", "wolfe"])
def test_slopes_of_runs_are_those_of_differences(search, x64):
    solver, data = lambda lam: jaxsvm.wolfe(lam, RBF, line_search=search), dataset()
    risk = lambda lam: jaxsvm.fit(solver(lam), data, KEY, steps=5).info.loss[-1]
    both = jax.jit(jax.value_and_grad(risk))
    difference = (both(LAM + 1e-7)[0] - both(LAM - 1e-7)[0]) / 2e-7
    np.testing.assert_allclose(both(LAM)[1], difference, rtol=1e-5)
