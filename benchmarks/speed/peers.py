"""`python -m benchmarks.speed.peers [linear] [features] [exact] [online] [sparse]`: machines beside their strongest peers.

Both run in one process, in turns, three times; the table shows medians. A job has a process of its own. cold_s is the first
fit of the process, with compilation. Both are judged in float64 by NumPy, by `value`: the objective, or for exact machines
LIBSVM's violation (max rise - min fall). What a peer's default tolerance leads to is what ours has to reach.

linear: `LinearSVC` of `jaxsvm.estimators` and of scikit-learn (LIBLINEAR), both with their default parameters, rows as arrays.
features: 1,024 Nystrom features, C = 10; the peer is LIBLINEAR's dual ascent on the same features, to the same objective.
exact: `decomposition` and scikit-learn-intelex's SVC on 20,000 rows and more, ours to the violation that the peer reached.
online: `lasvm`, C = 1 and 10, one pass and its finishing steps, beside SVC to its optimum: no package of the index has LASVM.
    LASVM is exact on its own set of rows only, so that both are judged by the objective on all rows.
sparse: kernel machines on sparse rows, beside SVC.

`--only TEXT` runs the jobs whose name holds the text. Rows of other jobs stay in peers.csv.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

from .. import common

LINEAR = ("breast_cancer", "digits", "svmguide1", "ijcnn1", "a9a", "reuters", "zeros")
GAMMA = {"a9a": 0.05, "mnist": 0.02, "ijcnn1": 1.0, "covtype": 2.0}
EXACT = [
    *[("covtype", 50_000, C) for C in (1, 10)],
    *[("ijcnn1", 49_990, C) for C in (1, 10, 100)],
    *[("a9a", 32_561, C) for C in (1, 10, 100)],
    ("a9a", 20_000, 10),
    ("mnist", 20_000, 10),
]
JOBS = {
    **{f"linear {loss} {name}": ("linear", name, loss) for loss in ("hinge", "squared_hinge") for name in LINEAR},
    **{f"l1 {name} C={C:g}": ("l1", name, C) for name in LINEAR for C in (0.1, 1.0, 10.0)},
    **{f"features {name} {n}": ("features", name, n) for name, n in (("a9a", 32_561), ("covtype", 60_000))},
    **{f"exact {name} {n} C={C}": ("exact", name, n, C) for name, n, C in EXACT},
    **{f"online lasvm a9a 10000 C={C}": ("online", C) for C in (1, 10)},
    **{f"sparse {kernel} reuters 3000": ("sparse", kernel) for kernel in ("linear", "rbf")},
}
REPEATS = 3


def linear_rows(name: str) -> tuple:
    """Rows and targets of a linear job; columns of scikit-learn's sets and svmguide1 are standardised.

    "zeros" is a dense array of 7,700 x 300 numbers, 4 % of them not 0.
    """
    if name == "zeros":
        random = np.random.default_rng(0)
        x = (random.random((7700, 300)) < 0.04) * random.normal(size=(7700, 300))
        noise = random.normal(size=7700)
        return x.astype(np.float32), np.where(x @ random.normal(size=300) + 0.5 * noise > 0, 1, -1)
    if name == "reuters":
        return common.load_sparse("reuters_money_fx")[:2]
    if name in ("breast_cancer", "digits"):
        import sklearn.datasets

        x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    else:
        x, y = common.load(name)
    if name in ("breast_cancer", "digits", "svmguide1"):
        from sklearn.preprocessing import StandardScaler

        x = StandardScaler().fit_transform(x)
    return x, y


def linear_objective(x, y, coef, intercept, loss: str, C: float = 1.0) -> float:
    """The sum over classes of 1/2 (|w|^2 + b^2) + C sum loss(y (<w, x> + b)), in float64."""
    coef, intercept = np.atleast_2d(np.asarray(coef, float)), np.atleast_1d(np.asarray(intercept, float))
    labels = np.unique(y)
    sides = labels[1:] if len(labels) == 2 else labels
    total = 0.0
    for w, b, label in zip(coef, intercept, sides, strict=True):
        slack = np.maximum(0, 1 - np.where(y == label, 1, -1) * (x.astype(float) @ w + b))
        total += (w @ w + b * b) / 2 + C * (slack if loss == "hinge" else slack**2).sum()
    return total


def linear(name: str, loss: str) -> dict:
    """`LinearSVC`, default parameters."""
    import sklearn.svm

    from jaxsvm.estimators import LinearSVC

    x, y = linear_rows(name)
    value = lambda made: linear_objective(x, y, made.coef_, made.intercept_, loss)
    return {
        "ours": lambda: LinearSVC(loss=loss, random_state=0).fit(x, y),
        "peer": lambda: sklearn.svm.LinearSVC(loss=loss, random_state=0).fit(x, y),
        "name": "LIBLINEAR",
        "value": (value, value),
    }


def features(name: str, n: int) -> dict:
    """Dual ascent on Nystrom features that both get."""
    import jax
    import sklearn.svm

    import jaxsvm

    x, y = common.load(name)
    x, y = x[:n], y[:n]
    kernel = jaxsvm.kernels.rbf(gamma=GAMMA[name])
    phi = jaxsvm.features.nystrom(jax.random.key(0), kernel, x, landmarks=1024)
    lifted = np.concatenate([np.asarray(phi(x[i : i + 8192])) for i in range(0, len(x), 8192)])
    data = jaxsvm.dataset(lifted, y)
    peer = sklearn.svm.LinearSVC(loss="hinge", C=10.0, fit_intercept=False, max_iter=10_000, random_state=0)
    solver, active = jaxsvm.sdca(10.0), jaxsvm.samplers.active_rows()
    return {
        "ours": lambda: jaxsvm.fit(solver, data, jax.random.key(0), tol=1e-3, steps=1000 * len(y), sampler=active),
        "peer": lambda: peer.fit(lifted, y),
        "name": "LIBLINEAR",
        "value": (
            lambda run: linear_objective(lifted, y, run.model.w, 0.0, "hinge", 10.0),
            lambda made: linear_objective(lifted, y, made.coef_, 0.0, "hinge", 10.0),
        ),
    }


def violation(x, y, coef, C: float, kernel) -> float:
    """LIBSVM's violation max rise - min fall, in float64; `kernel` maps two blocks of rows to a matrix."""
    used, pull = np.flatnonzero(coef), np.empty(len(y))
    for begin in range(0, len(y), 2_000):
        part = slice(begin, begin + 2_000)
        pull[part] = y[part] - kernel(x[part], x[used]) @ coef[used]
    high, low = np.where(y > 0, C, 0), np.where(y > 0, 0, -C)
    return max(pull[coef < high].max(initial=-np.inf) - pull[coef > low].min(initial=np.inf), 0.0)


def gaussian(gamma: float):
    """A function of two blocks of rows, float64."""

    def kernel(a, b):
        a, b = (m.toarray() if hasattr(m, "toarray") else m for m in (a, b))
        a, b = a.astype(float), b.astype(float)
        distance = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
        return np.exp(-gamma * np.maximum(distance, 0))

    return kernel


def signed(made, n: int, C: float) -> np.ndarray:
    """Signed coefficients of all rows, those at C exactly there."""
    coef, found = np.zeros(n), made.dual_coef_
    coef[made.support_] = (found.toarray() if hasattr(found, "toarray") else found)[0]
    return np.where(np.abs(np.abs(coef) - C) <= 1e-6 * C, np.sign(coef) * C, coef)


def exact(name: str, n: int, C: float) -> dict:
    """The exact machine, to the violation that the peer reaches at its default tolerance."""
    import jax

    import jaxsvm

    if importlib.util.find_spec("sklearnex"):
        from sklearnex.svm import SVC

        peer = "scikit-learn-intelex"
    else:
        from sklearn.svm import SVC

        peer = "SVC"
    x, y = common.rows_of(name, n)
    y, kernel = y.astype(float), gaussian(GAMMA[name])
    theirs = lambda: SVC(C=C, gamma=GAMMA[name]).fit(x, y)
    reached = max(violation(x, y, signed(theirs(), len(y), C), C, kernel), 1e-3)
    solver = jaxsvm.decomposition(float(C), jaxsvm.kernels.rbf(gamma=GAMMA[name]), tol=reached)
    return {
        "ours": lambda: jaxsvm.fit(solver, jaxsvm.dataset(x, y), jax.random.key(0)).model,
        "peer": theirs,
        "name": peer,
        "value": (
            lambda model: violation(x, y, np.asarray(model.coef, float), C, kernel),
            lambda made: violation(x, y, signed(made, len(y), C), C, kernel),
        ),
    }


def kernel_objective(x, y, coef, b: float, C: float, kernel) -> float:
    """1/2 |w|^2 + C sum hinge, in float64; `kernel` maps two blocks of rows to a matrix."""
    used, scores = np.flatnonzero(coef), np.empty(len(y))
    for begin in range(0, len(y), 2_000):
        part = slice(begin, begin + 2_000)
        scores[part] = kernel(x[part], x[used]) @ coef[used]
    return coef @ scores / 2 + C * np.maximum(0, 1 - y * (scores + b)).sum()


def online(C: float) -> dict:
    """LASVM with its finishing steps, to a violation of 1e-3 on its set of rows."""
    import jax
    import sklearn.svm

    import jaxsvm

    x, y = common.rows_of("a9a", 10_000)
    data, y, kernel = jaxsvm.dataset(x, y), y.astype(float), gaussian(GAMMA["a9a"])
    solver = jaxsvm.lasvm(float(C), jaxsvm.kernels.rbf(gamma=GAMMA["a9a"]))
    value = lambda coef, b: kernel_objective(x, y, np.asarray(coef, float), float(b), C, kernel)
    return {
        "ours": lambda: jaxsvm.fit(solver, data, jax.random.key(0), tol=1e-3).model,
        "peer": lambda: sklearn.svm.SVC(C=C, gamma=GAMMA["a9a"]).fit(x, y),
        "name": "SVC",
        "value": (
            lambda model: value(model.coef, model.b),
            lambda made: value(signed(made, len(y), C), made.intercept_[0]),
        ),
    }


def l1(name: str, C: float) -> dict:
    """`LinearSVC(penalty="l1")`; the value is its objective in float64."""
    import sklearn.svm

    from jaxsvm.estimators import LinearSVC

    x, y = linear_rows(name)
    options = {"penalty": "l1", "dual": False, "C": C, "random_state": 0}

    def value(made):
        labels = made.classes_[1:] if len(made.classes_) == 2 else made.classes_
        wide = x.astype(np.float64)
        total = np.abs(made.coef_).sum() + np.abs(made.intercept_).sum()
        for label, w, b in zip(labels, made.coef_.astype(float), made.intercept_.astype(float), strict=True):
            total += C * np.sum(np.maximum(1 - np.where(y == label, 1, -1) * (wide @ w + b), 0) ** 2)
        return float(total)

    return {
        "ours": lambda: LinearSVC(**options).fit(x, y),
        "peer": lambda: sklearn.svm.LinearSVC(**options).fit(x, y),
        "name": "LinearSVC",
        "value": (value, value),
    }


def sparse(kind: str) -> dict:
    """`SVC` on sparse rows."""
    import sklearn.svm

    from jaxsvm.estimators import SVC

    x, y = linear_rows("reuters")
    x, y = x[:3000], y[:3000].astype(float)
    inner = lambda a, b: (a.astype(float) @ b.astype(float).T).toarray()
    kernel = inner if kind == "linear" else gaussian(1.0)
    value = lambda made: violation(x, y, signed(made, len(y), 1.0), 1.0, kernel)
    return {
        "ours": lambda: SVC(kernel=kind, gamma=1.0).fit(x, y),
        "peer": lambda: sklearn.svm.SVC(kernel=kind, gamma=1.0).fit(x, y),
        "name": "SVC",
        "value": (value, value),
    }


def once(job: str) -> dict:
    """One job in this process."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    warnings.simplefilter("ignore")
    kind, *arguments = JOBS[job]
    case = globals()[kind](*arguments)
    began = time.perf_counter()
    made = jax.block_until_ready(case["ours"]())
    cold = time.perf_counter() - began
    seconds = common.side_by_side({"ours": case["ours"], "peer": case["peer"]}, REPEATS)
    ours, peer = (statistics.median(seconds[who]) for who in ("ours", "peer"))
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        made = case["ours"]()
    return {
        "job": job,
        "peer": case["name"],
        "ours_s": f"{ours:.4g}",
        "peer_s": f"{peer:.4g}",
        "ratio": f"{ours / peer:.2f}",
        "cold_s": f"{cold:.3g}",
        "ours_value": f"{case['value'][0](made):.7g}",
        "peer_value": f"{case['value'][1](case['peer']()):.7g}",
        "warnings": len([w for w in raised if "Convergence" in w.category.__name__]),
    }


def main() -> None:
    """The table, as benchmarks/results/peers.csv; rows of jobs that do not run stay."""
    parts = sorted({kind for kind, *_ in JOBS.values()})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all without")
    parser.add_argument("--only", default="", help="text in the name of a job")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(once(options.job)))
        return
    unknown = set(options.parts) - set(parts)
    if unknown:
        parser.error(f"parts are {', '.join(parts)}, got {', '.join(sorted(unknown))}")
    table = {row["job"]: row for row in common.saved("peers")}
    for job, (kind, *_) in JOBS.items():
        if (options.parts and kind not in options.parts) or options.only not in job:
            continue
        command = [sys.executable, "-m", "benchmarks.speed.peers", "--job", job]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{job}: {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        table[job] = json.loads(done.stdout.splitlines()[-1])
        print("  ".join(f"{k}={v}" for k, v in table[job].items()), flush=True)
    common.write("peers", [table[job] for job in JOBS if job in table])


if __name__ == "__main__":
    main()
