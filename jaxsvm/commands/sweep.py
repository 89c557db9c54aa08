"""`jaxsvm sweep`: the error over lambda and sigma."""

from __future__ import annotations

import csv
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, models, samplers

from ..numerics import sqdist
from ..recipe import as_static
from . import rows as reading
from . import solvers, train
from .build import pace
from .output import check_output, line, result_file, results, title


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    with results(args.out, args.plot, args.model) as stream:
        return sweep(args, stream)


def sweep(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    for path in (args.out, args.plot, args.model):
        check_output(path, args.file)
    if args.plot:
        draw_with()
    if args.passes < 1 or args.batch < 1:
        raise ValueError("--passes and --batch must be at least 1")
    key_split, key_map, key_fit = jax.random.split(jax.random.key(args.seed), 3)
    reading.ignore_range_warnings(args.scale != "none")
    parts, names, classes = train.read(args, key_split)
    if len(classes) > 2:
        raise ValueError(
            f"a sweep takes two classes, {args.file} has {len(classes)}: say which "
            f"is +1, --positive {classes[-1]}"
        )
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        line("" if i else "read", reading.described(name, part, classes))
    scale, description = reading.scaler(args, parts[0].x)
    line("scaled", description)
    train_rows, validation = (
        part if scale is None else part._replace(x=reading.call(scale, part.x)) for part in parts
    )
    count = min(128, train_rows.y.shape[0]) if args.count is None else args.count
    sigmas = (
        median_distance(train_rows.x) * np.geomspace(0.1, 10, 8)
        if args.sigma is None
        else args.sigma
    )
    axes: dict[str, Any] = {
        "lam": jnp.asarray(args.lam, jnp.float32),
        "sigma": jnp.asarray(sigmas, jnp.float32),
    }
    b = min(args.batch, train_rows.y.shape[0])
    steps = args.passes * -(-train_rows.y.shape[0] // b)
    line(
        "solver",
        f"asset on {count} {args.features} features, {args.passes} passes in "
        f"batches of {b}; seed {args.seed}",
    )

    def solver(lam, sigma, data, steps):
        phi = solvers.feature_map(args.features, key_map, kernels.rbf(sigma), data.x, count)
        return jaxsvm.on_features(phi, jaxsvm.asset(lam, average_from=steps // 2))

    finished: dict = {}

    def record(lam, sigma, error):
        finished[float(lam), float(sigma)] = float(error)

    def point(lam, sigma, data, validation, key):
        model = jaxsvm.fit(
            solver(lam, sigma, data, steps), data, key, steps=steps, sampler=samplers.epochs(b)
        ).model
        error = jaxsvm.error_on(validation)(model)
        jax.debug.callback(record, lam, sigma, error)  # so that Ctrl-C keeps all finished points
        return error

    start_time, stopped = time.monotonic(), False
    try:
        errors = jaxsvm.sweep(point, memory=args.memory, progress=not args.quiet, **axes)(
            train_rows, validation, key_fit
        )
    except KeyboardInterrupt:
        stopped = True
        grid = [
            [finished.get((float(lam), float(sigma)), np.nan) for sigma in axes["sigma"]]
            for lam in axes["lam"]
        ]
        errors = np.array(grid)
        if np.isnan(errors).all():
            raise
    table = jaxsvm.sweep.table(errors, **axes)
    print(
        f"\nerror on the rows held out{', as far as the sweep got' if stopped else ''}\n{table}\n"
    )
    best = table.best
    line(
        "best",
        f"--lam {best['lam']:.4g} --sigma {best['sigma']:.4g}: "
        f"{float(np.asarray(errors)[table.place]):.2%}",
    )
    line("time", f"{time.monotonic() - start_time:.1f} s for {errors.size} runs, with compilation")
    if args.out:
        write(args.out, table, stream)
        line("table", args.out)
    if args.plot:
        figure = draw_with().heatmap(table).figure
        with result_file(args.plot, stream, ".png") as temporary:
            figure.savefig(temporary, dpi=120)
        line("heat map", args.plot)
    if args.model and not stopped:
        all_rows = jax.tree.map(lambda *a: jnp.concatenate(a), train_rows, validation)
        all_rows = all_rows._replace(index=jnp.arange(all_rows.y.shape[0], dtype=jnp.int32))
        steps = args.passes * -(-all_rows.y.shape[0] // b)
        best_solver = solver(best["lam"], best["sigma"], all_rows, steps)
        fit = jaxsvm.fit(
            best_solver, all_rows, key_fit, steps=steps,
            every=pace(steps, steps // args.passes), sampler=samplers.epochs(b),
            progress=not args.quiet, on_interrupt="return",
        )  # fmt: skip
        stopped = fit.reason == "interrupted"
        model = fit.model if scale is None else models.Mapped(as_static(scale), fit.model)
        if not fit.finite or not int(fit.state.step):
            raise ValueError(f"{fit.status}; no model was written")
        notes = {
            "rows": reading.described(title(args.file), all_rows, classes),
            "scaled": description,
            "solver": f"asset on {count} {args.features} features; lambda = {best['lam']:.4g}, "
            f"sigma = {best['sigma']:.4g}, chosen by the error on rows held out",
            "status": fit.status,
        }
        reading.save_model(args.model, stream, models.Classifier(model, classes), notes)
        line(
            "model",
            f"{args.model}, trained on all {all_rows.y.shape[0]} "
            f"rows{', as it was at the last look' if stopped else ''}",
        )
    return 130 if stopped else 0


def median_distance(x: Any) -> float:
    """The median distance among the first 512 rows."""
    rows = x[: min(512, x.shape[0])]
    distance = np.sqrt(np.asarray(sqdist(rows, rows), np.float64))[
        np.triu_indices(rows.shape[0], 1)
    ]
    return float(np.median(distance[distance > 0])) if (distance > 0).any() else 1.0


def write(path: str, table: Any, stream: Any) -> None:
    """Write the table as CSV, a line for each finished point; to the stream for `-`."""
    values = np.asarray(table.values, np.float64)
    with (
        result_file(path, stream) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.axes, "error"])
        for i, lam in enumerate(np.asarray(table.axes["lam"])):
            for j, sigma in enumerate(np.asarray(table.axes["sigma"])):
                if np.isfinite(values[i, j]):
                    writer.writerow([f"{lam:.9g}", f"{sigma:.9g}", f"{values[i, j]:.9g}"])


def draw_with() -> Any:
    """The module `plots`, with a backend that opens no window."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("--plot needs matplotlib: pip install 'jaxsvm[plot]'") from error
    matplotlib.use("agg")
    from jaxsvm import plots

    return plots
