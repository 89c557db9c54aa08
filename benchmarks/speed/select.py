"""`python -m benchmarks.speed.select [grids] [features] [race]`: cross-validation by `select` beside GridSearchCV.

grids: 8 C x 8 gamma x 5 folds of exact kernel machines, without a refit, beside `GridSearchCV(SVC, n_jobs=2)` and the same on
    scikit-learn-intelex, where it is installed. Medians of three where a search takes less than a minute, in turns.
features: a linear machine and one on 256 Nystrom features, beside scikit-learn's pipelines in `GridSearchCV(n_jobs=2)`.
race: fits and choice of `search="race"` beside the whole grid.

All searches use the folds that `select` draws. first_s is the first call of the process, with compilation.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys

import numpy as np

from .. import common

GRIDS = {"mnist 1000": ("mnist", 1_000), "a9a 2000": ("a9a", 2_000), "a9a 5000": ("a9a", 5_000), "ijcnn1 2000": ("ijcnn1", 2_000)}
FEATURES = ("linear a9a 10000", "linear covtype 20000", "linear ijcnn1 20000", "nystrom a9a 5000")
CS = np.logspace(-1, 3, 8)
REPEATS, MINUTE = 3, 60.0


def gammas(x: np.ndarray) -> np.ndarray:
    """The usual eight."""
    import jaxsvm

    return jaxsvm.kernels.gamma_grid(x)


def machine(C, gamma):
    """The exact kernel machine."""
    import jaxsvm

    return jaxsvm.decomposition(C, jaxsvm.kernels.rbf(gamma=gamma))


def medians(functions: dict) -> dict[str, float]:
    """Seconds of each: the median of three in turns, one run of those above a minute."""
    first = {name: common.timed(run)[1] for name, run in functions.items()}
    seconds = {name: [took] for name, took in first.items()}
    for _ in range(REPEATS - 1):
        for name, run in functions.items():
            if first[name] < MINUTE:
                seconds[name].append(common.timed(run)[1])
    return {name: statistics.median(took) for name, took in seconds.items()}


def search_of(model, axes: dict, fold: np.ndarray, x, y):
    """A function that runs GridSearchCV on the folds."""
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    search = GridSearchCV(model, axes, cv=PredefinedSplit(fold), refit=False, n_jobs=2)
    return lambda: search.fit(x, y)


def grid(job: str) -> dict:
    """One row of `grids`."""
    import jax
    from sklearn.svm import SVC

    import jaxsvm

    x, y = common.rows_of(*GRIDS[job])
    data, axes = jaxsvm.dataset(x, y), {"C": CS, "gamma": gammas(x)}
    ours = lambda: jaxsvm.select(machine, data, jax.random.key(0), progress=False, **axes)
    found, first = common.timed(ours)
    functions = {"ours": ours, "SVC": search_of(SVC(), axes, found.fold, x, y)}
    if importlib.util.find_spec("sklearnex"):
        from sklearnex.svm import SVC as Intelex

        functions["intelex"] = search_of(Intelex(), axes, found.fold, x, y)
    seconds = medians(functions)
    took = {name: f"{value:.3g}" for name, value in seconds.items()}
    return {
        "job": job,
        "ours_s": took["ours"],
        "first_s": f"{first:.3g}",
        "SVC_s": took["SVC"],
        "SVC_ratio": f"{seconds['SVC'] / seconds['ours']:.1f}",
        "intelex_s": took.get("intelex", ""),
        "intelex_ratio": f"{seconds['intelex'] / seconds['ours']:.1f}" if "intelex" in seconds else "",
        "least_error": f"{found.table.mean.min():.4f}",
        "largest_gap": f"{np.nanmax(found.table.gap):.2g}",
    }


def on_features(job: str) -> dict:
    """One row of `features`."""
    import jax
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    import jaxsvm
    from jaxsvm import features, kernels

    kind, name, n = job.split()
    x, y = common.rows_of(name, int(n))
    data, key = jaxsvm.dataset(x, y), jax.random.key(0)
    if kind == "linear":
        axes = {"C": np.logspace(-3, 2, 16)}
        maker, theirs = lambda C: jaxsvm.newton(1 / (C * 0.8 * len(y)), bias="feature"), LinearSVC()
        their_axes = axes
    else:
        axes = {"C": np.logspace(-2, 1, 8), "gamma": gammas(x)}
        maker = lambda C, gamma: jaxsvm.on_features(
            features.nystrom(jax.random.key(1), kernels.rbf(gamma=gamma), data.x, landmarks=256),
            jaxsvm.newton(1 / (C * 0.8 * len(y)), bias="feature", system="eigen"),
        )
        theirs = make_pipeline(Nystroem(n_components=256, random_state=0), LinearSVC())
        their_axes = {"linearsvc__C": axes["C"], "nystroem__gamma": axes["gamma"]}
    ours = lambda: jaxsvm.select(maker, data, key, progress=False, **axes)
    found, first = common.timed(ours)
    search = search_of(theirs, their_axes, found.fold, x, y)
    seconds = medians({"ours": ours, "theirs": search})
    best = 1 - search().best_score_
    return {
        "job": job,
        "cells": found.table.mean.size,
        "ours_s": f"{seconds['ours']:.3g}",
        "first_s": f"{first:.3g}",
        "sklearn_s": f"{seconds['theirs']:.3g}",
        "ratio": f"{seconds['theirs'] / seconds['ours']:.1f}",
        "least_error": f"{found.table.mean.min():.4f}",
        "sklearn_error": f"{best:.4f}",
    }


def race(job: str) -> dict:
    """The race beside the grid."""
    import jax

    import jaxsvm

    x, y = common.rows_of(*GRIDS[job])
    data, axes = jaxsvm.dataset(x, y), {"C": CS, "gamma": gammas(x)}
    call = lambda search: jaxsvm.select(machine, data, jax.random.key(0), progress=False, search=search, **axes)
    whole, raced = call("grid"), call("race")
    seconds = medians({"grid": lambda: call("grid"), "race": lambda: call("race")})
    made = int(np.isfinite(raced.table.folds).sum())
    return {
        "job": job,
        "fits": f"{made} of {whole.table.folds.size}",
        "seconds": f"{seconds['race']:.3g}",
        "grid_seconds": f"{seconds['grid']:.3g}",
        "same_choice": raced.best == whole.best,
        "error": f"{raced.table.mean[raced.table.place]:.4f}",
        "grid_error": f"{whole.table.mean[whole.table.place]:.4f}",
    }


PARTS = {
    "grids": (grid, tuple(GRIDS)),
    "features": (on_features, FEATURES),
    "race": (race, ("mnist 1000", "a9a 2000", "ijcnn1 2000")),
}


def once(part: str, job: str) -> None:
    """One job in this process, added to its table."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    row = PARTS[part][0](job)
    rows = [old for old in common.saved(f"select_{part}") if old["job"] != job]
    common.write(f"select_{part}", [*rows, row])


def main() -> None:
    """The tables, as benchmarks/results/select_PART.csv; each job has a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all without")
    parser.add_argument("--only", default="", help="text in the name of a job")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        once(options.parts[0], options.job)
        return
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"parts are {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    # workers of GridSearchCV are processes: without warnings of an objective that is not quite at its tolerance
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    for part in options.parts or PARTS:
        for job in PARTS[part][1]:
            if options.only in job:
                subprocess.run([sys.executable, "-m", "benchmarks.speed.select", part, "--job", job], env=quiet, check=True)


if __name__ == "__main__":
    main()
