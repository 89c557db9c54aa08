"""Coordinate ascent on a budget and adaptive coordinate frequencies, against transcriptions of the
papers in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import maker
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsvm
from jaxsvm import kernels, objectives, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef

# one shape for all data sets, so that programs are compiled once
N, D, C, SIGMA, BUDGET, PASSES = (24, 2, 2.0, 0.8, 6, 6)
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
LABELS = np.where(X[:, 0] + 0.8 * RNG.normal(size=N) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(6, D))
WEIGHT = np.tile([2.0, 1.0, 0.5, 1.0], N // 4)
KEY = jax.random.key(2)


gaussian = functools.partial(oracles.gaussian, gamma=1 / (2 * SIGMA**2))


K = gaussian(X, X)


dataset = maker(X, LABELS)


def make(**choices):
    choices = {"budget": BUDGET, **choices}
    return jaxsvm.bsca(choices.pop("C", C), choices.pop("kernel", kernels.rbf(SIGMA)), **choices)


@jax.jit
def _trace(solver, data, rows):
    feed = lambda index: (
        data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)
    )

    def step(state, index):
        state, info = solver.update(state, feed(index))
        coef = dual_coef(getattr(state, "inner", state))
        return state, (coef, solver.model(state, data), info)

    return jax.lax.scan(step, solver.init(KEY, data), rows)[1]


def trace(solver, data, rows):
    """Signed dual coefficients, models and infos after each of the steps on given rows (t, b)."""
    return jax.tree.map(np.asarray, _trace(solver, data, jnp.asarray(rows)))


def orders(b=1, seed=0, times=PASSES, n=N):
    """`times` passes in random orders, (t, b), padded as `samplers.epochs` does."""
    rng, length = np.random.default_rng(seed), -(-n // b)
    passes = [np.append(rng.permutation(n), np.full(length * b - n, -1)) for _ in range(times)]
    return np.concatenate(passes).reshape(-1, b).astype(np.int32)


def decide(models, x=NEW):
    """Decision values of models with a leading axis, (t, 6), by NumPy."""
    return np.stack(
        [gaussian(x, points) @ coef for points, coef in zip(models.x, models.coef, strict=True)]
    )


def dual(coef, kernel=K, y=LABELS):
    return y @ coef - coef @ kernel @ coef / 2


def primal(coef, kernel=K, y=LABELS, bound=C):
    return coef @ kernel @ coef / 2 + np.sum(bound * np.maximum(1 - y * (kernel @ coef), 0))


# by hand, in NumPy


def peak(share, length):
    """h of the largest s(h), and s(h): the best of 2,001 places, then bisection of s' around it."""
    h = np.linspace(0, 1, 2001)
    s = lambda h: share * np.exp(-length * (1 - h) ** 2) + (1 - share) * np.exp(-length * h * h)
    best = h[np.argmax(s(h))]
    low, high = max(best - 1 / 2000, 0), min(best + 1 / 2000, 1)
    for _ in range(60):
        h = (low + high) / 2
        slope = share * (1 - h) * np.exp(-length * (1 - h) ** 2) - (1 - share) * h * np.exp(
            -length * h * h
        )
        low, high = (h, high) if slope > 0 else (low, h)
    return h, s(h)


class ByHand:
    """Algorithm 1, merging with the best of all partners, and what the epochs of section 4.5
    say."""

    def __init__(self, weight=None, C=C, budget=BUDGET, x=X, y=LABELS):
        self.x, self.y, self.bound, self.budget = (
            x,
            y,
            C * (np.ones(len(y)) if weight is None else weight),
            budget,
        )
        self.alpha, self.points, self.coef, self.born = (
            np.zeros(len(y)),
            np.zeros((0, x.shape[1])),
            np.zeros(0),
            [],
        )
        self.front = []  # points that came with a coefficient above 0
        # by which share of (a + b)^2 the best partner was better than the next, at least
        self.margin, self.added = (np.inf, 0)
        self.visits = {"summands": [], "gradients": []}
        self.spread, self.residual = (
            dict.fromkeys(self.visits, np.nan),
            dict.fromkeys([*self.visits, "moves"], np.inf),
        )
        self.worst, self.seen = 0.0, set()

    def step(self, rows):
        """One batch; the gains of its rows."""
        rows = [i for i in rows if i >= 0 and self.bound[i] > 0]
        told = self.coef * gaussian(self.x[rows], self.points)
        f, moves, gains = told.sum(1), [], []
        self.visits["summands"] += list(told)
        self.visits["gradients"] += list(1 - self.y[rows] * f)
        for k, i in enumerate(rows):
            g = 1 - self.y[i] * f[k]
            new = np.clip(self.alpha[i] + g, 0, self.bound[i])
            delta, self.alpha[i] = new - self.alpha[i], new
            moves.append(delta)
            gains.append(delta * g - delta**2 / 2)
            f = f + delta * self.y[i] * gaussian(self.x[rows], self.x[i][None])[:, 0]
        for i, delta in zip(rows, moves, strict=True):
            if delta != 0:
                self.append(self.x[i], delta * self.y[i])
        self.tell(rows, moves)
        return np.array(gains)

    def append(self, x, coef):
        self.added += 1
        known = np.flatnonzero((self.points == x).all(1))
        if len(known):
            self.coef[known[0]] += coef
            self.front[known[0]] = self.coef[known[0]] > 0
            return
        self.points, self.coef = np.vstack([self.points, x]), np.append(self.coef, coef)
        self.born, self.front = [*self.born, self.added], [*self.front, coef > 0]
        if len(self.coef) > self.budget:
            self.merge()

    def merge(self):
        sides, size = np.array(self.front), np.abs(self.coef)
        paired = [k for k in range(len(size)) if np.sum(sides == sides[k]) > 1]
        i = min(paired, key=lambda k: (size[k], self.born[k]))
        found = {}
        for j in range(len(size)):
            if j != i and sides[j] == sides[i]:
                a, b, kappa = (
                    self.coef[i],
                    self.coef[j],
                    gaussian(self.points[[i]], self.points[[j]])[0, 0],
                )
                h, s = peak(a / (a + b), -np.log(kappa))
                change = a * a + b * b + 2 * a * b * kappa - ((a + b) * s) ** 2
                found[j] = (
                    change,
                    (a + b) * s,
                    h * self.points[i] + (1 - h) * self.points[j],
                    (a + b) ** 2,
                )
        j = min(found, key=lambda j: found[j][0])
        for k in found:
            if k != j:
                self.margin = min(
                    self.margin, (found[k][0] - found[j][0]) / max(found[k][3], found[j][3])
                )
        self.coef[j], self.points[j] = found[j][1:3]
        keep = np.arange(len(size)) != i
        self.coef, self.points = self.coef[keep], self.points[keep]
        self.born, self.front = (
            [v for v, k in zip(old, keep, strict=True) if k] for old in (self.born, self.front)
        )

    def tell(self, rows, moves):
        total = int(np.sum(self.bound > 0))
        self.worst, self.seen = max([self.worst, *np.abs(moves)]), self.seen | set(rows)
        if len(self.seen) >= total:
            self.residual["moves"], self.worst, self.seen = self.worst, 0.0, set()
        for name, told in self.visits.items():
            if len(told) >= total:
                flat = np.concatenate([np.atleast_1d(v) for v in told])
                with np.errstate(divide="ignore"):
                    spread = np.log(flat.max() - flat.min()) if flat.size else np.nan
                change = abs(spread - self.spread[name])
                change = self.residual["moves"] if change == 0 else change
                self.residual[name] = change if np.isfinite(change) else np.inf
                self.spread[name], self.visits[name] = spread, []


def by_hand(rows, **problem):
    """alpha, decision values, residuals and gains after each step, and the state."""
    now, history = ByHand(**problem), []
    for batch in rows:
        gains = now.step(batch)
        history.append(
            (
                now.alpha.copy(),
                gaussian(NEW, now.points) @ now.coef,
                dict(now.residual),
                gains.sum(),
            )
        )
    alpha, f, residual, gain = zip(*history, strict=True)
    return (
        np.array(alpha),
        np.array(f),
        {k: np.array([r[k] for r in residual]) for k in now.residual},
        np.array(gain),
        now,
    )


# Algorithm 1


@pytest.mark.long
@pytest.mark.parametrize("b", [1, 5])
def test_with_a_place_for_every_row_every_step_is_one_of_sdca(b, x64):
    """D never falls, and every model is that of alpha."""
    rows, data = orders(b), dataset(weight=WEIGHT)
    coef, models, info = trace(make(budget=N), data, rows)
    expected, other, its = trace(jaxsvm.sdca(C, kernels.rbf(SIGMA)), data, rows)
    # 150 steps of rounding, 1e-16 each, on coefficients up to 4
    np.testing.assert_allclose(coef, expected, atol=1e-12)
    np.testing.assert_allclose(decide(models), other.coef @ gaussian(X, NEW), atol=1e-12)
    alpha, f, residual, gain, _ = by_hand(rows, weight=WEIGHT, budget=N)
    np.testing.assert_allclose(coef * LABELS, alpha, atol=1e-12)
    np.testing.assert_allclose(decide(models), f, atol=1e-12)
    values = np.array([dual(c) for c in coef])
    assert np.all(np.diff(values) >= -1e-14) and values[-1] > values[N] > 0
    np.testing.assert_allclose(np.cumsum(info.progress.sum(1)), values, rtol=1e-12)
    np.testing.assert_allclose(info.progress, its.progress, atol=1e-12)
    np.testing.assert_array_equal(info.index, rows)


@pytest.mark.long
def test_with_a_place_for_every_row_the_gap_goes_to_zero_and_so_does_the_change_of_the_spread(x64):
    run = jaxsvm.fit(make(budget=N), dataset(), KEY, steps=400 * N, every=N)
    coef = np.asarray(dual_coef(run.state.solver.inner))
    assert primal(coef) - dual(coef) < 1e-10 < primal(0.99 * coef) - dual(coef)
    np.testing.assert_allclose(run.model(jnp.asarray(NEW)), gaussian(NEW, X) @ coef, atol=1e-9)
    assert run.info.residual[-1] < 1e-9


def test_where_extremes_stand_the_residual_is_that_of_the_moves():
    """Summands of both classes are at C from the second pass on."""
    fit = lambda stop: jaxsvm.fit(
        make(C=0.3, budget=N, stop=stop), dataset(dtype=np.float32), KEY, steps=5 * N, every=N
    )
    summands, moves = (np.asarray(fit(stop).info.residual) for stop in ("summands", "moves"))
    assert np.isinf(summands[0]) and np.all(summands[2:] > 0)
    np.testing.assert_array_equal(summands[2:], moves[2:])


@pytest.mark.long
@pytest.mark.parametrize(
    "sampler",
    [samplers.epochs(), samplers.uniform(), samplers.acf()],
    ids=["epochs", "uniform", "acf"],
)
def test_extremes_that_stand_at_bounds_do_not_end_the_run(sampler):
    """With a small C the largest and smallest summands are C and -C after two passes, and stay so,
    far from the optimum."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    y = np.where(x[:, 0] + random.normal(size=300) > 0, 1, -1)
    data = jaxsvm.dataset(x, y)
    value = lambda run: float(jaxsvm.certificate(run.model, data, 1 / 300).primal)
    solver = jaxsvm.bsca(1.0, kernels.rbf(1.5), budget=300)
    best = value(
        jaxsvm.fit(jaxsvm.decomposition(1.0, kernels.rbf(1.5), bias="none"), data, KEY, tol=1e-4)
    )
    after = jaxsvm.fit(solver, data, KEY, steps=600, every=300, sampler=sampler)
    assert value(after) > 1.02 * best
    run = jaxsvm.fit(solver, data, KEY, steps=400 * 300, every=300, tol=1e-3, sampler=sampler)
    assert run.converged and value(run) < 1.001 * best


STOPS = pytest.mark.parametrize(
    ("stop", "b"), [("summands", 1), ("summands", 5), ("gradients", 5), ("moves", 1)]
)
ALIKE = 5e-8  # partners that differ by less can change places by the errors of the table


@pytest.mark.long
@STOPS
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_every_step_is_that_of_the_paper(stop, b, weight, x64):
    """alpha, decision values, the gain of Lemma 1 and the residual, in passes of random order."""
    rows = orders(b)
    alpha, f, residual, gain, state = by_hand(rows, weight=weight)
    assert state.margin > ALIKE and state.added > 5 * BUDGET
    coef, models, info = trace(make(stop=stop), dataset(weight=weight), rows)
    # 144 steps of rounding, which merges enlarge
    np.testing.assert_allclose(coef * LABELS, alpha, atol=1e-11)
    np.testing.assert_allclose(decide(models), f, atol=1e-11)
    np.testing.assert_allclose(info.progress.sum(1), gain, atol=1e-11)
    np.testing.assert_allclose(info.residual, residual[stop], atol=1e-11)
    first = 1 if stop == "moves" else 2  # epochs until there is a number
    np.testing.assert_array_equal(
        np.isinf(info.residual), np.arange(len(rows)) < first * -(-N // b) - 1
    )


@pytest.mark.long
@STOPS
def test_epochs_of_rows_drawn_with_replacement(stop, b, x64):
    """The spread is over as many visits as there are rows; moves last until every row was
    visited."""
    rows = np.random.default_rng(0).integers(-1, N, orders(b).shape).astype(np.int32)
    _, f, residual, _, state = by_hand(rows)
    assert state.margin > ALIKE and len(np.unique(residual[stop])) > 1
    _, models, info = trace(make(stop=stop), dataset(), rows)
    np.testing.assert_allclose(decide(models), f, atol=1e-11)
    np.testing.assert_allclose(info.residual, residual[stop], atol=1e-11)


FEW, STEPS = 12, 40  # rows and visits


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=FEW, max_size=FEW),
    st.lists(st.sampled_from([-1.0, 1.0]), min_size=FEW, max_size=FEW),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=FEW, max_size=FEW).filter(any),
    st.sampled_from([0.01, 0.3, 1.0, 10.0]),
    st.lists(st.integers(-1, FEW - 1), min_size=STEPS, max_size=STEPS),
    st.booleans(),
)
def test_bounds_and_gains_whatever_the_data(x, y, weight, C, rows, double):
    """Duplicates of both labels, rows of weight 0, padding: alpha in its box to the bit, and Lemma
    1 with the g of the budget."""
    dtype = np.float64 if double else np.float32
    x, y, weight, rows = (
        np.array(x, dtype) / 2,
        np.array(y),
        np.array(weight, dtype),
        np.array(rows, np.int32),
    )
    with jax.enable_x64(double):
        data = jaxsvm.Batch(
            jnp.asarray(x),
            jnp.asarray(y, dtype),
            jnp.arange(FEW, dtype=jnp.int32),
            jnp.asarray(weight),
        )
        coef, models, info = trace(make(C=C, budget=3), data, rows[:, None])
    alpha, bound = y * coef, dtype(C) * weight
    assert coef.dtype == dtype and np.all(alpha >= 0) and np.all(alpha <= bound)
    assert np.all(np.isfinite(models.coef)) and np.all(np.isfinite(models.x))
    assert not np.any(np.isnan(info.residual)) and not np.any(np.isnan(info.progress))
    before = np.vstack([np.zeros(FEW), alpha[:-1]])
    for t, i in enumerate(rows):
        expected = 0.0
        if i >= 0 and weight[i] > 0:
            f = (
                0.0
                if t == 0
                else (gaussian(x[[i]].astype(float), models.x[t - 1]) @ models.coef[t - 1])[0]
            )
            delta, g = float(alpha[t, i]) - float(before[t, i]), 1 - y[i] * f
            expected = delta * g - delta**2 / 2
            np.testing.assert_array_equal(np.delete(alpha[t], i), np.delete(before[t], i))
        else:
            np.testing.assert_array_equal(alpha[t], before[t])
        # delta in [-30, 30] is a difference of alphas, f a sum of up to three coefficients
        room = 50 * np.finfo(dtype).eps * (1 + bound.max()) ** 2
        np.testing.assert_allclose(info.progress[t, 0], expected, rtol=0, atol=room)
        assert info.progress[t, 0] >= -room


# when it stops


@pytest.mark.long
def test_a_kernel_times_a_number_and_C_over_it_leave_the_criterion_as_it_is(x64):
    """alpha / 4 and the same summands: powers of two, so to the bit where both are compiled
    alike."""
    rows = orders()
    coef, _, info = trace(make(), dataset(), rows)
    scaled, _, other = trace(make(C=C / 4, kernel=4.0 * kernels.rbf(SIGMA)), dataset(), rows)
    np.testing.assert_allclose(4 * scaled, coef, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other.residual, info.residual, rtol=1e-12, atol=1e-14)


@pytest.mark.long
def test_where_all_rows_are_at_their_bound_the_spread_is_that_of_C_and_its_change_is_zero(x64):
    """C so small that no margin comes near 1: f = C sum_j y_j k(x_j, .) after one pass."""
    for tiny in (1e-3, 1e-4):
        run = jaxsvm.fit(make(C=tiny, budget=N), dataset(), KEY, steps=3 * N, every=N)
        parts = tiny * LABELS * K
        np.testing.assert_allclose(
            run.state.solver.spread, np.log(parts.max() - parts.min()), rtol=1e-12
        )
        assert (
            np.isinf(run.info.residual[0])
            and np.isfinite(run.info.residual[1])
            and run.info.residual[2] == 0
        )


@pytest.mark.long
@STOPS
def test_there_is_no_criterion_without_a_point_and_none_that_is_no_number(stop, b, x64):
    padded = np.full_like(orders(b), -1)
    coef, models, info = trace(make(stop=stop), dataset(), padded)
    assert np.all(np.isinf(info.residual)) and not np.any(coef) and not np.any(models.coef)
    # one point and one row: a spread of 0
    alone = dataset()._replace(weight=jnp.asarray(np.arange(N) == 3, float))
    padded[:, 0] = 3
    coef, _, info = trace(make(stop=stop), alone, padded)
    assert coef[-1, 3] == LABELS[3] and not np.any(np.isnan(info.residual))
    assert np.all(np.isinf(info.residual)) if stop != "moves" else info.residual[-1] == 0


# what it is worth


@pytest.mark.long
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_primal_and_dual_values_against_numpy(weight, x64):
    """The dual of alpha, which is that of another function than the model's, bounds the primal of
    the model from below."""
    times = np.ones(N) if weight is None else weight
    data, lam = dataset(weight=weight), 1 / (C * times.sum())
    run = jaxsvm.fit(make(), data, KEY, steps=10 * N, every=N, tol=1e-9)
    coef, points, beta = (
        np.asarray(a) for a in (dual_coef(run.state.solver.inner), run.model.x, run.model.coef)
    )
    loss = C * times * np.maximum(1 - LABELS * (gaussian(X, points) @ beta), 0)
    value = beta @ gaussian(points, points) @ beta / 2 + loss.sum()
    # objectives are per unit of weight: 1/(C sum weight) times the values here
    upper, lower = (
        objectives.primal(run.model, data, lam),
        objectives.dual(LABELS * coef, data, lam, kernels.rbf(SIGMA)),
    )
    np.testing.assert_allclose(upper / lam, value, rtol=1e-9)
    np.testing.assert_allclose(lower / lam, dual(coef), rtol=1e-9)
    assert upper - lower > 0.01 * upper  # six points are not enough here
    assert np.abs(gaussian(NEW, X) @ coef - np.asarray(run.model(jnp.asarray(NEW)))).max() > 0.01
