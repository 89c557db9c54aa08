"""`python -m benchmarks.crossings`: which linear solver is fastest on rows of which shape.

`LinearSVC(solver=...)` with default parameters and LIBLINEAR, on random rows of normal numbers, of which a share is not 0.
Arrays are given as arrays, "CSR" as sparse matrices; numbers of columns are chosen around the limits of
`machines.fastest_linear` and of `dataset(sparse="auto")`. Milliseconds, median of three in turns, without compilation; empty:
the solver does not take these rows. `auto` is what `LinearSVC` takes by itself.
"""

from __future__ import annotations

import functools
import statistics
import warnings

import numpy as np

from . import common

SHAPES = [  # rows, columns, share of numbers that are not 0, form
    *[(500, d, 1.0, "array") for d in (10, 100, 400, 1000)],
    *[(6_000, d, 1.0, "array") for d in (10, 100, 400)],
    *[(50_000, d, 1.0, "array") for d in (10, 50)],
    *[(7_700, 300, share, form) for share in (0.04, 0.1, 0.2) for form in ("array", "CSR")],
    *[(7_700, d, 0.04, form) for d in (64, 128) for form in ("array", "CSR")],
    (20_000, 5_000, 0.005, "CSR"),
    (2_000, 10_000, 0.005, "CSR"),
]
SOLVERS = {
    "hinge": ("interior_point", "augmented_lagrangian", "dual_descent"),
    "squared_hinge": ("newton", "dual_descent"),
}
MOST_COLUMNS = 1_000  # that interior_point takes
MOST_DENSE = 10_000_000  # numbers of sparse rows, beyond which dense methods are left out


def problem(n: int, d: int, share: float, form: str) -> tuple:
    """Rows and labels with a tenth of noise."""
    import scipy.sparse

    random = np.random.default_rng(0)
    x = random.normal(size=(n, d)).astype(np.float32)
    if share < 1:
        x *= random.random((n, d)) < share
    scores = x @ random.normal(size=d)
    y = np.where(scores + 0.3 * scores.std() * random.normal(size=n) > 0, 1, -1)
    return scipy.sparse.csr_matrix(x) if form == "CSR" else x, y


def fitted(model, x, y) -> None:
    """Fit, and give nothing back to wait for."""
    model.fit(x, y)


def main() -> None:
    """Write crossings.csv."""
    import sklearn.svm

    from jaxsvm.estimators import LinearSVC

    warnings.simplefilter("ignore")
    rows = []
    for shape in SHAPES:
        x, y = problem(*shape)
        for loss, names in SOLVERS.items():
            dense_alone = shape[3] == "CSR" and (shape[1] > MOST_COLUMNS or x.shape[0] * x.shape[1] > MOST_DENSE)
            names = [name for name in names if name in ("dual_descent", "newton") or not dense_alone]
            models = {name: LinearSVC(loss=loss, solver=name, random_state=0) for name in names}
            models["LIBLINEAR"] = sklearn.svm.LinearSVC(loss=loss, random_state=0)
            models["auto"] = LinearSVC(loss=loss, random_state=0)
            fits = {name: functools.partial(fitted, model, x, y) for name, model in models.items()}
            seconds = common.side_by_side(fits, 3)
            row = {"loss": loss, "rows": shape[0], "columns": shape[1], "share": shape[2], "form": shape[3]}
            for name in ("newton", "interior_point", "augmented_lagrangian", "dual_descent", "LIBLINEAR"):
                row[name] = f"{1e3 * statistics.median(seconds[name]):.3g}" if name in seconds else ""
            rows.append(row | {"auto": models["auto"].solver_, "device": common.device()})
            print(rows[-1], flush=True)
    common.write("crossings", rows)


if __name__ == "__main__":
    main()
