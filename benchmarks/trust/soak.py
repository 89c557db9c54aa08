"""Small jobs of all kinds in one process for 20 minutes: what stays of memory, descriptors, threads and compiled programs.

    python -m benchmarks.trust.soak [--seconds 1200] [--rounds 20] [--seed 0]

A round makes jobs in random order, then measures, calls `jax.clear_caches()` and measures again. Growth between rounds of the
second kind is a leak: its slope is fitted by least squares over the last two thirds of the rounds. Growth within rounds is
told by kind of job. The status is 1 where a slope is above its bound.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import pathlib
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from benchmarks import common
from jaxsvm import estimators, features, kernels, losses, models, objectives

MEASURES = ("memory_mb", "descriptors", "threads", "programs", "maps")
# growth in a round that is taken for chance
BOUNDS = {"memory_mb": 2.0, "descriptors": 0.1, "threads": 0.1, "programs": 0.5, "maps": 20.0}
KEY = jax.random.key(0)


def measure() -> dict[str, float]:
    """What the process holds."""
    status = pathlib.Path("/proc/self/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "memory_mb": int(kilobytes) / 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "programs": len(jax.devices()[0].client.live_executables()),
        "maps": pathlib.Path("/proc/self/maps").read_text().count("\n"),
    }


def clear() -> None:
    """Let go of what is not in use."""
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Jobs:
    """Jobs on rows that are drawn for each."""

    def __init__(self, seed: int, folder: pathlib.Path):
        self.random, self.folder = np.random.default_rng(seed), folder

    def rows(self, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels; most of one shape."""
        n = n or int(self.random.choice([60, 60, 60, 61, 100]))
        x = self.random.normal(size=(n, 4)).astype("f4")
        return x, np.where((x**2).sum(1) > 3.3, 1, -1)

    def data(self) -> jaxsvm.Batch:
        """The rows as a data set."""
        return jaxsvm.dataset(*self.rows())

    def number(self) -> float:
        """A number that no other job has."""
        return float(self.random.uniform(0.1, 2))

    def fit_linear(self) -> None:
        """Pegasos with another lambda."""
        jaxsvm.fit(jaxsvm.pegasos(self.number()), self.data(), KEY, steps=100)

    def fit_exact(self) -> None:
        """The exact kernel machine, its certificate and its predictions."""
        data = self.data()
        run = jaxsvm.fit(jaxsvm.decomposition(self.number(), kernels.rbf(self.number())), data, KEY)
        run.model(data.x)

    def fit_budget(self) -> None:
        """A budget solver."""
        jaxsvm.fit(jaxsvm.bsgd(self.number(), kernels.rbf(1.0), budget=8), self.data(), KEY, steps=60)

    def new_probe(self) -> None:
        """A function that no other job has."""
        shift = self.number()
        jaxsvm.fit(jaxsvm.pegasos(0.1), self.data(), KEY, steps=50, probe=lambda model: model.b + shift)

    def new_kernel(self) -> None:
        """A kernel that no other job has."""
        scale = self.number()
        kernel = kernels.custom(lambda x, z: jnp.exp(-scale * jnp.sum((x[:, None] - z[None]) ** 2, -1)))
        jaxsvm.fit(jaxsvm.sdca(1.0, kernel), self.data(), KEY, steps=50)

    def estimator(self) -> None:
        """An estimator, its labels and its scores."""
        x, y = self.rows()
        machine = estimators.SVC(C=self.number(), gamma=self.number()).fit(x, y)
        machine.predict(x)

    def linear_estimator(self) -> None:
        """A linear estimator on classes."""
        x, _ = self.rows()
        estimators.LinearSVC(C=self.number()).fit(x, np.argmax(x[:, :3], 1)).predict(x)

    def stream(self) -> None:
        """A stream over a generator, saved."""
        x, y = self.rows(120)
        parts = ((x[i : i + 30], y[i : i + 30]) for i in range(0, 120, 30))
        jaxsvm.stream(jaxsvm.pegasos(self.number()), parts, KEY, save=self.folder / "stream.npz")

    def cut_stream(self) -> None:
        """A stream whose generator fails."""

        def parts():
            yield self.rows(30)
            raise RuntimeError("no more rows")

        try:
            jaxsvm.stream(jaxsvm.pegasos(self.number()), parts(), KEY)
        except RuntimeError:
            pass

    def saved(self) -> None:
        """A run that is saved, loaded and gone on with."""
        solver, data = jaxsvm.sdca(self.number()), self.data()
        jaxsvm.fit(solver, data, KEY, steps=20, save=self.folder / "run.npz")
        jaxsvm.fit(solver, data, state=models.load(self.folder / "run.npz"), steps=20)

    def select(self) -> None:
        """A grid with its file."""
        path = self.folder / f"grid{int(self.random.integers(10**9))}.npz"
        maker = lambda C: jaxsvm.decomposition(C, kernels.rbf(1.0))
        jaxsvm.select(maker, self.data(), KEY, C=np.array([self.number(), 5.0]), folds=2, progress=False, save=path)
        path.unlink()

    def inside(self) -> None:
        """A compiled run of the user, and its derivative."""
        data = jaxsvm.dataset(*self.rows(60))
        value = lambda lam: objectives.primal(jaxsvm.fit(jaxsvm.newton(lam), data, KEY).model, data, lam, losses.squared_hinge)
        jax.grad(value)(self.number())

    def sweep(self) -> None:
        """Runs side by side."""
        data = jaxsvm.dataset(*self.rows(60))
        jax.vmap(lambda lam: jaxsvm.fit(jaxsvm.pegasos(lam), data, KEY, steps=30).model.w)(jnp.array([0.1, self.number()]))

    def mapped(self) -> None:
        """Features drawn once more."""
        phi = features.fourier(jax.random.key(int(self.random.integers(1000))), kernels.rbf(1.0), dim=4, features=16)
        jaxsvm.fit(jaxsvm.on_features(phi, jaxsvm.pegasos(0.1)), self.data(), KEY, steps=30)

    def refused(self) -> None:
        """Calls that are refused."""
        data = self.data()
        for call in (
            lambda: jaxsvm.fit(jaxsvm.pegasos(-self.number()), data, KEY, steps=3),
            lambda: jaxsvm.fit(jaxsvm.pegasos(0.1), data._replace(y=data.y[:3]), KEY, steps=3),
            lambda: jaxsvm.fit(jaxsvm.pegasos(0.1), data, KEY, steps=3, probe=lambda model: "x"),
            lambda: models.load(self.folder),
        ):
            try:
                call()
            except (ValueError, TypeError, OSError):
                continue
            raise RuntimeError("a call that must be refused was taken")

    def file(self) -> None:
        """A text of rows, read."""
        path = self.folder / "rows.csv"
        x, y = self.rows()
        np.savetxt(path, np.c_[x, y], delimiter=",", header="a,b,c,d,y", comments="")
        jaxsvm.data.load(path, "y")


def names() -> list[str]:
    """The kinds of jobs."""
    known = vars(Jobs)
    return [name for name in known if not name.startswith("_") and name not in ("rows", "data", "number")]


def main(argv: list[str] | None = None) -> int:
    """The rounds; 1 where something grows that is not given back."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    table, growth = [], {name: dict.fromkeys(("jobs", *MEASURES), 0.0) for name in names()}
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(chosen.seed, pathlib.Path(folder))
        for name in names():  # what is made once
            getattr(jobs, name)()
        for number in range(chosen.rounds):
            end = time.monotonic() + chosen.seconds / chosen.rounds
            clear()
            count = 0
            while time.monotonic() < end:
                name = str(jobs.random.choice(names()))
                before = measure()
                getattr(jobs, name)()
                after = measure()
                count += 1
                growth[name]["jobs"] += 1
                for what in MEASURES:
                    growth[name][what] += after[what] - before[what]
            held = measure()
            clear()
            left = measure()
            row: dict[str, Any] = {"round": number, "jobs": count}
            row |= {f"{what}_held": round(held[what], 1) for what in MEASURES}
            table.append(row | {f"{what}_left": round(left[what], 1) for what in MEASURES})
            print("  ".join(f"{k}={v}" for k, v in table[-1].items()), flush=True)
    print("growth of a job, before the caches are cleared")
    for name, sums in growth.items():
        each = "  ".join(f"{what}={sums[what] / max(sums['jobs'], 1):.3g}" for what in MEASURES)
        print(f"{name:<18} jobs={sums['jobs']:.0f}  {each}")
    late = table[len(table) // 3 :]
    slopes = {what: float(np.polyfit(range(len(late)), [row[f"{what}_left"] for row in late], 1)[0]) for what in MEASURES}
    bad = [what for what, slope in slopes.items() if slope > BOUNDS[what]]
    for what, slope in slopes.items():
        print(f"{what}: {slope:+.3f} a round after clearing, bound {BOUNDS[what]:g}{'  GROWS' if what in bad else ''}")
    slope_row = {"round": "slope"} | {f"{what}_left": round(slope, 3) for what, slope in slopes.items()}
    columns = list(table[0])
    common.write("soak", [*table, {name: slope_row.get(name, "") for name in columns}])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
