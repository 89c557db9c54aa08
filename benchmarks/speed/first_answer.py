"""How long a new user waits: the first `fit` of a process, and the fits after it, beside scikit-learn.

    python -m benchmarks.speed.first_answer

Each case runs in fresh processes, three times without and three times with programs on disk, in turns with the yardstick.
The yardstick is the smallest program that solves such a problem: pair steps on the whole kernel matrix, without
compensation, losses other than the hinge, or checks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

CASES = {
    "SVC, iris": ("SVC", "iris"),
    "SVC, wine": ("SVC", "wine"),
    "SVC, breast cancer": ("SVC", "breast_cancer"),
    "SVC, digits": ("SVC", "digits"),
    "LinearSVC, breast cancer": ("LinearSVC", "breast_cancer"),
}
# at most so many times the yardstick's seconds
BARS = {"SVC, breast cancer": 3.0, "SVC, iris": 4.0, "SVC, digits": 6.0, "LinearSVC, breast cancer": 4.0}
REPEATS = 3


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A data set of scikit-learn with standardised columns."""
    import sklearn.datasets
    from sklearn.preprocessing import StandardScaler

    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def yardstick() -> float:
    """Seconds to trace, compile and run a plain SMO on breast cancer."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    @jax.jit
    def smo(x, y, C, gamma, tol):
        square = jnp.sum(x * x, 1)
        gram = jnp.exp(-gamma * jnp.maximum(square[:, None] + square[None, :] - 2 * x @ x.T, 0))
        low, high = jnp.where(y > 0, 0.0, -C), jnp.where(y > 0, C, 0.0)

        def body(carry):
            coef, grad, _, steps = carry
            up, down = jnp.where(coef < high, grad, -jnp.inf), jnp.where(coef > low, grad, jnp.inf)
            i = jnp.argmax(up)
            row_i = lax.dynamic_index_in_dim(gram, i, keepdims=False)
            gain, curvature = up[i] - down, jnp.maximum(2 - 2 * row_i, 1e-12)
            j = jnp.argmax(jnp.where(gain > 0, gain * gain / curvature, -jnp.inf))
            step = jnp.minimum(jnp.minimum(gain[j] / curvature[j], high[i] - coef[i]), coef[j] - low[j])
            row_j = lax.dynamic_index_in_dim(gram, j, keepdims=False)
            coef = coef.at[i].add(step).at[j].add(-step)
            return coef, grad - step * (row_i - row_j), up[i] - jnp.min(down), steps + 1

        start = jnp.zeros_like(y), y, jnp.float32(jnp.inf), 0
        return lax.while_loop(lambda carry: (carry[2] > tol) & (carry[3] < 100_000), body, start)

    x, y = rows("breast_cancer")
    x, y = x.astype(np.float32), np.where(y > 0, 1, -1).astype(np.float32)
    began = time.perf_counter()
    jax.block_until_ready(smo(x, y, 1.0, 1 / x.shape[1], 1e-3))
    return time.perf_counter() - began


def once(case: str, cache: str) -> dict:
    """Seconds and compilations of one case in this process; `cache` is a folder, or empty."""
    import jax
    import sklearn.svm

    import jaxsvm.estimators

    if cache:
        jaxsvm.cache_programs(cache)
    if case == "yardstick":
        return {"first fit": yardstick()}
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(seconds) if event.endswith("backend_compile_duration") else None
    )
    kind, name = CASES[case]
    ours, theirs = getattr(jaxsvm.estimators, kind), getattr(sklearn.svm, kind)
    x, y = rows(name)
    limit = "max_iter"

    def run(x, y, **options):
        """Seconds of a fit, and how many programs were compiled for it."""
        before, began = len(compiled), time.perf_counter()
        ours(random_state=0, **options).fit(x, y)
        return time.perf_counter() - began, len(compiled) - before

    seconds, programs = run(x, y)
    result = {"first fit": seconds, "programs": programs}
    changes = {
        "the same": (x, y, {}),
        "another C": (x, y, {"C": 2.0}),
        "another tol": (x, y, {"tol": 5e-4}),
        f"another {limit}": (x, y, {limit: 5000}),
        "n - 1 rows": (x[1:], y[1:], {}),
    }
    later = {what: run(*data, **options) for what, (*data, options) in changes.items()}
    result["compiled later"] = sum(count for _, count in later.values())
    again, peer = [], []
    for _ in range(7):
        again.append(run(x, y)[0])
        began = time.perf_counter()
        theirs(random_state=0).fit(x, y)
        peer.append(time.perf_counter() - began)
    result |= {"again": statistics.median(again), "scikit-learn": statistics.median(peer)}
    return result


def fresh(case: str, cache: str = "") -> dict:
    """`once` in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION")}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.speed.first_answer", case, cache]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """The table, as benchmarks/results/first_answer.csv."""
    from .. import common

    names = ["yardstick", *CASES]
    cold = {name: [] for name in names}
    warm = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(REPEATS):
            for name in names:
                cold[name].append(fresh(name))
        for name in names:
            fresh(name, folder)
        for _ in range(REPEATS):
            for name in names:
                warm[name].append(fresh(name, folder))
    middle = lambda runs, field: statistics.median(run[field] for run in runs)
    table = []
    for name in names:
        seconds, cached = middle(cold[name], "first fit"), middle(warm[name], "first fit")
        row = {
            "case": name,
            "first_fit_s": f"{seconds:.2f}",
            "times_yardstick": f"{seconds / middle(cold['yardstick'], 'first fit'):.2f}",
            "bar": BARS.get(name, ""),
            "from_disk_s": f"{cached:.2f}",
            "from_disk_times_yardstick": f"{cached / middle(warm['yardstick'], 'first fit'):.2f}",
            "programs": "",
            "compiled_later": "",
            "again_s": "",
            "scikit_learn_s": "",
            "again_bar_s": "",
        }
        if name != "yardstick":
            again, peer = middle(cold[name], "again"), middle(cold[name], "scikit-learn")
            row |= {
                "programs": cold[name][0]["programs"],
                "compiled_later": max(run["compiled later"] for run in cold[name]),
                "again_s": f"{again:.4f}",
                "scikit_learn_s": f"{peer:.4f}",
                "again_bar_s": f"{3 * peer + 0.005:.4f}",
            }
        table.append(row)
    common.write("first_answer", table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(once(sys.argv[1], sys.argv[2])))
    else:
        main()
