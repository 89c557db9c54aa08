"""Independent answers in NumPy, float64: kernels from differences, decision values, objectives, optima."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

import jaxsvm
from jaxsvm import kernels


class Kernel(NamedTuple):
    """A kernel by name and numbers, of which there is one here and one in the package."""

    name: str
    number: float = 1.0

    def made(self) -> Any:
        """The kernel of the package."""
        rbf, poly = kernels.rbf(gamma=self.number), kernels.polynomial(self.number, 1.0, degree=2)
        return {
            "linear": lambda: kernels.linear(),
            "rbf": lambda: rbf,
            "laplacian": lambda: kernels.laplacian(1 / self.number),
            "polynomial": lambda: poly,
            "rbf + linear": lambda: rbf + kernels.linear(),
            "0.5 rbf + laplacian": lambda: 0.5 * rbf + kernels.laplacian(1 / self.number),
            "rbf * polynomial": lambda: rbf * poly,
        }[self.name]()

    def block(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """k(x_i, z_j) in float64, distances from differences."""
        x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
        difference = x[:, None] - z[None]
        rbf = np.exp(-self.number * (difference**2).sum(-1))
        laplacian = np.exp(-self.number * np.abs(difference).sum(-1))
        product = x @ z.T
        poly = (self.number * product + 1) ** 2
        return {
            "linear": product,
            "rbf": rbf,
            "laplacian": laplacian,
            "polynomial": poly,
            "rbf + linear": rbf + product,
            "0.5 rbf + laplacian": 0.5 * rbf + laplacian,
            "rbf * polynomial": rbf * poly,
        }[self.name]


def scores(model: Any, x: np.ndarray, kernel: Kernel | None = None) -> np.ndarray:
    """Decision values from the arrays of a model."""
    x = np.asarray(x, np.float64)
    if kernel is None:
        return x @ np.asarray(model.w, np.float64) + float(model.b)
    return kernel.block(x, rows_of(model)) @ np.asarray(model.coef, np.float64) + float(model.b)


def rows_of(model: Any) -> np.ndarray:
    """The rows that an expansion stands on, in the coordinates of the data.

    A kernel of differences may keep them moved by a shift of its own, so they are read from the training rows by number where
    a caller can; this is for models whose rows are as they were given.
    """
    return np.asarray(model.x, np.float64)


def hinge(score: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The weighted mean hinge; rows of weight 0 are not there."""
    live = weight > 0
    return float(np.maximum(0, 1 - (y * score)[live]) @ weight[live] / weight.sum())


class Optimum(NamedTuple):
    """The best that there is, by another program."""

    value: float  # of 1/2 |w|^2 + C sum_i weight_i hinge_i
    scores: np.ndarray  # (n,)
    low: float  # the least and the largest constant that may be added to the scores at the same value
    high: float
    exact: bool  # its own duality gap says so; False: the value is an upper bound and no more


def with_bias(gram: np.ndarray, y: np.ndarray, C: float, weight: np.ndarray | None = None) -> Optimum:
    """scikit-learn's SVC on a matrix of kernel values; rows of weight 0 are not there."""
    from sklearn.svm import SVC

    weight = np.ones(len(y)) if weight is None else weight
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = SVC(kernel="precomputed", C=C, tol=1e-8, cache_size=10, max_iter=10**6).fit(gram, y, sample_weight=weight)
        except ValueError:  # not finite
            return Optimum(np.inf, np.zeros(len(y)), 0.0, 0.0, False)
    coef = np.zeros(len(y))
    coef[fitted.support_] = fitted.dual_coef_[0]
    plain = gram @ coef
    # The bias is where the hinge is least: an interval, where no coefficient is between its bounds.
    ends = np.sort((y - plain)[weight > 0])
    values = np.array([np.maximum(0, 1 - y * (plain + b)) @ weight for b in ends])
    best = ends[values <= values.min() * (1 + 1e-9) + 1e-9]
    value = coef @ plain / 2 + C * values.min()
    gap = value - (coef @ y - coef @ plain / 2)
    return Optimum(float(value), plain + best[0], 0.0, float(best[-1] - best[0]), bool(gap <= 1e-6 * value))


def without_bias(gram: np.ndarray, y: np.ndarray, C: float, weight: np.ndarray | None = None) -> Optimum:
    """Coordinate ascent in float64, ended by its own duality gap."""
    weight = np.ones(len(y)) if weight is None else weight
    alpha, pull, diagonal = np.zeros(len(y)), np.zeros(len(y)), np.maximum(np.diag(gram), 1e-300)
    for _ in range(1000):
        for i in range(len(y)):
            new = min(max(alpha[i] + (1 - y[i] * pull[i]) / diagonal[i], 0.0), C * weight[i])
            if new != alpha[i]:
                pull += (new - alpha[i]) * y[i] * gram[i]
                alpha[i] = new
        pull = gram @ (alpha * y)
        square = float(alpha * y @ pull)
        primal = square / 2 + C * np.maximum(1 - y * pull, 0) @ weight
        gap = primal - (alpha.sum() - square / 2)
        if gap <= 1e-9 * primal:
            break
    return Optimum(float(primal), pull, 0.0, 0.0, bool(gap <= 1e-6 * primal))


def pegasos(x: np.ndarray, y: np.ndarray, weight: np.ndarray, lam: float = 0.1, batch: int = 1, bias: str = "none") -> np.ndarray:
    """Pegasos over batches of rows in their order, after its paper; rows that fill no batch wait."""
    x = np.c_[x, np.ones(len(y))] if bias == "feature" else x
    w = np.zeros(x.shape[1])
    for t in range(len(y) // batch):
        rows = slice(t * batch, (t + 1) * batch)
        hit = weight[rows] * (y[rows] * (x[rows] @ w) < 1) * y[rows]
        w = (1 - 1 / (t + 1)) * w + hit @ x[rows] / (lam * (t + 1) * max((weight[rows] > 0).sum(), 1))
        norm = np.sqrt(w @ w)
        w = w * min(1, lam**-0.5 / norm) if norm else w
    return w


def sdca(gram: np.ndarray, y: np.ndarray, C: float, rows: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """The signed coefficients of dual coordinate ascent after visits of these rows, without a bias."""
    alpha, weight = np.zeros(len(y)), np.ones(len(y)) if weight is None else weight
    for i in rows:
        alpha[i] = np.clip(alpha[i] + (1 - y[i] * (gram[i] @ (alpha * y))) / gram[i, i], 0, C * weight[i])
    return alpha * y


def batch(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Any:
    """Rows as a data set of the package, without its words on scale."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jaxsvm.dataset(x, y, weight)
