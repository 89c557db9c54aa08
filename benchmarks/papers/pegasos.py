"""`python -m benchmarks.papers.pegasos [convergence] [batch] [again]`: figures of the Pegasos overview, on real rows.

Rows scaled to norm 1, no intercept, lambda = 1e-4; the optimum is LIBLINEAR's on the same rows (LinearSVC, hinge). Three seeds.

convergence: excess of the objective and test error against passes, for averaged Pegasos on minibatches of 64 (on sparse
rows also of more, drawn with replacement) and for SGDClassifier(average=True); LinearSVC's error beside them.
batch: k rows a step and T steps, k T fixed to ten passes: the excess against k.
again: the variants of section 4.5: several steps on each drawn batch, for as many rows drawn (ten passes) and for as many steps
as ten passes have; and a step counter that stands still where no row violates. The average and the last iterate.
"""

from __future__ import annotations

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import samplers

from ..common import RESULTS, load_all, load_sparse, panels, write

LAM = 1e-4
NAMES = ("reuters_money_fx", "a9a", "ijcnn1", "covtype")
SEEDS = 3


def rows(name: str):
    """Training rows, labels, test rows, labels; NumPy or CSR, of norm 1."""
    if name != "reuters_money_fx":
        x, y, x_test, y_test = load_all(name)
        if x_test is None:
            order = np.random.default_rng(0).permutation(len(y))
            x, y = x[order], y[order]
            cut = len(y) * 4 // 5
            x, y, x_test, y_test = x[:cut], y[:cut], x[cut:], y[cut:]
        unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return unit(x), y, unit(x_test), y_test
    return load_sparse(name)


class Problem:
    """Rows of a data set, its optimum by LIBLINEAR, and what both programs' weights are worth."""

    def __init__(self, name: str):
        from sklearn.svm import LinearSVC

        self.name = name
        self.x, self.y, self.x_test, self.y_test = rows(name)
        self.n = len(self.y)
        self.data = jaxsvm.dataset(self.x, self.y)
        self.wide = self.x.astype(np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            C = 1 / (LAM * self.n)
            made = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-6, max_iter=1000, random_state=0)
            self.exact = made.fit(self.x, self.y).coef_[0]
        self.optimum = self.primal(self.exact)

    def primal(self, w) -> float:
        """The objective, in float64."""
        w = np.asarray(w, np.float64)
        return LAM / 2 * w @ w + np.maximum(0, 1 - self.y * (self.wide @ w)).mean()

    def excess(self, w) -> float:
        """Above the optimum, as a share of it."""
        return self.primal(w) / self.optimum - 1

    def error(self, w) -> float:
        """On the test rows, in per cent."""
        return 100 * float(np.mean((self.x_test @ np.asarray(w) > 0) != (self.y_test > 0)))


def weights(model):
    return model.w


def late(t):
    return t + 1


SOLVER = jaxsvm.averaged(jaxsvm.pegasos(LAM), weights=late)


def convergence() -> None:
    """Figures 3 and 4: objective and error against passes."""
    from sklearn.linear_model import SGDClassifier

    table = []
    for name in NAMES:
        problem, long = Problem(name), name == "reuters_money_fx"
        table.append(entry(name, "LinearSVC", "", "", problem, problem.exact))
        ours = [("k = 64", samplers.epochs(64), 300 if long else 40)]
        ours += [(f"k = {k}, drawn with replacement", samplers.uniform(k), 800) for k in (256, 1110, 3885)] if long else []
        for seed in range(SEEDS):
            for method, sampler, passes in ours:
                per_pass = -(-problem.n // sampler.rows(problem.n))
                run = jaxsvm.fit(
                    SOLVER, problem.data, jax.random.key(seed), steps=passes * per_pass, every=per_pass, sampler=sampler,
                    probe=weights,
                )  # fmt: skip
                looks = [k for k in range(passes) if k < 10 or (k + 1) % 10 == 0]
                table += [entry(name, f"Pegasos, averaged, {method}", seed, k + 1, problem, run.info.probe[k]) for k in looks]
            for k in (1, 2, 5, 10, 20, 40, *((100, 200, 400, 800) if long else ())):
                made = SGDClassifier(alpha=LAM, fit_intercept=False, average=True, max_iter=k, tol=None, random_state=seed)
                table.append(entry(name, "SGDClassifier, averaged", seed, k, problem, made.fit(problem.x, problem.y).coef_[0]))
    write("pegasos_convergence", table)
    figure, axes = panels(2, len(NAMES))
    for column, name in enumerate(NAMES):
        for colour, method in enumerate(sorted({r["method"] for r in table} - {"LinearSVC"}, key=lambda m: ("drawn" in m, m))):
            own = [r for r in table if r["data"] == name and r["method"] == method]
            if not own:
                continue
            passes = sorted({r["passes"] for r in own})
            for ax, key in zip(axes[:, column], ("excess", "test_error"), strict=True):
                values = np.array([[float(r[key]) for r in own if r["passes"] == p] for p in passes])
                ax.plot(passes, values.mean(1), label=method, color=f"C{colour}")
                ax.fill_between(passes, values.min(1), values.max(1), alpha=0.3, color=f"C{colour}")
        axes[1, column].axhline(float(table[[r["data"] for r in table].index(name)]["test_error"]), color="grey", ls=":")
        axes[0, column].set(yscale="log", xscale="log", title=name)
        axes[1, column].set(xscale="log", xlabel="passes")
    axes[0, 0].set_ylabel("excess over the optimum")
    axes[1, 0].set_ylabel("test error in per cent (dotted: LinearSVC)")
    axes[0, 0].legend(fontsize=6)
    figure.savefig(RESULTS / "pegasos_convergence.png", dpi=120)


def entry(name, method, seed, passes, problem, w) -> dict:
    return {"data": name, "method": method, "seed": seed, "passes": passes, "excess": f"{problem.excess(w):.3e}",
            "test_error": f"{problem.error(w):.2f}"}  # fmt: skip


def batch() -> None:
    """k against T: ten passes in steps of k rows."""
    table = []
    for name in NAMES:
        problem = Problem(name)
        for k in (4, 16, 64, 256, 1024, 4096):
            for seed in range(SEEDS):
                run = jaxsvm.fit(
                    SOLVER, problem.data, jax.random.key(seed), steps=-(-10 * problem.n // k), every=-(-problem.n // k),
                    sampler=samplers.epochs(k),
                )  # fmt: skip
                table.append({"data": name, "k": k, "T": int(run.state.step), "seed": seed,
                              "excess": f"{problem.excess(run.model.w):.3e}"})  # fmt: skip
    write("pegasos_batch", table)
    figure, axes = panels(1, 1)
    for name in NAMES:
        ks = sorted({r["k"] for r in table})
        values = np.array([[float(r["excess"]) for r in table if r["data"] == name and r["k"] == k] for k in ks])
        axes[0, 0].errorbar(ks, values.mean(1), values.std(1), fmt="o-", capsize=2, label=name)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="rows a step, ten passes in all", ylabel="excess over the optimum")
    axes[0, 0].legend()
    figure.savefig(RESULTS / "pegasos_batch.png", dpi=120)


@jaxsvm.node
class again(jaxsvm.Sampler):
    """The draws of `inner`, each for so many steps."""

    inner: jaxsvm.Sampler
    times: int

    def init(self, key, data):
        return self.inner.init(key, data)

    def draw(self, s, t, count):
        batches = self.inner.draw(s, t // self.times, -(-count // self.times) + 1)
        return batches[(t + jnp.arange(count)) // self.times - t // self.times]

    def rows(self, n):
        return self.inner.rows(n)

    def weight(self, data):
        return self.inner.weight(data)


TIMES = (1, 2, 4, 8, 16)


def several() -> None:
    """Several steps on one drawn batch, and the counter of violations."""
    table = []
    for name in NAMES[:3]:
        problem = Problem(name)
        for k, times, counter in ((k, times, counter) for k in (64, 1024) for times in TIMES for counter in (False, True)):
            if counter and times > 1:
                continue
            whole = -(-10 * problem.n // k)  # steps of ten passes
            for budget, steps in (("rows drawn", whole * times), ("steps", whole))[: 1 if times == 1 else 2]:
                for seed in range(SEEDS):
                    inner = jaxsvm.pegasos(LAM, advance_on_violation=counter)
                    for model, solver in (("average", jaxsvm.averaged(inner, weights=late)), ("last", inner)):
                        run = jaxsvm.fit(solver, problem.data, jax.random.key(seed), steps=steps, every=steps,
                                         sampler=again(samplers.uniform(k), times))  # fmt: skip
                        row = {"data": name, "k": k, "times": times, "counter": "violations" if counter else "steps"}
                        row |= {"equal": "both" if times == 1 else budget, "seed": seed, "steps": steps}
                        table.append(row | {"rows_drawn": steps // times * k, "model": model,
                                            "excess": f"{problem.excess(run.model.w):.3e}",
                                            "test_error": f"{problem.error(run.model.w):.2f}"})  # fmt: skip
    write("pegasos_again", table)
    figure, axes = panels(2, 3)
    for across, k in zip(axes, (64, 1024), strict=True):
        for ax, name in zip(across, NAMES, strict=False):
            for colour, model in enumerate(("average", "last")):
                for equal, style in (("rows drawn", "o-"), ("steps", "s--")):
                    own = [r for r in table if (r["data"], r["k"], r["model"], r["counter"]) == (name, k, model, "steps")]
                    values = [
                        [float(r["excess"]) for r in own if r["times"] == t and r["equal"] in (equal, "both")] for t in TIMES
                    ]
                    ax.plot(TIMES, np.mean(values, 1), style, color=f"C{colour}", label=f"{model}, equal {equal}", ms=4)
            ax.set(xscale="log", yscale="log", title=f"{name}, {k} rows a batch")
            ax.set_xticks(TIMES, TIMES)
            ax.minorticks_off()
            ax.grid(alpha=0.3)
        across[0].set_ylabel("excess over the optimum")
    for ax in axes[1]:
        ax.set_xlabel("steps on one drawn batch")
    axes[0, 0].legend(fontsize=7)
    figure.savefig(RESULTS / "pegasos_again.png", dpi=120)


def main() -> None:
    known = {"convergence": convergence, "batch": batch, "again": several}
    for name in [a for a in sys.argv[1:] if a in known] or list(known):
        known[name]()


if __name__ == "__main__":
    main()
