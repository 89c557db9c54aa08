"""One machine to its limit: the parts `covtype` and `rows` of `python -m benchmarks.scale`.

covtype   a machine on 2,048 Nystrom features of all rows of covtype, and one on 8,192 Fourier features: all features at
          once, and piece by piece. Gamma and C are those of the ASSET paper.
rows      averaged Pegasos on Fourier features of 10 million rows, which are streamed from memory-mapped files.

Every run is a process of its own, which prints its figures: seconds from the data to the model, compilation included,
processor seconds of the process, largest resident memory, test error. Those of scikit-learn do not import JAX. Rows lie in
a temporary folder.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

SIZES = {  # of the whole benchmark, and of a small version
    "covtype": ({"rows": 561_012, "subset": 100_000, "landmarks": 2048, "fourier": 8192, "periods": 12, "limit": 300},
                {"rows": 4000, "subset": 2000, "landmarks": 64, "fourier": 128, "periods": 6, "limit": 5}),
    "rows": ({"rows": 10_000_000, "subset": 200_000, "features": 1024}, {"rows": 20_000, "subset": 2000, "features": 64}),
}  # fmt: skip
TEST = {"covtype": 20_000, "rows": 100_000}
GAMMA, C, BATCH = 1.0, 3.0, 16  # of covtype
COLUMNS, CHUNK, SIGMA, LAM = 20, 131_072, 5.0, 1e-6  # of the 10 million rows
FIELDS = ("seconds", "map_s", "cpu_s", "resident_GB", "residual", "gap", "certificate_s", "test_error_percent", "objective")
CHECKED = 100_000  # training rows over which the objective is computed


def resident() -> float:
    """Largest resident memory of this process so far, in GB."""
    status = pathlib.Path("/proc/self/status").read_text()  # getrusage hands down what the parent process had
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def spent(began: float, map_s: float = 0.0) -> dict:
    """Seconds since `began`, processor seconds and largest resident memory of this process."""
    seconds, cpu = time.perf_counter() - began, time.process_time()
    return {"seconds": seconds, "map_s": map_s, "cpu_s": cpu, "resident_GB": resident()}


def in_blocks(scores, x: np.ndarray) -> np.ndarray:
    """Scores of all rows, computed 4,096 rows at a time."""
    return np.concatenate([np.asarray(scores(x[k : k + 4096]), np.float64).ravel() for k in range(0, len(x), 4096)])


def figures(folder: pathlib.Path, scores, w, lam: float, n: int) -> dict:
    """The test error in per cent, and lam/2 |w|^2 + mean hinge over the first training rows."""
    x, y, x_test, y_test = arrays(folder)
    k, w = min(n, CHECKED), np.asarray(w, np.float64)
    hinge = np.maximum(1 - y[:k] * in_blocks(scores, x[:k]), 0).mean()
    error = 100 * np.mean(np.sign(in_blocks(scores, x_test)) != y_test)
    return {"test_error_percent": f"{error:.2f}", "objective": f"{lam / 2 * np.sum(w * w) + hinge:.5f}"}


def arrays(folder: pathlib.Path) -> list[np.ndarray]:
    """Training rows and test rows with their labels, as memory maps."""
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y", "x_test", "y_test")]


# covtype


def write_covtype(folder: pathlib.Path, size: dict) -> None:
    """All rows of covtype in random order, columns in [0, 1], class 1 against the rest; the last ones are for the test."""
    from . import common

    x, y = common.load("covtype")
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: size["rows"]], order[-TEST["covtype"] :]
    for name, rows in (("", train), ("_test", test)):
        np.save(folder / f"x{name}.npy", x[rows].astype(np.float32))
        np.save(folder / f"y{name}.npy", y[rows].astype(np.int8))


def on_map(folder: pathlib.Path, size: dict, n: int, method: str, kind: str = "nystrom") -> dict:
    """A machine without a bias on features.

    Args:
        folder: of the rows.
        size: numbers of landmarks and of Fourier features.
        n: rows.
        method: "sdca" with `samplers.shrinking`, for a number of periods, on Fourier features for a number of seconds;
            "dual_descent" and "block_descent", to a residual of 1e-2.
        kind: of the map, "nystrom" or "fourier".

    Returns:
        Figures of the run; the gap is that of its own dual coefficients, relative to the objective on all rows.
    """
    import jax

    import jaxsvm
    from jaxsvm import features, kernels, samplers
    from jaxsvm.engines.coordinate_ascent import dual_coef

    key = jax.random.key(0)
    began = time.perf_counter()
    x, y = arrays(folder)[:2]
    data = jaxsvm.dataset(np.asarray(x[:n]), np.asarray(y[:n]))
    kernel = kernels.rbf(gamma=GAMMA)
    if kind == "nystrom":
        phi = features.nystrom(key, kernel, data.x, landmarks=size["landmarks"])
    else:
        phi = features.fourier(key, kernel, dim=data.x.shape[1], features=size["fourier"])
    jax.block_until_ready(phi)
    map_s = time.perf_counter() - began
    solver, options = {
        "sdca": (jaxsvm.sdca(C), {"steps": size["periods"] * -(-n // BATCH), "sampler": samplers.shrinking(BATCH)}),
        "dual_descent": (jaxsvm.dual_descent(C, bias="none"), {"tol": 1e-2}),
        "block_descent": (jaxsvm.block_descent(C, bias="none", rounds=8), {"tol": 1e-2, "passes": 100}),
    }[method]
    if method == "sdca" and kind == "fourier":
        options |= {"seconds": size["limit"], "every": 256}
    run = jaxsvm.fit(jaxsvm.on_features(phi, solver), data, key, **options)
    jax.block_until_ready(run.model)
    found = spent(began, map_s) | {"residual": f"{float(run.info.residual[-1]):.2g}"}
    state = run.state.solver
    coef = dual_coef(state) if method == "sdca" else state.coef
    began = time.perf_counter()
    proof = jaxsvm.certificate(run.model, data, 1 / (C * n), dual=coef)
    found |= {"gap": f"{proof.gap / proof.primal:.2g}", "certificate_s": time.perf_counter() - began}
    w, scores = run.model.inner.w, jax.jit(run.model)
    return found | figures(folder, scores, w, 1 / (C * n), n)


def nystroem_and(machine: str):
    """scikit-learn's Nystroem, and LinearSVC on its features, or SGDClassifier, which gets them chunk by chunk."""

    def fit(folder: pathlib.Path, size: dict, n: int) -> dict:
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import SGDClassifier
        from sklearn.svm import LinearSVC

        began = time.perf_counter()
        x, y = (np.asarray(a[:n]) for a in arrays(folder)[:2])
        lam, drawn = 1 / (C * n), np.random.default_rng(1).choice(n, size["landmarks"], replace=False)
        phi = Nystroem(gamma=GAMMA, n_components=size["landmarks"], random_state=0).fit(x[drawn])
        map_s = time.perf_counter() - began
        if machine == "LinearSVC":
            model = LinearSVC(loss="hinge", C=C, fit_intercept=False, random_state=0, max_iter=100)
            model.fit(phi.transform(x), y)
        else:
            model = SGDClassifier(alpha=lam, fit_intercept=False, average=True, random_state=0)
            partial_passes(model, phi, x, y, passes=size["periods"] // 3)
        found = spent(began, map_s)
        scores = lambda rows: model.decision_function(phi.transform(rows))
        return found | figures(folder, scores, model.coef_, lam, n)

    return fit


def partial_passes(model, phi, x, y, passes: int, rows: int = 16_384) -> None:
    """Passes of `partial_fit` over the features of chunks."""
    for _ in range(passes):
        for start in range(0, len(x), rows):
            stop = start + rows
            model.partial_fit(phi.transform(np.asarray(x[start:stop])), np.asarray(y[start:stop]), classes=[-1, 1])


# 10 million rows


def write_rows(folder: pathlib.Path, size: dict) -> None:
    """Normal rows whose labels are signs of x_0 x_1 + x_2 x_3 + x_4 with noise, written chunk by chunk."""
    random = np.random.default_rng(0)
    for name, n in (("", size["rows"]), ("_test", TEST["rows"])):
        x = np.lib.format.open_memmap(folder / f"x{name}.npy", "w+", np.float32, (n, COLUMNS))
        y = np.lib.format.open_memmap(folder / f"y{name}.npy", "w+", np.int8, (n,))
        for start in range(0, n, CHUNK):
            rows = random.standard_normal((min(CHUNK, n - start), COLUMNS), np.float32)
            score = rows[:, 0] * rows[:, 1] + rows[:, 2] * rows[:, 3] + rows[:, 4]
            noise = 0.1 * random.standard_normal(len(rows), np.float32)
            x[start : start + CHUNK], y[start : start + CHUNK] = rows, np.where(score + noise > 0, 1, -1)
        x.flush()
        y.flush()


def streamed(folder: pathlib.Path, size: dict, n: int, on: str) -> dict:
    """Averaged Pegasos on batches of 64 rows in one pass, on Fourier features or on the columns."""
    import jax

    import jaxsvm
    from jaxsvm import features, kernels

    began = time.perf_counter()
    x, y = arrays(folder)[:2]
    parts = jaxsvm.data.chunks(x[:n], y[:n], rows=CHUNK)
    solver = jaxsvm.averaged(jaxsvm.pegasos(LAM), weights=lambda t: t + 1)
    if on == "features":
        phi = features.fourier(jax.random.key(0), kernels.rbf(SIGMA), dim=COLUMNS, features=size["features"])
        solver = jaxsvm.on_features(phi, solver)
    run = jaxsvm.stream(solver, parts, jax.random.key(1), batch_size=64)
    jax.block_until_ready(run.model)
    found = spent(began)
    w = run.model.inner.w if on == "features" else run.model.w
    return found | figures(folder, jax.jit(run.model), w, LAM, n)


def streamed_sgd(folder: pathlib.Path, size: dict, n: int) -> dict:
    """scikit-learn's SGDClassifier by `partial_fit` on features of its RBFSampler, one pass."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import SGDClassifier

    began = time.perf_counter()
    x, y = arrays(folder)[:2]
    phi = RBFSampler(gamma=1 / (2 * SIGMA**2), n_components=size["features"], random_state=0).fit(np.asarray(x[:2]))
    model = SGDClassifier(alpha=LAM, fit_intercept=False, average=True, random_state=0)
    partial_passes(model, phi, x[:n], y[:n], passes=1)
    found = spent(began)
    scores = lambda rows: model.decision_function(phi.transform(rows))
    return found | figures(folder, scores, model.coef_, LAM, n)


def subset_svc(folder: pathlib.Path, size: dict, n: int) -> dict:
    """scikit-learn's Nystroem and LinearSVC on the first rows."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.svm import LinearSVC

    began = time.perf_counter()
    x, y = (np.asarray(a[:n]) for a in arrays(folder)[:2])
    drawn = np.random.default_rng(1).choice(n, size["features"], replace=False)
    phi = Nystroem(gamma=1 / (2 * SIGMA**2), n_components=size["features"], random_state=0).fit(x[drawn])
    map_s = time.perf_counter() - began
    # the same number of passes at most as on covtype
    model = LinearSVC(loss="hinge", C=1 / (LAM * n), fit_intercept=False, random_state=0, max_iter=100).fit(phi.transform(x), y)
    found = spent(began, map_s)
    scores = lambda rows: model.decision_function(phi.transform(rows))
    return found | figures(folder, scores, model.coef_, LAM, n)


# part -> method -> the key of its number of rows, and the run
RUNS = {
    "covtype": {
        "dual_descent, features at once": ("rows", lambda *a: on_map(*a, "dual_descent")),
        "sdca, features in each update": ("rows", lambda *a: on_map(*a, "sdca")),
        "block_descent, features in each update": ("rows", lambda *a: on_map(*a, "block_descent")),
        "block_descent, Fourier features": ("rows", lambda *a: on_map(*a, "block_descent", "fourier")),
        "sdca, Fourier features": ("rows", lambda *a: on_map(*a, "sdca", "fourier")),
        "Nystroem, SGDClassifier, chunk by chunk": ("rows", nystroem_and("SGDClassifier")),
        "sdca, features at once, part of the rows": ("subset", lambda *a: on_map(*a, "sdca")),
        "Nystroem, LinearSVC, part of the rows": ("subset", nystroem_and("LinearSVC")),
    },
    "rows": {
        "pegasos, Fourier features, streamed": ("rows", lambda *a: streamed(*a, on="features")),
        "RBFSampler, SGDClassifier, chunk by chunk": ("rows", streamed_sgd),
        "pegasos, columns, streamed": ("rows", lambda *a: streamed(*a, on="columns")),
        "Nystroem, LinearSVC, part of the rows": ("subset", subset_svc),
    },
}
WRITE = {"covtype": write_covtype, "rows": write_rows}


def measure(part: str, small: bool, methods: list[str] | None = None) -> list[dict]:
    """The table of a part: each method in a process of its own, one after the other."""
    size, table = SIZES[part][small], []
    with tempfile.TemporaryDirectory() as folder:
        start = lambda *arguments: subprocess.run(
            [sys.executable, "-m", "benchmarks.one_machine", part, str(int(small)), folder, *arguments],
            capture_output=True, text=True,
        )  # fmt: skip
        made = start()
        if made.returncode:
            raise RuntimeError(made.stderr[-2000:])
        for method in methods or RUNS[part]:
            done = start(method)
            if done.returncode:
                raise RuntimeError(f"{method} ended with {done.returncode}: {done.stderr[-2000:]}")
            n = size[RUNS[part][method][0]]
            found = {k: v if isinstance(v, str) else f"{v:.2f}" for k, v in json.loads(done.stdout).items()}
            table.append({"method": method, "rows": n} | dict.fromkeys(FIELDS if part == "covtype" else (), "") | found)
            print(table[-1], done.stderr[-200:], flush=True)
    return table


def child(part: str, small: str, folder: str, method: str | None = None) -> None:
    """What a process of its own does: it writes the rows, or makes one run and prints its figures."""
    size = SIZES[part][int(small)]
    if method is None:
        return WRITE[part](pathlib.Path(folder), size)
    rows, run = RUNS[part][method]
    print(json.dumps(run(pathlib.Path(folder), size, size[rows])))


if __name__ == "__main__":
    child(*sys.argv[1:])
