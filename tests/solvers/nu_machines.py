"""Rows of the tests of machines of nu, and LIBSVM on them."""

import jax
import numpy as np
import oracles

import jaxsvm
from jaxsvm import kernels

KEY = jax.random.key(0)
FORMS = ("nu_svc", "one_class", "nu_svr")
N, D, C, NU, GAMMA = 40, 3, 2.0, 0.4, 0.3
RNG = np.random.default_rng(6)
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, 1.0, -1.0)
TARGETS = (np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=N)).astype(np.float32).astype(np.float64)
Z = RNG.normal(size=(7, D))


def gaussian(x, z, gamma=GAMMA):
    return oracles.gaussian(x, z, gamma)


def target(form):
    return TARGETS if form == "nu_svr" else LABELS


def dataset(form, x=X, y=None, weight=None, dtype=np.float64):
    y = target(form) if y is None else y
    task = "binary" if form == "nu_svc" else "regression"
    return jaxsvm.dataset(np.asarray(x, dtype), y, weight, task=task)


def make(form, nu=NU, C=C, gamma=GAMMA, kernel=None, **options):
    numbers = (nu, C) if form == "nu_svr" else (nu,)
    return getattr(jaxsvm, form)(
        *numbers, kernels.rbf(gamma=gamma) if kernel is None else kernel, **options
    )


def fit(solver, data, tol=1e-10, steps=1, **options):
    return jaxsvm.fit(solver, data, KEY, steps=steps, every=1, tol=tol, **options)


KNOWN = [
    (form, name)
    for form in ("nu_svc", "one_class")
    for name in ("iris", "wine", "digits", "breast_cancer")
]
KNOWN += [("nu_svr", name) for name in ("diabetes", "wine alcohol", "iris", "wine")]

# --------------------------------------------------------------------------------- LIBSVM's steps,
# transcribed to NumPy


def solver_nu(gram, linear, low, high, total, tol, steps=100_000):
    """Solver_NU for signed coefficients (k, n) of given sums, by the rules of the paper:
    coefficients, levels and pairs."""
    k, n = low.shape
    sign, coef = [1.0, -1.0][:k], np.zeros((k, n))
    for p in range(k):  # fill up in order
        left = abs(total[p])
        for i in range(n):
            part = min(abs((high - low)[p, i]), left)
            coef[p, i], left = sign[p] * part, left - part
    pairs = []
    for _ in range(steps):
        grad, best, pair, gap = linear - gram @ coef.sum(0), 0.0, None, 0.0
        for p in range(k):
            may_grow, may_fall = coef[p] < high[p], coef[p] > low[p]
            if not may_grow.any() or not may_fall.any():
                continue
            i = np.argmax(np.where(may_grow, grad, -np.inf))
            gap = max(gap, grad[i] - grad[may_fall].min())
            for j in np.flatnonzero(may_fall & (grad < grad[i])):
                curvature = max(gram[i, i] + gram[j, j] - 2 * gram[i, j], 1e-12)
                if (grad[i] - grad[j]) ** 2 / curvature > best:
                    best, pair, step = (
                        (grad[i] - grad[j]) ** 2 / curvature,
                        (p, i, j),
                        (grad[i] - grad[j]) / curvature,
                    )
        if gap < tol or pair is None:
            break
        p, i, j = pair
        t = min(step, high[p, i] - coef[p, i], coef[p, j] - low[p, j])
        coef[p, i] = high[p, i] if t == high[p, i] - coef[p, i] else coef[p, i] + t
        coef[p, j] = low[p, j] if t == coef[p, j] - low[p, j] else coef[p, j] - t
        pairs.append((i, j))
    return coef, pairs


def by_hand(form, weight, nu=NU, C=C):
    """linear, low, high and total of the problem."""
    W, zero = weight.sum(), np.zeros_like(weight)
    if form == "one_class":
        return zero, zero[None], weight[None], np.array([nu * W])
    if form == "nu_svr":
        return (
            TARGETS,
            np.stack([zero, -C * weight]),
            np.stack([C * weight, zero]),
            C * nu * W / 2 * np.array([1, -1]),
        )
    up = np.where(LABELS > 0, weight, 0)
    return zero, np.stack([zero, up - weight]), np.stack([up, zero]), nu * W / 2 * np.array([1, -1])
