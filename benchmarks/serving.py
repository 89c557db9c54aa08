"""`python -m benchmarks.serving`: predictions of batches of any size by a fitted model.

Milliseconds of a call of `classifier.predict` (median of 51) and of the first one, with compilation, in the order of the
table; programs that 10,000 calls of 1 to 2,000 rows compile (1,000 calls of the kernel machine); and the memory of the process
after the first and the last tenth of them.
"""

from __future__ import annotations

import statistics
import time

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels
from jaxsvm.models import predictions

from . import common

SIZES = (1, 16, 257, 513, 777, 1000, 5000)
ROWS, COLUMNS = 5_000, 30
CALLS = {"linear_svm": 10_000, "kernel_svm": 10_000}


def memory() -> float:
    """MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def main() -> None:
    """Measure both machines."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = np.where(x[:, :5].sum(1) + random.normal(size=ROWS) > 0, "yes", "no")
    data, found = jaxsvm.dataset(x, y), []
    machines = {
        "linear_svm": jaxsvm.linear_svm(1.0),
        "kernel_svm": jaxsvm.kernel_svm(1.0, kernels.rbf(gamma=0.03)),
    }
    for name, machine in machines.items():
        classifier = jaxsvm.fit(machine, data, jax.random.key(0)).classifier
        points = getattr(classifier.inner, "x", np.zeros((0, 0))).shape[0]
        before = predictions._call._cache_size()
        for n in SIZES:
            seconds = []
            for _ in range(52):
                began = time.perf_counter()
                classifier.predict(x[:n])
                seconds.append(time.perf_counter() - began)
            row = {"machine": name, "support_vectors": points, "rows": n, "first_ms": f"{1e3 * seconds[0]:.1f}"}
            found.append(row | {"warm_ms": f"{1e3 * statistics.median(seconds[1:]):.3f}"})
        sizes, used = random.integers(1, 2_000, CALLS[name]), []
        for k, n in enumerate(sizes):
            classifier.predict(x[:n])
            if k + 1 in (len(sizes) // 10, len(sizes)):
                used.append(memory())
        programs = predictions._call._cache_size() - before
        more = {"programs": programs, "calls": len(sizes), "MiB_after_tenth": f"{used[0]:.1f}", "MiB_after_all": f"{used[1]:.1f}"}
        found[-len(SIZES) :] = [row | more | {"device": common.device()} for row in found[-len(SIZES) :]]
    common.write("serving", found)


if __name__ == "__main__":
    main()
