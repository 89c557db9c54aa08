"""`python -m benchmarks.four_devices`: models of rows of a9a on four simulated devices beside those on one.

1,024 and 4,096 rows, float32, the same key, blocks and steps. difference: of decision values, relative to the largest.
asked: the bound of it. residual_one, residual_four: violation of the optimality conditions of exact machines, in float64.
The devices are threads of one processor, so that nothing is timed. four_devices.csv.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import Mesh

import jaxsvm
from jaxsvm import kernels, samplers

from . import common

KEY, KERNEL = jax.random.key(0), kernels.rbf(gamma=0.05)
STRATA = samplers.strata(samplers.epochs(8), blocks=4)
SOLVERS = {  # the solver, its sampler, the steps (None: to tol = 1e-5), the bound
    "pegasos": (jaxsvm.pegasos(1e-3), STRATA, 200, 1e-6),
    "asset": (jaxsvm.asset(1e-3), STRATA, 200, 1e-6),
    "subgradient": (jaxsvm.subgradient(1e-3), None, 50, 1e-6),
    "sdca, kernel": (jaxsvm.sdca(1.0, KERNEL), None, 200, 1e-6),
    "sdca, kernel, 1,024 steps": (jaxsvm.sdca(1.0, KERNEL), None, 1024, 1e-6),
    "cocoa": (jaxsvm.cocoa(0.1, blocks=4), None, 12, 1e-6),
    "sbp": (jaxsvm.sbp(0.3, KERNEL), None, 40, 1e-6),
    "scs": (jaxsvm.scs(1e-3, KERNEL, capacity=256), None, 10, 1e-6),
    "smo": (jaxsvm.smo(1.0, KERNEL), None, None, 5e-5),
    "wolfe": (jaxsvm.wolfe(1e-3, KERNEL), None, 20, 5e-5),
    "decomposition": (jaxsvm.decomposition(1.0, KERNEL, working_set=64), None, None, 5e-5),
}


def compare(name: str, n: int) -> dict:
    """One solver on n rows."""
    solver, sampler, steps, asked = SOLVERS[name]
    x, y = common.rows_of("a9a", n)
    data = jaxsvm.dataset(x, y)
    meshes = (Mesh(np.array(jax.devices()[:k]), ("rows",)) for k in (1, 4))
    parts = [jaxsvm.shard(data, mesh, blocks=4) for mesh in meshes]
    limit = {"steps": 100 * n, "tol": 1e-5} if steps is None else {"steps": steps}
    runs = [jaxsvm.fit(solver, rows, KEY, sampler=sampler, **limit) for rows in parts]
    # on one device, as the sum over the points of a model on four is in another order
    on_one = (jax.tree.map(lambda a: jax.device_put(np.asarray(a)), run.model) for run in runs)
    one, four = (np.asarray(model(x), float) for model in on_one)
    difference = np.abs(four - one).max() / np.abs(one).max()
    row = {"rows": n, "solver": name, "difference": f"{difference:.2g}", "asked": asked, "met": bool(difference <= asked)}
    if name in ("smo", "decomposition"):
        residuals = [float(jaxsvm.kkt_residual(run.model, rows, 1 / n)) for run, rows in zip(runs, parts, strict=True)]
        row |= {f"residual_{k}": f"{value:.2g}" for k, value in zip(("one", "four"), residuals, strict=True)}
    return {"residual_one": "", "residual_four": ""} | row


def main() -> None:
    """The table."""
    keys = ("rows", "solver", "difference", "asked", "met", "residual_one", "residual_four")
    table = [compare(name, n) for n in (1024, 4096) for name in SOLVERS]
    common.write("four_devices", [{key: row[key] for key in keys} for row in table])


if __name__ == "__main__":
    main()
