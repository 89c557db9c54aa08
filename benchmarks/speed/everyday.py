"""What a user waits for: everyday jobs as whole processes, import and compilation included, beside scikit-learn.

    python -m benchmarks.speed.everyday [--repeats 3] [--only WORD]

A job is one text of code, run with the machines of either library, or two texts where the calls differ. It leaves its
answers in `score`. Seconds are those of the processor, user and system, medians of runs in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from .. import common

SETS = """
import warnings; warnings.filterwarnings("ignore")
import numpy as np
from sklearn import datasets, ensemble, feature_selection, inspection, model_selection as ms, multiclass, svm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
def rows(name):
    x, y = getattr(datasets, "load_" + name)(return_X_y=True)
    return StandardScaler().fit_transform(x), y
def shapes(count, most, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        n, d = int(10 ** rng.uniform(1.7, np.log10(most))), int(10 ** rng.uniform(0.5, 1.9))
        x = rng.normal(size=(n, d)).astype(np.float32)
        yield x, (x @ rng.normal(size=(d, i % 3 + 2))).argmax(axis=1)
"""
OURS = "import jax, jaxsvm\nfrom jaxsvm import kernels\nfrom jaxsvm.estimators import *\n"
THEIRS = "from sklearn.svm import *\nfrom sklearn.linear_model import SGDClassifier\n"
SAME = {  # the same calls of both
    "SVC, 10 folds, breast cancer": "score = ms.cross_val_score(SVC(), *rows('breast_cancer'), cv=10).mean()",
    "GridSearchCV of SVC, 25 cells x 5 folds, digits": """
x, y = rows('digits')
grid = {'C': np.logspace(-1, 3, 5), 'gamma': np.logspace(-4, 0, 5)}
score = ms.GridSearchCV(SVC(), grid, cv=5).fit(x, y).best_score_""",
    "RFECV of SVC and LinearSVC, breast cancer": """
x, y = rows('breast_cancer')
score = [feature_selection.RFECV(m, cv=5).fit(x, y).score(x, y) for m in (SVC(kernel='linear'), LinearSVC())]""",
    "forward selection of columns, SVC and LinearSVC, wine": """
x, y = rows('wine')
pick = lambda m: feature_selection.SequentialFeatureSelector(m, n_features_to_select=6, cv=5).fit(x, y)
score = [pick(m).support_.nonzero()[0].tolist() for m in (SVC(), LinearSVC())]""",
    "learning curve of SVC, digits": """
x, y = rows('digits')
sizes = np.linspace(0.1, 1, 8)
score = ms.learning_curve(SVC(), x, y, train_sizes=sizes, shuffle=True, random_state=0)[2].mean(axis=1).tolist()""",
    "bagging of 50 SVC, 2,000 rows": """
x, y = datasets.make_classification(2000, 20, n_informative=8, random_state=0)
score = ensemble.BaggingClassifier(SVC(), n_estimators=50, max_samples=0.3, random_state=0).fit(x, y).score(x, y)""",
    "AdaBoost of SVC, 1,000 rows": """
x, y = datasets.make_classification(1000, 20, n_informative=8, random_state=0)
score = ensemble.AdaBoostClassifier(SVC(kernel='linear', C=0.1), n_estimators=10, random_state=0).fit(x, y).score(x, y)""",
    "OneVsOneClassifier(LinearSVC()), digits": """
score = multiclass.OneVsOneClassifier(LinearSVC()).fit(*rows('digits')).score(*rows('digits'))""",
    "permutation importance of SVC, breast cancer": """
x, y = rows('breast_cancer')
score = inspection.permutation_importance(SVC().fit(x, y), x, y, n_repeats=10, random_state=0).importances_mean.sum()""",
    "SVC, leave one out, iris": "score = ms.cross_val_score(SVC(), *rows('iris'), cv=ms.LeaveOneOut()).mean()",
    "SVC(probability=True), 5 folds, breast cancer": """
score = ms.cross_val_score(SVC(probability=True), *rows('breast_cancer'), scoring='neg_log_loss').mean()""",
    "random search of 40 SVR, diabetes": """
x, y = rows('diabetes')
choices = {'C': np.logspace(-1, 3, 50), 'gamma': np.logspace(-4, 0, 50)}
score = ms.RandomizedSearchCV(SVR(), choices, n_iter=40, random_state=0).fit(x, y).best_score_""",
    "OneClassSVM, digits": "score = float((OneClassSVM(nu=0.05).fit(rows('digits')[0]).predict(rows('digits')[0]) < 0).mean())",
    "2,000 single rows predicted by SVC": """
x, y = rows('digits')
machine = SVC().fit(x, y)
score = int(sum(machine.predict(x[i % len(x)][None])[0] for i in range(2000)))""",
    "SVC and LinearSVC on 40 data sets of other shapes": """
fit = lambda m, x, y: m.fit(x, y).score(x, y)
score = [float(np.mean([fit(m(), x, y) for x, y in shapes(40, 2500)])) for m in (SVC, LinearSVC)]""",
}
OWN = {  # a text of ours, a text of theirs
    "jaxsvm.fit on 30 data sets of other shapes, pad=True": (
        """
def error(x, y):
    data = jaxsvm.dataset(x, np.where(y > 0, 1, -1), pad=True)
    run = jaxsvm.fit(jaxsvm.kernel_svm(C=1.0, kernel=kernels.rbf(gamma=1 / x.shape[1])), data, jax.random.key(0))
    return float(jaxsvm.error_on(data)(run.model))
score = np.mean([error(x, y) for x, y in shapes(30, 2500)])""",
        """
error = lambda x, y: 1 - SVC(gamma=1 / x.shape[1]).fit(x, y > 0).score(x, y > 0)
score = np.mean([error(x, y) for x, y in shapes(30, 2500)])""",
    ),
    "Pegasos.partial_fit, 500 batches": (
        """
x, y = datasets.make_classification(60000, 30, n_informative=10, random_state=0)
machine, ends = Pegasos(), np.random.default_rng(0).integers(1, 200, 500).cumsum()
for a, b in zip(ends[:-1], ends[1:]): machine.partial_fit(x[a:b], y[a:b], classes=[0, 1])
score = machine.score(x[ends[-1]:], y[ends[-1]:])""",
        """
x, y = datasets.make_classification(60000, 30, n_informative=10, random_state=0)
machine, ends = SGDClassifier(random_state=0), np.random.default_rng(0).integers(1, 200, 500).cumsum()
for a, b in zip(ends[:-1], ends[1:]): machine.partial_fit(x[a:b], y[a:b], classes=[0, 1])
score = machine.score(x[ends[-1]:], y[ends[-1]:])""",
    ),
}
COUNT = """
import json, resource
use = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": use.ru_utime + use.ru_stime, "score": str(np.round(score, 4)), "programs": len(compiled)}))
"""
LISTEN = """
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(seconds) if event.endswith("backend_compile_duration") else None)
"""


def once(library: str, text: str) -> dict:
    """Seconds of the processor, answers and compilations of one process."""
    start = OURS + LISTEN if library == "ours" else THEIRS + "compiled = []\n"
    command = [sys.executable, "-W", "ignore", "-c", SETS + start + text + COUNT]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """The table, as benchmarks/results/everyday.csv."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    table = []
    for job, texts in ({name: (text, text) for name, text in SAME.items()} | OWN).items():
        if args.only not in job:
            continue
        runs = {"ours": [], "theirs": []}
        for _ in range(args.repeats):
            for library, text in zip(runs, texts, strict=True):
                runs[library].append(once(library, text))
        seconds = {library: statistics.median(run["seconds"] for run in each) for library, each in runs.items()}
        row = {"job": job, **{f"{library}_s": f"{s:.1f}" for library, s in seconds.items()}}
        row |= {"ratio": f"{seconds['ours'] / seconds['theirs']:.2f}", "programs": runs["ours"][0]["programs"]}
        table.append(row | {f"score_{library}": each[0]["score"] for library, each in runs.items()})
        print(table[-1], flush=True)
    if not args.only:
        common.write("everyday", sorted(table, key=lambda row: float(row["ratio"])))


if __name__ == "__main__":
    main()
