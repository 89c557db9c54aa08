"""`jaxsvm sweep`: the error over lambda and sigma."""

from __future__ import annotations

import csv
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import kernels, samplers

from ..types import Batch
from . import rows as reading
from .output import line, result_file, show, title
from .report import heat_map, matplotlib_plots
from .solvers import check_least, feature_map


def run(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    if args.plot:
        matplotlib_plots()
    check_least(args)
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    data = reading.training_data(args, key_split)
    if len(data.classes) > 2:
        raise ValueError(
            f"a sweep takes two classes, {args.file} has {len(data.classes)}: say which "
            f"is +1, --positive {data.classes[-1]}"
        )
    rows, validation = data.parts
    count = min(128, len(rows.y)) if args.count is None else args.count
    batch = min(args.batch, len(rows.y))

    def fit(lam: Any, sigma: Any, rows: Batch, key: Any, **options: Any) -> Any:
        steps = args.passes * -(-len(rows.y) // batch)
        phi = feature_map(args.features, key_map, kernels.rbf(sigma), rows.x, count)
        solver = jaxsvm.on_features(phi, jaxsvm.asset(lam, average_from=steps // 2))
        sampler = samplers.epochs(batch)
        return jaxsvm.fit(solver, rows, key, steps=steps, sampler=sampler, **options)

    reached: dict = {}

    def record(lam: Any, sigma: Any, error: Any) -> None:
        reached[float(lam), float(sigma)] = float(error)

    def point(lam: Any, sigma: Any, rows: Batch, validation: Batch, key: Any) -> Any:
        error = jaxsvm.error_on(validation)(fit(lam, sigma, rows, key).model)
        jax.debug.callback(record, lam, sigma, error)  # so that Ctrl-C loses none
        return error

    gammas = kernels.gamma_grid(rows.x) if args.sigma is None else None
    sigmas = args.sigma if gammas is None else 1 / np.sqrt(2 * gammas[::-1])
    axes: Any = {
        name: jnp.asarray(a, jnp.float32) for name, a in (("lam", args.lam), ("sigma", sigmas))
    }
    how = f"asset on {count} {args.features} features"
    line("solver", f"{how}, {args.passes} passes in batches of {batch}; seed {args.seed}")
    began = time.monotonic()
    grid = jaxsvm.sweep(point, memory=args.memory, progress=not args.quiet, **axes)
    try:
        errors, stopped = grid(rows, validation, key), False
    except KeyboardInterrupt:
        cells = [
            [reached.get((float(a), float(b)), np.nan) for b in axes["sigma"]] for a in axes["lam"]
        ]
        errors, stopped = np.array(cells), True
        if np.isnan(errors).all():
            raise
    table = jaxsvm.sweep.table(errors, **axes)
    extent = ", as far as the sweep got" if stopped else ""
    show(f"\nerror on the rows held out{extent}\n{table}\n")
    best, least = table.best, float(np.asarray(errors)[table.place])
    line("best", f"--lam {best['lam']:.4g} --sigma {best['sigma']:.4g}: {least:.2%}")
    line("time", f"{time.monotonic() - began:.1f} s for {errors.size} runs, with compilation")
    if args.out:
        write(args.out, table, stream)
        line("table", args.out)
    if args.plot:
        heat_map(args.plot, stream, table)
    if not args.model or stopped:
        return 130 if stopped else 0
    every: Any = jax.tree.map(lambda *parts: jnp.concatenate(parts), rows, validation)
    every = every._replace(index=jnp.arange(len(every.y), dtype=jnp.int32))
    run = fit(**best, rows=every, key=key, progress=not args.quiet, on_interrupt="return")
    if not run.finite or not int(run.state.step):
        raise ValueError(f"{run.status}; no model was written")
    stopped = run.reason == "interrupted"
    numbers = f"lambda = {best['lam']:.4g}, sigma = {best['sigma']:.4g}"
    notes = data.notes | {"rows": reading.described(title(args.file), every, data.classes)}
    notes |= {"solver": f"{how}; {numbers}, chosen by the error on rows held out"}
    notes |= {"status": run.status}
    reading.save_model(args.model, stream, data.model(run.model), notes)
    last = ", as of the last complete chunk" if stopped else ""
    line("model", f"{args.model}, trained on all {len(every.y)} rows{last}")
    return 130 if stopped else 0


def write(path: str, table: Any, stream: Any) -> None:
    """Write the finite values of the table as CSV, to the stream for `-`."""
    axes = [np.asarray(axis) for axis in table.axes.values()]
    values = np.asarray(table.values, np.float64)
    with (
        result_file(path, stream) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.axes, "error"])
        for i, j in np.argwhere(np.isfinite(values)):
            writer.writerow([f"{a:.9g}" for a in (axes[0][i], axes[1][j], values[i, j])])
