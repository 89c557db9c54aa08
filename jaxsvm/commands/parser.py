"""The solvers, the options and the commands, as tables.

This module imports nothing but the standard library, so that wrong arguments are told at once.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import math
import re
import sys
from typing import Any, NamedTuple, NoReturn

from ..__about__ import __version__
from ..names import FEATURES, KERNELS, LANDMARKS, LOSSES, WITH_SIGMA
from .output import show

BUDGET = 500  # default number of points
# rows up to which `select` takes the exact kernel machine: of at most two classes, and of more
EXACT_ROWS = (5000, 2000)
MOST_NUMBERS = 100_000  # of a range
SCALES = {
    "standardize": "columns to mean 0, deviation 1",
    "unit": "columns to [0, 1], sparse ones to [-1, 1]",
    "none": "values as they are",
}


def cells(table: str) -> list[list[str]]:
    """The cells of a table, which two spaces divide; lines that begin with a space go on."""
    return [re.split("  +", line) for line in re.sub(r"\n +", " ", table).splitlines()]


class Defaults(NamedTuple):
    """A solver by name: what it is, and what the options are where they are not given."""

    biases: tuple[str, ...]  # that it takes, the first is the default
    batch: int  # rows of an update, 0: all
    passes: int
    tol: float | None
    text: str

    def loss(self, real: bool) -> str:
        """The name of the default loss, for classes or for real targets."""
        squared = self is SOLVERS["newton"]
        names = ("squared_hinge", "squared") if squared else ("hinge", "eps_insensitive")
        return names[real]


SOLVERS = {
    name: Defaults(
        tuple(biases.split("|")), int(batch), int(passes), None if tol == "-" else float(tol), text
    )
    for name, biases, batch, passes, tol, text in cells("""\
sdca  feature|none  1  100  1e-3  dual coordinate ascent, linear or with a kernel: no step size,
  stops by itself
interior_point  feature|free|none  0  10  1e-6  interior point method, linear or on features: up to
  1,000 columns, exact
augmented_lagrangian  feature|none  0  10  1e-6  the same for many rows, in float32: up to 1,000
  columns
dual_descent  feature|none  0  10  1e-4  dual coordinate descent with shrinking: sparse rows and
  many columns
decomposition  free|none  0  10  1e-3  the kernel machine of LIBSVM, exactly, a block of rows at a
  time: up to some 500,000 rows
smo  free|none  1  100  1e-3  the same a pair of rows at a time
pegasos  feature|none|free  16  20  -  stochastic subgradients with step 1/(lambda t), averaged
kernel_pegasos  none  1  20  -  Pegasos with a kernel
bsca  none  1  100  1e-3  dual coordinate ascent with a kernel, a model of --budget points: any
  number of rows, stops by itself
bsgd  none  1  20  -  Pegasos with a kernel, a model of --budget points
asset  free|none  16  20  -  robust stochastic subgradients, for features of a kernel
asset_star  none  16  20  -  the same with steps 1/(lambda t)
bottou_sgd  feature|none|free  1  20  -  SGD with Bottou's schedule
asgd  feature|none|free  1  20  -  averaged SGD
subgradient  feature|none|free  0  500  -  subgradients of all rows
cocoa  feature|none  0  1000  1e-2  dual coordinate ascent of several --processes at once, its
  default there
newton  feature|none|free  0  10  1e-6  Newton steps for squared_hinge (its default), logistic,
  squared, smooth_hinge
ocas  feature|free|none  0  500  1e-3  cutting planes with a line search: few passes of all rows,
  stops by itself
svm_perf  feature|free|none  0  500  1e-3  cutting planes of the mean loss, the one-slack form
perceptron  none  1  10  -  averaged perceptron, linear or with a kernel; no lambda""")
}


def integer(text: str, bits: int = 32) -> int:
    """An integer of so many bits."""
    with contextlib.suppress(ValueError):
        if -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
            return int(text)
    raise argparse.ArgumentTypeError(f"expected an integer below 2^{bits - 1}, got {text!r}")


def folds(text: str) -> int | str:
    """A number of folds, or "loo"."""
    if text == "loo" or text.isascii() and text.isdigit() and int(text) >= 2:
        return text if text == "loo" else int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number of at least 2, or loo, got {text!r}")


def numbers(text: str) -> list[float]:
    """The numbers of LOW:HIGH:COUNT, or of a list with commas.

    Example:
        >>> numbers("1:100:3"), numbers("2,3")
        ([1.0, 10.0, 100.0], [2.0, 3.0])
    """
    with contextlib.suppress(ValueError, OverflowError):
        low, *rest = text.split(":")
        values = [float(value) for value in text.split(",")] if len(rest) != 2 else []
        if not values and int(rest[1]) <= MOST_NUMBERS:
            ends, count = (math.log10(float(low)), math.log10(float(rest[0]))), int(rest[1])
            gap = (ends[1] - ends[0]) / max(count - 1, 1)
            values = [10 ** (ends[0] + gap * i) for i in range(count)]
        if values and all(math.isfinite(value) and value > 0 for value in values):
            return values
    raise argparse.ArgumentTypeError(
        f"expected LOW:HIGH:COUNT, at most {MOST_NUMBERS:,}, or numbers with commas, all above 0, "
        f"got {text!r}"
    )


# by name, or by command and name: a kind, a default behind =, and a text
OPTIONS = {
    name: (kind, text)
    for name, kind, text in cells(f"""\
file  -  rows: svmlight, .npz or CSV; - is the standard input
predict file  -  rows: svmlight, .npz (its test part where it has one) or CSV; or -. For a model of
  a table (--target of train) a CSV file with its columns, by name where it has a header
model  -  what --model of train, select or sweep wrote; or -
out  -  ends in .svm, .svmlight, .libsvm, .npz, .csv or .tsv; .gz or .bz2 behind it packs text; or -
train --model  FILE!  where the model goes (jaxsvm.models.load reads it); - is the standard output
--model  FILE  the machine of the choice, trained on all rows
predict --out  FILE=-  where the predictions go (standard output)
--out  FILE  the errors as CSV: lam, sigma, error
--plot  FILE  a heat map (.png, .svg, .pdf), needs matplotlib
--save  FILE  all finished fits; the same command goes on from this file, if it is there
--test  FILE  rows to work out the error on
--hold-out  float  share of the rows kept for the error, such as 0.2
sweep --hold-out  float=0.25  share of the rows for the errors (0.25)
--positive  CLASS  the class, or several with commas, against all others; without it the last of two
--task  binary|multiclass|regression  without it, by the labels
--scale  {"|".join(SCALES)}|auto=auto  columns, by the training rows, kept in the model:
  {"; ".join(f"{name}: {text}" for name, text in SCALES.items())}; auto (default): unit for sparse
  rows, else standardize
--C  float  1 / (lambda rows), as LIBSVM has it (1)
select --C  range  values of C, 1 / (lambda rows) (0.1:1000:8)
--lam  float  lambda
sweep --lam  range=1e-6:1e-1:8  lambdas (1e-6:1e-1:8)
--loss  {"|".join(LOSSES)}  hinge for classes, eps_insensitive for real targets; of newton the
  squared ones
--bias  feature|none|free  the constant: regularised, none or free (the solver's first)
--multiclass  ovr|ovo  more than two classes: a model for each against the rest (ovr), or for each
  pair, which vote (ovo)
--kernel  {"|".join(KERNELS).removesuffix("|precomputed")}  (linear; rbf with --features or in
  select)
--sigma  float  width of {", ".join(WITH_SIGMA)}
sweep --sigma  range  sigmas (8 from 0.07 to 4 times the median distance)
--gamma  float  1 / (2 sigma^2) of rbf, matern12 to matern52 and rational_quadratic (alpha = 1), 1
  / sigma of laplacian; factor of polynomial, sigmoid, chi2 (1 / (columns variance))
select --gamma  range  gammas, exp(-gamma |x - z|^2) of rbf, exp(-gamma |x - z|_1) of laplacian,
  of the others as of train (8 from 0.03 to 100 over the median squared distance)
--degree  int  of polynomial (3)
--coef0  float  constant of polynomial (1), sigmoid (0)
--features  {"|".join(FEATURES)}  approximate the kernel by features: for many rows
sweep --features  nystrom|fourier|orthogonal=nystrom  of the kernel (nystrom)
--landmarks  {"|".join(LANDMARKS)}  how nystrom chooses rows or, by k_means, centres (uniform)
--count  int  how many features (512; of sweep 128)
--solver  SOLVER  {"; ".join(f"{name}: {solver.text}" for name, solver in SOLVERS.items())} (of a
  linear machine newton, interior_point or sdca by the loss and the columns; sdca with a kernel, or
  with an option in its units)
select --solver  SOLVER  as of train, which says what they are; without it, of a kernel machine
  decomposition for up to {EXACT_ROWS[0]:,} rows, {EXACT_ROWS[1]:,} with more than two classes, else
  sdca on Nystrom features; of a linear machine newton, interior_point or sdca by the loss and the
  columns
--passes  int  over the rows, at most; the printed line 'solver' shows the default
sweep --passes  int=20  over the rows (20)
--steps  int  updates instead of passes
--budget  int  points of the model of bsca and bsgd, at least 2 ({BUDGET})
--batch  int  rows of an update
sweep --batch  int=16  rows of an update (16)
--tol  float  stop at this residual: sdca, decomposition, smo, bsca, ocas, svm_perf (1e-3),
  dual_descent (1e-4), newton, interior_point, augmented_lagrangian (1e-6), subgradient (goes on to
  the end)
--seconds  float  stop after the first chunk of steps that ends later
select --seconds  float  start no other fit after this time; then the table has gaps
--memory  float  bytes that a kernel matrix or a program may take
sweep --memory  float=4e9  bytes that the program may take (4e9)
--threads  int  fits at the same time (the processors)
--seed  seed=0  of all draws (0)
--quiet  flag  no progress bar
--certificate  switch  bound the distance to the optimum; without the option where that takes no
  more than 1 GiB
--processes  K  how many; auto: what Slurm, Open MPI, GKE or a TPU pod has started
--process  int  which of them, from 0 to K - 1
--coordinator  HOST:PORT  a free port of the machine of process 0
--folds  folds=5  how many folds, or loo: each row is a fold of its own (5)
--groups  FILE  a text file with the name of a group for each row, one a line: rows of one group are
  in one fold
--score  error|risk|log_loss|brier|auc=error  error: share of wrong rows, mean squared error of real
  targets; risk: mean hinge loss, mean absolute error; log_loss, brier: of probabilities; auc: one
  minus the area under the ROC curve (error)
--probability  flag  keep sigmoids with the model, for predict --probability: by the decision values
  of five more fits, each without a fifth of the rows
select --probability  flag  keep sigmoids with the model, for predict --probability: by the decision
  values of the rows held out, without more fits
predict --probability  flag  a tab and the probability of each class behind each name; the first
  line has the names of the classes
--rule  best|one_se=best  of the choice: best, the least mean; one_se, the least C and gamma within
  one standard error of it (best)
--scores  flag  a tab and the decision value behind each name; of many classes all values
--to  csv|tsv|svm|npz  format of the standard output, - (csv)
--part  int=0  which of several parts of an .npz file, 0 the first (0)
--format  svmlight|npz|csv  of the files; without it their names, then their first lines tell
--label  COLUMN=-1  CSV: the column of labels, by number or name (the last)
--target  COLUMN  CSV: the column of classes or real targets, by name or number, of a table whose
  columns may be words and have missing cells: words become indicators, numbers have mean 0 and
  deviation 1 (or are as they are, with --scale none)
--zero-based  auto|yes|no=auto  svmlight: whether the first column has index 0 (auto: as of the rows
  of the model, else where an index 0 occurs)
--delimiter  TEXT  CSV: what stands between cells (a comma; a tab in .tsv files)
--header  auto|yes|no=auto  CSV: whether the first line names columns (auto)
--missing  drop|mean  rows with missing numbers (empty cells, ? or NA of CSV, NaN of .npz): leave
  them out, or fill in the mean of the column over the training rows (refused)
--expansion  int=100  bytes that a compressed file may expand to, for each of its own (100)
--no-cache  flag  do not keep compiled programs on disk, in the user's cache folder""")
}
KINDS: dict[str, Any] = {
    "int": integer,
    "float": float,
    "range": numbers,
    "folds": folds,
    "seed": functools.partial(integer, bits=64),
}


def arguments(kind: str, text: str) -> dict[str, Any]:
    """The arguments of `add_argument` of an option of the table."""
    kind, _, default = kind.partition("=")
    convert = KINDS.get(kind, str)
    given: dict[str, Any] = {"help": text}
    if default:
        given["default"] = convert(default)
    if kind in KINDS:
        given |= {"type": convert, "metavar": kind.upper()}
    elif kind in ("flag", "switch"):
        given["action"] = "store_true" if kind == "flag" else argparse.BooleanOptionalAction
    elif kind == "SOLVER":
        given |= {"choices": tuple(SOLVERS), "metavar": kind}
    elif "|" in kind:
        given["choices"] = tuple(kind.split("|"))
    elif kind != "-":
        given |= {"metavar": kind.strip("!")}
    return given | ({"required": True} if kind.endswith("!") else {})


EXAMPLES = """\
examples:
  jaxsvm train adult.svm --test adult.t --model adult.npz     a linear machine, and its error
  jaxsvm train adult.svm --kernel rbf --features nystrom --hold-out 0.2 --model adult.npz
  jaxsvm predict adult.npz new.svm --out classes.txt          a class name for each row
  jaxsvm sweep adult.svm --plot sweep.png                     find good values of lambda and sigma
  jaxsvm select adult.csv --plot grid.png --model adult.npz   choose C and gamma, and train
  jaxsvm info adult.npz                                       what a model is
  jaxsvm convert adult.svm adult.csv                          from one format to another

files: svmlight (LIBSVM), also .gz and .bz2; .npz with arrays x and y; CSV with a column of labels
(the last). `jaxsvm train --help` explains the options of a command. Without a command `demo` is
run.
"""
RANGES = (
    "A range is LOW:HIGH:COUNT, even in the logarithm, or numbers with commas, such as 0.1,1,10."
)
READING = "--format --label --zero-based --delimiter --header --missing --expansion --no-cache"
KERNEL = "--kernel --gamma --degree --coef0 --features --count --landmarks"
LENGTH = "--passes/--steps --budget --tol --seconds --seed --quiet"
# the description, the end of the help, and the options by group; / divides those that exclude
# each other
COMMANDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "train": (
        "Train a support vector machine on the rows of a file and write the model.",
        """\
examples:
  jaxsvm train rows.csv --label class --positive spam --hold-out 0.2 --model model.npz
  jaxsvm train rows.npz --solver decomposition --kernel rbf --C 10 --model model.npz
  jaxsvm train rows.svm --solver bsca --kernel rbf --budget 200 --model model.npz
  jaxsvm train part-0.svm --processes 2 --process 0 --coordinator localhost:1234 --model model.npz

`decomposition` is exact, for up to some 500,000 rows. `--features nystrom` is faster on many rows.
`bsca` makes a small kernel model of many rows. Ctrl-C ends the run and keeps the model after the
last complete chunk of steps.
""",
        {
            "": "file --model --test/--hold-out --target --positive --task --scale --probability",
            "what is minimised: lambda/2 |w|^2 + mean loss": "--C/--lam --loss --bias --multiclass",
            "kernel": f"{KERNEL} --sigma",
            "how": f"--solver {LENGTH} --batch --certificate",
            "several processes: each calls this command with the rows of its own file, and all "
            "train one linear machine; the first writes it": "--processes --process --coordinator",
            "reading": READING,
        },
    ),
    "predict": (
        "Predict the classes of the rows of a file with a model that `jaxsvm train` wrote.",
        """\
examples:
  jaxsvm predict model.npz new.csv --out classes.txt      to a file; the error, if there are labels
  zcat new.csv.gz | jaxsvm predict model.npz -            rows from the standard input

A CSV file with as many columns as the model takes has no labels; with one more, --label says which
they are.
""",
        {"": "model file --out --scores/--probability", "reading": READING},
    ),
    "select": (
        "Choose C and gamma by cross-validation, and train the machine of the choice on all rows.",
        f"""\
examples:
  jaxsvm select rows.csv --C 1,10,100 --gamma 1e-3:1:7 --plot grid.png --model best.npz
  jaxsvm select rows.csv --kernel linear --rule one_se --model small.npz
  jaxsvm select rows.svm --features nystrom --count 1024 --save grid.npz --seconds 600

{RANGES}
Every pair of numbers is trained once without each fold, and its error is that on the fold. The pair
of the least mean error is the best. With --save, a command that was stopped goes on where it was.
""",
        {
            "": "file --model --plot --save --test/--hold-out --target --positive --task --scale",
            "the grid and the choice": "--C --folds --groups --score --rule --probability",
            "kernel": KERNEL,
            "what is minimised: 1/2 |w|^2 + C sum of losses": "--loss --bias --multiclass",
            "how": f"--solver {LENGTH} --memory --threads",
            "reading": READING,
        },
    ),
    "sweep": (
        "Train ASSET on features of the Gaussian kernel for every lambda and sigma of a grid, as "
        "one program, and show the error on rows held out.",
        f"""\
examples:
  jaxsvm sweep rows.csv --lam 1e-6:1e-2:5 --sigma 1,2,4,8 --plot sweep.png --out sweep.csv

{RANGES}
The model is the best point, trained on all rows. Sigma is the width of the Gaussian kernel in units
of the scaled columns.
""",
        {
            "": "file --lam --sigma --features --count --passes --batch --hold-out --memory --seed "
            "--quiet --out --plot --model --positive --scale",
            "reading": READING,
        },
    ),
    "convert": (
        "Convert rows between svmlight, .npz and CSV; labels and numbers stay what they are.",
        """\
examples:
  jaxsvm convert rows.csv rows.svm.gz --label class       labels must be numbers in svmlight files
  jaxsvm convert rows.npz test.csv --part 1               the second part, of x_train and x_test
""",
        {"": "file out --to --part", "reading": READING},
    ),
    "demo": ("Choose, solve and certify a machine for a small real data set.", "", {}),
    "info": ("Tell what a model file holds, and how the model was trained.", "", {"": "model"}),
}


class Parser(argparse.ArgumentParser):
    """A parser that raises ValueError, also for an option that only resembles one."""

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or the version as reports are printed."""
        show(message.rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of `argparse.ArgumentParser`; an unknown option is an error before a missing one."""
        given = sys.argv[1:] if args is None else list(args)
        given = given[: given.index("--")] if "--" in given else given
        known = list(self._option_string_actions)
        # the main parser is given the options of the command, too
        for word in () if self._subparsers else given:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in known:
                similar = difflib.get_close_matches(name, known, 1)
                advice = f": did you mean {similar[0]}?" if similar else ""
                self.error(f"there is no option {name}{advice}")
        return super().parse_known_args(args, namespace)


def parser() -> Parser:
    """All commands and their options; those that a command does not have are None."""
    make: Any = functools.partial(
        Parser, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    text = "Support vector machines from the command line."
    main_parser = make(prog="jaxsvm", description=text, epilog=EXAMPLES)
    main_parser.add_argument("--version", action="version", version=__version__)
    commands = main_parser.add_subparsers(
        dest="command", metavar="command", required=True, parser_class=make
    )
    every = {name.split()[-1].strip("-").replace("-", "_"): None for name in OPTIONS}
    for command, (text, epilog, groups) in COMMANDS.items():
        added = commands.add_parser(command, help=text, description=text, epilog=epilog)
        added.set_defaults(**every, module=command)
        for title, options in groups.items():
            group = added.add_argument_group(title) if title else added
            for option in options.split():
                names = option.split("/")
                target = group if len(names) == 1 else group.add_mutually_exclusive_group()
                for name in names:
                    row = OPTIONS.get(f"{command} {name}") or OPTIONS[name]
                    target.add_argument(name, **arguments(*row))
    return main_parser
