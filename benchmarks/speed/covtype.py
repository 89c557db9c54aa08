"""`python -m benchmarks.speed.covtype [exact] [all]`: the exact kernel machine on up to all 581,012 rows of covtype.

exact   100,000 and 200,000 rows drawn once, C = 1 and 10, gamma as in `peers`: scikit-learn-intelex's SVC at its default
        tolerance and the violation that it reaches in float64; then `decomposition` to that violation.
all     400,000 and all rows, C = 1: scikit-learn-intelex at its default tolerance, and `decomposition` to a violation of
        1e-3, with its certificate. The violation in float64 would take longer than the runs.

Every run is a process of its own. Seconds are from the rows in memory to the model, compilation included; resident_GB is the
largest resident memory of the process at that time. Files grow by a run at a time: runs that are there are not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

from .. import common
from .peers import GAMMA, gaussian, signed, violation

PARTS = {"exact": [(n, C) for C in (1, 10) for n in (100_000, 200_000)], "all": [(400_000, 1), (581_012, 1)]}
JUDGED = 200_000  # rows, at most, of which the violation is computed in float64


def peer(n: int, C: float, tol: float) -> dict:
    """scikit-learn-intelex's SVC."""
    from sklearnex.svm import SVC

    x, y = common.rows_of("covtype", n)
    began = time.perf_counter()
    made = SVC(C=C, gamma=GAMMA["covtype"]).fit(x, y)
    found = {"seconds": time.perf_counter() - began, "resident_GB": common.resident(), "support": len(made.support_)}
    if n <= JUDGED:
        found["violation"] = violation(x, y.astype(float), signed(made, n, C), C, gaussian(GAMMA["covtype"]))
    return found


def ours(n: int, C: float, tol: float) -> dict:
    """`decomposition`, by `fit`, with 2 GiB of kernel rows."""
    import jax

    import jaxsvm

    x, y = common.rows_of("covtype", n)
    kernel = jaxsvm.kernels.rbf(gamma=GAMMA["covtype"])
    began = time.perf_counter()
    data = jaxsvm.dataset(x, y)
    solver = jaxsvm.decomposition(float(C), kernel, tol=tol, memory=2**31 - 1)
    run = jaxsvm.fit(solver, data, jax.random.key(0), tol=tol, every=1, progress=True)
    jax.block_until_ready(run.model)
    found = {"seconds": time.perf_counter() - began, "resident_GB": common.resident(), "updates": int(run.info.support.shape[0])}
    coef = np.asarray(run.model.coef, float)
    found |= {"support": int(np.count_nonzero(coef)), "kernel_rows": int(run.evals / n), "residual": float(run.info.residual[-1])}
    began = time.perf_counter()
    proof = jaxsvm.certificate(run.model, data, jaxsvm.lam_from_C(C, n))
    found |= {"gap": float(proof.gap / proof.primal), "certificate_s": time.perf_counter() - began}
    if n <= JUDGED:
        found["violation"] = violation(x, y.astype(float), coef, C, gaussian(GAMMA["covtype"]))
    return found


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--rows", type=int, help="instead of those of the parts")
    options = parser.parse_args()
    if options.parts[0] == "one":
        _, who, n, C, tol = options.parts
        run = {"ours": ours, "peer": peer}[who]
        print(json.dumps(run(int(n), float(C), float(tol))))
        return
    fields = ("seconds", "resident_GB", "support", "violation", "gap", "certificate_s", "kernel_rows", "updates", "residual")
    results = common.Results("covtype", ("part", "rows", "C", "who"), fields)
    for part in options.parts:
        for n, C in PARTS[part] if options.rows is None else [(options.rows, C) for _, C in PARTS[part][:2]]:
            tol = 1e-3
            for who in ("peer", "ours"):
                run = {"part": part, "rows": n, "C": C, "who": who}
                if not results.of(run):
                    command = [sys.executable, "-m", "benchmarks.speed.covtype", "one", who, str(n), str(C), str(tol)]
                    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                    results.add(run, [json.loads(out.splitlines()[-1])])
                if who == "peer" and part == "exact":
                    tol = max(float(results.of(run)[0]["violation"]), 1e-3)


if __name__ == "__main__":
    main()
