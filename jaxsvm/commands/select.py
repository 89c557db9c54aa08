"""`jaxsvm select`: C and gamma by cross-validation, and the model of the choice."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels

from ..recipe import fields_of
from ..types import Batch
from . import report
from . import rows as reading
from .output import line, show
from .solvers import Machine, machine


def run(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    if args.plot and args.kernel == "linear":
        raise ValueError("--plot draws C against gamma, and a linear machine has no gamma")
    if args.plot:
        report.matplotlib_plots()
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    data = reading.training_data(args, key_split)
    rows, classes = data.parts[0], data.classes
    if args.probability:
        report.check_probability(rows, classes)
        if not args.model:
            raise ValueError("--probability is kept with the model: give --model FILE")
    if args.score not in ("error", "risk") and not classes:
        raise ValueError(f"--score {args.score} is for classes: take --score error or risk")
    if args.score == "risk" and len(classes) > 2:
        raise ValueError("--score risk is for two classes or real targets: take --score error")
    groups = None if args.groups is None else group_names(args.groups, rows)
    method = machine(args, rows, classes, key_map)
    axes: Any = {"C": jaxsvm.C_grid() if args.C is None else np.asarray(args.C)}
    if args.kernel != "linear":
        axes["gamma"] = kernels.gamma_grid(rows.x) if args.gamma is None else np.asarray(args.gamma)
    first = method.make(*(axis[0].item() for axis in axes.values()))
    steps = steps_of(args, method, first, len(rows.y))
    ranges = [f"{len(a)} {n} from {a.min():.3g} to {a.max():.3g}" for n, a in axes.items()]
    cuts = "leave-one-out" if args.folds == "loo" else f"{args.folds} folds"
    line("solver", method.text)
    line("grid", f"{'; '.join(ranges)}; {cuts}; seed {args.seed}")
    try:
        selection = jaxsvm.select(
            lambda C, gamma=None: method.make(C, gamma), rows, key, folds=args.folds,
            groups=groups, score=args.score, rule=args.rule, steps=steps, tol=method.tol,
            memory=args.memory, threads=args.threads, seconds=args.seconds, save=args.save,
            progress=not args.quiet, **axes,
        )  # fmt: skip
    except KeyboardInterrupt:
        if args.save is None:
            raise
        line("interrupted", f"the finished fits are in {args.save}: the same command goes on there")
        return 130
    percent = bool(classes) and args.score == "error"
    what = args.score.replace("auc", "1 - auc")
    what = "squared error" if what == "error" and not classes else what
    what, table, chosen = f"mean {what} over the folds", selection.table, options(selection.chosen)
    show(f"\n{what}\n{table}\n")
    for name, place in (("best", table.place), ("one_se", table.one_se_place)):
        mean, se = (f"{a[place]:{'.2%' if percent else '.4g'}}" for a in (table.mean, table.se))
        line(name, f"{options(table.at(place))}: {mean}, standard error {se}")
    notes = data.notes | {"solver": f"{method.text}; {chosen}, chosen by {cuts}"}
    notes["status"] = selection.status
    if selection.certificate is not None:
        notes["certificate"] = report.within(selection.certificate)
        line("certificate", notes["certificate"])
    line("status", selection.status)
    notes |= report.errors(selection.model, data.parts, classes)
    if args.model:
        chances = None
        if args.probability:
            chances = selection.calibrated()
            notes["probabilities"] = "sigmoids of the decision values of rows held out"
            line("probabilities", notes["probabilities"])
        model = data.model(report.compact(selection.model), chances)
        reading.save_model(args.model, stream, model, notes)
        line("model", f"{args.model}, {chosen}, trained on all rows")
    if args.plot:
        report.heat_map(args.plot, stream, table, label=what, percent=percent)
    return 0


def steps_of(args: Any, method: Machine, solver: Any, n: int) -> int | None:
    """The steps of each fit of `select` on n rows; None: until the tolerance is met."""
    fields = fields_of(solver)
    if fields.hooks.tol is not None:
        return None
    drawn = fields_of(fields.sampler).rows(n) if fields.sampler else 1
    return args.steps or method.passes * -(-n // drawn)


def options(numbers: dict[str, Any]) -> str:
    """Numbers of the axes as options."""
    return " ".join(f"--{name} {number:.4g}" for name, number in numbers.items())


def group_names(path: str, rows: Batch) -> np.ndarray:
    """The names of the groups in a text file, one a line."""
    with open(path, encoding="utf-8-sig") as file:
        names = [text.strip() for text in file]
    if len(names) != len(rows.y):
        raise ValueError(
            f"{path} has {len(names)} lines, expected one for each of the {len(rows.y)} rows; "
            "--hold-out and --missing drop leave rows out"
        )
    return np.asarray(names)
