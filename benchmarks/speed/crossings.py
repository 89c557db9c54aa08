"""`python -m benchmarks.speed.crossings`: which linear method is fastest on which rows, and what the choice of `LinearSVC` costs.

Random problems in two layouts, CSR and, up to 6e7 numbers, an array: 500 to 200,000 rows, 10 to 50,000 columns, of which 0.1 to
100 % are not 0, real or ones, with and without noise, C from 0.01 to 100. The thresholds of `machines.fastest_linear` are made
from the first 60; the last 40 are held out. `crossings.csv` has the milliseconds of each method, of LIBLINEAR and of
`LinearSVC(solver="auto")`, medians of three in turns without compilation, or one turn where it takes more than six seconds,
and how much the objective in float64 is above the best. Regret is printed for both parts.
"""

from __future__ import annotations

import functools
import statistics
import warnings

import numpy as np

from .. import common

THRESHOLDS, HELD_OUT = 100, 40
METHODS = {
    "hinge": ("dual_descent", "augmented_lagrangian", "interior_point"),
    "squared_hinge": ("newton", "dual_descent"),
}
MOST_ENTRIES, MOST_NUMBERS = 1_000_000, 60_000_000
MOST_COLUMNS = 1_000  # that methods for dense rows take


def problem(k: int) -> tuple:
    """Rows as CSR, labels, and what they are."""
    import scipy.sparse

    random = np.random.default_rng([1, k])
    uniform = lambda low, high: float(np.exp(random.uniform(np.log(low), np.log(high))))
    while True:
        n, d = int(uniform(500, 200_000)), int(uniform(10, 50_000))
        share = 1.0 if random.random() < 0.25 else uniform(1e-3, 1)
        if share * d >= 1 and share * n * d <= MOST_ENTRIES:
            break
    ones, noisy = bool(random.integers(2)) and share < 1, bool(random.integers(2))
    if share == 1:
        x = scipy.sparse.csr_matrix(random.normal(size=(n, d)).astype(np.float32))
    else:
        x = scipy.sparse.random(n, d, share, "csr", np.float32, random)
        x.data = (np.ones if ones else lambda size: random.normal(size=size))(x.nnz).astype(np.float32)
    scores = x @ random.normal(size=d)
    scores += (0.3 if noisy else 0) * scores.std() * random.normal(size=n)
    loss = ("hinge", "squared_hinge")[k % 2]
    about = {"problem": k, "loss": loss, "rows": n, "columns": d, "share": f"{x.nnz / n / d:.3g}"}
    about |= {"values": "ones" if ones else "real", "noisy": noisy, "C": f"{uniform(1e-2, 1e2):.3g}"}
    return x, np.where(scores > np.median(scores), 1, -1), about


def objective(model, x, y, C: float, loss: str) -> float:
    """1/2 (|w|^2 + b^2) + C times the sum of losses, in float64."""
    w, b = model.coef_.ravel().astype(float), float(np.ravel(model.intercept_)[0])
    short = np.maximum(1 - y * (x @ w + b), 0)
    return (w @ w + b * b) / 2 + C * float(np.sum(short if loss == "hinge" else short**2))


def fitted(model, x, y) -> None:
    """Fit, and give nothing back to wait for."""
    model.fit(x, y)


def measured(k: int) -> list[dict]:
    """A row of the table for each layout of a problem."""
    import sklearn.svm

    from jaxsvm.estimators import LinearSVC

    x, y, about = problem(k)
    (n, d), how, rows = x.shape, {"C": float(about["C"]), "loss": about["loss"], "random_state": 0}, []
    for form in ("CSR", "array") if n * d <= MOST_NUMBERS else ("CSR",):
        given = x if form == "CSR" else x.toarray()
        fits_all = d <= MOST_COLUMNS and n * d <= MOST_NUMBERS
        names = [m for m in METHODS[how["loss"]] if fits_all or m in ("newton", "dual_descent")]
        names += ["auto"] * (k >= THRESHOLDS)
        models = {"LIBLINEAR": sklearn.svm.LinearSVC(**how)} | {name: LinearSVC(solver=name, **how) for name in names}
        fits = {name: functools.partial(fitted, model, given, y) for name, model in models.items()}
        seconds = common.side_by_side(fits, 1)
        if sum(first for (first,) in seconds.values()) < 6:
            seconds = common.side_by_side(fits, 3)
        values = {name: objective(model, x, y, how["C"], how["loss"]) for name, model in models.items()}
        row = about | {"form": form, "method": models["auto"].solver_ if "auto" in models else ""}
        for name in ("LIBLINEAR", "auto", "newton", "dual_descent", "augmented_lagrangian", "interior_point"):
            row[name] = f"{1e3 * statistics.median(seconds[name]):.3g}" if name in seconds else ""
            row[f"{name} above"] = f"{values[name] / min(values.values()) - 1:.1e}" if name in values else ""
        rows.append(row)
    return rows


def regret(rows: list[dict]) -> None:
    """Print how many choices are good."""
    own = lambda row: min(float(row[m]) for m in METHODS[row["loss"]] if row[m] and float(row[f"{m} above"]) <= 1e-3)
    near = np.mean([float(row["auto"]) <= 1.3 * own(row) for row in rows])
    peer = np.mean([float(row["auto"]) <= 2 * float(row["LIBLINEAR"]) + 5 for row in rows])
    right = np.mean([float(row["auto above"]) <= 1e-3 for row in rows])
    print(f"{len(rows)} held out: at most 1.3 times the fastest method {near:.0%}, at most 2 times LIBLINEAR and 5 ms "
          f"{peer:.0%}, objective within 1e-3 of the best {right:.0%}")  # fmt: skip


def main() -> None:
    """Write crossings.csv, and print the regret; `measured(k)` is one problem."""
    warnings.simplefilter("ignore")
    rows = []
    for k in range(THRESHOLDS + HELD_OUT):
        rows += measured(k)
        print(rows[-1], flush=True)
    common.write("crossings", [row | {"device": common.device()} for row in rows])
    regret([row for row in rows if row["auto"]])


if __name__ == "__main__":
    main()
