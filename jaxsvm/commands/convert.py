"""`jaxsvm convert`: rows from one format to another."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import numpy as np

from ..data.formats import kind_of
from ..data.save import save_csv, save_npz, save_svmlight
from . import rows as reading
from .output import STANDARD, check_output, printable, result_file, results, show, writing

SUFFIXES = r"\.(npz|svm|svmlight|libsvm|csv|tsv)$"


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    with results(args.out) as stream:
        return convert(args, stream)


def convert(args: Any, stream: Any) -> int:
    """Run the command with `stream` as the standard output; returns the exit status."""
    check_output(args.out)
    if args.out == STANDARD:
        suffix = f"rows.{args.to or 'csv'}"
    elif args.to:
        raise ValueError("--to is for the standard output (-): the name of a file says its format")
    else:
        suffix = args.out
    plain = re.sub(r"\.(gz|bz2|xz)$", "", suffix)
    if not re.search(SUFFIXES, plain):
        raise ValueError(f"{args.out} must end in .svm, .svmlight, .libsvm, .npz, .csv or .tsv")
    kind = (
        kind_of(plain)
        if not os.path.isfile(plain)
        else {"n": "npz", "c": "csv", "t": "csv"}.get(plain.split(".")[-1][0], "svmlight")
    )
    if kind == "npz" and plain != suffix:
        raise ValueError(
            f"{args.out}: an .npz file is not packed any further, leave the second ending out"
        )
    if (
        os.path.exists(args.out)
        and os.path.exists(args.file)
        and os.path.samefile(args.file, args.out)
    ):
        raise ValueError(f"{args.out} is the file that is read: give another name")
    dtype = np.dtype(args.dtype)
    parts = reading.rows(args, args.file, dtype=dtype)
    if not 0 <= args.part < len(parts):
        raise ValueError(f"--part {args.part}: {args.file} has {len(parts)} parts, counted from 0")
    x, y, weight, query = parts[args.part][:4]
    if x.dtype == np.float64 and dtype == np.float32:
        x = x.astype(dtype)
    if weight is not None and kind != "npz":
        raise ValueError(
            f"{args.file} holds weights, for which there is no place in {kind} files: write .npz"
        )
    if query is not None and kind == "csv":
        raise ValueError(
            f"{args.file} names queries, qid, for which there is no place in csv files: write .npz "
            "or .svm"
        )
    if kind == "npz":
        save = functools.partial(save_npz, x=x, y=y, weight=weight, query=query)
    elif kind == "csv":
        delimiter = "\t" if plain.endswith(".tsv") else args.delimiter or ","
        save = functools.partial(save_csv, x=x, y=y, delimiter=delimiter)
    elif y is None:
        raise ValueError(f"{args.file} holds no labels, and every line of svmlight begins with one")
    else:
        save = functools.partial(save_svmlight, x=x, y=y, query=query)
    if args.out == STANDARD:
        with result_file(args.out, stream, suffix) as temporary:
            save(temporary)
    else:
        with writing(args.out):
            save(args.out)
    labels = "" if y is None else " with labels"
    show(printable(f"{args.out}: {x.shape[0]} rows x {x.shape[1]} columns{labels}"))
    return 0
