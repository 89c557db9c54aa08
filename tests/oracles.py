"""What many tests compare with: plain NumPy in float64, sums over explicit pairs of rows, optima of
other programs, and equality to the bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR, OneClassSVM

import jaxsvm
from jaxsvm import losses


def gaussian(x: Any, z: Any, gamma: float = 0.5) -> np.ndarray:
    """exp(-gamma |x_i - z_j|^2), (n, m) in float64."""
    x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
    return np.exp(-gamma * ((x[:, None] - z[None]) ** 2).sum(-1))


def pair_weights(is_above, y, query, weight, per_query=False):
    """c_ij of all pairs of rows of one query, (n, n); `is_above` (y) says which is above which."""
    c = np.where(is_above(y) & (query[:, None] == query), np.outer(weight, weight), 0.0)
    if per_query:
        for q in set(query):
            c[query == q] /= max(c[query == q].sum(), 1e-300)
    return c / max(c.sum(), 1e-300)


def differences(is_above, x, y, query, weight):
    """The rows x_i - x_j of all pairs, and their weights."""
    c = pair_weights(is_above, y, query, weight)
    i, j = np.nonzero(c)
    return x[i] - x[j], c[i, j]


def by_pairs(c, score, squared):
    """The risk and its slope from the differences of all pairs."""
    slack = np.maximum(1 - (score[:, None] - score), 0)
    pull = 2 * c * slack if squared else c * (slack > 0)
    return (c * (slack**2 if squared else slack)).sum(), pull.sum(axis=0) - pull.sum(axis=1)


def smooth_pairs(is_above, x, y, query, weight, lam):
    """Weights and value of the optimum of the squared loss by SciPy on the explicit pairs."""
    z, c = differences(is_above, x, y, query, weight)
    slack = lambda w: np.maximum(1 - z @ w, 0)
    fun = lambda w: lam / 2 * w @ w + c @ slack(w) ** 2
    jac = lambda w: lam * w - 2 * (c * slack(w)) @ z
    start = np.zeros(x.shape[1])
    best = scipy.optimize.minimize(fun, start, jac=jac, method="BFGS", options={"gtol": 1e-11})
    return best.x, best.fun


def assert_same_bits(found: Any, wanted: Any) -> None:
    """Fail unless two trees have the same structure, dtypes and bits; keys are compared by their
    words."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for have, want in zip(
        *(jax.tree.leaves(jax.tree.map(jnp.asarray, tree)) for tree in (found, wanted)), strict=True
    ):
        if jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
            have, want = jax.random.key_data(have), jax.random.key_data(want)
        assert have.dtype == want.dtype and np.asarray(have).tobytes() == np.asarray(want).tobytes()


def with_ones(x: np.ndarray, bias: str) -> np.ndarray:
    """The rows, with the constant feature where there is a bias."""
    return x if bias == "none" else np.c_[x, np.ones(len(x))]


def weights_of(model: Any, bias: str) -> np.ndarray:
    """The weights of a linear model in float64, with that of the constant feature last."""
    w = np.asarray(model.w, np.float64)
    return w if bias == "none" else np.append(w, float(model.b))


# Losses


def formula(loss: Any) -> tuple[Callable, Callable, Callable]:
    """Value, slope and curvature of a loss in the scores f, in NumPy."""
    p = next(iter(vars(loss).values()), None)
    below, beyond = (lambda f, y: 1 - y * f), (lambda f, y: np.maximum(np.abs(f - y) - p, 0))
    over, one = (lambda f, y: np.maximum(1 - y * f, 0)), (lambda f, y: 1.0 + 0 * f)
    return {
        "hinge": (over, lambda f, y: -y * (y * f < 1), lambda f, y: 0 * f),
        "squared_hinge": (
            lambda f, y: over(f, y) ** 2,
            lambda f, y: -2 * y * over(f, y),
            lambda f, y: 2.0 * (y * f < 1),
        ),
        "smooth_hinge": (
            lambda f, y: np.where(
                below(f, y) < p, over(f, y) ** 2 / (2 * (p or 1)), below(f, y) - (p or 0) / 2
            ),
            lambda f, y: -y * np.clip(below(f, y) / p, 0, 1),
            lambda f, y: ((below(f, y) > 0) & (below(f, y) < p)) / p,
        ),
        "logistic": (
            lambda f, y: np.logaddexp(0, -y * f),
            lambda f, y: -y / (1 + np.exp(y * f)),
            lambda f, y: 1 / ((1 + np.exp(y * f)) * (1 + np.exp(-y * f))),
        ),
        "squared": (lambda f, y: (f - y) ** 2 / 2, lambda f, y: f - y, one),
        "eps_insensitive": (beyond, lambda f, y: np.sign(f - y) * (beyond(f, y) > 0), one),
        "squared_eps_insensitive": (
            lambda f, y: beyond(f, y) ** 2,
            lambda f, y: 2 * np.sign(f - y) * beyond(f, y),
            lambda f, y: 2.0 * (beyond(f, y) > 0),
        ),
        "pinball": (
            lambda f, y: np.maximum(p * (y - f), (p - 1) * (y - f)),
            lambda f, y: np.where(y > f, -p, 1 - p),
            one,
        ),
    }[repr(loss).split("(")[0]]


# Optima of other programs: (x, y, solver) -> what they find


class Peer(NamedTuple):
    """The function at an optimum."""

    f: Callable  # of new rows
    square: float = np.nan  # |w|^2, with b^2 where it is regularised


def cost(solver: Any, n: int) -> float:
    """C of a problem of n rows."""
    return solver.C if hasattr(solver, "C") else 1 / (solver.lam * n)


def line(w: np.ndarray, b: float, bias: str) -> Peer:
    """A linear function."""
    return Peer(lambda x: x @ w + b, w @ w + b * b * (bias == "feature"))


def liblinear(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """LIBLINEAR, or LIBSVM for a free bias of a loss with a kink; a constant feature is a bias."""
    loss, bias, C = repr(solver.loss).split("(")[0], solver.bias, cost(solver, len(y))
    options, eps = {"C": C, "tol": 1e-11, "max_iter": 10**7}, getattr(solver.loss, "eps", 0.0)
    if bias == "free":
        made = SVC if solver.loss.labels else functools.partial(SVR, epsilon=eps)
        fitted = made(C=C, kernel="linear", tol=1e-10).fit(x, y)
        return line(fitted.coef_[0], float(fitted.intercept_[0]), bias)
    options |= {"fit_intercept": bias == "feature", "dual": "squared" not in loss}
    if solver.loss.labels:
        made = LinearSVC(loss=loss, random_state=0, **options)
    else:
        loss = loss.replace("eps_", "epsilon_")
        made = LinearSVR(loss=loss, epsilon=eps, random_state=0, **options)
    fitted = made.fit(x, y)
    return line(fitted.coef_.ravel(), float(np.ravel(fitted.intercept_)[0]), bias)


def logistic(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """scikit-learn's logistic regression."""
    options = {"C": cost(solver, len(y)), "fit_intercept": solver.bias == "free"}
    made = LogisticRegression(solver="newton-cholesky", tol=1e-12, **options).fit(x, y)
    return line(made.coef_[0], float(np.ravel(made.intercept_)[0]), solver.bias)


def minimum(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """The minimum of a loss that has a slope everywhere, by SciPy."""
    lam, bias = 1 / (cost(solver, len(y)) * len(y)), solver.bias
    value, slope, _ = formula(getattr(solver, "loss", losses.squared))
    ones = with_ones(x, bias)
    ridge = np.full(ones.shape[1], lam)
    ridge[-1] = 0 if bias == "free" else lam
    fun = lambda v: ridge * v @ v / 2 + value(ones @ v, y).mean()
    jac = lambda v: ridge * v + slope(ones @ v, y) @ ones / len(y)
    start = np.zeros(ones.shape[1])
    v = scipy.optimize.minimize(fun, start, jac=jac, method="BFGS", options={"gtol": 1e-11}).x
    return line(v, 0.0, bias) if bias == "none" else line(v[:-1], v[-1], bias)


def elastic_net(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """scikit-learn's elastic net."""
    options = {"l1_ratio": solver.l1_ratio, "fit_intercept": False, "max_iter": 10**6}
    made = ElasticNet(alpha=solver.lam, tol=1e-14, **options).fit(x, y)
    return line(made.coef_, 0.0, "none")


def matrix_of(kernel: Any) -> Callable:
    """Values of a Gaussian kernel, or those that were worked out beforehand."""
    sigma, gamma = (vars(kernel).get(name) for name in ("sigma", "gamma"))
    return functools.partial(gaussian, gamma=gamma or 1 / (2 * sigma**2))


def libsvm(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """LIBSVM on a matrix in float64: SVC, SVR, and the machines of nu."""
    gram, loss = matrix_of(solver.kernel), getattr(solver, "loss", None)
    numbers = {key: getattr(solver, key) for key in ("nu", "C") if key in vars(solver)}
    made = {"nu_svc": NuSVC, "nu_svr": NuSVR, "one_class": OneClassSVM}.get(type(solver).__name__)
    made = made or (SVC if loss.labels else functools.partial(SVR, epsilon=loss.eps))
    fitted = made(kernel="precomputed", tol=1e-10, **numbers).fit(gram(x, x), y)
    coef, rows, b = fitted.dual_coef_[0], x[fitted.support_], float(fitted.intercept_[0])
    return Peer(lambda z: gram(z, rows) @ coef + b, coef @ gram(rows, rows) @ coef)


def in_features(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """`minimum` in the features that the kernel matrix has."""
    gram = matrix_of(solver.kernel)
    value, vector = np.linalg.eigh(gram(x, x))
    value, vector = value[value > 1e-10], vector[:, value > 1e-10]
    found = minimum(vector * np.sqrt(value), y, solver)
    return Peer(lambda z: found.f(gram(z, x) @ vector / np.sqrt(value)), found.square)


def box(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """The dual of the hinge or of pinball, by ascent, or SciPy; certified by its gap."""
    kernel, C, bias = getattr(solver, "kernel", None), cost(solver, len(y)), solver.bias
    ones = functools.partial(with_ones, bias="none" if bias == "free" else bias)
    gram = matrix_of(kernel) if kernel else lambda x, z: ones(x) @ ones(z).T
    tau, matrix = getattr(solver.loss, "tau", None), gram(x, x)
    low, high = (-C * (y < 0), C * (y > 0)) if tau is None else ((tau - 1) * C, tau * C)
    low, high, coef = *np.broadcast_arrays(low, high, y)[:2], np.zeros(len(y))
    for _ in range(20_000 * (bias != "free")):
        before = coef.copy()
        for i in range(len(y)):
            step = coef[i] + (y[i] - matrix[i] @ coef) / matrix[i, i]
            coef[i] = min(max(step, low[i]), high[i])
        if np.abs(coef - before).max() < 1e-13 * C:
            break
    if bias == "free":
        dual = lambda a: (a @ matrix @ a / 2 - y @ a, matrix @ a - y)
        total = {"type": "eq", "fun": np.sum, "jac": np.ones_like}
        options = {"bounds": np.stack([low, high], 1), "constraints": total, "method": "SLSQP"}
        most = {"ftol": 1e-15, "maxiter": 1000}
        coef = scipy.optimize.minimize(dual, coef, jac=True, options=most, **options).x
    f, inside = matrix @ coef, (coef > low + 1e-5 * C) & (coef < high - 1e-5 * C)
    b = np.mean((y - f)[inside]) if bias == "free" else 0.0
    gap = coef @ f + C * formula(solver.loss)[0](f + b, y).sum() - y @ coef
    assert gap <= (1e-7 if bias == "free" else 1e-9) * C * len(y)
    return Peer(lambda z: gram(z, x) @ coef + b, coef @ f)


def one_vs_rest(peer: Callable) -> Callable:
    """A column for each class, of the class against the others."""

    def of(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
        found = [peer(x, np.where(y == k, 1.0, -1.0), solver.inner) for k in range(solver.classes)]
        return Peer(lambda z: np.stack([each.f(z) for each in found], 1))

    return of


def one_vs_one(peer: Callable) -> Callable:
    """A column for each pair of classes, of the rows of these."""

    def of(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
        pairs = [(a, b) for b in range(solver.classes) for a in range(b)]
        rows = [np.isin(y, pair) for pair in sorted(pairs)]
        signs = [
            np.where(y[r] == a, 1.0, -1.0) for r, (a, _) in zip(rows, sorted(pairs), strict=True)
        ]
        found = [peer(x[r], s, solver.inner) for r, s in zip(rows, signs, strict=True)]
        return Peer(lambda z: np.stack([each.f(z) for each in found], 1))

    return of


def crammer_singer(x: np.ndarray, y: np.ndarray, solver: Any) -> Peer:
    """LIBLINEAR's joint machine of several classes."""
    options = {"C": cost(solver, len(y)), "fit_intercept": solver.bias != "none"}
    made = LinearSVC(multi_class="crammer_singer", tol=1e-11, max_iter=10**7, **options)
    return Peer(made.fit(x, y).decision_function)


# Programs and steps


def batch_of(solver: Any, data: Any, index: Any) -> Any:
    """What `update` is given for these rows."""
    index = jnp.asarray(index, jnp.int32)
    return data._replace(index=index) if solver.needs_all_rows else jaxsvm.take(data, index)


def equations(jaxpr: Any, in_loop: bool = False) -> list[tuple[Any, bool]]:
    """The equations of a program and of all programs inside, and whether a loop runs them."""
    found, is_program = [], lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
    for equation in jaxpr.eqns:
        found.append((equation, in_loop))
        inside = in_loop or equation.primitive.name in ("scan", "while")
        parts = jax.tree.leaves(equation.params, is_leaf=is_program)
        for part in filter(is_program, parts):
            found += equations(getattr(part, "jaxpr", part), inside)
    return found
