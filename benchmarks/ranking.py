"""`python -m benchmarks.ranking [cost] [rounds] [auc] [newton]`: the risks of ranking, and `ocas` on them.

cost: value and slope over all pairs of 100,000 rows, with 7 grades and with as many grades as rows, beside one sort of 200,000
numbers; in turns. At most 3 sorts for each grade are asked for. ranking_cost.csv.

rounds: rounds of `ocas` to relative gaps of 1e-2, 1e-3 and 1e-4 on 2,500 rows of winequality_white, standardised, 7 grades in
one query, in float64 and float32; asked for: 30 and 50 to 1e-3 at lam = 1e-2 and 1e-4. ranking_rounds.csv.

auc: the area under the curve on 5,000 rows of a9a of the minimiser on 5,000 others, lam = 1e-4, to a gap of 1e-3, beside that of
the hinge loss of single rows; at least 0.90 is asked for. ranking_auc.csv.

newton: seconds of `ocas` and of `newton` on the squared hinge loss of pairs to a relative gap of 1e-3, 300 rounds of `ocas` at
most, and of `newton` to 1e-6: white wine, a9a, and 100,000 rows of covtype with its 7 classes as grades. seconds: of a second
call, whose programs are compiled; above: the objective beside the least of the row's data and lam, which is that of `newton` in
float64 to 1e-12. ranking_newton.csv.
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

from .common import device, folder, load, side_by_side, timed, write

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
    x, y = _wine()
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


def newton() -> None:
    """Seconds of two solvers of the squared hinge loss to the same gap."""
    loss, rows = losses.rank_squared_hinge, []
    for name, (x, y) in {"winequality_white": _wine(), "a9a": load("a9a"), "covtype": _covtype()}.items():
        data = jaxsvm.dataset(x.astype(np.float32), y, task="ranking")
        for lam in (1e-2, 1e-4):
            with jax.enable_x64(True):
                exact = jaxsvm.dataset(x.astype(np.float64), y, task="ranking")
                model = jaxsvm.fit(jaxsvm.newton(lam, loss=loss, tol=1e-12), exact, KEY, steps=1).model
                least = float(objectives.primal(model, exact, lam, loss))
            for solver, tol in (("ocas", 1e-3), ("newton", 1e-3), ("newton", 1e-6)):
                made = jaxsvm.ocas(lam, loss=loss) if solver == "ocas" else jaxsvm.newton(lam, loss=loss, tol=tol)
                options = {"steps": 300, "every": 5, "tol": tol} if solver == "ocas" else {"steps": 1}
                go = lambda made=made, options=options, data=data: jaxsvm.fit(made, data, KEY, **options)
                compile_s = timed(go)[1]
                run, seconds = timed(go)
                rounds = int(run.state.step if solver == "ocas" else run.state.solver.steps)
                row = {"data": name, "rows": len(y), "lam": lam, "solver": solver, "tol": tol, "seconds": seconds}
                row |= {"first_call": compile_s, "rounds": rounds, "gap": float(run.info.residual[-1])}
                with jax.enable_x64(True):
                    model = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float64), run.model)
                    row["above"] = float(objectives.primal(model, exact, lam, loss)) / least - 1
                rows.append(row | {"device": device()})
                write("ranking_newton", rows)


def _wine() -> tuple[np.ndarray, np.ndarray]:
    """winequality_white, standardised, with its grades."""
    with np.load(folder() / "winequality_white.npz") as arrays:
        x, y = arrays["X_train"].astype(np.float64), arrays["y_train"]
    return (x - x.mean(0)) / x.std(0), y


def _covtype() -> tuple[np.ndarray, np.ndarray]:
    """100,000 rows of covtype with columns in [0, 1], and the numbers of its classes."""
    x, _ = load("covtype")
    with np.load(folder() / "covtype.npz") as arrays:
        classes = arrays["y_train"]
    drawn = np.random.default_rng(0).permutation(len(classes))[:100_000]
    return x[drawn], classes[drawn]


PARTS = {"cost": cost, "rounds": rounds, "auc": auc, "newton": newton}

if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
