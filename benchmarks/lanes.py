"""`python -m benchmarks.lanes`: many small kernel machines by `vmap`, beside one after the other.

Episodes of few-shot learning, bootstrap samples: problems of 16 to 512 rows of 8 columns, hinge, rbf and linear kernel, free
bias, to a violation of 1e-3. "sequence" is `lax.map` of the same run in one program. Medians of 5 calls in turns, compiled
before; `cold` is the first call. The last columns are the derivative of each model in the width of the kernel, both ways.
Writes benchmarks/results/lanes.csv.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsvm
from jaxsvm import kernels

from . import common

SIZES = ((16, 32), (16, 256), (16, 2048), (64, 32), (64, 256), (64, 2048), (256, 32), (256, 256), (512, 32), (512, 256))
COLUMNS, CALLS = 8, 5


def problems(number: int, n: int) -> tuple[jax.Array, jax.Array]:
    """Noisy halves of Gaussian rows."""
    random = np.random.default_rng(0)
    x, w = random.normal(size=(number, n, COLUMNS)), random.normal(size=(number, COLUMNS))
    y = np.where(np.einsum("bnd,bd->bn", x, w) + 0.7 * random.normal(size=(number, n)) > 0, 1, -1)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def timed(fns: dict[str, Callable], *args: jax.Array) -> dict[str, tuple[float, float]]:
    """Seconds of the first call of each, and the median of the next ones in turns."""
    first, later = {}, {name: [] for name in fns}
    for turn in range(CALLS + 1):
        for name, fn in fns.items():
            began = time.perf_counter()
            jax.block_until_ready(fn(*args))
            spent = time.perf_counter() - began
            if turn:
                later[name].append(spent)
            else:
                first[name] = spent
    return {name: (first[name], statistics.median(later[name])) for name in fns}


def fitted(kernel: str, gamma: jax.Array | float, x: jax.Array, y: jax.Array) -> jaxsvm.models.Expansion:
    """The machine of one problem; `gamma` is a factor of the linear kernel."""
    of_rows = kernels.rbf(gamma=gamma) if kernel == "rbf" else gamma * kernels.linear()
    machine = jaxsvm.decomposition(1.0, of_rows, tol=1e-3)
    return jaxsvm.fit(machine, jaxsvm.dataset(x, y), jax.random.key(0), steps=1).model


def coefficients(kernel: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return fitted(kernel, 1 / COLUMNS, x, y).coef


def slope(kernel: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return jax.grad(lambda gamma: jnp.sum(fitted(kernel, gamma, x, y)(x[:4]) ** 2))(1 / COLUMNS)


def both_ways(fn: Callable) -> dict[str, Callable]:
    """The function over all problems, by `vmap` and in sequence."""
    return {"vmap": jax.jit(jax.vmap(fn)), "sequence": jax.jit(lambda x, y: lax.map(lambda pair: fn(*pair), (x, y)))}


def main() -> None:
    rows = []
    for kernel, (n, number) in itertools.product(("rbf", "linear"), SIZES):
        x, y = problems(number, n)
        spent = timed(both_ways(functools.partial(coefficients, kernel)), x, y)
        row = {"kernel": kernel, "rows": n, "problems": number}
        for name, (cold, warm) in spent.items():
            row |= {f"{name}_ms": round(1e3 * warm, 2), f"{name}_cold_s": round(cold, 2)}
        row |= {"ratio": round(spent["vmap"][1] / spent["sequence"][1], 3), "grad_vmap_ms": "", "grad_sequence_ms": ""}
        if number < 2048 and n < 512:
            spent = timed(both_ways(functools.partial(slope, kernel)), x, y)
            row |= {f"grad_{name}_ms": round(1e3 * warm, 2) for name, (_, warm) in spent.items()}
        rows.append(row | {"device": common.device()})
        jax.clear_caches()
    common.write("lanes", rows)


if __name__ == "__main__":
    main()
