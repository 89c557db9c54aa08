"""`python -m benchmarks.block [optimum] [gap]`: dual ascent on features, in blocks of rows and on active rows.

optimum: seconds to 0.1 per cent of the optimum, `sdca` in blocks against LinearSVC. 16,384 rows of adult, gamma = 0.05,
512 features at C = 0.61 and 1,024 at C = 6.1. The optimum is LinearSVC's at tol=1e-4. Every way does as much work as it
needs to come within 0.1 per cent (for LinearSVC the loosest tolerance that does), and is then timed in turns with the others;
compilation is left out. block.csv.

gap: seconds to a relative duality gap, worked out in float64, of `sdca(10.0)` with `samplers.shrinking(16)` and with
`samplers.active_rows()`; 1,024 Nystrom features of 32,561 rows of a9a and 60,000 of covtype. Each runs to the loosest
of eight tolerances that reaches the gap; medians of three in turns. block_gap.csv.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from sklearn.svm import LinearSVC

import jaxsvm
from jaxsvm import features, kernels, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef

from .common import load, side_by_side, write

N, KEY, KERNEL = 16_384, jax.random.key(0), kernels.rbf(gamma=0.05)
FEEDS = {
    "blocks of 16": (16, samplers.epochs(16)),
    "blocks of 16, shrinking": (16, samplers.shrinking(16)),
    "blocks of 32, shrinking": (32, samplers.shrinking(32)),
}


def compare(kind: str, width: int, C: float) -> list[dict]:
    """One kind of features and one C."""
    rows, labels = load("a9a")
    raw = jaxsvm.dataset(rows[:N], labels[:N])
    if kind == "nystrom":
        phi = features.nystrom(KEY, KERNEL, raw.x, landmarks=width)
    else:
        phi = features.fourier(KEY, KERNEL, dim=raw.x.shape[1], features=width)
    solver = jaxsvm.sdca(C)
    train = jax.block_until_ready(jaxsvm.on_features(phi, solver).prepare(raw))
    lam, x, y = 1 / (C * N), np.asarray(train.x, np.float64), np.asarray(train.y)

    def objective(w):
        w = np.asarray(w, np.float64).ravel()
        return float(lam / 2 * w @ w + np.maximum(0, 1 - y * (x @ w)).mean())

    def linear_svc(tol):
        return LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=tol, max_iter=100_000, random_state=0).fit(x, y)

    best = objective(linear_svc(1e-4).coef_)
    close = lambda w: objective(w) <= 1.001 * best
    tol = next(t for t in (1, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.02) if close(linear_svc(t).coef_))
    ways, effort = {"LinearSVC": lambda: linear_svc(tol).coef_}, {"LinearSVC": f"tol={tol}, {linear_svc(tol).n_iter_} passes"}
    for label, (b, sampler) in FEEDS.items():
        feed = {"every": N // b, "sampler": sampler}
        run, passes = jaxsvm.fit(solver, train, KEY, steps=N // b, **feed), 1
        while not close(run.model.w) and passes < 200:
            run, passes = jaxsvm.fit(solver, train, steps=N // b, state=run.state, **feed), passes + 1
        effort[label] = f"visits of {passes} passes" + ("" if close(run.model.w) else " (not reached)")
        ways[label] = lambda feed=feed, steps=passes * N // b: jaxsvm.fit(solver, train, KEY, steps=steps, **feed).model.w
    seconds = side_by_side(ways, repeats=9)
    found = []
    for label, taken in seconds.items():
        ratio = np.median(np.array(seconds["LinearSVC"]) / np.array(taken))
        found.append(
            {
                "features": kind,
                "width": width,
                "C": C,
                "method": label,
                "effort": effort[label],
                "median_s": round(float(np.median(taken)), 3),
                "LinearSVC_to_this": round(float(ratio), 2),
            }
        )
    return found


LARGE = {"a9a": (32_561, 0.05), "covtype": (60_000, 2.0)}  # rows, gamma
WAYS = {"shrinking(16)": (16, samplers.shrinking(16)), "active_rows()": (1, samplers.active_rows())}
TOLS, GAPS, STRENGTH = tuple(10 ** (-k / 3) for k in range(2, 10)), (1e-3, 1e-4, 1e-5), 10.0


def relative_gap(x: np.ndarray, y: np.ndarray, run) -> float:
    """Primal minus dual over primal, in float64."""
    w = np.asarray(run.model.w, float)
    coef = np.asarray(dual_coef(run.state.solver), float)
    primal = w @ w / 2 + STRENGTH * np.maximum(0, 1 - y * (x @ w)).sum()
    dual = np.abs(coef).sum() - ((coef @ x) ** 2).sum() / 2
    return (primal - dual) / primal


def to_gaps(name: str) -> list[dict]:
    """Seconds of both ways to three gaps on one data set."""
    n, gamma = LARGE[name]
    rows, labels = (a[:n] for a in load(name))
    phi = features.nystrom(KEY, kernels.rbf(gamma=gamma), rows, landmarks=1024)
    lifted = np.concatenate([np.asarray(phi(rows[i : i + 8192])) for i in range(0, n, 8192)])
    data, x, y = jaxsvm.dataset(lifted, labels), lifted.astype(float), labels.astype(float)
    solver, tols = jaxsvm.sdca(STRENGTH), {}

    def fit(way: str, tol: float):
        b, sampler = WAYS[way]
        return jaxsvm.fit(solver, data, KEY, tol=tol, steps=1000 * n // b, sampler=sampler)

    for way in WAYS:
        gaps = {tol: relative_gap(x, y, fit(way, tol)) for tol in TOLS}
        for goal in GAPS:
            tols[goal, way] = next(((tol, gap) for tol, gap in gaps.items() if gap <= goal), None)
    table = []
    for goal in GAPS:
        reached = {way: tols[goal, way] for way in WAYS if tols[goal, way]}
        seconds = side_by_side({way: lambda way=way, tol=tol: fit(way, tol).model.w for way, (tol, _) in reached.items()}, 3)
        medians = {way: float(np.median(times)) for way, times in seconds.items()}
        for way, (tol, gap) in reached.items():
            share = f"{medians[way] / medians['shrinking(16)']:.2f}" if "shrinking(16)" in medians else ""
            row = {"rows": f"{name} {n}", "gap": goal, "sampler": way, "tol": f"{tol:.2g}", "gap_reached": f"{gap:.2g}"}
            table.append(row | {"median_s": f"{medians[way]:.3g}", "share_of_shrinking": share})
    return table


def main() -> None:
    """The tables."""
    parts = sys.argv[1:] or ("optimum", "gap")
    if "gap" in parts:
        write("block_gap", [row for name in LARGE for row in to_gaps(name)])
    if "optimum" not in parts:
        return
    cases = [(kind, width, C) for width, C in ((512, 0.61), (1024, 6.1)) for kind in ("nystrom", "fourier")]
    write("block", [row for case in cases for row in compare(*case)])


if __name__ == "__main__":
    main()
