"""`jaxsvm train`: rows in a file to a model in a file."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import jaxsvm
from jaxsvm import models

from ..data.assemble import assemble, normalize_names
from ..data.encode import encode
from ..recipe import as_static
from ..types import Batch
from . import build, report, together
from . import rows as reading
from .build import pace
from .output import STANDARD, check_output, line, results, title
from .solvers import METHODS


def read(args: Any, key: Any) -> tuple[list[Batch], list[str], tuple]:
    """Training rows and optional test rows, their names in the report, and the classes."""
    test = getattr(args, "test", None)
    rows = reading.rows(args, *[path for path in (args.file, test) if path])
    used = [rows[0], *([rows[-1]] if test else rows[1:2])]
    if len({part.x.shape[1] for part in used}) > 1:
        raise ValueError(
            f"the files differ in columns: {' and '.join(str(part.x.shape[1]) for part in used)}"
        )
    positive = reading.positive(args)
    if positive is None and getattr(args, "task", None) is None and used[0].y is not None:
        refuse_measurements(args.file, used[0].y)
    loaded = assemble(reading.compact(used), task=getattr(args, "task", None), positive=positive)
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


def refuse_measurements(path: str, y: np.ndarray) -> None:
    """Raise ValueError where the labels (n,) of a file look like measurements."""
    classes, n = encode(normalize_names(y))[1], len(y)
    numbers = [name for name in classes if isinstance(name, float) and name % 1]
    if numbers and len(classes) > max(2, n / 2):
        raise ValueError(
            f"the labels of {path} are {len(classes)} different numbers in {n} rows, such as "
            f"{numbers[0]:g}: name the column of classes (--label), or take --task regression"
        )


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    if args.processes or args.process is not None or args.coordinator:
        return together.train(args, read)
    with results(args.model) as stream:
        return train(args, stream)


def train(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    check_output(args.model, args.file, args.test)
    key_split, key_map, key = jax.random.split(jax.random.key(args.seed), 3)
    reading.ignore_range_warnings(args.scale != "none")
    parts, names, classes = read(args, key_split)
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        line("read" if not i else "", reading.described(name, part, classes))
    scale, description = reading.scaler(args, parts[0].x)
    line("scaled", description)
    if scale is not None:
        parts = [part._replace(x=reading.call(scale, part.x)) for part in parts]
    if args.solver is None:
        # --seconds asks for a run that may stop at any time
        is_linear = args.kernel in (None, "linear") and not args.features and args.seconds is None
        args.solver = build.linear_solver(args, parts[0], classes) if is_linear else "sdca"
    method = METHODS[args.solver]
    solver, settings = build.build(args, method, parts[0], classes, key_map)
    steps, sampler, lam, loss, tol, method_text = settings
    one_pass = -(-parts[0].y.shape[0] // (sampler.rows(parts[0].y.shape[0])))
    fit = jaxsvm.fit(
        solver, parts[0], key, steps=steps, every=pace(steps, one_pass), sampler=sampler,
        tol=tol, seconds=args.seconds, progress=not args.quiet, on_interrupt="return",
    )  # fmt: skip
    stopped = fit.reason == "interrupted"
    if not int(fit.state.step):
        raise KeyboardInterrupt
    if not fit.finite or np.isnan(np.asarray(fit.info.residual[-1], np.float64)):
        raise ValueError(
            "the run met numbers that are not finite: look at the scale of the rows "
            "(--scale); nothing was written"
        )
    model = report.compact(fit.model)
    model = model if scale is None else models.Mapped(as_static(scale), model)
    model = models.Classifier(model, classes) if classes else model
    notes = {
        "rows": reading.described(title(args.file), parts[0], classes),
        "scaled": description,
        "solver": method_text,
        "status": fit.status.replace("; go on with state=run.state", ""),
        **reading.reading_notes(args),
    }
    if args.model != STANDARD or stopped:  # so that Ctrl-C during the report does not lose it
        reading.save_model(args.model, stream, model, notes)
    line("status", notes["status"])
    if stopped:
        line("model", f"{args.model}, as it was at the last look")
        return 130
    for name, part in zip(("train", "test"), parts, strict=False):
        head, text = report.error(name, fit.model, part, classes)
        notes[head] = text
        line(head, text)
    if (
        args.certificate is not False
        and len(classes) == 2
        and method.objective
        and args.kernel != "sigmoid"
    ):
        notes["certificate"] = report.certified(args, fit.model, parts[0], lam, loss)
        line("certificate", notes["certificate"])
    reading.save_model(args.model, stream, model, notes)  # with the errors and the certificate
    line("model", args.model)
    return 0
