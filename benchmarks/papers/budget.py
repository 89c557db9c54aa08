"""`python -m benchmarks.papers.budget [part ...]`: SVM training on a budget, in parts:

Gaussian kernel, merging with the best of 59 partners by look-up unless said otherwise, C = 1/(lam n). The first rows of the
training sets, of covtype (columns in [0, 1], class 1 against the rest) rows drawn once; accuracy in per cent on 4,000 test rows
(a9a: 2,000), the first of the source's own test set or, where it has none, the rows after the training rows. Programs are
compiled before the clock starts; models are judged after it has stopped.

accuracy: BSGD, BSCA and ACF-BSCA after every epoch: mean and deviation of the accuracy over the later half of the epochs, the
last one, and the primal value 1/2 |w|^2 + C sum_i hinge over C n. Beside them scikit-learn's SVC (free bias, tolerance 1e-3) and
`decomposition` without a bias, the optimum of what the three minimise; the dual value of those that have one. A run that is in
budget_accuracy.csv already is not made again.
maintenance: BSCA on ijcnn1 with all partners or 59, by golden section or look-up: the time of one maintenance, a scan over
newcomers to a full state that stays as it is, less a scan that does nothing; its share of 5 epochs; accuracy over the later
half of 50 epochs.
stop: BSCA and ACF-BSCA on ijcnn1 until the rule of the paper says so, with 0.01 and 0.001, 60 epochs at most.
seeds: ten seeds in one program: primal value and accuracy after every epoch, mean and deviation, 200 points; ijcnn1 by 10,000
rows, three others by 5,000.
dual: the dual value of BSCA after every epoch: of the function sum_i alpha_i y_i phi(x_i), and with the model on a budget in the
place of that function, sum_i alpha_i - |w|^2 / 2, which is no bound.
online: one pass in ten orders: mistakes y f <= 0 of the function before it sees the label, and the test error of what stands at
the end; online gradient descent with all its points, and BSCA after one and five passes (its mistakes are of the first).
figure: accuracy, dual, maintenance, stop, seeds and online as pictures.

`--rows`, `--epochs`: at most so many; `--out`: another folder for the results.
"""

from __future__ import annotations

import argparse
import pathlib
from dataclasses import KW_ONLY

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxsvm
from jaxsvm import budget, features, kernels, objectives, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef
from jaxsvm.engines.online_learning import DescentSolver
from jaxsvm.spaces.kernel_expansion import expansion
from jaxsvm.types import Wrapper

from .. import common
from ..common import error, panels, saved, timed

MERGE = budget.merge(partners=59)
CASES = [  # data, rows, C, gamma, epochs
    ("ijcnn1", 20_000, 32, 2, 50), ("ijcnn1", 20_000, 2, 2, 10), ("susy_30k_subset", 15_000, 32, 2**-7, 40),
    ("susy_30k_subset", 10_000, 2, 2**-7, 20), ("a9a", 10_000, 32, 2**-7, 30), ("a9a", 10_000, 1, 2**-5, 10),
    ("covtype", 20_000, 128, 8, 10),
]  # fmt: skip
METHODS = {"BSGD": None, "BSCA": None, "ACF-BSCA": samplers.acf()}  # and their samplers, None: the solver's own
EXACT = ("SVC", "decomposition")
PROBLEM = ("data", "rows", "C", "gamma")


class Problem:
    """Rows to train on and to test on, and what C and gamma make of them."""

    def __init__(self, name: str, n: int, C: float, gamma: float, *, standardised: bool = False):
        self.x, self.y, x_test, y_test = common.load_all(name)
        if name in ("covtype", "svmguide1"):  # sorted by where they were taken, and by class
            order = np.random.default_rng(0).permutation(len(self.y))
            self.x, self.y = self.x[order], self.y[order]
        held, n = 2_000 if name == "a9a" else 4_000, min(n, len(self.y))
        if x_test is None:
            x_test, y_test = self.x[n:], self.y[n:]
        self.x, self.y = self.x[:n], self.y[:n]
        if standardised:
            mean, deviation = self.x.mean(0), self.x.std(0)
            self.x, x_test = (self.x - mean) / deviation, (x_test - mean) / deviation
        self.train, self.test = jaxsvm.dataset(self.x, self.y), jaxsvm.dataset(x_test[:held], y_test[:held])
        self.n, self.C, self.lam, self.kernel = n, float(C), 1 / (C * n), kernels.rbf(gamma=float(gamma))

    def fit(self, method: str, size: int, epochs: int, *, key=None, maintain=MERGE, tol=None):
        """So many epochs of a method with `size` points, the model of each in `info.probe`."""
        key, n = jax.random.key(0) if key is None else key, self.n
        first, factory = (self.lam, jaxsvm.bsgd) if method == "BSGD" else (self.C, jaxsvm.bsca)
        solver = factory(first, self.kernel, budget=size, maintain=maintain)
        return jaxsvm.fit(solver, self.train, key, steps=epochs * n, every=n, probe=kept, tol=tol, sampler=METHODS[method])

    def accuracy(self, model) -> float:
        """On the test rows, in per cent."""
        return 100 * (1 - float(error(model, self.test)))

    def primal(self, model) -> float:
        """Over C n, in float64."""
        return float(objectives.primal(model, self.train, self.lam))

    def dual(self, coef) -> float:
        """Of signed coefficients; those at their bound are moved inside, as C in float32 may lie above it."""
        alpha = np.clip(np.asarray(coef, np.float64) * self.y, 0, self.C * (1 - 1e-9))
        return float(objectives.dual(alpha, self.train, self.lam, self.kernel))


@jax.jit
def kept(model):
    """A probe: the model itself, to be judged later."""
    return model


def each(models) -> list:
    """The models that a probe kept, one by one."""
    return [jax.tree.map(lambda a: a[k], models) for k in range(models.coef.shape[0])]  # noqa: B023


def spread(values) -> dict:
    return {"mean": f"{np.mean(values):.3f}", "deviation": f"{np.std(values):.3f}"}


def accuracy(options) -> None:
    """The table of the reference implementation, on the data at hand."""
    fields = ("mean", "deviation", "last", "seconds", "primal", "dual", "support", "accuracies", "primals")
    results = common.Results("budget_accuracy", (*PROBLEM, "method", "budget", "epochs"), fields)
    for name, n, C, gamma, epochs in CASES:
        n, epochs, problem = min(n, options.rows), min(epochs, options.epochs), None
        ways = [(method, "", "") for method in EXACT] + [(m, size, epochs) for size in (200, 500) for m in METHODS]
        for way in ways:
            run = dict(zip(results.key, (name, n, C, gamma, *way), strict=True))
            if not results.of(run):
                problem = problem or Problem(name, n, C, gamma)
                results.add(run, [exact_run(problem, way[0]) if way[0] in EXACT else budgeted_run(problem, *way)])


def budgeted_run(problem: Problem, method: str, size: int, epochs: int) -> dict:
    """One run on a budget; the program is compiled by an epoch before."""
    problem.fit(method, size, 1)
    run, seconds = timed(lambda: problem.fit(method, size, epochs))
    models = each(run.info.probe)
    curve, primals = [problem.accuracy(model) for model in models], [problem.primal(model) for model in models]
    row = spread(curve[len(curve) // 2 :]) | {"last": f"{curve[-1]:.2f}", "seconds": f"{seconds:.2f}"}
    row["primal"] = f"{primals[-1]:.6g}"
    row["dual"] = "" if method == "BSGD" else f"{problem.dual(dual_coef(run.state.solver.inner)):.6g}"
    row["support"] = int(jnp.sum(run.model.coef != 0))
    return row | {"accuracies": " ".join(f"{v:.2f}" for v in curve), "primals": " ".join(f"{v:.5g}" for v in primals)}


def exact_run(problem: Problem, method: str) -> dict:
    """All support vectors: scikit-learn's machine with its bias, or ours without."""
    if method == "SVC":
        from sklearn.svm import SVC

        made = SVC(C=problem.C, gamma=float(problem.kernel.gamma), tol=1e-3)
        _, seconds = timed(lambda: made.fit(problem.x, problem.y))
        share = np.mean(made.predict(np.asarray(problem.test.x)) == np.asarray(problem.test.y))
        return {"last": f"{100 * share:.2f}", "seconds": f"{seconds:.2f}", "support": len(made.support_)}
    solver = jaxsvm.decomposition(problem.C, problem.kernel, bias="none")
    for _ in range(2):  # the first compiles
        run, seconds = timed(lambda: jaxsvm.fit(solver, problem.train, jax.random.key(0), steps=1))
    model = run.model
    row = {"last": f"{problem.accuracy(model):.2f}", "seconds": f"{seconds:.2f}", "primal": f"{problem.primal(model):.6g}"}
    return row | {"dual": f"{problem.dual(model.coef):.6g}", "support": int(jnp.sum(model.coef != 0))}


@jaxsvm.node
class counted(budget.Maintenance):
    """Merging that counts in its memo how often it was called."""

    inner: budget.Maintenance

    def change(self, kernel, points, state):
        return self.inner.change(kernel, points, ())[0], state + 1

    def memory(self, dtype):
        return jnp.zeros((), jnp.int32)

    def evals(self, budget):
        return self.inner.evals(budget)


def later(models: list) -> list:
    """The later half."""
    return models[len(models) // 2 :]


ASCENTS = [  # data, rows, C, gamma, epochs
    ("ijcnn1", 10_000, 2, 2, 10), ("susy_30k_subset", 10_000, 2, 2**-7, 20), ("a9a", 10_000, 1, 2**-5, 10),
    ("a9a", 10_000, 32, 2**-7, 30),
]  # fmt: skip


def dual(options) -> None:
    """The dual value after every epoch, of the function of alpha and of the model on a budget."""
    results = common.Results("budget_dual", (*PROBLEM, "method", "budget", "epoch"), ("dual", "dual_on_budget", "primal"))
    for name, n, C, gamma, epochs in ASCENTS:
        own, epochs = dict(zip(PROBLEM, (name, min(n, options.rows), C, gamma), strict=True)), min(epochs, options.epochs)
        ways, problem = [("decomposition", "")] + [(m, size) for size in (200, 500) for m in METHODS if m != "BSGD"], None
        for method, size in ways:
            if results.of(own | {"method": method, "budget": size, "epoch": epochs if size else ""}):
                continue
            problem = problem or Problem(name, own["rows"], C, gamma)
            if not size:
                found = exact_run(problem, method)
                results.add(own | {"method": method, "budget": "", "epoch": ""}, [{k: found[k] for k in ("dual", "primal")}])
                continue
            for epoch, (model, coef) in enumerate(ascent(problem, method, size, epochs)):
                alpha = np.asarray(coef, np.float64) * problem.y
                on_budget = (alpha.sum() - float(model.sqnorm()) / 2) / (problem.C * problem.n)
                row = {"dual": problem.dual(coef), "dual_on_budget": on_budget, "primal": problem.primal(model)}
                results.add(own | {"method": method, "budget": size, "epoch": epoch + 1}, [row])


def ascent(problem: Problem, method: str, size: int, epochs: int):
    """The model and the signed dual coefficients after every epoch."""
    solver, state, n = jaxsvm.bsca(problem.C, problem.kernel, budget=size, maintain=MERGE), None, problem.n
    for _ in range(epochs):
        key = jax.random.key(0) if state is None else None
        run = jaxsvm.fit(solver, problem.train, key, steps=n, every=n, state=state, sampler=METHODS[method])
        state = run.state
        yield run.model, dual_coef(state.solver.inner)


WAYS = [(partners, search) for partners in (None, 59) for search in ("golden", "lookup")]


def maintenance(options) -> None:
    """Partners and search: time of a maintenance, its share, accuracy."""
    problem, size, epochs, rows = Problem("ijcnn1", min(20_000, options.rows), 32, 2), 500, min(5, options.epochs), []
    alone, runs = alone_us(options), {}
    for k, (partners, search) in enumerate(WAYS):
        maintain = counted(budget.merge(partners=partners, search=search))
        models = each(problem.fit("BSCA", size, min(50, options.epochs), maintain=maintain).info.probe)
        runs[k] = lambda maintain=maintain: problem.fit("BSCA", size, epochs, maintain=maintain).state.solver.inner.f
        row = {
            "partners": partners or "all",
            "search": search,
            "steps": epochs * problem.n,
            "maintenances": int(runs[k]().memory),
        }
        row |= {f"accuracy_{name}": v for name, v in spread([problem.accuracy(m) for m in later(models)]).items()}
        rows.append(row | {"us_a_maintenance": f"{alone[k]:.2f}"})
    whole = common.side_by_side(runs, 3)
    for k, row in enumerate(rows):
        seconds = np.median(whole[k])
        row |= {"seconds": f"{seconds:.2f}", "share": f"{row['maintenances'] * alone[k] * 1e-6 / seconds:.3f}"}
    common.write("budget_maintenance", rows)


def alone_us(options) -> list[float]:
    """Microseconds of a maintenance in each of the ways, in this process."""
    problem, scans = Problem("ijcnn1", min(20_000, options.rows), 32, 2), {}
    for partners, search in WAYS:
        maintain = counted(budget.merge(partners=partners, search=search))
        state = problem.fit("BSCA", 500, 1, maintain=maintain).state.solver.inner.f
        scans[partners, search] = newcomers(problem, maintain, state)
    scans["none"] = newcomers(problem, None, state)
    alone = common.side_by_side(scans, 9)
    return [1e6 * float(np.median(alone[way]) - np.median(alone["none"])) / NEWCOMERS for way in WAYS]


NEWCOMERS = 5_000


def newcomers(problem: Problem, maintain, f):
    """A function that scans over newcomers to the state f, which stays as it is; maintain: None does nothing."""
    rng, m = np.random.default_rng(0), f.coef.shape[0]
    drawn = rng.integers(problem.n, size=NEWCOMERS)
    bits = jnp.asarray(rng.integers(2**32, size=NEWCOMERS, dtype=np.uint32))

    @jax.jit
    def scan(f, x, y, bits):
        f = f.flush()

        def one(total, new):
            row, coef, bits = new
            points = budget.Points(
                x=f.x, sqnorm=f.sqnorm, coef=jnp.append(f.coef, coef), row=row, values=jnp.zeros(m + 1, f.x.dtype),
                birth=jnp.append(f.birth, f.added), annotations=f.annotations, front=f.front, back=f.back, bits=bits,
            )  # fmt: skip
            change = budget.remove_point(points, 0) if maintain is None else maintain.change(problem.kernel, points, f.memory)[0]
            checksum = jnp.sum(change.coef) + jnp.sum(change.row) + (change.removed + change.replaced).astype(total.dtype)
            return total + checksum, None

        return lax.scan(one, jnp.zeros((), f.x.dtype), (x, y, bits))[0]

    rows = problem.train.x[drawn], problem.train.y[drawn], bits
    return lambda: scan(f, *rows)


def stop(options) -> None:
    """Where the paper's rule stops."""
    problem, size, rows = Problem("ijcnn1", min(20_000, options.rows), 32, 2), 500, []
    for method in ("BSCA", "ACF-BSCA"):
        problem.fit(method, size, 1, tol=0.01)
        for tol in (0.01, 0.001):
            run, seconds = timed(lambda tol=tol, method=method: problem.fit(method, size, min(60, options.epochs), tol=tol))
            row = {"method": method, "tol": tol, "epochs": int(run.state.step) // problem.n, "converged": run.converged}
            row |= {"seconds": f"{seconds:.2f}", "accuracy": f"{problem.accuracy(run.model):.2f}"}
            rows.append(row | {"primal": f"{problem.primal(run.model):.6g}"})
    common.write("budget_stop", rows)


TEN = [  # data, rows, C, gamma: ten epochs of each
    ("ijcnn1", 10_000, 2, 2), ("susy_30k_subset", 5_000, 2, 2**-7), ("a9a", 5_000, 1, 2**-5), ("covtype", 5_000, 128, 8),
]  # fmt: skip


def seeds(options) -> None:
    """Ten seeds in one program: curves."""
    results = common.Results("budget_seeds", (*PROBLEM, "method", "epoch"), CURVE)
    for name, n, C, gamma in TEN:
        epochs, own = min(10, options.epochs), dict(zip(PROBLEM, (name, min(n, options.rows), C, gamma), strict=True))
        for method in METHODS:
            if not results.of(own | {"method": method, "epoch": epochs}):
                for row in curves(Problem(name, own["rows"], C, gamma), method, epochs):
                    results.add(own | {"method": method, "epoch": row.pop("epoch")}, [row])


CURVE = ("seeds", "primal", "primal_deviation", "accuracy", "accuracy_deviation")


def curves(problem: Problem, method: str, epochs: int) -> list[dict]:
    """Mean and deviation over ten seeds after every epoch."""
    run = jax.jit(lambda keys: lax.map(lambda key: problem.fit(method, 200, epochs, key=key).info.probe, keys))
    models, rows = [each(seed) for seed in each(run(jax.random.split(jax.random.key(0), 10)))], []
    for epoch, at in enumerate(zip(*models, strict=True)):
        row = {"seeds": len(at), "epoch": epoch + 1}
        for name, judge in (("primal", problem.primal), ("accuracy", problem.accuracy)):
            values = [judge(model) for model in at]
            row |= {name: f"{np.mean(values):.6g}", f"{name}_deviation": f"{np.std(values):.4g}"}
        rows.append(row)
    return rows


@jaxsvm.node
class counting(Wrapper):
    """A solver whose loss counts mistakes: the hinge of the score before the step is 1 or more where y f <= 0."""

    inner: jaxsvm.Solver

    def update(self, state, batch):
        state, info = self.inner.update(state, batch)
        return state, info._replace(loss=(info.loss >= 1).astype(info.loss.dtype))


@jaxsvm.node
class kernel_ogd(DescentSolver):
    """Online gradient descent on lam/2 |w|^2 + hinge with all its points: what `bogd` keeps on a budget."""

    lam: float = jaxsvm.positive()
    kernel: kernels.Kernel
    _: KW_ONLY
    eta: float

    @property
    def space(self):
        return expansion(self.kernel)


FIVE = "bsca(1), five passes"


def online_methods(kernel, size: int, d: int, lam: float) -> dict:
    """A line each, as in the table."""
    plain = ("stoptron", "random_budget_perceptron", "fixed_budget_perceptron", "tighter_perceptron", "tightest_perceptron",
             "forgetron")  # fmt: skip
    frequencies = features.fourier(jax.random.key(1), kernel, dim=d, features=8 * size)  # 4 a point, a cosine and a sine each
    return {
        "perceptron, no budget": jaxsvm.perceptron(kernel),
        "kernel OGD(0.001, eta=0.2), no budget": kernel_ogd(1e-3, kernel, eta=0.2),
        **{name: getattr(jaxsvm, name)(kernel, budget=size) for name in plain},
        "projectron(eta=0.1)": jaxsvm.projectron(kernel, budget=size, eta=0.1),
        "projectron_plus(eta=0.1)": jaxsvm.projectron_plus(kernel, budget=size, eta=0.1),
        "bpas(0.1)": jaxsvm.bpas(0.1, kernel, budget=size),
        "bogd(0.001, eta=0.2)": jaxsvm.bogd(1e-3, kernel, budget=size, eta=0.2),
        f"fogd(1, {4 * size} frequencies)": jaxsvm.fogd(1.0, frequencies),
        f"nogd(0.2, features={size // 5})": jaxsvm.nogd(0.2, kernel, budget=size, features=size // 5),
        "bsgd(1/n)": jaxsvm.bsgd(lam, kernel, budget=size, maintain=MERGE),
        "bsca(1)": jaxsvm.bsca(1.0, kernel, budget=size, maintain=MERGE),
        FIVE: jaxsvm.bsca(1.0, kernel, budget=size, maintain=MERGE),
    }


def passes(problem: Problem, solver, count: int) -> list:
    """So many passes in ten orders, and seconds."""
    run = lambda key: jaxsvm.fit(solver, problem.train, key, steps=count * problem.n, every=problem.n)
    run(jax.random.key(0))
    return [timed(lambda key=key: run(key)) for key in jax.random.split(jax.random.key(0), 10)]


def online(options) -> None:
    """Mistakes in one pass, ten orders."""
    rows = []
    for name, n, gamma, size in (("svmguide1", 3_089, 0.5, 100), ("a9a", 10_000, 2**-5, 200), ("ijcnn1", 10_000, 2, 200)):
        problem = Problem(name, min(n, options.rows), 1, gamma, standardised=name == "svmguide1")
        for method, solver in online_methods(problem.kernel, size, problem.x.shape[1], problem.lam).items():
            runs = passes(problem, counting(solver), 5 if method == FIVE else 1)
            mistakes = spread([100 * float(run.info.loss[0]) for run, _ in runs])
            errors = [100 - problem.accuracy(run.model) for run, _ in runs]
            row = {"data": name, "rows": problem.n, "gamma": gamma, "budget": size, "method": method}
            row |= {f"mistakes_{k}": v for k, v in mistakes.items()} | {"seconds": f"{np.median([s for _, s in runs]):.3f}"}
            row |= {f"test_error_{f.__name__}": f"{f(errors):.2f}" for f in (np.mean, np.min, np.max)}
            rows.append(row)
            print(name, method, row["mistakes_mean"], row["seconds"], flush=True)
    common.write("budget_online", rows)


def figure(options) -> None:
    """Curves and marks of the paper's figures."""
    drawings = {"epochs": ("accuracy", draw_epochs), "dual": ("dual", draw_dual), "seeds": ("seeds", draw_seeds),
                "online": ("online", draw_online), "maintenance": ("maintenance", draw_maintenance),
                "stop": ("stop", draw_stop)}  # fmt: skip
    for name, (file, draw) in drawings.items():
        rows = saved(f"budget_{file}")
        if rows:
            draw(rows).savefig(common.RESULTS / f"budget_{name}.png", dpi=120)


def cases_of(rows: list[dict]) -> list[tuple]:
    """The problems of a results file, and its rows on each."""
    cases = dict.fromkeys(tuple(row[k] for k in PROBLEM) for row in rows)
    return [(case, [row for row in rows if tuple(row[k] for k in PROBLEM) == case]) for case in cases]


def title(ax, case: tuple) -> None:
    ax.set_title(f"{case[0]}, {int(case[1]):,} rows, C = {case[2]}, $\\gamma$ = {float(case[3]):.3g}", fontsize=8)
    ax.grid(alpha=0.3)


def draw_epochs(rows: list[dict]):
    """Figures 1 to 3: accuracy and primal value against epochs, a column for each problem."""
    cases, kinds = cases_of(rows), list(METHODS)
    drawn, axes = panels(4, 4)
    pairs = [(axes[2 * (k // 4), k % 4], axes[2 * (k // 4) + 1, k % 4]) for k in range(8)]
    for upper, lower in pairs[len(cases) :]:
        upper.axis("off")
        lower.axis("off")
    for (upper, lower), (case, own) in zip(pairs, cases, strict=False):
        for row in [row for row in own if row["method"] in kinds]:
            style = {"color": f"C{kinds.index(row['method'])}", "ls": "-" if row["budget"] == "500" else ":", "lw": 1.2}
            for ax, name in ((upper, "accuracies"), (lower, "primals")):
                curve = np.array(row[name].split(), float)
                ax.plot(np.arange(1, len(curve) + 1), curve, label=f"{row['method']} {row['budget']}", **style)
        svc, optimum = (next(row for row in own if row["method"] == method) for method in EXACT)
        upper.axhline(float(svc["last"]), color="grey", lw=1, label="SVC")
        upper.set_ylim(float(svc["last"]) - 12, float(svc["last"]) + 2)
        lower.axhline(float(optimum["primal"]), color="grey", lw=1, label="optimum")
        lower.set(yscale="log", xlabel="epochs")
        title(upper, case)
        lower.grid(alpha=0.3)
    for upper, lower in pairs[::4]:
        upper.set_ylabel("test accuracy in per cent")
        lower.set_ylabel("primal value / (C n)")
    axes[0, 0].legend(fontsize=7)
    return drawn


def draw_dual(rows: list[dict]):
    """Figure 4: dual values against epochs, and what they lack of the optimum."""
    cases = cases_of(rows)
    drawn, axes = panels(2, len(cases))
    for (ax, lower), (case, own) in zip(axes.T, cases, strict=True):
        best = next(float(row["dual"]) for row in own if row["method"] == "decomposition")
        for colour, (method, size) in enumerate(dict.fromkeys((r["method"], r["budget"]) for r in own if r["budget"])):
            curve = [row for row in own if (row["method"], row["budget"]) == (method, size)]
            epochs = common.column(curve, "epoch")
            for field, style, what in (("dual", "-", "of alpha"), ("dual_on_budget", ":", "on a budget")):
                values = common.column(curve, field)
                ax.plot(epochs, values, style, color=f"C{colour}", label=f"{method} {size}, {what}")
                missing = np.where(values < best, 1 - values / best, np.nan)  # beyond the optimum: nothing to draw
                lower.plot(epochs, missing, style, color=f"C{colour}")
        ax.axhline(best, color="grey", lw=1, label="optimum")
        ax.set(ylim=(0, 1.1 * best))
        lower.set(xlabel="epochs", yscale="log")
        lower.grid(alpha=0.3)
        title(ax, case)
    axes[0, 0].set_ylabel("dual value / (C n)")
    axes[1, 0].set_ylabel("missing to the optimum, as a share")
    axes[0, 0].legend(fontsize=6)
    return drawn


def draw_seeds(rows: list[dict]):
    """Figure 8: mean and deviation over ten seeds."""
    cases = cases_of(rows)
    drawn, axes = panels(2, len(cases))
    for column, (case, own) in zip(axes.T, cases, strict=True):
        for ax, name in zip(column, ("accuracy", "primal"), strict=True):
            for method in METHODS:
                curve = [row for row in own if row["method"] == method]
                epoch, mean, deviation = (common.column(curve, k) for k in ("epoch", name, f"{name}_deviation"))
                ax.plot(epoch, mean, label=f"{method}, {curve[0]['seeds']} seeds")
                ax.fill_between(epoch, mean - deviation, mean + deviation, alpha=0.3)
        column[1].set(yscale="log", xlabel="epochs")
        column[1].grid(alpha=0.3)
        title(column[0], case)
    axes[0, 0].set_ylabel("test accuracy in per cent")
    axes[1, 0].set_ylabel("primal value / (C n)")
    axes[0, 0].legend(fontsize=7)
    return drawn


def draw_online(rows: list[dict]):
    """Figure 6: test error against seconds, a mark for each method."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    drawn, (axes,) = panels(1, len(names))
    marks, legend = "osD^v<>pPX*hd", {}
    for ax, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for k, row in enumerate(own):
            mean, low, high = (float(row[f"test_error_{k}"]) for k in ("mean", "min", "max"))
            colour = "black" if row["method"].startswith("bsca") else f"C{k % 10}"
            style = {"fmt": marks[k % len(marks)], "color": colour, "ms": 6, "elinewidth": 0.7}
            made = ax.errorbar(float(row["seconds"]), mean, [[mean - low], [high - mean]], **style)
            suffix = next((end for end in (", no budget", ", five passes") if row["method"].endswith(end)), "")
            legend.setdefault(row["method"].split("(")[0].removesuffix(suffix) + suffix, made)
        ax.set(xscale="log", yscale="log", xlabel="seconds of training")
        ax.set_title(f"{name}, {int(own[0]['rows']):,} rows, {own[0]['budget']} points", fontsize=9)
        ticks = [t for t in (2, 5, 10, 20, 40, 80) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
        ax.set_yticks(ticks, ticks)
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test error in per cent, least and largest of ten orders")
    drawn.legend(legend.values(), legend, loc="outside lower center", ncols=5, fontsize=7)
    drawn.set_size_inches(4 * len(names), 5)
    return drawn


def draw_maintenance(rows: list[dict]):
    """Figure 7: time by partners and search, and accuracy."""
    drawn, (axes,) = panels(1, 3)
    names = [f"{row['partners']}, {row['search']}" for row in rows]
    for ax, field, what in ((axes[0], "us_a_maintenance", "microseconds a maintenance"),
                            (axes[1], "seconds", "seconds of five epochs"),
                            (axes[2], "accuracy_mean", "test accuracy in per cent")):  # fmt: skip
        deviation = common.column(rows, "accuracy_deviation") if field == "accuracy_mean" else None
        ax.bar(np.arange(len(rows)), common.column(rows, field), yerr=deviation)
        ax.set_xticks(np.arange(len(rows)), names, fontsize=7)
        ax.set_ylabel(what)
    axes[2].set_ylim(98.5, 100)
    axes[1].set_xlabel("partners, search")
    return drawn


def draw_stop(rows: list[dict]):
    """Figure 11: where the rule ends a run."""
    drawn, (axes,) = panels(1, 2)
    for row in rows:
        colour, mark = f"C{['BSCA', 'ACF-BSCA'].index(row['method']) + 1}", "o" if row["tol"] == "0.01" else "s"
        label = f"{row['method']}, {row['tol']}" + ("" if row["converged"] == "True" else ": not met")
        for ax, field in zip(axes, ("accuracy", "primal"), strict=True):
            style = {"color": colour, "marker": mark, "label": label, "ls": "", "ms": 7}
            ax.plot(int(row["epochs"]), float(row[field]), fillstyle="full" if row["converged"] == "True" else "none", **style)
    axes[0].set(ylabel="test accuracy in per cent", xlabel="epochs until the rule is met (60 at most)")
    axes[1].set(ylabel="primal value / (C n)", xlabel="epochs")
    for ax in axes:
        ax.set_xlim(0, 65)
        ax.grid(alpha=0.3)
    axes[1].legend(fontsize=7)
    return drawn


def main() -> None:
    known = {f.__name__: f for f in (accuracy, dual, maintenance, stop, seeds, online, figure)}
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", help=f"{', '.join(known)}; none: all")
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--epochs", type=int, default=10**9)
    parser.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
    options = parser.parse_args()
    if set(options.parts) - set(known):
        parser.error(f"no such part: {', '.join(sorted(set(options.parts) - set(known)))}")
    common.RESULTS = options.out
    common.RESULTS.mkdir(parents=True, exist_ok=True)
    print(common.device())
    for name in options.parts or known:
        known[name](options)


if __name__ == "__main__":
    main()
