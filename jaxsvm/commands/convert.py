"""`jaxsvm convert`: rows from one format to another."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from ..data.formats import kind_of
from ..data.save import save_csv, save_npz, save_svmlight
from . import options

EXAMPLES = """\
examples:
  jaxsvm convert rows.svm rows.npz                        sparse rows stay sparse
  jaxsvm convert rows.csv rows.svm.gz --label class       labels must be numbers in svmlight files
  jaxsvm convert rows.npz test.csv --part 1               the second part, of x_train and x_test
"""
SUFFIXES = r"\.(npz|svm|svmlight|libsvm|csv|tsv)$"


def add(commands: Any) -> None:
    """Add the command and its options."""
    description = (
        "Convert rows between svmlight, .npz and CSV; labels keep their names, numbers all their "
        "digits."
    )
    parser = commands.add_parser(
        "convert", help="convert between formats", description=description, epilog=EXAMPLES
    )
    parser.set_defaults(run=run)
    parser.add_argument("file", help="rows: svmlight, .npz or CSV")
    parser.add_argument(
        "out",
        help="ends in .svm, .svmlight, .libsvm, .npz, .csv or .tsv; .gz or "
        ".bz2 behind it packs text",
    )
    parser.add_argument(
        "--part",
        type=int,
        default=0,
        help="which of several parts of an .npz file, 0 the first (0)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="of the numbers in .npz, from text (float64)",
    )
    options.add_reading_options(parser)


def run(args: Any) -> int:
    """Run the command; returns the exit status."""
    options.output(args.out)
    plain = re.sub(r"\.(gz|bz2|xz)$", "", args.out)
    if not re.search(SUFFIXES, plain):
        raise ValueError(f"{args.out} must end in .svm, .svmlight, .libsvm, .npz, .csv or .tsv")
    kind = (
        kind_of(plain)
        if not os.path.isfile(plain)
        else {"n": "npz", "c": "csv", "t": "csv"}.get(plain.split(".")[-1][0], "svmlight")
    )
    if kind == "npz" and plain != args.out:
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
    parts = options.rows(args, args.file, dtype=dtype)
    if not 0 <= args.part < len(parts):
        raise ValueError(f"--part {args.part}: {args.file} has {len(parts)} parts, counted from 0")
    x, y, weight = parts[args.part]
    if x.dtype == np.float64 and dtype == np.float32:
        x = x.astype(dtype)
    if weight is not None and kind != "npz":
        raise ValueError(
            f"{args.file} holds weights, for which there is no place in {kind} files: write .npz"
        )
    if kind == "npz":
        save_npz(args.out, x, y, weight)
    elif kind == "csv":
        save_csv(
            args.out, x, y, delimiter="\t" if plain.endswith(".tsv") else args.delimiter or ","
        )
    elif y is None:
        raise ValueError(f"{args.file} holds no labels, and every line of svmlight begins with one")
    else:
        save_svmlight(args.out, x, y)
    print(
        f"{args.out}: {x.shape[0]} rows x {x.shape[1]} columns{'' if y is None else ' with labels'}"
    )
    return 0
