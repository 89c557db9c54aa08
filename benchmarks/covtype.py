"""`python -m benchmarks.covtype [exact] [all] [killed] [ways]`: the exact kernel machine on up to all 581,012 rows of covtype.

exact   100,000 and 200,000 rows drawn once, C = 1 and 10, gamma as in `peers`: scikit-learn-intelex's SVC at its default
        tolerance and the violation that it reaches in float64; then `decomposition` to that violation.
all     400,000 and all rows, C = 1: scikit-learn-intelex at its default tolerance, and `decomposition` to a violation of
        1e-3, with its certificate. The violation in float64 would take longer than the runs.
killed  200,000 rows, C = 1, with `fit(save=)`: killed (SIGKILL) in the middle, and run again to the end from the file.
ways    100,000 rows, C = 1: other sizes of the cache of kernel rows, and a start from a machine on 2,048 Nystrom features.

Every run is a process of its own. Seconds are from the rows in memory to the model, compilation included; resident_GB is the
largest resident memory of the process at that time. Files grow by a run at a time: runs that are there are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from . import common
from .one_machine import resident
from .peers import GAMMA, gaussian, signed, violation

PARTS = {"exact": [(n, C) for C in (1, 10) for n in (100_000, 200_000)], "all": [(400_000, 1), (581_012, 1)]}
KILLED = (200_000, 1)
WAYS = {"cache of 0.25 GiB": 2**28, "cache of 2 GiB": 2**31, "cache of 8 GiB": 2**33, "start from low rank": 2**31}
JUDGED = 200_000  # rows, at most, of which the violation is computed in float64


def peer(n: int, C: float, tol: float) -> dict:
    """scikit-learn-intelex's SVC."""
    from sklearnex.svm import SVC

    x, y = common.rows_of("covtype", n)
    began = time.perf_counter()
    made = SVC(C=C, gamma=GAMMA["covtype"]).fit(x, y)
    found = {"seconds": time.perf_counter() - began, "resident_GB": resident(), "support": len(made.support_)}
    if n <= JUDGED:
        found["violation"] = violation(x, y.astype(float), signed(made, n, C), C, gaussian(GAMMA["covtype"]))
    return found


def low_rank(data, kernel, C: float):
    """The dual coefficients alpha of a machine on Nystrom features."""
    import jax

    import jaxsvm

    phi = jaxsvm.features.nystrom(jax.random.key(0), kernel, data.x, landmarks=2048)
    solver = jaxsvm.on_features(phi, jaxsvm.dual_descent(float(C), bias="feature", tol=1e-3))
    return data.y * jaxsvm.fit(solver, data, jax.random.key(0)).state.solver.coef


def ours(n: int, C: float, tol: float, save: str | None = None, way: str = "cache of 2 GiB") -> dict:
    """`decomposition`, by `fit`; `seconds` hold those of its start."""
    import jax

    import jaxsvm

    x, y = common.rows_of("covtype", n)
    kernel = jaxsvm.kernels.rbf(gamma=GAMMA["covtype"])
    began = time.perf_counter()
    data = jaxsvm.dataset(x, y)
    start = low_rank(data, kernel, C) if way == "start from low rank" else None
    solver = jaxsvm.decomposition(float(C), kernel, tol=tol, memory=WAYS[way], start=start)
    state = jaxsvm.models.load(save) if save and pathlib.Path(save).exists() else None  # the run goes on from its file
    key = None if state else jax.random.key(0)
    run = jaxsvm.fit(solver, data, key, tol=tol, state=state, save=save or None, every=1, progress=True)
    jax.block_until_ready(run.model)
    found = {"seconds": time.perf_counter() - began, "resident_GB": resident(), "updates": int(run.info.support.shape[0])}
    coef = np.asarray(run.model.coef, float)
    found |= {"support": int(np.count_nonzero(coef)), "kernel_rows": int(run.evals / n), "residual": float(run.info.residual[-1])}
    began = time.perf_counter()
    proof = jaxsvm.certificate(run.model, data, jaxsvm.lam_from_C(C, n))
    found |= {"gap": float(proof.gap / proof.primal), "certificate_s": time.perf_counter() - began}
    if n <= JUDGED:
        found["violation"] = violation(x, y.astype(float), coef, C, gaussian(GAMMA["covtype"]))
    return found


def process(who: str, n: int, C: float, tol: float, *more: str) -> subprocess.Popen:
    """A run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.covtype", "one", who, str(n), str(C), str(tol), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def figures(running: subprocess.Popen) -> dict:
    """What a process printed last."""
    out, _ = running.communicate()
    if running.returncode:
        sys.exit(f"a run ended with status {running.returncode}")
    return json.loads(out.splitlines()[-1])


def killed(n: int, C: float) -> dict:
    """A run that is killed once its file was written, and the run that goes on from it."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "run.npz"
        began = time.perf_counter()
        running = process("ours", n, C, 1e-3, str(file))
        while not file.exists() and running.poll() is None:
            time.sleep(0.05)
        time.sleep(2)  # the next update runs
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        first = time.perf_counter() - began
        return {"killed_after_s": first} | figures(process("ours", n, C, 1e-3, str(file)))


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["exact", "all", "killed"])
    parser.add_argument("--rows", type=int, help="instead of those of the parts")
    options = parser.parse_args()
    if options.parts[0] == "one":
        _, who, n, C, tol, *save = options.parts
        run = {"ours": ours, "peer": peer}[who]
        print(json.dumps(run(int(n), float(C), float(tol), *save)))
        return
    fields = (
        *("seconds", "resident_GB", "support", "violation", "gap", "certificate_s", "kernel_rows", "updates"),
        *("residual", "killed_after_s"),
    )
    results = common.Results("covtype", ("part", "rows", "C", "who"), fields)
    if "ways" in options.parts:
        n = options.rows or 100_000
        for way in WAYS:
            run = {"part": "ways", "rows": n, "C": 1, "who": way}
            if not results.of(run):
                results.add(run, [figures(process("ours", n, 1, 1e-3, "", way))])
    for part in [part for part in options.parts if part != "ways"]:
        cases = [KILLED] if part == "killed" else PARTS[part]
        for n, C in cases if options.rows is None else [(options.rows, C) for _, C in cases[:2]]:
            tol = 1e-3
            for who in ("ours",) if part == "killed" else ("peer", "ours"):
                run = {"part": part, "rows": n, "C": C, "who": who}
                if not results.of(run):
                    found = killed(n, C) if part == "killed" else figures(process(who, n, C, tol))
                    results.add(run, [found])
                if who == "peer" and part == "exact":
                    tol = max(float(results.of(run)[0]["violation"]), 1e-3)


if __name__ == "__main__":
    main()
