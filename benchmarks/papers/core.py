"""`python -m benchmarks.papers.core [convergence] [steps]`: how fast linear solvers get to the optimum, and what a step costs.

convergence: a9a as it is (|x|^2 up to 14), lambda = 1e-4. Excess of the objective over LIBLINEAR's optimum against
passes, for averaged Pegasos (equal weights and weights t + 1, minibatches of 64 and single rows), linear SDCA and the other
linear solvers.

steps: microseconds a step with one row, for averaged Pegasos through `fit`'s own piece, beside a bare scan of the same
arithmetic, linear SDCA, and SGDClassifier(average=True) per row (slope between 5 and 25 epochs), and minibatches
of 64, per row.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

LAM = 1e-4


def convergence() -> None:
    """Objective against passes on a9a."""
    import jax
    from sklearn.svm import LinearSVC

    import jaxsvm

    from ..common import device, load, write

    x, y = load("a9a")
    data = jaxsvm.dataset(x, y)
    n = len(y)
    primal = lambda w: LAM / 2 * w @ w + np.maximum(0, 1 - y * (x.astype(np.float64) @ w)).mean()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = LinearSVC(loss="hinge", dual=True, fit_intercept=False, C=1 / (LAM * n), tol=1e-6, max_iter=20_000).fit(x, y)
    optimum = primal(exact.coef_.ravel().astype(np.float64))
    print(f"{device()}\nLIBLINEAR: objective {optimum:.6f} in {time.perf_counter() - began:.1f} s")

    late = lambda t: t + 1
    minibatch, single = jaxsvm.samplers.epochs(64), jaxsvm.samplers.epochs(1)
    calm = jaxsvm.pegasos(LAM, offset=float((x**2).sum(1).max()) / LAM)
    sdca = jaxsvm.sdca(1 / (LAM * n))
    cases = {
        "averaged pegasos, offset R^2/lam, weights t + 1, batch 64": (jaxsvm.averaged(calm, weights=late), minibatch, 10),
        "averaged pegasos, offset R^2/lam, weights t + 1, batch 1": (jaxsvm.averaged(calm, weights=late), single, 10),
        "averaged pegasos, offset R^2/lam, batch 64": (jaxsvm.averaged(calm), minibatch, 10),
        "averaged pegasos, offset R^2/lam, batch 1": (jaxsvm.averaged(calm), single, 10),
        "averaged pegasos, as printed, weights t + 1, batch 64": (
            jaxsvm.averaged(jaxsvm.pegasos(LAM), weights=late),
            minibatch,
            10,
        ),
        "averaged pegasos, as printed, weights t + 1, batch 1": (jaxsvm.averaged(jaxsvm.pegasos(LAM), weights=late), single, 10),
        "averaged pegasos, as printed, batch 64": (jaxsvm.averaged(jaxsvm.pegasos(LAM)), minibatch, 10),
        "averaged pegasos, as printed, batch 1": (jaxsvm.averaged(jaxsvm.pegasos(LAM)), single, 10),
        "pegasos, last iterate, batch 64": (jaxsvm.pegasos(LAM), minibatch, 10),
        "bottou_sgd": (jaxsvm.bottou_sgd(LAM), None, 10),
        "asgd": (jaxsvm.asgd(LAM, average_from=n), None, 10),
        "sdca, last iterate": (sdca, None, 30),
        "sdca, mean of passes 16 to 30": (jaxsvm.averaged(sdca, start=15 * n), None, 30),
    }
    rows = []
    for name, (solver, sampler, passes) in cases.items():
        steps_a_pass = -(-n // (sampler or solver.sampler).rows(n))
        for seed in range(3):
            began = time.perf_counter()
            run = jaxsvm.fit(
                solver,
                data,
                jax.random.key(seed),
                steps=passes * steps_a_pass,
                every=steps_a_pass,
                sampler=sampler,
                probe=lambda model: model.w,
            )
            seconds = time.perf_counter() - began
            for k in range(passes):
                excess = primal(np.asarray(run.info.probe[k], np.float64)) / optimum - 1
                rows.append(
                    {"solver": name, "seed": seed, "passes": k + 1, "excess": f"{excess:.3e}", "run_seconds": f"{seconds:.2f}"}
                )
    write("core_convergence", rows)


def steps() -> None:
    """Cost of a step with one row."""
    import jax
    import jax.numpy as jnp
    from sklearn.linear_model import SGDClassifier

    import jaxsvm

    from ..common import load, side_by_side, write

    def bare(data, lam, index):
        """Pegasos with projection and running mean, as short as it can be written: what the loop should cost."""

        def body(carry, i):
            w, mean, t = carry
            x = jax.lax.dynamic_index_in_dim(data.x, i, keepdims=False)
            y = jax.lax.dynamic_index_in_dim(data.y, i, keepdims=False)
            eta = 1 / (lam * t)
            w = (1 - eta * lam) * w + jnp.where(y * jnp.dot(w, x) < 1, eta * y, 0.0) * x
            w = w * jnp.minimum(1.0, jax.lax.rsqrt(lam * jnp.dot(w, w)))
            return (w, mean + (w - mean) / t, t + 1), None

        zero = jnp.zeros(data.x.shape[1])
        return jax.lax.scan(body, (zero, zero, jnp.float32(2)), index)[0][:2]

    rows = []
    for name, limit in (("ijcnn1", 20_000), ("a9a", 20_000), ("mnist", 5_000)):
        x, y = load(name)
        x, y = x[:limit], y[:limit]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = jaxsvm.dataset(x, y)
        count, key = 100_000, jax.random.key(0)

        def piece(solver, data=data, key=key, count=count, **feed):
            run = jaxsvm.fit(solver, data, key, steps=count, every=count, **feed).state
            return lambda: jaxsvm.fit(solver, data, steps=count, every=count, state=run, **feed).state.solver

        n = len(y)
        scan = jax.jit(lambda lam, key, data=data, n=n, count=count: bare(data, lam, jax.random.randint(key, (count,), 0, n)))
        sgd = {}
        for epochs in (5, 25):
            sgd[epochs] = lambda epochs=epochs, x=x, y=y: SGDClassifier(
                alpha=LAM, average=True, max_iter=epochs, tol=None, fit_intercept=False, shuffle=True, random_state=0
            ).fit(x, y)
        seconds = side_by_side(
            {
                "bare scan": lambda scan=scan, key=key: scan(jnp.float32(LAM), key),
                "averaged pegasos": piece(jaxsvm.averaged(jaxsvm.pegasos(LAM))),
                "sdca": piece(jaxsvm.sdca(1.0)),
                "batch 64": piece(jaxsvm.averaged(jaxsvm.pegasos(LAM)), count=count // 64, sampler=jaxsvm.samplers.uniform(64)),
                "sgd 5": lambda sgd=sgd: sgd[5]().coef_,
                "sgd 25": lambda sgd=sgd: sgd[25]().coef_,
            },
            repeats=9,
        )
        micro = {k: 1e6 * float(np.median(v)) / count for k, v in seconds.items() if not k.startswith("sgd")}
        slope = [(b - a) / (20 * len(y)) * 1e6 for a, b in zip(seconds["sgd 5"], seconds["sgd 25"], strict=True)]
        ratio = [a / b for a, b in zip(seconds["averaged pegasos"], seconds["bare scan"], strict=True)]
        row = {"data": name, "d": x.shape[1]}
        row |= {f"{k.replace(' ', '_')}_us_a_row": round(v, 3) for k, v in micro.items()}
        row |= {"SGDClassifier_us_a_row": round(float(np.median(slope)), 3), "pegasos_to_bare": round(float(np.median(ratio)), 2)}
        row["SGDClassifier_to_pegasos"] = round(row["SGDClassifier_us_a_row"] / row["averaged_pegasos_us_a_row"], 2)
        print(row, flush=True)
        rows.append(row)
    write("core_steps", rows)


def main() -> None:
    """Run what the command line names, or everything."""
    for name in sys.argv[1:] or ["convergence", "steps"]:
        {"convergence": convergence, "steps": steps}[name]()


if __name__ == "__main__":
    main()
