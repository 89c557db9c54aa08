"""`python -m benchmarks.ranking [cost] [rounds] [auc]`: the risks of ranking, and `ocas` on them.

cost: value and slope over all pairs of 100,000 rows, with 7 grades and with as many grades as rows, beside one sort of 200,000
numbers; in turns. At most 3 sorts for each grade are asked for. ranking_cost.csv.

rounds: rounds of `ocas` to relative gaps of 1e-2, 1e-3 and 1e-4 on 2,500 rows of winequality_white, standardised, 7 grades in
one query, in float64 and float32; asked for: 30 and 50 to 1e-3 at lam = 1e-2 and 1e-4. ranking_rounds.csv.

auc: the area under the curve on 5,000 rows of a9a of the minimiser on 5,000 others, lam = 1e-4, to a gap of 1e-3, beside that of
the hinge loss of single rows; at least 0.90 is asked for. ranking_auc.csv.
"""

from __future__ import annotations

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import losses, objectives
from jaxsvm.risks import risk_of

from .common import device, folder, load, side_by_side, write

KEY = jax.random.key(0)
ASKS = {1e-2: 30, 1e-4: 50}


def cost() -> None:
    """Seconds of value and slope, and of a sort."""
    n, rng = 100_000, np.random.default_rng(0)
    score = jnp.asarray(rng.normal(size=n), jnp.float32)
    numbers, sort = jnp.asarray(rng.normal(size=2 * n), jnp.float32), jax.jit(jnp.sort)
    functions = {"sort of 200,000": lambda: jax.block_until_ready(sort(numbers))}
    for grades, y in (("7 grades", rng.integers(0, 7, n)), ("100,000 grades", rng.permutation(n))):
        data = jaxsvm.dataset(np.asarray(score)[:, None], y, task="ranking")
        for loss in (losses.rank_hinge, losses.rank_squared_hinge):
            both = jax.jit(lambda data, score, loss=loss: risk_of(loss, data).value_and_slope(score))
            functions[f"{loss}, {grades}"] = lambda both=both, data=data: jax.block_until_ready(both(data, score))
    times = side_by_side(functions, repeats=7)
    rows = [{"what": name, "seconds": float(np.min(times[name])), "device": device()} for name in functions]
    for row in rows:
        row["sorts"] = row["seconds"] / rows[0]["seconds"]
    write("ranking_cost", rows)


def rounds() -> None:
    """Rounds of `ocas` to three gaps."""
    with np.load(folder() / "winequality_white.npz") as arrays:
        x, y = arrays["X_train"].astype(np.float64), arrays["y_train"]
    x = (x - x.mean(0)) / x.std(0)
    drawn, rows = np.random.default_rng(0).permutation(len(y))[:2500], []
    for x64 in (True, False):
        with jax.enable_x64(x64):
            data = jaxsvm.dataset(x[drawn], y[drawn], task="ranking")
            for lam, ask in ASKS.items():
                run = jaxsvm.fit(jaxsvm.ocas(lam, loss=losses.rank_hinge), data, KEY, steps=100, every=1, tol=1e-4)
                gaps = np.asarray(run.info.residual)
                row = {"lam": lam, "dtype": str(data.x.dtype), "asked": ask}
                row |= {f"to {gap:g}": int((gaps > gap).sum()) + 1 for gap in (1e-2, 1e-3, 1e-4)}
                rows.append(row | {"objective": float(objectives.primal(run.model, data, lam, losses.rank_hinge))})
    write("ranking_rounds", rows)


def auc() -> None:
    """The area under the curve of two losses."""
    x, y = load("a9a")
    order, rows = np.random.default_rng(0).permutation(len(y)), []
    train = jaxsvm.dataset(x[order[:5000]], y[order[:5000]], task="ranking")
    probe = objectives.auc_on(jaxsvm.dataset(x[order[5000:10000]], y[order[5000:10000]]))
    for loss in (losses.rank_hinge, losses.hinge):
        run = jaxsvm.fit(jaxsvm.ocas(1e-4, loss=loss), train, KEY, steps=200, every=1, tol=1e-3)
        rows.append({"loss": str(loss), "rounds": int(run.state.step), "auc": float(probe(run.model))})
    write("ranking_auc", rows)


PARTS = {"cost": cost, "rounds": rounds, "auc": auc}

if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
