"""`python -m benchmarks.papers.sbp [comparison] [large] [claim] [guarantee] [figure]`.

SBP beside its rivals.

The experiments of Cotter, Shalev-Shwartz and Srebro (The kernelized stochastic batch perceptron, ICML 2012). Gaussian kernel at
the paper's widths, lam = 1/(C n), nu and the radius from `decomposition` at a violation of 1e-4, with a free bias and without
one. The first rows of the training sets (of covtype, columns in [0, 1], class 1 against the rest, and of data without test rows:
drawn once; its C is not the paper's), errors in per cent on the sources' own test rows, 20,000 at most. Everywhere
`sbp(bound_every=0)`: no kernel rows are spent on bounds. reuters_money_fx is sparse for SVC and dense for all others. Programs
are compiled before the clock starts, models are judged after it has stopped; a pass is n^2 kernel evaluations.

comparison: twelve looks, each after twice as many kernel evaluations as the last, up to three passes, or until each row was
visited ten times, where a method spends little. error: on test rows; level: of the model's direction at nu, as a share of the
best; hinge: mean hinge of that direction at the radius; primal: lam/2 |w|^2 + mean hinge of the model as it is (none for
perceptrons, which have no scale). `decomposition` is the optimum, SVC scikit-learn's with a free bias; smo and sbp in both
forms, the others without a bias.
large: 100,000 rows of covtype with C = 1, error at looks up to 3/32 of a pass; nu and the radius from `decomposition` at a
violation of 1e-3.
claim: SVC's seconds and error; SBP's error after a quarter of these, with 1, 8 and 32 rows a step.
guarantee: f* - f(mean iterate) times sqrt(T) / R, mean over 20 seeds; 1,000 rows of five data sets. The bars: 0.6 without and 0.3
with a bias.
figure: comparison and large as pictures.

Names of data sets leave out the others in the comparison. `--rows`: so many training rows instead of each part's own; `--out`:
another folder for the results. Runs of comparison and claim that are in their files are not made again.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax

import jaxsvm
from jaxsvm import kernels, numerics, objectives, samplers
from jaxsvm.kernels import matvec

from .. import common
from ..common import Results, column, error, panels, saved, timed

KEY = jax.random.key(0)
SETTINGS = {  # training rows, C, gamma = 1/(2 sigma^2)
    "reuters_money_fx": (7_770, 1, 1.0), "a9a": (10_000, 1, 0.05), "mnist": (6_000, 1, 0.02), "covtype": (10_000, 10, 8.0),
}  # fmt: skip
LOOKS = 3 * 0.5 ** np.arange(11, -1, -1.0)  # passes
MOST = 1_000  # steps in one call
PROBLEM = ("data", "rows", "C", "gamma")
JUDGED = ("error", "level", "hinge", "primal", "nu", "radius")


def rows_of(name: str):
    """Training rows, labels, test rows, labels: NumPy or CSR; MNIST 8 against the rest."""
    if name == "reuters_money_fx":
        return common.load_sparse(name)
    if name == "mnist":
        with np.load(common.folder() / f"{name}.npz") as arrays:
            parts = [(arrays[f"X_{p}"].astype(np.float32) / 255, arrays[f"y_{p}"]) for p in ("train", "test")]
        return [a for x, y in parts for a in (x, np.where(y == 8, 1, -1))]
    x, y, x_test, y_test = common.load_all(name)
    if x_test is None:
        order = np.random.default_rng(0).permutation(len(y))
        x, y = x[order].astype(np.float32), y[order]
    return x, y, x_test, y_test


class Problem:
    """Rows to train on and to test on, what C and gamma make of them, and the optimum once it is known."""

    def __init__(self, name: str, n: int | None = None, C: float | None = None):
        own, self.C, self.gamma = SETTINGS[name]
        self.C = self.C if C is None else C
        self.name, (x, y, x_test, y_test) = name, rows_of(name)
        n = min(n or own, x.shape[0] if x_test is not None else x.shape[0] * 4 // 5)
        x_test, y_test = (x[n:], y[n:]) if x_test is None else (x_test, y_test)
        self.x, self.y, self.n, self.x_test, self.y_test = x[:n], y[:n], n, x_test[:20_000], y_test[:20_000]
        dense = lambda x: x.toarray() if scipy.sparse.issparse(x) else x
        self.train, self.test = jaxsvm.dataset(dense(self.x), self.y), jaxsvm.dataset(dense(self.x_test), self.y_test)
        self.lam, self.kernel = 1 / (self.C * n), kernels.rbf(gamma=self.gamma)
        self.key = dict(zip(PROBLEM, (name, n, self.C, self.gamma), strict=True))
        self.optimum = {}

    def best(self, bias: str) -> dict:
        """The row of `decomposition` with this bias, which holds nu and the radius."""
        if bias not in self.optimum:
            solver = jaxsvm.decomposition(float(self.C), self.kernel, bias=bias, tol=1e-4)
            for _ in range(2):  # the first compiles
                run, seconds = timed(lambda: jaxsvm.fit(solver, self.train, KEY, steps=1))
            nu, radius = float(objectives.nu_from(run.model, self.train)), float(objectives.radius_from(run.model))
            self.optimum[bias] = {"nu": nu, "radius": radius}
            self.optimum[bias] |= {"steps": 1, "evals": run.evals, "seconds": seconds} | self.judged([run.model], bias)[0]
        return self.optimum[bias]

    def judged(self, models: list, bias: str) -> list[dict]:
        """What models are worth in the problem with this bias, all by one pass over the kernel."""
        b, room = np.array([model.b for model in models], np.float64), [jnp.zeros(self.n)] * (-len(models) % len(LOOKS))
        coefs = jnp.stack([*(model.coef for model in models), *room], 1)  # of one shape, for one program
        inner = np.asarray(values(self.kernel, self.train.x, self.train.x, coefs), np.float64)
        held = np.asarray(values(self.kernel, self.test.x, self.train.x, coefs), np.float64)
        square = [np.asarray(coefs[:, k], np.float64) @ inner[:, k] for k in range(len(models))]
        return [self.judge(inner[:, k], held[:, k], square[k], b[k], bias) for k in range(len(models))]

    def judge(self, inner, held, square: float, b: float, bias: str) -> dict:
        """What a function is worth, from its values without b at training and test rows, and its squared norm."""
        best, y, size = self.best(bias), np.asarray(self.train.y, np.float64), math.sqrt(max(square, 0)) or 1.0
        hinge = lambda scale: np.maximum(0, 1 - y * scale * (inner + b)).mean()
        row = {"error": 100 * np.mean((held + b > 0) != (self.y_test > 0))}
        with jax.enable_x64(True):
            row["level"] = float(level_of(y * inner / size, y, best["nu"], bias)) * best["radius"]
        row |= {"hinge": hinge(best["radius"] / size), "primal": self.lam / 2 * size**2 + hinge(1)}
        return row | {"nu": best["nu"], "radius": best["radius"]}

    def svc(self) -> dict:
        """scikit-learn's machine, which has a free bias: its row."""
        from sklearn.svm import SVC

        made = SVC(C=float(self.C), gamma=self.gamma)
        _, seconds = timed(lambda: made.fit(self.x, self.y))
        coef, dual = np.zeros(self.n, np.float32), made.dual_coef_
        coef[made.support_] = (dual.toarray() if scipy.sparse.issparse(dual) else dual)[0]
        model = jaxsvm.models.expansion(self.kernel, jnp.asarray(coef), self.train, "free")
        model = dataclasses.replace(model, b=jnp.asarray(made.intercept_[0], jnp.float32))
        return {"seconds": seconds} | self.judged([model], "free")[0]


@jax.jit
def values(kernel, x, z, coefs):
    """sum_j coefs_jc k(x_i, z_j), (n, c)."""
    return matvec(kernel, x, z, coefs)


@functools.partial(jax.jit, static_argnames="bias")
def level_of(margin, y, nu, bias):
    """The water level over margins of all rows."""
    volume = nu * y.shape[0]
    return (numerics.two_levels(margin, y, volume) if bias == "free" else numerics.one_level(margin, volume)).level


def curve(problem: Problem, solver, sampler=None, looks=LOOKS) -> tuple[list, list[dict]]:
    """Models and rows at each look."""
    # Fewer steps than `every` are one piece of a length that is not compiled in: one program for all.
    go = lambda steps, state: jaxsvm.fit(solver, problem.train, steps=steps, every=MOST + 1, state=state, sampler=sampler)
    state = jaxsvm.fit(solver, problem.train, KEY, steps=0, sampler=sampler).state
    go(1, state)  # compiles
    made, spent, seconds, models, found, rate = 0, 0, 0.0, [], [], None
    n = problem.n
    most = 10 * -(-n // (sampler or solver.sampler).rows(n))
    for look in looks:
        before = made
        while spent < 0.97 * look * n * n and made < most:
            missing = look * n * n - spent
            steps = 1 if rate is None else max(1, min(most - made, MOST, round(missing / max(rate, n / 20))))
            run, took = timed(lambda state=state, steps=steps: go(steps, state))
            state, made, spent, seconds, rate = run.state, made + steps, spent + run.evals, seconds + took, run.evals / steps
        if made > before:
            models.append(run.model)
            found.append({"steps": made, "evals": spent, "passes": spent / n**2, "seconds": seconds})
    return models, found


def methods(problem: Problem) -> dict:
    """The methods of the comparison: name -> bias, and a solver for the nu and the radius of the optimum with that bias."""
    kernel, C, lam = problem.kernel, float(problem.C), problem.lam
    plain, free = (lambda make: ("none", make)), (lambda make: ("free", make))
    return {
        "sbp": plain(lambda nu, radius: jaxsvm.sbp(nu, kernel, bound_every=0)),
        "sbp, free bias": free(lambda nu, radius: jaxsvm.sbp(nu, kernel, bias="free", bound_every=0)),
        "kernel_pegasos": plain(lambda nu, radius: jaxsvm.kernel_pegasos(lam, kernel)),
        "sdca": plain(lambda nu, radius: jaxsvm.sdca(C, kernel)),
        "smo": plain(lambda nu, radius: jaxsvm.smo(C, kernel, bias="none")),
        "smo, free bias": free(lambda nu, radius: jaxsvm.smo(C, kernel)),
        "constrained_sgd": plain(lambda nu, radius: jaxsvm.constrained_sgd(radius, kernel)),
        "perceptron": plain(lambda nu, radius: jaxsvm.perceptron(kernel)),
        "perceptron, average": plain(lambda nu, radius: jaxsvm.perceptron(kernel, average=True)),
    }


EXACT = {"decomposition": "none", "decomposition, free bias": "free", "SVC": "free"}
LOOKED = ("steps", "evals", "passes", "seconds", *JUDGED)


def reference(results: Results, problem: Problem, name: str) -> dict:
    """nu and the radius of the optimum, from the file or worked out and written there."""
    run = problem.key | {"method": name, "bias": EXACT[name]}
    known = results.of(run)
    if known:
        problem.optimum[run["bias"]] = {k: float(known[0][k]) for k in ("nu", "radius")}
    else:
        found = problem.best(run["bias"])
        results.add(run, [found | {"passes": found["evals"] / problem.n**2}])
    return problem.best(run["bias"])


def comparison(options) -> None:
    """Error and objective against kernel evaluations and seconds."""
    results = Results("sbp_comparison", (*PROBLEM, "method", "bias"), LOOKED)
    for name in options.data or SETTINGS:
        problem = Problem(name, options.rows)
        for exact in ("decomposition", "decomposition, free bias"):
            reference(results, problem, exact)
        run = problem.key | {"method": "SVC", "bias": "free"}
        if not results.of(run):
            results.add(run, [problem.svc()])
        for method, (bias, make) in methods(problem).items():
            run = problem.key | {"method": method, "bias": bias}
            if results.of(run):
                continue
            best = problem.best(bias)
            models, found = curve(problem, make(best["nu"], best["radius"]))
            found = [a | b for a, b in zip(found, problem.judged(models, bias), strict=True)]
            scale = {"primal": ""} if method.startswith("perceptron") else {}
            results.add(run, [row | scale for row in found])


def large(options) -> None:
    """Error on covtype with 100,000 rows, in the first tenth of a pass."""
    results = Results("sbp_large", (*PROBLEM, "method", "bias"), ("steps", "evals", "passes", "seconds", "error", "nu", "radius"))
    problem, looks = Problem("covtype", options.rows or 100_000, C=1), LOOKS[:7]
    exact = problem.key | {"method": "decomposition", "bias": "none"}
    if not results.of(exact):
        solver = jaxsvm.decomposition(float(problem.C), problem.kernel, bias="none", tol=1e-3)
        run, seconds = timed(lambda: jaxsvm.fit(solver, problem.train, KEY, steps=1))  # with its compilation
        row = {"steps": 1, "evals": run.evals, "passes": run.evals / problem.n**2, "seconds": seconds}
        row |= {"nu": float(objectives.nu_from(run.model, problem.train)), "radius": float(objectives.radius_from(run.model))}
        results.add(exact, [row | {"error": 100 * float(error(run.model, problem.test))}])
    nu, radius = (float(results.of(exact)[0][k]) for k in ("nu", "radius"))
    for method, (bias, make) in methods(problem).items():
        run = problem.key | {"method": method, "bias": bias}
        if bias == "free" or method == "perceptron" or results.of(run):
            continue
        models, found = curve(problem, make(nu, radius), looks=looks)
        coefs = jnp.stack([model.coef for model in models], 1)
        held = np.asarray(values(problem.kernel, problem.test.x, problem.train.x, coefs))
        wrong = 100 * np.mean((held > 0) != (problem.y_test > 0)[:, None], 0)
        results.add(run, [row | {"error": e, "nu": nu, "radius": radius} for row, e in zip(found, wrong, strict=True)])


def claim(options) -> None:
    """A quarter of SVC's seconds."""
    fields = ("quarter_s", "seconds", "steps", "evals", "passes", *JUDGED[:2])
    results = Results("sbp_claim", (*PROBLEM, "method", "bias", "rows_a_step"), fields)
    for name, n in (("a9a", 32_561), ("mnist", 20_000)):
        problem = Problem(name, options.rows or n)
        ways = [(bias, b) for bias in ("none", "free") for b in (1, 8, 32)]
        key = lambda method, bias, b="", own=problem.key: own | {"method": method, "bias": bias, "rows_a_step": b}
        if all(results.of(key("sbp", *way)) for way in ways):
            continue
        if not results.of(key("SVC", "free")):
            results.add(key("SVC", "free"), [problem.svc()])
        quarter = float(results.of(key("SVC", "free"))[0]["seconds"]) / 4
        for bias, b in ways:
            if results.of(key("sbp", bias, b)):
                continue
            solver = jaxsvm.sbp(problem.best(bias)["nu"], problem.kernel, bias=bias, bound_every=0)
            go = functools.partial(jaxsvm.fit, solver, problem.train, KEY, every=10, sampler=samplers.uniform(b))
            go(steps=10)
            run, seconds = timed(functools.partial(go, steps=10**9, seconds=quarter))
            row = {"quarter_s": quarter, "seconds": seconds, "steps": int(run.state.step), "evals": run.evals}
            row["passes"] = run.evals / problem.n**2
            results.add(key("sbp", bias, b), [row | problem.judged([run.model], bias)[0]])


WIDTHS = {"a9a": 0.05, "ijcnn1": 2.0, "svmguide1": 0.5, "susy_30k_subset": 0.05, "magic04": 0.1}  # gamma


def guarantee(options) -> None:
    """How far the mean iterate is from the optimum, against R / sqrt(T)."""
    rows, keys = [], jax.random.split(KEY, 20)
    for name, gamma in WIDTHS.items():
        x, y, *_ = rows_of(name)
        drawn = np.random.default_rng(0).permutation(len(y))[: options.rows or 1_000]
        x, y, kernel = x[drawn], y[drawn], kernels.rbf(gamma=gamma)
        if name in ("svmguide1", "susy_30k_subset", "magic04"):
            x = (x - x.mean(0)) / x.std(0)
        data = jaxsvm.dataset(x, y)
        for bias, bar in (("none", 0.6), ("free", 0.3)):
            for lam in (1e-1, 1e-2, 1e-3):
                exact = jaxsvm.decomposition(1 / (lam * len(y)), kernel, bias=bias, tol=1e-4)
                model = jaxsvm.fit(exact, data, KEY, steps=1).model
                best, nu = 1 / float(objectives.radius_from(model)), jnp.float32(objectives.nu_from(model, data))
                apart = best - np.asarray(levels(nu, kernel, data, keys, bias), np.float64)
                for T in (100, 300, 1_000, 3_000):
                    missing = apart[:, T // 100 - 1] * math.sqrt(T)  # R = 1: k(x, x) = 1
                    row = {"data": name, "rows": len(y), "gamma": gamma, "bias": bias, "lam": lam, "T": T, "best": f"{best:.5f}"}
                    row |= {"mean": f"{missing.mean():.4f}", "largest": f"{missing.max():.4f}"}
                    rows.append(row | {"bar": bar, "met": bool(missing.mean() <= bar)})
    common.write("sbp_guarantee", rows)


@functools.partial(jax.jit, static_argnames="bias")
def levels(nu, kernel, data, keys, bias):
    """The level of the mean iterate after every 100 steps, of 3,000, for each key: (keys, 30)."""
    solver = jaxsvm.sbp(nu, kernel, bias=bias, normalise=False, bound_every=0)
    batch = data._replace(index=jnp.zeros(1, jnp.int32))

    def hundred(state, _):
        state = lax.fori_loop(0, 100, lambda _, state: solver.update(state, batch)[0], state)
        margin = data.y * (state.s.mean.response + state.s.mean.compensation)
        return state, level_of(margin, data.y, nu, bias)

    return jax.vmap(lambda key: lax.scan(hundred, solver.init(key, data), length=30)[1])(keys)


STYLES = {
    "sbp": "C0-", "sbp, free bias": "C0--", "kernel_pegasos": "C1-", "sdca": "C2-", "smo": "C3-", "smo, free bias": "C3--",
    "constrained_sgd": "C4-", "perceptron": "C5-", "perceptron, average": "C5--",
}  # fmt: skip


def figure(options) -> None:
    """The curves of comparison and large."""
    drawings = {"comparison": draw_comparison, "large": draw_large}
    for name, draw in ((f"sbp_{part}", draw) for part, draw in drawings.items()):
        rows = saved(name)
        if rows:
            draw(rows).savefig(common.RESULTS / f"{name}.png", dpi=120)


def cases_of(rows: list[dict]) -> list[tuple]:
    return list(dict.fromkeys(tuple(row[k] for k in PROBLEM) for row in rows))


def draw_comparison(rows: list[dict]):
    """Error and level against passes, error against seconds, a column for each data set."""
    cases = cases_of(rows)
    drawn, axes = panels(3, len(cases))
    for top, middle, bottom, case in zip(*axes, cases, strict=True):
        own = [row for row in rows if tuple(row[k] for k in PROBLEM) == case]
        for method, style in STYLES.items():
            curve = [row for row in own if row["method"] == method]
            if curve:
                passes, seconds, wrong = (column(curve, k) for k in ("passes", "seconds", "error"))
                top.plot(passes, wrong, style, lw=1.3, label=method)
                middle.plot(passes, np.clip(1 - column(curve, "level"), 1e-4, None), style, lw=1.3)
                bottom.plot(seconds, wrong, style, lw=1.3)
        for row in [row for row in own if row["method"] in EXACT]:
            mark = {"none": "ko", "free": "k^"}[row["bias"]] if row["method"] != "SVC" else "r*"
            bottom.plot(float(row["seconds"]), float(row["error"]), mark, ms=10 if mark == "r*" else 5, label=row["method"])
            if row["method"] == "SVC":
                for ax in (top, bottom):
                    ax.axhline(float(row["error"]), color="grey", lw=0.8, ls=":")
        low, first = min(column(own, "error")), max(column([r for r in own if r["method"] in EXACT], "error"))
        for ax in (top, bottom):
            ax.set_ylim(low - 0.1 * (first + 1 - low), first + 2 * max(first / 4, first - low + 0.5))
        top.set_title(f"{case[0]}, {int(case[1]):,} rows, C = {case[2]}, $\\gamma$ = {float(case[3]):.3g}", fontsize=9)
        middle.set(yscale="log", ylim=(1e-4, 2), xlabel="kernel evaluations / $n^2$")
        bottom.set_xlabel("seconds")
        for ax in (top, middle, bottom):
            ax.set_xscale("log")
            ax.grid(alpha=0.3)
    for ax, what in zip(axes[:, 0], ("test error in per cent (dotted: SVC)", "level missing, as a share of the best",
                                     "test error in per cent"), strict=True):  # fmt: skip
        ax.set_ylabel(what)
    axes[0, 0].legend(fontsize=7)
    axes[2, 0].legend(fontsize=7)
    return drawn


def draw_large(rows: list[dict]):
    """Error against passes and seconds."""
    drawn, (axes,) = panels(1, 2)
    for ax, x in zip(axes, ("passes", "seconds"), strict=True):
        for method, style in STYLES.items():
            curve = [row for row in rows if row["method"] == method]
            if curve:
                ax.plot(column(curve, x), column(curve, "error"), style, lw=1.3, label=method)
        for row in [row for row in rows if row["method"] in EXACT]:
            ax.axhline(float(row["error"]), color="grey", lw=0.8, ls=":", label="optimum")
        ax.set(xscale="log", xlabel="kernel evaluations / $n^2$" if x == "passes" else "seconds")
        ax.grid(alpha=0.3)
        ax.set_title(f"{rows[0]['data']}, {int(rows[0]['rows']):,} rows", fontsize=9)
    axes[0].set_ylabel("test error in per cent")
    axes[0].legend(fontsize=7)
    return drawn


if __name__ == "__main__":
    common.run({f.__name__: f for f in (comparison, large, claim, guarantee, figure)}, SETTINGS)
