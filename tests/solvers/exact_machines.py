"""Rows of the tests of exact machines, and their duals in NumPy."""

import jax
import numpy as np
import oracles
from sklearn.svm import SVC, SVR

import jaxsvm
from jaxsvm import kernels, losses

N, D, C, SIGMA, EPS = 60, 3, 2.0, 1.2, 0.2  # up to 64 rows the program is the smallest
KEY = jax.random.key(0)
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, D)).astype(np.float32).astype(np.float64)  # the same rows in both dtypes
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, 1.0, -1.0)
TARGETS = (np.sin(2 * X[:, 0]) + 0.5 * RNG.normal(size=N)).astype(np.float32).astype(np.float64)
WEIGHT = np.where(np.arange(N) % 7 == 3, 0.0, np.round(RNG.uniform(0.5, 2, N), 2))
Z = RNG.normal(size=(9, D))
RBF = kernels.rbf(SIGMA)
TUBE = losses.eps_insensitive(EPS)


def gaussian(x, z, sigma=SIGMA):
    return oracles.gaussian(x, z, 1 / (2 * sigma**2))


GRAM, AT_Z = gaussian(X, X), gaussian(Z, X)


def dataset(dtype=np.float32, y=LABELS, weight=None, x=X):
    task = "binary" if set(np.unique(y)) <= {-1, 1} else "regression"
    return jaxsvm.dataset(np.asarray(x, dtype), y, weight, task=task)


def solver(loss=losses.hinge, bias="free", C=C, kernel=RBF, **options):
    return jaxsvm.decomposition(C, kernel, loss=loss, bias=bias, **{"working_set": 8} | options)


def fit(made, data, tol=1e-3, steps=1, **options):
    return jaxsvm.fit(made, data, KEY, steps=steps, every=1, tol=tol, **options)


def fit_smo(made, data, tol=1e-3):
    return jaxsvm.fit(made, data, KEY, steps=20_000, every=500, tol=tol)


# by hand, in NumPy


class Box:
    """The part of the dual of each row in NumPy."""

    def __init__(self, loss, y, C):
        y, C = np.asarray(y, np.float64), np.broadcast_to(np.asarray(C, np.float64), np.shape(y))
        zero, endless = np.zeros(len(y)), np.where(C > 0, np.inf, 0.0)
        inverse = np.divide(1, C, out=zero.copy(), where=C > 0)
        self.y, self.l1, self.l2 = y, zero, zero
        sided = lambda high: (np.where(y > 0, 0, -high), np.where(y > 0, high, 0))
        if loss is losses.hinge:
            self.low, self.high = sided(C)
        elif loss is losses.squared_hinge:
            self.low, self.high = sided(endless)
            self.l2 = inverse / 2
        elif loss is losses.squared:
            self.low, self.high, self.l2 = -endless, endless, inverse
        elif "eps_insensitive" in repr(loss):
            self.low, self.high, self.l1 = -C, C, zero + EPS
        else:
            self.low, self.high = (0.3 - 1) * C, 0.3 * C  # pinball(0.3)

    def value(self, coef, gram):
        coef = np.asarray(coef, np.float64)
        parts = self.y * coef - self.l1 * np.abs(coef) - self.l2 / 2 * coef**2
        return parts.sum() - coef @ gram @ coef / 2

    def violation(self, coef, gram, bias):
        """LIBSVM's max - min over what may rise and fall, or the largest projected derivative."""
        coef = np.asarray(coef, np.float64)
        pull = self.y - gram @ coef - self.l2 * coef
        up = np.where(coef < self.high, pull - self.l1 * np.where(coef >= 0, 1, -1), -np.inf).max()
        down = np.where(coef > self.low, pull - self.l1 * np.where(coef > 0, 1, -1), np.inf).min()
        return max(up - down if bias == "free" else max(up, -down), 0.0)


def libsvm(y, gram, C=C, tol=1e-6, weight=None):
    """The coefficients, the bias and the decision values that LIBSVM gives."""
    labels = set(np.unique(y)) == {-1, 1}
    made = (
        SVC(kernel="precomputed", C=C, tol=tol)
        if labels
        else SVR(kernel="precomputed", C=C, tol=tol, epsilon=EPS)
    )
    # it mixes up columns of rows of weight 0
    some = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
    made.fit(gram[np.ix_(some, some)], y[some], None if weight is None else weight[some])
    coef = np.zeros(len(y))
    coef[some[made.support_]] = made.dual_coef_[0]
    return coef, float(made.intercept_[0])


PROBLEMS = {
    "hinge free": (losses.hinge, "free", LABELS),
    "hinge none": (losses.hinge, "none", LABELS),
    "eps_insensitive free": (TUBE, "free", TARGETS),
    "eps_insensitive none": (TUBE, "none", TARGETS),  # by its gap below
    "squared_hinge free": (losses.squared_hinge, "free", LABELS),
    "pinball free": (losses.pinball(0.3), "free", TARGETS),
}
