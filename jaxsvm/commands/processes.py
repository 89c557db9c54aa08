"""`jaxsvm train` in several processes: each reads rows of its own, all train one model."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import jaxsvm

from ..loops.processes import all_processes
from ..types import SparseRows
from .output import STANDARD, check_outputs, line
from .rows import Data, training_data

# options that this way of training does not have
UNUSED = (
    "kernel", "features", "test", "hold_out", "multiclass", "budget", "steps", "batch", "seconds",
    "certificate",
)  # fmt: skip


@contextlib.contextmanager
def connected(args: Any) -> Iterator[None]:
    """The processes meet for the block; the report is that of the first. Alone nothing is done.

    Raises:
        ValueError: options that do not go with several processes.
    """
    if not (args.processes or args.process is not None or args.coordinator):
        yield
        return
    _check(args)
    args.solver, args.scale = "cocoa", "none"
    if args.processes == "auto":
        jax.distributed.initialize()
    else:
        line("waits", f"for all {args.processes} processes at {args.coordinator}")
        jax.distributed.initialize(args.coordinator, int(args.processes), args.process)
    try:
        first = not jax.process_index()
        with contextlib.nullcontext() if first else contextlib.redirect_stdout(io.StringIO()):
            args.quiet = args.quiet or not first
            yield
    finally:
        jax.distributed.shutdown()


def _check(args: Any) -> None:
    """Raise ValueError with the option to leave out, or to add, before the processes meet."""
    given = [name for name in UNUSED if getattr(args, name) not in (None, False)]
    alone = args.process is None and args.coordinator is None
    number, count = args.process, args.processes or ""
    digits = re.fullmatch("[0-9]{1,9}", count) is not None
    for is_wrong, sentence in (
        (count == "auto" and not alone,
         "--processes auto finds the others by itself: leave the options out"),
        (count != "auto" and None in (args.processes, number, args.coordinator),
         "--processes, --process and --coordinator go together, such as --processes 2 --process 0 "
         "--coordinator localhost:1234; or --processes auto under Slurm"),
        (count != "auto" and not (digits and 0 <= (number or 0) < int(count)),
         f"--process must be from 0 to K - 1 with --processes K, got {number} of {count}"),
        (args.solver not in (None, "cocoa"),
         f"--processes trains by --solver cocoa, got {args.solver}: leave it out, or write the run "
         "with jaxsvm.shard and jaxsvm.fit"),
        (args.scale not in ("auto", "none"),
         "--processes does not scale columns: scale the files, and leave it out"),
        (given, "--processes trains a linear machine: leave "
         f"{' and '.join('--' + name.replace('_', '-') for name in given)} out"),
        (STANDARD in (args.model, args.file),
         "--processes reads and writes files: name them in place of -"),
    ):  # fmt: skip
        if is_wrong:
            raise ValueError(sentence)


def read_together(args: Any, key: Any) -> Data:
    """The rows of all processes, laid over their devices; `key` as of `training_data`.

    Raises:
        ValueError: in all processes, where one could not read its file, or the files differ.
    """
    data, error, asked = None, None, args.zero_based
    try:
        check_outputs(args)
        data = training_data(args, key)
    except (ValueError, OSError) as failure:
        error = failure
    failed, from_0 = all_processes(error is not None, args.zero_based == "yes").T
    if error is not None or data is None:
        raise error or ValueError("there are no rows")
    if failed.any():
        raise ValueError(
            f"process {int(np.argmax(failed))} could not read its file, so that all end: see the "
            "line that it has printed"
        )
    if asked == "auto" and args.zero_based == "no" and from_0.any():
        args.zero_based = "yes"  # an index 0 occurs in the file of another process
        data = training_data(args, key)
    own, x = data.parts[0], data.parts[0].x
    form = (data.classes, None if isinstance(x, SparseRows) else x.shape[1])
    mine = zlib.crc32(repr(form).encode()) >> 1, x.shape[1], len(own.y)
    kinds, columns, counts = all_processes(*mine).T
    if len(set(kinds.tolist())) > 1:
        raise ValueError(
            f"the files of the processes differ, that of process {jax.process_index()} has "
            f"{x.shape[1]} columns and the classes {data.classes}: each file must hold rows of "
            "each class, in one format"
        )
    if len(data.classes) > 2:
        raise ValueError(f"--processes trains a machine of two classes, got {len(data.classes)}")
    if isinstance(x, SparseRows):  # as wide as the widest
        own = own._replace(x=dataclasses.replace(x, columns=int(columns.max())))
    text = f"{counts.sum()} rows in {len(counts)} files, {jax.device_count()} devices"
    line("", text)
    return data._replace(parts=[jaxsvm.shard(own)], notes=data.notes | {"rows": text})
