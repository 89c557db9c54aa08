"""Online methods of the papers in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from oracles import gaussian

import jaxsvm
from jaxsvm import features, kernels

N, D, BUDGET = 150, 3, 12  # one shape for all data sets, so that programs are compiled once
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
