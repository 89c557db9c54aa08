"""The solver of the options of `jaxsvm train`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import jaxsvm
from jaxsvm import samplers

from ..linear_choice import fastest_linear
from ..types import Batch, SparseRows
from ..wrappers import one_vs_one, one_vs_rest
from . import parser, solvers
from .output import line

# options whose units are those of the solver
UNITS = ("passes", "steps", "batch", "tol", "budget")


class Frame(NamedTuple):
    """What the options say of a machine, but for lambda and the kernel."""

    loss: Any
    bias: str
    tol: float | None
    batch: int  # rows of an update
    steps: int
    one_pass: int  # steps
    budget: int  # points of the model, of solvers that have a budget
    wrap: Callable  # a solver for two classes -> one for those of the rows


def build(args: Any, method: Any, train: Batch, classes: tuple, key: Any) -> tuple[Any, tuple]:
    """The solver, and (steps, sampler, lambda, loss, tolerance, a description)."""
    n, total = train.y.shape[0], total_weight(train)
    if args.lam is not None and not args.lam > 0 or args.C is not None and not args.C > 0:
        raise ValueError("--lam and --C must be above 0")
    lam = (
        jaxsvm.lam_from_C(1.0 if args.C is None else args.C, total)
        if args.lam is None
        else args.lam
    )
    frame = frame_of(args, method, train, classes)
    kernel, description = solvers.kernel(args, train.x)
    check_kernel(args, method, kernel is not None)
    phi = None
    if args.features:
        phi = solvers.feature_map(args.features, key, kernel, train.x, args.count)
        description = f"{args.features} features of {description}"
    solver = solver_of(args, method, frame, train, lam, kernel, phi)
    b, steps, one_pass, tol, bias = frame.batch, frame.steps, frame.one_pass, frame.tol, frame.bias
    sampler = samplers.whole() if method.batch == 0 else samplers.epochs(b)
    length = f"{steps / one_pass:g} passes" if steps >= one_pass else f"{steps} steps"
    iterates = solver.tol is not None  # an update iterates to the tolerance and draws no batch
    how = (
        f"{steps} updates, each of which goes on by itself"
        if iterates
        else f"{length} in batches of {b}"
    )
    stop = "" if tol is None else f", tolerance {tol:g}"
    description += f", at most {frame.budget} points" if method.budget else ""
    C = jaxsvm.C_from_lam(lam, total)
    description = f"{args.solver}, {description}; lambda = {lam:.3g} (C = {C:.3g}), bias {bias}"
    line("solver", description)
    line("", f"at most {how}{stop}; seed {args.seed}")
    if (
        kernel is not None
        and not (args.features or method.budget)
        and n > (50_000 if iterates else 20_000)
    ):
        exact = "" if iterates or n > 50_000 else "--solver decomposition or "
        line("", f"each step goes over {n} rows: {exact}--features nystrom is faster with so many")
    return solver, (steps, sampler, lam, frame.loss, tol, description)


def linear_solver(args: Any, train: Batch, classes: tuple) -> str:
    """The solver of a linear machine where the options name none: the fastest for these rows.

    It is sdca where an option is in its units.
    """
    if any(getattr(args, name) is not None for name in UNITS):
        return "sdca"
    loss = solvers.LOSSES[args.loss or solvers.METHODS["sdca"].default_losses[not classes]]
    return fastest_linear(loss, train.x.shape[1], isinstance(train.x, SparseRows))


def total_weight(train: Batch) -> float:
    """The sum of the weights of the rows."""
    return float(np.sum(np.asarray(train.weight, np.float64)))


def frame_of(args: Any, method: Any, train: Batch, classes: tuple) -> Frame:
    """The numbers and choices of the options, checked.

    Raises:
        ValueError: options that do not go with each other, or with the rows.
    """
    n = train.y.shape[0]
    if args.passes is not None and args.passes < 1 or args.steps is not None and args.steps < 1:
        raise ValueError("--passes and --steps must be at least 1")
    if args.count is not None and not args.features:
        raise ValueError("--count is a number of features: say which, --features nystrom")
    bias = args.bias or method.biases[0]
    if bias not in method.biases:
        raise ValueError(
            f"--solver {args.solver} takes --bias {' or '.join(method.biases)}, got {bias}"
        )
    if args.loss and not method.losses:
        raise ValueError(f"--solver {args.solver} has a loss of its own: leave --loss out")
    loss = solvers.LOSSES[args.loss or method.default_losses[0 if classes else 1]]
    if loss.labels != bool(classes):
        raise ValueError(
            f"--loss {args.loss} is for "
            f"{'classes' if loss.labels else 'real targets (--task regression)'}"
        )
    if not classes and not method.losses:
        raise ValueError(
            f"--solver {args.solver} is for classes: take sdca, decomposition, "
            "pegasos or asset for real targets"
        )
    if args.budget is not None and not method.budget:
        budgeted = " or ".join(name for name, other in solvers.METHODS.items() if other.budget)
        raise ValueError(
            f"--solver {args.solver} has no budget: leave --budget out, or take --solver {budgeted}"
        )
    points = parser.BUDGET if args.budget is None else args.budget
    if points < 2:
        raise ValueError(
            f"--budget must be at least 2, the points that the model may have, got {points}"
        )
    tol = method.tol if args.tol is None else args.tol
    b = min(n, args.batch if args.batch is not None else method.batch or n)
    if b < 1:
        raise ValueError(f"--batch must be at least 1, got {b}")
    one_pass = 1 if method.batch == 0 else -(-n // b)
    # with a criterion, small data sets may take more passes
    has_criterion = tol is not None and method.batch != 0
    passes = max(method.passes, 500_000 // n) if has_criterion else method.passes
    steps = args.steps or (args.passes or passes) * one_pass
    is_multiclass = len(classes) > 2 or args.task == "multiclass"
    if args.multiclass and not is_multiclass:
        raise ValueError("--multiclass is for more than two classes: leave it out")
    wrapper = {"ovr": one_vs_rest, "ovo": one_vs_one}[args.multiclass or "ovr"]
    wrap = (lambda inner: wrapper(inner, classes=len(classes))) if is_multiclass else _same
    return Frame(loss, bias, tol, b, steps, one_pass, points, wrap)


def _same(solver: Any) -> Any:
    return solver


def check_kernel(args: Any, method: Any, has_kernel: bool) -> None:
    """Raise for a solver that does not go with the kernel, or with features of it."""
    if not has_kernel and args.features:
        raise ValueError("--features approximate a kernel: say which, --kernel rbf")
    if has_kernel and not args.features and method.kernel == "no":
        raise ValueError(
            f"--solver {args.solver} is linear: add --features nystrom, or take --solver sdca"
        )
    if args.features and not method.features:
        raise ValueError(
            f"--solver {args.solver} solves the problem of the kernel itself: leave "
            "--features out, or take sdca"
        )
    if method.kernel == "needed" and (not has_kernel or args.features):
        raise ValueError(
            f"--solver {args.solver} needs a kernel, such as --kernel rbf, and no --features"
        )


def solver_of(
    args: Any, method: Any, frame: Frame, train: Batch, lam: float, kernel: Any, phi: Any
) -> Any:
    """The solver for one lambda and one kernel, or features `phi` of it.

    Raises:
        ValueError: a tolerance for a solver that cannot stop on it.
    """
    setting = solvers.Setting(
        lam, jaxsvm.C_from_lam(lam, total_weight(train)), kernel if phi is None else None,
        frame.loss, frame.bias, frame.steps, frame.one_pass,
        lambda: solvers.max_sqnorm(kernel, train.x, frame.bias), frame.budget,
    )  # fmt: skip
    solver = method.make(setting)
    if frame.tol is not None and solver.residual_scope != "whole":
        raise ValueError(
            f"--tol has nothing to stop on with --solver {args.solver}: give --passes, or take sdca"
        )
    solver = frame.wrap(solver)
    return solver if phi is None else jaxsvm.on_features(phi, solver)


def pace(steps: int, one_pass: int) -> int:
    """Steps of a chunk: a pass, but at most a hundredth of the run and at least a thousandth.

    Passes over few rows are chunks of 5,000 steps, as each chunk is a call from the host.
    """
    length = max(1, steps // 1000, min(max(one_pass, 5000), steps // 100))
    # a divisor of the steps where there is one: all chunks are whole
    return next((e for e in range(length, length // 2, -1) if steps % e == 0), length)
