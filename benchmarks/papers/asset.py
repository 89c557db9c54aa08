"""ASSET as its paper measures it: `python -m benchmarks.papers.asset [part ...]`, in parts:

table2       test error and time of ASSET and ASSET* on Nystrom features, the paper's C and gamma, three seeds; with the first
             seed beside dual coordinate ascent (at most a minute) on the same features; `table2 --data=adult`
             runs one data set (half an hour for all four). Rows that are in the file are not made again
rivals       the other columns of table 2 on the first landmarks: cutting planes on the same features (CPNY), in a span of basis
             points (CPSP), LASVM on the rows, the interior point method and least squares on the features; 25 seconds each at
             most, compilation included, and fewer rows where a method needs it; `rivals --data=adult` runs one data set
dimension    test error against the number of landmarks (figure 1); the rivals on fewer rows, with one seed
online       one pass over MNIST with Fourier features: error against their number (table 3): of the average of the last 1,000
             steps, mean and deviation of the iterates in the 10,000 before the end, seconds to classify 5,950 rows
progress     error against rows read in one pass over MNIST (figure 2)
libsvm       scikit-learn's SVC on the rows themselves (minutes to hours; not on covtype)
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import features, kernels, samplers
from jaxsvm.engines.coordinate_ascent import dual_coef

from .. import common
from ..common import RESULTS, device, load_all, panels, saved, write

KEY, SEEDS = jax.random.key(0), 3
PASSES = {"adult": 60, "mnist": 20, "ijcnn1": 20, "covtype": 5}
# name: gamma, C, sizes of train and test in the paper, its test errors in per cent with 512 and 1024 landmarks
ROWS = {
    "adult": (0.001, 1000.0, 32_561, 8_141, {512: 15.06, 1024: 15.10}),
    "mnist": (0.01, 100.0, 58_100, 5_950, {512: 4.03, 1024: 2.66}),
    "ijcnn1": (1.0, 100.0, 113_352, 14_169, {512: 1.08, 1024: 0.79}),
    "covtype": (1.0, 3.0, 464_809, 58_101, {512: 18.19, 1024: 16.47}),
}


def data(name: str) -> tuple[jaxsvm.Batch, jaxsvm.Batch]:
    """Train and test rows in the sizes of the paper: adult's own split, random ones of the others; covtype in [0, 1]."""
    x, y, x_test, y_test = load_all("a9a" if name == "adult" else name)
    train, test = ROWS[name][2:4]
    if name != "adult":
        if x_test is not None:
            x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
        order = np.random.default_rng(0).permutation(len(y))
        x_test, y_test = x[order[-test:]], y[order[-test:]]
        x, y = x[order[:train]], y[order[:train]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jaxsvm.dataset(x, y), jaxsvm.dataset(x_test, y_test)


def nystrom(name: str, train: jaxsvm.Batch, landmarks: int, seed: int = 0):
    """The map, with the paper's width."""
    return features.nystrom(jax.random.fold_in(KEY, seed), kernels.rbf(gamma=ROWS[name][0]), train.x, landmarks=landmarks)


def lifted(phi, *parts):
    """The rows in feature space, and the seconds that it took."""
    began = time.perf_counter()
    made = [jax.block_until_ready(jaxsvm.on_features(phi, jaxsvm.pegasos(1.0)).prepare(part)) for part in parts]
    return made, time.perf_counter() - began


def exact(train, C, seconds=40.0):
    """The solution on the features by dual coordinate ascent with shrinking; in the second half of the time averaged.

    Returns the model, a lower bound on the optimum, and the periods and seconds that it took.
    """
    b = 16
    n, sampler = train.y.shape[0], samplers.shrinking(16, rounds=4)
    feed = {"every": -(-n // b), "sampler": sampler, "steps": min(100_000 * -(-n // b), 2**30), "seconds": seconds / 2}
    began = time.perf_counter()
    run = jaxsvm.fit(jaxsvm.sdca(C), train, KEY, tol=1e-4, **feed)
    start = jnp.clip(dual_coef(run.state.solver) * train.y, 0, C)
    averaged = jaxsvm.fit(jaxsvm.averaged(jaxsvm.sdca(C, start=start)), train, KEY, **feed)
    alpha = np.clip(np.asarray(dual_coef(averaged.state.solver.inner) * train.y, np.float64), 0, C) * (1 - 1e-7)
    least = float(jaxsvm.objectives.dual(alpha, train, 1 / (C * n)))
    return averaged.model, least, run.info.step.size + averaged.info.step.size, time.perf_counter() - began


def timed(solver, train, key, **options):
    """A run and its seconds, compilation left out (a run of one piece comes before)."""
    steps, every = options.pop("steps"), options.pop("every")
    jax.block_until_ready(jaxsvm.fit(solver, train, key, steps=every, every=every, **options))
    began = time.perf_counter()
    run = jax.block_until_ready(jaxsvm.fit(solver, train, key, steps=steps, every=every, **options))
    return run, time.perf_counter() - began


def mapped(build, train, test):
    """A map, its rank, the rows in its feature space, and seconds to build and to apply it, compilation left out."""
    jax.block_until_ready(lifted(build(), train, test))
    began = time.perf_counter()
    phi = jax.block_until_ready(build())
    building = time.perf_counter() - began
    parts, lifting = lifted(phi, train, test)
    return parts, {"rank": int(phi.rank), "map_s": round(building, 2), "lifting_s": round(lifting, 2)}


def table2() -> None:
    """Errors and times of the paper's table 2, three seeds; of one data set by `--data=NAME`.

    A seed draws other landmarks and another order of the rows. asset_table2_mean.csv has means and deviations.
    """
    rows = saved("asset_table2")
    for name in [name for name in ROWS if f"--data={name}" in sys.argv] or list(ROWS):
        parts = None
        for landmarks, seed in ((k, seed) for k in (512, 1024) for seed in range(SEEDS)):
            own = {"data": name, "landmarks": str(landmarks), "seed": str(seed)}
            if any(own.items() <= r.items() for r in rows):
                continue
            parts = parts or data(name)
            rows += on_one_map(name, landmarks, seed, *parts)
            columns = dict.fromkeys(key for r in rows for key in r)
            rows = [{key: str(value) for key, value in (columns | r).items() if value is not None} for r in rows]
            write("asset_table2", [dict.fromkeys(columns, "") | r for r in rows])
    write("asset_table2_mean", means(rows))


def means(rows: list[dict]) -> list[dict]:
    """Mean and deviation over the seeds of each method; a cell is empty where no seed has the figure."""
    groups, found = {}, []
    for r in rows:
        groups.setdefault((r["data"], r["landmarks"], r["method"]), []).append(r)
    for (name, landmarks, method), own in groups.items():
        mean = {"data": name, "landmarks": landmarks, "method": method, "seeds": len(own)}
        for key in ("rank", "test_error", "train_s", "map_and_train_s"):
            values = np.array([float(r[key]) for r in own if r.get(key)])
            mean[key] = f"{values.mean():.2f}" if len(values) else ""
            mean[f"{key}_deviation"] = f"{values.std(ddof=1):.2f}" if len(values) > 1 else ""
        found.append(mean)
    return found


LIMIT, POINTS = 25.0, 128  # seconds of an iterative rival; basis points of CPSP
FEWER = {"LASVM": 5_000, "CPSP": 10_000, "interior point": 20_000}  # rows at most
WIDEST = 1_000  # columns that the interior point method takes
ABOUT = ("test_error", "train_s", "objective", "steps", "visits", "converged", "residual", "rank", "device")


def rivals() -> None:
    """Errors and times of the paper's rivals, asset_rivals.csv; of one data set by `--data=NAME`."""
    results = common.Results("asset_rivals", ("data", "n", "landmarks", "method"), ABOUT)
    for name in [name for name in ROWS if f"--data={name}" in sys.argv] or list(ROWS):
        (gamma, C), (train, test) = ROWS[name][:2], data(name)
        kernel, cases = kernels.rbf(gamma=gamma), [None, 512, 1024]
        for landmarks in cases:
            if landmarks:
                (train_on, test_on), about = mapped(lambda k=landmarks: nystrom(name, train, k), train, test)  # noqa: B023
                used = np.flatnonzero(np.any(np.asarray(train_on.x[:1000]) != 0, 0))
                methods = {
                    "CPNY": lambda lam, C: jaxsvm.ocas(lam, bias="none", planes=200),
                    "interior point": lambda lam, C: jaxsvm.interior_point(C, bias="none"),
                    "least squares": lambda lam, C: jaxsvm.least_squares(lam, bias="none"),
                }
                if about["rank"] > WIDEST:
                    methods.pop("interior point")
            else:
                (train_on, test_on), about = (train, test), {}
                methods = {
                    "LASVM": lambda lam, C: jaxsvm.lasvm(C, kernel, bias="none"),  # noqa: B023
                    "CPSP": lambda lam, C: jaxsvm.cpsp(lam, kernel, points=POINTS),  # noqa: B023
                }
            for label, factory in methods.items():
                n = min(train_on.y.shape[0], FEWER.get(label, 10**9))
                own = {"data": name, "n": n, "landmarks": landmarks or "", "method": label}
                if results.of(own):
                    continue
                rows, held = jax.tree.map(lambda a, n=n: a[:n], train_on), test_on
                if label == "interior point":  # whose time is that of the square of the columns
                    rows, held = (part._replace(x=part.x[:, used]) for part in (rows, held))
                found = rival(label, factory(1 / (C * n), C), rows, held, 1 / (C * n))
                results.add(own, [found | {"rank": about.get("rank", ""), "device": device()}])


def rival(label: str, solver, train, test, lam: float) -> dict:
    """The row of one method: it ends at its tolerance, or after `LIMIT` seconds, compilation included."""
    began = time.perf_counter()
    run = jax.block_until_ready(jaxsvm.fit(solver, train, KEY, seconds=LIMIT, steps=10**6, every=1, tol=1e-3))
    seconds = time.perf_counter() - began
    value = float(jaxsvm.objectives.primal(run.model, train, lam))
    found = row(label, 100 * float(jaxsvm.error_on(test)(run.model)), seconds, value, int(run.state.step), int(run.evals))
    return found | {"converged": bool(run.converged), "residual": f"{float(run.info.residual[-1]):.2g}"}


def on_one_map(name: str, landmarks: int, seed: int, train, test) -> list[dict]:
    """The rows of table 2 for one draw of the landmarks; dual ascent with the first alone."""
    _, C, n, _, paper = ROWS[name]
    lam, key = 1 / (C * n), jax.random.key(seed)
    (train_on, test_on), about = mapped(lambda: nystrom(name, train, landmarks, seed), train, test)
    error = jaxsvm.error_on(test_on)
    base = {"data": name, "n": n, "landmarks": landmarks, "seed": seed} | about | {"paper_ASSET_error": paper[landmarks]}
    rows = [] if seed else [by_dual_ascent(train_on, C, lam, error)]
    if rows:
        base["optimum_at_least"] = rows[0].pop("least")
    steps = PASSES[name] * n
    for label, factory in (("ASSET", lambda lam, k: jaxsvm.asset(lam, bias="none", average_from=k)),
                           ("ASSET*", lambda lam, k: jaxsvm.asset_star(lam, average_from=k))):  # fmt: skip
        run, seconds = timed(factory(lam, steps // 2), train_on, key, steps=steps, every=n)
        value = float(jaxsvm.objectives.primal(run.model, train_on, lam))
        rows.append(row(label, 100 * float(error(run.model)), seconds, value, steps, steps))
    for k, found in enumerate(rows):
        whole = round(about["map_s"] + about["lifting_s"] + found["train_s"], 2)
        rows[k] = base | found | {"map_and_train_s": whole, "device": device()}
        print(rows[k], flush=True)
    return rows


def by_dual_ascent(train_on, C: float, lam: float, error) -> dict:
    """The row of dual ascent on the features."""
    optimum, least, periods, seconds = exact(train_on, C)
    best = float(jaxsvm.objectives.primal(optimum, train_on, lam))
    found = row("sdca, shrinking, averaged", 100 * float(error(optimum)), seconds, best, periods, train_on.y.shape[0] * periods)
    return found | {"least": f"{least:.5g}"}


def row(label, error, seconds, objective, steps, visits):
    return {"method": label, "test_error": round(error, 2), "train_s": round(seconds, 2), "objective": f"{objective:.5g}",
            "steps": int(np.max(steps)), "visits": int(np.max(visits))}  # fmt: skip


SIZES = (4, 16, 64, 256, 1024)
CURVES = {"ASSET": "C0o-", "ASSET*": "C1s-", "ASSET_on": "C2^-", "CPNY": "C3v--", "CPSP": "C4D--", "interior point": "C5x--",
          "least squares": "C6+--"}  # fmt: skip
PLACES = {  # the rivals' rows at most, and their landmarks at most
    "CPNY": (20_000, 256), "CPSP": (10_000, 64), "interior point": (20_000, 256), "least squares": (20_000, 1024),
}  # fmt: skip


def dimension() -> None:
    """Figure 1: error against the number of landmarks; of ASSET_on, of Fourier features."""
    results = common.Results("asset_dimension", ("data", "n", "landmarks", "seed", "method"), ("test_error",))
    for name in ROWS:
        parts = None
        for method, landmarks, seed in ((m, k, seed) for m in CURVES for k in SIZES for seed in range(1 if m in PLACES else 2)):
            most, widest = PLACES.get(method, (50_000, 1024))
            n = min(ROWS[name][2], most)
            own = {"data": name, "n": n, "landmarks": landmarks, "seed": seed, "method": method}
            if landmarks > widest or results.of(own):
                continue
            parts = parts or data(name)
            run = of_dimension(name, method, landmarks, seed, jax.tree.map(lambda a, n=n: a[:n], parts[0]))
            results.add(own, [{"test_error": str(round(100 * float(jaxsvm.error_on(parts[1])(run.model)), 2))}])
    draw_dimension(results.rows)


def of_dimension(name: str, method: str, landmarks: int, seed: int, train):
    """The run of one point of figure 1."""
    (gamma, C), n, key = ROWS[name][:2], train.y.shape[0], jax.random.key(seed)
    lam, kernel, steps = 1 / (C * n), kernels.rbf(gamma=gamma), 5 * n
    if method == "CPSP":
        return jaxsvm.fit(jaxsvm.cpsp(lam, kernel, points=landmarks), train, key, steps=300, every=1, tol=1e-3)
    if method == "ASSET_on":
        phi = features.fourier(key, kernel, dim=train.x.shape[1], features=landmarks)
        made = jaxsvm.on_features(phi, jaxsvm.asset(lam, bias="none", average_from=n - 1000))
        return jaxsvm.fit(made, train, key, steps=n, sampler=samplers.epochs(1))
    solver, feed = {
        "ASSET": (jaxsvm.asset(lam, bias="none", average_from=steps // 2), {"steps": steps, "every": n}),
        "ASSET*": (jaxsvm.asset_star(lam, average_from=steps // 2), {"steps": steps, "every": n}),
        "CPNY": (jaxsvm.ocas(lam, bias="none", planes=200), {"steps": 150, "every": 1, "tol": 1e-3}),
        "interior point": (jaxsvm.interior_point(C, bias="none"), {"steps": 1, "tol": 1e-3}),
        "least squares": (jaxsvm.least_squares(lam, bias="none"), {"steps": 10**6, "tol": 1e-3}),
    }[method]
    return jaxsvm.fit(jaxsvm.on_features(nystrom(name, train, landmarks, seed), solver), train, key, **feed)


def draw_dimension(rows: list[dict]) -> None:
    """asset_dimension.png, a panel for each data set."""
    figure, (axes,) = panels(1, len(ROWS))
    for ax, name in zip(axes, ROWS, strict=True):
        for label, style in CURVES.items():
            own = [r for r in rows if r["data"] == name and r["method"] == label]
            sizes = sorted({int(r["landmarks"]) for r in own})
            values = [common.column([r for r in own if int(r["landmarks"]) == k], "test_error") for k in sizes]
            ax.errorbar(sizes, [v.mean() for v in values], [v.std() for v in values], fmt=style, label=label, ms=4, lw=1.2,
                        capsize=2)  # fmt: skip
        ax.set(xscale="log", xlabel="landmarks (CPSP: points, ASSET_on: features)", title=name)
        ax.set_xticks(SIZES, SIZES)
        ax.minorticks_off()
    axes[0].set_ylabel("test error in per cent")
    axes[-1].legend(fontsize=7)
    figure.savefig(RESULTS / "asset_dimension.png", dpi=120)


LAST, EACH = 10_000, 1_000  # steps of table 3 over which the error varies, and between two looks
SEEN = ("test_error", "last_mean", "last_deviation", "seconds_with_compilation", "test_s")


def online_solvers(lam: float, average_from: int) -> dict:
    """The two online forms by name."""
    return {"ASSET_on": jaxsvm.asset(lam, bias="none", average_from=average_from),
            "ASSET*_on": jaxsvm.asset_star(lam, average_from=average_from)}  # fmt: skip


def online() -> None:
    """Table 3: one pass over MNIST, features never held for more than a piece; three seeds, one from 8,192 features on."""
    results, parts = common.Results("asset_online", ("features", "seed", "method"), SEEN), None
    gamma, C, n = ROWS["mnist"][:3]
    for width in (256, 512, 1024, 2048, 4096, 8192, 16_384):
        for seed, label in ((s, label) for s in range(3 if width < 8192 else 1) for label in online_solvers(1.0, 1)):
            own = {"features": width, "seed": seed, "method": label}
            if results.of(own):
                continue
            train, test = parts = parts or data("mnist")
            key, judge = jax.random.key(seed), jaxsvm.error_on(test)
            phi = features.fourier(key, kernels.rbf(gamma=gamma), dim=784, features=width)
            made = jaxsvm.on_features(phi, online_solvers(1 / (C * n), n - EACH)[label])
            feed = {"sampler": samplers.epochs(1), "memory": 2**28}
            go = lambda steps, key=None, state=None, made=made, train=train, feed=feed: common.timed(
                lambda: jaxsvm.fit(made, train, key, steps=steps, state=state, **feed)
            )
            run, seconds = go(n - LAST, key)
            errors = []  # of the iterates; the last model is an average
            while int(run.state.step) < n:
                run, took = go(EACH, state=run.state)
                errors, seconds = [*errors, 100 * float(judge(run.model))], seconds + took
            _, testing = common.timed(lambda model=run.model, test=test: model(test.x))
            found = {"test_error": errors[-1], "last_mean": np.mean(errors[:-1]), "last_deviation": np.std(errors[:-1], ddof=1)}
            results.add(own, [found | {"seconds_with_compilation": seconds, "test_s": testing}])
    rows = results.rows
    figure, ((ax,),) = panels(1, 1)
    for label, style in (("ASSET_on", "o-"), ("ASSET*_on", "s--")):
        widths = sorted({int(r["features"]) for r in rows})
        values = [[float(r["test_error"]) for r in rows if int(r["features"]) == k and r["method"] == label] for k in widths]
        ax.errorbar(widths, [np.mean(v) for v in values], [np.std(v) for v in values], fmt=style, label=label, capsize=2)
    ax.set(xscale="log", yscale="log", xlabel="Fourier features", ylabel="test error in per cent", title="MNIST, one pass")
    ax.set_xticks(widths, widths, fontsize=7)
    ax.set_yticks([3, 5, 7, 10, 15], [3, 5, 7, 10, 15])
    ax.minorticks_off()
    ax.legend()
    figure.savefig(RESULTS / "asset_online.png", dpi=120)


def progress() -> None:
    """Figure 2 with MNIST in the place of MNIST-E: test error of the iterate against rows read, 2,048 Fourier features."""
    fields = ("test_error", "average_error")
    results, parts = common.Results("asset_progress", ("features", "seed", "method", "rows"), fields), None
    gamma, C, n, width = *ROWS["mnist"][:3], 2_048
    looks = sorted({*np.geomspace(200, n, 22).astype(int).tolist()})
    for seed, label in ((seed, label) for seed in range(3) for label in online_solvers(1.0, 1)):
        own = {"features": width, "seed": seed, "method": label}
        if results.of(own | {"rows": looks[-1]}):
            continue
        train, test = parts = parts or data("mnist")
        key, judge = jax.random.key(seed), jaxsvm.error_on(test)
        phi = features.fourier(key, kernels.rbf(gamma=gamma), dim=784, features=width)
        ways = []
        for average_from in (2 * n, 1):  # the iterate, and the mean of all
            made = jaxsvm.on_features(phi, online_solvers(1 / (C * n), average_from)[label])
            feed, state, errors = {"sampler": samplers.epochs(1), "memory": 2**28}, None, []
            for before, after in zip([0, *looks[:-1]], looks, strict=True):
                run = jaxsvm.fit(made, train, key if state is None else None, steps=after - before, state=state, **feed)
                state, errors = run.state, [*errors, 100 * float(judge(run.model))]
            ways.append(errors)
        for k, at in enumerate(looks):
            results.add(own | {"rows": at}, [dict(zip(fields, (ways[0][k], ways[1][k]), strict=True))])
    figure, ((ax,),) = panels(1, 1)
    for colour, label in enumerate(online_solvers(1.0, 1)):
        for field, style in zip(fields, ("-", "--"), strict=True):
            own = [[r for r in results.rows if r["method"] == label and int(r["rows"]) == at] for at in looks]
            values = np.array([common.column(r, field) for r in own])
            what = "iterate" if style == "-" else "mean of all"
            ax.plot(looks, values.mean(1), style, color=f"C{colour}", label=f"{label}, {what}")
            ax.fill_between(looks, values.min(1), values.max(1), color=f"C{colour}", alpha=0.2)
    ax.set(xscale="log", yscale="log", xlabel="rows read, MNIST", ylabel="test error in per cent")
    ax.set_yticks([5, 10, 20, 40], [5, 10, 20, 40])
    ax.minorticks_off()
    ax.legend(fontsize=7)
    figure.savefig(RESULTS / "asset_progress.png", dpi=120)


def libsvm() -> None:
    """SVC on the rows themselves."""
    from sklearn.svm import SVC

    rows = []
    for name in sys.argv[2:] or ("adult", "mnist", "ijcnn1"):
        gamma, C = ROWS[name][:2]
        train, test = data(name)
        began = time.perf_counter()
        made = SVC(C=C, gamma=gamma, cache_size=4000).fit(train.x, train.y)
        seconds = time.perf_counter() - began
        error = 100 * float(np.mean(made.predict(np.asarray(test.x)) != np.asarray(test.y)))
        rows.append(
            {"data": name, "test_error": round(error, 2), "seconds": round(seconds, 1), "support": int(made.n_support_.sum())}
        )
        write("asset_libsvm", rows)


def main() -> None:
    """Run what the command line names, or everything but libsvm."""
    known = {f.__name__: f for f in (table2, rivals, dimension, online, progress, libsvm)}
    for name in [a for a in sys.argv[1:] if a in known] or list(known)[:-1]:
        known[name]()


if __name__ == "__main__":
    main()
