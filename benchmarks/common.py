"""What the benchmarks share: real data from the folder that JAXSVM_DATA names, and timing."""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import platform
import sys
import time

import jax
import numpy as np

RESULTS = pathlib.Path(__file__).parent / "results"


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The training rows of a data set, float32, labels -1 and +1; see `load_all`."""
    return load_all(name)[:2]


def folder() -> pathlib.Path:
    """Where the data sets are."""
    found = os.environ.get("JAXSVM_DATA")
    if not found:
        sys.exit("set JAXSVM_DATA to the folder that holds a9a.npz and the other data sets")
    return pathlib.Path(found)


def load_all(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Training rows and test rows (None where the source has none), float32, labels -1 and +1.

    MNIST: pixels in [0, 1], digits 0-4 against 5-9; covtype: columns in [0, 1], class 1 against the rest.
    """
    with np.load(folder() / f"{name}.npz") as arrays:
        parts = [(arrays[f"X_{p}"].astype(np.float32), arrays[f"y_{p}"]) for p in ("train", "test") if f"X_{p}" in arrays]
    if name == "mnist":
        parts = [(x / 255, np.where(y >= 5, 1, -1)) for x, y in parts]
    if name == "covtype":
        least, most = parts[0][0].min(0), parts[0][0].max(0)
        parts = [((x - least) / np.where(most > least, most - least, 1), np.where(y == 1, 1, -1)) for x, y in parts]
    return (*parts[0], *(parts[1] if len(parts) > 1 else (None, None)))


def load_sparse(name: str) -> tuple:
    """Training rows and test rows as SciPy's CSR, float32, with labels -1 and +1."""
    from scipy.sparse import csr_matrix

    with np.load(folder() / f"{name}.npz") as arrays:
        rows = lambda p: tuple(arrays[f"X_{p}_{k}"] for k in ("data", "indices", "indptr"))
        x, x_test = (csr_matrix(rows(p), arrays[f"X_{p}_shape"]) for p in ("train", "test"))
        return x, arrays["y_train"], x_test, arrays["y_test"]


def side_by_side(functions: dict, repeats: int = 15) -> dict:
    """Seconds of each function, in turns so that the machine's moods hit all alike: name -> list of seconds."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - began)
    return seconds


def device() -> str:
    """The device, the number of processors and the versions, for a results file."""
    kind = jax.devices()[0].device_kind
    return f"{kind} {platform.machine()}, {os.cpu_count()} processors, JAX {jax.__version__}, NumPy {np.__version__}"


def write(name: str, rows: list[dict]) -> None:
    """Rows as benchmarks/results/NAME.csv, and on the screen."""
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    for row in rows:
        print("  ".join(f"{k}={v}" for k, v in row.items()), flush=True)


def resident() -> float:
    """Largest resident memory of this process so far, in GB."""
    status = pathlib.Path("/proc/self/status").read_text()  # getrusage hands down what the parent process had
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def error(model, data):
    """The share of wrong signs."""
    import jaxsvm  # here, so that a benchmark sets its options first

    return jaxsvm.error_on(data)(model)


def timed(run) -> tuple:
    """What `run` returns, and its seconds."""
    began = time.perf_counter()
    found = jax.block_until_ready(run())
    return found, time.perf_counter() - began


def saved(name: str) -> list[dict]:
    """The rows of a results file, none where there is no file."""
    file = RESULTS / f"{name}.csv"
    if not file.exists():
        return []
    with open(file, newline="") as lines:
        return list(csv.DictReader(lines))


class Results:
    """A results file that grows by a run at a time: runs that are there are not made again."""

    def __init__(self, name: str, key: tuple, fields: tuple):
        self.name, self.key, self.fields = name, key, (*key, *fields)
        self.rows = saved(name)

    def of(self, run: dict) -> list[dict]:
        """The rows of a run."""
        return [row for row in self.rows if all(row[k] == str(run[k]) for k in self.key)]

    def add(self, run: dict, found: list[dict]) -> None:
        """A run's rows, at the end of the file and on the screen."""
        file = RESULTS / f"{self.name}.csv"
        new, rows = not file.exists(), [run | row for row in found]
        rows = [{k: f"{v:.6g}" if isinstance(v, float) and k not in self.key else str(v) for k, v in r.items()} for r in rows]
        with open(file, "a", newline="") as lines:
            table = csv.DictWriter(lines, fieldnames=self.fields, restval="", extrasaction="ignore", lineterminator="\n")
            if new:
                table.writeheader()
            table.writerows(rows)
        self.rows += rows
        print("  ".join(f"{k}={v}" for k, v in rows[-1].items()), flush=True)


def column(rows: list[dict], key: str) -> np.ndarray:
    """One field of all rows, as numbers."""
    return np.array([float(row[key]) for row in rows])


def rows_of(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, float32, and labels -1 and +1."""
    if name == "mnist":
        with np.load(folder() / "mnist.npz") as arrays:
            return arrays["X_train"][:n].astype(np.float32) / 255, np.where(arrays["y_train"][:n] == 8, 1, -1)
    x, y = load(name)
    if name == "covtype":
        drawn = np.random.default_rng(0).permutation(len(y))[:n]
        return x[drawn].astype(np.float32), y[drawn]
    return x[:n], y[:n]


def panels(down: int, across: int):
    """A figure with that many axes, an array of two dimensions."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt.subplots(down, across, figsize=(4 * across, 3.4 * down), squeeze=False, layout="constrained")


def run(known: dict, settings: dict) -> None:
    """The command of a benchmark: parts and data sets by name, all of them where none is named.

    Args:
        known: name -> part, a function of the options, in the order in which they are made.
        settings: the data sets, by name; `options.data` holds those that were named.
    """
    global RESULTS
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=f"parts ({', '.join(known)}) and data sets ({', '.join(settings)}); none: all")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    wrong = set(options.names) - {*known, *settings}
    if wrong:
        parser.error(f"no part and no data set: {', '.join(sorted(wrong))}")
    options.data = [name for name in options.names if name in settings]
    globals()["RESULTS"] = options.out
    RESULTS = options.out
    RESULTS.mkdir(parents=True, exist_ok=True)
    print(device())
    for name in [name for name in options.names if name in known] or known:
        known[name](options)
