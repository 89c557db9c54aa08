"""Microseconds of a step on one row, with and without `jaxsvm.fast_loops`' flag, on the JAX of each interpreter named.

    python -m benchmarks.loops                          # on this interpreter
    python -m benchmarks.loops /path/to/other/python    # and on others, in turns

Each measurement is a process of its own, which runs 5,000 to 200,000 steps twice and times the second run.
Writes benchmarks/results/loops.csv.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from . import common

FLAG = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000"
REPEATS = 5
STEPS = """
import json, time
import jax, numpy as np
import jaxsvm
from jaxsvm import kernels

def seconds(solver, columns, rows, steps):
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, columns)).astype(np.float32)
    data = jaxsvm.dataset(x, np.where(x[:, 0] + 0.3 * random.normal(size=rows) > 0, 1, -1))
    run = lambda: jax.block_until_ready(jaxsvm.fit(solver, data, jax.random.key(0), steps=steps, every=steps).model)
    run()
    began = time.perf_counter()
    run()
    return 1e6 * (time.perf_counter() - began) / steps

print(json.dumps({"jax": jax.__version__,
    "averaged pegasos, 22 columns": seconds(jaxsvm.averaged(jaxsvm.pegasos(1e-3)), 22, 50_000, 200_000),
    "averaged pegasos, 784 columns": seconds(jaxsvm.averaged(jaxsvm.pegasos(1e-3)), 784, 2000, 20_000),
    "bsgd, 22 columns, 100 points": seconds(jaxsvm.bsgd(1e-3, kernels.rbf(3.0), budget=100), 22, 50_000, 20_000),
    "sdca with rbf, 1,000 rows": seconds(jaxsvm.sdca(1.0, kernels.rbf(3.0)), 22, 1000, 5_000)}))
"""


def main(interpreters: list[str]) -> None:
    """Measure in turns, so that the load of the machine hits all alike."""
    found: dict = {}
    for _ in range(REPEATS):
        for python in interpreters:
            for flag in ("", FLAG):
                done = subprocess.run(
                    [python, "-c", STEPS], env=os.environ | {"XLA_FLAGS": flag}, capture_output=True, text=True, check=True
                )
                told = json.loads(done.stdout.splitlines()[-1])
                version = told.pop("jax")
                for name, value in told.items():
                    found.setdefault((name, version, bool(flag)), []).append(value)
    rows = [
        dict(zip(("step", "jax", "flag"), case, strict=True))
        | {"microseconds": f"{statistics.median(values):.2f}", "least": f"{min(values):.2f}", "most": f"{max(values):.2f}"}
        for case, values in sorted(found.items())
    ]
    common.write("loops", rows)


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
