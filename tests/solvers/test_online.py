"""Online methods on a budget against their papers, step by step in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from online_by_hand import (
    BUDGET,
    ETA,
    FREQUENCIES,
    KEPT,
    LAM,
    METHODS,
    NEW,
    C,
    Function,
    Perceptron,
    alone,
    at,
    by_hand,
    fourier,
)
from oracles import gaussian

each = pytest.mark.parametrize("name", METHODS)


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
    "fixed": Fixed,
    "tighter": Tighter,
    "forgetron": Forgetron,
    "bogd": Bogd,
    "nogd": Nogd,
    "stoptron": Stoptron,
    "tightest": Tightest,
    "projectron": Projectron,
    "projectron++": ProjectronPlus,
    "bpas": Bpas,
    "fogd": Fogd,
}


@pytest.mark.long(but=5)
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
        full = int(np.argmax(np.asarray(info.support) == BUDGET))  # the mean begins there
        first = solver.model(at(states, full))(jnp.asarray(NEW))
        assert name == "fogd" or np.allclose(first, expected[full], rtol=0, atol=1e-10)
        np.testing.assert_allclose(
            solver.model(at(states, -1))(jnp.asarray(NEW)), method.mean(), rtol=0, atol=1e-10
        )
    if name == "forgetron":
        assert min(method.phis) < 0.5 and max(method.phis) == 1
        np.testing.assert_allclose(states.f.memory[-1], method.Q, rtol=1e-10)
