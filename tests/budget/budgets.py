"""Rows, runs and steps by hand in NumPy in float64, for the tests of functions on a budget."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import scipy.interpolate
import scipy.optimize
from cases import maker
from jax import lax

import jaxsvm
from jaxsvm import budget, kernels
from jaxsvm.budget.merging import GRID
from jaxsvm.types import take

N, T, D, LAM, SIGMA = 24, 72, 3, 0.05, 0.9  # one shape for all data sets: they share programs
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)  # the same rows in both dtypes
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, np.round(RNG.uniform(0.5, 2, N), 2))
NEW = RNG.normal(size=(7, D))
RBF, CUBIC = kernels.rbf(SIGMA), kernels.polynomial()
KEY = jax.random.key(1)
dataset = maker(X, LABELS)
gaussian = functools.partial(oracles.gaussian, gamma=1 / (2 * SIGMA**2))


def cubic(x, z):
    return (x @ z.T + 1) ** 3


def make(maintain, lam=LAM, kernel=RBF, size=5):
    return jaxsvm.bsgd(lam, kernel, budget=size, maintain=maintain)


def orders(times):
    """`times` passes in random orders, (t, 1)."""
    rng = np.random.default_rng(0)
    return jnp.asarray(np.concatenate([rng.permutation(N) for _ in range(times)])[:, None], "i4")


@jax.jit
def trace(solver, state, data, rows):
    """After each step on given rows (t, b): the written state, the model, its values at NEW; and
    what the step said."""

    def step(state, index):
        state, info = solver.update(state, take(data, index))
        model = solver.model(state)
        return state, (state.f.flush(), model, model(jnp.asarray(NEW, data.x.dtype)), info)

    return lax.scan(step, state, rows)[1]


def states(solver, data, rows):
    return trace(solver, jax.jit(solver.init)(KEY, data), data, rows)


def live(f, t):
    """Points and coefficients of s after a step, in float64."""
    front, back, m = int(f.front[t]), int(f.back[t]), f.coef.shape[1]
    x, shift, coef = (np.asarray(a[t], np.float64) for a in (f.x, f.shift, f.coef))
    there = [*range(front), *range(m - back, m)]
    return (x + shift)[there], coef[there]


def sqnorm(x, coef, kernel=gaussian):
    return coef @ kernel(x, x) @ coef


# by hand, in NumPy


def s_of(h, m, L):
    return m * np.exp(-L * (1 - h) ** 2) + (1 - m) * np.exp(-L * h**2)


def densely(m, L):
    """max_h s(h) by finer and finer grids, with both ends."""
    m, L = np.broadcast_arrays(np.asarray(m, np.float64), np.asarray(L, np.float64))
    h, best = np.zeros(m.shape), s_of(0.0, m, L)
    centre, step = np.full(m.shape, 0.5), 0.5 / 100
    for _ in range(6):
        for k in range(-100, 101) if step == 0.005 else range(-10, 11):
            at = np.clip(centre + k * step, 0, 1)
            value = s_of(at, m, L)
            h, best = np.where(value > best, at, h), np.maximum(value, best)
        centre, step = h, step / 10
    return h, best


def lost(m, L, s):
    """|w - w'|^2 / (coef_i + coef_j)^2."""
    return m**2 + (1 - m) ** 2 + 2 * m * (1 - m) * np.exp(-L) - s**2


def peak(m, L):
    """h and s(h): the root of s' next to the best of a grid, the smallest of several as high."""
    grid = np.linspace(0, 1, 2001)
    value = s_of(grid, m, L)
    k = int(np.argmax(value >= value.max() - 1e-14))
    slope = lambda h: m * (1 - h) * np.exp(-L * (1 - h) ** 2) - (1 - m) * h * np.exp(-L * h**2)
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, 2000)]
    inside = slope(low) > 0 > slope(high)
    h = scipy.optimize.brentq(slope, low, high, xtol=1e-15) if inside else grid[k]
    return h, s_of(h, m, L)


def golden(m, L):
    """What a merge changes, h by ten steps of golden section and the ends."""
    low, high, ratio = 0.0, 1.0, (5**0.5 - 1) / 2
    for _ in range(10):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if s_of(left, m, L) >= s_of(right, m, L) else (left, high)
    return lost(m, L, max(s_of(h, m, L) for h in (low, high, 0.0, 1.0)))


@functools.cache
def dense_table():
    axes = np.linspace(0, 0.5, GRID), np.linspace(0, 1, GRID)
    m, kappa = np.meshgrid(*axes, indexing="ij")
    L = -np.log(np.maximum(kappa, 1e-300))
    return scipy.interpolate.RegularGridInterpolator(axes, lost(m, L, densely(m, L)[1]))


def looked_up(m, L):
    return float(dense_table()([min(m, 1 - m), np.exp(-L)])[0])


def merged(change):
    def maintain(x, coef, kernel):
        side = coef > 0
        paired = np.where(side, side.sum(), (~side).sum()) > 1
        i = int(np.argmin(np.where(paired, np.abs(coef), np.inf)))
        partners = [j for j in np.flatnonzero(side == side[i]) if j != i]
        share = lambda j: coef[i] / (coef[i] + coef[j])
        length = lambda j: ((x[i] - x[j]) ** 2).sum() / (2 * SIGMA**2)
        j = min(partners, key=lambda j: (coef[i] + coef[j]) ** 2 * change(share(j), length(j)))
        h, s = peak(share(j), length(j))
        x, coef = x.copy(), coef.copy()
        x[j], coef[j] = h * x[i] + (1 - h) * x[j], (coef[i] + coef[j]) * s
        return np.delete(x, i, 0), np.delete(coef, i)

    return maintain


def removed(x, coef, kernel):
    i = int(np.argmin(coef**2 * np.diag(kernel(x, x))))
    return np.delete(x, i, 0), np.delete(coef, i)


def projections(x, coef, kernel):
    """For each point the coefficients of the others without it, and what that changes."""
    gram = kernel(x, x)
    for r in range(len(coef)):
        others = np.delete(np.arange(len(coef)), r)
        share = np.linalg.lstsq(gram[np.ix_(others, others)], gram[others, r], rcond=None)[0]
        yield coef[others] + coef[r] * share, coef[r] ** 2 * (gram[r, r] - gram[others, r] @ share)


def projected(x, coef, kernel):
    found = list(projections(x, coef, kernel))
    r = int(np.argmin([changed for _, changed in found]))
    return np.delete(x, r, 0), found[r][0]


def bsgd_by_hand(data, rows, lam, size, maintain, kernel):
    """Points and coefficients of s = lam t w after each step, the oldest point first, and |s -
    s'|^2 of maintenance."""
    x_all, y_all, weight = (np.asarray(a, np.float64) for a in (data.x, data.y, data.weight))
    x, coef, trail = np.zeros((0, D)), np.zeros(0), []
    for t, step in enumerate(np.asarray(rows)):
        step, changed = [i for i in step if i >= 0 and weight[i] > 0], 0.0
        score = kernel(x_all[step], x) @ coef
        for i, s in zip(step, score, strict=True):
            if t > 0 and y_all[i] * s >= lam * t:
                continue
            move, twin = y_all[i] * weight[i] / len(step), np.flatnonzero((x == x_all[i]).all(1))
            if len(twin):
                move += coef[twin[0]]
                x, coef = np.delete(x, twin[0], 0), np.delete(coef, twin[0])
            x, coef = np.concatenate([x, x_all[i : i + 1]]), np.append(coef, move)
            if len(coef) > size:
                fewer, rest = maintain(x, coef, kernel)
                both = np.concatenate([x, fewer]), np.append(coef, -rest)
                changed += max(sqnorm(*both, kernel), 0) ** 0.5
                x, coef = fewer, rest
        trail.append((x, coef, changed))
    return trail


HANDS = {
    "merge, look-up": (budget.merge(), merged(looked_up), RBF, gaussian),
    "project": (budget.project(), projected, RBF, gaussian),
    "merge, golden": (budget.merge(search="golden"), merged(golden), RBF, gaussian),
    "remove": (budget.remove(), removed, RBF, gaussian),
    "remove, cubic": (budget.remove(), removed, CUBIC, cubic),
    "project, cubic": (budget.project(), projected, CUBIC, cubic),
}


def agree(name, data, rows):
    """All steps of a run are those by hand, as functions and in the number of points; how often
    maintenance was called for."""
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    maintain, by_hand, kernel, in_numpy = HANDS[name]
    f, model, at_new, info = states(make(maintain, kernel=kernel), data, rows)
    f, at_new, info = jax.tree.map(np.asarray, (f, at_new, info))
    trail = bsgd_by_hand(data, rows, LAM, 5, by_hand, in_numpy)
    assert model.x.shape[1:] == (5, D) and np.all(model.index == -1) and not model.b.any()
    for t, (x, coef, _) in enumerate(trail):
        close(at_new[t] * LAM * (t + 1), in_numpy(NEW, x) @ coef)
        assert int(info.support[t]) == len(coef)
        close(np.sort(live(f, t)[1]), np.sort(coef))
    return sum(changed > 0 for *_, changed in trail)


MAINTAINED = {
    "merge()": budget.merge(),
    "merge(partners=2, search='golden')": budget.merge(partners=2, search="golden"),
    "remove()": budget.remove(),
    "project()": budget.project(),
}
