"""The loads that an accelerator is for, timed on the device that JAX has; a CPU runs a small version of each.

    python -m benchmarks.device            benchmarks/results/device_NAME.csv, NAME from the device
    python -m benchmarks.device --small    few rows made here, nothing is written

exact      decomposition on MNIST, 8 against the rest, all 60,000 rows: seconds to the tolerance, with compilation and without
sweep      8 lambdas x 8 sigmas of Pegasos on 1,024 Fourier features of adult, one program
minibatch  Pegasos on minibatches of 4,096 rows of covtype: rows a second
budget     BSGD with 500 points on adult: steps a second
nystrom    2,048 Nystrom features of all rows of covtype: rows a second
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import features, kernels, samplers

from . import common

KEY = jax.random.key(0)
COLUMNS = {"mnist": 784, "adult": 123, "covtype": 54}
ROWS = {"mnist": 60_000, "adult": 32_561, "covtype": 581_012}


def rows(name: str, small: bool) -> jaxsvm.Batch:
    """The rows of a data set; of the small version normal rows of as many columns."""
    if not small:
        return jaxsvm.dataset(*common.rows_of("a9a" if name == "adult" else name, ROWS[name]))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(512, COLUMNS[name])).astype(np.float32) / COLUMNS[name] ** 0.5
    return jaxsvm.dataset(x, np.where(x[:, 0] + 0.02 * rng.normal(size=512) > 0, 1, -1))


def twice(run: Callable) -> tuple[object, float, float]:
    """What `run` returns, its seconds with compilation, and those of a second call."""
    found, first = common.timed(run)
    return found, first, common.timed(run)[1]


def exact(small: bool) -> dict:
    """The exact kernel machine."""
    data = rows("mnist", small)
    solver = jaxsvm.decomposition(10.0, kernels.rbf(gamma=0.02), working_set=64 if small else 1024)
    run, first, again = twice(lambda: jaxsvm.fit(solver, data, KEY))
    return {"first_s": first, "again_s": again, "figure": float(run.info.residual[-1]), "unit": "residual"}


def sweep(small: bool) -> dict:
    """64 machines on features, one program."""
    data, size, steps = rows("adult", small), *((32, 50) if small else (1024, 5000))

    def error(lam, sigma, train, key):
        phi = features.fourier(key, kernels.rbf(sigma), dim=COLUMNS["adult"], features=size)
        solver = jaxsvm.on_features(phi, jaxsvm.pegasos(lam))
        run = jaxsvm.fit(solver, train, key, steps=steps, sampler=samplers.epochs(64))
        return jaxsvm.error_on(train)(run.model)

    axes = {"lam": jnp.logspace(-7, -2, 8), "sigma": jnp.logspace(-1, 2, 8)}
    grid = jaxsvm.sweep(error, progress=False, **axes)
    errors, first, again = twice(lambda: grid(data, KEY))
    return {"first_s": first, "again_s": again, "figure": float(errors.min()), "unit": "least training error"}


def minibatch(small: bool) -> dict:
    """Linear Pegasos on minibatches."""
    data, b, steps = rows("covtype", small), *((64, 50) if small else (4096, 2000))
    options = {"steps": steps, "every": steps, "sampler": samplers.epochs(b)}
    _, first, again = twice(lambda: jaxsvm.fit(jaxsvm.pegasos(1e-5), data, KEY, **options).state)
    return {"first_s": first, "again_s": again, "figure": steps * b / again, "unit": "rows a second"}


def budget(small: bool) -> dict:
    """A kernel machine with a budget."""
    data, points, steps = rows("adult", small), *((16, 50) if small else (500, 20_000))
    solver = jaxsvm.bsgd(1e-4, kernels.rbf(gamma=0.05), budget=points)
    _, first, again = twice(lambda: jaxsvm.fit(solver, data, KEY, steps=steps, every=steps).state)
    return {"first_s": first, "again_s": again, "figure": steps / again, "unit": "steps a second"}


def nystrom(small: bool) -> dict:
    """Features of a kernel for all rows, block by block: only their sums are kept."""
    data, size, block = rows("covtype", small), *((32, 128) if small else (2048, 16_384))
    phi = features.nystrom(KEY, kernels.rbf(0.5), data.x, landmarks=size)

    @jax.jit
    def sums(phi, x):
        parts = x[: len(x) // block * block].reshape(-1, block, x.shape[1])
        return jax.lax.map(lambda part: phi(part).sum(axis=0), parts).sum(axis=0)

    _, first, again = twice(lambda: sums(phi, data.x))
    return {"first_s": first, "again_s": again, "figure": len(data.y) / again, "unit": "rows a second"}


LOADS = {"exact": exact, "sweep": sweep, "minibatch": minibatch, "budget": budget, "nystrom": nystrom}


def main(arguments: list[str] | None = None) -> list[dict]:
    """Run the loads and return the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows, nothing is written")
    small = parser.parse_args(arguments).small
    asked, small = small, small or jax.default_backend() == "cpu"
    table = []
    for name, load in LOADS.items():
        found = load(small)
        numbers = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in found.items()}
        table.append({"load": name, "size": "small" if small else "full", **numbers, "device": common.device()})
    if asked:
        return table
    common.write(f"device_{re.sub(r'[^a-z0-9]+', '_', jax.devices()[0].device_kind.lower())}", table)
    return table


if __name__ == "__main__":
    main()
