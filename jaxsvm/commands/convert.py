"""`jaxsvm convert`: rows from one format to another."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from ..data import save_csv, save_npz, save_svmlight
from . import rows as reading
from .output import STANDARD, printable, result_file, show

KINDS = {
    "npz": "npz", "csv": "csv", "tsv": "csv", "svm": "svmlight", "svmlight": "svmlight",
    "libsvm": "svmlight",
}  # fmt: skip  # by the ending of a name


def run(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    is_standard = args.out == STANDARD
    if args.to and not is_standard:
        raise ValueError("--to is for the standard output (-): the name of a file says its format")
    name = f"rows.{args.to or 'csv'}" if is_standard else args.out
    plain = re.sub(r"\.(gz|bz2|xz)$", "", name)
    ending = os.path.splitext(plain)[1][1:]
    if ending not in KINDS:
        raise ValueError(f"{args.out} must end in .svm, .svmlight, .libsvm, .npz, .csv or .tsv")
    kind = KINDS[ending]
    if kind == "npz" and plain != name:
        raise ValueError(
            f"{args.out}: an .npz file is not packed any further, leave the second ending out"
        )
    parts = reading.rows(args, args.file)
    if not 0 <= args.part < len(parts):
        raise ValueError(f"--part {args.part}: {args.file} has {len(parts)} parts, counted from 0")
    x, y, weight, query = parts[args.part][:4]
    for what, is_held in (("weights", weight is not None), ("queries, qid", query is not None)):
        if is_held and kind not in (("npz",) if what == "weights" else ("npz", "svmlight")):
            raise ValueError(
                f"{args.file} holds {what}, for which there is no place in {kind} files: write .npz"
            )
    save: Any = functools.partial(save_npz, x=x, y=y, weight=weight, query=query)
    if kind == "csv":
        delimiter = "\t" if ending == "tsv" else args.delimiter or ","
        save = functools.partial(save_csv, x=x, y=y, delimiter=delimiter)
    elif kind == "svmlight":
        if y is None:
            raise ValueError(
                f"{args.file} holds no labels, and every line of svmlight begins with one"
            )
        save = functools.partial(save_svmlight, x=x, y=y, query=query)
    with result_file(args.out, stream, name, atomic=True) as path:
        save(path)
    labels = "" if y is None else " with labels"
    show(printable(f"{args.out}: {x.shape[0]} rows x {x.shape[1]} columns{labels}"))
    return 0
