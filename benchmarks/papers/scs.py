"""`python -m benchmarks.papers.scs [table] [skin] [evals] [figure]`: conjugate subgradients beside Pegasos.

The experiments of Zhang and Sen (A stochastic conjugate subgradient algorithm for kernelized support vector machines): its data
sets at its sizes, rows drawn once. Labels, of which the paper says nothing: red wine of a quality above 6 (above 5 the optimum is
right on 75 to 77 per cent, the paper's methods on 86); avila's commonest class, A, against the rest. Rows of avila and occupancy
from the source's training files. Gaussian kernel with gamma = 1/d on columns of mean 0 and deviation 1; the
paper says neither gamma nor lam, and its objective is printed with lam = 1. No bias. Objectives are of all training rows, in
float64 from products in float32. above: (objective - optimum) / optimum, the optimum of `decomposition` at a violation of 1e-4
(for lam = 1 sum_i y_i phi(x_i) / n), empty where that took more than two minutes. A step of `scs` costs kernel evaluations only
while its sample grows. Programs are compiled before the clock starts.

table: the paper's table 1, four fifths of the rows to train on, one split; single steps of Pegasos as many as there are rows,
10,000 at most. Means and deviations (_dev) over 20 seeds, 5 of the two largest sets, which are one vmapped program (seconds_all);
seconds: one seed by itself; compile_s: its program, once for the three lam; evals of a seed; above_most: the worst seed. `wolfe`
stops at a relative duality gap of 1e-3, after 5,000 steps or five minutes.
skin: 200,000 rows, `scs` with a capacity of 2,000, and single steps of Pegasos until the objective of `scs` after 50 steps is
reached, ten minutes at most, looked at each time the steps have grown by a tenth.
evals: objective against kernel evaluations and seconds, 2,000 rows at most; five seeds. Full-batch Pegasos makes 50 steps, single
steps are 50 passes, `scs` of all rows makes 200 steps.
figure: the paper's figures 1 and 2, objective against iterations and seconds, one seed, and the curves of evals.

Names of data sets leave out the others. `--rows`: so many rows at most instead of each part's own; `--out`: another folder for
the results. Runs that are in their files are not made again.
"""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, samplers
from jaxsvm.kernels import matvec

from .. import common
from ..common import Results, column, panels, saved, timed

KEY = jax.random.key(0)
SETTINGS = {  # rows; what the paper has for Pegasos, SCS and Wolfe's method: accuracies and seconds
    "heart_attack": (273, (0.833, 0.750), (0.833, 6.121), (0.833, 1.481)),
    "breast_cancer_wdbc": (500, (0.95, 1.147), (0.97, 4.921), (0.97, 2.289)),
    "winequality_red": (680, (0.855, 3.933), (0.86, 12.497), (0.87, 4.195)),
    "avila": (2_000, (0.714, 5.602), (0.718, 38.266), (0.726, 32.978)),
    "magic04": (5_000, (0.735, 25.992), (0.740, 33.256), ("", "")),
    "occupancy": (7_500, (0.974, 56.549), (0.976, 39.887), ("", "")),
    "skin_nonskin": (200_000, (0.93, 176.454), (0.97, 19.684), ("", "")),
}
POSITIVE = {"winequality_red": lambda y: y > 6, "avila": lambda y: y == 0}
LAMS = (1.0, 1e-2, 1e-3)
WHOLE = 20_000  # rows from which no method that looks at all of them in each step takes part
MOST = 1_000  # steps in one call
PROBLEM = ("data", "rows", "gamma", "lam")


class Problem:
    """Rows to train on and to test on, and the optima once they are known."""

    def __init__(self, name: str, rows: int | None = None, share: float = 1.0):
        x, y = common.load(name)
        n = min(rows or SETTINGS[name][0], SETTINGS[name][0])
        drawn = np.random.default_rng(0).permutation(len(y))[:n]
        x, y = x[drawn].astype(np.float64), np.where(POSITIVE.get(name, lambda y: y > 0)(y[drawn]), 1, -1)
        n = round(share * n)
        scale = x[:n].std(0)
        x = ((x - x[:n].mean(0)) / np.where(scale > 0, scale, 1)).astype(np.float32)
        self.name, self.n, self.gamma = name, n, 1 / x.shape[1]
        self.train = jaxsvm.dataset(x[:n], y[:n])
        self.y, self.x_test, self.y_test = y[:n], x[n:], y[n:]
        self.kernel, self.optima = kernels.rbf(gamma=self.gamma), {}

    def key(self, lam: float) -> dict:
        """What a run's rows in a file begin with."""
        return dict(zip(PROBLEM, (self.name, self.n, f"{self.gamma:.4g}", lam), strict=True))

    def exact(self, lam: float) -> dict:
        """The optimum: what it is worth, and its seconds; nothing where it took too long."""
        if lam not in self.optima:
            coef, seconds = self.train.y / (lam * self.n), ""
            if lam < 1:
                solver = jaxsvm.decomposition(1 / (lam * self.n), self.kernel, bias="none", tol=1e-4)
                go = lambda: jaxsvm.fit(solver, self.train, KEY, steps=MOST, every=1, tol=1e-4, seconds=120)
                run, seconds = timed(go)
                if run.converged and seconds < 30:
                    run, seconds = timed(go)  # the first one compiled
                coef = run.model.coef if run.converged else None
            self.optima[lam] = {} if coef is None else {"seconds": seconds} | self.judged(lam, [coef])[0]
        return self.optima[lam]

    def judged(self, lam: float, coefs: list, index: list | None = None) -> list[dict]:
        """Objective and accuracy of expansions over the training rows, by one pass over the kernel."""
        all_rows = np.zeros((self.n, len(coefs)), np.float32)
        for k, coef in enumerate(coefs):
            all_rows[slice(None) if index is None else np.asarray(index[k]), k] = coef
        used = np.flatnonzero(all_rows.any(1))
        z, kept = np.asarray(self.train.x)[used], all_rows[used]
        room = (-len(used) % 1024, 0)  # of few shapes, for few programs
        z, kept = (np.pad(a, ((0, room[0]), (0, 0))) for a in (z, kept))
        inner = values(self.kernel, self.train.x, z, kept).astype(np.float64)
        held = values(self.kernel, self.x_test, z, kept) if len(self.x_test) else None
        found = []
        for k in range(len(coefs)):
            square = all_rows[:, k].astype(np.float64) @ inner[:, k]
            row = {"objective": lam / 2 * square + np.maximum(0, 1 - self.y * inner[:, k]).mean()}
            found.append(row | ({} if held is None else {"accuracy": np.mean((held[:, k] > 0) == (self.y_test > 0))}))
        return found


def values(kernel, x, z, coefs) -> np.ndarray:
    """sum_j coefs_jc k(x_i, z_j), (n, c)."""
    return np.asarray(_values(kernel, x, z, coefs))


@jax.jit
def _values(kernel, x, z, coefs):
    return matvec(kernel, x, z, coefs, 256)


def above(row: dict, best: dict, name: str = "objective") -> float | str:
    """How far an objective is above the optimum, as a share; nothing where that is not known."""
    return row[name] / best["objective"] - 1 if best else ""


class Method:
    """A solver to be made of lam and a kernel, its steps, and whether seeds matter."""

    def __init__(self, make, steps: int, sampler=None, drawn: bool = True):
        self.make, self.steps, self.sampler, self.drawn = make, steps, sampler, drawn

    def program(self, problem: Problem):
        """(lam, keys, data) -> two expansions a key, after 50 steps and at the end, and the kernel evaluations of each."""

        def one(lam, key, data):
            solver = self.make(lam, problem.kernel)
            first = jaxsvm.fit(solver, data, key, steps=50, every=50, sampler=self.sampler)
            if self.steps == 50:
                return first.model.coef, first.model.coef, first.model.index, jnp.sum(first.info.evals)
            rest = self.steps - 50
            run = jaxsvm.fit(solver, data, steps=rest, every=rest, state=first.state, sampler=self.sampler)
            return first.model.coef, run.model.coef, run.model.index, jnp.sum(first.info.evals) + jnp.sum(run.info.evals)

        return jax.jit(lambda lam, keys, data: jax.vmap(lambda key: one(lam, key, data))(keys))


def methods(n: int, capacity: int) -> dict:
    """The methods for so many rows, beside Wolfe's."""
    scs = functools.partial(jaxsvm.scs, capacity=min(n, capacity))
    found = {"scs, 50 steps": Method(scs, 50), "scs": Method(scs, 200)}
    if n <= WHOLE:
        found["kernel_pegasos, all rows"] = Method(jaxsvm.kernel_pegasos, 50, samplers.whole(), drawn=False)
    found["kernel_pegasos, one row"] = Method(jaxsvm.kernel_pegasos, max(51, min(n, 10_000)))
    return found


def problems(options, share: float = 1.0, most: int | None = None):
    """The data sets asked for, one after the other."""
    for name in options.data or SETTINGS:
        yield Problem(name, min(options.rows or SETTINGS[name][0], most or SETTINGS[name][0]), share)


TABLE = (
    "seeds", "steps", "evals", "objective_50", "objective_50_dev", "objective", "objective_dev", "above_50", "above",
    "above_most", "accuracy", "accuracy_dev", "paper_accuracy", "seconds", "seconds_all", "compile_s", "paper_s",
)  # fmt: skip


def table(options) -> None:
    """Accuracy, seconds and objective."""
    results = Results("scs_table", (*PROBLEM, "method"), TABLE)
    for problem in problems(options, share=0.8):
        ways = methods(problem.n, 1_000)
        seeds = 5 if problem.name in ("occupancy", "skin_nonskin") else 20
        compiled = {}
        for lam in LAMS:
            runs = {m: problem.key(lam) | {"method": m} for m in ("optimum", *ways, *(["wolfe"] if problem.n <= WHOLE else []))}
            if all(results.of(run) for run in runs.values()):
                continue
            best = problem.exact(lam)
            if not results.of(runs["optimum"]):
                results.add(runs["optimum"], [best])
            for name, run in runs.items():
                if name == "optimum" or results.of(run):
                    continue
                known = compiled.setdefault(name, {})
                if name == "wolfe":
                    row, early, late = by_wolfe(problem, lam, known)
                else:
                    row, early, late = by_seeds(problem, lam, ways[name], known, seeds if ways[name].drawn else 1)
                paper = SETTINGS[problem.name][1 if "pegasos" in name else 3 if name == "wolfe" else 2]
                results.add(run, [row | told(early, late, best) | dict(zip(("paper_accuracy", "paper_s"), paper, strict=True))])


def told(early: list[dict], late: list[dict], best: dict) -> dict:
    """Objectives after 50 steps and at the end, and accuracies at the end, over seeds."""
    found = {"objective_50": [row["objective"] for row in early]} | {
        k: [row[k] for row in late] for k in ("objective", "accuracy")
    }
    row = {k: np.mean(v) for k, v in found.items()}
    row |= {f"{k}_dev": np.std(v) for k, v in found.items() if len(v) > 1}
    row |= {"above_50": above(row, best, "objective_50"), "above": above(row, best)}
    return row | {"above_most": above({"objective": max(found["objective"])}, best)}


def by_seeds(problem: Problem, lam: float, method: Method, compiled: dict, seeds: int) -> tuple:
    """One program for all seeds, and one for the first alone; `compiled` keeps both, as lam is an argument.

    Returns:
        What was spent, and what the models after 50 steps and at the end are worth.
    """
    keys, lam32, row = jax.random.split(KEY, seeds), jnp.float32(lam), {"seeds": seeds, "steps": method.steps}
    for many in sorted({1, seeds}):
        program = method.program(problem)
        if many not in compiled:
            began = time.perf_counter()
            ready = program.lower(lam32, keys[:many], problem.train).compile()
            compiled[many] = ready, time.perf_counter() - began
        go, compile_s = compiled[many]
        found, seconds = timed(lambda go=go, many=many: go(lam32, keys[:many], problem.train))
        row |= {"seconds": seconds, "compile_s": compile_s} if many == 1 else {"seconds_all": seconds}
    early, late, index, evals = map(np.asarray, found)
    judged = problem.judged(lam, [*early, *late], [*index, *index])
    row["evals"] = float(evals.mean())
    return row, judged[:seeds], judged[seeds:]


def by_wolfe(problem: Problem, lam: float, compiled: dict) -> tuple:
    """Wolfe's method until its gap is small enough; returns as `by_seeds`."""
    solver = jaxsvm.wolfe(lam, problem.kernel)
    go = functools.partial(jaxsvm.fit, solver, problem.train, every=10, tol=1e-3)
    if not compiled:
        compiled["seconds"] = timed(lambda: go(KEY, steps=10))[1]

    def both():
        first = go(KEY, steps=50)
        return first, first if first.converged else go(state=first.state, steps=4_950, seconds=300)

    (first, run), seconds = timed(both)
    early, late = problem.judged(lam, [first.model.coef, run.model.coef])
    evals = first.evals + (run.evals if run is not first else 0)
    row = {"seeds": 1, "steps": int(run.state.step), "seconds": seconds, "compile_s": compiled["seconds"], "evals": evals}
    return row, [early], [late]


def curve(problem: Problem, solver, looks: list, sampler=None, key=KEY) -> tuple[list, list[dict]]:
    """Models and rows after so many steps; the start counts, compilation does not."""
    # Fewer steps than `every` are one piece of a length that is not compiled in: one program for all.
    go = functools.partial(jaxsvm.fit, solver, problem.train, every=MOST + 1, sampler=sampler)
    jax.block_until_ready(go(key, steps=1))  # compiles
    made, spent, seconds, found, models = 0, 0, 0.0, [], []
    for look in looks:
        if look <= MOST:  # from the start, in one call: it would be the calls that are timed
            run, seconds = timed(lambda look=look: go(key, steps=look))
            made, spent = look, run.evals
        while made < look:
            steps = min(MOST, look - made)
            run, took = timed(lambda run=run, steps=steps: go(steps=steps, state=run.state))
            made, spent, seconds = made + steps, spent + run.evals, seconds + took
        models.append(run.model)
        found.append({"steps": made, "evals": spent, "passes": spent / problem.n**2, "seconds": seconds})
    return models, found


def objectives_of(problem: Problem, lam: float, models: list) -> list[float]:
    coefs, index = [np.asarray(m.coef) for m in models], [m.index for m in models]
    return [row["objective"] for row in problem.judged(lam, coefs, index)]


def skin(options) -> None:
    """200,000 rows: seconds to the same objective, and memory."""
    results = Results("scs_skin", (*PROBLEM, "method"), ("capacity", "steps", "evals", "seconds", "objective", "goal", "met"))
    problem, capacity = Problem("skin_nonskin", options.rows), min(2_000, options.rows or 2_000)
    for lam in (1e-2, 1e-3):
        run = problem.key(lam) | {"method": "scs"}
        if not results.of(run):
            models, found = curve(problem, jaxsvm.scs(lam, problem.kernel, capacity=capacity), [10, 20, 50, 100, 200])
            values = objectives_of(problem, lam, models)
            rows = [row | {"objective": f} for row, f in zip(found, values, strict=True)]
            results.add(run, [row | {"capacity": capacity, "goal": f"{values[2]:.9g}"} for row in rows])
        goal, run = float(results.of(run)[0]["goal"]), problem.key(lam) | {"method": "kernel_pegasos, one row"}
        if not results.of(run):
            results.add(run, until(problem, lam, goal))


def until(problem: Problem, lam: float, goal: float) -> list[dict]:
    """Single steps of Pegasos until the objective of all rows is at most `goal`: every look is a row."""
    go = functools.partial(jaxsvm.fit, jaxsvm.kernel_pegasos(lam, problem.kernel), problem.train, every=MOST + 1)
    jax.block_until_ready(go(steps=1, state=go(KEY, steps=0).state))  # compiles
    run, seconds = timed(lambda: go(KEY, steps=0))
    made, spent, found, y = 0, 0, [], np.asarray(problem.y, np.float64)
    while seconds < 600:
        steps = max(50, made // 10)
        for part in [MOST] * (steps // MOST) + [steps % MOST]:
            run, took = timed(lambda run=run, part=part: go(steps=part, state=run.state))
            made, spent, seconds = made + part, spent + run.evals, seconds + took
        # The responses of all rows are in the state: no kernel evaluations for the objective.
        f, coef = run.state.solver.f, np.asarray(run.model.coef, np.float64)
        response = (np.asarray(f.response, np.float64) + np.asarray(f.compensation, np.float64)) / (lam * made)
        value = lam / 2 * coef @ response + np.maximum(0, 1 - y * response).mean()
        met = value <= goal
        found.append({"steps": made, "evals": spent, "seconds": seconds, "objective": value, "goal": f"{goal:.9g}", "met": met})
        if met:
            break
    return found


CURVE = ("seeds", "steps", "evals", "passes", "seconds", "objective", "objective_dev", "above")


def evals(options) -> None:
    """Objective against kernel evaluations."""
    results = Results("scs_evals", (*PROBLEM, "method"), CURVE)
    for problem in problems(options, most=2_000):
        n = problem.n
        tenths = [max(1, n * k // 10) for k in range(1, 10)]
        ways = {
            "scs": (functools.partial(jaxsvm.scs, capacity=n), [*range(1, 21), 25, 30, 40, 50, 75, 100, 150, 200], None, 5),
            "kernel_pegasos, all rows": (jaxsvm.kernel_pegasos, [*range(1, 11), 15, 20, 30, 40, 50], samplers.whole(), 1),
            "kernel_pegasos, one row": (jaxsvm.kernel_pegasos, tenths + [n * k for k in (1, 2, 3, 5, 10, 20, 30, 50)], None, 5),
        }
        for lam in (1e-2, 1e-3):
            for name, (make, looks, sampler, seeds) in ways.items():
                run = problem.key(lam) | {"method": name}
                if results.of(run):
                    continue
                made, values = [], []
                for key in jax.random.split(KEY, seeds):
                    models, rows = curve(problem, make(lam, problem.kernel), looks, sampler, key)
                    made.append(rows)
                    values.append(objectives_of(problem, lam, models))
                best, values = problem.exact(lam), np.array(values)
                mean = [{k: np.mean([row[k] for row in each]).item() for k in each[0]} for each in zip(*made, strict=True)]
                rows = [row | {"steps": int(row["steps"]), "objective": v} for row, v in zip(mean, values.mean(0), strict=True)]
                spread = [{"objective_dev": v} if seeds > 1 else {} for v in values.std(0)]
                results.add(run, [a | b | {"seeds": seeds, "above": above(a, best)} for a, b in zip(rows, spread, strict=True)])


STYLES = {"scs": "C0o-", "kernel_pegasos, all rows": "C1s-", "kernel_pegasos, one row": "C2^-", "wolfe": "C3-"}


def figure(options) -> None:
    """The paper's figures 1 and 2."""
    results = Results("scs_figure", (*PROBLEM, "method"), ("optimum", *CURVE[1:6], "above"))
    looks = [1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50]
    for problem in problems(options):
        small = problem.n <= WHOLE
        ways = {"scs": (functools.partial(jaxsvm.scs, capacity=min(problem.n, 1_000)), [*looks, 75, 100, 200], None)}
        if small:
            ways["kernel_pegasos, all rows"] = jaxsvm.kernel_pegasos, looks, samplers.whole()
            ways["wolfe"] = jaxsvm.wolfe, looks, None
        later = [k for k in (100, 200, 500, 1_000, 2_000, 5_000, 10_000) if k <= problem.n]
        ways["kernel_pegasos, one row"] = jaxsvm.kernel_pegasos, looks + later, None
        for lam in (1.0, 1e-2):
            for name, (make, steps, sampler) in ways.items():
                run = problem.key(lam) | {"method": name}
                if results.of(run):
                    continue
                models, rows = curve(problem, make(lam, problem.kernel), steps, sampler)
                best = problem.exact(lam)
                rows = [row | {"objective": f} for row, f in zip(rows, objectives_of(problem, lam, models), strict=True)]
                optimum = f"{best['objective']:.9g}" if best else ""
                results.add(run, [row | {"optimum": optimum, "above": above(row, best)} for row in rows])
    draw("scs_figure", ("steps", "seconds"), "objective")
    draw("scs_evals", ("passes", "seconds"), "above")


AXES = {"steps": "iterations", "seconds": "seconds", "passes": "kernel evaluations / $n^2$"}


def draw(name: str, across: tuple, what: str) -> None:
    """A row of panels for each lam and quantity, a column for each data set."""
    rows = saved(name)
    if not rows:
        return
    data, lams = (list(dict.fromkeys(row[k] for row in rows)) for k in ("data", "lam"))
    drawn, axes = panels(len(lams) * len(across), len(data))
    for down, (lam, x) in enumerate((lam, x) for lam in lams for x in across):
        for ax, each in zip(axes[down], data, strict=True):
            own = [row for row in rows if row["data"] == each and row["lam"] == lam]
            for method, style in STYLES.items():
                line = [row for row in own if row["method"] == method and row[what]]
                if line:
                    y = column(line, what)
                    ax.plot(column(line, x), np.maximum(y, 1e-6) if what == "above" else y, style, ms=3, lw=1.2, label=method)
            for value in {row["optimum"] for row in own} - {""} if what == "objective" else ():
                ax.axhline(float(value), color="black", ls="--", lw=0.8)
            ax.set(xscale="log", xlabel=AXES[x])
            ax.minorticks_off()
            if what == "above":
                ax.set_yscale("log")
            else:
                least = min(column(own, "objective"))
                ax.set_ylim(least - 0.03 * (1.1 - least), 1.1)  # f(0) = 1; Pegasos starts far above
            ax.set_title(f"{each}, {int(own[0]['rows']):,} rows, $\\lambda$ = {float(lam):g}", fontsize=8)
            ax.grid(alpha=0.3)
        label = "(objective - optimum) / optimum" if what == "above" else "objective (dashed: optimum)"
        axes[down, 0].set_ylabel(label)
    axes[0, 0].legend(fontsize=7)
    drawn.savefig(common.RESULTS / f"{name}.png", dpi=80)


if __name__ == "__main__":
    common.run({f.__name__: f for f in (table, skin, evals, figure)}, SETTINGS)
