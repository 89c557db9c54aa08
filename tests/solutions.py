"""Exact solutions by SciPy, and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import jaxsvm
from jaxsvm import kernels, losses
from jaxsvm.implicit import solution

N, STEP = 18, 1e-5
RNG = np.random.default_rng(4)
X, Z = RNG.normal(size=(N, 2)), RNG.normal(size=(5, 2))
LABELS = np.where(X[:, 0] + RNG.normal(size=N) > 0, 1.0, -1.0)
TARGETS = np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=N)
WEIGHT = np.where(np.arange(N) == 3, 0.0, RNG.uniform(0.5, 2, N))  # one row is padding
INDEX = jnp.arange(N, dtype=jnp.int32)
# The loss made of its own parameter `own`, and that.
LOSSES = {
    "hinge": (lambda own: losses.hinge, 1.0),
    "squared_hinge": (lambda own: losses.squared_hinge, 1.0),
    "smooth_hinge": (losses.smooth_hinge, 0.7),
    "squared": (lambda own: losses.squared, 1.0),
    "eps_insensitive": (losses.eps_insensitive, 0.3),
    "pinball": (losses.pinball, 0.3),
}


def start(name, **changes):
    y = LABELS if "hinge" in name else TARGETS
    return {
        "C": 1.5,
        "sigma": 0.9,
        "own": LOSSES[name][1],
        "x": X,
        "y": y,
        "weight": WEIGHT,
    } | changes


def gaussian(x, z, sigma):
    return np.exp(-np.sum((x[:, None] - z[None]) ** 2, axis=-1) / (2 * sigma**2))


def box(name, p):
    """low, high, kink, soft in NumPy."""
    y, C, own, zero = p["y"], p["C"] * p["weight"], p["own"], np.zeros(len(p["y"]))
    inverse, endless = np.divide(1, C, out=zero.copy(), where=C > 0), np.where(C > 0, np.inf, 0)
    sided = lambda high: (np.where(y > 0, 0, -high), np.where(y > 0, high, 0))
    return {
        "hinge": lambda: (*sided(C), zero, zero),
        "squared_hinge": lambda: (*sided(endless), zero, inverse / 2),
        "smooth_hinge": lambda: (*sided(C), zero, own * inverse),
        "squared": lambda: (-endless, endless, zero, inverse),
        "eps_insensitive": lambda: (-C, C, zero + own, zero),
        "pinball": lambda: ((own - 1) * C, own * C, zero, zero),
    }[name]()


def sets(name, bias, p):
    """Where the coefficients are, by SciPy: 0 inside, -1 on low, 1 on high, 2 on 0; and their
    signs."""
    (low, high, kink, soft), y = box(name, p), p["y"]
    n, K = len(y), gaussian(p["x"], p["x"], p["sigma"]) + np.diag(soft)
    coef = lambda a: a[:n] - a[n:]
    fun = lambda a: coef(a) @ K @ coef(a) / 2 - y @ coef(a) + kink @ (a[:n] + a[n:])
    slope = lambda a: np.concatenate([K @ coef(a) - y + kink, -(K @ coef(a)) + y + kink])
    total = {
        "type": "eq",
        "fun": lambda a: np.sum(coef(a)),
        "jac": lambda a: np.repeat([1.0, -1.0], n),
    }
    found = scipy.optimize.minimize(
        fun,
        np.zeros(2 * n),
        jac=slope,
        method="SLSQP",
        bounds=[(0, h) for h in np.concatenate([high, -low])],
        constraints=[total] if bias == "free" else [],
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    c = coef(found.x)
    near = 1e-5 * np.where(np.isfinite(high - low), high - low, np.abs(c).max())
    place = np.where((kink > 0) & (np.abs(c) <= near), 2, 0)
    return np.where(c - low <= near, -1, np.where(high - c <= near, 1, place)), np.sign(c)


def exact(name, bias, p, where):
    """The solution that the sets tell, once it is seen to be one."""
    (low, high, kink, soft), y = box(name, p), p["y"]
    place, sign = where
    inside, K = place == 0, gaussian(p["x"], p["x"], p["sigma"]) + np.diag(soft)
    coef = np.select([place == -1, place == 1], [low, high], 0.0)
    if inside.any():
        m = np.sum(inside)
        matrix, right = K[np.ix_(inside, inside)], (y - K @ coef - kink * sign)[inside]
        if bias == "free":
            matrix = np.block([[matrix, np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
            right = np.append(right, -coef.sum())
        step = np.linalg.solve(matrix, right)
        coef[inside] = step[:m]
    pull = y - K @ coef
    # b lies between the two
    least = np.max((pull - kink * np.where(coef >= 0, 1, -1))[coef < high], initial=-np.inf)
    most = np.min((pull - kink * np.where(coef > 0, 1, -1))[coef > low], initial=np.inf)
    b = 0.0 if bias == "none" else step[-1] if inside.any() else (least + most) / 2
    assert np.all((low <= coef) & (coef <= high)) and least - 1e-9 <= b <= most + 1e-9
    assert bias == "none" or abs(coef.sum()) < 1e-9
    return coef, b


def held_out(name, bias, p, where):
    coef, b = exact(name, bias, p, where)
    return np.sum(np.tanh(gaussian(Z, p["x"], p["sigma"]) @ coef + b))


def attach(p, coef, b, name, bias, x=None, **choices):
    data = jaxsvm.Batch(p["x"] if x is None else x, p["y"], INDEX[: coef.shape[0]], p["weight"])
    return solution(
        coef, b, kernels.rbf(p["sigma"]), data, p["C"], LOSSES[name][0](p["own"]), bias, **choices
    )


def objective(p, coef, b, name, bias, **choices):
    coef, b = attach(p, coef, b, name, bias, **choices)
    return jnp.sum(jnp.tanh(kernels.rbf(p["sigma"])(jnp.asarray(Z, coef.dtype), p["x"]) @ coef + b))


@functools.partial(jax.jit, static_argnames=("name", "bias", "free"))
def gradient(p, coef, b, name, bias, free=None):
    return jax.value_and_grad(objective)(p, coef, b, name, bias, free=free)


def moved(p, key, direction, by):
    return p | {key: p[key] + by * direction}


def directions(name, p):
    rng = np.random.default_rng(0)
    keys = ["C", "sigma", "x", "weight"] + ["own"] * (
        name in ("smooth_hinge", "eps_insensitive", "pinball")
    )
    found = {key: rng.normal(size=np.shape(p[key])) for key in keys + ["y"] * ("hinge" not in name)}
    return found | {"weight": np.where(p["weight"] > 0, found["weight"], 0)}
