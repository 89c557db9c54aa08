"""`jaxsvm select`: C and gamma by cross-validation, and the model of the choice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsvm
from jaxsvm import kernels, models

from ..recipe import as_static, fields_of
from ..types import Batch
from . import build, report, solvers, train
from . import rows as reading
from .output import STANDARD, check_output, line, result_file, results, show, title
from .parser import EXACT_ROWS
from .sweep import draw_with

TAKES = {  # options of the kernels
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "polynomial": ("gamma", "degree", "coef0"),
    "sigmoid": ("gamma", "coef0"),
}


class Search(NamedTuple):
    """The grid, as `jaxsvm.select` takes it."""

    maker: Callable  # (C, gamma or none) -> solver
    axes: dict[str, Any]
    steps: int | None
    tol: float | None
    description: str


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    with results(args.model, args.plot) as stream:
        return select(args, stream)


def select(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    if args.save == STANDARD:
        raise ValueError("--save is a file that is read again: name one, not the standard output")
    for path in (args.model, args.plot, args.save):
        check_output(path, args.file, args.test, args.groups)
    draw = draw_with() if args.plot else None
    if args.plot and args.kernel == "linear":
        raise ValueError("--plot draws C against gamma, and a linear machine has no gamma")
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    reading.ignore_range_warnings(args.scale != "none")
    parts, names, classes = train.read(args, key_split)
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        line("" if i else "read", reading.described(name, part, classes))
    scale, scaling = reading.scaler(args, parts[0].x)
    line("scaled", scaling)
    if scale is not None:
        parts = [part._replace(x=reading.call(scale, part.x)) for part in parts]
    if args.score == "risk" and len(classes) > 2:
        raise ValueError("--score risk is for two classes or real targets: take --score error")
    groups = None if args.groups is None else group_names(args.groups, parts[0])
    search = grid(args, parts[0], classes, key_map)
    line("solver", search.description)
    shown = "; ".join(_range(name, axis) for name, axis in search.axes.items())
    line("grid", f"{shown}; {_folds(args.folds)}; seed {args.seed}")
    try:
        selection = jaxsvm.select(
            search.maker, parts[0], key, folds=args.folds, groups=groups, score=args.score,
            rule=args.rule, steps=search.steps, tol=search.tol, memory=args.memory,
            threads=args.threads, seconds=args.seconds, save=args.save, progress=not args.quiet,
            **search.axes,
        )  # fmt: skip
    except KeyboardInterrupt:
        if args.save is None:
            raise
        line("interrupted", f"the finished fits are in {args.save}: the same command goes on there")
        return 130
    kind = "error" if classes else "squared error"
    what = f"mean {kind if args.score == 'error' else 'risk'} over the folds"
    show(f"\n{what}\n{selection.table}\n")
    percent = bool(classes) and args.score == "error"
    line("best", describe_cell(selection.table, selection.table.place, percent))
    line("one_se", describe_cell(selection.table, selection.table.one_se_place, percent))
    numbers = options(selection.chosen)
    notes = {
        "rows": reading.described(title(args.file), parts[0], classes),
        "scaled": scaling,
        "solver": f"{search.description}; {numbers}, chosen by {_folds(args.folds)}",
        "status": selection.status,
        **reading.reading_notes(args),
    }
    if selection.certificate is not None:
        notes["certificate"] = report.within(selection.certificate)
        line("certificate", notes["certificate"])
    line("status", selection.status)
    for name, part in zip(("train", "test"), parts, strict=False):
        head, text = report.error(name, selection.model, part, classes)
        notes[head] = text
        line(head, text)
    if args.model:
        model = report.compact(selection.model)
        model = model if scale is None else models.Mapped(as_static(scale), model)
        model = models.Classifier(model, classes) if classes else model
        reading.save_model(args.model, stream, model, notes)
        line("model", f"{args.model}, {options(selection.chosen)}, trained on all rows")
    if draw is not None:
        figure = draw.heatmap(selection.table, label=what, percent=percent).figure
        with result_file(args.plot, stream, ".png") as temporary:
            figure.savefig(temporary, dpi=120)
        line("heat map", args.plot)
    return 0


def grid(args: Any, rows: Batch, classes: tuple, key: Any) -> Search:
    """The solvers of the grid and its axes; sets --kernel, --solver and --features where open."""
    args.kernel = args.kernel or "rbf"
    is_linear = args.kernel == "linear"
    solvers.refuse_unused(args, args.kernel, TAKES)
    if is_linear and args.features:
        raise ValueError("--features approximate a kernel: say which, --kernel rbf")
    if args.solver is None:
        choose_solver(args, rows, classes)
    method = solvers.METHODS[args.solver]
    frame = build.frame_of(args, method, rows, classes)
    build.check_kernel(args, method, not is_linear)
    coef0, degree = solvers.constants(args, args.kernel)

    @functools.cache  # one map for all values of C
    def kernel_and_map(gamma: float) -> tuple[Any, Any]:
        kernel = solvers.by_gamma(args.kernel, gamma, coef0, degree)
        if not args.features:
            return kernel, None
        return kernel, solvers.feature_map(args.features, key, kernel, rows.x, args.count)

    total = build.total_weight(rows)

    def maker(C: Any, gamma: Any = None) -> Any:
        kernel, phi = (None, None) if is_linear else kernel_and_map(gamma)
        return build.solver_of(args, method, frame, rows, 1 / (C * total), kernel, phi)

    axes = {"C": jaxsvm.C_grid() if args.C is None else np.asarray(args.C)}
    if not is_linear:
        gammas = kernels.gamma_grid(rows.x) if args.gamma is None else np.asarray(args.gamma)
        axes["gamma"] = gammas
    first = fields_of(maker(**{name: axis[0].item() for name, axis in axes.items()}))
    steps = None
    if first.tol is None:  # else an update runs until its tolerance is met
        drawn = fields_of(first.sampler).rows(rows.y.shape[0]) if first.sampler else 1
        one_pass = -(-rows.y.shape[0] // drawn)
        steps = args.steps or frame.steps // frame.one_pass * one_pass
    what = "linear" if is_linear else args.kernel
    what = f"{args.features} features of {what}" if args.features else what
    how = "" if steps is None else f", at most {steps} steps of a fit"
    stop = "" if frame.tol is None else f", tolerance {frame.tol:g}"
    return Search(
        maker, axes, steps, frame.tol, f"{args.solver}, {what}, bias {frame.bias}{how}{stop}"
    )


def choose_solver(args: Any, rows: Batch, classes: tuple) -> None:
    """Set --solver, and --features of a kernel machine on many rows."""
    if args.kernel == "linear":
        args.solver = build.linear_solver(args, rows, classes)
        return
    if args.features is None and rows.y.shape[0] <= EXACT_ROWS[len(classes) > 2]:
        args.solver = "decomposition"
        return
    args.solver, args.features = "sdca", args.features or "nystrom"


def group_names(path: str, rows: Batch) -> np.ndarray:
    """The names of the groups in a text file, one a line."""
    with open(path, encoding="utf-8-sig") as file:
        names = [text.strip() for text in file]
    if len(names) != rows.y.shape[0]:
        raise ValueError(
            f"{path} has {len(names)} lines, expected one for each of the {rows.y.shape[0]} rows; "
            "--hold-out and --missing drop leave rows out"
        )
    return np.asarray(names)


def options(numbers: dict[str, Any]) -> str:
    """Numbers of the axes as options."""
    return " ".join(f"--{name} {number:.4g}" for name, number in numbers.items())


def describe_cell(table: Any, place: tuple[int, ...], percent: bool) -> str:
    """One line on a cell: its numbers, its mean score, and its standard error."""
    mean, se = (f"{a[place]:.2%}" if percent else f"{a[place]:.4g}" for a in (table.mean, table.se))
    return f"{options(table.at(place))}: {mean}, standard error {se}"


def _range(name: str, axis: np.ndarray) -> str:
    return f"{len(axis)} {name} from {axis.min():.3g} to {axis.max():.3g}"


def _folds(folds: int | str) -> str:
    return "leave-one-out" if folds == "loo" else f"{folds} folds"
