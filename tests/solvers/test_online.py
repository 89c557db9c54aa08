"""The online methods on a budget against transcriptions in NumPy, which go over the same rows in
the same order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.spatial
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gaussian

import jaxsvm
from jaxsvm import features, kernels, samplers
from jaxsvm.solvers.perceptrons.forgetron import shrinkage

N, D, BUDGET = 150, 3, 12  # one shape for all data sets, so that programs are compiled once
EPS = 2.0**-23  # of float32
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, D))
LABELS = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] + 0.4 * RNG.normal(size=N) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(6, D))
KEY = jax.random.key(4)
RBF = kernels.rbf(1.0)
C, LAM, ETA, KEPT, FREQUENCIES = 0.7, 0.05, 0.3, 8, 10

PERCEPTRONS = {  # which are the perceptron while there is room
    "stoptron": jaxsvm.stoptron,
    "random": jaxsvm.random_budget_perceptron,
    "fixed": jaxsvm.fixed_budget_perceptron,
    "tighter": jaxsvm.tighter_perceptron,
    "tightest": jaxsvm.tightest_perceptron,
    "forgetron": jaxsvm.forgetron,
}
METHODS = {
    name: lambda budget, make=make: make(RBF, budget=budget) for name, make in PERCEPTRONS.items()
} | {
    "projectron": lambda budget: jaxsvm.projectron(RBF, budget=budget, eta=ETA),
    "projectron++": lambda budget: jaxsvm.projectron_plus(RBF, budget=budget, eta=ETA),
    "bpas": lambda budget: jaxsvm.bpas(C, RBF, budget=budget),
    "bogd": lambda budget: jaxsvm.bogd(LAM, RBF, budget=budget, eta=ETA),
    "fogd": lambda budget: jaxsvm.fogd(ETA * FREQUENCIES, fourier()),
    "nogd": lambda budget: jaxsvm.nogd(ETA, RBF, budget=budget, features=2 * budget // 3),
}
each = pytest.mark.parametrize("name", METHODS)


def fourier():
    return features.fourier(jax.random.key(6), RBF, dim=D, features=2 * FREQUENCIES)


def batches(x=X, y=LABELS, weight=1.0, b=1):
    """Rows in their order, b a step, (t, b, ...)."""
    row = lambda a: jnp.asarray(a).reshape(-1, b, *np.shape(a)[1:])
    return jaxsvm.Batch(
        row(x),
        row(y),
        row(np.arange(len(y), dtype=np.int32)),
        row(weight * np.ones(len(y), np.asarray(x).dtype)),
    )


@jax.jit
def trace(solver, state, steps):
    """States and infos of steps, and the values at new rows after each."""

    def step(state, batch):
        state, info = solver.update(state, batch)
        return state, (state, info, current(solver, state)(NEW.astype(batch.x.dtype)))

    return jax.lax.scan(step, state, steps)[1]


def current(solver, state):
    """The function of the next step, where the model is a mean of such functions."""
    means = {"MeanState": "f", "NystromState": "w"}
    name = means.get(type(state.f).__name__)
    return solver.model(
        state if name is None else state._replace(f=state.f._replace(mean=getattr(state.f, name)))
    )


def run(solver, steps):
    return jax.device_get(trace(solver, solver.init(KEY, at(steps, 0)), steps))


def at(states, t):
    """One step of many."""
    return jax.tree.map(lambda a: a[t], states)


# by hand, in NumPy


class Function:
    """f = sum_j beta_j k(x_j, .), the oldest point first."""

    def __init__(self, kernel=gaussian, dim=D):
        self.kernel, self.x, self.beta = kernel, np.zeros((0, dim)), np.zeros(0)

    def __len__(self):
        return len(self.beta)

    def __call__(self, x):
        return self.kernel(x, self.x) @ self.beta

    def append(self, x, beta):
        self.x, self.beta = np.concatenate([self.x, x]), np.append(self.beta, beta)

    def drop(self, r):
        self.x, self.beta = np.delete(self.x, r, 0), np.delete(self.beta, r)

    def without(self):
        """f without point r (rows) at point j (columns)."""
        gram = self.kernel(self.x, self.x)
        return gram @ self.beta - self.beta[:, None] * gram


class Perceptron:
    """Rows are looked at before they are learnt; `step` gives the loss."""

    def __init__(self, budget=BUDGET):
        self.f, self.mistakes, self.budget = Function(), 0, budget

    def step(self, x, y):
        self.look(x, y)
        if y * self.f(x)[0] > 0:
            return 0.0
        self.mistakes += 1
        self.learn(x, y)
        return 1.0

    def look(self, x, y):
        pass

    def learn(self, x, y):
        self.f.append(x, y)
        if len(self.f) > self.budget:
            self.shorten()

    def values(self):
        return self.f(NEW)


class Stoptron(Perceptron):
    def learn(self, x, y):
        if len(self.f) < BUDGET:
            self.f.append(x, y)


class Fixed(Perceptron):
    def shorten(self):
        self.f.drop(np.argmax(np.sign(self.f.beta) * np.diag(self.f.without())))


class Tighter(Perceptron):
    def shorten(self):
        self.f.drop(np.argmin(np.sum(np.sign(self.f.beta) * self.f.without() <= 0, axis=1)))


class Tightest(Perceptron):
    """As its docstring says."""

    def __init__(self):
        super().__init__()
        self.near = []  # rows of each label whose nearest point it is

    def look(self, x, y):
        if len(self.f):
            self.near[np.argmax(gaussian(self.f.x, x)[:, 0])][int(y < 0)] += 1

    def learn(self, x, y):
        self.near.append([int(y > 0), int(y < 0)])
        super().learn(x, y)

    def shorten(self):
        ahead, behind = np.array(self.near).T
        p = (1 + ahead) / (2 + ahead + behind)
        good = np.where(self.f.without() > 0, p, 1 - p).sum(1)
        r = np.flatnonzero(good >= good.max() - 1e-3)[0]
        self.f.drop(r)
        del self.near[r]


class Forgetron(Perceptron):
    Q, phis = 0.0, ()

    def shorten(self):
        sigma, mu = abs(self.f.beta[0]), np.sign(self.f.beta[0]) * self.f(self.f.x[:1])[0]
        a, b, c = sigma**2 - 2 * sigma * mu, 2 * sigma, self.Q - 15 / 32 * self.mistakes
        phi = 1 if a + b + c <= 0 else -2 * c / (b + np.sqrt(b * b - 4 * a * c))
        self.f.beta *= phi
        self.Q, self.phis = (
            self.Q + (sigma * phi) ** 2 + 2 * sigma * phi * (1 - phi * mu),
            (*self.phis, phi),
        )
        self.f.drop(0)


class Projectron(Perceptron):
    """With the inverse of K, and the recursion of the paper."""

    def __init__(self, eta=ETA):
        super().__init__()
        self.eta, self.inverse, self.kinds = eta, np.zeros((0, 0)), set()

    def distance(self, x):
        near = gaussian(x, self.f.x)[0]
        d = self.inverse @ near
        return d, max(1 - near @ d, 0)

    def learn(self, x, y):
        d, left = self.distance(x)
        if left <= self.eta or len(self.f) == BUDGET:
            self.kinds.add("near" if left <= self.eta else "full")
            self.f.beta += y * d
            return
        self.f.append(x, y)
        line = np.append(d, -1)
        self.inverse = np.pad(self.inverse, (0, 1)) + np.outer(line, line) / left


class ProjectronPlus(Projectron):
    """With DOGMA's rule."""

    def look(self, x, y):
        margin = y * self.f(x)[0]
        if not 0 < margin < 1:
            return
        d, left = self.distance(x)
        loss, reach = 1 - margin, 1 - left
        if loss - left / self.eta > 0:
            tau = [loss / reach, 1, 2 * (loss - left / self.eta) / reach]
            self.kinds.add(int(np.argmin(tau)))
            self.f.beta += min(tau) * y * d


class Bpas:
    def __init__(self):
        self.f, self.values = Function(), lambda: self.f(NEW)

    def step(self, x, y):
        score = self.f(x)[0]
        loss = max(1 - y * score, 0)
        tau = min(C, loss)
        if tau == 0:
            return loss
        if len(self.f) < BUDGET:
            self.f.append(x, tau * y)
            return loss
        beta, near = self.f.beta, gaussian(x, self.f.x)[0]
        new = beta * near + tau * y
        change = 0.5 * (beta**2 + new**2 - 2 * beta * new * near) + C * np.maximum(
            1 - y * (score - beta * near + new), 0
        )
        r = np.argmin(change)
        self.f.append(x, new[r])
        self.f.drop(r)
        return loss


class Bogd:
    def __init__(self):
        self.f, self.values = Function(), lambda: self.f(NEW)

    def step(self, x, y):
        loss = max(1 - y * self.f(x)[0], 0)
        self.f.beta *= 1 - ETA * LAM
        if loss > 0:
            self.f.append(x, ETA * y)
            if len(self.f) > BUDGET:
                self.f.drop(0)
        return loss


class Fogd:
    """The authors' form: features cos, sin without a factor, and a step of eta."""

    def __init__(self):
        phi = fourier()
        self.frequencies, self.w = (
            np.asarray(phi.frequencies * phi.scale),
            np.zeros(2 * FREQUENCIES),
        )
        self.met = []  # w after each update

    def z(self, x):
        return np.concatenate([np.cos(x @ self.frequencies), np.sin(x @ self.frequencies)], axis=1)

    def step(self, x, y):
        loss = max(1 - y * (self.z(x) @ self.w)[0], 0)
        if loss > 0:
            self.w = self.w + ETA * y * self.z(x)[0]
            self.met.append(self.w)
        return loss

    def values(self):
        return self.z(NEW) @ self.w

    def mean(self):
        return self.z(NEW) @ np.mean(self.met, 0)


class Nogd:
    def __init__(self):
        self.f, self.map, self.met = Function(), None, []

    def z(self, x):
        return gaussian(x, self.f.x) @ self.map

    def step(self, x, y):
        loss = max(1 - y * (self.f(x) if self.map is None else self.z(x) @ self.w)[0], 0)
        if loss > 0 and self.map is None:
            self.f.append(x, ETA * y)
            if len(self.f) == BUDGET:
                value, vector = np.linalg.eigh(gaussian(self.f.x, self.f.x))
                value, vector = value[-KEPT:], vector[:, -KEPT:]
                self.map, self.w = (
                    vector / np.sqrt(value),
                    np.sqrt(value) * (vector.T @ self.f.beta),
                )
        elif loss > 0:
            self.w = self.w + ETA * y * self.z(x)[0]
            self.met.append(self.w)
        return loss

    def values(self):
        return self.f(NEW) if self.map is None else self.z(NEW) @ self.w

    def mean(self):
        return self.z(NEW) @ np.mean(self.met, 0)


BY_HAND = {
    "stoptron": Stoptron,
    "fixed": Fixed,
    "tighter": Tighter,
    "tightest": Tightest,
    "forgetron": Forgetron,
    "projectron": Projectron,
    "projectron++": ProjectronPlus,
    "bpas": Bpas,
    "bogd": Bogd,
    "fogd": Fogd,
    "nogd": Nogd,
}


def by_hand(method, x=X, y=LABELS):
    """Losses and values at new rows after each step."""
    losses, values = [], []
    for row, label in zip(x, y, strict=True):
        losses.append(method.step(row[None], label))
        values.append(method.values())
    return np.array(losses), np.array(values)


@functools.cache
def alone(name):
    """A row a step, in float64."""
    return run(METHODS[name](BUDGET), batches())


@pytest.mark.long
@pytest.mark.parametrize("name", BY_HAND)
def test_every_step_is_that_of_the_paper(name, x64):
    """Values at new rows and losses after each step."""
    method, solver = BY_HAND[name](), METHODS[name](BUDGET)
    states, info, values = alone(name)
    losses, expected = by_hand(method)
    # 150 steps of rounding, 1e-16 each; where an inverse or eigenvectors are used, times their
    # condition
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(info.loss, losses, rtol=0, atol=1e-10)
    assert np.sum(losses >= 1) > 3 * BUDGET
    if name != "fogd":
        assert int(info.support[-1]) == BUDGET
    if name in ("fogd", "nogd"):
        assert len(method.met) > 2 * BUDGET
        np.testing.assert_allclose(
            solver.model(at(states, -1))(jnp.asarray(NEW)), method.mean(), rtol=0, atol=1e-10
        )
    if name == "forgetron":
        assert min(method.phis) < 0.5 and max(method.phis) == 1
        np.testing.assert_allclose(states.f.memory[-1], method.Q, rtol=1e-10)


# random_budget_perceptron


def numbers(x, rows=X):
    """Which rows the points (m, d) are; places of zeros that nothing was stored in are left out."""
    far, which = scipy.spatial.cKDTree(rows).query(x)
    return set(which[far == 0].tolist())


@pytest.mark.long
def test_random_budget_perceptron_given_the_points_that_went(x64):
    states, info, values = alone("random")
    points = np.asarray(jax.vmap(METHODS["random"](BUDGET).model)(states).x)
    f, held, gone = Function(), [], []
    for t, (row, label) in enumerate(zip(X, LABELS, strict=True)):
        mistake = label * f(row[None])[0] <= 0
        assert mistake == info.loss[t]
        if mistake:
            f.append(row[None], label)
            now = numbers(points[t])
            out = [place for place, number in enumerate(held) if number not in now]
            # one of the old ones, never the newcomer
            assert len(out) == (len(held) == BUDGET) and t in now
            held.append(t)
            for place in out:
                f.drop(place)
                gone.append(held.pop(place))
        np.testing.assert_allclose(values[t], f(NEW), rtol=0, atol=1e-12)
    assert len(gone) > 2 * BUDGET


def far(n):
    """Rows so far from each other that the kernel among them is the identity."""
    return np.stack([50.0 * np.arange(n), np.zeros(n), np.zeros(n)], axis=1)


@functools.cache
def drops(seed, rounds=10):
    """Of rows that are all mistakes: the age among the stored points of that which goes, (t,)."""
    solver = METHODS["random"](BUDGET)
    with jax.enable_x64(True):
        x, y = far(rounds * N), np.where(np.arange(rounds * N) % 3 == 0, 1.0, -1.0)
        state, held, ages = solver.init(jax.random.key(seed), at(batches(), 0)), [], []
        for k in range(rounds):
            states, info, _ = jax.device_get(
                trace(solver, state, batches(x[k * N : k * N + N], y[k * N : k * N + N]))
            )
            assert np.all(info.loss == 1)
            state = at(states, -1)
            for t, points in enumerate(
                np.asarray(jax.vmap(solver.model)(states).x[..., 0] / 50).astype(int), k * N
            ):
                if len(held) == BUDGET:
                    ages.append(
                        [place for place, number in enumerate(held) if number not in points]
                    )
                    held.pop(ages[-1][0])
                held.append(t)
                assert len(held) < BUDGET or set(held) == set(points.tolist())
    assert np.shape(ages) == (rounds * N - BUDGET, 1)
    return np.ravel(ages)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_every_old_point_is_as_likely_to_go(seed):
    """By age, and by age after that of the drop before: chi-square of 12 and 16 classes."""
    ages = drops(seed)
    assert scipy.stats.chisquare(np.bincount(ages, minlength=BUDGET)).pvalue > 1e-3
    pairs = np.bincount(4 * (ages[:-1] // 3) + ages[1:] // 3, minlength=16)
    assert scipy.stats.chisquare(pairs).pvalue > 1e-3


@pytest.mark.long
def test_another_key_draws_others():
    assert np.mean(drops(0) == drops(1)) < 0.2  # 1/12 by chance


# room for all

OFTEN = RNG.integers(0, 50, N)  # rows that come several times, with either label
MIXED, MIXED_LABELS = X[OFTEN], LABELS[OFTEN] * np.where(RNG.random(N) < 0.25, -1, 1)


@functools.cache
def perceptron():
    """Losses, and values at new rows, of `perceptron(kernel)` on rows that come again; and how many
    of them it needs."""
    data, solver = jaxsvm.dataset(MIXED, MIXED_LABELS), jaxsvm.perceptron(RBF)

    @jax.jit
    def scanned(state, rows):
        def step(state, row):
            state, info = solver.update(state, data._replace(index=row))
            return state, (info.loss, solver.model(state, data)(NEW))

        return jax.lax.scan(step, state, rows)[1]

    losses, values = scanned(solver.init(KEY, data), jnp.arange(N, dtype=jnp.int32)[:, None])
    return losses, values, len(set(OFTEN[np.asarray(losses) == 1]))


@pytest.mark.long
@pytest.mark.parametrize("name", [*PERCEPTRONS, "projectron"])
def test_with_room_for_all_it_is_the_perceptron(name, x64):
    """Rows come again with either label, so that coefficients grow, vanish and change sign in their
    places."""
    losses, values, distinct = perceptron()
    expected = by_hand(Perceptron(np.inf), MIXED, MIXED_LABELS)
    assert distinct < np.sum(losses)
    make = PERCEPTRONS.get(name, jaxsvm.projectron)
    _, info, found = run(make(RBF, budget=distinct), batches(MIXED, MIXED_LABELS))
    np.testing.assert_array_equal(info.loss, losses)
    np.testing.assert_array_equal(info.loss, expected[0])
    assert int(info.support[-1]) == distinct
    # sums of some 50 values in other orders; Projectron's d of a row that is a point is 1 but for
    # 1e-16 cond(K)
    tolerance = 1e-12 if name in PERCEPTRONS else 1e-9
    np.testing.assert_allclose(found, values, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found, expected[1], rtol=0, atol=tolerance)


# forgetron


@pytest.mark.parametrize(
    ("sigma", "mu", "damage", "mistakes"),
    [
        (1.0, -1.0, 0.0, 3.0),  # a = 3
        (2.0, 1.0, 0.0, 2.0),  # a = 0
        (2.0, 1.25, 0.0, 32 / 15),  # a = -1, b = 4, c = -1
        (1.0, 1.0, 0.25, 2.0),  # a = -1, b = 2
        (0.5, 3.0, 0.0, 1.0),  # a < 0 and all of it is safe
        (0.3, -2.0, 4.0, 9.0),
    ],
)
def test_shrinkage_is_the_largest_that_is_safe(sigma, mu, damage, mistakes, x64):
    phi = np.arange(1, 10**6 + 1) / 10**6
    safe = (sigma * phi) ** 2 + 2 * sigma * phi * (1 - phi * mu) + damage <= 15 / 32 * mistakes
    np.testing.assert_allclose(shrinkage(sigma, mu, damage, mistakes), phi[safe].max(), atol=1.1e-6)


def test_shrinkage_where_public_code_has_the_other_root(x64):
    np.testing.assert_allclose(shrinkage(2.0, 1.25, 0.0, 32 / 15), 2 - 3**0.5, rtol=1e-12)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0, 0.5), st.floats(0.2, 3))
def test_forgetron_shrinks_within_bounds_and_its_damage_stays_below_them(
    seed, sigma, noise, weight
):
    """In float32: 0 < phi <= 1 and Q <= 15/32 mistakes, whatever the rows, their weight and the
    width of the kernel."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(N, D)).astype(np.float32)
    y = np.where(random.random(N) < noise, -1, 1) * np.sign(x[:, 0])
    states, info, _ = run(
        jaxsvm.forgetron(kernels.rbf(sigma), budget=4), batches(x, y.astype(np.float32), weight)
    )
    f, mistakes = states.f, np.cumsum(info.loss > 0)
    np.testing.assert_array_equal(f.added, mistakes)
    late = np.flatnonzero((info.loss > 0) & (mistakes > 4))
    newest = np.argmax(np.where(f.coef != 0, f.birth, -1), axis=1)
    phi = np.abs(f.coef[late, newest[late]]) / np.float32(weight)
    assert np.all(phi > 0) and np.all(phi <= 1 + EPS)
    # a phi on the bound is rounded, and so is the sum, whose terms are below 20 weight^2
    assert np.all(f.memory <= 15 / 32 * mistakes * (1 + 4 * EPS) + 40 * EPS * max(weight, 1) ** 2)


# batches, sparse rows


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("bogd", "fogd")])
def test_rows_of_a_batch_come_in_turn(name, x64):
    """Rows so far apart that no score changes in between; bogd shrinks once a step, features of
    fogd are never so far apart."""
    solver, x = METHODS[name](BUDGET), far(N)
    ones, info, _ = run(solver, batches(x))
    # a step takes the mean of its rows
    threes, batched, _ = run(solver, batches(x, weight=3.0, b=3))
    one, three = solver.model(at(ones, -1)), solver.model(at(threes, -1))
    np.testing.assert_allclose(three.x, one.x, rtol=0, atol=0)
    np.testing.assert_allclose(three.coef, one.coef, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        batched.loss, 3 * info.loss.reshape(-1, 3).mean(1), rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(batched.support, info.support[2::3])
    assert int(info.support[-1]) == BUDGET


# single cases


@pytest.mark.long
def test_projectron_takes_all_mistakes_of_a_batch_as_the_perceptron_does(x64):
    """The second row is right once the first is in; it was a mistake when the batch was scored."""
    data = jaxsvm.Batch(
        jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        jnp.ones(2),
        jnp.arange(2, dtype=jnp.int32),
        jnp.ones(2),
    )
    values = []
    for solver in (jaxsvm.projectron(RBF, budget=4), jaxsvm.stoptron(RBF, budget=4)):
        state = solver.update(solver.init(KEY, data), data)[0]
        values.append(solver.model(state)(data.x))
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_bpas_takes_a_row_that_is_0_in_feature_space():
    """Nothing projects on it; the other rows are learned as if it were absent."""
    data = jaxsvm.dataset(
        np.array([[1.0, 0], [0, 1], [0, 0], [2, 1]], np.float32), np.array([1, -1, 1, 1])
    )
    solver = jaxsvm.bpas(1.0, kernels.linear(), budget=2)
    found = jaxsvm.fit(solver, data, KEY, steps=8, sampler=samplers.epochs(1, shuffle=False))
    assert np.isfinite(np.asarray(found.model.coef)).all() and found.finite


def test_counts_of_a_point_stay_when_its_row_is_a_mistake_again():
    """p_j counts all rows nearest to x_j, those too that are the point itself."""
    data = jaxsvm.dataset(np.array([[1.0], [1.0]], np.float32), np.array([1, -1]))
    solver = jaxsvm.tightest_perceptron(kernels.linear(), budget=3)
    sampler = samplers.epochs(1, shuffle=False)
    state = jaxsvm.fit(solver, data, KEY, steps=4, sampler=sampler).state.solver
    counts = np.concatenate(
        [np.asarray(a).reshape(3, -1) for a in jax.tree.leaves(state.f.annotations)], axis=1
    )
    assert counts.sum() == 4 and sorted(counts[counts.sum(1) > 0].ravel()) == [2, 2]
