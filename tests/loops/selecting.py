"""A grid of machines on noisy rows, and scikit-learn's on the same folds: of tests of `select`."""

import contextlib

import jax
import numpy as np
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.svm import SVC

import jaxsvm
from jaxsvm import kernels, select

KEY = jax.random.key(0)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    return x, np.where(x[:, 0] * x[:, 1] + 0.5 * rng.normal(size=n) > 0, 1, -1)


X, Y = rows()
DATA = jaxsvm.dataset(X, Y)
CS, GAMMAS = np.logspace(-1, 3, 4), np.logspace(-2, 0.5, 3)
GRID = {"C": CS, "gamma": GAMMAS}
PLANE = jaxsvm.dataset(X, np.where(X[:, 0] + 0.5 * X[:, 1] + 0.2 * np.sin(9 * X[:, 2]) > 0, 1, -1))


def machine(C, gamma):
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def chosen(maker=machine, data=DATA, **options):
    return select(maker, data, KEY, progress=False, **options)


def grid_search(model, axes, fold, x=X, y=Y, **options):
    """Scores of scikit-learn, (C, gamma, fold); names of axes in the order of the alphabet."""
    search = GridSearchCV(model, axes, cv=PredefinedSplit(fold), refit=False, **options).fit(x, y)
    scores = [search.cv_results_[f"split{i}_test_score"] for i in range(fold.max() + 1)]
    return np.stack(scores, axis=1).reshape(*map(len, axes.values()), -1)


def assert_errors(found, theirs, most=2.001):
    """Up to two rows of a fold, which may lie at the boundary."""
    assert np.abs((found.table.folds - theirs) * np.bincount(found.fold)).max() <= most


def cells(found):
    """Each place of the table with a fold, its numbers, and what rows are held out."""
    for *place, fold in np.ndindex(found.table.folds.shape):
        yield (*place, fold), found.table.at(tuple(place)), found.fold == fold


def decisions(numbers, x, y, at, tol=1e-6):
    """Of LIBSVM's machine on these rows, at others."""
    return SVC(**numbers, tol=tol).fit(x, y).decision_function(at)


def dual_of(x, y, model):
    """The dual objective of LIBSVM's solution, with the kernel in float64."""
    coef = np.zeros(len(y))
    coef[model.support_] = model.dual_coef_[0]
    square = ((x[:, None].astype(np.float64) - x[None]) ** 2).sum(-1)
    return y @ coef - coef @ np.exp(-model.gamma * square) @ coef / 2


def same(first, second):
    """Equal results, but for the seconds."""
    for name in ("folds", "gap", "primal", "support"):
        np.testing.assert_array_equal(getattr(first.table, name), getattr(second.table, name), name)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.best == second.best and first.one_se == second.one_se


def in_parts(seconds, **options):
    """A selection that is stopped after a few fits, again and again, and how many were made."""
    counts = []
    for _ in range(70):
        with contextlib.suppress(ValueError):  # no cell was completed
            part = chosen(**GRID, seconds=seconds, **options)
            counts.append(int(np.isfinite(part.table.folds).sum()))
            if not part.status.startswith("out of time"):
                return part, counts
    raise AssertionError("not done in 70 calls")
