"""`python -m benchmarks.papers.planes [rounds] [seconds]`: cutting planes, `ocas` and `svm_perf`.

rounds: rounds to a relative duality gap, in float64 and in float32. Objectives beside the optimum of `interior_point`.
svmguide1 standardised, 10,000 rows of a9a, 20,000 rows of covtype (class 2, columns in [0, 1]), ijcnn1, reuters as CSR.
planes_rounds.csv.

seconds: `ocas` in float32 to gaps of 1e-2 and 1e-3 on all rows of a9a, covtype, ijcnn1, reuters (CSR) and svmguide1 at
lam = 1e-4, beside LinearSVC at the loosest tolerance that reaches the same objective; compilation is left out; in turns.
planes_seconds.csv.
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import numpy as np

import jaxsvm

from ..common import device, load, load_sparse, side_by_side, write

KEY = jax.random.key(0)
LAMS = (1e-3, 1e-4, 1e-5, 1e-6)
SETS = ("svmguide1", "a9a", "ijcnn1", "reuters", "covtype")


def rows_of(name: str, whole: bool = False) -> tuple:
    """Rows and labels; those of the transcription, or all."""
    random = np.random.default_rng(0)
    if name == "reuters":
        return load_sparse("reuters_money_fx")[:2]
    x, y = load(name)
    if name == "svmguide1":
        x = x.astype(np.float64)
        x = (x - x.mean(0)) / x.std(0)
    if whole:
        return x, y
    if name == "covtype":
        from ..common import folder

        with np.load(folder() / "covtype.npz") as arrays:
            y = np.where(arrays["y_train"] == 2, 1, -1)
    size = {"a9a": 10_000, "covtype": 20_000}.get(name, len(y))
    drawn = random.choice(len(y), size, replace=False) if size < len(y) else slice(None)
    return x[drawn], y[drawn]


def first(residuals: np.ndarray, gap: float) -> int | str:
    """Rounds until the gap is met, or "-"."""
    met = np.flatnonzero(residuals <= gap)
    return int(met[0]) + 1 if met.size else "-"


def gaps(solver, data, *, limit: int, tol: float):
    """The gap after each round, and the model."""
    run = jaxsvm.fit(solver, data, KEY, steps=limit, every=1, tol=tol)
    return np.asarray(run.info.residual), run.model


def rounds() -> None:
    """The table of rounds."""
    print(device())
    table = []
    for dtype in ("float64", "float32"):
        with jax.enable_x64(dtype == "float64"):
            for name in SETS:
                x, y = rows_of(name)
                data = jaxsvm.dataset(x.astype(dtype), y)
                table += linear_rounds(name, dtype, data)
                write("planes_rounds", table)


def line(what: str, dtype: str, found) -> dict:
    """A row of the table."""
    return {"what": what, "dtype": dtype, "found": found if isinstance(found, int | str) else f"{found:.2e}"}


def linear_rounds(name: str, dtype: str, data) -> list[dict]:
    """The hinge at four lam, and the objective at a gap of 1e-4 above the optimum of `interior_point`."""
    table = []
    for lam in LAMS[:3] if name == "reuters" else LAMS:
        loose = name == "reuters" and lam == 1e-5
        residual, model = gaps(jaxsvm.ocas(lam, planes=400), data, limit=200 if loose else 400, tol=1e-2 if loose else 1e-4)
        goal = 1e-2 if loose else 1e-3
        table.append(line(f"ocas {name} lam={lam:g} rounds to {goal:g}", dtype, first(residual, goal)))
        if name == "reuters":
            continue
        best = optimum(data, lam)
        above = float(jaxsvm.objectives.primal(model, data, lam)) / best - 1
        table.append(line(f"ocas {name} lam={lam:g} objective above the optimum at gap 1e-4", dtype, above))
    slow, _ = gaps(jaxsvm.svm_perf(1e-3, planes=400), data, limit=400, tol=1e-3)
    table.append(line(f"svm_perf {name} lam=0.001 rounds to 0.001", dtype, first(slow, 1e-3)))
    return table


def optimum(data, lam: float) -> float:
    """The least objective, by `interior_point`."""
    run = jaxsvm.fit(jaxsvm.interior_point(1 / (lam * data.y.shape[0]), bias="none"), data, KEY, steps=3, tol=1e-9)
    return float(jaxsvm.objectives.primal(run.model, data, lam))


def seconds() -> None:
    """Seconds beside LIBLINEAR to the same objective."""
    from sklearn.svm import LinearSVC

    print(device())
    lam, table = 1e-4, []
    for name in SETS:
        x, y = rows_of(name, whole=True)
        data = jaxsvm.dataset(x.astype(np.float32), y)
        n, wide = len(y), x.astype(np.float64)
        objective = lambda w, wide=wide, y=y: lam / 2 * w @ w + np.maximum(0, 1 - y * (wide @ w)).mean()
        for gap in (1e-2, 1e-3):
            solver = jaxsvm.ocas(lam, planes=100)
            ours = lambda gap=gap, solver=solver, data=data: jaxsvm.fit(solver, data, KEY, steps=400, every=1, tol=gap)
            run = ours()
            value = objective(np.asarray(run.model.w, np.float64))

            def liblinear(tol, wide=wide, y=y, n=n):
                options = {"C": 1 / (lam * n), "loss": "hinge", "fit_intercept": False, "random_state": 0}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return LinearSVC(tol=tol, max_iter=5000, **options).fit(wide, y).coef_[0]

            tols = (1, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
            tol = next((tol for tol in tols if objective(liblinear(tol)) <= value), 1e-5)
            ways = {"ocas": ours, "LinearSVC": lambda tol=tol, liblinear=liblinear: liblinear(tol)}
            taken = side_by_side(ways, repeats=3)
            row = {"data": name, "rows": n, "lam": lam, "gap": gap, "rounds": int(run.state.step), "objective": f"{value:.7f}"}
            row |= {"ocas_s": round(float(np.median(taken["ocas"])), 3), "LinearSVC_tol": tol}
            row |= {"LinearSVC_objective": f"{objective(liblinear(tol)):.7f}"}
            table.append(row | {"LinearSVC_s": round(float(np.median(taken["LinearSVC"])), 3)})
            write("planes_seconds", table)


def main() -> None:
    """The parts that are named, or all."""
    parts = {"rounds": rounds, "seconds": seconds}
    for name in sys.argv[1:] or parts:
        began = time.perf_counter()
        parts[name]()
        print(f"{name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
