"""Rows, losses and optima in NumPy in float64, which share nothing with the package, for the tests
of objectives and certificates."""

import functools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import oracles
from oracles import gaussian

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.models import Expansion, Linear

N, D = 20, 2
EXACT = 1e-12  # float64 rounding of sums over 20 rows, numbers of size 1 to 100


def _data():
    """float32 rows, as users have them; the certificates are to be in float64 all the same."""
    rng = np.random.default_rng(11)
    x = (rng.normal(size=(N, D)) + [0.4, 0.1]).astype(np.float32)
    y = np.where(x @ [1.0, -1.0] + 0.5 * rng.normal(size=N) > 0.2, 1.0, -1.0)
    target = x @ [0.8, -0.5] + 0.4 + 0.3 * rng.normal(size=N)
    weight = np.r_[0.0, 0.0, rng.integers(1, 4, N - 3), 0.5].astype(float)
    return x, y, target.astype(np.float32).astype(float), weight


X32, Y, TARGET, WEIGHT = _data()
X = X32.astype(np.float64)
GAMMA = 0.7
KERNEL = kernels.rbf(gamma=GAMMA)  # a Python float: nothing is rounded to float32 on the way
GRAM, LINEAR = gaussian(X, X, GAMMA), X @ X.T

LOSSES = {
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "logistic": losses.logistic,
    "eps_insensitive": losses.eps_insensitive(0.25),
}
CONJUGATES = {  # (u, y), where they are finite
    "hinge": lambda u, y: u * y,
    "squared_hinge": lambda u, y: u**2 / 4 + u * y,
    "eps_insensitive": lambda u, y: u * y + 0.25 * np.abs(u),
}
PROBLEMS = [(0.3, None), (0.05, WEIGHT)]  # lam, weights


def dataset(name="hinge", weight=None, x=X32):
    task = "binary" if LOSSES[name].labels else "regression"
    return jaxsvm.dataset(x, targets(name), weight, task=task)


def targets(name):
    return Y if LOSSES[name].labels else TARGET


def shares(weight):
    return np.full(N, 1 / N) if weight is None else weight / weight.sum()


def values(name, score, y):
    return oracles.formula(LOSSES[name])[0](score, y)


def primal_by_hand(square, score, name, lam, weight):
    """lam/2 |w|^2 + weighted mean loss, from |w|^2 and the scores."""
    return lam / 2 * square + shares(weight) @ values(name, score, targets(name))


def dual_by_hand(coef, gram, name, lam, weight, bias="none"):
    share, y = shares(weight), targets(name)
    live = share > 0
    assert (coef[~live] == 0).all()
    u = -lam * coef[live] / share[live]
    square = coef @ gram @ coef + (coef.sum() ** 2 if bias == "feature" else 0)
    return -lam / 2 * square - share[live] @ CONJUGATES[name](u, y[live])


@functools.cache
def optimum(name, bias, problem, space="linear"):
    """(P at a feasible point: never below min P, and above it by rounding; the point w, b), by
    LIBLINEAR, LIBSVM or SciPy on copies of the rows."""
    lam, weight = PROBLEMS[problem]
    times = np.ones(N, int) if weight is None else np.rint(2 * weight).astype(int)
    value, vector = np.linalg.eigh(GRAM)  # any square root of the Gram matrix is a feature map
    phi = X if space == "linear" else vector * np.sqrt(np.maximum(value, 0))
    peer = oracles.minimum if name in ("squared_hinge", "logistic") else oracles.liblinear
    solver = SimpleNamespace(C=1 / (lam * times.sum()), loss=LOSSES[name], bias=bias)
    f = peer(np.repeat(phi, times, 0), np.repeat(targets(name), times), solver).f
    b = float(f(np.zeros((1, phi.shape[1])))[0])
    w = f(np.eye(phi.shape[1])) - b
    square = w @ w + (b * b if bias == "feature" else 0)
    return primal_by_hand(square, phi @ w + b, name, lam, weight), np.append(w, b)


def line(w, b=0.0, bias="none"):
    """A linear model in float32."""
    return Linear(jnp.asarray(w, jnp.float32), jnp.asarray(b, jnp.float32), bias)


def expansion(coef, b=0.0, bias="none", index=None, x=X32, dtype=jnp.float32):
    index = np.arange(len(coef)) if index is None else index
    numbers = (jnp.asarray(a, dtype) for a in (coef, b))
    return Expansion(KERNEL, jnp.asarray(x), *numbers, jnp.asarray(index, jnp.int32), bias)


def scores_and_square(model):
    """Scores at the rows and |w|^2 of a model, in NumPy."""
    b, linear = float(model.b), isinstance(model, Linear)
    coef = np.asarray(model.w if linear else model.coef, np.float64)
    score, square = (X @ coef, coef @ coef) if linear else (GRAM @ coef, coef @ GRAM @ coef)
    return score + b, square + (b * b if model.bias == "feature" else 0)


def in_box(name, lam, weight, rng, bias="none"):
    """Random dual coefficients in bounds, of the training rows."""
    bound = shares(weight) / lam
    coef = rng.uniform(0, 1, N) * bound * Y
    coef[rng.random(N) < 0.3] = 0
    coef = np.where(rng.random(N) < 0.3, np.where(coef == 0, 0, bound * Y), coef)
    if name == "squared_hinge":
        coef = 5 * coef  # no upper bound
    if name == "eps_insensitive":
        coef = coef * np.sign(rng.normal(size=N))
    return balanced(coef) if bias == "free" else coef


def balanced(coef):
    """The side of larger sum scaled down: the coefficients of a free bias."""
    up, down = coef[coef > 0].sum(), -coef[coef < 0].sum()
    return coef * min(up, down) / np.where(coef > 0, up, down)
