"""The stochastic batch perceptron against a transcription of its paper, and its optima."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batch_perceptrons import (
    BOTH,
    KEY,
    NU,
    ONES,
    RBF,
    WEIGHT,
    K,
    N,
    X,
    Y,
    dataset,
    exact,
    front,
    make,
    noisy,
    trace,
)
from water_levels import by_sorting, by_sorting_two

import jaxsvm
from jaxsvm import kernels, models, objectives


def level_and_bias(margin, y, weight, nu, bias):
    """The water of slack nu over margins, by sorting."""
    live = weight > 0
    volume = nu * weight.sum()
    if bias == "free":
        return by_sorting_two(margin[live], y[live], volume, weight[live])
    return by_sorting(margin[live], volume, weight[live]), 0.0


# by hand, in NumPy


def by_hand(gram, y, weight, nu, bias, index, normalise=True):
    """ALGORITHMS 3.2 and 3.3 on rows drawn before, (steps, b); yields what is kept after each
    step."""
    n, reach = len(y), np.sqrt(gram.diagonal()[weight > 0].max())
    alpha, total, margin = np.zeros(n), np.zeros(n), np.zeros(n)
    level, b = level_and_bias(margin, y, weight, nu, bias)
    p, drawn = np.zeros(n), np.zeros(n)
    for t, rows in enumerate(index, 1):
        ground = margin + b * y
        # under water, or at its edge
        assert np.all(ground[rows] <= level + 1e-10) and np.all(weight[rows] > 0)
        if bias == "free":
            half = len(rows) // 2
            assert np.all(y[rows[:half]] == 1) and np.all(y[rows[half:]] == -1)
        drawn = np.where(ground <= level + 1e-12, weight, 0)
        p += drawn / drawn.sum()
        for i in rows:
            alpha[i] += 1 / (reach * np.sqrt(t)) / len(rows)
        margin = y * (gram @ (alpha * y))
        size = np.sqrt(max(alpha @ margin, 0))
        if size > 1:
            alpha, margin = alpha / size, margin / size
        level, b = level_and_bias(margin, y, weight, nu, bias)
        total += alpha
        mean = total / t
        over = y * (gram @ (mean * y))
        best = (-np.inf,)
        for scale in (1.0, 1 / np.sqrt(mean @ over))[: 1 + normalise]:
            best = max(best, (*level_and_bias(scale * over, y, weight, nu, bias), scale))
        returned = best[2] * mean / best[0] if best[0] > 0 else best[2] * mean
        yield (
            alpha * y,
            margin * y,
            level,
            b,
            mean * y,
            p / t,
            returned * y,
            best[1] / best[0] if best[0] > 0 else best[1],
            best[0],
        )


@pytest.mark.long(but=1)
@BOTH
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("nu", "weight", "b", "steps"),
    [
        (0.02, WEIGHT, 1, 60),
        (NU, ONES, 1, 60),
        (0.0, ONES, 1, 60),
        (NU, WEIGHT, 8, 20),
        (2.5, ONES, 1, 60),
    ],
    ids=["weights", "plain", "nu 0", "batches", "all under water"],
)
def test_the_run_of_the_paper(bias, normalise, nu, weight, b, steps, x64):
    states, made, info = trace(
        make(nu, bias=bias, normalise=normalise, bound_every=steps),
        dataset(weight=weight),
        KEY,
        steps,
        b,
    )
    index = np.asarray(info.index)
    assert index.shape == (steps, 2 * b if bias == "free" else b) and len(np.unique(index)) > 8
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-11)
    f, mean = states.s.f, states.s.mean
    for t, want in enumerate(by_hand(K, Y, weight, nu, bias, index, normalise)):
        coef, score, level, offset, averaged, p, returned, b_returned, best = want
        close(f.coef[t], coef)
        close(f.response[t] + f.compensation[t], score)
        close(states.fill.level[t], level)
        close(states.fill.bias[t], offset)
        close(mean.coef[t], averaged)
        close(made.coef[t], returned)
        close(made.b[t], b_returned)
        if bias == "none":
            close(states.p[t], p)
        close(coef @ K @ coef, min(coef @ K @ coef, 1))  # inside the ball
    if bias == "none":  # the last step looks at the bound of the optimum
        most = np.max(p[weight > 0] / weight[weight > 0])
        bound = np.sqrt((p * Y) @ K @ (p * Y)) + nu * weight.sum() * most
        close(info.residual[-1], max(1 - best / bound, 0) if best > 0 else np.inf)
    assert np.array_equal(states.t, np.arange(1, steps + 1))
    loss = np.where(
        states.fill.level > 0, nu / np.where(states.fill.level > 0, states.fill.level, 1), 1
    )
    close(info.loss[1:], loss[:-1])  # of the function before the step
    # The model is one of margin 1 at mean hinge nu / level, the level of the returned mean.
    last = jax.tree.map(lambda a: a[-1], made)
    if nu > 0:
        hinge = np.average(np.maximum(0, 1 - Y * np.asarray(last(X))), weights=weight)
        size = np.sqrt(float(last.sqnorm()))
        top = level_and_bias(Y * (K @ np.asarray(last.coef)) / size, Y, weight, hinge / size, bias)[
            0
        ]
        assert top == pytest.approx(1 / size, rel=1e-9)
        assert hinge / size >= nu - 1e-12 and (
            not normalise or hinge / size == pytest.approx(nu, rel=1e-9)
        )


@pytest.mark.long
@BOTH
def test_weights_are_copies_and_weight_0_is_absence(bias, x64):
    """The water over rows written out, k times for weight k, with wild rows of weight 0 left out,
    is the same."""
    weight = WEIGHT.copy()
    wild = weight == 0
    assert wild.sum() > 5
    x, y = np.where(wild[:, None], 30 * X, X), np.where(wild, -Y, Y)
    states, made, info = trace(
        make(bias=bias, bound_every=0, kernel=kernels.linear()), dataset(x, y, weight), KEY, 60
    )
    times = weight.astype(int)
    first = np.cumsum(times) - times  # of the copies
    copied, labels = np.repeat(X, times, 0), np.repeat(Y, times)
    runs = by_hand(
        copied @ copied.T, labels, np.ones(times.sum()), NU, bias, first[np.asarray(info.index)]
    )
    for t, (coef, _score, level, b, _, _, returned, offset, _) in enumerate(runs):
        np.testing.assert_allclose(states.fill.level[t], level, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(states.fill.bias[t], b, rtol=1e-9, atol=1e-11)
        together = np.array([part.sum() for part in np.split(coef, first[1:])])
        np.testing.assert_allclose(
            np.where(wild, 0, states.s.f.coef[t]), together, rtol=1e-9, atol=1e-11
        )
        together = np.array([part.sum() for part in np.split(returned, first[1:])])
        np.testing.assert_allclose(made.coef[t], together, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(made.b[t], offset, rtol=1e-9, atol=1e-10)
    assert not np.any(np.asarray(states.s.f.coef)[:, wild]) and not np.any(
        np.asarray(states.p)[:, wild]
    )


# what it converges to


def ends_of(nu, data, keys, bias, steps):
    """Margins and |w|^2 of the mean iterate, for each key."""

    def one(key):
        solver = make(nu, bias=bias, bound_every=0)
        update = lambda state, _: (solver.update(state, data)[0], None)
        mean = jax.lax.scan(update, solver.init(key, data), None, steps)[0].s.mean
        return data.y * (mean.response + mean.compensation), jnp.dot(mean.coef, mean.response)

    return jax.vmap(one)(keys)


@pytest.mark.long
@pytest.mark.parametrize(("bias", "factor"), [("none", 0.6), ("free", 0.3)])
def test_distance_of_the_mean_from_the_optimum(bias, factor, x64):
    """Mean over 20 seeds of f* - f(mean iterate), in R / sqrt(T): 3 is proved. Five data sets in
    one program; R = 1."""
    keys, lams, steps = jax.random.split(KEY, 20), (0.3, 0.1, 0.03, 0.01, 0.1), 300
    sets = [noisy(seed) for seed in range(1, 6)]
    optima = [exact(lam, bias, *rows) for lam, rows in zip(lams, sets, strict=True)]
    data = jax.tree.map(
        lambda *a: jnp.stack(a),
        *(dataset(*rows)._replace(index=jnp.zeros(1, jnp.int32)) for rows in sets),
    )
    run = lambda nu, data: ends_of(nu, data, keys, bias, steps)
    margins, squares = jax.jit(jax.vmap(run))(jnp.array([nu for _, nu, _ in optima]), data)
    for (_, nu, best), (_, y), margin, square in zip(
        optima, sets, np.asarray(margins), np.asarray(squares), strict=True
    ):
        levels = np.array([level_and_bias(c, y, ONES, nu, bias)[0] for c in margin])
        assert np.all(levels <= best * (1 + 1e-7)) and np.all(square <= 1 + 1e-9)
        assert 0 < (best - levels.mean()) * np.sqrt(steps) <= factor
        # On the unit sphere the level is higher, or the mean stays as it is.
        normal = [
            level_and_bias(c / s**0.5, y, ONES, nu, bias)[0]
            for c, s in zip(margin, square, strict=True)
        ]
        assert np.mean(np.maximum(levels, normal)) > levels.mean()


@pytest.mark.long
@pytest.mark.parametrize(("lam", "bias"), [(0.2, "none"), (0.2, "free"), (0.02, "none")])
def test_the_residual_bounds_the_distance_from_the_optimum(bias, lam, x64):
    _, nu, best = front(lam, bias)
    states, made, info = trace(make(nu, bias=bias, bound_every=7), dataset(), KEY, 700)
    residual = np.asarray(info.residual)
    assert np.all(np.isinf(residual[:6]))
    assert np.all(residual.reshape(-1, 7)[:, :6] == residual.reshape(-1, 7)[:, :1])
    looks = np.arange(6, 700, 7)
    known = looks[np.isfinite(residual[looks])]
    assert len(known) > 90
    for t in known:
        model = jax.tree.map(lambda a: a[t], made)
        level = nu / np.maximum(0, 1 - Y * np.asarray(model(X))).mean()
        assert level <= best * (1 + 1e-7)
        assert 0 <= 1 - level / best <= residual[t] + 1e-7
    assert residual[-1] < 0.3 and residual[known[-1]] < residual[known[0]]
    # The bound itself, with the whole matrix: |sum p_i y_i phi_i| + n nu max p.
    p, mean = np.asarray(states.p[known[-1]]), jax.tree.map(lambda a: a[known[-1]], made)
    bound = np.sqrt((p * Y) @ K @ (p * Y)) + N * nu * p.max()
    level = nu / np.maximum(0, 1 - Y * np.asarray(mean(X))).mean()
    assert residual[known[-1]] == pytest.approx(1 - level / bound, rel=1e-6) and bound >= best
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-12)
    if bias == "free":
        np.testing.assert_allclose(p[Y > 0].sum(), 0.5, rtol=1e-12)


@pytest.mark.long
@BOTH
def test_a_tolerance_is_kept(bias, x64):
    """A run ends at the first look that proves it."""
    _, nu, best = front(0.2, bias)
    run = jaxsvm.fit(make(nu, bias=bias), dataset(), KEY, steps=8000, every=N, tol=0.01)
    assert run.converged and 2 * N <= int(run.state.step) < 8000
    level = nu / float(jaxsvm.risk_on(dataset())(run.model))
    assert (
        1 - level / best
        <= float(run.info.residual[-1])
        <= 0.01
        < float(np.min(run.info.residual[:-1]))
    )
    assert "tolerance 1.0e-02 met" in run.status


@pytest.mark.long
def test_with_every_row_under_water_the_optimum_is_known(x64):
    """For nu >= max c - mean c at w = mu/|mu|, mu = mean of y_i phi(x_i): f* = |mu| + nu."""
    size = np.sqrt(Y @ K @ Y) / N
    margin = Y * (K @ Y) / N / size
    nu = 2.5  # at every w: margins are in [-1, 1]
    assert by_sorting(margin, N * nu, ONES) == pytest.approx(size + nu, rel=1e-12)
    run = jaxsvm.fit(make(nu), dataset(), KEY, steps=3000, every=N)
    level = nu / float(jaxsvm.risk_on(dataset())(run.model))
    assert 0 <= 1 - level / (size + nu) <= float(run.info.residual[-1]) + 1e-12 <= 0.02
    # all p are 1/n: the bound is f*
    assert run.info.residual[-1] == pytest.approx(1 - level / (size + nu), rel=1e-6)
    np.testing.assert_allclose(run.state.solver.p, 1 / N, rtol=1e-12)
    coef = np.asarray(run.model.coef)
    cosine = coef @ K @ Y / np.sqrt((coef @ K @ coef) * (Y @ K @ Y))
    assert cosine > 0.99
    # lam >= R^2 is the same problem: u = mu / lam, with nu_from(u) = (1 - |mu|^2 / lam) lam / |mu|.
    lam = float(objectives.lam_from_nu(nu, np.full(N, 1 / N), dataset(), RBF))
    assert lam == pytest.approx((size + nu) * size, rel=1e-12)
    u = models.expansion(RBF, jnp.asarray(Y / N / lam), dataset())
    assert float(jaxsvm.nu_from(u, dataset())) == pytest.approx(nu, rel=1e-9)


@pytest.mark.long
@BOTH
def test_a_level_that_is_not_positive_yet(bias, x64):
    """Labels of which a line separates few, and no slack: the optimum is 0. The model is the mean
    as it is."""
    x, y = X, np.where(np.arange(N) % 2, 1.0, -1.0)
    made = make(0.0, kernel=kernels.linear(), bias=bias)
    run = jaxsvm.fit(made, dataset(x, y), KEY, steps=3 * N, every=N)
    assert np.all(np.isinf(run.info.residual)) and np.all(run.info.loss == 1)
    assert (
        run.finite
        and not run.converged
        and run.status.startswith(f"stopped after {3 * N} steps; residual inf")
    )
    assert not jaxsvm.fit(made, dataset(x, y), KEY, steps=2 * N, every=N, tol=1e6).converged
    np.testing.assert_array_equal(run.model.coef, run.state.solver.s.mean.coef)
    assert float(run.state.solver.s.mean.coef @ (x @ x.T) @ run.state.solver.s.mean.coef) <= 1
    # In between: the first step of a small nu on the noisy rows.
    states, models_met, info = trace(make(1e-3, bias=bias, bound_every=1), dataset(), KEY, 60)
    levels = np.array(
        [
            level_and_bias(Y * (K @ np.asarray(c)), Y, ONES, 1e-3, bias)[0]
            for c in states.s.mean.coef
        ]
    )
    assert levels[0] < 0
    sizes = np.sqrt(
        np.einsum(
            "ti,ij,tj->t", *([np.asarray(states.s.mean.coef), K, np.asarray(states.s.mean.coef)])
        )
    )
    up = np.array(
        [
            level_and_bias(Y * (K @ np.asarray(c)) / s, Y, ONES, 1e-3, bias)[0]
            for c, s in zip(states.s.mean.coef, sizes, strict=True)
        ]
    )
    np.testing.assert_array_equal(np.isinf(info.residual), np.maximum(levels, up) <= 0)
    assert np.all(np.isfinite(models_met.coef))
