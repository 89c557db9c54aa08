"""`jaxsvm sweep`: the error over lambda and sigma."""

from __future__ import annotations

import argparse
import csv
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, models, samplers

from ..files import atomic_path
from ..numerics import sqdist
from ..recipe import as_static
from . import options, solvers, train

EXAMPLES = """\
examples:
  jaxsvm sweep rows.svm                            8 lambdas x 8 sigmas, a table of errors
  jaxsvm sweep rows.csv --lam 1e-6:1e-2:5 --sigma 1,2,4,8 --plot sweep.png --out sweep.csv
  jaxsvm sweep rows.svm --features fourier --count 512 --model best.npz

The model is the best point, trained on all rows. A range is LOW:HIGH:COUNT, even in the logarithm,
or numbers with commas. Sigma is the width of the Gaussian kernel in units of the scaled columns.
Ctrl-C prints the table as far as it got.
"""


def add(commands: Any) -> None:
    """Add the command and its options."""
    description = (
        "Train ASSET on features of the Gaussian kernel for every lambda and sigma of a grid, as "
        "one program, and show the error on rows held out."
    )
    parser = commands.add_parser(
        "sweep",
        help="find good values of lambda and sigma",
        description=description,
        epilog=EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", help="rows: svmlight, .npz or CSV")
    parser.add_argument(
        "--lam",
        type=numbers,
        metavar="RANGE",
        default=numbers("1e-6:1e-1:8"),
        help="lambdas (1e-6:1e-1:8)",
    )
    parser.add_argument(
        "--sigma",
        type=numbers,
        metavar="RANGE",
        help="sigmas (8 from a tenth to ten times the typical distance)",
    )
    parser.add_argument(
        "--features", choices=solvers.FEATURES, default="nystrom", help="of the kernel (nystrom)"
    )
    parser.add_argument("--count", type=int, help="how many features (128)")
    parser.add_argument("--passes", type=int, default=20, help="over the rows (20)")
    parser.add_argument("--batch", type=int, default=16, help="rows of an update (16)")
    parser.add_argument(
        "--hold-out",
        type=float,
        default=0.25,
        metavar="SHARE",
        help="share of the rows for the errors (0.25)",
    )
    parser.add_argument(
        "--memory", type=float, default=4e9, help="bytes that the program may take (4e9)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all draws (0)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--out", metavar="FILE", help="the errors as CSV: lam, sigma, error")
    parser.add_argument(
        "--plot", metavar="FILE", help="a heat map (.png, .svg, .pdf), needs matplotlib"
    )
    parser.add_argument("--model", metavar="FILE", help="the best point, trained on all rows")
    options.add_naming_options(parser)
    options.add_scaling_options(parser)
    options.add_reading_options(parser)


def numbers(text: str) -> np.ndarray:
    """The numbers of LOW:HIGH:COUNT, or of a list with commas.

    Example:
        >>> numbers("1:100:3").tolist(), numbers("2,3").tolist()
        ([1.0, 10.0, 100.0], [2.0, 3.0])
    """
    try:
        low, *rest = text.split(":")
        values = (
            np.geomspace(float(low), float(rest[0]), int(rest[1]))
            if rest
            else np.array([float(v) for v in text.split(",")])
        )
        if values.size and (np.isfinite(values) & (values > 0)).all() and len(rest) in (0, 2):
            return values
    except (ValueError, IndexError):
        pass
    raise argparse.ArgumentTypeError(
        f"expected LOW:HIGH:COUNT or numbers with commas, all above 0, got {text!r}"
    )


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    for path in (args.out, args.plot, args.model):
        options.output(path, args.file)
    if args.plot:
        draw_with()
    if args.passes < 1 or args.batch < 1:
        raise ValueError("--passes and --batch must be at least 1")
    key_split, key_map, key_fit = jax.random.split(jax.random.key(args.seed), 3)
    options.ignore_range_warnings(args.scale != "none")
    parts, names, classes = train.read(args, key_split)
    if len(classes) > 2:
        raise ValueError(
            f"a sweep takes two classes, {args.file} has {len(classes)}: say which "
            f"is +1, --positive {classes[-1]}"
        )
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        options.line("" if i else "read", options.described(name, part, classes))
    scale, description = options.scaler(args, parts[0].x)
    options.line("scaled", description)
    train_rows, validation = (
        part if scale is None else part._replace(x=scale(part.x)) for part in parts
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
    options.line(
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
    options.line(
        "best",
        f"--lam {best['lam']:.4g} --sigma {best['sigma']:.4g}: "
        f"{float(np.asarray(errors)[table.place]):.2%}",
    )
    options.line(
        "time", f"{time.monotonic() - start_time:.1f} s for {errors.size} runs, with compilation"
    )
    if args.out:
        write(args.out, table)
        options.line("table", args.out)
    if args.plot:
        figure = draw_with().heatmap(table).figure
        with atomic_path(args.plot) as temporary:
            figure.savefig(temporary, dpi=120)
        options.line("heat map", args.plot)
    if args.model and not stopped:
        all_rows = jax.tree.map(lambda *a: jnp.concatenate(a), train_rows, validation)
        all_rows = all_rows._replace(index=jnp.arange(all_rows.y.shape[0], dtype=jnp.int32))
        steps = args.passes * -(-all_rows.y.shape[0] // b)
        best_solver = solver(best["lam"], best["sigma"], all_rows, steps)
        fit = jaxsvm.fit(
            best_solver, all_rows, key_fit, steps=steps,
            every=options.pace(steps, steps // args.passes), sampler=samplers.epochs(b),
            progress=not args.quiet,
        )  # fmt: skip
        stopped = int(fit.state.step) < steps
        model = fit.model if scale is None else models.Mapped(as_static(scale), fit.model)
        if not fit.finite or not int(fit.state.step):
            raise ValueError(f"{fit.status}; no model was written")
        models.save(args.model, models.Classifier(model, classes))
        options.line(
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


def write(path: str, table: Any) -> None:
    """Write the table as CSV, a line for each finished point."""
    values = np.asarray(table.values, np.float64)
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
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
