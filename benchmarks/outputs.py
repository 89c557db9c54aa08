"""`python -m benchmarks.outputs [kernel] [text]`: several targets for each row, beside scikit-learn's.

kernel: 20 labels on 2,000 rows of 20 columns, the RBF kernel: `fit(multi_output(kernel_svm(...)))` beside one of the labels, and
    `MultiOutputClassifier(SVC)` beside one `SVC`.
text: the 500 commonest words of reuters as labels of documents that hold the others (7,770 x 7,815, sparse, rows of length 1):
    `fit(multi_output(dual_descent(...)))`, beside `OneVsRestClassifier(LinearSVC, n_jobs=2)`.
Seconds are medians of five, in turns, after a first call, which is named apart.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import numpy as np

from . import common

TARGETS, ROWS, COLUMNS, WORDS = 20, 2000, 20, 500


def timed(functions: dict, repeats: int) -> tuple[dict, dict]:
    """Seconds of the first call, and the medians of others in turns."""
    first = {}
    for name, function in functions.items():
        start = time.perf_counter()
        jax.block_until_ready(function())
        first[name] = time.perf_counter() - start
    later = common.side_by_side(functions, repeats)
    return first, {name: statistics.median(seconds) for name, seconds in later.items()}


def kernel(repeats: int) -> list[dict]:
    """Seconds of one label and of twenty."""
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.svm import SVC

    import jaxsvm

    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    hidden = np.tanh(x @ random.normal(size=(COLUMNS, TARGETS))) + 0.5 * random.normal(size=(ROWS, TARGETS))
    y = (hidden > 0).astype(int)
    every, one = jaxsvm.dataset(x, y), jaxsvm.dataset(x, y[:, 0])
    machine = jaxsvm.kernel_svm(1.0, jaxsvm.kernels.rbf(gamma=0.05))
    together = jaxsvm.multi_output(machine, outputs=TARGETS)
    key, peer = jax.random.key(0), SVC(gamma=0.05)
    run = {}
    functions = {
        "one": lambda: jaxsvm.fit(machine, one, key).model,
        "all": lambda: jaxsvm.fit(together, every, key).model,
        "SVC": lambda: peer.fit(x, y[:, 0]) and None,
        "MultiOutputClassifier": lambda: run.update(peer=MultiOutputClassifier(peer).fit(x, y)),
    }
    first, seconds = timed(functions, repeats)
    values = np.stack([each.decision_function(x) for each in run["peer"].estimators_], 1)
    off = float(np.abs(values - np.asarray(jaxsvm.fit(together, every, key).model(x))).max())
    return [
        {
            "job": name,
            "first_call_s": first[name],
            "seconds": seconds[name],
            "times_one": seconds[name] / seconds["one" if name in ("one", "all") else "SVC"],
            "largest_difference_of_values": off,
        }
        for name in functions
    ]


def words(count: int) -> tuple:
    """Documents without their commonest words, and which of these they hold."""
    import scipy.sparse

    x = scipy.sparse.csr_matrix(common.load_sparse("reuters_money_fx")[0])
    holding = np.asarray((x != 0).sum(axis=0)).ravel()
    common_words = np.argsort(-holding, kind="stable")[:count]
    y = np.asarray((x[:, common_words] != 0).toarray(), int)
    x = x[:, np.setdiff1d(np.arange(x.shape[1]), common_words)].astype(np.float32)
    norm = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    scale = scipy.sparse.diags(1 / np.where(norm > 0, norm, 1))
    return scipy.sparse.csr_matrix(scale @ x, dtype=np.float32), y


def objective(x, y: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """That of LIBLINEAR for each label, in float64, C = 1."""
    loss = np.maximum(0, 1 - (2 * y - 1) * (np.asarray(x.astype(float) @ coef.T) + intercept[None, :])) ** 2
    return 0.5 * ((coef**2).sum(axis=1) + intercept**2) + loss.sum(axis=0)


def text(repeats: int) -> list[dict]:
    """Seconds and objectives of 500 labels."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    import jaxsvm

    x, y = words(WORDS)
    solver = jaxsvm.dual_descent(1.0, loss=jaxsvm.losses.squared_hinge)
    together, key = jaxsvm.multi_output(solver, outputs=WORDS), jax.random.key(0)
    run = {}
    functions = {
        "dataset and fit": lambda: run.update(fit=jaxsvm.fit(together, jaxsvm.dataset(x, y), key)),
        "OneVsRestClassifier, n_jobs=2": lambda: run.update(peer=OneVsRestClassifier(LinearSVC(), n_jobs=2).fit(x, y)),
    }
    first, seconds = timed(functions, repeats)
    inner, peers = run["fit"].model.inner, run["peer"].estimators_
    weights = {
        "dataset and fit": (np.asarray(inner.w, float), np.asarray(inner.b, float)),
        "OneVsRestClassifier, n_jobs=2": (
            np.concatenate([each.coef_ for each in peers]),
            np.concatenate([each.intercept_ for each in peers]),
        ),
    }
    objectives = {name: objective(x, y, *pair) for name, pair in weights.items()}
    best = np.min(list(objectives.values()), axis=0)
    return [
        {
            "job": name,
            "first_call_s": first[name],
            "seconds": seconds[name],
            "objective": float(objectives[name].sum()),
            "largest_above_best": float((objectives[name] / best - 1).max()),
        }
        for name in functions
    ]


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="kernel, text; none: all")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    parts = {"kernel": kernel, "text": text}
    for part in args.parts or parts:
        rows = parts[part](args.repeats)
        common.write(f"outputs_{part}", rows)
        for row in rows:
            print(part, *(f"{name} {value:.4g}" if isinstance(value, float) else value for name, value in row.items()))


if __name__ == "__main__":
    main()
