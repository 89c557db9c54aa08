"""Runs that `test_processes.py` starts: as one of two processes with two devices each, or as one
with four or one.

    worker.py FOLDER PROCESS PROCESSES PORT

Results are written to FOLDER/results-PROCESSES-DEVICES-PROCESS.npz.
"""

import os
import sys

import jax

folder, process, processes, port = sys.argv[1], *map(int, sys.argv[2:])
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsvm  # noqa: E402
from jaxsvm import samplers  # noqa: E402

N, KEY = 501, jax.random.key(3)
rng = np.random.default_rng(0)
x = (0.37 * (rng.random((N, 20)) < 0.3)).astype(np.float32)
y = np.where(x @ rng.normal(size=20) + 0.1 * rng.normal(size=N) > 0, 1, -1).astype(np.float32)
own = slice(*((0, 250), (250, N))[process]) if processes > 1 else slice(0, N)
data = jaxsvm.shard(jaxsvm.dataset(x[own], y[own]), blocks=4)
assert data.y.shape == (504,) and float(data.weight.sum()) == N

STRATA = samplers.strata(samplers.epochs(8), blocks=4)
CASES = {  # solver, lambda of the problem that it solves, options of `fit`
    "pegasos": (jaxsvm.pegasos(1e-3), 1e-3, {"steps": 60, "every": 20, "sampler": STRATA}),
    "cocoa": (jaxsvm.cocoa(1.0, blocks=4), 1 / N, {"steps": 10, "every": 5}),
}
results = {}
for name, (solver, lam, options) in CASES.items():
    run = jaxsvm.fit(solver, data, KEY, **options)
    run = jaxsvm.fit(solver, data, state=run.state, **options)
    results[name] = np.asarray(run.model.w)
    results[f"{name} status"] = np.array(run.status)
    bound = jaxsvm.certificate(run.model, data, lam)
    results[f"{name} bound"] = np.array([bound.primal, bound.gap])

mesh = jax.make_mesh((jax.device_count(),), ("runs",))
train = lambda lam, scale, x: lam * jnp.sum(scale * x, axis=0)
sweep = jaxsvm.sweep(train, lam=jnp.arange(3.0), scale=jnp.arange(2.0), mesh=mesh, progress=False)
results["sweep"] = np.asarray(sweep(x))

np.savez(os.path.join(folder, f"results-{processes}-{jax.device_count()}-{process}.npz"), **results)
