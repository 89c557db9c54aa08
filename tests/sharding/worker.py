"""Runs that `test_processes.py` starts: as one of two processes with two devices each, or as one with four or one.

    worker.py FOLDER PROCESS PROCESSES PORT

Results are written to FOLDER/results-PROCESSES-DEVICES-PROCESS.npz, states to folders and files beside them.
"""

import os
import sys

import jax

folder, process, processes, port = sys.argv[1], *map(int, sys.argv[2:])
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)

import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

import jaxsvm  # noqa: E402
from jaxsvm import kernels, models, samplers  # noqa: E402

N, KEY = 501, jax.random.key(3)
rng = np.random.default_rng(0)
x = (0.37 * (rng.random((N, 20)) < 0.3)).astype(np.float32)
y = np.where(x @ rng.normal(size=20) + 0.1 * rng.normal(size=N) > 0, 1, -1).astype(np.float32)
own = slice(*((0, 250), (250, N))[process]) if processes > 1 else slice(0, N)
data = jaxsvm.shard(jaxsvm.dataset(x[own], y[own]), Mesh(np.array(jax.devices()), ("rows",)), blocks=4)
assert data.y.shape == (504,) and float(data.weight.sum()) == N

STRATA = samplers.strata(samplers.epochs(8), blocks=4)
CASES = {  # solver, sampler, steps of each half
    "pegasos": (jaxsvm.pegasos(1e-3), STRATA, 30),
    "cocoa": (jaxsvm.cocoa(1.0, blocks=4), None, 5),
    "sdca": (jaxsvm.sdca(1.0, kernels.rbf(1.0)), None, 20),
}
LAM = {"pegasos": 1e-3, "cocoa": 1 / N, "sdca": 1 / N}  # of the problem that each solves
results = {}


def responses(model):
    """The decision values at all rows on the host, by a program that leaves them on every device."""
    everywhere = jax.NamedSharding(data.y.sharding.mesh, jax.P())
    with jax.set_mesh(data.y.sharding.mesh):
        return np.asarray(jax.jit(lambda model, x: model(x), out_shardings=everywhere)(model, x).addressable_data(0))


for name, (solver, sampler, steps) in CASES.items():
    options = {"steps": steps, "every": steps, "sampler": sampler}
    path = os.path.join(folder, f"{name}-{processes}")
    half = jaxsvm.fit(solver, data, KEY, save=path if processes > 1 else None, **options)
    whole = jaxsvm.fit(solver, data, state=half.state, **options)
    results[f"{name} half"], results[f"{name} whole"] = responses(half.model), responses(whole.model)
    results[f"{name} status"] = np.array(whole.status)
    for passes in (0, 1):
        bound = jaxsvm.certificate(whole.model, data, LAM[name], passes=passes)
        results[f"{name} certificate {passes}"] = np.array([bound.primal, bound.gap, bound.exact], np.float64)
    results[f"{name} kkt"] = np.array(jaxsvm.kkt_residual(whole.model, data, LAM[name])) if name == "sdca" else np.array(0.0)
    if name != "sdca":
        assert jaxsvm.objectives.primal(whole.model, data, LAM[name]) == bound.primal
        w, hinge = np.asarray(whole.model.w, np.float64), lambda score: np.maximum(1 - y.astype(np.float64) * score, 0).mean()
        results[f"{name} primal"] = np.array(LAM[name] / 2 * w @ w + hinge(x.astype(np.float64) @ w))
    if processes > 1:  # saved and loaded here: the same bits
        again = jaxsvm.fit(solver, data, state=models.load(path, mesh=data.y.sharding.mesh), **options)
        results[f"{name} again"] = responses(again.model)
        models.save(os.path.join(folder, f"model-{name}"), whole.model)
    else:  # what two processes saved
        state = models.load(os.path.join(folder, f"{name}-2"), mesh=data.y.sharding.mesh)
        results[f"{name} resumed"] = responses(jaxsvm.fit(solver, data, state=state, **options).model)
        results[f"{name} saved model"] = responses(models.load(os.path.join(folder, f"model-{name}")))

flow = None  # rows that come in chunks, of which each process reads its own: one program for all
for chunk in range(2):
    turn = np.roll(np.arange(N), 100 * chunk)[own]
    part = jaxsvm.shard(jaxsvm.dataset(x[turn], y[turn]), data.y.sharding.mesh, blocks=4)
    going_on = {"state": flow.state} if flow else {"key": KEY}
    flow = jaxsvm.fit(CASES["pegasos"][0], part, steps=30, every=30, sampler=STRATA, **going_on)
results["chunks"] = responses(flow.model)

np.savez(os.path.join(folder, f"results-{processes}-{jax.device_count()}-{process}.npz"), **results)
