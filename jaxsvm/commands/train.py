"""`jaxsvm train`: rows in a file to a model in a file."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import samplers

from . import report
from . import rows as reading
from .output import STANDARD, line
from .processes import connected, read_together
from .select import steps_of
from .solvers import gamma_of, machine


def run(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    with connected(args):
        return train(args, stream)


def train(args: Any, stream: Any) -> int:
    """Run the command, alone or as one of several processes that have met."""
    if not all(number is None or number > 0 for number in (args.C, args.lam)):
        raise ValueError("--lam and --C must be above 0")
    if args.probability and args.processes:
        raise ValueError("--probability is for one process")
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    data = (read_together if args.processes else reading.training_data)(args, key_split)
    rows, classes = data.parts[0], data.classes
    if args.probability:
        report.check_probability(rows, classes)
    total = float(jax.numpy.sum(rows.weight))
    method = machine(args, rows, classes, key_map)
    lam = jaxsvm.lam_from_C(args.C or 1.0, total) if args.lam is None else args.lam
    C, gamma = jaxsvm.C_from_lam(lam, total), None if args.processes else gamma_of(args, rows.x)
    solver = method.make(C, gamma)
    numbers = f"lambda = {lam:.3g} (C = {C:.3g})"
    if gamma is not None:
        numbers += f", gamma = {gamma:.4g}"
    notes = data.notes | {"solver": f"{method.text}; {numbers}"}
    line("solver", f"{notes['solver']}; seed {args.seed}")
    fit = jaxsvm.fit(
        solver, rows, key, steps=method.steps, tol=method.tol, seconds=args.seconds,
        sampler=samplers.epochs(method.batch) if method.batch else samplers.whole(),
        progress=not args.quiet, on_interrupt="return",
    )  # fmt: skip
    stopped = fit.reason == "interrupted"
    if not int(fit.state.step):
        raise KeyboardInterrupt
    if not fit.finite or np.isnan(np.asarray(fit.info.residual[-1], np.float64)):
        raise ValueError(
            "the run met numbers that are not finite: look at the scale of the rows "
            "(--scale); nothing was written"
        )
    chances = None
    if args.probability and not stopped:
        chances = calibrated(args, solver, method, rows, notes)
    model = data.model(report.compact(fit.model), chances)
    notes["status"] = fit.status.replace("; go on with state=run.state", "")
    if args.model != STANDARD or stopped:  # so that Ctrl-C during the report does not lose it
        reading.save_model(args.model, stream, model, notes)
    line("status", notes["status"])
    if stopped:
        line("model", f"{args.model}, as of the last complete chunk")
        return 130
    notes |= report.errors(fit.model, data.parts, classes)
    certifies = len(classes) == 2 and args.solver != "perceptron" and args.kernel != "sigmoid"
    if args.certificate is not False and certifies:
        notes["certificate"] = report.certified(args, fit.model, rows, lam, method.loss)
        line("certificate", notes["certificate"])
    reading.save_model(args.model, stream, model, notes)  # with the errors and the certificate
    line("model", args.model)
    return 0


def calibrated(args: Any, solver: Any, method: Any, rows: Any, notes: dict[str, str]) -> Any:
    """Probabilities by decision values of five fits without a fold each; adds a line and a note."""
    selection = jaxsvm.select(
        lambda one: solver, rows, jax.random.key(args.seed), one=np.ones(1), score="log_loss",
        steps=steps_of(args, method, solver, len(rows.y)), tol=method.tol, progress=not args.quiet,
    )  # fmt: skip
    notes["probabilities"] = f"sigmoids; log-loss {selection.table.mean.item():.4g} out of 5 folds"
    line("probabilities", notes["probabilities"])
    return selection.calibrated()
