"""`jaxsvm train`: rows in a file to a model in a file."""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import models

from ..data.assemble import assemble
from ..recipe import as_static
from ..types import Batch
from . import build, options, report, solvers
from .solvers import METHODS

EXAMPLES = """\
examples:
  jaxsvm train rows.svm --model model.npz                      a linear machine, C = 1
  jaxsvm train rows.csv --label class --positive spam --hold-out 0.2 --model model.npz
  jaxsvm train rows.npz --solver decomposition --kernel rbf --C 10 --model model.npz
  jaxsvm train rows.svm --kernel rbf --features nystrom --count 1024 --model model.npz
  jaxsvm train rows.svm --solver bsca --kernel rbf --budget 200 --model model.npz
  jaxsvm train rows.svm --solver pegasos --lam 1e-4 --passes 50 --test other.svm --model model.npz

`decomposition` is exact, for up to some 50,000 rows. `nystrom` is for many rows. `bsca` makes a
small kernel model of many rows. Ctrl-C ends the run and keeps the model after the last complete
chunk of steps.
"""


def add(commands: Any) -> None:
    """Add the command and its options."""
    description = "Train a support vector machine on the rows of a file and write the model."
    parser = commands.add_parser(
        "train", help="train a model", description=description, epilog=EXAMPLES
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", help="training rows: svmlight, .npz or CSV")
    parser.add_argument(
        "--model",
        required=True,
        metavar="FILE",
        help="where the model goes (jaxsvm.models.load reads it)",
    )
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--test", metavar="FILE", help="rows to work out the error on")
    test.add_argument(
        "--hold-out",
        type=float,
        metavar="SHARE",
        help="share of the rows kept for the error, such as 0.2",
    )
    options.add_naming_options(parser)
    parser.add_argument(
        "--task", choices=("binary", "multiclass", "regression"), help="without it, by the labels"
    )
    options.add_scaling_options(parser)
    group = parser.add_argument_group("what is minimised: lambda/2 |w|^2 + mean loss")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--C", type=float, help="1 / (lambda rows), as LIBSVM has it (1)")
    size.add_argument("--lam", type=float, help="lambda")
    group.add_argument(
        "--loss",
        choices=tuple(solvers.LOSSES),
        help="hinge for classes, eps_insensitive for real targets",
    )
    group.add_argument(
        "--bias",
        choices=("feature", "none", "free"),
        help="the constant: regularised, none or free (the solver's first)",
    )
    group.add_argument(
        "--multiclass",
        choices=("ovr", "ovo"),
        help="more than two classes: a model for each against the rest (ovr), or for each pair, "
        "which vote (ovo)",
    )
    kernel_options(parser)
    group = parser.add_argument_group("how")
    names = "; ".join(f"{name}: {method.description}" for name, method in METHODS.items())
    group.add_argument(
        "--solver", choices=tuple(METHODS), default="sdca", metavar="NAME", help=f"{names} (sdca)"
    )
    how_long = group.add_mutually_exclusive_group()
    how_long.add_argument(
        "--passes",
        type=int,
        help="over the rows, at most; the printed line 'solver' shows the default",
    )
    how_long.add_argument("--steps", type=int, help="updates instead of passes")
    group.add_argument(
        "--budget",
        type=int,
        help=f"points of the model of bsca and bsgd, at least 2 ({solvers.BUDGET})",
    )
    group.add_argument("--batch", type=int, help="rows of an update")
    group.add_argument(
        "--tol",
        type=float,
        help="stop at this residual: sdca, decomposition, smo, bsca (1e-3), "
        "subgradient (goes on to the end)",
    )
    group.add_argument(
        "--seconds", type=float, help="stop after the first chunk of steps that ends later"
    )
    group.add_argument("--seed", type=int, default=0, help="of all draws (0)")
    group.add_argument("--quiet", action="store_true", help="no progress bar")
    group.add_argument(
        "--certificate",
        action=argparse.BooleanOptionalAction,
        help="bound the distance to the optimum; without the option where that takes no more than "
        "1 GiB",
    )
    options.add_reading_options(parser)


def kernel_options(parser: Any) -> None:
    """Add the options of kernel and feature map."""
    group = parser.add_argument_group("kernel")
    group.add_argument("--kernel", choices=solvers.KERNELS, help="(linear; rbf with --features)")
    group.add_argument("--sigma", type=float, help="width of rbf and laplacian")
    group.add_argument(
        "--gamma",
        type=float,
        help="1 / (2 sigma^2) of rbf; factor of polynomial, sigmoid (1 / (columns variance))",
    )
    group.add_argument("--degree", type=int, help="of polynomial (3)")
    group.add_argument("--coef0", type=float, help="constant of polynomial (1), sigmoid (0)")
    group.add_argument(
        "--features",
        choices=solvers.FEATURES,
        help="approximate the kernel by features: for many rows",
    )
    group.add_argument("--count", type=int, help="how many features (512)")


def read(args: Any, key: Any) -> tuple[list[Batch], list[str], tuple]:
    """Training rows and optional test rows, their names in the report, and the classes."""
    test = getattr(args, "test", None)
    rows = options.rows(args, *[path for path in (args.file, test) if path])
    used = [rows[0], *([rows[-1]] if test else rows[1:2])]
    if len({part.x.shape[1] for part in used}) > 1:
        raise ValueError(
            f"the files differ in columns: {' and '.join(str(part.x.shape[1]) for part in used)}"
        )
    loaded = assemble(
        options.compact(used), task=getattr(args, "task", None), positive=options.positive(args)
    )
    parts, names = list(loaded), [args.file, test or f"test part of {args.file}"][: len(loaded)]
    share = getattr(args, "hold_out", None)
    if share is not None:
        if not 0 < share < 1:
            raise ValueError(f"--hold-out must be between 0 and 1, got {share:g}")
        parts, names = (
            list(jaxsvm.data.split(key, parts[0], 1 - share, share)),
            [args.file, "held out of it"],
        )
    return parts, names, loaded.classes


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    options.output(args.model, args.file, args.test)
    method = METHODS[args.solver]
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    options.ignore_range_warnings(args.scale != "none")
    parts, names, classes = read(args, key_split)
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        options.line("read" if not i else "", options.described(name, part, classes))
    scale, description = options.scaler(args, parts[0].x)
    options.line("scaled", description)
    if scale is not None:
        parts = [part._replace(x=scale(part.x)) for part in parts]
    solver, settings = build.build(args, method, parts[0], classes, key_map)
    steps, sampler, lam, loss, tol = settings
    one_pass = -(-parts[0].y.shape[0] // (sampler.rows(parts[0].y.shape[0])))
    start_time = time.monotonic()
    fit = jaxsvm.fit(
        solver, parts[0], key, steps=steps, every=options.pace(steps, one_pass), sampler=sampler,
        tol=tol, seconds=args.seconds, progress=not args.quiet,
    )  # fmt: skip
    out_of_time = args.seconds is not None and time.monotonic() - start_time > args.seconds
    stopped = int(fit.state.step) < steps and not fit.converged and not out_of_time
    if not int(fit.state.step):
        raise KeyboardInterrupt
    if not fit.finite or np.isnan(np.asarray(fit.info.residual[-1], np.float64)):
        raise ValueError(
            "the run met numbers that are not finite: look at the scale of the rows "
            "(--scale); nothing was written"
        )
    model = report.compact(fit.model)
    model = model if scale is None else models.Mapped(as_static(scale), model)
    models.save(args.model, models.Classifier(model, classes) if classes else model)
    options.line(
        "status",
        ("interrupted: " if stopped else "")
        + fit.status.replace("; go on with state=run.state", ""),
    )
    if stopped:
        options.line("model", f"{args.model}, as it was at the last look")
        return 130
    for name, part in zip(("train", "test"), parts, strict=False):
        options.line(*report.error(name, fit.model, part, classes))
    if (
        args.certificate is not False
        and len(classes) == 2
        and method.objective
        and args.kernel != "sigmoid"
    ):
        options.line("certificate", report.certified(args, fit.model, parts[0], lam, loss))
    options.line("model", args.model)
    return 0
