"""`python -m benchmarks.metric [tables] [noise]`: metrics that kernel machines learn, beside one width for all columns.

tables  up to 2,000 rows drawn once to train on, up to 10,000 others to test, columns standardised by the training rows. Each is
        trained by `select` over 8 C x 8 gamma and five folds with the Gaussian kernel and with matern12: the one of less error
        out of fold is the isotropic machine. Then `metric_search` of 4 rounds with matern12, diagonal and full. Error in per
        cent, of winequality (real targets, eps = 0.1 of their deviation) the share of the variance that is not explained.
noise   the rows of `select_ard`: 300 rows of 25 columns of which 20 are noise, ten seeds, 5 rounds, diagonal. The gradient
        search of `select_ard` on the same seeds is in select_ard.csv.

Seconds are one run each, in one process after a first one on other rows of the same shapes, so that compilation is apart.
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels, losses

from . import common, select_ard

ROWS, TEST, ROUNDS = 1_000, 10_000, 4
TABLES = ("avila", "magic04", "winequality_white", "covtype", "svmguide1", "susy_30k_subset", "ijcnn1", "occupancy")


def arrays(name: str, seed: int) -> tuple:
    """Training and test rows, standardised, with targets; real ones of wine."""
    with np.load(common.folder() / f"{name}.npz") as file:
        parts = [p for p in ("train", "test") if f"X_{p}" in file]
        x, y = (np.concatenate([np.asarray(file[f"{a}_{p}"], np.float64) for p in parts]) for a in "Xy")
    order = np.random.default_rng(seed).permutation(len(y))
    count = min(ROWS, len(y) // 2)
    train, test = order[:count], order[count : count + TEST]
    mean, deviation = x[train].mean(0), x[train].std(0)
    x = ((x - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    if name in ("covtype", "avila"):  # the commonest copyist, one kind of forest
        y = (y == (1 if name == "covtype" else 0)).astype(int)
    if name.startswith("wine"):
        y = (y - y[train].mean()) / y[train].std()
    return x[train], y[train], x[test], y[test]


def machine(kernel, is_real: bool):
    """(C, gamma) -> solver."""
    loss = losses.eps_insensitive(0.1) if is_real else losses.hinge
    return lambda C, gamma: jaxsvm.decomposition(C, kernel(gamma), loss=loss)


def matern(gamma):
    """exp(-r / sigma) of the sigma of this gamma."""
    return kernels.matern12((2 * gamma) ** -0.5)


def gaussian(gamma):
    """exp(-gamma r^2)."""
    return kernels.rbf(gamma=gamma)


def compared(name: str, seed: int) -> list[dict]:
    """The rows of a table."""
    x, y, x_test, y_test = arrays(name, seed)
    is_real = name.startswith("wine")
    data, key = jaxsvm.dataset(x, y, task="regression" if is_real else None), jax.random.key(seed)
    axes = {"C": jaxsvm.C_grid(), "gamma": kernels.gamma_grid(x)}

    def score(found) -> float:
        predicted = np.asarray(found.predict(x_test))
        if is_real:
            return float(np.mean((predicted - y_test) ** 2) / np.var(y_test))
        return float(np.mean(predicted != y_test))

    rows = []
    for kind, kernel, search in (
        ("rbf", gaussian, jaxsvm.select),
        ("matern12", matern, jaxsvm.select),
        ("diagonal", matern, lambda *a, **k: jaxsvm.metric_search(*a, rounds=ROUNDS, diagonal=True, **k)),
        ("full", matern, lambda *a, **k: jaxsvm.metric_search(*a, rounds=ROUNDS, **k)),
    ):
        began = time.perf_counter()
        found = search(machine(kernel, is_real), data, key, progress=False, **axes)
        seconds = time.perf_counter() - began
        out_of_fold = found.errors.min() if kind in ("diagonal", "full") else found.table.mean.min()
        best = found.chosen
        row = {"table": name, "rows": len(y), "columns": x.shape[1], "machine": kind, "out_of_fold": float(out_of_fold)}
        row |= {"test": score(found), "seconds": seconds, "round": getattr(found, "round", 0)}
        rows.append(row | {"C": float(best["C"]), "gamma": float(best["gamma"])})
    return rows


def tables() -> None:
    """The part of that name."""
    rows = []
    for name in TABLES:
        compared(name, 1)  # compiles
        rows += compared(name, 0)
        for row in rows[-4:]:
            print("  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()), flush=True)
    grid = {(r["table"], r["machine"]): r["seconds"] for r in rows}
    common.write("metric_tables", [r | {"grids": r["seconds"] / grid[r["table"], "matern12"]} for r in rows])


def noise() -> None:
    """The part of that name."""
    rows = []
    for seed in (100, *range(10)):  # the first compiles
        x, y, x_test, y_test = select_ard.problem(seed)
        data, key = jaxsvm.dataset(x, y), jax.random.key(seed)
        axes = {"C": jaxsvm.C_grid(), "gamma": kernels.gamma_grid(x)}
        maker = machine(matern, False)
        began = time.perf_counter()
        grid = jaxsvm.select(maker, data, key, progress=False, **axes)
        middle = time.perf_counter()
        found = jaxsvm.metric_search(maker, data, key, rounds=5, diagonal=True, progress=False, **axes)
        end = time.perf_counter()
        isotropic, learned = (float(np.mean((np.asarray(f.model(x_test)) > 0) != (y_test > 0))) for f in (grid, found))
        row = {"seed": seed, "isotropic_test": isotropic, "test": learned, "round": found.round}
        row |= {"useful": float(found.importances[: select_ard.USEFUL].sum())}
        rows.append(row | {"grid_seconds": middle - began, "seconds": end - middle})
    common.write("metric_noise", rows[1:])


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="the ranges of the columns")
    for part in sys.argv[1:] or ["tables", "noise"]:
        {"tables": tables, "noise": noise}[part]()
