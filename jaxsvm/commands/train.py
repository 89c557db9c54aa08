"""`jaxsvm train`: rows in a file to a model in a file."""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm
from jaxsvm import models, samplers

from ..data.files import assemble
from ..recipe import fixed
from ..types import Batch
from . import methods, options
from .methods import METHODS

EXAMPLES = """\
examples:
  jaxsvm train rows.svm --model model.npz                      a linear machine, C = 1, and its error on its own rows
  jaxsvm train rows.csv --label class --positive spam --hold-out 0.2 --model model.npz
  jaxsvm train rows.npz --kernel rbf --sigma 3 --C 10 --model model.npz           exact kernel: up to some 20,000 rows
  jaxsvm train rows.svm --kernel rbf --features nystrom --count 1024 --model model.npz        many rows
  jaxsvm train rows.svm --solver pegasos --lam 1e-4 --passes 50 --test other.svm --model model.npz

Ctrl-C ends the run at the last look and keeps the model of that moment.
"""
LEAST = 2**27  # numbers of the largest array that a certificate made without being asked may take, 1 GiB


def add(commands: Any) -> None:
    """The options."""
    said = "Train a support vector machine on the rows of a file and write the model."
    parser = commands.add_parser("train", help="train a model", description=said, epilog=EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("file", help="training rows: svmlight, .npz or CSV")
    parser.add_argument("--model", required=True, metavar="FILE", help="where the model goes (jaxsvm.models.load reads it)")
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--test", metavar="FILE", help="rows to work out the error on")
    test.add_argument("--hold-out", type=float, metavar="SHARE", help="share of the rows kept for the error, such as 0.2")
    options.naming(parser)
    parser.add_argument("--task", choices=("binary", "multiclass", "regression"), help="without it, what the labels look like")
    options.scaling(parser)
    group = parser.add_argument_group("what is minimised: lambda/2 |w|^2 + mean loss")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--C", type=float, help="1 / (lambda rows), as LIBSVM has it (1)")
    size.add_argument("--lam", type=float, help="lambda")
    group.add_argument("--loss", choices=tuple(methods.LOSSES), help="hinge for classes, eps_insensitive for real targets")
    group.add_argument(
        "--bias", choices=("feature", "none", "free"), help="the constant: regularised, none or free (the solver's first)"
    )
    kernel_options(parser)
    group = parser.add_argument_group("how")
    names = "; ".join(f"{name}: {method.said}" for name, method in METHODS.items())
    group.add_argument("--solver", choices=tuple(METHODS), default="sdca", metavar="NAME", help=f"{names} (sdca)")
    how_long = group.add_mutually_exclusive_group()
    how_long.add_argument("--passes", type=int, help="over the rows, at most; see the printed line 'solver' for what is taken")
    how_long.add_argument("--steps", type=int, help="updates instead of passes")
    group.add_argument("--batch", type=int, help="rows of an update")
    group.add_argument("--tol", type=float, help="stop at this residual (sdca, subgradient); sdca: 1e-3")
    group.add_argument("--seconds", type=float, help="stop at the first look after so much time")
    group.add_argument("--seed", type=int, default=0, help="of all draws (0)")
    group.add_argument("--quiet", action="store_true", help="no progress bar")
    group.add_argument(
        "--certificate",
        action=argparse.BooleanOptionalAction,
        help="bound the distance to the optimum; without the option where that takes no more than 1 GiB",
    )
    options.reading(parser)


def kernel_options(parser: Any) -> None:
    """Kernel and feature map."""
    group = parser.add_argument_group("kernel")
    group.add_argument("--kernel", choices=methods.KERNELS, help="(linear; rbf with --features)")
    group.add_argument("--sigma", type=float, help="width of rbf and laplacian")
    group.add_argument(
        "--gamma", type=float, help="1 / (2 sigma^2) of rbf; factor of polynomial, sigmoid (1 / (columns variance))"
    )
    group.add_argument("--degree", type=int, help="of polynomial (3)")
    group.add_argument("--coef0", type=float, help="constant of polynomial (1), sigmoid (0)")
    group.add_argument("--features", choices=methods.FEATURES, help="approximate the kernel by features: for many rows")
    group.add_argument("--count", type=int, help="how many features (512)")


def read(args: Any, key: Any) -> tuple[list[Batch], list[str], tuple]:
    """Training rows and, where there are any, test rows, with what to call them, and the classes."""
    test = getattr(args, "test", None)
    rows = options.rows(args, *[path for path in (args.file, test) if path])
    kept = [rows[0], *([rows[-1]] if test else rows[1:2])]
    if len({part.x.shape[1] for part in kept}) > 1:
        raise ValueError(f"the files differ in columns: {' and '.join(str(part.x.shape[1]) for part in kept)}")
    loaded = assemble(options.compact(kept), task=getattr(args, "task", None), positive=options.positive(args))
    parts, names = list(loaded), [args.file, test or f"test part of {args.file}"][: len(loaded)]
    share = getattr(args, "hold_out", None)
    if share is not None:
        if not 0 < share < 1:
            raise ValueError(f"--hold-out must be between 0 and 1, got {share:g}")
        parts, names = list(jaxsvm.data.split(key, parts[0], 1 - share, share)), [args.file, "held out of it"]
    return parts, names, loaded.classes


def run(args: Any) -> int:
    """The command."""
    options.output(args.model)
    method = METHODS[args.solver]
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    options.unscaled_is_fine(args.scale != "none")
    parts, names, classes = read(args, key_split)
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        options.line("read" if not i else "", options.described(name, part, classes))
    scale, said = options.scaler(args, parts[0].x)
    options.line("scaled", said)
    if scale is not None:
        parts = [part._replace(x=scale(part.x)) for part in parts]
    solver, settings = build(args, method, parts[0], classes, key_map)
    steps, sampler, lam, loss, tol = settings
    one_pass = -(-parts[0].y.shape[0] // (sampler.rows(parts[0].y.shape[0])))
    began = time.monotonic()
    fit = jaxsvm.fit(
        solver, parts[0], key, steps=steps, every=options.pace(steps, one_pass), sampler=sampler, tol=tol,
        seconds=args.seconds, progress=not args.quiet,
    )  # fmt: skip
    late = args.seconds is not None and time.monotonic() - began > args.seconds
    stopped = int(fit.state.step) < steps and not fit.converged and not late
    if not int(fit.state.step):
        raise KeyboardInterrupt
    if not fit.finite or np.isnan(np.asarray(fit.info.residual[-1], np.float64)):
        raise ValueError("the run met numbers that are not finite: look at the scale of the rows (--scale); nothing was written")
    model = lean(fit.model)
    model = model if scale is None else models.Mapped(fixed(scale), model)
    models.save(args.model, models.Classifier(model, classes) if classes else model)
    options.line("status", ("interrupted: " if stopped else "") + fit.status.replace("; go on with state=run.state", ""))
    if stopped:
        options.line("model", f"{args.model}, as it was at the last look")
        return 130
    for name, part in zip(("train", "test"), parts, strict=False):
        options.line(*error(name, fit.model, part, classes))
    if args.certificate is not False and len(classes) == 2 and method.objective and args.kernel != "sigmoid":
        options.line("certificate", certified(args, fit.model, parts[0], lam, loss))
    options.line("model", args.model)
    return 0


def build(args: Any, method: Any, train: Batch, classes: tuple, key: Any) -> tuple[Any, tuple]:
    """The solver, and (steps, sampler, lambda, loss, tolerance)."""
    n, total = train.y.shape[0], float(jnp.sum(train.weight))
    if args.passes is not None and args.passes < 1 or args.steps is not None and args.steps < 1:
        raise ValueError("--passes and --steps must be at least 1")
    if args.lam is not None and not args.lam > 0 or args.C is not None and not args.C > 0:
        raise ValueError("--lam and --C must be above 0")
    if args.count is not None and not args.features:
        raise ValueError("--count is a number of features: say which, --features nystrom")
    lam = jaxsvm.lam_from_C(1.0 if args.C is None else args.C, total) if args.lam is None else args.lam
    bias = args.bias or method.biases[0]
    if bias not in method.biases:
        raise ValueError(f"--solver {args.solver} takes --bias {' or '.join(method.biases)}, got {bias}")
    if args.loss and not method.losses:
        raise ValueError(f"--solver {args.solver} has a loss of its own: leave --loss out")
    loss = methods.LOSSES[args.loss or ("hinge" if classes else "eps_insensitive")]
    if loss.labels != bool(classes):
        raise ValueError(f"--loss {args.loss} is for {'classes' if loss.labels else 'real targets (--task regression)'}")
    if not classes and not method.losses:
        raise ValueError(f"--solver {args.solver} is for classes: take sdca, pegasos or asset for real targets")
    kernel, said = methods.kernel(args, train.x)
    if kernel is None and args.features:
        raise ValueError("--features approximate a kernel: say which, --kernel rbf")
    if kernel is not None and not args.features and method.kernel == "no":
        raise ValueError(f"--solver {args.solver} is linear: add --features nystrom, or take --solver sdca")
    if method.kernel == "needed" and (kernel is None or args.features):
        raise ValueError(f"--solver {args.solver} needs a kernel, such as --kernel rbf, and no --features")
    tol = method.tol if args.tol is None else args.tol
    b = min(n, args.batch if args.batch is not None else method.batch or n)
    if b < 1:
        raise ValueError(f"--batch must be at least 1, got {b}")
    sampler = samplers.whole() if method.batch == 0 else samplers.epochs(b)
    one_pass = 1 if method.batch == 0 else -(-n // b)
    passes = method.passes if tol is None else max(method.passes, 500_000 // n)  # few rows: what stops by itself may take more
    steps = args.steps or (args.passes or passes) * one_pass
    setting = methods.Setting(
        lam, jaxsvm.C_from_lam(lam, total), None if args.features else kernel, loss, bias, steps, one_pass,
        methods.reach(kernel, train.x, bias),
    )  # fmt: skip
    solver = method.make(setting)
    if tol is not None and solver.residual != "whole":
        raise ValueError(f"--tol has nothing to stop on with --solver {args.solver}: give --passes, or take sdca")
    if len(classes) > 2 or args.task == "multiclass":
        from ..multiclass import one_vs_rest

        solver = one_vs_rest(solver, classes=len(classes))
    if args.features:
        phi = methods.feature_map(args.features, key, kernel, train.x, args.count)
        solver = jaxsvm.on_features(phi, solver)
        said = f"{args.features} features of {said}"
    length = f"{steps / one_pass:g} passes" if steps >= one_pass else f"{steps} steps"
    stop = "" if tol is None else f", tolerance {tol:g}"
    options.line("solver", f"{args.solver}, {said}; lambda = {lam:.3g} (C = {setting.C:.3g}), bias {bias}")
    options.line("", f"at most {length} in batches of {b}{stop}; seed {args.seed}")
    if kernel is not None and not args.features and n > 20_000:
        options.line("", f"each step goes over {n} rows: --features nystrom is faster with so many")
    return solver, (steps, sampler, lam, loss, tol)


def lean(model: Any) -> Any:
    """A kernel model without the rows that do not count."""
    if not isinstance(model, models.Expansion) or model.coef.ndim != 1:
        return model
    kept = np.flatnonzero(np.asarray(model.coef))
    kept = kept if len(kept) else np.arange(1)
    return dataclasses.replace(model, x=model.x[kept], coef=model.coef[kept], index=model.index[kept])


def error(name: str, model: Any, data: Batch, classes: tuple) -> tuple[str, str]:
    """The error of a model in a line: wrong rows, or for real targets the root mean square."""
    score = np.asarray(jax.jit(lambda model, x: model(x))(model, data.x), np.float64)
    share = np.asarray(data.weight, np.float64) / float(jnp.sum(data.weight))
    if not classes:
        return f"{name} error", f"{np.sqrt(share @ (score - np.asarray(data.y, np.float64)) ** 2):.6g} (root mean square)"
    y = np.asarray(data.y)
    wrong = (score > 0) != (y > 0) if score.ndim == 1 else np.argmax(score, 1) != y.astype(int)
    return f"{name} error", f"{share @ wrong:.2%}"


def certified(args: Any, model: Any, train: Batch, lam: float, loss: Any) -> str:
    """How far from the optimum, at most, in words."""
    inner, n = model, train.y.shape[0]
    while isinstance(inner, models.Mapped):
        inner = inner.inner
    wide = inner.x.shape[0] if isinstance(inner, models.Expansion) else inner.w.shape[-1]
    if n * wide > LEAST and not args.certificate:
        return "left out, as it takes long for so many rows (--certificate)"
    passes = int(np.clip(2e8 // (n * wide), 10, 500))  # of a second or so
    passes = 0 if isinstance(inner, models.Expansion) or inner.bias == "free" else passes
    proof = jaxsvm.certificate(model, train, lam, loss, passes=passes)
    where = " on these features" if args.features else ""
    return (
        f"objective {float(proof.primal):.6f}, optimum{where} at least {float(proof.dual):.6f}: "
        f"within {float(proof.gap / proof.primal):.2%}"
    )
