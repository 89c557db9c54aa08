"""`python -m benchmarks.planes [rounds] [seconds] [points]`: cutting planes, `ocas`, `svm_perf` and `cpsp`.

rounds: rounds to a relative duality gap, in float64 and in float32, beside what is asked for: those of a transcription in
NumPy with a quarter to spare. Objectives beside the optimum of `interior_point`. svmguide1 standardised, 10,000 rows of a9a,
20,000 rows of covtype (class 2, columns in [0, 1]), ijcnn1, reuters as CSR, 3,000 rows of MNIST. planes_rounds.csv.

seconds: `ocas` in float32 to gaps of 1e-2 and 1e-3 on all rows of a9a, covtype, ijcnn1, reuters (CSR) and svmguide1 at
lam = 1e-4, beside LinearSVC at the loosest tolerance that reaches the same objective; compilation is left out; in turns.
planes_seconds.csv.

points: `cpsp` beside `ocas` on Nystrom features of drawn rows (CPNY), lam = 1e-4, 2,000 rows: svmguide1 with gamma 1, a9a
with 0.02, ijcnn1 (1,500 rows) with 2, and the optimum of the kernel; three seeds. planes_points.csv.
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import numpy as np

import jaxsvm
from jaxsvm import losses

from .common import device, load, load_sparse, side_by_side, write

KEY = jax.random.key(0)
LAMS = (1e-3, 1e-4, 1e-5, 1e-6)
OCAS_ASKS = {  # rounds to a gap of 1e-3 (reuters, 1e-5: 1e-2)
    "svmguide1": (20, 20, 20, 20),
    "a9a": (40, 80, 180, 330),
    "covtype": (35, 60, 110, 190),
    "ijcnn1": (30, 50, 75, 100),
    "reuters": (25, 110, 160),
}
SETS = ("svmguide1", "a9a", "ijcnn1", "reuters", "covtype")
KERNELS = {"svmguide1": (2_000, 1.0), "a9a": (2_000, 0.02), "ijcnn1": (1_500, 2.0)}  # rows, gamma
SVM_PERF_ASKS = {"svmguide1": 45, "a9a": 190, "covtype": 130, "ijcnn1": 135, "reuters": 45}  # lam = 1e-3, to 1e-3


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
        from .common import folder

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
            for name in OCAS_ASKS:
                x, y = rows_of(name)
                data = jaxsvm.dataset(x.astype(dtype), y)
                table += linear_rounds(name, dtype, data)
                write("planes_rounds", table)
            table += other_rounds(dtype)
            write("planes_rounds", table)


def line(what: str, dtype: str, ask, found) -> dict:
    """A row of the table."""
    met = found != "-" and float(found) <= ask
    found = found if isinstance(found, int | str) else f"{found:.2e}"
    return {"what": what, "dtype": dtype, "asked": ask, "found": found, "met": met}


def linear_rounds(name: str, dtype: str, data) -> list[dict]:
    """The hinge at four lam, and the objective at a gap of 1e-4 above the optimum of `interior_point`."""
    table = []
    for lam, ask in zip(LAMS, OCAS_ASKS[name], strict=False):
        loose = name == "reuters" and lam == 1e-5
        residual, model = gaps(jaxsvm.ocas(lam, planes=400), data, limit=200 if loose else 400, tol=1e-2 if loose else 1e-4)
        goal = 1e-2 if loose else 1e-3
        table.append(line(f"ocas {name} lam={lam:g} rounds to {goal:g}", dtype, ask, first(residual, goal)))
        if name == "reuters":
            continue
        if dtype == "float32":
            tol = 1e-3 if lam >= 1e-4 else 1e-2 if lam >= 1e-5 else 5e-2
            table.append(line(f"ocas {name} lam={lam:g} gap in 200 rounds", dtype, tol, float(residual[:200].min())))
        best = optimum(data, lam)
        above = float(jaxsvm.objectives.primal(model, data, lam)) / best - 1
        ask = 1e-4 if dtype == "float64" else 2e-4 if lam >= 1e-5 else 1e-3
        table.append(line(f"ocas {name} lam={lam:g} objective above the optimum at gap 1e-4", dtype, ask, above))
    for lam in (1e-3, 1e-4):
        if lam == 1e-4 and name not in ("svmguide1", "covtype", "ijcnn1", "reuters"):
            continue
        slow, _ = gaps(jaxsvm.svm_perf(lam, planes=400), data, limit=400, tol=1e-3)
        quick, _ = gaps(jaxsvm.ocas(lam, planes=400), data, limit=400, tol=1e-3)
        found = first(slow, 1e-3)
        if lam == 1e-3:
            table.append(line(f"svm_perf {name} lam=0.001 rounds to 0.001", dtype, SVM_PERF_ASKS[name], found))
        if found != "-":
            ratio = round(first(quick, 1e-3) / found, 2)
            table.append(line(f"rounds of ocas by those of svm_perf, {name} lam={lam:g}", dtype, 0.8, ratio))
    return table


def optimum(data, lam: float, bias: str = "none") -> float:
    """The least objective, by `interior_point`."""
    run = jaxsvm.fit(jaxsvm.interior_point(1 / (lam * data.y.shape[0]), bias=bias), data, KEY, steps=3, tol=1e-9)
    return float(jaxsvm.objectives.primal(run.model, data, lam))


def other_rounds(dtype: str) -> list[dict]:
    """Few planes, other losses, classes, and a free bias."""
    x, y = rows_of("a9a")
    data = jaxsvm.dataset(x.astype(dtype), y)
    table = []
    for planes, ask in ((20, 100), (40, 80)):
        residual, _ = gaps(jaxsvm.ocas(1e-4, planes=planes), data, limit=200, tol=1e-3)
        table.append(line(f"ocas a9a lam=0.0001 planes={planes} rounds to 0.001", dtype, ask, first(residual, 1e-3)))
    for loss, ask in ((losses.logistic, 30), (losses.squared_hinge, 65)):
        residual, _ = gaps(jaxsvm.ocas(1e-3, loss=loss), data, limit=150, tol=1e-3)
        table.append(line(f"ocas a9a lam=0.001 {loss!r} rounds to 0.001", dtype, ask, first(residual, 1e-3)))
    from .common import folder

    with np.load(folder() / "mnist.npz") as arrays:
        drawn = np.random.default_rng(0).choice(60_000, 3_000, replace=False)
        x, y = arrays["X_train"][drawn].astype(dtype) / 255, arrays["y_train"][drawn]
    digits = jaxsvm.dataset(x, y, task="multiclass")
    solver = jaxsvm.ocas(1e-2, loss=losses.crammer_singer, classes=10, planes=150)
    residual, _ = gaps(solver, digits, limit=150, tol=1e-2)
    table.append(line("ocas mnist 3000 crammer_singer lam=0.01 rounds to 0.01", dtype, 100, first(residual, 1e-2)))
    x, y = rows_of("svmguide1")
    data = jaxsvm.dataset(x.astype(dtype), y)
    _, model = gaps(jaxsvm.ocas(1e-3, bias="free"), data, limit=100, tol=1e-5)
    above = float(jaxsvm.objectives.primal(model, data, 1e-3)) / optimum(data, 1e-3, "free") - 1
    table.append(line("ocas svmguide1 lam=0.001 free bias, objective above the optimum at gap 1e-5", dtype, 1e-5, above))
    return table


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
            table.append(
                {
                    "data": name,
                    "rows": n,
                    "lam": lam,
                    "gap": gap,
                    "rounds": int(run.state.step),
                    "objective": f"{value:.7f}",
                    "ocas_s": round(float(np.median(taken["ocas"])), 3),
                    "LinearSVC_tol": tol,
                    "LinearSVC_objective": f"{objective(liblinear(tol)):.7f}",
                    "LinearSVC_s": round(float(np.median(taken["LinearSVC"])), 3),
                }
            )
            write("planes_seconds", table)


def points() -> None:
    """Objectives of `cpsp` and of drawn landmarks by the number of points."""
    from jaxsvm import features, kernels

    lam, table = 1e-4, []
    for name, (size, gamma) in KERNELS.items():
        x, y = rows_of(name)
        drawn = np.random.default_rng(1).choice(len(y), size, replace=False)
        data, kernel = jaxsvm.dataset(x[drawn].astype(np.float32), y[drawn]), kernels.rbf(gamma=gamma)
        value = lambda model, data=data: float(jaxsvm.objectives.primal(model, data, lam))
        exact = jaxsvm.fit(jaxsvm.decomposition(1 / (lam * size), kernel, bias="none"), data, KEY, tol=1e-4)
        for seed in range(3):
            key, row = jax.random.key(seed), {"data": name, "gamma": gamma, "seed": seed, "optimum": f"{value(exact.model):.4f}"}
            for m in (10, 40):
                phi = features.nystrom(key, kernel, data.x, landmarks=m)
                cpny = jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.ocas(lam)), data, key, steps=400, tol=1e-3)
                row[f"cpny_{m}"] = f"{value(cpny.model):.4f}"
            for m in (10, 40):
                run = jaxsvm.fit(jaxsvm.cpsp(lam, kernel, points=m), data, key, steps=2_000, every=10, tol=1e-3)
                row[f"cpsp_{m}"], row[f"rounds_{m}"] = f"{value(run.model):.4f}", int(run.state.step)
            row["ratio_40"] = round(float(row["cpsp_40"]) / float(row["cpny_40"]), 2)
            table.append(row)
            write("planes_points", table)


def main() -> None:
    """The parts that are named, or all."""
    parts = {"rounds": rounds, "seconds": seconds, "points": points}
    for name in sys.argv[1:] or parts:
        began = time.perf_counter()
        parts[name]()
        print(f"{name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
