"""Stochastic conjugate subgradients against Wolfe's method, a transcription in NumPy, closed forms
and exact optima."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from test_wolfe import (
    GRAMS,
    KEY,
    RBF,
    WEIGHT,
    D,
    N,
    X,
    Y,
    along,
    cancer,
    dataset,
    primal,
    same,
    trace,
)

import jaxsvm
from jaxsvm import features, kernels

LAM, CAPACITY = 0.02, 40


def make(lam=LAM, kernel=RBF, **choices):
    return jaxsvm.scs(lam, kernel, **{"capacity": CAPACITY} | choices)


def shares(weight, size):
    """Of the first `size` rows of a sample."""
    inside = np.where(np.arange(len(weight)) < size, weight, 0)
    return inside / inside.sum()


def ordered(states):
    """The rows of the sample in their order, and their kernel matrix."""
    index = np.asarray(states.index[0])
    return index, GRAMS["rbf"][index][:, index]


# by hand, in NumPy


def by_hand(gram, y, weight, lam, metric, first, growth, eta1, eta2, gamma):
    """ALGORITHMS 5.3 on a sample in its order, with exact steps; yields what is known after each
    step."""
    m = len(y)
    w, z, a, last, radius, size = (
        np.zeros(m),
        np.zeros(m),
        np.ones(m),
        None,
        1 / np.sqrt(lam),
        first,
    )
    while True:
        share, grown = shares(weight, size), min(size + growth, m)
        g = lam * z - share * y * a
        g = np.where(share > 0, gram @ g, 0) if metric == "euclidean" else g
        product = (lambda p, q: p @ q) if metric == "euclidean" else (lambda p, q: p @ gram @ q)
        h = g
        if last is not None:
            apart = g - last
            th = np.clip(product(g, apart) / product(apart, apart), 0, 1)
            h = th * last + (1 - th) * g
        length = np.sqrt(product(h, h))
        step, _ = along(gram, y, share, lam, w, -h)
        step = min(step, radius / length)
        candidate = w - step * h
        fall = lambda share: primal(gram, y, share, lam, candidate) - primal(gram, y, share, lam, w)
        taken = (
            step > 0
            and fall(shares(weight, grown)) <= eta1 * fall(share)
            and length > eta2 * lam * radius
        )
        margin, rate = y * (gram @ candidate), -y * (gram @ h)
        a = np.where(np.abs(1 - margin) < 1e-12, rate < 0, margin < 1).astype(float)
        progress = -fall(share) if taken else 0.0
        radius = min(gamma * radius, 10 / np.sqrt(lam)) if taken else radius / gamma
        w, z, last, size = candidate if taken else w, candidate, h, grown
        yield w, z, h, radius, size, taken, length, progress


@pytest.mark.parametrize(
    ("eta1", "eta2", "gamma", "metric", "weight"),
    [(0.2, 0.1, 2.0, "euclidean", np.ones(N)), (0.9, 0.5, 1.5, "rkhs", WEIGHT)],
    ids=["plain", "weights"],
)
def test_the_run_of_the_paper(eta1, eta2, gamma, metric, weight, x64):
    solver = make(capacity=36, growth=7, first=5, metric=metric, eta1=eta1, eta2=eta2, gamma=gamma)
    states, info = trace(solver, dataset(weight=weight), 40)
    index, gram = ordered(states)
    assert len(np.unique(index)) == 36 and np.all(weight[index] > 0)
    y, seen = Y[index], weight[index]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-9)
    before, size, accepted = np.zeros(36), 5, 0
    made = by_hand(gram, y, seen, LAM, metric, 5, 7, eta1, eta2, gamma)
    for t, (w, z, h, radius, grown, taken, length, progress) in enumerate(made):
        close(states.h.coef[t], h)
        close(states.w.coef[t], w)
        close(states.w.response[t], gram @ w)
        close(states.trial.coef[t], z)
        close(states.radius[t], radius)
        close(info.progress[t, 0], progress)
        close(info.loss[t], shares(seen, size) @ np.maximum(0, 1 - y * (gram @ before)))
        assert float(info.residual[t]) == (
            pytest.approx(length, rel=1e-7) if size == 36 else np.inf
        )
        assert int(states.size[t]) == grown and int(info.support[t]) == np.count_nonzero(before)
        assert int(info.evals[t]) == grown**2 - (size**2 if t else 0)
        before, size, accepted = w, grown, accepted + taken
        if t == 39:
            break
    assert 10 <= accepted <= 39 and np.all(np.asarray(info.index) == -1)


# Wolfe's method


@pytest.mark.long
@pytest.mark.parametrize("kernel", [RBF, None], ids=["rbf", "linear"])
def test_on_all_rows_it_is_the_method_of_wolfe(kernel, x64):
    """One sample of all rows from the start, eta2 = 0, a radius without effect: two vectors without
    resets."""
    solver = make(kernel=kernel, capacity=N, first=N, eta2=0.0, gamma=1e6)
    states, info = trace(solver, dataset(), 40)
    other, told = trace(jaxsvm.wolfe(LAM, kernel, reset=0.0), dataset(), 40)
    index = np.asarray(states.index[0])
    assert sorted(index) == list(range(N)) and not np.array_equal(index, np.arange(N))
    place = index if kernel is not None else slice(None)
    null = np.flatnonzero(np.asarray(info.progress)[:, 0] == 0)
    steps = int(null[0]) if len(null) else 40
    assert steps >= 20
    for t in range(steps):
        np.testing.assert_allclose(
            states.w.coef[t], np.asarray(other.w.coef[t])[place], rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(
            states.h.coef[t], np.asarray(other.bundle.h.coef[t, 0])[place], rtol=1e-10, atol=1e-10
        )
    np.testing.assert_allclose(info.loss[:steps], told.loss[:steps], rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("choices", [{}, {"line_search": "wolfe"}, {"at_incumbent": True}], ids=str)
@pytest.mark.parametrize("weight", [np.ones(N), WEIGHT], ids=["plain", "weights"])
def test_strong_regularisation_takes_one_step(weight, choices, x64):
    """lam = 1 on a unit diagonal: w = sum_i share_i y_i phi(x_i) on the full set, and nothing moves
    any more."""
    rows = int((weight > 0).sum())
    share = weight / weight.sum()
    for lam in (1.0, 5.0):
        states, info = trace(
            make(lam, capacity=rows, first=rows, **choices), dataset(weight=weight), 6
        )
        best = (share * Y)[np.asarray(states.index[0])] / lam
        for t in range(6):
            np.testing.assert_allclose(states.w.coef[t], best, rtol=1e-13)
        assert np.all(np.asarray(info.progress)[1:] == 0)
        np.testing.assert_allclose(info.residual[1:], 0, atol=1e-14)
        scale = np.sqrt((X**2).sum(1).max())
        states, _ = trace(
            make(lam, None, capacity=rows, first=rows, **choices),
            dataset(X / scale, weight=weight),
            6,
        )
        for t in range(6):
            np.testing.assert_allclose(states.w.coef[t], share * Y @ X / scale / lam, rtol=1e-12)
    run = jaxsvm.fit(
        make(1.0, capacity=rows, first=rows),
        dataset(weight=weight),
        KEY,
        steps=9,
        every=1,
        tol=1e-12,
    )
    assert run.converged and int(run.state.step) == 2


# what always holds

WAYS = [
    {"line_search": "wolfe", "metric": "euclidean", "m_L": 0.2, "m_R": 0.2},
    {},
    {"metric": "euclidean"},
    {"line_search": "wolfe"},
    {"fresh_sample": True},
    {"at_incumbent": True},
    {"first": 1, "growth": 1},
    {"first": CAPACITY, "growth": CAPACITY},
]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("choices", WAYS, ids=str)
def test_every_step_of_a_run(choices, x64):
    """Accepted steps do not raise f on the sample, rejected ones change nothing; what is not in the
    sample stays exactly 0."""
    states, info = trace(make(**choices), dataset(weight=WEIGHT), 80)
    index, gram = ordered(states)
    y, weight = Y[index], WEIGHT[index]
    w, trial, h = (np.asarray(e.coef) for e in (states.w, states.trial, states.h))
    size, radius = np.asarray(states.size), np.asarray(states.radius)
    growth, first = choices.get("growth", 4), choices.get("first", 4)
    assert size.tolist() == [min(first + growth * (t + 1), CAPACITY) for t in range(80)]
    before, seen, old, accepted = np.zeros(CAPACITY), first, 1 / np.sqrt(LAM), 0
    for t in range(80):
        outside = np.arange(CAPACITY) >= seen
        assert (
            np.all(w[t][outside] == 0)
            and np.all(trial[t][outside] == 0)
            and np.all(h[t][outside] == 0)
        )
        value = lambda beta: primal(gram, y, shares(weight, seen), LAM, beta)
        np.testing.assert_allclose(info.progress[t, 0], value(before) - value(w[t]), atol=1e-12)
        length = np.sqrt(h[t] @ (h[t] if choices.get("metric") == "euclidean" else gram @ h[t]))
        if np.array_equal(w[t], before):
            assert radius[t] == old / 2 and float(info.progress[t, 0]) == 0
        else:
            accepted += 1
            assert value(w[t]) < value(before) and np.array_equal(w[t], trial[t])
            moved = w[t] - before
            size_moved = np.sqrt(
                moved @ (moved if choices.get("metric") == "euclidean" else gram @ moved)
            )
            assert size_moved <= old * (1 + 1e-9) and length > 0.1 * LAM * old
            if "m_L" in choices:  # f falls in proportion to the step
                step = size_moved / length
                assert value(w[t]) <= value(before) - 0.2 * length**2 * step + 1e-12
            assert radius[t] == min(2 * old, 10 / np.sqrt(LAM))
        if choices.get("at_incumbent"):
            np.testing.assert_array_equal(trial[t], w[t])
        expected = length if seen == CAPACITY else np.inf
        np.testing.assert_allclose(info.residual[t], expected, rtol=1e-9)
        before, seen, old = w[t], size[t], radius[t]
    assert 10 <= accepted <= 78
    evals = np.asarray(info.evals)
    extra = CAPACITY**2 if choices.get("fresh_sample") else 0
    assert evals[0] == size[0] ** 2 + extra and evals.sum() == CAPACITY**2 + 80 * extra
    everywhere = primal(gram, y, shares(weight, CAPACITY), LAM, w[-1])
    assert everywhere < (0.75 if choices.get("metric") == "euclidean" else 0.55)


@pytest.mark.long
def test_a_step_that_is_not_taken_leads_elsewhere(x64):
    """Afterwards the subgradient is that of the candidate; with at_incumbent it is that of w
    again."""
    for at_incumbent in (False, True):
        states, info = trace(make(at_incumbent=at_incumbent), dataset(), 60)
        index, gram = ordered(states)
        refused = np.flatnonzero(
            (np.asarray(info.progress)[:, 0] == 0) & (np.asarray(states.size) == CAPACITY)
        )
        assert len(refused) >= 3
        for t in refused[:-1]:
            w, trial = np.asarray(states.w.coef[t]), np.asarray(states.trial.coef[t])
            assert np.array_equal(w, trial) == at_incumbent
            margin = Y[index] * (gram @ trial)
            clear = np.abs(margin - 1) > 1e-9
            np.testing.assert_array_equal(np.asarray(states.a[t])[clear], (margin < 1)[clear])


def test_a_fresh_sample_is_drawn_by_weight(x64):
    """A row as often as its weight says: one of a millionth of the weight, on which f rises, is
    never among them."""
    x, y = np.ones((6, 1)), np.array([1.0, -1, -1, -1, -1, -1])
    solver = jaxsvm.scs(0.5, None, capacity=6, first=6, fresh_sample=True)
    step = lambda key, data: solver.update(solver.init(key, data), data)[1].progress[0] > 0
    several = jax.jit(jax.vmap(step, (0, None)))
    share = lambda weight: np.asarray(
        several(jax.random.split(KEY, 400), dataset(x, y, np.array(weight)))
    ).mean()
    assert share([1.0] + 5 * [1e-9]) == 1
    # Six fresh rows, each wrong with probability 0.3: f falls where at most two are, a half of them
    # does not do (0.744).
    assert abs(share([7.0] + 5 * [0.6]) - 0.744) <= 5 * np.sqrt(0.744 * 0.256 / 400)


@pytest.mark.long
def test_the_constants_of_the_paper_take_almost_no_step(x64):
    """Falls on the grown sample 1.1 times as large as on the old one are rare, and once it is
    complete there are none."""
    states, info = trace(make(paper_constants=True), dataset(), 60)
    complete = np.asarray(states.size) == CAPACITY
    taken = np.asarray(info.progress)[:, 0] > 0
    assert taken.sum() <= 6 and not taken[np.flatnonzero(complete)[1:]].any()
    np.testing.assert_array_equal(states.trial.coef, states.w.coef)
    assert np.all(np.isfinite(states.radius))
    usual = trace(make(line_search="wolfe"), dataset(), 60)[1]
    assert (np.asarray(usual.progress)[:, 0] > 0).sum() > 20


# to the optimum


def excess(lam, seeds):
    """(objective - minimum) / minimum on breast cancer after 50 iterations, of several runs at once
    and of Pegasos."""
    x, y, gamma = cancer()
    data, kernel = jaxsvm.dataset(x, y), kernels.rbf(gamma=gamma)
    n = len(y)
    exact = jaxsvm.fit(
        jaxsvm.decomposition(1 / (lam * n), kernel, bias="none", tol=1e-8), data, KEY
    ).model
    best = float(jaxsvm.objectives.primal(exact, data, lam))
    keys = jax.random.split(KEY, seeds)
    solver = jaxsvm.scs(lam, kernel, capacity=n)
    runs = jax.jit(jax.vmap(lambda key: jaxsvm.fit(solver, data, key, steps=50, every=50)))(keys)
    gram = np.exp(-gamma * ((x[:, None] - x[None]) ** 2).sum(-1))
    above = []
    for index, coef in zip(np.asarray(runs.model.index), np.asarray(runs.model.coef), strict=True):
        beta = np.zeros(n)
        beta[index] = coef
        above.append(primal(gram, y, np.ones(n) / n, lam, beta) / best - 1)
    whole = jaxsvm.samplers.whole()
    pegasos = jaxsvm.fit(
        jaxsvm.kernel_pegasos(lam, kernel), data, KEY, steps=50, sampler=whole
    ).model
    return np.array(above), float(jaxsvm.objectives.primal(pegasos, data, lam)) / best - 1


@pytest.mark.long
@pytest.mark.parametrize(("lam", "room"), [(1e-2, 2e-4), (1e-3, 2e-2)])
def test_below_pegasos_after_fifty_iterations(lam, room, x64):
    """Twenty seeds in one program: below 50 steps of kernel Pegasos on all rows, and near the
    optimum."""
    above, pegasos = excess(lam, 20)
    assert np.all(above >= -1e-9) and len(np.unique(above)) == 20
    assert np.all(above < pegasos)
    assert above.max() <= room


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stops_on_the_norm_of_the_direction(dtype, x64):
    """Infinite until the sample is complete, then |h|; and nothing is infinite or nan behind the
    end."""
    data = dataset(dtype=dtype)
    run = jaxsvm.fit(make(0.1), data, KEY, steps=500, every=1, tol=1e-3)
    residual = np.asarray(run.info.residual)
    assert run.converged and 10 < len(residual) < 200 and residual[-1] <= 1e-3 < residual[:-1].min()
    # 4 rows, 8, ..., 40 at the tenth step
    assert np.all(np.isinf(residual[:9])) and np.all(np.isfinite(residual[9:]))
    assert not jaxsvm.fit(make(0.1), data, KEY, steps=9, every=1, tol=1e30).converged
    on = jaxsvm.fit(make(0.1), data, state=run.state, steps=300, every=100)
    assert on.finite and np.all(np.isfinite(on.info.residual)) and "stopped after" in on.status
    index = np.asarray(on.model.index)
    gram, share = GRAMS["rbf"][index][:, index], np.ones(CAPACITY) / CAPACITY
    value = lambda run: primal(gram, Y[index], share, 0.1, np.asarray(run.model.coef, float))
    assert value(on) <= value(run) + 1e-6


# the same run otherwise


def test_the_model_is_an_expansion_over_the_sample(x64):
    run = jaxsvm.fit(make(), dataset(), KEY, steps=30)
    index, coef = np.asarray(run.model.index), np.asarray(run.model.coef)
    assert index.shape == coef.shape == (CAPACITY,) and len(np.unique(index)) == CAPACITY
    np.testing.assert_array_equal(run.model.x, X[index])
    np.testing.assert_array_equal(index, run.state.solver.index)
    same(run.model(X), GRAMS["rbf"][:, index] @ coef)
    same(run.model.sqnorm(), coef @ GRAMS["rbf"][index][:, index] @ coef)
    assert np.all(np.isin(run.model.support().index, index)) and float(run.model.b) == 0
    other = jaxsvm.fit(make(), dataset(), jax.random.key(1), steps=30).model
    assert not np.array_equal(index, other.index)
    solver = make()
    with pytest.raises(ValueError, match="this model is an expansion over training rows"):
        solver.model(run.state.solver)


def test_rows_are_drawn_evenly():
    """Each of the rows that count in a third of the samples."""
    weight = np.where(np.arange(N) % 2, 3.0, 0)
    draw = lambda key: (
        jaxsvm.scs(0.1, RBF, capacity=10).init(key, dataset(weight=weight, dtype=np.float32)).index
    )
    index = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(KEY, 2000)))
    times = np.bincount(index.ravel(), minlength=N)
    assert np.all(times[::2] == 0)
    # Five standard deviations of a count.
    assert np.all(np.abs(times[1::2] - 2000 / 3) <= 5 * np.sqrt(2000 * 2 / 9))
    first = np.bincount(index[:, 0], minlength=N)[1::2]
    assert np.all(np.abs(first - 2000 / 30) <= 5 * np.sqrt(2000 / 30))


@pytest.mark.long
@pytest.mark.parametrize("choices", [{}, {"line_search": "wolfe"}, {"fresh_sample": True}], ids=str)
def test_linear_weights_are_the_linear_kernel(choices, x64):
    one, info = trace(make(kernel=None, **choices), dataset(), 25)
    other, told = trace(make(kernel=kernels.linear(), **choices), dataset(), 25)
    same(one.w.coef, np.asarray(other.w.coef) @ X[np.asarray(other.index[0])], 1e-8)
    same(info.progress, told.progress, 1e-8)
    assert one.gram is None and np.all(np.asarray(info.evals) == np.asarray(one.size))
    run = jaxsvm.fit(make(kernel=None, **choices), dataset(), KEY, steps=25)
    assert isinstance(run.model, jaxsvm.models.Linear) and run.model.w.shape == (D,)


@pytest.mark.long
def test_features_are_rows(x64):
    """A map with all rows as landmarks is the kernel."""
    phi = features.nystrom(None, RBF, landmarks=X)
    one = jaxsvm.fit(make(), dataset(), KEY, steps=25, every=5)
    solver = jaxsvm.on_features(phi, make(kernel=None))
    run = jaxsvm.fit(solver, dataset(), KEY, steps=25, every=5)
    same(run.model(X), one.model(X), 1e-6)
    same(run.info.residual, one.info.residual, 1e-6)


@pytest.mark.long
def test_constants_apart_only_as_printed():
    """paper_constants has m_L above m_R; what is given beside it does not count."""
    one, other = (
        trace(make(paper_constants=True, **c), dataset(dtype=np.float32), 12)[0]
        for c in ({}, {"m_L": 0.1, "eta1": 0.3})
    )
    np.testing.assert_array_equal(one.w.coef, other.w.coef)
