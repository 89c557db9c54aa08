"""`python -m benchmarks.speed.exact [speed] [figure] [a9a] ...`: exact kernel SVMs, beside other programs.

Gaussian kernel, free bias. The first rows of a9a, of MNIST (pixels in [0, 1], 8 against the other digits) and of ijcnn1; of
covtype 50,000 drawn once. `decomposition` in float32 beside scikit-learn's SVC, LIBSVM's own package and scikit-learn-intelex;
those that are not installed are left out. Names of data sets leave out the others.

speed: seconds from arrays to coefficients at the tolerance 1e-3 that all have by default.
figure: speed as a picture.

Each run has a process of its own, no thread is pinned, and the programs take turns; `--repeats 3` gives the median of
three, and what takes over two minutes runs once. exact_runs.csv gets a row after each run: a run that is there is not made
again, so that a benchmark that was cut short goes on. Wall and processor seconds: ours the second time in the process
(cold_s the first, with compilation), the others after a fit on 200 rows; LIBSVM without turning arrays into its nodes.
kkt is LIBSVM's violation max rise - min fall, dual and gap those of the coefficients (gap with the program's own bias), all
in float64 by NumPy. memory_MB is the largest resident memory of the process after one fit, with everything: Python, the
libraries, the rows. `--rows 1000` takes that many rows at most.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

# JAX, and what imports it, is imported where it is used: the processes of other programs do without.

SETTINGS = {"a9a": 0.05, "mnist": 0.02, "ijcnn1": 1.0, "covtype": 2.0}  # gamma
A9A = [("a9a", n, C) for n in (10_000, 20_000, 32_561) for C in (1, 10, 100)]
MNIST = [("mnist", 10_000, 1), ("mnist", 10_000, 10), ("mnist", 10_000, 100), ("mnist", 20_000, 10)]
CASES = [*A9A, *MNIST, ("ijcnn1", 49_990, 10), ("covtype", 50_000, 10)]
OURS, LESS = "decomposition", "decomposition, memory=0"
OTHERS = {"SVC": "sklearn", "LIBSVM": "libsvm", "scikit-learn-intelex": "sklearnex"}  # and their packages
KEY = ("part", "data", "rows", "C", "gamma", "solver")
MEASURES = ("wall_s", "cpu_s", "cold_s", "kkt", "gap", "dual", "support", "memory_MB")
SLOW = 120  # seconds; what takes longer is not repeated


def fit_ours(x, y, C, gamma, **options):
    """Signed coefficients and bias by `decomposition`."""
    import jax

    import jaxsvm

    solver = jaxsvm.decomposition(float(C), jaxsvm.kernels.rbf(gamma=gamma), **options)
    model = jaxsvm.fit(solver, jaxsvm.dataset(x, y), jax.random.key(0), steps=1).model
    return np.asarray(model.coef), float(model.b)


def fit_svc(x, y, C, gamma, SVC, **options):
    """Signed coefficients and bias by scikit-learn's class or one like it."""
    made = SVC(C=C, gamma=gamma, **options).fit(x, y)
    coef = np.zeros(len(y))
    coef[made.support_] = made.dual_coef_[0]
    return coef, float(made.intercept_[0])


def fit_libsvm(problem, y, C, gamma):
    """Signed coefficients and bias by LIBSVM, whose first class is that of the first row."""
    from libsvm import svmutil

    made = svmutil.svm_train(problem, svmutil.svm_parameter(f"-c {C} -g {gamma} -m 200 -q"))
    coef, sign = np.zeros(len(y)), made.get_labels()[0]
    coef[np.array(made.get_sv_indices()) - 1] = sign * np.array(made.get_sv_coef())[:, 0]
    return coef, -sign * float(made.rho[0])


def measured(case: dict) -> dict:
    """One run, in this process."""
    with np.load(case["file"]) as arrays:
        x, y = arrays["x"], arrays["y"]
    solver, few = case["solver"], np.r_[np.flatnonzero(y > 0)[:100], np.flatnonzero(y < 0)[:100]]
    args, cold = (case["C"], case["gamma"]), ""
    if solver.startswith(OURS):
        import jax

        jax.config.update("jax_enable_compilation_cache", False)
        run = lambda: fit_ours(x, y, *args, **case["options"])
        _, cold, _ = timed(run)
    elif solver.startswith("LIBSVM"):
        from libsvm import svmutil

        fit_libsvm(svmutil.svm_problem(y[few].astype(float), x[few].astype(float)), y[few], *args)
        problem = svmutil.svm_problem(y.astype(float), x.astype(float))
        run = lambda: fit_libsvm(problem, y, *args)
    else:
        from importlib import import_module

        SVC = import_module(OTHERS[solver] + ".svm").SVC
        fit_svc(x[few], y[few], *args, SVC)
        run = lambda: fit_svc(x, y, *args, SVC)
    memory = largest_memory() if cold else None
    (coef, b), wall, cpu = timed(run)
    memory = memory or largest_memory()
    found = judged(x, y, coef.astype(float), b, *args)
    return {"wall_s": wall, "cpu_s": cpu, "cold_s": cold, **found, "memory_MB": memory}


def timed(run) -> tuple:
    """What `run` returns, its seconds and the processor's in this process."""
    began, busy = time.perf_counter(), time.process_time()
    found = run()
    return found, time.perf_counter() - began, time.process_time() - busy


def largest_memory() -> float:
    """VmHWM, MB; `common.resident` would import JAX."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def judged(x, y, coef, b, C, gamma) -> dict:
    """What the coefficients are worth, in float64."""
    x, y, used = x.astype(float), y.astype(float), np.flatnonzero(coef)
    square, wx = (x * x).sum(1), np.zeros(len(y))
    for begin in range(0, len(y), 2_000):
        part = slice(begin, begin + 2_000)
        distance = square[part, None] + square[used] - 2 * (x[part] @ x[used].T)
        wx[part] = np.exp(-gamma * np.maximum(distance, 0)) @ coef[used]
    pull, high, low = y - wx, np.where(y > 0, C, 0), np.where(y > 0, 0, -C)
    norm, loss = coef @ wx, C * np.maximum(0, 1 - y * (wx + b)).sum()
    dual, primal = y @ coef - norm / 2, norm / 2 + loss
    rise, fall = pull[coef < high].max(initial=-np.inf), pull[coef > low].min(initial=np.inf)
    return {"kkt": max(rise - fall, 0), "gap": (primal - dual) / primal, "dual": dual, "support": len(used)}


class Runs:
    """The runs made so far, in exact_runs.csv, and the means to make more."""

    def __init__(self, options):
        from ..common import Results

        self.results, self.options, self.failed = Results("exact_runs", KEY, MEASURES), options, []
        self.missing = [name for name, package in OTHERS.items() if importlib.util.find_spec(package) is None]
        if self.missing:
            print("not installed, left out:", ", ".join(self.missing))

    def turns(self, part: str, case: tuple, solvers: dict) -> None:
        """The solvers of a case in turns, each run in a process of its own."""
        from ..common import rows_of

        name, n, C = case
        if self.options.data and name not in self.options.data:
            return
        n = min(n, self.options.rows)
        keys = {s: dict(zip(KEY, (part, name, n, C, SETTINGS[name], s), strict=True)) for s in solvers if s not in self.missing}
        with tempfile.TemporaryDirectory() as place:
            file = pathlib.Path(place) / "rows.npz"
            for repeat in range(self.options.repeats):
                for solver, key in keys.items():
                    before = self.results.of(key)
                    if len(before) > repeat or any(float(row["wall_s"]) > SLOW for row in before) or key in self.failed:
                        continue
                    if not file.exists():
                        np.savez(file, **dict(zip("xy", rows_of(name, n), strict=True)))
                    task = json.dumps(key | {"options": solvers[solver], "file": str(file)})
                    ended = subprocess.run(
                        [sys.executable, "-m", "benchmarks.speed.exact", "--one", task], capture_output=True, text=True
                    )
                    if ended.returncode:
                        self.failed.append(key)
                        print(f"{key} failed with {ended.returncode}: {ended.stderr[-500:]}", flush=True)
                    else:
                        self.results.add(key, [json.loads(ended.stdout.splitlines()[-1])])

    def summary(self, part: str, name: str) -> list[dict]:
        """The medians of a part, all that there are, as NAME.csv."""
        from ..common import write

        groups, walls = {}, {}
        for row in self.results.rows:
            if row["part"] == part:
                groups.setdefault(tuple(row[k] for k in KEY[1:]), []).append(row)
        table = []
        for key, own in sorted(groups.items(), key=place_of):
            row = dict(zip(KEY[1:], key, strict=True)) | {"runs": len(own)}
            for k in MEASURES:
                middle = np.median([float(r[k]) for r in own]) if own[0][k] else None
                row[k] = "" if middle is None else round(middle) if k in ("support", "memory_MB") else float(f"{middle:.4g}")
            row["dual"] = f"{np.median([float(r['dual']) for r in own]):.7g}"
            walls[key] = row["wall_s"]
            table.append(row)
        for row in table:
            ours = [wall for key, wall in walls.items() if key[:4] == tuple(row[k] for k in KEY[1:5]) and key[4].startswith(OURS)]
            row["times_ours"] = f"{row['wall_s'] / ours[0]:.2f}" if ours else ""
        if table:
            write(name, table)
        return table


def place_of(group) -> tuple:
    """The order of cases and solvers in a table."""
    name, n, C, _, solver = group[0]
    known = [OURS, LESS, *OTHERS]
    return list(SETTINGS).index(name), int(n), int(C), known.index(solver) if solver in known else -1  # -1: ours otherwise


def speed(runs: Runs) -> None:
    """All cases, all programs."""
    for case in CASES:
        ways = {OURS: {}, **({LESS: {"memory": 0}} if case in (("a9a", 20_000, 10), ("mnist", 20_000, 10)) else {})}
        runs.turns("speed", case, ways | dict.fromkeys(OTHERS, {}))
    runs.summary("speed", "exact")


def figure(runs: Runs) -> None:
    """Wall seconds of the part `speed`, a line for each case."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from ..common import RESULTS

    table = runs.summary("speed", "exact")
    cases = list(dict.fromkeys(tuple(row[k] for k in KEY[1:4]) for row in table))
    drawn, ax = plt.subplots(figsize=(7.5, 1.2 + 0.3 * len(cases)), layout="constrained")
    for solver, mark in zip((OURS, LESS, *OTHERS), "oDs^v", strict=True):
        own = [row for row in table if row["solver"] == solver]
        places = [cases.index(tuple(row[k] for k in KEY[1:4])) for row in own]
        if own:
            ax.plot([row["wall_s"] for row in own], places, mark, label=solver, alpha=0.8)
    ax.set_yticks(range(len(cases)), [f"{name} {int(n):,}, C = {C}" for name, n, C in cases])
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel="wall seconds, tolerance 1e-3")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    drawn.savefig(RESULTS / "exact.png", dpi=120)


def main() -> None:
    known = {f.__name__: f for f in (speed, figure)}
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=f"parts ({', '.join(known)}) and data sets ({', '.join(SETTINGS)}); none: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        return print(json.dumps(measured(json.loads(options.one))))
    wrong = set(options.names) - {*known, *SETTINGS}
    if wrong:
        parser.error(f"no part and no data set: {', '.join(wrong)}")
    options.data = [name for name in options.names if name in SETTINGS]
    from ..common import device

    print(device(), "".join(f", {p} {version(p)}" for p in ("scikit-learn", "libsvm-official", "scikit-learn-intelex")))
    runs = Runs(options)
    for name in [name for name in options.names if name in known] or list(known):
        known[name](runs)


def version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    main()
