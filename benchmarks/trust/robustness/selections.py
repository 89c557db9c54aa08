"""Part `selections`: `select` beside scikit-learn's machines on the same folds, and resumed from its file."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels

from . import oracles
from .cases import Case

N, D, FOLDS = 36, 2, 3
KEY = jax.random.key(0)


def maker(C: Any, gamma: Any) -> Any:
    """The machine that is chosen."""
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def problem(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Rows, labels, weights, folds and axes."""
    random = case.random
    x = random.normal(size=(N, D)).astype("f4")
    y = np.where((x**2).sum(1) + 0.5 * random.normal(size=N) > 1.2, 1, -1)
    y[: 2 * FOLDS] = np.repeat([1, -1], FOLDS)
    weight = random.choice([1.0, 2.0, 0.5], N) if case.seed % 2 else np.ones(N)
    fold = random.permutation(N) % FOLDS
    fold[: 2 * FOLDS] = np.tile(np.arange(FOLDS), 2)
    axes = {"C": np.array([0.3, 10.0, 100.0])[random.permutation(3)], "gamma": np.array([0.1, 1.0])[random.permutation(2)]}
    return x, y, weight, fold, axes


def answer(case: Case, found: Any, arrays: tuple, score: str) -> None:
    """The table and the decision values of held-out rows, by LIBSVM fold by fold."""
    x, y, weight, fold, axes = arrays
    wide, values = x.astype(np.float64), np.asarray(found.scores, np.float64)
    have = np.asarray(found.table.folds, np.float64)
    case.expect(have.shape == (3, 2, FOLDS), f"a table of shape {have.shape}")
    for i, C in enumerate(axes["C"]):
        for j, gamma in enumerate(axes["gamma"]):
            gram = oracles.Kernel("rbf", float(np.float32(gamma))).block(wide, wide)
            for k in range(FOLDS):
                inside, out = fold != k, fold == k
                best, fixed = machine(gram[np.ix_(inside, inside)], gram[np.ix_(out, inside)], y[inside], C, weight[inside])
                off = values[i, j, out] - best
                off = off if fixed else off - np.median(off)
                near = np.abs(off).max() <= 3e-2 * max(1, np.abs(best).max())
                case.compare(near, f"decision values of fold {k} at C={C:g}, gamma={gamma:g} are others")
                held = values[i, j, out]
                loss = (held > 0) != (y[out] > 0) if score == "error" else np.maximum(0, 1 - y[out] * held)
                want = np.average(loss, weights=weight[out])
                case.compare(abs(have[i, j, k] - want) <= 1e-5 * max(1, want), f"score {have[i, j, k]:.6g}, expected {want:.6g}")
    mean = have.mean(-1) if (np.bincount(fold) == N // FOLDS).all() and (weight == 1).all() else None
    if mean is not None:
        i, j = np.unravel_index(np.argmin(mean), mean.shape)
        best = found.best
        at = [int(np.flatnonzero(np.isclose(axes[name], best[name]))[0]) for name in ("C", "gamma")]
        case.compare(mean[tuple(at)] <= mean[i, j] + 1e-6, f"best is {best}, whose mean is not the least")


def machine(gram: np.ndarray, cross: np.ndarray, y: np.ndarray, C: float, weight: np.ndarray) -> tuple[np.ndarray, bool]:
    """Decision values of LIBSVM, and whether a coefficient between its bounds fixes their intercept."""
    from sklearn.svm import SVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = SVC(kernel="precomputed", C=C, tol=1e-8).fit(gram, y, sample_weight=weight)
    share = np.abs(made.dual_coef_[0]) / (C * weight[made.support_])
    return made.decision_function(cross), bool(((share > 1e-6) & (share < 1 - 1e-6)).any())  # LIBSVM leaves 1e-17 of some


def run(case: Case) -> None:
    """One case of the part: a call, saved and resumed."""
    arrays = x, y, weight, fold, axes = problem(case)
    data, score = oracles.batch(x, y, weight), case.one(("error", "risk"))
    plain: dict[str, Any] = {"folds": fold, "score": score, "progress": False, "tol": 1e-4, "threads": 1}
    call = lambda **how: jaxsvm.select(maker, data, KEY, **plain | axes | how)
    path = case.folder / "found.npz"
    text = f"select(C={axes['C']}, gamma={axes['gamma']}, score={score!r})"
    found = case.attempt(text, lambda: call(save=path), must=True)
    answer(case, found, arrays, score)
    again = case.attempt(f"{text} from its file", lambda: call(save=path), must=True)
    case.compare(np.array_equal(again.table.folds, found.table.folds), "the file holds another table")
