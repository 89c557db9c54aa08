"""`jaxsvm sweep`: the error over lambda and sigma."""

from __future__ import annotations

import csv
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, models, samplers

from ..numerics import sqdist
from ..recipe import as_static
from ..types import Batch
from . import rows as reading
from . import solvers, train
from .build import pace
from .output import check_output, line, result_file, results, show, title


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    with results(args.out, args.plot, args.model) as stream:
        return sweep(args, stream)


def sweep(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    check(args)
    key_split, key_map, key_fit = jax.random.split(jax.random.key(args.seed), 3)
    rows = read(args, key_split)
    n = rows.train.y.shape[0]
    method = Method(
        kind=args.features,
        n_features=min(128, n) if args.count is None else args.count,
        passes=args.passes,
        batch=min(args.batch, n),
        key=key_map,
    )
    axes = axes_of(args, rows.train.x)
    line(
        "solver",
        f"{method}, {args.passes} passes in batches of {method.batch}; seed {args.seed}",
    )
    start_time = time.monotonic()
    errors, interrupted = errors_on(args, method, rows, axes, key_fit)
    table = jaxsvm.sweep.table(errors, **axes)
    extent = ", as far as the sweep got" if interrupted else ""
    show(f"\nerror on the rows held out{extent}\n{table}\n")
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
    if args.model and not interrupted:
        interrupted = write_model(args, stream, method, rows, best, key_fit)
    return 130 if interrupted else 0


class Rows(NamedTuple):
    """The rows of the command, scaled."""

    train: Batch
    validation: Batch
    classes: tuple
    scale: Any  # x -> scaled x; None: the rows are as in the file
    description: str  # of the scale


class Method(NamedTuple):
    """`asset` on random features, with the options of the command."""

    kind: str  # of the features
    n_features: int
    passes: int
    batch: int  # rows of a step
    key: Any  # of the features

    def __str__(self) -> str:
        return f"asset on {self.n_features} {self.kind} features"

    def steps(self, data: Batch) -> int:
        """The steps of a run."""
        return self.passes * -(-data.y.shape[0] // self.batch)

    def fit(self, lam: Any, sigma: Any, data: Batch, key: Any, **options: Any) -> Any:
        """The run at one point of the grid."""
        steps = self.steps(data)
        phi = solvers.feature_map(self.kind, self.key, kernels.rbf(sigma), data.x, self.n_features)
        solver = jaxsvm.on_features(phi, jaxsvm.asset(lam, average_from=steps // 2))
        sampler = samplers.epochs(self.batch)
        return jaxsvm.fit(solver, data, key, steps=steps, sampler=sampler, **options)


def check(args: Any) -> None:
    """Raise for paths that cannot be written, and for numbers out of range."""
    for path in (args.out, args.plot, args.model):
        check_output(path, args.file)
    if args.plot:
        draw_with()
    if args.passes < 1 or args.batch < 1:
        raise ValueError("--passes and --batch must be at least 1")


def read(args: Any, key: Any) -> Rows:
    """The training and validation rows, scaled; prints a line for each."""
    reading.ignore_range_warnings(args.scale != "none")
    parts, names, classes = train.read(args, key)
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
    return Rows(train_rows, validation, classes, scale, description)


def axes_of(args: Any, x: Any) -> dict[str, Any]:
    """The numbers of lambda and of sigma, by default around the median distance of rows."""
    sigmas = median_distance(x) * np.geomspace(0.1, 10, 8) if args.sigma is None else args.sigma
    return {
        "lam": jnp.asarray(args.lam, jnp.float32),
        "sigma": jnp.asarray(sigmas, jnp.float32),
    }


def errors_on(
    args: Any, method: Method, rows: Rows, axes: dict[str, Any], key: Any
) -> tuple[Any, bool]:
    """The validation error at each point of the grid, and whether Ctrl-C ended the sweep.

    Errors that were not computed before Ctrl-C are nan.
    """
    errors: dict = {}

    def record(lam, sigma, error):
        errors[float(lam), float(sigma)] = float(error)

    def point(lam, sigma, data, validation, key):
        model = method.fit(lam, sigma, data, key).model
        error = jaxsvm.error_on(validation)(model)
        jax.debug.callback(record, lam, sigma, error)  # so that Ctrl-C keeps all computed errors
        return error

    try:
        grid = jaxsvm.sweep(point, memory=args.memory, progress=not args.quiet, **axes)
        return grid(rows.train, rows.validation, key), False
    except KeyboardInterrupt:
        table = [
            [errors.get((float(lam), float(sigma)), np.nan) for sigma in axes["sigma"]]
            for lam in axes["lam"]
        ]
        if np.isnan(np.array(table)).all():
            raise
        return np.array(table), True


def write_model(
    args: Any, stream: Any, method: Method, rows: Rows, best: dict[str, float], key: Any
) -> bool:
    """Train on all rows at the best point and write the model; whether Ctrl-C ended the run."""
    data = jax.tree.map(lambda *a: jnp.concatenate(a), rows.train, rows.validation)
    data = data._replace(index=jnp.arange(data.y.shape[0], dtype=jnp.int32))
    steps = method.steps(data)
    fit = method.fit(
        best["lam"], best["sigma"], data, key, every=pace(steps, steps // method.passes),
        progress=not args.quiet, on_interrupt="return",
    )  # fmt: skip
    interrupted = fit.reason == "interrupted"
    model = fit.model if rows.scale is None else models.Mapped(as_static(rows.scale), fit.model)
    if not fit.finite or not int(fit.state.step):
        raise ValueError(f"{fit.status}; no model was written")
    notes = {
        "rows": reading.described(title(args.file), data, rows.classes),
        "scaled": rows.description,
        "solver": f"{method}; lambda = {best['lam']:.4g}, "
        f"sigma = {best['sigma']:.4g}, chosen by the error on rows held out",
        "status": fit.status,
        **reading.reading_notes(args),
    }
    reading.save_model(args.model, stream, models.Classifier(model, rows.classes), notes)
    line(
        "model",
        f"{args.model}, trained on all {data.y.shape[0]} "
        f"rows{', as it was at the last look' if interrupted else ''}",
    )
    return interrupted


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
