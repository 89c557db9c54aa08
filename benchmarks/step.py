"""`python -m benchmarks.step`: a hand-written loop over `jaxsvm.step`, beside one over `jax.jit(solver.update)`.

Microseconds of a call at three shapes of rows, in turns; the medians of 15 loops of 300 steps. The batches are the same and
made before. Writes benchmarks/results/step.csv.
"""

from __future__ import annotations

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels

from . import common

SHAPES = ((569, 30), (5_000, 100), (2_000, 784))
STEPS, LOOPS = 300, 15


def main() -> None:
    random, rows = np.random.default_rng(0), []
    for n, d in SHAPES:
        x = random.normal(size=(n, d)).astype(np.float32)
        data = jaxsvm.dataset(x, np.where(x[:, 0] > 0, 1, -1))
        rbf = kernels.rbf(gamma=1 / d)
        solvers = {
            "pegasos": jaxsvm.pegasos(0.1),
            "averaged(pegasos)": jaxsvm.averaged(jaxsvm.pegasos(0.1)),
            "bsgd": jaxsvm.bsgd(0.1, rbf, budget=50),
            "sdca": jaxsvm.sdca(1.0),
        }
        for name, solver in solvers.items():
            state = solver.init(jax.random.key(0), data)
            index = jnp.arange(STEPS, dtype=jnp.int32)[:, None]
            of_step = lambda i, solver=solver, data=data: (
                data._replace(index=i) if solver.needs_all_rows else jaxsvm.take(data, i)
            )
            batches = [of_step(i) for i in index]
            ways = {
                "step": lambda state, batch, solver=solver: jaxsvm.step(solver, state, batch),
                "jit": jax.jit(solver.update),
            }

            def loop(way, state=state, batches=batches):
                for batch in batches:
                    state, _ = way(state, batch)
                return jax.block_until_ready(state)

            times: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(LOOPS + 1):
                for way, fn in ways.items():
                    began = time.perf_counter()
                    loop(fn)
                    if turn:  # the first one compiles
                        times[way].append((time.perf_counter() - began) / STEPS * 1e6)
            ours, theirs = (statistics.median(times[way]) for way in ("step", "jit"))
            rows.append({
                "solver": name, "rows": n, "columns": d, "step_us": round(ours, 1), "jit_us": round(theirs, 1),
                "ratio": round(ours / theirs, 3), "device": common.device(),
            })  # fmt: skip
    common.write("step", rows)


if __name__ == "__main__":
    main()
