"""Digests of some 60 runs, to compare a change with what was before it: `python -m benchmarks.trust.bits TABLE`.

Where TABLE is no file, the digests are written to it; else they are compared with those in it, and each row that
differs is named with the largest difference of its numbers. The exit status is 1 where one does. A table belongs
to a machine and its versions, so none is kept in the repository: make it at the commit before the change.

A run is a name and a function without arguments, which gives arrays. `--only WORD` makes those whose names hold WORD.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import tempfile
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import jaxsvm
from jaxsvm import features, kernels, losses, samplers

KEY = jax.random.key(0)
KERNEL = kernels.rbf(0.1)
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 8))
Y = np.sign(X[:, 0] + 0.3 * rng.normal(size=300))
DATA = jaxsvm.dataset(X, Y)
SPARSE = jaxsvm.dataset(scipy.sparse.random(300, 50, 0.1, format="csr", random_state=0), Y)
THREE = jaxsvm.dataset(X, rng.integers(0, 3, 300), task="multiclass")
REAL = jaxsvm.dataset(X, X[:, 0] + 0.1 * rng.normal(size=300), task="regression")
SEVERAL = jaxsvm.dataset(X, rng.random((300, 3)) < 0.4)
RANKED = jaxsvm.dataset(X, rng.integers(0, 3, 300), query=np.arange(300) // 10)
WEIGHTED = jaxsvm.dataset(X, Y, rng.integers(0, 3, 300))
POINTS = features.nystrom(KEY, KERNEL, landmarks=X[:20])
SMOOTH = losses.smooth_hinge(0.5)


def solvers() -> dict:
    """name -> (solver, data, options of `fit`)."""
    j, on = jaxsvm, jaxsvm.on_features
    squared = {"loss": losses.squared_hinge}
    return {
        "pegasos averaged": (j.averaged(j.pegasos(1e-2)), DATA, {"steps": 1000}),
        "pegasos sparse": (j.averaged(j.pegasos(1e-2)), SPARSE, {"steps": 1000}),
        "pegasos 16 rows": (j.averaged(j.pegasos(1e-2)), DATA, {"steps": 300, "sampler": samplers.epochs(16)}),
        "pegasos sparse 32 rows": (
            j.averaged(j.pegasos(1e-2)),
            SPARSE,
            {"steps": 100, "sampler": samplers.epochs(32)},
        ),
        "pegasos all rows": (j.pegasos(1e-2), DATA, {"steps": 50, "sampler": samplers.whole()}),
        "pegasos weights": (j.pegasos(1e-2, loss=SMOOTH), WEIGHTED, {"steps": 300}),
        "pegasos probe tol": (j.pegasos(1e-2), DATA, {"steps": 500, "probe": j.error_on(DATA), "tol": 0.2}),
        "pegasos on features": (on(POINTS, j.averaged(j.pegasos(1e-2))), DATA, {"steps": 500}),
        "bottou_sgd": (j.bottou_sgd(1e-2), DATA, {"steps": 300}),
        "asgd": (j.asgd(1e-2, average_from=10), DATA, {"steps": 300}),
        "asset": (j.asset(1e-2), DATA, {"steps": 300}),
        "asset free bias": (j.asset(1e-2, bias="free"), DATA, {"steps": 300}),
        "asset_star": (j.asset_star(1e-2), DATA, {"steps": 300}),
        "constrained_sgd": (j.constrained_sgd(1.0, KERNEL), DATA, {"steps": 200}),
        "kernel_pegasos": (j.kernel_pegasos(1e-2, KERNEL), DATA, {"steps": 300}),
        "simba": (j.simba(0.1, horizon=200), DATA, {"steps": 200}),
        "fogd": (j.fogd(0.1, features.fourier(KEY, KERNEL, dim=8, features=32)), DATA, {"steps": 300}),
        "newton": (j.newton(1e-2), DATA, {"steps": 2, "tol": 1e-4}),
        "newton cg sparse": (j.newton(1e-2, system="cg"), SPARSE, {"tol": 1e-4}),
        "proximal_newton": (j.proximal_newton(1e-2, l1_ratio=0.5), DATA, {"tol": 1e-4}),
        "least_squares": (j.least_squares(1e-2), DATA, {"passes": 1}),
        "sdca": (j.sdca(1.0), DATA, {"steps": 3000, "tol": 1e-3}),
        "sdca kernel tol": (j.sdca(1.0, KERNEL), DATA, {"steps": 3000, "tol": 1e-3}),
        "sdca kernel shrinking": (j.sdca(1.0, KERNEL), DATA, {"steps": 300, "sampler": samplers.shrinking(16)}),
        "sdca logistic": (j.sdca(1.0, loss=losses.logistic), WEIGHTED, {"passes": 5}),
        "dual_descent": (j.dual_descent(1.0), DATA, {"tol": 1e-3}),
        "dual_descent sparse": (j.dual_descent(1.0, **squared), SPARSE, {"tol": 1e-3}),
        "block_descent": (j.block_descent(1.0), DATA, {"passes": 3}),
        "crammer_singer": (j.crammer_singer(1.0, classes=3), THREE, {"tol": 1e-3}),
        "interior_point": (j.interior_point(1.0), DATA, {"tol": 1e-3}),
        "augmented_lagrangian": (j.augmented_lagrangian(1.0), DATA, {"tol": 1e-3}),
        "cocoa": (j.cocoa(1.0, blocks=3), DATA, {"steps": 20}),
        "decomposition": (j.decomposition(1.0, KERNEL), DATA, {"steps": 1}),
        "decomposition tol": (j.decomposition(1.0, KERNEL), DATA, {"steps": 3, "tol": 1e-5}),
        "decomposition tube": (j.decomposition(1.0, KERNEL, loss=losses.eps_insensitive(0.1)), REAL, {"tol": 1e-4}),
        "smo": (j.smo(1.0, KERNEL), DATA, {"steps": 300}),
        "lasvm": (j.lasvm(1.0, KERNEL), DATA, {"steps": 3}),
        "nu_svc": (j.nu_svc(0.3, KERNEL), DATA, {"tol": 1e-4}),
        "nu_svr": (j.nu_svr(0.3, 1.0, KERNEL), REAL, {"tol": 1e-4}),
        "one_class": (j.one_class(0.3, KERNEL), DATA, {"tol": 1e-4}),
        "bsgd": (j.bsgd(1e-2, KERNEL, budget=20), DATA, {"steps": 600}),
        "bsca": (j.bsca(1.0, KERNEL, budget=20), DATA, {"steps": 300, "sampler": samplers.acf()}),
        "bpas": (j.bpas(1.0, KERNEL, budget=20), DATA, {"steps": 300}),
        "bogd": (j.bogd(1e-2, KERNEL, budget=20), DATA, {"steps": 300}),
        "nogd": (j.nogd(0.1, KERNEL, budget=20, features=8), DATA, {"steps": 300}),
        "perceptron": (j.perceptron(KERNEL), DATA, {"steps": 300}),
        "forgetron": (j.forgetron(KERNEL, budget=20), DATA, {"steps": 300}),
        "projectron_plus": (j.projectron_plus(KERNEL, budget=20), DATA, {"steps": 300}),
        "tightest_perceptron": (j.tightest_perceptron(KERNEL, budget=20), DATA, {"steps": 300}),
        "batch_perceptron": (j.batch_perceptron(0.1, KERNEL), DATA, {"steps": 100}),
        "sbp": (j.sbp(0.1, KERNEL), DATA, {"steps": 200}),
        "ocas": (j.ocas(1e-2), DATA, {"tol": 1e-3}),
        "ocas ranking": (j.ocas(1e-2, loss=losses.pairwise()), RANKED, {"steps": 20}),
        "svm_perf": (j.svm_perf(1e-2), DATA, {"steps": 20}),
        "cpsp": (j.cpsp(1e-2, KERNEL, points=10), DATA, {"steps": 20}),
        "subgradient": (j.subgradient(1e-2), DATA, {"steps": 50}),
        "wolfe": (j.wolfe(1e-2), DATA, {"steps": 50}),
        "scs": (j.scs(1e-2, capacity=300), DATA, {"steps": 50}),
        "one_vs_one": (j.one_vs_one(j.decomposition(1.0, KERNEL), classes=3), THREE, {"steps": 1, "tol": 1e-4}),
        "one_vs_rest": (j.one_vs_rest(j.sdca(1.0, KERNEL), classes=3), THREE, {"steps": 900}),
        "multi_output": (j.multi_output(j.dual_descent(1.0), outputs=3), SEVERAL, {"tol": 1e-3}),
        "linear_svm": (j.linear_svm(1.0), DATA, {}),
        "kernel_svm": (j.kernel_svm(1.0, KERNEL), DATA, {}),
    }


def resumed() -> tuple:
    """A run that is stopped, saved, loaded and continued."""
    solver = jaxsvm.averaged(jaxsvm.pegasos(1e-2))
    first = jaxsvm.fit(solver, DATA, KEY, steps=330, every=100)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "state.npz"
        jaxsvm.models.save(path, first.state)
        state = jaxsvm.models.load(path)
    return numbers(jaxsvm.fit(solver, DATA, state=state, steps=370, every=100))


def streamed() -> tuple:
    """Chunks of rows, of which the last is short."""
    return numbers(jaxsvm.stream(jaxsvm.pegasos(1e-2), jaxsvm.data.chunks(DATA, rows=70), KEY, progress=False))


def mapped() -> tuple:
    """Chunks that are read from a file of NumPy."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.npy"
        np.save(path, X.astype(np.float32))
        parts = jaxsvm.data.chunks(np.load(path, mmap_mode="r"), Y.astype(np.float32), rows=64)
        return numbers(jaxsvm.stream(jaxsvm.pegasos(1e-2), parts, KEY, progress=False))


def saved_model() -> tuple:
    """A model and its classes through a file."""
    result = jaxsvm.fit(jaxsvm.kernel_svm(1.0, KERNEL), DATA, KEY)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.npz"
        jaxsvm.models.save(path, result.classifier)
        return jaxsvm.models.load(path)(DATA.x), result.predict(DATA.x)


def swept() -> jax.Array:
    """Errors over lambda and sigma."""

    def error(lam, sigma):
        phi = features.fourier(KEY, kernels.rbf(sigma), dim=8, features=32)
        solver = jaxsvm.on_features(phi, jaxsvm.pegasos(lam))
        return jaxsvm.error_on(DATA)(jaxsvm.fit(solver, DATA, KEY, steps=300).model)

    return jaxsvm.sweep(error, lam=jnp.logspace(-3, -1, 3), sigma=jnp.logspace(-1, 1, 3))()


def selected(make, data=DATA, **axes) -> tuple:
    """Scores of a grid, the choice and its model."""
    found = jaxsvm.select(make, data, KEY, folds=3, progress=False, **axes)
    return found.table.folds, found.scores, found.model


def gradients() -> tuple:
    """Through steps, and through the optimality conditions of an exact machine."""
    steps = lambda lam: jaxsvm.fit(jaxsvm.pegasos(lam), DATA, KEY, steps=50).model.w.sum()
    exact = lambda C: jaxsvm.fit(jaxsvm.decomposition(C, KERNEL, tol=1e-6), DATA, KEY, steps=1).model(DATA.x).sum()
    return jax.grad(steps)(0.1), jax.grad(exact)(1.0)


def estimated(name: str, y=Y, **parameters) -> tuple:
    """Decision values or predictions of an estimator."""
    from jaxsvm import estimators

    machine = getattr(estimators, name)(**parameters).fit(X, y)
    return machine.predict(X), getattr(machine, "decision_function", machine.predict)(X)


def others() -> dict:
    """name -> function."""
    words = np.array(["ham", "spam", "egg"])[np.arange(300) % 3]
    C = jnp.logspace(-1, 1, 3)
    gamma = jnp.array([0.05, 0.1])
    return {
        "resumed": resumed,
        "streamed": streamed,
        "streamed file": mapped,
        "saved model": saved_model,
        "sweep": swept,
        "select exact": lambda: selected(lambda C, g: jaxsvm.kernel_svm(C, kernels.rbf(g)), C=C, g=gamma),
        "select linear": lambda: selected(jaxsvm.linear_svm, C=C),
        "select three": lambda: selected(lambda C: jaxsvm.one_vs_one(jaxsvm.kernel_svm(C, KERNEL), classes=3), THREE, C=C),
        "gradients": gradients,
        "certificate": lambda: tuple(
            jaxsvm.certificate(jaxsvm.fit(jaxsvm.kernel_svm(1.0, KERNEL), DATA, KEY).model, DATA, lam=1 / 300)
        ),
        "calibrate": lambda: jaxsvm.calibrate(jaxsvm.fit(jaxsvm.kernel_svm(1.0, KERNEL), DATA, KEY).model, DATA).predict_proba(
            DATA.x
        ),
        "SVC": lambda: estimated("SVC", words),
        "SVC probability": lambda: estimated("SVC", probability=True),
        "LinearSVC": lambda: estimated("LinearSVC"),
        "LinearSVC hinge": lambda: estimated("LinearSVC", words, loss="hinge"),
        "SVR": lambda: estimated("SVR", X[:, 0]),
        "LinearSVR": lambda: estimated("LinearSVR", X[:, 0]),
        "NuSVC": lambda: estimated("NuSVC", words),
        "OneClassSVM": lambda: estimated("OneClassSVM"),
    }


def numbers(result) -> tuple:
    """What a run must keep: model, state of the solver, its step, measurements."""
    return result.model, result.state.solver, result.state.step, result.state.done, result.info


def arrays(tree) -> list[np.ndarray]:
    """The leaves on the host; keys by their words."""
    plain = lambda a: jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a
    return [np.asarray(plain(jnp.asarray(a)) if isinstance(a, jax.Array) else a) for a in jax.tree.leaves(tree)]


def digest(leaves: list[np.ndarray]) -> str:
    """A digest of shapes, dtypes and bytes."""
    found = hashlib.sha256()
    for leaf in leaves:
        found.update(f"{leaf.dtype} {leaf.shape}".encode() + leaf.tobytes())
    return found.hexdigest()[:16]


def summary(leaves: list[np.ndarray]) -> list[float]:
    """A number for each leaf, its sum in float64, by which a difference is measured."""
    return [float(a.astype(np.float64).sum()) if a.dtype.kind in "biuf" else 0.0 for a in leaves]


def compared(name: str, leaves: list[np.ndarray], before: dict) -> str:
    """One word, or how far the sums of the arrays are from those before."""
    if name not in before:
        return "new"
    old = before[name]
    if old["digest"] == digest(leaves):
        return "same"
    sums = summary(leaves)
    if len(sums) != len(old["sums"]):
        return f"DIFFERS: {len(sums)} arrays, {len(old['sums'])} before"
    gap = max(abs(a - b) / max(abs(b), 1.0) for a, b in zip(sums, old["sums"], strict=True))
    return f"DIFFERS: sums by {gap:.1e}"


def main() -> int:
    """Make the runs, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="WORD")
    args = parser.parse_args()
    before = json.loads(args.table.read_text()) if args.table.exists() else None
    fits = {
        name: lambda s=solver, d=data, o=options: numbers(jaxsvm.fit(s, d, KEY, **o))
        for name, (solver, data, options) in solvers().items()
    }
    table, verdicts = {}, []
    for name, run in {**fits, **others()}.items():
        if args.only not in name:
            continue
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves = arrays(run())
        table[name] = {"digest": digest(leaves), "sums": summary(leaves)}
        verdicts.append("written" if before is None else compared(name, leaves, before))
        print(f"{name:28s} {table[name]['digest']}  {time.perf_counter() - began:5.1f} s  {verdicts[-1]}", flush=True)
    if before is None:
        args.table.write_text(json.dumps(table))
    gone = [] if before is None or args.only else sorted(set(before) - set(table))
    print(f"{len(table)} runs; {sum(v.startswith('DIFFERS') for v in verdicts)} differ; gone: {', '.join(gone) or 'none'}")
    return int(any(v.startswith("DIFFERS") for v in verdicts) or bool(gone))


if __name__ == "__main__":
    sys.exit(main())
