"""Part `exact`: solvers of exact answers beside scikit-learn and NumPy in float64 on the same float32 rows.

Offsets 0 .. 1e6, scales 1e-4 .. 1e6, copies of rows, constant columns, one row of a class, every kernel. Right: where a run
says that it has converged, its decision values are those of the optimum, or its objective is within what the tolerance
promises. A certificate bounds how far the objective is from the best one known, always.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm

from . import oracles
from .cases import FLOAT32, Case
from .oracles import Kernel

N, D = 24, 2
KEY = jax.random.key(0)
NAMES = ("rbf", "rbf", "rbf", "laplacian", "polynomial", "linear", "rbf + linear", "0.5 rbf + laplacian", "rbf * polynomial")


def problem(case: Case) -> tuple[np.ndarray, np.ndarray, str]:
    """Rows in float32, labels, and what is odd about them."""
    random = case.random
    x = random.normal(size=(N, D))
    y = np.where(x @ [1.0, 0.5] + 0.7 * random.normal(size=N) > 0, 1, -1)
    odd = case.one(("plain", "plain", "copies", "constant", "one row", "opposed copies", "far row", "separable"))
    if odd == "copies":
        x[N // 2 :], y[N // 2 :] = x[: N // 2], y[: N // 2]
    if odd == "opposed copies":
        x[1], y[0], y[1] = x[0], 1, -1
    if odd == "constant":
        x[:, 1] = case.one((0.0, 7.0))
    if odd == "one row":
        y[:] = 1
        y[0] = -1
    if odd == "far row":
        x[0] *= 1e3
    if odd == "separable":
        y = np.where(x[:, 0] > 0, 1, -1)
        x[:, 0] += y
    y[0], y[1] = (1, -1) if abs(y.sum()) == N else (y[0], y[1])
    scale, offset = case.one((1.0, 1.0, 1e-4, 1e-2, 1e2, 1e4, 1e6)), case.one((0.0, 0.0, 1.0, 1e2, 2e3, 1e4, 1e6))
    x = scale * x + offset * np.array(case.one(((1, 0), (1, 1), (-1, 1))))
    return x.astype(np.float32), y, f"{odd}, scale {scale:g}, offset {offset:g}"


def run(case: Case) -> None:
    """One case of the part."""
    x, y, odd = problem(case)
    if not -1 < y.sum() / N < 1:
        y[0] = -y[0]
    wide = x.astype(np.float64)
    variance = wide.var(0).sum() or 1.0
    shared = case.block(16)
    name, method = shared.one(NAMES), shared.one(("decomposition", "decomposition", "decomposition", "smo", "smo", "sdca"))
    number = float(np.float32(case.one((1.0, 1.0, 0.1, 10.0)) / variance))
    if name == "laplacian" or "laplacian" in name:
        number = float(np.float32(case.one((1.0, 0.3)) / np.sqrt(variance)))
    kernel, C = Kernel(name, number), float(np.float32(case.one((1.0, 10.0, 10.0, 0.1, 100.0))))
    gram = kernel.block(wide, wide)
    solver = {"decomposition": lambda k: jaxsvm.decomposition(C, k, rounds=100), "smo": lambda k: jaxsvm.smo(C, k),
              "sdca": lambda k: jaxsvm.sdca(C, k)}[method](kernel.made())  # fmt: skip
    how = {
        "decomposition": dict(steps=5),
        "smo": dict(steps=4000, tol=1e-3, every=1000),
        "sdca": dict(steps=24 * 200, tol=1e-3, every=240),
    }
    text = f"fit({method}({C:g}, {name}, {number:.3g}), {odd})"
    case.twin = lambda: jaxsvm.fit(solver, oracles.batch((wide - wide.mean(0)) / (wide.std(0) + 1), y), KEY, **how[method])
    data = case.attempt(f"dataset of {text}", jaxsvm.dataset, x, y)
    fitted = case.attempt(text, jaxsvm.fit, solver, data, KEY, **how[method])
    case.text = f"{text}: {fitted.status}"
    told = "not finite" not in fitted.status
    case.expect(fitted.finite == told, f"finite is {fitted.finite}")
    if not fitted.finite:
        return
    bias = "none" if method == "sdca" else "free"
    best = (oracles.without_bias if bias == "none" else oracles.with_bias)(gram, y, C)
    model = fitted.model
    coef = np.asarray(model.coef, np.float64)
    case.expect(model.coef.shape == (N,), "a coefficient for each row was expected")
    # What the coefficients mean in exact arithmetic, on the rows as they were given.
    meant = gram @ coef + float(model.b)
    value = coef @ gram @ coef / 2 + C * np.maximum(0, 1 - y * meant).sum()
    have = np.asarray(case.attempt(f"model(x) of {text}", model, data.x), np.float64)
    size = max(1.0, np.abs(best.scores).max())
    if fitted.converged and best.exact:
        off = have - best.scores
        off = off - np.clip(np.median(off), best.low - 1e-9, best.high + 1e-9)  # where the bias is an interval
        # tol is the violation of a coefficient: the gap of the objective is at most so much times the bounds, and decision values
        # are within sqrt(2 gap k(x, x)) of the optimum's. The rounding of float32 is in kernel values of the largest entry.
        gap = C * N * 1e-3 * 2 + 1e-5 * best.value
        near = np.abs(off).max() <= 1e-3 * size or np.abs(off).max() <= 2 * np.sqrt(2 * gap * np.abs(gram).max())
        case.compare(near, f"converged, and decision values are off by {np.abs(off).max():.3g} of {size:.3g}")
        case.text = f"{text}: {fitted.status}"
        close = value - best.value <= gap + 64 * N * C * float(FLOAT32.eps) * np.abs(gram).max() * C
        case.expect(
            close, f"converged at an objective of {value:.6g}, the optimum is {best.value:.6g}, the tolerance allows {gap:.3g}"
        )
    if "linear" not in name and "polynomial" not in name:
        # A function of a bounded kernel: what it returns is what its coefficients mean, to float32.
        # A kernel value is off by what `kernels.rbf` documents, at most 1e-3.
        spread = number * ((wide - wide.mean(0)) ** 2).sum(1).max()
        of_value = min(1e-3, (8 + 4 * D**0.5) * float(FLOAT32.eps) * spread)
        room = max(1e-3 * max(1.0, np.abs(coef).sum() * 1e-2, np.abs(meant).max()), of_value * np.abs(coef).sum())
        case.expect(
            np.abs(have - meant).max() <= room, f"model(x) is off by {np.abs(have - meant).max():.3g} from its own coefficients"
        )
    lam = jaxsvm.lam_from_C(C, N)
    bound = case.attempt(f"certificate of {text}", jaxsvm.certificate, model, data, lam)
    case.expect(np.isfinite(bound.gap) and bound.gap >= -1e-12, f"a gap of {bound.gap}")
    case.judged = True
    truth = lam * (value - best.value)
    room = 1e-6 * (1 + abs(truth)) * max(1.0, lam * value) + 1e-9
    claim = f"the certificate says {float(bound.gap):.3g}, and the objective is {truth:.3g} above the best one known"
    case.expect(float(bound.gap) >= truth - room, claim)
    case.expect(jnp.ndim(bound.gap) == 0, "a gap that is no number")
