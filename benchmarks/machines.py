"""`python -m benchmarks.machines`: `linear_svm` and `kernel_svm` beside the method that they choose.

Ten jobs of `benchmarks.peers`, to the same tolerance, in one process for each, in turns. The share is the time of the first
over that of the method alone, median of nine, without compilation; cold_s is the first fit of the process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from . import common, peers

LINEAR = [(name, loss) for loss in ("hinge", "squared_hinge") for name in ("breast_cancer", "svmguide1", "a9a", "reuters")]
KERNEL = [("mnist", 5_000, 10.0), ("a9a", 10_000, 1.0)]
JOBS = [*LINEAR, *KERNEL]
REPEATS = 9


def run(job: tuple) -> dict:
    """The row of a job."""
    import jax

    import jaxsvm
    from jaxsvm import kernels, losses

    if len(job) == 2:
        x, y = peers.linear_rows(job[0])
        loss, tol = losses.by_name(job[1]), 1e-4
        machine = jaxsvm.linear_svm(1.0, loss=loss, tol=tol)
    else:
        x, y = common.rows_of(job[0], job[1])
        tol = 1e-3
        machine = jaxsvm.kernel_svm(job[2], kernels.rbf(gamma=peers.GAMMA[job[0]]), tol=tol)
    data, key = jaxsvm.dataset(x, y), jax.random.key(0)
    fit = lambda solver: jaxsvm.fit(solver, data, key).model
    result, cold = common.timed(lambda: jaxsvm.fit(machine, data, key))
    method = result.status.split()[0]
    if len(job) == 2:
        factory = jaxsvm.machines.newton_by_C if method == "newton" else getattr(jaxsvm, method)
        rounds = float(jaxsvm.machines.ROUNDS)
        alone = factory(1.0, loss=loss, bias="feature", tol=tol, rounds=rounds)
    else:
        alone = jaxsvm.decomposition(job[2], kernels.rbf(gamma=peers.GAMMA[job[0]]), tol=tol)
    seconds = common.side_by_side({"machine": lambda: fit(machine), "method": lambda: fit(alone)}, REPEATS)
    of = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "job": " ".join(map(str, job)),
        "method": method,
        "cold_s": f"{cold:.2f}",
        "machine_ms": f"{1e3 * of['machine']:.2f}",
        "method_ms": f"{1e3 * of['method']:.2f}",
        "share": f"{of['machine'] / of['method']:.3f}",
        "device": common.device(),
    }


def main() -> None:
    """Run each job in a process of its own."""
    if len(sys.argv) > 1:
        print(json.dumps(run(JOBS[int(sys.argv[1])])))
        return
    rows = []
    for k in range(len(JOBS)):
        call = [sys.executable, "-m", "benchmarks.machines", str(k)]
        rows.append(json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    common.write("machines", rows)


if __name__ == "__main__":
    main()
