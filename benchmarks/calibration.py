"""`python -m benchmarks.calibration [probabilities] [coverage]`: probabilities and conformal sets of held-out rows.

probabilities: `GridCV` searches a grid on a half of the rows. Then `selection_.calibrated(method)`, from the
    values out of fold that the search has computed, beside scikit-learn's `CalibratedClassifierCV(SVC(C, gamma), ensemble=False)`
    with the same folds, C and gamma. Log-loss, Brier score and calibration error (ten bins of equal width) are those of the other
    half. Seconds are of the calibration alone, medians of three after a first call.
coverage: the share of targets in sets of `conformal` (split: half of the training rows are held out) and of
    `Selection.conformal` (CV+ and one model, five folds), alpha = 0.1, over 50 splits into two thirds and one third.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import warnings

import numpy as np

from . import common

MOST_ROWS = 4000
TABLES = ("breast_cancer", "digits", "wine", "svmguide1", "a9a", "ijcnn1")
SPLITS = 50


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows and targets of at most `MOST_ROWS`, in a random order."""
    import sklearn.datasets
    from sklearn.preprocessing import StandardScaler

    random = np.random.default_rng(0)
    if name in ("breast_cancer", "digits", "wine", "iris", "diabetes"):
        x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    else:
        x, y = common.load(name)
    order = random.permutation(len(y))[:MOST_ROWS]
    x, y = StandardScaler().fit_transform(x[order]).astype(np.float32), y[order]
    return x, y if name == "diabetes" else np.unique(y, return_inverse=True)[1]


def calibration_error(p: np.ndarray, hit: np.ndarray, bins: int = 10) -> float:
    """The mean distance of the share of hits from the probability, by bins of the largest probability."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    return float(sum(abs(np.sum(hit[place == b] - p[place == b])) for b in range(bins)) / len(p))


def scores(p: np.ndarray, y: np.ndarray, classes: np.ndarray) -> dict:
    """What probabilities are judged by."""
    from sklearn.metrics import log_loss

    p = p.astype(float) / p.sum(axis=1, keepdims=True)
    place = np.searchsorted(classes, y)
    half = 2 if len(classes) == 2 else 1
    return {
        "log_loss": log_loss(y, p, labels=classes),
        "brier": float(np.mean(((p - np.eye(len(classes))[place]) ** 2).sum(axis=1)) / half),
        "error_of_calibration": calibration_error(p.max(axis=1), p.argmax(axis=1) == place),
    }


def probabilities() -> None:
    """One row for each table, machine and method."""
    import sklearn.svm
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import StratifiedKFold

    from jaxsvm.estimators import SVC, GridCV, LinearSVC

    table, folds = [], StratifiedKFold(5)
    for name in TABLES:
        x, y = rows(name)
        half = len(y) // 2
        train, test = (x[:half], y[:half]), (x[half:], y[half:])
        for kind in ("SVC", "LinearSVC"):
            machine, grid = (SVC(), {"C": 8, "gamma": 8}) if kind == "SVC" else (LinearSVC(), {"C": 8})
            search = GridCV(machine, grid, cv=folds)
            began = time.perf_counter()
            search.fit(*train)
            took = time.perf_counter() - began
            machine = sklearn.svm.SVC() if kind == "SVC" else sklearn.svm.LinearSVC(max_iter=10_000)
            machine.set_params(**search.best_params_)
            for method in ("sigmoid", "isotonic"):
                made, found = {}, {}
                theirs = CalibratedClassifierCV(machine, method=method, ensemble=False, cv=folds)
                selection, fit = search.selection_, functools.partial(theirs.fit, *train)
                jobs = {"ours": functools.partial(selection.calibrated, method), "theirs": fit}
                for who, job in jobs.items():
                    seconds = []
                    for _ in range(4):
                        began = time.perf_counter()
                        made[who] = job()
                        seconds.append(time.perf_counter() - began)
                    p = made[who].predict_proba(test[0])
                    found |= {f"{what}_{who}": f"{value:.4g}" for what, value in scores(p, test[1], search.classes_).items()}
                    found |= {f"first_s_{who}": f"{seconds[0]:.3g}", f"s_{who}": f"{statistics.median(seconds[1:]):.3g}"}
                row = {"table": name, "rows": half, "machine": kind, "method": method, "grid_s": f"{took:.3g}"}
                table.append(row | dict(sorted(found.items())))
                print(table[-1], flush=True)
    common.write("calibration_probabilities", table)


def coverage() -> None:
    """One row for each table and way of making sets."""
    import dataclasses

    import jax

    import jaxsvm
    from jaxsvm import kernels, losses

    table = []
    for name in ("breast_cancer", "wine", "iris", "digits", "diabetes"):
        x, y = rows(name)
        real = name == "diabetes"
        y = (y - y.mean()) / y.std() if real else y
        k = 0 if real else len(np.unique(y))

        def maker(C, k=k, d=x.shape[1]):
            loss = losses.hinge if k else losses.eps_insensitive(0.1)
            solver = jaxsvm.decomposition(C, kernels.rbf(gamma=1 / d), loss=loss)
            return jaxsvm.one_vs_rest(solver, classes=k) if k > 2 else solver

        rates: dict[str, list] = {"split": [], "CV+": [], "one model": []}
        sizes: dict[str, list] = {how: [] for how in rates}
        for seed in range(SPLITS):
            order = np.random.default_rng(seed).permutation(len(y))
            size = 2 * len(y) // 3
            train, test = order[:size], order[size:]
            task = "regression" if real else "multiclass" if k > 2 else None
            data = jaxsvm.dataset(x[train], y[train], task=task)
            part = lambda low, high, data=data: jaxsvm.take(data, np.arange(low, high))
            fit = jaxsvm.fit(maker(1.0), part(0, size // 2), jax.random.key(seed))
            found = jaxsvm.select(maker, data, jax.random.key(seed), C=np.ones(1), fold_models=True, progress=False)
            sets = {
                "split": jaxsvm.conformal(fit.model if real else fit.classifier, part(size // 2, size)),
                "CV+": found.conformal(),
                "one model": dataclasses.replace(found, fold_models=None).conformal(),
            }
            for how, made in sets.items():
                answer = made.predict(x[test])
                if real:
                    hit = (y[test] >= answer[:, 0]) & (y[test] <= answer[:, 1])
                    sizes[how].append(np.mean(answer[:, 1] - answer[:, 0]))
                else:
                    hit = answer[np.arange(len(test)), np.searchsorted(made.classes, y[test])]
                    sizes[how].append(np.mean(answer.sum(axis=1)))
                rates[how].append(np.mean(hit))
        for how in rates:
            error = np.std(rates[how], ddof=1) / SPLITS**0.5
            numbers = {"coverage": np.mean(rates[how]), "standard_error": error, "size": np.mean(sizes[how])}
            table.append({"table": name, "sets": how} | {what: f"{value:.4f}" for what, value in numbers.items()})
            print(table[-1], flush=True)
    common.write("calibration_coverage", table)


def main() -> None:
    """Run the parts that are named, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"probabilities": probabilities, "coverage": coverage}
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
