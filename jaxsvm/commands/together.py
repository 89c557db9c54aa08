"""`jaxsvm train` in several processes: each reads rows of its own, all train one model."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

import jaxsvm

from ..loops.processes import all_processes
from ..types import Batch, SparseRows
from . import rows as reading
from .build import pace
from .output import STANDARD, check_output, line
from .report import within
from .solvers import LOSSES, METHODS

# options that this way of training does not have
UNUSED = (
    "kernel", "features", "test", "hold_out", "multiclass", "budget", "steps", "batch", "seconds",
    "certificate",
)  # fmt: skip


def check(args: Any) -> None:
    """Raise for options that do not go with several processes, before they meet.

    Raises:
        ValueError: with the option to leave out, or to add.
    """
    if args.processes == "auto":
        if args.process is not None or args.coordinator is not None:
            raise ValueError("--processes auto finds the others by itself: leave the options out")
    elif None in (args.processes, args.process, args.coordinator):
        raise ValueError(
            "--processes, --process and --coordinator go together, such as --processes 2 "
            "--process 0 --coordinator localhost:1234; or --processes auto under Slurm"
        )
    elif not re.fullmatch("[0-9]{1,9}", args.processes) or not 0 <= args.process < int(
        args.processes
    ):
        raise ValueError(
            f"--process must be from 0 to K - 1 with --processes K, got {args.process} of "
            f"{args.processes}"
        )
    if args.solver not in (None, "cocoa"):
        raise ValueError(
            f"--processes trains by --solver cocoa, got {args.solver}: leave it out, or "
            "write the run with jaxsvm.shard and jaxsvm.fit"
        )
    if args.scale not in ("auto", "none"):
        raise ValueError("--processes does not scale columns: scale the files, and leave it out")
    for name in UNUSED:
        if getattr(args, name, None) not in (None, False):
            option = "--" + name.replace("_", "-")
            raise ValueError(f"--processes trains a linear machine: leave {option} out")
    if args.model == STANDARD or args.file == STANDARD:
        raise ValueError("--processes reads and writes files: name them in place of -")


def train(args: Any, read: Callable) -> int:
    """Run the command as one of several processes; returns the exit status.

    Args:
        args: the options.
        read: reads the rows of `args.file`.
    """
    check(args)
    if args.processes == "auto":
        jax.distributed.initialize()
    else:
        line("waits", f"for all {args.processes} processes at {args.coordinator}")
        jax.distributed.initialize(args.coordinator, int(args.processes), args.process)
    try:
        return _train(args, *_read(args, read))
    finally:
        jax.distributed.shutdown()


def _read(args: Any, read: Callable) -> tuple:
    """What `read` returns; or, in all processes, an error where one could not read its file."""
    rows, error, zero_based = (), None, args.zero_based
    try:
        check_output(args.model, args.file, None)
        rows = read(args, None)
    except (ValueError, OSError) as failure:
        error = failure
    failed, from_0 = all_processes(error is not None, args.zero_based == "yes").T
    if error is not None:
        raise error
    if failed.any():
        raise ValueError(
            f"process {int(np.argmax(failed))} could not read its file, so that all end: see the "
            "line that it has printed"
        )
    if zero_based == "auto" and args.zero_based == "no" and from_0.any():
        args.zero_based = "yes"  # an index 0 occurs in the file of another process
        return read(args, None)
    return rows


def _train(args: Any, parts: list[Batch], names: list[str], classes: tuple) -> int:
    first = jax.process_index() == 0
    say = line if first else lambda *text: None
    own, method = _same_columns(parts[0], classes), METHODS["cocoa"]
    if len(classes) > 2:
        raise ValueError(f"--processes trains a machine of two classes, got {len(classes)}")
    loss = LOSSES[args.loss or method.default_losses[not classes]]
    data = jaxsvm.shard(own)
    rows, weight = map(float, _sums(np.array([len(own.y), own.weight.sum()])))
    lam = args.lam or jaxsvm.lam_from_C(1.0 if args.C is None else args.C, weight)
    C, bias = jaxsvm.C_from_lam(lam, weight), args.bias or method.biases[0]
    say("read", f"{rows:.0f} rows in {jax.process_count()} files, {jax.device_count()} devices")
    solver = jaxsvm.cocoa(C, blocks=jax.device_count(), loss=loss, bias=bias)
    steps = args.passes or method.passes
    text = f"cocoa, at most {steps} rounds; lambda = {lam:.3g} (C = {C:.3g}), bias {bias}"
    say("solver", text)
    fit = jaxsvm.fit(
        solver, data, jax.random.key(args.seed), steps=steps, every=pace(steps, 1),
        tol=method.tol if args.tol is None else args.tol, progress=first and not args.quiet,
        on_interrupt="return",
    )  # fmt: skip
    if not int(fit.state.step):
        raise KeyboardInterrupt
    if not fit.finite:
        raise ValueError(
            "the run met numbers that are not finite: look at the scale of the rows; nothing was "
            "written"
        )
    linear = jax.tree.map(lambda a: jax.device_put(np.asarray(a)), fit.model)
    wrong = _wrong_weight(linear, own, classes)
    of_all = _sums(np.array([wrong, float(np.sum(own.weight))]))
    share = of_all[0] / of_all[1]
    error = f"{share:.2%}" if classes else f"{share**0.5:.6g} (root mean square)"
    status = fit.status.replace("; go on with state=run.state", "")
    say("status", status)
    say("train error", error)
    notes = {"rows": f"{rows:.0f} rows", "solver": text, "status": status, "train error": error}
    notes |= reading.reading_notes(args)
    stopped = fit.reason == "interrupted"
    if classes and not stopped:
        notes["certificate"] = within(jaxsvm.certificate(fit.model, data, lam, loss))
        say("certificate", notes["certificate"])
    if first:
        model = jaxsvm.models.Classifier(linear, classes) if classes else linear
        reading.save_model(args.model, None, model, notes)
    say("model", args.model)
    return 130 if stopped else 0


def _sums(own: np.ndarray) -> np.ndarray:
    """The sums of numbers over all processes."""
    return np.asarray(multihost_utils.process_allgather(own.astype(np.float32)), float).sum(axis=0)


def _wrong_weight(model: Any, data: Batch, classes: tuple) -> float:
    """The weight of the wrong rows of this process; for real targets the sum of squares."""
    score, weight = np.asarray(model(data.x), np.float64), np.asarray(data.weight, np.float64)
    y = np.asarray(data.y, np.float64)
    wrong = (np.where(score >= 0, 1, -1) != y) if classes else (score - y) ** 2
    return float(weight @ wrong)


def _same_columns(data: Batch, classes: tuple) -> Batch:
    """The rows, sparse ones with as many columns as the widest of all processes.

    Raises:
        ValueError: the files of two processes do not go together.
    """
    sparse = isinstance(data.x, SparseRows)
    kind = zlib.crc32(repr(classes).encode()) >> 1
    own = np.array([data.x.shape[1], sparse, kind], np.int32)
    columns, is_sparse, kinds = np.asarray(multihost_utils.process_allgather(own)).T
    if len(set(kinds)) > 1 or len(set(is_sparse)) > 1:
        shown = f"the classes {classes}" if len(set(kinds)) > 1 else "rows of another form"
        raise ValueError(
            f"the files of the processes differ, that of process {jax.process_index()} has {shown}:"
            " each file must hold rows of each class, in one format"
        )
    if not sparse and len(set(columns)) > 1:
        raise ValueError(f"the files of the processes have {sorted(set(columns.tolist()))} columns")
    x: Any = data.x
    return data._replace(x=dataclasses.replace(x, columns=int(columns.max()))) if sparse else data
