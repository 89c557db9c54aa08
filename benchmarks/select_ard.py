"""`OPENBLAS_NUM_THREADS=1 python -m benchmarks.select_ard`: widths of columns by gradient search, with columns of noise.

300 rows to train on and 2,000 others to test, 25 columns of independent standard normal numbers. The label is the sign of

    sin(2 x_1) + x_2 x_3 + x_4^2 - 1 + x_5,

flipped for 5 % of the training rows; the columns 6 to 25 are noise. Ten seeds. First the grid of 8 C x 8 gamma with one
width for all columns, five folds: its best cell is the isotropic machine. Then a gradient search on the same folds, on C
and a gamma for each column. It starts from the grid's cell by the rule of one standard error, whose C is the smallest: the
best cell is often one of a large C, with long runs. Widths are 1 / sqrt(2 gamma_j); the ratio is that of the mean logarithm over
the noise columns to that over the useful ones, as a factor. The seconds of the first seed hold the compilation. OpenBLAS
solves the systems of the derivatives, which are too small for its threads.
"""

from __future__ import annotations

import sys
import time

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels

from .common import Results, column, device

N, TEST, D, USEFUL, SEEDS, FLIPPED = 300, 2_000, 25, 5, 10, 0.05
FIELDS = (
    *("isotropic_C", "isotropic_gamma", "isotropic_cv_error", "isotropic_test_error", "grid_seconds"),
    *("cv_error", "test_error", "C", "width_ratio", "evaluations", "risk_start", "risk_end", "search_seconds", "device"),
)


def function(x):
    """The sign of this is the label."""
    return np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] ** 2 - 1 + x[:, 4]


def problem(seed: int, n: int = N):
    """Training rows and test rows, each with labels -1 and +1."""
    rng = np.random.default_rng(seed)
    x, x_test = (rng.normal(size=(m, D)).astype(np.float32) for m in (n, TEST))
    sign = np.where(rng.random(n) < FLIPPED, -1, 1)
    return x, sign * np.where(function(x) > 0, 1, -1), x_test, np.where(function(x_test) > 0, 1, -1)


def machine(C, gamma):
    """The exact machine; gamma is a number, or one for each column."""
    return jaxsvm.decomposition(C, kernels.rbf(gamma=gamma))


def one_seed(seed: int) -> dict:
    """A row of the table."""
    x, y, x_test, y_test = problem(seed)
    data, key = jaxsvm.dataset(x, y), jax.random.key(seed)
    test_error = lambda model: float(np.mean((np.asarray(model(x_test)) > 0) != (y_test > 0)))
    began = time.perf_counter()
    grid = jaxsvm.select(machine, data, key, C=jaxsvm.C_grid(), gamma=kernels.gamma_grid(x), progress=False)
    grid_seconds, began = time.perf_counter() - began, time.perf_counter()
    start = {"C": grid.one_se["C"], "gamma": np.full(D, grid.one_se["gamma"])}
    found = jaxsvm.select(machine, data, key, search="gradient", folds=grid.fold, progress=False, **start)
    seconds = time.perf_counter() - began
    print(found.status, flush=True)
    widths = -np.log(2 * found.best["gamma"]) / 2
    words = found.status.replace(",", "").split()
    risks = [float(words[words.index("risk") + 1]), float(words[words.index("start") + 1])]
    return {
        "isotropic_C": grid.best["C"],
        "isotropic_gamma": grid.best["gamma"],
        "isotropic_cv_error": grid.table.mean.min(),
        "isotropic_test_error": test_error(grid.model),
        "grid_seconds": grid_seconds,
        "cv_error": found.table.mean.min(),
        "test_error": test_error(found.model),
        "C": found.best["C"],
        "width_ratio": float(np.exp(widths[USEFUL:].mean() - widths[:USEFUL].mean())),
        "evaluations": int(words[words.index("evaluations") - 1]),
        "risk_start": risks[0],
        "risk_end": risks[1],
        "search_seconds": seconds,
        "device": device(),
    }


def main() -> None:
    """All seeds that the file does not hold yet, or those of the command line."""
    results = Results("select_ard", ("seed",), FIELDS)
    for seed in map(int, sys.argv[1:] or range(SEEDS)):
        if not results.of({"seed": seed}):
            results.add({"seed": seed}, [one_seed(seed)])
    rows = results.rows
    before, after = column(rows, "isotropic_test_error"), column(rows, "test_error")
    print(f"median test error {np.median(before):.4f} isotropic, {np.median(after):.4f} by column")
    print(f"median relative change {np.median(after / before - 1):+.1%}, worst {np.max(after / before - 1):+.1%}")
    print(f"median ratio of widths {np.median(column(rows, 'width_ratio')):.1f}, least {column(rows, 'width_ratio').min():.1f}")


if __name__ == "__main__":
    main()
