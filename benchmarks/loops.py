"""Microseconds of a step on one row, with and without the flag of XLA for small loops, on the JAX of each interpreter named.

    python -m benchmarks.loops                          # on this interpreter
    python -m benchmarks.loops /path/to/other/python    # on others, in turns

Each measurement is a process of its own: of each solver one run to compile, then the least of three that go on from it.
Writes benchmarks/results/loops.csv, medians over the processes.
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

random, key, rbf = np.random.default_rng(0), jax.random.key(0), kernels.rbf(gamma=0.1)

def rows(n, columns):
    x = random.normal(size=(n, columns)).astype(np.float32)
    return jaxsvm.dataset(x, np.sign(x[:, 0] + 0.5 * random.normal(size=n)))

def microseconds(solver, data, steps):
    run, least = jaxsvm.fit(solver, data, key, steps=steps, every=steps), np.inf
    for _ in range(3):
        began = time.perf_counter()
        run = jaxsvm.fit(solver, data, steps=steps, every=steps, state=run.state)
        jax.block_until_ready(run.state)
        least = min(least, 1e6 * (time.perf_counter() - began) / steps)
    return least

many = rows(50_000, 22)
print(json.dumps({
    "jax": jax.__version__,
    "averaged pegasos, 22 columns": microseconds(jaxsvm.averaged(jaxsvm.pegasos(1e-4)), many, 200_000),
    "bsgd, 22 columns, 100 points": microseconds(jaxsvm.bsgd(1e-4, rbf, budget=100), many, 10_000),
    "averaged pegasos, 784 columns": microseconds(jaxsvm.averaged(jaxsvm.pegasos(1e-4)), rows(2000, 784), 20_000),
    "sdca with rbf, 1,000 rows": microseconds(jaxsvm.sdca(1.0, rbf), rows(1000, 22), 5000),
}))
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
    write(found)


def write(found: dict) -> None:
    """Medians and extremes: (step, JAX, flag) -> microseconds of each process."""
    rows = [
        dict(zip(("step", "jax", "flag"), case, strict=True))
        | {"microseconds": f"{statistics.median(values):.2f}", "least": f"{min(values):.2f}", "most": f"{max(values):.2f}"}
        for case, values in sorted(found.items())
    ]
    common.write("loops", rows)


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])
