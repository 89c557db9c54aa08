"""`python -m benchmarks.speed.sweep`: a grid of lambda and sigma in one call, against scikit-learn's pipelines one by one.

16,384 rows of adult to train on, 8,192 others to validate; 8 lambdas x 8 sigmas, 256 features. Ours: ASSET on Nystrom
features (and averaged Pegasos on Fourier features, in pairs where RBFSampler's have phases), 3 passes in minibatches, all
64 runs by one `jaxsvm.sweep` under a bound on memory. Theirs: RBFSampler or Nystroem + SGDClassifier, as they come and with 3
averaged passes, 64 fits in a loop, and GridSearchCV on two processes. Everything in one process, one after the other, the
slowest two once, the others repeated; compilation apart. Memory: what the compiler counts for the program (arguments and
the temporaries of two threads).
"""

from __future__ import annotations

import os
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import Pipeline

import jaxsvm
from jaxsvm import features, kernels, samplers

from ..common import RESULTS, load, write

N, HELD, FEATURES, PASSES, BATCH = 16_384, 8_192, 256, 3, 32
LAMS, GAMMAS = np.logspace(-5, -2, 8), np.logspace(-3, 0, 8)
MEMORY = 2**28
REPEATS = 3
STEPS = PASSES * N // BATCH


def asset_nystrom(lam, sigma, train, held, key):
    """ASSET on Nystrom features; the average is over the later half."""
    for_map, for_run = jax.random.split(key)
    phi = features.nystrom(for_map, kernels.rbf(sigma), train.x, landmarks=FEATURES)
    return trained(phi, jaxsvm.asset(lam, average_from=STEPS // 2), train, held, for_run)


def pegasos_fourier(lam, sigma, train, held, key):
    """Averaged Pegasos on Fourier features."""
    for_map, for_run = jax.random.split(key)
    phi = features.fourier(for_map, kernels.rbf(sigma), dim=train.x.shape[-1], features=FEATURES)
    solver = jaxsvm.averaged(jaxsvm.pegasos(lam, bias="feature"), weights=lambda t: t + 1)
    return trained(phi, solver, train, held, for_run)


def trained(phi, solver, train, held, key):
    made = jaxsvm.on_features(phi, solver)
    model = jaxsvm.fit(made, train, key, steps=STEPS, sampler=samplers.epochs(BATCH)).model
    return jaxsvm.error_on(held)(model)


def pipeline(features_of, **options) -> Pipeline:
    """A map and a linear classifier, as scikit-learn's documentation puts them together."""
    return Pipeline([("map", features_of), ("svm", SGDClassifier(random_state=0, **options))])


def one_by_one(made, x, y, held_x, held_y) -> float:
    """The best validation error of 64 fits."""
    best = 1.0
    for gamma in GAMMAS:
        for lam in LAMS:
            made.set_params(map__gamma=float(gamma), svm__alpha=float(lam)).fit(x, y)
            best = min(best, 1 - made.score(held_x, held_y))
    return best


def grid_search(made, x, y, held_x, held_y) -> float:
    """The same by GridSearchCV with the given split, on all processors."""
    split = PredefinedSplit(np.r_[np.full(len(x), -1), np.zeros(len(held_x))])
    grid = {"map__gamma": GAMMAS.tolist(), "svm__alpha": LAMS.tolist()}
    search = GridSearchCV(made, grid, cv=split, n_jobs=os.cpu_count(), refit=False)
    return 1 - search.fit(np.r_[x, held_x], np.r_[y, held_y]).best_score_


def main() -> None:
    """All ways, in turns; the table and a heat map."""
    warnings.simplefilter("ignore")
    x, y = load("a9a")
    held_x, held_y = x[N : N + HELD], y[N : N + HELD]
    x, y = x[:N], y[:N]
    train, held, key = jaxsvm.dataset(x, y), jaxsvm.dataset(held_x, held_y), jax.random.key(0)
    axes = {"lam": jnp.asarray(LAMS, jnp.float32), "sigma": jnp.asarray(1 / np.sqrt(2 * GAMMAS), jnp.float32)}

    ways, rows, errors = {}, [], {}
    for fn in (asset_nystrom, pegasos_fourier):
        traces = []

        def counted(lam, sigma, train, held, key, fn=fn, traces=traces):
            traces.append(1)
            return fn(lam, sigma, train, held, key)

        sweep = jaxsvm.sweep(counted, memory=MEMORY, progress=False, **axes)
        began = time.perf_counter()
        errors[fn.__name__] = jax.block_until_ready(sweep(train, held, key))
        first = time.perf_counter() - began
        counted_bytes = sweep.memory(train, held, key)
        row = {"way": f"jaxsvm.sweep({fn.__name__})", "error": float(errors[fn.__name__].min()), "first_call_s": first}
        row |= {"programs": len(traces), "memory_bound_MiB": MEMORY / 2**20, "memory_counted_MiB": counted_bytes / 2**20}
        rows.append(row)
        ways[rows[-1]["way"]] = lambda sweep=sweep: float(jnp.min(sweep(train, held, key)))

    few = {"max_iter": PASSES, "tol": None, "average": True}
    rbf, nystroem = RBFSampler(n_components=FEATURES, random_state=0), Nystroem(n_components=FEATURES, random_state=0)
    made = {
        "RBFSampler + SGDClassifier()": (one_by_one, pipeline(rbf)),
        "RBFSampler + SGDClassifier, 3 averaged passes": (one_by_one, pipeline(rbf, **few)),
        "Nystroem + SGDClassifier()": (one_by_one, pipeline(nystroem)),
        "GridSearchCV(RBFSampler + SGDClassifier())": (grid_search, pipeline(rbf)),
    }
    for name, (way, pipe) in made.items():
        ways[name] = lambda way=way, pipe=pipe: way(pipe, x, y, held_x, held_y)
        rows.append({"way": name})
    seconds = {name: [] for name in ways}
    for repeat in range(REPEATS):
        for name, way in ways.items():
            if repeat and name.startswith(("Nystroem", "Grid")):
                continue  # once is enough for the slowest
            for _ in range(3 if name.startswith("jaxsvm") else 1):
                began = time.perf_counter()
                found = way()
                seconds[name].append(time.perf_counter() - began)
            next(r for r in rows if r["way"] == name).setdefault("error", found)
            print(name, f"{found:.4f}", f"{seconds[name][-1]:.2f} s", flush=True)
    ours = float(np.median(seconds[rows[0]["way"]]))
    columns = ["way", "error", "seconds", "times_the_first", "first_call_s", "programs", "memory_bound_MiB", "memory_counted_MiB"]
    for row in rows:
        row["seconds"] = float(np.median(seconds[row["way"]]))
        row["times_the_first"] = row["seconds"] / ours
    write("sweep", [{c: f"{r[c]:.4g}" if isinstance(r.get(c), float) else r.get(c, "") for c in columns} for r in rows])

    import matplotlib

    matplotlib.use("agg")
    from jaxsvm import plots

    table = jaxsvm.sweep.table(errors["asset_nystrom"], **axes)
    print(table)
    plots.heatmap(table, label="validation error, adult").figure.savefig(RESULTS / "sweep.png", dpi=120)


if __name__ == "__main__":
    sys.exit(main())
